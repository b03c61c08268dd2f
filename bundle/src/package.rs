//! An image read as a package: its manifest, its configuration, its layers.

use std::path::PathBuf;

use distribution::{Descriptor, Digest, Image, Platform, Rules, media_type, tree_id};

use crate::config::ImageConfig;
use crate::limits::LimitRequest;
use crate::manifest::{Entrypoint, LABEL, Manifest, ManifestError, Mcp};
use crate::permissions::Permissions;

/// What can be run: made by smcp, or any image of a container hub.
#[derive(Debug, Clone)]
pub struct Package {
    /// The label's, or the empty one of a plain image.
    pub manifest: Manifest,
    /// Where the manifest comes from.
    pub origin: PackageOrigin,
    /// The image configuration.
    pub config: ImageConfig,
    /// Digest that the reference resolved to: of the index or of the manifest.
    pub digest: Digest,
    /// Digest of the manifest for this platform.
    pub manifest_digest: Digest,
    /// Each layer's blob and the digest of its content when decompressed, the lowest first.
    pub layers: Vec<(Descriptor, Digest)>,
}

/// Where a package's manifest comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageOrigin {
    /// From the label that smcp wrote.
    Smcp,
    /// There is none: stdio, the image's entrypoint and no permission at all.
    PlainImage,
}

/// Why an image is no package that this machine runs.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The configuration's blob.
    #[error(transparent)]
    Store(#[from] distribution::Error),
    /// The configuration's text.
    #[error("image configuration {digest}: {why}")]
    Config {
        /// Its digest.
        digest: Digest,
        /// What is wrong.
        why: String,
    },
    /// The image is for other machines.
    #[error("the image is for {found}, not for {wanted}")]
    Platform {
        /// What the image states.
        found: String,
        /// What can run here.
        wanted: Platform,
    },
    /// Manifest and configuration disagree.
    #[error("the manifest has {layers} layers, the configuration {diff_ids} diff ids")]
    LayerCount {
        /// Number of layers.
        layers: usize,
        /// Number of diff ids.
        diff_ids: usize,
    },
    /// It says that it is a package of smcp and is none.
    #[error("the image is of type {}, but has no label {LABEL}", media_type::SMCP_PACKAGE)]
    NoManifest,
    /// The manifest of the label.
    #[error("manifest of the package: {0}")]
    Manifest(#[from] ManifestError),
}

impl PackageError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            PackageError::Store(error) => error.hint(),
            PackageError::Manifest(error) => error.hint(),
            PackageError::Platform { .. } => Some("ask its publisher for an image of this platform".into()),
            _ => None,
        }
    }
}

impl Package {
    /// Reads the configuration and the manifest of an image.
    ///
    /// # Errors
    /// Where one of them is not strict, the two disagree, or the platform is not this one.
    pub fn read(image: &Image) -> Result<Package, PackageError> {
        let config = read_config(image)?;
        check_platform(&config)?;
        let layers = pair_layers(&image.layers, &config.rootfs.diff_ids)?;
        let artifact_type = image.resolved.manifest.artifact_type.as_deref();
        let (manifest, origin) = match config.config.labels.get(LABEL) {
            Some(label) => (Manifest::parse(label.as_bytes())?, PackageOrigin::Smcp),
            None if artifact_type == Some(media_type::SMCP_PACKAGE) => {
                return Err(PackageError::NoManifest);
            }
            None => (plain_manifest(image, &config), PackageOrigin::PlainImage),
        };
        Ok(Package {
            manifest,
            origin,
            config,
            digest: image.resolved.descriptor.digest.clone(),
            manifest_digest: image.resolved.manifest_descriptor.digest.clone(),
            layers,
        })
    }

    /// Names the tree that its layers make together, among the unpacked layers.
    pub fn tree(&self) -> Digest {
        let diff_ids: Vec<Digest> = self.layers.iter().map(|(_, diff_id)| diff_id.clone()).collect();
        tree_id(&diff_ids, self.rules())
    }

    /// What its layers are unpacked by.
    pub(crate) fn rules(&self) -> Rules {
        match self.origin {
            PackageOrigin::Smcp => Rules::Strict,
            PackageOrigin::PlainImage => Rules::Lenient,
        }
    }

    /// The whole command for the user's arguments. They follow the manifest's
    /// entrypoint; for a plain image they replace `Cmd` as with docker.
    pub(crate) fn command(&self, args: Vec<String>) -> Vec<String> {
        let execution = &self.config.config;
        let (first, rest) = match self.origin {
            PackageOrigin::Smcp => (&self.manifest.entrypoint.args, args),
            PackageOrigin::PlainImage if args.is_empty() => (&execution.entrypoint, execution.cmd.clone()),
            PackageOrigin::PlainImage => (&execution.entrypoint, args),
        };
        first.iter().cloned().chain(rest).collect()
    }

    /// The directory of the package to start in, if it names one. A plain image
    /// that names none means `/`, as its relative entrypoint does.
    pub(crate) fn workdir(&self) -> Option<PathBuf> {
        match self.origin {
            PackageOrigin::Smcp => self.manifest.entrypoint.workdir.clone(),
            PackageOrigin::PlainImage => Some(PathBuf::from("/").join(&self.config.config.working_dir)),
        }
    }
}

fn read_config(image: &Image) -> Result<ImageConfig, PackageError> {
    let bytes = image.config.bytes()?;
    ImageConfig::parse(&bytes)
        .map_err(|why| PackageError::Config { digest: image.config.descriptor().digest.clone(), why })
}

fn check_platform(config: &ImageConfig) -> Result<(), PackageError> {
    let wanted = Platform::host();
    if config.os == wanted.os && config.architecture == wanted.architecture {
        return Ok(());
    }
    let found = format!("{}/{}", config.os, config.architecture).escape_debug().to_string();
    Err(PackageError::Platform { found, wanted })
}

fn pair_layers(layers: &[Descriptor], diff_ids: &[Digest]) -> Result<Vec<(Descriptor, Digest)>, PackageError> {
    let (have, want) = (layers.len(), diff_ids.len());
    if have != want {
        return Err(PackageError::LayerCount { layers: have, diff_ids: want });
    }
    Ok(layers.iter().cloned().zip(diff_ids.iter().cloned()).collect())
}

/// A plain image asks for nothing.
fn plain_manifest(image: &Image, config: &ImageConfig) -> Manifest {
    let execution = &config.config;
    Manifest {
        schema_version: 1,
        name: image.resolved.reference.clone(),
        version: image.resolved.descriptor.digest.to_string(),
        description: None,
        mcp: Mcp::default(),
        entrypoint: Entrypoint {
            args: execution.entrypoint.iter().chain(&execution.cmd).cloned().collect(),
            workdir: None,
            extra: Default::default(),
        },
        args: Vec::new(),
        env: Vec::new(),
        permissions: Permissions::default(),
        limits: LimitRequest::default(),
        source: None,
        runtime: None,
        extra: Default::default(),
    }
}

#[cfg(test)]
mod tests;
