//! What the command needs of the system, by the same names on each platform.

use std::io::IoSlice;
use std::path::PathBuf;
use std::process::Child;

use rustix::io::ReadWriteFlags;
use rustix::net::SendFlags;
use rustix::pipe::PipeFlags;

use crate::report::Tier;
pub use crate::unix::*;

/// What poll(2) is asked for where the end of a client is of interest and nothing else.
pub const HANGUP: PollFlags = PollFlags::RDHUP;

/// A pipe that poll(2) calls writable takes this much without blocking, pipe(7).
pub const PIPE_BUF: usize = 4096;

/// The least tier that anything runs at here, whatever policy says.
pub const LEAST: Tier = Tier::One;

/// Whether a server can have the client's own streams, or why not.
pub const DIRECT: Result<(), &str> = Ok(());

/// The program that runs, also where its file was replaced.
pub fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// A pipe whose ends no other program inherits: to be read from, to be written to.
///
/// # Errors
/// The kernel's.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
}

/// Writes as much as fits into a pipe.
///
/// # Errors
/// The kernel's; `AGAIN` where nothing fits, another where the file or the kernel cannot do that.
pub fn write_now(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    // An offset of -1 is the file's own, preadv2(2).
    rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT)
}

/// Sends as much as fits into a socket.
///
/// # Errors
/// The kernel's; `AGAIN` where nothing fits.
pub fn send_now(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

/// Has this process get a signal when the one that started it ends.
///
/// # Errors
/// The kernel's.
pub fn end_with_parent(signal: Signal) -> Result<(), Errno> {
    rustix::process::set_parent_process_death_signal(Some(signal))
}

/// Lets a process go on alone that has left another one behind, which is nobody's child.
///
/// # Errors
/// The kernel's.
pub fn let_go(mut child: Child) -> std::io::Result<()> {
    child.wait().map(drop)
}
