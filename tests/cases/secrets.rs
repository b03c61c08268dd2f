//! Secrets: the row E3.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::command::Ended;
use crate::image::{Image, probe_reference};
use crate::needs;
use crate::place;
use crate::world::{User, World, as_each_user, at_each_tier};

at_each_tier! {
    e3_no_form_of_a_secret_is_on_stderr,
    e3_a_secret_is_in_nothing_that_smcp_leaves,
}

as_each_user! {
    e3_every_source_gives_its_value,
    e3_a_source_without_a_value_starts_nothing,
    e3_what_was_typed_wrongly_is_not_repeated,
    e3_a_dry_run_asks_no_source,
    e3_a_value_that_is_too_short_is_told,
    e3_smcp_leaves_no_core,
    e3_a_real_keyring_gives_its_items,
}

/// A value with what encoders treat differently, and in no name of this machine.
const SENTINEL: &str = "sentinel/3f9c+42 \"ü\"&a=b";

/// What stands in for it.
const REDACTED: &str = "<redacted>";

/// Whatever shows the value, also a part of it.
const SHOWS: [&str; 6] = ["sentinel", "SENTINEL", "3f9c", "c2VudGluZWw", "73656e74696e656c", "%73%65"];

#[track_caller]
fn hides(ended: &Ended, place: &str) {
    for shown in SHOWS {
        ended.check(!ended.stderr().contains(shown), &format!("{place}: {shown} was not expected on stderr"));
    }
}

/// By each way in which it can be given, in each form, also in pieces and as the last word.
fn e3_no_form_of_a_secret_is_on_stderr(world: &World) {
    let declared = Image::probe()
        .manifest(|m| m["env"] = json!([{"name": "PLAIN", "secret": true}]))
        .build()
        .write(&world.directory("image"));
    let file = world.file("home/variables", format!("API_KEY={SENTINEL}\nPLAIN={SENTINEL}\n"));
    let file = file.to_str().unwrap();
    let pair = |name: &str| format!("{name}={SENTINEL}");
    let (token, plain) = (pair("ACCESS_TOKEN"), pair("PLAIN"));
    let undeclared = probe_reference();
    let ways: [(&[&str], &str, &str); 6] = [
        (&["--secret", "PLAIN=env:CALLERS"], undeclared, "PLAIN"),
        (&["--secret", "CALLERS"], undeclared, "CALLERS"),
        (&["--env", &token], undeclared, "ACCESS_TOKEN"),
        (&["--env-file", file], undeclared, "API_KEY"),
        (&["--env", &plain], &declared, "PLAIN"),
        (&["--env-file", file], &declared, "PLAIN"),
    ];
    for (flags, package, name) in ways {
        let run = world.smcp(["run"]).args(flags).args([package, "utter", name]);
        let ended = run.env("CALLERS", SENTINEL).env("MCP_LOG_LEVEL", "trace").told("").ok();
        hides(&ended, &format!("{flags:?}"));
        let stderr = ended.stderr();
        let line = |word: &str| stderr.lines().find(|line| line.starts_with(&format!("{word} "))).unwrap_or_default();
        for word in
            ["whole", "json", "base64-url", "percent", "percent-lower", "plus", "hex", "hex-upper", "pieces", "base64"]
        {
            ended.check(line(word) == format!("{word} <{REDACTED}>"), &format!("{flags:?}: {word} taken out"));
        }
        ended.check(line("twice") == format!("twice <{REDACTED}{REDACTED}>"), "both taken out");
        ended.check(line("last") == format!("last {REDACTED}"), "the last word taken out");
        // Of what is encoded with something around it a digit on either side may be left, which holds less than a byte.
        for (word, most) in [("basic", 10), ("basic-long", 22)] {
            let left = line(word).len() - line(word).replace(REDACTED, "").len();
            ended.check(left == REDACTED.len() && line(word).len() < word.len() + 3 + REDACTED.len() + most, word);
        }
        // The protocol is the client's: what the server says there passes untouched.
        assert_eq!(ended.json(), json!(SENTINEL), "{flags:?}");
    }
    // A variable that nothing makes a secret is none.
    let ended = world.smcp(["run", "--env", &plain, undeclared, "utter", "PLAIN"]).told("").ok();
    ended.says(&[&format!("whole <{SENTINEL}>")]);
}

/// While it runs and after it: command lines of all processes, outputs of all commands that tell of it, and every file.
fn e3_a_secret_is_in_nothing_that_smcp_leaves(world: &World) {
    // Others that run this at the same time have not hidden theirs yet.
    let value = format!("{SENTINEL}{}", world.text("").replace('/', "-"));
    let flags = ["--secret", "FIRST", "--env", &format!("SECOND_TOKEN={value}"), &format!("--env=THIRD_KEY={value}")];
    let run = world.caged(&flags, &["utter-and-wait", "FIRST"]).env("FIRST", &value);
    let mut running = run.env("MCP_LOG_LEVEL", "trace").start();
    running.await_ready();
    let run = world.audit()[0]["run"].as_str().unwrap().to_owned();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        // The tests' own wrappers around smcp have what they pass on.
        let of_a_wrapper = line.contains("unshare") || line.contains("setpriv");
        assert!(!line.contains(&value) || of_a_wrapper, "{}: {line}", entry.path().display());
    }
    for command in [&["ps"][..], &["ps", "--json"], &["logs", &run]] {
        let ended = world.smcp(command).run().ok();
        assert!(!ended.text().contains("sentinel"), "{command:?}: {}", ended.text());
    }
    drop(running.take_stdin());
    let ended = running.wait().expect(143);
    hides(&ended, "the run");
    let commands: [&[&str]; 9] = [
        &["logs"],
        &["why"],
        &["why", "--json"],
        &["audit", "show"],
        &["audit", "show", "--json"],
        &["audit", "verify"],
        &["info", "--json", probe_reference()],
        &["cache", "ls"],
        &["run"],
    ];
    for command in commands {
        let ended = world.smcp(command).env("FIRST", &value).env("MCP_LOG_LEVEL", "trace").run();
        hides(&ended, &format!("{command:?}"));
        assert!(!ended.text().contains("sentinel"), "{command:?}: {}", ended.text());
    }
    for more in [
        &["run", "--dry-run", "--json"][..],
        &["run", "--dry-run"],
        &["run", "--allow-read", "/"],
        &["run", "--no-such-flag"],
        &["run", "--timeout", "soon"],
        &["learn"],
    ] {
        let ended = world.smcp(more).args(flags).args([probe_reference(), "utter", "FIRST"]);
        let ended = ended.env("FIRST", &value).env("MCP_LOG_LEVEL", "trace").run();
        hides(&ended, &format!("{more:?}"));
        let untouched = more == ["learn"];
        assert!(untouched || !ended.text().contains("sentinel"), "{more:?}: {}", ended.text());
    }
    assert!(run.len() == 26 && !world.audit_text().contains("sentinel"), "{}", world.audit_text());
    for directory in ["home", "state", "cache", "log", "tmp"] {
        search(&world.path(directory));
    }
}

/// Fails where a file beneath holds the value.
fn search(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        if about.is_dir() {
            search(&path);
        } else if about.is_file() {
            let bytes = fs::read(&path).unwrap_or_default();
            let found = bytes.windows(SENTINEL.len()).any(|at| at == SENTINEL.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

fn e3_every_source_gives_its_value(world: &World) {
    let file = world.file("home/secret", "of a file\n");
    let tools = world.directory("private/tools");
    let tool = world.file(
        "private/tools/secret-tool",
        "#!/bin/sh\n[ \"$*\" = 'lookup service smcp username me' ] && printf 'of the keyring'\n",
    );
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", tools.display());
    for (source, value) in [
        ("K".to_owned(), "of the caller"),
        ("K=env:OTHER".into(), "of another"),
        (format!("K=file:{}", file.display()), "of a file"),
        ("K=command:printf '%s %s\\n' of 'a  command'".into(), "of a  command"),
        ("K=keyring:smcp/me".into(), "of the keyring"),
    ] {
        let run = world.caged(&["--secret", &source], &["env"]).env("K", "of the caller").env("OTHER", "of another");
        let run = run.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere").env("PATH", &path);
        assert_eq!(run.run().ok().json()["K"], value, "{source}");
    }
    // The last of several is the flag's, and what a command says on stderr is the user's.
    let both = ["--env", "K=plain", "--secret", "K=command:sh -c 'echo asking >&2; echo given'"];
    let ended = world.caged(&both, &["env"]).run().ok();
    assert_eq!(ended.json()["K"], "given");
    ended.says(&["asking"]);
}

fn e3_a_source_without_a_value_starts_nothing(world: &World) {
    let (project, note) = (world.text("project"), world.text("project/started"));
    let open = world.file("home/binary", b"a\xff");
    let cases = [
        ("K", "the caller has no variable K"),
        ("K=env:ABSENT", "the caller has no variable ABSENT"),
        ("K=file:/absent", "/absent"),
        (&format!("K=file:{}", world.text("project")), "no regular file"),
        (&format!("K=file:{}", open.display()), "not UTF-8"),
        ("K=command:sh -c 'echo sentinel; exit 3'", "exit status: 3"),
        ("K=command:/no/such/program sentinel", "/no/such/program"),
        ("K=keyring:a/b", "no session bus"),
    ];
    for (source, why) in cases {
        let run = world.caged(&["--allow-write", &project, "--secret", source], &["write", &note, "x"]);
        let ended = run.without_env("DBUS_SESSION_BUS_ADDRESS").run().expect(2);
        ended.explains(&["--secret K", why]);
        hides(&ended, source);
        assert_eq!(world.last_end()["cause"], "usage");
    }
    // Where there is a bus and no program to ask it.
    let run = world.caged(&["--secret", "K=keyring:a/b"], &["exit", "0"]).env("PATH", world.text("private"));
    run.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere").run().expect(2).explains(&["secret-tool", "libsecret"]);
    assert!(!Path::new(&note).exists(), "the server was started");
    assert!(!world.audit_text().contains("sentinel"), "{}", world.audit_text());
}

/// A value in the place of a source.
fn e3_what_was_typed_wrongly_is_not_repeated(world: &World) {
    for flag in [format!("K={SENTINEL}"), format!("K=http:{SENTINEL}"), format!("={SENTINEL}")] {
        let ended = world.caged(&["--secret", &flag], &["exit", "0"]).run().expect(2);
        ended.explains(&["--secret"]);
        hides(&ended, &flag);
    }
    let words: [&[&str]; 3] = [&["--secert", SENTINEL], &["--env", "=sentinel"], &["--env-file", "/absent", "--env"]];
    for wrong in words {
        hides(&world.smcp(["run"]).args(wrong).args([probe_reference()]).run().expect(2), &format!("{wrong:?}"));
    }
    assert!(!world.audit_text().contains("sentinel"), "{}", world.audit_text());
}

fn e3_a_dry_run_asks_no_source(world: &World) {
    let touched = world.path("tmp/touched");
    let source = format!("K=command:touch {}", touched.display());
    let plan = world.caged(&["--dry-run", "--json", "--secret", &source], &["env"]).run().ok().json();
    let env = plan["plan"]["env"].as_array().unwrap();
    let variable = env.iter().find(|variable| variable["name"] == "K").expect("it is in the plan");
    assert_eq!(variable["value"], REDACTED);
    assert!(!touched.exists());
}

fn e3_a_value_that_is_too_short_is_told(world: &World) {
    let ended = world.caged(&["--secret", "K=env:SHORT"], &["utter", "K"]).env("SHORT", "abc").run().ok();
    ended.says(&["the secret K has fewer than 4 bytes", "whole <abc>"]);
    let ended = world.caged(&["--secret", "K=env:SHORT"], &["utter", "K"]).env("SHORT", "abcd").run().ok();
    ended.says(&[&format!("whole <{REDACTED}>")]);
}

/// Neither smcp nor the server, whatever the caller may have.
fn e3_smcp_leaves_no_core(world: &World) {
    let mut running = world.caged(&[], &["hang", world.mark()]).start();
    running.await_ready();
    let limits = fs::read_to_string(format!("/proc/{}/limits", running.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let soft = core.split_whitespace().nth(4).unwrap();
    assert!(["0", "1"].contains(&soft), "{core}");
}

/// Starts gnome-keyring on the session bus that is there, puts `ITEM` into it, and does what the arguments say.
const RING: &str = r#"
owned() { dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.NameHasOwner string:org.freedesktop.secrets | grep -q true; }
printf 'a password of the test' | gnome-keyring-daemon --foreground --unlock --components=secrets >/dev/null 2>&1 &
daemon=$!
tries=400
until owned; do
    tries=$((tries - 1)); [ $tries -gt 0 ] || exit 97
    sleep 0.05
done
printf '%s' "$ITEM" | secret-tool store --label=test service smcp username me || exit 98
"$@"
code=$?
kill $daemon
wait $daemon 2>/dev/null
exit $code
"#;

/// The Secret Service of a desktop: gnome-keyring, on a session bus of the test's own.
fn e3_a_real_keyring_gives_its_items(world: &World) {
    let wanted = [
        ("dbus-run-session", "dbus"),
        ("dbus-send", "dbus"),
        ("gnome-keyring-daemon", "gnome-keyring"),
        ("secret-tool", "libsecret-tools"),
    ];
    if !wanted.into_iter().all(|(program, package)| needs::program(program, package).is_some()) {
        return;
    }
    // The bus lets in nobody whom the table of accounts does not have.
    world.account();
    let script = world.file("home/ring.sh", RING);
    let runtime = world.directory("run");
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
    let run = |item: &str, verb: &str| {
        let bus = world.on_that_machine("/usr/bin/dbus-run-session")?;
        let run = bus.args(["--".as_ref(), "sh".as_ref(), script.as_os_str(), place::smcp().as_os_str()]);
        let run = run.args(["run", "--secret", &format!("K=keyring:{item}"), probe_reference()]);
        let verb: &[&str] = if verb == "utter" { &["utter", "K"] } else { &["env"] };
        Some(run.args(verb).env("ITEM", SENTINEL).env("XDG_RUNTIME_DIR", &runtime).run())
    };
    let Some(ended) = run("smcp/me", "env") else { return };
    assert_eq!(ended.ok().json()["K"], SENTINEL);
    let ended = run("smcp/me", "utter").unwrap().ok();
    hides(&ended, "what was in the keyring");
    ended.says(&["whole <<redacted>>"]);
    let ended = run("smcp/somebody", "env").unwrap().expect(2);
    ended.explains(&["--secret K: no item of the keyring", "\"somebody\"", "secret-tool store"]);
}

/// A name of the server's own choice that holds a secret is none in the log.
#[test]
fn e3_what_a_server_asks_for_is_logged_without_it() {
    let world = World::new(User::Ordinary);
    let flags = ["--allow-net", "granted.test", "--secret", "K"];
    let ended = world.caged(&flags, &["connect", "sentinel-3f9c.evil.test:443"]).env("K", "Sentinel-3f9c").run();
    hides(&ended, "the refusal");
    let denied = world.audit().into_iter().find(|entry| entry["event"] == "denied").expect("it was refused");
    assert_eq!(denied["host"], format!("{REDACTED}.evil.test"));
    let end = world.last_end();
    assert_eq!(end["egress"]["refused"][0]["host"], denied["host"], "{end}");
}
