//! `smcp learn`: a run like every other, and from what it reached and was refused the permissions of a manifest.
//!
//! Hosts and ports are what smcp saw the server use or try. Directories and programs are what the run was granted, and what
//! it named in its calls, which are recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};

use bundle::{Host, Outbound};
use runtime::journal::{self, Journal};
use serde_json::{Value, json};
use ulid::Ulid;

use crate::cli;
use crate::exit::{self, Failure};
use crate::record::Record;
use crate::run::{self, Errand};
use crate::settings::Settings;
use crate::show;

/// Runs a server and proposes permissions. The exit code is the run's, unless nothing can be proposed.
pub fn learn(typed: &cli::Learn, settings: Result<Settings, Failure>) -> u8 {
    let id = journal::new_run();
    let mut flags = typed.run.clone();
    if typed.permissive {
        flags.allow_all_net = true;
        if let Err(failure) = ask(flags.reference()) {
            return refused(&failure, flags.reference(), id, settings);
        }
    }
    let log = settings.as_ref().ok().map(|settings| settings.audit_log.clone());
    let code = run::run_as(&flags, settings, id, None, Errand::Learn);
    let Some(log) = log else { return code };
    let told = Journal::entries(&log, Some(&id.to_string())).map_err(Failure::from).and_then(|entries| {
        let Proposal { permissions, notes } = propose(&entries);
        notes.iter().for_each(|note| show::say(&format!("note: {note}")));
        let text = format!("{:#}\n", json!({"permissions": permissions}));
        match &typed.output {
            None => {
                // What a server asked for stands in it as JSON, without any control character.
                let _ = std::io::stderr().write_all(text.as_bytes());
                Ok(())
            }
            Some(path) => fs::write(path, text)
                .map_err(|why| Failure::new(exit::USAGE, format!("--output {}: {why}", path.display()))),
        }
    });
    match told {
        Ok(()) => code,
        Err(failure) => failure.print(),
    }
}

/// Asks on the terminal, which is not the server's stdin and stdout.
fn ask(reference: &str) -> Result<(), Failure> {
    let terminal = |write: bool| OpenOptions::new().read(!write).write(write).open("/dev/tty");
    let (Ok(mut words), Ok(answers)) = (terminal(true), terminal(false)) else {
        return Err(Failure::new(exit::DENIED, "--permissive takes an answer, and there is no terminal to ask on")
            .hint("without it what the server tries to reach is refused, and noted all the same"));
    };
    let question = format!("Let {} connect to every public address for this run? [y/N] ", reference.escape_debug());
    let answered = words.write_all(question.as_bytes()).is_ok() && is_yes(answers);
    match answered {
        true => Ok(()),
        false => Err(Failure::new(exit::DENIED, "--permissive was answered by no")
            .hint("without it what the server tries to reach is refused, and noted all the same")),
    }
}

/// Whether the next line is a yes.
pub fn is_yes(answers: File) -> bool {
    let mut line = String::new();
    BufReader::new(answers).read_line(&mut line).is_ok() && matches!(line.trim(), "y" | "Y" | "yes" | "YES")
}

/// Records a run that the answer stopped.
fn refused(failure: &Failure, reference: &str, id: Ulid, settings: Result<Settings, Failure>) -> u8 {
    let settings = settings.unwrap_or_else(|_| Settings::defaults());
    let recorded = settings.journal().and_then(|journal| Record::new(reference).close(&journal, id, &failure.ending()));
    recorded.map_or_else(|error| Failure::from(error).print(), |()| failure.print())
}

/// What a manifest would ask for, and what it cannot ask for.
struct Proposal {
    permissions: Value,
    notes: Vec<String>,
}

/// From the entries of a run.
fn propose(entries: &[Value]) -> Proposal {
    let of = |event: &str| entries.iter().find(|entry| entry["event"] == event).unwrap_or(&Value::Null);
    let (grants, egress, asked) = (&of("begin")["grants"], &of("end")["egress"], &of("end")["asked"]);
    let mut notes = Vec::new();
    let mut outbound: BTreeMap<Host, BTreeSet<u16>> = BTreeMap::new();
    let mut add = |host: &Value, port: u16| {
        if let Some(host) = host.as_str().and_then(|host| host.parse::<Host>().ok()) {
            outbound.entry(host).or_default().insert(port);
        }
    };
    for traffic in list(&egress["granted"]) {
        match port(&traffic["port"]) {
            Some(port) if traffic["host"] == "localhost" => {
                notes.push(format!(
                    "it used port {port} of this machine, which takes the user's --allow-host-port {port}"
                ));
            }
            Some(port) => add(&traffic["host"], port),
            None => notes.push("it reached more destinations than are kept apart".into()),
        }
    }
    for refused in list(&egress["refused"]) {
        let host = refused["host"].as_str().unwrap_or_default().escape_debug();
        match (refused["why"].as_str().unwrap_or_default(), port(&refused["port"])) {
            ("port-not-granted" | "address-not-granted", Some(port)) => add(&refused["host"], port),
            ("name-not-granted", given) => {
                let port = given.unwrap_or(bundle::DEFAULT_PORT);
                add(&refused["host"], port);
                notes.push(format!("{host} was refused by name: port {port} is a guess"));
            }
            ("address-forbidden", _) => {
                let address = refused["address"].as_str().unwrap_or_default();
                notes.push(format!("{host} stands for {address}, which takes the user's --allow-net {address}"));
            }
            _ => {}
        }
    }
    if egress["refused_more"].as_u64().is_some_and(|more| more > 0) {
        notes.push("it was refused more destinations than are kept apart".into());
    }
    if grants["subprocess"] == true {
        let instead = match of("begin")["recorded"] == "full" {
            true => "those that it tried stand in their place",
            false => "name them by --allow-subprocess=PATH",
        };
        notes.push(format!("it could start any program, which no manifest can ask for: {instead}"));
    }
    let objects = outbound.into_iter().map(|(host, ports)| Outbound::new(host, ports));
    let objects: Vec<_> = objects.map(|one| json!({"host": one.host.to_string(), "ports": one.ports})).collect();
    let mut permissions = json!({});
    let mut set = |key: &str, value: Value, is_empty: bool| {
        if !is_empty {
            permissions[key] = value;
        }
    };
    set("network", json!({"outbound": objects}), objects.is_empty());
    let paths =
        list(&asked["paths"]).iter().map(|one| json!({"target": one["path"], "access": one["access"], "from": "user"}));
    let mounts: Vec<_> = list(&grants["mounts"]).iter().cloned().chain(paths).collect();
    let directories = directories(&mounts);
    set("filesystem", json!(directories), directories.is_empty());
    let mut programs = list(&grants["subprocess"]).to_vec();
    programs.extend(list(&asked["programs"]).iter().filter(|one| !list(&grants["subprocess"]).contains(one)).cloned());
    set("subprocess", json!({"allow": programs}), programs.is_empty());
    notes.extend(of_calls(&of("begin")["recorded"], asked));
    Proposal { permissions, notes }
}

/// What the calls of a run tell that no manifest can ask for.
fn of_calls(recorded: &Value, asked: &Value) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(why) = recorded.as_str().and_then(|words| words.strip_prefix("absent: ")) {
        notes.push(format!("paths and programs were not recorded: {why}"));
    }
    let mut each = |key: &str, say: &dyn Fn(String) -> String| {
        let texts = list(&asked[key]).iter().filter_map(Value::as_str);
        notes.extend(texts.map(|path| say(path.escape_debug().to_string())));
    };
    each("wide", &|path| format!("it asked for {path}, which is too wide to ask for: grant what it needs of it"));
    each("missing", &|path| format!("it tried to start {path}, which the package does not have: build it in"));
    each("unused", &|path| format!("{path} was granted, and no call named anything in it"));
    if asked["left_out"].as_u64().is_some_and(|count| count > 0) {
        notes.push("it named more paths than are kept apart".into());
    }
    notes
}

fn directories(mounts: &[Value]) -> Vec<Value> {
    let mut ids = BTreeSet::new();
    let mut one = |mount: &Value| {
        let target = mount["target"].as_str().unwrap_or_default();
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = target.rsplit('/').next().unwrap_or_default().chars().map(allowed).collect();
        let name = if name.starts_with(|c: char| c.is_ascii_alphanumeric()) { name } else { format!("d{name}") };
        let id = (1..).map(|n| if n == 1 { name.clone() } else { format!("{name}-{n}") }).find(|id| !ids.contains(id));
        let id = id.unwrap_or_default();
        ids.insert(id.clone());
        json!({"id": id, "access": mount["access"], "target": target, "from": mount["from"]})
    };
    mounts.iter().map(&mut one).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn port(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bundle::Manifest;

    /// What is proposed is what a manifest may ask for.
    #[test]
    fn a_proposal_is_a_manifests() {
        let begin = json!({"event": "begin", "grants": {
            "mounts": [
                {"source": "/home/me/p", "target": "/home/me/p", "access": "rw", "from": "user"},
                {"source": "/x/.p", "target": "/work/.p", "access": "ro", "from": "user"},
                {"source": "/y", "target": "/y/p", "access": "ro", "from": "user"},
            ],
            "subprocess": ["/usr/bin/git"],
        }});
        let end = json!({"event": "end", "asked": {
            "paths": [{"path": "/srv/data", "access": "ro"}],
            "wide": ["/srv"],
            "programs": ["/usr/bin/git", "/usr/bin/less"],
            "missing": ["/usr/bin/a\u{1b}"],
            "unused": ["/y/p"],
            "left_out": 1,
        }, "egress": {
            "granted": [
                {"host": "api.test", "port": 443, "connections": 1, "sent": 1, "received": 1},
                {"host": "localhost", "port": 5432, "connections": 1, "sent": 1, "received": 1},
                {"host": "*", "port": 0, "connections": 1, "sent": 1, "received": 1},
            ],
            "refused": [
                {"host": "api.test", "port": 80, "why": "port-not-granted", "count": 1},
                {"host": "192.0.2.1", "port": 25, "why": "address-not-granted", "count": 1},
                {"host": "other.test", "why": "name-not-granted", "count": 2},
                {"host": "in.test", "port": 80, "why": "address-forbidden", "address": "10.0.0.1", "count": 1},
                {"host": "no name\u{1b}", "why": "name-not-granted", "count": 2},
                {"host": "down.test", "port": 80, "why": "unreachable", "count": 1},
            ],
            "refused_more": 1,
        }});
        let Proposal { permissions, notes } = propose(&[begin, end]);
        assert_eq!(
            permissions["network"]["outbound"],
            json!([
                {"host": "api.test", "ports": [80, 443]},
                {"host": "other.test", "ports": [443]},
                {"host": "192.0.2.1", "ports": [25]},
            ])
        );
        let ids: Vec<_> = list(&permissions["filesystem"]).iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["p", "d-p", "p-2", "data"]);
        assert_eq!(permissions["subprocess"], json!({"allow": ["/usr/bin/git", "/usr/bin/less"]}));
        for words in [
            "--allow-host-port 5432",
            "--allow-net 10.0.0.1",
            "other.test was refused by name",
            "than are kept apart",
            "/srv, which is too wide",
            "start /usr/bin/a",
            "/y/p was granted",
            "more paths",
        ] {
            assert!(notes.iter().any(|note| note.contains(words)), "{words}: {notes:?}");
        }
        assert!(notes.iter().all(|note| !note.contains('\u{1b}')));
        let manifest = json!({
            "schemaVersion": 1, "name": "a/b", "version": "1", "entrypoint": {"args": ["x"]}, "permissions": permissions,
        });
        Manifest::from_value(&manifest).unwrap();
    }

    #[test]
    fn a_run_that_reached_nothing_needs_nothing() {
        let begin = json!({"event": "begin", "grants": {"mounts": [], "subprocess": false, "network": {}}});
        let Proposal { permissions, notes } = propose(&[begin, json!({"event": "end"})]);
        assert_eq!((permissions, notes.len()), (json!({}), 0));
    }
}
