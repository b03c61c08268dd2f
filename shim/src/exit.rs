//! Exit codes, and which failure has which: decided here alone.

use std::path::Path;

use bundle::build::BuildError;
use bundle::listed::ListedError;
use bundle::{Denied, FlagError, OutboundError, PackageError, UnitError, UnpackError, format_size};
use distribution::{Kind, ReferenceError};
use runtime::journal::{Ending, JournalError};
use runtime::{How, Limit, NotExecuted, NotExecutedKind, Refusal};

use serde::{Deserialize, Serialize};

use crate::handshake::{Broken, MOST_HELD, MOST_LINE};
use crate::show;

/// All is well.
pub const OK: u8 = 0;
/// Findings, of a command that looks for some.
pub const FINDINGS: u8 = 1;
/// The command line is wrong; also a missing required variable or argument.
pub const USAGE: u8 = 2;
/// What the server says is not the protocol: a line over the limit.
pub const PROTOCOL: u8 = 117;
/// The audit log cannot be written.
pub const AUDIT: u8 = 118;
/// The configuration is wrong.
pub const CONFIGURATION: u8 = 119;
/// Resolving, the network, the store; also a missing platform.
pub const RESOLVE: u8 = 120;
/// Denied by policy.
pub const DENIED: u8 = 121;
/// Digest, size or signature.
pub const VERIFICATION: u8 = 122;
/// What the package holds: its archive or its manifest.
pub const UNPACK: u8 = 123;
/// A limit of time.
pub const TIMEOUT: u8 = 124;
/// The cage cannot be enforced.
pub const CAGE: u8 = 125;
/// The entry point cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The entry point was not found.
pub const NOT_FOUND: u8 = 127;
/// A limit of memory, processes or CPU time: what SIGKILL gives, as container tools have it.
pub const LIMIT: u8 = SIGNAL + 9;
/// A file larger than files in memory may be: what SIGXFSZ gives.
pub const FILE_SIZE: u8 = SIGNAL + 25;
/// A signal's number is added to this.
pub const SIGNAL: u8 = 128;

/// What went wrong, why, and the next step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// smcp's exit code.
    pub code: u8,
    /// What and why: lower case, no full stop.
    pub message: String,
    /// The next step, where there is one.
    pub hint: Option<String>,
    /// Whether the code is the server's own word: it says nothing of what smcp thinks.
    pub is_the_servers: bool,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None, is_the_servers: false }
    }

    /// Adds the next step.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The end of a run that it stopped, for the audit log.
    pub fn ending(&self) -> Ending {
        Ending { exit: self.code, cause: self.cause(), error: Some(self.message.clone()), ..Ending::default() }
    }

    /// The word for its kind in the audit log.
    pub fn cause(&self) -> &'static str {
        match self.code {
            _ if self.is_the_servers => "exited",
            FINDINGS => "findings",
            USAGE => "usage",
            PROTOCOL => "protocol",
            AUDIT => "audit",
            CONFIGURATION => "configuration",
            RESOLVE => "resolve",
            DENIED => "denied",
            VERIFICATION => "verification",
            UNPACK => "unpack",
            TIMEOUT => "timeout",
            CAGE => "cage",
            NOT_EXECUTABLE => "not-executable",
            NOT_FOUND => "not-found",
            code if ENDING.iter().any(|signal| code == SIGNAL + signal) => "terminated",
            _ => "failed",
        }
    }

    /// Tells the user on stderr and gives the exit code.
    pub fn print(&self) -> u8 {
        show::tell(&format!("error: {}", self.message));
        if let Some(hint) = self.next_step() {
            show::tell(&format!("hint: {hint}"));
        }
        self.code
    }

    /// The next step: its own, else that of its kind.
    pub fn next_step(&self) -> Option<&str> {
        self.hint.as_deref().or_else(|| next_step(self.code))
    }
}

fn failure(code: u8, error: &dyn std::error::Error, hint: Option<String>) -> Failure {
    Failure { code, message: error.to_string(), hint, is_the_servers: false }
}

/// The next step where the error itself knows no better one.
fn next_step(code: u8) -> Option<&'static str> {
    Some(match code {
        USAGE => "`smcp help run` shows flags and forms of REF, such as acme/hello@1.2 or ghcr.io/acme/hello:tag",
        PROTOCOL => "a message of MCP is one line of at most some MiB; what else a server has to say belongs on stderr",
        CONFIGURATION => "docs/configuration.md lists files, keys, variables and their values",
        RESOLVE => "check the name and the way to its registry; what `smcp cache ls` lists runs without a network",
        VERIFICATION => "nothing of it was kept or run; if it happens again, tell the operator of the registry",
        UNPACK => "nothing of it was run; the package's publisher can correct it",
        CAGE => "`smcp doctor` shows what this machine enforces",
        _ => return None,
    })
}

impl From<distribution::Error> for Failure {
    fn from(error: distribution::Error) -> Self {
        failure(code_of(error.kind()), &error, error.hint())
    }
}

fn code_of(kind: Kind) -> u8 {
    match kind {
        Kind::Reference => USAGE,
        Kind::Resolve | Kind::Store => RESOLVE,
        Kind::Verification => VERIFICATION,
        Kind::Denied => DENIED,
    }
}

impl From<ReferenceError> for Failure {
    fn from(error: ReferenceError) -> Self {
        failure(USAGE, &error, error.hint().map(Into::into))
    }
}

impl From<PackageError> for Failure {
    fn from(error: PackageError) -> Self {
        match error {
            PackageError::Store(error) => error.into(),
            PackageError::Platform { .. } => failure(RESOLVE, &error, error.hint()),
            PackageError::Config { .. }
            | PackageError::LayerCount { .. }
            | PackageError::NoManifest
            | PackageError::Manifest(_) => failure(UNPACK, &error, error.hint()),
        }
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        let code = if denied.is_usage() { USAGE } else { DENIED };
        let hints: Vec<&str> = denied.reasons.iter().filter_map(|reason| reason.hint.as_deref()).collect();
        failure(code, &denied, (!hints.is_empty()).then(|| hints.join("; ")))
    }
}

impl From<UnpackError> for Failure {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Store(error) => error.into(),
            UnpackError::DiffId { .. } => failure(VERIFICATION, &error, None),
            UnpackError::Io { .. } | UnpackError::NoBlob(_) => failure(RESOLVE, &error, error.hint()),
            _ => failure(UNPACK, &error, None),
        }
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let code = match &error {
            BuildError::Archive { .. } | BuildError::Link { .. } => UNPACK,
            // Where there are some to be chosen from, the command line chose none.
            BuildError::EntryPoint { choices, .. } if choices.is_empty() => UNPACK,
            error if error.is_of_the_cage() => CAGE,
            error => code_of(error.kind()),
        };
        failure(code, &error, error.hint())
    }
}

impl From<ListedError> for Failure {
    fn from(error: ListedError) -> Self {
        let (code, hint) = match &error {
            ListedError::Strange { .. } => (RESOLVE, "its publisher can correct the entry"),
            ListedError::Nothing { .. } => {
                (RESOLVE, "smcp runs packages of npm, PyPI and OCI registries, and bundles, that speak by stdio")
            }
            ListedError::Other { .. } | ListedError::File { .. } => (VERIFICATION, "nothing of it was run"),
            ListedError::Deleted(_) => (DENIED, "another version may be there"),
            ListedError::Moved { .. } => (
                DENIED,
                "what was accepted and granted was for that package; `smcp cache rm` of the name forgets it, and the next run takes the other one",
            ),
            ListedError::Elsewhere { .. } => (
                DENIED,
                "where packages are from stands in npm's, pip's and uv's own settings; name it by npm: or pypi: with these",
            ),
            ListedError::Value { .. } => (USAGE, "`smcp info` shows what the entry asks for"),
        };
        failure(code, &error, Some(hint.into()))
    }
}

impl From<FlagError> for Failure {
    fn from(error: FlagError) -> Self {
        failure(USAGE, &error, None)
    }
}

impl From<OutboundError> for Failure {
    fn from(error: OutboundError) -> Self {
        failure(USAGE, &error, Some(error.hint()))
    }
}

impl From<UnitError> for Failure {
    fn from(error: UnitError) -> Self {
        failure(USAGE, &error, error.hint())
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        failure(AUDIT, &error, Some(error.hint()))
    }
}

impl From<Limit> for Failure {
    fn from(limit: Limit) -> Self {
        let (code, what, flag, key) = match limit {
            Limit::FileSize(bytes) => {
                let size = format_size(bytes);
                return Failure::new(FILE_SIZE, format!("the run was ended: it made a file larger than {size} in its own memory"))
                    .hint("a file in a directory that is granted read-write may be larger; --memory raises this cap, which is four times as much");
            }
            Limit::Memory(bytes) => {
                (LIMIT, format!("it used more than its memory limit of {}", format_size(bytes)), "memory", "max_memory")
            }
            Limit::Pids(count) => {
                (LIMIT, format!("it came to its limit of {count} processes and threads"), "pids", "max_pids")
            }
            Limit::CpuTime(seconds) => {
                (LIMIT, format!("it spent its limit of {seconds} s of CPU time"), "cpu-time", "max_cpu_time")
            }
            Limit::Timeout(seconds) => {
                (TIMEOUT, format!("it took longer than its limit of {seconds} s"), "timeout", "timeout")
            }
        };
        Failure::new(code, format!("the run was ended: {what}"))
            .hint(format!("give it more by --{flag}, or by {key} in the configuration"))
    }
}

impl From<Broken> for Failure {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::EndlessLine => Failure::new(
                PROTOCOL,
                format!(
                    "the run was ended: the server wrote {} to stdout without ending the line",
                    format_size(MOST_LINE)
                ),
            ),
            Broken::TooLargeToJudge => Failure::new(
                PROTOCOL,
                format!(
                    "the run was ended: policy.tools has to be held against a message of more than {}",
                    format_size(MOST_HELD as u64)
                ),
            ),
        }
    }
}

/// What ends a run whose denied directory changed its place.
pub fn unmasked(path: &Path) -> Failure {
    let what = "was moved, removed or replaced while the server ran, and could have shown";
    Failure::new(CAGE, format!("the run was ended: {}, which is denied, {what}", path.display()))
        .hint("leave denied directories and what holds them in their places while a server runs")
}

/// What a client is told of a server that ended by itself and answered nothing.
pub fn unheard(code: u8) -> Failure {
    let ended = Failure::new(code, format!("the server ended with exit code {code} before it answered"));
    Failure { is_the_servers: true, ..ended.hint("what it wrote to stderr says why") }
}

/// What ends a run by a signal to smcp before its server was started; `when` says in what.
pub fn ended_by(signal: i32, when: &str) -> Failure {
    let code = u8::try_from(i32::from(SIGNAL) + signal).unwrap_or(u8::MAX);
    Failure::new(code, format!("the run was ended by signal {signal}{} {when}", name_of(signal)))
}

/// What ends a run whose client hung up before its server was started; `when` says in what.
pub fn hung_up(when: &str) -> Failure {
    Failure::new(SIGNAL + 1, format!("the client went away {when}"))
}

/// What there is to say of a server that nobody asked to end: nothing where it ended by itself.
pub fn died(how: How) -> Option<Failure> {
    let How::Signal(signal) = how else { return None };
    let code = u8::try_from(i32::from(SIGNAL) + signal).unwrap_or(u8::MAX);
    Some(Failure::new(code, format!("the server was ended by signal {signal}{}", name_of(signal))))
}

fn name_of(signal: i32) -> String {
    SIGNALS.iter().find(|(number, _)| *number == signal).map_or(String::new(), |(_, name)| format!(" ({name})"))
}

/// The signals that end a run when smcp gets them, which it reads: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const ENDING: [u8; 4] = [1, 2, 3, 15];

/// The signals that end a program, of the same numbers on x86-64 and arm64, signal(7).
const SIGNALS: [(i32, &str); 12] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (15, "SIGTERM"),
    (31, "SIGSYS"),
];

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        failure(CAGE, &refusal, refusal.hint.clone())
    }
}

impl From<NotExecuted> for Failure {
    fn from(failure: NotExecuted) -> Self {
        let (code, what) = match failure.kind {
            NotExecutedKind::NotFound => (NOT_FOUND, "was not found"),
            NotExecutedKind::NotExecutable => (NOT_EXECUTABLE, "cannot be executed"),
        };
        Failure::new(code, format!("the entry point {:?} {what}: {}", failure.program, failure.why))
            .hint("`smcp info` shows the package's entry point; its publisher can correct it")
    }
}
