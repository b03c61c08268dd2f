//! smcp's own file of logins, one a registry, for its owner alone.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Login, read_small};
use crate::system::{self, DirBuilderExt as _, OpenOptionsExt as _};
use crate::{Error, Result, Secret, disk, json, lock};

const MAX_FILE: usize = 1 << 20;

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    registries: BTreeMap<String, Entry>,
}

/// A login as it is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Entry {
    Password { username: String, password: String },
    Token { token: String },
    Identity { identity_token: String },
}

impl Entry {
    pub(super) fn of(login: &Login) -> Self {
        match login {
            Login::Password { username, password } => {
                Self::Password { username: username.clone(), password: password.expose().into() }
            }
            Login::Token(token) => Self::Token { token: token.expose().into() },
            Login::Identity(token) => Self::Identity { identity_token: token.expose().into() },
        }
    }

    pub(super) fn login(self) -> Login {
        match self {
            Self::Password { username, password } => Login::Password { username, password: Secret::new(password) },
            Self::Token { token } => Login::Token(Secret::new(token)),
            Self::Identity { identity_token } => Login::Identity(Secret::new(identity_token)),
        }
    }
}

/// All logins; none where there is no file.
///
/// # Errors
/// Where others can read the file, or it is not understood.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Entry>> {
    let unusable = |why: String| Error::Unusable { path: path.into(), why };
    let Some(bytes) = read_small(path)? else { return Ok(BTreeMap::new()) };
    let about = fs::metadata(path).map_err(Error::store("read", path))?;
    if system::is_open_to_others(&about) {
        return Err(unusable("others can read or write the credentials in it; chmod 600 makes it private".into()));
    }
    if !system::is_own(&about) {
        return Err(unusable("it belongs to another user".into()));
    }
    json::strict::<File>(&bytes, MAX_FILE).map(|file| file.registries).map_err(unusable)
}

/// Changes the logins in one step, so that two processes lose nothing of one another's.
pub(super) fn change(path: &Path, change: impl FnOnce(&mut BTreeMap<String, Entry>)) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Error::store("create", dir))?;
    let _lock = lock::held(dir)?;
    let mut registries = read(path)?;
    change(&mut registries);
    if registries.is_empty() {
        return match fs::remove_file(path) {
            Err(why) if why.kind() != std::io::ErrorKind::NotFound => Err(Error::store("remove", path)(why)),
            _ => Ok(()),
        };
    }
    let mut bytes = serde_json::to_vec_pretty(&File { registries }).expect("strings always serialise");
    bytes.push(b'\n');
    let scratch = disk::unique(dir, ".credentials");
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&scratch)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&scratch, path)
    };
    write().map_err(|why| {
        let _ = fs::remove_file(&scratch);
        Error::store("write", path)(why)
    })
}
