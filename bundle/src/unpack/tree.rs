//! The tree that grows beneath one directory handle. No path is ever resolved
//! from anywhere else, and no symlink is ever followed.

use std::collections::HashMap;
use std::fs::File;

use distribution::Rules;
use distribution::system::{self, AsFd, BorrowedFd, Errno, OwnedFd};
use distribution::system::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fchmod, fstat, futimens, linkat, mkdirat,
    openat, openat2, statat, symlinkat, unlinkat, utimensat,
};

use super::Below;
use super::error::{Code, Result, Stop};
use super::name;
use super::notes::{Hidden, Notes};

/// A tree under construction.
pub(super) struct Tree {
    root: OwnedFd,
    rules: Rules,
    below: Below,
    /// The directory that the last entry went to which was no file: entries come in groups.
    recent: Option<(Vec<u8>, OwnedFd)>,
    directories: HashMap<Vec<u8>, Directory>,
    /// Hard links to what the layer does not hold, each with its place among them. An empty file has their names.
    links: HashMap<Vec<u8>, (usize, Vec<u8>)>,
    postponed: usize,
    notes: Notes,
    /// Bits of modes that new files are known to keep.
    left: Mode,
    /// Bytes of the names that are held here.
    remembered: usize,
}

/// What a directory is to be once everything is in it.
struct Directory {
    mode: u32,
    mtime: i64,
    source: Declared,
}

#[derive(PartialEq)]
enum Declared {
    ByEntry,
    /// By an entry below it.
    Implicitly,
}

/// The most bytes of names that are remembered of one layer.
const MAX_REMEMBERED: usize = 64 << 20;
/// The latest time that is set, in the year 2242.
const MAX_MTIME: i64 = 1 << 33;
const NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const PATH_FLAGS: OFlags = system::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Tree {
    /// A tree in an empty directory.
    pub(super) fn new(root: OwnedFd, rules: Rules, below: Below) -> Tree {
        Tree {
            root,
            rules,
            below,
            recent: None,
            directories: HashMap::new(),
            links: HashMap::new(),
            postponed: 0,
            notes: Notes::default(),
            left: Mode::empty(),
            remembered: 0,
        }
    }

    /// Makes a directory, or takes over one that an entry below it made.
    pub(super) fn directory(&mut self, path: &[u8], mode: u32, mtime: i64) -> Result<()> {
        let lenient = self.rules == Rules::Lenient;
        let (parent, name) = name::split(path);
        let parent = self.parent(parent)?;
        let made = mkdirat(parent, name, Mode::RWXU);
        if lenient && made == Err(Errno::EXIST) && kind_of(parent, name)? == FileType::Symlink {
            unlinkat(parent, name, AtFlags::empty())?;
            mkdirat(parent, name, Mode::RWXU)?;
            self.depart(conflict().of(path));
            return self.remember(path, Directory { mode, mtime, source: Declared::ByEntry });
        }
        match (made, self.directories.get(path).map(|known| &known.source)) {
            (Ok(()), _) | (Err(Errno::EXIST), Some(Declared::Implicitly)) => {}
            (Err(Errno::EXIST), Some(Declared::ByEntry)) if lenient => self.depart(duplicate().of(path)),
            (Err(Errno::EXIST), Some(Declared::ByEntry)) => return Err(duplicate()),
            (Err(Errno::EXIST), None) => return Err(conflict()),
            (Err(error), _) => return Err(error.into()),
        }
        self.remember(path, Directory { mode, mtime, source: Declared::ByEntry })
    }

    /// Makes an empty file to be written and then given to `seal`. Set-uid, set-gid and sticky bits go; what its owner may
    /// read or execute, everybody may: root's servers run as another user, and the directory above all layers is closed to
    /// others.
    pub(super) fn file(&mut self, path: &[u8], mode: u32) -> Result<File> {
        let mode = system::mode(shared(mode & 0o777 | 0o400));
        let file = match create(self.root.as_fd(), path, mode) {
            // Its directory is missing, its name is taken, or what it lies below is no directory.
            Err(Errno::NOENT | Errno::EXIST | Errno::LOOP | Errno::NOTDIR) => {
                self.make(path, |parent, name| openat(parent, name, NEW_FILE, mode))?
            }
            made => made?,
        };
        self.give_mode(&file, mode)?;
        Ok(File::from(file))
    }

    /// Sees to it that a new file has the mode that it was made with. A umask or an access list of the directory takes the
    /// same bits off every file: those that it has left once need no second look.
    fn give_mode(&mut self, file: &OwnedFd, mode: Mode) -> Result<()> {
        if self.left.contains(mode) {
            return Ok(());
        }
        if Mode::from_raw_mode(fstat(file)?.st_mode) == mode {
            self.left |= mode;
            return Ok(());
        }
        Ok(fchmod(file, mode)?)
    }

    /// Makes a symlink; its target may be anything, since nothing follows it here.
    pub(super) fn symlink(&mut self, path: &[u8], target: &[u8], mtime: i64) -> Result<()> {
        if target.is_empty() || target.len() > 4095 || target.contains(&0) {
            return Err(Stop::refused(Code::LinkTarget, "its target is empty, too long or holds a NUL"));
        }
        self.make(path, |parent, name| {
            symlinkat(target, parent, name)?;
            // A file system that keeps no times of symlinks does no harm.
            let _ = utimensat(parent, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW);
            Ok(())
        })
    }

    /// Makes a second name of a file or symlink of this layer, by way of no symlink. What this layer does not hold may lie
    /// in one below: that is seen when they are merged.
    pub(super) fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let target = name::plain(target).map_err(|_| no_target("its target is no plain name"))?;
        if target.is_empty() || target == path {
            return Err(no_target("its target is the root or itself"));
        }
        let (target_parent, target_name) = name::split(&target);
        let held = match beneath(self.root.as_fd(), target_parent, PATH_FLAGS) {
            Ok(_) if self.links.contains_key(&target) => None,
            Ok(held) => match statat(&held, target_name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Directory => Some(held),
                Ok(_) => return Err(no_target("its target is a directory")),
                Err(Errno::NOENT) => None,
                Err(error) => return Err(error.into()),
            },
            Err(Errno::NOENT) => None,
            Err(_) => return Err(no_target("its target lies below what is no directory")),
        };
        let Some(held) = held else { return self.postpone(path, target) };
        let linked = self.make(path, |parent, name| linkat(&held, target_name, parent, name, AtFlags::empty()));
        linked.map_err(|stop| match stop {
            Stop::Io(error) => link_error(error),
            refused => refused,
        })
    }

    /// Takes note that a name of the layers below is hidden. Nothing of this layer is: its entries come after.
    pub(super) fn hide(&mut self, path: &[u8], hidden: Hidden) -> Result<()> {
        let directory = if hidden == Hidden::Opaque { path } else { name::split(path).0 };
        match beneath(self.root.as_fd(), directory, PATH_FLAGS) {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(parent_error(error)),
        }
        self.count(path.len())?;
        let noted = self.notes.hidden.entry(path.to_vec()).or_insert(hidden);
        if hidden == Hidden::Gone {
            *noted = hidden;
        }
        Ok(())
    }

    /// Takes note of the first thing that the strict rules refuse.
    pub(super) fn depart(&mut self, from: Stop) {
        if let Stop::Refused(refusal) = from {
            self.notes.departure.get_or_insert_with(|| refusal.to_string());
        }
    }

    /// Sets the modes and times of all directories but the root, which the store
    /// sets, and writes down what concerns the layers below; nothing can be added after.
    pub(super) fn finish(mut self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for (path, directory) in &self.directories {
            let handle = beneath(self.root.as_fd(), path, flags)?;
            fchmod(&handle, system::mode(directory_mode(directory.mode)))?;
            let _ = futimens(&handle, &times(directory.mtime));
        }
        for (path, (place, target)) in &self.links {
            self.refuse_later_target(*place, target).map_err(|stop| stop.of(path))?;
        }
        let mut links: Vec<_> = self.links.into_iter().collect();
        links.sort_by_key(|(_, (place, _))| *place);
        self.notes.links = links.into_iter().map(|(path, (_, target))| (path, target)).collect();
        if !self.notes.is_empty() {
            self.notes.write(&self.root)?;
        }
        Ok(())
    }

    /// Makes what is no directory. By lenient rules the last of several wins; what had the name is never followed or written.
    fn make<T>(
        &mut self,
        path: &[u8],
        make: impl Fn(BorrowedFd<'_>, &[u8]) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let rules = self.rules;
        let (parent, name) = name::split(path);
        let parent = self.parent(parent)?;
        match make(parent, name) {
            Err(Errno::EXIST) => {}
            made => return Ok(made?),
        }
        if kind_of(parent, name)? == FileType::Directory {
            return Err(conflict());
        }
        if rules == Rules::Strict {
            return Err(duplicate());
        }
        unlinkat(parent, name, AtFlags::empty())?;
        let made = make(parent, name)?;
        self.links.remove(path);
        self.depart(duplicate().of(path));
        Ok(made)
    }

    fn postpone(&mut self, path: &[u8], target: Vec<u8>) -> Result<()> {
        if self.below == Below::Nothing {
            return Err(no_target("the layer holds no such target"));
        }
        self.file(path, 0o600)?;
        self.count(path.len() + target.len())?;
        self.postponed += 1;
        self.links.insert(path.to_vec(), (self.postponed, target));
        Ok(())
    }

    /// What came after a link was not its target: some tools would take it, some what a lower layer holds.
    fn refuse_later_target(&self, place: usize, target: &[u8]) -> Result<()> {
        let later = || Err(no_target("its target comes after it"));
        if let Some((other, _)) = self.links.get(target) {
            return if *other > place { later() } else { Ok(()) };
        }
        let (parent, name) = name::split(target);
        match beneath(self.root.as_fd(), parent, PATH_FLAGS).map(|parent| kind_of(parent.as_fd(), name)) {
            Ok(Ok(_)) => later(),
            _ => Ok(()),
        }
    }

    /// The handle of a directory, made with its parents if it is missing.
    fn parent(&mut self, path: &[u8]) -> Result<BorrowedFd<'_>> {
        let is_recent = self.recent.as_ref().is_some_and(|(recent, _)| recent == path);
        if !is_recent {
            let handle = match beneath(self.root.as_fd(), path, PATH_FLAGS) {
                Err(Errno::NOENT) => self.make_parents(path)?,
                opened => opened.map_err(parent_error)?,
            };
            self.recent = Some((path.to_vec(), handle));
        }
        Ok(self.recent.as_ref().map_or(self.root.as_fd(), |(_, handle)| handle.as_fd()))
    }

    fn make_parents(&mut self, path: &[u8]) -> Result<OwnedFd> {
        let mut handle = beneath(self.root.as_fd(), b"", PATH_FLAGS)?;
        let ends = (0..path.len()).filter(|i| path[*i] == b'/').chain([path.len()]);
        for end in ends {
            let (_, part) = name::split(&path[..end]);
            handle = match beneath(handle.as_fd(), part, PATH_FLAGS) {
                Err(Errno::NOENT) => {
                    mkdirat(&handle, part, Mode::RWXU)?;
                    let directory = Directory { mode: 0o755, mtime: 0, source: Declared::Implicitly };
                    self.remember(&path[..end], directory)?;
                    beneath(handle.as_fd(), part, PATH_FLAGS)?
                }
                opened => opened.map_err(parent_error)?,
            };
        }
        Ok(handle)
    }

    fn remember(&mut self, path: &[u8], directory: Directory) -> Result<()> {
        self.count(path.len())?;
        self.directories.insert(path.to_vec(), directory);
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<()> {
        self.remembered += bytes;
        if self.remembered > MAX_REMEMBERED {
            let why = format!("its directories, whiteouts and links have names of more than {MAX_REMEMBERED} bytes");
            return Err(Stop::refused(Code::Bomb, why));
        }
        Ok(())
    }
}

/// Gives a written file its time.
pub(super) fn seal(file: &File, mtime: i64) {
    // A file system that keeps no times does no harm.
    let _ = futimens(file, &times(mtime));
}

/// The owner can always enter and list, or the tree could not be removed; the
/// sticky bit stays.
fn directory_mode(mode: u32) -> u32 {
    shared(mode & 0o1777 | 0o700)
}

fn shared(mode: u32) -> u32 {
    let owner = mode & 0o500;
    mode | owner >> 3 | owner >> 6
}

fn times(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime.clamp(0, MAX_MTIME), tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// Opens a plain path beneath `dir`, by way of no symlink.
fn beneath(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    openat2(dir, path, flags, Mode::empty(), BENEATH)
}

/// Makes a file at a plain path beneath `dir`, by way of no symlink: one call, whatever directory the last one went to.
fn create(dir: BorrowedFd<'_>, path: &[u8], mode: Mode) -> std::result::Result<OwnedFd, Errno> {
    openat2(dir, path, NEW_FILE, mode, BENEATH)
}

fn parent_error(error: Errno) -> Stop {
    match error {
        Errno::LOOP => Stop::refused(Code::SymlinkParent, "it lies below a symlink"),
        Errno::NOTDIR => Stop::refused(Code::TypeConflict, "it lies below what is no directory"),
        error => error.into(),
    }
}

fn kind_of(parent: BorrowedFd<'_>, name: &[u8]) -> Result<FileType> {
    Ok(FileType::from_raw_mode(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode))
}

pub(super) fn no_target(why: &str) -> Stop {
    Stop::refused(Code::LinkTarget, why)
}

/// Why a file or link that is there cannot have another name.
pub(super) fn link_error(error: std::io::Error) -> Stop {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MLINK) => no_target("its target has too many names"),
        _ => Stop::Io(error),
    }
}

fn duplicate() -> Stop {
    Stop::refused(Code::Dup, "the layer holds this name twice")
}

fn conflict() -> Stop {
    Stop::refused(Code::TypeConflict, "the layer holds this name as a directory and as something else")
}
