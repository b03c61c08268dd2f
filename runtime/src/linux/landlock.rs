//! Landlock: which files the server may use, and which it may execute, whatever the mounts say.
//!
//! Everything beneath the root can be read: it is the package and what was granted. The private places and the grants
//! can be written where the plan says so. Nothing in `/proc` can be written, and nothing of the host that a descriptor
//! or `/proc/self/exe` still leads to can be opened. Executed is what the plan's programs need, see `programs.rs`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::bare::Bare;
use super::programs;
use super::sys;
use super::wire::{Order, chain};
use crate::plan::{Programs, What};
use crate::report::Status;
use bundle::Access;

/// Confines this process and what it starts. `entry` is the server's program where it was found. Gives the ABI that is in
/// force, where one is.
pub fn confine(order: &Order, entry: Option<&Path>) -> (Status, Option<ABI>) {
    match &order.bare {
        Some(bare) => {
            enforce(Canary::OfTheHost { file: &bare.canary }, Bare::LEAST_ABI, bare.rights(), Some(&bare.ports))
        }
        None => enforce(Canary::OfARoot, ABI::V1, rights(order, entry), None),
    }
}

/// Confines this process, the first of a container or one that joins it, to these rights. `canary` is a file that they do not cover.
pub fn confine_to(rights: Vec<Right>, canary: &CStr) -> Status {
    enforce(Canary::InAContainer { file: canary }, ABI::V1, rights, None).0
}

/// Confines this process to these rights and, where there are `ports`, to connecting to these.
fn enforce(canaries: Canary<'_>, least: ABI, rights: Vec<Right>, ports: Option<&[u16]>) -> (Status, Option<ABI>) {
    let before = canaries.sing();
    let (abi, rules) = match newest(least, |abi| create(abi, ports.is_some())) {
        Ok(created) => created,
        Err(why) => return (Status::Absent(why), None),
    };
    let rules = rights.into_iter().try_fold(rules, |rules, right| right.add_to(rules, abi));
    // Before ABI 4 there is no socket at all.
    let ports = ports.filter(|_| abi >= ABI::V4).unwrap_or_default();
    let rules = rules.and_then(|rules| {
        ports.iter().try_fold(rules, |rules, port| rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)))
    });
    if let Err(why) = rules.and_then(RulesetCreated::restrict_self) {
        return (Status::Absent(format!("ABI {abi}: {}", chain(&why))), None);
    }
    (before.judge(&canaries.sing(), abi), Some(abi))
}

/// What each ABI lacks that a later one has, newest first. The rights over TCP ports that ABI 4 brings are used where no
/// network namespace leaves nothing to connect to.
const LACKS: [(ABI, &str); 6] = [
    (ABI::V6, ""),
    (ABI::V5, "no scopes for signals and abstract sockets"),
    (ABI::V4, "no rights over ioctl on devices, no scopes for signals and abstract sockets"),
    (ABI::V3, "no rights over TCP and ioctl on devices, no scopes for signals and abstract sockets"),
    (ABI::V2, "no rights over truncation, TCP and ioctl on devices, no scopes for signals and abstract sockets"),
    (ABI::V1, "no rights over truncation, TCP and ioctl on devices, no scopes; no renaming between directories"),
];

/// The newest ABI whose rights the kernel takes, by trying each: there are kernels that report an ABI and refuse some of
/// its rights.
fn newest<T>(least: ABI, create: impl Fn(ABI) -> Result<T, String>) -> Result<(ABI, T), String> {
    let mut failure = String::new();
    for (abi, _) in LACKS.into_iter().filter(|(abi, _)| *abi >= least) {
        match create(abi) {
            Ok(created) => return Ok((abi, created)),
            Err(why) => failure = why,
        }
    }
    Err(failure)
}

fn create(abi: ABI, network: bool) -> Result<RulesetCreated, String> {
    let created = || {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let mut rules = rules.handle_access(AccessFs::from_all(abi))?;
        let ports = AccessNet::from_all(abi);
        if network && !ports.is_empty() {
            // What no rule follows for is refused.
            rules = rules.handle_access(ports)?;
        }
        let scopes = Scope::from_all(abi);
        if scopes.is_empty() { rules } else { rules.scope(scopes)? }.create()
    };
    created()
        .map_err(|why: RulesetError| format!("{} (a kernel with landlock in its list of lsm= has it)", chain(&why)))
}

/// What may be done beneath a path, or with the one file.
pub struct Right {
    path: PathBuf,
    access: BitFlags<AccessFs>,
    /// How the path is followed.
    resolve: ResolveFlags,
}

impl Right {
    /// To use what `access` names.
    pub fn new(path: impl Into<PathBuf>, access: impl Into<BitFlags<AccessFs>>) -> Right {
        Right { path: path.into(), access: access.into(), resolve: ResolveFlags::empty() }
    }

    /// The same on a path of the plan's grants. Those are canonical: a link in one now was put there since, by a server that
    /// may write beside it, and gives no right.
    pub fn granted(path: impl Into<PathBuf>, access: impl Into<BitFlags<AccessFs>>) -> Right {
        Right { resolve: ResolveFlags::NO_SYMLINKS, ..Right::new(path, access) }
    }

    /// A path that is not there needs no right: a program that was named and that the package lacks.
    fn add_to(self, rules: RulesetCreated, abi: ABI) -> Result<RulesetCreated, RulesetError> {
        let Ok((file, directory)) = self.open() else { return Ok(rules) };
        let kind = if directory { AccessFs::from_all(abi) } else { AccessFs::from_file(abi) };
        let access = self.access & AccessFs::from_all(abi) & kind;
        if access.is_empty() { Ok(rules) } else { rules.add_rule(PathBeneath::new(file, access)) }
    }

    fn open(&self) -> io::Result<(OwnedFd, bool)> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = rustix::fs::openat2(rustix::fs::CWD, &self.path, flags, Mode::empty(), self.resolve)?;
        let directory = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == FileType::Directory;
        Ok((file, directory))
    }
}

fn rights(order: &Order, entry: Option<&Path>) -> Vec<Right> {
    let read = readable();
    let terminal = read | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut rights = vec![Right::new("/", read)];
    for mount in &order.plan.mounts {
        match mount.what {
            What::Private { .. } | What::SharedMemory { .. } | What::Granted { access: Access::Rw, .. } => {
                rights.push(Right::new(&mount.target, writable()));
            }
            What::Devices => rights.extend([
                Right::new(&mount.target, read | AccessFs::WriteFile),
                Right::new(mount.target.join("tty"), terminal),
            ]),
            What::Terminals => rights.push(Right::new(&mount.target, terminal)),
            What::Granted { access: Access::Ro, .. } | What::Denied { .. } | What::Proc => {}
        }
    }
    let entry = entry.map(|entry| (entry, order.plan.command.get(1..).unwrap_or_default()));
    rights.extend(executable(&order.plan.programs, entry, order.search_path()));
    rights
}

/// What may be executed: what the plan names, and the entry point with these arguments, each with what the kernel opens for it.
pub fn executable(programs: &Programs, entry: Option<(&Path, &[String])>, search: &str) -> Vec<Right> {
    if *programs == Programs::Any {
        return vec![Right::new("/", AccessFs::Execute)];
    }
    let named = if let Programs::Named(paths) = programs { &paths[..] } else { &[] };
    // A directory would let everything in it be executed.
    let named = named.iter().filter(|path| !path.is_dir()).flat_map(|path| programs::needed(path, &[], search));
    let own = entry.into_iter().flat_map(|(entry, arguments)| programs::needed(entry, arguments, search));
    named.chain(own).map(|path| Right::new(path, AccessFs::Execute)).collect()
}

/// Confines this thread and what it starts to what unpacking does in one directory: to make files, directories and links, to
/// write files, to replace and to list. No port, no signal to others, no socket of a name. Before ABI 2 no file could be
/// linked into another directory.
///
/// # Errors
/// Why there is no Landlock of that kind.
pub fn confine_to_making(directory: BorrowedFd<'_>) -> Result<ABI, String> {
    let (abi, rules) = newest_for_making()?;
    let makes = AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::MakeSym | AccessFs::Refer | AccessFs::WriteFile;
    let access = (makes | AccessFs::Truncate | AccessFs::RemoveFile | AccessFs::ReadDir) & AccessFs::from_all(abi);
    let rules = rules.add_rule(PathBeneath::new(directory, access)).map_err(|why| chain(&why))?;
    rules.restrict_self().map(|_| abi).map_err(|why| chain(&why))
}

/// Whether this kernel has what [`confine_to_making`] needs.
///
/// # Errors
/// Why there is no Landlock of that kind.
pub fn can_confine_to_making() -> Result<(), String> {
    newest_for_making().map(drop)
}

fn newest_for_making() -> Result<(ABI, RulesetCreated), String> {
    newest(ABI::V2, |abi| create(abi, true))
}

/// To read files and to list directories.
pub fn readable() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

/// All that can be done with files and directories but to execute them and to make or to ask devices.
pub fn writable() -> BitFlags<AccessFs> {
    AccessFs::from_all(ABI::V6) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

/// Where to try things that nothing but Landlock refuses.
#[derive(Clone, Copy)]
enum Canary<'a> {
    /// In a root of its own: `read` and `execute` are of smcp itself, on a mount that was left behind; `write` is of the
    /// server's own name.
    OfARoot,
    /// The same where PID 1 is this process itself, or one within; `read` and `execute` are of this file.
    InAContainer { file: &'a CStr },
    /// On the host's root: a file of the run that is not granted, and any TCP port.
    OfTheHost { file: &'a Path },
}

impl Canary<'_> {
    fn sing(self) -> Canaries {
        let open = |path: &CStr, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(drop);
        let of = |read: &CStr, write: &CStr, outside: Option<Pid>, port| Canaries {
            read: open(read, OFlags::RDONLY),
            write: open(write, OFlags::WRONLY),
            execute: sys::may_execute(read),
            signal: outside.map_or(Err(Errno::SRCH), rustix::process::test_kill_process),
            port,
        };
        match self {
            Canary::OfARoot => of(c"/proc/self/exe", c"/proc/self/comm", Some(Pid::INIT), None),
            Canary::InAContainer { file } => of(file, c"/proc/self/comm", None, None),
            Canary::OfTheHost { file } => match CString::new(file.as_os_str().as_bytes()) {
                Ok(file) => of(&file, &file, rustix::process::getppid(), Some(bind_any_port())),
                Err(_) => of(c"", c"", None, None),
            },
        }
    }
}

/// Takes a TCP port of the kernel's choice for a moment.
fn bind_any_port() -> Result<(), Errno> {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketFlags, SocketType, bind, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0))
}

/// How they were answered.
struct Canaries {
    read: Result<(), Errno>,
    write: Result<(), Errno>,
    execute: Result<(), Errno>,
    signal: Result<(), Errno>,
    /// `None` where a network namespace leaves nothing to try.
    port: Option<Result<(), Errno>>,
}

impl Canaries {
    /// What the answers after tell; `self` are those before. What was refused already proves nothing.
    fn judge(&self, after: &Canaries, abi: ABI) -> Status {
        let files = [
            ("read", self.read, after.read),
            ("opened for writing", self.write, after.write),
            ("executed", self.execute, after.execute),
        ];
        for (what, before, after) in files {
            if before.is_ok() && after != Err(Errno::ACCESS) {
                return Status::Absent(format!("a file that is not granted could be {what}"));
            }
        }
        if files.iter().all(|(_, before, _)| before.is_err()) {
            return Status::Absent("no file could be found to try it with".into());
        }
        if abi >= ABI::V6 && self.signal.is_ok() && after.signal != Err(Errno::PERM) {
            return Status::Absent("a process outside could be signalled".into());
        }
        if abi >= ABI::V4 && self.port == Some(Ok(())) && after.port != Some(Err(Errno::ACCESS)) {
            return Status::Absent("a TCP port that is not granted could be taken".into());
        }
        match LACKS.iter().find(|(known, _)| *known == abi) {
            Some((_, "")) | None => Status::Full,
            Some((_, lacks)) => Status::Partial(format!("ABI {abi}: {lacks}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that reports an ABI and refuses some of its rights gets those of an older one (K3).
    #[test]
    fn steps_down_to_what_the_kernel_takes() {
        for (abi, lacks) in LACKS {
            let kernel = |asked: ABI| if asked <= abi { Ok(()) } else { Err("invalid argument".to_owned()) };
            assert_eq!(newest(ABI::V1, kernel), Ok((abi, ())));
            let (held, not_tried) = (Canaries::of(Err(Errno::ACCESS)), Canaries::of(Ok(())));
            let status = not_tried.judge(&held, abi);
            match lacks {
                "" => assert_eq!(status, Status::Full),
                _ => assert_eq!(status, Status::Partial(format!("ABI {abi}: {lacks}"))),
            }
        }
        assert_eq!(newest(ABI::V1, |_| Err::<(), _>("none".to_owned())), Err("none".to_owned()));
    }

    /// A canary that sings on is no layer, and so is one that never could.
    #[test]
    fn what_is_not_refused_is_not_enforced() {
        let (free, held) = (Canaries::of(Ok(())), Canaries::of(Err(Errno::ACCESS)));
        assert!(matches!(free.judge(&free, ABI::V6), Status::Absent(_)));
        assert!(matches!(held.judge(&held, ABI::V6), Status::Absent(_)));
        let spoils: [fn(&mut Canaries); 5] = [
            |c| c.read = Ok(()),
            |c| c.write = Ok(()),
            |c| c.execute = Ok(()),
            |c| c.signal = Ok(()),
            |c| c.port = Some(Ok(())),
        ];
        for spoil in spoils {
            let mut after = Canaries::of(Err(Errno::ACCESS));
            spoil(&mut after);
            assert!(matches!(free.judge(&after, ABI::V6), Status::Absent(_)));
        }
    }

    impl Canaries {
        fn of(file: Result<(), Errno>) -> Canaries {
            let signal = file.map_err(|_| Errno::PERM);
            Canaries { read: file, write: file, execute: file, signal, port: Some(file) }
        }
    }

    /// A grant is what the path was when it was judged, and not where a link leads that was put there since.
    #[test]
    fn a_link_in_the_place_of_a_grant_gives_no_right() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("private/below")).unwrap();
        std::os::unix::fs::symlink(base.join("private"), base.join("grant")).unwrap();
        for path in ["grant", "grant/below"] {
            assert!(Right::granted(base.join(path), readable()).open().is_err(), "{path}");
            assert!(Right::new(base.join(path), readable()).open().is_ok(), "{path}");
        }
        assert!(Right::granted(base.join("private"), readable()).open().is_ok());
    }

    #[test]
    fn nothing_writable_can_be_executed() {
        assert!(!writable().contains(AccessFs::Execute));
        assert!(writable().contains(AccessFs::Refer | AccessFs::Truncate));
    }
}
