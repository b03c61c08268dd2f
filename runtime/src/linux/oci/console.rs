//! A container in the foreground: its terminal in the place of the caller's, signals passed on, its end waited for.

use std::fs;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::Error;
use crate::linux::rights;
use crate::linux::sys::{self, Children, Ended, How, SignalDescriptor, SignalSet, Waited};

/// A socket of smcp's own that gets the terminal of a container in the foreground.
#[derive(Debug)]
pub struct Console {
    listener: UnixListener,
    directory: PathBuf,
}

impl Console {
    /// Makes one in a new directory, whose name is `mark`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(mark: &str) -> Result<Console, Error> {
        let directory = std::env::temp_dir().join(format!("smcp-oci-{mark}-{}", std::process::id()));
        let made = fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .and_then(|()| UnixListener::bind(directory.join("console")));
        let listener = made.map_err(Error::io("making a socket for the terminal"))?;
        Ok(Console { listener, directory })
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.join("console")
    }

    fn terminal(&self) -> io::Result<OwnedFd> {
        self.listener.set_nonblocking(true)?;
        let (connection, _) = self.listener.accept()?;
        let (_, mut descriptors) = rights::receive(&connection, &mut [0; 64])?;
        descriptors.pop().ok_or_else(|| io::Error::other("no terminal came by the socket"))
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Signals of this process, which wait from its first moment on: the end of a container that lives for a moment is heard, too.
#[derive(Debug)]
pub struct Foreground {
    signals: SignalDescriptor,
}

impl Foreground {
    /// Has all signals wait, but for those of faults.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Foreground, Error> {
        sys::keep_children();
        SignalSet::all().block();
        let signals = SignalSet::all().descriptor().map_err(Error::io("reading signals"))?;
        Ok(Foreground { signals })
    }

    /// Waits for the end of a child, with its terminal in the place of the caller's where it has one. Gives the exit code.
    ///
    /// # Errors
    /// Where the terminal did not come.
    pub fn wait(&self, pid: i32, console: Option<&Console>) -> Result<u8, Error> {
        let fail = |why: io::Error| Error::step("passing the terminal on", why);
        let pid = Pid::from_raw(pid).ok_or_else(|| fail(Errno::SRCH.into()))?;
        let terminal = console.map(Console::terminal).transpose().map_err(fail)?;
        let raw = terminal.as_ref().map(Raw::enter);
        let ended = self.attend(pid, terminal.as_ref(), raw.as_ref());
        drop(raw);
        Ok(match ended.map_err(Error::io("waiting for the process"))?.how {
            How::Code(code) => code as u8,
            How::Signal(signal) => 128 + signal as u8,
        })
    }

    fn attend(&self, pid: Pid, terminal: Option<&OwnedFd>, raw: Option<&Raw<'_>>) -> io::Result<Ended> {
        let stdin = rustix::stdio::stdin();
        let mut input = terminal.is_some();
        loop {
            if let Some(ended) = self.heard(pid, terminal, raw)? {
                // What it wrote last is still to be read.
                while terminal.is_some_and(|terminal| pass(terminal.as_fd(), rustix::stdio::stdout())) {}
                return Ok(ended);
            }
            let mut looked = vec![PollFd::new(&self.signals, PollFlags::IN)];
            if let Some(terminal) = terminal {
                looked.push(PollFd::new(terminal, PollFlags::IN));
                looked.extend(input.then(|| PollFd::new(&stdin, PollFlags::IN)));
            }
            match poll(&mut looked, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => return Err(why.into()),
            }
            let ready = |index: usize| looked.get(index).is_some_and(|one| !one.revents().is_empty());
            let (output, typed) = (ready(1), ready(2));
            if let Some(terminal) = terminal {
                if output && !pass(terminal.as_fd(), rustix::stdio::stdout()) {
                    // Nobody has the other side open: what is left is to hear of the end.
                    let _ = poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&TENTH));
                }
                if typed {
                    input = pass(stdin, terminal.as_fd());
                }
            }
        }
    }

    /// Takes all signals that wait: passes them on, and hears of the end.
    fn heard(&self, pid: Pid, terminal: Option<&OwnedFd>, raw: Option<&Raw<'_>>) -> io::Result<Option<Ended>> {
        while let Some(signal) = self.signals.next() {
            if signal == Signal::WINCH.as_raw() && terminal.is_some() {
                raw.iter().for_each(|raw| raw.resize());
            } else if signal != Signal::CHILD.as_raw() && signal != Signal::URG.as_raw() {
                sys::kill(pid, signal);
            }
        }
        loop {
            match sys::wait(Children::Any, false)? {
                Waited::Ended(ended) if ended.pid == pid => return Ok(Some(ended)),
                Waited::Ended(_) => {}
                Waited::Running => return Ok(None),
                Waited::Childless => return Err(Errno::CHILD.into()),
            }
        }
    }
}

const TENTH: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Passes what one has to the other: whether there was anything.
fn pass(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool {
    let mut buffer = [0; 8192];
    let Ok(length @ 1..) = rustix::io::read(from, &mut buffer) else { return false };
    let mut rest = &buffer[..length];
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// The caller's terminal without a mind of its own: what is typed goes through as it is.
struct Raw<'a> {
    before: Option<Termios>,
    inner: &'a OwnedFd,
}

impl<'a> Raw<'a> {
    fn enter(inner: &'a OwnedFd) -> Raw<'a> {
        let before = io::stdin().is_terminal().then(|| tcgetattr(rustix::stdio::stdin()).ok()).flatten();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw);
        }
        let entered = Raw { before, inner };
        entered.resize();
        entered
    }

    /// Makes the inner one as large as the caller's.
    fn resize(&self) {
        if let Ok(size) = tcgetwinsize(rustix::stdio::stdin()) {
            let _ = tcsetwinsize(self.inner, size);
        }
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
