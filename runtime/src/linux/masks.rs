//! Directories in grants that are denied: each is hidden by an empty tmpfs, and the run ends where one changes its place.
//!
//! A mount sticks to the directory that it was put on: a denied directory stays hidden wherever the host moves it in its
//! grant. What appears at its old path has no mask, though, and a mask on a directory that is removed goes with it. So
//! the supervisor pins grant and directory before the cage is built, has every change of the names between them told, and
//! compares where the path leads. It looks before it passes on anything that the server said, so that what a
//! server sees in the moment before it is killed reaches nobody.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use serde::{Deserialize, Serialize};

use super::mounts::Detached;
use super::shown;
use super::wire::Refusal;
use crate::plan::{Plan, What};

/// Which directory one is: its device and its inode number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId(u64, u64);

/// A directory with what it is.
#[derive(Debug)]
pub struct Place {
    /// Held open, so that no other gets its inode number.
    pub directory: OwnedFd,
    id: FileId,
}

impl Place {
    /// The directory at a path beneath another, without following any link.
    ///
    /// # Errors
    /// The kernel's, where it is not there.
    pub fn beneath(root: impl AsFd, path: &Path) -> io::Result<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Place::of(rustix::fs::openat2(root, path, flags, Mode::empty(), resolve)?)
    }

    /// An open directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(directory: OwnedFd) -> io::Result<Place> {
        let stat = rustix::fs::fstat(&directory)?;
        // On some machines these are not 64 bits wide.
        #[allow(clippy::useless_conversion)]
        let id = FileId(u64::from(stat.st_dev), u64::from(stat.st_ino));
        Ok(Place { directory, id })
    }
}

/// That what the cage process found is what the supervisor pinned.
///
/// # Errors
/// A [`Refusal`], where something was moved between the two.
pub fn check(found: &[Place], pinned: &[FileId]) -> Result<(), Refusal> {
    match found.iter().map(|place| place.id).eq(pinned.iter().copied()) {
        true => Ok(()),
        false => Err(Refusal::new("hiding what is denied", "it changed its place just now").hint(STAY)),
    }
}

const STAY: &str = "leave denied directories and what holds them in their places while a server runs";

/// The refusal of a mask.
pub fn cannot(what: &Path, why: impl ToString) -> Refusal {
    Refusal::new(format!("hiding {}", what.display()), why).hint(STAY)
}

/// What hides a directory: an empty tmpfs, read-only, that its owner cannot open either.
///
/// # Errors
/// The kernel's.
pub fn tmpfs() -> io::Result<Detached> {
    let tmpfs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("size", "4096"), ("nr_inodes", "1"), ("mode", "0")] {
        rustix::mount::fsconfig_set_string(tmpfs.as_fd(), key, value)?;
    }
    rustix::mount::fsconfig_create(tmpfs.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(Detached::new(rustix::mount::fsmount(tmpfs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?))
}

/// The supervisor's watch over what is denied.
#[derive(Debug)]
pub struct Masks {
    masks: Vec<Mask>,
    /// An inotify instance over the directories from each grant down to what is denied, where anything is.
    events: Option<OwnedFd>,
    names: Vec<Name>,
}

/// A name on the way from a grant to what is denied in it.
#[derive(Debug)]
struct Name {
    /// The watch of the directory that it is in.
    watch: i32,
    name: OsString,
    /// The denied directory's path on the host.
    shown: PathBuf,
}

#[derive(Debug)]
struct Mask {
    /// The grant.
    root: OwnedFd,
    /// The way from there.
    path: PathBuf,
    /// As it was found before the cage was built.
    place: Place,
    /// Its path on the host.
    shown: PathBuf,
}

impl Masks {
    /// Pins all that a plan denies and begins to watch it.
    ///
    /// # Errors
    /// A [`Refusal`] that names what cannot be found or watched, or that is shown at a second place.
    pub fn pin(plan: &Plan) -> Result<Masks, Refusal> {
        let mut masks = Masks { masks: Vec::new(), events: None, names: Vec::new() };
        for mount in &plan.mounts {
            if let What::Denied { grant, path } = &mount.what {
                let shown = grant.join(path);
                let mask = masks.watch(grant, path, &shown).map_err(|why| match why {
                    Trouble::Kernel(why) => cannot(&shown, io::Error::from(why)),
                    Trouble::Watch(why) => {
                        let hint = match why {
                            Errno::ACCESS => "make the directories between the grant and it readable, or grant another",
                            _ => "sysctl fs.inotify.max_user_instances and fs.inotify.max_user_watches allow more",
                        };
                        cannot(&shown, format!("its place cannot be watched: {}", io::Error::from(why))).hint(hint)
                    }
                    Trouble::Forgetful(name) => cannot(&shown, format!("on {name} a mask can vanish at any time"))
                        .hint("grant only what lies beside it, or keep it on a file system of this machine"),
                })?;
                masks.masks.push(mask);
            }
        }
        shown::nowhere_else(plan)?;
        Ok(masks)
    }

    /// What the denied directories are, in the plan's order.
    pub fn ids(&self) -> Vec<FileId> {
        self.masks.iter().map(|mask| mask.place.id).collect()
    }

    /// Readable when a name near a mask changed.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().map(AsFd::as_fd)
    }

    /// A denied directory that is not in its place any more, or was not for a moment.
    pub fn look(&self) -> Option<PathBuf> {
        let left = self.told().map(|name| &name.shown);
        left.or_else(|| self.masks.iter().find(|mask| !mask.is_in_place()).map(|mask| &mask.shown)).cloned()
    }

    /// A name that something was moved to or from. Takes all that was told.
    fn told(&self) -> Option<&Name> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(self.events.as_ref()?, &mut buffer);
        let mut told = None;
        while let Ok(event) = events.next() {
            let is = |name: &&Name| {
                name.watch == event.wd() && event.file_name().is_some_and(|f| f.to_bytes() == name.name.as_bytes())
            };
            told = told.or_else(|| self.names.iter().find(is));
        }
        told
    }

    fn watch(&mut self, grant: &Path, path: &Path, shown: &Path) -> Result<Mask, Trouble> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat2(rustix::fs::CWD, grant, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        let events = match &self.events {
            Some(events) => events,
            None => {
                self.events.insert(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(Trouble::Watch)?)
            }
        };
        for part in path.ancestors() {
            let (Some(outer), Some(name)) = (part.parent(), part.file_name()) else { continue };
            let inner = (!outer.as_os_str().is_empty()).then(|| Place::beneath(&root, outer)).transpose()?;
            let watch = watch_names(events, inner.as_ref().map_or(&root, |place| &place.directory))?;
            self.names.push(Name { watch, name: name.into(), shown: shown.into() });
        }
        // After the watches: what changes from here on is told.
        let place = Place::beneath(&root, path)?;
        keeps_mounts(&place.directory)?;
        Ok(Mask { root, path: path.into(), place, shown: shown.into() })
    }
}

impl Mask {
    /// Whether its path leads to the directory that it led to. On doubt it does not.
    fn is_in_place(&self) -> bool {
        Place::beneath(&self.root, &self.path).is_ok_and(|now| now.id == self.place.id)
    }
}

/// Why a directory cannot be kept hidden.
enum Trouble {
    Kernel(Errno),
    Watch(Errno),
    Forgetful(&'static str),
}

impl From<Errno> for Trouble {
    fn from(why: Errno) -> Trouble {
        Trouble::Kernel(why)
    }
}

impl From<io::Error> for Trouble {
    fn from(why: io::Error) -> Trouble {
        Trouble::Kernel(Errno::from_io_error(&why).unwrap_or(Errno::IO))
    }
}

/// Has every name told that comes into a directory or leaves it. New files are no matter: a denied name is taken until it is
/// moved or removed.
fn watch_names(events: &OwnedFd, directory: &OwnedFd) -> Result<i32, Trouble> {
    keeps_mounts(directory)?;
    let names = WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::ONLYDIR;
    // The kernel takes no descriptor here; this path is one.
    inotify::add_watch(events, format!("/proc/self/fd/{}", directory.as_raw_fd()), names).map_err(Trouble::Watch)
}

/// File systems of other machines and of user space forget directories that they were not asked for, and with a directory
/// goes what is mounted on it, d_invalidate in the kernel.
fn keeps_mounts(directory: &OwnedFd) -> Result<(), Trouble> {
    let magic = rustix::fs::fstatfs(directory)?.f_type as u64;
    match FORGETFUL.iter().find(|(known, _)| *known == magic & 0xffff_ffff) {
        Some((_, name)) => Err(Trouble::Forgetful(name)),
        None => Ok(()),
    }
}

/// By their magic numbers, statfs(2).
const FORGETFUL: [(u64, &str); 8] = [
    (0x6969, "nfs"),
    (0x6573_5546, "fuse"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x7372_7279, "afs"),
];
