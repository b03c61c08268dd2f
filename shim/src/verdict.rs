//! What policy says of a package: the same for `run`, `pull`, `info` and `policy check`.

use bundle::policy::{Judgement, Policy, Subject, weigh};
use bundle::{Bounds, Package};
use distribution::{Network, Reference, Resolved, Store, registry_host};
use jiff::Timestamp;

use crate::evidence;
use crate::exit::Failure;
use crate::run::family;
use crate::settings::Settings;

/// The policy in force, and what it says of one package.
pub struct Verdict {
    /// The policy.
    pub policy: Policy,
    /// What it says.
    pub judgement: Judgement,
    /// What the versions of the package have in common.
    pub family: String,
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
        let evidence = evidence::of(resolved, store, network, &policy, settings)?;
        let judgement = weigh(&subject, &evidence, &policy, Timestamp::now());
        Ok(Verdict { policy, judgement, family })
    }

    /// What bounds the grant of a run.
    pub fn bounds<'a>(&'a self, settings: &'a Settings) -> Bounds<'a> {
        Bounds { max: &settings.max, policy: &self.policy, judgement: &self.judgement }
    }
}
