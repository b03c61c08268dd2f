//! Names in a registry: the store's answer where it is fresh, else the registry's, else the store's old one.

use std::time::SystemTime;

use super::{Freshness, Mode, Network, Resolved, Source, Way, choose, suffix};
use crate::hub::{Hub, Stated};
use crate::registry::{Patience, Sources};
use crate::store::{Origin, Remembered};
use crate::url::Url;
use crate::{Access, Descriptor, Digest, Document, Error, Kind, Name, Reference, Result, Selector, Store};

pub(super) fn resolve(name: &Name, store: &Store, net: &Network) -> Result<Resolved> {
    let place = locate(name, net)?;
    let way = Way::default();
    let Found { descriptor, freshness, stated } = match &place.selector {
        Selector::Digest(digest) => pinned(&place, digest, store, net, &way)?,
        _ => named(&place, store, net, &way)?,
    };
    let get = |child: &Descriptor| match net.mode {
        Mode::Offline => Err(Error::Offline(place.name())),
        _ => Ok(way.to(&place.host, &place.repository, net).manifest(child.digest.as_str())?.1),
    };
    let (manifest, manifest_descriptor) = choose(&descriptor, store, &net.platform, &get)?;
    Ok(Resolved {
        reference: Reference::Registry(name.clone()).to_string(),
        name: place.name(),
        descriptor,
        manifest,
        manifest_descriptor,
        freshness,
        stated,
        source: Source::Registry { host: place.host, repository: place.repository },
        way,
    })
}

/// What a name or digest stands for.
struct Found {
    descriptor: Descriptor,
    freshness: Freshness,
    stated: Option<Stated>,
}

impl Found {
    fn fetched((descriptor, stated): (Descriptor, Option<Stated>)) -> Found {
        Found { descriptor, freshness: Freshness::Fetched, stated }
    }

    fn kept(known: Remembered, freshness: Freshness) -> Found {
        Found { descriptor: known.descriptor, freshness, stated: known.stated }
    }
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
        None => registry_host(&net.registry, &net.access)?,
    };
    Ok(Place { host, repository: name.repository.clone(), selector: name.selector.clone() })
}

impl Place {
    pub(crate) fn name(&self) -> String {
        format!("{}/{}{}", self.host, self.repository, suffix(&self.selector))
    }
}

/// The host of a registry as it is typed or configured, by the scheme that its host calls for.
///
/// # Errors
/// Where it is no address of a registry.
pub fn registry_host(registry: &str, access: &Access) -> Result<String> {
    let wrong = |why| Error::Address { registry: registry.into(), why };
    let scheme = if access.is_secure(&registry.to_ascii_lowercase()) { "https" } else { "http" };
    let text = if registry.contains("://") { registry.into() } else { format!("{scheme}://{registry}") };
    let url = Url::parse(&text, access).map_err(wrong)?;
    if url.path() != "/" {
        return Err(wrong("a path after the host, where the registry's own must begin"));
    }
    match (access.is_secure(url.authority()), url.is_secure()) {
        (true, false) => Err(wrong("plain http, where https is configured")),
        (false, true) => Err(wrong("a registry on this machine is spoken to by plain http")),
        _ => Ok(url.authority().into()),
    }
}

/// A digest is an answer in itself: once its manifest is in the store nobody has to be asked.
fn pinned(place: &Place, digest: &Digest, store: &Store, net: &Network, way: &Way) -> Result<Found> {
    let kept = match store.manifest(digest) {
        Err(Error::Damaged(_)) if net.mode != Mode::Offline => None,
        kept => kept?,
    };
    if let Some(bytes) = kept {
        let document = Document::parse_unannounced(&bytes).map_err(Error::image(digest))?;
        let descriptor = Descriptor::new(document.media_type(), digest.clone(), bytes.len() as u64);
        return Ok(Found { descriptor, freshness: Freshness::Cached, stated: None });
    }
    // A hub's digest is not the image's that was made of it: the name tells.
    if let Some(known) = store.recall(&place.name())?.filter(|known| store.contains(&known.descriptor)) {
        return Ok(Found::kept(known, Freshness::Cached));
    }
    if net.mode == Mode::Offline {
        return Err(Error::Offline(place.name()));
    }
    let sources = way.to(&place.host, &place.repository, net);
    let found = or_hub(place, store, sources, net, None, || {
        let (descriptor, bytes) = sources.manifest(digest.as_str())?;
        store.ingest(&*bytes, &descriptor).map(|_| descriptor)
    })?;
    Ok(Found::fetched(found))
}

fn named(place: &Place, store: &Store, net: &Network, way: &Way) -> Result<Found> {
    let Some(known) = store.recall(&place.name())? else {
        if net.mode == Mode::Offline {
            return Err(Error::Offline(place.name()));
        }
        let sources = way.to(&place.host, &place.repository, net);
        return ask(place, store, sources, net, None).map(Found::fetched);
    };
    if is_fresh(&known, net.mode) {
        return Ok(Found::kept(known, Freshness::Cached));
    }
    let asked = match net.mode {
        // Nobody waits long for what the store has an answer to.
        Mode::CacheFirst { .. } => {
            let hasty = Sources::new(&place.host, &place.repository, &net.access, Patience::Refresh);
            ask(place, store, &hasty, net, Some(&known))
        }
        _ => ask(place, store, way.to(&place.host, &place.repository, net), net, Some(&known)),
    };
    match asked {
        Err(error) if error.kind() == Kind::Resolve => {
            tracing::debug!(%error, "the store's answer has to do");
            Ok(Found::kept(known, Freshness::Stale(error.to_string())))
        }
        Err(withdrawn @ Error::Withdrawn { .. }) => {
            // Not by `--offline` either.
            store.unname(&place.name())?;
            Err(withdrawn)
        }
        asked => asked.map(Found::fetched),
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

/// Asks the registry in either of the languages that there are.
fn ask(
    place: &Place,
    store: &Store,
    sources: &Sources,
    net: &Network,
    known: Option<&Remembered>,
) -> Result<(Descriptor, Option<Stated>)> {
    or_hub(place, store, sources, net, known, || ask_registry(place, store, sources, known))
}

/// Where a registry has nothing, and does not speak the distribution specification at all, it may be a hub.
fn or_hub(
    place: &Place,
    store: &Store,
    sources: &Sources,
    net: &Network,
    known: Option<&Remembered>,
    ask: impl FnOnce() -> Result<Descriptor>,
) -> Result<(Descriptor, Option<Stated>)> {
    match ask() {
        Err(missing @ (Error::NotFound { .. } | Error::Unauthorized { .. })) => {
            match Hub::of(&place.host, &place.repository, net).filter(|_| !sources.speak_distribution()) {
                Some(hub) => hub.image(&place.selector, known.map(|known| &known.descriptor), store, net),
                None => Err(missing),
            }
        }
        asked => Ok((asked?, None)),
    }
}

/// By HEAD alone where that shows that nothing has changed.
fn ask_registry(place: &Place, store: &Store, sources: &Sources, known: Option<&Remembered>) -> Result<Descriptor> {
    let tag = place.selector.tag().expect("digests are not asked about");
    if let Some(known) = known.filter(|known| store.contains(&known.descriptor)) {
        match sources.digest(&tag) {
            Ok(Some(now)) if now == known.descriptor.digest => return Ok(known.descriptor.clone()),
            // A GET would fare no better.
            Err(
                away @ (Error::Network { .. } | Error::Unreachable { .. } | Error::Status { status: 429 | 500.., .. }),
            ) => {
                return Err(away);
            }
            _ => {}
        }
    }
    let (descriptor, bytes) = match sources.manifest(&tag) {
        Err(missing @ Error::NotFound { .. }) if place.selector == Selector::Latest => {
            let release = highest_release(sources.tags()?).ok_or(missing)?;
            sources.manifest(&release)?
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
            let known = Remembered {
                reference: "x".into(),
                descriptor,
                resolved_at,
                origin,
                used_at: now,
                stated: None,
                made: None,
            };
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
            assert_eq!(registry_host(text, &Access::default()).ok().as_deref(), want, "{text}");
        }
    }
}
