//! What a server says on its standard error: secrets are taken out, and the rest is kept for `smcp logs`.
//!
//! Nothing is made before the first byte comes: a server that says nothing costs nothing.

use std::time::Instant;

use distribution::Secret;

use crate::redact::Redactor;
use crate::ring::Ring;

/// What becomes of a server's words on their way to the client.
pub struct Words {
    secrets: Vec<Secret>,
    redactor: Option<Redactor>,
    ring: Option<Ring>,
    out: Vec<u8>,
}

/// What is passed on of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard<'w> {
    /// They themselves.
    AsTheyCame,
    /// These.
    Instead(&'w [u8]),
}

impl Words {
    /// Takes these secrets out, and keeps the rest in a ring.
    pub fn new(secrets: Vec<Secret>, ring: Option<Ring>) -> Words {
        Words { secrets, redactor: None, ring, out: Vec::new() }
    }

    /// Takes bytes as they come.
    pub fn hear(&mut self, bytes: &[u8]) -> Heard<'_> {
        if !self.secrets.is_empty() {
            self.redactor = Redactor::new(&std::mem::take(&mut self.secrets));
        }
        let Some(redactor) = &mut self.redactor else {
            self.ring.iter_mut().for_each(|ring| ring.append(bytes));
            return Heard::AsTheyCame;
        };
        self.out.clear();
        redactor.pass(bytes, &mut self.out);
        self.ring.iter_mut().for_each(|ring| ring.append(&self.out));
        Heard::Instead(&self.out)
    }

    /// When [`Words::pause`] is due, where something is held back.
    pub fn due(&self) -> Option<Instant> {
        self.redactor.as_ref().and_then(Redactor::due)
    }

    /// What was held back, once nothing follows: at the end, or for now.
    pub fn pause(&mut self) -> &[u8] {
        self.out.clear();
        self.redactor.iter_mut().for_each(|redactor| redactor.pause(&mut self.out));
        self.ring.iter_mut().for_each(|ring| ring.append(&self.out));
        &self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_secret_bytes_pass_as_they_came() {
        let mut words = Words::new(vec![Secret::new("abc")], None);
        assert_eq!(words.hear(b"abc"), Heard::AsTheyCame, "too short to be looked for");
        assert_eq!((words.due(), words.pause()), (None, &b""[..]));
        let mut words = Words::new(vec![Secret::new("abcdef")], None);
        assert_eq!(words.hear(b"1 abcdef 2 ab"), Heard::Instead(b"1 <redacted> 2 "));
        assert!(words.due().is_some());
        assert_eq!(words.pause(), b"ab");
        assert_eq!(words.due(), None);
    }
}
