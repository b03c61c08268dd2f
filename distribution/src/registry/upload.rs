//! Blobs on their way to a registry: taken over from another repository there, in one piece, or in chunks, so that a
//! broken connection costs no more than one.

use super::http::{Answer, Body, Request};
use super::patience::Waits;
use super::{Patience, Repository};
use crate::store::{Blob, Verified};
use crate::url::Url;
use crate::{Error, Result};

/// What is larger goes in chunks of this size, in bytes, unless the registry asks for larger ones.
const CHUNK: u64 = 16 << 20;
/// The largest chunk that a registry can ask for.
const LARGEST_CHUNK: u64 = 1 << 30;

/// How a blob came there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The registry had it in another repository.
    Mounted,
    /// It was sent.
    Uploaded,
}

impl Repository {
    /// Sends a blob, unless the registry takes it over from the repository `from`.
    pub(crate) fn upload(&self, blob: &Verified<Blob>, from: Option<&str>) -> Result<Sent> {
        let digest = &blob.descriptor().digest;
        self.session.patience().repeat(|| {
            let mut start = self.url("blobs/uploads/");
            if let Some(from) = from {
                start = start.with("mount", digest.as_str()).with("from", from);
            }
            let answer = self.session.run(&Request::new("POST", start))?.expect(&[201, 202])?;
            if answer.status() == 201 {
                self.agrees(&answer, digest)?;
                return Ok(Sent::Mounted);
            }
            let least = answer.header("oci-chunk-min-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let chunk = CHUNK.max(least).min(LARGEST_CHUNK);
            let location = self.location(&answer)?;
            match blob.descriptor().size {
                size if size <= chunk => self.put(&location, Body::Blob(blob, 0, size), blob)?,
                _ => self.put(&self.send_chunks(location, blob, chunk)?, Body::Empty, blob)?,
            }
            Ok(Sent::Uploaded)
        })
    }

    fn put(&self, location: &Url, body: Body<'_>, blob: &Verified<Blob>) -> Result<()> {
        let digest = &blob.descriptor().digest;
        let request = Request::new("PUT", location.clone().with("digest", digest.as_str())).body(body);
        self.agrees(&self.session.run(&request)?.expect(&[201, 202, 204])?, digest)
    }

    /// Sends all of a blob and gives the place where the upload is finished.
    fn send_chunks(&self, mut location: Url, blob: &Verified<Blob>, chunk: u64) -> Result<Url> {
        let size = blob.descriptor().size;
        let mut waits = Waits::new(Patience::Needed);
        let mut at = 0;
        while at < size {
            let length = chunk.min(size - at);
            let request = Request::new("PATCH", location.clone())
                .header("content-range", format!("{at}-{}", at + length - 1))
                .body(Body::Blob(blob, at, length));
            let sent = self.session.run(&request).and_then(|answer| answer.expect(&[202]));
            let answer = match sent {
                Ok(answer) => answer,
                Err(error) if waits.wait_after(&error) => {
                    self.session.run(&Request::new("GET", location.clone()))?.expect(&[204])?
                }
                Err(error) => return Err(error),
            };
            let reached = reached(&answer).unwrap_or(at + length);
            if reached > at + length {
                let why = format!(
                    "registry {} says that it has {reached} bytes of what it was not sent",
                    self.session.host()
                );
                return Err(Error::Verification { what: blob.descriptor().digest.to_string(), why });
            }
            location = self.location(&answer).unwrap_or(location);
            if reached > at {
                waits = Waits::new(Patience::Needed);
            } else if !waits.wait_after(&self.stuck()) {
                return Err(self.stuck());
            }
            at = reached;
        }
        Ok(location)
    }

    fn stuck(&self) -> Error {
        Error::Network { host: self.session.host().into(), why: "an upload that does not get on".into() }
    }

    fn location(&self, answer: &Answer) -> Result<Url> {
        self.elsewhere(answer.url(), &answer.header("location").unwrap_or_default())
    }
}

/// Bytes that the registry has, from `Range: 0-N`. Some say `0-0` for none as for one.
fn reached(answer: &Answer) -> Option<u64> {
    let range = answer.header("range")?;
    let last: u64 = range.trim_start_matches("bytes=").strip_prefix("0-")?.parse().ok()?;
    Some(if last == 0 { 0 } else { last + 1 })
}
