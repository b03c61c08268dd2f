//! `pypi:NAME[==V]`: pip downloads wheels, every one is hashed, then exactly those are installed and compiled.
//!
//! Source distributions are refused: building one executes the package's code.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use distribution::{Digest, Hasher, PYPI, PackageName, normal_name};
use serde_json::{Map, Value, json};

use super::dist_info::{Described, clean_records, describe};
use super::error::BuildError;
use super::image::{DOWNLOADS, Parts};
use super::interpreter::Interpreter;
use super::provenance::Provenance;
use super::{Job, caged, entry, project, runtime, tree};
use crate::manifest::Manifest;
use crate::pack::{FileMode, LayerBuilder};

/// A downloaded wheel.
struct Wheel {
    file: String,
    name: String,
    version: String,
    digest: Digest,
}

/// Downloads, installs and compiles in a staging directory, and packs that.
pub(super) fn package(job: &Job, package: &PackageName) -> Result<Parts, BuildError> {
    let (layers, python) = runtime::python(job)?;
    let staging = job.staging()?;
    let (wheels_dir, site) = (staging.path().join("wheels"), staging.path().join("site"));
    job.say(format!("pip downloads {}", package.name));
    let wheels = download(job, &python, package, staging.path(), &wheels_dir)?;
    install(job, &python, &wheels, staging.path(), &site)?;
    let described = describe(&site, &package.name)?;
    let (script, start) = entry::choose(&described.name, &described.scripts, job.options.bin.as_deref())?;
    let script_path = Path::new("/usr/local/bin").join(script);

    let place = PathBuf::from(format!("/usr/local/lib/python{}/dist-packages", python.version));
    let compiled = staging.path().join("compiled");
    fs::create_dir(&compiled).map_err(BuildError::io("making a directory"))?;
    job.say(format!("compiling {} wheels", wheels.len()));
    python.compile(job.cage, &site, &place, &compiled, &|_| true)?;
    let mut layer = LayerBuilder::new(job.options.source_date_epoch.unwrap_or(0));
    // pip's scripts start the interpreter of this machine.
    layer.add_tree(&site, &place, &|path| path != Path::new("bin"))?;
    layer.add_tree(&compiled, &place, &|_| true)?;
    layer.add_bytes(&script_path, script_text(&python.version, start), FileMode::Executable)?;

    let integrity = wheels.iter().find(|wheel| normal_name(&wheel.name) == normal_name(&described.name));
    let integrity = integrity.map(|wheel| wheel.digest.to_string());
    let said = said(job, &wheels, &described);
    let of_image = layers.image.as_ref().map(|(_, program)| program.clone());
    let own = || format!("/usr/bin/python{}", python.version);
    let program = layers.host.clone().or(of_image).unwrap_or_else(own);
    let source = source(job, integrity, &said)?;
    let manifest = manifest(job, &program, &described, source, &script_path)?;
    // Neither a python of the host nor one of another image looks there of itself.
    let is_elsewhere = layers.host.is_some() || layers.image.is_some();
    let env = is_elsewhere.then(|| format!("PYTHONPATH={}", place.display())).into_iter().collect();
    let application = layer.finish(job.store)?;
    Ok(Parts { manifest, layers, application, env, annotations: annotations(job, &described) })
}

fn download(
    job: &Job,
    python: &Interpreter,
    package: &PackageName,
    dir: &Path,
    into: &Path,
) -> Result<Vec<Wheel>, BuildError> {
    let version = package.version.as_ref().map(|version| format!("=={version}")).unwrap_or_default();
    let spec = format!("{}{version}", package.name);
    let options = ["--only-binary", ":all:", "--no-input", "--quiet", "--progress-bar", "off", "--dest"];
    let pip = caged::pip(job, python, dir)?;
    let pip = pip.args(["download"]).args(options).args([into.as_os_str(), "--".as_ref(), spec.as_ref()]);
    pip.output().map_err(job.explain(&package.name, package.version.as_deref()))?;
    caged::all_made_within(dir, into)?;
    tree::files(into)?.iter().map(|file| wheel(into, file)).collect()
}

/// Name and version of a wheel stand in its file name: `NAME-VERSION-TAGS.whl`.
fn wheel(dir: &Path, file: &Path) -> Result<Wheel, BuildError> {
    let unknown = || BuildError::answer("pip", format!("{} is no wheel", file.display()));
    let stem = file.to_str().and_then(|name| name.strip_suffix(".whl")).ok_or_else(unknown)?;
    let (name, rest) = stem.split_once('-').ok_or_else(unknown)?;
    let (version, _) = rest.split_once('-').ok_or_else(unknown)?;
    let mut hasher = Hasher::new();
    let hash = |mut file| io::copy(&mut file, &mut hasher);
    File::open(dir.join(file)).and_then(hash).map_err(BuildError::io(format!("reading {}", file.display())))?;
    let file = file.to_string_lossy().into_owned();
    Ok(Wheel { file, name: name.into(), version: version.into(), digest: hasher.finish().0 })
}

/// What the index says of the package's own wheel. Who takes one that was taken back is told.
fn said(job: &Job, wheels: &[Wheel], described: &Described) -> project::Wheel {
    let gate = job.gate.get();
    let mut own = project::Wheel::default();
    for wheel in wheels {
        let Some(said) = gate.and_then(|gate| gate.wheel(&wheel.file)) else { continue };
        if let Some(why) = &said.yanked {
            job.say(format!("{} {} was yanked by its publisher: {why}", wheel.name, wheel.version));
        }
        if normal_name(&wheel.name) == normal_name(&described.name) {
            own = said;
        }
    }
    own
}

/// What the index says of the version, for `source` of the manifest.
fn source(job: &Job, integrity: Option<String>, said: &project::Wheel) -> Result<Map<String, Value>, BuildError> {
    let indexes = job.options.registries.packages.python()?.indexes.iter();
    let indexes: Vec<&str> = indexes.map(|index| index.url()).collect();
    let pairs = [
        ("integrity", integrity),
        ("registry", Some(indexes.join(",")).filter(|urls| job.cage.is_some() && urls != PYPI)),
        ("published", said.published.clone()),
        ("yanked", said.yanked.clone()),
    ];
    let built = said.built.as_ref().map(Provenance::pairs).unwrap_or_default();
    Ok(pairs
        .into_iter()
        .chain(built)
        .filter_map(|(key, value)| Some((key.to_owned(), Value::String(value?))))
        .collect())
}

/// Installs those wheels and no others, without the network and the user's settings.
fn install(job: &Job, python: &Interpreter, wheels: &[Wheel], dir: &Path, site: &Path) -> Result<(), BuildError> {
    let from = dir.join("wheels");
    let line = |wheel: &Wheel| format!("{}=={} --hash={}\n", wheel.name, wheel.version, wheel.digest);
    let requirements = dir.join("requirements.txt");
    let lines: String = wheels.iter().map(line).collect();
    let write = |mut file: File| file.write_all(lines.as_bytes());
    // Never by a link that pip left.
    File::create_new(&requirements).and_then(write).map_err(BuildError::io("writing requirements.txt"))?;
    let options =
        ["--isolated", "--no-index", "--no-deps", "--require-hashes", "--no-compile", "--no-input", "--quiet"];
    let places = [("--find-links", from.as_path()), ("--target", site), ("--requirement", requirements.as_path())];
    let places = places.iter().flat_map(|(option, path)| [option.as_ref(), path.as_os_str()]);
    let pip = caged::pip_offline(job, python, dir)?;
    pip.args(["install"]).args(options).args(places).output()?;
    caged::all_made_within(dir, site)?;
    clean_records(site)
}

fn script_text(version: &str, start: &str) -> String {
    let (module, attribute) = start.split_once(':').unwrap_or((start, "main"));
    let first = attribute.split('.').next().unwrap_or(attribute);
    format!(
        "#!/usr/bin/python{version}\nimport sys\nfrom {module} import {first}\n\n\
         if __name__ == \"__main__\":\n    sys.exit({attribute}())\n"
    )
}

fn manifest(
    job: &Job,
    program: &str,
    described: &Described,
    mut source: Map<String, Value>,
    script: &Path,
) -> Result<Manifest, BuildError> {
    source.insert("type".into(), "pypi".into());
    source.insert("ref".into(), format!("{}=={}", described.name, described.version).into());
    let mut manifest = json!({
        "schemaVersion": 1,
        "name": normal_name(&described.name),
        "version": described.version,
        "mcp": {"transport": {"type": "stdio"}},
        "entrypoint": {"args": [program, script]},
        "source": source,
    });
    let mut set = |pointer: &str, key: &str, value: Option<String>| {
        if let (Some(value), Some(object)) = (value, manifest.pointer_mut(pointer)) {
            object[key] = value.into();
        }
    };
    set("", "description", described.summary.clone());
    set("/mcp", "serverName", described.server_name.clone());
    job.with_defaults(manifest)
}

fn annotations(job: &Job, described: &Described) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(DOWNLOADS.to_owned(), job.place().to_owned())]);
    let mut add = |key: &str, value: &Option<String>| {
        drop(value.as_ref().map(|value| annotations.insert(key.into(), value.clone())));
    };
    add("org.opencontainers.image.source", &described.source);
    add("org.opencontainers.image.licenses", &described.license);
    annotations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts() {
        let script = script_text("3.11", "pkg:Cls.run");
        assert!(script.contains("from pkg import Cls\n") && script.contains("sys.exit(Cls.run())"), "{script}");
    }

    #[test]
    fn wheels() {
        let dir = tempfile::tempdir().unwrap();
        let file = "rpds_py-2026.9.1-cp311-cp311-manylinux_2_17_x86_64.whl";
        fs::write(dir.path().join(file), "abc").unwrap();
        let wheel = wheel(dir.path(), Path::new(file)).unwrap();
        assert_eq!((wheel.name.as_str(), wheel.version.as_str()), ("rpds_py", "2026.9.1"));
        assert_eq!(wheel.digest, Digest::of(b"abc"));
        assert!(super::wheel(dir.path(), Path::new("x-1.tar.gz")).is_err());
    }
}
