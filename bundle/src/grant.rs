//! What a run is granted: the manifest's request and the user's flags, judged
//! together. Every reason against a run is found at once.

mod arguments;
mod ceilings;
mod certificates;
mod denies;
mod egress;
mod environment;
mod files;
mod flags;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use certificates::{CERTIFICATES, Certificates};
pub use egress::{Egress, NetworkCeiling, NetworkFlags};
pub use flags::{EnvFlag, FlagError, MountFlag, StateName, SubprocessFlag, parse_env_file};

use crate::Secret;
use crate::limits::{LimitRequest, Limits};
use crate::package::{Package, PackageOrigin};
use crate::permissions::{Access, Origin, Permissions};
use crate::policy::{Judgement, Policy};

/// Judges what a run of `package` is granted: what it asks for and the flags name, within the policy, where nothing stands
/// against the package itself.
///
/// # Errors
/// Everything that stands against the run, not only the first of it.
pub fn judge(package: &Package, request: &Request, bounds: &Bounds, caller: &CallerEnv) -> Result<Grant, Denied> {
    let mut verdict = Verdict { reasons: bounds.judgement.against.clone(), ..Verdict::default() };
    let uncertified = bounds.judgement.certified_otherwise.then(|| asks_for_nothing(package, &mut verdict));
    let package = uncertified.as_ref().unwrap_or(package);
    let ceilings = &bounds.policy.ceilings;
    let below = ceilings::FileCeiling::new(&ceilings.filesystem, request, caller);
    let mut files = files::Files::new(caller, below);
    files.flags(request, &mut verdict);
    let args = arguments::read(&package.manifest, request, &mut files, &mut verdict);
    state::grant(package, request, caller, &mut files, &mut verdict);
    let asked = &package.manifest.permissions.network.outbound;
    let egress = egress::judge(asked, &request.network, &ceilings.network, &mut verdict);
    let certificates = certificates::of_caller(&egress, caller, &mut verdict);
    let env = environment::compose(package, request, ceilings, caller, certificates.is_some(), &mut verdict);
    let subprocess = subprocess(package, request, ceilings, &files, caller, &mut verdict);
    let workdir = workdir(package, request, &files);
    let command = command(package, args, &mut verdict);
    withhold(package, &files, &mut verdict);
    let mut mounts = files.finish();
    let denied = denies::hide(request, caller, &mut mounts, &mut verdict);
    nameable(&mounts, &denied, &mut verdict);
    let limits =
        ceilings::limits(&request.limits, &package.manifest.limits, bounds.max, &ceilings.limits, &mut verdict);
    if !verdict.reasons.is_empty() {
        return Err(Denied { reasons: verdict.reasons });
    }
    Ok(Grant {
        command,
        own_words: (package.origin == PackageOrigin::Smcp).then_some(package.manifest.entrypoint.args.len()),
        workdir,
        mounts,
        denied,
        env,
        subprocess,
        egress,
        certificates,
        limits,
        withheld: verdict.withheld,
        notes: verdict.notes,
    })
}

/// What bounds a judgement.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    /// The configuration's `max_*`: the most that a manifest gets, and what a run has where nobody says.
    pub max: &'a Limits,
    /// The policy in force.
    pub policy: &'a Policy,
    /// What it says of the package.
    pub judgement: &'a Judgement,
}

/// The package as if it asked for nothing, where nothing that it asks for is certified.
fn asks_for_nothing(package: &Package, verdict: &mut Verdict) -> Package {
    let mut without = package.clone();
    without.manifest.permissions = Permissions::default();
    if package.manifest.permissions != without.manifest.permissions {
        let why = "its certification is of other permissions";
        verdict.withhold("all that it asks for".into(), why, None);
    }
    without
}

/// What the flags of a run mean.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `--mount`, `--allow-read`, `--allow-write`.
    pub mounts: Vec<MountFlag>,
    /// `--deny`: hidden in whatever is granted around it.
    pub denied: Vec<PathBuf>,
    /// `--state`: which set of the package's lasting directories.
    pub state: Option<StateName>,
    /// `--cwd`: granted read-write, and the server starts there.
    pub cwd: Option<PathBuf>,
    /// `--env` and the lines of `--env-file`; of the same name the last counts.
    pub env: Vec<EnvFlag>,
    /// Variables that an entry of a registry of servers puts together of its own words and what the user gave.
    pub composed: Vec<EnvFlag>,
    /// `--allow-subprocess`.
    pub subprocess: SubprocessFlag,
    /// `--allow-net` and its kin.
    pub network: NetworkFlags,
    /// `--memory` and its kin.
    pub limits: LimitRequest,
    /// What follows the reference.
    pub args: Vec<String>,
    /// Which of `args` a registry of servers states, and not the user: no grant comes of them.
    pub listed: BTreeSet<usize>,
}

/// What a judgement takes from the caller, and who the server is inside.
#[derive(Clone)]
pub struct CallerEnv {
    /// The caller's environment; read for names that were asked for, never passed on as a whole.
    pub vars: BTreeMap<OsString, OsString>,
    /// Absolute working directory that relative paths start from.
    pub cwd: PathBuf,
    /// Name of the account inside.
    pub user: String,
    /// Home directory inside.
    pub home: PathBuf,
    /// Where the lasting directories of all servers are.
    pub states: PathBuf,
    /// What all versions of the package have in common and no other package has: whose lasting directories it gets.
    pub family: String,
    /// smcp's own store, state, configuration and audit log: neither they nor what holds them can be granted.
    pub protected: Vec<PathBuf>,
    /// smcp's own program, which nobody is granted to write.
    pub program: Option<PathBuf>,
}

/// What a run is granted; nothing else is.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Program and arguments.
    pub command: Vec<String>,
    /// How many words of the command are the package's own; `None` for an image that smcp did not build.
    pub own_words: Option<usize>,
    /// Where the server starts.
    pub workdir: Workdir,
    /// Sorted by target, so that a parent stands before what is below it.
    pub mounts: Vec<Mount>,
    /// What is hidden in them, and what no grant holds and was denied all the same: canonical paths on the host, sorted.
    pub denied: Vec<PathBuf>,
    /// The whole environment of the server, sorted by name.
    pub env: Vec<(String, Secret)>,
    /// Which foreign programs may be started.
    pub subprocess: Subprocess,
    /// Where it may connect to.
    pub egress: Egress,
    /// Whom it trusts there, beside what the package brings.
    pub certificates: Option<Certificates>,
    /// Limits in force.
    pub limits: Limits,
    /// What the manifest asks for and the run does not get.
    pub withheld: Vec<Withheld>,
    /// What the user should know of the grants.
    pub notes: Vec<String>,
}

impl Grant {
    /// A grant of nothing with the default limits, for a cage that is only tried.
    pub fn nothing() -> Grant {
        Grant {
            command: Vec::new(),
            own_words: Some(0),
            workdir: Workdir::Home,
            mounts: Vec::new(),
            denied: Vec::new(),
            env: Vec::new(),
            subprocess: Subprocess::Denied,
            egress: Egress::default(),
            certificates: None,
            limits: Limits::default(),
            withheld: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Where the server starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Workdir {
    /// In its home directory.
    Home,
    /// In a directory of the package.
    Package(PathBuf),
    /// In a granted directory.
    Granted(PathBuf),
}

impl Workdir {
    /// The absolute path inside.
    pub fn path<'a>(&'a self, home: &'a Path) -> &'a Path {
        match self {
            Workdir::Home => home,
            Workdir::Package(path) | Workdir::Granted(path) => path,
        }
    }
}

/// A granted file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Canonical path on the host.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Reading alone, or writing too.
    pub access: Access,
    /// Who provides it.
    pub from: Origin,
    /// Directories in it that are hidden, by their paths below the source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<PathBuf>,
}

/// Which programs beside the package's own runtime may be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Subprocess {
    /// None.
    Denied,
    /// These; absolute paths inside, sorted.
    AllowedPaths(Vec<PathBuf>),
    /// Every one.
    AllowedAny,
}

/// A request of the manifest that is not granted, which does not stop the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Withheld {
    /// The request.
    pub what: String,
    /// Why it is not granted.
    pub why: String,
    /// What would grant it, where something would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Why a run is refused: at least one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// All that were found.
    pub reasons: Vec<Reason>,
}

/// One reason against a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Whose matter it is.
    pub kind: ReasonKind,
    /// What is wrong and why; never the value of a variable.
    pub what: String,
    /// The next step, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Kind of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ReasonKind {
    /// Something is missing from, or wrong on, the command line.
    Usage,
    /// It is never granted.
    Policy,
}

impl Reason {
    /// That a policy does not let it.
    pub(crate) fn policy(what: impl Into<String>, hint: impl Into<Option<String>>) -> Reason {
        Reason { kind: ReasonKind::Policy, what: what.into(), hint: hint.into() }
    }
}

impl Denied {
    /// All of it can be put right on the command line.
    pub fn is_usage(&self) -> bool {
        self.reasons.iter().all(|reason| reason.kind == ReasonKind::Usage)
    }
}

impl std::error::Error for Denied {}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, reason) in self.reasons.iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{}", reason.what)?;
        }
        Ok(())
    }
}

/// What a judgement gathers on its way.
#[derive(Default)]
struct Verdict {
    reasons: Vec<Reason>,
    withheld: Vec<Withheld>,
    notes: Vec<String>,
}

impl Verdict {
    fn usage(&mut self, what: impl Into<String>, hint: impl Into<Option<String>>) {
        let (what, hint) = (what.into(), hint.into());
        self.reasons.push(Reason { kind: ReasonKind::Usage, what, hint });
    }

    fn policy(&mut self, what: impl Into<String>, hint: impl Into<Option<String>>) {
        self.reasons.push(Reason::policy(what, hint));
    }

    fn withhold(&mut self, what: String, why: &str, hint: Option<String>) {
        self.withheld.push(Withheld { what, why: why.into(), hint });
    }
}

/// An absent ceiling is no ceiling: what the manifest names is granted as asked, but for programs that the server could
/// have written itself. Those take the user's word.
fn subprocess(
    package: &Package,
    request: &Request,
    ceilings: &crate::policy::Ceilings,
    files: &files::Files,
    caller: &CallerEnv,
    verdict: &mut Verdict,
) -> Subprocess {
    let private = [Path::new("/tmp"), Path::new("/dev/shm"), &caller.home];
    let written = |path: &Path| private.iter().any(|place| path.starts_with(place)) || files.cover(path);
    let asked = package.manifest.permissions.subprocess.allow.iter().cloned();
    let (refused, mut paths): (Vec<_>, Vec<_>) = asked.partition(|path| written(path));
    for path in refused {
        let path = path.display();
        let why = "it lies where the server itself may write or in what you grant";
        verdict.withhold(format!("starting {path}"), why, Some(format!("--allow-subprocess={path}")));
    }
    paths.retain(|path| match ceilings::of_program(ceilings, path) {
        None => true,
        Some(source) => {
            verdict.withhold(format!("starting {}", path.display()), &ceilings::beyond(source), None);
            false
        }
    });
    match &request.subprocess {
        SubprocessFlag::Any => {
            if let Some(list) = ceilings.subprocess.first() {
                let what =
                    format!("--allow-subprocess: the policy's ceiling allows named programs alone ({})", list.source);
                verdict.policy(what, ceilings::hint());
            }
            return Subprocess::AllowedAny;
        }
        SubprocessFlag::None => {}
        SubprocessFlag::Paths(more) => {
            for path in more.iter().filter(|path| !path.is_absolute()) {
                let what = format!("--allow-subprocess {}: the path must be absolute", path.display());
                verdict.usage(what, "it is a path inside the package, such as /usr/bin/git".to_string());
            }
            for (path, source) in more.iter().filter_map(|path| Some((path, ceilings::of_program(ceilings, path)?))) {
                let what = format!("--allow-subprocess={}: {}", path.display(), ceilings::beyond(source));
                verdict.policy(what, ceilings::hint());
            }
            paths.extend(more.iter().cloned());
        }
    }
    paths.sort();
    paths.dedup();
    if paths.is_empty() { Subprocess::Denied } else { Subprocess::AllowedPaths(paths) }
}

/// Plan and audit log are JSON, and must name what is granted and denied.
fn nameable(mounts: &[Mount], denied: &[PathBuf], verdict: &mut Verdict) {
    let paths = mounts.iter().flat_map(|mount| [&mount.source, &mount.target]).chain(denied);
    let unnameable: BTreeSet<_> = paths.filter(|path| path.to_str().is_none()).collect();
    for path in unnameable {
        let what = format!("{}: the path is not UTF-8, and no plan can name it", path.display());
        verdict.usage(what, "rename it, or name the directory that holds it".to_string());
    }
}

fn workdir(package: &Package, request: &Request, files: &files::Files) -> Workdir {
    // A `--cwd` that is not granted has left its reason and there is no run.
    match (&request.cwd, package.workdir()) {
        (Some(_), _) => files.cwd().map_or(Workdir::Home, Workdir::Granted),
        (None, Some(path)) => Workdir::Package(path),
        (None, None) => Workdir::Home,
    }
}

fn command(package: &Package, args: Vec<String>, verdict: &mut Verdict) -> Vec<String> {
    let command = package.command(args);
    if command.first().is_none_or(String::is_empty) {
        verdict.usage("the image names no program to start", "name one after the reference".to_string());
    }
    command
}

/// Lists what the manifest asks for and does not get.
fn withhold(package: &Package, files: &files::Files, verdict: &mut Verdict) {
    let permissions = &package.manifest.permissions;
    for request in &permissions.filesystem {
        let target = request.target.display();
        let what = format!("filesystem `{}` ({} {target})", request.id, request.access);
        match files.met(request) {
            Some(access) if access >= request.access => {}
            Some(_) => verdict.withhold(what, "it is granted read-only", None),
            None => {
                let hint = format!("--mount DIRECTORY:{target}:{}", request.access);
                verdict.withhold(what, "no flag or argument names it", Some(hint));
            }
        }
    }
}

#[cfg(test)]
mod ceiling_tests;
#[cfg(test)]
mod tests;
