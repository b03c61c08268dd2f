//! The process that keeps a server without namespaces: it starts it, reaps, passes signals on, carries its exit status, and
//! kills all that the server left when one of the two ends.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::process::{DumpableBehavior, Pid, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::bare::Bare;
use super::enter;
use super::first;
use super::init;
use super::server;
use super::sys::{self, Fork, SignalSet};
use super::wire::{Event, Order, Refusal, Reporter};
use crate::identity::Mapping;

/// The keeper's ends of what the supervisor made.
#[derive(Debug)]
pub struct Ends {
    /// Standard input, output and error of the server.
    pub stdio: [OwnedFd; 3],
    /// Write end of the event pipe.
    pub events: OwnedFd,
    /// Read end of the pipe whose only writer is the supervisor.
    pub lifeline: OwnedFd,
}

/// Starts the server of the order in a cgroup: files that take a `0` from whoever joins. Ends with it.
pub fn main(order: &Order, cgroup: &[PathBuf], ends: Ends) -> ! {
    let Ends { stdio, events, lifeline } = ends;
    let report = Reporter(events.as_fd());
    let started = SignalSet::all();
    started.block_only();
    let kept = start(order, cgroup, stdio, &events, &lifeline)
        .and_then(|server| Ok((server, started.descriptor().map_err(|why| Refusal::new("reading signals", why))?)));
    match kept {
        Ok((server, signals)) => {
            let _pinned = Bare::pinned(server.as_raw_nonzero().get());
            sys::close_stdio();
            init::keep(server, &signals, &lifeline, None, &report, &first::end_descendants)
        }
        Err(refusal) => {
            report.send(&Event::Refused(refusal));
            sys::exit_now(125)
        }
    }
}

fn start(
    order: &Order,
    cgroup: &[PathBuf],
    stdio: [OwnedFd; 3],
    events: &OwnedFd,
    lifeline: &OwnedFd,
) -> Result<Pid, Refusal> {
    let step = |what: &'static str| move |why: io::Error| Refusal::new(what, why);
    let and = |what: &'static str| move |why: rustix::io::Errno| Refusal::new(what, why);
    sys::take_stdio(stdio).map_err(step("passing standard input and output on"))?;
    sys::forget_arguments().map_err(step("forgetting the caller's environment"))?;
    sys::close_all_but(&[events.as_fd(), lifeline.as_fd()]).map_err(step("closing inherited descriptors"))?;
    rustix::process::chdir("/").map_err(and("leaving the caller's directory"))?;
    for file in cgroup {
        fs::write(file, "0").map_err(|why| Refusal::new(format!("joining the cgroup {}", file.display()), why))?;
    }
    // No terminal, and a group of its own: `kill 0` reaches nobody else.
    rustix::process::setsid().map_err(and("leaving the caller's session"))?;
    // Orphans of the server become children of this process, which finds them so.
    rustix::process::set_child_subreaper(Some(Pid::INIT)).map_err(and("adopting orphans"))?;
    drop_capabilities(order).map_err(and("dropping capabilities"))?;
    if order.plan.identity.mapping == Mapping::Unprivileged {
        let uid = order.plan.identity.uid;
        enter::become_user(&order.plan.identity).map_err(|why| Refusal::new(format!("becoming uid {uid}"), why))?;
        reach(order)?;
    }
    match sys::fork_unchecked().map_err(step("forking the server's process"))? {
        Fork::Child => {
            // Set by the child for itself: it is cleared at a fork.
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            server::start(order, None, events, lifeline, None)
        }
        Fork::Parent(server) => {
            rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
                .map_err(and("closing the keeper to its children"))?;
            Ok(server)
        }
    }
}

/// Everything but the right to become the run's user, which goes with the uid.
fn drop_capabilities(order: &Order) -> rustix::io::Result<()> {
    let last = 63;
    for number in 0..=last {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Without the right to, there is none to be had either: an ordinary user. Beyond the last one that the kernel
            // knows: EINVAL.
            Err(rustix::io::Errno::PERM | rustix::io::Errno::INVAL) => break,
            Err(why) => return Err(why),
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    let kept = match order.plan.identity.mapping {
        // The effective ones go with root's uid.
        Mapping::Unprivileged => rustix::thread::capabilities(None)?,
        Mapping::Caller | Mapping::Root => CapabilitySets { effective: none, permitted: none, inheritable: none },
    };
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: none, ..kept })
}

/// Whether the unprivileged user that root's server is can get to the package at all.
fn reach(order: &Order) -> Result<(), Refusal> {
    let tree = &order.plan.tree;
    fs::read_dir(tree).map(drop).map_err(|why| {
        Refusal::new(format!("the package's tree {}, as uid {}", tree.display(), order.plan.identity.uid), why).hint(
            "run smcp as an ordinary user, name a cache that every user can reach by MCP_CACHE_DIR, or accept the server as root by --user root",
        )
    })
}
