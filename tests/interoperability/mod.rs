//! Signatures of smcp's judged by others, and those of others judged by smcp: npm's `@sigstore/verify`, PyPI's `securesystemslib`, openssl.
//! Each time a changed byte is refused by whoever judges.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::command::Ended;
use crate::servers::{node, signing_npm, signing_pypi};
use crate::signed::{Keys, Signed, certification, pae, statement};
use crate::world::{User, World};

const CERTIFICATION: &str = "https://mcp-hub.info/attestation/certification/v1";
const ISSUED: &str = "2026-01-01T00:00:00Z";

/// Both algorithms, each in a world of its own: its layout signed by smcp, and certified.
fn each_kind(judge: impl Fn(&World, &Signed, &Keys)) {
    for kind in ["ecdsa", "ed25519"] {
        let world = World::new(User::of_the_tests());
        let signed = Signed::new(&world);
        let keys = signed.keys("k", kind);
        judge(&world, &signed, &keys);
    }
}

fn sign_by_smcp(world: &World, signed: &Signed, keys: &Keys) {
    let predicate = world.file("project/p.json", certification(2, ISSUED).to_string());
    world.smcp(["sign", &signed.reference, "--key", &keys.private]).run().ok();
    let arguments = ["attest", &signed.reference, "--key", &keys.private, "--predicate", predicate.to_str().unwrap()];
    world.smcp(arguments).run().ok();
}

/// What `smcp verify` says, and its exit code.
#[track_caller]
fn verify(world: &World, signed: &Signed, keys: &Keys, code: i32) -> Value {
    world.smcp(["verify", "--json", &signed.reference, "--key", &keys.public]).run().expect(code).json()
}

/// A bundle or envelope whose payload says another level, with the signature that it had.
fn tampered(text: &str) -> String {
    let mut document: Value = serde_json::from_str(text).unwrap();
    let envelope = match document.get("dsseEnvelope") {
        Some(_) => &mut document["dsseEnvelope"],
        None => &mut document,
    };
    let payload = String::from_utf8(STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap()).unwrap();
    let changed = payload.replace("\"level\":2", "\"level\":3").replace("\"level\": 2", "\"level\": 3");
    assert_ne!(changed, payload);
    envelope["payload"] = json!(STANDARD.encode(changed));
    document.to_string()
}

fn our_statement(signed: &Signed) -> String {
    statement(&signed.digest(), CERTIFICATION, &certification(2, ISSUED)).to_string()
}

fn own_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/interoperability").join(name)
}

pub fn by_node(world: &World, arguments: &[&str]) -> Ended {
    let modules = signing_npm().join("node_modules");
    // The tests' own checkout may be closed to the world's user.
    let script = world.file("project/node.mjs", fs::read(own_file("node.mjs")).unwrap());
    world.program(node(), [script.as_os_str(), modules.as_os_str()]).args(arguments).run()
}

fn by_python(world: &World, arguments: &[&str]) -> Ended {
    python(world, "python.py", arguments)
}

/// One of the scripts beside this file.
pub fn python(world: &World, script: &str, arguments: &[&str]) -> Ended {
    let script = world.file(&format!("project/{script}"), fs::read(own_file(script)).unwrap());
    world.program("/usr/bin/python3", [script]).args(arguments).env("PYTHONPATH", signing_pypi()).run()
}

fn by_openssl(world: &World, arguments: &[&str]) -> Ended {
    world.program("/usr/bin/openssl", arguments).run()
}

#[test]
fn t12_sigstores_javascript_verifies_what_smcp_signs() {
    each_kind(|world, signed, keys| {
        sign_by_smcp(world, signed, keys);
        let bundles = signed.bundles();
        assert_eq!(bundles.len(), 2);
        for text in &bundles {
            let parsed: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parsed["dsseEnvelope"]["signatures"][0]["keyid"], "", "any other fails in sigstore-go");
            world.file("project/bundle.json", text);
            let [bundle, key] = [world.text("project/bundle.json"), keys.public.clone()];
            let said = by_node(world, &["verify", &bundle, &key]).ok().text();
            let statement: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(
                format!("sha256:{}", statement["subject"][0]["digest"]["sha256"].as_str().unwrap()),
                signed.digest()
            );
            let other = signed.keys(&format!("other-{}", text.len()), "ecdsa");
            by_node(world, &["verify", &bundle, &other.public]).expect(1);
        }
        let certified =
            bundles.iter().find(|text| text.len() == bundles.iter().map(String::len).max().unwrap()).unwrap();
        world.file("project/bundle.json", tampered(certified));
        by_node(world, &["verify", &world.text("project/bundle.json"), &keys.public]).expect(1);
    });
}

#[test]
fn t12_smcp_verifies_what_sigstores_javascript_makes() {
    each_kind(|world, signed, keys| {
        world.file("project/statement.json", our_statement(signed));
        let [statement, bundle] = ["statement.json", "bundle.json"].map(|name| world.text(&format!("project/{name}")));
        by_node(world, &["sign", &statement, &keys.private, &bundle]).ok();
        let text = fs::read_to_string(bundle).unwrap();
        signed.add_bundle(&text);
        assert_eq!(verify(world, signed, keys, 0)["certifications"][0]["level"], 2);
        is_refused_once_it_is_changed(world.user(), signed, keys, |fresh| fresh.add_bundle(&tampered(&text)));
    });
}

#[test]
fn t12_securesystemslib_verifies_what_smcp_signs() {
    each_kind(|world, signed, keys| {
        sign_by_smcp(world, signed, keys);
        let envelope = |bundle: &str| serde_json::from_str::<Value>(bundle).unwrap()["dsseEnvelope"].to_string();
        let path = world.text("project/envelope.json");
        let mut longest = String::new();
        for bundle in signed.bundles() {
            world.file("project/envelope.json", envelope(&bundle));
            let said = by_python(world, &["verify", &path, &keys.public]).ok().text();
            assert!(said.contains(signed.digest().trim_start_matches("sha256:")), "{said}");
            longest = if bundle.len() > longest.len() { bundle } else { longest };
        }
        world.file("project/envelope.json", envelope(&tampered(&longest)));
        let refused = by_python(world, &["verify", &path, &keys.public]).expect(1);
        refused.check(refused.stderr().contains("VerificationError"), "a refusal was expected");
    });
}

#[test]
fn t12_smcp_verifies_what_securesystemslib_signs() {
    each_kind(|world, signed, keys| {
        world.file("project/statement.json", our_statement(signed));
        let [statement, envelope] =
            ["statement.json", "envelope.json"].map(|name| world.text(&format!("project/{name}")));
        by_python(world, &["sign", &statement, &keys.private, &envelope]).ok();
        let text = fs::read_to_string(envelope).unwrap();
        signed.add_envelope(&text);
        assert_eq!(verify(world, signed, keys, 0)["certifications"][0]["level"], 2);
        is_refused_once_it_is_changed(world.user(), signed, keys, |fresh| fresh.add_envelope(&tampered(&text)));
    });
}

/// The bare signatures: of cosign's payload, and of an envelope's bytes before they are wrapped.
#[test]
fn t12_openssl_verifies_what_smcp_signs() {
    for kind in ["ecdsa", "ed25519"] {
        let world = World::new(User::of_the_tests());
        let signed = Signed::new(&world);
        let keys = signed.keys("k", kind);
        sign_by_smcp(&world, &signed, &keys);
        let mut pairs = signed.signatures();
        assert_eq!(pairs.len(), 1);
        let payload: Value = serde_json::from_str(&pairs[0].0).unwrap();
        assert_eq!(payload["critical"]["image"]["docker-manifest-digest"], signed.digest().as_str());
        pairs.extend(signed.bundles().iter().map(|text| {
            let envelope = serde_json::from_str::<Value>(text).unwrap()["dsseEnvelope"].clone();
            let payload = STANDARD.decode(envelope["payload"].as_str().unwrap()).unwrap();
            (pae(&String::from_utf8(payload).unwrap()), envelope["signatures"][0]["sig"].as_str().unwrap().to_owned())
        }));
        for (message, signature) in pairs {
            let judge = |message: &str| {
                let [message, signature] = [
                    world.file("project/message", message),
                    world.file("project/signature", STANDARD.decode(&signature).unwrap()),
                ];
                openssl_verify(&world, kind, &keys.public, &message, &signature)
            };
            judge(&message).ok();
            judge(&message.replacen('a', "b", 1)).expect(1);
        }
    }
}

/// Keys of openssl's own, and cosign's forms made by hand around its signatures.
#[test]
fn t12_smcp_verifies_what_openssl_signs() {
    for kind in ["ecdsa", "ed25519"] {
        let world = World::new(User::of_the_tests());
        let signed = Signed::new(&world);
        let keys = openssl_keys(&world, kind);
        let cosign = json!({
            "critical": {
                "identity": {"docker-reference": "registry.test/acme/hello"},
                "image": {"docker-manifest-digest": signed.digest()},
                "type": "cosign container image signature",
            },
            "optional": {"creator": "openssl", "timestamp": 1},
        })
        .to_string();
        let signature = openssl_sign(&world, kind, &keys.private, &cosign);
        signed.add_signature(&cosign, &signature);
        // cosign 2 writes statements of this older version.
        let old = our_statement(&signed).replace("Statement/v1", "Statement/v0.1");
        let sig = openssl_sign(&world, kind, &keys.private, &pae(&old));
        let envelope = json!({
            "payloadType": "application/vnd.in-toto+json", "payload": STANDARD.encode(&old),
            "signatures": [{"keyid": "", "sig": sig}],
        })
        .to_string();
        signed.add_envelope(&envelope);
        let said = verify(&world, &signed, &keys, 0);
        assert_eq!((said["signatures"].as_array().unwrap().len(), &said["certifications"][0]["level"]), (1, &json!(2)));
        is_refused_once_it_is_changed(world.user(), &signed, &keys, |fresh| {
            fresh.add_signature(&cosign.replace("acme", "evil"), &signature);
            fresh.add_envelope(&tampered(&envelope));
        });
        // And smcp signs with openssl's key.
        signed.clear();
        world.smcp(["sign", &signed.reference, "--key", &keys.private]).run().ok();
        let said = verify(&world, &signed, &keys, 0);
        assert_eq!(said["signatures"].as_array().unwrap().len(), 1);
    }
}

/// An encrypted private key is opened by scrypt and NaCl of others, and one that they sealed by smcp.
#[test]
fn t12_encrypted_keys_are_cosigns() {
    let world = World::new(User::of_the_tests());
    let signed = Signed::new(&world);
    let prefix = world.text("project/sealed");
    world.smcp(["key", "generate", "--output", &prefix]).env("COSIGN_PASSWORD", "correct horse").run().ok();
    let sealed = format!("{prefix}.key");
    let plain = world.text("project/plain.key");
    by_node(&world, &["open", &sealed, "wrong", &plain]).expect(1);
    by_node(&world, &["open", &sealed, "correct horse", &plain]).ok();
    let public = by_openssl(&world, &["pkey", "-in", &plain, "-pubout"]).ok().text();
    assert_eq!(public, fs::read_to_string(format!("{prefix}.pub")).unwrap());
    for kind in ["ecdsa", "ed25519"] {
        let keys = openssl_keys(&world, kind);
        let sealed = world.text(&format!("project/{kind}.sealed"));
        by_node(&world, &["seal", &keys.private, "battery staple", &sealed]).ok();
        world.smcp(["sign", &signed.reference, "--key", &sealed]).env("COSIGN_PASSWORD", "battery staple").run().ok();
        assert_eq!(verify(&world, &signed, &keys, 0)["signatures"].as_array().unwrap().len(), 1);
    }
}

/// In a world where nothing of it was seen before.
#[track_caller]
fn is_refused_once_it_is_changed(user: User, signed: &Signed, keys: &Keys, add: impl FnOnce(&Signed)) {
    signed.clear();
    add(signed);
    let fresh = World::new(user);
    let said = fresh.smcp(["verify", "--json", &signed.reference, "--key", &keys.public]).run().expect(122).json();
    let reasons = said["rejected"].as_array().unwrap();
    assert!(!reasons.is_empty());
    for rejected in reasons {
        assert!(rejected["why"].as_str().unwrap().contains("or it was changed since"), "{said}");
    }
}

fn openssl_keys(world: &World, kind: &str) -> Keys {
    let [private, public] = ["key", "pub"].map(|end| world.text(&format!("project/openssl-{kind}.{end}")));
    let kind: &[&str] = match kind {
        "ecdsa" => &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        _ => &["-algorithm", "ED25519"],
    };
    by_openssl(world, &[&["genpkey", "-out", &private], kind].concat()).ok();
    by_openssl(world, &["pkey", "-in", &private, "-pubout", "-out", &public]).ok();
    Keys { private, public }
}

fn openssl_sign(world: &World, kind: &str, key: &str, message: &str) -> String {
    let message = world.file("project/message", message);
    let message = message.to_str().unwrap();
    let signature = world.text("project/signature");
    match kind {
        "ecdsa" => by_openssl(world, &["dgst", "-sha256", "-sign", key, "-out", &signature, message]).ok(),
        _ => by_openssl(world, &["pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", message, "-out", &signature]).ok(),
    };
    STANDARD.encode(fs::read(signature).unwrap())
}

fn openssl_verify(world: &World, kind: &str, key: &str, message: &Path, signature: &Path) -> Ended {
    let [message, signature] = [message, signature].map(|path| path.to_str().unwrap());
    match kind {
        "ecdsa" => by_openssl(world, &["dgst", "-sha256", "-verify", key, "-signature", signature, message]),
        _ => {
            let verify =
                ["pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin", "-in", message, "-sigfile", signature];
            by_openssl(world, &verify)
        }
    }
}
