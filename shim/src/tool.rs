//! A tool of a build in a cage: `smcp tool`, which nobody types. A process of its own, because a cage is split off a process
//! with one thread; its streams are the tool's.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bundle::build::Caged;
use bundle::{Access, Egress, Grant, Limits, Mount, Origin, Secret, Subprocess, Workdir};
use distribution::Store;
use runtime::egress::Proxies;
use runtime::journal::{self, Ending, Journal};
use runtime::{Ahead, Caller, HostInterpreter, Identity, Plan, Recording, Signals, Tier, UserFlag};
use ulid::Ulid;

use crate::exit::{self, Failure};
use crate::record::Record;
use crate::relay::{self, Client, Way};
use crate::ring::Ring;
use crate::run;
use crate::settings::Settings;
use crate::show;
use crate::witness::Witness;
use crate::words::Words;

/// The word on its command line.
pub const VERB: &str = "tool";

/// What a tool may use: installing holds whole archives and the list of all files.
const LIMITS: Limits = Limits {
    memory: 4 << 30,
    cpu: 16_000,
    cpu_time: Duration::from_secs(3600),
    pids: 512,
    fds: 4096,
    timeout: Duration::from_secs(3600),
};

/// The command that runs a tool in a cage; `config` is the configuration file that was named.
///
/// # Errors
/// Where a path of it is not UTF-8.
pub fn command(caged: &Caged, config: Option<&Path>) -> io::Result<Command> {
    let mut command = runtime::system::own_command();
    command.arg(VERB).arg(serde_json::to_string(caged)?).args(config);
    Ok(command)
}

/// What `smcp tool CAGED [CONFIG]` does.
pub fn child(arguments: &[OsString]) -> u8 {
    let caged = arguments.first().and_then(|text| serde_json::from_slice(text.as_encoded_bytes()).ok());
    let Some(caged) = caged else {
        return Failure::new(exit::USAGE, "`smcp tool` is started by smcp itself").print();
    };
    match audited(&caged, arguments.get(1).map(Path::new)) {
        Ok(code) => code,
        Err(failure) => failure.print(),
    }
}

/// Runs it; the audit log gets one begin and one end entry.
fn audited(caged: &Caged, config: Option<&Path>) -> Result<u8, Failure> {
    let started = Instant::now();
    let settings = Settings::read(config)?;
    let journal = settings.journal()?;
    let run = journal::new_run();
    let mut record = Record::new(&caged.purpose);
    let result = in_cage(caged, &settings, &journal, run, &mut record);
    let ending = match &result {
        Ok(ending) => ending.clone(),
        Err(failure) => failure.ending(),
    };
    record.close(&journal, run, &ending.clone().lasted(started.elapsed()))?;
    show::denied(run, ending.egress.as_ref().map_or(0, |egress| egress.refused.len()));
    match (result?, ending.limit) {
        (_, Some(limit)) => Err(limit.into()),
        (Ending { exit, error: Some(error), .. }, None) => Err(Failure::new(exit, error)),
        (ending, None) => Ok(ending.exit),
    }
}

fn in_cage(
    caged: &Caged,
    settings: &Settings,
    journal: &Journal,
    run: Ulid,
    record: &mut Record,
) -> Result<Ending, Failure> {
    let identity = Identity::of_caller(&Caller::of_this_process(), UserFlag::Default, run.0);
    let ahead = Ahead::split(&identity, run)?;
    let host = caged.interpreter.as_ref().map(|(name, search)| HostInterpreter::find(name, search.as_ref()));
    let host = host.transpose().map_err(|why| Failure::new(exit::NOT_FOUND, why.to_string()).hint(UNCAGED))?;
    let empty = Empty::new(&Store::open(&settings.cache)?)?;
    let grant = grant(caged, host.as_ref(), &identity)?;
    record.granted(&grant);
    record.runs_by(host.as_ref());
    let plan = Plan::new(&grant, empty.path.clone(), identity, host.as_ref());
    let signals = Signals::take().map_err(|why| Failure::new(exit::CAGE, format!("signals cannot be read: {why}")))?;
    let least = settings.least_tier().max(Tier::Two);
    let uncaged = |failure: Failure| failure.hint(UNCAGED);
    let ordered = ahead.order(&plan, Recording::Nothing).map_err(|refused| uncaged(refused.into()))?;
    let cage = ordered.prepare(&plan, &settings.private(), least, &signals, Proxies::none());
    let cage = cage.map_err(|refused| uncaged(refused.into()))?;
    record.enforced(cage.report(), cage.cgroup());
    run::require(cage.report(), least).map_err(uncaged)?;
    let ticket = record.begin(journal, run)?;
    let mut notes = ticket.notes(journal);
    let cage = cage.start(ticket, Box::new(move |refused| notes.denied(refused)))?;
    let words = Words::new(Vec::new(), Some(Ring::new(&settings.state, run))).on_stderr();
    let passed = relay::pass(
        cage,
        &signals,
        plan.limits.timeout(),
        Way::Untouched,
        words,
        Witness::default(),
        Client::of_this_process(),
    )
    .map_err(|why| Failure::new(exit::CAGE, format!("the relay failed: {why}")))?;
    passed.ending(&plan).map(|(ending, _)| ending)
}

const UNCAGED: &str = "`smcp doctor` shows what this machine enforces; smcp build --uncaged lets npm and pip download with your own rights and settings";

fn grant(caged: &Caged, host: Option<&HostInterpreter>, identity: &Identity) -> Result<Grant, Failure> {
    let mount = |path: &Path, access| {
        let source = std::fs::canonicalize(path)
            .map_err(|why| Failure::new(exit::RESOLVE, format!("{}: {why}", path.display())))?;
        Ok(Mount { source, target: path.into(), access, from: Origin::User, denied: Vec::new() })
    };
    let of_host = |path: &Path| host.is_some_and(|host| host.mounts.iter().any(|mounted| path.starts_with(mounted)));
    let read = caged.reads.iter().filter(|path| !of_host(path)).map(|path| mount(path, Access::Ro));
    let mut mounts = read.chain([mount(&caged.dir, Access::Rw)]).collect::<Result<Vec<_>, Failure>>()?;
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    mounts.dedup();
    let variable = |name: &str, value: &str| (name.to_owned(), Secret::new(value));
    let mut env: Vec<_> = caged.env.iter().map(|(name, value)| variable(name, value)).collect();
    env.push(variable("HOME", &identity.home.display().to_string()));
    env.push(variable("PATH", "/usr/local/bin:/usr/bin:/bin"));
    env.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(Grant {
        command: caged.command.clone(),
        own_words: Some(caged.command.len()),
        workdir: Workdir::Granted(caged.dir.clone()),
        mounts,
        env,
        subprocess: if caged.starts_programs { Subprocess::AllowedAny } else { Subprocess::Denied },
        egress: Egress { host_ports: caged.port.into_iter().collect(), ..Egress::default() },
        limits: LIMITS,
        ..Grant::nothing()
    })
}

/// An empty directory in the place of a package's files.
struct Empty {
    path: std::path::PathBuf,
    _dir: tempfile::TempDir,
    // A locked directory is in use: another process would take it for a leftover otherwise.
    _lock: File,
}

impl Empty {
    fn new(store: &Store) -> Result<Empty, Failure> {
        let make = || {
            let dir = tempfile::tempdir_in(store.root().join("tmp"))?;
            let lock = File::open(dir.path())?;
            lock.lock()?;
            Ok(Empty { path: std::fs::canonicalize(dir.path())?, _dir: dir, _lock: lock })
        };
        make().map_err(|why: io::Error| {
            Failure::new(exit::RESOLVE, format!("no directory can be made in {}: {why}", store.root().display()))
        })
    }
}
