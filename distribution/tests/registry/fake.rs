//! A registry of a few lines whose every answer a test decides; also over TLS, and a proxy before it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

impl Call {
    /// A header's value; its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&String| line.split(':').next().is_some_and(|known| known.eq_ignore_ascii_case(name));
        self.headers.iter().find(named).map(|line| line[name.len() + 1..].trim())
    }

    /// The value of a parameter in the query, as it was sent.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let query = self.path.split_once('?')?.1;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }
}

/// What is sent back.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub ending: Ending,
}

/// How the body ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// As `content-length` says.
    Right,
    /// Before that: the connection is closed after so many bytes.
    CutAfter(usize),
    /// Not by this side: after so many bytes it waits until the other one has gone.
    StallAfter(usize),
    /// Never; there is no `content-length`, and the body is repeated until the other side has had enough.
    Never,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), ending: Ending::Right }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
        self
    }

    pub fn ending(self, ending: Ending) -> Self {
        Self { ending, ..self }
    }
}

type Handler = dyn Fn(&Call) -> Reply + Send + Sync;

/// A running registry; its threads end with the test's process.
pub struct Fake {
    pub host: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Fake {
    pub fn serve(handler: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        Self::listen(handler, |stream, log, handler| answer(stream, log, handler))
    }

    /// The same over TLS; a handshake that fails ends the connection.
    pub fn serve_tls(identity: &Identity, handler: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let config = identity.server();
        Self::listen(handler, move |stream, log, handler| {
            let session = rustls::ServerConnection::new(config.clone()).ok()?;
            answer(rustls::StreamOwned::new(session, stream), log, handler)
        })
    }

    fn listen(
        handler: impl Fn(&Call) -> Reply + Send + Sync + 'static,
        talk: impl Fn(TcpStream, &Mutex<Vec<Call>>, &Handler) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (log, handler, talk): (_, Arc<Handler>, _) = (calls.clone(), Arc::new(handler), Arc::new(talk));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, handler, talk) = (log.clone(), handler.clone(), talk.clone());
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
                    talk(stream, &log, &*handler)
                });
            }
        });
        Self { host, calls }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// How many requests of that method had `part` in their path.
    pub fn count(&self, method: &str, part: &str) -> usize {
        self.calls().iter().filter(|call| call.method == method && call.path.contains(part)).count()
    }
}

fn answer(stream: impl Read + Write, log: &Mutex<Vec<Call>>, handler: &Handler) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let call = read_call(&mut stream)?;
    log.lock().unwrap().push(call.clone());
    let reply = handler(&call);
    let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if reply.ending != Ending::Never {
        head.push_str(&format!("content-length: {}\r\n", reply.body.len()));
    }
    let stream = stream.get_mut();
    stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
    if call.method != "HEAD" {
        match reply.ending {
            Ending::Right => stream.write_all(&reply.body).ok()?,
            Ending::CutAfter(count) => stream.write_all(&reply.body[..count.min(reply.body.len())]).ok()?,
            Ending::StallAfter(count) => {
                stream.write_all(&reply.body[..count.min(reply.body.len())]).ok()?;
                stream.flush().ok()?;
                // The end of the connection, or of the patience with it.
                let _ = stream.read(&mut [0]);
            }
            Ending::Never => loop {
                stream.write_all(&reply.body).ok()?;
            },
        }
    }
    stream.flush().ok()
}

fn read_call(stream: &mut impl BufRead) -> Option<Call> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    let headers = lines.split_off(1);
    let mut words = lines[0].split(' ');
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let mut call = Call { method, path, headers, body: Vec::new() };
    let length = call.header("content-length").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    stream.take(length).read_to_end(&mut call.body).ok()?;
    Some(call)
}

/// A private certificate authority and the certificate of a server, for `localhost`, 127.0.0.1, two names of `.test` and npm's registry.
pub struct Identity {
    dir: PathBuf,
}

impl Identity {
    /// Made by openssl in `dir`; none where the machine has no openssl.
    pub fn new(dir: &Path) -> Option<Self> {
        let names = "subjectAltName=DNS:localhost,DNS:registry.test,DNS:other.test,DNS:registry.npmjs.org,IP:127.0.0.1";
        let steps = [
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=private -addext basicConstraints=critical,CA:TRUE",
            "req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=registry",
            "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem -days 2 -extfile names",
        ];
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("names"), names).unwrap();
        for step in steps {
            let mut openssl = Command::new("openssl");
            let made =
                openssl.args(step.split(' ')).current_dir(dir).stderr(Stdio::null()).stdout(Stdio::null()).status();
            assert!(made.ok()?.success(), "openssl {step}");
        }
        Some(Self { dir: dir.into() })
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    pub fn certificate(&self) -> PathBuf {
        self.dir.join("cert.pem")
    }

    pub fn key(&self) -> PathBuf {
        self.dir.join("key.pem")
    }

    fn server(&self) -> Arc<rustls::ServerConfig> {
        let chain = CertificateDer::from_pem_file(self.certificate()).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.key()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Arc::new(config.with_no_client_auth().with_single_cert(vec![chain], key).unwrap())
    }
}

/// A proxy that knows `CONNECT`, wants to be shown credentials, and leads each name to a port of this machine.
pub struct FakeProxy {
    pub host: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl FakeProxy {
    /// `routes`: `NAME:PORT` and the address here that stands for it. `authorization` is the header that it wants.
    pub fn serve(routes: &[(&str, &str)], authorization: &str) -> Self {
        let routes: Vec<_> = routes.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
        let authorization = authorization.to_string();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let log = calls.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, routes, authorization) = (log.clone(), routes.clone(), authorization.clone());
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream.try_clone().ok()?);
                    let call = read_call(&mut reader)?;
                    log.lock().unwrap().push(call.clone());
                    let allowed = call.header("proxy-authorization") == Some(&authorization);
                    let route = routes.iter().find(|(from, _)| *from == call.path).filter(|_| call.method == "CONNECT");
                    let mut stream = stream;
                    let status = if !allowed {
                        "407 x"
                    } else if route.is_none() {
                        "502 x"
                    } else {
                        "200 x"
                    };
                    write!(stream, "HTTP/1.1 {status}\r\n\r\n").ok()?;
                    let target = TcpStream::connect(&route.filter(|_| allowed)?.1).ok()?;
                    let (mut to, mut from) = (target.try_clone().ok()?, target);
                    let mut back = stream.try_clone().ok()?;
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut reader, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    });
                    let _ = io::copy(&mut from, &mut back);
                    back.shutdown(std::net::Shutdown::Both).ok()
                });
            }
        });
        Self { host, calls }
    }

    /// Where connections were asked for.
    pub fn targets(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|call| call.path.clone()).collect()
    }
}
