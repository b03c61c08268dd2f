//! in-toto statements: about which digests something is said, and the two predicates that smcp understands.

use std::collections::BTreeMap;

use distribution::{Algorithm, Digest, json};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::MAX_DOCUMENT;
use crate::evidence::{Certification, Findings, PackageClass, Revocation, RevocationStatus, Signer};

/// The payload type of a statement.
pub const IN_TOTO: &str = "application/vnd.in-toto+json";
/// A certifier's word for a package.
pub const CERTIFICATION: &str = "https://mcp-hub.info/attestation/certification/v1";
/// A certifier's word against a package.
pub const REVOCATION: &str = "https://mcp-hub.info/attestation/revocation/v1";
/// A plain signature of an image, in the form of a statement, as cosign 3 writes it.
pub const IMAGE_SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";

const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// What cosign 2 writes.
const STATEMENT_BEFORE: &str = "https://in-toto.io/Statement/v0.1";
/// The most subjects of a statement.
const MAX_SUBJECTS: usize = 64;
/// The longest text of somebody else that is kept, in characters.
const MAX_REASON: usize = 500;

/// A statement that was read, signed or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The digests that it is about.
    pub subjects: Vec<Digest>,
    /// What kind of thing is said.
    pub predicate_type: String,
    /// What is said.
    pub predicate: Value,
}

/// As it is written. Unknown keys are left out, as in-toto demands.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AsWritten {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Subject>,
    predicate_type: String,
    #[serde(default)]
    predicate: Value,
}

#[derive(Deserialize)]
struct Subject {
    digest: BTreeMap<String, String>,
}

impl Statement {
    /// Reads one in JSON.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let written: AsWritten = json::strict(bytes, MAX_DOCUMENT)?;
        if ![STATEMENT, STATEMENT_BEFORE].contains(&written.kind.as_str()) {
            return Err(format!("a statement of type {:?}, only versions 1 and 0.1 are read", written.kind));
        }
        if written.subject.len() > MAX_SUBJECTS {
            return Err(format!("{} subjects, at most {MAX_SUBJECTS} are read", written.subject.len()));
        }
        let digests = |subject: &Subject| {
            let by = |algorithm: Algorithm| {
                format!("{}:{}", algorithm.name(), subject.digest.get(algorithm.name())?).parse().ok()
            };
            Algorithm::ALL.map(by).into_iter().flatten().collect::<Vec<Digest>>()
        };
        Ok(Self {
            subjects: written.subject.iter().flat_map(digests).collect(),
            predicate_type: written.predicate_type,
            predicate: written.predicate,
        })
    }

    /// Writes one about a digest, of version 1. `name` is for people.
    pub fn write(digest: &Digest, name: &str, predicate_type: &str, predicate: &Value) -> Vec<u8> {
        let statement = json!({
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {digest.algorithm().name(): digest.hex()}}],
            "predicateType": predicate_type,
            "predicate": predicate,
        });
        statement.to_string().into_bytes()
    }
}

/// Read strictly: whatever this version does not understand could be a condition under which it does not hold.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenCertification {
    level: u8,
    score: Option<u8>,
    origin: Option<String>,
    #[expect(dead_code, reason = "compared with its form, and not used")]
    scanner: Option<WrittenScanner>,
    findings: WrittenFindings,
    permissions: Option<Digest>,
    tools: Option<Digest>,
    issued_at: String,
    expires_at: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "compared with its form, and not used")]
struct WrittenScanner {
    name: String,
    version: String,
    rules_digest: Option<Digest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFindings {
    critical: u32,
    high: u32,
    medium: u32,
    low: u32,
}

/// Read leniently: a revocation must not be lost because it says more than this version knows.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenRevocation {
    status: String,
    #[serde(default)]
    reason: String,
    issued_at: String,
    #[serde(flatten)]
    _more: BTreeMap<String, IgnoredAny>,
}

/// Reads the predicate of a certification that `signer` signed. Whether it is in force is not asked here.
///
/// # Errors
/// A sentence that names the key that is wrong; unknown keys and values are.
pub fn certification(predicate: &Value, signer: &Signer) -> Result<Certification, String> {
    let written = WrittenCertification::deserialize(predicate).map_err(|why| why.to_string())?;
    if written.level > 3 {
        return Err(format!("level {}, there are 0 to 3", written.level));
    }
    if let Some(score @ 101..) = written.score {
        return Err(format!("score {score}, there are 0 to 100"));
    }
    let WrittenFindings { critical, high, medium, low } = written.findings;
    let issued_at = time("issuedAt", &written.issued_at)?;
    let expires_at = written.expires_at.as_deref().map(|text| time("expiresAt", text)).transpose()?;
    if expires_at.is_some_and(|end| end <= issued_at) {
        return Err("it expires before it is issued".into());
    }
    Ok(Certification {
        level: written.level,
        score: written.score,
        origin: written.origin.as_deref().map(class).transpose()?,
        findings: Findings { critical, high, medium, low },
        permissions: written.permissions,
        tools: written.tools,
        issued_at,
        expires_at,
        signer: signer.clone(),
    })
}

/// When a certification was issued, of which nothing else need be understood.
pub(super) fn issued_at(predicate: &Value) -> Option<Timestamp> {
    predicate["issuedAt"].as_str()?.parse().ok()
}

/// Reads the predicate of a revocation that `signer` signed. A status that this version does not know counts as revoked.
///
/// # Errors
/// A sentence that names the key that is wrong.
pub fn revocation(predicate: &Value, signer: &Signer) -> Result<Revocation, String> {
    let written = WrittenRevocation::deserialize(predicate).map_err(|why| why.to_string())?;
    let status = match written.status.as_str() {
        "deprecated" => RevocationStatus::Deprecated,
        "quarantined" => RevocationStatus::Quarantined,
        _ => RevocationStatus::Revoked,
    };
    Ok(Revocation {
        status,
        reason: written.reason.chars().take(MAX_REASON).collect(),
        issued_at: time("issuedAt", &written.issued_at)?,
        signer: signer.clone(),
    })
}

fn class(text: &str) -> Result<PackageClass, String> {
    match text {
        "official" => Ok(PackageClass::Official),
        "verified" => Ok(PackageClass::Verified),
        "community" => Ok(PackageClass::Community),
        other => Err(format!("origin {other:?} is none of official, verified, community")),
    }
}

/// RFC 3339.
fn time(key: &str, text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|why| format!("{key} {text:?}: {why}"))
}
