//! The stdio relay: one thread, poll(2), read(2) and write(2). What it reads of the bytes is [`handshake`](crate::handshake)'s;
//! every other byte passes as it is.
//!
//! The client's descriptors keep their flags: `O_NONBLOCK` belongs to the open file and would leak to the client. splice(2) is
//! not used: the filter has to see each line's beginning, and what it could move unseen, large messages of a client, is rare.
//!
//! Where a platform has no poll(2), its `system` does by threads what that does.

#[cfg_attr(windows, path = "relay/windows.rs")]
#[cfg_attr(unix, path = "relay/unix.rs")]
mod ends;

use std::time::{Duration, Instant};

use runtime::journal::{Calls, Ending};
use runtime::system::{
    BorrowedFd, Errno, HANGUP, PollFd, PollFlags, Signal, Timespec, poll, read, stderr, stdin, stdout,
};
use runtime::{Cage, How, Limit, Masked, Outcome, Plan, Remains, Signals};

use ends::{Sink, Source, unread};

use crate::exit::{self, Failure};
use crate::handshake::{Broken, Handshake, Last, Output, Passed as Came};
use crate::witness::Witness;
use crate::words::{Heard, Words};

pub use ends::is_of_a_client;

/// From the end of stdin to SIGTERM, and from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long a client that asked for the end may take to read what is left.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long answers that are under way when a client closes stdin hold the ladder up, as long as the client reads.
const LAST_ANSWERS: Duration = Duration::from_secs(30);

/// How often a client's pipe that has hung up is looked at for bytes that the server has yet to read.
const UNREAD: Duration = Duration::from_millis(50);

/// What is kept of a server's last words on stderr before its first answer, bytes.
const LAST_LINES: usize = 2048;

/// How much text that is no message waits for a reader of stderr, bytes. More is counted and left out: no message waits for it.
const MOST_STRAY: usize = 64 * 1024;

/// How bytes get from the client to the server and back.
#[derive(Debug)]
pub enum Way {
    /// By the relay, as they are.
    Untouched,
    /// By the relay, which keeps stdout clear of what is no message and does what is due.
    Filter(Box<Handshake>),
    /// Not by the relay: the server has the client's own descriptors.
    Direct,
}

/// Whom a server talks with.
#[derive(Clone, Copy, Debug)]
pub struct Client<'c> {
    /// What it says.
    pub stdin: BorrowedFd<'c>,
    /// What it hears.
    pub stdout: BorrowedFd<'c>,
    /// Where the server's own words go.
    pub stderr: BorrowedFd<'c>,
}

impl<'c> Client<'c> {
    /// Whoever started smcp.
    pub fn of_this_process() -> Client<'c> {
        Client { stdin: stdin(), stdout: stdout(), stderr: stderr() }
    }
}

/// What passed, and how it ended.
#[derive(Debug)]
pub struct Passed {
    /// How the server ended.
    pub outcome: Outcome,
    /// What is left of its cage.
    pub remains: Remains,
    /// Bytes to the server's stdin.
    pub bytes_in: u64,
    /// Bytes from the server's stdout.
    pub bytes_out: u64,
    /// Why smcp ended the server, where it did.
    pub asked: Option<Asked>,
    /// The last step of the ladder that was taken.
    pub step: Option<Step>,
    /// Why it could not go on.
    pub broken: Option<Broken>,
    /// Lines of the server's that were no messages, where that was looked at.
    pub stray_lines: Option<u64>,
    /// What came of its calls, where they were written down.
    pub calls: Option<Calls>,
    /// What was read of the session, where something was.
    pub session: Option<Session>,
}

/// What was read of a session.
#[derive(Debug)]
pub struct Session {
    /// Where it stands.
    pub handshake: Handshake,
    /// The last bytes that a server wrote on stderr before it answered anything.
    pub last_lines: Vec<u8>,
}

/// Who asked for the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The client, by closing stdin.
    Client,
    /// A signal to smcp.
    Signal(i32),
    /// The clock.
    Timeout,
    /// The protocol: what the server wrote cannot be passed on.
    Protocol,
}

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The server's stdin was closed.
    Stdin,
    /// SIGTERM was sent.
    Sigterm,
    /// The whole tree was killed.
    Sigkill,
}

impl Passed {
    /// The end of the run for the audit log, with smcp's exit code.
    ///
    /// # Errors
    /// Where the server's program was not executed.
    pub fn ending(self, plan: &Plan) -> Result<(Ending, Remains), Failure> {
        if let Some(why) = self.outcome.not_executed {
            return Err(why.into());
        }
        let timeout = (self.asked == Some(Asked::Timeout)).then_some(Limit::Timeout(plan.limits.timeout_seconds));
        let too_large = self.outcome.how == Some(How::Signal(Signal::XFSZ.as_raw()));
        let file_size = plan.rlimits.fsize.filter(|_| too_large).map(Limit::FileSize);
        let limit = self.outcome.limit.or(timeout).or(file_size);
        // From SIGTERM on a signal is what it was asked to end by.
        let asked_by_signal = matches!(self.step, Some(Step::Sigterm | Step::Sigkill));
        let unmasked = self.outcome.unmasked;
        let ended = unmasked
            .as_deref()
            .map(exit::unmasked)
            .or_else(|| limit.map(Failure::from))
            .or_else(|| self.broken.map(Failure::from))
            .or_else(|| self.outcome.how.filter(|_| !asked_by_signal).and_then(exit::died));
        let (code, how) = match self.outcome.how {
            Some(How::Code(code)) => (code, "exited"),
            Some(How::Signal(signal)) => (i32::from(exit::SIGNAL) + signal, "signal"),
            // PID 1 itself was killed: the last step of the ladder, or the kernel's memory killer.
            None => (i32::from(exit::SIGNAL) + Signal::KILL.as_raw(), "killed"),
        };
        let cause = match (limit, self.asked) {
            _ if unmasked.is_some() => "deny",
            (Some(limit), _) => limit.name(),
            (None, Some(Asked::Client)) => "client-closed",
            (None, Some(Asked::Signal(_))) => "terminated",
            (None, Some(Asked::Protocol)) => "protocol",
            (None, Some(Asked::Timeout) | None) => how,
        };
        let ending = Ending {
            exit: ended.as_ref().map_or(u8::try_from(code).unwrap_or(u8::MAX), |failure| failure.code),
            cause,
            error: ended.map(|failure| failure.message),
            limit: limit.filter(|_| unmasked.is_none()),
            unmasked,
            ended_by: self.step.map(Step::name),
            cpu_ms: Some(self.outcome.cpu_time.as_millis() as u64),
            peak_memory: Some(self.outcome.peak_memory),
            bytes_in: Some(self.bytes_in),
            bytes_out: Some(self.bytes_out),
            stray_lines: self.stray_lines,
            egress: (!plan.egress.is_empty()).then_some(self.outcome.egress),
            calls: self.calls,
            asked: self.outcome.asked,
            ..Ending::default()
        };
        Ok((ending, self.remains))
    }
}

impl Step {
    /// The word for it in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Step::Stdin => "stdin",
            Step::Sigterm => "sigterm",
            Step::Sigkill => "sigkill",
        }
    }
}

/// Passes bytes between the client and the server until the cage ends and all is delivered.
///
/// # Errors
/// The kernel's, where waiting fails.
pub fn pass(
    mut cage: Cage,
    signals: &Signals,
    timeout: Duration,
    way: Way,
    words: Words,
    witness: Witness,
    client: Client<'_>,
) -> std::io::Result<Passed> {
    let Client { stdin, stdout, stderr } = client;
    let mut input = Flow::new(Source::Client(stdin), Sink::server(cage.stdin.take()));
    let mut output = Flow::new(Source::server(cage.stdout.take()), Sink::client(stdout));
    let mut errors = Flow::new(Source::server(cage.stderr.take()), Sink::client(stderr));
    let mut ladder = Ladder { deadline: Instant::now().checked_add(timeout), asked: None, step: None };
    let mut watch = Watch { client: None, again: None };
    let mut talk = Talk::new(None, words, witness);
    match way {
        Way::Untouched => {}
        Way::Filter(handshake) => talk.handshake = Some(handshake),
        Way::Direct => {
            (input, output) = (Flow::nothing(), Flow::nothing());
            watch.client = Some(stdin);
        }
    }
    let mut running = true;

    while running || !(output.done() && errors.done()) {
        let interests = [&input, &output, &errors].map(|flow| flow.interest(running));
        let watched = interests.each_ref().map(|[sink, source]| [sink.is_some(), source.is_some()]);
        let mut fds: Vec<PollFd<'_>> = interests.into_iter().flatten().flatten().collect();
        fds.push(PollFd::new(signals, PollFlags::IN));
        let news = cage.news();
        if running {
            fds.push(PollFd::from_borrowed_fd(news, PollFlags::IN));
        }
        let near_masks = cage.near_masks().filter(|_| running);
        // Where masks are to be looked at, what is read after a look waits for the next one.
        let at_once = near_masks.is_none();
        if let Some(events) = near_masks {
            fds.push(PollFd::from_borrowed_fd(events, PollFlags::IN));
        }
        let client = watch.client.filter(|_| watch.again.is_none() && running);
        if let Some(client) = client {
            fds.push(PollFd::from_borrowed_fd(client, HANGUP));
        }
        let look = running.then(|| cage.next_look());
        let timeout =
            ladder.deadline.into_iter().chain(look).chain(watch.again).chain(talk.due(&errors)).min().map(|at| {
                let left = at.saturating_duration_since(Instant::now());
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
            });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        let mut answers = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut answer = |watched: bool| watched && answers.next().unwrap_or(false);
        let [to_server, from_server, of_errors] = watched.map(|[sink, source]| [answer(sink), answer(source)]);
        let (told, over, _) = (answer(true), answer(running), answer(near_masks.is_some()));
        let hung_up = answer(client.is_some());
        drop(fds);

        // Before anything that the server said is passed on: what it saw where a mask was sidestepped reaches nobody.
        if running && cage.look_at_masks() == Masked::No {
            output.end_sink();
            errors.end_sink();
        }

        // What a client asked of a server that answered nothing is answered by smcp, which has to read it for that.
        input.spares_source = talk.handshake.as_ref().is_some_and(|handshake| !handshake.has_answered());
        // The client first: an answer is known by what was asked before.
        let came = input.advance(to_server);
        talk.client(came, [&mut input, &mut output, &mut errors]);
        if at_once {
            input.pass_on();
        }
        let came = output.advance(from_server);
        talk.server(came, [&mut input, &mut output, &mut errors]);
        if at_once {
            output.pass_on();
        }
        let came = errors.advance(of_errors);
        talk.listen(came, &mut errors);
        // What is no message goes there, too.
        let is_last = output.is_over();
        if is_last && errors.is_over() || talk.due(&errors).is_some_and(|at| Instant::now() >= at) {
            talk.pause(&mut errors);
        }
        input.settle();
        output.settle();
        if is_last {
            errors.settle();
        }
        if talk.broken.is_some() && ladder.asked != Some(Asked::Protocol) && running {
            ladder.asked = Some(Asked::Protocol);
            ladder.kill(&mut cage);
        }
        if over && cage.has_ended() {
            running = false;
            input.end_sink();
            // Where nobody asked for the end, the client may take its time to read.
            ladder.deadline = ladder.asked.map(|_| Instant::now() + LAST_WORDS);
        }
        while told && let Some(signal) = signals.next() {
            ladder.asked_by_signal(signal, &cage, &mut input);
        }
        if running && Instant::now() >= cage.next_look() {
            cage.look();
        }
        if hung_up || watch.again.is_some_and(|at| Instant::now() >= at) {
            input.ended = watch.is_read_to_its_end();
        }
        if input.ended && ladder.asked.is_none() && running {
            ladder.stdin_ended(if talk.awaits() { LAST_ANSWERS } else { GRACE });
        }
        if ladder.step == Some(Step::Stdin) && (output.done() || !talk.awaits()) {
            ladder.answered();
        }
        if ladder.deadline.is_some_and(|at| Instant::now() >= at) {
            if !running {
                break;
            }
            ladder.climb(&mut cage, &mut input);
        }
    }
    let (asked, step) = (ladder.asked, ladder.step);
    let (outcome, remains) = cage.wait()?;
    let (bytes_in, bytes_out, broken) = (input.bytes, output.bytes, talk.broken);
    let calls = std::mem::take(&mut talk.witness).end(talk.handshake.as_deref_mut());
    let session = talk.session();
    let stray_lines = session.as_ref().map(|session| session.handshake.strays());
    Ok(Passed { outcome, remains, bytes_in, bytes_out, asked, step, broken, stray_lines, calls, session })
}

/// Writes to the client's stdout, and waits this long at most whenever there is no room.
///
/// # Errors
/// The kernel's, and `ETIMEDOUT`.
pub fn write_to_client(bytes: &[u8], patience: Duration) -> Result<(), Errno> {
    let stdout = stdout();
    let mut sink = Sink::client(stdout);
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    let mut rest = bytes;
    while !rest.is_empty() {
        if poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], Some(&timeout))? == 0 {
            return Err(Errno::TIMEDOUT);
        }
        match sink.write(rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// What is read of the bytes that pass.
struct Talk {
    handshake: Option<Box<Handshake>>,
    /// What goes to stderr passes through these.
    words: Words,
    witness: Witness,
    broken: Option<Broken>,
    last_lines: Vec<u8>,
    /// How many messages the server had begun when the client was heard last.
    at_client: u64,
    /// The same when the server was heard last.
    at_server: u64,
}

impl Talk {
    fn new(handshake: Option<Box<Handshake>>, words: Words, witness: Witness) -> Talk {
        Talk { handshake, words, witness, broken: None, last_lines: Vec::new(), at_client: 0, at_server: 0 }
    }

    /// Takes what came of the client.
    fn client(&mut self, came: Arrived, flows: [&mut Flow<'_>; 3]) {
        let Some(handshake) = &mut self.handshake else { return };
        let mut out = Output::default();
        let [input, output, _] = &flows;
        match came {
            Arrived::Nothing => {}
            Arrived::Bytes => {
                self.at_client = handshake.messages();
                let passed = handshake.client(input.arrived(), &mut out);
                self.witness.hear(handshake, &mut out.stray);
                self.put(passed, Direction::In, out, flows);
            }
            Arrived::End => {
                let answers = if self.at_client < handshake.messages() { output.arrived() } else { &[] };
                let unseen = self.at_server.saturating_sub(self.at_client);
                handshake.client_ended(&Last { requests: input.arrived(), answers, unseen }, &mut out);
                self.witness.hear(handshake, &mut out.stray);
                self.put(Ok(Came::AsTheyCame), Direction::In, out, flows);
            }
        }
    }

    /// Takes what came of the server.
    fn server(&mut self, came: Arrived, flows: [&mut Flow<'_>; 3]) {
        let Some(handshake) = &mut self.handshake else { return };
        let mut out = Output::default();
        let [_, output, _] = &flows;
        let passed = match came {
            Arrived::Nothing => return,
            Arrived::Bytes => {
                self.at_server = handshake.messages();
                handshake.server(output.arrived(), &mut out)
            }
            Arrived::End => {
                handshake.server_ended(&mut out);
                Ok(Came::AsTheyCame)
            }
        };
        self.witness.hear(handshake, &mut out.stray);
        self.put(passed, Direction::Out, out, flows);
    }

    /// Takes what the server says on stderr, and remembers the last of it while it has answered nothing.
    fn listen(&mut self, came: Arrived, errors: &mut Flow<'_>) {
        if came != Arrived::Bytes {
            return;
        }
        let said = match self.words.hear(errors.arrived()) {
            Heard::AsTheyCame => errors.arrived(),
            Heard::Instead(bytes) => {
                errors.take_back();
                errors.add(bytes);
                bytes
            }
        };
        if self.handshake.as_ref().is_some_and(|handshake| !handshake.has_answered()) {
            self.last_lines.extend_from_slice(said);
            let more = self.last_lines.len().saturating_sub(LAST_LINES);
            self.last_lines.drain(..more);
        }
    }

    /// When words that were held back go out, since none came after them.
    fn due(&self, errors: &Flow<'_>) -> Option<Instant> {
        self.words.due().filter(|_| !errors.pending() && !errors.done())
    }

    /// Sends them.
    fn pause(&mut self, errors: &mut Flow<'_>) {
        errors.add(self.words.pause());
    }

    fn put(
        &mut self,
        passed: Result<Came, Broken>,
        direction: Direction,
        out: Output,
        [input, output, errors]: [&mut Flow<'_>; 3],
    ) {
        let read = if direction == Direction::In { &mut *input } else { &mut *output };
        match passed {
            Ok(Came::AsTheyCame) => {}
            Ok(Came::InOutput) => read.take_back(),
            Err(why) => {
                read.take_back();
                self.broken = Some(why);
            }
        }
        input.add(&out.to_server);
        output.add(&out.to_client);
        if !out.stray.is_empty() && errors.added.len() < MOST_STRAY {
            match self.words.hear(&out.stray) {
                Heard::AsTheyCame => errors.add(&out.stray),
                Heard::Instead(bytes) => errors.add(bytes),
            }
        }
    }

    /// Whether answers are under way to a client that has said all.
    fn awaits(&self) -> bool {
        self.handshake.as_ref().is_some_and(|handshake| handshake.awaits())
    }

    fn session(self) -> Option<Session> {
        let Talk { handshake, last_lines, .. } = self;
        handshake.map(|handshake| Session { handshake: *handshake, last_lines })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

/// Looks out for the end of a client whose descriptors the server has.
struct Watch<'c> {
    client: Option<BorrowedFd<'c>>,
    /// When to look again whether the server has read all.
    again: Option<Instant>,
}

impl Watch<'_> {
    /// Whether a client that is gone left nothing that the server has not read.
    fn is_read_to_its_end(&mut self) -> bool {
        let left = self.client.map_or(0, unread);
        self.again = (left > 0).then(|| Instant::now() + UNREAD);
        if left == 0 {
            self.client = None;
        }
        left == 0
    }
}

/// The steps that end a server, and when the next one is due.
struct Ladder {
    deadline: Option<Instant>,
    asked: Option<Asked>,
    step: Option<Step>,
}

impl Ladder {
    fn stdin_ended(&mut self, grace: Duration) {
        self.asked = Some(Asked::Client);
        self.step = Some(Step::Stdin);
        self.deadline = Some(Instant::now() + grace);
    }

    /// No answer is under way any more: the next step is due as soon as ever.
    fn answered(&mut self) {
        let soon = Instant::now() + GRACE;
        self.deadline = self.deadline.map(|at| at.min(soon));
    }

    /// A signal skips the grace of stdin: clients send SIGTERM after they have waited themselves.
    fn asked_by_signal(&mut self, signal: i32, cage: &Cage, input: &mut Flow<'_>) {
        self.asked.get_or_insert(Asked::Signal(signal));
        if matches!(self.step, None | Some(Step::Stdin)) {
            self.terminate(cage, input);
        }
    }

    fn climb(&mut self, cage: &mut Cage, input: &mut Flow<'_>) {
        match self.step {
            None => {
                self.asked = Some(Asked::Timeout);
                self.terminate(cage, input);
            }
            Some(Step::Stdin) => self.terminate(cage, input),
            Some(Step::Sigterm | Step::Sigkill) => self.kill(cage),
        }
    }

    fn kill(&mut self, cage: &mut Cage) {
        cage.kill();
        self.step = Some(Step::Sigkill);
        self.deadline = None;
    }

    fn terminate(&mut self, cage: &Cage, input: &mut Flow<'_>) {
        input.end_sink();
        cage.signal(Signal::TERM);
        self.step = Some(Step::Sigterm);
        self.deadline = Some(Instant::now() + GRACE);
    }
}

/// One direction: a source, a sink and what is under way between them.
struct Flow<'c> {
    source: Source<'c>,
    sink: Sink<'c>,
    /// Empty until there is something to read, and larger once reads fill it: three whole ones are a tenth of a millisecond.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How much the last read brought, from the buffer's beginning.
    read: usize,
    /// What goes out after that: what was made of what came.
    added: Vec<u8>,
    /// How much of that is gone.
    sent: usize,
    /// Where the sink is gone, the source stays as it is: somebody else may have to read it.
    spares_source: bool,
    /// The source came to its end, which a server that closes its own stdin does not.
    ended: bool,
    bytes: u64,
}

/// What the first read may bring, bytes: a page.
const FIRST: usize = 4096;

/// As large as a pipe's own buffer, pipe(7).
const BUFFER: usize = 64 * 1024;

impl<'c> Flow<'c> {
    fn new(source: Source<'c>, sink: Sink<'c>) -> Self {
        let (start, end, read, sent, bytes) = (0, 0, 0, 0, 0);
        let (buffer, added, spares_source, ended) = (Vec::new(), Vec::new(), false, false);
        Flow { source, sink, buffer, start, end, read, added, sent, spares_source, ended, bytes }
    }

    /// One that passes nothing.
    fn nothing() -> Self {
        Flow::new(Source::Closed, Sink::Closed)
    }

    /// What the last read brought that brought something.
    fn arrived(&self) -> &[u8] {
        &self.buffer[..self.read]
    }

    /// What the last read brought is not passed on as it is.
    fn take_back(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// More to go out, after what is under way.
    fn add(&mut self, bytes: &[u8]) {
        if !self.done() {
            self.added.extend_from_slice(bytes);
        }
    }

    /// Nothing more comes from the source.
    fn is_over(&self) -> bool {
        matches!(self.source, Source::Closed)
    }

    /// Closes the sink once all that came is through.
    fn settle(&mut self) {
        if self.ended && !self.pending() {
            self.end_sink();
        }
    }

    /// Nothing more can come out of the sink's end.
    fn done(&self) -> bool {
        matches!(self.sink, Sink::Closed)
    }

    fn pending(&self) -> bool {
        self.start < self.end || !self.added.is_empty()
    }

    /// What to wait for, sink and source: room at the sink while something is under way, else news at the source. A sink
    /// whose reader goes away reports that in any case.
    fn interest(&self, running: bool) -> [Option<PollFd<'_>>; 2] {
        let room = if self.pending() { PollFlags::OUT } else { PollFlags::empty() };
        // After the cage's end a client that hangs up is of interest only while bytes wait for it.
        let sink = self.sink.fd().filter(|_| running || self.pending());
        let source = self.source.fd().filter(|_| !self.pending() && !self.done());
        [
            sink.map(|fd| PollFd::from_borrowed_fd(fd, room)),
            source.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        ]
    }

    /// Moves what can be moved without blocking, by what poll(2) said of sink and source, and says what came of the source.
    fn advance(&mut self, [sink, source]: [bool; 2]) -> Arrived {
        if sink && !self.pending() {
            // Room was not asked for: it is an error or a hang-up.
            self.sink_gone();
            return Arrived::Nothing;
        }
        if sink && self.write_some().is_err() {
            self.sink_gone();
            return Arrived::Nothing;
        }
        if source {
            if self.read == self.buffer.len() {
                self.buffer.resize((self.buffer.len() * 4).clamp(FIRST, BUFFER), 0);
            }
            match self.source.fd().map(|fd| read(fd, &mut self.buffer[..])) {
                Some(Ok(n)) if n > 0 => {
                    (self.start, self.end, self.read) = (0, n, n);
                    return Arrived::Bytes;
                }
                Some(Err(Errno::AGAIN | Errno::INTR)) => {}
                Some(Ok(_) | Err(_)) | None => {
                    self.ended = true;
                    self.source.close();
                    return Arrived::End;
                }
            }
        }
        Arrived::Nothing
    }

    /// Passes on what came in this turn of the loop: to ask poll(2) for room first takes as long as the write.
    fn pass_on(&mut self) {
        let more = |flow: &Self| flow.pending() && flow.sink.never_waits();
        let mut left = usize::MAX;
        while more(self) && self.left() < left {
            left = self.left();
            if self.write_some().is_err() {
                return self.sink_gone();
            }
        }
    }

    /// How many bytes are under way.
    fn left(&self) -> usize {
        self.end - self.start + self.added.len() - self.sent
    }

    fn write_some(&mut self) -> Result<(), Errno> {
        let as_it_came = self.start < self.end;
        let bytes = if as_it_came { &self.buffer[self.start..self.end] } else { &self.added[self.sent..] };
        match self.sink.write(bytes) {
            Ok(n) => {
                self.bytes += n as u64;
                if as_it_came {
                    self.start += n;
                } else {
                    self.sent += n;
                    if self.sent == self.added.len() {
                        // What a large message took is given back.
                        (self.added, self.sent) = (Vec::new(), 0);
                    }
                }
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// The reader of the sink is gone: let the source's writer know by the same means.
    fn sink_gone(&mut self) {
        if !self.spares_source {
            self.source.refuse();
        }
        self.end_sink();
    }

    fn end_sink(&mut self) {
        (self.start, self.end) = (0, 0);
        (self.added, self.sent) = (Vec::new(), 0);
        self.sink = Sink::Closed;
    }
}

/// What came of a source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrived {
    Nothing,
    /// Bytes, which [`Flow::arrived`] has.
    Bytes,
    /// Its end.
    End,
}
