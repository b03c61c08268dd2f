//! Sockets inside the cage, opened when they are needed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::task::AbortHandle;

use crate::linux::{SocketKind, Sockets};

use super::names::{self, Number};

/// Connections that wait to be accepted; the kernel has a limit of its own.
const BACKLOG: i32 = 1024;

/// Makes sockets in the cage's network namespace.
#[derive(Debug)]
pub struct Supply {
    sockets: Sockets,
    /// Whether this machine has IPv6.
    pub v6: bool,
}

impl Supply {
    /// Looks whether there is IPv6.
    ///
    /// # Errors
    /// Where the process inside does not answer.
    pub fn new(sockets: Sockets) -> io::Result<Supply> {
        let v6 = match sockets.ask(&[SocketKind::Tcp6]) {
            Ok(_) => true,
            Err(why) if why.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => false,
            Err(why) => return Err(why),
        };
        Ok(Supply { sockets, v6 })
    }

    /// Sockets that are bound to these addresses, in this order; those of IPv6 may be bound before an address is there.
    fn bound(&self, stream: bool, addresses: &[SocketAddr]) -> io::Result<Vec<(OwnedFd, rustix::io::Result<()>)>> {
        let kind = |address: &SocketAddr| match (stream, address.is_ipv4()) {
            (true, true) => SocketKind::Tcp4,
            (true, false) => SocketKind::Tcp6,
            (false, true) => SocketKind::Udp4,
            (false, false) => SocketKind::Udp6,
        };
        let kinds: Vec<SocketKind> = addresses.iter().map(kind).collect();
        let sockets = self.sockets.ask(&kinds)?.into_iter().zip(addresses);
        Ok(sockets
            .map(|(socket, address)| {
                let bound = prepare(&socket, stream, address);
                (socket, bound)
            })
            .collect())
    }

    /// Listeners at these addresses, in this order; for each the kernel's word where it has none.
    ///
    /// # Errors
    /// Where there are no sockets.
    pub fn listeners(&self, addresses: &[SocketAddr]) -> io::Result<Vec<io::Result<TcpListener>>> {
        let bound = self.bound(true, addresses)?;
        Ok(bound.into_iter().map(|(socket, bound)| bound.map(|()| socket.into()).map_err(Into::into)).collect())
    }

    /// A socket for datagrams to a port, at every address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn datagrams(&self, address: SocketAddr) -> io::Result<std::net::UdpSocket> {
        let (socket, bound) = self.bound(false, &[address])?.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
        bound?;
        Ok(socket.into())
    }

    /// The wildcard addresses of the families that there are, with a port.
    pub fn everywhere(&self, port: u16) -> Vec<SocketAddr> {
        self.both(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, port)
    }

    /// Two addresses, or the first where there is no IPv6.
    pub fn both(&self, v4: Ipv4Addr, v6: Ipv6Addr, port: u16) -> Vec<SocketAddr> {
        let v6 = self.v6.then_some(SocketAddr::new(v6.into(), port));
        [SocketAddr::new(v4.into(), port)].into_iter().chain(v6).collect()
    }
}

fn prepare(socket: &OwnedFd, stream: bool, address: &SocketAddr) -> rustix::io::Result<()> {
    // Connections of a closed listener are not in the way of the next one.
    sockopt::set_socket_reuseaddr(socket, stream)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_freebind(socket, true)?;
    }
    rustix::net::bind(socket, address)?;
    if stream {
        rustix::net::listen(socket, BACKLOG)?;
    }
    Ok(())
}

/// The listeners of names. So many are open at once; the one that was used least recently gives way.
#[derive(Debug)]
pub struct Listening {
    /// Sockets at once.
    most: usize,
    open: HashMap<Number, Open>,
    sockets: usize,
    clock: u64,
    /// Wildcard addresses and ports with a listener, which takes the names' connections too.
    everywhere: HashSet<SocketAddr>,
}

#[derive(Debug)]
struct Open {
    used: u64,
    sockets: Vec<(SocketAddr, AbortHandle)>,
}

impl Listening {
    /// None is open.
    pub fn new(most: usize, everywhere: HashSet<SocketAddr>) -> Listening {
        Listening { most, open: HashMap::new(), sockets: 0, clock: 0, everywhere }
    }

    /// The addresses at which listeners of a name are missing, for which room is made by closing others.
    pub fn missing(&mut self, number: Number, ports: &[u16], supply: &Supply) -> Vec<SocketAddr> {
        self.touch(number);
        let open = self.open.get(&number).map_or(&[][..], |open| &open.sockets);
        let all = ports.iter().flat_map(|port| supply.both(names::v4(number), names::v6(number), *port));
        let is_open =
            |at: &SocketAddr| open.iter().any(|(open, _)| open == at) || self.everywhere.contains(&everywhere(at));
        let missing: Vec<SocketAddr> = all.filter(|at| !is_open(at)).collect();
        while self.sockets + missing.len() > self.most {
            let others = self.open.iter().filter(|(other, _)| **other != number);
            let Some(oldest) = others.min_by_key(|(_, open)| open.used).map(|(number, _)| *number) else { break };
            self.close(oldest);
        }
        missing
    }

    /// Holds what was opened.
    pub fn hold(&mut self, number: Number, sockets: Vec<(SocketAddr, AbortHandle)>) {
        self.clock += 1;
        self.sockets += sockets.len();
        let open = self.open.entry(number).or_insert(Open { used: 0, sockets: Vec::new() });
        open.used = self.clock;
        open.sockets.extend(sockets);
    }

    /// Says that a name was used.
    pub fn touch(&mut self, number: Number) {
        self.clock += 1;
        if let Some(open) = self.open.get_mut(&number) {
            open.used = self.clock;
        }
    }

    fn close(&mut self, number: Number) {
        if let Some(open) = self.open.remove(&number) {
            self.sockets -= open.sockets.len();
            open.sockets.iter().for_each(|(_, task)| task.abort());
        }
    }
}

/// The wildcard address of a family, with the same port.
pub fn everywhere(at: &SocketAddr) -> SocketAddr {
    let any: IpAddr = if at.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    SocketAddr::new(any, at.port())
}

/// The address of smcp itself inside every cage, where DNS is.
pub const HERE: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 0, 1), Ipv6Addr::new(0xfd53, 0x6d63, 0x7000, 0, 0, 0, 0, 1));

/// Whether an address is one of those that smcp gives out or has inside of cages; the host's of that kind are out of reach.
pub fn is_ours(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(v4.octets(), [198 | 30, 18 | 19, ..]),
        IpAddr::V6(v6) => matches!(v6.segments(), [0xfd53 | 0x2f53, 0x6d63, 0x7000, ..]),
    }
}
