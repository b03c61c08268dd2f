//! Brings what an image needs into the store: its configuration, and the layers that are neither packed nor unpacked
//! there yet.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::source::open_blob;
use crate::store::{Blob, Lease, Origin, Verified};
use crate::{
    Descriptor, Digest, Error, Freshness, MAX_CONFIG, Mode, Network, Resolved, Result, Source, Store, media_type,
    rootfs,
};

/// Layers that are worked on at once: while some are unpacked, or wait for their turn to be, others arrive.
const AT_ONCE: usize = 6;
/// The largest packed layer, in bytes.
const MAX_LAYER: u64 = 4 << 30;

/// Brings the configuration of an image into the store: what it is can be judged before its layers are fetched.
///
/// # Errors
/// As [`crate::resolve`].
pub fn configure(resolved: &Resolved, store: &Store, net: &Network) -> Result<Image> {
    let origin = Fetcher { resolved, store, net };
    let manifest = &resolved.manifest;
    check_kinds(resolved)?;
    let config = match store.blob(&manifest.config) {
        Ok(Some(kept)) => kept,
        // Without a network a damaged one is the news, not that it cannot be fetched.
        Err(damaged @ Error::Damaged(_)) if net.mode == Mode::Offline => return Err(damaged),
        Ok(None) | Err(Error::Damaged(_)) => origin.bring(&manifest.config, &|_| (), nobody)?,
        Err(other) => return Err(other),
    };
    let diff_ids = layers_of(resolved, &config)?;
    Ok(Image { resolved: resolved.clone(), config, layers: manifest.layers.clone(), diff_ids })
}

/// Does `each` for every layer of an image that is not unpacked in the store: the largest first, since it decides how long
/// everything takes, and six at once. After an error nothing new is begun.
///
/// Where nothing is missing there is no connection and no thread.
///
/// # Errors
/// Those of `each`; of several, that of the lowest layer.
pub fn fetch<E: From<Error> + Send>(
    image: &Image,
    store: &Store,
    net: &Network,
    progress: &dyn Fn(Progress),
    each: impl Fn(&Missing<'_>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let mut seen = BTreeSet::new();
    let unpacked = |diff_id: &Digest| store.layer(diff_id).is_some();
    let layers = image.layers.iter().zip(&image.diff_ids).enumerate();
    let mut missing: Vec<_> = layers.filter(|(_, (_, diff_id))| seen.insert(*diff_id) && !unpacked(diff_id)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort_by_key(|(_, (layer, _))| std::cmp::Reverse(layer.size));
    let absent: Vec<_> = missing.iter().filter(|(_, (layer, _))| !store.contains(layer)).collect();
    if !absent.is_empty() {
        let bytes = absent.iter().map(|(_, (layer, _))| layer.size).sum();
        progress(Progress::Planned { layers: absent.len(), bytes });
    }
    let origin = Fetcher { resolved: &image.resolved, store, net };
    let next = AtomicUsize::new(0);
    let worker = |tell: Sender<Progress>| {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let (place, (descriptor, diff_id)) = missing.get(turn)?;
            let tell = |step| drop(tell.send(step));
            let layer = Missing { place: *place, turn, descriptor, diff_id, origin: &origin, tell: &tell };
            if let Err(error) = each(&layer) {
                // The others finish what they have begun.
                next.store(missing.len(), Ordering::Relaxed);
                return Some((*place, error));
            }
        }
    };
    let (tell, told) = channel();
    let failed = thread::scope(|scope| {
        let begin = |_| {
            let tell = tell.clone();
            scope.spawn(|| worker(tell))
        };
        let workers: Vec<_> = (0..AT_ONCE.min(missing.len())).map(begin).collect();
        drop(tell);
        told.iter().for_each(progress);
        let ended = workers.into_iter().filter_map(|worker| worker.join().expect("a worker does not panic"));
        ended.min_by_key(|(place, _)| *place)
    });
    failed.map_or(Ok(()), |(_, error)| Err(error))
}

/// A layer of an image that is not unpacked in the store.
pub struct Missing<'a> {
    /// Its place among the image's layers, 0 for the lowest.
    pub place: usize,
    /// How many are begun before it.
    pub turn: usize,
    /// Its blob.
    pub descriptor: &'a Descriptor,
    /// The digest of its content.
    pub diff_id: &'a Digest,
    origin: &'a Fetcher<'a>,
    tell: &'a dyn Fn(Progress),
}

impl Missing<'_> {
    /// Its blob, which is fetched where the store does not have it. Two processes that want the same blob fetch it once.
    ///
    /// Where it is fetched, `begin` is asked for somebody who follows: who is told of each piece that has arrived, by the file
    /// that it is in and its place there, and is dropped at the end, also where that came too early. These are bytes that
    /// nobody has compared with anything: whatever is made of them counts only once this has given the blob.
    ///
    /// # Errors
    /// As [`crate::resolve`].
    pub fn bring<F: FnMut(&File, Range<u64>)>(&self, begin: impl FnOnce() -> Option<F>) -> Result<Verified<Blob>> {
        self.origin.bring(self.descriptor, self.tell, begin)
    }

    /// The same, and nobody follows.
    ///
    /// # Errors
    /// As [`crate::resolve`].
    pub fn bring_whole(&self) -> Result<Verified<Blob>> {
        self.origin.bring(self.descriptor, self.tell, nobody)
    }
}

fn nobody() -> Option<fn(&File, Range<u64>)> {
    None
}

/// An image on its way into the store. Nothing of it is removed by others meanwhile, and nothing of it stays where it is
/// dropped before [`Pending::keep`], unless a name holds it already.
#[derive(Debug)]
pub struct Pending<'a> {
    store: &'a Store,
    resolved: &'a Resolved,
    lease: Option<Lease>,
    kept: bool,
}

impl<'a> Pending<'a> {
    /// For an image that is about to be fetched.
    ///
    /// # Errors
    /// Where the store cannot be locked.
    pub fn new(resolved: &'a Resolved, store: &'a Store) -> Result<Self> {
        Ok(Self { store, resolved, lease: Some(store.lease()?), kept: false })
    }

    /// All of it is there and found good: remembers its name, unless the store has it so already.
    ///
    /// # Errors
    /// Where the store cannot be written.
    pub fn keep(mut self) -> Result<()> {
        remember(self.resolved, self.store)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.lease = None;
        if !self.kept
            && let Err(error) = self.store.forget(&self.resolved.descriptor)
        {
            tracing::warn!(%error, "parts of a package that was refused stay in the store");
        }
    }
}

/// An image whose configuration is in the store.
#[derive(Debug)]
pub struct Image {
    /// What it was resolved to.
    pub resolved: Resolved,
    /// The image configuration.
    pub config: Verified<Blob>,
    /// Packed layers, lowest first; one that is unpacked already may be missing as a blob.
    pub layers: Vec<Descriptor>,
    /// Digests of the unpacked layers' tar streams, one for each of `layers`.
    pub diff_ids: Vec<Digest>,
}

/// What happens during [`fetch`], for whoever shows it; always told on the caller's thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// So much is going to be fetched.
    Planned {
        /// Layers.
        layers: usize,
        /// Bytes of all of them.
        bytes: u64,
    },
    /// A layer is being fetched.
    Started {
        /// Its digest.
        digest: Digest,
        /// Its size in bytes.
        size: u64,
    },
    /// More of it has arrived.
    Received {
        /// Its digest.
        digest: Digest,
        /// Bytes since the last time.
        bytes: u64,
    },
    /// It is in the store.
    Done {
        /// Its digest.
        digest: Digest,
    },
}

struct Fetcher<'a> {
    resolved: &'a Resolved,
    store: &'a Store,
    net: &'a Network,
}

impl Fetcher<'_> {
    /// Fetches one blob unless another process does so meanwhile, or the store has it and it is whole.
    fn bring<F: FnMut(&File, Range<u64>)>(
        &self,
        want: &Descriptor,
        tell: &dyn Fn(Progress),
        begin: impl FnOnce() -> Option<F>,
    ) -> Result<Verified<Blob>> {
        let digest = &want.digest;
        let _turn = self.store.lock_blob(digest)?;
        if self.store.contains(want) {
            match self.store.blob(want) {
                Ok(Some(blob)) => return Ok(blob),
                Ok(None) => {}
                // Without a network a damaged one is the news, not that it cannot be fetched.
                Err(Error::Damaged(_)) if self.net.mode != Mode::Offline => {}
                Err(error) => return Err(error),
            }
        }
        tell(Progress::Started { digest: digest.clone(), size: want.size });
        let received = |bytes| tell(Progress::Received { digest: digest.clone(), bytes });
        let take_in = |reader: &mut dyn Read| {
            let mut follower = begin();
            let follow = |file: &File, place: Range<u64>| {
                if let Some(follow) = &mut follower {
                    follow(file, place);
                }
            };
            self.store.ingest_followed(
                Counted { reader, tell: &received, untold: 0, told: Instant::now() },
                want,
                follow,
            )
        };
        let blob = match &self.resolved.source {
            Source::Layout(dir) => take_in(&mut open_blob(dir, want)?),
            Source::Registry { .. } if self.net.mode == Mode::Offline => {
                Err(Error::Offline(self.resolved.reference.clone()))
            }
            Source::Registry { host, repository } => {
                take_in(&mut self.resolved.way.to(host, repository, self.net).blob(want)?)
            }
        };
        tell(Progress::Done { digest: digest.clone() });
        blob
    }
}

/// Tells how much is read: a mebibyte at once, or what there is every tenth of a second.
struct Counted<'a, R> {
    reader: R,
    tell: &'a dyn Fn(u64),
    untold: u64,
    told: Instant,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.untold += count as u64;
        if self.untold >= 1 << 20 || count == 0 || self.told.elapsed() >= Duration::from_millis(100) {
            (self.tell)(std::mem::take(&mut self.untold));
            self.told = Instant::now();
        }
        Ok(count)
    }
}

/// Only images are fetched, and no layer that could not be unpacked anyway.
fn check_kinds(resolved: &Resolved) -> Result<()> {
    let config = &resolved.manifest.config;
    let refused = |what: &Descriptor, why: String| Err(Error::Verification { what: what.digest.to_string(), why });
    if !media_type::is_config(&config.media_type) {
        return refused(config, format!("{:?} is not the configuration of an image", config.media_type));
    }
    if config.size > MAX_CONFIG as u64 {
        return refused(config, format!("a configuration of {} bytes, at most {MAX_CONFIG} are read", config.size));
    }
    match resolved.manifest.layers.iter().find(|layer| layer.size > MAX_LAYER) {
        Some(layer) => refused(layer, format!("a layer of {} bytes, at most {MAX_LAYER} are read", layer.size)),
        None => Ok(()),
    }
}

fn layers_of(resolved: &Resolved, config: &Verified<Blob>) -> Result<Vec<Digest>> {
    let what = || resolved.manifest.config.digest.to_string();
    let diff_ids = rootfs::diff_ids(&config.bytes()?).map_err(|why| Error::Verification { what: what(), why })?;
    let (layers, named) = (resolved.manifest.layers.len(), diff_ids.len());
    if layers == named {
        return Ok(diff_ids);
    }
    Err(Error::Verification { what: what(), why: format!("it names {named} layers, the manifest has {layers}") })
}

/// Notes the name, unless the store has it so already.
fn remember(resolved: &Resolved, store: &Store) -> Result<()> {
    let known = if resolved.freshness == Freshness::Fetched { None } else { store.recall(&resolved.name)? };
    match (known, &resolved.freshness) {
        (Some(known), _) => store.used(&known),
        // Asked again at the next start.
        (None, Freshness::Stale(_)) => {}
        (None, _) => {
            store.remember_as(&resolved.name, &resolved.descriptor, Origin::Fetched, resolved.stated.as_ref())?;
        }
    }
    Ok(())
}
