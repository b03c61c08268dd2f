//! What of egress is said on every platform: grants, proxies, and what came of a run. Names are told apart on Linux alone.

#![forbid(unsafe_code)]
#![allow(dead_code, reason = "what judges and counts connections has none here")]

mod guard;
mod proxy;
mod rules;
mod tally;

pub use guard::is_forbidden;
pub use proxy::Proxies;
pub use rules::Name;
pub use tally::{Listener, Refused, Totals, Traffic, Why};
