//! Files by an open directory and a name in it.

use std::ffi::{CStr, CString};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::ops::{BitOr, BitOrAssign};
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::names::part;
use super::{Arg, Errno, sys};

type Result<T> = std::result::Result<T, Errno>;

/// FILE_FLAG_BACKUP_SEMANTICS, by which directories are opened, and FILE_FLAG_OPEN_REPARSE_POINT, by which links are not followed.
pub(super) const AS_IT_IS: u32 = 0x0200_0000 | 0x0020_0000;

/// FILE_SHARE_READ, FILE_SHARE_WRITE, and FILE_SHARE_DELETE, which is also the right to rename.
const OTHERS_MAY_REMOVE: u32 = 1 | 2 | 4;
/// FILE_LIST_DIRECTORY, FILE_TRAVERSE, FILE_READ_ATTRIBUTES and SYNCHRONIZE.
const TO_LIST: u32 = 1 | 0x20 | 0x80 | 0x0010_0000;
/// FILE_ADD_FILE, which stands in for the right to be the only one: listing and moving need it not.
const TO_BE_ALONE: u32 = 2;
/// FILE_SHARE_READ and FILE_SHARE_DELETE.
const OTHERS_ARE_NOT_ALONE: u32 = 1 | 4;

/// An open file or directory.
#[derive(Debug)]
pub struct OwnedFd(File);

impl OwnedFd {
    /// Opens a directory, no link to one.
    pub(super) fn directory(path: &Path) -> io::Result<OwnedFd> {
        OwnedFd::with(path, TO_LIST, OTHERS_MAY_REMOVE)
    }

    /// The same, and nobody else can hold it alone meanwhile.
    pub(super) fn shared(path: &Path) -> io::Result<OwnedFd> {
        OwnedFd::with(path, TO_LIST, OTHERS_ARE_NOT_ALONE)
    }

    /// The same for whoever wants to be the only one who holds it.
    pub(super) fn alone(path: &Path) -> io::Result<OwnedFd> {
        OwnedFd::with(path, TO_LIST | TO_BE_ALONE, OTHERS_ARE_NOT_ALONE)
    }

    fn with(path: &Path, access: u32, share: u32) -> io::Result<OwnedFd> {
        let file = OpenOptions::new().access_mode(access).share_mode(share).custom_flags(AS_IT_IS).open(path)?;
        match sys::about(&file)?.kind() {
            FileType::Directory => Ok(OwnedFd(file)),
            FileType::Symlink => Err(Errno::LOOP.into()),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Where it is now.
    ///
    /// # Errors
    /// The system's.
    pub fn path(&self) -> io::Result<PathBuf> {
        sys::path(&self.0)
    }

    /// What tells it from every other.
    pub(super) fn identity(&self) -> Option<(u64, u64)> {
        sys::about(&self.0).ok().map(|about| (about.st_dev, about.st_ino))
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        fd.0
    }
}

/// The same, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'a>(&'a File);

impl BorrowedFd<'_> {
    /// A second handle.
    ///
    /// # Errors
    /// The system's.
    pub fn try_clone_to_owned(&self) -> io::Result<OwnedFd> {
        Ok(OwnedFd(self.0.try_clone()?))
    }
}

/// Does something with a name in a directory, which may be moved meanwhile by whoever holds it.
fn within<T>(dir: impl AsFd, name: impl Arg, act: impl Fn(&Path) -> io::Result<T>) -> Result<T> {
    let name = name.as_cow_c_str()?;
    let name = part(name.to_bytes())?;
    let directory = |dir: &BorrowedFd<'_>| sys::path(dir.0).map_err(|why| Errno::of(&why));
    let dir = dir.as_fd();
    let mut was = directory(&dir)?;
    loop {
        let path = if name == "." { was.clone() } else { was.join(&name) };
        match act(&path).map_err(|why| Errno::of(&why)) {
            Err(Errno::NOENT) => {
                let is = directory(&dir)?;
                if is == was {
                    return Err(Errno::NOENT);
                }
                was = is;
            }
            done => return done,
        }
    }
}

/// What can be lent.
pub trait AsFd {
    /// Lends it.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(&self.0)
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(self)
    }
}

impl<T: AsFd> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        T::as_fd(self)
    }
}

macro_rules! bits {
    ($(#[$doc:meta])* $name:ident { $($flag:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(u32);

        #[allow(missing_docs)]
        impl $name {
            $(pub const $flag: $name = $name($value);)*

            #[must_use]
            pub const fn empty() -> $name {
                $name(0)
            }

            #[must_use]
            pub const fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            #[must_use]
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                self.union(other)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) {
                self.0 |= other.0;
            }
        }
    };
}

bits! {
    /// How a file is opened. Handles are never inherited unless somebody says so.
    OFlags { RDONLY = 0, WRONLY = 1, RDWR = 2, CREATE = 4, EXCL = 8, NOFOLLOW = 16, DIRECTORY = 32, CLOEXEC = 0, }
}
bits! {
    /// Modes, which mean nothing here.
    Mode { RUSR = 0o400, WUSR = 0o200, RWXU = 0o700, }
}
bits! {
    /// What a call does about links and directories.
    AtFlags { SYMLINK_NOFOLLOW = 1, REMOVEDIR = 2, }
}

impl Mode {
    /// Of its number.
    #[must_use]
    pub const fn from_raw_mode(mode: u32) -> Mode {
        Mode(mode)
    }
}

/// A directory by which others are reached.
pub const PATH: OFlags = OFlags::RDONLY;

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FileType {
    RegularFile,
    Directory,
    Symlink,
    Fifo,
    Socket,
    Unknown,
}

impl FileType {
    /// By the bits of a mode.
    #[must_use]
    pub const fn from_raw_mode(mode: u32) -> FileType {
        match mode & 0o170_000 {
            0o100_000 => FileType::RegularFile,
            0o040_000 => FileType::Directory,
            0o120_000 => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }
}

/// What there is to know of a file.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Stat {
    pub st_mode: u32,
    pub st_size: u64,
    pub st_dev: u64,
    pub st_ino: u64,
    pub st_nlink: u64,
}

impl Stat {
    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.st_mode)
    }
}

/// Seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

/// The times of a file.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Timestamps {
    pub last_access: Timespec,
    pub last_modification: Timespec,
}

/// Opens what lies at a path.
///
/// # Errors
/// The system's; `LOOP` for a link, `NOTDIR` where a directory was asked for.
pub fn open(path: impl AsRef<Path>, flags: OFlags, _: Mode) -> Result<OwnedFd> {
    open_at(path.as_ref(), flags).map_err(|why| Errno::of(&why))
}

/// Opens or makes a name in a directory.
///
/// # Errors
/// As [`open`], and `INVAL` for a name that Windows reads as something else.
pub fn openat(dir: impl AsFd, name: impl Arg, flags: OFlags, _: Mode) -> Result<OwnedFd> {
    within(dir, name, |path| open_at(path, flags))
}

fn open_at(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut options = OpenOptions::new();
    let writes = flags.contains(OFlags::WRONLY) || flags.contains(OFlags::RDWR);
    options.read(!flags.contains(OFlags::WRONLY)).write(writes).share_mode(OTHERS_MAY_REMOVE).custom_flags(AS_IT_IS);
    if flags.contains(OFlags::CREATE) {
        options.create_new(flags.contains(OFlags::EXCL)).create(true);
    } else if fs::symlink_metadata(path)?.is_dir() {
        options = OpenOptions::new();
        options.access_mode(TO_LIST).share_mode(OTHERS_MAY_REMOVE).custom_flags(AS_IT_IS);
    }
    let file = options.open(path)?;
    match sys::about(&file)?.kind() {
        FileType::Symlink => Err(Errno::LOOP.into()),
        FileType::Directory => Ok(OwnedFd(file)),
        _ if flags.contains(OFlags::DIRECTORY) => Err(Errno::NOTDIR.into()),
        _ => Ok(OwnedFd(file)),
    }
}

/// Makes a directory.
///
/// # Errors
/// The system's.
pub fn mkdirat(dir: impl AsFd, name: impl Arg, _: Mode) -> Result<()> {
    within(dir, name, |path| fs::create_dir(path))
}

/// Removes a file, or by `REMOVEDIR` a directory.
///
/// # Errors
/// The system's; `ISDIR` for a directory that was not said to be one.
pub fn unlinkat(dir: impl AsFd, name: impl Arg, flags: AtFlags) -> Result<()> {
    within(dir, name, |path| {
        let about = fs::symlink_metadata(path)?;
        match (flags.contains(AtFlags::REMOVEDIR), about.is_dir()) {
            (true, _) => fs::remove_dir(path),
            (false, true) => Err(Errno::ISDIR.into()),
            // A link to a directory is removed as one.
            (false, false) if about.is_symlink() => fs::remove_file(path).or_else(|_| fs::remove_dir(path)),
            (false, false) => fs::remove_file(path),
        }
    })
}

/// Gives a file a second name.
///
/// # Errors
/// The system's.
pub fn linkat(from: impl AsFd, name: impl Arg, to: impl AsFd, new: impl Arg, _: AtFlags) -> Result<()> {
    let new = new.as_cow_c_str()?;
    within(from, name, |from| within(&to, &*new, |to| fs::hard_link(from, to)).map_err(Into::into))
}

/// Makes a symlink.
///
/// # Errors
/// The system's; without the right to make links it is `ERROR_PRIVILEGE_NOT_HELD`.
pub fn symlinkat(target: impl Arg, dir: impl AsFd, name: impl Arg) -> Result<()> {
    let target = target.as_cow_c_str()?;
    let target = target.to_str().map_err(|_| Errno::INVAL)?.replace('/', "\\");
    within(dir, name, |link| std::os::windows::fs::symlink_file(&target, link))
}

/// Where a symlink leads.
///
/// # Errors
/// The system's; `INVAL` for what is none.
pub fn readlinkat(dir: impl AsFd, name: impl Arg, _: Vec<u8>) -> Result<CString> {
    let target = within(dir, name, |path| match fs::symlink_metadata(path)?.is_symlink() {
        true => fs::read_link(path),
        false => Err(Errno::INVAL.into()),
    })?;
    CString::new(target.to_str().ok_or(Errno::INVAL)?.replace('\\', "/")).map_err(|_| Errno::INVAL)
}

/// Looks at a name in a directory, and never at what a link leads to.
///
/// # Errors
/// The system's.
pub fn statat(dir: impl AsFd, name: impl Arg, _: AtFlags) -> Result<Stat> {
    within(dir, name, |path| {
        let mut options = OpenOptions::new();
        options.access_mode(0).share_mode(OTHERS_MAY_REMOVE).custom_flags(AS_IT_IS);
        sys::about(&options.open(path)?)
    })
}

/// Looks at what is open.
///
/// # Errors
/// The system's.
pub fn fstat(fd: impl AsFd) -> Result<Stat> {
    sys::about(fd.as_fd().0).map_err(|why| Errno::of(&why))
}

/// There are no modes to be set.
///
/// # Errors
/// None.
pub fn fchmod(_: impl AsFd, _: Mode) -> Result<()> {
    Ok(())
}

/// Sets the times of what is open.
///
/// # Errors
/// The system's.
pub fn futimens(fd: impl AsFd, times: &Timestamps) -> Result<()> {
    let at = |time: Timespec| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        SystemTime::UNIX_EPOCH + Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    };
    let times = FileTimes::new().set_accessed(at(times.last_access)).set_modified(at(times.last_modification));
    fd.as_fd().0.set_times(times).map_err(|why| Errno::of(&why))
}

/// Links keep the time at which they are made.
///
/// # Errors
/// Always `NOSYS`.
pub fn utimensat(_: impl AsFd, _: impl Arg, _: &Timestamps, _: AtFlags) -> Result<()> {
    Err(Errno::NOSYS)
}

/// The entries of a directory.
#[derive(Debug)]
pub struct Dir(fs::ReadDir);

impl Dir {
    /// Reads a directory from its beginning.
    ///
    /// # Errors
    /// The system's.
    pub fn read_from(fd: impl AsFd) -> Result<Dir> {
        within(fd, c".", |path| fs::read_dir(path)).map(Dir)
    }
}

impl Iterator for Dir {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let entry = self.0.next()?.map_err(|why| Errno::of(&why));
        Some(entry.and_then(|entry| {
            let kind = entry.file_type().map_err(|why| Errno::of(&why))?;
            let kind = match (kind.is_symlink(), kind.is_dir()) {
                (true, _) => FileType::Symlink,
                (false, true) => FileType::Directory,
                (false, false) => FileType::RegularFile,
            };
            let name = entry.file_name().into_string().map_err(|_| Errno::INVAL)?;
            Ok(Entry { name: CString::new(name).map_err(|_| Errno::INVAL)?, kind })
        }))
    }
}

/// One of them.
#[derive(Debug)]
pub struct Entry {
    name: CString,
    kind: FileType,
}

impl Entry {
    /// Its name.
    pub fn file_name(&self) -> &CStr {
        &self.name
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        self.kind
    }
}
