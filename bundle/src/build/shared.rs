//! Layers that many packages share: made once for the same inputs, then reused by digest.
//!
//! Each is remembered in the store as an image of that one layer, so that the store's own rules (what a name keeps
//! alive, what a removal removes) hold for it without a word about layers.

use std::path::PathBuf;

use distribution::{Descriptor, Digest, ImageManifest, Rules, Staging, Store, media_type};

use super::error::BuildError;
use super::{Job, image};
use crate::config::ImageConfig;
use crate::pack::PackedLayer;
use crate::unpack::{self, Below, Order, in_this_process};

/// One layer that packages have in common.
#[derive(Debug, Clone)]
pub(super) struct SharedLayer {
    pub(super) packed: PackedLayer,
    /// What it was made of, for an annotation: names with versions.
    pub(super) contents: String,
}

/// The layer for these `inputs` (one line each: whatever changes its bytes), from the store or else by `make`.
pub(super) fn layer(
    job: &Job,
    kind: &str,
    inputs: &str,
    contents: String,
    make: impl FnOnce() -> Result<PackedLayer, BuildError>,
) -> Result<SharedLayer, BuildError> {
    let name = format!("smcp.internal/{kind}@{}", Digest::of(inputs.as_bytes()));
    if !job.options.refresh
        && let Some(packed) = recall(job.store, &name)?
    {
        job.say(format!("{kind}: reusing {}", packed.descriptor.digest));
        return Ok(SharedLayer { packed, contents });
    }
    let packed = make()?;
    let manifest = image::of_layer(job.store, &packed)?;
    job.store.remember(&name, &manifest)?;
    job.say(format!("{kind}: made {}", packed.descriptor.digest));
    Ok(SharedLayer { packed, contents })
}

/// The layer's files, unpacked in the store.
pub(super) fn unpacked(store: &Store, layer: &PackedLayer) -> Result<PathBuf, BuildError> {
    let staged = match store.stage_layer(&layer.diff_id)? {
        Staging::Present(dir) => return Ok(dir),
        Staging::Empty(staged) => staged,
    };
    let digest = &layer.descriptor.digest;
    let missing = || BuildError::answer("store", format!("layer {digest} vanished"));
    let blob = store.blob(&layer.descriptor)?.ok_or_else(missing)?;
    let order = Order { media_type: layer.descriptor.media_type.clone(), rules: Rules::Strict, below: Below::Nothing };
    unpack::unpack(&blob, &layer.diff_id, &staged, &order, &in_this_process)
        .map_err(|source| BuildError::Unpack { digest: digest.clone(), source })?;
    Ok(staged.commit()?)
}

/// A remembered layer whose blob is still there; anything else is as good as none.
fn recall(store: &Store, name: &str) -> Result<Option<PackedLayer>, BuildError> {
    let Some(remembered) = store.recall(name)? else { return Ok(None) };
    let Some(manifest) = read(store, &remembered.descriptor)? else { return Ok(None) };
    let Ok(manifest) = ImageManifest::parse(&manifest) else { return Ok(None) };
    let Some(config) = read(store, &manifest.config)? else { return Ok(None) };
    let Ok(config) = ImageConfig::parse(&config) else { return Ok(None) };
    let ([descriptor], [diff_id]) = (&manifest.layers[..], &config.rootfs.diff_ids[..]) else { return Ok(None) };
    let usable = descriptor.media_type == media_type::LAYER_TAR_ZSTD && store.contains(descriptor);
    Ok(usable.then(|| PackedLayer { descriptor: descriptor.clone(), diff_id: diff_id.clone() }))
}

fn read(store: &Store, descriptor: &Descriptor) -> Result<Option<Vec<u8>>, BuildError> {
    Ok(store.blob(descriptor)?.map(|blob| blob.bytes()).transpose()?)
}
