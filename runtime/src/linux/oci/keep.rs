//! What is done with a container that is made.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use libcgroups::common::{
    AnyCgroupManager, CgroupConfig, CgroupManager, ControllerOpt, FreezerState, create_cgroup_manager,
};
pub use libcgroups::stats::{BlkioDeviceStat as BlockStat, MemoryData, Stats as Sample};
use libcontainer::error::LibcontainerError;
use libcontainer::oci_spec::runtime::LinuxResources;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use super::record::{Record, Status};
use super::{Error, Runtime};
use crate::linux::sys;
use crate::linux::wire::chain;

/// What is asked of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Of one that has ended or was not started.
    Ended,
    /// Of any; one that runs is killed.
    Forced,
}

impl Runtime {
    /// Lets a container's program start.
    ///
    /// # Errors
    /// Where it was started before, or has ended.
    pub fn start(&self, id: &str) -> Result<(), Error> {
        let record = self.record(id)?;
        match self.status(&record)? {
            Status::Created => self.container(id)?.start().map_err(Error::of("starting the container")),
            Status::Stopped => Err(Error::State("cannot start a container that has stopped".into())),
            Status::Running | Status::Paused => Err(Error::State("cannot start an already running container".into())),
        }
    }

    /// Sends a signal to the first process, or to all.
    ///
    /// # Errors
    /// Where it has ended: `container not running`.
    pub fn kill(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        let record = self.record(id)?;
        let status = self.status(&record)?;
        if all {
            return self.kill_all(&record, signal);
        }
        let Some(pid) = record.alive() else { return Err(Error::State("container not running".into())) };
        sys::kill(pid, signal);
        // A frozen one of version 1 would die only once it is thawed.
        if status == Status::Paused && signal == Signal::KILL.as_raw() {
            self.cgroup(&record)?.freeze(FreezerState::Thawed).map_err(|why| Error::step("thawing its cgroup", why))?;
        }
        Ok(())
    }

    fn kill_all(&self, record: &Record, signal: i32) -> Result<(), Error> {
        let members = self.members(record)?;
        if members.is_empty() {
            return Err(Error::State("container not running".into()));
        }
        for pid in members {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                sys::kill(pid, signal);
            }
        }
        Ok(())
    }

    /// Its processes, by their numbers on the host.
    ///
    /// # Errors
    /// Where its cgroup cannot be read.
    pub fn members(&self, record: &Record) -> Result<Vec<i32>, Error> {
        match self
            .cgroup(record)
            .and_then(|group| group.get_all_pids().map_err(|why| Error::step("reading its cgroup", why)))
        {
            Ok(members) => Ok(members.into_iter().map(|pid| pid.as_raw()).collect()),
            // It has none where its caller may make none.
            Err(_) => Ok(record.alive().map(|pid| pid.as_raw_nonzero().get()).into_iter().collect()),
        }
    }

    /// Removes what is left of a container: its processes, its cgroup, its directory. Gives what its hooks of the end failed of.
    ///
    /// # Errors
    /// Where it runs and is not forced, and where something of it stays.
    pub fn delete(&self, id: &str, removal: Removal) -> Result<Option<String>, Error> {
        let directory = self.directory(id)?;
        let record = match self.record(id) {
            Err(Error::Absent(_)) if removal == Removal::Forced => {
                // One whose making was killed.
                return remove(&directory).map(|()| None);
            }
            record => record?,
        };
        match self.status(&record)? {
            Status::Stopped => {}
            Status::Created => self.end(&record)?,
            Status::Running | Status::Paused if removal == Removal::Forced => self.end(&record)?,
            status => {
                return Err(Error::State(format!("cannot delete container that is not stopped: {}", status.name())));
            }
        }
        let warning = match self.take_down(id) {
            // A process that is reaped while libcontainer looks at it; the next look finds none.
            Err(why) if why.to_string().contains("File not found: /proc/") => self.take_down(id)?,
            taken => taken?,
        };
        remove(&directory)?;
        Ok(warning)
    }

    fn take_down(&self, id: &str) -> Result<Option<String>, Error> {
        match self.container(id)?.delete(true) {
            Err(why @ LibcontainerError::Hook(_)) => Ok(Some(format!("poststop hook: {}", chain(&why)))),
            deleted => deleted.map(|()| None).map_err(Error::of("removing the container")),
        }
    }

    /// Kills the first process, with which a PID namespace ends, and waits for its end.
    fn end(&self, record: &Record) -> Result<(), Error> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let paused = self.status(record)? == Status::Paused;
        let Some(pid) = record.alive() else { return Ok(()) };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return Ok(()),
            Err(why) => return Err(Error::step("holding its process", io::Error::from(why))),
        };
        sys::kill(pid, Signal::KILL.as_raw());
        if paused {
            self.cgroup(record)?.freeze(FreezerState::Thawed).map_err(|why| Error::step("thawing its cgroup", why))?;
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&tenth));
            if record.alive().is_none() {
                return Ok(());
            }
        }
        Err(Error::State("container init still running".into()))
    }

    /// Freezes all its processes.
    ///
    /// # Errors
    /// Where it does not run.
    pub fn pause(&self, id: &str) -> Result<(), Error> {
        let record = self.record(id)?;
        match self.status(&record)? {
            Status::Running => self.container(id)?.pause().map_err(Error::of("freezing the container")),
            status => Err(Error::State(format!("container not running: {}", status.name()))),
        }
    }

    /// Thaws them.
    ///
    /// # Errors
    /// Where it is not paused.
    pub fn resume(&self, id: &str) -> Result<(), Error> {
        let record = self.record(id)?;
        match self.status(&record)? {
            Status::Paused => self.container(id)?.resume().map_err(Error::of("thawing the container")),
            status => Err(Error::State(format!("container not paused: {}", status.name()))),
        }
    }

    /// Sets other limits.
    ///
    /// # Errors
    /// Where it has ended, or the kernel refuses them.
    pub fn update(&self, id: &str, resources: &LinuxResources) -> Result<(), Error> {
        let record = self.record(id)?;
        if self.status(&record)? == Status::Stopped {
            return Err(Error::State("container not running".into()));
        }
        let limits = ControllerOpt { resources, disable_oom_killer: false, oom_score_adj: None, freezer_state: None };
        self.cgroup(&record)?.apply(&limits).map_err(|why| Error::step("setting its limits", chain(&why)))
    }

    /// libcontainer sets all limits but this.
    pub(super) fn switch_oom_killer_off(&self, record: &Record, resources: &LinuxResources) -> Result<(), Error> {
        let limits = ControllerOpt { resources, disable_oom_killer: true, oom_score_adj: None, freezer_state: None };
        self.cgroup(record)?.apply(&limits).map_err(|why| Error::step("switching the OOM killer off", chain(&why)))
    }

    /// What it uses now.
    ///
    /// # Errors
    /// Where it has ended, or has no cgroup.
    pub fn sample(&self, record: &Record) -> Result<Sample, Error> {
        if self.status(record)? == Status::Stopped {
            return Err(Error::State("container not running".into()));
        }
        self.cgroup(record)?.stats().map_err(|why| Error::step("reading its cgroup", chain(&why)))
    }

    fn cgroup(&self, record: &Record) -> Result<AnyCgroupManager, Error> {
        create_cgroup_manager(CgroupConfig {
            cgroup_path: record.cgroup.clone(),
            systemd_cgroup: record.systemd,
            container_name: record.id.clone(),
        })
        .map_err(|why| Error::step("finding its cgroup", chain(&why)))
    }
}

fn remove(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::io(format!("removing {}", directory.display()))),
    }
}
