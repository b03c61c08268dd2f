//! Signatures and attestations about a digest, read and written. Pure but for [`look_up`]: bytes and keys in, values out; the time is given.
//!
//! | form | read | written |
//! |---|---|---|
//! | cosign's simple signing, a payload and its signature | yes | yes |
//! | sigstore bundle v0.3, a DSSE envelope with an in-toto statement | yes | yes |
//! | DSSE envelope alone, as cosign 2 has it | yes | no |
//!
//! A signature is compared before anything of what it signs is understood. What grants something, a certification, is read strictly:
//! an unknown key could be a condition. What takes something away, a revocation, is read leniently: it must not be lost.

mod builder;
mod dsse;
#[cfg_attr(not(feature = "keyless"), path = "no_keyless.rs")]
mod keyless;
mod keys;
mod lookup;
mod sealed;
mod sigstore;
mod simple;
mod statement;
#[cfg(test)]
mod tests;
mod verify;

pub use builder::Builder;
pub use distribution::{Attachment as Item, AttachmentForm as Form};
pub use dsse::{Envelope, pae};
pub use keyless::Root;
pub use keys::{KeyError, KeyKind, PublicKey, SigningKey, TrustedKey};
pub use lookup::{Trust, look_up};
pub use sigstore::{BUNDLE, Bundle};
pub use simple::SimpleSigning;
pub use statement::{CERTIFICATION, IMAGE_SIGNATURE, IN_TOTO, REVOCATION, Statement, certification, revocation};
pub use verify::{Outcome, Said, Signers, TrustedIdentity, Word, read, verify};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// The largest document that is read, in bytes.
pub const MAX_DOCUMENT: usize = 1 << 20;

/// Bytes of base64, in either alphabet, with padding: both occur in DSSE.
fn from_base64(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).map_err(|why| format!("not base64: {why}"))
}

/// Bytes as base64, as signatures are written.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
