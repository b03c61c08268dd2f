//! A scope of systemd's for a run, where no cgroup of ours may be divided: as in an ssh session, whose own is root's.
//!
//! The supervisor asks, by D-Bus, that itself be put into a delegated scope, as `systemd-run --user --scope` does. What it
//! then starts is born there, the cage gets a child with the limits, and the counters can be read as long as the supervisor
//! lives: systemd removes a scope when its last process ends, also after SIGKILL.
//!
//! The two calls are written out here, in the D-Bus specification's marshalling. The libraries do not serve: libcgroups'
//! client is private to it, starts `busctl` and waits 10 s; rustbus connects and authenticates without a deadline; zbus
//! brings threads, which must not be there when the cage is started.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::cgroup::in_version_2;
use super::sys;

/// How long the two may take.
#[derive(Clone, Copy)]
struct Patience {
    /// The bus, to let this process in.
    bus: Duration,
    /// systemd, to make the scope and to move this process.
    systemd: Duration,
}

/// An emulated machine, some hundred times slower than its host, needs less but for its very first scope.
const PATIENCE: Patience = Patience { bus: Duration::from_millis(300), systemd: Duration::from_secs(1) };

/// Puts this process into a new scope of this name and divides it: this process goes into a child, so that others can
/// take the controllers. The scope's directory.
///
/// # Errors
/// What stood in the way, in words for a person.
pub fn enter(mount: &Path, name: &str) -> Result<PathBuf, String> {
    let uid = rustix::process::getuid().as_raw();
    let (whose, bus) = match uid {
        0 => ("the system's", PathBuf::from("/run/dbus/system_bus_socket")),
        // Also where the caller's environment does not name it.
        _ => ("the user's", PathBuf::from(format!("/run/user/{uid}/bus"))),
    };
    // By systemd's convention for applications. Not the name of a cgroup of ours, which the next start would remove.
    let unit = format!("app-{name}.scope");
    let entered =
        ask(&bus, uid, &unit, std::process::id(), PATIENCE).and_then(|deadline| await_move(mount, &unit, &deadline));
    let scope = entered.map_err(|why| format!("a scope by {whose} systemd: {why}"))?;
    divide(&scope).map_err(|why| format!("dividing {}: {why}", scope.display()))?;
    Ok(scope)
}

/// Waits until the kernel says that this process is in the scope.
fn await_move(mount: &Path, unit: &str, deadline: &Deadline) -> Result<PathBuf, String> {
    loop {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        if let Some(path) = in_version_2(&own).filter(|path| path.ends_with(unit)) {
            return Ok(mount.join(path));
        }
        if deadline.left().is_zero() {
            return Err(format!("it did not move smcp within {:?}", deadline.patience));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn divide(scope: &Path) -> io::Result<()> {
    let own = scope.join("supervisor");
    fs::create_dir(&own)?;
    fs::write(own.join("cgroup.procs"), "0")?;
    // One that is not delegated is missed, and named, when its limit is written.
    for controller in ["+memory", "+pids", "+cpu"] {
        let _ = fs::write(scope.join("cgroup.subtree_control"), controller);
    }
    Ok(())
}

/// A moment that was set some patience ago.
struct Deadline {
    at: Instant,
    patience: Duration,
}

impl Deadline {
    fn after(patience: Duration) -> Deadline {
        Deadline { at: Instant::now() + patience, patience }
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// Asks the systemd on a bus for a scope with this process. Until when it has time to move it.
fn ask(bus: &Path, uid: u32, unit: &str, pid: u32, patience: Patience) -> Result<Deadline, String> {
    let deadline = Deadline::after(patience.bus);
    let mut bus = Bus::connect(bus, uid, &deadline)?;
    bus.send(&Message { serial: 1, method: &HELLO, body: Encoder::default() }.encode())?;
    bus.answer(1, &deadline)?;
    let deadline = Deadline::after(patience.systemd);
    bus.send(&Message { serial: 2, method: &START_TRANSIENT_UNIT, body: start_transient_unit(unit, pid) }.encode())?;
    bus.answer(2, &deadline)?;
    Ok(deadline)
}

/// The arguments `(name, mode, properties, auxiliary units)`.
fn start_transient_unit(unit: &str, pid: u32) -> Encoder {
    let mut body = Encoder::default();
    body.string(unit);
    body.string("fail");
    body.array(8, |properties| {
        properties.property("Description", "s", |value| value.string("a server caged by smcp"));
        properties.property("PIDs", "au", |value| value.array(4, |pids| pids.number(pid)));
        // Its inside is ours: systemd enables all controllers for it and changes nothing beneath.
        properties.property("Delegate", "b", |value| value.number(1));
        // One that failed does not stay loaded.
        properties.property("CollectMode", "s", |value| value.string("inactive-or-failed"));
    });
    body.array(8, |_| ());
    body
}

/// A method that is called.
struct Method {
    destination: &'static str,
    path: &'static str,
    interface: &'static str,
    member: &'static str,
    signature: &'static str,
}

/// What a client has to say first.
const HELLO: Method = Method {
    destination: "org.freedesktop.DBus",
    path: "/org/freedesktop/DBus",
    interface: "org.freedesktop.DBus",
    member: "Hello",
    signature: "",
};

/// org.freedesktop.systemd1(5).
const START_TRANSIENT_UNIT: Method = Method {
    destination: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    member: "StartTransientUnit",
    signature: "ssa(sv)a(sa(sv))",
};

/// A call as the specification's section "Message Format" has it, little-endian.
struct Message<'m> {
    serial: u32,
    method: &'m Method,
    body: Encoder,
}

const METHOD_CALL: u8 = 1;
const ERROR: u8 = 3;
const REPLY_SERIAL: u8 = 5;

impl Message<'_> {
    fn encode(self) -> Vec<u8> {
        let mut whole = Encoder { bytes: vec![b'l', METHOD_CALL, 0, 1] };
        whole.number(self.body.bytes.len() as u32);
        whole.number(self.serial);
        whole.array(8, |fields| {
            fields.field(1, "o", self.method.path);
            fields.field(2, "s", self.method.interface);
            fields.field(3, "s", self.method.member);
            fields.field(6, "s", self.method.destination);
            if !self.method.signature.is_empty() {
                fields.align(8);
                fields.bytes.push(8);
                fields.signature("g");
                fields.signature(self.method.signature);
            }
        });
        whole.align(8);
        whole.bytes.extend(self.body.bytes);
        whole.bytes
    }
}

/// Values one after another, each at its alignment from the start.
#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn string(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.bytes.push(text.len() as u8);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
    }

    /// Its length counts neither itself nor the padding before the first element.
    fn array(&mut self, alignment: usize, elements: impl FnOnce(&mut Encoder)) {
        self.number(0);
        let length_at = self.bytes.len() - 4;
        self.align(alignment);
        let start = self.bytes.len();
        elements(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// A structure of a name and a variant.
    fn property(&mut self, name: &str, signature: &str, value: impl FnOnce(&mut Encoder)) {
        self.align(8);
        self.string(name);
        self.signature(signature);
        value(self);
    }

    /// A header field of text.
    fn field(&mut self, code: u8, signature: &str, text: &str) {
        self.align(8);
        self.bytes.push(code);
        self.signature(signature);
        self.string(text);
    }
}

/// A connection, after its authentication.
struct Bus {
    socket: OwnedFd,
    /// What has arrived and was not looked at yet.
    buffer: Vec<u8>,
}

impl Bus {
    fn connect(path: &Path, uid: u32, deadline: &Deadline) -> Result<Bus, String> {
        let said = |why: Errno| format!("{}: {}", path.display(), io::Error::from(why));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(said)?;
        // Where nobody accepts and the backlog is full, a socket that does not block says EAGAIN.
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).map_err(said)?).map_err(said)?;
        let peer = sys::peer(&socket).map_err(|why| format!("{}: {why}", path.display()))?;
        if peer.pid == 0 {
            return Err(format!(
                "{} is of another PID namespace, which knows this process by another id",
                path.display()
            ));
        }
        if peer.uid != uid && peer.uid != 0 {
            return Err(format!("{} is of uid {}", path.display(), peer.uid));
        }
        let mut bus = Bus { socket, buffer: Vec::new() };
        let hex: String = uid.to_string().bytes().map(|digit| format!("{digit:x}")).collect();
        bus.send(format!("\0AUTH EXTERNAL {hex}\r\n").as_bytes())?;
        while !bus.buffer.ends_with(b"\r\n") {
            bus.fill(deadline)?;
        }
        if !bus.buffer.starts_with(b"OK ") {
            return Err(format!("the bus does not know uid {uid}: {}", String::from_utf8_lossy(&bus.buffer).trim()));
        }
        bus.buffer.clear();
        bus.send(b"BEGIN\r\n")?;
        Ok(bus)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        match rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == bytes.len() => Ok(()),
            Ok(_) => Err("the bus takes no whole message".into()),
            Err(why) => Err(format!("the bus: {}", io::Error::from(why))),
        }
    }

    /// Waits for the answer to a call; an error's text where it is one.
    fn answer(&mut self, serial: u32, deadline: &Deadline) -> Result<(), String> {
        loop {
            while let Some(message) = self.take()? {
                if message.answers == Some(serial) {
                    return if message.kind == ERROR { Err(message.text) } else { Ok(()) };
                }
            }
            self.fill(deadline)?;
        }
    }

    fn fill(&mut self, deadline: &Deadline) -> Result<(), String> {
        let left = deadline.left();
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut block = [0_u8; 4096];
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(format!("no answer within {:?}", deadline.patience)),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(why) => return Err(format!("the bus: {}", io::Error::from(why))),
        }
        match rustix::io::read(&self.socket, &mut block) {
            Ok(0) => Err("the bus hung up".into()),
            Ok(n) => {
                self.buffer.extend_from_slice(&block[..n]);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(why) => Err(format!("the bus: {}", io::Error::from(why))),
        }
    }

    /// The next whole message, if it has arrived.
    fn take(&mut self) -> Result<Option<Incoming>, String> {
        // The specification allows 128 MiB; nothing of that size is said to us.
        const MOST: usize = 1 << 20;
        let number = |at: usize| Some(u32::from_le_bytes(self.buffer.get(at..at + 4)?.try_into().ok()?) as usize);
        let (Some(body), Some(fields)) = (number(4), number(12)) else { return Ok(None) };
        if self.buffer.first() != Some(&b'l') || body > MOST || fields > MOST {
            return Err("the bus speaks another protocol".into());
        }
        let body_at = (16 + fields).next_multiple_of(8);
        if self.buffer.len() < body_at + body {
            return Ok(None);
        }
        let whole: Vec<u8> = self.buffer.drain(..body_at + body).collect();
        Ok(Some(Incoming::read(&whole, fields, body_at)))
    }
}

/// What of a message is looked at.
struct Incoming {
    kind: u8,
    /// The serial number of the call that it answers.
    answers: Option<u32>,
    /// An error's text.
    text: String,
}

impl Incoming {
    fn read(whole: &[u8], fields: usize, body_at: usize) -> Incoming {
        let number = |at: usize| Some(u32::from_le_bytes(whole.get(at..at + 4)?.try_into().ok()?));
        let mut answers = None;
        let mut at = 16;
        while at < 16 + fields {
            at = at.next_multiple_of(8);
            let signature = (whole.get(at + 1), whole.get(at + 2));
            let value = (at + 4).next_multiple_of(4);
            // Fields are a number, a signature or text.
            at = match (signature, number(value)) {
                ((Some(1), Some(b'u')), Some(serial)) => {
                    if whole.get(at) == Some(&REPLY_SERIAL) {
                        answers = Some(serial);
                    }
                    value + 4
                }
                ((Some(1), Some(b'g')), _) => at + 4 + usize::from(whole.get(at + 4).copied().unwrap_or(0)) + 2,
                ((Some(1), Some(b's' | b'o')), Some(length)) => value + 4 + length as usize + 1,
                _ => break,
            };
        }
        let length = number(body_at).unwrap_or(0) as usize;
        let text = whole.get(body_at + 4..body_at + 4 + length).unwrap_or_default();
        Incoming { kind: whole[1], answers, text: String::from_utf8_lossy(text).into_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::thread;

    use super::*;

    #[test]
    fn a_call_is_marshalled_as_the_specification_says() {
        let hello = Message { serial: 1, method: &HELLO, body: Encoder::default() }.encode();
        assert_eq!(hello[..16], [b'l', 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 109, 0, 0, 0]);
        assert_eq!(&hello[16..24], b"\x01\x01o\0\x15\0\0\0");
        assert_eq!(hello.len(), 128);
        let body = start_transient_unit("a.scope", 77).bytes;
        let pids = b"PIDs\0\x02au\0\0\0\0\x04\0\0\0\x4d\0\0\0";
        assert!(body.windows(pids.len()).any(|part| part == pids), "{body:?}");
    }

    /// On a busy machine the other end may not run for a while.
    const LONG: Patience = Patience { bus: Duration::from_secs(60), systemd: Duration::from_secs(60) };
    const SHORT: Patience = Patience { bus: Duration::from_millis(50), systemd: Duration::from_millis(50) };

    /// A bus that says yes to the authentication, then does what `then` does with the stream.
    fn bus(patience: Patience, then: impl FnOnce(&mut UnixStream) + Send + 'static) -> Result<(), String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let serving = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0_u8; 256]);
            let _ = stream.write_all(b"OK 1234\r\n");
            // A bus says nothing before the client has begun.
            let _ = stream.read(&mut [0_u8; 256]);
            then(&mut stream);
            // Until the client is gone.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let result = ask_at(&path, patience);
        serving.join().unwrap();
        result
    }

    fn ask_at(path: &Path, patience: Patience) -> Result<(), String> {
        ask(path, rustix::process::getuid().as_raw(), "a.scope", 1, patience).map(drop)
    }

    /// An answer to the call of this number with a text as its body.
    fn answer(kind: u8, serial: u32, text: &str) -> Vec<u8> {
        let mut body = Encoder::default();
        body.string(text);
        let mut whole = Encoder { bytes: vec![b'l', kind, 1, 1] };
        whole.number(body.bytes.len() as u32);
        whole.number(9);
        whole.array(8, |fields| {
            fields.field(7, "s", "org.freedesktop.DBus");
            fields.align(8);
            fields.bytes.extend([8, 1, b'g', 0, 1, b's', 0]);
            fields.align(8);
            fields.bytes.extend([REPLY_SERIAL, 1, b'u', 0]);
            fields.number(serial);
        });
        whole.align(8);
        whole.bytes.extend(body.bytes);
        whole.bytes
    }

    #[test]
    fn an_answer_is_found_among_signals_and_in_pieces() {
        const SIGNAL: u8 = 4;
        let all = [answer(2, 1, ":1.7"), answer(SIGNAL, 0, ":1.7"), answer(2, 2, "/job/1")].concat();
        let result = bus(LONG, move |stream| {
            for piece in all.chunks(11) {
                stream.write_all(piece).unwrap();
            }
        });
        assert_eq!(result, Ok(()));
    }

    #[test]
    fn an_error_is_told_in_its_own_words() {
        let all = [answer(2, 1, ":1.7"), answer(ERROR, 2, "Access denied")].concat();
        assert_eq!(bus(LONG, move |stream| stream.write_all(&all).unwrap()), Err("Access denied".into()));
    }

    #[test]
    fn a_bus_that_hangs_hangs_up_or_is_none_is_no_wait() {
        assert_eq!(bus(SHORT, |_| ()), Err("no answer within 50ms".into()));
        let hung_up = bus(LONG, |stream| stream.shutdown(std::net::Shutdown::Both).unwrap()).unwrap_err();
        assert!(["hung up", "Broken pipe", "reset"].iter().any(|word| hung_up.contains(word)), "{hung_up}");
        assert!(bus(LONG, |stream| stream.write_all(&[b'x'; 64]).unwrap()).unwrap_err().contains("another protocol"));
        assert!(ask_at(Path::new("/nowhere/bus"), LONG).unwrap_err().contains("No such file"));
        // Nobody accepts.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus");
        let _listener = UnixListener::bind(&path).unwrap();
        assert_eq!(ask_at(&path, SHORT), Err("no answer within 50ms".into()));
    }
}
