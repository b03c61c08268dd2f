//! Ways out that a row cannot tell: several steps, several places, a terminal, what does not show.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use super::tier::Tier;
use crate::image::{self, Image};
use crate::needs;
use crate::place;
use crate::probe::{self, REFUSED};
use crate::world::{SECRET, User, World, as_each_user};

as_each_user! {
    keeping_a_descriptor,
    no_capability_is_left,
    becoming_root_by_a_set_user_id_program,
    killing_the_first_process,
    only_its_own_processes_show,
    mounting_over_what_is_there,
    the_hosts_name_does_not_show,
    its_table_of_mounts_shows_nothing_of_the_hosts,
    listing_everything,
    a_planted_link_is_no_way_for_the_next_run,
    a_link_in_a_lasting_home_is_no_way_to_mount_elsewhere,
    a_link_of_the_package_is_no_way_to_mount_elsewhere,
    what_is_the_kernels_is_no_grant,
    a_package_does_not_start_in_or_by_what_proc_leads_to,
    a_name_that_begins_like_a_grant,
    the_callers_terminal_is_not_the_servers,
    the_callers_right_to_real_time_is_not_the_servers,
    a_crash_starts_nothing_of_the_hosts,
    the_callers_watches_are_not_used_up,
    another_cage_is_as_far_as_the_host,
}

/// Descriptors that the caller left open (E14).
fn keeping_a_descriptor(world: &World) {
    let secret = world.path("private/secret");
    let outside = world.bare(&["fds"]).descriptors(3..=20, &secret).run().ok();
    outside.check(outside.text().matches("private/secret").count() == 18, "18 descriptors were expected outside");
    for tier in Tier::offered(world) {
        let inside = tier.caged(world, &[], &["fds"]).descriptors(3..=20, &secret).run().ok();
        let numbers: Vec<_> = inside.json().as_object().unwrap().keys().cloned().collect();
        inside.check(numbers == ["0", "1", "2"], "descriptors 0, 1 and 2 alone were expected");
        for number in [3, 9, 20] {
            let verb = ["read", &format!("/proc/self/fd/{number}")];
            world.bare(&verb).descriptors(number..=number, &secret).run().ok();
            tier.caged(world, &[], &verb).descriptors(number..=number, &secret).run().expect(REFUSED);
        }
    }
}

/// No set of capabilities holds any. The bounding set holds what an exec may bring, which is nothing with no_new_privs: an
/// ordinary user without a namespace of its own may not empty it.
fn no_capability_is_left(world: &World) {
    for tier in Tier::offered(world) {
        let ids = tier.caged(world, &[], &["ids"]).run().ok().json();
        let bounded = tier == Tier::WithoutNamespaces && world.user() == User::Ordinary;
        let all = ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"];
        for set in &all[..all.len() - usize::from(bounded)] {
            assert_eq!(ids[set], "0000000000000000", "{tier}, {set}: {ids}");
        }
        assert_eq!(ids["NoNewPrivs"], "1", "{tier}");
    }
}

/// A set-user-id program of root's makes root of its caller outside, and nothing inside.
fn becoming_root_by_a_set_user_id_program(world: &World) {
    if !needs::root() {
        return;
    }
    let program = world.path("project/suid");
    probe::copy_to(&program);
    std::os::unix::fs::chown(&program, Some(0), Some(0)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let program = program.to_str().unwrap();
    let effective = |ids: serde_json::Value| ids["Uid"].as_str().unwrap().split(' ').nth(1).unwrap().to_owned();
    assert_eq!(effective(world.bare(&["exec", program, "ids"]).run().ok().json()), "0");
    let flags = ["--allow-write", &world.text("project"), "--allow-subprocess"];
    for tier in Tier::with_grants(world) {
        let inside = tier.caged(world, &flags, &["exec", program, "ids"]).run().ok().json();
        assert!(effective(inside.clone()) != "0" || tier.is_root(), "{tier}: {inside}");
        assert_eq!(inside["CapEff"], "0000000000000000", "{tier}");
    }
}

/// The process that keeps the server cannot be killed from inside: the run would end by 137 then.
fn killing_the_first_process(world: &World) {
    for tier in Tier::offered(world) {
        let ended = tier.caged(world, &[], &["each"]).stdin("signal\t@parent\t9\n").run().ok();
        // Without Landlock it can be sent, and the kernel drops it: the run went on.
        ended.check(ended.text().contains("refused") || tier == Tier::WithoutLandlock, "a refusal was expected");
    }
}

fn only_its_own_processes_show(world: &World) {
    let pids = world.caged(&[], &["processes"]).run().ok().json();
    assert!(pids.as_object().unwrap().len() <= 2, "PID 1 and the server alone: {pids}");
}

fn mounting_over_what_is_there(world: &World) {
    for place in ["/tmp", "/", "/proc", &world.text("home")] {
        for verb in ["mount", "unmount", "remount-writable"] {
            world.caged(&[], &[verb, place]).run().expect(REFUSED);
        }
    }
}

fn the_hosts_name_does_not_show(world: &World) {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_ne!(world.caged(&[], &["hostname"]).run().ok().json(), name.trim());
}

/// Its mounts alone are in its table: no path of the host's root, and no disk but under the grants.
fn its_table_of_mounts_shows_nothing_of_the_hosts(world: &World) {
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

/// What a server leaves in a grant is not followed when the next run mounts there (CVE-2021-30465, CVE-2019-16884).
fn a_planted_link_is_no_way_for_the_next_run(world: &World) {
    let (project, private) = (world.text("project"), world.text("private"));
    world.directory("other");
    world.file("other/note", "granted");
    for (target, is) in [("escape", &*private), ("proc", "/proc"), ("up", "../private")] {
        symlink(is, world.path("project").join(target)).unwrap();
        let mount = format!("{}:{project}/{target}/other", world.text("other"));
        let ended = world.caged(&["--allow-write", &project, "--mount", &mount], &["list", "/"]).run();
        ended.check(ended.code() != 0, "a mount beneath a link of the grant is refused");
        let mount = format!("{}:{project}/{target}", world.text("other"));
        let ended = world.caged(&["--allow-write", &project, "--mount", &mount], &["list", "/"]).run();
        ended.check(ended.code() != 0, "a mount on a link of the grant is refused");
    }
    assert_eq!(fs::read_dir(&private).unwrap().count(), 1, "nothing was made where the links lead");
}

/// Mount points are made in a HOME that lasts, where the run before could put a link in their place.
fn a_link_in_a_lasting_home_is_no_way_to_mount_elsewhere(world: &World) {
    let private = world.text("private");
    let before = fs::read_dir(&private).unwrap().count();
    for (name, leads_to) in [("work", &*private), ("other", "../../private"), ("file", "/proc/self/root/etc")] {
        let grant = world.directory(&format!("home/{name}/below"));
        let grant = grant.to_str().unwrap();
        let (home, state) = (world.text("home"), ["--state", name]);
        // A run with the grant is good, and without it the server may have what it likes at its place.
        world.caged(&[&state[..], &["--allow-write", grant]].concat(), &["list", grant]).run().ok();
        let planted =
            world.caged(&["--state", &format!("{name}2")], &["leave-link", &format!("{home}/{name}"), leads_to]);
        planted.run().ok();
        let flags = ["--state", &format!("{name}2"), "--allow-write", grant];
        let ended = world.caged(&flags, &["make", &format!("{grant}/made")]).run();
        ended.check(ended.code() == 125, "a refusal was expected");
        ended.says(&[grant]);
    }
    assert_eq!(fs::read_dir(&private).unwrap().count(), before, "nothing was made where the links lead");
}

/// The places of mounts and of smcp's own files are not looked for through links of the package.
fn a_link_of_the_package_is_no_way_to_mount_elsewhere(world: &World) {
    let private = world.text("private");
    let before = fs::read_dir(&private).unwrap().count();
    let run = |link: &str, leads_to: &str, verb: [&str; 2]| {
        let package =
            Image::probe().link(link, leads_to).build().write(&world.directory(&format!("of-{}", link.len())));
        let mount = format!("--mount={}:/home/mounted", world.text("project"));
        world.smcp(["run", &mount, &package]).args(verb).run()
    };
    for (link, leads_to) in [
        ("proc", &*private),
        ("dev", "/proc/self/root"),
        ("tmp", "../../../../../private"),
        ("etc", &private),
        ("home", "/"),
        ("etc/hosts", "/proc/sys/kernel/core_pattern"),
        ("etc/passwd", &world.text("private/secret")),
    ] {
        let ended = run(link, leads_to, ["list", "/"]);
        ended.check(ended.code() != 0, "a refusal was expected");
        ended.says(&[link, "symbolic link"]);
    }
    // Hidden by the cage's own /dev.
    assert_eq!(run("dev/shm", &private, ["list", "/dev/shm"]).ok().json(), json!([]));
    assert_eq!(fs::read_dir(&private).unwrap().count(), before, "nothing was made where the links lead");
}

/// Neither by its path nor through a link, neither as what is granted nor as the place where it is mounted.
fn what_is_the_kernels_is_no_grant(world: &World) {
    symlink("/proc", world.path("project/kernel")).unwrap();
    let (project, link) = (world.text("project"), world.text("project/kernel"));
    for source in
        ["/", "/proc", "/proc/self", "/proc/1/root", "/proc/sys/kernel", "/sys", "/sys/fs/cgroup", "/dev", &link]
    {
        for flag in ["--allow-read", "--allow-write", "--mount"] {
            let ended = world.caged(&[flag, source], &["exit", "0"]).run();
            ended.check([2, 121].contains(&ended.code()), &format!("a refusal of {source} was expected"));
        }
    }
    for target in ["/", "/proc", "/proc/sys", "/proc/self/attr", "/sys/fs/cgroup", "/dev", "/dev/shm/x"] {
        let mount = format!("{project}:{target}:rw");
        let ended = world.caged(&["--mount", &mount], &["exit", "0"]).run();
        ended.check([2, 121].contains(&ended.code()), &format!("a refusal of a mount on {target} was expected"));
    }
}

/// CVE-2024-21626: a working directory that is a descriptor of the runtime's; and a program that is one, or the runtime itself.
fn a_package_does_not_start_in_or_by_what_proc_leads_to(world: &World) {
    let package = |place: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let image = Image::probe().manifest(|manifest| change(&mut manifest["entrypoint"]));
        image.build().write(&world.directory(&format!("package{}", place.replace('/', "-"))))
    };
    let run = |package: &str, verb: &[&str]| {
        let bare = crate::tier::without_namespaces(world, [&["run", package][..], verb].concat());
        [Some(world.smcp(["run", package]).args(verb)), bare]
            .into_iter()
            .flatten()
            .map(|run| run.run())
            .collect::<Vec<_>>()
    };
    let numbers = (3..9).map(|number| format!("/proc/self/fd/{number}"));
    let others = ["/proc/1/cwd", "/proc/1/root", "/proc/1/fd/9", "/proc/self/cwd/../../.."].map(String::from);
    for directory in numbers.chain(others) {
        let package = package(&directory, &|entry| entry["workdir"] = json!(directory));
        // From wherever it is, to the host's root and down again.
        let secret = format!("../../../../../../../..{}", world.text("private/secret"));
        for ended in run(&package, &["read", &secret]) {
            ended.check([123, 125, 126, 127, REFUSED].contains(&ended.code()), "a refusal was expected");
            ended.check(!ended.text().contains(SECRET), "no secret was expected");
        }
    }
    for program in
        ["/proc/self/exe", "/proc/1/exe", "/proc/self/fd/3", "/proc/self/root/bin/true", "../../../../bin/true"]
    {
        let package = package(&format!("of{program}"), &|entry| entry["args"] = json!([program]));
        for ended in run(&package, &["--version"]) {
            ended.check([123, 125, 126, 127].contains(&ended.code()), "a refusal was expected");
            ended.check(ended.text().is_empty(), "nothing should run");
        }
    }
}

/// CVE-2025-53110: paths are compared by their components.
fn a_name_that_begins_like_a_grant(world: &World) {
    world.directory("project-private");
    let (grant, file) = (world.text("project"), world.file("project-private/file", SECRET));
    let verb = ["read", file.to_str().unwrap()];
    world.bare(&verb).run().ok();
    for tier in Tier::with_grants(world) {
        for grant in [&grant, &format!("{grant}/")] {
            tier.caged(world, &["--allow-write", grant], &verb).run().expect(REFUSED);
        }
    }
}

/// The session is its own: no `/dev/tty` leads to the terminal of whoever started smcp, to read keys or to write there.
fn the_callers_terminal_is_not_the_servers(world: &World) {
    let Some(script) = needs::program("script", "bsdutils") else { return };
    let log = world.file("tmp/typescript", "");
    let on_a_terminal = |words: &[String]| {
        let quoted: Vec<_> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let shown = format!("{} >{1}/out 2>&1; echo $? >{1}/code", quoted.join(" "), world.text("tmp"));
        world.program(&script, ["-qec", &shown]).args([&log]).run().ok();
        let read = |name: &str| fs::read_to_string(world.path("tmp").join(name)).unwrap();
        (read("code").trim().to_owned(), read("out"))
    };
    let open = ["open-to-write", "/dev/tty"];
    let bare = [probe::path().to_str().unwrap(), open[0], open[1]].map(String::from);
    let (code, out) = on_a_terminal(&bare);
    assert_eq!(code, "0", "outside there is a terminal: {out}");
    for tier in Tier::offered(world) {
        let (code, out) = on_a_terminal(&tier.words(world, &[], &open));
        assert_eq!(code, REFUSED.to_string(), "{tier}: {out}");
        // Landlock's, or that there is none.
        assert!(out.contains("os error 6)") || tier.is_without_namespaces(), "{tier}: {out}");
        let sessions = on_a_terminal(&tier.words(world, &[], &["read", "/proc/self/stat"])).1;
        // Field 7, proc_pid_stat(5): the controlling terminal.
        assert_eq!(sessions.rsplit(") ").next().unwrap().split(' ').nth(4), Some("0"), "{tier}: {sessions}");
    }
}

/// Where limits.conf gives the caller real-time priorities, as for sound, a server would have the machine for itself.
fn the_callers_right_to_real_time_is_not_the_servers(world: &World) {
    let plan = world.smcp(["run", "--dry-run", "--json", image::probe_reference()]).run().ok().json();
    for name in ["RLIMIT_NICE", "RLIMIT_RTPRIO"] {
        let limits = plan["config"]["process"]["rlimits"].as_array().unwrap();
        assert!(limits.contains(&json!({"type": name, "soft": 0, "hard": 0})), "{limits:?}");
    }
    let tools = [needs::program("prlimit", "util-linux"), needs::program("setpriv", "util-linux")];
    if !needs::root() || tools.contains(&None) {
        return;
    }
    // Root raises the limits, and the user has them.
    let outer = World::new(User::Root);
    let ids = [world.user().id(), world.user().group()].map(|id| id.to_string());
    let with_limits = |command: &[&str]| {
        let raised =
            ["--rtprio=5", "--nice=30", "/usr/bin/setpriv", "--reuid", &ids[0], "--regid", &ids[1], "--clear-groups"];
        let run = outer.program("/usr/bin/prlimit", raised).args(command).in_directory(world.path("home"));
        world.environment().into_iter().fold(run, |run, (name, value)| run.env(name, value)).run()
    };
    let smcp = [place::smcp().to_str().unwrap(), "run", image::probe_reference()];
    // Root of a container may lack what raising takes (CAP_SYS_RESOURCE).
    if with_limits(&["true"]).code() != 0 {
        return;
    }
    for verb in [
        ["sys", "sched_setscheduler", "0", "1", "w:1"],
        ["sys", "sched_setscheduler", "0", "2", "w:1"],
        ["sys", "setpriority", "0", "0", "-5"],
    ] {
        with_limits(&[&[probe::path().to_str().unwrap()], &verb[..]].concat()).ok();
        with_limits(&[&smcp[..], &verb].concat()).expect(REFUSED);
    }
}

/// A `core_pattern` that is a program is started as root on the host, with what crashed as its input. It cannot be set for a
/// test; the kernel starts none where the limit on cores is 1, core(5).
fn a_crash_starts_nothing_of_the_hosts(world: &World) {
    let tools = [needs::program("prlimit", "util-linux")];
    for tier in Tier::with_grants(world) {
        let limits = tier.caged(world, &[], &["limits"]).run().ok().text();
        let cores = limits.split("\", \"").find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        let values: Vec<_> = cores.split_whitespace().take(2).collect();
        assert_eq!(values, ["1", "1"], "{tier}: {limits}");
        for flags in [vec![], vec!["--cwd", &world.text("project")]] {
            tier.caged(world, &flags, &["abort"]).run().expect(128 + 6);
        }
        assert_eq!(fs::read_dir(world.path("project")).unwrap().count(), 0, "{tier}: no core was left");
        // A caller who may have no cores at all, or less of other things, cannot raise that, and need not.
        if let [Some(prlimit)] = &tools {
            let lower = ["--core=0:0", "--nofile=300:300"];
            let run = world.program(prlimit, lower).args(tier.words(world, &[], &["limits"]));
            let limits = run.run().ok().text();
            assert!(limits.contains("Max open files            300                  300 "), "{tier}: {limits}");
        }
    }
}

/// Instances and watches of inotify are counted for the user on the whole machine, inotify(7).
fn the_callers_watches_are_not_used_up(world: &World) {
    let number = |text: &str| text.trim_matches(['"', '\n']).trim_end_matches("\\u000a").parse::<u64>().unwrap();
    for (what, of) in [("instances", 4), ("watches", 2)] {
        let all = number(&fs::read_to_string(format!("/proc/sys/fs/inotify/max_user_{what}")).unwrap());
        let inside = world.caged(&[], &["read", &format!("/proc/sys/user/max_inotify_{what}")]).run().ok().text();
        assert!(number(&inside) <= all / of, "{what}: {inside} of {all}");
    }
}

/// Two cages of one user neither see nor reach each other.
fn another_cage_is_as_far_as_the_host(world: &World) {
    for tier in Tier::offered(world) {
        let mark = format!("{}{tier:?}", world.mark());
        let mut other = tier.caged(world, &[], &["hang", &mark]).start();
        other.await_ready();
        // As the host sees it.
        let outside = world.bare(&["processes", &mark]).run().ok().json();
        let pid = outside.as_object().unwrap().iter().find(|(_, line)| {
            line.as_str().unwrap().starts_with("/usr/bin/probe") || line.as_str().unwrap().contains("/layers/")
        });
        let Some((pid, _)) = pid else { panic!("{tier}: {outside}") };
        tier.caged(world, &[], &["see", &mark]).run().expect(REFUSED);
        for verb in [["signal", pid, "0"], ["ptrace", pid, ""], ["read", &format!("/proc/{pid}/environ"), ""]] {
            tier.caged(world, &[], &verb).run().expect(REFUSED);
        }
        drop(other);
    }
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
        pair(&world, &flags, &["chmod", &file, &mode]);
        pair(&world, &flags, &["chmod-open", &file, &mode]);
        for (verb, kind) in [("make-with-mode", 0), ("make-node", 0o100_000)] {
            let made = world.text("project/made");
            let mode = (mode.parse::<u32>().unwrap() | kind).to_string();
            world.bare(&[verb, &made, &mode]).run().ok();
            fs::remove_file(&made).unwrap();
            world.caged(&flags, &[verb, &made, &mode]).run().expect(REFUSED);
            assert!(!fs::exists(&made).unwrap(), "{verb}");
        }
    }
    // What sets no id is allowed.
    world.caged(&flags, &["chmod", &file, &0o755.to_string()]).run().ok();
    world.caged(&flags, &["make-with-mode", &world.text("project/made"), &0o755.to_string()]).run().ok();
}

#[track_caller]
fn pair(world: &World, flags: &[&str], verb: &[&str]) {
    world.bare(verb).run().ok();
    world.caged(flags, verb).run().expect(REFUSED);
}
