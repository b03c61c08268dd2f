//! Waiting for what comes from elsewhere: by looking again, never by sleeping and hoping.

use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take unless a test says otherwise: generous, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long a first build may take: it fetches a base, a runtime and a closure.
pub const BUILD: Duration = Duration::from_secs(600);

/// Polls until `look` finds something, `patience` at most.
pub fn within<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    loop {
        let found = look();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        thread::sleep(Duration::from_millis(2));
    }
}
