//! From what a client starts to what smcp runs in its place, or why it is left alone. Pure: what is on the machine is asked by way of
//! [`Host`].

mod docker;
mod packages;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use bundle::build::{Known, known};
use distribution::{PackageName, Packages, Reference};

use crate::cli::{Cli, Command};
use crate::secrets::tells;
use crate::settings::is_setting;

use super::known::{grants, is_secret};

/// What is asked of the machine.
pub struct Host<'h> {
    /// The home directory.
    pub home: &'h Path,
    /// Where a path leads, without links and `..`; none where nothing is.
    pub leads: &'h dyn Fn(&Path) -> Option<PathBuf>,
    /// Where packages come from.
    pub packages: &'h Packages,
    /// Whether a word starts this very smcp: by its path, or by the name under which PATH has it.
    pub is_own: &'h dyn Fn(&str) -> bool,
    /// Whether packages of npm and PyPI are run by its interpreters.
    pub host_runtime: bool,
}

impl Host<'_> {
    /// Whether the home directory lies in what a path leads to.
    fn holds_home(&self, path: &Path) -> bool {
        self.home.starts_with(path) || (self.leads)(self.home).is_some_and(|home| home.starts_with(path))
    }
}

/// What a client starts.
#[derive(Clone, Copy, Debug)]
pub struct Started<'s> {
    /// Program and arguments.
    pub words: &'s [&'s str],
    /// Variables that the client sets, each with whether it has a value.
    pub env: &'s [(&'s str, bool)],
    /// The directory that it starts in.
    pub directory: Option<&'s str>,
    /// The project in whose file that stands, which others may have written.
    pub project: Option<&'s Path>,
}

impl Started<'_> {
    /// Whether something of the machine is a project's to name: for one in whose file it stands, what lies in it.
    fn may_name(&self, leads: &Path, host: &Host<'_>) -> bool {
        self.project.is_none_or(|project| (host.leads)(project).is_some_and(|project| leads.starts_with(project)))
    }
}

/// What smcp runs in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Flags of `run`.
    pub flags: Vec<String>,
    /// The package.
    pub reference: String,
    /// How many words of the client's are taken the place of, the program among them; the others are the server's.
    pub replaced: usize,
    /// What it reaches as it is.
    pub today: Vec<String>,
    /// What it is granted.
    pub granted: Vec<String>,
    /// What else there is to know.
    pub notes: Vec<String>,
}

/// Why something is not taken the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// smcp runs it already: this package.
    Caged(String),
    /// Why, for people.
    Alone(String),
}

/// A launcher's line as far as it is understood.
struct Line {
    /// The package.
    reference: Reference,
    /// Words of the line up to the server's arguments.
    length: usize,
    flags: Vec<String>,
    today: Vec<String>,
    granted: Vec<String>,
    notes: Vec<String>,
    /// The names of variables that reach the server; all that the client sets without it.
    variables: Option<Vec<String>>,
}

impl Line {
    /// Of a package that a launcher installs.
    fn of(reference: Reference, length: usize, launcher: &str) -> Line {
        let mut today = vec!["all your rights: every file of yours, every host, every program".to_owned()];
        let is_open = |package: &PackageName| package.version.is_none();
        if let Reference::Npm(package) | Reference::Pypi(package) = &reference
            && is_open(package)
        {
            today.push(format!("{launcher} may install another version at each start"));
        }
        let (flags, granted, notes) = Default::default();
        Line { reference, length, flags, today, granted, notes, variables: None }
    }
}

/// What smcp runs in the place of what a client starts.
///
/// # Errors
/// Where it is left alone.
pub fn recognise(started: Started<'_>, host: &Host<'_>) -> Result<Invocation, Left> {
    let before = unwrapped(started.words)?;
    let words = &started.words[before..];
    let steering = steering(&started)?;
    let line = line(words, &started, host)?;
    let args = &words[line.length..];
    let known = known(&line.reference, host.packages).ok().flatten();
    let mut flags = Vec::new();
    let mut granted = Vec::new();
    let mut notes = line.notes;
    notes.extend(steering);
    if let Some(directory) = started.directory {
        // A client may put something in its place that is not known here.
        if !Path::new(directory).is_absolute() {
            return Err(alone(format!("it starts in {directory}, which is no absolute path")));
        }
        let leads = (host.leads)(Path::new(directory));
        if leads.as_ref().is_some_and(|leads| host.holds_home(leads)) {
            return Err(alone(format!(
                "it starts in {directory}, which holds the home directory: too wide to be granted"
            )));
        }
        if leads.is_some_and(|leads| !started.may_name(&leads, host)) {
            return Err(alone(format!(
                "it starts in {directory}, and stands in a file of a project that does not hold it"
            )));
        }
        granted.push(format!("{directory} read-write: it starts there"));
        flags.extend(["--cwd".to_owned(), directory.to_owned()]);
    }
    let variables = variables(started.env, line.variables.as_deref(), known.as_ref());
    if !variables.is_empty() {
        let names: Vec<&str> = variables.iter().map(|(_, name)| name.as_str()).collect();
        granted.push(format!("the variables {}", names.join(", ")));
    }
    flags.extend(variables.into_iter().flat_map(|(flag, name)| [flag.to_owned(), name]));
    flags.extend(line.flags);
    if host.host_runtime && matches!(line.reference, Reference::Npm(_) | Reference::Pypi(_)) {
        flags.extend(["--runtime", "host"].map(String::from));
    }
    granted.extend(line.granted);
    match &known {
        // What stands behind an image is about what is in its container.
        None if line.variables.is_some() => {}
        Some(known) => {
            let defaults = grants(known, args);
            granted.extend(defaults.paths.iter().map(|path| format!("{path} read-write")));
            granted.extend(defaults.hosts.iter().map(|host| format!("connecting to {host}")));
            granted.extend(defaults.programs.iter().map(|program| format!("starting {program}")));
            notes.push(format!("well known: {}", known.why));
        }
        None => by_arguments(args, &started, host, &mut flags, &mut granted, &mut notes),
    }
    if !granted.iter().any(|what| what.starts_with("connecting")) {
        granted.push("nothing of the network".into());
    }
    let (reference, replaced) = (line.reference.to_string(), before + line.length);
    Ok(Invocation { flags, reference, replaced, today: line.today, granted, notes })
}

/// How many words stand before the launcher: those of Windows' `cmd /c` and of `env`.
fn unwrapped(words: &[&str]) -> Result<usize, Left> {
    match &words.iter().map(|word| program(word)).collect::<Vec<_>>()[..] {
        [first, ..] if first == "cmd" => match words {
            [_, flag, line, ..] if flag.eq_ignore_ascii_case("/c") && !line.contains(' ') => Ok(2),
            _ => Err(alone("it starts a command line of Windows")),
        },
        [first, ..] if first == "env" => match words {
            [_, next, ..] if !next.starts_with('-') && !next.contains('=') => Ok(1),
            _ => Err(alone("it starts by way of env")),
        },
        _ => Ok(0),
    }
}

/// The name of a program without its directory and Windows' endings.
fn program(word: &str) -> String {
    let name = word.rsplit(['/', '\\']).next().unwrap_or(word).to_ascii_lowercase();
    let ends = [".exe", ".cmd", ".bat", ".ps1"];
    ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name).to_owned()
}

const LAUNCHERS: &str = "npx, bunx, uvx, uv tool run, pipx run and docker run";

fn line(words: &[&str], started: &Started<'_>, host: &Host<'_>) -> Result<Line, Left> {
    let Some((first, rest)) = words.split_first() else { return Err(alone("it starts nothing")) };
    let is_own = (host.is_own)(first);
    let name = if is_own { "smcp".to_owned() } else { program(first) };
    match (name.as_str(), rest) {
        // A script can have the name, and say the same words.
        ("smcp", _) if !is_own => Err(alone(format!("{first} is not this smcp"))),
        ("smcp", ["run", ..]) => Err(caged(words, started)),
        ("smcp", _) => Err(alone("it starts smcp, but no `smcp run`")),
        ("npx", _) => packages::npx(words, 1),
        ("bunx", _) => packages::bunx(words, 1),
        ("bun", ["x", ..]) => packages::bunx(words, 2),
        ("uvx", _) => packages::uvx(words, 1),
        ("uv", ["tool", "run", ..]) => packages::uvx(words, 3),
        ("uv", _) => Err(alone("uv runs a project of this machine: smcp runs a directory with an smcp.toml, ./dir")),
        ("pipx", ["run", ..]) => packages::pipx(words, 2),
        ("docker", ["run", ..]) => docker::run(words, 2),
        ("docker", ["container", "run", ..]) => docker::run(words, 3),
        ("docker", _) => Err(alone("of docker, `docker run` alone has a counterpart")),
        ("sh" | "bash" | "dash" | "zsh" | "fish" | "ksh" | "powershell" | "pwsh", _) => {
            Err(alone("a shell starts it, and may do anything before"))
        }
        ("node", _) => packages::node(words),
        (name, _) if name == "py" || name.starts_with("python") => packages::python(words),
        (name, _) if name.contains(' ') => Err(alone("its command is a whole command line")),
        (name, _) => Err(alone(format!("{name} is none of {LAUNCHERS}"))),
    }
}

fn caged(words: &[&str], started: &Started<'_>) -> Left {
    let line: Vec<_> = words.iter().map(std::ffi::OsString::from).collect();
    let starts_more =
        |secret: &String| secret.split_once('=').is_some_and(|(_, source)| source.starts_with("command:"));
    match Cli::read(&line) {
        Ok(Cli { command: Command::Run(run), .. })
            if started.project.is_some() && run.secret.iter().any(starts_more) =>
        {
            alone("a file of the project has smcp start a program outside of the cage, by --secret K=command:")
        }
        Ok(Cli { command: Command::Run(run), .. }) => Left::Caged(run.reference().to_owned()),
        _ => alone("it starts `smcp run` with a command line that smcp refuses"),
    }
}

fn alone(why: impl Into<String>) -> Left {
    Left::Alone(why.into())
}

/// What is to be said of variables that are smcp's own as well: the client sets them for it, outside of the cage. Those of a project are
/// no word of the user's, and a name that is none would go behind a flag, where `K=command:…` is a program to start.
fn steering(started: &Started<'_>) -> Result<Option<String>, Left> {
    if let Some((name, _)) = started.env.iter().find(|(name, _)| !is_name(name)) {
        let name = name.split('=').next().unwrap_or_default().escape_debug();
        return Err(alone(format!("it sets a variable that begins with {name:?} and is none by its name")));
    }
    let names: Vec<&str> = started.env.iter().map(|(name, _)| *name).filter(|name| steers(name)).collect();
    match (names.join(", "), started.project.is_some()) {
        (names, _) if names.is_empty() => Ok(None),
        (names, true) => {
            Err(alone(format!("it sets {names}, which smcp itself would go by, and stands in a file of the project")))
        }
        (names, false) => Ok(Some(format!("smcp itself goes by {names} too, outside of the cage"))),
    }
}

/// Whether smcp goes by a variable, or what it starts outside of a cage does: where programs, files and registries are.
fn steers(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "PATH",
        "HOME",
        "TMPDIR",
        "DOCKER_CONFIG",
        "REGISTRY_AUTH_FILE",
        "HTTPS_PROXY",
        "HTTP_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ];
    const STARTS: [&str; 8] = ["XDG_", "LD_", "DYLD_", "NPM_CONFIG_", "UV_", "PIP_", "DBUS_", "SMCP_"];
    let name = name.to_ascii_uppercase();
    NAMES.contains(&name.as_str()) || STARTS.iter().any(|start| name.starts_with(start)) || is_setting(&name)
}

/// The flags by which variables reach the server, each with its name. Their values stay where the client has them.
fn variables(env: &[(&str, bool)], passed: Option<&[String]>, known: Option<&Known>) -> Vec<(&'static str, String)> {
    let reaches = |name: &str| match passed {
        Some(names) => names.iter().any(|passed| passed == name),
        None => !is_for_a_launcher(name),
    };
    let flag = |name: &str, has_value: bool| {
        let secret = tells(name) || known.is_some_and(|known| is_secret(known, name));
        if secret && has_value { "--secret" } else { "--env" }
    };
    let reaching = env.iter().filter(|(name, _)| reaches(name));
    reaching.map(|(name, has_value)| (flag(name, *has_value), (*name).to_owned())).collect()
}

/// Whether this is a variable's name: letters, digits, and of the signs those that names have, as in Windows' `ProgramFiles(x86)`.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '(' | ')');
    name.starts_with(|c: char| c.is_alphanumeric() || c == '_') && name.chars().all(plain)
}

/// Whether a variable is meant for what starts the server: smcp reads those of registries itself, and has its own PATH and HOME.
fn is_for_a_launcher(name: &str) -> bool {
    const NAMES: [&str; 6] = ["PATH", "HOME", "NODE_OPTIONS", "NODE_PATH", "PYTHONPATH", "VIRTUAL_ENV"];
    const STARTS: [&str; 5] = ["NPM_CONFIG_", "UV_", "PIP_", "PIPX_", "BUN_"];
    let name = name.to_ascii_uppercase();
    NAMES.contains(&name.as_str()) || STARTS.iter().any(|start| name.starts_with(start))
}

/// What arguments name of this machine is granted to a server that nobody knows: its user wrote them. In a file of a project others did.
fn by_arguments(
    args: &[&str],
    started: &Started<'_>,
    host: &Host<'_>,
    flags: &mut Vec<String>,
    granted: &mut Vec<String>,
    notes: &mut Vec<String>,
) {
    for word in args {
        let value = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with('-') => value,
            _ => word,
        };
        let path = Path::new(value);
        if let Some(leads) = path.is_absolute().then(|| (host.leads)(path)).flatten() {
            if host.holds_home(&leads) {
                notes.push(format!("{value} is an argument and too wide to be granted"));
            } else if !started.may_name(&leads, host) {
                notes.push(format!("{value} is an argument in a file of a project that does not hold it: not granted"));
            } else if SYSTEM.iter().any(|system| leads.starts_with(system)) {
                flags.extend(["--allow-read".to_owned(), value.to_owned()]);
                granted.push(format!("{value} read-only: an argument"));
            } else {
                flags.extend(["--allow-write".to_owned(), value.to_owned()]);
                granted.push(format!("{value} read-write: an argument"));
            }
        }
        if let Some(host) = host_of(value) {
            granted.push(format!("connecting to {host}: an argument"));
            flags.extend(match host.strip_prefix("localhost:").or(host.strip_prefix("127.0.0.1:")) {
                Some(port) => ["--allow-host-port".to_owned(), port.to_owned()],
                None => ["--allow-net".to_owned(), host],
            });
        }
    }
}

/// What no server has to write.
const SYSTEM: [&str; 9] = ["/usr", "/etc", "/bin", "/sbin", "/lib", "/boot", "/proc", "/sys", "/dev"];

/// `HOST:PORT` of a URL of the web.
fn host_of(word: &str) -> Option<String> {
    let (rest, port) = match word.strip_prefix("https://") {
        Some(rest) => (rest, 443),
        None => (word.strip_prefix("http://")?, 80),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_plain = !host.is_empty() && host.chars().all(plain) && host.matches(':').count() <= 1;
    match is_plain {
        true if has_port => Some(host.to_ascii_lowercase()),
        true if !host.contains(':') => Some(format!("{}:{port}", host.to_ascii_lowercase())),
        _ => None,
    }
}
