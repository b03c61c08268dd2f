//! The image configuration, `application/vnd.oci.image.config.v1+json`.

use std::collections::BTreeMap;

use distribution::{Digest, MAX_CONFIG, json};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// An image configuration. Members that grant nothing here (`ExposedPorts`,
/// `Volumes`, `Healthcheck` and the like) are kept in `extra`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageConfig {
    /// As Go names it, such as `amd64`.
    pub architecture: String,
    /// As Go names it; only `linux` is run.
    pub os: String,
    /// When the image was made, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// How the image is started.
    #[serde(default, deserialize_with = "null_as_default")]
    pub config: Execution,
    /// The layers when unpacked.
    pub rootfs: RootFs,
    /// For people.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Value>,
    /// Other members.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// The member `config`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Execution {
    /// `NAME=VALUE`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Program and arguments that the user's arguments follow.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments that the user's arguments replace.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Directory to start in; empty where the image names none.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Data about the image, the manifest among it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Grants nothing and is not obeyed.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Other members.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// The member `rootfs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// Always `layers`.
    #[serde(rename = "type")]
    pub kind: RootFsKind,
    /// Digests of the layers when decompressed, the lowest first.
    #[serde(deserialize_with = "null_as_default")]
    pub diff_ids: Vec<Digest>,
}

/// The only kind of root file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootFsKind {
    /// A stack of layers.
    #[default]
    Layers,
}

impl ImageConfig {
    /// Reads at most 8 MiB of JSON without duplicate keys.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn parse(bytes: &[u8]) -> Result<ImageConfig, String> {
        json::strict(bytes, MAX_CONFIG)
    }

    /// Compact JSON, the same bytes for the same configuration.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a configuration has text keys and finite numbers")
    }
}

impl Default for RootFs {
    fn default() -> RootFs {
        RootFs { kind: RootFsKind::Layers, diff_ids: Vec::new() }
    }
}

/// Docker writes `null` where nothing is meant.
fn null_as_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKER: &str = r#"{"architecture":"amd64","os":"linux","variant":"v8","container_config":{"Tty":false},
        "config":{"Env":null,"Cmd":["sh"],"Entrypoint":null,"Labels":null,"User":"1000","WorkingDir":"",
        "ExposedPorts":{"80/tcp":{}}},"history":[{"created_by":"x"}],
        "rootfs":{"type":"layers","diff_ids":["sha256:0000000000000000000000000000000000000000000000000000000000000000"]}}"#;

    #[test]
    fn what_docker_writes_is_read_and_nothing_is_lost() {
        let config = ImageConfig::parse(DOCKER.as_bytes()).unwrap();
        assert_eq!(config.config.cmd, ["sh"]);
        assert!(config.config.entrypoint.is_empty());
        assert_eq!(config.config.extra["ExposedPorts"]["80/tcp"], serde_json::json!({}));
        assert_eq!(config.extra["variant"], "v8");
        let bytes = config.to_bytes();
        let again = ImageConfig::parse(&bytes).unwrap();
        assert_eq!(again, config);
        assert_eq!(again.to_bytes(), bytes);
    }

    #[test]
    fn what_is_refused() {
        let rootfs = r#""rootfs":{"type":"layers","diff_ids":[]}"#;
        let wrong = [
            "".to_string(),
            "[]".into(),
            format!(r#"{{"os":"linux",{rootfs}}}"#),
            format!(r#"{{"architecture":"amd64",{rootfs}}}"#),
            r#"{"architecture":"amd64","os":"linux"}"#.into(),
            r#"{"architecture":"amd64","os":"linux","rootfs":{"type":"tree","diff_ids":[]}}"#.into(),
            r#"{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:../x"]}}"#.into(),
            format!(r#"{{"architecture":"amd64","os":"linux","os":"linux",{rootfs}}}"#),
            format!(r#"{{"architecture":"amd64","os":"linux","config":{{"Env":[1]}},{rootfs}}}"#),
        ];
        for text in wrong {
            assert!(ImageConfig::parse(text.as_bytes()).is_err(), "{text}");
        }
        let least = format!(r#"{{"architecture":"amd64","os":"linux",{rootfs}}}"#);
        assert!(ImageConfig::parse(least.as_bytes()).is_ok());
    }
}
