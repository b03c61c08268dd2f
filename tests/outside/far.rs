//! The servers: HTTP, TLS, an echo, a resolver that knows nobody, on every address that a packet may go to.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{Shutdown, shutdown};
use rustls::{ServerConnection, StreamOwned};

use super::{authority, websocket};

/// Where a server stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// On the internet.
    Far,
    /// On the machine that smcp runs on.
    Near,
}

/// A connection that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub side: Side,
    /// The address and port that the client meant.
    pub to: SocketAddr,
}

/// How the echo heard the end of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It had said its last.
    Finished,
    /// By a reset.
    Reset,
}

/// All servers of a world.
pub struct Servers {
    listeners: Vec<Arc<TcpListener>>,
    common: Arc<Common>,
}

/// What they share.
struct Common {
    seen: Mutex<Vec<Connection>>,
    /// How the echo's clients ended.
    ends: Mutex<Vec<End>>,
    /// What the proxy was asked for.
    proxied: Mutex<Vec<String>>,
    /// The name in each first message of TLS.
    names_of_tls: Mutex<Vec<String>>,
    /// Bytes that `/bytes/N` has sent.
    sent: AtomicU64,
    /// How many requests wait for each other, and a sign that one more does.
    together: (Mutex<usize>, Condvar),
    over: AtomicBool,
}

impl Servers {
    pub fn start(listeners: Vec<(Side, u16, Arc<TcpListener>)>, resolver: UdpSocket) -> Servers {
        let common = Arc::new(Common {
            seen: Mutex::default(),
            ends: Mutex::default(),
            proxied: Mutex::default(),
            names_of_tls: Mutex::default(),
            sent: AtomicU64::new(0),
            together: (Mutex::new(0), Condvar::new()),
            over: AtomicBool::new(false),
        });
        for (side, port, listener) in &listeners {
            let (side, port, listener, common) = (*side, *port, listener.clone(), common.clone());
            thread::spawn(move || take(side, port, &listener, &common));
        }
        let held = common.clone();
        thread::spawn(move || know_nobody(&resolver, &held));
        Servers { listeners: listeners.into_iter().map(|(.., listener)| listener).collect(), common }
    }

    /// Whether some server has this port; those of near have no other ports than far's.
    pub fn listen_on(&self, port: u16) -> bool {
        self.listeners.iter().any(|listener| listener.local_addr().is_ok_and(|own| own.port() == port))
    }

    pub fn seen(&self) -> Vec<Connection> {
        self.common.seen.lock().expect("no server panics").clone()
    }

    pub fn ends(&self) -> Vec<End> {
        let mut ends = self.common.ends.lock().expect("no server panics").clone();
        ends.sort_unstable();
        ends
    }

    pub fn proxied(&self) -> Vec<String> {
        self.common.proxied.lock().expect("no server panics").clone()
    }

    pub fn names_of_tls(&self) -> Vec<String> {
        let mut names = self.common.names_of_tls.lock().expect("no server panics").clone();
        names.sort_unstable();
        names
    }

    pub fn sent(&self) -> u64 {
        self.common.sent.load(Ordering::Relaxed)
    }

    pub fn forget(&self) {
        self.common.seen.lock().expect("no server panics").clear();
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.common.over.store(true, Ordering::Relaxed);
        for listener in &self.listeners {
            // Wakes the thread that waits for a connection.
            let _ = shutdown(listener, Shutdown::Both);
        }
    }
}

fn take(side: Side, port: u16, listener: &TcpListener, common: &Arc<Common>) {
    while let Ok((stream, _)) = listener.accept() {
        let Ok(local) = stream.local_addr() else { continue };
        let to = SocketAddr::new(local.ip().to_canonical(), port);
        common.seen.lock().expect("no server panics").push(Connection { side, to });
        let common = common.clone();
        // A client that goes away is no matter of the server's.
        let serve = move || drop(serve(side, to, stream, &common));
        thread::Builder::new().stack_size(512 << 10).spawn(serve).expect("a thread can be had");
    }
}

fn serve(side: Side, to: SocketAddr, mut stream: TcpStream, common: &Common) -> io::Result<()> {
    match to.port() {
        443 | 8443 => tls(side, to, stream, common),
        5432 => echo(stream, common),
        8000 => {
            stream.write_all(b"220 ready\r\n")?;
            echo(stream, common)
        }
        _ => {
            let request = head(&mut stream)?;
            if let Some(meant) = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()) {
                common.proxied.lock().expect("no server panics").push(meant.to_owned());
                stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
                return tls(side, to, stream, common);
            }
            match http(side, to, &request, &mut stream, common)? {
                Then::Finish => stream.shutdown(std::net::Shutdown::Write),
                Then::Reset => set_socket_linger(&stream, Some(Duration::ZERO)).map_err(io::Error::from),
            }
        }
    }
}

/// HTTP in TLS.
fn tls(side: Side, to: SocketAddr, stream: TcpStream, common: &Common) -> io::Result<()> {
    let connection = ServerConnection::new(authority::server()).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    // The client's first message is answered before more of it is read.
    let begun = stream.conn.complete_io(&mut stream.sock);
    if let Some(name) = stream.conn.server_name() {
        common.names_of_tls.lock().expect("no server panics").push(name.to_owned());
    }
    begun?;
    let request = head(&mut stream)?;
    http(side, to, &request, &mut stream, common)?;
    stream.conn.send_close_notify();
    stream.flush()?;
    stream.sock.shutdown(std::net::Shutdown::Write)
}

/// Sends everything back, and a word once the client has said its last.
fn echo(mut stream: TcpStream, common: &Common) -> io::Result<()> {
    let mut bytes = [0; 64 << 10];
    let mut heard = || -> io::Result<()> {
        loop {
            match stream.read(&mut bytes)? {
                0 => return stream.write_all(b"bye\n"),
                length => stream.write_all(&bytes[..length])?,
            }
        }
    };
    let heard = heard();
    let end = if heard.is_ok() { End::Finished } else { End::Reset };
    common.ends.lock().expect("no server panics").push(end);
    heard
}

/// How a connection ends.
enum Then {
    Finish,
    Reset,
}

/// The answer to one request: who was asked for what.
///
/// ```text
/// /bytes/N     N bytes of zeros
/// /together/N  an answer once N such requests wait
/// /reset       half an answer, then a reset
/// …/info/refs  what `git ls-remote` reads
/// ```
fn http(
    side: Side,
    to: SocketAddr,
    request: &str,
    stream: &mut (impl Read + Write),
    common: &Common,
) -> io::Result<Then> {
    let mut lines = request.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let field = |name: &str| {
        let fields = request.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).next()
    };
    if let Some(key) = field("Sec-WebSocket-Key") {
        let answer = websocket::answer_to(&key);
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        write!(stream, "{head}Sec-WebSocket-Accept: {answer}\r\n\r\n")?;
        stream.flush()?;
        return websocket::echo(stream).map(|()| Then::Finish);
    }
    let number = |prefix: &str| path.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
    if let Some(length) = number("/bytes/") {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
        let zeros = vec![0; 256 << 10];
        let mut left = length;
        while left > 0 {
            let sent = stream.write(&zeros[..zeros.len().min(left as usize)])? as u64;
            common.sent.fetch_add(sent, Ordering::Relaxed);
            left -= sent;
        }
        return Ok(Then::Finish);
    }
    if let Some(count) = number("/together/") {
        common.wait_for(count as usize);
    }
    if path == "/reset" {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf")?;
        stream.flush()?;
        return Ok(Then::Reset);
    }
    let body = if path.ends_with("/HEAD") || path.contains("/info/refs") {
        let commit = "6dcb09b5b57875f334f61aebed695e2e4193db5e";
        if path.ends_with("/HEAD") { "ref: refs/heads/main\n".into() } else { format!("{commit}\trefs/heads/main\n") }
    } else {
        format!("{side:?} {} {}\n", to.ip(), field("Host").unwrap_or_default()).to_lowercase()
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    stream.flush()?;
    Ok(Then::Finish)
}

/// Up to the empty line.
fn head(stream: &mut impl Read) -> io::Result<String> {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.ends_with(b"\r\n\r\n") && all.len() < 16 << 10 {
        stream.read_exact(&mut byte)?;
        all.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&all).into_owned())
}

impl Common {
    fn wait_for(&self, count: usize) {
        let (waiting, more) = &self.together;
        let mut waiting = waiting.lock().expect("no server panics");
        *waiting += 1;
        more.notify_all();
        while *waiting < count && !self.over.load(Ordering::Relaxed) {
            waiting = more.wait_timeout(waiting, Duration::from_millis(100)).expect("no server panics").0;
        }
    }
}

/// Answers every question of the DNS by NXDOMAIN, at once.
fn know_nobody(resolver: &UdpSocket, common: &Common) {
    resolver.set_read_timeout(Some(Duration::from_millis(50))).expect("it is ours");
    let mut bytes = [0; 2048];
    while !common.over.load(Ordering::Relaxed) {
        if let Ok((length @ 12.., from)) = resolver.recv_from(&mut bytes) {
            bytes[2] |= 0x80;
            bytes[3] = 0x83;
            let _ = resolver.send_to(&bytes[..length], from);
        }
    }
}
