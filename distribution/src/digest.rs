//! SHA-256 digests: the one form of identity that this program accepts.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";

/// A digest that has been checked: `sha256:` and 64 lower-case hexadecimal digits, so it is safe as a file name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(Box<str>);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self::from_hash(&Sha256::digest(bytes.as_ref()))
    }

    /// The 64 hexadecimal digits without the algorithm.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }

    /// The whole text, `sha256:…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_hash(hash: &[u8]) -> Self {
        use fmt::Write as _;
        let mut text = String::from(PREFIX);
        for byte in hash {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text.into())
    }
}

/// Why a text is no digest, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: {why}")]
pub struct DigestError {
    /// Byte offset of the wrong part.
    pub at: usize,
    /// What is wrong there.
    pub why: &'static str,
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let wrong = |at, why| Err(DigestError { at, why });
        let Some(hex) = text.strip_prefix(PREFIX) else {
            return match text.split_once(':') {
                Some(("sha512" | "sha384", _)) => wrong(0, "only sha256 is supported"),
                _ => wrong(0, "it must begin with sha256:"),
            };
        };
        let lower_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if let Some(at) = hex.bytes().position(|b| !lower_hex(b)) {
            return match hex.as_bytes()[at] {
                b'A'..=b'F' => wrong(PREFIX.len() + at, "its digits must be in lower case"),
                _ => wrong(PREFIX.len() + at, "only the digits 0-9 and a-f may follow sha256:"),
            };
        }
        match hex.len() {
            64 => Ok(Self(text.into())),
            0..64 => wrong(text.len(), "too short, 64 digits must follow sha256:"),
            _ => wrong(PREFIX.len() + 64, "too long, 64 digits must follow sha256:"),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0.into()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hashes and counts what passes through it, so that nothing has to be read a second time.
#[derive(Debug, Default)]
pub struct Hasher {
    hash: Sha256,
    size: u64,
}

impl Hasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
    }

    /// The digest of everything seen, and its size in bytes.
    pub fn finish(self) -> (Digest, u64) {
        (Digest::from_hash(&self.hash.finalize()), self.size)
    }
}

impl io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn known_value() {
        assert_eq!(Digest::of("").as_str(), EMPTY);
        assert_eq!(Hasher::new().finish(), (EMPTY.parse().unwrap(), 0));
        assert_eq!(Digest::of("").hex().len(), 64);
    }

    #[test]
    fn u59_malformed() {
        let hex = &EMPTY[7..];
        let table = [
            (String::new(), 0, "begin with sha256:"),
            (hex.to_string(), 0, "begin with sha256:"),
            (format!("sha512:{hex}{hex}"), 0, "only sha256"),
            (format!("md5:{hex}"), 0, "begin with sha256:"),
            (format!("SHA256:{hex}"), 0, "begin with sha256:"),
            ("sha256:".into(), 7, "too short"),
            ("sha256:../../x".into(), 7, "digits 0-9"),
            (format!("sha256:{}", hex.to_uppercase()), 7, "lower case"),
            (EMPTY[..70].to_string(), 70, "too short"),
            (format!("{EMPTY}0"), 71, "too long"),
            (format!("{EMPTY}\n"), 71, "digits 0-9"),
            (format!("sha256:{}é", &hex[..63]), 70, "digits 0-9"),
        ];
        for (text, at, why) in table {
            let error = text.parse::<Digest>().unwrap_err();
            assert!(error.at == at && error.why.contains(why), "{text}: {error:?}");
        }
    }

    #[test]
    fn json_is_checked() {
        assert!(serde_json::from_str::<Digest>("\"sha256:../x\"").is_err());
        assert_eq!(serde_json::to_string(&Digest::of("")).unwrap(), format!("\"{EMPTY}\""));
    }
}
