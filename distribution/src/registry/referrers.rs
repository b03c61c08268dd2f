//! What is about a manifest (signatures, attestations): the referrers API of the distribution specification 1.1, and the
//! tag that takes its place where a registry has none.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{MAX_TAGS, Repository};
use crate::attached::ATTEMPTS;
use crate::media_type::OCI_INDEX;
use crate::{Descriptor, Digest, Document, Error, ImageManifest, Result, json};

/// The most descriptors that are read.
const MAX_REFERRERS: usize = 1000;

/// A list of referrers; unlike an index it may be long.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct List {
    schema_version: u32,
    media_type: Option<String>,
    manifests: Vec<Descriptor>,
}

impl Repository {
    /// Descriptors of what is about a manifest, of one artifact type or of all, each once.
    pub(super) fn referrers(&self, digest: &Digest, kind: Option<&str>) -> Result<Vec<Descriptor>> {
        let listed = match self.by_api(digest, kind) {
            Err(Error::NotFound { .. }) => self.by_tag(digest),
            Err(Error::Status { status: 400 | 405 | 501, .. }) => self.by_tag(digest),
            listed => listed,
        }?;
        let mut seen = BTreeSet::new();
        let wanted = |found: &Descriptor| kind.is_none_or(|kind| found.artifact_type.as_deref() == Some(kind));
        Ok(listed.into_iter().filter(|found| wanted(found) && seen.insert(found.digest.clone())).collect())
    }

    fn by_api(&self, digest: &Digest, kind: Option<&str>) -> Result<Vec<Descriptor>> {
        let url = self.url(&format!("referrers/{digest}"));
        let url = kind.into_iter().fold(url, |url, kind| url.with("artifactType", kind));
        let mut all = Vec::new();
        self.pages(url, OCI_INDEX, "referrers", |bytes| {
            all.extend(self.read_list(bytes, digest)?);
            Ok(())
        })?;
        self.few(all, digest)
    }

    fn by_tag(&self, digest: &Digest) -> Result<Vec<Descriptor>> {
        let mut all = Vec::new();
        let url = self.url(&format!("manifests/{}", tag(digest)));
        let read = self.pages(url, OCI_INDEX, "referrers", |bytes| {
            all = self.read_list(bytes, digest)?;
            Ok(())
        });
        match read {
            Err(Error::NotFound { .. }) => Ok(Vec::new()),
            read => read.and_then(|()| self.few(all, digest)),
        }
    }

    fn read_list(&self, bytes: &[u8], digest: &Digest) -> Result<Vec<Descriptor>> {
        let list = json::strict::<List>(bytes, MAX_TAGS).map_err(|why| self.wrong(digest, why))?;
        match list.media_type.as_deref() {
            None | Some(OCI_INDEX) if list.schema_version == 2 => Ok(list.manifests),
            other => Err(self.wrong(digest, format!("{other:?} is no index"))),
        }
    }

    fn few(&self, all: Vec<Descriptor>, digest: &Digest) -> Result<Vec<Descriptor>> {
        match all.len() {
            ..=MAX_REFERRERS => Ok(all),
            many => Err(self.wrong(digest, format!("{many} entries, at most {MAX_REFERRERS} are read"))),
        }
    }

    fn wrong(&self, digest: &Digest, why: String) -> Error {
        Error::Verification { what: format!("the referrers of {digest} at {}", self.session.host()), why }
    }

    /// Adds a manifest that was published to the list of what is about its subject, and looks again until that and all
    /// that was there stays: no registry compares before it writes.
    pub(super) fn list_as_referrer(&self, bytes: &[u8], published: &Descriptor) -> Result<()> {
        let document = Document::parse(bytes, &published.media_type).map_err(Error::image(&published.digest))?;
        let (subject, kind, annotations) = match document {
            Document::Manifest(ImageManifest { subject, artifact_type, config, annotations, .. }) => {
                (subject, artifact_type.or(Some(config.media_type)), annotations)
            }
            Document::Index(index) => (index.subject, index.artifact_type, index.annotations),
        };
        let Some(subject) = subject else { return Ok(()) };
        let own = Descriptor { artifact_type: kind, annotations, ..published.bare() };
        let mut wanted = vec![own];
        for _ in 0..=ATTEMPTS {
            let mut manifests = self.by_tag(&subject.digest)?;
            let is_there =
                |list: &[Descriptor], wanted: &Descriptor| list.iter().any(|known| known.digest == wanted.digest);
            let lost: Vec<_> = wanted.iter().filter(|wanted| !is_there(&manifests, wanted)).cloned().collect();
            if lost.is_empty() {
                return Ok(());
            }
            // What others write meanwhile is seen the next time around.
            manifests.extend(lost);
            let list = List { schema_version: 2, media_type: Some(OCI_INDEX.into()), manifests };
            let bytes = serde_json::to_vec(&list).expect("strings and numbers always serialise");
            self.put_bytes(&tag(&subject.digest), &bytes, OCI_INDEX)?;
            wanted = list.manifests;
        }
        Err(Error::Contended { what: format!("the tag {}", tag(&subject.digest)), attempts: ATTEMPTS })
    }
}

/// The tag that stands for the referrers of a digest, which has at most 64 of its digits (distribution-spec 1.1, "Referrers Tag
/// Schema").
fn tag(digest: &Digest) -> String {
    format!("{}-{}", digest.algorithm().name(), &digest.hex()[..64])
}
