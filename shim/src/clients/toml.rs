//! TOML.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::dialect::Broken;
use super::tree::{List, Map, Member, Node, Span};

/// What stands where.
///
/// # Errors
/// Where it is no TOML.
pub fn read(text: &str) -> Result<Node, Broken> {
    let table = DeTable::parse(text).map_err(|why| {
        // The message is the library's own words, and names keys at most.
        Broken::at(text, why.span().map_or(0, |span| span.start), why.message())
    })?;
    Ok(map(table.get_ref(), 0..0, text))
}

fn node(value: &Spanned<DeValue<'_>>, text: &str) -> Node {
    let span = value.span();
    match value.get_ref() {
        DeValue::String(words) => Node::Text { text: words.to_string(), span },
        DeValue::Array(array) => {
            // Of `[[name]]` only the first header is known.
            let is_block = text[span.clone()].starts_with("[[") && array.iter().all(|item| item.get_ref().is_table());
            Node::List(List { items: array.iter().map(|item| node(item, text)).collect(), span, is_block })
        }
        DeValue::Table(table) => map(table, span, text),
        _ => Node::Other(span),
    }
}

fn map(table: &DeTable<'_>, span: Span, text: &str) -> Node {
    let is_block = !text[span.clone()].starts_with('{');
    let member = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| Member {
        name: AsRef::<str>::as_ref(key.get_ref()).to_owned(),
        key: key.span(),
        value: node(value, text),
    };
    let mut members: Vec<Member> = table.iter().map(member).collect();
    // The library has them by their names.
    members.sort_by_key(|member| member.key.start);
    Node::Map(Map { members, span, is_block })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bytes() {
        let text = "# é\nz = 1\n[m.\"ü\"] # x\nb = 'npx'\na = [\"y\", # why\n  2]\n[m.t]\nu = { c = \"d\" }\n[m.\"ü\".env]\nK = \"v\"\n";
        let Node::Map(root) = read(text).unwrap() else { panic!("it is a map") };
        let names = |map: &Map| map.members.iter().map(|member| member.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&root), ["z", "m"]);
        let servers = root.get("m").and_then(Node::map).unwrap();
        assert_eq!(names(servers), ["ü", "t"]);
        let entry = servers.get("ü").and_then(Node::map).unwrap();
        assert_eq!(
            (names(entry), &text[entry.span.clone()]),
            (["b", "a", "env"].map(String::from).to_vec(), "[m.\"ü\"]")
        );
        assert_eq!(&text[entry.get("b").unwrap().span().clone()], "'npx'");
        let list = entry.get("a").and_then(Node::list).unwrap();
        assert_eq!((&text[list.span.clone()], list.is_block), ("[\"y\", # why\n  2]", false));
        let inline = servers.get("t").and_then(Node::map).and_then(|table| table.get("u")).and_then(Node::map).unwrap();
        assert_eq!((&text[inline.span.clone()], inline.is_block), ("{ c = \"d\" }", false));
    }

    #[test]
    fn what_is_broken_is_told_by_its_line_alone() {
        for (text, line) in [
            ("a = 1\nb = hunter2\n", 2),
            ("a = \"hunter2", 1),
            ("[a]\n[a]\n", 2),
            (&format!("a = {}", "[".repeat(10_000)), 1),
        ] {
            let broken = read(text).unwrap_err();
            assert_eq!(broken.line, line, "{broken}");
            assert!(!broken.to_string().contains("hunter2"), "{broken}");
        }
    }
}
