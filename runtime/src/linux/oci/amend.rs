//! What libcontainer leaves undone of a `config.json`, done once the container stands and before it is started, or before it is made.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;

use super::Error;
use crate::linux::sys::{self, Children, Fork, How, Waited};

/// Sets loopback up in a network namespace of the container's own, and makes the mounts private that are to be: bound ones are slaves as the
/// root is.
///
/// # Errors
/// The kernel's.
pub fn within(config: &Value, pid: i32) -> Result<(), Error> {
    let own_network =
        namespaces(config).any(|one| one["type"] == "network" && one["path"].as_str().unwrap_or("").is_empty());
    let private: Vec<&str> = mounts(config)
        .filter(|mount| ["private", "rprivate"].into_iter().any(|name| has(mount, name)) && is_bind(mount))
        .filter_map(|mount| mount["destination"].as_str())
        .collect();
    let own_mounts = namespaces(config).any(|one| one["type"] == "mount");
    let private = if own_mounts { private } else { Vec::new() };
    if !own_network && private.is_empty() {
        return Ok(());
    }
    let open = |name: &str| fs::File::open(format!("/proc/{pid}/ns/{name}")).map(OwnedFd::from);
    let work = || -> io::Result<()> {
        let (user, network, mount) = (open("user")?, open("net")?, open("mnt")?);
        if own_network {
            // The namespace may belong to the container's user namespace: who made that has every right in it.
            if move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).is_err() {
                move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
                move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            }
            sys::loopback_up()?;
        }
        if !private.is_empty() {
            move_into_link_name_space(mount.as_fd(), Some(LinkNameSpaceType::Mount))?;
            for target in &private {
                rustix::mount::mount_change(*target, MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
            }
        }
        Ok(())
    };
    in_a_child(work).map_err(Error::io("finishing the container's namespaces"))
}

/// Does something in a process that ends with it.
fn in_a_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let child = match sys::fork()? {
        Fork::Child => sys::exit_now(work().map_or_else(|why| why.raw_os_error().unwrap_or(libc::EIO), |()| 0)),
        Fork::Parent(child) => child,
    };
    match sys::wait(Children::One(child), true)? {
        Waited::Ended(sys::Ended { how: How::Code(0), .. }) => Ok(()),
        Waited::Ended(sys::Ended { how: How::Code(code), .. }) => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::from_raw_os_error(libc::ECHILD)),
    }
}

/// Gives a process's terminal the size that its `process` asks for.
///
/// # Errors
/// The kernel's.
pub fn size_terminal(process: &Value, terminal: Option<&OwnedFd>) -> Result<(), Error> {
    let number = |name: &str| process["consoleSize"][name].as_u64().and_then(|number| u16::try_from(number).ok());
    let (Some(terminal), Some(rows), Some(columns)) = (terminal, number("height"), number("width")) else {
        return Ok(());
    };
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(format!("/proc/self/fd/{}", terminal.as_raw_fd()), flags, Mode::empty())
        .and_then(|terminal| tcsetwinsize(terminal, size))
        .map_err(|why| Error::step("sizing the terminal", io::Error::from(why)))
}

/// Makes the working directory where the image lacks it, as runc does; not beneath what is mounted there.
///
/// # Errors
/// The kernel's.
pub fn make_working_directory(config: &Value, rootfs: &Path) -> Result<(), Error> {
    let directory = Path::new(config["process"]["cwd"].as_str().unwrap_or("/"));
    let covered =
        mounts(config).filter_map(|mount| mount["destination"].as_str()).any(|target| directory.starts_with(target));
    if covered || !directory.is_absolute() {
        return Ok(());
    }
    let made = || -> rustix::io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(rootfs, flags, Mode::empty())?;
        let open = |path: &Path| rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let mut at = PathBuf::from("/");
        for part in directory.components().skip(1) {
            let above = open(&at)?;
            at.push(part);
            match open(&at) {
                Err(Errno::NOENT) => rustix::fs::mkdirat(above, part.as_os_str(), Mode::from_raw_mode(0o755))?,
                // Where it is no directory, that is said when it is entered.
                Err(_) => return Ok(()),
                Ok(_) => {}
            }
        }
        Ok(())
    };
    match made() {
        // An image that cannot be written: what is missing is said when it is entered.
        Ok(()) | Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Ok(()),
        Err(why) => Err(Error::step("making the working directory", io::Error::from(why))),
    }
}

/// Rewrites what libcontainer does not know or reads otherwise: names of propagation, sources of mounts that begin at the bundle, and cgroups of
/// version 1 that are to be read-only, which are mounts of their own below the one that is named.
pub fn rewrite(config: &mut Value, bundle: &Path, version_1: bool) {
    if let Some(name) = config["linux"]["rootfsPropagation"].as_str()
        && let Some(plain @ ("private" | "slave" | "shared" | "unbindable")) = name.strip_prefix('r')
    {
        config["linux"]["rootfsPropagation"] = plain.into();
    }
    let mut read_only = Vec::new();
    for mount in config["mounts"].as_array_mut().into_iter().flatten() {
        let source = mount["source"].as_str().map(PathBuf::from);
        if is_bind(mount)
            && let Some(source) = source.filter(|source| source.is_relative())
        {
            mount["source"] = bundle.join(source).to_string_lossy().into();
        }
        if version_1 && mount["type"] == "cgroup" && has(mount, "ro") {
            let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
            let target = Path::new(mount["destination"].as_str().unwrap_or_default());
            read_only.extend(controllers.map(|entry| target.join(entry.file_name()).to_string_lossy().into_owned()));
            read_only.push(target.to_string_lossy().into_owned());
        }
    }
    if !read_only.is_empty() {
        let paths = &mut config["linux"]["readonlyPaths"];
        let own = paths.as_array().cloned().unwrap_or_default();
        *paths = own.into_iter().chain(read_only.into_iter().map(Value::from)).collect();
    }
}

fn namespaces(config: &Value) -> impl Iterator<Item = &Value> {
    config["linux"]["namespaces"].as_array().into_iter().flatten()
}

/// Whether something that is there is mounted.
pub fn is_bind(mount: &Value) -> bool {
    mount["type"] == "bind" || has(mount, "bind") || has(mount, "rbind")
}

/// Its mounts.
pub fn mounts(config: &Value) -> impl Iterator<Item = &Value> {
    config["mounts"].as_array().into_iter().flatten()
}

/// Whether a mount has this option.
pub fn has(mount: &Value, option: &str) -> bool {
    mount["options"].as_array().is_some_and(|all| all.iter().any(|one| one == option))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_libcontainer_reads_otherwise() {
        let mut config = json!({
            "linux": {"rootfsPropagation": "rslave"},
            "mounts": [{"destination": "/a", "source": "data", "options": ["rbind"]}, {"destination": "/b", "source": "tmpfs", "type": "tmpfs"}],
        });
        rewrite(&mut config, Path::new("/bundle"), false);
        assert_eq!(config["linux"], json!({"rootfsPropagation": "slave"}));
        assert_eq!(
            (&config["mounts"][0]["source"], &config["mounts"][1]["source"]),
            (&json!("/bundle/data"), &json!("tmpfs"))
        );
        let mut none = json!({"linux": {"rootfsPropagation": "rnone"}});
        rewrite(&mut none, Path::new("/bundle"), false);
        assert_eq!(none["linux"]["rootfsPropagation"], "rnone");
    }

    #[test]
    fn a_working_directory_is_made_in_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::os::unix::fs::symlink("/", root.join("link")).unwrap();
        make_working_directory(&json!({"process": {"cwd": "/link/deep/er"}}), root).unwrap();
        assert!(root.join("deep/er").is_dir());
        let covered = json!({"process": {"cwd": "/run/x"}, "mounts": [{"destination": "/run"}]});
        make_working_directory(&covered, root).unwrap();
        assert!(!root.join("run").exists());
    }
}
