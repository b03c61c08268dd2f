//! Directories that last from run to run: those that a manifest asks for, and HOME by `--state` (E16).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use serde_json::json;

use crate::image::Image;
use crate::probe::REFUSED;
use crate::world::{User, World, as_each_user};

as_each_user! {
    e16_what_was_written_is_there_in_the_next_run,
    without_a_state_it_is_gone,
    each_name_and_each_package_has_its_own,
    it_lasts_over_versions,
    home_lasts_where_the_flag_says_so,
    nothing_in_it_is_executed,
    a_state_that_is_asked_for_read_only_is,
    a_grant_takes_its_place,
    it_is_shown_before_it_is_made,
    it_is_private_and_cannot_be_granted,
    runs_at_once_share_it,
    a_name_is_one_plain_word,
}

/// The probe with two state directories, in a layout of its own.
fn stateful(world: &World, layout: &str, name: &str, version: &str) -> String {
    let asks = json!({"filesystem": [
        {"id": "db", "access": "rw", "target": "/state", "from": "state"},
        {"id": "cache", "access": "rw", "target": "/var/cache/probe", "from": "state"},
    ]});
    let image = Image::probe().manifest(|m| {
        m["permissions"] = asks;
        m["name"] = json!(name);
        m["version"] = json!(version);
    });
    image.build().write(&world.directory(layout))
}

fn run(world: &World, flags: &[&str], reference: &str, verb: &[&str]) -> crate::command::Ended {
    world.smcp(["run"]).args(flags).args([reference]).args(verb).run()
}

/// The directories of all states, by what they end with.
fn states(world: &World) -> Vec<PathBuf> {
    fn below(directory: &Path, depth: usize, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match depth {
                0 => found.push(entry.path()),
                _ => below(&entry.path(), depth - 1, found),
            }
        }
    }
    let mut found = Vec::new();
    below(&world.path("state/smcp/servers"), 2, &mut found);
    found.sort();
    found
}

fn e16_what_was_written_is_there_in_the_next_run(world: &World) {
    let reference = stateful(world, "layout", "acme/notes", "1");
    let ended = run(world, &[], &reference, &["write", "/state/note", "kept"]).ok();
    ended.check(!ended.stderr().contains("not granted"), "no request was to be withheld");
    run(world, &[], &reference, &["write", "/var/cache/probe/page", "cached"]).ok();
    assert_eq!(run(world, &[], &reference, &["read", "/state/note"]).ok().json(), "kept");
    assert_eq!(run(world, &[], &reference, &["list", "/var/cache/probe"]).ok().json(), json!(["page"]));
    // As root each run has a uid of its own, to which it belongs inside.
    let (flags, uid): (&[&str], u32) = match world.user() {
        User::Root => (&["--user", "4711"], 4711),
        User::Ordinary => (&[], world.user().id()),
    };
    assert_eq!(run(world, flags, &reference, &["owner", "/state/note"]).ok().json()["uid"], uid);
    let [cache, db] = states(world).try_into().unwrap();
    assert!(cache.ends_with("default/cache") && db.ends_with("default/db"), "{cache:?} {db:?}");
    assert_eq!(fs::metadata(db.join("note")).unwrap().uid(), world.user().id(), "outside it is the caller's");
}

fn without_a_state_it_is_gone(world: &World) {
    let note = world.text("home/note");
    world.caged(&[], &["write", &note, "x"]).run().ok();
    world.caged(&[], &["read", &note]).run().expect(REFUSED);
    assert_eq!(states(world), Vec::<PathBuf>::new());
}

fn each_name_and_each_package_has_its_own(world: &World) {
    let (one, other) = (stateful(world, "one", "acme/notes", "1"), stateful(world, "one-b", "acme/notes", "1"));
    run(world, &[], &one, &["write", "/state/note", "default"]).ok();
    run(world, &["--state", "work"], &one, &["read", "/state/note"]).expect(REFUSED);
    run(world, &["--state", "work"], &one, &["write", "/state/note", "work"]).ok();
    assert_eq!(run(world, &[], &one, &["read", "/state/note"]).ok().json(), "default");
    assert_eq!(run(world, &["--state", "work"], &one, &["read", "/state/note"]).ok().json(), "work");
    assert_eq!(run(world, &["--state", "default"], &one, &["read", "/state/note"]).ok().json(), "default");
    // The same name in the manifest, which is its publisher's word, from another place.
    run(world, &[], &other, &["read", "/state/note"]).expect(REFUSED);
    // Another package of the same layout.
    let another = stateful(world, "one", "acme_notes", "1");
    run(world, &[], &another, &["read", "/state/note"]).expect(REFUSED);
}

fn it_lasts_over_versions(world: &World) {
    let first = stateful(world, "layout", "acme/notes", "1");
    run(world, &[], &first, &["write", "/state/note", "kept"]).ok();
    let second = stateful(world, "layout", "acme/notes", "2.0.0");
    assert_eq!(run(world, &[], &second, &["read", "/state/note"]).ok().json(), "kept");
    let link = world.path("link");
    std::os::unix::fs::symlink(world.path("layout"), &link).unwrap();
    let by_link = format!("oci-layout:{}:v1", link.display());
    assert_eq!(run(world, &[], &by_link, &["read", "/state/note"]).ok().json(), "kept");
}

/// A package that asks for nothing; a grant below HOME has its place there.
fn home_lasts_where_the_flag_says_so(world: &World) {
    let (note, below) = (world.text("home/note"), world.directory("home/project"));
    world.caged(&["--state", "work"], &["write", &note, "kept"]).run().ok();
    assert_eq!(world.caged(&["--state", "work"], &["read", &note]).run().ok().json(), "kept");
    world.caged(&[], &["read", &note]).run().expect(REFUSED);
    world.caged(&["--state", "other"], &["read", &note]).run().expect(REFUSED);
    assert!(!world.path("home/note").exists(), "the host's HOME is as it was");
    fs::write(below.join("file"), "of the host").unwrap();
    let flags = ["--state", "work", "--cwd", below.to_str().unwrap()];
    assert_eq!(world.caged(&flags, &["read", "file"]).run().ok().json(), "of the host");
    assert_eq!(world.caged(&flags, &["read", &note]).run().ok().json(), "kept");
    world
        .caged(&["--state", "work", "--mount", &format!("{}:{}", world.text("project"), world.text("home"))], &["cwd"])
        .run()
        .expect(2)
        .explains(&["--state", "granted already"]);
}

fn nothing_in_it_is_executed(world: &World) {
    let reference = stateful(world, "layout", "acme/notes", "1");
    run(world, &[], &reference, &["copy-and-exec", "/state/tool", "exit", "33"]).expect(REFUSED);
    // Also not by the next run, and not where the program is named for another place.
    run(world, &["--allow-subprocess=/usr/bin/true"], &reference, &["exec", "/state/tool", "exit", "33"])
        .expect(REFUSED);
    run(world, &["--allow-subprocess"], &reference, &["exec", "/state/tool", "exit", "33"]).expect(33);
    let note = world.text("home/tool");
    world.caged(&["--state", "work"], &["copy-and-exec", &note, "exit", "33"]).run().expect(REFUSED);
}

/// What one version wrote, another that asks to read it alone does not execute either.
fn a_state_that_is_asked_for_read_only_is(world: &World) {
    let reference = stateful(world, "layout", "acme/notes", "1");
    run(world, &[], &reference, &["copy-and-exec", "/state/tool", "exit", "33"]).expect(REFUSED);
    let image = Image::probe().manifest(|m| {
        m["permissions"] = json!({"filesystem": [{"id": "db", "access": "ro", "target": "/state", "from": "state"}]});
        m["name"] = json!("acme/notes");
    });
    let reference = image.build().write(&world.directory("layout"));
    assert_eq!(run(world, &[], &reference, &["list", "/state"]).ok().json(), json!(["tool"]));
    run(world, &[], &reference, &["make", "/state/new"]).expect(REFUSED);
    run(world, &[], &reference, &["exec", "/state/tool", "exit", "33"]).expect(REFUSED);
}

fn a_grant_takes_its_place(world: &World) {
    let reference = stateful(world, "layout", "acme/notes", "1");
    let flag = format!("{}:/state:rw", world.text("project"));
    run(world, &["--mount", &flag], &reference, &["write", "/state/note", "x"]).ok();
    assert_eq!(fs::read_to_string(world.path("project/note")).unwrap(), "x");
    run(world, &[], &reference, &["read", "/state/note"]).expect(REFUSED);
}

fn it_is_shown_before_it_is_made(world: &World) {
    let reference = stateful(world, "layout", "acme/notes", "1");
    let plan = run(world, &["--dry-run", "--json", "--state", "work"], &reference, &["cwd"]).ok().json();
    let mounts = plan["plan"]["mounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["target"] == "/state").unwrap();
    assert_eq!((&mount["from"], &mount["exec"], &mount["access"]), (&json!("state"), &json!("denied"), &json!("rw")));
    assert!(Path::new(mount["source"].as_str().unwrap()).ends_with("work/db"), "{mount}");
    let text = run(world, &["--dry-run"], &reference, &["cwd"]).ok().text();
    assert!(text.lines().any(|line| line.starts_with("lasting ") && line.contains("/state is ")), "{text}");
    let info = world.smcp(["info", "--json", &reference]).run().ok().json();
    assert_eq!(info["granted"]["mounts"][0]["from"], "state", "{info}");
    assert_eq!(states(world), Vec::<PathBuf>::new(), "nothing was made");
    run(world, &[], &reference, &["exit", "0"]).ok();
    let begin = world.audit().into_iter().rev().find(|entry| entry["event"] == "begin").unwrap();
    let mounts = begin["grants"]["mounts"].as_array().unwrap();
    assert!(mounts.iter().any(|mount| mount["from"] == "state" && mount["target"] == "/state"), "{begin}");
}

fn it_is_private_and_cannot_be_granted(world: &World) {
    let reference = stateful(world, "layout", "acme/notes", "1");
    run(world, &[], &reference, &["exit", "0"]).ok();
    let [_, db] = states(world).try_into().unwrap();
    for directory in db.ancestors().take_while(|directory| *directory != world.path("state")) {
        let about = fs::metadata(directory).unwrap();
        assert_eq!((about.uid(), about.permissions().mode() & 0o777), (world.user().id(), 0o700), "{directory:?}");
    }
    for directory in [db.as_path(), db.parent().unwrap(), &world.path("state")] {
        let flags = ["--allow-read", directory.to_str().unwrap()];
        world.caged(&flags, &["exit", "0"]).run().expect(121).says(&["belongs to smcp itself"]);
    }
}

fn runs_at_once_share_it(world: &World) {
    let reference = stateful(world, "layout", "acme/notes", "1");
    thread::scope(|scope| {
        for number in 0..6 {
            let reference = &reference;
            scope.spawn(move || run(world, &[], reference, &["write", &format!("/state/{number}"), "x"]).ok());
        }
    });
    assert_eq!(run(world, &[], &reference, &["list", "/state"]).ok().json(), json!(["0", "1", "2", "3", "4", "5"]));
}

fn a_name_is_one_plain_word(world: &World) {
    for name in ["..", ".", "", "a/b", "/etc", ".hidden", "a b", "-x"] {
        let ended = world.caged(&[&format!("--state={name}")], &["exit", "0"]).run().expect(2);
        ended.explains(&["--state"]);
    }
    assert_eq!(states(world), Vec::<PathBuf>::new());
}
