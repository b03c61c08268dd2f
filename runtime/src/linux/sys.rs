//! The system calls that no safe crate offers. Every `unsafe` of the runtime on Linux is in this file.

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

use super::wire::Usage;

pub use crate::outcome::How;

/// Which side of [`fork`] this is.
pub enum Fork {
    /// The new process.
    Child,
    /// The old one, with the new one's id.
    Parent(Pid),
}

/// Splits this process in two, fork(2).
///
/// # Errors
/// The kernel's, and `EBUSY` where this process has a second thread: a child would inherit locks that nobody releases.
pub fn fork() -> io::Result<Fork> {
    // A thread that was waited for, such as one that fetched a layer, is listed until the kernel has taken it apart.
    const LOOKS: usize = 100;
    for _ in 0..LOOKS {
        if std::fs::read_dir("/proc/self/task")?.count() == 1 {
            return fork_unchecked();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY))
}

/// As [`fork`], where `/proc` shows another PID namespace or none and the caller is known to have one thread.
pub fn fork_unchecked() -> io::Result<Fork> {
    // SAFETY: the only condition on fork is that no other thread holds a lock the child needs; every caller is
    // single-threaded (`fork` has looked, libcontainer's init process is a fresh clone of one thread).
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?)),
    }
}

/// Replaces the process image, execve(2). Returns only on failure.
pub fn execve(file: &CStr, args: &[CString], env: &[CString]) -> io::Error {
    fn pointers(strings: &[CString]) -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    }
    let (args, env) = (pointers(args), pointers(env));
    // SAFETY: all strings end with NUL, both arrays end with a null pointer, and all of them outlive the call.
    unsafe { libc::execve(file.as_ptr(), args.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends this process at once, without destructors or buffers of the process it was forked from, _exit(2).
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit has no conditions.
    unsafe { libc::_exit(code) }
}

/// Leaves namespaces, unshare(2).
///
/// # Errors
/// The kernel's: `EPERM` and `ENOSPC` where user namespaces are forbidden.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES));
    // SAFETY: unsafe in rustix because of CLONE_FILES alone, which would unshare the descriptor table of one thread.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// What [`set_mount`] turns on for a mount and all mounts beneath it, mount_setattr(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct MountAttributes<'fd> {
    /// `MOUNT_ATTR_RDONLY`.
    pub read_only: bool,
    /// `MOUNT_ATTR_NOEXEC`.
    pub no_exec: bool,
    /// This mount alone, not those beneath it.
    pub alone: bool,
    /// Shift owners by the id map of this user namespace, `MOUNT_ATTR_IDMAP`.
    pub id_map: Option<BorrowedFd<'fd>>,
}

/// Applies attributes to the mount that `mount` is open on and to all mounts beneath, unless told otherwise; always with
/// nosuid and nodev.
///
/// # Errors
/// The kernel's: `EINVAL` where a file system cannot be idmapped, `ENOSYS` before Linux 5.12.
pub fn set_mount(mount: impl AsFd, attributes: MountAttributes<'_>) -> io::Result<()> {
    let mut set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    if attributes.read_only {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    if attributes.no_exec {
        set |= libc::MOUNT_ATTR_NOEXEC;
    }
    if attributes.id_map.is_some() {
        set |= libc::MOUNT_ATTR_IDMAP;
    }
    let argument = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: attributes.id_map.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    // SAFETY: the path is an empty NUL-terminated string, the structure is initialised and its size is passed with it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | if attributes.alone { 0 } else { libc::AT_RECURSIVE },
            &raw const argument,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this kernel has mount_setattr(2), Linux 5.12.
pub fn knows_mount_setattr() -> bool {
    // SAFETY: a size of 0 is refused before either pointer is looked at.
    let result = unsafe { libc::syscall(libc::SYS_mount_setattr, -1, c"".as_ptr(), 0, ptr::null::<u8>(), 0) };
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS)
}

/// Gives the pages of this program's code back, of which a start needs most that is never needed again; what is needed is mapped anew from the
/// cache that its file has, madvise(2).
///
/// # Errors
/// The kernel's, and where `/proc` does not tell where the code is.
pub fn forget_code() -> io::Result<()> {
    let here = forget_code as *const () as usize;
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let mut words = line.split(' ');
        let (Some(range), Some("r-xp")) = (words.next(), words.next()) else { continue };
        let Some((first, end)) = range.split_once('-') else { continue };
        let [first, end] = [first, end].map(|number| usize::from_str_radix(number, 16).unwrap_or(0));
        if !(first..end).contains(&here) {
            continue;
        }
        let code = ptr::with_exposed_provenance_mut(first);
        // SAFETY: the range is one mapping of a file that nobody can write to here, so that nothing is lost of it.
        return match unsafe { libc::madvise(code, end - first, libc::MADV_DONTNEED) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
    }
    Err(io::Error::from_raw_os_error(libc::ENOENT))
}

/// Has a program for a `struct bpf_cgroup_dev_ctx` judge what the processes of a cgroup of version 2 do with devices, beside those that
/// do so already, bpf(2).
///
/// # Errors
/// The kernel's, which wants CAP_SYS_ADMIN.
pub fn bound_devices(cgroup: &impl AsRawFd, program: &[u64]) -> io::Result<()> {
    // linux/bpf.h
    const BPF_PROG_LOAD: c_int = 5;
    const BPF_PROG_ATTACH: c_int = 8;
    const BPF_PROG_TYPE_CGROUP_DEVICE: u64 = 15;
    const BPF_CGROUP_DEVICE: u64 = 6;
    const BPF_F_ALLOW_MULTI: u64 = 2;
    // What is loaded counted as locked memory before Linux 5.11.
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Memlock,
        rustix::process::Rlimit { current: None, maximum: None },
    );
    // Two numbers of 32 bits in one, the first in the lower half; then the instructions, the license and nothing of a log.
    let count = u64::try_from(program.len()).map_err(io::Error::other)?;
    let license = c"MIT";
    let load = [BPF_PROG_TYPE_CGROUP_DEVICE | count << 32, program.as_ptr() as u64, license.as_ptr() as u64, 0, 0, 0];
    // SAFETY: the attributes are as long as is said, and what they point at lives until the call returns.
    let loaded = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, load.as_ptr(), size_of_val(&load)) };
    let loaded = match i32::try_from(loaded) {
        // SAFETY: the kernel made it for this process just now, close-on-exec.
        Ok(made @ 0..) => unsafe { OwnedFd::from_raw_fd(made) },
        _ => return Err(io::Error::last_os_error()),
    };
    let number = |fd: c_int| u64::try_from(fd).map_err(io::Error::other);
    let (cgroup, own) = (number(cgroup.as_raw_fd())?, number(loaded.as_raw_fd())?);
    let attach = [cgroup | own << 32, BPF_CGROUP_DEVICE | BPF_F_ALLOW_MULTI << 32];
    // SAFETY: as above; both descriptors are open. The cgroup keeps the program.
    match unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_ATTACH, attach.as_ptr(), size_of_val(&attach)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Joins a session keyring of this name, a new one where there is none, so that the caller's keys are out of reach, keyctl(2).
///
/// # Errors
/// The kernel's. One without keyrings has none to hide.
pub fn join_new_keyring(name: &str) -> io::Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: c_int = 1;
    let name = CString::new(format!("_ses.{name}"))?;
    // SAFETY: the name ends with NUL and lives until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, name.as_ptr()) };
    match io::Error::last_os_error() {
        _ if result >= 0 => Ok(()),
        why if why.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        why => Err(why),
    }
}

/// Sets the loopback interface of this network namespace up, netdevice(7).
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_NET_ADMIN` in the namespace.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero ifreq is a valid value of that plain C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as c_char;
    request.ifr_name[1] = b'o' as c_char;
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one initialised ifreq, which lives until the call returns.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Who listens at the other end of a Unix socket, SO_PEERCRED in unix(7).
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its process id, 0 where that process has none in this PID namespace.
    pub pid: i32,
    /// Its effective uid.
    pub uid: u32,
}

/// The peer of a connected Unix socket.
///
/// # Errors
/// The kernel's.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut peer)?;
    Ok(Peer { pid: peer.pid, uid: peer.uid })
}

/// A set of signals.
#[derive(Clone, Copy)]
pub struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// The signals named.
    pub fn of(signals: &[c_int]) -> Self {
        // SAFETY: sigemptyset initialises the set that it is given; sigaddset takes an initialised one.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            Self(set)
        }
    }

    /// Every signal there is.
    pub fn all() -> Self {
        // SAFETY: sigfillset initialises the set that it is given.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigfillset(&raw mut set);
            Self(set)
        }
    }

    /// Makes exactly these signals wait, sigprocmask(2). Returns the set that waited before.
    pub fn block_only(&self) -> SignalSet {
        let mut old = SignalSet::of(&[]);
        // SAFETY: both pointers are to initialised sets.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.0, &raw mut old.0) };
        old
    }

    /// Makes these signals wait beside those that wait already.
    pub fn block(&self) {
        // SAFETY: the pointer is to an initialised set; the old one is not asked for.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const self.0, ptr::null_mut()) };
    }

    /// A descriptor from which the waiting signals are read, signalfd(2); closed on exec and non-blocking.
    ///
    /// # Errors
    /// The kernel's: `EMFILE`.
    pub fn descriptor(&self) -> io::Result<SignalDescriptor> {
        // SAFETY: -1 asks for a new descriptor, the set is initialised.
        let fd = unsafe { libc::signalfd(-1, &raw const self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made this descriptor for us, nobody else owns it.
        Ok(SignalDescriptor(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// Waiting signals as a descriptor.
#[derive(Debug)]
pub struct SignalDescriptor(OwnedFd);

impl SignalDescriptor {
    /// The next waiting signal's number, if one waits.
    pub fn next(&self) -> Option<c_int> {
        let mut buffer = [0_u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut buffer) {
            Ok(n) if n == buffer.len() => {
                // ssi_signo is the first member, 32 bits wide (signalfd(2)).
                let number = u32::from_ne_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
                c_int::try_from(number).ok()
            }
            _ => None,
        }
    }
}

impl AsFd for SignalDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives every signal its default meaning again: dispositions that are ignored survive exec, signal(7).
pub fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is a valid disposition for every signal; those that cannot be changed answer EINVAL.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Has the kernel keep children that ended until they are waited for, which it does not for a process whose starter left
/// SIGCHLD ignored, wait(2). Children of this process inherit it.
pub fn keep_children() {
    // SAFETY: SIG_DFL is a valid disposition for every signal.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Sets an environment variable of this process, which has one thread.
pub fn set_variable(name: &str, value: &OsStr) {
    // SAFETY: nobody reads or writes the environment meanwhile: whoever calls this has one thread, as `fork` demands.
    unsafe { std::env::set_var(name, value) };
}

/// Sends a signal to a process, kill(2). A process that is gone is no error.
pub fn kill(pid: Pid, signal: c_int) {
    // SAFETY: kill has no memory conditions.
    unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
}

/// Sends a signal to the process that is held, pidfd_send_signal(2): to no other that has got its number since.
///
/// # Errors
/// The kernel's; `ESRCH` where it has ended.
pub fn send(process: impl AsFd, signal: c_int) -> io::Result<()> {
    let process = process.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open for the call, and without a pointer to more the kernel fills in what it knows.
    let sent =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, signal, ptr::null::<libc::siginfo_t>(), 0) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A child that ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Which.
    pub pid: Pid,
    /// Its exit code, or the signal that ended it.
    pub how: How,
    /// Of it and all that it waited for.
    pub usage: Usage,
}

/// Which children [`wait`] looks at.
#[derive(Clone, Copy, Debug)]
pub enum Children {
    /// Any.
    Any,
    /// This one.
    One(Pid),
}

/// What [`wait`] found.
#[derive(Clone, Copy, Debug)]
pub enum Waited {
    /// This one has ended.
    Ended(Ended),
    /// There are some, and none has ended.
    Running,
    /// There are none.
    Childless,
}

/// Takes one ended child, wait4(2); with `block`, waits for it.
///
/// # Errors
/// The kernel's other than `ECHILD` and `EINTR`.
pub fn wait(children: Children, block: bool) -> io::Result<Waited> {
    let which = match children {
        Children::Any => -1,
        Children::One(pid) => pid.as_raw_nonzero().get(),
    };
    loop {
        let mut status: c_int = 0;
        // SAFETY: an all-zero rusage is a valid value of that plain C structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let options = libc::__WALL | if block { 0 } else { libc::WNOHANG };
        // SAFETY: both pointers are to values that live until the call returns.
        let pid = unsafe { libc::wait4(which, &raw mut status, options, &raw mut usage) };
        let Some(pid) = Pid::from_raw(pid.max(0)) else {
            if pid == 0 {
                return Ok(Waited::Running);
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ECHILD) => return Ok(Waited::Childless),
                _ => return Err(error),
            }
        };
        let how = if libc::WIFEXITED(status) {
            How::Code(libc::WEXITSTATUS(status))
        } else {
            How::Signal(libc::WTERMSIG(status))
        };
        return Ok(Waited::Ended(Ended { pid, how, usage: usage_of(&usage) }));
    }
}

/// What all children used that were waited for, getrusage(2).
///
/// # Errors
/// The kernel's.
pub fn usage_of_children() -> io::Result<Usage> {
    // SAFETY: an all-zero rusage is a valid value of that plain C structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a value that lives until the call returns.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    if result == 0 { Ok(usage_of(&usage)) } else { Err(io::Error::last_os_error()) }
}

fn usage_of(usage: &libc::rusage) -> Usage {
    let time = |t: libc::timeval| Duration::new(t.tv_sec.max(0) as u64, (t.tv_usec.max(0) * 1000) as u32);
    Usage { cpu_time: time(usage.ru_utime) + time(usage.ru_stime), peak_memory: usage.ru_maxrss.max(0) as u64 * 1024 }
}

/// Closes every descriptor above standard error but these, close_range(2), Linux 5.9.
///
/// # Errors
/// The kernel's.
pub fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut numbers: Vec<c_int> = keep.iter().map(|fd| fd.as_raw_fd()).filter(|fd| *fd > 2).collect();
    numbers.sort_unstable();
    let mut first = 3;
    for stop in numbers.into_iter().chain([c_int::MAX]) {
        if stop > first {
            // SAFETY: no owned descriptor outside `keep` is used afterwards: the cage process calls this before it opens
            // anything, the server's process just before exec.
            let result = unsafe { libc::syscall(libc::SYS_close_range, first, stop - 1, 0) };
            if result != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        first = stop.saturating_add(1);
    }
    Ok(())
}

/// Makes these three this process's standard input, output and error, dup2(2).
///
/// # Errors
/// The kernel's.
pub fn take_stdio(three: [OwnedFd; 3]) -> io::Result<()> {
    // One that has the number of another's place would be overwritten before it is moved.
    if let Some(fd) = three.iter().find(|fd| fd.as_raw_fd() < 3) {
        return Err(io::Error::other(format!("descriptor {} is in the way", fd.as_raw_fd())));
    }
    for (number, fd) in three.iter().enumerate() {
        // SAFETY: nothing of this process owns the three numbers but the standard library's handles, which name whatever
        // is open there.
        if unsafe { libc::dup2(fd.as_raw_fd(), number as c_int) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Wipes the arguments and the environment that this process was started with, which `/proc/PID/cmdline` shows to everybody
/// and `/proc/PID/environ` to the same user. `std::env` has empty values from then on.
///
/// # Errors
/// Where `/proc/self/stat` does not say where they are.
pub fn forget_arguments() -> io::Result<()> {
    for (start, end) in strings_of_start()? {
        // SAFETY: the kernel put the strings there on this process's own stack, above every frame, and they stay mapped
        // and writable. This process has one thread, and nobody holds a reference into them: the standard library copies.
        unsafe { ptr::write_bytes(start as *mut u8, 0, end - start) };
    }
    Ok(())
}

/// Puts asterisks in the place of what stands behind the first `=` of these texts, wherever one is an argument of this
/// process, or what such a one has behind its own `=`: `K=V` and `--env=K=V`. `std::env` has asterisks there from then on.
///
/// # Errors
/// Where `/proc/self/stat` does not say where they are.
pub fn hide_in_arguments(texts: &[String]) -> io::Result<()> {
    let [(start, end), _] = strings_of_start()?;
    // SAFETY: as above; main calls this while it has one thread, and the slice is gone when this returns.
    let strings = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, end - start) };
    for argument in strings.split_mut(|byte| *byte == 0) {
        for text in texts.iter().map(String::as_bytes) {
            let Some(equals) = text.iter().position(|byte| *byte == b'=') else { continue };
            let before = argument.strip_suffix(text).map(<[u8]>::len);
            if let Some(before) = before
                && (before == 0 || argument[before - 1] == b'=')
            {
                argument[before + equals + 1..].fill(b'*');
            }
        }
    }
    Ok(())
}

/// Where the arguments and the environment that this process was started with begin and end.
fn strings_of_start() -> io::Result<[(usize, usize); 2]> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    // Fields 48 to 51 of proc_pid_stat(5); what follows the name starts with field 3.
    let address = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<usize>().ok());
    let (Some(arguments), Some(to), Some(environment), Some(end)) =
        (address(48), address(49), address(50), address(51))
    else {
        return Err(io::Error::other("/proc/self/stat is cut off"));
    };
    let both = [(arguments, to), (environment, end)];
    match both.iter().all(|(start, end)| *start > 0 && start <= end) {
        true => Ok(both),
        false => Err(io::Error::other("/proc/self/stat hides where they are")),
    }
}

/// Ends the caller's hold on standard input, output and error: PID 1 must not keep the server's pipes open.
pub fn close_stdio() {
    for fd in 0..3 {
        // SAFETY: PID 1 uses none of the three afterwards.
        unsafe { libc::close(fd) };
    }
}

/// One instruction of a filter for system calls or packets, `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many to pass over where a comparison holds.
    pub jump_true: u8,
    /// The same where it does not.
    pub jump_false: u8,
    /// Its operand.
    pub k: u32,
}

impl Instruction {
    /// Bytes of one.
    pub const SIZE: usize = 8;

    /// As the kernel has it in memory.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let ([a, b], [c, d, e, f]) = (self.code.to_ne_bytes(), self.k.to_ne_bytes());
        [a, b, self.jump_true, self.jump_false, c, d, e, f]
    }

    /// Reads it back.
    pub fn from_bytes([a, b, jump_true, jump_false, c, d, e, f]: [u8; Self::SIZE]) -> Instruction {
        let (code, k) = (u16::from_ne_bytes([a, b]), u32::from_ne_bytes([c, d, e, f]));
        Instruction { code, jump_true, jump_false, k }
    }
}

fn instructions(program: &[Instruction]) -> Vec<libc::sock_filter> {
    program.iter().map(|i| libc::sock_filter { code: i.code, jt: i.jump_true, jf: i.jump_false, k: i.k }).collect()
}

/// Puts a filter before every system call of this thread and what it starts, seccomp(2). `no_new_privs` must be set.
///
/// # Errors
/// The kernel's: `EINVAL` for a filter that is none, `EACCES` without `no_new_privs`.
pub fn install_filter(program: &[Instruction]) -> io::Result<()> {
    install_filter_with(program, 0)
}

/// The same with `SECCOMP_FILTER_FLAG_*` that ask for no descriptor; in place of `no_new_privs` CAP_SYS_ADMIN does as well.
///
/// # Errors
/// The same.
pub fn install_filter_with(program: &[Instruction], flags: u64) -> io::Result<()> {
    let mut filter = instructions(program);
    let length = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the structure names `length` initialised instructions, and both live until the call returns.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Puts a filter before every system call of this thread and what it starts, whose calls that are told wait until whoever
/// reads the descriptor lets them go on, seccomp_unotify(2). `no_new_privs` must be set.
///
/// # Errors
/// The kernel's: `EBUSY` where a filter around this one has such a descriptor, `EINVAL` before Linux 5.5.
pub fn install_told_filter(program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut filter = instructions(program);
    let length = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // With the second, since Linux 5.19, no signal interrupts a call that was read and is not answered yet.
    let listened = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let mut failed = io::Error::from_raw_os_error(libc::EINVAL);
    for flags in [listened | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, listened] {
        // SAFETY: the structure names `length` initialised instructions, and both live until the call returns.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        match c_int::try_from(result) {
            // SAFETY: the kernel just made this descriptor for us, nobody else owns it.
            Ok(fd) if fd >= 0 => return Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => failed = io::Error::last_os_error(),
        }
        if failed.raw_os_error() != Some(libc::EINVAL) {
            break;
        }
    }
    Err(failed)
}

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// What the answer names it by.
    pub id: u64,
    /// The thread that calls, 0 where it has no id here.
    pub pid: u32,
    /// The call's number.
    pub number: u32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Takes the next call that waits.
///
/// # Errors
/// The kernel's: `ENOENT` where the caller was killed meanwhile.
pub fn take_told(listener: impl AsFd) -> io::Result<Told> {
    // A later kernel may have a longer structure, and reads and writes all of it.
    #[repr(C)]
    struct Room {
        told: libc::seccomp_notif,
        more: [u64; 32],
    }
    // SAFETY: all-zero is a valid value of these plain C structures.
    let mut room: Room = unsafe { std::mem::zeroed() };
    // SAFETY: the request writes one structure, which is zeroed as it asks for, and has room behind it.
    let result =
        unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut room) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let libc::seccomp_notif { id, pid, data, .. } = room.told;
    Ok(Told { id, pid, number: data.nr.cast_unsigned(), arguments: data.args })
}

/// Whether the call still waits, so that what was read of its process was that process's.
pub fn still_waits(listener: impl AsFd, told: &Told) -> bool {
    // SAFETY: the request reads one number, which lives until it returns.
    let result = unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw const told.id)
    };
    result == 0
}

/// Lets the call go on as if nobody had been told.
///
/// # Errors
/// The kernel's: `ENOENT` where the caller was killed or interrupted meanwhile.
pub fn let_go_on(listener: impl AsFd, told: &Told) -> io::Result<()> {
    let answer = libc::seccomp_notif_resp {
        id: told.id,
        val: 0,
        error: 0,
        flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
    };
    // SAFETY: the request reads one initialised structure, which lives until it returns.
    let result =
        unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw const answer) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads from another process's memory, process_vm_readv(2), at most up to where nothing is mapped. Gives how many bytes.
///
/// # Errors
/// The kernel's: `EPERM` where this process may not, `EFAULT` where nothing is mapped at the address.
pub fn read_memory(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let here = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let there = libc::iovec { iov_base: ptr::with_exposed_provenance_mut(address as usize), iov_len: buffer.len() };
    // SAFETY: the kernel writes into `buffer` alone, which lives until the call returns; the other address is another
    // process's, and checked by the kernel.
    let length = unsafe { libc::process_vm_readv(pid.cast_signed(), &raw const here, 1, &raw const there, 1, 0) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Has a socket take only the packets that a filter lets pass, SO_ATTACH_FILTER in socket(7).
///
/// # Errors
/// The kernel's: `EINVAL` for a filter that is none.
pub fn attach_filter(socket: impl AsFd, program: &[Instruction]) -> io::Result<()> {
    let mut filter = instructions(program);
    let length = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the structure names `length` initialised instructions, its size is passed with it, and both live until the
    // call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where a connection was to go that netfilter led to this socket; where it was not led, its own address.
///
/// # Errors
/// The kernel's: `ENOENT` where it keeps no track of the connection.
pub fn original_destination(socket: impl AsFd) -> io::Result<SocketAddr> {
    use rustix::net::AddressFamily;
    let family = rustix::net::sockopt::socket_domain(&socket)?;
    if family == AddressFamily::INET6 {
        // SAFETY: an all-zero sockaddr_in6 is a valid value of that plain C structure.
        let mut address: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
        option(&socket, libc::SOL_IPV6, libc::IP6T_SO_ORIGINAL_DST, &mut address)?;
        let port = u16::from_be(address.sin6_port);
        return Ok(SocketAddr::from((Ipv6Addr::from(address.sin6_addr.s6_addr), port)));
    }
    // SAFETY: the same of sockaddr_in.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    option(&socket, libc::SOL_IP, libc::SO_ORIGINAL_DST, &mut address)?;
    let octets = address.sin_addr.s_addr.to_ne_bytes();
    Ok(SocketAddr::from((Ipv4Addr::from(octets), u16::from_be(address.sin_port))))
}

/// Reads an option whose value is a plain C structure, getsockopt(2).
fn option<T>(socket: impl AsFd, level: c_int, name: c_int, value: &mut T) -> io::Result<()> {
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: both pointers are to live values, and the size is that of the first, which every call here has as a structure
    // that any bytes are a value of.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, ptr::from_mut(value).cast(), &raw mut size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks for a process by clone3(2) without arguments: the kernel itself answers `EINVAL`.
///
/// # Errors
/// Always.
pub fn clone3_nothing() -> Result<(), Errno> {
    // SAFETY: a size of 0 is refused before the pointer is looked at.
    answered(unsafe { libc::syscall(libc::SYS_clone3, ptr::null::<u8>(), 0) })
}

/// Leaves nothing by unshare(2): the kernel itself has nothing to do, and nothing to refuse.
///
/// # Errors
/// A filter's.
pub fn unshare_nothing() -> Result<(), Errno> {
    // SAFETY: without a flag nothing changes.
    answered(unsafe { libc::syscall(libc::SYS_unshare, 0) })
}

/// TIOCSTI on no descriptor, with a bit above the 32 that the kernel looks at: it answers `EBADF` itself.
///
/// # Errors
/// Always.
pub fn push_input_nowhere() -> Result<(), Errno> {
    // libc's constant differs in its type between C libraries.
    const TIOCSTI: u64 = 0x5412;
    // SAFETY: there is no descriptor -1, so that the null pointer is not looked at.
    answered(unsafe { libc::syscall(libc::SYS_ioctl, -1, TIOCSTI | 1 << 32, ptr::null::<u8>()) })
}

/// Whether a file could be executed, without doing so: execveat(2) with AT_EXECVE_CHECK, Linux 6.14.
///
/// # Errors
/// The kernel's; `EINVAL` where it does not know the question.
pub fn may_execute(file: &CStr) -> Result<(), Errno> {
    const AT_EXECVE_CHECK: c_int = 0x10000;
    let nothing = [ptr::null::<c_char>()];
    // SAFETY: the path ends with NUL, both arrays end with a null pointer, and all live until the call returns.
    answered(unsafe {
        libc::syscall(
            libc::SYS_execveat,
            libc::AT_FDCWD,
            file.as_ptr(),
            nothing.as_ptr(),
            nothing.as_ptr(),
            AT_EXECVE_CHECK,
        )
    })
}

/// Maps a page of zeros that could be executed.
///
/// # Errors
/// A filter's.
#[cfg(test)]
pub fn map_executable() -> Result<(), Errno> {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses where, so that nothing that is mapped is replaced; nobody uses the page.
    answered(unsafe { libc::syscall(libc::SYS_mmap, ptr::null::<u8>(), 4096, protection, kind, -1, 0) })
}

fn answered(result: libc::c_long) -> Result<(), Errno> {
    match result {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
        _ => Ok(()),
    }
}
