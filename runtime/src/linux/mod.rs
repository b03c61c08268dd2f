//! Linux: user, mount, PID, network, IPC, UTS and cgroup namespaces by youki's libcontainer.
//!
//! `smcp` (supervisor) splits the cage process off while it has one thread. That one enters the namespaces, takes the plan
//! when it is there, assembles the root and lets libcontainer make the container; our init is its PID 1 and forks the server.

#![deny(unsafe_code)]

mod advice;
mod ahead;
mod apart;
mod bare;
mod cage;
mod calls;
mod cgroup;
mod channel;
mod enter;
mod events;
mod first;
mod guard;
mod init;
#[cfg(test)]
pub(crate) mod inside;
mod keeper;
mod landlock;
mod masks;
mod measure;
mod mounts;
mod netlink;
pub(crate) mod network;
pub mod oci;
mod process;
mod programs;
mod rate;
pub(crate) mod redirect;
mod rights;
mod root;
mod scope;
mod seccomp;
mod seccomp_table;
mod server;
mod shown;
mod signals;
pub(crate) mod sockets;
mod sources;
#[allow(unsafe_code)]
pub(crate) mod sys;
pub mod system;
mod unheard;
mod unpacking;
mod wire;

pub use advice::{Advice, advice};
pub use ahead::{Ahead, Ordered};
pub use apart::{Tie, apart};
pub use cage::{Cage, How, Masked, Outcome, Prepared, Remains};
pub use calls::{Asked, Recording};
pub use guard::Used;
pub use programs::useless_programs;
pub use redirect::PORT as REDIRECTED;
pub use signals::Signals;
pub use sockets::{SocketKind, Sockets, answer};
pub use sys::{hide_in_arguments, original_destination};
pub use unheard::{Missed, Transport, Unheard};
pub use unpacking::Unpacking;
pub use wire::{NotExecuted, NotExecutedKind, Refusal};
