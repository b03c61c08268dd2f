//! What Windows has not.

use std::io;

use crate::outcome::Tie;
use crate::plan::Plan;

/// Arguments of a process can be read by its user alone here, and stay.
///
/// # Errors
/// None.
pub fn hide_in_arguments(_: &[String]) -> io::Result<()> {
    Ok(())
}

/// A process that was started anew has no handle of its caller's here, and outlives it. One that is to end with that was bound by it.
///
/// # Errors
/// None.
pub fn apart(_: Tie) -> io::Result<()> {
    Ok(())
}

/// Named programs are not told apart here, so that none is useless.
pub fn useless_programs(_: &Plan) -> Vec<String> {
    Vec::new()
}

/// Why no calls of a server can be recorded.
pub(crate) const NO_CALLS: &str = "Windows tells nobody of a process's calls";

/// Why nothing confines a process that unpacks.
pub(crate) const NOT_KEPT_APART: &str = "Windows keeps no process in a directory";
