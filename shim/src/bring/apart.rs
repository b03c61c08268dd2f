//! What `smcp fetch` does: fetches, verifies and unpacks one image that its caller has judged, or that it has looked up and judged itself, or makes one of a source. Its stdin is the order, its stdout a
//! pipe for words, and nothing else of its caller's is open in it.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bundle::policy::Policy;
use bundle::{Package, prepare};
use distribution::{
    Digest, Mode, Network, Pending, Progress, Pull, Reference, Resolved, Store, canonical, configure, resolve,
};
use runtime::{Tie, apart};

use super::{DETACHED, Left, Order, Task, Word};
use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::verdict::Verdict;
use crate::{log, show, sources, unpack};

/// How long a detached one may take, whatever a registry keeps it waiting for: a package of 8 GiB at half a megabyte a second.
const LONGEST: Duration = Duration::from_secs(5 * 3600);
/// How much arrives before it is told.
const TOLD: u64 = 256 << 10;
/// How often word is left of how far it is.
const NOTED: Duration = Duration::from_secs(1);
/// The longest order, in bytes.
const MAX_ORDER: u64 = 1 << 20;

/// What `smcp fetch detached|PARENT NAME` does.
pub fn child(arguments: &[OsString]) -> u8 {
    let Some(tie) = arguments.first().and_then(|text| text.to_str()).and_then(tie) else {
        return Failure::new(exit::USAGE, "`smcp fetch` is started by smcp itself").print();
    };
    let done = apart(tie).and_then(|()| {
        let mut order = Vec::new();
        io::stdin().take(MAX_ORDER).read_to_end(&mut order)?;
        Ok(serde_json::from_slice(&order)?)
    });
    let done = done
        .map_err(|why: io::Error| Failure::new(exit::RESOLVE, format!("the process that fetches: {why}")))
        .and_then(|order| obey(order, tie));
    let (word, code) = match done {
        Ok(word) => (word, exit::OK),
        Err(failure) => {
            let code = failure.code;
            (Word::Failed(failure), code)
        }
    };
    say(&word);
    code
}

fn tie(text: &str) -> Option<Tie> {
    match text {
        DETACHED => Some(Tie::Detached),
        parent => parent.parse().ok().map(Tie::Bound),
    }
}

/// Whoever has gone does not want to know.
fn say(word: &Word) {
    if let Ok(text) = serde_json::to_string(word) {
        let _ = writeln!(io::stdout(), "{text}");
    }
}

fn obey(order: Order, tie: Tie) -> Result<Word, Failure> {
    if order.quiet {
        show::be_quiet();
    }
    log(&order.level)?;
    let settings = Settings::read(order.config.as_deref())?;
    let first = Mode::CacheFirst { refresh: settings.refresh };
    let store = Store::open(&settings.cache)?;
    let registry = order.registry.as_deref();
    match order.task {
        Task::Image { image, offline } => {
            let network = settings.network(registry, if offline { Mode::Offline } else { first });
            let resolved = image.take(&store)?;
            let key = resolved.manifest_descriptor.digest.clone();
            in_turn(&key, &store, tie, |teller| bring(&resolved, &store, &network, teller, None))
        }
        Task::Made(order) => {
            let (.., name) = order.read(&settings)?;
            in_turn(&Digest::of(name), &store, tie, |teller| {
                teller.begin();
                sources::made(&order, &settings, &store)
            })
        }
        Task::Name { reference, refresh } => {
            let network = settings.network(registry, if refresh { Mode::Refresh } else { first });
            let reference: Reference = reference.parse()?;
            let key = Digest::of(canonical(&reference, &network)?);
            in_turn(&key, &store, tie, |teller| {
                let resolved = resolve(&reference, &store, &network)?;
                bring(&resolved, &store, &network, teller, Some((&reference, &settings)))
            })
        }
    }
}

/// Does the work where no other process does it, and leaves word where it fails.
fn in_turn(
    key: &Digest,
    store: &Store,
    tie: Tie,
    work: impl FnOnce(&Teller) -> Result<(), Failure>,
) -> Result<Word, Failure> {
    let Some(pull) = store.try_pull(key)? else { return Ok(Word::Busy) };
    let teller = Teller::new(Arc::new(pull), tie);
    match work(&teller) {
        Ok(()) => {
            teller.pull.done();
            Ok(Word::Here)
        }
        Err(failure) => {
            teller.leave(Some(failure.clone()));
            Err(failure)
        }
    }
}

/// `by_name` is how it is judged where nobody has done that.
fn bring(
    resolved: &Resolved,
    store: &Store,
    network: &Network,
    teller: &Teller,
    by_name: Option<(&Reference, &Settings)>,
) -> Result<(), Failure> {
    let pending = Pending::new(resolved, store)?;
    teller.begin();
    let image = configure(resolved, store, network)?;
    let package = Package::read(&image)?;
    if let Some((reference, settings)) = by_name {
        let verdict = Verdict::of(resolved, store, &package, reference, network, settings, Policy::default())?;
        verdict.judgement.passed()?;
    }
    prepare(&package, &image, store, network, &|step| teller.step(step), &unpack::in_a_process)?;
    Ok(pending.keep()?)
}

/// Tells whoever follows, and leaves word for others where nobody may.
struct Teller {
    pull: Arc<Pull>,
    tie: Tie,
    far: RefCell<Far>,
}

struct Far {
    left: Left,
    untold: u64,
    noted: Instant,
}

impl Teller {
    fn new(pull: Arc<Pull>, tie: Tie) -> Teller {
        let far = Far { left: Left::default(), untold: 0, noted: Instant::now() };
        Teller { pull, tie, far: RefCell::new(far) }
    }

    fn begin(&self) {
        self.leave(None);
        if self.tie == Tie::Detached {
            let pull = self.pull.clone();
            thread::spawn(move || {
                thread::sleep(LONGEST);
                let failure = Failure::new(exit::TIMEOUT, format!("it was not done within {LONGEST:?}"));
                let code = i32::from(failure.code);
                word(&pull, &Left { failure: Some(failure), ..Left::default() });
                std::process::exit(code);
            });
        }
        say(&Word::Begun);
    }

    fn step(&self, step: Progress) {
        let mut far = self.far.borrow_mut();
        match step {
            Progress::Planned { layers, bytes } => {
                far.left.planned = bytes;
                say(&Word::Planned { layers, bytes });
            }
            Progress::Received { digest, bytes } => {
                far.left.received += bytes;
                far.untold += bytes;
                if far.untold >= TOLD {
                    say(&Word::Received { digest, bytes: std::mem::take(&mut far.untold) });
                }
            }
            Progress::Done { digest } => {
                let bytes = std::mem::take(&mut far.untold);
                say(&Word::Received { digest: digest.clone(), bytes });
                say(&Word::Done { digest });
            }
            Progress::Started { .. } => {}
        }
        if far.noted.elapsed() >= NOTED {
            far.noted = Instant::now();
            drop(far);
            self.leave(None);
        }
    }

    /// Leaves word of how far it is, or of why it ended.
    fn leave(&self, failure: Option<Failure>) {
        if self.tie == Tie::Detached {
            word(&self.pull, &Left { failure, ..self.far.borrow().left.clone() });
        }
    }
}

fn word(pull: &Pull, left: &Left) {
    let said = serde_json::to_vec(left).map_err(io::Error::other).map(|text| pull.say(&text));
    if let Err(why) | Ok(Err(why)) = said.map(|said| said.map_err(io::Error::other)) {
        tracing::warn!(%why, "how far the download is can be seen by nobody");
    }
}
