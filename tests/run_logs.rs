//! `smcp ps` and `smcp logs`: the runs under way, and what servers said on stderr.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::image::probe_reference;
use crate::patience::{PATIENCE, within};
use crate::world::{World, as_each_user, at_each_tier};

at_each_tier! {
    runs_under_way_are_listed,
    words_are_kept_and_followed,
}

as_each_user! {
    a_silent_server_leaves_nothing,
    words_without_end_are_bounded,
    words_that_are_not_there,
    a_client_without_stderr_loses_no_answer,
}

fn runs_under_way_are_listed(world: &World) {
    assert_eq!(world.smcp(["ps", "--json"]).run().ok().json(), json!([]));
    let mut running = world.caged(&["--memory", "128M"], &["hang", world.mark()]).start();
    running.await_ready();
    let listed = world.smcp(["ps", "--json"]).run().ok().json();
    let begin = &world.audit()[0];
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    let row = &listed[0];
    assert_eq!((&row["run"], &row["since"], &row["tier"]), (&begin["run"], &begin["time"], &begin["tier"]));
    assert_eq!(row["package"], probe_reference());
    // The client is this test, which starts smcp by a program of its own where the user has no namespaces.
    assert_eq!(row["clientPid"], std::process::id());
    assert_eq!(row["pid"], running.pid());
    assert!(row["processes"].as_u64() >= Some(2) && row["memory"].as_u64() > Some(100_000), "{row}");
    assert!(row["cpuMillis"].is_u64(), "{row}");
    let table = world.smcp(["ps"]).run().ok().text();
    let line = table.lines().nth(1).unwrap();
    assert!(line.starts_with(begin["run"].as_str().unwrap()) && line.contains(probe_reference()), "{table}");
    drop(running.take_stdin());
    running.wait().expect(143);
    assert_eq!(world.smcp(["ps", "--json"]).run().ok().json(), json!([]));
}

fn words_are_kept_and_followed(world: &World) {
    let mut running = world.caged(&["--secret", "K"], &["chatter", "3", "2"]).env("K", "after 1").start();
    running.await_ready();
    let run = world.audit()[0]["run"].as_str().unwrap().to_owned();
    let before = "before 0\nbefore 1\nbefore 2\n";
    // Kept as it is passed on.
    let kept = within(PATIENCE, || {
        let shown = world.smcp(["logs", &run.to_lowercase()]).run().ok().text();
        (shown == before).then_some(())
    });
    assert!(kept.is_some(), "{:?}", world.smcp(["logs"]).run().ok().text());
    let mut following = world.smcp(["logs", "-f", &run]).start();
    following.await_stdout("the first words", |bytes| bytes.starts_with(before.as_bytes()));
    running.take_stdin().write_all(b"\n").unwrap();
    let ended = running.wait().ok();
    let all = format!("{before}after 0\n<redacted>\n");
    ended.says(&[&all]);
    assert_eq!(following.wait().ok().text(), all, "it ends with the run");
    assert_eq!(world.smcp(["logs"]).run().ok().text(), all, "the newest run");
    let file = world.path("state/smcp/logs").join(&run);
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

fn a_silent_server_leaves_nothing(world: &World) {
    world.caged(&["--secret", "K"], &["exit", "0"]).env("K", "a secret").told("").ok();
    assert!(!world.path("state/smcp/logs").exists());
    let run = world.audit()[0]["run"].as_str().unwrap().to_owned();
    world.smcp(["logs", &run]).run().expect(2).explains(&[&run, "nothing is kept"]);
}

fn words_without_end_are_bounded(world: &World) {
    world.caged(&[], &["stderr", "3000000"]).told("").ok();
    let logs = fs::read_dir(world.path("state/smcp/logs")).unwrap().flatten();
    let bytes: u64 = logs.map(|entry| entry.metadata().unwrap().len()).sum();
    assert!((500 << 10..1200 << 10).contains(&bytes), "{bytes}");
    assert_eq!(world.smcp(["logs"]).run().ok().stdout().len() as u64, bytes);
}

fn words_that_are_not_there(world: &World) {
    world.smcp(["logs"]).run().expect(2).explains(&["no server has said anything"]);
    world.smcp(["logs", "x"]).run().expect(2).explains(&["is no run", "smcp ps"]);
    world.smcp(["logs", "-f", "01KB0000000000000000000001"]).run().expect(2).explains(&["nothing is kept"]);
    // Where they cannot be kept the run goes on, and says so once.
    world.directory("state/smcp");
    world.file("state/smcp/logs", "a file where the directory should be");
    let ended = world.caged(&[], &["stderr", "200000"]).told("").ok();
    ended.says(&["is not kept", "eeee"]);
    assert_eq!(ended.stderr().matches("is not kept").count(), 1);
}

/// What nobody reads is not kept either, and the server is not held up by it.
fn a_client_without_stderr_loses_no_answer(world: &World) {
    let line = r#"exec "$1" run --secret K "$2" stderr 200000 2>&-"#;
    let shell = world.program("/bin/sh", ["-c", line, "sh"]).args([crate::place::smcp().as_os_str()]);
    let ended = shell.args([probe_reference()]).env("K", "eeeeeee").run().ok();
    assert_eq!(ended.text(), "\"said\"\n");
}
