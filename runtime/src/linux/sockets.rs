//! Sockets in the cage's network namespace for the supervisor, which stays outside of it. A socket belongs to the namespace
//! of the process that made it, so PID 1 makes them, on request and as many as a run needs.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socket_with};

use super::rights;
use super::unheard::Unheard;

/// As many sockets as are asked for at once: PID 1, which holds them for a moment, has the run's limit of descriptors.
const MOST: usize = 8;

/// How long PID 1 may take for an answer, which is microseconds: one that was stopped from outside must not stop its supervisor.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which socket is wanted. All are non-blocking, close-on-exec and not bound; those of IPv6 take no IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketKind {
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
}

impl SocketKind {
    const ALL: [SocketKind; 4] = [SocketKind::Udp4, SocketKind::Udp6, SocketKind::Tcp4, SocketKind::Tcp6];

    fn make(self) -> rustix::io::Result<OwnedFd> {
        let (family, kind) = match self {
            SocketKind::Udp4 => (AddressFamily::INET, SocketType::DGRAM),
            SocketKind::Udp6 => (AddressFamily::INET6, SocketType::DGRAM),
            SocketKind::Tcp4 => (AddressFamily::INET, SocketType::STREAM),
            SocketKind::Tcp6 => (AddressFamily::INET6, SocketType::STREAM),
        };
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        if family == AddressFamily::INET6 {
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
        }
        Ok(socket)
    }
}

/// The supervisor's end.
#[derive(Debug)]
pub struct Sockets {
    channel: OwnedFd,
    /// What the cage process made while it had the right to.
    unheard: Option<Unheard>,
    /// An answer is missing, and would be taken for that to the next question.
    late: Cell<bool>,
}

impl Sockets {
    /// The supervisor's end, and that of the process inside, which answers by [`answer`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn pair() -> io::Result<(Sockets, OwnedFd)> {
        let (ours, theirs) = rights::pair()?;
        rustix::net::sockopt::set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE))?;
        Ok((Sockets { channel: ours, unheard: None, late: Cell::new(false) }, theirs))
    }

    /// Takes what [`offer`] gave, which comes before any answer; says why there is none.
    ///
    /// # Errors
    /// Where the cage process is gone.
    pub(crate) fn take_offer(&mut self) -> io::Result<Result<(), io::Error>> {
        let (failed, sockets) = receive(&self.channel)?;
        if failed != 0 {
            return Ok(Err(io::Error::from_raw_os_error(failed)));
        }
        self.unheard = Some(Unheard::of(sockets));
        Ok(Ok(()))
    }

    /// Where refusals are seen that nobody listens for; `None` where they cannot be, or once it was taken.
    pub fn take_unheard(&mut self) -> Option<Unheard> {
        self.unheard.take()
    }

    /// One socket of each kind, in this order. Waits for the process inside, which has nothing else to do.
    ///
    /// # Errors
    /// `EPIPE` and `UnexpectedEof` where that process is gone, `EAGAIN` where it does not answer, from then on for ever; the kernel's word where it could not make one, `EAFNOSUPPORT`
    /// where a machine has no IPv6.
    pub fn ask(&self, kinds: &[SocketKind]) -> io::Result<Vec<OwnedFd>> {
        let mut all = Vec::with_capacity(kinds.len());
        for some in kinds.chunks(MOST) {
            let wanted: Vec<u8> = some.iter().map(|kind| *kind as u8).collect();
            if self.late.get() {
                return Err(Errno::AGAIN.into());
            }
            rustix::net::send(&self.channel, &wanted, SendFlags::NOSIGNAL)?;
            let received = receive(&self.channel);
            self.late.set(received.is_err());
            let (failed, sockets) = received?;
            if failed != 0 {
                return Err(io::Error::from_raw_os_error(failed));
            }
            if sockets.len() != some.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            all.extend(sockets);
        }
        Ok(all)
    }
}

/// Gives the supervisor what this network namespace's refusals are seen by, or says why there is none; as the cage process, to
/// the end that is PID 1's later.
///
/// # Errors
/// Where the supervisor is gone.
pub fn offer(theirs: &OwnedFd) -> io::Result<()> {
    let opened = Unheard::open().map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO));
    give_or_explain(theirs, opened.map(Unheard::into_sockets))
}

/// Answers one request, for which `theirs` is readable. The supervisor's end is told what went wrong.
///
/// # Errors
/// Where the supervisor is gone.
pub fn answer(theirs: &OwnedFd) -> io::Result<()> {
    let mut wanted = [0_u8; MOST];
    let length = rustix::io::read(theirs, &mut wanted)?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let kind = |byte: &u8| SocketKind::ALL.get(usize::from(*byte)).copied().ok_or(Errno::INVAL);
    let made = wanted[..length].iter().map(|byte| kind(byte)?.make()).collect::<Result<Vec<_>, _>>();
    give_or_explain(theirs, made)
}

/// Gives these, or the number of the error.
///
/// # Errors
/// Where the supervisor is gone.
pub(super) fn give_or_explain(theirs: &OwnedFd, made: rustix::io::Result<Vec<OwnedFd>>) -> io::Result<()> {
    // Passing them on may fail too: the kernel counts what is in flight for a user on the whole machine.
    if let Err(why) = made.and_then(|sockets| give(theirs, &sockets)) {
        rustix::net::send(theirs, &why.raw_os_error().to_ne_bytes(), SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

fn give(theirs: &OwnedFd, sockets: &[OwnedFd]) -> rustix::io::Result<()> {
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    rights::send(theirs, &0_i32.to_ne_bytes(), &sockets)
}

/// The error number that came, 0 for none, and the sockets.
///
/// # Errors
/// Where the other end is gone.
pub(super) fn receive(from: &OwnedFd) -> io::Result<(i32, Vec<OwnedFd>)> {
    let mut number = [0_u8; 4];
    let (length, sockets) = rights::receive(from, &mut number)?;
    if length != number.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((i32::from_ne_bytes(number), sockets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_come_in_the_order_that_was_asked_for() {
        let (ours, theirs) = Sockets::pair().unwrap();
        let kinds: Vec<_> = SocketKind::ALL.into_iter().cycle().take(600).collect();
        let sockets = std::thread::scope(|scope| {
            scope.spawn(|| while answer(&theirs).is_ok() {});
            let sockets = ours.ask(&kinds).unwrap();
            drop(ours);
            sockets
        });
        for (kind, socket) in kinds.iter().zip(&sockets) {
            let stream = matches!(kind, SocketKind::Tcp4 | SocketKind::Tcp6);
            let wanted = if stream { SocketType::STREAM } else { SocketType::DGRAM };
            assert_eq!(rustix::net::sockopt::socket_type(socket), Ok(wanted));
            let wanted = match kind {
                SocketKind::Udp4 | SocketKind::Tcp4 => AddressFamily::INET,
                SocketKind::Udp6 | SocketKind::Tcp6 => AddressFamily::INET6,
            };
            assert_eq!(rustix::net::sockopt::socket_domain(socket), Ok(wanted));
        }
        assert_eq!(sockets.len(), kinds.len());
    }

    #[test]
    fn a_process_that_is_gone_is_an_error_and_no_signal() {
        let (ours, theirs) = Sockets::pair().unwrap();
        drop(theirs);
        assert_eq!(ours.ask(&[SocketKind::Tcp4]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn one_that_does_not_answer_is_not_waited_for() {
        let (ours, theirs) = Sockets::pair().unwrap();
        let soon = Duration::from_millis(10);
        rustix::net::sockopt::set_socket_timeout(&ours.channel, Timeout::Recv, Some(soon)).unwrap();
        assert_eq!(ours.ask(&[SocketKind::Tcp4]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // What comes late is no answer to another question.
        answer(&theirs).unwrap();
        assert_eq!(ours.ask(&[SocketKind::Udp6]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
