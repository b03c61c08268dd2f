//! What stands around an attempt: files, processes and sockets of the host that it aims at, and what they are called.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown};

use crate::command::Running;
use crate::probe;
use crate::world::{SECRET, World};

/// The aims of one area's attempts in a world, gone when it is dropped.
pub struct Stage<'w> {
    world: &'w World,
    values: BTreeMap<&'static str, String>,
    /// A process of the user's on the host.
    victim: Running,
    /// Unix sockets: in the project, which gives the secret's descriptor to whoever connects, and in a private directory.
    listeners: Vec<Arc<UnixListener>>,
    datagrams: Arc<UdpSocket>,
    threads: Vec<JoinHandle<()>>,
    /// Open as long as they are to be found.
    _open: (Vec<TcpListener>, UnixDatagram),
    shared_memory: String,
    before: BTreeMap<String, Vec<String>>,
}

impl<'w> Stage<'w> {
    /// Sets everything up.
    pub fn new(world: &'w World) -> Stage<'w> {
        files(world);
        let mut victim = world.bare(&["hang", world.mark()]).env("SMCP_TEST_SECRET", SECRET).start();
        victim.await_ready();
        let name = format!("smcp-{}", world.mark());
        let shared_memory = format!("/dev/shm/{name}");
        fs::write(&shared_memory, SECRET).expect("shared memory can be made");
        world.give(Path::new(&shared_memory));
        let address = |name: &str| SocketAddr::from_abstract_name(name).expect("a short name");
        let abstract_datagram =
            UnixDatagram::bind_addr(&address(&format!("{name}d"))).expect("nobody else has the name");
        let listeners = vec![
            listener(world, "project/socket"),
            listener(world, "private/socket"),
            Arc::new(UnixListener::bind_addr(&address(&name)).expect("nobody else has the name")),
        ];
        let secret = fs::File::open(world.path("private/secret")).expect("it was made");
        let mut threads = vec![];
        for listener in &listeners {
            let (listener, secret) = (listener.clone(), secret.try_clone().expect("a descriptor can be copied"));
            threads.push(thread::spawn(move || give_away(&listener, &secret)));
        }
        let datagrams = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("loopback is there"));
        threads.push(thread::spawn({
            let socket = datagrams.clone();
            move || echo(&socket)
        }));
        // A machine without IPv6 has no [::1].
        let tcp: Vec<_> =
            ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"].map(TcpListener::bind).into_iter().flatten().collect();
        let port = |at: usize| tcp.get(at).map_or(9, |tcp| tcp.local_addr().expect("it is bound").port());
        let key = (0x5000_0000 + i64::from(victim.pid())).to_string();
        let values = BTreeMap::from([
            ("home", world.text("home")),
            ("project", world.text("project")),
            ("private", world.text("private")),
            ("store", world.text("cache/store")),
            ("state", world.text("state/smcp")),
            ("log", world.text("log")),
            ("smcp", crate::place::smcp().display().to_string()),
            ("pid", victim.pid().to_string()),
            ("mark", world.mark().to_owned()),
            ("secret", SECRET.to_owned()),
            ("tcp", format!("127.0.0.1:{}", port(0))),
            ("tcp-mapped", format!("[::ffff:127.0.0.1]:{}", port(0))),
            ("tcp-any-mapped", format!("[::ffff:127.0.0.1]:{}", port(1))),
            ("tcp-hex", format!("0100007F:{:04X}", port(0))),
            ("tcp-any", format!("127.0.0.1:{}", port(1))),
            ("tcp6", format!("[::1]:{}", port(2))),
            ("tcp-mapped", format!("[::ffff:127.0.0.1]:{}", port(0))),
            ("tcp-zero", format!("0.0.0.0:{}", port(1))),
            ("udp", datagrams.local_addr().expect("it is bound").to_string()),
            ("abstract", name.clone()),
            ("abstract-datagram", format!("{name}d")),
            ("shm", shared_memory.clone()),
            ("key", key.clone()),
            ("disk", disk()),
            ("interface", interface()),
        ]);
        // A key of this world alone.
        world.bare(&["shm-make", &key]).run().ok();
        let _open = (tcp, abstract_datagram);
        let mut stage = Stage {
            world,
            values,
            victim,
            listeners,
            datagrams,
            threads,
            _open,
            shared_memory,
            before: BTreeMap::new(),
        };
        stage.before = stage.listing();
        stage
    }

    /// What the values are outside.
    pub fn outside(&self) -> BTreeMap<&'static str, String> {
        let mut values = self.values.clone();
        // The process that keeps it: outside, any process of the user's that can be looked into.
        values.insert("keeper", self.victim.pid().to_string());
        values.insert("own", probe::path().display().to_string());
        values
    }

    /// What they are inside.
    pub fn inside(&self) -> BTreeMap<&'static str, String> {
        let mut values = self.values.clone();
        values.insert("keeper", "@parent".into());
        values.insert("own", "/usr/bin/probe".into());
        values
    }

    /// What the attempts changed of the host, in words.
    pub fn harmed(&mut self) -> Vec<String> {
        let mut harm = Vec::new();
        if self.victim.has_ended() {
            harm.push("- a process of the host was ended".into());
        }
        for secret in ["home/.ssh/id", "private/secret"] {
            if fs::read_to_string(self.world.path(secret)).ok().as_deref() != Some(SECRET) {
                harm.push(format!("- {secret} was changed"));
            }
        }
        let after = self.listing();
        if after != self.before {
            harm.push(format!("- files were made or removed: before {:?}, after {after:?}", self.before));
        }
        harm
    }

    fn listing(&self) -> BTreeMap<String, Vec<String>> {
        let list = |directory: &str| {
            let entries = fs::read_dir(self.world.path(directory)).expect("it can be listed").flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().display().to_string()).collect();
            names.sort();
            (directory.to_owned(), names)
        };
        ["home", "home/.ssh", "private", "project", "project/directory", "log", "cache/store"].map(list).into()
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for listener in &self.listeners {
            // Wakes the thread that waits in accept(2).
            let _ = shutdown(listener, Shutdown::Both);
        }
        let _ = self.datagrams.send_to(END, self.datagrams.local_addr().expect("it is bound"));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.shared_memory);
        self.world.bare(&["shm-remove", &self.values["key"]]).run();
    }
}

/// ```text
/// project/{file,other}  text; project/tool  the probe; project/link, project/escape  links that leave the project
/// project/directory/secret  to be denied; project/beside  an empty directory
/// private/{file,tool,link}  the same, not granted
/// ```
fn files(world: &World) {
    for directory in ["project", "private"] {
        for name in ["file", "other"] {
            world.file(&format!("{directory}/{name}"), "text");
        }
        let tool = world.path(format!("{directory}/tool"));
        probe::copy_to(&tool);
        world.give(&tool);
    }
    world.directory("project/directory");
    world.file("project/directory/secret", SECRET);
    world.directory("project/beside");
    symlink(world.path("private/secret"), world.path("project/link")).expect("the world is ours");
    symlink(world.path("private"), world.path("project/escape")).expect("the world is ours");
    symlink("secret", world.path("private/link")).expect("the world is ours");
    // What a log was rotated to, and the head of another one.
    world.file("log/audit.log.0", "");
    world.directory("state/smcp");
    world.directory("state/smcp/audit");
    world.file("state/smcp/audit/other.json", "{}");
    world.directory("state/smcp/logs");
    world.file("state/smcp/logs/other", "words");
}

fn listener(world: &World, name: &str) -> Arc<UnixListener> {
    let path = world.path(name);
    let listener = UnixListener::bind(&path).expect("the world is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
    world.give(&path);
    Arc::new(listener)
}

/// Sends the secret's descriptor to whoever connects, as agents and daemons do that trust who reaches their socket.
fn give_away(listener: &UnixListener, secret: &fs::File) {
    while let Ok((stream, _)) = listener.accept() {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        let secret = [secret.as_fd()];
        message.push(SendAncillaryMessage::ScmRights(&secret));
        // Who only connects is gone by now.
        let _ = sendmsg(&stream, &[IoSlice::new(b"x")], &mut message, SendFlags::NOSIGNAL);
    }
}

const END: &[u8] = b"end";

fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 64];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        if &buffer[..length] == END {
            return;
        }
        let _ = socket.send_to(&buffer[..length], from);
    }
}

/// A network interface of this machine beside loopback.
fn interface() -> String {
    let names = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().display().to_string());
    names.filter(|name| name != "lo").min().unwrap_or("eth0".into())
}

/// A disk of this machine.
fn disk() -> String {
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let devices = disks.map(|disk| Path::new("/dev").join(disk.file_name()));
    devices.into_iter().find(|device| device.exists()).unwrap_or("/dev/sda".into()).display().to_string()
}
