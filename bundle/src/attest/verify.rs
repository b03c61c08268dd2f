//! From what lies about a package to what is known of it.

use std::collections::BTreeSet;

use distribution::{Attachment as Item, AttachmentForm as Form, Digest};
use jiff::{SignedDuration, Timestamp};

use super::dsse::Envelope;
use super::keyless::Root;
use super::keys::{PublicKey, TrustedKey};
use super::sigstore::Bundle;
use super::simple::SimpleSigning;
use super::statement::{
    CERTIFICATION, IMAGE_SIGNATURE, IN_TOTO, REVOCATION, Statement, certification, issued_at, revocation,
};
use super::{MAX_DOCUMENT, from_base64};
use crate::evidence::{Certification, Evidence, Listing, Rejected, Revocation, Signer, Unread};

/// How far a certifier's clock may be ahead.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

/// Whose word counts for something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signers<'a> {
    /// By keys.
    pub keys: &'a [TrustedKey],
    /// By what certificates are verified; none where none are.
    pub root: Option<&'a Root>,
    /// Whom such a certificate may name: anybody can get one.
    pub identities: &'a [TrustedIdentity],
}

/// Somebody whom a certificate of a trust root names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedIdentity {
    /// An e-mail address or the URI of a workflow, in full.
    pub identity: String,
    /// Who vouched for it, in full.
    pub issuer: String,
}

impl Signers<'_> {
    /// Whether nobody's word counts.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.identities.is_empty()
    }
}

/// What one document says, by whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Who.
    pub signer: Signer,
    /// Of the digests that were asked about the one that it is about.
    pub about: Digest,
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
    /// Of each signer the newest certification and the newest revocation, with the digest that it is about: whoever remembers them
    /// cannot be served older ones.
    pub newest: Vec<(Digest, Item)>,
}

/// All that is known of a package: `about` are its digests (of the index and of the manifest in it), `items` what lies there about them.
/// Of each signer the newest certification and the newest revocation count.
pub fn verify(about: &[Digest], items: &[Item], signers: &Signers<'_>, now: Timestamp, listing: Listing) -> Outcome {
    let evidence = Evidence { listing, ..Evidence::none() };
    let mut outcome = Outcome { evidence, others: Vec::new(), newest: Vec::new() };
    // Certifications with the time that they were issued, of which one that is not understood has an error; then revocations.
    let (mut certified, mut revoked) = (Vec::new(), Vec::new());
    for item in items.iter().collect::<BTreeSet<_>>() {
        let all = match read(about, item, signers) {
            Ok(all) => all,
            Err(why) => {
                outcome.reject(item, why);
                continue;
            }
        };
        for Said { signer, about, word } in all {
            match word {
                Word::Signature => outcome.evidence.signatures.push(signer),
                Word::Other(kind) => outcome.others.push((signer, kind)),
                Word::Certification(said) => {
                    certified.push(Dated { item, about, signer, at: said.issued_at, said: Ok(said) });
                }
                Word::Unread(at, why) => certified.push(Dated { item, about, signer, at, said: Err(why) }),
                Word::Revocation(said) => {
                    revoked.push(Dated { item, about, signer, at: said.issued_at, said: Ok(said) });
                }
            }
        }
    }
    outcome.evidence.signatures.sort();
    outcome.evidence.signatures.dedup();
    let to_come = now.checked_add(AHEAD).unwrap_or(now);
    let (certified, early): (Vec<_>, Vec<_>) = certified.into_iter().partition(|dated| dated.at <= to_come);
    for dated in early {
        outcome.reject(dated.item, format!("it was issued at {}, which is still to come", dated.at));
    }
    for Dated { item, signer, at, said, .. } in outcome.keep_newest(certified) {
        match said {
            Ok(said) => outcome.evidence.certifications.push(said),
            Err(why) => {
                outcome.evidence.unread.push(Unread { issued_at: at, signer });
                outcome.reject(item, why);
            }
        }
    }
    let revoked = outcome.keep_newest(revoked);
    outcome.evidence.revocations = revoked.into_iter().filter_map(|dated| dated.said.ok()).collect();
    outcome
}

/// Something that was said at a time, or why it is not understood.
struct Dated<'a, T> {
    item: &'a Item,
    about: Digest,
    signer: Signer,
    at: Timestamp,
    said: Result<T, String>,
}

impl Outcome {
    /// Of each signer what was said last, understood or not.
    fn keep_newest<'a, T>(&mut self, all: Vec<Dated<'a, T>>) -> Vec<Dated<'a, T>> {
        let last: Vec<_> = all
            .iter()
            .map(|dated| all.iter().filter(|other| other.signer == dated.signer).map(|other| other.at).max())
            .collect();
        let mut kept = Vec::new();
        for (dated, last) in all.into_iter().zip(last) {
            if let Some(last) = last.filter(|last| dated.at < *last) {
                self.reject(dated.item, format!("{} issued a newer one at {last}", dated.signer));
                continue;
            }
            self.newest.push((dated.about.clone(), dated.item.clone()));
            kept.push(dated);
        }
        kept
    }

    fn reject(&mut self, item: &Item, why: String) {
        self.evidence.rejected.push(Rejected { what: item.name(), why });
    }
}

/// What one document says about one of these digests: once for each of these signers that signed it.
///
/// # Errors
/// Why it proves nothing.
pub fn read(about: &[Digest], item: &Item, signers: &Signers<'_>) -> Result<Vec<Said>, String> {
    if item.text.len() > MAX_DOCUMENT {
        return Err(format!("it has {} bytes, at most {MAX_DOCUMENT} are read", item.text.len()));
    }
    let text = item.text.as_bytes();
    let (envelope, by) = match &item.form {
        Form::SimpleSigning(signature) => {
            let signature = from_base64(signature)?;
            let by = by_keys(signers.keys, |key| key.signed(text, &signature))?;
            let about = is_about(about, &[SimpleSigning::parse(text)?.digest])?;
            let said = |signer| Said { signer, about: about.clone(), word: Word::Signature };
            return Ok(by.into_iter().map(said).collect());
        }
        Form::Envelope => {
            let envelope = Envelope::parse(text)?;
            let by = by_keys(signers.keys, |key| envelope.is_signed_by(key))?;
            (envelope, by)
        }
        Form::Bundle => match Bundle::parse(text)? {
            Bundle::Key(envelope) => {
                let by = by_keys(signers.keys, |key| envelope.is_signed_by(key))?;
                (envelope, by)
            }
            Bundle::Certificate(envelope) => (envelope, vec![by_certificate(about, &item.text, signers)?]),
        },
    };
    if envelope.payload_type != IN_TOTO {
        return Err(format!("it holds {:?}, not {IN_TOTO}", envelope.payload_type));
    }
    let statement = Statement::parse(&envelope.payload)?;
    let about = is_about(about, &statement.subjects)?;
    let said = |signer| Ok(Said { word: word(&statement, &signer)?, about: about.clone(), signer });
    by.into_iter().map(said).collect()
}

fn word(statement: &Statement, signer: &Signer) -> Result<Word, String> {
    Ok(match statement.predicate_type.as_str() {
        IMAGE_SIGNATURE => Word::Signature,
        CERTIFICATION => match certification(&statement.predicate, signer) {
            Ok(said) => Word::Certification(said),
            Err(why) => Word::Unread(issued_at(&statement.predicate).ok_or(why.clone())?, why),
        },
        REVOCATION => Word::Revocation(revocation(&statement.predicate, signer)?),
        other => Word::Other(other.into()),
    })
}

/// All of the keys that signed it, of which policy may count one and not another.
fn by_keys(keys: &[TrustedKey], signed: impl Fn(&PublicKey) -> bool) -> Result<Vec<Signer>, String> {
    let signer =
        |trusted: &TrustedKey| Signer::Key { file: trusted.file.clone(), fingerprint: trusted.key.fingerprint() };
    match keys.iter().filter(|trusted| signed(&trusted.key)).map(signer).collect::<Vec<_>>() {
        none if none.is_empty() => Err("none of the keys at hand made its signature, or it was changed since".into()),
        all => Ok(all),
    }
}

/// Whom the certificate of a bundle names, where the trust root vouches for it and that one's word counts.
fn by_certificate(about: &[Digest], bundle: &str, signers: &Signers<'_>) -> Result<Signer, String> {
    let no_root = "it is signed by a certificate, and there is no trust root to verify it by";
    let root = signers.root.ok_or(no_root)?;
    let mut why = String::new();
    for digest in about {
        match root.signer(bundle, digest) {
            Ok(Signer::Identity { identity, issuer }) => {
                let counts = signers.identities.iter().any(|it| it.identity == identity && it.issuer == issuer);
                return match counts {
                    true => Ok(Signer::Identity { identity, issuer }),
                    false => Err(format!("{identity} ({issuer}) signed it, whose word counts for nothing here")),
                };
            }
            Ok(Signer::Key { .. }) => unreachable!("a certificate names an identity"),
            Err(refused) => why = refused,
        }
    }
    Err(why)
}

fn is_about(about: &[Digest], subjects: &[Digest]) -> Result<Digest, String> {
    let wanted = about.iter().find(|digest| subjects.contains(digest));
    wanted.cloned().ok_or_else(|| match subjects {
        [] => "it is about no digest of SHA-256".into(),
        [first, ..] => format!("it is about another digest, {first}"),
    })
}
