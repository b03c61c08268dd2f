//! Names in a registry: the store's answer where it is fresh, else the registry's, else the store's old one.

use std::time::SystemTime;

use super::{Freshness, Mode, Network, Resolved, Source, choose, suffix};
use crate::registry::{Patience, Repository};
use crate::store::{Origin, Remembered};
use crate::url::{self, Url};
use crate::{Descriptor, Digest, Document, Error, Kind, Name, Reference, Result, Selector, Store};

pub(super) fn resolve(name: &Name, store: &Store, net: &Network) -> Result<Resolved> {
    let place = locate(name, net)?;
    let (descriptor, freshness) = match &place.selector {
        Selector::Digest(digest) => pinned(&place, digest, store, net)?,
        _ => named(&place, store, net)?,
    };
    let get = |child: &Descriptor| match net.mode {
        Mode::Offline => Err(Error::Offline(place.name())),
        _ => Ok(place.open(Patience::Needed).manifest(child.digest.as_str())?.1),
    };
    let (manifest, manifest_descriptor) = choose(&descriptor, store, &net.platform, &get)?;
    Ok(Resolved {
        reference: Reference::Registry(name.clone()).to_string(),
        name: place.name(),
        descriptor,
        manifest,
        manifest_descriptor,
        freshness,
        source: Source::Registry { host: place.host, repository: place.repository },
    })
}

/// A name with everything written out that the configuration adds.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) host: String,
    pub(crate) repository: String,
    pub(crate) selector: Selector,
}

/// Adds the configured registry to a name without one.
///
/// # Errors
/// Where the configured registry is no address of a registry.
pub(crate) fn locate(name: &Name, net: &Network) -> Result<Place> {
    let host = match &name.registry {
        Some(host) => host.clone(),
        None => configured(&net.registry)?,
    };
    Ok(Place { host, repository: name.repository.clone(), selector: name.selector.clone() })
}

impl Place {
    pub(crate) fn name(&self) -> String {
        format!("{}/{}{}", self.host, self.repository, suffix(&self.selector))
    }

    fn open(&self, patience: Patience) -> Repository {
        Repository::new(&self.host, &self.repository, patience)
    }
}

/// The host of `registry_url`, by the scheme that its host calls for.
fn configured(registry: &str) -> Result<String> {
    let wrong = |why| Error::Address { registry: registry.into(), why };
    let scheme = if url::is_loopback(registry) { "http" } else { "https" };
    let text = if registry.contains("://") { registry.into() } else { format!("{scheme}://{registry}") };
    let url = Url::parse(&text).map_err(wrong)?;
    if url.path() != "/" {
        return Err(wrong("a path after the host, where the registry's own must begin"));
    }
    if url.is_secure() == url::is_loopback(url.authority()) {
        return Err(wrong("a registry on this machine is spoken to by plain http"));
    }
    Ok(url.authority().into())
}

/// A digest is an answer in itself: once its manifest is in the store nobody has to be asked.
fn pinned(place: &Place, digest: &Digest, store: &Store, net: &Network) -> Result<(Descriptor, Freshness)> {
    let kept = match store.manifest(digest) {
        Err(Error::Damaged(_)) if net.mode != Mode::Offline => None,
        kept => kept?,
    };
    if let Some(bytes) = kept {
        let document = Document::parse_unannounced(&bytes).map_err(Error::image(digest))?;
        let descriptor = Descriptor::new(document.media_type(), digest.clone(), bytes.len() as u64);
        return Ok((descriptor, Freshness::Cached));
    }
    if net.mode == Mode::Offline {
        return Err(Error::Offline(place.name()));
    }
    let (descriptor, bytes) = place.open(Patience::Needed).manifest(digest.as_str())?;
    store.ingest(&*bytes, &descriptor)?;
    Ok((descriptor, Freshness::Fetched))
}

fn named(place: &Place, store: &Store, net: &Network) -> Result<(Descriptor, Freshness)> {
    let patience = match net.mode {
        Mode::CacheFirst { .. } => Patience::Refresh,
        Mode::Offline | Mode::Refresh => Patience::Needed,
    };
    match store.recall(&place.name())? {
        Some(known) if is_fresh(&known, net.mode) => Ok((known.descriptor, Freshness::Cached)),
        Some(known) => match ask(place, store, patience, Some(&known)) {
            Err(error) if error.kind() == Kind::Resolve => {
                tracing::debug!(%error, "the store's answer has to do");
                Ok((known.descriptor, Freshness::Stale(error.to_string())))
            }
            asked => Ok((asked?, Freshness::Fetched)),
        },
        None if net.mode == Mode::Offline => Err(Error::Offline(place.name())),
        None => Ok((ask(place, store, Patience::Needed, None)?, Freshness::Fetched)),
    }
}

fn is_fresh(known: &Remembered, mode: Mode) -> bool {
    match (mode, known.origin) {
        (Mode::Offline, _) | (Mode::CacheFirst { .. }, Origin::Built) => true,
        // A time in the future is a clock that was set back: as good as none.
        (Mode::CacheFirst { refresh }, Origin::Fetched) => {
            SystemTime::now().duration_since(known.resolved_at).is_ok_and(|age| age <= refresh)
        }
        (Mode::Refresh, _) => false,
    }
}

/// Asks the registry, by HEAD alone where that shows that nothing has changed.
fn ask(place: &Place, store: &Store, patience: Patience, known: Option<&Remembered>) -> Result<Descriptor> {
    let repository = place.open(patience);
    let tag = place.selector.tag().expect("digests are not asked about");
    if let Some(known) = known.filter(|known| store.contains(&known.descriptor)) {
        match repository.digest(&tag) {
            Ok(Some(now)) if now == known.descriptor.digest => return Ok(known.descriptor.clone()),
            Err(unreached @ Error::Network { .. }) => return Err(unreached),
            _ => {}
        }
    }
    let (descriptor, bytes) = match repository.manifest(&tag) {
        Err(missing @ Error::NotFound { .. }) if place.selector == Selector::Latest => {
            let release = highest_release(repository.tags()?).ok_or(missing)?;
            repository.manifest(&release)?
        }
        asked => asked?,
    };
    store.ingest(&*bytes, &descriptor)?;
    Ok(descriptor)
}

/// The highest semantic version that is no pre-release.
fn highest_release(tags: Vec<String>) -> Option<String> {
    tags.into_iter().filter_map(|tag| Some((release(&tag)?, tag))).max().map(|(_, tag)| tag)
}

fn release(tag: &str) -> Option<[u64; 3]> {
    let text = tag.strip_prefix('v').unwrap_or(tag);
    let core = text.split(['+', '_']).next()?;
    let mut numbers = core.split('.').map(|part| match part.as_bytes() {
        [b'0', _, ..] => None,
        digits if digits.iter().all(u8::is_ascii_digit) => part.parse().ok(),
        _ => None,
    });
    let version = [numbers.next()??, numbers.next()??, numbers.next()??];
    numbers.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn latest_is_the_highest_release() {
        let tags = ["1.9.0", "1.10.0", "2.0.0-rc.1", "v1.10.1", "nightly", "1.99", "01.99.0", "3.0.0.0", "0.1.0_b2"];
        assert_eq!(highest_release(tags.map(Into::into).into()).as_deref(), Some("v1.10.1"));
        assert_eq!(highest_release(vec!["latest-dev".into(), "2.0.0-a".into()]), None);
    }

    #[test]
    fn how_long_an_answer_is_good() {
        let hour = Duration::from_secs(3600);
        let first = Mode::CacheFirst { refresh: hour };
        let now = SystemTime::now();
        for (resolved_at, origin, mode, want) in [
            (now, Origin::Fetched, first, true),
            (now - 2 * hour, Origin::Fetched, first, false),
            (now + 2 * hour, Origin::Fetched, first, false),
            (now - 2 * hour, Origin::Built, first, true),
            (now - 2 * hour, Origin::Fetched, Mode::Offline, true),
            (now, Origin::Fetched, Mode::Refresh, false),
            (now, Origin::Built, Mode::Refresh, false),
        ] {
            let descriptor = Descriptor::new("", Digest::of(""), 0);
            let known = Remembered { reference: "x".into(), descriptor, resolved_at, origin };
            assert_eq!(is_fresh(&known, mode), want, "{origin:?} {mode:?} {resolved_at:?}");
        }
    }

    #[test]
    fn registry_url() {
        for (text, want) in [
            ("https://registry.mcp-hub.info", Some("registry.mcp-hub.info")),
            ("https://Registry.example:8443/", Some("registry.example:8443")),
            ("registry.example", Some("registry.example")),
            ("http://localhost:5000", Some("localhost:5000")),
            ("localhost:5000", Some("localhost:5000")),
            ("http://registry.example", None),
            ("https://registry.example/v2", None),
            ("https://localhost:5000", None),
            ("ftp://x", None),
            ("", None),
        ] {
            assert_eq!(configured(text).ok().as_deref(), want, "{text}");
        }
    }
}
