//! From `create` to `delete`, and what is said where that is not the order.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::thread;

use serde_json::{Value, json};

use super::{Containers, cgroups};
use crate::patience::{PATIENCE, within};

/// Created it waits, started it runs, and each state is said.
#[test]
fn a_container_from_create_to_delete() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    // Cgroups are the machine's, where the same test may run for somebody else.
    let id = format!("{}alone", here.world.mark());
    let id = id.as_str();
    bundle.with(|config| config["annotations"] = json!({"org.example.a": "b"}));
    here.created(id, &bundle);
    let created = here.state(id);
    assert_eq!((&created["status"], &created["id"]), (&json!("created"), &json!(id)));
    assert_eq!(created["bundle"], json!(bundle.directory.canonicalize().unwrap()));
    assert_eq!(created["annotations"], json!({"org.example.a": "b"}));
    assert_eq!(here.output(id), "", "the program has not started");
    here.oci(["start", id]).run().ok();
    here.await_status(id, "running");
    assert!(here.oci(["start", id]).run().expect(1).stderr().contains("already running"));
    assert!(here.oci(["delete", id]).run().expect(1).stderr().contains("not stopped"));
    let listed = here.oci(["list", "--format", "json"]).run().ok().json();
    assert_eq!((&listed[0]["id"], &listed[0]["status"]), (&json!(id), &json!("running")));
    assert_eq!(here.oci(["list", "-q"]).run().ok().text(), format!("{id}\n"));
    here.oci(["kill", id, "KILL"]).run().ok();
    here.await_status(id, "stopped");
    assert_eq!(here.state(id)["pid"], 0);
    assert!(here.oci(["kill", id, "TERM"]).run().expect(1).stderr().contains("container not running"));
    assert!(here.oci(["start", id]).run().expect(1).stderr().contains("has stopped"));
    here.oci(["delete", id]).run().ok();
    here.nothing_left();
    assert_eq!(cgroups(id), Vec::<std::path::PathBuf>::new());
}

/// What there is not, and what there is already.
#[test]
fn names_that_are_wrong() {
    let Some(here) = Containers::new() else { return };
    for line in [&["state", "no"][..], &["start", "no"], &["kill", "no"], &["delete", "no"], &["ps", "no"]] {
        assert!(here.oci(line.iter().copied()).run().expect(1).stderr().contains("does not exist"), "{line:?}");
    }
    here.oci(["delete", "--force", "no"]).run().ok();
    let bundle = here.bundle("b", &["hang"]);
    for name in ["", "..", "a/b", "a b"] {
        let refused = here.oci(["create", "--bundle", bundle.path(), name]).run().expect(1);
        assert!(refused.stderr().contains("invalid container ID"), "{name:?}: {}", refused.stderr());
    }
    here.created("one", &bundle);
    let again = here.oci(["create", "--bundle", bundle.path(), "one"]).run().expect(1);
    assert!(again.stderr().contains("already exists"), "{}", again.stderr());
    assert_eq!(here.state("one")["status"], "created", "the first is what it was");
    here.oci(["delete", "one"]).run().ok();
    here.nothing_left();
}

/// `run` has the program's streams and exit code, also of one that lives for a moment, and leaves nothing.
#[test]
fn run_gives_the_exit_code() {
    let Some(here) = Containers::new() else { return };
    for code in [0, 3, 255] {
        let bundle = here.bundle(&format!("b{code}"), &["exit", &code.to_string()]);
        here.oci(["run", "--bundle", bundle.path(), "one"]).run().expect(code);
    }
    let bundle = here.bundle("echo", &["cat"]);
    let ended = here.oci(["run", "--bundle", bundle.path(), "one"]).stdin("words").run().ok();
    assert_eq!(ended.text(), "words");
    // PID 1 of a namespace ends by no signal of its own.
    let bundle = here.bundle("term", &["on-term", "9"]);
    let mut running = here.oci(["run", "--bundle", bundle.path(), "one"]).start();
    running.await_ready();
    running.signal(rustix::process::Signal::TERM);
    running.wait().expect(9);
    here.nothing_left();
}

/// A program that is not there is said by `create`, in words that podman and docker look for; nothing is left.
#[test]
fn what_cannot_be_executed_is_said_at_create() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    fs::write(bundle.rootfs().join("text"), "").unwrap();
    let id = format!("{}missing", here.world.mark());
    let id = id.as_str();
    let rows = [
        (json!(["/none"]), "no such file or directory"),
        (json!(["none"]), "executable file not found in $PATH"),
        (json!(["/text"]), "permission denied"),
        (json!([]), "args must not be empty"),
    ];
    for (args, words) in rows {
        bundle.with(|config| config["process"]["args"] = args.clone());
        let log = here.world.text("oci.log");
        let line = ["--log", &log, "--log-format", "json", "create", "--bundle", bundle.path(), id];
        let refused = here.oci(line).run().expect(1);
        let lines = fs::read_to_string(&log).unwrap();
        let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "error");
        let message = last["msg"].as_str().unwrap();
        assert!(message.contains(words), "{args}: {message}");
        assert!(refused.stderr().contains(message), "{}", refused.stderr());
    }
    here.nothing_left();
    assert!(cgroups(id).is_empty());
}

/// Two hundred one after the other, twenty at once: nothing is left.
#[test]
fn many_containers() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["args"]);
    let whole_life = |id: &str| {
        here.created(id, &bundle);
        here.oci(["start", id]).run().ok();
        here.await_status(id, "stopped");
        here.oci(["delete", id]).run().ok();
    };
    let mark = here.world.mark().to_owned();
    (0..200).for_each(|_| whole_life(&format!("{mark}seq")));
    thread::scope(|scope| {
        for number in 0..20 {
            let id = format!("{mark}par-{number}");
            scope.spawn(move || whole_life(&id));
        }
    });
    here.nothing_left();
    assert!(cgroups(&mark).is_empty(), "{:?}", cgroups(&mark));
    let processes = crate::processes::with_word(&mark);
    assert!(processes.is_empty(), "{processes:?}");
}

/// Hooks of each kind run in their order, in their namespaces, with the state of the container and the bundle that the caller knows.
#[test]
fn hooks_and_what_they_are_told() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["args", "ran"]);
    let trace = here.world.text("trace");
    let script = here.world.file("hook", format!("#!/bin/sh\necho \"$0 $1 $(cat)\" >>{trace}\n"));
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let kinds = ["prestart", "createRuntime", "createContainer", "poststart", "poststop"];
    bundle.with(|config| {
        for kind in kinds {
            config["hooks"][kind] = json!([{"path": script, "args": ["hook", kind]}]);
        }
        config["hooks"]["startContainer"] = json!([{"path": "/probe", "args": ["probe", "append", "/started", "x"]}]);
    });
    fs::write(bundle.rootfs().join("started"), "").unwrap();
    bundle.with(|config| config["root"]["readonly"] = json!(false));
    here.created("one", &bundle);
    assert_eq!(fs::read_to_string(bundle.rootfs().join("started")).unwrap(), "");
    here.oci(["start", "one"]).run().ok();
    here.await_status("one", "stopped");
    here.oci(["delete", "one"]).run().ok();
    assert_eq!(fs::read_to_string(bundle.rootfs().join("started")).unwrap(), "x");
    let lines = fs::read_to_string(&trace).unwrap();
    let told: Vec<(String, Value)> = lines
        .lines()
        .map(|line| {
            let mut words = line.splitn(3, ' ');
            let kind = words.nth(1).unwrap().to_owned();
            (kind, serde_json::from_str(words.next().unwrap()).unwrap())
        })
        .collect();
    assert_eq!(told.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), kinds);
    let statuses = ["creating", "creating", "creating", "running", "stopped"];
    for ((kind, state), status) in told.iter().zip(statuses) {
        assert_eq!((&state["id"], &state["status"]), (&json!("one"), &json!(status)), "{kind}");
        assert_eq!(state["bundle"], json!(bundle.directory.canonicalize().unwrap()), "{kind}");
    }
    // One that fails ends the making of the container.
    bundle.with(|config| config["hooks"] = json!({"createRuntime": [{"path": "/bin/false"}]}));
    let refused = here.oci(["create", "--bundle", bundle.path(), "one"]).run().expect(1);
    assert!(refused.stderr().contains("hook"), "{}", refused.stderr());
    here.nothing_left();
}

/// A container that is frozen does nothing until it is thawed; one that is killed frozen is gone.
#[test]
fn pause_and_resume() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    here.started("one", &bundle);
    here.oci(["pause", "one"]).run().ok();
    assert_eq!(here.state("one")["status"], "paused");
    assert!(here.oci(["pause", "one"]).run().expect(1).stderr().contains("paused"));
    here.oci(["resume", "one"]).run().ok();
    assert_eq!(here.state("one")["status"], "running");
    assert!(here.oci(["resume", "one"]).run().expect(1).stderr().contains("not paused"));
    here.oci(["pause", "one"]).run().ok();
    here.oci(["delete", "--force", "one"]).run().ok();
    here.nothing_left();
}

/// All its processes get a signal, also those that are frozen; there is nobody after that.
#[test]
fn a_signal_to_all() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["on-term", "0"]);
    here.started("one", &bundle);
    let waits = within(PATIENCE, || here.output("one").contains("ready").then_some(()));
    assert!(waits.is_some());
    here.oci(["kill", "--all", "one", "TERM"]).run().ok();
    here.await_status("one", "stopped");
    here.oci(["delete", "one"]).run().ok();
    here.started("one", &bundle);
    here.oci(["pause", "one"]).run().ok();
    here.oci(["kill", "--all", "one", "KILL"]).run().ok();
    here.await_status("one", "stopped");
    assert!(here.oci(["kill", "--all", "one", "KILL"]).run().expect(1).stderr().contains("not running"));
    here.oci(["delete", "one"]).run().ok();
    here.nothing_left();
}

/// A making that is killed leaves what `delete --force` takes away: its processes, its cgroup, its directory.
#[test]
fn a_making_that_is_killed() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    let id = format!("{}killed", here.world.mark());
    let gate = here.world.text("gate");
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let script = format!("read pid < {gate}");
    bundle.with(|config| {
        config["hooks"] = json!({"createRuntime": [{"path": "/bin/sh", "args": ["sh", "-c", script]}]});
    });
    let making = here.oci(["create", "--bundle", bundle.path(), &id]).start();
    // The hook waits for a word.
    let open = || fs::OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(&gate).ok();
    let mut word = within(PATIENCE, open).expect("the hook reads");
    assert!(!cgroups(&id).is_empty());
    making.signal(rustix::process::Signal::KILL);
    making.wait_for_the_process_alone();
    std::io::Write::write_all(&mut word, b"go\n").unwrap();
    assert!(here.oci(["state", &id]).run().expect(1).stderr().contains("does not exist"));
    here.oci(["delete", "--force", &id]).run().ok();
    here.nothing_left();
    assert_eq!(cgroups(&id), Vec::<std::path::PathBuf>::new());
    assert_eq!(crate::processes::with_word(&id), []);
}

/// Who is in a cgroup before a container is to be made in it, or beneath it, is left alone: the container is refused. (With `/` it would have
/// been everybody: `keep::tests` asks for that one without a container.)
#[test]
fn a_cgroup_that_others_are_in_is_refused() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    let id = format!("{}shared", here.world.mark());
    let hierarchies = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(std::path::PathBuf::from);
    let Some(above) = hierarchies.into_iter().find(|path| path.join("cgroup.procs").exists()) else { return };
    let (cgroup, beneath) = (above.join(&id), above.join(&id).join("beneath"));
    fs::create_dir(&cgroup).unwrap();
    fs::create_dir(&beneath).unwrap();
    let mut other = std::process::Command::new(crate::probe::path())
        .arg("hang")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut refusals = Vec::new();
    for place in [&cgroup, &beneath] {
        fs::write(place.join("cgroup.procs"), other.id().to_string()).unwrap();
        for path in [format!("/{id}"), format!("/../{id}/none/..")] {
            bundle.with(|config| config["linux"]["cgroupsPath"] = json!(path));
            refusals.push(here.oci(["create", "--bundle", bundle.path(), &id]).run().expect(1).stderr().to_owned());
            here.oci(["delete", "--force", &id]).run().ok();
        }
    }
    let lives = other.try_wait().unwrap().is_none();
    other.kill().unwrap();
    other.wait().unwrap();
    fs::remove_dir(&beneath).unwrap();
    fs::remove_dir(&cgroup).unwrap();
    assert!(lives);
    for why in refusals {
        assert!(why.contains("not empty") && why.contains(&id), "{why}");
    }
    here.nothing_left();
}

/// `..` does not lead out of the file system of cgroups.
#[test]
fn a_path_of_a_cgroup_stays_beneath_its_hierarchy() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["args"]);
    let outside = here.world.directory("outside");
    let up = "../".repeat(12);
    for path in [format!("{up}{}/made", &outside.to_str().unwrap()[1..]), format!("/{up}{}/made", outside.display())] {
        bundle.with(|config| config["linux"]["cgroupsPath"] = json!(path));
        here.oci(["run", "--bundle", bundle.path(), "one"]).run().ok();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{path}");
    }
    // What is left of them beneath the hierarchies.
    let first = outside.components().nth(1).unwrap().as_os_str().to_owned();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    for hierarchy in fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path()) {
        for base in own.lines().filter_map(|line| line.splitn(3, ':').nth(2)).chain(["/"]) {
            let base = hierarchy.join(base.trim_start_matches('/'));
            let mut left = base.join(outside.strip_prefix("/").unwrap());
            while left.starts_with(base.join(&first)) {
                let _ = fs::remove_dir(&left);
                left.pop();
            }
        }
    }
    here.nothing_left();
}

const O_NONBLOCK: i32 = 0o4000;

/// What the caller had started before it became smcp is no business of a making that fails.
#[test]
fn children_of_the_caller_are_left_alone() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    bundle.with(|config| config["hooks"] = json!({"createRuntime": [{"path": "/bin/false"}]}));
    let probe = bundle.rootfs().join("probe").to_str().unwrap().to_owned();
    let smcp = crate::place::smcp().to_str().unwrap().to_owned();
    let script = "\"$0\" hang >/dev/null 2>&1 & echo $!; exec \"$@\"";
    let line = ["-c", script, &probe, &smcp, "oci", "--root", &here.world.text("containers"), "create", "--bundle"];
    let ended = here.world.program("/bin/sh", line).args([bundle.path(), "one"]).run().expect(1);
    let child = rustix::process::Pid::from_raw(ended.text().trim().parse().unwrap()).unwrap();
    let status = fs::read_to_string(format!("/proc/{child}/status")).unwrap_or_default();
    assert!(status.contains("State:\tS"), "{status}");
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    here.nothing_left();
}

/// Limits are in force from the start, and others by `update`; what is used is said in runc's form.
#[test]
fn limits_and_what_is_used() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    bundle.with(|config| config["linux"]["resources"]["memory"] = json!({"limit": 64 << 20}));
    here.started("one", &bundle);
    let limit = || here.oci(["events", "--stats", "one"]).run().ok().json()["data"]["memory"]["usage"]["limit"].clone();
    assert_eq!(limit(), 64 << 20);
    here.oci(["update", "--memory", "33554432", "one"]).run().ok();
    assert_eq!(limit(), 32 << 20);
    here.oci(["update", "-r", "-", "one"]).stdin(r#"{"memory": {"limit": 50331648}}"#).run().ok();
    assert_eq!(limit(), 48 << 20);
    let event = here.oci(["events", "--stats", "one"]).run().ok().json();
    assert_eq!((&event["type"], &event["id"]), (&json!("stats"), &json!("one")));
    assert_eq!(event["data"]["pids"]["current"], 1);
    let members = here.oci(["ps", "--format", "json", "one"]).run().ok().json();
    assert_eq!(members, json!([here.state("one")["pid"]]));
    assert!(here.oci(["ps", "one"]).run().ok().text().contains("/probe hang"));
    here.oci(["delete", "-f", "one"]).run().ok();
}

/// The number of the first process is where the caller wants it.
#[test]
fn a_pid_file() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    let file = here.world.text("pid");
    let line = ["run", "--detach", "--pid-file", &file, "--bundle", bundle.path(), "one"];
    // What a container has inherited is open as long as it lives.
    here.world
        .program(
            "/bin/sh",
            ["-c", "exec \"$@\" </dev/null >/dev/null 2>&1", "sh", crate::place::smcp().to_str().unwrap()],
        )
        .args(["oci", "--root", &here.world.text("containers")])
        .args(line)
        .run()
        .ok();
    let pid: Value = fs::read_to_string(&file).unwrap().parse::<u32>().unwrap().into();
    assert_eq!(here.state("one")["pid"], pid);
    here.oci(["delete", "-f", "one"]).run().ok();
}

/// What the runtime knows, as callers ask it.
#[test]
fn features() {
    let Some(here) = Containers::new() else { return };
    let features = here.oci(["features"]).run().ok().json();
    assert_eq!(features["linux"]["seccomp"]["enabled"], true);
    for name in ["ociVersionMin", "ociVersionMax", "hooks", "mountOptions"] {
        assert!(!features[name].is_null(), "{name}");
    }
    let version = here.oci(["--version"]).run().ok().text();
    assert!(version.starts_with("smcp-oci "), "{version}");
}
