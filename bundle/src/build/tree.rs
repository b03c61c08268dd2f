//! What lies in a directory of this machine, as paths relative to it.

use std::fs::{self, FileType};
use std::path::{Component, Path, PathBuf};

use super::error::BuildError;

/// Everything below `root` but directories, sorted; what `keep` refuses is left out, directories with all they hold.
/// Links are not followed.
pub(super) fn entries(root: &Path, keep: &dyn Fn(&Path) -> bool) -> Result<Vec<(PathBuf, FileType)>, BuildError> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(within) = open.pop() {
        let dir = root.join(&within);
        let failed = || BuildError::io(format!("reading {}", dir.display()));
        for entry in fs::read_dir(&dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            let path = within.join(entry.file_name());
            let kind = entry.file_type().map_err(failed())?;
            if !keep(&path) {
                continue;
            }
            if kind.is_dir() {
                open.push(path);
            } else {
                found.push((path, kind));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// The regular files below `root`, sorted.
pub(super) fn files(root: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let all = entries(root, &|_| true)?;
    Ok(all.into_iter().filter(|(_, kind)| kind.is_file()).map(|(path, _)| path).collect())
}

/// Whether the target of a link at `path` (relative to some root) lies within that root.
pub(super) fn stays_within(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count() - 1;
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        assert!(stays_within(Path::new(".bin/x"), Path::new("../x/cli.js")));
        assert!(stays_within(Path::new("a"), Path::new("b/../c")));
        for target in ["../../x", "/etc/passwd", "../x/../../y"] {
            assert!(!stays_within(Path::new(".bin/x"), Path::new(target)), "{target}");
        }
    }
}
