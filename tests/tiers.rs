//! Tier 1, the cage without namespaces, and the judgement on tiers. What of the cases and of the ways out holds there is
//! told with them.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::image::{Image, probe_reference};
use crate::needs;
use crate::probe::{self, REFUSED};
use crate::processes::{marked, none_left};
use crate::tier::without_namespaces;
use crate::world::{SECRET, User, World};

/// The world of an ordinary user and `smcp run FLAGS PROBE VERB` in it, without user namespaces.
macro_rules! bare {
    ($world:expr, $flags:expr, $verb:expr) => {
        match without_namespaces($world, [&["run"][..], $flags, &[probe_reference()], $verb].concat()) {
            Some(command) => command,
            None => return,
        }
    };
}

/// The tier is named, and what is missing with its reason: on stderr, in the audit log, by `doctor` (K1).
#[test]
fn k1_without_user_namespaces_the_tier_is_named() {
    let world = World::new(User::Ordinary);
    let ended = bare!(&world, &[], &["exit", "7"]).run().expect(7);
    ended.says(&["tier 1 of 3", "user-namespace is absent", "no more of them are allowed"]);
    let begin = world.audit().remove(0);
    assert_eq!(begin["tier"], 1, "{begin}");
    // As with every ordinary user, whose bounding set is full and stays so.
    assert!(begin["layers"]["capabilities"].as_str().unwrap().starts_with("partial: the bounding set"), "{begin}");
    for layer in ["landlock", "seccomp", "no-new-privileges", "descriptors", "guard"] {
        assert_eq!(begin["layers"][layer], "full", "{layer}: {begin}");
    }
    for layer in ["user-namespace", "pid-namespace", "network-namespace", "read-only-root"] {
        assert!(begin["layers"][layer].as_str().unwrap().starts_with("absent: "), "{layer}: {begin}");
    }
    let Some(doctor) = without_namespaces(&world, ["doctor", "--json"]) else { return };
    let report = doctor.run().ok().json();
    assert_eq!(report["tier"], 1, "{report}");
    assert_eq!(report["layers"]["user-namespace"], begin["layers"]["user-namespace"]);
    let Some(fix) = without_namespaces(&world, ["doctor", "--fix"]) else { return };
    let fix = fix.run().ok().text();
    assert!(fix.contains("sysctl -w user.max_user_namespaces="), "{fix}");
}

/// Flag and policy ask for more than there is: one line that names the setting, 125, and nothing runs (K1).
#[test]
fn k1_a_tier_that_cannot_be_had_is_refused() {
    let world = World::new(User::Ordinary);
    for tier in ["2", "3"] {
        let ended = bare!(&world, &["--tier", tier], &["write", &world.text("project/x"), "x"]).run().expect(125);
        ended.explains(&[&format!("tier {tier}"), "user namespaces", "user.max_user_namespaces"]);
    }
    world.directory("home/.smcp");
    world.file("home/.smcp/config.yaml", "policy:\n  min_tier: 2\n");
    // A flag is stricter than the policy, and never weaker.
    for flags in [&[][..], &["--tier", "1"]] {
        bare!(&world, flags, &["exit", "7"]).run().expect(125).explains(&["tier 2", "user namespaces"]);
    }
    // Without a cgroup there is no tier 3 for an ordinary user, with namespaces or without.
    let ended = world.caged(&["--tier", "2"], &["exit", "7"]).run();
    assert_eq!(ended.expect(7).stderr(), "");
    world.caged(&["--tier", "4"], &["exit", "7"]).run().expect(2).says(&["--tier"]);
    fs::remove_file(world.path("home/.smcp/config.yaml")).unwrap();
    let by_environment = world.caged(&[], &["exit", "7"]).env("MCP_POLICY_MIN_TIER", "many").run();
    by_environment.expect(119).says(&["MCP_POLICY_MIN_TIER"]);
}

/// As root, the server is an unprivileged user there too, or smcp says why not (K10).
#[test]
fn k10_root_without_namespaces_is_no_root_inside() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let ids = bare!(&world, &[], &["ids"]).run().ok().json();
    assert!(
        ids["Uid"].as_str().unwrap().split_whitespace().all(|uid| uid.parse::<u32>().unwrap() >= 0x7000_0000),
        "{ids}"
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(ids[set], "0000000000000000", "{set}: {ids}");
    }
    // Grants are shifted by mounts, of which there are none.
    let grant = ["--allow-read", &world.text("project")];
    bare!(&world, &grant, &["exit", "7"]).run().expect(125).explains(&["shifting its owner", "--user root"]);
    bare!(&world, &[&["--user", "root"][..], &grant].concat(), &["exit", "7"]).run().expect(7);
    // A cache that this user cannot get to is named.
    fs::set_permissions(world.path("cache"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let ended = bare!(&world, &[], &["ids"]).run().expect(125);
    ended.explains(&["as uid", "Permission denied", "MCP_CACHE_DIR", "--user root"]);
    let ids = bare!(&world, &["--user", "root"], &["ids"]).run().ok().json();
    assert_eq!((&ids["CapEff"], &ids["CapBnd"]), (&"0000000000000000".into(), &"0000000000000000".into()), "{ids}");
}

/// Files: the package and the grants, and nothing else of the caller's.
#[test]
fn files_are_the_packages_and_the_grants() {
    let world = World::new(User::Ordinary);
    world.file("project/given", "text");
    let project = world.text("project");
    for secret in [world.text("home/.ssh/id"), world.text("private/secret"), "/etc/machine-id".into()] {
        let ended = bare!(&world, &["--allow-read", &project], &["read", &secret]).run().expect(REFUSED);
        ended.check(!ended.text().contains(SECRET), "no secret was expected");
    }
    let given = world.text("project/given");
    let read = bare!(&world, &["--allow-read", &project], &["read", &given]).run().ok().text();
    assert!(read.contains("text"), "{read}");
    bare!(&world, &["--allow-read", &project], &["write", &given, "x"]).run().expect(REFUSED);
    bare!(&world, &["--allow-write", &project], &["write", &given, "new"]).run().ok();
    assert_eq!(fs::read_to_string(&given).unwrap(), "new");
    // Modes, which Landlock does not rule.
    bare!(&world, &["--allow-write", &project], &["chmod", &given, "511"]).run().expect(REFUSED);
    // What the package does not have is not looked for on the host.
    bare!(&world, &[], &["exec", "/usr/bin/env"]).run().expect(REFUSED);
}

/// HOME and TMPDIR are the run's own and end with it; nothing of another run's shows.
#[test]
fn private_directories_end_with_the_run() {
    let world = World::new(User::Ordinary);
    let env = bare!(&world, &[], &["env"]).run().ok().json();
    let home = env["HOME"].as_str().unwrap().to_owned();
    assert!(
        home.starts_with(&world.text("cache")) && env["TMPDIR"].as_str().unwrap().starts_with(&world.text("cache"))
    );
    let cwd = bare!(&world, &[], &["cwd"]).run().ok().json();
    assert!(cwd.as_str().unwrap().ends_with("/usr/bin"), "the package's working directory, resolved: {cwd}");
    let mut running = bare!(&world, &[], &["until-eof", "0"]).start();
    running.await_ready();
    let private = world.path("cache/store/private");
    let own = fs::read_dir(&private).unwrap().next().unwrap().unwrap().path();
    bare!(&world, &[], &["list", own.to_str().unwrap()]).run().expect(REFUSED);
    drop(running.take_stdin());
    running.wait().ok();
    assert_eq!(fs::read_dir(&private).unwrap().count(), 0);
}

/// Other processes are neither signalled nor looked into, although they have the same uid.
#[test]
fn other_processes_are_left_alone() {
    let world = World::new(User::Ordinary);
    let mut other = world.bare(&["until-eof", "0", world.mark()]).start();
    other.await_ready();
    let pid = other.pid().to_string();
    for verb in [["signal", &pid, "0"], ["signal", &pid, "9"]] {
        bare!(&world, &[], &verb).run().expect(REFUSED);
    }
    for file in ["environ", "maps", "cmdline", "stat"] {
        bare!(&world, &[], &["read", &format!("/proc/{pid}/{file}")]).run().expect(REFUSED);
    }
    bare!(&world, &[], &["read", "/proc/self/stat"]).run().ok();
    drop(other.take_stdin());
    other.wait().ok();
}

/// No socket but TCP's, and no port of that.
#[test]
fn sockets_are_tcp_and_reach_nothing() {
    let world = World::new(User::Ordinary);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    world.bare(&["connect", &address]).run().ok();
    bare!(&world, &[], &["connect", &address]).run().expect(REFUSED);
    bare!(&world, &[], &["socket", "2", "1", "6"]).run().ok();
    for socket in [["2", "2", "0"], ["1", "1", "0"], ["16", "3", "0"]] {
        bare!(&world, &[], &[&["socket"][..], &socket].concat()).run().expect(REFUSED);
    }
    bare!(&world, &[], &["socketpair"]).run().ok();
}

/// Hosts cannot be told apart there: what is granted by name is refused with the reason and what would do.
#[test]
fn what_is_granted_by_name_is_refused() {
    let world = World::new(User::Ordinary);
    for flags in [&["--allow-net", "name.test:443"][..], &["--allow-host-port", "5432"]] {
        let ended = bare!(&world, flags, &["exit", "0"]).run().expect(125);
        ended.explains(&["connecting out by name", "--net-by-port", "user namespaces"]);
    }
    for flags in [&["--allow-all-net"][..], &["--allow-all-net", "--net-by-port"]] {
        let ended = bare!(&world, flags, &["exit", "0"]).run().expect(125);
        ended.explains(&["connecting anywhere", "--allow-net", "user namespaces"]);
    }
    // The flag by itself grants nothing, and takes nothing from who has namespaces.
    bare!(&world, &["--net-by-port"], &["exit", "7"]).run().expect(7);
    world.caged(&["--net-by-port", "--allow-net", "name.test:443"], &["exit", "7"]).run().expect(7);
    assert_eq!(world.audit().iter().rev().find(|entry| entry["event"] == "begin").unwrap()["layers"]["egress"], "full");
}

/// On request the granted ports can be connected to, at any host, which the report says; other ports and datagrams cannot.
#[test]
fn ports_alone_can_be_granted() {
    let world = World::new(User::Ordinary);
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let [granted, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    let port = granted.port();
    let named = format!("name.test:{port}");
    let flags = ["--net-by-port", "--allow-net", &named];
    let ended = bare!(&world, &flags, &["connect", &granted.to_string()]).run().ok();
    let ports = format!("ports alone: any host, this machine too, on 53, {port} by TCP");
    ended.says(&["tier 1 of 3", "egress is partial", &ports]);
    let begin = world.audit().remove(0);
    assert_eq!(begin["layers"]["egress"], format!("partial: {ports}"), "{begin}");
    for refused in [other.to_string(), format!("[::ffff:127.0.0.1]:{}", other.port())] {
        world.bare(&["connect", &refused]).run().ok();
        bare!(&world, &flags, &["connect", &refused]).run().expect(REFUSED);
    }
    bare!(&world, &flags, &["socket", "2", "2", "0"]).run().expect(REFUSED);
    bare!(&world, &flags, &["listen", "127.0.0.1:0"]).run().expect(REFUSED);
    let env = bare!(&world, &flags, &["env"]).run().ok().json();
    assert_eq!(env["RES_OPTIONS"], "use-vc");
    bare!(&world, &flags, &["read", "/etc/resolv.conf"]).run().ok();
    let env = bare!(&world, &[], &["env"]).run().ok().json();
    assert!(env["RES_OPTIONS"].is_null(), "{env}");
    // A policy names hosts, which ports do not keep to.
    world.directory("home/.smcp");
    for list in [format!("allow: [\"{named}\"]"), "deny: [\"other.test\"]".into()] {
        world.file("home/.smcp/config.yaml", format!("policy:\n  ceilings:\n    network:\n      {list}\n"));
        bare!(&world, &flags, &["exit", "0"]).run().expect(121).explains(&["--net-by-port", "ceiling"]);
    }
}

/// A tree that ignores everything is killed as a whole, by the ladder and with smcp itself (L1, L2).
#[test]
fn l1_l2_a_stubborn_tree_is_killed() {
    let world = World::new(User::Ordinary);
    let mut running = bare!(&world, &[], &["family", "5", world.mark()]).start();
    running.await_ready();
    drop(running.take_stdin());
    running.wait().expect(137);
    none_left(&world, Duration::from_secs(1));
    assert_eq!(world.last_end()["ended_by"], "sigkill");
    let mut running = bare!(&world, &[], &["family", "5", world.mark()]).start();
    let stdin = running.take_stdin();
    running.await_ready();
    assert!(marked(&world).len() >= 7, "{:?}", marked(&world));
    running.signal(Signal::KILL);
    none_left(&world, Duration::from_secs(1));
    drop(stdin);
    // What it left on the disk is removed by the next start, once it is older than a start takes.
    let private = world.path("cache/store/private");
    assert_eq!(fs::read_dir(&private).unwrap().count(), 1);
    thread::sleep(Duration::from_millis(1100));
    bare!(&world, &[], &["exit", "0"]).run().ok();
    assert_eq!(fs::read_dir(&private).unwrap().count(), 0);
}

/// What a server leaves when it ends by a signal ends with it, and the signal is told.
#[test]
fn l7_a_server_that_crashes_leaves_nothing() {
    let world = World::new(User::Ordinary);
    bare!(&world, &[], &["raise", "11"]).run().expect(128 + 11);
    none_left(&world, Duration::from_secs(1));
}

/// Limits are watched, and name themselves (K9).
#[test]
fn k9_limits_end_the_tree() {
    let world = World::new(User::Ordinary);
    let hog = bare!(&world, &["--memory", "64M"], &["hog-among", "8", "16"]).run().expect(137);
    hog.explains(&["memory limit of 64M"]);
    assert_eq!(world.last_end()["cause"], "memory");
    bare!(&world, &["--pids", "32"], &["fork-bomb", "100"]).run().expect(137).explains(&["limit of 32 processes"]);
    none_left(&world, Duration::from_secs(1));
}

/// What needs a mount namespace is refused with the reason.
#[test]
fn what_needs_a_mount_namespace_is_refused() {
    let world = World::new(User::Ordinary);
    let elsewhere = format!("{}:/elsewhere", world.text("project"));
    bare!(&world, &["--mount", &elsewhere], &["exit", "0"])
        .run()
        .expect(125)
        .explains(&["another path", "mount namespace"]);
    let plain = Image::probe().plain().build().write(&world.path("plain"));
    let Some(run) = without_namespaces(&world, ["run", &plain, "exit", "0"]) else { return };
    run.run().expect(125).explains(&["plain image", "mount namespace"]);
}

/// Scripts and what they are interpreted by are the package's own.
#[test]
fn a_script_is_started_by_the_packages_interpreter() {
    let world = World::new(User::Ordinary);
    let program = fs::read(probe::path()).unwrap();
    for line in ["#!/usr/bin/interpreter args", "#!/usr/bin/env interpreter", "#!/usr/bin/env -S interpreter args"] {
        let image = Image::probe()
            .file("usr/bin/interpreter", 0o755, program.clone())
            .file("usr/bin/script", 0o755, format!("{line}\n"))
            .manifest(|manifest| manifest["entrypoint"]["args"] = serde_json::json!(["script"]));
        let package = image.build().write(&world.path(format!("package-{}", line.len())));
        let Some(run) = without_namespaces(&world, ["run", &package, "one", "two"]) else { return };
        let ended = run.run();
        // The interpreter's first argument is its verb: `args`, or the script's path, which is none.
        match line.contains("args") {
            true => {
                let words = ended.ok().json();
                assert!(words[0].as_str().unwrap().ends_with("/usr/bin/script"), "{words}");
                assert_eq!((&words[1], &words[2]), (&"one".into(), &"two".into()));
            }
            false => {
                ended.check(ended.code() != 0 && ended.code() < 125, "the probe itself was expected to refuse the verb")
            }
        }
    }
}

/// A server that starts another server by smcp: refused with the reason, which is no riddle (K5).
#[test]
fn k5_inside_another_smcp_it_says_why_not() {
    let world = World::new(User::Ordinary);
    let program = crate::place::smcp();
    let needed = std::process::Command::new("ldd").arg(program).output().expect("glibc has ldd");
    let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
    let libraries = needed.split_whitespace().filter(|word| word.starts_with('/'));
    let image = libraries
        .fold(Image::probe().file("usr/bin/smcp", 0o755, fs::read(program).unwrap()), |image, library| {
            image.file(library.trim_start_matches('/'), 0o755, fs::read(library).unwrap())
        });
    let image = image.manifest(|manifest| manifest["entrypoint"]["args"] = serde_json::json!(["/usr/bin/smcp"]));
    let package = image.build().write(&world.path("smcp-in-smcp"));
    let layout = probe_reference().strip_prefix("oci-layout:").unwrap().rsplit_once(':').unwrap().0;
    let ended = world
        .smcp(["run", "--allow-subprocess", "--allow-read", layout, &package, "run", probe_reference(), "exit", "7"])
        .run()
        .expect(125);
    ended.explains(&["inside another smcp"]);
}
