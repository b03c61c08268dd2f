//! From a source to a package in a registry and back.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::json;

use crate::command::Ended;
use crate::image::sha256;
use crate::needs;
use crate::probe;
use crate::registry;
use crate::world::{User, World, as_each_user};

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
    npm_reaches_its_registry_alone,
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

/// An npm that tries to: what it reaches, reads and has in its environment, as the last line of its error.
const CURIOUS_NPM: &str = r#"#!/usr/bin/env node
{
    const fs = require("fs");
    const [registry, other, secret] = fs.readFileSync(__dirname + "/../places", "utf8").split("\n");
    const settings = process.argv.map((word) => word.split("--userconfig=")[1]).find((path) => path);
    const gate = settings && fs.readFileSync(settings, "utf8").match(/registry=(.*)/)[1];
    const ask = async (url) => url ? (await fetch(url)).status : "none";
    const reach = (port) => new Promise((done) => {
        const socket = require("net").connect(port, "127.0.0.1");
        socket.on("connect", () => { socket.destroy(); done("reached"); });
        socket.on("error", (error) => done(error.code));
    });
    const read = () => { try { return fs.readFileSync(secret).length > 0 ? "read" : ""; } catch (error) { return error.code; } };
    (async () => {
        const found = [await reach(registry), await reach(other), read(), process.env.NPM_TOKEN || "none"];
        found.push(await ask(gate && gate + "hello"), await ask(gate && gate.replace(/[0-9a-f]{32}/, "other") + "hello"));
        fs.writeFileSync("written", "");
        console.error(found.join(" "));
        process.exit(1);
    })();
}
"#;

/// npm reaches smcp, which asks its registry, and nothing else of the machine; with `--uncaged` it is the user.
fn npm_reaches_its_registry_alone(world: &World) {
    if needs::program("node", "nodejs").is_none() {
        return;
    }
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback has a free port"));
    let [registry, other] = &ports;
    let build = |flags: &[&str]| curious_build(world, &ports, flags);
    // A registry that has nothing: it tells what it was asked.
    let door = registry.try_clone().expect("it is a socket");
    let asked = thread::spawn(move || {
        let (mut stream, _) = door.accept().expect("it is asked");
        let mut request = vec![0; 4096];
        let count = stream.read(&mut request).expect("a request comes");
        stream.write_all(b"HTTP/1.1 404 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").expect("it waits");
        String::from_utf8_lossy(&request[..count]).into_owned()
    });
    let ended = build(&[]);
    ended.check(ended.code() != 0, "it fails at last");
    ended.explains(&["npm failed", "ECONNREFUSED ECONNREFUSED ENOENT none 404 404"]);
    let asked = asked.join().expect("it was asked");
    assert_eq!(asked.lines().next(), Some("GET /hello HTTP/1.1"));
    assert!(asked.to_lowercase().contains("authorization: bearer hunter2"), "{asked}");
    other.set_nonblocking(true).expect("it is a socket");
    assert!(other.accept().is_err(), "it was reached");
    let log = world.audit_text();
    assert!(log.contains("build: npm") && !log.contains("hunter2"), "{log}");
    build(&["--uncaged"]).explains(&["reached reached read hunter2 none none"]);
}

/// Where no cage can be had that keeps hosts apart, nothing is downloaded unless the user says so.
#[test]
fn no_cage_no_download() {
    let needed = ["unshare", "setpriv"].iter().all(|name| needs::program(name, "util-linux").is_some());
    if !needed || needs::program("node", "nodejs").is_none() {
        return;
    }
    let world = World::without_namespaces();
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback has a free port"));
    let ended = curious_build(&world, &ports, &[]);
    ended.check(ended.code() != 0, "it is refused");
    ended.explains(&["npm failed", "a cage of tier 2", "--uncaged"]);
    ports[0].set_nonblocking(true).expect("it is a socket");
    assert!(ports[0].accept().is_err(), "it was reached");
    curious_build(&world, &ports, &["--uncaged"]).explains(&["reached reached read hunter2"]);
}

/// A build by the curious npm, of a registry at the first port.
fn curious_build(world: &World, ports: &[TcpListener; 2], flags: &[&str]) -> Ended {
    let [registry, other] = ports.each_ref().map(|at| at.local_addr().expect("it is bound").port());
    let program = world.path("tool/lib/npm/bin/npm-cli.js");
    if !program.exists() {
        for place in ["tool", "tool/bin", "tool/lib", "tool/lib/npm", "tool/lib/npm/bin"] {
            world.directory(place);
        }
        world.file("tool/lib/npm/bin/npm-cli.js", CURIOUS_NPM);
        std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
        world.file("tool/lib/npm/places", format!("{registry}\n{other}\n{}", world.text("home/.ssh/id")));
        std::os::unix::fs::symlink("../lib/npm/bin/npm-cli.js", world.path("tool/bin/npm")).expect("it is ours");
    }
    let target = format!("oci-layout:{}:v1", world.text("out"));
    let build = world.smcp(["build", "npm:hello", "--runtime", "host", "-t", &target]).args(flags);
    world.file("home/.npmrc", format!("//127.0.0.1:{registry}/:_authToken=${{NPM_TOKEN}}\n"));
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", world.text("tool/bin"));
    let build = build.env("PATH", path).env("npm_config_registry", format!("http://127.0.0.1:{registry}/"));
    build.env("NPM_TOKEN", "hunter2").run()
}

/// What is downloaded in a cage is what is downloaded without one.
#[test]
fn a_cage_changes_nothing_of_a_package() {
    let (Some(_), Some(_)) = (needs::program("npm", "npm"), needs::program("python3", "python3")) else { return };
    let world = World::new(User::of_the_tests());
    for source in ["npm:@modelcontextprotocol/server-memory", "pypi:mcp-server-time"] {
        let layers = [&["--uncaged"][..], &[]].map(|flags| {
            let name = format!("{}{}", &source[..3], flags.len());
            let target = format!("oci-layout:{}:v1", world.text(&name));
            let build = world.smcp(["build", source, "--runtime", "host", "-t", &target]).args(flags);
            build.with_registries().within(std::time::Duration::from_secs(600)).run().ok();
            let index = std::fs::read(world.path(&name).join("index.json")).expect("it was made");
            let digest = digest(&index).replace(':', "/");
            let manifest = std::fs::read(world.path(&name).join("blobs").join(digest)).expect("it was made");
            let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("it is JSON");
            let place = manifest["annotations"]
                .as_object()
                .expect("it has some")
                .values()
                .find_map(|value| value.as_str().filter(|text| ["cage", "host"].contains(text)).map(str::to_owned));
            assert_eq!(place.as_deref(), Some(if flags.is_empty() { "cage" } else { "host" }));
            manifest["layers"].clone()
        });
        assert_eq!(layers[0], layers[1], "{source}");
    }
}

/// A directory with the probe and its `smcp.toml`.
pub fn source(world: &World) -> String {
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
