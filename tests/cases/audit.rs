//! The audit log: the rows T9 to T11. How a chain is judged line by line is tested beside the code.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::image::{Image, probe_reference};
use crate::liar::{self, Lie};
use crate::needs;
use crate::run_audit::chain;
use crate::world::{User, World, as_each_user};

as_each_user! {
    t9_what_was_done_to_a_log_is_found,
    t9_runs_at_once_rotate_one_chain,
    t9_a_torn_line_is_told_and_the_chain_holds,
    t9_older_files_may_be_moved_elsewhere,
    t10_nothing_runs_without_the_log,
    t11_every_way_has_one_begin_and_one_end,
    entries_are_shown_as_asked_for,
    a_log_is_followed_over_its_rotation,
    a_log_that_is_not_there_is_empty,
}

/// Two runs, which are four lines.
fn two_runs(world: &World) -> Vec<String> {
    world.caged(&[], &["exit", "0"]).told("").ok();
    world.caged(&[], &["exit", "3"]).told("").expect(3);
    let lines: Vec<String> = world.audit_text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4);
    lines
}

/// A change of the lines of a log.
type Change = fn(&mut Vec<String>);

/// What is done to four lines, the word of the finding and the line that it names.
const TAMPERED: [(&str, Change, &str, u64); 9] = [
    ("changed", |lines| lines[1] = lines[1].replace("exited", "denied"), "changed", 2),
    ("the first changed", |lines| lines[0] = lines[0].replace("\"begin\"", "\"Begin\""), "changed", 1),
    ("the last changed", |lines| lines[3] = lines[3].replace("\"exit\":3", "\"exit\":0"), "changed", 4),
    ("removed", |lines| drop(lines.remove(1)), "removed", 2),
    ("the first removed", |lines| drop(lines.remove(0)), "removed", 1),
    ("a copy added", |lines| lines.insert(3, lines[0].clone()), "added", 4),
    ("garbage added", |lines| lines.insert(2, "{}".into()), "added", 3),
    ("the last ones cut off", |lines| lines.truncate(2), "cut-off", 2),
    ("all cut off but one", |lines| lines.truncate(1), "cut-off", 1),
];

fn t9_what_was_done_to_a_log_is_found(world: &World) {
    let lines = two_runs(world);
    world.smcp(["audit", "verify"]).run().ok();
    let log = world.text("log/audit.log");
    for (name, change, word, line) in TAMPERED {
        let mut changed = lines.clone();
        change(&mut changed);
        fs::write(&log, changed.join("\n") + "\n").unwrap();
        let ended = world.smcp(["audit", "verify"]).run().expect(1);
        ended.explains(&["not as smcp wrote it"]);
        ended.check(ended.text().contains(&format!("{log} line {line}: ")), &format!("{name}: line {line}"));
        let told = world.smcp(["audit", "verify", "--json"]).run().expect(1).json();
        assert_eq!(told["holds"], false);
        let [finding] = told["findings"].as_array().unwrap().as_slice() else { panic!("{name}: {told}") };
        assert_eq!((&finding["what"], &finding["line"]), (&json!(word), &json!(line)), "{name}");
    }
    // The head itself is gone: nobody knows how long the log was.
    fs::write(&log, lines.join("\n") + "\n").unwrap();
    world.smcp(["audit", "verify"]).run().ok();
    fs::remove_dir_all(world.path("state/smcp/audit")).unwrap();
    let told = world.smcp(["audit", "verify", "--json"]).run().expect(1).json();
    assert_eq!(told["findings"][0]["what"], "no-head");
}

fn files(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.path("log")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn t9_runs_at_once_rotate_one_chain(world: &World) {
    thread::scope(|scope| {
        for code in 0..12 {
            let code = code.to_string();
            scope.spawn(move || world.caged(&[], &["exit", &code]).env("MCP_AUDIT_MAX_SIZE", "8K").run());
        }
    });
    let told = world.smcp(["audit", "verify", "--json"]).run().ok().json();
    assert_eq!((&told["entries"], &told["last"]), (&json!(24), &json!(24)), "{told}");
    let files = files(world);
    assert!(files.len() > 2 && told["files"] == files.len(), "{files:?}");
    for name in &files {
        let about = fs::metadata(world.path("log").join(name)).unwrap();
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{name}");
    }
    // The entries of every file are shown, and those of a run are found wherever they are.
    let shown = world.smcp(["audit", "show", "--json"]).run().ok().text();
    assert_eq!(shown.lines().count(), 24);
    let first: Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    let why = world.smcp(["why", "--json", first["run"].as_str().unwrap()]).run().ok().json();
    assert_eq!(why["ended"], true, "{why}");
}

fn t9_a_torn_line_is_told_and_the_chain_holds(world: &World) {
    two_runs(world);
    let mut log = OpenOptions::new().append(true).open(world.path("log/audit.log")).unwrap();
    log.write_all(b"{\"run\":\"01KB").unwrap();
    let torn = |world: &World| world.smcp(["audit", "verify", "--json"]).run().ok().json()["torn"].clone();
    assert_eq!(torn(world)[0]["line"], 5);
    world.caged(&[], &["exit", "0"]).run().ok();
    assert_eq!((&torn(world)[0]["line"], &torn(world)[1]), (&json!(5), &Value::Null));
    let people = world.smcp(["audit", "verify"]).run().ok();
    people.check(people.text().contains("line 5: torn by a crash"), "the tear was expected");
    let shown = world.smcp(["audit", "show"]).run().ok();
    assert_eq!(shown.text().lines().count(), 6, "{}", shown.text());
}

fn t9_older_files_may_be_moved_elsewhere(world: &World) {
    for _ in 0..4 {
        world.caged(&[], &["exit", "0"]).env("MCP_AUDIT_MAX_SIZE", "4K").run().ok();
    }
    let oldest = files(world).into_iter().filter(|name| name != "audit.log").min_by_key(|name| name.len());
    let oldest = oldest.expect("it was rotated");
    fs::rename(world.path("log").join(&oldest), world.path("private/kept")).unwrap();
    let ended = world.smcp(["audit", "verify"]).run().expect(1);
    ended.explains(&["--partial"]);
    world.smcp(["audit", "verify", "--partial"]).run().ok();
}

/// Every way in which a log cannot be written; the server would leave a file.
fn t10_nothing_runs_without_the_log(world: &World) {
    let (note, project) = (world.text("project/started"), world.text("project"));
    world.file("private/file", "");
    world.directory("private/directory");
    symlink("/dev/null", world.path("private/link")).unwrap();
    let closed = world.directory("private/closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let mut logs = vec![
        world.text("private/file/audit.log"),
        world.text("private/directory"),
        world.text("private/link"),
        "/dev/full".to_owned(),
        "/proc/audit.log".to_owned(),
    ];
    // Root may write where nobody may.
    if world.user() == User::Ordinary {
        logs.push(world.text("private/closed/audit.log"));
    }
    for log in logs {
        let run = world.caged(&["--allow-write", &project], &["write", &note, "x"]);
        run.env("MCP_AUDIT_LOG_FILE", &log).run().expect(118).explains(&["audit log", &log]);
    }
    // The same where the head, or the list of runs under way, cannot be written.
    for name in ["audit", "runs"] {
        let state = world.directory(&format!("private/state-{name}"));
        world.directory(&format!("private/state-{name}/smcp"));
        world.file(&format!("private/state-{name}/smcp/{name}"), "a file where the directory should be");
        let run = world.caged(&["--allow-write", &project], &["write", &note, "x"]);
        run.env("XDG_STATE_HOME", state).run().expect(118).explains(&["audit log"]);
    }
    assert!(!world.path("project/started").exists(), "the server was started");
    assert_eq!(world.audit_text(), "");
}

/// A way in which a run is refused, fails or ends: the exit code and the word for it in the end entry.
struct Way {
    name: &'static str,
    code: i32,
    cause: &'static str,
    go: fn(&World) -> i32,
}

const fn way(name: &'static str, code: i32, cause: &'static str, go: fn(&World) -> i32) -> Way {
    Way { name, code, cause, go }
}

/// The exit code of a run with these flags, and these words for the probe.
fn caged(world: &World, flags: &[&str], verb: &[&str]) -> i32 {
    world.caged(flags, verb).run().code()
}

/// The same with a variable more.
fn with(world: &World, name: &str, value: &str) -> i32 {
    world.caged(&[], &["exit", "0"]).env(name, value).run().code()
}

/// The same by a configuration file.
fn configured(world: &World, text: &str) -> i32 {
    let file = world.file("home/config.yaml", text);
    world.caged(&[], &["exit", "0"]).env("MCP_CONFIG", file).run().code()
}

/// The exit code of a run of another package.
fn package(world: &World, name: &str, image: Image) -> i32 {
    let reference = image.build().write(&world.directory(name));
    world.smcp(["run", &reference, "exit", "0"]).run().code()
}

/// One whose client keeps stdin open.
fn open(world: &World, flags: &[&str], verb: &[&str]) -> i32 {
    let mut running = world.caged(flags, verb).start();
    let stdin = running.take_stdin();
    let code = running.wait().code();
    drop(stdin);
    code
}

fn signalled(world: &World, signal: Signal) -> i32 {
    let mut running = world.caged(&[], &["hang", world.mark()]).start();
    let stdin = running.take_stdin();
    running.await_ready();
    running.signal(signal);
    let code = match signal {
        Signal::KILL => {
            running.wait_killed();
            // Its end is written by the next start.
            world.smcp(["run", "oci-layout:/absent:v1"]).run().code();
            137
        }
        _ => running.wait().code(),
    };
    drop(stdin);
    code
}

/// T11 as data. What kills smcp leaves the end to the next start, here one that is refused itself.
const WAYS: [Way; 50] = [
    // The command line.
    way("no reference", 2, "usage", |w| w.smcp(["run"]).run().code()),
    way("an unknown flag", 2, "usage", |w| caged(w, &["--no-such-flag"], &["exit", "0"])),
    way("a limit of no grammar", 2, "usage", |w| caged(w, &["--memory", "512MB"], &["exit", "0"])),
    way("a limit too small", 2, "usage", |w| caged(w, &["--pids", "1"], &["exit", "0"])),
    way("a malformed reference", 2, "usage", |w| w.smcp(["run", "Acme//x"]).run().code()),
    way("a malformed variable", 2, "usage", |w| caged(w, &["--env", "=x"], &["exit", "0"])),
    way("an absent env file", 2, "usage", |w| caged(w, &["--env-file", "/absent"], &["exit", "0"])),
    way("a variable that the caller lacks", 2, "usage", |w| caged(w, &["--env", "ABSENT"], &["exit", "0"])),
    way("a malformed destination", 2, "usage", |w| caged(w, &["--allow-net", "*"], &["exit", "0"])),
    way("an absent grant", 2, "usage", |w| caged(w, &["--allow-read", "/absent"], &["exit", "0"])),
    way("a tier that there is not", 2, "usage", |w| caged(w, &["--tier", "4"], &["exit", "0"])),
    way("a state of no plain name", 2, "usage", |w| caged(w, &["--state", "../x"], &["exit", "0"])),
    way("a required variable that is missing", 2, "usage", |w| {
        package(w, "required", Image::probe().manifest(|m| m["env"] = json!([{"name": "K", "required": true}])))
    }),
    way("a secret without a value", 2, "usage", |w| caged(w, &["--secret", "ABSENT"], &["exit", "0"])),
    way("a secret by a command that fails", 2, "usage", |w| caged(w, &["--secret", "K=command:false"], &["exit", "0"])),
    way("a secret of no source", 2, "usage", |w| caged(w, &["--secret", "K=value"], &["exit", "0"])),
    way("an argument that is no text", 2, "usage", |w| {
        w.smcp(["run"]).args([OsStr::from_bytes(b"a\xff")]).run().code()
    }),
    // The configuration.
    way("a broken file", 119, "configuration", |w| configured(w, "a: [")),
    way("an unknown key", 119, "configuration", |w| configured(w, "max_memroy: 1G\n")),
    way("an unknown value", 119, "configuration", |w| configured(w, "max_memory: much\n")),
    way("the audit switched off", 119, "configuration", |w| configured(w, "audit_enabled: false\n")),
    way("an absent file that is named", 119, "configuration", |w| with(w, "MCP_CONFIG", "/absent")),
    way("an unknown variable", 119, "configuration", |w| with(w, "MCP_POLICY_NO_SUCH", "1")),
    way("an unknown log level", 119, "configuration", |w| with(w, "MCP_LOG_LEVEL", "loud")),
    way("a proxy that cannot be used", 119, "configuration", |w| {
        w.caged(&["--allow-net", "a.test"], &["exit", "0"]).env("HTTPS_PROXY", "https://p.test:1").run().code()
    }),
    // The package.
    way("an absent layout", 120, "resolve", |w| w.smcp(["run", "oci-layout:/absent:v1"]).run().code()),
    way("a registry that does not answer", 120, "resolve", |w| w.smcp(["run", "localhost:1/a/b:v1"]).run().code()),
    way("a package that is not in the store", 120, "resolve", |w| {
        w.smcp(["run", "--offline", "localhost:1/a/b:v2"]).run().code()
    }),
    way("another platform", 120, "resolve", |w| {
        package(w, "platform", Image::probe().config(|config| config["architecture"] = "s390x".into()))
    }),
    way("another digest", 122, "verification", |w| {
        let liar = liar::serve(&Image::probe().file("srv/other", 0o644, w.mark()).build(), Lie::OtherLayer);
        w.smcp(["run", &format!("{}:v1", liar.name)]).run().code()
    }),
    way("an unknown permission", 123, "unpack", |w| {
        package(w, "permission", Image::probe().manifest(|m| m["permissions"] = json!({"everything": true})))
    }),
    way("an archive that reaches outside", 123, "unpack", |w| {
        package(w, "archive", Image::probe().file("srv/link", 0o644, "x").link("srv/link", "/etc/passwd"))
    }),
    // The grants and the cage.
    way("a grant of everything", 121, "denied", |w| caged(w, &["--allow-read", "/"], &["exit", "0"])),
    way("a grant of smcp's own", 121, "denied", |w| caged(w, &["--cwd", &w.text("")], &["exit", "0"])),
    way("a grant in the way", 125, "cage", |w| {
        let mount = format!("{}:/etc/passwd", w.text("project"));
        caged(w, &["--mount", &mount], &["exit", "0"])
    }),
    way("a state that cannot be made", 125, "cage", |w| {
        w.directory("private/state/smcp");
        w.file("private/state/smcp/servers", "");
        let run = w.caged(&["--state", "x"], &["exit", "0"]);
        run.env("XDG_STATE_HOME", w.path("private/state")).run().code()
    }),
    // The server.
    way("an absent entry point", 127, "not-found", |w| {
        package(w, "absent", Image::probe().manifest(|m| m["entrypoint"]["args"][0] = "/usr/bin/absent".into()))
    }),
    way("an entry point that is no program", 126, "not-executable", |w| {
        let image = Image::probe().file("srv/text", 0o644, "text");
        package(w, "text", image.manifest(|m| m["entrypoint"]["args"][0] = "/srv/text".into()))
    }),
    way("an end with 0", 0, "exited", |w| open(w, &[], &["exit", "0"])),
    way("an end with one of smcp's codes", 118, "exited", |w| open(w, &[], &["exit", "118"])),
    way("a crash", 134, "signal", |w| open(w, &[], &["abort"])),
    way("a kill from inside", 137, "signal", |w| open(w, &[], &["raise", "9"])),
    way("a limit of memory", 137, "memory", |w| open(w, &["--memory", "64M"], &["hog", "1000", "1"])),
    way("a limit of CPU time", 137, "cpu-time", |w| open(w, &["--cpu-time", "1s"], &["spin", "2", "30"])),
    way("a file that is too large", 153, "file-size", |w| open(w, &[], &["raise", "25"])),
    way("a limit of time", 124, "timeout", |w| open(w, &["--timeout", "1s"], &["hang", w.mark()])),
    way("a client that leaves", 143, "client-closed", |w| caged(w, &[], &["hang", w.mark()])),
    way("SIGTERM", 143, "terminated", |w| signalled(w, Signal::TERM)),
    way("SIGKILL", 137, "lost", |w| signalled(w, Signal::KILL)),
    // No run of a server at all.
    way("a dry run", 0, "dry-run", |w| caged(w, &["--dry-run"], &["exit", "0"])),
];

/// Those of the log, after those of the default one, which has what a broken configuration stops.
fn all_entries(world: &World) -> Vec<Value> {
    let default = fs::read_to_string(world.path("home/.smcp/audit.log")).unwrap_or_default();
    let mut entries: Vec<Value> = default.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    entries.extend(world.audit());
    entries.sort_by_key(|entry| entry["time"].to_string());
    entries
}

fn t11_every_way_has_one_begin_and_one_end(world: &World) {
    for Way { name, code, cause, go } in WAYS {
        let before = all_entries(world).len();
        assert_eq!(go(world), code, "{name}\n{}", world.audit_text());
        let entries = all_entries(world).split_off(before);
        let of = |event: &str| entries.iter().filter(|entry| entry["event"] == event).collect::<Vec<_>>();
        let (begins, ends) = (of("begin"), of("end"));
        let of_the_run = |end: &&Value| end["cause"] == cause && end["exit"] == code;
        let ours: Vec<_> = ends.iter().copied().filter(of_the_run).collect();
        assert!(!ours.is_empty(), "{name}: an end of {cause} with {code}\n{entries:#?}");
        let runs = if cause == "lost" { 2 } else { 1 };
        assert_eq!((begins.len(), ends.len()), (runs, runs), "{name}\n{entries:#?}");
        for begin in begins {
            let ends = ends.iter().filter(|end| end["run"] == begin["run"]).count();
            assert_eq!(ends, 1, "{name}\n{entries:#?}");
        }
        let smcps_own = code != 0 && !["exited", "client-closed", "terminated"].contains(&cause);
        assert_eq!(ours[0]["error"].is_string(), smcps_own, "{name}: the error as it was shown\n{}", ours[0]);
    }
    chain(world);
    world.smcp(["audit", "verify"]).run().ok();
    world.smcp(["audit", "verify"]).without_env("MCP_AUDIT_LOG_FILE").run().ok();
}

fn entries_are_shown_as_asked_for(world: &World) {
    two_runs(world);
    world.smcp(["run", "oci-layout:/nowhere:v1"]).run().expect(120);
    let run = world.audit()[2]["run"].as_str().unwrap().to_owned();
    let package = probe_reference();
    let cases: [(&[&str], usize); 14] = [
        (&[], 6),
        (&["-n", "2"], 2),
        (&["-n", "0"], 0),
        (&["--run", &run], 2),
        (&["--run", &run.to_lowercase(), "--event", "end"], 1),
        (&["--run", "01KB0000000000000000000001"], 0),
        (&["--event", "begin"], 3),
        (&["--cause", "exited"], 2),
        (&["--cause", "resolve"], 1),
        (&["--package", package], 4),
        (&["--package", "nowhere"], 2),
        (&["--package", "nowhere", "--event", "end", "--cause", "exited"], 0),
        (&["--since", "1h"], 6),
        (&["--since", "2999-01-01"], 0),
    ];
    for (flags, count) in cases {
        let shown = world.smcp(["audit", "show"]).args(flags).run().ok();
        assert_eq!(shown.text().lines().count(), count, "{flags:?}\n{}", shown.text());
        let json = world.smcp(["audit", "show", "--json"]).args(flags).run().ok().text();
        assert_eq!(json.lines().count(), count, "{flags:?}");
        assert!(json.lines().all(|line| world.audit_text().contains(line)), "{flags:?}");
    }
    let table = world.smcp(["audit", "show", "--run", &run]).run().ok().text();
    let [begin, end] = table.lines().collect::<Vec<_>>().try_into().unwrap();
    assert!(begin.contains(&format!("  {run}  begin   ")) && begin.ends_with(package), "{begin}");
    assert!(end.ends_with(&format!("{package} exited with exit code 3")), "{end}");
    world.smcp(["audit", "show", "--since", "soon"]).run().expect(2).explains(&["--since", "soon"]);
    assert_eq!(world.smcp(["audit", "path"]).run().ok().text(), format!("{}\n", world.text("log/audit.log")));
}

fn a_log_is_followed_over_its_rotation(world: &World) {
    let mut following = world.smcp(["audit", "show", "-f", "--json"]).start();
    for code in 0..6 {
        world.caged(&[], &["exit", &code.to_string()]).env("MCP_AUDIT_MAX_SIZE", "4K").run().expect(code);
    }
    assert!(files(world).len() > 2, "it was rotated");
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    let shown = following.await_stdout("twelve entries", |bytes| lines(bytes) >= 12);
    let entries: Vec<Value> =
        String::from_utf8(shown).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let numbers: Vec<_> = entries.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>());
}

fn a_log_that_is_not_there_is_empty(world: &World) {
    assert_eq!(world.smcp(["audit", "show"]).run().ok().text(), "");
    let told = world.smcp(["audit", "verify", "--json"]).run().ok().json();
    assert_eq!((&told["entries"], &told["holds"]), (&json!(0), &json!(true)));
    two_runs(world);
    fs::remove_file(world.path("log/audit.log")).unwrap();
    let ended = world.smcp(["audit", "verify"]).run().expect(1);
    ended.check(ended.text().contains("entries 1 to 4 are missing"), "what is missing was expected");
}

/// A directory that cannot be written keeps the log from being rotated, and no run from being recorded.
#[test]
fn a_log_in_a_closed_directory_grows() {
    let world = World::new(User::Ordinary);
    if !needs::root() {
        return;
    }
    two_runs(&world);
    fs::set_permissions(world.path("log"), fs::Permissions::from_mode(0o555)).unwrap();
    let ended = world.caged(&[], &["exit", "0"]).env("MCP_AUDIT_MAX_SIZE", "4K").run().ok();
    ended.says(&["cannot be rotated"]);
    assert_eq!(chain(&world).len(), 6);
}
