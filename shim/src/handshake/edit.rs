//! Changes to a line, by places of its raw bytes: what is not named here stays as it is.

use bundle::policy::Tools;

use super::json::{Span, escaped};
use super::rules::{listed, permits_listed};
use super::{Message, object};

/// What becomes of a line.
#[derive(Debug, Default)]
pub struct Edits {
    /// What stands in place of what.
    places: Vec<(Span, String)>,
    /// Lines before it and after it.
    before: String,
    after: String,
}

impl Edits {
    /// Whether the line stays as it is.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.before.is_empty() && self.after.is_empty()
    }

    /// Writes the line as it comes out.
    pub fn apply(mut self, line: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.before.as_bytes());
        // What is removed takes with it what was changed inside.
        self.places.sort_by_key(|(at, _)| (at.start, std::cmp::Reverse(at.end)));
        let mut done = 0;
        for (at, text) in self.places {
            if at.start < done {
                continue;
            }
            out.extend_from_slice(&line[done..at.start]);
            out.extend_from_slice(text.as_bytes());
            done = at.end;
        }
        out.extend_from_slice(&line[done..]);
        // A line that the server never ended can have none after it.
        if line.ends_with(b"\n") {
            out.extend_from_slice(self.after.as_bytes());
        }
    }

    /// Puts a text first in `instructions` of each result. Whether the one that clients take has it.
    pub fn instructions(&mut self, line: &[u8], results: &[Span], text: &str) -> bool {
        let mut has_it = false;
        for at in results {
            has_it = object(line, at).is_some_and(|result| self.lead(line, at, &result, "instructions", text));
        }
        has_it
    }

    /// Puts a text first in the description of each tool.
    pub fn descriptions(&mut self, line: &[u8], results: &[Span], text: &str) {
        for tool in listed(line, results, "tools").into_iter().flat_map(|(_, tools)| tools) {
            if let Some(members) = object(line, &tool) {
                self.lead(line, &tool, &members, "description", text);
            }
        }
    }

    /// Puts a block of text first in the content of each result. Whether there is any content.
    pub fn content(&mut self, line: &[u8], results: &[Span], text: &str) -> bool {
        let block = format!("{{\"type\":\"text\",\"text\":\"{}\"}}", escaped(text));
        let found = listed(line, results, "content");
        for (array, blocks) in &found {
            let comma = if blocks.is_empty() { "" } else { "," };
            self.insert(array.start + 1, format!("{block}{comma}"));
        }
        !found.is_empty()
    }

    /// Takes out of each list the tools that are not permitted.
    pub fn without_denied(&mut self, line: &[u8], results: &[Span], tools: &Tools) {
        for (_, all) in listed(line, results, "tools") {
            let permitted = |tool: &Span| permits_listed(tools, line, tool);
            let last_kept = all.iter().rposition(permitted);
            // Behind the last that stays there is a comma less, before it each goes with its own.
            let tail = last_kept.map_or(0, |at| at + 1);
            for (at, tool) in all[..tail].iter().enumerate().filter(|(_, tool)| !permitted(tool)) {
                self.places.push((tool.start..all[at + 1].start, String::new()));
            }
            if let (Some(first), Some(last)) = (all.get(tail), all.last()) {
                let from = last_kept.map_or(first.start, |kept| all[kept].end);
                self.places.push((from..last.end, String::new()));
            }
        }
    }

    /// Puts these in the place of a message.
    pub fn instead(&mut self, message: &Message, others: &[u8]) {
        // What stands there is JSON of smcp's own around an id that was read as JSON: no text is lost.
        self.places.push((message.at.clone(), String::from_utf8_lossy(others).into_owned()));
    }

    /// A notification before the line.
    pub fn notify_before(&mut self, text: &str) {
        self.before.push_str(&notification(text));
    }

    /// A notification after the line.
    pub fn notify_after(&mut self, text: &str) {
        self.after.push_str(&notification(text));
    }

    /// Puts a text before that of each member of this name; where there is none or `null`, it is the text. Whether the last
    /// member, which clients take, has it.
    fn lead(&mut self, line: &[u8], whole: &Span, members: &Message, name: &str, text: &str) -> bool {
        let text = escaped(text);
        let values = members.all(line, name);
        if values.is_empty() {
            let comma = if members.members.is_empty() { "" } else { "," };
            self.insert(whole.end - 1, format!("{comma}\"{name}\":\"{text}\""));
            return true;
        }
        let mut has_it = false;
        for at in values {
            has_it = true;
            match &line[at.clone()] {
                b"\"\"" => self.insert(at.start + 1, text.clone()),
                [b'"', ..] => self.insert(at.start + 1, format!("{text}\\n\\n")),
                b"null" => self.places.push((at, format!("\"{text}\""))),
                _ => has_it = false,
            }
        }
        has_it
    }

    fn insert(&mut self, at: usize, text: String) {
        self.places.push((at..at, text));
    }
}

/// A line that tells the client something of the level `warning`.
fn notification(text: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{{\"level\":\"warning\",\"logger\":\"smcp\",\"data\":\"{}\"}}}}\n",
        escaped(text)
    )
}
