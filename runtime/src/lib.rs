//! Everything of smcp that touches a kernel: who the server is, the plan of its cage, the cage, what it enforced, the journal.
//!
//! Knows nothing of registries and terminals. `unsafe` is in the `sys.rs` of each platform alone.

#![deny(unsafe_code)]

#[cfg(not(target_os = "linux"))]
mod ahead;
pub mod config;
#[cfg(target_os = "linux")]
pub mod egress;
#[cfg(not(target_os = "linux"))]
#[path = "egress/shared.rs"]
pub mod egress;
mod identity;
mod interpreter;
pub mod journal;
#[cfg(any(test, not(target_os = "linux")))]
mod local;
mod outcome;
mod plan;
mod refusal;
mod report;
mod runs;
// Its tests have paths of Unix.
#[cfg(any(all(test, unix), target_os = "macos"))]
mod seatbelt;
mod state;
#[cfg(not(target_os = "linux"))]
mod unconfined;
#[cfg(unix)]
mod unix;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(windows)]
mod windows;
#[cfg(any(test, windows))]
#[path = "windows/plan.rs"]
mod windows_plan;

pub use identity::{Caller, Identity, Mapping, UserFlag};
pub use interpreter::{HostInterpreter, NoInterpreter};
#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
pub use macos::*;
pub use plan::{Exec, HOSTNAME, Limit, Mount, Plan, Programs, Provider, RESOLVER, Rlimits, Variable, Watched, What};
pub use report::{Layer, Report, Status, Tier};
pub use state::make_states;
#[cfg(windows)]
pub use windows::*;
