//! Image manifests and indexes, read strictly: a document that two tools could take for different things is refused.
//!
//! The structs are our own because the annotations of `oci-spec` lie in hash maps: their order would change from run
//! to run, and with it the digest of what is written.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::{Descriptor, json, media_type};

/// The largest manifest or index that is read, in bytes.
pub const MAX_MANIFEST: usize = 4 << 20;
/// The largest image configuration that is read, in bytes.
pub const MAX_CONFIG: usize = 8 << 20;
/// The most entries of an index.
const MAX_ENTRIES: usize = 64;
/// The most layers of an image.
const MAX_LAYERS: usize = 128;

/// What a reference can point at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(ImageManifest),
    /// Images for several platforms.
    Index(ImageIndex),
}

impl Document {
    /// Reads a manifest or an index that was announced as `announced`, the media type of its descriptor or the
    /// `Content-Type` of the answer.
    ///
    /// # Errors
    /// Where the text is not strict JSON, is too large, is schema 1, has both layers and manifests, contradicts
    /// `announced`, or points at foreign content.
    pub fn parse(bytes: &[u8], announced: &str) -> Result<Self, ImageError> {
        let written: AsWritten = json::strict(bytes, MAX_MANIFEST).map_err(ImageError)?;
        let document = written.document()?;
        let own = document.media_type();
        if own == essence(announced) {
            return Ok(document);
        }
        Err(ImageError(format!("announced as {announced:?}, but it is {own:?}")))
    }

    /// Reads a document of which only the digest is known.
    pub(crate) fn parse_unannounced(bytes: &[u8]) -> Result<Self, ImageError> {
        let written: AsWritten = json::strict(bytes, MAX_MANIFEST).map_err(ImageError)?;
        written.document()
    }

    /// The media type that the document states for itself.
    pub fn media_type(&self) -> &str {
        match self {
            Self::Manifest(manifest) => &manifest.media_type,
            Self::Index(index) => &index.media_type,
        }
    }
}

/// The manifest of one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageManifest {
    /// Always 2.
    pub schema_version: u32,
    /// The OCI or Docker media type of a manifest.
    pub media_type: String,
    /// `application/vnd.smcp.package.v1+json` for packages of smcp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The image configuration.
    pub config: Descriptor,
    /// Layers, the lowest first.
    pub layers: Vec<Descriptor>,
    /// The manifest that this one is about, for signatures and attestations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Sorted, so that the digest is always the same.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl ImageManifest {
    /// An OCI manifest over a configuration and layers, lowest layer first.
    pub fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: media_type::OCI_MANIFEST.into(),
            artifact_type: None,
            config,
            layers,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Reads a manifest; as [`Document::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        match Document::parse_unannounced(bytes)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => Err(ImageError("an index where the manifest of one image must be".into())),
        }
    }

    /// Compact JSON, the same bytes for the same manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }
}

/// An index over images for several platforms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageIndex {
    /// Always 2.
    pub schema_version: u32,
    /// The OCI or Docker media type of an index.
    pub media_type: String,
    /// As in the manifests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// One entry for each platform.
    pub manifests: Vec<Descriptor>,
    /// The manifest that this one is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Sorted, so that the digest is always the same.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl ImageIndex {
    /// An OCI index over `manifests`.
    pub fn new(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: media_type::OCI_INDEX.into(),
            artifact_type: None,
            manifests,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Reads an index; as [`Document::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ImageError> {
        match Document::parse_unannounced(bytes)? {
            Document::Index(index) => Ok(index),
            Document::Manifest(_) => Err(ImageError("a manifest where an index must be".into())),
        }
    }

    /// Compact JSON, the same bytes for the same index.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }
}

/// Why a document is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImageError(pub(crate) String);

/// Every key that decides what a document is, before it is decided.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AsWritten {
    schema_version: u32,
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    fs_layers: Option<IgnoredAny>,
    subject: Option<Descriptor>,
    annotations: Option<BTreeMap<String, String>>,
    /// Other keys; with it an array of the values does not pass for an object.
    #[serde(flatten)]
    _more: BTreeMap<String, IgnoredAny>,
}

impl AsWritten {
    fn document(self) -> Result<Document, ImageError> {
        let refused = |why: String| Err(ImageError(why));
        if self.schema_version != 2 || self.fs_layers.is_some() {
            return refused(format!("schema version {}, only 2 is read", self.schema_version));
        }
        match (self.config, self.layers, self.manifests) {
            (Some(config), Some(layers), None) => {
                check_layers(&layers)?;
                Ok(Document::Manifest(ImageManifest {
                    media_type: own_type(self.media_type, media_type::OCI_MANIFEST, media_type::is_manifest)?,
                    artifact_type: self.artifact_type,
                    subject: self.subject,
                    annotations: self.annotations.unwrap_or_default(),
                    ..ImageManifest::new(config, layers)
                }))
            }
            (None, None, Some(manifests)) if manifests.len() > MAX_ENTRIES => {
                refused(format!("an index of {} entries, at most {MAX_ENTRIES} are read", manifests.len()))
            }
            (None, None, Some(manifests)) => Ok(Document::Index(ImageIndex {
                media_type: own_type(self.media_type, media_type::OCI_INDEX, media_type::is_index)?,
                artifact_type: self.artifact_type,
                subject: self.subject,
                annotations: self.annotations.unwrap_or_default(),
                ..ImageIndex::new(manifests)
            })),
            (_, _, Some(_)) => refused("it has both an image's config or layers and an index's manifests".into()),
            _ => refused("it has neither config and layers nor manifests".into()),
        }
    }
}

fn own_type(stated: Option<String>, default: &str, fits: fn(&str) -> bool) -> Result<String, ImageError> {
    let own = stated.unwrap_or_else(|| default.into());
    if fits(&own) { Ok(own) } else { Err(ImageError(format!("media type {own:?} does not fit what it holds"))) }
}

fn check_layers(layers: &[Descriptor]) -> Result<(), ImageError> {
    if layers.len() > MAX_LAYERS {
        return Err(ImageError(format!("{} layers, at most {MAX_LAYERS} are read", layers.len())));
    }
    match layers.iter().find(|layer| media_type::is_foreign_layer(&layer.media_type)) {
        Some(layer) => Err(ImageError(format!("layer {} may not be distributed, so it is not fetched", layer.digest))),
        None => Ok(()),
    }
}

/// A `Content-Type` without its parameters.
fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests;
