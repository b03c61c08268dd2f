//! How long to wait for a registry, and how often to ask again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Error, Result};

/// How long to wait for a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// There is no other way.
    Needed,
    /// There is an answer that will do: in the store, or somewhere else.
    Refresh,
}

/// How often something is tried again, and how long the first wait is; each is about twice the one before.
const TIMES: u32 = 4;
const FIRST: Duration = Duration::from_millis(250);
/// The longest wait that a registry can ask for, in seconds.
const LONGEST: u32 = 60;

impl Patience {
    /// Does something again where that may help: the connection broke, or the registry is busy or ill for a moment.
    pub(crate) fn repeat<T>(self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut waits = Waits::new(self);
        loop {
            match attempt() {
                Err(error) if waits.wait_after(&error) => {}
                done => return done,
            }
        }
    }
}

/// The waits between attempts.
pub(crate) struct Waits {
    left: u32,
    next: Duration,
}

impl Waits {
    pub(crate) fn new(patience: Patience) -> Self {
        let left = if patience == Patience::Needed { TIMES } else { 0 };
        Self { left, next: FIRST }
    }

    /// Waits where another attempt may help, and says whether it did.
    pub(crate) fn wait_after(&mut self, error: &Error) -> bool {
        let asked = match error {
            Error::Network { .. } => None,
            Error::Status { status: 429 | 500 | 502 | 503 | 504, retry_after, .. } => *retry_after,
            _ => return false,
        };
        if self.left == 0 || asked.is_some_and(|asked| asked > LONGEST) {
            return false;
        }
        self.left -= 1;
        let wait = asked.map_or_else(|| jittered(self.next), |asked| Duration::from_secs(asked.into()));
        self.next *= 2;
        if wait >= Duration::from_secs(2) {
            tracing::warn!(%error, "asked again in {} s", wait.as_secs());
        } else {
            tracing::debug!(%error, ?wait, "asked again");
        }
        thread::sleep(wait);
        true
    }
}

/// Between a half and one and a half of it, so that many who failed at once do not come back at once.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    wait / 2 + wait.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}

/// `Retry-After` in seconds from now: a number, or a date as RFC 9110 writes it.
pub(crate) fn retry_after(text: &str) -> Option<u32> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let seconds = match text.trim().parse::<u64>() {
        Ok(seconds) => seconds,
        Err(_) => http_date(text.trim())?.saturating_sub(now()),
    };
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day: u64 = words.next()?.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if words.next()? != "GMT" || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days from the civil date, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_when_to_come_back() {
        for (text, want) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Tue, 29 Feb 2028 12:00:00 GMT", Some(1_835_438_400)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("06 Nov 1994", None),
            ("", None),
        ] {
            assert_eq!(http_date(text), want, "{text}");
        }
        assert_eq!(retry_after("7"), Some(7));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        assert_eq!(retry_after("soon"), None);
        assert_eq!(retry_after("-1"), None);
    }

    #[test]
    fn a6_waits_differ_and_are_bounded() {
        let waits: Vec<_> = (0..64).map(|_| jittered(FIRST)).collect();
        assert!(waits.iter().all(|wait| (FIRST / 2..=FIRST * 3 / 2).contains(wait)));
        assert!(waits.iter().any(|wait| wait != &waits[0]));
        let status = |status, retry_after| Error::Status {
            host: "x".into(),
            method: "GET",
            path: "/".into(),
            status,
            message: "".into(),
            retry_after,
        };
        for (error, want) in
            [(status(429, Some(0)), true), (status(429, Some(3600)), false), (status(404, None), false)]
        {
            assert_eq!(Waits::new(Patience::Needed).wait_after(&error), want, "{error}");
            assert!(!Waits::new(Patience::Refresh).wait_after(&error));
        }
    }
}
