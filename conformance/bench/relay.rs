//! What a relay costs: round trips and bytes a second between a client and a server, without any, by smcp's filter, by its direct mode, by a
//! plain copy and by tokio's.
//!
//! `cargo bench -p smcp --bench relay [-- --rounds N] [--json FILE] [--binary SMCP]`. All have a session of each kind that stays open, by
//! pipes and by sockets as Node makes them, and take turns in one run, since times of different runs differ by a third on a shared
//! machine. Nothing outside a directory of its own in `/var/tmp` is written.

mod relay_copies;
mod relay_session;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::{Value, json};

use relay_session::{Kind, Session};

/// An error is told and nothing more: nobody handles it.
pub type Result<T> = std::result::Result<T, String>;

/// Round trips of a turn, for messages of 200 bytes and of 64 KiB.
const TURNS: [(usize, usize); 2] = [(200, 1000), (64 << 10, 200)];
/// Bytes that a server writes in a turn.
const FLOOD: usize = 256 << 20;
/// Turns that are not counted.
const WARM_UP: usize = 1;

/// The lines of the budget in design.md: µs more than none at p50, and MiB.
const MOST_MORE: [f64; 2] = [10.0, 30.0];
const MOST_MEMORY: f64 = 10.0;
/// What cannot be told from none: µs and a share of it.
const ALIKE: (f64, f64) = (1.0, 0.05);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [word, program @ ..] if word == "--copy" => relay_copies::plain(program),
        [word, program @ ..] if word == "--tokio" => relay_copies::by_tokio(program),
        // `cargo test --all-targets` starts benchmarks too, without this word.
        words if !words.iter().any(|word| word == "--bench") => {
            println!("relay: measured by `cargo bench` only");
            Ok(())
        }
        words => Options::parse(words).and_then(|options| measure(&options)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What was typed after `--`.
struct Options {
    rounds: usize,
    json: Option<PathBuf>,
    /// The smcp that is measured, where it is not cargo's.
    binary: PathBuf,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options> {
        let mut options = Options { rounds: 20, json: None, binary: env!("CARGO_BIN_EXE_smcp").into() };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--bench" => {}
                "--rounds" => options.rounds = value()?.parse().map_err(because("--rounds"))?,
                "--binary" => options.binary = value()?.into(),
                "--json" => options.json = Some(value()?.into()),
                _ => return Err(format!("unknown argument {word}: --rounds N, --json FILE, --binary SMCP")),
            }
        }
        if options.rounds == 0 { Err("--rounds 0 measures nothing".into()) } else { Ok(options) }
    }
}

/// A way from client to server, by one kind of stream, and what was measured of it.
struct Way {
    name: &'static str,
    kind: Kind,
    session: Session,
    /// µs of each round trip, for each size of [`TURNS`].
    trips: [Vec<f64>; 2],
    /// Seconds of each flood, and CPU seconds of the relay in all of them.
    floods: Vec<f64>,
    cpu: f64,
}

fn measure(options: &Options) -> Result<()> {
    let place = Place::make(options)?;
    let mut ways = Vec::new();
    for kind in [Kind::Pipe, Kind::Socket] {
        for (name, command) in place.commands()? {
            let session = Session::open(command, kind).map_err(because(format!("{name} by {kind}")))?;
            ways.push(Way { name, kind, session, trips: Default::default(), floods: Vec::new(), cpu: 0.0 });
        }
    }
    for round in 0..WARM_UP + options.rounds {
        for way in &mut ways {
            let (mut trips, mut flood, mut cpu) = (Vec::new(), 0.0, 0.0);
            for (size, count) in TURNS {
                trips.push(way.session.trips(size, count).map_err(because(way.name))?);
            }
            if round % 4 == WARM_UP {
                (flood, cpu) = way.session.flood(FLOOD).map_err(because(way.name))?;
            }
            if round >= WARM_UP {
                way.trips.iter_mut().zip(trips).for_each(|(all, more)| all.extend(more));
                if flood > 0.0 {
                    way.floods.push(flood);
                    way.cpu += cpu;
                }
            }
        }
    }
    let report = Report::of(&mut ways)?;
    report.print();
    let text = format!("{:#}\n", report.json());
    options.json.as_ref().map_or(Ok(()), |file| fs::write(file, text).map_err(because(file.display())))
}

/// The server, its package, and the directory that holds them.
struct Place {
    directory: tempfile::TempDir,
    smcp: PathBuf,
}

impl Place {
    /// Compiles the server and makes a package of it.
    fn make(options: &Options) -> Result<Place> {
        let directory =
            tempfile::Builder::new().prefix("smcp-bench-").tempdir_in("/var/tmp").map_err(because("/var/tmp"))?;
        let place = Place { directory, smcp: options.binary.clone() };
        let package = place.path("package");
        for made in [&package, &place.path("home")] {
            fs::create_dir(made).map_err(because("making a directory"))?;
        }
        // The unprivileged user of a cage started by root comes through here.
        let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        fs::set_permissions(place.directory.path(), open).map_err(because("opening the directory"))?;
        let (source, server) = (place.path("server.rs"), package.join("server"));
        fs::write(&source, include_str!("relay_server.rs")).map_err(because("writing a program"))?;
        let compiler = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
        let flags =
            ["--edition", "2024", "-O", "-Ctarget-feature=+crt-static", "-Cpanic=abort", "-Cstrip=symbols", "-o"];
        succeed(Command::new(compiler).args(flags).arg(&server).arg(&source))?;
        let manifest = "name = \"bench/relay\"\nversion = \"1.0.0\"\ndescription = \"gives back what it gets\"\n\
                        [entrypoint]\nargs = [\"/app/server\"]\n[build]\nbase = \"none\"\n";
        fs::write(package.join("smcp.toml"), manifest).map_err(because("writing a manifest"))?;
        succeed(place.smcp().arg("build").arg(&package).args(["-t", &place.reference()]))?;
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn reference(&self) -> String {
        format!("oci-layout:{}:1", self.path("layout").display())
    }

    fn smcp(&self) -> Command {
        let mut command = Command::new(&self.smcp);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.path("home"));
        command.env("MCP_CACHE_DIR", self.path("cache")).env("MCP_AUDIT_LOG_FILE", self.path("audit.log"));
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    /// Every way to the server. smcp's may use every CPU, as the others do.
    fn commands(&self) -> Result<Vec<(&'static str, Command)>> {
        let server = self.path("package/server");
        let own = std::env::current_exe().map_err(because("finding this program"))?;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) * 1000;
        let run = |relay: &str| {
            let mut command = self.smcp();
            command.args(["run", "--relay", relay, "--max-cpu", &cpus.to_string(), &self.reference()]);
            command
        };
        let copy = |by: &str| {
            let mut command = Command::new(&own);
            command.arg(by).arg(&server);
            command
        };
        Ok(vec![
            ("none", Command::new(&server)),
            ("smcp direct", run("direct")),
            ("smcp filter", run("filter")),
            ("plain copy", copy("--copy")),
            ("tokio copy", copy("--tokio")),
        ])
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let done = command.output().map_err(because(command.get_program().display()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr))),
    }
}

/// All figures of a run.
struct Report {
    rows: Vec<Row>,
}

struct Row {
    name: &'static str,
    kind: Kind,
    /// µs at p50 and p99 for each size.
    trips: [[f64; 2]; 2],
    /// 10⁹ bytes a second, CPU seconds of the relay for them, MiB that it has.
    throughput: f64,
    cpu: f64,
    memory: f64,
}

impl Report {
    fn of(ways: &mut [Way]) -> Result<Report> {
        let rows = ways.iter_mut().map(|way| {
            let bytes = FLOOD as f64 * way.floods.len() as f64;
            Ok(Row {
                name: way.name,
                kind: way.kind,
                trips: way.trips.each_mut().map(|trips| [0.5, 0.99].map(|share| quantile(trips, share))),
                throughput: FLOOD as f64 / 1e9 / quantile(&mut way.floods, 0.5),
                cpu: way.cpu / (bytes / 1e9),
                memory: way.session.memory()?,
            })
        });
        Ok(Report { rows: rows.collect::<Result<_>>()? })
    }

    fn row(&self, name: &str, kind: Kind) -> &Row {
        self.rows.iter().find(|row| row.name == name && row.kind == kind).expect("each was measured by each")
    }

    /// The lines of the budget: what, measured, most.
    fn goals(&self) -> Vec<(String, f64, f64)> {
        let mut goals = Vec::new();
        for kind in [Kind::Pipe, Kind::Socket] {
            let [none, direct, filter] = ["none", "smcp direct", "smcp filter"].map(|name| self.row(name, kind));
            for (size, what) in ["200 B", "64 KiB"].into_iter().enumerate() {
                let more = |row: &Row| row.trips[size][0] - none.trips[size][0];
                goals.push((format!("filter, {kind}, {what}: µs more than none"), more(filter), MOST_MORE[size]));
                let alike = ALIKE.0 + ALIKE.1 * none.trips[size][0];
                goals.push((format!("direct, {kind}, {what}: µs more than none"), more(direct), alike));
            }
            goals.push((format!("filter, {kind}: MiB of the supervisor"), filter.memory, MOST_MEMORY));
            goals.push((format!("direct, {kind}: MiB of the supervisor"), direct.memory, MOST_MEMORY));
        }
        goals
    }

    fn print(&self) {
        for (key, value) in machine().as_object().into_iter().flatten() {
            println!("{key}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
        for kind in [Kind::Pipe, Kind::Socket] {
            println!("\nby {kind}; round trips in µs");
            println!(
                "{:14}{:>10}{:>10}{:>12}{:>12}{:>8}{:>10}{:>8}",
                "", "200 B p50", "p99", "64 KiB p50", "p99", "GB/s", "CPU s/GB", "MiB"
            );
            for row in self.rows.iter().filter(|row| row.kind == kind) {
                let [[small, small_worst], [large, large_worst]] = row.trips;
                print!(
                    "{:14}{small:10.1}{small_worst:10.1}{large:12.1}{large_worst:12.1}{:8.2}",
                    row.name, row.throughput
                );
                match row.name {
                    "none" => println!("{:>10}{:>8}", "-", "-"),
                    _ => println!("{:10.3}{:8.1}", row.cpu, row.memory),
                }
            }
        }
        println!();
        for (what, measured, most) in self.goals() {
            let verdict = if measured <= most { "reached" } else { "missed" };
            println!("{verdict:8} {what:44} {measured:7.1} of {most:.1}");
        }
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let [[small, small_worst], [large, large_worst]] = row.trips;
            json!({
                "way": row.name, "by": row.kind.to_string(),
                "us_200": {"p50": small, "p99": small_worst}, "us_65536": {"p50": large, "p99": large_worst},
                "gb_a_second": row.throughput, "cpu_seconds_a_gb": row.cpu, "mib": row.memory,
            })
        });
        let goals = self.goals().into_iter().map(|(goal, measured, most)| {
            json!({"goal": goal, "measured": measured, "most": most, "reached": measured <= most})
        });
        json!({"machine": machine(), "ways": rows.collect::<Vec<_>>(), "budget": goals.collect::<Vec<_>>()})
    }
}

fn machine() -> Value {
    let file = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = file("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    json!({
        "cpu": model.map_or("unknown", |(_, model)| model),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "load": file("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
    })
}

fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let at = (samples.len() as f64 * share) as usize;
    samples.get(at.min(samples.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Says in which step an error came.
pub fn because<E: Display>(step: impl Display) -> impl FnOnce(E) -> String {
    move |why| format!("{step}: {why}")
}

/// A file of proc(5) about a process.
pub fn about(pid: u32, file: &str) -> Result<String> {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    fs::read_to_string(&path).map_err(because(path.display()))
}
