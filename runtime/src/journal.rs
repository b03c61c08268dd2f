//! The audit log: JSON Lines, one begin and one end a run and between them what it was denied, each line chained to the one
//! before by its SHA-256.
//!
//! A server starts only with a [`Ticket`], and a ticket exists only once the begin entry is on disk. The head of the chain
//! is kept in the state directory, so that lines cut off the end of the log show. A run whose smcp was killed gets its end
//! entry from the next start.

mod chain;
mod files;
mod verify;

use std::fs::{DirBuilder, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distribution::Digest;
use distribution::system::{self, DirBuilderExt as _};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use ulid::Ulid;

use crate::egress::{Refused, Totals};
use crate::plan::Limit;
use crate::runs::{self, Event, Underway};
use chain::{Head, HeadFile, Link};
use files::Tail;

pub use files::{Line, Lines, newest_first};
pub use verify::{Begin, Finding, Place, Verdict, Wrong};

/// An open audit log.
#[derive(Clone, Debug)]
pub struct Journal {
    log: PathBuf,
    head: PathBuf,
    state: PathBuf,
    most: u64,
}

/// The size at which a log is rotated unless the configuration says otherwise, bytes: some twenty thousand runs.
pub const MAX_SIZE: u64 = 64 << 20;

/// Why the audit log cannot be used. Nothing runs then.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {path} cannot be {what}: {why}")]
pub struct JournalError {
    path: PathBuf,
    what: &'static str,
    why: io::Error,
}

impl JournalError {
    /// The next step for a person.
    pub fn hint(&self) -> String {
        "nothing runs without an audit log: free the disk or make the path writable, or name another file by MCP_AUDIT_LOG_FILE and another place for state by XDG_STATE_HOME".into()
    }
}

/// A run that is about to begin: what its begin entry takes beside the entry is done.
#[derive(Debug)]
pub struct Announced {
    underway: Underway,
    files: Files,
}

/// The files that an entry is written to.
#[derive(Debug)]
struct Files {
    log: File,
    head: HeadFile,
}

/// Proof that the begin entry of a run is on disk. While it lives, the run counts as under way.
#[derive(Debug)]
pub struct Ticket {
    underway: Underway,
}

impl Ticket {
    /// The run's id.
    pub fn run(&self) -> Ulid {
        self.underway.run()
    }

    /// Where what happens to it is written, by any thread.
    pub fn notes(&self, journal: &Journal) -> Notes {
        Notes { journal: journal.clone(), run: self.run(), failed: false }
    }
}

/// The way to the log for what happens while a run goes on. Only a [`Ticket`] gives one, so the begin stands before.
#[derive(Debug)]
pub struct Notes {
    journal: Journal,
    run: Ulid,
    failed: bool,
}

impl Notes {
    /// The run's id.
    pub fn run(&self) -> Ulid {
        self.run
    }

    /// Writes one line. It is in the log when this returns, as the end is; nothing waits for the disk. What cannot be written
    /// is told once on stderr; it stands in the end entry all the same.
    pub fn denied(&mut self, refused: &Refused) {
        let mut fields = object(refused);
        fields.extend(refused.flag().map(|flag| ("flag".to_owned(), json!(flag))));
        self.write(Event::Denied, &fields);
    }

    /// Writes that a list of the server's is another than was accepted, in the same way.
    pub fn changed(&mut self, about: &impl Serialize) {
        self.write(Event::Changed, &object(about));
    }

    /// Writes calls of tools in the same way, all under one lock of the log. How many of them are in it.
    pub fn called(&mut self, calls: &[Map<String, Value>]) -> usize {
        let entries: Vec<_> = calls.iter().map(|fields| (Event::Call, fields)).collect();
        let (mut count, files) = (0, self.journal.files());
        let written = files.and_then(|files| self.journal.append_all(files, self.run, None, &entries, &mut count));
        self.told(written);
        count
    }

    fn write(&mut self, event: Event, fields: &Map<String, Value>) {
        let files = self.journal.files();
        let written = files.and_then(|files| self.journal.append(files, self.run, None, event, fields));
        self.told(written);
    }

    fn told(&mut self, written: io::Result<()>) {
        if let Err(why) = written
            && !std::mem::replace(&mut self.failed, true)
        {
            tracing::warn!(run = %self.run, "{why}");
        }
    }
}

/// What ended, for the end entry.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ending {
    /// smcp's own exit code.
    pub exit: u8,
    /// One word: `exited`, `signal`, `memory`, `pids`, `cpu-time`, `timeout`, `client-closed`, `terminated`, `deny`, `lost` and so on.
    pub cause: &'static str,
    /// The error as the user saw it, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The limit that ended the run, where one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The denied directory that changed its place, for which the run was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmasked: Option<PathBuf>,
    /// Which step of the ladder ended the server: `stdin`, `sigterm`, `sigkill`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<&'static str>,
    /// Wall clock of the run in milliseconds; nobody knows that of a lost one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// User and system time of the server's tree in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Largest resident set of one process of the tree, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// Bytes to the server's stdin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_in: Option<u64>,
    /// Bytes from the server's stdout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_out: Option<u64>,
    /// Lines on the server's stdout that were no messages and went to stderr; of a run whose lines were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stray_lines: Option<u64>,
    /// What it connected to with how many bytes, and what it was refused how often; of a run that was granted some network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Totals>,
    /// How many calls of tools stand in the log, of a run whose calls were to be written there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<Calls>,
    /// Which files and programs it asked for, of a run whose calls were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<crate::Asked>,
}

/// Calls of tools in the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// Those that have a line each.
    pub written: u64,
    /// Those that have none, since the log could not be written fast enough or at all.
    pub dropped: u64,
    /// Messages that were too large to be read, and may have been calls or the answers to some.
    pub unread: u64,
}

impl Ending {
    /// Sets the wall clock.
    pub fn lasted(mut self, duration: Duration) -> Self {
        self.duration_ms = Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        self
    }
}

/// The exit code of a run whose smcp was killed: what SIGKILL gives, which is what cannot be answered.
const LOST: u8 = 137;

impl Journal {
    /// Opens the log, making it and its directory (private to the user) where they are missing. Once it has `most` bytes it is
    /// rotated.
    ///
    /// # Errors
    /// Where the log or the head file's directory cannot be written.
    pub fn open(log: &Path, state: &Path, most: u64) -> Result<Journal, JournalError> {
        let fail = |why| JournalError { path: log.to_owned(), what: "opened", why };
        let journal = Journal::of(log, state, most);
        for directory in log.parent().into_iter().chain(journal.head.parent()) {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(at(directory)).map_err(fail)?;
        }
        files::open(&journal.log).map_err(fail)?;
        Ok(journal)
    }

    fn of(log: &Path, state: &Path, most: u64) -> Journal {
        // One head a log: tests, CI jobs and users may name different ones.
        let name = Digest::of(log.as_os_str().as_encoded_bytes());
        let head = state.join("audit").join(format!("{}.json", &name.hex()[..16]));
        Journal { log: log.to_owned(), head, state: state.to_owned(), most }
    }

    fn runs(&self) -> PathBuf {
        self.state.join("runs")
    }

    /// Writes the end entries of the runs whose smcp was killed, each in the log that has its begin. One whose log cannot be
    /// written is left to a later start. What this costs grows with the runs under way alone.
    pub fn end_lost(&self) {
        let ending = Ending {
            exit: LOST,
            cause: "lost",
            error: Some("smcp was killed, and nobody saw the end of this run".into()),
            ..Ending::default()
        };
        for (underway, log) in runs::lost(&self.runs()) {
            let run = underway.run();
            if let Err(why) = Journal::of(&log, &self.state, self.most).end(Ticket { underway }, &ending) {
                tracing::warn!(%run, "{why}");
            }
        }
    }

    /// The begin entries of the runs that are under way in a state directory, in their order.
    pub fn under_way(state: &Path) -> Vec<Value> {
        runs::held(&state.join("runs"))
    }

    /// Whether a run is.
    pub fn is_under_way(state: &Path, run: Ulid) -> bool {
        runs::is_under_way(&state.join("runs"), run)
    }

    /// Where the log is.
    pub fn path(&self) -> &Path {
        &self.log
    }

    /// Does what can be done before the fields of a begin entry are known.
    ///
    /// # Errors
    /// Where it cannot be done: the run must not start.
    pub fn announce(&self, run: Ulid) -> Result<Announced, JournalError> {
        let files = self.files().map_err(|why| self.unwritten(why))?;
        let underway =
            Underway::new(&self.runs(), run).map_err(|why| JournalError { path: self.runs(), what: "used", why })?;
        Ok(Announced { underway, files })
    }

    /// Writes the begin entry and waits until it is on disk.
    ///
    /// # Errors
    /// Where it cannot be written: the run must not start.
    pub fn begin(&self, announced: Announced, fields: &Map<String, Value>) -> Result<Ticket, JournalError> {
        let Announced { underway, files } = announced;
        if let Err(why) = self.append(files, underway.run(), Some(&underway), Event::Begin, fields) {
            // Nothing ran: whoever tries to record that comes by the same name.
            let _ = underway.finish();
            return Err(self.unwritten(why));
        }
        Ok(Ticket { underway })
    }

    /// Writes the end entry. It is in the log when this returns, and on the disk when the system next writes: nothing waits
    /// for it, and a run whose end a power failure takes away still has its begin.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn end(&self, ticket: Ticket, ending: &Ending) -> Result<(), JournalError> {
        let written = self
            .files()
            .and_then(|files| self.append(files, ticket.run(), Some(&ticket.underway), Event::End, &object(ending)));
        written.map_err(|why| self.unwritten(why))?;
        // What is left is removed by the next start, which finds the end where it was to be.
        let _ = ticket.underway.finish();
        Ok(())
    }

    /// The entries of one run in their order, none where there are none; of the newest that has begun, where no id is given.
    /// Reads each file of the log that is not older than the run.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn entries(log: &Path, run: Option<&str>) -> Result<Vec<Value>, JournalError> {
        let mut found = Vec::new();
        for file in newest_first(log) {
            let here = entries_of(&file, run).map_err(|why| JournalError { path: file, what: "read", why })?;
            let begun = |entries: &[Value]| entries.first().is_some_and(|entry| entry["event"] == Event::Begin.name());
            if begun(&here) {
                let id = here[0]["run"].clone();
                found.retain(|entry: &Value| entry["run"] == id);
                found.splice(0..0, here);
                break;
            }
            found.splice(0..0, here);
        }
        // Without its begin nobody can tell which run is the newest.
        if run.is_none() && found.first().is_none_or(|entry| entry["event"] != Event::Begin.name()) {
            found.clear();
        }
        Ok(found)
    }

    /// Checks the chain from the first line to its head.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn verify(log: &Path, state: &Path, begin: Begin) -> Result<Verdict, JournalError> {
        Journal::verify_each(log, state, begin, |_| {})
    }

    /// The same, and each line is shown as it is checked: what is made of them is of the lines that the verdict is about.
    ///
    /// # Errors
    /// Where the log cannot be read.
    pub fn verify_each(
        log: &Path,
        state: &Path,
        begin: Begin,
        each: impl FnMut(&Line),
    ) -> Result<Verdict, JournalError> {
        let journal = Journal::of(log, state, MAX_SIZE);
        journal.try_verify(begin, each).map_err(|why| JournalError { path: log.to_owned(), what: "read", why })
    }

    fn try_verify(&self, begin: Begin, mut each: impl FnMut(&Line)) -> io::Result<Verdict> {
        let (head, mut lines) = loop {
            // Nobody writes while the head and the files are looked up; what is written from then on is not read.
            let held = files::hold(&self.log)?;
            let head = chain::head(&self.head);
            let lines = Lines::open(&self.log)?;
            match held {
                Some((_, size)) => break (head, lines.up_to(size)),
                // Between two files of a rotation nobody can be kept away: the head may know nothing of what is there by now.
                None if self.log.symlink_metadata().is_ok() => {}
                None => break (head, lines),
            }
        };
        let mut check = verify::Check::new(head, begin);
        while let Some(line) = lines.line()? {
            check.line(&line);
            each(&line);
        }
        if let Some(line) = lines.rest() {
            check.line(&line);
            each(&line);
        }
        Ok(check.end())
    }

    fn files(&self) -> io::Result<Files> {
        Ok(Files { log: files::open(&self.log)?, head: HeadFile::open(&self.head).map_err(at(&self.head))? })
    }

    fn unwritten(&self, why: io::Error) -> JournalError {
        JournalError { path: self.log.clone(), what: "written", why }
    }

    /// Writes an entry. A begin is on the disk when this returns, others are in the log.
    fn append(
        &self,
        files: Files,
        run: Ulid,
        underway: Option<&Underway>,
        event: Event,
        fields: &Map<String, Value>,
    ) -> io::Result<()> {
        self.append_all(files, run, underway, &[(event, fields)], &mut 0)
    }

    /// Writes entries under one lock in the same way, and counts those that are written.
    fn append_all(
        &self,
        files: Files,
        run: Ulid,
        underway: Option<&Underway>,
        entries: &[(Event, &Map<String, Value>)],
        written: &mut usize,
    ) -> io::Result<()> {
        let Files { log, head: head_file } = files;
        let (mut log, mut size) = files::lock(log, &self.log)?;
        if size >= self.most && self.rotate(&log, size)? {
            (log, size) = files::lock(files::open(&self.log)?, &self.log)?;
        }
        let mut tail = if size == 0 { Tail::of_rotated(&self.log)? } else { Tail::of(&log, size)? };
        let known = head_file.read();
        if known.is_none() && tail.is_foreign() {
            let why = "it is no audit log, and nothing is appended to what others wrote";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let mut head = known.unwrap_or_default().settled(&tail);
        for (event, fields) in entries {
            let next = chain::after(&tail, &head);
            let mut entry = Map::new();
            entry.insert("run".into(), json!(run.to_string()));
            entry.insert("seq".into(), json!(next.seq));
            entry.insert("prev".into(), json!(next.prev.as_ref().map(Digest::hex)));
            if let Some(before) = &next.torn {
                entry.insert("torn".into(), json!(before.as_ref().map(Digest::hex)));
            }
            entry.insert("time".into(), json!(Timestamp::now().to_string()));
            entry.insert("event".into(), json!(event.name()));
            entry.extend((*fields).clone());
            let mut line = serde_json::to_vec(&entry)?;
            let link = Link { seq: next.seq, hash: Digest::of(&line) };
            line.push(b'\n');
            // A line that a crash tore stays as it is; the next one starts on a line of its own.
            if tail.unended {
                line.insert(0, b'\n');
            }
            if let Some(underway) = underway {
                underway.note(*event, &self.log, size + u64::from(tail.unended)).map_err(at(&self.runs()))?;
            }
            // Before the line: one that the head has not heard of was not written by smcp.
            head_file.write(&Head { next: Some(link.clone()), ..head }).map_err(at(&self.head))?;
            let kept = log.write_all(&line).and_then(|()| match event {
                Event::Begin => log.sync_data(),
                _ => Ok(()),
            });
            if let Err(why) = kept {
                // What of it is there would look as if a crash had torn it, or as if another had added it.
                let _ = log.set_len(size);
                return Err(why);
            }
            size += line.len() as u64;
            head = link.into();
            head_file.write(&head).map_err(at(&self.head))?;
            // What the next line follows is what the head says.
            tail = Tail::default();
            *written += 1;
        }
        Ok(())
    }

    /// Gives a locked log of some size the name under which it stays, and makes a new one; whoever waits for its lock looks
    /// again. False where it has to stay where it is.
    fn rotate(&self, log: &File, size: u64) -> io::Result<bool> {
        let tail = Tail::of(log, size)?;
        let last = tail.whole.as_deref().and_then(chain::Entry::read).map_or(0, |entry| entry.seq);
        let mut name = self.log.clone().into_os_string();
        name.push(format!(".{last}"));
        let directory = self.log.parent().unwrap_or(Path::new("/"));
        let renamed = system::rename_to_new(&self.log, Path::new(&name));
        // It can be written all the same, which is what counts: in a directory that cannot be, or where something has the name.
        if let Err(why) = renamed {
            tracing::warn!("the audit log {} cannot be rotated: {why}", self.log.display());
            return Ok(false);
        }
        files::open(&self.log)?;
        // An entry on the disk is of no use in a file that has no name there.
        system::sync_directory(directory)?;
        Ok(true)
    }
}

/// Names a file beside the log that failed: it may be on another disk.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |why| io::Error::new(why.kind(), format!("{}: {why}", path.display()))
}

/// The entries of a run in one file; of the newest that has begun there, or else of all runs, where no id is given.
fn entries_of(file: &Path, run: Option<&str>) -> io::Result<Vec<Value>> {
    let mut found: Vec<Value> = Vec::new();
    for line in BufReader::new(File::open(file)?).split(b'\n') {
        // What a crash tore is no entry.
        let Ok(entry) = serde_json::from_slice::<Value>(&line?) else { continue };
        let begins = entry["event"] == Event::Begin.name();
        match run {
            Some(run) if entry["run"] != run => continue,
            None if begins => found.clear(),
            None if found
                .first()
                .is_some_and(|first| first["event"] == Event::Begin.name() && first["run"] != entry["run"]) =>
            {
                continue;
            }
            _ => {}
        }
        found.push(entry);
    }
    Ok(found)
}

fn object(of_plain_values: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(of_plain_values) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("an entry is an object of plain values: {other:?}"),
    }
}

/// A new run's id.
pub fn new_run() -> Ulid {
    Ulid::generate()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Why;
    use std::fs::{self, OpenOptions};
    use std::sync::Arc;

    fn journal(dir: &Path) -> Journal {
        Journal::open(&dir.join("log/audit.log"), &dir.join("state"), MAX_SIZE).unwrap()
    }

    fn begin(journal: &Journal, run: Ulid, fields: &Map<String, Value>) -> Result<Ticket, JournalError> {
        journal.begin(journal.announce(run)?, fields)
    }

    fn lines(journal: &Journal) -> Vec<Value> {
        fs::read_to_string(journal.path()).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    fn assert_chained(journal: &Journal) {
        let text = fs::read_to_string(journal.path()).unwrap();
        let raw: Vec<&str> = text.lines().collect();
        for (index, entry) in lines(journal).iter().enumerate() {
            assert_eq!(entry["seq"], index as u64 + 1);
            let prev = index.checked_sub(1).map(|before| Digest::of(raw[before].as_bytes()).hex().to_owned());
            assert_eq!(entry["prev"], json!(prev));
        }
        let verdict = verified(journal);
        assert_eq!((verdict.entries, verdict.findings), (raw.len() as u64, vec![]));
    }

    fn verified(journal: &Journal) -> Verdict {
        Journal::verify(&journal.log, &journal.state, Begin::AtTheFirst).unwrap()
    }

    #[cfg(unix)]
    #[test]
    fn entries_are_chained_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let run = new_run();
        let ticket = begin(&journal, run, json!({"reference": "a/b"}).as_object().unwrap()).unwrap();
        assert_eq!(ticket.run(), run);
        journal.end(ticket, &Ending { exit: 3, cause: "exited", ..Ending::default() }).unwrap();
        assert_chained(&journal);
        assert_eq!(lines(&journal)[1]["exit"], 3);
        assert_eq!(fs::metadata(journal.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn many_writers_make_one_chain() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Arc::new(journal(dir.path()));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        begin(&journal, new_run(), &Map::new()).unwrap();
                    }
                });
            }
        });
        assert_eq!(lines(&journal).len(), 40);
        assert_chained(&journal);
    }

    #[test]
    fn a_line_longer_than_one_read_is_the_last_line_still() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        begin(&journal, new_run(), json!({"long": "x".repeat(50_000)}).as_object().unwrap()).unwrap();
        begin(&journal, new_run(), &Map::new()).unwrap();
        assert_chained(&journal);
    }

    #[test]
    fn a_torn_line_stays_and_the_chain_goes_on_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        begin(&journal, new_run(), &Map::new()).unwrap();
        OpenOptions::new().append(true).open(journal.path()).unwrap().write_all(b"{\"run\":\"01").unwrap();
        begin(&journal, new_run(), &Map::new()).unwrap();
        let text = fs::read_to_string(journal.path()).unwrap();
        let raw: Vec<&str> = text.lines().collect();
        assert_eq!(raw[1], "{\"run\":\"01");
        let last: Value = serde_json::from_str(raw[2]).unwrap();
        assert_eq!(last["prev"], Digest::of(raw[1].as_bytes()).hex());
        assert_eq!(last["torn"], Digest::of(raw[0].as_bytes()).hex());
        assert_eq!(last["seq"], 2);
        let verdict = verified(&journal);
        assert_eq!((verdict.findings, verdict.torn.len(), verdict.torn[0].line), (vec![], 1, 2));
    }

    /// T9: what was done to the log before the next run still shows after it.
    #[test]
    fn t9_the_next_entry_covers_nothing_up() {
        type Change = fn(&str) -> String;
        let cut: Change = |text| text.lines().take(2).map(|line| format!("{line}\n")).collect();
        let cases: [(&str, Change, usize); 6] = [
            ("cut off", cut, 3),
            ("cut off to nothing", |_| String::new(), 1),
            ("cut in the last line", |text| text[..text.len() - 9].to_owned(), 5),
            ("the last changed", |text| text.replacen("\"seq\":4", "\"seq\":4,\"x\":1", 1), 4),
            (
                "the last is no entry",
                |text| format!("{}garbage\n", &text[..text.trim_end().rfind('\n').unwrap() + 1]),
                4,
            ),
            ("garbage after it", |text| format!("{text}garbage\n"), 5),
        ];
        for (name, change, line) in cases {
            let dir = tempfile::tempdir().unwrap();
            let journal = journal(dir.path());
            (0..4).for_each(|_| drop(begin(&journal, new_run(), &Map::new()).unwrap()));
            let text = fs::read_to_string(journal.path()).unwrap();
            fs::write(journal.path(), change(&text)).unwrap();
            (0..2).for_each(|_| drop(begin(&journal, new_run(), &Map::new()).unwrap()));
            let found = verified(&journal).findings;
            assert!(found.len() == 1 && found[0].place.line == line as u64, "{name}: {found:?}");
        }
    }

    #[test]
    fn t9_a_log_is_rotated_and_its_chain_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (log, state) = (dir.path().join("audit.log"), dir.path().join("state"));
        let journal = Journal::open(&log, &state, 4096).unwrap();
        let lost = begin(&journal, new_run(), &Map::new()).unwrap().run();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let journal = Journal::open(&log, &state, 4096).unwrap();
                    for _ in 0..20 {
                        let ticket = begin(&journal, new_run(), &Map::new()).unwrap();
                        journal.end(ticket, &Ending { cause: "exited", ..Ending::default() }).unwrap();
                    }
                });
            }
        });
        let verdict = verified(&journal);
        assert_eq!((verdict.entries, verdict.first, verdict.last), (161, Some(1), Some(161)));
        assert_eq!((verdict.findings, verdict.torn), (vec![], vec![]));
        let files: Vec<_> = newest_first(&log).collect();
        assert_eq!(verdict.files, files.len() as u64);
        assert!(files.len() > 5, "{files:?}");
        assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() < 4096 + 400));
        // The begin of a run that is lost is in an older file by now.
        journal.end_lost();
        let entries = Journal::entries(&log, Some(&lost.to_string())).unwrap();
        let of = |key: &str| entries.iter().map(|entry| entry[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("event"), [json!("begin"), json!("end")]);
        assert_eq!(Journal::entries(&log, None).unwrap().len(), 2);
        // A whole file that is gone shows as well, also the newest.
        let newest = fs::read(&log).unwrap();
        fs::remove_file(&log).unwrap();
        let found = verified(&journal).findings;
        assert!(matches!(found.as_slice(), [Finding { what: Wrong::CutOff { last: 162, .. }, .. }]), "{found:?}");
        fs::write(&log, newest).unwrap();
        fs::remove_file(&files[2]).unwrap();
        let found = verified(&journal).findings;
        assert!(matches!(found.as_slice(), [Finding { what: Wrong::Removed { .. }, .. }]), "{found:?}");
    }

    #[test]
    fn a_log_that_cannot_be_rotated_is_written_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (log, state) = (dir.path().join("audit.log"), dir.path().join("state"));
        let journal = Journal::open(&log, &state, 1).unwrap();
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        fs::create_dir(dir.path().join("audit.log.1")).unwrap();
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        assert_eq!(lines(&journal).len(), 2);
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        assert_eq!(lines(&journal).len(), 1, "the next name is free");
    }

    #[test]
    fn t9_a_writer_that_was_killed_leaves_a_chain_that_holds() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        let before = fs::read(&journal.head).unwrap();
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        // After the line and before the head; then the next run.
        let line = fs::read(journal.path()).unwrap();
        let line = line.strip_suffix(b"\n").unwrap().rsplit(|byte| *byte == b'\n').next().unwrap();
        let head: Head = serde_json::from_slice(&before).unwrap();
        let about = Head { next: Some(Link { seq: 2, hash: Digest::of(line) }), ..head };
        HeadFile::open(&journal.head).unwrap().write(&about).unwrap();
        assert_eq!(verified(&journal).findings, []);
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        assert_chained(&journal);
    }

    /// Each after its line and before the head; the second one has said what it is about to write.
    #[test]
    fn two_writers_that_were_killed_leave_a_chain_that_holds() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let link = |seq: usize| {
            let text = fs::read_to_string(journal.path()).unwrap();
            Link { seq: seq as u64, hash: Digest::of(text.lines().nth(seq - 1).unwrap().as_bytes()) }
        };
        for _ in 0..2 {
            drop(begin(&journal, new_run(), &Map::new()).unwrap());
        }
        let first = Head { next: Some(link(2)), ..link(1).into() };
        HeadFile::open(&journal.head).unwrap().write(&first).unwrap();
        let tail = Tail::of(&File::open(journal.path()).unwrap(), fs::metadata(journal.path()).unwrap().len()).unwrap();
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        let second = Head { next: Some(link(3)), ..first.settled(&tail) };
        HeadFile::open(&journal.head).unwrap().write(&second).unwrap();
        assert_eq!(verified(&journal).findings, []);
        drop(begin(&journal, new_run(), &Map::new()).unwrap());
        assert_chained(&journal);
    }

    #[test]
    fn a_run_that_nobody_holds_gets_one_end() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let held = begin(&journal, new_run(), &Map::new()).unwrap();
        let lost = begin(&journal, new_run(), &Map::new()).unwrap().run();
        // Killed before its begin was written, while it was, and after its end was.
        drop(Underway::new(&journal.runs(), new_run()).unwrap());
        let torn = Underway::new(&journal.runs(), new_run()).unwrap();
        torn.note(Event::Begin, journal.path(), 0).unwrap();
        drop(torn);
        let ended = begin(&journal, new_run(), &Map::new()).unwrap();
        let files = journal.files().unwrap();
        journal.append(files, ended.run(), Some(&ended.underway), Event::End, &Map::new()).unwrap();
        drop(ended);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| journal.end_lost());
            }
        });
        let ends: Vec<_> = lines(&journal).into_iter().filter(|entry| entry["cause"] == "lost").collect();
        assert_eq!(ends.len(), 1, "{ends:?}");
        assert_eq!((&ends[0]["run"], &ends[0]["exit"]), (&json!(lost.to_string()), &json!(137)));
        assert_chained(&journal);
        let left = || fs::read_dir(journal.runs()).unwrap().count();
        assert_eq!(left(), 1, "the one that is held");
        journal.end(held, &Ending::default()).unwrap();
        assert_eq!(left(), 0);
    }

    fn refused(host: &str) -> Refused {
        Refused { host: host.into(), port: Some(80), why: Why::PortNotGranted, address: None, count: 1 }
    }

    #[test]
    fn what_runs_are_denied_stands_in_the_chain_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let tickets = [(); 2].map(|()| begin(&journal, new_run(), &Map::new()).unwrap());
        std::thread::scope(|scope| {
            for ticket in &tickets {
                let mut notes = ticket.notes(&journal);
                scope.spawn(move || (0..20).for_each(|number| notes.denied(&refused(&format!("{number}.test")))));
            }
        });
        let [first, second] = tickets.each_ref().map(Ticket::run);
        let ends = tickets.map(|ticket| journal.end(ticket, &Ending { cause: "exited", ..Ending::default() }));
        assert!(ends.iter().all(Result::is_ok));
        assert_chained(&journal);
        let of = |run: Option<&str>| Journal::entries(journal.path(), run).unwrap();
        for run in [first, second] {
            let entries = of(Some(&run.to_string()));
            let events: Vec<_> = entries.iter().map(|entry| entry["event"].as_str().unwrap()).collect();
            assert_eq!((events.len(), events[0], events[1], events[21]), (22, "begin", "denied", "end"));
            assert_eq!((&entries[1]["host"], &entries[1]["why"]), (&json!("0.test"), &json!("port-not-granted")));
            assert_eq!(entries[1]["flag"], "--allow-net 0.test:80");
        }
        assert_eq!(of(None), of(Some(&second.to_string())), "the newest");
        assert_eq!(of(Some("01J")), Vec::<Value>::new());
    }

    #[test]
    fn a_line_that_cannot_be_written_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let ticket = begin(&journal, new_run(), &Map::new()).unwrap();
        let mut notes = ticket.notes(&journal);
        fs::remove_file(journal.path()).unwrap();
        fs::create_dir(journal.path()).unwrap();
        notes.denied(&refused("a.test"));
        assert!(notes.failed);
    }

    #[test]
    fn a_log_that_was_removed_shows_by_the_head() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        begin(&journal, new_run(), &Map::new()).unwrap();
        fs::remove_file(journal.path()).unwrap();
        begin(&journal, new_run(), &Map::new()).unwrap();
        assert_eq!(lines(&journal)[0]["seq"], 2);
        assert!(lines(&journal)[0]["prev"].is_string());
    }

    #[test]
    fn a_log_that_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log"), "a file where the directory should be").unwrap();
        let error = Journal::open(&dir.path().join("log/audit.log"), &dir.path().join("state"), MAX_SIZE).unwrap_err();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
        #[cfg(unix)]
        std::os::unix::fs::symlink("/dev/null", dir.path().join("link")).unwrap();
        #[cfg(unix)]
        Journal::open(&dir.path().join("link"), &dir.path().join("state"), MAX_SIZE).unwrap_err();
    }
}
