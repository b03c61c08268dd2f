//! Addresses that a name must not lead to: those of this machine and of the networks around it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is reached only where it was granted by itself. IANA's special-purpose registries (RFC 6890), and what
/// clouds give their machines.
pub fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_forbidden_v4(v4),
        IpAddr::V6(v6) => is_forbidden_v6(v6),
    }
}

/// Network, prefix, and what it is.
const FORBIDDEN_V4: [([u8; 4], u32, &str); 17] = [
    ([0, 0, 0, 0], 8, "this network; 0.0.0.0 is loopback to connect(2)"),
    ([10, 0, 0, 0], 8, "private, RFC 1918"),
    ([100, 64, 0, 0], 10, "shared by carriers, RFC 6598; Alibaba's metadata"),
    ([127, 0, 0, 0], 8, "loopback"),
    ([168, 63, 129, 16], 32, "Azure's wire server"),
    ([169, 254, 0, 0], 16, "link-local; metadata of most clouds"),
    ([172, 16, 0, 0], 12, "private, RFC 1918"),
    ([192, 0, 0, 0], 24, "protocol assignments, RFC 6890; Oracle's metadata"),
    ([192, 0, 2, 0], 24, "documentation"),
    ([192, 88, 99, 0], 24, "6to4 relays, RFC 7526"),
    ([192, 168, 0, 0], 16, "private, RFC 1918"),
    ([198, 18, 0, 0], 15, "benchmarks; smcp's own address inside of cages"),
    ([198, 51, 100, 0], 24, "documentation"),
    ([203, 0, 113, 0], 24, "documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved"),
    ([255, 255, 255, 255], 32, "broadcast"),
];

/// What of 2000::/3 is not public, first and length of the prefix; nothing outside of it is, but for NAT64.
const FORBIDDEN_V6: [([u16; 2], u32, &str); 3] = [
    ([0x2001, 0], 23, "protocol assignments, RFC 2928: Teredo, benchmarks, ORCHID"),
    ([0x2001, 0xdb8], 32, "documentation"),
    ([0x3fff, 0], 20, "documentation, RFC 9637"),
];

fn is_forbidden_v4(address: Ipv4Addr) -> bool {
    FORBIDDEN_V4.iter().any(|(network, prefix, _)| {
        let shift = 32 - prefix;
        address.to_bits() >> shift == Ipv4Addr::from(*network).to_bits() >> shift
    })
}

fn is_forbidden_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_forbidden_v4(v4);
    }
    let [a, b, c, d, e, f, g, h] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b] {
        // NAT64's well-known prefix, RFC 6052: how an IPv6-only host reaches IPv4.
        [0x64, 0xff9b] => [c, d, e, f] != [0; 4] || is_forbidden_v4(v4(g, h)),
        // 6to4, RFC 3056.
        [0x2002, high] => is_forbidden_v4(v4(high, c)),
        _ if a & 0xe000 != 0x2000 => true,
        // ISATAP, RFC 5214: the rest of the site decides by the IPv4 address.
        _ if e & 0xfdff == 0 && f == 0x5efe && is_forbidden_v4(v4(g, h)) => true,
        [a, b] => FORBIDDEN_V6.iter().any(|([x, y], prefix, _)| {
            let shift = 32 - prefix;
            (u32::from(a) << 16 | u32::from(b)) >> shift == (u32::from(*x) << 16 | u32::from(*y)) >> shift
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_must_not_lead_to() {
        let forbidden = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::2",
            "::7f00:1",
            "::10.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b::1:8.8.8.8",
            "100::1",
            "2001::1",
            "2001:0:102:304::1",
            "2001:2::1",
            "2001:10::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "2002:c0a8:101::1",
            "2002:a9fe:a9fe::1",
            "3fff::1",
            "3fff:fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd53:6d63:7000:1::1",
            "fe80::1",
            "fe80::a9fe:a9fe",
            "fec0::1",
            "ff02::1",
            "2a00::5efe:10.0.0.1",
            "2a00::200:5efe:10.0.0.1",
        ];
        for text in forbidden {
            assert!(is_forbidden(text.parse().unwrap()), "{text}");
        }
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.17",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "192.167.0.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "3fff:1000::1",
            "2a00::5efe:8.8.8.8",
        ];
        for text in public {
            assert!(!is_forbidden(text.parse().unwrap()), "{text}");
        }
    }
}
