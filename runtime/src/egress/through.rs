//! Through the host's proxy: HTTP's CONNECT (RFC 9110 9.3.6) and SOCKS 5 (RFC 1928, RFC 1929). Names go to it unresolved.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::connect::{Failed, Out, Target};
use super::copy::Space;
use super::proxy::{Kind, Login, Proxy};
use super::tally::Why;

/// How long the proxy may take, with its own connection.
const PATIENCE: Duration = Duration::from_secs(30);
/// As long as the head of its answer may be.
const LONGEST_HEAD: usize = 16 * 1024;

/// A connection to the target by way of the proxy.
pub async fn connect(out: &Out, proxy: &Proxy, target: &Target, space: &Space) -> Result<TcpStream, Failed> {
    let stream = out.to_proxy(&proxy.host, proxy.port).await?;
    let (host, port) = target.parts();
    let asked = async {
        match proxy.kind {
            Kind::Connect => ask_http(&stream, proxy.login.as_ref(), &host, port, space).await,
            Kind::Socks5 => ask_socks(&stream, proxy.login.as_ref(), &host, port, space).await,
        }
    };
    match timeout(PATIENCE, asked).await.map_err(io::Error::from).and_then(|asked| asked) {
        Ok(()) => Ok(stream),
        Err(why) => {
            tracing::warn!("the host's proxy {proxy:?} did not connect to {host}:{port}: {why}");
            Err(Why::ProxyFailed.into())
        }
    }
}

async fn ask_http(stream: &TcpStream, login: Option<&Login>, host: &str, port: u16, space: &Space) -> io::Result<()> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let authority = format!("{host}:{port}");
    let login = login.map(|login| {
        let text = BASE64_STANDARD.encode(format!("{}:{}", login.user, login.password));
        format!("Proxy-Authorization: Basic {text}\r\n")
    });
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", login.unwrap_or_default());
    write(stream, request.as_bytes()).await?;
    let head = |bytes: &[u8], last: bool| match bytes.windows(4).position(|end| end == b"\r\n\r\n") {
        Some(end) => Some(Ok((end + 4, status(bytes)))),
        None if last => Some(Err(io::Error::other("its answer has no end"))),
        None => None,
    };
    // What comes after the head is the target's already.
    let (length, status) = space.peek(stream, LONGEST_HEAD, head).await??;
    space.drop_peeked(stream, length)?;
    match status {
        Some(200..=299) => Ok(()),
        Some(status) => Err(io::Error::other(format!("it answered {status}"))),
        None => Err(io::Error::other("its answer is not HTTP")),
    }
}

/// The number in `HTTP/1.1 200 Connection established`.
fn status(head: &[u8]) -> Option<u16> {
    let number = head.strip_prefix(b"HTTP/1.")?.get(1..5)?.strip_prefix(b" ")?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

async fn ask_socks(stream: &TcpStream, login: Option<&Login>, host: &str, port: u16, space: &Space) -> io::Result<()> {
    const NO_LOGIN: u8 = 0;
    const PASSWORD: u8 = 2;
    let methods: &[u8] = if login.is_some() { &[5, 2, NO_LOGIN, PASSWORD] } else { &[5, 1, NO_LOGIN] };
    write(stream, methods).await?;
    match (read::<2>(stream, space).await?, login) {
        ([5, NO_LOGIN], _) => {}
        ([5, PASSWORD], Some(login)) => {
            // Both were bounded when they were read.
            let part = |text: &str| [&[text.len() as u8][..], text.as_bytes()].concat();
            write(stream, &[&[1][..], &part(&login.user), &part(&login.password)].concat()).await?;
            if read::<2>(stream, space).await?[1] != 0 {
                return Err(io::Error::other("it refused user and password"));
            }
        }
        ([5, _], _) => return Err(io::Error::other("it wants a login that smcp does not have")),
        _ => return Err(io::Error::other("its answer is not SOCKS 5")),
    }
    let address = match host.parse() {
        Ok(IpAddr::V4(v4)) => [&[1][..], &v4.octets()].concat(),
        Ok(IpAddr::V6(v6)) => [&[4][..], &v6.octets()].concat(),
        // A name has 253 bytes at most.
        Err(_) => [&[3, host.len() as u8], host.as_bytes()].concat(),
    };
    write(stream, &[&[5, 1, 0][..], &address, &port.to_be_bytes()].concat()).await?;
    let [version, reply, _, kind] = read::<4>(stream, space).await?;
    if version != 5 || reply != 0 {
        return Err(io::Error::other(format!("it answered {reply}")));
    }
    // The address that it connected from is of no use here.
    let rest = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(read::<1>(stream, space).await?[0]),
        _ => return Err(io::Error::other("its answer is not SOCKS 5")),
    };
    take(stream, rest + 2, space, |_| ()).await
}

/// All of it.
///
/// # Errors
/// The connection's.
pub async fn write(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

async fn read<const COUNT: usize>(stream: &TcpStream, space: &Space) -> io::Result<[u8; COUNT]> {
    take(stream, COUNT, space, |bytes| bytes.try_into().expect("as many as were asked for")).await
}

/// Exactly so many bytes, and none of what follows.
async fn take<T>(stream: &TcpStream, count: usize, space: &Space, with: impl Fn(&[u8]) -> T) -> io::Result<T> {
    let enough = |bytes: &[u8], last: bool| match bytes.get(..count) {
        Some(bytes) => Some(Ok(with(bytes))),
        None if last => Some(Err(io::Error::from(io::ErrorKind::UnexpectedEof))),
        None => None,
    };
    // One more than needed: a full buffer would look like the last one.
    let taken = space.peek(stream, count + 1, enough).await??;
    space.drop_peeked(stream, count)?;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407 x\r\n\r\n"), Some(407));
        assert_eq!(status(b"HTTP/1.1 204\r\n\r\n"), Some(204));
        for other in [&b"SSH-2.0\r\n\r\n"[..], b"HTTP/2 200\r\n\r\n", b"HTTP/1.1200\r\n\r\n", b"HTTP/1."] {
            assert_eq!(status(other), None);
        }
    }
}
