//! The one way tests run commands, and what a failure shows of them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::ops::RangeInclusive;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use crate::patience::{PATIENCE, within};
use crate::probe;
use crate::world::{UNDECLARED, User, World};

/// One command in a world: what it is told, then [`Smcp::run`] or [`Smcp::start`].
pub struct Smcp<'w> {
    world: &'w World,
    program: PathBuf,
    arguments: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    stdin: Vec<u8>,
    descriptors: Vec<(u32, PathBuf)>,
    directory: PathBuf,
    user: User,
    patience: Duration,
}

impl<'w> Smcp<'w> {
    /// A program without arguments, as the world's user, in the world's home.
    pub fn new(world: &'w World, program: &Path) -> Smcp<'w> {
        Smcp {
            world,
            program: program.to_owned(),
            arguments: Vec::new(),
            env: world.environment().into_iter().map(|(k, v)| (k.into(), v)).collect(),
            stdin: Vec::new(),
            descriptors: Vec::new(),
            directory: world.path("home"),
            user: world.user(),
            patience: PATIENCE,
        }
    }

    /// More arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, more: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(more.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// One more variable.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Everything of the environment that the tests run in, which knows the way to the package registries.
    pub fn with_registries(mut self) -> Self {
        let own = self.env.clone();
        self.env.extend(std::env::vars_os());
        self.env.extend(own.into_iter().filter(|(name, _)| name != "HOME" && name != "PATH"));
        self
    }

    /// A variable less.
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.remove(OsStr::new(name));
        self
    }

    /// What [`Smcp::run`] writes to stdin before it closes it.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Leaves descriptors open on a file, as a careless caller does.
    pub fn descriptors(mut self, numbers: RangeInclusive<u32>, file: &Path) -> Self {
        self.descriptors.extend(numbers.map(|number| (number, file.to_owned())));
        self
    }

    /// With a client in between: the probe, which holds it by pipes.
    pub fn held_by_a_client(mut self) -> Self {
        let program = std::mem::replace(&mut self.program, probe::path().to_owned());
        self.arguments.splice(0..0, ["client".into(), program.into_os_string()]);
        self
    }

    /// Another user than the world's.
    pub fn by(mut self, user: User) -> Self {
        self.user = user;
        self
    }

    /// Where it starts.
    pub fn in_directory(mut self, directory: PathBuf) -> Self {
        self.directory = directory;
        self
    }

    /// How long it may take.
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs it to its end, with its stdin written and closed.
    #[track_caller]
    pub fn run(mut self) -> Ended {
        let input = std::mem::take(&mut self.stdin);
        let mut running = self.start();
        // A thread of its own: the command may write a lot before it reads.
        let stdin = running.take_stdin();
        let writer = thread::spawn(move || {
            let mut stdin = stdin;
            // Whoever does not read its input says so by its exit code.
            let _ = stdin.write_all(&input);
        });
        let ended = running.wait();
        writer.join().expect("the writer does not panic");
        ended
    }

    /// Runs it to its end with these lines on its stdin, which stays open: a server whose client closes it has two seconds.
    #[track_caller]
    pub fn told(self, lines: &str) -> Ended {
        let mut running = self.start();
        let mut stdin = running.take_stdin();
        // Whoever does not read its input says so by its exit code.
        let _ = stdin.write_all(lines.as_bytes()).and_then(|()| stdin.write_all(b"\n"));
        let ended = running.wait();
        drop(stdin);
        ended
    }

    /// Starts it and leaves its stdin open.
    #[track_caller]
    pub fn start(self) -> Running {
        let mut child = self.spawn();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        self.running(child, Tap::on(stdout))
    }

    /// Starts it and leaves stdin and stdout to the caller: what comes is too much to be kept.
    #[track_caller]
    pub fn start_unheard(self) -> (Running, ChildStdin, ChildStdout) {
        let mut child = self.spawn();
        let streams = (child.stdin.take().expect("stdin is a pipe"), child.stdout.take().expect("stdout is a pipe"));
        (self.running(child, Tap::on(std::io::empty())), streams.0, streams.1)
    }

    #[track_caller]
    fn spawn(&self) -> Child {
        self.command().spawn().unwrap_or_else(|e| panic!("{self}: {e}"))
    }

    fn running(self, mut child: Child, stdout: Tap) -> Running {
        Running {
            stdin: child.stdin.take(),
            stdout,
            stderr: Tap::on(child.stderr.take().expect("stderr is a pipe")),
            child,
            shown: self.to_string(),
            is_smcp: self.program.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"smcp")),
            audit: self.world.path("log/audit.log"),
            started: Instant::now(),
            deadline: Instant::now() + self.patience,
        }
    }

    fn command(&self) -> Command {
        let mut command = if self.descriptors.is_empty() {
            Command::new(&self.program)
        } else {
            // A shell opens the descriptors: dup2 in a child would need unsafe code here.
            let mut shell = Command::new("/bin/bash");
            let opens: String = self.descriptors.iter().map(|(n, f)| format!("exec {n}<'{}'; ", f.display())).collect();
            shell.arg("-c").arg(format!("{opens} exec \"$0\" \"$@\"")).arg(&self.program);
            shell
        };
        command.args(&self.arguments).env_clear().envs(&self.env).current_dir(&self.directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if geteuid().is_root() {
            // Also drops the supplementary groups.
            command.uid(self.user.id()).gid(self.user.group());
        }
        command
    }
}

impl fmt::Display for Smcp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {} $ {}", self.user.id(), self.program.display())?;
        self.arguments.iter().try_for_each(|a| write!(f, " {}", a.display()))
    }
}

/// A command under way. Killed when it is dropped.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Tap,
    stderr: Tap,
    shown: String,
    is_smcp: bool,
    audit: PathBuf,
    started: Instant,
    deadline: Instant,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its stdin, to write to or to close by dropping it.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().expect("stdin is taken once")
    }

    /// Waits until its stdout is `enough`, and gives what there is.
    #[track_caller]
    pub fn await_stdout(&mut self, what: &str, enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        match self.stdout.wait(self.deadline, &enough) {
            Ok(bytes) => bytes,
            Err(why) => self.fail(&format!("{why} before stdout had {what}")),
        }
    }

    /// Waits for the line `"ready"` that the probe says.
    #[track_caller]
    pub fn await_ready(&mut self) {
        self.await_stdout("\"ready\"", |bytes| bytes.windows(7).any(|w| w == b"\"ready\""));
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).expect("a child's id is positive");
        kill_process(pid, signal).expect("a child that was not waited for can be signalled");
    }

    /// Whether it has ended by now.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    /// Whether it ends by then.
    pub fn ends_within(&mut self, patience: Duration) -> bool {
        within(patience, || self.has_ended().then_some(())).is_some()
    }

    /// How many bytes of stdout there are once no more come for a moment.
    pub fn settled_stdout(&self) -> usize {
        let mut seen = self.stdout.now().len();
        loop {
            thread::sleep(Duration::from_millis(200));
            let now = self.stdout.now().len();
            if now == seen {
                return now;
            }
            seen = now;
        }
    }

    /// Waits for its end, and leaves to others what they do with its streams.
    pub fn wait_for_the_process_alone(mut self) {
        if !self.ends_within(PATIENCE) {
            self.fail("did not end in time");
        }
    }

    /// Waits for its end and the end of its streams.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            if Instant::now() > self.deadline {
                self.fail("did not end in time");
            }
            thread::sleep(Duration::from_millis(1));
        };
        let took = self.started.elapsed();
        // A stream that stays open belongs to a process that was left behind.
        let patience = Instant::now() + Duration::from_secs(5);
        if !self.stdout.ends_by(patience) || !self.stderr.ends_by(patience) {
            self.fail("ended, and left its streams open in another process");
        }
        let ended = Ended {
            status,
            took,
            stdout: self.stdout.now(),
            stderr: self.stderr.now(),
            shown: self.shown.clone(),
            audit: text_of(&self.audit),
        };
        let tells = |bytes: &[u8]| bytes.windows(UNDECLARED.len()).any(|at| at == UNDECLARED.as_bytes());
        let told = tells(&ended.stdout) || tells(&ended.stderr) || tells(ended.audit.as_bytes());
        ended.check(!(self.is_smcp && told), "the caller's secret was told");
        ended
    }

    /// Waits for the end of one that was killed; it may have ended by itself before.
    #[track_caller]
    pub fn wait_killed(mut self) {
        self.child.wait().expect("it is our child");
    }

    #[track_caller]
    fn fail(&mut self, why: &str) -> ! {
        let _ = self.child.kill();
        let audit = text_of(&self.audit);
        panic!("{}", report(why, &self.shown, &self.stdout.now(), &self.stderr.now(), &audit))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A stream, read by a thread as it comes.
#[derive(Clone)]
struct Tap(Arc<(Mutex<Received>, Condvar)>);

#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    closed: bool,
}

impl Tap {
    fn on(mut stream: impl Read + Send + 'static) -> Tap {
        let tap = Tap(Arc::default());
        let shared = tap.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            loop {
                let count = stream.read(&mut buffer).unwrap_or(0);
                let (state, changed) = &*shared.0;
                let mut state = state.lock().expect("no reader panics");
                state.bytes.extend_from_slice(&buffer[..count]);
                state.closed = count == 0;
                changed.notify_all();
                if state.closed {
                    return;
                }
            }
        });
        tap
    }

    fn now(&self) -> Vec<u8> {
        self.0.0.lock().expect("no reader panics").bytes.clone()
    }

    fn wait(&self, deadline: Instant, enough: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, &'static str> {
        let (state, changed) = &*self.0;
        let mut state = state.lock().expect("no reader panics");
        loop {
            if enough(&state.bytes) {
                return Ok(state.bytes.clone());
            }
            if state.closed {
                return Err("the stream ended");
            }
            let left = deadline.checked_duration_since(Instant::now()).ok_or("time ran out")?;
            state = changed.wait_timeout(state, left).expect("no reader panics").0;
        }
    }

    fn ends_by(&self, deadline: Instant) -> bool {
        let _ = self.wait(deadline, &|_| false);
        self.0.0.lock().expect("no reader panics").closed
    }
}

/// A command that has ended.
pub struct Ended {
    status: ExitStatus,
    took: Duration,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    shown: String,
    audit: String,
}

impl Ended {
    /// Fails unless it ended by itself with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Ended {
        self.check(self.status.code() == Some(code), &format!("exit {code} was expected"));
        self
    }

    /// Fails unless it succeeded.
    #[track_caller]
    pub fn ok(self) -> Ended {
        self.expect(0)
    }

    /// Fails, with everything there is to see, unless `holds`.
    #[track_caller]
    pub fn check(&self, holds: bool, what: &str) {
        if !holds {
            let ended = match (self.status.code(), self.status.signal()) {
                (Some(code), _) => format!("exit {code}"),
                (None, signal) => format!("signal {signal:?}"),
            };
            let why = format!("{what}; it ended with {ended} after {:?}", self.took);
            panic!("{}", report(&why, &self.shown, &self.stdout, &self.stderr, &self.audit));
        }
    }

    /// Its exit code; fails where a signal ended it.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.check(self.status.code().is_some(), "an exit code was expected");
        self.status.code().unwrap_or_default()
    }

    /// How long it took.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// All of stdout.
    pub fn stdout(&self) -> &[u8] {
        &self.stdout
    }

    /// All of stderr.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Stdout as text; of the probe what it said.
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.stdout);
        let said = |line: &str| match line.strip_prefix("{\"said\":").and_then(|line| line.strip_suffix("}\n")) {
            Some(value) => format!("{value}\n"),
            None => line.to_owned(),
        };
        text.split_inclusive('\n').map(said).collect()
    }

    /// Stdout as JSON; of the probe what it said.
    #[track_caller]
    pub fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.text());
        self.check(parsed.is_ok(), "JSON was expected on stdout");
        parsed.unwrap_or_default()
    }

    /// Fails unless each of `words` stands on stderr, and a line with the next step.
    #[track_caller]
    pub fn explains(&self, words: &[&str]) {
        self.says(words);
        let hint = self.stderr().lines().any(|line| line.starts_with("hint: "));
        self.check(hint, "a hint was expected on stderr");
    }

    /// Fails unless each of `words` stands on stderr.
    #[track_caller]
    pub fn says(&self, words: &[&str]) {
        let stderr = self.stderr();
        for word in words {
            self.check(stderr.contains(word), &format!("{word:?} was expected on stderr"));
        }
        self.check(!stderr.contains("panicked"), "no panic was expected");
    }
}

fn report(why: &str, command: &str, stdout: &[u8], stderr: &[u8], audit: &str) -> String {
    let stream = |bytes: &[u8]| {
        const SHOWN: usize = 4000;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]).into_owned();
        if bytes.len() > SHOWN { format!("{text}… ({} bytes)", bytes.len()) } else { text }
    };
    let (stdout, stderr) = (stream(stdout), stream(stderr));
    format!("{why}\n{command}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n--- audit\n{audit}---")
}

/// The text of a log; none of what is not there, or is a pipe.
fn text_of(log: &Path) -> String {
    if log.is_file() { fs::read_to_string(log).unwrap_or_default() } else { String::new() }
}
