//! Images made by hand, apart from smcp's own packer: good ones and bad ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};

use crate::{place, probe};

const MANIFEST_LABEL: &str = "info.mcp-hub.smcp.manifest.v1";
const IMAGE_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const IMAGE_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const ARTIFACT_TYPE: &str = "application/vnd.smcp.package.v1+json";

/// An image of one layer, before it is written.
pub struct Image {
    files: Vec<(String, u32, Vec<u8>)>,
    links: Vec<(String, String)>,
    manifest: Value,
    config: Value,
    label: bool,
}

impl Image {
    /// The probe as a package that asks for nothing.
    pub fn probe() -> Image {
        let program = fs::read(probe::path()).expect("the probe was compiled");
        Image {
            files: vec![("usr/bin/probe".into(), 0o755, program)],
            links: vec![],
            manifest: json!({
                "schemaVersion": 1,
                "name": "test/probe",
                "version": "1.0.0",
                "mcp": {"serverName": "io.example/probe", "transport": {"type": "stdio"}},
                "entrypoint": {"args": ["/usr/bin/probe"], "workdir": "/usr/bin"},
            }),
            config: json!({
                "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" },
                "os": "linux",
                "config": {
                    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
                    "Entrypoint": ["/usr/bin/probe"],
                    "WorkingDir": "/",
                },
            }),
            label: true,
        }
    }

    /// One more file, owned by root.
    pub fn file(mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) -> Image {
        self.files.push((path.into(), mode, bytes.into()));
        self
    }

    /// A symbolic link, after all files.
    pub fn link(mut self, path: &str, leads_to: &str) -> Image {
        self.links.push((path.into(), leads_to.into()));
        self
    }

    /// Changes the manifest that goes into the label.
    pub fn manifest(mut self, change: impl FnOnce(&mut Value)) -> Image {
        change(&mut self.manifest);
        self
    }

    /// Changes the image's configuration.
    pub fn config(mut self, change: impl FnOnce(&mut Value)) -> Image {
        change(&mut self.config);
        self
    }

    /// Leaves the label out: an image that was not made for smcp.
    pub fn plain(mut self) -> Image {
        self.label = false;
        self
    }

    /// Makes the blobs.
    pub fn build(self) -> Built {
        self.build_with(|_| ())
    }

    /// The same with a layer that was changed, as only a hostile packer writes it.
    pub fn build_with(mut self, change: impl FnOnce(&mut [u8])) -> Built {
        let mut layer = layer(&self.links, &self.files);
        change(&mut layer);
        let layer = Blob::new(LAYER, layer);
        if self.label {
            self.config["config"]["Labels"] = json!({MANIFEST_LABEL: self.manifest.to_string()});
        }
        self.config["rootfs"] = json!({"type": "layers", "diff_ids": [layer.digest]});
        let config = Blob::new(IMAGE_CONFIG, self.config.to_string());
        let mut manifest = json!({
            "schemaVersion": 2,
            "mediaType": IMAGE_MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        if self.label {
            manifest["artifactType"] = json!(ARTIFACT_TYPE);
        }
        Built { manifest: Blob::new(IMAGE_MANIFEST, manifest.to_string()), config, layer }
    }
}

fn layer(links: &[(String, String)], files: &[(String, u32, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut made = Vec::new();
    let mut append = |path: &str, kind, mode, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes).expect("memory can be written");
    };
    for (path, mode, bytes) in files {
        let mut parents: Vec<_> = Path::new(path).ancestors().skip(1).filter(|p| p.parent().is_some()).collect();
        parents.reverse();
        for parent in parents {
            if !made.contains(&parent) {
                append(&format!("{}/", parent.display()), tar::EntryType::Directory, 0o755, &[]);
                made.push(parent);
            }
        }
        append(path, tar::EntryType::Regular, *mode, bytes);
    }
    for (path, leads_to) in links {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        tar.append_link(&mut header, path, leads_to).expect("memory can be written");
    }
    tar.into_inner().expect("memory can be written")
}

/// The blobs of an image.
#[derive(Clone)]
pub struct Built {
    /// The image manifest.
    pub manifest: Blob,
    /// The image's configuration.
    pub config: Blob,
    /// Its one layer.
    pub layer: Blob,
}

impl Built {
    /// The same image with every digest by SHA-512, but for those of what its layers hold.
    pub fn by_sha512(self) -> Built {
        let again = |blob: Blob| Blob { digest: format!("sha512:{}", sha512(&blob.bytes)), ..blob };
        let Built { manifest, config, layer } = self;
        let mut text = String::from_utf8(manifest.bytes).expect("a manifest is text");
        let [config, layer] = [config, layer].map(|blob| {
            let of_sha512 = again(blob.clone());
            text = text.replace(&blob.digest, &of_sha512.digest);
            of_sha512
        });
        Built { manifest: again(Blob::new(manifest.media_type, text)), config, layer }
    }

    /// Writes an OCI image layout and gives the reference that names the image there.
    pub fn write(&self, directory: &Path) -> String {
        Layout::new(directory).blobs(&[&self.manifest, &self.config, &self.layer]).index(&[self.manifest.descriptor()])
    }

    /// The same behind an index that says it is for `platforms` (os/architecture) alone.
    pub fn write_for(&self, directory: &Path, platforms: &[(&str, &str)]) -> String {
        let for_platform = |(os, architecture): &(&str, &str)| {
            let mut descriptor = self.manifest.descriptor();
            descriptor["platform"] = json!({"os": os, "architecture": architecture});
            descriptor
        };
        let manifests: Vec<_> = platforms.iter().map(for_platform).collect();
        let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": manifests});
        let index = Blob::new(IMAGE_INDEX, index.to_string());
        Layout::new(directory).blobs(&[&self.manifest, &self.config, &self.layer, &index]).index(&[index.descriptor()])
    }
}

/// How other tools pack images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Docker's schema 2, layers by gzip.
    Docker,
    /// OCI, layers by gzip.
    Gzip,
    /// OCI, layers by zstd.
    Zstd,
}

/// An image of several layers that was not made for smcp. A layer is its files: path, mode, content; `.wh.NAME` hides NAME.
pub fn write_plain(form: Form, layers: &[Vec<(String, u32, Vec<u8>)>], directory: &Path) -> String {
    let (manifest_type, config_type, layer_type) = match form {
        Form::Docker => (
            "application/vnd.docker.distribution.manifest.v2+json",
            "application/vnd.docker.container.image.v1+json",
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
        ),
        Form::Gzip => (IMAGE_MANIFEST, IMAGE_CONFIG, "application/vnd.oci.image.layer.v1.tar+gzip"),
        Form::Zstd => (IMAGE_MANIFEST, IMAGE_CONFIG, "application/vnd.oci.image.layer.v1.tar+zstd"),
    };
    let tars: Vec<_> = layers.iter().map(|files| layer(&[], files)).collect();
    let pack = |tar: &Vec<u8>| match form {
        Form::Zstd => zstd::encode_all(&**tar, 3).expect("memory can be written"),
        Form::Docker | Form::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, tar).expect("memory can be written");
            encoder.finish().expect("memory can be written")
        }
    };
    let packed: Vec<_> = tars.iter().map(|tar| Blob::new(layer_type, pack(tar))).collect();
    let mut config = Image::probe().config;
    config["rootfs"] = json!({
        "type": "layers",
        "diff_ids": tars.iter().map(|tar| format!("sha256:{}", sha256(tar))).collect::<Vec<_>>(),
    });
    let config = Blob::new(config_type, config.to_string());
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": manifest_type,
        "config": config.descriptor(),
        "layers": packed.iter().map(Blob::descriptor).collect::<Vec<_>>(),
    });
    let manifest = Blob::new(manifest_type, manifest.to_string());
    let blobs: Vec<_> = packed.iter().chain([&config, &manifest]).collect();
    Layout::new(directory).blobs(&blobs).index(&[manifest.descriptor()])
}

/// Bytes with their digest.
#[derive(Clone)]
pub struct Blob {
    /// Its media type.
    pub media_type: &'static str,
    /// `sha256:…`, or `sha512:…`
    pub digest: String,
    /// The content.
    pub bytes: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, bytes: impl Into<Vec<u8>>) -> Blob {
        let bytes = bytes.into();
        Blob { media_type, digest: format!("sha256:{}", sha256(&bytes)), bytes }
    }

    fn descriptor(&self) -> Value {
        json!({"mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len()})
    }

    /// Where a layout keeps it.
    pub fn path_in(&self, layout: &Path) -> std::path::PathBuf {
        layout.join("blobs").join(self.digest.replace(':', "/"))
    }
}

/// SHA-256 in hex.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-512 in hex.
pub fn sha512(bytes: &[u8]) -> String {
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Layout<'d>(&'d Path);

impl<'d> Layout<'d> {
    fn new(directory: &'d Path) -> Self {
        fs::create_dir_all(directory.join("blobs/sha256")).expect("the world is ours");
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).expect("the world is ours");
        Layout(directory)
    }

    fn blobs(self, blobs: &[&Blob]) -> Self {
        for blob in blobs {
            let path = blob.path_in(self.0);
            fs::create_dir_all(path.parent().expect("it is in a directory")).expect("the world is ours");
            fs::write(path, &blob.bytes).expect("the world is ours");
        }
        self
    }

    fn index(self, manifests: &[Value]) -> String {
        let tagged = |descriptor: &Value| {
            let mut descriptor = descriptor.clone();
            descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": "v1"});
            descriptor
        };
        let manifests: Vec<_> = manifests.iter().map(tagged).collect();
        let index = json!({"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": manifests});
        fs::write(self.0.join("index.json"), index.to_string()).expect("the world is ours");
        format!("oci-layout:{}:v1", self.0.display())
    }
}

/// The reference of the probe's package, in a layout that all worlds share.
pub fn probe_reference() -> &'static str {
    static REFERENCE: OnceLock<String> = OnceLock::new();
    REFERENCE.get_or_init(|| {
        let built = Image::probe().build();
        let layout = place::once(&format!("layout-{}", &built.manifest.digest[7..23]), |to| {
            built.write(to);
            for directory in [to, &to.join("blobs"), &to.join("blobs/sha256")] {
                fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
            }
            Ok(())
        });
        format!("oci-layout:{}:v1", layout.display())
    })
}
