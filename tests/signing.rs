//! `smcp key`, `sign`, `attest` and `verify`, and what is known of a package by them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bundle::Listing;
use bundle::attest::{PublicKey, Signers, Trust, TrustedKey, look_up};
use distribution::{Mode, Network, Store, resolve};
use serde_json::{Value, json};

use crate::fake::{Fake, Reply};
use crate::image::{Image, probe_reference};
use crate::needs;
use crate::registry;
use crate::signed::{Keys, Signed, certification};
use crate::world::{User, World, as_each_user};

as_each_user! {
    t12_what_is_signed_verifies,
    t1_each_attestation_has_its_reason,
    t1_a_run_is_judged_by_attestations,
    t5_a_revocation_holds_in_every_mode,
    t12_a_policy_demands_a_signature,
    t12_a_policy_names_an_identity,
    t12_keys_are_read_where_they_count,
    t1_what_has_ended_is_told,
    t5_who_floods_a_package_hides_nothing,
    t12_several_sign_at_once,
    t5_what_is_revoked_stays_revoked,
    an_old_word_does_not_come_back,
    keys_are_made_once,
    a_passphrase_opens_a_key,
    a_layout_with_signatures_still_runs,
    what_cannot_be_signed_is_said,
}

fn attest(world: &World, signed: &Signed, key: &Keys, kind: &str, predicate: &Value) {
    let file = world.file("project/predicate.json", predicate.to_string());
    let file = file.to_str().unwrap();
    world.smcp(["attest", &signed.reference, "--predicate", file, "--type", kind, "--key", &key.private]).run().ok();
}

/// What `verify` says, with the exit code that is expected.
#[track_caller]
fn verify(world: &World, signed: &Signed, keys: &[&Keys], code: i32) -> Value {
    let mut arguments = vec!["verify", "--json", signed.reference.as_str()];
    arguments.extend(keys.iter().flat_map(|key| ["--key", key.public.as_str()]));
    world.smcp(arguments).run().expect(code).json()
}

fn reasons(said: &Value) -> String {
    said["rejected"].as_array().unwrap().iter().map(|it| format!("{}\n", it["why"].as_str().unwrap())).collect()
}

fn t12_what_is_signed_verifies(world: &World) {
    let signed = Signed::new(world);
    for kind in ["ecdsa", "ed25519"] {
        let (key, other) = (signed.keys(kind, kind), signed.keys(&format!("other-{kind}"), kind));
        let ended = world.smcp(["verify", &signed.reference, "--key", &key.public]).run().expect(122);
        ended.explains(&["no signature or attestation"]);
        let said = world.smcp(["sign", &signed.reference, "--key", &key.private]).run().ok().text();
        assert!(said.contains(&signed.digest()), "{said}");
        attest(world, &signed, &key, "certification", &certification(2, "2026-01-01T00:00:00Z"));
        attest(world, &signed, &key, "https://example.com/any/v1", &json!({"any": ["thing"]}));
        let said = verify(world, &signed, &[&other, &key], 0);
        assert_eq!(said["digest"], signed.digest().as_str());
        assert_eq!(said["signatures"].as_array().unwrap().len(), 1, "{said}");
        assert_eq!(said["signatures"][0]["key"], key.public.as_str());
        assert_eq!((&said["certifications"][0]["level"], &said["certifications"][0]["score"]), (&json!(2), &json!(85)));
        assert_eq!(said["others"][0]["predicateType"], "https://example.com/any/v1");
        assert_eq!(said["listing"], "complete");
        let said = verify(world, &signed, &[&other], 122);
        assert_eq!(said["rejected"].as_array().unwrap().len(), 4, "{said}");
        let text = world.smcp(["verify", &signed.reference, "--key", &key.public]).run().ok().text();
        for line in ["signed     by key", "certified  level 2, score 85", "attested   \"https://example.com/any/v1\""] {
            assert!(text.contains(line), "{text}");
        }
        signed.clear();
    }
}

fn t1_each_attestation_has_its_reason(world: &World) {
    let signed = Signed::new(world);
    let (key, unknown) = (signed.keys("a", "ecdsa"), signed.keys("b", "ed25519"));
    attest(world, &signed, &unknown, "certification", &certification(3, "2026-01-01T00:00:00Z"));
    let said = verify(world, &signed, &[&key], 122);
    assert!(reasons(&said).contains("none of the keys at hand made its signature"), "{said}");
    signed.clear();
    let mut expired = certification(2, "2026-01-01T00:00:00Z");
    expired["expiresAt"] = json!("2026-02-01T00:00:00Z");
    attest(world, &signed, &key, "certification", &expired);
    let said = verify(world, &signed, &[&key], 122);
    assert_eq!(said["expired"][0]["expiresAt"], "2026-02-01T00:00:00Z", "{said}");
    assert_eq!(said["certifications"], json!([]));
    // What is said of one package, beside another.
    let second = Image::probe().manifest(|manifest| manifest["version"] = json!("2.0.0")).build();
    let second = second.write(&world.path("project/second"));
    let other = Signed::of(world, &second, "other");
    attest(world, &signed, &key, "certification", &certification(2, "2026-01-01T00:00:00Z"));
    other.add_bundle(&signed.bundles().remove(1));
    let said = verify(world, &other, &[&key], 122);
    assert!(reasons(&said).contains(&format!("about another digest, {}", signed.digest())), "{said}");
}

/// The words of a configuration with a policy.
fn config(world: &World, policy: &str) -> String {
    world.file("home/policy.yaml", format!("policy: {policy}\n")).display().to_string()
}

fn t1_a_run_is_judged_by_attestations(world: &World) {
    let signed = Signed::new(world);
    let (key, unknown) = (signed.keys("certifier", "ecdsa"), signed.keys("unknown", "ecdsa"));
    let policy = format!("{{min_cert_level: 2, certifiers: [{{key: {}, names: ['*']}}]}}", key.public);
    let policy = config(world, &policy);
    let run = || world.smcp(["--config", &policy, "run", &signed.reference, "exit", "4"]).run();
    let refused = |why: &str| run().expect(121).explains(&["demands 2", why]);
    refused("it is of level 0");
    attest(world, &signed, &unknown, "certification", &certification(3, "2026-01-01T00:00:00Z"));
    refused("none of the keys at hand made its signature");
    let mut expired = certification(3, "2026-01-01T00:00:00Z");
    expired["expiresAt"] = json!("2026-01-02T00:00:00Z");
    attest(world, &signed, &key, "certification", &expired);
    refused("its certification for level 3 by key");
    refused("ended at 2026-01-02T00:00:00Z");
    attest(world, &signed, &key, "certification", &certification(1, "2026-01-03T00:00:00Z"));
    refused("it is of level 1");
    attest(world, &signed, &key, "certification", &certification(2, "2026-01-04T00:00:00Z"));
    run().expect(4);
    let begin = world.audit().into_iter().rfind(|entry| entry["event"] == "begin").unwrap();
    assert_eq!((&begin["level"], &begin["score"]), (&json!(2), &json!(85)), "{begin}");
    assert_eq!(begin["certifier"], format!("key {}", key.public).as_str());
    // Nobody serves it any more: it was seen, and has not ended.
    signed.clear();
    run().expect(4);
}

/// A key is read where its word could count, and what is wrong with it is told with the policy that names it.
fn t12_keys_are_read_where_they_count(world: &World) {
    let signed = Signed::new(world);
    let (key, absent, broken) =
        (signed.keys("k", "ecdsa"), world.text("project/absent.pub"), world.text("project/b.pub"));
    fs::write(&broken, "no key").unwrap();
    let certifier = |names: &str, key: &str, more: &str| {
        format!("{{certifiers: [{{key: {key}, names: ['{names}']{more}}}], min_cert_level: 0}}")
    };
    let rule = |names: &str, key: &str| format!("{{signatures: [{{names: ['{names}'], keys: [{key}]}}]}}");
    let run = |policy: &str| {
        let policy = config(world, policy);
        world.smcp(["--config", &policy, "run", &signed.reference, "exit", "4"]).run()
    };
    for policy in [
        rule("acme/*", &absent),
        certifier("acme/*", &broken, ""),
        certifier("registry.test/*", &absent, ", predicates: [revocation]"),
        certifier("test/*", &broken, ", predicates: [certification]"),
    ] {
        run(&policy).expect(4);
    }
    for (policy, file, why) in [
        (rule("test/*", &absent), &absent, "No such file"),
        (rule("*", &broken), &broken, "not one key in PEM"),
        (certifier("oci-layout:*", &broken, ""), &broken, "not one key in PEM"),
        (certifier("test/*", &absent, ", predicates: [revocation]"), &absent, "No such file"),
        (rule("*", &key.private), &key.private, "\"PRIVATE KEY\" where a PUBLIC KEY"),
        (rule("*", &world.text("project")), &world.text("project"), "no regular file"),
    ] {
        let ended = run(&policy).expect(119);
        ended.explains(&[&format!("the key {file}, which "), "home/policy.yaml:1 names", why]);
        assert_eq!(world.last_end()["cause"], "configuration");
    }
    let long = world.text("project/long.pub");
    let pem = fs::read_to_string(&key.public).unwrap();
    fs::write(&long, format!("{pem}{}", "\n".repeat(70 << 10))).unwrap();
    run(&rule("*", &long)).expect(119).explains(&["long.pub", "not one key in PEM"]);
    fs::write(&long, vec![b'\n'; (1 << 20) + 1]).unwrap();
    run(&rule("*", &long)).expect(119).explains(&["long.pub", "larger than 1 MiB"]);
}

/// A certification that has ended is told of, and nothing takes its place without a word.
fn t1_what_has_ended_is_told(world: &World) {
    let signed = Signed::new(world);
    let key = signed.keys("certifier", "ecdsa");
    let mut ended = certification(3, "2026-01-01T00:00:00Z");
    ended["expiresAt"] = json!("2026-01-02T00:00:00Z");
    attest(world, &signed, &key, "certification", &certification(2, "2025-01-01T00:00:00Z"));
    attest(world, &signed, &key, "certification", &ended);
    let policy = config(world, &format!("{{certifiers: [{{key: {}, names: ['*']}}]}}", key.public));
    let told = "its certification for level 3 by key";
    for command in [&["info"][..], &["policy", "check"]] {
        let said = world.smcp(["--config", &policy]).args(command).args([&signed.reference]).run().ok();
        for words in ["level      0", told, "ended at 2026-01-02T00:00:00Z"] {
            said.check(said.text().contains(words), words);
        }
    }
    let json = world.smcp(["--config", &policy, "info", "--json", &signed.reference]).run().ok().json();
    assert!(json["notes"].to_string().contains(told), "{json}");
    let text = world.smcp(["verify", &signed.reference, "--key", &key.public]).run().expect(122);
    text.explains(&["what certified it has ended"]);
    assert!(text.text().contains("\nexpired    level 3, score 85"), "{}", text.text());
    // The next one counts again.
    attest(world, &signed, &key, "certification", &certification(1, "2026-01-03T00:00:00Z"));
    let said = world.smcp(["--config", &policy, "info", &signed.reference]).run().ok().text();
    assert!(said.contains("level      1 (certified by key"), "{said}");
}

/// Whoever may put something beside a package could hide a revocation among it: what is too much to be judged does not run, in any mode.
fn t5_who_floods_a_package_hides_nothing(world: &World) {
    let signed = Signed::new(world);
    let key = signed.keys("certifier", "ed25519");
    attest(world, &signed, &key, "revocation", &json!({"status": "revoked", "reason": "CVE-1"}));
    let policy =
        config(world, &format!("{{cert_level_mode: disabled, certifiers: [{{key: {}, names: ['*']}}]}}", key.public));
    let run = || world.smcp(["--config", &policy, "run", &signed.reference, "exit", "4"]).run();
    for number in 0..63 {
        signed.add_bundle(&format!("{{\"number\": {number}}}"));
    }
    run().expect(121).explains(&["it is revoked"]);
    signed.add_bundle("{}");
    run().expect(122).explains(&["65 documents, at most 64 are read"]);
    world.smcp(["verify", &signed.reference, "--key", &key.public]).run().expect(122).explains(&["65 documents"]);
    // Where nobody's word counts nobody can stop it either.
    world.smcp(["run", &signed.reference, "exit", "4"]).run().expect(4);
}

/// All of one user at once, on one list: none takes the place of another.
fn t12_several_sign_at_once(world: &World) {
    let signed = Signed::new(world);
    let keys: Vec<_> = (0..6).map(|number| signed.keys(&format!("k{number}"), "ed25519")).collect();
    let sign = |key: &Keys| world.smcp(["sign", &signed.reference, "--key", &key.private]).start();
    let running: Vec<_> = keys.iter().map(sign).collect();
    running.into_iter().for_each(|running| drop(running.wait().ok()));
    assert_eq!(signed.signatures().len(), keys.len());
    let said = verify(world, &signed, &keys.iter().collect::<Vec<_>>(), 0);
    assert_eq!(said["signatures"].as_array().unwrap().len(), keys.len(), "{said}");
}

fn t5_a_revocation_holds_in_every_mode(world: &World) {
    let signed = Signed::new(world);
    let key = signed.keys("certifier", "ed25519");
    let policy = format!("{{cert_level_mode: disabled, certifiers: [{{key: {}, names: ['*']}}]}}", key.public);
    let policy = config(world, &policy);
    let run = || world.smcp(["--config", &policy, "run", &signed.reference, "exit", "4"]).run();
    run().expect(4);
    let word = |status: &str, at: &str| {
        let predicate = json!({"status": status, "reason": "a\u{1b}b", "issuedAt": at});
        attest(world, &signed, &key, "revocation", &predicate);
    };
    word("deprecated", "2026-01-01T00:00:00Z");
    run().expect(4).says(&["warning: it is deprecated", "a\\u{1b}b"]);
    for (status, at) in [("quarantined", "2026-01-02T00:00:00Z"), ("revoked", "2026-01-03T00:00:00Z")] {
        word(status, at);
        run().expect(121).explains(&[&format!("it is {status}")]);
        signed.clear();
        run().expect(121).explains(&[&format!("it is {status}")]);
    }
}

fn t12_a_policy_demands_a_signature(world: &World) {
    let signed = Signed::new(world);
    let (key, other) = (signed.keys("publisher", "ecdsa"), signed.keys("other", "ed25519"));
    let policy = config(world, &format!("{{signatures: [{{names: ['*'], keys: [{}]}}]}}", key.public));
    let run = || world.smcp(["--config", &policy, "run", &signed.reference, "exit", "4"]).run();
    run().expect(121).explains(&["demands a signature by key", "it has none that counts"]);
    world.smcp(["sign", &signed.reference, "--key", &other.private]).run().ok();
    run().expect(121).explains(&["none of the keys at hand made its signature"]);
    world.smcp(["sign", &signed.reference, "--key", &key.private]).run().ok();
    run().expect(4);
    // What signed another package signs nothing here.
    let pairs = signed.signatures();
    let second = Image::probe().manifest(|manifest| manifest["version"] = json!("2.0.0")).build();
    let copied = Signed::of(world, &second.write(&world.path("project/second")), "copied");
    pairs.iter().for_each(|(payload, signature)| copied.add_signature(payload, signature));
    let ended = world.smcp(["--config", &policy, "run", &copied.reference, "exit", "4"]).run().expect(121);
    ended.explains(&["it is about another digest"]);
    // However the same package is written: by its digest, by way of a link, in another place.
    let demanded = |reference: &str| {
        let ended = world.smcp(["--config", &policy, "run", reference, "exit", "4"]).run().expect(121);
        ended.explains(&["demands a signature by key"]);
    };
    let place = copied.reference.trim_end_matches(":v1").to_owned();
    demanded(&place);
    demanded(&format!("{place}@{}", copied.digest()));
    std::os::unix::fs::symlink(place.trim_start_matches("oci-layout:"), world.path("project/link")).unwrap();
    demanded(&format!("oci-layout:{}:v1", world.text("project/link")));
    demanded(&format!("{}/../{}:v1", place, "copied"));
}

/// A certificate counts by a trust root alone, which is the organisation's or the user's.
fn t12_a_policy_names_an_identity(world: &World) {
    let signed = Signed::new(world);
    let policy = "{signatures: [{names: ['*'], identity: a@b.test, issuer: 'https://b.test'}]}";
    let policy = config(world, policy);
    let run = || world.smcp(["--config", &policy, "run", &signed.reference, "exit", "4"]).run();
    signed.add_bundle(include_str!("fixtures/signing/keyless.sigstore.json"));
    run().expect(121).explains(&["demands a signature by a@b.test", "there is no trust root to verify it by"]);
    world.directory("home/.smcp");
    world.file("home/.smcp/trusted_root.json", "{}");
    let why =
        if cfg!(feature = "keyless") { "trusted_root.json" } else { "this build of smcp verifies no certificates" };
    run().expect(119).explains(&["the trust root", why]);
}

fn t5_what_is_revoked_stays_revoked(world: &World) {
    let signed = Signed::new(world);
    let key = signed.keys("certifier", "ed25519");
    attest(world, &signed, &key, "certification", &certification(3, "2026-01-01T00:00:00Z"));
    let certified = signed.bundles();
    attest(
        world,
        &signed,
        &key,
        "revocation",
        &json!({"status": "deprecated", "reason": "old", "issuedAt": "2026-01-02T00:00:00Z"}),
    );
    let said = verify(world, &signed, &[&key], 0);
    assert_eq!(said["revocations"][0]["status"], "deprecated", "{said}");
    attest(world, &signed, &key, "revocation", &json!({"status": "revoked", "reason": "CVE-1\n\u{1b}[2Jhint: run it"}));
    let ended = world.smcp(["verify", &signed.reference, "--key", &key.public]).run().expect(121);
    ended.explains(&["says that it is revoked"]);
    assert!(!ended.text().contains('\u{1b}') && !ended.text().contains("\nhint"), "{}", ended.text());
    // Whoever serves the package leaves the revocation out: it was seen.
    signed.clear();
    signed.add_bundle(&certified[0]);
    let said = verify(world, &signed, &[&key], 121);
    assert_eq!(
        (&said["revocations"][0]["status"], said["certifications"].as_array().unwrap().len()),
        (&json!("revoked"), 1)
    );
    let fresh = World::new(world.user());
    let copy = format!("oci-layout:{}", world.text("project/layout"));
    fresh.smcp(["verify", &copy, "--key", &key.public]).run().ok();
}

/// A registry that serves what was certified before does not bring it back, nor one that serves nothing.
fn an_old_word_does_not_come_back(world: &World) {
    let signed = Signed::new(world);
    let key = signed.keys("certifier", "ecdsa");
    attest(world, &signed, &key, "certification", &certification(3, "2026-01-01T00:00:00Z"));
    let old = signed.bundles().remove(0);
    assert_eq!(verify(world, &signed, &[&key], 0)["certifications"][0]["level"], 3);
    attest(world, &signed, &key, "certification", &certification(1, "2026-02-01T00:00:00Z"));
    assert_eq!(verify(world, &signed, &[&key], 0)["certifications"][0]["level"], 1);
    signed.clear();
    signed.add_bundle(&old);
    let said = verify(world, &signed, &[&key], 0);
    assert_eq!(said["certifications"].as_array().unwrap().len(), 1);
    assert_eq!(said["certifications"][0]["level"], 1, "{said}");
    assert!(reasons(&said).contains("issued a newer one at 2026-02-01T00:00:00Z"), "{said}");
    signed.clear();
    assert_eq!(verify(world, &signed, &[&key], 0)["certifications"][0]["level"], 1);
    // A key that is not at hand for once forgets nothing.
    let other = signed.keys("other", "ecdsa");
    verify(world, &signed, &[&other], 122);
    assert_eq!(verify(world, &signed, &[&key], 0)["certifications"][0]["level"], 1);
    // What was seen is the user's alone, and a file that cannot be read is not passed over.
    let memory = world.path("state/smcp/attested");
    assert_eq!(fs::metadata(&memory).unwrap().permissions().mode() & 0o777, 0o700);
    let file = fs::read_dir(&memory).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&file, "{").unwrap();
    world.smcp(["verify", &signed.reference, "--key", &key.public]).run().expect(120).explains(&["attested"]);
}

fn keys_are_made_once(world: &World) {
    let prefix = world.text("project/k");
    let made = world.smcp(["key", "generate", "--output", &prefix]).run().ok();
    assert!(made.text().contains("k.pub sha256:") && made.stderr().contains("not encrypted"), "{}", made.text());
    let mode = |end: &str| fs::metadata(format!("{prefix}.{end}")).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("key"), mode("pub")), (0o600, 0o644));
    let key = fs::read_to_string(format!("{prefix}.key")).unwrap();
    world.smcp(["key", "generate", "--output", &prefix]).run().expect(2).explains(&["there already"]);
    assert_eq!(fs::read_to_string(format!("{prefix}.key")).unwrap(), key);
    fs::remove_file(format!("{prefix}.key")).unwrap();
    world.smcp(["key", "generate", "--output", &prefix]).run().expect(2);
    assert!(!world.path("project/k.key").exists(), "nothing is made by halves");
}

fn a_passphrase_opens_a_key(world: &World) {
    let signed = Signed::new(world);
    for variable in ["SMCP_KEY_PASSWORD", "COSIGN_PASSWORD"] {
        let prefix = world.text(&format!("project/{variable}"));
        world.smcp(["key", "generate", "--output", &prefix]).env(variable, "correct horse").run().ok();
        let text = fs::read_to_string(format!("{prefix}.key")).unwrap();
        assert!(text.starts_with("-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n"), "{text}");
        let sign = || world.smcp(["sign", &signed.reference, "--key", &format!("{prefix}.key")]);
        sign().run().expect(2).explains(&["encrypted", "SMCP_KEY_PASSWORD"]);
        sign().env(variable, "wrong").run().expect(2).explains(&["does not open"]);
        let done = sign().env(variable, "correct horse").run().ok();
        assert!(!format!("{}{}", done.text(), done.stderr()).contains("horse"));
    }
}

/// What lies beside a package makes its layout neither ambiguous nor unusable.
fn a_layout_with_signatures_still_runs(world: &World) {
    let signed = Signed::new(world);
    let key = signed.keys("k", "ecdsa");
    world.smcp(["sign", &signed.reference, "--key", &key.private]).run().ok();
    let place = signed.reference.trim_end_matches(":v1");
    world.smcp(["run", place, "exit", "4"]).run().expect(4);
    let names = world.smcp(["cache", "ls"]).run().ok().text();
    assert!(!names.contains("sha256-") && !names.contains("@sha256"), "{names}");
}

fn what_cannot_be_signed_is_said(world: &World) {
    let signed = Signed::new(world);
    let key = signed.keys("k", "ecdsa");
    let rsa = world.text("project/rsa.key");
    world.program("/usr/bin/openssl", ["genpkey", "-algorithm", "RSA", "-out", &rsa]).run().ok();
    let predicate = |text: &str| world.file("project/p.json", text).to_str().unwrap().to_owned();
    let good = predicate(&certification(1, "2026-01-01T00:00:00Z").to_string());
    for (arguments, code, why) in [
        (vec!["sign", &signed.reference, "--key", &rsa], 2, "neither of ECDSA P-256"),
        (vec!["sign", &signed.reference, "--key", &key.public], 2, "\"PUBLIC KEY\" where a PRIVATE KEY"),
        (vec!["sign", &signed.reference, "--key", "/nowhere"], 2, "/nowhere"),
        (vec!["sign", "oci-layout:/nowhere", "--key", &key.private], 120, "/nowhere"),
        (vec!["verify", &signed.reference, "--key", &key.private], 2, "\"PRIVATE KEY\" where a PUBLIC KEY"),
        (
            vec!["attest", &signed.reference, "--key", &key.private, "--predicate", &good, "--type", "sbom"],
            2,
            "none of certification",
        ),
    ] {
        world.smcp(arguments).run().expect(code).explains(&[why]);
    }
    let root = world.file("project/root.json", "{}");
    let keyless = ["--trust-root", root.to_str().unwrap(), "--identity", "a@b.test", "--issuer", "https://b.test"];
    let why = if cfg!(feature = "keyless") { "root.json" } else { "this build of smcp verifies no certificates" };
    world.smcp(["verify", &signed.reference]).args(keyless).run().expect(2).explains(&["--trust-root", why]);
    for few in [&keyless[..2], &keyless[..4], &keyless[2..]] {
        world.smcp(["verify", &signed.reference]).args(few).run().expect(2);
    }
    for (kind, text, why) in [
        ("certification", r#"{"level": 4, "findings": {"critical":0,"high":0,"medium":0,"low":0}}"#, "level 4"),
        ("certification", r#"{"level": 1}"#, "missing field `findings`"),
        ("revocation", r#"{"status": "withdrawn"}"#, "none of revoked, quarantined, deprecated"),
        ("https://example.com/x", r#"{"a": 1, "a": 2}"#, "occurs twice"),
    ] {
        let file = predicate(text);
        let arguments = ["attest", &signed.reference, "--predicate", &file, "--type", kind, "--key", &key.private];
        world.smcp(arguments).run().expect(2).explains(&[why]);
    }
    assert_eq!((signed.bundles().len(), signed.signatures().len()), (0, 0));
}

/// In a registry without a list of referrers, Debian's: the tag in its place is written, and cosign's.
#[test]
fn t12_signed_in_a_registry() {
    let Some(address) = registry::address() else { return };
    let world = World::new(User::of_the_tests());
    let signed = Signed::new(&world);
    let key = signed.keys("k", "ecdsa");
    let name = format!("{address}/mcp/signed-{}:1", world.mark().trim_end_matches('-'));
    world.smcp(["push", probe_reference(), &name]).run().ok();
    world.smcp(["sign", &name, "--key", &key.private]).run().ok();
    let file = world.file("project/p.json", certification(2, "2026-01-01T00:00:00Z").to_string());
    let file = file.to_str().unwrap();
    world.smcp(["attest", &name, "--predicate", file, "--key", &key.private]).run().ok();
    // Twice is no more than once, and a second key takes nothing away.
    let second = signed.keys("second", "ed25519");
    world.smcp(["sign", &name, "--key", &second.private]).run().ok();
    let verify = |more: &[&str]| {
        let arguments = ["verify", "--json", &name, "--key", &key.public, "--key", &second.public];
        world.smcp(arguments).args(more).run()
    };
    let said = verify(&[]).ok().json();
    assert_eq!(said["signatures"].as_array().unwrap().len(), 2, "{said}");
    assert_eq!(said["certifications"][0]["level"], 2);
    assert_eq!(said["rejected"], json!([]));
    // A policy finds it by pull, and by each start without a network.
    let policy = format!("{{min_cert_level: 2, certifiers: [{{key: {}, names: ['*']}}]}}", key.public);
    let policy = config(&world, &policy);
    world.smcp(["--config", &policy, "pull", &name]).run().ok();
    let offline = || world.smcp(["--config", &policy, "run", "--offline", &name, "exit", "4"]).run();
    offline().expect(4);
    let attached = world.store().join("attached");
    fs::rename(&attached, world.path("aside")).unwrap();
    offline().expect(121).explains(&["cannot be listed", "cert_level_mode is strict"]);
    fs::rename(world.path("aside"), attached).unwrap();
    // What was listed is in the store, and goes with the package.
    let said = verify(&["--offline"]).ok().json();
    assert_eq!(said["signatures"].as_array().unwrap().len(), 2);
    assert!(said["listing"]["cached"].is_string(), "{said}");
    world.smcp(["cache", "rm", &name]).run().ok();
    verify(&["--offline"]).expect(120);
    world.smcp(["cache", "rm", "--all"]).run().ok();
    let stored = fs::read_dir(world.store().join("attached")).unwrap().count();
    assert_eq!(stored, 0);
}

/// What was listed once is verified again without a packet until it is old, and what cannot be listed is said.
#[test]
fn each_run_verifies_again_without_a_network() {
    let Some(_) = needs::program("openssl", "openssl") else { return };
    let world = World::new(User::of_the_tests());
    let signed = Signed::new(&world);
    let key = signed.keys("k", "ecdsa");
    world.smcp(["sign", &signed.reference, "--key", &key.private]).run().ok();
    let keys = [TrustedKey { file: "k".into(), key: PublicKey::from_pem(&fs::read(&key.public).unwrap()).unwrap() }];
    let (digest, layout) = (signed.digest(), world.path("project/layout"));
    let (payload, signature) = signed.signatures().remove(0);
    let fake = Fake::serve(move |call| {
        let path = call.path.split('?').next().unwrap();
        let blob = |digest: &str| fs::read(layout.join("blobs/sha256").join(digest.trim_start_matches("sha256:")));
        match path.rsplit('/').next().unwrap() {
            _ if path == "/v2/" => Reply::new(200, "{}"),
            _ if path.contains("/referrers/") => Reply::new(404, ""),
            "v1" => Reply::new(200, blob(&digest).unwrap())
                .header("content-type", "application/vnd.oci.image.manifest.v1+json"),
            tag if tag.ends_with(".sig") => {
                let layer = json!({
                    "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "size": payload.len(),
                    "digest": format!("sha256:{}", crate::image::sha256(payload.as_bytes())),
                    "annotations": {"dev.cosignproject.cosign/signature": signature},
                });
                let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2,
                    "digest": format!("sha256:{}", crate::image::sha256(b"{}"))});
                let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
                Reply::new(200, manifest.to_string())
                    .header("content-type", "application/vnd.oci.image.manifest.v1+json")
            }
            digest => blob(digest).map_or(Reply::new(404, ""), |bytes| Reply::new(200, bytes)),
        }
    });
    let store = Store::open(&world.path("cache/own")).unwrap();
    let memory = world.path("state/own");
    let reference = format!("{}/test/probe:v1", fake.host).parse().unwrap();
    let at = |mode, keys: &[TrustedKey], seconds: i64| {
        let network = Network::new("https://registry.invalid", mode);
        let resolved = resolve(&reference, &store, &network).unwrap();
        let before = fake.calls().len();
        let now = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let signers = Signers { keys, ..Signers::default() };
        let trust = Trust { signers, memory: &memory, now };
        let outcome = look_up(&resolved, &store, &network, &trust).unwrap();
        (outcome.evidence, fake.calls().len() - before)
    };
    let first = Mode::CacheFirst { refresh: Duration::from_secs(3600) };
    let (evidence, calls) = at(first, &[], 0);
    assert_eq!((evidence, calls), (bundle::Evidence::none(), 0), "nobody's word counts: nothing is asked or read");
    assert!(!store.root().join("attached").exists() && !memory.exists());
    store_knows(&store, &reference);
    let (evidence, calls) = at(Mode::Offline, &keys, 0);
    assert!(
        matches!(&evidence.listing, Listing::Unavailable(why) if why.contains("the network is off")),
        "{evidence:?}"
    );
    assert_eq!(calls, 0);
    let (evidence, calls) = at(first, &keys, 0);
    assert_eq!((evidence.signatures.len(), &evidence.listing), (1, &Listing::Complete));
    assert!(calls > 0);
    for mode in [first, Mode::Offline] {
        let (evidence, calls) = at(mode, &keys, 0);
        assert_eq!((evidence.signatures.len(), calls), (1, 0), "{mode:?}");
        assert!(matches!(evidence.listing, Listing::Cached(_)));
    }
    assert!(at(first, &keys, 3700).1 > 0, "what is old is listed again");
    assert!(at(first, &keys, -3700).1 > 0, "and what was listed in the future");
    assert!(at(Mode::Refresh, &keys, 0).1 > 0);
    assert!(!memory.exists(), "a signature has no time: there is nothing to remember");
}

/// Gives the name to what was resolved, as a pull does at its end.
fn store_knows(store: &Store, reference: &distribution::Reference) {
    let network = Network::new("https://registry.invalid", Mode::Refresh);
    let resolved = resolve(reference, store, &network).unwrap();
    distribution::Pending::new(&resolved, store).unwrap().keep().unwrap();
}
