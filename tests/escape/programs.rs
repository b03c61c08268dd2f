//! Programs that are not its own, powers, and loosening what holds it.

use super::Attempt;
use super::Grants::{Programs, Reading, Writing};

const IS_ROOT: &str = "it has these ids already, and no capability with them";

const READ_ONLY: &str = "a read-only grant is not noexec: there may be the programs that are granted";

pub const ATTEMPTS: &[Attempt] = &[
    Attempt::new("a-program-of-the-host", "exec /bin/true"),
    Attempt::new("a-program-in-a-grant", "exec {project}/tool exit 0").with(Writing),
    Attempt::new("a-program-in-a-grant-for-reading", "exec {project}/tool exit 0")
        .weaker_without_landlock(READ_ONLY)
        .with(Reading),
    Attempt::new("a-program-outside-the-grants", "exec {private}/tool exit 0").with(Programs),
    Attempt::new("a-program-through-a-link", "exec {project}/escape/tool exit 0").with(Programs),
    Attempt::new("a-program-through-its-root", "exec /proc/self/root{project}/tool exit 0").with(Writing),
    Attempt::new("a-program-by-descriptor", "exec-descriptor {project}/tool exit 0").with(Writing),
    Attempt::new("a-program-by-execveat", "exec-at {project}/tool exit 0").with(Writing),
    Attempt::new("a-program-by-execveat-for-reading", "exec-at {project}/tool exit 0")
        .weaker_without_landlock(READ_ONLY)
        .with(Reading),
    Attempt::new("a-program-in-memory", "exec-memory 0 exit 0"),
    Attempt::new("a-program-in-executable-memory", "exec-memory 16 exit 0").where_there_is(),
    Attempt::new("a-program-that-it-wrote", "exec-copy {project}/made remove {project}/made").with(Writing),
    Attempt::new("mapping-what-it-wrote", "map-to-execute {project}/tool")
        .with(Writing)
        .weaker_at_tier_1("no mount is noexec: its own process runs what it wrote, under the same rules"),
    Attempt::new("smcp-itself", "exec {smcp} --version"),
    Attempt::root("a-format-of-programs", "open-to-write /proc/sys/fs/binfmt_misc/register").where_there_is(),
    // Powers.
    Attempt::root("becoming-root", "sys setresuid 0 0 0").weaker_as_root_anywhere(IS_ROOT),
    Attempt::root("becoming-roots-group", "sys setresgid 0 0 0").weaker_as_root_anywhere(IS_ROOT),
    Attempt::root("joining-groups", "sys setgroups 1 w:0"),
    Attempt::root("raising-a-capability", "raise-capabilities"),
    Attempt::root("dropping-the-bounds", "sys prctl 24 12 0 0 0"),
    Attempt::root("bits-that-make-root", "sys prctl 28 0x2f 0 0 0"),
    Attempt::root("another-map-of-its-memory", "sys prctl 35 7 0 0 0").where_there_is(),
    Attempt::root("a-real-time-scheduler", "sys sched_setscheduler 0 1 w:1").where_there_is(),
    Attempt::root("a-high-priority", "sys setpriority 0 0 -5"),
    Attempt::root("a-real-time-io-priority", "sys ioprio_set 1 0 0x2000"),
    // Limits.
    Attempt::root("more-descriptors", "sys prlimit64 0 7 w:1000000,1000000 0").where_there_is(),
    Attempt::root("more-processes", "sys prlimit64 0 6 w:-1,-1 0").where_there_is(),
    Attempt::root("cores", "sys prlimit64 0 4 w:-1,-1 0"),
    Attempt::root("more-memory", "sys prlimit64 0 2 w:-1,-1 0"),
    Attempt::new("using-up-the-callers-signals", "queue-signals 5000"),
    // Loosening.
    Attempt::new("another-filter", "loosen-seccomp"),
    Attempt::new("another-domain", "loosen-landlock /proc/@self/comm"),
];
