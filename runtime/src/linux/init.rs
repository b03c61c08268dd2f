//! PID 1 of the cage: reaps, passes signals on, carries the server's exit status, dies with the supervisor.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

use libcontainer::notify_socket::NOTIFY_FILE;
use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal};

use super::channel::Besides;
use super::mounts::Deferred;
use super::process::NAME;
use super::server;
use super::sockets::answer;
use super::sys::{self, Children, Fork, How, Instruction, SignalDescriptor, SignalSet, Waited};
use super::wire::{Event, Order, Refusal, Reporter};

/// Exit code of PID 1 when its supervisor is gone: nobody is left to read it.
const ORPHANED: i32 = 125;

/// What libcontainer runs in the container's init process in place of exec.
#[derive(Clone)]
pub struct Init {
    order: Rc<Order>,
    filter: Rc<[Instruction]>,
    events: Rc<OwnedFd>,
    lifeline: Rc<OwnedFd>,
    /// Where the supervisor asks for sockets, where the run may connect out.
    sockets: Option<Rc<OwnedFd>>,
    /// For the server's process, where its calls are recorded.
    teller: Option<Rc<OwnedFd>>,
    deferred: Option<Deferred>,
    /// Where libcontainer keeps the sockets of its containers.
    state: Rc<Cell<Option<OwnedFd>>>,
}

impl Init {
    /// Takes what PID 1 needs over the fork.
    ///
    /// # Errors
    /// The kernel's, where a descriptor cannot be copied.
    pub fn new(
        order: Order,
        filter: Vec<Instruction>,
        events: &OwnedFd,
        lifeline: OwnedFd,
        besides: Besides,
        deferred: Option<Deferred>,
        state: &Path,
    ) -> io::Result<Init> {
        let state = rustix::fs::open(state, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Init {
            order: Rc::new(order),
            filter: filter.into(),
            events: Rc::new(events.try_clone()?),
            lifeline: Rc::new(lifeline),
            sockets: besides.sockets.map(Rc::new),
            teller: besides.teller.map(Rc::new),
            deferred,
            state: Rc::new(Cell::new(Some(state))),
        })
    }

    /// Gives libcontainer's init the word to go on, which it will wait for in a moment. The supervisor's word comes later,
    /// by the lifeline; the cage process that is meant to give this one would first read and write files for 0.2 ms.
    fn open_own_door(&self) -> io::Result<()> {
        let state = self.state.take().ok_or(Errno::BADF)?;
        // The socket's directory is not in the new root.
        let path = format!("/proc/self/fd/{}/{NAME}/{NOTIFY_FILE}", state.as_raw_fd());
        UnixStream::connect(path)?.write_all(b"start container")
    }

    fn run(&self) -> Result<Pid, Refusal> {
        let step = |what: &'static str| move |why: io::Error| Refusal::new(what, why);
        let _ = rustix::thread::set_name(c"smcp-init");
        if let Some(deferred) = self.deferred {
            deferred.restrict(&self.order.plan).map_err(step("mounting the older way"))?;
        }
        // Set after the last change of credentials, which clears it; the lifeline covers the time before.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|why| step("binding PID 1 to its supervisor")(why.into()))?;
        // The server, which has the same uid, may not look into PID 1.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(|why| step("closing PID 1 to its children")(why.into()))?;
        // Blocked signals reach PID 1 through its descriptor; without that the kernel drops those that have no handler.
        SignalSet::all().block_only();
        match sys::fork_unchecked().map_err(step("forking the server's process"))? {
            Fork::Child => {
                let teller = self.teller.as_deref();
                server::start(&self.order, Some(&self.filter), &self.events, &self.lifeline, teller)
            }
            Fork::Parent(server) => Ok(server),
        }
    }
}

impl Executor for Init {
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        Ok(())
    }

    /// PID 1 has no environment to set: the server's is given to exec. This is the last that libcontainer calls before it
    /// waits for the word to go on.
    fn setup_envs(&self, _: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        self.open_own_door().map_err(|why| ExecutorSetEnvsError::Other(format!("letting PID 1 go on: {why}")))
    }

    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        let events = Reporter(self.events.as_fd());
        let signals = SignalSet::all().descriptor().map_err(|why| Refusal::new("reading signals", why));
        match signals.and_then(|signals| Ok((self.run()?, signals))) {
            Ok((server, signals)) => {
                sys::close_stdio();
                // The kernel kills everything else in the PID namespace when this process ends.
                keep(server, &signals, &self.lifeline, self.sockets.as_deref(), &events, &|| {})
            }
            Err(refusal) => {
                events.send(&Event::Refused(refusal));
                sys::exit_now(ORPHANED)
            }
        }
    }
}

/// Lives as long as the server and the supervisor do, and makes the sockets that are asked for; `last` is done before it ends.
pub fn keep(
    server: Pid,
    signals: &SignalDescriptor,
    lifeline: &OwnedFd,
    mut sockets: Option<&OwnedFd>,
    events: &Reporter<impl AsFd>,
    last: &dyn Fn(),
) -> ! {
    loop {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN), PollFd::new(lifeline, PollFlags::empty())];
        fds.extend(sockets.map(|sockets| PollFd::new(sockets, PollFlags::IN)));
        let polled = poll(&mut fds, None);
        // A PID 1 that cannot wait any more must not go on without hearing that its supervisor is gone.
        if !matches!(polled, Ok(_) | Err(Errno::INTR)) || !fds[1].revents().is_empty() {
            last();
            sys::exit_now(ORPHANED);
        }
        let asked = fds.get(2).is_some_and(|sockets| !sockets.revents().is_empty());
        if asked && sockets.is_some_and(|sockets| answer(sockets).is_err()) {
            // Nobody asks any more.
            sockets = None;
        }
        while let Some(signal) = signals.next() {
            if signal == Signal::CHILD.as_raw() {
                reap(server, events, last);
            } else {
                sys::kill(server, signal);
            }
        }
    }
}

fn reap(server: Pid, events: &Reporter<impl AsFd>, last: &dyn Fn()) {
    while let Ok(Waited::Ended(ended)) = sys::wait(Children::Any, false) {
        if ended.pid == server {
            let (code, signal, exit) = match ended.how {
                How::Code(code) => (Some(code), None, code),
                How::Signal(signal) => (None, Some(signal), 128 + signal),
            };
            // Where others are left, what they used is known once they are killed with this process.
            let usage = if none_is_left() { sys::usage_of_children().ok() } else { None };
            events.send(&Event::Ended { code, signal, usage });
            last();
            sys::exit_now(exit);
        }
    }
}

fn none_is_left() -> bool {
    loop {
        match sys::wait(Children::Any, false) {
            Ok(Waited::Ended(_)) => {}
            Ok(Waited::Childless) => return true,
            Ok(Waited::Running) | Err(_) => return false,
        }
    }
}
