use distribution::{Digest, Secret};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::evidence::{Certification, Evidence, Findings, Listing, PackageClass, RevocationStatus, Signer};

const NOW: &str = "2026-06-01T12:00:00Z";

fn digest() -> Digest {
    Digest::of("the package")
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn trusted(name: &str, key: &SigningKey) -> TrustedKey {
    TrustedKey { file: name.into(), key: key.public() }
}

fn certified(level: u8, issued: &str) -> Value {
    json!({
        "level": level, "score": 85, "origin": "verified",
        "scanner": {"name": "scan", "version": "1.2", "rulesDigest": digest()},
        "findings": {"critical": 0, "high": 1, "medium": 2, "low": 3},
        "permissions": Digest::of("permissions"), "tools": Digest::of("tools"),
        "issuedAt": issued, "expiresAt": "2026-12-01T00:00:00Z",
    })
}

fn bundle(key: &SigningKey, about: &Digest, kind: &str, predicate: &Value) -> Item {
    let statement = Statement::write(about, "acme/hello", kind, predicate);
    let envelope = Envelope::sign(IN_TOTO, statement, key).unwrap();
    item(Form::Bundle, &Bundle::write(&envelope, &key.public()))
}

fn simple(key: &SigningKey, about: &Digest) -> Item {
    let payload = SimpleSigning::write(about, "registry.test/acme/hello");
    item(Form::SimpleSigning(to_base64(&key.sign(&payload).unwrap())), &payload)
}

fn item(form: Form, bytes: &[u8]) -> Item {
    Item { form, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

fn by(keys: &[TrustedKey]) -> Signers<'_> {
    Signers { keys, ..Signers::default() }
}

fn look(items: &[Item], keys: &[TrustedKey]) -> Outcome {
    verify(&[digest()], items, &by(keys), now(), Listing::Complete)
}

fn key(kind: KeyKind) -> SigningKey {
    SigningKey::generate(kind).unwrap()
}

const KINDS: [KeyKind; 2] = [KeyKind::EcdsaP256, KeyKind::Ed25519];

#[test]
fn t12_what_is_written_is_read_again() {
    for kind in KINDS {
        let key = key(kind);
        let keys = [trusted("a.pub", &key)];
        let signer = Signer::Key { file: "a.pub".into(), fingerprint: key.public().fingerprint() };
        let items = [
            simple(&key, &digest()),
            bundle(&key, &digest(), IMAGE_SIGNATURE, &json!({})),
            bundle(&key, &digest(), CERTIFICATION, &certified(2, "2026-05-01T00:00:00Z")),
            bundle(&key, &digest(), REVOCATION, &json!({"status": "deprecated", "reason": "old", "issuedAt": NOW})),
            bundle(&key, &digest(), "https://slsa.dev/provenance/v1", &json!({"any": ["thing"]})),
        ];
        let outcome = look(&items, &keys);
        let evidence = outcome.evidence;
        assert_eq!(evidence.rejected, []);
        assert_eq!(evidence.signatures, std::slice::from_ref(&signer));
        assert_eq!(outcome.others, [(signer.clone(), "https://slsa.dev/provenance/v1".to_owned())]);
        let want = Certification {
            level: 2,
            score: Some(85),
            origin: Some(PackageClass::Verified),
            findings: Findings { critical: 0, high: 1, medium: 2, low: 3 },
            permissions: Some(Digest::of("permissions")),
            tools: Some(Digest::of("tools")),
            issued_at: "2026-05-01T00:00:00Z".parse().unwrap(),
            expires_at: Some("2026-12-01T00:00:00Z".parse().unwrap()),
            signer: signer.clone(),
        };
        assert_eq!(evidence.certifications, [want]);
        assert_eq!(evidence.revocations[0].status, RevocationStatus::Deprecated);
        assert_eq!((evidence.revocations[0].reason.as_str(), &evidence.revocations[0].signer), ("old", &signer));
    }
}

#[test]
fn t1_each_reason_is_its_own() {
    let (own, foreign) = (key(KeyKind::EcdsaP256), key(KeyKind::Ed25519));
    let other = Digest::of("another package");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut predicate = certified(2, "2026-05-01T00:00:00Z");
        change(&mut predicate);
        bundle(&own, &digest(), CERTIFICATION, &predicate)
    };
    let of = |predicate: Value, kind: &str| bundle(&own, &digest(), kind, &predicate);
    let envelope = |kind: &str, payload: &[u8]| {
        let envelope = Envelope::sign(kind, payload.to_vec(), &own).unwrap();
        item(Form::Bundle, &Bundle::write(&envelope, &own.public()))
    };
    let statement = |kind: &str| {
        let text = String::from_utf8(Statement::write(&digest(), "x", IMAGE_SIGNATURE, &json!({}))).unwrap();
        envelope(IN_TOTO, text.replace("https://in-toto.io/Statement/v1", kind).as_bytes())
    };
    let wrong_type = SimpleSigning::write(&digest(), "x");
    let wrong_type = String::from_utf8(wrong_type).unwrap().replace("cosign container", "atomic container");
    let wrong_case = wrong_type.replace("atomic", "cosign").replace("docker-manifest", "Docker-manifest");
    let payload =
        |text: &str| item(Form::SimpleSigning(to_base64(&own.sign(text.as_bytes()).unwrap())), text.as_bytes());
    for (item, why) in [
        (bundle(&foreign, &digest(), CERTIFICATION, &certified(2, NOW)), "none of the keys at hand"),
        (simple(&foreign, &digest()), "none of the keys at hand"),
        (bundle(&own, &other, CERTIFICATION, &certified(2, NOW)), "about another digest"),
        (simple(&own, &other), "about another digest"),
        (with(&|p| p["issuedAt"] = json!("2026-06-01T12:11:00Z")), "still to come"),
        (with(&|p| p["expiresAt"] = json!("2026-04-01T00:00:00Z")), "expires before it is issued"),
        (with(&|p| p["level"] = json!(4)), "level 4"),
        (with(&|p| p["level"] = json!("2")), "expected u8"),
        (with(&|p| p["score"] = json!(101)), "score 101"),
        (with(&|p| p["origin"] = json!("Official")), "origin \"Official\""),
        (with(&|p| p["only"] = json!("linux/arm64")), "unknown field `only`"),
        (with(&|p| p["findings"] = json!({"critical": 0})), "missing field `high`"),
        (with(&|p| p["permissions"] = json!("sha256:x")), "not a digest"),
        (with(&|p| p["issuedAt"] = json!("yesterday")), "issuedAt \"yesterday\""),
        (of(json!({"status": "revoked"}), REVOCATION), "missing field `issuedAt`"),
        (of(json!([]), CERTIFICATION), "invalid"),
        (envelope("text/plain", b"{}"), "it holds \"text/plain\""),
        (envelope(IN_TOTO, b"{}"), "missing field `_type`"),
        (statement("https://in-toto.io/Statement/v2"), "Statement/v2"),
        (payload(&wrong_type), "atomic container"),
        (payload(&wrong_case), "Docker-manifest-digest"),
        (item(Form::Bundle, b"{}"), "missing field"),
        (item(Form::Envelope, b"[1]"), "invalid"),
        (item(Form::SimpleSigning("%".into()), b"{}"), "not base64"),
    ] {
        let outcome = look(std::slice::from_ref(&item), &[trusted("own.pub", &own)]);
        let evidence = outcome.evidence;
        assert_eq!((evidence.signatures.len(), evidence.certifications.len(), evidence.revocations.len()), (0, 0, 0));
        assert_eq!(evidence.rejected.len(), 1, "{item:?}");
        assert!(evidence.rejected[0].why.contains(why), "{why}: {:?}", evidence.rejected);
        assert!(evidence.rejected[0].what.contains(" sha256:"), "{:?}", evidence.rejected);
    }
}

#[test]
fn t12_a_changed_byte_is_refused() {
    for kind in KINDS {
        let key = key(kind);
        let keys = [trusted("a.pub", &key)];
        let whole = bundle(&key, &digest(), CERTIFICATION, &certified(3, NOW));
        let envelope = match Bundle::parse(whole.text.as_bytes()).unwrap() {
            Bundle::Key(envelope) => envelope,
            Bundle::Certificate(_) => unreachable!("a key made it"),
        };
        let tampered = |change: &dyn Fn(&mut Envelope)| {
            let mut envelope = envelope.clone();
            change(&mut envelope);
            item(Form::Bundle, &Bundle::write(&envelope, &key.public()))
        };
        for (name, changed) in [
            ("payload", tampered(&|e| e.payload[40] ^= 1)),
            ("longer", tampered(&|e| e.payload.push(b' '))),
            ("type", tampered(&|e| e.payload_type.push('x'))),
            ("signature", tampered(&|e| e.signatures[0][20] ^= 1)),
            ("cut", tampered(&|e| e.signatures[0].truncate(60))),
            ("empty", tampered(&|e| e.signatures[0].clear())),
        ] {
            let evidence = look(&[changed], &keys).evidence;
            assert!(evidence.certifications.is_empty(), "{name}");
            assert!(evidence.rejected[0].why.contains("none of the keys"), "{name}: {:?}", evidence.rejected);
        }
        // The other half of the message is what is not signed: another order of the same bytes says nothing else.
        assert_eq!(look(&[tampered(&|e| e.signatures.insert(0, vec![1]))], &keys).evidence.certifications.len(), 1);
    }
}

#[test]
fn the_newest_word_of_each_signer_counts() {
    let (a, b) = (key(KeyKind::EcdsaP256), key(KeyKind::Ed25519));
    let keys = [trusted("a.pub", &a), trusted("b.pub", &b)];
    let of = |key: &SigningKey, level, at: &str| bundle(key, &digest(), CERTIFICATION, &certified(level, at));
    let levels = |items: &[Item]| {
        let mut levels: Vec<_> = look(items, &keys).evidence.certifications.iter().map(|said| said.level).collect();
        levels.sort_unstable();
        levels
    };
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    assert_eq!(levels(&[of(&a, 3, old), of(&a, 1, new)]), [1]);
    assert_eq!(levels(&[of(&a, 3, old), of(&b, 1, new)]), [1, 3]);
    // One that is not in force yet takes no other's place, one that has ended or is not understood does.
    assert_eq!(levels(&[of(&a, 3, old), of(&a, 1, "2027-01-01T00:00:00Z")]), [3]);
    let ended = |predicate: &mut Value| predicate["expiresAt"] = json!("2026-03-01T00:00:00Z");
    let unknown = |predicate: &mut Value| predicate["only"] = json!("arm64");
    for (change, certified_now, unread) in [(&ended as &dyn Fn(&mut Value), 1, 0), (&unknown, 0, 1)] {
        let mut predicate = certified(1, new);
        change(&mut predicate);
        let outcome = look(&[of(&a, 3, old), bundle(&a, &digest(), CERTIFICATION, &predicate)], &keys);
        let Evidence { certifications, unread: not_read, rejected, .. } = &outcome.evidence;
        assert_eq!((certifications.len(), not_read.len()), (certified_now, unread));
        assert!(certifications.iter().all(|said| said.has_ended(now())));
        assert!(not_read.iter().all(|word| word.issued_at.to_string() == new));
        let why: Vec<_> = rejected.iter().map(|rejected| rejected.why.as_str()).collect();
        assert!(why.iter().any(|why| why.contains("key a.pub issued a newer one at 2026-02-01T00:00:00Z")), "{why:?}");
    }
}

/// Policy may count one of them alone.
#[test]
fn all_who_signed_one_document_are_told() {
    let (a, b, c) = (key(KeyKind::EcdsaP256), key(KeyKind::Ed25519), key(KeyKind::Ed25519));
    let statement = Statement::write(&digest(), "x", CERTIFICATION, &certified(2, "2026-01-01T00:00:00Z"));
    let mut envelope = Envelope::sign(IN_TOTO, statement, &a).unwrap();
    envelope.signatures.extend(Envelope::sign(IN_TOTO, envelope.payload.clone(), &b).unwrap().signatures);
    let item = item(Form::Bundle, &Bundle::write(&envelope, &a.public()));
    let keys = [trusted("c", &c), trusted("b", &b), trusted("a", &a), trusted("copy of a", &a)];
    let outcome = look(&[item.clone(), simple(&a, &digest())], &keys);
    let files = |signers: &mut dyn Iterator<Item = &Signer>| signers.map(ToString::to_string).collect::<Vec<_>>();
    let evidence = &outcome.evidence;
    assert_eq!(
        files(&mut evidence.certifications.iter().map(|said| &said.signer)),
        ["key b", "key a", "key copy of a"]
    );
    assert_eq!(files(&mut evidence.signatures.iter()), ["key a", "key copy of a"]);
    assert!(outcome.newest.iter().all(|(_, newest)| *newest == item) && evidence.rejected.is_empty());
}

/// Whoever keeps `newest` and brings it along the next time is not deceived by older words, nor by a list that lacks them.
#[test]
fn t1_what_was_seen_cannot_be_taken_back() {
    let a = key(KeyKind::Ed25519);
    let keys = [trusted("a.pub", &a)];
    let good = bundle(&a, &digest(), CERTIFICATION, &certified(3, "2026-01-01T00:00:00Z"));
    let worse = bundle(&a, &digest(), CERTIFICATION, &certified(0, "2026-02-01T00:00:00Z"));
    let revoked = bundle(&a, &digest(), REVOCATION, &json!({"status": "revoked", "issuedAt": "2026-02-01T00:00:00Z"}));
    let first = look(&[good.clone(), worse.clone(), revoked.clone()], &keys);
    let mut kept: Vec<_> = first.newest.iter().map(|(_, item)| item.clone()).collect();
    kept.sort();
    let mut want = vec![worse, revoked];
    want.sort();
    assert_eq!(kept, want);
    let again = look(&[&[good], &kept[..]].concat(), &keys);
    assert_eq!(again.evidence, first.evidence);
    assert_eq!(again.evidence.certifications[0].level, 0);
    assert_eq!(again.evidence.revocations[0].status, RevocationStatus::Revoked);
}

#[test]
fn t5_a_revocation_is_not_lost() {
    let key = key(KeyKind::EcdsaP256);
    for (predicate, want) in [
        (json!({"status": "revoked", "reason": "x", "issuedAt": NOW}), RevocationStatus::Revoked),
        (json!({"status": "quarantined", "issuedAt": NOW, "more": {"than": "known"}}), RevocationStatus::Quarantined),
        (json!({"status": "deprecated", "issuedAt": NOW}), RevocationStatus::Deprecated),
        (json!({"status": "withdrawn", "issuedAt": NOW}), RevocationStatus::Revoked),
        (json!({"status": "revoked", "issuedAt": "2030-01-01T00:00:00Z"}), RevocationStatus::Revoked),
    ] {
        let evidence = look(&[bundle(&key, &digest(), REVOCATION, &predicate)], &[trusted("k", &key)]).evidence;
        assert_eq!(evidence.revocations.iter().map(|said| said.status).collect::<Vec<_>>(), [want], "{predicate}");
    }
    let long = json!({"status": "revoked", "reason": "ü".repeat(10_000), "issuedAt": NOW});
    let evidence = look(&[bundle(&key, &digest(), REVOCATION, &long)], &[trusted("k", &key)]).evidence;
    assert_eq!(evidence.revocations[0].reason.chars().count(), 500);
}

#[test]
fn either_digest_of_a_package_will_do() {
    let key = key(KeyKind::Ed25519);
    let manifest = Digest::of("the manifest in the index");
    let about = [digest(), manifest.clone()];
    let keys = [trusted("k", &key)];
    let outcome = verify(&about, &[simple(&key, &manifest)], &by(&keys), now(), Listing::Complete);
    assert_eq!(outcome.evidence.signatures.len(), 1);
}

#[test]
fn cosigns_own_envelope_without_a_bundle() {
    let key = key(KeyKind::EcdsaP256);
    let statement = String::from_utf8(Statement::write(&digest(), "x", CERTIFICATION, &certified(1, NOW))).unwrap();
    let statement = statement.replace("Statement/v1", "Statement/v0.1");
    let sig = to_base64(&key.sign(&pae(IN_TOTO, statement.as_bytes())).unwrap());
    let envelope = json!({
        "payloadType": IN_TOTO, "payload": to_base64(statement.as_bytes()),
        "signatures": [{"keyid": "", "sig": "AAAA"}, {"sig": sig}],
    });
    let evidence = look(&[item(Form::Envelope, envelope.to_string().as_bytes())], &[trusted("k", &key)]).evidence;
    assert_eq!(evidence.certifications.len(), 1, "{:?}", evidence.rejected);
}

#[test]
fn ambiguous_documents_are_refused() {
    let key = key(KeyKind::EcdsaP256);
    let whole = bundle(&key, &digest(), IMAGE_SIGNATURE, &json!({}));
    for (from, to, why) in [
        (r#""dsseEnvelope":"#, r#""dsseEnvelope":{},"dsseEnvelope":"#, "occurs twice"),
        (r#""dsseEnvelope":"#, r#""messageSignature":{},"dsseEnvelope":"#, "neither or both"),
        (r#""publicKey":"#, r#""certificate":{},"publicKey":"#, "neither or both"),
        (r#""publicKey":{"#, r#""other":{"#, "neither or both"),
        (r#""publicKey":{"#, r#""certificate":{"#, "there is no trust root"),
        ("bundle.v0.3+json", "bundle.v0.4+json", "only version 0.3"),
        (r#""signatures":[{"#, r#""signatures":[],"x":[{"#, "without a signature"),
    ] {
        let changed = Item { text: whole.text.replacen(from, to, 1), ..whole.clone() };
        assert_ne!(changed, whole);
        let rejected = look(&[changed], &[trusted("k", &key)]).evidence.rejected;
        assert!(rejected[0].why.contains(why), "{to}: {rejected:?}");
    }
    let deep = Item { text: "[".repeat(100), form: Form::Envelope };
    let long = Item { text: " ".repeat(MAX_DOCUMENT + 1), form: Form::Bundle };
    for item in [deep, long] {
        assert_eq!(look(&[item], &[trusted("k", &key)]).evidence.rejected.len(), 1);
    }
}

#[test]
fn pre_authentication_encoding() {
    // The example of DSSE's own specification.
    assert_eq!(
        pae("http://example.com/HelloWorld", b"hello world"),
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    );
    assert_eq!(pae("", b""), b"DSSEv1 0  0 ");
}

#[test]
fn keys_in_pem() {
    for kind in KINDS {
        let key = key(kind);
        let passphrase = Secret::new("correct horse");
        let again = SigningKey::from_pem(key.to_pem(None).unwrap().expose().as_bytes(), None).unwrap();
        assert_eq!(again.public(), key.public());
        let public = PublicKey::from_pem(key.public().to_pem().as_bytes()).unwrap();
        assert_eq!((public.kind(), &public), (kind, &key.public()));
        let sealed = key.to_pem(Some(&passphrase)).unwrap();
        let sealed = sealed.expose();
        assert!(sealed.starts_with("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n"));
        assert!(SigningKey::is_encrypted(sealed.as_bytes()));
        let open =
            |text: &str, secret: Option<&Secret>| SigningKey::from_pem(text.as_bytes(), secret).map(|key| key.public());
        assert_eq!(open(sealed, Some(&passphrase)), Ok(key.public()));
        assert_eq!(open(&sealed.replace("SIGSTORE", "COSIGN"), Some(&passphrase)), Ok(key.public()));
        assert_eq!(open(sealed, Some(&Secret::new("wrong"))), Err(KeyError::Passphrase));
        assert_eq!(open(sealed, None), Err(KeyError::Encrypted));
        assert!(!format!("{key:?}").contains(&to_base64(&key.sign(b"").unwrap())));
    }
}

#[test]
fn what_is_no_key() {
    let rsa = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAK0=\n-----END PUBLIC KEY-----\n";
    let key = key(KeyKind::EcdsaP256).public().to_pem();
    for (text, why) in [
        ("", "not one key in PEM"),
        ("hello", "not one key in PEM"),
        (rsa, "neither of ECDSA P-256 nor of Ed25519"),
        (&format!("{key}{key}"), "not one key in PEM"),
        (&key.replace("PUBLIC KEY", "CERTIFICATE"), "\"CERTIFICATE\" where a PUBLIC KEY"),
        (&key.replace("-----END PUBLIC", "-----END PRIVATE"), "not one key in PEM"),
    ] {
        let error = PublicKey::from_pem(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let legacy = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";
    assert!(SigningKey::from_pem(legacy.as_bytes(), None).unwrap_err().to_string().contains("openssl pkcs8"));
}

/// A file that asks for more work or another cipher than cosign writes is refused before the work is done.
#[test]
fn an_encrypted_key_that_asks_for_too_much() {
    let sealed = |n: u64, r: u32, cipher: &str| {
        let json = json!({
            "kdf": {"name": "scrypt", "params": {"N": n, "r": r, "p": 1}, "salt": to_base64(&[0; 32])},
            "cipher": {"name": cipher, "nonce": to_base64(&[0; 24])}, "ciphertext": to_base64(&[0; 64]),
        });
        let text = to_base64(json.to_string().as_bytes());
        format!(
            "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n{text}\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
        )
    };
    for (text, why) in [
        (sealed(1 << 30, 8, "nacl/secretbox"), "a cost of N=1073741824"),
        (sealed(32_768, 1 << 20, "nacl/secretbox"), "a cost of N=32768"),
        (sealed(1000, 8, "nacl/secretbox"), "a cost of N=1000"),
        (sealed(32_768, 8, "none"), "not by scrypt and nacl/secretbox"),
    ] {
        let error = SigningKey::from_pem(text.as_bytes(), Some(&Secret::new("x"))).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
