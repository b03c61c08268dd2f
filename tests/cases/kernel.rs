//! What the kernel offers and the cage does not pass on: the rows of `kernel.md` on system calls, by number, and the
//! ways around "no foreign program".

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::image::{Image, probe_reference};
use crate::needs;
use crate::probe::{self, REFUSED};
use crate::world::{User, World, as_each_user, at_each_tier};

at_each_tier! {
    a_file_in_memory_is_not_executed,
    a_descriptor_is_not_a_way_to_execute,
    a_script_in_a_writable_place_is_not_executed,
    what_is_not_granted_is_not_written,
    what_is_granted_can_be_arranged,
    a_program_of_go_starts,
}

as_each_user! {
    a_foreign_program_of_the_package_needs_a_grant,
    a_named_program_is_granted_alone,
    the_loader_does_not_load_what_was_written,
    the_runtime_can_start_itself_again,
}

/// `os error N` as the probe prints it.
const EPERM: &str = "(os error 1)";
const ENOSYS: &str = "(os error 38)";

/// What libc, libuv and tokio fall back from (K6).
#[test]
fn k6_unknown_calls_do_not_exist() {
    let world = World::new(User::Ordinary);
    for call in ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "openat2", "a-call-of-the-future"] {
        answers(&world, &["call", call], ENOSYS);
    }
    // The pair: the kernel itself knows them, and refuses what is asked for another reason.
    for call in ["clone3", "openat2"] {
        let ended = world.bare(&["call", call]).run().expect(REFUSED);
        ended.check(!ended.text().contains(ENOSYS), "a kernel that knows the call was expected");
    }
    // x32's numbers are as unknown.
    answers(&world, &["call", "getpid-of-x32"], ENOSYS);
}

/// Known and dangerous (K7).
#[test]
fn k7_dangerous_calls_are_refused() {
    let world = World::new(User::Ordinary);
    for call in [
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "pidfd_getfd",
        "kcmp",
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "move_mount",
        "open_tree",
        "fsopen",
        "fsconfig",
        "fsmount",
        "mount_setattr",
        "unshare",
        "setns",
        "bpf",
        "init_module",
        "finit_module",
        "delete_module",
        "kexec_load",
        "add_key",
        "request_key",
        "keyctl",
        "userfaultfd",
        "perf_event_open",
        "open_by_handle_at",
        "fanotify_init",
        "reboot",
        "swapon",
        "quotactl",
        "acct",
        "syslog",
        "settimeofday",
        "clock_settime",
        "adjtimex",
        "personality",
        "tiocsti",
        "tiocsti-above",
        "tioclinux",
        "tiocsetd",
    ] {
        answers(&world, &["call", call], EPERM);
        // Outside, root gets another answer: the call itself is there, and this cage refuses it.
        if needs::root() {
            let ended = World::new(User::Root).bare(&["call", call]).run();
            let known = ended.code() == 0 || !ended.text().contains(EPERM);
            ended.check(
                known && [0, REFUSED].contains(&ended.code()),
                "an answer other than EPERM was expected outside",
            );
        }
    }
    world.caged(&[], &["call", "personality-query"]).run().ok();
}

/// `clone` makes threads and processes, and no namespaces.
#[test]
fn k7_clone_makes_no_namespace() {
    const NAMESPACES: [u32; 7] =
        [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
    let world = World::new(User::Ordinary);
    world.bare(&["clone", &0x1000_0000.to_string()]).run().ok();
    for flag in NAMESPACES {
        answers(&world, &["clone", &flag.to_string()], EPERM);
    }
    world.caged(&[], &["clone", "0"]).run().ok();
}

/// Families and transports of sockets (K7's kin).
#[test]
fn k7_sockets_are_of_four_families() {
    let world = World::new(User::Ordinary);
    for socket in
        [["1", "1", "0"], ["1", "5", "0"], ["2", "1", "6"], ["2", "2", "0"], ["10", "1", "0"], ["16", "3", "0"]]
    {
        world.caged(&[], &[&["socket"][..], &socket].concat()).run().ok();
    }
    world.caged(&[], &["socketpair"]).run().ok();
    let refused = [
        // AF_PACKET, AF_ALG, AF_VSOCK, AF_XDP, AF_TIPC, AF_BLUETOOTH, AF_CAN, AF_KEY.
        ["17", "3", "3"],
        ["38", "5", "0"],
        ["40", "1", "0"],
        ["44", "3", "0"],
        ["30", "1", "0"],
        ["31", "3", "0"],
        ["29", "3", "1"],
        ["15", "3", "2"],
        // Netlink of netfilter, audit and uevents; SCTP, DCCP, UDP-Lite; a family above 32 bits.
        ["16", "3", "12"],
        ["16", "3", "9"],
        ["16", "3", "15"],
        ["2", "1", "132"],
        ["2", "6", "33"],
        ["10", "2", "136"],
        ["4294967336", "1", "0"],
    ];
    for socket in refused {
        answers(&world, &[&["socket"][..], &socket].concat(), EPERM);
    }
    // The pair of one that every kernel has.
    world.bare(&["socket", "16", "3", "15"]).run().ok();
}

/// A call by i386's numbers means something else: it kills, by SIGSYS.
#[test]
#[cfg(target_arch = "x86_64")]
fn k7_the_calls_of_i386_kill() {
    let world = World::new(User::Ordinary);
    let outside = world.bare(&["call-of-i386"]).run();
    if outside.code() == 0 {
        world.caged(&[], &["call-of-i386"]).run().expect(128 + 31);
    }
}

/// strace answers for a kernel that lacks it.
#[test]
fn k2_without_landlock() {
    let tools = [("strace", "strace"), ("unshare", "util-linux"), ("setpriv", "util-linux")];
    let [Some(strace), Some(_), Some(_)] = tools.map(|(name, package)| needs::program(name, package)) else { return };
    let smcp = crate::place::smcp().to_str().expect("UTF-8");
    let inject =
        ["--inject=landlock_create_ruleset:error=ENOSYS", "--follow-forks", "--quiet=all", "--output=/dev/null"];
    let on = |world: &World, line: &[&str]| world.copy(&strace, inject).args([smcp]).args(line).run();
    let run = ["run", probe_reference(), "exit", "9"];

    let alone = World::new(User::Ordinary);
    on(&alone, &run).expect(9).says(&["tier 1 of 3", "landlock"]);
    let begun = begin(&alone);
    assert_eq!(begun["tier"], 1, "{begun}");
    assert!(begun["layers"]["landlock"].as_str().is_some_and(|status| status.starts_with("absent: ")), "{begun}");
    on(&alone, &["run", "--tier", "2", probe_reference(), "exit", "9"]).expect(125).explains(&["landlock"]);
    let doctor = on(&alone, &["doctor"]).ok();
    doctor.check(doctor.text().contains("1 of 3"), "the tier was expected");

    // Neither of them is below the lowest tier.
    let both = World::without_namespaces();
    let refused = on(&both, &run).expect(125);
    refused.explains(&["landlock", "user namespaces"]);
    refused.check(refused.stdout().is_empty(), "nothing should have started");
    assert_eq!(both.last_end()["cause"], "cage");
}

/// The begin entry of a world's first run.
#[track_caller]
fn begin(world: &World) -> Value {
    world.audit().into_iter().find(|entry| entry["event"] == "begin").expect("it was begun")
}

/// A kernel that reports its newest ABI and refuses the rights of it, and of the ones before: strace answers for it.
#[test]
fn k3_landlock_steps_down() {
    let Some(strace) = needs::program("strace", "strace") else { return };
    // The first call asks for the ABI; each after it tries one.
    for (refused, lacks) in [("2", "scopes"), ("2..3", "ioctl"), ("2..4", "TCP"), ("2..5", "truncation")] {
        let world = World::new(User::Ordinary);
        let inject = format!("--inject=landlock_create_ruleset:error=EINVAL:when={refused}");
        let trace = ["--follow-forks", "--quiet=all", "--output=/dev/null", "--trace=landlock_create_ruleset", &inject];
        let run = ["run", probe_reference(), "exit", "9"];
        world.program(&strace, trace).args([crate::place::smcp()]).args(run).run().expect(9);
        let begin = begin(&world);
        let landlock = begin["layers"]["landlock"].as_str().unwrap_or_default();
        assert!(landlock.starts_with("partial: ") && landlock.contains(lacks), "{refused}: {landlock}");
    }
}

/// In a container with a `/proc` of its own nothing is missing; where parts of that are covered, as most runtimes do, the
/// kernel allows no new one, and the run is of tier 1, which is said everywhere.
#[test]
fn k5_inside_a_container() {
    let Some(bwrap) = needs::program("bwrap", "bubblewrap") else { return };
    let world = World::new(User::Ordinary);
    let container = ["--unshare-all", "--dev-bind", "/", "/", "--proc", "/proc"];
    let smcp = [crate::place::smcp().to_str().expect("UTF-8"), "run", probe_reference(), "exit", "9"];
    world.program(&bwrap, container).args(smcp).env("CI", "true").run().expect(9);
    let covered = world.program(&bwrap, container).args(["--tmpfs", "/proc/acpi"]).args(smcp).run().expect(9);
    covered.says(&["tier 1", "/proc/acpi"]);
    let tiers = world.audit().into_iter().filter(|entry| entry["event"] == "begin").map(|entry| entry["tier"].clone());
    assert_eq!(tiers.collect::<Vec<_>>()[1], 1, "{}", world.audit_text());
    let doctor = world.program(&bwrap, container).args(["--tmpfs", "/proc/acpi", smcp[0], "doctor"]).run().ok();
    doctor.check(doctor.text().contains("1 of 3"), "the tier was expected");
    // Where that is not enough, it says why.
    let more = [smcp[0], "run", "--tier", "2", probe_reference(), "exit", "9"];
    let refused = world.program(&bwrap, container).args(["--tmpfs", "/proc/acpi"]).args(more).run().expect(125);
    refused.explains(&["tier 2", "/proc/acpi"]);
}

/// Landlock is found by asking for it: WSL2 has no `/sys/kernel/security/lsm` (K11).
#[test]
fn k11_landlock_is_probed_by_call() {
    if !needs::root() {
        return;
    }
    let Some(unshare) = needs::program("unshare", "util-linux") else { return };
    let world = World::new(User::Root);
    let hide = "mount -t tmpfs none /sys/kernel/security 2>/dev/null || mount -t tmpfs none /sys; \
                ! test -e /sys/kernel/security/lsm && exec \"$0\" doctor --json";
    let smcp = crate::place::smcp().to_str().unwrap();
    let report = world.program(unshare, ["--mount", "sh", "-c", hide, smcp]).run().ok().json();
    assert_eq!(report["layers"]["landlock"], "full", "{report}");
}

/// What `--user` chooses, as root alone.
#[test]
fn k10_root_chooses_who_the_server_is() {
    if !crate::needs::root() {
        return;
    }
    let world = World::new(crate::world::User::Root);
    let uid = |flags: &[&str]| -> Value { world.caged(flags, &["ids"]).run().ok().json()["Uid"].clone() };
    let default = uid(&[]);
    assert!(!default.as_str().unwrap().starts_with("0 "), "{default}");
    assert_ne!(default, json!("65534 65534 65534 65534"));
    assert_eq!(uid(&["--user", "12345"]), "12345 12345 12345 12345");
    // Root by the flag alone, and without any of its powers.
    let root = world.caged(&["--user", "root"], &["ids"]).run().ok().json();
    assert_eq!((&root["Uid"], &root["CapEff"]), (&json!("0 0 0 0"), &json!("0000000000000000")));
    // On the host it is that uid as well: not a root of its own namespace, and nobody else.
    let mut running = world.smcp(["run", probe_reference(), "hang", world.mark()]).start();
    running.await_ready();
    let servers: Vec<u32> = crate::processes::marked(&world)
        .into_iter()
        .filter(|(_, line)| line.starts_with("/usr/bin/probe"))
        .map(|(pid, _)| pid)
        .collect();
    assert!(!servers.is_empty());
    for pid in servers {
        assert_ne!(fs::metadata(format!("/proc/{pid}")).unwrap().uid(), 0, "the server is root on the host");
    }
}

/// A program of the package that is not its entry point is foreign.
fn a_foreign_program_of_the_package_needs_a_grant(world: &World) {
    let package = package(world);
    let verb = ["exec", "/usr/bin/other", "exit", "41"];
    run(world, &[], &package, &verb, REFUSED);
    run(world, &["--allow-subprocess"], &package, &verb, 41);
}

fn a_named_program_is_granted_alone(world: &World) {
    let package = package(world);
    let grant = ["--allow-subprocess=/usr/bin/other", "--allow-write", &world.text("project")];
    run(world, &grant, &package, &["exec", "/usr/bin/other", "exit", "41"], 41);
    run(world, &grant, &package, &["exec", "/usr/bin/third", "exit", "41"], REFUSED);
    run(world, &["--allow-subprocess=/usr/bin/none"], &package, &["exec", "/usr/bin/other", "exit", "41"], REFUSED);
    // Neither does it open the writable places.
    run(world, &grant, &package, &["copy-and-exec", "/tmp/copy", "exit", "41"], REFUSED);
    run(world, &grant, &package, &["copy-and-exec", &world.text("project/copy"), "exit", "41"], REFUSED);
    // One that lies in a grant is granted there.
    let tool = tool(world);
    let grant = [&format!("--allow-subprocess={tool}"), "--allow-write", &world.text("project")];
    run(world, &grant, &package, &["exec", &tool, "exit", "42"], 42);
    run(world, &grant, &package, &["copy-and-exec", &world.text("project/copy"), "exit", "41"], REFUSED);
}

/// memfd_create and exec: what lies in memory is on no mount and beneath no path.
fn a_file_in_memory_is_not_executed(world: &World) {
    const MFD_NOEXEC_SEAL: &str = "8";
    world.bare(&["exec-memory", "0", "exit", "43"]).run().expect(43);
    for flags in ["0", "16", MFD_NOEXEC_SEAL] {
        world.caged(&[], &["exec-memory", flags, "exit", "43"]).run().expect(REFUSED);
        world
            .caged(&["--allow-subprocess=/usr/bin/other"], &["exec-memory", flags, "exit", "43"])
            .run()
            .expect(REFUSED);
    }
    world.caged(&["--allow-subprocess"], &["exec-memory", "0", "exit", "43"]).run().expect(43);
}

fn a_descriptor_is_not_a_way_to_execute(world: &World) {
    let tool = tool(world);
    let package = package(world);
    let verb = ["exec-descriptor", &tool, "exit", "44"];
    world.bare(&verb).run().expect(44);
    for access in ["--allow-write", "--allow-read"] {
        run(world, &[access, &world.text("project")], &package, &verb, REFUSED);
        run(world, &[access, &world.text("project"), "--allow-subprocess"], &package, &verb, 44);
    }
    run(world, &[], &package, &["exec-descriptor", "/usr/bin/other", "exit", "44"], REFUSED);
}

fn a_script_in_a_writable_place_is_not_executed(world: &World) {
    let script = world.text("tmp/script");
    // `probe exit SCRIPT`, and SCRIPT is no number: the probe gives up, by which it is known to have run.
    let ran = world.bare(&["exec-script", &script, probe::path().to_str().unwrap()]).run();
    ran.check(![0, REFUSED].contains(&ran.code()), "the script was expected to run outside");
    for place in ["/tmp", "/dev/shm", &world.text("home"), &world.text("project")] {
        let verb = ["exec-script", &format!("{place}/script"), "/usr/bin/probe"];
        world.caged(&["--allow-write", &world.text("project")], &verb).run().expect(REFUSED);
    }
}

/// `ld.so FILE` maps what execve refuses; a mount that is noexec is not mapped either.
fn the_loader_does_not_load_what_was_written(world: &World) {
    let Some(dynamic) = Dynamic::of_this_machine() else { return };
    let package = dynamic.package().build().write(&world.path("dynamic"));
    let file = world.path("project/copy");
    fs::copy(dynamic.program, &file).unwrap();
    world.give(&file);
    let file = file.to_str().unwrap();
    let loaded = [dynamic.loader, file, "probe=1", "/usr/bin/env"];
    world.program(dynamic.loader, &loaded[1..3]).run().ok();
    // The entry point is `env`, which starts the loader: it is granted, as env needs it too.
    let inside = |flags: &[&str]| world.smcp(["run"]).args(flags).args([package.as_str()]).args(loaded).run();
    let write = ["--allow-write", &world.text("project")];
    inside(&[&write[..], &["--allow-subprocess"]].concat()).ok();
    let ended = inside(&write);
    ended.check(ended.code() == 127 && ended.stderr().contains("segment"), "the loader was expected to fail to map it");
}

/// The runtime is not foreign: it can start itself. The limit on processes holds in any case.
fn the_runtime_can_start_itself_again(world: &World) {
    world.caged(&[], &["exec", "/usr/bin/probe", "exit", "45"]).run().expect(45);
    world.caged(&[], &["exec", "/proc/self/exe", "exit", "46"]).run().expect(46);
}

/// Landlock alone refuses these: the mounts and the modes of the files would allow them.
fn what_is_not_granted_is_not_written(world: &World) {
    for file in ["/proc/self/comm", "/proc/self/oom_score_adj", "/proc/self/clear_refs"] {
        let verb = ["open-to-write", file];
        world.bare(&verb).run().ok();
        world.caged(&[], &verb).run().expect(REFUSED);
    }
    // Nor is the first process of the namespace, which is outside of the domain, reached by a signal.
    world.caged(&[], &["signal", "1", "0"]).run().expect(REFUSED);
}

/// Renaming between directories and truncating need rights of their own.
fn what_is_granted_can_be_arranged(world: &World) {
    world.directory("project/a");
    world.directory("project/b");
    world.file("project/a/file", "text");
    let grant = ["--allow-write", &world.text("project")];
    let (from, to) = (world.text("project/a/file"), world.text("project/b/file"));
    world.caged(&grant, &["rename", &from, &to]).run().ok();
    world.caged(&grant, &["write", &to, "x"]).run().ok();
    assert_eq!(fs::read_to_string(&to).unwrap(), "x");
    world.caged(&grant, &["make-node", &world.text("project/pipe"), &0o010_600.to_string()]).run().ok();
}

/// Go's runtime makes its system calls itself, without a libc that falls back.
fn a_program_of_go_starts(world: &World) {
    let Some(dynamic) = Dynamic::of_this_machine() else { return };
    let Some(registry) = needs::program("docker-registry", "docker-registry") else { return };
    let image = dynamic.package().file("usr/bin/registry", 0o755, fs::read(&registry).unwrap());
    let start = |manifest: &mut Value| manifest["entrypoint"]["args"] = json!(["/usr/bin/registry"]);
    let package = image.manifest(start).build().write(&world.path("go"));
    let inside = world.smcp(["run", "--relay", "direct", &package, "--version"]).run().ok();
    let outside = world.program(&registry, ["--version"]).run().ok();
    let version = |text: &str| text.split_whitespace().last().map(str::to_owned);
    assert_eq!(version(&inside.text()), version(&outside.text()));
}

/// Refused inside with this errno.
#[track_caller]
fn answers(world: &World, verb: &[&str], errno: &str) {
    let ended = world.caged(&[], verb).run().expect(REFUSED);
    ended.check(ended.text().contains(errno), &format!("{errno} was expected"));
}

#[track_caller]
fn run(world: &World, flags: &[&str], package: &str, verb: &[&str], code: i32) {
    world.smcp(["run"]).args(flags).args([package]).args(verb).run().expect(code);
}

/// The probe thrice: the entry point and two others.
fn package(world: &World) -> String {
    let program = fs::read(probe::path()).unwrap();
    let image = Image::probe().file("usr/bin/other", 0o755, program.clone()).file("usr/bin/third", 0o755, program);
    image.build().write(&world.path("package"))
}

/// The probe in the directory that is granted.
fn tool(world: &World) -> String {
    let tool = world.path("project/tool");
    probe::copy_to(&tool);
    world.give(&tool);
    tool.to_str().unwrap().to_owned()
}

/// `env` of this machine with its loader and libc.
struct Dynamic {
    program: &'static str,
    loader: &'static str,
    libc: &'static str,
}

impl Dynamic {
    fn of_this_machine() -> Option<Dynamic> {
        let (loader, libc) = if cfg!(target_arch = "x86_64") {
            ("/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6")
        } else {
            ("/lib/ld-linux-aarch64.so.1", "/lib/aarch64-linux-gnu/libc.so.6")
        };
        let dynamic = Dynamic { program: "/usr/bin/env", loader, libc };
        let there = [dynamic.program, loader, libc].into_iter().all(|file| Path::new(file).exists());
        needs::present(there, "a dynamic env of glibc where Debian has it").then_some(dynamic)
    }

    fn package(&self) -> Image {
        let start = |manifest: &mut Value| manifest["entrypoint"]["args"] = json!([self.program]);
        [self.program, self.loader, self.libc].into_iter().fold(Image::probe().manifest(start), |image, file| {
            image.file(file.trim_start_matches('/'), 0o755, fs::read(file).unwrap())
        })
    }
}
