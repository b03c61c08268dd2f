//! The calls of Windows that `std` has not.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::windows::ffi::{OsStrExt as _, OsStringExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::{Path, PathBuf};
use std::ptr::null;

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_READONLY, FILE_ATTRIBUTE_REPARSE_POINT,
    FILE_GENERIC_READ, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, GetFileInformationByHandle,
    GetFinalPathNameByHandleW, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx, MoveFileExW, ReOpenFile,
    ReplaceFileW,
};
use windows_sys::Win32::System::IO::OVERLAPPED;

use super::Stat;

/// How a lock is taken.
#[derive(Clone, Copy)]
pub(super) struct Lock {
    /// Nobody else may have it.
    pub(super) alone: bool,
    /// Whoever has it is waited for.
    pub(super) waits: bool,
}

/// Takes the lock of a file: that of its last possible byte, which nothing ever reads.
pub(super) fn lock(file: &File, how: Lock) -> io::Result<()> {
    let mut flags = 0;
    if how.alone {
        flags |= LOCKFILE_EXCLUSIVE_LOCK;
    }
    if !how.waits {
        flags |= LOCKFILE_FAIL_IMMEDIATELY;
    }
    let mut place = OVERLAPPED::default();
    place.Anonymous.Anonymous.Offset = u32::MAX - 1;
    place.Anonymous.Anonymous.OffsetHigh = u32::MAX >> 1;
    // SAFETY: the handle is open for as long as `file` is borrowed, and not overlapped, so that the call has ended with `place` when it
    // returns.
    let done = unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What there is to know of an open file or directory.
pub(super) fn about(file: &File) -> io::Result<Stat> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open, and `found` is writable and of the type that the call fills.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let is = |attribute| found.dwFileAttributes & attribute != 0;
    let permissions = if is(FILE_ATTRIBUTE_READONLY) { 0o555 } else { 0o755 };
    let kind = match (is(FILE_ATTRIBUTE_REPARSE_POINT), is(FILE_ATTRIBUTE_DIRECTORY)) {
        (true, _) => 0o120_000,
        (false, true) => 0o040_000,
        (false, false) => 0o100_000,
    };
    let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    Ok(Stat {
        st_mode: kind | permissions,
        st_size: wide(found.nFileSizeHigh, found.nFileSizeLow),
        st_dev: found.dwVolumeSerialNumber.into(),
        st_ino: wide(found.nFileIndexHigh, found.nFileIndexLow),
        st_nlink: found.nNumberOfLinks.into(),
    })
}

/// Opens the file of a handle a second time.
pub(super) fn reopen(file: &File) -> io::Result<File> {
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: the handle is open.
    let handle = unsafe { ReOpenFile(file.as_raw_handle(), FILE_GENERIC_READ, share, 0) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has made this handle, and nobody else knows it.
    Ok(unsafe { File::from_raw_handle(handle) })
}

/// Puts a file in the place of another, with that one's access list and attributes.
pub(super) fn replace(new: &Path, old: &Path) -> io::Result<()> {
    let [new, old] = [new, old].map(wide);
    // SAFETY: both paths end with NUL, everything else may be null.
    let done = unsafe { ReplaceFileW(old.as_ptr(), new.as_ptr(), null(), 0, null(), null()) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives a file a name that nothing has.
pub(super) fn move_to_new(from: &Path, to: &Path) -> io::Result<()> {
    let [from, to] = [from, to].map(wide);
    // SAFETY: both paths end with NUL.
    let done = unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), 0) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A path as the calls take it, with NUL at its end.
fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

/// Where an open file or directory is, as a path that is taken literally.
pub(super) fn path(file: &File) -> io::Result<PathBuf> {
    let mut buffer = vec![0_u16; 512];
    loop {
        let room = u32::try_from(buffer.len()).map_err(io::Error::other)?;
        // SAFETY: the handle is open, and `buffer` has the room that is stated.
        let length = unsafe { GetFinalPathNameByHandleW(file.as_raw_handle(), buffer.as_mut_ptr(), room, 0) };
        match usize::try_from(length).map_err(io::Error::other)? {
            0 => return Err(io::Error::last_os_error()),
            length if length < buffer.len() => return Ok(OsString::from_wide(&buffer[..length]).into()),
            more => buffer.resize(more + 1, 0),
        }
    }
}
