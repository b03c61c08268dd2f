//! The existing hub's API, spoken by a stand-in: its packages run as any other, and what its Go client got wrong is refused
//! here.

use std::io::Write;
use std::sync::{Arc, Mutex};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::command::Ended;
use crate::fake::{Call, Ending, Fake, Reply};
use crate::image::sha256;
use crate::probe;
use crate::world::{World, as_each_user};

as_each_user! {
    a_bundle_runs_in_both_dialects,
    a_native_binary_keeps_its_mode_and_the_environment_stays_outside,
    limits_are_what_they_say,
    pinned_by_either_digest,
    what_does_not_fit_together_is_refused,
    a_digest_that_is_a_path_is_refused,
    a_bundle_that_reaches_outside_is_refused,
    a6_a_bundle_goes_on_where_it_broke_off,
    a_revoked_version_never_runs,
    requests_for_everything_are_refused,
    a_login_by_password_or_token,
    a_package_is_published,
}

/// A hub with one package, `acme/tool`.
#[derive(Clone)]
pub struct Package {
    version: String,
    status: String,
    manifest: Value,
    bundle: Vec<u8>,
    /// Changes the answer to `resolve`.
    lie: Arc<dyn Fn(&mut Value) + Send + Sync>,
}

/// Bytes, or what a request asks for of them.
fn from_byte(bytes: &[u8], call: &Call) -> Reply {
    let from =
        call.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    match from {
        Some(from) => Reply::new(206, &bytes[from..])
            .header("content-range", format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())),
        None => Reply::new(200, bytes),
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", sha256(bytes))
}

/// A source tree below one directory, as the hub has it: the probe at `bin/probe`.
fn bundle(path: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |path: &str, mode, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        // Written as it is: the crate would refuse some paths.
        let name = &mut header.as_old_mut().name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        tar.append(&header, bytes).unwrap();
    };
    add(path, 0o755, &std::fs::read(probe::path()).unwrap());
    add("tool-0a1b2c3/README.md", 0o644, b"a tool");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar.into_inner().unwrap()).unwrap();
    gzip.finish().unwrap()
}

impl Package {
    /// A good one.
    pub fn new() -> Self {
        let manifest = json!({
            "schema_version": "1.0",
            "package": {"id": "acme/tool", "version": "commit-0a1b2c3-20250101", "description": "a tool", "git_sha": "0a1b2c3"},
            "runtime": {"type": "binary", "version": "1"},
            "entrypoint": {"command": ["./bin/probe"], "args": [], "env": {"LOG": "info"}, "workdir": "bin"},
            "permissions": {"network": {"outbound": ["api.acme.example:443", "b.acme.example"], "inbound": ["*:80"]},
                "filesystem": {"read": ["/data"], "write": ["/data/out", "./cache"], "execute": []}, "env_vars": ["API_KEY"]},
            "resources": {"memory_mb": 300, "cpu_millicores": 500, "timeout_seconds": 300},
            "certification": {"level": 3, "score": 99},
        });
        let bundle = bundle("tool-0a1b2c3/bin/probe");
        Self {
            version: "commit-0a1b2c3-20250101".into(),
            status: "published".into(),
            manifest,
            bundle,
            lie: Arc::new(|_| ()),
        }
    }

    /// The client's dialect.
    fn of_the_client() -> Self {
        let package = Self::new();
        let manifest = json!({
            "schema_version": 1,
            "package": {"id": "acme/tool", "version": package.version, "git_sha": "0a1b2c3"},
            "bundle": {"digest": digest(&package.bundle), "size_bytes": package.bundle.len()},
            "transport": {"type": "stdio", "port": 0},
            "entrypoints": [
                {"os": "windows", "arch": "amd64", "command": "tool.exe", "args": []},
                {"os": "linux", "arch": "amd64", "command": "bin/probe", "args": []},
                {"os": "linux", "arch": "arm64", "command": "bin/probe", "args": []},
            ],
            "permissions_requested": {"network": ["api.acme.example:443"], "environment": ["API_KEY"], "subprocess": false,
                "filesystem": [], "filesystem_read": []},
            "limits_recommended": {"max_cpu": 500, "max_memory": "300MB", "max_pids": 64, "max_fds": 512, "timeout": "5m"},
        });
        Self { manifest, ..package }
    }

    /// Changes its manifest.
    pub fn change(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.manifest);
        self
    }

    /// What the hub calls it.
    pub fn is(self, status: &str) -> Self {
        Self { status: status.into(), ..self }
    }

    /// Changes the answer to `resolve`.
    pub fn lies(self, lie: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self { lie: Arc::new(lie), ..self }
    }

    fn manifest_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.manifest).unwrap()
    }

    fn answer(&self, call: &Call) -> Reply {
        let (manifest, bundle) = (digest(&self.manifest_bytes()), digest(&self.bundle));
        let path = call.path.split('?').next().unwrap();
        if path == "/v1/org/acme/mcps/tool/resolve" {
            let mut answer = json!({
                "package": "acme/tool", "ref": call.parameter("ref"), "origin": "verified",
                "resolved": {"version": self.version, "git_sha": "0a1b2c3", "status": self.status, "certification_level": 2,
                    "manifest": {"digest": manifest, "url": "https://192.0.2.1/manifest"},
                    "bundle": {"digest": bundle, "url": "http://192.0.2.1/bundle", "size_bytes": self.bundle.len()},
                    "evidence": []},
            });
            (self.lie)(&mut answer);
            return Reply::new(200, answer.to_string()).header("content-type", "application/json");
        }
        match path.strip_prefix("/v1/org/acme/artifacts/") {
            Some(rest) if rest == format!("{manifest}/manifest") => Reply::new(200, self.manifest_bytes()),
            Some(rest) if rest == format!("{bundle}/bundle") => from_byte(&self.bundle, call),
            _ => not_found(),
        }
    }

    /// A hub that has it.
    pub fn serve(self) -> Fake {
        Fake::serve(move |call| self.answer(call))
    }
}

/// A hub whose one package has this level and score.
pub fn scored(level: u64, score: Option<u64>) -> Fake {
    let package = Package::new().change(|manifest| manifest["certification"] = json!({"score": score}));
    package.lies(move |answer| answer["resolved"]["certification_level"] = json!(level)).serve()
}

fn not_found() -> Reply {
    Reply::new(404, r#"{"error":{"code":"not_found","message":"nothing here","details":{}}}"#)
}

fn run(world: &World, hub: &Fake, reference: &str, verb: &[&str]) -> Ended {
    world.smcp(["run", reference]).args(verb).env("MCP_REGISTRY_URL", format!("http://{}", hub.host)).run()
}

fn a_bundle_runs_in_both_dialects(world: &World) {
    for package in [Package::new(), Package::of_the_client()] {
        let world = World::new(world.user());
        let hub = package.serve();
        for reference in ["acme/tool", "acme/tool@commit-0a1b2c3-20250101", "acme/tool@0a1b2c3"] {
            run(&world, &hub, reference, &["exit", "4"]).expect(4);
        }
        // Warm: nobody is asked. Asked again, the same digests bring nothing anew.
        let (calls, bundles) = (hub.calls().len(), hub.count("GET", "/bundle"));
        run(&world, &hub, "acme/tool", &["exit", "4"]).expect(4);
        assert_eq!((hub.calls().len(), bundles), (calls, 3));
        let url = format!("http://{}", hub.host);
        world.smcp(["run", "--refresh", "acme/tool", "exit", "4"]).env("MCP_REGISTRY_URL", &url).run().expect(4);
        assert_eq!(hub.count("GET", "/bundle"), 3);
        world.smcp(["run", "--offline", "acme/tool", "exit", "4"]).env("MCP_REGISTRY_URL", url).run().expect(4);
    }
}

/// The Go client gave every file the mode 0600, so that no binary ran, and passed the whole environment where a manifest was
/// silent.
fn a_native_binary_keeps_its_mode_and_the_environment_stays_outside(world: &World) {
    let hub = Package::new().change(|m| m["permissions"] = json!({})).serve();
    let url = format!("http://{}", hub.host);
    let run = world.smcp(["run", "acme/tool", "env"]).env("MCP_REGISTRY_URL", url).env("API_KEY", "sentinel");
    let inside = run.run().ok().json();
    assert_eq!(inside["LOG"], "info", "{inside}");
    assert!(inside.get("API_KEY").is_none() && inside.get("MCP_REGISTRY_URL").is_none(), "{inside}");
}

/// `512MB` was 512 bytes there, and every session ended after five minutes.
fn limits_are_what_they_say(world: &World) {
    // The client's dialect has no score, which passes no least one.
    for (package, level, score) in [(Package::new(), 2, json!(99)), (Package::of_the_client(), 0, json!(null))] {
        let hub = package.serve();
        let url = format!("http://{}", hub.host);
        let world = World::new(world.user());
        let plan =
            world.smcp(["run", "--dry-run", "--json", "acme/tool"]).env("MCP_REGISTRY_URL", &url).run().ok().json();
        let limits = &plan["plan"]["limits"];
        assert_eq!(limits["memory"], 300 << 20, "{limits}");
        assert_eq!(limits["timeoutSeconds"], 24 * 3600, "{limits}");
        let info = world.smcp(["info", "--json", "acme/tool"]).env("MCP_REGISTRY_URL", url).run().ok().json();
        assert_eq!((&info["level"], &info["score"]), (&json!(level), &score), "{info}");
    }
}

fn pinned_by_either_digest(world: &World) {
    let package = Package::new();
    let digests = [digest(&package.manifest_bytes()), digest(&package.bundle)];
    let hub = package.serve();
    for digest in &digests {
        let reference = format!("acme/tool@{digest}");
        run(world, &hub, &reference, &["exit", "4"]).expect(4);
        let calls = hub.calls().len();
        run(world, &hub, &reference, &["exit", "4"]).expect(4);
        assert_eq!(hub.calls().len(), calls, "a digest needs no asking twice");
    }
    let other = format!("acme/tool@sha256:{}", "0".repeat(64));
    run(world, &hub, &other, &["exit", "4"]).expect(122).explains(&["asked for sha256:000"]);
}

/// Request, answer, manifest and bundle were not compared with one another.
fn what_does_not_fit_together_is_refused(world: &World) {
    let with = |lie: fn(&mut Value)| Package::new().lies(lie);
    let changed = |key: &str, value: Value| Package::new().change(|m| m["package"][key] = value);
    let table = [
        (with(|a| a["package"] = json!("acme/other")), "answers for"),
        (with(|a| a["resolved"]["version"] = json!("2.0.0")), "asked for"),
        (with(|a| a["resolved"]["bundle"]["size_bytes"] = json!(10)), "longer than"),
        (with(|a| a["resolved"]["bundle"]["size_bytes"] = json!(200_000_000)), "at most"),
        (with(|a| drop(a["resolved"]["bundle"].as_object_mut().unwrap().remove("size_bytes"))), "how large"),
        (with(|a| a["resolved"]["manifest"] = json!(7)), "invalid type"),
        (changed("id", json!("acme/other")), "package.id"),
        (changed("version", json!("2.0.0")), "package.version"),
        (changed("git_sha", json!("fffffff")), "commit"),
        (Package::of_the_client().change(|m| m["bundle"]["digest"] = json!(digest(b"other"))), "another bundle"),
        (Package::of_the_client().change(|m| m["bundle"]["size_bytes"] = json!(7)), "7 bytes"),
        (Package::of_the_client().change(|m| m["transport"]["type"] = json!("http")), "stdio alone"),
        (Package::of_the_client().change(|m| m["entrypoints"] = json!([])), "no entry point"),
        (Package::new().change(|m| m["entrypoint"]["command"] = json!(["npx", "tool"])), "npx of the user's machine"),
        (Package::new().change(|m| m["entrypoint"]["command"] = json!(["../../bin/sh"])), "no path in its bundle"),
    ];
    for (package, says) in table {
        let world = World::new(world.user());
        let hub = package.serve();
        let ended = run(&world, &hub, "acme/tool@commit-0a1b2c3-20250101", &["exit", "4"]).expect(122);
        ended.explains(&[says]);
        assert_eq!(world.smcp(["cache", "ls"]).run().ok().text(), "");
    }
    // What arrives is not what its digest says.
    for part in ["/manifest", "/bundle"] {
        let package = Package::new();
        let hub = Fake::serve(move |call| {
            let mut reply = package.answer(call);
            if call.path.ends_with(part) {
                *reply.body.last_mut().unwrap() ^= 1;
            }
            reply
        });
        run(&World::new(world.user()), &hub, "acme/tool", &["exit", "4"]).expect(122).explains(&["other bytes"]);
    }
}

/// Digests were used as paths: a hub could remove any file.
fn a_digest_that_is_a_path_is_refused(world: &World) {
    let victim = world.file("project/precious", "x");
    for (key, lie) in [
        (
            "manifest",
            (|a| a["resolved"]["manifest"]["digest"] = json!("sha256:../../../../project/precious")) as fn(&mut Value),
        ),
        ("bundle", |a| a["resolved"]["bundle"]["digest"] = json!("../../project/precious")),
        ("bundle", |a| a["resolved"]["bundle"]["digest"] = json!(format!("sha256:{}", "A".repeat(64)))),
    ] {
        let hub = Package::new().lies(lie).serve();
        let ended = run(world, &hub, "acme/tool", &["exit", "4"]).expect(122);
        ended.explains(&["not a digest"]);
        ended.check(victim.exists() && hub.count("GET", "/artifacts/") == 0, key);
    }
}

/// By a range where the hub knows ranges, else from the beginning; and one that sends another range is not believed.
fn a6_a_bundle_goes_on_where_it_broke_off(world: &World) {
    for (ranges, code) in [("known", 0), ("unknown", 0), ("wrong", 120)] {
        let package = Package::new();
        let length = package.bundle.len();
        let broken = std::sync::atomic::AtomicBool::new(false);
        let hub = Fake::serve(move |call| {
            let reply = package.answer(call);
            match (call.path.ends_with("/bundle"), call.header("range")) {
                (true, None) if !broken.swap(true, std::sync::atomic::Ordering::SeqCst) => {
                    reply.ending(Ending::CutAfter(length / 2))
                }
                (true, Some(_)) if ranges == "unknown" => Reply::new(200, &*package.bundle),
                (true, Some(_)) if ranges == "wrong" => {
                    reply.header("content-range", format!("bytes 1-{0}/{0}", length - 1))
                }
                _ => reply,
            }
        });
        world.smcp(["cache", "rm", "--all"]).run().ok();
        let ended = run(world, &hub, "acme/tool", &["exit", "0"]);
        ended.check(ended.code() == code, &format!("ranges are {ranges}: exit {code} was expected"));
        let asked: Vec<_> = hub.calls().iter().filter_map(|call| call.header("range").map(str::to_owned)).collect();
        assert_eq!(asked, [format!("bytes={}-", length / 2)], "ranges are {ranges}");
    }
}

fn a_bundle_that_reaches_outside_is_refused(world: &World) {
    for path in ["../../outside", "tool-0a1b2c3/../../outside"] {
        let hub = Package { bundle: bundle(path), ..Package::new() }.serve();
        run(world, &hub, "acme/tool", &["exit", "4"]).expect(122).explains(&["outside"]);
    }
    // A program that is not there is told before anything runs.
    let hub = Package { bundle: bundle("tool-0a1b2c3/elsewhere"), ..Package::new() }.serve();
    run(world, &hub, "acme/tool", &["exit", "4"]).expect(127);
}

/// Revoked versions ran there. Here they do not, and not either where they ran before.
fn a_revoked_version_never_runs(world: &World) {
    for status in ["revoked", "quarantined", "draft", "ingested", "scanned", "whatever"] {
        let hub = Package { status: status.into(), ..Package::new() }.serve();
        run(world, &hub, "acme/tool", &["exit", "4"]).expect(121).explains(&[status]);
    }
    let hub = Package { status: "deprecated".into(), ..Package::new() }.serve();
    run(world, &hub, "acme/tool", &["exit", "4"]).expect(4).says(&["deprecated"]);

    let package = Arc::new(Mutex::new(Package::new()));
    let now = package.clone();
    let hub = Fake::serve(move |call| now.lock().unwrap().answer(call));
    let url = format!("http://{}", hub.host);
    run(world, &hub, "acme/tool", &["exit", "4"]).expect(4);
    package.lock().unwrap().status = "revoked".into();
    let refresh = world.smcp(["run", "--refresh", "acme/tool", "exit", "4"]).env("MCP_REGISTRY_URL", &url);
    refresh.run().expect(121).explains(&["revoked"]);
    world.smcp(["run", "--offline", "acme/tool", "exit", "4"]).env("MCP_REGISTRY_URL", &url).run().expect(120);
    run(world, &hub, "acme/tool", &["exit", "4"]).expect(121);
}

fn requests_for_everything_are_refused(world: &World) {
    let changes: [fn(&mut Value); 5] = [
        |m| m["permissions"]["network"]["outbound"] = json!(["*"]),
        |m| m["permissions"]["filesystem"]["read"] = json!(["/"]),
        |m| m["permissions"]["filesystem"]["write"] = json!(["*"]),
        |m| m["permissions"]["filesystem"]["execute"] = json!(["*"]),
        |m| m["permissions"]["env_vars"] = json!(["*"]),
    ];
    for change in changes {
        let hub = Package::new().change(change).serve();
        run(world, &hub, "acme/tool", &["exit", "4"]).expect(122).explains(&["asks for everything"]);
    }
}

fn a_login_by_password_or_token(world: &World) {
    let package = Package::new();
    let hub = Fake::serve(move |call| {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        match (call.path.as_str(), call.header("authorization")) {
            ("/v1/auth/login", _) if body == json!({"username": "u", "password": "p"}) => {
                Reply::new(200, r#"{"access_token":"jwt","token_type":"Bearer","expires_in":3600}"#)
            }
            (path, _) if path.starts_with("/v2/") => not_found(),
            ("/v1/catalog", Some("Bearer jwt" | "Token id:secret")) => Reply::new(200, "{}"),
            (_, Some("Bearer jwt" | "Token id:secret")) => package.answer(call),
            _ => Reply::new(401, r#"{"error":{"code":"unauthorized","message":"who are you"}}"#),
        }
    });
    let login = |arguments: &[&str], input: &str| world.smcp(["login", &hub.host]).args(arguments).stdin(input).run();
    let pull = || world.smcp(["pull", &format!("{}/acme/tool", hub.host)]).run();
    pull().expect(120).explains(&["smcp login"]);
    login(&["--username", "u", "--password-stdin"], "wrong").expect(120);
    login(&["--token", "nonsense"], "").expect(120);
    for (arguments, input) in [(&["--username", "u", "--password-stdin"][..], "p"), (&["--token", "id:secret"], "")] {
        login(arguments, input).ok();
        world.smcp(["cache", "rm", "--all"]).run().ok();
        pull().ok();
        world.smcp(["logout", &hub.host]).run().ok();
    }
}

/// Announced, sent, finished; and what was sent can be fetched and run.
fn a_package_is_published(world: &World) {
    let sent: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let (taken, announced) = (sent.clone(), Arc::new(Mutex::new(Value::Null)));
    let told = announced.clone();
    let hub = Fake::serve(move |call| match (call.method.as_str(), call.path.as_str()) {
        ("POST", "/api/v1/uploads/init") => {
            *told.lock().unwrap() = serde_json::from_slice(&call.body).unwrap();
            Reply::new(
                201,
                r#"{"upload_id":"u-1","bundle_upload_url":"/storage/u-1?signature=s","url_expires_at":"later"}"#,
            )
        }
        ("PUT", "/storage/u-1?signature=s") => {
            *taken.lock().unwrap() = Some(call.body.clone());
            Reply::new(200, "")
        }
        ("POST", "/api/v1/uploads/u-1/finalize") => {
            Reply::new(202, r#"{"version_id":"v-1","status":"ingested","message":""}"#)
        }
        _ => not_found(),
    });
    let source = Package::new().serve();
    let reference = format!("{}/acme/tool@commit-0a1b2c3-20250101", source.host);
    world.smcp(["pull", &reference]).run().ok();
    world.smcp(["push", &reference, &format!("{}/acme/tool@2.0.0", hub.host)]).run().expect(122).explains(&["2.0.0"]);
    world.smcp(["push", &reference, &format!("{}/acme/tool", hub.host)]).run().ok();
    let bundle = sent.lock().unwrap().clone().expect("it was sent");
    let said = announced.lock().unwrap().clone();
    let want =
        json!({"mcp_name": "acme/tool", "mcp_version": "commit-0a1b2c3-20250101", "bundle_digest": digest(&bundle)});
    assert_eq!(said, want);
    let again = Package { bundle, ..Package::new() }.serve();
    run(&World::new(world.user()), &again, "acme/tool", &["exit", "4"]).expect(4);
}
