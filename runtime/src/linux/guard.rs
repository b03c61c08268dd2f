//! The supervisor's watch over a cage: memory, processes and CPU time of the whole tree.
//!
//! What the cage's cgroup counts is read there. The rest is summed over the tree, from PID 1 of the cage downwards: an
//! orphan's parent is PID 1. A tree that changes while it is read is read again.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::cgroup::{Cgroup, Controller};
use super::rate::Rate;
use crate::plan::{Limit, Watched};
use crate::report::Status;

pub use crate::outcome::Used;

/// From one look to the next.
const TICK: Duration = Duration::from_millis(100);

/// Looks between two at the open files of all processes, for memory that nobody has mapped.
const LOOKS_PER_MEMFD_SCAN: u32 = 5;

/// An exact sum over the page tables may take this share of the time: one in four.
const PAUSE_AFTER_EXACT: u32 = 3;

/// Watches one cage.
#[derive(Debug)]
pub struct Guard {
    init: Pid,
    limits: Watched,
    cgroup: Cgroup,
    /// Where no cgroup caps the CPU rate.
    rate: Option<Rate>,
    next: Instant,
    looks: u32,
    exact_not_before: Instant,
    memfds: u64,
    spent: Spent,
}

impl Guard {
    /// A guard over the cage whose PID 1 this is.
    pub fn new(init: Pid, limits: Watched, cgroup: Cgroup, rate: Option<Rate>) -> Guard {
        let now = Instant::now();
        Guard {
            init,
            limits,
            cgroup,
            rate,
            next: now + TICK,
            looks: 0,
            exact_not_before: now,
            memfds: 0,
            spent: Spent::default(),
        }
    }

    /// Whether the guard sees the server's process, once that is there.
    pub fn first_look(&self) -> Status {
        match Tree::read(self.init) {
            Ok(tree) if tree.processes.len() >= 2 && tree.memory() > 0 => Status::Full,
            Ok(_) => Status::Absent("the server's process cannot be seen in /proc".into()),
            Err(why) => Status::Absent(format!("/proc of the cage's PID 1 cannot be read: {why}")),
        }
    }

    /// When the next look is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The cage's cgroup.
    pub fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// The limit that the tree does not keep, if any.
    pub fn look(&mut self) -> Option<Limit> {
        self.next = Instant::now() + TICK;
        self.looks = self.looks.wrapping_add(1);
        let (memory, pids) = (self.cgroup.has(Controller::Memory), self.cgroup.has(Controller::Pids));
        let counted = self.cgroup.cpu_time();
        if let Some(limit) = self.told_by_cgroup(counted) {
            return Some(limit);
        }
        if memory && pids && counted.is_some() && self.rate.is_none() {
            return None;
        }
        // PID 1 is gone: the run is at its end.
        let tree = Tree::read(self.init).ok()?;
        if !pids && tree.threads() >= u64::from(self.limits.pids) {
            return Some(Limit::Pids(self.limits.pids));
        }
        let spent = counted.unwrap_or_else(|| self.spent.add(&tree));
        if spent >= self.cpu_time() {
            return Some(Limit::CpuTime(self.limits.cpu_time_seconds));
        }
        if let Some(rate) = &mut self.rate {
            rate.hold(spent, tree.processes.iter().flat_map(|process| threads(process.pid)));
        }
        (!memory && self.exceeds_memory(&tree)).then_some(Limit::Memory(self.limits.memory))
    }

    /// CPU time of the tree as far as it was seen.
    pub fn spent(&self) -> Duration {
        self.cgroup.cpu_time().unwrap_or(self.spent.total)
    }

    /// The limit that ended the tree, looked for once more after its end. `peak` is the largest resident set of a process
    /// that ended by itself in an error: a limit of setrlimit(2) may have hit it between two looks.
    pub fn after(&self, peak: Option<u64>) -> Option<Limit> {
        let above = !self.cgroup.has(Controller::Memory) && peak.is_some_and(|peak| peak > self.limits.memory);
        let by_peak = above.then_some(Limit::Memory(self.limits.memory));
        self.told_by_cgroup(self.cgroup.cpu_time()).or(by_peak)
    }

    fn told_by_cgroup(&self, counted: Option<Duration>) -> Option<Limit> {
        if self.cgroup.memory_kills() > 0 {
            Some(Limit::Memory(self.limits.memory))
        } else if self.cgroup.refused_forks() > 0 {
            Some(Limit::Pids(self.limits.pids))
        } else {
            counted.filter(|spent| *spent >= self.cpu_time()).map(|_| Limit::CpuTime(self.limits.cpu_time_seconds))
        }
    }

    fn cpu_time(&self) -> Duration {
        Duration::from_secs(self.limits.cpu_time_seconds)
    }

    /// Resident sets count shared pages once for each process, so a sum above the limit is only a reason to look closer.
    fn exceeds_memory(&mut self, tree: &Tree) -> bool {
        if self.looks.is_multiple_of(LOOKS_PER_MEMFD_SCAN) {
            self.memfds = memfds(tree);
        }
        let started = Instant::now();
        if tree.memory() + self.memfds <= self.limits.memory || started < self.exact_not_before {
            return false;
        }
        self.memfds = memfds(tree);
        let exact = exact(tree, self.memfds);
        self.exact_not_before = Instant::now() + started.elapsed() * PAUSE_AFTER_EXACT;
        exact > self.limits.memory
    }
}

/// Every process below this one, but `spared` and what is below these, as far as it can be seen.
pub fn descendants(of: Pid, spared: &[Pid]) -> Vec<Pid> {
    let mut found = children_of(of);
    found.retain(|pid| !spared.contains(pid));
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        found.extend(children_of(pid).into_iter().filter(|pid| !spared.contains(pid)));
    }
    found
}

/// The children of a process.
pub fn children_of(pid: Pid) -> Vec<Pid> {
    let found = Stat::of(pid.as_raw_nonzero().get()).and_then(|process| children(&process)).unwrap_or_default();
    found.into_iter().filter_map(Pid::from_raw).collect()
}

impl Used {
    /// Looks; `None` where that process is not there.
    pub fn below(pid: u32) -> Option<Used> {
        let tree = Tree::read(Pid::from_raw(pid.cast_signed())?).ok()?;
        let below = &tree.processes[1..];
        let ticks: u64 = below.iter().map(|process| process.own_ticks + process.waited_ticks).sum();
        Some(Used {
            processes: below.len(),
            memory: below.iter().map(|process| process.resident).sum(),
            cpu_time: Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)),
        })
    }
}

/// CPU time of a tree over all looks, from below: a parent that ignores SIGCHLD makes its children's time count nowhere
/// in the kernel, so that of each process seen is kept here too.
#[derive(Debug, Default)]
struct Spent {
    seen: HashMap<(i32, u64), u64>,
    gone: u64,
    total: Duration,
}

impl Spent {
    fn add(&mut self, tree: &Tree) -> Duration {
        let now: HashSet<_> = tree.processes.iter().map(|process| (process.pid, process.started)).collect();
        let gone = &mut self.gone;
        self.seen.retain(|key, ticks| {
            // One that the walk missed may be there still.
            let ended = !now.contains(key) && Stat::of(key.0).is_none_or(|stat| stat.started != key.1);
            *gone += if ended { *ticks } else { 0 };
            !ended
        });
        for process in &tree.processes {
            self.seen.insert((process.pid, process.started), process.own_ticks);
        }
        let by_process = self.gone + self.seen.values().sum::<u64>();
        let by_parents = tree.processes.iter().map(|process| process.own_ticks + process.waited_ticks).sum::<u64>();
        let ticks = by_process.max(by_parents);
        let time = Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1));
        self.total = self.total.max(time);
        self.total
    }
}

/// All processes of a cage at one moment.
#[derive(Debug, Default)]
struct Tree {
    processes: Vec<Stat>,
}

impl Tree {
    fn read(init: Pid) -> io::Result<Tree> {
        const TRIES: usize = 3;
        let init = init.as_raw_nonzero().get();
        let mut largest = Tree::default();
        for _ in 0..TRIES {
            let (tree, whole) = Tree::walk(init)?;
            if tree.memory() >= largest.memory() {
                largest = tree;
            }
            if whole {
                break;
            }
        }
        Ok(largest)
    }

    /// The tree, and whether nothing in it vanished meanwhile.
    fn walk(init: i32) -> io::Result<(Tree, bool)> {
        let first = Stat::of(init).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let mut tree = Tree { processes: vec![first] };
        let mut whole = true;
        let mut next = 0;
        while let Some(process) = tree.processes.get(next) {
            next += 1;
            let Some(children) = children(process) else {
                whole = false;
                continue;
            };
            for child in children {
                match Stat::of(child) {
                    Some(stat) => tree.processes.push(stat),
                    None => whole = false,
                }
            }
        }
        Ok((tree, whole))
    }

    fn memory(&self) -> u64 {
        self.processes.iter().map(|process| process.resident).sum()
    }

    fn threads(&self) -> u64 {
        self.processes.iter().map(|process| process.threads).sum()
    }
}

/// What `/proc/PID/stat` says of one process, proc_pid_stat(5). Anybody may read it.
#[derive(Debug)]
pub struct Stat {
    pid: i32,
    /// One letter.
    pub state: u8,
    threads: u64,
    /// When it started, in ticks since boot.
    pub started: u64,
    /// User and system time of all its threads, also those that ended.
    own_ticks: u64,
    /// The same of the children that it waited for.
    waited_ticks: u64,
    /// Bytes.
    resident: u64,
}

impl Stat {
    /// Reads it; `None` where there is no such process.
    pub fn of(pid: i32) -> Option<Stat> {
        let read = |path: String| Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned());
        let mut stat = Stat::parse(pid, &read(format!("/proc/{pid}/stat"))?)?;
        // The first thread may end before the others; it shows no memory then.
        if stat.resident == 0 && stat.threads > 1 {
            stat.resident = threads(pid)
                .filter_map(|thread| {
                    Some(Stat::parse(pid, &read(format!("/proc/{pid}/task/{thread}/stat"))?)?.resident)
                })
                .max()
                .unwrap_or(0);
        }
        Some(stat)
    }

    fn parse(pid: i32, text: &str) -> Option<Stat> {
        // The name stands in parentheses and may hold any byte. What follows starts with field 3.
        let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            pid,
            state: *fields.first()?.as_bytes().first()?,
            own_ticks: number(14)? + number(15)?,
            waited_ticks: number(16)? + number(17)?,
            threads: number(20)?,
            started: number(22)?,
            resident: number(24)? * rustix::param::page_size() as u64,
        })
    }
}

/// The children of all threads of a process, `None` where it is gone.
fn children(process: &Stat) -> Option<Vec<i32>> {
    let pid = process.pid;
    let of_thread = |thread: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok()?;
        Some(text.split_ascii_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<i32>>())
    };
    if process.threads <= 1 {
        return of_thread(pid);
    }
    Some(threads(pid).filter_map(of_thread).flatten().collect())
}

fn threads(pid: i32) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Each page once: the proportional sets of all processes, with the memfds in place of the shared memory that is mapped
/// where they are more. A process that may not be looked into counts with its resident set.
fn exact(tree: &Tree, memfds: u64) -> u64 {
    let (mut own, mut shared) = (0, 0);
    for process in &tree.processes {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid)).unwrap_or_default();
        let kib = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        match (kib("Pss:"), kib("Pss_Shmem:")) {
            (Some(all), Some(of_shared)) => {
                own += all.saturating_sub(of_shared) * 1024;
                shared += of_shared * 1024;
            }
            // Ended meanwhile, or closed to us. One that lives on without its first thread looks like the former.
            _ => own += Stat::of(process.pid).map_or(0, |stat| stat.resident),
        }
    }
    own + shared.max(memfds)
}

/// The memory of all memfds that the tree's processes have open, memfd_create(2); each once. Those of a process that may
/// not be looked into are not seen.
fn memfds(tree: &Tree) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for process in &tree.processes {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", process.pid)) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if fs::read_link(&path).is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:"))
                && let Ok(about) = fs::metadata(&path)
                && seen.insert((about.dev(), about.ino()))
            {
                bytes += about.blocks() * 512;
            }
        }
    }
    bytes
}

/// Threads that count against RLIMIT_NPROC of a cage's uid beside the cage's own: since Linux 5.14 none, for they are
/// counted for each user namespace; before it all of that uid on the machine.
pub fn counted_beside(uid: u32) -> u64 {
    if is_since_5_14(&rustix::system::uname().release().to_string_lossy()) {
        return 0;
    }
    tasks_of(uid)
}

/// Threads of a uid on the whole machine, as RLIMIT_NPROC counts them where no user namespace has a count of its own.
pub fn tasks_of(uid: u32) -> u64 {
    let statuses = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        fs::read_to_string(entry.path().join("status")).ok()
    });
    statuses.filter_map(|status| threads_of(uid, &status)).sum()
}

/// A release that is no `MAJOR.MINOR…` is no Linux before that.
fn is_since_5_14(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 14),
        _ => true,
    }
}

/// The threads of a process by its `/proc/PID/status`, where this is its real uid.
fn threads_of(uid: u32, status: &str) -> Option<u64> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
    (field("Uid:")?.parse() == Ok(uid)).then(|| field("Threads:")?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_by_the_real_uid_on_old_kernels() {
        let status = "Name:\tcat\nUid:\t1000\t0\t0\t0\nThreads:\t3\n";
        assert_eq!((threads_of(1000, status), threads_of(0, status)), (Some(3), None));
        let since = ["5.10.0-32-cloud-amd64", "5.13.19", "5.14.0-rc1", "6.1.0", "unknown"].map(is_since_5_14);
        assert_eq!(since, [false, false, true, true, true]);
    }

    #[test]
    fn a_name_of_parentheses_and_spaces_is_no_field() {
        let rest = "S 1 2 3 0 -1 0 9 9 9 9 10 20 30 40 20 0 7 0 555 4096 12 0";
        let stat = Stat::parse(5, &format!("5 (a) b (c) {rest}")).unwrap();
        assert_eq!(stat.state, b'S');
        assert_eq!((stat.own_ticks, stat.waited_ticks, stat.threads, stat.started), (30, 70, 7, 555));
        assert_eq!(stat.resident, 12 * rustix::param::page_size() as u64);
        assert!(Stat::parse(5, "5 (cut off").is_none());
    }

    #[test]
    fn this_process_has_memory_and_a_thread() {
        let pid = std::process::id().cast_signed();
        let stat = Stat::of(pid).unwrap();
        assert!(stat.resident > 100_000 && stat.threads >= 1, "{stat:?}");
    }

    #[test]
    fn time_of_a_child_that_nobody_waits_for_is_kept() {
        let process = |pid, own_ticks, waited_ticks| Stat {
            pid,
            state: b'S',
            threads: 1,
            // No process of the machine started then.
            started: u64::MAX,
            own_ticks,
            waited_ticks,
            resident: 0,
        };
        let tree = |processes| Tree { processes };
        let tick = 1000 / rustix::param::clock_ticks_per_second();
        let mut spent = Spent::default();
        spent.add(&tree(vec![process(1, 0, 0), process(2, 50, 0)]));
        // Waited for: it stands in its parent.
        assert_eq!(spent.add(&tree(vec![process(1, 0, 60)])), Duration::from_millis(60 * tick));
        // Not waited for.
        spent.add(&tree(vec![process(1, 0, 60), process(3, 40, 0)]));
        assert_eq!(spent.add(&tree(vec![process(1, 0, 60)])), Duration::from_millis(100 * tick));
        spent.add(&tree(vec![process(1, 0, 60), process(4, 80, 0)]));
        assert_eq!(spent.add(&tree(vec![process(1, 0, 60)])), Duration::from_millis(170 * tick));
    }
}
