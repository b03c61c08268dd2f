//! `--deny P`: directories of the host that stay hidden in every grant that holds them.

use std::io;
use std::path::{Path, PathBuf};

use distribution::system;

use super::files::existing_canonical;
use super::{CallerEnv, Mount, Request, Verdict};

/// Hides what is denied in the `mounts` that hold it, and gives the canonical paths of all that is denied; also of what no
/// grant holds, which is out of reach anyway.
pub(super) fn hide(request: &Request, caller: &CallerEnv, mounts: &mut [Mount], verdict: &mut Verdict) -> Vec<PathBuf> {
    let mut denied: Vec<PathBuf> = Vec::new();
    for flag in &request.denied {
        match place(&caller.cwd.join(flag)) {
            Ok(path) if fits(&path, flag, mounts, verdict) => denied.push(path),
            Ok(_) => {}
            Err(why) => verdict.usage(format!("--deny {}: {why}", flag.display()), CORRECT.to_string()),
        }
    }
    denied.sort();
    // What lies in a directory that is hidden needs no mask of its own.
    denied.dedup_by(|path, before| path.starts_with(before));
    for mount in mounts {
        mount.denied = denied.iter().filter_map(|path| below(path, &mount.source)).collect();
    }
    denied
}

const CORRECT: &str = "name a directory that is in its place before the run starts";

/// Where a path leads, of which the end may not exist.
fn place(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(existing_canonical(path)),
        other => other,
    }
}

/// Whether every grant that holds the path can hide it. Leaves the reasons why not.
fn fits(path: &Path, flag: &Path, mounts: &[Mount], verdict: &mut Verdict) -> bool {
    let name = format!("--deny {}", flag.display());
    let before = verdict.reasons.len();
    for mount in mounts {
        let source = mount.source.display();
        if below(&mount.source, path).is_some() {
            let hint = "leave one of the two out, or grant and deny directories beside each other";
            verdict.usage(format!("{name}: {source} is granted, and so both granted and denied"), hint.to_string());
            continue;
        }
        let Some(below) = below(path, &mount.source) else { continue };
        let refuse = |why: &str, hint: &str| (format!("{name}: in the granted {source} it {why}"), hint.to_string());
        let refused = match path.symlink_metadata() {
            Ok(about) if about.is_dir() => None,
            Ok(_) => Some(refuse(
                "is no directory, and a mask on a file vanishes when another is renamed over it",
                "deny the directory that holds it, or grant only what lies beside it",
            )),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                Some(refuse("does not exist, and what is absent cannot be masked", CORRECT))
            }
            Err(why) => Some(refuse(&format!("cannot be looked at ({why})"), CORRECT)),
        };
        if let Some((what, hint)) = refused {
            verdict.usage(what, hint);
            continue;
        }
        let hidden = mount.target.join(below);
        if let Some(other) = mounts.iter().find(|other| other.target.starts_with(&hidden)) {
            let (other, hidden) = (other.target.display(), hidden.display());
            verdict.usage(
                format!("{name}: {other} would be mounted in what is hidden at {hidden}"),
                "give that grant another path inside: --mount SRC:DST".to_string(),
            );
        }
    }
    verdict.reasons.len() == before
}

/// The way from a directory down to a path in it; empty where they are the same. By path, and by what the paths lead to: the
/// host may show one directory at two places.
fn below(path: &Path, directory: &Path) -> Option<PathBuf> {
    let id = system::identity;
    let wanted = id(directory);
    let same = |outer: &&Path| *outer == directory || (wanted.is_some() && id(outer) == wanted);
    let outer = path.ancestors().find(same)?;
    path.strip_prefix(outer).ok().map(Path::to_path_buf)
}
