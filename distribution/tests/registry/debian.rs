//! The registry that Debian ships, and skopeo as the other reader of our store.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use distribution::media_type::*;
use distribution::*;

use crate::world::{Cache, Content, cached, offline, there};

struct Debian {
    host: String,
    server: Child,
    _dir: tempfile::TempDir,
}

impl Debian {
    fn start() -> Option<Self> {
        if !there("docker-registry") {
            return None;
        }
        // A free port may be taken by another test before the registry has it.
        Some((0..5).find_map(|_| Self::try_start()).expect("docker-registry serves on a free port"))
    }

    fn try_start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let host = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let data = dir.path().join("data");
        let config = format!(
            "version: 0.1\nlog: {{accesslog: {{disabled: true}}}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{host}'}}\n",
            data.display()
        );
        fs::write(dir.path().join("config.yml"), config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(dir.path().join("config.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut debian = Self { host, server: command.spawn().unwrap(), _dir: dir };
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until && debian.server.try_wait().unwrap().is_none() {
            if TcpStream::connect(&debian.host).is_ok() {
                return Some(debian);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn push_and_pull() {
    let Some(debian) = Debian::start() else { return };
    let big: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let content = Content::new(&[&big, b"layer two", b""]);
    let from = Cache::new();
    let name = format!("{}/mcp/everything:1.0", debian.host);
    content.put(&from.store, &name);
    let target: Reference = name.parse().unwrap();
    let pushed = push(&from.store, &content.manifest, &target, &cached()).unwrap();
    assert_eq!((pushed.uploaded, pushed.present, pushed.bytes > 20_000_000), (4, 0, true));
    assert_eq!(from.store.recall(&name).unwrap().unwrap().origin, Origin::Fetched);
    let pushed = push(&from.store, &content.manifest, &target, &cached()).unwrap();
    assert_eq!((pushed.uploaded, pushed.present), (0, 4));

    for suffix in [":1.0".to_string(), "@1.0".into(), format!("@{}", content.manifest.digest)] {
        let to = Cache::new();
        let image = to.pull(&format!("{}/mcp/everything{suffix}", debian.host), &cached()).unwrap();
        assert_eq!((&image.resolved.descriptor, &image.layers), (&content.manifest, &content.layers), "{suffix}");
        assert!(to.store.blob(&content.layers[0]).unwrap().unwrap().bytes().is_err(), "too large for memory");
        assert_eq!(to.files("blobs/sha256"), from.files("blobs/sha256"));
    }
    for missing in ["mcp/everything:2", "mcp/other:1"] {
        let error = Cache::new().pull(&format!("{}/{missing}", debian.host), &cached()).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}

#[test]
fn an_index_with_its_images() {
    let Some(debian) = Debian::start() else { return };
    let from = Cache::new();
    let images = ["linux/amd64", "linux/arm64"].map(|platform| {
        let content = Content::new(&[platform.as_bytes(), b"shared"]);
        content.put(&from.store, platform);
        Descriptor { platform: platform.parse().ok(), ..content.manifest }
    });
    let index = from.store.put(&ImageIndex::new(images.to_vec()).to_bytes(), OCI_INDEX).unwrap();
    let name = format!("{}/acme/tool:1", debian.host);
    let pushed = push(&from.store, &index, &name.parse().unwrap(), &cached()).unwrap();
    assert_eq!(pushed.uploaded, 5, "two configurations, three layers");
    let net = Network { platform: "linux/arm64".parse().unwrap(), ..cached() };
    let image = Cache::new().pull(&name, &net).unwrap();
    assert_eq!((image.resolved.descriptor, image.resolved.manifest_descriptor), (index, images[1].clone()));
}

#[test]
fn skopeo_reads_the_store() {
    if !there("skopeo") {
        return;
    }
    let content = Content::new(&[b"layer"]);
    let cache = Cache::new();
    let name = "localhost:5000/acme/tool:1";
    content.put(&cache.store, name);
    let place = format!("oci:{}:{name}", cache.store.root().display());
    let copy = cache.dir.path().join("copy");
    let copied = Command::new("skopeo")
        .args(["copy", "--insecure-policy", "--preserve-digests", &place, &format!("oci:{}:v1", copy.display())])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    let image = Cache::new().pull(&format!("oci-layout:{}:v1", copy.display()), &offline()).unwrap();
    assert_eq!(image.resolved.descriptor.digest, content.manifest.digest);
}
