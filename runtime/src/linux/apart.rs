//! A process of smcp's that was started anew and works apart from the one that started it.

use std::io;

use rustix::process::{Pid, Signal};

use super::sys::{self, Fork, SignalSet};

pub use crate::outcome::Tie;

/// Cuts this process off from its caller, but for standard input, output and error: every other descriptor is closed, and the
/// signals that its caller has read in its own way end it again. To be called first, in a process with one thread.
///
/// # Errors
/// The kernel's, and where the process that it is bound to has ended already.
pub fn apart(tie: Tie) -> io::Result<()> {
    if tie == Tie::Detached {
        rustix::process::setsid()?;
    }
    sys::close_all_but(&[])?;
    SignalSet::of(&[]).block_only();
    match tie {
        Tie::Bound(parent) => {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            let is = rustix::process::getppid().map(Pid::as_raw_nonzero);
            match is.is_some_and(|is| u32::try_from(is.get()) == Ok(parent)) {
                true => Ok(()),
                false => Err(io::Error::other("the process that started it has ended")),
            }
        }
        Tie::Detached => match sys::fork()? {
            Fork::Child => Ok(()),
            Fork::Parent(_) => sys::exit_now(0),
        },
    }
}
