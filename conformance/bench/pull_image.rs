//! The image that is pulled, and the floor: what has to be done with it in any case.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Result, because};

/// How its layers are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// By gzip, level 6.
    Gzip,
    /// By zstd, level 3.
    Zstd,
}

/// An image in a layout.
pub struct Made {
    /// Its layout; its name there is `v`.
    pub layout: PathBuf,
    /// Its tag in the registry.
    pub tag: &'static str,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of its packed layers.
    pub packed: u64,
    /// Number of files.
    pub files: usize,
}

/// A layer: its directory, how many files of how many bytes on average, and how many large ones of 16 MiB.
const LAYERS: [(&str, usize, usize, usize); 4] = [
    ("usr/lib", 3000, 12_000, 2),
    ("opt/runtime", 1500, 20_000, 6),
    ("app/node_modules", 12_000, 14_000, 0),
    ("app/src", 1500, 15_000, 0),
];

/// Makes an image of four layers: 18,000 files, 400 MB, of which a half is text.
pub fn make(layout: &Path, form: Form) -> Result<Made> {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(because("making a layout"))?;
    let put = |bytes: &[u8]| -> Result<String> {
        let digest = hex(&Sha256::digest(bytes));
        fs::write(blobs.join(&digest), bytes).map_err(because("writing a blob"))?;
        Ok(format!("sha256:{digest}"))
    };
    let (kind, tag) = match form {
        Form::Gzip => ("application/vnd.oci.image.layer.v1.tar+gzip", "gzip"),
        Form::Zstd => ("application/vnd.oci.image.layer.v1.tar+zstd", "zstd"),
    };
    let mut made = Made { layout: layout.to_owned(), tag, bytes: 0, packed: 0, files: 0 };
    let (mut layers, mut diff_ids) = (Vec::new(), Vec::new());
    for (number, layer) in LAYERS.into_iter().enumerate() {
        let tar = archive(layer, number as u64, &mut made).map_err(because("packing a layer"))?;
        let packed = match form {
            Form::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&tar).and_then(|()| encoder.finish())
            }
            Form::Zstd => zstd::encode_all(&*tar, 3),
        };
        let packed = packed.map_err(because("packing a layer"))?;
        made.packed += packed.len() as u64;
        diff_ids.push(format!("sha256:{}", hex(&Sha256::digest(&tar))));
        layers.push(json!({"mediaType": kind, "digest": put(&packed)?, "size": packed.len()}));
    }
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let config = json!({
        "architecture": architecture, "os": "linux", "config": {"Entrypoint": ["/opt/runtime/0/0"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    })
    .to_string();
    let config_type = "application/vnd.oci.image.config.v1+json";
    let manifest_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({
        "schemaVersion": 2, "mediaType": manifest_type, "layers": layers,
        "config": {"mediaType": config_type, "digest": put(config.as_bytes())?, "size": config.len()},
    })
    .to_string();
    let index = json!({"schemaVersion": 2, "manifests": [{
        "mediaType": manifest_type, "digest": put(manifest.as_bytes())?, "size": manifest.len(),
        "annotations": {"org.opencontainers.image.ref.name": "v"},
    }]});
    fs::write(layout.join("index.json"), index.to_string()).map_err(because("writing a layout"))?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).map_err(because("writing a layout"))?;
    Ok(made)
}

fn archive(layer: (&str, usize, usize, usize), seed: u64, made: &mut Made) -> io::Result<Vec<u8>> {
    let (directory, files, average, large) = layer;
    let mut dice = Dice(seed);
    let mut tar = tar::Builder::new(Vec::new());
    let mut known = BTreeSet::new();
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o755);
    for number in 0..files + large {
        let parent = format!("{directory}/{}/{}", number % 40, number / 40 % 10);
        let parents: Vec<_> = Path::new(&parent).ancestors().filter(|path| path.parent().is_some()).collect();
        for path in parents.into_iter().rev() {
            if known.insert(path.to_owned()) {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                tar.append_data(&mut header, format!("{}/", path.display()), io::empty())?;
            }
        }
        // Sizes of files in packages: many small ones.
        let size =
            if number < files { dice.below(average / 2) + dice.below(average) * dice.below(7) / 2 } else { 16 << 20 };
        let bytes = if number % 4 == 0 || number >= files { dice.noise(size) } else { dice.text(size) };
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, format!("{parent}/{number}"), &*bytes)?;
        made.bytes += bytes.len() as u64;
        made.files += 1;
    }
    tar.into_inner()
}

/// A pseudo-random sequence, splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Machine code packs to about a half: every second byte is one of sixteen.
    fn noise(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 8);
        while bytes.len() < size {
            let eight = self.next().to_le_bytes();
            bytes.extend(eight.iter().enumerate().map(|(i, byte)| if i % 2 == 0 { *byte } else { byte & 15 }));
        }
        bytes.truncate(size);
        bytes
    }

    /// Source text packs to a quarter: words of a small stock.
    fn text(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 16);
        while bytes.len() < size {
            let word = self.below(3000);
            bytes.extend_from_slice(format!("w{:x}{}", word * 7919, [" ", ".", "(", ");\n"][word % 4]).as_bytes());
        }
        bytes.truncate(size);
        bytes
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes, inflates, hashes and writes the layers of a layout, with a thread for each CPU and no look at anything: no name is judged,
/// no mode but one is set, nothing is brought to the disk.
pub fn floor(layout: &Path, into: &Path, registry: Option<&str>) -> Result<()> {
    let read = |digest: &Value| -> Result<Value> {
        let path = blob(layout, digest);
        serde_json::from_slice(&fs::read(&path).map_err(because(path.display()))?).map_err(because(path.display()))
    };
    let index: Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).map_err(because("reading a layout"))?)
            .map_err(because("reading a layout"))?;
    let manifest = read(&index["manifests"][0]["digest"])?;
    let mut layers = manifest["layers"].as_array().cloned().unwrap_or_default();
    // The largest first: no CPU has nothing to do while another one unpacks it.
    layers.sort_by_key(|layer| std::cmp::Reverse(layer["size"].as_u64()));
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        while let Some(layer) = layers.get(next.fetch_add(1, Ordering::Relaxed)) {
            let digest = layer["digest"].as_str().unwrap_or_default();
            let place = into.join(digest.replace(':', "-"));
            let packed: io::Result<Box<dyn Read>> = match registry {
                Some(registry) => {
                    fetch(registry, digest, &place.with_extension("packed")).map(|read| Box::new(read) as _)
                }
                None => File::open(blob(layout, &layer["digest"])).map(|file| Box::new(file) as _),
            };
            packed
                .and_then(|packed| write_out(packed, layer["mediaType"].as_str().unwrap_or_default(), &place))
                .map_err(because("the floor"))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a worker failed".to_owned())?)
    })
}

/// A blob as a registry sends it, which is in a file once it was read.
fn fetch(registry: &str, digest: &str, file: &Path) -> io::Result<impl Read + use<>> {
    let mut stream = TcpStream::connect(registry)?;
    write!(stream, "GET /v2/bench/image/blobs/{digest} HTTP/1.0\r\nHost: {registry}\r\n\r\n")?;
    let mut answer = BufReader::with_capacity(256 << 10, stream);
    let mut line = String::new();
    answer.read_line(&mut line)?;
    if line.split(' ').nth(1) != Some("200") {
        return Err(io::Error::other(format!("{registry} says {}", line.trim_end())));
    }
    while line != "\r\n" {
        line.clear();
        answer.read_line(&mut line)?;
    }
    Ok(Keeping { inner: answer, file: File::create_new(file)? })
}

/// Keeps what is read through it.
struct Keeping<R> {
    inner: R,
    file: File,
}

impl<R: Read> Read for Keeping<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.file.write_all(&buffer[..count])?;
        Ok(count)
    }
}

fn write_out(packed: impl Read + 'static, kind: &str, into: &Path) -> io::Result<()> {
    let packed = BufReader::with_capacity(256 << 10, Hashing::new(packed));
    let inflated: Box<dyn Read> = match kind.ends_with("gzip") {
        true => Box::new(flate2::bufread::GzDecoder::new(packed)),
        false => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
    };
    let mut archive = tar::Archive::new(BufReader::with_capacity(256 << 10, Hashing::new(inflated)));
    let mut buffer = vec![0; 256 << 10];
    fs::create_dir(into)?;
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = into.join(entry.path()?);
        if entry.header().entry_type().is_dir() {
            fs::create_dir(&path)?;
            continue;
        }
        let mut file = File::create_new(&path)?;
        loop {
            match entry.read(&mut buffer)? {
                0 => break,
                count => file.write_all(&buffer[..count])?,
            }
        }
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn blob(layout: &Path, digest: &Value) -> PathBuf {
    layout.join("blobs/sha256").join(digest.as_str().unwrap_or_default().trim_start_matches("sha256:"))
}

/// Hashes what is read through it.
struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R> Hashing<R> {
    fn new(inner: R) -> Hashing<R> {
        Hashing { inner, hash: Sha256::new() }
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}
