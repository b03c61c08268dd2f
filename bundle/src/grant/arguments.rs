//! What follows the reference, matched with the manifest's `args`.

use std::path::Path;

use super::files::Files;
use super::{Request, Verdict};
use crate::manifest::{ArgKind, ArgSpec, Manifest};
use crate::permissions::FsRequest;

/// Reads the user's arguments: what follows a flag of the manifest's `args` is that one; of the others the first is the first of
/// those without a flag, and so on; more than those pass through. A path that the manifest wants to
/// mount is granted at the same absolute path as outside.
pub(super) fn read(manifest: &Manifest, request: &Request, files: &mut Files, verdict: &mut Verdict) -> Vec<String> {
    let mut args = request.args.clone();
    let mut free: Vec<usize> = (0..args.len()).filter(|at| !request.listed.contains(at)).collect();
    for spec in &manifest.args {
        let asked = spec.mount.as_ref().and_then(|id| find(manifest, id));
        let places = match &spec.flag {
            Some(flag) => of_flag(flag, &args, &mut free),
            None if spec.repeated => {
                let words = |at: &usize| !args[*at].starts_with('-');
                std::mem::take(&mut free).into_iter().filter(words).map(|at| (at, String::new())).collect()
            }
            None if free.is_empty() => Vec::new(),
            None => vec![(free.remove(0), String::new())],
        };
        if places.is_empty() && spec.required {
            missing(spec, asked, verdict);
        }
        for (at, before) in places {
            let Some(asked) = asked else { continue };
            if let Some(path) = granted(spec, &args[at][before.len()..], asked, files, verdict) {
                args[at] = before + &path;
            }
        }
    }
    args
}

/// Where the values of a flag stand, each with what stands before it in the same word. They and the flag are free no more.
fn of_flag(flag: &str, args: &[String], free: &mut Vec<usize>) -> Vec<(usize, String)> {
    let mut places = Vec::new();
    for at in free.clone() {
        if args[at] == flag && free.contains(&(at + 1)) {
            places.push((at + 1, String::new()));
            free.retain(|other| *other != at && *other != at + 1);
        } else if args[at].strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')) {
            places.push((at, format!("{flag}=")));
            free.retain(|other| *other != at);
        }
    }
    places
}

/// The path as it is called inside; it is granted, or the directory that holds it.
fn granted(spec: &ArgSpec, arg: &str, asked: &FsRequest, files: &mut Files, verdict: &mut Verdict) -> Option<String> {
    let path = Path::new(arg);
    let (true, Some(name), Some(holder)) = (spec.holder, path.file_name(), path.parent()) else {
        return files.argument(spec, arg, asked, verdict);
    };
    let holder = if holder.as_os_str().is_empty() { "." } else { holder.to_str()? };
    let holder = files.argument(spec, holder, asked, verdict)?;
    Some(Path::new(&holder).join(name).to_str()?.to_owned())
}

fn find<'a>(manifest: &'a Manifest, id: &str) -> Option<&'a FsRequest> {
    manifest.permissions.filesystem.iter().find(|request| request.id == id)
}

fn missing(spec: &ArgSpec, asked: Option<&FsRequest>, verdict: &mut Verdict) {
    let hint = match (spec.kind, asked) {
        (ArgKind::Path, Some(asked)) => format!(
            "give its path after the reference: it is granted {} at the same place inside; \
             or --mount DIRECTORY:{}:{} and that path",
            asked.access,
            asked.target.display(),
            asked.access
        ),
        _ => "give it after the reference".to_string(),
    };
    verdict.usage(format!("the required argument `{}` is missing", spec.name), hint);
}
