//! The path of smcp that is written into clients' files: one that stays when smcp is updated, where it was called by such a one.

use std::env;
use std::path::{Path, PathBuf};

use distribution::system::identity_of_target;

use crate::exit::{self, Failure};

/// The absolute path of the running smcp: what PATH has under its name where that is this file, else as it was called, else the file itself.
/// Clients of a desktop have a PATH of their own.
///
/// # Errors
/// Where the file is gone, as after an update, or the path is not UTF-8.
pub fn own_path() -> Result<String, Failure> {
    let own = env::current_exe().and_then(|path| path.metadata().map(|_| (path.clone(), identity_of_target(&path))));
    let (own, id) = own.map_err(|why| {
        Failure::new(exit::RESOLVE, format!("the file of the running smcp is gone: {why}"))
            .hint("call smcp again: it was updated while it ran")
    })?;
    let is_own = |path: &PathBuf| id.is_some() && identity_of_target(path) == id;
    let called = env::args_os().next().map(PathBuf::from);
    let on_path = env::var_os("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
    let on_path = on_path.filter(|directory| directory.is_absolute()).map(|directory| directory.join("smcp"));
    let called =
        called.filter(|called| called.components().count() > 1).and_then(|called| std::path::absolute(called).ok());
    let plain = |path: &Path| !path.components().any(|part| part.as_os_str() == "..");
    let path = on_path.chain(called.filter(|called| plain(called))).find(is_own).unwrap_or(own);
    path.into_os_string().into_string().map_err(|path| {
        Failure::new(exit::USAGE, format!("the path of smcp is not UTF-8: {}", path.display()))
            .hint("clients' files are: put smcp elsewhere")
    })
}
