//! What the cage enforces, tried from inside by the process that becomes the server.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Resource;
use rustix::thread::UnshareFlags;

use super::bare::Bare;
use super::wire::Order;
use super::{network, sys};
use crate::plan::Plan;
use crate::report::{Layer, Report, Status};

/// Measures every layer but Landlock and seccomp, which are not in force yet: what is refused here was refused by the layer
/// itself. `ours` are the descriptors that close on exec.
pub fn all(order: &Order, ours: &[BorrowedFd<'_>]) -> Report {
    let mut report = Report::default();
    let bare = order.bare.as_ref();
    let inside = if bare.is_some() { BTreeMap::new() } else { namespace_ids() };
    for (layer, name) in NAMESPACES {
        let measured = || namespace(order.outside.get(name), inside.get(name));
        report.set(layer, bare.map_or_else(measured, |bare| Status::Absent(bare.why.clone())));
    }
    let host = "the root is the host's, and what of it can be written is Landlock's matter";
    report.set(Layer::ReadOnlyRoot, if bare.is_some() { Status::Absent(host.into()) } else { read_only_root() });
    report.set(Layer::Capabilities, capabilities(bare.is_none()));
    report.set(Layer::NoNewPrivileges, no_new_privileges());
    report.set(Layer::ResourceLimits, resource_limits(&order.plan, bare));
    report.set(Layer::Descriptors, descriptors(ours));
    if bare.is_none() && !order.plan.egress.is_empty() {
        report.set(Layer::Egress, network::judge());
    }
    report
}

/// The namespaces by their names in `/proc/self/ns`.
pub const NAMESPACES: [(Layer, &str); 7] = [
    (Layer::UserNamespace, "user"),
    (Layer::MountNamespace, "mnt"),
    (Layer::PidNamespace, "pid"),
    (Layer::NetworkNamespace, "net"),
    (Layer::IpcNamespace, "ipc"),
    (Layer::UtsNamespace, "uts"),
    (Layer::CgroupNamespace, "cgroup"),
];

/// The inode numbers of this process's namespaces by name, namespaces(7); without those that cannot be read.
pub fn namespace_ids() -> BTreeMap<String, u64> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open("/proc/self/ns", flags, Mode::empty()) else { return BTreeMap::new() };
    let id = |name: &str| {
        // The link reads `name:[number]`.
        let mut link = [MaybeUninit::uninit(); 64];
        let (link, _) = rustix::fs::readlinkat_raw(&directory, name, &mut link[..]).ok()?;
        std::str::from_utf8(link).ok()?.split_once(":[")?.1.strip_suffix(']')?.parse().ok()
    };
    NAMESPACES.iter().filter_map(|(_, name)| Some(((*name).to_owned(), id(name)?))).collect()
}

fn namespace(outside: Option<&u64>, inside: Option<&u64>) -> Status {
    match (outside, inside) {
        (Some(outside), Some(inside)) if outside != inside => Status::Full,
        (Some(_), Some(_)) => Status::Absent("it is the host's".into()),
        _ => Status::Absent("it cannot be read".into()),
    }
}

fn read_only_root() -> Status {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open("/.smcp-probe", flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::ROFS) => Status::Full,
        Err(why) => Status::Absent(format!("a write was refused for another reason: {why}")),
        Ok(_) => Status::Absent("a file could be made in it".into()),
    }
}

fn capabilities(namespaces: bool) -> Status {
    // proc_pid_status(5): every set of this thread, the bounding one too, in one read.
    let Ok(status) = read_status() else {
        return Status::Absent("/proc/self/status cannot be read".into());
    };
    let mut left = None;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let bits = status.lines().find_map(|line| line.strip_prefix(set)?.strip_prefix(":\t"));
        match bits.map(|bits| u64::from_str_radix(bits.trim(), 16)) {
            Some(Ok(0)) => {}
            Some(Ok(bits)) if set == "CapBnd" && !namespaces => left = Some(bits),
            Some(Ok(bits)) => return Status::Absent(format!("{set} is {bits:#x}")),
            Some(Err(_)) | None => return Status::Absent(format!("{set} cannot be read")),
        }
    }
    match left {
        // An ordinary user may not empty it. It bounds what an exec can bring, which is nothing with no_new_privs.
        Some(bits) => Status::Partial(format!("the bounding set, {bits:#x}, is left, without effect by no_new_privs")),
        // Without namespaces the filter is what refuses one: it is tried there.
        None if !namespaces => Status::Full,
        // A user namespace of its own would bring them all back. Where this succeeds, the run is refused.
        None => match sys::unshare(UnshareFlags::NEWUSER) {
            Err(_) => Status::Full,
            Ok(()) => Status::Absent("a user namespace that can be made inside gives them back".into()),
        },
    }
}

/// All of it by the first read.
fn read_status() -> io::Result<String> {
    let mut status = String::with_capacity(4096);
    File::open("/proc/self/status")?.take(1 << 16).read_to_string(&mut status)?;
    Ok(status)
}

fn no_new_privileges() -> Status {
    match rustix::thread::no_new_privs() {
        Ok(true) => Status::Full,
        Ok(false) => Status::Absent("the flag is not set".into()),
        Err(why) => Status::Absent(why.to_string()),
    }
}

fn resource_limits(plan: &Plan, bare: Option<&Bare>) -> Status {
    let wanted = [
        (Resource::Core, Some(plan.rlimits.core), "core"),
        (Resource::Data, Some(plan.rlimits.data), "data"),
        (Resource::Fsize, plan.rlimits.fsize, "fsize"),
        (Resource::Nofile, Some(plan.rlimits.nofile), "nofile"),
        (Resource::Nproc, Some(bare.map_or(plan.rlimits.nproc, |bare| bare.nproc)), "nproc"),
        (Resource::Sigpending, Some(plan.rlimits.sigpending), "sigpending"),
        (Resource::Nice, Some(plan.rlimits.nice), "nice"),
        (Resource::Rtprio, Some(plan.rlimits.rtprio), "rtprio"),
    ];
    for (resource, most, name) in wanted {
        let Some(most) = most else { continue };
        let limit = rustix::process::getrlimit(resource);
        if limit.current.is_none_or(|n| n > most) || limit.maximum.is_none_or(|n| n > most) {
            return Status::Absent(format!("{name} is {:?} in place of {most}", limit.maximum));
        }
    }
    match bare {
        None => Status::Full,
        Some(_) => Status::Partial("processes are counted together with the caller's others".into()),
    }
}

fn descriptors(ours: &[BorrowedFd<'_>]) -> Status {
    // Reading the directory opens one more, which is gone when the list is looked at.
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Status::Absent("/proc/self/fd cannot be read".into());
    };
    let open: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    let stray = open.into_iter().find(|fd| {
        let known = *fd < 3 || ours.iter().any(|ours| ours.as_raw_fd() == *fd);
        !known && fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()
    });
    match stray {
        None => Status::Full,
        Some(fd) => Status::Absent(format!("descriptor {fd} is open")),
    }
}
