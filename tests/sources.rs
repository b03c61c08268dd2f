//! `smcp run npm:NAME` and its kin: made once, then started from the store.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::command::{Ended, Smcp};
use crate::needs;
use crate::patience::{PATIENCE, within};
use crate::stand_in::StandIn;
use crate::world::{User, World, as_each_user};

as_each_user! {
    npm_is_made_once,
    a_directory_is_made_again_when_it_changes,
}

/// How long a first start may take on a busy machine.
const FIRST: Duration = Duration::from_secs(300);

/// A run of a package of the stand-in, by the machine's node.
fn run<'w>(world: &'w World, registry: &StandIn, flags: &[&str], words: &[&str]) -> Smcp<'w> {
    let command = world.smcp(["run", "--runtime", "host"]).args(flags).args(words);
    registry.of(command).within(FIRST)
}

fn has_npm() -> bool {
    needs::program("node", "nodejs").is_some() && needs::program("npm", "npm").is_some()
}

/// The first run installs, in a cage; the next ones ask nobody and start no npm.
fn npm_is_made_once(world: &World) {
    if !has_npm() {
        return;
    }
    let registry = StandIn::new();
    registry.publish("@acme/hello", "1.0.0");
    let first = run(world, &registry, &[], &["npm:@acme/hello", "--flag", "x y"]).run().ok();
    assert_eq!(first.json(), json!(["1.0.0", "--flag", "x y"]));
    let asked = registry.calls().len();
    assert!(asked > 0);
    let again = run(world, &registry, &[], &["npm:@acme/hello"]).run().ok();
    assert_eq!(again.json(), json!(["1.0.0"]));
    assert_eq!(registry.calls().len(), asked, "nobody was asked");
    let begun = world.audit().into_iter().filter(|line| line["event"] == "begin").collect::<Vec<_>>();
    let of = |reference: &str| begun.iter().filter(|line| line["reference"] == reference).collect::<Vec<_>>();
    assert_eq!((of("build: npm").len(), of("npm:@acme/hello").len()), (1, 2), "{begun:#?}");
    let [one, two] = of("npm:@acme/hello")[..] else { unreachable!("there are two") };
    assert_eq!(one["digest"], two["digest"]);
    assert!(one["name"].as_str().unwrap().starts_with("npm:@acme/hello@latest?linux/"), "{one}");
    // Another registry is another package.
    let other = StandIn::new();
    other.publish("@acme/hello", "2.0.0");
    assert_eq!(run(world, &other, &[], &["npm:@acme/hello"]).run().ok().json(), json!(["2.0.0"]));
    assert_eq!(run(world, &registry, &["--offline"], &["npm:@acme/hello"]).run().ok().json(), json!(["1.0.0"]));
    run(world, &registry, &["--offline"], &["npm:@acme/else"])
        .run()
        .expect(120)
        .explains(&["npm:@acme/else", "the network is off"]);
}

/// Twenty first runs at once: one install.
#[test]
fn a1_twenty_first_runs_install_once() {
    if !has_npm() {
        return;
    }
    let world = World::new(User::of_the_tests());
    let registry = StandIn::new();
    registry.publish("hello", "1.0.0");
    thread::scope(|scope| {
        let runs: Vec<_> = (0..20).map(|_| scope.spawn(|| run(&world, &registry, &[], &["npm:hello"]).run())).collect();
        for run in runs {
            assert_eq!(run.join().expect("it ran").ok().json(), json!(["1.0.0"]));
        }
    });
    assert_eq!(registry.count("1.0.0.tgz"), 1);
    let builds =
        world.audit().iter().filter(|line| line["event"] == "begin" && line["reference"] == "build: npm").count();
    assert_eq!(builds, 1);
}

/// What has no exact version is looked at again when it is old enough: the start that finds it so does not wait.
#[test]
fn a2_a_newer_version_is_found_in_the_background() {
    if !has_npm() {
        return;
    }
    let world = World::new(User::of_the_tests());
    let registry = StandIn::new();
    registry.publish("hello", "1.0.0");
    let version = |ended: Ended| ended.ok().json()[0].as_str().expect("it says its version").to_owned();
    assert_eq!(version(run(&world, &registry, &[], &["npm:hello"]).run()), "1.0.0");
    assert_eq!(version(run(&world, &registry, &[], &["npm:hello@1.0.0"]).run()), "1.0.0");
    registry.publish("hello", "1.1.0");
    assert_eq!(version(run(&world, &registry, &[], &["npm:hello"]).run()), "1.0.0", "it is not old");
    grow_old(&world);
    let old = run(&world, &registry, &[], &["npm:hello"]).run();
    assert!(old.stderr().contains("looked at again for the next start"), "{}", old.stderr());
    assert_eq!(version(old), "1.0.0");
    let newer = || version(run(&world, &registry, &["--offline"], &["npm:hello"]).run()) == "1.1.0";
    assert!(within(PATIENCE, || newer().then_some(())).is_some(), "it is found for the next start");
    // An exact one is looked at no more.
    let asked = registry.calls().len();
    assert_eq!(version(run(&world, &registry, &[], &["npm:hello@1.0.0"]).run()), "1.0.0");
    assert_eq!(registry.calls().len(), asked);
    // By flag it is waited for.
    registry.publish("hello", "1.2.0");
    assert_eq!(version(run(&world, &registry, &["--refresh"], &["npm:hello"]).run()), "1.2.0");
    registry.go_down();
    let down = run(&world, &registry, &["--refresh"], &["npm:hello"]).run();
    down.says(&["comes from the store and may be old"]);
    assert_eq!(version(down), "1.2.0");
    let told = run(&world, &registry, &[], &["npm:hello"]).run();
    assert_eq!(version(told), "1.2.0");
    grow_old(&world);
    let told = run(&world, &registry, &[], &["npm:hello"]).run();
    told.says(&["could not be looked at again the last time"]);
    assert_eq!(version(told), "1.2.0");
}

/// Makes what the store says of names two days older.
fn grow_old(world: &World) {
    for entry in fs::read_dir(world.store().join("refs")).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let mut known: Value = serde_json::from_slice(&fs::read(&path).expect("it can be read")).expect("it is JSON");
        let when = known["resolvedAt"].as_u64().expect("it is a time");
        known["resolvedAt"] = json!(when - 2 * 24 * 3600);
        fs::write(&path, known.to_string()).expect("it can be written");
    }
}

/// A directory is made when it is first run and when its files change.
fn a_directory_is_made_again_when_it_changes(world: &World) {
    crate::build::source(world);
    let run = |word: &str| world.smcp(["run", "./source", "args", word]).in_directory(world.path("")).run();
    let first = run("a").ok();
    assert_eq!(first.json(), json!(["a"]));
    let listing = world.store_listing();
    assert_eq!(run("b").ok().json(), json!(["b"]));
    assert_eq!(world.store_listing(), listing, "nothing was made");
    world.file("source/more", "x");
    assert_eq!(run("c").ok().json(), json!(["c"]));
    assert_ne!(world.store_listing(), listing, "it was made anew");
    let offline = |word: &str| world.smcp(["run", "--offline", &world.text("source"), "args", word]).run();
    assert_eq!(offline("d").ok().json(), json!(["d"]));
    world.file("source/more", "yy");
    offline("e").expect(120).explains(&["has changed since it was made"]);
}
