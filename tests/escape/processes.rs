//! Other processes: the user's on the host, and the one that keeps the server.

use super::Attempt;

const IDS: &str = "ids of processes are the host's, and to hold one gives nothing: signals are kept within";

const SIGNALS: &str = "PID 1 has the same uid; it passes signals on to the server, and the kernel drops SIGKILL for it";

pub const ATTEMPTS: &[Attempt] = &[
    // Seeing.
    Attempt::new("seeing-a-process", "see {mark}"),
    Attempt::new("finding-a-command-line", "find-in-command-lines {mark}"),
    Attempt::new("finding-an-environment", "find-in-environments {secret}"),
    Attempt::new("reading-an-environment", "read /proc/{pid}/environ"),
    Attempt::new("reading-a-map-of-memory", "read /proc/{pid}/maps"),
    Attempt::new("opening-memory", "open-memory /proc/{pid}/mem"),
    Attempt::new("listing-descriptors", "list /proc/{pid}/fd"),
    Attempt::new("reading-what-a-descriptor-leads-to", "readlink /proc/{pid}/fd/0"),
    Attempt::new("seeing-where-it-is", "readlink /proc/{pid}/cwd"),
    Attempt::new("seeing-what-it-runs", "readlink /proc/{pid}/exe"),
    Attempt::new("seeing-what-it-waits-for", "read /proc/{pid}/syscall"),
    Attempt::new("opening-a-process", "sys pidfd_open {pid} 0").weaker_at_tier_1(IDS),
    Attempt::new("the-callers-environment", "holds /proc/@self/environ {secret}"),
    // Reaching.
    Attempt::new("signalling", "signal {pid} 0"),
    Attempt::new("killing", "signal {pid} 28"),
    Attempt::new("signalling-a-thread", "sys tgkill {pid} {pid} 0"),
    Attempt::new("signalling-a-task", "sys tkill {pid} 0"),
    Attempt::new("queueing-a-signal", "sys rt_sigqueueinfo {pid} 28 w:28,0x00000000ffffffff"),
    Attempt::new("signalling-a-descriptor", "sys pidfd_send_signal pidfd:{pid} 0 0 0"),
    Attempt::new("tracing", "ptrace {pid}"),
    Attempt::new("reading-memory", "sys process_vm_readv {pid} vector 1 vector 1 0").passes(),
    Attempt::new("writing-memory", "sys process_vm_writev {pid} vector 1 vector 1 0").passes(),
    Attempt::new("taking-a-descriptor", "sys pidfd_getfd pidfd:{pid} 0 0"),
    Attempt::new("comparing-descriptors", "sys kcmp {pid} {pid} 0 0 0"),
    Attempt::root("advising-memory", "sys process_madvise pidfd:{pid} vector 1 21 0").passes(),
    Attempt::new("reading-limits", "sys prlimit64 {pid} 7 0 zero"),
    Attempt::new("finding-a-robust-list", "sys get_robust_list {pid} zero zero"),
    Attempt::new("moving-pages", "sys move_pages {pid} 0 zero 0 zero 0"),
    Attempt::new("setting-a-priority", "sys setpriority 0 {pid} 0"),
    Attempt::new("setting-an-io-priority", "sys ioprio_set 1 {pid} 0"),
    Attempt::new("setting-a-scheduler", "sys sched_setscheduler {pid} 0 zero"),
    Attempt::new("setting-an-affinity", "sys sched_setaffinity {pid} 8 w:-1"),
    Attempt::new("choosing-whom-memory-ends", "open-to-write /proc/{pid}/oom_score_adj"),
    // The process that keeps the server.
    Attempt::new("the-keepers-command-line", "holds /proc/{keeper}/cmdline smcp-tests"),
    Attempt::new("the-keepers-vector", "holds-any /proc/{keeper}/auxv"),
    Attempt::new("the-keepers-parts-of-memory", "read /proc/{keeper}/smaps"),
    Attempt::new("the-keepers-mapped-files", "list /proc/{keeper}/map_files"),
    Attempt::new("the-keepers-mounts", "holds /proc/{keeper}/mountinfo sysfs"),
    Attempt::new("the-keepers-timers", "open /proc/{keeper}/timers"),
    Attempt::new("the-keepers-name", "open-to-write /proc/{keeper}/comm"),
    Attempt::new("the-keepers-environment", "read /proc/{keeper}/environ"),
    Attempt::new("the-keepers-map", "read /proc/{keeper}/maps"),
    Attempt::new("the-keepers-memory", "open-memory /proc/{keeper}/mem"),
    Attempt::new("the-keepers-descriptors", "list /proc/{keeper}/fd")
        .weaker_as_root("their numbers alone: the directory is root's, and nothing in it can be read or opened"),
    Attempt::root("the-keepers-descriptor-opened", "open /proc/{keeper}/fd/1"),
    Attempt::new("the-keepers-root", "list /proc/{keeper}/root/"),
    Attempt::new("the-keepers-stack", "read /proc/{keeper}/syscall"),
    Attempt::new("tracing-the-keeper", "ptrace {keeper}"),
    Attempt::new("signalling-the-keeper", "signal {keeper} 0").weaker_without_landlock(SIGNALS),
    Attempt::new("signalling-the-keeper-by-descriptor", "sys pidfd_send_signal pidfd:{keeper} 0 0 0")
        .weaker_without_landlock(SIGNALS),
    Attempt::new("signalling-the-keepers-thread", "sys tgkill {keeper} {keeper} 0").weaker_without_landlock(SIGNALS),
    Attempt::new("taking-the-keepers-descriptor", "sys pidfd_getfd pidfd:{keeper} 0 0"),
    Attempt::new("reading-the-keepers-memory", "sys process_vm_readv {keeper} vector 1 vector 1 0").passes(),
    Attempt::new("raising-the-keepers-limits", "sys prlimit64 {keeper} 7 0 zero"),
    Attempt::new("the-keepers-robust-list", "sys get_robust_list {keeper} zero zero"),
    Attempt::new("the-keepers-fate", "open-to-write /proc/{keeper}/oom_score_adj"),
    Attempt::new("the-keepers-namespace", "open /proc/{keeper}/ns/mnt"),
    Attempt::new("the-keepers-priority", "sys setpriority 0 {keeper} 0")
        .but_works_in_namespaces("the kernel lets equals change it: it slows its own end, not the host"),
];
