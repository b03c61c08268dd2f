//! All layers of a package as one tree of hard links: it costs names alone, needs no overlay of the kernel, and its names
//! stay in the kernel's cache from one start to the next, which those of an overlay made at each start do not.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::fs::{linkat, mkdirat, openat, openat2, statat, unlinkat};
use rustix::io::Errno;

/// Merges unpacked layers, the lowest first, into an empty directory of the same file system. What is above replaces what
/// is below; a directory above a link that leads to a directory goes where the link leads, so that `lib/x` over a base
/// with `lib -> usr/lib` hides nothing.
///
/// # Errors
/// The system's. Layers hold directories, files and links alone: unpacking refuses everything else.
pub(super) fn merge(layers: &[&Path], into: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(into, flags, Mode::empty())?;
    for layer in layers {
        let layer = rustix::fs::open(*layer, flags, Mode::empty())?;
        merge_directory(&layer, &root, Path::new(""), &root)?;
    }
    Ok(())
}

/// `path` is where `to` is beneath `root`.
fn merge_directory(from: &OwnedFd, to: &OwnedFd, path: &Path, root: &OwnedFd) -> io::Result<()> {
    for entry in Dir::read_from(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = FileType::from_raw_mode(statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        if kind == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let source = openat(from, name, flags, Mode::empty())?;
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
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match mkdirat(to, name, mode) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            if let Ok(there) = openat2(root, path, flags, Mode::empty(), within) {
                return Ok(there);
            }
            unlinkat(to, name, AtFlags::empty())?;
            mkdirat(to, name, mode)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(openat(to, name, flags | OFlags::NOFOLLOW, Mode::empty())?)
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
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&source)?.st_mode & 0o777);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = openat(to, name, flags, mode)?;
    rustix::fs::fchmod(&target, mode)?;
    io::copy(&mut File::from(source), &mut File::from(target)).map(drop)
}

fn remove(from: &OwnedFd, name: &CStr) -> io::Result<()> {
    match unlinkat(from, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => {}
        other => return Ok(other?),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(from, name, flags, Mode::empty())?;
    for entry in Dir::read_from(directory.as_fd())? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            remove(&directory, name)?;
        }
    }
    Ok(unlinkat(from, name, AtFlags::REMOVEDIR)?)
}

fn join(path: &Path, name: &CStr) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    path.join(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

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
        merge(&[&at("low"), &at("high")], &at("tree")).unwrap();
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
        merge(&[&at("low"), &at("high")], &at("tree")).unwrap();
        assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 0);
        assert!(at("tree/trap/file").is_file() && at("tree/trap").is_dir());
    }
}
