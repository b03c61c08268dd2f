//! `smcp sign`, `attest` and `verify`: what others can know of a package beside its own word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle::attest::{
    BUNDLE, Bundle, CERTIFICATION, Envelope, IMAGE_SIGNATURE, IN_TOTO, KeyError, MAX_DOCUMENT, Outcome, PublicKey,
    REVOCATION, Signers, SigningKey, SimpleSigning, Statement, Trust, TrustedIdentity, certification, look_up,
    revocation, to_base64,
};
use bundle::{Certification, Evidence, Listing, RevocationStatus, Signer};
use distribution::{Mode, Resolved, Source, attach_bundle, attach_signature, json};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli;
use crate::exit::{self, Failure};
use crate::key;
use crate::settings::{Settings, read_small};
use crate::show::{self, outln};
use crate::sources;
use crate::verdict::Seen;

/// Signs what a name stands for: by cosign's tag, which cosign 2 and the admission controllers of clusters read in any registry, and by a
/// sigstore bundle, which cosign 3 and sigstore's libraries read.
///
/// # Errors
/// Where the key cannot be used, or the registry takes nothing.
pub fn sign(typed: &cli::Sign, settings: &Settings) -> Result<(), Failure> {
    let key = key::signing(&typed.key)?;
    let seen = written(&typed.reference, settings)?;
    let _pending = seen.pending()?;
    let payload = SimpleSigning::write(seen.digest(), &subject(&seen.resolved));
    let signature = to_base64(&key.sign(&payload).map_err(unsigned)?);
    attach_signature(&seen.resolved, &payload, &signature, &seen.store, &seen.network)?;
    state(&seen, &key, IMAGE_SIGNATURE, &json!({}))?;
    outln!("{} {}", seen.resolved.name, seen.digest());
    Ok(())
}

/// Says something about what a name stands for, in a sigstore bundle.
///
/// # Errors
/// As [`sign`], and where the predicate is not what its type says.
pub fn attest(typed: &cli::Attest, settings: &Settings) -> Result<(), Failure> {
    let key = key::signing(&typed.key)?;
    let (kind, predicate) = predicate(&typed.kind, &typed.predicate, &key.public())?;
    let seen = written(&typed.reference, settings)?;
    let _pending = seen.pending()?;
    state(&seen, &key, &kind, &predicate)?;
    outln!("{} {}", seen.resolved.name, seen.digest());
    Ok(())
}

/// Shows what keys say about a package.
///
/// # Errors
/// Of code 122 where no signature or attestation verifies, 121 where one says that the package must not run.
pub fn verify(typed: &cli::Verify, settings: &Settings) -> Result<(), Failure> {
    let key = |path: &PathBuf| key::trusted(path).map_err(|why| key::of_file(path, &why));
    let keys = typed.key.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let root = typed.trust_root.as_deref().map(|path| {
        key::trust_root(path)
            .map_err(|why| Failure::new(exit::USAGE, format!("--trust-root {}: {why}", path.display())))
    });
    let root = root.transpose()?;
    let identities: Vec<_> = typed
        .identity
        .iter()
        .zip(&typed.issuer)
        .map(|(identity, issuer)| TrustedIdentity { identity: identity.clone(), issuer: issuer.clone() })
        .collect();
    let signers = Signers { keys: &keys, root: root.as_ref(), identities: &identities };
    let mode = if typed.offline { Mode::Offline } else { Mode::Refresh };
    let seen = Seen::by(&typed.reference, mode, settings)?;
    let _pending = seen.pending()?;
    let now = Timestamp::now();
    let trust = Trust { signers, memory: &settings.attested(), now };
    let outcome = look_up(&seen.resolved, &seen.store, &seen.network, &trust)?;
    let mut shown = evidence(&outcome.evidence, now);
    shown["name"] = json!(seen.resolved.name);
    shown["digest"] = json!(seen.digest());
    shown["manifestDigest"] = json!(seen.resolved.manifest_descriptor.digest);
    shown["others"] =
        outcome.others.iter().map(|(by, kind)| json!({"predicateType": kind, "by": signer(by)})).collect();
    if typed.json {
        show::print_json(&shown);
    } else {
        print(&seen.resolved, &outcome, now);
    }
    judge(&outcome, now)
}

/// An image that something is said about. What was pushed from here is what its name stands for, whatever the registry says meanwhile.
fn written(text: &str, settings: &Settings) -> Result<Seen, Failure> {
    if sources::is_source(&text.parse()?) {
        let what = format!("what is made of {text} is this store's alone, which has no place for signatures");
        let hint = format!("publish it, and sign that: smcp push {text} REF, smcp sign REF");
        return Err(Failure::new(exit::USAGE, what).hint(hint));
    }
    Seen::by(text, Mode::CacheFirst { refresh: settings.refresh }, settings)
}

/// What an image is called in what is signed, for people. A layout's place is nobody's business.
fn subject(resolved: &Resolved) -> String {
    match &resolved.source {
        Source::Registry { host, repository } => format!("{host}/{repository}"),
        Source::Layout(_) => {
            let title = resolved.manifest.annotations.get("org.opencontainers.image.title");
            title.cloned().unwrap_or_else(|| "image".into())
        }
    }
}

/// Signs a statement and puts it beside an image. The annotations are those that cosign writes.
fn state(seen: &Seen, key: &SigningKey, kind: &str, predicate: &Value) -> Result<(), Failure> {
    let statement = Statement::write(seen.digest(), &subject(&seen.resolved), kind, predicate);
    let envelope = Envelope::sign(IN_TOTO, statement, key).map_err(unsigned)?;
    let bundle = Bundle::write(&envelope, &key.public());
    if bundle.len() > MAX_DOCUMENT {
        let why = format!("the bundle has {} bytes, at most {MAX_DOCUMENT} are read again", bundle.len());
        return Err(Failure::new(exit::USAGE, why));
    }
    let annotations = BTreeMap::from([
        ("dev.sigstore.bundle.content".to_owned(), "dsse-envelope".to_owned()),
        ("dev.sigstore.bundle.predicateType".to_owned(), kind.to_owned()),
        ("org.opencontainers.image.created".to_owned(), Timestamp::now().to_string()),
    ]);
    let manifest = attach_bundle(&seen.resolved, &bundle, annotations, &seen.store, &seen.network)?;
    tracing::info!(%manifest, BUNDLE, "put beside it");
    Ok(())
}

/// What a predicate's file says, as its type has it. `issuedAt` is now where it is left out.
fn predicate(kind: &str, file: &Path, key: &PublicKey) -> Result<(String, Value), Failure> {
    let fail = |why: String| Failure::new(exit::USAGE, format!("--predicate {}: {why}", file.display()));
    let bytes = read_small(file).map_err(|why| fail(why.to_string()))?;
    let mut predicate: Value = json::strict(&bytes, MAX_DOCUMENT).map_err(fail)?;
    let uri = match kind {
        "certification" => CERTIFICATION,
        "revocation" => REVOCATION,
        other if other.contains("://") => other,
        other => {
            return Err(Failure::new(
                exit::USAGE,
                format!("--type {other:?} is none of certification, revocation, URI"),
            ));
        }
    };
    let by = Signer::Key { file: file.into(), fingerprint: key.fingerprint() };
    if [CERTIFICATION, REVOCATION].contains(&uri)
        && let Value::Object(keys) = &mut predicate
    {
        keys.entry("issuedAt").or_insert_with(|| json!(Timestamp::now().to_string()));
    }
    match uri {
        CERTIFICATION => drop(certification(&predicate, &by).map_err(fail)?),
        REVOCATION => {
            revocation(&predicate, &by).map_err(fail)?;
            let status = predicate["status"].as_str().unwrap_or_default();
            // Read as revoked, which whoever writes another word does not mean.
            if !["revoked", "quarantined", "deprecated"].contains(&status) {
                return Err(fail(format!("status {status:?} is none of revoked, quarantined, deprecated")));
            }
        }
        _ => {}
    }
    Ok((uri.into(), predicate))
}

fn judge(outcome: &Outcome, now: Timestamp) -> Result<(), Failure> {
    let Evidence { signatures, certifications, revocations, listing, .. } = &outcome.evidence;
    let stops = |status| matches!(status, RevocationStatus::Revoked | RevocationStatus::Quarantined);
    if let Some(revoked) = revocations.iter().find(|said| stops(said.status)) {
        let what = format!("{} says that it is {}", revoked.signer, word(revoked.status));
        return Err(Failure::new(exit::DENIED, what).hint("another version of it may run"));
    }
    let certified = certifications.iter().any(|said| !said.has_ended(now));
    if !signatures.is_empty() || certified || !revocations.is_empty() || !outcome.others.is_empty() {
        return Ok(());
    }
    let why = match listing {
        Listing::Unavailable(why) => format!(", as none could be listed: {why}"),
        _ if !certifications.is_empty() => ": what certified it has ended".into(),
        Listing::Complete | Listing::Cached(_) if outcome.evidence.rejected.is_empty() => ": there is none".into(),
        Listing::Complete | Listing::Cached(_) => String::new(),
    };
    Err(Failure::new(exit::VERIFICATION, format!("no signature or attestation of these signers was verified{why}"))
        .hint("`smcp verify` lists what was found, and why it does not count"))
}

fn print(resolved: &Resolved, outcome: &Outcome, now: Timestamp) {
    let evidence = &outcome.evidence;
    outln!("package    {}", resolved.name);
    outln!("digest     {}", resolved.descriptor.digest);
    for by in &evidence.signatures {
        outln!("signed     by {by}");
    }
    for said in &evidence.certifications {
        let score = said.score.map_or("no score".to_owned(), |score| format!("score {score}"));
        let until = said.expires_at.map_or(String::new(), |end| format!(", until {end}"));
        let word = if said.has_ended(now) { "expired" } else { "certified" };
        outln!("{word:<10} level {}, {score}, at {}{until}, by {}", said.level, said.issued_at, said.signer);
    }
    for said in &evidence.revocations {
        outln!("{:<10} at {}, by {}: {:?}", word(said.status), said.issued_at, said.signer, said.reason);
    }
    for (by, kind) in &outcome.others {
        outln!("attested   {kind:?}, by {by}");
    }
    for rejected in &evidence.rejected {
        outln!("rejected   {}: {}", rejected.what, rejected.why);
    }
    match &evidence.listing {
        Listing::Complete => {}
        Listing::Cached(at) => outln!("listed     at {at}, as the store has it"),
        Listing::Unavailable(why) => outln!("listed     not: {why}"),
    }
}

/// Evidence as JSON.
fn evidence(evidence: &Evidence, now: Timestamp) -> Value {
    let (expired, certified): (Vec<_>, Vec<_>) = evidence.certifications.iter().partition(|said| said.has_ended(now));
    let certification = |said: &Certification| {
        json!({
            "level": said.level, "score": said.score,
            "origin": said.origin.map(|class| class.to_string()),
            "findings": {"critical": said.findings.critical, "high": said.findings.high,
                "medium": said.findings.medium, "low": said.findings.low},
            "permissions": said.permissions, "tools": said.tools,
            "issuedAt": said.issued_at.to_string(), "expiresAt": said.expires_at.map(|end| end.to_string()),
            "by": signer(&said.signer),
        })
    };
    json!({
        "signatures": evidence.signatures.iter().map(signer).collect::<Vec<_>>(),
        "certifications": certified.into_iter().map(certification).collect::<Vec<_>>(),
        "expired": expired.into_iter().map(certification).collect::<Vec<_>>(),
        "revocations": evidence.revocations.iter().map(|said| json!({
            "status": word(said.status), "reason": said.reason, "issuedAt": said.issued_at.to_string(),
            "by": signer(&said.signer),
        })).collect::<Vec<_>>(),
        "rejected": evidence.rejected.iter().map(|it| json!({"what": it.what, "why": it.why})).collect::<Vec<_>>(),
        "listing": match &evidence.listing {
            Listing::Complete => json!("complete"),
            Listing::Cached(at) => json!({"cached": at.to_string()}),
            Listing::Unavailable(why) => json!({"unavailable": why}),
        },
    })
}

fn signer(signer: &Signer) -> Value {
    match signer {
        Signer::Key { file, fingerprint } => json!({"key": file.display().to_string(), "fingerprint": fingerprint}),
        Signer::Identity { identity, issuer } => json!({"identity": identity, "issuer": issuer}),
    }
}

fn word(status: RevocationStatus) -> &'static str {
    match status {
        RevocationStatus::Deprecated => "deprecated",
        RevocationStatus::Quarantined => "quarantined",
        RevocationStatus::Revoked => "revoked",
    }
}

fn unsigned(why: KeyError) -> Failure {
    Failure::new(exit::USAGE, why.to_string())
}
