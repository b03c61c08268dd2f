//! The image of a package: configuration, image manifest, annotations.

use std::collections::BTreeMap;

use distribution::{Descriptor, ImageManifest, Platform, Store, media_type};
use jiff::Timestamp;

use super::error::BuildError;
use super::runtime::Layers;
use super::shared::SharedLayer;
use super::{Job, debian};
use crate::config::{Execution, ImageConfig, RootFs};
use crate::manifest::{HostRuntime, LABEL, MAX_BYTES, Manifest, ManifestError, SERVER_NAME_LABEL};
use crate::pack::PackedLayer;

/// Annotation: where what was installed was downloaded: `cage`, by npm or pip in a cage that reached their registries alone,
/// or `host`, with the rights of the building user.
pub const DOWNLOADS: &str = "info.mcp-hub.smcp.build.downloads";
/// Annotation: the packages of the base layer, with versions; the image in its place.
pub const BASE: &str = "info.mcp-hub.smcp.build.base";
/// Annotation: the packages of the runtime layer, with versions; `host` where the host's interpreter is used; the image in its
/// place.
pub const RUNTIME: &str = "info.mcp-hub.smcp.build.runtime";
/// Annotation: the Debian packages that were asked for, with all that they depend on, with versions.
pub const DEBIAN: &str = "info.mcp-hub.smcp.build.debian";

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a source was made into.
pub(super) struct Parts {
    pub(super) manifest: Manifest,
    pub(super) layers: Layers,
    pub(super) application: PackedLayer,
    /// More variables of the image, `NAME=VALUE`.
    pub(super) env: Vec<String>,
    /// `org.opencontainers.image.*` and others that the source states about itself.
    pub(super) annotations: BTreeMap<String, String>,
}

/// Puts configuration and image manifest into the store.
pub(super) fn assemble(job: &Job, parts: Parts) -> Result<(Descriptor, Manifest), BuildError> {
    let more = debian::more(job, parts.layers.base.is_some())?;
    let mut annotations = annotations(job, &parts);
    if let Some(layer) = &more {
        annotations.insert(DEBIAN.into(), layer.contents.clone());
    }
    let Parts { mut manifest, layers: Layers { base, runtime, host, image }, application, env, .. } = parts;
    if let Some(interpreter) = host {
        manifest.runtime = Some(HostRuntime { interpreter, extra: BTreeMap::new() });
    }
    let below = image.into_iter().flat_map(|(layers, _)| layers);
    let shared = below.chain(base.into_iter().chain(runtime).chain(more).map(|layer| layer.packed));
    let layers: Vec<PackedLayer> = shared.chain([application]).collect();

    let execution = Execution {
        env: job
            .options
            .base
            .as_ref()
            .map_or_else(|| vec![PATH.to_owned()], |base| base.env.clone())
            .into_iter()
            .chain(env)
            .collect(),
        entrypoint: manifest.entrypoint.args.clone(),
        working_dir: manifest.entrypoint.workdir.as_ref().map(|dir| dir.display().to_string()).unwrap_or_default(),
        labels: labels(&manifest)?,
        ..Execution::default()
    };
    let created = job.options.source_date_epoch.and_then(rfc3339);
    let image = put(job.store, &layers, execution, created, |image| {
        image.artifact_type = Some(media_type::SMCP_PACKAGE.into());
        image.annotations = annotations;
    })?;
    Ok((image, manifest))
}

/// An image of one layer and nothing else.
pub(super) fn of_layer(store: &Store, layer: &PackedLayer) -> Result<Descriptor, BuildError> {
    put(store, std::slice::from_ref(layer), Execution::default(), None, |_| {})
}

fn put(
    store: &Store,
    layers: &[PackedLayer],
    execution: Execution,
    created: Option<String>,
    finish: impl FnOnce(&mut ImageManifest),
) -> Result<Descriptor, BuildError> {
    let platform = Platform::host();
    let config = ImageConfig {
        architecture: platform.architecture,
        os: platform.os,
        created,
        config: execution,
        rootfs: RootFs { diff_ids: layers.iter().map(|layer| layer.diff_id.clone()).collect(), ..RootFs::default() },
        ..ImageConfig::default()
    };
    let config = store.put(&config.to_bytes(), media_type::OCI_CONFIG)?;
    let mut image = ImageManifest::new(config, layers.iter().map(|layer| layer.descriptor.clone()).collect());
    finish(&mut image);
    Ok(store.put(&image.to_bytes(), media_type::OCI_MANIFEST)?)
}

fn labels(manifest: &Manifest) -> Result<BTreeMap<String, String>, BuildError> {
    let label = manifest.to_label();
    if label.len() > MAX_BYTES {
        return Err(ManifestError::TooLarge(label.len()).into());
    }
    let server_name = manifest.mcp.server_name.clone().map(|name| (SERVER_NAME_LABEL.to_owned(), name));
    Ok([(LABEL.to_owned(), label)].into_iter().chain(server_name).collect())
}

fn annotations(job: &Job, parts: &Parts) -> BTreeMap<String, String> {
    let mut all = parts.annotations.clone();
    let mut add = |key: &str, value: Option<String>| drop(value.map(|value| all.insert(key.into(), value)));
    add("org.opencontainers.image.title", Some(parts.manifest.name.clone()));
    add("org.opencontainers.image.version", Some(parts.manifest.version.clone()));
    add("org.opencontainers.image.description", parts.manifest.description.clone());
    add("org.opencontainers.image.created", job.options.source_date_epoch.and_then(rfc3339));
    let contents = |layer: &Option<SharedLayer>| layer.as_ref().map(|layer| layer.contents.clone());
    let image = || job.options.base.as_ref().map(|base| base.name.clone());
    let host = || parts.layers.host.as_ref().map(|_| "host".into());
    add(BASE, contents(&parts.layers.base).or_else(image));
    add(RUNTIME, contents(&parts.layers.runtime).or_else(host).or_else(image));
    all
}

/// A time that a year of four digits can say.
fn rfc3339(seconds: u64) -> Option<String> {
    let time = Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(rfc3339(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(rfc3339(1_700_000_000).as_deref(), Some("2023-11-14T22:13:20Z"));
        assert_eq!(rfc3339(u64::MAX), None);
    }
}
