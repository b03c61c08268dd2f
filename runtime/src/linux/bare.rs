//! A cage without namespaces: tier 1, where user namespaces cannot be had.
//!
//! The server runs on the host's own root, of which Landlock leaves it the package's tree, the grants, a home and a directory
//! for temporary files of its own, and the few files that every program reads. The package's paths are resolved into its
//! tree; its program is started by the package's own loader.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use landlock::{ABI, AccessFs, BitFlags};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::cgroup::hold;
use super::guard;
use super::landlock::{Right, readable, writable};
use super::programs::{self, Kind};
use super::wire::Refusal;
use crate::identity::{Identity, Mapping};
use crate::plan::{Exec, Plan, Programs, Provider, Variable, What};
use bundle::{Access, CERTIFICATES, Egress, Secret};

/// What stands in for the mounts of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bare {
    /// Why there are no namespaces.
    pub why: String,
    /// Files and directories that can be read.
    read: Vec<PathBuf>,
    /// Directories and files that can be written.
    write: Vec<PathBuf>,
    /// Files, or directories of them, that can be executed.
    execute: Vec<PathBuf>,
    /// What is granted.
    granted: Vec<(PathBuf, Access)>,
    /// Whether what lies in it can be executed.
    programs: Exec,
    /// RLIMIT_NPROC: there it counts all processes and threads of the uid, also the caller's others.
    pub nproc: u64,
    /// A file that is the server's own and not granted, to try Landlock with.
    pub canary: PathBuf,
    /// TCP ports that can be connected to, at any host.
    pub ports: Vec<u16>,
}

/// Files of the system that programs read wherever they run: names of users and hosts, zones, certificates, locales.
pub const SYSTEM: [&str; 13] = [
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/usr/lib/locale",
    "/usr/lib/ssl",
    "/usr/share/ca-certificates",
    "/usr/share/locale",
    "/usr/share/zoneinfo",
];

/// Where names of the network are asked for, by who may connect.
const RESOLVERS: &str = "/etc/resolv.conf";

/// What of `/proc` is about the machine and not about anybody's processes.
const MACHINE: [&str; 8] = [
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/uptime",
    "/proc/version",
];

/// The devices that every cage has.
const DEVICES: [&str; 5] = ["/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero"];

/// Where the system's programs and libraries are, for a server that may start any.
const PROGRAMS: [&str; 7] = ["/bin", "/etc/alternatives", "/lib", "/lib64", "/opt", "/sbin", "/usr"];

impl Bare {
    /// Before it, a file that can be read can be emptied, and truncate(2) reaches every file of the caller.
    pub const LEAST_ABI: ABI = ABI::V3;

    /// What Landlock leaves of the host's root, for the process that asks.
    pub fn rights(&self) -> Vec<Right> {
        let own = PathBuf::from(format!("/proc/{}", std::process::id()));
        // Debian's python has a link of its library there.
        let of_python = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"python3");
        let settings = fs::read_dir("/etc").into_iter().flatten().flatten().filter(of_python).map(|entry| entry.path());
        let system = SYSTEM.iter().chain(&MACHINE).map(PathBuf::from).chain(settings);
        let names = (!self.ports.is_empty()).then(|| PathBuf::from(RESOLVERS));
        let read =
            self.read.iter().cloned().chain(system).chain([own]).chain(names).map(|path| Right::new(path, readable()));
        let write = self.write.iter().map(|path| Right::new(path, readable() | writable()));
        let program = if self.programs == Exec::Allowed { AccessFs::Execute.into() } else { BitFlags::empty() };
        let granted = self.granted.iter().map(|(path, access)| match access {
            Access::Ro => Right::granted(path, readable() | program),
            Access::Rw => Right::granted(path, readable() | writable() | program),
        });
        let devices = DEVICES.iter().map(|path| Right::new(*path, AccessFs::ReadFile | AccessFs::WriteFile));
        let execute = self.execute.iter().map(|path| Right::new(path, AccessFs::Execute));
        read.chain(write).chain(granted).chain(devices).chain(execute).collect()
    }

    /// What the keeper holds open, so that the kernel does not forget what Landlock's rules are about: a file of `/proc` is
    /// made anew when it was not used for a while.
    pub fn pinned(server: i32) -> Vec<OwnedFd> {
        let paths = MACHINE.iter().map(PathBuf::from).chain([PathBuf::from(format!("/proc/{server}"))]);
        let open = |path: PathBuf| rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        paths.filter_map(open).collect()
    }
}

/// A home and a directory for temporary files on the disk, for one run; dropping it removes them.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
    _held: OwnedFd,
}

impl Place {
    /// Makes it for the run's user, in `base`, and removes what killed runs left there.
    ///
    /// # Errors
    /// The system's.
    pub fn make(base: &Path, run: Ulid, identity: &Identity) -> io::Result<Place> {
        let private = |path: &Path| DirBuilder::new().mode(0o700).recursive(true).create(path);
        private(base)?;
        if identity.mapping == Mapping::Unprivileged {
            let_through(base)?;
        }
        sweep(base);
        let directory = base.join(run.to_string());
        private(&directory)?;
        let place = Place { _held: hold(&directory)?, directory };
        OpenOptions::new().write(true).create_new(true).mode(0o700).open(place.canary())?;
        for path in [place.home(), place.temporary()] {
            private(&path)?;
        }
        let given = [place.home(), place.temporary(), place.canary(), place.directory.clone()];
        given.iter().try_for_each(|path| chown(path, Some(identity.uid), Some(identity.gid)))?;
        Ok(place)
    }

    fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    fn temporary(&self) -> PathBuf {
        self.directory.join("tmp")
    }

    fn certificates(&self) -> PathBuf {
        self.directory.join("certificates.pem")
    }

    fn canary(&self) -> PathBuf {
        self.directory.join("canary")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

/// Removes a tree in which a server may have closed directories.
fn remove(directory: &Path) {
    if fs::remove_dir_all(directory).is_err() {
        open_up(directory);
        let _ = fs::remove_dir_all(directory);
    }
}

fn open_up(directory: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Removes the directories that nobody holds. One that was just made is not held yet.
fn sweep(base: &Path) {
    const YOUNG: Duration = Duration::from_secs(1);
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let made = entry.metadata().and_then(|about| about.modified());
        let young = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < YOUNG));
        if !young && let Ok(_held) = hold(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Lets other users walk through one of root's own directories, without a look at what is in it: the unprivileged user that
/// root's server is reaches the package by path, where no mount brings it.
fn let_through(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(directory)?.permissions().mode();
    fs::set_permissions(directory, fs::Permissions::from_mode(mode | 0o011))
}

/// Turns a plan into one for the host's own root. `why` is what keeps namespaces away.
///
/// # Errors
/// What cannot be had without a root of its own, each with its reason.
pub fn relocate(plan: &Plan, place: &Place, why: &str) -> Result<(Plan, Bare), Refusal> {
    let cannot = |what: String, why: &str| Refusal::new(what, format!("{why} needs a mount namespace"));
    let Some(own_words) = plan.own_words else {
        return Err(cannot("starting a plain image".into(), "an image that smcp did not build"));
    };
    if plan.identity.mapping == Mapping::Unprivileged {
        // The store's: the tree is one of its layers.
        for directory in plan.tree.ancestors().skip(1).take(2) {
            let_through(directory)
                .map_err(|why| Refusal::new(format!("opening a way through {}", directory.display()), why))?;
        }
    }
    let tree = Tree::open(&plan.tree)
        .map_err(|why| Refusal::new(format!("the package's tree {}", plan.tree.display()), why))?;
    let mut bare = Bare {
        why: why.to_owned(),
        read: vec![plan.tree.clone()],
        write: vec![place.home(), place.temporary()],
        execute: Vec::new(),
        granted: Vec::new(),
        programs: if plan.programs == Programs::Any { Exec::Allowed } else { Exec::Denied },
        nproc: guard::tasks_of(plan.identity.uid) + plan.rlimits.nproc,
        canary: place.canary(),
        ports: ports(&plan.egress)?,
    };
    let mut granted = Vec::new();
    // What lies elsewhere than it is called: the run's own directories, which variables and the package's words can name.
    let mut moved = vec![(plan.identity.home.clone(), place.home())];
    if let Some(text) = plan.files.get(Path::new(CERTIFICATES)) {
        let path = place.certificates();
        fs::write(&path, text).map_err(|why| Refusal::new(format!("making {}", path.display()), why))?;
        moved.push((CERTIFICATES.into(), path.clone()));
        bare.read.push(path);
    }
    for mount in &plan.mounts {
        match &mount.what {
            // The files are root's or their owners', and stay so.
            What::Granted { source, from: Provider::User | Provider::State, .. }
                if plan.identity.mapping == Mapping::Unprivileged =>
            {
                let what = format!("the grant {}", source.display());
                return Err(cannot(what, "shifting its owner to root's unprivileged server")
                    .hint("run smcp as an ordinary user, or accept the server as root by --user root"));
            }
            What::Granted { source, access, from: Provider::State, .. } => {
                bare.granted.push((source.clone(), *access));
                moved.retain(|(target, _)| *target != mount.target);
                moved.push((mount.target.clone(), source.clone()));
            }
            What::Granted { source, .. } if *source != mount.target => {
                return Err(cannot(format!("the grant {}", source.display()), "a grant at another path"));
            }
            What::Granted { source, access, .. } => {
                granted.push(source.clone());
                bare.granted.push((source.clone(), *access));
            }
            What::Denied { grant, path } => {
                let what = format!("hiding {}", grant.join(path).display());
                return Err(cannot(what, "Landlock takes nothing out of a grant: a denied directory"));
            }
            What::Private { .. } | What::Proc | What::Devices | What::Terminals | What::SharedMemory { .. } => {}
        }
    }
    let inside = |path: &Path| {
        let own = moved.iter().find_map(|(target, source)| Some(source.join(path.strip_prefix(target).ok()?)));
        match own {
            _ if granted.iter().any(|grant| path.starts_with(grant)) => None,
            // Without the `/` that joining nothing leaves at the end.
            Some(own) => Some(own.components().collect()),
            None => tree.resolve(path),
        }
    };
    let env = environment(plan, place, &inside);
    let search = env.iter().find(|variable| variable.name == "PATH").map_or("", |path| path.value.expose());
    let mut words = plan.command.iter().cloned().enumerate().map(|(index, word)| match inside(Path::new(&word)) {
        Some(path) if index < own_words && word.starts_with('/') => text(&path),
        _ => Ok(word),
    });
    let program = words.next().unwrap_or_else(|| Ok(String::new()))?;
    let arguments = words.collect::<Result<Vec<_>, _>>()?;
    let command = if plan.interpreter.as_deref().is_some_and(|host| Path::new(&program) == host) {
        bare.execute.extend(programs::needed(Path::new(&program), &[], ""));
        [vec![program], arguments].concat()
    } else if program.is_empty() {
        // Nothing is started: the cage is only tried.
        Vec::new()
    } else {
        let started = tree.start(&program, arguments, search, 0)?;
        bare.execute.push(PathBuf::from(&started[0]));
        started
    };
    match &plan.programs {
        Programs::Runtime => {}
        Programs::Named(paths) => {
            for path in paths.iter().map(|path| inside(path).unwrap_or_else(|| path.clone())) {
                bare.execute.extend(programs::needed(&path, &[], search));
                bare.read.extend(["/lib", "/lib64", "/usr/lib"].map(PathBuf::from));
            }
        }
        Programs::Any => {
            let all = PROGRAMS.iter().map(PathBuf::from);
            bare.execute.extend(all.clone().chain(bare.read.clone()).chain(bare.write.clone()));
            bare.read.extend(all);
        }
    }
    let workdir = inside(&plan.workdir).unwrap_or_else(|| plan.workdir.clone());
    Ok((Plan { command, env, workdir, ..plan.clone() }, bare))
}

/// The TCP ports of what is granted, with that at which names are asked for: Landlock knows no hosts.
fn ports(egress: &Egress) -> Result<Vec<u16>, Refusal> {
    const DNS: u16 = 53;
    let refuse = |what: &str, why: &str, hint: &str| Err(Refusal::new(what, why).hint(hint));
    let rest = "or allow user namespaces, as `smcp doctor --fix` shows";
    if egress.grants_nothing() {
        return Ok(Vec::new());
    }
    if egress.any {
        let why = "this machine's own services are kept apart by a network namespace alone";
        return refuse("connecting anywhere", why, &format!("name what is to be reached by --allow-net, {rest}"));
    }
    if !egress.by_port {
        let why = "hosts are told apart by a network namespace alone; Landlock knows ports";
        let hint = format!("accept any host on the granted ports by --net-by-port, {rest}");
        return refuse("connecting out by name", why, &hint);
    }
    let named = egress.outbound.iter().flat_map(|outbound| &outbound.ports).chain(&egress.host_ports).copied();
    let mut ports: Vec<u16> = named.chain([DNS]).collect();
    ports.sort_unstable();
    ports.dedup();
    Ok(ports)
}

/// The server's variables with its own home, and with what names the package's paths resolved.
fn environment(plan: &Plan, place: &Place, inside: &dyn Fn(&Path) -> Option<PathBuf>) -> Vec<Variable> {
    let list = |value: &str| {
        let one = |path: &str| {
            let found = path.starts_with('/').then(|| inside(Path::new(path))).flatten();
            found.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| path.to_owned())
        };
        value.split(':').map(one).collect::<Vec<_>>().join(":")
    };
    let of = |variable: &Variable| {
        let value = variable.value.expose();
        if value.starts_with('/') { Secret::new(list(value)) } else { variable.value.clone() }
    };
    let mut env: Vec<Variable> =
        plan.env.iter().map(|variable| Variable { name: variable.name.clone(), value: of(variable) }).collect();
    let mut add = |name: &str, value: String| {
        if !env.iter().any(|variable| variable.name == name) {
            env.push(Variable { name: name.into(), value: Secret::new(value) });
        }
    };
    add("TMPDIR", place.temporary().display().to_string());
    if !plan.egress.grants_nothing() {
        // Datagrams are refused, which glibc asks for names by. Other resolvers find none.
        add("RES_OPTIONS", "use-vc".into());
    }
    // git ends where the system's settings are there and closed; in a root of its own there are none.
    add("GIT_CONFIG_NOSYSTEM", "1".into());
    env
}

fn text(path: &Path) -> Result<String, Refusal> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Refusal::new(format!("the path {}", path.display()), "it is not UTF-8"))
}

/// The package's files on the host.
struct Tree {
    directory: OwnedFd,
    path: PathBuf,
}

/// Where the libraries of a package are, in the order of the usual loaders.
const LIBRARIES: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

impl Tree {
    fn open(path: &Path) -> io::Result<Tree> {
        let directory = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Tree { directory, path: path.to_owned() })
    }

    /// The path on the host of what a path inside leads to, with the tree as the root of every link.
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        use std::os::fd::AsRawFd;
        let path = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
        path.starts_with(&self.path).then_some(path)
    }

    /// The command that starts a program of the package: scripts by their interpreters, those by the loader, all of them
    /// the package's own.
    fn start(&self, program: &str, arguments: Vec<String>, search: &str, depth: usize) -> Result<Vec<String>, Refusal> {
        // As many as the kernel follows.
        const DEEPEST: usize = 5;
        let fail = |why: String| Refusal::new(format!("starting {program} without a mount namespace"), why);
        if depth > DEEPEST {
            return Err(fail("its interpreters are scripts themselves".into()));
        }
        let found = match Path::new(program).starts_with(&self.path) {
            true => Some(program.into()),
            false if program.contains('/') => self.resolve(Path::new(program)),
            false => programs::find(program, search),
        };
        let file = found.ok_or_else(|| fail("it is not in the package".into()))?;
        match programs::read(&file).map_err(|why| fail(why.to_string()))? {
            Kind::Script { interpreter, argument } if interpreter.ends_with("env") => {
                let words = argument.unwrap_or_default();
                let mut words =
                    words.split_whitespace().filter(|word| *word != "-S" && !word.contains('=')).map(str::to_owned);
                let name = words.next().ok_or_else(|| fail("its first line names no program".into()))?;
                let rest = words.chain([text(&file)?]).chain(arguments).collect();
                self.start(&name, rest, search, depth + 1)
            }
            Kind::Script { interpreter, argument } => {
                let rest = argument.into_iter().chain([text(&file)?]).chain(arguments).collect();
                self.start(&text(&interpreter)?, rest, search, depth + 1)
            }
            Kind::Elf { loader: Some(loader) } => {
                let own = self
                    .resolve(&loader)
                    .ok_or_else(|| fail(format!("its loader {} is not in the package", loader.display())))?;
                let libraries: Vec<String> =
                    LIBRARIES.iter().filter_map(|path| text(&self.resolve(Path::new(path))?).ok()).collect();
                let file = text(&file)?;
                let by_loader = [
                    text(&own)?,
                    "--library-path".into(),
                    libraries.join(":"),
                    // Python finds its own files by it.
                    "--argv0".into(),
                    file.clone(),
                    file,
                ];
                Ok(by_loader.into_iter().chain(arguments).collect())
            }
            Kind::Elf { loader: None } | Kind::Other => Ok([text(&file)?].into_iter().chain(arguments).collect()),
        }
    }
}
