//! What is asked of a cage and what came of it, in the same words on every platform.

use std::path::PathBuf;
use std::time::Duration;

use bundle::Access;
use serde::Serialize;

use crate::egress::Totals;
use crate::plan::Limit;
use crate::refusal::NotExecuted;

/// Whether all that is denied was hidden from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masked {
    /// It was, from the start to this look.
    Yes,
    /// Something changed its place, and the tree was killed for it.
    No,
}

/// How a run ended, with what it used.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The server's exit code or signal; `None` where PID 1 was killed with it.
    pub how: Option<How>,
    /// The limit that ended the tree, where one did.
    pub limit: Option<Limit>,
    /// The denied directory that changed its place, for which the tree was killed.
    pub unmasked: Option<PathBuf>,
    /// Set where the server's program was never executed.
    pub not_executed: Option<NotExecuted>,
    /// User and system time of the tree.
    pub cpu_time: Duration,
    /// Largest resident set of one process, bytes.
    pub peak_memory: u64,
    /// What it connected to, and what it was refused.
    pub egress: Totals,
    /// Which files and programs it asked for, where that was recorded.
    pub asked: Option<Asked>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By exit(2) with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Whether the calls of a run are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recording {
    /// They are not, and no filter tells of any.
    Nothing,
    /// Those that name a path.
    Calls,
}

/// What a run asked for that it was not granted, for the end entry. Paths are absolute, as inside and on the host alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Asked {
    /// What is on the host and not in the cage, each with the access that it was asked for with.
    pub paths: Vec<AskedPath>,
    /// The same of what is too wide to be granted, such as a directory of all homes.
    pub wide: Vec<String>,
    /// Programs in the cage beside the server's own, links followed.
    pub programs: Vec<String>,
    /// Programs of the host that the cage does not have.
    pub missing: Vec<String>,
    /// Grants of the user's in which it named nothing.
    pub unused: Vec<String>,
    /// How many paths were not kept: there were too many, or they are not UTF-8.
    pub left_out: u64,
}

/// One file or directory that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AskedPath {
    /// Its path.
    pub path: String,
    /// Read-write where it, or something in it, was asked for to be written.
    pub access: Access,
}

/// One step to the next tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What is missing, and what is the matter.
    pub matter: String,
    /// What to do: lines to type or to put into a file.
    pub steps: Vec<String>,
}

/// What the process has to do with the one that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tie {
    /// It ends with that one, whose id this is.
    Bound(u32),
    /// It outlives that one: in a session of its own, nobody's child, so that no signal to a group or from a terminal meets it.
    Detached,
}

/// What the processes below one use at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// How many there are.
    pub processes: usize,
    /// Their resident sets, bytes; what several share counts once for each.
    pub memory: u64,
    /// User and system time of those that are there, and of those that they have waited for.
    pub cpu_time: Duration,
}
