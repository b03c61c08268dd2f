//! The chain: each entry has a number and the SHA-256 of the line before. Its head is kept in a file outside the log, so that
//! lines cut off the end show, and what stands in the log without having been written by smcp.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use distribution::Digest;
use distribution::system::{FileExt as _, OpenOptionsExt as _};
use serde::{Deserialize, Serialize};

use super::files::Tail;

/// A line of the chain: its number and its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// From 1 on.
    pub seq: u64,
    /// Of the line without its newline.
    pub hash: Digest,
}

/// What of a line the chain is made of.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// Its number.
    pub seq: u64,
    /// SHA-256 of the line before, in hexadecimal digits.
    pub prev: Option<String>,
    /// Where the line before is what a crash left: the same of the last whole line.
    #[serde(default, with = "given")]
    pub torn: Option<Option<String>>,
}

impl Entry {
    /// Reads a line; none where it is no entry.
    pub fn read(line: &[u8]) -> Option<Entry> {
        serde_json::from_slice(line).ok()
    }
}

/// A key that is there with `null` differs from one that is not there.
mod given {
    use serde::{Deserialize, Deserializer};

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
        Option::<String>::deserialize(from).map(Some)
    }
}

/// The head of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The number of the last line, 0 before the first.
    pub seq: u64,
    /// Its hash.
    pub hash: Option<Digest>,
    /// The line that was about to be written, where a crash may have come in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Link>,
}

impl From<Link> for Head {
    fn from(Link { seq, hash }: Link) -> Head {
        Head { seq, hash: Some(hash), next: None }
    }
}

impl Head {
    /// With the line that was about to be written as the last one, where it is what the log ends with: its writer was killed before it said so,
    /// and the next one may be, too.
    #[must_use]
    pub fn settled(self, tail: &Tail) -> Head {
        match (&self.next, &tail.whole) {
            (Some(next), Some(line)) if Digest::of(line) == next.hash => next.clone().into(),
            _ => self,
        }
    }
}

/// The file of a head.
#[derive(Debug)]
pub struct HeadFile(File);

/// A head fits in, padded by spaces: each is as long as the one before, so that one write is all of it or nothing.
const LENGTH: usize = 256;

impl HeadFile {
    /// Opens it, and makes it where it is missing.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<HeadFile> {
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map(HeadFile)
    }

    /// What stands in it; none where that is no head.
    pub fn read(&self) -> Option<Head> {
        read(&self.0)
    }

    /// Writes it in its place and at once: a process that is killed has written all of it or nothing, and a file renamed over
    /// another without a flush, which would take as long as the entry's own, is no safer from a power failure.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, head: &Head) -> io::Result<()> {
        let mut text = serde_json::to_vec(head)?;
        text.resize(text.len().max(LENGTH), b' ');
        self.0.write_all_at(&text, 0)
    }
}

/// The head that a file holds; none where there is no file.
pub fn head(path: &Path) -> Option<Head> {
    read(&File::open(path).ok()?)
}

fn read(file: &File) -> Option<Head> {
    let mut text = [0; 2 * LENGTH];
    let length = file.read_at(&mut text, 0).ok()?;
    serde_json::from_slice(&text[..length]).ok()
}

/// What the next entry says of the lines before.
#[derive(Debug, PartialEq, Eq)]
pub struct Next {
    /// Its number.
    pub seq: u64,
    /// SHA-256 of the line before.
    pub prev: Option<Digest>,
    /// Where that is what a crash left: the same of the last whole line.
    pub torn: Option<Option<Digest>>,
}

/// Goes on after what the log ends with. Where that is not what the head says, it goes on from the head, so that the
/// difference shows for ever; a log that is ahead of the head was written with another state directory, or its writer was
/// killed before it had written the head.
pub fn after(tail: &Tail, head: &Head) -> Next {
    let whole = tail.whole.as_ref().and_then(|line| Some((Entry::read(line)?.seq, Digest::of(line))));
    let (seq, hash) = match whole {
        Some((seq, hash)) if seq > head.seq => (seq, Some(hash)),
        _ => (head.seq, head.hash.clone()),
    };
    match &tail.torn {
        None => Next { seq: seq + 1, prev: hash, torn: None },
        Some(torn) => Next { seq: seq + 1, prev: Some(Digest::of(torn)), torn: Some(hash) },
    }
}
