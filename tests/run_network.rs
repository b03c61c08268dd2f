//! Grants of the network as a run has them: recorded, through the host's proxy, and with the caller's certificates.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use crate::command::Ended;
use crate::patience::PATIENCE;
use crate::probe::REFUSED;
use crate::run_audit::chain;
use crate::world::{SECRET, World, as_each_user};

as_each_user! {
    what_passed_and_what_was_refused_is_recorded,
    what_is_refused_in_the_last_moment_is_recorded,
    n10_connections_leave_through_the_hosts_proxy,
    what_the_policy_denies_is_denied_in_what_is_granted,
}

/// A refusal is a line of its own in the chain; the end has the counts, and the bytes of what was granted.
fn what_passed_and_what_was_refused_is_recorded(world: &World) {
    let port = echo();
    let local = format!("127.0.0.1:{port}");
    let flags = ["--allow-host-port", &port.to_string(), "--allow-net", "a.test:81"];
    assert_eq!(world.caged(&flags, &["say", &local, "hello"]).run().ok().json(), "hello");
    let granted = json!([{"host": "localhost", "port": port, "connections": 1, "sent": 5, "received": 5}]);
    assert_eq!(world.last_end()["egress"]["granted"], granted);
    let ended = world.caged(&flags, &["connect", "b.test:82"]).run().expect(REFUSED);
    ended.says(&["1 destination(s) were denied", "smcp why"]);
    let entries = chain(world);
    let run = entries.last().unwrap()["run"].clone();
    let of_run: Vec<&Value> = entries.iter().filter(|entry| entry["run"] == run).collect();
    let events: Vec<_> = of_run.iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["begin", "denied", "end"], "{}", world.audit_text());
    assert_eq!((&of_run[1]["host"], &of_run[1]["flag"]), (&json!("b.test"), &json!("--allow-net b.test")));
    assert!(of_run[2]["egress"]["refused"][0]["count"].as_u64() >= Some(1), "{}", of_run[2]);
    let told = world.smcp(["why", "--json"]).run().ok().json();
    assert_eq!(told["denied"][0]["flag"], "--allow-net b.test", "{told}");
    // A run without a network has nothing of this.
    world.caged(&[], &["exit", "0"]).run().ok();
    assert_eq!(world.last_end().get("egress"), None);
}

/// The server sends and is gone, before anybody can have looked.
fn what_is_refused_in_the_last_moment_is_recorded(world: &World) {
    for round in 0..8 {
        let to = format!("192.0.2.{round}:9");
        world.caged(&["--allow-net", "a.test"], &["datagram", &to, "sent"]).run().ok();
        let refused = world.last_end()["egress"]["refused"][0].clone();
        assert_eq!((&refused["host"], &refused["port"]), (&json!(format!("192.0.2.{round}")), &json!(9)), "{refused}");
    }
}

/// A server on the loopback that says what it is told.
pub fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    port
}

/// The name goes to the proxy as it is, the password to the proxy alone.
fn n10_connections_leave_through_the_hosts_proxy(world: &World) {
    let (port, asked) = proxy();
    let url = format!("http://user:{SECRET}@127.0.0.1:{port}");
    let file = world.file("home/config.yaml", format!("proxy:\n  https: \"{url}\"\n"));
    for (variable, value) in
        [("HTTPS_PROXY", url.as_str()), ("MCP_PROXY_HTTPS", &url), ("MCP_CONFIG", file.to_str().unwrap())]
    {
        let ended = world
            .caged(&["--allow-net", "one.test:444"], &["say", "one.test:444", "hello"])
            .env(variable, value)
            .env("MCP_LOG_LEVEL", "trace")
            .run()
            .ok();
        assert_eq!(ended.json(), "hello");
        let request = asked.recv_timeout(PATIENCE).expect("the proxy was asked");
        assert!(request.starts_with("CONNECT one.test:444 HTTP/1.1\r\n"), "{request}");
        assert!(request.to_lowercase().contains("\r\nproxy-authorization: basic "), "{request}");
        ended.check(!ended.stderr().contains(SECRET), "the password was shown");
        let env = world.caged(&["--allow-net", "one.test"], &["env"]).env(variable, value).run().ok();
        env.check(!env.text().contains(&port.to_string()), "the proxy is not the server's affair");
    }
    assert!(!world.audit_text().contains(SECRET), "{}", world.audit_text());
}

/// A proxy on the loopback that is whatever it is asked for, and says what it is told. It tells what it was asked.
fn proxy() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, asked) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            thread::spawn(move || serve_proxy(stream, |request| drop(tell.send(request))));
        }
    });
    (port, asked)
}

fn serve_proxy(mut stream: TcpStream, tell: impl FnOnce(String)) {
    let mut request = String::new();
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    while lines.read_line(&mut request).is_ok_and(|read| read > 0) && !request.ends_with("\r\n\r\n") {}
    tell(request);
    let _ = stream.write_all(b"HTTP/1.1 200 yes\r\n\r\n");
    let _ = std::io::copy(&mut lines, &mut stream);
}

/// A name that the policy denies within a suffix that is granted, and an address that a port of the host would be.
fn what_the_policy_denies_is_denied_in_what_is_granted(world: &World) {
    let (port, asked) = proxy();
    let policy = "policy: {ceilings: {network: {deny: [evil.acme.test]}}}\n";
    let file = world.file("home/config.yaml", policy);
    let say = |to: &str| -> Ended {
        let all = world.caged(&["--allow-net", "*.acme.test:443,80"], &["say", to, "hello"]).env("MCP_CONFIG", &file);
        all.env("HTTPS_PROXY", format!("http://127.0.0.1:{port}")).run()
    };
    assert_eq!(say("good.acme.test:443").ok().json(), "hello");
    assert!(asked.recv_timeout(PATIENCE).unwrap().starts_with("CONNECT good.acme.test:443 "));
    for to in ["evil.acme.test:443", "evil.acme.test:80", "EVIL.acme.test.:443"] {
        say(to).expect(REFUSED);
        let told = world.smcp(["why", "--json"]).run().ok().json();
        assert_eq!(
            (&told["denied"][0]["host"], &told["denied"][0]["why"]),
            (&json!("evil.acme.test"), &json!("denied-by-policy"))
        );
        assert_eq!(told["denied"][0]["flag"], Value::Null, "no flag would grant it");
    }
    assert!(asked.try_recv().is_err(), "nothing left");
}
