//! Images in an OCI layout directory. The directory is the truth: it is read each time, and no network is needed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{Freshness, Network, Resolved, Source, Way, choose};
use crate::{
    Descriptor, Error, ImageManifest, LayoutRef, MAX_MANIFEST, Reference, Result, Selector, Store, layout, media_type,
};

pub(super) fn resolve(place: &LayoutRef, store: &Store, net: &Network) -> Result<Resolved> {
    let descriptor = find(place)?.bare();
    let dir = absolute(&place.dir)?;
    let get = |child: &Descriptor| read_manifest(&dir, child);
    let (manifest, manifest_descriptor) = choose(&descriptor, store, &net.platform, &get)?;
    let name = canonical(place)?;
    let same = store.recall(&name)?.is_some_and(|known| known.descriptor == descriptor);
    let freshness = if same { Freshness::Cached } else { Freshness::Fetched };
    let reference = Reference::OciLayout(place.clone()).to_string();
    let (source, way) = (Source::Layout(dir), Way::default());
    Ok(Resolved { reference, name, descriptor, manifest, manifest_descriptor, freshness, stated: None, source, way })
}

/// The directory written out, since the name outlives the working directory.
pub(super) fn canonical(place: &LayoutRef) -> Result<String> {
    let place = LayoutRef { dir: absolute(&place.dir)?, reference: place.reference.clone() };
    Ok(Reference::OciLayout(place).to_string())
}

/// The directory, also where it was named by a link.
pub(super) fn family(place: &LayoutRef) -> Result<String> {
    let dir = place.dir.canonicalize().map_err(Error::store("find", &place.dir))?;
    Ok(format!("oci-layout:{}", dir.display()))
}

/// Opens a blob of a layout, to be hashed by whoever reads it.
pub(crate) fn open_blob(dir: &Path, descriptor: &Descriptor) -> Result<File> {
    let path = layout::blob_path(dir, &descriptor.digest);
    if !path.exists() {
        return Err(Error::NotFound { what: descriptor.digest.to_string(), place: dir.display().to_string() });
    }
    layout::open_file(&path)
}

fn find(place: &LayoutRef) -> Result<Descriptor> {
    let entries = layout::read_index(&place.dir)?;
    let dir = place.dir.display();
    let missing = |what: String| Error::NotFound { what, place: dir.to_string() };
    match &place.reference {
        Some(Selector::Digest(digest)) => {
            let found = entries.into_iter().find(|entry| entry.digest == *digest);
            found.ok_or_else(|| missing(digest.to_string()))
        }
        Some(selector) => {
            let name = selector.tag().unwrap_or_default();
            let found = entries.into_iter().find(|entry| layout::name_of(entry) == Some(&name));
            found.ok_or_else(|| missing(name))
        }
        None => match &entries.iter().filter(|entry| is_image(&place.dir, entry)).collect::<Vec<_>>()[..] {
            [only] => Ok((*only).clone()),
            [] => Err(missing("an image".into())),
            several => {
                let name = |entry: &Descriptor| layout::name_of(entry).unwrap_or(entry.digest.as_str()).to_string();
                Err(Error::Ambiguous {
                    place: format!("oci-layout:{dir}"),
                    names: several.iter().map(|entry| name(entry)).collect(),
                })
            }
        },
    }
}

/// Whether an entry is an image of its own, and nothing about one. Other tools leave the artifact type out of the index.
fn is_image(dir: &Path, entry: &Descriptor) -> bool {
    if layout::is_about_another(entry) {
        return false;
    }
    let unnamed = layout::name_of(entry).is_none() && entry.artifact_type.is_none();
    let manifest = unnamed.then(|| read_manifest(dir, entry).ok()).flatten();
    let manifest = manifest.and_then(|bytes| ImageManifest::parse(&bytes).ok());
    manifest.is_none_or(|manifest| manifest.artifact_type.as_deref() != Some(media_type::SIGSTORE_BUNDLE))
}

pub(crate) fn read_manifest(dir: &Path, descriptor: &Descriptor) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open_blob(dir, descriptor)?;
    file.take(MAX_MANIFEST as u64 + 1).read_to_end(&mut bytes).map_err(Error::store("read", dir))?;
    Ok(bytes)
}

fn absolute(dir: &Path) -> Result<PathBuf> {
    std::path::absolute(dir).map_err(Error::store("find", dir))
}
