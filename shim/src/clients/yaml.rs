//! YAML.

use granit_parser::{Event, Options, Parser, ScalarStyle, Span as Place, StructureStyle, Tag};

use super::dialect::Broken;
use super::tree::{List, Map, Member, Node, Span};

/// What stands where; none in a text of blanks and comments.
///
/// # Errors
/// Where it is no YAML, or several documents.
pub fn read(text: &str) -> Result<Option<Node>, Broken> {
    let mut options = Options::default();
    options.flow_nesting_limit = DEPTH;
    options.block_nesting_limit = DEPTH;
    let mut reader = Reader { text, parser: Parser::new_from_str_with_options(text, options) };
    let mut document = None;
    loop {
        let (event, place) = reader.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd => {}
            Event::StreamEnd => return Ok(document),
            _ if document.is_some() => return Err(reader.broken(&place, "a second document")),
            event => document = Some(reader.node(event, place, 0)?),
        }
    }
}

/// How deep values are within others.
const DEPTH: usize = 64;

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, granit_parser::StrInput<'t>>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Place), Broken> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(why)) => Err(Broken { line: why.marker().line(), why: "it is no YAML".into() }),
            None => Err(Broken { line: 1, why: "it ends in the middle".into() }),
        }
    }

    fn broken(&self, place: &Place, why: &str) -> Broken {
        Broken::at(self.text, place.start.byte_offset().unwrap_or(0), why)
    }

    fn node(&mut self, event: Event<'t>, place: Place, depth: usize) -> Result<Node, Broken> {
        if depth > DEPTH {
            return Err(self.broken(&place, "values are too deep within others"));
        }
        let span = self.span(&place)?;
        Ok(match event {
            Event::Scalar(text, style, anchor, tag) if anchor == 0 && is_text(&text, style, tag.as_deref()) => {
                Node::Text { text: text.into_owned(), span }
            }
            Event::SequenceStart(style, ..) => {
                let mut items = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::SequenceEnd, place) => break self.span(&place)?.end,
                        (event, place) => items.push(self.node(event, place, depth + 1)?),
                    }
                };
                let is_block = style == StructureStyle::Block;
                let end = if is_block { items.last().map_or(span.end, |last| last.span().end) } else { end };
                // Of a list that is not indented the library has the place of its first value.
                let first = items.first().filter(|_| is_block && !self.text[span.start..].starts_with('-'));
                let dash = first.and_then(|first| self.text[..first.span().start].rfind('-'));
                Node::List(List { items, span: dash.unwrap_or(span.start)..end, is_block })
            }
            Event::MappingStart(style, ..) => {
                let mut members: Vec<Member> = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::MappingEnd, place) => break self.span(&place)?.end,
                        (event, place) => {
                            let key = self.node(event, place, depth + 1)?;
                            let (event, place) = self.next()?;
                            let value = self.node(event, place, depth + 1)?;
                            // Also where it is no text, as `on:`.
                            let name = key.text().unwrap_or(&self.text[key.span().clone()]).to_owned();
                            members.push(Member { name, key: key.span().clone(), value });
                        }
                    }
                };
                let is_block = style == StructureStyle::Block;
                let end = if is_block { members.last().map_or(span.end, |last| last.value.span().end) } else { end };
                Node::Map(Map { members, span: span.start..end, is_block })
            }
            Event::Scalar(..) | Event::Alias(_) => Node::Other(span),
            _ => return Err(self.broken(&place, "it is no YAML")),
        })
    }

    fn span(&self, place: &Place) -> Result<Span, Broken> {
        let span = place.byte_range().filter(|span| self.text.get(span.clone()).is_some());
        span.ok_or_else(|| self.broken(place, "it is no YAML"))
    }
}

/// Whether a scalar is a text, of one that can be replaced where it stands. Block scalars are none: they end where the next value begins.
fn is_text(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match style {
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => tag.is_none(),
        ScalarStyle::Plain => tag.is_none() && !is_resolved(text),
        _ => false,
    }
}

/// Whether a plain scalar means something else than its text in YAML 1.1 or 1.2.
fn is_resolved(text: &str) -> bool {
    const WORDS: [&str; 14] =
        ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf", "-.inf"];
    let plain = text.trim_start_matches(['-', '+']).replace('_', "");
    WORDS.contains(&text.to_ascii_lowercase().as_str())
        || plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') && plain.parse::<f64>().is_ok()
        || ["0x", "0o", "0b"].iter().any(|start| plain.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bytes() {
        let text = "# é\nm:\n  - name: ü\n    command: npx # why\n    args:\n      - -y\n      # package\n      - 'a b'\n    n: 1\n  - {name: x, args: [\"p\", q r]}\nz: &a {}\nw: *a\n";
        let Some(Node::Map(root)) = read(text).unwrap() else { panic!("it is a map") };
        let list = root.get("m").and_then(Node::list).unwrap();
        assert!(list.is_block);
        let [Node::Map(first), Node::Map(second)] = &list.items[..] else { panic!("there are two") };
        let raw = |map: &Map, name: &str| text[map.get(name).unwrap().span().clone()].to_owned();
        assert_eq!(
            (raw(first, "name"), raw(first, "command"), raw(first, "n")),
            ("ü".into(), "npx".into(), "1".into())
        );
        assert_eq!(raw(first, "args"), "- -y\n      # package\n      - 'a b'");
        let items: Vec<_> = first.get("args").and_then(Node::list).unwrap().items.iter().map(Node::text).collect();
        assert_eq!(items, [Some("-y"), Some("a b")]);
        assert_eq!((raw(second, "args"), second.is_block), ("[\"p\", q r]".into(), false));
        assert!(matches!(root.get("w"), Some(Node::Other(_))));
        assert_eq!(read("# nothing\n").unwrap(), None);
    }

    #[test]
    fn what_is_no_text_in_either_version() {
        for text in ["1", "-1.5", "yes", "~", "0x1f", "1e3", ".5", "1_000", "null", "Off"] {
            assert!(is_resolved(text), "{text}");
        }
        for text in ["-y", "run", "1.2.3", "./x", "npm:a@1", "--env", "a1", "nobody", "infinity"] {
            assert!(!is_resolved(text), "{text}");
        }
    }

    #[test]
    fn what_is_broken_is_told_by_its_line_alone() {
        for (text, line) in [
            ("a: 1\nb: [hunter2\n", 2),
            ("a: \"hunter2", 1),
            ("a: 1\n---\nb: hunter2\n", 3),
            (&format!("a: {}", "[".repeat(10_000)), 1),
        ] {
            let broken = read(text).unwrap_err();
            assert_eq!(broken.line, line, "{broken}");
            assert!(!broken.to_string().contains("hunter2"), "{broken}");
        }
    }
}
