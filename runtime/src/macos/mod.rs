//! macOS: a process group of its own with limits, in a sandbox by a Seatbelt profile, which `sandbox-exec` puts it into.
//!
//! The supervisor waits for it by kqueue and watches its memory, processes and CPU time. Names of hosts are not told apart, and there is
//! no root of its own: the server sees the paths of this machine.

#![deny(unsafe_code)]

mod advice;
mod cage;
mod guard;
mod signals;
#[allow(unsafe_code)]
mod sys;
pub mod system;
mod without;

pub use advice::advice;
pub use cage::{Cage, Prepared, Remains};
pub use signals::Signals;
pub(crate) use without::{NO_CALLS, NOT_KEPT_APART};
pub use without::{apart, hide_in_arguments, useless_programs};

pub use crate::ahead::{Ahead, Ordered};
pub use crate::outcome::{Advice, Asked, AskedPath, How, Masked, Outcome, Recording, Tie, Used};
pub use crate::refusal::{NotExecuted, NotExecutedKind, Refusal};
pub use crate::unconfined::Unpacking;
