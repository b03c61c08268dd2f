//! The one part of an image configuration that matters here: which layers are already unpacked.

use serde::Deserialize;

use crate::{Digest, MAX_CONFIG, json};

/// Digests of the layers' tar streams, lowest first.
pub(crate) fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, String> {
    let config: Config = json::strict(config, MAX_CONFIG)?;
    Ok(config.rootfs.diff_ids)
}

#[derive(Deserialize)]
struct Config {
    rootfs: Rootfs,
}

#[derive(Deserialize)]
struct Rootfs {
    diff_ids: Vec<Digest>,
}
