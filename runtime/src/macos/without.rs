//! What macOS has not, or does in fewer words.

use std::io;

use rustix::process::{Pid, setsid};

use crate::outcome::Tie;
use crate::plan::Plan;

/// Arguments of a process can be read by its user and by root alone here, and stay.
///
/// # Errors
/// None.
pub fn hide_in_arguments(_: &[String]) -> io::Result<()> {
    Ok(())
}

/// Cuts this process off from its caller: a session of its own, or a look whether that one is still there.
///
/// # Errors
/// The system's, and where the process that it is bound to has ended already. Nothing here ends it later.
pub fn apart(tie: Tie) -> io::Result<()> {
    match tie {
        Tie::Detached => {
            setsid()?;
            Ok(())
        }
        Tie::Bound(parent) => {
            let is = rustix::process::getppid().map(Pid::as_raw_nonzero);
            match is.is_some_and(|is| u32::try_from(is.get()) == Ok(parent)) {
                true => Ok(()),
                false => Err(io::Error::other("the process that started it has ended")),
            }
        }
    }
}

/// Programs that are named and not there fail where they are started.
pub fn useless_programs(_: &Plan) -> Vec<String> {
    Vec::new()
}

/// Why no calls of a server can be recorded.
pub(crate) const NO_CALLS: &str = "macOS tells root alone of a process's calls";

/// Why nothing confines a process that unpacks.
pub(crate) const NOT_KEPT_APART: &str = "no profile for unpacking is known";
