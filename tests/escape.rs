//! Ways out, each as a pair: it works outside, and fails inside.
//!
//! The tests must not harm the machine where smcp fails: an attempt is chosen so that it does nothing where it works.
//!
//! The probe does the same thing both times. Outside, the world's user does it, or root where only root can; there it must
//! work, or the pair would show nothing. Inside it must be refused by the system ([`REFUSED`]): a crash or an error of
//! smcp's does not count.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::{fs, process};

use serde_json::json;

use crate::needs;
use crate::probe::{self, REFUSED};
use crate::world::{SECRET, User, World, as_each_user};

/// Works for the world's user outside, is refused inside.
#[track_caller]
fn pair(world: &World, verb: &[&str]) {
    pair_with(world, &[], verb);
}

/// The same with grants inside.
#[track_caller]
fn pair_with(world: &World, flags: &[&str], verb: &[&str]) {
    world.bare(verb).run().ok();
    refused(world, flags, verb);
}

/// Works for root outside, is refused inside for every user.
#[track_caller]
fn pair_of_root(world: &World, verb: &[&str]) {
    if needs::root() {
        World::new(User::Root).bare(verb).run().ok();
    }
    refused(world, &[], verb);
}

#[track_caller]
fn refused(world: &World, flags: &[&str], verb: &[&str]) {
    world.caged(flags, verb).run().expect(REFUSED);
}

as_each_user! {
    reading_the_ssh_key,
    writing_outside_the_grants,
    reading_outside_the_grants,
    reading_smcps_own_files,
    seeing_another_process,
    reaching_another_process,
    looking_into_the_first_process,
    reaching_a_listener_on_the_hosts_loopback,
    reaching_an_abstract_socket,
    finding_shared_memory,
    keeping_a_descriptor,
    regaining_a_capability,
    becoming_root_by_a_set_user_id_program,
    mounting,
    making_a_device,
    changing_the_root,
    reading_the_hosts_passwords,
    changing_the_hosts_name,
    changing_the_kernels_settings,
    reading_the_kernels_secrets,
    listing_everything,
}

fn reading_the_ssh_key(world: &World) {
    pair(world, &["read", &world.text("home/.ssh/id")]);
    // Neither by a grant beside it, nor through a link in the grant.
    std::os::unix::fs::symlink(world.path("home/.ssh/id"), world.path("project/link")).unwrap();
    world.bare(&["read", &world.text("project/link")]).run().ok();
    refused(world, &["--allow-write", &world.text("project")], &["read", &world.text("project/link")]);
    refused(world, &["--allow-write", &world.text("project")], &["read", &world.text("project/../home/.ssh/id")]);
}

fn writing_outside_the_grants(world: &World) {
    let file = world.text("private/new");
    pair(world, &["write", &file, "x"]);
    fs::write(&file, "the host's").unwrap();
    refused(world, &["--allow-write", &world.text("project")], &["write", &file, "x"]);
    refused(world, &["--allow-write", &world.text("project")], &["write", &world.text("project/../private/new"), "x"]);
    assert_eq!(fs::read_to_string(file).unwrap(), "the host's");
}

fn reading_outside_the_grants(world: &World) {
    pair(world, &["read", &world.text("private/secret")]);
    pair(world, &["list", "/var/log"]);
    pair(world, &["list", "/sys/class"]);
}

/// smcp's own files are out of reach, also where a grant lies beside them (E15).
fn reading_smcps_own_files(world: &World) {
    world.caged(&[], &["exit", "0"]).run().ok();
    pair(world, &["read", &world.text("log/audit.log")]);
    pair(world, &["list", &world.text("cache/store")]);
    pair(world, &["list", &world.text("state")]);
}

fn seeing_another_process(world: &World) {
    let victim = world.mark().to_owned();
    let mut running = world.bare(&["hang", &victim]).start();
    running.await_ready();
    pair(world, &["see", &victim]);
    let pids = world.caged(&[], &["processes"]).run().ok().json();
    assert!(pids.as_object().unwrap().len() <= 2, "PID 1 and the server alone: {pids}");
}

fn reaching_another_process(world: &World) {
    let mut running = world.bare(&["hang"]).start();
    running.await_ready();
    let pid = running.pid().to_string();
    for verb in [
        &["signal", &pid, "0"][..],
        &["ptrace", &pid],
        &["list", &format!("/proc/{pid}/fd")],
        &["read", &format!("/proc/{pid}/environ")],
    ] {
        pair(world, verb);
    }
    refused(world, &[], &["signal", &pid, "9"]);
    assert!(!running.has_ended(), "the host's process was killed");
}

/// The first process of the namespace holds nothing of worth and shows nothing.
fn looking_into_the_first_process(world: &World) {
    let looks = |pid: &str| {
        let path = |name| format!("/proc/{pid}/{name}");
        [
            ["read", &path("environ")],
            ["list", &path("fd")],
            ["open-memory", &path("mem")],
            ["open-memory", &path("exe")],
            ["list", &path("root")],
            ["ptrace", pid],
        ]
        .map(|verb| verb.map(String::from))
    };
    // Outside, a process of one's own shows all of it.
    let mut running = world.bare(&["hang"]).start();
    running.await_ready();
    for verb in looks(&running.pid().to_string()) {
        world.bare(&verb.each_ref().map(String::as_str)).run().ok();
    }
    for verb in looks("1") {
        refused(world, &[], &verb.each_ref().map(String::as_str));
    }
    // It cannot be killed from inside either: the run would end by 137 then.
    let ended = world.caged(&[], &["signal", "1", "9"]).run();
    ended.check([0, REFUSED].contains(&ended.code()), "the run should go on");
}

fn reaching_a_listener_on_the_hosts_loopback(world: &World) {
    for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
        // A machine without IPv6 has no [::1] to reach.
        let Ok(listener) = TcpListener::bind(address) else { continue };
        let port = listener.local_addr().unwrap().port();
        let host = if address.starts_with('[') { "[::1]" } else { "127.0.0.1" };
        pair(world, &["connect", &format!("{host}:{port}")]);
    }
}

fn reaching_an_abstract_socket(world: &World) {
    let name = format!("smcp-test-{}", world.mark());
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    pair(world, &["connect-abstract", &name]);
}

fn finding_shared_memory(world: &World) {
    // A key of this world alone.
    let key = (0x5000_0000 + i64::from(process::id()) * 64 + i64::from(world.user().id() & 1)).to_string();
    world.bare(&["shm-make", &key]).run().ok();
    let both = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pair(world, &["shm-find", &key])));
    world.bare(&["shm-remove", &key]).run().ok();
    both.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Descriptors that the caller left open (E14).
fn keeping_a_descriptor(world: &World) {
    let secret = world.path("private/secret");
    let outside = world.bare(&["fds"]).descriptors(3..=20, &secret).run().ok();
    outside.check(outside.text().matches("private/secret").count() == 18, "18 descriptors were expected outside");
    let inside = world.caged(&[], &["fds"]).descriptors(3..=20, &secret).run().ok();
    let numbers: Vec<_> = inside.json().as_object().unwrap().keys().cloned().collect();
    inside.check(numbers == ["0", "1", "2"], "descriptors 0, 1 and 2 alone were expected");
    for number in 3..=20 {
        let verb = ["read", &format!("/proc/self/fd/{number}")];
        world.bare(&verb).descriptors(number..=number, &secret).run().ok();
        world.caged(&[], &verb).descriptors(number..=number, &secret).run().expect(REFUSED);
    }
}

/// No set of capabilities holds any, and none can be had back.
fn regaining_a_capability(world: &World) {
    let ids = world.caged(&[], &["ids"]).run().ok().json();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(ids[set], "0000000000000000", "{set}: {ids}");
    }
    assert_eq!(ids["NoNewPrivs"], "1");
    pair_of_root(world, &["raise-capabilities"]);
    pair_of_root(world, &["set-uid", "0"]);
}

/// A set-user-id program of root's makes root of its caller outside, and nothing inside.
fn becoming_root_by_a_set_user_id_program(world: &World) {
    if !needs::root() {
        return;
    }
    let program = world.path("project/suid");
    fs::copy(probe::path(), &program).unwrap();
    std::os::unix::fs::chown(&program, Some(0), Some(0)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let program = program.to_str().unwrap();
    let effective = |ids: serde_json::Value| ids["Uid"].as_str().unwrap().split(' ').nth(1).unwrap().to_owned();
    assert_eq!(effective(world.bare(&["exec", program, "ids"]).run().ok().json()), "0");
    let inside = world
        .caged(&["--allow-write", &world.text("project"), "--allow-subprocess"], &["exec", program, "ids"])
        .run()
        .ok()
        .json();
    assert_ne!(effective(inside.clone()), "0", "{inside}");
    assert_eq!(inside["CapEff"], "0000000000000000");
}

fn mounting(world: &World) {
    pair_of_root(world, &["mount", "/mnt"]);
    for place in ["/tmp", "/", "/proc", &world.text("home")] {
        refused(world, &[], &["mount", place]);
        refused(world, &[], &["unmount", place]);
        refused(world, &[], &["remount-writable", place]);
    }
}

fn making_a_device(world: &World) {
    pair_of_root(world, &["make-device", &format!("/tmp/device-{}", world.mark())]);
    refused(world, &["--allow-write", &world.text("project")], &["make-device", &world.text("project/null")]);
}

fn changing_the_root(world: &World) {
    pair_of_root(world, &["chroot", "/tmp"]);
}

fn reading_the_hosts_passwords(world: &World) {
    pair_of_root(world, &["read", "/etc/shadow"]);
    let passwd = world.caged(&[], &["read", "/etc/passwd"]).run().ok().text();
    assert!(!passwd.contains("daemon:") && !passwd.contains("www-data"), "{passwd}");
}

/// The host's name does not show, and cannot be changed.
fn changing_the_hosts_name(world: &World) {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = name.trim();
    // To what it is: harmless where it works.
    pair_of_root(world, &["set-hostname", name]);
    let inside = world.caged(&[], &["hostname"]).run().ok().json();
    assert_ne!(inside, name);
}

/// Opened for writing and closed again, which harms nobody where it works.
fn changing_the_kernels_settings(world: &World) {
    for file in ["/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness"] {
        pair_of_root(world, &["append", file, ""]);
    }
    refused(world, &[], &["append", "/proc/sysrq-trigger", ""]);
    refused(world, &[], &["append", "/sys/kernel/uevent_helper", ""]);
}

/// What shows the host through /proc.
fn reading_the_kernels_secrets(world: &World) {
    let keys = world.caged(&[], &["read", "/proc/kcore"]).run();
    keys.check(keys.code() == REFUSED || keys.text() == "\"\"\n", "nothing of the kernel's memory was expected");
    // Its mounts alone are in its table: no path of the host's root, and no disk but under the grants.
    let mounts =
        world.caged(&["--allow-read", &world.text("project")], &["read", "/proc/self/mountinfo"]).run().ok().text();
    assert!(!mounts.contains("/var/lib") && !mounts.contains("/run/"), "{mounts}");
}

/// The secret of a world is in no answer to anything that a server can list.
fn listing_everything(world: &World) {
    for path in ["/", "/home", "/root", "/var", "/run", "/mnt", "/etc", "/usr/bin"] {
        let ended = world.caged(&[], &["list", path]).run();
        ended.check([0, REFUSED].contains(&ended.code()), "an answer was expected");
        ended.check(!ended.text().contains(SECRET), "no secret was expected");
    }
    let root = world.caged(&[], &["list", "/"]).run().ok().json();
    for foreign in ["boot", "lost+found", "media", "opt", "srv", "work"] {
        assert!(!root.as_array().unwrap().contains(&json!(foreign)), "{root}");
    }
}

/// A user namespace of one's own has every capability, over nothing but itself, and much of the kernel behind it.
#[test]
fn making_a_user_namespace() {
    pair(&World::new(User::Ordinary), &["unshare-user"]);
}

/// As root, a file that the server makes in a grant belongs to root: it must not become a set-user-id program there.
#[test]
fn making_a_set_user_id_program_for_the_host() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let (file, flags) = (world.text("project/own"), ["--allow-write", &world.text("project")]);
    world.bare(&["write", &file, "x"]).run().ok();
    for mode in [0o4755, 0o2755, 0o6755].map(|mode: u32| mode.to_string()) {
        pair_with(&world, &flags, &["chmod", &file, &mode]);
        pair_with(&world, &flags, &["chmod-open", &file, &mode]);
        for (verb, kind) in [("make-with-mode", 0), ("make-node", 0o100_000)] {
            let made = world.text("project/made");
            let mode = (mode.parse::<u32>().unwrap() | kind).to_string();
            world.bare(&[verb, &made, &mode]).run().ok();
            fs::remove_file(&made).unwrap();
            refused(&world, &flags, &[verb, &made, &mode]);
            assert!(!fs::exists(&made).unwrap(), "{verb}");
        }
    }
    // What sets no id is allowed.
    world.caged(&flags, &["chmod", &file, &0o755.to_string()]).run().ok();
    world.caged(&flags, &["make-with-mode", &world.text("project/made"), &0o755.to_string()]).run().ok();
}
