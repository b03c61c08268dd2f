//! `--audit-calls`: a line of the audit log for each call of a tool, in both eras of the protocol.

use serde_json::{Value, json};

use crate::command::Ended;
use crate::image::{probe_reference, sha256};
use crate::world::{World, as_each_user, at_each_tier};

at_each_tier! {
    each_call_is_a_line_of_the_log,
}

as_each_user! {
    calls_are_recorded_where_somebody_asks_for_it,
}

fn answer(id: u32, result: &str) -> String {
    format!("!{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}")
}

fn call(id: u32, tool: &str, more: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\"{more}}}}}\n")
}

/// The lines of the newest run's calls, with what tells them apart.
fn recorded(world: &World) -> Vec<(String, String)> {
    let run = world.last_end()["run"].clone();
    let lines = world.audit().into_iter().filter(|entry| entry["event"] == "call" && entry["run"] == run);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines.map(|entry| (text(&entry["tool"]), text(&entry["outcome"]))).collect()
}

fn each_call_is_a_line_of_the_log(world: &World) {
    let arguments = r#"{"z" : 1.0,"a":"\u0041"}"#;
    let asked = [
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n",
        &call(1, "one", &format!(",\"arguments\":{arguments}")),
        &call(2, "two", ""),
        &call(3, "three", ""),
        &call(4, "four", ""),
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":4}}\n",
    ]
    .concat();
    let (greeting, one) = (answer(0, "{}"), answer(1, "{\"content\":[]}"));
    let two = answer(2, "{\"content\":[],\"isError\":true}");
    let steps =
        ["talk", "?initialize", &greeting, "?\"id\":1,", &one, "?\"id\":2,", &two, "?\"requestId\"", "eof", "exit:5"];
    let ended = world.caged(&["--audit-calls"], &steps).stdin(asked).run().expect(5);
    ended.check(ended.text().contains(&one[1..]), "the answer was expected as it is");
    let mut told = recorded(world);
    assert_eq!(told.last().unwrap().0, "three", "what is not answered is known at the end");
    told.sort();
    let expected = [("four", "cancelled"), ("one", "ok"), ("three", "unanswered"), ("two", "error")];
    assert_eq!(told, expected.map(|(tool, outcome)| (tool.to_owned(), outcome.to_owned())));
    let entries = world.audit();
    let first = entries.iter().find(|entry| entry["tool"] == "one").unwrap();
    assert_eq!(first["arguments"], format!("sha256:{}", sha256(arguments.as_bytes())), "{first}");
    assert!(first["duration_us"].is_u64(), "{first}");
    assert_eq!(world.last_end()["calls"], json!({"written": 4, "dropped": 0, "unread": 0}));
    assert_eq!(entries.last().unwrap()["event"], "end", "the end is the last");
    world.smcp(["audit", "verify"]).run().ok();
    let shown = world.smcp(["audit", "show", "--event", "call"]).run().ok();
    for words in ["one: ok in ", "two: error in ", "four: cancelled in ", "three: unanswered in "] {
        shown.check(shown.text().contains(words), words);
    }
    // A client of the newer era, and a call that policy refuses.
    let meta = ",\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}";
    let asked = [call(1, "one", meta), call(2, "two", meta)].concat();
    let steps = ["talk", "?\"id\":1,", &one, "eof"];
    let ended = world.caged(&["--audit-calls"], &steps).env("MCP_POLICY_TOOLS_DENY", "two").stdin(asked).run().ok();
    ended.check(ended.text().contains("policy.tools"), "an error was expected");
    let mut told = recorded(world);
    told.sort();
    assert_eq!(told, [("one", "ok"), ("two", "error")].map(|(tool, outcome)| (tool.to_owned(), outcome.to_owned())));
    let refused = world.audit().into_iter().find(|entry| entry["refused"] == true).unwrap();
    assert_eq!(refused["tool"], "two");
}

fn calls_are_recorded_where_somebody_asks_for_it(world: &World) {
    let one = answer(1, "{}");
    let run = |flags: &[&str], variable: Option<&str>| -> Ended {
        let run = world.smcp(["--config", &world.text("home/config.yaml"), "run"]).args(flags);
        let run = run.args([probe_reference(), "talk", "?tools/call", &one, "eof"]).stdin(call(1, "one", ""));
        let run = if let Some(value) = variable { run.env("MCP_AUDIT_CALLS", value) } else { run };
        run.run()
    };
    world.file("home/config.yaml", "audit_calls: true\n");
    run(&[], None).ok();
    assert_eq!(recorded(world).len(), 1);
    run(&[], Some("false")).ok();
    assert_eq!(recorded(world).len(), 0);
    assert_eq!(world.last_end().get("calls"), None);
    world.file("home/config.yaml", "\n");
    run(&[], None).ok();
    assert_eq!(recorded(world).len(), 0);
    run(&[], Some("true")).ok();
    assert_eq!(recorded(world).len(), 1);
    run(&["--audit-calls", "--relay", "direct"], None).ok().says(&["--relay direct is not followed", "--audit-calls"]);
    assert_eq!(recorded(world).len(), 1);
    run(&[], Some("yes")).expect(119).explains(&["MCP_AUDIT_CALLS", "neither true nor false"]);
}
