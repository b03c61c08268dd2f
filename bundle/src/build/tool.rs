//! Runs the programs of the host that a build needs: apt-get, dpkg-deb, npm, tar and a python.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use super::caged::{Cage, Caged};
use super::error::BuildError;

/// One call of a program: arguments as a list, never through a shell, and an environment of what it needs alone.
pub(super) struct Tool<'a> {
    name: String,
    command: Command,
    input: Vec<u8>,
    cage: Option<(&'a Cage<'a>, Caged)>,
}

/// What is passed on of the user's environment, by name or beginning: where programs and settings are found, proxies,
/// certificate authorities, and the settings of npm, pip and apt (mirrors are configured there).
const KEPT: [&str; 12] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "APT_CONFIG",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NPM_TOKEN",
];
const KEPT_PREFIXES: [&str; 2] = ["npm_config_", "pip_"];
const KEPT_SUFFIX: &str = "_proxy";

/// So many of the last lines that a failed program printed are shown.
const LAST_LINES: usize = 8;

impl<'a> Tool<'a> {
    pub(super) fn new(program: impl AsRef<OsStr>) -> Self {
        let name = Path::new(&program).file_name().unwrap_or(program.as_ref()).to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.env_clear().envs(std::env::vars_os().filter(|(key, _)| is_kept(key)));
        // Output is parsed: no translations, no colours.
        command.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
        Self { name, command, input: Vec::new(), cage: None }
    }

    /// To be run in a cage: what was said of program, arguments, environment and directory by now counts no more.
    pub(super) fn within(self, cage: &'a Cage<'a>, mut caged: Caged) -> Tool<'a> {
        caged.env.extend([("LC_ALL".into(), "C.UTF-8".into()), ("NO_COLOR".into(), "1".into())]);
        Tool { cage: Some((cage, caged)), ..self }
    }

    pub(super) fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        for arg in args {
            match &mut self.cage {
                // All of them are names and paths that were read as text.
                Some((_, caged)) => caged.command.push(arg.as_ref().to_string_lossy().into_owned()),
                None => drop(self.command.arg(arg)),
            }
        }
        self
    }

    /// A subcommand and what it works on, which is never taken for options.
    pub(super) fn arg_list(self, subcommand: &str, list: &[impl AsRef<OsStr>]) -> Self {
        self.args([subcommand, "--"]).args(list)
    }

    pub(super) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    pub(super) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(super) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Runs it to its end and gives what it wrote to stdout.
    ///
    /// # Errors
    /// When it is missing, or fails: then with the last lines that it wrote to stderr.
    pub(super) fn output(mut self) -> Result<String, BuildError> {
        if let Some((cage, caged)) = &self.cage {
            self.command = cage(caged).map_err(|source| self.not_started(source))?;
        }
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(|source| self.not_started(source))?;
        let (input, stdin) = (std::mem::take(&mut self.input), child.stdin.take());
        // A program may write before it has read everything: feeding and reading go on side by side.
        // What runs in a cage is ended by the end of its input.
        let held = self.cage.is_some();
        let feeder = thread::spawn(move || {
            let mut stdin = stdin?;
            (stdin.write_all(&input).is_ok() && held).then_some(stdin)
        });
        let output = child.wait_with_output().map_err(|source| self.not_started(source))?;
        // A program that failed before it read its input says why itself.
        let _ = feeder.join();
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(self.failed(output.status, &output.stderr))
    }

    fn not_started(&self, source: io::Error) -> BuildError {
        if source.kind() == io::ErrorKind::NotFound {
            return BuildError::ToolMissing { program: self.name.clone() };
        }
        BuildError::Io { what: format!("starting {}", self.name), source }
    }

    fn failed(&self, status: ExitStatus, stderr: &[u8]) -> BuildError {
        BuildError::Tool {
            program: self.name.clone(),
            status: status.to_string(),
            code: status.code(),
            is_caged: self.cage.is_some(),
            output: last_lines(stderr),
        }
    }
}

fn is_kept(key: &OsString) -> bool {
    let Some(key) = key.to_str() else { return false };
    let lower = key.to_ascii_lowercase();
    KEPT.contains(&key) || lower.ends_with(KEPT_SUFFIX) || KEPT_PREFIXES.iter().any(|prefix| lower.starts_with(prefix))
}

fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
    // What a registry answered ends up here: it must not steer the terminal.
    last.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_input() {
        let text = "x".repeat(1 << 20);
        assert_eq!(Tool::new("cat").input(text.clone()).output().unwrap(), text);
        assert_eq!(Tool::new("true").input(text).output().unwrap(), "");
    }

    #[test]
    fn failures_tell_what_was_said() {
        let error = Tool::new("sh").args(["-c", "printf 'a\\nb\\033[1m\\n\\n' >&2; exit 3"]).output().unwrap_err();
        assert_eq!(error.to_string(), "sh failed (exit status: 3):\na\nb\u{fffd}[1m");
        let error = Tool::new("no-such-program").output().unwrap_err();
        assert_eq!(error.to_string(), "no-such-program: not found");
    }

    #[test]
    fn environment_is_cleaned() {
        for kept in
            ["PATH", "HOME", "https_proxy", "NO_PROXY", "npm_config_registry", "NPM_CONFIG_REGISTRY", "PIP_CERT"]
        {
            assert!(is_kept(&kept.into()), "{kept}");
        }
        for dropped in ["PYTHONPATH", "NODE_OPTIONS", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY", "MCP_REGISTRY_TOKEN"] {
            assert!(!is_kept(&dropped.into()), "{dropped}");
        }
    }
}
