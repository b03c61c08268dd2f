//! Windows: files by handles that stand for paths, in the words of the other platforms.
//!
//! What is reached from an open directory is looked at before it is followed, at the path that the directory has at that moment. There are no modes: a file is as private as the directory that it
//! lies in, which in a user's profile is closed to other users. Files and links count as executable by everybody, as they are here.

mod errno;
mod files;
mod locks;
mod names;
#[allow(unsafe_code)]
mod sys;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, PipeReader, PipeWriter};
use std::ops::Range;
use std::os::windows::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

pub use errno::Errno;
pub use files::{
    AsFd, AtFlags, BorrowedFd, Dir, FileType, Mode, OFlags, OwnedFd, PATH, Stat, Timespec, Timestamps, fchmod, fstat,
    futimens, linkat, mkdirat, open, openat, readlinkat, statat, symlinkat, unlinkat, utimensat,
};
pub use locks::{lock, lock_shared, try_lock, try_lock_shared};
pub use names::Arg;

pub use super::walk::{ResolveFlags, openat2};

/// A directory that is open.
pub type Directory = OwnedFd;

/// Opens a directory.
///
/// # Errors
/// The system's.
pub fn open_directory(path: &Path) -> io::Result<Directory> {
    OwnedFd::directory(path)
}

/// Whether a directory that is held is what lies at `path` now.
pub fn is_directory_at(directory: &Directory, path: &Path) -> bool {
    directory.identity().is_some() && directory.identity() == identity(path)
}

/// Moves a directory that is held alone. Whoever reads in it meanwhile is waited for.
///
/// # Errors
/// The system's.
pub fn rename_held(_: &Directory, from: &Path, to: &Path) -> io::Result<()> {
    const AGAIN: Duration = Duration::from_millis(20);
    const MOST: u32 = 1500;
    let mut tries = 0;
    loop {
        match fs::rename(from, to) {
            // ERROR_ACCESS_DENIED, ERROR_SHARING_VIOLATION: something in it is open.
            Err(why) if matches!(why.raw_os_error(), Some(5 | 32)) && tries < MOST => tries += 1,
            done => return done,
        }
        std::thread::sleep(AGAIN);
    }
}

/// How a directory is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nobody else holds it.
    Alone,
    /// Others may hold it the same way.
    Shared,
}

/// Opens a directory and waits until it is held. To be open is to be held here: directories have no locks.
///
/// # Errors
/// The system's.
pub fn hold_directory(path: &Path, hold: Hold) -> io::Result<Directory> {
    const AGAIN: Duration = Duration::from_millis(10);
    /// ERROR_SHARING_VIOLATION.
    const HELD: i32 = 32;
    loop {
        let held = match hold {
            Hold::Alone => OwnedFd::alone(path),
            Hold::Shared => OwnedFd::shared(path),
        };
        match held {
            Err(why) if why.raw_os_error() == Some(HELD) => std::thread::sleep(AGAIN),
            other => return other,
        }
    }
}

/// Opens a file or directory and holds it alone; none where somebody else holds it.
pub fn try_hold(path: &Path) -> Option<File> {
    if path.is_dir() {
        return OwnedFd::alone(path).ok().map(File::from);
    }
    let file = File::open(path).ok()?;
    try_lock(&file).ok()?;
    Some(file)
}

/// Names are in the file system's own log, which is on the disk before they are seen; there is nothing to be called.
///
/// # Errors
/// None.
pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Makes what a file holds durable.
///
/// # Errors
/// The system's.
pub fn sync_file(path: &Path) -> io::Result<()> {
    // Whoever only reads it may not ask for that.
    OpenOptions::new().write(true).open(path)?.sync_all()
}

/// Puts a file in the place of another, whose access list and attributes it gets.
///
/// # Errors
/// The system's.
pub fn replace(new: &Path, old: &Path) -> io::Result<()> {
    sys::replace(new, old)
}

/// How many names an open file has.
///
/// # Errors
/// The system's.
pub fn names_of(file: &File) -> io::Result<u64> {
    Ok(sys::about(file)?.st_nlink)
}

/// There are no modes.
///
/// # Errors
/// None.
pub fn set_directory_mode(_: &Directory, _: u32) -> io::Result<()> {
    Ok(())
}

/// Whether a file or directory belongs to the user of this process. Its owner is not looked at here.
pub fn is_own(_: &Metadata) -> bool {
    true
}

/// Whether users other than its owner can change a file or directory. Its access list is not looked at here.
pub fn others_can_write(_: &Metadata) -> bool {
    false
}

/// Whether users other than its owner can do anything with a file. Its access list is not looked at here.
pub fn is_open_to_others(_: &Metadata) -> bool {
    false
}

/// Whether `file` is what lies at `path` now.
pub fn is_at(file: &File, path: &Path) -> bool {
    let there = OpenOptions::new().access_mode(0).custom_flags(files::AS_IT_IS).open(path);
    let id = |file: &File| sys::about(file).ok().map(|about| (about.st_dev, about.st_ino));
    there.is_ok_and(|there| id(file).is_some() && id(file) == id(&there))
}

/// Opens what may be read-only to be changed or removed.
///
/// # Errors
/// The system's.
pub fn set_mode(path: &Path, _: u32) -> io::Result<()> {
    let mut permissions = fs::symlink_metadata(path)?.permissions();
    #[expect(clippy::permissions_set_readonly_false, reason = "Windows has no others here")]
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions)
}

/// Brings all of a tree to the disk, file by file: there is no call for a whole file system that a user may make.
///
/// # Errors
/// The system's.
pub fn sync_tree(directory: &Directory) -> io::Result<()> {
    sync_below(&directory.path()?)
}

fn sync_below(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_below(&entry.path())?;
        } else if kind.is_file() {
            OpenOptions::new().write(true).open(entry.path())?.sync_all()?;
        }
    }
    Ok(())
}

/// The same file opened anew, from its beginning, for another process to read.
///
/// # Errors
/// The system's.
pub fn reopen(file: &File) -> io::Result<File> {
    sys::reopen(file)
}

/// Makes a symlink, which takes a right that users have by default only where Windows is in developer mode.
///
/// # Errors
/// The system's.
pub fn symlink(target: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
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

/// What tells a file or directory from every other; a link is not followed.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    let opened = OpenOptions::new().access_mode(0).custom_flags(files::AS_IT_IS).open(path).ok()?;
    sys::about(&opened).ok().map(|about| (about.st_dev, about.st_ino))
}

/// A text that changes with a file: its size and times.
pub fn changes(about: &Metadata) -> String {
    use std::os::windows::fs::MetadataExt as _;
    format!("{} {} {}", about.len(), about.last_write_time(), about.creation_time())
}

/// Modes of new files mean nothing.
#[allow(missing_docs)]
pub trait OpenModeExt {
    fn mode(&mut self, mode: u32) -> &mut Self;
}

pub use OpenModeExt as OpenOptionsExt;

impl OpenModeExt for OpenOptions {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }
}

/// Modes of new directories mean nothing.
#[allow(missing_docs)]
pub trait DirBuilderExt {
    fn mode(&mut self, mode: u32) -> &mut Self;
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, _: u32) -> &mut Self {
        self
    }
}

/// What there is of a mode: everybody who can read a file can execute it.
#[allow(missing_docs)]
pub trait PermissionsExt {
    fn mode(&self) -> u32;
}

impl PermissionsExt for fs::Permissions {
    fn mode(&self) -> u32 {
        if self.readonly() { 0o555 } else { 0o755 }
    }
}

/// What there is of them.
#[allow(missing_docs)]
pub trait MetadataExt {
    fn mode(&self) -> u32;
    fn size(&self) -> u64;
    /// Nobody's: Windows' users have no numbers.
    fn uid(&self) -> u32;
}

impl MetadataExt for Metadata {
    fn mode(&self) -> u32 {
        self.permissions().mode()
    }

    fn size(&self) -> u64 {
        self.len()
    }

    fn uid(&self) -> u32 {
        u32::MAX
    }
}

/// Reading and writing at a place.
#[allow(missing_docs, clippy::missing_errors_doc)]
pub trait FileExt {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.seek_read(buffer, offset)
    }

    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.seek_read(buffer, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => {
                    buffer = &mut buffer[count..];
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }

    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.seek_write(bytes, offset)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => {
                    bytes = &bytes[count..];
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }
}

/// Text of the system as bytes, in the form that `std` gives it.
#[allow(missing_docs)]
pub trait OsStrExt {
    fn as_bytes(&self) -> &[u8];
    fn from_bytes(bytes: &[u8]) -> &Self;
}

impl OsStrExt for OsStr {
    fn as_bytes(&self) -> &[u8] {
        self.as_encoded_bytes()
    }

    /// Bytes that are no UTF-8 become the replacement character's name, which no file has.
    fn from_bytes(bytes: &[u8]) -> &OsStr {
        std::str::from_utf8(bytes).map_or_else(|_| OsStr::new("\u{fffd}"), OsStr::new)
    }
}

/// Opens a file by `options`, and no symlink in its place: the link itself, which cannot be read.
pub fn without_link(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(files::AS_IT_IS)
}

/// Whether an open file still has a name.
///
/// # Errors
/// The system's.
pub fn has_name(file: &File) -> io::Result<bool> {
    Ok(sys::about(file)?.st_nlink > 0)
}

/// Numbers of the user of this process and of its group, of which Windows has none: they own nothing.
pub fn user_and_group() -> (u32, u32) {
    (u32::MAX - 1, u32::MAX - 1)
}

/// Gives a file a name that nothing has.
///
/// # Errors
/// The system's; `EXIST` where something has it.
pub fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    // std's would replace it; and a link beside it would keep the old name for as long as anybody has the file open.
    sys::move_to_new(from, to)
}

/// What tells an open file from every other.
pub fn identity_of(file: &File) -> Option<(u64, u64)> {
    sys::about(file).ok().map(|about| (about.st_dev, about.st_ino))
}

/// What tells that to which a path leads from every other; links are followed.
pub fn identity_of_target(path: &Path) -> Option<(u64, u64)> {
    // FILE_FLAG_BACKUP_SEMANTICS, by which directories are opened.
    let opened = OpenOptions::new().access_mode(0).custom_flags(0x0200_0000).open(path).ok()?;
    identity_of(&opened)
}

/// A mode of its bits.
pub fn mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode)
}
