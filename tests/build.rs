//! From a source to a package in a registry and back.

use serde_json::json;

use crate::image::sha256;
use crate::probe;
use crate::registry;
use crate::world::{World, as_each_user};

/// `smcp.toml` of a directory that holds the probe.
const TOML: &str = r#"
name = "test/directory"
version = "3.2.1"

[entrypoint]
args = ["/app/probe"]

[build]
base = "none"
"#;

as_each_user! {
    a_directory_becomes_a_package,
    a_package_goes_through_a_registry,
    pushing_what_is_not_there,
    a_wrong_directory_is_explained,
}

/// A directory becomes a package, twice the same, that runs from a layout without any registry.
fn a_directory_becomes_a_package(world: &World) {
    let source = source(world);
    let references = ["one", "two"].map(|name| format!("oci-layout:{}:v1", world.text(name)));
    for reference in &references {
        world.smcp(["build", &source, "-t", reference]).run().ok();
    }
    let indexes = ["one", "two"].map(|name| std::fs::read(world.path(name).join("index.json")).unwrap());
    assert_eq!(digest(&indexes[0]), digest(&indexes[1]), "two builds agree");
    let ended = world.smcp(["run", &references[0], "args", "x"]).run().ok();
    assert_eq!(ended.json(), json!(["x"]));
}

/// Build, push, and pull by tag and by digest on another machine.
fn a_package_goes_through_a_registry(world: &World) {
    let Some(registry) = registry::address() else { return };
    let reference = format!("{registry}/test/{}:v1", world.mark().trim_end_matches('-'));
    world.smcp(["build", &source(world), "-t", &reference]).run().ok();
    world.smcp(["push", &reference]).run().ok();
    // A second push of the same sends nothing and succeeds.
    world.smcp(["push", &reference]).run().ok();
    let other = World::new(world.user());
    other.smcp(["pull", &reference]).run().ok();
    assert_eq!(other.smcp(["run", "--offline", &reference, "args", "y"]).run().ok().json(), json!(["y"]));
    let manifest = std::fs::read(other.store().join("index.json")).unwrap();
    let pinned = format!("{}@{}", reference.rsplit_once(':').unwrap().0, digest(&manifest));
    let third = World::new(world.user());
    assert_eq!(third.smcp(["run", &pinned, "args", "z"]).run().ok().json(), json!(["z"]));
}

/// What cannot be pushed says so.
fn pushing_what_is_not_there(world: &World) {
    let Some(registry) = registry::address() else { return };
    let reference = format!("{registry}/test/absent:v1");
    let ended = world.smcp(["push", &reference]).run().expect(120);
    ended.explains(&["test/absent"]);
}

/// A directory without a manifest, and one whose manifest is wrong, name the file and the key.
fn a_wrong_directory_is_explained(world: &World) {
    let target = format!("oci-layout:{}:v1", world.text("out"));
    world.directory("empty");
    let ended = world.smcp(["build", &world.text("empty"), "-t", &target]).run();
    ended.check(ended.code() != 0, "an error was expected");
    ended.explains(&["smcp.toml"]);
    world.directory("wrong");
    world.file("wrong/smcp.toml", format!("{TOML}\n[permissions]\ngpu = true\n"));
    let ended = world.smcp(["build", &world.text("wrong"), "-t", &target]).run();
    ended.check(ended.code() != 0, "an error was expected");
    ended.explains(&["permissions.gpu"]);
    assert!(
        !world.path("out").exists() || std::fs::read_dir(world.path("out")).unwrap().count() == 0,
        "nothing was made"
    );
}

/// A directory with the probe and its `smcp.toml`.
fn source(world: &World) -> String {
    world.directory("source");
    world.file("source/smcp.toml", TOML);
    let program = world.file("source/probe", std::fs::read(probe::path()).expect("the probe was compiled"));
    std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
    world.text("source")
}

/// Digest of the first manifest of an index.
fn digest(index: &[u8]) -> String {
    let index: serde_json::Value = serde_json::from_slice(index).unwrap_or_else(|e| panic!("{e} in {}", sha256(index)));
    index["manifests"][0]["digest"].as_str().expect("a manifest has a digest").to_owned()
}
