//! Ids of requests and answers, told apart as clients do.

use super::json::unescaped;

/// An id. Clients look answers up loosely: to some of them `0`, `0.0` and `"0"` are one.
#[derive(Clone, Debug)]
pub struct Id {
    /// As its sender wrote it.
    raw: Vec<u8>,
    text: String,
    number: Option<f64>,
}

impl Id {
    /// Of a value; `None` where it is neither a string nor a number.
    pub fn of(raw: &[u8]) -> Option<Id> {
        let text = match raw {
            [b'"', inner @ .., b'"'] => unescaped(inner),
            [b'-' | b'0'..=b'9', ..] => String::from_utf8_lossy(raw).into_owned(),
            _ => return None,
        };
        let number = text.trim().parse().ok().filter(|number: &f64| number.is_finite());
        Some(Id { raw: raw.to_owned(), text, number })
    }

    /// Whether an answer with the other id may be taken for one to a request with this.
    pub fn is(&self, other: &Id) -> bool {
        self.text == other.text || self.number.is_some_and(|number| other.number == Some(number))
    }

    /// As its sender wrote it.
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s8_ids_are_one_by_their_value() {
        let is = |a: &str, b: &str| Id::of(a.as_bytes()).unwrap().is(&Id::of(b.as_bytes()).unwrap());
        for (a, b) in [
            ("0", "\"0\""),
            ("0", "-0"),
            ("1", "1.0"),
            ("100", "1e2"),
            ("-7", "\"-7\""),
            ("0.5", "5e-1"),
            ("\"a\"", "\"\\u0061\""),
            ("12345678901234567890123", "12345678901234567890123"),
            ("\"\\ud83d\\ude00\"", "\"\u{1f600}\""),
        ] {
            assert!(is(a, b) && is(b, a), "{a} {b}");
        }
        for (a, b) in [("0", "1"), ("\"a\"", "\"A\""), ("\"\"", "0"), ("1", "\"one\"")] {
            assert!(!is(a, b), "{a} {b}");
        }
        for none in ["null", "true", "{}", "[1]", ""] {
            assert!(Id::of(none.as_bytes()).is_none(), "{none}");
        }
    }
}
