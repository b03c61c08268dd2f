//! Which system calls a server may make, as data. What stands in no row does not exist for it (`ENOSYS`), so that
//! programs take their older way: `clone3`, whose flags a filter cannot see; `io_uring_*`, whose operations it cannot see;
//! `openat2`, whose mode it cannot see; System V and POSIX queues, semaphores and shared memory, which no memory limit
//! without a cgroup counts; whatever a later kernel brings.
//!
//! Numbers: `asm/unistd_64.h` for x86-64, `asm-generic/unistd.h` for aarch64.

/// Marks an architecture that does not have the call.
pub const NONE: i32 = -1;

/// A system call: its name, its number on x86-64, its number on aarch64.
pub type Call = (&'static str, i32, i32);

/// Calls that have one reason.
#[cfg_attr(not(test), expect(dead_code, reason = "reasons are for readers; the tests ask for them"))]
pub struct Group {
    /// The reason.
    pub why: &'static str,
    /// The calls, by name.
    pub calls: &'static [Call],
}

/// A combination of arguments for which an allowed call is refused with `EPERM`.
#[cfg_attr(not(test), expect(dead_code, reason = "reasons are for readers; the tests ask for them"))]
pub struct Condition {
    /// The reason.
    pub why: &'static str,
    /// The calls.
    pub calls: &'static [&'static str],
    /// Where it counts.
    pub unless: Unless,
    /// It holds where all of these do.
    pub all: &'static [Test],
}

/// What takes a condition out of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unless {
    /// Nothing.
    Never,
    /// A grant to start any program.
    AnyProgram,
    /// Namespaces of its own: the server sees nothing of the host by them.
    Namespaces,
    /// The same, or Landlock's rules on TCP.
    NamespacesOrTcp,
    /// The same, or Landlock's scope of signals.
    NamespacesOrScope,
}

/// One look at the lower 32 bits of an argument: all that the kernel takes of an `int`. What stands above is ignored by
/// the kernel, so that a comparison of 64 bits is passed by (CVE-2019-10063).
#[derive(Clone, Copy)]
pub struct Test {
    /// Which argument, from 0.
    pub argument: u8,
    /// The bits that count.
    pub mask: u32,
    /// Whether they are to be among `values` or not.
    pub among: bool,
    /// The values.
    pub values: &'static [u32],
}

const fn is(argument: u8, values: &'static [u32]) -> Test {
    Test { argument, mask: u32::MAX, among: true, values }
}

const fn is_not(argument: u8, values: &'static [u32]) -> Test {
    Test { argument, mask: u32::MAX, among: false, values }
}

const fn has(argument: u8, bits: u32) -> Test {
    Test { argument, mask: bits, among: false, values: &[0] }
}

const fn lacks(argument: u8, bits: u32) -> Test {
    Test { argument, mask: bits, among: true, values: &[0] }
}

const CLONE_NEWNS: u32 = 0x0002_0000;
const CLONE_NEWCGROUP: u32 = 0x0200_0000;
const CLONE_NEWUTS: u32 = 0x0400_0000;
const CLONE_NEWIPC: u32 = 0x0800_0000;
const CLONE_NEWUSER: u32 = 0x1000_0000;
const CLONE_NEWPID: u32 = 0x2000_0000;
const CLONE_NEWNET: u32 = 0x4000_0000;
const NAMESPACES: u32 =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

/// S_ISUID and S_ISGID.
const SET_ID: u32 = 0o6000;
const S_IFMT: u32 = 0o170_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFBLK: u32 = 0o060_000;
/// O_CREAT and the bit of O_TMPFILE that no other flag has.
const CREATES: u32 = 0o100 | 0o20_000_000;

const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCSETD: u32 = 0x5423;

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;
const SOCK_TYPE: u32 = 0xF;
const SOCK_STREAM: u32 = 1;
const SOCK_SEQPACKET: u32 = 5;
const MSG_FASTOPEN: u32 = 0x2000_0000;
const F_SETOWN: u32 = 8;
const F_SETOWN_EX: u32 = 15;
const PRIO_USER: u32 = 2;
const IOPRIO_WHO_USER: u32 = 3;
const NETLINK_ROUTE: u32 = 0;
const IPPROTO_IP: u32 = 0;
const IPPROTO_ICMP: u32 = 1;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_ICMPV6: u32 = 58;

const MFD_NOEXEC_SEAL: u32 = 8;

/// The query of personality(2), and the default.
const PERSONALITY: &[u32] = &[u32::MAX, 0];

/// What an allowed call may not be asked for.
pub const CONDITIONS: &[Condition] = &[
    Condition {
        why: "a new namespace brings capabilities and the kernel behind them; clone3 does not exist here",
        calls: &["clone"],
        unless: Unless::Never,
        all: &[has(0, NAMESPACES)],
    },
    Condition {
        why: "input put into the terminal of whoever started smcp (CVE-2017-5226); line disciplines load kernel modules",
        calls: &["ioctl"],
        unless: Unless::Never,
        all: &[is(1, &[TIOCSTI, TIOCLINUX, TIOCSETD])],
    },
    Condition {
        why: "limits of another process: PID 1 has the same uid and must keep its own",
        calls: &["prlimit64"],
        unless: Unless::Never,
        all: &[is_not(0, &[0])],
    },
    Condition {
        why: "other ABIs switch protections of memory off",
        calls: &["personality"],
        unless: Unless::Never,
        all: &[is_not(0, PERSONALITY)],
    },
    Condition {
        why: "other families load kernel modules; vsock reaches the hypervisor past the network namespace",
        calls: &["socket", "socketpair"],
        unless: Unless::Never,
        all: &[is_not(0, &[AF_UNIX, AF_INET, AF_INET6, AF_NETLINK])],
    },
    Condition {
        why: "other transports load kernel modules",
        calls: &["socket", "socketpair"],
        unless: Unless::Never,
        all: &[
            is(0, &[AF_INET, AF_INET6]),
            is_not(2, &[IPPROTO_IP, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6]),
        ],
    },
    Condition {
        why: "of netlink, the list of interfaces and addresses alone (getifaddrs)",
        calls: &["socket", "socketpair"],
        unless: Unless::Never,
        all: &[is(0, &[AF_NETLINK]), is_not(2, &[NETLINK_ROUTE])],
    },
    Condition {
        why: "a file in memory lies on no mount that is noexec",
        calls: &["memfd_create"],
        unless: Unless::AnyProgram,
        all: &[lacks(1, MFD_NOEXEC_SEAL)],
    },
    Condition {
        why: "in a grant, a set-user-id file has its effect outside",
        calls: &["chmod", "fchmod", "mknod", "mkdir", "creat"],
        unless: Unless::Never,
        all: &[has(1, SET_ID)],
    },
    Condition {
        why: "in a grant, a set-user-id file has its effect outside",
        calls: &["fchmodat", "fchmodat2", "mknodat", "mkdirat"],
        unless: Unless::Never,
        all: &[has(2, SET_ID)],
    },
    Condition {
        why: "in a grant, a set-user-id file has its effect outside; without O_CREAT the mode is left over from before",
        calls: &["open"],
        unless: Unless::Never,
        all: &[has(1, CREATES), has(2, SET_ID)],
    },
    Condition {
        why: "in a grant, a set-user-id file has its effect outside; without O_CREAT the mode is left over from before",
        calls: &["openat"],
        unless: Unless::Never,
        all: &[has(2, CREATES), has(3, SET_ID)],
    },
    Condition {
        why: "devices come by the cage's /dev alone",
        calls: &["mknod"],
        unless: Unless::Never,
        all: &[Test { argument: 1, mask: S_IFMT, among: true, values: &[S_IFCHR, S_IFBLK] }],
    },
    Condition {
        why: "devices come by the cage's /dev alone",
        calls: &["mknodat"],
        unless: Unless::Never,
        all: &[Test { argument: 2, mask: S_IFMT, among: true, values: &[S_IFCHR, S_IFBLK] }],
    },
    Condition {
        why: "Landlock rules no socket but TCP's: paths, datagrams and lists of interfaces are the host's here",
        calls: &["socket"],
        unless: Unless::Namespaces,
        all: &[is_not(0, &[AF_INET, AF_INET6])],
    },
    Condition {
        why: "Landlock rules no socket but TCP's",
        calls: &["socket"],
        unless: Unless::Namespaces,
        all: &[Test { argument: 1, mask: SOCK_TYPE, among: false, values: &[SOCK_STREAM] }],
    },
    Condition {
        why: "of multipath TCP Landlock knows nothing",
        calls: &["socket"],
        unless: Unless::Namespaces,
        all: &[is_not(2, &[IPPROTO_IP, IPPROTO_TCP])],
    },
    Condition {
        why: "this kernel's Landlock does not rule TCP",
        calls: &["socket"],
        unless: Unless::NamespacesOrTcp,
        all: &[],
    },
    Condition {
        why: "a datagram socket of a pair can be sent to any path",
        calls: &["socketpair"],
        unless: Unless::Namespaces,
        all: &[Test { argument: 1, mask: SOCK_TYPE, among: false, values: &[SOCK_STREAM, SOCK_SEQPACKET] }],
    },
    Condition {
        why: "listening without binding takes a port that no rule was asked about; a socket of a pair takes an abstract name of \
              the host's, which no rule is asked about either",
        calls: &["bind", "listen"],
        unless: Unless::Namespaces,
        all: &[],
    },
    Condition {
        why: "TCP Fast Open connects past the rule on connecting",
        calls: &["sendto", "sendmmsg"],
        unless: Unless::Namespaces,
        all: &[has(3, MSG_FASTOPEN)],
    },
    Condition {
        why: "TCP Fast Open connects past the rule on connecting",
        calls: &["sendmsg"],
        unless: Unless::Namespaces,
        all: &[has(2, MSG_FASTOPEN)],
    },
    Condition {
        why: "Landlock does not rule modes, owners, attributes and times: the caller's other files have them, and the store's",
        calls: &[
            "chmod",
            "chown",
            "fchmod",
            "fchmodat",
            "fchmodat2",
            "fchown",
            "fchownat",
            "fremovexattr",
            "fsetxattr",
            "futimesat",
            "lchown",
            "lremovexattr",
            "lsetxattr",
            "removexattr",
            "setxattr",
            "utime",
            "utimensat",
            "utimes",
        ],
        unless: Unless::Namespaces,
        all: &[],
    },
    Condition {
        why: "Landlock rules ioctl on devices alone: flags of files, subvolumes and interfaces are the host's here. Terminals and \
              pipes have the type T",
        calls: &["ioctl"],
        unless: Unless::Namespaces,
        all: &[Test { argument: 1, mask: 0xFF00, among: false, values: &[0x5400] }],
    },
    Condition {
        why: "Landlock does not rule watching: names of the caller's other files would show",
        calls: &["inotify_add_watch"],
        unless: Unless::Namespaces,
        all: &[],
    },
    Condition {
        why: "the caller's other processes have the same uid: the scheduler of oneself alone",
        calls: &["sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"],
        unless: Unless::Namespaces,
        all: &[is_not(0, &[0])],
    },
    Condition {
        why: "the caller's other processes have the same uid: the priority of oneself alone",
        calls: &["setpriority", "ioprio_set"],
        unless: Unless::Namespaces,
        all: &[is_not(1, &[0])],
    },
    Condition {
        why: "who 0 means oneself for one process, and everybody for a user",
        calls: &["setpriority"],
        unless: Unless::Namespaces,
        all: &[is(0, &[PRIO_USER])],
    },
    Condition {
        why: "who 0 means oneself for one process, and everybody for a user",
        calls: &["ioprio_set"],
        unless: Unless::Namespaces,
        all: &[is(0, &[IOPRIO_WHO_USER])],
    },
    Condition {
        why: "without a scope the caller's other processes can be signalled: its own group alone",
        calls: &["kill"],
        unless: Unless::NamespacesOrScope,
        all: &[is_not(0, &[0])],
    },
    Condition {
        why: "without a scope the owner of a descriptor can be any process of the caller's, to whom the kernel sends a signal of \
              the server's choice",
        calls: &["fcntl"],
        unless: Unless::NamespacesOrScope,
        all: &[is(1, &[F_SETOWN, F_SETOWN_EX])],
    },
    Condition {
        why: "without a scope the caller's other processes can be signalled",
        calls: &["pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tgkill", "tkill"],
        unless: Unless::NamespacesOrScope,
        all: &[],
    },
];

/// What a server may do.
pub const ALLOWED: &[Group] = &[
    Group {
        why: "read and write what is open",
        calls: &[
            ("copy_file_range", 326, 285),
            ("fadvise64", 221, 223),
            ("lseek", 8, 62),
            ("pread64", 17, 67),
            ("preadv", 295, 69),
            ("preadv2", 327, 286),
            ("pwrite64", 18, 68),
            ("pwritev", 296, 70),
            ("pwritev2", 328, 287),
            ("read", 0, 63),
            ("readahead", 187, 213),
            ("readv", 19, 65),
            ("sendfile", 40, 71),
            ("splice", 275, 76),
            ("tee", 276, 77),
            ("vmsplice", 278, 75),
            ("write", 1, 64),
            ("writev", 20, 66),
        ],
    },
    Group {
        why: "descriptors: close, copy, lock, make pipes",
        calls: &[
            ("close", 3, 57),
            ("close_range", 436, 436),
            ("dup", 32, 23),
            ("dup2", 33, NONE),
            ("dup3", 292, 24),
            ("fcntl", 72, 25),
            ("flock", 73, 32),
            ("pipe", 22, NONE),
            ("pipe2", 293, 59),
        ],
    },
    Group { why: "ask devices and terminals; see CONDITIONS for what injects input", calls: &[("ioctl", 16, 29)] },
    Group {
        why: "lengths of files, and to bring them to disk",
        calls: &[
            ("fallocate", 285, 47),
            ("fdatasync", 75, 83),
            ("fsync", 74, 82),
            ("ftruncate", 77, 46),
            ("sync", 162, 81),
            ("sync_file_range", 277, 84),
            ("syncfs", 306, 267),
            ("truncate", 76, 45),
        ],
    },
    Group {
        why: "open files; Landlock and the mounts decide which",
        calls: &[("creat", 85, NONE), ("open", 2, NONE), ("openat", 257, 56)],
    },
    Group {
        why: "look at files and directories",
        calls: &[
            ("access", 21, NONE),
            ("faccessat", 269, 48),
            ("faccessat2", 439, 439),
            ("fstat", 5, 80),
            ("fstatfs", 138, 44),
            ("getcwd", 79, 17),
            ("getdents", 78, NONE),
            ("getdents64", 217, 61),
            ("lstat", 6, NONE),
            ("newfstatat", 262, 79),
            ("readlink", 89, NONE),
            ("readlinkat", 267, 78),
            ("stat", 4, NONE),
            ("statfs", 137, 43),
            ("statx", 332, 291),
        ],
    },
    Group {
        why: "change directories and names where Landlock and the mounts allow it",
        calls: &[
            ("chdir", 80, 49),
            ("fchdir", 81, 50),
            ("link", 86, NONE),
            ("linkat", 265, 37),
            ("mkdir", 83, NONE),
            ("mkdirat", 258, 34),
            ("mknod", 133, NONE),
            ("mknodat", 259, 33),
            ("rename", 82, NONE),
            ("renameat", 264, 38),
            ("renameat2", 316, 276),
            ("rmdir", 84, NONE),
            ("symlink", 88, NONE),
            ("symlinkat", 266, 36),
            ("unlink", 87, NONE),
            ("unlinkat", 263, 35),
        ],
    },
    Group {
        why: "owner, mode, times and attributes of one's own files",
        calls: &[
            ("chmod", 90, NONE),
            ("chown", 92, NONE),
            ("fchmod", 91, 52),
            ("fchmodat", 268, 53),
            ("fchmodat2", 452, 452),
            ("fchown", 93, 55),
            ("fchownat", 260, 54),
            ("fgetxattr", 193, 10),
            ("flistxattr", 196, 13),
            ("fremovexattr", 199, 16),
            ("fsetxattr", 190, 7),
            ("futimesat", 261, NONE),
            ("getxattr", 191, 8),
            ("lchown", 94, NONE),
            ("lgetxattr", 192, 9),
            ("listxattr", 194, 11),
            ("llistxattr", 195, 12),
            ("lremovexattr", 198, 15),
            ("lsetxattr", 189, 6),
            ("removexattr", 197, 14),
            ("setxattr", 188, 5),
            ("umask", 95, 166),
            ("utime", 132, NONE),
            ("utimensat", 280, 88),
            ("utimes", 235, NONE),
        ],
    },
    Group {
        why: "watch files for changes: servers that reload",
        calls: &[
            ("inotify_add_watch", 254, 27),
            ("inotify_init", 253, NONE),
            ("inotify_init1", 294, 26),
            ("inotify_rm_watch", 255, 28),
        ],
    },
    Group {
        why: "memory of the process itself",
        calls: &[
            ("brk", 12, 214),
            ("madvise", 28, 233),
            ("map_shadow_stack", 453, 453),
            ("membarrier", 324, 283),
            ("mincore", 27, 232),
            ("mlock", 149, 228),
            ("mlock2", 325, 284),
            ("mlockall", 151, 230),
            ("mmap", 9, 222),
            ("mprotect", 10, 226),
            ("mremap", 25, 216),
            ("mseal", 462, 462),
            ("msync", 26, 227),
            ("munlock", 150, 229),
            ("munlockall", 152, 231),
            ("munmap", 11, 215),
            ("pkey_alloc", 330, 289),
            ("pkey_free", 331, 290),
            ("pkey_mprotect", 329, 288),
        ],
    },
    Group { why: "memory as a file; see CONDITIONS for what could be executed", calls: &[("memfd_create", 319, 279)] },
    Group {
        why: "threads and processes; see CONDITIONS for namespaces",
        calls: &[
            ("clone", 56, 220),
            ("execve", 59, 221),
            ("execveat", 322, 281),
            ("exit", 60, 93),
            ("exit_group", 231, 94),
            ("fork", 57, NONE),
            ("getpid", 39, 172),
            ("getppid", 110, 173),
            ("gettid", 186, 178),
            ("restart_syscall", 219, 128),
            ("set_tid_address", 218, 96),
            ("vfork", 58, NONE),
            ("wait4", 61, 260),
            ("waitid", 247, 95),
        ],
    },
    Group {
        why: "groups and sessions of processes",
        calls: &[
            ("getpgid", 121, 155),
            ("getpgrp", 111, NONE),
            ("getsid", 124, 156),
            ("setpgid", 109, 154),
            ("setsid", 112, 157),
        ],
    },
    Group {
        why: "locks between threads",
        calls: &[
            ("futex", 202, 98),
            ("futex_waitv", 449, 449),
            ("get_robust_list", 274, 100),
            ("rseq", 334, 293),
            ("set_robust_list", 273, 99),
        ],
    },
    Group {
        why: "the thread's registers and its attributes",
        calls: &[
            ("arch_prctl", 158, NONE),
            ("get_thread_area", 211, NONE),
            ("prctl", 157, 167),
            ("set_thread_area", 205, NONE),
        ],
    },
    Group { why: "ABI of the process: reading it; see CONDITIONS", calls: &[("personality", 135, 92)] },
    Group {
        why: "confine oneself further: sandboxes of browsers and the like",
        calls: &[
            ("landlock_add_rule", 445, 445),
            ("landlock_create_ruleset", 444, 444),
            ("landlock_restrict_self", 446, 446),
            ("seccomp", 317, 277),
        ],
    },
    Group {
        why: "the scheduler, for processes of the cage",
        calls: &[
            ("getcpu", 309, 168),
            ("getpriority", 140, 141),
            ("ioprio_get", 252, 31),
            ("ioprio_set", 251, 30),
            ("sched_get_priority_max", 146, 125),
            ("sched_get_priority_min", 147, 126),
            ("sched_getaffinity", 204, 123),
            ("sched_getattr", 315, 275),
            ("sched_getparam", 143, 121),
            ("sched_getscheduler", 145, 120),
            ("sched_rr_get_interval", 148, 127),
            ("sched_setaffinity", 203, 122),
            ("sched_setattr", 314, 274),
            ("sched_setparam", 142, 118),
            ("sched_setscheduler", 144, 119),
            ("sched_yield", 24, 124),
            ("setpriority", 141, 140),
        ],
    },
    Group {
        why: "limits and what was used; hard limits can only be lowered",
        calls: &[
            ("getrlimit", 97, 163),
            ("getrusage", 98, 165),
            ("prlimit64", 302, 261),
            ("setrlimit", 160, 164),
            ("sysinfo", 99, 179),
            ("times", 100, 153),
            ("uname", 63, 160),
        ],
    },
    Group {
        why: "signals; the PID namespace bounds whom they reach",
        calls: &[
            ("kill", 62, 129),
            ("pause", 34, NONE),
            ("pidfd_open", 434, 434),
            ("pidfd_send_signal", 424, 424),
            ("rt_sigaction", 13, 134),
            ("rt_sigpending", 127, 136),
            ("rt_sigprocmask", 14, 135),
            ("rt_sigqueueinfo", 129, 138),
            ("rt_sigreturn", 15, 139),
            ("rt_sigsuspend", 130, 133),
            ("rt_sigtimedwait", 128, 137),
            ("rt_tgsigqueueinfo", 297, 240),
            ("sigaltstack", 131, 132),
            ("signalfd", 282, NONE),
            ("signalfd4", 289, 74),
            ("tgkill", 234, 131),
            ("tkill", 200, 130),
        ],
    },
    Group {
        why: "reading clocks, waiting, timers",
        calls: &[
            ("alarm", 37, NONE),
            ("clock_getres", 229, 114),
            ("clock_gettime", 228, 113),
            ("clock_nanosleep", 230, 115),
            ("getitimer", 36, 102),
            ("gettimeofday", 96, 169),
            ("nanosleep", 35, 101),
            ("setitimer", 38, 103),
            ("time", 201, NONE),
            ("timer_create", 222, 107),
            ("timer_delete", 226, 111),
            ("timer_getoverrun", 225, 109),
            ("timer_gettime", 224, 108),
            ("timer_settime", 223, 110),
            ("timerfd_create", 283, 85),
            ("timerfd_gettime", 287, 87),
            ("timerfd_settime", 286, 86),
        ],
    },
    Group {
        why: "waiting for many descriptors",
        calls: &[
            ("epoll_create", 213, NONE),
            ("epoll_create1", 291, 20),
            ("epoll_ctl", 233, 21),
            ("epoll_pwait", 281, 22),
            ("epoll_pwait2", 441, 441),
            ("epoll_wait", 232, NONE),
            ("eventfd", 284, NONE),
            ("eventfd2", 290, 19),
            ("poll", 7, NONE),
            ("ppoll", 271, 73),
            ("pselect6", 270, 72),
            ("select", 23, NONE),
        ],
    },
    Group {
        why: "sockets; see CONDITIONS for the families, the network namespace bounds whom they reach",
        calls: &[
            ("accept", 43, 202),
            ("accept4", 288, 242),
            ("bind", 49, 200),
            ("connect", 42, 203),
            ("getpeername", 52, 205),
            ("getsockname", 51, 204),
            ("getsockopt", 55, 209),
            ("listen", 50, 201),
            ("recvfrom", 45, 207),
            ("recvmmsg", 299, 243),
            ("recvmsg", 47, 212),
            ("sendmmsg", 307, 269),
            ("sendmsg", 46, 211),
            ("sendto", 44, 206),
            ("setsockopt", 54, 208),
            ("shutdown", 48, 210),
            ("socket", 41, 198),
            ("socketpair", 53, 199),
        ],
    },
    Group {
        why: "who one is; without capabilities there is nobody else to become",
        calls: &[
            ("capget", 125, 90),
            ("capset", 126, 91),
            ("getegid", 108, 177),
            ("geteuid", 107, 175),
            ("getgid", 104, 176),
            ("getgroups", 115, 158),
            ("getresgid", 120, 150),
            ("getresuid", 118, 148),
            ("getuid", 102, 174),
            ("setfsgid", 123, 152),
            ("setfsuid", 122, 151),
            ("setgid", 106, 144),
            ("setgroups", 116, 159),
            ("setregid", 114, 143),
            ("setresgid", 119, 149),
            ("setresuid", 117, 147),
            ("setreuid", 113, 145),
            ("setuid", 105, 146),
        ],
    },
    Group { why: "random bytes", calls: &[("getrandom", 318, 278)] },
];

/// What is refused with `EPERM`, as a kernel does that knows the call and does not allow it.
pub const REFUSED: &[Group] = &[
    Group {
        why: "look into or steer another process",
        calls: &[
            ("kcmp", 312, 272),
            ("pidfd_getfd", 438, 438),
            ("process_madvise", 440, 440),
            ("process_vm_readv", 310, 270),
            ("process_vm_writev", 311, 271),
            ("ptrace", 101, 117),
        ],
    },
    Group {
        why: "mounts and roots: what the cage is made of",
        calls: &[
            ("chroot", 161, 51),
            ("fsconfig", 431, 431),
            ("fsmount", 432, 432),
            ("fsopen", 430, 430),
            ("fspick", 433, 433),
            ("mount", 165, 40),
            ("mount_setattr", 442, 442),
            ("move_mount", 429, 429),
            ("open_tree", 428, 428),
            ("open_tree_attr", 467, 467),
            ("pivot_root", 155, 41),
            ("umount2", 166, 39),
        ],
    },
    Group {
        why: "namespaces: a new one brings capabilities and the kernel behind them",
        calls: &[("setns", 308, 268), ("unshare", 272, 97)],
    },
    Group {
        why: "code in the kernel",
        calls: &[
            ("bpf", 321, 280),
            ("create_module", 174, NONE),
            ("delete_module", 176, 106),
            ("finit_module", 313, 273),
            ("init_module", 175, 105),
            ("kexec_file_load", 320, 294),
            ("kexec_load", 246, 104),
        ],
    },
    Group {
        why: "keys: the kernel's keyrings know no namespaces",
        calls: &[("add_key", 248, 217), ("keyctl", 250, 219), ("request_key", 249, 218)],
    },
    Group {
        why: "page faults that user space answers: what exploits of races are made with",
        calls: &[("userfaultfd", 323, 282)],
    },
    Group { why: "counters of the CPU and the kernel", calls: &[("perf_event_open", 298, 241)] },
    Group {
        why: "files by handle, past every path and mount (CVE-2014-3519)",
        calls: &[("open_by_handle_at", 304, 265)],
    },
    Group { why: "events of whole file systems", calls: &[("fanotify_init", 300, 262), ("fanotify_mark", 301, 263)] },
    Group {
        why: "the machine: power, swap, quotas, accounts, log, name, ports, segments",
        calls: &[
            ("_sysctl", 156, NONE),
            ("acct", 163, 89),
            ("ioperm", 173, NONE),
            ("iopl", 172, NONE),
            ("modify_ldt", 154, NONE),
            ("nfsservctl", 180, 42),
            ("quotactl", 179, 60),
            ("quotactl_fd", 443, 443),
            ("reboot", 169, 142),
            ("setdomainname", 171, 162),
            ("sethostname", 170, 161),
            ("swapoff", 168, 225),
            ("swapon", 167, 224),
            ("syslog", 103, 116),
            ("uselib", 134, NONE),
            ("vhangup", 153, 58),
        ],
    },
    Group {
        why: "the clock of the machine",
        calls: &[
            ("adjtimex", 159, 171),
            ("clock_adjtime", 305, 266),
            ("clock_settime", 227, 112),
            ("settimeofday", 164, 170),
        ],
    },
];
