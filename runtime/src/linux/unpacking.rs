//! What confines a process that unpacks an archive: it can make files beneath one directory, read what it has open, and
//! nothing else. A hole in a decompressor is a hole into this.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};

use super::{landlock, seccomp, sys};
use crate::report::Status;

/// A thread that can do nothing but unpack into one directory.
#[derive(Debug)]
pub struct Unpacking(Status);

impl Unpacking {
    /// Confines this whole process, which must have one thread, and binds its life to its parent's, which is `parent`.
    ///
    /// # Errors
    /// Where a limit or the filter cannot be had, or the parent has ended already.
    pub fn confine_process(into: BorrowedFd<'_>, parent: u32) -> io::Result<Unpacking> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get()) != i32::try_from(parent).ok() {
            return Err(io::Error::other("its parent has ended"));
        }
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        for (resource, most) in LIMITS {
            // What was lowered before cannot be raised.
            let most = rustix::process::getrlimit(resource).maximum.map_or(most, |now| now.min(most));
            rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
        }
        Unpacking::confine_thread(into)
    }

    /// Confines this thread.
    ///
    /// # Errors
    /// Where the filter cannot be had.
    pub fn confine_thread(into: BorrowedFd<'_>) -> io::Result<Unpacking> {
        rustix::thread::set_no_new_privs(true)?;
        let files = match landlock::confine_to_making(into) {
            Ok(_) => Status::Full,
            Err(why) => Status::Absent(why),
        };
        sys::install_filter(&seccomp::of_nothing_but(&CALLS))?;
        Ok(Unpacking(files))
    }

    /// Whether Landlock would keep such a thread in its directory.
    ///
    /// # Errors
    /// Why it would not.
    pub fn can_keep_files_apart() -> Result<(), String> {
        landlock::can_confine_to_making()
    }

    /// Whether Landlock keeps it in its directory; the filter alone cannot, but leaves it nothing to read and nowhere to send.
    pub fn files(&self) -> &Status {
        &self.0
    }
}

/// Nothing that unpacking a layer of 4 GiB with 500,000 names comes near to.
const LIMITS: [(Resource, u64); 4] =
    [(Resource::Core, 0), (Resource::Data, 1 << 30), (Resource::Fsize, 8 << 30), (Resource::Nofile, 64)];

/// Files by handles of directories, memory, time, the end. No way to read what is not open, to start anything, to reach
/// another process or the network.
const CALLS: [libc::c_long; 42] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_mkdirat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_fchmod,
    libc::SYS_utimensat,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::net::TcpStream;
    use std::os::fd::AsFd;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use rustix::process::Pid;

    /// What a thread may do that was confined, each answered by what the kernel said.
    fn confined<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> (Status, T, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let into = File::open(directory.path()).unwrap();
        let thread = std::thread::spawn(move || {
            let confined = Unpacking::confine_thread(into.as_fd()).unwrap();
            (confined.files().clone(), act())
        });
        let (files, answers) = thread.join().unwrap();
        (files, answers, directory)
    }

    #[test]
    fn nothing_but_unpacking_can_be_done() {
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().to_owned();
        let open = File::open("/dev/null").unwrap();
        let (files, answers, _directory) = confined(move || {
            let mut answers = vec![
                ("start", Command::new("/bin/true").status().map(drop)),
                ("connect", TcpStream::connect("127.0.0.1:9").map(drop)),
                ("fork", sys::unshare_nothing().map_err(Into::into)),
                ("signal", rustix::process::test_kill_process(Pid::INIT).map_err(Into::into)),
                ("rename", fs::rename(path.join("a"), path.join("b"))),
                ("give away", rustix::fs::fchown(&open, None, None).map_err(Into::into)),
                ("map a program", sys::map_executable().map_err(Into::into)),
            ];
            let of_landlock = vec![
                ("read", File::open("/etc/passwd").map(drop)),
                ("list", fs::read_dir(&path).map(drop)),
                ("write", fs::write(path.join("new"), "x")),
                ("make a directory", fs::create_dir(path.join("d"))),
                ("make a link", symlink("x", path.join("l"))),
            ];
            answers.extend(of_landlock);
            answers
        });
        let landlock = files == Status::Full;
        for (what, answer) in answers {
            let by_landlock = matches!(what, "read" | "list" | "write" | "make a directory" | "make a link");
            assert!(answer.is_err() || (by_landlock && !landlock), "it could {what}");
            let numbers = [libc::ENOSYS, libc::EPERM, libc::EACCES];
            let number = answer.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| libc::EACCES);
            assert!(numbers.contains(&number), "{what}: {number}");
        }
        assert!(!landlock || fs::read_dir(outside.path()).unwrap().count() == 0);
    }

    #[test]
    fn what_unpacking_does_works() {
        use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
        let directory = tempfile::tempdir().unwrap();
        let root = File::open(directory.path()).unwrap();
        let thread = std::thread::spawn(move || -> io::Result<()> {
            Unpacking::confine_thread(root.as_fd())?;
            rustix::fs::mkdirat(&root, "d", Mode::RWXU)?;
            let (flags, beneath) = (OFlags::PATH | OFlags::DIRECTORY, ResolveFlags::BENEATH);
            let d = rustix::fs::openat2(&root, "d", flags, Mode::empty(), beneath)?;
            let file = rustix::fs::openat(&d, "f", OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR)?;
            rustix::io::write(&file, b"text")?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o755))?;
            rustix::fs::linkat(&d, "f", &root, "g", AtFlags::empty())?;
            rustix::fs::symlinkat("g", &root, "l")?;
            rustix::fs::unlinkat(&root, "l", AtFlags::empty())?;
            let d = rustix::fs::openat2(&root, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), beneath)?;
            Ok(rustix::fs::fchmod(&d, Mode::from_raw_mode(0o700))?)
        });
        thread.join().unwrap().unwrap();
        assert_eq!(fs::read_to_string(directory.path().join("g")).unwrap(), "text");
        assert_eq!(fs::metadata(directory.path().join("d/f")).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(directory.path().join("l").symlink_metadata().is_err());
    }
}
