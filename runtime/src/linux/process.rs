//! `smcp cage`: the hidden, single-threaded process that builds the container and then ends.

use std::fs;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;

use super::init::Init;
use super::wire::{Event, Order, Refusal, Reporter, chain};
use super::{enter, root, sys};
use crate::config::{self, Scope};

/// The numbers of the descriptors that the supervisor hands over.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// A sealed memfd with the order.
    pub order: i32,
    /// Write end of the event pipe.
    pub events: i32,
    /// Read end of the pipe whose only writer is the supervisor.
    pub lifeline: i32,
}

/// Builds the cage whose order is inherited. The exit code is 0 where the container's init runs, else 125; what went
/// wrong goes to the supervisor as an event.
pub fn main(inherited: Inherited) -> u8 {
    let take = |fd| sys::inherited(fd);
    let (Ok(order), Ok(events), Ok(lifeline)) =
        (take(inherited.order), take(inherited.events), take(inherited.lifeline))
    else {
        eprintln!("error: `smcp cage` is started by `smcp run` alone");
        return 125;
    };
    match build(order, &events, lifeline) {
        Ok(()) => 0,
        Err(refusal) => {
            Reporter(&events).send(&Event::Refused(refusal));
            125
        }
    }
}

fn build(order: OwnedFd, events: &OwnedFd, lifeline: OwnedFd) -> Result<(), Refusal> {
    use std::os::fd::AsFd;
    sys::close_all_but(&[order.as_fd(), events.as_fd(), lifeline.as_fd()])
        .map_err(|why| Refusal::new("closing inherited descriptors", why))?;
    let order = Order::read(order).map_err(|why| Refusal::new("reading the order", why))?;
    // Before the cgroup namespace is entered, whose root it becomes: no path shows inside.
    for file in &order.cgroup {
        fs::write(file, "0").map_err(|why| Refusal::new(format!("joining the cgroup {}", file.display()), why))?;
    }
    let sources = enter::enter(&order.plan)?;
    let root = root::assemble(&order.plan, sources)?;
    let config = config::render(&order.plan, &root.directory, Scope::InsideCage);
    fs::write(root.bundle.join("config.json"), config.to_string())
        .map_err(|why| Refusal::new("writing config.json", why))?;
    let init = Init::new(Rc::new(order), events, lifeline).map_err(|why| Refusal::new("preparing PID 1", why))?;
    // From here to the start this process outlives its supervisor: killed in between, it would leave libcontainer's init
    // waiting for ever for a start that nobody gives. Init itself looks at the lifeline first.
    enter::outlive_parent()?;
    let fail = |what: &'static str| move |why: libcontainer::error::LibcontainerError| Refusal::new(what, chain(&why));
    let mut container = ContainerBuilder::new("server".into(), SyscallType::default())
        .with_root_path(&root.state)
        .map_err(fail("preparing the container's state"))?
        .with_executor(init)
        .as_init(&root.bundle)
        .with_systemd(false)
        .with_detach(false)
        // The container's init becomes a child of the supervisor, which waits for it.
        .as_sibling(true)
        .build()
        .map_err(fail("creating the container"))?;
    let pid = container
        .pid()
        .map(|pid| pid.as_raw())
        .ok_or_else(|| Refusal::new("creating the container", "it has no init"))?;
    Reporter(events).send(&Event::Init { pid });
    container.start().map_err(fail("starting the container"))
}
