//! From what lies about a package to what is known of it.

use std::collections::BTreeSet;

use distribution::Digest;
use jiff::{SignedDuration, Timestamp};

use super::dsse::Envelope;
use super::keys::{PublicKey, TrustedKey};
use super::sigstore::Bundle;
use super::simple::SimpleSigning;
use super::statement::{
    CERTIFICATION, IMAGE_SIGNATURE, IN_TOTO, REVOCATION, Statement, certification, issued_at, revocation,
};
use super::{MAX_DOCUMENT, from_base64};
use crate::evidence::{Certification, Evidence, Listing, Rejected, Revocation, Signer};

/// How far a certifier's clock may be ahead.
const AHEAD: SignedDuration = SignedDuration::from_mins(10);

/// In which form something is said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// A payload of cosign's, with its signature in base64.
    SimpleSigning(String),
    /// A DSSE envelope.
    Envelope,
    /// A bundle of sigstore's.
    Bundle,
}

/// A document about a package that nobody has looked at yet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// How to read it.
    pub form: Form,
    /// The document.
    pub text: String,
}

impl Item {
    /// What it is called in [`Rejected`].
    pub fn name(&self) -> String {
        let kind = if matches!(self.form, Form::SimpleSigning(_)) { "signature" } else { "attestation" };
        format!("{kind} {}", Digest::of(&self.text))
    }
}

/// What one document says, by whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Who.
    pub signer: Signer,
    /// What.
    pub word: Word,
}

/// What can be said.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// That this is the package.
    Signature,
    /// What was found when it was looked at.
    Certification(Certification),
    /// The same, not understood: when it was issued, and why. It takes the place of older ones all the same.
    Unread(Timestamp, String),
    /// That it should not run.
    Revocation(Revocation),
    /// Something of another type, which means nothing to smcp.
    Other(String),
}

/// What came of looking at all documents about a package.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What policy judges.
    pub evidence: Evidence,
    /// What was said beside it, with a signature that verified: the predicate's type.
    pub others: Vec<(Signer, String)>,
    /// Of each signer the newest certification and the newest revocation: whoever remembers them cannot be served older ones.
    pub newest: Vec<Item>,
}

/// All that is known of a package: `about` are its digests (of the index and of the manifest in it), `items` what lies there about them.
/// Of each signer the newest certification and the newest revocation count.
pub fn verify(about: &[Digest], items: &[Item], keys: &[TrustedKey], now: Timestamp, listing: Listing) -> Outcome {
    let evidence = Evidence { listing, ..Evidence::none() };
    let mut outcome = Outcome { evidence, others: Vec::new(), newest: Vec::new() };
    // Certifications with the time that they were issued, of which one that is not understood has an error; then revocations.
    let (mut certified, mut revoked) = (Vec::new(), Vec::new());
    for item in items.iter().collect::<BTreeSet<_>>() {
        let Said { signer, word } = match read(about, item, keys) {
            Ok(said) => said,
            Err(why) => {
                outcome.reject(item, why);
                continue;
            }
        };
        match word {
            Word::Signature => outcome.evidence.signatures.push(signer),
            Word::Other(kind) => outcome.others.push((signer, kind)),
            Word::Certification(said) => certified.push(Dated { item, signer, at: said.issued_at, said: Ok(said) }),
            Word::Unread(at, why) => certified.push(Dated { item, signer, at, said: Err(why) }),
            Word::Revocation(said) => revoked.push(Dated { item, signer, at: said.issued_at, said: Ok(said) }),
        }
    }
    outcome.evidence.signatures.sort();
    outcome.evidence.signatures.dedup();
    let to_come = now.checked_add(AHEAD).unwrap_or(now);
    let (certified, early): (Vec<_>, Vec<_>) = certified.into_iter().partition(|dated| dated.at <= to_come);
    for dated in early {
        outcome.reject(dated.item, format!("it was issued at {}, which is still to come", dated.at));
    }
    for (item, said) in outcome.keep_newest(certified) {
        match said.expires_at {
            Some(end) if end <= now => outcome.reject(item, format!("it expired at {end}")),
            _ => outcome.evidence.certifications.push(said),
        }
    }
    let revoked = outcome.keep_newest(revoked);
    outcome.evidence.revocations = revoked.into_iter().map(|(_, said)| said).collect();
    outcome
}

/// Something that was said at a time, or why it is not understood.
struct Dated<'a, T> {
    item: &'a Item,
    signer: Signer,
    at: Timestamp,
    said: Result<T, String>,
}

impl Outcome {
    /// Of each signer what was said last.
    fn keep_newest<'a, T>(&mut self, all: Vec<Dated<'a, T>>) -> Vec<(&'a Item, T)> {
        let last: Vec<_> = all
            .iter()
            .map(|dated| all.iter().filter(|other| other.signer == dated.signer).map(|other| other.at).max())
            .collect();
        let mut kept = Vec::new();
        for (Dated { item, signer, at, said }, last) in all.into_iter().zip(last) {
            if last.is_some_and(|last| at < last) {
                self.reject(item, format!("{signer} issued a newer one at {}", last.unwrap_or(at)));
                continue;
            }
            self.newest.push(item.clone());
            match said {
                Ok(said) => kept.push((item, said)),
                Err(why) => self.reject(item, why),
            }
        }
        kept
    }

    fn reject(&mut self, item: &Item, why: String) {
        self.evidence.rejected.push(Rejected { what: item.name(), why });
    }
}

/// What one document says about one of these digests, by one of these keys.
///
/// # Errors
/// Why it proves nothing.
pub fn read(about: &[Digest], item: &Item, keys: &[TrustedKey]) -> Result<Said, String> {
    if item.text.len() > MAX_DOCUMENT {
        return Err(format!("it has {} bytes, at most {MAX_DOCUMENT} are read", item.text.len()));
    }
    let envelope = match &item.form {
        Form::SimpleSigning(signature) => return simple_signing(about, item.text.as_bytes(), signature, keys),
        Form::Envelope => Envelope::parse(item.text.as_bytes())?,
        Form::Bundle => match Bundle::parse(item.text.as_bytes())? {
            Bundle::Key(envelope) => envelope,
            Bundle::Certificate(_) => {
                return Err("it is signed by a certificate, and there is no trust root to verify it by".into());
            }
        },
    };
    let key = envelope.signed_by(keys.iter().map(|trusted| &trusted.key));
    let signer = signer(keys, key)?;
    if envelope.payload_type != IN_TOTO {
        return Err(format!("it holds {:?}, not {IN_TOTO}", envelope.payload_type));
    }
    let statement = Statement::parse(&envelope.payload)?;
    is_about(about, &statement.subjects)?;
    let word = match statement.predicate_type.as_str() {
        IMAGE_SIGNATURE => Word::Signature,
        CERTIFICATION => match certification(&statement.predicate, &signer) {
            Ok(said) => Word::Certification(said),
            Err(why) => Word::Unread(issued_at(&statement.predicate).ok_or(why.clone())?, why),
        },
        REVOCATION => Word::Revocation(revocation(&statement.predicate, &signer)?),
        other => Word::Other(other.into()),
    };
    Ok(Said { signer, word })
}

fn simple_signing(about: &[Digest], payload: &[u8], signature: &str, keys: &[TrustedKey]) -> Result<Said, String> {
    let signature = from_base64(signature)?;
    let key = keys.iter().map(|trusted| &trusted.key).find(|key| key.signed(payload, &signature));
    let signer = signer(keys, key)?;
    is_about(about, &[SimpleSigning::parse(payload)?.digest])?;
    Ok(Said { signer, word: Word::Signature })
}

fn signer(keys: &[TrustedKey], key: Option<&PublicKey>) -> Result<Signer, String> {
    let trusted = keys.iter().find(|trusted| Some(&trusted.key) == key);
    let trusted = trusted.ok_or("none of the keys at hand made its signature, or it was changed since")?;
    Ok(Signer::Key { file: trusted.file.clone(), fingerprint: trusted.key.fingerprint() })
}

fn is_about(about: &[Digest], subjects: &[Digest]) -> Result<(), String> {
    match (subjects.iter().any(|subject| about.contains(subject)), subjects) {
        (true, _) => Ok(()),
        (false, []) => Err("it is about no digest of SHA-256".into()),
        (false, [first, ..]) => Err(format!("it is about another digest, {first}")),
    }
}
