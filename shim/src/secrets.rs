//! `--secret K[=SOURCE]`: values that stand on no command line, and which values of a run are secrets.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bundle::{EnvFlag, Grant, Package, Request};
use distribution::Secret;
use runtime::system::{self, Errno, OwnedFd, PollFd, PollFlags, Timespec, poll, read};

use crate::cli;
use crate::exit::{self, Failure};
use crate::redact::SHORTEST;
use crate::settings::read_small;
use crate::show;

/// A variable whose value is a secret, and where that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFlag {
    name: String,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Variable(String),
    File(PathBuf),
    Command(Vec<String>),
    Keyring { service: String, account: String },
}

/// The largest value, bytes: a variable's may be twice as large, execve(2).
const MOST: usize = 64 << 10;
/// A command may ask its user to open a key ring.
const PATIENCE: Duration = Duration::from_secs(60);

impl SecretFlag {
    /// Reads a flag. What stands behind the `=` may be a secret by mistake, so no error repeats it.
    ///
    /// # Errors
    /// Of code 2, where the name or the source is none.
    pub fn read(text: &str) -> Result<SecretFlag, Failure> {
        let (name, source) = text.split_once('=').map_or((text, None), |(name, source)| (name, Some(source)));
        let name = name.parse::<EnvFlag>().map_err(|why| Failure::new(exit::USAGE, format!("--secret: {why}")))?.name;
        let fail = |why: &str| Failure::new(exit::USAGE, format!("--secret {name}: {why}")).hint(SOURCES);
        let source = match source.map(|source| source.split_once(':').unwrap_or((source, ""))) {
            None => Source::Variable(name.clone()),
            Some((_, "")) => return Err(fail("what stands behind the `=` is no source")),
            Some(("env", variable)) => Source::Variable(variable.into()),
            Some(("file", path)) => Source::File(path.into()),
            Some(("command", line)) => {
                let words = shlex::split(line).filter(|words| words.first().is_some_and(|word| !word.is_empty()));
                Source::Command(words.ok_or_else(|| fail("the command has a quote that is not closed, or no word"))?)
            }
            Some(("keyring", item)) => match item.split_once('/') {
                Some((service, account)) if !service.is_empty() && !account.is_empty() => {
                    Source::Keyring { service: service.into(), account: account.into() }
                }
                _ => return Err(fail("the keyring's item is not SERVICE/ACCOUNT")),
            },
            Some(_) => return Err(fail("what stands behind the `=` is no source")),
        };
        Ok(SecretFlag { name, source })
    }

    /// The variable with its value; without one for a run that starts nothing.
    ///
    /// # Errors
    /// Of code 2, where the source has none.
    pub fn value(self, dry_run: bool) -> Result<EnvFlag, Failure> {
        let SecretFlag { name, source } = self;
        let value = if dry_run { Secret::new("") } else { source.value().map_err(|why| why.of(&name))? };
        Ok(EnvFlag { name, value: Some(value) })
    }
}

const SOURCES: &str = "sources are env:NAME, file:PATH, command:PROGRAM ARGUMENTS and keyring:SERVICE/ACCOUNT; without one it is the caller's variable of that name";

/// Why there is no value, and the next step.
struct Lacking(String, Option<&'static str>);

impl Lacking {
    fn of(self, name: &str) -> Failure {
        let Lacking(why, hint) = self;
        let failure = Failure::new(exit::USAGE, format!("--secret {name}: {why}"));
        hint.map_or(failure.clone(), |hint| failure.hint(hint))
    }
}

impl Source {
    fn value(&self) -> Result<Secret, Lacking> {
        match self {
            Source::Variable(name) => {
                let value = std::env::var_os(name)
                    .ok_or_else(|| Lacking(format!("the caller has no variable {name}"), Some(SOURCES)))?;
                text(value.into_encoded_bytes())
            }
            Source::File(path) => {
                let fail = |why: io::Error| Lacking(format!("{}: {why}", path.display()), None);
                text(without_newline(read_small(path).map_err(fail)?))
            }
            Source::Command(words) => said(words, PATIENCE).and_then(|bytes| text(without_newline(bytes))),
            Source::Keyring { service, account } => of_keyring(service, account),
        }
    }
}

/// A file ends with a newline, and so does what a command says; the secret does not.
fn without_newline(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.pop_if(|byte| *byte == b'\n').is_some() {
        bytes.pop_if(|byte| *byte == b'\r');
    }
    bytes
}

fn text(bytes: Vec<u8>) -> Result<Secret, Lacking> {
    let why = |why: &str| Lacking(format!("its value {why}"), None);
    if bytes.len() > MOST {
        return Err(why("is larger than 64 KiB"));
    }
    if bytes.contains(&0) {
        return Err(why("holds a NUL, which no variable can"));
    }
    String::from_utf8(bytes).map(Secret::new).map_err(|_| why("is not UTF-8"))
}

/// What a program says on stdout. Its stderr is the user's; it has no stdin, which is the client's.
fn said(words: &[String], patience: Duration) -> Result<Vec<u8>, Lacking> {
    // Not its arguments, which may name what is nobody's business.
    let program = &words[0];
    let fail = |why: String| Lacking(format!("the command {program}: {why}"), None);
    let mut command = Command::new(program);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|why| fail(why.to_string()))?;
    let stdout = child.stdout.take().expect("a pipe");
    let deadline = Instant::now() + patience;
    let read = read_until(&OwnedFd::from(stdout), deadline);
    let status = loop {
        match child.try_wait() {
            Ok(None) if read.is_ok() && Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                let late = || format!("it did not end within {} s", patience.as_secs());
                return Err(fail(read.err().map_or_else(late, |why| why.to_string())));
            }
            Ok(Some(status)) => break status,
            Err(why) => return Err(fail(why.to_string())),
        }
    };
    let bytes = read.map_err(|why| fail(why.to_string()))?;
    match (status.success(), bytes.is_empty()) {
        (false, _) => Err(fail(format!("it ended with {status}"))),
        (true, true) => Err(fail("it said nothing on stdout".into())),
        (true, false) => Ok(bytes),
    }
}

/// Reads to the end, by a deadline, and no more than a value may have. Without a thread, as a process with threads cannot
/// split a cage off.
fn read_until(from: &OwnedFd, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(io::Error::other("it did not end in time")),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(why) => return Err(why.into()),
        }
        let mut block = [0; 4096];
        match read(from, &mut block[..]) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&block[..count]),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
        if bytes.len() > MOST + 2 {
            return Err(io::Error::other("it said more than 64 KiB"));
        }
    }
}

/// The item of the desktop's keyring (Secret Service) with these attributes, which are those of Python's keyring and of
/// the crate `keyring`. By libsecret's own program: a library would bring a client of D-Bus into every run.
fn of_keyring(service: &str, account: &str) -> Result<Secret, Lacking> {
    let uid = system::user();
    let bus = std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some_and(|address| !address.is_empty())
        || Path::new(&format!("/run/user/{uid}/bus")).exists();
    if !bus {
        let why = "there is no keyring here: no session bus, DBUS_SESSION_BUS_ADDRESS is not set";
        return Err(Lacking(why.into(), Some("without a desktop use env:NAME, file:PATH or command:PROGRAM")));
    }
    let words = ["secret-tool", "lookup", "service", service, "username", account].map(str::to_owned);
    let stored = format!("no item of the keyring that is open has service {service:?} and username {account:?}");
    match said(&words, PATIENCE) {
        Ok(bytes) => text(without_newline(bytes)),
        Err(Lacking(why, _)) if why.contains("os error 2") => {
            let hint = "it is in Debian's libsecret-tools and Fedora's libsecret; env:NAME, file:PATH and command:PROGRAM need nothing";
            Err(Lacking("the keyring is read by secret-tool, which is not installed".into(), Some(hint)))
        }
        Err(Lacking(why, _)) => Err(Lacking(
            format!("{stored}, or it could not be asked ({why})"),
            Some(
                "`secret-tool store --label=NAME service SERVICE username ACCOUNT` or `keyring set SERVICE ACCOUNT` makes one",
            ),
        )),
    }
}

/// The values of a run that nobody may read in what it says: of `--secret`, of variables that the manifest calls secret, and
/// of those that a flag or a file gave whose names say so. Told where one is too short to be looked for.
pub fn of_run(typed: &cli::Run, request: &Request, package: &Package, grant: &Grant) -> Vec<Secret> {
    let by_flag = |name: &str| {
        typed.secret.iter().any(|flag| flag.split('=').next() == Some(name))
            || package.manifest.env.iter().any(|spec| spec.secret && spec.name == name)
    };
    let given = |name: &str| request.env.iter().chain(&request.composed).any(|flag| flag.name == name);
    let by_name = |name: &str| tells(name) && given(name);
    let mut found = Vec::new();
    for (name, value) in &grant.env {
        match (by_flag(name), value.expose().len()) {
            (_, 0) => {}
            (true, ..SHORTEST) => show::warn(&format!(
                "the secret {name} has fewer than {SHORTEST} bytes: it is not taken out of what the server says on stderr"
            )),
            (true, _) => found.push(value.clone()),
            (false, length) if length >= SHORTEST && by_name(name) => found.push(value.clone()),
            (false, _) => {}
        }
    }
    found
}

/// Whether a variable's name says that its value is a secret.
pub fn tells(name: &str) -> bool {
    const WORDS: [&str; 8] = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "BEARER"];
    const PARTS: [&str; 5] = ["KEY", "PASS", "PAT", "JWT", "COOKIE"];
    let capitals = name.to_ascii_uppercase();
    // As in `accessKey`, too.
    let mut humps = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && name[..at].ends_with(|before: char| before.is_ascii_lowercase()) {
            humps.push('_');
        }
        humps.push(letter.to_ascii_uppercase());
    }
    WORDS.iter().any(|word| capitals.contains(word)) || humps.split(['_', '-', '.']).any(|part| PARTS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read() {
        let words = |words: &[&str]| Source::Command(words.iter().map(|word| (*word).to_owned()).collect());
        let right = [
            ("K", Source::Variable("K".into())),
            ("K=env:OTHER", Source::Variable("OTHER".into())),
            ("K=file:/a:b=c", Source::File("/a:b=c".into())),
            ("K=command:op read 'op://a b/c' \"x y\" z\\ z", words(&["op", "read", "op://a b/c", "x y", "z z"])),
            ("K=command:echo $HOME; ls", words(&["echo", "$HOME;", "ls"])),
            ("K=keyring:a/b/c", Source::Keyring { service: "a".into(), account: "b/c".into() }),
        ];
        for (text, source) in right {
            assert_eq!(SecretFlag::read(text).unwrap(), SecretFlag { name: "K".into(), source }, "{text}");
        }
    }

    #[test]
    fn e3_no_error_repeats_what_may_be_the_secret() {
        for text in [
            "K=hunter2",
            "K=hunter2:",
            "K=hunter2:hunter2",
            "=hunter2",
            "K K=hunter2",
            "K=command:'hunter2",
            "K=command:",
            "K=keyring:hunter2",
            "K=env:",
            "",
        ] {
            let failure = SecretFlag::read(text).unwrap_err();
            assert_eq!(failure.code, exit::USAGE);
            assert!(!failure.message.contains("hunter2"), "{}", failure.message);
        }
    }

    #[test]
    fn names_that_tell() {
        for name in [
            "GITHUB_TOKEN",
            "API_KEY",
            "key",
            "AWS_SECRET_ACCESS_KEY",
            "githubToken",
            "DB_PASSWORD",
            "GITHUB_PAT",
            "accessKey",
            "DB_PASS",
        ] {
            assert!(tells(name), "{name}");
        }
        for name in ["LOG_LEVEL", "KEYBOARD", "MONKEY_PATH", "HOME", "PATH", "PWD", "AUTHOR", "COMPASS"] {
            assert!(!tells(name), "{name}");
        }
    }

    fn command(line: &str, patience: Duration) -> Result<String, String> {
        let words: Vec<String> = shlex::split(line).unwrap();
        said(&words, patience).map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|Lacking(why, _)| why)
    }

    #[test]
    fn commands_say_a_value_in_time() {
        let long = Duration::from_secs(30);
        assert_eq!(command("printf 'a b\\n'", long).as_deref(), Ok("a b\n"));
        for (line, patience, why) in [
            ("sh -c 'exit 3'", long, "exit status: 3"),
            ("sh -c 'echo hunter2; exit 3'", long, "exit status: 3"),
            ("true", long, "said nothing"),
            ("/no/such/program", long, "No such file"),
            ("sleep 1000", Duration::from_millis(50), "did not end in time"),
            ("sh -c 'exec >&-; exec sleep 1000'", Duration::from_millis(50), "did not end within"),
            ("yes hunter2", long, "more than 64 KiB"),
        ] {
            let failed = command(line, patience).unwrap_err();
            assert!(failed.contains(why) && !failed.contains("hunter2"), "{line}: {failed}");
        }
    }

    #[test]
    fn values_are_what_a_variable_can_hold() {
        assert_eq!(without_newline(b"a\r\n".to_vec()), b"a");
        assert_eq!(without_newline(b"a\n\n".to_vec()), b"a\n");
        assert_eq!(without_newline(b"a\r".to_vec()), b"a\r");
        for (bytes, why) in [(vec![b'a', 0], "NUL"), (vec![0xff], "UTF-8"), (vec![b'a'; MOST + 1], "64 KiB")] {
            assert!(text(bytes).is_err_and(|Lacking(said, _)| said.contains(why)));
        }
    }
}
