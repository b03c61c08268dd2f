//! All layers of a package, ready to be mounted.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use distribution::{Descriptor, Digest, LayerLock, Staging, Store};

use super::error::UnpackError;
use super::unpack;
use crate::package::Package;

/// Unpacks the layers that are not unpacked yet and holds all of them, topmost
/// first; the locks must live as long as the cage that mounts their paths. Where
/// all layers are there, this is one look at each.
///
/// A layer that occurs twice is given once, at its topmost place: there it
/// covers whatever it would cover below, and an overlay takes no directory twice.
///
/// # Errors
/// The first error by the order of the layers; no refused layer becomes visible.
pub fn prepare(package: &Package, store: &Store) -> Result<Vec<LayerLock>, UnpackError> {
    let mut seen = BTreeSet::new();
    let topmost_first = package.layers.iter().rev().filter(|(_, diff_id)| seen.insert(diff_id));
    let layers: Vec<&(Descriptor, Digest)> = topmost_first.collect();
    let is_missing = |(_, diff_id): &&(Descriptor, Digest)| store.layer(diff_id).is_none();
    let missing: Vec<_> = layers.iter().copied().filter(is_missing).collect();
    if missing.is_empty() {
        return hold(&layers, store);
    }
    let _lease = store.lease()?;
    let bytes = AtomicU64::new(0);
    in_parallel(&missing, |(descriptor, diff_id)| unpack_one(descriptor, diff_id, store, &bytes))?;
    hold(&layers, store)
}

/// The most bytes that one package unpacks.
const MAX_PACKAGE: u64 = 8 << 30;

fn hold(layers: &[&(Descriptor, Digest)], store: &Store) -> Result<Vec<LayerLock>, UnpackError> {
    layers.iter().map(|(_, diff_id)| Ok(store.hold_layer(diff_id)?)).collect()
}

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
    fn layers_come_topmost_first_and_each_once() {
        let (_dir, store, package) = package(&[layer("base"), layer("same"), layer("middle"), layer("same")]);
        let locks = prepare(&package, &store).unwrap();
        let names: Vec<_> =
            locks.iter().map(|lock| fs::read_dir(lock.path()).unwrap().next().unwrap().unwrap().file_name()).collect();
        assert_eq!(names, ["same", "middle", "base"]);
        let again = prepare(&package, &store).unwrap();
        assert!(locks.iter().zip(&again).all(|(a, b)| a.path() == b.path()));
    }

    #[test]
    fn u65_two_at_once_unpack_a_layer_once() {
        let (_dir, store, package) = package(&[layer("a"), layer("b"), layer("c")]);
        let prepared = thread::scope(|scope| {
            let run = || scope.spawn(|| prepare(&package, &store).map(|locks| locks.len()).map_err(|e| e.to_string()));
            [run(), run(), run(), run()].map(|thread| thread.join().unwrap())
        });
        assert_eq!(prepared, [const { Ok(3) }; 4]);
        assert_eq!(fs::read_dir(store.root().join("layers")).unwrap().count(), 3);
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
