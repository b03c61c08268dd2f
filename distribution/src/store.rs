//! The content-addressed store: an OCI layout, and beside it unpacked layers and remembered names.
//!
//! ```text
//! oci-layout, index.json     so that other tools read it
//! blobs/sha256/<hex>         manifests, configurations, packed layers; blobs/sha512/<hex> where others named them so
//! layers/<hex of diff id>/   unpacked once, read-only from then on; beside them, as hard links, the trees that they make
//!                            together
//! refs/<hex of name>.json    what a name stood for, and since when
//! attached/<hex>.json        signatures and attestations of a manifest or index, as they were listed
//! locks/ tmp/ trash/         work under way and what awaits deletion
//! ```
//!
//! Everything appears by rename, so a process that is killed leaves at most something in `tmp/`, which the next
//! writer removes. A recall reads one file. Order of locks: lease, layer or blob, refs.

mod attached;
mod blob;
mod collect;
mod layer;
mod pull;
mod refs;
mod remove;
#[cfg(test)]
mod tests;

use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;

use crate::system::{self, DirBuilderExt as _};
use crate::{Algorithm, Digest, Error, Result, disk, layout, lock};

pub use blob::{Blob, BlobLock, BlobReader, BlobWriter, Verified};
pub use collect::{Allowance, Verdict};
pub use layer::{LayerLock, StagedLayer, Staging};
pub use pull::Pull;
pub use refs::{Made, Origin, Remembered};
pub use remove::{Kept, Lease, Removed};

const DIRECTORIES: [&str; 7] = ["blobs/sha256", "layers", "refs", "trash", "tmp", "locks", "blobs"];

/// The store at one directory. Threads and processes may use it at once.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    swept: Once,
}

impl Store {
    /// Opens the store at `root` and makes it where it is not there yet, for its owner alone.
    ///
    /// # Errors
    /// Where it cannot be made, belongs to somebody else, or can be written by others: the layers in it are run.
    pub fn open(root: &Path) -> Result<Self> {
        let root = std::path::absolute(root).map_err(Error::store("find", root))?;
        let store = Self { root, swept: Once::new() };
        match fs::metadata(&store.root) {
            Ok(found) => store.check_owner(&found)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::store("open", &store.root)(e)),
        }
        if !store.at("oci-layout").is_file() {
            store.create()?;
        }
        Ok(store)
    }

    /// The directory of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn create(&self) -> Result<()> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for name in DIRECTORIES {
            builder.create(self.at(name)).map_err(Error::store("create", &self.at(name)))?;
        }
        let _lock = lock::exclusive(&self.at("locks/refs"))?;
        if !self.at("index.json").exists() {
            layout::write_index(&self.root, &self.at("tmp"), &[])?;
        }
        // Last: where this file is, everything else is.
        disk::replace(&self.at("oci-layout"), layout::MARKER.as_bytes(), &self.at("tmp"))
    }

    fn check_owner(&self, found: &fs::Metadata) -> Result<()> {
        let unusable = |why: &str| Err(Error::Unusable { path: self.root.clone(), why: why.into() });
        if !found.is_dir() {
            return unusable("not a directory");
        }
        if !system::is_own(found) {
            return unusable("the store belongs to another user, who could change what is run");
        }
        if system::others_can_write(found) {
            return unusable("the store can be written by other users, who could change what is run");
        }
        Ok(())
    }

    /// Before the first write of this process: takes away what killed processes left in `tmp/`.
    fn before_writing(&self) {
        self.swept.call_once(|| {
            for leftover in disk::entries(&self.at("tmp")).unwrap_or_default() {
                let Some(_unheld) = lock::try_exclusive(&leftover) else { continue };
                tracing::debug!(path = %leftover.display(), "left by a process that was killed");
                if let Err(error) = disk::discard(&leftover, &self.at("trash")) {
                    tracing::warn!(%error, "leftover stays");
                }
            }
        });
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.blobs_by(digest.algorithm()).join(digest.hex())
    }

    /// Where the blobs of an algorithm lie; nothing is there where there are none.
    fn blobs_by(&self, algorithm: Algorithm) -> PathBuf {
        self.root.join("blobs").join(algorithm.name())
    }

    fn layer_path(&self, diff_id: &Digest) -> PathBuf {
        self.root.join("layers").join(diff_id.hex())
    }
}
