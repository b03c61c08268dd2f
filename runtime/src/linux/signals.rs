//! The signals that end a run, as a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::sys::{SignalDescriptor, SignalSet};

/// SIGTERM, SIGINT, SIGHUP and SIGQUIT of this process, to be read in place of being killed by them.
#[derive(Debug)]
pub struct Signals(SignalDescriptor);

impl Signals {
    /// From here on these signals wait to be read.
    ///
    /// # Errors
    /// The kernel's: `EMFILE`.
    pub fn take() -> io::Result<Signals> {
        let set = SignalSet::of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT]);
        set.block();
        Ok(Signals(set.descriptor()?))
    }

    /// The next one's number, if one waits.
    pub fn next(&self) -> Option<i32> {
        self.0.next()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
