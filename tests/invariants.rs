//! What holds at every moment, whatever ended a command in the middle: what faults and soaking share.

use std::time::Duration;

use crate::patience::within;
use crate::remains::{mounts, processes};
use crate::world::World;

/// What the last process of a run that was killed may take.
const GONE: Duration = Duration::from_secs(20);

/// Fails unless nothing of the world's runs is left, its store is whole, and its audit log is a chain.
#[track_caller]
pub fn hold(world: &World) {
    are_gone(world, || [processes(world), mounts(world)].concat());
    is_whole(world);
}

/// The same beside a run that goes on, by a program which is not counted: its mounts are there.
#[track_caller]
pub fn hold_beside_another(world: &World) {
    are_gone(world, || processes(world));
    is_whole(world);
}

#[track_caller]
fn are_gone(world: &World, left: impl Fn() -> Vec<String>) {
    let gone = within(GONE, || left().is_empty().then_some(()));
    assert!(gone.is_some(), "left after {GONE:?}: {:#?}\n{}", left(), world.audit_text());
}

/// The same of what is on the disk, while runs go on.
#[track_caller]
pub fn is_whole(world: &World) {
    if world.store().exists() {
        world.smcp(["cache", "verify"]).run().ok();
    }
    if world.path("log/audit.log").exists() {
        world.smcp(["audit", "verify"]).run().ok();
    }
}
