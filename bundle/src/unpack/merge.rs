//! All layers of a package as one tree of hard links: it costs names alone, needs no overlay of the kernel, and its names
//! stay in the kernel's cache from one start to the next, which those of an overlay made at each start do not.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use distribution::system::{self, AsFd as _, Errno, OsStrExt as _, OwnedFd};
use distribution::system::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use distribution::system::{linkat, mkdirat, openat, openat2, statat, unlinkat};

use super::error::Result;
use super::name;
use super::notes::{self, Hidden, Notes};
use super::tree::{link_error, no_target};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a directory for [`add_layer`].
///
/// # Errors
/// The system's.
pub(super) fn open(dir: &Path) -> io::Result<OwnedFd> {
    Ok(system::open(dir, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Adds an unpacked layer to the tree of those below it, on the same file system. What is above replaces what is below; what
/// the layer hides of them goes first, so that nothing of its own does. A directory above a link that leads to a directory
/// goes where the link leads, so that `lib/x` over a base with `lib -> usr/lib` hides nothing.
///
/// # Errors
/// Where a hard link leads to what no layer holds; else the system's. Layers hold directories, files and links alone.
pub(super) fn add_layer(layer: &OwnedFd, root: &OwnedFd, notes: &Notes) -> Result<()> {
    for (path, hidden) in &notes.hidden {
        hide(path, *hidden, root)?;
    }
    merge_directory(layer, root, Path::new(""), root)?;
    notes.links.iter().try_for_each(|(path, target)| link_below(path, target, root).map_err(|stop| stop.of(path)))
}

/// Takes away what lower layers have at a path; often it is nothing, or lies below what is no directory.
fn hide(path: &[u8], hidden: Hidden, root: &OwnedFd) -> io::Result<()> {
    let (parent, name) = name::split(path);
    if name.is_empty() {
        return empty(root);
    }
    let Ok(parent) = within(root, parent) else { return Ok(()) };
    let name = std::ffi::CString::new(name)?;
    match (hidden, openat(&parent, &name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())) {
        (Hidden::Opaque, Ok(directory)) => empty(&directory),
        (_, Err(Errno::NOENT)) => Ok(()),
        _ => remove(&parent, &name),
    }
}

/// Makes a hard link to what the layers below hold.
fn link_below(path: &[u8], target: &[u8], root: &OwnedFd) -> Result<()> {
    let missing = || no_target("neither its layer nor one below holds such a target");
    let (target_parent, target_name) = name::split(target);
    let target_parent = within(root, target_parent).map_err(|_| missing())?;
    let (parent, name) = name::split(path);
    let parent = within(root, parent)?;
    let about = |parent: &OwnedFd, name: &[u8]| statat(parent, name, AtFlags::SYMLINK_NOFOLLOW);
    let (there, stand_in) = (about(&target_parent, target_name).map_err(|_| missing())?, about(&parent, name)?);
    let is_itself = (there.st_dev, there.st_ino) == (stand_in.st_dev, stand_in.st_ino);
    if is_itself || FileType::from_raw_mode(there.st_mode) == FileType::Directory {
        return Err(missing());
    }
    let [target_name, name] =
        [target_name, name].map(|name| std::ffi::CString::new(name).expect("plain names hold no NUL"));
    remove(&parent, &name)?;
    linkat(&target_parent, &target_name, &parent, &name, AtFlags::empty()).map_err(|error| link_error(error.into()))
}

/// Opens a directory of the tree as whoever had it for a root would: no link leads out.
fn within(root: &OwnedFd, path: impl system::Arg) -> std::result::Result<OwnedFd, Errno> {
    let path = path.as_cow_c_str()?;
    let path: &CStr = if path.is_empty() { c"." } else { &path };
    openat2(root, path, DIRECTORY, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
}

/// `path` is where `to` is beneath `root`.
fn merge_directory(from: &OwnedFd, to: &OwnedFd, path: &Path, root: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." || name == notes::FILE {
            continue;
        }
        // Some file systems do not say it in the listing.
        let kind = match entry.file_type() {
            FileType::Unknown => FileType::from_raw_mode(statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode),
            kind => kind,
        };
        if kind == FileType::Directory {
            let source = openat(from, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
            let path = join(path, name);
            let target = directory(to, name, &path, root)?;
            merge_directory(&source, &target, &path, root)?;
        } else {
            link_over(from, to, name)?;
        }
    }
    Ok(())
}

/// Opens the directory of that name, makes it, or makes it in place of what is no directory.
fn directory(to: &OwnedFd, name: &CStr, path: &Path, root: &OwnedFd) -> io::Result<OwnedFd> {
    // Read-only inside whatever its mode; everybody may look into it, as unpacking has it.
    let mode = Mode::from_raw_mode(0o755);
    match mkdirat(to, name, mode) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            if let Ok(there) = within(root, path) {
                return Ok(there);
            }
            unlinkat(to, name, AtFlags::empty())?;
            mkdirat(to, name, mode)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(openat(to, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)
}

/// Gives a file or link a second name, in place of what has that name.
fn link_over(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
    let link = || linkat(from, name, to, name, AtFlags::empty());
    let linked = match link() {
        Err(Errno::EXIST) => {
            remove(to, name)?;
            link()
        }
        other => other,
    };
    match linked {
        Ok(()) => Ok(()),
        // The file system's most names of one file are used up.
        Err(Errno::MLINK) => copy(from, to, name),
        Err(error) => Err(error.into()),
    }
}

fn copy(from: &OwnedFd, to: &OwnedFd, name: &CStr) -> io::Result<()> {
    let source = openat(from, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mode = Mode::from_raw_mode(system::fstat(&source)?.st_mode & 0o777);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = openat(to, name, flags, mode)?;
    system::fchmod(&target, mode)?;
    io::copy(&mut File::from(source), &mut File::from(target)).map(drop)
}

fn remove(from: &OwnedFd, name: &CStr) -> io::Result<()> {
    match unlinkat(from, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    empty(&openat(from, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?)?;
    Ok(unlinkat(from, name, AtFlags::REMOVEDIR)?)
}

/// Removes everything in a directory.
fn empty(directory: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            remove(directory, name)?;
        }
    }
    Ok(())
}

fn join(path: &Path, name: &CStr) -> PathBuf {
    path.join(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn merge(layers: &[&Path], into: &Path) {
        let root = open(into).unwrap();
        for layer in layers {
            let layer = open(layer).unwrap();
            add_layer(&layer, &root, &Notes::read(&layer).unwrap()).unwrap_or_else(|stop| panic!("{stop:?}"));
        }
    }

    #[test]
    fn what_is_above_replaces_what_is_below() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["low/usr/lib", "low/was-dir/deep", "high/lib", "high/was-file", "high/usr/lib", "tree"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        symlink("usr/lib", at("low/lib")).unwrap();
        symlink("/nowhere", at("low/gone")).unwrap();
        fs::create_dir_all(at("high/gone")).unwrap();
        for (path, text) in [
            ("low/usr/lib/kept", "low"),
            ("low/usr/lib/both", "low"),
            ("low/was-dir/deep/file", "low"),
            ("low/was-file", "low"),
            ("high/usr/lib/both", "high"),
            ("high/lib/through", "high"),
            ("high/was-dir", "high"),
            ("high/was-file/file", "high"),
            ("high/gone/file", "high"),
        ] {
            fs::write(at(path), text).unwrap();
        }
        merge(&[&at("low"), &at("high")], &at("tree"));
        for (path, text) in [
            ("usr/lib/kept", "low"),
            ("usr/lib/both", "high"),
            ("usr/lib/through", "high"),
            ("was-dir", "high"),
            ("was-file/file", "high"),
            ("gone/file", "high"),
        ] {
            assert_eq!(fs::read_to_string(at("tree").join(path)).unwrap(), text, "{path}");
        }
        assert_eq!(fs::read_link(at("tree/lib")).unwrap(), Path::new("usr/lib"));
        assert_eq!(
            fs::metadata(at("tree/usr/lib/kept")).unwrap().ino(),
            fs::metadata(at("low/usr/lib/kept")).unwrap().ino()
        );
        assert_eq!(fs::read_to_string(at("low/usr/lib/both")).unwrap(), "low", "the layers stay as they are");
    }

    #[test]
    fn a_link_out_of_the_tree_leads_nowhere_out() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["low", "high/trap", "tree", "outside"] {
            fs::create_dir_all(at(path)).unwrap();
        }
        symlink(at("outside"), at("low/trap")).unwrap();
        fs::write(at("high/trap/file"), "x").unwrap();
        merge(&[&at("low"), &at("high")], &at("tree"));
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
        assert!(at("tree/trap/file").is_file() && at("tree/trap").is_dir());
    }
}
