//! The package's tree and the grants, opened as detached mounts before anything of the root is built.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::OpenTreeFlags;

use super::enter;
use super::sys::{self, MountAttributes};
use super::wire::Refusal;
use crate::identity::{Identity, Mapping};
use crate::plan::{Exec, Plan, What};
use bundle::Access;

/// Detached mounts, by descriptor: nothing that happens to their paths afterwards changes what is mounted.
pub struct Sources {
    /// The package's tree.
    pub tree: OwnedFd,
    /// The grants, in the order in which they stand among the plan's mounts.
    pub grants: Vec<Grant>,
}

/// A granted file or directory.
pub struct Grant {
    /// Its detached mount.
    pub mount: OwnedFd,
    /// Whether its mount point is a directory.
    pub directory: bool,
}

impl Grant {
    /// The granted file or directory that this mount shows.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(mount: OwnedFd) -> io::Result<Grant> {
        let directory = FileType::from_raw_mode(rustix::fs::fstat(&mount)?.st_mode) == FileType::Directory;
        Ok(Grant { mount, directory })
    }
}

impl Sources {
    /// Opens all of them with their attributes set: read-only, noexec, owners shifted.
    ///
    /// # Errors
    /// A [`Refusal`] that names the path.
    pub fn open(plan: &Plan) -> Result<Sources, Refusal> {
        let tree = open_tree(&plan.tree)
            .map_err(|why| Refusal::new(format!("the package's tree {}", plan.tree.display()), why))?;
        let mut shifts = Shifts::default();
        let mut grants = Vec::new();
        for mount in &plan.mounts {
            if let What::Granted { source, access, exec } = &mount.what {
                grants.push(open_grant(source, *access, *exec, &plan.identity, &mut shifts)?);
            }
        }
        Ok(Sources { tree, grants })
    }
}

fn open_tree(path: &Path) -> io::Result<OwnedFd> {
    let mount =
        clone_mount(&rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?)?;
    sys::set_mount(&mount, MountAttributes { read_only: true, ..Default::default() })?;
    Ok(mount)
}

fn open_grant(
    source: &Path,
    access: Access,
    exec: Exec,
    identity: &Identity,
    shifts: &mut Shifts,
) -> Result<Grant, Refusal> {
    let fail = |why: io::Error| Refusal::new(format!("the grant {}", source.display()), why);
    // The plan's path is canonical: a link in it now was put there since.
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat2(rustix::fs::CWD, source, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|why| fail(why.into()))?;
    let stat = rustix::fs::fstat(&file).map_err(|why| fail(why.into()))?;
    let mount = clone_mount(&file).map_err(fail)?;
    let attributes =
        MountAttributes { read_only: access == Access::Ro, no_exec: exec == Exec::Denied, ..Default::default() };
    match identity.mapping {
        Mapping::Caller | Mapping::Root => sys::set_mount(&mount, attributes).map_err(fail)?,
        Mapping::Unprivileged => {
            let id_map = Some(shifts.get((stat.st_uid, stat.st_gid), identity).map_err(fail)?);
            sys::set_mount(&mount, MountAttributes { id_map, ..attributes })
                .map_err(|why| not_shifted(source, &file, why))?;
        }
    }
    Grant::new(mount).map_err(fail)
}

/// A copy of the mount tree at `file`, attached nowhere, open_tree(2). Recursive: mounts beneath are part of the grant,
/// and in a user namespace they are locked to it.
pub fn clone_mount(file: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(file, "", flags)?)
}

/// The user namespaces of idmapped mounts, one an owner.
#[derive(Default)]
struct Shifts(BTreeMap<(u32, u32), OwnedFd>);

impl Shifts {
    fn get(&mut self, owner: (u32, u32), identity: &Identity) -> io::Result<BorrowedFd<'_>> {
        let namespace: &OwnedFd = match self.0.entry(owner) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(enter::shift(owner, identity)?),
        };
        Ok(namespace.as_fd())
    }
}

fn not_shifted(source: &Path, file: &OwnedFd, why: io::Error) -> Refusal {
    let kind = rustix::fs::fstatfs(file).map_or(0, |fs| fs.f_type as u64);
    let name = match kind {
        0x6969 => "nfs",
        0x794c_7630 => "overlay",
        0x6573_5546 => "fuse",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x0102_1997 => "9p",
        0x2fc1_2fc1 => "zfs",
        _ => "unnamed",
    };
    Refusal::new(
        format!("the grant {} (file system {name}, magic {kind:#x}) cannot be shifted to an unprivileged uid", source.display()),
        why,
    )
    .hint("run smcp as an ordinary user, grant a directory on ext4, xfs, btrfs or tmpfs, or accept the server as root by --user root")
}
