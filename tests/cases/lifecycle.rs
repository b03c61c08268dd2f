//! From the start to the last process: the ladder, signals, and what may be left, which is nothing.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::image::probe_reference;
use crate::processes::{marked, none_left};
use crate::world::{World, as_each_user};

/// One step of the ladder.
const GRACE: Duration = Duration::from_secs(2);
/// What the work around a wait may take on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

as_each_user! {
    the_end_of_stdin_lets_the_server_end,
    a_server_that_stays_gets_sigterm,
    a_handler_of_sigterm_decides_the_code,
    a_stubborn_tree_is_killed,
    sigterm_walks_the_ladder,
    every_signal_that_ends_walks_the_ladder,
    sigkill_of_smcp_ends_the_tree,
    sigkill_during_the_start_leaves_nothing,
    a_signal_during_the_start_leaves_no_half_built_cage,
    stop_and_continue_lose_nothing,
    orphans_are_reaped,
    many_start_at_once,
    a_run_leaves_nothing_behind,
    private_files_end_with_the_run,
}

/// A server that ends when its stdin does is given the time to.
fn the_end_of_stdin_lets_the_server_end(world: &World) {
    let mut running = world.caged(&[], &["until-eof", "6"]).start();
    running.await_ready();
    drop(running.take_stdin());
    let ended = running.wait().expect(6);
    assert!(ended.took() < GRACE, "{:?}", ended.took());
}

/// A server that does not, and has no handlers, gets SIGTERM: as the first process of its namespace it would ignore
/// that (L3).
fn a_server_that_stays_gets_sigterm(world: &World) {
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
fn a_handler_of_sigterm_decides_the_code(world: &World) {
    let mut running = world.caged(&[], &["on-term", "21"]).start();
    running.await_ready();
    drop(running.take_stdin());
    running.wait().expect(21);
}

/// A tree that ignores everything, in sessions of its own, is killed as a whole (L2).
fn a_stubborn_tree_is_killed(world: &World) {
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
fn sigterm_walks_the_ladder(world: &World) {
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
fn every_signal_that_ends_walks_the_ladder(world: &World) {
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
fn sigkill_of_smcp_ends_the_tree(world: &World) {
    let mut running = world.caged(&[], &["family", "5", world.mark()]).start();
    let stdin = running.take_stdin();
    running.await_ready();
    assert!(marked(world).len() >= 7, "smcp, the server and its children: {:?}", marked(world));
    running.signal(Signal::KILL);
    none_left(world, Duration::from_secs(1));
    drop(stdin);
}

/// The same at every point of the start: after 1 ms, 2 ms and so on.
fn sigkill_during_the_start_leaves_nothing(world: &World) {
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
fn a_signal_during_the_start_leaves_no_half_built_cage(world: &World) {
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
fn stop_and_continue_lose_nothing(world: &World) {
    let mut running = world.caged(&[], &["until-eof", "4"]).start();
    running.await_ready();
    running.signal(Signal::STOP);
    drop(running.take_stdin());
    running.signal(Signal::CONT);
    running.wait().expect(4);
}

/// Orphans are reaped while the server runs (L4).
fn orphans_are_reaped(world: &World) {
    let answer = world.caged(&[], &["orphans", "200"]).run().ok();
    answer.check(answer.json()["zombies"] == 0, "no zombies were expected");
}

/// 12 at once, from a program with threads (L5).
fn many_start_at_once(world: &World) {
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
fn a_run_leaves_nothing_behind(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    let (before, state) = (world.store_listing(), names(world));
    world.caged(&["--allow-write", &world.text("project")], &["exit", "0"]).run().ok();
    assert_eq!(world.store_listing(), before);
    assert_eq!(names(world), state);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(world.path("").to_str().unwrap()), "{mounts}");
}

/// What a server writes is gone with the run, HOME and /tmp included (E16).
fn private_files_end_with_the_run(world: &World) {
    for file in [world.text("home/note"), format!("/tmp/note-{}", world.mark())] {
        let file = file.as_str();
        world.caged(&[], &["write", file, "x"]).run().ok();
        world.caged(&[], &["read", file]).run().expect(crate::probe::REFUSED);
        assert!(!std::path::Path::new(file).exists(), "{file} is on the host");
    }
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
