//! `smcp test`: whether a server does what a file says, in both eras; `smcp pull --locked`, and the recipes of docs/ci.md.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::command::{Ended, Smcp};
use crate::image::{Image, probe_reference};
use crate::patience::{PATIENCE, within};
use crate::place;
use crate::processes::marked;
use crate::world::{World, as_each_user, at_each_tier};

at_each_tier! {
    both_eras_are_tried_and_held_to_a_file,
    the_recipes_for_pipelines_do_what_they_say,
}

as_each_user! {
    what_is_not_as_expected_is_found,
    a_server_of_one_era_is_tested_in_that,
    a_test_that_comes_to_nothing_says_why,
    a_pull_is_held_to_the_lock,
    whoever_ends_a_test_ends_its_run,
}

const READ: &str = r#"{"name":"read","description":"Reads.","inputSchema":{"type":"object"}}"#;

/// What `probe serve` answers: each method by a result.
fn serves(rules: &[(&str, &str)]) -> Vec<String> {
    let rule = |(method, result): &(&str, &str)| {
        [(*method).to_owned(), format!("{{\"jsonrpc\":\"2.0\",\"id\":\\i,\"result\":{result}}}\\n")]
    };
    ["serve".to_owned()].into_iter().chain(rules.iter().flat_map(rule)).collect()
}

const DISCOVER: (&str, &str) = (
    "server/discover",
    r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"p","version":"1"}}}"#,
);
const INITIALIZE: (&str, &str) = (
    "initialize",
    r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}"#,
);
const CALLED: (&str, &str) = ("tools/call", r#"{"content":[{"type":"text","text":"done"}],"isError":false}"#);

/// A server of both eras with these tools.
fn of_both_eras(tools: &str) -> Vec<String> {
    serves(&[DISCOVER, INITIALIZE, ("tools/list", &format!("{{\"tools\":{tools}}}")), CALLED])
}

fn test<'w>(world: &'w World, flags: &[&str], server: &[String]) -> Smcp<'w> {
    world.smcp(["test"]).args(flags).args([probe_reference()]).args(server)
}

/// The state of the case of a name, and its first line.
fn case<'r>(report: &'r Value, name: &str) -> (&'r str, &'r str) {
    let case = report["cases"].as_array().unwrap().iter().find(|case| case["name"] == name);
    let case = case.unwrap_or_else(|| panic!("there is no {name} in {report:#}"));
    (case["state"].as_str().unwrap(), case["lines"][0].as_str().unwrap_or_default())
}

const CALL: [&str; 4] = ["--call", "read", "--args", r#"{"path":"/a"}"#];

fn both_eras_are_tried_and_held_to_a_file(world: &World) {
    let (file, report) = (world.text("home/expected.json"), world.text("home/report.xml"));
    let server = of_both_eras(&format!("[{READ}]"));
    let flags = [&CALL[..], &["--json", "--write-expect", &file, "--junit", &report]].concat();
    let seen = test(world, &flags, &server).run().ok().json();
    assert_eq!(case(&seen, "handshake by server/discover"), ("passed", "2026-07-28"));
    assert_eq!(case(&seen, "handshake by initialize"), ("passed", "2025-11-25"));
    assert_eq!(case(&seen, "tools"), ("passed", "1"));
    assert_eq!(case(&seen, "prompts").0, "absent");
    assert_eq!(case(&seen, "call of \"read\"").0, "passed");
    let audit = world.audit();
    let ends: Vec<_> = audit.iter().filter(|entry| entry["event"] == "end").map(|end| &end["exit"]).collect();
    assert_eq!(ends, [0, 0], "a run for each era");
    let written: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(written["handshakes"], json!({"server/discover": "2026-07-28", "initialize": "2025-11-25"}));
    assert_eq!(written["lists"]["tools"]["read"]["description"], "Reads.");
    assert_eq!(written["calls"][0]["arguments"], json!({"path": "/a"}));
    let xml = fs::read_to_string(&report).unwrap();
    assert!(xml.contains("tests=\"7\" failures=\"0\" errors=\"0\" skipped=\"3\""), "{xml}");
    let ended = test(world, &[&CALL[..], &["--expect", &file]].concat(), &server).run().ok();
    for line in ["passed     handshake by initialize: 2025-11-25", "passed     call of \"read\": ends as expected"] {
        ended.check(ended.text().contains(line), line);
    }
}

fn what_is_not_as_expected_is_found(world: &World) {
    let (file, report) = (world.text("home/expected.json"), world.text("home/report.xml"));
    let server = of_both_eras(&format!("[{READ}]"));
    test(world, &[&CALL[..], &["--write-expect", &file]].concat(), &server).run().ok();
    let found = |server: &[String]| -> Ended {
        test(world, &[&CALL[..], &["--json", "--expect", &file, "--junit", &report]].concat(), server).run().expect(1)
    };
    // Another description, and a tool more.
    let other = of_both_eras(&format!("[{},{{\"name\":\"write\"}}]", READ.replace("Reads.", "Obeys.")));
    let seen = found(&other).json();
    assert_eq!(seen["exit"], 1);
    let (state, line) = case(&seen, "tools");
    assert!(state == "failed" && line.contains(r#"description was "Reads.", is "Obeys.""#), "{line}");
    let xml = fs::read_to_string(&report).unwrap();
    assert!(xml.contains("failures=\"1\" errors=\"0\"") && xml.contains("+ tool &quot;write&quot;"), "{xml}");
    // Another revision, another outcome of the call, tools that differ between the eras.
    let older = (INITIALIZE.0, INITIALIZE.1.replace("2025-11-25", "2025-06-18"));
    let failing = ("tools/call", r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#);
    let tools = format!("{{\"tools\":[{READ}]}}");
    let seen = found(&serves(&[DISCOVER, (older.0, &older.1), ("tools/list", &tools), failing])).json();
    assert_eq!(
        case(&seen, "handshake by initialize"),
        ("failed", r#"comes to "2025-06-18", in place of "2025-11-25""#)
    );
    assert_eq!(case(&seen, "call of \"read\"").0, "failed");
    // A server that does not know the tool.
    let seen = found(&serves(&[DISCOVER, INITIALIZE, ("tools/list", &tools)])).json();
    assert!(case(&seen, "call of \"read\"").1.contains("-32601"));
    // What the file does not have is not compared.
    fs::write(&file, r#"{"server": {"name": "p"}, "calls": []}"#).unwrap();
    test(world, &["--expect", &file], &other).run().ok();
    fs::write(&file, r#"{"server": {"name": "q"}}"#).unwrap();
    test(world, &["--expect", &file], &other).run().expect(1);
    // Without a file a call must not fail.
    test(world, &CALL, &serves(&[INITIALIZE, ("tools/list", &tools), failing])).run().expect(1);
}

fn a_server_of_one_era_is_tested_in_that(world: &World) {
    let tools = ("tools/list", r#"{"tools":[]}"#);
    let seen = test(world, &["--json"], &serves(&[INITIALIZE, tools])).run().ok().json();
    assert_eq!(case(&seen, "handshake by server/discover").0, "absent");
    assert_eq!(case(&seen, "handshake by initialize").0, "passed");
    let seen = test(world, &["--json"], &serves(&[DISCOVER, tools])).run().ok().json();
    assert_eq!(case(&seen, "handshake by server/discover").0, "passed");
    assert_eq!(case(&seen, "handshake by initialize").0, "absent");
    // One that was of both.
    let file = world.text("home/expected.json");
    test(world, &["--write-expect", &file], &of_both_eras("[]")).run().ok();
    let seen = test(world, &["--json", "--expect", &file], &serves(&[INITIALIZE, tools])).run().expect(1).json();
    assert!(case(&seen, "handshake by server/discover").1.contains("is not taken"));
}

fn a_test_that_comes_to_nothing_says_why(world: &World) {
    let report = world.text("home/report.xml");
    let exits = ["exit".to_owned(), "3".to_owned()];
    let ended = test(world, &["--junit", &report], &exits).run().expect(117);
    ended.explains(&["the server ended before it answered server/discover, with exit code 3"]);
    let xml = fs::read_to_string(&report).unwrap();
    assert!(xml.contains("errors=\"1\"") && xml.contains("<error message=\"the server ended"), "{xml}");
    let refused = test(world, &["--min-cert-level", "3", "--json"], &exits).run().expect(121);
    assert_eq!(refused.json()["exit"], 121);
    refused.says(&["error: "]);
    let usage = |flags: &[&str], words: &[&str]| {
        test(world, flags, &exits).run().expect(2).says(words);
    };
    let file = world.text("home/expected.json");
    usage(&["--expect", &file], &["expected.json", "--write-expect"]);
    fs::write(&file, r#"{"list": {}}"#).unwrap();
    usage(&["--expect", &file], &["expected.json", "list"]);
    usage(&["--call", "x", "--args", "[1]"], &["--args", "a JSON object"]);
    usage(&["--call", "x", "--args", "{"], &["--args"]);
    usage(&["--args", "{}"], &["--call"]);
    usage(&["--dry-run"], &["smcp run --dry-run"]);
    world.smcp(["run", "--json", probe_reference(), "exit", "0"]).run().expect(2).says(&["--json", "--dry-run"]);
}

fn whoever_ends_a_test_ends_its_run(world: &World) {
    // A server that says nothing, so that the test waits.
    let running = test(world, &[], &["talk".to_owned(), "?never".into(), world.mark().into()]).start();
    let begun = || world.audit().iter().filter(|entry| entry["event"] == "begin").count() == 1;
    assert!(within(PATIENCE, || begun().then_some(())).is_some(), "no run began");
    running.signal(Signal::TERM);
    running.wait_killed();
    assert!(within(PATIENCE, || marked(world).is_empty().then_some(())).is_some(), "{:#?}", marked(world));
    let ended = || world.audit().iter().any(|entry| entry["event"] == "end" && entry["cause"] == "terminated");
    let ended = within(PATIENCE, || ended().then_some(()));
    assert!(ended.is_some(), "{}", world.audit_text());
}

/// A package of the probe as a server of both eras, under a name in the world.
fn package(world: &World, tools: &str) -> String {
    let words: Vec<String> = ["/usr/bin/probe".to_owned()].into_iter().chain(of_both_eras(tools)).collect();
    let image = Image::probe().manifest(|manifest| manifest["entrypoint"]["args"] = json!(words));
    image.build().write(&world.directory("package"))
}

fn a_pull_is_held_to_the_lock(world: &World) {
    let pull = |reference: &str| world.smcp(["pull", "--locked", reference]).in_directory(world.path("project")).run();
    let reference = package(world, "[]");
    pull(&reference).expect(119).says(&["smcp.lock", "smcp accept --lock"]);
    world.smcp(["accept", "--lock", &reference]).in_directory(world.path("project")).run().ok();
    pull(&reference).ok();
    pull(probe_reference()).expect(121).says(&["is not in", "smcp.lock"]);
    fs::remove_dir_all(world.path("package")).unwrap();
    let other = package(world, &format!("[{READ}]"));
    assert_eq!(other, reference);
    pull(&reference).expect(121).says(&["smcp.lock has sha256:"]);
}

/// Each block of shell of docs/ci.md, in its order, by a user who has nothing but the project.
fn the_recipes_for_pipelines_do_what_they_say(world: &World) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ci.md")).unwrap();
    let blocks: Vec<&str> =
        text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(blocks.len() > 2, "docs/ci.md has recipes");
    // The examples of pipelines have the same commands.
    let shown = text.split("```yaml\n").skip(1).flat_map(|rest| rest.split("```").next().unwrap_or_default().lines());
    for line in shown.filter_map(|line| line.find("smcp ").map(|at| &line[at..])) {
        assert!(blocks.iter().any(|block| block.contains(line)), "no recipe has `{line}`");
    }
    let reference = package(world, &format!("[{READ}]"));
    fs::create_dir(world.path("home/bin")).unwrap();
    symlink(place::smcp(), world.path("home/bin/smcp")).unwrap();
    let path = format!("{}:/usr/bin:/bin", world.text("home/bin"));
    for block in blocks {
        let shell = world.copy(Path::new("/bin/sh"), ["-euc", block]).in_directory(world.path("project"));
        shell.env("PATH", &path).env("SERVER", &reference).run().ok();
    }
    for name in ["smcp.lock", "expected.json", "report.xml", "scan.json", "server/smcp.json"] {
        assert!(world.path(format!("project/{name}")).exists(), "the recipes make {name}");
    }
}
