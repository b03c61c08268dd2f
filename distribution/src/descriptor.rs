//! Descriptors: what a blob is, its digest and its size.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::{Digest, Platform};

/// Points at a blob: media type, digest and size in bytes, as in the OCI image specification.
///
/// A descriptor with `urls` is refused when read: content is never fetched from where a manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "AsWritten")]
pub struct Descriptor {
    /// What the blob is.
    pub media_type: String,
    /// Digest of the blob.
    pub digest: Digest,
    /// Size of the blob in bytes.
    pub size: u64,
    /// The kind of artifact, where it differs from the media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The platform, in the entries of an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Sorted, so that what is written is always the same.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// A descriptor without platform and annotations.
    pub fn new(media_type: impl Into<String>, digest: Digest, size: u64) -> Self {
        let media_type = media_type.into();
        Self { media_type, digest, size, artifact_type: None, platform: None, annotations: BTreeMap::new() }
    }

    /// The same blob without what only its place in an index or layout says about it.
    pub(crate) fn bare(&self) -> Self {
        Self {
            artifact_type: self.artifact_type.clone(),
            ..Self::new(&*self.media_type, self.digest.clone(), self.size)
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AsWritten {
    media_type: String,
    digest: Digest,
    size: u64,
    artifact_type: Option<String>,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    urls: Option<Vec<String>>,
    /// Other keys; with it an array of the values does not pass for an object.
    #[serde(flatten)]
    _more: BTreeMap<String, IgnoredAny>,
}

impl TryFrom<AsWritten> for Descriptor {
    type Error = String;

    fn try_from(written: AsWritten) -> Result<Self, String> {
        if written.urls.is_some_and(|urls| !urls.is_empty()) {
            return Err(format!("{} points at foreign urls, which are never followed", written.digest));
        }
        Ok(Self {
            media_type: written.media_type,
            digest: written.digest,
            size: written.size,
            artifact_type: written.artifact_type,
            platform: written.platform,
            annotations: written.annotations.unwrap_or_default(),
        })
    }
}
