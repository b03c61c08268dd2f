//! Limits: each holds, the tree that runs into one is ended, and the limit is named on stderr, by the exit code and in
//! the audit log (K4, K8, K9, L7). As root the cage has a cgroup where the machine gives one; an ordinary user of the
//! tests has none, so that rlimits and guard are tried.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::command::Ended;
use crate::host::Host;
use crate::needs;
use crate::probe::REFUSED;
use crate::processes::none_left;
use crate::world::{World, as_each_user, at_each_tier};

/// From the start of smcp to its end, on a machine that has other things to do: well before the probe's own end.
const SOON: Duration = Duration::from_secs(15);

at_each_tier! {
    k9_one_process_that_touches_too_much_is_ended,
    k8_ten_gigabytes_are_not_to_be_had,
    k9_twenty_processes_that_touch_too_much_together_are_ended,
    k9_memory_cannot_hide,
    k9_a_file_of_memory_counts,
    k9_shared_memory_counts_once,
    k8_a_fork_bomb_is_ended,
    k8_threads_count_as_processes,
    k9_a_tree_below_its_limits_is_left_alone,
    k8_a_busy_loop_on_eight_threads_is_ended,
    k8_time_of_children_that_nobody_waits_for_counts,
    k8_a_hundred_thousand_descriptors_are_refused,
    k9_node_and_python_start_under_the_defaults,
    k4_the_log_says_what_counts,
}

as_each_user! {
    k8_a_full_tmp_is_full,
    k8_a_file_in_memory_has_a_cap,
    k8_a_file_of_the_host_has_none,
}

fn k9_one_process_that_touches_too_much_is_ended(world: &World) {
    let ended = open(world, &["--memory", "64M"], &["hog", "1000", "2", world.mark()]);
    limited(world, &ended, &json!({"name": "memory", "value": 64 << 20}), &["--memory", "64M"]);
}

/// Faster than the guard looks: RLIMIT_DATA stops it between two looks.
fn k8_ten_gigabytes_are_not_to_be_had(world: &World) {
    // 10 GB, had it its way.
    let ended = open(world, &["--memory", "64M"], &["hog", "10240", "0", world.mark()]);
    limited(world, &ended, &json!({"name": "memory", "value": 64 << 20}), &["--memory", "64M"]);
    // Without a cgroup one process gets a quarter more, 128 MiB at the least.
    let peak = world.last_end()["peak_memory"].as_u64().unwrap_or(u64::MAX);
    assert!(peak < 160 << 20, "{peak} bytes were had");
}

fn k9_twenty_processes_that_touch_too_much_together_are_ended(world: &World) {
    let ended = open(world, &["--memory", "64M"], &["hog-among", "20", "10", world.mark()]);
    limited(world, &ended, &json!({"name": "memory", "value": 64 << 20}), &["--memory", "64M"]);
}

/// A name that is no UTF-8 and looks like fields of `stat`, a process whose first thread has ended.
fn k9_memory_cannot_hide(world: &World) {
    let ended = open(world, &["--memory", "64M"], &["hog-hidden", "120", world.mark()]);
    limited(world, &ended, &json!({"name": "memory", "value": 64 << 20}), &["--memory", "64M"]);
}

fn k9_a_file_of_memory_counts(world: &World) {
    let ended = open(world, &["--memory", "64M"], &["hog-memfd", "500", world.mark()]);
    limited(world, &ended, &json!({"name": "memory", "value": 64 << 20}), &["--memory", "64M"]);
}

/// Eight processes of 30 MiB that are the same 30 MiB.
fn k9_shared_memory_counts_once(world: &World) {
    let ended = open(world, &["--memory", "64M"], &["share", "8", "30"]).ok();
    assert_eq!(ended.text(), "\"shared\"\n");
}

fn k8_a_fork_bomb_is_ended(world: &World) {
    let mut running = world.caged(&["--pids", "64"], &["fork-bomb", "400", world.mark()]).start();
    let stdin = running.take_stdin();
    // The machine can be used while it goes on.
    world.bare(&["exit", "0"]).run().ok();
    world.caged(&[], &["exit", "0"]).run().ok();
    let ended = running.wait();
    drop(stdin);
    limited(world, &ended, &json!({"name": "pids", "value": 64}), &["--pids", "64"]);
}

fn k8_threads_count_as_processes(world: &World) {
    let ended = open(world, &["--pids", "32"], &["threads", "31", world.mark()]);
    limited(world, &ended, &json!({"name": "pids", "value": 32}), &["--pids", "32"]);
}

/// Near every limit and over none.
fn k9_a_tree_below_its_limits_is_left_alone(world: &World) {
    open(world, &["--memory", "64M", "--pids", "32", "--cpu-time", "30s"], &["hog-briefly", "40"]).ok();
    open(world, &["--cpu-time", "3s", "--pids", "16"], &["spin", "8", "1"]).ok();
    assert_eq!(world.last_end()["limit"], Value::Null);
}

fn k8_a_busy_loop_on_eight_threads_is_ended(world: &World) {
    let ended = open(world, &["--cpu-time", "1s"], &["spin", "8", "30", world.mark()]);
    limited(world, &ended, &json!({"name": "cpu-time", "value": 1}), &["--cpu-time", "1 s"]);
    let spent = world.last_end()["cpu_ms"].as_u64().unwrap_or(0);
    assert!((900..2500).contains(&spent), "{spent} ms of CPU time\n{}", world.audit_text());
}

fn k8_time_of_children_that_nobody_waits_for_counts(world: &World) {
    let ended = open(world, &["--cpu-time", "1s"], &["spin-unwaited", "30", world.mark()]);
    limited(world, &ended, &json!({"name": "cpu-time", "value": 1}), &["--cpu-time"]);
}

/// The server sees EMFILE and lives (K8).
fn k8_a_hundred_thousand_descriptors_are_refused(world: &World) {
    const EMFILE: i32 = 24;
    let answer = world.caged(&[], &["open-many", "100000"]).run().ok().json();
    assert_eq!(answer["error"], EMFILE, "{answer}");
    assert!(answer["open"].as_u64().is_some_and(|open| open <= 1024), "{answer}");
}

/// The server sees ENOSPC and lives; the host's `/tmp` has nothing of it (K8).
fn k8_a_full_tmp_is_full(world: &World) {
    const ENOSPC: i32 = 28;
    let path = format!("/tmp/fill-{}", world.mark());
    let answer = world.caged(&["--memory", "64M"], &["fill", &path, "10240"]).run().ok().json();
    assert_eq!(answer["error"], ENOSPC, "{answer}");
    assert!(answer["mib"].as_u64().is_some_and(|mib| mib <= 32), "{answer}");
    assert!(!Path::new(&path).exists());
}

/// Real interpreters of the host, started by a package that grants itself nothing: `/usr` is granted to it.
fn k9_node_and_python_start_under_the_defaults(world: &World) {
    let programs = [
        ("node", "nodejs", "-e", "fetch('http://127.0.0.1:1/').catch(() => console.log('started'))"),
        ("python3", "python3", "-c", "import asyncio, ssl; print('started')"),
    ];
    for (name, package, flag, script) in programs {
        let Some(program) = needs::program(name, package) else { continue };
        let program = fs::canonicalize(program).expect("it exists");
        let ended = Host::of(world).caged(&[], [program.as_os_str(), flag.as_ref(), script.as_ref()]).run().ok();
        assert_eq!(ended.text(), "started\n");
    }
}

/// The begin entry says which kind of cgroup there is; the layer's status says what is missing (K4).
fn k4_the_log_says_what_counts(world: &World) {
    world.caged(&["--max-cpu", "100"], &["exit", "0"]).run().ok();
    let begin = world.audit().into_iter().find(|entry| entry["event"] == "begin").expect("it was begun");
    assert_eq!(begin["layers"]["guard"], "full", "{begin}");
    let status = begin["layers"]["cgroup"].as_str().unwrap_or_default();
    match begin["cgroup"].as_str() {
        Some("none") => {
            assert!(status.starts_with("absent: "), "{status}");
            // A tenth of a CPU: also a busy machine gives more than that, and the tree is soon ahead of it.
            let mut running = world.caged(&["--max-cpu", "100"], &["spin-until-narrow", "30"]).start();
            // Its end would start the ladder.
            let stdin = running.take_stdin();
            let spun = running.wait().ok();
            drop(stdin);
            assert!(spun.json() == 1 || !status.contains("kept to"), "{} CPUs, {status}", spun.text());
        }
        Some("v1" | "v2" | "systemd") => assert!(status == "full" || status.starts_with("partial: "), "{status}"),
        other => panic!("{other:?}\n{}", world.audit_text()),
    }
    let paths = world.caged(&[], &["own-cgroup"]).run().ok().text();
    assert!(!paths.contains("smcp-"), "{paths}");
}

/// A run whose client keeps stdin open, so that the limit alone ends it.
#[track_caller]
fn open(world: &World, flags: &[&str], verb: &[&str]) -> Ended {
    let mut running = world.caged(flags, verb).start();
    let stdin = running.take_stdin();
    let ended = running.wait();
    drop(stdin);
    ended
}

/// Sparse files, which take no memory: 4 GiB are allowed, whoever asks for more is ended or told.
fn k8_a_file_in_memory_has_a_cap(world: &World) {
    let (most, more) = ((4_u64 << 30).to_string(), ((4_u64 << 30) + 1).to_string());
    world.caged(&[], &["grow", "/tmp/file", &most]).run().ok();
    let ended = open(world, &[], &["grow", "/tmp/file", &more]).expect(153);
    ended.explains(&["larger than 4G", "--memory"]);
    let end = world.last_end();
    assert_eq!(
        (&end["cause"], &end["limit"]),
        (&json!("file-size"), &json!({"name": "file-size", "value": 4_u64 << 30}))
    );
    let told = world.caged(&[], &["grow-deaf", "/dev/shm/file", &more]).run().expect(REFUSED);
    told.check(told.text().contains("File too large"), "EFBIG was expected");
    world.caged(&["--memory", "2G"], &["grow", "/tmp/file", &more]).run().ok();
    // A grant that cannot be written changes nothing.
    let flags = ["--allow-read", &world.text("project")];
    world.caged(&flags, &["grow-deaf", "/tmp/file", &more]).run().expect(REFUSED);
}

/// A download or a database in the user's project is as large as the disk takes.
fn k8_a_file_of_the_host_has_none(world: &World) {
    let (file, size) = (world.text("project/file"), 16_u64 << 30);
    world.caged(&["--allow-write", &world.text("project")], &["grow", &file, &size.to_string()]).run().ok();
    assert_eq!(fs::metadata(&file).unwrap().len(), size);
}

/// Fails unless the run was ended by this limit within moments, named everywhere, with nothing left.
#[track_caller]
pub fn limited(world: &World, ended: &Ended, limit: &Value, words: &[&str]) {
    ended.check(ended.code() == 137, "exit 137 was expected");
    ended.explains(words);
    // Another run of the world may have ended after it.
    let hit = world.audit().into_iter().rfind(|entry| entry["event"] == "end" && entry["limit"] == *limit);
    let end = hit.unwrap_or_else(|| world.last_end());
    assert_eq!((&end["limit"], &end["cause"], &end["exit"]), (limit, &limit["name"], &json!(137)), "{end}");
    ended.check(ended.took() < SOON, &format!("an end after {SOON:?} at most was expected"));
    none_left(world, Duration::from_secs(1));
}
