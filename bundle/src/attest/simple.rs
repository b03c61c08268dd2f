//! cosign's simple signing: a payload that names a digest, and a signature of its bytes beside it.

use distribution::{Digest, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MAX_DOCUMENT;

/// The one value of `critical.type`.
const TYPE: &str = "cosign container image signature";

/// What is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimpleSigning {
    /// The manifest or index that it is about.
    pub digest: Digest,
}

#[derive(Deserialize, Serialize)]
struct AsWritten {
    critical: Critical,
    #[serde(default)]
    optional: Option<Value>,
}

#[derive(Deserialize, Serialize)]
struct Critical {
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

/// Where the image was when it was signed: it may be copied, so nothing is compared with it.
#[derive(Deserialize, Serialize)]
struct Identity {
    #[serde(rename = "docker-reference")]
    docker_reference: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    docker_manifest_digest: Digest,
}

impl SimpleSigning {
    /// Reads a payload.
    ///
    /// # Errors
    /// A sentence that says what is wrong; also for a key in other letters, as `Docker-manifest-digest`.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let written: AsWritten = json::strict(bytes, MAX_DOCUMENT)?;
        match written.critical.kind.as_str() {
            TYPE => Ok(Self { digest: written.critical.image.docker_manifest_digest }),
            other => Err(format!("a payload of type {other:?}, not {TYPE:?}")),
        }
    }

    /// Writes a payload, as cosign does for an image at `repository`.
    pub fn write(digest: &Digest, repository: &str) -> Vec<u8> {
        let written = AsWritten {
            critical: Critical {
                identity: Identity { docker_reference: repository.into() },
                image: Image { docker_manifest_digest: digest.clone() },
                kind: TYPE.into(),
            },
            optional: None,
        };
        serde_json::to_vec(&written).expect("strings always serialise")
    }
}
