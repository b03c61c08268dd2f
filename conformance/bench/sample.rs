//! One start after another, and what each took.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::fdatasync;

use crate::{Result, because, sys};

/// Starts that are not counted, so that each contender finds its files in memory.
const WARM_UP: usize = 2;
/// Nothing that is measured here takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// As long as an entry of the audit log.
const ENTRY: usize = 2048;

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
    "\n"
);

/// When a start is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// When the program has ended.
    ForExit,
    /// When the server has sent the first byte of its answer.
    ForFirstByte,
}

/// Contenders that take turns.
pub struct Part<'a> {
    /// What is measured.
    pub title: &'static str,
    /// When a start is over.
    pub waits: Waits,
    /// Who is measured, the one without anything around it first.
    pub contenders: Vec<Contender<'a>>,
    /// What it costs to have one line of the audit log on disk, taken between the starts.
    pub flushes: Vec<Duration>,
    log: Option<PathBuf>,
}

/// A command and what its starts took.
pub struct Contender<'a> {
    /// Who it is.
    pub name: &'static str,
    /// Start to end of each start.
    pub wall: Vec<Duration>,
    /// User and system time of each, all processes until their exit; none where they cannot be counted.
    pub cpu: Vec<Duration>,
    children: Children,
    command: Box<dyn Fn() -> Command + 'a>,
}

/// What a contender does with its processes. Their CPU time is told to who waits for them, wait4(2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Children {
    /// Waits for all.
    Waited,
    /// Ends while some are still to be waited for.
    Left,
}

impl<'a> Contender<'a> {
    /// Nothing measured yet.
    pub fn new(name: &'static str, children: Children, command: impl Fn() -> Command + 'a) -> Contender<'a> {
        Contender { name, wall: Vec::new(), cpu: Vec::new(), children, command: Box::new(command) }
    }
}

impl<'a> Part<'a> {
    /// A part without contenders.
    pub fn new(title: &'static str, waits: Waits) -> Part<'a> {
        Part { title, waits, contenders: Vec::new(), flushes: Vec::new(), log: None }
    }

    /// Also measures how long the file system of `log` takes for one line.
    pub fn flushes_beside(&mut self, log: &Path) {
        self.log = Some(log.with_file_name("flushed"));
    }

    /// Lets every contender have its turn, `rounds` times.
    pub fn measure(&mut self, rounds: usize) -> Result<()> {
        let log = self.log.as_deref().map(open_log).transpose()?;
        for round in 0..WARM_UP + rounds {
            for contender in &mut self.contenders {
                let cpu_before = sys::cpu_of_children();
                let wall = start((contender.command)(), self.waits).map_err(because(contender.name))?;
                let cpu = sys::cpu_of_children().saturating_sub(cpu_before);
                if round >= WARM_UP {
                    contender.wall.push(wall);
                    contender.cpu.extend((contender.children == Children::Waited).then_some(cpu));
                }
            }
            if let Some(log) = &log {
                self.flushes.push(flush(log)?);
            }
        }
        Ok(())
    }
}

/// How long a start takes. All of its processes are gone afterwards.
fn start(mut command: Command, waits: Waits) -> Result<Duration> {
    let (stdin, stdout) = match waits {
        Waits::ForExit => (Stdio::null(), Stdio::null()),
        Waits::ForFirstByte => (Stdio::piped(), Stdio::piped()),
    };
    command.stdin(stdin).stdout(stdout).stderr(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().map_err(because("starting it"))?;
    let stdout = child.stdout.take();
    let answered = stdout.map(|stdout| converse(&mut child, stdout, began).inspect_err(|_| drop(child.kill())));
    // A server ends with its input.
    drop(child.stdin.take());
    let ended = child.wait().map_err(because("waiting for it"))?;
    let elapsed = began.elapsed();
    match answered {
        Some(answered) => answered,
        None if ended.success() => Ok(elapsed),
        None => Err(format!("it ended with {ended}")),
    }
}

/// Sends `initialize`, returns when the first byte came, having read the whole answer.
fn converse(child: &mut Child, mut stdout: ChildStdout, began: Instant) -> Result<Duration> {
    let stdin = child.stdin.as_mut().ok_or("it has no stdin")?;
    stdin.write_all(INITIALIZE.as_bytes()).map_err(because("writing to it"))?;
    let mut answer = Vec::new();
    let mut first = None;
    while answer.last() != Some(&b'\n') {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&stdout, PollFlags::IN)], Some(&timeout))
            .map_err(because("waiting for its answer"))?;
        let mut block = [0_u8; 4096];
        let count = if ready == 0 { 0 } else { stdout.read(&mut block).map_err(because("reading from it"))? };
        first.get_or_insert_with(|| began.elapsed());
        if count == 0 {
            return Err("it gave no answer".into());
        }
        answer.extend_from_slice(&block[..count]);
    }
    // A warning that is due follows it as a message of its own.
    let answer = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_slice(answer).map_err(because("its answer"))?;
    first.filter(|_| answer["result"]["serverInfo"].is_object()).ok_or_else(|| format!("its answer is {answer}"))
}

fn open_log(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).map_err(because(path.display()))
}

/// As the journal does: append, then wait for the disk.
fn flush(mut log: &File) -> Result<Duration> {
    let mut line = vec![b'x'; ENTRY - 1];
    line.push(b'\n');
    let began = Instant::now();
    log.write_all(&line).map_err(because("writing a line"))?;
    fdatasync(log).map_err(because("flushing a line"))?;
    Ok(began.elapsed())
}
