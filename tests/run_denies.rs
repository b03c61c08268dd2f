//! `--deny`: a directory in a grant that stays hidden, whatever the host does around it (E12).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::command::{Ended, Running};
use crate::needs;
use crate::probe::REFUSED;
use crate::world::{SECRET, User, World, as_each_user};

as_each_user! {
    e12_a_denied_directory_cannot_be_read,
    it_is_denied_in_every_grant_that_shows_it,
    a_link_denies_what_it_leads_to,
    what_lies_elsewhere_needs_no_mask,
    e12_what_cannot_be_hidden_is_refused,
    a_mask_is_in_the_plan_and_in_the_log,
    the_directory_is_moved,
    what_holds_it_is_moved,
    it_is_moved_deeper_into_the_grant,
    it_changes_places_with_another,
    it_is_removed_and_made_again,
    another_is_moved_onto_it,
    what_the_host_puts_in_its_place_reaches_nobody,
    the_server_moves_what_holds_it,
    a_start_between_two_moves_shows_nothing,
    what_happens_beside_it_ends_nothing,
    what_cannot_be_watched_is_refused,
}

/// `project/deep/private` holds the secret, beside files that are no secret.
fn project(world: &World) -> PathBuf {
    for directory in ["project/deep", "project/deep/private", "project/open"] {
        world.directory(directory);
    }
    world.file("project/deep/note", "no secret");
    world.file("project/deep/private/key", SECRET);
    world.path("project")
}

fn e12_a_denied_directory_cannot_be_read(world: &World) {
    project(world);
    let (grant, denied) = (world.text("project"), world.text("project/deep/private"));
    for allow in ["--allow-read", "--allow-write", "--cwd"] {
        let flags = [allow, &grant, "--deny", &denied];
        let caged = |verb: &[&str]| world.caged(&flags, verb).run();
        caged(&["list", &denied]).expect(REFUSED);
        caged(&["read", &world.text("project/deep/private/key")]).expect(REFUSED);
        for way_out in
            [["make", &world.text("project/deep/private/new")], ["unmount", &denied], ["remount-writable", &denied]]
        {
            caged(&way_out).expect(REFUSED);
        }
        caged(&["chmod", &denied, "511"]).expect(REFUSED);
        assert_eq!(caged(&["owner", &denied]).ok().json()["mode"], 0);
        assert_eq!(caged(&["read", &world.text("project/deep/note")]).ok().json(), "no secret");
        let mounts = caged(&["read", "/proc/self/mountinfo"]).ok().json();
        let mask = mounts.as_str().unwrap().lines().find(|line| line.contains(&format!(" {denied} "))).unwrap();
        for word in ["ro,nosuid,nodev,noexec", "tmpfs"] {
            assert!(mask.contains(word), "{mask}");
        }
    }
    // What is beside it can be written all the same.
    let flags = ["--allow-write", &grant, "--deny", &denied];
    world.caged(&flags, &["write", &world.text("project/deep/new"), "x"]).run().ok();
    assert_eq!(fs::read_to_string(world.path("project/deep/private/key")).unwrap(), SECRET);
    assert_eq!(fs::read_dir(&denied).unwrap().count(), 1, "nothing was made in it");
}

/// At other paths inside, in two grants at once, and where a grant has the directory's parent.
fn it_is_denied_in_every_grant_that_shows_it(world: &World) {
    project(world);
    let (around, near) =
        (format!("{}:/work", world.text("project")), format!("{}:/near:rw", world.text("project/deep")));
    let (grant, private, open) =
        (world.text("project"), world.text("project/deep/private"), world.text("project/open"));
    let grants = ["--mount", &around, "--mount", &near, "--allow-read", &grant];
    let flags = [&grants[..], &["--deny", &private, "--deny", &open]].concat();
    for place in ["/work/deep/private", "/near/private", "/work/open", &world.text("project/deep/private")] {
        world.caged(&flags, &["list", place]).run().expect(REFUSED);
    }
    assert_eq!(world.caged(&flags, &["read", "/near/note"]).run().ok().json(), "no secret");
    // What lies in a denied directory is denied with it.
    let inner = world.text("project/deep/private");
    let flags = ["--mount", &around, "--deny", &world.text("project/deep"), "--deny", &inner];
    world.caged(&flags, &["list", "/work/deep"]).run().expect(REFUSED);
    assert_eq!(world.caged(&flags, &["list", "/work"]).run().ok().json(), json!(["deep", "open"]));
}

/// The host shows the directory at two places, of which the other is granted.
#[test]
fn it_is_denied_where_a_bind_mount_shows_it() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    project(&world);
    world.directory("alias");
    let run = |mounts: &str, grants: &str, list: &str| {
        let run = format!("exec \"$0\" run --allow-read {grants} --deny project/deep/private \"$@\"");
        let script = format!("mount --bind {mounts} && {run}");
        world
            .program("/usr/bin/unshare", ["--mount", "--propagation", "private", "sh", "-c", &script])
            .args([crate::place::smcp()])
            .args([crate::image::probe_reference(), "list", &world.text(list)])
            .in_directory(world.path(""))
            .run()
    };
    assert_eq!(run("project alias", "alias", "alias/deep").ok().json(), json!(["note", "private"]));
    run("project alias", "alias", "alias/deep/private").expect(REFUSED);
    // Within one grant there is one mask: what shows it, or a part of it, once more is refused.
    world.directory("project/deep/private/inner");
    for shown in ["deep", "deep/private", "deep/private/inner"] {
        let ended = run(&format!("project/{shown} project/open"), "project", "project/open").expect(125);
        ended.explains(&["deep/private", "project/open", "bind mount"]);
    }
    let part = run("project/deep/private/inner alias", "alias --allow-read project", "alias").expect(125);
    part.explains(&["deep/private", "alias", "bind mount"]);
    // What is hidden with it is no matter, nor is what only looks like it.
    run("project/open project/deep/private/inner", "project", "project/open").ok();
    run("project/open alias", "project --allow-read alias", "alias").ok();
}

fn a_link_denies_what_it_leads_to(world: &World) {
    project(world);
    symlink(world.path("project/deep/private"), world.path("link")).unwrap();
    let flags = ["--allow-read", &world.text("project"), "--deny", "link"];
    let list = ["list", &world.text("project/deep/private")];
    world.caged(&flags, &list).in_directory(world.path("")).run().expect(REFUSED);
}

/// A file, an absent path, a directory that no grant shows: out of reach anyway.
fn what_lies_elsewhere_needs_no_mask(world: &World) {
    project(world);
    for elsewhere in ["private", "private/secret", "absent"] {
        let flags = ["--allow-read", &world.text("project"), "--deny", &world.text(elsewhere)];
        world.caged(&flags, &["read", &world.text("private/secret")]).run().expect(REFUSED);
        world.caged(&flags, &["read", &world.text("project/deep/note")]).run().ok();
    }
    world.caged(&["--deny", "/"], &["exit", "0"]).run().ok();
}

/// Before anything starts, with the reason and the next step.
fn e12_what_cannot_be_hidden_is_refused(world: &World) {
    project(world);
    symlink("nowhere", world.path("project/dangling")).unwrap();
    let refused = |flags: &[&str], words: &[&str]| {
        let ended = world.caged(flags, &["exit", "0"]).run().expect(2);
        ended.explains(words);
        assert_eq!(world.last_end()["cause"], "usage");
    };
    let (grant, parent) = (world.text("project"), world.text(""));
    let inside = |path: &str| world.text(&format!("project/{path}"));
    refused(&["--allow-read", &grant, "--deny", &inside("deep/note")], &["deep/note", "is no directory", "renamed"]);
    refused(&["--allow-read", &grant, "--deny", &inside("absent")], &["absent", "does not exist"]);
    refused(&["--allow-read", &grant, "--deny", &inside("dangling")], &["dangling", "is no directory"]);
    refused(&["--allow-read", &grant, "--deny", &grant], &[&grant, "both granted and denied"]);
    refused(&["--allow-read", &grant, "--deny", &parent], &[&grant, "both granted and denied"]);
    let within = format!("{}:{}/x", world.text("private"), inside("deep/private"));
    refused(&["--allow-read", &grant, "--mount", &within, "--deny", &inside("deep/private")], &["would be mounted"]);
}

fn a_mask_is_in_the_plan_and_in_the_log(world: &World) {
    project(world);
    let denied = world.text("project/deep/private");
    let flags = ["--mount", &format!("{}:/work", world.text("project")), "--deny", &denied];
    let plan = world.caged(&[&["--dry-run", "--json"], &flags[..]].concat(), &["exit", "0"]).run().ok().json();
    let of = |list: &Value, key: &str| {
        let mounts = list.as_array().unwrap().iter();
        mounts.filter(|mount| mount[key] == "/work/deep/private").cloned().collect::<Vec<_>>()
    };
    assert_eq!(of(&plan["plan"]["mounts"], "target").len(), 1, "{plan}");
    let [mount] = of(&plan["config"]["mounts"], "destination").try_into().unwrap();
    assert_eq!(mount["type"], "tmpfs");
    for option in ["ro", "nosuid", "nodev", "noexec", "mode=0"] {
        assert!(mount["options"].as_array().unwrap().contains(&json!(option)), "{mount}");
    }
    let text = world.caged(&[&["--dry-run"], &flags[..]].concat(), &["exit", "0"]).run().ok().text();
    assert!(text.lines().any(|line| line.starts_with("denied ") && line.contains(&denied)), "{text}");
    world.caged(&flags, &["exit", "0"]).run().ok();
    let begin = world.audit().into_iter().rev().find(|entry| entry["event"] == "begin").unwrap();
    assert_eq!(begin["grants"]["denied"], json!([denied]));
    assert_eq!(begin["grants"]["mounts"][0]["denied"], json!(["deep/private"]));
}

fn the_directory_is_moved(world: &World) {
    hunted(world, |project| fs::rename(project.join("deep/private"), project.join("deep/other")).unwrap());
}

fn what_holds_it_is_moved(world: &World) {
    hunted(world, |project| fs::rename(project.join("deep"), project.join("open/deep")).unwrap());
}

fn it_is_moved_deeper_into_the_grant(world: &World) {
    hunted(world, |project| fs::rename(project.join("deep/private"), project.join("open/private")).unwrap());
}

fn it_changes_places_with_another(world: &World) {
    hunted(world, |project| {
        let (private, open) = (project.join("deep/private"), project.join("open"));
        renameat_with(CWD, private, CWD, open, RenameFlags::EXCHANGE).unwrap();
    });
}

/// The mask goes with the directory. What the host makes anew is open to whoever comes at once, so the run ends.
fn it_is_removed_and_made_again(world: &World) {
    hunted(world, |project| {
        let private = project.join("deep/private");
        fs::rename(private.join("key"), project.join("../private/key")).unwrap();
        fs::remove_dir(&private).unwrap();
        fs::create_dir(&private).unwrap();
    });
}

fn another_is_moved_onto_it(world: &World) {
    hunted(world, |project| {
        let private = project.join("deep/private");
        fs::rename(private.join("key"), project.join("../private/key")).unwrap();
        fs::rename(project.join("open"), private).unwrap();
    });
}

/// Runs a server that looks for the secret all the time, while the host does what it does. The run ends, and says why.
#[track_caller]
fn hunted(world: &World, host: impl FnOnce(&Path)) {
    let project = project(world);
    let mut running = hunter(world);
    let stdin = running.take_stdin();
    running.await_ready();
    host(&project);
    unmasked(world, running.wait());
    drop(stdin);
}

fn hunter(world: &World) -> Running {
    let flags = ["--allow-write", &world.text("project"), "--deny", &world.text("project/deep/private")];
    world.caged(&flags, &["hunt", &world.text("project"), SECRET]).start()
}

#[track_caller]
fn unmasked(world: &World, ended: Ended) {
    ended.check(!ended.text().contains("found"), "the secret was found");
    let denied = world.text("project/deep/private");
    let ended = ended.expect(125);
    ended.explains(&[&denied, "moved, removed or replaced"]);
    let errors = ended.stderr().lines().filter(|line| line.starts_with("error: ")).count();
    ended.check(errors == 1, "one error was expected");
    let end = world.last_end();
    assert_eq!((&end["exit"], &end["cause"], &end["unmasked"]), (&json!(125), &json!("deny"), &json!(denied)));
}

/// The server may see it until it is killed, and has none to tell: also where the host puts the first one back.
fn what_the_host_puts_in_its_place_reaches_nobody(world: &World) {
    let project = project(world);
    fs::rename(project.join("deep/private/key"), project.join("../key")).unwrap();
    let exchange = || {
        let (private, outside) = (project.join("deep/private"), world.path("private"));
        renameat_with(CWD, private, CWD, outside, RenameFlags::EXCHANGE).unwrap();
    };
    for back in [false, true].repeat(4) {
        let mut running = hunter(world);
        let stdin = running.take_stdin();
        running.await_ready();
        exchange();
        if back {
            exchange();
        }
        unmasked(world, running.wait());
        drop(stdin);
        if !back {
            exchange();
        }
    }
}

/// The mask itself it cannot move; what is around it, it can, and finds the mask there as well.
fn the_server_moves_what_holds_it(world: &World) {
    let project = project(world);
    let flags = ["--allow-write", &world.text("project"), "--deny", &world.text("project/deep/private")];
    let rename = |from: &str, to: &str| {
        let verb = ["rename-and-hunt", &world.text(from), &world.text(to), &world.text("project"), SECRET];
        let mut running = world.caged(&flags, &verb).start();
        let stdin = running.take_stdin();
        let ended = running.wait();
        drop(stdin);
        ended
    };
    rename("project/deep/private", "project/other").expect(REFUSED);
    unmasked(world, rename("project/deep", "project/moved"));
    assert_eq!(fs::read_to_string(project.join("moved/private/key")).unwrap(), SECRET);
}

/// A host that never leaves the directory alone: each start is refused, or ends, and none shows it.
fn a_start_between_two_moves_shows_nothing(world: &World) {
    let project = project(world);
    let (one, other) = (project.join("deep/private"), project.join("open/private"));
    for _ in 0..15 {
        let mut running = hunter(world);
        let stdin = running.take_stdin();
        while !running.has_ended() {
            fs::rename(&one, &other).unwrap();
            fs::rename(&other, &one).unwrap();
        }
        let ended = running.wait();
        drop(stdin);
        ended.check(!ended.text().contains("found"), "the secret was found");
        ended.check([2, 125].contains(&ended.code()), "exit 2 or 125 was expected");
        ended.explains(&["private"]);
    }
}

/// A directory that the user may enter and not read; root reads it.
fn what_cannot_be_watched_is_refused(world: &World) {
    let project = project(world);
    fs::set_permissions(project.join("deep"), fs::Permissions::from_mode(0o311)).unwrap();
    let flags = ["--allow-read", &world.text("project"), "--deny", &world.text("project/deep/private")];
    let ended = world.caged(&flags, &["list", &world.text("project/deep/private")]).run();
    fs::set_permissions(project.join("deep"), fs::Permissions::from_mode(0o700)).unwrap();
    match world.user() {
        User::Root => drop(ended.expect(REFUSED)),
        User::Ordinary => ended.expect(125).explains(&["deep/private", "cannot be watched", "readable"]),
    }
}

/// Files come and go in the directories that are watched.
fn what_happens_beside_it_ends_nothing(world: &World) {
    let project = project(world);
    let flags = ["--allow-write", &world.text("project"), "--deny", &world.text("project/deep/private")];
    let mut running = world.caged(&flags, &["until-eof", "6"]).start();
    running.await_ready();
    for number in 0..200 {
        let (new, name) = (project.join(format!("deep/new-{number}")), project.join("deep/name"));
        fs::write(&new, "x").unwrap();
        fs::rename(&new, &name).unwrap();
    }
    fs::rename(project.join("open"), project.join("deep/open")).unwrap();
    fs::remove_file(project.join("deep/name")).unwrap();
    fs::set_permissions(project.join("deep/private"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(project.join("deep/private/another"), "x").unwrap();
    drop(running.take_stdin());
    running.wait().expect(6);
}
