//! What was enforced, as data: the same words in `doctor`, the audit log and the tests.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What each layer of a cage did, as measured from inside just before the server was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Report(BTreeMap<Layer, Status>);

impl Report {
    /// Records what a layer did.
    pub fn set(&mut self, layer: Layer, status: Status) {
        self.0.insert(layer, status);
    }

    /// Records that a layer lacks something beside what is known of it.
    pub fn lack(&mut self, layer: Layer, what: &str) {
        let status = match self.0.remove(&layer) {
            Some(Status::Full) | None => Status::Partial(what.into()),
            Some(Status::Partial(why)) => Status::Partial(format!("{why}; {what}")),
            Some(Status::Absent(why)) => Status::Absent(why),
        };
        self.0.insert(layer, status);
    }

    /// What a layer did, `None` where nothing was measured.
    pub fn status(&self, layer: Layer) -> Option<&Status> {
        self.0.get(&layer)
    }

    /// How strong the cage is as a whole. What of a layer is `partial` counts, since it names what is missing.
    pub fn tier(&self) -> Tier {
        let full = |layer| self.status(layer) == Some(&Status::Full);
        let namespaces = Layer::OF_NAMESPACES.into_iter().all(full);
        let landlock = matches!(self.status(Layer::Landlock), Some(Status::Full | Status::Partial(_)));
        match (namespaces, landlock, full(Layer::Cgroup)) {
            (true, true, true) => Tier::Three,
            (true, true, false) => Tier::Two,
            (true, false, _) | (false, true, _) => Tier::One,
            (false, false, _) if full(Layer::Seatbelt) => Tier::One,
            (false, false, _) => Tier::Zero,
        }
    }

    /// The layers that keep the cage from the next tier, with what is the matter.
    pub fn missing(&self) -> impl Iterator<Item = (Layer, &Status)> {
        let tier = self.tier();
        self.iter().filter(move |(layer, status)| match layer {
            Layer::Cgroup => tier == Tier::Two && **status != Status::Full,
            Layer::Landlock => matches!(status, Status::Absent(_)),
            Layer::Seatbelt => **status != Status::Full,
            _ => layer.is_of_namespaces() && **status != Status::Full,
        })
    }

    /// All layers in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Layer, &Status)> {
        self.0.iter().map(|(layer, status)| (*layer, status))
    }
}

/// How strong a cage is, from its layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "u8")]
pub enum Tier {
    /// Nothing keeps the host's files apart: nothing runs on Linux.
    Zero,
    /// Files are kept apart by one of the two: Landlock, or namespaces; on macOS by Seatbelt.
    One,
    /// By both. Guard and rlimits stand in for the cgroup.
    Two,
    /// By both, and a cgroup holds memory, processes and CPU.
    Three,
}

impl From<Tier> for u8 {
    fn from(tier: Tier) -> u8 {
        tier as u8
    }
}

impl TryFrom<u32> for Tier {
    type Error = ();

    fn try_from(number: u32) -> Result<Tier, ()> {
        [Tier::Zero, Tier::One, Tier::Two, Tier::Three].get(number as usize).copied().ok_or(())
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", u8::from(*self))
    }
}

/// One barrier of the cage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// user_namespaces(7): the server's uid has no rights over the host's.
    UserNamespace,
    /// mount_namespaces(7): the host's files are not mounted.
    MountNamespace,
    /// pid_namespaces(7): the host's processes have no id.
    PidNamespace,
    /// network_namespaces(7): loopback alone, of its own.
    NetworkNamespace,
    /// ipc_namespaces(7): no System V objects or message queues of the host.
    IpcNamespace,
    /// uts_namespaces(7): a host name of its own.
    UtsNamespace,
    /// cgroup_namespaces(7): the host's cgroup paths do not show.
    CgroupNamespace,
    /// The root file system cannot be written.
    ReadOnlyRoot,
    /// capabilities(7): every set is empty.
    Capabilities,
    /// `PR_SET_NO_NEW_PRIVS`: set-user-id programs gain nothing.
    NoNewPrivileges,
    /// setrlimit(2): descriptors, processes, core files, data segment.
    ResourceLimits,
    /// Descriptors 0, 1 and 2 alone are open.
    Descriptors,
    /// landlock(7).
    Landlock,
    /// seccomp(2).
    Seccomp,
    /// cgroups(7): memory, processes and CPU of the whole tree.
    Cgroup,
    /// The supervisor's own watch over memory, processes and CPU time of the tree.
    Guard,
    /// Where something of the network is granted: every destination is a socket of the supervisor's, or none.
    Egress,
    /// macOS: a Seatbelt profile keeps files, processes and the network apart.
    Seatbelt,
    /// Windows: a job object ends the whole tree and caps it.
    JobObject,
    /// Windows: the server's token has no privileges.
    RestrictedToken,
    /// Windows: the server writes what is labelled for it alone.
    LowIntegrity,
}

impl Layer {
    /// Whether the layer is one of those that the namespaces make together: what keeps the host's files, processes and
    /// network out of sight. They stand before all others.
    pub fn is_of_namespaces(self) -> bool {
        self <= Layer::ReadOnlyRoot
    }

    /// All of these, also where a platform has none of them: none of them is full there.
    const OF_NAMESPACES: [Layer; 8] = [
        Layer::UserNamespace,
        Layer::MountNamespace,
        Layer::PidNamespace,
        Layer::NetworkNamespace,
        Layer::IpcNamespace,
        Layer::UtsNamespace,
        Layer::CgroupNamespace,
        Layer::ReadOnlyRoot,
    ];

    /// Every layer that this platform has, in the order of [`Report::iter`].
    #[cfg(target_os = "macos")]
    pub const ALL: [Layer; 5] =
        [Layer::ResourceLimits, Layer::Descriptors, Layer::Guard, Layer::Egress, Layer::Seatbelt];

    /// Every layer that this platform has, in the order of [`Report::iter`].
    #[cfg(windows)]
    pub const ALL: [Layer; 6] = [
        Layer::Descriptors,
        Layer::Guard,
        Layer::Egress,
        Layer::JobObject,
        Layer::RestrictedToken,
        Layer::LowIntegrity,
    ];

    /// Every layer that this platform has, in the order of [`Report::iter`].
    #[cfg(target_os = "linux")]
    pub const ALL: [Layer; 17] = [
        Layer::UserNamespace,
        Layer::MountNamespace,
        Layer::PidNamespace,
        Layer::NetworkNamespace,
        Layer::IpcNamespace,
        Layer::UtsNamespace,
        Layer::CgroupNamespace,
        Layer::ReadOnlyRoot,
        Layer::Capabilities,
        Layer::NoNewPrivileges,
        Layer::ResourceLimits,
        Layer::Descriptors,
        Layer::Landlock,
        Layer::Seccomp,
        Layer::Cgroup,
        Layer::Guard,
        Layer::Egress,
    ];

    /// The name as it stands in the audit log.
    pub fn name(self) -> &'static str {
        match self {
            Layer::UserNamespace => "user-namespace",
            Layer::MountNamespace => "mount-namespace",
            Layer::PidNamespace => "pid-namespace",
            Layer::NetworkNamespace => "network-namespace",
            Layer::IpcNamespace => "ipc-namespace",
            Layer::UtsNamespace => "uts-namespace",
            Layer::CgroupNamespace => "cgroup-namespace",
            Layer::ReadOnlyRoot => "read-only-root",
            Layer::Capabilities => "capabilities",
            Layer::NoNewPrivileges => "no-new-privileges",
            Layer::ResourceLimits => "resource-limits",
            Layer::Descriptors => "descriptors",
            Layer::Landlock => "landlock",
            Layer::Seccomp => "seccomp",
            Layer::Cgroup => "cgroup",
            Layer::Guard => "guard",
            Layer::Egress => "egress",
            Layer::Seatbelt => "seatbelt",
            Layer::JobObject => "job-object",
            Layer::RestrictedToken => "restricted-token",
            Layer::LowIntegrity => "low-integrity",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much of a layer is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// All of it.
    Full,
    /// Some of it, and what is missing.
    Partial(String),
    /// None of it, and why.
    Absent(String),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Full => f.write_str("full"),
            Status::Partial(why) => write!(f, "partial: {why}"),
            Status::Absent(why) => write!(f, "absent: {why}"),
        }
    }
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.split_once(": ") {
            None if text == "full" => Ok(Status::Full),
            Some(("partial", why)) => Ok(Status::Partial(why.into())),
            Some(("absent", why)) => Ok(Status::Absent(why.into())),
            _ => Err(serde::de::Error::custom(format!("{text:?} is no status"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_what_its_layers_come_to() {
        let no = || Status::Absent("not here".into());
        let report = |namespaces: bool, landlock: Status, cgroup: Status| {
            let mut report = Report::default();
            Layer::OF_NAMESPACES.into_iter().for_each(|layer| report.set(layer, Status::Full));
            if !namespaces {
                report.set(Layer::PidNamespace, no());
            }
            report.set(Layer::Landlock, landlock);
            report.set(Layer::Cgroup, cgroup);
            report
        };
        let old = || Status::Partial("ABI 1".into());
        let table = [
            (report(true, Status::Full, Status::Full), Tier::Three, 0),
            (report(true, old(), Status::Full), Tier::Three, 0),
            (report(true, Status::Full, no()), Tier::Two, 1),
            (report(true, Status::Full, Status::Partial("without cpu".into())), Tier::Two, 1),
            (report(true, no(), Status::Full), Tier::One, 1),
            (report(false, old(), no()), Tier::One, 1),
            (report(false, no(), Status::Full), Tier::Zero, 2),
            (Report::default(), Tier::Zero, 0),
        ];
        for (report, tier, missing) in table {
            assert_eq!((report.tier(), report.missing().count()), (tier, missing), "{report:?}");
        }
    }

    #[test]
    fn words_are_the_same_both_ways() {
        for status in [Status::Full, Status::Partial("a: b".into()), Status::Absent("no".into())] {
            let text = serde_json::to_string(&status).unwrap();
            assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
        }
        assert!(serde_json::from_str::<Status>("\"on\"").is_err());
    }

    #[test]
    fn what_a_platform_does_not_have_is_no_tier() {
        let mut report = Report::default();
        report.set(Layer::JobObject, Status::Full);
        assert_eq!(report.tier(), Tier::Zero);
        report.set(Layer::Seatbelt, Status::Full);
        assert_eq!(report.tier(), Tier::One);
        assert!(Layer::OF_NAMESPACES.into_iter().all(Layer::is_of_namespaces));
        assert!(
            Layer::ALL
                .into_iter()
                .filter(|layer| layer.is_of_namespaces())
                .all(|layer| Layer::OF_NAMESPACES.contains(&layer))
        );
    }

    #[test]
    fn every_layer_has_the_name_that_it_is_written_by() {
        for layer in Layer::ALL {
            assert_eq!(serde_json::to_value(layer).unwrap(), layer.name());
        }
    }
}
