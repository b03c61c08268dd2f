//! The signals that end a run, as a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::sys::{self, Queue};

/// SIGTERM, SIGINT, SIGHUP and SIGQUIT of this process, to be read in place of being killed by them.
#[derive(Debug)]
pub struct Signals(Queue);

impl Signals {
    /// From here on these signals wait to be read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take() -> io::Result<Signals> {
        let queue = Queue::new()?;
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            // A queue is told of a signal also where that is ignored.
            sys::ignore(signal);
            queue.add_signal(signal)?;
        }
        Ok(Signals(queue))
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
