//! Without the rights of the host's root: as rootless podman runs a runtime, as root of a user namespace of its own.

use std::fs;
use std::io;

use libcgroups::common::{CgroupSetup, get_cgroup_setup};
use rustix::mount::MountPropagationFlags;
use rustix::thread::UnshareFlags;

use super::Error;
use crate::linux::{enter, sys};

/// Whether this is the host's root.
pub fn is_root_of_the_host() -> bool {
    // All ids mapped to themselves: what there is outside of every user namespace.
    let whole = |map: String| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    rustix::process::geteuid().is_root() && fs::read_to_string("/proc/self/uid_map").is_ok_and(whole)
}

/// Nobody but the host's root may make a cgroup of version 1, and libcontainer cannot do without one. In namespaces of this process's own it
/// finds version 2 in its place, where it takes a refusal.
///
/// # Errors
/// Where there is no right to that either.
pub fn look_away_from_cgroups() -> Result<(), Error> {
    if is_root_of_the_host() || !matches!(get_cgroup_setup(), Ok(CgroupSetup::Legacy | CgroupSetup::Hybrid)) {
        return Ok(());
    }
    let hidden = || -> io::Result<()> {
        sys::unshare(UnshareFlags::NEWNS | UnshareFlags::NEWCGROUP)?;
        // What is mounted outside later arrives, and nothing goes out.
        rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?;
        enter::mount_cgroup()
    };
    hidden().map_err(|why| {
        Error::step(
            "doing without a cgroup",
            format!("{why}; an ordinary user needs cgroup v2 here, or a user namespace as `podman unshare` has it"),
        )
    })
}
