//! Where a run may connect to: what the manifest asks for within the policy's ceiling, and what the flags name.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::Verdict;
use crate::outbound::{Denial, Host, Outbound};
use crate::policy::Sourced;

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
    /// What is not reached for all that: the policy's `deny`, which may lie in a range or be what a name resolves to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denial>,
    /// Where there are no namespaces, the ports alone may be what is enforced: the user said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_port: bool,
    /// What is tried is looked at and told, also where nothing is granted, as `smcp learn` wants it. Takes a network namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observed: bool,
}

impl Egress {
    /// Nothing is granted, and nobody looks: there is loopback alone.
    pub fn is_empty(&self) -> bool {
        self.grants_nothing() && !self.observed
    }

    /// Nothing is granted.
    pub fn grants_nothing(&self) -> bool {
        self.outbound.is_empty() && self.host_ports.is_empty() && !self.any
    }
}

/// What the flags say of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkFlags {
    /// `--allow-net`.
    pub outbound: Vec<Outbound>,
    /// `--allow-host-port`.
    pub host_ports: Vec<u16>,
    /// `--allow-all-net`.
    pub any: bool,
    /// `--net-by-port`.
    pub by_port: bool,
}

/// `policy.ceilings.network`: the most that a manifest or a flag may be granted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkCeiling {
    /// One list for each policy that has one; all of them must allow.
    allow: Vec<Sourced<Vec<Outbound>>>,
    /// All of them deny.
    deny: Vec<Sourced<Denial>>,
}

impl NetworkCeiling {
    /// What one policy says. Without `allow` it allows all that it does not deny.
    pub fn new(allow: Option<Sourced<Vec<Outbound>>>, deny: Vec<Sourced<Denial>>) -> NetworkCeiling {
        NetworkCeiling { allow: allow.into_iter().collect(), deny }
    }

    /// What lies below both.
    #[must_use]
    pub fn and(self, other: NetworkCeiling) -> NetworkCeiling {
        NetworkCeiling { allow: [self.allow, other.allow].concat(), deny: [self.deny, other.deny].concat() }
    }

    /// The lists of `allow`, one for each policy that has one.
    pub fn allow(&self) -> &[Sourced<Vec<Outbound>>] {
        &self.allow
    }

    /// What is denied.
    pub fn deny(&self) -> &[Sourced<Denial>] {
        &self.deny
    }

    /// What of one destination is allowed, and what stands in the way of the rest.
    fn narrow(&self, host: &Host, port: u16) -> Allowed {
        if let Some(Sourced { value, source }) = self.deny.iter().find(|denial| denial.value.forbids(host, port)) {
            return Allowed::Nothing(format!("the policy denies {value} ({source})"));
        }
        let mut hosts = vec![host.clone()];
        let mut narrowed = None;
        for Sourced { value: list, source } in &self.allow {
            let before = hosts.clone();
            let of_port = || list.iter().filter(|allowed| allowed.ports.contains(&port)).map(|allowed| &allowed.host);
            hosts = hosts
                .iter()
                .flat_map(|host| match of_port().any(|allowed| allowed.covers(host)) {
                    true => vec![host.clone()],
                    false => of_port().filter(|allowed| host.covers(allowed)).cloned().collect(),
                })
                .collect();
            if hosts != before {
                narrowed = Some(source);
            }
        }
        let by = narrowed.map_or_else(String::new, |source| format!(" ({source})"));
        // What is left of a range or suffix may be denied as a whole.
        hosts.retain(|host| !self.deny.iter().any(|denial| denial.value.forbids(host, port)));
        match hosts.as_slice() {
            [] => Allowed::Nothing(format!("the policy's ceiling does not allow it{by}")),
            [only] if only == host => Allowed::All,
            _ => Allowed::Some(hosts, by),
        }
    }
}

/// What a ceiling leaves of a destination.
enum Allowed {
    All,
    /// These alone, by which policy.
    Some(Vec<Host>, String),
    Nothing(String),
}

/// Judges the request of a manifest and the flags. What the manifest asks for beyond the ceiling is withheld; a flag beyond
/// it stops the run.
pub(super) fn judge(
    asked: &[Outbound],
    flags: &NetworkFlags,
    ceiling: &NetworkCeiling,
    verdict: &mut Verdict,
) -> Egress {
    let mut granted = Granted::default();
    for outbound in asked {
        request(outbound, flags, ceiling, &mut granted, verdict);
    }
    for outbound in &flags.outbound {
        flag(outbound, ceiling, &mut granted, verdict);
    }
    let loopback = Host::Address(Ipv4Addr::LOCALHOST.into());
    for port in &flags.host_ports {
        if let Allowed::Nothing(why) = ceiling.narrow(&loopback, *port) {
            let hint = format!("the ceiling must allow 127.0.0.1:{port}: {CEILING}");
            verdict.policy(format!("--allow-host-port {port}: {why}"), hint);
        }
    }
    if let Some(Sourced { source, .. }) = ceiling.allow.first().filter(|_| flags.any) {
        let what = format!("--allow-all-net: the policy's ceiling allows named destinations alone ({source})");
        verdict.policy(what, CEILING.to_string());
    }
    let sources = ceiling.allow.iter().map(|list| &list.source).chain(ceiling.deny.iter().map(|denial| &denial.source));
    if let Some(source) = sources.into_iter().next().filter(|_| flags.by_port) {
        let hint = format!("leave it out; {CEILING}");
        let what =
            format!("--net-by-port: the policy's ceiling names hosts, which ports alone do not keep to ({source})");
        verdict.policy(what, hint);
    }
    let mut host_ports = flags.host_ports.clone();
    host_ports.sort_unstable();
    host_ports.dedup();
    let egress = Egress {
        outbound: granted.list(),
        host_ports,
        any: flags.any,
        by_port: flags.by_port,
        denied: vec![],
        observed: false,
    };
    if egress.is_empty() {
        return Egress::default();
    }
    let mut denied: Vec<Denial> = ceiling.deny.iter().map(|denial| denial.value.clone()).collect();
    denied.sort_unstable();
    denied.dedup();
    Egress { denied, ..egress }
}

const CEILING: &str = "policy.ceilings.network in the configuration is the most that a run may be granted";

/// Destinations as they are gathered: each host once.
#[derive(Default)]
struct Granted(BTreeMap<Host, Vec<u16>>);

impl Granted {
    fn add(&mut self, host: &Host, port: u16) {
        self.0.entry(host.clone()).or_default().push(port);
    }

    fn list(self) -> Vec<Outbound> {
        self.0.into_iter().map(|(host, ports)| Outbound::new(host, ports)).collect()
    }
}

/// An absent ceiling is no ceiling: what the manifest names is granted as asked, but for addresses of the machine's own
/// networks, for all of a top-level domain and for large ranges. Those take the user's word.
fn request(
    outbound: &Outbound,
    flags: &NetworkFlags,
    ceiling: &NetworkCeiling,
    granted: &mut Granted,
    verdict: &mut Verdict,
) {
    let given =
        |port: &u16| flags.outbound.iter().any(|flag| flag.ports.contains(port) && flag.host.covers(&outbound.host));
    let left: Vec<u16> = outbound.ports.iter().copied().filter(|port| !given(port)).collect();
    if left.is_empty() {
        return;
    }
    let whole = Outbound::new(outbound.host.clone(), left.iter().copied());
    if let Some(why) = takes_a_word(&outbound.host) {
        verdict.withhold(format!("network {whole}"), &why, Some(format!("--allow-net {whole}")));
        return;
    }
    let mut refused: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for port in left {
        match ceiling.narrow(&outbound.host, port) {
            Allowed::All => granted.add(&outbound.host, port),
            Allowed::Some(hosts, by) => {
                hosts.iter().for_each(|host| granted.add(host, port));
                let names: Vec<String> = hosts.iter().map(Host::to_string).collect();
                let why = format!("the policy's ceiling allows {} of it alone{by}", names.join(", "));
                refused.entry(why).or_default().push(port);
            }
            Allowed::Nothing(why) => refused.entry(why).or_default().push(port),
        }
    }
    for (why, ports) in refused {
        verdict.withhold(format!("network {}", Outbound::new(outbound.host.clone(), ports)), &why, None);
    }
}

fn takes_a_word(host: &Host) -> Option<String> {
    match host {
        Host::Suffix(suffix) if !suffix.contains('.') => Some("it is all of a top-level domain".into()),
        // A provider's network is not larger.
        Host::Range { network, prefix } if *prefix < if network.is_ipv4() { 16 } else { 32 } => {
            Some("it is a large part of all addresses".into())
        }
        _ => host.not_public().map(|why| format!("its addresses are not public ({why})")),
    }
}

fn flag(outbound: &Outbound, ceiling: &NetworkCeiling, granted: &mut Granted, verdict: &mut Verdict) {
    let mut reasons: BTreeMap<String, Vec<u16>> = BTreeMap::new();
    for port in &outbound.ports {
        let why = match ceiling.narrow(&outbound.host, *port) {
            Allowed::All => {
                granted.add(&outbound.host, *port);
                continue;
            }
            Allowed::Some(_, by) => format!("the policy's ceiling allows a part of it alone{by}"),
            Allowed::Nothing(why) => why,
        };
        reasons.entry(why).or_default().push(*port);
    }
    for (why, ports) in reasons {
        let refused = Outbound::new(outbound.host.clone(), ports);
        verdict.policy(format!("--allow-net {refused}: {why}"), CEILING.to_string());
    }
    if own_loopback(&outbound.host) {
        let ports: Vec<String> = outbound.ports.iter().map(|port| format!("--allow-host-port {port}")).collect();
        let what = "inside, this is the cage's own loopback: to the host's leads";
        verdict.notes.push(format!("--allow-net {outbound}: {what} {}", ports.join(" ")));
    }
}

fn own_loopback(host: &Host) -> bool {
    match host {
        Host::Address(address) => address.is_loopback(),
        Host::Range { network, .. } => network.is_loopback(),
        Host::Name(name) => name == "localhost",
        Host::Suffix(suffix) => suffix == "localhost",
    }
}
