//! Makes packages: `npm:NAME`, `pypi:NAME`, `./dir`, `./x.mcpb` and `mcpb:URL@sha256:…` into OCI images in the store.
//!
//! What comes from npm or PyPI is resolved and installed by npm and pip in a cage, where the caller gives a way to run a program in
//! one, with install scripts off and every file checked by hash; the image says where in an annotation ([`DOWNLOADS`]). All that the
//! cage reaches is a port of this process (`gate.rs`), which asks the registries that the user's settings name. Debian's packages come by apt on the host, which checks their
//! signatures. Nothing of a package is executed by a build. The layers that packages share (Debian's libraries, node,
//! python) are made once and reused by digest.

mod apt;
mod base_image;
mod caged;
mod debian;
mod directory;
mod dist_info;
mod entry;
mod error;
mod gate;
mod image;
mod interpreter;
mod known;
mod mcpb;
mod node;
mod npm;
mod packument;
mod pattern;
mod pinned;
mod project;
mod provenance;
mod pypi;
mod recipe;
mod runtime;
mod shared;
mod staging;
mod tool;
mod tree;
mod uv;
mod zip;

use std::cell::OnceCell;

use distribution::{Descriptor, Lease, Reference, Runtime, Store};

use crate::asked::Asked;
use crate::manifest::Manifest;
pub use base_image::BaseImage;
pub use caged::{Cage, Caged};
pub use directory::fingerprint;
pub use error::BuildError;
use gate::Gate;
pub use gate::Registries;
pub use image::{BASE, DEBIAN, DOWNLOADS, RUNTIME};
pub use known::{Known, known, resembles, well_known};
use staging::Staging;
pub use uv::pythons as pythons_of_uv;

/// Builds `source` into `store`: the image is complete there, under no name yet.
///
/// npm and pip run by way of `cage`; without one they run as the user.
/// `say` is told what is being done, one line without a full stop each time.
///
/// # Errors
/// When the source cannot be built, a program of the host fails, or the store cannot be written. What was staged is
/// removed in any case.
pub fn build(
    source: &Reference,
    options: &BuildOptions,
    store: &Store,
    cage: Option<&Cage<'_>>,
    say: &dyn Fn(&str),
) -> Result<Built, BuildError> {
    let lease = store.lease()?;
    if cage.is_none() && options.registries.min_age.is_some() {
        return Err(BuildError::Options("min_release_age is held in a cage alone".into()));
    }
    let known = known(source, &options.registries.packages)?;
    let mut debian = options.debian.clone();
    if matches!(options.runtime, Runtime::Bun | Runtime::Deno) && !matches!(source, Reference::Npm(_)) {
        return Err(BuildError::Options(format!("{source} does not run by bun or deno: that is for packages of npm")));
    }
    if let Some(base) = &options.base
        && !matches!(source, Reference::Npm(_) | Reference::Pypi(_))
    {
        return Err(BuildError::Options(format!(
            "{source} goes on no {}: that is for packages of npm and PyPI",
            base.name
        )));
    }
    if let Some(known) = known.as_ref().filter(|_| options.runtime != Runtime::Host && options.base.is_none()) {
        debian.extend(known.debian.iter().filter(|name| !options.debian.contains(name)).cloned());
    }
    let job = Job { options, store, cage, gate: OnceCell::new(), known, debian, say };
    let parts = match source {
        Reference::Npm(package) => npm::package(&job, package)?,
        Reference::Pypi(package) => pypi::package(&job, package)?,
        Reference::Directory(dir) => directory::package(&job, dir)?,
        Reference::Mcpb(file) => mcpb::package(&job, file)?,
        Reference::Download(download) => mcpb::download(&job, download)?,
        other => return Err(BuildError::NoSource(other.to_string())),
    };
    let (descriptor, manifest) = image::assemble(&job, parts)?;
    Ok(Built { descriptor, manifest, _lease: lease })
}

/// A text that changes whenever what a source stands for does; none of a source that is files.
///
/// # Errors
/// Where its registry cannot be asked.
pub fn look(source: &Reference, registries: &Registries) -> Result<Option<String>, BuildError> {
    match source {
        Reference::Npm(package) => Gate::open(registries)?.look_at_npm(&package.name).map(Some),
        Reference::Pypi(package) => Gate::open(registries)?.look_at_python(&package.name).map(Some),
        Reference::Download(download) => Ok(Some(download.digest.to_string())),
        _ => Ok(None),
    }
}

/// How to build.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// The time of every file of the application's layer and of the image, in seconds since 1970: `SOURCE_DATE_EPOCH`.
    /// Without it files have the time 0 and the image has none.
    pub source_date_epoch: Option<u64>,
    /// Make the shared layers again, even where they are in the store.
    pub refresh: bool,
    /// Which program of the package is the server, where it has several.
    pub bin: Option<String>,
    /// The version of node: a range of npm, such as `22` or `24.1.0`. Without it the newest with
    /// long-term support, 24.
    pub node_version: Option<String>,
    /// Debian packages that the server starts programs of, such as `git`.
    pub debian: Vec<String>,
    /// Packages whose install scripts are run, by their names.
    pub scripts: Vec<String>,
    /// What the package is run by. By that of the host it brings neither an interpreter nor the base.
    pub runtime: Runtime,
    /// What lies below a package of npm or PyPI, with its interpreter, in the place of smcp's own layers.
    pub base: Option<BaseImage>,
    /// Where packages are from.
    pub registries: Registries,
}

/// A package in the store; as long as this lives nothing is removed there, so that a name can be given to it in peace.
#[derive(Debug)]
pub struct Built {
    /// Its image manifest.
    pub descriptor: Descriptor,
    /// What its label says.
    pub manifest: Manifest,
    _lease: Lease,
}

/// What every step of one build needs.
struct Job<'a> {
    options: &'a BuildOptions,
    store: &'a Store,
    cage: Option<&'a Cage<'a>>,
    gate: OnceCell<Gate>,
    /// What is granted to a well-known server.
    known: Option<Known>,
    /// Debian packages that come along.
    debian: Vec<String>,
    say: &'a dyn Fn(&str),
}

impl Job<'_> {
    fn staging(&self) -> Result<Staging, BuildError> {
        Staging::new(&self.store.root().join("tmp"))
    }

    /// A manifest with what a well-known server is granted.
    fn with_defaults(&self, mut manifest: serde_json::Value) -> Result<Manifest, BuildError> {
        let Some(known) = self.known.as_ref().filter(|known| known.manifest.is_some()) else {
            return Ok(Manifest::from_value(&manifest)?);
        };
        known.grant(&mut manifest);
        let manifest = Manifest::from_value(&manifest)?;
        let asked = Asked::of(&manifest).beyond(&Asked::default());
        self.say(format!("{} is granted by default: {}; {}", known.name, asked.join(", "), known.why));
        Ok(manifest)
    }

    /// What npm and pip in a cage ask.
    fn gate(&self) -> Result<&Gate, BuildError> {
        if let Some(gate) = self.gate.get() {
            return Ok(gate);
        }
        let gate = Gate::open(&self.options.registries)?;
        Ok(self.gate.get_or_init(|| gate))
    }

    /// Why a tool failed that asked for a package.
    fn explain(&self, name: &str, version: Option<&str>) -> impl FnOnce(BuildError) -> BuildError {
        move |failed| match self.gate.get() {
            Some(gate) => gate.explain(name, version, failed),
            None => failed,
        }
    }

    /// Where its downloads are made, for an annotation.
    fn place(&self) -> &'static str {
        if self.cage.is_some() { "cage" } else { "host" }
    }

    fn say(&self, line: impl AsRef<str>) {
        (self.say)(line.as_ref());
    }
}
