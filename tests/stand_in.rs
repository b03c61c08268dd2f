//! An npm registry on loopback, whose packages a test makes up; it counts what it is asked.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha512};

use crate::command::Smcp;
use crate::fake::{Call, Fake, Reply};

/// A registry under way.
pub struct StandIn {
    fake: Fake,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// By name, each with its versions in the order in which they were published.
    packages: Mutex<BTreeMap<String, Vec<Release>>>,
    is_down: AtomicBool,
}

#[derive(Clone)]
struct Release {
    version: String,
    published: String,
    archive: Vec<u8>,
    /// What the registry says of it.
    about: Value,
}

/// When a release was published unless a test says so.
const LONG_AGO: &str = "2026-01-02T03:04:05.000Z";

impl StandIn {
    /// One without packages.
    pub fn new() -> StandIn {
        let shared = Arc::new(Shared::default());
        let served = shared.clone();
        StandIn { fake: Fake::serve(move |call| served.answer(call)), shared }
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

    /// From now on it answers nothing.
    pub fn go_down(&self) {
        self.shared.is_down.store(true, Ordering::Relaxed);
    }

    /// How many requests had this in their path.
    pub fn count(&self, part: &str) -> usize {
        self.fake.count("GET", part)
    }

    /// What it was asked.
    pub fn calls(&self) -> Vec<Call> {
        self.fake.calls()
    }

    /// A command whose npm asks it.
    pub fn of<'w>(&self, command: Smcp<'w>) -> Smcp<'w> {
        command.env("npm_config_registry", self.url())
    }
}

impl Shared {
    fn answer(&self, call: &Call) -> Reply {
        if self.is_down.load(Ordering::Relaxed) {
            return Reply::new(404, "{}");
        }
        let host = call.header("host").unwrap_or_default().to_owned();
        let path = call.path.strip_prefix("/npm/").unwrap_or_default().replace("%2f", "/").replace("%2F", "/");
        let packages = self.packages.lock().unwrap();
        let (name, file) = path.split_once("/-/").map_or((path.as_str(), None), |(name, file)| (name, Some(file)));
        let Some(releases) = packages.get(name) else { return Reply::new(404, "{\"error\":\"not found\"}") };
        match file {
            Some(file) => {
                let found = releases.iter().find(|release| file == format!("{}.tgz", release.version));
                found.map_or_else(|| Reply::new(404, ""), |release| Reply::new(200, release.archive.clone()))
            }
            None => {
                Reply::new(200, packument(&host, name, releases).to_string()).header("content-type", "application/json")
            }
        }
    }
}

fn packument(host: &str, name: &str, releases: &[Release]) -> Value {
    let mut versions = json!({});
    let mut time = json!({});
    for release in releases {
        let mut about = release.about.clone();
        let integrity = format!("sha512-{}", STANDARD.encode(Sha512::digest(&release.archive)));
        about["dist"] =
            json!({"tarball": format!("http://{host}/npm/{name}/-/{}.tgz", release.version), "integrity": integrity});
        versions[&release.version] = about;
        time[&release.version] = json!(release.published);
    }
    let newest = &releases.last().expect("it has releases").version;
    json!({"name": name, "dist-tags": {"latest": newest}, "versions": versions, "time": time})
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
