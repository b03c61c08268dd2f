//! From a package of npm or PyPI, a directory or a bundle to a package in the store.
//!
//! It is made once, by a process of its own as everything that is fetched ([`crate::bring`]): whoever else wants it meanwhile waits for
//! that one, and a client that gives up does not stop it. From then on a start reads one small file of the store and asks nobody.
//! What has no exact version is looked at again where it is older than `refresh`: the start that finds it so runs what is there, and
//! a process in the background looks for the next one.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bundle::Package;
use bundle::build::{BuildOptions, Caged, Registries, build, fingerprint, look, resembles};
use bundle::policy::Policy;
use distribution::{
    Made, Making, Mode, Network, PackageName, Pending, Reference, Remembered, Runtime, Store, canonical, configure,
    resolve,
};
use runtime::Signals;
use serde::{Deserialize, Serialize};

use crate::bring::{Bring, Wanted};
use crate::exit::{self, Failure};
use crate::listing;
use crate::run::take_signals;
use crate::settings::Settings;
use crate::show;
use crate::tool;
use crate::unpack;

/// Sees to it that the store has what is made of a source, as new as the network's mode wants it. Nothing for packages of registries
/// and layouts. `until` is how long a client waits; whoever else waits to the end.
///
/// # Errors
/// Where it has to be made and cannot be; those of [`Bring::to_its_end`].
pub fn ready(
    reference: &Reference,
    store: &Store,
    network: &Network,
    settings: &Settings,
    until: Option<Instant>,
    signals: &mut Option<Signals>,
) -> Result<(), Failure> {
    let Some(source) = Source::of(reference) else { return Ok(()) };
    settings.let_scripts(&network.making)?;
    let name = canonical(reference, network)?;
    let known = store.recall(&name)?.filter(|known| store.contains(&known.descriptor));
    let bring = |again, until| Bring {
        what: Wanted::Made(&network.making, again),
        reference: reference.to_string(),
        name: name.clone(),
        store,
        settings,
        registry: None,
        offline: false,
        until,
    };
    let mut make = |again| {
        if until.is_some() && signals.is_none() {
            *signals = Some(take_signals()?);
        }
        bring(again, until).to_its_end(signals.as_ref())
    };
    match (known, network.mode) {
        // Whoever looks it up says so.
        (None, Mode::Offline) => Ok(()),
        (None, _) => make(false),
        (Some(known), mode) => match source.state(&known, mode)? {
            State::Good => Ok(()),
            State::Changed if mode == Mode::Offline => Err(Failure::new(
                exit::RESOLVE,
                format!("{reference} has changed since it was made, and the network is off"),
            )
            .hint("without --offline it is made anew")),
            State::Changed => make(false),
            State::Old => {
                // Nobody waits: it is a process that belongs to nobody.
                look_again(&bring(true, Some(Instant::now())), &known);
                Ok(())
            }
            State::Asked => match make(true) {
                Err(failure) if failure.code == exit::RESOLVE => {
                    show::warn(&format!("{name} comes from the store and may be old: {}", failure.message));
                    Ok(())
                }
                made => made,
            },
        },
    }
}

/// Whether a package is made here of what a reference names.
pub fn is_source(reference: &Reference) -> bool {
    Source::of(reference).is_some()
}

/// What a package is made of here.
enum Source<'a> {
    /// One version of it, for ever.
    Exact,
    /// Whatever is the newest.
    Newest,
    /// Files of this machine.
    Files(&'a Path),
}

/// What to do about a package that the store has.
enum State {
    Good,
    Old,
    Changed,
    Asked,
}

impl<'a> Source<'a> {
    fn of(reference: &'a Reference) -> Option<Source<'a>> {
        match reference {
            Reference::Npm(PackageName { version: Some(version), .. }) if is_exact(version) => Some(Source::Exact),
            Reference::Pypi(PackageName { version: Some(_), .. }) | Reference::Download(_) => Some(Source::Exact),
            // An entry of one version can be taken back, too.
            Reference::Npm(_) | Reference::Pypi(_) | Reference::Mcp(_) => Some(Source::Newest),
            Reference::Directory(path) | Reference::Mcpb(path) => Some(Source::Files(path)),
            Reference::Registry(_) | Reference::OciLayout(_) => None,
        }
    }

    fn state(&self, known: &Remembered, mode: Mode) -> Result<State, Failure> {
        let made = known.made.as_ref();
        Ok(match (self, mode) {
            (_, Mode::Refresh) => State::Asked,
            (Source::Files(path), _)
                if made.is_none_or(|made| made.fingerprint != fingerprint(path).unwrap_or_default()) =>
            {
                State::Changed
            }
            (Source::Newest, Mode::CacheFirst { refresh }) if is_older(known, refresh) => State::Old,
            _ => State::Good,
        })
    }
}

/// Whether an npm version is one, not a tag or a range.
fn is_exact(version: &str) -> bool {
    let core = version.split(['-', '+']).next().unwrap_or_default();
    let numbers: Vec<&str> = core.split('.').collect();
    numbers.len() == 3 && numbers.iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// A time in the future is a clock that was set back: as good as none.
fn is_older(known: &Remembered, age: Duration) -> bool {
    SystemTime::now().duration_since(known.resolved_at).is_ok_and(|passed| passed > age)
        || known.resolved_at > SystemTime::now()
}

/// What the process that makes a package is told.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    reference: String,
    kind: Option<String>,
    bin: Option<String>,
    runtime: Runtime,
    scripts: Vec<String>,
    /// Made at this time or before, in seconds since 1970, it is looked at again; without one what is there and has not
    /// changed will do.
    before: Option<u64>,
}

impl Order {
    /// As a run or a command asks for it, of what has to be made.
    pub fn of(reference: &str, making: &Making, again: bool) -> Order {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Order {
            reference: reference.to_owned(),
            kind: making.kind.clone(),
            bin: making.bin.clone(),
            runtime: making.runtime,
            scripts: making.scripts.clone(),
            before: again.then_some(now),
        }
    }

    /// The source, how it is made here, and the name of what comes of it.
    ///
    /// # Errors
    /// Where the order is not one of this version's.
    pub fn read(&self, settings: &Settings) -> Result<(Reference, Network, String), Failure> {
        let reference: Reference = self.reference.parse()?;
        let network = settings.network(None, Mode::CacheFirst { refresh: settings.refresh });
        let (bin, scripts) = (self.bin.clone(), self.scripts.clone());
        let kind = self.kind.clone();
        let making = Making { kind, bin, scripts, runtime: self.runtime, ..network.making.clone() };
        let network = network.making(making);
        let name = canonical(&reference, &network)?;
        Ok((reference, network, name))
    }
}

/// Has it looked at again by a process that this one does not wait for, and says so.
fn look_again(bring: &Bring<'_>, known: &Remembered) {
    if let Some(why) = known.made.as_ref().and_then(|made| made.failed.as_ref()) {
        show::warn(&format!(
            "{} could not be looked at again the last time, so this is the old one: {why}",
            bring.reference
        ));
    }
    let hours = SystemTime::now().duration_since(known.resolved_at).unwrap_or_default().as_secs() / 3600;
    show::say(&format!("{} was looked up {hours} h ago, and is looked at again for the next start", bring.reference));
    if let Err(failure) = bring.leave_behind() {
        show::warn(&failure.message);
    }
}

/// Makes it, unless somebody else has meanwhile.
///
/// # Errors
/// Why it cannot be made.
pub fn made(order: &Order, settings: &Settings, store: &Store) -> Result<(), Failure> {
    let (reference, network, name) = order.read(settings)?;
    let Some(source) = Source::of(&reference) else { return Ok(()) };
    let known = store.recall(&name)?.filter(|known| store.contains(&known.descriptor));
    let changed = |known: &Remembered| matches!(source.state(known, Mode::Offline), Ok(State::Changed) | Err(_));
    let since = order.before.map(|before| UNIX_EPOCH + Duration::from_secs(before));
    let good = |known: &Remembered| !changed(known) && since.is_none_or(|since| known.resolved_at > since);
    if known.as_ref().is_some_and(good) {
        return Ok(());
    }
    let done = match &reference {
        Reference::Mcp(server) => listing::look_up(server, &name, store, &network, settings),
        _ => build_of(&reference, order, store, &network, (&name, known.as_ref()), settings),
    };
    if let (Err(failure), Some(known)) = (&done, &known) {
        // Tried again at the next start, which tells of it.
        let made = Made { failed: Some(failure.message.clone()), ..known.made.clone().unwrap_or_default() };
        store.amend(&name, made)?;
    }
    done?;
    if let Reference::Mcp(_) = reference {
        return Ok(());
    }
    let resolved = resolve(&reference, store, &network)?;
    let pending = Pending::new(&resolved, store)?;
    let image = configure(&resolved, store, &network)?;
    bundle::prepare(&Package::read(&image)?, &image, store, &network, &|_| {}, &unpack::in_a_process)?;
    Ok(pending.keep()?)
}

fn build_of(
    reference: &Reference,
    order: &Order,
    store: &Store,
    network: &Network,
    (name, known): (&str, Option<&Remembered>),
    settings: &Settings,
) -> Result<(), Failure> {
    let registries = registries(network, settings);
    if let Some(known) = resembles(reference) {
        show::warn(&format!("{reference} is not {known}, whose name is hardly another"));
    }
    // The same as when it was made: nothing is installed for that.
    let looked = look(reference, &registries)?;
    let same = |known: &&Remembered| known.made.as_ref().is_some_and(|made| Some(&made.fingerprint) == looked.as_ref());
    if let Some(known) = known.filter(same) {
        let made = Made { failed: None, ..known.made.clone().unwrap_or_default() };
        return Ok(store.remember_made(name, &known.descriptor, made)?);
    }
    let options = BuildOptions {
        bin: order.bin.clone(),
        runtime: order.runtime,
        scripts: order.scripts.clone(),
        registries,
        ..BuildOptions::default()
    };
    let in_a_cage = |caged: &Caged| tool::command(caged, settings.file.as_deref());
    let fingerprint = match reference {
        Reference::Directory(path) | Reference::Mcpb(path) => fingerprint(path)?,
        _ => looked.unwrap_or_default(),
    };
    let built = build(reference, &options, store, Some(&in_a_cage), &show::say)?;
    store.remember_made(name, &built.descriptor, Made { fingerprint, failed: None })?;
    Ok(())
}

/// Where packages are from, and how old they must be.
pub fn registries(network: &Network, settings: &Settings) -> Registries {
    Registries {
        packages: network.making.packages.clone(),
        access: network.access.clone(),
        min_age: settings.policy(Policy::default()).min_release_age.map(|least| least.value),
        trust_root: Some(settings.trust_root()).filter(|path| path.symlink_metadata().is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_stay_what_they_are() {
        for (text, want) in [
            ("npm:x@1.2.3", true),
            ("npm:x@1.2.3-rc.1", true),
            ("npm:@a/x@1.2.3+b", true),
            ("npm:x@1.2", false),
            ("npm:x@next", false),
            ("npm:x", false),
            ("pypi:x==1", true),
            ("pypi:x", false),
        ] {
            let reference: Reference = text.parse().unwrap();
            assert_eq!(matches!(Source::of(&reference), Some(Source::Exact)), want, "{text}");
        }
        assert!(Source::of(&"acme/x@1.2.3".parse().unwrap()).is_none());
    }
}
