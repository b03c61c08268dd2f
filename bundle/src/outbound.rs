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

/// Why a text is no destination: what was given, which part of it is wrong, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no destination: {why}", .text.escape_debug())]
pub struct OutboundError {
    /// What was given.
    pub text: String,
    /// Which part of it is wrong, and why.
    pub why: String,
    /// What to write in its place.
    hint: String,
}

/// What is wrong with a part of a text.
struct Wrong {
    why: String,
    hint: Option<String>,
}

impl OutboundError {
    fn new(text: &str, wrong: Wrong) -> OutboundError {
        const FORMS: &str = "HOST, HOST:PORT,PORT, *.SUFFIX:PORT, ADDRESS:PORT, [V6]:PORT or CIDR:PORT";
        OutboundError { text: text.into(), why: wrong.why, hint: wrong.hint.unwrap_or_else(|| FORMS.into()) }
    }

    /// What would be right.
    pub fn hint(&self) -> String {
        self.hint.clone()
    }
}

impl Wrong {
    fn hint(self, hint: impl Into<String>) -> Wrong {
        Wrong { hint: Some(hint.into()), ..self }
    }
}

/// Names a part and says what is the matter with it.
fn wrong(part: &str, why: impl fmt::Display) -> Wrong {
    Wrong { why: format!("`{}` {why}", part.escape_debug()), hint: None }
}

impl FromStr for Outbound {
    type Err = OutboundError;

    fn from_str(text: &str) -> Result<Outbound, OutboundError> {
        let (host, ports) = read(text)?;
        Ok(Outbound { host, ports: ports.unwrap_or_else(|| vec![DEFAULT_PORT]) })
    }
}

impl FromStr for Host {
    type Err = OutboundError;

    /// Reads a host without ports; a V6 address may have brackets.
    fn from_str(text: &str) -> Result<Host, OutboundError> {
        match read(text)? {
            (host, None) => Ok(host),
            (_, Some(_)) => Err(OutboundError::new(
                text,
                Wrong { why: "there is a port, where a host alone is expected".into(), hint: None }
                    .hint("ports stand beside it: {\"host\": \"api.acme.example\", \"ports\": [443]}"),
            )),
        }
    }
}

/// What is never reached, in the grammar of [`Outbound`]; without a port all of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Denial {
    /// Name, suffix, address or range.
    pub host: Host,
    /// Ports, sorted, each once; none stands for every port.
    pub ports: Vec<u16>,
}

impl FromStr for Denial {
    type Err = OutboundError;

    fn from_str(text: &str) -> Result<Denial, OutboundError> {
        let (host, ports) = read(text)?;
        Ok(Denial { host, ports: ports.unwrap_or_default() })
    }
}

impl Denial {
    /// Whether it speaks of this port.
    pub fn has_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    /// Whether it forbids all of a host on this port.
    pub fn forbids(&self, host: &Host, port: u16) -> bool {
        self.has_port(port) && self.host.covers(host)
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ports.as_slice() {
            [] => write!(f, "{}", self.host),
            ports => Outbound { host: self.host.clone(), ports: ports.to_vec() }.fmt(f),
        }
    }
}

impl Host {
    /// Whether all that `other` stands for lies in it. A name covers no address: what it resolves to is seen when it is
    /// connected to.
    pub fn covers(&self, other: &Host) -> bool {
        match (self, other) {
            (Host::Name(own), Host::Name(name)) => own == name,
            (Host::Suffix(own), Host::Name(name)) => is_below(name, own),
            (Host::Suffix(own), Host::Suffix(suffix)) => own == suffix || is_below(suffix, own),
            (Host::Address(own), Host::Address(address)) => own == address,
            (Host::Range { network, prefix }, Host::Address(address)) => in_range(*address, *network, *prefix),
            (Host::Range { network, prefix }, Host::Range { network: other, prefix: longer }) => {
                longer >= prefix && in_range(*other, *network, *prefix)
            }
            (Host::Address(own), Host::Range { network, prefix }) => {
                own == network && usize::from(*prefix) == bits(*own)
            }
            _ => false,
        }
    }

    /// Whether a name, in lower case and without the final dot, is it or lies in it.
    pub fn has_name(&self, name: &str) -> bool {
        match self {
            Host::Name(own) => own == name,
            Host::Suffix(own) => is_below(name, own),
            Host::Address(_) | Host::Range { .. } => false,
        }
    }

    /// Whether an address is it or lies in it.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.covers(&Host::Address(address.to_canonical()))
    }
}

/// Addresses that are no single machine of the public network, with the RFC that says so.
const NOT_PUBLIC: [(&str, &str); 21] = [
    ("0.0.0.0/8", "this host, RFC 1122"),
    ("10.0.0.0/8", "private, RFC 1918"),
    ("100.64.0.0/10", "shared by carriers, RFC 6598"),
    ("127.0.0.0/8", "loopback, RFC 1122"),
    ("169.254.0.0/16", "link-local and the metadata of clouds, RFC 3927"),
    ("172.16.0.0/12", "private, RFC 1918"),
    ("192.0.0.0/24", "of protocols, RFC 6890"),
    ("192.168.0.0/16", "private, RFC 1918"),
    ("198.18.0.0/15", "of benchmarks, RFC 2544; smcp has one inside every cage"),
    ("224.0.0.0/4", "multicast, RFC 1112"),
    ("240.0.0.0/4", "reserved and broadcast, RFC 1112"),
    ("::/128", "of no machine, RFC 4291"),
    ("::1/128", "loopback, RFC 4291"),
    ("::ffff:0:0/96", "an IPv4 address, RFC 4291"),
    ("64:ff9b::/96", "translated to an IPv4 address, RFC 6052"),
    ("64:ff9b:1::/48", "translated to an IPv4 address, RFC 8215"),
    ("2002::/16", "tunnelled to an IPv4 address, RFC 3056"),
    ("fc00::/7", "private, RFC 4193"),
    ("fe80::/10", "link-local, RFC 4291"),
    ("fec0::/10", "site-local, RFC 3879"),
    ("ff00::/8", "multicast, RFC 4291"),
];

impl Host {
    /// What is the matter with an address, or with a part of a range, that is not of the public network.
    pub fn not_public(&self) -> Option<&'static str> {
        let range = |text: &str| match text.split_once('/') {
            Some((network, prefix)) => {
                Some(Host::Range { network: network.parse().ok()?, prefix: prefix.parse().ok()? })
            }
            None => None,
        };
        let found = NOT_PUBLIC
            .iter()
            .find(|(text, _)| range(text).is_some_and(|range| range.covers(self) || self.covers(&range)));
        found.map(|(_, why)| *why)
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

fn in_range(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    address.is_ipv4() == network.is_ipv4() && first_of_range(address, prefix) == network
}

fn bits(address: IpAddr) -> usize {
    if address.is_ipv4() { 32 } else { 128 }
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

impl Serialize for Denial {
    /// As text, in the grammar that it is read by.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Denial {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Denial, D::Error> {
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

/// Reads a destination; its ports are `None` where it names none.
fn read(text: &str) -> Result<(Host, Option<Vec<u16>>), OutboundError> {
    let parts = || {
        refuse_other_words(text)?;
        let (host, ports) = split(text)?;
        if host.is_empty() {
            return Err(Wrong { why: "there is no host".into(), hint: None });
        }
        Ok((read_host(host)?, ports.map(read_ports).transpose()?))
    };
    parts().map_err(|why| OutboundError::new(text, why))
}

/// What people paste in place of a destination.
fn refuse_other_words(text: &str) -> Result<(), Wrong> {
    if let Some((_, zone)) = text.split_once('%') {
        return Err(wrong(&format!("%{zone}"), "is a zone, which is of one machine alone, or part of a URL"));
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let port = match scheme {
            "http" | "ws" if !host.contains(':') => ":80",
            _ => "",
        };
        return Err(wrong(&text[..scheme.len() + 3], "is the scheme of a URL").hint(format!("{host}{port}")));
    }
    match text.rsplit_once('@') {
        Some((user, host)) => Err(wrong(&text[..=user.len()], "is the user of a URL").hint(host)),
        None => Ok(()),
    }
}

/// Parts host and ports. A V6 address needs brackets where a port follows; the
/// range of one may stand in brackets as a whole.
fn split(text: &str) -> Result<(&str, Option<&str>), Wrong> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("[", "is not closed by `]`"))?;
        if !host.contains(':') {
            return Err(wrong(host, "stands in brackets, which are for IPv6 addresses"));
        }
        let ports = match rest {
            "" => None,
            _ => Some(rest.strip_prefix(':').ok_or_else(|| wrong(rest, "follows `]` where `:PORT` would"))?),
        };
        return Ok((host, ports));
    }
    match text.split_once(':') {
        None => Ok((text, None)),
        Some((host, ports)) if !ports.contains(':') => Ok((host, Some(ports))),
        Some(_) if is_v6(text) => Ok((text, None)),
        Some(_) => Err(wrong(text, "holds several `:` and is no IPv6 address")
            .hint("an IPv6 address stands in brackets where a port follows: [2001:db8::1]:443")),
    }
}

fn is_v6(text: &str) -> bool {
    text.split('/').next().is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

fn read_ports(text: &str) -> Result<Vec<u16>, Wrong> {
    if text.is_empty() {
        return Err(wrong(":", "is not followed by a port"));
    }
    if text == "*" {
        return Err(wrong(":*", "is no port: each is named").hint("HOST:PORT,PORT"));
    }
    let mut ports = text.split(',').map(read_port).collect::<Result<Vec<u16>, Wrong>>()?;
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

fn read_port(text: &str) -> Result<u16, Wrong> {
    let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    number.filter(|port| *port > 0).ok_or_else(|| wrong(text, "is no port from 1 to 65535"))
}

fn read_host(text: &str) -> Result<Host, Wrong> {
    if let Some((network, prefix)) = text.split_once('/') {
        return read_range(network, prefix);
    }
    match text.parse::<IpAddr>() {
        Ok(address) if address.is_unspecified() => Err(wrong(text, "is the address of no machine")),
        Ok(address) => Ok(Host::Address(address.to_canonical())),
        Err(_) if text.contains(':') => Err(wrong(text, "is no IPv6 address")),
        Err(_) => read_pattern(text),
    }
}

fn read_range(network: &str, prefix: &str) -> Result<Host, Wrong> {
    let address: IpAddr = network.parse().map_err(|_| {
        wrong(&format!("/{prefix}"), format_args!("follows `{}`, which is no address", network.escape_debug()))
            .hint("a destination has no path; a range of addresses is ADDRESS/BITS")
    })?;
    let longest = bits(address);
    let number = prefix.bytes().all(|b| b.is_ascii_digit()).then(|| prefix.parse::<u8>().ok()).flatten();
    let prefix = number
        .filter(|bits| usize::from(*bits) <= longest)
        .ok_or_else(|| wrong(&format!("/{prefix}"), format_args!("is no number of bits from 0 to {longest}")))?;
    let first = first_of_range(address, prefix);
    if first != address {
        return Err(wrong(network, format_args!("has bits behind the first {prefix}"))
            .hint(format!("the range is {first}/{prefix}")));
    }
    // `::ffff:10.0.0.0/104` is what connects to 10.0.0.0/8.
    match (address, address.to_canonical()) {
        (IpAddr::V6(_), IpAddr::V4(v4)) if prefix >= 96 => Ok(Host::Range { network: v4.into(), prefix: prefix - 96 }),
        _ => Ok(Host::Range { network: address, prefix }),
    }
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

/// A name, or `*.` and a suffix.
fn read_pattern(text: &str) -> Result<Host, Wrong> {
    if text == "*" {
        return Err(wrong(text, "alone stands for every host")
            .hint("*.SUFFIX stands for all names below a suffix; --allow-all-net grants every host"));
    }
    match text.strip_prefix("*.") {
        Some(suffix) => Ok(Host::Suffix(read_name(suffix)?)),
        None => Ok(Host::Name(read_name(text)?)),
    }
}

/// A name in lower case, its international parts in their `xn--` form (UTS 46, not transitional).
fn read_name(text: &str) -> Result<String, Wrong> {
    if text.contains('*') {
        return Err(wrong(text, "holds a `*`, which stands only as `*.` before a suffix"));
    }
    let name = to_ascii(text)?;
    let name = name.strip_suffix('.').unwrap_or(&name);
    if name.is_empty() {
        return Err(wrong(text, "is no name"));
    }
    if name.len() > 253 {
        return Err(wrong(text, format_args!("has {} characters, of at most 253", name.len())));
    }
    for label in name.split('.') {
        label_is_right(label).map_err(|why| wrong(label, why))?;
    }
    // `127.1`, `0x7f.1` and `2130706433` are addresses to getaddrinfo.
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return Err(wrong(name, "is no name, since it ends in a number, and no address of four numbers from 0 to 255"));
    }
    Ok(name.into())
}

fn to_ascii(text: &str) -> Result<String, Wrong> {
    let lower = text.to_ascii_lowercase();
    if lower.is_ascii() && !lower.split('.').any(|label| label.starts_with("xn--")) {
        return Ok(lower);
    }
    match idna::domain_to_ascii(&lower) {
        Ok(name) => Ok(name),
        Err(_) => {
            let bad = lower.split('.').find(|label| idna::domain_to_ascii(label).is_err()).unwrap_or(&lower);
            Err(wrong(bad, "is no international name (IDNA)"))
        }
    }
}

fn label_is_right(label: &str) -> Result<(), &'static str> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    match label {
        "" => Err("is an empty part between two dots, or before the first"),
        _ if label.len() > 63 => Err("is a part of more than 63 characters"),
        _ if !label.bytes().all(allowed) => Err("holds something other than letters, digits, `-` and `_`"),
        _ if label.starts_with('-') || label.ends_with('-') => Err("begins or ends with `-`"),
        _ => Ok(()),
    }
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

    #[test]
    fn an_error_names_the_part_that_is_wrong() {
        let cases = [
            ("", "there is no host", "HOST"),
            (":443", "there is no host", "HOST"),
            ("https://acme.example/v1", "`https://`", "acme.example"),
            ("http://acme.example", "`http://`", "acme.example:80"),
            ("wss://acme.example:8443", "`wss://`", "acme.example:8443"),
            ("user@acme.example:22", "`user@`", "acme.example:22"),
            ("acme.example/path", "`/path`", "no path"),
            ("acme.example:", "`:`", "PORT"),
            ("acme.example:80,http", "`http` is no port", "PORT"),
            ("acme.example:80,", "`` is no port", "PORT"),
            ("acme.example:0", "`0` is no port", "PORT"),
            ("acme.example:65536", "`65536` is no port", "PORT"),
            ("acme.example:*", "`:*`", "PORT"),
            ("a..example", "`` is an empty part", "HOST"),
            ("api.-x.example", "`-x`", "HOST"),
            ("a b.example", "`a b`", "HOST"),
            ("a\n.example", "`a\\n`", "HOST"),
            ("*", "`*` alone", "--allow-all-net"),
            ("a.*.example", "`a.*.example` holds a `*`", "HOST"),
            ("127.1", "`127.1` is no name", "HOST"),
            ("10.0.0.1/8", "`10.0.0.1` has bits", "10.0.0.0/8"),
            ("10.0.0.0/33", "`/33`", "HOST"),
            ("[::1", "`[`", "[V6]"),
            ("[::1]80", "`80`", "[V6]"),
            ("[acme.example]:80", "`acme.example`", "[V6]"),
            ("::1:80:x", "`::1:80:x`", "brackets"),
            ("fe80::1%eth0", "`%eth0`", "HOST"),
            ("0.0.0.0:80", "`0.0.0.0`", "HOST"),
            ("xn--a.example", "`xn--a`", "HOST"),
            ("\u{2260}\u{338}\u{ad}a\u{200f}.example", "(IDNA)", "HOST"),
        ];
        for (text, part, hint) in cases {
            let error = text.parse::<Outbound>().expect_err(text);
            assert!(error.why.contains(part), "{text:?}: {error}");
            assert!(error.hint().contains(hint), "{text:?}: {}", error.hint());
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert!("acme.example:443".parse::<Host>().unwrap_err().why.contains("a port"));
    }

    #[test]
    fn n8_forms_of_one_thing_are_one_destination() {
        let same = [
            ("b\u{fc}cher.example", "xn--bcher-kva.example:443"),
            ("B\u{dc}CHER.Example.", "xn--bcher-kva.example:443"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example:443"),
            ("stra\u{df}e.example", "xn--strae-oqa.example:443"),
            ("*.b\u{fc}cher.example:8443", "*.xn--bcher-kva.example:8443"),
            ("acme\u{3002}example", "acme.example:443"),
            ("_dmarc.b\u{fc}cher.example", "_dmarc.xn--bcher-kva.example:443"),
            ("[::ffff:192.0.2.7]:80", "192.0.2.7:80"),
            ("[::ffff:10.0.0.0/104]:80", "10.0.0.0/8:80"),
        ];
        for (text, want) in same {
            assert_eq!(text.parse::<Outbound>().map(|o| o.to_string()), Ok(want.into()), "{text}");
        }
        // An address in other digits is one to some programs.
        for text in ["\u{ff11}27.0.0.1", "127\u{3002}1", "0x7f000001", "017700000001", "0177.0.0.1"] {
            assert!(text.parse::<Outbound>().is_err(), "{text}");
        }
    }

    #[test]
    fn n3_what_covers_what() {
        let host = |text: &str| text.parse::<Host>().unwrap_or_else(|e| panic!("{e}"));
        for (own, other) in [
            ("*.example.test", "a.example.test"),
            ("*.example.test", "a.b.example.test"),
            ("*.example.test", "*.example.test"),
            ("*.example.test", "*.b.example.test"),
            ("a.test", "a.test"),
            ("10.0.0.0/8", "10.1.2.3"),
            ("10.0.0.0/8", "10.1.0.0/16"),
            ("10.0.0.0/8", "::ffff:10.1.2.3"),
            ("0.0.0.0/0", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("fd00::/8", "fd00::1"),
        ] {
            assert!(host(own).covers(&host(other)), "{own} {other}");
        }
        for (own, other) in [
            ("*.example.test", "example.test"),
            ("*.example.test", "badexample.test"),
            ("a.test", "*.a.test"),
            ("a.test", "b.a.test"),
            ("10.0.0.0/8", "11.0.0.0"),
            ("10.0.0.0/8", "10.0.0.0/7"),
            ("10.0.0.0/8", "::a00:1"),
            ("0.0.0.0/0", "a.test"),
            ("0.0.0.0/0", "::1"),
            ("192.0.2.1", "192.0.2.0/31"),
        ] {
            if let Ok(other) = other.parse::<Host>() {
                assert!(!host(own).covers(&other), "{own} {other}");
            }
        }
        assert!(host("*.example.test").has_name("a.example.test") && !host("*.example.test").has_name(".example.test"));
        assert!(host("10.0.0.0/8").has_address("::ffff:10.0.0.1".parse().unwrap()));
        let denial: Denial = "*.evil.test".parse().unwrap();
        for (text, public) in [
            ("192.0.2.1", true),
            ("2001:db8::/32", true),
            ("a.test", true),
            ("10.1.2.3", false),
            ("169.254.169.254", false),
            ("::1", false),
            ("fd00::1", false),
            ("::ffff:127.0.0.1", false),
            ("128.0.0.0/1", false),
            ("::/0", false),
        ] {
            assert_eq!(host(text).not_public().is_none(), public, "{text}");
        }
        assert!(denial.forbids(&host("a.evil.test"), 1) && denial.forbids(&host("*.evil.test"), 65535));
        assert!(!denial.forbids(&host("*.test"), 1) && !denial.forbids(&host("evil.test"), 1));
        let denial: Denial = "10.0.0.0/8:25".parse().unwrap();
        assert!(denial.forbids(&host("10.0.0.1"), 25) && !denial.forbids(&host("10.0.0.1"), 26));
        assert_eq!(
            ["10.0.0.0/8:25", "a.test"].map(|d| d.parse::<Denial>().unwrap().to_string()),
            ["10.0.0.0/8:25", "a.test"]
        );
    }

    proptest::proptest! {
        /// Whatever is typed is an error or has one form, which means the same.
        #[test]
        fn what_is_read_is_read_again(text in "(\\PC{0,24}|[a-z0-9*./:,\\[\\]%@ü。-]{0,32}|[0-9a-f:./\\[\\]]{0,24})") {
            if let Ok(outbound) = text.parse::<Outbound>() {
                let form = outbound.to_string();
                proptest::prop_assert!(form.is_ascii(), "{form}");
                proptest::prop_assert_eq!(form.parse::<Outbound>(), Ok(outbound));
            }
            if let Ok(denial) = text.parse::<Denial>() {
                proptest::prop_assert_eq!(denial.to_string().parse::<Denial>(), Ok(denial));
            }
        }
    }
}
