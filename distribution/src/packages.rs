//! Where npm's and python's packages come from, and as whom: read from the settings that npm, pip and uv have of the user.
//!
//! Read when a source is asked about, and never for a package of an OCI registry. Of a project's own files (`.npmrc` beside a
//! `package.json`) nothing is read: who clones a repository has not chosen its registry.

mod asking;
mod npm;
mod python;
#[cfg(test)]
mod tests;

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::auth::basic;
use crate::{Error, Result, Secret};

pub use asking::Asking;
pub use npm::{NPMJS, Npm};
pub use python::{PYPI, Python, normal_name};

/// The registry of servers that `mcp:` names are looked up in when nobody says otherwise.
pub const MCP_REGISTRY: &str = "https://registry.modelcontextprotocol.io";

/// The settings of one user, read on first use.
#[derive(Debug, Default)]
pub struct Packages {
    home: PathBuf,
    npm: OnceLock<Npm>,
    python: OnceLock<Python>,
}

impl Packages {
    /// Of the user whose home this is.
    pub fn of(home: &Path) -> Packages {
        Packages { home: home.into(), ..Packages::default() }
    }

    /// Never the working directory, whose settings are not the user's.
    fn home(&self) -> &Path {
        if self.home.is_absolute() { &self.home } else { Path::new("/") }
    }

    /// npm's.
    ///
    /// # Errors
    /// Where a file cannot be read, or names no registry.
    pub fn npm(&self) -> Result<&Npm> {
        if let Some(known) = self.npm.get() {
            return Ok(known);
        }
        let read = Npm::read(self.home(), &variables())?;
        Ok(self.npm.get_or_init(|| read))
    }

    /// pip's and uv's.
    ///
    /// # Errors
    /// As [`Packages::npm`].
    pub fn python(&self) -> Result<&Python> {
        if let Some(known) = self.python.get() {
            return Ok(known);
        }
        let read = Python::read(self.home(), Path::new("/etc"), &variables())?;
        Ok(self.python.get_or_init(|| read))
    }
}

/// Where packages are asked for, and what is shown there. Its text is without the login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    url: String,
    login: Option<Secret>,
}

impl Index {
    /// Reads `http[s]://[USER:PASSWORD@]HOST[:PORT]/PATH`; a slash at its end counts nothing.
    ///
    /// # Errors
    /// What is wrong, without the text, which may hold a password.
    pub fn parse(text: &str) -> std::result::Result<Index, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or("it is no url")?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "https" && scheme != "http" {
            return Err("it is neither http nor https");
        }
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let login = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            basic(&unescaped(name), &Secret::new(unescaped(password)))
        });
        let plain = |b: u8| b.is_ascii_graphic() && !b"?#\"'<>\\^`{|}".contains(&b);
        if host.is_empty()
            || !path.bytes().all(plain)
            || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
        {
            return Err("it is no plain url");
        }
        Ok(Index { url: format!("{scheme}://{}{}", host.to_ascii_lowercase(), path.trim_end_matches('/')), login })
    }

    /// The url without a login and without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The value of `Authorization`, where there is one.
    pub fn login(&self) -> Option<&Secret> {
        self.login.as_ref()
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// The variables of this process that are text.
fn variables() -> Vec<(String, String)> {
    env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

/// The value of a variable; an empty one is none.
fn variable<'a>(vars: &'a [(String, String)], name: &str) -> Option<&'a str> {
    vars.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

/// The largest file of settings, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// A file of settings; none where there is none. Devices and pipes are none either.
fn settings(path: &Path) -> Result<Option<String>> {
    let about = match fs::metadata(path) {
        Ok(about) if about.is_file() => about,
        Ok(_) => return Ok(None),
        Err(why) if matches!(why.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
        // A file that others keep from this user is none of this user's.
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(why) => return Err(Error::store("read", path)(why)),
    };
    if about.len() > MAX_FILE {
        return Err(Error::Unusable { path: path.into(), why: "it is larger than 1 MiB".into() });
    }
    match fs::read_to_string(path) {
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        read => read.map(Some).map_err(Error::store("read", path)),
    }
}

/// `%40` as `@`; what is no escape stays.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let hex = more.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
