//! The stdio relay: one thread, poll(2), bytes passed on untouched in both directions.
//!
//! The client's descriptors keep their flags: `O_NONBLOCK` belongs to the open file and would leak to the client.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use runtime::journal::Ending;
use runtime::{Cage, How, Limit, Masked, Outcome, Plan, Remains, Signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::SendFlags;
use rustix::process::Signal;

use crate::exit::{self, Failure};
use crate::words::{Heard, Words};

/// From the end of stdin to SIGTERM, and from SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long a client that asked for the end may take to read what is left.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
            egress: (!plan.egress.is_empty()).then_some(self.outcome.egress),
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

/// Passes bytes between the client (descriptors 0, 1, 2) and the server until the cage ends and all is delivered; of standard
/// error what is left of them by `words`.
///
/// # Errors
/// The kernel's, where waiting fails.
pub fn pass(mut cage: Cage, signals: &Signals, timeout: Duration, words: Words) -> std::io::Result<Passed> {
    let (stdin, stdout, stderr) = (rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr());
    let mut input = Flow::new(Source::Client(stdin), Sink::server(cage.stdin.take()));
    let mut output = Flow::new(Source::server(cage.stdout.take()), Sink::Client(stdout, Kind::of(stdout)));
    let mut errors = Flow::new(Source::server(cage.stderr.take()), Sink::Client(stderr, Kind::of(stderr)));
    errors.words = Some(words);
    let mut ladder = Ladder { deadline: Instant::now().checked_add(timeout), asked: None, step: None };
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
        if let Some(events) = near_masks {
            fds.push(PollFd::from_borrowed_fd(events, PollFlags::IN));
        }
        let look = running.then(|| cage.next_look());
        let timeout = ladder.deadline.into_iter().chain(look).chain(errors.due()).min().map(|at| {
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
        let (told, over) = (answer(true), answer(running));
        drop(fds);

        // Before anything that the server said is passed on: what it saw where a mask was sidestepped reaches nobody.
        if running && cage.look_at_masks() == Masked::No {
            output.end_sink();
            errors.end_sink();
        }

        input.advance(to_server);
        output.advance(from_server);
        errors.advance(of_errors);
        errors.pause();
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
        if input.ended && ladder.asked.is_none() && running {
            ladder.stdin_ended();
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
    Ok(Passed { outcome, remains, bytes_in: input.bytes, bytes_out: output.bytes, asked, step })
}

/// The steps that end a server, and when the next one is due.
struct Ladder {
    deadline: Option<Instant>,
    asked: Option<Asked>,
    step: Option<Step>,
}

impl Ladder {
    fn stdin_ended(&mut self) {
        self.asked = Some(Asked::Client);
        self.step = Some(Step::Stdin);
        self.deadline = Some(Instant::now() + GRACE);
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
            Some(Step::Sigterm | Step::Sigkill) => {
                cage.kill();
                self.step = Some(Step::Sigkill);
                self.deadline = None;
            }
        }
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
    /// Empty until there is something to read: three of them are a tenth of a millisecond of a start.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// What becomes of the bytes on their way, where something does.
    words: Option<Words>,
    /// What goes out in their place.
    instead: Vec<u8>,
    /// The source came to its end, which a server that closes its own stdin does not.
    ended: bool,
    bytes: u64,
}

/// As large as a pipe's own buffer, pipe(7).
const BUFFER: usize = 64 * 1024;

/// A pipe that poll(2) calls writable takes this much without blocking, pipe(7).
const PIPE_BUF: usize = 4096;

impl<'c> Flow<'c> {
    fn new(source: Source<'c>, sink: Sink<'c>) -> Self {
        let buffer = Vec::new();
        Flow { source, sink, buffer, start: 0, end: 0, words: None, instead: Vec::new(), ended: false, bytes: 0 }
    }

    /// Nothing more can come out of the sink's end.
    fn done(&self) -> bool {
        matches!(self.sink, Sink::Closed)
    }

    fn pending(&self) -> bool {
        self.start < self.end
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

    /// Moves what can be moved without blocking, by what poll(2) said of sink and source.
    fn advance(&mut self, [sink, source]: [bool; 2]) {
        if sink && !self.pending() {
            // Room was not asked for: it is an error or a hang-up.
            return self.sink_gone();
        }
        if sink {
            let bytes = if self.instead.is_empty() { &self.buffer } else { &*self.instead };
            match self.sink.write(&bytes[self.start..self.end]) {
                Ok(n) => {
                    self.start += n;
                    self.bytes += n as u64;
                    if !self.pending() && self.ended {
                        return self.end_sink();
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return self.sink_gone(),
            }
        }
        if source {
            self.buffer.resize(BUFFER, 0);
            match self.source.fd().map(|fd| rustix::io::read(fd, &mut self.buffer[..])) {
                Some(Ok(n)) if n > 0 => self.arrived(n),
                Some(Err(Errno::AGAIN | Errno::INTR)) => {}
                Some(Ok(_) | Err(_)) | None => {
                    self.ended = true;
                    self.source.close();
                    self.send_held();
                    if !self.pending() {
                        self.end_sink();
                    }
                }
            }
        }
    }

    fn arrived(&mut self, count: usize) {
        (self.start, self.end) = (0, count);
        if let Some(words) = &mut self.words {
            self.instead.clear();
            if let Heard::Instead(bytes) = words.hear(&self.buffer[..count]) {
                self.instead.extend_from_slice(bytes);
                self.end = bytes.len();
            }
        }
    }

    /// When bytes that were held back go out, since none came after them.
    fn due(&self) -> Option<Instant> {
        self.words.as_ref().filter(|_| !self.pending() && !self.done()).and_then(Words::due)
    }

    /// Sends them when that is due.
    fn pause(&mut self) {
        if self.due().is_some_and(|at| Instant::now() >= at) {
            self.send_held();
        }
    }

    fn send_held(&mut self) {
        if let Some(words) = &mut self.words {
            self.instead.clear();
            self.instead.extend_from_slice(words.pause());
            (self.start, self.end) = (0, self.instead.len());
        }
    }

    /// The reader of the sink is gone: let the source's writer know by the same means.
    fn sink_gone(&mut self) {
        self.source.refuse();
        self.end_sink();
    }

    fn end_sink(&mut self) {
        (self.start, self.end) = (0, 0);
        self.sink = Sink::Closed;
    }
}

enum Source<'c> {
    Client(BorrowedFd<'c>),
    Server(OwnedFd),
    Closed,
}

impl Source<'_> {
    /// Non-blocking: the server can open its pipes anew by `/proc/self/fd` and take away what poll(2) has announced, and a
    /// supervisor that waits in read(2) watches no limit.
    fn server(pipe: Option<OwnedFd>) -> Self {
        if let Some(pipe) = &pipe {
            let _ = rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK);
        }
        pipe.map_or(Source::Closed, Source::Server)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Source::Client(fd) => Some(*fd),
            Source::Server(pipe) => Some(pipe.as_fd()),
            Source::Closed => None,
        }
    }

    fn close(&mut self) {
        *self = Source::Closed;
    }

    /// Lets whoever writes into this source see a broken pipe.
    fn refuse(&mut self) {
        if let Source::Client(_) = self
            && let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())
        {
            let _ = rustix::stdio::dup2_stdin(null);
        }
        self.close();
    }
}

enum Sink<'c> {
    Client(BorrowedFd<'c>, Kind),
    /// Our end of a pipe to the server, non-blocking: that flag is this end's alone.
    Server(OwnedFd),
    Closed,
}

/// How to write to one of the client's descriptors without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pipe,
    Socket,
    /// A file, a terminal, `/dev/null`: they take what they are given.
    Other,
}

impl Kind {
    fn of(fd: BorrowedFd<'_>) -> Kind {
        match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Fifo) => Kind::Pipe,
            Ok(FileType::Socket) => Kind::Socket,
            _ => Kind::Other,
        }
    }
}

impl Sink<'_> {
    fn server(pipe: Option<OwnedFd>) -> Self {
        match pipe {
            Some(pipe) => {
                let _ = rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK);
                Sink::Server(pipe)
            }
            None => Sink::Closed,
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Sink::Client(fd, _) => Some(*fd),
            Sink::Server(pipe) => Some(pipe.as_fd()),
            Sink::Closed => None,
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match self {
            Sink::Server(pipe) => rustix::io::write(pipe, bytes),
            Sink::Client(fd, Kind::Socket) => rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Sink::Client(fd, Kind::Pipe) => write_pipe(*fd, bytes),
            Sink::Client(fd, Kind::Other) => rustix::io::write(fd, bytes),
            Sink::Closed => Err(Errno::PIPE),
        }
    }
}

/// As much as fits into a client's pipe. Linux takes RWF_NOWAIT on pipes since 6.4; before, one PIPE_BUF at a time is what
/// a pipe that is writable takes without blocking.
fn write_pipe(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    // An offset of -1 is the file's own, preadv2(2).
    match rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
            rustix::io::write(fd, &bytes[..bytes.len().min(PIPE_BUF)])
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What poll(2) announced may be gone by the time it is read: the supervisor must not wait for it.
    #[test]
    fn reading_from_a_server_never_waits() {
        let (read, _write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let source = Source::server(Some(read));
        assert_eq!(rustix::io::read(source.fd().unwrap(), &mut [0_u8; 1]), Err(Errno::AGAIN));
    }
}
