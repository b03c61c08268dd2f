//! Asking a registry of packages: one GET, with what is shown there and to nobody else.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::registry::{Http, Patience, Request};
use crate::url::Url;
use crate::{Access, Error, Result, Secret};

/// The waits before a registry that has answered before is asked once more: many requests at once are more than some resolvers take.
const WAITS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// How long an answer may take to its end.
const TIME: Duration = Duration::from_secs(900);

/// A client of registries of packages. Threads may share it.
#[derive(Debug)]
pub struct Asking {
    http: Http,
    /// Somebody has answered: there is a way, and what fails now may not the next time.
    has_answered: AtomicBool,
    /// No redirect leads to another host.
    stays: bool,
}

impl Asking {
    /// By the ways of these settings: proxies, authorities, and where plain http may be spoken.
    pub fn new(access: &Arc<Access>) -> Asking {
        Asking { http: Http::new(access.clone(), Patience::Needed), has_answered: AtomicBool::new(false), stays: false }
    }

    /// The same, for answers that nothing else vouches for: a redirect to another host is an error.
    #[must_use]
    pub fn staying(self) -> Asking {
        Asking { stays: true, ..self }
    }

    /// The body and its media type, of at most `cap` bytes; none where there is nothing. `login` goes to that host alone, and not to where
    /// it redirects.
    ///
    /// # Errors
    /// Where it cannot be had, or is longer.
    pub fn get(
        &self,
        url: &str,
        accept: &str,
        login: Option<&Secret>,
        cap: usize,
    ) -> Result<Option<(Vec<u8>, String)>> {
        let wrong = |why: &str| Error::Unreachable { host: without_query(url).into(), why: why.into() };
        let target = Url::parse(url, &self.http.access).map_err(wrong)?;
        for wait in WAITS {
            match self.ask(&target, url, accept, login, cap) {
                Err(Error::Unreachable { .. }) if self.has_answered.load(Ordering::Relaxed) => thread::sleep(wait),
                asked => return asked,
            }
        }
        self.ask(&target, url, accept, login, cap)
    }

    fn ask(
        &self,
        target: &Url,
        url: &str,
        accept: &str,
        login: Option<&Secret>,
        cap: usize,
    ) -> Result<Option<(Vec<u8>, String)>> {
        Patience::Needed.repeat(|| {
            let mut request = Request::new("GET", target.clone()).header("accept", accept);
            request.stays = self.stays;
            let answer = self.http.run(&request, target.authority(), login)?;
            self.has_answered.store(true, Ordering::Relaxed);
            if matches!(answer.status(), 404 | 410) {
                return Ok(None);
            }
            let answer = answer.expect(&[200])?;
            let kind = answer.header("content-type").unwrap_or_default();
            let (host, mut bytes) = (answer.url().authority().to_owned(), Vec::new());
            let read = answer.body(TIME).take(cap as u64 + 1).read_to_end(&mut bytes);
            read.map_err(|why| Error::Network { host, why: why.to_string() })?;
            match bytes.len() > cap {
                true => Err(Error::Verification {
                    what: without_query(url).into(),
                    why: format!("longer than the {cap} bytes that are read"),
                }),
                false => Ok(Some((bytes, kind))),
            }
        })
    }
}

/// A query may hold a signature.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}
