//! Calls of tools, for the audit log: which, with what, how long, to what end. Of the arguments there is a digest alone.

use std::time::{Duration, Instant};

use distribution::Digest;

use super::json::{Span, means};
use super::{Message, object, text};

/// How much of a name is kept, characters.
const MOST_NAME: usize = 128;

/// A call that nobody has answered.
#[derive(Clone, Debug)]
pub struct Calling {
    name: String,
    arguments: Option<Digest>,
    began: Instant,
}

/// A call that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The tool.
    pub name: String,
    /// Of the arguments as the client wrote them; none where there are none.
    pub arguments: Option<Digest>,
    /// From the request to the answer, or to what came in its place.
    pub took: Duration,
    /// How it ended.
    pub outcome: Outcome,
    /// It was answered by smcp, and not passed to the server.
    pub is_refused: bool,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By a result.
    Ok,
    /// By an error, or a result that says it is one.
    Error,
    /// The client took it back.
    Cancelled,
    /// Not at all, as long as the run lasted.
    Unanswered,
}

impl Outcome {
    /// The word for it in the audit log.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Error => "error",
            Outcome::Cancelled => "cancelled",
            Outcome::Unanswered => "unanswered",
        }
    }
}

impl Calling {
    /// What a request calls: of equal members the last, which servers take.
    pub fn of(line: &[u8], message: &Message) -> Calling {
        let params = message.last(line, "params").and_then(|at| object(line, &at));
        let value = |name| params.as_ref().and_then(|params| params.last(line, name));
        let name = value("name").and_then(|at| text(line, &at)).unwrap_or_default();
        let arguments = value("arguments").map(|at| Digest::of(&line[at]));
        Calling { name: name.chars().take(MOST_NAME).collect(), arguments, began: Instant::now() }
    }

    /// It is over.
    pub fn over(self, outcome: Outcome) -> Called {
        let Calling { name, arguments, began } = self;
        Called { name, arguments, took: began.elapsed(), outcome, is_refused: false }
    }

    /// It was not passed on.
    pub fn refused(self) -> Called {
        Called { is_refused: true, ..self.over(Outcome::Error) }
    }
}

/// Whether a message calls a tool, whichever of equal members a server takes.
pub fn is_call(line: &[u8], message: &Message) -> bool {
    message.all(line, "method").into_iter().any(|at| text(line, &at).is_some_and(|method| method == "tools/call"))
}

/// What an answer with these results says of a call: of equal members the last, which clients take.
pub fn outcome(line: &[u8], results: &[Span]) -> Outcome {
    let result = results.last().and_then(|at| object(line, at));
    let says_error = |result: &Message| result.last(line, "isError").is_some_and(|at| means(&line[at], "true"));
    match result {
        _ if results.is_empty() => Outcome::Error,
        Some(result) if says_error(&result) => Outcome::Error,
        _ => Outcome::Ok,
    }
}
