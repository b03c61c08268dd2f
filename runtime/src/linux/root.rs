//! Assembles the server's root: the package's layers read-only, a skeleton over them, private places, the grants.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};

use super::sources::{self, Sources};
use super::wire::Refusal;
use crate::plan::{Exec, Plan, What};

/// Where the cage process builds. A tmpfs of its own hides what the host has there, in its mount namespace alone; all
/// sources are open by then.
const WORKSHOP: &str = "/tmp";

/// The assembled root and the places that libcontainer needs, all on a tmpfs that vanishes with the cage process.
pub struct Root {
    /// The root directory.
    pub directory: PathBuf,
    /// The bundle directory: `config.json` goes here.
    pub bundle: PathBuf,
    /// libcontainer's state directory.
    pub state: PathBuf,
}

/// Builds the root of a plan out of its open sources.
///
/// # Errors
/// A [`Refusal`] that names the path.
pub fn assemble(plan: &Plan, sources: Sources) -> Result<Root, Refusal> {
    let workshop = private_tmpfs(4 << 20, 0o755, Exec::Allowed).map_err(|why| Refusal::new("making a tmpfs", why))?;
    let step = |what: &'static str| move |why: io::Error| Refusal::new(what, why);
    attach(
        &workshop,
        &rustix::fs::open(WORKSHOP, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|why| Refusal::new(format!("opening {WORKSHOP}"), why))?,
    )
    .map_err(step("mounting the workshop"))?;
    let directory = |name: &str| make_directory(&workshop, Path::new(name)).map_err(step("making a directory"));
    let (skeleton, root, layers) = (directory("skeleton")?, directory("root")?, directory("layers")?);
    directory("bundle")?;
    directory("state")?;

    build_skeleton(plan, &skeleton, &sources)?;
    let mut lower = vec![format!("{WORKSHOP}/skeleton")];
    for (index, layer) in sources.layers.iter().enumerate() {
        let name = index.to_string();
        let point = make_directory(&layers, Path::new(&name)).map_err(step("making a directory"))?;
        attach(layer, &point).map_err(step("mounting a layer"))?;
        lower.push(format!("{WORKSHOP}/layers/{name}"));
    }
    let merged = merge(&lower).map_err(step("mounting the layers as an overlay"))?;
    attach(&merged, &root).map_err(step("mounting the root"))?;
    // The mount itself, not the directory beneath it.
    let root = open_beneath(&workshop, Path::new("root")).map_err(step("opening the root"))?;
    let mut grants = sources.grants.into_iter();
    for (index, mount) in plan.mounts.iter().enumerate() {
        let fail = |why: io::Error| Refusal::new(format!("mounting {}", mount.target.display()), why);
        match &mount.what {
            What::Private { size, mode, exec } => {
                let point = mount_point(&root, plan, index, true)?;
                attach(&private_tmpfs(*size, *mode, *exec).map_err(fail)?, &point).map_err(fail)?;
            }
            What::Granted { .. } => {
                let grant = grants.next().ok_or_else(|| fail(Errno::NOENT.into()))?;
                let point = mount_point(&root, plan, index, grant.directory)?;
                attach(&grant.mount, &point).map_err(fail)?;
            }
            What::Proc | What::Devices | What::Terminals | What::SharedMemory { .. } => {}
        }
    }
    let place = |name: &str| Path::new(WORKSHOP).join(name);
    Ok(Root { directory: place("root"), bundle: place("bundle"), state: place("state") })
}

/// Makes every mount point and file that the layers' root must have, in the topmost directory of the overlay.
fn build_skeleton(plan: &Plan, skeleton: &OwnedFd, sources: &Sources) -> Result<(), Refusal> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |why: io::Error| Refusal::new(format!("making {}", path.display()), why)
    };
    let layers = &sources.layers;
    let mut grants = sources.grants.iter();
    for (index, mount) in plan.mounts.iter().enumerate() {
        let directory = match mount.what {
            What::Granted { .. } => grants.next().is_none_or(|grant| grant.directory),
            _ => true,
        };
        // What lies in another mount is not the skeleton's.
        let inside_another = plan.mounts[..index].iter().any(|outer| mount.target.starts_with(&outer.target));
        if inside_another {
            continue;
        }
        let path = relative(&mount.target)?;
        refuse_links(&path, layers)?;
        let made = if directory { make_directory(skeleton, &path).map(drop) } else { make_file(skeleton, &path, "") };
        made.map_err(fail(&mount.target))?;
    }
    for (target, leads_to) in &plan.links {
        let path = relative(target)?;
        if layers.iter().any(|layer| sources::kind_beneath(layer, &path).is_some()) {
            return Err(Refusal::new(format!("the link {}", target.display()), "the package has it already"));
        }
        let made = path.parent().map_or(Ok(()), |parent| make_directory(skeleton, parent).map(drop));
        made.and_then(|()| Ok(rustix::fs::symlinkat(leads_to, skeleton, &path)?)).map_err(fail(target))?;
    }
    for (target, text) in &plan.files {
        let path = relative(target)?;
        if let Some(parent) = path.parent() {
            refuse_links(parent, layers)?;
        }
        make_file(skeleton, &path, text).map_err(fail(target))?;
    }
    Ok(())
}

/// A directory of the skeleton over a link of the image would silently hide what the link leads to, and an image whose
/// `/proc` or `/dev` is a link has led runtimes to mount elsewhere.
fn refuse_links(path: &Path, layers: &[OwnedFd]) -> Result<(), Refusal> {
    let mut prefix = PathBuf::new();
    for component in path.components() {
        prefix.push(component);
        let kind = layers.iter().find_map(|layer| sources::kind_beneath(layer, &prefix));
        if kind == Some(FileType::Symlink) {
            return Err(Refusal::new(
                format!("a mount on /{}", path.display()),
                format!("/{} is a symbolic link in the package", prefix.display()),
            ));
        }
    }
    Ok(())
}

/// The directory or file on which a mount of the plan goes, made where it lies in a private place of the cage.
fn mount_point(root: &OwnedFd, plan: &Plan, index: usize, directory: bool) -> Result<OwnedFd, Refusal> {
    let target = &plan.mounts[index].target;
    let path = relative(target)?;
    match open_beneath(root, &path) {
        Ok(point) => return Ok(point),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(why) => return Err(Refusal::new(format!("opening the mount point {}", target.display()), why)),
    }
    let around = plan.mounts[..index]
        .iter()
        .filter(|outer| target.starts_with(&outer.target))
        .max_by_key(|outer| outer.target.components().count());
    if !around.is_some_and(|outer| matches!(outer.what, What::Private { .. })) {
        return Err(Refusal::new(
            format!("a mount on {}", target.display()),
            "the path does not exist in the granted directory around it, and nothing is created there",
        ));
    }
    let made = if directory { make_directory(root, &path).map(drop) } else { make_file(root, &path, "") };
    made.and_then(|()| open_beneath(root, &path))
        .map_err(|why| Refusal::new(format!("making the mount point {}", target.display()), why))
}

fn merge(lower: &[String]) -> io::Result<OwnedFd> {
    let overlay = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(overlay.as_fd(), "source", "smcp")?;
    rustix::mount::fsconfig_set_string(overlay.as_fd(), "lowerdir", lower.join(":"))?;
    rustix::mount::fsconfig_set_flag(overlay.as_fd(), "ro")?;
    rustix::mount::fsconfig_create(overlay.as_fd())?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(overlay.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn private_tmpfs(size: u64, mode: u32, exec: Exec) -> io::Result<OwnedFd> {
    let tmpfs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(tmpfs.as_fd(), "size", size.to_string())?;
    rustix::mount::fsconfig_set_string(tmpfs.as_fd(), "mode", format!("{mode:o}"))?;
    rustix::mount::fsconfig_create(tmpfs.as_fd())?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    if exec == Exec::Denied {
        attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC;
    }
    Ok(rustix::mount::fsmount(tmpfs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn attach(mount: &OwnedFd, point: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(mount.as_fd(), "", point.as_fd(), "", flags)?)
}

/// An absolute path inside as one relative to the root.
fn relative(path: &Path) -> Result<PathBuf, Refusal> {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => result.push(name),
            _ => return Err(Refusal::new(format!("the path {}", path.display()), "it is not absolute and plain")),
        }
    }
    Ok(result)
}

fn open_beneath(directory: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(directory, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Makes a directory and all above it, and opens it.
fn make_directory(directory: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut made = PathBuf::new();
    for component in path.components() {
        made.push(component);
        match rustix::fs::mkdirat(directory, &made, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(why) => return Err(why.into()),
        }
    }
    open_beneath(directory, path)
}

fn make_file(directory: &OwnedFd, path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        make_directory(directory, parent)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, path, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(text.as_bytes())
}
