//! Egress: what a run may reach of the network, by name, without a change of the server.
//!
//! In the cage's network namespace every address is local. smcp answers its DNS: a granted name gets an address of its own,
//! at which smcp listens; it connects from the host to what the name stands for there, and copies. Everything else ends in
//! the namespace.
//!
//! A connection of the cage is accepted before the host has connected, since nothing tells smcp of it earlier. Where the host
//! cannot, the cage's connection is reset: a client sees `ECONNRESET` where it would have seen `ECONNREFUSED`.

#![forbid(unsafe_code)]

mod connect;
mod copy;
pub mod dns;
mod engine;
mod guard;
pub mod hello;
mod listen;
mod names;
mod own;
mod proxy;
mod rules;
mod serve;
mod tally;
mod through;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bundle::Egress;
use nix::sys::signal::SigSet;
use rustix::process::{Resource, getrlimit};
use tokio::sync::oneshot;

use crate::linux::{REDIRECTED, Sockets, Unheard};

use self::connect::{Out, Recent, Resolver};
use self::copy::Space;
use self::engine::{Places, Purpose, State};
use self::listen::{Listening, Supply};
use self::names::Names;
use self::own::Own;
use self::rules::Rules;
use self::tally::Tally;

pub use guard::is_forbidden;
pub use proxy::Proxies;
pub use rules::Name;
pub use tally::{Listener, Refused, Totals, Traffic, Why};

const DNS_PORT: u16 = 53;
/// Connections at once; each has two descriptors.
const MOST_CONNECTIONS: usize = 4_096;
/// Listeners of names at once.
const MOST_LISTENERS: usize = 2_048;
/// Descriptors that the rest of smcp may need.
const OTHER_FILES: usize = 256;
/// Threads for the host's name service, which has no way to be asked for many names at once.
const RESOLVERS: usize = 16;
/// Ranges up to this size are listened to address by address, which leaves the port to the server on its own loopback.
const FEW: u32 = 16;
/// As long as the thread may take to end.
const END: Duration = Duration::from_secs(2);

/// Listeners that are open; nothing is answered yet.
pub struct Engine {
    rules: Rules,
    proxies: Proxies,
    resolver: Resolver,
    supply: Supply,
    opened: Opened,
    everywhere: HashSet<SocketAddr>,
}

/// What is open from the start. Names' listeners are opened when they are asked for.
pub struct Opened {
    dns_datagrams: Vec<UdpSocket>,
    dns_connections: Vec<TcpListener>,
    listeners: Vec<(TcpListener, Purpose)>,
    unheard: Option<Unheard>,
}

/// An engine at work. It ends when this is dropped.
pub struct Running {
    /// Dropped to say so.
    stop: Option<oneshot::Sender<()>>,
    ended: mpsc::Receiver<Totals>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Engine {
    /// Opens all that a grant needs from the start: names are asked for at port 53 of every address; addresses, ranges and
    /// ports of the host that are granted have listeners.
    ///
    /// # Errors
    /// The kernel's, with the address; where the process inside does not answer.
    pub fn open(egress: &Egress, proxies: Proxies, mut sockets: Sockets) -> io::Result<Engine> {
        let unheard = sockets.take_unheard();
        let supply = Supply::new(sockets)?;
        let rules = Rules::new(egress);
        let dns = supply.everywhere(DNS_PORT);
        let dns_datagrams = dns.iter().map(|at| supply.datagrams(*at)).collect::<io::Result<Vec<_>>>()?;
        for socket in &dns_datagrams {
            serve::want_destinations(socket)?;
        }
        let mut opened =
            Opened { dns_datagrams, dns_connections: listeners(&supply, &dns)?, listeners: Vec::new(), unheard };
        let mut add = |addresses: &[SocketAddr], purpose| -> io::Result<()> {
            opened.listeners.extend(listeners(&supply, addresses)?.into_iter().map(|listener| (listener, purpose)));
            Ok(())
        };
        let (few, everywhere) = granted_addresses(egress, &rules, &supply);
        add(&few, Purpose::Direct)?;
        add(&everywhere, Purpose::Direct)?;
        if egress.any {
            add(&engine::redirected_to(&supply, REDIRECTED), Purpose::Redirected)?;
        }
        let everywhere = everywhere.into_iter().collect();
        Ok(Engine { rules, proxies, resolver: Resolver::Host, supply, opened, everywhere })
    }

    /// Starts its thread. `refused` is called there, once for each new kind of refusal, a thousand times at most.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(self, refused: Listener) -> io::Result<Running> {
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = mpsc::channel();
        let thread = thread::Builder::new().name("egress".into()).spawn(move || {
            // Signals are the supervisor's affair, which has one thread otherwise.
            if let Err(why) = SigSet::all().thread_block() {
                tracing::warn!("the thread of the network takes signals: {why}");
            }
            match self.work(refused, stopped) {
                // Nobody listens any more where it took too long.
                Ok(totals) => drop(end.send(totals)),
                Err(why) => tracing::error!("the network of this run has ended: {why}"),
            }
        })?;
        Ok(Running { stop: Some(stop), ended, thread: Some(thread) })
    }

    fn work(self, refused: Listener, stopped: oneshot::Receiver<()>) -> io::Result<Totals> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(RESOLVERS)
            .thread_keep_alive(Duration::from_secs(2))
            .build()?;
        let files =
            getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
        let files = files.saturating_sub(OTHER_FILES);
        let rules = Rc::new(self.rules);
        let state = Rc::new(State {
            names: RefCell::new(Names::default()),
            listening: RefCell::new(Listening::new(MOST_LISTENERS.min(files / 4), self.everywhere)),
            tally: RefCell::new(Tally::new(refused)),
            out: Out {
                resolver: self.resolver,
                proxies: self.proxies,
                recent: Recent::default(),
                own: Own::default(),
                rules: Rc::clone(&rules),
            },
            rules,
            supply: self.supply,
            space: Space::default(),
            connections: Places::new(MOST_CONNECTIONS.min(files / 4)),
            dns_connections: Places::new(serve::MOST_CONNECTIONS),
            told: Cell::new(false),
        });
        let tasks = tokio::task::LocalSet::new();
        let totals = tasks.block_on(&runtime, engine::run(self.opened, state, stopped));
        drop(tasks);
        // Nobody waits for a name service that does not answer.
        runtime.shutdown_background();
        totals
    }
}

impl Running {
    /// Ends the thread, and with it every connection; waits for it for two seconds at most.
    pub fn stop(mut self) -> Totals {
        self.end()
    }

    fn end(&mut self) -> Totals {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else { return Totals::default() };
        match self.ended.recv_timeout(END) {
            Ok(totals) => {
                // It has nothing left to do.
                drop(thread.join());
                totals
            }
            Err(why) => {
                tracing::error!("the thread of the network has not ended: {why}");
                Totals::default()
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// All of these listeners, or an error that names the first that is not to be had.
fn listeners(supply: &Supply, addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    let all = supply.listeners(addresses)?.into_iter().zip(addresses);
    all.map(|(listener, address)| {
        listener.map_err(|why| io::Error::new(why.kind(), format!("listening at {address} in the cage: {why}")))
    })
    .collect()
}

/// Where addresses and ports of the host that are granted have listeners: one by one, and at every address.
fn granted_addresses(egress: &Egress, rules: &Rules, supply: &Supply) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    let (mut few, mut everywhere) = (HashSet::new(), HashSet::new());
    // The cage's loopback is its own: such a grant is about where names may lead. A port of the host's is another grant.
    let listens = |address: &IpAddr| !address.to_canonical().is_loopback() && (supply.v6 || address.is_ipv4());
    for (address, ports) in rules.addresses().filter(|(address, _)| listens(address)) {
        few.extend(ports.iter().map(|port| SocketAddr::new(address.to_canonical(), *port)));
    }
    for (network, prefix, ports) in rules.ranges().filter(|(network, ..)| listens(network)) {
        let all = each_of(network, prefix);
        let places = if all.is_some() { &mut few } else { &mut everywhere };
        for address in all.unwrap_or_else(|| vec![network]) {
            places.extend(ports.iter().map(|port| SocketAddr::new(address, *port)));
        }
    }
    let everywhere: HashSet<SocketAddr> = everywhere.iter().map(listen::everywhere).collect();
    let ports = egress.host_ports.iter();
    few.extend(ports.flat_map(|port| supply.both(Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST, *port)));
    // A listener at every address has those of one too.
    few.retain(|at| !everywhere.contains(&listen::everywhere(at)));
    (few.into_iter().collect(), everywhere.into_iter().collect())
}

/// The addresses of a small range.
fn each_of(network: IpAddr, prefix: u8) -> Option<Vec<IpAddr>> {
    let bits = if network.is_ipv4() { 32 } else { 128 };
    let size = 1_u32.checked_shl(bits - u32::from(prefix)).filter(|size| *size <= FEW)?;
    let at = |number: u32| match network {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() + number).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() + u128::from(number)).into(),
    };
    Some((0..size).map(at).collect())
}
