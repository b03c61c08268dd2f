//! A cage as the supervisor has it: built and measured, then running, then ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::bare::Place;
use super::events::Events;
use super::first::First;
use super::guard::Guard;
use super::masks::Masks;
use super::wire::{Event, NotExecuted, Refusal};
use crate::journal::Ticket;
use crate::plan::Limit;
use crate::report::Report;

pub use super::sys::How;

/// A cage that is built and measured, with the server's process waiting in it. Dropping it ends it.
#[derive(Debug)]
pub struct Prepared {
    cage: Cage,
}

impl Prepared {
    pub(super) fn new(cage: Cage) -> Prepared {
        Prepared { cage }
    }

    /// What each layer enforces, as measured inside.
    pub fn report(&self) -> &Report {
        &self.cage.report
    }

    /// Which kind of cgroup counts and caps it: `v2`, `systemd`, `v1` or `none`.
    pub fn cgroup(&self) -> &'static str {
        self.cage.guard.cgroup().kind().name()
    }

    /// Lets the server start. The ticket is the proof that the begin entry is on disk.
    ///
    /// # Errors
    /// Where the waiting process is gone.
    pub fn start(mut self, _: &Ticket) -> Result<Cage, Refusal> {
        // What is denied may have been moved while the cage was built: the run ends then before it starts.
        if self.cage.look_at_masks() == Masked::Yes {
            self.cage.first.tell_to_start()?;
        }
        Ok(self.cage)
    }
}

/// A running server. Dropping it kills the whole tree.
#[derive(Debug)]
pub struct Cage {
    /// The pipe to the server's standard input; dropping it is the end of the server's input.
    pub stdin: Option<OwnedFd>,
    /// The pipe from the server's standard output; dropped at its end.
    pub stdout: Option<OwnedFd>,
    /// The pipe from the server's standard error; dropped at its end.
    pub stderr: Option<OwnedFd>,
    report: Report,
    first: First,
    events: Events,
    /// The watch over what is denied in its grants.
    masks: Masks,
    /// What was denied and changed its place.
    unmasked: Option<PathBuf>,
    /// The limit that ended it.
    exceeded: Option<Limit>,
    /// Dropped after `first` is reaped: the cgroup can be removed then.
    guard: Guard,
    /// The same of the directories of a cage without namespaces.
    _place: Option<Place>,
}

/// Whether all that is denied was hidden from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masked {
    /// It was, from the start to this look.
    Yes,
    /// Something changed its place, and the tree was killed for it.
    No,
}

/// How a run ended, with what it used.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The server's exit code or signal; `None` where PID 1 was killed with it.
    pub how: Option<How>,
    /// The limit that ended the tree, where one did.
    pub limit: Option<Limit>,
    /// The denied directory that changed its place, for which the tree was killed.
    pub unmasked: Option<PathBuf>,
    /// Set where the server's program was never executed.
    pub not_executed: Option<NotExecuted>,
    /// User and system time of the tree.
    pub cpu_time: Duration,
    /// Largest resident set of one process, bytes.
    pub peak_memory: u64,
}

impl Cage {
    /// `streams` lead to the server's standard input, from its output, from its error.
    pub(super) fn new(
        first: First,
        streams: [OwnedFd; 3],
        events: Events,
        report: Report,
        guard: Guard,
        masks: Masks,
        place: Option<Place>,
    ) -> Cage {
        let [stdin, stdout, stderr] = streams.map(Some);
        let (unmasked, exceeded) = (None, None);
        Cage { stdin, stdout, stderr, report, first, events, masks, unmasked, exceeded, guard, _place: place }
    }

    /// Readable when the cage has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.first.pidfd.as_fd()
    }

    /// Passes a signal to the server.
    pub fn signal(&self, signal: Signal) {
        self.first.signal(signal);
    }

    /// Kills every process of the cage at once.
    pub fn kill(&mut self) {
        self.first.kill();
    }

    /// When [`Cage::look`] is due.
    pub fn next_look(&self) -> Instant {
        self.guard.next()
    }

    /// Looks whether the tree keeps its limits, and kills it where it does not.
    pub fn look(&mut self) {
        self.first.reap_others();
        if self.exceeded.is_none()
            && let Some(limit) = self.guard.look()
        {
            self.exceeded = Some(limit);
            self.kill();
        }
    }

    /// Readable when a name near what is denied changed; `None` where nothing is.
    pub fn near_masks(&self) -> Option<BorrowedFd<'_>> {
        self.masks.events()
    }

    /// Looks whether all that is denied is in its place, and kills the tree where it is not. What the server wrote before a
    /// look that finds it so cannot hold anything of what is denied.
    pub fn look_at_masks(&mut self) -> Masked {
        if self.unmasked.is_none()
            && let Some(path) = self.masks.look()
        {
            self.unmasked = Some(path);
            self.kill();
        }
        if self.unmasked.is_none() { Masked::Yes } else { Masked::No }
    }

    /// Waits for the end of the cage and takes what is left of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(mut self) -> io::Result<Outcome> {
        let usage = self.first.reap()?;
        let spent = self.guard.spent();
        let mut outcome = Outcome {
            how: None,
            limit: None,
            unmasked: self.unmasked.take(),
            not_executed: None,
            // What PID 1 did not wait for, since it was killed with them, does not stand in its own.
            cpu_time: usage.map_or(spent, |ended| ended.cpu_time.max(spent)),
            peak_memory: usage.map_or(0, |ended| ended.peak_memory),
        };
        while let Some(event) = self.events.next_written() {
            match event {
                Event::Ended { code: Some(code), .. } => outcome.how = Some(How::Code(code)),
                Event::Ended { signal: Some(signal), .. } => outcome.how = Some(How::Signal(signal)),
                Event::NotExecuted(why) => outcome.not_executed = Some(why),
                _ => {}
            }
        }
        let failed = outcome.how.is_some_and(|how| how != How::Code(0));
        outcome.limit = self.exceeded.or_else(|| self.guard.after(failed.then_some(outcome.peak_memory)));
        Ok(outcome)
    }
}
