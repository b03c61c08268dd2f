//! `tmpcopyup`: a tmpfs that begins with what the image has in its place, which podman asks for and libcontainer does not know.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde_json::Value;

use super::Error;

/// The option.
const OPTION: &str = "tmpcopyup";

/// Takes the option out of a `config.json`, and gives where it stood.
pub fn take(config: &mut Value) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for mount in config["mounts"].as_array_mut().into_iter().flatten() {
        let place = mount["destination"].as_str().map(PathBuf::from);
        let Some(options) = mount["options"].as_array_mut() else { continue };
        let before = options.len();
        options.retain(|option| option != OPTION);
        places.extend(place.filter(|_| options.len() < before));
    }
    places
}

/// Copies what the image has there into the file systems of a container that is not started.
///
/// # Errors
/// The kernel's, as where such a file system is read-only.
pub fn fill(places: &[PathBuf], rootfs: &Path, pid: i32) -> Result<(), Error> {
    for place in places {
        let step = || format!("copying what the image has in {}", place.display());
        let within = |root: &Path| {
            let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat2(root, place, flags, Mode::empty(), ResolveFlags::IN_ROOT)
        };
        let inside = PathBuf::from(format!("/proc/{pid}/root"));
        let (from, to) = match (within(rootfs), within(&inside)) {
            // The image has nothing there.
            (Err(rustix::io::Errno::NOENT), _) => continue,
            (from, to) => {
                let fail = |why: rustix::io::Errno| Error::step(step(), io::Error::from(why));
                (from.map_err(fail)?, to.map_err(fail)?)
            }
        };
        copy(&through(&from), &through(&to)).map_err(Error::io(step()))?;
    }
    Ok(())
}

fn through(directory: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", directory.as_raw_fd()).into()
}

/// Copies what is in a directory into an empty one, links as links.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        let about = fs::symlink_metadata(&old)?;
        let owner = (Some(about.uid()), Some(about.gid()));
        if about.is_symlink() {
            symlink(fs::read_link(&old)?, &new)?;
            lchown(&new, owner.0, owner.1)?;
        } else if about.is_dir() {
            fs::create_dir(&new)?;
            copy(&old, &new)?;
        } else if about.is_file() {
            fs::copy(&old, &new)?;
        }
        if about.is_dir() || about.is_file() {
            chown(&new, owner.0, owner.1)?;
            fs::set_permissions(&new, PermissionsExt::from_mode(about.mode() & 0o7777))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_option_is_taken_out() {
        let mut config = json!({"mounts": [
            {"destination": "/run", "options": ["rw", "tmpcopyup"]}, {"destination": "/tmp", "options": ["rw"]}, {"destination": "/a"}]});
        assert_eq!(take(&mut config), [PathBuf::from("/run")]);
        assert_eq!(config["mounts"][0]["options"], json!(["rw"]));
    }

    #[test]
    fn what_is_there_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("deep/file"), "x").unwrap();
        fs::set_permissions(from.join("deep/file"), PermissionsExt::from_mode(0o4711)).unwrap();
        symlink("/nowhere", from.join("link")).unwrap();
        copy(&from, &to).unwrap();
        let file = fs::metadata(to.join("deep/file")).unwrap();
        assert_eq!((file.mode() & 0o7777, file.len()), (0o4711, 1));
        assert_eq!(fs::read_link(to.join("link")).unwrap(), Path::new("/nowhere"));
    }
}
