//! Linux: user, mount, PID, network, IPC, UTS and cgroup namespaces by youki's libcontainer.
//!
//! `smcp` (supervisor) starts `smcp cage` (one thread, the hidden subcommand), which enters the namespaces, assembles the
//! root and lets libcontainer make the container; our init is its PID 1 and forks the server.

#![deny(unsafe_code)]

mod cage;
mod cgroup;
mod enter;
mod guard;
mod init;
mod landlock;
mod measure;
mod process;
mod programs;
mod rate;
mod root;
mod seccomp;
mod seccomp_table;
mod server;
mod signals;
mod sources;
#[allow(unsafe_code)]
mod sys;
mod wire;

pub use cage::{Cage, How, Outcome, Prepared, prepare};
pub use process::{Inherited, main as cage_main};
pub use signals::Signals;
pub use wire::{NotExecuted, NotExecutedKind, Refusal};
