//! What a session is held to, as policy and package say.

use super::json::Span;
use super::{Message, elements, object, text};

/// What the relay has to do beside passing bytes on.
#[derive(Clone, Debug, Default)]
pub struct Duties {
    /// A warning that is due.
    pub warning: Option<Due>,
    /// Which tools the client may have, where not all.
    pub tools: Option<Tools>,
}

/// A warning that is due, and its ways to models and people.
#[derive(Clone, Debug)]
pub struct Due {
    /// One line of ASCII that JSON need not escape.
    pub text: String,
    /// Its ways.
    pub channels: Channels,
    /// Its ways where a handshake could not be read.
    pub otherwise: Channels,
}

/// Ways of a warning, `policy.warning.channels`. stderr and the audit log are none of them: these always have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// First in the server's `instructions`.
    pub instructions: bool,
    /// First in the description of each tool.
    pub tools: bool,
    /// A block of text in the first result of a tool.
    pub result: bool,
    /// A `notifications/message`, where the client's era allows one.
    pub notification: bool,
}

impl Channels {
    /// All of them.
    pub const ALL: Channels = Channels { instructions: true, tools: true, result: true, notification: true };

    /// Of a package that nobody scored: lists and results stay as the server wrote them.
    pub fn of_unscored(self) -> Channels {
        Channels { tools: false, result: false, ..self }
    }
}

/// Which tools a client may have, `policy.tools`: names, in which `*` stands for any characters.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// None but these, where there are any.
    pub allow: Vec<String>,
    /// Not these.
    pub deny: Vec<String>,
}

impl Tools {
    /// Whether a client may have the tool.
    pub fn permits(&self, name: &str) -> bool {
        let among = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, name));
        !among(&self.deny) && (self.allow.is_empty() || among(&self.allow))
    }

    /// Whether a client may have the tool of a list: whichever of equal members it takes.
    pub fn permits_listed(&self, line: &[u8], tool: &Span) -> bool {
        let names = object(line, tool).map(|tool| tool.all(line, "name")).unwrap_or_default();
        names.iter().filter_map(|at| text(line, at)).all(|name| self.permits(&name))
    }

    /// The answers to a line that asks for a tool which is not permitted; `None` where the server may have the line. Of a
    /// batch nothing passes then.
    pub fn refuse(&self, line: &[u8], messages: &[Message]) -> Option<Vec<u8>> {
        let refused: Vec<String> = messages.iter().flat_map(|message| self.refused(line, message)).collect();
        let first = refused.first()?;
        let shown: String = first.chars().take(100).collect();
        let said =
            format!("smcp: the tool {shown:?} is not permitted by policy.tools; nothing was passed to the server");
        let ids = messages.iter().filter_map(|message| message.last(line, "id"));
        Some(ids.flat_map(|id| error(&line[id], INVALID_PARAMS, &said, None)).collect())
    }

    fn refused(&self, line: &[u8], message: &Message) -> Vec<String> {
        let methods = message.all(line, "method");
        if !methods.iter().filter_map(|at| text(line, at)).any(|method| method == "tools/call") {
            return Vec::new();
        }
        let params = message.all(line, "params").into_iter().filter_map(|at| object(line, &at));
        let names = params.flat_map(|params| params.all(line, "name"));
        names.filter_map(|at| text(line, &at)).filter(|name| !self.permits(name)).collect()
    }
}

/// JSON-RPC 2.0: the method's parameters are wrong, which is what servers say of a tool that they do not have.
const INVALID_PARAMS: i32 = -32602;

/// A line with an error for the request of this id, as its client wrote it.
pub fn error(id: &[u8], code: i32, message: &str, data: Option<serde_json::Value>) -> Vec<u8> {
    let mut error = serde_json::json!({"code": code, "message": message});
    if let Some(data) = data {
        error["data"] = data;
    }
    [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"error\":", error.to_string().as_bytes(), b"}\n"].concat()
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// The elements of the arrays that a result has by this name.
pub fn listed(line: &[u8], results: &[Span], name: &str) -> Vec<(Span, Vec<Span>)> {
    let objects = results.iter().filter_map(|at| object(line, at));
    let arrays = objects.flat_map(|result| result.all(line, name));
    arrays.filter_map(|array| elements(line, &array).map(|found| (array, found))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_tools() {
        for (pattern, fitting, other) in [
            ("read", vec!["read"], vec!["reads", "rea", "Read", ""]),
            ("read_*", vec!["read_", "read_file"], vec!["read", "xread_"]),
            ("*_file", vec!["_file", "read_file"], vec!["read_files"]),
            ("a*b*c", vec!["abc", "aXbXc", "abbc"], vec!["ab", "acb", "abcd"]),
            ("*", vec!["", "anything"], vec![]),
            ("a*a", vec!["aa", "aXa"], vec!["a"]),
        ] {
            fitting.iter().for_each(|name| assert!(fits(pattern, name), "{pattern} {name}"));
            other.iter().for_each(|name| assert!(!fits(pattern, name), "{pattern} {name}"));
        }
        let tools = Tools { allow: vec!["read_*".into()], deny: vec!["*_secret".into()] };
        assert_eq!(["read_x", "write_x", "read_secret"].map(|name| tools.permits(name)), [true, false, false]);
    }
}
