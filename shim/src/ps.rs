//! `smcp ps`: the runs under way, from the files that they hold, their begin entries, and `/proc`.

use bundle::format_size;
use runtime::Used;
use runtime::journal::Journal;
use serde_json::{Value, json};

use crate::settings::Settings;
use crate::show::{self, outln};

/// Lists them, the oldest first.
pub fn ps(as_json: bool, settings: &Settings) {
    let runs: Vec<Value> = Journal::under_way(&settings.state).iter().map(row).collect();
    if as_json {
        return show::print_json(&json!(runs));
    }
    let line = |words: [&str; 8]| {
        let [run, pid, since, tier, memory, cpu, package, client] = words;
        outln!("{run:<26}  {pid:>7}  {since:<19}  {tier:>4}  {memory:>8}  {cpu:>8}  {package}  {client}");
    };
    line(["RUN", "PID", "SINCE (UTC)", "TIER", "MEMORY", "CPU", "PACKAGE", "CLIENT"]);
    for row in runs {
        let text = |key: &str| match &row[key] {
            Value::String(text) => text.clone(),
            Value::Null => "-".into(),
            other => other.to_string(),
        };
        let since = text("since");
        let since = since.split('.').next().unwrap_or_default().trim_end_matches('Z').replace('T', " ");
        let memory = row["memory"].as_u64().map_or("-".into(), |bytes| format_size(bytes >> 20 << 20));
        let cpu =
            row["cpuMillis"].as_u64().map_or("-".into(), |time| format!("{}.{:02} s", time / 1000, time % 1000 / 10));
        let client = text("client");
        let client = client.rsplit('/').next().unwrap_or_default();
        line([&text("run"), &text("pid"), &since, &text("tier"), &memory, &cpu, &text("package"), client]);
    }
}

/// A run as JSON: what its begin entry says, and what its processes use by now.
fn row(begin: &Value) -> Value {
    let used = begin["pid"].as_u64().and_then(|pid| Used::below(u32::try_from(pid).ok()?));
    json!({
        "run": begin["run"],
        "pid": begin["pid"],
        "package": begin["reference"],
        "name": begin["name"],
        "digest": begin["digest"],
        "since": begin["time"],
        "client": begin["caller"]["program"],
        "clientPid": begin["caller"]["pid"],
        "tier": begin["tier"],
        "processes": used.map(|used| used.processes),
        "memory": used.map(|used| used.memory),
        "cpuMillis": used.map(|used| used.cpu_time.as_millis() as u64),
    })
}
