//! What the clients of this machine start, as it stands in their files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use distribution::{Packages, Secret};
use serde_json::{Value, json};

use super::edit::Key;
use super::entries::{Entry, entries};
use super::file::ConfigFile;
use super::recognise::{Host, Invocation, Left, Started, recognise};
use super::table::{CLIENTS, Client, Machine};
use crate::exit::{self, Failure};
use crate::secrets::tells;
use crate::settings::read_small;
use crate::show::one_line;

/// A client's file, and what stands in it.
#[derive(Debug)]
pub struct Looked {
    /// Whose it is.
    pub client: &'static Client,
    /// Where the client looks for it.
    pub path: PathBuf,
    /// The project whose file it is.
    pub project: Option<PathBuf>,
    /// The file; why it cannot be read.
    pub file: Result<ConfigFile, String>,
    /// What stands in it.
    pub rows: Vec<Row>,
}

impl Looked {
    /// The file as JSON, with each server by what `about` says of it, an object.
    pub fn in_json(&self, about: impl Fn(&Row) -> Value) -> Value {
        let row = |row: &Row| {
            let mut value = about(row);
            value["name"] = json!(row.key.name);
            value["command"] = json!(row.shown);
            value["within"] = json!(row.key.within);
            value
        };
        json!({
            "client": self.client.id,
            "path": self.path.display().to_string(),
            "project": self.project.as_ref().map(|project| project.display().to_string()),
            "error": self.file.as_ref().err(),
            "servers": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// One server.
#[derive(Debug)]
pub struct Row {
    /// Which.
    pub key: Key,
    /// Its name, for people.
    pub title: String,
    /// What the client starts, without what may be a secret.
    pub shown: String,
    /// What smcp makes of it.
    pub state: Result<Open, Left>,
}

/// A server that smcp can take the place of.
#[derive(Debug)]
pub struct Open {
    /// How.
    pub invocation: Invocation,
    /// The arguments that stay.
    pub args: Vec<String>,
    /// What the client sets.
    pub env: Vec<(String, Secret)>,
    /// [`Start::outline`](super::entries::Start::outline) of what was looked at.
    pub outline: Vec<String>,
}

impl Open {
    /// The same as [`Open::words`], for people.
    pub fn masked(&self, smcp: &str) -> Vec<String> {
        let words = self.words(smcp);
        masked(&words.iter().map(String::as_str).collect::<Vec<_>>(), self.invocation.flags.len() + 2)
    }

    /// The words in the place of those that are replaced.
    pub fn words(&self, smcp: &str) -> Vec<String> {
        let Invocation { flags, reference, .. } = &self.invocation;
        let head = [smcp.to_owned(), "run".to_owned()];
        head.into_iter().chain(flags.iter().cloned()).chain([reference.clone()]).collect()
    }
}

/// The clients of some words; all without any.
///
/// # Errors
/// Where a word is none.
pub fn clients(words: &[String]) -> Result<Vec<&'static Client>, Failure> {
    let named = |word: &String| {
        Client::named(word).ok_or_else(|| {
            let known: Vec<&str> = CLIENTS.iter().map(|client| client.id).collect();
            Failure::new(exit::USAGE, format!("{word:?} is no client that smcp knows"))
                .hint(format!("one of {}", known.join(", ")))
        })
    };
    match words.is_empty() {
        true => Ok(CLIENTS.iter().collect()),
        false => words.iter().map(named).collect(),
    }
}

/// This machine.
///
/// # Errors
/// Where there is no home directory.
pub fn machine() -> Result<Machine, Failure> {
    Machine::this().ok_or_else(|| {
        Failure::new(exit::CONFIGURATION, "there is no home directory, where clients have their files").hint("set HOME")
    })
}

/// What stands in the files of some clients. A file that two paths lead to is there once.
///
/// # Errors
/// Where there is no home directory.
pub fn look(clients: &[&'static Client], own: &str, host_runtime: bool) -> Result<Vec<Looked>, Failure> {
    let machine = machine()?;
    let packages = Packages::of(machine.home());
    let leads = |path: &Path| path.canonicalize().ok();
    let program = leads(Path::new(own));
    let is_own = |word: &str| word == own || found(word).is_some_and(|path| leads(&path) == program);
    let host = Host { home: machine.home(), leads: &leads, packages: &packages, is_own: &is_own, host_runtime };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for client in clients {
        for location in client.locations(&machine) {
            let file = match ConfigFile::read(&location.path) {
                Ok(None) => continue,
                Ok(Some(file)) if !seen.insert(file.target.clone()) => continue,
                Ok(Some(file)) => Ok(file),
                Err(why) => Err(why),
            };
            let rows = file.as_ref().map_err(Clone::clone);
            let rows = rows.and_then(|file| rows_of(client, file, location.project.as_deref(), &host));
            let (file, rows) = match rows {
                Ok(rows) => (file, rows),
                Err(why) => (Err(why), Vec::new()),
            };
            found.push(Looked { client, path: location.path, project: location.project, file, rows });
        }
    }
    Ok(found)
}

/// The file that a command's first word starts.
fn found(word: &str) -> Option<PathBuf> {
    if Path::new(word).is_absolute() {
        return Some(word.into());
    }
    let is_name = Path::new(word).file_name().is_some_and(|name| name == word);
    let path = std::env::var_os("PATH").filter(|_| is_name)?;
    let named = |directory: PathBuf| {
        [directory.join(word), directory.join(word).with_extension(std::env::consts::EXE_EXTENSION)]
    };
    std::env::split_paths(&path).filter(|directory| directory.is_absolute()).flat_map(named).find(|path| path.is_file())
}

/// The servers of a file.
///
/// # Errors
/// Where it cannot be understood.
pub fn rows_of(
    client: &Client,
    file: &ConfigFile,
    project: Option<&Path>,
    host: &Host<'_>,
) -> Result<Vec<Row>, String> {
    let text = file.text()?.text;
    let root = client.dialect.read(text).map_err(|why| why.to_string())?;
    let Some(root) = root else { return Ok(Vec::new()) };
    Ok(entries(&root, &client.shape).iter().map(|entry| row(client, entry, project, host)).collect())
}

fn row(client: &Client, entry: &Entry<'_>, project: Option<&Path>, host: &Host<'_>) -> Row {
    let start = entry.start(&client.shape);
    let words: Vec<&str> = start.iter().flat_map(|start| start.words.iter().map(|(word, _)| *word)).collect();
    let state = start.map_err(Left::Alone).and_then(|start| {
        let outline = start.outline();
        let mut env = start.env;
        if let Some(file) = &start.env_file {
            env.extend(of_file(file, project).map_err(Left::Alone)?);
        }
        let names: Vec<(&str, bool)> =
            env.iter().map(|(name, value)| (name.as_str(), !value.expose().is_empty())).collect();
        let started = Started { words: &words, env: &names, directory: start.directory.as_deref(), project };
        let invocation = recognise(started, host)?;
        let args = words[invocation.replaced..].iter().map(|word| (*word).to_owned()).collect();
        Ok(Open { invocation, args, env, outline })
    });
    Row { key: Key::of(entry), title: entry.title(), shown: shown(&words), state }
}

/// The variables of a file that the client reads itself: their names are needed.
fn of_file(file: &str, project: Option<&Path>) -> Result<Vec<(String, Secret)>, String> {
    let path = match (file.strip_prefix("${workspaceFolder}/"), project) {
        (Some(rest), Some(project)) => project.join(rest),
        _ => PathBuf::from(file),
    };
    let unknown = |why: String| format!("its envFile {file}: {why}");
    if !path.is_absolute() {
        return Err(unknown("where that is the client alone knows".into()));
    }
    let bytes = read_small(&path).map_err(|why| unknown(why.to_string()))?;
    let flags = bundle::parse_env_file(&bytes).map_err(|why| unknown(why.to_string()))?;
    Ok(flags.into_iter().filter_map(|flag| Some((flag.name, flag.value?))).collect())
}

/// A command line for people.
fn shown(words: &[&str]) -> String {
    one_line(&masked(words, 0).join(" "))
}

/// The words of a command line without what may be a secret. What follows `--secret` and `--env` are names in the first `ours` of them,
/// which smcp has made.
pub fn masked(words: &[&str], ours: usize) -> Vec<String> {
    let is_name = |at: usize| at > 0 && at < ours && matches!(words[at - 1], "--secret" | "--env");
    let word = |(at, hidden): (usize, bool)| match words[at].split_once('=') {
        Some((name, _)) if hidden && is_plain(name) && may_tell(&plain(name)) => format!("{name}=…"),
        None if is_name(at) => words[at].to_owned(),
        _ if hidden => "…".to_owned(),
        _ => words[at].to_owned(),
    };
    hidden(words).into_iter().enumerate().map(word).collect()
}

/// How secrets begin by themselves, whatever stands before them: those of AI services, forges, clouds and chats, and JSON web tokens.
const ISSUED: [&str; 19] = [
    "sk-",
    "sk_",
    "rk_",
    "pk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "npm_",
    "eyJ",
];

/// Whether a name may stand before a secret: more than those of variables, since what is hidden here is hidden from people alone.
fn may_tell(name: &str) -> bool {
    const PARTS: [&str; 5] = ["AUTH", "PWD", "SIG", "SID", "DSN"];
    tells(name) || name.to_ascii_uppercase().split(['_', '-', '.']).any(|part| PARTS.contains(&part))
}

/// Whether each word of a command line may be a secret.
pub fn hidden(words: &[&str]) -> Vec<bool> {
    let tells_of = |word: &str| may_tell(&plain(word.split('=').next().unwrap_or(word)));
    let behind =
        |at: usize| at > 0 && words[at - 1].starts_with('-') && !words[at - 1].contains('=') && tells_of(words[at - 1]);
    // What stands before any `=` or `:` may be the name of what follows: a variable, a header, a part of an address.
    let named = |word: &str| {
        word.match_indices(['=', ':']).any(|(end, _)| {
            let name = word[..end].trim_end_matches('"').rsplit(|letter| !is_of_a_name(letter)).next();
            name.is_some_and(|name| may_tell(&plain(name)))
        })
    };
    let within = |at: usize| {
        named(words[at])
            || words[at].split(|letter| !is_of_a_name(letter)).any(|part| ISSUED.iter().any(|start| part.starts_with(start)))
            || words[at].to_ascii_lowercase().contains("authorization") && words[at].contains(':')
            || words[at].contains("Bearer ")
            || words[at]
                .split_once("://")
                .is_some_and(|(_, rest)| rest.split('/').next().unwrap_or_default().contains('@'))
            // As databases have it, `USER:PASSWORD@tcp(HOST)`.
            || words[at].split_once('@').is_some_and(|(login, _)| login.contains(':'))
    };
    (0..words.len()).map(|at| within(at) || behind(at)).collect()
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.".contains(letter)
}

fn is_plain(name: &str) -> bool {
    name.chars().all(is_of_a_name)
}

fn plain(flag: &str) -> String {
    flag.trim_start_matches('-').replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        for (words, want) in [
            (&["npx", "x", "--api-key", "hunter2", "y"][..], "npx x --api-key … y"),
            (&["npx", "x", "--api-key=hunter2"], "npx x --api-key=…"),
            (&["npx", "x", "ACME_TOKEN=hunter2"], "npx x ACME_TOKEN=…"),
            (&["npx", "x", "--header", "Authorization: Bearer hunter2"], "npx x --header …"),
            (&["npx", "git+https://me:hunter2@x.test/a"], "npx …"),
            (&["npx", "x", "--header", "Authorization: Basic aHVudGVyMg=="], "npx x --header …"),
            (&["npx", "x", "--header", "X-Api-Key: hunter2"], "npx x --header …"),
            (&["npx", "x", "postgres://me:hunter2@h/db?sslmode=off"], "npx x …"),
            (&["npx", "x", "https://h/?a=1&api_key=hunter2"], "npx x …"),
            (&["npx", "x", "--token", "aHVudGVyMg=="], "npx x --token …"),
            (&["npx", "x", "{\"password\":\"hunter2\"}"], "npx x …"),
            (&["npx", "x", "--pass", "hunter2", "--pwd=hunter2", "--pat", "hunter2"], "npx x --pass … --pwd=… --pat …"),
            (
                &["npx", "x", "--auth", "hunter2", "--bearer", "hunter2", "--jwt", "hunter2"],
                "npx x --auth … --bearer … --jwt …",
            ),
            (&["npx", "x", "--accessKey", "hunter2", "--cookie", "sid=hunter2"], "npx x --accessKey … --cookie sid=…"),
            (&["npx", "x", "sk-ant-hunter2", "--with", "ghp_hunter2", "a=AKIAhunter2"], "npx x … --with … …"),
            (&["npx", "x", "me:hunter2@tcp(db)/x", "Server=db;Pwd=hunter2", "https://h/?sig=hunter2"], "npx x … … …"),
            (
                &["npx", "x", "@scope/name", "--pattern", "a", "--author=me", "--signal", "TERM"],
                "npx x @scope/name --pattern a --author=me --signal TERM",
            ),
            // Whose flag it is nobody knows.
            (&["npx", "x", "--secret", "hunter2"], "npx x --secret …"),
            (&["npx", "x", "--root", "/home/me/a:b", "LOG=debug"], "npx x --root /home/me/a:b LOG=debug"),
        ] {
            assert_eq!(shown(words), want);
        }
    }

    #[test]
    fn names_are_shown_in_what_smcp_has_made() {
        let words =
            ["smcp", "run", "--secret", "API_KEY", "--env", "DB=x://me:hunter2@h", "npm:x", "--secret", "hunter2"];
        let want = ["smcp", "run", "--secret", "API_KEY", "--env", "…", "npm:x", "--secret", "…"];
        assert_eq!(masked(&words, 6), want);
    }
}
