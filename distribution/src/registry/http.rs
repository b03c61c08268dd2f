//! One request and its answer: timeouts, bounds, and redirects followed by hand, since each hop has to be allowed.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Deserialize;
use ureq::http::{Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, SendBody};

use crate::store::{Blob, Verified};
use crate::url::Url;
use crate::{Error, Result};

const MAX_REDIRECTS: u32 = 5;
/// How much of an error's explanation is read, in bytes, and shown, in characters.
const MAX_EXPLANATION: usize = 16 << 10;
const SHOWN: usize = 200;

/// How long to wait for a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// There is no other way.
    Needed,
    /// The store has an answer that will do.
    Refresh,
}

#[derive(Debug)]
pub(crate) struct Http {
    patience: Patience,
    here: OnceLock<Agent>,
    elsewhere: OnceLock<Agent>,
}

pub(crate) enum Body<'a> {
    Empty,
    Document(&'a [u8], &'a str),
    Blob(&'a Verified<Blob>),
}

impl Http {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, here: OnceLock::new(), elsewhere: OnceLock::new() }
    }

    pub(crate) fn get(&self, url: Url, accept: &str) -> Result<Answer> {
        self.follow("GET", url, accept)
    }

    pub(crate) fn head(&self, url: Url, accept: &str) -> Result<Answer> {
        self.follow("HEAD", url, accept)
    }

    /// Sends one request; a redirect is not followed.
    pub(crate) fn send(&self, method: &'static str, url: &Url, body: Body<'_>) -> Result<Answer> {
        let request = Request::builder().method(method).uri(url.to_string());
        let agent = self.agent(url)?;
        let sent = match body {
            Body::Empty => agent.run(request.body(&[][..]).map_err(|e| unsent(url, e))?),
            Body::Document(bytes, kind) => {
                agent.run(request.header("content-type", kind).body(bytes).map_err(|e| unsent(url, e))?)
            }
            Body::Blob(blob) => {
                let mut reader = blob.reader();
                let request = request
                    .header("content-type", "application/octet-stream")
                    .header("content-length", blob.descriptor().size);
                agent.run(request.body(SendBody::from_reader(&mut reader)).map_err(|e| unsent(url, e))?)
            }
        };
        answer(method, url, sent)
    }

    fn follow(&self, method: &'static str, mut url: Url, accept: &str) -> Result<Answer> {
        for _ in 0..=MAX_REDIRECTS {
            let request = Request::builder().method(method).uri(url.to_string()).header("accept", accept);
            let sent = self.agent(&url)?.run(request.body(()).map_err(|e| unsent(&url, e))?);
            let answer = answer(method, &url, sent)?;
            if !matches!(answer.status(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let location = answer.header("location").unwrap_or_default();
            let refused = |why| unreached(&url, format!("a redirect that is not followed: {why}"));
            url = url.follow(&location).map_err(refused)?;
        }
        Err(unreached(&url, format!("more than {MAX_REDIRECTS} redirects")))
    }

    /// Proxies and certificate authorities matter for other machines alone, and reading the latter takes a while.
    fn agent(&self, url: &Url) -> Result<&Agent> {
        if !url.is_secure() {
            return Ok(self.here.get_or_init(|| self.config().proxy(None).build().into()));
        }
        if self.elsewhere.get().is_none() {
            let _ = self.elsewhere.set(self.config().tls_config(tls(url)?).build().into());
        }
        Ok(self.elsewhere.get().expect("set above"))
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

    /// A header as text; none where it is missing or no text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.response.headers().get(name)?.to_str().ok().map(Into::into)
    }

    /// Passes an answer with one of these statuses; any other becomes an error with what the registry says about it.
    pub(crate) fn expect(self, statuses: &[u16]) -> Result<Self> {
        let host = self.url.authority().to_string();
        match self.status() {
            status if statuses.contains(&status) => Ok(self),
            401 => Err(Error::Credentials(host)),
            status => {
                let (method, path) = (self.method, self.url.path().to_string());
                Err(Error::Status { host, method, path, status, message: self.explanation() })
            }
        }
    }

    /// The whole body, of at most `cap` bytes, within `time`.
    pub(crate) fn small(self, cap: usize, time: Duration) -> Result<Vec<u8>> {
        let url = self.url.clone();
        let mut bytes = Vec::new();
        let read = self.body(time).take(cap as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| unreached(&url, error.to_string()))?;
        if bytes.len() > cap {
            let why = format!("longer than the {cap} bytes that are read");
            return Err(Error::Verification { what: url.to_string(), why });
        }
        Ok(bytes)
    }

    /// The body, which fails when it is not through within `time`.
    pub(crate) fn body(self, time: Duration) -> impl Read + use<> {
        Timed { reader: self.response.into_body().into_reader(), until: Instant::now() + time }
    }

    /// The first error of the distribution specification's list, made printable.
    fn explanation(self) -> String {
        #[derive(Deserialize)]
        struct Errors {
            errors: Vec<Entry>,
        }
        #[derive(Deserialize)]
        struct Entry {
            code: String,
            #[serde(default)]
            message: String,
        }
        let bytes = self.small(MAX_EXPLANATION, Duration::from_secs(10)).unwrap_or_default();
        let first = serde_json::from_slice::<Errors>(&bytes).ok().and_then(|list| list.errors.into_iter().next());
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

/// The machine's own certificate authorities, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
fn tls(url: &Url) -> Result<TlsConfig> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map_or("none are installed".into(), ToString::to_string);
        return Err(unreached(url, format!("no certificate authorities to check it by: {why}")));
    }
    let roots: Vec<_> = found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

fn answer(method: &'static str, url: &Url, sent: Result<Response<ureq::Body>, ureq::Error>) -> Result<Answer> {
    let response = sent.map_err(|error| unreached(url, error.to_string()))?;
    tracing::debug!(method, host = url.authority(), path = url.path(), status = response.status().as_u16(), "request");
    Ok(Answer { method, url: url.clone(), response })
}

fn unsent(url: &Url, error: ureq::http::Error) -> Error {
    unreached(url, error.to_string())
}

fn unreached(url: &Url, why: String) -> Error {
    Error::Network { host: url.authority().into(), why }
}
