//! A client of smcp's own: it greets a server in both eras and asks for all that it offers.

use std::io::{PipeWriter, Write, pipe};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memchr::memchr;
use runtime::journal::Ending;
use runtime::system::{AsFd, Errno, OwnedFd, PollFd, PollFlags, Timespec, poll, read};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::handshake::{Answer, Change, Heard, Item, Kind, List, Lists, MOST_HELD, hear};
use crate::relay::Client;

/// The client: a thread at the other ends of two pipes, which the relay has in the place of standard input and output.
pub struct Questioner {
    stdin: OwnedFd,
    stdout: OwnedFd,
    thread: JoinHandle<Result<Offer, Trouble>>,
}

impl Questioner {
    /// Starts it. Nothing is forked from here on.
    ///
    /// # Errors
    /// Where there are no pipes.
    pub fn start(questions: Questions) -> Result<Questioner, Failure> {
        let pipes = || std::io::Result::Ok((pipe()?, pipe()?));
        let ((stdin, to), (from, stdout)) =
            pipes().map_err(|why| Failure::new(exit::CAGE, Trouble::Machine(why.to_string()).to_string()))?;
        let (stdin, from, stdout) = (OwnedFd::from(stdin), OwnedFd::from(from), OwnedFd::from(stdout));
        let thread =
            thread::spawn(move || Conversation { to, from, held: Vec::new(), id: 0, era: Era::Older }.offer(questions));
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

/// What is asked beside the lists.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Questions {
    /// How it is greeted.
    pub opening: Opening,
    /// A tool that is called in the end.
    pub call: Option<Call>,
}

/// How a server is greeted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// By the newer era, and by the older one where that is not understood, as clients do.
    #[default]
    Either,
    /// By the older era.
    Older,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its name.
    pub tool: String,
    /// An object.
    pub arguments: Value,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// By this result.
    Result(Value),
    /// By an error of the protocol: its code and message.
    Error(i64, String),
}

/// What a server offers.
#[derive(Debug, Default)]
pub struct Offer {
    /// `server/discover` or `initialize`.
    pub handshake: &'static str,
    /// The revision that both speak.
    pub protocol: String,
    /// What it says of itself.
    pub server: Value,
    /// What it listed.
    pub lists: Lists,
    /// What of that cannot be compared.
    pub unreadable: Vec<Change>,
    /// How the call ended that was to be made.
    pub called: Option<Outcome>,
}

/// Why a server could not be asked.
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
    /// Makes it the end of the run, which has none of its own.
    pub fn end(&self, ending: &mut Ending) {
        if ending.error.is_none() {
            let is_over = matches!(self, Trouble::Ended(_));
            let ended = if is_over { format!(", with exit code {}", ending.exit) } else { String::new() };
            ending.error = Some(format!("{self}{ended}"));
            ending.exit = self.code();
        }
    }

    fn code(&self) -> u8 {
        match self {
            Trouble::Silent(..) => exit::TIMEOUT,
            Trouble::Ended(_) | Trouble::Refused(..) | Trouble::Endless(_) => exit::PROTOCOL,
            Trouble::Machine(_) => exit::CAGE,
        }
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
/// What opens a session of the newer era.
pub const DISCOVER: &str = "server/discover";
/// The same of the older one.
pub const INITIALIZE: &str = "initialize";
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
    from: OwnedFd,
    /// What came and is no whole line yet.
    held: Vec<u8>,
    id: u64,
    era: Era,
}

impl Conversation {
    /// Greets the server and asks for all of its lists. Its end closes the server's stdin.
    fn offer(mut self, questions: Questions) -> Result<Offer, Trouble> {
        let (handshake, greeting) = match questions.opening {
            Opening::Either => self.greet()?,
            Opening::Older => self.initialize()?,
        };
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
        offer.called = questions.call.map(|call| self.call(call)).transpose()?;
        Ok(offer)
    }

    /// By the newer era's question, and where that is not understood by the older one's, on the same pipe as clients do.
    fn greet(&mut self) -> Result<(&'static str, Value), Trouble> {
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
        self.initialize()
    }

    /// By the older era.
    fn initialize(&mut self) -> Result<(&'static str, Value), Trouble> {
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

    /// Calls a tool. An error of the protocol is how it ended, too.
    fn call(&mut self, call: Call) -> Result<Outcome, Trouble> {
        match self.ask("tools/call", json!({"name": call.tool, "arguments": call.arguments}), PATIENCE) {
            Ok(answer) => Ok(Outcome::Result(answer.value().unwrap_or_default())),
            Err(Trouble::Refused(_, code, message)) => Ok(Outcome::Error(code, message)),
            Err(trouble) => Err(trouble),
        }
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
                        _ => b",\"error\":{\"code\":-32601,\"message\":\"smcp only asks\"}}\n",
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
                Ok(_) | Err(Errno::INTR) => {}
                Err(why) => return Err(Trouble::Machine(why.to_string())),
            }
            let mut bytes = vec![0; 64 << 10];
            match read(&self.from, &mut bytes[..]) {
                Ok(0) => return Err(Trouble::Ended(about)),
                Ok(count) => self.held.extend_from_slice(&bytes[..count]),
                Err(Errno::INTR) => {}
                Err(why) => return Err(Trouble::Machine(why.to_string())),
            }
        }
    }
}
