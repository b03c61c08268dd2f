//! What a session is held to, as policy and package say.

use bundle::policy::Tools;

use super::json::Span;
use super::lists::Kind;
use super::pins::Pins;
use super::{Message, elements, object, text};

/// What the relay has to do beside passing bytes on.
#[derive(Clone, Debug, Default)]
pub struct Duties {
    /// A warning that is due.
    pub warning: Option<Due>,
    /// Which tools the client may have, where not all.
    pub tools: Option<Tools>,
    /// What the server's lists are held to, where they are.
    pub pins: Option<Pins>,
    /// Whether a client that takes notifications is told by one that a list is another than what was accepted.
    pub notifies: bool,
    /// Whether calls of tools are recorded.
    pub calls: bool,
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

/// The answers to a line that asks for something which is not permitted, as `judge` says of each; `None` where the server may
/// have the line. Of a batch nothing passes then.
pub fn refuse(line: &[u8], messages: &[Message], judge: impl Fn(Kind, &str) -> Option<String>) -> Option<Vec<u8>> {
    let mut asked_for = messages.iter().flat_map(|message| asked_for(line, message));
    let said = asked_for.find_map(|(kind, name)| judge(kind, &name))?;
    let ids = messages.iter().filter_map(|message| message.last(line, "id"));
    Some(ids.flat_map(|id| error(&line[id], INVALID_PARAMS, &format!("smcp: {said}"), None)).collect())
}

/// The answer to a line of which nobody can say which tool it calls, while a server may read it otherwise: what is no message, and a call
/// whose name is no text.
pub fn unreadable(line: &[u8], messages: &[Message]) -> Option<Vec<u8>> {
    let said = |what: &str| {
        format!("smcp: {what}, which cannot be held against policy.tools; nothing was passed to the server")
    };
    if messages.is_empty() && !line.trim_ascii().is_empty() {
        return Some(error(b"null", PARSE_ERROR, &said("this line is no message"), None));
    }
    messages.iter().any(|message| is_odd_call(line, message)).then(|| {
        let ids = messages.iter().filter_map(|message| message.last(line, "id"));
        let why = said("this calls a tool by what is no text");
        ids.flat_map(|id| error(&line[id], INVALID_PARAMS, &why, None)).collect()
    })
}

fn is_odd_call(line: &[u8], message: &Message) -> bool {
    let is_call = |at: Span| text(line, &at).is_some_and(|method| method == "tools/call");
    let is_plain = |params: Span| {
        object(line, &params)
            .is_some_and(|params| params.all(line, Kind::Tools.key()).iter().all(|name| text(line, name).is_some()))
    };
    message.all(line, "method").into_iter().any(is_call) && !message.all(line, "params").into_iter().all(is_plain)
}

/// Why policy refuses a call of a tool.
pub fn denied(tools: &Tools, name: &str) -> Option<String> {
    let by = tools.judge(name).err()?;
    let shown: String = name.chars().take(100).collect();
    Some(format!("the tool {shown:?} is not permitted by policy.tools ({by}); nothing was passed to the server"))
}

/// What a message may ask for by its name, whichever of equal members a server takes.
fn asked_for(line: &[u8], message: &Message) -> Vec<(Kind, String)> {
    let methods = message.all(line, "method").into_iter().filter_map(|at| text(line, &at));
    let kinds = methods.filter_map(|method| match method.as_str() {
        "tools/call" => Some(Kind::Tools),
        "prompts/get" => Some(Kind::Prompts),
        "resources/read" => Some(Kind::Resources),
        _ => None,
    });
    let of_kind = |kind: Kind| {
        let params = message.all(line, "params").into_iter().filter_map(|at| object(line, &at));
        let names = params.flat_map(|params| params.all(line, kind.key())).filter_map(|at| text(line, &at));
        names.map(|name| (kind, name)).collect::<Vec<_>>()
    };
    kinds.flat_map(of_kind).collect()
}

/// JSON-RPC 2.0: the method's parameters are wrong, which is what servers say of a tool that they do not have.
const INVALID_PARAMS: i32 = -32602;

/// JSON-RPC 2.0: it is no JSON.
const PARSE_ERROR: i32 = -32700;

/// JSON-RPC 2.0 leaves -32000 to -32099 to servers.
pub const SERVER_ERROR: i32 = -32000;

/// A line with an error for the request of this id, as its client wrote it.
pub fn error(id: &[u8], code: i32, message: &str, data: Option<serde_json::Value>) -> Vec<u8> {
    [&failed(id, code, message, data)[..], b"\n"].concat()
}

/// The same without the line's end.
pub fn failed(id: &[u8], code: i32, message: &str, data: Option<serde_json::Value>) -> Vec<u8> {
    let mut error = serde_json::json!({"code": code, "message": message});
    if let Some(data) = data {
        error["data"] = data;
    }
    [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"error\":", error.to_string().as_bytes(), b"}"].concat()
}

/// The elements of the arrays that a result has by this name.
pub fn listed(line: &[u8], results: &[Span], name: &str) -> Vec<(Span, Vec<Span>)> {
    let objects = results.iter().filter_map(|at| object(line, at));
    let arrays = objects.flat_map(|result| result.all(line, name));
    arrays.filter_map(|array| elements(line, &array).map(|found| (array, found))).collect()
}
