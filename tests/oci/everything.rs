//! The server that has everything, packaged, by other tools with smcp as their runtime: the MCP inspector hears what it hears by `smcp run`.

use serde_json::json;

use super::by_name;
use crate::command::{Ended, Running};
use crate::elsewhere::{Containerd, SLOW};
use crate::needs;
use crate::patience::{PATIENCE, within};
use crate::place;
use crate::real_servers::everything_package;
use crate::servers::inspect;
use crate::world::{User, World};

const LISTS: [&str; 3] = ["tools/list", "resources/list", "prompts/list"];

/// Asks for each list, by a command line that is made for its question: names of containers count once.
fn lists_are_those_of_a_run(world: &World, command: impl Fn(&str) -> Vec<String>) {
    let reference = everything_package();
    world.smcp(["pull", &reference]).run().ok();
    let run = [place::smcp().to_str().expect("UTF-8"), "run", &reference].map(str::to_owned);
    for list in LISTS {
        let [caged, other] = [run.to_vec(), command(list)].map(|server| inspect(world, &server, &[list]).ok());
        assert!(caged.text().contains("\"name\""), "{list}: {}", caged.text());
        assert_eq!(other.text(), caged.text(), "{list}");
    }
}

#[test]
fn by_containerd() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let Some(containerd) = Containerd::start(&world) else { return };
    let reference = everything_package();
    containerd.ctr(&["images", "pull", "--plain-http", "--snapshotter", "native", &reference]).ok();
    let runtime = by_name(&world);
    let id = |list: &str| format!("{}{}", world.mark(), list.replace('/', "-"));
    lists_are_those_of_a_run(&world, |list| {
        let id = id(list);
        containerd.command(&["run", "--rm", "--snapshotter", "native", "--runc-binary", &runtime, &reference, &id])
    });
    // The inspector ends ctr before that has removed anything.
    for list in LISTS {
        let id = id(list);
        let gone = within(PATIENCE, || {
            containerd.ctr(&["tasks", "rm", "--force", &id]);
            containerd.ctr(&["containers", "rm", &id]);
            (!containerd.ctr(&["containers", "ls", "--quiet"]).ok().text().contains(&id)).then_some(())
        });
        assert!(gone.is_some(), "{id} stays");
    }
    containerd.end();
}

#[test]
fn by_podman() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let Some(podman) = needs::program("podman", "podman") else { return };
    let reference = everything_package();
    let [root, run, tmp] = ["root", "r", "tmp"].map(|name| world.text(&format!("podman-{name}")));
    let places = ["--root", &root, "--runroot", &run, "--tmpdir", &tmp, "--storage-driver", "vfs"];
    let runtime = by_name(&world);
    let own = [&places[..], &["--cgroup-manager", "cgroupfs", "--runtime", &runtime]].concat();
    let pull = ["pull", "--quiet", "--tls-verify=false", &reference];
    world.program(&podman, &own).args(pull).within(SLOW).run().ok();
    // Its own limits are more than a root in a container may give.
    let modest = ["run", "--rm", "--interactive", "--network", "none", "--ulimit", "nofile=1024:1024"];
    let line = [&own[..], &modest, &["--ulimit", "nproc=1024:1024", &reference]].concat();
    let words = [podman.to_str().expect("UTF-8")].into_iter().chain(line).map(str::to_owned).collect::<Vec<_>>();
    lists_are_those_of_a_run(&world, |_| words.clone());
    // The inspector ends podman before that has removed anything.
    world.program(&podman, &own).args(["rm", "--all", "--force"]).within(SLOW).run().ok();
}

/// Docker before 23 takes no layers of zstd: containerd makes an image without compression of it.
#[test]
fn by_docker() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let (Some(docker), Some(containerd)) = (Docker::start(&world), Containerd::start(&world)) else { return };
    let reference = everything_package();
    let plain = format!("{reference}-plain");
    let archive = world.text("image.tar");
    containerd.ctr(&["images", "pull", "--plain-http", "--snapshotter", "native", &reference]).ok();
    containerd.ctr(&["images", "convert", "--uncompress", "--oci", &reference, &plain]).ok();
    containerd.ctr(&["images", "export", &archive, &plain]).ok();
    containerd.end();
    docker.ask(&["load", "--quiet", "--input", &archive]).ok();
    std::fs::remove_file(&archive).expect("it is there");
    let line = ["run", "--rm", "--interactive", "--network", "none", "--runtime", "smcp-oci", &plain];
    lists_are_those_of_a_run(&world, |_| docker.command(&line));
    // And what callers of a runtime rely on.
    let run = |flags: &[&str]| docker.ask(&[&["run", "--runtime", "smcp-oci", "--network", "none"], flags].concat());
    run(&["--rm", "--entrypoint", "/none", &plain]).expect(127);
    let hang = "setInterval(() => {}, 1000); process.on('SIGTERM', () => process.exit(9)); console.log('listens')";
    let node =
        docker.ask(&["inspect", "--format", "{{index .Config.Entrypoint 0}}", &plain]).ok().text().trim().to_owned();
    run(&["--detach", "--name", "one", "--entrypoint", &node, &plain, "-e", hang]).ok();
    let sum = docker.ask(&["exec", "one", &node, "-e", "console.log(6 * 7)"]).ok();
    assert_eq!(sum.text().trim(), "42");
    // Until then it would not take the signal: it is the first process.
    let listens = || docker.ask(&["logs", "one"]).ok().text().contains("listens").then_some(());
    within(PATIENCE, listens).expect("node says so");
    docker.ask(&["stop", "--time", "60", "one"]).ok();
    assert_eq!(docker.ask(&["wait", "one"]).ok().text().trim(), "9");
    let left = docker.ask(&["ps", "--all", "--quiet"]).ok().text();
    left.split_whitespace().for_each(|id| drop(docker.ask(&["rm", "--force", id])));
    docker.end();
}

/// A docker daemon of a test's own, which changes nothing of the machine's network.
struct Docker<'w> {
    world: &'w World,
    daemon: Running,
    program: String,
    socket: String,
}

impl<'w> Docker<'w> {
    /// Starts it, and waits until it answers. `None` where it is not installed.
    fn start(world: &'w World) -> Option<Docker<'w>> {
        let (daemon, _) = (needs::program("dockerd", "docker.io")?, needs::program("docker", "docker.io")?);
        let [data, exec, pid, socket] =
            ["data", "exec", "pid", "socket"].map(|name| world.text(&format!("docker-{name}")));
        let config = json!({
            "runtimes": {"smcp-oci": {"path": by_name(world)}},
            "data-root": data,
            "exec-root": exec,
            "pidfile": pid,
            "hosts": [format!("unix://{socket}")],
            "bridge": "none",
            "iptables": false,
            "ip6tables": false,
            "storage-driver": "vfs",
        });
        let file = world.file("daemon.json", config.to_string());
        let daemon = world.program(&daemon, ["--config-file", file.to_str().expect("UTF-8")]).start();
        // A machine may have another docker before Debian's on its path.
        let started = Docker { world, daemon, program: "/usr/bin/docker".into(), socket };
        let answers = within(PATIENCE, || (started.ask(&["version"]).code() == 0).then_some(()));
        assert!(answers.is_some(), "dockerd does not answer");
        Some(started)
    }

    fn command(&self, line: &[&str]) -> Vec<String> {
        let host = format!("unix://{}", self.socket);
        [&[&*self.program, "--host", &host], line].concat().into_iter().map(str::to_owned).collect()
    }

    fn ask(&self, line: &[&str]) -> Ended {
        let words = self.command(line);
        self.world.program(std::path::Path::new(&words[0]), &words[1..]).within(SLOW).run()
    }

    fn end(self) {
        self.daemon.signal(rustix::process::Signal::TERM);
        self.daemon.wait();
    }
}
