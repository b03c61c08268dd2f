//! `--audit-calls`: a line of the audit log for each call of a tool. A thread of its own writes them, so that no message waits for
//! the log's lock; what it cannot keep up with is counted, and takes no memory.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use runtime::journal::{Calls as Totals, Notes};
use serde_json::json;

use crate::handshake::Called;
use crate::redact::Texts;
use crate::show;

/// How many calls wait to be written.
const MOST_WAITING: usize = 1024;

/// How many are written under one lock of the log, for which other runs wait meanwhile.
const AT_ONCE: usize = 64;

/// The way of calls to the log.
pub struct Calls {
    to: SyncSender<Called>,
    writer: JoinHandle<Written>,
    dropped: u64,
}

/// What became of the calls that came to the thread.
#[derive(Default)]
struct Written {
    lines: u64,
    lost: u64,
}

impl Calls {
    /// Starts the thread, in a run whose begin is in the log. Nothing is forked from here on.
    pub fn new(notes: Notes, texts: Texts) -> Calls {
        let (to, from) = mpsc::sync_channel(MOST_WAITING);
        Calls { to, writer: thread::spawn(move || write(&from, notes, texts)), dropped: 0 }
    }

    /// Takes a call that is over. It never waits.
    pub fn note(&mut self, called: Called) {
        if self.to.try_send(called).is_err() {
            self.dropped += 1;
        }
    }

    /// Waits until all that was taken is in the log. `unread` messages were too large to be read.
    pub fn finish(self, unread: u64) -> Totals {
        let Calls { to, writer, dropped } = self;
        drop(to);
        // Where the thread panicked nobody knows what it had written.
        let Written { lines, lost } = writer.join().unwrap_or_default();
        let totals = Totals { written: lines, dropped: dropped + lost, unread };
        if totals.dropped > 0 {
            show::warn(&format!(
                "{} call(s) of tools are not in the audit log, which was not written fast enough",
                totals.dropped
            ));
        }
        totals
    }
}

fn write(from: &Receiver<Called>, mut notes: Notes, mut texts: Texts) -> Written {
    let mut all = Written::default();
    while let Ok(first) = from.recv() {
        let batch = std::iter::once(first).chain(from.try_iter()).take(AT_ONCE);
        let batch: Vec<_> = batch.map(|called| fields(called, &mut texts)).collect();
        let written = notes.called(&batch);
        all.lines += written as u64;
        all.lost += (batch.len() - written) as u64;
    }
    all
}

fn fields(called: Called, texts: &mut Texts) -> serde_json::Map<String, serde_json::Value> {
    let Called { mut name, arguments, took, outcome, is_refused } = called;
    texts.clear(&mut name);
    let mut fields = serde_json::Map::new();
    fields.insert("tool".into(), json!(name));
    fields.insert("arguments".into(), json!(arguments));
    fields.insert("duration_us".into(), json!(u64::try_from(took.as_micros()).unwrap_or(u64::MAX)));
    fields.insert("outcome".into(), json!(outcome.word()));
    if is_refused {
        fields.insert("refused".into(), json!(true));
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use distribution::Digest;
    use runtime::journal::{Journal, new_run};

    use super::*;
    use crate::handshake::Outcome;

    fn called(name: &str) -> Called {
        let (arguments, took) = (Some(Digest::of(b"{}")), Duration::from_micros(1500));
        Called { name: name.into(), arguments, took, outcome: Outcome::Ok, is_refused: false }
    }

    /// While another process holds the log nothing waits; what does not fit is counted.
    #[test]
    fn calls_wait_for_the_log_and_nothing_waits_for_them() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit.log");
        let journal = Journal::open(&log, &dir.path().join("state"), 64 << 20).unwrap();
        let ticket = journal.begin(journal.announce(new_run()).unwrap(), &serde_json::Map::new()).unwrap();
        let mut calls =
            Calls::new(ticket.notes(&journal), Texts::without(vec![distribution::Secret::new("hunter2-hunter2")]));
        let held = std::fs::File::open(&log).unwrap();
        held.lock().unwrap();
        let sent = MOST_WAITING + AT_ONCE + 100;
        (0..sent).for_each(|number| calls.note(called(&format!("t{number} hunter2-hunter2"))));
        assert!(calls.dropped >= 100 - 1 && calls.dropped <= (AT_ONCE + 100) as u64, "{}", calls.dropped);
        drop(held);
        let totals = calls.finish(3);
        assert_eq!((totals.written + totals.dropped, totals.unread), (sent as u64, 3));
        let entries = Journal::entries(&log, Some(&ticket.run().to_string())).unwrap();
        assert_eq!(entries.len() as u64, 1 + totals.written);
        assert_eq!(entries[1]["event"], "call");
        assert_eq!((&entries[1]["duration_us"], &entries[1]["outcome"]), (&json!(1500), &json!("ok")));
        assert_eq!(entries[1]["tool"], "t0 <redacted>");
        drop(ticket);
        let verdict = Journal::verify(&log, &dir.path().join("state"), runtime::journal::Begin::AtTheFirst).unwrap();
        assert_eq!(verdict.findings, []);
    }
}
