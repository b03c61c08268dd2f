//! What nobody needs any more goes, what is too old or too much goes, and what is left is read once.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use super::Store;
use super::remove::{MAX_NESTING, Reach, Removed};
use crate::rootfs::Rules;
use crate::{Algorithm, Descriptor, Digest, Document, Error, Result, disk, lock, rootfs};

/// What the store may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Bytes of blobs and unpacked layers.
    pub size: Option<u64>,
    /// How long ago a package was last used or looked up.
    pub age: Option<Duration>,
}

/// What a look at the whole store found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Blobs that were read.
    pub blobs: usize,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong, a sentence each.
    pub findings: Vec<String>,
}

impl Store {
    /// Removes what no name needs: blobs and layers of broken pulls and builds. Then the names that were used least recently,
    /// for as long as the store is over its allowance. Waits for pulls and builds under way; servers go on.
    ///
    /// # Errors
    /// Where the store cannot be read or written.
    pub fn collect(&self, allowance: &Allowance) -> Result<Removed> {
        self.before_writing();
        let _alone = lock::exclusive(&self.at("locks/lease"))?;
        let _names = lock::exclusive(&self.at("locks/refs"))?;
        let mut removed = Removed::default();
        self.drop_unneeded(&mut removed)?;
        let mut names = self.list()?;
        names.sort_by_key(|name| name.used_at);
        for name in names {
            let age = SystemTime::now().duration_since(name.used_at).unwrap_or_default();
            let old = allowance.age.is_some_and(|most| age > most);
            let too_much = || allowance.size.is_some_and(|most| self.bytes() > most);
            if !old && !too_much() {
                continue;
            }
            fs::remove_file(self.ref_path(&name.reference))
                .map_err(Error::store("remove", &self.ref_path(&name.reference)))?;
            removed.refs += 1;
            self.release(&name.descriptor, &mut removed)?;
        }
        self.write_index()?;
        self.drop_locks()?;
        Ok(removed)
    }

    /// Reads every blob once, and looks whether each name has all that it needs. A damaged blob is set aside, so that the
    /// next pull brings it anew. What is unpacked is not looked at.
    ///
    /// # Errors
    /// Where the store cannot be read.
    pub fn verify(&self) -> Result<Verdict> {
        let mut verdict = Verdict::default();
        for (algorithm, path) in self.all_blobs()? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Ok(digest) = format!("{}:{name}", algorithm.name()).parse::<Digest>() else {
                verdict.findings.push(format!("{} is no blob", path.display()));
                continue;
            };
            let size = fs::metadata(&path).map_or(0, |meta| meta.len());
            match self.blob(&Descriptor::new("", digest, size)) {
                Ok(_) => (verdict.blobs, verdict.bytes) = (verdict.blobs + 1, verdict.bytes + size),
                Err(damaged @ Error::Damaged(_)) => verdict.findings.push(damaged.to_string()),
                Err(other) => return Err(other),
            }
        }
        for name in self.list()? {
            let mut missing = BTreeSet::new();
            self.missing(&name.descriptor, &mut missing, MAX_NESTING);
            verdict.findings.extend(missing.iter().map(|digest| format!("{}: {digest} is missing", name.reference)));
        }
        Ok(verdict)
    }

    /// Every file where blobs are, with the algorithm that its place stands for.
    pub(super) fn all_blobs(&self) -> Result<Vec<(Algorithm, PathBuf)>> {
        let mut all = Vec::new();
        for algorithm in Algorithm::ALL {
            all.extend(disk::entries(&self.blobs_by(algorithm))?.into_iter().map(|path| (algorithm, path)));
        }
        Ok(all)
    }

    fn drop_unneeded(&self, removed: &mut Removed) -> Result<()> {
        let mut kept = Reach::default();
        for name in self.list()? {
            self.reach(&name.descriptor, &mut kept, MAX_NESTING)?;
        }
        let hex =
            |digests: &BTreeSet<Digest>| digests.iter().map(|digest| digest.hex().to_owned()).collect::<BTreeSet<_>>();
        let (blobs, layers) = (hex(&kept.blobs), hex(&kept.layers));
        for path in disk::entries(&self.at("attached"))? {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            if !blobs.contains(&*name) {
                disk::discard(&path, &self.at("trash"))?;
            }
        }
        let unneeded = |path: &PathBuf, needed: &BTreeSet<String>| {
            !needed.contains(&*path.file_name().unwrap_or_default().to_string_lossy())
        };
        for path in disk::entries(&self.at("layers"))?.into_iter().filter(|path| unneeded(path, &layers)) {
            let bytes = disk::size(&path);
            removed.count_layer(disk::discard(&path, &self.at("trash"))?, bytes);
        }
        for (_, path) in self.all_blobs()?.into_iter().filter(|(_, path)| unneeded(path, &blobs)) {
            let bytes = disk::size(&path);
            removed.count_blob(disk::discard(&path, &self.at("trash"))?, bytes);
        }
        Ok(())
    }

    /// Bytes of blobs and unpacked layers.
    fn bytes(&self) -> u64 {
        disk::size(&self.at("blobs")) + disk::size(&self.at("layers"))
    }

    /// Files of locks whose holders were killed, and what pulls left word of.
    fn drop_locks(&self) -> Result<()> {
        for path in disk::entries(&self.at("locks"))? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if ["blob-", "layer-", "pull-"].iter().any(|kind| name.starts_with(kind)) {
                let Some(_unheld) = lock::try_exclusive(&path) else { continue };
                let _ = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    /// What a name needs and the store does not have. Of an index, the images that are not here are no loss.
    fn missing(&self, descriptor: &Descriptor, into: &mut BTreeSet<Digest>, depth: u32) {
        match self.document(descriptor) {
            None => drop(into.insert(descriptor.digest.clone())),
            Some(Document::Index(index)) if depth > 0 => {
                for child in index.manifests.iter().filter(|child| self.contains(child)) {
                    self.missing(child, into, depth - 1);
                }
            }
            Some(Document::Index(_)) => {}
            Some(Document::Manifest(manifest)) => {
                let diff_ids = self.diff_ids(&manifest.config);
                if !self.contains(&manifest.config) {
                    into.insert(manifest.config.digest.clone());
                }
                let tree = |rules| self.layer(&rootfs::tree_id(&diff_ids, rules)).is_some();
                let whole = !diff_ids.is_empty() && [Rules::Strict, Rules::Lenient].into_iter().any(tree);
                let unpacked = |number: usize| whole || diff_ids.get(number).is_some_and(|id| self.layer(id).is_some());
                let lost = |(number, layer): &(usize, &Descriptor)| !self.contains(layer) && !unpacked(*number);
                into.extend(manifest.layers.iter().enumerate().filter(lost).map(|(_, layer)| layer.digest.clone()));
            }
        }
    }
}
