//! For a run that may connect anywhere: in the cage's network namespace every connection to another address than loopback's
//! is led to one port, at which the supervisor asks where it was to go. By nf_tables, which an ordinary user may use in a
//! namespace of the user's own; the names and numbers are those of linux/netfilter/nf_tables.h.

use std::io;

use super::netlink::{APPEND, Attributes, CREATE, Netlink, Part, Request};
use super::network::Ipv6;
use super::wire::Refusal;

/// The port of loopback, IPv4 and IPv6, to which everything is led. Below 1024: the server cannot take it.
pub const PORT: u16 = 1;

/// The port at which names are asked for stays what it is: the resolver listens on every address.
const DNS: u16 = 53;

/// Leads this network namespace's connections to [`PORT`].
///
/// # Errors
/// A [`Refusal`] where the kernel lacks what is needed.
pub fn open(ipv6: Ipv6) -> Result<(), Refusal> {
    let fail = |why: io::Error| {
        Refusal::new("leading every connection to smcp (nf_tables)", why)
            .hint("a kernel with nf_tables and its redirection can (CONFIG_NFT_REDIR); else grant names by --allow-net")
    };
    let netlink = Netlink::open(Part::Netfilter).map_err(fail)?;
    netlink.ask(&requests(&V4)).map_err(fail)?;
    match ipv6 {
        Ipv6::Here => netlink.ask(&requests(&V6)).map_err(fail),
        Ipv6::Missing => Ok(()),
    }
}

/// What differs between the two.
struct Family {
    /// NFPROTO_*.
    number: u8,
    /// Where in the header the destination's bytes are that tell loopback from all else.
    offset: u32,
    /// Those of loopback.
    loopback: &'static [u8],
}

const V4: Family = Family { number: 2, offset: 16, loopback: &[127] };
const V6: Family = Family { number: 10, offset: 24, loopback: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] };

/// NFNL_SUBSYS_NFTABLES.
const TABLES: u8 = 10;
const NAME: &[u8] = b"smcp\0";

/// One table with one chain with one rule, made at once or not at all.
fn requests(family: &Family) -> [Request; 5] {
    // struct nfgenmsg: family, version, number.
    let header = [family.number, 0, 0, 0];
    let of_batch = [0, 0, 0, TABLES];
    let ask = |kind: u16, flags, attributes| Request::new(u16::from(TABLES) << 8 | kind, flags, &header, &attributes);
    const BEGIN: u16 = 0x10;
    const END: u16 = 0x11;
    const NEW_TABLE: u16 = 0;
    const NEW_CHAIN: u16 = 3;
    const NEW_RULE: u16 = 6;
    // NFTA_HOOK_HOOKNUM: what is sent from here; NFTA_HOOK_PRIORITY: where destinations are changed.
    let hook = Attributes::default().with(1, &3_u32.to_be_bytes()).with(2, &(-100_i32).to_be_bytes());
    [
        Request::mark(BEGIN, &of_batch),
        // NFTA_TABLE_NAME.
        ask(NEW_TABLE, CREATE, Attributes::default().with(1, NAME)),
        // NFTA_CHAIN_TABLE, _NAME, _HOOK, _TYPE.
        ask(NEW_CHAIN, CREATE, Attributes::default().with(1, NAME).with(3, NAME).nest(4, &hook).with(7, b"nat\0")),
        // NFTA_RULE_TABLE, _CHAIN, _EXPRESSIONS.
        ask(NEW_RULE, CREATE | APPEND, Attributes::default().with(1, NAME).with(2, NAME).nest(4, &rule(family))),
        Request::mark(END, &of_batch),
    ]
}

/// TCP, to another address than loopback's, to another port than that of names: to [`PORT`].
fn rule(family: &Family) -> Attributes {
    const TCP: u8 = 6;
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    // NFTA_REDIR_REG_PROTO_MIN.
    let redirect = Attributes::default().with(1, &REGISTER);
    let steps = [
        ("meta\0", meta()),
        ("cmp\0", compare(EQUAL, &[TCP])),
        ("payload\0", payload(NETWORK, family.offset, family.loopback.len())),
        ("cmp\0", compare(OTHER, family.loopback)),
        ("payload\0", payload(TRANSPORT, 2, 2)),
        ("cmp\0", compare(OTHER, &DNS.to_be_bytes())),
        // NFTA_IMMEDIATE_DREG, _DATA.
        ("immediate\0", Attributes::default().with(1, &REGISTER).nest(2, &value(&PORT.to_be_bytes()))),
        ("redir\0", redirect),
    ];
    // NFTA_LIST_ELEM of NFTA_EXPR_NAME and _DATA.
    steps.iter().fold(Attributes::default(), |list, (name, attributes)| {
        list.nest(1, &Attributes::default().with(1, name.as_bytes()).nest(2, attributes))
    })
}

/// NFT_REG_1, through which the steps of a rule pass what they have found.
const REGISTER: [u8; 4] = 1_u32.to_be_bytes();

const EQUAL: u32 = 0;
const OTHER: u32 = 1;

/// NFTA_META_DREG and _KEY: the transport's number.
fn meta() -> Attributes {
    const L4PROTO: u32 = 16;
    Attributes::default().with(1, &REGISTER).with(2, &L4PROTO.to_be_bytes())
}

/// NFTA_PAYLOAD_DREG, _BASE, _OFFSET and _LEN.
fn payload(base: u32, offset: u32, length: usize) -> Attributes {
    let number = |number: u32| number.to_be_bytes();
    Attributes::default()
        .with(1, &REGISTER)
        .with(2, &number(base))
        .with(3, &number(offset))
        .with(4, &number(length as u32))
}

/// NFTA_CMP_SREG, _OP and _DATA.
fn compare(how: u32, with: &[u8]) -> Attributes {
    Attributes::default().with(1, &REGISTER).with(2, &how.to_be_bytes()).nest(3, &value(with))
}

/// NFTA_DATA_VALUE.
fn value(bytes: &[u8]) -> Attributes {
    Attributes::default().with(1, bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::linux::inside::{in_a_namespace, listener};
    use crate::linux::{network, original_destination};

    #[test]
    fn connections_to_anywhere_come_to_one_port() {
        in_a_namespace("redirect::tests::connections_to_anywhere_come_to_one_port", || {
            let ipv6 = network::open().unwrap();
            open(ipv6).unwrap();
            let families: &[_] = match ipv6 {
                Ipv6::Here => &[("127.0.0.1", "8.8.8.8"), ("[::1]", "[2001:4860::8]")],
                Ipv6::Missing => &[("127.0.0.1", "8.8.8.8")],
            };
            for (loopback, elsewhere) in families {
                let at = |host: &str, port: u16| -> SocketAddr { format!("{host}:{port}").parse().unwrap() };
                let every = listener(at(loopback, PORT));
                for port in [80, 443, 65535] {
                    let there = TcpStream::connect(at(elsewhere, port)).unwrap();
                    let (here, from) = every.accept().unwrap();
                    assert_eq!(from, there.local_addr().unwrap());
                    assert_eq!(original_destination(&here).unwrap(), at(elsewhere, port));
                }
                // Who asks for the port itself is told from all others.
                let _there = TcpStream::connect(at(loopback, PORT)).unwrap();
                let (here, _) = every.accept().unwrap();
                assert!(original_destination(&here).unwrap().ip().is_loopback());
                // Loopback is the server's own, and names are asked for where they always are.
                for other in [at(loopback, 443), at(elsewhere, DNS)] {
                    let refused = TcpStream::connect(other).unwrap_err();
                    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{other}");
                }
                let names = listener(at(elsewhere, DNS));
                let _there = TcpStream::connect(at(elsewhere, DNS)).unwrap();
                assert_eq!(names.accept().unwrap().0.local_addr().unwrap(), at(elsewhere, DNS));
            }
        });
    }

    #[test]
    fn a_refusal_names_the_flag_that_works() {
        in_a_namespace("redirect::tests::a_refusal_names_the_flag_that_works", || {
            // A second table of the same name is refused.
            let ipv6 = network::open().unwrap();
            open(ipv6).unwrap();
            let refusal = open(ipv6).unwrap_err();
            assert!(refusal.why.contains("exists") && refusal.hint.unwrap().contains("--allow-net"), "{}", refusal.why);
        });
    }
}
