//! OCI layouts: directories that hold images as a registry would, which other tools read and write too.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Algorithm, Descriptor, Digest, Error, Result, disk, json, media_type};

/// Content of the file `oci-layout`.
pub(crate) const MARKER: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
/// The annotation that names an entry.
const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The largest `index.json` that is read, in bytes.
const MAX_INDEX: u64 = 8 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u32,
    #[serde(default)]
    media_type: Option<String>,
    manifests: Vec<Descriptor>,
}

/// The entries of a layout's index.
///
/// # Errors
/// Where the directory is no OCI layout.
pub(crate) fn read_index(dir: &Path) -> Result<Vec<Descriptor>> {
    let path = dir.join("index.json");
    if !dir.join("oci-layout").is_file() {
        return Err(Error::NotFound { what: "an OCI layout".into(), place: dir.display().to_string() });
    }
    let bytes = read_file(&path, MAX_INDEX)?;
    let index: Index = json::strict(&bytes, MAX_INDEX as usize)
        .map_err(|why| Error::Verification { what: path.display().to_string(), why })?;
    Ok(index.manifests)
}

/// Writes a layout's index in one step.
pub(crate) fn write_index(dir: &Path, scratch: &Path, entries: &[Descriptor]) -> Result<()> {
    let media_type = Some(media_type::OCI_INDEX.into());
    let index = Index { schema_version: 2, media_type, manifests: entries.to_vec() };
    let bytes = serde_json::to_vec(&index).expect("strings and numbers always serialise");
    disk::replace(&dir.join("index.json"), &bytes, scratch)
}

/// Where a layout has a blob.
pub(crate) fn blob_path(dir: &Path, digest: &Digest) -> PathBuf {
    dir.join("blobs").join(digest.algorithm().name()).join(digest.hex())
}

/// An entry that carries a name.
pub(crate) fn named(mut descriptor: Descriptor, name: &str) -> Descriptor {
    descriptor.annotations.insert(REF_NAME.into(), name.into());
    descriptor
}

/// The name of an entry.
pub(crate) fn name_of(entry: &Descriptor) -> Option<&str> {
    entry.annotations.get(REF_NAME).map(String::as_str)
}

/// Whether an entry is no image of its own but something about one: a signature or an attestation.
pub(crate) fn is_about_another(entry: &Descriptor) -> bool {
    let by_name = |name: &str| {
        let rest =
            Algorithm::ALL.into_iter().find_map(|algorithm| name.strip_prefix(algorithm.name())?.strip_prefix('-'));
        rest.and_then(|rest| rest.get(..64)).is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    entry.artifact_type.as_deref() == Some(media_type::SIGSTORE_BUNDLE) || name_of(entry).is_some_and(by_name)
}

/// Opens a file that another program made; a pipe or device would keep its reader waiting.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    let open = || match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("not a regular file")),
    };
    open().map_err(Error::store("open", path))
}

fn read_file(path: &Path, cap: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(cap + 1).read_to_end(&mut bytes).map_err(Error::store("read", path))?;
    Ok(bytes)
}
