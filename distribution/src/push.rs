//! Publishes an image from the store: what it consists of first, its name last.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::hub::Hub;
use crate::registry::{Repository, Sent};
use crate::source::{Place, locate};
use crate::store::{Blob, Origin, Verified};
use crate::{
    Descriptor, Digest, Document, Error, LayoutRef, Mode, Name, Network, Reference, Result, Selector, Store, canonical,
    disk, layout,
};

/// How deep indexes may lie in one another.
const MAX_NESTING: u32 = 2;

/// Publishes an image or index that is in the store, to a registry or into an OCI layout directory, which is made
/// where it is not there.
///
/// # Errors
/// Where a blob is not in the store, or the target refuses.
pub fn push(store: &Store, descriptor: &Descriptor, target: &Reference, net: &Network) -> Result<Pushed> {
    let _lease = store.lease()?;
    let (pushed, language) = publish(store, descriptor, target, net)?;
    // What a hub makes of it is another image, and a layout is the truth itself.
    if language == Language::Distribution && matches!(target, Reference::Registry(_)) {
        store.remember_as(&canonical(target, net)?, descriptor, Origin::Fetched, None)?;
    }
    Ok(pushed)
}

/// The same without a name for it in the store.
pub(crate) fn publish(
    store: &Store,
    descriptor: &Descriptor,
    target: &Reference,
    net: &Network,
) -> Result<(Pushed, Language)> {
    let mut parts = Parts::default();
    parts.gather(store, descriptor, MAX_NESTING)?;
    let mut pushed =
        Pushed { descriptor: descriptor.bare(), target: target.to_string(), uploaded: 0, present: 0, bytes: 0 };
    let language = match target {
        Reference::Registry(name) => to_registry(store, &parts, name, net, &mut pushed)?,
        Reference::OciLayout(place) => {
            to_layout(store, &parts, place, &mut pushed)?;
            Language::Distribution
        }
        _ => return Err(Error::NotBuilt(target.to_string())),
    };
    Ok((pushed, language))
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// What was published.
    pub descriptor: Descriptor,
    /// Where.
    pub target: String,
    /// Blobs that were sent.
    pub uploaded: usize,
    /// Blobs that the target had already, there or in another repository.
    pub present: usize,
    /// Bytes of the blobs that were sent.
    pub bytes: u64,
}

/// What an image or index consists of.
#[derive(Default)]
struct Parts {
    blobs: Vec<Descriptor>,
    /// Each after everything that it points at.
    documents: Vec<Verified<Blob>>,
    seen: BTreeSet<Digest>,
}

impl Parts {
    fn gather(&mut self, store: &Store, descriptor: &Descriptor, depth: u32) -> Result<()> {
        if !self.seen.insert(descriptor.digest.clone()) {
            return Ok(());
        }
        let document = present(store, descriptor)?;
        let read = Document::parse(&document.bytes()?, &descriptor.media_type);
        match read.map_err(Error::image(&descriptor.digest))? {
            Document::Manifest(manifest) => {
                let parts = manifest.layers.into_iter().chain([manifest.config]);
                self.blobs.extend(parts.filter(|part| self.seen.insert(part.digest.clone())));
            }
            Document::Index(index) if depth > 0 => {
                index.manifests.iter().try_for_each(|child| self.gather(store, child, depth - 1))?;
            }
            Document::Index(_) => {
                let why = format!("indexes within indexes, deeper than {MAX_NESTING}");
                return Err(Error::Verification { what: descriptor.digest.to_string(), why });
            }
        }
        self.documents.push(document);
        Ok(())
    }
}

/// What a registry speaks.
#[derive(PartialEq, Eq)]
pub(crate) enum Language {
    /// The distribution specification.
    Distribution,
    /// The hub's own API.
    Hub,
}

fn to_registry(store: &Store, parts: &Parts, name: &Name, net: &Network, pushed: &mut Pushed) -> Result<Language> {
    let place = locate(name, net)?;
    if net.mode == Mode::Offline {
        return Err(Error::Offline(place.name()));
    }
    let reference = match place.selector.tag() {
        Some(tag) => tag,
        None => pinned(&place.selector, &pushed.descriptor)?,
    };
    let elsewhere = elsewhere(store, parts, &place)?;
    let from: BTreeSet<_> = elsewhere.values().cloned().collect();
    let from: Vec<_> = from.into_iter().collect();
    let repository = Repository::for_writing(&place.host, &place.repository, &from, &net.access);
    if let Some(hub) = Hub::of(&place.host, &place.repository, net).filter(|_| !repository.speaks_distribution()) {
        to_hub(store, &hub, &place, net, pushed)?;
        return Ok(Language::Hub);
    }
    for blob in &parts.blobs {
        let there = repository.has_blob(blob)? || {
            let from = elsewhere.get(&blob.digest).map(String::as_str);
            repository.upload(&present(store, blob)?, from)? == Sent::Mounted
        };
        pushed.count(there, blob);
    }
    let (last, children) = parts.documents.split_last().expect("the image itself is one");
    children.iter().try_for_each(|child| repository.put_manifest(child.descriptor().digest.as_str(), child))?;
    repository.put_manifest(&reference, last)?;
    Ok(Language::Distribution)
}

/// A hub takes the source tree of a package, and makes a version of its own of it.
fn to_hub(store: &Store, hub: &Hub, place: &Place, net: &Network, pushed: &mut Pushed) -> Result<()> {
    let refused = |why: String| Error::Verification { what: pushed.descriptor.digest.to_string(), why };
    let unmake = net.access.unmake.ok_or_else(|| refused("this program makes no bundles for a hub".into()))?;
    let offered = unmake(&pushed.descriptor, store).map_err(refused)?;
    if let Selector::Version(text) | Selector::Tag(text) = &place.selector
        && *text != offered.version
    {
        return Err(refused(format!("it is version {:?}, and the target names {text:?}", offered.version)));
    }
    hub.publish(&offered)?;
    let bundle = offered.bundle.descriptor().clone();
    pushed.count(false, &bundle);
    store.drop_blob(&bundle);
    Ok(())
}

/// Other repositories of the same registry that the store knows to have some of the blobs.
fn elsewhere(store: &Store, parts: &Parts, place: &Place) -> Result<BTreeMap<Digest, String>> {
    let mut found = BTreeMap::new();
    for known in store.list()?.into_iter().filter(|known| known.origin == Origin::Fetched) {
        let Ok(Reference::Registry(Name { registry: Some(host), repository, .. })) = known.reference.parse() else {
            continue;
        };
        if host != place.host || repository == place.repository {
            continue;
        }
        let mut theirs = Parts::default();
        // What is not whole any more here is no reason against the push.
        if theirs.gather(store, &known.descriptor, MAX_NESTING).is_err() {
            continue;
        }
        let shared = parts.blobs.iter().filter(|blob| theirs.seen.contains(&blob.digest));
        found.extend(shared.map(|blob| (blob.digest.clone(), repository.clone())));
    }
    Ok(found)
}

/// The digest in a target is a promise about what is published there.
fn pinned(selector: &Selector, descriptor: &Descriptor) -> Result<String> {
    match selector {
        Selector::Digest(digest) if *digest != descriptor.digest => {
            let why = format!("the target names {digest} instead");
            Err(Error::Verification { what: descriptor.digest.to_string(), why })
        }
        _ => Ok(descriptor.digest.to_string()),
    }
}

fn to_layout(store: &Store, parts: &Parts, place: &LayoutRef, pushed: &mut Pushed) -> Result<()> {
    if let Some(selector @ Selector::Digest(_)) = &place.reference {
        pinned(selector, &pushed.descriptor)?;
    }
    let dir = &place.dir;
    prepare(dir)?;
    for blob in &parts.blobs {
        let there = fs::metadata(layout::blob_path(dir, &blob.digest)).is_ok_and(|meta| meta.len() == blob.size);
        if !there {
            copy(&present(store, blob)?, dir)?;
        }
        pushed.count(there, blob);
    }
    parts.documents.iter().try_for_each(|document| copy(document, dir))?;
    let name = place.reference.as_ref().and_then(Selector::tag);
    let _lock = crate::lock::held(dir)?;
    let mut entries = layout::read_index(dir)?;
    entries.retain(|entry| {
        layout::name_of(entry) != name.as_deref() || name.is_none() && entry.digest != pushed.descriptor.digest
    });
    entries.push(match name {
        Some(name) => layout::named(pushed.descriptor.clone(), &name),
        None => pushed.descriptor.clone(),
    });
    layout::write_index(dir, dir, &entries)
}

/// Makes a layout of a directory that is missing or empty.
fn prepare(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::store("create", dir))?;
    let _lock = crate::lock::held(dir)?;
    let marker = dir.join("oci-layout");
    if !marker.is_file() {
        if !disk::entries(dir)?.is_empty() {
            return Err(Error::Unusable { path: dir.into(), why: "neither empty nor an OCI layout".into() });
        }
        layout::write_index(dir, dir, &[])?;
        disk::replace(&marker, layout::MARKER.as_bytes(), dir)?;
    }
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(Error::store("create", &blobs))
}

fn copy(blob: &Verified<Blob>, dir: &Path) -> Result<()> {
    let target = layout::blob_path(dir, &blob.descriptor().digest);
    let blobs = target.parent().unwrap_or(dir);
    fs::create_dir_all(blobs).map_err(Error::store("create", blobs))?;
    let (mut file, scratch) = disk::scratch_file(blobs)?;
    let copied = io::copy(&mut blob.reader(), &mut file).map_err(Error::store("write", &target));
    let landed = copied.and_then(|_| disk::land(&file, &scratch, &target));
    landed.inspect_err(|_| drop(fs::remove_file(&scratch)))
}

fn present(store: &Store, descriptor: &Descriptor) -> Result<Verified<Blob>> {
    let missing = || Error::NotFound { what: descriptor.digest.to_string(), place: "the store".into() };
    store.blob(descriptor)?.ok_or_else(missing)
}

impl Pushed {
    fn count(&mut self, there: bool, blob: &Descriptor) {
        if there {
            self.present += 1;
        } else {
            self.uploaded += 1;
            self.bytes += blob.size;
        }
    }
}
