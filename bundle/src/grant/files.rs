//! Files and directories of the host that a run is granted.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::ceilings::FileCeiling;
use super::{CallerEnv, Mount, MountFlag, Request, Verdict};
use crate::manifest::ArgSpec;
use crate::permissions::{Access, FsRequest, KERNEL_DIRECTORIES, Origin};

/// The grants of files, as they are gathered.
pub(super) struct Files<'a> {
    caller: &'a CallerEnv,
    ceiling: FileCeiling<'a>,
    /// Found out once something is to be granted.
    protected: OnceCell<Vec<PathBuf>>,
    mounts: BTreeMap<PathBuf, Mount>,
    cwd: Option<PathBuf>,
    /// Requests that an argument answered, by id.
    answered: BTreeMap<String, PathBuf>,
}

impl<'a> Files<'a> {
    pub(super) fn new(caller: &'a CallerEnv, ceiling: FileCeiling<'a>) -> Files<'a> {
        let (protected, mounts, answered) = Default::default();
        Files { caller, ceiling, protected, mounts, cwd: None, answered }
    }

    /// Grants what the flags name.
    pub(super) fn flags(&mut self, request: &Request, verdict: &mut Verdict) {
        for MountFlag { source, target, access, flag } in &request.mounts {
            self.grant(flag, source, target.as_deref(), *access, verdict);
        }
        if let Some(dir) = &request.cwd {
            self.cwd = self.grant("--cwd", dir, None, Access::Rw, verdict);
            if self.cwd.as_ref().is_some_and(|target| !self.mounts[target].source.is_dir()) {
                verdict.usage(format!("--cwd {}: is not a directory", dir.display()), None);
            }
        }
    }

    /// Grants the path of an argument, unless it lies in what a flag granted,
    /// and gives it as it is called inside.
    pub(super) fn argument(
        &mut self,
        spec: &ArgSpec,
        arg: &str,
        asked: &FsRequest,
        verdict: &mut Verdict,
    ) -> Option<String> {
        let flag = format!("argument `{}`", spec.name);
        let typed = self.typed(Path::new(arg));
        let target = match typed.ancestors().find(|dir| self.mounts.contains_key(*dir)) {
            Some(dir) if !has_parent_dir(&typed) => {
                self.answered.insert(asked.id.clone(), dir.to_path_buf());
                typed
            }
            _ => {
                let target = self.grant(&flag, Path::new(arg), None, asked.access, verdict)?;
                self.answered.insert(asked.id.clone(), target.clone());
                target
            }
        };
        let text = target.to_str().map(str::to_string);
        if text.is_none() {
            verdict.usage(format!("{flag}: {} is not UTF-8", target.display()), None);
        }
        text
    }

    /// Grants a lasting directory of smcp's own, which need not exist yet. Gives whether its target was free.
    pub(super) fn state(&mut self, target: &Path, source: PathBuf, access: Access) -> bool {
        let mount = Mount { source, target: target.into(), access, from: Origin::State, denied: Vec::new() };
        let free = !self.mounts.contains_key(target);
        self.mounts.entry(target.into()).or_insert(mount);
        free
    }

    /// Whether a path inside lies in a grant.
    pub(super) fn cover(&self, path: &Path) -> bool {
        path.ancestors().any(|dir| self.mounts.contains_key(dir))
    }

    /// With which access a request was answered, by its target or by an argument.
    pub(super) fn met(&self, request: &FsRequest) -> Option<Access> {
        let target = self.answered.get(&request.id).unwrap_or(&request.target);
        self.mounts.get(target).map(|mount| mount.access)
    }

    /// The granted working directory.
    pub(super) fn cwd(&self) -> Option<PathBuf> {
        self.cwd.clone()
    }

    /// All grants, sorted by target.
    pub(super) fn finish(self) -> Vec<Mount> {
        self.mounts.into_values().collect()
    }

    /// Grants one path and gives its target, or states why not.
    fn grant(
        &mut self,
        flag: &str,
        source: &Path,
        target: Option<&Path>,
        access: Access,
        verdict: &mut Verdict,
    ) -> Option<PathBuf> {
        let name = format!("{flag} {}", source.display());
        let typed = self.typed(source);
        let real = match real_path(&typed) {
            Ok(real) => real,
            Err(error) => {
                verdict.usage(format!("{name}: {error}"), None);
                return None;
            }
        };
        let target = match target {
            Some(target) => target.to_path_buf(),
            // The way that `..` leads depends on symlinks; what is real does not.
            None if has_parent_dir(&typed) => real.clone(),
            None => typed.clone(),
        };
        if let Some((why, hint)) = self.refusal(&real, &target, access) {
            verdict.policy(format!("{name}: {why}"), hint.to_string());
            return None;
        }
        if let Some((why, hint)) = self.ceiling.refusal(&real, access) {
            verdict.policy(format!("{name}: {why}"), hint);
            return None;
        }
        // A server that may write to a directory can put a link there, and a later grant would follow it.
        if typed != real && !has_parent_dir(&typed) {
            verdict.notes.push(format!("{name}: it is a link, and {} is what is granted", real.display()));
        }
        let mount = Mount { source: real, target: target.clone(), access, from: Origin::User, denied: Vec::new() };
        match self.mounts.get_mut(&target) {
            None => {
                self.mounts.insert(target.clone(), mount);
            }
            Some(other) if other.source == mount.source => other.access = other.access.max(access),
            Some(other) => verdict.usage(
                format!("{name}: {} is granted there already", other.source.display()),
                "each target takes one source".to_string(),
            ),
        }
        Some(target)
    }

    fn typed(&self, path: &Path) -> PathBuf {
        self.caller.cwd.join(path).components().collect()
    }

    /// Why it is never granted, with the next step.
    fn refusal(&self, real: &Path, target: &Path, access: Access) -> Option<(String, &'static str)> {
        const ELSEWHERE: &str = "give it another path inside: --mount SRC:DST";
        const BESIDE: &str = "grant directories beside it, or keep smcp's files elsewhere (docs/configuration.md)";
        let root = Path::new("/");
        if real == root || target == root {
            return Some(("`/` is never granted".into(), "grant the directories that the server needs"));
        }
        let in_kernel = |path: &Path| KERNEL_DIRECTORIES.iter().any(|dir| path.starts_with(dir));
        if in_kernel(real) {
            let hint = "the cage has a /proc and a /dev of its own";
            return Some(("the kernel's file systems are never granted".into(), hint));
        }
        if in_kernel(target) {
            return Some(("the cage has a kernel file system of its own there".into(), ELSEWHERE));
        }
        // Where clients start it from: who writes there is what they start next, outside of any cage.
        if access == Access::Rw
            && let Some(program) = &self.caller.program
            && (program.starts_with(real) || real.starts_with(program))
        {
            return Some((format!("it holds {}, which is smcp itself", program.display()), BESIDE));
        }
        let protected = || self.caller.protected.iter().map(|path| existing_canonical(path)).collect();
        let protected: &Vec<PathBuf> = self.protected.get_or_init(protected);
        let own = protected.iter().find(|own| real.starts_with(own) || own.starts_with(real))?;
        let why = match real.starts_with(own) {
            true => "it belongs to smcp itself and is never granted".into(),
            false => format!("it holds {}, which belongs to smcp itself", own.display()),
        };
        Some((why, BESIDE))
    }
}

/// The canonical path of a file or directory.
fn real_path(path: &Path) -> io::Result<PathBuf> {
    let real = path.canonicalize()?;
    let kind = real.metadata()?.file_type();
    if !kind.is_dir() && !kind.is_file() {
        return Err(io::Error::other("is neither a file nor a directory"));
    }
    Ok(real)
}

/// The canonical form of a path of which the end may not exist yet.
pub(super) fn existing_canonical(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (ancestor.canonicalize(), path.strip_prefix(ancestor)) {
            return real.join(rest).components().collect();
        }
    }
    path.to_path_buf()
}

fn has_parent_dir(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}
