//! The CPU rate where no cgroup caps it: as many CPUs as the rate comes to, rounded up.
//!
//! A server may widen that again, sched_setaffinity(2). It spreads load; what holds is the CPU time of the whole tree.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs of a run, `None` where the rate covers all that this process may use. `seed` spreads runs over them.
pub fn cpus(millis: u32, seed: u128) -> Option<Vec<usize>> {
    let allowed = sched_getaffinity(None).ok()?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    choose(&allowed, millis, seed)
}

fn choose(allowed: &[usize], millis: u32, seed: u128) -> Option<Vec<usize>> {
    let wanted = millis.div_ceil(1000).max(1) as usize;
    if wanted >= allowed.len() {
        return None;
    }
    let first = (seed % allowed.len() as u128) as usize;
    Some(allowed.iter().cycle().skip(first).take(wanted).copied().collect())
}

/// Keeps this process and its children to these CPUs; none named: no change.
///
/// # Errors
/// The kernel's: `EINVAL` where none of them is there any more.
pub fn stay_on(cpus: &[usize]) -> rustix::io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set)
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
}
