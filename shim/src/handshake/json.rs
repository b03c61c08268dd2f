//! Where things stand in a line of JSON: places of members and elements in its raw bytes. `serde_json`'s raw values have
//! places, too, but refuse what some clients take (invalid UTF-8, lone surrogates in keys).
//!
//! It reads more than JSON has and means the same by what JSON has, so what any client takes is seen as that client sees it.
//! Nothing recurses, whatever the depth.

use std::ops::Range;

use memchr::memchr2;

/// A place in a line.
pub type Span = Range<usize>;

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its key, between the quotes.
    pub key: Span,
    /// Its value.
    pub value: Span,
}

/// The one value of a line, without the white space around it; `None` where there is none, or more than one.
pub fn value(line: &[u8]) -> Option<Span> {
    let start = space(line, 0);
    let end = skip(line, start)?;
    (space(line, end) == line.len()).then_some(start..end)
}

/// The members of an object, in their order, as often as they are there; `None` where it is no object.
pub fn members(line: &[u8], object: &Span) -> Option<Vec<Member>> {
    let mut found = Vec::new();
    items(line, object, [b'{', b'}'], |at| {
        let key = at + 1..string(line, at)? - 1;
        let colon = space(line, key.end + 1);
        let start = (line.get(colon) == Some(&b':')).then(|| space(line, colon + 1))?;
        let value = start..skip(line, start)?;
        let end = value.end;
        found.push(Member { key, value });
        Some(end)
    })?;
    Some(found)
}

/// The elements of an array; `None` where it is none.
pub fn elements(line: &[u8], array: &Span) -> Option<Vec<Span>> {
    let mut found = Vec::new();
    items(line, array, [b'[', b']'], |at| {
        let element = at..skip(line, at)?;
        let end = element.end;
        found.push(element);
        Some(end)
    })?;
    Some(found)
}

/// Walks what stands between brackets with commas between. `item` reads one from where it starts and says where it ends.
fn items(
    line: &[u8],
    within: &Span,
    [open, close]: [u8; 2],
    mut item: impl FnMut(usize) -> Option<usize>,
) -> Option<()> {
    if line.get(within.start) != Some(&open) {
        return None;
    }
    let mut at = space(line, within.start + 1);
    if line.get(at) == Some(&close) {
        return Some(());
    }
    loop {
        at = space(line, item(at)?);
        match line.get(at) {
            Some(b',') => at = space(line, at + 1),
            Some(byte) if *byte == close => return Some(()),
            _ => return None,
        }
    }
}

/// The end of the value that starts at `at`.
fn skip(line: &[u8], at: usize) -> Option<usize> {
    match line.get(at)? {
        b'"' => string(line, at),
        b'{' | b'[' => nested(line, at),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b':' | b'{' | b'}' | b'[' | b']' | b'"') || is_space(*byte);
            let length = line[at..].iter().position(ends).unwrap_or(line.len() - at);
            (length > 0).then_some(at + length)
        }
    }
}

/// The end of the object or array that starts at `at`.
fn nested(line: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, at);
    loop {
        match line.get(at)? {
            b'"' => {
                at = string(line, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The end of the string that starts at `at`.
fn string(line: &[u8], at: usize) -> Option<usize> {
    if line.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        let found = at + memchr2(b'"', b'\\', line.get(at..)?)?;
        if line[found] == b'"' {
            return Some(found + 1);
        }
        at = found + 2;
    }
}

fn space(line: &[u8], at: usize) -> usize {
    line[at..].iter().position(|byte| !is_space(*byte)).map_or(line.len(), |length| at + length)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Whether what stands between quotes means this, which is ASCII, whichever way it is spelled.
pub fn means(raw: &[u8], text: &str) -> bool {
    if !raw.contains(&b'\\') {
        return raw == text.as_bytes();
    }
    // The longest way to spell a character is six bytes.
    raw.len() <= text.len() * 6 && unescaped(raw) == text
}

/// What stands between quotes. What is no text (invalid UTF-8, a lone surrogate, an unknown escape) becomes U+FFFD.
pub fn unescaped(raw: &[u8]) -> String {
    let mut text = Vec::with_capacity(raw.len());
    let mut at = 0;
    while at < raw.len() {
        if raw[at] != b'\\' {
            text.push(raw[at]);
            at += 1;
            continue;
        }
        let simple = match raw.get(at + 1) {
            Some(b'n') => Some('\n'),
            Some(b't') => Some('\t'),
            Some(b'r') => Some('\r'),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b @ (b'"' | b'\\' | b'/')) => Some(char::from(*b)),
            _ => None,
        };
        let (meant, length) = match (simple, unit(raw, at)) {
            (Some(meant), _) => (meant, 2),
            (None, Some(high @ 0xd800..=0xdbff)) => match unit(raw, at + 6) {
                Some(low @ 0xdc00..=0xdfff) => {
                    let both = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                    (char::from_u32(both).unwrap_or('\u{fffd}'), 12)
                }
                _ => ('\u{fffd}', 6),
            },
            (None, Some(unit)) => (char::from_u32(unit).unwrap_or('\u{fffd}'), 6),
            (None, None) => ('\u{fffd}', 2),
        };
        text.extend_from_slice(meant.encode_utf8(&mut [0; 4]).as_bytes());
        at += length;
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The UTF-16 unit that a `\uXXXX` at this place stands for.
fn unit(raw: &[u8], at: usize) -> Option<u32> {
    let digits = raw.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

/// A text as it stands between quotes.
pub fn escaped(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Option<Vec<(&str, &str)>> {
        let found = members(line.as_bytes(), &value(line.as_bytes())?)?;
        Some(found.into_iter().map(|member| (&line[member.key], &line[member.value])).collect())
    }

    #[test]
    fn members_are_where_they_are() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let object = format!(" {{\"a\" : 1.0e2 ,\"b\":\"x\\\"}}\",\"\\u0061\":{{\"c\":[1,{{}}]}},\"d\":{deep}}} \r");
        let expected = vec![("a", "1.0e2"), ("b", "\"x\\\"}\""), ("\\u0061", "{\"c\":[1,{}]}"), ("d", deep.as_str())];
        assert_eq!(texts(&object), Some(expected));
        assert_eq!(texts("{}"), Some(vec![]));
        let array = b"[ 1, {\"a\":[2]} ,\"]\"]";
        let found = elements(array, &value(array).unwrap()).unwrap();
        assert_eq!(
            found.iter().map(|at| &array[at.clone()]).collect::<Vec<_>>(),
            [&b"1"[..], b"{\"a\":[2]}", b"\"]\""]
        );
    }

    #[test]
    fn what_is_torn_has_no_members() {
        for torn in [
            "",
            "{",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{,}",
            "{\"a\" 1}",
            "{} {}",
            "[1",
            "{\"a\":\"\\",
            "{\"a\":{\"b\":1}",
            "nonsense {",
            "\"a\"",
        ] {
            assert_eq!(texts(torn), None, "{torn}");
        }
    }

    #[test]
    fn keys_mean_the_same_however_they_are_spelled() {
        for spelled in ["result", "\\u0072esult", "\\u0072\\u0065\\u0073\\u0075\\u006C\\u0074"] {
            assert!(means(spelled.as_bytes(), "result"), "{spelled}");
        }
        for other in ["Result", "result\\u0000", "\\ud800esult", "\\x72esult", "resul", "result\\"] {
            assert!(!means(other.as_bytes(), "result"), "{other}");
        }
        assert_eq!(unescaped(b"\\ud83d\\ude00\\/\\n\\ud800x\\q"), "\u{1f600}/\n\u{fffd}x\u{fffd}");
    }

    #[test]
    fn it_reads_what_serde_reads() {
        let lines =
            ["{\"a\":null,\"b\":[true,-1.5e+3,\"\\\\\"],\"c\":{\"d\":{}}}", "{\"\":\"\"}", "{\"a\":[],\"a\":[[]]}"];
        for line in lines {
            let known: serde_json::Map<_, _> = serde_json::from_str(line).unwrap();
            for (key, raw) in texts(line).unwrap() {
                let raw: serde_json::Value = serde_json::from_str(raw).unwrap();
                assert!(known[key] == raw || line.matches(&format!("\"{key}\":")).count() > 1, "{line}");
            }
        }
    }
}
