//! What is known about a package beside its own word: who signed it, who certified it, whether it was revoked. Verification
//! makes it, for the digest that was resolved; policy judges it. The forms are those of the package format.

use std::fmt;
use std::path::PathBuf;

use distribution::Digest;
use jiff::Timestamp;

/// All of it, for one digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Who signed the digest, as far as a key or a trust root at hand proves it.
    pub signatures: Vec<Signer>,
    /// What certifiers said of it, each with a signature that verified; of each signer the newest, also where that has ended.
    pub certifications: Vec<Certification>,
    /// Whose newest certification this version does not understand: it is in the place of older ones, and counts for nothing.
    pub unread: Vec<Unread>,
    /// What was said against it, each with a signature that verified.
    pub revocations: Vec<Revocation>,
    /// What a hub stated over TLS about a package of its own, unsigned.
    pub hub: Option<HubWord>,
    /// What was there and proves nothing, each with its reason.
    pub rejected: Vec<Rejected>,
    /// Whether all that the registry has was seen.
    pub listing: Listing,
}

/// Whether all signatures and attestations of a digest were seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Asked just now, or the source can hold none.
    Complete,
    /// From the store, as they were listed then.
    Cached(Timestamp),
    /// They could not be listed, and none are in the store: why.
    Unavailable(String),
}

/// Who made a signature.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signer {
    /// A key of a file that the configuration names.
    Key {
        /// The file.
        file: PathBuf,
        /// Of the key's SubjectPublicKeyInfo in DER, which tells keys apart.
        fingerprint: Digest,
    },
    /// Who a certificate of a trust root names.
    Identity {
        /// Its subject: an e-mail address or the URI of a workflow.
        identity: String,
        /// Who vouched for it.
        issuer: String,
    },
}

/// A certification, `https://mcp-hub.info/attestation/certification/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certification {
    /// 0 to 3, as its certifier says.
    pub level: u8,
    /// 0 to 100.
    pub score: Option<u8>,
    /// Where the package comes from.
    pub origin: Option<PackageClass>,
    /// What was found.
    pub findings: Findings,
    /// Digest of the permissions that were looked at: what is in force is no more than these.
    pub permissions: Option<Digest>,
    /// Digest of the tools that were looked at.
    pub tools: Option<Digest>,
    /// When it was made.
    pub issued_at: Timestamp,
    /// When it ends to count.
    pub expires_at: Option<Timestamp>,
    /// Who says so.
    pub signer: Signer,
}

/// A certification with a signature that verified, of which no more is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// When it was made.
    pub issued_at: Timestamp,
    /// Who says so.
    pub signer: Signer,
}

/// A word against a package, `https://mcp-hub.info/attestation/revocation/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// How far it goes.
    pub status: RevocationStatus,
    /// The certifier's words: text of somebody else.
    pub reason: String,
    /// When it was made.
    pub issued_at: Timestamp,
    /// Who says so.
    pub signer: Signer,
}

/// How far a revocation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevocationStatus {
    /// Runs with a warning.
    Deprecated,
    /// Never runs.
    Quarantined,
    /// Never runs.
    Revoked,
}

impl Certification {
    /// Whether it has ended.
    pub fn has_ended(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// What a hub states about a package of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubWord {
    /// 0 to 3.
    pub level: u8,
    /// 0 to 100, from its manifest.
    pub score: Option<u8>,
    /// Where the package comes from.
    pub origin: Option<PackageClass>,
    /// What was found.
    pub findings: Findings,
    /// It still runs, and the hub advises against it. What a hub withdraws never comes to be evidence.
    pub deprecated: bool,
}

/// Classes of origin, which `policy.allowed_origins` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageClass {
    /// Of the hub itself.
    Official,
    /// Of a publisher that the hub knows.
    Verified,
    /// Of anybody.
    Community,
}

/// Findings of a scanner, by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Critical ones.
    pub critical: u32,
    /// High ones.
    pub high: u32,
    /// Medium ones.
    pub medium: u32,
    /// Low ones.
    pub low: u32,
}

/// A signature or an attestation that proves nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// What it is, as `attestation sha256:…`.
    pub what: String,
    /// Why it does not count.
    pub why: String,
}

/// What a package counts as, once policy has judged the evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// 0 integrity verified, 1 static verified, 2 security certified, 3 runtime certified.
    pub level: u8,
    /// 0 to 100; none where nobody whose word counts gave one.
    pub score: Option<u8>,
    /// Where it comes from, by the word of the same.
    pub origin: Option<PackageClass>,
    /// What was found, by the word of the same.
    pub findings: Findings,
    /// Whose word that is; none where it is a hub's unsigned one, or nobody's.
    pub certifier: Option<Signer>,
    /// The digest of the tools that it is about, where it says one.
    pub tools: Option<Digest>,
    /// Who signed it.
    pub signers: Vec<Signer>,
}

impl Evidence {
    /// Of a package that nobody but its builder can have said anything about: an image that was built or put here.
    pub fn none() -> Self {
        Evidence {
            signatures: Vec::new(),
            certifications: Vec::new(),
            unread: Vec::new(),
            revocations: Vec::new(),
            hub: None,
            rejected: Vec::new(),
            listing: Listing::Complete,
        }
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Signer::Key { file, .. } => write!(f, "key {}", file.display()),
            Signer::Identity { identity, issuer } => write!(f, "{identity} ({issuer})"),
        }
    }
}

impl PackageClass {
    const ALL: [PackageClass; 3] = [PackageClass::Official, PackageClass::Verified, PackageClass::Community];

    /// The class of a name.
    ///
    /// # Errors
    /// Where it is none.
    pub fn of_word(text: &str) -> Result<PackageClass, String> {
        let found = PackageClass::ALL.into_iter().find(|class| class.word() == text);
        found.ok_or_else(|| format!("{text:?} is none of official, verified, community"))
    }

    /// Its name in policies, attestations and the hub's answers.
    pub fn word(self) -> &'static str {
        match self {
            PackageClass::Official => "official",
            PackageClass::Verified => "verified",
            PackageClass::Community => "community",
        }
    }
}

impl fmt::Display for PackageClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
