//! Runs whose smcp was killed: the next start writes their ends (L12).

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::command::Running;
use crate::processes::none_left;
use crate::run_audit::chain;
use crate::world::{World, as_each_user};

as_each_user! {
    l12_a_killed_run_gets_its_end_from_the_next_start,
    one_that_lives_is_left_alone,
    many_starts_write_one_end,
    a_kill_at_any_moment_leaves_one_end,
    the_end_goes_to_the_log_that_has_the_begin,
    a_log_that_is_gone_gets_none,
}

/// A run that hangs until its smcp is killed; gives its id.
fn killed(world: &World) -> Value {
    let mut running = hanging(world);
    let stdin = running.take_stdin();
    running.signal(Signal::KILL);
    running.wait_killed();
    drop(stdin);
    none_left(world, Duration::from_secs(5));
    world.audit().last().expect("it began")["run"].clone()
}

fn hanging(world: &World) -> Running {
    let mut running = world.caged(&[], &["hang", world.mark()]).start();
    running.await_ready();
    running
}

fn ends_of(world: &World, run: &Value) -> Vec<Value> {
    world.audit().into_iter().filter(|entry| entry["event"] == "end" && entry["run"] == *run).collect()
}

/// The files of runs under way.
fn underway(world: &World) -> usize {
    fs::read_dir(world.path("state/smcp/runs")).map_or(0, Iterator::count)
}

fn l12_a_killed_run_gets_its_end_from_the_next_start(world: &World) {
    let run = killed(world);
    assert_eq!((ends_of(world, &run).len(), underway(world)), (0, 1), "{}", world.audit_text());
    world.caged(&[], &["exit", "0"]).run().ok();
    let [end] = ends_of(world, &run).try_into().unwrap();
    assert_eq!((&end["cause"], &end["exit"]), (&json!("lost"), &json!(137)));
    assert!(end["error"].is_string() && end["duration_ms"].is_null(), "{end}");
    world.last_end();
    assert_eq!(chain(world).len(), 4);
    assert_eq!(underway(world), 0);
    world.caged(&[], &["exit", "0"]).run().ok();
    assert_eq!(ends_of(world, &run).len(), 1, "{}", world.audit_text());
}

fn one_that_lives_is_left_alone(world: &World) {
    let mut running = hanging(world);
    let run = world.audit().last().unwrap()["run"].clone();
    world.caged(&[], &["exit", "0"]).run().ok();
    assert_eq!((ends_of(world, &run).len(), underway(world)), (0, 1));
    drop(running.take_stdin());
    running.wait().expect(143);
    assert_eq!(ends_of(world, &run)[0]["cause"], "client-closed");
    assert_eq!((ends_of(world, &run).len(), underway(world)), (1, 0));
}

fn many_starts_write_one_end(world: &World) {
    world.smcp(["pull", crate::image::probe_reference()]).run().ok();
    let runs = [killed(world), killed(world), killed(world)];
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| world.caged(&[], &["exit", "0"]).run().ok());
        }
    });
    for run in runs {
        assert_eq!(ends_of(world, &run).len(), 1, "{}", world.audit_text());
    }
    chain(world);
    assert_eq!(underway(world), 0);
}

/// From before the begin to after the end: each begin has one end, and each end its begin.
fn a_kill_at_any_moment_leaves_one_end(world: &World) {
    for milliseconds in 0..40 {
        let mut running = world.caged(&[], &["until-eof", "0"]).start();
        drop(running.take_stdin());
        // Not a wait for something: the moment is the input.
        thread::sleep(Duration::from_millis(milliseconds));
        running.signal(Signal::KILL);
        running.wait_killed();
    }
    world.caged(&[], &["exit", "0"]).run().ok();
    world.last_end();
    let entries = chain(world);
    let count = |event: &str| entries.iter().filter(|entry| entry["event"] == event).count();
    assert_eq!(count("begin"), count("end"));
    assert_eq!(underway(world), 0);
    world.smcp(["audit", "verify"]).run().ok();
}

fn the_end_goes_to_the_log_that_has_the_begin(world: &World) {
    let run = killed(world);
    let other = world.path("log/other.log");
    world.caged(&[], &["exit", "0"]).env("MCP_AUDIT_LOG_FILE", &other).run().ok();
    assert_eq!(ends_of(world, &run)[0]["cause"], "lost");
    chain(world);
    assert_eq!(fs::read_to_string(other).unwrap().lines().count(), 2);
}

/// An end without its begin would tell nobody anything.
fn a_log_that_is_gone_gets_none(world: &World) {
    killed(world);
    fs::remove_file(world.path("log/audit.log")).unwrap();
    world.caged(&[], &["exit", "0"]).run().ok();
    assert_eq!(world.audit().len(), 2, "{}", world.audit_text());
    assert_eq!(underway(world), 0);
}
