//! Bytes from one connection to the other, both ways, with ends and resets carried over.
//!
//! They go through one buffer of the thread. What the other side does not take at once is held while all that is held is
//! little, and stays with the kernel otherwise, so that memory is bounded however many readers are slow. Measured, splice(2) was
//! no faster over loopback, and holds two descriptors for each pipe.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use rustix::net::{RecvFlags, Shutdown};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::tally::Way;

/// As much as is moved in one go.
const CHUNK: usize = 256 * 1024;
/// As much as is held of all connections together.
const HELD: usize = 4 * 1024 * 1024;
/// How many goes one connection has before others have theirs.
const TURN: usize = 16;

/// The buffer, and what is held elsewhere.
pub struct Space {
    buffer: RefCell<Box<[u8]>>,
    held: Cell<usize>,
}

impl Default for Space {
    fn default() -> Space {
        Space { buffer: RefCell::new(vec![0; CHUNK].into()), held: Cell::new(0) }
    }
}

impl Space {
    /// Looks at what has come without taking it. `judge` returns none to be asked again when more is there, and is told the
    /// last time by `true`.
    ///
    /// # Errors
    /// The connection's.
    pub async fn peek<T>(
        &self,
        stream: &TcpStream,
        most: usize,
        judge: impl Fn(&[u8], bool) -> Option<T>,
    ) -> io::Result<T> {
        loop {
            let ready = stream.ready(Interest::READABLE).await?;
            let looked = stream.try_io(Interest::READABLE, || {
                let mut buffer = self.buffer.borrow_mut();
                let room = &mut buffer[..most.min(CHUNK)];
                let (_, count) = rustix::net::recv(stream, &mut *room, RecvFlags::PEEK)?;
                let last = count == 0 || count == room.len() || ready.is_read_closed();
                // With nothing new there the readiness is over, and comes back with the next bytes.
                judge(&room[..count], last).ok_or_else(|| io::ErrorKind::WouldBlock.into())
            });
            match looked {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                looked => return looked,
            }
        }
    }

    /// Takes bytes away that were looked at.
    ///
    /// # Errors
    /// The connection's.
    pub fn drop_peeked(&self, stream: &TcpStream, count: usize) -> io::Result<()> {
        let mut buffer = self.buffer.borrow_mut();
        let mut left = count;
        while left > 0 {
            let room = left.min(CHUNK);
            let (_, dropped) = rustix::net::recv(stream, &mut buffer[..room], RecvFlags::TRUNC)?;
            if dropped == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= dropped;
        }
        Ok(())
    }

    /// Everything from one to the other until it ends, and the end.
    async fn pump(&self, from: &TcpStream, to: &TcpStream, passed: impl Fn(u64)) -> io::Result<()> {
        for turn in 1_usize.. {
            from.readable().await?;
            to.writable().await?;
            match self.step(from, to) {
                Ok(Step::End) => return end(to),
                Ok(Step::Moved(count)) => passed(count as u64),
                Ok(Step::Left(count, rest)) => {
                    passed(count as u64);
                    Held::new(self, rest).write(to, &passed).await?;
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(why),
            }
            if turn.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn step(&self, from: &TcpStream, to: &TcpStream) -> io::Result<Step> {
        let mut buffer = self.buffer.borrow_mut();
        if self.held.get() > HELD {
            return careful_step(&mut buffer, from, to);
        }
        let count = from.try_read(&mut buffer)?;
        if count == 0 {
            return Ok(Step::End);
        }
        let taken = match to.try_write(&buffer[..count]) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => 0,
            taken => taken?,
        };
        Ok(if taken == count { Step::Moved(count) } else { Step::Left(taken, buffer[taken..count].into()) })
    }
}

/// Leaves with the kernel what is not taken.
fn careful_step(buffer: &mut [u8], from: &TcpStream, to: &TcpStream) -> io::Result<Step> {
    from.try_io(Interest::READABLE, || {
        let (_, count) = rustix::net::recv(from, &mut *buffer, RecvFlags::PEEK)?;
        if count == 0 {
            return Ok(Step::End);
        }
        let taken = match to.try_write(&buffer[..count]) {
            // It is not `from` that has to be waited for.
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Moved(0)),
            taken => taken?,
        };
        rustix::net::recv(from, &mut buffer[..taken], RecvFlags::TRUNC)?;
        Ok(Step::Moved(taken))
    })
}

enum Step {
    Moved(usize),
    /// So many went, these did not.
    Left(usize, Box<[u8]>),
    End,
}

/// What one side has sent and the other not taken yet.
struct Held<'a> {
    space: &'a Space,
    rest: Box<[u8]>,
}

impl<'a> Held<'a> {
    fn new(space: &'a Space, rest: Box<[u8]>) -> Held<'a> {
        space.held.set(space.held.get() + rest.len());
        Held { space, rest }
    }

    async fn write(&self, to: &TcpStream, passed: impl Fn(u64)) -> io::Result<()> {
        let mut rest = &self.rest[..];
        while !rest.is_empty() {
            to.writable().await?;
            match to.try_write(rest) {
                Ok(count) => {
                    passed(count as u64);
                    rest = &rest[count..];
                }
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.space.held.set(self.space.held.get() - self.rest.len());
    }
}

/// Tells the other side that no more comes.
fn end(to: &TcpStream) -> io::Result<()> {
    match rustix::net::shutdown(to, Shutdown::Write) {
        // It has ended already.
        Ok(()) | Err(rustix::io::Errno::NOTCONN) => Ok(()),
        Err(why) => Err(why.into()),
    }
}

/// Copies both ways until both have ended. `first` comes before the first byte to `host`, and may refuse.
///
/// # Errors
/// The first of a connection; both are to be reset then.
pub async fn copy(
    space: &Space,
    cage: &TcpStream,
    host: &TcpStream,
    first: impl Future<Output = io::Result<()>>,
    passed: impl Fn(Way, u64),
) -> io::Result<()> {
    let mut sent = pin!(async {
        first.await?;
        space.pump(cage, host, |count| passed(Way::Sent, count)).await
    });
    let mut received = pin!(space.pump(host, cage, |count| passed(Way::Received, count)));
    // A reset by the cage's side is seen also while nothing of it can be taken on.
    let mut reset = pin!(cage.ready(Interest::ERROR));
    let (mut sent_all, mut received_all) = (false, false);
    poll_fn(|cx| {
        if !sent_all && let Poll::Ready(end) = sent.as_mut().poll(cx) {
            end?;
            sent_all = true;
        }
        if !received_all && let Poll::Ready(end) = received.as_mut().poll(cx) {
            end?;
            received_all = true;
        }
        if sent_all && received_all {
            return Poll::Ready(Ok(()));
        }
        match reset.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Ends a connection by a reset, so that the other side does not take it for an orderly end.
pub fn reset(stream: TcpStream) {
    // Without it the end is an orderly one, which is the worse word for the same thing.
    if let Err(why) = rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)) {
        tracing::debug!("a connection ends without a reset: {why}");
    }
}
