//! The one part of an image configuration that matters here: which layers are already unpacked.

use serde::{Deserialize, Serialize};

use crate::{Algorithm, Digest, MAX_CONFIG, json};

/// Digests of the layers' tar streams, lowest first.
pub(crate) fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, String> {
    let config: Config = json::strict(config, MAX_CONFIG)?;
    match config.rootfs.diff_ids.iter().find(|diff_id| diff_id.algorithm() != Algorithm::Sha256) {
        Some(other) => Err(format!("a layer's content is named by {other}, and is compared by sha256 alone")),
        None => Ok(config.rootfs.diff_ids),
    }
}

/// The rules that a package's layers are unpacked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rules {
    /// For packages of smcp: what two tools could take for different things is refused.
    Strict,
    /// For all other images: what their tools write every day is taken as these tools take it, without ever reaching out of
    /// the layer.
    Lenient,
}

/// Names the tree that these layers, lowest first, make together by these rules, among the unpacked layers.
pub fn tree_id(diff_ids: &[Digest], rules: Rules) -> Digest {
    let kind = match rules {
        Rules::Strict => "smcp tree 2\n",
        Rules::Lenient => "smcp tree 2, lenient\n",
    };
    let lines = diff_ids.iter().map(|diff_id| format!("{diff_id}\n"));
    Digest::of(std::iter::once(kind.to_owned()).chain(lines).collect::<String>())
}

#[derive(Deserialize)]
struct Config {
    rootfs: Rootfs,
}

#[derive(Deserialize)]
struct Rootfs {
    diff_ids: Vec<Digest>,
}
