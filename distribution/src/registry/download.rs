//! A blob on its way here: where the connection breaks, it goes on at the byte that was reached.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::http::{Answer, Request};
use super::patience::Waits;
use super::{DOCUMENT, Patience, Repository, Session, skip};
use crate::{Descriptor, Error, Kind, Result};

/// The least speed of a blob, in bytes a second.
const SLOWEST: u64 = 16 << 10;
/// What has to arrive before a broken connection is forgiven, in bytes.
const PROGRESS: u64 = 1 << 20;

/// Where a blob comes from.
pub(crate) trait Origin {
    /// Host and port.
    fn host(&self) -> &str;

    /// The blob from byte `at` on.
    fn open(&mut self, descriptor: &Descriptor, at: u64, until: Instant) -> Result<Box<dyn Read + Send>>;

    /// It broke off; whether there is another place, that is asked next.
    fn broke(&mut self) {}
}

/// The body of a blob, to be hashed by whoever reads it.
pub(crate) struct Download<O> {
    origin: O,
    descriptor: Descriptor,
    body: Box<dyn Read + Send>,
    /// Bytes that have been given out, and how many there were when the connection last broke.
    at: u64,
    broke_at: u64,
    waits: Waits,
    until: Instant,
}

impl<O: Origin> Download<O> {
    /// Asks for a blob.
    pub(crate) fn start(mut origin: O, descriptor: &Descriptor) -> Result<Self> {
        let until = Instant::now() + DOCUMENT + Duration::from_secs(descriptor.size / SLOWEST);
        let body = origin.open(descriptor, 0, until)?;
        let waits = Waits::new(Patience::Needed);
        Ok(Self { origin, descriptor: descriptor.clone(), body, at: 0, broke_at: 0, waits, until })
    }

    /// Opens the blob again at the byte that was reached, or says why that is no use.
    fn resume(&mut self, why: io::Error) -> io::Result<()> {
        if Instant::now() >= self.until {
            return Err(why);
        }
        if self.at - self.broke_at >= PROGRESS {
            self.waits = Waits::new(Patience::Needed);
        }
        self.broke_at = self.at;
        let mut broken = Error::Network { host: self.origin.host().into(), why: why.to_string() };
        self.origin.broke();
        while self.waits.wait_after(&broken) {
            match self.origin.open(&self.descriptor, self.at, self.until) {
                Ok(body) => {
                    self.body = body;
                    return Ok(());
                }
                Err(error) => broken = error,
            }
        }
        Err(io::Error::other(broken))
    }
}

impl<O: Origin> Read for Download<O> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.body.read(buffer) {
                Ok(count) => {
                    self.at += count as u64;
                    return Ok(count);
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => return Err(why),
                Err(why) => self.resume(why)?,
            }
        }
    }
}

/// A repository and its mirrors: the first that has it, and those before it are left out from then on.
pub(crate) struct First<'a>(pub(super) &'a [Repository]);

impl Origin for First<'_> {
    fn host(&self) -> &str {
        self.0[0].session.host()
    }

    fn open(&mut self, descriptor: &Descriptor, at: u64, until: Instant) -> Result<Box<dyn Read + Send>> {
        loop {
            let repository = &self.0[0];
            let request = || {
                let url = repository.url(&format!("blobs/{}", descriptor.digest));
                Request::new("GET", url).header("accept", "*/*")
            };
            let found = |answer| repository.found(answer, descriptor.digest.as_str());
            let ask = || from_byte(&repository.session, request(), found, descriptor, at, until);
            match repository.session.patience().repeat(ask) {
                Err(error) if error.kind() == Kind::Resolve && self.0.len() > 1 => {
                    tracing::debug!(%error, "a mirror is passed over");
                    self.broke();
                }
                opened => return opened,
            }
        }
    }

    fn broke(&mut self) {
        if self.0.len() > 1 {
            self.0 = &self.0[1..];
        }
    }
}

/// What answers a request, from byte `at` on; `found` judges an answer that has all of it.
pub(crate) fn from_byte(
    session: &Session,
    mut request: Request<'_>,
    found: impl FnOnce(Answer) -> Result<Answer>,
    descriptor: &Descriptor,
    at: u64,
    until: Instant,
) -> Result<Box<dyn Read + Send>> {
    let digest = descriptor.digest.as_str();
    if at > 0 {
        request = request.header("range", format!("bytes={at}-"));
    }
    let answer = session.run(&request)?;
    let host = session.host();
    let partial = at > 0 && answer.status() == 206;
    if partial {
        let range = answer.header("content-range").unwrap_or_default();
        if !range.starts_with(&format!("bytes {at}-")) {
            let why = format!("asked for what follows byte {at}, registry {host} sends {range:?}");
            return Err(Error::Verification { what: digest.into(), why });
        }
    }
    let answer = if partial { answer } else { found(answer)? };
    let mut body = answer.body(until.saturating_duration_since(Instant::now()));
    // A registry that knows no ranges begins anew.
    if !partial && skip(&mut body, at).map_err(|why| Error::Network { host: host.into(), why: why.to_string() })? < at {
        return Err(Error::Verification {
            what: digest.into(),
            why: format!("registry {host} sends less than before"),
        });
    }
    Ok(Box::new(body))
}
