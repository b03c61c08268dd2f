//! What follows the reference, matched with the manifest's `args`.

use super::files::Files;
use super::{Request, Verdict};
use crate::manifest::{ArgKind, ArgSpec, Manifest};
use crate::permissions::FsRequest;

/// Reads the user's arguments: the first is the first of the manifest's `args`,
/// and so on; more than those pass through. A path that the manifest wants to
/// mount is granted at the same absolute path as outside.
pub(super) fn read(manifest: &Manifest, request: &Request, files: &mut Files, verdict: &mut Verdict) -> Vec<String> {
    let mut args = request.args.clone();
    for (i, spec) in manifest.args.iter().enumerate() {
        let asked = spec.mount.as_ref().and_then(|id| find(manifest, id));
        match (args.get_mut(i), asked) {
            (Some(arg), Some(asked)) => {
                if let Some(path) = files.argument(spec, arg, asked, verdict) {
                    *arg = path;
                }
            }
            (None, asked) if spec.required => missing(spec, asked, verdict),
            _ => {}
        }
    }
    args
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
