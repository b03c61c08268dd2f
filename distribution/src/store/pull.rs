//! Who brings an image: one process at a time, which leaves word of how far it is, and of how it ended where it failed.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::PathBuf;

use super::Store;
use crate::system::{self, FileExt as _};
use crate::{Digest, Error, Result, lock};

/// The longest word that is read, in bytes.
const MOST: u64 = 64 << 10;

/// The turn to bring an image, for as long as it lives. The file of the lock stays with the last word in it, unless the turn
/// ends by [`Pull::done`].
#[derive(Debug)]
pub struct Pull {
    path: PathBuf,
    file: File,
}

impl Store {
    /// The turn to bring the image with that manifest; none where another process has it.
    ///
    /// # Errors
    /// Where the lock cannot be made.
    pub fn try_pull(&self, manifest: &Digest) -> Result<Option<Pull>> {
        let path = self.pull_path(manifest);
        loop {
            let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = open.map_err(Error::store("open", &path))?;
            if system::try_lock(&file).is_err() {
                return Ok(None);
            }
            // The one before us has removed it since.
            if lock::is_at(&file, &path) {
                return Ok(Some(Pull { path, file }));
            }
        }
    }

    /// Whether a process is bringing it.
    pub fn is_pulled(&self, manifest: &Digest) -> bool {
        File::open(self.pull_path(manifest)).is_ok_and(|file| system::try_lock_shared(&file).is_err())
    }

    /// The last word of whoever brings it, or of the last that failed to; empty where that one left none.
    pub fn pull_word(&self, manifest: &Digest) -> Option<Vec<u8>> {
        let mut word = Vec::new();
        File::open(self.pull_path(manifest)).ok()?.take(MOST).read_to_end(&mut word).ok()?;
        Some(word)
    }

    fn pull_path(&self, manifest: &Digest) -> PathBuf {
        self.at("locks").join(format!("pull-{}", manifest.hex()))
    }
}

impl Pull {
    /// Leaves word in place of the last one. A reader may see half of it.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn say(&self, word: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(word, 0).and_then(|()| self.file.set_len(word.len() as u64));
        written.map_err(Error::store("write", &self.path))
    }

    /// All is there, and there is nothing to say.
    pub fn done(&self) {
        // Still locked here, so nobody can hold a lock on another file of this name.
        let _ = std::fs::remove_file(&self.path);
    }
}
