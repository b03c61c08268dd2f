//! What `features` says of this runtime.

use super::syscalls::Architecture;

/// Options of mounts that do not go to the file system.
pub const MOUNT_OPTIONS: [&str; 48] = [
    "async",
    "atime",
    "bind",
    "defaults",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "idmap",
    "mand",
    "noatime",
    "nodev",
    "nodiratime",
    "noexec",
    "nomand",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "private",
    "ratime",
    "rbind",
    "rdev",
    "rdiratime",
    "relatime",
    "remount",
    "rexec",
    "ridmap",
    "rnoatime",
    "rnodev",
    "rnodiratime",
    "rnoexec",
    "rnosuid",
    "ro",
    "rprivate",
    "rrelatime",
    "rro",
    "rrw",
    "rshared",
    "rslave",
    "rstrictatime",
    "runbindable",
    "rw",
    "shared",
    "slave",
    "strictatime",
    "suid",
    "sync",
    "unbindable",
];

/// Actions of filters.
pub const SECCOMP_ACTIONS: [&str; 8] = [
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_ERRNO",
    "SCMP_ACT_KILL",
    "SCMP_ACT_KILL_PROCESS",
    "SCMP_ACT_KILL_THREAD",
    "SCMP_ACT_LOG",
    "SCMP_ACT_TRACE",
    "SCMP_ACT_TRAP",
];

/// Comparisons of filters.
pub const SECCOMP_OPERATORS: [&str; 7] =
    ["SCMP_CMP_EQ", "SCMP_CMP_GE", "SCMP_CMP_GT", "SCMP_CMP_LE", "SCMP_CMP_LT", "SCMP_CMP_MASKED_EQ", "SCMP_CMP_NE"];

/// Flags of filters.
pub const SECCOMP_FLAGS: [&str; 3] =
    ["SECCOMP_FILTER_FLAG_LOG", "SECCOMP_FILTER_FLAG_SPEC_ALLOW", "SECCOMP_FILTER_FLAG_TSYNC"];

/// Architectures of filters on this machine.
pub fn seccomp_architectures() -> &'static [&'static str] {
    match Architecture::THIS {
        Architecture::Aarch64 | Architecture::Arm => &["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
        _ => &["SCMP_ARCH_X32", "SCMP_ARCH_X86", "SCMP_ARCH_X86_64"],
    }
}
