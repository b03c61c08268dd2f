//! The one call that neither the standard library nor rustix offers.

use std::ffi::{c_int, c_long};
use std::time::Duration;

/// User and system time of all children that have ended and were waited for, and of theirs.
pub fn cpu_of_children() -> Duration {
    let mut usage = Usage::default();
    // SAFETY: getrusage(2) wants memory for one `struct rusage`, which `Usage` is laid out as on Linux, where every
    // member is a long.
    let failed = unsafe { getrusage(RUSAGE_CHILDREN, &mut usage) };
    assert_eq!(failed, 0, "getrusage takes RUSAGE_CHILDREN");
    let [user_seconds, user_micros, system_seconds, system_micros] = usage.times;
    let span = |seconds: c_long, micros: c_long| {
        Duration::from_secs(seconds.unsigned_abs()) + Duration::from_micros(micros.unsigned_abs())
    };
    span(user_seconds, user_micros) + span(system_seconds, system_micros)
}

const RUSAGE_CHILDREN: c_int = -1;

#[repr(C)]
#[derive(Default)]
struct Usage {
    times: [c_long; 4],
    rest: [c_long; 14],
}

unsafe extern "C" {
    fn getrusage(who: c_int, usage: *mut Usage) -> c_int;
}
