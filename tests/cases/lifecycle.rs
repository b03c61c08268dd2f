//! From the start to the last process: the ladder, signals, and what may be left, which is nothing.

use std::fs;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::Host;
use crate::image::{Image, probe_reference};
use crate::needs;
use crate::patience::within;
use crate::probe::{self, noise};
use crate::processes::{marked, none_left};
use crate::remains::{Before, own_copy};
use crate::servers::pypi;
use crate::world::{World, at_each_tier};

const MIB: usize = 1 << 20;
/// One step of the ladder.
const GRACE: Duration = Duration::from_secs(2);
/// What the work around a wait may take on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

at_each_tier! {
    l1_the_end_of_stdin_lets_the_server_end,
    l3_a_server_that_stays_gets_sigterm,
    l3_a_handler_of_sigterm_decides_the_code,
    l2_a_stubborn_tree_is_killed,
    l1_sigterm_walks_the_ladder,
    l1_every_end_leaves_nothing,
    l1_a_signal_during_the_start_leaves_nothing,
    l4_five_hundred_orphans_leave_no_zombie,
    l5_two_hundred_starts_in_a_row,
    l5_thirty_two_starts_at_once,
    l6_a_server_that_ends_by_itself_is_heard_to_its_end,
    l7_every_cause_is_named,
    l9_an_idle_session_stays_up,
    l10_a_fastmcp_server_stays_up,
    l11_a_stopped_smcp_goes_on,
    l11_hup_and_int_walk_the_ladder,
    l11_an_interrupt_on_a_terminal_walks_the_ladder,
    l11_a_resized_terminal_changes_nothing,
    l12_the_next_run_cleans_up,
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

/// Whoever ends it, after the ladder and a second nothing is left, and a second after SIGKILL of smcp.
fn l1_every_end_leaves_nothing(world: &World) {
    let smcp = own_copy(world);
    let grant = world.text("project");
    world.caged(&[], &["exit", "0"]).run().ok();
    let before = Before::of(world);
    let probe = probe_reference();
    let run = ["run", "--allow-write", &grant, probe, "family", "5", world.mark()];
    let ladder = GRACE * 2 + Duration::from_secs(1);
    for (end, patience) in [
        (End::Eof, ladder),
        (End::Smcp(Signal::TERM), ladder),
        (End::Smcp(Signal::KILL), Duration::from_secs(1)),
        (End::Client, ladder),
    ] {
        let mut running = match end {
            End::Client => world.copy(&smcp, run).held_by_a_client().start(),
            _ => world.copy(&smcp, run).start(),
        };
        running.await_ready();
        assert!(marked(world).len() >= 7, "smcp, the server and its children: {:?}", marked(world));
        let stdin = running.take_stdin();
        match end {
            End::Eof => drop(stdin),
            End::Smcp(signal) => running.signal(signal),
            End::Client => running.signal(Signal::KILL),
        }
        before.nothing_is_left(patience + SLACK);
    }
    before.the_next_start_removes_the_rest();
}

/// Who ends a run, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Eof,
    Smcp(Signal),
    Client,
}

/// The same at every point of the start.
fn l1_a_signal_during_the_start_leaves_nothing(world: &World) {
    let smcp = own_copy(world);
    world.caged(&[], &["exit", "0"]).run().ok();
    let before = Before::of(world);
    for (half_milliseconds, signal) in (0..60).flat_map(|at| [(at, Signal::KILL), (at, Signal::TERM)]) {
        let mut running = world.copy(&smcp, ["run", probe_reference(), "family", "1", world.mark()]).start();
        let stdin = running.take_stdin();
        // Not a wait for something: the moment is the input.
        thread::sleep(Duration::from_micros(500 * half_milliseconds));
        running.signal(signal);
        // SIGTERM may come to a server that is deaf to it already.
        if signal == Signal::KILL || running.ends_within(Duration::from_millis(20)) {
            before.nothing_is_left(Duration::from_secs(1));
        }
        drop(stdin);
    }
    before.nothing_is_left(GRACE * 2 + Duration::from_secs(1));
    before.the_next_start_removes_the_rest();
}

/// None while the server runs, and none after, as the machine counts them.
fn l4_five_hundred_orphans_leave_no_zombie(world: &World) {
    // A name of this world's own: a zombie has no arguments to be known by. The kernel keeps 15 bytes.
    let name = format!("o{}", world.mark().trim_start_matches("mark").trim_end_matches('-'));
    let program = format!("usr/bin/{name}");
    let package = Image::probe()
        .file(&program, 0o755, fs::read(probe::path()).expect("it was compiled"))
        .manifest(|m| m["entrypoint"]["args"][0] = json!(format!("/{program}")))
        .build()
        .write(&world.directory("orphans"));
    let mut running = world.smcp(["run", &package, "orphans", "500"]).start();
    running.await_ready();
    let zombies = || named(&name).into_iter().filter(|stat| stat.contains(") Z ")).collect::<Vec<_>>();
    assert!(!named(&name).is_empty(), "the server itself has another name than {name}");
    let reaped = within(Duration::from_secs(5), || zombies().is_empty().then_some(()));
    assert!(reaped.is_some(), "zombies while it runs: {:#?}", zombies());
    drop(running.take_stdin());
    running.wait().ok();
    let left = within(Duration::from_secs(1), || named(&name).is_empty().then_some(()));
    assert!(left.is_some(), "{:?}", named(&name));
}

/// What the kernel says of every process of this name, zombies included.
fn named(name: &str) -> Vec<String> {
    assert!(name.len() <= 15, "{name} is cut by the kernel");
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let stats = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(&format!("({name})"))).collect()
}

/// From this program, which has many threads.
fn l5_two_hundred_starts_in_a_row(world: &World) {
    for _ in 0..200 {
        world.caged(&[], &["exit", "3"]).run().expect(3);
    }
    assert_eq!(ends(world, 3), 200);
}

fn l5_thirty_two_starts_at_once(world: &World) {
    world.smcp(["pull", probe_reference()]).run().ok();
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| world.caged(&[], &["exit", "3"]).run().expect(3));
        }
    });
    assert_eq!(ends(world, 3), 32);
}

/// How many runs the log says ended with this code.
fn ends(world: &World, code: i32) -> usize {
    world.audit().iter().filter(|entry| entry["event"] == "end" && entry["exit"] == code).count()
}

/// The client keeps stdin open: the end of stdout, all of the bytes and the code come all the same.
fn l6_a_server_that_ends_by_itself_is_heard_to_its_end(world: &World) {
    let mut running = world.caged(&[], &["pour", &(5 * MIB).to_string(), "17", "42"]).start();
    let stdin = running.take_stdin();
    let ended = running.wait().expect(42);
    drop(stdin);
    ended.check(ended.stdout() == noise(5 * MIB, 17), "the server's noise was expected");
    assert_eq!(world.last_end()["exit"], 42);
}

/// The exit code as documented; the cause, and for a limit its value, on stderr and in the log.
fn l7_every_cause_is_named(world: &World) {
    let limit = |name: &str, value: u32| json!({"name": name, "value": value});
    let cases = [
        ("", "raise 11", 139, "SIGSEGV", "signal", Value::Null),
        ("--memory 64M", "hog 1000 1", 137, "64M", "memory", limit("memory", 64 << 20)),
        ("--cpu-time 1s", "spin 2 30", 137, "1 s", "cpu-time", limit("cpu-time", 1)),
        ("--timeout 1s", "hang", 124, "1 s", "timeout", limit("timeout", 1)),
    ];
    for (flags, verb, code, word, cause, limit) in cases {
        let flags: Vec<_> = flags.split_whitespace().collect();
        let verb: Vec<_> = verb.split_whitespace().chain([world.mark()]).collect();
        let mut running = world.caged(&flags, &verb).start();
        let stdin = running.take_stdin();
        let ended = running.wait().expect(code);
        drop(stdin);
        ended.says(&[word]);
        ended.says(flags.get(..1).unwrap_or_default());
        let end = world.last_end();
        assert_eq!((&end["cause"], &end["exit"], &end["limit"]), (&json!(cause), &json!(code), &limit), "{end}");
        assert!(end["error"].as_str().is_some_and(|error| error.contains(word)), "{end}");
        none_left(world, Duration::from_secs(1));
    }
}

/// Hours cannot be waited for. What would end such a session is the clock of the run, which is set to 24 hours, and the
/// looks of the guard and the turns of the relay, of which some seconds hold dozens.
fn l9_an_idle_session_stays_up(world: &World) {
    let mut running = world.caged(&[], &["cat"]).start();
    let mut stdin = running.take_stdin();
    // Not a wait for something: to be idle is the input.
    assert!(!running.ends_within(Duration::from_secs(4)), "an idle session was ended");
    stdin.write_all(b"{\"still\":\"here\"}\n").expect("the server reads");
    running.await_stdout("the answer", |bytes| bytes == b"{\"still\":\"here\"}\n");
    let begin = world.audit().into_iter().find(|entry| entry["event"] == "begin").expect("it was begun");
    assert_eq!(begin["limits"]["timeoutSeconds"], 24 * 3600, "{begin}");
    drop(stdin);
    running.wait().ok();
}

/// The official SDK's server, which was called FastMCP, by the machine's python: it answers after having been left alone
/// while stdin was open, and ends when it is closed.
fn l10_a_fastmcp_server_stays_up(world: &World) {
    let Some(python) = needs::program("python3", "python3") else { return };
    let packages = pypi();
    let packages = packages.to_str().expect("UTF-8");
    let script = "from mcp.server.mcpserver import MCPServer; MCPServer('stays').run()";
    let flags = ["--mount", packages, "--env", &format!("PYTHONPATH={packages}")];
    let mut running = Host::of(world).caged(&flags, [python.as_os_str(), "-c".as_ref(), script.as_ref()]).start();
    let mut stdin = running.take_stdin();
    let mut ask = |line: Value| stdin.write_all(format!("{line}\n").as_bytes()).expect("the server reads");
    ask(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}));
    running.await_stdout("the first answer", |bytes| holds(bytes, "stays"));
    ask(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    // Not a wait for something: to be idle is the input.
    assert!(!running.ends_within(Duration::from_secs(2)), "the server ended while stdin was open");
    ask(json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}));
    running.await_stdout("the second answer", |bytes| holds(bytes, "\"id\":2"));
    drop(stdin);
    running.wait().ok();
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

/// While smcp is stopped nothing passes, and the server waits at its pipes; nothing is lost when it goes on.
fn l11_a_stopped_smcp_goes_on(world: &World) {
    let (sent, said) = (noise(4 * MIB, 29), noise(4 * MIB, 31));
    let mut running = world.caged(&[], &["duplex", &said.len().to_string(), "31"]).start();
    let mut stdin = running.take_stdin();
    stdin.write_all(&sent[..MIB]).expect("the server reads");
    running.await_stdout("the beginning", |bytes| bytes.len() >= MIB);
    running.signal(Signal::STOP);
    let passed = running.settled_stdout();
    // More than all the pipes on the way hold would be stuck, so from a thread of its own.
    let rest = sent[MIB..].to_vec();
    let writer = thread::spawn(move || stdin.write_all(&rest).map(|()| drop(stdin)));
    assert_eq!(running.settled_stdout(), passed, "a stopped smcp passed something on");
    assert!(!running.has_ended() && !writer.is_finished());
    running.signal(Signal::CONT);
    writer.join().expect("it does not panic").expect("the server reads");
    let ended = running.wait().ok();
    ended.check(ended.stdout() == said, "all that the server wrote was expected");
    let heard = json!({"bytes": sent.len(), "sum": format!("{:016x}", probe::sum(&sent))});
    ended.check(ended.stderr().contains(&heard["sum"].to_string()), "the server should have heard all");
}

/// HUP and INT end it by the ladder as TERM does, also a tree that ignores them.
fn l11_hup_and_int_walk_the_ladder(world: &World) {
    thread::scope(|scope| {
        for signal in [Signal::HUP, Signal::INT] {
            scope.spawn(move || {
                let mut running = world.caged(&[], &["family", "2", world.mark()]).start();
                let stdin = running.take_stdin();
                running.await_ready();
                let asked = Instant::now();
                running.signal(signal);
                running.wait().expect(137);
                drop(stdin);
                let took = asked.elapsed();
                assert!(took >= GRACE && took < GRACE * 2 + SLACK, "{signal:?}: {took:?}");
            });
        }
    });
    none_left(world, Duration::from_secs(1));
    for end in world.audit().iter().filter(|entry| entry["event"] == "end") {
        assert_eq!((&end["ended_by"], &end["cause"]), (&json!("sigkill"), &json!("terminated")), "{end}");
    }
}

/// Ctrl-C reaches everything in the foreground of a terminal: smcp ends the server, which does not get it itself.
fn l11_an_interrupt_on_a_terminal_walks_the_ladder(world: &World) {
    let Some(script) = needs::program("script", "bsdutils") else { return };
    let line = format!("exec {} run {} on-term 21", crate::place::smcp().display(), probe_reference());
    let mut running = world.program(script, ["--quiet", "--return", "--command", &line, "/dev/null"]).start();
    let mut stdin = running.take_stdin();
    running.await_ready();
    stdin.write_all(b"\x03").expect("script reads");
    running.wait().expect(21);
    drop(stdin);
    let end = world.last_end();
    assert_eq!((&end["ended_by"], &end["cause"]), (&json!("sigterm"), &json!("terminated")), "{end}");
}

fn l11_a_resized_terminal_changes_nothing(world: &World) {
    let sent = noise(2 * MIB, 37);
    let mut running = world.caged(&[], &["cat"]).start();
    let mut stdin = running.take_stdin();
    for part in sent.chunks(MIB / 4) {
        running.signal(Signal::WINCH);
        stdin.write_all(part).expect("the server reads");
    }
    drop(stdin);
    let ended = running.wait().ok();
    ended.check(ended.stdout() == sent, "the bytes that were sent were expected");
}

/// SIGKILL in the middle of a run; what it left is gone with the next one's start, and the granted directory holds what
/// was there.
fn l12_the_next_run_cleans_up(world: &World) {
    let smcp = own_copy(world);
    let grant = world.text("project");
    world.file("project/note", "mine");
    world.caged(&[], &["exit", "0"]).run().ok();
    let before = Before::of(world);
    for _ in 0..3 {
        let probe = probe_reference();
        let run = ["run", "--cwd", &grant, "--mount", &grant, probe, "family", "2", world.mark()];
        let mut running = world.copy(&smcp, run).start();
        running.await_ready();
        running.signal(Signal::KILL);
        before.nothing_is_left(Duration::from_secs(1));
    }
    before.the_next_start_removes_the_rest();
    assert_eq!(fs::read_to_string(world.path("project/note")).unwrap(), "mine");
}
