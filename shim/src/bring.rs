//! A package on its way into the store, in a process of its own: `smcp fetch`, which nobody types. Meanwhile this one has a
//! single thread, hears signals, and can tell a client that waits too long; the other one goes on then.

mod apart;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bundle::{Package, format_size};
use distribution::{Digest, Error, Handed, LayerLock, Making, Mode, Progress, Resolved, Store};
use runtime::Signals;
use runtime::system::{self, Bond, Errno, OwnedFd, PollFd, PollFlags, Timespec, poll, read};
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

use crate::exit::{self, Failure};
use crate::progress::Download;
use crate::settings::Settings;
use crate::show;
use crate::sources;

pub use apart::child;

/// The word on its command line.
pub const VERB: &str = "fetch";
/// Its argument, in place of the id of the process that it is bound to.
const DETACHED: &str = "detached";

/// How often a pull of another process is looked at, whose end nothing tells.
const LOOK: Duration = Duration::from_millis(50);
/// How long the last words on the process's stderr may take once it has said on stdout that it is done.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The files of a package, where all of them are in the store: one look.
///
/// # Errors
/// Where the store cannot be locked.
pub fn held(package: &Package, store: &Store) -> Result<Option<LayerLock>, Failure> {
    match store.hold_layer(&package.tree()) {
        Ok(held) => Ok(Some(held)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What is brought, and for whom.
pub struct Bring<'a> {
    /// The package.
    pub what: Wanted<'a>,
    /// How it was typed.
    pub reference: String,
    /// Its canonical name.
    pub name: String,
    /// Where to.
    pub store: &'a Store,
    /// As this process has them.
    pub settings: &'a Settings,
    /// `--registry`.
    pub registry: Option<&'a str>,
    /// No registry may be asked.
    pub offline: bool,
    /// Until when a client waits; whoever else waits to the end.
    pub until: Option<Instant>,
}

/// As what it is known.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// The image, whose manifest and configuration are in the store, and which was judged.
    Image(&'a Resolved),
    /// A name that is still to be looked up; what it stands for is judged by the configuration's policy.
    Name(Mode),
    /// What is made of a source, and whether that is looked at again where the store has it.
    Made(&'a Making, bool),
}

/// What the process is told.
#[derive(Serialize, Deserialize)]
struct Order {
    config: Option<PathBuf>,
    registry: Option<String>,
    level: String,
    quiet: bool,
    task: Task,
}

#[derive(Serialize, Deserialize)]
enum Task {
    Image {
        image: Box<Handed>,
        offline: bool,
    },
    Name {
        reference: String,
        /// Also where the store has an answer.
        refresh: bool,
    },
    Made(sources::Order),
}

/// What the process says, a line each.
#[derive(Serialize, Deserialize)]
enum Word {
    /// From here on it can go on alone: nothing of the image is removed from the store.
    Begun,
    /// Another process brings that image.
    Busy,
    Planned {
        layers: usize,
        bytes: u64,
    },
    Received {
        digest: Digest,
        bytes: u64,
    },
    Done {
        digest: Digest,
    },
    /// The whole package is in the store.
    Here,
    Failed(Failure),
}

/// What a detached process leaves in the file of its lock.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Left {
    /// Bytes.
    received: u64,
    planned: u64,
    /// How it ended, where it has ended.
    failure: Option<Failure>,
}

impl Left {
    fn by_others(store: &Store, manifest: &Digest) -> Option<Left> {
        serde_json::from_slice(&store.pull_word(manifest)?).ok()
    }
}

/// How a process that was followed ended.
enum Came {
    Here,
    Busy,
}

impl Bring<'_> {
    /// Brings the package into the store and unpacks it, or waits for the process that does so already. Signals are heard where they
    /// are read, else they end this process and the one that is bound to it.
    ///
    /// # Errors
    /// Why it cannot be had; of code 124 where it takes longer than a client waits, and of 128 and its number where a signal comes.
    pub fn to_its_end(&self, signals: Option<&Signals>) -> Result<(), Failure> {
        let shown = Download::awaited(&self.name, &self.reference);
        self.tell_of_the_last();
        loop {
            if !self.is_under_way()
                && let Came::Here = self.start()?.follow(self, signals, &shown)?
            {
                return Ok(());
            }
            self.wait_for_the_other(signals)?;
        }
    }

    /// What stands for it among pulls: its manifest, or its name as long as that is not known.
    fn key(&self) -> Digest {
        match self.what {
            Wanted::Image(resolved) => resolved.manifest_descriptor.digest.clone(),
            Wanted::Name(_) | Wanted::Made(..) => Digest::of(&self.name),
        }
    }

    /// Whether a process brings it already.
    pub fn is_under_way(&self) -> bool {
        self.store.is_pulled(&self.key())
    }

    /// Says how the last one ended whose end nobody saw, once.
    pub fn tell_of_the_last(&self) {
        let Some(left) = Left::by_others(self.store, &self.key()).filter(|_| !self.is_under_way()) else { return };
        self.forget_the_last();
        let why = left.failure.map_or("it was ended before it was done".into(), |failure| failure.message);
        show::warn(&format!("the download of {} that went on in the background failed: {why}", self.name));
    }

    /// Whoever waited for it has been told.
    fn forget_the_last(&self) {
        if let Ok(Some(pull)) = self.store.try_pull(&self.key()) {
            pull.done();
        }
    }

    /// Starts the process and leaves it alone.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn leave_behind(&self) -> Result<(), Failure> {
        self.start().map(drop)
    }

    fn start(&self) -> Result<Started, Failure> {
        let failed = |why: io::Error| Failure::new(exit::RESOLVE, format!("the process that fetches: {why}"));
        let task = match self.what {
            Wanted::Image(resolved) => Task::Image { image: Box::new(resolved.hand_over()), offline: self.offline },
            Wanted::Name(mode) => Task::Name { reference: self.reference.clone(), refresh: mode == Mode::Refresh },
            Wanted::Made(making, again) => Task::Made(sources::Order::of(&self.reference, making, again)),
        };
        let order = Order {
            config: self.settings.file.clone(),
            registry: self.registry.map(Into::into),
            level: LevelFilter::current().to_string(),
            quiet: show::is_quiet(),
            task,
        };
        let order = serde_json::to_vec(&order).map_err(|why| failed(why.into()))?;
        let detached = self.until.is_some();
        let tie = if detached { DETACHED.to_owned() } else { std::process::id().to_string() };
        let mut child = system::own_command()
            .args([VERB, &tie, &self.name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A client's stderr must not stay open in it.
            .stderr(if detached { Stdio::piped() } else { Stdio::inherit() })
            .spawn()
            .map_err(failed)?;
        let bond = if detached { None } else { Some(system::bind(&child).map_err(failed)?) };
        let words = OwnedFd::from(child.stdout.take().expect("it is a pipe"));
        let errors = child.stderr.take().map(OwnedFd::from);
        let told = child.stdin.take().expect("it is a pipe").write_all(&order);
        let mut started = Started { child: Some(child), _bond: bond, words, errors };
        if detached {
            started.child.take().map_or(Ok(()), system::let_go).map_err(failed)?;
        }
        told.map_err(failed)?;
        Ok(started)
    }

    /// Waits until the process that brings it already has ended.
    ///
    /// # Errors
    /// As [`Bring::to_its_end`].
    pub fn wait_for_the_other(&self, signals: Option<&Signals>) -> Result<(), Failure> {
        while self.is_under_way() {
            let mut fds = callers(signals, self.until.is_some());
            wait_on(&mut fds, Some(LOOK)).map_err(lost)?;
            let hung_up = has_hung_up(&fds);
            self.unless_ended(signals, hung_up)?;
            if self.is_late() {
                let Left { received, planned, .. } = Left::by_others(self.store, &self.key()).unwrap_or_default();
                return Err(self.late(received, planned));
            }
        }
        match Left::by_others(self.store, &self.key()).and_then(|left| left.failure) {
            None => Ok(()),
            Some(failure) => {
                self.forget_the_last();
                Err(failure)
            }
        }
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// What a client is told that does not wait longer.
    pub fn late(&self, received: u64, planned: u64) -> Failure {
        let name = &self.name;
        let far = match planned {
            0 => String::new(),
            _ => format!(", {} of {} so far", format_size(received.min(planned)), format_size(planned)),
        };
        let waited = self.settings.pull_patience;
        let what = format!("fetching {name} takes longer than {waited:?}, and goes on in the background{far}");
        Failure::new(exit::TIMEOUT, what)
            .hint(format!("start the server again in a while; `smcp pull {}` waits for the end of it", self.reference))
    }

    fn unless_ended(&self, signals: Option<&Signals>, hung_up: bool) -> Result<(), Failure> {
        let when = format!("while {} was fetched", self.name);
        let failure = match signals.and_then(Signals::next) {
            Some(signal) => exit::ended_by(signal, &when),
            None if hung_up => exit::hung_up(&when),
            None => return Ok(()),
        };
        Err(match self.until {
            Some(_) => failure.hint("what is being fetched goes on in the background"),
            None => failure,
        })
    }
}

/// A process that was started. One that is bound to this ends with the value.
struct Started {
    child: Option<Child>,
    _bond: Option<Bond>,
    words: OwnedFd,
    errors: Option<OwnedFd>,
}

impl Started {
    fn wait(&mut self) -> io::Result<()> {
        self.child.take().map_or(Ok(()), |mut child| child.wait().map(drop))
    }

    /// Listens to its end, a signal or the end of a client's patience.
    fn follow(mut self, of: &Bring<'_>, signals: Option<&Signals>, shown: &Download) -> Result<Came, Failure> {
        let (mut begun, mut far) = (false, Left::default());
        let mut text = Vec::new();
        loop {
            let mut fds = vec![PollFd::new(&self.words, PollFlags::IN)];
            fds.extend(self.errors.as_ref().map(|errors| PollFd::new(errors, PollFlags::IN)));
            let own = fds.len();
            if begun {
                fds.extend(callers(signals, of.until.is_some()));
            }
            let left = of.until.map(|until| until.saturating_duration_since(Instant::now()));
            wait_on(&mut fds, left).map_err(lost)?;
            let news: Vec<bool> = fds[..own].iter().map(|fd| !fd.revents().is_empty()).collect();
            let hung_up = has_hung_up(&fds[own..]);
            drop(fds);
            if self.errors.is_some() && news[1] {
                self.pass_errors();
            }
            if begun {
                of.unless_ended(signals, hung_up)?;
            }
            if news[0] {
                if self.hear(&mut text).map_err(lost)? == 0 {
                    let what = format!("the process that fetches {} ended before it was done", of.name);
                    return Err(Failure::new(exit::RESOLVE, what).hint("run the command again"));
                }
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = text.drain(..=end).collect();
                    match serde_json::from_slice(&line).map_err(|why| lost(why.into()))? {
                        Word::Begun => begun = true,
                        Word::Busy => return Ok(Came::Busy),
                        Word::Planned { layers, bytes } => {
                            far.planned = bytes;
                            shown.step(Progress::Planned { layers, bytes });
                        }
                        Word::Received { digest, bytes } => {
                            far.received += bytes;
                            shown.step(Progress::Received { digest, bytes });
                        }
                        Word::Done { digest } => shown.step(Progress::Done { digest }),
                        Word::Here => {
                            self.settle();
                            return Ok(Came::Here);
                        }
                        Word::Failed(failure) => {
                            self.settle();
                            of.forget_the_last();
                            return Err(failure);
                        }
                    }
                }
            }
            if of.is_late() {
                return Err(of.late(far.received, far.planned));
            }
        }
    }

    fn hear(&mut self, text: &mut Vec<u8>) -> io::Result<usize> {
        let mut bytes = [0; 16 << 10];
        let count = read(&self.words, &mut bytes[..])?;
        text.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Passes on what it says to people. Whether there may be more.
    fn pass_errors(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        match self.errors.as_ref().map(|errors| read(errors, &mut bytes[..])) {
            Some(Ok(count)) if count > 0 => {
                let _ = io::stderr().write_all(&bytes[..count]);
                true
            }
            _ => {
                self.errors = None;
                false
            }
        }
    }

    /// Takes its last words, and waits for it where it is a child.
    fn settle(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        while let Some(errors) = &self.errors {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(errors, PollFlags::IN)];
            if !matches!(wait_on(&mut fds, Some(left)), Ok(1..)) || !self.pass_errors() {
                break;
            }
        }
        let _ = self.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// That the process cannot be heard any more, or nobody at all.
fn lost(why: io::Error) -> Failure {
    Failure::new(exit::RESOLVE, format!("the process that fetches cannot be heard: {why}"))
}

/// What ends a wait from outside: signals, and the end of a client that reads its server's stdout, which poll(2) reports unasked.
pub fn callers(signals: Option<&Signals>, has_client: bool) -> Vec<PollFd<'_>> {
    let stdout = has_client.then(|| PollFd::from_borrowed_fd(system::stdout(), PollFlags::empty()));
    stdout.into_iter().chain(signals.map(|signals| PollFd::new(signals, PollFlags::IN))).collect()
}

/// Whether the client of [`callers`] has gone, which alone is heard by no event that was asked for.
pub fn has_hung_up(callers: &[PollFd<'_>]) -> bool {
    callers.first().is_some_and(|stdout| stdout.revents().intersects(PollFlags::HUP | PollFlags::ERR))
}

/// Waits for one of these, this long at most. How many have news.
pub fn wait_on(fds: &mut [PollFd<'_>], most: Option<Duration>) -> io::Result<usize> {
    // A millisecond more, so that a wait of less than one is not none.
    let timeout = most.map(|most| most + Duration::from_millis(1));
    let timeout = timeout.map(|most| Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() });
    match poll(fds, timeout.as_ref()) {
        Err(Errno::INTR) => Ok(0),
        news => Ok(news?),
    }
}
