//! Linux: its own calls.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter};
use std::ops::Range;

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, splice};

pub use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, fchmod, fstat, futimens, linkat,
    mkdirat, open, openat, openat2, readlinkat, statat, symlinkat, unlinkat, utimensat,
};
pub use rustix::io::Errno;
pub use rustix::path::Arg;

pub use super::unix::*;

/// A directory by which others are reached, and which itself is not read.
pub const PATH: OFlags = OFlags::PATH;

/// Brings all of a tree to the disk: one call for the file system, since a call for each file takes many times as long.
///
/// # Errors
/// The system's.
pub fn sync_tree(directory: &Directory) -> io::Result<()> {
    Ok(rustix::fs::syncfs(directory)?)
}

/// The same file opened anew, from its beginning, for another process to read.
///
/// # Errors
/// The system's.
pub fn reopen(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A pipe that holds what a fetch reads at once a few times over, or less where the user has many.
///
/// # Errors
/// The system's.
pub fn large_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    const SIZE: usize = 1 << 20;
    let (reader, writer) = io::pipe()?;
    let _ = fcntl_setpipe_size(&writer, SIZE);
    Ok((reader, writer))
}

/// Gives a part of a file to who reads a pipe, without a copy: the pages of the file's cache.
///
/// # Errors
/// The system's.
pub fn pass_on(file: &File, place: Range<u64>, to: &PipeWriter) -> io::Result<()> {
    let mut at = place.start;
    while at < place.end {
        let length = usize::try_from(place.end - at).unwrap_or(usize::MAX);
        match splice(file, Some(&mut at), to, None, length, SpliceFlags::empty()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            // A file system that cannot do that.
            Err(Errno::INVAL | Errno::NOSYS) => return super::copy_on(file, at..place.end, to),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A mode of its bits.
pub fn mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode)
}
