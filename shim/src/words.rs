//! What a server says on its standard error: secrets are taken out, and the rest is kept for `smcp logs`.
//!
//! Nothing is made before the first byte comes: a server that says nothing costs nothing.

use std::io::IsTerminal;
use std::time::Instant;

use distribution::Secret;

use crate::redact::Redactor;
use crate::ring::Ring;
use crate::screen::Screen;

/// What becomes of a server's words on their way to the client.
pub struct Words {
    secrets: Vec<Secret>,
    redactor: Option<Redactor>,
    ring: Option<Ring>,
    /// Where a person reads them on a terminal.
    screen: Option<Screen>,
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
        Words { secrets, redactor: None, ring, screen: None, out: Vec::new() }
    }

    /// For standard error, which may be a terminal.
    pub fn on_stderr(self) -> Words {
        Words { screen: std::io::stderr().is_terminal().then(Screen::default), ..self }
    }

    /// Takes bytes as they come.
    pub fn hear(&mut self, bytes: &[u8]) -> Heard<'_> {
        if !self.secrets.is_empty() {
            self.redactor = Redactor::new(&std::mem::take(&mut self.secrets));
        }
        self.out.clear();
        match &mut self.redactor {
            Some(redactor) => redactor.pass(bytes, &mut self.out),
            None if self.screen.is_some() => self.out.extend_from_slice(bytes),
            None => {
                self.ring.iter_mut().for_each(|ring| ring.append(bytes));
                return Heard::AsTheyCame;
            }
        }
        self.ring.iter_mut().for_each(|ring| ring.append(&self.out));
        if let Some(screen) = &mut self.screen {
            self.out = screen.show(&self.out);
        }
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
        if let Some(screen) = &mut self.screen {
            self.out = [screen.show(&self.out), screen.rest()].concat();
        }
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

    #[test]
    fn a_terminal_gets_no_controls() {
        let mut words = Words { screen: Some(Screen::default()), ..Words::new(vec![Secret::new("abcdef")], None) };
        assert_eq!(words.hear(b"\x1b]0;abcdef\x07"), Heard::Instead(b"\\u{1b}]0;<redacted>\\u{7}"));
        let mut words = Words { screen: Some(Screen::default()), ..Words::new(Vec::new(), None) };
        assert_eq!(words.hear(b"\x1b[1mx\x1b["), Heard::Instead(b"\x1b[1mx"));
        assert_eq!(words.pause(), b"\\u{1b}[");
    }
}
