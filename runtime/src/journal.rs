//! The audit log: JSON Lines, one begin and one end a run and between them what it was denied, each line chained to the one
//! before by its SHA-256.
//!
//! A server starts only with a [`Ticket`], and a ticket exists only once the begin entry is on disk. The head of the chain
//! is kept in the state directory, so that lines cut off the end of the log show. A run whose smcp was killed gets its end
//! entry from the next start.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distribution::Digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use ulid::Ulid;

use crate::egress::{Refused, Totals};
use crate::plan::Limit;
use crate::runs::{self, Event, Underway};

/// An open audit log.
#[derive(Clone, Debug)]
pub struct Journal {
    log: PathBuf,
    head: PathBuf,
    state: PathBuf,
}

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
        "nothing runs without an audit log: free the disk or make the path writable, or name another file by MCP_AUDIT_LOG_FILE".into()
    }
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

    /// Where what it is denied is written, by any thread.
    pub fn notes(&self, journal: &Journal) -> Notes {
        Notes { journal: journal.clone(), run: self.run(), failed: false }
    }
}

/// The way to the log for what a run is denied while it goes on. Only a [`Ticket`] gives one, so the begin stands before.
#[derive(Debug)]
pub struct Notes {
    journal: Journal,
    run: Ulid,
    failed: bool,
}

impl Notes {
    /// Writes one line. It is in the log when this returns, as the end is; nothing waits for the disk. What cannot be written
    /// is told once on stderr; it stands in the end entry all the same.
    pub fn denied(&mut self, refused: &Refused) {
        let mut fields = object(refused);
        fields.extend(refused.flag().map(|flag| ("flag".to_owned(), json!(flag))));
        let written = self.journal.append(self.run, None, Event::Denied, &fields, Durability::InLog);
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
    /// What it connected to with how many bytes, and what it was refused how often; of a run that was granted some network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Totals>,
    /// Which files and programs it asked for, of a run whose calls were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<crate::Asked>,
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

/// Where an entry is when its writing returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durability {
    OnDisk,
    InLog,
}

/// The last line written.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    seq: u64,
    hash: Digest,
}

impl Journal {
    /// Opens the log, making it and its directory (private to the user) where they are missing.
    ///
    /// # Errors
    /// Where the log or the head file's directory cannot be written.
    pub fn open(log: &Path, state: &Path) -> Result<Journal, JournalError> {
        let fail = |why| JournalError { path: log.to_owned(), what: "opened", why };
        let journal = Journal::of(log, state);
        for directory in log.parent().into_iter().chain(journal.head.parent()) {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fail)?;
        }
        journal.open_log().map_err(fail)?;
        Ok(journal)
    }

    fn of(log: &Path, state: &Path) -> Journal {
        // One head a log: tests, CI jobs and users may name different ones.
        let name = Digest::of(log.as_os_str().as_encoded_bytes());
        let head = state.join("audit").join(format!("{}.json", &name.hex()[..16]));
        Journal { log: log.to_owned(), head, state: state.to_owned() }
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
            if let Err(why) = Journal::of(&log, &self.state).end(Ticket { underway }, &ending) {
                tracing::warn!(%run, "{why}");
            }
        }
    }

    /// Where the log is.
    pub fn path(&self) -> &Path {
        &self.log
    }

    /// Writes the begin entry and waits until it is on disk.
    ///
    /// # Errors
    /// Where it cannot be written: the run must not start.
    pub fn begin(&self, run: Ulid, fields: &Map<String, Value>) -> Result<Ticket, JournalError> {
        let underway =
            Underway::new(&self.runs(), run).map_err(|why| JournalError { path: self.runs(), what: "used", why })?;
        if let Err(why) = self.append(run, Some(&underway), Event::Begin, fields, Durability::OnDisk) {
            // Nothing ran: whoever tries to record that comes by the same name.
            let _ = underway.finish();
            return Err(why);
        }
        Ok(Ticket { underway })
    }

    /// Writes the end entry. It is in the log when this returns, and on the disk when the system next writes: nothing waits
    /// for it, and a run whose end a power failure takes away still has its begin.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn end(&self, ticket: Ticket, ending: &Ending) -> Result<(), JournalError> {
        self.append(ticket.run(), Some(&ticket.underway), Event::End, &object(ending), Durability::InLog)?;
        // What is left is removed by the next start, which finds the end where it was to be.
        let _ = ticket.underway.finish();
        Ok(())
    }

    /// The entries of one run in their order, none where there are none; of the newest that has begun, where no id is given.
    /// Reads the whole log.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn entries(log: &Path, run: Option<&str>) -> Result<Vec<Value>, JournalError> {
        let fail = |why| JournalError { path: log.to_owned(), what: "read", why };
        let mut found: Vec<Value> = Vec::new();
        for line in BufReader::new(File::open(log).map_err(fail)?).split(b'\n') {
            // What a crash tore is no entry.
            let Ok(entry) = serde_json::from_slice::<Value>(&line.map_err(fail)?) else { continue };
            match run {
                Some(run) if entry["run"] != run => continue,
                None if entry["event"] == Event::Begin.name() => found.clear(),
                None if found.first().is_none_or(|begin| begin["run"] != entry["run"]) => continue,
                _ => {}
            }
            found.push(entry);
        }
        Ok(found)
    }

    fn append(
        &self,
        run: Ulid,
        underway: Option<&Underway>,
        event: Event,
        fields: &Map<String, Value>,
        durability: Durability,
    ) -> Result<(), JournalError> {
        self.try_append(run, underway, event, fields, durability).map_err(|why| JournalError {
            path: self.log.clone(),
            what: "written",
            why,
        })
    }

    fn try_append(
        &self,
        run: Ulid,
        underway: Option<&Underway>,
        event: Event,
        fields: &Map<String, Value>,
        durability: Durability,
    ) -> io::Result<()> {
        let mut log = self.open_log()?;
        log.lock()?;
        let last = last_line(&mut log)?;
        let head = self.read_head();
        let (seq, prev) = match (&last, &head) {
            (Some(line), head) => (
                line_seq(&line.text).or_else(|| head.as_ref().map(|h| h.seq)).unwrap_or(0) + 1,
                Some(Digest::of(&line.text)),
            ),
            // The log is gone and the head is not: going on from the head shows that lines are missing.
            (None, Some(head)) => (head.seq + 1, Some(head.hash.clone())),
            (None, None) => (1, None),
        };
        let mut entry = Map::new();
        entry.insert("run".into(), json!(run.to_string()));
        entry.insert("seq".into(), json!(seq));
        entry.insert("prev".into(), json!(prev.as_ref().map(Digest::hex)));
        entry.insert("time".into(), json!(Timestamp::now().to_string()));
        entry.insert("event".into(), json!(event.name()));
        entry.extend(fields.clone());
        let mut line = serde_json::to_vec(&entry)?;
        let hash = Digest::of(&line);
        line.push(b'\n');
        // A line that a crash tore stays as it is; the next one starts on a line of its own.
        let torn = last.is_some_and(|last| !last.complete);
        if torn {
            line.insert(0, b'\n');
        }
        let end_of_log = log.seek(SeekFrom::End(0))?;
        if let Some(underway) = underway {
            underway.note(event, &self.log, end_of_log + u64::from(torn))?;
        }
        log.write_all(&line)?;
        if durability == Durability::OnDisk {
            log.sync_data()?;
        }
        self.write_head(&Head { seq, hash })
    }

    fn open_log(&self) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&self.log)
    }

    fn read_head(&self) -> Option<Head> {
        serde_json::from_slice(&fs::read(&self.head).ok()?).ok()
    }

    fn write_head(&self, head: &Head) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        // In its place and at once: a process that is killed has written all of it or nothing, and a file renamed over
        // another without a flush, which would take as long as the entry's own, is no safer from a power failure.
        let mut text = serde_json::to_vec(head)?;
        text.resize(text.len().max(HEAD_LENGTH), b' ');
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.head)?;
        file.write_all_at(&text, 0)
    }
}

/// A sequence number and a digest fit in, padded by spaces: each head is as long as the one before.
const HEAD_LENGTH: usize = 128;

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

struct Line {
    text: Vec<u8>,
    complete: bool,
}

/// The last line of the log without its newline. Reads from the end, so that the log's size does not matter.
fn last_line(log: &mut File) -> io::Result<Option<Line>> {
    const STEP: u64 = 8192;
    let mut start = log.seek(SeekFrom::End(0))?;
    let mut tail: Vec<u8> = Vec::new();
    while start > 0 {
        let step = start.min(STEP);
        start -= step;
        log.seek(SeekFrom::Start(start))?;
        let mut block = vec![0; step as usize];
        log.read_exact(&mut block)?;
        block.extend_from_slice(&tail);
        tail = block;
        let body = tail.strip_suffix(b"\n").unwrap_or(&tail);
        if let Some(newline) = body.iter().rposition(|byte| *byte == b'\n') {
            return Ok(Some(Line { text: body[newline + 1..].to_vec(), complete: tail.ends_with(b"\n") }));
        }
    }
    Ok((!tail.is_empty())
        .then(|| Line { text: tail.strip_suffix(b"\n").unwrap_or(&tail).to_vec(), complete: tail.ends_with(b"\n") }))
}

fn line_seq(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(line).ok()?.get("seq")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Why;
    use std::sync::Arc;

    fn journal(dir: &Path) -> Journal {
        Journal::open(&dir.join("log/audit.log"), &dir.join("state")).unwrap()
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
    }

    #[test]
    fn entries_are_chained_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let run = new_run();
        let ticket = journal.begin(run, json!({"reference": "a/b"}).as_object().unwrap()).unwrap();
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
                        journal.begin(new_run(), &Map::new()).unwrap();
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
        journal.begin(new_run(), json!({"long": "x".repeat(50_000)}).as_object().unwrap()).unwrap();
        journal.begin(new_run(), &Map::new()).unwrap();
        assert_chained(&journal);
    }

    #[test]
    fn a_torn_line_stays_and_the_chain_goes_on_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        journal.begin(new_run(), &Map::new()).unwrap();
        OpenOptions::new().append(true).open(journal.path()).unwrap().write_all(b"{\"run\":\"01").unwrap();
        journal.begin(new_run(), &Map::new()).unwrap();
        let text = fs::read_to_string(journal.path()).unwrap();
        let raw: Vec<&str> = text.lines().collect();
        assert_eq!(raw[1], "{\"run\":\"01");
        let last: Value = serde_json::from_str(raw[2]).unwrap();
        assert_eq!(last["prev"], Digest::of(raw[1].as_bytes()).hex());
        assert_eq!(last["seq"], 2);
    }

    #[test]
    fn a_run_that_nobody_holds_gets_one_end() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let held = journal.begin(new_run(), &Map::new()).unwrap();
        let lost = journal.begin(new_run(), &Map::new()).unwrap().run();
        // Killed before its begin was written, while it was, and after its end was.
        drop(Underway::new(&journal.runs(), new_run()).unwrap());
        let torn = Underway::new(&journal.runs(), new_run()).unwrap();
        torn.note(Event::Begin, journal.path(), 0).unwrap();
        drop(torn);
        let ended = journal.begin(new_run(), &Map::new()).unwrap();
        journal.append(ended.run(), Some(&ended.underway), Event::End, &Map::new(), Durability::InLog).unwrap();
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
        let tickets = [(); 2].map(|()| journal.begin(new_run(), &Map::new()).unwrap());
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
        let ticket = journal.begin(new_run(), &Map::new()).unwrap();
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
        journal.begin(new_run(), &Map::new()).unwrap();
        fs::remove_file(journal.path()).unwrap();
        journal.begin(new_run(), &Map::new()).unwrap();
        assert_eq!(lines(&journal)[0]["seq"], 2);
        assert!(lines(&journal)[0]["prev"].is_string());
    }

    #[test]
    fn a_log_that_cannot_be_written_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log"), "a file where the directory should be").unwrap();
        let error = Journal::open(&dir.path().join("log/audit.log"), &dir.path().join("state")).unwrap_err();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
        std::os::unix::fs::symlink("/dev/null", dir.path().join("link")).unwrap();
        Journal::open(&dir.path().join("link"), &dir.path().join("state")).unwrap_err();
    }
}
