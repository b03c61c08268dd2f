//! Everything that can go wrong between a name and a verified blob.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Digest, ImageError, Platform, ReferenceError};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong and why: lower case, no full stop; [`Error::hint`] has the next step where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no reference.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The reference names a source that has to be made into a package first.
    #[error("{0} is a source, not a package")]
    NotBuilt(String),
    /// The address of a registry cannot be used.
    #[error("registry {registry:?}: {why}")]
    Address {
        /// As it was given.
        registry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No such name, tag or digest.
    #[error("{what} was not found in {place}")]
    NotFound {
        /// The name, tag or digest.
        what: String,
        /// The registry, layout or store.
        place: String,
    },
    /// A layout holds several images and the reference names none of them.
    #[error("{place} holds several images: {}", names.join(", "))]
    Ambiguous {
        /// The layout.
        place: String,
        /// What can be named.
        names: Vec<String>,
    },
    /// The index has no image for the platform.
    #[error("no image for {wanted}: there are images for {}", or_none(offered))]
    NoPlatform {
        /// What was looked for.
        wanted: Platform,
        /// What the index has.
        offered: Vec<String>,
    },
    /// The network would be needed and must not be used.
    #[error("{0} is not in the store, and the network is off")]
    Offline(String),
    /// The registry asks for credentials that it was not shown, or does not accept those that it was shown.
    #[error("registry {host}: {why}")]
    Unauthorized {
        /// Host and port.
        host: String,
        /// Which of it.
        why: String,
    },
    /// The credentials for a registry would go to another host.
    #[error("registry {host} wants its credentials sent to {realm}, another host")]
    Realm {
        /// Host and port of the registry.
        host: String,
        /// Host and port of the token service that it names.
        realm: String,
    },
    /// A credential helper of docker's failed.
    #[error("{program}: {why}")]
    Helper {
        /// The program.
        program: String,
        /// What happened.
        why: String,
    },
    /// There is no way to the registry, or it leads nowhere.
    #[error("registry {host}: {why}")]
    Unreachable {
        /// Host and port.
        host: String,
        /// What happened.
        why: String,
    },
    /// The connection to the registry broke, or an answer did not come.
    #[error("registry {host}: {why}")]
    Network {
        /// Host and port.
        host: String,
        /// What happened.
        why: String,
    },
    /// The registry answered with an error.
    #[error("registry {host}: {method} {path}: status {status}{message}")]
    Status {
        /// Host and port.
        host: String,
        /// Method of the request.
        method: &'static str,
        /// Path of the request.
        path: String,
        /// HTTP status.
        status: u16,
        /// What the registry said about it, made printable, with a leading separator; often empty.
        message: Box<str>,
        /// When it wants to be asked again, in seconds.
        retry_after: Option<u32>,
    },
    /// Its hub says that a version must not run.
    #[error("{what} is {status}, says its hub, so it does not run")]
    Withdrawn {
        /// The package and its version.
        what: String,
        /// What the hub calls it.
        status: String,
    },
    /// Others write the same list all the time.
    #[error("{what}: others write it at the same time, and what was written was lost {attempts} times")]
    Contended {
        /// The list.
        what: String,
        /// How often it was written.
        attempts: u32,
    },
    /// A blob stopped arriving.
    #[error("{digest}: the transfer broke off: {source}")]
    Broken {
        /// The blob.
        digest: Digest,
        /// What the reader said.
        source: io::Error,
    },
    /// The content is not what was promised.
    #[error("{what}: {why}")]
    Verification {
        /// The blob or manifest.
        what: String,
        /// How it differs.
        why: String,
    },
    /// A blob in the store is no longer what it was; it has been set aside.
    #[error("{0} in the store is damaged: its content no longer has that digest")]
    Damaged(Digest),
    /// A file or directory of the store or of a layout.
    #[error("cannot {action} {}: {source}", path.display())]
    Store {
        /// A verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store or a layout cannot be used as it is.
    #[error("{}: {why}", path.display())]
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// What an error means for the caller's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The text given is wrong.
    Reference,
    /// Not found, not reachable, or not for this platform.
    Resolve,
    /// Content that is not what it should be.
    Verification,
    /// It is what it should be, and must not run.
    Denied,
    /// The machine's own files.
    Store,
}

impl Error {
    /// Which kind of error this is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Reference(_) | Self::Address { .. } | Self::NotBuilt(_) => Kind::Reference,
            Self::NotFound { .. }
            | Self::Ambiguous { .. }
            | Self::NoPlatform { .. }
            | Self::Offline(_)
            | Self::Unauthorized { .. }
            | Self::Realm { .. }
            | Self::Helper { .. }
            | Self::Unreachable { .. }
            | Self::Network { .. }
            | Self::Status { .. }
            | Self::Contended { .. }
            | Self::Broken { .. } => Kind::Resolve,
            Self::Verification { .. } | Self::Damaged(_) => Kind::Verification,
            Self::Withdrawn { .. } => Kind::Denied,
            Self::Store { .. } | Self::Unusable { .. } => Kind::Store,
        }
    }

    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Reference(error) => error.hint().map(Into::into),
            Self::NotBuilt(source) if source.starts_with("mcp:") => {
                Some("name the package itself: npm:NAME, pypi:NAME or a reference in an OCI registry".into())
            }
            Self::Contended { .. } => Some("once the others are done, do it again".into()),
            Self::NotBuilt(source) => Some(format!("make a package of it first: smcp build {source} -t NAME")),
            Self::Ambiguous { place, .. } => Some(format!("name one of them: {place}:REF")),
            Self::Offline(name) => Some(format!("fetch it while there is a network: smcp pull {name}")),
            Self::Unauthorized { host, .. } => Some(format!("log in: smcp login {host}")),
            Self::Realm { host, realm } => {
                Some(format!("where that is right, say so in the configuration: registries: {{{host:?}: {{realm: {realm:?}}}}}"))
            }
            Self::Unreachable { why, .. } if why.contains("certificate") => {
                Some("a private authority is named by SSL_CERT_FILE, or by `ca_file` under `registries` in the configuration".into())
            }
            Self::Withdrawn { .. } => Some("another version of it may run; its publisher or the hub knows why".into()),
            Self::Damaged(_) => Some("it was set aside; run the command again to fetch a new copy".into()),
            Self::Address { .. } => Some("plain http is for this machine's own registries, and for those that are `insecure` under `registries`".into()),
            Self::Store { action: "find", source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("what begins with `./` or `/` is a path of this machine, and nothing is there".into())
            }
            Self::Store { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free some space, for example by smcp cache rm, and run the command again".into())
            }
            _ => None,
        }
    }

    /// Turns an I/O error into one that says what was being done to which file.
    pub(crate) fn store(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Store { action, path, source }
    }

    /// Content named `what` that is not used.
    pub(crate) fn image(what: impl ToString) -> impl FnOnce(ImageError) -> Self {
        move |error| Self::Verification { what: what.to_string(), why: error.to_string() }
    }
}

fn or_none(offered: &[String]) -> String {
    if offered.is_empty() { "no platform".into() } else { offered.join(", ") }
}
