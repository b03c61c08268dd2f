//! Makes a container.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use libcgroups::common::CgroupManager;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

use super::caged::Cage;
use super::config::{Config, PROCESS, Process, refuse_no_id, resources_without_oom_killer};
use super::files::write_private;
use super::keep::{hold_hooks, is_inhabited, manager, remove_empty_cgroups};
use super::payload::Payload;
use super::record::{self, Record, VERSION};
use super::seccomp::Filter;
use super::{Error, Runtime, amend, copyup, devices, maps, rootless, seal};
use crate::linux::first::end_descendants_but;
use crate::linux::{guard, rights, sys};

/// What is to be made, as the caller of `create` says.
#[derive(Clone, Debug)]
pub struct Creation<'a> {
    /// Its name.
    pub id: &'a str,
    /// Where its `config.json` is.
    pub bundle: &'a Path,
    /// A socket that gets the terminal.
    pub console: Option<PathBuf>,
    /// A file that gets the number of its first process.
    pub pid_file: Option<&'a Path>,
    /// A socket that gets a descriptor of that process.
    pub pidfd_socket: Option<&'a Path>,
    /// How many descriptors above standard error it keeps.
    pub preserve_fds: i32,
    /// Whether the root is moved in place of exchanged, which a root on a ramdisk needs.
    pub no_pivot: bool,
    /// Whether it gets a session keyring of its own.
    pub keyring: bool,
}

/// What was made.
#[derive(Debug)]
pub struct Created {
    /// What is remembered of it.
    pub record: Record,
    /// What of the package's cage is not in force.
    pub warning: Option<String>,
}

impl Runtime {
    /// Makes a container whose first process waits for its start.
    ///
    /// # Errors
    /// Where something of it cannot be had. Nothing of it is left then.
    pub fn create(&self, asked: &Creation<'_>) -> Result<Created, Error> {
        let directory = self.directory(asked.id)?;
        let config = Config::read(asked.bundle)?;
        config.refuse_links()?;
        config.refuse_false_proc()?;
        config.refuse_no_unit(self.systemd)?;
        refuse_no_id(config.whole_process())?;
        self.refuse_inhabited(&config.cgroup(asked.id, self.systemd), asked.id)?;
        let filter = config.seccomp()?.as_ref().map(Filter::compile).transpose()?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o711)
            .create(&self.root)
            .map_err(Error::io(format!("making {}", self.root.display())))?;
        match fs::DirBuilder::new().mode(0o711).create(&directory) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => return Err(Error::Exists(asked.id.into())),
            made => made.map_err(Error::io(format!("making {}", directory.display())))?,
        }
        // Those of the program that became this one.
        let before = guard::children_of(rustix::process::getpid());
        let made = self.make(asked, &directory, &config, filter);
        if made.is_err() {
            // libcontainer leaves processes behind where it fails between two of its own.
            end_descendants_but(&before);
            remove_empty_cgroups(&config.cgroup(asked.id, self.systemd));
            let _ = fs::remove_dir_all(&directory);
        }
        made
    }

    fn make(
        &self,
        asked: &Creation<'_>,
        directory: &Path,
        config: &Config,
        filter: Option<Filter>,
    ) -> Result<Created, Error> {
        let mut adapted = config.adapted(asked.id, self.systemd);
        let filled = copyup::take(&mut adapted);
        let cage = Cage::around(&config.bundle, &mut adapted)?;
        let mut warning = None;
        if let Some(cage) = &cage {
            cage.save(directory)?;
            // Who may make no cgroup has none: then nothing would take a limit.
            match self.limits_can_be_had() {
                true => cage.bound(&mut adapted)?,
                false => warning = cage.without_cgroup(),
            }
        }
        let file = directory.join("config.json");
        let are_bounded = !devices::are_ours() || devices::bound_before_hooks(&mut adapted, &file);
        write_private(&file, adapted.to_string().as_bytes())?;
        write_private(&directory.join(PROCESS), config.whole_process().to_string().as_bytes())?;
        let mut record = Record {
            id: asked.id.into(),
            bundle: config.bundle.clone(),
            rootfs: config.rootfs.clone(),
            pid: 0,
            started: 0,
            created: jiff::Timestamp::now().to_string(),
            owner: rustix::process::geteuid().as_raw(),
            annotations: config.annotations(),
            cgroup: config.cgroup(asked.id, self.systemd),
            systemd: self.systemd,
        };
        record.announce(directory).map_err(Error::io("writing its making.json"))?;
        let process = config.process();
        let hooks = config.hooks("startContainer");
        let held = if hooks.is_empty() { None } else { Some(hold_hooks(directory)) };
        let held = held.transpose().map_err(Error::io("preparing its hooks"))?;
        let state = json!({
            "ociVersion": VERSION,
            "id": asked.id,
            "status": "created",
            "bundle": config.bundle,
            "annotations": config.annotations(),
        });
        let cage = match cage {
            Some(cage) => Some((cage, seal::canary(directory)?)),
            None => None,
        };
        let payload = Payload::new(process.clone(), filter, cage).after(hooks, state, held);
        if asked.keyring {
            sys::join_new_keyring(asked.id).map_err(Error::io("making a session keyring"))?;
        }
        leave_groups()?;
        amend::make_working_directory(config.value(), &config.rootfs)?;
        maps::write_in_person(&adapted, directory)?;
        rootless::look_away_from_cgroups()?;
        let container = ContainerBuilder::new(asked.id.into(), SyscallType::default())
            .with_root_path(directory)
            .map_err(Error::of("preparing the container"))?
            .with_executor(payload)
            .with_console_socket(asked.console.as_ref())
            .with_preserved_fds(asked.preserve_fds)
            .as_init(directory)
            .with_systemd(self.systemd)
            .with_detach(true)
            .with_no_pivot(asked.no_pivot)
            .build()
            .map_err(Error::of("unable to start container process"))?;
        let pid = container.pid().ok_or_else(|| Error::step("creating the container", "it has no process"))?.as_raw();
        let (_, started) =
            record::look(pid).ok_or_else(|| Error::step("creating the container", "it ended at once"))?;
        (record.pid, record.started) = (pid, started);
        if !are_bounded {
            devices::bound(&adapted, pid)?;
        }
        amend::within(config.value(), pid)?;
        let terminal = terminal(pid, pid, &process);
        amend::size_terminal(config.whole_process(), terminal.as_ref())?;
        copyup::fill(&filled, &config.rootfs, pid)?;
        if let Some(resources) = resources_without_oom_killer(&adapted)? {
            self.switch_oom_killer_off(&record, &resources)?;
        }
        give_stdio(pid, &process);
        give_terminal(terminal.as_ref(), pid, &process);
        record.save(directory).map_err(Error::io("writing its record"))?;
        announce(pid, asked.pid_file, asked.pidfd_socket)?;
        Ok(Created { record, warning })
    }

    /// A cgroup that others are in: their limits would change, and they would be killed with the container.
    fn refuse_inhabited(&self, cgroup: &Path, id: &str) -> Result<(), Error> {
        let is_inhabited = match self.systemd {
            // One that is not there has nobody in it.
            true => manager(cgroup, true, id)?.get_all_pids().is_ok_and(|members| !members.is_empty()),
            false => is_inhabited(cgroup),
        };
        match is_inhabited {
            true => Err(Error::State(format!("container's cgroup is not empty: others are in {}", cgroup.display()))),
            false => Ok(()),
        }
    }

    /// Whether a container of this caller's has a cgroup in any case.
    pub(super) fn limits_can_be_had(&self) -> bool {
        self.systemd || rootless::is_root_of_the_host()
    }
}

/// Tells the caller the first process of what was made.
pub fn announce(pid: i32, file: Option<&Path>, socket: Option<&Path>) -> Result<(), Error> {
    if let Some(socket) = socket {
        let step = format!("passing a pidfd to {}", socket.display());
        let sent = || -> io::Result<()> {
            let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            Ok(rights::send(UnixStream::connect(socket)?, b"pidfd", &[pidfd.as_fd()])?)
        };
        sent().map_err(Error::io(step))?;
    }
    if let Some(file) = file {
        let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        // New in any case: a link that somebody put there is not followed.
        let new = file.with_file_name(format!(".{name}.{}", std::process::id()));
        fs::File::create_new(&new)
            .and_then(|mut made| made.write_all(pid.to_string().as_bytes()))
            .and_then(|()| fs::rename(&new, file))
            .map_err(Error::io(format!("writing {}", file.display())))?;
    }
    Ok(())
}

/// The caller's supplementary groups are not the container's: libcontainer sets those that it is told, and leaves them where it
/// is told none.
pub fn leave_groups() -> Result<(), Error> {
    match rustix::thread::set_thread_groups(&[]) {
        // A user namespace that denies setgroups(2), and a process that may not call it.
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(why) => Err(Error::step("leaving the caller's groups", io::Error::from(why))),
    }
}

/// Makes the process's user the owner of its standard streams, so that it can open `/dev/stdout`, as runc does: of this process's own, which
/// are those of the one that is to be. By then it may have others, and would be given any file. `init` is in the container.
pub fn give_stdio(init: i32, process: &Process) {
    if process.terminal {
        return;
    }
    let owner = owner(init, process);
    for stream in [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()] {
        give(stream, owner);
    }
}

/// The terminal that was made for a process: of what its streams are by then, one of the container's own. `init` is in the container.
pub fn terminal(pid: i32, init: i32, process: &Process) -> Option<OwnedFd> {
    /// Documentation/admin-guide/devices.txt: UNIX98 PTY slaves.
    const TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
    if !process.terminal {
        return None;
    }
    let root = rustix::fs::open(format!("/proc/{init}/root"), PATH, Mode::empty()).ok()?;
    let place = rustix::fs::openat2(root, "/dev/pts", PATH, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
    let own = rustix::fs::fstat(place).ok()?.st_dev;
    let stream = |number: i32| rustix::fs::open(format!("/proc/{pid}/fd/{number}"), PATH, Mode::empty()).ok();
    (0..3).filter_map(stream).find(|stream| {
        rustix::fs::fstat(stream)
            .is_ok_and(|found| found.st_dev == own && TERMINALS.contains(&rustix::fs::major(found.st_rdev)))
    })
}

/// Makes the process's user the owner of its terminal, as runc does.
pub fn give_terminal(terminal: Option<&OwnedFd>, init: i32, process: &Process) {
    let (uid, _) = owner(init, process);
    terminal.into_iter().for_each(|terminal| give(terminal.as_fd(), (uid, None)));
}

const PATH: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// The null device is everybody's, root has everything, and who owns what cannot be changed everywhere.
fn give(stream: BorrowedFd<'_>, (uid, gid): (Option<Uid>, Option<Gid>)) {
    let null = rustix::fs::fstat(stream).is_ok_and(|found| found.st_rdev == rustix::fs::makedev(1, 3));
    if !null && (uid, gid) != (None, None) {
        let _ = rustix::fs::chownat(stream, "", uid, gid, AtFlags::EMPTY_PATH);
    }
}

/// Who a process's user is here; nobody for its root.
fn owner(init: i32, process: &Process) -> (Option<Uid>, Option<Gid>) {
    match process.user {
        (0, _) => (None, None),
        (uid, gid) => {
            (inside(init, "uid_map", uid).map(Uid::from_raw), inside(init, "gid_map", gid).map(Gid::from_raw))
        }
    }
}

/// What an id of a process's user namespace is here.
fn inside(pid: i32, map: &str, id: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/{map}")).ok()?;
    text.lines().find_map(|line| {
        let numbers: Vec<u32> = line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [first, outside, count] = numbers[..] else { return None };
        (id >= first && id - first < count).then(|| outside + (id - first))
    })
}
