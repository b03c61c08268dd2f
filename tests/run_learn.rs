//! `smcp learn`: a run, and the permissions that it would take.

use std::fs;

use serde_json::{Value, json};

use crate::image::{Image, probe_reference};
use crate::run_network::echo;
use crate::world::{World, as_each_user};

as_each_user! {
    what_a_run_tried_is_what_it_would_ask_for,
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
