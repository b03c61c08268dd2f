//! What Windows has not.

use std::io;

use crate::outcome::Tie;
use crate::plan::Plan;
use crate::report::Status;

/// Arguments of a process can be read by its user alone here, and stay.
///
/// # Errors
/// None.
pub fn hide_in_arguments(_: &[String]) -> io::Result<()> {
    Ok(())
}

/// A process that was started anew has no handle of its caller's here, and outlives it.
///
/// # Errors
/// For a process that is to end with another: nothing here binds the two.
pub fn apart(tie: Tie) -> io::Result<()> {
    match tie {
        Tie::Detached => Ok(()),
        Tie::Bound(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "Windows binds no process to the life of another"))
        }
    }
}

/// Named programs are not told apart here, so that none is useless.
pub fn useless_programs(_: &Plan) -> Vec<String> {
    Vec::new()
}

/// What confines a process that unpacks: nothing.
#[derive(Debug)]
pub struct Unpacking(());

impl Unpacking {
    /// Whether one could be kept in its directory.
    ///
    /// # Errors
    /// Always.
    pub fn can_keep_files_apart() -> Result<(), String> {
        Err("Windows keeps no process in a directory".into())
    }

    /// Whether its files are kept apart.
    pub fn files(&self) -> Status {
        Status::Absent("unsupported: Windows keeps no process in a directory".into())
    }
}
