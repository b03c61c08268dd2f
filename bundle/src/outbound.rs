//! Where a server may connect to: the grammar of `--allow-net`, of a manifest's
//! `permissions.network.outbound` and of a policy.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One destination: `HOST`, `HOST:PORT`, `HOST:PORT,PORT`, `*.SUFFIX:PORT`,
/// `ADDRESS:PORT`, `[V6]:PORT` or `CIDR:PORT`; without a port 443.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outbound {
    /// Name, suffix, address or range.
    pub host: Host,
    /// Ports, sorted, each once, at least one.
    pub ports: Vec<u16>,
}

/// The host part of a destination.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// One DNS name, lower case, without the final dot.
    Name(String),
    /// `*.SUFFIX`: every name below the suffix, held without `*.`.
    Suffix(String),
    /// One address.
    Address(IpAddr),
    /// A range of addresses; the bits behind the prefix are zero.
    Range {
        /// First address of the range.
        network: IpAddr,
        /// Length of the prefix in bits.
        prefix: u8,
    },
}

/// The port of a destination that names none.
pub const DEFAULT_PORT: u16 = 443;

/// Why a text is no destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no destination: {why}")]
pub struct OutboundError {
    /// What was given.
    pub text: String,
    /// Why it is none.
    pub why: &'static str,
}

impl OutboundError {
    /// What would be right.
    pub fn hint(&self) -> Option<String> {
        Some("HOST, HOST:PORT,PORT, *.SUFFIX:PORT, ADDRESS:PORT, [V6]:PORT or CIDR:PORT".into())
    }
}

impl FromStr for Outbound {
    type Err = OutboundError;

    fn from_str(text: &str) -> Result<Outbound, OutboundError> {
        let fail = |why| OutboundError { text: text.into(), why };
        let (host, ports) = split(text).map_err(fail)?;
        Ok(Outbound {
            host: parse_host(host).map_err(fail)?,
            ports: match ports {
                Some(ports) => parse_ports(ports).map_err(fail)?,
                None => vec![DEFAULT_PORT],
            },
        })
    }
}

impl FromStr for Host {
    type Err = OutboundError;

    /// Reads a host without ports; a V6 address may have brackets.
    fn from_str(text: &str) -> Result<Host, OutboundError> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        parse_host(bare).map_err(|why| OutboundError { text: text.into(), why })
    }
}

impl Serialize for Outbound {
    /// As text, in the grammar that it is read by.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Outbound {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Outbound, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Outbound {
    /// A destination of a host and any number of ports; none means 443.
    pub fn new(host: Host, ports: impl IntoIterator<Item = u16>) -> Outbound {
        let mut ports: Vec<u16> = ports.into_iter().collect();
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() {
            ports.push(DEFAULT_PORT);
        }
        Outbound { host, ports }
    }
}

impl fmt::Display for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
        match self.host {
            Host::Address(IpAddr::V6(_)) | Host::Range { network: IpAddr::V6(_), .. } => {
                write!(f, "[{}]:{}", self.host, ports.join(","))
            }
            _ => write!(f, "{}:{}", self.host, ports.join(",")),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Suffix(suffix) => write!(f, "*.{suffix}"),
            Host::Address(address) => write!(f, "{address}"),
            Host::Range { network, prefix } => write!(f, "{network}/{prefix}"),
        }
    }
}

/// Parts host and ports. A V6 address needs brackets where a port follows; the
/// range of one may stand in brackets as a whole.
fn split(text: &str) -> Result<(&str, Option<&str>), &'static str> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
        let ports = match rest {
            "" => None,
            _ => Some(rest.strip_prefix(':').ok_or("after the bracket comes `:PORT`")?),
        };
        return Ok((host, ports));
    }
    match text.matches(':').count() {
        0 => Ok((text, None)),
        1 => Ok(text.split_once(':').map(|(host, ports)| (host, Some(ports))).unwrap_or((text, None))),
        _ => Ok((text, None)),
    }
}

fn parse_ports(text: &str) -> Result<Vec<u16>, &'static str> {
    let mut ports = Vec::new();
    for port in text.split(',') {
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err("a port is a number from 1 to 65535");
        }
        match port.parse() {
            Ok(0) | Err(_) => return Err("a port is a number from 1 to 65535"),
            Ok(port) => ports.push(port),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

fn parse_host(text: &str) -> Result<Host, &'static str> {
    if let Some((network, prefix)) = text.split_once('/') {
        return parse_range(network, prefix);
    }
    if let Ok(address) = text.parse() {
        return Ok(Host::Address(address));
    }
    match text.strip_prefix("*.") {
        Some(suffix) => Ok(Host::Suffix(parse_name(suffix)?)),
        None => Ok(Host::Name(parse_name(text)?)),
    }
}

fn parse_range(network: &str, prefix: &str) -> Result<Host, &'static str> {
    let network: IpAddr = network.parse().map_err(|_| "a range needs an address before the `/`")?;
    if prefix.is_empty() || !prefix.bytes().all(|b| b.is_ascii_digit()) {
        return Err("a range needs a number of bits after the `/`");
    }
    let bits = if network.is_ipv4() { 32 } else { 128 };
    let prefix: u8 = prefix.parse().ok().filter(|p| *p <= bits).ok_or("the prefix is too long")?;
    if first_of_range(network, prefix) != network {
        return Err("bits behind the prefix of the range are set");
    }
    Ok(Host::Range { network, prefix })
}

fn first_of_range(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

fn parse_name(text: &str) -> Result<String, &'static str> {
    if text.contains('*') {
        return Err("a `*` stands only as `*.` before a suffix");
    }
    if !text.is_ascii() {
        return Err("a name is ASCII, international names in their xn-- form");
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if name.is_empty() || name.len() > 253 {
        return Err("a name has 1 to 253 characters");
    }
    if !name.split('.').all(is_label) {
        return Err("the parts of a name are letters, digits, `-` and `_`, 1 to 63 each");
    }
    // `127.1`, `0x7f.1` and `2130706433` are addresses to getaddrinfo.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return Err("it looks like an address, but is none in dotted form");
    }
    Ok(name)
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_and_their_canonical_form() {
        let right = [
            ("api.acme.example", "api.acme.example:443"),
            ("API.Acme.Example.", "api.acme.example:443"),
            ("api.acme.example:8443", "api.acme.example:8443"),
            ("api.acme.example:8443,443,443", "api.acme.example:443,8443"),
            ("*.acme.example:443", "*.acme.example:443"),
            ("localhost:80", "localhost:80"),
            ("192.0.2.7", "192.0.2.7:443"),
            ("192.0.2.7:25", "192.0.2.7:25"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("[2001:db8::1]", "[2001:db8::1]:443"),
            ("2001:db8::1", "[2001:db8::1]:443"),
            ("10.0.0.0/8:5432", "10.0.0.0/8:5432"),
            ("10.0.0.0/8", "10.0.0.0/8:443"),
            ("[2001:db8::/32]:443", "[2001:db8::/32]:443"),
            ("2001:db8::/32", "[2001:db8::/32]:443"),
            ("0.0.0.0/0:443", "0.0.0.0/0:443"),
        ];
        for (text, want) in right {
            let outbound: Outbound = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(outbound.to_string(), want);
            assert_eq!(want.parse::<Outbound>(), Ok(outbound), "{want} round trip");
        }
    }

    #[test]
    fn what_is_no_destination() {
        let wrong = [
            "",
            "*",
            "*:443",
            "*.",
            "*.*.example",
            "a.*.example",
            "a..example",
            ".example",
            ":443",
            "host:",
            "host:0",
            "host:65536",
            "host:+80",
            "host:80,",
            "host:http",
            "-a.example",
            "a-.example",
            "a b",
            "https://acme.example",
            "acme.example/path",
            "user@acme.example",
            "bücher.example",
            "127.1",
            "2130706433",
            "0x7f.1",
            "1.2.3.4.5",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "acme.example/8",
            "[::1",
            "[::1]80",
            "[::1]:",
            "[acme]:x",
            "::1:80:x",
        ];
        for text in wrong {
            assert!(text.parse::<Outbound>().is_err(), "{text}");
        }
        let long = format!("{}.example", "a".repeat(64));
        assert!(long.parse::<Outbound>().is_err());
    }
}
