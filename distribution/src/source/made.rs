//! What was made on this machine of a package of npm or PyPI, a directory or a bundle. The store has it under a name that says
//! of what and by what, and nobody is asked: whoever wants it newer makes it anew.
//!
//! | source | name |
//! |---|---|
//! | `npm:NAME[@V]` | `npm:NAME@V?OS/ARCH`, without a version `@latest` |
//! | `pypi:NAME[==V]` | `pypi:NAME==V?OS/ARCH`, the name as PEP 503 has it, without a version `==latest` |
//! | `./dir`, `./x.mcpb` | `dir:/PATH?OS/ARCH`, `mcpb:/PATH?OS/ARCH` |
//! | `mcpb:URL@sha256:…` | `mcpb:URL@sha256:…?OS/ARCH` |
//! | `mcp:NAME[@V]` | `mcp:NAME@V`, without a version `@latest`: what its registry said, which names one of these or an image |
//!
//! Behind that, each after `&`, what is not as usual (of `mcp:` `registry=` and `type=`): `registry=`, `runtime=`, `bin=`, `scripts=`.

use std::path::Path;

use super::{Freshness, Network, Resolved, Source, Way, choose};
use crate::packages::{MCP_REGISTRY, NPMJS, PYPI, normal_name};
use crate::{Descriptor, Error, Reference, Result, Store};

/// What the store has; [`Error::NotBuilt`] where it has nothing.
pub(super) fn resolve(reference: &Reference, store: &Store, net: &Network) -> Result<Resolved> {
    if let Reference::Mcp(_) = reference {
        return Err(Error::NotBuilt(reference.to_string()));
    }
    let name = canonical(reference, net)?;
    let known = store.recall(&name)?.filter(|known| store.contains(&known.descriptor));
    let known = known.ok_or_else(|| match net.mode {
        super::Mode::Offline => Error::Offline(reference.to_string()),
        _ => Error::NotBuilt(reference.to_string()),
    })?;
    let missing =
        |child: &Descriptor| Err(Error::NotFound { what: child.digest.to_string(), place: "the store".into() });
    let (manifest, manifest_descriptor) = choose(&known.descriptor, store, &net.platform, &missing)?;
    Ok(Resolved {
        reference: reference.to_string(),
        name,
        descriptor: known.descriptor,
        manifest,
        manifest_descriptor,
        freshness: Freshness::Cached,
        stated: None,
        source: Source::Layout(store.root().to_owned()),
        way: Way::default(),
    })
}

/// The name in the store.
pub(super) fn canonical(reference: &Reference, net: &Network) -> Result<String> {
    let source = match reference {
        Reference::Npm(package) => {
            format!("npm:{}@{}", package.name, package.version.as_deref().unwrap_or("latest"))
        }
        Reference::Pypi(package) => {
            format!("pypi:{}=={}", normal_name(&package.name), package.version.as_deref().unwrap_or("latest"))
        }
        Reference::Directory(path) => format!("dir:{}", place(path)?),
        Reference::Mcpb(path) => format!("mcpb:{}", place(path)?),
        Reference::Download(download) => format!("mcpb:{}@{}", download.url, download.digest),
        Reference::Mcp(server) => {
            let name = format!("mcp:{}@{}", server.name, server.version.as_deref().unwrap_or("latest"));
            let registry = registry(reference, net)?.map(|registry| format!("registry={registry}"));
            let kind = net.making.kind.as_ref().map(|kind| format!("type={kind}"));
            let how: Vec<String> = registry.into_iter().chain(kind).collect();
            return Ok(if how.is_empty() { name } else { format!("{name}?{}", how.join("&")) });
        }
        other => return Err(Error::NotBuilt(other.to_string())),
    };
    let making = &net.making;
    let platform = format!("{}/{}", net.platform.os, net.platform.architecture);
    let registry = registry(reference, net)?.map(|registry| format!("registry={registry}"));
    let runtime = making.runtime.word().map(|word| format!("runtime={word}"));
    let bin = making.bin.as_ref().map(|bin| format!("bin={bin}"));
    let scripts =
        Some(making.scripts.join(",")).filter(|names| !names.is_empty() && matches!(reference, Reference::Npm(_)));
    let scripts = scripts.map(|names| format!("scripts={names}"));
    let how: Vec<String> = [platform].into_iter().chain(registry).chain(runtime).chain(bin).chain(scripts).collect();
    Ok(format!("{source}?{}", how.join("&")))
}

/// What the versions of a package share; the same package of another registry is another one.
pub(super) fn family(reference: &Reference, net: &Network) -> Result<String> {
    let source = match reference {
        Reference::Npm(package) => format!("npm:{}", package.name),
        Reference::Pypi(package) => format!("pypi:{}", normal_name(&package.name)),
        Reference::Directory(path) => format!("dir:{}", place(path)?),
        Reference::Mcpb(path) => format!("mcpb:{}", place(path)?),
        Reference::Download(download) => format!("mcpb:{}", download.url),
        other => return Err(Error::NotBuilt(other.to_string())),
    };
    Ok(match registry(reference, net)? {
        Some(registry) => format!("{source}?registry={registry}"),
        None => source,
    })
}

/// Where it is asked for, where that is not the usual place.
fn registry(reference: &Reference, net: &Network) -> Result<Option<String>> {
    let packages = &net.making.packages;
    Ok(match reference {
        Reference::Npm(package) => {
            let index = packages.npm()?.registry_of(&package.name);
            Some(index.url().to_owned()).filter(|url| url != NPMJS)
        }
        Reference::Pypi(_) => {
            let indexes: Vec<&str> = packages.python()?.indexes.iter().map(|index| index.url()).collect();
            Some(indexes.join(",")).filter(|urls| urls != PYPI)
        }
        Reference::Mcp(_) => net.making.servers.clone().filter(|url| url != MCP_REGISTRY),
        _ => None,
    })
}

/// The path without links; a directory is the same by all its names.
fn place(path: &Path) -> Result<String> {
    let place = path.canonicalize().map_err(Error::store("find", path))?;
    Ok(place.display().to_string())
}
