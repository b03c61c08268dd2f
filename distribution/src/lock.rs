//! Locks between processes and threads, by flock: the system lets go of them however their holder ends.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use crate::system::{self, Directory, Hold};
use crate::{Error, Result};

pub(crate) use system::is_at;

/// An exclusive lock whose file lives only as long as somebody holds or awaits it.
#[derive(Debug)]
pub(crate) struct Turn {
    path: PathBuf,
    _file: File,
}

impl Turn {
    /// Waits for the lock at `path`.
    pub(crate) fn wait(path: PathBuf) -> Result<Self> {
        loop {
            let file = open(&path)?;
            system::lock(&file).map_err(Error::store("lock", &path))?;
            // The holder before us removed the file that we waited on: others wait on a new one by now.
            if is_at(&file, &path) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Still locked here, so nobody can hold a lock on another file of this name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Waits for the lock on a file that stays, shared with other readers.
pub(crate) fn shared(path: &Path) -> Result<File> {
    let file = open(path)?;
    system::lock_shared(&file).map_err(Error::store("lock", path))?;
    Ok(file)
}

/// Waits for the lock on a file that stays, alone.
pub(crate) fn exclusive(path: &Path) -> Result<File> {
    let file = open(path)?;
    system::lock(&file).map_err(Error::store("lock", path))?;
    Ok(file)
}

/// Waits for the lock on a directory that is there already.
pub(crate) fn held(dir: &Path) -> Result<Directory> {
    system::hold_directory(dir, Hold::Alone).map_err(Error::store("lock", dir))
}

/// Takes the lock on a file or directory that is there already; none where somebody holds it.
pub(crate) fn try_exclusive(path: &Path) -> Option<File> {
    system::try_hold(path)
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(Error::store("open", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn one_at_a_time_and_no_file_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let (inside, total) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = Turn::wait(path.clone()).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        total.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(total.load(Ordering::SeqCst), 400);
        assert!(!path.exists());
    }

    #[test]
    fn a_held_directory_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let held = system::hold_directory(dir.path(), Hold::Shared).unwrap();
        assert!(try_exclusive(dir.path()).is_none());
        drop(held);
        assert!(try_exclusive(dir.path()).is_some());
    }
}
