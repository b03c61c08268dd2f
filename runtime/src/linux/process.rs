//! The cage process. It is split off from the supervisor before the plan of the run is known, enters its namespaces
//! meanwhile, takes the plan, builds the container, and ends.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use rustix::process::{Resource, getrlimit};

use super::ahead::Aside;
use super::channel::{Besides, Channel};
use super::init::Init;
use super::keeper::Ends;
use super::mounts::Deferred;
use super::sources::Sources;
use super::sys::{self, SignalSet};
use super::wire::{Event, Order, Refusal, Reporter, chain};
use super::{enter, masks, network, redirect, root, sockets};
use crate::config::{self, Scope};
use crate::identity::{Identity, Mapping};
use crate::plan::Rlimits;

/// Builds the cage whose order comes by the channel, for this user and in this cgroup, where there is one yet: files that take
/// a `0` from whoever joins. Ends with 0 where the container's init runs, else with 125; what went
/// wrong goes to the supervisor as an event.
pub fn main(identity: &Identity, cgroup: &[PathBuf], ends: Ends, channel: Channel, aside: Option<&Aside>) -> ! {
    let Ends { stdio, events, lifeline } = ends;
    // What libcontainer logs would stand among the server's words.
    let silent = tracing::subscriber::NoSubscriber::new();
    let built = tracing::subscriber::with_default(silent, || {
        let order = enter(identity, cgroup, stdio, &channel, &events, &lifeline)?;
        aside.iter().for_each(|aside| aside.come_back());
        order.map_or(Ok(()), |(order, besides)| build(order, besides, identity, channel, &events, lifeline))
    });
    if let Err(event) = &built {
        Reporter(&events).send(event);
    }
    sys::exit_now(if built.is_ok() { 0 } else { 125 })
}

/// Enters the namespaces and waits for the order; `None` where the run was refused before it came to a cage.
fn enter(
    identity: &Identity,
    cgroup: &[PathBuf],
    stdio: [OwnedFd; 3],
    channel: &Channel,
    events: &OwnedFd,
    lifeline: &OwnedFd,
) -> Result<Option<(Order, Besides)>, Event> {
    let refused = |what: &'static str| move |why: std::io::Error| Event::Refused(Refusal::new(what, why));
    // A terminal's ^C goes to this process too; the supervisor decides what it means.
    SignalSet::all().block_only();
    sys::take_stdio(stdio).map_err(refused("passing standard input and output on"))?;
    // The caller's variables and the values of flags are nobody's in there.
    sys::forget_arguments().map_err(refused("forgetting the caller's environment"))?;
    sys::close_all_but(&[channel.as_fd(), events.as_fd(), lifeline.as_fd()])
        .map_err(refused("closing inherited descriptors"))?;
    rustix::process::chdir("/").map_err(|why| Refusal::new("leaving the caller's directory", why))?;
    enter::die_with_parent()?;
    // Where there is one already: before the user changes, who may not join any more.
    for file in cgroup {
        fs::write(file, "0").map_err(|why| Refusal::new(format!("joining the cgroup {}", file.display()), why))?;
    }
    enter::enter(identity)?;
    channel.take_order().map_err(refused("reading the order"))
}

fn build(
    mut order: Order,
    mut besides: Besides,
    identity: &Identity,
    channel: Channel,
    events: &OwnedFd,
    lifeline: OwnedFd,
) -> Result<(), Event> {
    let refused = |what: &'static str| move |why: std::io::Error| Event::Refused(Refusal::new(what, why));
    order.plan.rlimits = within_own(&order.plan.rlimits);
    if let Some([stdin, stdout]) = besides.streams.take() {
        rustix::stdio::dup2_stdin(&stdin)
            .and_then(|()| rustix::stdio::dup2_stdout(&stdout))
            .map_err(|why| Refusal::new("passing the client's descriptors on", why))?;
    }
    if let Some(sockets) = &besides.sockets {
        let ipv6 = network::open()?;
        if order.plan.egress.any {
            redirect::open(ipv6)?;
        }
        sockets::offer(sockets).map_err(refused("passing sockets on"))?;
    }
    let sources = match identity.mapping {
        Mapping::Unprivileged => channel.take_sources(&order.plan).map_err(refused("taking the grants"))?,
        Mapping::Caller | Mapping::Root => Sources::open(&order.plan)?,
    };
    masks::check(&sources.denied, &order.denied)?;
    let root = root::assemble(&order.plan, sources)?;
    let mut config = config::render(&order.plan, &root.directory, Scope::InsideCage);
    let deferred = Deferred::where_needed().map_err(refused("mounting the older way"))?;
    deferred.inspect(|deferred| deferred.allow(&mut config));
    fs::write(root.bundle.join("config.json"), config.to_string()).map_err(refused("writing config.json"))?;
    let joins = channel.take_joins().map_err(refused("joining the cgroup"))?;
    let filter = channel.take_filter().map_err(refused("taking the filter"))?;
    join(&joins, &channel, events)?;
    enter::enter_cgroup()?;
    let init = Init::new(order, filter, events, lifeline, besides, deferred, &root.state)
        .map_err(refused("preparing PID 1"))?;
    drop(channel);
    // From here to the start this process outlives its supervisor: killed in between, it would leave libcontainer's init
    // waiting for ever for a start that nobody gives. Init itself looks at the lifeline first.
    enter::outlive_parent()?;
    let fail = |what: &'static str| move |why: libcontainer::error::LibcontainerError| Refusal::new(what, chain(&why));
    let container = ContainerBuilder::new(NAME.into(), SyscallType::default())
        .with_root_path(&root.state)
        .map_err(fail("preparing the container's state"))?
        .with_executor(init)
        .as_init(&root.bundle)
        .with_systemd(false)
        .with_detach(false)
        // The container's init becomes a child of the supervisor, which waits for it.
        .as_sibling(true)
        .build()
        .map_err(fail("creating the container"))
        .map_err(enter::or_masked)?;
    let pid = container
        .pid()
        .map(|pid| pid.as_raw())
        .ok_or_else(|| Refusal::new("creating the container", "it has no init"))?;
    Reporter(events).send(&Event::Init { pid });
    Ok(())
}

/// Joins the cgroup that the supervisor has made meanwhile.
fn join(files: &[OwnedFd], channel: &Channel, events: &OwnedFd) -> Result<(), Refusal> {
    if files.iter().any(|file| rustix::io::write(file, b"0").is_err()) {
        Reporter(events).send(&Event::LeftBehind);
        // By now nothing else is to come.
        channel.await_nod().map_err(|why| Refusal::new("joining the cgroup", why))?;
    }
    Ok(())
}

/// The container's name, and that of its directory.
pub const NAME: &str = "server";

/// The limits, but none above what this process has itself: nobody but root can raise one.
pub fn within_own(wanted: &Rlimits) -> Rlimits {
    let least = |resource, most: u64| getrlimit(resource).maximum.map_or(most, |own| own.min(most));
    Rlimits {
        core: least(Resource::Core, wanted.core),
        data: least(Resource::Data, wanted.data),
        fsize: wanted.fsize.map(|most| least(Resource::Fsize, most)),
        nofile: least(Resource::Nofile, wanted.nofile),
        nproc: least(Resource::Nproc, wanted.nproc),
        sigpending: least(Resource::Sigpending, wanted.sigpending),
        nice: least(Resource::Nice, wanted.nice),
        rtprio: least(Resource::Rtprio, wanted.rtprio),
    }
}
