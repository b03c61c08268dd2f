//! What of files, programs, variables and limits lies below the policy's ceilings. What a flag asks for beyond them stops the
//! run; what a package asks for is withheld. Both name the policy that says so.

use std::fs;
use std::path::{Component, Path, PathBuf};

use distribution::system::{self, MetadataExt as _};

use super::files::existing_canonical;
use super::{CallerEnv, Request, Verdict};
use crate::limits::{LimitRequest, Limits};
use crate::permissions::Access;
use crate::policy::{Ceilings, FilesystemCeiling, LimitCeilings, Source, Sourced};
use crate::units::{format_duration, format_size};

/// The ceiling of files, with its paths as they are on this machine.
pub(super) struct FileCeiling<'a> {
    allow: Vec<(Vec<(PathBuf, Access)>, &'a Source)>,
    deny: Vec<(PathBuf, Option<Identity>, &'a Source)>,
    /// What `--deny` hides in whatever holds it.
    masked: Vec<PathBuf>,
}

impl<'a> FileCeiling<'a> {
    pub(super) fn new(ceiling: &'a FilesystemCeiling, request: &Request, caller: &CallerEnv) -> FileCeiling<'a> {
        let list = |Sourced { value, source }: &'a Sourced<Vec<_>>| {
            let entry = |one: &crate::policy::PathCeiling| (by_links_of_root(&one.path), one.access);
            (value.iter().map(entry).collect(), source)
        };
        FileCeiling {
            allow: ceiling.allow.iter().map(list).collect(),
            deny: ceiling.deny.iter().map(denied).collect(),
            masked: request.denied.iter().map(|path| existing_canonical(&caller.cwd.join(path))).collect(),
        }
    }

    /// Why a path without links is not granted with this access, and the next step.
    pub(super) fn refusal(&self, real: &Path, access: Access) -> Option<(String, String)> {
        for (denied, identity, source) in &self.deny {
            let is_it = |dir: &Path| identity.is_some() && identity_of(dir) == *identity;
            if real.starts_with(denied) || real.ancestors().any(is_it) {
                let what = format!("the policy denies {} ({source})", denied.display());
                return Some((what, CEILING.into()));
            }
            if denied.starts_with(real) && !self.masked.iter().any(|mask| denied.starts_with(mask)) {
                let what = format!("it holds {}, which the policy denies ({source})", denied.display());
                return Some((what, format!("grant what lies beside it, or hide it: --deny {}", denied.display())));
            }
        }
        for (list, source) in &self.allow {
            let most = list.iter().filter(|(path, _)| real.starts_with(path)).map(|(_, access)| *access).max();
            let what = match most {
                Some(most) if most >= access => continue,
                Some(_) => format!("the policy's ceiling allows it read-only ({source})"),
                None => format!("the policy's ceiling does not allow it ({source})"),
            };
            return Some((what, CEILING.into()));
        }
        None
    }
}

const CEILING: &str = "policy.ceilings in the configuration is the most that a run may be granted";

/// Device and inode: what a file or directory is, by whatever name, mount or case it is reached.
type Identity = (u64, u64);

fn identity_of(path: &Path) -> Option<Identity> {
    system::identity_of_target(path)
}

fn denied(path: &Sourced<PathBuf>) -> (PathBuf, Option<Identity>, &Source) {
    let real = existing_canonical(&path.value);
    let identity = identity_of(&real);
    (real, identity, &path.source)
}

/// A path with the links in it followed that are root's: whose link another user could bend, that one's leads nowhere.
fn by_links_of_root(path: &Path) -> PathBuf {
    const MOST: usize = 40;
    let mut rest: Vec<PathBuf> = vec![path.into()];
    let mut real = PathBuf::from("/");
    let mut followed = 0;
    while let Some(next) = rest.pop() {
        let mut parts = next.components();
        let Some(first) = parts.next() else { continue };
        let left = parts.as_path().to_path_buf();
        if !left.as_os_str().is_empty() {
            rest.push(left);
        }
        match first {
            Component::RootDir => real = PathBuf::from("/"),
            Component::ParentDir => drop(real.pop()),
            Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(name) => {
                real.push(name);
                let link = fs::symlink_metadata(&real).is_ok_and(|about| about.is_symlink() && about.uid() == 0);
                if link && followed < MOST {
                    followed += 1;
                    if let Ok(target) = fs::read_link(&real) {
                        real.pop();
                        rest.push(target);
                    }
                }
            }
        }
    }
    real
}

/// Which policy does not let a program be started.
pub(super) fn of_program<'a>(ceilings: &'a Ceilings, program: &Path) -> Option<&'a Source> {
    let missing = ceilings.subprocess.iter().find(|list| !list.value.iter().any(|allowed| allowed == program));
    missing.map(|list| &list.source)
}

/// Which policy denies a variable.
pub(super) fn of_variable<'a>(ceilings: &'a Ceilings, name: &str) -> Option<&'a Source> {
    ceilings.env_deny.iter().find(|pattern| pattern.value.matches(name)).map(|pattern| &pattern.source)
}

/// The limits in force: a flag beyond its ceiling stops the run, all else is brought down to it.
pub(super) fn limits(
    flags: &LimitRequest,
    manifest: &LimitRequest,
    max: &Limits,
    ceilings: &LimitCeilings,
    verdict: &mut Verdict,
) -> Limits {
    let Limits { memory, cpu, cpu_time, pids, fds, timeout } = Limits::effective(flags, manifest, max);
    let time = |time: &std::time::Duration| format_duration(*time);
    Limits {
        memory: below("--memory", flags.memory, memory, &ceilings.memory, |bytes| format_size(*bytes), verdict),
        cpu: below("--max-cpu", flags.cpu, cpu, &ceilings.cpu, u32::to_string, verdict),
        cpu_time: below("--cpu-time", flags.cpu_time, cpu_time, &ceilings.cpu_time, time, verdict),
        pids: below("--pids", flags.pids, pids, &ceilings.pids, u32::to_string, verdict),
        fds: below("--fds", flags.fds, fds, &ceilings.fds, u32::to_string, verdict),
        timeout: below("--timeout", flags.timeout, timeout, &ceilings.timeout, time, verdict),
    }
}

fn below<T: Ord + Copy>(
    flag: &str,
    asked: Option<T>,
    effective: T,
    ceiling: &Option<Sourced<T>>,
    text: impl Fn(&T) -> String,
    verdict: &mut Verdict,
) -> T {
    let Some(Sourced { value: most, source }) = ceiling else { return effective };
    if let Some(asked) = asked.filter(|asked| asked > most) {
        let what = format!("{flag} {}: the policy's ceiling is {} ({source})", text(&asked), text(most));
        verdict.policy(what, CEILING.to_owned());
    }
    effective.min(*most)
}

pub(super) fn beyond(source: &Source) -> String {
    format!("the policy's ceiling does not allow it ({source})")
}

/// The next step where a flag is beyond a ceiling.
pub(super) fn hint() -> String {
    CEILING.to_owned()
}
