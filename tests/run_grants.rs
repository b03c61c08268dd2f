//! What the flags of `run` grant, and that nothing is granted without one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use serde_json::{Value, json};

use crate::image::{Image, probe_reference};
use crate::probe::REFUSED;
use crate::world::{World, as_each_user};

as_each_user! {
    the_callers_environment_stays_outside,
    values_arrive_as_given,
    a_file_of_variables_arrives_as_given,
    a_bad_file_of_variables_is_refused,
    a_required_variable_is_named,
    a_grant_is_what_its_flag_says,
    private_files_in_a_grant_are_the_users,
    a_grant_can_have_another_path,
    grants_of_files_links_and_relative_paths,
    the_working_directory_is_granted_by_flag_alone,
    grants_that_make_no_sense_are_refused,
    home_and_tmp_alone_are_writable,
    home_is_private,
    a_foreign_program_needs_a_grant,
    usual_devices_are_there,
    the_user_has_an_entry,
    a_dry_run_starts_nothing,
    info_shows_what_a_package_asks_for,
    doctor_tries_every_layer,
}

/// The environment is the package's, the user's flags' and a few constants: nothing of the caller's (E1).
fn the_callers_environment_stays_outside(world: &World) {
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

/// Values arrive as they were given (E4).
fn values_arrive_as_given(world: &World) {
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
fn a_file_of_variables_arrives_as_given(world: &World) {
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

/// A file of variables that is not there, or a line that is none, is a usage error that names it.
fn a_bad_file_of_variables_is_refused(world: &World) {
    let absent = world.text("home/absent");
    world.caged(&["--env-file", &absent], &["env"]).run().expect(2).says(&[&absent]);
    let file = world.file("home/bad", "GOOD=1\n=nameless\n");
    world.caged(&["--env-file", file.to_str().unwrap()], &["env"]).run().expect(2).says(&["2"]);
}

/// A required variable that is missing is named before anything starts (E2).
fn a_required_variable_is_named(world: &World) {
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

/// Without a grant nothing of the project is there; read-only, it can be read and not written; read-write, both.
fn a_grant_is_what_its_flag_says(world: &World) {
    world.file("project/note", "from the host");
    let (project, note, new) = (world.text("project"), world.text("project/note"), world.text("project/new"));
    world.caged(&[], &["read", &note]).run().expect(REFUSED);
    for flags in [["--mount", &project], ["--mount", &format!("{project}:ro")], ["--allow-read", &project]] {
        assert_eq!(world.caged(&flags, &["read", &note]).run().ok().json(), "from the host");
        for write in [["write", &note, "x"], ["write", &new, "x"]] {
            world.caged(&flags, &write).run().expect(REFUSED);
        }
        world.caged(&flags, &["remove", &note]).run().expect(REFUSED);
        world.caged(&flags, &["remount-writable", &project]).run().expect(REFUSED);
    }
    for flags in [["--mount", &format!("{project}:rw")], ["--allow-write", &project]] {
        world.caged(&flags, &["append", &note, "!"]).run().ok();
        world.caged(&flags, &["write", &new, "from inside"]).run().ok();
        assert_eq!(fs::read_to_string(&new).unwrap(), "from inside");
        assert_eq!(fs::metadata(&new).unwrap().uid(), world.user().id(), "the file is the caller's (E7)");
        world.caged(&flags, &["remove", &new]).run().ok();
    }
    assert_eq!(fs::read_to_string(&note).unwrap(), "from the host!!");
    assert_eq!(world.caged(&[], &["exit", "0"]).run().ok().stdout(), b"");
    assert_eq!(fs::read_dir(&project).unwrap().count(), 1, "nothing else was made in the grant");
}

/// The user's private files in a grant can be read (E7).
fn private_files_in_a_grant_are_the_users(world: &World) {
    let note = world.file("project/note", "mine");
    fs::set_permissions(&note, fs::Permissions::from_mode(0o600)).unwrap();
    let answer = world.caged(&["--allow-read", &world.text("project")], &["read", note.to_str().unwrap()]).run().ok();
    assert_eq!(answer.json(), "mine");
}

/// A grant has another path inside where one is named.
fn a_grant_can_have_another_path(world: &World) {
    world.file("project/note", "here");
    let flag = format!("{}:/work:ro", world.text("project"));
    assert_eq!(world.caged(&["--mount", &flag], &["read", "/work/note"]).run().ok().json(), "here");
    world.caged(&["--mount", &flag], &["read", &world.text("project/note")]).run().expect(REFUSED);
}

/// A file can be granted, a symbolic link means what it points to, a relative path the caller's directory (E11).
fn grants_of_files_links_and_relative_paths(world: &World) {
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

/// `--cwd` grants a directory read-write and starts there; without it the working directory is not granted.
fn the_working_directory_is_granted_by_flag_alone(world: &World) {
    let project = world.text("project");
    let inside = world.caged(&["--cwd", &project], &["cwd"]).run().ok();
    assert_eq!(inside.json(), project.as_str());
    world.caged(&["--cwd", &project], &["write", "new", "x"]).run().ok();
    assert_eq!(fs::read_to_string(world.path("project/new")).unwrap(), "x");
    world.caged(&[], &["read", &world.text("project/new")]).in_directory(world.path("project")).run().expect(REFUSED);
    // The manifest's workdir.
    assert_eq!(world.caged(&[], &["cwd"]).in_directory(world.path("project")).run().ok().json(), "/usr/bin");
}

/// A grant of what is not there, or of everything, or of smcp's own files, is refused with the reason.
fn grants_that_make_no_sense_are_refused(world: &World) {
    let absent = world.text("absent");
    let refused = world.caged(&["--allow-read", &absent], &["exit", "0"]).run();
    refused.check([2, 121].contains(&refused.code()), "exit 2 or 121 was expected");
    refused.says(&[&absent]);
    let root = world.caged(&["--mount", "/"], &["exit", "0"]).run();
    root.check([2, 121].contains(&root.code()), "exit 2 or 121 was expected");
}

/// The root, the package's own files and /proc's settings cannot be written; HOME, /tmp and /dev/shm can (E6).
fn home_and_tmp_alone_are_writable(world: &World) {
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
fn home_is_private(world: &World) {
    world.file("home/.netrc", "secret");
    let home = world.caged(&[], &["list", &world.text("home")]).run().ok();
    assert_eq!(home.json(), json!([]));
}

/// Foreign programs run only where subprocesses are granted.
fn a_foreign_program_needs_a_grant(world: &World) {
    let copy = ["copy-and-exec", &format!("/tmp/copy-{}", world.mark()), "exit", "33"];
    world.caged(&[], &copy).run().expect(REFUSED);
    world.caged(&["--allow-subprocess"], &copy).run().expect(33);
    let granted = world.directory("project");
    fs::copy(crate::probe::path(), granted.join("tool")).unwrap();
    world.give(&granted.join("tool"));
    let exec = ["exec", &world.text("project/tool"), "exit", "34"];
    world.caged(&["--allow-write", &world.text("project")], &exec).run().expect(REFUSED);
    world.caged(&["--allow-write", &world.text("project"), "--allow-subprocess"], &exec).run().expect(34);
}

/// The devices that programs rely on (E13).
fn usual_devices_are_there(world: &World) {
    let names = world.caged(&[], &["list", "/dev"]).run().ok().json();
    for name in
        ["null", "zero", "full", "random", "urandom", "tty", "shm", "fd", "stdin", "stdout", "stderr", "pts", "ptmx"]
    {
        assert!(names.as_array().unwrap().contains(&json!(name)), "{name}: {names}");
    }
    for disk in fs::read_dir("/dev")
        .unwrap()
        .flatten()
        .map(|e| e.file_name().into_string().unwrap())
        .filter(|n| n.starts_with("vd") || n.starts_with("sd") || n == "kmsg" || n == "mem")
    {
        assert!(!names.as_array().unwrap().contains(&json!(disk)), "{disk}: {names}");
    }
    world.caged(&[], &["append", "/dev/full", "x"]).run().expect(REFUSED);
}

/// Programs find out who they are (E8).
fn the_user_has_an_entry(world: &World) {
    let entry = world.caged(&[], &["account"]).run().ok().json();
    let home = entry.as_str().and_then(|line| line.split(':').nth(5));
    assert_eq!(home, Some(world.text("home").as_str()), "{entry}");
    let loopback = world.caged(&[], &["interfaces"]).run().ok().json();
    assert_eq!(loopback, json!(["lo"]));
}

/// `--dry-run` prints the whole plan and starts nothing.
fn a_dry_run_starts_nothing(world: &World) {
    let note = world.text("project/started");
    let flags = ["--dry-run", "--json", "--allow-write", &world.text("project"), "--env", "KEY=sentinel-value"];
    let ended = world.caged(&flags, &["write", &note, world.mark()]).run().ok();
    let plan = ended.json();
    ended.check(!world.path("project/started").exists(), "nothing should have started");
    let text = plan.to_string();
    for word in ["/usr/bin/probe", world.mark(), &world.text("project"), "KEY", "\"rlimits\""] {
        ended.check(text.contains(word), &format!("{word} was expected in the plan"));
    }
    ended.check(!text.contains("sentinel-value"), "no value of a variable was expected in the plan");
    world.caged(&["--dry-run"], &["exit", "3"]).run().ok();
}

/// `info` says what a run would be granted; it starts nothing and needs no network for what is in the store.
fn info_shows_what_a_package_asks_for(world: &World) {
    let reference = Image::probe()
        .manifest(|m| {
            m["permissions"] = json!({"network": {"outbound": [{"host": "api.acme.example", "ports": [443]}]}})
        })
        .build()
        .write(&world.directory("image"));
    let ended = world.smcp(["info", "--json", &reference]).run().ok();
    let text = ended.json().to_string();
    for word in ["test/probe", "1.0.0", "api.acme.example", "sha256:"] {
        ended.check(text.contains(word), &format!("{word} was expected"));
    }
    let people = world.smcp(["info", &reference]).run().ok();
    people.check(people.text().contains("api.acme.example"), "the request was expected for people too");
}

/// `doctor` says of every layer what was tried.
fn doctor_tries_every_layer(world: &World) {
    let ended = world.smcp(["doctor", "--json"]).run().ok();
    let text = ended.json().to_string();
    for layer in
        ["user-namespace", "mount-namespace", "pid-namespace", "network-namespace", "capabilities", "no-new-privileges"]
    {
        ended.check(text.contains(layer), &format!("{layer} was expected"));
    }
    world.smcp(["doctor"]).run().ok();
}

/// What `--user` chooses, as root alone.
#[test]
fn root_chooses_who_the_server_is() {
    if !crate::needs::root() {
        return;
    }
    let world = World::new(crate::world::User::Root);
    let uid = |flags: &[&str]| -> Value { world.caged(flags, &["ids"]).run().ok().json()["Uid"].clone() };
    let default = uid(&[]);
    assert!(!default.as_str().unwrap().starts_with("0 "), "{default}");
    assert_ne!(default, json!("65534 65534 65534 65534"));
    assert_eq!(uid(&["--user", "12345"]), "12345 12345 12345 12345");
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
