//! What is granted, as questions that connections ask.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bundle::{Denial, Egress, Host, Outbound};

use super::guard::is_forbidden;

/// As long as a name may be, RFC 1035.
const LONGEST_NAME: usize = 253;

/// A name in the form in which names are compared: lower case, without the final dot, 1 to 253 bytes of printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<str>);

impl Name {
    /// None where it is no name: an address, nothing, too long, or with bytes that no host has.
    pub fn new(text: &str) -> Option<Name> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let right = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        };
        let last = text.rsplit('.').next().unwrap_or_default();
        // `127.1`, `0x7f.1` and `2130706433` are addresses to getaddrinfo(3).
        let number = last.bytes().all(|b| b.is_ascii_digit())
            || last.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
        (text.len() <= LONGEST_NAME && text.split('.').all(right) && !number)
            .then(|| Name(text.to_ascii_lowercase().into()))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it stands below `suffix`, which has no leading dot: `a.b.test` does below `b.test`, `b.test` does not.
    pub fn is_below(&self, suffix: &str) -> bool {
        self.0.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

/// Where a run may connect to.
#[derive(Debug)]
pub struct Rules {
    outbound: Vec<Outbound>,
    host_ports: Vec<u16>,
    any: bool,
    denied: Vec<Denial>,
}

/// The ports of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ports {
    /// These; at least one.
    These(Vec<u16>),
    /// All.
    Any,
}

/// Why a connection is within the grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted<'a> {
    /// This name alone.
    Exactly,
    /// Any name below this suffix.
    Below(&'a str),
    /// Any name.
    Any,
}

impl Rules {
    /// Those of a grant.
    pub fn new(egress: &Egress) -> Rules {
        let Egress { outbound, host_ports, any, denied, .. } = egress.clone();
        Rules { outbound, host_ports, any, denied }
    }

    /// Whether the policy denies a name or an address, on this port or, where there is none yet, on any.
    pub fn denies(&self, host: &str, port: Option<u16>) -> bool {
        let denied = self.denied.iter().filter(|denial| port.is_none_or(|port| denial.has_port(port)));
        match host.parse::<IpAddr>() {
            Ok(address) => denied.into_iter().any(|denial| denial.host.has_address(address)),
            Err(_) => denied.into_iter().any(|denial| denial.host.has_name(host)),
        }
    }

    /// Whether the policy denies anything.
    pub fn denies_some(&self) -> bool {
        !self.denied.is_empty()
    }

    fn denies_name(&self, name: &Name, port: u16) -> bool {
        self.denied.iter().any(|denial| denial.has_port(port) && denial.host.has_name(name.as_str()))
    }

    /// Whether the policy denies an address on a port, also as one that a name stands for.
    pub fn denies_address(&self, address: IpAddr, port: u16) -> bool {
        self.denied.iter().any(|denial| denial.has_port(port) && denial.host.has_address(address))
    }

    /// Whether everything public is granted.
    pub fn any(&self) -> bool {
        self.any
    }

    /// The ports on which a name may be reached; none where it is not granted at all.
    pub fn ports(&self, name: &Name) -> Option<Ports> {
        if self.any {
            let all = self.denied.iter().any(|denial| denial.ports.is_empty() && denial.host.has_name(name.as_str()));
            return (!all).then_some(Ports::Any);
        }
        let mut ports: Vec<u16> =
            self.outbound.iter().filter(|rule| names(rule, name)).flat_map(|rule| &rule.ports).copied().collect();
        ports.retain(|port| !self.denies_name(name, *port));
        ports.sort_unstable();
        ports.dedup();
        (!ports.is_empty()).then_some(Ports::These(ports))
    }

    /// The rule by which a name may be reached on a port; the narrowest.
    pub fn granted(&self, name: &Name, port: u16) -> Option<Granted<'_>> {
        if self.denies_name(name, port) {
            return None;
        }
        let mut found = self.any.then_some(Granted::Any);
        for rule in self.outbound.iter().filter(|rule| rule.ports.contains(&port) && names(rule, name)) {
            match &rule.host {
                Host::Name(_) => return Some(Granted::Exactly),
                Host::Suffix(suffix) => match found {
                    Some(Granted::Below(longest)) if longest.len() >= suffix.len() => {}
                    _ => found = Some(Granted::Below(suffix)),
                },
                Host::Address(_) | Host::Range { .. } => {}
            }
        }
        found
    }

    /// Whether an address was granted as such on a port. One that carries an IPv4 address is also that address.
    pub fn grants_address(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        self.outbound.iter().any(|rule| rule.ports.contains(&port) && holds(&rule.host, address))
    }

    /// Whether an address that is not public was granted as such: by itself, or by a range that has nothing public in it.
    /// `0.0.0.0/0` stands for the public ones alone.
    pub fn grants_special(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        self.outbound.iter().any(|rule| {
            let special = match rule.host {
                Host::Range { network, prefix } => is_special(network, prefix),
                _ => true,
            };
            special && rule.ports.contains(&port) && holds(&rule.host, address)
        })
    }

    /// Whether a connection to this address may be made as such.
    pub fn reaches(&self, address: IpAddr, port: u16) -> bool {
        if self.denies_address(address, port) {
            return false;
        }
        if is_forbidden(address) {
            return self.grants_special(address, port);
        }
        self.any || self.grants_address(address, port)
    }

    /// Whether a port of the host's loopback is granted.
    pub fn grants_host_port(&self, port: u16) -> bool {
        self.host_ports.contains(&port)
    }

    /// Whether a granted name stands below this one, which is not granted itself.
    pub fn has_below(&self, name: &Name) -> bool {
        self.outbound.iter().any(|rule| match &rule.host {
            Host::Name(granted) | Host::Suffix(granted) => {
                granted == name.as_str() || Name(granted.as_str().into()).is_below(name.as_str())
            }
            Host::Address(_) | Host::Range { .. } => false,
        })
    }

    /// Addresses that are granted by themselves, with their ports.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &[u16])> {
        self.outbound.iter().filter_map(|rule| match rule.host {
            Host::Address(address) => Some((address, rule.ports.as_slice())),
            _ => None,
        })
    }

    /// First address and prefix of each range that is granted, with its ports.
    pub fn ranges(&self) -> impl Iterator<Item = (IpAddr, u8, &[u16])> {
        self.outbound.iter().filter_map(|rule| match rule.host {
            Host::Range { network, prefix } => Some((network, prefix, rule.ports.as_slice())),
            _ => None,
        })
    }
}

impl Granted<'_> {
    /// Whether the rule that let a connection to `name` through also names `other`.
    pub fn covers(&self, name: &Name, other: &Name) -> bool {
        match self {
            Granted::Exactly => name == other,
            Granted::Below(suffix) => other.is_below(suffix),
            Granted::Any => true,
        }
    }
}

/// Whether a rule names this name.
fn names(rule: &Outbound, name: &Name) -> bool {
    match &rule.host {
        Host::Name(granted) => granted == name.as_str(),
        Host::Suffix(suffix) => name.is_below(suffix),
        Host::Address(_) | Host::Range { .. } => false,
    }
}

fn holds(host: &Host, address: IpAddr) -> bool {
    match host {
        Host::Address(granted) => granted.to_canonical() == address,
        Host::Range { network, prefix } => in_range(*network, *prefix, address),
        Host::Name(_) | Host::Suffix(_) => false,
    }
}

/// Whether an address is in the range of a prefix; never one of another family.
pub fn in_range(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            network.to_bits() & mask == address.to_bits() & mask
        }
        // `::ffff:0:0/96` and longer are ranges of IPv4 written otherwise.
        (IpAddr::V6(network), IpAddr::V4(address)) if prefix >= 96 => match network.to_ipv4_mapped() {
            Some(network) => in_range(network.into(), prefix - 96, address.into()),
            None => false,
        },
        _ => false,
    }
}

/// Whether a range lies within one that is not public. None of these is longer than the prefixes that are asked for here.
fn is_special(network: IpAddr, prefix: u8) -> bool {
    let last = match network {
        IpAddr::V4(v4) if prefix >= 8 => {
            Ipv4Addr::from_bits(v4.to_bits() | u32::MAX.checked_shr(prefix.into()).unwrap_or(0)).into()
        }
        IpAddr::V6(v6) if prefix >= 7 => {
            Ipv6Addr::from_bits(v6.to_bits() | u128::MAX.checked_shr(prefix.into()).unwrap_or(0)).into()
        }
        _ => return false,
    };
    is_forbidden(network) && is_forbidden(last)
}

/// The loopback address of each family.
pub const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(outbound: &[&str]) -> Rules {
        let outbound = outbound.iter().map(|text| text.parse().unwrap()).collect();
        Rules::new(&Egress { outbound, ..Egress::default() })
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn a_suffix_names_what_is_below_it_alone() {
        let rules = rules(&["*.example.test:443"]);
        for granted in ["a.example.test", "a.b.example.test", "A.EXAMPLE.Test.", "_x.example.test"] {
            assert_eq!(rules.granted(&name(granted), 443), Some(Granted::Below("example.test")), "{granted}");
        }
        for other in ["example.test", "badexample.test", "a.example.test.evil.test", "test", "a.example.tes"] {
            assert_eq!(rules.granted(&name(other), 443), None, "{other}");
            assert_eq!(rules.ports(&name(other)), None, "{other}");
        }
        assert_eq!(rules.granted(&name("a.example.test"), 80), None);
    }

    #[test]
    fn the_policys_denials_win() {
        let egress = |any| Egress {
            outbound: vec!["*.acme.test:443,80".parse().unwrap(), "192.0.0.0/16:80".parse().unwrap()],
            any,
            denied: ["evil.acme.test", "half.acme.test:80", "192.0.2.0/24"].map(|text| text.parse().unwrap()).to_vec(),
            ..Egress::default()
        };
        let rules = Rules::new(&egress(false));
        assert_eq!(rules.ports(&name("evil.acme.test")), None);
        assert_eq!(rules.ports(&name("half.acme.test")), Some(Ports::These(vec![443])));
        assert_eq!(rules.granted(&name("half.acme.test"), 80), None);
        assert_eq!(rules.granted(&name("evil.acme.test"), 443), None);
        assert!(rules.granted(&name("good.acme.test"), 443).is_some());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(!rules.reaches(address("192.0.2.1"), 80) && !rules.reaches(address("::ffff:192.0.2.1"), 80));
        assert!(rules.reaches(address("192.0.9.1"), 80));
        assert!(rules.denies("192.0.2.1", Some(1)) && rules.denies("half.acme.test", None));
        assert!(!rules.denies("half.acme.test", Some(443)) && !rules.denies("good.acme.test", None));
        let rules = Rules::new(&egress(true));
        assert_eq!(rules.ports(&name("evil.acme.test")), None);
        assert_eq!(rules.ports(&name("half.acme.test")), Some(Ports::Any));
        assert_eq!(rules.granted(&name("half.acme.test"), 80), None);
        assert!(!rules.reaches(address("192.0.2.1"), 1) && rules.reaches(address("9.9.9.9"), 1));
    }

    #[test]
    fn what_is_no_name() {
        let long = "a.".repeat(127) + "a";
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a b",
            "a/b",
            "bücher.test",
            "1.2.3.4",
            "127.1",
            "2130706433",
            "0x7f.1",
            "a.0X1",
            "a\0.test",
            "*.test",
            &long,
            &"a".repeat(64),
            "a..",
        ] {
            assert_eq!(Name::new(text), None, "{text}");
        }
        assert_eq!(name("API.Example.TEST.").as_str(), "api.example.test");
        assert_eq!(name(&"a.".repeat(127)[..253]).as_str().len(), 253);
    }

    #[test]
    fn ports_of_all_rules_of_a_name_together() {
        let rules = rules(&["a.example.test:80", "*.example.test:443", "*.a.example.test:22", "a.example.test:443"]);
        assert_eq!(rules.ports(&name("a.example.test")), Some(Ports::These(vec![80, 443])));
        assert_eq!(rules.ports(&name("b.a.example.test")), Some(Ports::These(vec![22, 443])));
        assert_eq!(rules.granted(&name("a.example.test"), 443), Some(Granted::Exactly));
        assert_eq!(rules.granted(&name("a.example.test"), 22), None);
    }

    #[test]
    fn the_narrowest_suffix_decides() {
        let rules = rules(&["*.test:443", "*.example.test:443", "*.b.example.test:443"]);
        assert_eq!(rules.granted(&name("a.example.test"), 443), Some(Granted::Below("example.test")));
        assert!(Granted::Below("example.test").covers(&name("a.example.test"), &name("c.example.test")));
        assert!(!Granted::Below("example.test").covers(&name("a.example.test"), &name("c.test")));
        assert!(!Granted::Exactly.covers(&name("a.example.test"), &name("c.example.test")));
    }

    #[test]
    fn addresses_and_ranges() {
        let rules = rules(&["10.0.0.0/8:5432", "192.0.2.7:25", "[fd00::/8]:80", "[::ffff:172.16.0.0/108]:99"]);
        let is = |address: &str, port| rules.grants_address(address.parse().unwrap(), port);
        assert!(is("10.255.0.1", 5432) && is("192.0.2.7", 25) && is("fd12::1", 80) && is("172.16.9.1", 99));
        assert!(is("::ffff:10.0.0.1", 5432), "another way to write it");
        assert!(!is("10.0.0.1", 80) && !is("11.0.0.1", 5432) && !is("192.0.2.8", 25) && !is("fe00::1", 80));
        assert!(!is("172.32.0.1", 99) && !is("::10.0.0.1", 5432));
        let all = super::tests::rules(&["0.0.0.0/0:1", "[::/0]:2"]);
        let is = |address: &str, port| all.grants_address(address.parse().unwrap(), port);
        assert!(is("9.9.9.9", 1) && is("fe80::1", 2) && !is("9.9.9.9", 2) && !is("fe80::1", 1));
    }

    #[test]
    fn a_wide_range_stands_for_what_is_public_in_it() {
        let wide = rules(&["0.0.0.0/0:443", "[::/0]:443", "100.0.0.0/8:443", "169.0.0.0/8:443"]);
        for public in ["1.1.1.1", "100.1.1.1", "2606:4700::1", "::ffff:1.1.1.1"] {
            assert!(wide.reaches(public.parse().unwrap(), 443), "{public}");
        }
        for special in ["127.0.0.1", "10.0.0.1", "100.64.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1"]
        {
            assert!(!wide.reaches(special.parse().unwrap(), 443), "{special}");
        }
        let narrow = rules(&[
            "127.0.0.0/8:443",
            "10.0.0.0/8:443",
            "169.254.169.254:443",
            "[fc00::/7]:443",
            "[::1]:443",
            "192.168.0.0/16:443",
        ]);
        for special in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:127.0.0.1", "192.168.3.4"]
        {
            assert!(narrow.reaches(special.parse().unwrap(), 443), "{special}");
            assert!(!narrow.reaches(special.parse().unwrap(), 80), "{special}");
        }
    }

    #[test]
    fn a_name_above_a_granted_one_is_there_without_addresses() {
        let rules = rules(&["a.example.test:443", "*.b.test:443"]);
        for above in ["example.test", "test", "b.test"] {
            assert!(rules.has_below(&name(above)), "{above}");
        }
        for other in ["xexample.test", "c.test", "x.a.example.test"] {
            assert!(!rules.has_below(&name(other)), "{other}");
        }
    }

    #[test]
    fn everything_public_is_every_name_and_no_address_of_its_own() {
        let rules = Rules::new(&Egress { any: true, ..Egress::default() });
        assert_eq!(rules.granted(&name("a.test"), 1), Some(Granted::Any));
        assert!(!rules.grants_address("127.0.0.1".parse().unwrap(), 1));
    }
}
