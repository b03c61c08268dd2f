//! What people who run servers have met, as tests: each is named by the number of its row, L for the life of a run, E for
//! its environment, K for what the kernel offers, A for how a package gets here,
//! N for the network, S for standard input and output, T for trust, U for hostile archives. [`ROWS`] says what each row means at each tier.

mod acquire;
mod audit;
mod cgroups;
mod environment;
mod kernel;
mod lifecycle;
mod limits;
mod network;
mod pulls;
mod secrets;
mod stdio;
mod streams;
mod trust;
mod unpack;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// A row, in the words of few.
struct Row {
    number: &'static str,
    what: &'static str,
    /// With namespaces: what the tests try.
    tiers_2_and_3: Meaning,
    /// Without them.
    tier_1: Meaning,
}

/// What becomes of a row.
enum Meaning {
    /// All of it holds.
    Holds,
    /// It holds but for this.
    Weaker(&'static str),
    /// What it asks for is refused, for this reason.
    Refused(&'static str),
}

use Meaning::{Holds, Refused, Weaker};

const fn row(number: &'static str, what: &'static str, tiers_2_and_3: Meaning, tier_1: Meaning) -> Row {
    Row { number, what, tiers_2_and_3, tier_1 }
}

/// Every row that has tests.
const ROWS: &[Row] = &[
    row(
        "L1",
        "the client closes stdin, smcp gets SIGTERM or SIGKILL, the client is killed: nothing is left",
        Weaker(
            "a killed smcp leaves an empty cgroup, as root, and the file that its run is under way; the next start removes both",
        ),
        Weaker("a killed smcp leaves the run's private directories as well; the next start removes them"),
    ),
    row("L2", "a tree that ignores everything is killed as a whole, by the last step of the ladder", Holds, Holds),
    row("L3", "SIGTERM ends a server without handlers", Holds, Holds),
    row("L4", "500 orphans leave no zombie", Holds, Holds),
    row("L5", "200 starts in a row and 32 at once, from a program with threads", Holds, Holds),
    row("L6", "a server that ends by itself: its code at once, all of its bytes", Holds, Holds),
    row("L7", "a crash, a limit of memory, CPU time or time is named with its value", Holds, Holds),
    row(
        "L8",
        "a server that ends before it answers: the client is told why, with its last lines on stderr",
        Holds,
        Holds,
    ),
    row("L9", "an idle session stays up for the default of 24 hours", Holds, Holds),
    row("L10", "a server of the Python SDK stays up while stdin is open", Holds, Holds),
    row(
        "L11",
        "STOP, CONT, HUP, INT on a terminal, WINCH",
        Weaker("a stopped smcp passes nothing on; the server goes on until its pipes are full"),
        Weaker("the same"),
    ),
    row("L12", "SIGKILL in the middle, then a new run: what is stale is gone, and the log has an end", Holds, Holds),
    row("E1", "a variable of the caller that nobody declared is absent", Holds, Holds),
    row("E2", "a required variable that is missing is named before the start", Holds, Holds),
    row(
        "E3",
        "a secret is in no output, log, error, argument or audit entry, in whatever form the server prints it on stderr",
        Weaker("stdout is the protocol's, and passes untouched"),
        Weaker("the same"),
    ),
    row("E4", "values arrive as given", Holds, Holds),
    row("E5", "a manifest that asks for everything is refused", Holds, Holds),
    row(
        "E6",
        "a read-only root, a private HOME and `/tmp`; npx and uvx work where subprocesses are granted",
        Holds,
        Weaker(
            "HOME and TMPDIR are directories elsewhere, `/tmp` itself is closed; npx and uvx do not work, as modes of files cannot be changed",
        ),
    ),
    row("E7", "files in a grant belong to the caller, private ones can be read", Holds, Holds),
    row(
        "E8",
        "programs find out who their user is",
        Holds,
        Weaker("a user without an entry on the host has none inside"),
    ),
    row(
        "E9",
        "git trusts a granted repository",
        Holds,
        Weaker("git needs `GIT_CONFIG_NOSYSTEM=1`: the host's configuration is there and cannot be read"),
    ),
    row("E10", "a granted path is valid inside", Holds, Holds),
    row(
        "E11",
        "grants beneath `/tmp`, by links, beneath closed directories, of 200,000 files",
        Holds,
        Weaker("a directory of which one file is granted cannot be listed"),
    ),
    row(
        "E12",
        "a denied directory in a grant is unreadable for the whole run; a file, or nothing, is refused",
        Holds,
        Refused("Landlock takes nothing out of a grant"),
    ),
    row("E13", "devices behave as usual", Holds, Weaker("`/dev/shm` is closed, and no pseudo-terminal can be made")),
    row("E14", "descriptors 0, 1 and 2 alone are inherited", Holds, Holds),
    row("E15", "keys, passwords, other processes, smcp's own files are out of reach", Holds, Holds),
    row("E16", "what a server wrote is gone with the run, but for a state directory", Holds, Holds),
    row("E17", "limits have one grammar, and what is not of it is an error", Holds, Holds),
    row("K1", "user namespaces denied: the tier without them, or a refusal that names the setting", Holds, Holds),
    row("K2", "Landlock missing, and both missing: the tier is named, or the run refused", Holds, Holds),
    row("K3", "Landlock that refuses rights of the ABI it reports: stepped down and named", Holds, Holds),
    row(
        "K4",
        "the strongest cgroup that works, the rest by rlimits and the guard, and the log says which",
        Holds,
        Holds,
    ),
    row(
        "K5",
        "inside a container with a covered `/proc`, inside another smcp",
        Weaker("tier 1 in such a container"),
        Refused("inside another smcp, whose filter has no place for a call that unpacking needs"),
    ),
    row("K6", "unknown calls do not exist", Holds, Holds),
    row("K7", "dangerous calls are refused", Holds, Holds),
    row(
        "K8",
        "a fork bomb, 10 GB, 100,000 descriptors, eight busy threads, a full `/tmp`",
        Holds,
        Weaker("what fills TMPDIR fills the disk beneath the cache"),
    ),
    row("K9", "limits of memory without a cgroup, and programs that start under the defaults", Holds, Holds),
    row("K10", "as root the server is not root on the host", Holds, Holds),
    row("K11", "Landlock is probed by calls, not by a file that WSL2 lacks", Holds, Holds),
    row(
        "A1",
        "20 first runs at once download once; after a kill in the middle of a pull the next one is clean",
        Holds,
        Holds,
    ),
    row("A2", "what is in the store runs without a packet; a tag that cannot be looked up says so once", Holds, Holds),
    row("A3", "an empty environment: a package brings its runtime, or the missing interpreter is named", Holds, Holds),
    row(
        "A4",
        "Bearer, Basic, nothing, an expired token; docker's `auths`, `credsStore`, `credHelpers`, `REGISTRY_AUTH_FILE`, `smcp login`",
        Holds,
        Holds,
    ),
    row("A5", "credentials never leave for another host: by a reference, a redirect, a token service", Holds, Holds),
    row("A6", "429 with `Retry-After`, 500, a reset in the middle of a blob: waits, repeats, resumes", Holds, Holds),
    row("A7", "private authorities, proxies with credentials, `NO_PROXY`", Holds, Holds),
    row("A8", "a registry that lies is refused, and the store is as before", Holds, Holds),
    row("A9", "references have one meaning, or an error that points at the wrong part", Holds, Holds),
    row("A10", "removal leaves what runs, and what is shared", Holds, Holds),
    row("A11", "a full disk: a clear error, and the same command works when there is space", Holds, Holds),
    row("A12", "an index without this platform, or with two variants of it", Holds, Holds),
    row(
        "A13",
        "a bar on a terminal, lines in CI, else silence but for a client that waits: it is told before it gives up, and the download goes on",
        Holds,
        Holds,
    ),
    row(
        "N1",
        "twenty clients without proxy variables reach the allowed host and not the denied one, to which no packet goes",
        Holds,
        NAMES,
    ),
    row("N2", "ports are granted one by one; others are reset at once, and audited", Holds, NAMES),
    row("N3", "`*.SUFFIX` is what lies below it, and not itself", Holds, NAMES),
    row("N4", "a name that stands for an address of the machine or its networks leads nowhere", Holds, NAMES),
    row("N5", "`--allow-host-port` leads to that port of the host's loopback, and to nothing else of it", Holds, NAMES),
    row(
        "N6",
        "TLS with another name than the granted one is refused",
        Weaker("none is accepted, and what is granted by its address is not examined"),
        NAMES,
    ),
    row("N7", "the DNS is answered by smcp itself: it carries nothing out", Holds, Holds),
    row("N8", "relays, literals in any form, final dots, capitals, international names: no way around", Holds, NAMES),
    row("N9", "no datagram leaves; HTTPS records are empty", Holds, Holds),
    row("N10", "the host's `HTTPS_PROXY` is gone through, with TLS untouched", Holds, NAMES),
    row(
        "N11",
        "a server listens on loopback and connects to itself; pairs and private Unix sockets",
        Holds,
        Weaker("pairs of sockets alone"),
    ),
    row(
        "N12",
        "daemons' sockets, abstract sockets, services of the host's loopback are out of reach",
        Weaker("sockets in a granted directory are part of the grant"),
        Holds,
    ),
    row("N13", "the host's `resolv.conf` is a link, or absent", Holds, NAMES),
    row("N14", "1,000 connections at once, 5 GB, half-closed streams, resets, slow readers", Holds, NAMES),
    row(
        "N15",
        "no network declared: loopback alone, and up",
        Holds,
        Weaker("the host's interfaces show, and nothing of them is reached"),
    ),
    row(
        "N16",
        "a private authority in the host's `SSL_CERT_FILE` is trusted inside, where there is a network, by whatever variable",
        Holds,
        NAMES,
    ),
    row("T1", "a level is demanded: of a package that has it, that has less, that nobody certified", Holds, Holds),
    row("T2", "three modes; another word, a broken file, an unknown key or variable stops the run", Holds, Holds),
    row("T3", "a score below the threshold warns; none passes no least score", Holds, Holds),
    row("T4", "an organisation's policy is only tightened, and named by what it refuses", Holds, Holds),
    row("T5", "revoked and quarantined versions never run, deprecated ones warn", Holds, Holds),
    row("T6", "a version that asks for more stops with the difference until that is accepted", Holds, Holds),
    row(
        "T7",
        "other tools, prompts or resources than were accepted or certified are told of or blocked, with the difference, until they are accepted",
        Holds,
        Holds,
    ),
    row("T8", "the warning carries nothing unescaped that the package controls", Holds, Holds),
    row(
        "T9",
        "a line of the audit log that was changed, removed, added or cut off is found and named; runs at once, a rotation and a crash in a line are no such thing",
        Weaker("the same user can forge log and head together"),
        Weaker("the same"),
    ),
    row("T10", "nothing runs where the audit log cannot be written", Holds, Holds),
    row("T11", "every way that a run is refused, fails or ends leaves one begin and one end", Holds, Holds),
    row(
        "T12",
        "what other tools sign verifies without a network, and theirs verify ours; what was changed is refused",
        Holds,
        Holds,
    ),
    row("S1", "text on stdout that is no message: on stderr, marked and counted", Holds, Holds),
    row("S2", "a line of 20 MiB arrives as it is", Holds, Holds),
    row("S3", "1 GiB without a line end: bounded memory, exit 117", Holds, Holds),
    row("S4", "much on stderr, before the first answer and after it, holds up nothing", Holds, Holds),
    row(
        "S5",
        "the streams of the everything server, and of one of the newer era: sampling, elicitation, progress, cancellation, logging, blobs; the warning apart as they are",
        Holds,
        Holds,
    ),
    row("S6", "every byte of an answer outside of the inserted text is the server's", Holds, Holds),
    row(
        "S7",
        "an error first, a batch, requests of the server before its answer: the first answer that succeeds is warned of",
        Holds,
        Holds,
    ),
    row("S8", "ids of any kind are matched by their value", Holds, Holds),
    row(
        "S9",
        "CRLF, a last line without an end, invalid UTF-8, 10,000 levels pass; a byte order mark and empty lines are no message",
        Holds,
        Holds,
    ),
    row("S10", "messages cut anywhere, and many in one write", Holds, Holds),
    row(
        "S11",
        "a half-closed client gets the answers that are under way",
        Weaker("for 30 s at most; what was asked long before the end, of a session that is not read any more, for 2 s"),
        Weaker("the same"),
    ),
    row("S12", "a client that does not read holds the server up; nothing is lost", Holds, Holds),
    row("S13", "nobody is asked where stdin is no terminal", Holds, Holds),
    row("S14", "both eras, and a probe that falls back: each is warned by what it allows", Holds, Holds),
];

/// What becomes of names at tier 1.
const NAMES: Meaning =
    Refused("names need a network namespace; by `--net-by-port` ports alone are granted, to every host");

/// How many rows there are of each letter.
const NUMBERS: &[(&str, usize)] = &[("L", 12), ("E", 17), ("K", 11), ("A", 13), ("N", 16), ("S", 14), ("T", 12)];

#[test]
fn every_row_stands_once_in_the_table() {
    let mut rows: Vec<String> = ROWS.iter().map(|row| row.number.into()).collect();
    let all = NUMBERS.iter().flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}")));
    let mut all: Vec<String> = all.collect();
    rows.sort();
    all.sort();
    assert_eq!(rows, all);
}

/// The tests themselves say what there is: `PATH::l4_…: test`.
#[test]
fn every_row_has_a_test_that_is_named_by_it() {
    let own = std::env::current_exe().expect("a test runs from a file");
    let listed = Command::new(own).arg("--list").output().expect("it can be run again");
    let listed = String::from_utf8(listed.stdout).expect("names are UTF-8");
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test")).flat_map(|path| path.split("::"));
    let tested: BTreeSet<String> = names.filter_map(number_of).collect();
    let rows: BTreeSet<String> = ROWS.iter().map(|row| row.number.to_owned()).collect();
    assert_eq!(tested, rows);
}

/// `L4` of `l4_five_hundred_orphans`.
fn number_of(name: &str) -> Option<String> {
    let (number, _) = name.split_once('_')?;
    let (letter, digits) = number.split_at_checked(1)?;
    let counts = "lekanst".contains(letter) && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    counts.then(|| number.to_uppercase())
}

/// `SMCP_WRITE_DOCS=1 cargo test -p smcp --test smcp the_document_is_the_table` writes it.
#[test]
fn the_document_is_the_table() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cases.md");
    let text = document_of(ROWS);
    if std::env::var_os("SMCP_WRITE_DOCS").is_some() {
        std::fs::write(&document, &text).expect("the checkout can be written");
    }
    assert!(
        std::fs::read_to_string(&document).is_ok_and(|is| is == text),
        "docs/cases.md is not the table of tests/cases"
    );
}

fn document_of(rows: &[Row]) -> String {
    let mut text = String::from(
        "# Cases\n\nWhat people who run MCP servers have met. Each row is tested by functions whose names begin with its number, in\n\
         [`tests/`](../tests), most of them in [`tests/cases/`](../tests/cases). [Tiers](configuration.md#tiers) 3 and 2 have namespaces, tier 1 has none.\n\
         This file is written by a test, from the table in [`tests/cases/mod.rs`](../tests/cases/mod.rs).\n\n\
         | row | what | tiers 2 and 3 | tier 1 |\n|---|---|---|---|\n",
    );
    for row in rows {
        let (with, without) = (words(&row.tiers_2_and_3), words(&row.tier_1));
        let _ = writeln!(text, "| {} | {} | {with} | {without} |", row.number, row.what);
    }
    text.push_str(&unpack::section());
    text
}

fn words(meaning: &Meaning) -> String {
    match meaning {
        Holds => "holds".into(),
        Weaker(why) => format!("weaker: {why}"),
        Refused(why) => format!("refused: {why}"),
    }
}
