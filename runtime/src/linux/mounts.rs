//! Detached mounts and what they are restricted to, on every kernel since Linux 5.10.
//!
//! mount_setattr(2) came with Linux 5.12. Before it a mount is restricted by path, and only where it is attached, so what a
//! mount is to be stays with it until it is. Nothing runs yet that could use it in between.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use serde_json::{Value, json};

use super::seccomp;
use super::sys::{self, MountAttributes};
use crate::plan::{Plan, What};

/// A mount that is attached nowhere, by descriptor: nothing that happens to its path afterwards changes what is mounted.
pub struct Detached {
    mount: OwnedFd,
    /// What it is restricted to once it is attached.
    later: Option<Restriction>,
}

/// What every mount of a tree is to have beside nosuid and nodev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restriction {
    /// Nothing is written.
    pub read_only: bool,
    /// Nothing is executed.
    pub no_exec: bool,
}

impl Detached {
    /// A copy of the mount tree at `file`, open_tree(2). Recursive: mounts beneath are part of it, and in a user namespace
    /// they are locked to it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn copy_of(file: &OwnedFd) -> io::Result<Detached> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE;
        Ok(Detached { mount: rustix::mount::open_tree(file, "", flags)?, later: None })
    }

    /// A mount that was just made, with its flags.
    pub fn new(mount: OwnedFd) -> Detached {
        Detached { mount, later: None }
    }

    /// Restricts the mount and all beneath, now or as soon as it is attached.
    ///
    /// # Errors
    /// The kernel's.
    pub fn restrict(&mut self, to: Restriction) -> io::Result<()> {
        let attributes = MountAttributes { read_only: to.read_only, no_exec: to.no_exec, ..Default::default() };
        match sys::set_mount(&self.mount, attributes) {
            Err(why) if is_before_linux_5_12(&why) => {
                self.later = Some(to);
                Ok(())
            }
            other => other,
        }
    }

    /// The same, with the owners of files shifted by the map of a user namespace. There is no older way to do that.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` where a file system cannot be idmapped, `ENOSYS` before Linux 5.12.
    pub fn restrict_and_shift(&mut self, to: Restriction, by: impl AsFd) -> io::Result<()> {
        let attributes = MountAttributes { read_only: to.read_only, no_exec: to.no_exec, ..Default::default() };
        sys::set_mount(&self.mount, MountAttributes { id_map: Some(by.as_fd()), ..attributes })
    }

    /// Mounts it on an open directory or file, move_mount(2).
    ///
    /// # Errors
    /// The kernel's.
    pub fn attach(&self, point: &OwnedFd) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(self.mount.as_fd(), "", point.as_fd(), "", flags)?;
        self.later.map_or(Ok(()), |to| restrict_attached(&self.mount, to))
    }

    /// Makes the attached mount itself read-only, whatever is mounted beneath.
    ///
    /// # Errors
    /// The kernel's.
    pub fn close(&self) -> io::Result<()> {
        let attributes = MountAttributes { read_only: true, alone: true, ..Default::default() };
        match sys::set_mount(&self.mount, attributes) {
            Err(why) if is_before_linux_5_12(&why) => {
                let to = Restriction { read_only: true, ..Default::default() };
                let path = PathBuf::from(format!("/proc/self/fd/{}", self.mount.as_raw_fd()));
                mounts_from(&self.mount)?.first().map_or(Err(Errno::NOENT.into()), |mount| mount.restrict(&path, to))
            }
            other => other,
        }
    }
}

impl AsFd for Detached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }
}

fn is_before_linux_5_12(why: &io::Error) -> bool {
    why.raw_os_error() == Some(libc::ENOSYS)
}

/// What mount_setattr(2) does to a tree, by mount(2). Whoever may rename in the tree may lead a path elsewhere meanwhile:
/// what the kernel says of each mount afterwards decides.
fn restrict_attached(mount: &OwnedFd, to: Restriction) -> io::Result<()> {
    // First: a mount that is shared with the host's would pass on what is mounted on it.
    let itself = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
    rustix::mount::mount_change(&itself, MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    for (number, part) in mounts_from(mount)?.iter().enumerate() {
        part.restrict(if number == 0 { &itself } else { &part.point }, to)?;
    }
    match mounts_from(mount)?.iter().find(|part| !part.is(to)) {
        None => Ok(()),
        Some(part) => Err(io::Error::other(format!("the mount on {} kept its rights", part.point.display()))),
    }
}

/// libcontainer calls mount_setattr(2) for each mount that it makes and knows no older way. Before Linux 5.12 a filter
/// answers yes in the kernel's place, and PID 1 does what was asked, before it does anything else.
#[derive(Clone, Copy)]
pub struct Deferred(());

impl Deferred {
    /// Puts the filter before this thread and what it starts, where it is needed. Nothing else may make mounts after it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn where_needed() -> io::Result<Option<Deferred>> {
        if sys::knows_mount_setattr() {
            return Ok(None);
        }
        sys::install_filter(&seccomp::answering_yes_to(libc::SYS_mount_setattr))?;
        Ok(Some(Deferred(())))
    }

    /// Leaves PID 1 the one capability that [`Deferred::restrict`] needs and gives up.
    pub fn allow(self, config: &mut Value) {
        for set in ["effective", "permitted"] {
            config["process"]["capabilities"][set] = json!(["CAP_SYS_ADMIN"]);
        }
    }

    /// Restricts the mounts that libcontainer has made, as PID 1 among them.
    ///
    /// # Errors
    /// The kernel's, and where a mount is not what it is to be in the end.
    pub fn restrict(self, plan: &Plan) -> io::Result<()> {
        let table = || Ok::<_, io::Error>(parse(&fs::read_to_string("/proc/self/mountinfo")?));
        let wanted = || plan.mounts.iter().filter_map(|mount| Some((&*mount.target, of_libcontainer(&mount.what)?)));
        let before = table()?;
        for (path, to) in wanted() {
            topmost(&before, path)?.restrict(path, to)?;
        }
        let after = table()?;
        for (path, to) in wanted() {
            if !topmost(&after, path)?.is(to) {
                return Err(io::Error::other(format!("the mount on {} kept its rights", path.display())));
            }
        }
        let none = CapabilitySet::empty();
        Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
    }
}

/// What the plan's rendering for libcontainer asks for, `None` for mounts that it does not make.
fn of_libcontainer(what: &What) -> Option<Restriction> {
    let of_proc = Restriction { read_only: false, no_exec: true };
    matches!(what, What::Proc).then_some(of_proc)
}

/// The mount that a path leads to: of those at one place the last that was made.
fn topmost<'t>(table: &'t [Part], path: &Path) -> io::Result<&'t Part> {
    table.iter().rfind(|part| part.point == path).ok_or_else(|| Errno::NOENT.into())
}

/// A line of `/proc/self/mountinfo`, proc_pid_mountinfo(5).
#[derive(Debug, PartialEq, Eq)]
struct Part {
    id: u64,
    parent: u64,
    point: PathBuf,
    options: Vec<String>,
}

impl Part {
    fn parse(line: &str) -> Option<Part> {
        let mut fields = line.split(' ');
        let (id, parent) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let point = PathBuf::from(unescape(fields.nth(2)?));
        let options = fields.next()?.split(',').map(str::to_owned).collect();
        Some(Part { id, parent, point, options })
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|there| there == option)
    }

    fn is(&self, to: Restriction) -> bool {
        self.has("nosuid")
            && self.has("nodev")
            && (!to.read_only || self.has("ro"))
            && (!to.no_exec || self.has("noexec"))
    }

    /// A remount sets all flags anew, so those that it has are named again; the kernel keeps the times' own.
    fn restrict(&self, path: &Path, to: Restriction) -> io::Result<()> {
        let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV;
        flags.set(MountFlags::RDONLY, to.read_only || self.has("ro"));
        flags.set(MountFlags::NOEXEC, to.no_exec || self.has("noexec"));
        Ok(rustix::mount::mount_remount(path, flags, "")?)
    }
}

/// The mount that a descriptor is open on, and all beneath.
fn mounts_from(mount: &OwnedFd) -> io::Result<Vec<Part>> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", mount.as_raw_fd()))?;
    let id = about.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let found = beneath(id.ok_or(Errno::NOENT)?, parse(&table));
    if found.is_empty() { Err(Errno::NOENT.into()) } else { Ok(found) }
}

fn parse(table: &str) -> Vec<Part> {
    table.lines().filter_map(Part::parse).collect()
}

/// The mount of this id and all beneath, each after the one that it is mounted on.
fn beneath(id: u64, mut table: Vec<Part>) -> Vec<Part> {
    let mut found: Vec<Part> = table.extract_if(.., |part| part.id == id).collect();
    let mut next = 0;
    while let Some(id) = found.get(next).map(|part| part.id) {
        found.extend(table.extract_if(.., |part| part.parent == id));
        next += 1;
    }
    found
}

/// Space, tab, newline and backslash stand there as `\` and three octal digits.
fn unescape(text: &str) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt;
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let octal = bytes.get(at + 1..at + 4).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) if *byte == b'\\' => {
                plain.push(escaped);
                at += 4;
            }
            _ => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:40 / /srv/a\\040b ro,nosuid,nodev,noexec - tmpfs tmpfs rw
32 31 0:42 / /srv/a\\040b/deep/deeper rw,nosuid - tmpfs tmpfs rw
31 30 0:41 / /srv/a\\040b/deep rw,nosuid,nodev - tmpfs tmpfs rw
33 21 0:43 / /srv/other rw - tmpfs tmpfs rw";

    #[test]
    fn what_is_mounted_beneath_is_found_by_ids() {
        let found = beneath(30, parse(TABLE));
        assert_eq!(found.iter().map(|part| part.id).collect::<Vec<_>>(), [30, 31, 32]);
        assert_eq!(found[0].point, PathBuf::from("/srv/a b"));
    }

    #[test]
    fn a_mount_is_restricted_where_it_has_every_flag() {
        let found = beneath(30, parse(TABLE));
        let to = |read_only, no_exec| Restriction { read_only, no_exec };
        assert!(found[0].is(to(true, true)));
        assert!(found[1].is(to(false, false)) && !found[1].is(to(true, false)) && !found[1].is(to(false, true)));
        assert!(!found[2].is(to(false, false)));
    }
}
