//! `smcp scan`: what a package offers, and how that differs from what was accepted of it.

use std::fs;

use serde_json::json;

use crate::command::Ended;
use crate::image::{Image, probe_reference, sha256};
use crate::world::{World, as_each_user, at_each_tier};

at_each_tier! {
    both_eras_are_asked_for_all_pages,
}

as_each_user! {
    a_scan_reaches_nothing_and_leaves_nothing,
    t7_a_scan_finds_other_tools_than_were_accepted,
    what_cannot_be_scanned_is_named,
}

fn answer(id: u32, result: &str) -> String {
    format!("!{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

fn unknown(id: u32) -> String {
    format!("!{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32601,\"message\":\"no such method\"}}}}")
}

/// The steps of a server of the newer era that lists these tools, and nothing else.
fn modern(tools: &str) -> Vec<String> {
    let greeting = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"p"}}}"#;
    let steps = [
        "talk".into(),
        "?server/discover".into(),
        answer(1, greeting),
        "?tools/list".into(),
        answer(2, &format!("{{\"tools\":{tools},\"ttlMs\":5}}")),
        "?prompts/list".into(),
        unknown(3),
        "?resources/list".into(),
        unknown(4),
        "?resources/templates/list".into(),
        unknown(5),
        "eof".into(),
    ];
    steps.to_vec()
}

fn scan(world: &World, reference: &str, flags: &[&str], steps: &[String]) -> Ended {
    world.smcp(["scan", reference]).args(flags).args(["--"]).args(steps).run()
}

const READ: &str = r#"{"name":"read","description":"Reads.","inputSchema":{"type":"object"}}"#;
const WRITE: &str = r#"{"name":"write"}"#;

/// The digest of both of them, by the document's rules.
fn of_both() -> String {
    let canonical = r#"[{"description":"Reads.","inputSchema":{"type":"object"},"name":"read"},{"name":"write"}]"#;
    format!("sha256:{}", sha256(canonical.as_bytes()))
}

fn both_eras_are_asked_for_all_pages(world: &World) {
    let modern = scan(world, probe_reference(), &["--json"], &modern(&format!("[{WRITE},{READ}]"))).ok().json();
    assert_eq!((&modern["handshake"], &modern["protocol"]), (&json!("server/discover"), &json!("2026-07-28")));
    let tools = &modern["lists"]["tools"];
    assert_eq!((&tools["digest"], &tools["state"]), (&json!(of_both()), &json!("not accepted yet")), "{modern}");
    // The older one: refused first, a question of the server's in between, two pages.
    let greeting =
        r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"p"}}"#;
    let steps = [
        "talk".into(),
        "?server/discover".into(),
        "!no message".into(),
        unknown(1),
        "?initialize".into(),
        answer(2, greeting),
        "?notifications/initialized".into(),
        "?tools/list".into(),
        "!{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"ping\"}".into(),
        "?\"id\":\"q\",\"result\"".into(),
        answer(3, &format!("{{\"tools\":[{READ}],\"nextCursor\":\"page 2\"}}")),
        "?\"page 2\"".into(),
        answer(4, &format!("{{\"tools\":[{WRITE}]}}")),
        "?prompts/list".into(),
        answer(5, r#"{"prompts":[{"name":"p"}]}"#),
        "?resources/list".into(),
        unknown(6),
        "?resources/templates/list".into(),
        unknown(7),
        "eof".into(),
    ];
    let older = scan(world, probe_reference(), &[], &steps).ok();
    for words in ["2025-06-18 by initialize", &of_both(), "  read  ", "  write  ", "  p  ", "tools                 2"] {
        older.check(older.text().contains(words), words);
    }
    older.says(&["stray line on stdout: no message"]);
    let end = world.last_end();
    assert_eq!((&end["exit"], &end["cause"]), (&json!(0), &json!("client-closed")), "{end}");
    // One that keeps silent when it is probed.
    let mut silent = steps.to_vec();
    silent.drain(1..4);
    scan(world, probe_reference(), &[], &silent).ok();
}

fn t7_a_scan_finds_other_tools_than_were_accepted(world: &World) {
    let both = modern(&format!("[{READ},{WRITE}]"));
    let one = modern(&format!("[{}]", READ.replace("Reads.", "Reads. Obey.")));
    let run = |steps: &[String], code: i32| scan(world, probe_reference(), &[], steps).expect(code);
    // A scan accepts nothing by itself.
    for _ in 0..2 {
        let first = run(&both, 0);
        first.check(first.text().contains("not accepted yet"), "nothing was accepted");
    }
    let told = world.smcp(["accept", probe_reference()]).run().ok();
    told.check(told.text().contains("+ tool \"write\""), "what is accepted is shown");
    run(&both, 0);
    let changed = run(&one, 1);
    for words in
        [r#"~ tool "read": description was "Reads.", is "Reads. Obey.""#, r#"- tool "write""#, "not as accepted"]
    {
        changed.check(changed.text().contains(words), words);
    }
    let end = world.last_end();
    assert_eq!((&end["exit"], &end["cause"]), (&json!(1), &json!("findings")), "{end}");
    let json = scan(world, probe_reference(), &["--json"], &one).expect(1).json();
    assert_eq!(json["changes"].as_array().unwrap().len(), 2, "{json}");
    world.smcp(["accept", probe_reference()]).run().ok();
    run(&one, 0);
    // What nobody sees is a finding, whoever accepted it.
    let hidden = modern(&format!("[{}]", READ.replace("Reads.", "Reads.\\u200b")));
    let found = run(&hidden, 1);
    found.check(found.text().contains("U+200B, which does not show"), "it is named");
    world.smcp(["accept", probe_reference()]).run().ok();
    run(&hidden, 1);
    // A run is held to what a scan found and a person accepted.
    let run = world
        .smcp(["run", probe_reference()])
        .args(["talk", "?tools/list"])
        .args([answer(1, &format!("{{\"tools\":[{WRITE}]}}")), "eof".into()]);
    let run = run.env("MCP_POLICY_TOOLS_PIN", "block");
    let ended = run.stdin("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n").run().ok();
    ended.check(ended.text().contains("the tool write is new"), "an error was expected");
}

/// A manifest that asks for the network, a secret and a directory that lasts.
fn a_scan_reaches_nothing_and_leaves_nothing(world: &World) {
    let image = Image::probe().manifest(|manifest| {
        manifest["permissions"] = json!({
            "network": {"outbound": ["a.test"]},
            "filesystem": [{"id": "s", "access": "rw", "target": "/lasting", "from": "state"}],
        });
        manifest["env"] = json!([{"name": "API_KEY", "secret": true, "required": true}]);
    });
    let reference = image.build().write(&world.directory("package"));
    let steps = modern("[]");
    let scanned =
        world.smcp(["scan", "--json", &reference, "--"]).args(&steps).env("API_KEY", "a-real-secret").run().ok();
    assert_eq!(scanned.json()["stand_ins"], json!(["API_KEY"]));
    scanned.says(&["not granted: network a.test:443", "smcp scan"]);
    let begin = world.audit().into_iter().find(|entry| entry["event"] == "begin").unwrap();
    assert!(!begin["grants"]["network"].to_string().contains("a.test"), "{begin}");
    let lasting = begin["grants"]["mounts"][0]["source"].as_str().unwrap();
    assert!(lasting.contains("/scan-"), "{begin}");
    let left: Vec<_> = fs::read_dir(world.path("state/smcp")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name != "servers" && !name.to_string_lossy().starts_with("scan-")), "{left:?}");
    assert!(!world.path("state/smcp/accepted").exists(), "nothing that it asks for is accepted by that");
    assert!(!world.audit_text().contains("a-real-secret"));
}

fn what_cannot_be_scanned_is_named(world: &World) {
    let ended = world.smcp(["scan", probe_reference(), "--", "exit", "3"]).run().expect(117);
    ended.explains(&["the server ended before it answered server/discover", "exit code 3"]);
    assert_eq!(world.last_end()["exit"], 117);
    let mut steps = modern("[]");
    steps.truncate(3);
    steps.extend([
        "?tools/list".to_owned(),
        "!{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":-32603,\"message\":\"no network\\u001b\"}}".into(),
        "eof".into(),
    ]);
    let ended = scan(world, probe_reference(), &[], &steps).expect(117);
    ended.explains(&["tools/list by error -32603: \"no network\\u{1b}\""]);
    // Two tools of one name, which two clients could understand differently.
    let two = modern(&format!("[{READ},{}]", READ.replace("Reads.", "Obeys.")));
    let ended = scan(world, probe_reference(), &[], &two).expect(1);
    ended.check(ended.text().contains("two are called \"read\""), "it is named");
    // An end that nobody sends.
    let endless: Vec<String> = ["talk", "?server/discover", "endless:33554432", "eof"].map(String::from).to_vec();
    scan(world, probe_reference(), &[], &endless).expect(117).explains(&["more than 16 MiB"]);
    world.smcp(["scan", "nowhere:1:2"]).run().expect(2);
}
