//! A package in a layout with what lies beside it, read and written by hand: as other tools find it, and as they leave it.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::image::{probe_reference, sha256};
use crate::world::World;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";

/// The probe's package in a layout that belongs to a world's user.
pub struct Signed<'w> {
    world: &'w World,
    /// Its name, with which smcp finds it.
    pub reference: String,
    layout: PathBuf,
}

/// A pair of keys.
pub struct Keys {
    /// PKCS#8 in PEM.
    pub private: String,
    /// The same for others.
    pub public: String,
}

impl<'w> Signed<'w> {
    /// Nothing lies beside it yet.
    pub fn new(world: &'w World) -> Self {
        Signed::of(world, probe_reference(), "layout")
    }

    /// Another package, in a layout of that name.
    pub fn of(world: &'w World, package: &str, name: &str) -> Self {
        let layout = world.path("project").join(name);
        let reference = format!("oci-layout:{}:v1", layout.display());
        world.smcp(["pull", package]).run().ok();
        world.smcp(["push", package, &reference]).run().ok();
        Self { world, reference, layout }
    }

    /// The package's digest.
    pub fn digest(&self) -> String {
        let entries = self.entries();
        let named = |entry: &&Value| entry["annotations"]["org.opencontainers.image.ref.name"] == "v1";
        entries.iter().find(named).expect("it was pushed")["digest"].as_str().expect("a digest").to_owned()
    }

    /// The bundles that are about it.
    pub fn bundles(&self) -> Vec<String> {
        let subject = self.digest();
        let manifests = self.entries().into_iter().filter(|entry| entry["artifactType"] == BUNDLE);
        let manifests =
            manifests.map(|entry| self.json(&entry)).filter(|it| it["subject"]["digest"] == subject.as_str());
        manifests.map(|it| self.text(&it["layers"][0])).collect()
    }

    /// The payloads of cosign's that are about it, each with its signature.
    pub fn signatures(&self) -> Vec<(String, String)> {
        let tag = self.tag("sig");
        let named = |entry: &Value| entry["annotations"]["org.opencontainers.image.ref.name"] == tag.as_str();
        let Some(entry) = self.entries().into_iter().find(named) else { return Vec::new() };
        let layers = self.json(&entry)["layers"].as_array().expect("layers").clone();
        let signature = |layer: &Value| layer["annotations"][SIGNATURE].as_str().expect("a signature").to_owned();
        layers.iter().map(|layer| (self.text(layer), signature(layer))).collect()
    }

    /// Puts a bundle beside it, as oras and cosign 3 do.
    pub fn add_bundle(&self, text: &str) {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE,
            "config": self.put("application/vnd.oci.empty.v1+json", "{}"),
            "layers": [self.put(BUNDLE, text)],
            "subject": {"mediaType": MANIFEST, "digest": self.digest(), "size": 7},
        });
        // Without the artifact type, which not all tools write there.
        let entry = self.put(MANIFEST, &manifest.to_string());
        self.change(|entries| entries.push(entry));
    }

    /// Puts a payload with its signature beside it, as cosign 2 does.
    pub fn add_signature(&self, payload: &str, signature: &str) {
        let mut layer = self.put("application/vnd.dev.cosign.simplesigning.v1+json", payload);
        layer["annotations"] = json!({SIGNATURE: signature, "dev.sigstore.cosign/bundle": "{}"});
        self.add_tag("sig", layer);
    }

    /// Puts an envelope beside it, as cosign 2 does.
    pub fn add_envelope(&self, text: &str) {
        let mut layer = self.put("application/vnd.dsse.envelope.v1+json", text);
        layer["annotations"] = json!({SIGNATURE: "", "predicateType": "anything"});
        self.add_tag("att", layer);
    }

    /// Takes away what lies beside it.
    pub fn clear(&self) {
        self.change(|entries| {
            entries.retain(|entry| entry["annotations"]["org.opencontainers.image.ref.name"] == "v1");
        });
    }

    /// Makes a pair of keys by smcp.
    #[track_caller]
    pub fn keys(&self, name: &str, kind: &str) -> Keys {
        let prefix = self.world.text(&format!("project/{name}"));
        self.world.smcp(["key", "generate", "--type", kind, "--output", &prefix]).run().ok();
        Keys { private: format!("{prefix}.key"), public: format!("{prefix}.pub") }
    }

    /// Certifies it with a score, by a certifier whom the user's policy trusts from now on.
    #[track_caller]
    pub fn score(&self, score: u8) {
        let keys = self.keys("certifier", "ed25519");
        let mut predicate = certification(1, "2026-01-01T00:00:00Z");
        predicate["score"] = json!(score);
        let predicate = self.world.file("project/predicate.json", predicate.to_string());
        let predicate = predicate.to_str().expect("temporary paths are UTF-8");
        let arguments = ["attest", &self.reference, "--key", &keys.private, "--predicate", predicate];
        self.world.smcp(arguments).run().ok();
        self.world.directory("home/.smcp");
        let policy = format!("policy: {{certifiers: [{{key: {}, names: [\"*\"]}}]}}\n", keys.public);
        self.world.file("home/.smcp/config.yaml", policy);
    }

    fn add_tag(&self, kind: &str, layer: Value) {
        let config = self.put("application/vnd.oci.image.config.v1+json", "{}");
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
        let mut entry = self.put(MANIFEST, &manifest.to_string());
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": self.tag(kind)});
        self.change(|entries| entries.push(entry));
    }

    fn tag(&self, kind: &str) -> String {
        format!("{}.{kind}", self.digest().replace(':', "-"))
    }

    fn entries(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.layout.join("index.json")).expect("a layout");
        let index: Value = serde_json::from_str(&text).expect("JSON");
        index["manifests"].as_array().expect("entries").clone()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut entries = self.entries();
        change(&mut entries);
        let index = json!({"schemaVersion": 2, "manifests": entries});
        self.write("index.json", &index.to_string());
    }

    fn put(&self, media_type: &str, text: &str) -> Value {
        let hex = sha256(text.as_bytes());
        self.write(&format!("blobs/sha256/{hex}"), text);
        json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": text.len()})
    }

    fn write(&self, name: &str, text: &str) {
        self.world.file(self.layout.join(name).to_str().expect("temporary paths are UTF-8"), text);
    }

    fn json(&self, descriptor: &Value) -> Value {
        serde_json::from_str(&self.text(descriptor)).expect("JSON")
    }

    fn text(&self, descriptor: &Value) -> String {
        let hex = descriptor["digest"].as_str().expect("a digest").trim_start_matches("sha256:");
        fs::read_to_string(self.layout.join("blobs/sha256").join(hex)).expect("it is there")
    }
}

/// A statement about a digest.
pub fn statement(digest: &str, kind: &str, predicate: &Value) -> Value {
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "test", "digest": {"sha256": digest.trim_start_matches("sha256:")}}],
        "predicateType": kind,
        "predicate": predicate,
    })
}

/// What is signed of an envelope.
pub fn pae(payload: &str) -> String {
    let kind = "application/vnd.in-toto+json";
    format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len())
}

/// A certification of a level, by its predicate.
pub fn certification(level: u8, issued: &str) -> Value {
    json!({
        "level": level, "score": 85, "origin": "verified",
        "findings": {"critical": 0, "high": 0, "medium": 1, "low": 2},
        "issuedAt": issued, "expiresAt": "2999-01-01T00:00:00Z",
    })
}
