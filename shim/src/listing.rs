//! `mcp:NAME[@V]`: a name of a registry of servers. What that says of it is kept in the store as its name, and leads to a package of npm, PyPI
//! or an OCI registry, or to a bundle; from there on the run is one of that package, under that one's name.

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use bundle::listed::{LISTED, Listed, ListedError, MAX_LISTED, listed_url};
use bundle::{Package, Request, SERVER_NAME_LABEL};
use distribution::{
    Asking, Digest, Error, Index, Made, Making, Network, PackageName, Reference, Secret, Store, canonical, family,
};
use runtime::Signals;
use serde::{Deserialize, Serialize};

use crate::accept;
use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::show;
use crate::sources;

/// What a name stands for: for most of them itself.
pub struct Named {
    /// The package.
    pub reference: Reference,
    /// Where it comes from, and how it is made.
    pub network: Network,
    /// What a registry of servers says of it.
    pub listed: Option<Listed>,
}

/// Reads a name, and sees to it that the store has what is made of it; see [`sources::ready`].
///
/// # Errors
/// Where it is no name, its registry of servers does not know it, or what it stands for cannot be made.
pub fn named(
    text: &str,
    store: &Store,
    network: Network,
    settings: &Settings,
    until: Option<Instant>,
    signals: &mut Option<Signals>,
) -> Result<Named, Failure> {
    let named = called(text.parse()?, store, network, settings, until, signals)?;
    sources::ready(&named.reference, store, &named.network, settings, until, signals)?;
    Ok(named)
}

/// The same, where nothing is made of it yet.
///
/// # Errors
/// As those of [`named`].
pub fn called(
    reference: Reference,
    store: &Store,
    network: Network,
    settings: &Settings,
    until: Option<Instant>,
    signals: &mut Option<Signals>,
) -> Result<Named, Failure> {
    let Reference::Mcp(server) = &reference else { return Ok(Named { reference, network, listed: None }) };
    sources::ready(&reference, store, &network, settings, until, signals)?;
    let known = store.recall(&canonical(&reference, &network)?)?;
    let blob = known.map(|known| store.blob(&known.descriptor)).transpose()?.flatten();
    let bytes = blob.ok_or_else(|| Error::Offline(reference.to_string()))?.bytes()?;
    let listed = Listed::read(server, &bytes, &network.making.packages, network.making.kind.as_deref())?;
    if listed.is_deprecated {
        show::warn(&format!("{reference}: {} is deprecated by its publisher", listed.version));
    }
    listed.left_out.iter().for_each(|what| show::warn(&format!("{reference}: {what} is left out")));
    let bin = network.making.bin.clone().or(listed.bin.clone());
    let making = Making { bin, ..network.making.clone() };
    Ok(Named { reference: listed.reference.clone(), network: network.making(making), listed: Some(listed) })
}

/// Asks a registry of servers, and keeps the answer under the name. One that was taken back is forgotten.
///
/// # Errors
/// Where it cannot be asked, does not know the server, or says what is of no use.
pub fn look_up(
    server: &PackageName,
    name: &str,
    store: &Store,
    network: &Network,
    settings: &Settings,
) -> Result<(), Failure> {
    let registry = network.making.servers.as_deref();
    let asking = Asking::new(&network.access).staying();
    let mut answer = None;
    for api in ["v0.1", "v0"] {
        let url = listed_url(registry, api, server);
        answer = asking.get(&url, "application/json", login(&url, network).as_ref(), MAX_LISTED)?;
        if answer.is_some() {
            break;
        }
    }
    let place = || registry.unwrap_or(distribution::MCP_REGISTRY).to_owned();
    let missing = || Error::NotFound { what: Reference::Mcp(server.clone()).to_string(), place: place() };
    let (bytes, _) = answer.ok_or_else(missing)?;
    match Listed::read(server, &bytes, &network.making.packages, network.making.kind.as_deref()) {
        Ok(listed) => {
            Kept::hold(&listed, server, name, network, settings)?;
            if !listed.others.is_empty() && network.making.kind.is_none() {
                let (others, taken) = (listed.others.join(", "), &listed.reference);
                show::warn(&format!(
                    "{name} has several packages: {taken} is taken, --package-type takes another ({others})"
                ));
            }
        }
        Err(deleted @ ListedError::Deleted(_)) => {
            match store.remove(name) {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(why) => show::warn(&format!("{name} stays in the store: {why}")),
            }
            return Err(deleted.into());
        }
        Err(why) => return Err(why.into()),
    }
    let _lease = store.lease()?;
    let descriptor = store.put(&bytes, LISTED)?;
    let fingerprint = descriptor.digest.to_string();
    Ok(store.remember_made(name, &descriptor, Made { fingerprint, failed: None })?)
}

/// Which package a name led to: beside what was accepted, since the store forgets what is not used.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// As the store has it.
    name: String,
    /// What the package's versions have in common.
    family: String,
    /// The newest of them.
    package: String,
}

impl Kept {
    /// Sees to it that an entry names the package that it named before, if in another version, and keeps which that is: what the user
    /// accepted, granted and set was for that one.
    fn hold(
        listed: &Listed,
        server: &PackageName,
        name: &str,
        network: &Network,
        settings: &Settings,
    ) -> Result<(), Failure> {
        let (family, package) = (family(&listed.reference, network)?, listed.reference.to_string());
        let path = kept_at(name, settings);
        match accept::read::<Kept>(&path)? {
            Some(known) if known.family == family && known.package == package => Ok(()),
            Some(known) if known.family != family => {
                let name = Reference::Mcp(server.clone()).to_string();
                Err(ListedError::Moved { name, from: known.package, to: package }.into())
            }
            _ => accept::write(&path, &Kept { name: name.into(), family, package }),
        }
    }
}

/// Forgets which package a name led to. Whether anything was known of it.
///
/// # Errors
/// Where the file cannot be removed.
pub fn forget(name: &str, settings: &Settings) -> Result<bool, Failure> {
    let path = kept_at(name, settings);
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(Failure::new(exit::CONFIGURATION, format!("{}: {why}", path.display()))),
    }
}

fn kept_at(name: &str, settings: &Settings) -> PathBuf {
    settings.state.join("listed").join(format!("{}.json", Digest::of(name.as_bytes()).hex()))
}

/// The token that is configured for its host.
fn login(url: &str, network: &Network) -> Option<Secret> {
    let index = Index::parse(url).ok()?;
    let host = index.url().split("://").nth(1)?.split('/').next()?;
    let token = network.access.host(host)?.token.as_ref()?;
    Some(Secret::new(format!("Bearer {}", token.expose())))
}

/// Holds a package against what its registry of servers says, and puts into a run what that states and asks for.
///
/// # Errors
/// Where the package is another one, or the user gave a value that is not taken.
pub fn apply(listed: Option<&Listed>, package: &mut Package, request: &mut Request) -> Result<(), Failure> {
    let Some(listed) = listed else { return Ok(()) };
    let manifest = &mut package.manifest;
    let own = manifest.mcp.server_name.as_ref().or_else(|| package.config.config.labels.get(SERVER_NAME_LABEL));
    listed.check(own.map(String::as_str), manifest.source.as_ref())?;
    let env = request.env.clone();
    let given = |name: &str| {
        let flag = env.iter().rev().find(|flag| flag.name == name)?;
        flag.value.clone().or_else(|| std::env::var(name).ok().map(Secret::new))
    };
    Ok(listed.apply(manifest, request, &given)?)
}
