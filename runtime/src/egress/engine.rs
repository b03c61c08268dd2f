//! The thread: what comes from the cage, and what becomes of it.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, spawn_local};

use crate::linux::{Missed, Transport, Unheard, original_destination};

use super::connect::{Out, Target};
use super::copy::{self, Space};
use super::dns::{Asked, Verdict};
use super::hello::{self, Look};
use super::listen::{HERE, Listening, Supply, is_ours};
use super::names::{self, Names};
use super::rules::{Granted, LOOPBACK, Name, Ports, Rules};
use super::tally::{Tally, Totals, Why};
use super::{DNS_PORT, Opened, serve};

/// Until there may be descriptors again.
const NO_DESCRIPTORS: Duration = Duration::from_millis(50);
/// Refusals that are looked at before others have their turn.
const TURN: usize = 32;
/// Turns of every task once the run is over: tokio looks at its sockets after 61 at the latest.
const LAST_TURNS: usize = 128;
/// Refusals that are looked at once the run is over: a socket keeps fewer.
const MOST_LAST: usize = 4096;

/// What all connections of a run share. One thread has it.
pub struct State {
    pub(super) rules: Rc<Rules>,
    pub(super) supply: Supply,
    pub(super) names: RefCell<Names>,
    pub(super) listening: RefCell<Listening>,
    pub(super) tally: RefCell<Tally>,
    pub(super) out: Out,
    pub(super) space: Space,
    pub(super) connections: Rc<Places>,
    pub(super) dns_connections: Rc<Places>,
    /// That there is no listener for a name was told: a server can ask on and on.
    pub(super) told: Cell<bool>,
}

/// So many at once.
pub struct Places {
    free: Cell<usize>,
}

/// One of them, free again when it is dropped.
pub struct Place(Rc<Places>);

impl Places {
    /// All free.
    pub fn new(most: usize) -> Rc<Places> {
        Rc::new(Places { free: Cell::new(most) })
    }

    fn take(self: &Rc<Places>) -> Option<Place> {
        self.free.set(self.free.get().checked_sub(1)?);
        Some(Place(Rc::clone(self)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.free.set(self.0.free.get() + 1);
    }
}

/// Which connections a listener gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// What goes to its own address.
    Direct,
    /// What went elsewhere before it was redirected.
    Redirected,
}

/// Does all of it until it is told to stop.
///
/// # Errors
/// Where the sockets that were opened cannot be used.
pub async fn run(opened: Opened, state: Rc<State>, stop: oneshot::Receiver<()>) -> io::Result<Totals> {
    for socket in opened.dns_datagrams {
        let socket = UdpSocket::from_std(socket)?;
        let state = Rc::clone(&state);
        spawn_local(async move {
            if let Err(why) = serve::datagrams(socket, state).await {
                tracing::error!("names are not answered any more: {why}");
            }
        });
    }
    for listener in opened.dns_connections {
        spawn_local(serve::connections(TcpListener::from_std(listener)?, Rc::clone(&state)));
    }
    for (listener, purpose) in opened.listeners {
        spawn_local(listen(TcpListener::from_std(listener)?, purpose, Rc::clone(&state)));
    }
    let unheard = opened.unheard.map(Rc::new);
    if let Some(unheard) = &unheard {
        for socket in unheard.descriptors() {
            // A datagram socket like another: tokio has no safe way to wait for one of this family by its name.
            let told = std::net::UdpSocket::from(rustix::io::fcntl_dupfd_cloexec(socket, 3)?);
            spawn_local(hear(UdpSocket::from_std(told)?, Rc::clone(unheard), Rc::clone(&state)));
        }
    }
    // A sender that is gone says the same.
    drop(stop.await);
    // What a server tried in its last moment waits in sockets whose tasks had no turn yet.
    for _ in 0..LAST_TURNS {
        tokio::task::yield_now().await;
    }
    let last = unheard.iter().flat_map(|unheard| std::iter::from_fn(|| unheard.next()));
    last.take(MOST_LAST).for_each(|missed| state.saw(missed));
    let totals = state.tally.borrow().totals();
    Ok(totals)
}

/// The next connection; none where there is no descriptor for it, after a while.
pub async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((stream, _)) => Some(stream),
        Err(why) => {
            tracing::debug!("a connection of the cage has to wait: {why}");
            tokio::time::sleep(NO_DESCRIPTORS).await;
            None
        }
    }
}

async fn listen(listener: TcpListener, purpose: Purpose, state: Rc<State>) {
    loop {
        if let Some(stream) = accept(&listener).await {
            state.take(stream, purpose);
        }
    }
}

impl State {
    /// What DNS says.
    pub fn judge(self: &Rc<Self>, asked: &Asked) -> Verdict {
        match asked {
            Asked::Name(name) => self.judge_name(name),
            Asked::Address(address) => match self.names.borrow().of(*address) {
                Some((_, name)) => Verdict::Pointer((*name).clone()),
                None if is_ours(*address) || address.is_loopback() => Verdict::NoSuchName,
                None => self.no_such_name(&address.to_string()),
            },
            Asked::Other(text) => self.no_such_name(if text.is_empty() { "." } else { text }),
        }
    }

    fn no_such_name(&self, text: &str) -> Verdict {
        if !self.rules.any() {
            self.refuse(text, None, Why::NameNotGranted);
        }
        Verdict::NoSuchName
    }

    fn judge_name(self: &Rc<Self>, name: &Name) -> Verdict {
        // RFC 6761 6.3.
        if name.as_str() == "localhost" || name.is_below("localhost") {
            let [IpAddr::V4(v4), IpAddr::V6(v6)] = LOOPBACK else { return Verdict::NoSuchName };
            return Verdict::Addresses(Some(v4), self.supply.v6.then_some(v6));
        }
        let Some(ports) = self.rules.ports(name) else {
            self.refuse(name.as_str(), None, Why::NameNotGranted);
            return if self.rules.has_below(name) { Verdict::Nothing } else { Verdict::NoSuchName };
        };
        let Some(number) = self.names.borrow_mut().number(name) else {
            self.refuse(name.as_str(), None, Why::TooManyNames);
            return Verdict::Failure;
        };
        if let Ports::These(ports) = ports
            && let Err(why) = self.listen_for(name, number, &ports)
        {
            if !self.told.replace(true) {
                tracing::warn!("no listeners for {}: {why}", name.as_str());
            }
            return Verdict::Failure;
        }
        Verdict::Addresses(Some(names::v4(number)), self.supply.v6.then(|| names::v6(number)))
    }

    /// Listeners at the addresses of a name, before anybody hears of them.
    fn listen_for(self: &Rc<Self>, name: &Name, number: names::Number, ports: &[u16]) -> io::Result<()> {
        let mut listening = self.listening.borrow_mut();
        let missing = listening.missing(number, ports, &self.supply);
        if missing.is_empty() {
            return Ok(());
        }
        let mut opened: Vec<(SocketAddr, AbortHandle)> = Vec::new();
        for (listener, address) in self.supply.listeners(&missing)?.into_iter().zip(missing) {
            match listener {
                Ok(listener) => {
                    let listener = listen(TcpListener::from_std(listener)?, Purpose::Direct, Rc::clone(self));
                    opened.push((address, spawn_local(listener).abort_handle()));
                }
                Err(why) => {
                    tracing::warn!("no listener at {address}: {why}");
                    self.refuse(name.as_str(), Some(address.port()), Why::PortTaken);
                }
            }
        }
        listening.hold(number, opened);
        Ok(())
    }

    /// A place for a connection with questions.
    pub fn dns_place(&self) -> Option<Place> {
        self.dns_connections.take()
    }

    fn refuse(&self, host: &str, port: Option<u16>, why: Why) {
        // No flag would grant what the policy denies.
        let by_policy =
            matches!(why, Why::NameNotGranted | Why::PortNotGranted | Why::AddressNotGranted | Why::WrongSni)
                && self.rules.denies(host, port);
        self.tally.borrow_mut().refuse(host, port, if by_policy { Why::DeniedByPolicy } else { why });
    }

    /// One connection of the cage.
    fn take(self: &Rc<Self>, cage: TcpStream, purpose: Purpose) {
        let Ok(meant) = meant(&cage, purpose) else { return copy::reset(cage) };
        if is_ours(meant.ip()) && meant.port() == DNS_PORT {
            return serve::connection(cage, self);
        }
        let Some(target) = self.target(meant) else { return copy::reset(cage) };
        let Some(place) = self.connections.take() else {
            let (host, port) = target.parts();
            self.refuse(&host, Some(port), Why::TooManyConnections);
            return copy::reset(cage);
        };
        let state = Rc::clone(self);
        spawn_local(async move {
            state.serve(cage, target).await;
            drop(place);
        });
    }

    /// Where a connection may go to; none where it may not, which is told.
    fn target(&self, meant: SocketAddr) -> Option<Target> {
        let (address, port) = (meant.ip().to_canonical(), meant.port());
        if let Some((number, name)) = self.names.borrow().of(address) {
            self.listening.borrow_mut().touch(number);
            if self.rules.granted(&name, port).is_some() {
                return Some(Target::Name((*name).clone(), port));
            }
            self.refuse(name.as_str(), Some(port), Why::PortNotGranted);
            return None;
        }
        // The cage's own loopback: nothing else listens there, and nobody has to know.
        if address.is_loopback() || address.is_unspecified() {
            return self.rules.grants_host_port(port).then_some(Target::Host(port));
        }
        if is_ours(address) || !self.rules.reaches(address, port) || !self.out.may(address, port) {
            self.refuse(&address.to_string(), Some(port), Why::AddressNotGranted);
            return None;
        }
        Some(Target::Address(SocketAddr::new(address, port)))
    }

    async fn serve(&self, cage: TcpStream, target: Target) {
        let (name, port) = target.parts();
        let host = match self.out.connect(&target, &self.space).await {
            Ok(host) => host,
            Err(failed) => {
                self.tally.borrow_mut().refuse_at(&name, Some(port), failed.0, failed.1);
                return copy::reset(cage);
            }
        };
        // Small pieces go on as they come, here too.
        drop(cage.set_nodelay(true));
        let row = self.tally.borrow_mut().connect(&name, port);
        let passed = |way, bytes| self.tally.borrow_mut().pass(row, way, bytes);
        let copied = copy::copy(&self.space, &cage, &host, self.admit(&cage, &target), passed).await;
        if let Err(why) = copied {
            tracing::debug!("a connection to {name}:{port} is reset: {why}");
            copy::reset(cage);
            copy::reset(host);
        }
    }

    /// Where TLS is begun to a name, the name in it must be that one, or within what lets it through.
    async fn admit(&self, cage: &TcpStream, target: &Target) -> io::Result<()> {
        let Target::Name(name, port) = target else { return Ok(()) };
        let Some(granted) = self.rules.granted(name, *port) else { return Ok(()) };
        if granted == Granted::Any && !self.rules.denies_some() {
            return Ok(());
        }
        let look = |bytes: &[u8], last: bool| match hello::look(bytes) {
            Look::More if last && bytes.is_empty() => Some(Look::Other),
            Look::More if last => Some(Look::Wrong),
            Look::More => None,
            look => Some(look),
        };
        let (host, why) = match self.space.peek(cage, 2 * hello::LONGEST, look).await? {
            Look::Hello(Some(other)) if !granted.covers(name, &other) => (other, Why::WrongSni),
            Look::Hello(Some(other)) if self.rules.denies(other.as_str(), Some(*port)) => (other, Why::DeniedByPolicy),
            Look::Wrong if granted != Granted::Any => (name.clone(), Why::BadHello),
            _ => return Ok(()),
        };
        self.refuse(host.as_str(), Some(*port), why);
        Err(io::ErrorKind::PermissionDenied.into())
    }

    /// Something that the kernel refused inside the cage.
    fn saw(&self, Missed { to, transport }: Missed) {
        let (address, port) = (to.ip().to_canonical(), to.port());
        if address.is_loopback() {
            return;
        }
        let name = self.names.borrow().of(address).map(|(_, name)| name);
        let host = name.as_ref().map_or_else(|| address.to_string(), |name| name.as_str().to_owned());
        match (transport, name) {
            (Transport::Udp, _) => self.refuse(&host, Some(port), Why::Udp),
            // Its listener gave way to others, or the server has the port: nothing that is not granted.
            (Transport::Tcp, Some(name)) if self.rules.granted(&name, port).is_some() => {}
            (Transport::Tcp, Some(_)) => self.refuse(&host, Some(port), Why::PortNotGranted),
            (Transport::Tcp, None) => self.refuse(&host, Some(port), Why::AddressNotGranted),
        }
    }
}

fn meant(cage: &TcpStream, purpose: Purpose) -> io::Result<SocketAddr> {
    match purpose {
        Purpose::Direct => cage.local_addr(),
        Purpose::Redirected => original_destination(cage),
    }
}

/// What the kernel has refused, when one of its descriptors tells that there is something.
async fn hear(told: UdpSocket, unheard: Rc<Unheard>, state: Rc<State>) {
    while told.readable().await.is_ok() {
        for _ in 0..TURN {
            let next = told.try_io(Interest::READABLE, || unheard.next().ok_or(io::ErrorKind::WouldBlock.into()));
            let Ok(missed) = next else { break };
            state.saw(missed);
        }
        tokio::task::yield_now().await;
    }
}

/// The addresses at which redirected connections arrive.
pub fn redirected_to(supply: &Supply, port: u16) -> Vec<SocketAddr> {
    let mut all = supply.both(std::net::Ipv4Addr::LOCALHOST, std::net::Ipv6Addr::LOCALHOST, port);
    all.extend(supply.both(HERE.0, HERE.1, port));
    all
}
