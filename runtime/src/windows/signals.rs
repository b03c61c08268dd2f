//! The words of a console that end a run.

use std::io;

use super::sys;

/// Ctrl+C, Ctrl+Break and the end of the console, to be read in place of being ended by them.
#[derive(Debug)]
pub struct Signals(());

impl Signals {
    /// From here on they wait to be read.
    ///
    /// # Errors
    /// The system's.
    pub fn take() -> io::Result<Signals> {
        sys::take_console().map(Signals)
    }

    /// The next one's number, if one waits.
    pub fn next(&self) -> Option<i32> {
        sys::told()
    }
}
