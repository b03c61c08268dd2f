//! A client of the OCI distribution specification 1.1. Nothing that a registry says is believed: bodies are bounded,
//! manifests are hashed here and blobs on their way into the store.

mod http;

use std::io::Read;
use std::time::Duration;

use serde::Deserialize;

use crate::store::{Blob, Verified};
use crate::url::Url;
use crate::{Descriptor, Digest, Document, Error, MAX_MANIFEST, Result, json};
use http::{Answer, Body, Http};

pub(crate) use http::Patience;

/// Everything that a manifest may be.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// The longest list of tags that is read at once, in bytes, and how often it is continued.
const MAX_TAGS: usize = 4 << 20;
const MAX_PAGES: u32 = 20;
/// How long the body of a small document may take.
const DOCUMENT: Duration = Duration::from_secs(60);
/// The least speed of a blob, in bytes a second.
const SLOWEST: u64 = 16 << 10;

/// One repository of one registry.
#[derive(Debug)]
pub(crate) struct Repository {
    http: Http,
    host: String,
    path: String,
}

impl Repository {
    /// Opens no connection yet.
    pub(crate) fn new(host: &str, path: &str, patience: Patience) -> Self {
        Self { http: Http::new(patience), host: host.into(), path: path.into() }
    }

    /// The manifest or index of a tag or digest.
    pub(crate) fn manifest(&self, reference: &str) -> Result<(Descriptor, Vec<u8>)> {
        let answer = self.http.get(self.url(&format!("manifests/{reference}")), ACCEPT)?;
        let answer = self.found(answer, reference)?;
        let what = || format!("{}/{} {reference}", self.host, self.path);
        let announced = answer.header("content-type").unwrap_or_default();
        let stated = answer.header("docker-content-digest");
        let bytes = answer.small(MAX_MANIFEST, DOCUMENT)?;
        let digest = Digest::of(&bytes);
        let wanted = reference.starts_with("sha256:").then(|| reference.to_string());
        if let Some(other) = wanted.or(stated).filter(|other| *other != digest.as_str()) {
            let why = format!("other bytes arrived than those of {other}, their digest is {digest}");
            return Err(Error::Verification { what: what(), why });
        }
        let document = Document::parse(&bytes, &announced).map_err(Error::image(what()))?;
        Ok((Descriptor::new(document.media_type(), digest, bytes.len() as u64), bytes))
    }

    /// The digest that a tag has now, where the registry says so without sending the manifest.
    pub(crate) fn digest(&self, tag: &str) -> Result<Option<Digest>> {
        let answer = self.http.head(self.url(&format!("manifests/{tag}")), ACCEPT)?;
        let answer = self.found(answer, tag)?;
        Ok(answer.header("docker-content-digest").and_then(|text| text.parse().ok()))
    }

    /// The names of all tags.
    pub(crate) fn tags(&self) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let mut all = Vec::new();
        let mut url = self.url("tags/list").with("n", "1000");
        for _ in 0..MAX_PAGES {
            let answer = self.found(self.http.get(url.clone(), "application/json")?, "tags")?;
            let next = answer.header("link").and_then(|link| next_page(&link));
            let page = json::strict::<Page>(&answer.small(MAX_TAGS, DOCUMENT)?, MAX_TAGS);
            let page = page.map_err(|why| Error::Verification { what: format!("the tags of {}", self.path), why })?;
            all.extend(page.tags.unwrap_or_default());
            let Some(next) = next else { break };
            url = url.follow(&next).map_err(|why| self.broken(why))?;
        }
        Ok(all)
    }

    /// The body of a blob, to be hashed by whoever reads it.
    pub(crate) fn blob(&self, descriptor: &Descriptor) -> Result<impl Read + use<>> {
        let digest = descriptor.digest.as_str();
        let answer = self.found(self.http.get(self.url(&format!("blobs/{digest}")), "*/*")?, digest)?;
        Ok(answer.body(DOCUMENT + Duration::from_secs(descriptor.size / SLOWEST)))
    }

    /// Says whether the registry has a blob already.
    pub(crate) fn has_blob(&self, descriptor: &Descriptor) -> Result<bool> {
        let digest = descriptor.digest.as_str();
        let answer = self.http.head(self.url(&format!("blobs/{digest}")), "*/*")?;
        match self.found(answer, digest) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a blob in one piece.
    pub(crate) fn upload(&self, blob: &Verified<Blob>) -> Result<()> {
        let start = self.url("blobs/uploads/");
        let answer = self.http.send("POST", &start, Body::Empty)?.expect(&[202])?;
        let location = answer.header("location").unwrap_or_default();
        let target = start.follow(&location).map_err(|why| self.broken(why))?;
        let target = target.with("digest", blob.descriptor().digest.as_str());
        let answer = self.http.send("PUT", &target, Body::Blob(blob))?.expect(&[201, 202, 204])?;
        self.agrees(&answer, &blob.descriptor().digest)
    }

    /// Publishes a manifest or index under a tag or its digest.
    pub(crate) fn put_manifest(&self, reference: &str, manifest: &Verified<Blob>) -> Result<()> {
        let bytes = manifest.bytes()?;
        let body = Body::Document(&bytes, &manifest.descriptor().media_type);
        let answer = self.http.send("PUT", &self.url(&format!("manifests/{reference}")), body)?.expect(&[201])?;
        self.agrees(&answer, &manifest.descriptor().digest)
    }

    /// Compares what the registry says it stored with what was sent.
    fn agrees(&self, answer: &Answer, sent: &Digest) -> Result<()> {
        match answer.header("docker-content-digest") {
            Some(stored) if stored != sent.as_str() => {
                let why = format!("registry {} says that it stored {stored:?} instead", self.host);
                Err(Error::Verification { what: sent.to_string(), why })
            }
            _ => Ok(()),
        }
    }

    fn found(&self, answer: Answer, what: &str) -> Result<Answer> {
        if answer.status() == 404 {
            let place = format!("{}/{}", self.host, self.path);
            return Err(Error::NotFound { what: what.into(), place });
        }
        answer.expect(&[200])
    }

    fn url(&self, rest: &str) -> Url {
        Url::at(&self.host, format!("/v2/{}/{rest}", self.path))
    }

    fn broken(&self, why: &str) -> Error {
        Error::Network { host: self.host.clone(), why: format!("it points elsewhere: {why}") }
    }
}

/// The target in `<…>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let (target, relation) = link.strip_prefix('<')?.split_once('>')?;
    relation.contains("rel=\"next\"").then(|| target.to_string())
}
