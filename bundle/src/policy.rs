//! What may run and what it may be granted: the `policy` section of the configuration, with where each value came from.
//!
//! Policies combine to what is stricter in both. A policy says less than it means: who demands a level and no mode
//! means `strict`, and counts the certifiers that it names itself. So [`Policy::stricter`] completes both sides first, and
//! adding a policy never lets more run. The files, variables and flags of one authority are [`Policy::together`] before that:
//! there one file may name the certifiers for the level that another demands.

mod ceilings;
mod pattern;
mod read;
mod shown;
mod source;
mod trust;
mod values;
mod variables;
mod weigh;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use ceilings::{Ceilings, FilesystemCeiling, LimitCeilings, PathCeiling};
pub use pattern::Pattern;
pub use read::{PolicyError, Section};
pub use shown::Shown;
pub use source::{Source, Sourced};
pub use trust::{Certifier, Predicate, SignatureRule, Who};
pub use values::{Channel, HubLevels, InstallScripts, LevelMode, NewPermissions, Pin, Unscored};
pub use weigh::{Judgement, Subject, weigh};

use crate::evidence::PackageClass;

/// What the policies at hand say together. A value that nobody states is absent here; the accessors know what holds then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The least level, 0 to 3.
    pub min_cert_level: Option<Sourced<u8>>,
    /// What a level below that does.
    pub cert_level_mode: Option<Sourced<LevelMode>>,
    /// One set for each policy that has one: the origin must be in all.
    pub allowed_origins: Vec<Sourced<BTreeSet<PackageClass>>>,
    /// A score below it warns, 0 to 100.
    pub warning_threshold: Option<Sourced<u8>>,
    /// What no score does.
    pub unscored: Option<Sourced<Unscored>>,
    /// Whether a hub's unsigned word counts.
    pub hub_levels: Option<Sourced<HubLevels>>,
    /// The least tier of a cage, 1 to 3.
    pub min_tier: Option<Sourced<u8>>,
    /// The registries that are configured where something is said of policy, by their hosts: a hub's word counts about a
    /// package that is in all of them, which is one.
    pub hubs: Vec<String>,
    /// What must have signed what: every rule that names a package must be met.
    pub signatures: Vec<Sourced<SignatureRule>>,
    /// Whose word counts for what. One list for each authority that has one: a certification counts where all lists let it, a
    /// revocation where one does.
    pub certifiers: Vec<Sourced<Vec<Certifier>>>,
    /// The most that a run may be granted.
    pub ceilings: Ceilings,
    /// What tools may be.
    pub tools: Tools,
    /// How the warning is given.
    pub warning: Warning,
    /// What becomes of a version that asks for more than the accepted one.
    pub new_permissions: Option<Sourced<NewPermissions>>,
    /// Whether packages may execute something when they are installed.
    pub install_scripts: Option<Sourced<InstallScripts>>,
    /// How old a version of npm or PyPI must be.
    pub min_release_age: Option<Sourced<Duration>>,
}

/// `policy.tools`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    /// What becomes of a tool that is described in another way than before.
    pub pin: Option<Sourced<Pin>>,
    /// One list for each policy that has one: a tool must be named by all.
    pub allow: Vec<Sourced<Vec<Pattern>>>,
    /// All of them deny.
    pub deny: Vec<Sourced<Pattern>>,
}

/// `policy.warning`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warning {
    /// Where it is put: all that any policy names.
    pub channels: Option<Sourced<BTreeSet<Channel>>>,
}

/// The threshold where nobody states one.
const THRESHOLD: u8 = 80;

/// The least tier that anybody may accept: without a sandbox nothing runs on Linux.
const LEAST_TIER: u8 = if cfg!(target_os = "linux") { 1 } else { 0 };

/// The least tier where nobody says: Windows has no more.
const DEFAULT_TIER: u8 = if cfg!(windows) { 0 } else { 1 };

impl Policy {
    /// What holds under both: never more than under one of them.
    #[must_use]
    pub fn stricter(self, other: Policy) -> Policy {
        self.completed().together(other.completed())
    }

    /// What the files, variables and flags of one authority say together: of each value the stricter one, and what only one
    /// of them states is as that one says.
    #[must_use]
    pub fn together(self, other: Policy) -> Policy {
        let certifiers = match (self.certifiers.is_empty(), other.certifiers.is_empty()) {
            (false, false) => [self.certifiers, other.certifiers].concat(),
            (true, _) => other.certifiers,
            (_, true) => self.certifiers,
        };
        Policy {
            min_cert_level: source::stricter(self.min_cert_level, other.min_cert_level),
            cert_level_mode: source::stricter(self.cert_level_mode, other.cert_level_mode),
            allowed_origins: [self.allowed_origins, other.allowed_origins].concat(),
            warning_threshold: source::stricter(self.warning_threshold, other.warning_threshold),
            unscored: source::stricter(self.unscored, other.unscored),
            hub_levels: source::stricter(self.hub_levels, other.hub_levels),
            min_tier: source::stricter(self.min_tier, other.min_tier),
            hubs: [self.hubs, other.hubs].concat(),
            signatures: [self.signatures, other.signatures].concat(),
            certifiers,
            ceilings: self.ceilings.and(other.ceilings),
            tools: Tools {
                pin: source::stricter(self.tools.pin, other.tools.pin),
                allow: [self.tools.allow, other.tools.allow].concat(),
                deny: [self.tools.deny, other.tools.deny].concat(),
            },
            warning: Warning { channels: all_of(self.warning.channels, other.warning.channels) },
            new_permissions: source::stricter(self.new_permissions, other.new_permissions),
            install_scripts: source::stricter(self.install_scripts, other.install_scripts),
            min_release_age: source::stricter(self.min_release_age, other.min_release_age),
        }
    }

    /// The policy of an authority that configures this registry: names without one are about it, and a hub's word counts from
    /// there alone. So whoever names another registry, by a variable or a flag, cannot say what packages of it are worth.
    #[must_use]
    pub fn of_registry(mut self, host: &str) -> Policy {
        let certifiers = self.certifiers.iter_mut().flat_map(|list| &mut list.value);
        certifiers.for_each(|one| one.registry = Some(host.into()));
        self.hubs.push(host.into());
        self
    }

    /// Writes out what a policy means and does not say, lest another one say it: a demand holds with the defaults of what
    /// it depends on.
    fn completed(mut self) -> Policy {
        let level = self.min_cert_level.as_ref().filter(|level| level.value > 0).map(|level| &level.source);
        let of_certifiers = self.certifiers.first().map(|list| &list.source);
        let of_signatures = self.signatures.first().map(|rule| &rule.source);
        let (level, demand) = (level.cloned(), level.or(of_certifiers).or(of_signatures).cloned());
        let mode = |source| Sourced { value: LevelMode::default(), source };
        self.cert_level_mode = self.cert_level_mode.or(demand.map(mode));
        if let Some(source) = level.filter(|_| self.certifiers.is_empty()) {
            self.certifiers.push(Sourced { value: Vec::new(), source });
        }
        if let Some(threshold) = &self.warning_threshold {
            self.unscored = self.unscored.or_else(|| Some(threshold.with(Unscored::default())));
            self.warning.channels = self.warning.channels.or_else(|| Some(threshold.with(Channel::all())));
        }
        self
    }

    /// The least level, 0 to 3.
    pub fn min_cert_level(&self) -> Sourced<u8> {
        stated(&self.min_cert_level, 0)
    }

    /// What a level below that does.
    pub fn cert_level_mode(&self) -> Sourced<LevelMode> {
        stated(&self.cert_level_mode, LevelMode::default())
    }

    /// A score below it warns, 0 to 100.
    pub fn warning_threshold(&self) -> Sourced<u8> {
        stated(&self.warning_threshold, THRESHOLD)
    }

    /// What no score does.
    pub fn unscored(&self) -> Sourced<Unscored> {
        stated(&self.unscored, Unscored::default())
    }

    /// Whether a hub's unsigned word counts.
    pub fn hub_levels(&self) -> Sourced<HubLevels> {
        stated(&self.hub_levels, HubLevels::default())
    }

    /// The least tier of a cage, 1 to 3; elsewhere than on Linux it may be 0.
    pub fn min_tier(&self) -> Sourced<u8> {
        stated(&self.min_tier, DEFAULT_TIER)
    }

    /// What becomes of a version that asks for more than the accepted one.
    pub fn new_permissions(&self) -> Sourced<NewPermissions> {
        stated(&self.new_permissions, NewPermissions::default())
    }

    /// Whether packages may execute something when they are installed, where a user names them.
    pub fn install_scripts(&self) -> Sourced<InstallScripts> {
        stated(&self.install_scripts, InstallScripts::default())
    }
}

impl Policy {
    /// Everybody whose word could count for or against a package, each with the first that names them.
    pub fn signers_of(&self, subject: &Subject<'_>) -> BTreeMap<&Who, &Source> {
        let signatures = self.signatures.iter().filter(|rule| subject.is_named_widely(&rule.value.names));
        let signers = signatures.flat_map(|rule| rule.value.by.iter().map(|who| (who, &rule.source)));
        let speaks = |one: &&Certifier| subject.is_certified_by(one) || subject.is_revoked_by(one);
        let lists = self.certifiers.iter();
        let certifiers = lists.flat_map(|list| list.value.iter().filter(speaks).map(|one| (&one.who, &list.source)));
        let mut all = BTreeMap::new();
        for (who, source) in signers.chain(certifiers) {
            all.entry(who).or_insert(source);
        }
        all
    }

    /// Whether anybody is named by identity and issuer.
    pub fn names_identities(&self) -> bool {
        let signers = self.signatures.iter().flat_map(|rule| &rule.value.by);
        let certifiers = self.certifiers.iter().flat_map(|list| &list.value).map(|one| &one.who);
        signers.chain(certifiers).any(|who| matches!(who, Who::Identity { .. }))
    }
}

impl Tools {
    /// What becomes of a tool that is described in another way than before.
    pub fn pin(&self) -> Sourced<Pin> {
        stated(&self.pin, Pin::default())
    }

    /// Whether a tool may be used.
    ///
    /// # Errors
    /// The policy that does not let it.
    pub fn judge(&self, name: &str) -> Result<(), &Source> {
        let denied = self.deny.iter().find(|pattern| pattern.value.matches(name)).map(|pattern| &pattern.source);
        let missing = || self.allow.iter().find(|list| !list.value.iter().any(|pattern| pattern.matches(name)));
        denied.or_else(|| missing().map(|list| &list.source)).map_or(Ok(()), Err)
    }
}

impl Warning {
    /// Where it is put.
    pub fn channels(&self) -> Sourced<BTreeSet<Channel>> {
        stated(&self.channels, Channel::all())
    }
}

fn stated<T: Clone>(value: &Option<Sourced<T>>, otherwise: T) -> Sourced<T> {
    value.clone().unwrap_or(Sourced { value: otherwise, source: Source::Default })
}

/// More channels are stricter.
fn all_of(
    one: Option<Sourced<BTreeSet<Channel>>>,
    other: Option<Sourced<BTreeSet<Channel>>>,
) -> Option<Sourced<BTreeSet<Channel>>> {
    match (one, other) {
        (Some(one), Some(other)) if other.value.is_subset(&one.value) => Some(one),
        (Some(one), Some(other)) => Some(Sourced { value: &one.value | &other.value, source: other.source }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod weigh_tests;
