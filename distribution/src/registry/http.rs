//! One request and its answer: timeouts, bounds, and redirects followed by hand, since each hop has to be allowed.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::http::{HeaderValue, Response};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Proxy, SendBody};

use super::patience::{Patience, retry_after};
use crate::auth::Challenge;
use crate::store::{Blob, Verified};
use crate::url::Url;
use crate::{Access, Error, Result, Secret};

const MAX_REDIRECTS: u32 = 5;
/// Connections to one host that are kept for the next requests: as many as are asked at once.
const MOST_IDLE: usize = 8;
/// How much of an error's explanation is read, in bytes, and shown, in characters.
const MAX_EXPLANATION: usize = 16 << 10;
const SHOWN: usize = 200;

/// Connections to registries and to where they point.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) access: Arc<Access>,
    pub(crate) patience: Patience,
    /// One for each host and port: certificate authorities and proxies differ.
    agents: Mutex<BTreeMap<(bool, String), Agent>>,
}

/// What is asked.
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body<'a>,
    /// A redirect to another host is not followed.
    pub(crate) stays: bool,
}

#[derive(Clone, Copy)]
pub(crate) enum Body<'a> {
    Empty,
    /// Bytes and their media type.
    Document(&'a [u8], &'a str),
    /// A part of a blob: from, length.
    Blob(&'a Verified<Blob>, u64, u64),
}

impl<'a> Request<'a> {
    pub(crate) fn new(method: &'static str, url: Url) -> Self {
        Self { method, url, headers: Vec::new(), body: Body::Empty, stays: false }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(self, body: Body<'a>) -> Self {
        Self { body, ..self }
    }
}

impl Http {
    pub(crate) fn new(access: Arc<Access>, patience: Patience) -> Self {
        Self { access, patience, agents: Mutex::default() }
    }

    /// Sends a request and follows redirects of GET and HEAD. `authorization` goes to `own` alone.
    pub(crate) fn run(&self, request: &Request<'_>, own: &str, authorization: Option<&Secret>) -> Result<Answer> {
        if self.access.door.stops() {
            return Err(unusable(&request.url, "it is not asked yet".into()));
        }
        let mut url = request.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let authorization = authorization.filter(|_| url.authority() == own);
            let answer = self.send(request, &url, authorization)?;
            let follows = matches!(request.method, "GET" | "HEAD");
            if !follows || !matches!(answer.status(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let location = answer.header("location").unwrap_or_default();
            let refused = |why| unusable(&url, format!("a redirect that is not followed: {why}"));
            let next = url.follow(&location, &self.access).map_err(refused)?;
            if request.stays && next.authority() != own {
                return Err(refused("it leads to another host"));
            }
            url = next;
        }
        Err(unusable(&url, format!("more than {MAX_REDIRECTS} redirects")))
    }

    fn send(&self, request: &Request<'_>, url: &Url, authorization: Option<&Secret>) -> Result<Answer> {
        let mut head = ureq::http::Request::builder().method(request.method).uri(url.to_string());
        for (name, value) in &request.headers {
            head = head.header(*name, value);
        }
        if let Some(secret) = authorization {
            let value = HeaderValue::from_str(secret.expose());
            let mut value =
                value.map_err(|_| unusable(url, "the credentials for it cannot be sent in a header".into()))?;
            value.set_sensitive(true);
            head = head.header("authorization", value);
        }
        let unsent = |error: ureq::http::Error| unusable(url, error.to_string());
        let agent = self.agent(url)?;
        let sent = match request.body {
            Body::Empty if matches!(request.method, "GET" | "HEAD") => agent.run(head.body(()).map_err(unsent)?),
            Body::Empty => agent.run(head.body(&[][..]).map_err(unsent)?),
            Body::Document(bytes, kind) => agent.run(head.header("content-type", kind).body(bytes).map_err(unsent)?),
            Body::Blob(blob, from, length) => {
                let mut reader = blob.reader_at(from).take(length);
                let head = head.header("content-type", "application/octet-stream").header("content-length", length);
                agent.run(head.body(SendBody::from_reader(&mut reader)).map_err(unsent)?)
            }
        };
        let response = sent.map_err(|error| failed(url, error, &self.by(url)))?;
        let (host, path, status) = (url.authority(), url.path(), response.status().as_u16());
        tracing::debug!(method = request.method, host, path, status, "request");
        Ok(Answer { method: request.method, url: url.clone(), response })
    }

    /// Certificate authorities are read when the first host is spoken to by https, which takes a while.
    fn agent(&self, url: &Url) -> Result<Agent> {
        let key = (url.is_secure(), url.authority().to_string());
        let mut agents = self.agents.lock().expect("no panic while it is held");
        if let Some(known) = agents.get(&key) {
            return Ok(known.clone());
        }
        let mut config = self.config().proxy(self.proxy(url)?);
        if url.is_secure() {
            let of_host = self.access.host(url.authority()).and_then(|host| host.ca_file.as_deref());
            let own = self.access.ca_file.as_deref().into_iter().chain(of_host);
            config = config.tls_config(tls(url, own)?);
        }
        let agent: Agent = config.build().into();
        agents.insert(key, agent.clone());
        Ok(agent)
    }

    fn proxy(&self, url: &Url) -> Result<Option<Proxy>> {
        let Some(proxy) = self.access.proxies.of(url.is_secure(), url.authority()) else { return Ok(None) };
        // It may hold a password, so it is not shown.
        let wrong =
            |_| unusable(url, "the proxy for it is no url of the form http://[USER:PASSWORD@]HOST[:PORT]".into());
        Proxy::new(proxy.expose()).map(Some).map_err(wrong)
    }

    /// By whom it was asked, where that is another: it may be the one who does not answer.
    fn by(&self, url: &Url) -> String {
        match self.proxy(url) {
            Ok(Some(proxy)) => format!(" (by the proxy {}:{})", proxy.host(), proxy.port()),
            Ok(None) | Err(_) => String::new(),
        }
    }

    fn config(&self) -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
        let seconds = |needed, refresh| match self.patience {
            Patience::Needed => Some(Duration::from_secs(needed)),
            Patience::Refresh => Some(Duration::from_secs(refresh)),
        };
        Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("smcp/", env!("CARGO_PKG_VERSION")))
            .accept_encoding("identity")
            .max_idle_connections_per_host(MOST_IDLE)
            .max_response_header_size(32 << 10)
            .timeout_resolve(seconds(10, 3))
            .timeout_connect(seconds(20, 3))
            .timeout_send_request(seconds(30, 5))
            .timeout_recv_response(seconds(60, 5))
            .timeout_per_read(seconds(60, 10))
            .timeout_per_write(seconds(60, 10))
    }
}

/// What a registry said, with the body still to be read.
pub(crate) struct Answer {
    method: &'static str,
    url: Url,
    response: Response<ureq::Body>,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Where it is from, after redirects.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// A header as text; none where it is missing or no text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.response.headers().get(name)?.to_str().ok().map(Into::into)
    }

    /// What it asks to be shown.
    pub(crate) fn challenges(&self) -> Vec<Challenge> {
        let headers = self.response.headers().get_all("www-authenticate");
        headers.iter().filter_map(|value| value.to_str().ok()).flat_map(Challenge::parse).collect()
    }

    /// Passes an answer with one of these statuses; any other becomes an error with what the registry says about it.
    pub(crate) fn expect(self, statuses: &[u16]) -> Result<Self> {
        let host = self.url.authority().to_string();
        match self.status() {
            status if statuses.contains(&status) => Ok(self),
            401 => Err(Error::Unauthorized { host, why: "it asks for credentials that it was not shown".into() }),
            status => {
                let (method, path) = (self.method, self.url.path().to_string());
                let retry_after = self.header("retry-after").and_then(|text| retry_after(&text));
                Err(Error::Status { host, method, path, status, message: self.explanation().into(), retry_after })
            }
        }
    }

    /// The whole body, of at most `cap` bytes, within `time`.
    pub(crate) fn small(self, cap: usize, time: Duration) -> Result<Vec<u8>> {
        let url = self.url.clone();
        let mut bytes = Vec::new();
        let read = self.body(time).take(cap as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| broken(&url, error.to_string()))?;
        if bytes.len() > cap {
            let why = format!("longer than the {cap} bytes that are read");
            return Err(Error::Verification { what: url.to_string(), why });
        }
        Ok(bytes)
    }

    /// The body, which fails when it is not through within `time`.
    pub(crate) fn body(self, time: Duration) -> impl Read + Send + use<> {
        Timed { reader: self.response.into_body().into_reader(), until: Instant::now() + time }
    }

    /// What the registry says about an error, made printable: the first of the distribution specification's list, or the
    /// hub's one.
    fn explanation(self) -> String {
        #[derive(Deserialize)]
        struct Errors {
            #[serde(default)]
            errors: Vec<Entry>,
            error: Option<Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            code: String,
            #[serde(default)]
            message: String,
        }
        let bytes = self.small(MAX_EXPLANATION, Duration::from_secs(10)).unwrap_or_default();
        let list = serde_json::from_slice::<Errors>(&bytes).ok();
        let first = list.and_then(|list| list.errors.into_iter().next().or(list.error));
        let text = first.map_or(String::new(), |Entry { code, message }| format!(": {code} {message}"));
        text.trim_end().chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(SHOWN).collect()
    }
}

/// A reader that gives up after a while, however steadily the bytes drip.
struct Timed<R> {
    reader: R,
    until: Instant,
}

impl<R: Read> Read for Timed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.until {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "too slow"));
        }
        self.reader.read(buffer)
    }
}

/// The machine's own certificate authorities, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name, and those that are
/// configured for the host.
fn tls<'a>(url: &Url, own: impl Iterator<Item = &'a Path>) -> Result<TlsConfig> {
    static OF_THE_MACHINE: OnceLock<(Vec<Certificate<'static>>, Option<String>)> = OnceLock::new();
    let (of_the_machine, error) = OF_THE_MACHINE.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        let roots = found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        (roots, found.errors.first().map(ToString::to_string))
    });
    let mut roots = of_the_machine.clone();
    for path in own {
        roots.extend(ca_file(path)?);
    }
    if roots.is_empty() {
        let why = error.clone().unwrap_or("none are installed".into());
        return Err(unusable(url, format!("no certificate authorities to check it by: {why}")));
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

fn ca_file(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let pem = std::fs::read(path).map_err(Error::store("read", path))?;
    let found: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match found.is_empty() {
        true => Err(Error::Unusable { path: path.into(), why: "no certificate in PEM is in it".into() }),
        false => Ok(found),
    }
}

/// What became of a request that got no answer: whether it is worth another try.
fn failed(url: &Url, error: ureq::Error, by: &str) -> Error {
    use io::ErrorKind::{
        AddrNotAvailable, ConnectionRefused, HostUnreachable, InvalidData, NetworkDown, NetworkUnreachable,
        PermissionDenied,
    };
    let lasting = match &error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::ConnectProxyFailed(_) => true,
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => true,
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => true,
        ureq::Error::Io(io) => matches!(
            io.kind(),
            AddrNotAvailable
                | ConnectionRefused
                | HostUnreachable
                | InvalidData
                | NetworkDown
                | NetworkUnreachable
                | PermissionDenied
        ),
        _ => false,
    };
    let why = format!("{error}{by}");
    if lasting { unusable(url, why) } else { broken(url, why) }
}

fn unusable(url: &Url, why: String) -> Error {
    Error::Unreachable { host: url.authority().into(), why }
}

fn broken(url: &Url, why: String) -> Error {
    Error::Network { host: url.authority().into(), why }
}
