//! How long it takes to fetch, verify and unpack an image, by smcp and by what it is compared with: skopeo and umoci, podman,
//! containerd, and the floor, which is what the CPU has to do in any case: hash, inflate, hash, make files.
//!
//! `cargo bench -p smcp --bench pull [-- --runs N] [--json FILE] [--binary SMCP] [--alone]`, as root: for podman's and containerd's
//! overlays, and for a file system of its own, in a file in `/var/tmp`, mounted for the benchmark alone. ext4 makes files many times slower for minutes
//! where thousands were deleted, and syncfs(2) would wait for what others have written. What it brings to the disk goes there by direct
//! I/O: else a loop device writes it into another page cache first, by CPU time that no disk takes. All take turns, each turn in fresh directories that
//! stay until the end. What an earlier turn has left to be written is on the disk before the next one starts, and how long that takes is
//! measured: smcp alone waits for the disk by itself.

mod pull_image;
mod sys;

use std::fmt::Display;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use pull_image::{Form, Made};

/// An error is told and nothing more: nobody handles it.
pub type Result<T> = std::result::Result<T, String>;

/// Programs that are measured or serve, and the package of Debian that has each.
const PEERS: [(&str, &str); 6] = [
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
    ("podman", "podman"),
    ("ctr", "containerd"),
    ("containerd", "containerd"),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, layout, into, registry @ ..] = &arguments[..]
        && word == "--floor"
    {
        return told(pull_image::floor(Path::new(layout), Path::new(into), registry.first().map(String::as_str)));
    }
    // `cargo test --all-targets` starts benchmarks too, without this word.
    if !arguments.iter().any(|word| word == "--bench") {
        println!("pull: measured by `cargo bench` only");
        return ExitCode::SUCCESS;
    }
    told(on_a_file_system_of_its_own(&arguments))
}

/// Measures in another process, for which the new file system is mounted.
fn on_a_file_system_of_its_own(arguments: &[String]) -> Result<()> {
    if let Some(place) = option(arguments, "--place") {
        return measure(arguments, Path::new(place));
    }
    let missing: Vec<_> = PEERS.iter().filter(|(program, _)| !in_path(program)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        return Err(format!("what smcp is compared with is missing: apt-get install {}", missing.join(" ")));
    }
    if !rustix::process::geteuid().is_root() {
        return Err("only root can mount a file system and have overlays".into());
    }
    let outside = tempfile::Builder::new().prefix("smcp-bench-").tempdir_in("/var/tmp").map_err(because("/var/tmp"))?;
    let (image, place) = (outside.path().join("disk"), outside.path().join("m"));
    fs::create_dir(&place).map_err(because("making a directory"))?;
    File::create(&image).and_then(|file| file.set_len(40 << 30)).map_err(because("making a disk"))?;
    quietly(&mut with("mkfs.ext4", ["-q".as_ref(), image.as_os_str()]))?;
    let own = std::env::current_exe().map_err(because("finding this program"))?;
    let mount = r#"set -e
        mount -o loop "$0" "$1"
        losetup --direct-io=on "$(losetup --noheadings --output NAME --associated "$0")"
        place=$1 own=$2
        shift 2
        exec "$own" --place "$place" "$@""#;
    let mut measuring = with("unshare", ["--mount", "--", "sh", "-c", mount]);
    measuring.args([image.as_os_str(), place.as_os_str(), own.as_os_str()]).args(arguments);
    let ended = measuring.status().map_err(because("unshare"))?;
    if ended.success() { Ok(()) } else { Err(format!("the measuring process ended with {ended}")) }
}

fn option<'a>(arguments: &'a [String], name: &str) -> Option<&'a String> {
    arguments.iter().position(|word| word == name).and_then(|at| arguments.get(at + 1))
}

fn told(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[String], place: &Path) -> Result<()> {
    let runs: usize = option(arguments, "--runs").map_or(Ok(3), |text| text.parse()).map_err(because("--runs"))?;
    let smcp = option(arguments, "--binary").map_or(env!("CARGO_BIN_EXE_smcp"), String::as_str);
    let world = World::furnish(place, smcp)?;
    let mut report = Vec::new();
    for form in [Form::Gzip, Form::Zstd] {
        let made = world.publish(form)?;
        let mut contenders: Vec<Contender> = NAMES
            .iter()
            .filter(|name| knows(name, form) && takes_part(name, arguments))
            .map(|name| Contender::new(name))
            .collect();
        for round in 0..runs {
            for contender in &mut contenders {
                contender.takes_its_turn(&world, &made, round)?;
            }
        }
        let memory = world.memory_of_smcp(&made)?;
        let summary = Summary { made, contenders, memory };
        print!("{summary}");
        report.push(summary.to_json());
    }
    match option(arguments, "--json") {
        Some(file) => fs::write(file, json!({"runs": runs, "forms": report}).to_string()).map_err(because(file)),
        None => Ok(()),
    }
}

/// All of them, or with `--alone` smcp and the floor.
fn takes_part(name: &str, arguments: &[String]) -> bool {
    ["floor", KEPT, "smcp pull"].contains(&name) || !arguments.iter().any(|word| word == "--alone")
}

/// In the order of their turns. The floor is the first: all others are compared with it.
const NAMES: [&str; 6] = ["floor", KEPT, "smcp pull", "skopeo and umoci", "podman pull", "ctr images pull"];

/// The floor of who has nothing at first, and keeps what is packed too: the same bytes come from the registry and go into a file as well.
const KEPT: &str = "floor, kept";

/// umoci 0.4 unpacks no zstd.
fn knows(name: &str, form: Form) -> bool {
    form == Form::Gzip || !name.contains("umoci")
}

/// One of them, and what its turns took.
struct Contender {
    name: &'static str,
    wall: Vec<Duration>,
    /// Until what it made is on the disk, whether it waits for that or not.
    durable: Vec<Duration>,
    /// User and system time of all its processes; containerd's daemon included.
    cpu: Vec<Duration>,
}

impl Contender {
    fn new(name: &'static str) -> Contender {
        Contender { name, wall: Vec::new(), durable: Vec::new(), cpu: Vec::new() }
    }

    fn takes_its_turn(&mut self, world: &World, made: &Made, round: usize) -> Result<()> {
        let directory = world.place(&format!("{}-{}-{round}", self.name.replace([' ', ','], "-"), made.tag))?;
        let at = |name: &str| directory.join(name).display().to_string();
        let reference = world.reference(made);
        let steps: Vec<Command> = match self.name {
            "floor" | KEPT => {
                let own = std::env::current_exe().map_err(because("finding this program"))?;
                let mut floor =
                    with(own, ["--floor", &made.layout.display().to_string(), &directory.display().to_string()]);
                floor.args((self.name == KEPT).then(|| format!("127.0.0.1:{}", world.port)));
                vec![floor]
            }
            "smcp pull" => vec![world.smcp(&directory, &reference)],
            "skopeo and umoci" => {
                let image = format!("{}:v", at("layout"));
                let source = format!("docker://{reference}");
                vec![
                    with("skopeo", ["copy", "--quiet", "--src-tls-verify=false", &source, &format!("oci:{image}")]),
                    with("umoci", ["unpack", "--image", &image, &at("bundle")]),
                ]
            }
            "podman pull" => {
                // podman takes no run root of more than 50 characters.
                let run = world.place(&format!("r{}{round}", made.tag))?.display().to_string();
                let places = ["--root", &at("root"), "--runroot", &run].map(String::from);
                let pull = ["--storage-driver", "overlay", "pull", "--quiet", "--tls-verify=false"];
                let mut podman = with("podman", places);
                podman.args(pull).arg(&reference);
                vec![podman]
            }
            _ => vec![with("ctr", ["--address", &at("socket"), "images", "pull", "--plain-http", &reference])],
        };
        let daemon = if self.name.starts_with("ctr") { Some(Daemon::start(&directory)?) } else { None };
        // What others have left to be written is not this one's to wait for.
        let disk = File::open(&directory).map_err(because("opening a directory"))?;
        rustix::fs::syncfs(&disk).map_err(because("syncfs"))?;
        let (cpu_before, start) = (sys::cpu_of_children(), Instant::now());
        for mut step in steps {
            quietly(&mut step)?;
        }
        self.wall.push(start.elapsed());
        rustix::fs::syncfs(&disk).map_err(because("syncfs"))?;
        self.durable.push(start.elapsed());
        // The daemon's time is told once it was waited for.
        drop(daemon);
        self.cpu.push(sys::cpu_of_children().saturating_sub(cpu_before));
        Ok(())
    }

    fn middle(times: &[Duration]) -> f64 {
        let mut sorted = times.to_vec();
        sorted.sort();
        sorted.get(sorted.len() / 2).map_or(f64::NAN, Duration::as_secs_f64)
    }
}

/// The directory, the registry.
struct World {
    directory: PathBuf,
    smcp: PathBuf,
    registry: Child,
    port: u16,
}

impl World {
    fn furnish(directory: &Path, smcp: &str) -> Result<World> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(because("a free port"))?;
        let port = listener.local_addr().map_err(because("a free port"))?.port();
        drop(listener);
        let config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n\
             http: {{addr: '127.0.0.1:{port}'}}\n",
            directory.join("registry").display()
        );
        let file = directory.join("registry.yml");
        fs::write(&file, config).map_err(because("writing a configuration"))?;
        let registry = with("docker-registry", ["serve", &file.display().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(because("docker-registry"))?;
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        wait_until("docker-registry", answers)?;
        Ok(World { directory: directory.to_owned(), smcp: smcp.into(), registry, port })
    }

    fn place(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        fs::create_dir(&path).map_err(because(path.display()))?;
        Ok(path)
    }

    /// Makes the image in one form and puts it into the registry.
    fn publish(&self, form: Form) -> Result<Made> {
        let made = pull_image::make(&self.place(&format!("image-{form:?}"))?, form)?;
        let (from, to) = (format!("oci:{}:v", made.layout.display()), format!("docker://{}", self.reference(&made)));
        // Without that it puts layers that it has sent before in the place of those that are packed otherwise.
        quietly(&mut with("skopeo", ["copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false", &from, &to]))?;
        Ok(made)
    }

    fn reference(&self, made: &Made) -> String {
        format!("localhost:{}/bench/image:{}", self.port, made.tag)
    }

    fn smcp(&self, directory: &Path, reference: &str) -> Command {
        let mut smcp = with(&self.smcp, ["--quiet", "pull", reference]);
        smcp.env("MCP_CACHE_DIR", directory.join("store")).env("HOME", directory);
        smcp
    }

    /// The most memory of all processes of a pull together, shared pages counted for each, in bytes: in a turn of its own, since
    /// to look costs time.
    fn memory_of_smcp(&self, made: &Made) -> Result<u64> {
        let directory = self.place(&format!("memory-{}", made.tag))?;
        let mut child = silent(&mut self.smcp(&directory, &self.reference(made))).spawn().map_err(because("smcp"))?;
        let mut most = 0;
        loop {
            most = most.max(memory_of_tree(child.id()));
            if child.try_wait().map_err(because("smcp"))?.is_some() {
                return Ok(most);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.registry.kill();
        let _ = self.registry.wait();
    }
}

/// containerd with everything in one directory, as nobody else uses it.
struct Daemon(Child);

impl Daemon {
    fn start(directory: &Path) -> Result<Daemon> {
        let at = |name: &str| directory.join(name).display().to_string();
        let config = "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n";
        fs::write(directory.join("config.toml"), config).map_err(because("writing a configuration"))?;
        let words = ["--config", &at("config.toml"), "--root", &at("root"), "--state", &at("state")].map(String::from);
        let mut containerd = with("containerd", words);
        let daemon =
            Daemon(silent(containerd.args(["--address", &at("socket")])).spawn().map_err(because("containerd"))?);
        let answers = || quietly(&mut with("ctr", ["--address", &at("socket"), "version"])).is_ok();
        wait_until("containerd", answers)?;
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// What all of it comes to.
struct Summary {
    made: Made,
    contenders: Vec<Contender>,
    memory: u64,
}

impl Summary {
    /// Name, seconds until it ends, until all is on the disk, and of CPU.
    fn rows(&self) -> Vec<(&'static str, [f64; 3])> {
        let of = |c: &Contender| (c.name, [&c.wall, &c.durable, &c.cpu].map(|times| Contender::middle(times)));
        self.contenders.iter().map(of).collect()
    }

    fn to_json(&self) -> Value {
        let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
        let row = |c: &Contender| {
            let [wall, durable, cpu] = [&c.wall, &c.durable, &c.cpu].map(|times| seconds(times));
            json!({"name": c.name, "wall": wall, "durable": durable, "cpu": cpu})
        };
        json!({
            "form": self.made.tag, "bytes": self.made.bytes, "packed": self.made.packed, "files": self.made.files,
            "memory": self.memory, "contenders": self.contenders.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mega = |bytes: u64| bytes as f64 / 1e6;
        let Made { tag, bytes, packed, files, .. } = &self.made;
        let (bytes, packed) = (mega(*bytes), mega(*packed));
        writeln!(f, "\n{tag}: {bytes:.0} MB, {packed:.0} MB packed, {files} files, four layers; medians")?;
        let rows = self.rows();
        let ((_, floor), (_, smcp)) = (rows[0], rows[1]);
        let forms = |of: &[f64; 3], to: &[f64; 3]| {
            let [wall, durable, cpu] = [0, 1, 2].map(|at| of[at] / to[at]);
            format!("× {wall:5.2} {durable:5.2} {cpu:5.2}")
        };
        writeln!(f, "seconds until it ends, until all is on the disk, of CPU; the same × the floor's, and × smcp's")?;
        for (name, row @ [wall, durable, cpu]) in &rows {
            let (of_floor, of_smcp) = (forms(row, &floor), forms(row, &smcp));
            writeln!(f, "{name:18} {wall:6.2} {durable:6.2} {cpu:6.2}   floor {of_floor}   smcp {of_smcp}")?;
        }
        writeln!(f, "memory of smcp's processes together: {:.0} MB at most", mega(self.memory))
    }
}

/// Says in which step an error came.
pub fn because<E: Display>(step: impl Display) -> impl FnOnce(E) -> String {
    move |why| format!("{step}: {why}")
}

fn with<A: AsRef<std::ffi::OsStr>>(
    program: impl AsRef<std::ffi::OsStr>,
    words: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program);
    command.args(words);
    command
}

fn silent(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn quietly(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(because(&shown))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{shown} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

fn wait_until(what: &str, answers: impl Fn() -> bool) -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(30);
    while !answers() {
        if Instant::now() > patience {
            return Err(format!("{what} does not answer"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Resident memory of a process and its children, in bytes.
fn memory_of_tree(pid: u32) -> u64 {
    let resident = |pid: u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages * 4096)
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.flat_map(|task| {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()).collect::<Vec<_>>()
    });
    resident(pid).unwrap_or(0) + children.filter_map(resident).sum::<u64>()
}
