//! Hours in minutes: sessions, pulls, gc, rotation of the audit log and violent ends, in turns and at once. Nothing grows: memory and
//! descriptors of a supervisor that lives through it all, processes, mounts, the disk. What [`invariants`] says holds at the end of each turn.
//!
//! The short form takes half a minute; `conformance/soak/run [MINUTES]` the long one.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::command::Running;
use crate::image::{Image, probe_reference};
use crate::invariants;
use crate::needs;
use crate::patience::PATIENCE;
use crate::processes::of_its_own;
use crate::remains::own_copy;
use crate::violent_ends::{Dice, Seed};
use crate::world::{User, World};

/// What memory may differ by: pages come and go.
const PAGES: u64 = 1 << 20;
/// Turns until everything has been made once.
const WARM: usize = 2;

#[test]
fn half_a_minute() {
    soak(&World::new(User::of_the_tests()), Duration::from_secs(20));
}

#[test]
#[ignore = "takes twenty minutes, or as many as SMCP_MINUTES says; conformance/soak/run"]
fn as_long_as_one_likes() {
    let minutes = std::env::var("SMCP_MINUTES").map_or(20, |text| text.parse().expect("SMCP_MINUTES is a number"));
    let each = Duration::from_secs(minutes * 60);
    if needs::root() {
        soak(&World::new(User::Root), each / 2);
    }
    soak(&World::new(User::Ordinary), if needs::root() { each / 2 } else { each });
}

/// What may not grow.
#[derive(Debug)]
struct Use {
    memory: u64,
    descriptors: usize,
    files: usize,
    bytes: u64,
}

fn soak(world: &World, time: Duration) {
    let seed = Seed::chosen();
    let mut dice = Dice(seed.0);
    let smcp = own_copy(world);
    let packages: Vec<String> = (0..4).map(|number| package(world, number)).collect();
    world.smcp(["-q", "pull", probe_reference()]).run().ok();
    // This one lives through all of it, by a program that is not counted among what must be gone.
    let (mut long, mut stdin) = session(world, crate::place::smcp(), time + PATIENCE);
    let begin = Instant::now();
    let (mut first, mut turns) = (None, 0);
    while turns < WARM + 2 || begin.elapsed() < time {
        turn(world, &smcp, &packages, &mut dice);
        talk(&mut long, &mut stdin, turns);
        turns += 1;
        let now = use_of(world, long.pid());
        match &first {
            None if turns >= WARM => first = Some(now),
            None => {}
            Some(first) => {
                let grown = now.memory > first.memory + PAGES || now.descriptors > first.descriptors;
                // Of what runs leave for the next start, and tell of who was there, there is no more than of one turn.
                let grown = grown || now.files > first.files + 40 || now.bytes > first.bytes + (4 << 20);
                assert!(!grown, "after {turns} turns: {now:?}, after {WARM}: {first:?}\n{:#?}", listing(world));
            }
        }
    }
    drop(stdin);
    long.wait().ok();
    invariants::hold(world);
    let log = fs::read_dir(world.path("log")).expect("it is there").count();
    assert!(log > 2, "the log was rotated");
    let _ = writeln!(io::stderr(), "{turns} turns, {:?}, at the end {:?}", first, listing(world).len());
}

/// An image of its own, whose layer no other has.
fn package(world: &World, number: usize) -> String {
    let image = Image::probe().file(&format!("usr/share/{number}"), 0o644, vec![number as u8; 200_000]);
    image.build().write(&world.path(format!("layout-{number}")))
}

/// A few runs at once, each of which ends in its own way, beside pulls; then what nobody needs is removed.
fn turn(world: &World, smcp: &Path, packages: &[String], dice: &mut Dice) {
    let ends: Vec<(usize, u64)> = (0..4).map(|_| (dice.below(4), dice.below(60) as u64)).collect();
    let pulled = &packages[dice.below(packages.len())];
    thread::scope(|scope| {
        for (end, after) in ends {
            scope.spawn(move || {
                let run = world.copy(smcp, ["run", probe_reference(), "until-eof", "0"]);
                let mut running = run.env("MCP_AUDIT_MAX_SIZE", "16K").start();
                let stdin = running.take_stdin();
                if end < 2 {
                    running.await_ready();
                }
                // The moment is the input.
                thread::sleep(Duration::from_millis(after));
                match end {
                    0 => drop(stdin),
                    1 => running.signal(Signal::TERM),
                    _ => {
                        running.signal(Signal::KILL);
                        return running.wait_for_the_process_alone();
                    }
                }
                running.wait();
            });
        }
        scope.spawn(move || {
            let mut pull = world.copy(smcp, ["-q", "pull", pulled]).start();
            let ended = pull.ends_within(Duration::from_millis(dice.below(200) as u64));
            if !ended {
                pull.signal(Signal::KILL);
            }
            pull.wait_for_the_process_alone();
        });
    });
    world.smcp(["-q", "pull", &packages[0]]).run().ok();
    for package in packages {
        // One whose pull was killed is none.
        world.smcp(["-q", "cache", "rm", package]).run();
    }
    world.smcp(["-q", "cache", "gc"]).run().ok();
    invariants::hold_beside_another(world);
}

fn session(world: &World, smcp: &Path, patience: Duration) -> (Running, ChildStdin) {
    let mut running = world.copy(smcp, ["run", probe_reference(), "until-eof", "0"]).within(patience).start();
    let stdin = running.take_stdin();
    running.await_ready();
    (running, stdin)
}

/// Ten lines to it, which it takes.
fn talk(session: &mut Running, stdin: &mut ChildStdin, turn: usize) {
    for line in 0..10 {
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":{{\"turn\":{turn},\"line\":{line}}}}}\n"
        );
        stdin.write_all(text.as_bytes()).expect("it lives");
    }
    assert!(!session.has_ended(), "it lives");
}

fn use_of(world: &World, supervisor: u32) -> Use {
    // A start removes what killed ones left, but for what is younger than a second.
    thread::sleep(Duration::from_millis(1100));
    world.caged(&[], &["exit", "0"]).run().ok();
    let descriptors = fs::read_dir(format!("/proc/{supervisor}/fd")).expect("it lives").count();
    let files = listing(world);
    Use {
        memory: of_its_own(supervisor).expect("it lives"),
        descriptors,
        files: files.len(),
        bytes: files.iter().map(|(_, bytes)| bytes).sum(),
    }
}

/// All files of the world but the log's, which is to grow.
fn listing(world: &World) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut left: Vec<_> = ["cache", "state", "home", "tmp"].iter().map(|name| world.path(name)).collect();
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(about) = path.symlink_metadata() else { continue };
            if about.is_dir() {
                left.push(path.clone());
            }
            found.push((path.display().to_string(), if about.is_file() { about.len() } else { 0 }));
        }
    }
    found
}
