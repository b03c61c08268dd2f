//! A plan for the host's own root, where a platform has no other to give: what of it lies where, and what the server may do with it.
//!
//! The paths of the package lead into its tree, HOME and the directory of temporary files are the run's own. What needs a root of
//! its own is refused, each with its reason.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::path::{Component, Path, PathBuf};

use bundle::{Access, CERTIFICATES, Egress};
use distribution::system::{self, DirBuilderExt as _, Directory, Hold};
use ulid::Ulid;

use crate::interpreter::literal;
use crate::plan::{Plan, Programs, Provider, What};
use crate::refusal::Refusal;

/// A server and what it may reach, by paths of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Local {
    /// Its program; none where the cage is only tried.
    pub program: Option<PathBuf>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where it starts.
    pub workdir: PathBuf,
    /// All of its variables.
    pub env: Vec<(String, String)>,
    /// Files and directories that it reads.
    pub read: BTreeSet<PathBuf>,
    /// Files and directories that it reads and writes.
    pub write: BTreeSet<PathBuf>,
    /// Directories in all that, of which it sees nothing.
    pub denied: BTreeSet<PathBuf>,
    /// What it executes.
    pub execute: Execute,
    /// TCP ports that it connects to, at any host.
    pub ports: BTreeSet<u16>,
    /// The same of this machine's loopback.
    pub host_ports: BTreeSet<u16>,
}

/// What a server executes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execute {
    /// These files, and what lies in these directories.
    These(BTreeSet<PathBuf>),
    /// Whatever it can read.
    All,
}

impl Default for Execute {
    fn default() -> Execute {
        Execute::These(BTreeSet::new())
    }
}

/// A home and a directory for temporary files, for one run; dropping it removes them.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
    /// `None` once it is being removed.
    held: Option<Directory>,
}

impl Place {
    /// Makes it in `base`, and removes what killed runs left there.
    ///
    /// # Errors
    /// The system's.
    pub fn make(base: &Path, run: Ulid) -> io::Result<Place> {
        let private = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        private(base)?;
        for entry in fs::read_dir(base)?.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.parse::<Ulid>().is_ok()) {
                sweep(&entry.path());
            }
        }
        let directory = base.join(run.to_string());
        private(&directory)?;
        let held = Some(system::hold_directory(&directory, Hold::Alone)?);
        let place = Place { directory, held };
        private(&place.home())?;
        private(&place.temporary())?;
        Ok(place)
    }

    /// HOME.
    pub fn home(&self) -> PathBuf {
        self.directory.join("home")
    }

    /// For temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.directory.join("tmp")
    }

    /// A file that is nobody's to read, to try a cage with.
    #[cfg(target_os = "macos")]
    pub fn canary(&self) -> PathBuf {
        self.directory.join("canary")
    }

    fn certificates(&self) -> PathBuf {
        self.directory.join("certificates.pem")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.held = None;
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes the directory of a run that nobody holds. One that was just made may not be held yet.
fn sweep(directory: &Path) {
    const YOUNG: std::time::Duration = std::time::Duration::from_secs(1);
    let made = directory.metadata().and_then(|about| about.modified());
    let young = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < YOUNG));
    if !young && let Some(held) = system::try_hold(directory) {
        drop(held);
        let _ = fs::remove_dir_all(directory);
    }
}

/// Turns a plan into one for the host's own root.
///
/// # Errors
/// What cannot be had without a root of its own.
pub fn relocate(plan: &Plan, place: &Place) -> Result<Local, Refusal> {
    let cannot = |what: String, why: &str| Refusal::new(what, format!("{why} needs Linux"));
    let Some(own_words) = plan.own_words else {
        return Err(cannot("starting a plain image".into(), "an image that smcp did not build"));
    };
    let mut local = Local {
        read: [plan.tree.clone()].into(),
        write: [place.home(), place.temporary()].into(),
        execute: match plan.programs {
            Programs::Any => Execute::All,
            Programs::Runtime | Programs::Named(_) => Execute::default(),
        },
        ..Local::default()
    };
    (local.ports, local.host_ports) = ports(&plan.egress)?;
    // What lies elsewhere than it is called.
    let mut moved = vec![(plan.identity.home.clone(), place.home())];
    let mut granted = Vec::new();
    if let Some(text) = plan.files.get(Path::new(CERTIFICATES)) {
        let path = place.certificates();
        fs::write(&path, text).map_err(|why| Refusal::new(format!("making {}", path.display()), why))?;
        moved.push((CERTIFICATES.into(), path.clone()));
        local.read.insert(path);
    }
    for mount in &plan.mounts {
        match &mount.what {
            What::Granted { source, access, from, .. } => {
                match from {
                    Provider::State => {
                        moved.retain(|(target, _)| *target != mount.target);
                        moved.push((mount.target.clone(), source.clone()));
                    }
                    _ if *source != mount.target => {
                        return Err(cannot(format!("the grant {}", source.display()), "a grant at another path"));
                    }
                    Provider::User => granted.push(source.clone()),
                    Provider::Host => {}
                }
                match access {
                    Access::Ro => local.read.insert(source.clone()),
                    Access::Rw => local.write.insert(source.clone()),
                };
            }
            What::Denied { grant, path } => drop(local.denied.insert(grant.join(path))),
            What::Private { .. } | What::Proc | What::Devices | What::Terminals | What::SharedMemory { .. } => {}
        }
    }
    let inside = |path: &str| {
        let path = Path::new(path);
        let own = moved.iter().find_map(|(target, source)| Some(join(source, path.strip_prefix(target).ok()?)));
        match own {
            _ if granted.iter().any(|grant| path.starts_with(grant)) => None,
            Some(own) => Some(own),
            None => in_tree(&plan.tree, path),
        }
    };
    local.env = environment(plan, place, &inside);
    local.workdir = inside(&plan.workdir.to_string_lossy()).unwrap_or_else(|| plan.workdir.clone());
    let mut words = plan.command.iter().enumerate().map(|(index, word)| match inside(word) {
        Some(path) if index < own_words && is_of_a_package(word) => path.to_string_lossy().into_owned(),
        _ => word.clone(),
    });
    local.program = words.next().map(PathBuf::from);
    local.arguments = words.collect();
    if let Execute::These(files) = &mut local.execute {
        files.extend(local.program.clone());
        if let Programs::Named(paths) = &plan.programs {
            files.extend(paths.iter().map(|path| inside(&path.to_string_lossy()).unwrap_or_else(|| path.clone())));
        }
    }
    Ok(local)
}

/// Packages' paths are those of Linux, wherever they run.
fn is_of_a_package(path: &str) -> bool {
    path.starts_with('/')
}

/// Without the divider that joining nothing leaves at the end.
fn join(directory: &Path, rest: &Path) -> PathBuf {
    directory.join(rest).components().collect()
}

/// Where a path of the package lies on the host, its links followed; none that leads out of the tree.
fn in_tree(tree: &Path, path: &Path) -> Option<PathBuf> {
    let below: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    if !is_of_a_package(&path.to_string_lossy()) || path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let real = literal(fs::canonicalize(tree.join(below)).ok()?);
    real.starts_with(literal(fs::canonicalize(tree).ok()?)).then_some(real)
}

/// The TCP ports of what is granted at any host, and of this machine: hosts cannot be told apart.
fn ports(egress: &Egress) -> Result<(BTreeSet<u16>, BTreeSet<u16>), Refusal> {
    let host_ports = egress.host_ports.iter().copied().collect();
    if egress.any {
        return Err(Refusal::new("connecting anywhere", "this machine's own services are kept apart on Linux alone")
            .hint("name what is to be reached by --allow-net, with --net-by-port"));
    }
    if !egress.outbound.is_empty() && !egress.by_port {
        return Err(Refusal::new(
            "connecting out by name",
            "hosts are told apart on Linux alone; this platform knows ports",
        )
        .hint("accept any host on the granted ports by --net-by-port"));
    }
    Ok((egress.outbound.iter().flat_map(|outbound| outbound.ports.iter().copied()).collect(), host_ports))
}

/// The server's variables with its own home, and with what names the package's paths resolved.
fn environment(plan: &Plan, place: &Place, inside: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<(String, String)> {
    let divider = if cfg!(windows) { ";" } else { ":" };
    let list = |value: &str| {
        let one = |path: &str| match inside(path).filter(|_| is_of_a_package(path)) {
            Some(path) => path.to_string_lossy().into_owned(),
            None => path.to_owned(),
        };
        value.split(':').map(one).collect::<Vec<_>>().join(divider)
    };
    let mut env: Vec<(String, String)> = plan
        .env
        .iter()
        .map(|variable| (variable.name.clone(), variable.value.expose()))
        .map(|(name, value)| (name, if is_of_a_package(value) { list(value) } else { value.to_owned() }))
        .collect();
    let (home, temporary) = (place.home().display().to_string(), place.temporary().display().to_string());
    let own = match cfg!(windows) {
        false => vec![("HOME", home), ("TMPDIR", temporary)],
        true => vec![
            ("APPDATA", format!(r"{home}\AppData\Roaming")),
            ("LOCALAPPDATA", format!(r"{home}\AppData\Local")),
            ("USERPROFILE", home.clone()),
            ("HOME", home),
            ("TEMP", temporary.clone()),
            ("TMP", temporary),
        ],
    };
    for (name, value) in own {
        match env.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, known)) if name == "HOME" => *known = value,
            Some(_) => {}
            None => env.push((name.into(), value)),
        }
    }
    env
}
