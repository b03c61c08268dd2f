//! A cage as the supervisor has it: built and measured, then running, then ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use rustix::process::Signal;

use super::bare::Place;
use super::calls::{Listener, Listening};
use super::events::{Events, Written};
use super::first::First;
use super::guard::Guard;
use super::masks::Masks;
use super::sys;
use super::wire::{Event, NotExecuted, Refusal, Usage};
use crate::egress::{Engine, Refused, Running};
use crate::journal::Ticket;
use crate::plan::Limit;
use crate::report::Report;

pub use crate::outcome::{How, Masked, Outcome};

/// A cage that is built and measured, with the server's process waiting in it. Dropping it ends it.
pub struct Prepared {
    cage: Cage,
    /// Where it may connect out.
    engine: Option<Engine>,
    /// Where its calls are recorded, or why they cannot be.
    listener: Option<Result<Listener, String>>,
}

impl Prepared {
    pub(super) fn new(cage: Cage, engine: Option<Engine>, listener: Option<Result<Listener, String>>) -> Prepared {
        Prepared { cage, engine, listener }
    }

    /// Whether the run's calls are recorded: `None` where nobody asked for it, else the reason why they cannot be.
    pub fn recorded(&self) -> Option<Result<(), &str>> {
        self.listener.as_ref().map(|listener| listener.as_ref().map(|_| ()).map_err(String::as_str))
    }

    /// What each layer enforces, as measured inside.
    pub fn report(&self) -> &Report {
        &self.cage.report
    }

    /// Which kind of cgroup counts and caps it: `v2`, `systemd`, `v1` or `none`.
    pub fn cgroup(&self) -> &'static str {
        self.cage.remains.guard.cgroup().kind().name()
    }

    /// Lets the server start. The ticket is the proof that the begin entry is on disk. `refused` is told of each new kind of
    /// thing that it may not connect to, by another thread.
    ///
    /// # Errors
    /// Where the waiting process is gone, or what connects out for the server cannot be started.
    pub fn start(mut self, _: &Ticket, refused: Box<dyn FnMut(&Refused) + Send>) -> Result<Cage, Refusal> {
        // What is denied may have been moved while the cage was built: the run ends then before it starts.
        if self.cage.look_at_masks() == Masked::Yes {
            let egress = self.engine.map(|engine| engine.start(refused)).transpose();
            self.cage.egress = egress.map_err(|why| Refusal::new("starting the way out", why))?;
            // Before the server's first call, which would wait for ever.
            let listening = self.listener.and_then(Result::ok).map(Listener::start).transpose();
            self.cage.calls = listening.map_err(|why| Refusal::new("listening to calls", why))?;
            self.cage.remains.first.tell_to_start()?;
        }
        Ok(self.cage)
    }
}

/// A running server. Dropping it kills the whole tree.
pub struct Cage {
    /// The pipe to the server's standard input; dropping it is the end of the server's input.
    pub stdin: Option<OwnedFd>,
    /// The pipe from the server's standard output; dropped at its end.
    pub stdout: Option<OwnedFd>,
    /// The pipe from the server's standard error; dropped at its end.
    pub stderr: Option<OwnedFd>,
    report: Report,
    events: Events,
    /// What was heard of the server's end.
    how: Option<How>,
    usage: Option<Usage>,
    not_executed: Option<NotExecuted>,
    /// The watch over what is denied in its grants.
    masks: Masks,
    /// What was denied and changed its place.
    unmasked: Option<PathBuf>,
    /// The limit that ended it.
    exceeded: Option<Limit>,
    /// What connects out for it.
    egress: Option<Running>,
    /// What records its calls.
    calls: Option<Listening>,
    /// How often was looked whether it keeps its limits.
    looks: u32,
    remains: Remains,
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
        Cage {
            stdin,
            stdout,
            stderr,
            report,
            events,
            how: None,
            usage: None,
            not_executed: None,
            masks,
            unmasked: None,
            exceeded: None,
            egress: None,
            calls: None,
            looks: 0,
            remains: Remains { first, guard, _place: place },
        }
    }

    /// Readable when there is something for [`Cage::has_ended`] to hear.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Whether the server has ended, or was never executed, or the whole cage is gone.
    pub fn has_ended(&mut self) -> bool {
        loop {
            match self.events.written() {
                Written::Event(Event::Ended { code, signal, usage }) => {
                    self.how = code.map(How::Code).or(signal.map(How::Signal));
                    self.usage = usage;
                    return true;
                }
                Written::Event(Event::NotExecuted(why)) => self.not_executed = Some(why),
                Written::Event(_) => {}
                Written::Nothing => return false,
                Written::End => return true,
            }
        }
    }

    /// Passes a signal to the server.
    pub fn signal(&self, signal: Signal) {
        self.remains.first.signal(signal);
    }

    /// Kills every process of the cage at once.
    pub fn kill(&mut self) {
        self.remains.first.kill();
    }

    /// When [`Cage::look`] is due.
    pub fn next_look(&self) -> Instant {
        self.remains.guard.next()
    }

    /// Looks whether the tree keeps its limits, and kills it where it does not.
    pub fn look(&mut self) {
        /// Two seconds after the start, when most clients have shaken hands.
        const SETTLED: u32 = 20;
        self.remains.first.reap_others();
        self.looks = self.looks.saturating_add(1);
        if self.looks == SETTLED
            && let Err(why) = sys::forget_code()
        {
            tracing::debug!("the code of the start stays in memory: {why}");
        }
        if self.exceeded.is_none()
            && let Some(limit) = self.remains.guard.look()
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

    /// How it ended, once it [`has_ended`](Cage::has_ended), and what is left of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(mut self) -> io::Result<(Outcome, Remains)> {
        // What others used that PID 1 takes with it stands in its own usage.
        let usage = match self.usage {
            Some(usage) => Some(usage),
            None => self.remains.first.reap()?.map(|ended| ended.usage),
        };
        let guard = &self.remains.guard;
        let spent = guard.spent();
        let peak_memory = usage.map_or(0, |usage| usage.peak_memory);
        let failed = self.how.is_some_and(|how| how != How::Code(0));
        let limit = self.exceeded.or_else(|| guard.after(failed.then_some(peak_memory)));
        let outcome = Outcome {
            how: self.how,
            limit,
            unmasked: self.unmasked,
            not_executed: self.not_executed,
            // What PID 1 did not wait for, since it was killed with them, does not stand in its own.
            cpu_time: usage.map_or(spent, |usage| usage.cpu_time.max(spent)),
            peak_memory,
            egress: self.egress.take().map(Running::stop).unwrap_or_default(),
            asked: self.calls.take().map(Listening::stop),
        };
        Ok((outcome, self.remains))
    }
}

/// What is left of a cage whose server has ended. Dropping it waits for the kernel to take the namespaces down, and removes
/// the cgroup and the directories of the run.
#[derive(Debug)]
pub struct Remains {
    first: First,
    /// Dropped after `first` is reaped: the cgroup can be removed then.
    guard: Guard,
    /// The same of the directories of a cage without namespaces.
    _place: Option<Place>,
}
