//! The commands that are compared.

use std::process::Command;

use crate::sample::Children::{Left, Waited};
use crate::sample::Contender;
use crate::world::{Package, SERVER, World};

/// Those that start the program that ends at once.
pub fn of_the_cage(world: &World) -> Vec<Contender<'_>> {
    let package = &world.nothing;
    vec![
        Contender::new("bare", Waited, move || world.command(package.root.join("app/true"))),
        Contender::new("smcp", Waited, move || smcp(world, package)),
        Contender::new("bubblewrap", Left, move || bubblewrap(world, package)),
        Contender::new("crun", Waited, move || crun(world, package)),
    ]
}

/// Those that start the server.
pub fn of_the_server(world: &World) -> Vec<Contender<'_>> {
    let package = &world.server;
    vec![
        Contender::new("bare", Waited, move || bare_node(world, package)),
        Contender::new("smcp", Waited, move || smcp(world, package)),
        Contender::new("bubblewrap", Left, move || bubblewrap(world, package)),
        Contender::new("crun", Waited, move || crun(world, package)),
        Contender::new("npx", Waited, move || npx(world)),
    ]
}

fn smcp(world: &World, package: &Package) -> Command {
    let mut command = world.command(world.smcp());
    command.args(["run", &package.reference]);
    command
}

/// The package's own interpreter and files, without anything around them.
fn bare_node(world: &World, package: &Package) -> Command {
    let inside = |path: &str| package.root.join(path.trim_start_matches('/'));
    let mut command = world.command(inside("usr/local/bin/node"));
    command.env_clear().envs(world.server_env());
    command
        .args(package.command[1..].iter().map(|word| if word.starts_with('/') { inside(word) } else { word.into() }));
    command
}

/// The same root, mounts, namespaces and user as smcp's. `--proc` and `--dev` are bubblewrap's own; it masks no path.
fn bubblewrap(world: &World, package: &Package) -> Command {
    // Root's servers run as somebody without rights.
    let (uid, gid) = match (rustix::process::getuid(), rustix::process::getgid()) {
        (uid, _) if uid.is_root() => (65534, 65534),
        (uid, gid) => (uid.as_raw(), gid.as_raw()),
    };
    let home = world.home();
    let mut command = world.command("bwrap");
    command.args(["--unshare-all", "--uid", &uid.to_string(), "--gid", &gid.to_string()]);
    command.arg("--ro-bind").arg(&package.root).arg("/");
    command.args(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs"]).arg(&home);
    command.args(["--cap-drop", "ALL", "--new-session", "--die-with-parent", "--clearenv"]);
    for (name, value) in world.server_env() {
        command.args(["--setenv", name, &value]);
    }
    command.arg("--chdir").arg(&home).arg("--").args(&package.command);
    command
}

/// smcp's own plan by another runtime, without seccomp and without cgroups, which smcp does not have yet either.
fn crun(world: &World, package: &Package) -> Command {
    let mut command = world.command("crun");
    command.arg("--root").arg(world.own("crun")).args(["--cgroup-manager=disabled", "run", "--bundle"]);
    command.arg(&package.bundle).arg("bench");
    command
}

/// As a client's configuration has it, with everything in npm's cache.
fn npx(world: &World) -> Command {
    let mut command = world.command("npx");
    command.args(["--prefer-offline", "-y", &format!("{SERVER}@{}", world.version)]);
    command
}
