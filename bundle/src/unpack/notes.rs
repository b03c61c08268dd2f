//! What a layer says about the layers below it. It stands in a file of the layer's tree whose name no entry can have, until
//! the layers are merged.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};

use distribution::system::{AsFd, Errno, Mode, OFlags, openat};

/// Names that begin so are whiteouts, and are made by nobody else.
pub(super) const FILE: &std::ffi::CStr = c".wh..smcp";

/// All that a layer says beside its own files. Paths are plain, see `name.rs`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// What of the layers below is not to be seen. A directory stands before what is in it.
    pub(super) hidden: BTreeMap<Vec<u8>, Hidden>,
    /// Hard links to what the layer itself does not hold, in their order: new name, target.
    pub(super) links: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first thing that was taken by lenient rules alone, printable.
    pub(super) departure: Option<String>,
}

/// How much of a name of a lower layer is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// All of it.
    Gone,
    /// What is in the directory.
    Opaque,
}

impl Notes {
    pub(super) fn is_empty(&self) -> bool {
        *self == Notes::default()
    }

    /// Writes them into the root of a layer.
    pub(super) fn write(&self, root: impl AsFd) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(root, FILE, flags, Mode::RUSR | Mode::WUSR)?;
        File::from(file).write_all(&self.to_bytes())
    }

    /// Reads those of a layer; most have none.
    pub(super) fn read(root: impl AsFd) -> io::Result<Notes> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match openat(root, FILE, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Notes::default()),
            opened => opened?,
        };
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes)?;
        Notes::parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the layer's notes are damaged"))
    }

    /// Records of a letter and one or two texts, each of which ends with NUL.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |letter: u8, texts: &[&[u8]]| {
            bytes.push(letter);
            for text in texts {
                bytes.extend_from_slice(text);
                bytes.push(0);
            }
        };
        for (path, hidden) in &self.hidden {
            put(if *hidden == Hidden::Gone { b'g' } else { b'o' }, &[path]);
        }
        for (path, target) in &self.links {
            put(b'h', &[path, target]);
        }
        if let Some(departure) = &self.departure {
            put(b'd', &[departure.as_bytes()]);
        }
        bytes
    }

    fn parse(mut rest: &[u8]) -> Option<Notes> {
        let mut notes = Notes::default();
        let text = |rest: &mut &[u8]| {
            let end = rest.iter().position(|byte| *byte == 0)?;
            let text = rest[..end].to_vec();
            *rest = &rest[end + 1..];
            Some(text)
        };
        while let Some((letter, after)) = rest.split_first() {
            rest = after;
            let first = text(&mut rest)?;
            match letter {
                b'g' => drop(notes.hidden.insert(first, Hidden::Gone)),
                b'o' => drop(notes.hidden.insert(first, Hidden::Opaque)),
                b'h' => notes.links.push((first, text(&mut rest)?)),
                b'd' => notes.departure = Some(String::from_utf8(first).ok()?),
                _ => return None,
            }
        }
        Some(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let notes = Notes {
            hidden: [(b"".to_vec(), Hidden::Opaque), (b"a/\xff\n".to_vec(), Hidden::Gone)].into(),
            links: vec![(b"new".to_vec(), b"old".to_vec()), (b"newer".to_vec(), b"new".to_vec())],
            departure: Some("E_DUP: entry `x`: twice".into()),
        };
        assert_eq!(Notes::parse(&notes.to_bytes()), Some(notes));
        assert_eq!(Notes::parse(b""), Some(Notes::default()));
        for damaged in [&b"g"[..], b"ga", b"ha\0b", b"x\0", b"d\xff\0"] {
            assert_eq!(Notes::parse(damaged), None, "{}", damaged.escape_ascii());
        }
    }
}
