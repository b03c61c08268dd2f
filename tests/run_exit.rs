//! How a run ends: the server's own code, a signal, or one of smcp's codes.

use crate::image::Image;
use crate::world::{World, as_each_user};

as_each_user! {
    the_servers_code_passes_through,
    a_signal_is_128_and_its_number,
    an_entry_point_that_is_not_there_is_127,
    an_entry_point_that_cannot_be_executed_is_126,
    a_bare_name_is_found_in_path,
    a_plain_image_runs_its_entry_point,
    limits_are_never_absent,
    a_limit_of_time_is_124,
    what_was_typed_wrongly_is_2,
}

fn the_servers_code_passes_through(world: &World) {
    for code in [0, 1, 3, 42, 117, 255] {
        world.caged(&[], &["exit", &code.to_string()]).run().expect(code);
        assert_eq!(world.last_end()["exit"], code);
    }
}

fn a_signal_is_128_and_its_number(world: &World) {
    for (verb, code) in
        [(&["abort"][..], 134), (&["raise", "9"], 137), (&["raise", "15"], 143), (&["raise", "11"], 139)]
    {
        world.caged(&[], verb).run().expect(code);
        assert_eq!(world.last_end()["exit"], code);
    }
}

fn an_entry_point_that_is_not_there_is_127(world: &World) {
    let reference = Image::probe()
        .manifest(|m| m["entrypoint"]["args"][0] = "/usr/bin/absent".into())
        .build()
        .write(&world.directory("image"));
    let ended = world.smcp(["run", &reference]).run().expect(127);
    ended.explains(&["/usr/bin/absent"]);
    assert_eq!(world.last_end()["exit"], 127);
}

fn an_entry_point_that_cannot_be_executed_is_126(world: &World) {
    let cases = [
        ("not-executable", 0o644, &b"#!/bin/sh\n"[..]),
        ("no-program", 0o755, b"just text\n"),
        ("directory/file", 0o755, b""),
    ];
    for (path, mode, text) in cases {
        let name = path.split('/').next().unwrap();
        let reference = Image::probe()
            .file(&format!("srv/{path}"), mode, text)
            .manifest(|m| m["entrypoint"]["args"][0] = format!("/srv/{name}").into())
            .build()
            .write(&world.directory(&format!("image-{name}")));
        let ended = world.smcp(["run", &reference]).run().expect(126);
        ended.explains(&[&format!("/srv/{name}")]);
        assert_eq!(world.last_end()["exit"], 126);
    }
}

/// A bare name is looked for in the package's PATH.
fn a_bare_name_is_found_in_path(world: &World) {
    let reference = Image::probe()
        .manifest(|m| m["entrypoint"]["args"][0] = "probe".into())
        .build()
        .write(&world.directory("image"));
    world.smcp(["run", &reference, "exit", "5"]).run().expect(5);
    let reference = Image::probe()
        .manifest(|m| m["entrypoint"]["args"][0] = "absent".into())
        .build()
        .write(&world.directory("other"));
    world.smcp(["run", &reference]).run().expect(127).explains(&["absent"]);
}

/// An ordinary image, without a manifest, starts its own entry point with no permission.
fn a_plain_image_runs_its_entry_point(world: &World) {
    let reference = Image::probe().plain().build().write(&world.directory("image"));
    let ended = world.smcp(["run", &reference, "args", "x"]).run().ok();
    assert_eq!(ended.text(), "[\"x\"]\n");
}

/// The limits of a run are set, all of them, also where nobody asks for any.
fn limits_are_never_absent(world: &World) {
    let text = world.caged(&[], &["limits"]).run().ok().text();
    for (name, value) in [("Max processes", "256"), ("Max open files", "1024"), ("Max core file size", "1")] {
        let line = text.split("\", \"").find(|l| l.contains(name)).unwrap_or_default();
        assert_eq!(
            line.trim_start_matches(['[', '"']).replace(name, "").split_whitespace().next(),
            Some(value),
            "{text}"
        );
    }
    let text = world.caged(&["--fds", "77", "--pids", "99"], &["limits"]).run().ok().text();
    assert!(text.contains(" 77 ") && text.contains(" 99 "), "{text}");
}

/// A limit of time ends the tree with 124 and is named.
fn a_limit_of_time_is_124(world: &World) {
    let mut running = world.caged(&["--timeout", "1s"], &["hang", world.mark()]).start();
    let stdin = running.take_stdin();
    running.await_ready();
    let ended = running.wait().expect(124);
    drop(stdin);
    ended.check(
        ended.stderr().contains("--timeout") && ended.stderr().contains("1 s"),
        "the limit and its value were expected",
    );
    crate::processes::none_left(world, std::time::Duration::from_secs(1));
    assert_eq!(world.last_end()["exit"], 124);
}

fn what_was_typed_wrongly_is_2(world: &World) {
    let cases: [&[&str]; 8] = [
        &["run", "--pids", "1", "x/y"],
        &["run", "--fds", "3", "x/y"],
        &["run", "--memory", "1K", "x/y"],
        &["run"],
        &["run", "--no-such-flag", "x/y"],
        &["no-such-command"],
        &["run", "--memory", "512MB", "x/y"],
        &["run", "--pids", "-1", "x/y"],
    ];
    for arguments in cases {
        let ended = world.smcp(arguments).run().expect(2);
        ended.check(ended.stdout().is_empty() && !ended.stderr().is_empty(), "words on stderr alone were expected");
    }
}

/// `--version` and `--help` are for people and pipes: on stdout, and no error.
#[test]
fn help_is_on_stdout() {
    let world = crate::world::World::new(crate::world::User::Ordinary);
    for flag in ["--help", "--version"] {
        let ended = world.smcp([flag]).run().ok();
        ended.check(ended.text().contains("smcp") && ended.stderr().is_empty(), "help on stdout was expected");
    }
}

/// Everything after the reference is the server's, also what looks like a flag of smcp.
#[test]
fn flags_after_the_reference_are_the_servers() {
    let world = crate::world::World::new(crate::world::User::Ordinary);
    let said = ["--dry-run", "--mount", "/:/host:rw", "--help", "-v", "--", "--memory", "1K"];
    let ended = world.caged(&[], &[&["args"], &said[..]].concat()).run().ok();
    assert_eq!(ended.json(), serde_json::json!(said));
}

/// A caller that reads no stderr gets the exit code all the same.
#[test]
fn a_stderr_that_takes_nothing_changes_no_code() {
    let world = crate::world::World::new(crate::world::User::Ordinary);
    let shell =
        |line: &str| world.program("/bin/sh", ["-c", line, "sh"]).args([crate::place::smcp().as_os_str()]).run();
    shell(r#"exec "$1" run oci-layout:/nowhere:x 2>/dev/full"#).expect(120);
    shell(r#""$1" cache ls >/dev/full"#).ok();
}
