//! The supervisor's watch over a server and all that it has started: memory, processes and CPU time.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use super::sys::{self, Process, Uses};
use crate::outcome::Used;
use crate::plan::{Limit, Watched};
use crate::report::Status;

/// From one look to the next.
const TICK: Duration = Duration::from_millis(100);

/// Watches one tree: the server, whatever is in its group, and what any of those that were seen has started.
#[derive(Debug)]
pub struct Guard {
    server: i32,
    limits: Watched,
    next: Instant,
    /// By id and start, what each was last seen to use; one that has ended counts on.
    seen: HashMap<(i32, u64), Uses>,
}

impl Guard {
    /// A guard over the server, which is the first of its group.
    pub fn new(server: i32, limits: Watched) -> Guard {
        Guard { server, limits, next: Instant::now() + TICK, seen: HashMap::new() }
    }

    /// Whether this machine tells of processes at all.
    pub fn can_see() -> Status {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        match sys::processes() {
            Ok(all) if all.iter().any(|process| process.pid == own) && sys::uses(own).is_some() => Status::Full,
            Ok(_) => Status::Absent("failed: this machine does not tell of its processes".into()),
            Err(why) => Status::Absent(format!("failed: {why}")),
        }
    }

    /// When the next look is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Looks, and names the limit that is not kept.
    pub fn look(&mut self) -> Option<Limit> {
        self.next = Instant::now() + TICK;
        let tree = self.tree().ok()?;
        let (mut memory, mut threads) = (0, 0);
        for process in &tree {
            if let Some(uses) = sys::uses(process.pid) {
                memory += uses.memory;
                threads += uses.threads;
                self.seen.insert((process.pid, process.started), uses);
            }
        }
        self.limits.exceeded(memory, threads.into(), self.spent())
    }

    /// CPU time of all that was seen.
    pub fn spent(&self) -> Duration {
        self.seen.values().map(|uses| uses.cpu_time).sum()
    }

    /// The largest amount that one process had in use, bytes, as far as it was seen.
    pub fn peak(&self) -> u64 {
        self.seen.values().map(|uses| uses.memory).max().unwrap_or(0)
    }

    /// Kills the group, and what has left it.
    pub fn kill_all(&self) {
        sys::kill(-self.server, libc::SIGKILL);
        // Until none is left: one may start another while this goes on.
        for _ in 0..20 {
            let Ok(tree) = self.tree() else { return };
            if tree.is_empty() {
                return;
            }
            tree.iter().for_each(|process| sys::kill(process.pid, libc::SIGKILL));
        }
    }

    fn tree(&self) -> io::Result<Vec<Process>> {
        let all = sys::processes()?;
        let known = |process: &Process| {
            process.pid == self.server
                || process.group == self.server
                || self.seen.contains_key(&(process.pid, process.started))
        };
        let mut ids: HashSet<i32> = all.iter().filter(|process| known(process)).map(|process| process.pid).collect();
        loop {
            let more: Vec<i32> = all
                .iter()
                .filter(|process| ids.contains(&process.parent) && !ids.contains(&process.pid))
                .map(|process| process.pid)
                .collect();
            if more.is_empty() {
                break;
            }
            ids.extend(more);
        }
        Ok(all.into_iter().filter(|process| ids.contains(&process.pid)).collect())
    }
}

impl Used {
    /// Looks at what the processes below one use; `None` where that process is not there.
    pub fn below(pid: u32) -> Option<Used> {
        let all = sys::processes().ok()?;
        let pid = i32::try_from(pid).ok().filter(|pid| all.iter().any(|process| process.pid == *pid))?;
        let mut ids = HashSet::from([pid]);
        let mut used = Used { processes: 0, memory: 0, cpu_time: Duration::ZERO };
        loop {
            let found = all.iter().find(|process| ids.contains(&process.parent) && !ids.contains(&process.pid));
            let Some(process) = found else { return Some(used) };
            ids.insert(process.pid);
            let uses = sys::uses(process.pid).unwrap_or_default();
            used.processes += 1;
            used.memory += uses.memory;
            used.cpu_time += uses.cpu_time;
        }
    }
}
