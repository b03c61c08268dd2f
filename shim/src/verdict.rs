//! What policy says of a package: the same for `run`, `pull`, `info` and `policy check`.

use bundle::policy::{Judgement, Policy, Subject, weigh};
use bundle::{Bounds, Package};
use distribution::{Mode, Network, Pending, Reference, Resolved, Store, configure, registry_host, resolve};
use jiff::Timestamp;

use crate::cli;
use crate::evidence;
use crate::exit::Failure;
use crate::run::family;
use crate::settings::Settings;
use crate::sources;

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
    /// The name that was typed.
    pub reference: Reference,
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
        let reference: Reference = text.parse()?;
        sources::ready(&reference, &store, &network, settings)?;
        let resolved = resolve(&reference, &store, &network)?;
        Ok(Seen { store, network, reference, resolved })
    }

    /// Reads it, and what policy says of it. Dropped, the first of them leaves nothing of the package in the store.
    ///
    /// # Errors
    /// Where it cannot be had or read, and those of [`Verdict::of`].
    pub fn judged(&self, settings: &Settings) -> Result<(Pending<'_>, Package, Verdict), Failure> {
        let Seen { store, network, reference, resolved } = self;
        let pending = Pending::new(resolved, store)?;
        let package = Package::read(&configure(resolved, store, network)?)?;
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
        // That of the configuration: `--registry` is whoever types it.
        let configured = registry_host(Some(&settings.registry), network).ok();
        let family = family(package, reference, network)?;
        let subject = Subject { family: &family, configured: configured.as_deref(), manifest: &package.manifest };
        let now = Timestamp::now();
        let evidence = evidence::of(resolved, store, network, &policy, settings, now)?;
        let judgement = weigh(&subject, &evidence, &policy, now);
        Ok(Verdict { policy, judgement, family })
    }

    /// What bounds the grant of a run.
    pub fn bounds<'a>(&'a self, settings: &'a Settings) -> Bounds<'a> {
        Bounds { max: &settings.max, policy: &self.policy, judgement: &self.judgement }
    }
}
