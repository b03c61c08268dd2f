//! The first process of a cage, a child of the supervisor: PID 1 of its namespace, or the keeper where there is none.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::guard;
use super::sys::{self, Children, Waited};
use super::wire::Refusal;

/// What its end does to all the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel kills them with PID 1.
    Init,
    /// It kills them itself when its lifeline ends.
    Keeper,
}

/// That process. Dropping it ends the cage.
#[derive(Debug)]
pub struct First {
    /// Its id.
    pub pid: Pid,
    /// Readable when it has ended.
    pub pidfd: OwnedFd,
    kind: Kind,
    /// The only writer of the pipe that it watches: its end is the end of the cage.
    lifeline: Option<OwnedFd>,
    /// Set once it was waited for.
    ended: Option<sys::Ended>,
}

impl First {
    /// Holds a child.
    ///
    /// # Errors
    /// Where there is no such process.
    pub fn of(pid: i32, lifeline: OwnedFd, kind: Kind) -> Result<First, Refusal> {
        let fail = |why: io::Error| Refusal::new("holding the container's init", why);
        let pid = Pid::from_raw(pid).ok_or_else(|| fail(Errno::SRCH.into()))?;
        // The id cannot have gone to another process: it is our child and nobody else waits for it.
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|why| fail(why.into()))?;
        Ok(First { pid, pidfd, kind, lifeline: Some(lifeline), ended: None })
    }

    /// Gives the word by which the server starts.
    ///
    /// # Errors
    /// Where the waiting process is gone.
    pub fn tell_to_start(&mut self) -> Result<(), Refusal> {
        self.reap_others();
        let fail = |why| Refusal::new("starting the server", why);
        let lifeline = self.lifeline.as_ref().ok_or_else(|| fail(Errno::PIPE))?;
        rustix::io::write(lifeline, b"s").map(drop).map_err(fail)
    }

    /// Sends it a signal, which it passes on to the server.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Has every process of the cage killed.
    pub fn kill(&mut self) {
        match self.kind {
            Kind::Init => self.signal(Signal::KILL),
            Kind::Keeper => self.lifeline = None,
        }
    }

    /// Waits for its end, and gives what the tree used, `None` where that is not known.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reap(&mut self) -> io::Result<Option<sys::Ended>> {
        if self.ended.is_none()
            && let Waited::Ended(ended) = sys::wait(Children::One(self.pid), true)?
        {
            self.ended = Some(ended);
        }
        match self.kind {
            Kind::Init => self.reap_others(),
            Kind::Keeper => end_descendants(),
        }
        Ok(self.ended)
    }

    /// libcontainer's intermediate process is a child of ours too. Not waited for, it counts against RLIMIT_NPROC of the cage
    /// and stands in nobody's tree.
    pub fn reap_others(&mut self) {
        while let Ok(Waited::Ended(ended)) = sys::wait(Children::Any, false) {
            if ended.pid == self.pid {
                self.ended = Some(ended);
            }
        }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
            let _ = self.reap();
        }
    }
}

/// Kills every descendant of this process until there is none: each becomes its child once its parents are gone, since it
/// adopts orphans. The keeper does so at its end, and the supervisor after that of a keeper, which may have been killed.
pub fn end_descendants() {
    end_descendants_but(&[]);
}

/// The same for all but `spared`, children that this process had before it was this program, and what is below these.
pub fn end_descendants_but(spared: &[Pid]) {
    const PATIENCE: Duration = Duration::from_secs(5);
    let own = rustix::process::getpid();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match sys::wait(Children::Any, false) {
            Ok(Waited::Ended(_)) => {}
            Ok(Waited::Running) => {
                let descendants = guard::descendants(own, spared);
                if descendants.is_empty() && !spared.is_empty() {
                    return;
                }
                for pid in descendants {
                    sys::kill(pid, libc::SIGKILL);
                }
                std::thread::sleep(Duration::from_micros(500));
            }
            Ok(Waited::Childless) | Err(_) => return,
        }
    }
}
