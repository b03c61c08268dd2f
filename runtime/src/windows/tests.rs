//! On a Windows, or under wine: this very program is the server, told by a variable what to do. `conformance/windows/run` runs them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ulid::Ulid;

use super::cage::{Cage, for_a_test};
use super::system::OwnedFd;
use crate::local::{Execute, Local, Place};
use crate::outcome::{How, Outcome};
use crate::plan::{Limit, Watched};
use crate::refusal::NotExecutedKind;
use crate::report::{Layer, Report, Status};

/// What the server does.
const ROLE: &str = "SMCP_TEST_ROLE";

const PATIENCE: Duration = Duration::from_secs(60);

fn limits() -> Watched {
    Watched { memory: 512 << 20, cpu_millis: 1000, cpu_time_seconds: 60, pids: 8, fds: 64, timeout_seconds: 60 }
}

struct World {
    dir: tempfile::TempDir,
    limits: Watched,
    local: Local,
}

impl World {
    /// A server that is this program and does what the role says.
    fn new(role: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let arguments =
            ["--exact", "windows::tests::server", "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec();
        let program = std::env::current_exe().unwrap();
        let local = Local {
            execute: Execute::These([program.clone()].into()),
            program: Some(program),
            arguments,
            workdir: dir.path().to_owned(),
            env: vec![(ROLE.into(), role.into()), ("PATH".into(), String::new())],
            read: BTreeSet::new(),
            ..Local::default()
        };
        World { dir, limits: limits(), local }
    }

    fn start(&self) -> (Cage, Report) {
        let place = Place::make(&self.dir.path().join("private"), Ulid::generate()).unwrap();
        let prepared = for_a_test(&self.local, &self.limits, place).unwrap_or_else(|why| panic!("{why}"));
        let report = prepared.report().clone();
        (prepared.go().unwrap_or_else(|why| panic!("{why}")), report)
    }
}

/// Waits for the end, and keeps watch meanwhile.
fn end(mut cage: Cage) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while !cage.has_ended_within(Duration::from_millis(20)) {
        assert!(Instant::now() < deadline, "it does not end");
        cage.look();
    }
    cage.wait().unwrap().0
}

/// Not a test: the server of the others, which run this one by its name.
#[test]
fn server() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.split(' ');
    match words.next().unwrap() {
        "exit" => std::process::exit(words.next().unwrap().parse().unwrap()),
        "echo" => {
            for line in std::io::stdin().lines() {
                println!("heard {}", line.unwrap());
            }
            std::process::exit(0);
        }
        "memory" => {
            let mut held = Vec::new();
            loop {
                held.push(vec![1_u8; 16 << 20]);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        "children" => {
            let count: usize = words.next().unwrap().parse().unwrap();
            let own = std::env::current_exe().unwrap();
            let children: Vec<_> = (0..count)
                .map(|_| {
                    let mut command = Command::new(&own);
                    command.args(["--exact", "windows::tests::server", "--nocapture"]).env(ROLE, "sleep");
                    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn()
                })
                .collect();
            let ids: Vec<_> = children.iter().flatten().map(|child| child.id().to_string()).collect();
            println!("children {}", ids.join(" "));
            std::thread::sleep(Duration::from_secs(120));
        }
        "sleep" => std::thread::sleep(Duration::from_secs(120)),
        "spin" => loop {
            std::hint::spin_loop();
        },
        other => panic!("{other} is no role"),
    }
}

#[test]
fn an_exit_code_passes_through() {
    for code in [0, 1, 42, 255] {
        let (cage, _) = World::new(&format!("exit {code}")).start();
        assert_eq!(end(cage).how, Some(How::Code(code)));
    }
}

#[test]
fn what_is_said_is_heard_and_the_end_of_input_is_the_end() {
    let (mut cage, report) = World::new("echo").start();
    let mut stdin = cage.stdin.take().and_then(OwnedFd::into_file).unwrap();
    let mut lines =
        BufReader::new(cage.stdout.take().and_then(OwnedFd::into_file).unwrap()).lines().map(Result::unwrap);
    for word in ["one", "two", "ünïcode"] {
        writeln!(stdin, "{word}").unwrap();
        let wanted = format!("heard {word}");
        assert!(lines.any(|line| line.ends_with(&wanted)), "{wanted}");
    }
    drop(stdin);
    assert_eq!(end(cage).how, Some(How::Code(0)));
    assert_eq!(report.status(Layer::Descriptors), Some(&Status::Full));
    assert_eq!(report.status(Layer::Guard), Some(&Status::Full));
    assert!(matches!(report.status(Layer::Egress), Some(Status::Absent(why)) if why.starts_with("unsupported")));
    // What Windows took and nobody can look at is requested, and no more.
    assert!(matches!(report.status(Layer::JobObject), Some(Status::Partial(why)) if why.starts_with("requested")));
}

/// The children of a server that is killed end with it.
#[test]
fn the_whole_tree_ends() {
    let (mut cage, _) = World::new("children 3").start();
    let lines = BufReader::new(cage.stdout.take().and_then(OwnedFd::into_file).unwrap()).lines().map(Result::unwrap);
    let line = lines.into_iter().find_map(|line| Some(line.split_once("children ")?.1.to_owned())).unwrap();
    let ids: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| super::sys::uses(*id).is_some()));
    cage.kill();
    let outcome = end(cage);
    assert_eq!(outcome.how, None, "smcp's own code is not the server's");
    let deadline = Instant::now() + PATIENCE;
    while ids.iter().any(|id| super::sys::uses(*id).is_some()) {
        assert!(Instant::now() < deadline, "children are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn memory_is_held_or_watched() {
    let mut world = World::new("memory");
    world.limits.memory = 128 << 20;
    let (cage, _) = world.start();
    let outcome = end(cage);
    // Windows refuses the memory, and the server ends by itself; or the watch ends it.
    match outcome.limit {
        Some(limit) => assert_eq!(limit, Limit::Memory(128 << 20)),
        None => assert!(outcome.how.is_some_and(|how| how != How::Code(0)), "{outcome:?}"),
    }
}

#[test]
fn processes_are_held_or_watched() {
    let mut world = World::new("children 6");
    world.limits.pids = 3;
    let (mut cage, _) = world.start();
    let mut stdout = cage.stdout.take().and_then(OwnedFd::into_file).unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        text
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    while !cage.has_ended_within(Duration::from_millis(20)) && Instant::now() < deadline {
        cage.look();
    }
    cage.kill();
    let outcome = end(cage);
    let text = reader.join().unwrap();
    let started = text
        .split_once("children ")
        .map_or(usize::MAX, |(_, ids)| ids.lines().next().unwrap_or("").split_whitespace().count());
    assert!(outcome.limit == Some(Limit::Pids(3)) || started <= 2, "{outcome:?} {text}");
}

#[test]
fn cpu_time_is_watched() {
    if std::env::var_os("WINEPREFIX").is_some() {
        println!("not shown under wine: it tells the CPU time of no other process");
        return;
    }
    let mut world = World::new("spin");
    world.limits.cpu_time_seconds = 1;
    let outcome = end(world.start().0);
    assert_eq!(outcome.limit, Some(Limit::CpuTime(1)));
    assert!(outcome.cpu_time >= Duration::from_secs(1));
}

#[test]
fn a_program_that_is_not_there_is_not_found() {
    let mut world = World::new("exit 0");
    world.local.program = Some(PathBuf::from("no-such-program"));
    let outcome = end(world.start().0);
    assert_eq!(outcome.not_executed.map(|why| why.kind), Some(NotExecutedKind::NotFound));
}

/// A batch file would have cmd.exe read its arguments.
#[test]
fn no_batch_file_is_started() {
    let mut world = World::new("exit 0");
    let batch = world.dir.path().join("run.cmd");
    std::fs::write(&batch, "@echo %*\r\n").unwrap();
    world.local.program = Some(batch);
    let outcome = end(world.start().0);
    assert!(outcome.not_executed.is_some_and(|why| why.why.contains("batch file")));
}

/// The server of a real package, by node: `SMCP_TEST_NODE` is its program and `SMCP_TEST_SERVER` its script.
#[test]
fn a_real_server_answers() {
    let (Ok(node), Ok(script)) = (std::env::var("SMCP_TEST_NODE"), std::env::var("SMCP_TEST_SERVER")) else {
        assert!(std::env::var_os("CI").is_none(), "SMCP_TEST_NODE and SMCP_TEST_SERVER name what is run");
        return;
    };
    let mut world = World::new("");
    world.limits.memory = 2 << 30;
    world.local.program = Some(node.into());
    world.local.arguments = vec![script];
    let (mut cage, _) = world.start();
    let mut stdin = cage.stdin.take().and_then(OwnedFd::into_file).unwrap();
    let mut stderr = cage.stderr.take().and_then(OwnedFd::into_file).unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let ask = concat!(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"#,
        r#""clientInfo":{"name":"test","version":"1"}}}"#
    );
    writeln!(stdin, "{ask}").unwrap();
    let mut answer = String::new();
    BufReader::new(cage.stdout.take().and_then(OwnedFd::into_file).unwrap()).read_line(&mut answer).unwrap();
    drop(stdin);
    let deadline = Instant::now() + PATIENCE;
    while !cage.has_ended_within(Duration::from_millis(20)) && Instant::now() < deadline {
        cage.look();
    }
    cage.kill();
    let outcome = end(cage);
    assert!(answer.contains("\"serverInfo\""), "{answer}\n{outcome:?}\n{}", errors.join().unwrap());
}
