//! What a plain container takes from create to delete, by smcp and by runc, crun and youki.
//!
//! `cargo bench -p smcp --bench oci [-- --runs N] [--binary SMCP] [--youki PATH]`, as root. All take turns in one run; the ratios
//! to crun are what counts. The bundle is that of `conformance/oci`, its program busybox's `true`. On a machine with hybrid cgroups, which crun
//! 1.8 refuses, everything happens in a mount namespace that has those of version 1 alone. Debian has no youki: `cargo install youki --features v1`
//! makes one, which is found on PATH and in cargo's directory, and which `--youki` names elsewhere.

mod sys;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, getpid, getuid, set_child_subreaper, waitpid};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, String>;

/// Turns that are not counted.
const WARM_UP: usize = 3;
const CONFIG: &str = include_str!("../oci/config.json");
/// Every controller of version 1 in a directory without version 2.
const VERSION_1: &str = r#"mount -t tmpfs -o mode=755 tmpfs /mnt && for one in /sys/fs/cgroup/*; do
  [ -e "$one/cgroup.procs" ] && ! [ -e "$one/cgroup.controllers" ] || continue
  mkdir "/mnt/${one##*/}" && mount --bind "$one" "/mnt/${one##*/}" || exit
done && mount --move /mnt /sys/fs/cgroup && exec "$@""#;
const AS_IT_IS: &str = r#"exec "$@""#;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` starts benchmarks too, without this word.
    if !arguments.iter().any(|word| word == "--bench") {
        println!("oci: measured by `cargo bench` only");
        return ExitCode::SUCCESS;
    }
    let is_inside = arguments.iter().any(|word| word == "--inside");
    match if is_inside { measure(&arguments) } else { enter(&arguments) } {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program again where nothing that a runtime mounts outlives it.
fn enter(arguments: &[String]) -> Result<()> {
    if !getuid().is_root() {
        return Err("containers with cgroups need root".into());
    }
    let is_version_2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let (version, script) = if is_version_2 { (2, AS_IT_IS) } else { (1, VERSION_1) };
    println!("cgroup v{version}");
    let program = std::env::current_exe().map_err(because("finding this program"))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(program);
    let ended = command.arg("--inside").args(arguments).status().map_err(because("unshare(1)"))?;
    if ended.success() { Ok(()) } else { Err(format!("the measuring process ended with {ended}")) }
}

/// Lets every runtime have its turn, and prints what they took.
fn measure(arguments: &[String]) -> Result<()> {
    let value = |name: &str| arguments.iter().skip_while(|word| *word != name).nth(1);
    let runs: usize = value("--runs").map_or(Ok(50), |number| number.parse()).map_err(because("--runs"))?;
    let smcp = value("--binary").map_or_else(|| env!("CARGO_BIN_EXE_smcp").to_owned(), String::to_owned);
    let mut runtimes = vec![Runtime::new("crun", &["crun"]), Runtime::new("runc", &["runc"])];
    runtimes.push(Runtime::new("smcp", &[&smcp, "oci"]));
    match value("--youki").cloned().or_else(|| on_path("youki")) {
        Some(path) => runtimes.push(Runtime::new("youki", &[&path])),
        None => println!("youki is not measured: there is none on PATH, and --youki PATH names none"),
    }
    // The parent of containers is who waits for them.
    set_child_subreaper(Some(getpid())).map_err(because("becoming the parent of containers"))?;
    let place = tempfile::Builder::new().prefix("smcp-bench-").tempdir_in("/var/tmp").map_err(because("/var/tmp"))?;
    let bundle = Bundle::make(place.path())?;
    for round in 0..WARM_UP + runs {
        for runtime in &mut runtimes {
            let turn = runtime.turn(&bundle).map_err(because(runtime.name))?;
            if round >= WARM_UP {
                runtime.turns.push(turn);
            }
        }
    }
    print(&runtimes);
    Ok(())
}

/// A program of this name, where PATH or cargo's own directory has one.
fn on_path(name: &str) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let of_cargo = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin"));
    let mut files = std::env::split_paths(&path).chain(of_cargo).map(|directory| directory.join(name));
    files.find(|file| file.is_file()).map(|file| file.display().to_string())
}

/// A directory with `config.json` and a root, and where the runtimes keep what they know.
struct Bundle {
    path: PathBuf,
    id: String,
}

impl Bundle {
    fn make(path: &Path) -> Result<Bundle> {
        let id = format!("oci-bench-{}", std::process::id());
        let root = path.join("rootfs");
        for name in ["bin", "proc", "dev", "sys"] {
            fs::create_dir_all(root.join(name)).map_err(because("making a directory"))?;
        }
        fs::copy("/usr/bin/busybox", root.join("bin/true")).map_err(because("busybox (Debian's busybox-static)"))?;
        let mut config: Value = serde_json::from_str(CONFIG).map_err(because("config.json"))?;
        config["process"]["args"] = json!(["/bin/true"]);
        config["linux"]["cgroupsPath"] = json!(format!("/{id}"));
        fs::write(path.join("config.json"), config.to_string()).map_err(because("writing config.json"))?;
        Ok(Bundle { path: path.to_owned(), id })
    }
}

/// A runtime and what its turns took.
struct Runtime {
    name: &'static str,
    command: Vec<String>,
    turns: Vec<Turn>,
}

struct Turn {
    create: Duration,
    start: Duration,
    delete: Duration,
    /// All three, and the program's own time between start and delete.
    whole: Duration,
    /// User and system time of all processes.
    cpu: Duration,
}

impl Runtime {
    fn new(name: &'static str, command: &[&str]) -> Runtime {
        Runtime { name, command: command.iter().map(|word| (*word).to_owned()).collect(), turns: Vec::new() }
    }

    /// A container from create to delete.
    fn turn(&self, bundle: &Bundle) -> Result<Turn> {
        let pid_file = bundle.path.join("pid");
        let path = bundle.path.display().to_string();
        let cpu = sys::cpu_of_children();
        let began = Instant::now();
        let create = self.ask(bundle, &["create", "--bundle", &path, "--pid-file", &pid_file.display().to_string()])?;
        let start = self.ask(bundle, &["start"])?;
        let pid = fs::read_to_string(&pid_file).map_err(because("the pid file"))?;
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw).ok_or("the pid file holds no pid")?;
        let (_, ended) =
            waitpid(Some(pid), WaitOptions::empty()).map_err(because("waiting"))?.ok_or("it did not end")?;
        if ended.exit_status() != Some(0) {
            return Err(format!("the program ended with {ended:?}"));
        }
        let delete = self.ask(bundle, &["delete"])?;
        let whole = began.elapsed();
        Ok(Turn { create, start, delete, whole, cpu: sys::cpu_of_children().saturating_sub(cpu) })
    }

    /// How long one command takes.
    fn ask(&self, bundle: &Bundle, words: &[&str]) -> Result<Duration> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).arg("--root").arg(bundle.path.join(self.name)).args(words).arg(&bundle.id);
        let began = Instant::now();
        let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status().map_err(because("starting it"))?;
        let took = began.elapsed();
        if ended.success() { Ok(took) } else { Err(format!("{} ended with {ended}", words[0])) }
    }

    fn median(&self, part: impl Fn(&Turn) -> Duration) -> f64 {
        let mut sorted: Vec<Duration> = self.turns.iter().map(part).collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).map_or(f64::NAN, |middle| middle.as_secs_f64() * 1000.0)
    }
}

fn print(runtimes: &[Runtime]) {
    let whole = |runtime: &Runtime| runtime.median(|turn| turn.whole);
    let crun = runtimes.iter().find(|runtime| runtime.name == "crun").map_or(f64::NAN, whole);
    println!(
        "medians, ms{:>7}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "runs", "create", "start", "delete", "whole", "CPU", "/ crun"
    );
    for runtime in runtimes {
        let of = |part: fn(&Turn) -> Duration| runtime.median(part);
        println!(
            "{:11}{:7}{:9.2}{:9.2}{:9.2}{:9.2}{:9.2}{:9.2}",
            runtime.name,
            runtime.turns.len(),
            of(|turn| turn.create),
            of(|turn| turn.start),
            of(|turn| turn.delete),
            whole(runtime),
            of(|turn| turn.cpu),
            whole(runtime) / crun,
        );
    }
    let smcp = runtimes.iter().find(|runtime| runtime.name == "smcp").map_or(f64::NAN, whole);
    println!("{}: not slower than crun\n", if smcp <= crun { "reached" } else { "missed" });
}

/// Says in which step an error came.
fn because<E: std::fmt::Display>(step: impl std::fmt::Display) -> impl FnOnce(E) -> String {
    move |why| format!("{step}: {why}")
}
