//! What a server says on stderr, where a person reads that on a terminal: its text and its colours, and nothing that writes the clipboard or
//! the title, moves the cursor up, or turns the direction of writing (ECMA-48, Unicode TR9).

/// The longest sequence of a colour that is waited for, bytes.
const LONGEST: usize = 32;

/// Passes text, over any boundaries of pieces.
#[derive(Debug, Default)]
pub struct Screen {
    /// The beginning of something whose end has not come.
    held: Vec<u8>,
}

/// What stands at the beginning of some bytes.
enum Found {
    /// So many bytes to be passed.
    Plain(usize),
    /// So many bytes to be shown in place of sent.
    Control(usize),
    /// The end of it is still to come.
    Part,
}

impl Screen {
    /// The bytes as the terminal may have them.
    pub fn show(&mut self, bytes: &[u8]) -> Vec<u8> {
        let all = [std::mem::take(&mut self.held).as_slice(), bytes].concat();
        let mut shown = Vec::with_capacity(all.len());
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            match found(rest) {
                Found::Part => {
                    self.held = rest.to_vec();
                    break;
                }
                other => rest = put(other, rest, &mut shown),
            }
        }
        shown
    }

    /// What was held back for an end that does not come.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        let held = std::mem::take(&mut self.held);
        let mut rest = held.as_slice();
        while !rest.is_empty() {
            let whole = match found(rest) {
                Found::Part => Found::Control(1),
                other => other,
            };
            rest = put(whole, rest, &mut shown);
        }
        shown
    }
}

fn put<'b>(found: Found, bytes: &'b [u8], shown: &mut Vec<u8>) -> &'b [u8] {
    match found {
        Found::Plain(length) => {
            shown.extend_from_slice(&bytes[..length]);
            &bytes[length..]
        }
        Found::Control(length) => {
            match std::str::from_utf8(&bytes[..length]) {
                Ok(text) => shown.extend(text.chars().flat_map(char::escape_default).map(|c| c as u8)),
                Err(_) => shown.extend(bytes[..length].escape_ascii()),
            }
            &bytes[length..]
        }
        Found::Part => bytes,
    }
}

fn found(bytes: &[u8]) -> Found {
    match bytes {
        [b'\n' | b'\t' | b'\r', ..] => Found::Plain(1),
        [0x1b, rest @ ..] => colour(rest),
        [0..=0x1f | 0x7f, ..] => Found::Control(1),
        // C1, which begins sequences as well.
        [0xc2, 0x80..=0x9f, ..] => Found::Control(2),
        // U+202A to U+202E and U+2066 to U+2069.
        [0xe2, 0x80, 0xaa..=0xae, ..] | [0xe2, 0x81, 0xa6..=0xa9, ..] => Found::Control(3),
        [0xc2 | 0xe2] | [0xe2, 0x80 | 0x81] => Found::Part,
        _ => {
            let is_plain = |byte: &u8| !matches!(byte, 0..=0x1f | 0x7f | 0xc2 | 0xe2);
            // One that looked like a beginning is none.
            Found::Plain(1 + bytes[1..].iter().take_while(|byte| is_plain(byte)).count())
        }
    }
}

/// What follows an escape: `[`, numbers, `m` is a colour (SGR).
fn colour(rest: &[u8]) -> Found {
    let Some((first, numbers)) = rest.split_first() else { return Found::Part };
    let length = numbers.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')).count();
    match (first, numbers.get(length)) {
        (b'[', Some(b'm')) => Found::Plain(length + 3),
        (b'[', None) if length < LONGEST => Found::Part,
        _ => Found::Control(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_pass_and_nothing_else_does() {
        for (said, want) in [
            ("plain\n\ttext\r\n", "plain\n\ttext\r\n"),
            ("\x1b[31;1mred\x1b[m é → 日", "\x1b[31;1mred\x1b[m é → 日"),
            ("\x1b]52;c;aGk=\x07", "\\u{1b}]52;c;aGk=\\u{7}"),
            ("\x1b]0;title\x1b\\", "\\u{1b}]0;title\\u{1b}\\"),
            ("\x1b[2J\x1b[1A", "\\u{1b}[2J\\u{1b}[1A"),
            ("\u{9b}2J\u{202e}x\u{2066}", "\\u{9b}2J\\u{202e}x\\u{2066}"),
            ("\x08\x00\x7f", "\\u{8}\\u{0}\\u{7f}"),
        ] {
            let mut whole = Screen::default();
            let shown = [whole.show(said.as_bytes()), whole.rest()].concat();
            assert_eq!(String::from_utf8_lossy(&shown), want);
            let mut pieces = Screen::default();
            let mut shown: Vec<u8> = said.bytes().flat_map(|byte| pieces.show(&[byte])).collect();
            shown.extend(pieces.rest());
            assert_eq!(String::from_utf8_lossy(&shown), want, "byte by byte");
        }
    }

    #[test]
    fn what_is_no_text_passes() {
        let mut screen = Screen::default();
        let bytes: Vec<u8> = (0x80..=0xff).collect();
        assert_eq!([screen.show(&bytes), screen.rest()].concat(), bytes);
    }

    #[test]
    fn a_colour_without_an_end_is_not_waited_for() {
        let mut screen = Screen::default();
        let long = format!("\x1b[{}", "1;".repeat(LONGEST));
        assert_eq!(screen.show(long.as_bytes()), format!("\\u{{1b}}[{}", "1;".repeat(LONGEST)).as_bytes());
        assert_eq!(screen.show(b"\x1b[1"), b"");
        assert_eq!(screen.rest(), b"\\u{1b}[1");
    }
}
