//! The audit log: a begin and an end for each run, one chain, and no run without it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::image::{probe_reference, sha256};
use crate::world::{SECRET, World, as_each_user};

as_each_user! {
    a_run_leaves_a_begin_and_an_end,
    entries_say_what_was_enforced,
    the_chain_holds_over_runs_and_refusals,
    nothing_starts_without_the_log,
    nothing_is_appended_to_what_is_no_log,
    a_link_and_a_pipe_are_no_log,
    the_log_is_in_the_users_home,
    values_of_variables_are_not_logged,
}

fn a_run_leaves_a_begin_and_an_end(world: &World) {
    // The client keeps stdin open, so that the end is the server's own doing.
    let mut running = world.caged(&["--allow-read", &world.text("project")], &["exit", "7"]).start();
    let stdin = running.take_stdin();
    running.wait().expect(7);
    drop(stdin);
    let entries = world.audit();
    assert_eq!(entries.len(), 2, "{}", world.audit_text());
    let (begin, end) = (&entries[0], &entries[1]);
    assert_eq!((&begin["event"], &end["event"]), (&json!("begin"), &json!("end")));
    assert_eq!(begin["run"], end["run"]);
    assert_eq!(begin["run"].as_str().map(str::len), Some(26), "a ULID");
    assert_eq!((&end["exit"], &end["cause"]), (&json!(7), &json!("exited")));
    for field in ["time", "reference", "host", "user"] {
        assert!(!begin[field].is_null(), "{field}: {begin}");
    }
    assert!(begin.to_string().contains(probe_reference()), "{begin}");
    assert!(begin.to_string().contains("sha256:"), "{begin}");
    assert!(begin.to_string().contains(&world.text("project")), "the grant: {begin}");
    assert!(end["duration_ms"].is_u64(), "{end}");
    let about = fs::metadata(world.path("log/audit.log")).unwrap();
    assert_eq!(about.permissions().mode() & 0o077, 0, "the log is private");
}

/// Every layer is named with what was enforced; what an older kernel lacks would say so.
fn entries_say_what_was_enforced(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    let text = world.audit_text();
    for full in [
        "user-namespace",
        "mount-namespace",
        "pid-namespace",
        "network-namespace",
        "capabilities",
        "descriptors",
        "landlock",
        "seccomp",
    ] {
        assert!(text.contains(&format!("\"{full}\":\"full\"")), "{full}: {text}");
    }
}

fn the_chain_holds_over_runs_and_refusals(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    world.smcp(["run", "oci-layout:/nowhere:v1"]).run();
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| world.caged(&[], &["exit", "0"]).run().ok());
        }
    });
    let chained = chain(world);
    assert!(chained.len() >= 15, "{}", world.audit_text());
}

/// Six ways in which a log cannot be written; nothing runs in any of them.
fn nothing_starts_without_the_log(world: &World) {
    world.file("project/file", "");
    world.directory("project/directory");
    let note = world.text("project/started");
    for log in ["project/file/audit.log", "project/directory"] {
        let ended = world
            .caged(&["--allow-write", &world.text("project")], &["write", &note, "x"])
            .env("MCP_AUDIT_LOG_FILE", world.path(log))
            .run()
            .expect(118);
        ended.explains(&["audit log", &world.text(log)]);
    }
    for log in ["/dev/full", "/proc/audit.log"] {
        let run = world.caged(&["--allow-write", &world.text("project")], &["write", &note, "x"]);
        run.env("MCP_AUDIT_LOG_FILE", log).run().expect(118).explains(&["audit log"]);
    }
    // What stands beside the log may be elsewhere, and that is what is named.
    let state = world.path("project/file");
    let run = world.caged(&["--allow-write", &world.text("project")], &["write", &note, "x"]);
    run.env("XDG_STATE_HOME", &state).run().expect(118).explains(&[
        "audit log",
        state.to_str().unwrap(),
        "XDG_STATE_HOME",
    ]);
    assert!(!world.path("project/started").exists(), "the server was started");
}

/// A variable that names some other file has it left as it is.
fn nothing_is_appended_to_what_is_no_log(world: &World) {
    for text in ["root:x:0:0:root:/root:/bin/bash\n", "alias ls=ls", "{\"event\": \"begin\"}\n"] {
        let file = world.file("home/other", text);
        let run = world.caged(&[], &["exit", "0"]).env("MCP_AUDIT_LOG_FILE", &file).run();
        run.expect(118).explains(&["no audit log", file.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    // What was appended to a log of smcp's own is for its check to find.
    world.caged(&[], &["exit", "0"]).run().ok();
    let log = world.path("log/audit.log");
    fs::write(&log, [&fs::read(&log).unwrap()[..], b"word\n"].concat()).unwrap();
    world.caged(&[], &["exit", "0"]).run().ok();
    world.smcp(["audit", "verify"]).run().expect(1);
}

/// Whoever can put something in the place of the log does not keep its check from an answer.
fn a_link_and_a_pipe_are_no_log(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    let (log, other) = (world.path("log/audit.log"), world.path("log/other"));
    let rotated = world.path("log/audit.log.1");
    let pipe =
        |path: &Path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    let refused = |what: &str| {
        for command in [&["audit", "verify"][..], &["audit", "report", "--html", &world.text("home/report.html")]] {
            world.smcp(command).run().expect(118).explains(&["no ordinary file"]);
        }
        assert!(fs::symlink_metadata(&log).is_ok(), "{what}");
    };
    pipe(&rotated);
    refused("a pipe among the older files");
    fs::remove_file(&rotated).unwrap();
    fs::rename(&log, &other).unwrap();
    std::os::unix::fs::symlink(&other, &log).unwrap();
    refused("a link");
    fs::remove_file(&log).unwrap();
    pipe(&log);
    refused("a pipe");
    fs::remove_file(&log).unwrap();
    fs::rename(&other, &log).unwrap();
    world.smcp(["audit", "verify"]).run().ok();
}

/// The default path, where nothing else is named.
fn the_log_is_in_the_users_home(world: &World) {
    world.caged(&[], &["exit", "0"]).without_env("MCP_AUDIT_LOG_FILE").run().ok();
    let text = fs::read_to_string(world.path("home/.smcp/audit.log")).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
}

/// No value of `--env` or `--env-file` stands in any entry (E3).
fn values_of_variables_are_not_logged(world: &World) {
    let file = world.file("home/variables", format!("TOKEN={SECRET}\n"));
    let flags = ["--env", &format!("KEY={SECRET}"), "--env-file", file.to_str().unwrap()];
    let ended = world.caged(&flags, &["exit", "0"]).env("MCP_LOG_LEVEL", "trace").run().ok();
    ended.check(!ended.stderr().contains(SECRET), "no secret was expected on stderr");
    let text = world.audit_text();
    assert!(!text.contains(SECRET) && text.contains("KEY") && text.contains("TOKEN"), "names alone: {text}");
}

/// The entries, after checking the chain from the first line on.
#[track_caller]
pub fn chain(world: &World) -> Vec<Value> {
    let text = world.audit_text();
    let mut before: Option<String> = None;
    for (line, entry) in text.lines().zip(world.audit()) {
        assert_eq!(entry["prev"], json!(before), "{text}");
        before = Some(sha256(line.as_bytes()));
    }
    let numbers: Vec<_> = world.audit().iter().map(|e| e["seq"].as_u64().unwrap_or_default()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    world.audit()
}
