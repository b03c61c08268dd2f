//! Strict JSON: what two readers could understand differently is refused.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

/// The deepest nesting of arrays and objects that is read.
pub const MAX_DEPTH: usize = 64;

/// Reads one JSON value of at most `cap` bytes; refuses duplicate keys, nesting beyond [`MAX_DEPTH`] and trailing text.
///
/// # Errors
/// A sentence that says what is wrong, with line and column.
pub fn strict<T: DeserializeOwned>(bytes: &[u8], cap: usize) -> Result<T, String> {
    if bytes.len() > cap {
        return Err(format!("{} bytes of JSON, at most {cap} are read", bytes.len()));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    Plain { depth: 0 }.deserialize(&mut reader).and_then(|()| reader.end()).map_err(|e| e.to_string())?;
    serde_json::from_slice(bytes).map_err(|e| e.to_string())
}

/// Walks a value without building it and refuses what is not plain.
#[derive(Clone, Copy)]
struct Plain {
    depth: usize,
}

impl Plain {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth {
            MAX_DEPTH.. => Err(E::custom(format!("nested deeper than {MAX_DEPTH}"))),
            depth => Ok(Self { depth: depth + 1 }),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Plain {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Plain {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("the key {key:?} occurs twice")));
            }
            seen.insert(key);
            map.next_value_seed(inner)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while seq.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<serde_json::Value, String> {
        strict(text.as_bytes(), 4096)
    }

    #[test]
    fn plain_values_pass() {
        for text in ["{}", "[1,-2,3.5,null,true,\"x\"]", r#"{"a":{"a":1},"b":[{"a":1},{"a":2}]}"#] {
            read(text).unwrap();
        }
    }

    #[test]
    fn ambiguous_values_are_refused() {
        for (text, why) in [
            (r#"{"a":1,"a":2}"#, "\"a\" occurs twice"),
            (r#"{"a":1,"\u0061":2}"#, "\"a\" occurs twice"),
            (r#"[{"x":{"b":1,"c":2,"b":3}}]"#, "\"b\" occurs twice"),
            ("{} {}", "trailing"),
            ("", "EOF"),
            ("{\"a\":1", "EOF"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        read(&nested(64)).unwrap();
        assert!(read(&nested(65)).unwrap_err().contains("nested deeper"));
        assert!(read(&" ".repeat(4097)).unwrap_err().contains("at most 4096"));
    }
}
