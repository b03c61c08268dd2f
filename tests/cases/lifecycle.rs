//! From the start to the last process: the ladder, signals, and what may be left, which is nothing.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::image::probe_reference;
use crate::probe::noise;
use crate::processes::{marked, none_left};
use crate::world::{World, as_each_user};

const MIB: usize = 1 << 20;
/// One step of the ladder.
const GRACE: Duration = Duration::from_secs(2);
/// What the work around a wait may take on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

as_each_user! {
    l1_the_end_of_stdin_lets_the_server_end,
    l3_a_server_that_stays_gets_sigterm,
    l3_a_handler_of_sigterm_decides_the_code,
    l2_a_stubborn_tree_is_killed,
    l1_sigterm_walks_the_ladder,
    l11_every_signal_that_ends_walks_the_ladder,
    l1_sigkill_of_smcp_ends_the_tree,
    l1_sigkill_during_the_start_leaves_nothing,
    l1_a_signal_during_the_start_leaves_no_half_built_cage,
    l11_stop_and_continue_lose_nothing,
    l5_many_start_at_once,
    l1_a_run_leaves_nothing_behind,
    l4_five_hundred_orphans_leave_no_zombie,
    l6_the_code_does_not_wait_for_the_client,
    l6_what_was_written_before_the_end_arrives,
    l7_a_limit_of_time_stands_in_the_log,
    l12_no_cgroup_is_left,
}

/// A server that ends when its stdin does is given the time to.
fn l1_the_end_of_stdin_lets_the_server_end(world: &World) {
    let mut running = world.caged(&[], &["until-eof", "6"]).start();
    running.await_ready();
    drop(running.take_stdin());
    let ended = running.wait().expect(6);
    assert!(ended.took() < GRACE, "{:?}", ended.took());
}

/// A server that does not, and has no handlers, gets SIGTERM: as the first process of its namespace it would ignore
/// that (L3).
fn l3_a_server_that_stays_gets_sigterm(world: &World) {
    let mut running = world.caged(&[], &["hang", world.mark()]).start();
    running.await_ready();
    let closed = Instant::now();
    drop(running.take_stdin());
    running.wait().expect(143);
    assert!(closed.elapsed() >= GRACE && closed.elapsed() < GRACE + SLACK, "{:?}", closed.elapsed());
    none_left(world, Duration::from_secs(1));
    assert_eq!(world.last_end()["ended_by"], "sigterm");
}

/// SIGTERM can be caught and answered by a code.
fn l3_a_handler_of_sigterm_decides_the_code(world: &World) {
    let mut running = world.caged(&[], &["on-term", "21"]).start();
    running.await_ready();
    drop(running.take_stdin());
    running.wait().expect(21);
}

/// A tree that ignores everything, in sessions of its own, is killed as a whole (L2).
fn l2_a_stubborn_tree_is_killed(world: &World) {
    let mut running = world.caged(&[], &["family", "5", world.mark()]).start();
    running.await_ready();
    let closed = Instant::now();
    drop(running.take_stdin());
    let ended = running.wait().expect(137);
    let took = closed.elapsed();
    ended.check(
        took >= GRACE * 2 && took < GRACE * 2 + SLACK,
        &format!("two steps of the ladder were expected, not {took:?}"),
    );
    none_left(world, Duration::from_secs(1));
    assert_eq!(world.last_end()["ended_by"], "sigkill");
}

/// SIGTERM to smcp walks the ladder from its first step, and a second one is no crash.
fn l1_sigterm_walks_the_ladder(world: &World) {
    let mut running = world.caged(&[], &["until-eof", "0"]).start();
    let stdin = running.take_stdin();
    running.await_ready();
    let asked = Instant::now();
    running.signal(Signal::TERM);
    let ended = running.wait();
    drop(stdin);
    ended.check([0, 143].contains(&ended.code()), "the server's code, or SIGTERM's, was expected");
    assert!(asked.elapsed() < GRACE + SLACK, "{:?}", asked.elapsed());
    assert_eq!(world.last_end()["exit"], ended.code());
}

/// The same for a tree that ignores it, and for HUP and INT (L11).
fn l11_every_signal_that_ends_walks_the_ladder(world: &World) {
    thread::scope(|scope| {
        for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
            scope.spawn(move || {
                let mut running = world.caged(&[], &["family", "2", world.mark()]).start();
                let stdin = running.take_stdin();
                running.await_ready();
                let asked = Instant::now();
                running.signal(signal);
                running.wait().expect(137);
                drop(stdin);
                assert!(asked.elapsed() < GRACE * 2 + SLACK, "{signal:?}: {:?}", asked.elapsed());
            });
        }
    });
    none_left(world, Duration::from_secs(1));
}

/// SIGKILL of smcp, which it cannot answer, ends the tree within a second all the same (L1).
fn l1_sigkill_of_smcp_ends_the_tree(world: &World) {
    let mut running = world.caged(&[], &["family", "5", world.mark()]).start();
    let stdin = running.take_stdin();
    running.await_ready();
    assert!(marked(world).len() >= 7, "smcp, the server and its children: {:?}", marked(world));
    running.signal(Signal::KILL);
    none_left(world, Duration::from_secs(1));
    drop(stdin);
}

/// The same at every point of the start: after 1 ms, 2 ms and so on.
fn l1_sigkill_during_the_start_leaves_nothing(world: &World) {
    for milliseconds in 0..30 {
        let running = world.caged(&[], &["family", "1", world.mark()]).start();
        // Not a wait for something: the moment is the input.
        thread::sleep(Duration::from_millis(milliseconds));
        running.signal(Signal::KILL);
        none_left(world, Duration::from_secs(1));
    }
    world.caged(&[], &["exit", "0"]).run().ok();
}

/// A cage that is not built yet has no mark among its arguments: it is known by the program, a copy of this world alone.
fn l1_a_signal_during_the_start_leaves_no_half_built_cage(world: &World) {
    let copy = world.path("project/smcp");
    // By another program: a descriptor that this one has open for writing may be in a child of another test by then.
    world.program("/bin/cp", [crate::place::smcp(), &copy]).run().ok();
    let left = || {
        let entries = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
        entries.filter(|entry| std::fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == copy)).count()
    };
    world.program(&copy, ["pull", probe_reference()]).run().ok();
    for (half_milliseconds, signal) in (0..60).flat_map(|at| [(at, Signal::KILL), (at, Signal::TERM)]) {
        let running = world.program(&copy, ["run", probe_reference(), "until-eof", "0"]).start();
        // Not a wait for something: the moment is the input.
        thread::sleep(Duration::from_micros(500 * half_milliseconds));
        running.signal(signal);
        running.wait();
    }
    let gone = crate::patience::within(Duration::from_secs(1), || (left() == 0).then_some(()));
    assert!(gone.is_some(), "{} processes are left", left());
}

/// A stopped smcp goes on (L11).
fn l11_stop_and_continue_lose_nothing(world: &World) {
    let mut running = world.caged(&[], &["until-eof", "4"]).start();
    running.await_ready();
    running.signal(Signal::STOP);
    drop(running.take_stdin());
    running.signal(Signal::CONT);
    running.wait().expect(4);
}

/// 12 at once, from a program with threads (L5).
fn l5_many_start_at_once(world: &World) {
    world.smcp(["pull", probe_reference()]).run().ok();
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| world.caged(&[], &["exit", "3"]).run().expect(3));
        }
    });
    let ends = world.audit().iter().filter(|e| e["event"] == "end" && e["exit"] == 3).count();
    assert_eq!(ends, 12, "{}", world.audit_text());
}

/// A run leaves no temporary file, and no mount outside its namespace (L1).
fn l1_a_run_leaves_nothing_behind(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    let (before, state) = (world.store_listing(), names(world));
    world.caged(&["--allow-write", &world.text("project")], &["exit", "0"]).run().ok();
    assert_eq!(world.store_listing(), before);
    assert_eq!(names(world), state);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(world.path("").to_str().unwrap()), "{mounts}");
}

/// L4.
fn l4_five_hundred_orphans_leave_no_zombie(world: &World) {
    let answer = world.caged(&[], &["orphans", "500"]).run().ok();
    answer.check(answer.json()["zombies"] == 0, "no zombies were expected");
}

/// The code is there at once, though the client keeps stdin open (L6).
fn l6_the_code_does_not_wait_for_the_client(world: &World) {
    let mut running = world.caged(&[], &["exit", "42"]).start();
    let stdin = running.take_stdin();
    running.wait().expect(42);
    drop(stdin);
}

/// A server that writes and ends at once, while the client keeps stdin open (L6).
fn l6_what_was_written_before_the_end_arrives(world: &World) {
    let mut running = world.caged(&[], &["pour", &(5 * MIB).to_string(), "17"]).start();
    let stdin = running.take_stdin();
    let ended = running.wait().ok();
    drop(stdin);
    ended.check(ended.stdout() == noise(5 * MIB, 17), "the server's noise was expected");
}

fn l7_a_limit_of_time_stands_in_the_log(world: &World) {
    let mut running = world.caged(&["--timeout", "1s"], &["hang", world.mark()]).start();
    let stdin = running.take_stdin();
    running.await_ready();
    running.wait().expect(124).explains(&["--timeout", "1 s"]);
    drop(stdin);
    let end = world.last_end();
    assert_eq!((&end["cause"], &end["limit"]), (&json!("timeout"), &json!({"name": "timeout", "value": 1})));
}

/// Neither after a run nor after a limit, and what a killed smcp left is removed by the next start (L12).
fn l12_no_cgroup_is_left(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    let mut running = world.caged(&[], &["hang", world.mark()]).start();
    running.await_ready();
    running.signal(rustix::process::Signal::KILL);
    none_left(world, Duration::from_secs(1));
    // What was just made is left alone by others.
    std::thread::sleep(Duration::from_millis(1100));
    world.caged(&[], &["exit", "0"]).run().ok();
    let left: Vec<String> = world
        .audit()
        .iter()
        .filter_map(|entry| entry["run"].as_str().map(|run| format!("smcp-{run}")))
        .filter(|name| {
            let found = world.program("/usr/bin/find", ["/sys/fs/cgroup", "-type", "d", "-name", name]).run();
            !found.stdout().is_empty()
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The paths below a world, without the store, the logs and what is inside files.
fn names(world: &World) -> Vec<String> {
    let listed = world
        .program("/usr/bin/find", [world.path("")])
        .args(["-not", "-path", "*/cache/*", "-not", "-path", "*/log/*"])
        .run()
        .ok();
    let mut names: Vec<_> = listed.text().lines().map(str::to_owned).collect();
    names.sort();
    names
}
