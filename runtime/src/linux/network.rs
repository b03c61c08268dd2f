//! The network of a cage that may connect out. Every address there is becomes its own, on loopback: what the server connects
//! to is a socket that the supervisor has opened there, or is refused at once. Nothing leads out.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use super::netlink::{Attributes, CREATE, Netlink, Part, Request};
use super::wire::Refusal;
use crate::report::Status;

/// The cage's own address, at which its resolver answers too. Without one that is not loopback's, programs ask for no
/// addresses (AI_ADDRCONFIG, getaddrinfo(3)). It is of RFC 2544's range, which no network routes.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The same of IPv6, of a range of smcp's own, RFC 4193.
pub const ADDRESS6: Ipv6Addr = Ipv6Addr::new(0xfd53, 0x6d63, 0x7000, 0, 0, 0, 0, 1);

/// Whether a machine has IPv6, which some lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6 {
    /// It has.
    Here,
    /// It has not; [`judge`] tells why.
    Missing,
}

/// Gives this network namespace its addresses and routes.
///
/// # Errors
/// A [`Refusal`] with the kernel's word.
pub fn open() -> Result<Ipv6, Refusal> {
    let netlink = Netlink::open(Part::Route).map_err(|why| Refusal::new("opening netlink", why))?;
    let give = |address: IpAddr| netlink.ask(&[own(address), all_local(address)]);
    give(ADDRESS.into()).map_err(|why| Refusal::new("giving the cage its addresses", why))?;
    Ok(if give(ADDRESS6.into()).is_ok() { Ipv6::Here } else { Ipv6::Missing })
}

/// Whether addresses of nobody's are local here, as found by connecting datagram sockets, which sends nothing.
pub fn judge() -> Status {
    // Of the ranges for examples, RFC 5737 and 3849.
    let of_nobody: [IpAddr; 2] = [[192, 0, 2, 1].into(), [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into()];
    match of_nobody.map(reaches_itself) {
        [Err(why), _] => Status::Absent(format!("an address was not local: {why}")),
        [Ok(()), Err(why)] => Status::Partial(format!("no IPv6: {why}")),
        [Ok(()), Ok(())] => Status::Full,
    }
}

fn reaches_itself(address: IpAddr) -> io::Result<()> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    const DISCARD: u16 = 9;
    socket.connect((address, DISCARD))?;
    // To a local address the kernel speaks from that address; over IPv6, from the one that loopback was given.
    let from = socket.local_addr()?.ip();
    if from == address || from == ADDRESS6 {
        Ok(())
    } else {
        Err(io::Error::other(format!("{address} is reached from {from}")))
    }
}

/// `lo` has this number in every network namespace.
const LOOPBACK: u32 = 1;

/// An address for loopback, RTM_NEWADDR in rtnetlink(7).
fn own(address: IpAddr) -> Request {
    const NEW_ADDRESS: u16 = 20;
    // IFA_F_NODAD: there is nobody to ask whether the address is taken.
    const AT_ONCE: u8 = 0x02;
    const FOR_ALL: u8 = 0;
    let (family, bits, bytes) = parts(address);
    // struct ifaddrmsg: family, prefix, flags, scope, interface.
    let header = [&[family, bits, AT_ONCE, FOR_ALL][..], &LOOPBACK.to_ne_bytes()].concat();
    // IFA_ADDRESS and IFA_LOCAL.
    Request::new(NEW_ADDRESS, CREATE, &header, &Attributes::default().with(1, &bytes).with(2, &bytes))
}

/// Makes every address of this one's family the cage's own, RTM_NEWROUTE in rtnetlink(7).
fn all_local(family_of: IpAddr) -> Request {
    const NEW_ROUTE: u16 = 24;
    const TABLE_LOCAL: u8 = 255;
    const BY_ADMINISTRATOR: u8 = 4;
    const SCOPE_HOST: u8 = 254;
    const KIND_LOCAL: u8 = 2;
    let (family, ..) = parts(family_of);
    // struct rtmsg: family, lengths of destination and source, service, table, protocol, scope, type, flags.
    let header = [family, 0, 0, 0, TABLE_LOCAL, BY_ADMINISTRATOR, SCOPE_HOST, KIND_LOCAL, 0, 0, 0, 0];
    // RTA_OIF.
    Request::new(NEW_ROUTE, CREATE, &header, &Attributes::default().with(4, &LOOPBACK.to_ne_bytes()))
}

/// Family, length in bits, bytes.
fn parts(address: IpAddr) -> (u8, u8, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, 32, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, 128, address.octets().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::linux::inside::{in_a_namespace, listener};

    /// What is in no namespace of its own, as the tests are not, is found so: the machine has no such routes.
    #[test]
    fn a_host_is_no_cage() {
        assert!(matches!(judge(), Status::Absent(_)));
    }

    #[test]
    fn every_address_is_local() {
        in_a_namespace("network::tests::every_address_is_local", || {
            assert!(matches!(judge(), Status::Absent(_)), "bare loopback");
            open().unwrap();
            // The very status, so that a machine without IPv6 is seen.
            let here = judge();
            assert!(matches!(here, Status::Full | Status::Partial(_)), "{here}");
            let destinations: &[&str] = match here {
                Status::Full => {
                    &["198.18.1.0:8443", "8.8.8.8:8443", "[fd53:6d63:7000:1::1]:8443", "[2001:4860::8]:8443"]
                }
                _ => &["198.18.1.0:8443", "8.8.8.8:8443"],
            };
            for destination in destinations {
                let destination: SocketAddr = destination.parse().unwrap();
                // Nobody listens: a reset at once.
                let refused = TcpStream::connect(destination).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{destination}");
                let listener = listener(destination);
                let mut there = TcpStream::connect(destination).unwrap();
                let (mut here, _) = listener.accept().unwrap();
                assert_eq!(here.local_addr().unwrap(), destination);
                there.write_all(b"x").unwrap();
                here.read_exact(&mut [0]).unwrap();
                // Nobody else's connections are taken by it.
                assert!(TcpStream::connect(("127.0.0.1", 8443)).is_err());
            }
        });
    }

    #[test]
    fn a_second_time_is_refused() {
        in_a_namespace("network::tests::a_second_time_is_refused", || {
            open().unwrap();
            let refusal = open().unwrap_err();
            assert!(refusal.why.contains("exists"), "{refusal}");
        });
    }
}
