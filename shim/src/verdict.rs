//! What policy says of a package: the same for `run`, `pull`, `info` and `policy check`.

use bundle::listed::Listed;
use bundle::policy::{Judgement, Policy, Subject, weigh};
use bundle::{Bounds, Package, Request};
use distribution::{Digest, Mode, Network, Pending, Reference, Resolved, Store, configure, resolve};
use jiff::Timestamp;

use crate::cli;
use crate::evidence;
use crate::exit::Failure;
use crate::listing::{self, Named};
use crate::run::family;
use crate::settings::Settings;
use crate::show;

/// The policy in force, and what it says of one package.
pub struct Verdict {
    /// The policy.
    pub policy: Policy,
    /// What it says.
    pub judgement: Judgement,
    /// What the versions of the package have in common.
    pub family: String,
}

/// A package that is looked at: neither its layers nor its name are kept for that.
pub struct Seen {
    /// Where what was read of it lies meanwhile.
    pub store: Store,
    /// How its registry is asked.
    pub network: Network,
    /// The package that was named.
    pub reference: Reference,
    /// What a registry of servers says of it.
    pub listed: Option<Listed>,
    /// What it stands for.
    pub resolved: Resolved,
}

impl Seen {
    /// Looks a package up; asks its registry where it is not in the store. What is made of a source is made, and stays there.
    ///
    /// # Errors
    /// Where there is none of that name, or it cannot be had.
    pub fn of(text: &str, made: &cli::Making, settings: &Settings) -> Result<Seen, Failure> {
        let store = Store::open(&settings.cache)?;
        let network = settings.network_for(None, Mode::CacheFirst { refresh: settings.refresh }, made);
        let Named { reference, network, listed } = listing::named(text, &store, network, settings, None, &mut None)?;
        Seen::found(store, network, reference, listed)
    }

    /// The same of what is there by now, asking its registry as `mode` says: nothing is made for it.
    ///
    /// # Errors
    /// As [`Seen::of`].
    pub fn by(text: &str, mode: Mode, settings: &Settings) -> Result<Seen, Failure> {
        Seen::found(Store::open(&settings.cache)?, settings.network(None, mode), text.parse()?, None)
    }

    fn found(store: Store, network: Network, reference: Reference, listed: Option<Listed>) -> Result<Seen, Failure> {
        let resolved = resolve(&reference, &store, &network)?;
        show::stale(&resolved);
        Ok(Seen { store, network, reference, listed, resolved })
    }

    /// While this lives what is read of it lies in the store, and nothing of it afterwards.
    ///
    /// # Errors
    /// Where the store cannot be written.
    pub fn pending(&self) -> Result<Pending<'_>, Failure> {
        Ok(Pending::new(&self.resolved, &self.store)?)
    }

    /// The digest that its name stands for.
    pub fn digest(&self) -> &Digest {
        &self.resolved.descriptor.digest
    }

    /// Reads it, and what policy says of it. Dropped, the first of them leaves nothing of the package in the store.
    ///
    /// # Errors
    /// Where it cannot be had or read, and those of [`Verdict::of`].
    pub fn judged(&self, settings: &Settings) -> Result<(Pending<'_>, Package, Verdict), Failure> {
        let Seen { store, network, reference, listed, resolved } = self;
        let pending = self.pending()?;
        let mut package = Package::read(&configure(resolved, store, network)?)?;
        listing::apply(listed.as_ref(), &mut package, &mut Request::default())?;
        let verdict = Verdict::of(resolved, store, &package, reference, network, settings, Policy::default())?;
        Ok((pending, package, verdict))
    }
}

impl Verdict {
    /// Weighs what is known of a package. `flags` is what the flags of a run say.
    ///
    /// # Errors
    /// Where the package has no family, as [`family`], and as [`evidence::of`].
    pub fn of(
        resolved: &Resolved,
        store: &Store,
        package: &Package,
        reference: &Reference,
        network: &Network,
        settings: &Settings,
        flags: Policy,
    ) -> Result<Verdict, Failure> {
        let policy = settings.policy(flags);
        let family = family(package, reference, network)?;
        let subject = Subject { family: &family, manifest: &package.manifest };
        let now = Timestamp::now();
        let evidence = evidence::of(resolved, store, network, &policy, &subject, settings, now)?;
        let judgement = weigh(&subject, &evidence, &policy, now);
        Ok(Verdict { policy, judgement, family })
    }

    /// What bounds the grant of a run.
    pub fn bounds<'a>(&'a self, settings: &'a Settings) -> Bounds<'a> {
        Bounds { max: &settings.max, policy: &self.policy, judgement: &self.judgement }
    }
}
