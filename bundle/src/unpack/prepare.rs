//! All layers of a package, ready to be mounted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use distribution::{Descriptor, Digest, LayerLock, Staging, Store, tree_id};

use super::error::UnpackError;
use super::merge::merge;
use super::unpack;
use crate::package::Package;

/// Makes a package's files ready to be mounted: every layer unpacked, all of them merged into one tree, and that tree held.
/// The lock must live as long as the cage that mounts its path. Where the tree is there, this is one look at it.
///
/// # Errors
/// The first error by the order of the layers; no refused layer becomes visible.
pub fn prepare(package: &Package, store: &Store) -> Result<LayerLock, UnpackError> {
    let diff_ids: Vec<Digest> = package.layers.iter().map(|(_, diff_id)| diff_id.clone()).collect();
    let tree = tree_id(&diff_ids);
    if store.layer(&tree).is_none() {
        let _lease = store.lease()?;
        unpack_missing(package, store)?;
        merge_all(&tree, &diff_ids, store)?;
    }
    Ok(store.hold_layer(&tree)?)
}

fn unpack_missing(package: &Package, store: &Store) -> Result<(), UnpackError> {
    let mut seen = BTreeSet::new();
    let missing: Vec<&(Descriptor, Digest)> =
        package.layers.iter().filter(|(_, diff_id)| seen.insert(diff_id) && store.layer(diff_id).is_none()).collect();
    let bytes = AtomicU64::new(0);
    in_parallel(&missing, |(descriptor, diff_id)| unpack_one(descriptor, diff_id, store, &bytes))
}

/// A single layer is its own tree.
fn merge_all(tree: &Digest, diff_ids: &[Digest], store: &Store) -> Result<(), UnpackError> {
    let Staging::Empty(staged) = store.stage_layer(tree)? else { return Ok(()) };
    let layers: Vec<PathBuf> = diff_ids.iter().filter_map(|diff_id| store.layer(diff_id)).collect();
    let paths: Vec<&Path> = layers.iter().map(PathBuf::as_path).collect();
    merge(&paths, staged.dir()).map_err(|source| UnpackError::Io { path: staged.dir().into(), source })?;
    staged.commit()?;
    Ok(())
}

/// The most bytes that one package unpacks.
const MAX_PACKAGE: u64 = 8 << 30;

/// Unpacks one layer, unless another process is faster. `bytes` counts what the
/// package has unpacked so far.
fn unpack_one(descriptor: &Descriptor, diff_id: &Digest, store: &Store, bytes: &AtomicU64) -> Result<(), UnpackError> {
    let Staging::Empty(staged) = store.stage_layer(diff_id)? else { return Ok(()) };
    let missing = || UnpackError::NoBlob(descriptor.digest.clone());
    let blob = store.blob(descriptor)?.ok_or_else(missing)?;
    let unpacked = unpack(&blob, diff_id, &staged)?;
    if bytes.fetch_add(unpacked.bytes, Ordering::Relaxed) + unpacked.bytes > MAX_PACKAGE {
        return Err(UnpackError::PackageTooLarge { most: MAX_PACKAGE });
    }
    tracing::debug!(layer = %diff_id, entries = unpacked.entries, bytes = unpacked.bytes, "unpacked");
    for warning in &unpacked.warnings {
        tracing::warn!(layer = %diff_id, "{warning}");
    }
    staged.commit()?;
    Ok(())
}

/// Does all the work with a thread for each CPU and gives the first error.
fn in_parallel<T: Sync>(work: &[&T], act: impl Fn(&T) -> Result<(), UnpackError> + Sync) -> Result<(), UnpackError> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failed = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            match work.get(i).map(|item| act(item)) {
                None => return failed,
                Some(Ok(())) => {}
                Some(Err(error)) => failed.push((i, error)),
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(work.len());
    let mut failed: Vec<(usize, UnpackError)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("no worker panics")).collect()
    });
    failed.sort_by_key(|(i, _)| *i);
    match failed.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::archive::{file, tar};
    use super::*;
    use crate::config::ImageConfig;
    use crate::manifest::Manifest;
    use crate::package::PackageOrigin;
    use distribution::media_type;
    use serde_json::json;
    use std::fs;

    /// A store with the blobs of `archives`, and a package of them, lowest first.
    fn package(archives: &[Vec<u8>]) -> (tempfile::TempDir, Store, Package) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let put = |tar: &Vec<u8>| (store.put(tar, media_type::LAYER_TAR).unwrap(), Digest::of(tar));
        let manifest = json!({"schemaVersion": 1, "name": "a", "version": "1", "entrypoint": {"args": ["x"]}});
        let package = Package {
            manifest: Manifest::from_value(&manifest).unwrap(),
            origin: PackageOrigin::Smcp,
            config: ImageConfig::default(),
            digest: Digest::of(""),
            manifest_digest: Digest::of(""),
            layers: archives.iter().map(put).collect(),
        };
        (dir, store, package)
    }

    fn layer(name: &str) -> Vec<u8> {
        tar(&[file(name, name)])
    }

    #[test]
    fn layers_become_one_tree_and_a_single_one_is_its_own() {
        let both = |text: &str| tar(&[file("both", text), file(text, text)]);
        let (_dir, store, package) = package(&[both("low"), both("high")]);
        let tree = prepare(&package, &store).unwrap();
        assert_eq!(fs::read_to_string(tree.path().join("both")).unwrap(), "high");
        assert!(tree.path().join("low").is_file() && tree.path().join("high").is_file());
        assert_eq!(prepare(&package, &store).unwrap().path(), tree.path());
        let (_dir, store, package) = self::package(&[layer("only")]);
        let tree = prepare(&package, &store).unwrap();
        assert_eq!(tree.path(), store.layer(&package.layers[0].1).unwrap());
    }

    #[test]
    fn u65_two_at_once_unpack_a_layer_once() {
        let (_dir, store, package) = package(&[layer("a"), layer("b"), layer("c")]);
        let prepared = thread::scope(|scope| {
            let run = || scope.spawn(|| prepare(&package, &store).map(drop).map_err(|e| e.to_string()));
            [run(), run(), run(), run()].map(|thread| thread.join().unwrap())
        });
        assert_eq!(prepared, [const { Ok(()) }; 4]);
        assert_eq!(fs::read_dir(store.root().join("layers")).unwrap().count(), 4, "and their tree once");
    }

    #[test]
    fn a_refused_or_missing_layer_stops_all_and_is_not_seen() {
        let (_dir, store, mut package) = package(&[layer("good"), tar(&[file("../x", "")])]);
        let bad = package.layers[1].1.clone();
        assert!(matches!(prepare(&package, &store), Err(UnpackError::Refused { .. })));
        assert_eq!(store.layer(&bad), None);
        let absent = layer("absent");
        package.layers[1] = (Descriptor::new(media_type::LAYER_TAR, Digest::of(&absent), 1), Digest::of(&absent));
        assert!(matches!(prepare(&package, &store), Err(UnpackError::NoBlob(_))));
    }
}
