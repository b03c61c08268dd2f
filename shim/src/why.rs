//! `smcp why`: what a run was denied, how often, and the flag that would grant it.

use runtime::journal::Journal;
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::show::{self, outln};

/// Shows it, of the newest run where none is named.
///
/// # Errors
/// Where the log cannot be read, or has no such run.
pub fn why(run: Option<&str>, as_json: bool, settings: &Settings) -> Result<(), Failure> {
    let run = run.map(str::to_ascii_uppercase);
    let entries = match settings.audit_log.exists() {
        true => Journal::entries(&settings.audit_log, run.as_deref())?,
        false => Vec::new(),
    };
    let log = settings.audit_log.display();
    let begin = entries.iter().find(|entry| entry["event"] == "begin").ok_or_else(|| match &run {
        Some(run) => Failure::new(exit::USAGE, format!("{log} has no run {run:?}"))
            .hint("the log names each run; without a name it is the newest"),
        None => Failure::new(exit::USAGE, format!("{log} has no run yet")).hint("MCP_AUDIT_LOG_FILE names another log"),
    })?;
    let end = entries.iter().find(|entry| entry["event"] == "end");
    let answer = json!({
        "run": begin["run"],
        "reference": begin["reference"],
        "time": begin["time"],
        "ended": end.is_some(),
        "exit": end.map(|end| &end["exit"]),
        "cause": end.map(|end| &end["cause"]),
        "error": end.map(|end| &end["error"]),
        "limit": end.map(|end| &end["limit"]),
        "networkWatched": begin.pointer("/grants/network").and_then(Value::as_object).is_some_and(|network| !network.is_empty()),
        "withheld": begin.get("withheld").unwrap_or(&json!([])),
        "denied": denied(&entries, end),
        "deniedMore": end.map_or(&json!(0), |end| end.pointer("/egress/refused_more").unwrap_or(&Value::Null)),
    });
    if as_json {
        show::print_json(&answer);
    } else {
        print(&answer);
    }
    Ok(())
}

/// The refusals with their flags; counted once the run has ended.
fn denied(entries: &[Value], end: Option<&Value>) -> Vec<Value> {
    let lines: Vec<&Value> = entries.iter().filter(|entry| entry["event"] == "denied").collect();
    let same = |one: &Value, other: &Value| ["host", "port", "why"].iter().all(|key| one.get(key) == other.get(key));
    let of = |refused: &Value| {
        let told = lines.iter().find(|line| same(line, refused));
        let flag = told.and_then(|line| line.get("flag"));
        json!({
            "host": refused["host"],
            "port": refused.get("port"),
            "why": refused["why"],
            "address": refused.get("address"),
            "count": refused["count"],
            "flag": flag,
        })
    };
    match end.and_then(|end| end.pointer("/egress/refused")).and_then(Value::as_array) {
        Some(counted) => counted.iter().map(of).collect(),
        None => lines.iter().map(|line| of(line)).collect(),
    }
}

fn print(answer: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    outln!("run        {} {} at {}", text(&answer["run"]), text(&answer["reference"]), text(&answer["time"]));
    match answer["ended"].as_bool() {
        Some(true) => outln!("ended      {} with exit code {}", text(&answer["cause"]), answer["exit"]),
        _ => outln!("ended      not yet, or nobody has seen it: counts are from its first moments"),
    }
    if let Some(error) = answer["error"].as_str() {
        outln!("error      {error}");
    }
    if let Some(limit) = answer["limit"]["name"].as_str() {
        // A file in memory may be four times as large as the memory limit.
        outln!("           --{}", if limit == "file-size" { "memory" } else { limit });
    }
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    for withheld in list("withheld") {
        outln!("withheld   {}: {}", text(&withheld["what"]), text(&withheld["why"]));
        if let Some(hint) = withheld["hint"].as_str() {
            outln!("           {hint}");
        }
    }
    let denied = list("denied");
    for refused in &denied {
        let port = refused["port"].as_u64().map_or(String::new(), |port| format!(" port {port}"));
        let address = refused["address"].as_str().map_or(String::new(), |address| format!(", which is {address}"));
        let why = text(&refused["why"]).replace('-', " ");
        outln!("denied     {}{port}{address}: {why}, {} time(s)", text(&refused["host"]), refused["count"]);
        if let Some(flag) = refused["flag"].as_str() {
            outln!("           {flag}");
        }
    }
    if let Some(more) = answer["deniedMore"].as_u64().filter(|more| *more > 0) {
        outln!("denied     {more} more, which were not kept apart");
    }
    if denied.is_empty() && list("withheld").is_empty() {
        outln!("denied     nothing that smcp saw");
    }
    if answer["networkWatched"] == false {
        outln!(
            "note       it was granted no network, and nobody looks at what is tried where there is none: `smcp learn` does"
        );
    }
}
