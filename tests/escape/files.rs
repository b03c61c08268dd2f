//! Files that were not granted, by every way to a file; and more than was granted.

use super::Attempt;
use super::Grants::{Denying, Reading, Writing};

const NO_HOOK: &str = "Landlock decides on opening and changing directories, not on asking for what stands in an inode";

pub const ATTEMPTS: &[Attempt] = &[
    // Reading.
    Attempt::new("the-ssh-key", "read {home}/.ssh/id"),
    Attempt::new("the-ssh-key-beside-a-grant", "read {home}/.ssh/id").with(Writing),
    Attempt::new("a-private-file", "read {private}/secret"),
    Attempt::new("a-private-directory", "list {private}"),
    Attempt::new("the-hosts-logs", "list /var/log"),
    Attempt::root("the-hosts-passwords", "read /etc/shadow"),
    Attempt::new("the-hosts-accounts", "holds /etc/passwd daemon:")
        .weaker_at_tier_1("every program reads names of accounts there"),
    Attempt::new("through-dots", "read {project}/../private/secret").with(Writing),
    Attempt::root("through-many-dots", "read {project}/../../../../../../../../etc/shadow").with(Writing),
    Attempt::new("through-a-planted-link", "read {project}/link").with(Writing),
    Attempt::new("through-a-planted-link-to-a-directory", "read {project}/escape/secret").with(Reading),
    Attempt::new("through-a-link-of-its-own", "read-by-link {project}/made {private}/secret").with(Writing),
    Attempt::new("through-a-hard-link", "read-by-hard-link {project}/made {private}/secret").with(Writing),
    Attempt::new("through-a-directory-descriptor", "read-at {project} ../private/secret").with(Writing),
    Attempt::new("through-the-working-directory", "read-from {project} ../private/secret").with(Writing),
    Attempt::new("through-its-own-root", "read /proc/@self/root{private}/secret"),
    Attempt::new("through-its-own-working-directory", "read-from {project} /proc/@self/cwd/../../../{private}/secret")
        .with(Writing),
    Attempt::new("through-a-thread", "read /proc/thread-self/root{private}/secret"),
    Attempt::new("through-the-keepers-root", "read /proc/{keeper}/root{private}/secret"),
    Attempt::new("through-the-keepers-directory", "list /proc/{keeper}/cwd/"),
    Attempt::new("through-a-path-descriptor", "read-by-path-descriptor {private}/secret"),
    Attempt::root("through-a-handle", "read-by-handle {project}/file").with(Reading),
    Attempt::new("by-copying-in-the-kernel", "copy-range {private}/secret {project}/made").with(Writing),
    Attempt::new("by-mapping", "map-to-write {private}/file"),
    Attempt::new("by-moving-into-the-grant", "move {private}/secret {project}/made").with(Writing),
    Attempt::new("by-exchanging-with-the-grant", "exchange {private}/secret {project}/file").with(Writing),
    Attempt::new("the-hosts-shared-memory", "read {shm}"),
    // What stands in an inode.
    Attempt::new("whether-a-file-is-there", "stat {private}/secret").weaker_at_tier_1(NO_HOOK),
    Attempt::new("where-a-link-leads", "readlink {private}/link").weaker_at_tier_1(NO_HOOK),
    Attempt::new("an-attribute", "get-attribute {private}/file").where_there_is().weaker_at_tier_1(NO_HOOK),
    Attempt::new("entering-a-directory", "sys chdir s:{private}").weaker_at_tier_1(NO_HOOK),
    Attempt::new("watching-a-directory", "watch {private}"),
    // Writing.
    Attempt::new("making-a-file", "make {private}/made"),
    Attempt::new("making-a-file-beside-a-grant", "make {project}/../private/made").with(Writing),
    Attempt::new("appending", "append {private}/file "),
    Attempt::new("appending-through-a-link", "append {project}/escape/file ").with(Writing),
    Attempt::new("making-a-directory", "make-directory {private}/made"),
    Attempt::new("making-a-link", "make-link {private}/made"),
    Attempt::new("making-a-socket", "make-socket {private}/made"),
    Attempt::new("making-an-unnamed-file", "make-unnamed {private}"),
    Attempt::new("renaming", "move {private}/file {private}/made"),
    Attempt::new("truncating", "truncate {private}/file"),
    Attempt::new("changing-a-mode", "change-mode {private}/file"),
    Attempt::new("changing-times", "touch {private}/file"),
    Attempt::new("setting-an-attribute", "set-attribute {private}/file").where_there_is(),
    Attempt::new("changing-an-owner", "sys fchownat -100 s:{private}/file -1 -1 0"),
    Attempt::new("leaving-a-file-in-home", "make {home}/made")
        .but_works_in_namespaces("HOME inside is a private directory"),
    // More than reading in what may be read.
    Attempt::new("writing-what-may-be-read", "append {project}/file ").with(Reading),
    Attempt::new("making-where-may-be-read", "make {project}/made").with(Reading),
    Attempt::new("making-a-directory-where-may-be-read", "make-directory {project}/made").with(Reading),
    Attempt::new("renaming-where-may-be-read", "move {project}/file {project}/made").with(Reading),
    Attempt::new("truncating-what-may-be-read", "truncate {project}/file").with(Reading),
    Attempt::new("changing-a-mode-where-may-be-read", "change-mode {project}/file").with(Reading),
    Attempt::new("changing-times-where-may-be-read", "touch {project}/file").with(Reading),
    Attempt::new("setting-an-attribute-where-may-be-read", "set-attribute {project}/file")
        .with(Reading)
        .where_there_is(),
    Attempt::new("setting-flags-where-may-be-read", "set-flags {project}/file").with(Reading).where_there_is(),
    Attempt::new("mapping-to-write-what-may-be-read", "map-to-write {project}/file").with(Reading),
    Attempt::new("reopening-to-write-what-may-be-read", "reopen-to-write {project}/file").with(Reading),
    Attempt::new("reopening-a-path-to-write-what-may-be-read", "reopen-path-to-write {project}/file").with(Reading),
    Attempt::new("an-unnamed-file-where-may-be-read", "make-unnamed {project}").with(Reading),
    Attempt::root("an-immutable-file-in-a-grant", "make-immutable {project}/file").with(Writing).where_there_is(),
    Attempt::root("a-device-in-a-grant", "make-device {project}/made").with(Writing),
    Attempt::root("a-device-in-tmp", "make-device /tmp/{mark}"),
    // What is denied in a grant.
    Attempt::new("a-denied-directory", "list {project}/directory").with(Denying),
    Attempt::new("a-file-in-a-denied-directory", "read {project}/directory/secret").with(Denying),
    Attempt::new("whether-a-denied-file-is-there", "stat {project}/directory/secret").with(Denying),
    Attempt::new("a-denied-directory-through-dots", "read {project}/directory/../directory/secret").with(Denying),
    Attempt::new("a-denied-directory-through-a-link", "read-by-link {project}/made {project}/directory/secret")
        .with(Denying),
    Attempt::new("a-denied-directory-by-a-hard-link", "read-by-hard-link {project}/made {project}/directory/secret")
        .with(Denying),
    Attempt::new("a-denied-directory-by-a-descriptor", "read-at {project} directory/secret").with(Denying),
    Attempt::new("a-denied-directory-as-working-directory", "read-from {project}/directory secret").with(Denying),
    Attempt::new("a-denied-directory-through-its-root", "read /proc/@self/root{project}/directory/secret")
        .with(Denying),
    Attempt::new("making-in-a-denied-directory", "make {project}/directory/made").with(Denying),
    Attempt::new("moving-a-denied-directory", "move {project}/directory {project}/moved").with(Denying),
    Attempt::new("exchanging-a-denied-directory", "exchange {project}/directory {project}/beside").with(Denying),
    Attempt::new("moving-out-of-a-denied-directory", "move {project}/directory/secret {project}/made").with(Denying),
    Attempt::new("opening-a-denied-directory-to-all", "change-mode {project}/directory").with(Denying),
    Attempt::root("uncovering-a-denied-directory", "sys umount2 s:{project}/directory 8").with(Denying).passes(),
    // smcp's own.
    Attempt::new("reading-the-audit-log", "read {log}/audit.log"),
    Attempt::new("appending-to-the-audit-log", "append {log}/audit.log "),
    Attempt::new("truncating-the-audit-log", "truncate {log}/audit.log"),
    Attempt::new("moving-the-audit-log", "move {log}/audit.log {log}/made"),
    Attempt::new("the-audit-log-beside-a-grant", "append {project}/../log/audit.log ").with(Writing),
    Attempt::new("the-audit-log-through-its-root", "append /proc/@self/root{log}/audit.log "),
    Attempt::new("the-audit-log-through-the-keepers-root", "append /proc/{keeper}/root{log}/audit.log "),
    Attempt::new("linking-the-audit-log-into-a-grant", "read-by-hard-link {project}/made {log}/audit.log")
        .with(Writing),
    Attempt::new("listing-the-heads-of-the-audit-log", "list {state}/audit"),
    Attempt::new("a-false-head-of-the-audit-log", "make {state}/audit/made"),
    Attempt::new("listing-the-runs", "list {state}/runs"),
    Attempt::new("a-run-that-never-was", "make {state}/runs/made"),
    Attempt::new("the-state-of-other-servers", "list {state}/servers"),
    Attempt::new("state-for-another-server", "make-directory {state}/servers/made"),
    Attempt::new("listing-the-store", "list {store}"),
    Attempt::new("reading-the-stores-index", "read {store}/index.json"),
    Attempt::new("changing-the-stores-index", "append {store}/index.json "),
    Attempt::new("adding-a-blob-to-the-store", "make {store}/blobs/sha256/made"),
    Attempt::new("moving-the-stores-layers", "move {store}/layers {store}/made"),
    Attempt::new("changing-what-names-stand-for", "make-directory {store}/refs/made"),
    // Busy (ETXTBSY) for who may write it.
    Attempt::root("writing-smcp", "open-to-write {smcp}").passes(),
    Attempt::root("changing-its-own-program", "change-mode {own}"),
    Attempt::root("changing-itself", "change-mode /proc/self/exe"),
    Attempt::root("moving-its-own-program", "move {own} {own}-moved"),
    Attempt::new("reading-the-keepers-program", "open /proc/{keeper}/exe"),
];
