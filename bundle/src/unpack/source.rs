//! The bytes of a layer: decompressed, counted and hashed as they are read.

use std::io::{self, BufReader, Read};

use distribution::{Digest, Hasher, media_type};
use flate2::bufread::MultiGzDecoder;

use super::error::{Code, Result, Stop};

/// A decompressed layer that is read once, from its beginning to its end.
pub(super) struct Source<R: Read> {
    inflate: Inflate<R>,
    hasher: Hasher,
    caps: Caps,
    total: u64,
    buffer: Vec<u8>,
    unread: std::ops::Range<usize>,
}

/// How much a layer may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps {
    /// Decompressed bytes.
    pub(super) bytes: u64,
    /// Decompressed bytes for each compressed one, once `free` bytes are out.
    pub(super) ratio: u64,
    /// Bytes that come out before the ratio counts.
    pub(super) free: u64,
}

impl Caps {
    pub(super) const LAYER: Caps = Caps { bytes: 4 << 30, ratio: 200, free: 64 << 20 };
}

/// The largest zstd window: 8 MiB.
const WINDOW_LOG_MAX: u32 = 23;
const BUFFER: usize = 256 << 10;

impl<R: Read> Source<R> {
    /// Reads what `media_type` says; nothing is guessed from the content.
    pub(super) fn new(compressed: R, media_type: &str, caps: Caps) -> Result<Source<R>> {
        Ok(Source {
            inflate: Inflate::new(compressed, media_type)?,
            hasher: Hasher::new(),
            caps,
            total: 0,
            buffer: vec![0; BUFFER],
            unread: 0..0,
        })
    }

    /// Hands exactly `size` bytes to `sink`, in pieces.
    pub(super) fn copy(&mut self, mut size: u64, mut sink: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while size > 0 {
            let unread = self.fill()?;
            if unread.is_empty() {
                return Err(Stop::refused(Code::Eof, "the archive ends in the middle of it"));
            }
            let piece = unread.len().min(usize::try_from(size).unwrap_or(usize::MAX));
            sink(&unread[..piece])?;
            self.unread.start += piece;
            size -= piece as u64;
        }
        Ok(())
    }

    /// One block of 512 bytes, or `None` at the end.
    pub(super) fn block(&mut self) -> Result<Option<[u8; 512]>> {
        if self.fill()?.is_empty() {
            return Ok(None);
        }
        let mut block = [0; 512];
        let mut filled = 0;
        self.copy(512, |piece| {
            block[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
            Ok(())
        })?;
        Ok(Some(block))
    }

    /// The bytes that are there, read anew if there are none; empty at the end.
    pub(super) fn fill(&mut self) -> Result<&[u8]> {
        if self.unread.is_empty() {
            let size = self.inflate.read(&mut self.buffer).map_err(stop)?;
            self.total += size as u64;
            if self.total > self.caps.bytes {
                let why = format!("it decompresses to more than {} bytes", self.caps.bytes);
                return Err(Stop::refused(Code::Bomb, why));
            }
            let proportionate = self.inflate.consumed().saturating_mul(self.caps.ratio);
            if self.total > self.caps.free && self.total > proportionate {
                let why = format!("it decompresses to more than {} times its size", self.caps.ratio);
                return Err(Stop::refused(Code::Bomb, why));
            }
            self.hasher.update(&self.buffer[..size]);
            self.unread = 0..size;
        }
        Ok(&self.buffer[self.unread.clone()])
    }

    /// Reads the rest, which must be zero, and gives the digest of the whole.
    pub(super) fn finish(mut self) -> Result<Digest> {
        loop {
            let rest = self.fill()?;
            if rest.iter().any(|byte| *byte != 0) {
                return Err(Stop::refused(Code::Trailing, "data follows the end of the archive"));
            }
            if rest.is_empty() {
                return Ok(self.hasher.finish().0);
            }
            self.unread = 0..0;
        }
    }
}

/// What the decompressors report is about the content, unless the system said it.
fn stop(error: io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Stop::refused(Code::Eof, "the compressed data ends too early"),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
            Stop::refused(Code::Compression, error.to_string().to_lowercase())
        }
        _ => Stop::Io(error),
    }
}

enum Inflate<R: Read> {
    Plain(Counted<R>),
    Gzip(Box<MultiGzDecoder<BufReader<Counted<R>>>>),
    Zstd(zstd::stream::read::Decoder<'static, BufReader<Counted<R>>>),
}

impl<R: Read> Inflate<R> {
    fn new(compressed: R, media_type: &str) -> Result<Inflate<R>> {
        let counted = Counted { inner: compressed, count: 0 };
        let buffered = |counted| BufReader::with_capacity(BUFFER, counted);
        match media_type {
            media_type::LAYER_TAR | media_type::DOCKER_LAYER_TAR => Ok(Inflate::Plain(counted)),
            media_type::LAYER_TAR_GZIP | media_type::DOCKER_LAYER_TAR_GZIP => {
                Ok(Inflate::Gzip(Box::new(MultiGzDecoder::new(buffered(counted)))))
            }
            media_type::LAYER_TAR_ZSTD => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered(counted))?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                Ok(Inflate::Zstd(decoder))
            }
            other => {
                let why = format!("{} is no layer that is read", other.escape_debug());
                Err(Stop::refused(Code::MediaType, why))
            }
        }
    }

    /// Compressed bytes read so far.
    fn consumed(&self) -> u64 {
        match self {
            Inflate::Plain(reader) => reader.count,
            Inflate::Gzip(decoder) => decoder.get_ref().get_ref().count,
            Inflate::Zstd(decoder) => decoder.get_ref().get_ref().count,
        }
    }
}

impl<R: Read> Read for Inflate<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Inflate::Plain(reader) => reader.read(buffer),
            Inflate::Gzip(decoder) => decoder.read(buffer),
            Inflate::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

struct Counted<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.inner.read(buffer)?;
        self.count += size as u64;
        Ok(size)
    }
}
