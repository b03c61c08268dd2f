//! Faults where they hurt: at each system call that changes the disk, smcp is killed, or told that the disk is full, broken, or that
//! there are no descriptors or memory left. What [`invariants`] says holds after each, and the same command works once more.
//!
//! strace injects them, into every process and thread of the command at its N-th call of a kind. The short form draws some; all of them:
//! `conformance/faults/run`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::clients_adopt::registry_of;
use crate::command::Smcp;
use crate::image::{Image, probe_reference};
use crate::invariants;
use crate::needs;
use crate::remains::own_copy;
use crate::violent_ends::{Dice, Seed};
use crate::world::{User, World, as_each_user};

/// Calls that change the disk, or take hold of what does.
const CALLS: &str = "write,pwrite64,writev,pwritev,pwritev2,ftruncate,fallocate,openat,mkdir,mkdirat,rename,renameat,renameat2,unlink,\
    unlinkat,rmdir,link,linkat,symlink,symlinkat,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,fsync,fdatasync,copy_file_range,\
    sendfile,splice,fsetxattr,flock";

/// Errors, and the calls that have them. A full disk stays full; a broken place is one.
const ERRORS: [(&str, &str, &[&str]); 4] = [
    (
        "ENOSPC",
        "+",
        &[
            "write",
            "pwrite64",
            "ftruncate",
            "fallocate",
            "openat",
            "mkdir",
            "mkdirat",
            "rename",
            "renameat",
            "linkat",
            "symlink",
            "fsync",
            "fdatasync",
            "splice",
        ],
    ),
    (
        "EIO",
        "",
        &[
            "write",
            "pwrite64",
            "openat",
            "rename",
            "renameat",
            "unlink",
            "unlinkat",
            "fsync",
            "fdatasync",
            "splice",
            "mkdir",
            "mkdirat",
        ],
    ),
    ("EMFILE", "+", &["openat"]),
    ("ENOMEM", "", &["openat", "mkdir", "mkdirat", "rename", "renameat", "linkat"]),
];

as_each_user! { some_faults }

fn some_faults(world: &World) {
    faults(world, Some(7));
}

#[test]
#[ignore = "takes most of an hour; conformance/faults/run"]
fn every_fault() {
    if needs::root() {
        faults(&World::new(User::Root), None);
    }
    faults(&World::new(User::Ordinary), None);
}

/// What is done, from a beginning that can be had again.
struct Scene<'a> {
    name: &'static str,
    words: Vec<String>,
    /// Makes the beginning.
    prepare: Box<dyn Fn() + 'a>,
    /// What must hold of its own files wherever it was ended.
    holds: Box<dyn Fn() + 'a>,
}

/// One fault: the N-th call of a kind of each process.
#[derive(Debug)]
struct Fault {
    call: String,
    how: String,
}

fn faults(world: &World, some: Option<usize>) {
    if needs::program("strace", "strace").is_none() {
        return;
    }
    let smcp = own_copy(world);
    let fake = registry_of(Image::probe().build());
    let scenes = scenes(world, &format!("{}/test/probe:v1", fake.host));
    let seed = Seed::chosen();
    let mut dice = Dice(seed.0);
    let (mut count, mut met, mut wrong) = (0, 0, Vec::new());
    for scene in &scenes {
        (scene.prepare)();
        let mut faults = all_faults(world, &smcp, scene);
        assert!(faults.len() > 40, "{}: {}", scene.name, faults.len());
        if let Some(some) = some {
            faults = (0..some).map(|_| faults.swap_remove(dice.below(faults.len()))).collect();
        }
        for fault in &faults {
            count += 1;
            let tried = catch_unwind(AssertUnwindSafe(|| try_one(world, &smcp, scene, fault)));
            match tried {
                Ok(is_met) => met += usize::from(is_met),
                Err(why) => {
                    let why = why.downcast_ref::<String>().map_or("a panic", String::as_str);
                    wrong.push(format!("{} with {fault:?}: {why}", scene.name));
                    let _ = writeln!(io::stderr(), "{}", wrong[wrong.len() - 1]);
                }
            }
        }
        let _ = writeln!(io::stderr(), "{}: {} faults, {} wrong so far", scene.name, faults.len(), wrong.len());
    }
    assert!(wrong.is_empty(), "{} of {count} faults:\n{}", wrong.len(), wrong.join("\n"));
    // Calls depend on who is faster, so not each number is reached each time.
    assert!(met * 4 >= count * 3, "of {count} faults {met} were met");
}

fn scenes<'a>(world: &'a World, image: &str) -> Vec<Scene<'a>> {
    let probe = probe_reference();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let client = world.path("home/.cursor/mcp.json");
    let before =
        json!({"mcpServers": {"probe": {"command": "docker", "args": ["run", "-i", "--rm", image]}}}).to_string();
    let file = before.clone();
    let has_store = move || {
        world.smcp(["-q", "pull", probe]).run().ok();
    };
    let lock = world.path("project/smcp.lock");
    vec![
        Scene {
            name: "pull",
            words: words(&["-q", "pull", probe]),
            prepare: Box::new(|| remove(&world.store())),
            holds: Box::new(|| ()),
        },
        Scene {
            name: "run",
            words: words(&["run", probe, "exit", "0"]),
            prepare: Box::new(has_store),
            holds: Box::new(|| ()),
        },
        Scene {
            name: "adopt",
            words: words(&["adopt", "--yes"]),
            prepare: Box::new(move || {
                world.directory("home/.cursor");
                world.file("home/.cursor/mcp.json", &file);
                remove(&world.path("state/smcp/clients"));
            }),
            holds: Box::new(move || {
                let now = fs::read_to_string(&client).expect("the client's file is there");
                if now != before {
                    serde_json::from_str::<serde_json::Value>(&now).unwrap_or_else(|why| panic!("{why}: {now}"));
                    world.smcp(["undo"]).run().ok();
                    assert_eq!(fs::read_to_string(&client).ok().as_ref(), Some(&before), "undo is exact");
                }
            }),
        },
        Scene {
            name: "lock",
            words: words(&["accept", "--lock", probe]),
            prepare: Box::new(move || {
                has_store();
                remove(&world.path("project/smcp.lock"));
            }),
            holds: Box::new(move || {
                if lock.exists() {
                    let run = world.smcp(["run", "--locked", "--dry-run", probe]);
                    run.in_directory(world.path("project")).run().ok();
                }
            }),
        },
    ]
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(about) if about.is_dir() => fs::remove_dir_all(path).expect("the world is ours"),
        Ok(_) => fs::remove_file(path).expect("the world is ours"),
        Err(_) => {}
    }
}

/// A scene under strace, with these options.
fn traced<'w>(world: &'w World, smcp: &Path, scene: &Scene<'_>, options: &[String]) -> (Smcp<'w>, PathBuf) {
    let trace = world.path("tmp/trace");
    remove(&trace);
    let command = world
        .program("/usr/bin/strace", ["-f", "-q", "-o"])
        .args([&trace])
        .args(options)
        .args([smcp])
        .args(&scene.words)
        // A log that is full soon is rotated in the middle of it.
        .env("MCP_AUDIT_MAX_SIZE", "4K")
        .in_directory(world.path("project"));
    (command, trace)
}

/// Every fault of a scene: each kind of call as often as the process that has most of them has.
fn all_faults(world: &World, smcp: &Path, scene: &Scene<'_>) -> Vec<Fault> {
    let (command, trace) = traced(world, smcp, scene, &["-e".into(), format!("trace={CALLS}")]);
    command.run().ok();
    let mut calls: BTreeMap<(String, String), usize> = BTreeMap::new();
    for line in fs::read_to_string(trace).expect("strace wrote it").lines() {
        let mut words = line.split_whitespace();
        let (Some(process), Some(call)) = (words.next(), words.next()) else { continue };
        if let Some((call, _)) = call.split_once('(') {
            *calls.entry((call.to_owned(), process.to_owned())).or_default() += 1;
        }
    }
    let mut most: BTreeMap<String, usize> = BTreeMap::new();
    for ((call, _), count) in calls {
        let most = most.entry(call).or_default();
        *most = count.max(*most);
    }
    let mut faults = Vec::new();
    for (call, count) in &most {
        for number in 1..=*count {
            let fault = |how: String| Fault { call: call.clone(), how };
            faults.push(fault(format!("signal=KILL:when={number}")));
            for (error, onwards, calls) in ERRORS {
                if calls.contains(&call.as_str()) {
                    faults.push(fault(format!("error={error}:when={number}{onwards}")));
                }
            }
        }
    }
    faults
}

/// Tries one; whether it came to it.
fn try_one(world: &World, smcp: &Path, scene: &Scene<'_>, fault: &Fault) -> bool {
    (scene.prepare)();
    let inject = format!("inject={}:{}", fault.call, fault.how);
    let options = ["-e".into(), format!("trace={}", fault.call), "-e".into(), inject];
    let (command, trace) = traced(world, smcp, scene, &options);
    let ended = command.run();
    ended.check(!ended.stderr().contains("panicked"), "no panic was expected");
    let trace = fs::read_to_string(trace).expect("strace wrote it");
    invariants::hold(world);
    (scene.holds)();
    // With what is left of it, the same works.
    let again = world.smcp(&scene.words).in_directory(world.path("project")).env("MCP_AUDIT_MAX_SIZE", "4K").run();
    again.check(again.code() == 0, &format!("it works again after\n{}", ended.stderr()));
    invariants::hold(world);
    (scene.holds)();
    trace.contains("(INJECTED)") || trace.contains("killed by SIGKILL")
}
