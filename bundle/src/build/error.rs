//! What can go wrong in a build.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use distribution::{Digest, Kind};

use crate::manifest::ManifestError;
use crate::pack::PackError;
use crate::units::format_duration;
use crate::unpack::UnpackError;

/// What went wrong and why; [`BuildError::hint`] has the next step where there is one.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A reference to something that is a package already, or that this version cannot build.
    #[error("{0} is no source that can be built")]
    NoSource(String),
    /// A program of the host that the build needs is not there.
    #[error("{program}: not found")]
    ToolMissing {
        /// Its name.
        program: String,
    },
    /// A program of the host failed.
    #[error("{program} failed ({status}):\n{output}")]
    Tool {
        /// Its name.
        program: String,
        /// Exit status or signal, in words.
        status: String,
        /// Its exit code, where it had one.
        code: Option<i32>,
        /// Whether that is smcp's own in the place of the program's, which it runs in a cage.
        is_caged: bool,
        /// The last lines that it printed, without control characters.
        output: String,
    },
    /// A program of the host answered with something that is not understood.
    #[error("{program}: {why}")]
    Answer {
        /// Its name.
        program: String,
        /// What was expected.
        why: String,
    },
    /// A download is not what was announced.
    #[error("{what}: expected {wanted}, got {got}")]
    Integrity {
        /// The file.
        what: String,
        /// The hash that was announced.
        wanted: String,
        /// The hash that it has.
        got: String,
    },
    /// What its registry says of where a package was built does not hold.
    #[error("{what}: what its registry has of where it was built does not hold: {why}")]
    Provenance {
        /// The package.
        what: String,
        /// What is false.
        why: String,
    },
    /// It cannot be told which program of a package is the server.
    #[error("{package}: {why}")]
    EntryPoint {
        /// The package.
        package: String,
        /// Why.
        why: String,
        /// What can be chosen.
        choices: Vec<String>,
    },
    /// `smcp.toml` is missing, malformed or says something impossible.
    #[error("{}{}: {why}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
    Recipe {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1, where it is known.
        line: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// A bundle that cannot be unpacked, or does not say how it is started.
    #[error("{}: {why}", file.display())]
    Archive {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Options that contradict each other or cannot be used.
    #[error("{0}")]
    Options(String),
    /// A registry of packages asks for a login that the user's settings do not have, or does not take it.
    #[error("registry {host}: it asks for credentials, or does not take those that it was shown")]
    Login {
        /// Host and port.
        host: String,
    },
    /// No node of that range is among npm's packages.
    #[error("npm has no node {range} for this machine")]
    NoNode {
        /// The range.
        range: String,
    },
    /// The runtime that was asked for is not to be had.
    #[error("no {name} for this machine: {why}")]
    NoRuntime {
        /// As `--runtime` has it.
        name: &'static str,
        /// Why.
        why: String,
    },
    /// Versions that policy says are too young.
    #[error("{package}: {} too young: min_release_age is {}", were(versions), format_duration(*least))]
    Young {
        /// The package.
        package: String,
        /// Each with its age.
        versions: Vec<String>,
        /// The least age.
        least: Duration,
    },
    /// A package of which nothing is left that its publisher did not take back.
    #[error("{package}: {} yanked by the publisher", were(versions))]
    Yanked {
        /// The package.
        package: String,
        /// Each with the reason.
        versions: Vec<String>,
    },
    /// npm or pip cannot be run in a cage.
    #[error("{0}")]
    Cage(String),
    /// A link that leaves the directory that is packed.
    #[error("{}: it is a link to {}, which is not packed", path.display(), target.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// This machine's architecture has no runtime to package.
    #[error("{what}: none for {architecture}")]
    Architecture {
        /// What was looked for.
        what: &'static str,
        /// As Go names it.
        architecture: String,
    },
    /// The manifest that would result is refused.
    #[error("manifest: {0}")]
    Manifest(#[from] ManifestError),
    /// A layer could not be packed.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A layer that was built before could not be unpacked.
    #[error("layer {digest}: {source}")]
    Unpack {
        /// The layer.
        digest: Digest,
        /// Why.
        source: UnpackError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] distribution::Error),
    /// A file of the staging directory or of the source.
    #[error("{what}: {source}")]
    Io {
        /// What was being done to which file.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl BuildError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSource(_) => Some("build from npm:NAME, pypi:NAME, ./dir or ./x.mcpb".into()),
            Self::ToolMissing { program } => missing_hint(program),
            Self::Tool { program, .. } if program == "apt-get" => {
                Some("the package lists may be old: sudo apt-get update".into())
            }
            Self::EntryPoint { choices, .. } if !choices.is_empty() => {
                Some(format!("choose one with --bin: {}", choices.join(", ")))
            }
            Self::Recipe { line: None, .. } => Some(
                "a directory is built by the smcp.toml in it: name, version, [entrypoint] args, [build] runtime".into(),
            ),
            Self::Login { host } => Some(format!(
                "npm's login for it stands in ~/.npmrc, as //{host}/:_authToken=…; pip's in the url of the index, in pip.conf"
            )),
            Self::NoNode { .. } => {
                Some("--runtime host runs it by the node of this machine; smcp build --node RANGE takes another".into())
            }
            Self::NoRuntime { .. } => {
                Some("without --runtime it runs by node; --runtime host takes the node of this machine".into())
            }
            Self::Young { .. } => {
                Some("an older version may do: name one; `smcp policy show` says who demands it".into())
            }
            Self::Provenance { .. } => Some("it may not be its publisher's: ask there; another version may do".into()),
            Self::Yanked { package, .. } => {
                Some(format!("whoever wants one all the same names it: pypi:{package}==VERSION"))
            }
            Self::Cage(_) => Some("--uncaged lets npm and pip download with your own rights and settings".into()),
            Self::Manifest(error) => error.hint(),
            Self::Store(error) => error.hint(),
            _ => None,
        }
    }

    /// What it means for the caller's exit code: `Reference` is a wrong request.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Young { .. } | Self::Yanked { .. } => Kind::Denied,
            Self::NoSource(_)
            | Self::EntryPoint { .. }
            | Self::Recipe { .. }
            | Self::Archive { .. }
            | Self::Options(_)
            | Self::Cage(_)
            | Self::Link { .. }
            | Self::Manifest(_) => Kind::Reference,
            Self::Login { .. }
            | Self::NoNode { .. }
            | Self::NoRuntime { .. }
            | Self::ToolMissing { .. }
            | Self::Tool { .. }
            | Self::Answer { .. }
            | Self::Architecture { .. } => Kind::Resolve,
            Self::Integrity { .. } | Self::Provenance { .. } => Kind::Verification,
            Self::Store(error) | Self::Pack(PackError::Store(error)) => error.kind(),
            Self::Pack(_) | Self::Unpack { .. } | Self::Io { .. } => Kind::Store,
        }
    }

    /// Whether there was no cage to be had for npm or pip: the exit code of the smcp that was to run it says so.
    pub fn is_of_the_cage(&self) -> bool {
        const CAGE: i32 = 125;
        matches!(self, Self::Tool { is_caged: true, code: Some(CAGE), .. })
    }

    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub(super) fn answer(program: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Answer { program: program.into(), why: why.into() }
    }
}

/// `1.2 (3 h) and 1.1 (2 d) are`, of many the first ones.
fn were(versions: &[String]) -> String {
    const SHOWN: usize = 5;
    match versions {
        [one] => format!("{one} is"),
        some if some.len() <= SHOWN => format!("{} are", some.join(" and ")),
        many => format!("{} and {} more are", many[..SHOWN].join(", "), many.len() - SHOWN),
    }
}

fn missing_hint(program: &str) -> Option<String> {
    let hint = match program {
        "npm" => "install npm, for example: sudo apt-get install npm",
        "python3" => "install it, for example: sudo apt-get install python3 python3-pip",
        "apt-get" | "dpkg-deb" => {
            "the base and python layers are made on Debian or Ubuntu; elsewhere package with --runtime host"
        }
        _ => return None,
    };
    Some(hint.into())
}
