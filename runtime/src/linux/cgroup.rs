//! A cgroup for one cage, where this process may make one: version 2, else a scope of systemd's, else version 1, else none,
//! and why.
//!
//! Each is named `smcp-` and the run's id, held by a lock while smcp lives, and removed with the run. What a killed smcp
//! left is removed by the next start.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, FlockOperation, Mode, OFlags, flock};
use rustix::process::Pid;
use ulid::Ulid;

use super::{scope, sys};
use crate::plan::Watched;
use crate::report::Status;

/// Where cgroups are mounted, by the convention that every distribution follows.
const MOUNT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "smcp-";

/// What a cgroup can count or cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Memory, page cache and swap of all processes.
    Memory,
    /// Processes and threads.
    Pids,
    /// The rate of CPU time.
    Cpu,
    /// CPU time spent.
    CpuAccount,
}

/// Which kind of cgroup a cage has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One cgroup with all controllers, cgroups(7).
    V2,
    /// The same in a scope that systemd made for the run.
    Systemd,
    /// A cgroup in each hierarchy of version 1.
    V1,
    /// None.
    None,
}

impl Kind {
    /// The word for it in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Kind::V2 => "v2",
            Kind::Systemd => "systemd",
            Kind::V1 => "v1",
            Kind::None => "none",
        }
    }
}

/// The cgroup of a cage; dropping it removes it.
#[derive(Debug)]
pub struct Cgroup {
    kind: Kind,
    name: String,
    groups: Vec<Group>,
    /// Why something is missing; empty where nothing is.
    missing: Vec<String>,
}

/// One directory.
#[derive(Debug)]
struct Group {
    directory: PathBuf,
    controllers: Vec<Files>,
    /// Those whose limits are in force.
    counts: Vec<Controller>,
    _held: OwnedFd,
}

impl Cgroup {
    /// Whether a process that is split off before there is one can join it later, by a descriptor. A user may not move
    /// processes between cgroups of version 2 that others made, and systemd moves this process, which the other must come
    /// after.
    pub fn can_wait() -> bool {
        rustix::process::geteuid().is_root() || mount_v2().is_none_or(|mount| mount != Path::new(MOUNT))
    }

    /// None yet.
    pub fn unmade(run: Ulid) -> Cgroup {
        Cgroup { kind: Kind::None, name: format!("{PREFIX}{run}"), groups: Vec::new(), missing: Vec::new() }
    }

    /// Makes the strongest there is for a run, without limits yet. Never fails: what is missing is told by
    /// [`Cgroup::status`].
    pub fn make(run: Ulid) -> Cgroup {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut cgroup = Cgroup::unmade(run);
        cgroup.make_v2(&own, &["memory", "pids"]);
        if cgroup.groups.is_empty() {
            cgroup.make_scope();
        }
        if cgroup.groups.is_empty() {
            // A kernel that was told to do without memory's.
            cgroup.make_v2(&own, &["pids"]);
        }
        if cgroup.groups.is_empty() {
            cgroup.make_v1(&own);
        }
        cgroup
    }

    /// A child of the nearest cgroup that gives these controllers to its children: processes may live in leaves alone, so
    /// it is rarely our own, which holds us.
    fn make_v2(&mut self, own: &str, needed: &[&str]) {
        let Some((mount, own)) = mount_v2().zip(in_version_2(own)) else { return };
        for parent in Path::new(own).ancestors().map(|path| mount.join(path)) {
            let given = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
            let mut given: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
            // The root may hold processes and give controllers to children all the same.
            if parent == mount && !given.iter().any(|name| name == "memory") {
                let has = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
                let has = |name: &&str| has.split_whitespace().any(|there| there == *name);
                for name in ["memory", "pids", "cpu"].into_iter().filter(has) {
                    if fs::write(parent.join("cgroup.subtree_control"), format!("+{name}")).is_ok() {
                        given.push(name.into());
                    }
                }
            }
            if needed.iter().any(|name| !given.iter().any(|given| given == name)) {
                continue;
            }
            // Who moves a process must be allowed to write there, too, cgroups(7).
            let may_move = rustix::fs::access(parent.join("cgroup.procs"), Access::WRITE_OK).map_err(io::Error::from);
            match may_move.and_then(|()| self.make_group(&parent, V2.to_vec())) {
                Ok(group) => {
                    self.kind = Kind::V2;
                    self.groups.push(group);
                    return;
                }
                Err(why) => {
                    let why = format!("{}: {why}", parent.display());
                    if !self.missing.contains(&why) {
                        self.missing.push(why);
                    }
                }
            }
        }
    }

    /// A child of a scope. Beside version 1 systemd has no memory and no processes to give to a user.
    fn make_scope(&mut self) {
        let Some(mount) = mount_v2().filter(|mount| mount == Path::new(MOUNT)) else { return };
        let made = scope::enter(&mount, &self.name).and_then(|scope| {
            self.make_group(&scope, V2.to_vec()).map_err(|why| format!("{}: {why}", scope.display()))
        });
        match made {
            Ok(group) => {
                self.kind = Kind::Systemd;
                self.groups.push(group);
            }
            Err(why) => self.missing.push(why),
        }
    }

    /// A child of our own cgroup in each hierarchy.
    fn make_v1(&mut self, own: &str) {
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let ours: Vec<_> = V1.into_iter().filter(|of| controllers.split(',').any(|name| name == of.name)).collect();
            let Some(first) = ours.first() else { continue };
            let parent = Path::new(MOUNT).join(first.name).join(path.trim_start_matches('/'));
            match self.make_group(&parent, ours) {
                Ok(group) => {
                    self.kind = Kind::V1;
                    self.groups.push(group);
                }
                Err(why) => self.missing.push(format!("{}: {why}", parent.display())),
            }
        }
    }

    fn make_group(&self, parent: &Path, controllers: Vec<Files>) -> io::Result<Group> {
        let directory = parent.join(&self.name);
        // Another start may take it for a killed one's before it is held, and remove it.
        for _ in 0..10 {
            match fs::create_dir(&directory) {
                Err(why) if why.kind() != io::ErrorKind::AlreadyExists => return Err(why),
                _ => {}
            }
            if let Ok(held) = hold(&directory)
                && directory.exists()
            {
                sweep(parent);
                return Ok(Group { directory, controllers, counts: Vec::new(), _held: held });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = fs::remove_dir(&directory);
        Err(io::Error::other("it cannot be held"))
    }

    /// Writes the limits of each controller. One that does not take its limit counts as missing.
    pub fn limit(&mut self, limits: &Watched) {
        for group in &mut self.groups {
            for files in &group.controllers {
                let written = files.limits.iter().try_for_each(|limit| {
                    let value = (limit.value)(limits);
                    match fs::write(group.directory.join(limit.file), &value) {
                        Err(why) if limit.required => Err(format!("{} of {}: {why}", limit.file, files.name)),
                        _ => Ok(()),
                    }
                });
                match written {
                    Ok(()) => group.counts.push(files.controller),
                    Err(why) => self.missing.push(why),
                }
            }
        }
    }

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it counts or caps this.
    pub fn has(&self, controller: Controller) -> bool {
        self.groups.iter().any(|group| group.counts.contains(&controller))
    }

    /// The files into which the cage process writes `0` to join. `tasks` of version 1 moves the one thread that writes,
    /// which spares the wait for all processors (5 to 10 ms) that moving a whole process costs.
    pub fn joins(&self) -> Vec<PathBuf> {
        let file = if self.kind == Kind::V1 { "tasks" } else { "cgroup.procs" };
        self.groups.iter().map(|group| group.directory.join(file)).collect()
    }

    /// The same files, open: a kernel since Linux 5.16 asks what whoever opened them may do, not who writes.
    pub fn open_joins(&self) -> Vec<OwnedFd> {
        let open = |path: PathBuf| rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        self.joins().into_iter().filter_map(open).collect()
    }

    /// Moves a process that may not join by itself, which takes longer.
    pub fn take(&self, pid: Pid) {
        for file in self.joins() {
            // What did not work shows in `status`.
            let _ = fs::write(file, pid.as_raw_nonzero().to_string());
        }
    }

    /// What is in force for the cage whose PID 1 this is. Where it did not join, nothing is, and nothing is counted.
    pub fn status(&mut self, init: Pid) -> Status {
        if self.groups.is_empty() {
            return Status::Absent(match self.missing.as_slice() {
                [] => "no cgroup of this process is mounted".to_owned(),
                why => format!("no cgroup can be made: {}", why.join("; ")),
            });
        }
        let joined = fs::read_to_string(format!("/proc/{}/cgroup", init.as_raw_nonzero())).unwrap_or_default();
        let joined = joined.lines().filter(|line| line.ends_with(&self.name)).count();
        if joined < self.groups.len() {
            self.kind = Kind::None;
            self.groups.iter_mut().for_each(|group| group.counts.clear());
            return Status::Absent("the cage's PID 1 is not in it".into());
        }
        let wanted = [(Controller::Memory, "memory"), (Controller::Pids, "pids"), (Controller::Cpu, "cpu")];
        match wanted.into_iter().find(|(controller, _)| !self.has(*controller)) {
            None => Status::Full,
            Some((_, name)) => Status::Partial(format!("without {name}")),
        }
    }

    /// Processes that the kernel killed for memory.
    pub fn memory_kills(&self) -> u64 {
        let file = if self.kind == Kind::V1 { "memory.oom_control" } else { "memory.events" };
        self.read(Controller::Memory, file).and_then(|text| number_after(&text, "oom_kill")).unwrap_or(0)
    }

    /// Forks that the limit refused.
    pub fn refused_forks(&self) -> u64 {
        self.read(Controller::Pids, "pids.events").and_then(|text| number_after(&text, "max")).unwrap_or(0)
    }

    /// CPU time of all that ever was in it.
    pub fn cpu_time(&self) -> Option<Duration> {
        match self.kind {
            Kind::V1 => {
                let text = self.read(Controller::CpuAccount, "cpuacct.usage")?;
                Some(Duration::from_nanos(text.trim().parse().ok()?))
            }
            Kind::V2 | Kind::Systemd => {
                let text = self.read(Controller::CpuAccount, "cpu.stat")?;
                Some(Duration::from_micros(number_after(&text, "usage_usec")?))
            }
            Kind::None => None,
        }
    }

    fn read(&self, controller: Controller, file: &str) -> Option<String> {
        let group = self.groups.iter().find(|group| group.counts.contains(&controller))?;
        fs::read_to_string(group.directory.join(file)).ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.groups.iter().for_each(|group| remove(&group.directory));
    }
}

/// Removes a cgroup. A process that has just ended may count for a moment.
fn remove(directory: &Path) {
    for _ in 0..50 {
        match fs::remove_dir(directory) {
            Err(why) if why.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(Duration::from_millis(1)),
            _ => break,
        }
    }
}

fn kill_all(directory: &Path) {
    let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in processes.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
        sys::kill(pid, libc::SIGKILL);
    }
}

/// Whether a cgroup is one that a run makes. Others may begin with smcp's name, too: somebody's container or unit.
fn is_of_a_run(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|run| Ulid::from_string(run).is_ok())
}

/// Removes what a killed smcp left beside: a directory that nobody holds. A process in it has nobody either.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_name().to_str().is_some_and(is_of_a_run)
            && let Ok(_held) = hold(&path)
        {
            kill_all(&path);
            remove(&path);
        }
    }
}

/// Locks a directory until the descriptor is closed, also by SIGKILL.
///
/// # Errors
/// The kernel's: `EWOULDBLOCK` where somebody holds it.
pub fn hold(directory: &Path) -> io::Result<OwnedFd> {
    let fd = rustix::fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    Ok(fd)
}

/// A process's cgroup of version 2 by its `/proc/PID/cgroup`, below where they are mounted, cgroups(7).
pub fn in_version_2(table: &str) -> Option<&str> {
    table.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// Where version 2 is mounted: alone, or beside version 1.
fn mount_v2() -> Option<PathBuf> {
    const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
    let is_v2 = |path: &PathBuf| rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type == CGROUP2_SUPER_MAGIC);
    [PathBuf::from(MOUNT), Path::new(MOUNT).join("unified")].into_iter().find(is_v2)
}

/// The number on the line `KEY NUMBER`.
fn number_after(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A controller's limits, in the order in which they must be written.
#[derive(Clone, Copy, Debug)]
struct Files {
    name: &'static str,
    controller: Controller,
    limits: &'static [LimitFile],
}

#[derive(Clone, Copy, Debug)]
struct LimitFile {
    file: &'static str,
    value: fn(&Watched) -> String,
    /// Whether the kernel may lack the file, as without swap accounting.
    required: bool,
}

const fn required(file: &'static str, value: fn(&Watched) -> String) -> LimitFile {
    LimitFile { file, value, required: true }
}

const fn where_present(file: &'static str, value: fn(&Watched) -> String) -> LimitFile {
    LimitFile { file, value, required: false }
}

const V2: [Files; 4] = [
    Files {
        name: "memory",
        controller: Controller::Memory,
        limits: &[
            required("memory.max", memory),
            where_present("memory.swap.max", |_| "0".into()),
            // The kernel ends the whole tree, PID 1 included.
            where_present("memory.oom.group", |_| "1".into()),
        ],
    },
    Files { name: "pids", controller: Controller::Pids, limits: &[required("pids.max", pids)] },
    Files {
        name: "cpu",
        controller: Controller::Cpu,
        limits: &[required("cpu.max", |limits| format!("{} {PERIOD}", quota(limits)))],
    },
    Files { name: "cpu.stat", controller: Controller::CpuAccount, limits: &[] },
];

const V1: [Files; 4] = [
    Files {
        name: "memory",
        controller: Controller::Memory,
        limits: &[
            required("memory.limit_in_bytes", memory),
            // Memory and swap together: no swap. Cannot be below the limit above, so it comes after it.
            where_present("memory.memsw.limit_in_bytes", memory),
            where_present("memory.swappiness", |_| "0".into()),
        ],
    },
    Files { name: "pids", controller: Controller::Pids, limits: &[required("pids.max", pids)] },
    Files {
        name: "cpu",
        controller: Controller::Cpu,
        limits: &[
            required("cpu.cfs_period_us", |_| PERIOD.to_string()),
            required("cpu.cfs_quota_us", |limits| quota(limits).to_string()),
        ],
    },
    Files { name: "cpuacct", controller: Controller::CpuAccount, limits: &[] },
];

/// Microseconds in which a quota is counted; the most that the kernel takes. A start that takes two CPUs for a moment is
/// within its quota then, where the default of a tenth would hold it up.
const PERIOD: u64 = 1_000_000;

/// The least quota that the kernel takes is 1 ms.
fn quota(limits: &Watched) -> u64 {
    (u64::from(limits.cpu_millis) * PERIOD / 1000).max(1000)
}

fn memory(limits: &Watched) -> String {
    limits.memory.to_string()
}

/// One below RLIMIT_NPROC, so that this limit is the one that refuses: it keeps count of that.
fn pids(limits: &Watched) -> String {
    limits.pids.saturating_sub(1).max(2).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_key() {
        let text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(number_after(text, "oom_kill"), Some(3));
        assert_eq!(number_after(text, "oom"), None);
        assert_eq!(number_after("max 12\n", "max"), Some(12));
    }

    #[test]
    fn the_quota_is_the_rate_and_never_below_what_the_kernel_takes() {
        let limits = |cpu_millis| Watched { cpu_millis, ..Watched::from(&bundle::Limits::default()) };
        assert_eq!([quota(&limits(2500)), quota(&limits(1))], [2_500_000, 1000]);
    }

    #[test]
    fn a_cgroup_of_somebody_else_is_not_taken_for_a_runs() {
        assert!(is_of_a_run(&format!("smcp-{}", Ulid::nil())));
        for name in ["smcp-", "smcp-web", "smcp-agent.service", "smcp-01ARZ3NDEKTSV4RRFFQ69G5FA", "other"] {
            assert!(!is_of_a_run(name), "{name}");
        }
    }
}
