//! macOS: it has no openat2, no file system to bring to the disk by itself, and no `/proc`.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::ops::Range;

pub use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, fstat, futimens, linkat, mkdirat, open,
    openat, readlinkat, statat, symlinkat, unlinkat, utimensat,
};
pub use rustix::io::Errno;
pub use rustix::path::Arg;

pub use super::unix::*;
pub use super::walk::{ResolveFlags, openat2};

/// A directory by which others are reached; macOS has no handle that is less than readable.
pub const PATH: OFlags = OFlags::empty();

/// Has the system bring everything to the disk; the drive's own cache is its own affair, as with `fsync` here.
///
/// # Errors
/// None: the call has none.
pub fn sync_tree(_: &Directory) -> io::Result<()> {
    rustix::fs::sync();
    Ok(())
}

/// The same file opened anew, from its beginning, for another process to read. `/dev/fd` gives a duplicate, which shares its
/// place: so the file is found by its name and compared.
///
/// # Errors
/// The system's, and where another file has its name.
pub fn reopen(file: &File) -> io::Result<File> {
    let path = rustix::fs::getpath(file)?;
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
    let opened = File::open(path)?;
    match is_at(file, path) {
        true => Ok(opened),
        false => Err(io::Error::other("another file has its name")),
    }
}

/// A pipe, as large as the system makes it.
///
/// # Errors
/// The system's.
pub fn large_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    io::pipe()
}

/// Gives a part of a file to who reads a pipe.
///
/// # Errors
/// The system's.
pub fn pass_on(file: &File, place: Range<u64>, to: &PipeWriter) -> io::Result<()> {
    super::copy_on(file, place, to)
}

/// A mode of its bits.
pub fn mode(mode: u32) -> Mode {
    Mode::from_raw_mode((mode & 0o7777) as rustix::fs::RawMode)
}
