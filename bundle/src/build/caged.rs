//! What the tools of registries need of a cage: npm and pip run in one, where the caller of the build gives a way to.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::Job;
use super::error::BuildError;
use super::interpreter::Interpreter;
use super::tool::Tool;
use super::tree;

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
    /// The port of this machine's loopback that it reaches, where it reaches anything.
    pub port: Option<u16>,
    /// Whether it starts programs: those of the machine, and what it finds in its directory.
    #[serde(default)]
    pub starts_programs: bool,
}

/// Makes the command that runs a program in a cage: its streams are the program's, its exit code is too, and the end of its
/// input ends the program.
pub type Cage<'a> = dyn Fn(&Caged) -> io::Result<Command> + 'a;

/// npm, started in `dir`: in a cage that reaches the gate alone, or as the user.
pub(super) fn npm<'a>(job: &Job<'a>, dir: &Path) -> Result<Tool<'a>, BuildError> {
    npm_that(job, dir, false)
}

/// npm that runs what packages want to be executed when they are installed: with the machine's programs, and the same cage beside.
pub(super) fn npm_with_programs<'a>(job: &Job<'a>, dir: &Path) -> Result<Tool<'a>, BuildError> {
    npm_that(job, dir, true)
}

fn npm_that<'a>(job: &Job<'a>, dir: &Path, starts_programs: bool) -> Result<Tool<'a>, BuildError> {
    let tool = Tool::new("npm").dir(dir);
    let Some(cage) = job.cage else { return Ok(tool) };
    let gate = job.gate()?;
    let program = program_of_npm()?;
    let search = search().to_string_lossy().into_owned();
    let mut caged = within("npm", dir)?;
    // Waiting and trying again is the gate's.
    let own = format!("registry={}\nfetch-retries=0\nfetch-timeout={}\nmaxsockets=8\n", gate.npm(), TIMEOUT * 1000);
    let settings = settings(dir, &own)?;
    caged.reads.push(modules_of_npm(&program));
    caged.command = vec!["node".into(), text(&program)?];
    caged.command.push(format!("--userconfig={settings}"));
    caged.command.push(format!("--cache={}", text(&dir.join(CACHE))?));
    caged.interpreter = Some(("node".into(), search));
    caged.port = Some(gate.port());
    if starts_programs {
        caged.purpose = "build: install scripts".into();
        caged.starts_programs = true;
        caged.reads.extend(PROGRAMS.iter().map(PathBuf::from).filter(|path| path.exists()));
    }
    Ok(tool.within(cage, caged))
}

/// Where a machine has its programs; the cage of an interpreter of the machine has its libraries.
const PROGRAMS: [&str; 3] = ["/usr", "/bin", "/etc/alternatives"];

/// pip, started in `dir`: in a cage that reaches the gate alone, or as the user.
pub(super) fn pip<'a>(job: &Job<'a>, python: &Interpreter, dir: &Path) -> Result<Tool<'a>, BuildError> {
    let tool = python.pip();
    let Some(cage) = job.cage else { return Ok(tool) };
    let gate = job.gate()?;
    let mut caged = python.caged(within("pip", dir)?)?;
    let own = format!("[global]\nindex-url = {}\nretries = 0\ntimeout = {TIMEOUT}\n", gate.simple());
    let settings = settings(dir, &own)?;
    let own =
        [("PIP_CONFIG_FILE", settings.as_str()), ("PIP_NO_CACHE_DIR", "1"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1")];
    caged.env.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
    caged.port = Some(gate.port());
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

/// How long a tool waits for an answer of the gate, in seconds: a file comes when all of it is there.
const TIMEOUT: u32 = 900;

/// The tool's settings. The secret word in them stands on no command line, which every user can read.
fn settings(dir: &Path, lines: &str) -> Result<String, BuildError> {
    let path = dir.join(SETTINGS);
    // Never by a link that a tool left.
    let write = |mut file: File| file.write_all(lines.as_bytes());
    match fs::remove_file(&path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => {
            return Err(BuildError::io("removing the settings of a tool")(why));
        }
        _ => {}
    }
    File::create_new(&path).and_then(write).map_err(BuildError::io("writing the settings of a tool"))?;
    text(&path)
}

const SETTINGS: &str = ".settings";

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

/// Where programs are looked for, also where the caller has no PATH.
fn search() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// npm's own file, which node is given: the one that `npm` in PATH leads to.
fn program_of_npm() -> Result<PathBuf, BuildError> {
    let found = std::env::split_paths(&search()).find_map(|dir| fs::canonicalize(dir.join("npm")).ok());
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
