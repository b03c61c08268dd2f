//! Whole sessions of real servers, bare and caged: every line that the server writes, in its order, must be the same but for the
//! warning.
//!
//! The client is a script of its own: it sends a request, answers what the server asks meanwhile, and goes on when what it waits for has
//! come, so that the order of the server's lines hangs on nothing else. What differs from run to run is the server's own: dates, times
//! of day and levels drawn by lot, which [`normal`] takes out of both streams.

use std::io::Write;
use std::process::ChildStdin;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::command::{Running, Smcp};
use crate::real_servers::{everything_package, time_package};
use crate::servers::{bare_npm, bare_pypi};
use crate::world::{World, as_each_user, at_each_tier};

at_each_tier! {
    s5_the_streams_of_the_newer_era_are_the_same,
}

as_each_user! {
    s5_the_streams_of_the_everything_server_are_the_same,
}

/// What is sent, and the text that is awaited before the next is; without one the answer to the request is.
type Step = (&'static str, Option<&'static str>);

const INITIALIZED: Step = (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, Some("Roots updated: 1"));

/// Everything that the server has, in the revision 2025-11-25.
const EVERYTHING: &[Step] = &[
    (
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}},"clientInfo":{"name":"t","version":"1"}}}"#,
        None,
    ),
    INITIALIZED,
    (r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#, None),
    (r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}"#, None),
    (r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#, None),
    // Sampling, elicitation by form and by URL, roots.
    (
        r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"trigger-sampling-request","arguments":{"prompt":"grüße <&>","maxTokens":7}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"trigger-elicitation-request","arguments":{}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"trigger-url-elicitation","arguments":{"url":"https://a.example/x","message":"m","elicitationId":"e"}}}"#,
        None,
    ),
    (r#"{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"get-roots-list","arguments":{}}}"#, None),
    (r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#, Some("Roots updated: 1")),
    // Progress to the end, and beyond a cancellation, which this server does not heed: no answer comes.
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"trigger-long-running-operation","arguments":{"duration":0.4,"steps":4},"_meta":{"progressToken":"p"}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"trigger-long-running-operation","arguments":{"duration":0.4,"steps":2},"_meta":{"progressToken":8}}}"#,
        Some(r#""progress":1,"#),
    ),
    (
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8,"reason":"enough"}}"#,
        Some(r#""progress":2,"#),
    ),
    // Logging on and off, subscriptions.
    (
        r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"toggle-simulated-logging","arguments":{}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":10,"method":"tools/call","params":{"name":"toggle-simulated-logging","arguments":{}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":11,"method":"resources/subscribe","params":{"uri":"demo://resource/dynamic/text/1"}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":12,"method":"resources/unsubscribe","params":{"uri":"demo://resource/dynamic/text/1"}}"#,
        None,
    ),
    // Resources, blobs among them.
    (r#"{"jsonrpc":"2.0","id":13,"method":"resources/list"}"#, None),
    (r#"{"jsonrpc":"2.0","id":14,"method":"resources/templates/list"}"#, None),
    (r#"{"jsonrpc":"2.0","id":15,"method":"resources/read","params":{"uri":"demo://resource/dynamic/blob/2"}}"#, None),
    (r#"{"jsonrpc":"2.0","id":16,"method":"resources/read","params":{"uri":"demo://resource/dynamic/text/1"}}"#, None),
    (r#"{"jsonrpc":"2.0","id":17,"method":"resources/read","params":{"uri":"demo://resource/nowhere"}}"#, None),
    (r#"{"jsonrpc":"2.0","id":18,"method":"tools/call","params":{"name":"get-tiny-image","arguments":{}}}"#, None),
    (
        r#"{"jsonrpc":"2.0","id":19,"method":"tools/call","params":{"name":"gzip-file-as-resource","arguments":{"name":"a.gz","data":"data:text/plain;base64,aGVsbG8=","outputType":"resource"}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":20,"method":"tools/call","params":{"name":"get-structured-content","arguments":{"location":"Chicago"}}}"#,
        None,
    ),
    // Prompts, completion, errors.
    (r#"{"jsonrpc":"2.0","id":21,"method":"prompts/list"}"#, None),
    (
        r#"{"jsonrpc":"2.0","id":22,"method":"prompts/get","params":{"name":"args-prompt","arguments":{"city":"Köln"}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":23,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"E"}}}"#,
        None,
    ),
    (r#"{"jsonrpc":"2.0","id":24,"method":"tools/call","params":{"name":"no-such-tool"}}"#, None),
    (r#"{"jsonrpc":"2.0","id":25,"method":"no/such/method"}"#, None),
];

/// A client of 2026-07-28 that probes this server of the older era, and falls back to an older revision on the same pipe.
const FALLS_BACK: &[Step] = &[
    (
        r#"{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#,
        None,
    ),
    (
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"t","version":"1"}}}"#,
        None,
    ),
    INITIALIZED,
    (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, None),
    (r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"message":"x"}}}"#, None),
];

/// A request of 2026-07-28.
macro_rules! newer {
    ($id:literal, $method:literal, $params:literal) => {
        concat!(
            r#"{"jsonrpc":"2.0","id":"#,
            $id,
            r#","method":""#,
            $method,
            r#"","params":{"#,
            $params,
            r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#
        )
    };
}

/// A client of 2026-07-28 that stays there, with all that each request of this revision carries.
const NEWER: &[Step] = &[
    (newer!("0", "server/discover", ""), None),
    (newer!("1", "tools/list", ""), None),
    (
        newer!(
            "2",
            "tools/call",
            r#""name":"convert_time","arguments":{"source_timezone":"UTC","time":"12:00","target_timezone":"Asia/Tokyo"},"#
        ),
        None,
    ),
    (
        newer!(
            "3",
            "tools/call",
            r#""name":"convert_time","arguments":{"source_timezone":"nowhere","time":"12:00","target_timezone":"UTC"},"#
        ),
        None,
    ),
    (newer!("4", "tools/call", r#""name":"no_such_tool","arguments":{},"#), None),
    (newer!("5", "resources/list", ""), None),
    (newer!("6", "prompts/list", ""), None),
    (newer!("7", "server/discover", ""), None),
    (r#"{"jsonrpc":"2.0","id":8,"method":"tools/list","params":{}}"#, None),
];

fn s5_the_streams_of_the_everything_server_are_the_same(world: &World) {
    let package = everything_package();
    for (script, lines) in [(EVERYTHING, 45), (FALLS_BACK, 7)] {
        let streams = both(world, &bare_npm("everything"), &package, &[], script);
        is_the_same_but_for_the_warning(&streams, 1);
        assert!(streams[0].len() >= lines, "{:#?}", streams[0]);
    }
}

/// This server has instructions for nobody, and declares no logging.
fn s5_the_streams_of_the_newer_era_are_the_same(world: &World) {
    let arguments = ["--local-timezone", "Europe/Berlin"];
    let streams = both(world, &bare_pypi("mcp_server_time"), &time_package(), &arguments, NEWER);
    assert!(streams[0][0].contains("\"supportedVersions\""), "{}", streams[0][0]);
    is_the_same_but_for_the_warning(&streams, 2);
}

/// What a server says, bare and caged.
fn both(world: &World, bare: &[String], package: &str, arguments: &[&str], script: &[Step]) -> [Vec<String>; 2] {
    world.smcp(["pull", package]).run().ok();
    let bare = world.program(&bare[0], &bare[1..]).args(arguments);
    [bare, world.smcp(["run", package]).args(arguments)].map(|command| Client::of(command).plays(script))
}

/// Takes the warning out, which so many answers have, and compares.
#[track_caller]
fn is_the_same_but_for_the_warning([bare, caged]: &[Vec<String>; 2], times: usize) {
    let text = caged.iter().find_map(|line| warning(line)).expect("a package without a score is warned of");
    let note = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"warning","logger":"smcp","data":"{text}"}}}}"#
    );
    let warned = |line: &&String| line.contains(text) && **line != note;
    assert_eq!(caged.iter().filter(warned).count(), times);
    let logs = bare.iter().any(|line| line.contains("\"logging\":{}"));
    assert_eq!(caged.iter().filter(|line| **line == note).count(), usize::from(logs));
    let added = [format!("{text}\\n\\n"), format!(r#","instructions":"{text}""#)];
    let without = caged
        .iter()
        .filter(|line| **line != note)
        .map(|line| added.iter().fold(line.clone(), |line, added| line.replacen(added, "", 1)));
    for (at, (without, bare)) in without.clone().zip(bare).enumerate() {
        assert_eq!(normal(&without), normal(bare), "line {at}");
    }
    assert_eq!(without.count(), bare.len());
}

/// The text of a warning in an answer.
fn warning(line: &str) -> Option<&str> {
    let text = &line[line.find("[smcp] The package ")?..];
    text.split(['"', '\\']).next()
}

/// A line without what the server makes differently in each run.
fn normal(line: &str) -> String {
    let mut line = line.to_owned();
    // `…created at 5:02:28 PM`, also inside a blob.
    if let Some((before, after)) = line.split_once("\"blob\":\"")
        && let Some((blob, after)) = after.split_once('"')
        && let Ok(Ok(text)) = STANDARD.decode(blob).map(String::from_utf8)
    {
        line = format!("{before}\"blob of\":\"{text}\"{after}");
    }
    if let Some((before, after)) = line.split_once(" created at ") {
        let after = after.trim_start_matches(|c: char| c.is_ascii_digit() || ":  APM".contains(c));
        line = format!("{before} created at TIME{after}");
    }
    // Today, in the answer of a clock.
    for at in 0..line.len().saturating_sub(10) {
        let is_date = line.as_bytes()[at..at + 11].iter().zip(b"0000-00-00T").all(|(byte, like)| match like {
            b'0' => byte.is_ascii_digit(),
            like => byte == like,
        });
        if is_date {
            line.replace_range(at..at + 11, "YYYY-MM-DDT");
        }
    }
    // One of eight levels, drawn by lot.
    for level in ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] {
        let name = format!("{}{}", level[..1].to_uppercase(), &level[1..]);
        for data in [format!("{name}-level message"), format!("{name} level-message")] {
            line = line.replace(&format!(r#""params":{{"level":"{level}","data":"{data}"}}"#), "\"params\":DRAWN");
        }
    }
    line
}

/// The client of a session.
struct Client {
    running: Running,
    stdin: ChildStdin,
    heard: Vec<String>,
    read: usize,
}

impl Client {
    fn of(command: Smcp) -> Client {
        let mut running = command.start();
        let stdin = running.take_stdin();
        Client { running, stdin, heard: Vec::new(), read: 0 }
    }

    /// Every line that the server wrote.
    fn plays(mut self, script: &[Step]) -> Vec<String> {
        for (line, awaited) in script {
            self.says(line);
            let sent: Value = serde_json::from_str(line).expect("a message");
            loop {
                let heard = self.hears();
                let message: Value = serde_json::from_str(&heard).expect("a message");
                if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": answer(method, &message["params"])});
                    self.says(&answer.to_string());
                }
                let has_come = match awaited {
                    Some(text) => heard.contains(text),
                    None => message.get("method").is_none() && message["id"] == sent["id"],
                };
                if has_come {
                    break;
                }
            }
        }
        drop(self.stdin);
        // This server does not heed the end of its input.
        self.running.signal(Signal::TERM);
        let rest = self.running.wait();
        let rest = rest.text();
        assert_eq!(&rest[self.read..], "", "nothing more was expected");
        self.heard
    }

    fn says(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).expect("the server reads");
    }

    fn hears(&mut self) -> String {
        let from = self.read;
        let all = self.running.await_stdout("a line", |bytes| bytes[from..].contains(&b'\n'));
        let line = all[from..].split(|byte| *byte == b'\n').next().unwrap_or_default();
        self.read += line.len() + 1;
        let line = String::from_utf8(line.to_owned()).expect("UTF-8");
        self.heard.push(line.clone());
        line
    }
}

/// What this client answers to a server's request.
fn answer(method: &str, params: &Value) -> Value {
    match (method, params["mode"].as_str()) {
        ("roots/list", _) => json!({"roots": [{"uri": "file:///a", "name": "a"}]}),
        ("sampling/createMessage", _) => {
            json!({"model": "m", "role": "assistant", "content": {"type": "text", "text": "said \u{1f600}"}})
        }
        ("elicitation/create", Some("url")) => json!({"action": "accept"}),
        ("elicitation/create", _) => json!({"action": "accept", "content": {"name": "N", "check": true, "integer": 7}}),
        _ => panic!("the server asks {method}"),
    }
}
