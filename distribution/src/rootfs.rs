//! The one part of an image configuration that matters here: which layers are already unpacked.

use serde::Deserialize;

use crate::{Digest, MAX_CONFIG, json};

/// Digests of the layers' tar streams, lowest first.
pub(crate) fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, String> {
    let config: Config = json::strict(config, MAX_CONFIG)?;
    Ok(config.rootfs.diff_ids)
}

/// Names the tree that these layers make together, lowest first, among the unpacked layers. One layer is its own tree.
pub fn tree_id(diff_ids: &[Digest]) -> Digest {
    if let [only] = diff_ids {
        return only.clone();
    }
    let lines = diff_ids.iter().map(|diff_id| format!("{diff_id}\n"));
    Digest::of(std::iter::once("smcp tree 1\n".to_owned()).chain(lines).collect::<String>())
}

#[derive(Deserialize)]
struct Config {
    rootfs: Rootfs,
}

#[derive(Deserialize)]
struct Rootfs {
    diff_ids: Vec<Digest>,
}
