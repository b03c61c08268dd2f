//! Whole entries that come into a file and go out of it: pure, between bytes that stay.

use super::dialect::Dialect;
use super::edit::{Change, Key, changed, indent, line_of, newline};
use super::entries::{Entry, Holder, entries};
use super::table::{Client, Shape};
use super::tree::{List, Map, Member, Node, Span};

/// A text with one more entry.
///
/// # Errors
/// Where there is one of that name, or the servers stand there in a way that smcp cannot add to: for people.
pub fn added(client: &Client, text: &str, name: &str, words: &[String]) -> Result<String, String> {
    let root = client.dialect.read(text).map_err(|why| why.to_string())?;
    if root.is_none() && client.shape.is_list {
        let end = newline(text);
        // What Continue asks of a file, beside the servers.
        return added(client, &format!("{text}name: Local{end}version: 1.0.0{end}schema: v1{end}"), name, words);
    }
    let key = Key { name: name.into(), within: None };
    if root.iter().any(|root| entries(root, &client.shape).iter().any(|entry| key.is_of(entry))) {
        return Err(format!("it has a server {name} already"));
    }
    let shown = Shown { client, name, words };
    let place = client.shape.at[0][0];
    let changes = match (&root, client.dialect) {
        (None, Dialect::Json) => {
            let member = shown.member(place, &shown.in_json("    ", "  ", newline(text)), newline(text), "  ");
            let end = newline(text);
            vec![(0..text.len(), format!("{text}{{{end}  {member}{end}}}{end}"))]
        }
        (None, Dialect::Yaml) => {
            let end = newline(text);
            let before = if text.is_empty() || text.ends_with('\n') { "" } else { end };
            vec![(text.len()..text.len(), format!("{before}{place}:{}{end}", shown.lines("  ", end)))]
        }
        (_, Dialect::Toml) => vec![(text.len()..text.len(), shown.in_toml(place, text))],
        // Clients differ in which of the two they take.
        (Some(Node::Map(root)), _) if root.has_twice(place) => return Err(by_hand(place)),
        (Some(Node::Map(root)), Dialect::Json) => match root.get(place) {
            Some(Node::Map(servers)) => {
                appended(text, servers, &|at| shown.in_json(at, &unit(text), newline(text)), name)
            }
            Some(_) => return Err(by_hand(place)),
            None => appended(
                text,
                root,
                &|at| {
                    let (unit, end) = (unit(text), newline(text));
                    let within = format!("{at}{unit}");
                    format!(
                        "{{{end}{}{end}{at}}}",
                        format_args!("{within}{}: {}", quoted(name), shown.in_json(&within, &unit, end))
                    )
                },
                place,
            ),
        },
        (Some(Node::Map(root)), Dialect::Yaml) => shown.in_yaml(text, root, place)?,
        _ => return Err(by_hand(place)),
    };
    let after = changed(text, &changes);
    match is_only(client, (text, &after), &key, words) {
        true => Ok(after),
        false => Err(by_hand(place)),
    }
}

fn by_hand(place: &str) -> String {
    format!("its `{place}` stands there in a way that smcp cannot change: do it by hand")
}

fn quoted(text: &str) -> String {
    Dialect::Json.quoted(text)
}

/// An entry that is to be written.
struct Shown<'s> {
    client: &'s Client,
    name: &'s str,
    words: &'s [String],
}

impl Shown<'_> {
    /// Its members: each a name and a value that is the same in all languages.
    fn members(&self) -> Vec<(&str, String)> {
        let Shape { command, args, more, .. } = &self.client.shape;
        let list = |words: &[String]| {
            let words: Vec<String> = words.iter().map(|word| self.client.dialect.quoted(word)).collect();
            format!("[{}]", words.join(", "))
        };
        let text = |text: &str| if text == "true" { text.to_owned() } else { self.client.dialect.quoted(text) };
        let mut members: Vec<(&str, String)> = more.iter().map(|(name, value)| (*name, text(value))).collect();
        match args {
            None => members.push((command, list(self.words))),
            Some(args) => {
                members.push((command, self.client.dialect.quoted(&self.words[0])));
                members.push((args, list(&self.words[1..])));
            }
        }
        members
    }

    /// Behind a name that stands `at` so many blanks.
    fn in_json(&self, at: &str, unit: &str, end: &str) -> String {
        let lines: Vec<String> =
            self.members().iter().map(|(name, value)| format!("{at}{unit}{}: {value}", quoted(name))).collect();
        format!("{{{end}{}{end}{at}}}", lines.join(&format!(",{end}")))
    }

    /// The map of servers with this one alone, behind its own name.
    fn member(&self, place: &str, value: &str, end: &str, at: &str) -> String {
        format!("{}: {{{end}{at}{at}{}: {value}{end}{at}}}", quoted(place), quoted(self.name))
    }

    fn in_toml(&self, place: &str, text: &str) -> String {
        let end = newline(text);
        let is_bare =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        let name = if is_bare(self.name) { self.name.to_owned() } else { Dialect::Toml.quoted(self.name) };
        let lines: String = self.members().iter().map(|(name, value)| format!("{name} = {value}{end}")).collect();
        let before = match text {
            "" => "",
            text if text.ends_with('\n') => end,
            _ => &format!("{end}{end}"),
        };
        format!("{before}[{place}.{name}]{end}{lines}")
    }

    /// Lines with as many blanks before them, the first with a dash or behind its name.
    fn lines(&self, at: &str, end: &str) -> String {
        let name = Dialect::Yaml.quoted(self.name);
        let members = self.members();
        let members = members.iter().map(|(name, value)| format!("{at}  {name}: {value}"));
        let first = if self.client.shape.is_list { format!("{at}- name: {name}") } else { format!("{at}{name}:") };
        std::iter::once(first).chain(members).map(|line| format!("{end}{line}")).collect()
    }

    fn in_yaml(&self, text: &str, root: &Map, place: &str) -> Result<Vec<Change>, String> {
        let end = newline(text);
        let behind = |span: &Span, at: &str| {
            let line = line_end(text, span.end);
            Ok(vec![(line..line, self.lines(at, end))])
        };
        match root.get(place) {
            None if !root.is_block => Err(by_hand(place)),
            None => {
                let last = text.trim_end().len();
                Ok(vec![(last..last, format!("{end}{place}:{}", self.lines("  ", end)))])
            }
            Some(Node::Map(Map { members, is_block: true, .. })) if !self.client.shape.is_list => {
                let last = members.last().ok_or_else(|| by_hand(place))?;
                behind(last.value.span(), &indent(text, members[0].key.start))
            }
            Some(Node::List(List { items, span, is_block: true })) if self.client.shape.is_list => {
                let last = items.last().ok_or_else(|| by_hand(place))?;
                behind(last.span(), &indent(text, span.start))
            }
            Some(Node::Map(Map { members, span, .. })) if members.is_empty() => {
                Ok(vec![(span.clone(), self.lines("  ", end))])
            }
            Some(Node::List(List { items, span, .. })) if items.is_empty() => {
                Ok(vec![(span.clone(), self.lines("  ", end))])
            }
            Some(_) => Err(by_hand(place)),
        }
    }
}

/// One more member behind the last of a map of JSON, in the form of the others. `value` is given the blanks before its name.
fn appended(text: &str, map: &Map, value: &dyn Fn(&str) -> String, name: &str) -> Vec<Change> {
    let end = newline(text);
    let inner = &text[map.span.start + 1..map.span.end - 1];
    let Some(last) = map.members.last() else {
        let at = format!("{}{}", leading(text, map.span.start), unit(text));
        let close = format!("{end}{}", leading(text, map.span.start));
        let kept = inner.trim_end();
        let kept_end = map.span.start + 1 + kept.len();
        return vec![(kept_end..map.span.end - 1, format!("{end}{at}{}: {}{close}", quoted(name), value(&at)))];
    };
    let after = last.value.span().end;
    let comma = comma(text, after..map.span.end - 1);
    let line = line_end(text, comma.as_ref().map_or(after, |comma| comma.end));
    let (before, behind) = match comma {
        Some(_) => (None, ","),
        None => (Some((after..after, ",".to_owned())), ""),
    };
    if line >= map.span.end || !text[map.span.start..last.key.start].contains('\n') {
        // All on one line: the value, too.
        let at = comma_end(text, after, map.span.end - 1);
        let flat = value("").split(end).map(str::trim).collect::<Vec<_>>().join(" ");
        return before.into_iter().chain([(at..at, format!(" {}: {flat}{behind}", quoted(name)))]).collect();
    }
    let at = leading(text, last.key.start);
    let member = format!("{end}{at}{}: {}{behind}", quoted(name), value(&at));
    before.into_iter().chain([(line..line, member)]).collect()
}

fn comma_end(text: &str, after: usize, end: usize) -> usize {
    comma(text, after..end).map_or(after, |comma| comma.end)
}

/// The comma in what stands between two values.
fn comma(text: &str, within: Span) -> Option<Span> {
    super::edit::outside_comments(text, Dialect::Json, within, ',')
}

/// Where a line ends that holds a place.
fn line_end(text: &str, at: usize) -> usize {
    let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
    if text[..end].ends_with('\r') && end > at { end - 1 } else { end }
}

/// The blanks at the beginning of the line that holds a place.
fn leading(text: &str, at: usize) -> String {
    text[line_of(text, &(at..at)).start..at].chars().take_while(|c| matches!(c, ' ' | '\t')).collect()
}

/// What a text has for one step to the right: the blanks of its first line that has some.
fn unit(text: &str) -> String {
    let blanks = |line: &str| line.chars().take_while(|c| matches!(c, ' ' | '\t')).collect::<String>();
    text.lines().map(blanks).find(|blanks| !blanks.is_empty()).unwrap_or_else(|| "  ".into())
}

/// A text without an entry.
///
/// # Errors
/// Where it stands there in a way that smcp cannot take out: for people.
pub fn removed(client: &Client, text: &str, key: &Key) -> Result<String, String> {
    let root = client.dialect.read(text).map_err(|why| why.to_string())?.ok_or("it is empty")?;
    let all = entries(&root, &client.shape);
    let entry = all.iter().find(|entry| key.is_of(entry)).ok_or_else(|| format!("it has no server {}", key.name))?;
    if entry.is_twice {
        return Err(format!("{} stands there twice", key.name));
    }
    let changes = match (client.dialect, entry.holder) {
        (Dialect::Toml, Holder::Map(map, at)) => toml_lines(text, &map.members[at]),
        (_, Holder::Map(map, at)) => {
            let places: Vec<Span> =
                map.members.iter().map(|member| member.key.start..member.value.span().end).collect();
            taken_out(text, client.dialect, &places, at, map.is_block, "{}")
        }
        (_, Holder::List(list, at)) => {
            let places: Vec<Span> = list.items.iter().map(|item| item.span().clone()).collect();
            taken_out(text, client.dialect, &places, at, list.is_block, "[]")
        }
    };
    let after = changed(text, &changes);
    let by_hand = || format!("{} stands there in a way that smcp cannot take out: do it by hand", key.name);
    match is_without(client, (text, &after), entry) {
        true => Ok(after),
        false => Err(by_hand()),
    }
}

/// One of several values that follow one another.
fn taken_out(text: &str, dialect: Dialect, places: &[Span], at: usize, is_block: bool, nothing: &str) -> Vec<Change> {
    let place = &places[at];
    if is_block {
        if places.len() == 1 {
            let start = text[..place.start].rfind(['-', '\n']).map_or(place.start, |mark| {
                match text[mark..].starts_with('-') {
                    true => mark,
                    false => place.start,
                }
            });
            return vec![(start..place.end, nothing.to_owned())];
        }
        return vec![(line_of(text, place), String::new())];
    }
    let next = places.get(at + 1).map_or(text.len(), |next| next.start);
    let own_comma = super::edit::outside_comments(&text[..next], dialect, place.end..next, ',')
        .filter(|comma| text[place.end..comma.start].chars().all(char::is_whitespace) || places.get(at + 1).is_some());
    let mut changes = Vec::new();
    if own_comma.is_none() && at > 0 {
        let between = places[at - 1].end..place.start;
        changes.extend(super::edit::outside_comments(text, dialect, between, ',').map(|comma| (comma, String::new())));
    }
    let end = own_comma.map_or(place.end, |comma| comma.end);
    changes.push((whole_lines(text, place.start..end), String::new()));
    changes
}

/// A place with the blanks around it, where it has its lines for itself.
fn whole_lines(text: &str, place: Span) -> Span {
    let line = line_of(text, &place);
    let is_alone = text[line.start..place.start].trim().is_empty() && text[place.end..line.end].trim().is_empty();
    if is_alone && text[..line.end].ends_with('\n') { line } else { place }
}

/// The lines of a table of TOML: its headers and its values, wherever they stand.
fn toml_lines(text: &str, member: &Member) -> Vec<Change> {
    let mut places = Vec::new();
    collect(text, member, &mut places);
    places.sort_by_key(|place| place.start);
    let mut lines: Vec<Span> = places.iter().map(|place| line_of(text, place)).collect();
    lines.dedup();
    lines.into_iter().map(|line| (line, String::new())).collect()
}

fn collect(text: &str, member: &Member, places: &mut Vec<Span>) {
    match &member.value {
        Node::Map(map) if map.is_block => {
            if text[map.span.clone()].starts_with('[') {
                places.push(map.span.clone());
            }
            map.members.iter().for_each(|member| collect(text, member, places));
        }
        value => places.push(member.key.start..value.span().end),
    }
}

/// Whether a text says the same as before and one entry more.
fn is_only(client: &Client, (before, after): (&str, &str), key: &Key, words: &[String]) -> bool {
    let Ok(Some(new)) = client.dialect.read(after) else { return false };
    let all = entries(&new, &client.shape);
    let Some(entry) = all.iter().find(|entry| key.is_of(entry)) else { return false };
    let Ok(start) = entry.start(&client.shape) else { return false };
    let says: Vec<&str> = start.words.iter().map(|(word, _)| *word).collect();
    says == words && is_without(client, (after, before), entry)
}

/// Whether the second text says what the first does without an entry of it.
fn is_without(client: &Client, (with, without): (&str, &str), entry: &Entry<'_>) -> bool {
    let (Ok(Some(mut old)), Ok(new)) = (client.dialect.read(with), client.dialect.read(without)) else { return false };
    let place = entry.value.span().clone();
    drop_at(&mut old, &place);
    let empty = Node::Map(Map { members: Vec::new(), span: 0..0, is_block: true });
    let mut new = new.unwrap_or(empty);
    for root in [&mut old, &mut new] {
        prune(root, client.shape.at[0][0]);
    }
    old.says_the_same(with, &new, without)
}

fn drop_at(node: &mut Node, place: &Span) {
    match node {
        Node::Map(map) => {
            map.members.retain(|member| member.value.span() != place);
            map.members.iter_mut().for_each(|member| drop_at(&mut member.value, place));
        }
        Node::List(list) => {
            list.items.retain(|item| item.span() != place);
            list.items.iter_mut().for_each(|item| drop_at(item, place));
        }
        _ => {}
    }
}

/// Without servers there may be no place for them.
fn prune(root: &mut Node, place: &str) {
    let is_empty = |value: &Node| match value {
        Node::Map(map) => map.members.is_empty(),
        Node::List(list) => list.items.is_empty(),
        _ => false,
    };
    if let Node::Map(map) = root {
        map.members.retain(|member| member.name != place || !is_empty(&member.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(id: &str, text: &str) -> Result<String, String> {
        let words = ["/s", "run", "npm:p"].map(String::from);
        added(Client::named(id).unwrap(), text, "new", &words)
    }

    fn remove(id: &str, text: &str, name: &str) -> Result<String, String> {
        removed(Client::named(id).unwrap(), text, &Key { name: name.into(), within: None })
    }

    #[test]
    fn an_entry_stands_as_the_others_do() {
        for (id, text, want) in [
            (
                "cursor",
                "",
                "{\n  \"mcpServers\": {\n    \"new\": {\n      \"command\": \"/s\",\n      \"args\": [\"run\", \"npm:p\"]\n    }\n  }\n}\n",
            ),
            (
                "cursor",
                "{\n\t\"mcpServers\": {\n\t\t\"a\": {} // the last\n\t}\n}\n",
                "{\n\t\"mcpServers\": {\n\t\t\"a\": {}, // the last\n\t\t\"new\": {\n\t\t\t\"command\": \"/s\",\n\t\t\t\"args\": [\"run\", \"npm:p\"]\n\t\t}\n\t}\n}\n",
            ),
            (
                "cursor",
                "{\"mcpServers\":{\"a\":{}}}",
                "{\"mcpServers\":{\"a\":{}, \"new\": { \"command\": \"/s\", \"args\": [\"run\", \"npm:p\"] }}}",
            ),
            (
                "vscode",
                "{\r\n    \"inputs\": [],\r\n}\r\n",
                "{\r\n    \"inputs\": [],\r\n    \"servers\": {\r\n        \"new\": {\r\n            \"type\": \"stdio\",\r\n            \"command\": \"/s\",\r\n            \"args\": [\"run\", \"npm:p\"]\r\n        }\r\n    },\r\n}\r\n",
            ),
            (
                "opencode",
                "{\n  \"mcp\": {}\n}\n",
                "{\n  \"mcp\": {\n    \"new\": {\n      \"type\": \"local\",\n      \"command\": [\"/s\", \"run\", \"npm:p\"]\n    }\n  }\n}\n",
            ),
            ("codex", "a = 1", "a = 1\n\n[mcp_servers.new]\ncommand = \"/s\"\nargs = [\"run\", \"npm:p\"]\n"),
            (
                "goose",
                "extensions:\n    a:\n        cmd: x # y\n# end\n",
                "extensions:\n    a:\n        cmd: x # y\n    \"new\":\n      type: \"stdio\"\n      enabled: true\n      cmd: \"/s\"\n      args: [\"run\", \"npm:p\"]\n# end\n",
            ),
            (
                "continue",
                "name: x\nmcpServers:\n- name: a\n  command: b\nz: 1\n",
                "name: x\nmcpServers:\n- name: a\n  command: b\n- name: \"new\"\n  command: \"/s\"\n  args: [\"run\", \"npm:p\"]\nz: 1\n",
            ),
            (
                "continue",
                "name: x\n",
                "name: x\nmcpServers:\n  - name: \"new\"\n    command: \"/s\"\n    args: [\"run\", \"npm:p\"]\n",
            ),
            (
                "continue",
                "",
                "name: Local\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: \"new\"\n    command: \"/s\"\n    args: [\"run\", \"npm:p\"]\n",
            ),
            (
                "goose",
                "# none yet",
                "# none yet\nextensions:\n  \"new\":\n    type: \"stdio\"\n    enabled: true\n    cmd: \"/s\"\n    args: [\"run\", \"npm:p\"]\n",
            ),
        ] {
            assert_eq!(add(id, text).as_deref(), Ok(want), "{id}");
            assert!(add(id, want).unwrap_err().contains("already"), "{id}");
        }
        for (id, text) in [
            ("cursor", "{\"mcpServers\": 1}"),
            ("cursor", "[]"),
            ("codex", "mcp_servers = {}"),
            ("goose", "extensions: {a: {}}"),
        ] {
            assert!(add(id, text).unwrap_err().contains("by hand"), "{id} {text}");
        }
    }

    #[test]
    fn what_is_added_is_taken_out_again() {
        for (id, text) in [
            ("cursor", "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n"),
            ("cursor", "{\n  \"mcpServers\": {\n    \"a\": {}, // x\n  }\n}\n"),
            ("codex", "[mcp_servers.a]\ncommand = \"x\"\n"),
            ("goose", "extensions:\n  a:\n    cmd: x\n# end\n"),
            ("continue", "mcpServers:\n  - name: a\n    command: b\nz: 1\n"),
        ] {
            let with = add(id, text).unwrap();
            let without = remove(id, &with, "new").unwrap();
            // A blank line of TOML stays.
            assert_eq!(without.trim_end(), text.trim_end(), "{id}");
        }
    }

    #[test]
    fn an_entry_goes_with_its_lines() {
        for (id, text, name, want) in [
            ("cursor", "{\"mcpServers\":{\"a\":{},\"b\":{}}}", "a", "{\"mcpServers\":{\"b\":{}}}"),
            ("cursor", "{\"mcpServers\":{\"a\":{},\"b\":{}}}", "b", "{\"mcpServers\":{\"a\":{}}}"),
            ("cursor", "{\"mcpServers\": {\"a\": {}}}", "a", "{\"mcpServers\": {}}"),
            (
                "cursor",
                "{\"mcpServers\": {\n  // first\n  \"a\": {},\n  // second\n  \"b\": {}\n}}\n",
                "b",
                "{\"mcpServers\": {\n  // first\n  \"a\": {}\n  // second\n}}\n",
            ),
            (
                "codex",
                "# c\n[mcp_servers.a]\ncommand = \"x\"\nargs = [\n \"y\",\n]\n\n[other]\nb = 1\n[mcp_servers.a.env]\nK = \"v\"\n",
                "a",
                "# c\n\n[other]\nb = 1\n",
            ),
            ("codex", "mcp_servers.a = {command = \"x\"}\nb = 1\n", "a", "b = 1\n"),
            ("goose", "extensions:\n  a:\n    cmd: x\nz: 1\n", "a", "extensions:\n  {}\nz: 1\n"),
            ("continue", "mcpServers:\n  - name: a\n    command: x\nz: 1\n", "a", "mcpServers:\n  []\nz: 1\n"),
            ("continue", "mcpServers: [{name: a}, {name: b}]\n", "a", "mcpServers: [ {name: b}]\n"),
        ] {
            assert_eq!(remove(id, text, name).as_deref(), Ok(want), "{id}: {text}");
        }
        assert!(remove("cursor", "{\"mcpServers\":{\"a\":1,\"a\":2}}", "a").unwrap_err().contains("twice"));
        assert!(remove("cursor", "{}", "a").unwrap_err().contains("no server a"));
    }
}
