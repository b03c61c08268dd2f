//! Layers, from blobs to directories. An archive is hostile until proven
//! otherwise: it is streamed, counted, and unpacked beneath a directory handle.
//! What is refused and what is made harmless stands in `cases/unpack.md`.

mod error;
mod header;
mod merge;
mod name;
mod pax;
mod prepare;
mod source;
mod tarball;
mod tree;

use std::io::{Read, Write};
use std::path::Path;

use distribution::{Blob, Digest, StagedLayer, Verified};

pub use error::{Code, Refusal, UnpackError};
pub use prepare::prepare;

use error::{Result, Stop, escape};
use source::{Caps, Source};
use tarball::{Entry, Kind, MAX_HEADERS, Tarball};
use tree::{Tree, seal};

/// Unpacks a layer's blob into an empty staged directory, in one pass.
///
/// Owners and attributes are dropped, set-uid and set-gid bits too. Whoever owns
/// a file may share it: what its owner may read and execute, everybody may.
///
/// # Errors
/// At the first entry that is refused, or where the content has another digest
/// than `diff_id`. The staged directory must not be used then.
pub fn unpack(
    blob: &Verified<Blob>,
    diff_id: &Digest,
    into: &StagedLayer,
) -> std::result::Result<Unpacked, UnpackError> {
    let descriptor = blob.descriptor();
    let extracted = Extraction::LAYER.run(blob.reader(), &descriptor.media_type, into.dir());
    let layer = descriptor.digest.clone();
    match extracted {
        Ok((found, unpacked)) if found == *diff_id => Ok(unpacked),
        Ok((found, _)) => Err(UnpackError::DiffId { layer, found, wanted: diff_id.clone() }),
        Err(Stop::Refused(refusal)) => Err(UnpackError::Refused { layer, refusal }),
        Err(Stop::Io(source)) => Err(UnpackError::Io { path: into.dir().into(), source }),
    }
}

/// What was unpacked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Number of entries.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// What was dropped and may be missed, printable; at most 20.
    pub warnings: Vec<String>,
}

const MAX_WARNINGS: usize = 20;

/// The caps of one unpacking.
struct Extraction {
    caps: Caps,
    headers: u64,
}

impl Extraction {
    const LAYER: Extraction = Extraction { caps: Caps::LAYER, headers: MAX_HEADERS };

    /// Unpacks into an empty directory and gives the digest of the content.
    fn run(&self, compressed: impl Read, media_type: &str, into: &Path) -> Result<(Digest, Unpacked)> {
        let source = Source::new(compressed, media_type, self.caps)?;
        let mut tarball = Tarball::new(source, self.headers);
        let mut tree = Tree::new(into)?;
        let mut unpacked = Unpacked::default();
        while let Some(entry) = tarball.next()? {
            add(&mut tree, &entry, &mut tarball, &mut unpacked).map_err(|stop| stop.of(&entry.name))?;
        }
        tree.finish()?;
        Ok((tarball.finish()?, unpacked))
    }
}

fn add<R: Read>(tree: &mut Tree, entry: &Entry, tarball: &mut Tarball<R>, unpacked: &mut Unpacked) -> Result<()> {
    let path = name::plain(&entry.name)?;
    unpacked.entries += 1;
    if path.is_empty() {
        return match entry.kind {
            Kind::Directory => Ok(()),
            _ => Err(Stop::refused(Code::Root, "the root of a layer is a directory")),
        };
    }
    name::refuse_whiteout(&path)?;
    if entry.capability && unpacked.warnings.len() < MAX_WARNINGS {
        unpacked.warnings.push(format!("`{}` loses its capabilities", escape(&entry.name)));
    }
    match &entry.kind {
        Kind::Directory => tree.directory(&path, entry.mode, entry.mtime),
        Kind::Symlink { target } => tree.symlink(&path, target, entry.mtime),
        Kind::HardLink { target } => tree.hard_link(&path, target),
        Kind::File { size } => {
            let mut file = tree.file(&path)?;
            tarball.data(*size, |piece| Ok(file.write_all(piece)?))?;
            unpacked.bytes += size;
            seal(&file, entry.mode, entry.mtime)
        }
    }
}

#[cfg(test)]
mod archive;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_streams;
