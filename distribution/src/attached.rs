//! Signatures and attestations that lie beside a manifest or index: found in a registry or layout, and put there. What they say and
//! whether they are true is not looked at here.
//!
//! | place | holds |
//! |---|---|
//! | referrers of artifact type [`SIGSTORE_BUNDLE`] | one bundle each |
//! | tag `sha256-<hex>.sig` | payloads of cosign, each with its signature |
//! | tag `sha256-<hex>.att` | DSSE envelopes |

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::media_type::{DSSE_ENVELOPE, OCI_CONFIG, OCI_EMPTY, OCI_MANIFEST, SIGSTORE_BUNDLE, SIMPLE_SIGNING};
use crate::push::publish;
use crate::registry::Sources;
use crate::source::{open_blob, read_manifest};
use crate::{
    Descriptor, Digest, Error, ImageManifest, Kind, LayoutRef, Name, Network, Reference, Resolved, Result, Selector,
    Source, Store, layout,
};

/// The largest document that is read, in bytes.
pub const MAX_ATTACHMENT: usize = 1 << 20;
/// The most bytes of all of them about one digest.
pub(crate) const MAX_ALL: usize = 8 << 20;
/// The most documents about one digest. What has more cannot be judged, since one of them could be a revocation.
const MAX_COUNT: usize = 64;
/// The largest manifest in a layout that may be one of a bundle, in bytes.
const MAX_CARRIER: u64 = 64 << 10;
/// How often a list that others write, too, is written again.
pub(crate) const ATTEMPTS: u32 = 5;
/// The annotation of a layer with cosign's signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attachment {
    /// How to read it.
    pub form: AttachmentForm,
    /// JSON.
    pub text: String,
}

/// In which form something is said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachmentForm {
    /// A payload of cosign's, with its signature in base64.
    SimpleSigning(String),
    /// A DSSE envelope.
    Envelope,
    /// A bundle of sigstore's.
    Bundle,
}

/// All that lay beside one digest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachments {
    /// When they were listed, in seconds since 1970.
    pub listed_at: u64,
    /// What was found.
    pub found: Vec<Attachment>,
    /// What is listed and could not be read: what, and why.
    pub left_out: Vec<(String, String)>,
}

impl Attachment {
    /// What it is called, as `signature sha256:…`.
    pub fn name(&self) -> String {
        let kind = if matches!(self.form, AttachmentForm::SimpleSigning(_)) { "signature" } else { "attestation" };
        format!("{kind} {}", Digest::of(&self.text))
    }
}

/// Finds what lies beside `about`, the index or manifest of an image, at the place that the image is from.
///
/// # Errors
/// As [`crate::resolve`], where it cannot be listed, or is more than is read.
pub fn attachments(resolved: &Resolved, about: &Digest, net: &Network) -> Result<Attachments> {
    let found = match &resolved.source {
        Source::Layout(dir) => of_layout(dir, about),
        Source::Registry { .. } if net.mode == crate::Mode::Offline => {
            return Err(Error::Offline(format!("what signs {}", resolved.reference)));
        }
        Source::Registry { host, repository } => {
            let sources = resolved.way.to(host, repository, net);
            match of_registry(sources, about) {
                // A hub has no place for signatures.
                Err(error) if error.kind() == Kind::Resolve && !sources.speak_distribution() => Ok(Gathered::default()),
                found => found,
            }
        }
    }?;
    let listed_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Attachments { listed_at, found: found.found, left_out: found.left_out })
}

fn of_registry(sources: &Sources, about: &Digest) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let blob = |descriptor: &Descriptor| read_some(sources.blob(descriptor)?, descriptor);
    let bundles = sources.referrers(about, Some(SIGSTORE_BUNDLE))?;
    gathered.leave_room_for(about, bundles.len())?;
    for descriptor in bundles {
        match sources.manifest(descriptor.digest.as_str()) {
            Ok((_, bytes)) => gathered.bundle(about, &descriptor.digest, &bytes, &blob)?,
            Err(Error::NotFound { .. }) => gathered.leave_out(&descriptor.digest, "it is listed, and is not there"),
            Err(error) => return Err(error),
        }
    }
    for kind in [".sig", ".att"].into_iter().filter(|kind| is_a_tag(&tag(about, kind))) {
        match sources.manifest(&tag(about, kind)) {
            Ok((_, bytes)) => gathered.layers(about, &bytes, &blob)?,
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(gathered)
}

fn of_layout(dir: &Path, about: &Digest) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let blob = |descriptor: &Descriptor| read_some(open_blob(dir, descriptor)?, descriptor);
    let names = [".sig", ".att"].map(|kind| tag(about, kind));
    for entry in layout::read_index(dir)? {
        let named = layout::name_of(&entry);
        if named.is_some_and(|name| names.iter().any(|wanted| wanted == name)) {
            gathered.layers(about, &read_manifest(dir, &entry)?, &blob)?;
        } else if may_carry_a_bundle(&entry) {
            let bytes = read_manifest(dir, &entry)?;
            // Other tools leave the artifact type out of the index.
            let carries = ImageManifest::parse(&bytes).is_ok_and(|manifest| {
                manifest.artifact_type.as_deref() == Some(SIGSTORE_BUNDLE)
                    && manifest.subject.is_some_and(|subject| subject.digest == *about)
            });
            if carries {
                gathered.leave_room_for(about, 1)?;
                gathered.bundle(about, &entry.digest, &bytes, &blob)?;
            }
        }
    }
    Ok(gathered)
}

fn may_carry_a_bundle(entry: &Descriptor) -> bool {
    let kind = entry.artifact_type.as_deref();
    entry.media_type == OCI_MANIFEST && entry.size <= MAX_CARRIER && kind.is_none_or(|kind| kind == SIGSTORE_BUNDLE)
}

/// At most as much as a descriptor promises.
fn read_some(reader: impl Read, descriptor: &Descriptor) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = reader.take(descriptor.size + 1).read_to_end(&mut bytes);
    read.map_err(|source| Error::Broken { digest: descriptor.digest.clone(), source })?;
    Ok(bytes)
}

#[derive(Default)]
struct Gathered {
    found: Vec<Attachment>,
    left_out: Vec<(String, String)>,
    bytes: usize,
}

type ReadBlob<'a> = &'a dyn Fn(&Descriptor) -> Result<Vec<u8>>;

impl Gathered {
    /// The manifest of a bundle.
    fn bundle(&mut self, about: &Digest, digest: &Digest, manifest: &[u8], blob: ReadBlob<'_>) -> Result<()> {
        if !digest.is_of(manifest) {
            self.leave_out(digest, "its content has another digest");
            return Ok(());
        }
        let manifest = match ImageManifest::parse(manifest) {
            Ok(manifest) => manifest,
            Err(why) => {
                self.leave_out(digest, &why.to_string());
                return Ok(());
            }
        };
        if manifest.subject.is_none_or(|subject| subject.digest != *about) {
            self.leave_out(digest, "it is listed here, and is about another digest");
            return Ok(());
        }
        match &manifest.layers[..] {
            [layer] if layer.media_type == SIGSTORE_BUNDLE => self.take(about, layer, AttachmentForm::Bundle, blob),
            _ => {
                self.leave_out(digest, "it does not hold one bundle of version 0.3");
                Ok(())
            }
        }
    }

    /// The manifest of a tag: one document a layer.
    fn layers(&mut self, about: &Digest, manifest: &[u8], blob: ReadBlob<'_>) -> Result<()> {
        let manifest = ImageManifest::parse(manifest).map_err(Error::image(format!("what signs {about}")))?;
        self.leave_room_for(about, manifest.layers.len())?;
        for layer in &manifest.layers {
            match (layer.media_type.as_str(), layer.annotations.get(SIGNATURE)) {
                (SIMPLE_SIGNING, Some(signature)) => {
                    self.take(about, layer, AttachmentForm::SimpleSigning(signature.clone()), blob)?;
                }
                (DSSE_ENVELOPE, _) => self.take(about, layer, AttachmentForm::Envelope, blob)?,
                _ => self.leave_out(&layer.digest, "it is neither a signature of cosign nor a DSSE envelope"),
            }
        }
        Ok(())
    }

    fn take(&mut self, about: &Digest, layer: &Descriptor, form: AttachmentForm, blob: ReadBlob<'_>) -> Result<()> {
        if layer.size > MAX_ATTACHMENT as u64 {
            self.leave_out(&layer.digest, &format!("{} bytes, at most {MAX_ATTACHMENT} are read", layer.size));
            return Ok(());
        }
        self.bytes += layer.size as usize;
        if self.bytes > MAX_ALL {
            return Err(too_much(about, format!("more than {MAX_ALL} bytes")));
        }
        match blob(layer) {
            Ok(bytes) if !layer.digest.is_of(&bytes) => {
                self.leave_out(&layer.digest, "its content has another digest");
            }
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => self.found.push(Attachment { form, text }),
                Err(_) => self.leave_out(&layer.digest, "it is no text"),
            },
            Err(Error::NotFound { .. }) => self.leave_out(&layer.digest, "it is listed, and is not there"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn leave_room_for(&self, about: &Digest, more: usize) -> Result<()> {
        match self.found.len() + self.left_out.len() + more {
            ..=MAX_COUNT => Ok(()),
            many => Err(too_much(about, format!("{many} documents, at most {MAX_COUNT} are read"))),
        }
    }

    fn leave_out(&mut self, digest: &Digest, why: &str) {
        self.left_out.push((digest.to_string(), why.into()));
    }
}

fn too_much(about: &Digest, why: String) -> Error {
    Error::Verification { what: format!("the signatures and attestations of {about}"), why }
}

/// Puts a bundle beside an image, at the place that the image is from: a referrer of its digest. Gives the manifest's digest.
///
/// # Errors
/// As [`crate::push`].
pub fn attach_bundle(
    resolved: &Resolved,
    bundle: &[u8],
    annotations: BTreeMap<String, String>,
    store: &Store,
    net: &Network,
) -> Result<Digest> {
    let _turn = store.turn_beside(&resolved.descriptor.digest)?;
    let mut parts = Beside::new(resolved, store, net)?;
    let config = parts.put(b"{}", OCI_EMPTY)?;
    let layer = parts.put(bundle, SIGSTORE_BUNDLE)?;
    let mut manifest = ImageManifest::new(config, vec![layer]);
    manifest.artifact_type = Some(SIGSTORE_BUNDLE.into());
    manifest.subject = Some(resolved.descriptor.bare());
    manifest.annotations = annotations;
    parts.publish(&manifest, None)
}

/// Puts a payload of cosign's and its signature beside an image: one more layer of what the tag `sha256-<hex>.sig` names. Gives
/// that tag.
///
/// Who signs by the same store waits for its turn. No registry compares before it writes: whether somebody else wrote
/// in between is seen by reading the tag again, and what was lost is added again.
///
/// # Errors
/// As [`crate::push`], and [`Error::Contended`] where others write all the time.
pub fn attach_signature(
    resolved: &Resolved,
    payload: &[u8],
    signature: &str,
    store: &Store,
    net: &Network,
) -> Result<String> {
    let tag = tag(&resolved.descriptor.digest, ".sig");
    if !is_a_tag(&tag) && matches!(resolved.source, Source::Registry { .. }) {
        let why = "cosign's tag for it would be longer than tags may be".into();
        return Err(Error::Verification { what: resolved.descriptor.digest.to_string(), why });
    }
    let _turn = store.turn_beside(&resolved.descriptor.digest)?;
    let mut parts = Beside::new(resolved, store, net)?;
    let mut own = parts.put(payload, SIMPLE_SIGNING)?;
    own.annotations.insert(SIGNATURE.into(), signature.into());
    let mut wanted = vec![own];
    for _ in 0..ATTEMPTS {
        let mut layers = parts.layers_of(&tag)?;
        let lost: Vec<_> = wanted.iter().filter(|layer| !layers.contains(layer)).cloned().collect();
        layers.extend(lost);
        // As an image has it, which cosign's tags are to registries.
        let diff_ids: Vec<_> = layers.iter().map(|layer| &layer.digest).collect();
        let config = serde_json::json!({
            "architecture": "", "os": "", "config": {}, "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = parts.put(config.to_string().as_bytes(), OCI_CONFIG)?;
        parts.publish(&ImageManifest::new(config, layers.clone()), Some(&tag))?;
        let there = parts.layers_of(&tag)?;
        if layers.iter().all(|layer| there.contains(layer)) {
            return Ok(tag);
        }
        wanted = layers;
    }
    Err(Error::Contended { what: format!("the tag {tag}"), attempts: ATTEMPTS })
}

/// What is going to lie beside an image: in the store for as long as this lives.
struct Beside<'a> {
    resolved: &'a Resolved,
    store: &'a Store,
    net: &'a Network,
    /// What is there by now is read where it is written: a mirror may be behind.
    origin: Option<Sources>,
    put: Vec<Descriptor>,
    _lease: crate::Lease,
}

impl<'a> Beside<'a> {
    fn new(resolved: &'a Resolved, store: &'a Store, net: &'a Network) -> Result<Self> {
        if let Source::Registry { host, repository } = &resolved.source
            && net.mode != crate::Mode::Offline
            && !resolved.way.to(host, repository, net).speak_distribution()
        {
            let why = "it is a hub, which has no place for signatures".into();
            return Err(Error::Unreachable { host: host.clone(), why });
        }
        let origin = match &resolved.source {
            Source::Registry { host, repository } if net.mode == crate::Mode::Offline => {
                return Err(Error::Offline(format!("{host}/{repository}")));
            }
            Source::Registry { host, repository } => Some(Sources::origin(host, repository, &net.access)),
            Source::Layout(_) => None,
        };
        Ok(Self { resolved, store, net, origin, put: Vec::new(), _lease: store.lease()? })
    }

    fn put(&mut self, bytes: &[u8], media_type: &str) -> Result<Descriptor> {
        let known = self.store.contains(&Descriptor::new(media_type, Digest::of(bytes), bytes.len() as u64));
        let descriptor = self.store.put(bytes, media_type)?;
        if !known {
            self.put.push(descriptor.clone());
        }
        Ok(descriptor)
    }

    /// The layers that a tag has by now, brought into the store.
    fn layers_of(&mut self, tag: &str) -> Result<Vec<Descriptor>> {
        let Some(bytes) = self.manifest_of(tag)? else { return Ok(Vec::new()) };
        let manifest = ImageManifest::parse(&bytes).map_err(Error::image(tag))?;
        for layer in &manifest.layers {
            if layer.size > MAX_ATTACHMENT as u64 {
                return Err(too_much(&self.resolved.descriptor.digest, format!("a layer of {} bytes", layer.size)));
            }
            if self.store.contains(layer) {
                continue;
            }
            let bytes = match (&self.resolved.source, &self.origin) {
                (Source::Layout(dir), _) => read_some(open_blob(dir, layer)?, layer)?,
                (_, Some(origin)) => read_some(origin.blob(layer)?, layer)?,
                (Source::Registry { .. }, None) => unreachable!("a registry has an origin"),
            };
            self.put(&bytes, &layer.media_type)?;
        }
        Ok(manifest.layers)
    }

    fn manifest_of(&self, tag: &str) -> Result<Option<Vec<u8>>> {
        match (&self.resolved.source, &self.origin) {
            (Source::Layout(dir), _) => {
                let named = |entry: &Descriptor| layout::name_of(entry) == Some(tag);
                let entry = layout::read_index(dir)?.into_iter().find(named);
                entry.map(|entry| read_manifest(dir, &entry)).transpose()
            }
            (_, Some(origin)) => match origin.manifest(tag) {
                Err(Error::NotFound { .. }) => Ok(None),
                found => found.map(|(_, bytes)| Some(bytes)),
            },
            (Source::Registry { .. }, None) => unreachable!("a registry has an origin"),
        }
    }

    fn publish(&mut self, manifest: &ImageManifest, tag: Option<&str>) -> Result<Digest> {
        let bytes = manifest.to_bytes();
        let mut descriptor = self.put(&bytes, OCI_MANIFEST)?;
        descriptor.artifact_type = manifest.artifact_type.clone();
        let selector = tag.map_or(Selector::Digest(descriptor.digest.clone()), |tag| Selector::Tag(tag.into()));
        let target = match self.resolved.source.clone() {
            Source::Layout(dir) => Reference::OciLayout(LayoutRef { dir, reference: Some(selector) }),
            Source::Registry { host, repository } => {
                Reference::Registry(Name { registry: Some(host), repository, selector })
            }
        };
        publish(self.store, &descriptor, &target, self.net)?;
        Ok(descriptor.digest)
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.put.iter().for_each(|descriptor| self.store.drop_blob(descriptor));
    }
}

/// The tag of what is beside a digest, as cosign has it; one of SHA-512 is longer than tags may be, so registries know none.
fn tag(about: &Digest, kind: &str) -> String {
    format!("{}-{}{kind}", about.algorithm().name(), about.hex())
}

/// Whether it is short enough for a registry, by the distribution specification.
fn is_a_tag(text: &str) -> bool {
    text.len() <= 128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_the_same_after_it_was_kept() {
        let found = [AttachmentForm::SimpleSigning("AAAA".into()), AttachmentForm::Envelope, AttachmentForm::Bundle]
            .map(|form| Attachment { form, text: "{\"a\":\"\\n\"}".into() });
        let kept = Attachments { listed_at: 7, found: found.into(), left_out: vec![("a".into(), "b".into())] };
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Attachments>(&text).unwrap(), kept);
    }
}
