//! Changes between bytes that stay: pure, of a file's text and what stands in it.

use super::dialect::Dialect;
use super::entries::{Entry, Start, entries};
use super::table::Shape;
use super::tree::{List, Node, Span};

/// Bytes in the place of others.
pub type Change = (Span, String);

/// A text with changes, which do not overlap.
pub fn changed(text: &str, changes: &[Change]) -> String {
    let mut changes: Vec<&Change> = changes.iter().collect();
    changes.sort_by_key(|(span, _)| (span.start, span.end));
    let (mut out, mut at) = (String::with_capacity(text.len() + 256), 0);
    for (span, instead) in changes {
        out.push_str(&text[at..span.start]);
        out.push_str(instead);
        at = span.end;
    }
    out + &text[at..]
}

/// The changes that put `instead` in the place of the first `replaced` words of an entry; the others and what stands around all of
/// them stay.
pub fn put(text: &str, dialect: Dialect, start: &Start<'_>, replaced: usize, instead: &[String]) -> Vec<Change> {
    let Some(list) = start.list else { return Vec::new() };
    let in_list = start.words.len() - list.items.len();
    let mut changes: Vec<Change> = start.words[..in_list]
        .iter()
        .zip(instead)
        .map(|((_, node), word)| (node.span().clone(), dialect.quoted(word)))
        .collect();
    changes.extend(in_the_list(text, dialect, list, replaced - in_list, &instead[in_list..]));
    changes
}

/// The same of the first items of a list.
fn in_the_list(text: &str, dialect: Dialect, list: &List, replaced: usize, instead: &[String]) -> Vec<Change> {
    let old: Vec<&Span> = list.items[..replaced].iter().map(Node::span).collect();
    let kept = old.len().min(instead.len());
    let mut changes: Vec<Change> = Vec::new();
    for (at, word) in instead[..kept].iter().enumerate() {
        let mut words = dialect.quoted(word);
        if at + 1 == kept {
            let gap = gap(text, dialect, list, at);
            words.extend(instead[kept..].iter().map(|word| format!("{gap}{}", dialect.quoted(word))));
        }
        changes.push((old[at].clone(), words));
    }
    for at in kept.max(1)..old.len() {
        let between = old[at - 1].end..old[at].start;
        match is_bare(&text[between.clone()]) {
            true => changes.push((between.start..old[at].end, String::new())),
            false => {
                // A comment stays, and its line.
                let mark = if list.is_block { '-' } else { ',' };
                changes.extend(outside_comments(text, dialect, between, mark).map(|place| (place, String::new())));
                changes.push((old[at].clone(), String::new()));
            }
        }
    }
    changes
}

/// What stands between two items, as the list has it around the item `at`.
fn gap(text: &str, dialect: Dialect, list: &List, at: usize) -> String {
    let between = |at: usize| {
        let (one, two) = (list.items.get(at)?, list.items.get(at + 1)?);
        Some(&text[one.span().end..two.span().start]).filter(|gap| is_bare(gap))
    };
    if let Some(gap) = between(at).or_else(|| between(at.checked_sub(1)?)) {
        return gap.to_owned();
    }
    let first = list.items[at].span().start;
    if list.is_block {
        return format!("{}{}- ", newline(text), indent(text, list.span.start));
    }
    let before = &text[list.span.start + 1..first];
    match before.rfind('\n') {
        Some(line) if dialect != Dialect::Yaml || !before.contains('#') => {
            let blank: String = before[line + 1..].chars().take_while(|c| c.is_whitespace()).collect();
            format!(",{}{blank}", newline(text))
        }
        _ => ", ".into(),
    }
}

/// Blanks and what separates items, and no comment.
fn is_bare(gap: &str) -> bool {
    gap.chars().all(|c| c.is_whitespace() || matches!(c, ',' | '-'))
}

/// The first place of a mark that stands in no comment.
pub fn outside_comments(text: &str, dialect: Dialect, within: Span, mark: char) -> Option<Span> {
    let mut at = within.start;
    while at < within.end {
        let rest = &text[at..within.end];
        if let Some(length) = dialect.comment(rest) {
            at += length.max(1);
            continue;
        }
        let c = rest.chars().next()?;
        if c == mark {
            return Some(at..at + c.len_utf8());
        }
        at += c.len_utf8();
    }
    None
}

/// The text's own end of a line.
pub fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// The whole lines that hold a place, with the end of the last.
pub fn line_of(text: &str, place: &Span) -> Span {
    let start = text[..place.start].rfind('\n').map_or(0, |end| end + 1);
    let end = text[place.end..].find('\n').map_or(text.len(), |end| place.end + end + 1);
    start..end
}

/// The blanks before a place on its line, as many columns as there are characters.
pub fn indent(text: &str, at: usize) -> String {
    text[line_of(text, &(at..at)).start..at].chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect()
}

/// Whether a changed text says what it should: the words of one entry, and everywhere else what it said before.
pub fn is_as_meant(
    (before, after): (&str, &str),
    dialect: Dialect,
    shape: &Shape,
    key: &Key,
    words: &[String],
) -> bool {
    let (Ok(Some(mut old)), Ok(Some(mut new))) = (dialect.read(before), dialect.read(after)) else { return false };
    let says = |root: &Node| {
        let entry = entries(root, shape).into_iter().find(|entry| key.is_of(entry))?;
        let start = entry.start(shape).ok()?;
        Some(start.words.iter().map(|(word, _)| (*word).to_owned()).collect::<Vec<_>>())
    };
    if says(&new).as_deref() != Some(words) {
        return false;
    }
    for root in [&mut old, &mut new] {
        let Some(place) =
            entries(root, shape).iter().find(|entry| key.is_of(entry)).map(|entry| entry.value.span().clone())
        else {
            return false;
        };
        blank(root, &place, shape);
    }
    old.says_the_same(before, &new, after)
}

/// Takes out of an entry what a change is about.
fn blank(node: &mut Node, place: &Span, shape: &Shape) {
    let is_it = node.span() == place;
    match node {
        Node::Map(map) if is_it => {
            map.members.retain(|member| member.name != shape.command && Some(member.name.as_str()) != shape.args);
        }
        Node::Map(map) => map.members.iter_mut().for_each(|member| blank(&mut member.value, place, shape)),
        Node::List(list) => list.items.iter_mut().for_each(|item| blank(item, place, shape)),
        _ => {}
    }
}

/// Which entry of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// The project that it stands beneath in the user's own file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
}

impl Key {
    /// That of an entry.
    pub fn of(entry: &Entry<'_>) -> Key {
        Key { name: entry.name.clone(), within: entry.within.clone() }
    }

    /// Whether it is that of an entry.
    pub fn is_of(&self, entry: &Entry<'_>) -> bool {
        entry.name == self.name && entry.within == self.within
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Client;
    use super::*;

    /// The text with smcp's words in the place of the first two of the only entry.
    fn put_in(id: &str, text: &str, replaced: usize, instead: &[&str]) -> String {
        let client = Client::named(id).unwrap();
        let root = client.dialect.read(text).unwrap().unwrap();
        let entry = entries(&root, &client.shape).remove(0);
        let start = entry.start(&client.shape).unwrap();
        let instead: Vec<String> = instead.iter().map(|word| (*word).to_owned()).collect();
        let changes = put(text, client.dialect, &start, replaced, &instead);
        let after = changed(text, &changes);
        let rest = start.words[replaced..].iter().map(|(word, _)| (*word).to_owned());
        let words: Vec<String> = instead.iter().cloned().chain(rest).collect();
        assert!(is_as_meant((text, &after), client.dialect, &client.shape, &Key::of(&entry), &words), "{after}");
        assert!(!is_as_meant((text, text), client.dialect, &client.shape, &Key::of(&entry), &words));
        after
    }

    const RUN: [&str; 5] = ["/s", "run", "--env", "K", "npm:p"];

    #[test]
    fn json_keeps_what_stands_around() {
        let text = "{\n\t// mine\n\t\"mcpServers\": { \"f\": {\n\t\t\"command\": \"npx\", // n\n\t\t\"args\": [\n\t\t\t\"-y\", // yes\n\t\t\t\"p\",\n\t\t\t\"/d\",\n\t\t],\n\t}},\n}\n";
        assert_eq!(
            put_in("cursor", text, 3, &RUN),
            "{\n\t// mine\n\t\"mcpServers\": { \"f\": {\n\t\t\"command\": \"/s\", // n\n\t\t\"args\": [\n\t\t\t\"run\", // yes\n\t\t\t\"--env\",\n\t\t\t\"K\",\n\t\t\t\"npm:p\",\n\t\t\t\"/d\",\n\t\t],\n\t}},\n}\n"
        );
        let line = r#"{"mcpServers":{"f":{"args":["-y","p"],"command":"npx","env":{"K":"v"}}}}"#;
        assert_eq!(
            put_in("cursor", line, 3, &RUN),
            r#"{"mcpServers":{"f":{"args":["run","--env","K","npm:p"],"command":"/s","env":{"K":"v"}}}}"#
        );
        let one = "{\"mcpServers\":{\"f\":{\"command\":\"uvx\",\"args\":[\r\n  \"p\"\r\n]}}}";
        assert_eq!(
            put_in("cursor", one, 2, &["/s", "run", "pypi:p"]),
            "{\"mcpServers\":{\"f\":{\"command\":\"/s\",\"args\":[\r\n  \"run\",\r\n  \"pypi:p\"\r\n]}}}"
        );
    }

    #[test]
    fn fewer_words_leave_comments() {
        let text = "{\"servers\":{\"f\":{\"command\":\"docker\",\"args\":[\"run\", \"-i\", // a, b\n \"--rm\" /* c */, \"p\", \"x\"]}}}";
        assert_eq!(
            put_in("vscode", text, 5, &["/s", "run", "p"]),
            "{\"servers\":{\"f\":{\"command\":\"/s\",\"args\":[\"run\", \"p\" // a, b\n  /* c */ , \"x\"]}}}"
        );
    }

    #[test]
    fn toml_and_yaml_keep_what_stands_around() {
        let text =
            "# c\n[mcp_servers.f]\ncommand = 'npx' # n\nargs = [ \"-y\", \"p\" ]\nenv = { K = \"v\" }\n\n[other]\nx=1";
        assert_eq!(
            put_in("codex", text, 3, &RUN),
            "# c\n[mcp_servers.f]\ncommand = \"/s\" # n\nargs = [ \"run\", \"--env\", \"K\", \"npm:p\" ]\nenv = { K = \"v\" }\n\n[other]\nx=1"
        );
        let text = "extensions:\n  f:\n    cmd: npx # n\n    args:\n    - -y\n    # package\n    - p\n    - /d\n    envs: {K: v}\n";
        assert_eq!(
            put_in("goose", text, 3, &RUN),
            "extensions:\n  f:\n    cmd: \"/s\" # n\n    args:\n    - \"run\"\n    # package\n    - \"--env\"\n    - \"K\"\n    - \"npm:p\"\n    - /d\n    envs: {K: v}\n"
        );
        let text = "mcpServers:\n  - name: f\n    command: uvx\n    args: [p, -v]\n";
        assert_eq!(
            put_in("continue", text, 2, &["/s", "run", "pypi:p"]),
            "mcpServers:\n  - name: f\n    command: \"/s\"\n    args: [\"run\", \"pypi:p\", -v]\n"
        );
    }

    #[test]
    fn program_and_arguments_in_one_list() {
        let text =
            r#"{"mcp": {"f": {"type": "local", "command": ["npx", "-y", "p", "/d"], "environment": {"K": "v"}}}}"#;
        assert_eq!(
            put_in("opencode", text, 3, &RUN),
            r#"{"mcp": {"f": {"type": "local", "command": ["/s", "run", "--env", "K", "npm:p", "/d"], "environment": {"K": "v"}}}}"#
        );
    }

    #[test]
    fn ends_of_lines_and_indents_are_the_texts_own() {
        assert_eq!((newline("a\r\nb\n"), newline("a")), ("\r\n", "\n"));
        assert_eq!(indent("a\n\t - x", 5), "\t  ");
    }
}
