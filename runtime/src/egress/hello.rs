//! The name in a TLS ClientHello, RFC 8446 and RFC 6066, read strictly: what two readers could take for different names, or
//! what a server may skip before it, is not accepted.

use super::rules::Name;

/// As long as a hello may be. Browsers send 2 KiB with post-quantum keys.
pub const LONGEST: usize = 32 * 1024;

/// What the first bytes of a connection are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// No TLS.
    Other,
    /// So far the beginning of a hello.
    More,
    /// A whole hello, and the name in it, the outer one where there are two.
    Hello(Option<Name>),
    /// TLS that is not understood, or a name that is none.
    Wrong,
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// A record's content, RFC 8446 5.1.
const LONGEST_RECORD: usize = 1 << 14;

/// Looks at what a client sent first.
pub fn look(bytes: &[u8]) -> Look {
    // Servers skip an alert that is a warning, and some a change of cipher: a hello could hide behind it.
    for skipped in [[21, 3, 0, 2], [20, 3, 0, 1]] {
        let met = [bytes.first(), bytes.get(1), bytes.get(3), bytes.get(4)];
        let same = met.iter().zip(&skipped).all(|(met, wanted)| met.is_none_or(|met| met == wanted));
        if same && !bytes.is_empty() {
            return if bytes.len() < 5 { Look::More } else { Look::Wrong };
        }
    }
    // Servers do not care for the version of the first record beyond its first byte.
    let begin = [Some(HANDSHAKE), Some(3), None, None, None, Some(CLIENT_HELLO)];
    if bytes.iter().zip(begin).any(|(byte, wanted)| wanted.is_some_and(|wanted| wanted != *byte)) {
        // A record without content may come before the one that counts.
        return if bytes.starts_with(&[HANDSHAKE, 3]) && bytes.get(3..5) == Some(&[0, 0]) {
            Look::Wrong
        } else {
            Look::Other
        };
    }
    // Whether it is a hello at all stands in the sixth.
    if bytes.len() < begin.len() && bytes.get(3..5) != Some(&[0, 0]) {
        return Look::More;
    }
    match message(bytes) {
        Ok(message) => Reader(&message).hello().map_or(Look::Wrong, Look::Hello),
        Err(look) => look,
    }
}

/// The hello without its headers, out of one record or several.
fn message(mut bytes: &[u8]) -> Result<Vec<u8>, Look> {
    let mut message = Vec::new();
    loop {
        if let Some((header, body)) = message.split_at_checked(4) {
            let length = number(&header[1..]);
            if length > LONGEST {
                return Err(Look::Wrong);
            }
            if let Some(body) = body.get(..length) {
                return Ok(body.to_vec());
            }
        }
        let Some((header, rest)) = bytes.split_at_checked(5) else {
            let begin = [HANDSHAKE, 3];
            return Err(if bytes.iter().zip(begin).all(|(byte, wanted)| *byte == wanted) {
                Look::More
            } else {
                Look::Wrong
            });
        };
        let length = number(&header[3..]);
        if header[0] != HANDSHAKE || header[1] != 3 || length == 0 || length > LONGEST_RECORD {
            return Err(Look::Wrong);
        }
        // What of a record is here counts already: its hello may be longer than is accepted.
        message.extend_from_slice(&rest[..length.min(rest.len())]);
        if rest.len() < length {
            let announced = message.get(1..4).map(number);
            return Err(if announced.is_some_and(|length| length > LONGEST) { Look::Wrong } else { Look::More });
        }
        bytes = &rest[length..];
    }
}

/// Big-endian.
fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, width: usize) -> Option<usize> {
        self.take(width).map(number)
    }

    /// A vector with a length of this many bytes before it.
    fn vector(&mut self, width: usize) -> Option<&'a [u8]> {
        let length = self.number(width)?;
        self.take(length)
    }

    /// The name of a whole hello; the outer `None` where it is malformed.
    fn hello(mut self) -> Option<Option<Name>> {
        let version = self.take(2)?;
        self.take(32)?;
        let session = self.vector(1)?;
        let suites = self.vector(2)?;
        let compressions = self.vector(1)?;
        if version[0] != 3
            || session.len() > 32
            || suites.is_empty()
            || suites.len() % 2 != 0
            || compressions.is_empty()
        {
            return None;
        }
        if self.0.is_empty() {
            return Some(None);
        }
        let mut extensions = Reader(self.vector(2)?);
        let mut name = None;
        while !extensions.0.is_empty() {
            let kind = extensions.number(2)?;
            let body = extensions.vector(2)?;
            if kind == usize::from(SERVER_NAME) && name.replace(Reader(body).server_name()?).is_some() {
                return None;
            }
        }
        self.0.is_empty().then_some(name)
    }

    /// The one name of the extension.
    fn server_name(mut self) -> Option<Name> {
        let mut list = Reader(self.vector(2)?);
        let kind = list.take(1)?;
        let name = list.vector(2)?;
        if !self.0.is_empty() || !list.0.is_empty() || kind != [HOST_NAME] {
            return None;
        }
        Name::new(std::str::from_utf8(name).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector(width: usize, content: &[u8]) -> Vec<u8> {
        let mut all = content.len().to_be_bytes()[8 - width..].to_vec();
        all.extend_from_slice(content);
        all
    }

    fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &vector(2, content)].concat()
    }

    fn sni(name: &str) -> Vec<u8> {
        extension(SERVER_NAME, &vector(2, &[&[HOST_NAME][..], &vector(2, name.as_bytes())].concat()))
    }

    /// GREASE, RFC 8701, before and after what is looked for.
    fn handshake(extensions: &[u8]) -> Vec<u8> {
        let grease = extension(0x0a0a, &[]);
        let all = [&grease[..], extensions, &extension(0xfe0d, &[7; 200]), &extension(0x5a5a, &[0])].concat();
        let body = [
            &[3, 3][..],
            &[9; 32],
            &vector(1, &[5; 32]),
            &vector(2, &[0x1a, 0x1a, 0x13, 1]),
            &vector(1, &[0]),
            &vector(2, &all),
        ]
        .concat();
        [&[CLIENT_HELLO][..], &vector(3, &body)].concat()
    }

    fn records(handshake: &[u8], size: usize) -> Vec<u8> {
        handshake.chunks(size).flat_map(|part| [&[HANDSHAKE, 3, 1][..], &vector(2, part)].concat()).collect()
    }

    fn hello(name: &str) -> Look {
        Look::Hello(Name::new(name))
    }

    #[test]
    fn the_outer_name_of_a_hello() {
        let whole = records(&handshake(&sni("A.Example.test")), 16384);
        assert_eq!(look(&whole), hello("a.example.test"));
        assert_eq!(look(&[&whole[..], &[23, 3, 3, 0, 1, 0]].concat()), hello("a.example.test"), "early data");
        assert_eq!(look(&records(&handshake(&[]), 16384)), Look::Hello(None));
    }

    #[test]
    fn each_beginning_of_a_hello_asks_for_more() {
        for size in [1, 3, 100, 16384] {
            let whole = records(&handshake(&sni("a.test")), size);
            for length in 0..whole.len() {
                assert_eq!(look(&whole[..length]), Look::More, "{length} of records of {size}");
            }
            assert_eq!(look(&whole), hello("a.test"), "records of {size}");
        }
    }

    #[test]
    fn other_protocols_are_not_held() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"SSH-2.0-x\r\n",
            b"\0\0\0\x08\x04\xd2\x16\x2f",
            b"\x16\x04",
            b"\x15\x04",
            b"\x15\x03\x00\x01",
            b"\x16\x03\x00\x01\x85\xa6",
            b"P",
            b"\0",
        ] {
            assert_eq!(look(bytes), Look::Other, "{bytes:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_wrong() {
        let right = handshake(&sni("a.test"));
        let whole = records(&right, 16384);
        let listed = |list: &[u8]| records(&handshake(&extension(SERVER_NAME, list)), 16384);
        let entry = |kind: u8, name: &[u8]| [&[kind][..], &vector(2, name)].concat();
        let mut cut_short = whole.clone();
        let length = cut_short.len();
        // The hello ends within its last extension.
        cut_short[8] -= 1;
        cut_short.truncate(length);
        for (what, bytes) in [
            ("a warning before it", [&[21, 3, 1, 0, 2, 1, 90][..], &whole].concat()),
            ("a change of cipher before it", [&[20, 3, 1, 0, 1, 1][..], &whole].concat()),
            ("an empty record before it", [&[22, 3, 1, 0, 0][..], &whole].concat()),
            (
                "an empty record in it",
                [&records(&right[..9], 9)[..], &[22, 3, 1, 0, 0], &records(&right[9..], 9999)].concat(),
            ),
            (
                "a warning in it",
                [&records(&right[..9], 9)[..], &[21, 3, 1, 0, 2, 1, 90], &records(&right[9..], 9999)].concat(),
            ),
            ("a record that is too long", [&[22, 3, 1, 0x40, 1, 1][..], &[0; 99]].concat()),
            ("a hello that is too long", [&[22, 3, 1, 0x40, 0, 1, 1, 0, 0][..], &[0; 99]].concat()),
            ("two extensions", records(&handshake(&[sni("a.test"), sni("b.test")].concat()), 16384)),
            ("two names", listed(&vector(2, &[entry(0, b"a.test"), entry(0, b"b.test")].concat()))),
            ("another kind of name", listed(&vector(2, &entry(1, b"a.test")))),
            ("no name", listed(&vector(2, &[]))),
            ("an empty name", listed(&vector(2, &entry(0, b"")))),
            ("an empty extension", listed(&[])),
            ("bytes after the list", listed(&[vector(2, &entry(0, b"a.test")), vec![0]].concat())),
            ("an address", listed(&vector(2, &entry(0, b"127.0.0.1")))),
            ("a NUL", listed(&vector(2, &entry(0, b"a.test\0.b.test")))),
            ("a length that is one less", cut_short),
        ] {
            assert_eq!(look(&bytes), Look::Wrong, "{what}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_at_without_a_panic(tail in proptest::collection::vec(any::<u8>(), 0..600)) {
            look(&tail);
            look(&[&[22, 3, 1][..], &tail].concat());
            look(&[&[22, 3, 1, 0, 250, 1, 0, 0, 246, 3, 3][..], &tail].concat());
        }

        #[test]
        fn more_bytes_never_change_what_was_seen(at in 0_usize..400, byte: u8, size in 1_usize..300) {
            let mut bytes = records(&handshake(&sni("a.example.test")), size);
            let at = at % bytes.len();
            bytes[at] = byte;
            let seen = (0..=bytes.len()).map(|length| look(&bytes[..length])).find(|look| *look != Look::More);
            if let Some(seen) = seen {
                prop_assert_eq!(look(&bytes), seen);
            }
        }
    }
}
