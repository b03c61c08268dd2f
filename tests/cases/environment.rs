//! Environment, files and users: the rows E1 to E17.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::host::Host;
use crate::image::{Image, probe_reference};
use crate::needs;
use crate::probe::REFUSED;
use crate::servers::pypi;
use crate::world::{User, World, as_each_user, at_each_tier};

at_each_tier! {
    e1_the_callers_environment_stays_outside,
    e2_a_required_variable_is_named,
    e4_values_arrive_as_given,
    e4_a_file_of_variables_arrives_as_given,
    e5_a_manifest_that_asks_for_everything_is_refused,
    e7_files_in_a_grant_are_the_users,
    e9_git_trusts_a_granted_repository,
    e10_a_granted_path_is_valid_inside,
    e11_a_grant_beneath_a_closed_directory,
    e11_the_size_of_a_grant_does_not_matter,
    e14_three_descriptors_alone_are_inherited,
    e15_what_is_not_granted_is_out_of_reach,
    e17_values_of_no_grammar_are_errors,
}

as_each_user! {
    e6_servers_started_by_npx_work,
    e6_servers_started_by_uvx_work,
    e8_programs_find_their_user,
    e6_home_and_tmp_alone_are_writable,
    e6_home_is_private,
    e6_what_lies_in_home_executes_where_subprocesses_are_granted,
    e8_the_user_has_an_entry,
    e11_grants_of_files_links_and_relative_paths,
    e13_devices_behave_as_usual,
    e16_private_files_end_with_the_run,
}

/// The environment is the package's, the user's flags' and a few constants: nothing of the caller's (E1).
fn e1_the_callers_environment_stays_outside(world: &World) {
    let ended = world
        .caged(&[], &["env"])
        .env("AWS_SECRET_ACCESS_KEY", "sentinel")
        .env("SSH_AUTH_SOCK", "/run/agent")
        .env("LD_PRELOAD", "")
        .run()
        .ok();
    let inside = ended.json();
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD",
        "XDG_CACHE_HOME",
        "MCP_CACHE_DIR",
        "MCP_AUDIT_LOG_FILE",
        "TMPDIR",
    ] {
        ended.check(inside[name].is_null() || name == "TMPDIR", &format!("{name} should not be inside"));
    }
    ended.check(inside["HOME"].is_string() && inside["PATH"].is_string(), "HOME and PATH should be inside");
}

/// A required variable that is missing is named before anything starts (E2).
fn e2_a_required_variable_is_named(world: &World) {
    let reference = Image::probe()
        .manifest(|m| {
            m["env"] =
                json!([{"name": "API_KEY", "secret": true, "required": true}, {"name": "LEVEL", "default": "info"}])
        })
        .build()
        .write(&world.directory("image"));
    let ended = world.smcp(["run", &reference, "env"]).run().expect(2);
    ended.explains(&["API_KEY"]);
    ended.check(ended.stdout().is_empty(), "nothing should have started");
    let inside = world.smcp(["run", "--env", "API_KEY=k", &reference, "env"]).run().ok().json();
    assert_eq!((&inside["API_KEY"], &inside["LEVEL"]), (&json!("k"), &json!("info")));
}

/// Values arrive as they were given (E4).
fn e4_values_arrive_as_given(world: &World) {
    let values = [
        ("EQUALS", "a=b=c"),
        ("QUOTES", "\"a' `b`"),
        ("DOLLAR", "$HOME ${PATH} $(id)"),
        ("LINES", "one\ntwo\n"),
        ("SPACES", "  x  "),
        ("EMPTY", ""),
        ("OTHER", "grüße \\n"),
    ];
    let flags: Vec<String> = values.iter().flat_map(|(k, v)| ["--env".to_owned(), format!("{k}={v}")]).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--env", "BARE"]).collect();
    let ended = world.caged(&flags, &["env"]).env("BARE", "the caller's").run().ok();
    let inside = ended.json();
    for (name, value) in values.iter().chain(&[("BARE", "the caller's")]) {
        ended.check(inside[name] == *value, &format!("{name}={value:?} was expected"));
    }
    world.caged(&["--env", "UNSET"], &["env"]).run().expect(2).explains(&["UNSET"]);
}

/// The same by a file: one `NAME=VALUE` a line, bare names, comments; flags beat it.
fn e4_a_file_of_variables_arrives_as_given(world: &World) {
    let file = world.file(
        "home/variables",
        "# a comment\n\nEQUALS=a=b\nQUOTES=\"a' b\"\nDOLLAR=$HOME\nSPACES=  x \nEMPTY=\nBARE\nBOTH=file\nHASH=a # b\n",
    );
    let flags = ["--env-file", file.to_str().unwrap(), "--env", "BOTH=flag"];
    let ended = world.caged(&flags, &["env"]).env("BARE", "the caller's").run().ok();
    let inside = ended.json();
    let expected = [
        ("EQUALS", "a=b"),
        ("QUOTES", "\"a' b\""),
        ("DOLLAR", "$HOME"),
        ("SPACES", "  x "),
        ("EMPTY", ""),
        ("BARE", "the caller's"),
        ("BOTH", "flag"),
        ("HASH", "a # b"),
    ];
    for (name, value) in expected {
        ended.check(inside[name] == value, &format!("{name}={value:?} was expected"));
    }
}

/// The root, the package's own files and /proc's settings cannot be written; HOME, /tmp and /dev/shm can (E6).
fn e6_home_and_tmp_alone_are_writable(world: &World) {
    for path in ["/new", "/usr/new", "/usr/bin/new", "/etc/new", "/dev/new", "/proc/new", "/sys/new"] {
        world.caged(&[], &["make", path]).run().expect(REFUSED);
    }
    for path in ["/usr/bin/probe", "/etc/passwd", "/proc/sys/kernel/hostname"] {
        world.caged(&[], &["append", path, ""]).run().expect(REFUSED);
    }
    for path in [&format!("{}/new", world.text("home")), "/tmp/new", "/dev/shm/new"] {
        world.caged(&[], &["make", path]).run().ok();
    }
    world.caged(&[], &["append", "/dev/null", "x"]).run().ok();
}

/// HOME is empty, whatever the caller has there.
fn e6_home_is_private(world: &World) {
    world.file("home/.netrc", "secret");
    let home = world.caged(&[], &["list", &world.text("home")]).run().ok();
    assert_eq!(home.json(), json!([]));
}

/// Programs find out who they are (E8).
fn e8_the_user_has_an_entry(world: &World) {
    let entry = world.caged(&[], &["account"]).run().ok().json();
    let home = entry.as_str().and_then(|line| line.split(':').nth(5));
    assert_eq!(home, Some(world.text("home").as_str()), "{entry}");
    let loopback = world.caged(&[], &["interfaces"]).run().ok().json();
    assert_eq!(loopback, json!(["lo"]));
}

/// A file can be granted, a symbolic link means what it points to, a relative path the caller's directory (E11).
fn e11_grants_of_files_links_and_relative_paths(world: &World) {
    let note = world.file("project/note", "here");
    world.file("project/other", "there");
    let one = world.caged(&["--allow-read", note.to_str().unwrap()], &["list", &world.text("project")]).run().ok();
    assert_eq!(one.json(), json!(["note"]));
    symlink(world.path("project"), world.path("link")).unwrap();
    let link = world.text("link");
    assert_eq!(world.caged(&["--allow-read", &link], &["read", &format!("{link}/note")]).run().ok().json(), "here");
    let relative = world.caged(&["--cwd", "project"], &["read", "note"]).in_directory(world.path("")).run().ok();
    assert_eq!(relative.json(), "here");
}

/// What a server writes is gone with the run, HOME and /tmp included (E16).
fn e16_private_files_end_with_the_run(world: &World) {
    for file in [world.text("home/note"), format!("/tmp/note-{}", world.mark())] {
        let file = file.as_str();
        world.caged(&[], &["write", file, "x"]).run().ok();
        world.caged(&[], &["read", file]).run().expect(crate::probe::REFUSED);
        assert!(!std::path::Path::new(file).exists(), "{file} is on the host");
    }
}

/// `"*"` in the environment, the network or the files: nothing starts, and the key is named.
fn e5_a_manifest_that_asks_for_everything_is_refused(world: &World) {
    let cases = [
        ("env", json!({"env": [{"name": "*"}]}), "env[0].name"),
        ("all-env", json!({"env": "*"}), "env"),
        (
            "network",
            json!({"permissions": {"network": {"outbound": [{"host": "*", "ports": [443]}]}}}),
            "permissions.network.outbound[0].host",
        ),
        ("all-network", json!({"permissions": {"network": "*"}}), "permissions.network"),
        ("files", json!({"permissions": {"filesystem": "*"}}), "permissions.filesystem"),
        ("each-file", json!({"permissions": {"filesystem": ["*"]}}), "permissions.filesystem[0]"),
    ];
    for (name, asked, key) in cases {
        let asked = asked.as_object().expect("it is one").clone();
        let change = |manifest: &mut Value| manifest.as_object_mut().expect("it is one").extend(asked);
        let package = Image::probe().manifest(change).build().write(&world.directory(name));
        let ended = world.smcp(["run", &package, "exit", "0"]).run().expect(123);
        ended.explains(&[key, "everything"]);
        ended.check(ended.stdout().is_empty(), "nothing should have started");
    }
}

/// What a package manager puts beneath HOME or `/tmp` runs where subprocesses are granted, and only there.
fn e6_what_lies_in_home_executes_where_subprocesses_are_granted(world: &World) {
    for place in [world.text("home/program"), "/tmp/program".to_owned()] {
        let verb = ["copy-and-exec", &place, "exit", "33"];
        world.caged(&[], &verb).run().expect(REFUSED);
        world.caged(&["--allow-subprocess"], &verb).run().expect(33);
        assert!(!Path::new(&place).exists(), "{place} is on the host");
    }
}

/// Without namespaces they are directories elsewhere, named by variables, and gone with the run.
#[test]
fn e6_home_and_tmp_are_private_at_tier_1() {
    let world = World::without_namespaces();
    world.file("home/.netrc", "secret");
    let inside = world.caged(&[], &["env"]).run().ok().json();
    for name in ["HOME", "TMPDIR"] {
        let directory = inside[name].as_str().expect("it is set");
        assert!(
            ![world.text("home").as_str(), "/tmp"].contains(&directory) && !Path::new(directory).exists(),
            "{directory}"
        );
    }
    for place in [world.text("home/new"), "/tmp/new".to_owned(), "/dev/shm/new".to_owned(), "/new".to_owned()] {
        world.caged(&[], &["make", &place]).run().expect(REFUSED);
    }
    world.caged(&[], &["make-beneath", "HOME"]).run().ok();
    world.caged(&[], &["make-beneath", "TMPDIR"]).run().ok();
}

/// npx unpacks a package into its cache, which is beneath HOME, and executes it from there.
fn e6_servers_started_by_npx_work(world: &World) {
    let Some(npx) = needs::program("npx", "npm") else { return };
    let package = world.directory("project/hello");
    let manifest = json!({"name": "hello", "version": "1.0.0", "bin": {"hello": "hello.js"}});
    world.file("project/hello/package.json", manifest.to_string());
    let script = world.file("project/hello/hello.js", "#!/usr/bin/env node\nconsole.log(`hello from ${__filename}`)\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let pack = ["pack", "--silent", "--pack-destination", &world.text("project")];
    world.program("/usr/bin/env", ["npm"]).args(pack).args([&package]).run().ok();
    let grant = world.text("project");
    let line =
        [npx.to_str().unwrap(), "--yes", "--offline", "--package", &world.text("project/hello-1.0.0.tgz"), "hello"];
    let ended = Host::of(world).caged(&["--allow-read", &grant], line).run().ok();
    let unpacked = format!("hello from {}/.npm/", world.text("home"));
    ended.check(ended.text().starts_with(&unpacked), &format!("{unpacked:?} was expected"));
    assert!(!world.path("home/.npm/_npx").exists(), "the cache is on the host");
}

/// uvx does the same with a wheel and an environment of its own.
fn e6_servers_started_by_uvx_work(world: &World) {
    let Some(python) = needs::program("python3", "python3") else { return };
    let wheel = world.text("project/hello-1.0-py3-none-any.whl");
    let pack = r#"
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("hello.py", "def main(): print('hello from', __file__)")
    about = "hello-1.0.dist-info/"
    wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n")
    wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(about + "entry_points.txt", "[console_scripts]\nhello = hello:main\n")
    wheel.writestr(about + "RECORD", "")
"#;
    world.program(&python, ["-c", pack, &wheel]).run().ok();
    let tools = pypi();
    let (tools, uvx) = (tools.to_str().unwrap(), tools.join("bin/uvx"));
    let flags = ["--mount", tools, "--allow-read", &world.text("project")];
    let line = ["--offline", "--python", python.to_str().unwrap(), "--from", &wheel, "hello"];
    let ended = Host::of(world).caged(&flags, [uvx.to_str().unwrap()].iter().chain(&line)).run().ok();
    let unpacked = format!("hello from {}/.cache/uv/", world.text("home"));
    ended.check(ended.text().starts_with(&unpacked), &format!("{unpacked:?} was expected"));
    assert!(!world.path("home/.cache/uv").exists(), "the cache is on the host");
}

/// What the server makes is the caller's; what is the caller's alone, 0600, can be read and changed by the server.
fn e7_files_in_a_grant_are_the_users(world: &World) {
    let (note, made) = (world.file("project/note", "mine"), world.path("project/made"));
    fs::set_permissions(&note, fs::Permissions::from_mode(0o600)).unwrap();
    let (note, made) = (note.to_str().unwrap(), made.to_str().unwrap());
    let grant = ["--allow-write", &world.text("project")];
    assert_eq!(world.caged(&grant, &["read", note]).run().ok().json(), "mine");
    world.caged(&grant, &["append", note, "!"]).run().ok();
    world.caged(&grant, &["write", made, "x"]).run().ok();
    for path in [note, made] {
        let about = fs::metadata(path).unwrap();
        assert_eq!((about.uid(), about.gid()), (world.user().id(), world.user().group()), "{path}");
    }
    assert_eq!(fs::read_to_string(note).unwrap(), "mine!");
    // Inside, they are the server's own.
    let inside = world.caged(&grant, &["owner", made]).run().ok().json();
    let ids = world.caged(&grant, &["ids"]).run().ok().json();
    let uid = ids["Uid"].as_str().and_then(|uids| uids.split(' ').next());
    // As root each run has a uid of its own.
    assert!(world.user().id() == 0 || uid == Some(&inside["uid"].to_string()), "{inside} {ids}");
}

/// As root owners are shifted by idmapped mounts. A file system without them is named, with what to do.
#[test]
fn e7_a_file_system_that_shifts_no_owners_is_refused() {
    let Some(unshare) = needs::program("unshare", "util-linux").filter(|_| needs::root()) else { return };
    let world = World::new(User::Root);
    let grant = world.text("project");
    let script = format!("mount -t ramfs ramfs {grant} && exec \"$@\"");
    let smcp = crate::place::smcp().to_str().expect("UTF-8");
    let run = |flags: &[&str]| {
        let line = ["--mount", "sh", "-c", &script, "sh", smcp, "run", "--allow-write", &grant];
        world.program(&unshare, line).args(flags).args([probe_reference(), "make", &format!("{grant}/new")]).run()
    };
    run(&[]).expect(125).explains(&[&grant, "file system", "ordinary user", "--user root"]);
    run(&["--user", "root"]).ok();
}

/// The interpreters' own ways to ask who they are.
fn e8_programs_find_their_user(world: &World) {
    let home = world.text("home");
    let user = if world.user().id() == 0 { "mcp" } else { "tester" };
    let python = "import getpass, pathlib, os, pwd; print(getpass.getuser(), pathlib.Path.home(), pwd.getpwuid(os.getuid()).pw_name)";
    let node = "const u = require('os').userInfo(); console.log(u.username, u.homedir, require('os').homedir())";
    let cases = [
        ("python3", "python3", vec!["-c", python], format!("{user} {home} {user}\n")),
        ("node", "nodejs", vec!["-e", node], format!("{user} {home} {home}\n")),
        ("whoami", "coreutils", vec![], format!("{user}\n")),
    ];
    for (name, package, arguments, expected) in cases {
        let Some(program) = needs::program(name, package) else { continue };
        let line = [vec![program.to_str().unwrap()], arguments].concat();
        let ended = Host::of(world).caged(&[], line).run().ok();
        ended.check(ended.text() == expected, &format!("{name}: {expected:?} was expected"));
    }
}

/// The git server itself is in `real_servers`; this is what it starts, which looks at who owns the repository.
fn e9_git_trusts_a_granted_repository(world: &World) {
    let Some(git) = needs::program("git", "git") else { return };
    let git = git.to_str().unwrap();
    let repository = world.text("project");
    world.file("project/file", "text");
    world.program(git, ["init", "--quiet", &repository]).run().ok();
    // Without namespaces the system's configuration is there and closed, which git takes for a fault.
    let grant = ["--allow-write", &repository, "--env", "GIT_CONFIG_NOSYSTEM=1"];
    let grant = if world.has_namespaces() { &grant[..2] } else { &grant[..] };
    let host = Host::of(world);
    let status = host.caged(grant, [git, "-C", &repository, "status", "--porcelain"]).run().ok();
    status.check(status.text() == "?? file\n" && !status.stderr().contains("dubious"), "the status was expected");
    host.caged(grant, [git, "-C", &repository, "add", "file"]).run().ok();
    let outside = world.program(git, ["-C", &repository, "status", "--porcelain"]).run().ok();
    outside.check(outside.text() == "A  file\n", "the same repository was expected outside");
}

/// An absolute path of the host as an argument, granted by a flag or by a manifest that takes a directory.
fn e10_a_granted_path_is_valid_inside(world: &World) {
    world.file("project/note", "here");
    let (project, note) = (world.text("project"), world.text("project/note"));
    assert_eq!(world.caged(&["--mount", &project], &["read", &note]).run().ok().json(), "here");
    let takes = |manifest: &mut Value| {
        manifest["entrypoint"]["args"] = json!(["/usr/bin/probe", "list"]);
        manifest["args"] = json!([{"name": "root", "type": "path", "mount": "ws", "required": true}]);
        manifest["permissions"] =
            json!({"filesystem": [{"id": "ws", "access": "ro", "target": "/work", "from": "user"}]});
    };
    let package = Image::probe().manifest(takes).build().write(&world.directory("takes"));
    assert_eq!(world.smcp(["run", &package, &project]).run().ok().json(), json!(["note"]));
    // The world itself lies beneath /tmp, which is private inside: a grant shows through.
    assert!(project.starts_with(std::env::temp_dir().to_str().unwrap()), "{project}");
}

/// A parent that can be walked through and not listed.
fn e11_a_grant_beneath_a_closed_directory(world: &World) {
    world.directory("closed/open");
    world.file("closed/open/note", "here");
    let closed = world.path("closed");
    if needs::root() {
        std::os::unix::fs::chown(&closed, Some(0), Some(0)).unwrap();
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o311)).unwrap();
    let grant = ["--allow-write", &world.text("closed/open")];
    let read = world.caged(&grant, &["read", &world.text("closed/open/note")]).run();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(read.ok().json(), "here");
}

/// A start makes the same calls about the files of a grant, whether there are none or 200,000.
fn e11_the_size_of_a_grant_does_not_matter(world: &World) {
    let Some(strace) = needs::program("strace", "strace") else { return };
    let grant = world.directory("project");
    let calls = || {
        let trace = world.path("tmp/trace");
        let run = ["run", "--allow-write", grant.to_str().unwrap(), probe_reference(), "exit", "0"];
        world
            .program(&strace, ["--follow-forks", "--quiet=all", "--trace=%file,%desc,mount_setattr", "--output"])
            .args([&trace])
            .args([crate::place::smcp()])
            .args(run)
            .run()
            .ok();
        let trace = fs::read_to_string(trace).unwrap();
        let entries: usize = trace.lines().filter_map(entries_read).sum();
        let named = trace.lines().filter(|line| line.contains(grant.to_str().unwrap())).count();
        (named, entries)
    };
    // The first start unpacks; the second is as every later one.
    calls();
    let (named, entries) = calls();
    assert!(named > 0, "the trace shows no grant");
    // Names of a few files: the names are what there are 200,000 of.
    for directory in 0..200 {
        let directory = world.directory(&format!("project/{directory}"));
        fs::write(directory.join("0"), "").unwrap();
        (1..1000).for_each(|name| fs::hard_link(directory.join("0"), directory.join(name.to_string())).unwrap());
    }
    let (named_of_many, entries_of_many) = calls();
    assert_eq!(named_of_many, named, "calls that name the grant");
    // Other directories, such as /proc, have more or fewer entries each time; 200,000 are millions of bytes.
    assert!(
        entries_of_many < entries + 100_000,
        "{entries_of_many} bytes of directories were read, and {entries} before"
    );
}

/// How many bytes a `getdents64` of a trace got.
fn entries_read(line: &str) -> Option<usize> {
    line.contains("getdents64").then(|| line.rsplit("= ").next()?.trim().parse().ok())?
}

/// Each answers inside as it does outside. `tty` is there, and has no terminal behind it in a session of its own.
fn e13_devices_behave_as_usual(world: &World) {
    // As the one who made its pipes, which others may not open anew.
    let outside = World::new(User::of_the_tests()).bare(&["devices"]).stdin("aaaabbbbcccc").run().ok();
    let inside = world.caged(&[], &["devices"]).stdin("aaaabbbbcccc").run().ok();
    inside.check(inside.json() == outside.json(), &format!("as outside: {}", outside.text()));
    let names = world.caged(&[], &["list", "/dev"]).run().ok().json();
    for foreign in fs::read_dir("/dev").unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap()) {
        if ["vd", "sd", "loop", "kmsg", "mem", "kvm", "fuse"].iter().any(|disk| foreign.starts_with(disk)) {
            assert!(!names.as_array().unwrap().contains(&json!(foreign)), "{foreign}: {names}");
        }
    }
}

/// What the caller left open, 3 to 20, on a secret.
fn e14_three_descriptors_alone_are_inherited(world: &World) {
    let secret = world.path("private/secret");
    let outside = world.bare(&["fds"]).descriptors(3..=20, &secret).run().ok();
    outside.check(outside.text().matches("private/secret").count() == 18, "18 descriptors were expected outside");
    let inside = world.caged(&[], &["fds"]).descriptors(3..=20, &secret).run().ok();
    let numbers: Vec<_> = inside.json().as_object().unwrap().keys().cloned().collect();
    inside.check(numbers == ["0", "1", "2"], "descriptors 0, 1 and 2 alone were expected");
}

/// Keys, passwords, other processes, the audit log, the store and the configuration: each is there outside, and the
/// caller, or root, can read it.
fn e15_what_is_not_granted_is_out_of_reach(world: &World) {
    world.directory("home/.smcp");
    world.file("home/.smcp/config.yaml", "log_level: warn\n");
    world.caged(&[], &["exit", "0"]).run().ok();
    let mut other = world.bare(&["hang"]).start();
    other.await_ready();
    let pid = other.pid();
    let process = ["environ", "cmdline", "status"].map(|name| ["read".to_owned(), format!("/proc/{pid}/{name}")]);
    let files = [
        ["read", &world.text("home/.ssh/id")],
        ["list", &world.text("home/.ssh")],
        ["read", &world.text("log/audit.log")],
        ["read", &world.text("home/.smcp/config.yaml")],
        ["list", &world.text("cache/store")],
        ["list", &world.text("state")],
    ];
    let verbs = files.iter().map(|verb| verb.map(str::to_owned)).chain(process);
    for verb in verbs {
        let verb = verb.each_ref().map(String::as_str);
        world.bare(&verb).run().ok();
        world.caged(&[], &verb).run().expect(REFUSED);
    }
    if needs::root() {
        World::new(User::Root).bare(&["read", "/etc/shadow"]).run().ok();
    }
    world.caged(&[], &["read", "/etc/shadow"]).run().expect(REFUSED);
}

/// Units have one grammar, in manifests and flags alike (docs/configuration.md); what is not of it names its key.
fn e17_values_of_no_grammar_are_errors(world: &World) {
    let stale = ["512MB", "0.5g", "-1", "1e9", "unlimited"];
    let keys = [
        ("memory", "--memory"),
        ("cpuTime", "--cpu-time"),
        ("timeout", "--timeout"),
        ("cpuMillis", "--max-cpu"),
        ("pids", "--pids"),
        ("nofile", "--fds"),
    ];
    for (key, flag) in keys {
        for value in stale {
            let set = |manifest: &mut Value| manifest["limits"] = json!({key: value});
            let package = Image::probe().manifest(set).build().write(&world.directory("stale"));
            let ended = world.smcp(["run", &package, "exit", "0"]).run().expect(123);
            ended.explains(&[&format!("limits.{key}")]);
            ended.check(ended.stdout().is_empty(), "nothing should have started");
            let ended = world.caged(&[&format!("{flag}={value}")], &["exit", "0"]).run().expect(2);
            ended.says(&[flag, value]);
        }
        for number in [json!(-1), json!(0.5), json!(0)] {
            let set = |manifest: &mut Value| manifest["limits"] = json!({key: number});
            let package = Image::probe().manifest(set).build().write(&world.directory("stale"));
            world.smcp(["run", &package, "exit", "0"]).run().expect(123).explains(&[&format!("limits.{key}")]);
        }
    }
    for (value, bytes) in [("512M", 512 << 20), ("1Gi", 1 << 30)] {
        world.caged(&["--memory", value], &["exit", "0"]).run().ok();
        let begins = world.audit().into_iter().rfind(|entry| entry["event"] == "begin").expect("it was begun");
        assert_eq!(begins["limits"]["memory"], bytes);
    }
}
