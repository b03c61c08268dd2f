//! Which base and which interpreter a package gets.

use std::path::Path;

use distribution::Runtime;

use super::error::BuildError;
use super::interpreter::Interpreter;
use super::shared::SharedLayer;
use super::{Job, debian, node, pinned};
use crate::pack::PackedLayer;

/// What the program of a package is run by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Node,
    Python,
    /// Nothing: it is a native program.
    #[default]
    None,
}

/// What lies below the application, lowest first.
#[derive(Default)]
pub(super) struct Layers {
    pub(super) base: Option<SharedLayer>,
    pub(super) runtime: Option<SharedLayer>,
    /// The interpreter of the host that takes the place of both, by the name of its program.
    pub(super) host: Option<String>,
    /// An image that takes the place of both: its layers, and the program in it.
    pub(super) image: Option<(Vec<PackedLayer>, String)>,
}

/// The base and node, or what takes its place. `engines` is the range of versions that the package states.
pub(super) fn node(job: &Job, engines: Option<&str>) -> Result<Layers, BuildError> {
    if let Some(image) = &job.options.base {
        let (dir, name) = image.program("node", |name| name == "node")?;
        return Ok(Layers { image: Some((image.packed(), inside(&dir, &name))), ..Layers::default() });
    }
    match job.options.runtime {
        Runtime::Host => Ok(Layers { host: Some("node".into()), ..Layers::default() }),
        Runtime::Own => Ok(Layers { runtime: Some(node::layer(job, engines)?), ..base(job)? }),
        Runtime::Bun | Runtime::Deno => Ok(Layers { runtime: Some(pinned::layer(job)?), ..base(job)? }),
    }
}

/// What a script of JavaScript is started by; `flags` are node's, of its first line.
pub(super) fn command(runtime: Runtime, flags: Vec<String>) -> Vec<String> {
    let words: &[&str] = match runtime {
        Runtime::Own | Runtime::Host => &["node"],
        // Neither looks for anything that is not there: all of it was installed, and the network is somebody else's to grant. The cage
        // is what says what deno may.
        Runtime::Bun => return ["bun", "--no-install"].map(str::to_owned).to_vec(),
        Runtime::Deno => {
            let words = ["deno", "run", "-A", "--no-prompt", "--cached-only", "--node-modules-dir=manual"];
            return words.map(str::to_owned).to_vec();
        }
    };
    words.iter().map(|word| (*word).to_owned()).chain(flags).collect()
}

/// The base and python, or python of the host; and that python, to install and compile by.
pub(super) fn python(job: &Job) -> Result<(Layers, Interpreter), BuildError> {
    if let Some(image) = &job.options.base {
        let (dir, name) = image.program("python", is_python)?;
        let python = Interpreter::of_image(&name["python".len()..], &image.tree, &dir)?.with_pip(debian::pip(job)?);
        return Ok((Layers { image: Some((image.packed(), inside(&dir, &name))), ..Layers::default() }, python));
    }
    if job.options.runtime == Runtime::Host {
        let python = Interpreter::host()?;
        return Ok((Layers { host: Some(format!("python{}", python.version)), ..Layers::default() }, python));
    }
    let base = debian::base(job)?;
    let python = debian::python(job, &base)?;
    Ok((Layers { base: Some(base.layer), runtime: Some(python.layer), ..Layers::default() }, python.interpreter))
}

/// `pythonX.Y`.
fn is_python(name: &str) -> bool {
    let version = name.strip_prefix("python3.");
    version.is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()))
}

/// A program of an image, by its path there.
fn inside(dir: &Path, name: &str) -> String {
    Path::new("/").join(dir).join(name).display().to_string()
}

/// The base alone.
pub(super) fn base(job: &Job) -> Result<Layers, BuildError> {
    Ok(Layers { base: Some(debian::base(job)?.layer), ..Layers::default() })
}
