//! What the command needs of the system, by the same names on each platform.

use std::path::PathBuf;
use std::process::Child;

use rustix::net::SendFlags;

use crate::report::Tier;
pub use crate::unix::*;

/// What poll(2) is asked for where the end of a client is of interest and nothing else: it tells of that unasked.
pub const HANGUP: PollFlags = PollFlags::empty();

/// A pipe that poll(2) calls writable takes this much without blocking: limits.h.
pub const PIPE_BUF: usize = 512;

/// The least tier that anything runs at here, whatever policy says.
pub const LEAST: Tier = Tier::One;

/// Whether a server can have the client's own streams, or why not.
pub const DIRECT: Result<(), &str> = Ok(());

/// The program that runs, by its path: where that was replaced, it is the new one.
pub fn own_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "smcp".into())
}

/// A pipe whose ends no other program inherits: to be read from, to be written to.
///
/// # Errors
/// The kernel's.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let made = std::io::pipe().map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::IO))?;
    Ok((made.0.into(), made.1.into()))
}

/// macOS writes into a pipe without waiting only where that is a flag of the pipe, which is the client's.
///
/// # Errors
/// Always `NOSYS`, upon which a pipe gets what poll(2) has room for.
pub fn write_now(_: BorrowedFd<'_>, _: &[u8]) -> Result<usize, Errno> {
    Err(Errno::NOSYS)
}

/// Sends as much as fits into a socket.
///
/// # Errors
/// The kernel's; `AGAIN` where nothing fits.
pub fn send_now(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    // Rust's programs ignore SIGPIPE.
    rustix::net::send(fd, bytes, SendFlags::DONTWAIT)
}

/// macOS has no signal for that: who has to know looks whether its parent is still there.
///
/// # Errors
/// None.
pub fn end_with_parent(_: Signal) -> Result<(), Errno> {
    Ok(())
}

/// Lets a process go on alone that leaves no other one behind: it has a session of its own and outlives this one.
///
/// # Errors
/// None.
pub fn let_go(child: Child) -> std::io::Result<()> {
    drop(child);
    Ok(())
}
