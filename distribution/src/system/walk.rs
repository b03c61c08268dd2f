//! openat2(2) where the system has none: a path is walked part by part, each from the handle of the one before.

use std::collections::VecDeque;
use std::ops::BitOr;

use super::{AsFd, Errno, Mode, OFlags, OwnedFd, PATH, openat, readlinkat};

/// Where a path may lead, as far as it is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolveFlags(u8);

impl ResolveFlags {
    /// Beneath the directory.
    pub const BENEATH: ResolveFlags = ResolveFlags(1);
    /// By way of no symlink.
    pub const NO_SYMLINKS: ResolveFlags = ResolveFlags(2);
    /// By way of no link of `/proc`, of which there are none here.
    #[cfg_attr(target_os = "linux", expect(dead_code, reason = "for the others"))]
    pub const NO_MAGICLINKS: ResolveFlags = ResolveFlags(0);
    /// As whoever had the directory for a root would get there.
    pub const IN_ROOT: ResolveFlags = ResolveFlags(4);

    /// Both.
    #[must_use]
    pub const fn union(self, other: ResolveFlags) -> ResolveFlags {
        ResolveFlags(self.0 | other.0)
    }
}

impl BitOr for ResolveFlags {
    type Output = ResolveFlags;

    fn bitor(self, other: ResolveFlags) -> ResolveFlags {
        self.union(other)
    }
}

/// Symlinks that a path may lead by, as Linux has it.
const MOST_LINKS: usize = 40;

/// Opens or makes a file or directory at a relative path.
///
/// # Errors
/// The system's; `LOOP` at a symlink that must not be followed, or the 41st, `INVAL` for a path with `..` where it must stay beneath.
pub fn openat2(
    dir: impl AsFd,
    path: impl super::Arg,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = path.as_cow_c_str()?.to_bytes().to_vec();
    let mut left: VecDeque<Vec<u8>> = parts(&path).collect();
    let here = |dir: &OwnedFd| openat(dir, c".", flags, mode);
    let directory = PATH | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // From the root down to where the walk is.
    let mut way = vec![openat(dir, c".", directory, Mode::empty())?];
    let mut links = 0;
    while let Some(part) = left.pop_front() {
        if part == b".." {
            if resolve != ResolveFlags::IN_ROOT {
                return Err(Errno::INVAL);
            }
            way.truncate((way.len() - 1).max(1));
            continue;
        }
        let at = way.last().expect("the root stays");
        let opened = match left.is_empty() {
            true => openat(at, &part[..], flags | OFlags::NOFOLLOW, mode),
            false => openat(at, &part[..], directory, Mode::empty()),
        };
        match opened {
            Ok(found) if left.is_empty() => return Ok(found),
            Ok(found) => way.push(found),
            // What is no directory: a link, or something else.
            Err(error @ (Errno::LOOP | Errno::NOTDIR)) => {
                let Ok(target) = readlinkat(at, &part[..], Vec::new()) else { return Err(error) };
                links += 1;
                if resolve != ResolveFlags::IN_ROOT || links > MOST_LINKS {
                    return Err(Errno::LOOP);
                }
                let target = target.to_bytes();
                if target.starts_with(b"/") {
                    way.truncate(1);
                }
                parts(target).rev().for_each(|part| left.push_front(part));
            }
            Err(error) => return Err(error),
        }
    }
    here(way.last().expect("the root stays"))
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs::{self, File};

    /// The kernel's own is the oracle.
    #[test]
    fn a_path_leads_where_the_kernel_goes() {
        use rustix::fs::ResolveFlags as Kernel;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("usr/lib/deep")).unwrap();
        fs::write(root.join("usr/lib/file"), "in").unwrap();
        fs::write(dir.path().join("file"), "out").unwrap();
        for (target, link) in [
            ("usr/lib", "lib"),
            ("/usr/lib", "absolute"),
            ("../../../usr", "up"),
            ("..", "out"),
            ("loop", "loop"),
            ("lib/deep", "chain"),
            ("usr/lib/file", "to-file"),
            ("nowhere", "dangling"),
        ] {
            super::super::symlink(target, root.join(link)).unwrap();
        }
        let root = File::open(&root).unwrap();
        let paths = [
            "",
            ".",
            "usr",
            "usr/lib/file",
            "usr//./lib/",
            "lib",
            "lib/file",
            "lib/deep",
            "absolute/file",
            "up/lib/file",
            "out",
            "out/file",
            "../file",
            "lib/../../file",
            "loop",
            "loop/x",
            "chain",
            "chain/../file",
            "to-file",
            "to-file/x",
            "dangling",
            "dangling/x",
            "usr/lib/file/x",
            "missing",
            "missing/x",
            "usr/..",
            "usr/../usr",
        ];
        let ways = [
            (ResolveFlags::IN_ROOT, Kernel::IN_ROOT),
            (ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS, Kernel::BENEATH | Kernel::NO_SYMLINKS),
        ];
        for (own, kernels) in ways {
            for path in paths {
                if path.is_empty() || (kernels != Kernel::IN_ROOT && path.contains("..")) {
                    continue;
                }
                for flags in [OFlags::RDONLY, OFlags::RDONLY | OFlags::DIRECTORY] {
                    let about = |fd: Result<OwnedFd, Errno>| {
                        fd.map(|fd| super::super::fstat(fd).map(|about| (about.st_dev, about.st_ino)).unwrap())
                    };
                    let mine = about(openat2(&root, path, flags, Mode::empty(), own));
                    let want = about(rustix::fs::openat2(&root, path, flags, Mode::empty(), kernels));
                    assert_eq!(mine, want, "{path:?} {flags:?} {kernels:?}");
                }
            }
        }
    }
}
