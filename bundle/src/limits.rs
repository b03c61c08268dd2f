//! Limits of a run and the grammar of their units.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::manifest::ManifestError;
use crate::node::Node;
use crate::units::{self, UnitError};

/// What a run may use at most. There is no optional field and no value that
/// means "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the whole cage, in bytes.
    pub memory: u64,
    /// CPU rate of the whole cage, in thousandths of one CPU.
    pub cpu: u32,
    /// CPU time of the whole process tree.
    pub cpu_time: Duration,
    /// Processes and threads.
    pub pids: u32,
    /// Open descriptors of one process.
    pub fds: u32,
    /// Wall clock of the run.
    pub timeout: Duration,
}

/// Limits as somebody asked for them: a manifest or the flags. What is `None`
/// was not asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitRequest {
    /// Bytes; `--memory`, `limits.memory`.
    pub memory: Option<u64>,
    /// Millicores; `--max-cpu`, `limits.cpuMillis`.
    pub cpu: Option<u32>,
    /// `--cpu-time`, `limits.cpuTime`.
    pub cpu_time: Option<Duration>,
    /// `--pids`, `limits.pids`.
    pub pids: Option<u32>,
    /// `--fds`, `limits.nofile`.
    pub fds: Option<u32>,
    /// `--timeout`, `limits.timeout`.
    pub timeout: Option<Duration>,
}

impl Limits {
    /// What is in force: a flag, else the lower of the manifest's value and the
    /// configuration's `max_*`.
    pub fn effective(flags: &LimitRequest, manifest: &LimitRequest, max: &Limits) -> Limits {
        Limits {
            memory: flag_or_lower(flags.memory, manifest.memory, max.memory),
            cpu: flag_or_lower(flags.cpu, manifest.cpu, max.cpu),
            cpu_time: flag_or_lower(flags.cpu_time, manifest.cpu_time, max.cpu_time),
            pids: flag_or_lower(flags.pids, manifest.pids, max.pids),
            fds: flag_or_lower(flags.fds, manifest.fds, max.fds),
            timeout: flag_or_lower(flags.timeout, manifest.timeout, max.timeout),
        }
    }
}

impl Default for Limits {
    /// The documented defaults of the configuration's `max_*`.
    fn default() -> Limits {
        Limits {
            memory: 512 * units::MIB,
            cpu: 1000,
            cpu_time: Duration::from_secs(4 * 3600),
            pids: 256,
            fds: 1024,
            timeout: Duration::from_secs(24 * 3600),
        }
    }
}

impl LimitRequest {
    /// Nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == LimitRequest::default()
    }

    /// Reads `limits` of a manifest.
    pub(crate) fn read(node: &Node) -> Result<LimitRequest, ManifestError> {
        let mut fields = node.fields()?;
        let request = LimitRequest {
            memory: fields.optional("memory").map(|n| unit(&n, units::parse_size)).transpose()?,
            cpu: fields.optional("cpuMillis").map(|n| n.count()).transpose()?,
            cpu_time: fields.optional("cpuTime").map(|n| unit(&n, units::parse_duration)).transpose()?,
            pids: fields.optional("pids").map(|n| n.count()).transpose()?,
            fds: fields.optional("nofile").map(|n| n.count()).transpose()?,
            timeout: fields.optional("timeout").map(|n| unit(&n, units::parse_duration)).transpose()?,
        };
        fields.close()?;
        Ok(request)
    }
}

fn unit<T>(node: &Node, parse: fn(&str) -> Result<T, UnitError>) -> Result<T, ManifestError> {
    parse(node.string()?).map_err(|error| node.wrong(error.to_string()))
}

impl Serialize for LimitRequest {
    /// The manifest's form, in its own units.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let entry = |key, value: Option<String>| value.map(|value| (key, value));
        let numbers = [("cpuMillis", self.cpu), ("pids", self.pids), ("nofile", self.fds)];
        let texts = [
            entry("memory", self.memory.map(units::format_size)),
            entry("cpuTime", self.cpu_time.map(units::format_duration)),
            entry("timeout", self.timeout.map(units::format_duration)),
        ];
        for (key, value) in texts.into_iter().flatten() {
            map.serialize_entry(key, &value)?;
        }
        for (key, value) in numbers {
            if let Some(value) = value {
                map.serialize_entry(key, &value)?;
            }
        }
        map.end()
    }
}

fn flag_or_lower<T: Ord>(flag: Option<T>, manifest: Option<T>, max: T) -> T {
    match (flag, manifest) {
        (Some(flag), _) => flag,
        (None, Some(asked)) => asked.min(max),
        (None, None) => max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_wins_else_the_lower_of_manifest_and_max() {
        let max = Limits::default();
        let cases = [
            // flag, manifest, in force
            (None, None, 256),
            (None, Some(16), 16),
            (None, Some(9999), 256),
            (Some(32), Some(16), 32),
            (Some(9999), None, 9999),
        ];
        for (flag, asked, want) in cases {
            let flags = LimitRequest { pids: flag, ..Default::default() };
            let manifest = LimitRequest { pids: asked, ..Default::default() };
            assert_eq!(Limits::effective(&flags, &manifest, &max).pids, want, "flag {flag:?}, manifest {asked:?}");
        }
    }

    #[test]
    fn nothing_asked_gives_the_maximum_of_every_limit() {
        let none = LimitRequest::default();
        assert_eq!(Limits::effective(&none, &none, &Limits::default()), Limits::default());
    }

    #[test]
    fn every_limit_of_the_manifest_lowers_its_own_field() {
        let low = LimitRequest {
            memory: Some(1),
            cpu: Some(2),
            cpu_time: Some(Duration::from_secs(3)),
            pids: Some(4),
            fds: Some(5),
            timeout: Some(Duration::from_secs(6)),
        };
        assert_eq!(
            Limits::effective(&LimitRequest::default(), &low, &Limits::default()),
            Limits {
                memory: 1,
                cpu: 2,
                cpu_time: Duration::from_secs(3),
                pids: 4,
                fds: 5,
                timeout: Duration::from_secs(6),
            }
        );
    }
}
