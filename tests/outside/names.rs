//! The names of the tests and their addresses, as near's `/etc/hosts` has them.

use std::fmt::Write as _;
use std::net::IpAddr;

/// Each with its addresses.
pub const NAMES: &[(&str, &[&str])] = &[
    ("localhost", &["127.0.0.1", "::1"]),
    ("allowed.test", &["20.1.0.1", "2a00:1::1"]),
    ("denied.test", &["20.2.0.1", "2a00:2::1"]),
    ("plain.test", &["20.3.0.1"]),
    ("db.test", &["20.4.0.1"]),
    ("example.test", &["20.5.0.1"]),
    ("a.example.test", &["20.5.0.2"]),
    ("a.b.example.test", &["20.5.0.3"]),
    ("badexample.test", &["20.5.0.9"]),
    ("six.test", &["2a00:6::1"]),
    ("xn--bcher-kva.test", &["20.7.0.1"]),
    // A good address beside one that is refused.
    ("mixed.test", &["10.0.0.7", "20.8.0.1"]),
    // The machine's own address, which is neither loopback nor private.
    ("own.test", &["44.0.0.1"]),
    ("to-loopback.test", &["127.0.0.1"]),
    ("to-loopback-elsewhere.test", &["127.9.9.9"]),
    ("to-private.test", &["10.0.0.1"]),
    ("to-private-172.test", &["172.16.0.1"]),
    ("to-private-192.test", &["192.168.0.1"]),
    ("to-metadata.test", &["169.254.169.254"]),
    ("to-shared.test", &["100.64.0.1"]),
    ("to-zero.test", &["0.0.0.0"]),
    ("to-multicast.test", &["224.0.0.251"]),
    ("to-broadcast.test", &["255.255.255.255"]),
    ("to-loopback6.test", &["::1"]),
    ("to-unique-local.test", &["fd00::1"]),
    ("to-metadata6.test", &["fd00:ec2::254"]),
    ("to-link-local.test", &["fe80::1"]),
    ("to-mapped.test", &["::ffff:127.0.0.1"]),
    ("to-mapped-private.test", &["::ffff:10.0.0.1"]),
    ("to-nat64.test", &["64:ff9b::a9fe:a9fe"]),
    ("to-6to4.test", &["2002:7f00:1::1"]),
    ("to-unspecified6.test", &["::"]),
];

/// The addresses of a name.
#[track_caller]
pub fn addresses(name: &str) -> Vec<IpAddr> {
    let found = NAMES.iter().find(|(known, _)| *known == name);
    let (_, addresses) = found.unwrap_or_else(|| panic!("no name {name}"));
    addresses.iter().map(|address| address.parse().expect("it is an address")).collect()
}

/// hosts(5).
pub fn hosts() -> String {
    let mut text = String::new();
    for (name, addresses) in NAMES {
        addresses.iter().for_each(|address| writeln!(text, "{address} {name}").expect("memory can be written"));
    }
    text
}
