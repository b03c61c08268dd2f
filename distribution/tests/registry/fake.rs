//! A registry of a few lines whose every answer a test decides.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    pub path: String,
    pub headers: Vec<String>,
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let calls = Arc::new(Mutex::new(Vec::new()));
        let (log, handler): (_, Arc<Handler>) = (calls.clone(), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, handler) = (log.clone(), handler.clone());
                std::thread::spawn(move || answer(stream, &log, &*handler));
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

fn answer(mut stream: TcpStream, log: &Mutex<Vec<Call>>, handler: &Handler) -> Option<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
    let headers = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    let call = Call { method, path, headers };
    log.lock().unwrap().push(call.clone());
    let reply = handler(&call);
    let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if reply.ending != Ending::Never {
        head.push_str(&format!("content-length: {}\r\n", reply.body.len()));
    }
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(b"\r\n").ok()?;
    if call.method == "HEAD" {
        return Some(());
    }
    match reply.ending {
        Ending::Right => stream.write_all(&reply.body).ok(),
        Ending::CutAfter(count) => stream.write_all(&reply.body[..count]).ok(),
        Ending::Never => loop {
            stream.write_all(&reply.body).ok()?;
        },
    }
}
