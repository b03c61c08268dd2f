//! The addresses of this machine.

use std::cell::RefCell;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;

/// How long the list of this machine's addresses is believed.
const BELIEVED: Duration = Duration::from_secs(2);

/// The addresses that this machine's interfaces have, public ones too: behind them are services that a firewall may hide from
/// everybody else.
#[derive(Debug, Default)]
pub struct Own(RefCell<Option<(Instant, Vec<IpAddr>)>>);

impl Own {
    /// Whether an address is this machine's. All are where the kernel does not tell.
    pub fn has(&self, address: IpAddr) -> bool {
        let mut known = self.0.borrow_mut();
        if known.as_ref().is_none_or(|(when, _)| when.elapsed() > BELIEVED) {
            match of_interfaces() {
                Ok(all) => *known = Some((Instant::now(), all)),
                Err(why) => {
                    tracing::warn!("the addresses of this machine are not known: {why}");
                    return true;
                }
            }
        }
        known.as_ref().is_none_or(|(_, all)| all.contains(&address.to_canonical()))
    }
}

fn of_interfaces() -> nix::Result<Vec<IpAddr>> {
    let addresses = getifaddrs()?.filter_map(|interface| interface.address);
    Ok(addresses
        .filter_map(|address| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => Some(v4.ip().into()),
            (_, Some(v6)) => Some(v6.ip().into()),
            _ => None,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_is_this_machines() {
        let own = Own::default();
        assert!(own.has(Ipv4Addr::LOCALHOST.into()));
        assert!(!own.has([1, 1, 1, 1].into()));
    }
}
