//! `smcp audit`: the log shown, followed and checked, and a page about it.

mod html;
mod page;
mod summary;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use bundle::parse_duration;
use jiff::{SignedDuration, Timestamp};
use runtime::journal::{Begin, Journal, Lines, Verdict, Wrong};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::cli;
use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::show::{self, outln, printable};
use page::About;
use summary::Summary;

/// Does what the command line says.
///
/// # Errors
/// Where the log cannot be read, and of code 1 where its chain does not hold.
pub fn audit(command: &cli::Audit, settings: &Settings) -> Result<(), Failure> {
    match command {
        cli::Audit::Show(typed) => show(typed, settings),
        cli::Audit::Verify { partial, json } => verify(*partial, *json, settings),
        cli::Audit::Report { html, since, partial } => report(html, since.as_deref(), *partial, settings),
        cli::Audit::Path => {
            outln!("{}", settings.audit_log.display());
            Ok(())
        }
    }
}

/// How often a log that is followed is looked at.
const LOOK: Duration = Duration::from_millis(100);

fn show(typed: &cli::AuditShow, settings: &Settings) -> Result<(), Failure> {
    let mut filter = Filter::new(typed)?;
    let log = &settings.audit_log;
    let fail =
        |why: io::Error| Failure::new(exit::AUDIT, format!("the audit log {} cannot be read: {why}", log.display()));
    let mut lines = Lines::open(log).map_err(fail)?;
    let mut newest = VecDeque::new();
    while let Some(line) = lines.line().map_err(fail)? {
        let Some(shown) = filter.show(&line.text) else { continue };
        match typed.last {
            None => {
                if !print(&shown) {
                    return Ok(());
                }
            }
            Some(most) => {
                newest.push_back(shown);
                if newest.len() > most {
                    newest.pop_front();
                }
            }
        }
    }
    let mut open = newest.iter().all(|shown| print(shown));
    while typed.follow && open {
        while let Some(line) = lines.line().map_err(fail)? {
            open &= filter.show(&line.text).is_none_or(|shown| print(&shown));
        }
        if !lines.rotated().map_err(fail)? {
            thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Whether anybody reads it.
fn print(line: &str) -> bool {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

/// Which entries are shown, and how.
struct Filter<'t> {
    typed: &'t cli::AuditShow,
    run: Option<String>,
    since: Option<Timestamp>,
    /// The runs whose begin was seen and whose end was not.
    begun: BTreeMap<String, Begun>,
}

struct Begun {
    reference: String,
    asked_for: bool,
}

impl<'t> Filter<'t> {
    fn new(typed: &'t cli::AuditShow) -> Result<Filter<'t>, Failure> {
        let since = typed.since.as_deref().map(since).transpose()?;
        Ok(Filter { typed, run: typed.run.as_deref().map(str::to_ascii_uppercase), since, begun: BTreeMap::new() })
    }

    /// An entry as it is shown, where it is.
    fn show(&mut self, line: &[u8]) -> Option<String> {
        // What a crash tore is no entry.
        let entry: Value = serde_json::from_slice(line).ok()?;
        let run = entry["run"].as_str()?.to_owned();
        let event = entry["event"].as_str()?.to_owned();
        if event == "begin" {
            self.begun.insert(run.clone(), self.begins(&entry));
        }
        let begun = self.begun.get(&run);
        let reference = begun.map_or("", |begun| begun.reference.as_str());
        let wanted = self.wants(&entry, &run, &event, begun);
        let shown = wanted.then(|| match self.typed.json {
            true => String::from_utf8_lossy(line).into_owned(),
            false => row(&entry, &run, &event, reference),
        });
        if event == "end" {
            self.begun.remove(&run);
        }
        shown
    }

    fn begins(&self, entry: &Value) -> Begun {
        let names = ["reference", "name"].map(|key| match &entry[key] {
            Value::String(name) => name.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        });
        let asked_for = |text: &String| names.iter().any(|name| name.contains(text.as_str()));
        let asked_for = self.typed.package.as_ref().is_none_or(asked_for);
        let [reference, _] = names;
        Begun { reference, asked_for }
    }

    fn wants(&self, entry: &Value, run: &str, event: &str, begun: Option<&Begun>) -> bool {
        let same = |asked: &Option<String>, is: &str| asked.as_ref().is_none_or(|asked| asked == is);
        let late = |since: Timestamp| {
            let time = entry["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
            time.is_some_and(|time| time >= since)
        };
        same(&self.run, run)
            && same(&self.typed.event, event)
            && same(&self.typed.cause, entry["cause"].as_str().unwrap_or_default())
            && self.since.is_none_or(late)
            && (self.typed.package.is_none() || begun.is_some_and(|begun| begun.asked_for))
    }
}

/// A time, a day, or how long ago.
fn since(text: &str) -> Result<Timestamp, Failure> {
    let ago = || {
        let ago = SignedDuration::try_from(parse_duration(text).ok()?).ok()?;
        Timestamp::now().checked_sub(ago).ok()
    };
    let day = || format!("{text}T00:00:00Z").parse().ok();
    let time = if text.contains('T') { text.parse().ok() } else { ago().or_else(day) };
    time.ok_or_else(|| {
        Failure::new(exit::USAGE, format!("--since: {text:?} is no time"))
            .hint("how long ago, as 30m, 24h or 7d; a day of UTC, as 2026-01-31; a time, as 2026-01-31T12:00:00Z")
    })
}

/// An entry as a line for people.
fn row(entry: &Value, run: &str, event: &str, reference: &str) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let time = text(&entry["time"]);
    let time = time.split('.').next().unwrap_or_default().trim_end_matches('Z').replace('T', " ");
    let more = match event {
        "denied" => {
            let port = entry["port"].as_u64().map_or(String::new(), |port| format!(" port {port}"));
            format!("{}{port}: {}", text(&entry["host"]), text(&entry["why"]).replace('-', " "))
        }
        "call" => {
            let took = entry["duration_us"]
                .as_u64()
                .map_or(String::new(), |took| format!(" in {}.{:03} ms", took / 1000, took % 1000));
            let refused = if entry["refused"] == true { ", refused by smcp" } else { "" };
            format!("{}: {}{took}{refused}", text(&entry["tool"]), text(&entry["outcome"]))
        }
        "changed" => {
            let lines = entry["changes"].as_array().into_iter().flatten().map(text);
            let withheld = if entry["withheld"] == true { " (withheld)" } else { "" };
            format!("{}{withheld}: {}", text(&entry["kind"]), lines.collect::<Vec<_>>().join("; "))
        }
        "end" => {
            let error = entry["error"].as_str().map_or(String::new(), |error| format!(": {error}"));
            format!("{reference} {} with exit code {}{error}", text(&entry["cause"]), entry["exit"])
        }
        _ => reference.to_owned(),
    };
    printable(&format!("{time}  {run}  {event:<7}  {}", more.trim_start())).into_owned()
}

/// Writes the page, whatever the chain is worth; its memory does not grow with the log.
fn report(path: &Path, since_when: Option<&str>, partial: bool, settings: &Settings) -> Result<(), Failure> {
    let since = since_when.map(since).transpose()?;
    let mut summary = Summary::new(since);
    let log = &settings.audit_log;
    let verdict = Journal::verify_each(log, &settings.state, begin(partial), |line| summary.line(&line.text))?;
    let about = About { log, now: Timestamp::now(), since, verdict: &verdict };
    write(path, &page::page(&about, &summary))
        .map_err(|why| Failure::new(exit::USAGE, format!("--html {}: {why}", path.display())))?;
    outln!("{} is about {} runs of {}", path.display(), summary.runs, log.display());
    holds(&verdict, settings)
}

/// Writes a file in one step, for its owner alone as the log is.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

fn begin(partial: bool) -> Begin {
    if partial { Begin::Anywhere } else { Begin::AtTheFirst }
}

fn verify(partial: bool, as_json: bool, settings: &Settings) -> Result<(), Failure> {
    let begin = begin(partial);
    let verdict = Journal::verify(&settings.audit_log, &settings.state, begin)?;
    let log = settings.audit_log.display();
    if as_json {
        let mut answer = json!(verdict);
        answer["log"] = json!(settings.audit_log);
        answer["holds"] = json!(verdict.findings.is_empty());
        show::print_json(&answer);
    } else {
        for finding in &verdict.findings {
            match finding.place.line {
                0 => outln!("{log}: {}", finding.what),
                line => outln!("{} line {line}: {}", finding.place.file.display(), finding.what),
            }
        }
        if verdict.more > 0 {
            outln!("{} more", verdict.more);
        }
        for place in &verdict.torn {
            outln!("{} line {}: torn by a crash, and the chain holds over it", place.file.display(), place.line);
        }
        let range =
            verdict.first.zip(verdict.last).map_or(String::new(), |(first, last)| format!(", {first} to {last}"));
        let holds = if verdict.findings.is_empty() { ": the chain holds" } else { "" };
        outln!("{log}: {} entries{range}, in {} file(s){holds}", verdict.entries, verdict.files);
    }
    holds(&verdict, settings)
}

/// That nothing is wrong with a chain.
fn holds(verdict: &Verdict, settings: &Settings) -> Result<(), Failure> {
    let log = settings.audit_log.display();
    if verdict.findings.is_empty() {
        return Ok(());
    }
    let findings = verdict.findings.len() as u64 + verdict.more;
    let begins_later =
        matches!(verdict.findings.first(), Some(first) if matches!(first.what, Wrong::Removed { first: 1, .. }));
    Err(Failure::new(exit::FINDINGS, format!("the audit log {log} is not as smcp wrote it: {findings} finding(s)")).hint(
        match begins_later {
            true => "`smcp audit verify --partial` begins with the first entry there is, where older files were moved elsewhere",
            false => "a power failure can take the last entries; anything else is the work of whoever could write that file",
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_days_moments_or_spans() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(since("2026-01-31").ok(), Some(at("2026-01-31T00:00:00Z")));
        assert_eq!(since("2026-01-31T12:30:00+02:00").ok(), Some(at("2026-01-31T10:30:00Z")));
        let hour = Timestamp::now().duration_since(since("1h").unwrap()).as_secs();
        assert!((3590..=3600).contains(&hour), "{hour}");
        for wrong in ["", "yesterday", "2026-13-01", "2026-01-31T99:00:00Z", "-5m"] {
            let failure = since(wrong).unwrap_err();
            assert!(failure.code == exit::USAGE && failure.hint.is_some(), "{wrong}");
        }
    }
}
