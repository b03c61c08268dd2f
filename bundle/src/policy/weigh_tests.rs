//! The table of cases, and what holds for every case.

use std::path::Path;

use distribution::Digest;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::evidence::{
    Certification, Evidence, Findings, HubWord, Listing, PackageClass, Rejected, Revocation, RevocationStatus, Signer,
    Unread,
};
use crate::manifest::Manifest;

/// One case.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Row {
    row: String,
    policy: Section,
    user: Option<Section>,
    name: Option<String>,
    own: Option<String>,
    /// The configured registry, by the organisation and by the user; `hub.test` where it is left out.
    registry: Option<String>,
    users_registry: Option<String>,
    host_runtime: bool,
    has: Has,
    level: u8,
    score: Option<u8>,
    refused: Vec<String>,
    warned: Vec<String>,
    noted: Vec<String>,
    otherwise: bool,
}

/// What is known of the package.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Has {
    certified: Vec<Certified>,
    unread: Vec<NotRead>,
    against: Vec<Against>,
    signed: Vec<String>,
    hub: Option<Hub>,
    rejected: Vec<String>,
    unlisted: Option<String>,
    cached: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Certified {
    by: String,
    level: u8,
    score: Option<u8>,
    origin: Option<String>,
    issued: Option<i64>,
    ends: Option<i64>,
    permissions: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotRead {
    by: String,
    issued: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Against {
    by: String,
    status: String,
    issued: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hub {
    level: u8,
    score: Option<u8>,
    origin: Option<String>,
    #[serde(default)]
    deprecated: bool,
}

fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

fn hours(count: i64) -> SignedDuration {
    SignedDuration::from_hours(count)
}

fn signer(name: &str) -> Signer {
    match name {
        "ci" => Signer::Identity { identity: "ci@acme.test".into(), issuer: "https://id.test".into() },
        key => {
            let fingerprint = Digest::of(key.trim_end_matches("-copy").as_bytes());
            Signer::Key { file: format!("/keys/{key}.pub").into(), fingerprint }
        }
    }
}

fn class(word: &Option<String>) -> Option<PackageClass> {
    word.as_deref().map(|word| PackageClass::of_word(word).unwrap())
}

fn manifest(row: &Row) -> Manifest {
    let own = row.own.as_deref().unwrap_or("acme/tool");
    let mut manifest = json!({"schemaVersion": 1, "name": own, "version": "1", "entrypoint": {"args": ["x"]},
        "permissions": {"network": {"outbound": ["a.test"]}}});
    if row.host_runtime {
        manifest["hostRuntime"] = json!({"interpreter": "python3"});
    }
    Manifest::from_value(&manifest).unwrap()
}

fn evidence(has: &Has, manifest: &Manifest) -> Evidence {
    let certification = |one: &Certified| Certification {
        level: one.level,
        score: one.score,
        origin: class(&one.origin),
        findings: Findings::default(),
        permissions: one.permissions.as_deref().map(|word| match word {
            "same" => manifest.permissions.digest(),
            _ => Digest::of(b"other"),
        }),
        tools: None,
        issued_at: now() - hours(one.issued.unwrap_or(24)),
        expires_at: one.ends.map(|ends| now() + hours(ends)),
        signer: signer(&one.by),
    };
    let revocation = |one: &Against| Revocation {
        status: match one.status.as_str() {
            "revoked" => RevocationStatus::Revoked,
            "quarantined" => RevocationStatus::Quarantined,
            "deprecated" => RevocationStatus::Deprecated,
            other => panic!("{other} is no status"),
        },
        reason: "found to be \u{1b}bad".into(),
        issued_at: now() - hours(one.issued.unwrap_or(24)),
        signer: signer(&one.by),
    };
    Evidence {
        signatures: has.signed.iter().map(|name| signer(name)).collect(),
        certifications: has.certified.iter().map(certification).collect(),
        unread: has
            .unread
            .iter()
            .map(|one| Unread { issued_at: now() - hours(one.issued), signer: signer(&one.by) })
            .collect(),
        revocations: has.against.iter().map(revocation).collect(),
        hub: has.hub.as_ref().map(|hub| HubWord {
            level: hub.level,
            score: hub.score,
            origin: class(&hub.origin),
            findings: Findings::default(),
            deprecated: hub.deprecated,
        }),
        rejected: has
            .rejected
            .iter()
            .map(|why| Rejected { what: "attestation sha256:0".into(), why: why.clone() })
            .collect(),
        listing: match (&has.unlisted, has.cached) {
            (Some(why), _) => Listing::Unavailable(why.clone()),
            (None, true) => Listing::Cached(now() - hours(400)),
            (None, false) => Listing::Complete,
        },
    }
}

fn policy_of(row: &Row) -> Policy {
    let organisation = row.policy.read(Path::new("/org.yaml"), None).unwrap();
    let user = row.user.as_ref().map(|section| section.read(Path::new("/user.yaml"), None).unwrap());
    let host = |name: &Option<String>| name.clone().unwrap_or("hub.test".into());
    let organisation =
        if organisation == Policy::default() { organisation } else { organisation.of_registry(&host(&row.registry)) };
    organisation.stricter(user.unwrap_or_default().of_registry(&host(&row.users_registry)))
}

fn judged(row: &Row, policy: &Policy) -> Judgement {
    let manifest = manifest(row);
    let family = row.name.as_deref().unwrap_or("hub.test/acme/tool");
    let subject = Subject { family, manifest: &manifest };
    weigh(&subject, &evidence(&row.has, &manifest), policy, now())
}

/// The rows, each with the line of its own: in the file all stand in their own line, here in line 1 of theirs.
fn rows() -> Vec<Row> {
    let lines = include_str!("judged.yaml").lines().filter_map(|line| line.strip_prefix("- "));
    lines.map(|line| serde_saphyr::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}"))).collect()
}

#[test]
fn every_row_is_judged_as_it_says() {
    let rows = rows();
    assert!(rows.len() >= 150, "{} rows", rows.len());
    for row in &rows {
        let judgement = judged(row, &policy_of(row));
        let name = &row.row;
        let standing = (judgement.standing.level, judgement.standing.score);
        assert_eq!(standing, (row.level, row.score), "row {name:?}: {judgement:#?}");
        let reasons: Vec<&str> = judgement.against.iter().map(|reason| reason.what.as_str()).collect();
        each_once(name, "refused", &row.refused, &reasons);
        let warnings: Vec<&str> = judgement.warnings.iter().map(String::as_str).collect();
        each_once(name, "warned", &row.warned, &warnings);
        for words in &row.noted {
            assert!(
                judgement.notes.iter().any(|note| note.contains(words)),
                "row {name:?}: {words:?} in {judgement:#?}"
            );
        }
        assert_eq!(judgement.certified_otherwise, row.otherwise, "row {name:?}");
        assert_eq!(judgement.passed().is_ok(), row.refused.is_empty(), "row {name:?}");
        assert!(!format!("{reasons:?}{warnings:?}").contains('\u{1b}'), "row {name:?}: text of a certifier's");
    }
}

#[track_caller]
fn each_once(row: &str, what: &str, wanted: &[String], found: &[&str]) {
    assert_eq!(wanted.len(), found.len(), "row {row:?}, {what}: {found:#?}");
    for words in wanted {
        assert_eq!(
            found.iter().filter(|text| text.contains(words)).count(),
            1,
            "row {row:?}, {what}: {words:?} in {found:#?}"
        );
    }
}

/// Under both of two policies nothing runs, counts or is scored better than under one of them: of all pairs in the table.
#[test]
fn one_more_policy_never_lets_more_run() {
    let rows = rows();
    for row in &rows {
        let alone = judged(row, &policy_of(row));
        for other in &rows {
            let (one, two) = (policy_of(row), policy_of(other));
            for policy in [one.clone().stricter(two.clone()), two.stricter(one)] {
                let both = judged(row, &policy);
                let names = (&row.row, &other.row);
                assert!(alone.passed().is_ok() || both.passed().is_err(), "{names:?}: {both:#?}");
                assert!(both.standing.level <= alone.standing.level, "{names:?}: {both:#?}");
                assert!(
                    both.standing.score.is_none() || both.standing.score == alone.standing.score,
                    "{names:?}: a score is somebody's word"
                );
            }
        }
    }
}
