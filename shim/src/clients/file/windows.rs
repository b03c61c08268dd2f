//! What a file keeps whose bytes are replaced: its access list and attributes, which the system itself hands on where one file takes
//! the place of another.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

use distribution::system::names_of;

/// What it keeps.
#[derive(Clone, Debug)]
pub struct Kept {
    is_read_only: bool,
    /// How many names it has.
    pub names: u64,
}

impl Kept {
    /// That of a file.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn of(path: &Path, about: &Metadata) -> io::Result<Kept> {
        Ok(Kept { is_read_only: about.permissions().readonly(), names: names_of(&File::open(path)?)? })
    }

    /// Whether it may be written.
    pub fn can_be_written(&self, path: &Path) -> bool {
        !self.is_read_only && OpenOptions::new().write(true).open(path).is_ok()
    }

    /// A new file belongs to who makes it, until it takes the place of the other.
    ///
    /// # Errors
    /// None.
    pub fn give_owner(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    /// There are no modes.
    ///
    /// # Errors
    /// None.
    pub fn give_mode(&self, _: &File) -> io::Result<()> {
        Ok(())
    }
}

/// Whether files may be made and renamed in a directory: tried, since nothing else tells.
pub fn takes_files(directory: &Path) -> bool {
    tempfile::tempfile_in(directory).is_ok()
}
