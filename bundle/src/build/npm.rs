//! `npm:NAME[@V]`: npm itself resolves and installs the closure, with install scripts off but for packages that are named; then it is packed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use distribution::{NPMJS, PackageName, Runtime};
use serde_json::{Map, Value, json};

use super::error::BuildError;
use super::image::{DOWNLOADS, Parts};
use super::packument::Release;
use super::tree::stays_within;
use super::{Job, caged, entry, runtime};
use crate::manifest::Manifest;
use crate::pack::{FileMode, LayerBuilder, PackedLayer};

const APP: &str = "/app";

/// What npm is told, whatever the user's settings say: nothing of a package is executed, only what runs is installed,
/// the layout is the usual one.
const INSTALL: [&str; 11] = [
    "install",
    "--ignore-scripts",
    "--omit=dev",
    "--install-strategy=hoisted",
    "--package-lock=true",
    "--lockfile-version=3",
    "--global=false",
    "--audit=false",
    "--fund=false",
    "--update-notifier=false",
    "--loglevel=error",
];

/// npm is told to run the scripts of the packages that follow.
const REBUILD: [&str; 8] = [
    "rebuild",
    "--ignore-scripts=false",
    "--foreground-scripts",
    "--global=false",
    "--update-notifier=false",
    "--loglevel=error",
    "--prefix=.",
    "--",
];

/// Installs the package into a staging directory and packs it.
pub(super) fn package(job: &Job, package: &PackageName) -> Result<Parts, BuildError> {
    let name = package.name.as_str();
    let staging = job.staging()?;
    job.say(format!("npm installs {name}"));
    let lock = install(job, staging.path(), package)?;
    let (version, integrity) = locked(&lock, name)?;
    let scripts = scripts(job, staging.path(), &lock)?;
    let modules = staging.path().join("node_modules");
    caged::made_within(staging.path(), &modules.join(name).join("package.json"))?;
    let described = read_json(&modules.join(name).join("package.json"))?;
    let programs = programs(name, &described);
    let (_, program) = entry::choose(name, &programs, job.options.bin.as_deref())?;
    caged::made_within(staging.path(), &modules.join(name).join(program))?;
    let command = command(job.options.runtime, name, &modules.join(name), program)?;

    let said = job.gate.get().and_then(|gate| gate.release(name, &version)).unwrap_or_default();
    if let Some(why) = &said.deprecated {
        job.say(format!("{name} {version} is deprecated: {why}"));
    }
    let layers = runtime::node(job, described["engines"]["node"].as_str())?;
    let manifest =
        manifest(job, (&version, &integrity), &described, command, source(job, name, &version, &said, scripts)?)?;
    let application = pack(job, &modules, lock)?;
    Ok(Parts { manifest, layers, application, env: Vec::new(), annotations: annotations(job, &described) })
}

fn install(job: &Job, dir: &Path, package: &PackageName) -> Result<Value, BuildError> {
    let lock = dir.join("package-lock.json");
    let root = json!({"name": "app", "private": true});
    fs::write(dir.join("package.json"), root.to_string()).map_err(BuildError::io("writing package.json"))?;
    let version = package.version.as_ref().map(|version| format!("@{version}")).unwrap_or_default();
    let spec = format!("{}{version}", package.name);
    let npm = caged::npm(job, dir)?.args(INSTALL).args(["--prefix", ".", "--", &spec]);
    npm.output().map_err(job.explain(&package.name, package.version.as_deref()))?;
    caged::made_within(dir, &lock)?;
    caged::made_within(dir, &dir.join("node_modules"))?;
    read_json(&lock)
}

/// What of the closure would be executed when it is installed, as `NAME@VERSION`.
#[derive(Default)]
struct Scripts {
    found: BTreeSet<String>,
    run: BTreeSet<String>,
}

/// Says which packages have install scripts, and runs those of the packages that are named: in the cage of the install, which has no secrets
/// and reaches the registries alone.
fn scripts(job: &Job, dir: &Path, lock: &Value) -> Result<Scripts, BuildError> {
    let mut scripts = Scripts::default();
    let (mut named, mut others) = (BTreeSet::new(), BTreeSet::new());
    for (place, entry) in lock["packages"].as_object().into_iter().flatten() {
        let Some((_, name)) = place.rsplit_once("node_modules/") else { continue };
        if !dir.join(place).join("package.json").exists() {
            continue;
        }
        caged::made_within(dir, &dir.join(place).join("package.json"))?;
        let described = read_json(&dir.join(place).join("package.json"))?;
        if !has_scripts(&described) && entry["hasInstallScript"] != true {
            continue;
        }
        let real = entry["name"].as_str().unwrap_or(name);
        let version = format!("{real}@{}", entry["version"].as_str().unwrap_or_default());
        if job.options.scripts.iter().any(|allowed| allowed == name) {
            // An alias, or what another package brings along, lies under a name that is not its own.
            match real == name && entry["inBundle"] != true {
                true => drop(named.insert((name.to_owned(), version.clone()))),
                false => drop(others.insert(name.to_owned())),
            }
        }
        scripts.found.insert(version);
    }
    // npm selects by the name of the directory alone.
    named.retain(|(name, _)| !others.contains(name));
    scripts.run.extend(named.iter().map(|(_, version)| version.clone()));
    others.iter().for_each(|name| {
        job.say(format!("another package lies under the name {name}: scripts are not run for it"));
    });
    let left: Vec<&str> = scripts.found.difference(&scripts.run).map(String::as_str).collect();
    if !left.is_empty() {
        job.say(format!(
            "install scripts are not run: {} (--allow-scripts NAME runs them, in the cage)",
            left.join(", ")
        ));
    }
    if !named.is_empty() {
        let run: Vec<&str> = scripts.run.iter().map(String::as_str).collect();
        job.say(format!("npm runs the install scripts of {}", run.join(", ")));
        caged::npm_with_programs(job, dir)?.args(REBUILD).args(named.iter().map(|(name, _)| name)).output()?;
    }
    Ok(scripts)
}

fn has_scripts(described: &Value) -> bool {
    ["preinstall", "install", "postinstall"].iter().any(|when| described["scripts"][when].is_string())
}

/// Nothing is said of none.
fn text_of(versions: &BTreeSet<String>) -> Option<String> {
    let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
    (!versions.is_empty()).then(|| versions.join(", "))
}

/// The exact version and the hash of the package; npm has compared the hash with what it downloaded.
fn locked(lock: &Value, name: &str) -> Result<(String, String), BuildError> {
    let entry = &lock["packages"][format!("node_modules/{name}")];
    let text = |key: &str| entry[key].as_str().map(str::to_owned);
    let missing = || BuildError::answer("npm", format!("package-lock.json has no version and integrity of {name}"));
    text("version").zip(text("integrity")).ok_or_else(missing)
}

/// `bin` of a package.json: names and files within the package.
fn programs(name: &str, described: &Value) -> BTreeMap<String, PathBuf> {
    let own = name.rsplit('/').next().unwrap_or(name);
    let pairs = match &described["bin"] {
        Value::String(file) => vec![(own.to_owned(), file.clone())],
        Value::Object(bins) => {
            let pair = |(name, file): (&String, &Value)| Some((name.clone(), file.as_str()?.to_owned()));
            bins.iter().filter_map(pair).collect()
        }
        _ => Vec::new(),
    };
    pairs.into_iter().filter_map(|(name, file)| Some((name, within(Path::new(&file))?))).collect()
}

/// The path without `.`; none when it leaves the package.
fn within(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(clean)
}

/// How the program is started inside the image.
fn command(runtime: Runtime, name: &str, dir: &Path, program: &Path) -> Result<Vec<String>, BuildError> {
    let path = dir.join(program);
    let mut head = Vec::new();
    let read = |file: File| file.take(256).read_to_end(&mut head);
    File::open(&path).and_then(read).map_err(BuildError::io(format!("reading {}", program.display())))?;
    let mut command = launcher(&head).map_err(|interpreter| BuildError::EntryPoint {
        package: name.into(),
        why: format!("{} is started by {interpreter}, not by node", program.display()),
        choices: Vec::new(),
    })?;
    // A program that is none of JavaScript's is started by nothing else.
    if let Some(("node", flags)) = command.split_first().map(|(first, flags)| (first.as_str(), flags)) {
        command = runtime::command(runtime, flags.to_vec());
    }
    command.push(format!("{APP}/node_modules/{name}/{}", program.display()));
    Ok(command)
}

/// What precedes the file in the command, from its first bytes: node with the flags of the `#!` line, nothing for a
/// native program. The error is another interpreter.
fn launcher(head: &[u8]) -> Result<Vec<String>, String> {
    if head.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(vec!["node".into()]) };
    let line = String::from_utf8_lossy(line.split(|b| *b == b'\n').next().unwrap_or_default()).into_owned();
    let mut words = line.split_whitespace().filter(|word| *word != "-S" && !word.ends_with("/env"));
    let interpreter = words.next().unwrap_or_default();
    if interpreter.rsplit('/').next() != Some("node") {
        return Err(interpreter.escape_debug().to_string());
    }
    Ok(std::iter::once("node").chain(words).map(str::to_owned).collect())
}

/// What the registry says of the version, for `source` of the manifest.
fn source(
    job: &Job,
    name: &str,
    version: &str,
    said: &Release,
    scripts: Scripts,
) -> Result<Map<String, Value>, BuildError> {
    let registry = job.options.registries.packages.npm()?.registry_of(name).url();
    let registry = Some(registry.to_owned()).filter(|url| job.cage.is_some() && url != NPMJS);
    let archive = job.gate.get().and_then(|gate| gate.archive(name, version));
    let built = archive.as_ref().and_then(|archive| archive.provenance.as_ref());
    let built = match (built, &said.provenance) {
        (Some(built), _) => built.pairs(),
        (None, kind) => vec![("provenance", kind.clone())],
    };
    let pairs = [
        ("signedBy", archive.as_ref().and_then(|archive| archive.signer.clone())),
        ("sha256", archive.map(|archive| archive.digest.to_string())),
        ("installScripts", text_of(&scripts.found)),
        ("installScriptsRun", text_of(&scripts.run)),
        ("registry", registry),
        ("published", said.published.clone()),
        ("deprecated", said.deprecated.clone()),
    ];
    let stated =
        pairs.into_iter().chain(built).filter_map(|(key, value)| Some((key.to_owned(), Value::String(value?))));
    Ok([("type".to_owned(), "npm".into()), ("name".to_owned(), name.into())].into_iter().chain(stated).collect())
}

fn manifest(
    job: &Job,
    (version, integrity): (&str, &str),
    described: &Value,
    command: Vec<String>,
    mut source: Map<String, Value>,
) -> Result<Manifest, BuildError> {
    let name = source.remove("name").unwrap_or_default();
    let name = name.as_str().unwrap_or_default();
    source.insert("ref".into(), format!("{name}@{version}").into());
    source.insert("integrity".into(), integrity.into());
    let mut manifest = json!({
        "schemaVersion": 1,
        "name": name.strip_prefix('@').unwrap_or(name),
        "version": version,
        "mcp": {"transport": {"type": "stdio"}},
        "entrypoint": {"args": command},
        "source": source,
    });
    if let Some(description) = described["description"].as_str().filter(|text| !text.is_empty()) {
        manifest["description"] = description.into();
    }
    if let Some(server) = described["mcpName"].as_str() {
        manifest["mcp"]["serverName"] = server.into();
    }
    job.with_defaults(manifest)
}

fn annotations(job: &Job, described: &Value) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(DOWNLOADS.to_owned(), job.place().to_owned())]);
    let repository = described["repository"].as_str().or_else(|| described["repository"]["url"].as_str());
    let https = repository.map(|url| url.strip_prefix("git+").unwrap_or(url)).filter(|url| url.starts_with("https://"));
    let mut add =
        |key: &str, value: Option<&str>| drop(value.map(|value| annotations.insert(key.into(), value.into())));
    add("org.opencontainers.image.source", https);
    add("org.opencontainers.image.licenses", described["license"].as_str());
    annotations
}

/// The layer at `/app`: `node_modules`, and the lock without the addresses that this machine downloaded from.
fn pack(job: &Job, modules: &Path, mut lock: Value) -> Result<PackedLayer, BuildError> {
    for entry in lock["packages"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        entry.as_object_mut().map(|entry| entry.remove("resolved"));
    }
    let lock = serde_json::to_vec_pretty(&lock).expect("a value serialises");
    let app = Path::new(APP);
    let mut layer = LayerBuilder::new(job.options.source_date_epoch.unwrap_or(0));
    layer.add_bytes(&app.join("package-lock.json"), lock, FileMode::Plain)?;
    layer.add_tree(modules, &app.join("node_modules"), &|path| is_kept(modules, path))?;
    Ok(layer.finish(job.store)?)
}

/// npm's own record has the addresses of downloads; a link that leaves `node_modules` means another file in the image.
fn is_kept(modules: &Path, path: &Path) -> bool {
    path != Path::new(".package-lock.json")
        && fs::read_link(modules.join(path)).map_or(true, |target| stays_within(path, &target))
}

fn read_json(path: &Path) -> Result<Value, BuildError> {
    let what = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = fs::read(path).map_err(BuildError::io(format!("reading {what}")))?;
    serde_json::from_slice(&bytes).map_err(|error| BuildError::answer("npm", format!("{what}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_a_package() {
        let table = [
            (json!({"bin": "./cli.js"}), "tool=cli.js"),
            (json!({"bin": {"a": "dist/a.js", "b": "./b.js"}}), "a=dist/a.js b=b.js"),
            (json!({"bin": {"a": "../../x.js", "b": "/etc/passwd", "c": 1}}), ""),
            (json!({}), ""),
        ];
        for (described, want) in table {
            let programs = programs("@acme/tool", &described);
            let got: Vec<String> = programs.iter().map(|(name, file)| format!("{name}={}", file.display())).collect();
            assert_eq!(got.join(" "), want, "{described}");
        }
    }

    #[test]
    fn launchers() {
        let table: [(&[u8], Result<&str, &str>); 7] = [
            (b"#!/usr/bin/env node\nimport x", Ok("node")),
            (
                b"#!/usr/bin/env -S node --no-warnings --enable-source-maps\r\n",
                Ok("node --no-warnings --enable-source-maps"),
            ),
            (b"#!/usr/local/bin/node", Ok("node")),
            (b"import x", Ok("node")),
            (b"\x7fELF\x02", Ok("")),
            (b"#!/bin/sh\n", Err("/bin/sh")),
            (b"#!/usr/bin/env bun\n", Err("bun")),
        ];
        for (head, want) in table {
            let got = launcher(head).map(|words| words.join(" "));
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned), "{}", String::from_utf8_lossy(head));
        }
    }
}
