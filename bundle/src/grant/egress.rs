//! Where a run may connect to.

use serde::{Deserialize, Serialize};

use crate::outbound::Outbound;

/// What a run is granted of the network; nothing else of it is reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Egress {
    /// Destinations, sorted, each host once with all its ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbound: Vec<Outbound>,
    /// TCP ports of the host's loopback that the same port of the cage's loopback leads to; sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_ports: Vec<u16>,
    /// Every public address and every name, any port.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any: bool,
    /// Where there are no namespaces, the ports alone may be what is enforced: the user said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_port: bool,
}

impl Egress {
    /// Nothing is granted: there is loopback alone.
    pub fn is_empty(&self) -> bool {
        self.outbound.is_empty() && self.host_ports.is_empty() && !self.any
    }
}
