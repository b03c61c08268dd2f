//! Files that appear whole or not at all, and trees that go away.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::system::{self, Directory, Hold};
use crate::{Error, Result};

/// Puts `bytes` at `target` in one step; `scratch` is a directory on the same file system.
pub(crate) fn replace(target: &Path, bytes: &[u8], scratch: &Path) -> Result<()> {
    let (mut file, path) = scratch_file(scratch)?;
    let written =
        file.write_all(bytes).map_err(Error::store("write", target)).and_then(|()| land(&file, &path, target));
    written.inspect_err(|_| drop(fs::remove_file(&path)))
}

/// Brings a finished scratch file to its final name, on the disk before it can be seen.
pub(crate) fn land(file: &File, scratch: &Path, target: &Path) -> Result<()> {
    file.sync_all().map_err(Error::store("write", target))?;
    fs::rename(scratch, target).map_err(Error::store("write", target))?;
    sync_dir(target.parent().unwrap_or(target))
}

/// A new file in `dir`, locked so that a sweep sees that it is in use. Who may read it is the umask's word and that of the
/// directory: a store is its owner's alone, a layout may be for others.
pub(crate) fn scratch_file(dir: &Path) -> Result<(File, PathBuf)> {
    let create = |path: &Path| {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        system::lock(&file)?;
        Ok(file)
    };
    scratch(dir, create, system::is_at)
}

/// A new directory in `dir`, with a handle that is locked as for a file.
pub(crate) fn scratch_dir(dir: &Path) -> Result<(Directory, PathBuf)> {
    let create = |path: &Path| fs::create_dir(path).and_then(|()| system::hold_directory(path, Hold::Alone));
    scratch(dir, create, system::is_directory_at)
}

fn scratch<T>(
    dir: &Path,
    create: impl Fn(&Path) -> io::Result<T>,
    is_at: impl Fn(&T, &Path) -> bool,
) -> Result<(T, PathBuf)> {
    loop {
        let path = unique(dir, "new");
        let file = match create(&path) {
            // Left by a dead process that had our number, or swept before it could be opened.
            Err(e) if matches!(e.kind(), io::ErrorKind::AlreadyExists) => continue,
            Err(e) if e.kind() == io::ErrorKind::NotFound && dir.is_dir() => continue,
            made => made.map_err(Error::store("create", &path))?,
        };
        if is_at(&file, &path) {
            return Ok((file, path));
        }
    }
}

/// A name in `dir` that this process has not used.
pub(crate) fn unique(dir: &Path, kind: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    dir.join(format!("{kind}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// Moves `path` into `trash` under a name of its own; says whether there was anything to move.
pub(crate) fn discard(path: &Path, trash: &Path) -> Result<bool> {
    loop {
        let target = unique(trash, "old");
        if target.symlink_metadata().is_ok() {
            continue;
        }
        return match fs::rename(path, &target) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(Error::store("remove", path)(e)),
        };
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    system::sync_directory(dir).map_err(Error::store("write", dir))
}

/// The entries of a directory; none where it is missing.
pub(crate) fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(found) => found.map(|e| Ok(e.map_err(Error::store("read", dir))?.path())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(Error::store("read", dir)(e)),
    }
}

/// Bytes of the regular files below `path`, links counted once a name; what cannot be read counts nothing.
pub(crate) fn size(path: &Path) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => entries(path).unwrap_or_default().iter().map(|entry| size(entry)).sum(),
        Ok(meta) if meta.is_file() => meta.len(),
        _ => 0,
    }
}

/// Deletes a file or a whole tree, also one whose directories are not writable.
pub(crate) fn delete(path: &Path) -> Result<()> {
    let meta = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta.map_err(Error::store("remove", path))?,
    };
    if !meta.is_dir() {
        return gone(fs::remove_file(path)).map_err(Error::store("remove", path));
    }
    if let Err(e) = fs::remove_dir_all(path)
        && e.kind() == io::ErrorKind::PermissionDenied
    {
        make_writable(path).map_err(Error::store("remove", path))?;
    }
    gone(fs::remove_dir_all(path)).map_err(Error::store("remove", path))
}

/// Opens the mode of every directory below `dir`; links are not followed.
fn make_writable(dir: &Path) -> io::Result<()> {
    system::set_mode(dir, 0o700)?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
