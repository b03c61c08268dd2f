//! What the command needs of the system, by the same names on each platform.

use std::io;
use std::os::windows::io::OwnedHandle;
use std::os::windows::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};

use super::sys::{self, Job};
use crate::report::Tier;

pub use distribution::system::Errno;

pub use super::streams::{
    AsFd, BorrowedFd, OwnedFd, PollFd, PollFlags, Timespec, is_pipe, is_terminal, pipe, poll, read, stderr, stdin,
    stdout, write,
};
pub use super::sys::{home_of_account, host_name, parent, program_files, program_of, user};

/// What is waited for where the end of a client is of interest and nothing else. It is seen where something is read or written.
pub const HANGUP: PollFlags = PollFlags::empty();

/// A signal, by the number that it has elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(i32);

impl Signal {
    /// To be killed at once.
    pub const KILL: Signal = Signal(9);
    /// To be asked to end.
    pub const TERM: Signal = Signal(super::SIGTERM);
    /// Nothing here ends a process because of a file's size.
    pub const XFSZ: Signal = Signal(25);

    /// Its number.
    pub fn as_raw(self) -> i32 {
        self.0
    }
}

/// The least tier that anything runs at here, whatever policy says.
pub const LEAST: Tier = Tier::Zero;

/// Whether a server can have the client's own streams, or why not.
pub const DIRECT: Result<(), &str> = Err("nothing here tells smcp of the end of a client whose pipes the server has");

/// The program that runs, by its path: where that was replaced, it is the new one.
pub fn own_program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "smcp".into())
}

/// A command that starts this program again, without a window of its own and without the client's handles, which would keep its pipes
/// open.
pub fn own_command() -> Command {
    /// CREATE_NO_WINDOW.
    const WITHOUT_WINDOW: u32 = 0x0800_0000;
    sys::keep_own_streams();
    let mut command = Command::new(own_program());
    command.creation_flags(WITHOUT_WINDOW);
    command
}

/// What binds a process to this one: a job object, which ends with its last handle.
#[derive(Debug)]
pub struct Bond(#[allow(dead_code, reason = "it is held")] Job);

/// Binds a process to this one, however that ends.
///
/// # Errors
/// The system's.
pub fn bind(child: &Child) -> io::Result<Bond> {
    use std::os::windows::io::AsHandle as _;
    let job = Job::new()?;
    let process: OwnedHandle = child.as_handle().try_clone_to_owned()?;
    job.take(&process)?;
    Ok(Bond(job))
}

/// Lets a process go on alone, which nothing here binds.
///
/// # Errors
/// None.
pub fn let_go(child: Child) -> io::Result<()> {
    drop(child);
    Ok(())
}

/// Who started this process has bound it by then.
///
/// # Errors
/// None.
pub fn end_with_parent(_: Signal) -> Result<(), Errno> {
    Ok(())
}

/// What crashes ends without a window that waits for a person, and so does what it starts. Where an administrator has Windows keep dumps of
/// programs that crash, it keeps them.
pub fn leave_no_core() {
    sys::without_windows_of_errors();
}
