//! What a connection costs through smcp's egress, against one that goes straight over loopback and one through a SOCKS 5 proxy
//! (microsocks).
//!
//! `cargo bench -p smcp --bench egress [-- --rounds N]`. All take turns in one run, in a network namespace in which every
//! address is local, so that nothing leaves. Needs unshare(1), ip(8) and microsocks.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bundle::Egress;
use runtime::Sockets;
use runtime::egress::{Engine, Proxies, Running};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A public address, which here is this namespace's own like every other.
const SERVER: Ipv4Addr = Ipv4Addr::new(1, 2, 3, 4);
const NAME: &str = "server.test";
/// Sends without end.
const STREAM: u16 = 5001;
/// Answers a byte by a byte.
const ECHO: u16 = 5002;
const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// Bytes that one round takes.
const AMOUNT: usize = 512 << 20;
/// Connections of one round.
const CONNECTIONS: usize = 100;

/// At least as much of a plain connection's throughput, and at most so much more time for a connection and its first answer.
const LEAST_SHARE: f64 = 0.5;
const MOST_DELAY: Duration = Duration::from_micros(150);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` starts benchmarks too, without this word.
    if !arguments.iter().any(|word| word == "--bench") {
        println!("egress: measured by `cargo bench` only");
        return ExitCode::SUCCESS;
    }
    let rounds = arguments.iter().skip_while(|word| *word != "--rounds").nth(1).map_or(Ok(15), |number| number.parse());
    let inside = arguments.iter().any(|word| word == "--inside");
    let done = rounds.map_err(Into::into).and_then(|rounds| if inside { measure(rounds) } else { enter(&arguments) });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program again in namespaces of its own.
fn enter(arguments: &[String]) -> Result<()> {
    let script = format!(
        "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && \
         printf '{SERVER} {NAME}\\n' > \"$HOSTS\" && mount --bind \"$HOSTS\" /etc/hosts && exec \"$0\" --inside \"$@\""
    );
    let hosts = tempfile::NamedTempFile::new()?;
    let ended = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", &script])
        .arg(std::env::current_exe()?)
        .args(arguments)
        .env("HOSTS", hosts.path())
        .status()
        .map_err(|why| format!("unshare(1): {why}"))?;
    if ended.success() { Ok(()) } else { Err("it did not run in a namespace of its own".into()) }
}

/// A way to the server.
struct Way {
    name: &'static str,
    connect: Box<dyn Fn(u16) -> Result<TcpStream>>,
    /// Bytes a second.
    throughput: Vec<f64>,
    /// Seconds until the answer.
    answers: Vec<f64>,
}

impl Way {
    fn new(name: &'static str, connect: impl Fn(u16) -> Result<TcpStream> + 'static) -> Way {
        Way { name, connect: Box::new(connect), throughput: Vec::new(), answers: Vec::new() }
    }
}

fn measure(rounds: usize) -> Result<()> {
    serve(STREAM, |mut stream| {
        let bytes = vec![7; 256 << 10];
        while stream.write_all(&bytes).is_ok() {}
    })?;
    serve(ECHO, |mut stream| {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_ok() {
            drop(stream.write_all(&byte));
        }
    })?;
    let _engine = engine()?;
    let named = resolve()?;
    let _proxy = proxy()?;
    let mut ways = [
        Way::new("direct", |port| Ok(TcpStream::connect((SERVER, port))?)),
        Way::new("smcp", move |port| Ok(TcpStream::connect((named, port))?)),
        Way::new("microsocks", through_proxy),
    ];
    // The first round of each is not counted.
    for round in 0..=rounds {
        for way in &mut ways {
            let (throughput, answers) = (throughput(way)?, answers(way)?);
            if round > 0 {
                way.throughput.push(throughput);
                way.answers.extend(answers);
            }
        }
    }
    report(&mut ways);
    Ok(())
}

fn serve(port: u16, each: fn(TcpStream)) -> Result<()> {
    let listener = TcpListener::bind((SERVER, port))?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || each(stream));
        }
    });
    Ok(())
}

fn engine() -> Result<Running> {
    let (sockets, theirs) = Sockets::pair()?;
    thread::spawn(move || while runtime::answer(&theirs).is_ok() {});
    let outbound = vec![format!("{NAME}:{STREAM},{ECHO}").parse()?];
    let engine = Engine::open(&Egress { outbound, ..Egress::default() }, Proxies::none(), sockets)?;
    Ok(engine.start(Box::new(|refused| eprintln!("refused: {refused:?}")))?)
}

fn proxy() -> Result<Ended> {
    let mut command = Command::new("microsocks");
    command.args(["-i", &PROXY.ip().to_string(), "-p", &PROXY.port().to_string()]).stderr(Stdio::null());
    let mut proxy = Ended(command.spawn().map_err(|why| format!("microsocks (Debian's package of this name): {why}"))?);
    while TcpStream::connect(PROXY).is_err() {
        if let Some(ended) = proxy.0.try_wait()? {
            return Err(format!("microsocks ended with {ended}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(proxy)
}

/// The address that stands for the server's name, asked for by hand, since this namespace's resolv.conf is the machine's.
fn resolve() -> Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.connect((SERVER, 53))?;
    let mut question = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in NAME.split('.') {
        question.push(u8::try_from(label.len())?);
        question.extend(label.bytes());
    }
    question.extend([0, 0, 1, 0, 1]);
    socket.send(&question)?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    // The one record's data ends the answer.
    let address = answer[..length].last_chunk::<4>().filter(|_| answer[7] == 1).ok_or("the name has no address")?;
    Ok(Ipv4Addr::from(*address))
}

/// SOCKS 5 by name, as clients do that know a proxy.
fn through_proxy(port: u16) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(PROXY)?;
    stream.set_nodelay(true)?;
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    let name = [&[5, 1, 0, 3, u8::try_from(NAME.len())?][..], NAME.as_bytes(), &port.to_be_bytes()].concat();
    stream.write_all(&name)?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    if answer[1] == 0 { Ok(stream) } else { Err(format!("microsocks answered {}", answer[1]).into()) }
}

fn throughput(way: &Way) -> Result<f64> {
    let mut stream = (way.connect)(STREAM)?;
    let mut block = vec![0; 256 << 10];
    // Windows have grown by then.
    let mut skipped = 0;
    while skipped < AMOUNT / 8 {
        skipped += some(&mut stream, &mut block)?;
    }
    let began = Instant::now();
    let mut taken = 0;
    while taken < AMOUNT {
        taken += some(&mut stream, &mut block)?;
    }
    Ok(taken as f64 / began.elapsed().as_secs_f64())
}

fn some(stream: &mut TcpStream, block: &mut [u8]) -> Result<usize> {
    match stream.read(block)? {
        0 => Err("the server has ended".into()),
        count => Ok(count),
    }
}

fn answers(way: &Way) -> Result<Vec<f64>> {
    (0..CONNECTIONS)
        .map(|_| {
            let began = Instant::now();
            let mut stream = (way.connect)(ECHO)?;
            stream.write_all(b"x")?;
            stream.read_exact(&mut [0])?;
            Ok(began.elapsed().as_secs_f64())
        })
        .collect()
}

fn report(ways: &mut [Way; 3]) {
    println!("{:12} {:>10} {:>8} {:>14} {:>10}", "", "GB/s", "share", "connect, µs", "more, µs");
    let [mut first, mut delay] = [0.0; 2];
    for way in ways {
        let (throughput, answer) = (median(&mut way.throughput), median(&mut way.answers));
        if way.name == "direct" {
            (first, delay) = (throughput, answer);
        }
        let (share, more) = (throughput / first, answer - delay);
        println!("{:12} {:10.2} {share:8.2} {:14.0} {:10.0}", way.name, throughput / 1e9, answer * 1e6, more * 1e6);
        if way.name == "smcp" {
            let reached = |is| if is { "reached" } else { "missed" };
            println!("{:12} throughput ≥ {LEAST_SHARE}: {}", "", reached(share >= LEAST_SHARE));
            println!("{:12} connection + {MOST_DELAY:?}: {}", "", reached(more <= MOST_DELAY.as_secs_f64()));
        }
    }
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Ended when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It has ended by itself where that fails.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
