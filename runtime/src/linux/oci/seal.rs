//! The program file that a container gets to see for a moment, as `/proc/PID/exe` of the process that enters it, must not be
//! open to being written there (CVE-2019-5736): smcp starts itself again from where nobody can write.

use std::ffi::{CString, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags};
use rustix::mount::OpenTreeFlags;

use super::super::sys::{self, MountAttributes};
use super::Error;

/// Returns where this process's program file cannot be written through the process, and else starts it again so.
///
/// # Errors
/// Where neither a read-only mount nor a sealed copy can be had.
pub fn seal(arguments: &[OsString]) -> Result<(), Error> {
    let fail = |why: io::Error| Error::step("keeping the container from writing smcp's own file", why);
    let own = File::open("/proc/self/exe").map_err(fail)?;
    if cannot_be_written(&own).map_err(fail)? {
        return Ok(());
    }
    let sealed = read_only_mount().or_else(|_| copy(own)).map_err(fail)?;
    let string = |text: &OsString| CString::new(text.clone().into_vec()).map_err(io::Error::other);
    let arguments = arguments.iter().map(string).collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let environment: Result<Vec<_>, _> =
        std::env::vars_os().map(|(name, value)| string(&[name, value].join(&OsString::from("=")))).collect();
    let file = CString::new(format!("/proc/self/fd/{}", sealed.as_raw_fd())).map_err(|why| fail(why.into()))?;
    Err(fail(sys::execve(&file, &arguments, &environment.map_err(fail)?)))
}

/// A file that no container is granted, by which its Landlock is tried: smcp's own, or one beside the container's where smcp's is in memory,
/// which Landlock does not rule.
#[derive(Debug)]
pub struct Canary(Option<OwnedFd>);

impl Canary {
    /// Its path, in whatever root.
    pub fn path(&self) -> CString {
        let path = self
            .0
            .as_ref()
            .map_or_else(|| "/proc/self/exe".into(), |file| format!("/proc/self/fd/{}", file.as_raw_fd()));
        CString::new(path).unwrap_or_default()
    }
}

/// The canary of a container with this directory, which is held from outside of its root.
///
/// # Errors
/// The kernel's.
pub fn canary(directory: &Path) -> Result<Canary, Error> {
    let in_memory = File::open("/proc/self/exe").map(|own| rustix::fs::fcntl_get_seals(&own).is_ok());
    let file = directory.join("canary");
    let held = || -> io::Result<Option<OwnedFd>> {
        if !in_memory? {
            return Ok(None);
        }
        // Whoever the container's user is may read and execute it but for Landlock.
        let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o755).open(&file)?;
        made.set_permissions(Permissions::from_mode(0o755))?;
        Ok(Some(rustix::fs::open(&file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?))
    };
    held().map(Canary).map_err(Error::io("making a file to try Landlock with"))
}

/// It is sealed, or on a mount that is read-only.
fn cannot_be_written(file: &File) -> io::Result<bool> {
    let sealed = rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::WRITE));
    Ok(sealed || rustix::fs::fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The same file on a mount of its own that is in no namespace, so that nobody can make it writable again.
fn read_only_mount() -> io::Result<OwnedFd> {
    let path = std::fs::read_link("/proc/self/exe")?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = rustix::mount::open_tree(rustix::fs::CWD, &path, flags)?;
    sys::set_mount(&mount, MountAttributes { read_only: true, alone: true, ..MountAttributes::default() })?;
    let of = |path: &str| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    // The name may lead to another file by now.
    match of("/proc/self/exe")? == of(&format!("/proc/self/fd/{}", mount.as_raw_fd()))? {
        true => Ok(mount),
        false => Err(io::Error::other(format!("{} was replaced", path.display()))),
    }
}

/// A copy in memory that nobody can change.
fn copy(mut own: File) -> io::Result<OwnedFd> {
    let memory = rustix::fs::memfd_create("smcp", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut memory = File::from(memory);
    own.rewind()?;
    io::copy(&mut own, &mut memory)?;
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&memory, all)?;
    Ok(memory.into())
}
