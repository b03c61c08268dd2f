//! What a run asks registries before it knows its package. Nobody is asked as long as the store has all answers; from the first
//! question on a thread hears signals and watches the time, since an answer may never come.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use distribution::{Mode, Network, Reference, Store, canonical};
use runtime::Signals;
use runtime::journal::Journal;
use runtime::system::{OwnedFd, PollFd, PollFlags, pipe};
use ulid::Ulid;

use crate::bring::{Bring, Wanted, callers, has_hung_up, wait_on};
use crate::exit::{self, Failure};
use crate::record::Record;
use crate::run::{failed, take_signals};
use crate::settings::Settings;

/// For whom is asked.
pub struct Asking<'a, F> {
    network: &'a Network,
    run: F,
    signals: Option<Signals>,
    watch: Option<Watch>,
}

/// The run that asks, as it ends where it is not answered.
pub struct About {
    /// What it is about.
    pub reference: Reference,
    /// `--registry`.
    pub registry: Option<String>,
    /// When a registry is asked.
    pub mode: Mode,
    /// As this process has them.
    pub settings: Settings,
    /// Where its end is written.
    pub journal: Journal,
    /// Its id.
    pub run: Ulid,
    /// When it began.
    pub began: Instant,
    /// Until when a client waits; whoever else waits to the end.
    pub until: Option<Instant>,
    /// Whether there is a client to be answered.
    pub is_answered: bool,
}

impl<'a, F: Fn() -> About> Asking<'a, F> {
    /// Nobody can be asked by that network until [`Asking::get`] has to; `run` is asked only then.
    /// `signals` are those that had to be heard before.
    pub fn new(network: &'a Network, signals: Option<Signals>, run: F) -> Self {
        network.access.door.shut();
        Asking { network, run, signals, watch: None }
    }

    /// Gets something, from the store alone where that has it.
    ///
    /// # Errors
    /// Those of `get`; as those of [`Bring::wait_for_the_other`] where another process gets it already.
    pub fn get<T, E>(&mut self, get: impl Fn() -> Result<T, E>) -> Result<T, Failure>
    where
        Failure: From<E>,
    {
        let door = &self.network.access.door;
        let first = get();
        if self.watch.is_some() || !door.was_knocked_at() {
            return Ok(first?);
        }
        let signals = match self.signals.take() {
            Some(signals) => signals,
            None => take_signals()?,
        };
        let run = (self.run)();
        if run.until.is_some() && run.waits_for_another(self.network, &signals)? {
            let again = get();
            if !door.was_knocked_at() {
                self.signals = Some(signals);
                return Ok(again?);
            }
        }
        self.watch = Some(Watch::begin(signals, run, self.network)?);
        door.open();
        Ok(get()?)
    }

    /// All is known, and this process has one thread again. The signals, where they had to be heard.
    pub fn done(mut self) -> Option<Signals> {
        self.network.access.door.open();
        self.watch.take().and_then(Watch::end).or(self.signals.take())
    }
}

impl About {
    /// Whether another process brought it meanwhile, to its end.
    fn waits_for_another(&self, network: &Network, signals: &Signals) -> Result<bool, Failure> {
        let store = Store::open(&self.settings.cache)?;
        let bring = self.bring(canonical(&self.reference, network)?, &store);
        bring.tell_of_the_last();
        let is_under_way = bring.is_under_way();
        if is_under_way {
            bring.wait_for_the_other(Some(signals))?;
        }
        Ok(is_under_way)
    }

    fn bring<'a>(&'a self, name: String, store: &'a Store) -> Bring<'a> {
        Bring {
            what: Wanted::Name(self.mode),
            reference: self.reference.to_string(),
            name,
            store,
            settings: &self.settings,
            registry: self.registry.as_deref(),
            offline: false,
            until: self.until,
        }
    }

    /// Why it ends when its time is up: what it asked for is brought by another process from here on.
    fn late(&self, name: &str) -> Failure {
        let left_behind = || -> Result<Failure, Failure> {
            let store = Store::open(&self.settings.cache)?;
            let bring = self.bring(name.to_owned(), &store);
            bring.leave_behind()?;
            Ok(bring.late(0, 0))
        };
        left_behind().unwrap_or_else(|failure| failure)
    }

    /// Ends the run, in place of the thread that may wait for ever.
    fn ends(&self, failure: Failure) -> ! {
        let record = Record::new(&self.reference.to_string());
        let closed = record.close(&self.journal, self.run, &failure.ending().lasted(self.began.elapsed()));
        let failure = closed.map_or_else(Failure::from, |()| failure);
        std::process::exit(failed(&failure, self.is_answered).into())
    }
}

/// The thread that hears signals and watches the time. Dropped, it has ended.
struct Watch {
    thread: Option<JoinHandle<Signals>>,
    stop: Option<OwnedFd>,
}

impl Watch {
    fn begin(signals: Signals, run: About, network: &Network) -> Result<Watch, Failure> {
        let failed = |why: std::io::Error| Failure::new(exit::RESOLVE, format!("a thread cannot be started: {why}"));
        let (stopped, stop) = pipe().map_err(|why| failed(why.into()))?;
        let name = canonical(&run.reference, network)?;
        let watch = move || {
            loop {
                let mut fds = vec![PollFd::new(&stopped, PollFlags::IN)];
                fds.extend(callers(Some(&signals), run.until.is_some()));
                let left = run.until.map(|until| until.saturating_duration_since(Instant::now()));
                // Where nobody can be heard the run goes on unwatched.
                let is_over = wait_on(&mut fds, left).is_err() || !fds[0].revents().is_empty();
                let hung_up = has_hung_up(&fds[1..]);
                drop(fds);
                if is_over {
                    return signals;
                }
                let when = format!("while {name} was looked up");
                if let Some(signal) = signals.next() {
                    run.ends(exit::ended_by(signal, &when));
                }
                if hung_up {
                    run.ends(exit::hung_up(&when));
                }
                if run.until.is_some_and(|until| Instant::now() >= until) {
                    run.ends(run.late(&name));
                }
            }
        };
        let thread = thread::Builder::new().spawn(watch).map_err(failed)?;
        Ok(Watch { thread: Some(thread), stop: Some(stop) })
    }

    /// Ends it; none where it is ending the run, or has failed.
    fn end(mut self) -> Option<Signals> {
        self.stop = None;
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
