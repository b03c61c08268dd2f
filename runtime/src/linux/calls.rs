//! What a server asks for of files and programs, for `smcp learn`: calls that name a path are told to the supervisor, which
//! notes the path and lets each go on, seccomp_unotify(2). It decides nothing: namespaces, Landlock and the filter's other
//! answers do, as in every run, so that a path which changes after it was read harms nobody.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::thread::JoinHandle;

use bundle::Access;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::bare::SYSTEM;
use super::programs;
use super::seccomp;
use super::sockets;
use super::sys::{self, Instruction};
use super::wire::Order;
use crate::plan::{Mount, Plan, What};

pub use crate::outcome::{Asked, AskedPath, Recording};

/// A call that is told.
pub struct Row {
    /// Its name in the table of calls.
    pub call: &'static str,
    /// The argument that is a directory's descriptor.
    directory: Option<usize>,
    /// The argument that is the path.
    path: usize,
    means: Means,
}

/// What naming a path in a call is for.
#[derive(Clone, Copy)]
enum Means {
    Look,
    Write,
    Run,
    /// As the flags of open(2) in this argument say.
    Flags(usize),
}

const fn row(call: &'static str, directory: Option<usize>, path: usize, means: Means) -> Row {
    Row { call, directory, path, means }
}

/// Calls by which programs come to files. A call with two paths has two rows.
pub const TOLD: [Row; 26] = [
    row("access", None, 0, Means::Look),
    row("chdir", None, 0, Means::Look),
    row("creat", None, 0, Means::Write),
    row("execve", None, 0, Means::Run),
    row("execveat", Some(0), 1, Means::Run),
    row("faccessat", Some(0), 1, Means::Look),
    row("faccessat2", Some(0), 1, Means::Look),
    row("lstat", None, 0, Means::Look),
    row("mkdir", None, 0, Means::Write),
    row("mkdirat", Some(0), 1, Means::Write),
    row("newfstatat", Some(0), 1, Means::Look),
    row("open", None, 0, Means::Flags(1)),
    row("openat", Some(0), 1, Means::Flags(2)),
    row("readlink", None, 0, Means::Look),
    row("readlinkat", Some(0), 1, Means::Look),
    row("rename", None, 0, Means::Write),
    row("rename", None, 1, Means::Write),
    row("renameat", Some(0), 1, Means::Write),
    row("renameat", Some(2), 3, Means::Write),
    row("renameat2", Some(0), 1, Means::Write),
    row("renameat2", Some(2), 3, Means::Write),
    row("stat", None, 0, Means::Look),
    row("statx", Some(0), 1, Means::Look),
    row("truncate", None, 0, Means::Write),
    row("unlink", None, 0, Means::Write),
    row("unlinkat", Some(0), 1, Means::Write),
];

/// As the server's process: tells which programs are its own, before its calls are told.
pub fn tell_own(order: &Order, program: Option<&Path>, teller: &OwnedFd) {
    let arguments = order.plan.command.get(1..).unwrap_or_default();
    let own = program.map(|program| programs::needed(program, arguments, order.search_path())).unwrap_or_default();
    let own: Vec<_> = own.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
    let text = own.iter().map(|path| path.as_os_str().as_bytes()).collect::<Vec<_>>().join(&0);
    // What does not arrive is missed by the supervisor.
    let _ = rustix::net::send(teller, &text, SendFlags::NOSIGNAL);
}

/// As the server's process: installs a filter that tells, and gives the supervisor the descriptor that it hears by. Where the
/// kernel has none to give, it is told why, and the filter tells nothing.
///
/// # Errors
/// Where the kernel takes no filter, or the supervisor is gone.
pub fn install(filter: &[Instruction], teller: &OwnedFd) -> io::Result<()> {
    match sys::install_told_filter(filter) {
        Ok(listener) => sockets::give_or_explain(teller, Ok(vec![listener])),
        Err(why) => {
            sys::install_filter(&seccomp::untold(filter))?;
            sockets::give_or_explain(teller, Err(Errno::from_io_error(&why).unwrap_or(Errno::IO)))
        }
    }
}

/// The supervisor's end, until the cage is measured.
#[derive(Debug)]
pub struct Recorder(OwnedFd);

impl Recorder {
    /// The supervisor's end, and that of the server's process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pair() -> io::Result<(Recorder, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Recorder(ours), theirs))
    }

    /// What the server's process gave before it said that it is ready; the reason where it could not.
    pub fn listener(&self, has_namespaces: bool, plan: &Plan) -> Result<Listener, String> {
        if !has_namespaces {
            return Err("without namespaces paths inside and outside are the same files".into());
        }
        let fail = |why: io::Error| format!("the kernel tells of no calls: {why}");
        let mut own = [0_u8; OWN];
        let length = rustix::io::read(&self.0, &mut own).map_err(|why| fail(why.into()))?;
        let own = own[..length].split(|byte| *byte == 0).map(|path| OsString::from_vec(path.to_vec()).into());
        let own = own.collect();
        let (failed, listener) = sockets::receive(&self.0).map_err(fail)?;
        if failed != 0 {
            return Err(fail(io::Error::from_raw_os_error(failed)));
        }
        let listener = listener.into_iter().next().ok_or_else(|| fail(io::ErrorKind::UnexpectedEof.into()))?;
        Ok(Listener { listener, heard: Heard::new(plan, own) })
    }
}

/// Room for the paths of a server's own programs.
const OWN: usize = 64 << 10;

/// What hears a server's calls, and has not begun.
#[derive(Debug)]
pub struct Listener {
    listener: OwnedFd,
    heard: Heard,
}

impl Listener {
    /// Begins, on a thread of its own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(self) -> io::Result<Listening> {
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC)?;
        let Listener { listener, mut heard } = self;
        let thread = std::thread::Builder::new().name("smcp-calls".into()).spawn(move || {
            hear_all(&listener, &stopped, &mut heard);
            heard
        })?;
        Ok(Listening { stop, thread })
    }
}

/// What hears a server's calls. Dropping it lets all that still come fail.
#[derive(Debug)]
pub struct Listening {
    stop: OwnedFd,
    thread: JoinHandle<Heard>,
}

impl Listening {
    /// Ends, once the server has, and looks what of the paths is on the host.
    pub fn stop(self) -> Asked {
        drop(self.stop);
        self.thread.join().map(Heard::sum).unwrap_or_default()
    }
}

fn hear_all(listener: &OwnedFd, stopped: &OwnedFd, heard: &mut Heard) {
    let mut rows: HashMap<u32, Vec<&Row>> = HashMap::new();
    for row in &TOLD {
        if let Some(number) = seccomp::number(row.call) {
            rows.entry(number).or_default().push(row);
        }
    }
    // What comes before are smcp's own last steps.
    let mut is_the_servers = false;
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(stopped, PollFlags::empty())];
        let polled = poll(&mut fds, None);
        let over = !matches!(polled, Ok(_) | Err(Errno::INTR)) || !fds[1].revents().is_empty();
        if over || fds[0].revents().contains(PollFlags::HUP) {
            return;
        }
        // A caller that was killed meanwhile wants no answer.
        if fds[0].revents().contains(PollFlags::IN)
            && let Ok(told) = sys::take_told(listener)
        {
            let of_call = rows.get(&told.number).map_or(&[][..], Vec::as_slice);
            let named: Vec<_> =
                of_call.iter().filter_map(|row| Some((read_path(row, &told)?, row.purpose(&told)))).collect();
            // What was read of another process that has the caller's id by now is not kept.
            let is_its = sys::still_waits(listener, &told);
            let _ = sys::let_go_on(listener, &told);
            if !is_the_servers {
                is_the_servers = of_call.iter().any(|row| matches!(row.means, Means::Run));
            } else if is_its {
                named.into_iter().for_each(|(path, purpose)| heard.take(path, purpose));
            }
        }
    }
}

impl Row {
    fn purpose(&self, told: &sys::Told) -> Purpose {
        match self.means {
            Means::Look => Purpose::Look,
            Means::Write => Purpose::Write,
            Means::Run => Purpose::Run,
            Means::Flags(argument) => {
                let flags = OFlags::from_bits_retain(told.arguments[argument] as u32);
                let writes = [OFlags::WRONLY, OFlags::RDWR, OFlags::CREATE, OFlags::TRUNC];
                if flags.contains(OFlags::PATH) {
                    Purpose::Look
                } else if writes.into_iter().any(|one| flags.contains(one)) {
                    Purpose::Write
                } else {
                    Purpose::Read
                }
            }
        }
    }
}

/// The absolute path in a call, without `.`, `..` and links followed; `None` where it names none or cannot be read.
fn read_path(row: &Row, told: &sys::Told) -> Option<PathBuf> {
    let text = read_text(told.pid, told.arguments[row.path])?;
    if text.is_empty() {
        return None;
    }
    let path = PathBuf::from(OsString::from_vec(text));
    let directory = row.directory.map(|argument| told.arguments[argument] as i32).filter(|fd| *fd != libc::AT_FDCWD);
    let beside = match directory {
        _ if path.is_absolute() => PathBuf::new(),
        // As they are called inside: no mount of the cage is one of this process's.
        Some(fd) => fs::read_link(format!("/proc/{}/fd/{fd}", told.pid)).ok()?,
        None => fs::read_link(format!("/proc/{}/cwd", told.pid)).ok()?,
    };
    let mut plain = PathBuf::from("/");
    for component in beside.join(path).components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(plain)
}

/// A string of another process's that ends with NUL, of PATH_MAX bytes at most.
fn read_text(pid: u32, address: u64) -> Option<Vec<u8>> {
    const PATH_MAX: usize = 4096;
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    let mut at = address;
    // Not past a page at once: what follows may not be mapped.
    while text.len() < PATH_MAX {
        let mut some = [0_u8; PAGE as usize];
        let rest = (PAGE - at % PAGE) as usize;
        let length = sys::read_memory(pid, at, &mut some[..rest]).ok().filter(|length| *length > 0)?;
        if let Some(end) = some[..length].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&some[..end]);
            return Some(text);
        }
        text.extend_from_slice(&some[..length]);
        at = at.checked_add(length as u64)?;
    }
    None
}

/// What a path was named for, in the order in which one is more than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    Look,
    Read,
    Write,
    Run,
}

/// The paths that were heard, in bounded memory.
#[derive(Debug)]
struct Heard {
    tree: PathBuf,
    home: PathBuf,
    mounts: Vec<Mount>,
    /// Files and links of smcp's in the root.
    beside: BTreeSet<PathBuf>,
    own: Vec<PathBuf>,
    /// What is not in the cage, or in its private home alone.
    paths: BTreeMap<String, Purpose>,
    /// Programs in the cage.
    programs: BTreeSet<String>,
    used: BTreeSet<PathBuf>,
    room: usize,
    left_out: u64,
}

/// Bytes of all paths together.
const ROOM: usize = 4 << 20;

/// As many paths as the end entry takes of each kind.
const MOST: usize = 128;

/// Where the system's programs and libraries are, which a package brings itself.
const SOFTWARE: [&str; 13] = [
    "/bin",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.preload",
    "/lib",
    "/lib64",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/sbin",
    "/usr/local",
];

impl Heard {
    fn new(plan: &Plan, own: Vec<PathBuf>) -> Heard {
        Heard {
            tree: plan.tree.clone(),
            home: plan.identity.home.clone(),
            mounts: plan.mounts.clone(),
            beside: plan.files.keys().chain(plan.links.keys()).cloned().collect(),
            own,
            paths: BTreeMap::new(),
            programs: BTreeSet::new(),
            used: BTreeSet::new(),
            room: ROOM,
            left_out: 0,
        }
    }

    fn take(&mut self, path: PathBuf, purpose: Purpose) {
        let known = path.to_str().and_then(|text| self.paths.get(text)).is_some_and(|before| *before >= purpose);
        // The home is there, and private.
        if known
            || path == self.home
            || path.starts_with("/proc")
            || path.starts_with("/sys")
            || path.starts_with("/dev")
        {
            return;
        }
        let around = self.mounts.iter().filter(|mount| path.starts_with(&mount.target));
        let around = around.max_by_key(|mount| mount.target.components().count()).cloned();
        let inside = match &around {
            None if self.is_above_others(&path) => return,
            None => resolve(&self.tree, Path::new("/"), &path),
            Some(Mount { target, what: What::Granted { source, .. } }) => {
                self.used.insert(target.clone());
                resolve(source, target, &path)
            }
            // What is at home in there is not on the host, unless a program asked for what the cage does not have.
            Some(Mount { target, what: What::Private { .. } }) if *target == self.home => None,
            Some(_) => return,
        };
        match (inside, purpose) {
            (Some(program), Purpose::Run) if self.own.contains(&program) => {}
            (Some(program), Purpose::Run) => {
                // It was looked for in other directories of PATH before.
                let name = path.file_name();
                self.paths.retain(|other, purpose| *purpose != Purpose::Run || Path::new(other).file_name() != name);
                self.keep(program, None);
            }
            (Some(_), _) => {}
            (None, _) if matches!(around, Some(Mount { what: What::Granted { .. }, .. })) => {}
            (None, _) => self.keep(path, Some(purpose)),
        }
    }

    /// What is there because something is mounted or made in it.
    fn is_above_others(&self, path: &Path) -> bool {
        let mut others = self.mounts.iter().map(|mount| &mount.target).chain(&self.beside);
        others.any(|other| other.starts_with(path))
    }

    /// Whether something could be made in a directory of the host's, which the cage has not.
    fn takes_new(&self, host: &Host, directory: &Path) -> bool {
        let elsewhere = !directory.starts_with(&self.home) && !self.is_above_others(directory);
        elsewhere && host.kind(directory) == Some(Kind::Directory)
    }

    /// Keeps a path that is not in the cage with its purpose, or a program in it.
    fn keep(&mut self, path: PathBuf, purpose: Option<Purpose>) {
        let Some(path) = path.into_os_string().into_string().ok().filter(|path| path.len() < self.room) else {
            self.left_out += 1;
            return;
        };
        let length = path.len();
        let is_new = match purpose {
            Some(purpose) => self.paths.insert(path, purpose).is_none(),
            None => self.programs.insert(path),
        };
        if is_new {
            // With what a map takes beside.
            self.room = self.room.saturating_sub(length + 64);
        }
    }

    /// What of all that the host has.
    fn sum(self) -> Asked {
        let host = Host::look();
        let written = |(_, purpose): &(&String, &Purpose)| **purpose == Purpose::Write;
        let made: Vec<&Path> = self.paths.iter().filter(written).map(|(path, _)| Path::new(path)).collect();
        let is_made = |path: &Path| path.starts_with(&self.home) && made.iter().any(|made| path.starts_with(made));
        let of_system = |path: &Path| SYSTEM.iter().any(|system| path.starts_with(system));
        let of_software = |path: &Path| SOFTWARE.iter().any(|system| path.starts_with(system));
        let mut asked = Asked { left_out: self.left_out, ..Asked::default() };
        let mut found: BTreeMap<PathBuf, (Purpose, Kind)> = BTreeMap::new();
        for (text, purpose) in &self.paths {
            let path = Path::new(text);
            let kind = host.kind(path);
            match (purpose, kind, path.parent()) {
                (Purpose::Run, Some(Kind::File), _) => asked.missing.push(text.clone()),
                (Purpose::Run, ..) => {}
                _ if of_software(path) || of_system(path) || is_made(path) => {}
                (_, Some(kind), _) => add(&mut found, path, *purpose, kind),
                // It was to be made where the host has a directory.
                (Purpose::Write, None, Some(parent)) if self.takes_new(&host, parent) => {
                    add(&mut found, parent, Purpose::Write, Kind::Directory);
                }
                _ => {}
            }
        }
        let (paths, wide) = group(found, &self.home);
        asked.paths = paths;
        asked.wide = wide;
        asked.programs = self.programs.into_iter().collect();
        let of_user = |mount: &&Mount| matches!(&mount.what, What::Granted { from: crate::plan::Provider::User, .. });
        let unused = self.mounts.iter().filter(of_user).filter(|mount| !self.used.contains(&mount.target));
        asked.unused = unused.map(|mount| mount.target.display().to_string()).collect();
        asked.left_out += cut(&mut asked.paths) + cut(&mut asked.wide) + cut(&mut asked.programs);
        asked.left_out += cut(&mut asked.missing);
        asked
    }
}

fn add(found: &mut BTreeMap<PathBuf, (Purpose, Kind)>, path: &Path, purpose: Purpose, kind: Kind) {
    let entry = found.entry(path.to_owned()).or_insert((purpose, kind));
    entry.0 = entry.0.max(purpose);
}

fn cut<T>(list: &mut Vec<T>) -> u64 {
    let over = list.len().saturating_sub(MOST);
    list.truncate(MOST);
    over as u64
}

/// The path inside of what `path` leads to, links followed, where the mount at `target` is made of `source` on the host.
fn resolve(source: &Path, target: &Path, path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let below = path.strip_prefix(target).ok()?;
    let root = rustix::fs::open(source, flags, Mode::empty()).ok()?;
    if below.as_os_str().is_empty() {
        return Some(target.to_owned());
    }
    let found = rustix::fs::openat2(root.as_fd(), below, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    let found = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
    Some(target.join(found.strip_prefix(source).ok()?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
}

/// The host's files, as the caller sees them.
struct Host {
    /// Every mount point, and whether a look in there makes the kernel mount something, autofs(5).
    mounts: Vec<(PathBuf, bool)>,
}

impl Host {
    fn look() -> Host {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        // Fields of proc_pid_mountinfo(5); a space in a path stands as `\040`.
        let mount = |line: &str| {
            let (front, back) = line.split_once(" - ")?;
            Some((PathBuf::from(front.split(' ').nth(4)?.replace("\\040", " ")), back.starts_with("autofs ")))
        };
        Host { mounts: text.lines().filter_map(mount).collect() }
    }

    /// What is there, `None` where nothing is. The server chose the path: nothing is mounted for it, since by that it could
    /// speak to a file server of its choice.
    fn kind(&self, path: &Path) -> Option<Kind> {
        let around = self.mounts.iter().filter(|(point, _)| path.starts_with(point));
        if around.max_by_key(|(point, _)| point.components().count()).is_some_and(|(_, automatic)| *automatic) {
            return None;
        }
        let about = fs::metadata(path).ok()?;
        Some(if about.is_dir() { Kind::Directory } else { Kind::File })
    }
}

/// What to ask for: directories where several things in one were asked for alike, but none that is too wide.
fn group(found: BTreeMap<PathBuf, (Purpose, Kind)>, home: &Path) -> (Vec<AskedPath>, Vec<String>) {
    let is_wide = |path: &Path| path.components().count() <= 2 || home.starts_with(path);
    let mut wide = Vec::new();
    let mut asked: BTreeMap<PathBuf, Access> = BTreeMap::new();
    for (path, (purpose, kind)) in &found {
        // Programs look at each directory on the way.
        let below = found.keys().any(|other| other != path && other.starts_with(path));
        let on_the_way = *purpose == Purpose::Look && *kind == Kind::Directory && below;
        match is_wide(path) && *kind == Kind::Directory {
            _ if on_the_way => {}
            true => wide.push(path.display().to_string()),
            false => {
                asked.insert(path.clone(), if *purpose == Purpose::Write { Access::Rw } else { Access::Ro });
            }
        }
    }
    for access in [Access::Ro, Access::Rw] {
        let mut parents: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for (path, _) in asked.iter().filter(|(_, one)| **one == access) {
            *parents.entry(path.parent().unwrap_or(Path::new("/")).to_owned()).or_default() += 1;
        }
        for (parent, _) in parents.into_iter().filter(|(parent, count)| *count > 1 && !is_wide(parent)) {
            let before = asked.get(&parent).copied();
            asked.insert(parent, if before == Some(Access::Rw) { Access::Rw } else { access });
        }
    }
    let is_within = |path: &Path, access: Access| {
        path.ancestors()
            .skip(1)
            .any(|above| asked.get(above).is_some_and(|given| *given == Access::Rw || *given == access))
    };
    let one = |(path, access): (&PathBuf, &Access)| AskedPath { path: path.display().to_string(), access: *access };
    (asked.iter().filter(|(path, access)| !is_within(path, **access)).map(one).collect(), wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_of_one_directory_are_that_directory() {
        let table = [
            ("/home", Purpose::Look, Kind::Directory),
            ("/home/me", Purpose::Look, Kind::Directory),
            ("/home/me/.netrc", Purpose::Read, Kind::File),
            ("/home/me/.toolrc", Purpose::Read, Kind::File),
            ("/home/me/p/a", Purpose::Read, Kind::File),
            ("/home/me/p/b", Purpose::Look, Kind::File),
            ("/home/me/p/log", Purpose::Write, Kind::File),
            ("/home/me/q", Purpose::Look, Kind::Directory),
            ("/media", Purpose::Read, Kind::Directory),
            ("/srv/x", Purpose::Write, Kind::Directory),
            ("/srv/x/y", Purpose::Read, Kind::File),
        ];
        let found = table.map(|(path, purpose, kind)| (PathBuf::from(path), (purpose, kind)));
        let (paths, wide) = group(found.into(), Path::new("/home/me"));
        let paths: Vec<_> = paths.iter().map(|one| (one.path.as_str(), one.access)).collect();
        let want = [
            ("/home/me/.netrc", Access::Ro),
            ("/home/me/.toolrc", Access::Ro),
            ("/home/me/p", Access::Ro),
            ("/home/me/p/log", Access::Rw),
            ("/home/me/q", Access::Ro),
            ("/srv/x", Access::Rw),
        ];
        assert_eq!((paths.as_slice(), wide), (&want[..], vec!["/media".to_owned()]));
    }

    #[test]
    fn memory_is_bounded() {
        let plan = Plan::probe(
            crate::Identity::of_caller(&crate::Caller::of_this_process(), crate::UserFlag::Default, 0),
            Path::new("/nowhere"),
            None,
        );
        let mut heard = Heard::new(&plan, Vec::new());
        for number in 0..3000 {
            heard.take(PathBuf::from(format!("/{number}/{}", "x".repeat(4000))), Purpose::Read);
        }
        let kept: usize = heard.paths.keys().map(String::len).sum();
        assert!(kept <= ROOM && heard.left_out > 1900, "{kept} {}", heard.left_out);
    }

    /// Each row's call is one of the table, but for those that another architecture has.
    #[test]
    fn no_row_names_a_call_that_is_refused() {
        let here = TOLD.iter().filter(|row| seccomp::number(row.call).is_some()).count();
        assert!(here >= 13, "{here}");
        #[cfg(target_arch = "x86_64")]
        assert_eq!(here, TOLD.len());
    }
}
