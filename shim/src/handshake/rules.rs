//! What a session is held to, as policy and package say.

use bundle::policy::Tools;

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

/// Whether a client may have the tool of a list: whichever of equal members it takes.
pub fn permits_listed(tools: &Tools, line: &[u8], tool: &Span) -> bool {
    let names = object(line, tool).map(|tool| tool.all(line, "name")).unwrap_or_default();
    names.iter().filter_map(|at| text(line, at)).all(|name| tools.judge(&name).is_ok())
}

/// The answers to a line that asks for a tool which is not permitted; `None` where the server may have the line. Of a batch
/// nothing passes then.
pub fn refuse(tools: &Tools, line: &[u8], messages: &[Message]) -> Option<Vec<u8>> {
    let mut called = messages.iter().flat_map(|message| called(line, message));
    let (name, by) = called.find_map(|name| tools.judge(&name).err().map(|by| (name.clone(), by.to_string())))?;
    let shown: String = name.chars().take(100).collect();
    let said =
        format!("smcp: the tool {shown:?} is not permitted by policy.tools ({by}); nothing was passed to the server");
    let ids = messages.iter().filter_map(|message| message.last(line, "id"));
    Some(ids.flat_map(|id| error(&line[id], INVALID_PARAMS, &said, None)).collect())
}

/// The tools that a message may call, whichever of equal members a server takes.
fn called(line: &[u8], message: &Message) -> Vec<String> {
    let methods = message.all(line, "method");
    if !methods.iter().filter_map(|at| text(line, at)).any(|method| method == "tools/call") {
        return Vec::new();
    }
    let params = message.all(line, "params").into_iter().filter_map(|at| object(line, &at));
    let names = params.flat_map(|params| params.all(line, "name"));
    names.filter_map(|at| text(line, &at)).collect()
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

/// The elements of the arrays that a result has by this name.
pub fn listed(line: &[u8], results: &[Span], name: &str) -> Vec<(Span, Vec<Span>)> {
    let objects = results.iter().filter_map(|at| object(line, at));
    let arrays = objects.flat_map(|result| result.all(line, name));
    arrays.filter_map(|array| elements(line, &array).map(|found| (array, found))).collect()
}
