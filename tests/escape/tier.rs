//! The tiers: which layers there are to hold a server, and how a machine is made to offer no more.

use std::fmt;
use std::path::Path;

use super::Grants;
use crate::command::Smcp;
use crate::tier::wrapper;
use crate::world::{User, World};
use crate::{image, needs, place, probe};

/// A way to run smcp, by which it finds the layers of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// As this machine is: tier 3, or tier 2 where the user has no cgroup.
    Best,
    /// The same as root itself, by `--user root`.
    AsRoot,
    /// Tier 2: as root, in a mount namespace where no cgroup can be found.
    WithoutCgroup,
    /// Tier 1: where no user namespace may be made.
    WithoutNamespaces,
    /// The same as root itself.
    AsRootWithoutNamespaces,
    /// Tier 1: where the kernel has no Landlock; namespaces can be had.
    WithoutLandlock,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Best => "tier 3 or 2",
            Tier::AsRoot => "tier 3 or 2 as root itself",
            Tier::WithoutCgroup => "tier 2",
            Tier::WithoutNamespaces => "tier 1",
            Tier::AsRootWithoutNamespaces => "tier 1 as root itself",
            Tier::WithoutLandlock => "tier 1 with namespaces",
        })
    }
}

/// What runs its arguments in a mount namespace without cgroups.
const NO_CGROUP: [&str; 5] = ["/usr/bin/unshare", "--mount", "sh", "-c", r#"umount -R /sys/fs/cgroup; exec "$0" "$@""#];

impl Tier {
    /// The tiers that can be had here, for the world's user.
    pub fn offered(world: &World) -> Vec<Tier> {
        let root = world.user() == User::Root;
        let cgroups = || Path::new("/sys/fs/cgroup").read_dir().is_ok_and(|mut entries| entries.next().is_some());
        let mut tiers = vec![Tier::Best];
        tiers.extend(root.then_some(Tier::AsRoot));
        if root && cgroups() && needs::program("unshare", "util-linux").is_some() {
            tiers.push(Tier::WithoutCgroup);
        }
        tiers.push(Tier::WithoutLandlock);
        if wrapper(world).is_some() {
            tiers.push(Tier::WithoutNamespaces);
            tiers.extend(root.then_some(Tier::AsRootWithoutNamespaces));
        }
        tiers
    }

    /// Whether the server is on the host's own root.
    pub fn is_without_namespaces(self) -> bool {
        matches!(self, Tier::WithoutNamespaces | Tier::AsRootWithoutNamespaces)
    }

    /// Whether the server is root itself.
    pub fn is_root(self) -> bool {
        matches!(self, Tier::AsRoot | Tier::AsRootWithoutNamespaces)
    }

    /// Those at which something can be granted.
    pub fn with_grants(world: &World) -> Vec<Tier> {
        Tier::offered(world).into_iter().filter(|tier| tier.shifts(world)).collect()
    }

    /// Whether a run with such grants is possible, or else refused: what is denied in a grant needs a mount.
    pub fn supports(self, grants: Grants, world: &World) -> bool {
        match grants {
            Grants::Nothing => true,
            // Hosts are told apart by a network namespace alone.
            Grants::Denying | Grants::Network => !self.is_without_namespaces(),
            Grants::Reading | Grants::Writing | Grants::Programs => self.shifts(world),
        }
    }

    /// Whether files come to belong to the server: root's unprivileged one owns none, and needs a mount for it.
    fn shifts(self, world: &World) -> bool {
        self != Tier::WithoutNamespaces || world.user() == User::Ordinary
    }

    /// `smcp run FLAGS PROBE VERB…` at this tier.
    pub fn caged<'w>(self, world: &'w World, flags: &[&str], verb: &[&str]) -> Smcp<'w> {
        let words = self.words(world, flags, verb);
        world.program(&words[0], &words[1..])
    }

    /// The same as words, for what starts it another way.
    pub fn words(self, world: &World, flags: &[&str], verb: &[&str]) -> Vec<String> {
        let probe = probe::path().to_str().expect("the shared place is UTF-8");
        let wrapper: &[&str] = match self {
            Tier::Best | Tier::AsRoot => &[],
            Tier::WithoutCgroup => &NO_CGROUP,
            Tier::WithoutLandlock => &[probe, "without-landlock"],
            Tier::WithoutNamespaces | Tier::AsRootWithoutNamespaces => wrapper(world).expect("it was offered"),
        };
        let user: &[&str] = if self.is_root() { &["--user", "root"] } else { &[] };
        let smcp = place::smcp().to_str().expect("the shared place is UTF-8");
        [wrapper, &[smcp, "run"], user, flags, &[image::probe_reference()], verb]
            .concat()
            .iter()
            .map(|w| (*w).into())
            .collect()
    }

    /// Fails unless the newest run was at this tier, by what it measured.
    #[track_caller]
    pub fn check(self, world: &World) {
        let entries = world.audit();
        let begin = entries.iter().rev().find(|entry| entry["event"] == "begin").expect("a run was begun");
        let holds = match self {
            Tier::Best | Tier::AsRoot => begin["tier"].as_u64() >= Some(2),
            Tier::WithoutCgroup => begin["tier"] == 2,
            Tier::WithoutNamespaces | Tier::AsRootWithoutNamespaces => begin["tier"] == 1,
            Tier::WithoutLandlock => begin["tier"] == 1 && begin["layers"]["user-namespace"] == "full",
        };
        assert!(holds, "not at {self}: {begin}");
    }
}
