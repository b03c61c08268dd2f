//! Directories to work in, in the store's `tmp/`: on the same disk as the store, and taken away with what killed
//! processes left there.

use std::fs::File;
use std::path::Path;

use tempfile::TempDir;

use super::error::BuildError;

/// A fresh directory, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Staging {
    dir: TempDir,
    _lock: File,
}

impl Staging {
    pub(super) fn new(parent: &Path) -> Result<Self, BuildError> {
        let failed = || BuildError::io(format!("making a directory in {}", parent.display()));
        loop {
            let dir = tempfile::Builder::new().prefix("build-").tempdir_in(parent).map_err(failed())?;
            // A locked directory is in use: another process would take it for a leftover otherwise, and may have done
            // so just before it was locked.
            let Ok(lock) = File::open(dir.path()) else { continue };
            lock.lock().map_err(failed())?;
            if dir.path().is_dir() {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_while_it_lives() {
        let parent = tempfile::tempdir().unwrap();
        let staging = Staging::new(parent.path()).unwrap();
        let path = staging.path().to_owned();
        assert!(File::open(&path).unwrap().try_lock().is_err());
        drop(staging);
        assert!(!path.exists());
    }
}
