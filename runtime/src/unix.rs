//! What the command needs of the system and Linux and macOS have alike.

use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use rustix::event::{PollFd, PollFlags, Timespec, poll};
pub use rustix::io::{Errno, read};
pub use rustix::process::Signal;
pub use rustix::stdio::{stderr, stdin, stdout};
pub use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::system::own_program;

/// A command that starts this program again.
pub fn own_command() -> Command {
    let mut command = Command::new(own_program());
    command.arg0("smcp");
    command
}

/// What binds a process to this one.
#[derive(Debug)]
pub struct Bond(());

/// Binds a process to this one where it does not do so itself, as `smcp fetch` and `smcp session` do here.
///
/// # Errors
/// None.
pub fn bind(_: &Child) -> io::Result<Bond> {
    Ok(Bond(()))
}

/// Whether a descriptor is a terminal.
pub fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    fd.is_terminal()
}

/// The number of the user of this process.
pub fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The process that started this one, where it is still there.
pub fn parent() -> Option<u32> {
    rustix::process::getppid().and_then(|id| u32::try_from(id.as_raw_nonzero().get()).ok())
}

/// The program of a process; none where nobody says.
pub fn program_of(id: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{id}/exe")).ok()
}

/// The name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A core would hold what smcp knows of secrets. 1 keeps the kernel also from starting a program that takes cores, which 0
/// does not, core(5); who lets smcp start other programs may raise it again.
pub fn leave_no_core() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let current = Some(maximum.map_or(1, |most| most.min(1)));
    // Lowering what one may have is never refused.
    let _ = setrlimit(Resource::Core, Rlimit { current, maximum });
}
