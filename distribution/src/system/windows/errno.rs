//! Errors by the names that they have elsewhere; one number of Windows for each.

use std::{fmt, io};

/// An error of the system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

#[allow(missing_docs)]
impl Errno {
    /// ERROR_FILE_NOT_FOUND.
    pub const NOENT: Errno = Errno(2);
    /// ERROR_ACCESS_DENIED.
    pub const ACCESS: Errno = Errno(5);
    /// ERROR_NOT_SUPPORTED.
    pub const NOSYS: Errno = Errno(50);
    /// ERROR_BROKEN_PIPE.
    pub const PIPE: Errno = Errno(109);
    /// ERROR_INVALID_NAME.
    pub const INVAL: Errno = Errno(123);
    /// ERROR_DIR_NOT_EMPTY.
    pub const NOTEMPTY: Errno = Errno(145);
    /// ERROR_ALREADY_EXISTS.
    pub const EXIST: Errno = Errno(183);
    /// ERROR_DIRECTORY.
    pub const NOTDIR: Errno = Errno(267);
    /// ERROR_DIRECTORY_NOT_SUPPORTED.
    pub const ISDIR: Errno = Errno(336);
    /// ERROR_STOPPED_ON_SYMLINK.
    pub const LOOP: Errno = Errno(681);
    /// ERROR_IO_PENDING: nothing is there yet.
    pub const AGAIN: Errno = Errno(997);
    /// ERROR_TOO_MANY_LINKS.
    pub const MLINK: Errno = Errno(1142);
    /// ERROR_RETRY: no call here is interrupted.
    pub const INTR: Errno = Errno(1237);
    /// ERROR_TIMEOUT.
    pub const TIMEDOUT: Errno = Errno(1460);

    /// One of several numbers that mean the same.
    pub fn from_raw_os_error(number: i32) -> Errno {
        match number {
            // ERROR_PATH_NOT_FOUND, ERROR_BAD_PATHNAME.
            3 | 161 => Errno::NOENT,
            // ERROR_FILE_EXISTS.
            80 => Errno::EXIST,
            // ERROR_INVALID_PARAMETER.
            87 => Errno::INVAL,
            // ERROR_NO_DATA: the pipe is being closed.
            232 => Errno::PIPE,
            other => Errno(other),
        }
    }

    /// Windows' number.
    pub fn raw_os_error(self) -> i32 {
        self.0
    }

    /// The error in an error of `std`'s.
    pub fn from_io_error(error: &io::Error) -> Option<Errno> {
        error.raw_os_error().map(Errno::from_raw_os_error)
    }

    /// The same as one of `std`'s.
    pub fn kind(self) -> io::ErrorKind {
        io::Error::from(self).kind()
    }

    pub(super) fn of(error: &io::Error) -> Errno {
        Errno::from_io_error(error).unwrap_or(match error.kind() {
            io::ErrorKind::NotFound => Errno::NOENT,
            io::ErrorKind::AlreadyExists => Errno::EXIST,
            io::ErrorKind::PermissionDenied => Errno::ACCESS,
            _ => Errno::INVAL,
        })
    }
}

impl From<Errno> for io::Error {
    fn from(error: Errno) -> io::Error {
        io::Error::from_raw_os_error(error.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&io::Error::from(*self), f)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&io::Error::from(*self), f)
    }
}

impl std::error::Error for Errno {}
