//! The hub's own API: what a registry speaks that does not answer `/v2/`. What it delivers becomes an image in the store,
//! by [`Convert`], so that everything after is the same.
//!
//! Its digests are checked where they are used, its urls are not followed: content is asked for by digest, at the hub
//! itself. Nothing that it says is signed.

use std::io::Read;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::registry::{Answer, Body, Download, Origin, Patience, Request, Session, from_byte};
use crate::store::{Blob, Verified};
use crate::url::{self, Url};
use crate::{Descriptor, Digest, Error, Network, Result, Selector, Store, json as strict, media_type};

/// The largest answer, manifest and bundle that are read, in bytes.
const MAX_ANSWER: usize = 1 << 20;
const MAX_MANIFEST: usize = 10 << 20;
const MAX_BUNDLE: u64 = 100 << 20;
const DOCUMENT: Duration = Duration::from_secs(60);

/// Annotations of an image that was made of what a hub delivered: the digests of its manifest and its bundle.
pub const HUB_MANIFEST: &str = "info.mcp-hub.smcp.hub.manifest";
/// See [`HUB_MANIFEST`].
pub const HUB_BUNDLE: &str = "info.mcp-hub.smcp.hub.bundle";

/// Makes an image of what a hub delivered, in the store: its descriptor, or why that cannot be.
pub type Convert = fn(&Delivered, &Store) -> std::result::Result<Descriptor, String>;

/// Makes of an image in the store what a hub takes.
pub type Unmake = fn(&Descriptor, &Store) -> std::result::Result<Offered, String>;

/// What a hub delivered: both digests are right.
#[derive(Debug)]
pub struct Delivered {
    /// `ORG/NAME`, as it was asked for.
    pub package: String,
    /// The version that it was resolved to.
    pub version: String,
    /// The commit, where the hub says one.
    pub git_sha: Option<String>,
    /// The hub's manifest, in one of its dialects.
    pub manifest: Vec<u8>,
    /// Digest of that.
    pub manifest_digest: Digest,
    /// The source tree, tar.gz.
    pub bundle: Verified<Blob>,
}

/// What a hub states about a version of a package of its own, beside its content; it can state something else at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stated {
    /// Level of its certification, 0 to 3.
    pub level: u8,
    /// `official`, `verified` or `community`; any text of the hub's.
    pub origin: Option<String>,
    /// It still runs, and the hub advises against it.
    pub deprecated: bool,
}

/// What a hub takes.
#[derive(Debug)]
pub struct Offered {
    /// The version.
    pub version: String,
    /// The source tree, tar.gz.
    pub bundle: Verified<Blob>,
}

/// One package of a hub.
pub(crate) struct Hub {
    session: Session,
    org: String,
    name: String,
    /// Nobody on the way can have said it in the hub's place.
    is_heard: bool,
}

#[derive(Deserialize)]
struct Resolution {
    package: String,
    #[serde(default)]
    origin: Option<String>,
    resolved: Version,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    git_sha: Option<String>,
    status: String,
    #[serde(default)]
    certification_level: Value,
    manifest: Part,
    bundle: Part,
}

#[derive(Deserialize)]
struct Part {
    digest: Digest,
    #[serde(default)]
    size_bytes: Option<u64>,
}

impl Hub {
    /// None where the name cannot be a hub's: those have two parts.
    pub(crate) fn of(host: &str, repository: &str, net: &Network) -> Option<Self> {
        let (org, name) = repository.split_once('/').filter(|(_, name)| !name.contains('/'))?;
        let session = Session::of_a_hub(net.access.clone(), host, repository);
        let is_heard = net.access.is_secure(host) || url::is_loopback(host);
        Some(Self { session, org: org.into(), name: name.into(), is_heard })
    }

    /// The image of a version in the store, and what the hub states of it; `known` is what it was the last time.
    pub(crate) fn image(
        &self,
        selector: &Selector,
        known: Option<&Descriptor>,
        store: &Store,
        net: &Network,
    ) -> Result<(Descriptor, Option<Stated>)> {
        let Resolution { origin, resolved: version, .. } = self.resolve(selector)?;
        let level = version.certification_level.as_u64().and_then(|level| u8::try_from(level).ok());
        let stated = Stated {
            level: level.filter(|level| *level <= 3).unwrap_or(0),
            origin,
            deprecated: version.status == "deprecated",
        };
        let stated = self.is_heard.then_some(stated);
        if let Some(known) = known.filter(|known| is_of(store, known, &version)) {
            return Ok((known.clone(), stated));
        }
        let Some(convert) = net.access.convert else {
            return Err(self.wrong("this program makes no images of a hub's packages"));
        };
        let manifest = self.manifest(&version.manifest.digest)?;
        let bundle = self.bundle(&version.bundle, store)?;
        let bundle_descriptor = bundle.descriptor().clone();
        let package = self.package();
        let Version { version, git_sha, manifest: Part { digest: manifest_digest, .. }, .. } = version;
        let delivered = Delivered { package, version, git_sha, manifest, manifest_digest, bundle };
        let image = convert(&delivered, store).map_err(|why| Error::Verification { what: self.place(), why });
        // Its files are in the image now.
        store.drop_blob(&bundle_descriptor);
        Ok((image?, stated))
    }

    fn resolve(&self, selector: &Selector) -> Result<Resolution> {
        let wanted = match selector {
            Selector::Latest => "latest".to_string(),
            Selector::Version(text) | Selector::Tag(text) => text.clone(),
            Selector::Digest(digest) => digest.to_string(),
        };
        let url = self.url(&format!("/v1/org/{}/mcps/{}/resolve", self.org, self.name)).with("ref", &wanted);
        let bytes = self.get_small(url, MAX_ANSWER, &wanted)?;
        let resolution: Resolution = strict::strict(&bytes, MAX_ANSWER).map_err(|why| self.wrong(&why))?;
        let Resolution { package, resolved, .. } = &resolution;
        if *package != self.package() {
            return Err(self.wrong(&format!("it answers for {package:?}")));
        }
        let is_it = match selector {
            Selector::Latest => true,
            Selector::Version(text) | Selector::Tag(text) => {
                resolved.version == *text || resolved.git_sha.as_deref() == Some(text)
            }
            Selector::Digest(digest) => [&resolved.manifest.digest, &resolved.bundle.digest].contains(&digest),
        };
        if !is_it {
            return Err(self.wrong(&format!("asked for {wanted}, it answers with {:?}", resolved.version)));
        }
        match resolved.status.as_str() {
            "published" => Ok(resolution),
            // Said at each start, by whoever judges what it stated.
            "deprecated" if self.is_heard => Ok(resolution),
            "deprecated" => {
                tracing::warn!("{} {} is deprecated, says its hub", self.place(), resolved.version);
                Ok(resolution)
            }
            status => {
                Err(Error::Withdrawn { what: format!("{} {}", self.place(), resolved.version), status: status.into() })
            }
        }
    }

    fn manifest(&self, digest: &Digest) -> Result<Vec<u8>> {
        let url = self.url(&format!("/v1/org/{}/artifacts/{digest}/manifest", self.org));
        let bytes = self.get_small(url, MAX_MANIFEST, digest.as_str())?;
        match Digest::by(digest.algorithm(), &bytes) {
            found if found == *digest => Ok(bytes),
            found => {
                let why = format!("other bytes arrived, their digest is {found}");
                Err(Error::Verification { what: digest.to_string(), why })
            }
        }
    }

    fn bundle(&self, part: &Part, store: &Store) -> Result<Verified<Blob>> {
        let size = part.size_bytes.ok_or_else(|| self.wrong("it does not say how large the bundle is"))?;
        if size > MAX_BUNDLE {
            return Err(self.wrong(&format!("a bundle of {size} bytes, at most {MAX_BUNDLE} are read")));
        }
        let want = Descriptor::new(media_type::LAYER_TAR_GZIP, part.digest.clone(), size);
        let _turn = store.lock_blob(&want.digest)?;
        if let Some(kept) = store.blob(&want)? {
            return Ok(kept);
        }
        store.ingest(Download::start(BundleOf(self), &want)?, &want)
    }

    /// Publishes a bundle: announced, sent, finished. The hub analyses it and makes a version of it, or not.
    pub(crate) fn publish(&self, offered: &Offered) -> Result<()> {
        #[derive(Deserialize)]
        struct Started {
            upload_id: String,
            bundle_upload_url: String,
        }
        let digest = &offered.bundle.descriptor().digest;
        let announced = json!({"mcp_name": self.package(), "mcp_version": offered.version, "bundle_digest": digest});
        let start = self.url("/api/v1/uploads/init");
        let bytes = self.post(&start, &announced, &[200, 201])?;
        let started: Started = strict::strict(&bytes, MAX_ANSWER).map_err(|why| self.wrong(&why))?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if started.upload_id.is_empty() || !started.upload_id.bytes().all(plain) || started.upload_id.starts_with('.') {
            return Err(self.wrong("the upload that it began has no plain name"));
        }
        let target = start.follow(&started.bundle_upload_url, self.session.access()).map_err(|why| self.wrong(why))?;
        self.session.patience().repeat(|| {
            let size = offered.bundle.descriptor().size;
            let request = Request::new("PUT", target.clone()).body(Body::Blob(&offered.bundle, 0, size));
            self.session.run(&request)?.expect(&[200, 201, 202, 204]).map(drop)
        })?;
        let finish = self.url(&format!("/api/v1/uploads/{}/finalize", started.upload_id));
        let finished: Value =
            serde_json::from_slice(&self.post(&finish, &json!({}), &[200, 201, 202])?).unwrap_or_default();
        tracing::info!(version = %finished["version_id"], status = %finished["status"], "taken");
        Ok(())
    }

    fn post(&self, url: &Url, value: &Value, statuses: &[u16]) -> Result<Vec<u8>> {
        let bytes = value.to_string();
        let request = Request::new("POST", url.clone()).body(Body::Document(bytes.as_bytes(), "application/json"));
        self.session.run(&request)?.expect(statuses)?.small(MAX_ANSWER, DOCUMENT)
    }

    fn get_small(&self, url: Url, cap: usize, what: &str) -> Result<Vec<u8>> {
        self.session.patience().repeat(|| {
            let request = Request::new("GET", url.clone()).header("accept", "application/json");
            self.found(self.session.run(&request)?, what)?.small(cap, DOCUMENT)
        })
    }

    fn found(&self, answer: Answer, what: &str) -> Result<Answer> {
        match answer.status() {
            404 => Err(Error::NotFound { what: what.into(), place: self.place() }),
            _ => answer.expect(&[200]),
        }
    }

    fn url(&self, path: &str) -> Url {
        Url::at(self.session.host(), path.into(), self.session.access())
    }

    fn package(&self) -> String {
        format!("{}/{}", self.org, self.name)
    }

    fn place(&self) -> String {
        format!("{}/{}", self.session.host(), self.package())
    }

    fn wrong(&self, why: &str) -> Error {
        Error::Verification { what: format!("the hub's answer for {}", self.place()), why: why.into() }
    }
}

/// A bundle on its way here. Nothing says that a hub, or the storage that it redirects to, knows ranges: one that does not begins anew.
struct BundleOf<'a>(&'a Hub);

impl Origin for BundleOf<'_> {
    fn host(&self) -> &str {
        self.0.session.host()
    }

    fn open(&mut self, descriptor: &Descriptor, at: u64, until: Instant) -> Result<Box<dyn Read + Send>> {
        let Hub { session, org, .. } = self.0;
        session.patience().repeat(|| {
            let request =
                Request::new("GET", self.0.url(&format!("/v1/org/{org}/artifacts/{}/bundle", descriptor.digest)));
            let found = |answer| self.0.found(answer, descriptor.digest.as_str());
            from_byte(session, request, found, descriptor, at, until)
        })
    }
}

/// Whether an image in the store was made of this version.
fn is_of(store: &Store, image: &Descriptor, version: &Version) -> bool {
    let manifest = store.manifest(&image.digest).ok().flatten();
    let manifest = manifest.and_then(|bytes| crate::ImageManifest::parse(&bytes).ok());
    manifest.is_some_and(|manifest| {
        let says = |key: &str| manifest.annotations.get(key).map(String::as_str);
        says(HUB_MANIFEST) == Some(version.manifest.digest.as_str())
            && says(HUB_BUNDLE) == Some(version.bundle.digest.as_str())
    })
}

/// Asks a hub whether it takes a login.
pub(crate) fn try_login(host: &str, login: &crate::Login, net: &Network) -> Result<()> {
    let session = Session::of_a_hub(net.access.clone(), host, "");
    session.show(login)?;
    Patience::Needed.repeat(|| {
        let url = Url::at(host, "/v1/catalog".into(), &net.access);
        session.run(&Request::new("GET", url))?.expect(&[200]).map(drop)
    })
}
