//! What is granted below ceilings: a table of cases, and what holds for all of them.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::World;
use super::*;
use crate::manifest::Manifest;
use crate::outbound::{Host, Outbound};
use crate::policy::Section;

/// One case of a grant below ceilings; `$` stands for the world's directory, which has `in/deep`, `out` and the link `link` to `out`.
#[derive(Debug, serde::Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Row {
    row: String,
    policy: Section,
    user: Section,
    asks: Value,
    mounts: Vec<String>,
    deny: Vec<String>,
    env: Vec<String>,
    programs: Option<Vec<PathBuf>>,
    memory: Option<u64>,
    pids: Option<u32>,
    granted: Vec<String>,
    refused: Vec<String>,
    withheld: Vec<String>,
}

impl Row {
    /// Puts the flags of the run into a world.
    fn flags(&self, world: &mut World) {
        for mount in &self.mounts {
            world.mount(mount);
        }
        world.request.denied = self.deny.iter().map(PathBuf::from).collect();
        world.request.env = self.env.iter().map(|flag| flag.parse().unwrap()).collect();
        world.request.subprocess = match &self.programs {
            None => SubprocessFlag::None,
            Some(paths) if paths.is_empty() => SubprocessFlag::Any,
            Some(paths) => SubprocessFlag::Paths(paths.clone()),
        };
        world.request.limits = LimitRequest { memory: self.memory, pids: self.pids, ..LimitRequest::default() };
    }

    /// Judged in a world; what is granted of it, a text each.
    fn judge(&self, world: &mut World) -> Result<Vec<String>, Denied> {
        self.flags(world);
        let grant = world.judge()?;
        let own = ["HOME", "LANG", "LOGNAME", "PATH", "USER"];
        let mut granted: Vec<String> =
            grant.mounts.iter().map(|m| format!("{} {}", m.source.display(), m.access)).collect();
        granted.extend(grant.env.iter().map(|(name, _)| name.clone()).filter(|name| !own.contains(&name.as_str())));
        match grant.subprocess {
            Subprocess::Denied => {}
            Subprocess::AllowedAny => granted.push("any program".into()),
            Subprocess::AllowedPaths(paths) => granted.extend(paths.iter().map(|path| path.display().to_string())),
        }
        granted.extend(grant.egress.outbound.iter().map(Outbound::to_string));
        granted.push(format!("{}M {} pids", grant.limits.memory >> 20, grant.limits.pids));
        granted.extend(grant.withheld.iter().map(|withheld| format!("not {}: {}", withheld.what, withheld.why)));
        Ok(granted)
    }
}

/// With the directories that the rows name.
fn world() -> World {
    let world = World::new(json!({}));
    world.make("in/deep");
    world.make("out");
    symlink(world.path("out"), world.path("in/link")).unwrap();
    world
}

/// Makes the package ask for something.
fn asking(world: &mut World, members: &Value) {
    let mut manifest = json!({"schemaVersion": 1, "name": "a/b", "version": "1", "entrypoint": {"args": ["srv"]}});
    let members = members.as_object().cloned().unwrap_or_default();
    manifest.as_object_mut().unwrap().extend(members);
    world.package.manifest = Manifest::from_value(&manifest).unwrap();
}

/// The rows of `granted.yaml`, each with a world of its own.
fn rows() -> Vec<(Row, World)> {
    let lines = include_str!("granted.yaml").lines().filter_map(|line| line.strip_prefix("- "));
    let read = |line: &str| {
        let mut world = world();
        let line = line.replace('$', world.path("").to_str().unwrap().trim_end_matches('/'));
        let row: Row = serde_saphyr::from_str(&line).unwrap_or_else(|why| panic!("{line}: {why}"));
        asking(&mut world, &row.asks);
        let organisation = row.policy.read(Path::new("/org.yaml"), None).unwrap();
        world.policy = organisation.stricter(row.user.read(Path::new("/user.yaml"), None).unwrap());
        (row, world)
    };
    lines.map(read).collect()
}

#[test]
fn every_row_is_granted_as_it_says() {
    let rows = rows();
    assert!(rows.len() >= 40, "{} rows", rows.len());
    for (row, mut world) in rows {
        let name = &row.row;
        match row.judge(&mut world) {
            Ok(granted) => {
                assert!(row.refused.is_empty(), "row {name:?} is granted: {granted:#?}");
                let (not, granted): (Vec<_>, Vec<_>) = granted.into_iter().partition(|text| text.starts_with("not "));
                for text in &row.granted {
                    assert!(granted.contains(text), "row {name:?}: {text:?} in {granted:#?}");
                }
                let limits = granted.iter().filter(|text| text.ends_with("pids")).count();
                let stated = row.granted.iter().filter(|text| text.ends_with("pids")).count();
                assert_eq!(granted.len() - limits, row.granted.len() - stated, "row {name:?}: {granted:#?}");
                assert_eq!(not.len(), row.withheld.len(), "row {name:?}: {not:#?}");
                for text in &row.withheld {
                    assert!(not.iter().any(|not| not.contains(text)), "row {name:?}: {text:?} in {not:#?}");
                }
            }
            Err(denied) => {
                assert_eq!(denied.reasons.len(), row.refused.len(), "row {name:?}: {denied:#?}");
                for text in &row.refused {
                    let found = denied.reasons.iter().any(|reason| reason.what.contains(text));
                    assert!(found, "row {name:?}: {text:?} in {denied:#?}");
                }
            }
        }
    }
}

/// A few of all policies: each key by one of a few values, or not at all.
fn policies() -> impl Strategy<Value = String> {
    let lists =
        |all: &'static [&'static str]| proptest::option::of(proptest::sample::subsequence(all.to_vec(), 0..=all.len()));
    let files = [
        "{path: $/in, access: rw}",
        "{path: $/in, access: ro}",
        "{path: $/in/deep, access: rw}",
        "{path: $, access: ro}",
    ];
    let files = proptest::option::of(proptest::sample::subsequence(files.to_vec(), 0..=3));
    let key =
        |key: &'static str, list: Option<Vec<&'static str>>| list.map(|list| format!("{key}: [{}]", list.join(", ")));
    (
        files,
        lists(&["$/in/deep", "$/out", "$/absent"]),
        lists(&["/usr/bin/git", "/usr/bin/rg"]),
        lists(&["'A*'", "B", "'*'"]),
        lists(&["'*.a.test'", "x.a.test", "b.test"]),
        lists(&["y.a.test", "b.test"]),
        proptest::option::of(proptest::sample::select(vec![64u64, 256, 1024])),
    )
        .prop_map(move |(allow, deny, programs, env, hosts, not, memory)| {
            let object = |name: &str, parts: Vec<Option<String>>| {
                format!("{name}: {{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
            };
            let limits = object("limits", vec![memory.map(|memory| format!("memory: {memory}M"))]);
            let parts = [
                object("filesystem", vec![key("allow", allow), key("deny", deny)]),
                object("subprocess", vec![key("allow", programs)]),
                object("env", vec![key("deny", env)]),
                object("network", vec![key("allow", hosts), key("deny", not)]),
                limits,
            ];
            format!("{{ceilings: {{{}}}}}", parts.join(", "))
        })
}

/// Flags of a run, and what its package asks for.
fn runs() -> impl Strategy<Value = Row> {
    let some = |all: &'static [&'static str]| proptest::sample::subsequence(all.to_vec(), 0..=all.len().min(3));
    (
        some(&["$/in:rw", "$/in", "$/in/deep:rw", "$/out", "$/in/link"]),
        some(&["A=1", "AB=1", "B=1", "C=1"]),
        some(&["/usr/bin/git", "/usr/bin/rg", "/usr/bin/curl"]),
        some(&["x.a.test", "y.a.test", "*.a.test", "b.test", "c.test"]),
        proptest::option::of(proptest::sample::select(vec![32u64, 128, 512, 4096])),
        proptest::bool::ANY,
    )
        .prop_map(|(mounts, env, programs, hosts, memory, asks)| {
            let (flags, asked) = if asks { (vec![], programs) } else { (programs, vec![]) };
            let owned = |list: Vec<&str>| list.into_iter().map(String::from).collect::<Vec<_>>();
            Row {
                mounts: owned(mounts),
                env: owned(env),
                programs: (!flags.is_empty()).then(|| flags.into_iter().map(PathBuf::from).collect()),
                memory: memory.map(|memory| memory << 20),
                asks: json!({"permissions": {"network": {"outbound": hosts}, "subprocess": {"allow": asked}}}),
                ..Row::default()
            }
        })
}

/// What a grant comes to, to be compared.
struct Got {
    mounts: BTreeSet<(PathBuf, Access)>,
    env: BTreeSet<String>,
    programs: BTreeSet<PathBuf>,
    hosts: Vec<Outbound>,
    memory: u64,
}

fn got(run: &Row, policy: &str, and: Option<&str>) -> Option<Got> {
    let mut world = world();
    let root = world.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    let read = |text: &str| {
        let text = text.replace('$', &root);
        let section: Section = serde_saphyr::from_str(&text).unwrap_or_else(|why| panic!("{text}: {why}"));
        section.read(Path::new("/p.yaml"), None).unwrap()
    };
    world.policy = read(policy);
    if let Some(more) = and {
        world.policy = std::mem::take(&mut world.policy).stricter(read(more));
    }
    asking(&mut world, &run.asks);
    let mounts = run.mounts.iter().map(|mount| mount.replace('$', &root)).collect();
    let run =
        Row { mounts, env: run.env.clone(), programs: run.programs.clone(), memory: run.memory, ..Row::default() };
    run.flags(&mut world);
    let grant = world.judge().ok()?;
    let below = |path: &Path| path.strip_prefix(&root).unwrap_or(path).to_path_buf();
    Some(Got {
        mounts: grant.mounts.iter().map(|mount| (below(&mount.source), mount.access)).collect(),
        env: grant.env.into_iter().map(|(name, _)| name).collect(),
        programs: match grant.subprocess {
            Subprocess::AllowedPaths(paths) => paths.into_iter().collect(),
            _ => BTreeSet::new(),
        },
        hosts: grant.egress.outbound,
        memory: grant.limits.memory,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Adding a policy never grants more.
    #[test]
    fn one_more_policy_never_grants_more(run in runs(), policy in policies(), more in policies()) {
        for (one, other) in [(&policy, &more), (&more, &policy)] {
            let Some(both) = got(&run, one, Some(other)) else { continue };
            let alone = got(&run, one, None).expect("what is granted under both is granted under one");
            prop_assert!(both.mounts.is_subset(&alone.mounts));
            prop_assert!(both.env.is_subset(&alone.env));
            prop_assert!(both.programs.is_subset(&alone.programs));
            prop_assert!(both.memory <= alone.memory);
            let covered = |host: &Host| alone.hosts.iter().any(|known| known.host.covers(host));
            prop_assert!(both.hosts.iter().all(|granted| covered(&granted.host)));
        }
    }

    /// No flag passes a ceiling, read from the policy's own text.
    #[test]
    fn widening_never_passes_a_ceiling(run in runs(), policy in policies()) {
        let Some(got) = got(&run, &policy, None) else { return Ok(()) };
        let list = |section: &str, key: &str| {
            let rest = &policy[policy.find(&format!("{section}: {{")).unwrap()..];
            let rest = &rest[..rest.find('}').unwrap() + 1];
            let at = rest.find(&format!("{key}: ["))?;
            let rest = &rest[at + key.len() + 3..];
            Some(rest[..rest.find(']').unwrap()].split(", ").filter(|text| !text.is_empty()).map(String::from).collect::<Vec<_>>())
        };
        if let Some(allowed) = list("subprocess", "allow") {
            prop_assert!(got.programs.iter().all(|path| allowed.contains(&path.display().to_string())));
        }
        for denied in list("env", "deny").unwrap_or_default() {
            let own = ["HOME", "LANG", "LOGNAME", "PATH", "USER"];
            let set: Vec<_> = got.env.iter().filter(|name| !own.contains(&name.as_str())).collect();
            let passes = set.iter().all(|name| match denied.as_str() {
                "'*'" => false,
                "'A*'" => !name.starts_with('A'),
                exact => name.as_str() != exact,
            });
            prop_assert!(passes, "{set:?}");
        }
        if let Some(most) = [64u64, 256, 1024].into_iter().find(|most| policy.contains(&format!("memory: {most}M"))) {
            prop_assert!(got.memory <= most << 20);
        }
        if policy.contains("filesystem: {allow: []") {
            prop_assert!(got.mounts.is_empty());
        }
    }
}
