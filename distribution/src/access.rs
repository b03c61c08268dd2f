//! How registries are reached: what is configured for a host, proxies, and where credentials lie.
//!
//! Nothing here opens a file: that happens when a registry is asked, and a warm start asks none.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::auth::Places;
use crate::hub::{Convert, Unmake};
use crate::{Secret, url};

/// How registries are reached. The default is what a machine without any configuration has.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// By `HOST:PORT`, or by `HOST` for all of its ports.
    pub hosts: BTreeMap<String, HostAccess>,
    /// Certificate authorities beside the machine's own for every host, PEM.
    pub ca_file: Option<PathBuf>,
    /// The proxies.
    pub proxies: Proxies,
    /// Where credentials lie.
    pub credentials: Places,
    /// How an image is made of what a hub delivers; without it hubs are not asked for packages.
    pub convert: Option<Convert>,
    /// How a hub's bundle is made of an image; without it nothing is pushed to hubs.
    pub unmake: Option<Unmake>,
    /// Whether anybody may be asked by now.
    pub door: Arc<Door>,
}

/// What keeps requests in until somebody is ready for them to take long: open, unless it was shut.
#[derive(Debug, Default)]
pub struct Door {
    shut: AtomicBool,
    knocked: AtomicBool,
}

impl Door {
    /// From here on requests fail.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
    }

    /// From here on they are sent.
    pub fn open(&self) {
        self.shut.store(false, Ordering::Relaxed);
    }

    /// Whether a request failed for it since this was asked last. What came of it has to be asked for again, also where that is
    /// no error.
    pub fn was_knocked_at(&self) -> bool {
        self.knocked.swap(false, Ordering::Relaxed)
    }

    /// Whether a request has to fail.
    pub(crate) fn stops(&self) -> bool {
        let shut = self.shut.load(Ordering::Relaxed);
        if shut {
            self.knocked.store(true, Ordering::Relaxed);
        }
        shut
    }
}

/// What is configured for one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostAccess {
    /// Asked before it, in this order: `HOST[:PORT][/PREFIX]`.
    pub mirrors: Vec<String>,
    /// Certificate authorities beside the machine's own, PEM.
    pub ca_file: Option<PathBuf>,
    /// Plain http or https; without a word https, and for this machine's own registries plain http unless they have a
    /// `ca_file`.
    pub insecure: Option<bool>,
    /// A token that goes to it alone.
    pub token: Option<Secret>,
    /// The host of its token service where that is another one: credentials may go there, too.
    pub realm: Option<String>,
}

/// Proxies for other machines; this machine's own registries are never asked through one.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    /// For https: `[http://][USER:PASSWORD@]HOST[:PORT]`.
    pub https: Option<Secret>,
    /// For plain http, which only registries have that are configured so.
    pub http: Option<Secret>,
    /// Hosts that are reached directly, as in `NO_PROXY`.
    pub direct: String,
}

impl Access {
    /// What is configured for `HOST[:PORT]`.
    pub fn host(&self, authority: &str) -> Option<&HostAccess> {
        self.hosts.get(authority).or_else(|| self.hosts.get(url::host_of(authority)))
    }

    /// Says whether a registry is spoken to by https.
    pub(crate) fn is_secure(&self, authority: &str) -> bool {
        match self.host(authority) {
            Some(HostAccess { insecure: Some(insecure), .. }) => !insecure,
            Some(HostAccess { ca_file: Some(_), .. }) => true,
            _ => !url::is_loopback(authority),
        }
    }

    /// Says whether plain http may be spoken with a host at all.
    pub(crate) fn may_be_plain(&self, authority: &str) -> bool {
        url::is_loopback(authority) || !self.is_secure(authority)
    }
}

impl Proxies {
    /// The proxy for a host, if any.
    pub(crate) fn of(&self, secure: bool, authority: &str) -> Option<&Secret> {
        let proxy = if secure { &self.https } else { &self.http };
        let direct =
            url::is_loopback(authority) || self.direct.split(',').any(|entry| matches(entry.trim(), authority));
        proxy.as_ref().filter(|proxy| !direct && !proxy.expose().is_empty())
    }
}

/// One entry of `NO_PROXY`, as curl and Go read it: `*`; a host, which stands for what is beneath it too; the same with
/// a leading dot or `*.`; any of them with a port; an address or a range of addresses.
fn matches(entry: &str, authority: &str) -> bool {
    let host = url::host_of(authority);
    let (wanted, port) = match entry.rsplit_once(':') {
        Some((wanted, port)) if !wanted.contains(':') || wanted.ends_with(']') => (wanted, Some(port)),
        _ => (entry, None),
    };
    if port.is_some_and(|port| url::port_of(authority).unwrap_or("443") != port) {
        return false;
    }
    let plain = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let (wanted, host) = (plain(wanted), plain(host));
    if let Some((network, bits)) = wanted.split_once('/') {
        return in_range(&host, network, bits).unwrap_or(false);
    }
    match wanted.strip_prefix("*.").or_else(|| wanted.strip_prefix('.')).unwrap_or(&wanted) {
        "*" => true,
        "" => false,
        name => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
    }
}

fn in_range(host: &str, network: &str, bits: &str) -> Option<bool> {
    use std::net::IpAddr::{V4, V6};
    let bits: u32 = bits.parse().ok()?;
    let (host, network, width) = match (host.parse().ok()?, network.parse().ok()?) {
        (V4(host), V4(network)) => (u128::from(host.to_bits()), u128::from(network.to_bits()), 32),
        (V6(host), V6(network)) => (host.to_bits(), network.to_bits(), 128),
        _ => return None,
    };
    let away = u32::checked_sub(width, bits)?;
    Some((host ^ network).checked_shr(away).unwrap_or(0) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a7_what_no_proxy_means() {
        for (entry, authority, want) in [
            ("*", "a.example", true),
            ("a.example", "a.example", true),
            ("a.example", "A.example:5000", true),
            ("a.example", "b.a.example", true),
            ("a.example", "ba.example", false),
            (".a.example", "b.a.example", true),
            ("*.a.example", "b.a.example", true),
            ("a.example:5000", "a.example:5000", true),
            ("a.example:5000", "a.example", false),
            ("a.example:443", "a.example", true),
            ("10.0.0.0/8", "10.1.2.3:5000", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("10.0.0.0/33", "10.1.2.3", false),
            ("0.0.0.0/0", "10.1.2.3", true),
            ("fd00::/8", "[fd00::1]:5000", true),
            ("10.0.0.0/8", "a.example", false),
            ("", "a.example", false),
        ] {
            assert_eq!(matches(entry, authority), want, "{entry} {authority}");
        }
    }

    #[test]
    fn a7_this_machine_is_never_asked_through_a_proxy() {
        let proxies =
            Proxies { https: Some(Secret::new("http://p:1")), direct: "x.example, y.example".into(), http: None };
        for (authority, want) in
            [("a.example", true), ("y.example:1", false), ("localhost:5000", false), ("[::1]", false)]
        {
            assert_eq!(proxies.of(true, authority).is_some(), want, "{authority}");
        }
        assert!(proxies.of(false, "a.example").is_none());
    }

    #[test]
    fn which_scheme_a_host_has() {
        let named =
            |ca: bool, insecure| HostAccess { ca_file: ca.then(|| "/ca".into()), insecure, ..HostAccess::default() };
        let hosts = [
            ("localhost:1", named(true, None)),
            ("localhost:2", named(false, Some(false))),
            ("old.example", named(false, Some(true))),
        ];
        let access = Access { hosts: hosts.map(|(name, host)| (name.into(), host)).into(), ..Access::default() };
        for (authority, secure, plain) in [
            ("a.example", true, false),
            ("localhost:1", true, true),
            ("localhost:2", true, true),
            ("localhost:3", false, true),
            ("old.example", false, true),
            ("old.example:8080", false, true),
        ] {
            assert_eq!((access.is_secure(authority), access.may_be_plain(authority)), (secure, plain), "{authority}");
        }
    }
}
