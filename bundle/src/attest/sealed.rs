//! cosign's encrypted private key file: scrypt makes a key of the passphrase, NaCl's secretbox seals the PKCS#8 by it.

use crypto_secretbox::XSalsa20Poly1305;
use crypto_secretbox::aead::{Aead, KeyInit};
use distribution::{Secret, json};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::keys::KeyError;
use super::{from_base64, to_base64};

/// The largest file content, in bytes.
const MAX: usize = 64 << 10;
/// What is written: cosign's own cost since its version 2, in 2^LOG_N.
const LOG_N: u8 = 16;
const R: u32 = 8;
const P: u32 = 1;
/// The most that is read: 2^20 with r = 8 takes 1 GiB of memory.
const MAX_LOG_N: u8 = 20;

#[derive(Serialize, Deserialize)]
struct Sealed {
    kdf: Kdf,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Serialize, Deserialize)]
struct Kdf {
    name: String,
    params: Params,
    salt: String,
}

#[derive(Serialize, Deserialize)]
struct Params {
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
}

#[derive(Serialize, Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

/// The PKCS#8 that was sealed.
pub(super) fn open(content: &[u8], passphrase: &Secret) -> Result<Vec<u8>, KeyError> {
    let sealed: Sealed = json::strict(content, MAX).map_err(|why| wrong(&why))?;
    let Sealed { kdf, cipher, ciphertext } = sealed;
    if kdf.name != "scrypt" || cipher.name != "nacl/secretbox" {
        return Err(wrong(&format!(
            "it is sealed by {:?} and {:?}, not by scrypt and nacl/secretbox",
            kdf.name, cipher.name
        )));
    }
    let Params { n, r, p } = kdf.params;
    let log_n = n.checked_ilog2().filter(|log| n.is_power_of_two() && *log <= u32::from(MAX_LOG_N));
    let log_n = log_n.filter(|_| r == R && p == P);
    let log_n = log_n.ok_or_else(|| {
        wrong(&format!("a cost of N={n}, r={r}, p={p}, N up to 2^{MAX_LOG_N} with r={R}, p={P} is read"))
    })?;
    let bytes = |text: &str| from_base64(text).map_err(|why| wrong(&why));
    let nonce: [u8; 24] = bytes(&cipher.nonce)?.try_into().map_err(|_| wrong("a nonce that has not 24 bytes"))?;
    let key = stretch(passphrase, &bytes(&kdf.salt)?, log_n as u8)?;
    key.decrypt(&nonce.into(), &*bytes(&ciphertext)?).map_err(|_| KeyError::Passphrase)
}

/// Seals a PKCS#8 as cosign does.
pub(super) fn seal(pkcs8: &[u8], passphrase: &Secret) -> Result<Vec<u8>, KeyError> {
    let (mut salt, mut nonce) = ([0; 32], [0; 24]);
    let random = SystemRandom::new();
    let filled = random.fill(&mut salt).and_then(|()| random.fill(&mut nonce));
    filled.map_err(|_| wrong("the system gives no random bytes"))?;
    let key = stretch(passphrase, &salt, LOG_N)?;
    let ciphertext = key.encrypt(&nonce.into(), pkcs8).map_err(|_| wrong("it cannot be sealed"))?;
    let sealed = Sealed {
        kdf: Kdf { name: "scrypt".into(), params: Params { n: 1 << LOG_N, r: R, p: P }, salt: to_base64(&salt) },
        cipher: Cipher { name: "nacl/secretbox".into(), nonce: to_base64(&nonce) },
        ciphertext: to_base64(&ciphertext),
    };
    Ok(serde_json::to_vec(&sealed).expect("strings and numbers always serialise"))
}

fn stretch(passphrase: &Secret, salt: &[u8], log_n: u8) -> Result<XSalsa20Poly1305, KeyError> {
    let params = scrypt::Params::new(log_n, R, P).map_err(|why| wrong(&why.to_string()))?;
    let mut key = [0; 32];
    scrypt::scrypt(passphrase.expose().as_bytes(), salt, &params, &mut key).map_err(|why| wrong(&why.to_string()))?;
    Ok(XSalsa20Poly1305::new(&key.into()))
}

fn wrong(why: &str) -> KeyError {
    KeyError::Form(format!("the encrypted key: {why}"))
}
