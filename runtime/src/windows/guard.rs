//! The supervisor's watch over a job: memory, processes and CPU time of all that is in it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::sys::{self, Job, Uses};
use crate::outcome::Used;
use crate::plan::{Limit, Watched};
use crate::report::Status;

/// From one look to the next.
const TICK: Duration = Duration::from_millis(100);

/// Watches one job.
#[derive(Debug)]
pub struct Guard {
    limits: Watched,
    next: Instant,
    /// What was last seen of each process, by its id and start: one that has ended counts on.
    seen: HashMap<(u32, u64), Uses>,
}

impl Guard {
    /// A guard over a job with these limits.
    pub fn new(limits: Watched) -> Guard {
        Guard { limits, next: Instant::now() + TICK, seen: HashMap::new() }
    }

    /// Whether a process of the job is seen in it.
    pub fn first_look(&mut self, job: &Job, id: u32) -> Status {
        match job.processes() {
            Ok(ids) if ids.contains(&id) && sys::uses(id).is_some() => Status::Full,
            Ok(_) => Status::Absent("failed: the server's process is not seen in its job".into()),
            Err(why) => Status::Absent(format!("failed: the processes of the job cannot be listed: {why}")),
        }
    }

    /// When the next look is due.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Looks, and names the limit that is not kept.
    pub fn look(&mut self, job: &Job) -> Option<Limit> {
        self.next = Instant::now() + TICK;
        let ids = job.processes().ok()?;
        let mut memory = 0;
        for id in &ids {
            if let Some(uses) = sys::uses(*id) {
                memory += uses.memory;
                self.seen.insert((*id, uses.started), uses);
            }
        }
        self.limits.exceeded(memory, ids.len() as u64, self.spent())
    }

    /// CPU time of all that was seen.
    pub fn spent(&self) -> Duration {
        self.seen.values().map(|uses| uses.cpu_time).sum()
    }

    /// The largest amount that one process had in use, bytes.
    pub fn peak(&self) -> u64 {
        self.seen.values().map(|uses| uses.peak).max().unwrap_or(0)
    }
}

impl Used {
    /// Looks at what the processes below one use; `None` where that process is not there.
    pub fn below(pid: u32) -> Option<Used> {
        let all = sys::processes()?;
        let mut ids = HashSet::from([all.iter().find(|(id, _)| *id == pid)?.0]);
        let mut used = Used { processes: 0, memory: 0, cpu_time: Duration::ZERO };
        loop {
            let found = all.iter().find(|(id, parent)| ids.contains(parent) && !ids.contains(id));
            let Some((id, _)) = found else { return Some(used) };
            ids.insert(*id);
            let uses = sys::uses(*id).unwrap_or_default();
            used.processes += 1;
            used.memory += uses.memory;
            used.cpu_time += uses.cpu_time;
        }
    }
}
