//! npx, bunx, uvx and pipx, and the interpreters that start what they would install.

use std::path::Path;

use bundle::build::well_known;
use distribution::{Reference, normal_name};

use super::{Left, Line, alone};

/// What a flag of a launcher is to smcp.
enum Flag {
    /// Nothing: it is about how the launcher installs or speaks.
    Nothing,
    /// The same, with a value behind it.
    NothingWith,
    /// The package, where the program has another name.
    Package,
    /// Something that has no counterpart.
    Unknown,
}

/// A launcher's flags, up to the word that names a package or a program of one.
struct Read {
    /// Of the flag of the package.
    package: Option<String>,
    /// Where the name stands.
    at: usize,
}

fn read(words: &[&str], from: usize, launcher: &str, meaning: impl Fn(&str) -> Flag) -> Result<Read, Left> {
    let mut read = Read { package: None, at: from };
    loop {
        let Some(word) = words.get(read.at) else { return Err(alone(format!("{launcher} names no package"))) };
        if *word == "--" {
            read.at += 1;
            return Ok(read);
        }
        if !word.starts_with('-') {
            return Ok(read);
        }
        let (flag, joined) = word.split_once('=').map_or((*word, None), |(flag, value)| (flag, Some(value)));
        let value = || joined.or(words.get(read.at + 1).copied());
        match meaning(flag) {
            Flag::Nothing => read.at += 1,
            Flag::NothingWith => read.at += if joined.is_some() { 1 } else { 2 },
            Flag::Package if read.package.is_some() => {
                return Err(alone(format!("{launcher} is given several packages")));
            }
            Flag::Package => {
                read.package = value().map(str::to_owned);
                read.at += if joined.is_some() { 1 } else { 2 };
            }
            Flag::Unknown => return Err(alone(format!("{launcher}'s {flag} has no counterpart"))),
        }
    }
}

/// A package of npm, and which of its programs.
fn of_npm(words: &[&str], read: Read, launcher: &str) -> Result<Line, Left> {
    const SCRIPTS: [&str; 4] = ["tsx", "ts-node", "nodemon", "tsc"];
    let word = words.get(read.at).ok_or_else(|| alone(format!("{launcher} names no package")))?;
    let spec = read.package.as_deref().unwrap_or(word);
    let reference = format!("npm:{spec}").parse();
    let Ok(Reference::Npm(package)) = reference else {
        return Err(alone(format!("{} is no package of npm's registry", named(spec))));
    };
    if SCRIPTS.contains(&package.name.as_str()) {
        return Err(alone(format!("{} runs a script of this machine", package.name)));
    }
    if package.name == "mcp-remote" {
        return Err(alone("mcp-remote speaks for a remote server: nothing else runs on this machine"));
    }
    let own_name = package.name.rsplit('/').next().unwrap_or_default().to_owned();
    let mut line = Line::of(Reference::Npm(package), read.at + 1, launcher);
    if read.package.is_some() && *word != own_name {
        line.flags.extend(["--bin".to_owned(), (*word).to_owned()]);
    }
    Ok(line)
}

/// What is named as a package, for people: an address may hold a password.
fn named(spec: &str) -> &str {
    if spec.contains("://") { "an address" } else { spec }
}

/// `npx [FLAGS] PACKAGE[@V]`, `npx -p PACKAGE PROGRAM`
pub fn npx(words: &[&str], from: usize) -> Result<Line, Left> {
    let read = read(words, from, "npx", |flag| match flag {
        "-y" | "--yes" | "-q" | "--quiet" | "-s" | "--silent" | "--prefer-offline" | "--prefer-online"
        | "--ignore-existing" => Flag::Nothing,
        "-p" | "--package" => Flag::Package,
        "--loglevel" => Flag::NothingWith,
        _ => Flag::Unknown,
    })?;
    of_npm(words, read, "npx")
}

/// The same of bun.
pub fn bunx(words: &[&str], from: usize) -> Result<Line, Left> {
    let read = read(words, from, "bunx", |flag| match flag {
        "--silent" | "--verbose" | "--no-install" | "-y" => Flag::Nothing,
        "-p" | "--package" => Flag::Package,
        _ => Flag::Unknown,
    })?;
    of_npm(words, read, "bunx")
}

/// A package of PyPI, and which of its programs.
fn of_pypi(words: &[&str], read: Read, launcher: &str) -> Result<Line, Left> {
    let word = words.get(read.at).ok_or_else(|| alone(format!("{launcher} names no package")))?;
    let spec = read.package.as_deref().unwrap_or(word);
    // uv's own spelling of a version.
    let spec = match spec.split_once('@') {
        Some((name, "latest")) => name.to_owned(),
        Some((name, version)) if !version.contains('/') && !version.contains(' ') => format!("{name}=={version}"),
        _ => spec.to_owned(),
    };
    let Ok(Reference::Pypi(package)) = format!("pypi:{spec}").parse() else {
        return Err(alone(format!("{} is no package of PyPI, or one with more beside its version", named(&spec))));
    };
    let own_name = normal_name(&package.name);
    let mut line = Line::of(Reference::Pypi(package), read.at + 1, launcher);
    if read.package.is_some() && normal_name(word) != own_name {
        line.flags.extend(["--bin".to_owned(), (*word).to_owned()]);
    }
    if words[..read.at].iter().any(|word| word.starts_with("--python")) || words[..read.at].contains(&"-p") {
        line.notes.push("which python it runs by is smcp's choice".into());
    }
    Ok(line)
}

/// `uvx [FLAGS] PACKAGE[@V|==V]`, `uvx --from PACKAGE PROGRAM`
pub fn uvx(words: &[&str], from: usize) -> Result<Line, Left> {
    let read = read(words, from, "uvx", |flag| match flag {
        "-q" | "--quiet" | "-v" | "--verbose" | "-n" | "--no-cache" | "--isolated" | "--no-progress" | "--refresh"
        | "--native-tls" | "--no-config" => Flag::Nothing,
        "--python" | "-p" | "--color" => Flag::NothingWith,
        "--from" => Flag::Package,
        _ => Flag::Unknown,
    })?;
    of_pypi(words, read, "uvx")
}

/// `pipx run [FLAGS] PACKAGE[==V]`, `pipx run --spec PACKAGE PROGRAM`
pub fn pipx(words: &[&str], from: usize) -> Result<Line, Left> {
    let read = read(words, from, "pipx", |flag| match flag {
        "-q" | "--quiet" | "-v" | "--verbose" | "--no-cache" => Flag::Nothing,
        "--python" => Flag::NothingWith,
        "--spec" => Flag::Package,
        _ => Flag::Unknown,
    })?;
    of_pypi(words, read, "pipx")
}

/// `python -m MODULE`, of well-known servers: of others nobody knows which package a module is from.
pub fn python(words: &[&str]) -> Result<Line, Left> {
    let at = 1 + words[1..].iter().take_while(|word| ["-u", "-B", "-I", "-s", "-E"].contains(word)).count();
    let (Some(&"-m"), Some(module)) = (words.get(at), words.get(at + 1)) else { return Err(alone(SCRIPT)) };
    let name = format!("pypi:{}", normal_name(module));
    let known = well_known().into_iter().find(|known| known.name == name);
    let known = known.ok_or_else(|| alone(format!("which package the module {module} is from is not known")))?;
    let reference = known.name.parse().map_err(|_| alone(SCRIPT))?;
    let mut line = Line::of(reference, at + 2, "python");
    line.today.truncate(1);
    line.notes.push(format!("the module {module} is taken for that of {}, in its newest version", known.name));
    Ok(line)
}

/// `node …/node_modules/PACKAGE/…`, of well-known servers: others may be of any registry, or of none.
pub fn node(words: &[&str]) -> Result<Line, Left> {
    let script = words.get(1).filter(|word| !word.starts_with('-')).ok_or_else(|| alone(SCRIPT))?;
    let parts: Vec<&str> = Path::new(script).iter().filter_map(|part| part.to_str()).collect();
    let at = parts.iter().rposition(|part| *part == "node_modules").ok_or_else(|| alone(SCRIPT))?;
    let name = match parts.get(at + 1..) {
        Some([scope, name, ..]) if scope.starts_with('@') => format!("{scope}/{name}"),
        Some([name, ..]) => (*name).to_owned(),
        _ => return Err(alone(SCRIPT)),
    };
    let known = well_known().into_iter().find(|known| known.name == format!("npm:{name}"));
    let known = known.ok_or_else(|| alone(format!("which registry {name} was installed from is not known")))?;
    let reference = known.name.parse().map_err(|_| alone(SCRIPT))?;
    let mut line = Line::of(reference, 2, "node");
    line.today.truncate(1);
    line.notes.push(format!("the script is taken for that of {}, in its newest version", known.name));
    Ok(line)
}

const SCRIPT: &str = "it is a script of this machine: smcp runs a directory with an smcp.toml, ./dir";
