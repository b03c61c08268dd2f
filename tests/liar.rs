//! A registry of one image that lies in one way: what a hostile or broken registry answers.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::image::{Blob, Built};

/// How it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Not at all: shows that the others fail for their lie.
    None,
    /// The layer has other bytes, as many.
    OtherLayer,
    /// The layer is shorter, and its length says so.
    ShortLayer,
    /// The connection ends in the middle of the layer.
    CutLayer,
    /// The layer never ends.
    EndlessLayer,
    /// The configuration has other bytes, as many.
    OtherConfig,
    /// A digest is answered with another manifest.
    OtherManifest,
    /// No such manifest.
    NoManifest,
}

/// One that serves; it ends with the process.
pub struct Liar {
    /// Its image's name, to be followed by `:TAG` or `@DIGEST`.
    pub name: String,
    /// How often somebody connected.
    pub connections: Arc<AtomicUsize>,
}

/// Starts one.
pub fn serve(image: &Built, lie: Lie) -> Liar {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let image = image.clone();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = connections.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let image = image.clone();
            // A client that goes away in the middle is what some tests are about.
            thread::spawn(move || answer(&stream, &image, lie));
        }
    });
    Liar { name: format!("localhost:{port}/test/probe"), connections }
}

fn answer(stream: &TcpStream, image: &Built, lie: Lie) -> io::Result<()> {
    let mut input = BufReader::new(stream);
    let mut request = String::new();
    input.read_line(&mut request)?;
    let mut header = String::new();
    while input.read_line(&mut header)? > 2 {
        header.clear();
    }
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.strip_prefix("/v2/").unwrap_or_default();
    let Some(what) = path.strip_prefix("test/probe/") else {
        return reply(stream, method, "200 OK", "application/json", "", b"{}");
    };
    if what.starts_with("manifests/") {
        return manifest(stream, method, image, lie);
    }
    match what.strip_prefix("blobs/") {
        Some(digest) if digest == image.layer.digest => layer(stream, method, &image.layer, lie),
        Some(digest) if digest == image.config.digest => {
            let bytes = if lie == Lie::OtherConfig { other(&image.config.bytes) } else { image.config.bytes.clone() };
            reply(stream, method, "200 OK", "application/octet-stream", digest, &bytes)
        }
        _ => reply(stream, method, "404 Not Found", "application/json", "", br#"{"errors":[{"code":"BLOB_UNKNOWN"}]}"#),
    }
}

fn manifest(stream: &TcpStream, method: &str, image: &Built, lie: Lie) -> io::Result<()> {
    let Blob { media_type, digest, bytes } = &image.manifest;
    match lie {
        Lie::NoManifest => {
            let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
            reply(stream, method, "404 Not Found", "application/json", "", body)
        }
        // White space changes the digest and nothing else.
        Lie::OtherManifest => reply(stream, method, "200 OK", media_type, digest, &[bytes.as_slice(), b" "].concat()),
        _ => reply(stream, method, "200 OK", media_type, digest, bytes),
    }
}

fn layer(mut stream: &TcpStream, method: &str, layer: &Blob, lie: Lie) -> io::Result<()> {
    let Blob { digest, bytes, .. } = layer;
    let octets = "application/octet-stream";
    let half = &bytes[..bytes.len() / 2];
    match lie {
        Lie::OtherLayer => reply(stream, method, "200 OK", octets, digest, &other(bytes)),
        Lie::ShortLayer => reply(stream, method, "200 OK", octets, digest, half),
        Lie::CutLayer => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len())?;
            stream.write_all(half)
        }
        Lie::EndlessLayer => {
            write!(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")?;
            loop {
                // Until the client has had enough.
                write!(stream, "{:x}\r\n", bytes.len())?;
                stream.write_all(bytes)?;
                stream.write_all(b"\r\n")?;
            }
        }
        _ => reply(stream, method, "200 OK", octets, digest, bytes),
    }
}

fn other(bytes: &[u8]) -> Vec<u8> {
    let mut other = bytes.to_vec();
    let middle = other.len() / 2;
    other[middle] ^= 1;
    other
}

fn reply(mut stream: &TcpStream, method: &str, status: &str, kind: &str, digest: &str, body: &[u8]) -> io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n",
        body.len()
    )?;
    if !digest.is_empty() {
        write!(stream, "Docker-Content-Digest: {digest}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    if method == "HEAD" { Ok(()) } else { stream.write_all(body) }
}
