//! A store, an image, and a registry that serves it.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use distribution::media_type::*;
use distribution::*;

use crate::fake::{Call, Fake, Identity, Reply};

/// A store in a directory of its own.
pub struct Cache {
    pub dir: tempfile::TempDir,
    pub store: Store,
}

impl Cache {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("store")).unwrap();
        Self { dir, store }
    }

    /// Names of the files in a directory of the store.
    pub fn files(&self, name: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.store.root().join(name)).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub fn pull(&self, reference: &str, net: &Network) -> Result<Image> {
        let resolved = resolve(&reference.parse()?, &self.store, net)?;
        let pending = Pending::new(&resolved, &self.store)?;
        let image = configure(&resolved, &self.store, net)?;
        bring_layers(&image, &self.store, net, &|_| ())?;
        pending.keep()?;
        Ok(image)
    }
}

/// Fetches the layers of an image, and unpacks none.
pub fn bring_layers(image: &Image, store: &Store, net: &Network, progress: &dyn Fn(Progress)) -> Result<()> {
    fetch(image, store, net, progress, |layer| layer.bring_whole().map(drop))
}

/// The blobs of one image, by digest.
#[derive(Clone)]
pub struct Content {
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
    pub manifest: Descriptor,
}

impl Content {
    pub fn new(layers: &[&[u8]]) -> Self {
        let mut blobs = BTreeMap::new();
        let mut add = |media_type: &str, bytes: &[u8]| {
            let digest = Digest::of(bytes);
            blobs.insert(digest.to_string(), bytes.to_vec());
            Descriptor::new(media_type, digest, bytes.len() as u64)
        };
        let layers: Vec<_> = layers.iter().map(|bytes| add(LAYER_TAR, bytes)).collect();
        let ids: Vec<_> = layers.iter().map(|layer| layer.digest.clone()).collect();
        let config = serde_json::json!({"os": "linux", "architecture": "amd64",
            "config": {}, "rootfs": {"type": "layers", "diff_ids": ids}});
        let config = add(OCI_CONFIG, config.to_string().as_bytes());
        let mut manifest = ImageManifest::new(config.clone(), layers.clone());
        manifest.artifact_type = Some(SMCP_PACKAGE.into());
        let manifest = add(OCI_MANIFEST, &manifest.to_bytes());
        Self { blobs, config, layers, manifest }
    }

    /// The right answer to a request for any tag of a known name, or for a digest.
    pub fn reply(&self, call: &Call) -> Reply {
        let path = call.path.split('?').next().unwrap();
        if path == "/v2/" {
            return Reply::new(200, "{}");
        }
        let (kind, last) = path.rsplit_once('/').unwrap();
        let wanted = if last.starts_with("sha256:") { last } else { self.manifest.digest.as_str() };
        let Some(bytes) = self.blobs.get(wanted) else { return Reply::new(404, "") };
        let reply = Reply::new(200, &**bytes);
        if !kind.ends_with("/manifests") {
            let range = call.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
            return match range.map(|from| from.parse::<usize>().unwrap()) {
                Some(from) if from < bytes.len() => Reply::new(206, &bytes[from..])
                    .header("content-range", format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())),
                Some(_) => Reply::new(416, ""),
                None => reply,
            };
        }
        let index = String::from_utf8_lossy(bytes).contains("\"manifests\"");
        let media_type = if index { OCI_INDEX } else { OCI_MANIFEST };
        reply.header("content-type", media_type).header("docker-content-digest", wanted)
    }

    pub fn serve_tls(
        &self,
        identity: &Identity,
        tamper: impl Fn(&Call, Reply) -> Reply + Send + Sync + 'static,
    ) -> Fake {
        let content = self.clone();
        Fake::serve_tls(identity, move |call| tamper(call, content.reply(call)))
    }

    pub fn serve(&self, tamper: impl Fn(&Call, Reply) -> Reply + Send + Sync + 'static) -> Fake {
        let content = self.clone();
        Fake::serve(move |call| tamper(call, content.reply(call)))
    }

    /// The image in a store, under a name that was built there.
    pub fn put(&self, store: &Store, name: &str) {
        for bytes in self.blobs.values() {
            store.put(bytes, "").unwrap();
        }
        store.remember(name, &self.manifest).unwrap();
    }
}

/// With this access to registries.
pub fn through(access: Access) -> Network {
    cached().through(Arc::new(access))
}

/// Says whether the machine has a program; in CI it must.
pub fn there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(found || std::env::var_os("CI").is_none(), "{program} is needed: apt install {program}");
    if !found {
        eprintln!("skipped: needs {program}: apt install {program}");
    }
    found
}

pub fn cached() -> Network {
    Network::new("https://registry.invalid", Mode::CacheFirst { refresh: Duration::from_secs(3600) })
}

/// Asks the registry about every name.
pub fn refreshing() -> Network {
    Network::new("https://registry.invalid", Mode::Refresh)
}

pub fn offline() -> Network {
    Network::new("https://registry.invalid", Mode::Offline)
}
