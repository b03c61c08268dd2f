//! What the relay reads of the protocol: bytes in, bytes out, no reading or writing of its own.
//!
//! A warning that is due is spliced into the server's answers: into `instructions` of a handshake, and where policy says so
//! into descriptions of tools and the first result of one; or it is a notification beside them. Every other byte is the
//! server's, and nothing is written anew. Both eras of the protocol share one pipe: `initialize` and `server/discover` are
//! answered alike, in any order and as often as a client asks.
//!
//! A server that would hide the warning has these ways, each of which a test tries: an answer with another id, or before the
//! question; two answers; members that are there twice, spelled by `\u`; `null` in place of a text. So whatever a client may
//! take for the answer gets the text: any answer of a handshake's shape, each one of equal members.

mod asking;
mod calls;
mod edit;
mod id;
pub mod json;
pub mod lines;
mod lists;
mod pins;
mod rules;
#[cfg(test)]
mod tests;
mod warning;

use memchr::memchr;

pub use asking::{Answer, Heard, hear};
use calls::Calling;
pub use calls::{Called, Outcome};
use edit::Edits;
use id::Id;
use json::{Span, elements, means, members, unescaped};
use lines::Kind as Line;
pub use lists::{Change, Item, Kind, List, Lists, canonical, hidden, plain};
pub use pins::{Accepted, Found, Manner, Page, Pins, Words};
pub use rules::{Channels, Due, Duties, SERVER_ERROR, error};
pub use warning::{Warning, Why};

/// What is kept of one message, to be read as a whole. Clients in TypeScript take no more than 10 MiB.
pub const MOST_HELD: usize = 16 << 20;

/// The longest line that a server may write. It is passed on as it comes, but one without an end is no message.
pub const MOST_LINE: u64 = 256 << 20;

/// How many requests are remembered while they wait for an answer.
const MOST_ASKED: usize = 1024;

/// What stands before each line of a server's stdout that is no message, on stderr.
pub const STRAY: &[u8] = b"stray line on stdout: ";

/// What the bytes come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// For the server's stdin.
    pub to_server: Vec<u8>,
    /// For the client's stdout.
    pub to_client: Vec<u8>,
    /// For stderr: what is no message, with [`STRAY`] before each line.
    pub stray: Vec<u8>,
}

/// Whether the bytes that were given are what is to be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// They are, and there is no output.
    AsTheyCame,
    /// What is to be passed on is in the output.
    InOutput,
}

/// Why a run cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A line of the server's came to [`MOST_LINE`] without an end.
    EndlessLine,
    /// A message that rules on tools or pins have to be held against is larger than [`MOST_HELD`].
    TooLargeToJudge,
}

/// The state of a session.
#[derive(Debug)]
pub struct Handshake {
    duties: Duties,
    /// What was seen of the server's lists, where they are held to something.
    watch: Option<pins::Watch>,
    /// Calls of tools that are over, where they are recorded.
    called: Vec<Called>,
    /// Messages that were too large to be read for that.
    unread: u64,
    client: ClientLine,
    server: ServerLine,
    /// Requests whose answers matter.
    asked: Vec<Asked>,
    phase: Phase,
    /// The server answered something.
    answered: bool,
    /// A client of the older era has said that it is initialised: what that handshake can carry was carried.
    settled: bool,
    /// The result of a tool carried the warning.
    in_result: bool,
    /// A notification did.
    notified: bool,
    /// A server of the older era declared that it logs: its client takes notifications.
    logs: bool,
    /// The client has said all: every answer that is missing is awaited.
    ended: bool,
    /// So many of what is asked may be answered already.
    unseen: usize,
    /// A handshake could not carry it, so that other channels have to.
    missed: bool,
    strays: u64,
    line: u64,
    messages: u64,
    /// Answers of smcp's own, for the end of the line that is on its way to the client.
    later: Vec<u8>,
}

/// The last that was said before a client closed its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last<'b> {
    /// What the client said last.
    pub requests: &'b [u8],
    /// What the server said last after that.
    pub answers: &'b [u8],
    /// How many messages the server began between the two.
    pub unseen: u64,
}

/// A request that nobody has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its id, as the client wrote it.
    pub id: Vec<u8>,
    /// It is `server/discover`, after whose error a client may try `initialize`.
    pub probes: bool,
}

/// How far a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No client has taken an answer to a handshake for sure: each answer is looked at.
    Open,
    /// Answers are looked at while one is due that matters.
    Known,
}

/// A request that waits for its answer.
#[derive(Clone, Debug)]
struct Asked {
    id: Id,
    what: What,
    /// It wants messages of the level `warning`, in the way of 2026-07-28.
    listens: bool,
    /// Of a list, the page that it wants.
    cursor: Option<String>,
    /// Of a call that is recorded, which.
    call: Option<Box<Calling>>,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Initialize,
    Discover,
    List(Kind),
    Call,
    Other,
}

/// Where the client's bytes are.
#[derive(Debug)]
enum ClientLine {
    /// In a line of which this much is there.
    Read(Vec<u8>),
    /// In a line that is not read.
    Skipped,
}

/// Where the server's bytes are.
#[derive(Debug)]
enum ServerLine {
    /// At the beginning of a line, of which this much is there.
    Beginning(Vec<u8>),
    /// In a message that is passed on as it comes.
    Message,
    /// The same, and this much of it is there to be read once it is whole.
    Read(Vec<u8>),
    /// In a message that is read as a whole, of which this much is there.
    Held(Vec<u8>),
    /// In a line that is no message.
    Stray,
}

impl Default for Handshake {
    fn default() -> Handshake {
        Handshake::new(Duties::default())
    }
}

impl Handshake {
    /// At the beginning of a session.
    pub fn new(mut duties: Duties) -> Handshake {
        Handshake {
            watch: duties.pins.take().map(pins::Watch::new),
            duties,
            called: Vec::new(),
            unread: 0,
            client: ClientLine::Read(Vec::new()),
            server: ServerLine::Beginning(Vec::new()),
            asked: Vec::new(),
            phase: Phase::Open,
            answered: false,
            settled: false,
            in_result: false,
            notified: false,
            logs: false,
            ended: false,
            unseen: 0,
            missed: false,
            strays: 0,
            line: 0,
            messages: 0,
            later: Vec::new(),
        }
    }

    /// Lines of the server that were no messages.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// Messages of the server.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether the server has answered anything by a result.
    pub fn has_answered(&self) -> bool {
        self.answered
    }

    /// What was found out about the server's lists since this was asked last.
    pub fn found(&mut self) -> Vec<Found> {
        self.watch.as_mut().map(pins::Watch::take).unwrap_or_default()
    }

    /// The calls of tools that are over since this was asked last, where they are recorded.
    pub fn called(&mut self) -> Vec<Called> {
        std::mem::take(&mut self.called)
    }

    /// Takes it that no answer comes any more. How many messages were too large to be read for what is recorded.
    pub fn calls_end(&mut self) -> u64 {
        let waiting = self.asked.iter_mut().filter_map(|asked| asked.call.take());
        self.called.extend(waiting.map(|call| call.over(Outcome::Unanswered)));
        self.unread
    }

    /// Whether the client has a part of a line, and waits for its end.
    pub fn is_within_a_line(&self) -> bool {
        matches!(self.server, ServerLine::Message | ServerLine::Read(_))
    }

    /// Whether requests wait for an answer. Once the client has said all, these are all that do.
    pub fn awaits(&self) -> bool {
        self.asked.len() > self.unseen
    }

    /// The requests that wait for an answer from a server that has answered nothing, in their order.
    pub fn unanswered(&self) -> Vec<Waiting> {
        let asked = self.asked.iter().filter(|_| !self.answered);
        asked.map(|asked| Waiting { id: asked.id.raw().to_owned(), probes: asked.what == What::Discover }).collect()
    }

    /// Takes bytes of the client.
    ///
    /// # Errors
    /// Where a message cannot be judged.
    pub fn client(&mut self, bytes: &[u8], out: &mut Output) -> Result<Passed, Broken> {
        let holds = self.holds();
        if !self.reads_requests() {
            return Ok(Passed::AsTheyCame);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (line, is_whole, after) = first_line(rest);
            rest = after;
            match &mut self.client {
                ClientLine::Read(held) if held.len() + line.len() > MOST_HELD => {
                    if holds {
                        return Err(Broken::TooLargeToJudge);
                    }
                    self.unread += u64::from(self.duties.calls);
                    self.client = if is_whole { ClientLine::Read(Vec::new()) } else { ClientLine::Skipped };
                }
                ClientLine::Read(held) if is_whole => {
                    let mut whole = std::mem::take(held);
                    let is_here = whole.is_empty();
                    whole.extend_from_slice(if is_here { &[] } else { line });
                    let line = if is_here { line } else { &whole };
                    if self.request(line, out) && holds {
                        out.to_server.extend_from_slice(line);
                    }
                }
                ClientLine::Read(held) => held.extend_from_slice(line),
                ClientLine::Skipped if is_whole => self.client = ClientLine::Read(Vec::new()),
                ClientLine::Skipped => {}
            }
        }
        Ok(if holds { Passed::InOutput } else { Passed::AsTheyCame })
    }

    /// Takes the end of the client's bytes: a last line may lack its end. What is not answered of its `last` words is awaited.
    pub fn client_ended(&mut self, last: &Last<'_>, out: &mut Output) {
        if let ClientLine::Read(held) = &mut self.client {
            let line = std::mem::take(held);
            if !line.is_empty() && self.request(&line, out) && self.holds() {
                out.to_server.extend_from_slice(&line);
            }
        }
        self.ended = true;
        let answered = ids(last.answers, |line, message| message.last(line, "method").is_none());
        for id in ids(last.requests, |line, message| message.last(line, "method").is_some()) {
            if !answered.iter().chain(self.asked.iter().map(|asked| &asked.id)).any(|known| known.is(&id)) {
                self.remember(Asked { id, what: What::Other, listens: false, cursor: None, call: None });
            }
        }
        self.unseen = last.unseen as usize;
    }

    /// Takes bytes of the server.
    ///
    /// # Errors
    /// Where a line has no end, or a message cannot be judged.
    pub fn server(&mut self, bytes: &[u8], out: &mut Output) -> Result<Passed, Broken> {
        // What is passed on as it is, up to here.
        let (mut from, mut at) = (0, 0);
        let mut as_they_came = true;
        while at < bytes.len() {
            let (line, is_whole, after) = first_line(&bytes[at..]);
            let end = bytes.len() - after.len();
            let passes = self.part(line, is_whole, out, &bytes[from..at])?;
            at = end;
            if !passes {
                from = at;
                as_they_came = false;
            }
        }
        if as_they_came {
            return Ok(Passed::AsTheyCame);
        }
        out.to_client.extend_from_slice(&bytes[from..]);
        Ok(Passed::InOutput)
    }

    /// Takes a part of a line, up to its end where it has one. Whether it is passed on as it is; else what it comes to is
    /// put out, after what is passed on `before`.
    fn part(&mut self, part: &[u8], is_whole: bool, out: &mut Output, before: &[u8]) -> Result<bool, Broken> {
        self.line += part.len() as u64;
        if self.line > MOST_LINE {
            return Err(Broken::EndlessLine);
        }
        if is_whole {
            self.line = 0;
        }
        let text = if is_whole { &part[..part.len() - 1] } else { part };
        if let ServerLine::Beginning(held) = &mut self.server {
            let held = std::mem::take(held);
            let joined;
            let beginning = if held.is_empty() {
                text
            } else {
                joined = [&held, text].concat();
                &joined
            };
            let kind = lines::kind(beginning).or(is_whole.then_some(Line::Stray));
            self.server = match kind {
                None => ServerLine::Beginning(beginning.to_owned()),
                Some(Line::Stray) => ServerLine::Stray,
                Some(Line::Message) if self.changes_answers() => ServerLine::Held(Vec::new()),
                Some(Line::Message) if self.reads_answers() => ServerLine::Read(Vec::new()),
                Some(Line::Message) => ServerLine::Message,
            };
            match kind {
                None => {
                    out.to_client.extend_from_slice(before);
                    return Ok(false);
                }
                Some(Line::Stray) => {
                    self.strays += 1;
                    out.stray.extend_from_slice(STRAY);
                }
                Some(Line::Message) => self.messages += 1,
            }
            if !held.is_empty() {
                out.to_client.extend_from_slice(before);
                let part = [&held, part].concat();
                if self.known(&part, is_whole, out, &[])? {
                    out.to_client.extend_from_slice(&part);
                }
                return Ok(false);
            }
        }
        self.known(part, is_whole, out, before)
    }

    /// Takes a part of a line that is known to be a message or stray.
    fn known(&mut self, part: &[u8], is_whole: bool, out: &mut Output, before: &[u8]) -> Result<bool, Broken> {
        let state = std::mem::replace(&mut self.server, ServerLine::Message);
        let next = if is_whole { Some(ServerLine::Beginning(Vec::new())) } else { None };
        match state {
            ServerLine::Message | ServerLine::Beginning(_) => {
                self.server = next.unwrap_or(ServerLine::Message);
                if !is_whole || self.later.is_empty() {
                    return Ok(true);
                }
                out.to_client.extend_from_slice(before);
                out.to_client.extend_from_slice(part);
                out.to_client.append(&mut self.later);
                Ok(false)
            }
            ServerLine::Read(mut copy) => {
                let is_read = copy.len() + part.len() <= MOST_HELD;
                if is_read && is_whole {
                    let is_here = copy.is_empty();
                    copy.extend_from_slice(if is_here { &[] } else { part });
                    // Nothing of it is changed: the client has it.
                    self.answer(if is_here { part } else { &copy });
                } else if is_read {
                    copy.extend_from_slice(part);
                    self.server = ServerLine::Read(copy);
                } else {
                    self.unread += 1;
                }
                // Answers of smcp's own come as after any message.
                if is_whole {
                    self.server = ServerLine::Message;
                    return self.known(part, true, out, before);
                }
                Ok(true)
            }
            ServerLine::Stray => {
                self.server = next.unwrap_or(ServerLine::Stray);
                out.to_client.extend_from_slice(before);
                out.stray.extend_from_slice(part);
                Ok(false)
            }
            ServerLine::Held(mut held) => {
                if held.len() + part.len() > MOST_HELD {
                    self.too_large()?;
                    self.server = next.unwrap_or(ServerLine::Message);
                    if held.is_empty() {
                        return Ok(true);
                    }
                    out.to_client.extend_from_slice(before);
                    out.to_client.extend_from_slice(&held);
                    out.to_client.extend_from_slice(part);
                    return Ok(false);
                }
                if !is_whole {
                    held.extend_from_slice(part);
                    self.server = ServerLine::Held(held);
                    out.to_client.extend_from_slice(before);
                    return Ok(false);
                }
                self.server = ServerLine::Beginning(Vec::new());
                let is_here = held.is_empty();
                held.extend_from_slice(if is_here { &[] } else { part });
                let whole = if is_here { part } else { &held };
                let edits = self.answer(whole);
                if edits.is_empty() && is_here {
                    return Ok(true);
                }
                out.to_client.extend_from_slice(before);
                edits.apply(whole, &mut out.to_client);
                Ok(false)
            }
        }
    }

    /// Takes the end of the server's bytes: a last line may lack its end.
    pub fn server_ended(&mut self, out: &mut Output) {
        match std::mem::replace(&mut self.server, ServerLine::Message) {
            ServerLine::Beginning(held) if held.iter().any(|byte| matches!(byte, b'{' | b'[')) => {
                out.to_client.extend(held);
            }
            ServerLine::Held(held) => {
                let edits = self.answer(&held);
                edits.apply(&held, &mut out.to_client);
            }
            ServerLine::Message => {}
            ServerLine::Read(copy) => drop(self.answer(&copy)),
            ServerLine::Stray => {
                out.stray.push(b'\n');
                self.server = ServerLine::Beginning(Vec::new());
            }
            ServerLine::Beginning(_) => self.server = ServerLine::Beginning(Vec::new()),
        }
    }

    /// Whether each request has to be judged before the server may have it.
    fn holds(&self) -> bool {
        self.duties.tools.is_some() || self.watch.as_ref().is_some_and(pins::Watch::blocks)
    }

    /// Whether requests still have to be read.
    fn reads_requests(&self) -> bool {
        let later = self.channels();
        self.phase == Phase::Open
            || self.duties.tools.is_some()
            || self.watch.is_some()
            || self.duties.calls
            || later.tools
            || (later.result && !self.in_result)
            || (!self.settled && (later.instructions || later.notification && !self.notified))
    }

    /// Whether something may have to be changed in the next answer, or put before it.
    fn changes_answers(&self) -> bool {
        self.phase == Phase::Open || self.ended || self.asked.iter().any(|asked| self.is_changed(asked))
    }

    /// Whether the next answer has to be read.
    fn reads_answers(&self) -> bool {
        self.phase == Phase::Open || !self.asked.is_empty()
    }

    /// By which ways the warning goes: of a package that nobody scored by few, unless these failed.
    fn channels(&self) -> Channels {
        match &self.duties.warning {
            None => Channels::default(),
            Some(due) if self.missed => due.otherwise,
            Some(due) => due.channels,
        }
    }

    /// A message that would be read is too large for that.
    fn too_large(&mut self) -> Result<(), Broken> {
        let awaits = |kinds: fn(Kind) -> bool| {
            self.asked.iter().any(|asked| matches!(asked.what, What::List(kind) if kinds(kind)))
        };
        let of_rules = self.duties.tools.is_some() && awaits(|kind| kind == Kind::Tools);
        let of_pins = self.watch.as_ref().is_some_and(pins::Watch::blocks) && awaits(|_| true);
        if of_rules || of_pins {
            return Err(Broken::TooLargeToJudge);
        }
        for asked in &self.asked {
            if let (Some(watch), What::List(kind)) = (&mut self.watch, asked.what) {
                watch.too_large(kind);
            }
        }
        self.unread += u64::from(self.asked.iter().any(|asked| asked.call.is_some()));
        self.missed |= self.awaits_handshake();
        Ok(())
    }

    fn awaits_handshake(&self) -> bool {
        self.asked.iter().any(|asked| asked.what.is_handshake())
    }

    /// Reads a line of the client. Whether the server may have it; else the client was answered.
    fn request(&mut self, line: &[u8], out: &mut Output) -> bool {
        let messages = messages(line);
        let tools = self.duties.tools.as_ref();
        let watch = self.watch.as_ref().filter(|watch| watch.blocks());
        let judge = |kind, name: &str| {
            let denied = tools.filter(|_| kind == Kind::Tools).and_then(|tools| rules::denied(tools, name));
            denied.or_else(|| watch.and_then(|watch| watch.refuses(kind, name)))
        };
        let unreadable = tools.and_then(|_| rules::unreadable(line, &messages));
        if self.holds()
            && let Some(answers) = unreadable.or_else(|| rules::refuse(line, &messages, judge))
        {
            let to = if self.is_within_a_line() { &mut self.later } else { &mut out.to_client };
            to.extend_from_slice(&answers);
            if self.duties.calls {
                let refused = messages.iter().filter(|message| calls::is_call(line, message));
                self.called.extend(refused.map(|message| Calling::of(line, message).refused()));
            }
            return false;
        }
        for message in &messages {
            self.one_request(line, message);
        }
        true
    }

    fn one_request(&mut self, line: &[u8], message: &Message) {
        let Some(method) = message.last(line, "method").and_then(|value| text(line, &value)) else { return };
        let Some(id) = message.last(line, "id").and_then(|value| Id::of(&line[value])) else {
            if method == "notifications/initialized" {
                self.settled = true;
                self.close();
            } else if method == "notifications/cancelled"
                && let Some(id) = cancelled(line, message)
            {
                for asked in self.asked.extract_if(.., |asked| asked.id.is(&id)) {
                    self.called.extend(asked.call.map(|call| call.over(Outcome::Cancelled)));
                }
            }
            return;
        };
        let what = What::of(&method);
        if what == What::Initialize {
            self.settled = false;
            self.phase = Phase::Open;
        }
        let cursor = if let What::List(_) = what { cursor(line, message) } else { None };
        let call = (self.duties.calls && what == What::Call).then(|| Box::new(Calling::of(line, message)));
        let asked = Asked { id, what, listens: wants_warnings(line, message), cursor, call };
        if self.phase == Phase::Open || self.matters(&asked) {
            self.remember(asked);
        }
    }

    fn remember(&mut self, asked: Asked) {
        if self.asked.len() == MOST_ASKED {
            let forgotten = self.asked.remove(0);
            self.called.extend(forgotten.call.map(|call| call.over(Outcome::Unanswered)));
        }
        self.asked.push(asked);
    }

    /// Whether an answer has to be read also when the handshake is over.
    fn matters(&self, asked: &Asked) -> bool {
        asked.call.is_some() || self.is_changed(asked)
    }

    /// Whether something may have to be changed in an answer also then, or put before it.
    fn is_changed(&self, asked: &Asked) -> bool {
        let channels = self.channels();
        let by_what = match asked.what {
            What::Initialize | What::Discover => channels.instructions,
            What::List(Kind::Tools) => channels.tools || self.duties.tools.is_some() || self.watch.is_some(),
            What::List(_) => self.watch.is_some(),
            What::Call => channels.result && !self.in_result,
            What::Other => false,
        };
        by_what || asked.listens && channels.notification && !self.notified
    }

    /// From here on answers that do not matter are not read.
    fn close(&mut self) {
        self.phase = Phase::Known;
        // What was asked before the server has answered anything is owed an answer: by smcp, where the server comes to none.
        if self.ended || !self.answered {
            return;
        }
        let mut asked = std::mem::take(&mut self.asked);
        asked.retain(|asked| self.matters(asked));
        self.asked = asked;
    }

    /// Reads a line of the server, and gives what is to be changed in it.
    fn answer(&mut self, line: &[u8]) -> Edits {
        let mut edits = Edits::default();
        let messages = messages(line);
        if messages.is_empty() {
            self.missed |= self.awaits_handshake();
        }
        for message in &messages {
            self.one_answer(line, message, &mut edits);
        }
        edits
    }

    fn one_answer(&mut self, line: &[u8], message: &Message, edits: &mut Edits) {
        let results = message.all(line, "result");
        let is_answer = !results.is_empty() || !message.all(line, "error").is_empty();
        // One that has a method, too, is an answer to whoever takes it for one.
        if !is_answer || results.is_empty() && !message.all(line, "method").is_empty() {
            return;
        }
        let ids: Vec<Id> = message.all(line, "id").into_iter().filter_map(|value| Id::of(&line[value])).collect();
        let (mut to, waiting): (Vec<Asked>, Vec<Asked>) =
            std::mem::take(&mut self.asked).into_iter().partition(|asked| ids.iter().any(|id| asked.id.is(id)));
        self.asked = waiting;
        for call in to.iter_mut().filter_map(|asked| asked.call.take()) {
            self.called.push(call.over(calls::outcome(line, &results)));
        }
        // A client that probes, or asks again, is told by an error that it has no answer yet.
        self.answered |= !to.is_empty() && !results.is_empty();
        let channels = self.channels();
        let of = |what: fn(&What) -> bool| to.iter().any(|asked| what(&asked.what));
        let is_handshake =
            of(What::is_handshake) || self.phase == Phase::Open && results.iter().any(|at| looks_like_one(line, at));
        if of(What::is_initialize) && results.iter().any(|at| logs(line, at)) {
            self.logs = true;
        }
        if let Some(due) = self.duties.warning.clone() {
            if is_handshake && channels.instructions && !edits.instructions(line, &results, &due.text) {
                self.missed |= !results.is_empty();
            }
            if of(What::is_of_tools) && channels.tools {
                edits.descriptions(line, &results, &due.text);
            }
            if of(|what| *what == What::Call) && channels.result && !self.in_result {
                self.in_result = edits.content(line, &results, &due.text);
            }
            if channels.notification && !self.notified {
                if to.iter().any(|asked| asked.listens) {
                    self.notified = true;
                    edits.notify_before(&due.text);
                } else if of(What::is_initialize) && results.iter().any(|at| logs(line, at)) {
                    self.notified = true;
                    edits.notify_after(&due.text);
                }
            }
        }
        if let Some(tools) = self.duties.tools.as_ref().filter(|_| of(What::is_of_tools)) {
            edits.without_denied(line, &results, tools);
        }
        if !results.is_empty() {
            self.compare(line, message, &results, &to, edits);
        }
        let nothing_is_due = self.duties.warning.is_none() && self.answered;
        // Whoever asks for anything else without `initialize` is of the newer era.
        if nothing_is_due || of(|what| !what.is_handshake()) && !results.is_empty() {
            self.close();
        }
    }
}

impl Handshake {
    /// Holds a list to what was accepted; where it may not pass, errors stand in its place.
    fn compare(&mut self, line: &[u8], message: &Message, results: &[Span], to: &[Asked], edits: &mut Edits) {
        let Some(watch) = &mut self.watch else { return };
        let mut instead: Option<String> = None;
        for asked in to {
            let What::List(kind) = asked.what else { continue };
            let tools = self.duties.tools.as_ref().filter(|_| kind == Kind::Tools);
            let permits = |name: &str| tools.is_none_or(|tools| tools.judge(name).is_ok());
            match watch.page(kind, asked.cursor.as_deref(), line, results, permits) {
                Page::Passes => {}
                Page::Withheld(why) => instead = instead.or(Some(format!("smcp: {why}"))),
                Page::Told(_) if !self.duties.notifies => {}
                Page::Told(what) if asked.listens => edits.notify_before(&format!("[smcp] {what}")),
                Page::Told(what) if self.logs => edits.notify_after(&format!("[smcp] {what}")),
                Page::Told(_) => {}
            }
        }
        if let Some(why) = instead {
            let errors = to.iter().map(|asked| rules::failed(asked.id.raw(), SERVER_ERROR, &why, None));
            let is_alone = line[..message.at.start].iter().all(u8::is_ascii_whitespace);
            let between = if is_alone { &b"\n"[..] } else { b"," };
            edits.instead(message, &errors.collect::<Vec<_>>().join(between));
        }
    }
}

impl What {
    fn of(method: &str) -> What {
        match method {
            "initialize" => What::Initialize,
            "server/discover" => What::Discover,
            "tools/call" => What::Call,
            method => Kind::ALL.into_iter().find(|kind| kind.method() == method).map_or(What::Other, What::List),
        }
    }

    fn is_initialize(&self) -> bool {
        *self == What::Initialize
    }

    fn is_of_tools(&self) -> bool {
        *self == What::List(Kind::Tools)
    }

    fn is_handshake(&self) -> bool {
        matches!(self, What::Initialize | What::Discover)
    }
}

/// A message and where its members are.
#[derive(Debug)]
pub struct Message {
    at: Span,
    members: Vec<json::Member>,
}

impl Message {
    /// The values of all members of this name.
    fn all(&self, line: &[u8], name: &str) -> Vec<Span> {
        let found = self.members.iter().filter(|member| means(&line[member.key.clone()], name));
        found.map(|member| member.value.clone()).collect()
    }

    /// The one that clients and servers take.
    fn last(&self, line: &[u8], name: &str) -> Option<Span> {
        self.all(line, name).pop()
    }
}

/// The messages of a line: one, those of a batch, or none where it is nothing of the kind.
fn messages(line: &[u8]) -> Vec<Message> {
    let Some(whole) = json::value(line) else { return Vec::new() };
    let all = elements(line, &whole).unwrap_or_else(|| vec![whole]);
    all.iter().filter_map(|at| object(line, at)).collect()
}

/// The ids in some lines, of the messages that are `wanted`.
fn ids(lines: &[u8], wanted: fn(&[u8], &Message) -> bool) -> Vec<Id> {
    let of_line = |line| {
        let wanted = messages(line).into_iter().filter(|message| wanted(line, message));
        wanted.filter_map(|message| message.last(line, "id").and_then(|at| Id::of(&line[at]))).collect::<Vec<_>>()
    };
    lines.split(|byte| *byte == b'\n').flat_map(of_line).collect()
}

fn object(line: &[u8], at: &Span) -> Option<Message> {
    members(line, at).map(|members| Message { at: at.clone(), members })
}

/// A string's text.
fn text(line: &[u8], at: &Span) -> Option<String> {
    match &line[at.clone()] {
        [b'"', inner @ .., b'"'] => Some(unescaped(inner)),
        _ => None,
    }
}

/// The page that a request for a list wants.
fn cursor(line: &[u8], message: &Message) -> Option<String> {
    let params = message.last(line, "params").and_then(|at| object(line, &at))?;
    params.last(line, "cursor").and_then(|at| text(line, &at))
}

/// The request that a notification takes back.
fn cancelled(line: &[u8], message: &Message) -> Option<Id> {
    let params = message.last(line, "params").and_then(|at| object(line, &at))?;
    params.last(line, "requestId").and_then(|at| Id::of(&line[at]))
}

/// Whether a result has what only the answer to a handshake must have.
fn looks_like_one(line: &[u8], result: &Span) -> bool {
    let marks = ["protocolVersion", "supportedVersions"];
    object(line, result).is_some_and(|result| marks.iter().any(|mark| !result.all(line, mark).is_empty()))
}

/// Whether the result of `initialize` declares `capabilities.logging`.
fn logs(line: &[u8], result: &Span) -> bool {
    let capabilities = object(line, result).and_then(|result| result.last(line, "capabilities"));
    capabilities.and_then(|at| object(line, &at)).is_some_and(|all| !all.all(line, "logging").is_empty())
}

/// Whether a request of 2026-07-28 asks for messages of the level `warning`.
fn wants_warnings(line: &[u8], message: &Message) -> bool {
    let params = message.last(line, "params").and_then(|at| object(line, &at));
    let meta = params.and_then(|params| params.last(line, "_meta")).and_then(|at| object(line, &at));
    let level = meta.and_then(|meta| meta.last(line, "io.modelcontextprotocol/logLevel"));
    level.and_then(|at| text(line, &at)).is_some_and(|level| ["debug", "info", "notice", "warning"].contains(&&*level))
}

/// The first line with its end, or what there is of it; whether it has its end; and what comes after.
fn first_line(bytes: &[u8]) -> (&[u8], bool, &[u8]) {
    match memchr(b'\n', bytes) {
        Some(at) => (&bytes[..=at], true, &bytes[at + 1..]),
        None => (bytes, false, &[]),
    }
}
