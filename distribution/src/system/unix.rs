//! What Linux and macOS have alike.

use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::path::Path;

pub use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
pub use std::os::unix::ffi::OsStrExt;
pub use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

/// A directory that is open, also to be locked.
pub type Directory = File;

/// Opens a directory.
///
/// # Errors
/// The system's.
pub fn open_directory(path: &Path) -> io::Result<Directory> {
    File::open(path)
}

/// Whether a file or directory belongs to the user of this process.
pub fn is_own(about: &Metadata) -> bool {
    about.uid() == rustix::process::geteuid().as_raw()
}

/// Whether users other than its owner can change a file or directory.
pub fn others_can_write(about: &Metadata) -> bool {
    about.mode() & 0o022 != 0
}

/// Whether users other than its owner can do anything with a file.
pub fn is_open_to_others(about: &Metadata) -> bool {
    about.mode() & 0o077 != 0
}

/// Whether `file` is what lies at `path` now.
pub fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(held), Ok(there)) => identity(held) == identity(there),
        _ => false,
    }
}

/// Sets the mode of what lies at a path.
///
/// # Errors
/// The system's.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// How a directory is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nobody else holds it.
    Alone,
    /// Others may hold it the same way.
    Shared,
}

/// Opens a directory and waits until it is held.
///
/// # Errors
/// The system's.
pub fn hold_directory(path: &Path, hold: Hold) -> io::Result<Directory> {
    let directory = File::open(path)?;
    match hold {
        Hold::Alone => directory.lock()?,
        Hold::Shared => directory.lock_shared()?,
    }
    Ok(directory)
}

/// Opens a file or directory and holds it alone; none where somebody else holds it.
pub fn try_hold(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

/// Waits for the lock of a file, alone.
///
/// # Errors
/// The system's.
pub fn lock(file: &File) -> io::Result<()> {
    file.lock()
}

/// Waits for the lock of a file, shared.
///
/// # Errors
/// The system's.
pub fn lock_shared(file: &File) -> io::Result<()> {
    file.lock_shared()
}

/// Takes the lock of a file, alone.
///
/// # Errors
/// The system's, or that somebody has it.
pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    file.try_lock()
}

/// Takes the lock of a file, shared.
///
/// # Errors
/// The system's, or that somebody has it alone.
pub fn try_lock_shared(file: &File) -> Result<(), TryLockError> {
    file.try_lock_shared()
}

/// Makes the names in a directory durable.
///
/// # Errors
/// The system's.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes what a file holds durable.
///
/// # Errors
/// The system's.
pub fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Puts a file in the place of another.
///
/// # Errors
/// The system's.
pub fn replace(new: &Path, old: &Path) -> io::Result<()> {
    fs::rename(new, old)
}

/// Sets the mode of an open directory.
///
/// # Errors
/// The system's.
pub fn set_directory_mode(directory: &Directory, mode: u32) -> io::Result<()> {
    directory.set_permissions(fs::Permissions::from_mode(mode))
}

/// Whether a directory that is held is what lies at `path` now.
pub fn is_directory_at(directory: &Directory, path: &Path) -> bool {
    is_at(directory, path)
}

/// Moves a directory that is held.
///
/// # Errors
/// The system's.
pub fn rename_held(_: &Directory, from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// What tells a file or directory from every other; a link is not followed.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    #[allow(clippy::unnecessary_cast, reason = "macOS has a smaller type")]
    path.symlink_metadata().ok().map(|about| (about.dev() as u64, about.ino()))
}

/// A text that changes with a file: its mode, size, time and number.
pub fn changes(about: &Metadata) -> String {
    format!("{:o} {} {:?} {}", about.mode(), about.len(), (about.ctime(), about.ctime_nsec()), about.ino())
}

/// Opens a file by `options`, and no symlink in its place.
pub fn without_link(options: &mut fs::OpenOptions) -> &mut fs::OpenOptions {
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
}

/// Whether an open file still has a name.
///
/// # Errors
/// The system's.
pub fn has_name(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() > 0)
}

/// Numbers of the user of this process and of its group.
pub fn user_and_group() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Gives a file a name that nothing has.
///
/// # Errors
/// The system's; `EXIST` where something has it.
pub fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let here = rustix::fs::CWD;
    Ok(rustix::fs::renameat_with(here, from, here, to, rustix::fs::RenameFlags::NOREPLACE)?)
}

/// What tells an open file from every other.
pub fn identity_of(file: &File) -> Option<(u64, u64)> {
    #[allow(clippy::unnecessary_cast, reason = "macOS has a smaller type")]
    file.metadata().ok().map(|about| (about.dev() as u64, about.ino()))
}

/// What tells that to which a path leads from every other; links are followed.
pub fn identity_of_target(path: &Path) -> Option<(u64, u64)> {
    #[allow(clippy::unnecessary_cast, reason = "macOS has a smaller type")]
    fs::metadata(path).ok().map(|about| (about.dev() as u64, about.ino()))
}
