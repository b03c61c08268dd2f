//! What leaves near, packet by packet.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::patience::{PATIENCE, within};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Where canaries fly to: far, and near's loopback.
const CANARIES: [&str; 2] = ["44.0.0.2:9", "127.0.0.1:9"];

/// One packet.
#[derive(Clone, PartialEq, Eq)]
pub struct Packet {
    protocol: u8,
    /// Where it goes.
    pub to: IpAddr,
    /// Of TCP and UDP, else 0.
    pub port: u16,
    /// All behind the IP header.
    pub bytes: Vec<u8>,
}

impl Packet {
    /// Whether it opens a TCP connection.
    pub fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// `ADDRESS:PORT`
    pub fn to(&self) -> String {
        SocketAddr::new(self.to, self.port).to_string()
    }

    /// Whether a word stands in it.
    pub fn has(&self, word: &[u8]) -> bool {
        self.bytes.windows(word.len()).any(|bytes| bytes.eq_ignore_ascii_case(word))
    }

    /// From an IP header on; nothing where it is what an interface says by itself: neighbours, routers, groups.
    fn parse(packet: &[u8]) -> Option<Packet> {
        let (protocol, to, rest): (u8, IpAddr, &[u8]) = match packet.first()? >> 4 {
            4 => {
                let to: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
                (*packet.get(9)?, Ipv4Addr::from(to).into(), packet.get(usize::from(packet[0] & 15) * 4..)?)
            }
            _ => {
                let to: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
                (*packet.get(6)?, Ipv6Addr::from(to).into(), packet.get(40..)?)
            }
        };
        let of_the_interface = match protocol {
            // What a listener's group reports come with is an option before them.
            0 => true,
            ICMPV6 => rest.first().is_some_and(|kind| (130..=143).contains(kind)),
            _ => false,
        };
        let port = if matches!(protocol, TCP | UDP) { u16::from_be_bytes(rest.get(2..4)?.try_into().ok()?) } else { 0 };
        (!of_the_interface).then(|| Packet { protocol, to, port, bytes: rest.to_vec() })
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "protocol {} to {}: {}", self.protocol, self.to(), self.bytes.escape_ascii())
    }
}

/// Listens on near's interfaces.
pub struct Sniffer {
    seen: Arc<Mutex<VecDeque<Packet>>>,
    canary: UdpSocket,
    flown: AtomicU32,
    over: Arc<AtomicBool>,
}

impl Sniffer {
    pub fn new(out: OwnedFd, lo: OwnedFd, canary: UdpSocket) -> Sniffer {
        let sniffer =
            Sniffer { seen: Arc::default(), canary, flown: AtomicU32::new(0), over: Arc::new(AtomicBool::new(false)) };
        for socket in [out, lo] {
            let (seen, over) = (sniffer.seen.clone(), sniffer.over.clone());
            thread::spawn(move || listen(socket, &seen, &over));
        }
        sniffer
    }

    /// All up to now: what was sent before a canary comes before it.
    #[track_caller]
    pub fn so_far(&self) -> Vec<Packet> {
        let word = format!("canary {}", self.flown.fetch_add(1, Ordering::Relaxed));
        for to in CANARIES {
            self.canary.send_to(word.as_bytes(), to).expect("near has both ways");
        }
        let is_canary = |packet: &Packet| CANARIES.contains(&packet.to().as_str());
        let all = within(PATIENCE, || {
            let seen = self.seen.lock().expect("no listener panics");
            let arrived = seen.iter().filter(|packet| is_canary(packet) && packet.bytes.ends_with(word.as_bytes()));
            (arrived.count() == CANARIES.len()).then(|| seen.clone())
        });
        // An unreachable port of near's loopback is told by ICMP, which is the canary's own.
        let own = |packet: &Packet| is_canary(packet) || packet.has(b"canary ");
        all.expect("the canaries arrive").into_iter().filter(|packet| !own(packet)).collect()
    }

    pub fn forget(&self) {
        self.so_far();
        self.seen.lock().expect("no listener panics").clear();
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn listen(socket: OwnedFd, seen: &Mutex<VecDeque<Packet>>, over: &AtomicBool) {
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(50))).expect("it is ours");
    let mut socket = File::from(socket);
    let mut bytes = [0; 2048];
    while !over.load(Ordering::Relaxed) {
        match socket.read(&mut bytes) {
            Ok(length) => {
                let packet = Packet::parse(&bytes[..length]);
                seen.lock().expect("no other panics").extend(packet);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            // The interface went with its namespace.
            Err(_) => return,
        }
    }
}
