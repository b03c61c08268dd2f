//! containerd and podman with smcp as their runtime.

use serde_json::json;

use super::by_name;
use crate::command::Ended;
use crate::elsewhere::{Containerd, SLOW, pushed};
use crate::needs;
use crate::patience::{PATIENCE, within};
use crate::world::{User, World};

/// podman runs a package of the probe's, joins it, ends it, and tells what is missing.
#[test]
fn podman_with_smcp_as_its_runtime() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let Some(podman) = needs::program("podman", "podman") else { return };
    let Some(reference) = pushed(&world) else { return };
    let runtime = by_name(&world);
    let podman = |line: &[&str]| -> Ended { world.podman(&podman, &runtime).args(line).within(SLOW).run() };
    // Its own limits are more than a root in a container may give.
    let modest = ["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", &reference];
    let run = |flags: &[&str], words: &[&str]| podman(&[&["run"], flags, &modest, words].concat());
    podman(&["pull", "--quiet", "--tls-verify=false", &reference]).ok();
    assert_eq!(run(&["--rm"], &["args", "by podman"]).ok().json(), json!(["by podman"]));
    run(&["--rm"], &["exit", "6"]).expect(6);
    // Its profile of system calls is in force, without noNewPrivileges.
    let status = run(&["--rm"], &["read", "/proc/self/status"]).ok().json();
    assert!(status.as_str().unwrap().contains("Seccomp:\t2"), "{status}");
    let user = ["--rm", "--user", "1000:1000", "--read-only", "--tmpfs", "/run"];
    assert_eq!(run(&user, &["write", "/run/new", "x"]).ok().json(), "written");
    // Entry points that are not there, and are no programs: what podman makes of the words.
    run(&["--rm", "--entrypoint", "/none"], &[]).expect(127);
    run(&["--rm", "--entrypoint", "/etc"], &[]).expect(126);
    run(&["--detach", "--name", "one"], &["on-term", "9"]).ok();
    assert_eq!(podman(&["exec", "one", "/app/probe", "args", "joined"]).ok().json(), json!(["joined"]));
    podman(&["exec", "one", "/app/probe", "exit", "7"]).expect(7);
    podman(&["pause", "one"]).ok();
    podman(&["unpause", "one"]).ok();
    podman(&["stop", "--time", "60", "one"]).ok();
    assert_eq!(podman(&["wait", "one"]).ok().text().trim(), "9");
    podman(&["rm", "one"]).ok();
}

/// Rootless podman does: as root of a user namespace, where nobody may make a cgroup of version 1.
#[test]
fn rootless_podman_with_smcp_as_its_runtime() {
    let world = World::new(User::Ordinary);
    let Some(podman) = needs::program("podman", "podman") else { return };
    let Some(reference) = pushed(&world) else { return };
    let own = world.directory("runtime");
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let runtime = by_name(&world);
    let podman = |line: &[&str]| -> Ended {
        world
            .podman(&podman, &runtime)
            .args(["--storage-opt", "vfs.ignore_chown_errors=true"])
            .args(line)
            .env("XDG_RUNTIME_DIR", &own)
            .within(SLOW)
            .run()
    };
    let run =
        |flags: &[&str], words: &[&str]| podman(&[&["run", "--network", "none"], flags, &[&reference], words].concat());
    podman(&["pull", "--quiet", "--tls-verify=false", &reference]).ok();
    assert_eq!(run(&["--rm"], &["args", "rootless"]).ok().json(), json!(["rootless"]));
    run(&["--rm"], &["exit", "6"]).expect(6);
    run(&["--detach", "--name", "one"], &["on-term", "9"]).ok();
    assert_eq!(podman(&["exec", "one", "/app/probe", "args", "joined"]).ok().json(), json!(["joined"]));
    podman(&["stop", "--time", "60", "one"]).ok();
    assert_eq!(podman(&["wait", "one"]).ok().text().trim(), "9");
    podman(&["rm", "one"]).ok();
}

/// containerd's shim does.
#[test]
fn containerd_with_smcp_as_its_runtime() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let (Some(containerd), Some(reference)) = (Containerd::start(&world), pushed(&world)) else { return };
    let ctr = |line: &[&str]| containerd.ctr(line);
    ctr(&["images", "pull", "--plain-http", "--snapshotter", "native", &reference]).ok();
    let id = world.mark().trim_end_matches('-');
    let runtime = by_name(&world);
    let run = |flags: &[&str], words: &[&str]| {
        let own = ["--snapshotter", "native", "--runc-binary", &runtime, &reference, id];
        ctr(&[&["run"], flags, &own, words].concat())
    };
    let told = run(&["--rm"], &["/app/probe", "args", "by containerd"]).ok();
    assert_eq!(told.json(), json!(["by containerd"]));
    run(&["--rm"], &["/app/probe", "exit", "5"]).expect(5);
    let missing = run(&["--rm"], &["/none"]).expect(1);
    assert!(missing.stderr().contains("no such file or directory"), "{}", missing.stderr());
    ctr(&["containers", "rm", id]);
    run(&["--detach"], &["/app/probe", "on-term", "9"]).ok();
    let exec = |words: &[&str]| ctr(&[&["tasks", "exec", "--exec-id", "e", id], words].concat());
    assert_eq!(exec(&["/app/probe", "args", "joined"]).ok().json(), json!(["joined"]));
    exec(&["/app/probe", "exit", "3"]).expect(3);
    let listed = || ctr(&["tasks", "ls"]).ok().text();
    ctr(&["tasks", "pause", id]).ok();
    assert!(listed().contains("PAUSED"), "{}", listed());
    ctr(&["tasks", "resume", id]).ok();
    assert!(ctr(&["tasks", "metrics", id]).ok().text().contains("memory"));
    ctr(&["tasks", "kill", "--signal", "SIGTERM", id]).ok();
    let stopped = within(PATIENCE, || listed().contains("STOPPED").then_some(()));
    assert!(stopped.is_some(), "{}", listed());
    let removed = ctr(&["tasks", "rm", id]).ok();
    assert!(removed.stderr().contains("exit code 9"), "{}", removed.stderr());
    ctr(&["containers", "rm", id]).ok();
    containerd.end();
}

/// containerd reads the configuration that docs/containerd.md shows, with the runtime for Kubernetes in it.
#[test]
fn containerd_takes_the_documented_configuration() {
    let world = World::new(User::of_the_tests());
    let Some(containerd) = needs::program("containerd", "containerd") else { return };
    let text = include_str!("../../docs/containerd.md");
    let (_, rest) = text.split_once("```toml\nversion = 2\n").expect("the page has it");
    let (config, _) = rest.split_once("```").expect("a block has an end");
    let file = world.file("config.toml", format!("version = 2\n{config}"));
    let dumped = world.program(&containerd, ["--config", file.to_str().unwrap(), "config", "dump"]).run().ok().text();
    let (_, section) = dumped
        .split_once("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.smcp-oci]")
        .expect("the runtime is in it");
    assert!(section.contains("runtime_type = \"io.containerd.runc.v2\""), "{section}");
    assert!(section.contains("BinaryName = \"/usr/local/bin/smcp-oci\""), "{section}");
}
