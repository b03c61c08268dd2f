//! Environment, files and users: the rows E1 to E17.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::json;

use crate::image::Image;
use crate::probe::REFUSED;
use crate::world::{World, as_each_user};

as_each_user! {
    e1_the_callers_environment_stays_outside,
    e2_a_required_variable_is_named,
    e4_values_arrive_as_given,
    e4_a_file_of_variables_arrives_as_given,
    e6_home_and_tmp_alone_are_writable,
    e6_home_is_private,
    e7_private_files_in_a_grant_are_the_users,
    e8_the_user_has_an_entry,
    e11_grants_of_files_links_and_relative_paths,
    e13_usual_devices_are_there,
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

/// The user's private files in a grant can be read (E7).
fn e7_private_files_in_a_grant_are_the_users(world: &World) {
    let note = world.file("project/note", "mine");
    fs::set_permissions(&note, fs::Permissions::from_mode(0o600)).unwrap();
    let answer = world.caged(&["--allow-read", &world.text("project")], &["read", note.to_str().unwrap()]).run().ok();
    assert_eq!(answer.json(), "mine");
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

/// The devices that programs rely on (E13).
fn e13_usual_devices_are_there(world: &World) {
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

/// What a server writes is gone with the run, HOME and /tmp included (E16).
fn e16_private_files_end_with_the_run(world: &World) {
    for file in [world.text("home/note"), format!("/tmp/note-{}", world.mark())] {
        let file = file.as_str();
        world.caged(&[], &["write", file, "x"]).run().ok();
        world.caged(&[], &["read", file]).run().expect(crate::probe::REFUSED);
        assert!(!std::path::Path::new(file).exists(), "{file} is on the host");
    }
}
