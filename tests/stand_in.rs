//! An npm registry on loopback, whose packages a test makes up; it counts what it is asked.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bundle::attest::{KeyKind, SigningKey};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::command::Smcp;
use crate::fake::{Call, Fake, FakeProxy, Identity, Reply};
use crate::world::World;

/// A registry under way.
pub struct StandIn {
    fake: Fake,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// By name, each with its versions in the order in which they were published.
    packages: Mutex<BTreeMap<String, Vec<Release>>>,
    /// The same of python, each version a wheel.
    projects: Mutex<BTreeMap<String, Vec<Wheel>>>,
    /// What has to be shown, as `Bearer x`.
    login: Mutex<Option<String>>,
    /// What npm packages are signed by, and whether that is done right.
    key: Mutex<Option<(SigningKey, bool)>>,
    /// What is said of where files were built, by the path behind `/npm/-/npm/v1/attestations/` or `/integrity/`.
    attestations: Mutex<BTreeMap<String, Value>>,
    is_down: AtomicBool,
    is_held: AtomicBool,
}

#[derive(Clone)]
struct Release {
    version: String,
    published: String,
    archive: Vec<u8>,
    /// What the registry says of it.
    about: Value,
}

/// `user:password`
const PROXY: &str = "Basic dXNlcjpwYXNzd29yZA==";

/// When a release was published unless a test says so.
const LONG_AGO: &str = "2026-01-02T03:04:05.000Z";

impl StandIn {
    /// One without packages.
    pub fn new() -> StandIn {
        let shared = Arc::new(Shared::default());
        let served = shared.clone();
        StandIn { fake: Fake::serve(move |call| served.answer(call)), shared }
    }

    /// The same as registry.npmjs.org, by a proxy and an authority of the test's own; none where the machine has no openssl.
    pub fn of_npmjs(world: &World) -> Option<(StandIn, FakeProxy)> {
        let identity = Identity::new(&world.directory("tls"))?;
        world.give(&identity.ca());
        let shared = Arc::new(Shared::default());
        let served = shared.clone();
        let fake = Fake::serve_tls(&identity, move |call| served.answer(call));
        let proxy = FakeProxy::serve(&[("registry.npmjs.org:443", fake.host.as_str())], PROXY);
        Some((StandIn { fake, shared }, proxy))
    }

    /// A command that reaches it so.
    pub fn by_proxy<'w>(command: Smcp<'w>, world: &World, proxy: &FakeProxy) -> Smcp<'w> {
        let command = command.env("SSL_CERT_FILE", world.path("tls/ca.pem")).env("NO_PROXY", "");
        command.env("HTTPS_PROXY", format!("http://user:password@{}", proxy.host))
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}/npm/", self.fake.host)
    }

    /// Publishes a package whose server prints its version and its arguments.
    pub fn publish(&self, name: &str, version: &str) {
        let says = format!("{{said: [\"{version}\", ...process.argv.slice(2)]}}");
        let script = format!("#!/usr/bin/env node\nconsole.log(JSON.stringify({says}));\n");
        self.publish_as(name, version, &script, |_, _| {});
    }

    /// The same with another script; `change` is given its `package.json`, and what the registry says of it beside.
    pub fn publish_as(&self, name: &str, version: &str, script: &str, change: impl FnOnce(&mut Value, &mut Value)) {
        let mut package = json!({"name": name, "version": version, "bin": "cli.js"});
        let mut about = json!({"published": LONG_AGO});
        change(&mut package, &mut about);
        let archive = archive(&[("package.json", package.to_string()), ("cli.js", script.to_owned())]);
        let merged = |mut package: Value| {
            let own = about.as_object().expect("it is one").clone();
            package.as_object_mut().expect("it is one").extend(own);
            package
        };
        let published = about["published"].as_str().expect("it is a time").to_owned();
        let release = Release { version: version.into(), published, archive, about: merged(package) };
        self.shared.packages.lock().unwrap().entry(name.into()).or_default().push(release);
    }

    /// From now on it asks for this.
    pub fn ask_for(&self, authorization: &str) {
        *self.shared.login.lock().unwrap() = Some(authorization.into());
    }

    /// Publishes a python project whose server prints its version and its arguments. `change` is given what the index says of the
    /// wheel.
    pub fn publish_wheel(&self, name: &str, version: &str, change: impl FnOnce(&mut Value)) {
        let module = name.replace('-', "_");
        let script = format!(
            "import json, sys\ndef main():\n    print(json.dumps({{'said': ['{version}'] + sys.argv[1:]}}, separators=(',', ':')))\n"
        );
        let info = format!("{module}-{version}.dist-info");
        let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        let wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
        let files = [
            (format!("{module}/__init__.py"), script),
            (format!("{info}/METADATA"), metadata),
            (format!("{info}/WHEEL"), wheel.to_owned()),
            (format!("{info}/entry_points.txt"), format!("[console_scripts]\n{name} = {module}:main\n")),
        ];
        let record: String = files.iter().map(|(name, _)| format!("{name},,\n")).collect();
        let record = (format!("{info}/RECORD"), format!("{record}{info}/RECORD,,\n"));
        let bytes = zip(&files.into_iter().chain([record]).collect::<Vec<_>>());
        let mut about = json!({
            "filename": format!("{module}-{version}-py3-none-any.whl"),
            "hashes": {"sha256": crate::image::sha256(&bytes).trim_start_matches("sha256:")},
            "upload-time": LONG_AGO,
        });
        change(&mut about);
        let wheel = Wheel { bytes, about };
        self.shared.projects.lock().unwrap().entry(name.into()).or_default().push(wheel);
    }

    /// From now on packages are signed, as npm's registry does; `right` is whether by the key that it states.
    pub fn sign(&self, right: bool) {
        let key = SigningKey::generate(KeyKind::EcdsaP256).expect("a key can be made");
        *self.shared.key.lock().unwrap() = Some((key, right));
    }

    /// From now on it says this of where something was built: `NAME@VERSION` of npm, or a wheel's file.
    pub fn attest(&self, what: &str, said: &Value) {
        self.shared.attestations.lock().unwrap().insert(what.into(), said.clone());
    }

    /// The archive of the newest version of a package.
    pub fn archive(&self, name: &str) -> Vec<u8> {
        self.shared.packages.lock().unwrap()[name].last().expect("it has releases").archive.clone()
    }

    /// The newest wheel of a project.
    pub fn wheel(&self, name: &str) -> Vec<u8> {
        self.shared.projects.lock().unwrap()[name].last().expect("it has wheels").bytes.clone()
    }

    /// From now on it answers nothing.
    pub fn go_down(&self) {
        self.shared.is_down.store(true, Ordering::Relaxed);
    }

    /// Whether what it is asked waits for an answer.
    pub fn hold(&self, held: bool) {
        self.shared.is_held.store(held, Ordering::Relaxed);
    }

    /// How many requests had this in their path.
    pub fn count(&self, part: &str) -> usize {
        self.fake.count("GET", part)
    }

    /// What it was asked.
    pub fn calls(&self) -> Vec<Call> {
        self.fake.calls()
    }

    /// A command whose npm and pip ask it.
    pub fn of<'w>(&self, command: Smcp<'w>) -> Smcp<'w> {
        let command = command.env("npm_config_registry", self.url()).env("PIP_CONFIG_FILE", "/dev/null");
        command.env("PIP_INDEX_URL", format!("http://{}/simple/", self.fake.host))
    }
}

impl Shared {
    fn answer(&self, call: &Call) -> Reply {
        while self.is_held.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        if self.is_down.load(Ordering::Relaxed) {
            return Reply::new(404, "{}");
        }
        let login = self.login.lock().unwrap().clone();
        if login.is_some() && call.header("authorization") != login.as_deref() {
            return Reply::new(401, "{}");
        }
        if let Some(file) = call.path.strip_prefix("/integrity/") {
            return self.attested(file);
        }
        if let Some(path) = call.path.strip_prefix("/simple/") {
            return self.answer_python(path.trim_matches('/'));
        }
        let host = call.header("host").unwrap_or_default().to_owned();
        let path = call
            .path
            .strip_prefix("/npm/")
            .or(call.path.strip_prefix('/'))
            .unwrap_or_default()
            .replace("%2f", "/")
            .replace("%2F", "/");
        if let Some(what) = path.strip_prefix("-/npm/v1/attestations/") {
            return self.attested(what);
        }
        let key = self.key.lock().unwrap();
        if path == "-/npm/v1/keys" {
            let Some((key, _)) = &*key else { return Reply::new(404, "{}") };
            let stated = json!({"keyid": "SHA256:test", "keytype": "ecdsa-sha2-nistp256", "scheme": "ecdsa-sha2-nistp256",
                "expires": null, "key": STANDARD.encode(key.public().spki())});
            return Reply::new(200, json!({"keys": [stated]}).to_string());
        }
        let packages = self.packages.lock().unwrap();
        let (name, file) = path.split_once("/-/").map_or((path.as_str(), None), |(name, file)| (name, Some(file)));
        let Some(releases) = packages.get(name) else { return Reply::new(404, "{\"error\":\"not found\"}") };
        match file {
            Some(file) => {
                let found = releases.iter().find(|release| file == format!("{}.tgz", release.version));
                found.map_or_else(|| Reply::new(404, ""), |release| Reply::new(200, release.archive.clone()))
            }
            None => Reply::new(200, packument(&host, name, releases, key.as_ref()).to_string())
                .header("content-type", "application/json"),
        }
    }
}

fn packument(host: &str, name: &str, releases: &[Release], key: Option<&(SigningKey, bool)>) -> Value {
    let place = if host.starts_with("registry.npmjs.org") {
        "https://registry.npmjs.org".into()
    } else {
        format!("http://{host}/npm")
    };
    let mut versions = json!({});
    let mut time = json!({});
    for release in releases {
        let mut about = release.about.clone();
        let integrity = format!("sha512-{}", STANDARD.encode(Sha512::digest(&release.archive)));
        about["dist"]["tarball"] = json!(format!("{place}/{name}/-/{}.tgz", release.version));
        if let Some((key, right)) = key {
            let said = if *right { integrity.as_str() } else { "sha512-another" };
            let signature = key.sign(format!("{name}@{}:{said}", release.version).as_bytes()).expect("a key signs");
            about["dist"]["signatures"] = json!([{"keyid": "SHA256:test", "sig": STANDARD.encode(signature)}]);
        }
        about["dist"]["integrity"] = json!(integrity);
        versions[&release.version] = about;
        time[&release.version] = json!(release.published);
    }
    let newest = &releases.last().expect("it has releases").version;
    json!({"name": name, "dist-tags": {"latest": newest}, "versions": versions, "time": time})
}

#[derive(Clone)]
struct Wheel {
    bytes: Vec<u8>,
    about: Value,
}

impl Shared {
    fn attested(&self, what: &str) -> Reply {
        let said = self.attestations.lock().unwrap().get(what).cloned();
        said.map_or_else(|| Reply::new(404, "{}"), |said| Reply::new(200, said.to_string()))
    }

    /// `NAME`, or `NAME/FILE`.
    fn answer_python(&self, path: &str) -> Reply {
        let projects = self.projects.lock().unwrap();
        let (name, file) = path.split_once('/').map_or((path, None), |(name, file)| (name, Some(file)));
        let Some(wheels) = projects.get(name) else { return Reply::new(404, "") };
        let Some(file) = file else {
            let files: Vec<Value> = wheels.iter().map(|wheel| wheel.about.clone()).collect();
            let mut page = json!({"meta": {"api-version": "1.1"}, "name": name, "files": files});
            for file in page["files"].as_array_mut().expect("it is one") {
                file["url"] = file["filename"].clone();
            }
            return Reply::new(200, page.to_string()).header("content-type", "application/vnd.pypi.simple.v1+json");
        };
        let found = wheels.iter().find(|wheel| wheel.about["filename"] == file);
        found.map_or_else(|| Reply::new(404, ""), |wheel| Reply::new(200, wheel.bytes.clone()))
    }
}

/// An archive whose files are stored as they are (APPNOTE.TXT 4.3).
pub fn zip(files: &[(String, String)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, text) in files {
        let mut sum = flate2::Crc::new();
        sum.update(text.as_bytes());
        let (size, at) = ((text.len() as u32).to_le_bytes(), (archive.len() as u32).to_le_bytes());
        // Version 2.0, no flags, stored, 1980-01-01.
        let common = [&[20, 0, 0, 0, 0, 0, 0, 0, 33, 0][..], &sum.sum().to_le_bytes(), &size, &size].concat();
        let length = (name.len() as u16).to_le_bytes();
        archive.extend([b"PK\x03\x04", &common[..], &length, &[0, 0], name.as_bytes(), text.as_bytes()].concat());
        let rest = [&length[..], &[0; 8], &(0o644_u32 << 16).to_le_bytes(), &at, name.as_bytes()].concat();
        directory.extend([b"PK\x01\x02", &[20, 3][..], &common, &rest].concat());
    }
    let count = (files.len() as u16).to_le_bytes();
    let (size, at) = ((directory.len() as u32).to_le_bytes(), (archive.len() as u32).to_le_bytes());
    [&archive[..], &directory, b"PK\x05\x06", &[0; 4], &count, &count, &size, &at, &[0, 0]].concat()
}

/// A package as npm packs it.
fn archive(files: &[(&str, String)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, format!("package/{name}"), text.as_bytes()).expect("memory can be written");
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&tar.into_inner().expect("memory can be written")).expect("memory can be written");
    gzip.finish().expect("memory can be written")
}
