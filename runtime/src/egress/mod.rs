//! Egress: what a run may reach of the network, by name, without a change of the server.
//!
//! In the cage's network namespace every address is local. smcp answers its DNS: a granted name gets an address of its own,
//! at which smcp listens; it connects from the host to what the name stands for there, and copies. Everything else ends in
//! the namespace.

#![forbid(unsafe_code)]

pub mod dns;
mod guard;
pub mod hello;
mod names;
mod proxy;
mod rules;
mod tally;

use std::io;

use bundle::Egress;

use crate::linux::Sockets;

pub use proxy::Proxies;
pub use rules::Name;
pub use tally::{Refused, Totals, Traffic, Why};

/// Listeners that are open; nothing is answered yet.
pub struct Engine;

/// An engine at work.
pub struct Running;

impl Engine {
    /// Opens all that a grant needs from the start.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(_egress: &Egress, _proxies: Proxies, _sockets: Sockets) -> io::Result<Engine> {
        Ok(Engine)
    }

    /// Starts its thread. `refused` is called there, once for each new kind of refusal.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(self, _refused: Box<dyn FnMut(&Refused) + Send>) -> io::Result<Running> {
        Ok(Running)
    }
}

impl Running {
    /// Ends the thread, and with it every connection.
    pub fn stop(self) -> Totals {
        Totals::default()
    }
}
