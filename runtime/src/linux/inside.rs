//! Tests in a network namespace of their own: a test starts itself again by unshare(1), since a process with threads may enter
//! no user namespace.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

const INSIDE: &str = "SMCP_TEST_INSIDE";

/// Runs the test of this name, in a module of `linux`, as root of a user and a network namespace whose loopback is up.
pub fn in_a_namespace(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        super::sys::loopback_up().unwrap();
        return test();
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("linux::{name}");
    let unshare = ["--user", "--map-root-user", "--net", "--"];
    let ended = Command::new("unshare")
        .args(unshare)
        .arg(program)
        .args(["--exact", &name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("util-linux is there");
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

/// Listens as the supervisor does: IPv6 has addresses that a route alone makes local bound by IPV6_FREEBIND only.
pub fn listener(at: SocketAddr) -> TcpListener {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::STREAM, None).unwrap();
    if at.is_ipv6() {
        sockopt::set_ipv6_freebind(&socket, true).unwrap();
    }
    bind(&socket, &at).unwrap();
    listen(&socket, 1).unwrap();
    socket.into()
}
