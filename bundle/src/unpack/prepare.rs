//! All layers of a package, ready to be mounted.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use distribution::{Descriptor, Digest, LayerLock, Rules, StagedLayer, Staging, Store, tree_id};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat};

use super::error::{Stop, UnpackError};
use super::merge::{self, add_layer};
use super::notes::Notes;
use super::{Below, Extractor, Order, unpack};
use crate::package::Package;

/// Makes a package's files ready to be mounted: every layer unpacked, all of them merged into one tree, and that tree held.
/// The lock must live as long as the cage that mounts its path. Where the tree is there, this is one look at it.
///
/// # Errors
/// The first error by the order of the layers; no refused layer becomes visible.
pub fn prepare(package: &Package, store: &Store, by: Extractor<'_>) -> Result<LayerLock, UnpackError> {
    let diff_ids: Vec<Digest> = package.layers.iter().map(|(_, diff_id)| diff_id.clone()).collect();
    let tree = tree_id(&diff_ids, package.rules());
    if store.layer(&tree).is_none() {
        let _lease = store.lease()?;
        unpack_missing(package, store, by)?;
        merge_all(&tree, package, store)?;
    }
    Ok(store.hold_layer(&tree)?)
}

fn unpack_missing(package: &Package, store: &Store, by: Extractor<'_>) -> Result<(), UnpackError> {
    let mut seen = BTreeSet::new();
    let missing: Vec<_> = package
        .layers
        .iter()
        .enumerate()
        .filter(|(_, (_, diff_id))| seen.insert(diff_id) && store.layer(diff_id).is_none())
        .collect();
    let bytes = AtomicU64::new(0);
    // A layer waits for the disk while the next one is unpacked.
    thread::scope(|committing| {
        let commits = Mutex::new(Vec::new());
        let unpacked = in_parallel(&missing, |(place, (descriptor, diff_id))| {
            let below = if *place == 0 { Below::Nothing } else { Below::Layers };
            let order = Order { media_type: descriptor.media_type.clone(), rules: package.rules(), below };
            if let Some(staged) = unpack_one(descriptor, diff_id, order, store, &bytes, by)? {
                let commit = committing.spawn(|| staged.commit());
                commits.lock().expect("no worker panics").push(commit);
            }
            Ok(())
        });
        let commits = commits.into_inner().expect("no worker panics");
        let committed = commits.into_iter().try_for_each(|commit| commit.join().expect("no commit panics").map(drop));
        unpacked.and(committed.map_err(UnpackError::from))
    })
}

/// Merges the layers, the lowest first, unless another process is faster.
fn merge_all(tree: &Digest, package: &Package, store: &Store) -> Result<(), UnpackError> {
    let Staging::Empty(staged) = store.stage_layer(tree)? else { return Ok(()) };
    let failed = |source| UnpackError::Io { path: staged.dir().into(), source };
    let root = staged.handle().try_clone_to_owned().map_err(failed)?;
    for (descriptor, diff_id) in &package.layers {
        let missing = || UnpackError::NoBlob(descriptor.digest.clone());
        let layer = merge::open(&store.layer(diff_id).ok_or_else(missing)?).map_err(failed)?;
        let notes = Notes::read(&layer).map_err(failed)?;
        if let (Rules::Strict, Some(what)) = (package.rules(), &notes.departure) {
            return Err(UnpackError::TakenLeniently { layer: diff_id.clone(), what: what.clone() });
        }
        add_layer(&layer, &root, &notes).map_err(|stop| match stop {
            Stop::Refused(refusal) => UnpackError::Refused { layer: descriptor.digest.clone(), refusal },
            Stop::Io(error) => failed(error),
        })?;
    }
    staged.commit()?;
    Ok(())
}

/// The most bytes that one package unpacks.
const MAX_PACKAGE: u64 = 8 << 30;

/// Unpacks one layer, to be committed, unless another process is faster. `bytes` counts what the
/// package has unpacked so far.
fn unpack_one(
    descriptor: &Descriptor,
    diff_id: &Digest,
    mut order: Order,
    store: &Store,
    bytes: &AtomicU64,
    by: Extractor<'_>,
) -> Result<Option<StagedLayer>, UnpackError> {
    let Staging::Empty(staged) = store.stage_layer(diff_id)? else { return Ok(None) };
    let missing = || UnpackError::NoBlob(descriptor.digest.clone());
    let blob = store.blob(descriptor)?.ok_or_else(missing)?;
    if order.rules == Rules::Lenient && takes_names_for_one(staged.handle()) {
        // A later name must not replace one that differs from it.
        order.rules = Rules::Strict;
    }
    let unpacked = unpack(&blob, diff_id, &staged, &order, by)?;
    if bytes.fetch_add(unpacked.bytes, Ordering::Relaxed) + unpacked.bytes > MAX_PACKAGE {
        return Err(UnpackError::PackageTooLarge { most: MAX_PACKAGE });
    }
    tracing::debug!(layer = %diff_id, entries = unpacked.entries, bytes = unpacked.bytes, "unpacked");
    for warning in &unpacked.warnings {
        tracing::warn!(layer = %diff_id, "{warning}");
    }
    Ok(Some(staged))
}

/// Whether the file system takes `A` and `a` for one name in that directory.
pub(super) fn takes_names_for_one(directory: impl AsFd) -> bool {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (name, other) = (c".wh..smcp-case", c".WH..SMCP-CASE");
    let made = openat(&directory, name, flags, Mode::RUSR).is_ok();
    let one = statat(&directory, other, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    made && unlinkat(&directory, name, AtFlags::empty()).is_ok() && one
}

/// Does all the work with a thread for each CPU and gives the first error.
fn in_parallel<T: Sync>(work: &[T], act: impl Fn(&T) -> Result<(), UnpackError> + Sync) -> Result<(), UnpackError> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failed = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            match work.get(i).map(&act) {
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
