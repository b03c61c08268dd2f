//! Where the host shows a directory: a bind mount shows one at a second place, and a mask at the first hides nothing there.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::masks;
use super::wire::Refusal;
use crate::plan::{Plan, What};

/// That nothing of what a plan denies is shown in a grant where no mask is.
///
/// # Errors
/// A [`Refusal`] that names the second place.
pub fn nowhere_else(plan: &Plan) -> Result<(), Refusal> {
    let denied = |mount: &crate::plan::Mount| match &mount.what {
        What::Denied { grant, path } => Some(grant.join(path)),
        _ => None,
    };
    let masked: Vec<PathBuf> = plan.mounts.iter().filter_map(denied).collect();
    if masked.is_empty() {
        return Ok(());
    }
    let fail = |why: io::Error| Refusal::new("finding what the host shows twice", why);
    let mounts = mounts().map_err(fail)?;
    for mount in &plan.mounts {
        let What::Granted { source, .. } = &mount.what else { continue };
        let inside = mounts.iter().filter(|mount| mount.at != *source && mount.at.starts_with(source));
        let places = inside.cloned().chain([locate(&mounts, source).map_err(fail)?]);
        for place in places {
            for hidden in &masked {
                let at = locate(&mounts, hidden).map_err(|why| masks::cannot(hidden, why))?.also_at(&place);
                if let Some(at) = at.filter(|at| !masked.iter().any(|mask| at.starts_with(mask))) {
                    let why = format!("a bind mount shows it, or a part of it, at {}", at.display());
                    return Err(masks::cannot(hidden, why).hint("deny that place too, or grant directories beside it"));
                }
            }
        }
    }
    Ok(())
}

/// A mount, or a place on one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    /// The mount's number.
    mount: u64,
    /// The file system's device.
    device: String,
    /// The path in that file system.
    path: PathBuf,
    /// The path on the host.
    at: PathBuf,
}

impl Shown {
    /// Where another place shows this one, or a part of it.
    fn also_at(&self, other: &Shown) -> Option<PathBuf> {
        if self.device != other.device {
            return None;
        }
        match self.path.strip_prefix(&other.path) {
            // Not joined to the empty path, which would end it in a slash.
            Ok(below) => Some(other.at.join(below).components().collect()),
            Err(_) => other.path.starts_with(&self.path).then(|| other.at.clone()),
        }
    }
}

/// The place of a path, by the number of the mount that it is on, statx(2) since Linux 5.8.
fn locate(mounts: &[Shown], path: &Path) -> io::Result<Shown> {
    let number = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID)?.stx_mnt_id;
    let unknown = || io::Error::other(format!("{} is on a mount that is not listed", path.display()));
    let mount = mounts.iter().find(|mount| mount.mount == number).ok_or_else(unknown)?;
    let below = path.strip_prefix(&mount.at).map_err(|_| unknown())?;
    Ok(Shown { path: mount.path.join(below), at: path.into(), ..mount.clone() })
}

/// All mounts of this namespace, proc_pid_mountinfo(5).
fn mounts() -> io::Result<Vec<Shown>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// `NUMBER PARENT DEVICE ROOT POINT …`
fn parse(line: &[u8]) -> Option<Shown> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mount = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = String::from_utf8(fields.nth(1)?.to_vec()).ok()?;
    let (path, at) = (unescape(fields.next()?), unescape(fields.next()?));
    Some(Shown { mount, device, path, at })
}

/// Blanks and backslashes are written as three octal digits.
fn unescape(text: &[u8]) -> PathBuf {
    let mut plain = Vec::new();
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digits = (*first == b'\\').then(|| tail.get(..3)).flatten().and_then(|d| std::str::from_utf8(d).ok());
        let (byte, after) = match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (byte, &tail[3..]),
            None => (*first, tail),
        };
        plain.push(byte);
        rest = after;
    }
    OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Shown {
        parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn a_line_is_read_with_its_blanks() {
        let place = shown("36 35 98:0 /mnt1/a\\040b /mnt2/c\\134d rw,noatime master:1 - ext3 /dev/root rw");
        assert_eq!((place.mount, place.device.as_str()), (36, "98:0"));
        assert_eq!((place.path, place.at), ("/mnt1/a b".into(), "/mnt2/c\\d".into()));
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn a_second_place_is_found_above_and_below() {
        let hidden = shown("1 0 8:1 /data/private /host/private");
        let at = |line: &str| hidden.also_at(&shown(line)).map(|at| at.display().to_string());
        assert_eq!(at("2 0 8:1 /data /grant/alias").as_deref(), Some("/grant/alias/private"));
        assert_eq!(at("2 0 8:1 /data/private/keys /grant/keys").as_deref(), Some("/grant/keys"));
        assert_eq!(at("2 0 8:1 /data/private /grant/p").as_deref(), Some("/grant/p"));
        assert_eq!(at("2 0 8:1 /data/private2 /grant/p"), None);
        assert_eq!(at("2 0 8:2 /data /grant/alias"), None);
    }

    #[test]
    fn the_root_of_this_machine_is_on_a_mount() {
        let mounts = mounts().unwrap();
        let root = locate(&mounts, Path::new("/")).unwrap();
        assert_eq!(root.at, Path::new("/"));
    }
}
