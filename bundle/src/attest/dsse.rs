//! DSSE: an envelope around bytes, their type and signatures of both, <https://github.com/secure-systems-lab/dsse>.

use distribution::json;
use serde::{Deserialize, Serialize};

use super::keys::{KeyError, PublicKey, SigningKey};
use super::{MAX_DOCUMENT, from_base64, to_base64};

/// The most signatures that are looked at.
const MAX_SIGNATURES: usize = 16;

/// An envelope whose signatures nobody has looked at yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// What the payload is.
    pub payload_type: String,
    /// What is signed, together with its type.
    pub payload: Vec<u8>,
    /// Signatures of [`pae`]. Their `keyid` is a hint, and not read.
    pub signatures: Vec<Vec<u8>>,
}

/// As it is written. Unknown keys are left out, as DSSE demands: nothing here counts but what is signed.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AsWritten {
    payload: String,
    payload_type: String,
    signatures: Vec<Signature>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Signature {
    sig: String,
    /// Always empty where smcp writes it: sigstore-go refuses any other in a bundle.
    #[serde(default)]
    keyid: Option<String>,
}

/// What is signed: type and payload with their lengths, so that no two pairs have the same bytes.
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

impl Envelope {
    /// Reads one in JSON.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        json::strict::<AsWritten>(bytes, MAX_DOCUMENT)?.try_into()
    }

    /// Signs a payload.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn sign(payload_type: &str, payload: Vec<u8>, key: &SigningKey) -> Result<Self, KeyError> {
        let signature = key.sign(&pae(payload_type, &payload))?;
        Ok(Self { payload_type: payload_type.into(), payload, signatures: vec![signature] })
    }

    /// Whether a key signed it.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let message = pae(&self.payload_type, &self.payload);
        self.signatures.iter().any(|signature| key.signed(&message, signature))
    }

    pub(super) fn as_written(&self) -> AsWritten {
        let signature = |bytes: &Vec<u8>| Signature { sig: to_base64(bytes), keyid: Some(String::new()) };
        AsWritten {
            payload: to_base64(&self.payload),
            payload_type: self.payload_type.clone(),
            signatures: self.signatures.iter().map(signature).collect(),
        }
    }
}

impl TryFrom<AsWritten> for Envelope {
    type Error = String;

    fn try_from(written: AsWritten) -> Result<Self, String> {
        let signatures = match written.signatures.len() {
            0 => return Err("an envelope without a signature".into()),
            1..=MAX_SIGNATURES => written.signatures.iter().map(|signature| from_base64(&signature.sig)),
            many => return Err(format!("an envelope with {many} signatures, at most {MAX_SIGNATURES} are looked at")),
        };
        Ok(Self {
            signatures: signatures.collect::<Result<_, _>>()?,
            payload: from_base64(&written.payload)?,
            payload_type: written.payload_type,
        })
    }
}
