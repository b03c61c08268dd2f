//! A blob on its way here: where the connection breaks, it goes on at the byte that was reached.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::http::Request;
use super::patience::Waits;
use super::{DOCUMENT, Patience, Repository, skip};
use crate::{Descriptor, Error, Kind, Result};

/// The least speed of a blob, in bytes a second.
const SLOWEST: u64 = 16 << 10;
/// What has to arrive before a broken connection is forgiven, in bytes.
const PROGRESS: u64 = 1 << 20;

/// The body of a blob, to be hashed by whoever reads it.
pub(crate) struct Download<'a> {
    sources: &'a [Repository],
    descriptor: Descriptor,
    body: Box<dyn Read + Send>,
    /// Bytes that have been given out, and how many there were when the connection last broke.
    at: u64,
    broke_at: u64,
    waits: Waits,
    until: Instant,
}

impl<'a> Download<'a> {
    /// Asks for a blob; the first of the sources that has it.
    pub(super) fn start(sources: &'a [Repository], descriptor: &Descriptor) -> Result<Self> {
        let until = Instant::now() + DOCUMENT + Duration::from_secs(descriptor.size / SLOWEST);
        let (sources, body) = open(sources, descriptor, 0, until)?;
        let waits = Waits::new(Patience::Needed);
        Ok(Self { sources, descriptor: descriptor.clone(), body, at: 0, broke_at: 0, waits, until })
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
        let host = self.sources[0].session.host().to_string();
        let mut broken = Error::Network { host, why: why.to_string() };
        if self.sources.len() > 1 {
            self.sources = &self.sources[1..];
        }
        while self.waits.wait_after(&broken) {
            match open(self.sources, &self.descriptor, self.at, self.until) {
                Ok((sources, body)) => {
                    (self.sources, self.body) = (sources, body);
                    return Ok(());
                }
                Err(error) => broken = error,
            }
        }
        Err(io::Error::other(broken))
    }
}

impl Read for Download<'_> {
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

type Opened<'a> = (&'a [Repository], Box<dyn Read + Send>);

/// The blob from byte `at` on, from the first source that has it; the sources before it are left out from then on.
fn open<'a>(sources: &'a [Repository], descriptor: &Descriptor, at: u64, until: Instant) -> Result<Opened<'a>> {
    let mut left = sources;
    loop {
        let repository = &left[0];
        match repository.session.patience().repeat(|| open_at(repository, descriptor, at, until)) {
            Err(error) if error.kind() == Kind::Resolve && left.len() > 1 => {
                tracing::debug!(%error, "a mirror is passed over");
                left = &left[1..];
            }
            opened => return Ok((left, opened?)),
        }
    }
}

fn open_at(repository: &Repository, descriptor: &Descriptor, at: u64, until: Instant) -> Result<Box<dyn Read + Send>> {
    let digest = descriptor.digest.as_str();
    let mut request = Request::new("GET", repository.url(&format!("blobs/{digest}"))).header("accept", "*/*");
    if at > 0 {
        request = request.header("range", format!("bytes={at}-"));
    }
    let answer = repository.session.run(&request)?;
    let host = repository.session.host();
    let partial = at > 0 && answer.status() == 206;
    if partial {
        let range = answer.header("content-range").unwrap_or_default();
        if !range.starts_with(&format!("bytes {at}-")) {
            let why = format!("asked for what follows byte {at}, registry {host} sends {range:?}");
            return Err(Error::Verification { what: digest.into(), why });
        }
    }
    let answer = if partial { answer } else { repository.found(answer, digest)? };
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
