//! The cage process leaves the host's namespaces.
//!
//! libcontainer is called inside them: unprivileged on cgroup v1 or hybrid it cannot start anything outside.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{DumpableBehavior, Gid, Pid, Signal, Uid};
use rustix::thread::UnshareFlags;

use super::advice;
use super::sys::{self, Fork};
use super::wire::{Event, Refusal};
use crate::identity::{Identity, Mapping};
use crate::plan::HOSTNAME;

/// Half of the inotify watches that a user had for long, inotify(7).
const WATCHES: u64 = 4096;

/// Enters user, mount, network, IPC and UTS namespaces as the run's user.
///
/// # Errors
/// [`Event::NoNamespaces`] where user namespaces cannot be had, with the setting that would allow them where one is known;
/// a refusal that names the step for all else.
pub fn enter(identity: &Identity) -> Result<(), Event> {
    if identity.mapping == Mapping::Unprivileged {
        become_user(identity).map_err(|why| Refusal::new(format!("becoming uid {}", identity.uid), why))?;
        die_with_parent()?;
    }
    let denied = |what| move |why: io::Error| Event::NoNamespaces(user_namespaces_denied(what, &why));
    sys::unshare(
        UnshareFlags::NEWUSER
            | UnshareFlags::NEWNS
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS,
    )
    .map_err(denied("unshare"))?;
    map_ids(identity).map_err(denied("writing the id map"))?;
    // A user namespace made inside would give its maker every capability over it, and with them much of the kernel. The
    // sysctl counts those beneath this one, namespaces(7).
    fs::write("/proc/sys/user/max_user_namespaces", "0")
        .map_err(|why| Refusal::new("forbidding user namespaces inside", why))?;
    // Instances count for the caller on the whole machine, where 128 are usual: a cage must not use them all up, inotify(7).
    fs::write("/proc/sys/user/max_inotify_instances", "32")
        .map_err(|why| Refusal::new("capping inotify instances", why))?;
    // So do watches: half of them are left to the caller.
    let watches = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
        .map_err(|why| Refusal::new("reading how many inotify watches there are", why))?;
    let half = watches.trim().parse::<u64>().map_or(WATCHES, |all| all / 2);
    fs::write("/proc/sys/user/max_inotify_watches", half.to_string())
        .map_err(|why| Refusal::new("capping inotify watches", why))?;
    // Nothing mounted here may show outside, and nothing mounted outside may arrive here.
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|why| Refusal::new("making the mounts private", why))?;
    sys::loopback_up().map_err(|why| Refusal::new("setting the loopback interface up", why))?;
    rustix::system::sethostname(HOSTNAME.as_bytes()).map_err(|why| Refusal::new("setting the host name", why))?;
    Ok(())
}

/// Makes the cgroup that this process is in by now the root of a namespace of its own: no path of the host shows inside.
///
/// # Errors
/// The kernel's.
pub fn enter_cgroup() -> Result<(), Refusal> {
    sys::unshare(UnshareFlags::NEWCGROUP).map_err(|why| Refusal::new("entering a cgroup namespace", why))?;
    mount_cgroup().map_err(|why| Refusal::new("mounting cgroup2", why))
}

/// SIGKILL when the supervisor ends. The kernel clears this at every change of credentials, prctl(2).
///
/// # Errors
/// The kernel's.
pub fn die_with_parent() -> Result<(), Refusal> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|why| Refusal::new("binding the cage to its supervisor", why))
}

/// Takes [`die_with_parent`] back.
///
/// # Errors
/// The kernel's.
pub fn outlive_parent() -> Result<(), Refusal> {
    rustix::process::set_parent_process_death_signal(None)
        .map_err(|why| Refusal::new("letting the cage process go on alone", why))
}

/// Takes the run's uid and gid for good, and no other group.
///
/// # Errors
/// The kernel's.
pub fn become_user(identity: &Identity) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    // A change of uid makes the process non-dumpable, and its /proc/self/uid_map then belongs to root.
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// The user's own ids mapped to themselves: the only map that needs no privilege, user_namespaces(7).
fn map_ids(identity: &Identity) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", identity.uid))?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", identity.gid))
}

/// libcontainer looks for cgroups at `/sys/fs/cgroup` and works with cgroup2 alone there. This mount belongs to the new
/// cgroup namespace and is seen by the cage process only.
///
/// # Errors
/// The kernel's.
pub fn mount_cgroup() -> io::Result<()> {
    const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
    // Read-only: libcontainer makes no cgroup of its own then, which nobody would remove.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    match rustix::mount::mount("cgroup2", "/sys/fs/cgroup", "cgroup2", flags, None) {
        // The one that is there already is the same hierarchy.
        Err(rustix::io::Errno::BUSY)
            if rustix::fs::statfs("/sys/fs/cgroup").is_ok_and(|fs| fs.f_type == CGROUP2_SUPER_MAGIC) =>
        {
            Ok(())
        }
        other => Ok(other?),
    }
}

/// What a container's creation failed of, where its `/proc` may be the reason: the kernel lets no new one be mounted where
/// parts of the old one are hidden, as containers have it.
pub fn or_masked(refusal: Refusal) -> Event {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // Fields of proc_pid_mountinfo(5): the fifth is the mount point. binfmt_misc hides nothing.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    match points.into_iter().find(|point| point.starts_with("/proc/") && *point != "/proc/sys/fs/binfmt_misc") {
        None => Event::Refused(refusal),
        Some(point) => Event::NoNamespaces(
            Refusal::new("mounting a /proc of its own", format!("{point} is hidden here ({})", refusal.why))
                .hint("run the container with an unmasked /proc (docker: --security-opt systempaths=unconfined)"),
        ),
    }
}

fn user_namespaces_denied(what: &str, why: &io::Error) -> Refusal {
    // ENOSPC, whose usual words would lead astray.
    let full = why.raw_os_error() == Some(libc::ENOSPC);
    let why = if full { "no more of them are allowed (ENOSPC)".into() } else { why.to_string() };
    let refusal = Refusal::new(format!("user namespaces ({what})"), why);
    refusal.hint(match advice::denied_by() {
        Some(allowed) => format!("allow them: sysctl {allowed}; `smcp doctor --fix` shows how to keep it"),
        None => "no setting of the kernel denies them: a container's filter or a profile does; `smcp doctor --fix` shows more".into(),
    })
}

/// A user namespace that maps one owner on disk to the server's ids, for an idmapped mount. Needs root.
///
/// # Errors
/// The kernel's.
pub fn shift(owner: (u32, u32), identity: &Identity) -> io::Result<OwnedFd> {
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (ready, done) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = match sys::fork()? {
        Fork::Child => {
            drop((go, ready));
            let unshared = sys::unshare(UnshareFlags::NEWUSER).is_ok();
            let _ = rustix::io::write(&done, &[u8::from(unshared)]);
            // Lives until the parent has opened the namespace and closed its end.
            let _ = rustix::io::read(&wait, &mut [0_u8]);
            sys::exit_now(0)
        }
        Fork::Parent(child) => child,
    };
    drop((wait, done));
    let namespace = open_mapped(child, &ready, owner, identity);
    drop(go);
    sys::wait(sys::Children::One(child), true)?;
    namespace
}

fn open_mapped(child: Pid, ready: &OwnedFd, owner: (u32, u32), identity: &Identity) -> io::Result<OwnedFd> {
    let mut unshared = [0_u8];
    rustix::io::read(ready, &mut unshared)?;
    if unshared != [1] {
        return Err(io::Error::other("no user namespace could be made"));
    }
    let proc = format!("/proc/{}", child.as_raw_nonzero());
    fs::write(format!("{proc}/uid_map"), format!("{} {} 1", owner.0, identity.uid))?;
    fs::write(format!("{proc}/gid_map"), format!("{} {} 1", owner.1, identity.gid))?;
    Ok(fs::File::open(format!("{proc}/ns/user"))?.into())
}
