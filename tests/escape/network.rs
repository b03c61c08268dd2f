//! The host's sockets, other families and kinds of sockets, and the network's settings.

use super::Attempt;
use super::Grants::{Network, Reading, Writing};

const GRANTED_SOCKET: &str = "who grants a directory grants the sockets in it, also for reading alone";

const TABLES: &str = "its own directory of /proc shows its network namespace, which is the host's";

pub const ATTEMPTS: &[Attempt] = &[
    Attempt::new("a-loopback-listener", "connect {tcp}"),
    Attempt::new("a-listener-on-all-addresses", "connect {tcp-any}"),
    Attempt::new("an-ipv6-listener", "connect {tcp6}").where_there_is(),
    Attempt::new("a-datagram-listener", "ask-datagram {udp}"),
    Attempt::new("a-loopback-listener-by-a-mapped-address", "connect {tcp-mapped}").where_there_is(),
    // The same where the server has a network.
    Attempt::new("a-loopback-listener-beside-a-name", "connect {tcp}").with(Network),
    Attempt::new("a-listener-on-all-addresses-beside-a-name", "connect {tcp-any}").with(Network),
    Attempt::new("an-ipv6-listener-beside-a-name", "connect {tcp6}").where_there_is().with(Network),
    Attempt::new("a-mapped-address-beside-a-name", "connect {tcp-mapped}").where_there_is().with(Network),
    Attempt::new("another-mapped-address-beside-a-name", "connect {tcp-any-mapped}").where_there_is().with(Network),
    Attempt::new("a-datagram-listener-beside-a-name", "ask-datagram {udp}").with(Network),
    Attempt::new("an-abstract-socket-beside-a-name", "connect-abstract {abstract}").with(Network),
    Attempt::new("the-hosts-table-beside-a-name", "holds /proc/@self/net/tcp {tcp-hex}").with(Network),
    Attempt::root("the-port-of-names", "listen 127.77.0.1:53").with(Network),
    Attempt::root("the-port-that-all-is-led-to", "listen 127.77.0.1:1").with(Network),
    Attempt::root("a-packet-socket-beside-a-name", "sys socket 17 3 768").where_there_is().with(Network),
    Attempt::root("a-raw-socket-beside-a-name", "sys socket 2 3 6").with(Network),
    Attempt::root("a-transparent-socket-beside-a-name", "open-transparent").with(Network),
    Attempt::root("changing-a-route", "delete-route").passes().with(Network),
    Attempt::root("taking-the-interface-down", "change-interface").with(Network),
    Attempt::new("the-hosts-table-of-sockets", "holds /proc/@self/net/tcp {tcp-hex}").weaker_at_tier_1(TABLES),
    Attempt::new("the-hosts-table-of-unix-sockets", "holds /proc/@self/net/unix {abstract}").weaker_at_tier_1(TABLES),
    Attempt::new("a-name-for-an-abstract-socket", "bind-abstract {abstract}-other")
        .but_works_in_namespaces("names are of its own network namespace"),
    Attempt::new("an-abstract-socket", "connect-abstract {abstract}"),
    Attempt::new("an-abstract-datagram-socket", "connect-abstract-datagram {abstract-datagram}"),
    Attempt::new("a-private-socket", "connect-unix {private}/socket"),
    Attempt::new("a-descriptor-from-a-private-socket", "take-descriptor {private}/socket"),
    Attempt::new("a-private-socket-beside-a-grant", "connect-unix {project}/../private/socket").with(Writing),
    Attempt::new("a-private-socket-through-a-link", "connect-unix {project}/escape/socket").with(Writing),
    Attempt::new("a-socket-in-a-grant", "connect-unix {project}/socket")
        .with(Writing)
        .but_works_in_namespaces(GRANTED_SOCKET),
    Attempt::new("a-socket-in-a-grant-for-reading", "connect-unix {project}/socket")
        .with(Reading)
        .but_works_in_namespaces(GRANTED_SOCKET),
    // Families: each brings code of the kernel that no server needs, and loads it where it is a module.
    Attempt::new("vsock", "sys socket 40 1 0").where_there_is(),
    Attempt::new("alg", "sys socket 38 5 0").where_there_is(),
    Attempt::root("packet", "sys socket 17 3 3").where_there_is(),
    Attempt::root("raw-ip", "sys socket 2 3 1"),
    Attempt::root("raw-ipv6", "sys socket 10 3 58").where_there_is(),
    Attempt::root("xdp", "sys socket 44 3 0").where_there_is(),
    Attempt::root("key", "sys socket 15 3 2").where_there_is(),
    Attempt::new("tipc", "sys socket 30 1 0").where_there_is(),
    Attempt::new("bluetooth", "sys socket 31 3 0").where_there_is(),
    Attempt::new("can", "sys socket 29 3 1").where_there_is(),
    Attempt::new("rds", "sys socket 21 5 0").where_there_is(),
    Attempt::new("smc", "sys socket 43 1 0").where_there_is(),
    Attempt::new("ax25", "sys socket 3 5 0").where_there_is(),
    Attempt::new("x25", "sys socket 9 5 0").where_there_is(),
    Attempt::new("appletalk", "sys socket 5 2 0").where_there_is(),
    Attempt::new("llc", "sys socket 26 1 0").where_there_is(),
    Attempt::new("pppox", "sys socket 24 1 0").where_there_is(),
    Attempt::new("caif", "sys socket 37 5 0").where_there_is(),
    Attempt::new("phonet", "sys socket 35 2 0").where_there_is(),
    Attempt::new("nfc", "sys socket 39 3 0").where_there_is(),
    Attempt::new("kcm", "sys socket 41 2 0").where_there_is(),
    Attempt::new("qipcrtr", "sys socket 42 2 0").where_there_is(),
    Attempt::new("mctp", "sys socket 45 2 0").where_there_is(),
    // Transports and kinds.
    Attempt::new("mptcp", "sys socket 2 1 262").where_there_is(),
    Attempt::new("sctp", "sys socket 2 1 132").where_there_is(),
    Attempt::new("dccp", "sys socket 2 6 33").where_there_is(),
    Attempt::new("udp-lite", "sys socket 2 2 136").where_there_is(),
    Attempt::new("l2tp", "sys socket 2 2 115").where_there_is(),
    Attempt::new("netlink-of-events", "sys socket 16 3 15"),
    Attempt::new("netlink-of-audit", "sys socket 16 3 9").where_there_is(),
    Attempt::new("netlink-of-sockets", "sys socket 16 3 4").where_there_is(),
    Attempt::new("netlink-of-netfilter", "sys socket 16 3 12").where_there_is(),
    Attempt::new("netlink-of-ipsec", "sys socket 16 3 6").where_there_is(),
    Attempt::new("netlink-of-crypto", "sys socket 16 3 21").where_there_is(),
    Attempt::new("netlink-of-families", "sys socket 16 3 16").where_there_is(),
    Attempt::new("netlink-of-processes", "sys socket 16 3 11").where_there_is(),
    Attempt::new("netlink-of-selinux", "sys socket 16 3 7").where_there_is(),
    Attempt::new("netlink-above-32-bits", "sys socket 0x100000010 3 15"),
    Attempt::new("asking-for-an-interface", "ask-interface {interface}").where_there_is(),
    Attempt::root("changing-an-interface", "change-interface"),
    Attempt::root("a-transparent-socket", "open-transparent"),
    Attempt::root("a-buffer-above-the-limit", "force-buffer"),
    Attempt::root("forwarding-for-others", "open-to-write /proc/sys/net/ipv4/ip_forward"),
];
