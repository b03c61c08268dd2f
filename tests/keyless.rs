//! Packages signed by certificates, whose authority and logs are the tests' own (`interoperability/authority.py`): what a trust root
//! vouches for counts for those whom a policy names, and nothing else does. sigstore's JavaScript judges the same.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::interoperability::{by_node, python};
use crate::signed::{Signed, certification, statement};
use crate::world::{User, World};

const IDENTITY: &str = "https://git.test/acme/tool/.ci/release.yaml@refs/heads/main";
const ISSUER: &str = "https://tokens.test";
const IMAGE_SIGNATURE: &str = "https://sigstore.dev/cosign/sign/v1";
const CERTIFICATION: &str = "https://mcp-hub.info/attestation/certification/v1";

/// Bundles about a package by their names, and the trust root's file.
struct Made {
    bundles: BTreeMap<String, String>,
    root: String,
}

fn made(world: &World, signed: &Signed, kind: &str, predicate: &Value) -> Made {
    let directory = world.directory("project/authority");
    world.file("project/authority/statement.json", statement(&signed.digest(), kind, predicate).to_string());
    python(world, "authority.py", &[directory.to_str().unwrap()]).ok();
    let mut bundles = BTreeMap::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !["statement", "trusted_root"].contains(&name.as_str()) {
            bundles.insert(name, fs::read_to_string(path).unwrap());
        }
    }
    Made { bundles, root: world.text("project/authority/trusted_root.json") }
}

/// Why one does not count here; none for what does.
fn reason(name: &str) -> Option<&'static str> {
    Some(match name {
        "good" | "of-another-statement" => return None,
        "another-identity" | "another-issuer" | "of-a-person" | "built" | "built-elsewhere" => {
            "whose word counts for nothing here"
        }
        _ => "the trust root does not vouch for it",
    })
}

/// Each bundle alone, in a state where nothing was seen before. A level that another statement claims is that of its signer: it counts
/// as what it says.
#[test]
fn t12_what_a_trust_root_vouches_for() {
    let world = World::new(User::of_the_tests());
    let signed = Signed::new(&world);
    let made = made(&world, &signed, CERTIFICATION, &certification(2, "2026-01-01T00:00:00Z"));
    assert!(made.bundles.len() >= 18, "{:?}", made.bundles.keys());
    for (name, bundle) in &made.bundles {
        signed.clear();
        signed.add_bundle(bundle);
        let fresh = World::new(world.user());
        let verify = ["verify", "--json", &signed.reference, "--trust-root", &made.root];
        let run = fresh.smcp(verify).args(["--identity", IDENTITY, "--issuer", ISSUER]).run();
        let Some(why) = reason(name) else {
            let said = run.ok().json();
            let level = if name == "good" { 2 } else { 3 };
            assert_eq!(said["certifications"][0]["level"], level, "{name}: {said}");
            assert_eq!(said["certifications"][0]["by"], json!({"identity": IDENTITY, "issuer": ISSUER}));
            continue;
        };
        let said = run.expect(122).json();
        assert_eq!(said["certifications"], json!([]), "{name}");
        let rejected = said["rejected"].as_array().unwrap();
        assert!(rejected.len() == 1 && rejected[0]["why"].as_str().unwrap().contains(why), "{name}: {said}");
        // Whom the certificate names counts where a policy says so.
        if name == "of-a-person" {
            let run = fresh.smcp(verify).args(["--identity", "ann@acme.test", "--issuer", ISSUER]).run();
            assert_eq!(run.ok().json()["certifications"][0]["level"], 2);
        }
    }
}

/// The outside judge agrees in every case, so that it is not the tests' own authority that is wrong.
#[test]
fn t12_sigstores_javascript_judges_certificates_alike() {
    let world = World::new(User::of_the_tests());
    let signed = Signed::new(&world);
    let made = made(&world, &signed, CERTIFICATION, &certification(2, "2026-01-01T00:00:00Z"));
    for name in made.bundles.keys() {
        let bundle = world.text(&format!("project/authority/{name}.json"));
        let code = if reason(name).is_none() { 0 } else { 1 };
        by_node(&world, &["certificate", &bundle, &made.root, IDENTITY, ISSUER]).expect(code);
    }
}

#[test]
fn t12_a_policy_demands_a_certificate_of_somebody() {
    for user in [User::of_the_tests(), User::Ordinary] {
        let world = World::new(user);
        let signed = Signed::new(&world);
        let made = made(&world, &signed, IMAGE_SIGNATURE, &json!({"level": 2}));
        world.directory("home/.smcp");
        let root = fs::read(&made.root).unwrap();
        world.file("home/.smcp/trusted_root.json", &root);
        let rule = format!("{{names: ['*'], identity: \"{IDENTITY}\", issuer: \"{ISSUER}\"}}");
        let config = world.file("home/policy.yaml", format!("policy: {{signatures: [{rule}]}}\n"));
        let config = config.to_str().unwrap();
        let run = || world.smcp(["--config", config, "run", &signed.reference, "exit", "4"]).run();
        run().expect(121).explains(&["demands a signature by", IDENTITY, "it has none that counts"]);
        for (name, bundle) in &made.bundles {
            signed.clear();
            signed.add_bundle(bundle);
            match reason(name) {
                None => drop(run().expect(4)),
                Some(why) => run().expect(121).explains(&["demands a signature by", why]),
            }
        }
        let begin = |world: &World| world.audit().into_iter().rfind(|entry| entry["event"] == "begin").unwrap();
        signed.clear();
        signed.add_bundle(&made.bundles["good"]);
        run().expect(4);
        assert_eq!(begin(&world)["signers"], json!([format!("{IDENTITY} ({ISSUER})")]), "{}", begin(&world));
        // Copied to another package it says nothing.
        let image = crate::image::Image::probe().manifest(|manifest| manifest["version"] = json!("2.0.0")).build();
        let other = Signed::of(&world, &image.write(&world.path("project/second")), "other");
        other.add_bundle(&made.bundles["good"]);
        let copied = world.smcp(["--config", config, "run", &other.reference, "exit", "4"]).run().expect(121);
        copied.explains(&["the trust root does not vouch for it"]);
        // Nor with a trust root of others, one that cannot be read, or none.
        let mut foreign: Value = serde_json::from_slice(&root).unwrap();
        foreign["certificateAuthorities"] = json!([]);
        world.file("home/.smcp/trusted_root.json", foreign.to_string());
        run().expect(121).explains(&["the trust root does not vouch for it"]);
        world.file("home/.smcp/trusted_root.json", "{");
        run().expect(119).explains(&["the trust root", "trusted_root.json"]);
        fs::remove_file(world.path("home/.smcp/trusted_root.json")).unwrap();
        run().expect(121).explains(&["there is no trust root to verify it by"]);
    }
}

/// The organisation's identities are looked at by the organisation's trust root alone.
#[test]
fn t12_a_trust_root_of_the_users_is_not_the_organisations() {
    let world = World::new(User::of_the_tests());
    let signed = Signed::new(&world);
    let made = made(&world, &signed, CERTIFICATION, &certification(2, "2026-01-01T00:00:00Z"));
    signed.add_bundle(&made.bundles["good"]);
    let certifier = format!("{{identity: \"{IDENTITY}\", issuer: \"{ISSUER}\", names: ['*']}}");
    world.govern("policy.yaml", &format!("policy: {{min_cert_level: 2, certifiers: [{certifier}]}}\n"));
    world.directory("home/.smcp");
    let root = fs::read_to_string(&made.root).unwrap();
    world.file("home/.smcp/trusted_root.json", &root);
    let run = || Some(world.governed(["run", &signed.reference, "exit", "4"])?.run());
    let Some(refused) = run() else { return };
    refused.expect(121).explains(&["/etc/smcp/policy.yaml:1 demands 2", "there is no trust root to verify it by"]);
    world.govern("trusted_root.json", &root);
    run().unwrap().expect(4);
}

/// What this build can do is told.
#[test]
fn a_build_says_what_it_can_do() {
    let world = World::new(User::Ordinary);
    assert!(world.smcp(["--version"]).run().ok().text().ends_with("(features: keyless)\n"));
}
