//! `smcp learn`: a run, and the permissions that it would take.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::image::{Image, probe_reference};
use crate::probe;
use crate::run_network::echo;
use crate::world::{SECRET, World, as_each_user};

as_each_user! {
    what_a_run_tried_is_what_it_would_ask_for,
    files_and_programs_that_it_named_are_what_it_would_ask_for,
    what_is_granted_and_not_used_is_told,
    what_is_tried_without_a_network_is_told,
    a_question_that_nobody_can_be_asked,
}

/// What it was refused by name and what it was granted stand in the permissions, which a manifest takes as they are.
fn what_a_run_tried_is_what_it_would_ask_for(world: &World) {
    let port = echo().to_string();
    let file = world.path("project/permissions.json");
    let learn = |verb: &[&str]| {
        let flags = ["--output", file.to_str().unwrap(), "--allow-host-port", &port, "--mount"];
        let all = world.smcp(["learn"]).args(flags).args([format!("{}:/work:rw", world.text("project"))]);
        let ended = all.args(["--allow-subprocess=/usr/bin/probe", probe_reference()]).args(verb).run();
        let text = fs::read_to_string(&file).unwrap_or_default();
        (ended, serde_json::from_str::<Value>(&text).unwrap_or_default()["permissions"].clone())
    };
    let (ended, permissions) = learn(&["connect", "api.acme.test:443"]);
    ended.check(ended.code() != 0, "nobody grants that name");
    assert_eq!(permissions["network"]["outbound"], json!([{"host": "api.acme.test", "ports": [443]}]));
    ended.says(&["note: api.acme.test was refused by name"]);
    assert_eq!(permissions["filesystem"], json!([{"id": "work", "access": "rw", "target": "/work", "from": "user"}]));
    let asks = Image::probe().manifest(|m| m["permissions"] = permissions.clone()).build();
    let shown = world.smcp(["run", "--dry-run", &asks.write(&world.directory("asks"))]).run().ok();
    for line in ["network    api.acme.test:443", "programs   its own and /usr/bin/probe"] {
        shown.check(shown.text().contains(line), line);
    }
    // A port of this machine's is the user's alone to give.
    let (ended, permissions) = learn(&["say", &format!("127.0.0.1:{port}"), "hello"]);
    ended.ok().says(&[&format!("--allow-host-port {port}")]);
    assert_eq!(permissions.get("network"), None);
}

/// What is on the host and not in the cage stands there as it was asked for, and nothing else; each call was answered as
/// in every run.
fn files_and_programs_that_it_named_are_what_it_would_ask_for(world: &World) {
    // In `/tmp` a server has its own.
    let host = TempDir::with_prefix_in("smcp-test-", "/var/tmp").expect("a temporary directory can be made");
    fs::set_permissions(host.path(), Permissions::from_mode(0o755)).unwrap();
    let text = |name: &str| host.path().join(name).to_str().unwrap().to_owned();
    for name in ["data", "out"] {
        fs::create_dir(text(name)).unwrap();
    }
    for name in ["data/a", "data/b", "conf"] {
        fs::write(text(name), SECRET).unwrap();
    }
    world.give(host.path());
    world.give(&host.path().join("out"));
    let image = Image::probe().file("usr/bin/other", 0o755, fs::read(probe::path()).unwrap());
    let image = image.link("bin", "usr/bin").build().write(&world.directory("named"));
    let tries = [
        format!("r:{}", text("data/a")),
        format!("r:{}/../data/./b", text("data")),
        format!("r:{}", text("none")),
        format!("r:{}", text("conf")),
        format!("w:{}", text("out/new")),
        format!("r:{}", world.text("home/.ssh/id")),
        // What it makes in its own home, under the name of something in the caller's.
        format!("w:{}", world.text("home/own")),
        "r:/proc/self/status".into(),
        "r:/etc/passwd".into(),
        "w:/tmp/x".into(),
        "r:/usr/bin/other".into(),
        // By two names, one program.
        "x:/usr/bin/other".into(),
        "x:/bin/other".into(),
        "x:/usr/bin/probe".into(),
        "x:/usr/bin/env".into(),
        "x:/usr/bin/nothing-of-that-name".into(),
    ];
    world.file("home/own", "the caller's");
    let file = world.path("project/permissions.json");
    let learn = world.smcp(["learn", "--output", file.to_str().unwrap(), &image, "try-all"]);
    let ended = learn.args(&tries).run().ok();
    let asked: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let permissions = &asked["permissions"];
    let one =
        |id: &str, access: &str, target: String| json!({"id": id, "access": access, "target": target, "from": "user"});
    let want = [
        one("id", "ro", world.text("home/.ssh/id")),
        one("conf", "ro", text("conf")),
        one("data", "ro", text("data")),
        one("out", "rw", text("out")),
    ];
    ended.check(permissions["filesystem"] == json!(want), &format!("{permissions:#}"));
    assert_eq!(permissions["subprocess"], json!({"allow": ["/usr/bin/other"]}));
    ended.says(&["note: it tried to start /usr/bin/env, which the package does not have"]);
    ended.check(!ended.stderr().contains("nothing-of-that-name"), "what nobody has is no matter");
    assert!(!host.path().join("out/new").exists(), "nothing was granted");
    let begin = world.audit().into_iter().find(|entry| entry["event"] == "begin").unwrap();
    assert_eq!((&begin["recorded"], &begin["layers"]["seccomp"]), (&json!("full"), &json!("full")));
    // A manifest that asks for it can be granted it.
    let asks = Image::probe().manifest(|m| m["permissions"] = permissions.clone()).build();
    let shown = world.smcp(["run", "--dry-run", &asks.write(&world.directory("asks"))]).run().ok();
    shown.check(shown.text().contains("/usr/bin/other"), "the program");
    // Nothing is recorded of another run.
    world.caged(&[], &["read", "/usr/bin/probe"]).run();
    let audit = world.audit();
    let last = audit.iter().rfind(|entry| entry["event"] == "begin").unwrap();
    assert_eq!((last.get("recorded"), world.last_end().get("asked")), (None, None));
}

/// A grant stays in what is proposed; that nothing in it was named is a note.
fn what_is_granted_and_not_used_is_told(world: &World) {
    let (used, unused) = (world.text("project"), world.text("private"));
    let flags = ["learn", "--allow-write", &used, "--allow-read", &unused, probe_reference()];
    let ended = world.smcp(flags).args(["write", &format!("{used}/new"), "x"]).run().ok();
    ended.says(&[&format!("note: {unused} was granted, and no call named anything in it")]);
    ended.check(!ended.stderr().contains(&format!("{used} was granted")), "it was used");
}

/// Whoever is granted no host tells which it would ask for; a run that does not learn has nobody who looks, and says so.
fn what_is_tried_without_a_network_is_told(world: &World) {
    let file = world.path("project/permissions.json");
    let verb = [probe_reference(), "connect", "api.acme.test:443"];
    let ended = world.smcp(["learn", "--output", file.to_str().unwrap()]).args(verb).run();
    ended.check(ended.code() != 0, "nobody grants that name");
    let asked: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let want = json!([{"host": "api.acme.test", "ports": [443]}]);
    ended.check(asked["permissions"]["network"]["outbound"] == want, &format!("{asked:#}"));
    let end = world.last_end();
    ended.check(end["egress"]["granted"].as_array().is_none_or(Vec::is_empty), &format!("{end:#}"));
    let why = || world.smcp(["why"]).run().ok();
    why().check(why().text().contains("api.acme.test"), "what was denied");
    let ended = world.smcp(["run"]).args(verb).run();
    ended.check(ended.code() != 0, "there is no network");
    why().check(why().text().contains("`smcp learn` does"), "nobody looked");
}

/// Where paths are the host's own none is recorded, and that is told.
#[test]
fn without_namespaces_nothing_is_recorded() {
    let world = World::without_namespaces();
    let ended = world.smcp(["learn", probe_reference(), "exit", "3"]).run().expect(3);
    ended.says(&["note: paths and programs were not recorded: without namespaces", "\"permissions\": {}"]);
}

/// `--permissive` takes an answer; without a terminal it is refused, and that is recorded.
fn a_question_that_nobody_can_be_asked(world: &World) {
    let ended = world.program("/usr/bin/setsid", ["--wait"]).args([crate::place::smcp()]);
    let ended = ended.args(["learn", "--permissive", probe_reference(), "exit", "0"]).run().expect(121);
    ended.explains(&["--permissive", "no terminal", "hint: "]);
    assert_eq!((&world.last_end()["exit"], &world.last_end()["cause"]), (&json!(121), &json!("denied")));
    // Without the flag nothing is asked.
    let ended = world.smcp(["learn", probe_reference(), "exit", "3"]).run().expect(3);
    ended.says(&["\"permissions\": {}"]);
}
