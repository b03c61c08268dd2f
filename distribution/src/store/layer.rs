//! Unpacked layers: a whole tree at its final name, or nothing.

use std::io;
use std::path::{Path, PathBuf};

use super::Store;
use crate::lock::Turn;
use crate::system::{self, AsFd as _, BorrowedFd, Directory, Hold};
use crate::{Digest, Error, Result, disk};

impl Store {
    /// The complete tree of a layer; none where it is not unpacked.
    pub fn layer(&self, diff_id: &Digest) -> Option<PathBuf> {
        let path = self.layer_path(diff_id);
        path.is_dir().then_some(path)
    }

    /// Waits for the turn to unpack a layer; another may have done it by then.
    pub fn stage_layer(&self, diff_id: &Digest) -> Result<Staging> {
        self.before_writing();
        let turn = Turn::wait(self.at("locks").join(format!("layer-{}", diff_id.hex())))?;
        if let Some(path) = self.layer(diff_id) {
            return Ok(Staging::Present(path));
        }
        let (handle, dir) = disk::scratch_dir(&self.at("tmp"))?;
        let (target, trash) = (self.layer_path(diff_id), self.at("trash"));
        Ok(Staging::Empty(StagedLayer { dir, target, trash, handle, _turn: turn }))
    }

    /// The layers and trees that are unpacked.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn unpacked(&self) -> Result<Vec<Digest>> {
        let names = disk::entries(&self.at("layers"))?.into_iter();
        let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(names.filter_map(name).filter_map(|name| format!("sha256:{name}").parse().ok()).collect())
    }

    /// Takes away the tree of a layer, so that it is unpacked anew. Servers that use it go on.
    ///
    /// # Errors
    /// Where it cannot be moved.
    pub fn set_aside(&self, diff_id: &Digest) -> Result<()> {
        disk::discard(&self.layer_path(diff_id), &self.at("trash")).map(drop)
    }

    /// Keeps the tree of a layer from being deleted for as long as the lock lives. Removing the layer from the store
    /// still works: its name goes, the tree stays.
    ///
    /// # Errors
    /// [`Error::NotFound`] where the layer is not unpacked, or was removed just now.
    pub fn hold_layer(&self, diff_id: &Digest) -> Result<LayerLock> {
        let path = self.layer_path(diff_id);
        let missing = || Error::NotFound { what: format!("layer {diff_id}"), place: "the store".into() };
        let dir = system::hold_directory(&path, Hold::Shared).map_err(|_| missing())?;
        if !system::is_directory_at(&dir, &path) {
            return Err(missing());
        }
        Ok(LayerLock { path, _dir: dir })
    }
}

/// What a process finds when it is its turn to unpack a layer.
#[derive(Debug)]
pub enum Staging {
    /// The layer is there.
    Present(PathBuf),
    /// An empty directory to unpack into.
    Empty(StagedLayer),
}

/// A layer on its way in; dropped before it is committed, it goes to the trash.
#[derive(Debug)]
pub struct StagedLayer {
    dir: PathBuf,
    target: PathBuf,
    trash: PathBuf,
    handle: Directory,
    _turn: Turn,
}

impl StagedLayer {
    /// The directory to unpack into.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The same, open: what lies at its path meanwhile does not matter. A process that has it keeps the directory from being
    /// swept.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Gives the tree its final name and returns that. By then all of it is on the disk: a power cut leaves the whole layer
    /// or none.
    pub fn commit(mut self) -> Result<PathBuf> {
        // A directory must be writable to be moved, and everybody may look into the root of a layer.
        let failed = Error::store("write", &self.target);
        let ready = || {
            system::set_directory_mode(&self.handle, 0o755)?;
            if !system::is_directory_at(&self.handle, &self.dir) {
                return Err(io::Error::other("somebody put another directory in its place"));
            }
            system::sync_tree(&self.handle)?;
            system::rename_held(&self.handle, &self.dir, &self.target)
        };
        ready().map_err(failed)?;
        self.dir = PathBuf::new();
        disk::sync_dir(self.target.parent().unwrap_or(&self.target))?;
        Ok(self.target.clone())
    }
}

impl Drop for StagedLayer {
    fn drop(&mut self) {
        if self.dir.as_os_str().is_empty() {
            return;
        }
        let moved = system::set_directory_mode(&self.handle, 0o700)
            .map_err(Error::store("change the mode of", &self.dir))
            .and_then(|()| disk::discard(&self.dir, &self.trash));
        if let Err(error) = moved {
            tracing::warn!(%error, "an unfinished layer stays in tmp until the next writer comes");
        }
    }
}

/// Keeps an unpacked layer on the disk.
#[derive(Debug)]
pub struct LayerLock {
    path: PathBuf,
    _dir: Directory,
}

impl LayerLock {
    /// The tree of the layer.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
