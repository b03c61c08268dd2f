//! Locks that do not keep readers away: Windows' locks hide the bytes that they are on, so they are on a byte that no file has.

use std::fs::{File, TryLockError};
use std::io;

use super::sys::{self, Lock};

/// Waits for the lock of a file, alone.
///
/// # Errors
/// The system's.
pub fn lock(file: &File) -> io::Result<()> {
    sys::lock(file, Lock { alone: true, waits: true })
}

/// Waits for the lock of a file, shared.
///
/// # Errors
/// The system's.
pub fn lock_shared(file: &File) -> io::Result<()> {
    sys::lock(file, Lock { alone: false, waits: true })
}

/// Takes the lock of a file, alone.
///
/// # Errors
/// The system's, or that somebody has it.
pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    sys::lock(file, Lock { alone: true, waits: false }).map_err(held)
}

/// Takes the lock of a file, shared.
///
/// # Errors
/// The system's, or that somebody has it alone.
pub fn try_lock_shared(file: &File) -> Result<(), TryLockError> {
    sys::lock(file, Lock { alone: false, waits: false }).map_err(held)
}

fn held(error: io::Error) -> TryLockError {
    // ERROR_LOCK_VIOLATION, ERROR_IO_PENDING.
    match error.raw_os_error() {
        Some(33 | 997) => TryLockError::WouldBlock,
        _ => TryLockError::Error(error),
    }
}
