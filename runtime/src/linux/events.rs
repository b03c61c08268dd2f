//! The supervisor's end of the event pipe.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::signals::Signals;
use super::wire::{Event, Refusal};

/// A cage takes some milliseconds to build. One that takes this long hangs on something of the host, such as a grant on a
/// file system that does not answer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The read end of the event pipe.
#[derive(Debug)]
pub struct Events {
    pipe: OwnedFd,
    buffer: Vec<u8>,
}

impl Events {
    /// Listens on a pipe.
    ///
    /// # Errors
    /// The kernel's.
    pub fn on(pipe: OwnedFd) -> rustix::io::Result<Events> {
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK)?;
        Ok(Events { pipe, buffer: Vec::new() })
    }

    /// The next event, `None` when all writers are gone.
    ///
    /// # Errors
    /// Where time ran out, a signal asks smcp to end, or what came is no event.
    pub fn next(&mut self, signals: &Signals, deadline: Instant) -> Result<Option<Event>, Refusal> {
        loop {
            if let Some(event) = self.take_line() {
                return event.map(Some);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => {
                    return Err(Refusal::new("starting the container", format!("it took longer than {PATIENCE:?}")));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => return Err(Refusal::new("waiting for the container", why)),
            }
            if !fds[1].revents().is_empty() {
                return Err(Refusal::new("starting the container", "a signal asked smcp to end"));
            }
            if !fds[0].revents().is_empty() {
                match self.fill() {
                    Ok(0) => return Ok(None),
                    Ok(_) | Err(Errno::AGAIN) => {}
                    Err(why) => return Err(Refusal::new("hearing from the container", why)),
                }
            }
        }
    }

    /// What has been written by now.
    pub fn written(&mut self) -> Written {
        match self.take_line() {
            Some(Ok(event)) => return Written::Event(event),
            Some(Err(_)) => return self.written(),
            None => {}
        }
        match self.fill() {
            Err(Errno::AGAIN) => Written::Nothing,
            Ok(0) | Err(_) => Written::End,
            Ok(_) => self.written(),
        }
    }

    fn fill(&mut self) -> rustix::io::Result<usize> {
        let mut block = [0_u8; 4096];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&self.pipe, &mut block))?;
        self.buffer.extend_from_slice(&block[..n]);
        Ok(n)
    }

    fn take_line(&mut self) -> Option<Result<Event, Refusal>> {
        let newline = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.buffer.drain(..=newline).collect();
        Some(serde_json::from_slice(&line).map_err(|why| Refusal::new("hearing from the container", why)))
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// What [`Events::written`] found.
#[derive(Debug)]
pub enum Written {
    /// An event.
    Event(Event),
    /// Nothing yet.
    Nothing,
    /// All writers are gone.
    End,
}
