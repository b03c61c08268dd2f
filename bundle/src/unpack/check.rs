//! Whether the unpacked layers of a store, and the trees that they make together, are still what their archives say: each is made
//! once more beside it, and the two are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};

use distribution::system::{
    AsFd as _, AtFlags, Dir, FileType, Mode, OFlags, OwnedFd, Stat, openat, readlinkat, statat,
};
use distribution::{Descriptor, Digest, Error, Kept, LayerLock, Rules, StagedLayer, Staging, Store, tree_id};

use super::error::{UnpackError, escape};
use super::merge::{self, add_layer};
use super::notes::Notes;
use super::prepare::takes_names_for_one;
use super::{Below, Extractor, Order};
use crate::config::ImageConfig;
use crate::manifest::LABEL;

/// What a look at all of them found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Layers and trees that are as they should be.
    pub good: usize,
    /// Those that nothing could be compared with: no name needs them, or their archives are not in the store.
    pub left_out: usize,
    /// What is wrong, a sentence each. The layer or tree was set aside, so that the next run makes it anew.
    pub findings: Vec<String>,
}

/// Compares every unpacked layer of a store with its archive, and every tree with its layers. As long as this takes nothing is
/// removed from the store.
///
/// # Errors
/// Where the store cannot be read or written. An archive that is refused is no error, but a finding.
pub fn check_trees(store: &Store, by: Extractor<'_>) -> Result<Compared, UnpackError> {
    let _lease = store.lease()?;
    let mut compared = Compared::default();
    let wanted = Wanted::by(store)?;
    let mut bad = BTreeSet::new();
    for (diff_id, ways) in &wanted.layers {
        let Some(held) = hold(store, diff_id)? else { continue };
        match layer(store, diff_id, &held, ways, by)? {
            Found::Good => compared.good += 1,
            Found::Unknown => compared.left_out += 1,
            Found::Differs(what) => {
                bad.insert(diff_id.clone());
                compared.findings.push(format!("layers/{}: {what}", diff_id.hex()));
                store.set_aside(diff_id)?;
            }
        }
    }
    for (id, diff_ids) in &wanted.trees {
        let Some(held) = hold(store, id)? else { continue };
        if diff_ids.iter().any(|diff_id| bad.contains(diff_id)) {
            // It consists of the same files.
            store.set_aside(id)?;
            continue;
        }
        match tree(store, id, &held, diff_ids)? {
            Found::Good => compared.good += 1,
            Found::Unknown => compared.left_out += 1,
            Found::Differs(what) => {
                compared.findings.push(format!("layers/{}: {what}", id.hex()));
                store.set_aside(id)?;
            }
        }
    }
    let known = wanted.layers.keys().chain(wanted.trees.keys()).collect::<BTreeSet<_>>();
    compared.left_out += store.unpacked()?.iter().filter(|id| !known.contains(id)).count();
    Ok(compared)
}

/// What the names of the store need.
#[derive(Default)]
struct Wanted {
    /// Of each layer the archives, and how they may have been unpacked: packages of smcp and other images may share one.
    layers: BTreeMap<Digest, Vec<(Descriptor, Order)>>,
    /// Of each tree its layers, the lowest first.
    trees: BTreeMap<Digest, Vec<Digest>>,
}

impl Wanted {
    fn by(store: &Store) -> Result<Wanted, UnpackError> {
        let mut wanted = Wanted::default();
        for Kept { manifest, config, diff_ids } in store.images()? {
            let labels = ImageConfig::parse(&config.bytes()?).map(|config| config.config.labels).unwrap_or_default();
            let rules = if labels.contains_key(LABEL) { Rules::Strict } else { Rules::Lenient };
            for (place, (descriptor, diff_id)) in manifest.layers.iter().zip(&diff_ids).enumerate() {
                let below = if place == 0 { Below::Nothing } else { Below::Layers };
                let way = (descriptor.clone(), Order { media_type: descriptor.media_type.clone(), rules, below });
                let ways = wanted.layers.entry(diff_id.clone()).or_default();
                if !ways.contains(&way) {
                    ways.push(way);
                }
            }
            wanted.trees.insert(tree_id(&diff_ids, rules), diff_ids);
        }
        Ok(wanted)
    }
}

enum Found {
    Good,
    /// There is nothing to compare it with.
    Unknown,
    /// How.
    Differs(String),
}

fn hold(store: &Store, id: &Digest) -> Result<Option<LayerLock>, UnpackError> {
    match store.hold_layer(id) {
        Ok(held) => Ok(Some(held)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A place for what is made to be compared. The name that it would get is nobody's.
fn scratch(store: &Store, id: &Digest) -> Result<StagedLayer, UnpackError> {
    match store.stage_layer(&Digest::of(format!("what {id} is compared with")))? {
        Staging::Empty(staged) => Ok(staged),
        Staging::Present(path) => {
            Err(UnpackError::Io { path, source: io::Error::other("a layer of that name is never made") })
        }
    }
}

fn layer(
    store: &Store,
    diff_id: &Digest,
    held: &LayerLock,
    ways: &[(Descriptor, Order)],
    by: Extractor<'_>,
) -> Result<Found, UnpackError> {
    let mut found = Found::Unknown;
    for (descriptor, order) in ways {
        let blob = match store.blob(descriptor) {
            Ok(Some(blob)) => blob,
            // Told of where blobs are read.
            Ok(None) | Err(Error::Damaged(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        let staged = scratch(store, diff_id)?;
        let mut order = order.clone();
        if order.rules == Rules::Lenient && takes_names_for_one(staged.handle()) {
            order.rules = Rules::Strict;
        }
        let failed = |source| UnpackError::Io { path: held.path().into(), source };
        match super::unpack(&blob, diff_id, &staged, &order, by) {
            Ok(_) => {}
            Err(error @ UnpackError::Io { .. }) => return Err(error),
            Err(refused) => {
                found = Found::Differs(format!("its archive is refused: {refused}"));
                continue;
            }
        }
        let is = merge::open(held.path()).map_err(failed)?;
        match difference(&is, &staged.handle().try_clone_to_owned().map_err(failed)?, b"").map_err(failed)? {
            None => return Ok(Found::Good),
            Some(what) => found = Found::Differs(what),
        }
    }
    Ok(found)
}

fn tree(store: &Store, id: &Digest, held: &LayerLock, diff_ids: &[Digest]) -> Result<Found, UnpackError> {
    let failed = |source| UnpackError::Io { path: held.path().into(), source };
    let staged = scratch(store, id)?;
    let root = staged.handle().try_clone_to_owned().map_err(failed)?;
    for diff_id in diff_ids {
        let Some(path) = store.layer(diff_id) else { return Ok(Found::Unknown) };
        let layer = merge::open(&path).map_err(failed)?;
        let notes = Notes::read(&layer).map_err(failed)?;
        if let Err(stop) = add_layer(&layer, &root, &notes) {
            return Ok(Found::Differs(format!("its layers make no tree: {stop:?}")));
        }
    }
    let found = difference(&merge::open(held.path()).map_err(failed)?, &root, b"").map_err(failed)?;
    Ok(found.map_or(Found::Good, Found::Differs))
}

/// The first difference of two directories, in words; `path` is where they are, printable. Times and owners do not count, which are
/// the same for all files of a store.
fn difference(is: &OwnedFd, should: &OwnedFd, path: &[u8]) -> io::Result<Option<String>> {
    let (have, want) = (names(is)?, names(should)?);
    let at = |name: &CStr| escape(&join(path, name));
    if let Some(name) = have.symmetric_difference(&want).next() {
        let what = if want.contains(name) { "is missing" } else { "does not belong there" };
        return Ok(Some(format!("`{}` {what}", at(name))));
    }
    for name in &have {
        let about = |directory: &OwnedFd| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let (one, other) = (about(is)?, about(should)?);
        if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) {
            continue;
        }
        if one.st_mode != other.st_mode {
            return Ok(Some(format!("`{}` has the mode {:o}, not {:o}", at(name), one.st_mode, other.st_mode)));
        }
        let same = match FileType::from_raw_mode(one.st_mode) {
            FileType::Directory => {
                let open = |directory: &OwnedFd| openat(directory, name, DIRECTORY, Mode::empty());
                if let Some(deeper) = difference(&open(is)?, &open(should)?, &join(path, name))? {
                    return Ok(Some(deeper));
                }
                true
            }
            FileType::Symlink => readlinkat(is, name, Vec::new())? == readlinkat(should, name, Vec::new())?,
            FileType::RegularFile => same_content(is, should, name, [one, other])?,
            _ => false,
        };
        if !same {
            return Ok(Some(format!("`{}` is not as it was unpacked", at(name))));
        }
    }
    Ok(None)
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn names(directory: &OwnedFd) -> io::Result<BTreeSet<CString>> {
    let mut names = BTreeSet::new();
    for entry in Dir::read_from(directory.as_fd())? {
        let name = entry?.file_name().to_owned();
        if name.as_c_str() != c"." && name.as_c_str() != c".." {
            names.insert(name);
        }
    }
    Ok(names)
}

fn same_content(is: &OwnedFd, should: &OwnedFd, name: &CStr, about: [Stat; 2]) -> io::Result<bool> {
    if about[0].st_size != about[1].st_size {
        return Ok(false);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |directory: &OwnedFd| openat(directory, name, flags, Mode::empty()).map(File::from);
    let (mut one, mut other) = (open(is)?, open(should)?);
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let count = one.read(&mut a)?;
        if count == 0 {
            return Ok(other.read(&mut b)? == 0);
        }
        // It may have become shorter since.
        match other.read_exact(&mut b[..count]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        if a[..count] != b[..count] {
            return Ok(false);
        }
    }
}

/// What is read of a file at once, in bytes.
const PIECE: usize = 64 << 10;

fn join(path: &[u8], name: &CStr) -> Vec<u8> {
    match path {
        b"" => name.to_bytes().to_vec(),
        path => [path, b"/", name.to_bytes()].concat(),
    }
}
