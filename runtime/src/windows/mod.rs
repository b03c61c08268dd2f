//! Windows: a process that is started suspended, in a job object, by a token with less rights, with its three streams and no other
//! handle. Its files are those of the user: a job object keeps none apart, so this is tier 0.
//!
//! What a job promises is watched all the same: some systems take limits and do not keep them.

#![deny(unsafe_code)]

mod advice;
mod cage;
mod guard;
mod signals;
mod streams;
#[allow(unsafe_code)]
mod sys;
pub mod system;
#[cfg(test)]
mod tests;
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

/// The numbers that these signals have elsewhere, for what is said and for exit codes.
pub const SIGHUP: i32 = 1;
/// The same.
pub const SIGINT: i32 = 2;
/// The same.
pub const SIGQUIT: i32 = 3;
/// The same.
pub const SIGTERM: i32 = 15;
