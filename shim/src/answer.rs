//! A run that fails before its server answered, as the answer to what the client asked: whoever started it by a desktop sees
//! neither stderr nor an exit code.

use std::time::{Duration, Instant};

use runtime::system::{PollFd, PollFlags, Timespec, is_terminal, poll, read, stdin, stdout};
use serde_json::json;

use crate::exit::Failure;
use crate::handshake::{Duties, Handshake, Output, SERVER_ERROR, error};
use crate::relay::{self, Session};

/// How long smcp waits for a client's first request before it ends without an answer: one that has just started it may not have
/// come to that.
pub const PATIENCE: Duration = Duration::from_millis(300);

/// How long a client may take to make room for its answer.
const ROOM: Duration = Duration::from_secs(1);

/// Answers the client's requests by a failure, where the server has answered none. `session` is what was read of it so far. A
/// client that has not asked yet is given as long as `patience`. What a terminal says is a person's, and never read.
pub fn answer(session: Option<Session>, failure: &Failure, patience: Duration) {
    let (mut handshake, last_lines) = match session {
        Some(session) => (session.handshake, session.last_lines),
        None => (Handshake::new(Duties::default()), Vec::new()),
    };
    if handshake.has_answered() || is_terminal(stdin()) || is_terminal(stdout()) {
        return;
    }
    let mut told = 0;
    let mut deadline = Instant::now() + patience;
    loop {
        let waiting = handshake.unanswered();
        for asked in &waiting[told..] {
            let line = error(&asked.id, SERVER_ERROR, &said(failure, &last_lines), Some(about(failure, &last_lines)));
            // Half a line of a server that was ended would swallow the answer.
            let torn = handshake.is_within_a_line() && told == 0;
            let line = if torn { [b"\n", &line[..]].concat() } else { line };
            if relay::write_to_client(&line, ROOM).is_err() {
                return;
            }
            told += 1;
        }
        match waiting.last() {
            Some(asked) if !asked.probes => return,
            // The client tries the older era next.
            Some(_) if told == 1 => deadline = Instant::now() + PATIENCE,
            _ => {}
        }
        if !read_more(&mut handshake, deadline) {
            return;
        }
    }
}

/// Reads what the client has to say until then. Whether there was anything.
fn read_more(handshake: &mut Handshake, deadline: Instant) -> bool {
    let stdin = stdin();
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    if !matches!(poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&timeout)), Ok(1..)) {
        return false;
    }
    let mut bytes = vec![0; 64 * 1024];
    match read(stdin, &mut bytes) {
        Ok(count) if count > 0 => handshake.client(&bytes[..count], &mut Output::default()).is_ok(),
        _ => false,
    }
}

/// What and why, the next step, and what the server said last.
fn said(failure: &Failure, last_lines: &[u8]) -> String {
    let hint = failure.next_step().map_or(String::new(), |hint| format!("; hint: {hint}"));
    let lines = shown(last_lines);
    let lines = if lines.is_empty() { String::new() } else { format!("; its last lines on stderr: {lines}") };
    format!("smcp: {}{hint}{lines}", failure.message)
}

fn about(failure: &Failure, last_lines: &[u8]) -> serde_json::Value {
    json!({"exit": failure.code, "cause": failure.cause(), "hint": failure.next_step(), "stderr": shown(last_lines)})
}

/// The last lines as text; the first of them may be cut off.
fn shown(last_lines: &[u8]) -> String {
    String::from_utf8_lossy(last_lines).trim().to_owned()
}
