//! Who asks a registry: logins, where they lie, and how a registry asks for them.
//!
//! A login is looked up when a registry asks for one, and never leaves for another host than that registry's, except to
//! a token service that is known or configured to be its own.

mod challenge;
mod docker;
mod file;
mod helper;

use std::path::{Path, PathBuf};

use crate::{Access, Network, Result, Secret, registry_host};

pub(crate) use challenge::Challenge;
pub(crate) use docker::basic;

/// What a registry is told about who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// A name with its password, or a token in a password's place.
    Password {
        /// The name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// A token that is sent as it is; one of the form `ID:SECRET` as the hub's tokens for CI are.
    Token(Secret),
    /// A token that a token service takes in exchange for one that opens a repository.
    Identity(Secret),
}

impl Login {
    /// The value of `Authorization` for a token that is sent as it is.
    pub(crate) fn token_header(token: &Secret) -> Secret {
        let scheme = if token.expose().contains(':') { "Token" } else { "Bearer" };
        Secret::new(format!("{scheme} {}", token.expose()))
    }
}

/// Where credentials lie. Only what is asked for is read.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// smcp's own file, which `smcp login` writes.
    pub own: Option<PathBuf>,
    /// Files of docker and podman, the first that knows a registry decides.
    pub docker: Vec<DockerFile>,
}

/// A file in the format of docker's `config.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerFile {
    /// Where it is.
    pub path: PathBuf,
    /// Somebody named it, so it must be there.
    pub named: bool,
}

impl Places {
    /// The login for a repository of a registry, and where it is from; none where nobody knows one.
    ///
    /// # Errors
    /// Where a file cannot be read or understood, is open to others, or a credential helper fails.
    pub(crate) fn find(&self, host: &str, repository: &str) -> Result<Option<(Login, String)>> {
        let from = |path: &Path| path.display().to_string();
        if let Some(path) = &self.own
            && let Some(login) = file::read(path)?.remove(host)
        {
            return Ok(Some((login.login(), from(path))));
        }
        for file in &self.docker {
            if let Some(login) = docker::find(file, host, repository)? {
                return Ok(Some((login, from(&file.path))));
            }
        }
        Ok(None)
    }
}

impl Access {
    /// The login for a repository and where it is from: a token that is configured for the host, else what lies in files.
    pub(crate) fn login(&self, host: &str, repository: &str) -> Result<Option<(Login, String)>> {
        match self.host(host).and_then(|host| host.token.clone()) {
            Some(token) => Ok(Some((Login::Token(token), "the environment".into()))),
            None => self.credentials.find(host, repository),
        }
    }

    /// Says whether what is meant for a registry may be told to its token service at `realm`.
    pub(crate) fn may_tell(&self, registry: &str, realm: &str) -> bool {
        let (of, at) = (crate::url::host_of(registry), crate::url::host_of(realm));
        let named = self.host(registry).and_then(|host| host.realm.as_deref());
        of == at || named == Some(realm) || named == Some(at) || TOKEN_SERVICES.contains(&(of, at))
    }
}

/// Registries whose token service is known to be another host.
const TOKEN_SERVICES: [(&str, &str); 2] =
    [("registry-1.docker.io", "auth.docker.io"), ("registry.gitlab.com", "gitlab.com")];

/// Keeps a login for a registry in smcp's own file, which only its owner can read. The registry has been asked whether
/// it takes it, and nothing is kept where it does not. Gives the registry's host.
///
/// # Errors
/// Where the registry is none, is not reached or refuses, or the file cannot be written.
pub fn login(registry: Option<&str>, login: &Login, net: &Network) -> Result<String> {
    let host = registry_host(registry.unwrap_or(&net.registry), &net.access)?;
    crate::registry::try_login(&host, login, net)?;
    file::change(own(net)?, |all| drop(all.insert(host.clone(), file::Entry::of(login))))?;
    Ok(host)
}

/// Forgets smcp's own login for a registry; says which, and whether there was one.
///
/// # Errors
/// Where the registry is none, or the file cannot be read or written.
pub fn logout(registry: Option<&str>, net: &Network) -> Result<(String, bool)> {
    let host = registry_host(registry.unwrap_or(&net.registry), &net.access)?;
    let mut was_there = false;
    file::change(own(net)?, |all| was_there = all.remove(&host).is_some())?;
    Ok((host, was_there))
}

fn own(net: &Network) -> Result<&Path> {
    let none = || crate::Error::Unusable { path: "credentials".into(), why: "there is no place for them".into() };
    net.access.credentials.own.as_deref().ok_or_else(none)
}

/// A file of credentials, of at most 1 MiB; none where it is missing.
fn read_small(path: &Path) -> Result<Option<Vec<u8>>> {
    use std::io::Read;
    const MOST: u64 = 1 << 20;
    let unusable = |why: &str| crate::Error::Unusable { path: path.into(), why: why.into() };
    let failed = |why: std::io::Error| unusable(&format!("cannot be read: {why}"));
    let about = match std::fs::metadata(path) {
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        about => about.map_err(failed)?,
    };
    // A pipe would keep the reader waiting.
    if !about.is_file() {
        return Err(unusable("not a regular file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MOST { Err(unusable("larger than 1 MiB")) } else { Ok(Some(bytes)) }
}

#[cfg(test)]
mod tests;
