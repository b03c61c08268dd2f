//! The layers of bun and deno, from the npm packages that hold their binaries: one version of each, by its hash.

use std::path::Path;

use distribution::{Platform, Runtime};

use super::error::BuildError;
use super::shared::{self, SharedLayer};
use super::tool::Tool;
use super::{Job, caged, node};
use crate::pack::LayerBuilder;

/// A binary in a package of npm.
struct Pinned {
    runtime: Runtime,
    /// As OCI has it.
    architecture: &'static str,
    package: &'static str,
    version: &'static str,
    integrity: &'static str,
    /// In the archive.
    file: &'static str,
}

/// What npm's registry had on 2026-12-01. Both need glibc, and bun a CPU with AVX2 on amd64.
const PINNED: [Pinned; 4] = [
    Pinned {
        runtime: Runtime::Bun,
        architecture: "amd64",
        package: "@oven/bun-linux-x64",
        version: "1.4.5",
        integrity: "sha512-IWX9BELoGHAUtMonkeSaNaZwXzRk+oDw6Mk+HBFXd3KHYIBNBsIGRupMZPcgNoDbJpLu6gAJjIoIVPZtt1aJ1g==",
        file: "package/bin/bun",
    },
    Pinned {
        runtime: Runtime::Bun,
        architecture: "arm64",
        package: "@oven/bun-linux-aarch64",
        version: "1.4.5",
        integrity: "sha512-4BXmsSKnjOrlGWqZV4x/oWa7AVoR+B6lCXddMzOAXBIm3t50eslg9wb66gmtW1AamEQ1l1CDvmmruysEhqOWMg==",
        file: "package/bin/bun",
    },
    Pinned {
        runtime: Runtime::Deno,
        architecture: "amd64",
        package: "@deno/linux-x64-glibc",
        version: "2.9.6",
        integrity: "sha512-3md4TKLCuzsLDmfOoC5KN7NAZaxSVkMgm64vg6foD00JBADCpYS2/5QqXfzgnP5ZQz3iLP9vBQJtEgc116OAoQ==",
        file: "package/deno",
    },
    Pinned {
        runtime: Runtime::Deno,
        architecture: "arm64",
        package: "@deno/linux-arm64-glibc",
        version: "2.9.6",
        integrity: "sha512-poqhoH9B3nYloigEMPT5t8HY+wBeiuea1An5Q7fqgJzP0SYmWsoS/oUnWO/pEiA4ofzIBy1Elt/in58xKtxEoQ==",
        file: "package/deno",
    },
];

/// The layer with `/usr/local/bin/bun` or `deno`.
pub(super) fn layer(job: &Job) -> Result<SharedLayer, BuildError> {
    let name = job.options.runtime.word().unwrap_or_default();
    let architecture = Platform::host().architecture;
    let is_it = |one: &&Pinned| one.runtime == job.options.runtime && one.architecture == architecture;
    let Some(pinned) = PINNED.iter().find(is_it) else {
        return Err(BuildError::NoRuntime { name, why: format!("there is none for {architecture}") });
    };
    let Pinned { package, version, integrity, file, .. } = pinned;
    let exact = format!("{package}@{version}");
    shared::layer(job, name, &format!("{name} 1\n{exact} {integrity}\n"), format!("{name}={version}"), || {
        job.say(format!("downloading {name} {version}"));
        let staging = job.staging()?;
        let pack = ["pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", ".", "--", &exact];
        let packed = caged::npm(job, staging.path())?.args(pack).output().map_err(job.explain(package, Some(version)));
        packed.map_err(|failed| match failed {
            failed @ BuildError::Tool { .. } if !failed.is_of_the_cage() => {
                BuildError::NoRuntime { name, why: format!("the registry does not give {exact}: {failed}") }
            }
            failed => failed,
        })?;
        let archive = format!("{}-{version}.tgz", package.trim_start_matches('@').replace('/', "-"));
        let archive = staging.path().join(archive);
        caged::made_within(staging.path(), &archive)?;
        node::check(&archive, integrity)?;
        // Another directory: npm could have put links into its own.
        let staging = job.staging()?;
        Tool::new("tar").dir(staging.path()).args(["-xzf"]).args([&archive]).args([file]).output()?;
        let mut layer = LayerBuilder::new(0);
        layer.add_file(&Path::new("usr/local/bin").join(name), &staging.path().join(file))?;
        Ok(layer.finish(job.store)?)
    })
}
