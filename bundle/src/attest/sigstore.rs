//! sigstore's bundle v0.3 in JSON: an envelope, and what it is verified by. With a key it needs no transparency log.

use distribution::json;
use ring::digest::{SHA256, digest};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::dsse::{AsWritten as DsseEnvelope, Envelope};
use super::keys::PublicKey;
use super::{MAX_DOCUMENT, to_base64};

pub use distribution::media_type::SIGSTORE_BUNDLE as BUNDLE;
/// The same as it was written before 0.3 was final.
const BUNDLE_BEFORE: &str = "application/vnd.dev.sigstore.bundle+json;version=0.3";

/// A bundle whose signatures nobody has looked at yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bundle {
    /// To be verified by a key that the verifier has.
    Key(Envelope),
    /// To be verified by a trust root, which a certificate leads to.
    Certificate(Envelope),
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct AsWritten {
    media_type: String,
    verification_material: Material,
    #[serde(skip_serializing_if = "Option::is_none")]
    dsse_envelope: Option<DsseEnvelope>,
    #[serde(default, skip_serializing)]
    message_signature: Option<IgnoredAny>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Material {
    #[serde(skip_serializing_if = "Option::is_none")]
    public_key: Option<Hint>,
    #[serde(default, skip_serializing)]
    certificate: Option<IgnoredAny>,
    #[serde(default, skip_serializing)]
    x509_certificate_chain: Option<IgnoredAny>,
}

#[derive(Deserialize, Serialize)]
struct Hint {
    #[serde(default)]
    hint: String,
}

impl Bundle {
    /// Reads one in JSON.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let written: AsWritten = json::strict(bytes, MAX_DOCUMENT)?;
        if ![BUNDLE, BUNDLE_BEFORE].contains(&written.media_type.as_str()) {
            return Err(format!("a bundle of type {:?}, only version 0.3 is read", written.media_type));
        }
        let envelope = match (written.dsse_envelope, written.message_signature) {
            (Some(envelope), None) => envelope.try_into()?,
            (None, Some(_)) => {
                return Err("a bundle with a bare signature, only those with an envelope are read".into());
            }
            _ => return Err("a bundle with neither or both of envelope and signature".into()),
        };
        let Material { public_key, certificate, x509_certificate_chain } = written.verification_material;
        match (public_key, certificate.is_some() || x509_certificate_chain.is_some()) {
            (Some(_), false) => Ok(Self::Key(envelope)),
            (None, true) => Ok(Self::Certificate(envelope)),
            _ => Err("a bundle with neither or both of key and certificate".into()),
        }
    }

    /// Writes one around an envelope that `key` signed. The hint is what cosign writes: a hash of the key.
    pub fn write(envelope: &Envelope, key: &PublicKey) -> Vec<u8> {
        let hint = to_base64(digest(&SHA256, key.spki()).as_ref());
        let written = AsWritten {
            media_type: BUNDLE.into(),
            verification_material: Material {
                public_key: Some(Hint { hint }),
                certificate: None,
                x509_certificate_chain: None,
            },
            dsse_envelope: Some(envelope.as_written()),
            message_signature: None,
        };
        serde_json::to_vec(&written).expect("strings always serialise")
    }

    /// The envelope.
    pub fn envelope(&self) -> &Envelope {
        match self {
            Self::Key(envelope) | Self::Certificate(envelope) => envelope,
        }
    }
}
