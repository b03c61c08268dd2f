//! What was sent in the cage to a port at which nobody is: the kernel refuses it at once and tells nobody but the server. The
//! supervisor sees these refusals, so that they stand in the audit, by packet sockets that take nothing else.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

use super::sys::{self, Instruction};

/// One that was refused, and where it was to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Missed {
    /// Address and port, none of loopback's.
    pub to: SocketAddr,
    /// By what.
    pub transport: Transport,
}

/// What has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A connection.
    Tcp,
    /// A datagram.
    Udp,
}

/// The sockets: one of IPv4, one of IPv6 where the machine has it. Both are non-blocking and hold some two hundred refusals;
/// what comes while they are full is lost, so that a server that has a million refused costs no more than one look.
#[derive(Debug)]
pub struct Unheard(Vec<OwnedFd>);

impl Unheard {
    /// Opens them in this network namespace, for which CAP_NET_RAW in it is needed.
    ///
    /// # Errors
    /// The kernel's: `EAFNOSUPPORT` where it has no packet sockets.
    pub fn open() -> io::Result<Unheard> {
        Ok(Unheard(vec![open(ETH_P_IP, &of_ipv4())?, open(ETH_P_IPV6, &of_ipv6())?]))
    }

    /// Those that another process has opened.
    pub(super) fn of(sockets: Vec<OwnedFd>) -> Unheard {
        Unheard(sockets)
    }

    pub(super) fn into_sockets(self) -> Vec<OwnedFd> {
        self.0
    }

    /// The descriptors, each readable when there is something.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(AsFd::as_fd)
    }

    /// The next refusal, `None` where none waits.
    pub fn next(&self) -> Option<Missed> {
        let mut frame = [0_u8; LENGTH];
        self.0.iter().find_map(|socket| {
            // Another error than that nothing waits tells of a network that is down: nothing waits then either.
            while let Ok((length, _)) = recv(socket, &mut frame, RecvFlags::DONTWAIT) {
                if let Some(missed) = read(&frame[..length]) {
                    return Some(missed);
                }
            }
            None
        })
    }
}

/// Protocols of linux/if_ether.h.
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86DD;

/// As much of a packet as is taken: an IP header of 60 bytes, one of ICMP, and the same of the datagram that it is about.
const LENGTH: usize = 160;

/// As much as the kernel keeps, with what it needs itself.
const BUFFER: usize = 64 << 10;

fn open(protocol: u16, filter: &[Instruction]) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Datagrams begin with the header of IP. One protocol's sockets see what arrives and not what is sent, which is the same
    // on loopback.
    let protocol = std::num::NonZeroU32::new(u32::from(protocol.to_be())).map(Protocol::from_raw);
    let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol)?;
    sys::attach_filter(&socket, filter)?;
    set_socket_recv_buffer_size(&socket, BUFFER)?;
    Ok(socket)
}

/// Numbers of the protocols in an IP header.
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Length of a header of IPv6, and of ICMP's.
const HEADER6: usize = 40;
const HEADER_ICMP: usize = 8;

/// What a packet that passed the filter is about.
fn read(packet: &[u8]) -> Option<Missed> {
    match packet.first()? >> 4 {
        4 => read4(packet),
        6 => read6(packet),
        _ => None,
    }
}

fn read4(packet: &[u8]) -> Option<Missed> {
    let address = |packet: &[u8], at| Some(IpAddr::from(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)));
    let body = packet.get(header4(packet)?..)?;
    match *packet.get(9)? {
        // The answer comes from where the connection was to go.
        TCP => missed(address(packet, 12)?, port(body, 0)?, Transport::Tcp),
        ICMP => {
            let about = body.get(HEADER_ICMP..)?;
            let udp = about.get(header4(about)?..)?;
            if *about.get(9)? == UDP { missed(address(about, 16)?, port(udp, 2)?, Transport::Udp) } else { None }
        }
        _ => None,
    }
}

fn read6(packet: &[u8]) -> Option<Missed> {
    let address = |packet: &[u8], at| Some(IpAddr::from(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?)));
    let body = packet.get(HEADER6..)?;
    match *packet.get(6)? {
        TCP => missed(address(packet, 8)?, port(body, 0)?, Transport::Tcp),
        ICMP6 => {
            let about = body.get(HEADER_ICMP..)?;
            let udp = about.get(HEADER6..)?;
            if *about.get(6)? == UDP { missed(address(about, 24)?, port(udp, 2)?, Transport::Udp) } else { None }
        }
        _ => None,
    }
}

fn header4(packet: &[u8]) -> Option<usize> {
    Some(usize::from(packet.first()? & 0xF) * 4)
}

fn port(header: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*header.get(at..)?.first_chunk()?))
}

fn missed(address: IpAddr, port: u16, transport: Transport) -> Option<Missed> {
    // The server's own loopback is its own affair.
    (!address.is_loopback()).then_some(Missed { to: SocketAddr::new(address, port), transport })
}

/// Of IPv4: resets that answer the start of a connection, and words of ICMP that a port is not there; of no loopback
/// address.
fn of_ipv4() -> Vec<Instruction> {
    // The word holds the fragment's offset in 13 bits.
    let tcp = [
        half(6),
        none_of(0x1FFF),
        header_length(),
        behind(byte(13)),
        only_bits(FLAGS),
        only(RESET),
        behind(word(4)),
        only(0),
    ];
    let icmp = [header_length(), behind(half(0)), only(0x0303)];
    assemble(&[byte(12), other_than(127), byte(9)], TCP, &tcp, ICMP, &icmp)
}

/// The same of IPv6, whose headers the kernel's own answers have none between. Of ::/32 loopback's is the only address.
fn of_ipv6() -> Vec<Instruction> {
    let tcp = [byte(53), only_bits(FLAGS), only(RESET), word(44), only(0)];
    let icmp = [half(40), only(0x0104)];
    assemble(&[word(8), other_than(0), byte(6)], TCP, &tcp, ICMP6, &icmp)
}

/// FIN, SYN, RST and ACK; a reset that answers a SYN has the last two and starts at number 0, other resets do not.
const FLAGS: u32 = 0x17;
const RESET: u32 = 0x14;

/// A step of a filter, linux/filter.h, whose jumps lead to the end that drops the packet.
#[derive(Clone, Copy)]
struct Step {
    code: u16,
    k: u32,
    drop: Drop,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Drop {
    Never,
    IfTrue,
    IfFalse,
}

const fn load(code: u16, k: u32) -> Step {
    Step { code, k, drop: Drop::Never }
}

const fn word(at: u32) -> Step {
    load(0x20, at)
}

const fn half(at: u32) -> Step {
    load(0x28, at)
}

const fn byte(at: u32) -> Step {
    load(0x30, at)
}

/// Notes how long the header of IPv4 is.
const fn header_length() -> Step {
    load(0xB1, 0)
}

/// The same place behind the header whose length was noted.
const fn behind(step: Step) -> Step {
    load(step.code & !0x20 | 0x40, step.k)
}

const fn only_bits(mask: u32) -> Step {
    load(0x54, mask)
}

const fn only(value: u32) -> Step {
    Step { code: 0x15, k: value, drop: Drop::IfFalse }
}

const fn other_than(value: u32) -> Step {
    Step { code: 0x15, k: value, drop: Drop::IfTrue }
}

const fn none_of(mask: u32) -> Step {
    Step { code: 0x45, k: mask, drop: Drop::IfTrue }
}

/// `first`, which loads a protocol's number; then what follows for one of the two protocols.
fn assemble(first: &[Step], one: u8, then: &[Step], other: u8, otherwise: &[Step]) -> Vec<Instruction> {
    let answer = |length| Instruction { code: 0x06, jump_true: 0, jump_false: 0, k: length };
    let otherwise: Vec<Step> = [&[only(other.into())], otherwise].concat();
    // Each part ends with the answer that takes the packet, and the whole with the one that drops it.
    let length = first.len() + 1 + then.len() + 1 + otherwise.len() + 1;
    let mut program: Vec<Instruction> = Vec::with_capacity(length + 1);
    let push = |program: &mut Vec<Instruction>, steps: &[Step]| {
        for Step { code, k, drop } in steps.iter().copied() {
            let far = (length - program.len() - 1) as u8;
            let jump = |when| if drop == when { far } else { 0 };
            program.push(Instruction { code, jump_true: jump(Drop::IfTrue), jump_false: jump(Drop::IfFalse), k });
        }
    };
    push(&mut program, first);
    program.push(Instruction { code: 0x15, jump_true: 0, jump_false: then.len() as u8 + 1, k: one.into() });
    push(&mut program, then);
    program.push(answer(LENGTH as u32));
    push(&mut program, &otherwise);
    program.push(answer(LENGTH as u32));
    program.push(answer(0));
    program
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpStream, UdpSocket};

    use super::*;
    use crate::linux::inside::{in_a_namespace, listener};
    use crate::linux::network::{self, Ipv6};

    fn all(unheard: &Unheard) -> Vec<(String, Transport)> {
        std::iter::from_fn(|| unheard.next()).map(|missed| (missed.to.to_string(), missed.transport)).collect()
    }

    #[test]
    fn refusals_are_seen_and_nothing_else_is() {
        in_a_namespace("unheard::tests::refusals_are_seen_and_nothing_else_is", || {
            let ipv6 = network::open().unwrap();
            let here = |address: &&str| ipv6 == Ipv6::Here || !address.contains('[');
            let send = |to: &str| {
                let from = if to.contains('[') { "[::]:0" } else { "0.0.0.0:0" };
                UdpSocket::bind(from).and_then(|socket| socket.send_to(b"x", to)).map(drop)
            };
            let unheard = Unheard::open().unwrap();
            // Loopback is the server's own.
            for own in ["127.0.0.1:9", "127.8.8.8:9", "[::1]:9"] {
                assert!(TcpStream::connect(own).is_err(), "{own}");
                assert_eq!(send(own).is_ok(), here(&own), "{own}");
            }
            // A connection that works and is then reset: what is unread makes its end one.
            for address in ["198.18.1.0:8443", "[fd53:6d63:7000:1::]:8443"].iter().filter(|address| here(address)) {
                let listener = listener(address.parse().unwrap());
                let mut there = TcpStream::connect(address).unwrap();
                let (here, _) = listener.accept().unwrap();
                there.write_all(b"x").unwrap();
                here.peek(&mut [0]).unwrap();
                drop(here);
                assert!(there.read(&mut [0]).is_err());
            }
            assert_eq!(all(&unheard), []);
            let tcp = ["198.18.1.0:25", "8.8.8.8:443", "[2001:4860::8]:443"];
            let udp = ["9.9.9.9:443", "[2001:db8::9]:443"];
            for refused in tcp {
                assert!(TcpStream::connect(refused).is_err(), "{refused}");
            }
            for refused in udp {
                assert_eq!(send(refused).is_ok(), here(&refused), "{refused}");
            }
            let seen = |to: &str| (to.to_owned(), if tcp.contains(&to) { Transport::Tcp } else { Transport::Udp });
            let wanted = [tcp[0], tcp[1], udp[0], tcp[2], udp[1]];
            assert_eq!(all(&unheard), wanted.iter().copied().filter(here).map(seen).collect::<Vec<_>>());
            assert_eq!(unheard.descriptors().count(), 2);
        });
    }

    /// A server that has no end of connections refused fills the buffer, and no more.
    #[test]
    fn a_flood_is_bounded() {
        in_a_namespace("unheard::tests::a_flood_is_bounded", || {
            network::open().unwrap();
            let unheard = Unheard::open().unwrap();
            for _ in 0..5000 {
                assert!(TcpStream::connect("198.18.1.0:25").is_err());
            }
            let seen = all(&unheard).len();
            assert!((50..1000).contains(&seen), "{seen}");
            // It goes on where there is room again.
            assert!(TcpStream::connect("198.18.1.0:26").is_err());
            assert_eq!(all(&unheard), [("198.18.1.0:26".into(), Transport::Tcp)]);
        });
    }

    #[test]
    fn what_is_cut_off_is_nothing() {
        let tcp = [&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 198, 18, 1, 0, 198, 18, 0, 1][..], &[0, 25]].concat();
        assert_eq!(read(&tcp).unwrap().to, "198.18.1.0:25".parse().unwrap());
        assert!((0..tcp.len()).all(|length| read(&tcp[..length]).is_none()));
        let mut icmp = [&[0x60, 0, 0, 0, 0, 0, 58, 64][..], &[0; 32], &[1, 4, 0, 0, 0, 0, 0, 0]].concat();
        icmp.extend([0x60, 0, 0, 0, 0, 8, 17, 64]);
        icmp.extend([0; 16]);
        icmp.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).octets());
        icmp.extend([0x80, 0, 1, 187]);
        assert_eq!(
            read(&icmp).unwrap(),
            Missed { to: "[2001:db8::9]:443".parse().unwrap(), transport: Transport::Udp }
        );
        assert!((0..icmp.len()).all(|length| read(&icmp[..length]).is_none()));
    }
}
