//! The ends of the relay by descriptors.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use runtime::system::{PIPE_BUF, send_now, write_now};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

/// Whether a descriptor is what a client holds a server by: a pipe or a socket.
pub fn is_of_a_client(fd: BorrowedFd<'_>) -> bool {
    Kind::of(fd) != Kind::Other
}

/// How many bytes a client has left in a descriptor that nobody has read.
pub fn unread(client: BorrowedFd<'_>) -> u64 {
    rustix::io::ioctl_fionread(client).unwrap_or(0)
}

/// Where bytes come from.
pub enum Source<'c> {
    Client(BorrowedFd<'c>),
    Server(OwnedFd),
    Closed,
}

impl Source<'_> {
    /// Non-blocking: the server can open its pipes anew by `/proc/self/fd` and take away what poll(2) has announced, and a
    /// supervisor that waits in read(2) watches no limit.
    pub fn server(pipe: Option<OwnedFd>) -> Self {
        if let Some(pipe) = &pipe {
            let _ = rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK);
        }
        pipe.map_or(Source::Closed, Source::Server)
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::Client(fd) => Some(*fd),
            Source::Server(pipe) => Some(pipe.as_fd()),
            Source::Closed => None,
        }
    }

    pub fn close(&mut self) {
        *self = Source::Closed;
    }

    /// Lets whoever writes into this source see a broken pipe.
    pub fn refuse(&mut self) {
        if let Source::Client(fd) = self
            && fd.as_raw_fd() == rustix::stdio::stdin().as_raw_fd()
            && let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())
        {
            let _ = rustix::stdio::dup2_stdin(null);
        }
        self.close();
    }
}

/// Where bytes go.
pub enum Sink<'c> {
    Client(BorrowedFd<'c>, Kind),
    /// Our end of a pipe to the server, non-blocking: that flag is this end's alone.
    Server(OwnedFd),
    Closed,
}

/// How to write to one of the client's descriptors without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One that takes `RWF_NOWAIT`, as far as is known: Linux has it since 6.4.
    Pipe,
    /// One that does not.
    OlderPipe,
    Socket,
    /// A file, a terminal, `/dev/null`: they take what they are given.
    Other,
}

impl Kind {
    fn of(fd: BorrowedFd<'_>) -> Kind {
        match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Fifo) => Kind::Pipe,
            Ok(FileType::Socket) => Kind::Socket,
            _ => Kind::Other,
        }
    }
}

impl<'c> Sink<'c> {
    pub fn client(fd: BorrowedFd<'c>) -> Self {
        Sink::Client(fd, Kind::of(fd))
    }

    pub fn server(pipe: Option<OwnedFd>) -> Self {
        match pipe {
            Some(pipe) => {
                let _ = rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK);
                Sink::Server(pipe)
            }
            None => Sink::Closed,
        }
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Sink::Client(fd, _) => Some(*fd),
            Sink::Server(pipe) => Some(pipe.as_fd()),
            Sink::Closed => None,
        }
    }

    /// Whether a write takes what there is room for, and no longer, whatever poll(2) has said.
    pub fn never_waits(&self) -> bool {
        match self {
            Sink::Server(_) | Sink::Client(_, Kind::Socket | Kind::Pipe) => true,
            Sink::Client(_, Kind::OlderPipe | Kind::Other) | Sink::Closed => false,
        }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Sink::Server(pipe) => rustix::io::write(pipe, bytes),
            Sink::Client(fd, Kind::Socket) => send_now(*fd, bytes),
            Sink::Client(fd, kind @ Kind::Pipe) => match write_now(*fd, bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
                    *kind = Kind::OlderPipe;
                    Err(Errno::AGAIN)
                }
                other => other,
            },
            // What poll(2) calls writable takes this much without blocking.
            Sink::Client(fd, Kind::OlderPipe) => rustix::io::write(fd, &bytes[..bytes.len().min(PIPE_BUF)]),
            Sink::Client(fd, Kind::Other) => rustix::io::write(fd, bytes),
            Sink::Closed => Err(Errno::PIPE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What poll(2) announced may be gone by the time it is read: the supervisor must not wait for it.
    #[test]
    fn reading_from_a_server_never_waits() {
        let (read, _write) = runtime::system::pipe().unwrap();
        let source = Source::server(Some(read));
        assert_eq!(rustix::io::read(source.fd().unwrap(), &mut [0_u8; 1]), Err(Errno::AGAIN));
    }
}
