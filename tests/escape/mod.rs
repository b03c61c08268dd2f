//! Ways out, each as a pair: it works outside, and fails inside, at every tier that this machine can offer.
//!
//! The attempts are data, a file an area; this file runs them. The probe does the same thing both times. Outside, the
//! world's user does it, or root where only root can; there it must work, or the pair would show nothing. Inside it must be
//! refused by the system: a crash or an error of smcp's does not count. An attempt does no harm where it works: it changes
//! nothing, or undoes what it does.
//!
//! What cannot be told in a row is a story in [`stories`].

mod files;
mod kernel;
mod network;
mod ports;
mod processes;
mod programs;
mod stage;
mod stories;
mod tier;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::command::Smcp;
use crate::needs;
use crate::world::{SECRET, User, World, as_each_user};
use stage::Stage;
use tier::Tier;

/// Every area by its name.
const AREAS: [(&str, &[Attempt]); 5] = [
    ("files", files::ATTEMPTS),
    ("processes", processes::ATTEMPTS),
    ("network", network::ATTEMPTS),
    ("kernel", kernel::ATTEMPTS),
    ("programs", programs::ATTEMPTS),
];

as_each_user! {
    of_files,
    of_processes,
    of_the_network,
    of_the_kernel,
    of_programs,
}

fn of_files(world: &World) {
    each(world, files::ATTEMPTS);
}

fn of_processes(world: &World) {
    each(world, processes::ATTEMPTS);
}

fn of_the_network(world: &World) {
    each(world, network::ATTEMPTS);
}

fn of_the_kernel(world: &World) {
    each(world, kernel::ATTEMPTS);
}

fn of_programs(world: &World) {
    each(world, programs::ATTEMPTS);
}

/// One way out.
pub struct Attempt {
    /// Its name, unique among all.
    name: &'static str,
    /// The probe's verb with its arguments. `{NAME}` is a value of the [`Stage`].
    verb: &'static str,
    by: By,
    outside: Outside,
    /// Whether every machine has what it needs, and keeps it from nobody.
    everywhere: bool,
    grants: Grants,
    /// At tiers 3 and 2, which differ by the cgroup alone.
    caged: Expected,
    /// The same where the server is root itself (`--user root`).
    as_root: Expected,
    /// At tier 1: no namespaces.
    tier_1: Expected,
    /// The same where the server is root itself, for what is refused to others.
    tier_1_as_root: Expected,
    /// At tier 1 as it is on a kernel without Landlock: namespaces.
    no_landlock: Expected,
}

/// For whom it works outside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The user who runs smcp.
    User,
    /// Root alone.
    Root,
}

/// What happens outside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    /// It works.
    Works,
    /// The kernel lets it pass and only then finds that it makes no sense: an errno that is no refusal, and another one than
    /// inside.
    Passes,
}

/// What is granted inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grants {
    /// Nothing.
    Nothing,
    /// Reading the project.
    Reading,
    /// Writing the project.
    Writing,
    /// Writing the project but for the directory `directory` in it.
    Denying,
    /// Writing the project, and starting any program.
    Programs,
    /// Names, an address, and a port of the host's loopback, none of which is what is tried, but for one name and port.
    Network,
}

/// What happens inside.
#[derive(Clone, Copy)]
enum Expected {
    /// The system says no.
    Refused,
    /// It works, and this is why it is known and what it is worth.
    Works(&'static str),
}

impl Attempt {
    /// Works outside for the user, is refused inside without any grant.
    const fn new(name: &'static str, verb: &'static str) -> Attempt {
        Attempt {
            name,
            verb,
            by: By::User,
            outside: Outside::Works,
            everywhere: true,
            grants: Grants::Nothing,
            caged: Expected::Refused,
            as_root: Expected::Refused,
            tier_1: Expected::Refused,
            tier_1_as_root: Expected::Refused,
            no_landlock: Expected::Refused,
        }
    }

    /// Works outside for root.
    const fn root(name: &'static str, verb: &'static str) -> Attempt {
        Attempt { by: By::Root, ..Attempt::new(name, verb) }
    }

    const fn passes(self) -> Attempt {
        Attempt { outside: Outside::Passes, ..self }
    }

    const fn where_there_is(self) -> Attempt {
        Attempt { everywhere: false, ..self }
    }

    const fn with(self, grants: Grants) -> Attempt {
        Attempt { grants, ..self }
    }

    /// Works at tiers 3 and 2, and is refused at tier 1.
    const fn but_works_in_namespaces(self, why: &'static str) -> Attempt {
        let works = Expected::Works(why);
        Attempt { caged: works, as_root: works, no_landlock: works, ..self }
    }

    /// Is refused to everybody but root itself, at each tier.
    const fn weaker_as_root_anywhere(self, why: &'static str) -> Attempt {
        Attempt { as_root: Expected::Works(why), tier_1_as_root: Expected::Works(why), ..self }
    }

    /// Is Landlock's alone to refuse.
    const fn weaker_without_landlock(self, why: &'static str) -> Attempt {
        Attempt { no_landlock: Expected::Works(why), ..self }
    }

    /// Is refused at tiers 3 and 2, but where the server is root.
    const fn weaker_as_root(self, why: &'static str) -> Attempt {
        Attempt { as_root: Expected::Works(why), ..self }
    }

    /// Is refused at tiers 3 and 2 and works at tier 1.
    const fn weaker_at_tier_1(self, why: &'static str) -> Attempt {
        Attempt { tier_1: Expected::Works(why), ..self }
    }

    fn expected(&self, tier: Tier) -> Expected {
        match tier {
            Tier::Best | Tier::WithoutCgroup => self.caged,
            Tier::AsRoot => self.as_root,
            Tier::WithoutNamespaces => self.tier_1,
            Tier::AsRootWithoutNamespaces if matches!(self.tier_1, Expected::Works(_)) => self.tier_1,
            Tier::AsRootWithoutNamespaces => self.tier_1_as_root,
            Tier::WithoutLandlock => self.no_landlock,
        }
    }
}

impl Grants {
    fn flags(self, world: &World) -> Vec<String> {
        let project = world.text("project");
        match self {
            Grants::Nothing => vec![],
            Grants::Reading => vec!["--allow-read".into(), project],
            Grants::Writing => vec!["--allow-write".into(), project],
            Grants::Denying => {
                vec!["--allow-write".into(), project, "--deny".into(), world.text("project/directory")]
            }
            Grants::Programs => vec!["--allow-write".into(), project, "--allow-subprocess".into()],
            Grants::Network => {
                let beside =
                    ["--allow-net", "allowed.test:80,443", "--allow-net", "20.1.0.1:80", "--allow-host-port", "9"];
                ["--allow-net", NAMED].into_iter().chain(beside).map(String::from).collect()
            }
        }
    }
}

/// A name that is granted, with a port.
const NAMED: &str = "granted.test:8443";

/// Makes each attempt once outside and once inside at each tier, and fails with all that went otherwise than expected.
fn each(world: &World, attempts: &[Attempt]) {
    // A run at each, so that smcp has all its files to be reached.
    let tiers = Tier::offered(world);
    for tier in &tiers {
        tier.caged(world, &[], &["exit", "0"]).run().ok();
    }
    world.caged(&["--state", "lasting"], &["exit", "0"]).run().ok();
    let mut stage = Stage::new(world);
    let mut wrong = Vec::new();
    let mut outside = BTreeMap::new();
    for by in [By::User, By::Root] {
        if by == By::Root && !needs::root() {
            continue;
        }
        let doer = if by == By::User { None } else { Some(World::new(User::Root)) };
        let these: Vec<_> = attempts.iter().filter(|attempt| attempt.by == by).collect();
        let answers = answers(doer.as_ref().unwrap_or(world).bare(&["each"]), &these, &stage.outside());
        wrong.extend(these.iter().zip(&answers).filter_map(|(attempt, answer)| attempt.judge_outside(answer)));
        outside.extend(these.iter().map(|attempt| attempt.name).zip(answers));
    }
    for tier in tiers {
        let mut by_grants = BTreeMap::<_, Vec<_>>::new();
        attempts.iter().for_each(|attempt| by_grants.entry(attempt.grants).or_default().push(attempt));
        for (grants, these) in by_grants {
            let flags = grants.flags(world);
            let flags: Vec<_> = flags.iter().map(String::as_str).collect();
            if !tier.supports(grants, world) {
                tier.caged(world, &flags, &["exit", "0"]).run().expect(125);
                continue;
            }
            let answers = answers(tier.caged(world, &flags, &["each"]), &these, &stage.inside());
            tier.check(world);
            let judged = these.iter().zip(answers);
            wrong.extend(
                judged.filter_map(|(attempt, answer)| attempt.judge_inside(tier, outside.get(attempt.name), &answer)),
            );
        }
    }
    wrong.extend(stage.harmed());
    assert!(wrong.is_empty(), "{} went otherwise than expected:\n{}", wrong.len(), wrong.join("\n"));
}

/// What the probe answered, an answer an attempt.
#[track_caller]
fn answers(probe: Smcp<'_>, attempts: &[&Attempt], values: &BTreeMap<&str, String>) -> Vec<Value> {
    let script: String = attempts.iter().map(|attempt| attempt.line(values)).collect();
    let ended = probe.env("SMCP_TEST_SECRET", SECRET).stdin(script).run().ok();
    // What an attempt became says something of its own at most, and no object.
    let lines: Vec<Value> =
        ended.text().lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect();
    ended.check(lines.len() == attempts.len(), &format!("{} answers were expected", attempts.len()));
    lines
}

impl Attempt {
    /// Its line for the probe.
    fn line(&self, values: &BTreeMap<&str, String>) -> String {
        let mut line = self.verb.replace(' ', "\t");
        for (name, value) in values {
            line = line.replace(&format!("{{{name}}}"), value);
        }
        assert!(!line.contains('{'), "{}: a value that no stage has: {line}", self.name);
        line + "\n"
    }

    fn judge_outside(&self, answer: &Value) -> Option<String> {
        let errno = answer["errno"].as_i64();
        let lacks = !self.everywhere && errno.is_some_and(|errno| LACKS.contains(&errno));
        let passes = self.outside == Outside::Passes && errno.is_some_and(|errno| !DENIALS.contains(&errno));
        let who = if self.by == By::User { "the user" } else { "root" };
        let expected = if self.outside == Outside::Works { "works" } else { "passes all checks" };
        let holds = works(answer) || passes || lacks;
        (!holds).then(|| format!("- {} ({}): outside, {who}: it {expected}; answer: {answer}", self.name, self.verb))
    }

    fn judge_inside(&self, tier: Tier, outside: Option<&Value>, answer: &Value) -> Option<String> {
        // An errno that tells of no refusal outside tells of none inside.
        let refused = answer["signal"] == SIGSYS
            || match self.outside {
                Outside::Works => answer["errno"].is_i64(),
                Outside::Passes => {
                    answer["errno"].as_i64().is_some_and(|errno| REFUSALS.contains(&errno))
                        && (!self.everywhere || outside.is_none_or(|outside| outside["errno"] != answer["errno"]))
                }
            };
        let leaked = answer.to_string().contains(SECRET);
        let (expected, holds) = match self.expected(tier) {
            Expected::Refused => ("refused".to_owned(), refused && !leaked),
            Expected::Works(why) => (format!("works: {why}"), works(answer)),
        };
        let (name, verb, grants) = (self.name, self.verb, self.grants);
        (!holds).then(|| format!("- {name} ({verb}): {tier}, granted {grants:?}: {expected}; answer: {answer}"))
    }
}

/// An answer, or another program that ended well.
fn works(answer: &Value) -> bool {
    !answer["works"].is_null() || answer["code"] == 0
}

const SIGSYS: i64 = 31;

/// EPERM, EACCES, EROFS, ENOSYS: what is not allowed.
const DENIALS: [i64; 4] = [1, 13, 30, 38];

/// EPERM, ENOENT, ESRCH, EACCES, EROFS, ENOSYS: what is not allowed, or not there.
const REFUSALS: [i64; 6] = [1, 2, 3, 13, 30, 38];

/// EPERM (a sysctl), ENOENT, ENXIO, EACCES, ENODEV, EINVAL, ENOSYS, ENOPROTOOPT, EPROTONOSUPPORT, ESOCKTNOSUPPORT,
/// EOPNOTSUPP, EAFNOSUPPORT: what a machine may lack, or keep from everybody.
const LACKS: [i64; 12] = [1, 2, 6, 13, 19, 22, 38, 92, 93, 94, 95, 97];

/// Whether an area has an attempt of this name.
pub fn has(area: &str, name: &str) -> bool {
    AREAS.iter().any(|(known, attempts)| *known == area && attempts.iter().any(|attempt| attempt.name == name))
}

/// The number of attempts cannot rot.
#[test]
fn there_are_many() {
    let mut names: Vec<_> = AREAS.iter().flat_map(|(_, attempts)| attempts.iter().map(|a| a.name)).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "every attempt has a name of its own");
    assert!(all >= 300, "{all} attempts");
    for (area, attempts) in AREAS {
        assert!(attempts.len() >= 10, "{} attempts of {area}", attempts.len());
        let refused = |expected: fn(&Attempt) -> Expected| {
            attempts.iter().filter(|a| matches!(expected(a), Expected::Refused)).count()
        };
        assert!(refused(|a| a.caged) * 10 >= attempts.len() * 9, "{area}: nearly all are refused");
        assert!(refused(|a| a.tier_1) * 2 >= attempts.len(), "{area}: most are refused at tier 1, too");
    }
}
