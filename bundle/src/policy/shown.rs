//! A policy for people: each value with where it came from.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Value, json};

use super::trust::{Certifier, SignatureRule, Who};
use super::{Policy, Source, Sourced};
use crate::units::{format_duration, format_size};

/// One value of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its key, as `ceilings.env.deny`.
    pub key: &'static str,
    /// The value, as a file would have it.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
}

impl Policy {
    /// Every value in force in the order of the documentation; of lists an entry each, or a list for each policy that has one
    /// where all of these must allow.
    pub fn shown(&self) -> Vec<Shown> {
        let mut rows = Vec::new();
        let mut add = |key: &'static str, value: Value, source: &Source| {
            rows.push(Shown { key, value, source: source.clone() });
        };
        let min = self.min_cert_level();
        add("min_cert_level", json!(min.value), &min.source);
        word("cert_level_mode", &self.cert_level_mode(), &mut add);
        for set in &self.allowed_origins {
            let words: Vec<&str> = set.value.iter().map(|class| class.word()).collect();
            add("allowed_origins", json!(words), &set.source);
        }
        let threshold = self.warning_threshold();
        add("warning_threshold", json!(threshold.value), &threshold.source);
        word("unscored", &self.unscored(), &mut add);
        word("hub_levels", &self.hub_levels(), &mut add);
        let tier = self.min_tier();
        add("min_tier", json!(tier.value), &tier.source);
        for rule in &self.signatures {
            add("signatures", of_rule(&rule.value), &rule.source);
        }
        for list in &self.certifiers {
            add("certifiers", list.value.iter().map(of_certifier).collect(), &list.source);
        }
        let ceilings = &self.ceilings;
        for list in ceilings.network.allow() {
            add("ceilings.network.allow", json!(list.value), &list.source);
        }
        for denial in ceilings.network.deny() {
            add("ceilings.network.deny", json!(denial.value), &denial.source);
        }
        for list in &ceilings.filesystem.allow {
            let entries = list.value.iter().map(|one| json!({"path": one.path, "access": one.access}));
            add("ceilings.filesystem.allow", entries.collect(), &list.source);
        }
        for path in &ceilings.filesystem.deny {
            add("ceilings.filesystem.deny", json!(path.value), &path.source);
        }
        for list in &ceilings.subprocess {
            add("ceilings.subprocess.allow", json!(list.value), &list.source);
        }
        ceilings.env_deny.iter().for_each(|pattern| word("ceilings.env.deny", pattern, &mut add));
        let limits = &ceilings.limits;
        limit("ceilings.limits.memory", &limits.memory, |bytes| json!(format_size(*bytes)), &mut add);
        limit("ceilings.limits.cpu", &limits.cpu, |number| json!(number), &mut add);
        limit("ceilings.limits.cpu_time", &limits.cpu_time, |time| json!(format_duration(*time)), &mut add);
        limit("ceilings.limits.pids", &limits.pids, |number| json!(number), &mut add);
        limit("ceilings.limits.fds", &limits.fds, |number| json!(number), &mut add);
        limit("ceilings.limits.timeout", &limits.timeout, |time| json!(format_duration(*time)), &mut add);
        word("tools.pin", &self.tools.pin(), &mut add);
        for list in &self.tools.allow {
            let patterns: Vec<String> = list.value.iter().map(ToString::to_string).collect();
            add("tools.allow", json!(patterns), &list.source);
        }
        self.tools.deny.iter().for_each(|pattern| word("tools.deny", pattern, &mut add));
        let channels = self.warning.channels();
        let words: Vec<String> = channels.value.iter().map(ToString::to_string).collect();
        add("warning.channels", json!(words), &channels.source);
        word("new_permissions", &self.new_permissions(), &mut add);
        word("install_scripts", &self.install_scripts(), &mut add);
        limit("min_release_age", &self.min_release_age, |time| json!(format_duration(*time)), &mut add);
        rows
    }

    /// Who states anything of it.
    pub fn sources(&self) -> BTreeSet<Source> {
        self.shown().into_iter().map(|row| row.source).filter(|source| *source != Source::Default).collect()
    }
}

fn word<T: fmt::Display>(key: &'static str, value: &Sourced<T>, add: &mut impl FnMut(&'static str, Value, &Source)) {
    add(key, json!(value.value.to_string()), &value.source);
}

fn limit<T>(
    key: &'static str,
    value: &Option<Sourced<T>>,
    text: impl Fn(&T) -> Value,
    add: &mut impl FnMut(&'static str, Value, &Source),
) {
    if let Some(Sourced { value, source }) = value {
        add(key, text(value), source);
    }
}

fn of_rule(rule: &SignatureRule) -> Value {
    let names: Vec<String> = rule.names.iter().map(ToString::to_string).collect();
    let by: Vec<Value> = rule.by.iter().map(of_who).collect();
    json!({"names": names, "by": by})
}

fn of_certifier(certifier: &Certifier) -> Value {
    let names: Vec<String> = certifier.names.iter().map(ToString::to_string).collect();
    let predicates: Vec<String> = certifier.predicates.iter().map(ToString::to_string).collect();
    let who = of_who(&certifier.who);
    json!({"who": who, "predicates": predicates, "names": names, "max_level": certifier.max_level})
}

fn of_who(who: &Who) -> Value {
    match who {
        Who::Key(file) => json!({"key": file}),
        Who::Identity { identity, issuer } => json!({"identity": identity, "issuer": issuer}),
    }
}
