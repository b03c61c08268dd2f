//! The supervisor's end of the event pipe.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
    pub fn on(pipe: OwnedFd) -> Events {
        Events { pipe, buffer: Vec::new() }
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
            if !fds[0].revents().is_empty() && !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next event that has been written already; for when all writers are gone.
    pub fn next_written(&mut self) -> Option<Event> {
        loop {
            match self.take_line() {
                Some(Ok(event)) => return Some(event),
                Some(Err(_)) => {}
                None => {
                    if !self.fill().unwrap_or(false) {
                        return None;
                    }
                }
            }
        }
    }

    fn fill(&mut self) -> Result<bool, Refusal> {
        let mut block = [0_u8; 4096];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&self.pipe, &mut block))
            .map_err(|why| Refusal::new("hearing from the container", why))?;
        self.buffer.extend_from_slice(&block[..n]);
        Ok(n > 0)
    }

    fn take_line(&mut self) -> Option<Result<Event, Refusal>> {
        let newline = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.buffer.drain(..=newline).collect();
        Some(serde_json::from_slice(&line).map_err(|why| Refusal::new("hearing from the container", why)))
    }
}
