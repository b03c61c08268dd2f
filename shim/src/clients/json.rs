//! JSON with comments.

use jsonc_parser::ast::{ObjectPropName, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::dialect::Broken;
use super::tree::{List, Map, Member, Node, Span};

/// What stands where; none in a text of blanks and comments.
///
/// # Errors
/// Where it is no JSON.
pub fn read(text: &str) -> Result<Option<Node>, Broken> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options)
        .map_err(|why| Broken::at(text, why.range().start, lower(&why.kind().to_string())))?;
    Ok(parsed.value.map(node))
}

/// As smcp's errors have it.
fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

fn node(value: Value<'_>) -> Node {
    let span = span(&value);
    match value {
        Value::StringLit(text) => Node::Text { text: text.value.into_owned(), span },
        Value::Array(array) => {
            Node::List(List { items: array.elements.into_iter().map(node).collect(), span, is_block: false })
        }
        Value::Object(object) => {
            let members = object.properties.into_iter().map(|property| {
                let key = self::span(&property.name);
                let name = match property.name {
                    ObjectPropName::String(text) => text.value.into_owned(),
                    ObjectPropName::Word(word) => word.value.to_owned(),
                };
                Member { name, key, value: node(property.value) }
            });
            Node::Map(Map { members: members.collect(), span, is_block: false })
        }
        Value::NumberLit(_) | Value::BooleanLit(_) | Value::NullKeyword(_) => Node::Other(span),
    }
}

fn span(of: &impl Ranged) -> Span {
    of.range().start..of.range().end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bytes() {
        let text = "// é\n{\"ü\": [\"a\\n\", 1, /* x */ {\"b\": null},],}\n";
        let Some(Node::Map(map)) = read(text).unwrap() else { panic!("it is a map") };
        assert_eq!(&text[map.members[0].key.clone()], "\"ü\"");
        let list = map.get("ü").and_then(Node::list).unwrap();
        let raw: Vec<&str> = list.items.iter().map(|item| &text[item.span().clone()]).collect();
        assert_eq!(raw, ["\"a\\n\"", "1", "{\"b\": null}"]);
        assert_eq!(list.items[0].text(), Some("a\n"));
        assert_eq!(read("  // nothing\n").unwrap(), None);
    }

    #[test]
    fn what_is_broken_is_told_by_its_line_alone() {
        for (text, line) in [
            ("{\n\"token\": hunter2}", 2),
            ("{\"a\": \"hunter2", 1),
            ("{\"a\": 1} hunter2", 1),
            ("{'hunter2': 1}", 1),
            (&format!("{}1", "[".repeat(10_000)), 1),
        ] {
            let broken = read(text).unwrap_err();
            assert_eq!(broken.line, line, "{broken}");
            assert!(!broken.to_string().contains("hunter2"), "{broken}");
        }
    }
}
