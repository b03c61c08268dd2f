//! `smcp test`: whether a server does what is expected of it. It is started as `run` starts it, greeted in both eras of the protocol,
//! asked for its lists and, where that is wanted, to do something; what it says is compared with a file.
//!
//! Each session is a run in a process of its own (`smcp session`, which nobody types).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{Read, Write, read_to_string, stdin};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use distribution::system::OsStrExt as _;
use distribution::{Digest, Resolved};
use runtime::journal::{self, Ending};
use runtime::system::{Signal, bind, end_with_parent, own_command, parent};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli;
use crate::exit::{self, Failure};
use crate::handshake::{Change, Kind, List, Lists};
use crate::questioner::{Call, DISCOVER, INITIALIZE, Offer, Opening, Outcome, Questions, Trouble};
use crate::run::{self, Errand};
use crate::scan::throw_away;
use crate::settings::{Settings, read_small};
use crate::show::{self, outln, printable};

/// The word on the command line of the process that has a session.
pub const VERB: &str = "session";

/// Tests a package and prints the outcome; the exit code is 0, or 1 where something is not as expected, or that of a run that failed.
pub fn test(typed: &cli::Test, arguments: &[OsString]) -> u8 {
    tested(typed, arguments).unwrap_or_else(|failure| failure.print())
}

fn tested(typed: &cli::Test, arguments: &[OsString]) -> Result<u8, Failure> {
    if typed.run.dry_run {
        return Err(Failure::new(exit::USAGE, "--dry-run: a test starts a server")
            .hint("smcp run --dry-run shows what its cage would be"));
    }
    let call = call(typed)?;
    let expected = typed.expect.as_deref().map(Expected::read).transpose()?;
    let began = Instant::now();
    let (code, first) = session(arguments, Questions { opening: Opening::Either, call: call.clone() })?;
    let (code, second) = match &first {
        Heard::Offer(seen) if seen.handshake == DISCOVER => {
            let (other, heard) = session(arguments, Questions { opening: Opening::Older, call: None })?;
            let is_of_one_era = matches!(heard, Heard::Refused(_));
            (if is_of_one_era { code } else { other }, Some(heard))
        }
        _ => (code, None),
    };
    let report = Report::of(code, first, second, call, expected.as_ref());
    if let (None, Some(path), Some(seen)) = (report.failed, &typed.write_expect, report.seen.first()) {
        let text = format!("{:#}\n", json!(Expected::of(seen, &report.seen, report.call.as_ref())));
        fs::write(path, text).map_err(|why| in_file("--write-expect", path, &why))?;
    }
    if let Some(path) = &typed.junit {
        let text = report.junit(typed.run.reference(), began.elapsed());
        fs::write(path, text).map_err(|why| in_file("--junit", path, &why))?;
    }
    match typed.run.json {
        true => show::print_json(&report.json()),
        false => report.print(),
    }
    Ok(report.code())
}

fn call(typed: &cli::Test) -> Result<Option<Call>, Failure> {
    let Some(tool) = typed.call.clone() else { return Ok(None) };
    let arguments = match typed.args.as_deref().map(serde_json::from_str) {
        None => json!({}),
        Some(Ok(arguments @ Value::Object(_))) => arguments,
        Some(Ok(_)) => return Err(Failure::new(exit::USAGE, "--args: arguments are a JSON object").hint(EXAMPLE)),
        Some(Err(why)) => return Err(Failure::new(exit::USAGE, format!("--args: {why}")).hint(EXAMPLE)),
    };
    Ok(Some(Call { tool, arguments }))
}

const EXAMPLE: &str = r#"such as --args '{"path": "/tmp"}'"#;

fn in_file(flag: &str, path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit::USAGE, format!("{flag} {}: {why}", path.display()))
}

/// Has a session with the server, in a process of its own: its exit code and what was heard.
fn session(arguments: &[OsString], questions: Questions) -> Result<(u8, Heard), Failure> {
    let fail = |why: &dyn std::fmt::Display| Failure::new(exit::CAGE, format!("a session cannot be had: {why}"));
    let words = arguments.iter().map(|word| word.as_bytes().to_owned()).collect();
    let order =
        serde_json::to_vec(&Order { parent: std::process::id(), words, questions }).map_err(|why| fail(&why))?;
    let mut child =
        own_command().arg(VERB).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|why| fail(&why))?;
    let _bond = bind(&child).map_err(|why| fail(&why))?;
    // Not on its command line, which every user can read.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(&order));
    let mut said = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut said));
    let ended = child.wait().map_err(|why| fail(&why))?;
    written.and(read.map(drop)).map_err(|why| fail(&why))?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::CAGE);
    Ok((code, serde_json::from_slice(&said).unwrap_or(Heard::Nothing)))
}

/// What the process of a session is told, on stdin.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// Who tells it.
    parent: u32,
    /// The whole command line.
    words: Vec<Vec<u8>>,
    questions: Questions,
}

impl Order {
    /// Reads it.
    ///
    /// # Errors
    /// Where there is none.
    pub fn read() -> Result<Order, Failure> {
        let text = read_to_string(stdin()).unwrap_or_default();
        let order = serde_json::from_str(&text);
        order.map_err(|_| Failure::new(exit::USAGE, "`smcp session` is started by smcp itself"))
    }

    /// The command line that it is about.
    pub fn words(&self) -> Vec<OsString> {
        self.words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect()
    }

    /// Has the session, and tells on stdout what was heard.
    pub fn follow(self, typed: &cli::Test, settings: Result<Settings, Failure>) -> u8 {
        // Whoever ends the test ends the run, also one that has not begun.
        let _ = end_with_parent(Signal::TERM);
        if parent() != Some(self.parent) {
            return exit::SIGNAL + 15;
        }
        // Nobody but smcp waits for an answer on stdout.
        let flags = cli::Run { relay: Some(cli::Relay::Direct), ..typed.run.clone() };
        let mut session = Session { questions: self.questions, home: None, heard: Heard::Nothing };
        let code = run::run_as(&flags, settings, journal::new_run(), None, Errand::Test(&mut session));
        let told = serde_json::to_writer(std::io::stdout(), &session.heard);
        if told.is_err() { exit::CAGE } else { code }
    }
}

/// A session under way.
pub struct Session {
    /// What is asked; taken once it begins.
    pub questions: Questions,
    home: Option<TempDir>,
    heard: Heard,
}

impl Session {
    /// A directory of the state that goes with the session, for what would last.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn states(&mut self, settings: &Settings) -> Result<PathBuf, Failure> {
        Ok(self.home.insert(throw_away(settings)?).path().to_owned())
    }

    /// Takes what the server said, and makes it the end of the run.
    pub fn end(&mut self, heard: Result<Offer, Trouble>, resolved: &Resolved, ending: &mut Ending) {
        self.heard = match heard {
            Ok(offer) => {
                ending.exit = exit::OK;
                Heard::Offer(Seen::of(offer, resolved))
            }
            Err(trouble) => {
                trouble.end(ending);
                let why = ending.error.clone().unwrap_or_default();
                if let Trouble::Refused(INITIALIZE, ..) = trouble { Heard::Refused(why) } else { Heard::Trouble(why) }
            }
        };
    }
}

/// What a session came to.
#[derive(Serialize, Deserialize)]
enum Heard {
    /// Everything was asked and answered.
    Offer(Seen),
    /// The server does not take this handshake.
    Refused(String),
    /// Something else went wrong between smcp and the server.
    Trouble(String),
    /// There was no server to talk to; smcp has said why.
    Nothing,
}

/// What was seen in one session.
#[derive(Serialize, Deserialize)]
struct Seen {
    name: String,
    digest: Digest,
    /// `server/discover` or `initialize`.
    handshake: String,
    protocol: String,
    server: Value,
    lists: Lists,
    /// What of the lists cannot be compared, in words.
    unreadable: Vec<(Kind, String)>,
    called: Option<Outcome>,
}

impl Seen {
    fn of(offer: Offer, resolved: &Resolved) -> Seen {
        let lines = |change: &Change| change.lines().into_iter().map(|line| (change.kind(), line)).collect::<Vec<_>>();
        Seen {
            name: resolved.name.clone(),
            digest: resolved.descriptor.digest.clone(),
            handshake: offer.handshake.into(),
            protocol: offer.protocol,
            server: offer.server,
            lists: offer.lists,
            unreadable: offer.unreadable.iter().flat_map(lines).collect(),
            called: offer.called,
        }
    }

    fn list(&self, kind: Kind) -> List {
        self.lists.get(&kind).cloned().unwrap_or_default()
    }
}

/// The file of `--expect`: what it does not have is not compared.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// The revision that each handshake comes to; others are not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handshakes: Option<BTreeMap<String, String>>,
    /// What the server says of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<Value>,
    /// All that it lists, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lists: Option<Lists>,
    /// How calls end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<Called>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Called {
    tool: String,
    arguments: Value,
    outcome: Outcome,
}

impl Expected {
    fn read(path: &Path) -> Result<Expected, Failure> {
        let hint = "smcp test --write-expect FILE REF writes one";
        let text = read_small(path).map_err(|why| in_file("--expect", path, &why).hint(hint))?;
        serde_json::from_slice(&text).map_err(|why| in_file("--expect", path, &why).hint(hint))
    }

    fn of(first: &Seen, all: &[Seen], call: Option<&Call>) -> Expected {
        let handshakes = all.iter().map(|seen| (seen.handshake.clone(), seen.protocol.clone())).collect();
        let called = call.cloned().zip(first.called.clone());
        let called = called.map(|(Call { tool, arguments }, outcome)| Called { tool, arguments, outcome });
        Expected {
            handshakes: Some(handshakes),
            server: Some(first.server.clone()),
            lists: Some(first.lists.clone()),
            calls: called.into_iter().collect(),
        }
    }
}

/// What a test comes to.
struct Report {
    /// Of a run that failed, which is the test's.
    failed: Option<u8>,
    /// Of each session that was had, the first in the newer era where the server knows it.
    seen: Vec<Seen>,
    call: Option<Call>,
    cases: Vec<Case>,
}

/// One thing that is as expected, or not.
struct Case {
    name: String,
    state: State,
    /// What was seen, or why it is not as expected.
    lines: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Passed,
    Failed,
    /// Nothing was expected, and there is nothing.
    Absent,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Passed => "passed",
            State::Failed => "failed",
            State::Absent => "absent",
        }
    }
}

impl Case {
    /// Passed where there is nothing against it.
    fn new(name: impl Into<String>, seen: impl Into<String>, against: Vec<String>) -> Case {
        match against.is_empty() {
            true => Case { name: name.into(), state: State::Passed, lines: vec![seen.into()] },
            false => Case { name: name.into(), state: State::Failed, lines: against },
        }
    }
}

impl Report {
    fn of(code: u8, first: Heard, second: Option<Heard>, call: Option<Call>, expected: Option<&Expected>) -> Report {
        let mut report = Report { failed: None, seen: Vec::new(), call, cases: Vec::new() };
        for heard in [Some(first), second].into_iter().flatten() {
            match heard {
                Heard::Offer(seen) => report.seen.push(seen),
                // A server of the newer era alone.
                Heard::Refused(_) if !report.seen.is_empty() => {}
                Heard::Refused(why) | Heard::Trouble(why) => report.fail(code, why),
                Heard::Nothing => report.fail(code, format!("smcp ended with {code}, and has said why")),
            }
        }
        if report.failed.is_none() {
            report.handshakes(expected);
            report.server(expected);
            Kind::ALL.into_iter().for_each(|kind| report.list(kind, expected));
            report.called(expected);
        }
        report
    }

    /// Of a run that came to nothing there is one case.
    fn fail(&mut self, code: u8, why: String) {
        self.failed = Some(if code == exit::OK { exit::CAGE } else { code });
        self.cases.push(Case::new("session", "", vec![why]));
    }

    fn handshakes(&mut self, expected: Option<&Expected>) {
        let expected = expected.and_then(|expected| expected.handshakes.as_ref());
        for method in [DISCOVER, INITIALIZE] {
            let name = format!("handshake by {method}");
            let seen = self.seen.iter().find(|seen| seen.handshake == method).map(|seen| seen.protocol.clone());
            let wanted = expected.map(|all| all.get(method));
            let against = match (&seen, wanted) {
                (Some(is), Some(Some(known))) if is != known => vec![format!("comes to {is:?}, in place of {known:?}")],
                (Some(is), Some(None)) => vec![format!("comes to {is:?}, and is not expected")],
                (None, Some(Some(known))) => vec![format!("is not taken, and {known:?} is expected")],
                _ => Vec::new(),
            };
            let case = Case::new(name, seen.clone().unwrap_or_default(), against);
            let is_absent = seen.is_none() && case.state == State::Passed;
            self.cases.push(if is_absent { Case { state: State::Absent, lines: Vec::new(), ..case } } else { case });
        }
    }

    fn server(&mut self, expected: Option<&Expected>) {
        let Some(known) = expected.and_then(|expected| expected.server.as_ref()) else { return };
        let against = self.seen.iter().filter(|seen| !has(&seen.server, known));
        let against = against.map(|seen| format!("by {}: it is {}, in place of {known}", seen.handshake, seen.server));
        self.cases.push(Case::new("server", known.to_string(), against.collect()));
    }

    fn list(&mut self, kind: Kind, expected: Option<&Expected>) {
        let Some(first) = self.seen.first() else { return };
        let list = first.list(kind);
        let unreadable = self.seen.iter().flat_map(|seen| &seen.unreadable);
        let mut against: Vec<String> = unreadable.filter(|(of, _)| *of == kind).map(|(_, line)| line.clone()).collect();
        if let Some(lists) = expected.and_then(|expected| expected.lists.as_ref()) {
            let known = lists.get(&kind).cloned().unwrap_or_default();
            against.extend(known.changes(kind, &list, true).iter().flat_map(Change::lines));
            // Others take it that these come and go.
            if kind.comes_and_goes() {
                against.extend(named(kind, '-', &known, &list));
                against.extend(named(kind, '+', &list, &known));
            }
        }
        if let Some(second) = self.seen.get(1) {
            let other = second.list(kind);
            let lines = named(kind, '-', &list, &other).chain(named(kind, '+', &other, &list));
            against.extend(lines.map(|line| format!("by {}: {line}", second.handshake)));
        }
        let is_absent = against.is_empty() && !first.lists.contains_key(&kind);
        let case = Case::new(kind.words().1, list.len().to_string(), against);
        self.cases.push(if is_absent { Case { state: State::Absent, lines: Vec::new(), ..case } } else { case });
    }

    fn called(&mut self, expected: Option<&Expected>) {
        let (Some(call), Some(outcome)) = (&self.call, self.seen.first().and_then(|seen| seen.called.as_ref())) else {
            return;
        };
        let is_of_it = |known: &&Called| known.tool == call.tool && known.arguments == call.arguments;
        let known = expected.and_then(|expected| expected.calls.iter().find(is_of_it)).map(|known| &known.outcome);
        let against = match (known, outcome) {
            (Some(known), _) if has(&json!(outcome), &json!(known)) => Vec::new(),
            (Some(known), _) => vec![format!("ends by {}, in place of {}", json!(outcome), json!(known))],
            (None, Outcome::Error(code, message)) => vec![format!("ends by error {code}: {message:?}")],
            (None, Outcome::Result(result)) if result["isError"] == true => {
                vec![format!("the tool says that it failed: {}", result["content"])]
            }
            (None, Outcome::Result(_)) => Vec::new(),
        };
        let name = format!("call of {:?}", call.tool);
        self.cases.push(Case::new(
            name,
            if known.is_some() { "ends as expected" } else { "ends by a result" },
            against,
        ));
    }

    fn failures(&self) -> usize {
        self.cases.iter().filter(|case| case.state == State::Failed).count()
    }

    fn code(&self) -> u8 {
        self.failed.unwrap_or(if self.failures() == 0 { exit::OK } else { exit::FINDINGS })
    }

    fn print(&self) {
        if let Some(seen) = self.seen.first() {
            outln!("package    {}", seen.name);
            outln!("digest     {}", seen.digest);
        }
        for Case { name, state, lines } in &self.cases {
            match (state, lines.as_slice()) {
                (State::Passed, [seen]) => outln!("{:<10} {name}: {seen}", state.word()),
                _ => {
                    outln!("{:<10} {name}", state.word());
                    lines.iter().for_each(|line| outln!("  {line}"));
                }
            }
        }
    }

    fn json(&self) -> Value {
        let case = |case: &Case| json!({"name": case.name, "state": case.state.word(), "lines": case.lines});
        let first = self.seen.first();
        json!({
            "name": first.map(|seen| &seen.name), "digest": first.map(|seen| &seen.digest), "exit": self.code(),
            "cases": self.cases.iter().map(case).collect::<Vec<_>>(), "seen": self.seen,
        })
    }

    /// The form that CI systems read: a suite, a case for each thing.
    fn junit(&self, reference: &str, took: Duration) -> String {
        let (count, seconds) = (self.cases.len(), took.as_secs_f64());
        let absent = self.cases.iter().filter(|case| case.state == State::Absent).count();
        // What kept the server from being asked is no failure of a case.
        let (errors, failures) = if self.failed.is_some() { (self.failures(), 0) } else { (0, self.failures()) };
        let counts = format!(
            r#"tests="{count}" failures="{failures}" errors="{errors}" skipped="{absent}" time="{seconds:.3}""#
        );
        let mut text = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n");
        text += &format!("  <testsuite name=\"smcp test {}\" {counts}>\n", xml(reference));
        for Case { name, state, lines } in &self.cases {
            let named = format!("    <testcase classname=\"{}\" name=\"{}\"", xml(reference), xml(name));
            let element = if self.failed.is_some() { "error" } else { "failure" };
            let message = xml(lines.first().map_or("", String::as_str));
            let all = xml(&lines.join("\n"));
            text += &match state {
                State::Passed => format!("{named}/>\n"),
                State::Absent => format!("{named}><skipped/></testcase>\n"),
                State::Failed => format!("{named}><{element} message=\"{message}\">{all}</{element}></testcase>\n"),
            };
        }
        text + "  </testsuite>\n</testsuites>\n"
    }
}

/// A line for each item of a list that another one lacks.
fn named<'l>(kind: Kind, sign: char, list: &'l List, other: &'l List) -> impl Iterator<Item = String> + use<'l> {
    let names = list.items().map(|(name, _)| name).filter(|name| other.get(name).is_none());
    names.map(move |name| format!("{sign} {} {}", kind.words().0, json!(name)))
}

/// Whether a value has all that is known of it: of an object the members that are known.
fn has(value: &Value, known: &Value) -> bool {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) => {
            known.iter().all(|(name, known)| value.get(name).is_some_and(|value| has(value, known)))
        }
        (Value::Array(values), Value::Array(known)) => {
            values.len() == known.len() && values.iter().zip(known).all(|(value, known)| has(value, known))
        }
        _ => value == known,
    }
}

/// Text in an XML document, which has no control characters.
fn xml(text: &str) -> String {
    let text = printable(text);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_compared() {
        let value = json!({"a": 1, "b": [{"c": 2, "d": 3}]});
        for known in [json!({}), json!({"a": 1}), json!({"b": [{"c": 2}]}), value.clone()] {
            assert!(has(&value, &known), "{known}");
        }
        for known in [json!({"a": 2}), json!({"b": []}), json!({"b": [{"c": 3}]}), json!({"e": 1}), json!([])] {
            assert!(!has(&value, &known), "{known}");
        }
    }

    #[test]
    fn a_report_is_well_formed_whatever_a_server_says() {
        let mut report = Report { failed: None, seen: Vec::new(), call: None, cases: Vec::new() };
        report.cases.push(Case::new("a <b> & \"c\"", "", vec!["x\u{1b}]]>\ny".into()]));
        let text = report.junit("ref", Duration::from_millis(1500));
        let case = "<testcase classname=\"ref\" name=\"a &lt;b&gt; &amp; &quot;c&quot;\"><failure message=\"x\\u{1b}]]&gt;\n  y\">";
        assert!(
            text.contains(case) && text.contains("failures=\"1\" errors=\"0\" skipped=\"0\" time=\"1.500\""),
            "{text}"
        );
        report.fail(121, "denied".into());
        assert!(report.junit("ref", Duration::ZERO).contains("<error message=\"denied\">denied</error>"));
        assert_eq!(report.code(), 121);
    }
}
