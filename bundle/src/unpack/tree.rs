//! The tree that grows beneath one directory handle. No path is ever resolved
//! from anywhere else, and no symlink is ever followed.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fchmod, futimens, linkat, mkdirat, open,
    openat, openat2, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::error::{Code, Result, Stop};
use super::name;

/// A tree under construction.
pub(super) struct Tree {
    root: OwnedFd,
    /// The directory that the last entry went to: entries come in groups.
    recent: Option<(Vec<u8>, OwnedFd)>,
    directories: HashMap<Vec<u8>, Directory>,
    /// Bytes of the names that `directories` holds.
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

/// The most bytes of directory names of one layer.
const MAX_REMEMBERED: usize = 64 << 20;
/// The latest time that is set, in the year 2242.
const MAX_MTIME: i64 = 1 << 33;
const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Tree {
    /// A tree in an empty directory.
    pub(super) fn new(root: &Path) -> Result<Tree> {
        let root = open(root, PATH_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Tree { root, recent: None, directories: HashMap::new(), remembered: 0 })
    }

    /// Makes a directory, or takes over one that an entry below it made.
    pub(super) fn directory(&mut self, path: &[u8], mode: u32, mtime: i64) -> Result<()> {
        let (parent, name) = name::split(path);
        let made = mkdirat(self.parent(parent)?, name, Mode::RWXU);
        match (made, self.directories.get(path).map(|known| &known.source)) {
            (Ok(()), _) | (Err(Errno::EXIST), Some(Declared::Implicitly)) => {
                self.remember(path, Directory { mode, mtime, source: Declared::ByEntry })
            }
            (Err(Errno::EXIST), Some(Declared::ByEntry)) => Err(duplicate()),
            (Err(Errno::EXIST), None) => Err(conflict()),
            (Err(error), _) => Err(error.into()),
        }
    }

    /// Makes an empty file to be written and then given to `seal`.
    pub(super) fn file(&mut self, path: &[u8]) -> Result<File> {
        let (parent, name) = name::split(path);
        let parent = self.parent(parent)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(parent, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(file.into()),
            Err(error) => Err(existing(error, parent, name)),
        }
    }

    /// Makes a symlink; its target may be anything, since nothing follows it here.
    pub(super) fn symlink(&mut self, path: &[u8], target: &[u8], mtime: i64) -> Result<()> {
        if target.is_empty() || target.len() > 4095 || target.contains(&0) {
            return Err(Stop::refused(Code::LinkTarget, "its target is empty, too long or holds a NUL"));
        }
        let (parent, name) = name::split(path);
        let parent = self.parent(parent)?;
        symlinkat(target, parent, name).map_err(|error| existing(error, parent, name))?;
        // A file system that keeps no times of symlinks does no harm.
        let _ = utimensat(parent, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW);
        Ok(())
    }

    /// Makes a second name of a file or symlink of this layer, by way of no symlink.
    pub(super) fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let no_target = |why: &str| Stop::refused(Code::LinkTarget, why);
        let target = name::plain(target).map_err(|_| no_target("its target is no plain name"))?;
        if target.is_empty() {
            return Err(no_target("its target is the root"));
        }
        let (target_parent, target_name) = name::split(&target);
        let target_parent = beneath(self.root.as_fd(), target_parent, PATH_FLAGS)
            .map_err(|_| no_target("the layer holds no such target"))?;
        let (parent, name) = name::split(path);
        let parent = self.parent(parent)?;
        match linkat(&target_parent, target_name, parent, name, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(no_target("the layer holds no such target")),
            Err(Errno::PERM) => Err(no_target("its target is a directory")),
            Err(Errno::MLINK) => Err(no_target("its target has too many names")),
            Err(error) => Err(existing(error, parent, name)),
        }
    }

    /// Sets the modes and times of all directories but the root, which the store
    /// sets; nothing can be added after.
    pub(super) fn finish(self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for (path, directory) in &self.directories {
            let handle = beneath(self.root.as_fd(), path, flags)?;
            fchmod(&handle, Mode::from_raw_mode(directory_mode(directory.mode)))?;
            let _ = futimens(&handle, &times(directory.mtime));
        }
        Ok(())
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
        self.remembered += path.len();
        if self.remembered > MAX_REMEMBERED {
            let why = format!("the names of its directories have more than {MAX_REMEMBERED} bytes");
            return Err(Stop::refused(Code::Bomb, why));
        }
        self.directories.insert(path.to_vec(), directory);
        Ok(())
    }
}

/// Gives a written file its mode and time. Set-uid, set-gid and sticky bits go;
/// what its owner may read or execute, everybody may: root's servers run as
/// another user, and the directory above all layers is closed to others.
pub(super) fn seal(file: &File, mode: u32, mtime: i64) -> Result<()> {
    fchmod(file, Mode::from_raw_mode(shared(mode & 0o777 | 0o400)))?;
    let _ = futimens(file, &times(mtime));
    Ok(())
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
fn beneath(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(dir, path, flags, Mode::empty(), resolve)
}

fn parent_error(error: Errno) -> Stop {
    match error {
        Errno::LOOP => Stop::refused(Code::SymlinkParent, "it lies below a symlink"),
        Errno::NOTDIR => Stop::refused(Code::TypeConflict, "it lies below what is no directory"),
        error => error.into(),
    }
}

/// Why what is no directory could not be made.
fn existing(error: Errno, parent: BorrowedFd<'_>, name: &[u8]) -> Stop {
    if error != Errno::EXIST {
        return error.into();
    }
    match statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => conflict(),
        _ => duplicate(),
    }
}

fn duplicate() -> Stop {
    Stop::refused(Code::Dup, "the layer holds this name twice")
}

fn conflict() -> Stop {
    Stop::refused(Code::TypeConflict, "the layer holds this name as a directory and as something else")
}
