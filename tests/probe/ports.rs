//! Attempts at the sockets that lead out of a cage: to join them, to be there first, to flood them, to change what leads to
//! them.

use std::ffi::{c_int, c_long, c_void};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use super::{list, map, quote};

pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    let port = |text: &str| -> u16 { text.parse().expect("a port") };
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address and a port") };
    let run = |words: &[&str]| {
        use std::os::unix::process::CommandExt;
        Err(Command::new(words[0]).args(&words[1..]).exec())
    };
    Some(match verb {
        "listen-only" => listen(address(rest[0]), &[]).map(|_| "\"listens\"".into()),
        "ask-name" => ask(rest[0]).map(|address| quote(&address.to_string())),
        "take-over" => take_over(rest[0], port(rest[1])),
        "be-first" => be_first(rest[0], port(rest[1])),
        "flood-ports" => flood_ports(rest[0].parse().expect("a number"), rest[1]),
        "delete-route" => delete_route().map(|()| "\"deleted\"".into()),
        // What a machine may lack.
        "without-netfilter" => refuse_sockets(AF_NETLINK, Some(12), 93).and_then(|()| run(rest)),
        "without-packets" => refuse_sockets(17, None, 97).and_then(|()| run(rest)),
        "without-ipv6" => refuse_sockets(AF_INET6, None, 97).and_then(|()| run(rest)),
        _ => return None,
    })
}

/// Ways to listen where somebody does: a name and options, each a level and a number of setsockopt(2), with its value.
const WAYS: [(&str, &[Set]); 7] = [
    ("plainly", &[]),
    ("by reuse of the address", &[REUSE_ADDRESS]),
    ("by sharing the port", &[SHARE_PORT]),
    ("by both", &[REUSE_ADDRESS, SHARE_PORT]),
    ("on the very device", &[ON_LOOPBACK]),
    ("on the very device by both", &[REUSE_ADDRESS, SHARE_PORT, ON_LOOPBACK]),
    ("without an interface that has it", &[FREE, REUSE_ADDRESS, SHARE_PORT]),
];

type Set = (c_int, c_int, &'static [u8]);

/// SO_REUSEADDR, SO_REUSEPORT and SO_BINDTODEVICE of SOL_SOCKET, IP_FREEBIND of SOL_IP.
const REUSE_ADDRESS: Set = (1, 2, &1_i32.to_ne_bytes());
const SHARE_PORT: Set = (1, 15, &1_i32.to_ne_bytes());
const ON_LOOPBACK: Set = (1, 25, b"lo\0");
const FREE: Set = (0, 15, &1_i32.to_ne_bytes());

/// Asks for a name, and tries to listen where that leads, in every way. Says what came of each, and who takes a connection
/// afterwards: `"nobody"`, or `"somebody"`, who is not this program.
fn take_over(name: &str, port: u16) -> io::Result<String> {
    let address = ask(name)?;
    let places = [
        SocketAddr::from((address, port)),
        SocketAddr::from((address.to_ipv6_mapped(), port)),
        SocketAddr::from(([0, 0, 0, 0], port)),
        SocketAddr::from(([0; 16], port)),
    ];
    let mut said = Vec::new();
    let mut held = Vec::new();
    for place in places {
        for (way, options) in WAYS {
            let became = match listen(place, options) {
                Ok(listener) => {
                    held.push(listener);
                    "\"listens\"".into()
                }
                Err(why) => why.raw_os_error().unwrap_or(0).to_string(),
            };
            said.push((format!("{place} {way}"), became));
        }
    }
    let who = match TcpStream::connect_timeout(&places[0], Duration::from_secs(10)) {
        Ok(_) if held.iter().any(|listener| accepts(listener)) => "itself",
        Ok(mut stream) => {
            // Until who has taken it gives it up.
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let _ = stream.read(&mut [0]);
            "somebody"
        }
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => "nobody",
        // A reset comes from who has taken it.
        Err(_) => "somebody",
    };
    said.push(("a connection".into(), quote(who)));
    Ok(map(said.into_iter()))
}

fn accepts(listener: &TcpListener) -> bool {
    listener.set_nonblocking(true).is_ok() && listener.accept().is_ok()
}

/// Listens on every address before the name is asked for, then connects to it. Says what came: an errno, `"itself"` or
/// `"somebody"`.
fn be_first(name: &str, port: u16) -> io::Result<String> {
    let listener = listen(SocketAddr::from(([0; 16], port)), &[])?;
    let address = ask(name)?;
    let mut stream = match TcpStream::connect_timeout(&SocketAddr::from((address, port)), Duration::from_secs(10)) {
        Ok(stream) => stream,
        Err(why) => return Ok(why.raw_os_error().unwrap_or(0).to_string()),
    };
    if accepts(&listener) {
        return Ok(quote("itself"));
    }
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let _ = stream.read(&mut [0]);
    Ok(quote("somebody"))
}

/// Connects to ports at which nobody is, then asks for a name.
fn flood_ports(count: u32, name: &str) -> io::Result<String> {
    let address = ask(name)?;
    for number in 0..count {
        let to = SocketAddr::from((address, 20_000 + (number % 10_000) as u16));
        if TcpStream::connect_timeout(&to, Duration::from_secs(10)).is_ok() {
            return Ok(list([quote(&to.to_string())].into_iter()));
        }
    }
    ask(name).map(|address| quote(&address.to_string()))
}

const RESOLVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 18, 0, 1), 53);

/// The IPv4 address of a name, by one question as RFC 1035 has it.
fn ask(name: &str) -> io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(RESOLVER)?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    let asked = question(name, 7);
    let mut answer = [0; 512];
    // A question may be lost where many are asked.
    let tries = 10;
    let length = (0..tries).find_map(|_| socket.send(&asked).and_then(|_| socket.recv(&mut answer)).ok());
    let answer = &answer[..length.ok_or(io::ErrorKind::TimedOut)?];
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("no address: {answer:?}"));
    // After the question: a name of two bytes, type, class, time, length, and four bytes of address.
    let record = answer.get(asked.len()..).filter(|record| record.len() >= 16 && answer[3] & 0xF == 0);
    let octets = record.and_then(|record| record[12..].first_chunk::<4>()).ok_or_else(none)?;
    Ok(Ipv4Addr::from(*octets))
}

fn question(name: &str, id: u16) -> Vec<u8> {
    let mut bytes = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

const AF_INET: c_int = 2;
const AF_INET6: c_int = 10;
const AF_NETLINK: c_int = 16;

/// A listener with options, which std offers none of.
fn listen(at: SocketAddr, options: &[Set]) -> io::Result<TcpListener> {
    let family = if at.is_ipv4() { AF_INET } else { AF_INET6 };
    let fd = open(family, 1, 0)?;
    for (level, name, value) in options {
        // SAFETY: pointer and length of a live value.
        check(unsafe { setsockopt(fd.as_raw_fd(), *level, *name, value.as_ptr().cast(), value.len() as u32) })?;
    }
    // The C structs sockaddr_in and sockaddr_in6: family, port, then address, or flow, address, scope.
    let mut address = (family as u16).to_ne_bytes().to_vec();
    address.extend(at.port().to_be_bytes());
    match at {
        SocketAddr::V4(at) => address.extend(at.ip().octets().into_iter().chain([0; 8])),
        SocketAddr::V6(at) => address.extend([0; 4].into_iter().chain(at.ip().octets()).chain([0; 4])),
    }
    // SAFETY: pointer and length of a live address.
    check(unsafe { bind(fd.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) })?;
    // SAFETY: no pointers.
    check(unsafe { self::sys_listen(fd.as_raw_fd(), 8) })?;
    Ok(TcpListener::from(fd))
}

/// Asks to delete a route that is not there, by rtnetlink(7): without the right to, `EPERM`.
fn delete_route() -> io::Result<()> {
    let socket = open(AF_NETLINK, 3, 0)?;
    // struct nlmsghdr and struct rtmsg: RTM_DELROUTE, a request that is to be answered; 198.51.100.0/24 of the main table.
    let mut request = 36_u32.to_ne_bytes().to_vec();
    request.extend(25_u16.to_ne_bytes().into_iter().chain(5_u16.to_ne_bytes()).chain([1, 0, 0, 0, 0, 0, 0, 0]));
    request.extend([2, 24, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]);
    request.extend(8_u16.to_ne_bytes().into_iter().chain(1_u16.to_ne_bytes()).chain([198, 51, 100, 0]));
    let length = request.len() as u32;
    request[..4].copy_from_slice(&length.to_ne_bytes());
    // SAFETY: pointer and length of a live buffer.
    check(unsafe { send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) } as c_int)?;
    let mut answer = [0_u8; 256];
    // SAFETY: the same.
    check(unsafe { recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) } as c_int)?;
    match i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}

/// A filter that answers `errno` to socket(2) of a family, and of a protocol where one is named, as kernels do that lack it.
fn refuse_sockets(family: c_int, protocol: Option<u32>, errno: u32) -> io::Result<()> {
    use super::escape::sys::{ALLOW, RETURN, install, instruction};
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const FAIL: u32 = 0x0005_0000;
    const SOCKET: u32 = if cfg!(target_arch = "x86_64") { 41 } else { 198 };
    // Offsets in struct seccomp_data: the number, the lower halves of the first and the third argument.
    let (number, first, third) = (0, 16, 32);
    let of_protocol = protocol.map_or(vec![], |protocol| {
        vec![instruction(LOAD, 0, 0, third), instruction(JUMP_IF_EQUAL, 0, 1, protocol)]
    });
    let rest = of_protocol.len() as u8;
    let program = [
        instruction(LOAD, 0, 0, number),
        instruction(JUMP_IF_EQUAL, 0, 3 + rest, SOCKET),
        instruction(LOAD, 0, 0, first),
        instruction(JUMP_IF_EQUAL, 0, 1 + rest, family as u32),
    ];
    let end = [instruction(RETURN, 0, 0, FAIL | errno), instruction(RETURN, 0, 0, ALLOW)];
    install(&program.into_iter().chain(of_protocol).chain(end).collect::<Vec<_>>())
}

fn open(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { socket(family, kind, protocol) })?;
    // SAFETY: the kernel just made it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

unsafe extern "C" {
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
    fn bind(fd: c_int, address: *const c_void, length: u32) -> c_int;
    #[link_name = "listen"]
    fn sys_listen(fd: c_int, backlog: c_int) -> c_int;
    fn send(fd: c_int, bytes: *const c_void, length: usize, flags: c_int) -> c_long;
    fn recv(fd: c_int, bytes: *mut c_void, length: usize, flags: c_int) -> c_long;
}
