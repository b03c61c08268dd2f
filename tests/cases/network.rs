//! N: what a run reaches of the network. Worlds with an internet of their own (`outside/`) have the names; what was not
//! granted sends no packet, which is looked at on the wire.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::Value;

use crate::clients::{Clients, Outcome};
use crate::command::{Running, Smcp};
use crate::outside::{End, Outside, Packet, Resolver};
use crate::patience::{PATIENCE, within};
use crate::tier::without_namespaces;
use crate::world::{User, World, as_each_user};
use crate::{image, place, processes};

as_each_user! {
    n1_the_matrix_against_an_allowed_and_a_denied_host,
    n2_ports_are_granted_one_by_one,
    n3_a_suffix_is_what_lies_below_it,
    n4_names_do_not_lead_into_the_machines_own_networks,
    n4_an_address_is_granted_by_itself,
    n5_a_port_of_the_hosts_loopback,
    n6_the_name_of_tls_is_the_granted_one,
    n7_the_dns_carries_nothing_out,
    n8_other_forms_of_names_and_addresses,
    n9_no_datagram_leaves,
    n10_the_hosts_proxy,
    n11_the_server_speaks_with_itself,
    n12_the_hosts_services_stay_out_of_reach,
    n13_whatever_the_hosts_resolv_conf_is,
    n14_a_thousand_connections_at_once,
    n14_ends_are_carried_over,
    n14_connections_end_with_the_run,
    n14_many_one_after_the_other_leave_nothing,
    n14_a_slow_reader_bounds_itself,
    n15_nothing_declared_is_loopback_alone,
    n16_a_private_authority,
}

/// Refused by the kernel at once: a reset, which is no timeout.
const ECONNREFUSED: i64 = 111;
const ECONNRESET: i64 = 104;

/// An attempt of the probe's, and what came of it.
struct Tried {
    verb: String,
    answer: Value,
}

impl fmt::Debug for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verb, self.answer)
    }
}

impl Tried {
    #[track_caller]
    fn has_worked(&self) {
        assert!(!self.answer["works"].is_null(), "it was to work: {self:?}");
    }

    /// The answer of what has worked.
    #[track_caller]
    fn works(&self) -> &Value {
        self.has_worked();
        &self.answer["works"]
    }

    #[track_caller]
    fn says(&self, what: &str) {
        assert!(self.works().as_str().is_some_and(|said| said.contains(what)), "{what:?} was expected: {self:?}");
    }

    /// Refused by the system, and not by a timeout of the probe's.
    #[track_caller]
    fn is_refused(&self) {
        const EAGAIN: i64 = 11;
        let (errno, why) = (self.answer["errno"].as_i64(), self.answer["refused"].as_str().unwrap_or_default());
        assert!(errno.is_some_and(|errno| errno != EAGAIN) && !why.contains("timed out"), "refused at once: {self:?}");
    }

    #[track_caller]
    fn is_reset(&self) {
        assert_eq!(self.answer["errno"], ECONNREFUSED, "a reset was expected: {self:?}");
    }
}

/// Makes several attempts in one run, each in a process of its own.
#[track_caller]
fn each<V: AsRef<str>>(command: Smcp<'_>, verbs: &[V]) -> Vec<Tried> {
    let script: String = verbs.iter().map(|verb| verb.as_ref().replace(' ', "\t") + "\n").collect();
    let ended = command.told(&script).ok();
    let answers: Vec<Value> = ended.text().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    ended.check(answers.len() == verbs.len(), "an answer to each attempt was expected");
    verbs.iter().zip(answers).map(|(verb, answer)| Tried { verb: verb.as_ref().into(), answer }).collect()
}

/// What the audit log says was refused: hosts with their ports, and why.
fn refusals(world: &World) -> Vec<(String, Option<u64>, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let lines = world.audit().into_iter().filter(|line| line["event"] == "denied");
    lines.map(|line| (text(&line["host"]), line["port"].as_u64(), text(&line["why"]))).collect()
}

#[track_caller]
fn audited(world: &World, host: &str, port: Option<u64>, why: &str) {
    let refusals = refusals(world);
    assert!(refusals.contains(&(host.into(), port, why.into())), "{host} {port:?} {why}: {refusals:#?}");
}

/// Fails if a connection was opened to anything but these.
#[track_caller]
fn only_opened(outside: &Outside, expected: &[&str]) {
    let opened: BTreeSet<_> = outside.packets().iter().map(Packet::to).collect();
    assert_eq!(opened, expected.iter().map(|to| (*to).to_owned()).collect());
}

fn n1_the_matrix_against_an_allowed_and_a_denied_host(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    for clients in [Clients::Python, Clients::Node] {
        let asked = [clients.asking("allowed.test"), clients.asking("denied.test")].concat();
        let outcomes = clients.ask(&outside, &["--allow-net", "allowed.test:80,443,5432"], &asked);
        for outcome in outcomes {
            let Outcome { client, url, said } = &outcome;
            if url.contains("denied") {
                assert!(outcome.failed_by_the_network(), "{outcome:?}");
                continue;
            }
            let words: &[&str] = match client.as_str() {
                "git" => &["refs/heads/main"],
                "go" => &["[200]"],
                "socket" | "net" => &["there and back\nbye"],
                "websocket" | "websockets" => &["there and back"],
                _ => &["far 20.1.0.1 allowed.test", "far 2a00:1::1 allowed.test", "there and back\\u000abye"],
            };
            let good = said.as_ref().is_ok_and(|said| words.iter().any(|word| said.contains(word)));
            assert!(good, "{words:?} was expected: {outcome:?}");
        }
    }
    assert!(outside.was_reached("allowed.test", 443));
    outside.nothing_went_to("denied.test");
    audited(world, "denied.test", None, "name-not-granted");
    // The control: what the sink would have seen.
    outside.bare(&["fetch", "http://denied.test/"]).run().ok();
    assert!(outside.was_reached("denied.test", 80));
}

fn n2_ports_are_granted_one_by_one(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let flags = ["--allow-net", "allowed.test", "--allow-net", "plain.test:80"];
    let tried = each(
        outside.caged(&flags, &["each"]),
        &[
            "fetch http://allowed.test/",
            "connect allowed.test:8443",
            "connect allowed.test:5432",
            "connect plain.test:443",
            // Last, as the kernel refuses by itself, and smcp writes that down a moment later.
            "hello allowed.test:443 allowed.test",
            "fetch http://plain.test/",
        ],
    );
    tried[..4].iter().for_each(Tried::is_reset);
    assert_eq!(tried[4].works(), "hello", "without a port 443 is meant");
    tried[5].says("far 20.3.0.1 plain.test");
    for (name, port) in [("allowed.test", 80), ("allowed.test", 8443), ("plain.test", 443)] {
        assert!(!outside.was_reached(name, port), "{name}:{port}: {:?}", outside.connections());
        audited(world, name, Some(port.into()), "port-not-granted");
    }
    assert!(outside.packets().iter().all(|packet| [80, 443].contains(&packet.port)), "{:?}", outside.packets());
}

fn n3_a_suffix_is_what_lies_below_it(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let tried = each(
        outside.caged(&["--allow-net", "*.example.test:80"], &["each"]),
        &[
            "fetch http://a.example.test/",
            "fetch http://a.b.example.test/",
            "fetch http://A.Example.TEST./",
            "fetch http://example.test/",
            "fetch http://badexample.test/",
        ],
    );
    tried[0].says("far 20.5.0.2 a.example.test");
    tried[1].says("far 20.5.0.3 a.b.example.test");
    tried[2].says("far 20.5.0.2");
    for (refused, name) in tried[3..].iter().zip(["example.test", "badexample.test"]) {
        refused.is_refused();
        audited(world, name, None, "name-not-granted");
        assert!(!outside.was_reached(name, 80));
    }
}

/// Names that stand for addresses which are refused, with those.
const REBOUND: [(&str, &str); 18] = [
    ("to-loopback.test", "127.0.0.1"),
    ("to-loopback-elsewhere.test", "127.9.9.9"),
    ("to-private.test", "10.0.0.1"),
    ("to-private-172.test", "172.16.0.1"),
    ("to-private-192.test", "192.168.0.1"),
    ("to-metadata.test", "169.254.169.254"),
    ("to-shared.test", "100.64.0.1"),
    ("to-zero.test", "0.0.0.0"),
    ("to-multicast.test", "224.0.0.251"),
    ("to-broadcast.test", "255.255.255.255"),
    ("to-loopback6.test", "::1"),
    ("to-unique-local.test", "fd00::1"),
    ("to-metadata6.test", "fd00:ec2::254"),
    ("to-mapped.test", "127.0.0.1"),
    ("to-mapped-private.test", "10.0.0.1"),
    ("to-nat64.test", "64:ff9b::a9fe:a9fe"),
    ("to-6to4.test", "2002:7f00:1::1"),
    ("to-unspecified6.test", "::"),
];

fn n4_names_do_not_lead_into_the_machines_own_networks(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    // The control: the machine itself reaches what it is kept from.
    for name in ["to-loopback.test", "to-metadata.test", "to-unique-local.test", "to-mapped.test", "to-zero.test"] {
        outside.bare(&["fetch", &format!("http://{name}/")]).run().ok();
    }
    outside.forget();
    let names: Vec<&str> = REBOUND.iter().map(|(name, _)| *name).chain(["to-link-local.test", "mixed.test"]).collect();
    let grants: Vec<String> = names.iter().map(|name| format!("{name}:80")).collect();
    let flags: Vec<&str> = grants.iter().flat_map(|grant| ["--allow-net", grant]).collect();
    let verbs: Vec<String> = names.iter().map(|name| format!("fetch http://{name}/")).collect();
    let mut tried = each(outside.caged(&flags, &["each"]), &verbs);
    // One good address beside a bad one: that alone is used.
    tried.pop().expect("mixed.test").says("far 20.8.0.1");
    tried.iter().for_each(Tried::is_refused);
    for (name, _) in REBOUND {
        audited(world, name, Some(80), "address-forbidden");
    }
    only_opened(&outside, &["20.8.0.1:80"]);
}

fn n4_an_address_is_granted_by_itself(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let of = |flags: &[&str], verbs: &[&str]| each(outside.caged(flags, &["each"]), verbs);
    let flags = ["--allow-net", "to-private.test:80", "--allow-net", "10.0.0.0/8:80", "--allow-net", "[fd00::1]:80"];
    let tried = of(
        &flags,
        &[
            "fetch http://to-private.test/",
            "fetch http://10.0.0.1/",
            "fetch http://10.9.8.7/",
            "fetch http://[fd00::1]/",
            "fetch http://[fd00::2]/",
            "fetch http://11.0.0.1/",
            "connect 10.0.0.1:443",
            "fetch http://169.254.169.254/",
        ],
    );
    tried[0].says("far 10.0.0.1 to-private.test");
    tried[1].says("far 10.0.0.1");
    tried[2].says("far 10.9.8.7");
    tried[3].says("far fd00::1");
    // Where a range is granted, its port is listened to at every address, and what is not of it is reset a moment later.
    let reset = |tried: &Tried| [ECONNREFUSED, ECONNRESET].iter().any(|errno| tried.answer["errno"] == *errno);
    assert!(tried[4..].iter().all(reset), "{:?}", &tried[4..]);
    audited(world, "11.0.0.1", Some(80), "address-not-granted");
    only_opened(&outside, &["10.0.0.1:80", "10.9.8.7:80", "[fd00::1]:80"]);
    // Metadata is granted by its address alone.
    let tried = of(&["--allow-net", "169.254.169.254:80"], &["fetch http://169.254.169.254/"]);
    tried[0].says("far 169.254.169.254");
}

fn n5_a_port_of_the_hosts_loopback(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let tried = each(
        outside.caged(&["--allow-host-port", "5432"], &["each"]),
        &[
            "fetch tcp://127.0.0.1:5432",
            "fetch tcp://[::1]:5432",
            "fetch tcp://localhost:5432",
            "fetch tcp://host.docker.internal:5432",
            "fetch http://127.0.0.1/",
            "fetch http://[::1]/",
            "connect 127.0.0.1:8080",
            "fetch tcp://44.0.0.1:5432",
            "fetch tcp://allowed.test:5432",
        ],
    );
    tried[..4].iter().for_each(|tried| tried.says("there and back\nbye"));
    tried[4..].iter().for_each(Tried::is_refused);
    let opened: Vec<_> = outside.packets().iter().map(Packet::to).collect();
    let host = ["127.0.0.1:5432", "[::1]:5432"];
    assert!(!opened.is_empty() && opened.iter().all(|to| host.contains(&to.as_str())), "{opened:?}");
}

fn n6_the_name_of_tls_is_the_granted_one(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let flags = ["--allow-net", "allowed.test", "--allow-net", "20.2.0.1"];
    let tried = each(
        outside.caged(&flags, &["each"]),
        &[
            "hello allowed.test:443 allowed.test",
            "hello allowed.test:443 Allowed.TEST",
            // A client without a name, and a protocol that is not TLS.
            "hello allowed.test:443",
            // A granted address is examined by nobody.
            "hello 20.2.0.1:443 denied.test",
            "hello-byte-by-byte allowed.test:443 allowed.test",
            "hello-byte-by-byte allowed.test:443 denied.test",
            "hello-in-two-records allowed.test:443 denied.test",
            "hello allowed.test:443 denied.test",
            "hello allowed.test:443 xallowed.test",
            "hello allowed.test:443 allowed.test.denied.test",
        ],
    );
    for good in &tried[..5] {
        assert_eq!(good.works(), "hello", "{good:?}");
    }
    for bad in &tried[5..] {
        bad.is_refused();
    }
    audited(world, "denied.test", Some(443), "wrong-sni");
    // Nothing of such a hello has left.
    let names = within(PATIENCE, || Some(outside.names_of_tls()).filter(|names| names.len() >= 4));
    assert_eq!(names, Some(["allowed.test", "allowed.test", "allowed.test", "denied.test"].map(String::from).to_vec()));
}

fn n7_the_dns_carries_nothing_out(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let data = "c2VjcmV0LWRhdGEtYmFzZTY0LWVuY29kZWQ";
    let long = [data; 5].join(".");
    let [a, txt, https, any] = [1, 16, 65, 255];
    let mut verbs = Vec::new();
    for resolver in ["198.18.0.1:53", "8.8.8.8:53", "9.9.9.9:53", "[2001:4860:4860::8888]:53", "44.0.0.1:53"] {
        for by in ["udp", "tcp"] {
            for kind in [a, txt, https, any] {
                verbs.push(format!("ask-dns {resolver} {by} {data}.denied.test {kind}"));
            }
            verbs.push(format!("ask-dns {resolver} {by} {long}.denied.test {a}"));
            verbs.push(format!("ask-dns {resolver} {by} {data}.allowed.test {a}"));
        }
    }
    verbs.extend([12, 33].map(|kind| format!("ask-dns 198.18.0.1:53 udp 1.0.18.198.in-addr.arpa {kind}")));
    let tried = each(outside.caged(&["--allow-net", "allowed.test:80"], &["each"]), &verbs);
    // NXDOMAIN or REFUSED, and no records: the resolver is smcp's own, whatever address was asked.
    for tried in &tried {
        assert!(["3 0", "5 0"].iter().any(|code| *tried.works() == *code), "{tried:?}");
    }
    assert_eq!(outside.packets(), [], "nothing is asked of anybody");
    // Audited, and no longer than a name may be.
    let refusals = refusals(world);
    let of_data: Vec<_> = refusals.iter().filter(|(host, ..)| host.contains(&data.to_lowercase())).collect();
    assert!(!of_data.is_empty() && of_data.iter().all(|(host, ..)| host.len() <= 253), "{of_data:?}");
    outside.nothing_went_to("allowed.test");
    // What is no question is no end of the resolver, either.
    let garbage = each(
        outside.caged(&["--allow-net", "allowed.test:80"], &["each"]),
        &["garbage-dns 198.18.0.1:53 allowed.test"],
    );
    assert_eq!(garbage[0].works(), "0 1", "one address");
    // A flood is answered, and neither the log nor memory grows with it.
    let before = world.audit_text().len();
    let flood =
        outside.caged(&["--allow-net", "allowed.test:80"], &["flood-dns", "198.18.0.1:53", "denied.test", "20000"]);
    let answers = flood.told("").ok().json();
    let refused: u64 = ["3", "5"].iter().filter_map(|code| answers[code].as_u64()).sum();
    assert_eq!(refused, 20_000, "{answers}");
    assert_eq!(outside.packets(), []);
    let grown = world.audit_text().len() - before;
    assert!(grown < 1 << 20, "a flood of 20,000 names wrote {grown} bytes of audit log");
}

fn n8_other_forms_of_names_and_addresses(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let flags = ["--allow-net", "Allowed.TEST.:80", "--allow-net", "bücher.test:80", "--allow-net", "six.test:80"];
    let good = [
        ("fetch http://allowed.test/", "20.1.0.1"),
        ("fetch http://allowed.test./", "20.1.0.1"),
        ("fetch http://ALLOWED.Test/", "20.1.0.1"),
        ("fetch http://xn--bcher-kva.test/", "far 20.7.0.1"),
        ("fetch http://six.test/", "far 2a00:6::1"),
    ];
    // The granted name's own address outside, its address inside on other ports, denied ones in every form that libc takes.
    let bad = [
        "through-a-relay http://20.2.0.1:80/",
        "through-a-relay http://denied.test:80/",
        "fetch http://20.1.0.1/",
        "fetch http://[2a00:1::1]/",
        "fetch http://20.2.0.1/",
        "fetch http://[2a00:2::1]/",
        "fetch http://[::ffff:20.2.0.1]/",
        "fetch http://335675393/",
        "fetch http://0x14.2.1/",
        "fetch http://024.02.0.01/",
        "fetch http://2852039166/",
        "fetch http://0251.0376.0251.0376/",
        "fetch http://127.1/",
        "fetch http://[::ffff:127.0.0.1]/",
        "fetch http://198.18.0.1/",
        "fetch http://198.18.0.2:8080/",
        "fetch http://198.19.255.254/",
        "fetch http://denied.test./",
        "fetch http://allowed.test.denied.test/",
        "fetch http://allowed.test@denied.test/",
        "fetch http://xn--bcher-kva.example.test/",
        "connect allowed.test:0",
    ];
    let capitals = each(outside.caged(&flags, &["each"]), &["ask-dns 198.18.0.1:53 udp aLLoWeD.tEST 1"]);
    assert_eq!(capitals[0].works(), "0 1");
    let verbs: Vec<&str> = good.iter().map(|(verb, _)| *verb).chain(bad).collect();
    let tried = each(outside.caged(&flags, &["each"]), &verbs);
    for (tried, (_, words)) in tried.iter().zip(good) {
        let six = words.replace("20.1.0.1", "2a00:1::1");
        assert!(tried.works().as_str().is_some_and(|said| said.contains(words) || said.contains(&six)), "{tried:?}");
    }
    tried[good.len()..].iter().for_each(Tried::is_refused);
    outside.nothing_went_to("denied.test");
    let opened = outside.packets();
    let of_good = ["20.1.0.1", "2a00:1::1", "20.7.0.1", "2a00:6::1"];
    assert!(opened.iter().all(|packet| of_good.contains(&packet.to.to_string().as_str())), "{opened:?}");
}

fn n9_no_datagram_leaves(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let tried = each(
        outside.caged(&["--allow-net", "allowed.test:80,443", "--allow-net", "[2a00:1::1]:443"], &["each"]),
        &[
            "datagram allowed.test:443 connected",
            "datagram 20.1.0.1:443 connected",
            "datagram [2a00:1::1]:443 connected",
            "datagram 8.8.8.8:123 connected",
            "ask-dns 198.18.0.1:53 udp allowed.test 65",
            "ask-dns 198.18.0.1:53 tcp allowed.test 64",
        ],
    );
    for refused in &tried[..4] {
        refused.is_reset();
    }
    // No error and no records: h3 is not offered, and nobody asks elsewhere.
    for empty in &tried[4..] {
        assert_eq!(empty.works(), "0 0", "{empty:?}");
    }
    let unconnected = each(
        outside.caged(&["--allow-net", "allowed.test"], &["each"]),
        &["datagram allowed.test:443 unconnected", "datagram 8.8.8.8:443 unconnected"],
    );
    assert!(unconnected.iter().all(|tried| tried.answer["works"] != "answered"));
    assert_eq!(outside.packets(), []);
}

fn n10_the_hosts_proxy(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let asked =
        [("curl", "https://allowed.test/"), ("urllib", "https://allowed.test/"), ("urllib", "https://denied.test/")];
    let asked = asked.map(|(client, url)| (client.to_owned(), url.to_owned()));
    let outcomes = Clients::Python.ask_with(&outside, &["--allow-net", "allowed.test:443"], &asked, |command| {
        command.env("HTTPS_PROXY", "http://44.0.0.2:8080")
    });
    for outcome in &outcomes[..2] {
        // By the certificate of the authority that the client trusts alone: TLS was not opened on the way.
        assert!(outcome.said.as_ref().is_ok_and(|said| said.contains("allowed.test")), "{outcome:?}");
    }
    assert!(outcomes[2].failed_by_the_network(), "{:?}", outcomes[2]);
    assert_eq!(
        outside.proxied(),
        ["allowed.test:443", "allowed.test:443"],
        "by its name, which the host need not resolve"
    );
    only_opened(&outside, &["44.0.0.2:8080"]);
    // The server is told nothing of it.
    let ended =
        outside.caged(&["--allow-net", "allowed.test"], &["env"]).env("HTTPS_PROXY", "http://44.0.0.2:8080").run();
    let env = ended.ok().json();
    assert!(env.as_object().expect("an object").keys().all(|name| !name.to_lowercase().contains("proxy")), "{env}");
}

fn n11_the_server_speaks_with_itself(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    for flags in [&[][..], &["--allow-net", "allowed.test:80"], &["--allow-net", "10.0.0.0/8:80"]] {
        let tried = each(outside.caged(flags, &["each"]), &["itself", "socketpair"]);
        tried.iter().for_each(Tried::has_worked);
    }
    assert_eq!((outside.packets(), outside.connections()), (vec![], vec![]));
    // The port of a granted name is the server's own on loopback.
    let verbs = ["fetch tcp://db.test:5432", "listen 127.0.0.1:5432", "listen [::1]:5432", "fetch tcp://db.test:5432"];
    let tried = each(outside.caged(&["--allow-net", "db.test:5432"], &["each"]), &verbs);
    tried.iter().for_each(Tried::has_worked);
}

fn n12_the_hosts_services_stay_out_of_reach(world: &World) {
    let name = format!("smcp-{}", world.mark());
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let _abstract = UnixListener::bind_addr(&address).expect("nobody else has the name");
    let bind = |path: &str| {
        let listener = UnixListener::bind(world.path(path)).expect("nobody else has the name");
        world.give(&world.path(path));
        listener
    };
    let _listeners = [bind("private/socket"), bind("project/socket")];
    let tcp = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let tcp = format!("connect {}", tcp.local_addr().expect("it is bound"));
    let there = [format!("connect-abstract {name}"), format!("connect-unix {}", world.text("private/socket")), tcp];
    each(world.bare(&["each"]), &there).iter().for_each(Tried::has_worked);
    let absent = ["connect-unix /var/run/docker.sock", "connect-unix /run/dbus/system_bus_socket"].map(String::from);
    let net = ["--allow-net", "allowed.test:80", "--allow-host-port", "9"];
    let tried = each(world.caged(&net, &["each"]), &[&there[..], &absent].concat());
    tried.iter().for_each(Tried::is_refused);
    // A socket in a granted tree is the grant's own affair.
    let project = world.text("project");
    let flags = [&net[..], &["--allow-write", &project]].concat();
    let granted = format!("connect-unix {}", world.text("project/socket"));
    each(world.caged(&flags, &["each"]), &[granted])[0].has_worked();

    let Some(outside) = Outside::of(world) else { return };
    let verbs = [
        "fetch http://127.0.0.1/",
        "fetch http://[::1]/",
        "fetch tcp://localhost:5432",
        "fetch http://0.0.0.0/",
        "fetch http://44.0.0.1/",
    ];
    each(outside.bare(&["each"]), &verbs).iter().for_each(Tried::has_worked);
    outside.forget();
    each(outside.caged(&net, &["each"]), &verbs).iter().for_each(Tried::is_refused);
    assert_eq!((outside.packets(), outside.connections()), (vec![], vec![]));
}

fn n13_whatever_the_hosts_resolv_conf_is(world: &World) {
    for resolver in [Resolver::File, Resolver::Link, Resolver::Absent] {
        let world = World::new(world.user());
        let Some(outside) = Outside::resolving_by(&world, resolver) else { return };
        let tried = each(
            outside.caged(&["--allow-net", "allowed.test:80"], &["each"]),
            &["fetch http://allowed.test/", "read /etc/resolv.conf"],
        );
        tried[0].says("allowed.test");
        assert!(!tried[1].works().to_string().contains("9.9.9.9"), "{resolver:?}: {:?}", tried[1]);
    }
}

fn n14_a_thousand_connections_at_once(world: &World) {
    // The tests' own end of them.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit anyone may");
    let Some(outside) = Outside::of(world) else { return };
    // In a session as it is usual, where a program that needs more asks for it.
    let smcp = ["--nofile=1024:", place::smcp().to_str().expect("UTF-8"), "run"];
    let ended = outside
        .program(Path::new("/usr/bin/prlimit"), smcp)
        .args(["--allow-net", "plain.test:80", "--fds", "2048", image::probe_reference()])
        .args(["fetch-together", "http://plain.test/together/1000", "1000"])
        .told("")
        .ok();
    assert_eq!(ended.json(), 1000);
    assert_eq!(outside.connections().len(), 1000);
}

/// Five gigabytes, once: as the user.
#[test]
fn n14_a_download_of_five_gigabytes() {
    let world = World::new(User::Ordinary);
    let Some(outside) = Outside::of(&world) else { return };
    let length = 5_000_000_000_u64;
    let url = format!("http://plain.test/bytes/{length}");
    let mut running =
        outside.caged(&["--allow-net", "plain.test:80"], &["download", &url]).within(PATIENCE * 5).start();
    let mut most = 0;
    let ended = loop {
        most = most.max(processes::resident(running.pid()).unwrap_or(0));
        if running.has_ended() {
            break running.wait().ok();
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(ended.json(), length);
    assert!(most < 100 << 20, "smcp used {most} bytes");
}

fn n14_ends_are_carried_over(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let tried = each(
        outside.caged(&["--allow-net", "plain.test:80,5432,8000"], &["each"]),
        // Half closed by the client: the server hears of it and goes on. A reset by the server. A reset by the client.
        &[
            "fetch tcp://plain.test:5432",
            "fetch http://plain.test/reset",
            "hang-up-hard plain.test:5432",
            // A server that speaks first, and one that is read while it is written to.
            "greeting plain.test:8000",
            "mirror plain.test:5432 20000000",
        ],
    );
    assert_eq!(tried[3].works(), "220 ready");
    tried[4].has_worked();
    tried[0].says("there and back\nbye");
    assert_eq!(tried[1].answer["errno"], ECONNRESET, "{:?}", tried[1]);
    tried[2].has_worked();
    let ends = within(PATIENCE, || {
        let ends = outside.ends();
        (ends.len() == 4).then_some(ends)
    });
    let [finished, reset] = [End::Finished, End::Reset];
    assert_eq!(ends, Some(vec![finished, finished, finished, reset]), "what the echo heard of its clients");
}

fn n14_connections_end_with_the_run(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let endings: [fn(&mut Running); 3] = [
        |running| drop(running.take_stdin()),
        |running| running.signal(Signal::TERM),
        |running| running.signal(Signal::KILL),
    ];
    for (count, end) in endings.into_iter().enumerate() {
        let verb = ["hold", "plain.test:5432", world.mark()];
        let mut running = outside.caged(&["--allow-net", "plain.test:5432"], &verb).start();
        running.await_ready();
        end(&mut running);
        let heard = within(PATIENCE, || (outside.ends().len() > count).then_some(()));
        assert!(heard.is_some(), "the server hears of end {count}");
        processes::none_left(world, PATIENCE);
    }
}

fn n14_many_one_after_the_other_leave_nothing(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let flags = ["--allow-net", "plain.test:80", "--allow-net", "*.example.test:80"];
    let start = |verb: &[&str]| {
        let mut running = outside.caged(&flags, verb).start();
        running.await_ready();
        running
    };
    let open =
        |running: &Running| std::fs::read_dir(format!("/proc/{}/fd", running.pid())).expect("it is there").count();
    let few = start(&["fetch-one-by-one", "http://plain.test/", "1"]);
    let many = start(&["fetch-one-by-one", "http://plain.test/", "1500"]);
    // The other side's ends of the last ones come when they come.
    let settled = within(PATIENCE, || (open(&many) <= open(&few) + 2).then_some(()));
    assert!(settled.is_some(), "{} descriptors after 1, {} after 1,500", open(&few), open(&many));
    let used = processes::resident(many.pid()).expect("it is there");
    assert!(used < 100 << 20, "{used} bytes");
    for mut running in [few, many] {
        drop(running.take_stdin());
        running.wait().ok();
    }
    // As many names as fast as they come: what is too many is refused, and others go on.
    let flood = ["flood-names example.test 5000", "fetch http://plain.test/", "fetch http://a.example.test/"];
    let tried = each(outside.caged(&flags, &["each"]), &flood);
    assert!(tried[0].works().as_u64() > Some(500), "{:?}", tried[0]);
    tried[1].says("plain.test");
}

fn n14_a_slow_reader_bounds_itself(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let length = 256_u64 << 20;
    let url = format!("http://plain.test/bytes/{length}");
    let mut running = outside.caged(&["--allow-net", "plain.test:80"], &["download-on-a-word", &url]).start();
    running.await_ready();
    // As long as nobody reads, the server stops sending.
    let waiting = within(PATIENCE, || {
        let before = outside.sent();
        thread::sleep(Duration::from_millis(200));
        (before > 0 && outside.sent() == before).then_some(before)
    });
    let waiting = waiting.expect("what nobody reads is not sent");
    assert!(waiting < 64 << 20, "{waiting} bytes are on the way");
    let used = processes::resident(running.pid()).expect("it is there");
    assert!(used < 100 << 20, "smcp uses {used} bytes");
    let mut stdin = running.take_stdin();
    stdin.write_all(b"go\n").expect("it reads");
    let ended = running.wait().ok();
    assert!(ended.text().ends_with(&format!("{length}\n")), "{}", ended.text());
}

fn n15_nothing_declared_is_loopback_alone(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let tried = each(
        outside.caged(&[], &["each"]),
        &[
            "interfaces",
            "itself",
            "connect allowed.test:80",
            "connect 20.1.0.1:80",
            "ask-dns 198.18.0.1:53 udp allowed.test 1",
        ],
    );
    assert_eq!(*tried[0].works(), serde_json::json!(["lo"]));
    tried[1].has_worked();
    tried[2..].iter().for_each(Tried::is_refused);
    assert_eq!((outside.packets(), outside.connections()), (vec![], vec![]));
}

fn n16_a_private_authority(world: &World) {
    let Some(outside) = Outside::of(world) else { return };
    let authority = outside.authority();
    let of = |clients: &[&str]| clients.iter().map(|name| ((*name).into(), "https://allowed.test/".into())).collect();
    let python: Vec<_> = of(&["urllib", "requests", "httpx", "aiohttp", "curl", "git"]);
    let node: Vec<_> = of(&["fetch", "https", "undici", "axios", "got"]);
    let flags = ["--allow-net", "allowed.test", "--allow-subprocess"];
    for (clients, asked) in [(Clients::Python, python), (Clients::Node, node)] {
        let trusting =
            clients.ask_trusting_nothing(&outside, &flags, &asked, |smcp| smcp.env("SSL_CERT_FILE", &authority));
        for outcome in trusting {
            let good = outcome.said.as_ref().is_ok_and(|said| said.contains("allowed.test") || said.contains("refs/"));
            assert!(good, "{outcome:?}");
        }
        // It is the host's variable that did it.
        for outcome in clients.ask_trusting_nothing(&outside, &flags, &asked, |command| command) {
            let why = outcome.said.as_ref().err().map(|why| why.to_lowercase()).unwrap_or_default();
            assert!(why.contains("certificate"), "{outcome:?}");
        }
    }
}

/// Without a network namespace nothing can be granted by name (the rows at tier 1).
#[test]
fn n1_n3_n5_at_tier_1_names_are_refused() {
    let world = World::new(User::Ordinary);
    for flags in
        [["--allow-net", "allowed.test:80"], ["--allow-net", "*.example.test:80"], ["--allow-host-port", "5432"]]
    {
        let line = [&["run"][..], &flags, &[image::probe_reference(), "exit", "0"]].concat();
        let Some(run) = without_namespaces(&world, line) else { return };
        run.run().expect(125).explains(&["network namespace"]);
    }
}

/// What holds at tier 1 as well: nothing is reached, and a pair of sockets works.
#[test]
fn n11_n12_n15_at_tier_1_nothing_is_reached() {
    let world = World::new(User::Ordinary);
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is there");
    let to = format!("connect {}", listener.local_addr().expect("it is bound"));
    let Some(run) = without_namespaces(&world, ["run", image::probe_reference(), "each"]) else { return };
    let tried = each(run, &["socketpair", &to, "connect-abstract x", "ask-dns 8.8.8.8:53 udp denied.test 1"]);
    tried[0].has_worked();
    tried[1..].iter().for_each(Tried::is_refused);
}

/// `--allow-all-net`: every name and public address, and nothing of the host's or its networks'.
mod all {
    use super::*;

    as_each_user! { n4_n12_all_of_the_internet_is_not_the_machine }

    fn n4_n12_all_of_the_internet_is_not_the_machine(world: &World) {
        let Some(outside) = Outside::of(world) else { return };
        let good = [
            "fetch http://allowed.test/",
            "fetch http://denied.test:8080/",
            "fetch http://20.2.0.1/",
            "fetch http://[2a00:2::1]:8080/",
        ];
        let bad = [
            "fetch http://to-metadata.test/",
            "fetch http://169.254.169.254/",
            "fetch http://to-loopback.test/",
            "fetch http://127.0.0.1/",
            "fetch http://[::1]/",
            "fetch http://10.0.0.1/",
            "fetch http://[fd00::1]/",
            "fetch http://100.64.0.1/",
            "fetch http://[::ffff:127.0.0.1]/",
            "fetch http://0.0.0.0/",
            "datagram 8.8.8.8:443 connected",
        ];
        let verbs: Vec<&str> = good.iter().copied().chain(bad).collect();
        let tried = each(outside.caged(&["--allow-all-net"], &["each"]), &verbs);
        tried[..good.len()].iter().for_each(|tried| tried.says("far "));
        tried[good.len()..].iter().for_each(Tried::is_refused);
        assert_eq!(outside.connections().len(), good.len(), "{:?}", outside.connections());
        assert!(outside.packets().iter().all(|packet| packet.is_tcp()), "{:?}", outside.packets());
    }
}

/// A fetch of the test's own, without a cage: the table of the world itself.
#[test]
fn every_name_that_is_rebound_stands_in_the_world() {
    let world = World::new(User::Ordinary);
    let Some(outside) = Outside::of(&world) else { return };
    let verbs: Vec<String> = REBOUND.iter().map(|(name, _)| format!("resolve {name}")).collect();
    let tried = each(outside.bare(&["each"]), &verbs);
    for (tried, (name, address)) in tried.iter().zip(REBOUND) {
        assert!(tried.works().to_string().contains(address), "{name}: {tried:?}");
    }
}
