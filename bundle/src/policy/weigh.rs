//! What a package counts as, and what stands against it: the evidence, weighed by policy. Pure: the time is given.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use distribution::Digest;
use jiff::{SignedDuration, Timestamp};

use super::trust::{Certifier, Predicate, Who};
use super::{HubLevels, LevelMode, Pattern, Policy, Sourced, Unscored};
use crate::evidence::{
    Certification, Evidence, HubWord, Listing, PackageClass, Rejected, Revocation, RevocationStatus, Signer, Standing,
    Unread,
};
use crate::grant::{Denied, Reason};
use crate::manifest::{Manifest, Source as Origin};
use crate::units::format_duration;

/// Which package it is, as policies name packages.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// What its versions have in common: `HOST/REPOSITORY`, or `oci-layout:DIRECTORY:NAME`.
    pub family: &'a str,
    /// What the package says of itself.
    pub manifest: &'a Manifest,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// What the package counts as.
    pub standing: Standing,
    /// All that stands against it.
    pub against: Vec<Reason>,
    /// What whoever runs it should know.
    pub warnings: Vec<String>,
    /// What did not count, and why.
    pub notes: Vec<String>,
    /// It was certified with other permissions than it asks for: nothing that it asks for is certified.
    pub certified_otherwise: bool,
}

/// Weighs the evidence about a package.
pub fn weigh(subject: &Subject, evidence: &Evidence, policy: &Policy, now: Timestamp) -> Judgement {
    let keys = Keys::of(evidence);
    let mut judgement = stand(subject, evidence, policy, &keys, now);
    judgement.notes.extend(evidence.rejected.iter().map(of_rejected));
    revoked(subject, evidence, policy, &keys, &mut judgement);
    unlisted(subject, evidence, policy, &mut judgement);
    level(policy, &mut judgement);
    origin(policy, &mut judgement);
    signatures(subject, evidence, policy, &mut judgement);
    score(policy, &mut judgement);
    age(subject, policy, now, &mut judgement);
    judgement
}

/// Clocks of certifiers may be so far ahead.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);

impl Subject<'_> {
    /// Its name in a registry; none where it is of another.
    fn within(&self, host: &str) -> Option<&str> {
        self.family.strip_prefix(host)?.strip_prefix('/')
    }

    /// By the whole name, and without a registry by that of a package of the one that is meant.
    pub(super) fn is_certified_by(&self, one: &Certifier) -> bool {
        let of_meant = one.registry.as_deref().and_then(|host| self.within(host));
        let named = |name: &Pattern| name.matches(self.family) || of_meant.is_some_and(|rest| name.matches(rest));
        one.predicates.contains(&Predicate::Certification) && one.names.iter().any(named)
    }

    pub(super) fn is_revoked_by(&self, one: &Certifier) -> bool {
        one.predicates.contains(&Predicate::Revocation) && self.is_named_widely(&one.names)
    }

    /// By the whole name, in any registry, and by what the package calls itself; in any case, and by whatever other name the same
    /// registry is known.
    pub(super) fn is_named_widely(&self, names: &[Pattern]) -> bool {
        let mut all = vec![self.family.to_owned(), self.manifest.name.clone()];
        if let Some((host, repository)) = self.family.split_once('/') {
            all.push(repository.into());
            all.extend(aliases(host).into_iter().map(|host| format!("{host}/{repository}")));
        }
        names.iter().any(|name| all.iter().any(|known| name.matches_in_any_case(known)))
    }
}

/// The files of each key that said something: two policies may have a copy each, and mean the same key.
struct Keys<'a>(BTreeMap<&'a Digest, BTreeSet<&'a Path>>);

impl<'a> Keys<'a> {
    fn of(evidence: &'a Evidence) -> Keys<'a> {
        let certified = evidence.certifications.iter().map(|said| &said.signer);
        let unread = evidence.unread.iter().map(|word| &word.signer);
        let revoked = evidence.revocations.iter().map(|said| &said.signer);
        let mut files: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for signer in certified.chain(unread).chain(revoked) {
            if let Signer::Key { file, fingerprint } = signer {
                files.entry(fingerprint).or_default().insert(file.as_path());
            }
        }
        Keys(files)
    }

    /// Whether whom a policy names is a signer.
    fn are(&self, who: &Who, signer: &Signer) -> bool {
        match (who, signer) {
            (Who::Key(named), Signer::Key { fingerprint, .. }) => {
                self.0.get(fingerprint).is_some_and(|files| files.contains(named.as_path()))
            }
            _ => who.is(signer),
        }
    }
}

/// Other names of a registry: with and without the port that is meant without one, and those of Docker Hub.
fn aliases(host: &str) -> Vec<String> {
    const DOCKER: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];
    let plain = [":443", ":80"].iter().find_map(|port| host.strip_suffix(port)).unwrap_or(host);
    let names = if DOCKER.contains(&plain) { DOCKER.to_vec() } else { vec![plain] };
    names.iter().flat_map(|name| [name.to_string(), format!("{name}:443"), format!("{name}:80")]).collect()
}

impl Judgement {
    /// Nothing stands against the package itself.
    ///
    /// # Errors
    /// All that does.
    pub fn passed(&self) -> Result<(), Denied> {
        match self.against.is_empty() {
            true => Ok(()),
            false => Err(Denied { reasons: self.against.clone() }),
        }
    }

    fn refuse(&mut self, what: String, hint: &str) {
        self.against.push(Reason::policy(what, hint.to_owned()));
    }
}

/// What is of npm or PyPI and too young; nobody knows how old something is that states no time.
fn age(subject: &Subject, policy: &Policy, now: Timestamp, judgement: &mut Judgement) {
    let Some(least) = &policy.min_release_age else { return };
    let of_registry = |source: &&Origin| ["npm", "pypi"].contains(&source.kind.as_str());
    let Some(source) = subject.manifest.source.as_ref().filter(of_registry) else { return };
    let published = source.extra.get("published").and_then(|time| time.as_str()?.parse::<Timestamp>().ok());
    let seconds = |then: Timestamp| u64::try_from(now.as_second() - then.as_second()).unwrap_or(0);
    if published.is_some_and(|then| seconds(then) >= least.value.as_secs()) {
        return;
    }
    let when = published.map_or("at an unknown time".into(), |then| then.to_string());
    let (what, age) = (&source.reference, format_duration(least.value));
    judgement.refuse(
        format!("{what} was published {when}, and min_release_age is {age} ({})", least.source),
        "an older version may do; --refresh looks for one, and asks when it was published",
    );
}

/// The highest level that a score is enough for: 60, 80 and 90 are the least ones of 1, 2 and 3.
fn level_of(score: Option<u8>) -> u8 {
    match score {
        Some(90..) => 3,
        Some(80..) => 2,
        Some(60..) => 1,
        _ => 0,
    }
}

/// Makes the standing of the newest word of all whom any policy trusts. It counts where all of them do. Any such word, also one that
/// ended or is not understood, is before a hub's.
fn stand(subject: &Subject, evidence: &Evidence, policy: &Policy, keys: &Keys<'_>, now: Timestamp) -> Judgement {
    let standing = Standing { signers: evidence.signatures.clone(), ..Standing::default() };
    let (against, warnings) = (Vec::new(), Vec::new());
    let mut judgement = Judgement { standing, against, warnings, notes: Vec::new(), certified_otherwise: false };
    if evidence.hub.as_ref().is_some_and(|word| word.deprecated) {
        judgement.warnings.push("it is deprecated, says its hub".into());
    }
    let notes = &mut judgement.notes;
    let mut heard: Vec<(&Certification, Option<u8>)> = Vec::new();
    for certification in &evidence.certifications {
        match trust(subject, &certification.signer, policy, keys) {
            Trust::Nobodys => notes.push(format!(
                "the certification by {} does not count: no policy trusts it to certify {}",
                certification.signer, subject.family
            )),
            _ if certification.issued_at > now + AHEAD => {
                notes.push(format!(
                    "the certification by {} does not count: it is of {}, which is yet to come",
                    certification.signer, certification.issued_at
                ));
            }
            Trust::Somebodys => heard.push((certification, None)),
            Trust::Everybodys(most) => heard.push((certification, Some(most))),
        }
    }
    let counts_for = |word: &Certification, most: Option<u8>| most.map_or(0, |most| word.level.min(most));
    let newest = heard.into_iter().max_by_key(|(word, most)| (word.issued_at, Reverse(counts_for(word, *most))));
    let trusted = |word: &&Unread| !matches!(trust(subject, &word.signer, policy, keys), Trust::Nobodys);
    let unread = evidence.unread.iter().filter(trusted).max_by_key(|word| word.issued_at);
    if let Some(unread) = unread.filter(|word| newest.is_none_or(|(other, _)| other.issued_at <= word.issued_at)) {
        let Unread { issued_at, signer } = unread;
        notes.push(format!("its newest certification, of {issued_at} by {signer}, is not understood"));
        return judgement;
    }
    match newest {
        Some((word, _)) if word.has_ended(now) => {
            let end = word.expires_at.map(|end| end.to_string()).unwrap_or_default();
            notes.push(format!("its certification for level {} by {} ended at {end}", word.level, word.signer));
        }
        Some((word, _)) if word.permissions.as_ref().is_some_and(|d| *d != subject.manifest.permissions.digest()) => {
            notes.push(format!("its certification by {} is of other permissions than it asks for", word.signer));
            judgement.certified_otherwise = true;
        }
        Some((word, None)) => notes.push(format!(
            "the certification by {} does not count: not every policy trusts it to certify {}",
            word.signer, subject.family
        )),
        Some((word, Some(most))) => {
            let said =
                Said { who: word.signer.to_string(), level: word.level, score: word.score, origin: word.origin, most };
            count(said, subject, &mut judgement);
            judgement.standing.findings = word.findings;
            judgement.standing.certifier = Some(word.signer.clone());
            judgement.standing.tools = word.tools.clone();
        }
        None => by_hub(subject, evidence.hub.as_ref(), policy, &mut judgement),
    }
    judgement
}

fn by_hub(subject: &Subject, word: Option<&HubWord>, policy: &Policy, judgement: &mut Judgement) {
    let Some(word) = word else { return };
    if let Some(host) = policy.hubs.iter().find(|host| subject.within(host).is_none()) {
        judgement.notes.push(format!(
            "its hub's word for level {} does not count: that of the configured registry, {host}, does",
            word.level
        ));
        return;
    }
    let Sourced { value, source } = policy.hub_levels();
    if value == HubLevels::Ignore {
        judgement.notes.push(format!("its hub's word for level {} does not count, by {source}", word.level));
        return;
    }
    let said = Said { who: "its hub".into(), level: word.level, score: word.score, origin: word.origin, most: 3 };
    count(said, subject, judgement);
    judgement.standing.findings = word.findings;
}

/// What somebody whose word counts says.
struct Said {
    who: String,
    level: u8,
    score: Option<u8>,
    origin: Option<PackageClass>,
    /// The most that the policies let them say.
    most: u8,
}

fn count(said: Said, subject: &Subject, judgement: &mut Judgement) {
    let Said { who, level, score, origin, most } = said;
    let mut cap = |cap: u8, why: String| {
        if cap < level.min(3) {
            judgement.notes.push(format!("{who} says level {level}, {why}"));
        }
        cap
    };
    let by_score = cap(
        level_of(score),
        match score {
            Some(score) => format!("and a score of {score} is enough for level {} alone", level_of(Some(score))),
            None => "and no score, which passes no level's least one".into(),
        },
    );
    let by_trust = cap(most, format!("and is trusted for {most} at most"));
    let by_runtime = match subject.manifest.runtime {
        Some(_) => cap(1, "and a package that runs by the host's interpreter is never above 1".into()),
        None => 3,
    };
    judgement.standing.level = level.min(by_score).min(by_trust).min(by_runtime);
    judgement.standing.score = score;
    judgement.standing.origin = origin;
}

/// Whose policies trust a certifier with a package.
enum Trust {
    Nobodys,
    /// Its word is heard and counts for nothing: were it not heard, another policy could make an older or weaker word count.
    Somebodys,
    /// The highest level that it can give.
    Everybodys(u8),
}

fn trust(subject: &Subject, signer: &Signer, policy: &Policy, keys: &Keys<'_>) -> Trust {
    let of_list = |list: &Sourced<Vec<Certifier>>| {
        let counts = |one: &&Certifier| keys.are(&one.who, signer) && subject.is_certified_by(one);
        list.value.iter().filter(counts).map(|one| one.max_level).max()
    };
    let each: Vec<Option<u8>> = policy.certifiers.iter().map(of_list).collect();
    let all: Option<Vec<u8>> = each.iter().copied().collect();
    match all.and_then(|all| all.into_iter().min()) {
        Some(most) => Trust::Everybodys(most),
        None if each.iter().any(Option::is_some) => Trust::Somebodys,
        None => Trust::Nobodys,
    }
}

/// Whether somebody's word against a package is heard: one list that lets it is enough.
fn is_heard(subject: &Subject, signer: &Signer, policy: &Policy, keys: &Keys<'_>) -> bool {
    let counts = |one: &Certifier| keys.are(&one.who, signer) && subject.is_revoked_by(one);
    policy.certifiers.iter().any(|list| list.value.iter().any(counts))
}

/// The newest word of each certifier holds, and of those the worst one.
fn revoked(subject: &Subject, evidence: &Evidence, policy: &Policy, keys: &Keys<'_>, judgement: &mut Judgement) {
    let mut newest: BTreeMap<&Signer, &Revocation> = BTreeMap::new();
    for word in &evidence.revocations {
        if !is_heard(subject, &word.signer, policy, keys) {
            judgement.notes.push(format!(
                "the word of {} against it does not count: no policy trusts it to revoke {}",
                word.signer, subject.family
            ));
            continue;
        }
        let kept = newest.entry(&word.signer).or_insert(word);
        // Of two at one time the worse one.
        if (word.issued_at, word.status) > (kept.issued_at, kept.status) {
            *kept = word;
        }
    }
    for (signer, word) in newest {
        let status = match word.status {
            RevocationStatus::Deprecated => "deprecated",
            RevocationStatus::Quarantined => "quarantined",
            RevocationStatus::Revoked => "revoked",
        };
        let what = format!("it is {status}, says {signer}: {}", word.reason.escape_debug());
        match word.status {
            RevocationStatus::Deprecated => judgement.warnings.push(what),
            RevocationStatus::Quarantined | RevocationStatus::Revoked => {
                judgement.refuse(what, "no policy lets it run; ask its publisher for another version");
            }
        }
    }
}

/// In `strict` nothing runs that could have been revoked, or that could have lost its level, without anybody seeing it.
fn unlisted(subject: &Subject, evidence: &Evidence, policy: &Policy, judgement: &mut Judgement) {
    let Listing::Unavailable(why) = &evidence.listing else { return };
    let mode = policy.cert_level_mode();
    let could_revoke = |one: &Certifier| subject.is_revoked_by(one);
    let demanding = policy.min_cert_level.as_ref().filter(|level| level.value > 0).map(|level| &level.source);
    let revoking = policy.certifiers.iter().find(|list| list.value.iter().any(could_revoke)).map(|list| &list.source);
    let signing = demanded_signatures(subject, policy).next().map(|rule| &rule.source);
    let Some(source) = demanding.or(revoking).or(signing) else { return };
    let what = format!("its signatures and attestations cannot be listed, which {source} depends on: {why}");
    match mode.value {
        LevelMode::Strict => {
            let hint = "with a connection to its registry they are fetched once, and kept";
            judgement.refuse(format!("{what} (cert_level_mode is strict, {})", mode.source), hint);
        }
        LevelMode::Warn => judgement.warnings.push(what),
        LevelMode::Disabled => judgement.notes.push(what),
    }
}

fn level(policy: &Policy, judgement: &mut Judgement) {
    let Sourced { value: least, source } = policy.min_cert_level();
    let level = judgement.standing.level;
    if level >= least {
        return;
    }
    let what = format!("it is of level {level}, and {source} demands {least}{}", because(&judgement.notes));
    match policy.cert_level_mode().value {
        LevelMode::Strict => judgement.refuse(what, "`smcp policy check REF` shows what counts and what does not"),
        LevelMode::Warn => judgement.warnings.push(what),
        LevelMode::Disabled => judgement.notes.push(what),
    }
}

/// What did not count, as the end of a sentence. Anybody can put attestations beside a package, so not all of them.
fn because(notes: &[String]) -> String {
    const MOST: usize = 5;
    let shown: Vec<&str> = notes.iter().take(MOST).map(String::as_str).collect();
    match (notes.len(), notes.len().saturating_sub(MOST)) {
        (0, _) => String::new(),
        (_, 0) => format!(": {}", shown.join("; ")),
        (_, more) => format!(": {}; and {more} more", shown.join("; ")),
    }
}

fn origin(policy: &Policy, judgement: &mut Judgement) {
    for Sourced { value: allowed, source } in &policy.allowed_origins {
        let words: Vec<&str> = allowed.iter().map(|class| class.word()).collect();
        let words = words.join(" or ");
        match judgement.standing.origin {
            Some(origin) if allowed.contains(&origin) => {}
            Some(origin) => {
                let what = format!("its origin is {origin}, and {source} allows {words} alone");
                judgement.refuse(what, "policy.allowed_origins names what may run");
            }
            None => {
                let what = format!("nobody whose word counts says its origin, and {source} allows {words} alone");
                judgement.refuse(what, "policy.allowed_origins names what may run");
            }
        }
    }
}

fn demanded_signatures<'a>(
    subject: &'a Subject,
    policy: &'a Policy,
) -> impl Iterator<Item = &'a Sourced<super::SignatureRule>> {
    policy.signatures.iter().filter(|rule| subject.is_named_widely(&rule.value.names))
}

fn signatures(subject: &Subject, evidence: &Evidence, policy: &Policy, judgement: &mut Judgement) {
    for Sourced { value: rule, source } in demanded_signatures(subject, policy) {
        if rule.by.iter().any(|who| evidence.signatures.iter().any(|signer| who.is(signer))) {
            continue;
        }
        let by: Vec<String> = rule.by.iter().map(ToString::to_string).collect();
        let has = match evidence.signatures.as_slice() {
            [] => format!("it has none that counts{}", because(&judgement.notes)),
            signers => {
                let signers: Vec<String> = signers.iter().map(ToString::to_string).collect();
                format!("it is signed by {}", signers.join(" and "))
            }
        };
        let what = format!("{source} demands a signature by {}: {has}", by.join(" or "));
        judgement.refuse(what, "its publisher can sign it: smcp sign REF --key FILE");
    }
}

fn score(policy: &Policy, judgement: &mut Judgement) {
    let threshold = policy.warning_threshold();
    match (judgement.standing.score, policy.unscored()) {
        (Some(score), _) if score < threshold.value => {
            let what = format!("its score is {score}, below {} ({})", threshold.value, threshold.source);
            judgement.warnings.push(what);
        }
        (Some(_), _) => {}
        (None, Sourced { value: Unscored::Refuse, source }) => {
            let what = format!("nobody whose word counts scored it, and {source} refuses what has no score");
            judgement.refuse(what, "policy.unscored says what becomes of packages without a score");
        }
        // The client is told in the handshake: most packages have none, and a line a run would be read by nobody.
        (None, Sourced { value: Unscored::Warn, .. }) => {
            judgement.notes.push("nobody whose word counts scored it".into())
        }
        (None, Sourced { value: Unscored::Allow, .. }) => {}
    }
}

fn of_rejected(rejected: &Rejected) -> String {
    format!("{} does not count: {}", rejected.what.escape_debug(), rejected.why.escape_debug())
}
