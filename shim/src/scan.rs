//! `smcp scan`: what a package offers, asked of it in a cage without network, without secrets and without anything that lasts, and
//! compared with what was accepted of it.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bundle::policy::{Policy, Source, Sourced};
use bundle::{EnvFlag, NetworkCeiling, Package, Request};
use distribution::{Digest, Resolved, Secret};
use memchr::memchr;
use runtime::journal::{self, Ending};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use tempfile::TempDir;
use ulid::Ulid;

use crate::cli;
use crate::exit::{self, Failure};
use crate::handshake::{Answer, Change, Heard, Item, Kind, List, Lists, MOST_HELD, canonical, hear, hidden};
use crate::pins::Place;
use crate::relay::Client;
use crate::run::{self, Errand};
use crate::settings::Settings;
use crate::show::{self, outln};
use crate::verdict::Verdict;

/// Scans a package and prints what was found; the exit code is 0, or 1 for findings, or that of a run.
pub fn scan(typed: &cli::Scan, settings: Result<Settings, Failure>) -> u8 {
    let flags = match cli::Run::of(&typed.reference, &typed.arguments) {
        Ok(flags) => flags,
        Err(error) => return Failure::new(exit::USAGE, error.to_string()).print(),
    };
    let mut scan = Scan::default();
    let code = run::run_as(&flags, settings, journal::new_run(), None, Errand::Scan(&mut scan));
    if let Some(report) = &scan.report {
        match typed.json {
            true => show::print_json(&report.json()),
            false => report.print(),
        }
    }
    code
}

/// A scan under way.
#[derive(Default)]
pub struct Scan {
    home: Option<TempDir>,
    /// Required variables that got a value of no meaning.
    stand_ins: Vec<String>,
    report: Option<Report>,
}

/// What required variables get for which a user would give a value.
const STAND_IN: &str = "smcp-scan";

impl Scan {
    /// Of policy: nothing of the network is granted.
    pub fn policy(flags: Policy) -> Policy {
        let nothing = Sourced { value: Vec::new(), source: Source::Flag("smcp scan") };
        let mut scan = Policy::default();
        scan.ceilings.network = NetworkCeiling::new(Some(nothing), Vec::new());
        flags.together(scan)
    }

    /// A directory of the state that goes with the scan, for what would last.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn states(&mut self, settings: &Settings) -> Result<std::path::PathBuf, Failure> {
        let make = || {
            std::fs::create_dir_all(&settings.state)?;
            tempfile::Builder::new().prefix("scan-").tempdir_in(&settings.state)
        };
        let home = make().map_err(|why| {
            Failure::new(exit::CAGE, format!("no directory for the scan in {}: {why}", settings.state.display()))
        })?;
        Ok(self.home.insert(home).path().to_owned())
    }

    /// Gives required variables a value of no meaning.
    pub fn stand_in(&mut self, request: &mut Request, package: &Package) {
        let missing = package.manifest.env.iter().filter(|spec| spec.required && spec.default.is_none());
        for spec in missing {
            self.stand_ins.push(spec.name.clone());
            request.env.push(EnvFlag { name: spec.name.clone(), value: Some(Secret::new(STAND_IN)) });
        }
    }

    /// Takes what the server said, and makes it the end of the run.
    ///
    /// # Errors
    /// Where what was accepted cannot be read, or what was seen not be written.
    pub fn end(
        &mut self,
        heard: Result<Offer, Trouble>,
        verdict: &Verdict,
        resolved: &Resolved,
        place: &Place,
        run: Ulid,
        ending: &mut Ending,
    ) -> Result<(), Failure> {
        let offer = match heard {
            Ok(offer) => offer,
            Err(trouble) => {
                if ending.error.is_none() {
                    let code = ending.exit;
                    let is_over = matches!(trouble, Trouble::Ended(_));
                    let ended = if is_over { format!(", with exit code {code}") } else { String::new() };
                    ending.error = Some(format!("{trouble}{ended}"));
                    ending.exit = trouble.code();
                }
                return Ok(());
            }
        };
        let report = compare(offer, resolved, verdict, place, run, std::mem::take(&mut self.stand_ins))?;
        ending.exit = if report.has_findings() { exit::FINDINGS } else { exit::OK };
        if report.has_findings() {
            ending.cause = "findings";
        }
        self.report = Some(report);
        Ok(())
    }
}

/// Holds what is offered to what was accepted or certified, and keeps what differs for `smcp accept`.
fn compare(
    offer: Offer,
    resolved: &Resolved,
    verdict: &Verdict,
    place: &Place,
    run: Ulid,
    stand_ins: Vec<String>,
) -> Result<Report, Failure> {
    let certified = &verdict.judgement.standing.tools;
    let accepted = place.accepted()?;
    let (mut changes, mut states) = (offer.unreadable.clone(), Vec::new());
    for kind in Kind::ALL {
        let none = List::default();
        let list = offer.lists.get(&kind).unwrap_or(&none);
        let certified = certified.as_ref().filter(|_| kind == Kind::Tools);
        let mut new = Vec::new();
        let is_unreadable = offer.unreadable.iter().any(|change| change.kind() == kind);
        let state = match (certified, accepted.get(&kind)) {
            _ if is_unreadable => "cannot be compared",
            (Some(certified), _) if list.digest() == *certified => {
                place.keep(run, kind, list.clone(), true)?;
                "certified"
            }
            (Some(certified), _) => {
                new.push(Change::NotCertified { kind, is: list.digest(), certified: certified.clone() });
                "not as certified"
            }
            (None, Some(known)) => {
                new = known.list.changes(kind, list, known.other_version.is_none());
                if new.is_empty() { "accepted" } else { "not as accepted" }
            }
            (None, None) => "not accepted yet",
        };
        let is_to_be_kept = !new.is_empty() || (!accepted.contains_key(&kind) && !list.is_empty());
        if certified.is_none() && is_to_be_kept && !is_unreadable {
            place.keep_seen(run, kind, list.clone(), true)?;
        }
        changes.extend(new);
        states.push((kind, state));
    }
    let hidden = offer.lists.iter().flat_map(|(kind, list)| hidden(*kind, list)).collect();
    let (name, digest) = (resolved.name.clone(), resolved.descriptor.digest.clone());
    Ok(Report { name, digest, certified: certified.clone(), stand_ins, offer, states, changes, hidden })
}

/// What a server offers.
#[derive(Debug, Default)]
pub struct Offer {
    /// `server/discover` or `initialize`.
    handshake: &'static str,
    protocol: String,
    server: Value,
    lists: Lists,
    unreadable: Vec<Change>,
}

/// What a scan comes to.
struct Report {
    name: String,
    digest: Digest,
    certified: Option<Digest>,
    stand_ins: Vec<String>,
    offer: Offer,
    /// Of each kind, what it is to what was accepted.
    states: Vec<(Kind, &'static str)>,
    changes: Vec<Change>,
    hidden: Vec<String>,
}

impl Report {
    fn has_findings(&self) -> bool {
        !self.changes.is_empty() || !self.hidden.is_empty()
    }

    fn print(&self) {
        outln!("package    {}", self.name);
        outln!("digest     {}", self.digest);
        outln!("protocol   {} by {}", self.offer.protocol, self.offer.handshake);
        self.stand_ins.iter().for_each(|name| outln!("variable   {name} has a stand-in for its value"));
        for (kind, state) in &self.states {
            let none = List::default();
            let list = self.offer.lists.get(kind).unwrap_or(&none);
            let state = if list.is_empty() && *state == "not accepted yet" { "" } else { *state };
            outln!("{:<18} {:>4}  {}  {state}", kind.words().1, list.len(), list.digest());
            list.items().for_each(|(name, value)| outln!("  {name:<40} {}", Digest::of(canonical(value))));
        }
        self.changes.iter().flat_map(Change::lines).for_each(|line| outln!("{line}"));
        self.hidden.iter().for_each(|line| outln!("! {line}"));
    }

    fn json(&self) -> Value {
        let list = |(kind, state): &(Kind, &str)| {
            let none = List::default();
            let list = self.offer.lists.get(kind).unwrap_or(&none);
            let item = |(name, value): (&str, &Value)| json!({"name": name, "digest": Digest::of(canonical(value)), "is": value});
            let items: Vec<Value> = list.items().map(item).collect();
            (kind.member().to_owned(), json!({"digest": list.digest(), "state": state, "items": items}))
        };
        let changes: Vec<String> = self.changes.iter().flat_map(Change::lines).collect();
        json!({
            "name": self.name, "digest": self.digest, "handshake": self.offer.handshake, "protocol": self.offer.protocol,
            "server": self.offer.server, "certified": self.certified, "stand_ins": self.stand_ins,
            "lists": self.states.iter().map(list).collect::<serde_json::Map<_, _>>(),
            "changes": changes, "hidden": self.hidden,
        })
    }
}

/// Why a server could not be scanned.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Trouble {
    /// It ended.
    #[error("the server ended before it answered {0}")]
    Ended(&'static str),
    /// It said nothing for as long as is waited.
    #[error("the server did not answer {0} within {1} s")]
    Silent(&'static str, u64),
    /// It answered by an error.
    #[error("the server answered {0} by error {1}: {2:?}")]
    Refused(&'static str, i64, String),
    /// What it lists has no end, or is too large.
    #[error("what the server lists by {0} has no end, or is more than {limit} MiB", limit = MOST_HELD >> 20)]
    Endless(&'static str),
    /// There are no pipes or threads for it.
    #[error("the server cannot be asked: {0}")]
    Machine(String),
}

impl Trouble {
    fn code(&self) -> u8 {
        match self {
            Trouble::Silent(..) => exit::TIMEOUT,
            Trouble::Ended(_) | Trouble::Refused(..) | Trouble::Endless(_) => exit::PROTOCOL,
            Trouble::Machine(_) => exit::CAGE,
        }
    }
}

/// The client of a scan: a thread at the other ends of two pipes, which the relay has in the place of standard input and output.
pub struct Questioner {
    stdin: PipeReader,
    stdout: PipeWriter,
    thread: JoinHandle<Result<Offer, Trouble>>,
}

impl Questioner {
    /// Starts it. Nothing is forked from here on.
    ///
    /// # Errors
    /// Where there are no pipes.
    pub fn start() -> Result<Questioner, Failure> {
        let pipes = || std::io::Result::Ok((pipe()?, pipe()?));
        let ((stdin, to), (from, stdout)) =
            pipes().map_err(|why| Failure::new(exit::CAGE, Trouble::Machine(why.to_string()).to_string()))?;
        let thread = thread::spawn(move || Conversation { to, from, held: Vec::new(), id: 0, era: Era::Older }.offer());
        Ok(Questioner { stdin, stdout, thread })
    }

    /// The client's descriptors.
    pub fn client(&self) -> Client<'_> {
        Client { stdin: self.stdin.as_fd(), stdout: self.stdout.as_fd(), ..Client::of_this_process() }
    }

    /// What it heard, once the relay is done.
    ///
    /// # Errors
    /// Why it heard nothing.
    pub fn end(self) -> Result<Offer, Trouble> {
        let Questioner { stdin, stdout, thread } = self;
        drop((stdin, stdout));
        thread.join().unwrap_or_else(|_| Err(Trouble::Machine("its thread ended".into())))
    }
}

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the answer to a question that many servers do not know is.
const PROBE: Duration = Duration::from_secs(5);
/// The most pages of a list.
const MOST_PAGES: usize = 1000;
/// JSON-RPC 2.0: there is no such method.
const NO_METHOD: i64 = -32601;
/// The revision of the newer era, and the newest of the older one.
const NEWER: &str = "2026-07-28";
const OLDER: &str = "2025-11-25";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    /// `initialize` opens it.
    Older,
    /// Version and capabilities ride in each request.
    Newer,
}

struct Conversation {
    to: PipeWriter,
    from: PipeReader,
    /// What came and is no whole line yet.
    held: Vec<u8>,
    id: u64,
    era: Era,
}

impl Conversation {
    /// Greets the server and asks for all of its lists. Its end closes the server's stdin.
    fn offer(mut self) -> Result<Offer, Trouble> {
        let (handshake, greeting) = self.greet()?;
        let protocol = match self.era {
            Era::Newer => NEWER.to_owned(),
            Era::Older => greeting["protocolVersion"].as_str().unwrap_or_default().to_owned(),
        };
        let meta = &greeting["_meta"]["io.modelcontextprotocol/serverInfo"];
        let server = if greeting["serverInfo"].is_null() { meta.clone() } else { greeting["serverInfo"].clone() };
        let mut offer = Offer { handshake, protocol, server, ..Offer::default() };
        for kind in Kind::ALL {
            let capability = if kind == Kind::ResourceTemplates { "resources" } else { kind.member() };
            let is_declared = greeting["capabilities"].get(capability).is_some();
            self.list(kind, is_declared, &mut offer)?;
        }
        Ok(offer)
    }

    /// By the newer era's question, and where that is not understood by the older one's, on the same pipe as clients do.
    fn greet(&mut self) -> Result<(&'static str, Value), Trouble> {
        const DISCOVER: &str = "server/discover";
        const INITIALIZE: &str = "initialize";
        self.era = Era::Newer;
        match self.ask(DISCOVER, json!({}), PROBE) {
            Ok(answer) => {
                let greeting = answer.value().unwrap_or_default();
                let versions = greeting["supportedVersions"].as_array();
                if versions.is_some_and(|versions| versions.iter().any(|version| version == NEWER)) {
                    return Ok((DISCOVER, greeting));
                }
            }
            Err(Trouble::Refused(..) | Trouble::Silent(..)) => {}
            Err(trouble) => return Err(trouble),
        }
        self.era = Era::Older;
        let own = json!({"name": "smcp", "version": env!("CARGO_PKG_VERSION")});
        let about = json!({"protocolVersion": OLDER, "capabilities": {}, "clientInfo": own});
        let greeting = self.ask(INITIALIZE, about, PATIENCE)?.value().unwrap_or_default();
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), INITIALIZE)?;
        Ok((INITIALIZE, greeting))
    }

    /// All pages of a list. What a server neither declares nor knows is no list.
    fn list(&mut self, kind: Kind, is_declared: bool, offer: &mut Offer) -> Result<(), Trouble> {
        let (mut list, mut cursor, mut bytes) = (List::default(), None::<String>, 0);
        for _ in 0..MOST_PAGES {
            let params = cursor.take().map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let answer = match self.ask(kind.method(), params, PATIENCE) {
                Ok(answer) => answer,
                Err(Trouble::Refused(_, NO_METHOD, _)) => return Ok(()),
                Err(Trouble::Refused(..)) if !is_declared => return Ok(()),
                Err(trouble) => return Err(trouble),
            };
            bytes += answer.size();
            if bytes > MOST_HELD {
                break;
            }
            let page = answer.page(kind);
            let unreadable = |why| Change::Unreadable { kind, why };
            let added = page.items.into_iter().map(|item| item.and_then(|item: Item| list.add(item)));
            offer.unreadable.extend(added.filter_map(Result::err).map(unreadable));
            cursor = page.next;
            if cursor.is_none() {
                offer.lists.insert(kind, list);
                return Ok(());
            }
        }
        Err(Trouble::Endless(kind.method()))
    }

    /// Asks, and waits for the answer; answers what the server asks meanwhile.
    fn ask(&mut self, method: &'static str, mut params: Value, patience: Duration) -> Result<Answer, Trouble> {
        self.id += 1;
        if self.era == Era::Newer {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": NEWER,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "smcp", "version": env!("CARGO_PKG_VERSION")},
            });
        }
        self.say(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}), method)?;
        let deadline = Instant::now() + patience;
        loop {
            let Some(line) = self.line(method, deadline)? else {
                return Err(Trouble::Silent(method, patience.as_secs()));
            };
            match hear(&line, self.id) {
                Heard::Result(answer) => return Ok(answer),
                Heard::Error(code, message) => return Err(Trouble::Refused(method, code, message)),
                Heard::Question(id, asked) => {
                    let answer = match asked.as_str() {
                        "ping" => &b",\"result\":{}}\n"[..],
                        _ => b",\"error\":{\"code\":-32601,\"message\":\"smcp scan only asks\"}}\n",
                    };
                    let line = [b"{\"jsonrpc\":\"2.0\",\"id\":", &id[..], answer].concat();
                    self.to.write_all(&line).map_err(|_| Trouble::Ended(method))?;
                }
                Heard::Other => {}
            }
        }
    }

    fn say(&mut self, message: &Value, about: &'static str) -> Result<(), Trouble> {
        self.to.write_all(format!("{message}\n").as_bytes()).map_err(|_| Trouble::Ended(about))
    }

    /// The next line; none where it does not come in time.
    fn line(&mut self, about: &'static str, deadline: Instant) -> Result<Option<Vec<u8>>, Trouble> {
        let mut searched = 0;
        loop {
            if let Some(end) = memchr(b'\n', &self.held[searched..]) {
                return Ok(Some(self.held.drain(..=searched + end).collect()));
            }
            searched = self.held.len();
            if searched > MOST_HELD {
                return Err(Trouble::Endless(about));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.from, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => return Err(Trouble::Machine(why.to_string())),
            }
            let mut bytes = vec![0; 64 << 10];
            match self.from.read(&mut bytes) {
                Ok(0) => return Err(Trouble::Ended(about)),
                Ok(count) => self.held.extend_from_slice(&bytes[..count]),
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) => return Err(Trouble::Machine(why.to_string())),
            }
        }
    }
}
