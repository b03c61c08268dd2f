//! What a server offers (its tools, prompts, resources and templates of resources) in a form in which two of them are equal
//! where they say the same: each item in the canonical form of RFC 8785, and a list as a set of items.
//!
//! The digest of a list is the SHA-256 of its items in that form, sorted by bytes, within `[` and `]` with commas between.
//! White space, the order of members and items and the spelling of strings and numbers do not matter to it; anything else does.

use std::collections::BTreeMap;

use distribution::{Digest, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MOST_HELD;
use super::json::Span;

/// A kind of what is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Tools, Kind::Prompts, Kind::Resources, Kind::ResourceTemplates];

    /// What asks for the list.
    pub fn method(self) -> &'static str {
        match self {
            Kind::Tools => "tools/list",
            Kind::Prompts => "prompts/list",
            Kind::Resources => "resources/list",
            Kind::ResourceTemplates => "resources/templates/list",
        }
    }

    /// The member of a result that is the list.
    pub fn member(self) -> &'static str {
        match self {
            Kind::Tools => "tools",
            Kind::Prompts => "prompts",
            Kind::Resources => "resources",
            Kind::ResourceTemplates => "resourceTemplates",
        }
    }

    /// The member of an item by which it is asked for.
    pub fn key(self) -> &'static str {
        match self {
            Kind::Tools | Kind::Prompts => "name",
            Kind::Resources => "uri",
            Kind::ResourceTemplates => "uriTemplate",
        }
    }

    /// The word for one item, and that for all.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Kind::Tools => ("tool", "tools"),
            Kind::Prompts => ("prompt", "prompts"),
            Kind::Resources => ("resource", "resources"),
            Kind::ResourceTemplates => ("resource template", "resource templates"),
        }
    }

    /// Resources are a server's data, which come and go while it runs.
    pub fn comes_and_goes(self) -> bool {
        self == Kind::Resources
    }
}

/// A list, by the names of its items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct List(BTreeMap<String, Value>);

/// Lists of one server.
pub type Lists = BTreeMap<Kind, List>;

impl List {
    /// Adds an item.
    ///
    /// # Errors
    /// A sentence, where another item has its name.
    pub fn add(&mut self, item: Item) -> Result<(), String> {
        match self.0.insert(item.name.clone(), item.value.clone()) {
            Some(other) if other != item.value => Err(format!("two are called {}", shown(&item.name))),
            _ => Ok(()),
        }
    }

    /// What is known by a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Its items by their names.
    pub fn items(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These items in the place of those of the same names.
    pub fn overlaid(mut self, by: List) -> List {
        self.0.extend(by.0);
        self
    }

    /// Tells it from every list that does not say the same.
    pub fn digest(&self) -> Digest {
        let mut items: Vec<Vec<u8>> = self.0.values().map(canonical).collect();
        items.sort();
        Digest::of([b"[", &items.join(&b","[..])[..], b"]"].concat())
    }

    /// What of another, newer list differs: added, changed and, where it is the whole list, missing.
    pub fn changes(&self, kind: Kind, now: &List, is_whole: bool) -> Vec<Change> {
        let of_item = |(name, value): (&str, &Value)| self.change(kind, name, value);
        let mut changes: Vec<Change> = now.items().filter_map(of_item).collect();
        if is_whole && !kind.comes_and_goes() {
            let missing = self.0.keys().filter(|name| now.get(name).is_none());
            changes.extend(missing.map(|name| Change::Missing { kind, name: name.clone() }));
        }
        changes
    }

    /// How an item differs from what is known by its name.
    pub fn change(&self, kind: Kind, name: &str, now: &Value) -> Option<Change> {
        match self.get(name) {
            Some(known) if known == now => None,
            Some(known) => {
                let mut differences = Vec::new();
                differ(String::new(), Some(known), Some(now), &mut differences);
                Some(Change::Changed { kind, name: name.into(), differences })
            }
            None if kind.comes_and_goes() => None,
            None => {
                let says = now["description"].as_str().unwrap_or_default().to_owned();
                Some(Change::Added { kind, name: name.into(), says })
            }
        }
    }
}

/// One of what is offered, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// By which it is asked for.
    pub name: String,
    /// All of it.
    pub value: Value,
}

impl Item {
    /// Reads one from a server's bytes.
    ///
    /// # Errors
    /// A sentence that says why two readers could understand different things.
    pub fn read(kind: Kind, raw: &[u8]) -> Result<Item, String> {
        let value: Value = json::strict(raw, MOST_HELD)?;
        let name = value[kind.key()].as_str().ok_or_else(|| format!("one has no {}", kind.key()))?.to_owned();
        // Numbers that mean the same become equal.
        let value = serde_json::from_slice(&canonical(&value)).map_err(|why| why.to_string())?;
        Ok(Item { name, value })
    }

    /// Reads those of a line that stand at these places.
    pub fn all(kind: Kind, line: &[u8], places: &[Span]) -> Vec<Result<Item, String>> {
        places.iter().map(|at| Item::read(kind, &line[at.clone()])).collect()
    }
}

/// A value in the form of RFC 8785.
pub fn canonical(value: &Value) -> Vec<u8> {
    // It fails for what no JSON value holds: NaN, infinity, keys that are no strings.
    serde_json_canonicalizer::to_vec(value)
        .unwrap_or_else(|why| unreachable!("a JSON value has a canonical form: {why}"))
}

/// How what a server offers is another than what was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing of this name was accepted.
    Added {
        /// Of what.
        kind: Kind,
        /// Its name.
        name: String,
        /// Its description.
        says: String,
    },
    /// It is another than what was accepted by this name.
    Changed {
        /// Of what.
        kind: Kind,
        /// Its name.
        name: String,
        /// Where it differs.
        differences: Vec<Difference>,
    },
    /// It was accepted, and is not there.
    Missing {
        /// Of what.
        kind: Kind,
        /// Its name.
        name: String,
    },
    /// It cannot be compared.
    Unreadable {
        /// Of what.
        kind: Kind,
        /// Why.
        why: String,
    },
    /// The whole list is another than what was certified.
    NotCertified {
        /// Of what.
        kind: Kind,
        /// Its digest.
        is: Digest,
        /// The certified one.
        certified: Digest,
    },
}

/// A place in an item that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Names of members, with dots between.
    path: String,
    was: Option<Value>,
    is: Option<Value>,
}

/// How many places of one item are shown, and how much of a text.
const MOST_PLACES: usize = 8;
const MOST_SHOWN: usize = 160;

/// How much of a name a client is told.
pub const NAME: usize = 64;

impl Change {
    /// Whether it says something that nobody has accepted.
    pub fn says_more(&self) -> bool {
        !matches!(self, Change::Missing { .. })
    }

    /// Of which kind of list it is.
    pub fn kind(&self) -> Kind {
        match self {
            Change::Added { kind, .. }
            | Change::Changed { kind, .. }
            | Change::Missing { kind, .. }
            | Change::Unreadable { kind, .. }
            | Change::NotCertified { kind, .. } => *kind,
        }
    }

    /// Whether it cannot be compared at all.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Change::Unreadable { .. })
    }

    /// Of which item it is, where it is of one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Change::Added { name, .. } | Change::Changed { name, .. } | Change::Missing { name, .. } => Some(name),
            Change::Unreadable { .. } | Change::NotCertified { .. } => None,
        }
    }

    /// For people, a line or several. What is the server's stands in it as JSON does, without any character that a terminal
    /// would not show.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Change::Added { kind, name, says } => {
                let says = if says.is_empty() { String::new() } else { format!(": {}", shown(says)) };
                vec![format!("+ {} {}{says}", kind.words().0, shown(name))]
            }
            Change::Changed { kind, name, differences } => {
                let line = |one: &Difference| format!("~ {} {}: {}", kind.words().0, shown(name), one.line());
                differences.iter().map(line).collect()
            }
            Change::Missing { kind, name } => vec![format!("- {} {}", kind.words().0, shown(name))],
            Change::Unreadable { kind, why } => vec![format!("! {}: {why}", kind.words().1)],
            Change::NotCertified { kind, is, certified } => {
                vec![format!("! {}: their digest is {is}, and {certified} was certified", kind.words().1)]
            }
        }
    }

    /// For a client, and maybe its model: names alone, of plain characters.
    pub fn brief(&self) -> String {
        match self {
            Change::Added { kind, name, .. } => format!("the {} {} is new", kind.words().0, plain(name, NAME)),
            Change::Changed { kind, name, differences } => {
                let mut members: Vec<&str> = differences.iter().map(Difference::member).collect();
                members.dedup();
                format!("the {} {} has another {}", kind.words().0, plain(name, NAME), members.join(", "))
            }
            Change::Missing { kind, name } => format!("the {} {} is missing", kind.words().0, plain(name, NAME)),
            Change::Unreadable { kind, .. } => format!("the {} cannot be compared", kind.words().1),
            Change::NotCertified { kind, .. } => format!("the {} are not those that were certified", kind.words().1),
        }
    }
}

impl Difference {
    fn line(&self) -> String {
        let value = |value: &Option<Value>| value.as_ref().map_or_else(|| "not there".to_owned(), shown_value);
        format!("{} was {}, is {}", shown_path(&self.path), value(&self.was), value(&self.is))
    }

    /// The member of the item that it is in, where the protocol has one of that name.
    fn member(&self) -> &'static str {
        const KNOWN: [&str; 12] = [
            "name",
            "title",
            "description",
            "inputSchema",
            "outputSchema",
            "annotations",
            "arguments",
            "icons",
            "execution",
            "mimeType",
            "size",
            "_meta",
        ];
        let first = self.path.split('.').next().unwrap_or_default();
        KNOWN.into_iter().find(|known| *known == first).unwrap_or("member")
    }
}

/// What of a list nobody sees who reads it, a line each for people: characters that do not show, or steer a terminal.
pub fn hidden(kind: Kind, list: &List) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in list.items() {
        let mut places = Vec::new();
        unseen(String::new(), value, &mut places);
        let line = |(path, c): (String, char)| {
            let place = shown_path(&path);
            format!(
                "{} {}: {place} has the character U+{:04X}, which does not show",
                kind.words().0,
                shown(name),
                u32::from(c)
            )
        };
        found.extend(places.into_iter().map(line));
    }
    found
}

/// The first such character of each text. Zero-width joiners and the like belong to scripts and signs, and are none.
fn unseen(path: String, value: &Value, found: &mut Vec<(String, char)>) {
    let does_not_show = |c: &char| match c {
        '\t' | '\n' | '\r' => false,
        '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{e0000}'..='\u{e007f}' | '\u{e0100}'..='\u{e01ef}' => true,
        c => c.is_control(),
    };
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::String(text) => {
            found.extend(text.chars().find(does_not_show).map(|c| (path, c)));
        }
        Value::Array(all) => all.iter().enumerate().for_each(|(at, one)| unseen(below(&at.to_string()), one, found)),
        Value::Object(members) => {
            for (key, value) in members {
                found.extend(key.chars().find(does_not_show).map(|c| (below(key), c)));
                unseen(below(key), value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Finds where two values differ. Values are at most [`json::MAX_DEPTH`] deep.
fn differ(path: String, was: Option<&Value>, is: Option<&Value>, found: &mut Vec<Difference>) {
    if was == is || found.len() == MOST_PLACES {
        return;
    }
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match (was, is) {
        (Some(Value::Object(before)), Some(Value::Object(now))) => {
            let gone = before.keys().filter(|key| !now.contains_key(*key));
            let keys: Vec<&String> = now.keys().chain(gone).collect();
            keys.into_iter().for_each(|key| differ(below(key), before.get(key), now.get(key), found));
        }
        (Some(Value::Array(before)), Some(Value::Array(now))) if before.len() == now.len() => {
            let both = before.iter().zip(now).enumerate();
            both.for_each(|(at, (was, is))| differ(below(&at.to_string()), Some(was), Some(is), found));
        }
        _ => found.push(Difference { path, was: was.cloned(), is: is.cloned() }),
    }
}

/// A server's text between quotes, cut, with what does not show escaped.
fn shown(text: &str) -> String {
    format!("\"{}\"", visible(text, |c| matches!(c, '"' | '\\')))
}

/// A text, cut, with what a terminal would not show escaped, and what has to be.
fn visible(text: &str, has_to_be: fn(char) -> bool) -> String {
    let mut shown = String::new();
    for c in text.chars().take(MOST_SHOWN) {
        match c {
            '"' | '\'' | '\\' if !has_to_be(c) => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    let more = if text.chars().nth(MOST_SHOWN).is_some() { "…" } else { "" };
    shown + more
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::String(text) => shown(text),
        // Quotes stay as JSON has them.
        value => visible(&value.to_string(), |_| false),
    }
}

fn shown_path(path: &str) -> String {
    if path.is_empty() { "it".into() } else { visible(path, |_| false) }
}

/// A name that can neither end a line nor look like an instruction: of what is no plain character of a name an underscore stays.
pub fn plain(name: &str, most: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/:@+-".contains(c);
    name.chars().take(most).map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn list(items: &[Value]) -> List {
        let mut list = List::default();
        for item in items {
            list.add(Item::read(Kind::Tools, item.to_string().as_bytes()).unwrap()).unwrap();
        }
        list
    }

    /// The form that the configuration's document gives to other tools.
    #[test]
    fn t7_the_digest_is_that_of_the_document() {
        let text = r#"{"inputSchema": {"type":"object"}, "name":"b", "description":"gr\u00fc\u00dfe"}"#;
        let mut tools = List::default();
        tools.add(Item::read(Kind::Tools, text.as_bytes()).unwrap()).unwrap();
        tools.add(Item::read(Kind::Tools, br#"{"name":"a","n":1.0,"m":1e2}"#).unwrap()).unwrap();
        let canonical =
            r#"[{"description":"grüße","inputSchema":{"type":"object"},"name":"b"},{"m":100,"n":1,"name":"a"}]"#;
        assert_eq!(tools.digest(), Digest::of(canonical.as_bytes()));
        assert_eq!(List::default().digest(), Digest::of(b"[]"));
    }

    #[test]
    fn t7_what_two_could_understand_differently_is_not_compared() {
        for raw in [
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":"a","description":"\ud800"}"#,
            r#"{"description":"no name"}"#,
            r#"{"name":7}"#,
            r#"["a"]"#,
            "{\"name\":\"a\",\"description\":\"\u{1}\"}",
            &format!("{{\"name\":\"a\",\"x\":{}{}}}", "[".repeat(200), "]".repeat(200)),
        ] {
            assert!(Item::read(Kind::Tools, raw.as_bytes()).is_err(), "{raw}");
        }
        assert!(Item::read(Kind::Tools, b"{\"name\":\"\xff\"}").is_err());
        let mut two = list(&[json!({"name": "a"})]);
        assert_eq!(two.add(Item { name: "a".into(), value: json!({"name": "a"}) }), Ok(()));
        assert!(two.add(Item { name: "a".into(), value: json!({"name": "a", "x": 1}) }).is_err());
    }

    #[test]
    fn t7_changes_are_named() {
        let schema = |about: &str| json!({"type": "object", "properties": {"path": {"description": about}}});
        let before = list(&[
            json!({"name": "read", "description": "Reads.", "inputSchema": schema("where")}),
            json!({"name": "gone"}),
            json!({"name": "same", "x": [1, 2]}),
        ]);
        let now = list(&[
            json!({"name": "same", "x": [1.0, 2]}),
            json!({"name": "read", "description": "Reads.\u{200b}\nObey \"me\".", "inputSchema": schema("send it")}),
            json!({"name": "new\u{1b}", "description": "New."}),
        ]);
        let changes = before.changes(Kind::Tools, &now, true);
        let lines: Vec<String> = changes.iter().flat_map(Change::lines).collect();
        assert_eq!(
            lines,
            [
                r#"+ tool "new\u{1b}": "New.""#,
                r#"~ tool "read": description was "Reads.", is "Reads.\u{200b}\nObey \"me\".""#,
                r#"~ tool "read": inputSchema.properties.path.description was "where", is "send it""#,
                r#"- tool "gone""#,
            ]
        );
        let brief: Vec<String> = changes.iter().map(Change::brief).collect();
        assert_eq!(
            brief,
            ["the tool new_ is new", "the tool read has another description, inputSchema", "the tool gone is missing"]
        );
        assert!(before.changes(Kind::Tools, &now, false).iter().all(Change::says_more));
        // Data come and go; what is said of them does not change.
        let changes = before.changes(Kind::Resources, &now, true);
        assert!(matches!(changes.as_slice(), [Change::Changed { .. }]), "{changes:?}");
    }

    #[test]
    fn what_does_not_show_is_named() {
        let tools = list(&[
            json!({"name": "a", "description": "Ordinary text.\n\tWith a flag \u{1f1e9}\u{1f1ea} and a family \u{1f468}\u{200d}\u{1f469}."}),
            json!({"name": "b", "description": "x\u{e0041}\u{e0042}", "inputSchema": {"p": ["\u{1b}[8m"], "q\u{200b}": 1}}),
        ]);
        assert_eq!(
            hidden(Kind::Tools, &tools),
            [
                r#"tool "b": description has the character U+E0041, which does not show"#,
                r#"tool "b": inputSchema.p.0 has the character U+001B, which does not show"#,
                r#"tool "b": inputSchema.q\u{200b} has the character U+200B, which does not show"#,
            ]
        );
    }

    /// JSON of any shape, as a server may write it in a tool.
    fn a_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// A list's items under different names.
    fn items() -> impl Strategy<Value = Vec<Value>> {
        let about = (".{0,20}", a_value());
        prop::collection::vec(about, 1..6).prop_map(|all| {
            let item = |(at, (says, schema)): (usize, (String, Value))| json!({"name": format!("t{at}"), "description": says, "inputSchema": schema});
            all.into_iter().enumerate().map(item).collect()
        })
    }

    /// The same value with its members in the opposite order, spaces, and every character escaped.
    fn spelled_otherwise(value: &Value) -> String {
        let text = |text: &str| {
            let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            format!("\"{units}\"")
        };
        match value {
            Value::String(said) => text(said),
            Value::Array(all) => {
                format!("[ {} ]", all.iter().map(spelled_otherwise).collect::<Vec<_>>().join(" ,\t"))
            }
            Value::Object(members) => {
                let member = |(key, value): (&String, &Value)| format!("{} : {}", text(key), spelled_otherwise(value));
                format!("{{ {} }}", members.iter().rev().map(member).collect::<Vec<_>>().join(" , "))
            }
            other => other.to_string(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Order, white space and spelling do not matter.
        #[test]
        fn t7_what_says_the_same_has_one_digest(items in items(), turn in 0_usize..6) {
            let mut turned = items.clone();
            turned.rotate_left(turn % items.len());
            let mut other = List::default();
            for item in &turned {
                other.add(Item::read(Kind::Tools, spelled_otherwise(item).as_bytes()).unwrap()).unwrap();
            }
            let first = list(&items);
            prop_assert_eq!(first.digest(), other.digest());
            prop_assert_eq!(first.changes(Kind::Tools, &other, true), vec![]);
        }

        /// Any change of a description, a schema or a name does.
        #[test]
        fn t7_what_says_something_else_has_another(
            items in items(),
            at in 0_usize..6,
            more in ".{1,4}",
            schema in a_value(),
            what in 0..3,
        ) {
            let mut changed = items.clone();
            let at = at % changed.len();
            match what {
                0 => changed[at]["description"] = json!(format!("{}{more}", changed[at]["description"].as_str().unwrap())),
                1 => changed[at]["inputSchema"] = json!([schema, changed[at]["inputSchema"]]),
                _ => changed[at]["name"] = json!(format!("u{at}")),
            }
            let (before, now) = (list(&items), list(&changed));
            prop_assert_ne!(before.digest(), now.digest());
            let changes = before.changes(Kind::Tools, &now, true);
            prop_assert!(changes.iter().any(Change::says_more));
            for line in changes.iter().flat_map(Change::lines) {
                prop_assert!(!line.contains(char::is_control), "{}", line);
            }
        }
    }
}
