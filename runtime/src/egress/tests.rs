//! The whole engine between two network namespaces: a cage, and a host whose every address is its own too, so that servers
//! with public addresses can stand there and nothing leaves.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bundle::Egress;
use domain::base::iana::{Rcode, Rtype};
use domain::base::{Message, MessageBuilder, Name as WireName};
use domain::rdata::AllRecordData;
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::linux::inside::listener;
use crate::linux::{network, redirect, sockets, sys};

const INSIDE: &str = "SMCP_TEST_INSIDE";
/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the test of this name as root of a user and a network namespace in which every address is local.
fn on_a_host(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        all_local();
        return test();
    }
    let ended = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("egress::tests::{name}"), "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("util-linux is there");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

fn all_local() {
    sys::loopback_up().unwrap();
    network::open().unwrap_or_else(|_| panic!("no routes"));
}

type Job = Box<dyn FnOnce() + Send>;

/// A cage's network with an engine.
struct Cage {
    jobs: Sender<Job>,
    running: Option<Running>,
    refused: Arc<Mutex<Vec<Refused>>>,
}

/// What a cage is made of.
#[derive(Default)]
struct Plan<'a> {
    outbound: &'a [&'a str],
    host_ports: &'a [u16],
    any: bool,
    names: &'a [(&'a str, &'a [&'a str])],
    silent: bool,
    proxies: Proxies,
}

impl Plan<'_> {
    fn start(self) -> Cage {
        let (sockets, theirs) = Sockets::pair().unwrap();
        let (jobs, work) = mpsc::channel::<Job>();
        let any = self.any;
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            all_local();
            if any {
                redirect::open(network::Ipv6::Here).unwrap_or_else(|why| panic!("{}", why.what));
            }
            sockets::offer(&theirs).unwrap();
            thread::spawn(move || while crate::linux::answer(&theirs).is_ok() {});
            ready.send(()).unwrap();
            // A thread is born where its parent is.
            for job in work {
                thread::spawn(job);
            }
        });
        is_ready.recv().unwrap();
        let mut sockets = sockets;
        sockets.take_offer().unwrap().unwrap();
        let egress = Egress {
            outbound: self.outbound.iter().map(|text| text.parse().unwrap()).collect(),
            host_ports: self.host_ports.to_vec(),
            any: self.any,
            ..Egress::default()
        };
        let mut engine = Engine::open(&egress, self.proxies, sockets).unwrap();
        let address = |text: &&str| text.parse::<IpAddr>().unwrap();
        let table = self.names.iter().map(|(name, all)| (String::from(*name), all.iter().map(address).collect()));
        engine.resolver = if self.silent { Resolver::Silent } else { Resolver::Table(table.collect()) };
        let refused = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&refused);
        let running = engine.start(Box::new(move |refused| heard.lock().unwrap().push(refused.clone()))).unwrap();
        Cage { jobs, running: Some(running), refused }
    }
}

impl Cage {
    /// Does something in the cage.
    fn does<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> T {
        self.begins(what).recv_timeout(PATIENCE).expect("it has done so")
    }

    fn begins<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
        let (done, is_done) = mpsc::channel();
        self.jobs.send(Box::new(move || drop(done.send(what())))).unwrap();
        is_done
    }

    fn asks(&self, name: &str, kind: Rtype) -> (Rcode, Vec<String>) {
        let name = name.to_owned();
        self.does(move || ask("198.18.0.1", &name, kind))
    }

    /// The addresses of a name, which must have both.
    fn finds(&self, name: &str) -> [IpAddr; 2] {
        [Rtype::A, Rtype::AAAA].map(|kind| match self.asks(name, kind) {
            (Rcode::NOERROR, all) if all.len() == 1 => all[0].parse().unwrap(),
            other => panic!("{name}: {other:?}"),
        })
    }

    fn connects(&self, to: impl Into<IpAddr>, port: u16) -> io::Result<TcpStream> {
        let to = SocketAddr::new(to.into(), port);
        self.does(move || connect(to))
    }

    fn reaches(&self, name: &str, port: u16) -> TcpStream {
        self.connects(self.finds(name)[0], port).unwrap()
    }

    fn stop(mut self) -> Totals {
        self.running.take().unwrap().stop()
    }

    /// Waits until something was refused so.
    fn refused(&self, host: &str, port: Option<u16>, why: Why) -> Refused {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let all = self.refused.lock().unwrap().clone();
            if let Some(found) = all.iter().find(|one| (one.host.as_str(), one.port, one.why) == (host, port, why)) {
                return found.clone();
            }
            assert!(std::time::Instant::now() < deadline, "no {why:?} of {host} {port:?} in {all:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn question(name: &str, kind: Rtype) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(77);
    let mut builder = builder.question();
    builder.push((name.parse::<WireName<Vec<u8>>>().unwrap(), kind)).unwrap();
    builder.finish()
}

fn answers(bytes: &[u8]) -> (Rcode, Vec<String>) {
    let message = Message::from_octets(bytes).unwrap();
    let records = message.answer().unwrap().map(|record| {
        let record = record.unwrap().into_record::<AllRecordData<_, _>>().unwrap().unwrap();
        record.data().to_string()
    });
    (message.header().rcode(), records.collect())
}

/// By a connected socket, which takes answers from the asked address alone.
fn ask(server: &str, name: &str, kind: Rtype) -> (Rcode, Vec<String>) {
    let server: IpAddr = server.parse().unwrap();
    let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
    socket.connect((server, 53)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(&question(name, kind)).unwrap();
    let mut answer = [0; 600];
    let length = socket.recv(&mut answer).unwrap();
    answers(&answer[..length])
}

/// A server on the host that does something with each connection.
fn serve(at: &str, each: impl Fn(TcpStream) + Send + Sync + 'static) {
    let listener = listener(at.parse().unwrap());
    rustix::net::listen(&listener, 1024).unwrap();
    let each = Arc::new(each);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let each = Arc::clone(&each);
            thread::spawn(move || each(stream.unwrap()));
        }
    });
}

/// Says who it is, then sends back what it gets.
fn serve_echo(at: &str, who: &'static str) {
    serve(at, move |mut stream| {
        let _ = stream.write_all(who.as_bytes());
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
}

fn says(stream: &mut TcpStream, what: &str) {
    let mut got = vec![0; what.len()];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(String::from_utf8_lossy(&got), what);
}

/// The kind of error with which a connection that was accepted ends.
fn end_of(mut stream: TcpStream) -> ErrorKind {
    match stream.read(&mut [0; 100]) {
        Ok(0) => panic!("an orderly end"),
        Ok(count) => panic!("{count} bytes"),
        Err(why) => why.kind(),
    }
}

#[test]
fn a_granted_name_is_reached_and_no_other() {
    on_a_host("a_granted_name_is_reached_and_no_other", || {
        serve_echo("1.2.3.4:443", "one");
        serve_echo("[2606:4700::2]:443", "two");
        let names: &[(&str, &[&str])] = &[
            ("one.test", &["1.2.3.4"]),
            ("two.test", &["2606:4700::2"]),
            ("a.b.wild.test", &["1.2.3.4"]),
            ("wild.test", &["1.2.3.4"]),
            ("evil.test", &["1.2.3.4"]),
        ];
        let cage = Plan { outbound: &["one.test", "two.test", "*.wild.test"], names, ..Plan::default() }.start();
        for (name, who) in [("one.test", "one"), ("TWO.Test.", "two"), ("a.b.wild.test", "one")] {
            for address in cage.finds(name) {
                let mut stream = cage.connects(address, 443).unwrap();
                says(&mut stream, who);
                stream.write_all(b"ping").unwrap();
                says(&mut stream, "ping");
            }
        }
        assert_eq!(cage.finds("one.test"), cage.finds("ONE.test"), "a name keeps its addresses");
        for name in ["evil.test", "badwild.test", "x.one.test", "one.test.evil.test"] {
            assert_eq!(cage.asks(name, Rtype::A), (Rcode::NXDOMAIN, vec![]), "{name}");
            cage.refused(name, None, Why::NameNotGranted);
        }
        assert_eq!(cage.asks("wild.test", Rtype::A), (Rcode::NOERROR, vec![]), "names below it are there");
        assert_eq!(cage.asks("localhost", Rtype::A).1, ["127.0.0.1"]);
        let data = format!("{}.{}.evil.test", "a".repeat(60), "b".repeat(60));
        assert_eq!(cage.asks(&data, Rtype::TXT), (Rcode::NXDOMAIN, vec![]));
        assert_eq!(cage.refused(&data, None, Why::NameNotGranted).flag(), Some(format!("--allow-net {data}")));
        let totals = cage.stop();
        let of = |host: &str| totals.granted.iter().find(|row| row.host == host).unwrap();
        assert_eq!((of("one.test").connections, of("one.test").sent, of("one.test").received), (2, 8, 14));
        assert_eq!(totals.granted.len(), 3);
    });
}

#[test]
fn names_are_answered_at_every_address_from_that_address() {
    on_a_host("names_are_answered_at_every_address_from_that_address", || {
        let cage = Plan { outbound: &["one.test"], ..Plan::default() }.start();
        cage.does(|| {
            for server in ["198.18.0.1", "8.8.8.8", "127.0.0.53", "fd53:6d63:7000::1", "2001:4860:4860::8888", "::1"] {
                assert_eq!(ask(server, "one.test", Rtype::A).1, ["30.18.1.0"], "{server}");
                assert_eq!(ask(server, "evil.test", Rtype::A).0, Rcode::NXDOMAIN, "{server}");
            }
            assert_eq!(ask("198.18.0.1", "0.1.18.30.in-addr.arpa", Rtype::PTR).1, ["one.test."]);
            assert_eq!(ask("198.18.0.1", "1.1.18.30.in-addr.arpa", Rtype::PTR).0, Rcode::NXDOMAIN);
            for server in ["8.8.4.4:53", "[2001:4860:4860::8844]:53"] {
                let mut stream = connect(server.parse().unwrap()).unwrap();
                let message = |name| {
                    let question = question(name, Rtype::A);
                    [&(question.len() as u16).to_be_bytes()[..], &question].concat()
                };
                // All at once, the last in two pieces.
                let last = message("evil.test");
                stream.write_all(&[message("one.test"), message("one.test"), last[..9].to_vec()].concat()).unwrap();
                stream.write_all(&last[9..]).unwrap();
                let mut next = || {
                    let mut length = [0; 2];
                    stream.read_exact(&mut length).unwrap();
                    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
                    stream.read_exact(&mut answer).unwrap();
                    answers(&answer)
                };
                assert_eq!(next().1, ["30.18.1.0"]);
                assert_eq!(next().1, ["30.18.1.0"]);
                assert_eq!(next().0, Rcode::NXDOMAIN);
                // One that is too long ends the connection, and none is kept waiting by it.
                stream.write_all(&[0xff; 2]).unwrap();
                assert_eq!(stream.read(&mut [0; 9]).unwrap_or(0), 0);
            }
        });
        // Each at most once, whatever was asked.
        assert_eq!(cage.stop().refused.len(), 1);
    });
}

#[test]
fn ports_that_are_not_granted_refuse_at_once() {
    on_a_host("ports_that_are_not_granted_refuse_at_once", || {
        serve_echo("1.2.3.4:443", "one");
        serve_echo("1.2.3.4:80", "wrong");
        let cage =
            Plan { outbound: &["one.test:443"], names: &[("one.test", &["1.2.3.4"])], ..Plan::default() }.start();
        let [v4, v6] = cage.finds("one.test");
        for address in [v4, v6] {
            assert_eq!(cage.connects(address, 80).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}");
        }
        assert_eq!(cage.refused("one.test", Some(80), Why::PortNotGranted).flag().unwrap(), "--allow-net one.test:80");
        assert_eq!(cage.connects([1, 2, 3, 4], 443).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        cage.refused("1.2.3.4", Some(443), Why::AddressNotGranted);
        cage.does(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((v4, 443)).unwrap();
            socket.send(b"quic").unwrap();
            assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
        assert_eq!(cage.refused("one.test", Some(443), Why::Udp).flag(), None);
        // The server's own loopback is nobody's affair, and free.
        assert_eq!(cage.connects(Ipv4Addr::LOCALHOST, 443).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        cage.does(|| drop(TcpListener::bind("127.0.0.1:443").unwrap()));
        assert!(cage.stop().refused.iter().all(|refused| refused.host != "127.0.0.1"));
    });
}

#[test]
fn a_name_does_not_lead_to_what_is_not_public() {
    on_a_host("a_name_does_not_lead_to_what_is_not_public", || {
        let forbidden = [
            "127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "64:ff9b::10.0.0.1",
            "198.18.0.1",
        ];
        for (number, address) in forbidden.into_iter().enumerate() {
            let name = format!("n{number}.test");
            let plan = Plan { outbound: &["*.test:80"], names: &[(&name, &[address])], ..Plan::default() };
            let cage = plan.start();
            assert_eq!(end_of(cage.reaches(&name, 80)), ErrorKind::ConnectionReset, "{address}");
            let refused = cage.refused(&name, Some(80), Why::AddressForbidden);
            assert_eq!(refused.address.unwrap(), address.parse::<IpAddr>().unwrap().to_canonical());
        }
        // A public address of this machine's own, for literals too.
        serve_echo("5.6.7.8:80", "own");
        let added =
            Command::new("ip").args(["address", "add", "5.6.7.8/32", "dev", "lo"]).status().expect("iproute2 is there");
        assert!(added.success());
        let names: &[(&str, &[&str])] = &[("own.test", &["5.6.7.8"])];
        let cage = Plan { outbound: &["own.test:80", "5.0.0.0/8:80"], names, ..Plan::default() }.start();
        assert_eq!(end_of(cage.reaches("own.test", 80)), ErrorKind::ConnectionReset);
        assert_eq!(cage.refused("own.test", Some(80), Why::AddressForbidden).flag().unwrap(), "--allow-net 5.6.7.8:80");
        assert_eq!(end_of(cage.connects([5, 6, 7, 8], 80).unwrap()), ErrorKind::ConnectionReset);
        cage.refused("5.6.7.8", Some(80), Why::AddressNotGranted);
        let cage = Plan { outbound: &["own.test:80", "5.6.7.8:80"], names, ..Plan::default() }.start();
        says(&mut cage.reaches("own.test", 80), "own");
        serve_echo("1.2.3.4:80", "public");
        serve_echo("10.1.2.3:80", "private");
        let names: &[(&str, &[&str])] = &[("both.test", &["127.0.0.1", "1.2.3.4"]), ("private.test", &["10.1.2.3"])];
        let cage = Plan { outbound: &["*.test:80", "10.0.0.0/8:80"], names, ..Plan::default() }.start();
        says(&mut cage.reaches("both.test", 80), "public");
        says(&mut cage.reaches("private.test", 80), "private");
        let cage = Plan { outbound: &["*.test:80", "0.0.0.0/0:80"], names, ..Plan::default() }.start();
        assert_eq!(end_of(cage.reaches("private.test", 80)), ErrorKind::ConnectionReset);
    });
}

#[test]
fn where_the_host_cannot_connect_the_cage_sees_a_reset() {
    on_a_host("where_the_host_cannot_connect_the_cage_sees_a_reset", || {
        let cage =
            Plan { outbound: &["*.test:80"], names: &[("closed.test", &["1.2.3.4", "2606::1"])], ..Plan::default() }
                .start();
        assert_eq!(end_of(cage.reaches("closed.test", 80)), ErrorKind::ConnectionReset);
        assert_eq!(cage.refused("closed.test", Some(80), Why::Unreachable).flag(), None);
        assert_eq!(end_of(cage.reaches("unknown.test", 80)), ErrorKind::ConnectionReset);
        cage.refused("unknown.test", Some(80), Why::Unresolved);
        assert!(cage.stop().granted.is_empty());
    });
}

#[test]
fn an_address_that_does_not_answer_does_not_hold_the_next_up() {
    on_a_host("an_address_that_does_not_answer_does_not_hold_the_next_up", || {
        // A full queue: the kernel drops what comes.
        let silent = listener("1.2.3.4:80".parse().unwrap());
        rustix::net::listen(&silent, 0).unwrap();
        let _waiting: Vec<_> = (0..3)
            .map(|_| {
                let socket =
                    rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
                        .unwrap();
                rustix::io::ioctl_fionbio(&socket, true).unwrap();
                let _ = rustix::net::connect(&socket, &"1.2.3.4:80".parse::<SocketAddr>().unwrap());
                socket
            })
            .collect();
        serve_echo("[2606:4700::2]:80", "second");
        let names: &[(&str, &[&str])] = &[("one.test", &["1.2.3.4", "1.2.3.4", "2606:4700::2"])];
        let cage = Plan { outbound: &["one.test:80"], names, ..Plan::default() }.start();
        says(&mut cage.reaches("one.test", 80), "second");
    });
}

#[test]
fn addresses_and_ranges_that_are_granted() {
    on_a_host("addresses_and_ranges_that_are_granted", || {
        serve_echo("1.2.3.4:80", "one");
        serve_echo("10.1.2.3:5432", "ten");
        serve_echo("[2606:4700::2]:443", "six");
        let outbound = &["1.2.3.4:80", "10.0.0.0/8:5432", "[2606:4700::/126]:443", "one.test:5432"];
        let cage = Plan { outbound, names: &[("one.test", &["10.1.2.3"])], ..Plan::default() }.start();
        says(&mut cage.connects([1, 2, 3, 4], 80).unwrap(), "one");
        says(&mut cage.connects([10, 1, 2, 3], 5432).unwrap(), "ten");
        says(&mut cage.connects("2606:4700::2".parse::<IpAddr>().unwrap(), 443).unwrap(), "six");
        says(&mut cage.reaches("one.test", 5432), "ten");
        // The listener at every address accepts what it does not let through.
        assert_eq!(end_of(cage.connects([11, 1, 2, 3], 5432).unwrap()), ErrorKind::ConnectionReset);
        cage.refused("11.1.2.3", Some(5432), Why::AddressNotGranted);
        assert_eq!(end_of(cage.connects(Ipv4Addr::LOCALHOST, 5432).unwrap()), ErrorKind::ConnectionReset);
        assert_eq!(end_of(cage.connects([198, 18, 0, 1], 5432).unwrap()), ErrorKind::ConnectionReset);
        assert_eq!(cage.connects([1, 2, 3, 5], 80).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        cage.refused("1.2.3.5", Some(80), Why::AddressNotGranted);
        let totals = cage.stop();
        assert!(totals.refused.iter().all(|refused| refused.host != "127.0.0.1"), "{totals:?}");
        assert_eq!(totals.granted[1].host, "10.1.2.3");
    });
}

#[test]
fn ports_of_the_hosts_loopback() {
    on_a_host("ports_of_the_hosts_loopback", || {
        serve_echo("127.0.0.1:5432", "four");
        serve_echo("[::1]:5433", "six");
        serve_echo("127.0.0.1:5434", "secret");
        for outbound in [&[][..], &["10.0.0.0/8:5432"]] {
            let cage = Plan { outbound, host_ports: &[5432, 5433], ..Plan::default() }.start();
            says(&mut cage.connects(Ipv4Addr::LOCALHOST, 5432).unwrap(), "four");
            says(&mut cage.connects(std::net::Ipv6Addr::LOCALHOST, 5432).unwrap(), "four");
            says(&mut cage.connects(Ipv4Addr::LOCALHOST, 5433).unwrap(), "six");
            assert_eq!(cage.connects(Ipv4Addr::LOCALHOST, 5434).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert_eq!(cage.stop().granted[0].host, "localhost");
        }
    });
}

#[test]
fn everything_public_without_the_hosts_own() {
    on_a_host("everything_public_without_the_hosts_own", || {
        serve_echo("1.2.3.4:8443", "one");
        serve_echo("10.1.2.3:80", "private");
        serve_echo("[2606:4700::2]:1", "six");
        serve_echo("127.0.0.1:5432", "four");
        let names: &[(&str, &[&str])] = &[("one.test", &["1.2.3.4"]), ("private.test", &["10.1.2.3"])];
        let cage = Plan { any: true, names, host_ports: &[5432], ..Plan::default() }.start();
        says(&mut cage.reaches("one.test", 8443), "one");
        says(&mut cage.connects(cage.finds("one.test")[1], 8443).unwrap(), "one");
        says(&mut cage.connects([1, 2, 3, 4], 8443).unwrap(), "one");
        says(&mut cage.connects("2606:4700::2".parse::<IpAddr>().unwrap(), 1).unwrap(), "six");
        says(&mut cage.connects(Ipv4Addr::LOCALHOST, 5432).unwrap(), "four");
        assert_eq!(end_of(cage.connects([10, 1, 2, 3], 80).unwrap()), ErrorKind::ConnectionReset);
        assert_eq!(
            cage.refused("10.1.2.3", Some(80), Why::AddressNotGranted).flag().unwrap(),
            "--allow-net 10.1.2.3:80"
        );
        assert_eq!(end_of(cage.reaches("private.test", 80)), ErrorKind::ConnectionReset);
        cage.refused("private.test", Some(80), Why::AddressForbidden);
        cage.does(|| {
            assert_eq!(ask("8.8.8.8", "x.test", Rtype::A).0, Rcode::NOERROR);
        });
    });
}

/// A hello with a name, in records of a size.
fn client_hello(name: &str, size: usize) -> Vec<u8> {
    let vector = |width: usize, content: &[u8]| [&content.len().to_be_bytes()[8 - width..], content].concat();
    let names = vector(2, &[&[0][..], &vector(2, name.as_bytes())].concat());
    let extensions = [&[0, 0][..], &vector(2, &names)].concat();
    let body =
        [&[3, 3][..], &[9; 32], &[0], &vector(2, &[0x13, 1]), &vector(1, &[0]), &vector(2, &extensions)].concat();
    let message = [&[1][..], &vector(3, &body)].concat();
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &vector(2, part)].concat()).collect()
}

#[test]
fn tls_is_begun_with_the_name_that_was_granted() {
    on_a_host("tls_is_begun_with_the_name_that_was_granted", || {
        serve_echo("1.2.3.4:443", "greeting");
        let names: &[(&str, &[&str])] =
            &[("one.test", &["1.2.3.4"]), ("two.test", &["1.2.3.4"]), ("a.wild.test", &["1.2.3.4"])];
        let outbound = &["one.test", "two.test", "*.wild.test", "1.2.3.4"];
        let cage = Plan { outbound, names, ..Plan::default() }.start();
        let right = [
            ("one.test", client_hello("One.test", 9999)),
            ("one.test", client_hello("one.test", 7)),
            ("a.wild.test", client_hello("b.wild.test", 9999)),
            ("one.test", b"\x16\x04plain".to_vec()),
            ("one.test", b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n".to_vec()),
        ];
        for (name, bytes) in right {
            let mut stream = cage.reaches(name, 443);
            // A server that speaks first is not kept waiting.
            says(&mut stream, "greeting");
            for part in bytes.chunks(11) {
                stream.write_all(part).unwrap();
            }
            let mut back = vec![0; bytes.len()];
            stream.read_exact(&mut back).unwrap();
            assert_eq!(back, bytes);
        }
        let wrong = [
            ("one.test", client_hello("evil.test", 9999), "evil.test", Why::WrongSni),
            ("one.test", client_hello("two.test", 5), "two.test", Why::WrongSni),
            ("a.wild.test", client_hello("wild.test", 9999), "wild.test", Why::WrongSni),
            (
                "two.test",
                [&[21, 3, 1, 0, 2, 1, 90][..], &client_hello("evil.test", 9999)].concat(),
                "two.test",
                Why::BadHello,
            ),
        ];
        for (name, bytes, host, why) in wrong {
            let mut stream = cage.reaches(name, 443);
            says(&mut stream, "greeting");
            stream.write_all(&bytes).unwrap();
            assert_eq!(end_of(stream), ErrorKind::ConnectionReset, "{host}");
            cage.refused(host, Some(443), why);
        }
        // A hello that ends in its middle is none; an address is not looked at.
        let mut stream = cage.reaches("a.wild.test", 443);
        says(&mut stream, "greeting");
        stream.write_all(&client_hello("a.wild.test", 9999)[..30]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(end_of(stream), ErrorKind::ConnectionReset);
        cage.refused("a.wild.test", Some(443), Why::BadHello);
        let mut stream = cage.connects([1, 2, 3, 4], 443).unwrap();
        says(&mut stream, "greeting");
        stream.write_all(b"\x16").unwrap();
        says(&mut stream, "\x16");
        stream.write_all(&client_hello("evil.test", 9999)).unwrap();
        stream.read_exact(&mut [0; 60]).unwrap();
    });
}

/// Bytes that tell their place.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn ends_and_resets_are_carried_over() {
    on_a_host("ends_and_resets_are_carried_over", || {
        let (ended, ends) = mpsc::channel();
        let ended = Mutex::new(ended);
        // Answers what it got when the other side has ended; a request of one byte is met with a reset.
        serve("1.2.3.4:80", move |mut stream| {
            let mut all = Vec::new();
            let end = stream.read_to_end(&mut all).map_err(|why| why.kind());
            ended.lock().unwrap().send(end).unwrap();
            if all.len() == 1 {
                return rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
            let _ = stream.write_all(&all);
        });
        let cage = Plan { outbound: &["one.test:80"], names: &[("one.test", &["1.2.3.4"])], ..Plan::default() }.start();
        let mut stream = cage.reaches("one.test", 80);
        let bytes = pattern(3_000_000);
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == bytes, "{} bytes", back.len());
        assert_eq!(ends.recv().unwrap(), Ok(3_000_000));
        let mut stream = cage.reaches("one.test", 80);
        stream.write_all(b"x").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(end_of(stream), ErrorKind::ConnectionReset);
        assert_eq!(ends.recv().unwrap(), Ok(1));
        let mut stream = cage.reaches("one.test", 80);
        stream.write_all(b"xyz").unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        assert_eq!(ends.recv_timeout(PATIENCE).unwrap(), Err(ErrorKind::ConnectionReset));
        let totals = cage.stop();
        assert_eq!((totals.granted[0].connections, totals.granted[0].received), (3, 3_000_000));
    });
}

#[test]
fn a_reset_is_seen_while_nothing_can_be_passed_on() {
    on_a_host("a_reset_is_seen_while_nothing_can_be_passed_on", || {
        let (met, meets) = mpsc::channel();
        let met = Mutex::new(met);
        // Reads nothing until it was reset.
        serve("1.2.3.4:80", move |stream| {
            met.lock().unwrap().send(stream).unwrap();
        });
        let cage = Plan { outbound: &["one.test:80"], names: &[("one.test", &["1.2.3.4"])], ..Plan::default() }.start();
        let mut stream = cage.reaches("one.test", 80);
        stream.set_nonblocking(true).unwrap();
        let mut host = meets.recv().unwrap();
        let bytes = vec![7; 1 << 20];
        let mut idle = 0;
        while idle < 20 {
            match stream.write(&bytes) {
                Ok(1..) => idle = 0,
                _ => {
                    idle += 1;
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        drop(stream);
        host.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(io::copy(&mut host, &mut io::sink()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn a_thousand_at_once_and_slow_readers_in_bounded_memory() {
    on_a_host("a_thousand_at_once_and_slow_readers_in_bounded_memory", || {
        let limit = getrlimit(Resource::Nofile);
        rustix::process::setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })
            .unwrap();
        const EACH: usize = 300_000;
        let bytes = Arc::new(pattern(EACH));
        let sent = Arc::clone(&bytes);
        // One thread for all would be a server of its own; a thousand short ones are not many.
        serve("1.2.3.4:80", move |mut stream| stream.write_all(&sent).unwrap());
        let cage = Plan { outbound: &["one.test:80"], names: &[("one.test", &["1.2.3.4"])], ..Plan::default() }.start();
        let at = SocketAddr::new(cage.finds("one.test")[0], 80);
        let mut all: Vec<TcpStream> = cage.does(move || (0..1000).map(|_| connect(at).unwrap()).collect());
        // Nobody reads yet: what does not fit into the kernel's buffers waits at the sender.
        let before = resident();
        let mut one = [0; 1];
        for stream in &mut all {
            stream.read_exact(&mut one).unwrap();
        }
        for (number, mut stream) in all.into_iter().enumerate() {
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert!(got == bytes[1..], "connection {number}: {} bytes", got.len());
        }
        assert!(resident() < before + (64 << 20), "{} → {}", before, resident());
        let totals = cage.stop();
        assert_eq!((totals.granted[0].connections, totals.granted[0].received), (1000, 1000 * EACH as u64));
    });
}

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

#[test]
fn thousands_of_names_of_one_suffix() {
    on_a_host("thousands_of_names_of_one_suffix", || {
        serve("1.2.3.4:80", |mut stream| drop(stream.write_all(b"one")));
        serve("1.2.3.5:80", |mut stream| drop(stream.write_all(b"two")));
        let names: &[(&str, &[&str])] = &[("n0.test", &["1.2.3.4"]), ("n1.test", &["1.2.3.5"])];
        let cage = Plan { outbound: &["*.test:80"], names, ..Plan::default() }.start();
        let first = cage.finds("n0.test");
        let seen = cage.does(|| {
            let mut seen = HashMap::new();
            for number in 0..3_000 {
                let name = format!("n{number}.test");
                let (rcode, all) = ask("198.18.0.1", &name, Rtype::A);
                assert_eq!((rcode, all.len()), (Rcode::NOERROR, 1), "{name}");
                assert_eq!(seen.insert(all[0].clone(), name), None);
            }
            seen
        });
        assert_eq!(seen.len(), 3_000);
        // The oldest has lost its listeners, and gets them back with the same address when it is asked for.
        assert_eq!(cage.connects(first[0], 80).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(cage.finds("n0.test"), first);
        says(&mut cage.connects(first[0], 80).unwrap(), "one");
        says(&mut cage.reaches("n1.test", 80), "two");
        assert!(cage.stop().refused.is_empty());
    });
}

#[test]
fn a_port_that_the_server_has_taken() {
    on_a_host("a_port_that_the_server_has_taken", || {
        let cage =
            Plan { outbound: &["one.test:8080"], names: &[("one.test", &["1.2.3.4"])], ..Plan::default() }.start();
        let taken = cage.does(|| TcpListener::bind("0.0.0.0:8080").unwrap());
        cage.finds("one.test");
        assert_eq!(cage.refused("one.test", Some(8080), Why::PortTaken).flag(), None);
        drop(taken);
        serve_echo("1.2.3.4:8080", "one");
        // Asked again, it is there, and the server, which has the same uid and allows sharing, cannot join it.
        says(&mut cage.reaches("one.test", 8080), "one");
        let at = cage.finds("one.test")[0];
        let joined =
            cage.does(move || [at, Ipv4Addr::UNSPECIFIED.into()].map(|at: IpAddr| TcpListener::bind((at, 8080))));
        for joined in joined {
            assert_eq!(joined.unwrap_err().kind(), ErrorKind::AddrInUse);
        }
    });
}

/// A proxy that tells what it was asked, answers, and is an echo from then on.
fn serve_proxy(at: &str, steps: &'static [(&'static [u8], &'static [u8])]) {
    serve(at, move |mut stream| {
        for (wanted, answer) in steps {
            let mut got = vec![0; wanted.len()];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(wanted));
            stream.write_all(answer).unwrap();
        }
        let _ = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
}

#[test]
fn through_the_hosts_proxy() {
    on_a_host("through_the_hosts_proxy", || {
        // The first bytes of the target come with the proxy's answer.
        serve_proxy(
            "127.0.0.1:3128",
            &[(
                b"CONNECT one.test:443 HTTP/1.1\r\nHost: one.test:443\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n",
                b"HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello",
            )],
        );
        serve_proxy(
            "10.0.0.1:3128",
            &[(
                b"CONNECT [2606:4700::2]:443 HTTP/1.1\r\nHost: [2606:4700::2]:443\r\n\r\n",
                b"HTTP/1.0 200 OK\r\n\r\nhello",
            )],
        );
        serve_proxy(
            "10.0.0.1:1080",
            &[
                (b"\x05\x02\x00\x02", b"\x05\x02"),
                (b"\x01\x04user\x04p@ss", b"\x01\x00"),
                (b"\x05\x01\x00\x03\x08one.test\x01\xbb", b"\x05\x00\x00\x01\x01\x02\x03\x04\x00\x50hello"),
            ],
        );
        serve_proxy(
            "10.0.0.1:1081",
            &[
                (b"\x05\x01\x00", b"\x05\x00"),
                (
                    b"\x05\x01\x00\x04\x26\x06\x47\x00\0\0\0\0\0\0\0\0\0\0\0\x02\x01\xbb",
                    b"\x05\x00\x00\x03\x01x\x00\x50hello",
                ),
            ],
        );
        serve_proxy(
            "10.0.0.1:3129",
            &[(b"CONNECT one.test:443 ", b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")],
        );
        serve_proxy("10.0.0.1:1082", &[(b"\x05\x01\x00", b"\x05\xff")]);
        serve_proxy(
            "10.0.0.1:1083",
            &[(b"\x05\x01\x00", b"\x05\x00"), (b"\x05\x01\x00\x03\x08one.test", b"\x05\x02\x00\x01")],
        );
        serve_echo("1.2.3.4:443", "direct");
        // The name is known to the proxy alone.
        let names: &[(&str, &[&str])] = &[("proxy.test", &["10.0.0.1"]), ("past.test", &["1.2.3.4"])];
        let with = |proxy: &str| {
            let proxies = Proxies::read(Some(proxy), None, Some("past.test,1.2.0.0/16")).unwrap();
            let outbound = &["one.test", "past.test", "1.2.3.4", "[2606:4700::2]"];
            Plan { outbound, names, proxies, ..Plan::default() }.start()
        };
        let six: IpAddr = "2606:4700::2".parse().unwrap();
        for (proxy, to) in [
            ("http://user:p%40ss@127.0.0.1:3128", None),
            ("http://proxy.test:3128", Some(six)),
            ("socks5://user:p%40ss@proxy.test", None),
            ("socks5h://10.0.0.1:1081", Some(six)),
        ] {
            let cage = with(proxy);
            let mut stream = cage.connects(to.unwrap_or_else(|| cage.finds("one.test")[0]), 443).unwrap();
            says(&mut stream, "hello");
            stream.write_all(b"ping").unwrap();
            says(&mut stream, "ping");
            says(&mut cage.reaches("past.test", 443), "direct");
            says(&mut cage.connects([1, 2, 3, 4], 443).unwrap(), "direct");
        }
        for proxy in [
            "http://10.0.0.1:3129",
            "socks5://10.0.0.1:1082",
            "socks5://10.0.0.1:1083",
            "http://10.0.0.1:9",
            "http://unknown.test",
        ] {
            let cage = with(proxy);
            assert_eq!(end_of(cage.reaches("one.test", 443)), ErrorKind::ConnectionReset, "{proxy}");
            cage.refused("one.test", Some(443), Why::ProxyFailed);
        }
    });
}

#[test]
fn it_stops_with_all_that_is_open() {
    on_a_host("it_stops_with_all_that_is_open", || {
        serve_echo("1.2.3.4:80", "one");
        let cage = Plan { outbound: &["one.test:80"], names: &[("one.test", &["1.2.3.4"])], ..Plan::default() }.start();
        let mut stream = cage.reaches("one.test", 80);
        says(&mut stream, "one");
        let totals = cage.stop();
        assert_eq!(totals.granted.len(), 1);
        assert_eq!(stream.read(&mut [0; 9]).unwrap_or(0), 0);
    });
}

#[test]
fn it_stops_while_names_are_looked_up() {
    on_a_host("it_stops_while_names_are_looked_up", || {
        let cage = Plan { outbound: &["*.test:80", "1.2.3.4:80"], silent: true, ..Plan::default() }.start();
        serve_echo("1.2.3.4:80", "one");
        let _waiting: Vec<TcpStream> = (0..20).map(|number| cage.reaches(&format!("n{number}.test"), 80)).collect();
        says(&mut cage.connects([1, 2, 3, 4], 80).unwrap(), "one");
        // Nothing where the thread had not ended in time.
        assert_eq!(cage.stop().granted.len(), 1);
    });
}

#[test]
fn questions_without_end_are_answered_and_counted_in_bounds() {
    on_a_host("questions_without_end_are_answered_and_counted_in_bounds", || {
        let cage = Plan { outbound: &["one.test"], ..Plan::default() }.start();
        cage.does(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect("198.18.0.1:53").unwrap();
            for number in 0..20_000_u32 {
                let _ = socket.send(&question(&format!("{number}.evil.test"), Rtype::TXT));
                let _ = socket.send(&number.to_be_bytes().repeat(300));
            }
            // Datagrams are lost in such a flood; one of these is not.
            socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let mut answer = [0; 600];
            let answered = (0..100).any(|_| {
                let _ = socket.send(&question("one.test", Rtype::A));
                let mut next = || socket.recv(&mut answer).map(|length| answers(&answer[..length]).1.len());
                std::iter::from_fn(|| next().ok()).any(|records| records == 1)
            });
            assert!(answered);
        });
        let heard = cage.refused.lock().unwrap().len();
        let totals = cage.stop();
        assert!(totals.refused.len() <= 1000 && totals.refused.len() == heard, "{heard}");
        assert!(!totals.refused.is_empty());
    });
}
