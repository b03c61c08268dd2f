//! The socket by which the cage process is told its order, by which root passes on what only root may open, and by which
//! the supervisor, which has nothing else to do by then, hands over the filter that it has assembled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::SendFlags;

use super::masks::Place;
use super::mounts::Detached;
use super::rights::{self, MOST};
use super::sources::{self, Grant, Sources};
use super::sys::Instruction;
use super::wire::Order;
use crate::plan::{Plan, What};

/// As many as the kernel takes, `BPF_MAXINSNS`.
const MOST_INSTRUCTIONS: usize = 4096;

/// What an order comes with.
#[derive(Debug, Default)]
pub struct Besides {
    /// The end of [`Sockets`](super::sockets::Sockets) that PID 1 answers at, where the run may connect out.
    pub sockets: Option<OwnedFd>,
    /// The client's standard input and output, where the server gets them as they are.
    pub streams: Option<[OwnedFd; 2]>,
    /// By which the server's process gives the supervisor the way to hear its calls, where they are recorded.
    pub teller: Option<OwnedFd>,
}

/// One end of it.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// The supervisor's end and the cage process's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pair() -> io::Result<(Channel, Channel)> {
        let (ours, theirs) = rights::pair()?;
        Ok((Channel(ours), Channel(theirs)))
    }

    /// Gives the order with what belongs to it.
    ///
    /// # Errors
    /// The kernel's: `EPIPE` where the cage process is gone.
    pub fn give_order(&self, order: &Order, besides: Besides) -> io::Result<()> {
        let order = order.seal()?;
        let streams = besides.streams.iter().flatten();
        let all = [&order].into_iter().chain(&besides.sockets).chain(streams).chain(&besides.teller);
        self.send(&all.map(AsFd::as_fd).collect::<Vec<_>>())
    }

    /// Gives what the plan's mounts are made of.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_sources(&self, sources: &Sources) -> io::Result<()> {
        let grants = sources.grants.iter().map(|grant| grant.mount.as_fd());
        let denied = sources.denied.iter().map(|place| place.directory.as_fd());
        let all: Vec<_> = [sources.tree.as_fd()].into_iter().chain(grants).chain(denied).collect();
        all.chunks(MOST).try_for_each(|some| self.send(some))
    }

    /// Gives the filter of the server, and the files by which it joins a cgroup.
    ///
    /// # Errors
    /// The kernel's.
    pub fn give_filter(&self, filter: &[Instruction], joins: &[OwnedFd]) -> io::Result<()> {
        let bytes: Vec<u8> = filter.iter().flat_map(|instruction| instruction.to_bytes()).collect();
        self.send(&joins.iter().map(AsFd::as_fd).collect::<Vec<_>>())?;
        rustix::net::send(&self.0, &bytes, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Lets the cage process go on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn nod(&self) -> io::Result<()> {
        self.send(&[])
    }

    /// Waits for that.
    ///
    /// # Errors
    /// The kernel's.
    pub fn await_nod(&self) -> io::Result<()> {
        self.receive().map(drop)
    }

    /// The files by which to join a cgroup; none where that is done.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_joins(&self) -> io::Result<Vec<OwnedFd>> {
        self.receive()
    }

    /// The filter, which comes after them.
    ///
    /// # Errors
    /// The kernel's, and where the supervisor ended before it gave it.
    pub fn take_filter(&self) -> io::Result<Vec<Instruction>> {
        let mut bytes = [0_u8; Instruction::SIZE * MOST_INSTRUCTIONS];
        let length = rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut bytes))?;
        let (instructions, rest) = bytes[..length].as_chunks();
        if instructions.is_empty() || !rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(instructions.iter().map(|bytes| Instruction::from_bytes(*bytes)).collect())
    }

    /// The order with what belongs to it, `None` where the supervisor ended or gave the run up.
    ///
    /// # Errors
    /// The kernel's, and where something else came.
    pub fn take_order(&self) -> io::Result<Option<(Order, Besides)>> {
        let mut all = self.receive()?.into_iter();
        let Some(order) = all.next() else { return Ok(None) };
        let order = Order::read(order)?;
        let sockets = if order.plan.egress.is_empty() { None } else { all.next() };
        let streams = if order.direct { all.next().zip(all.next()).map(<[OwnedFd; 2]>::from) } else { None };
        Ok(Some((order, Besides { sockets, streams, teller: all.next() })))
    }

    /// What the plan's mounts are made of.
    ///
    /// # Errors
    /// The kernel's, and where the supervisor ended before it gave all of them.
    pub fn take_sources(&self, plan: &Plan) -> io::Result<Sources> {
        let count = |is: fn(&What) -> bool| plan.mounts.iter().filter(|mount| is(&mount.what)).count();
        let grants = count(|what| matches!(what, What::Granted { .. }));
        let denied = count(|what| matches!(what, What::Denied { .. }));
        let mut all = Vec::new();
        while all.len() < 1 + grants + denied {
            let some = self.receive()?;
            if some.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            all.extend(some);
        }
        let mut all = all.into_iter();
        let mut tree = Detached::new(all.next().ok_or(io::ErrorKind::UnexpectedEof)?);
        // A kernel that cannot restrict it before it is attached has not done so yet.
        sources::restrict_tree(&mut tree)?;
        let grants =
            all.by_ref().take(grants).map(|mount| Grant::new(Detached::new(mount))).collect::<io::Result<_>>()?;
        Ok(Sources { tree, grants, denied: all.map(Place::of).collect::<io::Result<_>>()? })
    }

    fn send(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        Ok(rights::send(&self.0, b"d", descriptors)?)
    }

    /// The descriptors of the next message; none where the other end is closed.
    fn receive(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(rights::receive(&self.0, &mut [0_u8])?.1)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
