//! Signatures and attestations of what is in the store, as they were listed: one small file for each manifest or index.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use super::Store;
use crate::attached::MAX_ALL;
use crate::lock::Turn;
use crate::{Attachments, Digest, Error, Result, disk, json};

/// The largest file in `attached/`, in bytes: text in JSON strings takes more room than it has.
const MAX_FILE: usize = 4 * MAX_ALL;

impl Store {
    /// Keeps what was listed about a manifest or index, in place of what was kept before.
    ///
    /// # Errors
    /// Where the store cannot be written.
    pub fn keep_attachments(&self, about: &Digest, attachments: &Attachments) -> Result<()> {
        self.before_writing();
        let dir = self.at("attached");
        fs::create_dir_all(&dir).map_err(Error::store("create", &dir))?;
        let bytes = serde_json::to_vec(attachments).expect("strings and numbers always serialise");
        disk::replace(&self.attached_path(about), &bytes, &self.at("tmp"))
    }

    /// What was listed about a manifest or index the last time; none where nobody has asked yet. Reads one file.
    ///
    /// # Errors
    /// Where it cannot be read. One that cannot be understood is as good as none: it is listed anew.
    pub fn attachments(&self, about: &Digest) -> Result<Option<Attachments>> {
        let path = self.attached_path(about);
        let mut bytes = Vec::new();
        match fs::File::open(&path).and_then(|file| file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(Error::store("read", &path))?,
        };
        match json::strict(&bytes, MAX_FILE) {
            Ok(attachments) => Ok(Some(attachments)),
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "not understood, so not used");
                Ok(None)
            }
        }
    }

    /// Waits for the turn to put something beside a manifest or index: who does so by this store reads and writes its lists alone.
    pub(crate) fn turn_beside(&self, about: &Digest) -> Result<Turn> {
        self.before_writing();
        Turn::wait(self.at("locks").join(format!("beside-{}", about.hex())))
    }

    pub(super) fn drop_attachments(&self, about: &Digest) -> Result<()> {
        disk::discard(&self.attached_path(about), &self.at("trash")).map(drop)
    }

    fn attached_path(&self, about: &Digest) -> PathBuf {
        self.at("attached").join(format!("{}.json", about.hex()))
    }
}
