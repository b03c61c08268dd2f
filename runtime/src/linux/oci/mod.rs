//! Containers as an OCI runtime makes them: a bundle's `config.json` is what counts, and libcontainer does it.
//!
//! A container has a directory below the runtime's own, `ROOT/ID`: `config.json`, the bundle's as libcontainer gets it;
//! `container.json`, what is remembered of it ([`Record`]); and `ID/`, which is libcontainer's.
//!
//! What libcontainer lacks of what callers of runc rely on is done around it: see `config.rs` and `payload.rs`.

mod amend;
mod caged;
mod config;
mod console;
mod copyup;
mod create;
mod devices;
mod files;
mod hook;
mod keep;
mod known;
mod maps;
mod payload;
mod record;
mod rootless;
mod seal;
mod seccomp;
mod signal;
mod syscalls;
mod tenant;

pub use config::{CAPABILITIES, process_wants_terminal, wants_terminal};
pub use console::{Console, Foreground};
pub use create::{Created, Creation};
pub use devices::{VERB as DEVICES, run as bound_devices};
pub use hook::{VERB as HOOK, run as run_hook};
pub use keep::{BlockStat, MemoryData, Removal, Sample};
pub use known::{MOUNT_OPTIONS, SECCOMP_ACTIONS, SECCOMP_FLAGS, SECCOMP_OPERATORS, seccomp_architectures};
pub use libcontainer::oci_spec::runtime::LinuxResources;
pub use maps::write_as as write_map_as;
pub use record::{Record, Status, VERSION};
pub use seal::seal;
pub use signal::parse as parse_signal;
pub use tenant::{Joining, User};

use std::io;
use std::path::{Path, PathBuf};

use super::wire::chain;

/// What went wrong. The words are runc's where callers look for them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none of that name.
    #[error("container {0:?} does not exist")]
    Absent(String),
    /// There is one of that name.
    #[error("container with given ID already exists: {0:?}")]
    Exists(String),
    /// The name cannot be that of a directory.
    #[error("invalid container ID format: {0:?}")]
    Name(String),
    /// It is not in the state that this needs.
    #[error("{0}")]
    State(String),
    /// A step and why it failed.
    #[error("{what}: {why}")]
    Step {
        /// What was done.
        what: String,
        /// The reason.
        why: String,
    },
}

impl Error {
    fn step(what: impl Into<String>, why: impl std::fmt::Display) -> Error {
        Error::Step { what: what.into(), why: why.to_string() }
    }

    fn of(what: &'static str) -> impl Fn(libcontainer::error::LibcontainerError) -> Error {
        move |why| Error::step(what, clean(&chain(&why)))
    }

    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        move |why| Error::step(what, why)
    }
}

/// Without bytes of nothing that libcontainer reads behind the last ones of a message, and without what it could not clean up, which is
/// done once its processes are ended.
fn clean(text: &str) -> String {
    let text = text.split(". error during cleanup: ").next().unwrap_or_default();
    text.replace('\0', "")
}

/// Containers below one directory.
#[derive(Clone, Debug)]
pub struct Runtime {
    root: PathBuf,
    /// systemd makes the cgroups, by `cgroupsPath` of its form.
    systemd: bool,
}

impl Runtime {
    /// Those below `root`, which is made with the first.
    pub fn new(root: PathBuf, systemd: bool) -> Runtime {
        Runtime { root, systemd }
    }

    /// Where callers that name no directory have them.
    pub fn default_root() -> PathBuf {
        match (rootless::is_root_of_the_host(), std::env::var_os("XDG_RUNTIME_DIR")) {
            (false, Some(own)) => Path::new(&own).join("smcp-oci"),
            (true, _) | (false, None) => "/run/smcp-oci".into(),
        }
    }

    fn directory(&self, id: &str) -> Result<PathBuf, Error> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-' | '.');
        match id {
            "" | "." | ".." => Err(Error::Name(id.into())),
            _ if id.chars().all(plain) => Ok(self.root.join(id)),
            _ => Err(Error::Name(id.into())),
        }
    }
}
