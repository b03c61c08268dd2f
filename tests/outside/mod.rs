//! Worlds with an internet of their own, for tests of what leaves a run: smcp runs in a namespace `near`, where each
//! address but its own leads to another one, `far`, in which the servers of the tests listen. `probe/outside.rs` makes both;
//! the sockets come here, so that what was reached, and by what, is known to the test. Nothing leaves the two.

mod authority;
mod far;
mod names;
mod packets;
mod websocket;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::command::{Running, Smcp};
use crate::patience::within;
use crate::world::World;
use crate::{image, needs, place, probe};

pub use far::{Connection, End, Side};
pub use packets::Packet;

/// Where `/etc/resolv.conf` of the machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolver {
    /// A file.
    File,
    /// A link into `/run`, which leads to a file.
    Link,
    /// Nowhere.
    Absent,
}

/// The namespaces around a world, gone when it is dropped.
pub struct Outside<'w> {
    world: &'w World,
    helper: Running,
    pid: String,
    servers: far::Servers,
    packets: packets::Sniffer,
    _held: std::os::unix::net::UnixStream,
}

impl<'w> Outside<'w> {
    /// Around a world; `None` where this machine makes no network namespaces for its user.
    pub fn of(world: &'w World) -> Option<Outside<'w>> {
        Outside::resolving_by(world, Resolver::File)
    }

    /// The same with another `/etc/resolv.conf`.
    pub fn resolving_by(world: &'w World, resolver: Resolver) -> Option<Outside<'w>> {
        let plan = plan(world, resolver);
        let door = world.path("door");
        let listener = UnixListener::bind(&door).expect("a world has one outside");
        world.give(&door);
        listener.set_nonblocking(true).expect("it is ours");
        let mut helper = world.bare(&["outside", &text(&door), &text(&plan)]).within(Duration::from_secs(3600)).start();
        let came = within(Duration::from_secs(30), || match listener.accept() {
            Ok((stream, _)) => Some(Some(stream)),
            Err(_) if helper.has_ended() => Some(None),
            Err(_) => None,
        });
        let stream = came.expect("it ends or connects").expect("the probe connects before anything else");
        stream.set_nonblocking(false).expect("it is ours");
        let Some((pid, mut sockets)) = receive(&stream) else {
            let why = helper.wait().text();
            needs::present(false, &format!("network namespaces for its user: {why}"));
            return None;
        };
        let mut take = |name: &str| sockets.remove(name).expect("the probe sends it");
        let packets = packets::Sniffer::new(take("packets out"), take("packets lo"), UdpSocket::from(take("canary")));
        let resolver = UdpSocket::from(take("resolver"));
        let listeners = sockets.into_iter().map(|(name, socket)| {
            let (side, port) = name.split_once(' ').expect("a side and a port");
            let side = if side == "far" { Side::Far } else { Side::Near };
            (side, port.parse().expect("a port"), Arc::new(TcpListener::from(socket)))
        });
        let servers = far::Servers::start(listeners.collect(), resolver);
        Some(Outside { world, helper, pid, servers, packets, _held: stream })
    }

    /// A program in near.
    pub fn program<A: AsRef<OsStr>>(&self, program: &Path, line: impl IntoIterator<Item = A>) -> Smcp<'w> {
        self.world.program(probe::path(), ["enter", &self.pid]).args([program]).args(line)
    }

    /// The words before a command line that has it run in near.
    pub fn words(&self) -> Vec<String> {
        vec![text(probe::path()), "enter".into(), self.pid.clone()]
    }

    /// `smcp` in near.
    pub fn smcp<A: AsRef<OsStr>>(&self, line: impl IntoIterator<Item = A>) -> Smcp<'w> {
        self.program(place::smcp(), line)
    }

    /// The probe inside the cage.
    pub fn caged(&self, flags: &[&str], verb: &[&str]) -> Smcp<'w> {
        self.smcp(["run"]).args(flags).args([image::probe_reference()]).args(verb)
    }

    /// The probe in near, without a cage: what the machine itself reaches.
    pub fn bare(&self, verb: &[&str]) -> Smcp<'w> {
        self.program(probe::path(), verb)
    }

    /// Every TCP connection that a server of the tests has taken so far, in far and on near itself.
    pub fn connections(&self) -> Vec<Connection> {
        // The kernel answers for a server that comes to take the connection a moment later.
        let opened =
            self.packets().iter().filter(|packet| packet.is_tcp() && self.servers.listen_on(packet.port)).count();
        let _ = within(Duration::from_secs(5), || (self.servers.seen().len() >= opened).then_some(()));
        self.servers.seen()
    }

    /// Every packet that has left near so far, or went to near's own loopback: the first of each attempt at TCP, all of
    /// anything else.
    #[track_caller]
    pub fn packets(&self) -> Vec<Packet> {
        self.packets.so_far()
    }

    /// Fails if a packet was sent to an address of a name, or has the name in it: as text, or as a question of the DNS.
    #[track_caller]
    pub fn nothing_went_to(&self, name: &str) {
        let question: Vec<u8> =
            name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
        let addresses = names::addresses(name);
        let has =
            |packet: &Packet| addresses.contains(&packet.to) || packet.has(name.as_bytes()) || packet.has(&question);
        let sent: Vec<_> = self.packets().into_iter().filter(has).collect();
        assert!(sent.is_empty(), "nothing was to be sent to {name}: {sent:#?}");
    }

    /// Whether a server took a connection to an address of a name and this port.
    pub fn was_reached(&self, name: &str, port: u16) -> bool {
        let addresses = names::addresses(name);
        self.connections().iter().any(|seen| seen.to.port() == port && addresses.contains(&seen.to.ip()))
    }

    /// How the clients of the servers at port 5432 have ended, sorted.
    pub fn ends(&self) -> Vec<End> {
        self.servers.ends()
    }

    /// What was asked of the proxies, which every other port than those of TLS and 5432 has.
    pub fn proxied(&self) -> Vec<String> {
        self.servers.proxied()
    }

    /// The names in the hellos of TLS that servers have got, sorted.
    pub fn names_of_tls(&self) -> Vec<String> {
        self.servers.names_of_tls()
    }

    /// Bytes that servers have sent for `/bytes/N`.
    pub fn sent(&self) -> u64 {
        self.servers.sent()
    }

    /// Forgets what has been seen.
    pub fn forget(&self) {
        self.servers.forget();
        self.packets.forget();
    }

    /// The certificate of the authority that the TLS servers' certificates are signed by, in a file that anyone may read.
    pub fn authority(&self) -> PathBuf {
        authority::certificate()
    }

    /// Whether it is still there.
    pub fn stands(&mut self) -> bool {
        !self.helper.has_ended()
    }
}

/// The files that the probe makes an `/etc` of.
fn plan(world: &World, resolver: Resolver) -> PathBuf {
    for directory in ["etc", "etc/new", "etc/work"] {
        world.directory(directory);
    }
    world.file("etc/hosts", names::hosts());
    world.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
    let conf = "nameserver 9.9.9.9\noptions timeout:1 attempts:1\n";
    match resolver {
        Resolver::File => drop(world.file("etc/resolv.conf", conf)),
        Resolver::Link => {
            let to = world.file("resolver.conf", conf);
            world.file("etc/link", text(&to));
        }
        Resolver::Absent => (),
    }
    world.path("etc")
}

/// The probe's process id and its sockets by name.
fn receive(stream: &std::os::unix::net::UnixStream) -> Option<(String, BTreeMap<String, OwnedFd>)> {
    let mut text = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(stream, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let text = std::str::from_utf8(&text[..got.bytes]).expect("names are UTF-8");
    let (pid, names) = text.split_once('\n')?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Some((pid.to_owned(), names.lines().map(String::from).zip(descriptors.flatten()).collect()))
}

fn text(path: &Path) -> String {
    path.to_str().expect("temporary paths are UTF-8").to_owned()
}

/// The worlds themselves, without smcp's egress.
mod itself {
    use super::*;
    use crate::world::as_each_user;

    as_each_user! {
        every_address_leads_to_far_and_is_seen,
        names_are_the_worlds,
        the_servers_serve,
        smcp_runs_in_it,
        a_run_without_grants_sends_nothing,
    }

    fn every_address_leads_to_far_and_is_seen(world: &World) {
        let Some(mut outside) = Outside::of(world) else { return };
        let everywhere =
            ["8.8.8.8:53", "169.254.169.254:80", "10.0.0.1:443", "[2600::1]:5432", "[fd00::1]:80", "100.64.0.1:80"];
        for to in everywhere {
            outside.bare(&["connect", to]).run().ok();
        }
        let seen: BTreeSet<_> = outside.connections().iter().map(|seen| seen.to.to_string()).collect();
        let packets: Vec<_> = outside.packets().iter().filter(|packet| packet.is_tcp()).map(Packet::to).collect();
        assert_eq!(packets, everywhere, "each is seen on its way");
        assert_eq!(seen, BTreeSet::from(everywhere.map(String::from)), "each arrives");
        assert!(outside.connections().iter().all(|seen| seen.side == Side::Far), "{:?}", outside.connections());
        outside.forget();
        for to in ["127.0.0.1:80", "[::1]:443", "44.0.0.1:5432", "0.0.0.0:80"] {
            outside.bare(&["connect", to]).run().ok();
        }
        assert!(outside.connections().iter().all(|seen| seen.side == Side::Near), "{:?}", outside.connections());
        assert_eq!(outside.packets().iter().filter(|packet| packet.is_tcp()).count(), 4);
        assert!(outside.stands());
    }

    fn names_are_the_worlds(world: &World) {
        let Some(outside) = Outside::of(world) else { return };
        outside.bare(&["connect", "allowed.test:80"]).run().ok();
        assert!(outside.was_reached("allowed.test", 80) && !outside.was_reached("allowed.test", 443));
        outside.nothing_went_to("denied.test");
        let refused = outside.bare(&["connect", "unknown.test:80"]).run().expect(probe::REFUSED);
        refused.check(refused.text().contains("lookup"), "no address was expected");
        // The sink knows that it was asked.
        let asked = outside.packets();
        assert!(asked.iter().any(|packet| packet.to() == "9.9.9.9:53" && packet.has(b"unknown")), "{asked:?}");
        for resolver in [Resolver::Link, Resolver::Absent] {
            let world = World::new(world.user());
            let outside = Outside::resolving_by(&world, resolver).expect("it was possible a moment ago");
            let conf = outside.bare(&["read", "/etc/resolv.conf"]).run();
            conf.check((conf.code() == 0) == (resolver == Resolver::Link), "a link leads to a file");
            outside.bare(&["connect", "allowed.test:80"]).run().ok();
        }
    }

    /// Each by the verb of the probe's that asks it.
    fn the_servers_serve(world: &World) {
        let Some(outside) = Outside::of(world) else { return };
        let verbs = [
            ("fetch http://plain.test/", r#"{"works": "far 20.3.0.1 plain.test\u000a"}"#),
            ("fetch tcp://plain.test:5432", r#"{"works": "there and back\u000abye\u000a"}"#),
            ("fetch http://127.0.0.1/", r#"{"works": "near 127.0.0.1 127.0.0.1\u000a"}"#),
            ("hello plain.test:443 plain.test", r#"{"works": "hello"}"#),
            ("hello plain.test:443", r#"{"works": "hello"}"#),
            ("download http://plain.test/bytes/12345678", r#"{"works": 12345678}"#),
            ("fetch-together http://plain.test/together/200 200", r#"{"works": 200}"#),
            ("greeting plain.test:8000", r#"{"works": "220 ready"}"#),
            ("mirror plain.test:5432 3000000", r#"{"works": "the same"}"#),
            ("hello-byte-by-byte plain.test:443 plain.test", r#"{"works": "hello"}"#),
            ("hello-in-two-records plain.test:443 plain.test", r#"{"works": "hello"}"#),
            ("listen 127.0.0.1:7777", r#"{"works": "heard"}"#),
            ("hang-up-hard plain.test:5432", r#"{"works": "hung up"}"#),
            ("ask-dns 9.9.9.9:53 udp plain.test 1", r#"{"works": "3 0"}"#),
            ("datagram 8.8.8.8:443 unconnected", r#"{"works": "sent"}"#),
            ("itself", r#"{"works": "heard"}"#),
            ("through-a-relay tcp://plain.test:80", r#"{"works": "far 20.3.0.1 127.0.0.1"#),
            ("fetch http://plain.test/reset", r#"{"errno": 104"#),
        ];
        let script: String = verbs.map(|(verb, _)| verb.replace(' ', "\t") + "\n").concat();
        let answers = outside.bare(&["each"]).stdin(script).run().ok();
        for ((verb, expected), answer) in verbs.iter().zip(answers.text().lines()) {
            assert!(answer.starts_with(expected), "{verb}: {answer}");
        }
        let ends = within(Duration::from_secs(30), || Some(outside.ends()).filter(|ends| ends.len() == 4));
        assert_eq!(ends, Some(vec![End::Finished, End::Finished, End::Finished, End::Reset]));
        assert!(outside.packets().iter().any(|packet| packet.to() == "8.8.8.8:443" && packet.has(b"QUIC")));
    }

    fn smcp_runs_in_it(world: &World) {
        let Some(outside) = Outside::of(world) else { return };
        outside.caged(&[], &["exit", "7"]).run().expect(7);
        let begin = world.audit().remove(0);
        assert!(begin["tier"].as_u64() >= Some(2), "the cage is whole: {begin}");
    }

    fn a_run_without_grants_sends_nothing(world: &World) {
        let Some(outside) = Outside::of(world) else { return };
        for to in ["allowed.test:80", "20.1.0.1:80", "[2600::1]:80", "127.0.0.1:80"] {
            outside.caged(&[], &["connect", to]).run().expect(probe::REFUSED);
        }
        assert_eq!(outside.packets(), []);
        assert_eq!(outside.connections(), []);
    }
}
