//! What went through, and what was refused.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

use super::rules::Name;

/// Different refusals that are kept apart in one run; each takes up to 400 bytes of memory.
const MOST_REFUSED: usize = 1_000;
/// Different destinations that are kept apart in one run.
const MOST_GRANTED: usize = 1_000;
/// The host of what is beyond that.
const OTHERS: &str = "*";
/// A name is cut to this, which is also the longest there is. Names are the server's choice, so they may hold its data.
const LONGEST_HOST: usize = 253;

/// Why a connection or a name was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Nothing grants this name.
    NameNotGranted,
    /// The name is granted, on other ports.
    PortNotGranted,
    /// The policy denies it, whatever else is granted.
    DeniedByPolicy,
    /// Nothing grants this address.
    AddressNotGranted,
    /// The name stands for an address of this machine or of its networks, which has to be granted by itself.
    AddressForbidden,
    /// TLS was begun with another name than the one that was asked for.
    WrongSni,
    /// TLS was begun in a way that hides the name, or is none.
    BadHello,
    /// UDP, which is not carried, but for DNS.
    Udp,
    /// The host found no address of the name.
    Unresolved,
    /// The host could not connect.
    Unreachable,
    /// The host's proxy did not connect.
    ProxyFailed,
    /// As many connections were open as one run may have.
    TooManyConnections,
    /// As many names had an address as one run may have.
    TooManyNames,
    /// The server itself, or another grant, holds the port inside the cage.
    PortTaken,
}

/// One kind of refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// A name or an address, as the server asked for it.
    pub host: String,
    /// Which port, where one was asked for. A name is refused before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Why.
    pub why: Why,
    /// The address that the host's name service has given, where it is the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// How often.
    pub count: u64,
}

impl Refused {
    /// The flag that would grant it, where one would.
    pub fn flag(&self) -> Option<String> {
        let host = match self.why {
            Why::NameNotGranted | Why::PortNotGranted | Why::AddressNotGranted | Why::WrongSni => self.host.clone(),
            Why::AddressForbidden => self.address?.to_string(),
            Why::DeniedByPolicy
            | Why::BadHello
            | Why::Udp
            | Why::Unresolved
            | Why::Unreachable
            | Why::ProxyFailed
            | Why::TooManyConnections
            | Why::TooManyNames
            | Why::PortTaken => {
                return None;
            }
        };
        let host = match host.parse() {
            Ok(IpAddr::V6(v6)) => format!("[{v6}]"),
            Ok(IpAddr::V4(v4)) => v4.to_string(),
            // What the server asked for may hold anything.
            Err(_) => Name::new(&host)?.as_str().to_owned(),
        };
        Some(match self.port {
            Some(port) => format!("--allow-net {host}:{port}"),
            None => format!("--allow-net {host}"),
        })
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::NameNotGranted => "the name is not granted",
            Why::PortNotGranted => "the port is not granted",
            Why::DeniedByPolicy => "the policy denies it",
            Why::AddressNotGranted => "the address is not granted",
            Why::AddressForbidden => "it stands for an address of this machine or its networks",
            Why::WrongSni => "TLS was begun with another name than was connected to",
            Why::BadHello => "TLS was begun in a way that is not understood",
            Why::Udp => "UDP is not carried",
            Why::Unresolved => "the host found no address for it",
            Why::Unreachable => "the host could not connect",
            Why::ProxyFailed => "the host's proxy did not connect",
            Why::TooManyConnections => "too many connections were open",
            Why::TooManyNames => "too many names were asked for",
            Why::PortTaken => "the port is taken inside the cage",
        })
    }
}

/// What went to one destination and came from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// The name or address; `*` with port 0 for what did not fit.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Connections that were made.
    pub connections: u64,
    /// Bytes from the server.
    pub sent: u64,
    /// Bytes to the server.
    pub received: u64,
}

/// All of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Where connections were made to, in the order of the first of each.
    pub granted: Vec<Traffic>,
    /// What was refused, in that order.
    pub refused: Vec<Refused>,
    /// Refusals beyond those that are kept apart.
    pub refused_more: u64,
}

/// A row of [`Totals::granted`].
#[derive(Debug, Clone, Copy)]
pub struct Row(usize);

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the server.
    Sent,
    /// To it.
    Received,
}

/// Who hears of each new refusal.
pub type Listener = Box<dyn FnMut(&Refused) + Send>;

/// Counts as it happens, in bounded memory.
pub struct Tally {
    totals: Totals,
    refused: HashMap<(String, Option<u16>, Why), usize>,
    granted: HashMap<(String, u16), usize>,
    listener: Listener,
}

impl Tally {
    /// Nothing yet. `listener` is called once for each new kind of refusal, a thousand at most.
    pub fn new(listener: Listener) -> Tally {
        Tally { totals: Totals::default(), refused: HashMap::new(), granted: HashMap::new(), listener }
    }

    /// One refusal.
    pub fn refuse(&mut self, host: &str, port: Option<u16>, why: Why) {
        self.refuse_at(host, port, why, None);
    }

    /// One refusal, because of what the name stands for.
    pub fn refuse_at(&mut self, host: &str, port: Option<u16>, why: Why, address: Option<IpAddr>) {
        let host = cut(host);
        let key = (host.to_owned(), port, why);
        if let Some(place) = self.refused.get(&key) {
            self.totals.refused[*place].count += 1;
        } else if self.totals.refused.len() < MOST_REFUSED {
            let refused = Refused { host: key.0.clone(), port, why, address, count: 1 };
            tracing::info!(host = %refused.host, port, "refused: {why}");
            (self.listener)(&refused);
            self.refused.insert(key, self.totals.refused.len());
            self.totals.refused.push(refused);
        } else {
            self.totals.refused_more += 1;
        }
    }

    /// One connection that was made.
    pub fn connect(&mut self, host: &str, port: u16) -> Row {
        let mut key = (cut(host).to_owned(), port);
        if !self.granted.contains_key(&key) && self.granted.len() >= MOST_GRANTED {
            key = (OTHERS.to_owned(), 0);
        }
        let granted = &mut self.totals.granted;
        let place = *self.granted.entry(key).or_insert_with_key(|(host, port)| {
            granted.push(Traffic { host: host.clone(), port: *port, connections: 0, sent: 0, received: 0 });
            granted.len() - 1
        });
        self.totals.granted[place].connections += 1;
        Row(place)
    }

    /// Bytes that went through.
    pub fn pass(&mut self, row: Row, way: Way, bytes: u64) {
        let traffic = &mut self.totals.granted[row.0];
        match way {
            Way::Sent => traffic.sent += bytes,
            Way::Received => traffic.received += bytes,
        }
    }

    /// All of it.
    pub fn totals(&self) -> Totals {
        self.totals.clone()
    }
}

fn cut(host: &str) -> &str {
    host.get(..LONGEST_HOST).unwrap_or_else(|| {
        match host.char_indices().find(|(at, c)| at + c.len_utf8() > LONGEST_HOST) {
            Some((at, _)) => &host[..at],
            None => host,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn each_kind_of_refusal_is_told_once_and_counted() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut tally = Tally::new(Box::new({
            let heard = Arc::clone(&heard);
            move |refused| heard.lock().unwrap().push(refused.clone())
        }));
        for _ in 0..3 {
            tally.refuse("evil.test", None, Why::NameNotGranted);
        }
        tally.refuse("good.test", Some(80), Why::PortNotGranted);
        let totals = tally.totals();
        assert_eq!(heard.lock().unwrap().len(), 2);
        assert_eq!(totals.refused[0].count, 3);
        assert_eq!(
            serde_json::to_string(&totals.refused[1]).unwrap(),
            r#"{"host":"good.test","port":80,"why":"port-not-granted","count":1}"#
        );
    }

    #[test]
    fn names_without_end_take_bounded_memory() {
        let mut tally = Tally::new(Box::new(|_| ()));
        for number in 0..MOST_REFUSED as u64 + 50 {
            let name = format!("{number}.{}", "é".repeat(300));
            tally.refuse(&name, None, Why::NameNotGranted);
            let row = tally.connect(&name, 443);
            tally.pass(row, Way::Sent, 2);
        }
        let totals = tally.totals();
        assert_eq!((totals.refused.len(), totals.refused_more), (MOST_REFUSED, 50));
        assert!(totals.refused.iter().all(|refused| (252..=253).contains(&refused.host.len())));
        assert_eq!(totals.granted.len(), MOST_GRANTED + 1);
        let others = Traffic { host: OTHERS.into(), port: 0, connections: 50, sent: 100, received: 0 };
        assert_eq!(totals.granted.last(), Some(&others));
    }

    #[test]
    fn flags_that_would_grant_it() {
        let refused = |host: &str, port, why, address: Option<&str>| Refused {
            host: host.into(),
            port,
            why,
            address: address.map(|text| text.parse().unwrap()),
            count: 1,
        };
        let flags = [
            (refused("a.test", None, Why::NameNotGranted, None), Some("--allow-net a.test")),
            (refused("a.test", Some(80), Why::PortNotGranted, None), Some("--allow-net a.test:80")),
            (refused("1.2.3.4", Some(80), Why::AddressNotGranted, None), Some("--allow-net 1.2.3.4:80")),
            (refused("2001:db8::1", Some(80), Why::AddressNotGranted, None), Some("--allow-net [2001:db8::1]:80")),
            (refused("a.test", Some(80), Why::AddressForbidden, Some("10.0.0.1")), Some("--allow-net 10.0.0.1:80")),
            (refused("a.test", Some(80), Why::AddressForbidden, Some("::1")), Some("--allow-net [::1]:80")),
            (refused("b.test", Some(443), Why::WrongSni, None), Some("--allow-net b.test:443")),
            (refused("no name", Some(443), Why::WrongSni, None), None),
            (refused("a.test", Some(80), Why::Unreachable, None), None),
        ];
        for (refused, flag) in flags {
            assert_eq!(refused.flag().as_deref(), flag, "{refused:?}");
        }
    }
}
