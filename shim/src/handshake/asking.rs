//! What a client of smcp's own reads of a server's lines: `smcp scan` asks for lists, and has to see all of what any client may take
//! of the answers.

use serde_json::Value;

use super::id::Id;
use super::json::Span;
use super::lists::Kind;
use super::pins::{self, Read};
use super::{messages, text};

/// A line of a server's, to a client that waits for one answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// The answer, by a result.
    Result(Answer),
    /// The answer, by an error: its code and message.
    Error(i64, String),
    /// A question of the server's: its id as it wrote it, and the method.
    Question(Vec<u8>, String),
    /// A notification, or nothing that this client asked for.
    Other,
}

/// An answer by a result, in the server's bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    line: Vec<u8>,
    results: Vec<Span>,
}

impl Answer {
    /// The result that most clients take, where it is plain JSON.
    pub fn value(&self) -> Option<Value> {
        serde_json::from_slice(&self.line[self.results.last()?.clone()]).ok()
    }

    /// How long its line is, bytes.
    pub fn size(&self) -> usize {
        self.line.len()
    }

    /// What it is as a page of a list.
    pub fn page(&self, kind: Kind) -> Read {
        pins::read(kind, &self.line, &self.results)
    }
}

/// Reads a line of a server's, where the answer to the request of this id is awaited. Of a batch the answer counts, else the first
/// question.
pub fn hear(line: &[u8], awaited: u64) -> Heard {
    let awaited = Id::of(awaited.to_string().as_bytes());
    let mut question = Heard::Other;
    for message in messages(line) {
        let id = message.last(line, "id");
        let is_awaited =
            id.clone().and_then(|at| Id::of(&line[at])).zip(awaited.as_ref()).is_some_and(|(id, it)| it.is(&id));
        let (results, errors) = (message.all(line, "result"), message.all(line, "error"));
        match message.last(line, "method").and_then(|at| text(line, &at)) {
            _ if is_awaited && !results.is_empty() => return Heard::Result(Answer { line: line.to_owned(), results }),
            None if is_awaited && !errors.is_empty() => {
                let error: Value =
                    errors.last().and_then(|at| serde_json::from_slice(&line[at.clone()]).ok()).unwrap_or_default();
                let message = error["message"].as_str().unwrap_or_default().to_owned();
                return Heard::Error(error["code"].as_i64().unwrap_or_default(), message);
            }
            Some(method) if question == Heard::Other => {
                if let Some(id) = id {
                    question = Heard::Question(line[id].to_owned(), method);
                }
            }
            _ => {}
        }
    }
    question
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_questions_and_the_rest_are_told_apart() {
        let Heard::Result(answer) =
            hear(br#"{"id":"7","result":{"tools":[{"name":"a"},{"name":"b","name":"c"}],"nextCursor":"x"}}"#, 7)
        else {
            panic!("a result was expected");
        };
        let Read { items, next } = answer.page(Kind::Tools);
        assert_eq!((items.len(), items[0].is_ok(), items[1].is_ok(), next.as_deref()), (2, true, false, Some("x")));
        let error = hear(br#"[{"method":"x"},{"id":7,"error":{"code":-32601,"message":"no"}}]"#, 7);
        assert_eq!(error, Heard::Error(-32601, "no".into()));
        assert_eq!(hear(br#"{"id":7,"method":"ping"}"#, 7), Heard::Question(b"7".into(), "ping".into()));
        for other in ["{\"id\":8,\"result\":{}}", "{\"method\":\"notifications/x\"}", "text", "{\"id\":7}"] {
            assert_eq!(hear(other.as_bytes(), 7), Heard::Other, "{other}");
        }
    }
}
