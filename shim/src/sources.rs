//! From a package of npm or PyPI, a directory or a bundle to a package in the store.
//!
//! It is made once, by a process of its own (`smcp make`, which nobody types) under a lock: whoever else wants it meanwhile waits for
//! that one, and a client that gives up does not stop it. From then on a start reads one small file of the store and asks nobody.
//! What has no exact version is looked at again where it is older than `refresh`: the start that finds it so runs what is there, and
//! a process in the background looks for the next one.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bundle::Package;
use bundle::build::{BuildOptions, Caged, Registries, build, fingerprint, look, resembles};
use bundle::policy::Policy;
use distribution::{
    Made, Making, Mode, Network, PackageName, Pending, Reference, Remembered, Store, canonical, configure, resolve,
};
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use crate::bring::wait_on;
use crate::exit::{self, Failure};
use crate::relay;
use crate::settings::Settings;
use crate::show;
use crate::tool;
use crate::unpack;

/// The word on the command line of the process that makes packages.
pub const VERB: &str = "make";

/// Sees to it that the store has what is made of a source, as new as the network's mode wants it. Nothing for packages of registries
/// and layouts.
///
/// # Errors
/// Where it has to be made and cannot be.
pub fn ready(
    reference: &Reference,
    store: &Store,
    network: &Network,
    settings: &Settings,
    waiting: Waiting,
) -> Result<(), Failure> {
    let Some(source) = Source::of(reference) else { return Ok(()) };
    let name = canonical(reference, network)?;
    let known = store.recall(&name)?.filter(|known| store.contains(&known.descriptor));
    let order = Order::new(reference, network, settings);
    match (known, network.mode) {
        // Whoever looks it up says so.
        (None, Mode::Offline) => Ok(()),
        (None, _) => make(&order, waiting),
        (Some(known), mode) => match source.state(&known, mode)? {
            State::Good => Ok(()),
            State::Changed if mode == Mode::Offline => Err(Failure::new(
                exit::RESOLVE,
                format!("{reference} has changed since it was made, and the network is off"),
            )
            .hint("without --offline it is made anew")),
            State::Changed => make(&order, waiting),
            State::Old => {
                look_again(&order.again(), &known);
                Ok(())
            }
            State::Asked => match make(&order.again(), waiting) {
                Err(failure) if failure.code == exit::RESOLVE => {
                    show::warn(&format!("{name} comes from the store and may be old: {}", failure.message));
                    Ok(())
                }
                made => made,
            },
        },
    }
}

/// Whether a package is made here of what a reference names.
pub fn is_source(reference: &Reference) -> bool {
    Source::of(reference).is_some()
}

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A person or a script, whose command it is.
    Command,
    /// A client, for a server.
    Client,
}

/// What a package is made of here.
enum Source<'a> {
    /// One version of it, for ever.
    Exact,
    /// Whatever is the newest.
    Newest,
    /// Files of this machine.
    Files(&'a Path),
}

/// What to do about a package that the store has.
enum State {
    Good,
    Old,
    Changed,
    Asked,
}

impl<'a> Source<'a> {
    fn of(reference: &'a Reference) -> Option<Source<'a>> {
        match reference {
            Reference::Npm(PackageName { version: Some(version), .. }) if is_exact(version) => Some(Source::Exact),
            Reference::Pypi(PackageName { version: Some(_), .. }) => Some(Source::Exact),
            Reference::Npm(_) | Reference::Pypi(_) => Some(Source::Newest),
            Reference::Directory(path) | Reference::Mcpb(path) => Some(Source::Files(path)),
            Reference::Registry(_) | Reference::OciLayout(_) | Reference::Mcp(_) => None,
        }
    }

    fn state(&self, known: &Remembered, mode: Mode) -> Result<State, Failure> {
        let made = known.made.as_ref();
        Ok(match (self, mode) {
            (_, Mode::Refresh) => State::Asked,
            (Source::Files(path), _)
                if made.is_none_or(|made| made.fingerprint != fingerprint(path).unwrap_or_default()) =>
            {
                State::Changed
            }
            (Source::Newest, Mode::CacheFirst { refresh }) if is_older(known, refresh) => State::Old,
            _ => State::Good,
        })
    }
}

/// Whether an npm version is one, not a tag or a range.
fn is_exact(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// A time in the future is a clock that was set back: as good as none.
fn is_older(known: &Remembered, age: Duration) -> bool {
    SystemTime::now().duration_since(known.resolved_at).is_ok_and(|passed| passed > age)
        || known.resolved_at > SystemTime::now()
}

/// What the process that makes a package is told.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    reference: String,
    config: Option<PathBuf>,
    bin: Option<String>,
    host_runtime: bool,
    /// Made at this time or before, in seconds since 1970, it is looked at again; without one what is there and has not
    /// changed will do.
    before: Option<u64>,
    /// Nobody waits for it.
    alone: bool,
}

impl Order {
    fn new(reference: &Reference, network: &Network, settings: &Settings) -> Order {
        Order {
            reference: reference.to_string(),
            config: settings.file.clone(),
            bin: network.making.bin.clone(),
            host_runtime: network.making.host_runtime,
            before: None,
            alone: false,
        }
    }

    /// Also where the store has it.
    fn again(self) -> Order {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Order { before: Some(now), ..self }
    }
}

/// What that process says, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    /// What it does.
    Say(String),
    /// What the user should know.
    Warn(String),
    /// Why it comes to nothing: exit code, what and why, the next step.
    Failed(u8, String, Option<String>),
    /// It is in the store.
    Done,
}

/// How long a client that has asked something is left without an answer: some give up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(8);

/// Makes it and waits for that; a client that waits for an answer is told after a while, and the work goes on.
fn make(order: &Order, waiting: Waiting) -> Result<(), Failure> {
    let mut child = start(order, Stdio::piped())?;
    let mut answers = child.stdout.take().expect("it is a pipe");
    let mut deadline = (waiting == Waiting::Client).then(|| Instant::now() + PATIENCE);
    let (mut bytes, mut outcome) = (Vec::new(), None);
    loop {
        if deadline.is_some_and(|deadline| !is_readable_by(&answers, deadline)) {
            deadline = None;
            if has_asked() {
                let what =
                    format!("{} is being installed, which takes longer than clients wait; it goes on", order.reference);
                let hint = format!("start it again in a minute; ahead of time: smcp pull {}", order.reference);
                return Err(Failure::new(exit::RESOLVE, what).hint(hint));
            }
        }
        let mut some = [0; 4096];
        match answers.read(&mut some) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&some[..count]),
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            match serde_json::from_slice(&line) {
                Ok(Word::Say(text)) => show::say(&text),
                Ok(Word::Warn(text)) => show::warn(&text),
                Ok(Word::Failed(code, message, hint)) => outcome = Some(Err(Failure { code, message, hint })),
                Ok(Word::Done) => outcome = Some(Ok(())),
                Err(_) => break,
            }
        }
    }
    let ended = child.wait().map_err(not_started)?;
    outcome.unwrap_or_else(|| {
        Err(Failure::new(
            exit::RESOLVE,
            format!("the process that makes {} ended without an answer: {ended}", order.reference),
        ))
    })
}

/// Whether a client has said something that nobody has read yet. The end of its input is nothing, and neither is what a person types
/// or a file holds.
fn has_asked() -> bool {
    let stdin = io::stdin();
    let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
    let said = wait_on(&mut ready, Some(Duration::ZERO)).is_ok() && ready[0].revents().contains(PollFlags::IN);
    said && relay::is_of_a_client(rustix::stdio::stdin())
}

/// Whether there is something to read by then, or an end.
fn is_readable_by(from: &impl AsFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    wait_on(&mut [PollFd::new(from, PollFlags::IN)], Some(left)).is_ok_and(|count| count > 0)
}

/// Has it looked at again by a process that this one does not wait for, and says so.
fn look_again(order: &Order, known: &Remembered) {
    if let Some(why) = known.made.as_ref().and_then(|made| made.failed.as_ref()) {
        show::warn(&format!(
            "{} could not be looked at again the last time, so this is the old one: {why}",
            order.reference
        ));
    }
    let hours = SystemTime::now().duration_since(known.resolved_at).unwrap_or_default().as_secs() / 3600;
    show::say(&format!("{} was looked up {hours} h ago, and is looked at again for the next start", order.reference));
    let alone = Order {
        alone: true,
        reference: order.reference.clone(),
        config: order.config.clone(),
        bin: order.bin.clone(),
        ..*order
    };
    // It starts another one and ends: that one is nobody's child here.
    let started = start(&alone, Stdio::null()).and_then(|mut child| child.wait().map_err(not_started));
    if let Err(failure) = started {
        show::warn(&failure.message);
    }
}

fn start(order: &Order, stdout: Stdio) -> Result<Child, Failure> {
    command(order).stdout(stdout).spawn().map_err(not_started)
}

fn command(order: &Order) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("smcp").arg(VERB).arg(serde_json::to_string(order).expect("texts and numbers serialise"));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    // Neither the end of a terminal's job nor that of a client ends what others may be waiting for.
    if order.alone || !io::stdin().is_terminal() {
        command.process_group(0);
    }
    command
}

fn not_started(why: io::Error) -> Failure {
    Failure::new(exit::RESOLVE, format!("the process that makes packages cannot be started: {why}"))
}

/// What `smcp make ORDER` does.
pub fn child(arguments: &[OsString]) -> u8 {
    let order = arguments.first().and_then(|text| serde_json::from_slice::<Order>(text.as_encoded_bytes()).ok());
    let Some(order) = order else {
        return Failure::new(exit::USAGE, "`smcp make` is started by smcp itself").print();
    };
    if order.alone {
        let started = command(&Order { alone: false, ..order }).process_group(0).stdout(Stdio::null()).spawn();
        return if started.is_ok() { exit::OK } else { exit::RESOLVE };
    }
    let made = made(&order);
    tell(&match &made {
        Ok(()) => Word::Done,
        Err(Failure { code, message, hint }) => Word::Failed(*code, message.clone(), hint.clone()),
    });
    made.map_or_else(|failure| failure.code, |()| exit::OK)
}

/// Whoever asked may be gone by now.
fn tell(word: &Word) {
    let _ = writeln!(io::stdout(), "{}", serde_json::to_string(word).expect("texts and numbers serialise"));
}

/// Makes it, unless somebody else has meanwhile.
fn made(order: &Order) -> Result<(), Failure> {
    let settings = Settings::read(order.config.as_deref())?;
    let reference: Reference = order.reference.parse()?;
    let store = Store::open(&settings.cache)?;
    let network = settings.network(None, Mode::CacheFirst { refresh: settings.refresh });
    let making = Making { bin: order.bin.clone(), host_runtime: order.host_runtime, ..network.making.clone() };
    let network = network.making(making);
    let Some(source) = Source::of(&reference) else { return Ok(()) };
    let name = canonical(&reference, &network)?;
    let _turn = store.lock_name(&name)?;
    let known = store.recall(&name)?.filter(|known| store.contains(&known.descriptor));
    let changed = |known: &Remembered| matches!(source.state(known, Mode::Offline), Ok(State::Changed) | Err(_));
    let since = order.before.map(|before| UNIX_EPOCH + Duration::from_secs(before));
    let good = |known: &Remembered| !changed(known) && since.is_none_or(|since| known.resolved_at > since);
    if known.as_ref().is_some_and(good) {
        return Ok(());
    }
    let done = build_of(&reference, order, &store, &network, (&name, known.as_ref()), &settings);
    if let (Err(failure), Some(known)) = (&done, &known) {
        // Tried again at the next start, which tells of it.
        let made = Made { failed: Some(failure.message.clone()), ..known.made.clone().unwrap_or_default() };
        store.amend(&name, made)?;
    }
    done?;
    let resolved = resolve(&reference, &store, &network)?;
    let pending = Pending::new(&resolved, &store)?;
    let image = configure(&resolved, &store, &network)?;
    bundle::prepare(&Package::read(&image)?, &image, &store, &network, &|_| {}, &unpack::in_a_process)?;
    Ok(pending.keep()?)
}

fn build_of(
    reference: &Reference,
    order: &Order,
    store: &Store,
    network: &Network,
    (name, known): (&str, Option<&Remembered>),
    settings: &Settings,
) -> Result<(), Failure> {
    let registries = registries(network, settings);
    if let Some(known) = resembles(reference) {
        tell(&Word::Warn(format!("{reference} is not {known}, whose name is hardly another")));
    }
    // The same as when it was made: nothing is installed for that.
    let looked = look(reference, &registries)?;
    let same = |known: &&Remembered| known.made.as_ref().is_some_and(|made| Some(&made.fingerprint) == looked.as_ref());
    if let Some(known) = known.filter(same) {
        let made = Made { failed: None, ..known.made.clone().unwrap_or_default() };
        return Ok(store.remember_made(name, &known.descriptor, made)?);
    }
    let options = BuildOptions {
        bin: order.bin.clone(),
        host_runtime: order.host_runtime,
        registries,
        ..BuildOptions::default()
    };
    let in_a_cage = |caged: &Caged| tool::command(caged, settings.file.as_deref());
    let fingerprint = match reference {
        Reference::Directory(path) | Reference::Mcpb(path) => fingerprint(path)?,
        _ => looked.unwrap_or_default(),
    };
    let built = build(reference, &options, store, Some(&in_a_cage), &|line| tell(&Word::Say(line.into())))?;
    store.remember_made(name, &built.descriptor, Made { fingerprint, failed: None })?;
    Ok(())
}

/// Where packages are from, and how old they must be.
pub fn registries(network: &Network, settings: &Settings) -> Registries {
    Registries {
        packages: network.making.packages.clone(),
        access: network.access.clone(),
        min_age: settings.policy(Policy::default()).min_release_age.map(|least| least.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_stay_what_they_are() {
        for (text, want) in [
            ("npm:x@1.2.3", true),
            ("npm:x@1.2.3-rc.1", true),
            ("npm:@a/x@1.2.3+b", true),
            ("npm:x@1.2", false),
            ("npm:x@next", false),
            ("npm:x", false),
            ("pypi:x==1", true),
            ("pypi:x", false),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(matches!(Source::of(&reference), Some(Source::Exact)), want, "{text}");
        }
        assert!(Source::of(&"acme/x@1.2.3".parse().unwrap()).is_none());
    }
}
