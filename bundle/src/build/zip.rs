//! Unpacking a zip archive (PKWARE's APPNOTE) that somebody else made: files and directories alone, within bounds, each once and where
//! its name says.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::{Component, Path};

use distribution::system::OpenOptionsExt as _;
use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::error::BuildError;

/// The largest archive, the most files, and the most bytes of all of them.
const MAX_ARCHIVE: u64 = 512 << 20;
const MAX_FILES: usize = 50_000;
const MAX_BYTES: u64 = 2 << 30;

const END: &[u8] = b"PK\x05\x06";
const ENTRY: &[u8] = b"PK\x01\x02";
const FILE: &[u8] = b"PK\x03\x04";

/// Unpacks `archive` into the empty directory `into`.
pub(super) fn unpack(archive: &Path, into: &Path) -> Result<(), BuildError> {
    let wrong = |why: String| BuildError::Archive { file: archive.into(), why };
    let read = || {
        let mut bytes = Vec::new();
        fs::File::open(archive)?.take(MAX_ARCHIVE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(BuildError::io(format!("reading {}", archive.display())))?;
    if bytes.len() as u64 > MAX_ARCHIVE {
        return Err(wrong(format!("it is larger than {} MiB", MAX_ARCHIVE >> 20)));
    }
    let entries = entries(&bytes).map_err(|why| wrong(why.into()))?;
    let (mut names, mut left) = (BTreeSet::new(), MAX_BYTES);
    for entry in entries {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        let fail = |why: &str| wrong(format!("{}: {why}", name.escape_debug()));
        entry.check(&name).map_err(&fail)?;
        if name.ends_with('/') {
            fs::create_dir_all(into.join(&name)).map_err(|why| fail(&why.to_string()))?;
            continue;
        }
        if !names.insert(name.clone()) {
            return Err(fail("it stands twice"));
        }
        left = left.checked_sub(entry.size).ok_or_else(|| fail("all files together are too large"))?;
        let content = entry.content(&bytes).map_err(&fail)?;
        let path = into.join(&name);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(into))?;
            let mode = if entry.mode & 0o111 == 0 { 0o644 } else { 0o755 };
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&path)?.write_all(&content)
        };
        write().map_err(|why| fail(&why.to_string()))?;
    }
    Ok(())
}

/// One line of the directory at the end of an archive.
struct Entry<'a> {
    name: &'a [u8],
    flags: u16,
    method: u16,
    sum: u32,
    packed: u64,
    size: u64,
    mode: u32,
    at: usize,
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, &'static str> {
    // A comment of at most 65535 bytes may follow.
    let last = bytes.len().checked_sub(22).ok_or("it is no zip archive")?;
    let first = last.saturating_sub(0xffff);
    let end = (first..=last).rev().find(|at| bytes[*at..].starts_with(END)).ok_or("it is no zip archive")?;
    let (count, mut at) = (number(bytes, end + 10, 2)? as usize, number(bytes, end + 16, 4)? as usize);
    if count > MAX_FILES || count == 0xffff || at == 0xffff_ffff {
        return Err("it has too many files");
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        if !bytes.get(at..).is_some_and(|rest| rest.starts_with(ENTRY)) {
            return Err("its directory is damaged");
        }
        let field = |offset: usize, width: usize| number(bytes, at + offset, width);
        let length = field(28, 2)? as usize;
        let name = bytes.get(at + 46..at + 46 + length).ok_or("its directory is damaged")?;
        entries.push(Entry {
            name,
            flags: field(8, 2)? as u16,
            method: field(10, 2)? as u16,
            sum: field(16, 4)? as u32,
            packed: field(20, 4)?,
            size: field(24, 4)?,
            mode: (field(38, 4)? >> 16) as u32,
            at: field(42, 4)? as usize,
        });
        at += 46 + length + field(30, 2)? as usize + field(32, 2)? as usize;
    }
    Ok(entries)
}

impl Entry<'_> {
    /// Whether it is a file or directory beneath the one that is unpacked into.
    fn check(&self, name: &str) -> Result<(), &'static str> {
        const KIND: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        const DIRECTORY: u32 = 0o040_000;
        let plain = |part: Component| matches!(part, Component::Normal(_));
        let odd = |c: char| c.is_control() || c == '\\' || c == char::REPLACEMENT_CHARACTER;
        if name.is_empty() || name.contains(odd) || name.contains("//") || !Path::new(name).components().all(plain) {
            return Err("its name leads elsewhere, or is none");
        }
        if ![0, REGULAR, DIRECTORY].contains(&(self.mode & KIND)) {
            return Err("it is neither a file nor a directory");
        }
        if self.flags & 1 != 0 {
            return Err("it is encrypted");
        }
        Ok(())
    }

    /// The bytes, of the length and the sum that the directory states.
    fn content(&self, bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        const DAMAGED: &str = "it is damaged";
        if !bytes.get(self.at..).is_some_and(|rest| rest.starts_with(FILE)) {
            return Err(DAMAGED);
        }
        let head = |offset: usize| number(bytes, self.at + offset, 2).map(|length| length as usize);
        let start = self.at + 30 + head(26)? + head(28)?;
        let packed = bytes.get(start..start + self.packed as usize).ok_or(DAMAGED)?;
        let mut content = Vec::new();
        match self.method {
            0 => content.extend_from_slice(packed),
            8 => {
                let read = DeflateDecoder::new(packed).take(self.size + 1).read_to_end(&mut content);
                read.map_err(|_| DAMAGED)?;
            }
            _ => return Err("it is packed by a method that is not read"),
        }
        let mut sum = Crc::new();
        sum.update(&content);
        match content.len() as u64 == self.size && sum.sum() == self.sum {
            true => Ok(content),
            false => Err(DAMAGED),
        }
    }
}

/// A number of 2 or 4 bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Result<u64, &'static str> {
    let field = bytes.get(at..at + width).ok_or("it is cut off")?;
    Ok(field.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive of stored files: name, mode, content.
    pub(super) fn archive(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for (name, mode, content) in files {
            let mut sum = Crc::new();
            sum.update(content);
            let (size, at) = ((content.len() as u32).to_le_bytes(), (out.len() as u32).to_le_bytes());
            let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 33, 0][..], &sum.sum().to_le_bytes(), &size, &size].concat();
            let length = (name.len() as u16).to_le_bytes();
            out.extend([FILE, &common[..], &length, &[0, 0], name.as_bytes(), *content].concat());
            let rest = [&length[..], &[0; 8], &(mode << 16).to_le_bytes(), &at, name.as_bytes()].concat();
            directory.extend([ENTRY, &[20, 3][..], &common, &rest].concat());
        }
        let count = (files.len() as u16).to_le_bytes();
        let (size, at) = ((directory.len() as u32).to_le_bytes(), (out.len() as u32).to_le_bytes());
        [&out[..], &directory, END, &[0; 4], &count, &count, &size, &at, &[0, 0]].concat()
    }

    fn unpacked(bytes: &[u8]) -> Result<tempfile::TempDir, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.zip");
        fs::write(&file, bytes).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        unpack(&file, &dir.path().join("out")).map(|()| dir).map_err(|why| why.to_string())
    }

    #[test]
    fn files_and_directories() {
        let all = archive(&[("d/", 0o040_755, b""), ("d/run", 0o100_755, b"abc"), ("e/f", 0, b"")]);
        let dir = unpacked(&all).unwrap();
        assert_eq!(fs::read(dir.path().join("out/d/run")).unwrap(), b"abc");
        let mode = |name: &str| {
            std::os::unix::fs::MetadataExt::mode(&fs::metadata(dir.path().join("out").join(name)).unwrap()) & 0o111
        };
        assert!(mode("d/run") != 0 && mode("e/f") == 0);
    }

    #[test]
    fn what_is_refused() {
        for (files, why) in [
            (vec![("../x", 0, &b"a"[..])], "leads elsewhere"),
            (vec![("/x", 0, b"a")], "leads elsewhere"),
            (vec![("a/../../x", 0, b"a")], "leads elsewhere"),
            (vec![("a\\b", 0, b"a")], "leads elsewhere"),
            (vec![("l", 0o120_777, b"/etc/passwd")], "neither a file"),
            (vec![("x", 0, b"a"), ("x", 0, b"b")], "stands twice"),
            (vec![("x", 0, b"a"), ("x/y", 0, b"b")], "x/y"),
        ] {
            let error = unpacked(&archive(&files)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let mut damaged = archive(&[("x", 0, b"abc")]);
        let at = damaged.windows(3).position(|part| part == b"abc").unwrap();
        damaged[at] = b'x';
        assert!(unpacked(&damaged).unwrap_err().contains("damaged"));
        for length in 0..damaged.len() {
            assert!(unpacked(&damaged[..length]).is_err(), "cut off at {length}");
        }
        assert!(unpacked(b"PK no archive").is_err());
    }

    #[test]
    fn a_bomb_is_no_larger_than_it_says() {
        use flate2::Compression;
        use flate2::write::DeflateEncoder;
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![0; 1 << 20]).unwrap();
        let packed = encoder.finish().unwrap();
        let mut bomb = archive(&[("x", 0, &packed)]);
        // Deflated, and of one byte by its own word.
        let entry = bomb.windows(4).position(|part| part == ENTRY).unwrap();
        bomb[entry + 10] = 8;
        bomb[entry + 24..entry + 28].copy_from_slice(&1_u32.to_le_bytes());
        assert!(unpacked(&bomb).unwrap_err().contains("damaged"));
    }
}
