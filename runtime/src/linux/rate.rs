//! The CPU rate where no cgroup caps it: a tree that runs ahead of its rate is kept to as many CPUs as the rate comes to,
//! rounded up.
//!
//! Starting takes servers more than one CPU for a moment and is no abuse of it: a second of CPU time may be spent ahead.

use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPU time that a tree may be ahead of its rate.
const AHEAD: Duration = Duration::from_secs(1);

/// Keeps a tree to its CPU rate, roughly.
#[derive(Debug)]
pub struct Rate {
    cpus: Vec<usize>,
    millis: u32,
    since: Instant,
    narrowed: bool,
}

impl Rate {
    /// For a run that starts now; `None` where the rate covers all CPUs that this process may use. `seed` spreads runs over
    /// them.
    pub fn new(millis: u32, seed: u128) -> Option<Rate> {
        let allowed = sched_getaffinity(None).ok()?;
        let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        Some(Rate { cpus: choose(&allowed, millis, seed)?, millis, since: Instant::now(), narrowed: false })
    }

    /// To how many CPUs it keeps a tree.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Narrows the threads once the tree has spent too much, and from then on at each look: a server may widen its own
    /// affinity again, sched_setaffinity(2).
    pub fn hold(&mut self, spent: Duration, threads: impl Iterator<Item = i32>) {
        let due = self.since.elapsed().as_secs_f64() * f64::from(self.millis) / 1000.0;
        self.narrowed |= spent.as_secs_f64() > due + AHEAD.as_secs_f64();
        if !self.narrowed {
            return;
        }
        let mut set = CpuSet::new();
        self.cpus.iter().for_each(|cpu| set.set(*cpu));
        for thread in threads.filter_map(Pid::from_raw) {
            // One that has ended meanwhile needs no narrowing.
            let _ = sched_setaffinity(Some(thread), &set);
        }
    }
}

fn choose(allowed: &[usize], millis: u32, seed: u128) -> Option<Vec<usize>> {
    let wanted = millis.div_ceil(1000).max(1) as usize;
    if wanted >= allowed.len() {
        return None;
    }
    let first = (seed % allowed.len() as u128) as usize;
    Some(allowed.iter().cycle().skip(first).take(wanted).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_rounded_up_to_cpus_and_runs_are_spread() {
        let allowed = [0, 2, 5];
        assert_eq!(choose(&allowed, 1000, 0), Some(vec![0]));
        assert_eq!(choose(&allowed, 1, 4), Some(vec![2]));
        assert_eq!(choose(&allowed, 1001, 2), Some(vec![5, 0]));
        assert_eq!(choose(&allowed, 3000, 1), None);
        assert_eq!(choose(&[], 1000, 1), None);
    }

    #[test]
    fn a_start_may_run_ahead_and_more_may_not() {
        let mut rate = Rate { cpus: vec![0], millis: 1000, since: Instant::now(), narrowed: false };
        rate.hold(Duration::from_millis(900), std::iter::empty());
        assert!(!rate.narrowed);
        rate.hold(Duration::from_secs(60), std::iter::empty());
        rate.hold(Duration::ZERO, std::iter::empty());
        assert!(rate.narrowed, "once and for all");
    }
}
