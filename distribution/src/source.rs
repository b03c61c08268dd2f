//! From a reference to the manifest of an image: the store first, and a registry only where that is needed.

mod layout;
mod made;
mod remote;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::hub::Stated;
use crate::registry::{Patience, Sources};
use crate::{
    Access, Descriptor, Document, Error, ImageManifest, Packages, Platform, Reference, Result, Selector, Store,
    platform,
};

pub(crate) use layout::{open_blob, read_manifest};
pub use remote::registry_host;
pub(crate) use remote::{Place, locate};

/// How deep an index may lie in another.
const MAX_NESTING: u32 = 2;

/// Finds out which image a reference stands for on this platform.
///
/// A name that was looked up within [`Mode::CacheFirst`]'s time, a name built here, and a digest whose manifest is in
/// the store need no connection at all.
///
/// # Errors
/// Of kind `Resolve` where there is no such image or no way to it, `Verification` where what is delivered is not what
/// was promised.
pub fn resolve(reference: &Reference, store: &Store, net: &Network) -> Result<Resolved> {
    match reference {
        Reference::Registry(name) => remote::resolve(name, store, net),
        Reference::OciLayout(place) => layout::resolve(place, store, net),
        Reference::Npm(_)
        | Reference::Pypi(_)
        | Reference::Mcp(_)
        | Reference::Directory(_)
        | Reference::Mcpb(_)
        | Reference::Download(_) => made::resolve(reference, store, net),
    }
}

/// The name under which the store remembers a reference: registry and tag are always written out.
///
/// What is made on this machine of a source has the source's name, with what it is made by.
///
/// # Errors
/// Where nothing is made of the reference, the configured registry is no address, or settings cannot be read.
pub fn canonical(reference: &Reference, net: &Network) -> Result<String> {
    match reference {
        Reference::Registry(name) => remote::locate(name, net).map(|place| place.name()),
        Reference::OciLayout(place) => layout::canonical(place),
        source => made::canonical(source, net),
    }
}

/// The part of a name that all versions of a package share: the repository with its registry, or the layout, which may hold
/// several packages.
///
/// # Errors
/// As [`canonical`], and where a layout is not there.
pub fn family(reference: &Reference, net: &Network) -> Result<String> {
    match reference {
        Reference::Registry(name) => {
            remote::locate(name, net).map(|place| format!("{}/{}", place.host, place.repository))
        }
        Reference::OciLayout(place) => layout::family(place),
        source => made::family(source, net),
    }
}

/// Where packages come from, and whether to go there.
#[derive(Debug, Clone)]
pub struct Network {
    /// The registry of names without one: a url or `HOST[:PORT]`.
    pub registry: String,
    /// When to ask it.
    pub mode: Mode,
    /// The platform to fetch for.
    pub platform: Platform,
    /// How registries are reached, and as whom.
    pub access: Arc<Access>,
    /// What packages of sources are made by.
    pub making: Making,
}

/// What decides, beside the name of a source, what is made of it.
#[derive(Debug, Clone, Default)]
pub struct Making {
    /// Where npm's and python's packages are from.
    pub packages: Arc<Packages>,
    /// The registry that `mcp:` names are looked up in, a url; without one [`crate::MCP_REGISTRY`].
    pub servers: Option<String>,
    /// Which kind of package of a server of that registry: `npm`, `pypi`, `oci` or `mcpb`; the first that runs without.
    pub kind: Option<String>,
    /// Which program of the package is the server.
    pub bin: Option<String>,
    /// Packages whose install scripts are run, by their names, sorted.
    pub scripts: Vec<String>,
    /// What it is run by.
    pub runtime: Runtime,
}

/// What a package of an interpreted language is run by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// The usual one of its language, which it brings along: node, or CPython.
    #[default]
    Own,
    /// The interpreter of this machine.
    Host,
    /// bun, which a package of npm brings along.
    Bun,
    /// deno, which a package of npm brings along.
    Deno,
}

impl Runtime {
    /// The word of `--runtime`; none of what is usual.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Runtime::Own => None,
            Runtime::Host => Some("host"),
            Runtime::Bun => Some("bun"),
            Runtime::Deno => Some("deno"),
        }
    }
}

impl Network {
    /// For the platform that this program runs on, as nobody in particular.
    pub fn new(registry: impl Into<String>, mode: Mode) -> Self {
        Self {
            registry: registry.into(),
            mode,
            platform: Platform::host(),
            access: Arc::default(),
            making: Making::default(),
        }
    }

    /// The same for packages that are made otherwise.
    #[must_use]
    pub fn making(self, making: Making) -> Self {
        Self { making, ..self }
    }

    /// The same with another way to registries.
    #[must_use]
    pub fn through(self, access: Arc<Access>) -> Self {
        Self { access, ..self }
    }
}

/// Descriptors of what is about an index or manifest (signatures, attestations), of one artifact type or of all.
///
/// Nothing of it has been checked but the form. Where a registry has no list of such, the tag that takes its place is read.
///
/// # Errors
/// As [`resolve`]; [`Error::Offline`] where no registry may be asked.
pub fn referrers(resolved: &Resolved, kind: Option<&str>, net: &Network) -> Result<Vec<Descriptor>> {
    match &resolved.source {
        Source::Layout(_) => Ok(Vec::new()),
        Source::Registry { .. } if net.mode == Mode::Offline => Err(Error::Offline(resolved.reference.clone())),
        Source::Registry { host, repository } => {
            resolved.way.to(host, repository, net).referrers(&resolved.descriptor.digest, kind)
        }
    }
}

/// When a registry is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    Offline,
    /// Where the store has no answer, or one that is older than `refresh`.
    CacheFirst {
        /// How long an answer is good.
        refresh: Duration,
    },
    /// Always, for names; a digest that is in the store needs no asking.
    Refresh,
}

/// An image that a reference stands for.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The reference as it was given.
    pub reference: String,
    /// Its canonical name, see [`canonical`].
    pub name: String,
    /// The index or manifest that the name stands for.
    pub descriptor: Descriptor,
    /// The manifest of the image for the platform.
    pub manifest: ImageManifest,
    /// Its descriptor; the same as `descriptor` where there is no index.
    pub manifest_descriptor: Descriptor,
    /// Where the answer is from.
    pub freshness: Freshness,
    /// What its hub stated of it when it was asked, where it has one.
    pub stated: Option<Stated>,
    /// Where its blobs are from.
    pub source: Source,
    /// The way to them.
    pub way: Way,
}

/// What another process goes on with: a [`Resolved`] whose manifest is in the store.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handed {
    reference: String,
    name: String,
    descriptor: Descriptor,
    manifest: Descriptor,
    freshness: Freshness,
    stated: Option<Stated>,
    source: Source,
}

impl Resolved {
    /// What another process needs of it.
    pub fn hand_over(&self) -> Handed {
        Handed {
            reference: self.reference.clone(),
            name: self.name.clone(),
            descriptor: self.descriptor.clone(),
            manifest: self.manifest_descriptor.clone(),
            freshness: self.freshness.clone(),
            stated: self.stated.clone(),
            source: self.source.clone(),
        }
    }
}

impl Handed {
    /// The same image as it was handed over.
    ///
    /// # Errors
    /// Where the store does not have its manifest, or it is damaged there.
    pub fn take(self, store: &Store) -> Result<Resolved> {
        let Handed { reference, name, descriptor, manifest: manifest_descriptor, freshness, stated, source } = self;
        let missing = || Error::NotFound { what: manifest_descriptor.digest.to_string(), place: "the store".into() };
        let bytes = store.blob(&manifest_descriptor)?.ok_or_else(missing)?.bytes()?;
        let manifest = ImageManifest::parse(&bytes).map_err(Error::image(&manifest_descriptor.digest))?;
        let way = Way::default();
        Ok(Resolved { reference, name, descriptor, manifest, manifest_descriptor, freshness, stated, source, way })
    }
}

/// Connections to a registry and what it was shown: made when they are first needed, and shared from then on.
#[derive(Debug, Clone, Default)]
pub struct Way(Arc<OnceLock<Sources>>);

impl Way {
    pub(crate) fn to(&self, host: &str, repository: &str, net: &Network) -> &Sources {
        self.0.get_or_init(|| Sources::new(host, repository, &net.access, Patience::Needed))
    }
}

/// Where an answer is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freshness {
    /// The store; nobody was asked.
    Cached,
    /// The registry or layout, just now.
    Fetched,
    /// The store, because the registry could not be asked: the reason.
    Stale(String),
}

/// Where blobs are fetched from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A registry.
    Registry {
        /// `HOST[:PORT]`.
        host: String,
        /// Path of the repository.
        repository: String,
    },
    /// An OCI layout directory; for what was made here, the store itself.
    Layout(PathBuf),
}

/// Goes from what a name stands for to the manifest of one platform; `get` brings the bytes of a manifest that the
/// store does not have, and need not check them. Where there is none, nothing of the way stays in the store.
fn choose(
    descriptor: &Descriptor,
    store: &Store,
    platform: &Platform,
    get: &dyn Fn(&Descriptor) -> Result<Vec<u8>>,
) -> Result<(ImageManifest, Descriptor)> {
    walk(descriptor, store, platform, get).inspect_err(|_| {
        if let Err(error) = store.forget(descriptor) {
            tracing::warn!(%error, "an index that was refused stays in the store");
        }
    })
}

fn walk(
    descriptor: &Descriptor,
    store: &Store,
    platform: &Platform,
    get: &dyn Fn(&Descriptor) -> Result<Vec<u8>>,
) -> Result<(ImageManifest, Descriptor)> {
    let mut current = descriptor.clone();
    for _ in 0..=MAX_NESTING {
        let bytes = match store.blob(&current)? {
            Some(blob) => blob.bytes()?,
            None => store.ingest(&*get(&current)?, &current)?.bytes()?,
        };
        match Document::parse(&bytes, &current.media_type).map_err(Error::image(&current.digest))? {
            Document::Manifest(manifest) => return Ok((manifest, current)),
            Document::Index(index) => {
                let chosen = platform::choose(&index.manifests, platform);
                let no_platform = |offered| Error::NoPlatform { wanted: platform.clone(), offered };
                current = chosen.map_err(no_platform)?.clone();
            }
        }
    }
    let why = format!("indexes within indexes, deeper than {MAX_NESTING}");
    Err(Error::Verification { what: descriptor.digest.to_string(), why })
}

/// The tag in a selector, or a digest's sign and text: what follows a repository in a canonical name.
fn suffix(selector: &Selector) -> String {
    match selector.tag() {
        Some(tag) => format!(":{tag}"),
        None => selector.to_string(),
    }
}
