//! Layers, from blobs to directories. An archive is hostile until proven
//! otherwise: it is streamed, counted, and unpacked beneath a directory handle.
//! What is refused and what is made harmless stands in `cases/unpack.md`.

mod check;
mod error;
mod header;
mod merge;
mod name;
mod notes;
mod pax;
mod prepare;
mod source;
mod tarball;
mod tree;

use std::io::{self, PipeReader, Read, Write};

use distribution::system::OwnedFd;
use distribution::{Blob, Digest, Rules, StagedLayer, Verified};
use serde::{Deserialize, Serialize};

pub use check::{Compared, check_trees};
pub use error::{Code, Refusal, Stop, UnpackError};
pub use prepare::prepare;

use error::{Result, escape};
use name::Meaning;
use notes::Hidden;
use source::{Caps, Source};
use tarball::{End, Entry, Kind, MAX_HEADERS, Tarball};
use tree::{Tree, seal};

/// What an archive is and how it is to be unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Media type of the layer; nothing is guessed from the content.
    pub media_type: String,
    /// What is refused and what is made harmless.
    pub rules: Rules,
    /// What its hard links may lead to.
    pub below: Below,
}

/// What lies below a layer in its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Below {
    /// It is the lowest.
    Nothing,
    /// Other layers.
    Layers,
}

/// What came of an archive: the digest of its decompressed bytes, and what was unpacked.
pub type Extracted = std::result::Result<(Digest, Unpacked), Stop>;

/// Unpacks an archive into an empty directory, in one pass.
///
/// Owners and attributes are dropped, set-uid and set-gid bits too. Whoever owns
/// a file may share it: what its owner may read and execute, everybody may.
///
/// # Errors
/// At the first entry that is refused. The directory must not be used then.
pub fn extract(compressed: impl Read, order: &Order, into: OwnedFd) -> Extracted {
    Extraction { caps: Caps::LAYER, headers: MAX_HEADERS }.run(compressed, order, into)
}

/// An archive to be extracted.
pub enum Archive<'a> {
    /// All of it, compared with its digest.
    Whole(&'a Verified<Blob>),
    /// One that is still on its way, and that nobody has compared with anything yet.
    Arriving(PipeReader),
}

/// Whoever extracts an archive into a staged directory: in this process, or better in one that can do nothing else.
/// Its error is that it could not be asked; it is of the kind `Unsupported` where an archive has to be whole.
pub type Extractor<'a> = &'a (dyn Fn(Archive<'_>, &Order, &StagedLayer) -> io::Result<Extracted> + Sync);

/// The extractor of this very process: for archives of one's own.
///
/// # Errors
/// Where the directory's handle cannot be had a second time.
pub fn in_this_process(archive: Archive<'_>, order: &Order, into: &StagedLayer) -> io::Result<Extracted> {
    let directory = into.handle().try_clone_to_owned()?;
    Ok(match archive {
        Archive::Whole(blob) => extract(blob.reader(), order, directory),
        Archive::Arriving(bytes) => extract(bytes, order, directory),
    })
}

/// Unpacks a layer's blob into an empty staged directory.
///
/// # Errors
/// At the first entry that is refused, or where the content has another digest
/// than `diff_id`. The staged directory must not be used then.
pub fn unpack(
    blob: &Verified<Blob>,
    diff_id: &Digest,
    into: &StagedLayer,
    order: &Order,
    by: Extractor<'_>,
) -> std::result::Result<Unpacked, UnpackError> {
    accept(blob, diff_id, into, by(Archive::Whole(blob), order, into))
}

/// What was extracted of a blob, also before that was compared with its digest, is what the image promises.
fn accept(
    blob: &Verified<Blob>,
    diff_id: &Digest,
    into: &StagedLayer,
    extracted: io::Result<Extracted>,
) -> std::result::Result<Unpacked, UnpackError> {
    let layer = blob.descriptor().digest.clone();
    match extracted.unwrap_or_else(|error| Err(Stop::Io(error))) {
        Ok((found, unpacked)) if found == *diff_id => Ok(unpacked),
        Ok((found, _)) => Err(UnpackError::DiffId { layer, found, wanted: diff_id.clone() }),
        Err(Stop::Refused(refusal)) => Err(UnpackError::Refused { layer, refusal }),
        Err(Stop::Io(source)) => Err(UnpackError::Io { path: into.dir().into(), source }),
    }
}

/// What was unpacked.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// What was dropped and may be missed, printable; at most 20.
    pub warnings: Vec<String>,
}

const MAX_WARNINGS: usize = 20;

impl Unpacked {
    fn warn(&mut self, entry: &Entry, what: &str) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(format!("`{}` {what}", escape(&entry.name)));
        }
    }
}

/// The caps of one unpacking.
struct Extraction {
    caps: Caps,
    headers: u64,
}

impl Extraction {
    fn run(&self, compressed: impl Read, order: &Order, into: OwnedFd) -> Extracted {
        let source = Source::new(compressed, &order.media_type, self.caps)?;
        let end = if order.rules == Rules::Lenient { End::Anywhere } else { End::AtItsMark };
        let mut tarball = Tarball::new(source, self.headers, end);
        let mut tree = Tree::new(into, order.rules, order.below);
        let mut unpacked = Unpacked::default();
        while let Some(entry) = tarball.next()? {
            add(&mut tree, &entry, &mut tarball, &mut unpacked, order.rules).map_err(|stop| stop.of(&entry.name))?;
        }
        if tarball.end() == End::WithoutMark {
            tree.depart(Stop::refused(Code::Eof, "the archive ends without its end mark"));
        }
        tree.finish()?;
        Ok((tarball.finish()?, unpacked))
    }
}

fn add<R: Read>(
    tree: &mut Tree,
    entry: &Entry,
    tarball: &mut Tarball<R>,
    unpacked: &mut Unpacked,
    rules: Rules,
) -> Result<()> {
    let path = name::plain(&entry.name)?;
    unpacked.entries += 1;
    if path.is_empty() {
        return match entry.kind {
            Kind::Directory => Ok(()),
            _ => Err(Stop::refused(Code::Root, "the root of a layer is a directory")),
        };
    }
    match name::meaning(&path)? {
        Meaning::Entry => {}
        Meaning::OfAufs => return skip(entry, tarball),
        Meaning::Gone(path) => return hide(tree, &path, Hidden::Gone, entry),
        Meaning::Opaque(path) => return hide(tree, &path, Hidden::Opaque, entry),
    }
    if entry.capability {
        unpacked.warn(entry, "loses its capabilities");
    }
    match &entry.kind {
        Kind::Directory => tree.directory(&path, entry.mode, entry.mtime),
        Kind::Symlink { target } => tree.symlink(&path, target, entry.mtime),
        Kind::HardLink { target } => tree.hard_link(&path, target),
        Kind::File { size } => {
            let mut file = tree.file(&path, entry.mode)?;
            tarball.data(*size, |piece| Ok(file.write_all(piece)?))?;
            unpacked.bytes += size;
            seal(&file, entry.mtime);
            Ok(())
        }
        Kind::Special { code, what } if rules == Rules::Lenient => {
            unpacked.warn(entry, &format!("is left out: {what}"));
            tree.depart(Stop::refused(*code, *what).of(&path));
            Ok(())
        }
        Kind::Special { code, what } => Err(Stop::refused(*code, *what)),
    }
}

fn hide(tree: &mut Tree, path: &[u8], hidden: Hidden, entry: &Entry) -> Result<()> {
    match entry.kind {
        Kind::File { size: 0 } => tree.hide(path, hidden),
        _ => Err(Stop::refused(Code::Whiteout, "a whiteout is an empty file")),
    }
}

fn skip<R: Read>(entry: &Entry, tarball: &mut Tarball<R>) -> Result<()> {
    match entry.kind {
        Kind::File { size } => tarball.data(size, |_| Ok(())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod archive;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_layers;
#[cfg(test)]
mod tests_of_models;
#[cfg(test)]
mod tests_of_streams;
