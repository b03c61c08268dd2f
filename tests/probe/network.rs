//! Verbs that speak to servers: by HTTP, the DNS, TLS's first message, datagrams.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::Duration;

/// Longer than anything that is refused at once, shorter than anything that waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    let number = |at: usize| rest[at].parse().unwrap_or_else(|_| panic!("{:?} is no number", rest[at]));
    Some(match verb {
        "fetch" => fetch(rest[0]).map(|said| super::quote(&String::from_utf8_lossy(&said))),
        "fetch-together" => fetch_together(rest[0], number(1)),
        "download" => download(rest[0], false),
        "download-on-a-word" => download(rest[0], true),
        "fetch-one-by-one" => fetch_one_by_one(rest[0], number(1)),
        "hang-up-hard" => hang_up_hard(rest[0]),
        "greeting" => greeting(rest[0]).map(|said| super::quote(&said)),
        "mirror" => mirror(rest[0], number(1) as usize),
        "listen" => listen(rest[0]),
        "hold" => hold(rest[0]),
        "garbage-dns" => garbage_dns(rest[0], rest[1]).map(|answer| super::quote(&answer)),
        "resolve" => resolve(rest[0]),
        "ask-dns" => ask_dns(rest[0], rest[1], rest[2], number(3) as u16).map(|answer| super::quote(&answer)),
        "flood-dns" => flood_dns(rest[0], rest[1], number(2)),
        "flood-names" => flood_names(rest[0], number(1)),
        "hello" => hello(rest[0], rest.get(1).copied(), Pieces::One),
        "hello-byte-by-byte" => hello(rest[0], Some(rest[1]), Pieces::Bytes),
        "hello-in-two-records" => hello(rest[0], Some(rest[1]), Pieces::Records),
        "datagram" => datagram(rest[0], rest[1]),
        "itself" => itself(),
        "through-a-relay" => through_a_relay(rest[0]),
        _ => return None,
    })
}

fn connect(to: &str) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for address in to.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                return Ok(stream);
            }
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

/// `http://HOST[:PORT]/PATH`, or `tcp://HOST:PORT` to say something and hear it back.
fn fetch(url: &str) -> io::Result<Vec<u8>> {
    let (mut stream, is_http) = open(url)?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said)?;
    match said.windows(4).position(|four| four == b"\r\n\r\n") {
        Some(end) if is_http => Ok(said.split_off(end + 4)),
        None if is_http => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no answer")),
        _ if said.is_empty() => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "no answer")),
        _ => Ok(said),
    }
}

/// A connection on which the question has been asked.
fn open(url: &str) -> io::Result<(TcpStream, bool)> {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let with_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let mut stream = connect(&if with_port { host.into() } else { format!("{host}:80") })?;
    if scheme == "http" {
        write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n")?;
    } else {
        stream.write_all(b"there and back\n")?;
        stream.shutdown(Shutdown::Write)?;
    }
    Ok((stream, scheme == "http"))
}

/// As many connections at once, each of which gets its answer only when all are there.
fn fetch_together(url: &str, count: u64) -> io::Result<String> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(open(url)?.0);
    }
    for stream in &mut streams {
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        if !said.contains(" 200 ") {
            return Err(io::Error::other(format!("no answer but {said:?}")));
        }
    }
    Ok(streams.len().to_string())
}

/// How many bytes came behind the head; with a word, nothing is read before a line comes on stdin.
fn download(url: &str, on_a_word: bool) -> io::Result<String> {
    let (mut stream, _) = open(url)?;
    if on_a_word {
        super::say("\"ready\"");
        io::stdin().lock().read_line(&mut String::new())?;
    }
    let mut bytes = vec![0; 1 << 20];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut bytes[..1])?;
        head.push(bytes[0]);
    }
    let mut length = 0_u64;
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(length.to_string()),
            more => length += more as u64,
        }
    }
}

/// One connection after the other; then it stays until stdin ends.
fn fetch_one_by_one(url: &str, count: u64) -> io::Result<String> {
    for _ in 0..count {
        fetch(url)?;
    }
    super::say("\"ready\"");
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(count.to_string())
}

/// What a server says by itself, before it is told anything.
fn greeting(to: &str) -> io::Result<String> {
    let mut line = String::new();
    io::BufReader::new(connect(to)?).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// Sends noise to an echo while it reads it back, and compares.
fn mirror(to: &str, bytes: usize) -> io::Result<String> {
    let stream = connect(to)?;
    let sent = super::noise(bytes, 11);
    let heard = thread::scope(|scope| {
        let writer = scope.spawn(|| (&stream).write_all(&sent).and_then(|()| stream.shutdown(Shutdown::Write)));
        let mut heard = Vec::with_capacity(bytes);
        (&stream).read_to_end(&mut heard)?;
        writer.join().expect("the writer does not panic").map(|()| heard)
    })?;
    let same = heard.strip_suffix(b"bye\n") == Some(&sent[..]);
    if same { Ok("\"the same\"".into()) } else { Err(io::Error::other(format!("{} bytes, not the same", heard.len()))) }
}

/// Keeps a connection to an echo open until stdin ends.
fn hold(to: &str) -> io::Result<String> {
    let mut open = connect(to)?;
    open.write_all(b"x")?;
    open.read_exact(&mut [0])?;
    super::say("\"ready\"");
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    std::process::exit(0)
}

/// Listens at an address and takes a connection of its own.
fn listen(at: &str) -> io::Result<String> {
    let listener = TcpListener::bind(at)?;
    let mut client = TcpStream::connect(at)?;
    client.write_all(b"x")?;
    let mut byte = [0];
    listener.accept()?.0.read_exact(&mut byte)?;
    Ok("\"heard\"".into())
}

/// Connects, says something, and resets: what is unread at a close is answered by a reset.
fn hang_up_hard(to: &str) -> io::Result<String> {
    let mut stream = connect(to)?;
    stream.write_all(b"there and back\n")?;
    stream.peek(&mut [0])?;
    drop(stream);
    Ok("\"hung up\"".into())
}

fn resolve(name: &str) -> io::Result<String> {
    let mut addresses: Vec<_> = (name, 80).to_socket_addrs()?.map(|address| address.ip().to_string()).collect();
    addresses.sort();
    addresses.dedup();
    Ok(super::list(addresses.iter().map(|address| super::quote(address))))
}

fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

/// `CODE ANSWERS`: what a resolver says, by `udp` or `tcp`.
fn ask_dns(resolver: &str, by: &str, name: &str, kind: u16) -> io::Result<String> {
    let question = question(7, name, kind);
    let mut answer = vec![0; 4096];
    let length = if by == "udp" {
        let socket = UdpSocket::bind(if resolver.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" })?;
        socket.connect(resolver)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(&question)?;
        socket.recv(&mut answer)?
    } else {
        let mut stream = connect(resolver)?;
        stream.write_all(&[&(question.len() as u16).to_be_bytes()[..], &question].concat())?;
        let mut length = [0; 2];
        stream.read_exact(&mut length)?;
        let length = usize::from(u16::from_be_bytes(length));
        stream.read_exact(&mut answer[..length])?;
        length
    };
    // The question stands in the answer as it was asked: some resolvers compare its capitals.
    let asked = answer.get(12..question.len().min(length)) == question.get(12..);
    if length < 12 || answer[..2] != question[..2] || answer[2] & 0x80 == 0 || !asked {
        return Err(io::Error::other("no answer to the question"));
    }
    Ok(format!("{} {}", answer[3] & 15, u16::from_be_bytes([answer[6], answer[7]])))
}

/// Sends what is no question, by datagrams and by TCP, and then one.
fn garbage_dns(resolver: &str, name: &str) -> io::Result<String> {
    let good = question(1, name, 1);
    let header = |flags: u8, count: u8| [0, 1, flags, 0, 0, count, 0, 0, 0, 0, 0, 0].to_vec();
    let with = |head: Vec<u8>, tail: &[u8]| [&head[..], tail].concat();
    let mut garbage: Vec<Vec<u8>> = (0..good.len()).map(|length| good[..length].to_vec()).collect();
    garbage.extend([
        // A name that leads to itself, one that leads behind the end, labels of every wrong length.
        with(header(1, 1), &[0xc0, 12, 0, 1, 0, 1]),
        with(header(1, 1), &[0xff, 0xff, 0, 1, 0, 1]),
        with(header(1, 1), &[64; 80]),
        with(header(1, 1), &[0x80; 80]),
        with(header(1, 1), &[1; 600]),
        // No question, several, an answer, another operation, a name of other bytes, a tail.
        header(1, 0),
        with(header(1, 255), &good[12..]),
        with(header(0x81, 1), &good[12..]),
        with(header(0x29, 1), &good[12..]),
        with(header(1, 1), b"\x06\0\n\x1b\"\\\xff\x04test\0\0\x01\0\x01"),
        [&good[..], &[0xff; 400]].concat(),
        super::noise(1400, 5),
    ]);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(resolver)?;
    for datagram in &garbage {
        socket.send(datagram)?;
    }
    for message in &garbage {
        let mut stream = connect(resolver)?;
        // What is longer than it says, or shorter, or never comes; the other side may hang up in between.
        let _ = stream.write_all(&[&(message.len() as u16 * 2).to_be_bytes()[..], message].concat());
        let _ = stream.write_all(message);
    }
    ask_dns(resolver, "udp", name, 1)?;
    ask_dns(resolver, "tcp", name, 1)
}

/// As many questions as fast as they can be asked, for names beneath one; how many of each answer came.
fn flood_dns(resolver: &str, suffix: &str, count: u64) -> io::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(resolver)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut codes = BTreeMap::<String, u64>::new();
    let mut answer = [0; 4096];
    // A window, since datagrams that nobody waits for may be dropped anywhere.
    const WINDOW: u64 = 32;
    for number in 0..count + WINDOW {
        if number < count {
            socket.send(&question(number as u16, &format!("{number:060}.{suffix}"), 1 + 15 * (number % 2) as u16))?;
        }
        if number >= WINDOW {
            socket.recv(&mut answer)?;
            *codes.entry((answer[3] & 15).to_string()).or_default() += 1;
        }
    }
    Ok(super::map(codes.into_iter().map(|(code, count)| (code, count.to_string()))))
}

/// Resolves as many names beneath a suffix; how many had an address.
fn flood_names(suffix: &str, count: u64) -> io::Result<String> {
    Ok((0..count).filter(|number| (format!("n{number}.{suffix}"), 80).to_socket_addrs().is_ok()).count().to_string())
}

/// How a first message is sent.
enum Pieces {
    One,
    /// Each byte a segment of its own.
    Bytes,
    /// One message in two records.
    Records,
}

/// Sends the first message of TLS 1.2 with this name, or none, and says of which kind the first record of the answer is.
fn hello(to: &str, name: Option<&str>, pieces: Pieces) -> io::Result<String> {
    let with_length = |bytes: &[u8]| [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat();
    let extension = |kind: u16, body: &[u8]| [&kind.to_be_bytes()[..], &with_length(body)].concat();
    let mut extensions = extension(10, &with_length(&[0, 23]));
    extensions.extend(extension(11, &[1, 0]));
    extensions.extend(extension(13, &with_length(&[4, 3, 4, 1])));
    if let Some(name) = name {
        let entry = [&[0][..], &with_length(name.as_bytes())].concat();
        extensions.extend(extension(0, &with_length(&entry)));
    }
    // Version, random, no session, two suites that ring has for this key, no compression.
    let suites = with_length(&[0xc0, 0x2b, 0xc0, 0x2c]);
    let body = [&[3, 3][..], &[7; 32], &[0], &suites, &[1, 0], &with_length(&extensions)].concat();
    let message = [&[1, 0][..], &with_length(&body)].concat();
    let record = |part: &[u8]| [&[22, 3, 1][..], &with_length(part)].concat();
    let mut stream = connect(to)?;
    stream.set_nodelay(true)?;
    match pieces {
        Pieces::One => stream.write_all(&record(&message))?,
        Pieces::Bytes => record(&message).iter().try_for_each(|byte| stream.write_all(&[*byte]))?,
        Pieces::Records => {
            stream.write_all(&record(&message[..60]))?;
            stream.write_all(&record(&message[60..]))?;
        }
    }
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    match kind {
        [22] => Ok("\"hello\"".into()),
        [21] => Ok("\"alert\"".into()),
        [other] => Err(io::Error::other(format!("a record of kind {other}"))),
    }
}

/// Sends a datagram from a `connected` socket or not, and waits for what comes of it.
fn datagram(to: &str, how: &str) -> io::Result<String> {
    let address = to.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("no address"))?;
    let socket = UdpSocket::bind(if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
    socket.set_read_timeout(Some(PATIENCE))?;
    if how == "connected" {
        socket.connect(address)?;
        socket.send(b"QUIC")?;
        socket.recv(&mut [0; 64])?;
        return Ok("\"answered\"".into());
    }
    socket.send_to(b"QUIC", address).map(|_| "\"sent\"".into())
}

/// Listens on loopback and speaks with itself, over both versions of IP, and by Unix sockets.
fn itself() -> io::Result<String> {
    for loopback in ["127.0.0.1:0", "[::1]:0", "localhost:0"] {
        let listener = TcpListener::bind(loopback)?;
        let mut client = TcpStream::connect(listener.local_addr()?)?;
        client.write_all(b"x")?;
        listener.accept()?.0.read_exact(&mut [0])?;
    }
    let path = std::env::temp_dir().join("itself");
    let listener = std::os::unix::net::UnixListener::bind(&path)?;
    std::os::unix::net::UnixStream::connect(&path)?.write_all(b"x")?;
    listener.accept()?.0.read_exact(&mut [0])?;
    std::os::unix::net::UnixStream::pair()?.0.write_all(b"x")?;
    Ok("\"heard\"".into())
}

/// Asks a relay of its own, on loopback, which connects to where it should not.
fn through_a_relay(url: &str) -> io::Result<String> {
    let (_, host) = url.split_once("://").expect("a URL");
    let host = host.trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let own = listener.local_addr()?;
    let relay = thread::spawn(move || -> io::Result<()> {
        let (mut client, _) = listener.accept()?;
        let mut server = connect(&host)?;
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte)?;
            request.extend(byte);
        }
        server.write_all(&request)?;
        io::copy(&mut server, &mut client).map(drop)
    });
    let said = fetch(&format!("http://{own}/"));
    relay.join().expect("a relay does not panic")?;
    said.map(|said| super::quote(&String::from_utf8_lossy(&said)))
}
