//! Where the documents about a package come from: its registry or layout, the store's copy of what was listed, and what was seen before.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distribution::{
    Attachment, Attachments, Digest, Error, Freshness, Kind, Mode, Network, Origin, Resolved, Result, Source, Store,
    attachments, json,
};
use jiff::Timestamp;
use tempfile::NamedTempFile;

use super::verify::{Outcome, Signers, read, verify};
use crate::evidence::{Evidence, Listing, Rejected};

/// The largest file of what was seen before, in bytes.
const MAX_MEMORY: usize = 32 << 20;

/// Whose word is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Trust<'a> {
    /// Of these.
    pub signers: Signers<'a>,
    /// A directory of the user's state: for each digest the newest that was seen of each signer.
    pub memory: &'a Path,
    /// The time.
    pub now: Timestamp,
}

/// All that is known of an image, of its index and of its manifest. Asks no registry where a recent answer is in the store, and reads
/// nothing where nobody's word counts.
///
/// What was seen once is remembered: an older certification does not take its place, and a revocation that is no longer listed stays.
///
/// # Errors
/// Where the store or the memory cannot be read or written, and where there is more than can be judged: whoever may put something
/// beside an image could hide a revocation in it. That nothing can be listed is no error, but [`Listing::Unavailable`].
pub fn look_up(resolved: &Resolved, store: &Store, net: &Network, trust: &Trust<'_>) -> Result<Outcome> {
    if trust.signers.is_empty() {
        return Ok(Outcome { evidence: Evidence::none(), others: Vec::new(), newest: Vec::new() });
    }
    let mut about = vec![resolved.descriptor.digest.clone()];
    about.extend(Some(&resolved.manifest_descriptor.digest).filter(|digest| **digest != about[0]).cloned());
    let (listed, listing) = list(resolved, &about, store, net, trust.now)?;
    let memory: Vec<_> = about.iter().map(|digest| Memory::read(trust.memory, digest)).collect::<Result<_>>()?;
    let mut items = BTreeSet::new();
    let mut left_out = Vec::new();
    for list in listed {
        items.extend(list.found);
        left_out.extend(list.left_out.into_iter().map(|(what, why)| Rejected { what, why }));
    }
    // Of keys that are not at hand nothing is remembered aloud.
    let seen = memory.iter().flat_map(|memory| &memory.seen).filter(|item| read(&about, item, &trust.signers).is_ok());
    items.extend(seen.cloned());
    let items: Vec<_> = items.into_iter().collect();
    let mut outcome = verify(&about, &items, &trust.signers, trust.now, listing);
    outcome.evidence.rejected.extend(left_out);
    for memory in memory {
        memory.keep(&outcome.newest, &about, &trust.signers)?;
    }
    Ok(outcome)
}

/// What lies beside each digest, and whether that is all.
fn list(
    resolved: &Resolved,
    about: &[Digest],
    store: &Store,
    net: &Network,
    now: Timestamp,
) -> Result<(Vec<Attachments>, Listing)> {
    let ask = || about.iter().map(|digest| attachments(resolved, digest, net)).collect::<Result<Vec<_>>>();
    if let Source::Layout(_) = resolved.source {
        // It is the truth itself, and here.
        return Ok(match ask() {
            Ok(all) => (all, Listing::Complete),
            Err(why) if why.kind() == Kind::Verification => return Err(why),
            Err(why) => (Vec::new(), Listing::Unavailable(why.to_string())),
        });
    }
    let kept: Option<Vec<_>> = about.iter().map(|digest| store.attachments(digest)).collect::<Result<_>>()?;
    let built = || Ok::<_, Error>(store.recall(&resolved.name)?.is_some_and(|known| known.origin == Origin::Built));
    if kept.is_none() && net.mode != Mode::Refresh && built()? {
        return Ok((Vec::new(), Listing::Complete));
    }
    let from_the_store = |kept: Vec<Attachments>| {
        let oldest = kept.iter().map(|list| list.listed_at).min().unwrap_or_default();
        let at = Timestamp::from_second(i64::try_from(oldest).unwrap_or(i64::MAX)).unwrap_or(Timestamp::UNIX_EPOCH);
        (kept, Listing::Cached(at))
    };
    let refused = match (&resolved.freshness, kept.as_deref()) {
        (_, Some(kept)) if is_fresh(kept, net.mode, now) => None,
        (Freshness::Stale(why), Some(_)) => Some(why.clone()),
        _ => match ask() {
            Ok(all) => {
                about.iter().zip(&all).try_for_each(|(digest, list)| store.keep_attachments(digest, list))?;
                return Ok((all, Listing::Complete));
            }
            Err(why) if why.kind() == Kind::Verification => return Err(why),
            Err(why) => Some(why.to_string()),
        },
    };
    Ok(match (kept, refused) {
        (Some(kept), why) => {
            tracing::debug!(why, "signatures and attestations are those of the store");
            from_the_store(kept)
        }
        (None, why) => (Vec::new(), Listing::Unavailable(why.unwrap_or_default())),
    })
}

/// As long as the name itself would be taken from the store. A time in the future is a clock that was set back: as good as none.
fn is_fresh(kept: &[Attachments], mode: Mode, now: Timestamp) -> bool {
    let age =
        |list: &Attachments| u64::try_from(now.as_second()).ok()?.checked_sub(list.listed_at).map(Duration::from_secs);
    match mode {
        Mode::Offline => true,
        Mode::Refresh => false,
        Mode::CacheFirst { refresh } => kept.iter().all(|list| age(list).is_some_and(|age| age <= refresh)),
    }
}

/// What was seen before about one digest: of each signer the newest certification and the newest revocation.
struct Memory {
    path: PathBuf,
    digest: Digest,
    seen: Vec<Attachment>,
}

impl Memory {
    fn read(dir: &Path, digest: &Digest) -> Result<Self> {
        let path = dir.join(format!("{}.json", digest.hex()));
        let mut bytes = Vec::new();
        let seen = match fs::File::open(&path).and_then(|file| file.take(MAX_MEMORY as u64 + 1).read_to_end(&mut bytes))
        {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(Error::Store { action: "read", path, source }),
            // Without it an old word could pass for the newest.
            Ok(_) => json::strict(&bytes, MAX_MEMORY).map_err(|why| Error::Unusable { path: path.clone(), why })?,
        };
        Ok(Self { path, digest: digest.clone(), seen })
    }

    /// Takes in the newest of now. What was seen of a key that is not at hand stays.
    fn keep(self, newest: &[(Digest, Attachment)], about: &[Digest], signers: &Signers<'_>) -> Result<()> {
        let foreign = self.seen.iter().filter(|item| read(about, item, signers).is_err()).cloned();
        let own = newest.iter().filter(|(digest, _)| *digest == self.digest).map(|(_, item)| item.clone());
        let kept: BTreeSet<_> = foreign.chain(own).collect();
        if kept.iter().eq(&self.seen) {
            return Ok(());
        }
        let failed = |source| Error::Store { action: "write", path: self.path.clone(), source };
        write(&self.path, &serde_json::to_vec(&kept).expect("strings always serialise")).map_err(failed)
    }
}

/// In one step, on the disk before it is seen, for its owner alone.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use distribution::system::DirBuilderExt as _;
    let dir = path.parent().unwrap_or(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut file = NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map(drop).map_err(|failed| failed.error)
}
