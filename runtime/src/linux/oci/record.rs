//! What is remembered of a container between commands, and how it is.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use libcontainer::container::{Container, ContainerStatus, State};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::files::read_json_if_there;
use super::{Error, Runtime};
use crate::linux::guard::Stat;

/// The version of the specification that states and lists name.
pub const VERSION: &str = "1.2.0";

/// A container, as `state` and `list` show it but for its status.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its name.
    pub id: String,
    /// The bundle, canonical.
    pub bundle: PathBuf,
    /// Its root on the host, canonical.
    pub rootfs: PathBuf,
    /// Its first process, on the host.
    pub pid: i32,
    /// When that process started, in ticks since boot: another one of the same number is not it.
    pub started: u64,
    /// When it was created, RFC 3339.
    pub created: String,
    /// Who created it.
    pub owner: u32,
    /// What `config.json` says about it.
    #[serde(default, skip_serializing_if = "HashMap::is_empty")]
    pub annotations: HashMap<String, String>,
    /// Its cgroup, as libcgroups takes it.
    pub cgroup: PathBuf,
    /// Whether systemd made that.
    pub systemd: bool,
}

/// How a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its first process waits for the start.
    Created,
    /// It was started.
    Running,
    /// It was started and is frozen.
    Paused,
    /// Its first process is gone.
    Stopped,
}

impl Status {
    /// Its name in the specification, and runc's for what that has none for.
    pub fn name(self) -> &'static str {
        match self {
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        }
    }
}

const FILE: &str = "container.json";

/// The same for the time in which it is made, without a first process: what a making that is killed leaves behind.
const MAKING: &str = "making.json";

impl Runtime {
    /// The container of this name.
    ///
    /// # Errors
    /// [`Error::Absent`] where there is none, or none that was created to its end.
    pub fn record(&self, id: &str) -> Result<Record, Error> {
        read_json_if_there(&self.directory(id)?.join(FILE))?.ok_or_else(|| Error::Absent(id.into()))
    }

    /// What is known of a container whose making was not done to its end.
    pub(super) fn unfinished(&self, id: &str) -> Result<Option<Record>, Error> {
        read_json_if_there(&self.directory(id)?.join(MAKING))
    }

    /// All of them, by name.
    ///
    /// # Errors
    /// Where the directory cannot be read; one that is not there holds none.
    pub fn list(&self) -> Result<Vec<Record>, Error> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(why) => return Err(Error::step(format!("reading {}", self.root.display()), why)),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // One that another command makes or removes at this moment is not there.
        let mut records: Vec<Record> = names.filter_map(|name| self.record(&name).ok()).collect();
        records.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(records)
    }

    /// How it is at this moment.
    ///
    /// # Errors
    /// Where libcontainer's state cannot be read.
    pub fn status(&self, record: &Record) -> Result<Status, Error> {
        if record.alive().is_none() {
            return Ok(Status::Stopped);
        }
        let state = State::load(&self.inner(&record.id)?).map_err(|why| Error::step("reading its state", why))?;
        Ok(match state.status {
            ContainerStatus::Creating | ContainerStatus::Created => Status::Created,
            ContainerStatus::Paused => Status::Paused,
            ContainerStatus::Running | ContainerStatus::Stopped => Status::Running,
        })
    }

    pub(super) fn inner(&self, id: &str) -> Result<PathBuf, Error> {
        Ok(self.directory(id)?.join(id))
    }

    pub(super) fn container(&self, id: &str) -> Result<Container, Error> {
        const LOOKS: usize = 3;
        let inner = self.inner(id)?;
        // It looks at a process that may go away between two looks.
        let mut loaded = Container::load(inner.clone());
        for _ in 1..LOOKS {
            if loaded.is_err() {
                loaded = Container::load(inner.clone());
            }
        }
        loaded.map_err(Error::of("reading its state"))
    }
}

impl Record {
    /// Writes it into the directory of a container that is to be made.
    pub(super) fn announce(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join(MAKING), serde_json::to_vec(self)?)
    }

    /// Writes it into its container's directory, in one step.
    pub(super) fn save(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join("container.json.new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, directory.join(FILE))
    }

    /// Its first process, where that has not ended.
    pub fn alive(&self) -> Option<Pid> {
        let (state, started) = look(self.pid)?;
        let ended = matches!(state, b'Z' | b'X' | b'x');
        (!ended && started == self.started).then(|| Pid::from_raw(self.pid))?
    }

    /// Holds that process: a signal that is sent through this reaches no other.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn hold(&self) -> Result<Option<OwnedFd>, Error> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // The number may have gone to another one before, and not since.
            Ok(held) => Ok(self.alive().map(|_| held)),
            Err(Errno::SRCH) => Ok(None),
            Err(why) => Err(Error::step("holding its process", io::Error::from(why))),
        }
    }

    /// The name of who created it, as runc prints it: nothing where there is none.
    pub fn owner_name(&self) -> String {
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let of = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(self.owner)).then(|| name.to_owned())
        };
        users.lines().find_map(of).unwrap_or_default()
    }

    /// That process's number while it lives, else 0.
    pub fn pid_or_zero(&self) -> i32 {
        self.alive().map_or(0, |pid| pid.as_raw_nonzero().get())
    }
}

/// State and start of a process.
pub fn look(pid: i32) -> Option<(u8, u64)> {
    Stat::of(pid).map(|stat| (stat.state, stat.started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let own = std::process::id() as i32;
        let (state, started) = look(own).unwrap();
        assert!(matches!(state, b'R' | b'S'));
        let record = |pid, started| Record {
            id: "a".into(),
            bundle: "/b".into(),
            rootfs: "/b/rootfs".into(),
            pid,
            started,
            created: String::new(),
            owner: 0,
            annotations: HashMap::new(),
            cgroup: "/a".into(),
            systemd: false,
        };
        assert_eq!(record(own, started).pid_or_zero(), own);
        assert_eq!(record(own, started + 1).pid_or_zero(), 0);
        assert_eq!(look(i32::MAX), None);
        assert!(record(own, started).hold().unwrap().is_some());
        assert!(record(own, started + 1).hold().unwrap().is_none());
        assert!(record(0, 0).hold().unwrap().is_none());
    }

    /// A program names itself as it likes, prctl(2).
    #[test]
    fn a_process_of_any_name_is_known() {
        let own = std::process::id() as i32;
        let name = fs::read("/proc/self/comm").unwrap();
        fs::write("/proc/self/comm", b"\xff) \xfe").unwrap();
        let found = look(own);
        fs::write("/proc/self/comm", name.trim_ascii_end()).unwrap();
        assert!(found.is_some());
    }
}
