//! Media types that are written or read; anything else is refused where its meaning would matter.

/// An image manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// An index over manifests of several platforms.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The configuration of an image.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// A layer, not compressed.
pub const LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";
/// A layer, compressed by gzip.
pub const LAYER_TAR_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// A layer, compressed by zstd: what smcp writes.
pub const LAYER_TAR_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// Docker's image manifest, schema 2.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's index.
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's layer, not compressed.
pub const DOCKER_LAYER_TAR: &str = "application/vnd.docker.image.rootfs.diff.tar";
/// Docker's layer, compressed by gzip.
pub const DOCKER_LAYER_TAR_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// The `artifactType` of an smcp package.
pub const SMCP_PACKAGE: &str = "application/vnd.smcp.package.v1+json";
/// sigstore's bundle: the `artifactType` of a manifest that carries one, and of its layer.
pub const SIGSTORE_BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// A payload of cosign's, with its signature in the layer's annotation.
pub const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// A DSSE envelope, as cosign 2 keeps attestations.
pub const DSSE_ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The configuration of what has none: `{}`.
pub const OCI_EMPTY: &str = "application/vnd.oci.empty.v1+json";

/// Says whether `media_type` names an image manifest.
pub fn is_manifest(media_type: &str) -> bool {
    matches!(media_type, OCI_MANIFEST | DOCKER_MANIFEST)
}

/// Says whether `media_type` names an index.
pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, OCI_INDEX | DOCKER_INDEX)
}

/// Says whether `media_type` names the configuration of an image.
pub fn is_config(media_type: &str) -> bool {
    matches!(media_type, OCI_CONFIG | DOCKER_CONFIG)
}

/// Says whether `media_type` names a layer whose content lies elsewhere and must not be distributed.
pub(crate) fn is_foreign_layer(media_type: &str) -> bool {
    media_type.contains(".layer.nondistributable.") || media_type.contains(".rootfs.foreign.")
}
