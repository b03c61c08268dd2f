//! Lines of a server's stdout: which are messages, which are not.

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It begins as an object, or as an array of objects, which batches of 2025-03-26 are.
    Message,
    /// Anything else: text, a blank line, JSON over several lines, a byte order mark. No client can use it.
    Stray,
}

/// What of a line is looked at.
pub const LOOKED_AT: usize = 64;

/// What a line is that begins with these bytes, which hold no line end; `None` where more of it is needed.
/// `[INFO] ready` and `{'a': 1}` are what programs print, too, so one byte does not tell.
pub fn kind(beginning: &[u8]) -> Option<Kind> {
    let seen = &beginning[..beginning.len().min(LOOKED_AT)];
    let mut rest = seen.iter().filter(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
    let is_message = match (rest.next(), rest.next()) {
        (None, _) | (Some(b'{' | b'['), None) if seen.len() < LOOKED_AT => return None,
        (Some(b'{'), Some(next)) => matches!(next, b'"' | b'}'),
        (Some(b'['), Some(next)) => *next == b'{',
        _ => false,
    };
    Some(if is_message { Kind::Message } else { Kind::Stray })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_s9_messages_begin_as_json_and_the_rest_is_stray() {
        for message in ["{\"", "{}", " \t{ \"", "[{", "[ {\"a\"", "{\"jsonrpc\"", "\r{\""] {
            assert_eq!(kind(message.as_bytes()), Some(Kind::Message), "{message}");
        }
        let spaces = " ".repeat(LOOKED_AT);
        let wide = format!("{{{spaces}");
        for stray in [
            "ready",
            "[INFO] x",
            "[2026-",
            "{'a'",
            "{ a",
            "[1",
            "[\"",
            "[]",
            "\u{feff}{\"",
            "\u{1b}[0m{\"",
            "-",
            &spaces,
            &wide,
        ] {
            assert_eq!(kind(stray.as_bytes()), Some(Kind::Stray), "{stray}");
        }
        for open in ["", " ", "{", "[", " { ", "[\t"] {
            assert_eq!(kind(open.as_bytes()), None, "{open}");
        }
    }

    /// What is known of a line stays so, whatever follows.
    #[test]
    fn more_of_a_line_changes_nothing() {
        for line in ["{\"jsonrpc\":\"2.0\"}", " [ { } ]", "[INFO] { }", "{ nothing }", "                {\"a\":1}"] {
            let known = kind(line.as_bytes()).unwrap();
            for length in 0..line.len() {
                assert!(kind(&line.as_bytes()[..length]).is_none_or(|early| early == known), "{line} {length}");
            }
        }
    }
}
