//! Keys that sign: ECDSA over P-256 with SHA-256, and Ed25519, in PEM.

use std::fmt;
use std::path::PathBuf;

use distribution::{Digest, Secret};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ED25519, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    UnparsedPublicKey,
};

use super::{from_base64, sealed, to_base64};

/// The largest key file that is read, in bytes.
const MAX_KEY: usize = 64 << 10;
/// SubjectPublicKeyInfo in DER up to the key itself, RFC 5480: a point of P-256, not compressed. DER has one form for it.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The same for Ed25519, RFC 8410.
const ED25519_PUBLIC: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// PKCS#8 of a seed of Ed25519 up to the seed, RFC 8410.
const ED25519_PRIVATE: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Which algorithm a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// ECDSA over P-256 with SHA-256; signatures in DER.
    EcdsaP256,
    /// Ed25519.
    Ed25519,
}

/// A key that signatures are compared with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey {
    kind: KeyKind,
    /// SubjectPublicKeyInfo in DER.
    spki: Vec<u8>,
}

/// A key and the file that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKey {
    /// As the configuration names it.
    pub file: PathBuf,
    /// What it holds.
    pub key: PublicKey,
}

/// A key that makes signatures. Shows nothing of itself.
pub struct SigningKey {
    pair: Pair,
    /// PKCS#8.
    pkcs8: Vec<u8>,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// Why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// What is in the file.
    #[error("{0}")]
    Form(String),
    /// It is encrypted, and there is no passphrase.
    #[error("the key is encrypted, and no passphrase was given")]
    Encrypted,
    /// It is encrypted by another passphrase, or was changed.
    #[error("the passphrase does not open the key")]
    Passphrase,
}

impl PublicKey {
    /// Reads `PUBLIC KEY` in PEM.
    ///
    /// # Errors
    /// For any other content, and for keys of other algorithms.
    pub fn from_pem(bytes: &[u8]) -> Result<Self, KeyError> {
        let (label, spki) = from_pem(bytes)?;
        match label.as_str() {
            "PUBLIC KEY" => Self::from_spki(spki),
            other => Err(form(format!("it holds {other:?} where a PUBLIC KEY must be"))),
        }
    }

    /// Reads a SubjectPublicKeyInfo in DER.
    ///
    /// # Errors
    /// For keys of other algorithms.
    pub fn from_spki(spki: Vec<u8>) -> Result<Self, KeyError> {
        let kind = if spki.starts_with(&P256) && spki.len() == P256.len() + 65 && spki[P256.len()] == 4 {
            KeyKind::EcdsaP256
        } else if spki.starts_with(&ED25519_PUBLIC) && spki.len() == ED25519_PUBLIC.len() + 32 {
            KeyKind::Ed25519
        } else {
            return Err(form("the key is neither of ECDSA P-256 nor of Ed25519".into()));
        };
        Ok(Self { kind, spki })
    }

    /// The same as PEM.
    pub fn to_pem(&self) -> String {
        to_pem("PUBLIC KEY", &self.spki)
    }

    /// Its SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Digest of [`PublicKey::spki`], which tells keys apart.
    pub fn fingerprint(&self) -> Digest {
        Digest::of(&self.spki)
    }

    /// Which algorithm it is for.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Whether `signature` is this key's of `message`.
    pub fn signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let checked = match self.kind {
            KeyKind::EcdsaP256 => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.spki[P256.len()..]).verify(message, signature)
            }
            KeyKind::Ed25519 => {
                UnparsedPublicKey::new(&ED25519, &self.spki[ED25519_PUBLIC.len()..]).verify(message, signature)
            }
        };
        checked.is_ok()
    }
}

impl SigningKey {
    /// A new key.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn generate(kind: KeyKind) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let no_random = |_| form("the system gives no random bytes".into());
        let pkcs8 = match kind {
            KeyKind::EcdsaP256 => EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
                .map_err(no_random)?
                .as_ref()
                .to_vec(),
            KeyKind::Ed25519 => {
                // Of a seed alone: what ring writes holds the public key as well, and OpenSSL 3 does not read that.
                let mut seed = [0; 32];
                random.fill(&mut seed).map_err(no_random)?;
                [&ED25519_PRIVATE[..], &seed].concat()
            }
        };
        Self::from_pkcs8(pkcs8)
    }

    /// Reads a private key: `PRIVATE KEY` (PKCS#8), or cosign's encrypted form of it.
    ///
    /// # Errors
    /// For any other content, and where it is encrypted and the passphrase is missing or wrong.
    pub fn from_pem(bytes: &[u8], passphrase: Option<&Secret>) -> Result<Self, KeyError> {
        let (label, content) = from_pem(bytes)?;
        match label.as_str() {
            "PRIVATE KEY" => Self::from_pkcs8(content),
            "ENCRYPTED SIGSTORE PRIVATE KEY" | "ENCRYPTED COSIGN PRIVATE KEY" => {
                Self::from_pkcs8(sealed::open(&content, passphrase.ok_or(KeyError::Encrypted)?)?)
            }
            "EC PRIVATE KEY" => Err(form(
                "it holds an EC PRIVATE KEY; PKCS#8 is read, as `openssl pkcs8 -topk8 -nocrypt` writes it".into(),
            )),
            other => Err(form(format!("it holds {other:?} where a PRIVATE KEY must be"))),
        }
    }

    /// The key in PEM, encrypted as cosign does where a passphrase is given.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn to_pem(&self, passphrase: Option<&Secret>) -> Result<Secret, KeyError> {
        Ok(Secret::new(match passphrase {
            None => to_pem("PRIVATE KEY", &self.pkcs8),
            Some(passphrase) => to_pem("ENCRYPTED SIGSTORE PRIVATE KEY", &sealed::seal(&self.pkcs8, passphrase)?),
        }))
    }

    /// Whether a file of a private key has to be opened with a passphrase.
    pub fn is_encrypted(bytes: &[u8]) -> bool {
        from_pem(bytes).is_ok_and(|(label, _)| label.starts_with("ENCRYPTED "))
    }

    /// The key that its signatures are compared with.
    pub fn public(&self) -> PublicKey {
        let (kind, start, key) = match &self.pair {
            Pair::Ecdsa(pair) => (KeyKind::EcdsaP256, &P256[..], pair.public_key().as_ref()),
            Pair::Ed25519(pair) => (KeyKind::Ed25519, &ED25519_PUBLIC[..], pair.public_key().as_ref()),
        };
        PublicKey { kind, spki: [start, key].concat() }
    }

    /// A signature of `message`.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        match &self.pair {
            Pair::Ecdsa(pair) => pair
                .sign(&SystemRandom::new(), message)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|_| form("the system gives no random bytes".into())),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
        }
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Self, KeyError> {
        let ecdsa = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8, &SystemRandom::new());
        let pair = match ecdsa {
            Ok(pair) => Pair::Ecdsa(pair),
            Err(_) => {
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&pkcs8);
                let other = |_| form("the key is neither of ECDSA P-256, with its public part, nor of Ed25519".into());
                Pair::Ed25519(pair.map_err(other)?)
            }
        };
        Ok(Self { pair, pkcs8 })
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.fingerprint())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "private key of {:?}", self.public())
    }
}

/// The label and content of the one block that a file holds.
fn from_pem(bytes: &[u8]) -> Result<(String, Vec<u8>), KeyError> {
    let no_pem = || form("it is not one key in PEM".into());
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_KEY).ok_or_else(no_pem)?;
    let (label, rest) =
        text.trim().strip_prefix("-----BEGIN ").and_then(|rest| rest.split_once("-----")).ok_or_else(no_pem)?;
    let content = rest.strip_suffix(&format!("-----END {label}-----")).ok_or_else(no_pem)?;
    let content: String = content.split_ascii_whitespace().collect();
    Ok((label.into(), from_base64(&content).map_err(|_| no_pem())?))
}

fn to_pem(label: &str, content: &[u8]) -> String {
    let text = to_base64(content);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn form(why: String) -> KeyError {
    KeyError::Form(why)
}
