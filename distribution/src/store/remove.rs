//! Removal: names and what they alone kept go to the trash by rename, which is quick and disturbs nobody; the trash is
//! emptied when there is time for it.

use std::collections::BTreeSet;
use std::fs::{self, File};

use super::Store;
use crate::store::{Blob, Verified};
use crate::{Descriptor, Digest, Document, Error, ImageManifest, Result, Rules, disk, lock, media_type, rootfs};

/// How deep indexes may lie in one another.
pub(super) const MAX_NESTING: u32 = 2;

/// What a removal took away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Names.
    pub refs: usize,
    /// Blobs that no other name needs.
    pub blobs: usize,
    /// Unpacked layers that no other name needs.
    pub layers: usize,
    /// Bytes of those blobs and of the files in those layers.
    pub bytes: u64,
}

/// While it lives nothing is removed from the store. For whoever gathers blobs that no name holds yet: a pull, a
/// build. Its holder must not remove anything itself, for it would wait for ever.
#[derive(Debug)]
pub struct Lease(#[expect(dead_code, reason = "held, not read")] File);

impl Store {
    /// Removes a name, and the blobs and layers that only it needs. Servers that use those layers go on.
    ///
    /// # Errors
    /// [`Error::NotFound`] where the store has no such name.
    pub fn remove(&self, name: &str) -> Result<Removed> {
        self.before_writing();
        let _alone = lock::exclusive(&self.at("locks/lease"))?;
        let _names = lock::exclusive(&self.at("locks/refs"))?;
        let Some(target) = self.recall(name)? else {
            return Err(Error::NotFound { what: name.into(), place: "the store".into() });
        };
        fs::remove_file(self.ref_path(name)).map_err(Error::store("remove", &self.ref_path(name)))?;
        self.write_index()?;
        let mut removed = Removed { refs: 1, ..Removed::default() };
        self.release(&target.descriptor, &mut removed)?;
        Ok(removed)
    }

    /// Removes what an image brought and no name holds, where nobody else is at work in the store.
    pub(crate) fn forget(&self, descriptor: &Descriptor) -> Result<()> {
        let Some(_alone) = lock::try_exclusive(&self.at("locks/lease")) else { return Ok(()) };
        let _names = lock::exclusive(&self.at("locks/refs"))?;
        self.release(descriptor, &mut Removed::default())?;
        self.empty_trash()
    }

    /// Moves to the trash what `target` needs and no name does.
    pub(super) fn release(&self, target: &Descriptor, removed: &mut Removed) -> Result<()> {
        let mut kept = Reach::default();
        for other in self.list()? {
            self.reach(&other.descriptor, &mut kept, MAX_NESTING)?;
        }
        let mut freed = Reach::default();
        self.reach(target, &mut freed, MAX_NESTING)?;
        for layer in freed.layers.difference(&kept.layers) {
            let path = self.layer_path(layer);
            let bytes = disk::size(&path);
            removed.count_layer(disk::discard(&path, &self.at("trash"))?, bytes);
        }
        for blob in freed.blobs.difference(&kept.blobs) {
            self.drop_attachments(blob)?;
            let path = self.blob_path(blob);
            let bytes = disk::size(&path);
            removed.count_blob(disk::discard(&path, &self.at("trash"))?, bytes);
        }
        Ok(())
    }

    /// Removes every name, blob and layer. Servers that use those layers go on.
    pub fn remove_all(&self) -> Result<Removed> {
        self.before_writing();
        let _alone = lock::exclusive(&self.at("locks/lease"))?;
        let _names = lock::exclusive(&self.at("locks/refs"))?;
        let mut removed = Removed::default();
        for path in disk::entries(&self.at("refs"))? {
            removed.refs += usize::from(disk::discard(&path, &self.at("trash"))?);
        }
        self.write_index()?;
        for path in disk::entries(&self.at("attached"))? {
            disk::discard(&path, &self.at("trash"))?;
        }
        for path in disk::entries(&self.at("layers"))? {
            let bytes = disk::size(&path);
            removed.count_layer(disk::discard(&path, &self.at("trash"))?, bytes);
        }
        for (_, path) in self.all_blobs()? {
            let bytes = disk::size(&path);
            removed.count_blob(disk::discard(&path, &self.at("trash"))?, bytes);
        }
        Ok(removed)
    }

    /// Keeps everything in the store for as long as the lease lives.
    pub fn lease(&self) -> Result<Lease> {
        lock::shared(&self.at("locks/lease")).map(Lease)
    }

    /// Deletes what lies in the trash, except for layers that a server still uses. It can take seconds, and creating
    /// files is slow on ext4 right afterwards: never before an unpack.
    pub fn empty_trash(&self) -> Result<()> {
        for path in disk::entries(&self.at("trash"))? {
            let is_dir = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir());
            let free = if is_dir { lock::try_exclusive(&path) } else { None };
            if is_dir && free.is_none() {
                tracing::debug!(path = %path.display(), "still in use");
                continue;
            }
            disk::delete(&path)?;
        }
        Ok(())
    }

    /// Gathers what an index or manifest needs. What is missing or damaged keeps nothing else.
    ///
    /// # Errors
    /// Where it cannot be read now: nobody knows what it keeps.
    pub(super) fn reach(&self, descriptor: &Descriptor, into: &mut Reach, depth: u32) -> Result<()> {
        into.blobs.insert(descriptor.digest.clone());
        let Some(document) = self.try_document(descriptor)? else { return Ok(()) };
        match document {
            Document::Manifest(manifest) => {
                let diff_ids = self.try_diff_ids(&manifest.config)?;
                into.layers.extend([Rules::Strict, Rules::Lenient].map(|rules| rootfs::tree_id(&diff_ids, rules)));
                into.layers.extend(diff_ids);
                into.blobs.insert(manifest.config.digest);
                into.blobs.extend(manifest.layers.into_iter().map(|layer| layer.digest));
            }
            Document::Index(index) if depth > 0 => {
                for child in &index.manifests {
                    self.reach(child, into, depth - 1)?;
                }
            }
            Document::Index(_) => {}
        }
        Ok(())
    }

    /// The images of all names whose manifest and configuration are here and whole.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn images(&self) -> Result<Vec<Kept>> {
        let mut descriptors: Vec<_> = self.list()?.into_iter().map(|name| (name.descriptor, MAX_NESTING)).collect();
        let (mut seen, mut images) = (BTreeSet::new(), Vec::new());
        while let Some((descriptor, depth)) = descriptors.pop() {
            if !seen.insert(descriptor.digest.clone()) {
                continue;
            }
            match self.document(&descriptor) {
                Some(Document::Manifest(manifest)) => {
                    let diff_ids = self.diff_ids(&manifest.config);
                    if let Ok(Some(config)) = self.blob(&manifest.config) {
                        images.push(Kept { manifest, config, diff_ids });
                    }
                }
                Some(Document::Index(index)) if depth > 0 => {
                    descriptors.extend(index.manifests.into_iter().map(|child| (child, depth - 1)));
                }
                _ => {}
            }
        }
        Ok(images)
    }

    pub(super) fn document(&self, descriptor: &Descriptor) -> Option<Document> {
        self.try_document(descriptor).ok().flatten()
    }

    /// A manifest or index; none where it is missing, damaged or not understood.
    fn try_document(&self, descriptor: &Descriptor) -> Result<Option<Document>> {
        let kind = &descriptor.media_type;
        if !media_type::is_index(kind) && !media_type::is_manifest(kind) {
            return Ok(None);
        }
        let bytes = unless_damaged(self.manifest(&descriptor.digest))?;
        Ok(bytes.and_then(|bytes| Document::parse(&bytes, kind).ok()))
    }

    pub(super) fn diff_ids(&self, config: &Descriptor) -> Vec<Digest> {
        self.try_diff_ids(config).unwrap_or_default()
    }

    fn try_diff_ids(&self, config: &Descriptor) -> Result<Vec<Digest>> {
        let Some(blob) = unless_damaged(self.blob(config))? else { return Ok(Vec::new()) };
        let bytes = unless_damaged(blob.bytes().map(Some))?;
        Ok(bytes.and_then(|bytes| rootfs::diff_ids(&bytes).ok()).unwrap_or_default())
    }
}

/// What is damaged is as good as gone.
fn unless_damaged<T>(read: Result<Option<T>>) -> Result<Option<T>> {
    match read {
        Err(Error::Damaged(_) | Error::Verification { .. }) => Ok(None),
        other => other,
    }
}

/// An image in the store.
#[derive(Debug)]
pub struct Kept {
    /// Its manifest.
    pub manifest: ImageManifest,
    /// Its configuration.
    pub config: Verified<Blob>,
    /// Digests of its layers' content, the lowest first; none where the configuration is not understood.
    pub diff_ids: Vec<Digest>,
}

#[derive(Default)]
pub(super) struct Reach {
    pub(super) blobs: BTreeSet<Digest>,
    pub(super) layers: BTreeSet<Digest>,
}

impl Removed {
    pub(super) fn count_layer(&mut self, was_there: bool, bytes: u64) {
        self.layers += usize::from(was_there);
        self.bytes += bytes;
    }

    pub(super) fn count_blob(&mut self, was_there: bool, bytes: u64) {
        self.blobs += usize::from(was_there);
        self.bytes += bytes;
    }
}
