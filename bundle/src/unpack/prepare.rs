//! All layers of a package, ready to be mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use distribution::system::{self, AsFd, AtFlags, Mode, OFlags, OwnedFd, openat, statat, unlinkat};
use distribution::{
    Blob, Digest, Image, LayerLock, Missing, Network, Progress, Rules, StagedLayer, Staging, Store, Verified, fetch,
    tree_id,
};

use super::error::{Stop, UnpackError};
use super::merge::{self, add_layer};
use super::notes::Notes;
use super::{Archive, Below, Extracted, Extractor, Order, accept};
use crate::package::Package;

/// Makes a package's files ready to be mounted: every layer fetched that is not here, each unpacked, also while it arrives, all
/// of them merged into one tree, and that tree held. The lock must live as long as the cage that mounts its path. Where the
/// tree is there, this is one look at it.
///
/// # Errors
/// The first error, of several that of the lowest layer; no refused layer becomes visible.
pub fn prepare(
    package: &Package,
    image: &Image,
    store: &Store,
    net: &Network,
    progress: &dyn Fn(Progress),
    by: Extractor<'_>,
) -> Result<LayerLock, UnpackError> {
    let diff_ids: Vec<Digest> = package.layers.iter().map(|(_, diff_id)| diff_id.clone()).collect();
    let tree = tree_id(&diff_ids, package.rules());
    if store.layer(&tree).is_none() {
        let _lease = store.lease()?;
        let unpacking =
            Unpacking { rules: package.rules(), store, by, room: Room::for_each_cpu(), bytes: AtomicU64::new(0) };
        // A layer waits for the disk while the next one is unpacked, and is merged once those below it are.
        thread::scope(|scope| {
            let (tell, told) = channel();
            let tree = &tree;
            let merging = scope.spawn(move || merge_all(tree, package, store, &told));
            let commits = Mutex::new(Vec::new());
            let brought = fetch(image, store, net, progress, |layer| {
                let Some(staged) = unpacking.layer(layer)? else { return Ok(()) };
                let path = staged.dir().to_owned();
                let handle = staged.handle().try_clone_to_owned().map_err(|source| UnpackError::Io { path, source })?;
                commits.lock().expect("no worker panics").push(scope.spawn(move || staged.commit()));
                // Where the merging has failed nobody hears this.
                let _ = tell.send((layer.diff_id.clone(), handle));
                Ok::<_, UnpackError>(())
            });
            drop(tell);
            let merged = merging.join().expect("no merging panics");
            let commits = commits.into_inner().expect("no worker panics");
            let committed = commits.into_iter().map(|commit| commit.join().expect("no commit panics").map(drop));
            let committed = committed.collect::<distribution::Result<()>>();
            brought?;
            let merged = merged?;
            committed?;
            // No tree is seen before its layers.
            merged.map_or(Ok(()), |staged| staged.commit().map(drop))?;
            Ok::<_, UnpackError>(())
        })?;
    }
    Ok(store.hold_layer(&tree)?)
}

/// Merges the layers, the lowest first, to be committed, unless another process is faster. `fresh` gives those that are being
/// brought, once they are unpacked and before they are on the disk.
fn merge_all(
    tree: &Digest,
    package: &Package,
    store: &Store,
    fresh: &Receiver<(Digest, OwnedFd)>,
) -> Result<Option<StagedLayer>, UnpackError> {
    let Staging::Empty(staged) = store.stage_layer(tree)? else { return Ok(None) };
    let failed = |source| UnpackError::Io { path: staged.dir().into(), source };
    let root = staged.handle().try_clone_to_owned().map_err(failed)?;
    let mut handles = BTreeMap::new();
    for (descriptor, diff_id) in &package.layers {
        while !handles.contains_key(diff_id) {
            if let Some(path) = store.layer(diff_id) {
                handles.insert(diff_id.clone(), merge::open(&path).map_err(failed)?);
            } else if let Ok((diff_id, handle)) = fresh.recv() {
                handles.insert(diff_id, handle);
            } else if store.layer(diff_id).is_none() {
                return Err(UnpackError::NoBlob(descriptor.digest.clone()));
            }
        }
        let layer = &handles[diff_id];
        let notes = Notes::read(layer).map_err(failed)?;
        if let (Rules::Strict, Some(what)) = (package.rules(), &notes.departure) {
            return Err(UnpackError::TakenLeniently { layer: diff_id.clone(), what: what.clone() });
        }
        add_layer(layer, &root, &notes).map_err(|stop| match stop {
            Stop::Refused(refusal) => UnpackError::Refused { layer: descriptor.digest.clone(), refusal },
            Stop::Io(error) => failed(error),
        })?;
    }
    Ok(Some(staged))
}

/// The most bytes that one package unpacks.
const MAX_PACKAGE: u64 = 8 << 30;

/// The unpacking of one package.
struct Unpacking<'a> {
    rules: Rules,
    store: &'a Store,
    by: Extractor<'a>,
    room: Room,
    /// What it has unpacked so far.
    bytes: AtomicU64,
}

impl Unpacking<'_> {
    /// Brings and unpacks one layer, to be committed, unless another process is faster. Where there is room it is extracted
    /// while it arrives; what was made of it so is used only where its blob turns out to be the right one.
    fn layer(&self, layer: &Missing<'_>) -> Result<Option<StagedLayer>, UnpackError> {
        let Staging::Empty(staged) = self.store.stage_layer(layer.diff_id)? else {
            self.room.pass();
            return Ok(None);
        };
        let mut rules = self.rules;
        if rules == Rules::Lenient && takes_names_for_one(staged.handle()) {
            // A later name must not replace one that differs from it.
            rules = Rules::Strict;
        }
        let below = if layer.place == 0 { Below::Nothing } else { Below::Layers };
        let order = Order { media_type: layer.descriptor.media_type.clone(), rules, below };
        let (blob, early) = self.bring(layer, &order, &staged)?;
        let extracted = early.unwrap_or_else(|| {
            let _room = self.room.take(layer.turn);
            (self.by)(Archive::Whole(&blob), &order, &staged)
        });
        let unpacked = accept(&blob, layer.diff_id, &staged, extracted)?;
        if self.bytes.fetch_add(unpacked.bytes, Ordering::Relaxed) + unpacked.bytes > MAX_PACKAGE {
            return Err(UnpackError::PackageTooLarge { most: MAX_PACKAGE });
        }
        let diff_id = layer.diff_id;
        tracing::debug!(layer = %diff_id, entries = unpacked.entries, bytes = unpacked.bytes, "unpacked");
        for warning in &unpacked.warnings {
            tracing::warn!(layer = %diff_id, "{warning}");
        }
        Ok(Some(staged))
    }

    /// The blob of a layer, and what was extracted of it on the way where it was fetched and there was room.
    fn bring(
        &self,
        layer: &Missing<'_>,
        order: &Order,
        staged: &StagedLayer,
    ) -> Result<(Verified<Blob>, Option<io::Result<Extracted>>), UnpackError> {
        thread::scope(|scope| {
            let mut early = None;
            let blob = layer.bring(|| {
                let room = self.room.try_take(layer.turn)?;
                let (bytes, copy) = system::large_pipe().ok()?;
                early = Some(scope.spawn(move || {
                    let _room = room;
                    (self.by)(Archive::Arriving(bytes), order, staged)
                }));
                let mut copy = Some(copy);
                Some(move |file: &File, place| {
                    // Whoever reads it may have had enough.
                    if copy.as_ref().is_some_and(|copy| system::pass_on(file, place, copy).is_err()) {
                        copy = None;
                    }
                })
            })?;
            let early = early.map(|extracting| extracting.join().expect("no extractor panics"));
            let asks_for_the_whole = |error: &io::Error| error.kind() == io::ErrorKind::Unsupported;
            Ok((blob, early.filter(|extracted| !extracted.as_ref().is_err_and(asks_for_the_whole))))
        })
    }
}

/// How many layers are unpacked at once: one for each CPU, in their turns, however fast they arrive. The others wait as blobs.
struct Room {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    /// How many have had a place, or need none.
    begun: usize,
    /// The turns of those that wait.
    waiting: BTreeSet<usize>,
}

/// One place, given back when it is dropped.
struct Place<'a>(&'a Room);

impl Room {
    fn for_each_cpu() -> Room {
        let free = thread::available_parallelism().map_or(1, usize::from);
        Room { state: Mutex::new(State { free, begun: 0, waiting: BTreeSet::new() }), changed: Condvar::new() }
    }

    /// A place, where there is one besides those for whose turn is before.
    fn try_take(&self, turn: usize) -> Option<Place<'_>> {
        let mut state = self.state();
        if state.free == 0 || turn >= state.begun + state.free {
            return None;
        }
        state.free -= 1;
        state.begun += 1;
        Some(Place(self))
    }

    /// A place, as soon as nobody waits whose turn is before.
    fn take(&self, turn: usize) -> Place<'_> {
        let mut state = self.state();
        state.waiting.insert(turn);
        let waits = |state: &mut State| state.free == 0 || state.waiting.first() != Some(&turn);
        let mut state = self.changed.wait_while(state, waits).expect("no holder panics");
        state.waiting.remove(&turn);
        state.free -= 1;
        state.begun += 1;
        self.changed.notify_all();
        Place(self)
    }

    /// Takes note of one that needs no place.
    fn pass(&self) {
        self.state().begun += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().free += 1;
        self.0.changed.notify_all();
    }
}

/// Whether the file system takes `A` and `a` for one name in that directory.
pub(super) fn takes_names_for_one(directory: impl AsFd) -> bool {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (name, other) = (c".wh..smcp-case", c".WH..SMCP-CASE");
    let made = openat(&directory, name, flags, Mode::RUSR).is_ok();
    let one = statat(&directory, other, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    made && unlinkat(&directory, name, AtFlags::empty()).is_ok() && one
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(free: usize) -> Room {
        Room { state: Mutex::new(State { free, begun: 0, waiting: BTreeSet::new() }), changed: Condvar::new() }
    }

    #[test]
    fn what_arrives_first_leaves_the_places_to_the_largest() {
        let room = room(2);
        assert!(room.try_take(2).is_none() && room.try_take(3).is_none());
        let second = room.try_take(1).expect("the first has its own");
        let first = room.try_take(0).expect("it was left free");
        assert!(room.try_take(2).is_none(), "none is free");
        drop(second);
        let third = room.try_take(2).expect("its turn");
        assert!(room.try_take(3).is_none());
        drop((first, third));
        assert!(room.try_take(5).is_none(), "two before it have not begun, for two places");
        assert!(room.try_take(4).is_some());
    }

    #[test]
    fn who_waits_gets_a_place_in_turn() {
        let room = room(1);
        let held = room.try_take(0).expect("there is one");
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for turn in [3, 1, 2] {
                let (room, order) = (&room, &order);
                scope.spawn(move || {
                    let _place = room.take(turn);
                    order.lock().unwrap().push(turn);
                });
            }
            while room.state().waiting.len() < 3 {
                thread::yield_now();
            }
            drop(held);
        });
        assert_eq!(order.into_inner().unwrap(), [1, 2, 3]);
        room.pass();
        let state = room.state();
        assert_eq!((state.free, state.begun), (1, 5));
    }
}
