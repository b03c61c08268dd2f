//! Names and what they stood for: one small file each, and the layout's index made from all of them.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Store;
use crate::hub::Stated;
use crate::{Descriptor, Digest, Error, Result, disk, json, layout, lock};

/// How exact the time of use is.
const A_DAY: Duration = Duration::from_secs(24 * 3600);
/// The largest file in `refs/`, in bytes.
const MAX_REF: usize = 64 << 10;

/// What a name stood for when it was last looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// The canonical name.
    pub reference: String,
    /// The index or manifest.
    pub descriptor: Descriptor,
    /// When that was, to the second.
    pub resolved_at: SystemTime,
    /// Who said so.
    pub origin: Origin,
    /// When it was last used or looked up, to the day.
    pub used_at: SystemTime,
    /// What its hub stated of it then, where it has one.
    pub stated: Option<Stated>,
    /// Of what it was made, where it was made here of a source.
    pub made: Option<Made>,
}

/// What is known of the source that a package was made of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Made {
    /// Changes whenever the source does.
    pub fingerprint: String,
    /// Why it could not be looked at again the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Who said what a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Built on this machine: no registry is asked about it unless that is demanded.
    Built,
    /// A registry or layout: asked again after a while.
    Fetched,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AsWritten {
    reference: String,
    descriptor: Descriptor,
    /// Seconds since 1970.
    resolved_at: u64,
    origin: Origin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stated: Option<Stated>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    made: Option<Made>,
}

impl Store {
    /// Gives a name to something built on this machine.
    pub fn remember(&self, name: &str, descriptor: &Descriptor) -> Result<()> {
        self.write_ref(name, descriptor, Origin::Built, None, None)
    }

    /// Gives a name to what was made of a source.
    pub fn remember_made(&self, name: &str, descriptor: &Descriptor, made: Made) -> Result<()> {
        self.write_ref(name, descriptor, Origin::Built, None, Some(made))
    }

    /// Notes something else of the source of what has a name already, which stays as it is and as old as it is.
    pub fn amend(&self, name: &str, made: Made) -> Result<()> {
        let _lock = lock::exclusive(&self.at("locks/refs"))?;
        let Some(known) = self.recall(name)? else { return Ok(()) };
        let Remembered { reference, descriptor, resolved_at, origin, stated, .. } = known;
        let resolved_at = resolved_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let written = AsWritten { reference, descriptor, resolved_at, origin, stated, made: Some(made) };
        let bytes = serde_json::to_vec(&written).expect("strings and numbers always serialise");
        disk::replace(&self.ref_path(name), &bytes, &self.at("tmp"))
    }

    /// Notes what `name` stands for from now on.
    pub(crate) fn remember_as(
        &self,
        name: &str,
        descriptor: &Descriptor,
        origin: Origin,
        stated: Option<&Stated>,
    ) -> Result<()> {
        self.write_ref(name, descriptor, origin, stated, None)
    }

    fn write_ref(
        &self,
        name: &str,
        descriptor: &Descriptor,
        origin: Origin,
        stated: Option<&Stated>,
        made: Option<Made>,
    ) -> Result<()> {
        self.before_writing();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (reference, descriptor, stated) = (name.into(), descriptor.bare(), stated.cloned());
        let written = AsWritten { reference, descriptor, resolved_at: now, origin, stated, made };
        let bytes = serde_json::to_vec(&written).expect("strings and numbers always serialise");
        let _lock = lock::exclusive(&self.at("locks/refs"))?;
        disk::replace(&self.ref_path(name), &bytes, &self.at("tmp"))?;
        self.write_index()
    }

    /// Forgets a name alone; what it held goes with the next `gc`.
    pub(crate) fn unname(&self, name: &str) -> Result<()> {
        let _lock = lock::exclusive(&self.at("locks/refs"))?;
        match fs::remove_file(self.ref_path(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::store("remove", &self.ref_path(name))(e)),
            _ => self.write_index(),
        }
    }

    /// Notes that a name is in use, once a day: a warm start writes nothing else in the store.
    pub(crate) fn used(&self, known: &Remembered) {
        let now = SystemTime::now();
        if now.duration_since(known.used_at).is_ok_and(|age| age < A_DAY) {
            return;
        }
        let touched = fs::File::open(self.ref_path(&known.reference)).and_then(|file| file.set_modified(now));
        if let Err(error) = touched {
            tracing::debug!(%error, "the time of use is not noted");
        }
    }

    /// What `name` stood for; none where it was never seen. Reads one small file.
    pub fn recall(&self, name: &str) -> Result<Option<Remembered>> {
        Ok(read(self.ref_path(name))?.filter(|found| found.reference == name))
    }

    /// All names, sorted.
    pub fn list(&self) -> Result<Vec<Remembered>> {
        let mut all = Vec::new();
        for path in disk::entries(&self.at("refs"))? {
            all.extend(read(path)?);
        }
        all.sort_by(|a, b| a.reference.cmp(&b.reference));
        Ok(all)
    }

    /// Writes the layout's index anew; the caller holds the lock on the names.
    pub(super) fn write_index(&self) -> Result<()> {
        let name = |found: Remembered| layout::named(found.descriptor, &found.reference);
        let entries: Vec<_> = self.list()?.into_iter().map(name).collect();
        layout::write_index(self.root(), &self.at("tmp"), &entries)
    }

    pub(super) fn ref_path(&self, name: &str) -> PathBuf {
        self.at("refs").join(format!("{}.json", Digest::of(name).hex()))
    }
}

/// A file that cannot be understood is as good as none: the name is looked up anew.
fn read(path: PathBuf) -> Result<Option<Remembered>> {
    let read = || -> io::Result<(Vec<u8>, SystemTime)> {
        let mut file = fs::File::open(&path)?;
        let used_at = file.metadata()?.modified()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok((bytes, used_at))
    };
    let (bytes, used_at) = match read() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found.map_err(Error::store("read", &path))?,
    };
    match json::strict::<AsWritten>(&bytes, MAX_REF) {
        Ok(AsWritten { reference, descriptor, resolved_at, origin, stated, made }) => {
            let resolved_at = UNIX_EPOCH.checked_add(Duration::from_secs(resolved_at)).unwrap_or(UNIX_EPOCH);
            Ok(Some(Remembered { reference, descriptor, resolved_at, origin, used_at, stated, made }))
        }
        Err(why) => {
            tracing::warn!(path = %path.display(), why, "not understood, so not used");
            Ok(None)
        }
    }
}
