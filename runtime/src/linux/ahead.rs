//! From a run to its cage: the cage process, split off early; what it is told and what it tells; and the cage without
//! namespaces where those cannot be had.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use bundle::Egress;
use rustix::fs::{Gid, Mode, OFlags, ResolveFlags, Uid, fchown};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use ulid::Ulid;

use super::bare::{self, Place};
use super::cage::{Cage, Prepared};
use super::calls::{Recorder, Recording};
use super::cgroup::{Cgroup, Controller};
use super::channel::{Besides, Channel};
use super::events::{Events, PATIENCE};
use super::first::{First, Kind};
use super::guard::{Guard, counted_beside};
use super::keeper::{self, Ends};
use super::masks::{FileId, Masks};
use super::measure::namespace_ids;
use super::process;
use super::rate::Rate;
use super::seccomp::{self, Around};
use super::signals::Signals;
use super::sockets::Sockets;
use super::sources::Sources;
use super::sys::{self, Children, Fork, Waited};
use super::wire::{Event, Order, Refusal};
use crate::egress::{Engine, Proxies};
use crate::identity::{Identity, Mapping};
use crate::plan::Plan;
use crate::report::{Layer, Report, Status, Tier};

/// A cage process that was split off before the plan of its run is known: it enters its namespaces while the supervisor
/// goes on. Dropping it ends it.
#[derive(Debug)]
pub struct Ahead {
    run: Ulid,
    identity: Identity,
    /// `None` where it is made once the order is given, while the supervisor has nothing else to do.
    cgroup: Option<Cgroup>,
    /// The server gets this process's own standard input and output.
    direct: bool,
    // Dropped before the process is waited for: what it has started by then ends by the end of its lifeline.
    pipes: Pipes,
    process: Process,
}

impl Ahead {
    /// Splits the cage process of a run off.
    ///
    /// # Errors
    /// Where this process has a second thread, and the kernel's.
    pub fn split(identity: &Identity, run: Ulid) -> Result<Ahead, Refusal> {
        has_openat2()?;
        sys::keep_children();
        let cgroup = if Cgroup::can_wait() { None } else { Some(Cgroup::make(run)) };
        let joins = cgroup.as_ref().map(Cgroup::joins).unwrap_or_default();
        let (pipes, ends) = Pipes::make(identity)?;
        let (channel, theirs) = Channel::pair().map_err(|why| Refusal::new("making a socket", why))?;
        let aside = Aside::of_this_cpu();
        let pid = match sys::fork().map_err(|why| Refusal::new("splitting the cage process off", why))? {
            Fork::Child => process::main(identity, &joins, ends, theirs, aside.as_ref()),
            Fork::Parent(pid) => pid,
        };
        aside.iter().for_each(|aside| aside.send(pid));
        let process = Process { pid: Some(pid), channel: Some(channel) };
        Ok(Ahead { run, identity: identity.clone(), cgroup, direct: false, pipes, process })
    }

    /// The server gets this process's own standard input and output in place of pipes: what it writes there nobody sees but
    /// whoever holds the other end.
    pub fn direct(&mut self) {
        self.direct = true;
    }

    /// Has the cage of the plan built. That takes a while, for which the supervisor has nothing to do for it.
    ///
    /// # Errors
    /// A [`Refusal`].
    pub fn order(self, plan: &Plan, recording: Recording) -> Result<Ordered, Refusal> {
        let Ahead { run, identity, cgroup, direct, mut process, pipes } = self;
        let mut inside = plan.clone();
        inside.rlimits.nproc = inside.rlimits.nproc.saturating_add(counted_beside(identity.uid));
        let masks = Masks::pin(plan)?;
        let pair = (!plan.egress.is_empty()).then(Sockets::pair).transpose();
        let (sockets, theirs) = pair.map_err(|why| Refusal::new("making a socket", why))?.unzip();
        let pair = (recording == Recording::Calls).then(Recorder::pair).transpose();
        let (recorder, teller) = pair.map_err(|why| Refusal::new("making a socket", why))?.unzip();
        let streams = direct.then(own_streams).transpose()?;
        let besides = Besides { sockets: theirs, streams, teller };
        let (cgroup, given) = process.give(&inside, masks.ids(), besides, &identity, cgroup, run);
        Ok(Ordered { run, identity, cgroup, direct, masks, sockets, recorder, given, pipes, process })
    }
}

/// A cage that is being built. Dropping it ends what there is of it.
#[derive(Debug)]
pub struct Ordered {
    run: Ulid,
    identity: Identity,
    cgroup: Cgroup,
    direct: bool,
    masks: Masks,
    sockets: Option<Sockets>,
    recorder: Option<Recorder>,
    /// Whether all could be passed on; where the cage fails, this is why.
    given: Result<(), Refusal>,
    // In this order, as in [`Ahead`].
    pipes: Pipes,
    process: Process,
}

impl Ordered {
    /// Waits until the cage is built and measured; no server runs yet. Where namespaces cannot be had and the `least` tier
    /// allows it, one without is built, with private directories below `place`.
    ///
    /// # Errors
    /// A [`Refusal`], also where `signals` brings one while the cage is built.
    pub fn prepare(
        self,
        plan: &Plan,
        place: &Path,
        least: Tier,
        signals: &Signals,
        proxies: Proxies,
    ) -> Result<Prepared, Refusal> {
        let Ordered { run, identity, mut cgroup, direct, masks, sockets, recorder, given, mut process, mut pipes } =
            self;
        let mut heard = Heard::default();
        let mut there = heard.listen(&mut pipes.events, signals, |heard| heard.init.is_some() || heard.left_behind);
        if there.is_ok() && heard.left_behind {
            process.move_to(&cgroup);
            there = heard.listen(&mut pipes.events, signals, |heard| heard.init.is_some());
        }
        let (built, place) = match there {
            Ok(()) => {
                let first = First::of(heard.init.unwrap_or_default(), pipes.lifeline, Kind::Init)?;
                (Built { first, streams: pipes.streams, events: pipes.events, heard }, None)
            }
            Err(Unready::NoNamespaces(why)) if least <= Tier::One => {
                drop(pipes);
                process.end();
                let place = Place::make(place, run, &identity)
                    .map_err(|why| Refusal::new(format!("making a directory in {}", place.display()), why))?;
                (keep(plan, &place, &cgroup, &why, signals, direct)?, Some(place))
            }
            Err(Unready::NoNamespaces(refusal)) => {
                return Err(Refusal { what: format!("a cage of tier {least}: {}", refusal.what), ..refusal });
            }
            // What could not be given is why the rest failed.
            Err(Unready::Refused(refusal)) => return Err(given.err().unwrap_or(refusal)),
        };
        let Built { first, streams, mut events, mut heard } = built;
        // While the cage measures itself.
        let rate = if cgroup.has(Controller::Cpu) { None } else { Rate::new(plan.limits.cpu_millis, run.0) };
        let counted = with_rate(cgroup.status(first.pid), rate.as_ref());
        let guard = Guard::new(first.pid, plan.limits, cgroup, rate);
        let mut seen = guard.first_look();
        match heard.listen(&mut events, signals, |heard| heard.measured.is_some()) {
            Ok(()) => process.has_done(),
            Err(Unready::NoNamespaces(refusal) | Unready::Refused(refusal)) => {
                return Err(given.err().unwrap_or(refusal));
            }
        }
        if seen != Status::Full {
            seen = guard.first_look();
        }
        let mut report = heard.measured.unwrap_or_default();
        report.set(Layer::Cgroup, counted);
        report.set(Layer::Guard, seen);
        // Without a network namespace nobody answers: Landlock's ports are all there is.
        let sockets = sockets.filter(|_| place.is_none());
        let engine = sockets.map(|sockets| engine(&plan.egress, proxies, sockets, &mut report)).transpose()?;
        let listener = recorder.map(|recorder| recorder.listener(place.is_none(), plan));
        Ok(Prepared::new(Cage::new(first, streams, events, report, guard, masks, place), engine, listener))
    }
}

/// Opens in the cage what it may connect to. What cannot be seen of what it tries else is noted.
fn engine(egress: &Egress, proxies: Proxies, mut sockets: Sockets, report: &mut Report) -> Result<Engine, Refusal> {
    let fail = |why: io::Error| Refusal::new("opening the way out", why);
    if let Err(why) = sockets.take_offer().map_err(fail)? {
        report.lack(Layer::Egress, &format!("attempts at ports that nobody listens on are not seen: {why}"));
    }
    // Each connection takes two. The server's own limit was set before.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).map_err(|why| fail(why.into()))?;
    Engine::open(egress, proxies, sockets).map_err(fail)
}

/// Has the cage process run beside this one from its first moment. Left alone, the kernel keeps a child where its parent
/// is until that waits for something, and half a millisecond of a start is lost.
#[derive(Debug)]
pub struct Aside {
    own: CpuSet,
    others: CpuSet,
}

impl Aside {
    fn of_this_cpu() -> Option<Aside> {
        let own = sched_getaffinity(None).ok()?;
        let mut others = own;
        others.unset(sched_getcpu());
        (others.count() > 0).then_some(Aside { own, others })
    }

    /// Moves a child away.
    fn send(&self, child: Pid) {
        // One that is on another CPU by now, or that is gone, needs no moving.
        let _ = sched_setaffinity(Some(child), &self.others);
    }

    /// As the child: may be again wherever the parent may. Not before the parent has said something: it may not have sent
    /// the child away yet.
    pub fn come_back(&self) {
        let _ = sched_setaffinity(None, &self.own);
    }
}

/// Nothing is unpacked or mounted without it, so it is asked for first.
fn has_openat2() -> Result<(), Refusal> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::openat2(rustix::fs::CWD, "/", flags, Mode::empty(), ResolveFlags::empty()) {
        Err(Errno::NOSYS) => Err(Refusal::new(
            "opening files beneath a directory (openat2)",
            "a filter around smcp, or a kernel before Linux 5.6, does not have the call",
        )
        .hint("inside another smcp no cage can be built: let the outer one run the server")),
        _ => Ok(()),
    }
}

/// A cage that is there, and measures itself or has done so.
struct Built {
    first: First,
    streams: [OwnedFd; 3],
    events: Events,
    heard: Heard,
}

/// The supervisor's ends of what a cage is held by.
#[derive(Debug)]
struct Pipes {
    /// To the server's standard input, from its output, from its error.
    streams: [OwnedFd; 3],
    events: Events,
    lifeline: OwnedFd,
}

impl Pipes {
    fn make(identity: &Identity) -> Result<(Pipes, Ends), Refusal> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|why| Refusal::new("making a pipe", why));
        let (stdin_inside, stdin) = pipe()?;
        let (stdout, stdout_inside) = pipe()?;
        let (stderr, stderr_inside) = pipe()?;
        let (events, events_inside) = pipe()?;
        let (lifeline_inside, lifeline) = pipe()?;
        let events = Events::on(events).map_err(|why| Refusal::new("making a pipe", why))?;
        let ours = Pipes { streams: [stdin, stdout, stderr], events, lifeline };
        let stdio = [stdin_inside, stdout_inside, stderr_inside];
        if identity.mapping == Mapping::Unprivileged {
            // `/dev/stdin` and its kin open them anew, which a pipe of root's refuses to others.
            let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
            for stream in &stdio {
                fchown(stream, Some(uid), Some(gid))
                    .map_err(|why| Refusal::new("giving the streams to the server", why))?;
            }
        }
        Ok((ours, Ends { stdio, events: events_inside, lifeline: lifeline_inside }))
    }
}

/// The cage process, until the container's init runs.
#[derive(Debug)]
struct Process {
    /// `None` once it was waited for.
    pid: Option<Pid>,
    /// `None` once it is to end.
    channel: Option<Channel>,
}

impl Process {
    /// Gives it the order, what only root may open, and what is made meanwhile: its cgroup, where there is none yet, and the
    /// filter.
    fn give(
        &mut self,
        plan: &Plan,
        denied: Vec<FileId>,
        besides: Besides,
        identity: &Identity,
        cgroup: Option<Cgroup>,
        run: Ulid,
    ) -> (Cgroup, Result<(), Refusal>) {
        let telling = besides.teller.is_some();
        let ordered = self.give_order(plan, denied, besides, identity);
        // Where there is one already, it was joined.
        let late = cgroup.is_none();
        let mut cgroup = cgroup.unwrap_or_else(|| Cgroup::make(run));
        cgroup.limit(&plan.limits);
        let given = ordered.and_then(|()| {
            let joins = if late { cgroup.open_joins() } else { Vec::new() };
            let filter = match telling {
                false => seccomp::filter(&plan.programs, Around::Namespaces),
                true => seccomp::telling_filter(&plan.programs),
            };
            self.channel.as_ref().map_or(Ok(()), |channel| unless_gone(channel.give_filter(&filter, &joins)))
        });
        (cgroup, given)
    }

    fn give_order(
        &self,
        plan: &Plan,
        denied: Vec<FileId>,
        besides: Besides,
        identity: &Identity,
    ) -> Result<(), Refusal> {
        let Some(channel) = &self.channel else { return Ok(()) };
        let direct = besides.streams.is_some();
        unless_gone(channel.give_order(&Order { denied, direct, ..order(plan, None) }, besides))?;
        match identity.mapping {
            // The unprivileged user that it is by now cannot reach them by path, and only root may shift owners.
            Mapping::Unprivileged => unless_gone(channel.give_sources(&Sources::open(plan)?)),
            // An ordinary user may clone mounts only in a mount namespace of its own.
            Mapping::Caller | Mapping::Root => Ok(()),
        }
    }

    /// Moves it to its cgroup and lets it go on. What did not work shows in what the cgroup counts.
    fn move_to(&self, cgroup: &Cgroup) {
        if let (Some(pid), Some(channel)) = (self.pid, &self.channel) {
            cgroup.take(pid);
            let _ = channel.nod();
        }
    }

    /// Waits for its end, which comes once the container's init runs.
    fn has_done(&mut self) {
        if let Some(pid) = self.pid.take() {
            let _ = sys::wait(Children::One(pid), true);
        }
    }

    /// Ends it with all that it made. Killed before libcontainer's init is started, it would leave that behind; so only one
    /// that hangs is killed.
    fn end(&mut self) {
        let Some(pid) = self.pid.take() else { return };
        self.channel = None;
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

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// This process's standard input and output once more, by numbers that are in nobody's way.
fn own_streams() -> Result<[OwnedFd; 2], Refusal> {
    let again = |fd| fcntl_dupfd_cloexec(fd, 3).map_err(|why| Refusal::new("passing the client's descriptors on", why));
    Ok([again(rustix::stdio::stdin())?, again(rustix::stdio::stdout())?])
}

/// Where the cage process is gone by now, it has said why.
fn unless_gone(result: io::Result<()>) -> Result<(), Refusal> {
    match result {
        Ok(()) => Ok(()),
        // The second where it has not read all that it was given.
        Err(why) if matches!(why.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
        Err(why) => Err(Refusal::new("passing the plan on", why)),
    }
}

fn order(plan: &Plan, bare: Option<bare::Bare>) -> Order {
    Order {
        env: plan.env.iter().map(|v| (v.name.clone(), v.value.expose().to_owned())).collect(),
        bare,
        denied: Vec::new(),
        direct: false,
        outside: namespace_ids(),
        plan: plan.clone(),
    }
}

/// Starts a keeper, whose server has no namespaces; `why` is what keeps them away.
fn keep(
    plan: &Plan,
    place: &Place,
    cgroup: &Cgroup,
    why: &Refusal,
    signals: &Signals,
    direct: bool,
) -> Result<Built, Refusal> {
    let reason = format!("{}: {}", why.what, why.why);
    // Both are of interest: what would bring namespaces, and what is the matter without.
    let also = |refusal: Refusal| Refusal {
        what: format!("{reason}; and without namespaces: {}", refusal.what),
        hint: refusal.hint.or_else(|| why.hint.clone()),
        ..refusal
    };
    let (plan, bare) = bare::relocate(plan, place, &reason).map_err(also)?;
    let order = order(&plan, Some(bare));
    rustix::process::set_child_subreaper(Some(Pid::INIT)).map_err(|why| Refusal::new("adopting orphans", why))?;
    let (mut pipes, mut ends) = Pipes::make(&plan.identity)?;
    if direct {
        let ([stdin, stdout], [_, _, stderr]) = (own_streams()?, ends.stdio);
        ends.stdio = [stdin, stdout, stderr];
    }
    let pid = match sys::fork().map_err(|why| Refusal::new("splitting the keeper off", why))? {
        Fork::Child => keeper::main(&order, &cgroup.joins(), ends),
        Fork::Parent(pid) => pid,
    };
    let first = First::of(pid.as_raw_nonzero().get(), pipes.lifeline, Kind::Keeper)?;
    let mut heard = Heard::default();
    match heard.listen(&mut pipes.events, signals, |heard| heard.measured.is_some()) {
        Ok(()) => Ok(Built { first, streams: pipes.streams, events: pipes.events, heard }),
        Err(Unready::NoNamespaces(refusal) | Unready::Refused(refusal)) => Err(also(refusal)),
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

/// What a cage has told by now. Where it is a container, the word that its init is there may come before or after init's own.
#[derive(Default)]
struct Heard {
    /// The id of the container's init.
    init: Option<i32>,
    left_behind: bool,
    measured: Option<Report>,
}

impl Heard {
    /// Listens until there is `enough`.
    fn listen(&mut self, events: &mut Events, signals: &Signals, enough: fn(&Heard) -> bool) -> Result<(), Unready> {
        let deadline = Instant::now() + PATIENCE;
        while !enough(self) {
            match events.next(signals, deadline)? {
                Some(Event::Init { pid }) => self.init = Some(pid),
                Some(Event::LeftBehind) => self.left_behind = true,
                Some(Event::Ready { measured }) => self.measured = Some(measured),
                Some(Event::Refused(refusal)) => return Err(Unready::Refused(refusal)),
                Some(Event::NoNamespaces(refusal)) => return Err(Unready::NoNamespaces(refusal)),
                Some(Event::NotExecuted(_) | Event::Ended { .. }) | None => {
                    return Err(Refusal::new("starting the container", "it ended before it was ready").into());
                }
            }
        }
        Ok(())
    }
}

/// Why a cage did not become ready.
enum Unready {
    NoNamespaces(Refusal),
    Refused(Refusal),
}

impl From<Refusal> for Unready {
    fn from(refusal: Refusal) -> Unready {
        Unready::Refused(refusal)
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
