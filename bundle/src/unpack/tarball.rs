//! A reader of tar archives that refuses whatever two readers could take for
//! different things. It is our own because the rules of `cases/unpack.md` lie
//! below what a library shows: which header a name came from, what was said
//! twice, what stands behind the end.

use std::io::Read;

use distribution::Digest;

use super::error::{Code, Result, Stop};
use super::header::Header;
use super::pax::{self, Extension};
use super::source::Source;

/// An archive that is read from its beginning to its end.
pub(super) struct Tarball<R: Read> {
    source: Source<R>,
    headers: u64,
    most_headers: u64,
    end: End,
}

/// Where an archive may end, and whether it did so by its mark. There are tools that write none, nor what would fill up the
/// last file's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// At its mark alone.
    AtItsMark,
    /// Also after any entry.
    Anywhere,
    /// It ended after an entry.
    WithoutMark,
}

/// One entry, with all that was said about it.
#[derive(Debug)]
pub(super) struct Entry {
    /// As it stands in the archive.
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    /// The lower twelve bits.
    pub(super) mode: u32,
    pub(super) mtime: i64,
    /// It states file capabilities.
    pub(super) capability: bool,
}

/// What an entry is; nothing else is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its data follow and must be read next.
    File {
        size: u64,
    },
    Directory,
    Symlink {
        target: Vec<u8>,
    },
    HardLink {
        target: Vec<u8>,
    },
    /// A device or pipe, which no layer gets: what it is refused as, and what it is.
    Special {
        code: Code,
        what: &'static str,
    },
}

/// What the headers before an entry said about it.
#[derive(Default)]
struct Announced {
    pax: Option<Extension>,
    gnu_name: Option<Vec<u8>>,
    gnu_link: Option<Vec<u8>>,
}

const BLOCK: u64 = 512;
/// The most headers of a layer.
pub(super) const MAX_HEADERS: u64 = 500_000;
/// The largest extended header.
const MAX_EXTENSION: u64 = 1 << 20;

impl<R: Read> Tarball<R> {
    pub(super) fn new(source: Source<R>, most_headers: u64, end: End) -> Tarball<R> {
        Tarball { source, headers: 0, most_headers, end }
    }

    /// How it has ended.
    pub(super) fn end(&self) -> End {
        self.end
    }

    /// The next entry, or `None` at the end. The data of a file must have been read.
    pub(super) fn next(&mut self) -> Result<Option<Entry>> {
        let mut announced = Announced::default();
        while let Some(header) = self.header()? {
            if !matches!(header.typeflag(), b'x' | b'g' | b'L' | b'K') {
                return announced.entry(&header).map(Some);
            }
            self.extension(&header, &mut announced).map_err(|stop| stop.of(&header.name()))?;
        }
        match announced.is_empty() {
            true => Ok(None),
            false => Err(Stop::refused(Code::Header, "an extended header announces no entry")),
        }
    }

    /// Hands the data of the file that was last given to `sink`.
    pub(super) fn data(&mut self, size: u64, sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.source.copy(size, sink)?;
        match self.source.copy(size.next_multiple_of(BLOCK) - size, |_| Ok(())) {
            Err(Stop::Refused(refusal)) if refusal.code == Code::Eof && self.end == End::Anywhere => Ok(()),
            filled => filled,
        }
    }

    /// Reads what is left behind the end and gives the digest of the whole.
    pub(super) fn finish(self) -> Result<Digest> {
        self.source.finish()
    }

    /// The next header, or `None` at the two blocks of zeros that end the archive.
    fn header(&mut self) -> Result<Option<Header>> {
        let eof = || Stop::refused(Code::Eof, "the archive ends without its end mark");
        let Some(block) = self.source.block()? else {
            return match self.end {
                End::AtItsMark => Err(eof()),
                End::Anywhere | End::WithoutMark => {
                    self.end = End::WithoutMark;
                    Ok(None)
                }
            };
        };
        if block == [0; 512] {
            return match self.source.block()?.ok_or_else(eof)? == [0; 512] {
                true => Ok(None),
                false => Err(Stop::refused(Code::Header, "a single block of zeros is no end mark")),
            };
        }
        self.headers += 1;
        if self.headers > self.most_headers {
            let why = format!("it has more than {} headers", self.most_headers);
            return Err(Stop::refused(Code::Bomb, why));
        }
        Header::read(block).map(Some)
    }

    fn extension(&mut self, header: &Header, announced: &mut Announced) -> Result<()> {
        let size = header.size()?;
        if size > MAX_EXTENSION {
            let why = format!("an extended header has {size} bytes, more than {MAX_EXTENSION}");
            return Err(Stop::refused(Code::HeaderTooLarge, why));
        }
        let mut bytes = Vec::new();
        self.data(size, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        match header.typeflag() {
            b'x' => once(&mut announced.pax, pax::local(&bytes)?),
            b'L' => once(&mut announced.gnu_name, long_name(bytes)?),
            b'K' => once(&mut announced.gnu_link, long_name(bytes)?),
            _ => pax::global(&bytes),
        }
    }
}

impl Announced {
    fn is_empty(&self) -> bool {
        self.pax.is_none() && self.gnu_name.is_none() && self.gnu_link.is_none()
    }

    fn entry(self, header: &Header) -> Result<Entry> {
        let both = self.pax.is_some() && (self.gnu_name.is_some() || self.gnu_link.is_some());
        let pax = self.pax.unwrap_or_default();
        let name = pax.path.or(self.gnu_name).unwrap_or_else(|| header.name());
        let link = pax.link.or(self.gnu_link).unwrap_or_else(|| header.link());
        let about = |stop: Stop| stop.of(&name);
        if both {
            let why = "it is announced by a PAX and a GNU header";
            return Err(about(Stop::refused(Code::Ambiguous, why)));
        }
        let size = pax.size.map_or_else(|| header.size(), Ok).map_err(about)?;
        Ok(Entry {
            kind: kind(header, &name, link, size).map_err(about)?,
            mode: header.mode().map_err(about)?,
            mtime: pax.mtime.unwrap_or_else(|| header.mtime()),
            capability: pax.capability,
            name,
        })
    }
}

fn once<T>(field: &mut Option<T>, announced: T) -> Result<()> {
    match field.replace(announced) {
        None => Ok(()),
        Some(_) => Err(Stop::refused(Code::Ambiguous, "two headers of one kind announce one entry")),
    }
}

/// The text of a GNU header, without the NUL at its end.
fn long_name(mut text: Vec<u8>) -> Result<Vec<u8>> {
    if text.last() == Some(&0) {
        text.pop();
    }
    match text.is_empty() || text.contains(&0) {
        true => Err(Stop::refused(Code::Header, "a long name is empty or holds a NUL")),
        false => Ok(text),
    }
}

fn kind(header: &Header, name: &[u8], target: Vec<u8>, size: u64) -> Result<Kind> {
    let refused = |code, why: &str| Err(Stop::refused(code, why));
    let kind = match header.typeflag() {
        b'0' | b'7' | 0 if !name.ends_with(b"/") => return Ok(Kind::File { size }),
        // Before ustar, a slash at the end made a directory of a file.
        b'0' | b'7' | 0 if size > 0 => {
            return refused(Code::Ambiguous, "it is a file, but has the name of a directory");
        }
        b'0' | b'7' | 0 | b'5' => Kind::Directory,
        b'1' => Kind::HardLink { target },
        b'2' => Kind::Symlink { target },
        b'3' if header.is_device_zero() => {
            return refused(Code::RawWhiteout, "it is a raw overlay whiteout");
        }
        b'3' | b'4' => Kind::Special { code: Code::Device, what: "it is a device" },
        b'6' => Kind::Special { code: Code::Fifo, what: "it is a named pipe" },
        b'S' => return refused(Code::Sparse, "sparse files are not read"),
        other => {
            let why = format!("its type `{}` is not known", other.escape_ascii());
            return Err(Stop::refused(Code::Type, why));
        }
    };
    // Some readers skip such data, others take them for the next header.
    match size {
        0 => Ok(kind),
        _ => refused(Code::Payload, "only a file can have data"),
    }
}
