//! Digests by the algorithms that the image specification registers: the one form of identity that this program accepts.

use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};

/// An algorithm of digests, image-spec 1.1, "Registered algorithms".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// Whatever is made here has it.
    #[default]
    Sha256,
    /// Of what others made.
    Sha512,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha512];

    /// As it stands before the colon.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// Hexadecimal digits.
    const fn digits(self) -> usize {
        match self {
            Algorithm::Sha256 => 64,
            Algorithm::Sha512 => 128,
        }
    }
}

/// A digest that has been checked: `sha256:` and 64, or `sha512:` and 128 lower-case hexadecimal digits, so it is safe as a file
/// name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(Box<str>);

impl Digest {
    /// The SHA-256 digest of `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self::by(Algorithm::Sha256, bytes)
    }

    /// The digest of `bytes` by an algorithm.
    pub fn by(algorithm: Algorithm, bytes: impl AsRef<[u8]>) -> Self {
        let mut hasher = Hasher::by(algorithm);
        hasher.update(bytes.as_ref());
        hasher.finish().0
    }

    /// Says whether it is that of `bytes`.
    pub fn is_of(&self, bytes: impl AsRef<[u8]>) -> bool {
        Self::by(self.algorithm(), bytes) == *self
    }

    /// What it was made by.
    pub fn algorithm(&self) -> Algorithm {
        if self.0.len() == Algorithm::Sha512.name().len() + 1 + Algorithm::Sha512.digits() {
            Algorithm::Sha512
        } else {
            Algorithm::Sha256
        }
    }

    /// The hexadecimal digits without the algorithm.
    pub fn hex(&self) -> &str {
        &self.0[self.algorithm().name().len() + 1..]
    }

    /// The whole text, `sha256:…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_hash(algorithm: Algorithm, hash: &[u8]) -> Self {
        use fmt::Write as _;
        let mut text = format!("{}:", algorithm.name());
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
        let known = |name: &str| Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        let parts = text.split_once(':').and_then(|(name, hex)| Some((known(name)?, hex)));
        let Some((algorithm, hex)) = parts else { return wrong(0, "it must begin with sha256: or sha512:") };
        let start = text.len() - hex.len();
        let lower_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if let Some(at) = hex.bytes().position(|b| !lower_hex(b)) {
            return match hex.as_bytes()[at] {
                b'A'..=b'F' => wrong(start + at, "its digits must be in lower case"),
                _ => wrong(start + at, "only the digits 0-9 and a-f may follow the algorithm"),
            };
        }
        match hex.len().cmp(&algorithm.digits()) {
            Ordering::Equal => Ok(Self(text.into())),
            Ordering::Less => wrong(text.len(), "too short, 64 digits must follow sha256:, 128 sha512:"),
            Ordering::Greater => {
                wrong(start + algorithm.digits(), "too long, 64 digits must follow sha256:, 128 sha512:")
            }
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
    hash: Hash,
    size: u64,
}

#[derive(Debug)]
enum Hash {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Default for Hash {
    fn default() -> Self {
        Hash::Sha256(Sha256::default())
    }
}

impl Hasher {
    /// A hasher by SHA-256 that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same by an algorithm.
    pub fn by(algorithm: Algorithm) -> Self {
        let hash = match algorithm {
            Algorithm::Sha256 => Hash::default(),
            Algorithm::Sha512 => Hash::Sha512(Sha512::default()),
        };
        Self { hash, size: 0 }
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.hash {
            Hash::Sha256(hash) => hash.update(bytes),
            Hash::Sha512(hash) => hash.update(bytes),
        }
        self.size += bytes.len() as u64;
    }

    /// The digest of everything seen, and its size in bytes.
    pub fn finish(self) -> (Digest, u64) {
        let digest = match self.hash {
            Hash::Sha256(hash) => Digest::from_hash(Algorithm::Sha256, &hash.finalize()),
            Hash::Sha512(hash) => Digest::from_hash(Algorithm::Sha512, &hash.finalize()),
        };
        (digest, self.size)
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

    /// FIPS 180-4: of nothing, and of "abc".
    #[test]
    fn u59_sha512() {
        let nothing = "sha512:cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e";
        let digest: Digest = nothing.parse().unwrap();
        assert_eq!((digest.algorithm(), digest.hex().len()), (Algorithm::Sha512, 128));
        assert!(digest.is_of("") && !digest.is_of("a"));
        let mut hasher = Hasher::by(Algorithm::Sha512);
        hasher.update(b"a");
        hasher.update(b"bc");
        let (abc, size) = hasher.finish();
        assert!(size == 3 && abc.as_str().starts_with("sha512:ddaf35a193617abacc417349ae204131"), "{abc}");
        assert!(Digest::of("x").is_of("x") && Digest::of("x").algorithm() == Algorithm::Sha256);
    }

    #[test]
    fn u59_malformed() {
        let hex = &EMPTY[7..];
        let table = [
            (String::new(), 0, "begin with sha256:"),
            (hex.to_string(), 0, "begin with sha256:"),
            (format!("sha512:{hex}"), 71, "too short"),
            (format!("sha512:{hex}{hex}0"), 135, "too long"),
            (format!("sha512:{hex}{}", hex.to_uppercase()), 71, "lower case"),
            (format!("sha384:{hex}"), 0, "begin with sha256: or sha512:"),
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
