//! A client of the OCI distribution specification 1.1. Nothing that a registry says is believed: bodies are bounded,
//! manifests are hashed here and blobs on their way into the store.

mod download;
mod http;
mod patience;
mod referrers;
mod session;
mod upload;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::auth::Login;
use crate::store::{Blob, Verified};
use crate::url::Url;
use crate::{Access, Algorithm, Descriptor, Digest, Document, Error, Kind, MAX_MANIFEST, Network, Result, json};

use download::First;
pub(crate) use download::{Download, Origin, from_byte};
pub(crate) use http::{Answer, Body, Http, Request};
pub(crate) use patience::Patience;
pub(crate) use session::Session;
pub(crate) use upload::Sent;

/// Everything that a manifest may be.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// The longest list of tags that is read at once, in bytes, and how often it is continued.
const MAX_TAGS: usize = 4 << 20;
const MAX_PAGES: u32 = 20;
/// How long the body of a small document may take.
const DOCUMENT: Duration = Duration::from_secs(60);

/// A repository and its mirrors: these are asked first, in their order.
#[derive(Debug)]
pub(crate) struct Sources(Vec<Repository>);

impl Sources {
    /// Opens no connection yet.
    pub(crate) fn new(host: &str, path: &str, access: &Arc<Access>, patience: Patience) -> Self {
        let mirrors = access.host(host).map(|host| host.mirrors.clone()).unwrap_or_default();
        let mut all: Vec<_> = mirrors
            .iter()
            .map(|mirror| {
                let (host, prefix) = mirror.split_once('/').unwrap_or((mirror, ""));
                let path = if prefix.is_empty() { path.into() } else { format!("{}/{path}", prefix.trim_matches('/')) };
                // Whatever is wrong with it, there is another way.
                Repository::new(&host.to_ascii_lowercase(), &path, &[], access, Patience::Refresh)
            })
            .collect();
        all.push(Repository::new(host, path, &[], access, patience));
        Self(all)
    }

    /// The repository itself, without its mirrors.
    pub(crate) fn origin(host: &str, path: &str, access: &Arc<Access>) -> Self {
        Self(vec![Repository::new(host, path, &[], access, Patience::Needed)])
    }

    /// The first answer; a mirror that has none is passed over, one that lies is not.
    fn first<T>(&self, ask: impl Fn(&Repository) -> Result<T>) -> Result<T> {
        let (last, mirrors) = self.0.split_last().expect("the repository itself is one");
        for mirror in mirrors {
            match ask(mirror) {
                Err(error) if error.kind() == Kind::Resolve => tracing::debug!(%error, "a mirror is passed over"),
                answer => return answer,
            }
        }
        ask(last)
    }

    /// The manifest or index of a tag or digest.
    pub(crate) fn manifest(&self, reference: &str) -> Result<(Descriptor, Vec<u8>)> {
        self.first(|repository| repository.manifest(reference))
    }

    /// The digest that a tag has now, where the registry says so without sending the manifest.
    pub(crate) fn digest(&self, tag: &str) -> Result<Option<Digest>> {
        self.first(|repository| repository.digest(tag))
    }

    /// The names of all tags.
    pub(crate) fn tags(&self) -> Result<Vec<String>> {
        self.first(Repository::tags)
    }

    /// What is about a manifest, see [`crate::referrers`]. A mirror that has nothing is passed over: not all copy it.
    pub(crate) fn referrers(&self, digest: &Digest, kind: Option<&str>) -> Result<Vec<Descriptor>> {
        let some = |repository: &Repository| match repository.referrers(digest, kind)? {
            none if none.is_empty() => Err(Error::NotFound { what: "referrers".into(), place: digest.to_string() }),
            found => Ok(found),
        };
        match self.first(some) {
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            found => found,
        }
    }

    /// Whether the registry itself speaks the distribution specification.
    pub(crate) fn speak_distribution(&self) -> bool {
        self.0.last().is_none_or(|repository| repository.session.speaks_distribution())
    }

    /// The body of a blob, to be hashed by whoever reads it.
    pub(crate) fn blob(&self, descriptor: &Descriptor) -> Result<Download<First<'_>>> {
        Download::start(First(&self.0), descriptor)
    }
}

/// One repository of one registry.
#[derive(Debug)]
pub(crate) struct Repository {
    session: Session,
    path: String,
}

impl Repository {
    /// For reading; opens no connection yet. `also` are repositories of the same registry that are read on the way.
    fn new(host: &str, path: &str, also: &[String], access: &Arc<Access>, patience: Patience) -> Self {
        Self::with_actions(host, path, "pull", also, access, patience)
    }

    /// For writing, and for taking blobs over from other repositories of the registry.
    pub(crate) fn for_writing(host: &str, path: &str, from: &[String], access: &Arc<Access>) -> Self {
        Self::with_actions(host, path, "pull,push", from, access, Patience::Needed)
    }

    fn with_actions(
        host: &str,
        path: &str,
        actions: &str,
        also: &[String],
        access: &Arc<Access>,
        patience: Patience,
    ) -> Self {
        let (host, path) = docker_hub(host, path);
        let scopes = std::iter::once(format!("repository:{path}:{actions}"))
            .chain(also.iter().map(|other| format!("repository:{other}:pull")))
            .collect();
        Self { session: Session::new(access.clone(), &host, &path, scopes, patience), path }
    }

    /// Whether the registry speaks the distribution specification.
    pub(crate) fn speaks_distribution(&self) -> bool {
        self.session.speaks_distribution()
    }

    fn manifest(&self, reference: &str) -> Result<(Descriptor, Vec<u8>)> {
        let what = || format!("{}/{} {reference}", self.session.host(), self.path);
        let (bytes, announced, stated) = self.session.patience().repeat(|| {
            let answer = self.get(self.url(&format!("manifests/{reference}")), ACCEPT)?;
            let answer = self.found(answer, reference)?;
            let announced = answer.header("content-type").unwrap_or_default();
            let stated = answer.header("docker-content-digest");
            Ok((answer.small(MAX_MANIFEST, DOCUMENT)?, announced, stated))
        })?;
        // A tag never has a colon.
        let stated = if reference.contains(':') { Some(reference.to_string()) } else { stated };
        let named = stated.as_ref().and_then(|text| text.parse::<Digest>().ok());
        let digest = Digest::by(named.map_or(Algorithm::Sha256, |named| named.algorithm()), &bytes);
        if let Some(other) = stated.filter(|other| *other != digest.as_str()) {
            let why = format!("other bytes arrived than those of {other}, their digest is {digest}");
            return Err(Error::Verification { what: what(), why });
        }
        let document = Document::parse(&bytes, &announced).map_err(Error::image(what()))?;
        Ok((Descriptor::new(document.media_type(), digest, bytes.len() as u64), bytes))
    }

    fn digest(&self, tag: &str) -> Result<Option<Digest>> {
        self.session.patience().repeat(|| {
            let request = Request::new("HEAD", self.url(&format!("manifests/{tag}"))).header("accept", ACCEPT);
            let answer = self.found(self.session.run(&request)?, tag)?;
            Ok(answer.header("docker-content-digest").and_then(|text| text.parse().ok()))
        })
    }

    fn tags(&self) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        let mut all = Vec::new();
        self.pages(self.url("tags/list").with("n", "1000"), "application/json", "tags", |bytes| {
            let page = json::strict::<Page>(bytes, MAX_TAGS);
            let page = page.map_err(|why| Error::Verification { what: format!("the tags of {}", self.path), why })?;
            all.extend(page.tags.unwrap_or_default());
            Ok(())
        })?;
        Ok(all)
    }

    /// Reads a list that may be continued by `Link`, a bounded number of times.
    fn pages(&self, mut url: Url, accept: &str, what: &str, mut page: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for _ in 0..MAX_PAGES {
            let (bytes, next) = self.session.patience().repeat(|| {
                let answer = self.found(self.get(url.clone(), accept)?, what)?;
                let next = answer.header("link").and_then(|link| next_page(&link));
                Ok((answer.small(MAX_TAGS, DOCUMENT)?, next))
            })?;
            page(&bytes)?;
            let Some(next) = next else { return Ok(()) };
            url = self.elsewhere(&url, &next)?;
        }
        tracing::warn!(host = self.session.host(), "only the first {MAX_PAGES} pages of {what} are read");
        Ok(())
    }

    /// Says whether the registry has a blob already.
    pub(crate) fn has_blob(&self, descriptor: &Descriptor) -> Result<bool> {
        let digest = descriptor.digest.as_str();
        self.session.patience().repeat(|| {
            let answer = self.session.run(&Request::new("HEAD", self.url(&format!("blobs/{digest}"))))?;
            match self.found(answer, digest) {
                Ok(_) => Ok(true),
                Err(Error::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// Publishes a manifest or index under a tag or its digest. Where it is about another one and the registry does not
    /// list such by itself, its place in that one's list is written, too.
    pub(crate) fn put_manifest(&self, reference: &str, manifest: &Verified<Blob>) -> Result<()> {
        let bytes = manifest.bytes()?;
        let kind = &manifest.descriptor().media_type;
        let answer = self.put_bytes(reference, &bytes, kind)?;
        self.agrees(&answer, &manifest.descriptor().digest)?;
        match answer.header("oci-subject") {
            Some(_) => Ok(()),
            None => self.list_as_referrer(&bytes, manifest.descriptor()),
        }
    }

    fn put_bytes(&self, reference: &str, bytes: &[u8], kind: &str) -> Result<Answer> {
        self.session.patience().repeat(|| {
            let url = self.url(&format!("manifests/{reference}"));
            self.session.run(&Request::new("PUT", url).body(Body::Document(bytes, kind)))?.expect(&[201])
        })
    }

    /// Compares what the registry says it stored with what was sent.
    fn agrees(&self, answer: &Answer, sent: &Digest) -> Result<()> {
        match answer.header("docker-content-digest") {
            Some(stored) if stored != sent.as_str() => {
                let why = format!("registry {} says that it stored {stored:?} instead", self.session.host());
                Err(Error::Verification { what: sent.to_string(), why })
            }
            _ => Ok(()),
        }
    }

    fn get(&self, url: Url, accept: &str) -> Result<Answer> {
        self.session.run(&Request::new("GET", url).header("accept", accept))
    }

    fn found(&self, answer: Answer, what: &str) -> Result<Answer> {
        if answer.status() == 404 {
            let place = format!("{}/{}", self.session.host(), self.path);
            return Err(Error::NotFound { what: what.into(), place });
        }
        answer.expect(&[200])
    }

    fn url(&self, rest: &str) -> Url {
        Url::at(self.session.host(), format!("/v2/{}/{rest}", self.path), self.session.access())
    }

    /// Where an answer points to.
    fn elsewhere(&self, from: &Url, location: &str) -> Result<Url> {
        from.follow(location, self.session.access()).map_err(|why| Error::Unreachable {
            host: self.session.host().into(),
            why: format!("it points elsewhere: {why}"),
        })
    }
}

/// Asks a registry whether it takes a login.
pub(crate) fn try_login(host: &str, login: &Login, net: &Network) -> Result<()> {
    let (host, _) = docker_hub(host, "");
    let session = Session::with_login(net.access.clone(), &host, login);
    if !session.speaks_distribution() {
        return crate::hub::try_login(&host, login, net);
    }
    session.patience().repeat(|| {
        let request =
            Request::new("GET", Url::at(&host, "/v2/".into(), &net.access)).header("accept", "application/json");
        session.run(&request)?.expect(&[200]).map(drop)
    })
}

/// Docker Hub's registry is elsewhere than its name says, and its own images have a short form.
fn docker_hub(host: &str, path: &str) -> (String, String) {
    match host {
        "docker.io" | "index.docker.io" if path.is_empty() || path.contains('/') => {
            ("registry-1.docker.io".into(), path.into())
        }
        "docker.io" | "index.docker.io" => ("registry-1.docker.io".into(), format!("library/{path}")),
        _ => (host.into(), path.into()),
    }
}

/// The target in `<…>; rel="next"`.
fn next_page(link: &str) -> Option<String> {
    let (target, relation) = link.strip_prefix('<')?.split_once('>')?;
    relation.contains("rel=\"next\"").then(|| target.to_string())
}

/// Reads a body to its end and throws it away, up to `count` bytes.
fn skip(reader: &mut impl Read, count: u64) -> std::io::Result<u64> {
    std::io::copy(&mut reader.take(count), &mut std::io::sink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_hub_is_elsewhere() {
        for (host, path, want) in [
            ("docker.io", "busybox", ("registry-1.docker.io", "library/busybox")),
            ("docker.io", "mcp/time", ("registry-1.docker.io", "mcp/time")),
            ("ghcr.io", "o/r", ("ghcr.io", "o/r")),
        ] {
            assert_eq!(docker_hub(host, path), (want.0.into(), want.1.into()));
        }
    }
}
