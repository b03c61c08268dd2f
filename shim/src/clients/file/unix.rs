//! What a file keeps whose bytes are replaced: its owner and mode.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Access, Gid, Uid, access, fchown};

/// What it keeps.
#[derive(Clone, Debug)]
pub struct Kept {
    mode: u32,
    owner: (u32, u32),
    /// How many names it has.
    pub names: u64,
}

impl Kept {
    /// That of a file.
    ///
    /// # Errors
    /// None here.
    pub fn of(_: &Path, about: &Metadata) -> io::Result<Kept> {
        Ok(Kept { mode: about.mode() & 0o7777, owner: (about.uid(), about.gid()), names: about.nlink() })
    }

    /// Whether it may be written. Root may write everything: that a file is read-only is its owner's word all the same.
    pub fn can_be_written(&self, path: &Path) -> bool {
        self.mode & 0o222 != 0 && access(path, Access::WRITE_OK).is_ok()
    }

    /// Gives it to a new file, before anything is in it.
    ///
    /// # Errors
    /// The system's.
    pub fn give_owner(&self, file: &File) -> io::Result<()> {
        let about = file.metadata()?;
        if (about.uid(), about.gid()) == self.owner {
            return Ok(());
        }
        let (user, group) = self.owner;
        Ok(fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?)
    }

    /// The same, once all is in it.
    ///
    /// # Errors
    /// The system's.
    pub fn give_mode(&self, file: &File) -> io::Result<()> {
        file.set_permissions(Permissions::from_mode(self.mode))
    }
}

/// Whether files may be made and renamed in a directory.
pub fn takes_files(directory: &Path) -> bool {
    access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}
