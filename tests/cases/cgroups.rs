//! The ways in which machines have cgroups (K4), and limits where there is none (K9). This machine's own way is what all
//! other tests run on. A delegated version 2, as systemd gives it to a session, needs a machine of its own.

use serde_json::{Value, json};

use crate::command::{Ended, Smcp};
use crate::needs;
use crate::place;
use crate::world::{User, World, as_each_user, at_each_tier};
use crate::{image, processes};

at_each_tier! {
    k4_no_bus_is_needed,
}

as_each_user! {
    k4_version_2_alone_falls_back,
    k4_no_cgroup_at_all_falls_back,
    k9_one_process_without_a_cgroup,
    k9_twenty_processes_without_a_cgroup,
}

/// Another machine, as far as one mount namespace can show it. Nothing outside of it changes.
#[derive(Clone, Copy)]
enum Machine {
    /// Version 2 alone. The controllers that version 1 has here are not free for it.
    Version2,
    /// No cgroup file system.
    NoCgroup,
}

impl Machine {
    /// `smcp RUN…` on that machine; `None` where this one cannot stand in for it.
    fn smcp<'w>(self, world: &'w World, run: &[&str]) -> Option<Smcp<'w>> {
        let tools = [needs::program("unshare", "util-linux"), needs::program("setpriv", "util-linux")];
        if !needs::root() || tools.contains(&None) {
            return None;
        }
        let mount = match self {
            Machine::Version2 => "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
            Machine::NoCgroup => ":",
        };
        let ids = format!("--reuid {0} --regid {1} --clear-groups", world.user().id(), world.user().group());
        let script = format!("set -e; umount -R /sys/fs/cgroup; {mount}; exec setpriv {ids} \"$@\"");
        let line = ["--mount", "sh", "-c", &script, "sh", place::smcp().to_str().expect("UTF-8")];
        // Root makes the namespace, whoever the world's user is.
        Some(world.program("/usr/bin/unshare", line).args(run).by(User::Root))
    }

    /// A run there, with its begin entry; the client keeps stdin open.
    #[track_caller]
    fn run(self, world: &World, flags: &[&str], verb: &[&str]) -> Option<(Ended, Value)> {
        let mut running = self.smcp(world, &[&["run"], flags, &[image::probe_reference()], verb].concat())?.start();
        let stdin = running.take_stdin();
        let ended = running.wait();
        drop(stdin);
        let begin = world.audit().into_iter().find(|entry| entry["event"] == "begin");
        ended.check(begin.is_some(), "a begin entry was expected");
        Some((ended, begin?))
    }
}

/// The strongest that works is taken, which is not version 2, and the log says so.
fn k4_version_2_alone_falls_back(world: &World) {
    let Some((ended, begin)) = Machine::Version2.run(world, &[], &["exit", "9"]) else { return };
    ended.expect(9);
    assert_eq!((&begin["cgroup"], &begin["layers"]["guard"]), (&json!("none"), &json!("full")), "{begin}");
    for layer in ["user-namespace", "cgroup-namespace", "capabilities"] {
        assert_eq!(begin["layers"][layer], "full", "{begin}");
    }
    let why = begin["layers"]["cgroup"].as_str().unwrap_or_default();
    assert!(why.starts_with("absent: "), "{why}");
}

fn k4_no_cgroup_at_all_falls_back(world: &World) {
    let Some((ended, begin)) = Machine::NoCgroup.run(world, &[], &["exit", "9"]) else { return };
    ended.expect(9);
    assert_eq!((&begin["cgroup"], &begin["layers"]["guard"]), (&json!("none"), &json!("full")), "{begin}");
    let why = begin["layers"]["cgroup"].as_str().unwrap_or_default();
    assert!(why.starts_with("absent: "), "{why}");
}

/// Neither an address of a session bus that nobody answers at, nor none, changes anything.
fn k4_no_bus_is_needed(world: &World) {
    let nowhere = format!("unix:path={}", world.text("tmp/no-bus"));
    for run in [
        world.caged(&[], &["exit", "9"]),
        world.caged(&[], &["exit", "9"]).env("DBUS_SESSION_BUS_ADDRESS", nowhere).env("XDG_RUNTIME_DIR", "/nowhere"),
    ] {
        run.run().expect(9);
    }
    let begun: Vec<_> = world.audit().into_iter().filter(|entry| entry["event"] == "begin").collect();
    assert_eq!(begun[0]["layers"], begun[1]["layers"]);
}

fn k9_one_process_without_a_cgroup(world: &World) {
    without_a_cgroup(world, &["hog", "1000", "2"]);
}

fn k9_twenty_processes_without_a_cgroup(world: &World) {
    without_a_cgroup(world, &["hog-among", "20", "10"]);
}

#[track_caller]
fn without_a_cgroup(world: &World, verb: &[&str]) {
    let verb = [verb, &[world.mark()]].concat();
    let Some((ended, begin)) = Machine::NoCgroup.run(world, &["--memory", "64M"], &verb) else { return };
    assert_eq!(begin["cgroup"], "none");
    super::limits::limited(world, &ended, &json!({"name": "memory", "value": 64 << 20}), &["--memory", "64M"]);
    processes::none_left(world, std::time::Duration::from_secs(1));
}
