//! What the supervisor and the cage process say to each other: an order through a sealed memfd, events back as lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};

use super::bare::Bare;
use super::masks::FileId;
use crate::plan::Plan;
use crate::report::Report;

pub use crate::refusal::{NotExecuted, NotExecutedKind, Refusal};

/// What the cage process is told. It reads nothing else: no environment, no configuration.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The cage.
    pub plan: Plan,
    /// The server's environment with its values.
    pub env: Vec<(String, String)>,
    /// Set where the cage has no namespaces.
    pub bare: Option<Bare>,
    /// The supervisor's namespaces, to compare with: inode numbers by the names of `/proc/self/ns`.
    pub outside: BTreeMap<String, u64>,
    /// Which directories the plan's denied ones are, in its order.
    pub denied: Vec<FileId>,
    /// The client's own standard input and output come with it, for the server.
    pub direct: bool,
}

impl Order {
    /// The directories in which the server's programs are looked for: its `PATH`.
    pub fn search_path(&self) -> &str {
        self.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value)
    }

    /// The order in a file that nobody can change any more and that no path leads to, memfd_create(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn seal(&self) -> io::Result<OwnedFd> {
        let fd = rustix::fs::memfd_create("smcp-order", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(fd);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        Ok(file.into())
    }

    /// Reads an order back.
    ///
    /// # Errors
    /// Where the descriptor holds none.
    pub fn read(fd: OwnedFd) -> io::Result<Order> {
        let mut text = Vec::new();
        File::from(fd).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// What the supervisor is told, one JSON value a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The container's init, by its id outside.
    Init {
        /// That id.
        pid: i32,
    },
    /// The cage process may not join its cgroup by itself, and waits until it is moved.
    LeftBehind,
    /// All layers are measured from inside; the server's process waits for the word to start.
    Ready {
        /// What was found.
        measured: Report,
    },
    /// The cage could not be built.
    Refused(Refusal),
    /// User namespaces cannot be had here.
    NoNamespaces(Refusal),
    /// The server's program could not be executed.
    NotExecuted(NotExecuted),
    /// The server ended.
    Ended {
        /// Its exit code, unless a signal ended it.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// What the whole tree used, where nothing of it is left.
        usage: Option<Usage>,
    },
}

/// What processes used that have ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time.
    pub cpu_time: Duration,
    /// The largest resident set of any one of them, bytes.
    pub peak_memory: u64,
}

impl From<Refusal> for Event {
    fn from(refusal: Refusal) -> Event {
        Event::Refused(refusal)
    }
}

/// The cage's end of the event pipe. Lines are shorter than PIPE_BUF, so those of two processes do not mix, pipe(7).
pub struct Reporter<Fd: AsFd>(pub Fd);

impl<Fd: AsFd> Reporter<Fd> {
    /// Sends an event. A supervisor that is gone is no error: the cage is about to end then.
    pub fn send(&self, event: &Event) {
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        let _ = rustix::io::write(&self.0, &line);
    }
}

/// An error and its sources in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}
