//! The ends of the relay by streams, each with a thread.

use runtime::system::{AsFd, BorrowedFd, Errno, OwnedFd, is_pipe, write};

/// Whether a stream is what a client holds a server by: a pipe.
pub fn is_of_a_client(fd: BorrowedFd<'_>) -> bool {
    is_pipe(fd)
}

/// Nobody looks, since the server never has the client's own streams.
pub fn unread(_: BorrowedFd<'_>) -> u64 {
    0
}

/// Where bytes come from.
pub enum Source<'c> {
    Client(BorrowedFd<'c>),
    Server(OwnedFd),
    Closed,
}

impl Source<'_> {
    pub fn server(pipe: Option<OwnedFd>) -> Self {
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

    /// Lets whoever writes into this source see a broken pipe. A client's own is closed with this process alone.
    pub fn refuse(&mut self) {
        self.close();
    }
}

/// Where bytes go.
pub enum Sink<'c> {
    Client(BorrowedFd<'c>),
    Server(OwnedFd),
    Closed,
}

impl<'c> Sink<'c> {
    pub fn client(fd: BorrowedFd<'c>) -> Self {
        Sink::Client(fd)
    }

    pub fn server(pipe: Option<OwnedFd>) -> Self {
        pipe.map_or(Sink::Closed, Sink::Server)
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Sink::Client(fd) => Some(*fd),
            Sink::Server(pipe) => Some(pipe.as_fd()),
            Sink::Closed => None,
        }
    }

    /// A write never waits: a thread does.
    pub fn never_waits(&self) -> bool {
        !matches!(self, Sink::Closed)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.fd().map_or(Err(Errno::PIPE), |fd| write(fd, bytes))
    }
}
