//! `./dir`: the files of a directory at `/app`, as the `smcp.toml` in it says.
//!
//! ```toml
//! # The keys of a manifest (package.md); schemaVersion may be left out.
//! name = "acme/hello"
//! version = "1.2.3"
//! description = "says hello"
//!
//! [entrypoint]
//! args = ["node", "/app/dist/index.js"]
//!
//! [[permissions.network.outbound]]
//! host = "api.acme.example"
//! ports = [443]
//!
//! # How it is built; every key may be left out. This table does not get into the package.
//! [build]
//! runtime = "node"                      # "node", "python", or "none", which is the default
//! base = "debian"                       # "debian", the default, or "none" for a static program
//! include = ["dist", "node_modules"]    # all files without it
//! exclude = ["**/*.map"]
//! ```
//!
//! A pattern names a file or a directory with all in it: `*` and `?` stand for characters of one name, `**` for any
//! number of directories. Empty directories are left out, and so is [`NEVER`]. Links must stay within the directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use distribution::{Digest, Runtime, system};
use serde::Deserialize;
use serde_json::Value;

use super::Job;
use super::error::BuildError;
use super::image::Parts;
use super::interpreter::Interpreter;
use super::pattern::names;
use super::recipe::Recipe;
use super::runtime::{self, Kind, Layers};
use super::tree;
use crate::manifest::Manifest;
use crate::pack::LayerBuilder;

/// Left out whatever the patterns say: histories, this very file, what a machine made for itself, and `.env` files,
/// which hold secrets.
const NEVER: [&str; 8] =
    ["**/.git", "**/.hg", "**/.svn", "**/.DS_Store", "**/__pycache__", "**/.env", "**/.env.*", "smcp.toml"];

const APP: &str = "/app";

/// A text that changes with the files of a directory, or with one file: names, sizes, times and modes, since reading all of them
/// would take a start too long.
///
/// # Errors
/// Where they cannot be listed.
pub fn fingerprint(source: &Path) -> Result<String, BuildError> {
    let failed = || BuildError::io(format!("reading {}", source.display()));
    let mut text = String::new();
    let mut add = |name: &Path, on_disk: &Path| -> Result<(), BuildError> {
        let about = fs::symlink_metadata(on_disk).map_err(failed())?;
        text.push_str(&format!("{} {}\n", name.display(), system::changes(&about)));
        Ok(())
    };
    if source.is_dir() {
        let counts = |path: &Path| path == Path::new("smcp.toml") || !NEVER.iter().any(|pattern| names(pattern, path));
        for (path, _) in tree::entries(source, &counts)? {
            add(&path, &source.join(&path))?;
        }
    } else {
        add(source, source)?;
    }
    Ok(Digest::of(text.as_bytes()).to_string())
}

/// The table `[build]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "lowercase")]
struct Build {
    runtime: Kind,
    base: Base,
    include: Option<Vec<String>>,
    exclude: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Base {
    #[default]
    Debian,
    None,
}

/// Packs the directory.
pub(super) fn package(job: &Job, dir: &Path) -> Result<Parts, BuildError> {
    let recipe = Recipe::read(&dir.join("smcp.toml"))?;
    let build: Build = recipe.table("build")?;
    if build.base == Base::None && build.runtime != Kind::None && job.options.runtime != Runtime::Host {
        return Err(recipe.wrong("build.base", "node and python need the base"));
    }
    let manifest = manifest(&recipe)?;
    let is_kept = |path: &Path| build.keeps(path, is_dir(&dir.join(path)));
    check_links(dir, &is_kept)?;
    let mut layer = LayerBuilder::new(job.options.source_date_epoch.unwrap_or(0));
    layer.add_tree(dir, Path::new(APP), &is_kept)?;
    if let Some(program) = missing_program(&manifest, &layer) {
        return Err(recipe.wrong("entrypoint.args", format!("{program} is not among the packed files")));
    }
    let (layers, python) = layers(job, &build)?;
    let compiled = job.staging()?;
    if let Some(python) = python {
        python.compile(None, dir, Path::new(APP), compiled.path(), &is_kept)?;
        layer.add_tree(compiled.path(), Path::new(APP), &|_| true)?;
    }
    let application = layer.finish(job.store)?;
    Ok(Parts { manifest, layers, application, env: Vec::new(), annotations: BTreeMap::new() })
}

fn layers(job: &Job, build: &Build) -> Result<(Layers, Option<Interpreter>), BuildError> {
    match (build.runtime, build.base) {
        (Kind::None, Base::None) => Ok((Layers::default(), None)),
        (Kind::None, Base::Debian) => Ok((runtime::base(job)?, None)),
        (Kind::Node, _) => Ok((runtime::node(job, None)?, None)),
        (Kind::Python, _) => runtime::python(job).map(|(layers, python)| (layers, Some(python))),
    }
}

fn manifest(recipe: &Recipe) -> Result<Manifest, BuildError> {
    let mut value = recipe.value();
    if let Value::Object(keys) = &mut value {
        keys.remove("build");
        keys.entry("schemaVersion").or_insert(1.into());
    }
    Manifest::from_value(&value).map_err(|error| recipe.refused(error))
}

/// The program, or the script of an interpreter, where it should be one of the packed files and is not.
fn missing_program(manifest: &Manifest, layer: &LayerBuilder) -> Option<String> {
    let mut named = manifest.entrypoint.args.iter().take(2).filter(|arg| Path::new(arg).starts_with(APP));
    named.find(|arg| !layer.holds(Path::new(arg))).cloned()
}

/// A link that leaves the directory means another file in the image, or none.
fn check_links(dir: &Path, is_kept: &dyn Fn(&Path) -> bool) -> Result<(), BuildError> {
    for (path, _) in tree::entries(dir, is_kept)?.into_iter().filter(|(_, kind)| kind.is_symlink()) {
        let on_disk = dir.join(&path);
        let target = fs::read_link(&on_disk).map_err(BuildError::io(format!("reading {}", on_disk.display())))?;
        if !tree::stays_within(&path, &target) {
            return Err(BuildError::Link { path: on_disk, target });
        }
    }
    Ok(())
}

/// A directory itself, not a link to one.
fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

impl Build {
    /// Whether a file is packed, or a directory looked into.
    fn keeps(&self, path: &Path, is_dir: bool) -> bool {
        let named_by = |patterns: &[String]| patterns.iter().any(|pattern| names(pattern, path));
        if NEVER.iter().any(|pattern| names(pattern, path)) || named_by(&self.exclude) {
            return false;
        }
        is_dir || self.include.as_ref().is_none_or(|include| named_by(include))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed() {
        let build = Build {
            include: Some(vec!["dist".into(), "index.js".into()]),
            exclude: vec!["**/*.map".into()],
            ..Build::default()
        };
        let kept = |path: &str, is_dir| build.keeps(Path::new(path), is_dir);
        assert!(kept("index.js", false) && kept("dist/a.js", false) && kept("src", true));
        assert!(!kept("src/a.js", false) && !kept("dist/a.js.map", false) && !kept("dist/.env", false));
        assert!(!kept(".git", true));
    }
}
