//! Terminals: by a socket of the caller's, and in the foreground.

use std::fs::File;
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::{self, JoinHandle};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::json;

use super::Containers;

/// Takes a terminal by a socket at a path, and reads it to the end of what has it.
fn terminal_at(path: &Path) -> JoinHandle<String> {
    let listener = UnixListener::bind(path).expect("the world is ours");
    thread::spawn(move || {
        let (connection, _) = listener.accept().expect("a runtime connects");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        recvmsg(&connection, &mut [IoSliceMut::new(&mut [0; 64])], &mut message, RecvFlags::CMSG_CLOEXEC)
            .expect("a message");
        let terminal = message
            .drain()
            .find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            })
            .expect("a terminal comes with it");
        let mut said = Vec::new();
        let mut terminal = File::from(terminal);
        let mut buffer = [0; 1024];
        // EIO is its end.
        while let Ok(length @ 1..) = terminal.read(&mut buffer) {
            said.extend(&buffer[..length]);
        }
        String::from_utf8(said).expect("the probe says UTF-8")
    })
}

/// The program of a container, and what joins it, has a terminal that the caller gets.
#[test]
fn terminals_by_a_socket() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["args", "on a terminal"]);
    bundle.with(|config| config["process"]["terminal"] = json!(true));
    let socket = here.world.text("socket");
    let said = terminal_at(Path::new(&socket));
    here.oci(["create", "--console-socket", &socket, "--bundle", bundle.path(), "one"]).run().ok();
    here.oci(["start", "one"]).run().ok();
    assert!(said.join().unwrap().contains("on a terminal"));
    here.await_status("one", "stopped");
    here.oci(["delete", "one"]).run().ok();
    let bundle = here.bundle("hang", &["hang"]);
    here.started("one", &bundle);
    let socket = here.world.text("socket-2");
    let said = terminal_at(Path::new(&socket));
    here.oci(["exec", "--detach", "--tty", "--console-socket", &socket, "one", "/probe", "args", "joined"]).run().ok();
    assert!(said.join().unwrap().contains("joined"));
    here.oci(["delete", "-f", "one"]).run().ok();
    here.nothing_left();
}

/// Without a terminal a socket for one is a mistake, and a terminal without a socket where nobody waits.
#[test]
fn a_socket_and_a_terminal_go_together() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["args"]);
    let socket = here.world.text("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let line = ["create", "--console-socket", &socket, "--bundle", bundle.path(), "one"];
    assert!(here.oci(line).run().expect(1).stderr().contains("console socket"));
    bundle.with(|config| config["process"]["terminal"] = json!(true));
    assert!(here.oci(["create", "--bundle", bundle.path(), "one"]).run().expect(1).stderr().contains("console socket"));
    here.nothing_left();
}

/// In the foreground the terminal is the caller's, or what the caller has in its place, and the exit code is the program's.
#[test]
fn a_terminal_in_the_foreground() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["exit", "5"]);
    bundle.with(|config| config["process"]["terminal"] = json!(true));
    here.oci(["run", "--bundle", bundle.path(), "one"]).run().expect(5);
    bundle.with(|config| config["process"]["args"] = json!(["/probe", "args", "shown"]));
    assert!(here.oci(["run", "--bundle", bundle.path(), "one"]).run().ok().text().contains("shown"));
    let bundle = here.bundle("hang", &["hang"]);
    here.started("one", &bundle);
    let joined = here.oci(["exec", "--tty", "one", "/probe", "args", "joined"]).run().ok();
    assert!(joined.text().contains("joined"), "{}", joined.text());
    here.oci(["delete", "-f", "one"]).run().ok();
    here.nothing_left();
}
