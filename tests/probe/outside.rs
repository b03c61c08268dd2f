//! The world around a run whose network is tested: `near`, a network namespace that stands for the machine smcp runs on, and
//! `far`, one that stands for all of the internet. Nothing of either leaves them.
//!
//! ```text
//! near: lo, and `out` 44.0.0.1/24 2a00:44::1/64, default routes through far; an /etc of its own
//! far:  `net` 44.0.0.2/24 2a00:44::2/64, and every other address is its own as well
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// TCP ports that far listens on, at every address.
const FAR: [u16; 7] = [53, 80, 443, 5432, 8000, 8080, 8443];
/// TCP ports that near listens on, at every address of its own.
const NEAR: [u16; 5] = [53, 80, 443, 5432, 8080];

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    Some(match verb {
        "outside" => outside(rest[0], rest[1]),
        "enter" => Err(enter(rest[0], &rest[1..])),
        _ => return None,
    })
}

/// Makes the namespaces, says its process id, sends every socket by the Unix socket at `socket`, and keeps all until the other
/// side closes that. The directory `etc` holds `hosts`, `nsswitch.conf` and what `/etc` is to have of its own in `new`.
fn outside(socket: &str, etc: &str) -> io::Result<String> {
    let stream = UnixStream::connect(socket)?;
    own_user_namespace().map_err(told("a user namespace"))?;
    super::sys::unshare(sys::CLONE_NEWNET).map_err(told("a network namespace"))?;
    let far = File::open("/proc/thread-self/ns/net")?;
    let mut sockets: Vec<(String, OwnedFd)> = Vec::new();
    super::sys::unshare(sys::CLONE_NEWNET | sys::CLONE_NEWNS)?;
    let near = File::open("/proc/thread-self/ns/net")?;
    Netlink::new()?.veth("out", "net", &far).map_err(told("a pair of interfaces"))?;

    sys::enter(&far, sys::CLONE_NEWNET)?;
    let netlink = Netlink::new()?;
    netlink.up("lo")?;
    netlink.up("net")?;
    netlink.address("net", &[44, 0, 0, 2], 24)?;
    netlink.address("net", &v6(2), 64)?;
    netlink.route(&[0, 0, 0, 0], Route::Local).map_err(told("every address"))?;
    netlink.route(&[0; 16], Route::Local).map_err(told("every address of IPv6"))?;
    for port in FAR {
        sockets.push((format!("far {port}"), listener(port)?));
    }
    sockets.push(("resolver".into(), UdpSocket::bind("9.9.9.9:53")?.into()));

    sys::enter(&near, sys::CLONE_NEWNET)?;
    let netlink = Netlink::new()?;
    netlink.up("lo")?;
    netlink.up("out")?;
    netlink.address("out", &[44, 0, 0, 1], 24)?;
    netlink.address("out", &v6(1), 64)?;
    netlink.route(&[0, 0, 0, 0], Route::Through(&[44, 0, 0, 2]))?;
    netlink.route(&[0; 16], Route::Through(&v6(2)))?;
    for port in NEAR {
        sockets.push((format!("near {port}"), listener(port)?));
    }
    for interface in ["out", "lo"] {
        sockets.push((format!("packets {interface}"), sys::packets(interface).map_err(told("a packet socket"))?));
    }
    sockets.push(("canary".into(), UdpSocket::bind("0.0.0.0:0")?.into()));
    own_etc(Path::new(etc)).map_err(told("an /etc of its own"))?;

    let (names, descriptors): (Vec<_>, Vec<_>) = sockets.into_iter().unzip();
    sys::send(&stream, &format!("{}\n{}", std::process::id(), names.join("\n")), &descriptors)?;
    drop(descriptors);
    (&stream).read_to_end(&mut Vec::new())?;
    Ok("\"over\"".into())
}

/// Becomes a program in the namespaces of the process `pid`, in the same working directory.
fn enter(pid: &str, line: &[&str]) -> io::Error {
    let joined = || -> io::Result<()> {
        let here = std::env::current_dir()?;
        let is_own = |kind: &str| {
            io::Result::Ok(
                fs::read_link(format!("/proc/{pid}/ns/{kind}"))? == fs::read_link(format!("/proc/self/ns/{kind}"))?,
            )
        };
        let mut namespaces = vec![];
        for kind in ["user", "net", "mnt"] {
            if !is_own(kind)? {
                namespaces.push(File::open(format!("/proc/{pid}/ns/{kind}"))?);
            }
        }
        namespaces.iter().try_for_each(|namespace| sys::enter(namespace, 0))?;
        std::env::set_current_dir(here)
    };
    match joined() {
        Ok(()) => Command::new(line[0]).args(&line[1..]).exec(),
        Err(error) => error,
    }
}

/// One on every address, with room for a thousand clients that come at once.
fn listener(port: u16) -> io::Result<OwnedFd> {
    let listener: OwnedFd = TcpListener::bind(("::", port))?.into();
    sys::listen(&listener, 4096)?;
    Ok(listener)
}

fn v6(last: u8) -> [u8; 16] {
    [0x2a, 0, 0, 0x44, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

fn told(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// For a user who is not root: one that maps the user alone.
fn own_user_namespace() -> io::Result<()> {
    let id = |what: &str| -> io::Result<String> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(what));
        Ok(line.and_then(|ids| ids.split_whitespace().next()).unwrap_or_default().to_owned())
    };
    let (uid, gid) = (id("Uid:")?, id("Gid:")?);
    if uid == "0" {
        return Ok(());
    }
    super::sys::unshare(super::sys::CLONE_NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Mounts `/etc` with other names, and another way to resolve them, over the machine's. Where `plan/new` has no `resolv.conf`
/// there is none; `plan/link` is where `resolv.conf` leads to, if it is there.
fn own_etc(plan: &Path) -> io::Result<()> {
    const MS_REC_PRIVATE: u64 = 0x4000 | 1 << 18;
    super::sys::mount("none", "/", "", MS_REC_PRIVATE)?;
    let (new, work) = (plan.join("new"), plan.join("work"));
    let options = format!("lowerdir=/etc,upperdir={},workdir={},userxattr", new.display(), work.display());
    sys::mount_overlay("/etc", &options)?;
    let resolver = Path::new("/etc/resolv.conf");
    if let Err(error) = fs::remove_file(resolver)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    for file in ["hosts", "nsswitch.conf", "resolv.conf"] {
        let from = plan.join(file);
        if from.exists() {
            let _ = fs::remove_file(Path::new("/etc").join(file));
            fs::copy(from, Path::new("/etc").join(file))?;
        }
    }
    match fs::read_to_string(plan.join("link")) {
        Ok(target) => symlink(target, resolver),
        Err(_) => Ok(()),
    }
}

/// A socket to the kernel's network settings, netlink(7) and rtnetlink(7).
struct Netlink(OwnedFd);

enum Route<'a> {
    /// Every address is one of this namespace.
    Local,
    Through(&'a [u8]),
}

impl Netlink {
    fn new() -> io::Result<Netlink> {
        const AF_NETLINK: i32 = 16;
        sys::socket(AF_NETLINK, 3, 0).map(Netlink)
    }

    /// A pair of interfaces, the other one in another namespace.
    fn veth(&self, name: &str, peer: &str, namespace: &File) -> io::Result<()> {
        let descriptor = namespace.as_raw_fd().to_ne_bytes();
        let peer = [&[0; 16][..], &text(3, peer), &attribute(28, &descriptor)].concat();
        let data = attribute(2, &attribute(1, &peer));
        let link =
            [&[0; 16][..], &text(3, name), &attribute(18, &[&attribute(1, b"veth"), &data[..]].concat())].concat();
        self.ask(16, CREATE, &link)
    }

    fn up(&self, name: &str) -> io::Result<()> {
        const UP: u32 = 1;
        let mut link = vec![0; 8];
        link.extend(UP.to_ne_bytes());
        link.extend(UP.to_ne_bytes());
        link[4..8].copy_from_slice(&sys::number_of(name)?.to_ne_bytes());
        self.ask(16, 0, &link)
    }

    fn address(&self, name: &str, address: &[u8], prefix: u8) -> io::Result<()> {
        // At once, without asking whether another has it.
        const NODAD: u8 = 2;
        let mut message = vec![family(address), prefix, NODAD, 0];
        message.extend(sys::number_of(name)?.to_ne_bytes());
        message.extend(attribute(2, address));
        message.extend(attribute(1, address));
        self.ask(20, CREATE, &message)
    }

    /// The way to `0.0.0.0/0` or `::/0`.
    fn route(&self, any: &[u8], route: Route) -> io::Result<()> {
        const MAIN: u8 = 254;
        let (kind, scope, more) = match route {
            Route::Local => (2, 254, attribute(4, &sys::number_of("lo")?.to_ne_bytes())),
            Route::Through(gateway) => (1, 0, attribute(5, gateway)),
        };
        let head = [family(any), 0, 0, 0, MAIN, 4, scope, kind, 0, 0, 0, 0];
        self.ask(24, CREATE, &[&head[..], &more].concat())
    }

    fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        const REQUEST_AND_ACKNOWLEDGE: u16 = 5;
        let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((flags | REQUEST_AND_ACKNOWLEDGE).to_ne_bytes());
        message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        message.extend(body);
        let mut socket = File::from(self.0.try_clone()?);
        io::Write::write_all(&mut socket, &message)?;
        let mut answer = [0; 4096];
        let length = socket.read(&mut answer)?;
        let Some(error) = answer[..length].get(16..20) else { return Err(io::Error::other("a short answer")) };
        match i32::from_ne_bytes(error.try_into().expect("four bytes")) {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }
}

/// NLM_F_CREATE | NLM_F_EXCL.
const CREATE: u16 = 0x600;

fn family(address: &[u8]) -> u8 {
    if address.len() == 4 { 2 } else { 10 }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut all = (4 + value.len() as u16).to_ne_bytes().to_vec();
    all.extend(kind.to_ne_bytes());
    all.extend(value);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// The calls that std does not have.
mod sys {
    use std::ffi::{CString, c_char, c_int, c_ulong, c_void};
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    pub const CLONE_NEWNS: c_int = 0x2_0000;
    pub const CLONE_NEWNET: c_int = 0x4000_0000;
    const AF_PACKET: c_int = 17;
    const SOCK_DGRAM: c_int = 2;
    const SOL_SOCKET: c_int = 1;
    /// ETH_P_ALL in network byte order.
    const EVERY_PROTOCOL: u16 = 3_u16.to_be();

    unsafe extern "C" {
        fn setns(fd: c_int, flags: c_int) -> c_int;
        #[link_name = "socket"]
        fn socket_(family: c_int, kind: c_int, protocol: c_int) -> c_int;
        fn bind(fd: c_int, address: *const c_void, length: u32) -> c_int;
        fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
        #[link_name = "listen"]
        fn listen_(fd: c_int, backlog: c_int) -> c_int;
        fn if_nametoindex(name: *const c_char) -> u32;
        fn sendmsg(fd: c_int, message: *const Message, flags: c_int) -> isize;
        fn mount(
            from: *const c_char,
            to: *const c_char,
            kind: *const c_char,
            flags: c_ulong,
            data: *const c_void,
        ) -> c_int;
    }

    fn check(result: c_int) -> io::Result<c_int> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn c(text: &str) -> CString {
        CString::new(text).expect("no NUL")
    }

    /// Joins what a descriptor names: a namespace, or those of a process.
    pub fn enter(what: &impl AsFd, flags: c_int) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { setns(what.as_fd().as_raw_fd(), flags) }).map(drop)
    }

    pub fn listen(socket: &OwnedFd, backlog: c_int) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { listen_(socket.as_raw_fd(), backlog) }).map(drop)
    }

    pub fn mount_overlay(at: &str, options: &str) -> io::Result<()> {
        let (at, kind, options) = (c(at), c("overlay"), c(options));
        // SAFETY: four live strings.
        check(unsafe { mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast()) }).map(drop)
    }

    pub fn number_of(name: &str) -> io::Result<u32> {
        let name = c(name);
        // SAFETY: a live string.
        match unsafe { if_nametoindex(name.as_ptr()) } {
            0 => Err(io::Error::last_os_error()),
            number => Ok(number),
        }
    }

    pub fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
        // SAFETY: no pointers.
        let fd = check(unsafe { socket_(family, kind, protocol) })?;
        // SAFETY: the kernel just made it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Everything that leaves by an interface, from the IP header on: of TCP the first packet of each attempt to connect, of all
    /// others every packet.
    pub fn packets(interface: &str) -> io::Result<OwnedFd> {
        const SO_RCVBUF: c_int = 8;
        const SO_ATTACH_FILTER: c_int = 26;
        const FILTER: [(u16, u8, u8, u32); 18] = [
            (0x28, 0, 0, 0xFFFF_F004), // the packet's direction
            (0x15, 0, 15, 4),          // outgoing, or to the end
            (0x28, 0, 0, 0xFFFF_F000), // the protocol
            (0x15, 0, 6, 0x0800),
            (0x30, 0, 0, 9), // IPv4: what it carries
            (0x15, 0, 10, 6),
            (0xb1, 0, 0, 0), // TCP: behind the header
            (0x50, 0, 0, 13),
            (0x54, 0, 0, 0x12), // of SYN and ACK
            (0x15, 6, 7, 0x02), // SYN alone
            (0x15, 0, 6, 0x86dd),
            (0x30, 0, 0, 6), // IPv6: what it carries
            (0x15, 0, 3, 6),
            (0x30, 0, 0, 53),
            (0x54, 0, 0, 0x12),
            (0x15, 0, 1, 0x02),
            (0x06, 0, 0, 2048), // taken
            (0x06, 0, 0, 0),    // not taken
        ];
        let socket = socket(AF_PACKET, SOCK_DGRAM, 0)?;
        // The C struct sock_filter, on machines that are little-endian.
        let program = FILTER.map(|(code, yes, no, k)| {
            u64::from(code) | u64::from(yes) << 16 | u64::from(no) << 24 | u64::from(k) << 32
        });
        // The C struct sock_fprog.
        let filter = [program.len(), program.as_ptr().addr()];
        let fd = socket.as_raw_fd();
        let set = |name, value: *const c_void, length| {
            // SAFETY: each caller gives a live value of that length.
            check(unsafe { setsockopt(fd, SOL_SOCKET, name, value, length) })
        };
        set(SO_ATTACH_FILTER, filter.as_ptr().cast(), 16)?;
        let bytes: c_int = 1 << 24;
        set(SO_RCVBUF, (&raw const bytes).cast(), 4)?;
        // The C struct sockaddr_ll: family, protocol, number of the interface, and more that is not used.
        let mut address = [0_u8; 20];
        address[..2].copy_from_slice(&(AF_PACKET as u16).to_ne_bytes());
        address[2..4].copy_from_slice(&EVERY_PROTOCOL.to_ne_bytes());
        address[4..8].copy_from_slice(&number_of(interface)?.to_ne_bytes());
        // SAFETY: pointer and length of a live address.
        check(unsafe { bind(fd, address.as_ptr().cast(), 20) })?;
        Ok(socket)
    }

    /// The C struct msghdr.
    #[repr(C)]
    struct Message {
        name: *mut c_void,
        name_length: u32,
        vectors: *const [usize; 2],
        vector_count: usize,
        control: *const c_void,
        control_length: usize,
        flags: c_int,
    }

    /// Sends text with descriptors (SCM_RIGHTS).
    pub fn send(stream: &UnixStream, text: &str, descriptors: &[OwnedFd]) -> io::Result<()> {
        let length = 16 + 4 * descriptors.len();
        // The C struct cmsghdr: length, level and type, then the descriptors.
        let mut control = length.to_ne_bytes().to_vec();
        control.extend(SOL_SOCKET.to_ne_bytes());
        control.extend(1_u32.to_ne_bytes());
        descriptors.iter().for_each(|fd| control.extend(fd.as_raw_fd().to_ne_bytes()));
        control.resize(control.len().next_multiple_of(8), 0);
        let vector = [text.as_ptr().addr(), text.len()];
        let message = Message {
            name: std::ptr::null_mut(),
            name_length: 0,
            vectors: &raw const vector,
            vector_count: 1,
            control: control.as_ptr().cast(),
            control_length: control.len(),
            flags: 0,
        };
        // SAFETY: every pointer of the message is to live memory of the length beside it.
        let sent = unsafe { sendmsg(stream.as_raw_fd(), &raw const message, 0) };
        check(sent as c_int)?;
        if sent as usize == text.len() { Ok(()) } else { Err(io::Error::other("a short message")) }
    }
}
