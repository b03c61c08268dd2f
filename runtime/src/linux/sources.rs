//! The package's tree and the grants, opened as detached mounts before anything of the root is built.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use super::enter;
use super::masks::{self, Place};
use super::mounts::{Detached, Restriction};
use super::wire::Refusal;
use crate::identity::{Identity, Mapping};
use crate::plan::{Exec, Plan, What};
use bundle::Access;

/// Detached mounts, by descriptor: nothing that happens to their paths afterwards changes what is mounted.
pub struct Sources {
    /// The package's tree.
    pub tree: Detached,
    /// The grants, in the order in which they stand among the plan's mounts.
    pub grants: Vec<Grant>,
    /// What is denied in the grants, in the order in which it stands among the plan's mounts.
    pub denied: Vec<Place>,
}

/// A granted file or directory.
pub struct Grant {
    /// Its detached mount.
    pub mount: Detached,
    /// Whether its mount point is a directory.
    pub directory: bool,
}

impl Grant {
    /// The granted file or directory that this mount shows.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(mount: Detached) -> io::Result<Grant> {
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
        let mut grants: Vec<Grant> = Vec::new();
        let mut denied = Vec::new();
        for mount in &plan.mounts {
            match &mount.what {
                What::Granted { source, access, exec, .. } => {
                    grants.push(open_grant(source, *access, *exec, &plan.identity, &mut shifts)?);
                }
                // In the grant before it: there it can be found also where the server's user may not go.
                What::Denied { path, .. } => denied.extend(
                    grants
                        .last()
                        .map(|grant| Place::beneath(&grant.mount, path))
                        .transpose()
                        .map_err(|why| masks::cannot(&mount.target, why))?,
                ),
                _ => {}
            }
        }
        Ok(Sources { tree, grants, denied })
    }
}

fn open_tree(path: &Path) -> io::Result<Detached> {
    let directory = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY, Mode::empty())?;
    let mut mount = Detached::copy_of(&directory)?;
    restrict_tree(&mut mount)?;
    Ok(mount)
}

/// What the mount of a package's tree is to be: read-only.
///
/// # Errors
/// The kernel's.
pub fn restrict_tree(mount: &mut Detached) -> io::Result<()> {
    mount.restrict(Restriction { read_only: true, ..Default::default() })
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
    let mut mount = Detached::copy_of(&file).map_err(fail)?;
    let restriction = Restriction { read_only: access == Access::Ro, no_exec: exec == Exec::Denied };
    match identity.mapping {
        Mapping::Caller | Mapping::Root => mount.restrict(restriction).map_err(fail)?,
        Mapping::Unprivileged => {
            let by = shifts.get((stat.st_uid, stat.st_gid), identity).map_err(fail)?;
            mount.restrict_and_shift(restriction, by).map_err(|why| not_shifted(source, &file, why))?;
        }
    }
    Grant::new(mount).map_err(fail)
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
    let what = format!("the grant {}", source.display());
    if why.raw_os_error() == Some(libc::ENOSYS) {
        return Refusal::new(what, "this kernel cannot shift its owner to an unprivileged uid: that needs Linux 5.12")
            .hint("run smcp as an ordinary user, or accept the server as root by --user root");
    }
    let kind = rustix::fs::fstatfs(file).map_or(0, |fs| fs.f_type as u64);
    let name = match kind {
        0xef53 => "ext4",
        0x6969 => "nfs",
        0x794c_7630 => "overlay",
        0x6573_5546 => "fuse",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x0102_1994 => "tmpfs",
        0x0102_1997 => "9p",
        0x2fc1_2fc1 => "zfs",
        _ => "unnamed",
    };
    Refusal::new(
        format!(
            "{what} (file system {name}, magic {kind:#x}), or what is mounted beneath, cannot be shifted to an unprivileged uid"
        ),
        why,
    )
    .hint("run smcp as an ordinary user, grant a directory on ext4, xfs, btrfs or (since Linux 6.3) tmpfs, or accept the server as root by --user root")
}
