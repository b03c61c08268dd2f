//! The manifest of a package: what it starts, what it takes and what it asks
//! for. It is data of somebody else, so it becomes a type here, strictly, once.

mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use crate::limits::LimitRequest;
use crate::permissions::Permissions;

/// A manifest, as read from an image's label or from `smcp.toml`. Keys that this
/// version does not know are kept in `extra`, except under `permissions`,
/// `limits` and `env`, where they are errors: ignoring one there could mean
/// something else than its author meant.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 1.
    pub schema_version: u32,
    /// Name of the package, such as `acme/hello`.
    pub name: String,
    /// Version, opaque.
    pub version: String,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What the server is to the protocol and its registry.
    #[serde(skip_serializing_if = "Mcp::is_empty")]
    pub mcp: Mcp,
    /// What is started.
    pub entrypoint: Entrypoint,
    /// Arguments that the user gives, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<ArgSpec>,
    /// Variables that the server reads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvSpec>,
    /// What the server asks for.
    pub permissions: Permissions,
    /// Which limits the server asks for.
    #[serde(skip_serializing_if = "LimitRequest::is_empty")]
    pub limits: LimitRequest,
    /// Where the package was built from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The interpreter of the host that this package needs, if any.
    #[serde(rename = "hostRuntime", skip_serializing_if = "Option::is_none")]
    pub runtime: Option<HostRuntime>,
    /// Keys of other versions.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// `mcp` of a manifest. The transport, which can only be stdio, stays in `extra`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mcp {
    /// Name in the official MCP registry, such as `io.github.acme/hello`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Keys of other versions.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// `entrypoint` of a manifest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entrypoint {
    /// Program and arguments, at least the program: a path inside the package or
    /// a name to be found in `PATH`.
    pub args: Vec<String>,
    /// Absolute directory inside the package to start in; HOME without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<PathBuf>,
    /// Keys of other versions.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// One argument that the user gives: the first of `args` without a flag is the first one after
/// the reference that is none of a flag, and so on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArgSpec {
    /// Name for people.
    pub name: String,
    /// What it is.
    #[serde(rename = "type")]
    pub kind: ArgKind,
    /// For a path: the id of the filesystem request that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// The server does not start without it.
    pub required: bool,
    /// The word that it follows, as `--repository`, or stands behind with `=`; wherever that is among the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flag: Option<String>,
    /// All that follow are such, but for words that begin with `-`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// For a path: the directory that holds it is what is granted, and it need not be there yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub holder: bool,
    /// Keys of other versions.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// Kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArgKind {
    /// A path of the host.
    Path,
    /// Any text.
    String,
}

/// One variable that the server reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EnvSpec {
    /// Its name.
    pub name: String,
    /// Its value where the user gives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Its value is a secret.
    pub secret: bool,
    /// The server does not start without it.
    pub required: bool,
}

/// Where a package was built from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Source {
    /// `npm`, `pypi`, `directory`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Name and version there.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Hash as the source states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integrity: Option<String>,
    /// Keys of other versions.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// The package brings no interpreter and runs with the host's. Such a package
/// never counts above level 1.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostRuntime {
    /// Name of the program to be found on the host, such as `python3.11`.
    pub interpreter: String,
    /// Keys of other versions.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// The image label that holds the manifest.
pub const LABEL: &str = "info.mcp-hub.smcp.manifest.v1";
/// The image label that holds the name in the official MCP registry.
pub const SERVER_NAME_LABEL: &str = "io.modelcontextprotocol.server.name";
/// Largest manifest in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// More than 64 KiB.
    #[error("the manifest has {0} bytes: at most {MAX_BYTES} are read")]
    TooLarge(usize),
    /// No JSON, or a key that stands twice.
    #[error("the manifest is no JSON: {0}")]
    Json(String),
    /// A later format.
    #[error("schemaVersion: this version of smcp reads 1, not {0}")]
    SchemaVersion(String),
    /// A key that is missing or has a wrong value.
    #[error("{key}: {why}")]
    Key {
        /// Path of the key, such as `limits.memory`.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// A key that is not known where every key counts.
    #[error("{key}: this key is not known")]
    UnknownKey {
        /// Path of the key.
        key: String,
    },
    /// A request for everything.
    #[error("{key}: a manifest cannot ask for everything")]
    Everything {
        /// Path of the key.
        key: String,
    },
}

impl ManifestError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            ManifestError::SchemaVersion(_) => Some("a newer smcp may read it".into()),
            ManifestError::Everything { .. } => {
                Some("the manifest must name each host, path, program or variable".into())
            }
            _ => None,
        }
    }
}

type Result<T> = std::result::Result<T, ManifestError>;

impl Manifest {
    /// Reads the JSON of a label, at most 64 KiB.
    pub fn parse(bytes: &[u8]) -> Result<Manifest> {
        if bytes.len() > MAX_BYTES {
            return Err(ManifestError::TooLarge(bytes.len()));
        }
        let value: Value = distribution::json::strict(bytes, MAX_BYTES).map_err(ManifestError::Json)?;
        Manifest::from_value(&value)
    }

    /// Reads a value of the same shape, from JSON or from `smcp.toml`.
    ///
    /// # Errors
    /// The path of the first key that is wrong.
    pub fn from_value(value: &Value) -> Result<Manifest> {
        read::manifest(value)
    }

    /// The compact JSON of the label; the same manifest always gives the same
    /// text, and `parse` gives the same manifest back.
    pub fn to_label(&self) -> String {
        serde_json::to_string(self).expect("a manifest has text keys and finite numbers")
    }
}

impl Mcp {
    fn is_empty(&self) -> bool {
        *self == Mcp::default()
    }
}

#[cfg(test)]
mod tests;
