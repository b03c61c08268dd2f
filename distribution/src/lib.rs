//! Names, digests, registries and the content-addressed store of smcp.
//!
//! `Reference → Resolved → Verified<Blob>`: [`resolve`] asks the store and, where that is needed, a registry what a
//! [`Reference`] stands for; [`configure`] and [`fetch`] bring the image's blobs into the [`Store`], where [`Pending`] keeps
//! them once they are found good; [`push`] publishes from there.
//! This crate knows nothing of permissions, kernels or terminals. It starts no thread and opens no connection when
//! everything that is asked for is in the store already.
// What Windows has beyond `std` is in one file, `system/windows/sys.rs`.
#![cfg_attr(not(windows), forbid(unsafe_code))]
#![cfg_attr(windows, deny(unsafe_code))]

mod access;
mod attached;
mod auth;
mod descriptor;
mod digest;
mod disk;
mod error;
mod fetch;
mod hub;
mod image;
pub mod json;
mod layout;
mod lock;
pub mod media_type;
mod packages;
mod platform;
mod push;
mod reference;
mod registry;
mod rootfs;
mod secret;
mod source;
mod store;
pub mod system;
mod url;

pub use access::{Access, Door, HostAccess, Proxies};
pub use attached::{
    Attachment, AttachmentForm, Attachments, MAX_ATTACHMENT, attach_bundle, attach_signature, attachments,
};
pub use auth::{DockerFile, Login, Places, login, logout};
pub use descriptor::Descriptor;
pub use digest::{Algorithm, Digest, DigestError, Hasher};
pub use error::{Error, Kind, Result};
pub use fetch::{Image, Missing, Pending, Progress, configure, fetch};
pub use hub::{Convert, Delivered, HUB_BUNDLE, HUB_MANIFEST, Offered, Stated, Unmake};
pub use image::{Document, ImageError, ImageIndex, ImageManifest, MAX_CONFIG, MAX_MANIFEST};
pub use packages::{Asking, Index, MCP_REGISTRY, NPMJS, Npm, PYPI, Packages, Python, normal_name};
pub use platform::Platform;
pub use push::{Pushed, push};
pub use reference::{DOCKER, Download, LayoutRef, Name, PackageName, Reference, ReferenceError, Selector};
pub use rootfs::{Rules, tree_id};
pub use secret::{REDACTED, Secret};
pub use source::{
    Freshness, Handed, Making, Mode, Network, Resolved, Runtime, Source, Way, canonical, family, referrers,
    registry_host, resolve,
};
pub use store::{
    Allowance, Blob, BlobLock, BlobReader, BlobWriter, Kept, LayerLock, Lease, Made, Origin, Pull, Remembered, Removed,
    StagedLayer, Staging, Store, Verdict, Verified,
};
