//! What is done with a container that is made.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libcgroups::common::{
    AnyCgroupManager, CgroupConfig, CgroupManager, ControllerOpt, FreezerState, create_cgroup_manager,
};
pub use libcgroups::stats::{BlkioDeviceStat as BlockStat, MemoryData, Stats as Sample};
use libcontainer::error::LibcontainerError;
use libcontainer::oci_spec::runtime::{LinuxMemory, LinuxResources};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use serde_json::Value;

use super::caged::Cage;
use super::files::read_json;
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

/// A file that the first process holds locked until it is done with the hooks that it runs.
const HOOKS: &str = "hooks";

/// Makes it, for a container that is made in this directory.
pub(super) fn hold_hooks(directory: &Path) -> io::Result<OwnedFd> {
    let file = fs::File::create_new(directory.join(HOOKS))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file.into())
}

impl Runtime {
    /// Lets a container's program start.
    ///
    /// # Errors
    /// Where it was started before, or has ended.
    pub fn start(&self, id: &str) -> Result<(), Error> {
        let record = self.record(id)?;
        match self.status(&record)? {
            Status::Created => {
                self.container(id)?.start().map_err(Error::of("starting the container"))?;
                self.await_hooks(id)
            }
            Status::Stopped => Err(Error::State("cannot start a container that has stopped".into())),
            Status::Running | Status::Paused => Err(Error::State("cannot start an already running container".into())),
        }
    }

    /// Waits until the hooks that run in the container are done, where there are some: its program is executed then, or it has ended.
    fn await_hooks(&self, id: &str) -> Result<(), Error> {
        let Ok(held) = fs::File::open(self.directory(id)?.join(HOOKS)) else { return Ok(()) };
        loop {
            match rustix::fs::flock(&held, FlockOperation::LockShared) {
                Err(Errno::INTR) => {}
                done => return done.map_err(|why| Error::step("waiting for the hooks", io::Error::from(why))),
            }
        }
    }

    /// Sends a signal to the first process, or to all.
    ///
    /// # Errors
    /// Where it has ended: `container not running`.
    pub fn kill(&self, id: &str, signal: i32, all: bool) -> Result<(), Error> {
        let record = self.record(id)?;
        let paused = self.status(&record)? == Status::Paused;
        let sent = match (all, record.hold()?) {
            (true, _) => signal_all(|| self.members(&record), signal)?,
            (false, Some(process)) => send(&process, signal)?,
            (false, None) => false,
        };
        if !sent {
            return Err(Error::State("container not running".into()));
        }
        // A frozen one of version 1 would die only once it is thawed.
        if paused && signal == Signal::KILL.as_raw() { self.thaw(&record) } else { Ok(()) }
    }

    fn thaw(&self, record: &Record) -> Result<(), Error> {
        self.cgroup(record)?.freeze(FreezerState::Thawed).map_err(|why| Error::step("thawing its cgroup", why))
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
            Err(why) if self.limits_can_be_had() => Err(why),
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
                if let Some(unfinished) = self.unfinished(id)? {
                    self.clear(&unfinished)?;
                }
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

    /// Ends what is in the cgroup of a container that was not made to its end, and removes it.
    fn clear(&self, unfinished: &Record) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        let places = places(&unfinished.cgroup);
        let members = || {
            let texts = places.iter().filter_map(|place| fs::read_to_string(place.join("cgroup.procs")).ok());
            let numbers = texts.flat_map(|text| text.lines().map(str::parse).collect::<Vec<_>>()).flatten();
            let of_systemd = if unfinished.systemd { self.members(unfinished).unwrap_or_default() } else { Vec::new() };
            Ok(numbers.chain(of_systemd).collect())
        };
        while signal_all(members, Signal::KILL.as_raw())? || places.iter().any(|place| place.exists()) {
            remove_empty_cgroups(&unfinished.cgroup);
            if Instant::now() > deadline {
                return Err(Error::State("processes of its making are still running".into()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn take_down(&self, id: &str) -> Result<Option<String>, Error> {
        match self.container(id)?.delete(true) {
            Err(why @ LibcontainerError::Hook(_)) => Ok(Some(format!("poststop hook: {}", chain(&why)))),
            deleted => deleted.map(|()| None).map_err(Error::of("removing the container")),
        }
    }

    /// Kills the first process, with which a PID namespace ends, and waits for its end.
    fn end(&self, record: &Record) -> Result<(), Error> {
        let paused = self.status(record)? == Status::Paused;
        let Some(process) = record.hold()? else { return Ok(()) };
        send(&process, Signal::KILL.as_raw())?;
        if paused {
            self.thaw(record)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let tenth = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&tenth));
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
        let directory = self.directory(id)?;
        let resources = match Cage::load(&directory)? {
            Some(cage) => &cage.bounded(resources)?,
            None => resources,
        };
        // libcgroups sets this with every limit of memory.
        let asked = resources.memory().as_ref().and_then(LinuxMemory::disable_oom_killer);
        let disable_oom_killer = match asked {
            Some(asked) => asked,
            None => {
                let config: Value = read_json(&directory.join("config.json"))?;
                config["linux"]["resources"]["memory"]["disableOOMKiller"] == true
            }
        };
        let limits = ControllerOpt { resources, disable_oom_killer, oom_score_adj: None, freezer_state: None };
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
        manager(&record.cgroup, record.systemd, &record.id)
    }
}

/// What speaks to a cgroup.
pub(super) fn manager(cgroup: &Path, systemd: bool, id: &str) -> Result<AnyCgroupManager, Error> {
    create_cgroup_manager(CgroupConfig {
        cgroup_path: cgroup.to_owned(),
        systemd_cgroup: systemd,
        container_name: id.into(),
    })
    .map_err(|why| Error::step("finding its cgroup", chain(&why)))
}

/// How long the end of a process that was killed may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the process was there to get it.
fn send(process: &OwnedFd, signal: i32) -> Result<bool, Error> {
    match sys::send(process, signal) {
        Ok(()) => Ok(true),
        Err(why) if why.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        Err(why) => Err(Error::step(format!("sending signal {signal}"), why)),
    }
}

/// Sends a signal to all of these; one that kills, until there are no new ones. Whether there was anybody to send it to.
fn signal_all(members: impl Fn() -> Result<Vec<i32>, Error>, signal: i32) -> Result<bool, Error> {
    let mut sent = HashSet::new();
    loop {
        let hold = |pid: i32| Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?));
        let new = members()?.into_iter().filter(|pid| !sent.contains(pid));
        let held: Vec<(i32, OwnedFd)> = new.filter_map(hold).collect();
        // A number that still stands there is that of the process that is held, or this one has ended since.
        let now = members()?;
        let before = sent.len();
        for (pid, process) in held.iter().filter(|(pid, _)| now.contains(pid)) {
            if send(process, signal)? {
                sent.insert(*pid);
            }
        }
        // What ends by it may have made others before.
        if signal != Signal::KILL.as_raw() || sent.len() == before {
            return Ok(!sent.is_empty());
        }
    }
}

/// Removes a container's cgroups where nobody is in them: libcontainer gives up on them while its processes still end.
pub(super) fn remove_empty_cgroups(path: &Path) {
    for cgroup in places(path) {
        let _ = fs::remove_dir(cgroup);
    }
}

/// Whether somebody is in a cgroup or in one beneath it: what libcontainer takes down it kills, and whoever was there before is no
/// business of a container's.
pub(super) fn is_inhabited(cgroup: &Path) -> bool {
    places(cgroup).iter().any(|place| has_members(place))
}

fn has_members(place: &Path) -> bool {
    if fs::read_to_string(place.join("cgroup.procs")).is_ok_and(|members| !members.trim().is_empty()) {
        return true;
    }
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).any(|entry| has_members(&entry.path()))
}

/// Where a cgroup may be, one directory for each hierarchy; none for one of systemd's. What is relative is beneath this process's own.
fn places(cgroup: &Path) -> Vec<PathBuf> {
    const ROOT: &str = "/sys/fs/cgroup";
    if cgroup.to_string_lossy().contains(':') {
        return Vec::new();
    }
    let own = match cgroup.is_absolute() {
        true => vec![PathBuf::from("/")],
        false => own_cgroups(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default()),
    };
    let controllers = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    let hierarchies: Vec<PathBuf> = controllers.chain([PathBuf::from(ROOT)]).filter(|place| place.is_dir()).collect();
    let below = own.iter().map(|own| own.join(cgroup));
    below
        .flat_map(|path| {
            let below = path.strip_prefix("/").unwrap_or(&path).to_owned();
            hierarchies.iter().map(move |hierarchy| hierarchy.join(&below))
        })
        .collect()
}

/// The cgroups of a process, each once, by `/proc/PID/cgroup` (cgroups(7)).
fn own_cgroups(table: &str) -> Vec<PathBuf> {
    let paths = table.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(PathBuf::from);
    paths.collect::<BTreeSet<_>>().into_iter().collect()
}

fn remove(directory: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(directory) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(Error::io(format!("removing {}", directory.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_looked_for_in_every_hierarchy() {
        assert_eq!(own_cgroups("4:pids:/a\n3:cpu:/a\n0::/b\n"), ["/a", "/b"].map(PathBuf::from));
        assert!(places(Path::new("system.slice:x:y")).is_empty());
        assert!(places(Path::new("/x")).iter().all(|place| place.ends_with("x")));
        assert!(is_inhabited(Path::new("/")) || !Path::new("/sys/fs/cgroup/cgroup.procs").exists());
    }
}
