//! The calls of macOS that no safe crate offers.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::time::Duration;

use libc::{c_int, c_void};

use crate::plan::Rlimits;

/// An event queue of the kernel.
#[derive(Debug)]
pub struct Queue(OwnedFd);

impl Queue {
    /// An empty one.
    pub fn new() -> io::Result<Queue> {
        // SAFETY: a call without arguments.
        let queue = unsafe { libc::kqueue() };
        if queue < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has made this descriptor, and nobody else knows it. The kernel does not pass queues on to children.
        Ok(Queue(unsafe { OwnedFd::from_raw_fd(queue) }))
    }

    /// Is told of a signal.
    pub fn add_signal(&self, signal: c_int) -> io::Result<()> {
        self.add(usize::try_from(signal).map_err(io::Error::other)?, libc::EVFILT_SIGNAL, 0)
    }

    /// Is told of the end of a process.
    pub fn add_end_of(&self, pid: i32) -> io::Result<()> {
        self.add(usize::try_from(pid).map_err(io::Error::other)?, libc::EVFILT_PROC, libc::NOTE_EXIT)
    }

    fn add(&self, ident: usize, filter: i16, fflags: u32) -> io::Result<()> {
        let event = libc::kevent { ident, filter, flags: libc::EV_ADD, fflags, data: 0, udata: null_mut() };
        // SAFETY: the queue is open; one event is read, none is written, and there is no time to wait.
        match unsafe { libc::kevent(self.0.as_raw_fd(), &raw const event, 1, null_mut(), 0, null()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What the next event is about, where one waits.
    pub fn next(&self) -> Option<i32> {
        // SAFETY: all-zero is a valid event and a valid time.
        let (mut event, now): (libc::kevent, libc::timespec) = unsafe { (zeroed(), zeroed()) };
        // SAFETY: the queue is open, none is read, `event` has room for one, and the call does not wait.
        let count = unsafe { libc::kevent(self.0.as_raw_fd(), null(), 0, &raw mut event, 1, &raw const now) };
        if count == 1 { i32::try_from(event.ident).ok() } else { None }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Ignores a signal.
pub fn ignore(signal: c_int) {
    // SAFETY: to ignore a signal runs nothing.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Has a child start with limits, as the first of a group of its own, with the usual signals, and with the descriptors 0, 1 and 2 alone.
pub fn confine(command: &mut Command, limits: &Rlimits) {
    let limits = *limits;
    command.process_group(0);
    // SAFETY: between fork and exec this calls setrlimit(2), getrlimit(2), signal(3) and fcntl(2) alone, which are async-signal-safe, and
    // neither allocates nor locks.
    unsafe {
        command.pre_exec(move || {
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
                libc::signal(signal, libc::SIG_DFL);
            }
            limit(libc::RLIMIT_CORE, 0)?;
            limit(libc::RLIMIT_DATA, limits.data)?;
            limit(libc::RLIMIT_NOFILE, limits.nofile)?;
            if let Some(fsize) = limits.fsize {
                limit(libc::RLIMIT_FSIZE, fsize)?;
            }
            // Closing them would close that by which `std` hears of a failure.
            for descriptor in 3..libc::getdtablesize() {
                libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
            }
            Ok(())
        });
    }
}

/// Lowers a limit, soft and hard alike. A lower one that is there holds.
fn limit(resource: c_int, most: u64) -> io::Result<()> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `now` is writable.
    if unsafe { libc::getrlimit(resource, &raw mut now) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let most = most.min(now.rlim_max);
    let wanted = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `wanted` is readable.
    match unsafe { libc::setrlimit(resource, &raw const wanted) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal to a process, or to a whole group where the number is negative. One that is gone is no error that matters.
pub fn kill(pid: i32, signal: c_int) {
    // SAFETY: a call without pointers.
    let _ = unsafe { libc::kill(pid, signal) };
}

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its group's.
    pub group: i32,
    /// When it was started, microseconds since 1970, to tell it from another with its id.
    pub started: u64,
}

/// All processes that this user may see.
pub fn processes() -> io::Result<Vec<Process>> {
    // SAFETY: without a buffer the call says how many there are.
    let count = unsafe { libc::proc_listallpids(null_mut(), 0) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // Some may be new by the time of the second call.
    let mut ids = vec![0_i32; count + 64];
    let size = c_int::try_from(ids.len() * size_of::<i32>()).map_err(io::Error::other)?;
    // SAFETY: `ids` has `size` writable bytes.
    let count = unsafe { libc::proc_listallpids(ids.as_mut_ptr().cast(), size) };
    ids.truncate(usize::try_from(count).map_err(|_| io::Error::last_os_error())?);
    Ok(ids.into_iter().filter_map(process).collect())
}

fn process(pid: i32) -> Option<Process> {
    let about: libc::proc_bsdinfo = about(pid, libc::PROC_PIDTBSDINFO)?;
    Some(Process {
        pid,
        parent: about.pbi_ppid.cast_signed(),
        group: about.pbi_pgid.cast_signed(),
        started: about.pbi_start_tvsec * 1_000_000 + about.pbi_start_tvusec,
    })
}

/// What a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Resident memory, bytes.
    pub memory: u64,
    /// User and system time.
    pub cpu_time: Duration,
    /// Its threads.
    pub threads: u32,
}

/// Looks at a process; none where it is gone.
pub fn uses(pid: i32) -> Option<Uses> {
    let about: libc::proc_taskinfo = about(pid, libc::PROC_PIDTASKINFO)?;
    Some(Uses {
        memory: about.pti_resident_size,
        cpu_time: time(about.pti_total_user + about.pti_total_system),
        threads: u32::try_from(about.pti_threadnum).unwrap_or(0),
    })
}

/// Ticks of the machine's clock, which are nanoseconds on Intel and 125/3 of one on Apple's own processors.
#[expect(deprecated, reason = "another crate for one call of it would be no better")]
fn time(ticks: u64) -> Duration {
    let mut base = libc::mach_timebase_info { numer: 0, denom: 0 };
    // SAFETY: `base` is writable.
    unsafe { libc::mach_timebase_info(&raw mut base) };
    let nanoseconds = u128::from(ticks) * u128::from(base.numer) / u128::from(base.denom.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// One of the records of libproc, which are plain numbers.
fn about<T: Copy>(pid: i32, flavor: c_int) -> Option<T> {
    // SAFETY: the two records that are asked for are numbers and arrays of them, of which all-zero is a valid value.
    let mut found: T = unsafe { zeroed() };
    let size = c_int::try_from(size_of::<T>()).ok()?;
    // SAFETY: `found` has `size` writable bytes.
    let length = unsafe { libc::proc_pidinfo(pid, flavor, 0, (&raw mut found).cast::<c_void>(), size) };
    (length == size).then_some(found)
}
