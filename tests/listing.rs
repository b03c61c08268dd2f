//! `smcp run mcp:NAME`: names of a registry of servers, which here is one on loopback that says what a test wants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::command::Smcp;
use crate::fake::{Ending, Fake, Reply};
use crate::image::{Image, sha256};
use crate::needs;
use crate::registry;
use crate::stand_in::{self, StandIn};
use crate::world::{User, World, as_each_user};

as_each_user! {
    a_name_leads_to_a_package,
    what_an_entry_asks_for,
    a_bundle_is_fetched_by_its_hash,
    an_image_of_an_entry,
    one_of_several_packages,
    answers_that_are_refused,
}

/// A registry of servers under way. Its answers by path, without the version of the API.
struct Servers {
    fake: Fake,
    answers: Arc<Mutex<BTreeMap<String, Reply>>>,
}

impl Servers {
    fn new() -> Servers {
        let answers: Arc<Mutex<BTreeMap<String, Reply>>> = Arc::default();
        let served = answers.clone();
        let fake = Fake::serve(move |call| {
            let path = call.path.strip_prefix("/v0.1/servers/").unwrap_or_default();
            served
                .lock()
                .unwrap()
                .get(path)
                .cloned()
                .unwrap_or_else(|| Reply::new(404, "{\"error\":\"Server not found\"}"))
        });
        Servers { fake, answers }
    }

    fn url(&self) -> String {
        format!("http://{}", self.fake.host)
    }

    /// From now on the newest of `io.test/NAME`, and version 1.0.0, is this package.
    fn list(&self, name: &str, package: Value) {
        self.answer(name, Reply::new(200, entry(&format!("io.test/{name}"), package).to_string()));
    }

    fn answer(&self, name: &str, reply: Reply) {
        for version in ["latest", "1.0.0"] {
            self.answers.lock().unwrap().insert(format!("io.test%2F{name}/versions/{version}"), reply.clone());
        }
    }

    /// A command that asks it, and the stand-in for packages.
    fn of<'w>(&self, command: Smcp<'w>, packages: &StandIn) -> Smcp<'w> {
        packages
            .of(command)
            .env("MCP_MCP_REGISTRY_URL", self.url())
            .env("MCP_PULL_PATIENCE", "10m")
            .within(needs::FIRST)
    }

    fn run<'w>(&self, world: &'w World, packages: &StandIn, words: &[&str]) -> Smcp<'w> {
        self.of(world.smcp(["run", "--runtime", "host"]).args(words), packages)
    }
}

fn entry(name: &str, package: Value) -> Value {
    json!({
        "server": {"$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json", "name": name,
            "description": "a test", "version": "1.0.0", "packages": [package]},
        "_meta": {"io.modelcontextprotocol.registry/official": {"status": "active", "isLatest": true}},
    })
}

/// The registry is asked once, the package is the one of npm under its own name, and the next start asks nobody.
fn a_name_leads_to_a_package(world: &World) {
    if !needs::npm() {
        return;
    }
    let (servers, packages) = (Servers::new(), StandIn::new());
    packages.publish("@acme/hello", "1.0.0");
    servers.list(
        "hello",
        json!({"registryType": "npm", "identifier": "@acme/hello", "version": "1.0.0", "transport": {"type": "stdio"}}),
    );
    let run = |words: &[&str]| servers.run(world, &packages, words).run();
    assert_eq!(run(&["mcp:io.test/hello", "x"]).ok().json(), json!(["1.0.0", "x"]));
    let asked = (servers.fake.calls().len(), packages.calls().len());
    assert_eq!(run(&["mcp:io.test/hello"]).ok().json(), json!(["1.0.0"]));
    assert_eq!(run(&["--offline", "mcp:io.test/hello"]).ok().json(), json!(["1.0.0"]));
    assert_eq!((servers.fake.calls().len(), packages.calls().len()), asked, "nobody was asked");
    // Another version of the entry leads to another package; by flag the newest is asked for.
    packages.publish("@acme/hello", "2.0.0");
    servers.list("hello", json!({"registryType": "npm", "identifier": "@acme/hello", "version": "2.0.0"}));
    assert_eq!(run(&["--refresh", "mcp:io.test/hello"]).ok().json(), json!(["2.0.0"]));
    let begun: Vec<Value> = world.audit().into_iter().filter(|line| line["event"] == "begin").collect();
    let own = begun.iter().find(|line| line["reference"] == "mcp:io.test/hello").expect("it was run");
    assert!(own["name"].as_str().unwrap().starts_with("npm:@acme/hello@1.0.0?linux/"), "{own}");
    let about =
        servers.of(world.smcp(["info", "--json", "--runtime", "host", "mcp:io.test/hello"]), &packages).run().ok();
    assert_eq!(about.json()["listed"]["package"], "npm:@acme/hello@2.0.0");
    let locked = servers.of(world.smcp(["accept", "--lock", "--runtime", "host", "mcp:io.test/hello"]), &packages);
    locked.run().ok();
    let lock = std::fs::read_to_string(world.path("home/smcp.lock")).expect("it was written");
    assert!(lock.contains("npm:@acme/hello@2.0.0?linux/") && !lock.contains("mcp:"), "{lock}");
    let pulled = servers.of(world.smcp(["pull", "--runtime", "host", "mcp:io.test/hello@1.0.0"]), &packages).run().ok();
    assert!(pulled.stdout().starts_with(b"npm:@acme/hello@2.0.0?"), "{}", pulled.text());
    let built = format!("oci-layout:{}:v1", world.text("built"));
    let build = world.smcp(["build", "--runtime", "host", "mcp:io.test/hello", "-t", &built]);
    servers.of(build, &packages).run().ok().says(&["io.test/hello is npm:@acme/hello@2.0.0"]);
    run(&["mcp:io.test/none"]).expect(120).explains(&["mcp:io.test/none was not found", &servers.url()]);
}

/// Fixed arguments, defaults, what is missing, variables and secrets, of npm and PyPI.
fn what_an_entry_asks_for(world: &World) {
    if !needs::npm() || needs::program("python3", "python3 and python3-pip").is_none() {
        return;
    }
    let (servers, packages) = (Servers::new(), StandIn::new());
    let says = "#!/usr/bin/env node\nconst e = process.env;\n\
        console.log(JSON.stringify({said: [...process.argv.slice(2), e.MODE, e.URL, e.password ?? 'none', require('fs').readdirSync(process.argv[3]).join()]}));\n\
        console.error('the token is ' + e.TOKEN);\n";
    packages.publish_as("asks", "1.0.0", says, |_, _| {});
    let entry = json!({
        "registryType": "npm", "identifier": "asks", "version": "1.0.0", "registryBaseUrl": "https://registry.npmjs.org",
        "runtimeHint": "npx", "runtimeArguments": [{"type": "named", "name": "-y"}],
        "packageArguments": [
            {"type": "named", "name": "--root", "format": "filepath", "isRequired": true},
            {"type": "named", "name": "--level", "default": "info", "choices": ["info", "debug"]},
            {"type": "positional", "value": "serve"},
        ],
        "environmentVariables": [
            {"name": "TOKEN", "isRequired": true, "isSecret": true},
            {"name": "MODE", "default": "quiet"},
            {"name": "URL", "value": "db://{user}:{password}@host", "variables": {"user": {"default": "root"}, "password": {"isRequired": true, "isSecret": true}}},
        ],
    });
    servers.list("asks", entry);
    world.directory("project");
    world.file("project/a", "");
    let dir = world.text("project");
    let run = |flags: &[&str], words: &[&str]| {
        servers.run(world, &packages, &[flags, &["mcp:io.test/asks"], words].concat()).env("T", "hunter2").run()
    };
    let secrets = ["--secret", "TOKEN=env:T", "--env", "password=p"];
    let ran = run(&secrets, &["--root", &dir]).ok();
    assert_eq!(
        ran.json(),
        json!(["--root", dir, "--level", "info", "serve", "quiet", "db://root:p@host", "none", "a"])
    );
    ran.says(&["the token is <redacted>"]);
    let ran = run(&secrets, &["--level=debug", "more", &format!("--root={dir}")]).ok();
    assert_eq!(ran.json()[3], "debug");
    assert_eq!(ran.json()[5], "more");
    let missing = run(&[], &[]).expect(2);
    missing.explains(&["`--root` is missing", "TOKEN is missing", "password is missing"]);
    run(&secrets, &["--root", &dir, "--level", "loud"])
        .expect(2)
        .explains(&["--level: the value is none of info, debug"]);
    let about = servers
        .of(world.smcp(["info", "--json", "--runtime", "host", "mcp:io.test/asks"]), &packages)
        .run()
        .ok()
        .json();
    let env = about["manifest"]["env"].as_array().unwrap();
    assert!(
        env.iter().any(|spec| spec["name"] == "TOKEN" && spec["secret"] == true && spec["required"] == true),
        "{about}"
    );

    packages.publish_wheel("hello-py", "1.0", |_| {});
    servers.list(
        "py",
        json!({"registryType": "pypi", "identifier": "hello-py", "version": "1.0",
        "packageArguments": [{"type": "positional", "value": "fixed"}]}),
    );
    assert_eq!(servers.run(world, &packages, &["mcp:io.test/py", "x"]).run().ok().json(), json!(["1.0", "fixed", "x"]));
}

/// A bundle by its url: its hash vouches for it, also behind a redirect; other bytes are refused.
fn a_bundle_is_fetched_by_its_hash(world: &World) {
    if needs::program("node", "nodejs").is_none() {
        return;
    }
    let manifest = json!({"manifest_version": "0.3", "name": "b", "version": "1.0.0", "author": {"name": "a"},
        "server": {"type": "node", "entry_point": "i.js", "mcp_config": {"command": "node", "args": ["${__dirname}/i.js"]}}});
    let script = "console.log(JSON.stringify({said: ['bundle', ...process.argv.slice(2)]}));\n";
    let archive = stand_in::zip(&[("manifest.json".into(), manifest.to_string()), ("i.js".into(), script.to_owned())]);
    let (digest, bytes) = (format!("sha256:{}", sha256(&archive)), archive);
    let store = Fake::serve(move |_| Reply::new(200, bytes.clone()));
    let place = format!("http://{}/x.mcpb", store.host);
    let door = Fake::serve(move |_| Reply::new(302, "").header("location", place.clone()));
    let (servers, packages) = (Servers::new(), StandIn::new());
    let url = format!("http://{}/r/x.mcpb", door.host);
    let listed = |hex: &str| json!({"registryType": "mcpb", "identifier": url, "fileSha256": hex});
    servers.list("bundle", listed(digest.trim_start_matches("sha256:")));
    let run = |words: &[&str]| servers.run(world, &packages, words).run();
    assert_eq!(run(&["mcp:io.test/bundle", "x"]).ok().json(), json!(["bundle", "x"]));
    let fetched = store.calls().len();
    assert_eq!(run(&["mcp:io.test/bundle"]).ok().json(), json!(["bundle"]));
    assert_eq!(run(&[&format!("{url}@{digest}"), "y"]).ok().json(), json!(["bundle", "y"]));
    assert_eq!((store.calls().len(), fetched), (1, 1), "fetched once, by whatever name");
    servers.list("other", listed(&"ab".repeat(32)));
    run(&["mcp:io.test/other"]).expect(122).explains(&[&url, &format!("expected sha256:{}", "ab".repeat(32)), &digest]);
    run(&[&url]).expect(2).explains(&["named with its hash"]);
}

/// An image keeps its own name; docker's flags give nothing, and are told of.
fn an_image_of_an_entry(world: &World) {
    let Some(host) = registry::address() else { return };
    let reference = format!("{host}/test/{}:v1", world.mark().trim_end_matches('-'));
    let layout = Image::probe().plain().build().write(&world.directory("layout"));
    world.smcp(["pull", &layout]).run().ok();
    world.smcp(["push", &layout, &reference]).run().ok();
    let (servers, packages) = (Servers::new(), StandIn::new());
    servers.list("image", json!({"registryType": "oci", "identifier": reference, "runtimeHint": "docker",
        "runtimeArguments": [{"type": "named", "name": "-e", "value": "KIND={kind}", "variables": {"kind": {"isRequired": true}}},
            {"type": "named", "name": "--privileged", "format": "boolean", "value": "true"}],
        "packageArguments": [{"type": "positional", "value": "env"}]}));
    let run = |flags: &[&str]| servers.of(world.smcp(["run"]).args(flags).args(["mcp:io.test/image"]), &packages).run();
    let ran = run(&["--env", "kind=sql"]).ok();
    ran.says(&["docker's --privileged is left out"]);
    assert!(ran.text().contains("KIND") && ran.text().contains("sql"), "{}", ran.text());
    run(&[]).expect(2).explains(&["kind is missing"]);
    // A hash of an image is that of its manifest, whatever the tag says.
    let digest = world.smcp(["push", &layout, &reference]).run().ok().text();
    let digest =
        digest.split_once("sha256:").expect("it names a digest").1.split_whitespace().next().unwrap().to_owned();
    let mut hashed = json!({"registryType": "oci", "identifier": reference, "fileSha256": digest});
    servers.list("hashed", hashed.clone());
    let run =
        |name: &str| servers.of(world.smcp(["run", &format!("mcp:io.test/{name}"), "exit", "5"]), &packages).run();
    run("hashed").expect(5);
    hashed["fileSha256"] = json!("ab".repeat(32));
    servers.list("another", hashed);
    run("another").expect(120).says(&[&format!("sha256:{}", "ab".repeat(32))]);
}

/// The first that runs here is taken, and that is said; a flag takes another, which is another name in the store.
fn one_of_several_packages(world: &World) {
    if !needs::npm() || needs::program("python3", "python3 and python3-pip").is_none() {
        return;
    }
    let (servers, packages) = (Servers::new(), StandIn::new());
    packages.publish("hello", "1.0.0");
    packages.publish_wheel("hello-py", "2.0", |_| {});
    let mut both = entry("io.test/both", json!({"registryType": "nuget", "identifier": "Hello", "version": "1"}));
    for (kind, name, version) in [("npm", "hello", "1.0.0"), ("pypi", "hello-py", "2.0")] {
        let package = json!({"registryType": kind, "identifier": name, "version": version});
        both["server"]["packages"].as_array_mut().unwrap().push(package);
    }
    servers.answer("both", Reply::new(200, both.to_string()));
    let run = |flags: &[&str]| servers.run(world, &packages, &[flags, &["mcp:io.test/both"]].concat()).run();
    let first = run(&[]).ok();
    assert_eq!(first.json(), json!(["1.0.0"]));
    first.says(&["npm:hello@1.0.0 is taken, --package-type takes another (pypi hello-py)"]);
    assert_eq!(run(&["--package-type", "pypi"]).ok().json(), json!(["2.0"]));
    assert_eq!(run(&["--package-type", "npm", "--offline"]).expect(120).stdout(), b"");
    assert_eq!(run(&["--offline"]).ok().json(), json!(["1.0.0"]));
    run(&["--package-type", "oci"]).expect(120).says(&["one of pypi, which was not asked for"]);
    let words = ["info", "--json", "--runtime", "host", "--package-type", "pypi", "mcp:io.test/both"];
    let about = servers.of(world.smcp(words), &packages).run().ok().json();
    assert_eq!(
        (&about["listed"]["package"], &about["listed"]["others"]),
        (&json!("pypi:hello-py==2.0"), &json!(["npm hello"]))
    );
}

/// An endless answer, another name, another registry of packages, another host, another file, a package of another server, one that was
/// taken back: each by its code, and nothing is installed.
fn answers_that_are_refused(world: &World) {
    if !needs::npm() {
        return;
    }
    let (servers, packages) = (Servers::new(), StandIn::new());
    packages.publish("hello", "1.0.0");
    packages
        .publish_as("named", "1.0.0", "#!/usr/bin/env node\n", |package, _| package["mcpName"] = json!("io.test/real"));
    let good = json!({"registryType": "npm", "identifier": "hello", "version": "1.0.0"});
    let with = |more: Value| {
        let mut package = good.clone();
        package.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        package
    };
    let elsewhere = Servers::new();
    elsewhere.list("away", good.clone());
    let away = format!("{}/v0.1/servers/io.test%2Faway/versions/latest", elsewhere.url());
    servers.answer("endless", Reply::new(200, vec![b' '; 1 << 16]).ending(Ending::Never));
    servers.answer("lies", Reply::new(200, entry("io.test/hello", good.clone()).to_string()));
    servers.answer("away", Reply::new(302, "").header("location", away));
    servers.answer("odd", Reply::new(200, "<html>"));
    servers.answer("down", Reply::new(403, "{}"));
    servers.list("base", with(json!({"registryBaseUrl": elsewhere.url()})));
    servers.list("file", with(json!({"fileSha256": "ab".repeat(32)})));
    servers.list("named", with(json!({"identifier": "named"})));
    servers.list(
        "injects",
        with(json!({"runtimeArguments": [{"type": "named", "name": "--registry", "value": elsewhere.url()}]})),
    );
    servers.list(
        "steers",
        with(json!({"environmentVariables": [{"name": "NODE_OPTIONS", "value": "--import=data:text/javascript,"}]})),
    );
    let mut gone = entry("io.test/gone", good.clone());
    gone["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = json!("deleted");
    servers.answer("gone", Reply::new(200, gone.to_string()));
    let remote = json!({"server": {"name": "io.test/remote", "version": "1.0.0", "remotes": [{"type": "streamable-http", "url": "https://x.test"}]}});
    servers.answer("remote", Reply::new(200, remote.to_string()));
    for (name, code, why) in [
        ("endless", 122, "longer than the 1048576 bytes"),
        ("lies", 122, "speaks of io.test/hello@1.0.0"),
        ("away", 120, "it leads to another host"),
        ("odd", 120, "what its registry says is not understood"),
        ("down", 120, "status 403"),
        ("base", 121, "which is not where npm packages are from here"),
        ("file", 122, "expected sha256:abab"),
        ("named", 122, "speaks of io.test/real"),
        ("injects", 120, "changes what is run"),
        ("steers", 120, "NODE_OPTIONS decides what code"),
        ("gone", 121, "was deleted from its registry"),
        ("remote", 120, "a server of somebody else's machine"),
    ] {
        let ended = servers.run(world, &packages, &[&format!("mcp:io.test/{name}")]).run().expect(code);
        ended.says(&[why]);
    }
    assert_eq!(elsewhere.fake.calls().len(), 0, "nobody else was asked");
    // A name that leads to another package is not followed, until the user forgets the first.
    servers.list("soon", good);
    assert_eq!(servers.run(world, &packages, &["mcp:io.test/soon"]).run().ok().json(), json!(["1.0.0"]));
    packages.publish("other", "3.0.0");
    servers.list("soon", json!({"registryType": "npm", "identifier": "other", "version": "3.0.0"}));
    let moved = servers.run(world, &packages, &["--refresh", "mcp:io.test/soon"]).run().expect(121);
    moved.explains(&["mcp:io.test/soon was npm:hello@1.0.0, and its registry says now that it is npm:other@3.0.0"]);
    assert_eq!(servers.run(world, &packages, &["mcp:io.test/soon"]).run().ok().json(), json!(["1.0.0"]));
    // Nor where the store has nothing of it any more: what was accepted outlives it.
    servers.of(world.smcp(["cache", "rm", "--all"]), &packages).run().ok();
    let moved = servers.run(world, &packages, &["mcp:io.test/soon"]).run().expect(121);
    moved.explains(&["mcp:io.test/soon was npm:hello@1.0.0", "npm:other@3.0.0"]);
    servers.of(world.smcp(["cache", "rm", "mcp:io.test/soon"]), &packages).run().ok();
    assert_eq!(servers.run(world, &packages, &["mcp:io.test/soon"]).run().ok().json(), json!(["3.0.0"]));
    // A name that is taken back is forgotten, also where one version is asked for.
    gone["server"]["name"] = json!("io.test/soon");
    servers.answer("soon", Reply::new(200, gone.to_string()));
    servers.run(world, &packages, &["--refresh", "mcp:io.test/soon"]).run().expect(121);
    servers.run(world, &packages, &["--offline", "mcp:io.test/soon"]).run().expect(120);
}

/// Twenty first runs at once: one question, one install.
#[test]
fn a1_twenty_first_runs_of_a_listed_server() {
    if !needs::npm() {
        return;
    }
    let world = World::new(User::of_the_tests());
    let (servers, packages) = (Servers::new(), StandIn::new());
    packages.publish("hello", "1.0.0");
    servers.list("hello", json!({"registryType": "npm", "identifier": "hello", "version": "1.0.0"}));
    std::thread::scope(|scope| {
        let start = || servers.run(&world, &packages, &["mcp:io.test/hello"]).run();
        let runs: Vec<_> = (0..20).map(|_| scope.spawn(start)).collect();
        for run in runs {
            assert_eq!(run.join().expect("it ran").ok().json(), json!(["1.0.0"]));
        }
    });
    assert_eq!((servers.fake.calls().len(), packages.count("1.0.0.tgz")), (1, 1));
}
