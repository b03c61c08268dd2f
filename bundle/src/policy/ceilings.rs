//! `policy.ceilings`: the most that a package or a flag may be granted. An absent ceiling is no ceiling.

use std::path::PathBuf;
use std::time::Duration;

use super::pattern::Pattern;
use super::source::{Sourced, lower};
use crate::grant::NetworkCeiling;
use crate::permissions::Access;

/// All of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    /// Destinations.
    pub network: NetworkCeiling,
    /// Files and directories of the host.
    pub filesystem: FilesystemCeiling,
    /// Programs, absolute paths inside. One list for each policy that has one: a program must be in all.
    pub subprocess: Vec<Sourced<Vec<PathBuf>>>,
    /// Names of variables that nobody passes in.
    pub env_deny: Vec<Sourced<Pattern>>,
    /// The most of each limit.
    pub limits: LimitCeilings,
}

/// `policy.ceilings.filesystem`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesystemCeiling {
    /// One list for each policy that has one: what is granted must lie in an entry of each.
    pub allow: Vec<Sourced<Vec<PathCeiling>>>,
    /// Absolute paths of the host: neither they nor what lies in them is granted, nor what holds them.
    pub deny: Vec<Sourced<PathBuf>>,
}

/// One entry of `filesystem.allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCeiling {
    /// Absolute path of the host.
    pub path: PathBuf,
    /// The most that is granted in it.
    pub access: Access,
}

/// `policy.ceilings.limits`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitCeilings {
    /// Bytes.
    pub memory: Option<Sourced<u64>>,
    /// Millicores.
    pub cpu: Option<Sourced<u32>>,
    /// CPU time of the tree.
    pub cpu_time: Option<Sourced<Duration>>,
    /// Processes and threads.
    pub pids: Option<Sourced<u32>>,
    /// Descriptors.
    pub fds: Option<Sourced<u32>>,
    /// Wall clock.
    pub timeout: Option<Sourced<Duration>>,
}

impl Ceilings {
    /// What lies below both.
    #[must_use]
    pub(super) fn and(self, other: Ceilings) -> Ceilings {
        let (files, others) = (self.filesystem, other.filesystem);
        Ceilings {
            network: self.network.and(other.network),
            filesystem: FilesystemCeiling {
                allow: [files.allow, others.allow].concat(),
                deny: [files.deny, others.deny].concat(),
            },
            subprocess: [self.subprocess, other.subprocess].concat(),
            env_deny: [self.env_deny, other.env_deny].concat(),
            limits: self.limits.and(other.limits),
        }
    }
}

impl LimitCeilings {
    fn and(self, other: LimitCeilings) -> LimitCeilings {
        LimitCeilings {
            memory: lower(self.memory, other.memory),
            cpu: lower(self.cpu, other.cpu),
            cpu_time: lower(self.cpu_time, other.cpu_time),
            pids: lower(self.pids, other.pids),
            fds: lower(self.fds, other.fds),
            timeout: lower(self.timeout, other.timeout),
        }
    }
}
