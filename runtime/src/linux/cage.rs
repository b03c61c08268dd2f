//! The supervisor's side of a cage: starts the cage process, hears what it measured, starts the server, waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use ulid::Ulid;

use super::cgroup::{Cgroup, Controller};
use super::channel::Channel;
use super::guard::Guard;
use super::measure::{NAMESPACES, namespace_id};
use super::process::{self, Ends};
use super::rate::Rate;
use super::signals::Signals;
use super::sources::Sources;
use super::sys::{self, Children, Fork, Waited};
use super::wire::{Event, NotExecuted, Order, Refusal};
use crate::identity::{Identity, Mapping};
use crate::journal::Ticket;
use crate::plan::{Limit, Plan};
use crate::report::{Layer, Report, Status};

pub use super::sys::How;

/// A cage takes some milliseconds to build. One that takes this long hangs on something of the host, such as a grant on a
/// file system that does not answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cage that is built and measured, with the server's process waiting in it. Dropping it ends it.
#[derive(Debug)]
pub struct Prepared {
    cage: Cage,
}

impl Prepared {
    /// What each layer enforces, as measured inside.
    pub fn report(&self) -> &Report {
        &self.cage.report
    }

    /// Which kind of cgroup counts and caps it: `v2`, `v1` or `none`.
    pub fn cgroup(&self) -> &'static str {
        self.cage.guard.cgroup().kind().name()
    }

    /// Lets the server start. The ticket is the proof that the begin entry is on disk.
    ///
    /// # Errors
    /// Where the waiting process is gone.
    pub fn start(mut self, _: &Ticket) -> Result<Cage, Refusal> {
        self.cage.init.reap_others();
        rustix::io::write(&self.cage.lifeline, b"s").map_err(|why| Refusal::new("starting the server", why))?;
        Ok(self.cage)
    }
}

/// A running server. Dropping it kills the whole tree.
#[derive(Debug)]
pub struct Cage {
    /// The pipe to the server's standard input; dropping it is the end of the server's input.
    pub stdin: Option<OwnedFd>,
    /// The pipe from the server's standard output; dropped at its end.
    pub stdout: Option<OwnedFd>,
    /// The pipe from the server's standard error; dropped at its end.
    pub stderr: Option<OwnedFd>,
    report: Report,
    init: Init,
    events: Events,
    /// The only writer of the pipe that PID 1 watches: its end is the end of the cage.
    lifeline: OwnedFd,
    /// The limit that ended it.
    exceeded: Option<Limit>,
    /// Dropped after `init` is reaped: the cgroup can be removed then.
    guard: Guard,
}

/// How a run ended, with what it used.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The server's exit code or signal; `None` where PID 1 was killed with it.
    pub how: Option<How>,
    /// The limit that ended the tree, where one did.
    pub limit: Option<Limit>,
    /// Set where the server's program was never executed.
    pub not_executed: Option<NotExecuted>,
    /// User and system time of the tree.
    pub cpu_time: Duration,
    /// Largest resident set of one process, bytes.
    pub peak_memory: u64,
}

impl Cage {
    /// Readable when the cage has ended.
    pub fn ended(&self) -> BorrowedFd<'_> {
        self.init.pidfd.as_fd()
    }

    /// Passes a signal to the server.
    pub fn signal(&self, signal: Signal) {
        self.init.signal(signal);
    }

    /// Kills every process of the cage at once: PID 1's end is the end of its namespace.
    pub fn kill(&self) {
        self.init.signal(Signal::KILL);
    }

    /// When [`Cage::look`] is due.
    pub fn next_look(&self) -> Instant {
        self.guard.next()
    }

    /// Looks whether the tree keeps its limits, and kills it where it does not.
    pub fn look(&mut self) {
        if self.exceeded.is_none()
            && let Some(limit) = self.guard.look()
        {
            self.exceeded = Some(limit);
            self.kill();
        }
    }

    /// Waits for the end of the cage and takes what is left of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(mut self) -> io::Result<Outcome> {
        let usage = self.init.reap()?;
        let spent = self.guard.spent();
        let mut outcome = Outcome {
            how: None,
            limit: None,
            not_executed: None,
            // What PID 1 did not wait for, since it was killed with them, does not stand in its own.
            cpu_time: usage.map_or(spent, |ended| ended.cpu_time.max(spent)),
            peak_memory: usage.map_or(0, |ended| ended.peak_memory),
        };
        while let Some(event) = self.events.next_written() {
            match event {
                Event::Ended { code: Some(code), .. } => outcome.how = Some(How::Code(code)),
                Event::Ended { signal: Some(signal), .. } => outcome.how = Some(How::Signal(signal)),
                Event::NotExecuted(why) => outcome.not_executed = Some(why),
                _ => {}
            }
        }
        let failed = outcome.how.is_some_and(|how| how != How::Code(0));
        outcome.limit = self.exceeded.or_else(|| self.guard.after(failed.then_some(outcome.peak_memory)));
        Ok(outcome)
    }
}

/// A cage process that was split off before the plan of its run is known: it enters its namespaces while the supervisor
/// goes on. Dropping it ends it.
#[derive(Debug)]
pub struct Ahead {
    run: Ulid,
    identity: Identity,
    cgroup: Cgroup,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    events: Events,
    process: Process,
}

impl Ahead {
    /// Splits the cage process of a run off.
    ///
    /// # Errors
    /// Where this process has a second thread, and the kernel's.
    pub fn split(identity: &Identity, run: Ulid) -> Result<Ahead, Refusal> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|why| Refusal::new("making a pipe", why));
        let cgroup = Cgroup::make(run);
        let (stdin_inside, stdin) = pipe()?;
        let (stdout, stdout_inside) = pipe()?;
        let (stderr, stderr_inside) = pipe()?;
        let (events, events_inside) = pipe()?;
        let (lifeline_inside, lifeline) = pipe()?;
        let (channel, channel_inside) = Channel::pair().map_err(|why| Refusal::new("making a socket", why))?;
        let ends = Ends {
            stdio: [stdin_inside, stdout_inside, stderr_inside],
            channel: channel_inside,
            events: events_inside,
            lifeline: lifeline_inside,
        };
        let pid = match sys::fork().map_err(|why| Refusal::new("splitting the cage process off", why))? {
            Fork::Child => process::main(identity, &cgroup.joins(), ends),
            Fork::Parent(pid) => pid,
        };
        let events = Events { pipe: events, buffer: Vec::new() };
        let process = Process { pid: Some(pid), channel: Some(channel), lifeline: Some(lifeline) };
        Ok(Ahead { run, identity: identity.clone(), cgroup, stdin, stdout, stderr, events, process })
    }

    /// Has the cage of the plan built and measured; no server runs yet.
    ///
    /// # Errors
    /// A [`Refusal`], also where `signals` brings one while the cage is built.
    pub fn prepare(self, plan: &Plan, signals: &Signals) -> Result<Prepared, Refusal> {
        let Ahead { run, identity, mut cgroup, stdin, stdout, stderr, mut events, mut process } = self;
        cgroup.limit(&plan.limits);
        let rate = if cgroup.has(Controller::Cpu) { None } else { Rate::new(plan.limits.cpu_millis, run.0) };
        process.give(plan, &identity)?;
        let mut report = Report::default();
        let init = hear(&mut events, signals, &mut report)?;
        let lifeline = process.has_done()?;
        report.set(Layer::Cgroup, with_rate(cgroup.status(init.pid), rate.as_ref()));
        let (guard, status) = Guard::new(init.pid, plan.limits, cgroup, rate);
        report.set(Layer::Guard, status);
        let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
        Ok(Prepared { cage: Cage { stdin, stdout, stderr, report, init, events, lifeline, exceeded: None, guard } })
    }
}

/// The cage process, by the two descriptors that it lives by.
#[derive(Debug)]
struct Process {
    /// `None` once it was waited for.
    pid: Option<Pid>,
    channel: Option<Channel>,
    lifeline: Option<OwnedFd>,
}

impl Process {
    /// Gives it the order, and what only root may open.
    fn give(&mut self, plan: &Plan, identity: &Identity) -> Result<(), Refusal> {
        let Some(channel) = self.channel.take() else { return Ok(()) };
        let order = Order {
            plan: plan.clone(),
            env: plan.env.iter().map(|v| (v.name.clone(), v.value.expose().to_owned())).collect(),
            outside: NAMESPACES
                .iter()
                .filter_map(|(_, name)| Some(((*name).to_owned(), namespace_id(name)?)))
                .collect(),
        };
        // Where it is gone by now, it has said why.
        let given = |result: io::Result<()>| match result {
            Err(why) if why.kind() != io::ErrorKind::BrokenPipe => Err(Refusal::new("passing the plan on", why)),
            _ => Ok(()),
        };
        given(channel.give_order(&order))?;
        match identity.mapping {
            // The unprivileged user that it is by now cannot reach them by path, and only root may shift owners.
            Mapping::Unprivileged => given(channel.give_sources(&Sources::open(plan)?)),
            // An ordinary user may clone mounts only in a mount namespace of its own.
            Mapping::Caller | Mapping::Root => Ok(()),
        }
    }

    /// Waits for its end, which comes once the container's init runs, and hands the lifeline over.
    fn has_done(mut self) -> Result<OwnedFd, Refusal> {
        self.pid.take().map(|pid| sys::wait(Children::One(pid), true));
        self.lifeline.take().ok_or_else(|| Refusal::new("starting the container", "its lifeline is gone"))
    }
}

impl Drop for Process {
    /// Ends it with all that it made. Killed before libcontainer's init is started, it would leave that behind; so only one
    /// that hangs is killed.
    fn drop(&mut self) {
        let Some(pid) = self.pid.take() else { return };
        self.channel = None;
        self.lifeline = None;
        let deadline = Instant::now() + Duration::from_secs(1);
        while matches!(sys::wait(Children::One(pid), false), Ok(Waited::Running)) {
            if Instant::now() > deadline {
                sys::kill(pid, libc::SIGKILL);
                let _ = sys::wait(Children::One(pid), true);
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        reap_strays();
    }
}

/// Adds what stands in for a cgroup's CPU rate.
fn with_rate(status: Status, rate: Option<&Rate>) -> Status {
    let Some(rate) = rate else { return status };
    let and = |why: String| format!("{why}; a tree ahead of its CPU rate is kept to {} CPU(s)", rate.cpus());
    match status {
        Status::Full => Status::Full,
        Status::Partial(why) => Status::Partial(and(why)),
        Status::Absent(why) => Status::Absent(and(why)),
    }
}

/// Listens until the cage is ready, and tells its PID 1.
fn hear(events: &mut Events, signals: &Signals, report: &mut Report) -> Result<Init, Refusal> {
    let deadline = Instant::now() + PATIENCE;
    let (mut ready, mut init) = (false, None);
    // Two processes write: the word that init is there may come before or after init's own.
    loop {
        if ready && let Some(init) = init {
            return Ok(init);
        }
        match events.next(signals, deadline)? {
            Some(Event::Init { pid }) => init = Some(Init::of(pid)?),
            Some(Event::Ready { measured }) => {
                *report = measured;
                ready = true;
            }
            Some(Event::Refused(refusal) | Event::NoNamespaces(refusal)) => return Err(refusal),
            Some(Event::NotExecuted(_) | Event::Ended { .. }) | None => {
                return Err(Refusal::new("starting the container", "it ended before it was ready"));
            }
        }
    }
}

/// Children that a failed start left behind; they end because their lifeline did.
fn reap_strays() {
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        match sys::wait(Children::Any, false) {
            Ok(Waited::Ended(_)) => {}
            Ok(Waited::Running) => std::thread::sleep(Duration::from_millis(1)),
            Ok(Waited::Childless) | Err(_) => return,
        }
    }
}

/// PID 1 of the cage, a child of this process.
#[derive(Debug)]
struct Init {
    pid: Pid,
    pidfd: OwnedFd,
    /// Set once it was waited for.
    ended: Option<sys::Ended>,
}

impl Init {
    fn of(pid: i32) -> Result<Init, Refusal> {
        let fail = |why: io::Error| Refusal::new("holding the container's init", why);
        let pid = Pid::from_raw(pid).ok_or_else(|| fail(Errno::SRCH.into()))?;
        // The id cannot have gone to another process: it is our child and nobody else waits for it.
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|why| fail(why.into()))?;
        Ok(Init { pid, pidfd, ended: None })
    }

    fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    fn reap(&mut self) -> io::Result<Option<sys::Ended>> {
        if self.ended.is_none()
            && let Waited::Ended(ended) = sys::wait(Children::One(self.pid), true)?
        {
            self.ended = Some(ended);
        }
        self.reap_others();
        Ok(self.ended)
    }

    /// libcontainer's intermediate process is a child of ours too, long ended. Not waited for, it counts against
    /// RLIMIT_NPROC of the cage.
    fn reap_others(&mut self) {
        while let Ok(Waited::Ended(ended)) = sys::wait(Children::Any, false) {
            if ended.pid == self.pid {
                self.ended = Some(ended);
            }
        }
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.signal(Signal::KILL);
            let _ = self.reap();
        }
    }
}

/// The read end of the event pipe.
#[derive(Debug)]
struct Events {
    pipe: OwnedFd,
    buffer: Vec<u8>,
}

impl Events {
    /// The next event, `None` when all writers are gone.
    fn next(&mut self, signals: &Signals, deadline: Instant) -> Result<Option<Event>, Refusal> {
        loop {
            if let Some(event) = self.take_line() {
                return event.map(Some);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.pipe, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => {
                    return Err(Refusal::new("starting the container", format!("it took longer than {PATIENCE:?}")));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => return Err(Refusal::new("waiting for the container", why)),
            }
            if !fds[1].revents().is_empty() {
                return Err(Refusal::new("starting the container", "a signal asked smcp to end"));
            }
            if !fds[0].revents().is_empty() && !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// The next event that has been written already; for when all writers are gone.
    fn next_written(&mut self) -> Option<Event> {
        loop {
            match self.take_line() {
                Some(Ok(event)) => return Some(event),
                Some(Err(_)) => {}
                None => {
                    if !self.fill().unwrap_or(false) {
                        return None;
                    }
                }
            }
        }
    }

    fn fill(&mut self) -> Result<bool, Refusal> {
        let mut block = [0_u8; 4096];
        let n = rustix::io::retry_on_intr(|| rustix::io::read(&self.pipe, &mut block))
            .map_err(|why| Refusal::new("hearing from the container", why))?;
        self.buffer.extend_from_slice(&block[..n]);
        Ok(n > 0)
    }

    fn take_line(&mut self) -> Option<Result<Event, Refusal>> {
        let newline = self.buffer.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.buffer.drain(..=newline).collect();
        Some(serde_json::from_slice(&line).map_err(|why| Refusal::new("hearing from the container", why)))
    }
}
