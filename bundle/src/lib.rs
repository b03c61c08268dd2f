//! Packages of smcp: what a manifest says, what a run is granted, how layers are unpacked and packed.
//!
//! `Verified<Blob> → Manifest → Grant`: [`Package::read`] makes types of an image's configuration and label,
//! [`judge`] decides what a run is granted, [`prepare`] unpacks the layers. This crate knows nothing of kernels beyond
//! files beneath a directory handle, and nothing of terminals.
#![forbid(unsafe_code)]

mod asked;
pub mod attest;
pub mod build;
mod config;
mod evidence;
mod grant;
mod hub;
mod imported;
mod limits;
pub mod listed;
mod manifest;
mod node;
mod outbound;
mod pack;
mod package;
mod permissions;
pub mod policy;
mod units;
mod unpack;
mod ustar;

pub use distribution::{REDACTED, Secret};

pub use asked::{Asked, AskedFile};
pub use config::{Execution, ImageConfig, RootFs, RootFsKind};
pub use evidence::{
    Certification, Evidence, Findings, HubWord, Listing, PackageClass, Rejected, Revocation, RevocationStatus, Signer,
    Standing, Unread,
};
pub use grant::{
    Bounds, CERTIFICATES, CallerEnv, Certificates, Denied, Egress, EnvFlag, FlagError, Grant, Mount, MountFlag,
    NetworkCeiling, NetworkFlags, Reason, ReasonKind, Request, StateName, Subprocess, SubprocessFlag, Withheld,
    Workdir, judge, parse_env_file,
};
pub use hub::{from_hub, hub_word, to_hub};
pub use imported::Imported;
pub use limits::{LimitRequest, Limits};
pub use manifest::{
    ArgKind, ArgSpec, Entrypoint, EnvSpec, HostRuntime, LABEL, Manifest, ManifestError, Mcp, SERVER_NAME_LABEL, Source,
};
pub use outbound::{DEFAULT_PORT, Denial, Host, Outbound, OutboundError};
pub use pack::{FileMode, LayerBuilder, PackError, PackedLayer};
pub use package::{Package, PackageError, PackageOrigin};
pub use permissions::{Access, FsRequest, NetworkRequest, Origin, Permissions, SubprocessRequest};
pub use units::{UnitError, format_duration, format_size, parse_count, parse_duration, parse_millicores, parse_size};
pub use unpack::{
    Archive, Below, Code, Compared, Extracted, Extractor, Order, Refusal, Stop, UnpackError, Unpacked, check_trees,
    extract, in_this_process, prepare,
};
