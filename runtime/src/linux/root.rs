//! Assembles the server's root: the package's tree read-only, and between its directories what the plan adds.
//!
//! The root is a tmpfs. What of the package holds nothing of the plan's is bound whole; a directory that must take a mount
//! point or file which the package does not have becomes one of the tmpfs, with the package's entries bound into it one
//! by one. So no directory is ever merged at a start, and no kernel needs an overlay.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::masks;
use super::mounts::Detached;
use super::sources::Sources;
use super::wire::Refusal;
use crate::plan::{Exec, Plan, Provider, What};

/// Where the cage process builds. A tmpfs of its own hides what the host has there, in its mount namespace alone; all
/// sources are open by then.
const WORKSHOP: &str = "/tmp";

/// The assembled root and the places that libcontainer needs, all on tmpfs that vanish with the cage process.
pub struct Root {
    /// The root directory.
    pub directory: PathBuf,
    /// The bundle directory: `config.json` goes here.
    pub bundle: PathBuf,
    /// libcontainer's state directory.
    pub state: PathBuf,
}

/// Builds the root of a plan out of its open sources.
///
/// # Errors
/// A [`Refusal`] that names the path.
pub fn assemble(plan: &Plan, sources: Sources) -> Result<Root, Refusal> {
    // The caller's is the server's; what is made here has the modes that it says.
    let mask = rustix::process::umask(Mode::empty());
    let assembled = put_together(plan, sources);
    rustix::process::umask(mask);
    assembled
}

fn put_together(plan: &Plan, sources: Sources) -> Result<Root, Refusal> {
    let step = |what: &'static str| move |why: io::Error| Refusal::new(what, why);
    let host_tmp = open_beneath(&open_root().map_err(step("opening the host's root"))?, Path::new(&WORKSHOP[1..]))
        .map_err(step("opening the host's /tmp"))?;
    let workshop = tmpfs(OF_WORKSHOP, Exec::Denied).map_err(step("making a tmpfs"))?;
    workshop.attach(&host_tmp).map_err(step("mounting the workshop"))?;
    let place = |name: &str| make_directory(&workshop, Path::new(name)).map_err(step("making a directory"));
    for name in ["bundle", "state"] {
        rustix::fs::mkdirat(&workshop, name, Mode::from_raw_mode(0o755))
            .map_err(|why| step("making a directory")(why.into()))?;
    }
    let devices = place("devices")?;
    sources.tree.attach(&place("tree")?).map_err(step("mounting the package's tree"))?;
    let root_directory = place("root")?;
    let root = Detached::copy_of(&root_directory).map_err(step("making the root a mount"))?;
    root.attach(&root_directory).map_err(step("mounting the root"))?;

    let elsewhere = |refusal: Refusal| refusal.hint(ELSEWHERE);
    let additions = Additions::of(plan, &sources).map_err(elsewhere)?;
    fill(sources.tree.as_fd(), root.as_fd(), Path::new(""), &additions).map_err(elsewhere)?;
    let mut made = additions.complete(root.as_fd()).map_err(elsewhere)?;
    let mut grants = sources.grants.into_iter();
    let mut denied = sources.denied.into_iter();
    let mut private = Private::new(plan, place("private")?);
    for (index, mount) in plan.mounts.iter().enumerate() {
        let fail = |why: io::Error| Refusal::new(format!("mounting {}", mount.target.display()), why);
        match &mount.what {
            What::Private { .. } | What::Devices | What::Terminals | What::SharedMemory { .. } => {
                let point = mount_point(&root, &mut made, plan, index, true).map_err(elsewhere)?;
                let new = match &mount.what {
                    What::Private { mode, exec, .. } => private.directory(*mode, *exec),
                    What::SharedMemory { .. } => private.directory(0o1777, Exec::Denied),
                    What::Devices => Detached::copy_of(&devices),
                    _ => terminals(),
                };
                new.and_then(|new| new.attach(&point)).map_err(fail)?;
            }
            What::Granted { .. } => {
                let grant = grants.next().ok_or_else(|| fail(Errno::NOENT.into()))?;
                let point = mount_point(&root, &mut made, plan, index, grant.directory).map_err(elsewhere)?;
                grant.mount.attach(&point).map_err(fail).map_err(elsewhere)?;
            }
            What::Denied { .. } => {
                let place = denied.next().ok_or_else(|| fail(Errno::NOENT.into()))?;
                masks::tmpfs().and_then(|tmpfs| tmpfs.attach(&place.directory)).map_err(fail)?;
            }
            What::Proc => {}
        }
    }
    root.close().map_err(step("making the root read-only"))?;
    let path = |name: &str| Path::new(WORKSHOP).join(name);
    Ok(Root { directory: path("root"), bundle: path("bundle"), state: path("state") })
}

/// What stands in the way of a mount is the package's, the cage's or another grant's.
const ELSEWHERE: &str = "a grant can have another path inside, by --mount SRC:DST; what the package holds or asks for there, its publisher can correct";

/// What the root has beside the package's tree, by relative paths.
struct Additions {
    directories: Vec<PathBuf>,
    /// Mount points of files, and files with a text of their own.
    files: Vec<(PathBuf, String)>,
    links: Vec<(PathBuf, PathBuf)>,
}

impl Additions {
    fn of(plan: &Plan, sources: &Sources) -> Result<Additions, Refusal> {
        let mut additions = Additions { directories: Vec::new(), files: Vec::new(), links: Vec::new() };
        let mut grants = sources.grants.iter();
        for (index, mount) in plan.mounts.iter().enumerate() {
            // It lies in its grant.
            if matches!(mount.what, What::Denied { .. }) {
                continue;
            }
            let directory = match mount.what {
                What::Granted { .. } => grants.next().is_none_or(|grant| grant.directory),
                _ => true,
            };
            // What lies in another mount is made there.
            if plan.mounts[..index].iter().any(|outer| mount.target.starts_with(&outer.target)) {
                continue;
            }
            let path = relative(&mount.target)?;
            if directory {
                additions.directories.push(path);
            } else {
                additions.files.push((path, String::new()));
            }
        }
        let free = |additions: &Additions, path: &Path| match additions.are_at(path) {
            true => {
                Err(Refusal::new(format!("a mount on /{}", path.display()), "the cage has a file of its own there"))
            }
            false => Ok(()),
        };
        for (path, text) in &plan.files {
            let path = relative(path)?;
            free(&additions, &path)?;
            additions.files.push((path, text.clone()));
        }
        for (path, leads_to) in &plan.links {
            let path = relative(path)?;
            free(&additions, &path)?;
            additions.links.push((path, leads_to.clone()));
        }
        Ok(additions)
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter().map(|(path, _)| path);
        let links = self.links.iter().map(|(path, _)| path);
        self.directories.iter().chain(files).chain(links).map(PathBuf::as_path)
    }

    /// Whether everything that is to be below `path` is there in the package's own directory, which `tree` is.
    fn are_had_by(&self, tree: &OwnedFd, path: &Path) -> bool {
        self.paths().filter(|wanted| wanted.starts_with(path)).all(|wanted| {
            let below = wanted.strip_prefix(path).unwrap_or(wanted);
            self.directories.iter().any(|directory| directory == wanted)
                && open_beneath(tree, below).is_ok_and(|there| kind(&there) == Some(FileType::Directory))
        })
    }

    /// Whether something is to be at `path` itself.
    fn are_at(&self, path: &Path) -> bool {
        self.paths().any(|wanted| wanted == path)
    }

    /// Whether something is to be below `path`.
    fn are_below(&self, path: &Path) -> bool {
        self.paths().any(|wanted| wanted != path && wanted.starts_with(path))
    }

    /// Makes what the package's tree does not have, and gives the directories, by their paths, which are mount points.
    fn complete(&self, root: BorrowedFd<'_>) -> Result<HashMap<&Path, OwnedFd>, Refusal> {
        let fail = |path: &Path| {
            let shown = Path::new("/").join(path);
            move |why: io::Error| Refusal::new(format!("making {}", shown.display()), why)
        };
        let mut made = HashMap::new();
        for path in &self.directories {
            made.insert(path.as_path(), make_directory(root, path).map_err(fail(path))?);
        }
        // Most lie in one directory.
        let mut around: Option<(&Path, OwnedFd)> = None;
        for (path, text) in &self.files {
            let parent = path.parent().unwrap_or(Path::new(""));
            let opened = match around.take() {
                Some((there, opened)) if there == parent => opened,
                _ => make_directory(root, parent).map_err(fail(path))?,
            };
            make_file_in(&opened, path, text).map_err(fail(path))?;
            around = Some((parent, opened));
        }
        for (path, leads_to) in &self.links {
            let made = path.parent().map_or(Ok(()), |parent| make_directory(root, parent).map(drop));
            made.and_then(|()| Ok(rustix::fs::symlinkat(leads_to, root, path)?)).map_err(fail(path))?;
        }
        Ok(made)
    }
}

/// The most entries of one directory that are bound one by one.
const MOST_ENTRIES: usize = 4096;

/// Puts the entries of a directory of the package into the same directory of the root.
fn fill(tree: BorrowedFd<'_>, root: BorrowedFd<'_>, path: &Path, additions: &Additions) -> Result<(), Refusal> {
    let fail = |why: io::Error| Refusal::new(format!("the package's directory /{}", path.display()), why);
    let listing = rustix::fs::openat(tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .and_then(Dir::new)
        .map_err(|why| fail(why.into()))?;
    for (count, entry) in listing.enumerate() {
        let entry = entry.map_err(|why| fail(why.into()))?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if count > MOST_ENTRIES {
            return Err(Refusal::new(
                format!("a mount below /{}", path.display()),
                format!("the package's directory has more than {MOST_ENTRIES} entries"),
            ));
        }
        put(tree, root, name, &path.join(to_path(name)), additions)?;
    }
    Ok(())
}

/// Puts one entry of the package into the root: as it is, or opened for what is to lie in it.
fn put(
    tree: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    name: &std::ffi::CStr,
    path: &Path,
    additions: &Additions,
) -> Result<(), Refusal> {
    let fail = |why: io::Error| Refusal::new(format!("the package's /{}", path.display()), why);
    let stat = rustix::fs::statat(tree, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|why| fail(why.into()))?;
    let (here, below) = (additions.are_at(path), additions.are_below(path));
    match FileType::from_raw_mode(stat.st_mode) {
        // Hiding what a link leads to, or mounting where it leads, has led runtimes to mount elsewhere.
        FileType::Symlink if here || below => Err(Refusal::new(
            format!("a mount or file at or below /{}", path.display()),
            "it is a symbolic link in the package",
        )),
        FileType::Symlink => {
            let leads_to = rustix::fs::readlinkat(tree, name, Vec::new()).map_err(|why| fail(why.into()))?;
            rustix::fs::symlinkat(&leads_to, root, name).map_err(|why| fail(why.into()))
        }
        FileType::Directory => {
            let point = make_directory(root, to_path(name)).map_err(fail)?;
            // A mount of the plan will hide all of it.
            if here {
                return Ok(());
            }
            let own = open_beneath(tree, to_path(name)).map_err(fail)?;
            if !below || additions.are_had_by(&own, path) {
                return bind(&own, &point).map_err(fail);
            }
            fill(own.as_fd(), point.as_fd(), path, additions)
        }
        // What the plan puts there takes its place.
        _ if here => Ok(()),
        _ => {
            let own = open_beneath(tree, to_path(name)).map_err(fail)?;
            make_file_in(root, to_path(name), "").map_err(fail)?;
            bind(&own, &open_beneath(root, to_path(name)).map_err(fail)?).map_err(fail)
        }
    }
}

/// Mounts a directory or file of the package's tree, read-only as that is, on another.
fn bind(own: &OwnedFd, point: &OwnedFd) -> io::Result<()> {
    Detached::copy_of(own)?.attach(point)
}

/// The directory or file on which a mount of the plan goes: one that was `made` for it, or made here where it lies in a
/// private place of the cage or in a state directory.
fn mount_point(
    root: impl AsFd,
    made: &mut HashMap<&Path, OwnedFd>,
    plan: &Plan,
    index: usize,
    directory: bool,
) -> Result<OwnedFd, Refusal> {
    let target = &plan.mounts[index].target;
    let path = relative(target)?;
    if let Some(point) = made.remove(path.as_path()) {
        return Ok(point);
    }
    match open_beneath(&root, &path) {
        Ok(point) => return Ok(point),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(why) => return Err(Refusal::new(format!("opening the mount point {}", target.display()), why)),
    }
    let around = plan.mounts[..index]
        .iter()
        .filter(|outer| target.starts_with(&outer.target))
        .max_by_key(|outer| outer.target.components().count());
    let ours = |what: &What| {
        matches!(what, What::Private { .. } | What::Devices | What::Granted { from: Provider::State, .. })
    };
    if !around.is_some_and(|outer| ours(&outer.what)) {
        return Err(Refusal::new(
            format!("a mount on {}", target.display()),
            "the path does not exist in the granted directory around it, and nothing is created there",
        ));
    }
    let made = match directory {
        true => make_directory(&root, &path),
        false => make_file(&root, &path, "").and_then(|()| open_beneath(&root, &path)),
    };
    made.map_err(|why| Refusal::new(format!("making the mount point {}", target.display()), why))
}

/// Bytes of what the root itself, `/dev` and libcontainer's files may take.
const OF_WORKSHOP: u64 = 5 << 20;

/// The places that belong to the server, directories of one file system: to make one takes longer than everything else of
/// a place. There is a second one where files can be executed in some and not in others.
struct Private {
    size: u64,
    around: OwnedFd,
    made: Vec<(Exec, Detached)>,
    count: usize,
}

impl Private {
    /// As large as the largest of the plan's.
    fn new(plan: &Plan, around: OwnedFd) -> Private {
        let sizes = plan.mounts.iter().filter_map(|mount| match mount.what {
            What::Private { size, .. } | What::SharedMemory { size } => Some(size),
            _ => None,
        });
        Private { size: sizes.max().unwrap_or(0), around, made: Vec::new(), count: 0 }
    }

    fn directory(&mut self, mode: u32, exec: Exec) -> io::Result<Detached> {
        let made = match self.made.iter().position(|(with, _)| *with == exec) {
            Some(index) => index,
            None => {
                let name = format!("file-system-{}", self.made.len());
                let new = tmpfs(self.size, exec)?;
                new.attach(&make_directory(&self.around, Path::new(&name))?)?;
                self.made.push((exec, new));
                self.made.len() - 1
            }
        };
        self.count += 1;
        let (around, name) = (&self.made[made].1, self.count.to_string());
        rustix::fs::mkdirat(around, &name, Mode::from_raw_mode(mode))?;
        Detached::copy_of(&open_beneath(around, Path::new(&name))?)
    }
}

fn terminals() -> io::Result<Detached> {
    // Without gid=5: a map of one id has no group 5, and devpts refuses it.
    let options = [("ptmxmode", "0666".to_owned()), ("mode", "0620".to_owned())];
    mounted("devpts", &options, MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

fn tmpfs(size: u64, exec: Exec) -> io::Result<Detached> {
    let no_exec = if exec == Exec::Denied { MountAttrFlags::MOUNT_ATTR_NOEXEC } else { MountAttrFlags::empty() };
    // Empty files take no blocks, and memory of the kernel all the same.
    let inodes = (size / 4096).max(1024);
    let options = [("size", size.to_string()), ("nr_inodes", inodes.to_string()), ("mode", "755".to_owned())];
    mounted("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NODEV | no_exec)
}

fn mounted(kind: &str, options: &[(&str, String)], attributes: MountAttrFlags) -> io::Result<Detached> {
    let new = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(new.as_fd(), *key, value.as_str())?;
    }
    rustix::mount::fsconfig_create(new.as_fd())?;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NOSUID;
    Ok(Detached::new(rustix::mount::fsmount(new.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
}

/// An absolute path inside as one relative to the root.
fn relative(path: &Path) -> Result<PathBuf, Refusal> {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => result.push(name),
            _ => return Err(Refusal::new(format!("the path {}", path.display()), "it is not absolute and plain")),
        }
    }
    Ok(result)
}

fn to_path(name: &std::ffi::CStr) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

fn kind(file: &OwnedFd) -> Option<FileType> {
    rustix::fs::fstat(file).ok().map(|stat| FileType::from_raw_mode(stat.st_mode))
}

fn open_root() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_beneath(directory: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(directory, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Makes a directory and all above it, and opens it. One name at a time, beneath the open directory that it is in: what a
/// name leads to may change meanwhile, where a server of another run has the same lasting directory.
fn make_directory(directory: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let mut here: Option<OwnedFd> = None;
    for name in path.components() {
        let name: &Path = name.as_ref();
        let around = here.as_ref().map_or(directory.as_fd(), AsFd::as_fd);
        let next = match rustix::fs::mkdirat(around, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => open_beneath(around, name)?,
            // A directory of the package that is there already and cannot be written to.
            Err(Errno::ROFS) => open_beneath(around, name).map_err(|_| Errno::ROFS)?,
            Err(why) => return Err(why.into()),
        };
        here = Some(next);
    }
    here.map_or_else(|| open_beneath(directory, Path::new("")), Ok)
}

fn make_file(directory: impl AsFd, path: &Path, text: &str) -> io::Result<()> {
    make_file_in(make_directory(directory, path.parent().unwrap_or(Path::new("")))?, path, text)
}

/// Makes a file of the path's last name.
fn make_file_in(directory: impl AsFd, path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A server of another run may change a lasting HOME while a mount point is made in it (CVE-2021-30465).
    #[test]
    fn a_link_that_comes_meanwhile_is_not_followed() {
        const ATTEMPTS: usize = 60_000;
        let place = tempfile::tempdir().unwrap();
        let (root, outside) = (place.path().join("root"), place.path().join("outside"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&outside).unwrap();
        let directory = OwnedFd::from(File::open(&root).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = symlink(&outside, root.join("home"));
                    let _ = fs::remove_file(root.join("home"));
                    let _ = fs::remove_dir_all(root.join("home"));
                }
            });
            for _ in 0..ATTEMPTS {
                let _ = make_directory(&directory, Path::new("home/work"));
                let _ = make_file(&directory, Path::new("home/file"), "");
            }
            done.store(true, Ordering::Relaxed);
        });
        let made: Vec<_> = fs::read_dir(&outside).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(made.is_empty(), "{made:?}");
    }
}
