//! What the tools of registries need of a cage: npm and pip run in one, where the caller of the build gives a way to.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Job;
use super::error::BuildError;
use super::interpreter::Interpreter;
use super::tool::Tool;
use super::tree;
use crate::grant::Egress;
use crate::outbound::{Host, Outbound};

/// A program to be run in a cage that has this and nothing else of the machine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Caged {
    /// What it is run for, for the audit log.
    pub purpose: String,
    /// The interpreter of the machine that runs it: its name and the directories in which it is looked for, as in PATH.
    pub interpreter: Option<(String, String)>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Files and directories that it reads, at the same paths.
    pub reads: Vec<PathBuf>,
    /// The directory that it writes, at the same path; it starts there.
    pub dir: PathBuf,
    /// Variables beside those that every cage has.
    pub env: Vec<(String, String)>,
    /// Where it may connect to.
    pub egress: Egress,
    /// A file of certificates that it trusts, in place of the machine's.
    pub certificates: Option<PathBuf>,
}

/// Makes the command that runs a program in a cage: its streams are the program's, its exit code is too, and the end of its
/// input ends the program.
pub type Cage<'a> = dyn Fn(&Caged) -> io::Result<Command> + 'a;

/// npm, started in `dir`: in a cage that reaches the registries that npm's own settings name, or as the user.
pub(super) fn npm<'a>(job: &Job<'a>, dir: &Path) -> Result<Tool<'a>, BuildError> {
    let tool = Tool::new("npm").dir(dir);
    let Some(cage) = job.cage else { return Ok(tool) };
    let answer = Tool::new("npm").dir(dir).args(["config", "list", "--json"]).output()?;
    let settings: Value = serde_json::from_str(&answer).map_err(|why| BuildError::answer("npm", why.to_string()))?;
    let program = program_of_npm()?;
    let search = std::env::var("PATH").unwrap_or_default();
    let mut caged = within("npm", dir)?;
    caged.reads.push(modules_of_npm(&program));
    caged.command = vec!["node".into(), text(&program)?];
    caged.interpreter = Some(("node".into(), search));
    let registries = settings
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| *key == "registry" || (key.starts_with('@') && key.ends_with(":registry")));
    for (key, url) in registries {
        let url = url.as_str().unwrap_or_default();
        reach(&mut caged.egress, url)?;
        caged.command.push(format!("--{key}={url}"));
    }
    caged.command.push(format!("--cache={}", text(&dir.join(CACHE))?));
    caged.certificates = settings["cafile"].as_str().map(PathBuf::from);
    Ok(tool.within(cage, caged))
}

/// pip, started in `dir`: in a cage that reaches the indexes that pip's own settings name, or as the user.
pub(super) fn pip<'a>(job: &Job<'a>, python: &Interpreter, dir: &Path) -> Result<Tool<'a>, BuildError> {
    let tool = python.pip();
    let Some(cage) = job.cage else { return Ok(tool) };
    let settings = python.pip().args(["config", "list"]).output()?;
    let mut caged = python.caged(within("pip", dir)?)?;
    let index = setting(&settings, "index-url").unwrap_or_else(|| PYPI.to_owned());
    let more = setting(&settings, "extra-index-url").unwrap_or_default();
    for url in std::iter::once(index.as_str()).chain(more.split_whitespace()) {
        reach(&mut caged.egress, url)?;
        if let Some((_, files)) = FILES.iter().find(|(index, _)| url.starts_with(index)) {
            reach(&mut caged.egress, files)?;
        }
    }
    let own =
        [("PIP_INDEX_URL", index.clone()), ("PIP_EXTRA_INDEX_URL", more.clone()), ("PIP_NO_CACHE_DIR", "1".into())];
    let own = own.into_iter().chain([("PIP_DISABLE_PIP_VERSION_CHECK", "1".into())]);
    caged.env.extend(own.filter(|(_, value)| !value.is_empty()).map(|(name, value)| (name.to_owned(), value)));
    caged.certificates = setting(&settings, "cert").map(PathBuf::from);
    Ok(tool.within(cage, caged))
}

/// pip, started in `dir`, that reaches nothing.
pub(super) fn pip_offline<'a>(job: &Job<'a>, python: &Interpreter, dir: &Path) -> Result<Tool<'a>, BuildError> {
    match job.cage {
        None => Ok(python.pip()),
        Some(cage) => Ok(python.pip().within(cage, python.caged(within("pip", dir)?)?)),
    }
}

/// Tells that a file or directory that a tool made in `dir` is one, and that no link of the tool's leads out of there: smcp
/// reads and writes with the user's rights what the tool could not.
pub(super) fn made_within(dir: &Path, path: &Path) -> Result<(), BuildError> {
    let canonical = |path: &Path| {
        let what = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::canonicalize(path).map_err(BuildError::io(format!("reading {what}")))
    };
    let target = canonical(path)?;
    match target.starts_with(canonical(dir)?) {
        true => Ok(()),
        false => Err(BuildError::Link { path: path.into(), target }),
    }
}

/// The same of all that is in a directory of `dir`.
pub(super) fn all_made_within(dir: &Path, tree: &Path) -> Result<(), BuildError> {
    made_within(dir, tree)?;
    let links = tree::entries(tree, &|_| true)?.into_iter().filter(|(_, kind)| kind.is_symlink());
    links.into_iter().try_for_each(|(path, _)| made_within(dir, &tree.join(path)))
}

/// Where pip looks when nobody says otherwise.
const PYPI: &str = "https://pypi.org/simple";

/// Indexes whose files are on another host.
const FILES: [(&str, &str); 2] = [
    ("https://pypi.org/", "https://files.pythonhosted.org/"),
    ("https://test.pypi.org/", "https://test-files.pythonhosted.org/"),
];

/// Directories of the tool's own in the one that it writes: on the disk, where a private `/tmp` would be memory.
const CACHE: &str = ".cache";
const TEMPORARY: &str = ".tmp";

fn within(program: &str, dir: &Path) -> Result<Caged, BuildError> {
    let temporary = dir.join(TEMPORARY);
    fs::create_dir_all(&temporary).map_err(BuildError::io("making a directory"))?;
    Ok(Caged {
        purpose: format!("build: {program}"),
        dir: dir.into(),
        env: vec![("TMPDIR".into(), text(&temporary)?)],
        ..Caged::default()
    })
}

/// A path as an argument.
pub(super) fn text(path: &Path) -> Result<String, BuildError> {
    let odd = || BuildError::Cage(format!("{} is not UTF-8", path.display()));
    path.to_str().map(str::to_owned).ok_or_else(odd)
}

/// npm's own file, which node is given: the one that `npm` in PATH leads to.
fn program_of_npm() -> Result<PathBuf, BuildError> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).find_map(|dir| fs::canonicalize(dir.join("npm")).ok());
    let found = found.ok_or_else(|| BuildError::ToolMissing { program: "npm".into() })?;
    match found.extension().is_some_and(|end| end == "js") {
        true => Ok(found),
        false => Err(BuildError::Cage(format!("{} starts npm and is no script of node", found.display()))),
    }
}

/// What npm needs beside that file: its own package, or in Debian's arrangement all modules.
fn modules_of_npm(program: &Path) -> PathBuf {
    let named = |name: &str| program.ancestors().skip(1).find(|dir| dir.ends_with(name)).map(Path::to_owned);
    let own = program.parent().and_then(Path::parent).unwrap_or(program).to_owned();
    named("usr/share/nodejs").unwrap_or(own)
}

/// The value of a setting in what `pip config list` prints, `SECTION.KEY='VALUE'` a line; in the order in which pip lets
/// one outweigh another.
fn setting(list: &str, key: &str) -> Option<String> {
    let of = |section: &str| {
        let start = format!("{section}.{key}=");
        let value = list.lines().find_map(|line| line.strip_prefix(&start))?;
        Some(value.trim_matches(['\'', '"']).replace("\\n", " ").trim().to_owned())
    };
    [":env:", "download", "global"].into_iter().find_map(of).filter(|value| !value.is_empty())
}

/// Adds where a URL leads to. The machine's own loopback is reached by its port.
fn reach(egress: &mut Egress, url: &str) -> Result<(), BuildError> {
    let wrong = |why: &str| BuildError::Cage(format!("the registry {}: {why}", url.escape_debug()));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it is no URL"))?;
    let port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err(wrong("it is neither http nor https")),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        // Not shown: it is a secret.
        return Err(BuildError::Cage("the URL of a registry holds a password, which no cage is given".into()));
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let destination = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let outbound: Outbound = destination.parse().map_err(|_| wrong("its host is no host"))?;
    let is_own = match &outbound.host {
        Host::Name(name) => name == "localhost",
        Host::Address(address) => address.is_loopback(),
        Host::Suffix(_) | Host::Range { .. } => return Err(wrong("its host is no host")),
    };
    match is_own {
        true => egress.host_ports.extend(outbound.ports),
        false => egress.outbound.push(outbound),
    }
    egress.host_ports.sort_unstable();
    egress.host_ports.dedup();
    egress.outbound.sort_unstable();
    egress.outbound.dedup();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_registries_are() {
        let reached = |url: &str| {
            let mut egress = Egress::default();
            reach(&mut egress, url).map(|()| serde_json::to_string(&egress).unwrap()).map_err(|why| why.to_string())
        };
        let table = [
            ("https://registry.npmjs.org/", r#"registry.npmjs.org"#),
            ("https://Mirror.acme.test:8443/npm/", "mirror.acme.test"),
            ("http://10.1.2.3/simple", "10.1.2.3"),
            ("http://localhost:4873", "4873"),
            ("http://[::1]:4873/", "4873"),
        ];
        for (url, holds) in table {
            let got = reached(url).unwrap();
            assert!(got.contains(holds) && !got.contains("localhost"), "{url}: {got}");
        }
        for url in ["file:///srv/npm", "registry.npmjs.org", "https://*.acme.test/", "https:///x"] {
            assert!(reached(url).is_err(), "{url}");
        }
        let error = reached("https://eve:hunter2@acme.test/").unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn links_of_a_tool_lead_nowhere() {
        let (dir, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("site")).unwrap();
        fs::write(at("site/a"), "").unwrap();
        std::os::unix::fs::symlink("a", at("site/b")).unwrap();
        all_made_within(dir.path(), &at("site")).unwrap();
        fs::write(home.path().join("key"), "").unwrap();
        std::os::unix::fs::symlink(home.path().join("key"), at("site/c")).unwrap();
        assert!(matches!(all_made_within(dir.path(), &at("site")), Err(BuildError::Link { .. })));
        std::os::unix::fs::symlink(home.path(), at("wheels")).unwrap();
        assert!(matches!(all_made_within(dir.path(), &at("wheels")), Err(BuildError::Link { .. })));
        assert!(made_within(dir.path(), &at("none")).is_err());
    }

    #[test]
    fn settings_of_pip() {
        let list = "global.index-url='https://a.test/simple'\n:env:.index-url='https://b.test/simple'\n\
                    global.extra-index-url='\\nhttps://c.test\\nhttps://d.test'\nglobal.cert=''\n";
        assert_eq!(setting(list, "index-url").as_deref(), Some("https://b.test/simple"));
        assert_eq!(setting(list, "extra-index-url").as_deref(), Some("https://c.test https://d.test"));
        assert_eq!(setting(list, "cert"), None);
    }
}
