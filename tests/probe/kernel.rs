//! Verbs that ask the kernel for what a cage must not have. Each is harmless where it is allowed: the arguments name
//! nothing, or nothing changes.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    let number = |at: usize| -> u64 { rest[at].parse().unwrap_or_else(|_| panic!("{:?} is no number", rest[at])) };
    Some(match verb {
        "call" => call(rest[0]),
        "socket" => sys::socket(number(0), number(1), number(2)).map(|()| "\"made\"".into()),
        "socketpair" => sys::socketpair().map(|()| "\"made\"".into()),
        "clone" => sys::clone(number(0)).map(|()| "\"cloned\"".into()),
        "call-of-i386" => sys::getpid_of_i386().map(|pid| pid.to_string()),
        // Files.
        "make-with-mode" => make_with_mode(rest[0], number(1) as u32),
        "make-node" => sys::make_node(rest[0], number(1)).map(|()| "\"made\"".into()),
        "chmod-open" => chmod_open(rest[0], number(1) as u32),
        "rename" => fs::rename(rest[0], rest[1]).map(|()| "\"renamed\"".into()),
        // Opens and closes: nothing is written.
        "open-to-write" => fs::OpenOptions::new().write(true).open(rest[0]).map(|_| "\"opened\"".into()),
        // Programs.
        "exec-descriptor" => fs::File::open(rest[0]).and_then(|file| exec_descriptor(&file, &rest[1..])),
        "exec-memory" => exec_memory(number(0), &rest[1..]),
        "exec-script" => exec_script(rest[0], rest[1]),
        _ => return None,
    })
}

/// The number of a call of the table.
pub fn number_of(name: &str) -> Option<i64> {
    sys::CALLS.iter().find(|call| call.0 == name).map(|call| call.1)
}

fn call(name: &str) -> io::Result<String> {
    let (_, number, arguments) = sys::CALLS.iter().find(|call| call.0 == name).unwrap_or_else(|| panic!("no {name}"));
    sys::call(*number, *arguments).map(|answer| answer.to_string())
}

fn make_with_mode(path: &str, mode: u32) -> io::Result<String> {
    fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    Ok("\"made\"".into())
}

fn chmod_open(path: &str, mode: u32) -> io::Result<String> {
    fs::File::open(path)?.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok("\"changed\"".into())
}

fn exec_script(path: &str, interpreter: &str) -> io::Result<String> {
    fs::write(path, format!("#!{interpreter} exit\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Err(Command::new(path).exec())
}

/// Executes an open file by the path that `/proc` has for it.
fn exec_descriptor(file: &fs::File, arguments: &[&str]) -> io::Result<String> {
    Err(Command::new(format!("/proc/self/fd/{}", file.as_raw_fd())).args(arguments).exec())
}

/// Copies this program into memory and executes it there; nothing touches a mount.
fn exec_memory(flags: u64, arguments: &[&str]) -> io::Result<String> {
    let mut file = sys::memfd(flags)?;
    file.write_all(&fs::read("/proc/self/exe")?)?;
    exec_descriptor(&file, arguments)
}

mod sys {
    use std::ffi::{CString, c_int, c_long};
    use std::fs::File;
    use std::io;
    use std::os::fd::FromRawFd;

    const X86: bool = cfg!(target_arch = "x86_64");

    const fn number(x86: c_long, arm: c_long) -> c_long {
        if X86 { x86 } else { arm }
    }

    const NO_FD: c_long = -1;
    const NO_PID: c_long = 0x3FFF_FFFF;
    const BAD: c_long = 1;
    const TIOCSTI: c_long = 0x5412;
    const TIOCLINUX: c_long = 0x541C;
    const TIOCSETD: c_long = 0x5423;

    /// Calls whose arguments name nothing, by name.
    pub const CALLS: &[(&str, c_long, [c_long; 6])] = &[
        // What does not exist inside.
        ("clone3", 435, [0; 6]),
        ("io_uring_setup", 425, [0; 6]),
        ("io_uring_enter", 426, [NO_FD, 0, 0, 0, 0, 0]),
        ("io_uring_register", 427, [NO_FD, 0, 0, 0, 0, 0]),
        ("openat2", 437, [NO_FD, 0, 0, 0, 0, 0]),
        ("a-call-of-the-future", 999, [0; 6]),
        // What is refused inside.
        ("ptrace", number(101, 117), [0x4206, NO_PID, 0, 0, 0, 0]),
        ("process_vm_readv", number(310, 270), [NO_PID, BAD, 1, BAD, 1, 0]),
        ("process_vm_writev", number(311, 271), [NO_PID, BAD, 1, BAD, 1, 0]),
        ("pidfd_getfd", 438, [NO_FD, 0, 0, 0, 0, 0]),
        ("kcmp", number(312, 272), [NO_PID, NO_PID, 0, 0, 0, 0]),
        ("mount", number(165, 40), [BAD, BAD, BAD, 0, 0, 0]),
        ("umount2", number(166, 39), [BAD, 0, 0, 0, 0, 0]),
        ("pivot_root", number(155, 41), [BAD, BAD, 0, 0, 0, 0]),
        ("chroot", number(161, 51), [BAD, 0, 0, 0, 0, 0]),
        ("move_mount", 429, [NO_FD, BAD, NO_FD, BAD, 0, 0]),
        ("open_tree", 428, [NO_FD, BAD, 0, 0, 0, 0]),
        ("fsopen", 430, [BAD, 0, 0, 0, 0, 0]),
        ("fsconfig", 431, [NO_FD, 0, 0, 0, 0, 0]),
        ("fsmount", 432, [NO_FD, 0, 0, 0, 0, 0]),
        ("mount_setattr", 442, [NO_FD, BAD, 0, BAD, 32, 0]),
        ("unshare", number(272, 97), [0; 6]),
        ("setns", number(308, 268), [NO_FD, 0, 0, 0, 0, 0]),
        ("bpf", number(321, 280), [9999, 0, 0, 0, 0, 0]),
        ("init_module", number(175, 105), [BAD, 1, BAD, 0, 0, 0]),
        ("finit_module", number(313, 273), [NO_FD, BAD, 0, 0, 0, 0]),
        ("delete_module", number(176, 106), [BAD, 0, 0, 0, 0, 0]),
        ("kexec_load", number(246, 104), [0, 0, 0, 0xFFFF, 0, 0]),
        ("add_key", number(248, 217), [BAD, BAD, 0, 0, 0, 0]),
        ("request_key", number(249, 218), [BAD, BAD, 0, 0, 0, 0]),
        ("keyctl", number(250, 219), [0, -3, 0, 0, 0, 0]),
        ("userfaultfd", number(323, 282), [0xFFFF, 0, 0, 0, 0, 0]),
        ("perf_event_open", number(298, 241), [BAD, 0, 0, 0, 0, 0]),
        ("open_by_handle_at", number(304, 265), [NO_FD, BAD, 0, 0, 0, 0]),
        ("fanotify_init", number(300, 262), [0xFFFF_FFFF, 0, 0, 0, 0, 0]),
        ("reboot", number(169, 142), [0; 6]),
        ("swapon", number(167, 224), [BAD, 0, 0, 0, 0, 0]),
        ("quotactl", number(179, 60), [-1, BAD, 0, 0, 0, 0]),
        ("acct", number(163, 89), [BAD, 0, 0, 0, 0, 0]),
        ("syslog", number(103, 116), [9999, 0, 0, 0, 0, 0]),
        ("settimeofday", number(164, 170), [0; 6]),
        ("clock_settime", number(227, 112), [0, 0, 0, 0, 0, 0]),
        ("adjtimex", number(159, 171), [0; 6]),
        // Of nothing that is asked for, and of what is there already.
        ("personality", number(135, 92), [8, 0, 0, 0, 0, 0]),
        ("personality-query", number(135, 92), [0xFFFF_FFFF, 0, 0, 0, 0, 0]),
        ("tiocsti", number(16, 29), [NO_FD, TIOCSTI, 0, 0, 0, 0]),
        ("tiocsti-above", number(16, 29), [NO_FD, TIOCSTI | 1 << 32, 0, 0, 0, 0]),
        ("tioclinux", number(16, 29), [NO_FD, TIOCLINUX, 0, 0, 0, 0]),
        ("tiocsetd", number(16, 29), [NO_FD, TIOCSETD, 0, 0, 0, 0]),
        // The numbers of x32, which has those of x86-64 with a bit: getpid.
        ("getpid-of-x32", number(0x4000_0000 | 39, 0x4000_0000 | 172), [0; 6]),
    ];

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
        fn mknod(path: *const std::ffi::c_char, mode: u32, device: u64) -> c_int;
        fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn _exit(code: c_int) -> !;
    }

    fn check(result: c_long) -> io::Result<c_long> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    pub fn call(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> io::Result<c_long> {
        // SAFETY: every pointer of the table is null or an address that is mapped nowhere: the kernel answers EFAULT.
        check(unsafe { syscall(number, a, b, c, d, e, f) })
    }

    pub fn socket(family: u64, kind: u64, protocol: u64) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { syscall(number(41, 198), family, kind, protocol) }).map(drop)
    }

    pub fn socketpair() -> io::Result<()> {
        let mut both = [0_i32; 2];
        // SAFETY: AF_UNIX, SOCK_STREAM; two descriptors are written.
        check(unsafe { syscall(number(53, 199), 1, 1, 0, both.as_mut_ptr()) }).map(drop)
    }

    /// A child in new namespaces, which ends at once.
    pub fn clone(flags: u64) -> io::Result<()> {
        const SIGCHLD: u64 = 17;
        // SAFETY: without a stack the child goes on with a copy of this one's, as after fork.
        let child = check(unsafe { syscall(number(56, 220), flags | SIGCHLD, 0, 0, 0, 0) })?;
        if child == 0 {
            // SAFETY: the child runs nothing else.
            unsafe { _exit(0) }
        }
        let mut status = 0;
        // SAFETY: `status` lives.
        check(unsafe { waitpid(child as c_int, &raw mut status, 0) }.into()).map(drop)
    }

    pub fn make_node(path: &str, mode: u64) -> io::Result<()> {
        let path = CString::new(path).expect("an argument holds no NUL");
        // SAFETY: a live string.
        check(unsafe { mknod(path.as_ptr(), mode as u32, 0) }.into()).map(drop)
    }

    pub fn memfd(flags: u64) -> io::Result<File> {
        // SAFETY: the name ends with NUL.
        let fd = check(unsafe { syscall(number(319, 279), c"probe".as_ptr(), flags) })?;
        // SAFETY: the kernel just made it.
        Ok(unsafe { File::from_raw_fd(fd as c_int) })
    }

    #[cfg(target_arch = "x86_64")]
    pub fn getpid_of_i386() -> io::Result<i32> {
        let mut number: i32 = 20;
        // SAFETY: getpid of i386 takes nothing; the gate of i386 preserves all but eax and r8 to r11.
        unsafe {
            std::arch::asm!(
                "int 0x80", inout("eax") number,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        if number < 0 { Err(io::Error::from_raw_os_error(-number)) } else { Ok(number) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn getpid_of_i386() -> io::Result<i32> {
        Err(io::Error::from_raw_os_error(38))
    }
}
