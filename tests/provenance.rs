//! Where packages were built, as their registries have it: verified, compared with what the package or its publisher says, shown, and
//! refused where it does not hold. The authority and the logs are the tests' own (`interoperability/authority.py`), and count by a trust
//! root of the user's. What npm and PyPI really answer of two packages is verified in `bundle/src/build/provenance.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::command::Smcp;
use crate::image::sha256;
use crate::interoperability::python;
use crate::needs;
use crate::stand_in::StandIn;
use crate::world::{World, as_each_user};

as_each_user! {
    where_a_package_of_npm_was_built,
    where_a_wheel_was_built,
}

const SLSA: &str = "https://slsa.dev/provenance/v1";
const PUBLISH: &str = "https://docs.pypi.org/attestations/publish/v1";
const WORKFLOW: &str = "https://github.com/acme/tool/.github/workflows/release.yml@refs/tags/v1";

/// Bundles about that file by their names; the authority behind them is from now on one that the user trusts.
fn bundles(world: &World, subject: &str, digest: &Value, kind: &str) -> BTreeMap<String, Value> {
    let directory = world.directory("project/authority");
    let statement = json!({"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": subject, "digest": digest}],
        "predicateType": kind, "predicate": {}});
    world.file("project/authority/statement.json", statement.to_string());
    python(world, "authority.py", &[directory.to_str().unwrap()]).ok();
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        all.insert(path.file_stem().unwrap().to_str().unwrap().to_owned(), read(&path));
    }
    world.directory("home/.smcp");
    world.file("home/.smcp/trusted_root.json", all["trusted_root"].to_string());
    all
}

fn pull<'w>(world: &'w World, registry: &StandIn, reference: &str) -> Smcp<'w> {
    registry.of(world.smcp(["pull", "--runtime", "host", reference])).within(needs::FIRST)
}

/// What `info` shows of where it was built.
fn source(world: &World, registry: &StandIn, reference: &str) -> Value {
    let info = registry.of(world.smcp(["info", "--json", "--runtime", "host", reference])).within(needs::FIRST);
    info.run().ok().json()["manifest"]["source"].clone()
}

fn where_a_package_of_npm_was_built(world: &World) {
    if !needs::npm() {
        return;
    }
    let registry = StandIn::new();
    let publish = |version: &str, repository: Option<&str>| {
        registry.publish_as("@acme/hello", version, "#!/usr/bin/env node\n", |package, about| {
            repository.iter().for_each(|url| package["repository"] = json!({"type": "git", "url": url}));
            about["dist"] = json!({"attestations": {"provenance": {"predicateType": SLSA}}});
        });
    };
    publish("1.0.0", Some("git+https://github.com/Acme/tool.git"));
    let hash: String =
        Sha512::digest(registry.archive("@acme/hello")).iter().map(|byte| format!("{byte:02x}")).collect();
    let bundles = bundles(world, "pkg:npm/%40acme/hello@1.0.0", &json!({"sha512": hash}), SLSA);
    let said = |name: &str| json!({"attestations": [{"predicateType": SLSA, "bundle": bundles[name]}]});
    let refused = |version: &str, name: &str, why: &str| {
        registry.attest(&format!("@acme/hello@{version}"), &said(name));
        let ended = pull(world, &registry, &format!("npm:@acme/hello@{version}")).run().expect(122);
        ended.says(&[why, "what its registry has of where it was built does not hold"]);
    };
    refused("1.0.0", "built-elsewhere", "it was built in https://github.com/evil/tool, and the package names");
    refused("1.0.0", "built-by-another-authority", "does not vouch for it");
    refused("1.0.0", "built-after-the-end", "does not vouch for it");
    refused("1.0.0", "the-certificate-of-another", "does not vouch for it");
    refused("1.0.0", "without-an-entry", "does not vouch for it");
    refused("1.0.0", "good", "it was built in no repository");
    // It counts by the user's trust root alone.
    let root = world.path("home/.smcp/trusted_root.json");
    fs::rename(&root, world.path("home/.smcp/aside")).unwrap();
    refused("1.0.0", "built", "does not vouch for it");
    fs::rename(world.path("home/.smcp/aside"), &root).unwrap();
    pull(world, &registry, "npm:@acme/hello@1.0.0").run().ok();
    let shown = source(world, &registry, "npm:@acme/hello@1.0.0");
    assert_eq!(
        (&shown["provenance"], &shown["builtBy"], &shown["builtFrom"]),
        (&json!(SLSA), &json!(WORKFLOW), &json!("https://github.com/acme/tool"))
    );
    let people = registry.of(world.smcp(["info", "--runtime", "host", "npm:@acme/hello@1.0.0"])).run().ok();
    assert!(people.text().contains(&format!("builtBy: {WORKFLOW}")), "{}", people.text());
    // Copied to another file it is false, also where that is a dependency; where the registry has none it says nothing.
    publish("1.0.1", Some("github:acme/tool"));
    refused("1.0.1", "built", "does not vouch for it");
    registry.publish_as("depends", "1.0.0", "#!/usr/bin/env node\n", |package, _| {
        package["dependencies"] = json!({"@acme/hello": "1.0.1"});
    });
    pull(world, &registry, "npm:depends").run().expect(122).says(&["@acme/hello@1.0.1", "does not vouch for it"]);
    publish("2.0.0", None);
    pull(world, &registry, "npm:@acme/hello@2.0.0").run().ok();
    let shown = source(world, &registry, "npm:@acme/hello@2.0.0");
    assert_eq!(shown["provenanceNotVerified"], "the registry does not have it");
    assert!(shown.get("builtBy").is_none(), "{shown}");
}

fn where_a_wheel_was_built(world: &World) {
    if needs::program("python3", "python3 and python3-pip").is_none() {
        return;
    }
    let registry = StandIn::new();
    let file = |version: &str| format!("hello_py-{version}-py3-none-any.whl");
    let publish = |version: &str| {
        registry.publish_wheel("hello-py", version, |about| {
            about["provenance"] = json!(format!("/integrity/{}", file(version)));
        });
    };
    publish("1.0");
    let digest = sha256(&registry.wheel("hello-py"));
    let digest = json!({"sha256": digest.trim_start_matches("sha256:")});
    let bundles = bundles(world, &file("1.0"), &digest, PUBLISH);
    // The parts of a bundle, as PEP 740 has them.
    let said = |name: &str, repository: &str| {
        let (material, envelope) = (&bundles[name]["verificationMaterial"], &bundles[name]["dsseEnvelope"]);
        let attestation = json!({"version": 1,
            "verification_material": {"certificate": material["certificate"]["rawBytes"], "transparency_entries": material["tlogEntries"]},
            "envelope": {"statement": envelope["payload"], "signature": envelope["signatures"][0]["sig"]}});
        let publisher =
            json!({"kind": "GitHub", "repository": repository, "workflow": "release.yml", "environment": null});
        json!({"version": 1, "attestation_bundles": [{"publisher": publisher, "attestations": [attestation]}]})
    };
    let refused = |version: &str, said: Value, why: &str| {
        registry.attest(&file(version), &said);
        pull(world, &registry, &format!("pypi:hello-py=={version}")).run().expect(122).says(&[why]);
    };
    refused("1.0", said("built-elsewhere", "acme/tool"), "it is by https://github.com/evil/tool");
    refused("1.0", said("built", "acme/other"), "and its publisher is https://github.com/acme/other");
    refused("1.0", said("built-by-another-authority", "acme/tool"), "does not vouch for it");
    refused("1.0", said("built-after-the-end", "acme/tool"), "does not vouch for it");
    registry.attest(&file("1.0"), &said("built", "acme/tool"));
    pull(world, &registry, "pypi:hello-py==1.0").run().ok();
    let shown = source(world, &registry, "pypi:hello-py==1.0");
    assert_eq!((&shown["provenance"], &shown["builtBy"]), (&json!(PUBLISH), &json!(WORKFLOW)));
    publish("1.1");
    refused("1.1", said("built", "acme/tool"), "does not vouch for it");
    publish("1.2");
    pull(world, &registry, "pypi:hello-py==1.2").run().ok();
    let shown = source(world, &registry, "pypi:hello-py==1.2");
    assert_eq!(shown["provenanceNotVerified"], "the index does not have it");
}
