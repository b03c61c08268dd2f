//! From the host to what a name or an address stands for: its name service, the guard, the proxy, RFC 8305.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

use super::guard::is_forbidden;
use super::own::Own;
use super::proxy::Proxies;
use super::rules::{LOOPBACK, Name, Rules};
use super::tally::Why;
use super::{copy::Space, through};

/// How long the host's name service may take.
const RESOLVE: Duration = Duration::from_secs(10);
/// How long all attempts to connect may take together.
const CONNECT: Duration = Duration::from_secs(20);
/// How long one attempt is alone, RFC 8305 5.
const HEAD_START: Duration = Duration::from_millis(250);
/// How long an answer of the host's name service is used again. Its own caches keep it longer.
const RECENT: Duration = Duration::from_secs(1);
/// Names with such an answer.
const MOST_RECENT: usize = 256;
/// Addresses of one name that are tried.
const MOST_ADDRESSES: usize = 32;

/// Where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A name's port.
    Name(Name, u16),
    /// An address.
    Address(SocketAddr),
    /// A port of the host's loopback.
    Host(u16),
}

impl Target {
    /// The name or address, and the port.
    pub fn parts(&self) -> (String, u16) {
        match self {
            Target::Name(name, port) => (name.as_str().to_owned(), *port),
            Target::Address(address) => (address.ip().to_canonical().to_string(), address.port()),
            Target::Host(port) => ("localhost".to_owned(), *port),
        }
    }
}

/// Why there is no connection, and the address that is the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed(pub Why, pub Option<IpAddr>);

impl From<Why> for Failed {
    fn from(why: Why) -> Failed {
        Failed(why, None)
    }
}

/// Who says what a name stands for.
#[derive(Debug, Clone)]
pub enum Resolver {
    /// The host, getaddrinfo(3).
    Host,
    /// A test.
    #[cfg(test)]
    Table(HashMap<String, Vec<IpAddr>>),
    /// Nobody, for a minute.
    #[cfg(test)]
    Silent,
}

impl Resolver {
    async fn addresses(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self {
            Resolver::Host => Ok(timeout(RESOLVE, tokio::net::lookup_host((name, port))).await??.collect()),
            #[cfg(test)]
            Resolver::Silent => {
                timeout(RESOLVE, tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_secs(60)))).await??;
                Err(io::ErrorKind::NotFound.into())
            }
            #[cfg(test)]
            Resolver::Table(table) => {
                let own = name.parse().map(|address| vec![address]).ok();
                let all = own.as_ref().or(table.get(name)).ok_or(io::ErrorKind::NotFound)?;
                Ok(all.iter().map(|address| SocketAddr::new(*address, port)).collect())
            }
        }
    }
}

/// What names stood for a moment ago, so that a hundred connections at once ask the host's name service a few times.
#[derive(Debug, Default)]
pub struct Recent(RefCell<HashMap<Name, Said>>);

/// When, and what.
type Said = (Instant, Rc<[IpAddr]>);

impl Recent {
    fn get(&self, name: &Name) -> Option<Rc<[IpAddr]>> {
        let known = self.0.borrow();
        let (when, all) = known.get(name)?;
        (when.elapsed() < RECENT).then(|| Rc::clone(all))
    }

    fn put(&self, name: &Name, all: Rc<[IpAddr]>) -> Rc<[IpAddr]> {
        let mut known = self.0.borrow_mut();
        if known.len() >= MOST_RECENT {
            known.retain(|_, (when, _)| when.elapsed() < RECENT);
        }
        if known.len() < MOST_RECENT {
            known.insert(name.clone(), (Instant::now(), Rc::clone(&all)));
        }
        all
    }

    /// An address that does not answer may be an old one.
    fn forget(&self, name: &Name) {
        self.0.borrow_mut().remove(name);
    }
}

/// All that decides how a connection is made.
pub struct Out {
    /// Who resolves.
    pub resolver: Resolver,
    /// The host's proxy.
    pub proxies: Proxies,
    /// What it said a moment ago.
    pub recent: Recent,
    /// This machine's addresses.
    pub own: Own,
    /// What is granted of addresses.
    pub rules: Rc<Rules>,
}

impl Out {
    /// A connection to a target that is granted.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn connect(&self, target: &Target, space: &Space) -> Result<TcpStream, Failed> {
        let stream = match target {
            Target::Host(port) => any_of(LOOPBACK.map(|address| SocketAddr::new(address, *port)).into()).await?,
            Target::Address(address) => match self.proxies.for_address(address.ip(), address.port()) {
                Some(proxy) => through::connect(self, proxy, target, space).await?,
                None => any_of(vec![*address]).await?,
            },
            Target::Name(name, port) => match self.proxies.for_name(name, *port) {
                Some(proxy) => through::connect(self, proxy, target, space).await?,
                None => any_of(self.guarded(name, *port).await?).await.inspect_err(|_| self.recent.forget(name))?,
            },
        };
        tune(&stream);
        Ok(stream)
    }

    /// A connection to the proxy itself, which is the host's choice and may be anywhere.
    pub(super) async fn to_proxy(&self, host: &str, port: u16) -> Result<TcpStream, Failed> {
        let addresses = self.resolver.addresses(host, port).await.map_err(|why| {
            tracing::warn!("the host's proxy {host} is not resolved: {why}");
            Why::ProxyFailed
        })?;
        any_of(addresses).await.map_err(|_| Why::ProxyFailed.into())
    }

    /// Whether an address is public and not this machine's, or was granted although it is neither; and not denied.
    pub fn may(&self, address: IpAddr, port: u16) -> bool {
        let public = !is_forbidden(address) && !self.own.has(address);
        !self.rules.denies_address(address, port) && (public || self.rules.grants_special(address, port))
    }

    /// The addresses of a name that it may lead to.
    async fn guarded(&self, name: &Name, port: u16) -> Result<Vec<SocketAddr>, Failed> {
        let all = match self.recent.get(name) {
            Some(all) => all,
            None => {
                let all = self.resolver.addresses(name.as_str(), port).await.map_err(|why| {
                    tracing::info!("{} is not resolved: {why}", name.as_str());
                    Why::Unresolved
                })?;
                self.recent.put(name, all.iter().map(SocketAddr::ip).collect())
            }
        };
        let all = all.iter().map(|address| SocketAddr::new(*address, port));
        let (right, wrong): (Vec<_>, Vec<_>) = all.partition(|address| self.may(address.ip(), port));
        match (right.is_empty(), wrong.first()) {
            (true, Some(wrong)) if self.rules.denies_address(wrong.ip(), port) => {
                Err(Failed(Why::DeniedByPolicy, Some(wrong.ip().to_canonical())))
            }
            (true, Some(wrong)) => Err(Failed(Why::AddressForbidden, Some(wrong.ip().to_canonical()))),
            (true, None) => Err(Why::Unresolved.into()),
            (false, _) => Ok(right),
        }
    }
}

/// Small pieces go on as they come, and a peer that is gone is noticed.
fn tune(stream: &TcpStream) {
    let set = stream.set_nodelay(true).and_then(|()| Ok(rustix::net::sockopt::set_socket_keepalive(stream, true)?));
    if let Err(why) = set {
        tracing::debug!("a connection keeps its defaults: {why}");
    }
}

async fn any_of(addresses: Vec<SocketAddr>) -> Result<TcpStream, Failed> {
    let tried = timeout(CONNECT, race(interleaved(addresses))).await;
    tried.map_err(io::Error::from).and_then(|done| done).map_err(|why| {
        tracing::info!("no connection: {why}");
        Why::Unreachable.into()
    })
}

/// The two families in turn, in the order that they came in otherwise.
fn interleaved(addresses: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut all = VecDeque::new();
    while !(first.is_empty() && second.is_empty()) {
        all.extend(first.pop_front());
        all.extend(second.pop_front());
    }
    all.truncate(MOST_ADDRESSES);
    all
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>>>>;

/// The first that answers. The next attempt begins when one has failed, or none has succeeded for a while.
async fn race(mut waiting: VecDeque<SocketAddr>) -> io::Result<TcpStream> {
    let mut running: Vec<Attempt> = Vec::new();
    let mut alone: Pin<Box<Sleep>> = Box::pin(sleep(Duration::ZERO));
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    poll_fn(|cx| {
        loop {
            let mut at = 0;
            while at < running.len() {
                match running[at].as_mut().poll(cx) {
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                    Poll::Ready(Err(why)) => {
                        failure = why;
                        drop(running.swap_remove(at));
                        alone.set(sleep(Duration::ZERO));
                    }
                    Poll::Pending => at += 1,
                }
            }
            if waiting.is_empty() {
                let error = std::mem::replace(&mut failure, io::ErrorKind::Other.into());
                return if running.is_empty() { Poll::Ready(Err(error)) } else { Poll::Pending };
            }
            if !running.is_empty() && alone.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            running.extend(waiting.pop_front().map(|address| Box::pin(TcpStream::connect(address)) as Attempt));
            alone.set(sleep(HEAD_START));
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_answers_are_few_and_can_be_forgotten() {
        let recent = Recent::default();
        let name = |number| Name::new(&format!("n{number}.test")).unwrap();
        for number in 0..2 * MOST_RECENT {
            recent.put(&name(number), Rc::new([LOOPBACK[0]]));
        }
        assert!(recent.0.borrow().len() <= MOST_RECENT);
        recent.put(&name(0), Rc::new([LOOPBACK[0]]));
        recent.forget(&name(0));
        assert_eq!(recent.get(&name(0)), None);
    }

    #[test]
    fn families_take_turns() {
        let all = |text: &str| text.split(' ').map(|a| format!("{a}:1").parse().unwrap()).collect::<Vec<SocketAddr>>();
        let turns = interleaved(all("[::1] [::2] [::3] 1.1.1.1 2.2.2.2"));
        assert_eq!(turns, all("[::1] 1.1.1.1 [::2] 2.2.2.2 [::3]"));
        assert_eq!(interleaved(all("1.1.1.1 [::1]")), all("1.1.1.1 [::1]"));
        assert_eq!(interleaved(vec![all("1.1.1.1")[0]; 100]).len(), MOST_ADDRESSES);
    }
}
