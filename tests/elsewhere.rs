//! Packages of smcp in the hands of other tools, and what these push in the hands of smcp. They run containers as root alone
//! without more being set up.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::build::source;
use crate::command::{Ended, Running};
use crate::patience::{PATIENCE, within};
use crate::world::{User, World};
use crate::{needs, registry};

/// Debian's podman unpacks and runs what `smcp build` and `smcp push` made; what it pushes then runs here.
#[test]
fn podman_runs_a_package_and_gives_it_back() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let (Some(podman), Some(runc)) = (needs::program("podman", "podman"), needs::program("runc", "runc")) else {
        return;
    };
    let Some(reference) = pushed(&world) else { return };
    let runc = runc.to_str().expect("a path of Debian's is UTF-8");
    let podman = |line: &[&str]| world.podman(&podman, runc).args(line).within(SLOW).run().ok();
    podman(&["pull", "--quiet", "--tls-verify=false", &reference]);
    // Its own limits are more than a root in a container may give.
    let modest = ["run", "--rm", "--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
    assert_eq!(podman(&[&modest[..], &[&reference, "args", "by podman"]].concat()).json(), json!(["by podman"]));
    assert_eq!(podman(&[&modest[..], &[&reference, "cwd"]].concat()).json(), "/");
    // Docker's form has no layers by zstd.
    let again = format!("{reference}-again");
    podman(&["push", "--quiet", "--tls-verify=false", "--format", "oci", &reference, &format!("docker://{again}")]);
    let other = World::new(User::Root);
    other.smcp(["pull", &again]).run().ok();
    assert_eq!(other.smcp(["run", &again, "args", "again"]).run().ok().json(), json!(["again"]));
}

/// And containerd's ctr does.
#[test]
fn containerd_runs_a_package() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let (Some(containerd), Some(reference)) = (Containerd::start(&world), pushed(&world)) else { return };
    containerd.ctr(&["images", "pull", "--plain-http", "--snapshotter", "native", &reference]).ok();
    let container = world.mark().trim_end_matches('-');
    let run = ["run", "--rm", "--snapshotter", "native", &reference, container];
    // ctr takes what follows in place of the entry point.
    let told = containerd.ctr(&[&run[..], &["/app/probe", "args", "by containerd"]].concat()).ok();
    assert_eq!(told.json(), json!(["by containerd"]));
    containerd.end();
}

/// A containerd of a test's own, without Kubernetes' part.
pub struct Containerd<'w> {
    world: &'w World,
    daemon: Running,
    ctr: PathBuf,
    socket: String,
}

impl<'w> Containerd<'w> {
    /// Starts it, and waits until it answers. `None` where it is not installed.
    pub fn start(world: &'w World) -> Option<Containerd<'w>> {
        let (daemon, ctr) = (needs::program("containerd", "containerd")?, needs::program("ctr", "containerd")?);
        let [config, root, state, socket] =
            ["config.toml", "root", "state", "socket"].map(|name| world.text(&format!("containerd-{name}")));
        world.file("containerd-config.toml", "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n");
        let line = ["--config", &config, "--root", &root, "--state", &state, "--address", &socket];
        let daemon = world.program(&daemon, line).start();
        let started = Containerd { world, daemon, ctr, socket };
        let answers = within(PATIENCE, || (started.ctr(&["version"]).code() == 0).then_some(()));
        assert!(answers.is_some(), "containerd does not answer");
        Some(started)
    }

    /// Runs ctr with it.
    pub fn ctr(&self, line: &[&str]) -> Ended {
        let words = self.command(line);
        self.world.program(&self.ctr, &words[1..]).within(SLOW).run()
    }

    /// The words of that.
    pub fn command(&self, line: &[&str]) -> Vec<String> {
        let program = self.ctr.to_str().expect("a path of Debian's is UTF-8");
        [&[program, "--address", &*self.socket], line].concat().into_iter().map(str::to_owned).collect()
    }

    /// Ends it.
    pub fn end(self) {
        self.daemon.signal(rustix::process::Signal::TERM);
        self.daemon.wait();
    }
}

/// buildah makes an image of files and pushes it in both forms.
#[test]
fn what_buildah_pushed_runs() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let (Some(buildah), Some(registry)) = (needs::program("buildah", "buildah"), registry::address()) else { return };
    let (root, run) = (world.text("buildah-root"), world.text("buildah-r"));
    let buildah = |line: &[&str]| {
        let own = ["--root", &root, "--runroot", &run, "--storage-driver", "vfs"];
        world.program(&buildah, own).args(line).within(SLOW).run().ok()
    };
    let source = source(&world);
    let container = buildah(&["from", "scratch"]).text().trim().to_owned();
    buildah(&["copy", "--quiet", &container, &format!("{source}/probe"), "/usr/bin/probe"]);
    buildah(&["config", "--entrypoint", r#"["/usr/bin/probe"]"#, "--workingdir", "/usr", &container]);
    for form in ["oci", "docker"] {
        let name = format!("{registry}/buildah/{}:{form}", world.mark().trim_end_matches('-'));
        buildah(&["commit", "--quiet", "--format", form, &container, &name]);
        buildah(&[
            "push",
            "--quiet",
            "--tls-verify=false",
            "--format",
            if form == "oci" { "oci" } else { "v2s2" },
            &name,
        ]);
        world.smcp(["pull", &name]).run().ok();
        assert_eq!(world.smcp(["run", &name, "args", form]).run().ok().json(), json!([form]));
        assert_eq!(world.smcp(["run", &name, "cwd"]).run().ok().json(), "/usr");
    }
}

/// How long one of their commands may take on a busy machine.
pub const SLOW: Duration = Duration::from_secs(120);

/// A package of the probe's, built and pushed by smcp.
pub fn pushed(world: &World) -> Option<String> {
    let reference = format!("{}/elsewhere/{}:v1", registry::address()?, world.mark().trim_end_matches('-'));
    world.smcp(["build", &source(world), "-t", &reference]).run().ok();
    world.smcp(["push", &reference]).run().ok();
    Some(reference)
}
