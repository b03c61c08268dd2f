//! Docker's and podman's files of credentials: `auths`, `credHelpers`, `credsStore`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{alphabet, engine::DecodePaddingMode};
use serde::Deserialize;

use super::{DockerFile, Login, helper, read_small};
use crate::{Error, Result, Secret};

/// Docker Hub, as docker's own files call it.
const HUB_KEY: &str = "https://index.docker.io/v1/";
const HUB_HOSTS: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    #[serde(default)]
    creds_store: String,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Auth {
    #[serde(default)]
    auth: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    identitytoken: String,
    #[serde(default)]
    registrytoken: String,
}

/// The login for a repository in one file.
pub(super) fn find(file: &DockerFile, host: &str, repository: &str) -> Result<Option<Login>> {
    let unusable = |why: String| Error::Unusable { path: file.path.clone(), why };
    let Some(bytes) = read_small(&file.path)? else {
        return if file.named {
            Err(unusable("it is named as the file of credentials, and is not there".into()))
        } else {
            Ok(None)
        };
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let config: Config = serde_json::from_slice(&bytes).map_err(|why| unusable(format!("not understood: {why}")))?;
    let keys = keys(host, repository);
    let by_host = keys.iter().find_map(|key| config.cred_helpers.get(key));
    let store = by_host.or(Some(&config.creds_store)).filter(|name| !name.is_empty());
    if let Some(name) = store
        && let Some(login) = helper::get(name, if HUB_HOSTS.contains(&host) { HUB_KEY } else { host })?
    {
        return Ok(Some(login));
    }
    let entry = keys.iter().find_map(|key| {
        config.auths.iter().find(|(name, _)| bare(name) == key || HUB_HOSTS.contains(&host) && *name == HUB_KEY)
    });
    match entry {
        Some((name, entry)) => entry.login().map_err(|why| unusable(format!("auths of {name:?}: {why}"))),
        None => Ok(None),
    }
}

/// What an entry for a repository can be called, the most exact first: podman has entries for paths.
fn keys(host: &str, repository: &str) -> Vec<String> {
    let mut path = format!("{host}/{repository}");
    let mut keys = vec![path.clone()];
    while let Some(slash) = path.rfind('/') {
        path.truncate(slash);
        keys.push(path.clone());
    }
    keys
}

/// Older files have urls as names: `https://HOST/v1/`.
fn bare(name: &str) -> &str {
    let Some((_, rest)) = name.split_once("://") else { return name };
    rest.split('/').next().unwrap_or_default()
}

impl Auth {
    fn login(&self) -> Result<Option<Login>, &'static str> {
        let secret = |text: &str| Secret::new(text);
        if !self.identitytoken.is_empty() {
            return Ok(Some(Login::Identity(secret(&self.identitytoken))));
        }
        if !self.registrytoken.is_empty() {
            return Ok(Some(Login::Token(secret(&self.registrytoken))));
        }
        if !self.username.is_empty() {
            return Ok(Some(Login::Password { username: self.username.clone(), password: secret(&self.password) }));
        }
        if self.auth.is_empty() {
            return Ok(None);
        }
        let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let bytes = GeneralPurpose::new(&alphabet::STANDARD, lenient).decode(self.auth.trim());
        let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok()).ok_or("not base64 of a text")?;
        let (username, password) = text.split_once(':').ok_or("not NAME:PASSWORD in base64")?;
        // Docker pads with zeros.
        let password = secret(password.trim_end_matches('\0'));
        Ok(Some(Login::Password { username: username.into(), password }))
    }
}

/// The value of `Authorization` for a name and a password.
pub(crate) fn basic(username: &str, password: &Secret) -> Secret {
    Secret::new(format!("Basic {}", STANDARD.encode(format!("{username}:{}", password.expose()))))
}
