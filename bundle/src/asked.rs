//! What a version of a package asks for, to be accepted once and compared with what later versions ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
use crate::outbound::{Host, Outbound};
use crate::permissions::{Access, Origin};

/// What a manifest asks for: where it connects to, which files and programs, which variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Destinations, each host once with all its ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<Outbound>,
    /// By the path inside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filesystem: BTreeMap<PathBuf, AskedFile>,
    /// Programs, by their paths inside.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub subprocess: BTreeSet<PathBuf>,
    /// Names of variables.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub env: BTreeSet<String>,
}

/// One file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedFile {
    /// Reading alone, or writing too.
    pub access: Access,
    /// Who provides it.
    pub from: Origin,
}

impl Asked {
    /// What a manifest asks for.
    pub fn of(manifest: &Manifest) -> Asked {
        let permissions = &manifest.permissions;
        let file = |one: &crate::permissions::FsRequest| {
            (one.target.clone(), AskedFile { access: one.access, from: one.from })
        };
        Asked {
            network: merged(permissions.network.outbound.iter()),
            filesystem: permissions.filesystem.iter().map(file).collect(),
            subprocess: permissions.subprocess.allow.iter().cloned().collect(),
            env: manifest.env.iter().map(|spec| spec.name.clone()).collect(),
        }
    }

    /// What of it lies beyond what was accepted, a line each for people; nothing where all was.
    pub fn beyond(&self, accepted: &Asked) -> Vec<String> {
        let mut more = Vec::new();
        for Outbound { host, ports } in &self.network {
            let new = ports.iter().copied().filter(|port| {
                !accepted.network.iter().any(|known| known.ports.contains(port) && known.host.covers(host))
            });
            let new: Vec<u16> = new.collect();
            if !new.is_empty() {
                more.push(format!("network {}", Outbound::new(host.clone(), new)));
            }
        }
        for (target, file) in &self.filesystem {
            let known = accepted.filesystem.get(target);
            let target = target.display();
            match known {
                Some(known) if known.access >= file.access && known.from == file.from => {}
                Some(known) if known.from == file.from => {
                    more.push(format!("filesystem {target} {}, which was {}", file.access, known.access));
                }
                _ if file.from == Origin::Listed => {
                    more.push(format!("filesystem {target} {}, for the registry's entry", file.access));
                }
                _ => more.push(format!("filesystem {target} {}", file.access)),
            }
        }
        more.extend(self.subprocess.difference(&accepted.subprocess).map(|path| format!("program {}", path.display())));
        more.extend(self.env.difference(&accepted.env).map(|name| format!("variable {name}")));
        more
    }

    /// What either asks for.
    #[must_use]
    pub fn and(self, other: &Asked) -> Asked {
        let mut filesystem = self.filesystem;
        for (target, file) in &other.filesystem {
            let kept = filesystem.entry(target.clone()).or_insert(*file);
            *kept = AskedFile { access: kept.access.max(file.access), from: file.from };
        }
        Asked {
            network: merged(self.network.iter().chain(&other.network)),
            filesystem,
            subprocess: &self.subprocess | &other.subprocess,
            env: &self.env | &other.env,
        }
    }
}

fn merged<'a>(list: impl Iterator<Item = &'a Outbound>) -> Vec<Outbound> {
    let mut hosts: BTreeMap<&Host, BTreeSet<u16>> = BTreeMap::new();
    for Outbound { host, ports } in list {
        hosts.entry(host).or_default().extend(ports);
    }
    hosts.into_iter().map(|(host, ports)| Outbound::new(host.clone(), ports)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asked(permissions: Value, env: &[&str]) -> Asked {
        let env: Vec<_> = env.iter().map(|name| json!({"name": name})).collect();
        let manifest = json!({"schemaVersion": 1, "name": "a/b", "version": "1", "entrypoint": {"args": ["x"]},
            "permissions": permissions, "env": env});
        Asked::of(&Manifest::from_value(&manifest).unwrap())
    }

    #[test]
    fn t6_what_is_new_is_named_and_nothing_else() {
        let file = |access: &str, from: &str| json!([{"id": "w", "access": access, "target": "/work", "from": from}]);
        let net = |list: &[&str]| json!({"network": {"outbound": list}});
        for (before, after, want) in [
            (net(&["a.test"]), net(&["a.test"]), &[][..]),
            (net(&["a.test"]), net(&["a.test:443,80"]), &["network a.test:80"]),
            (net(&["a.test", "b.test"]), net(&["b.test"]), &[]),
            (net(&["*.a.test"]), net(&["x.a.test"]), &[]),
            (net(&["x.a.test"]), net(&["*.a.test"]), &["network *.a.test:443"]),
            (json!({}), net(&["b.test", "a.test"]), &["network a.test:443", "network b.test:443"]),
            (json!({"filesystem": file("rw", "user")}), json!({"filesystem": file("ro", "user")}), &[]),
            (
                json!({"filesystem": file("ro", "user")}),
                json!({"filesystem": file("rw", "user")}),
                &["filesystem /work rw, which was ro"],
            ),
            (
                json!({"filesystem": file("rw", "user")}),
                json!({"filesystem": file("rw", "state")}),
                &["filesystem /work rw"],
            ),
            (json!({}), json!({"subprocess": {"allow": ["/usr/bin/git"]}}), &["program /usr/bin/git"]),
        ] {
            let (before, after) = (asked(before, &["A"]), asked(after, &["A"]));
            assert_eq!(after.beyond(&before), want);
            // Once it is accepted nothing of both is new, also when read again.
            let both = before.clone().and(&after);
            let both: Asked = serde_json::from_str(&serde_json::to_string(&both).unwrap()).unwrap();
            assert_eq!(after.beyond(&both), [""; 0]);
        }
        assert_eq!(asked(json!({}), &["A", "B"]).beyond(&asked(json!({}), &["A"])), ["variable B"]);
    }
}
