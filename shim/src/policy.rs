//! `smcp policy`: what is in force, and what it says of a package.

use bundle::policy::Policy;
use bundle::{Reason, ReasonKind, Request, judge};
use runtime::{Caller, Identity, UserFlag};
use serde_json::{Value, json};

use crate::accept::Acceptance;
use crate::cli;
use crate::exit::{self, Failure};
use crate::info;
use crate::run::caller_env;
use crate::settings::Settings;
use crate::show::{self, outln};
use crate::verdict::Seen;

/// Shows each value in force and where it came from.
pub fn show(as_json: bool, settings: &Settings) {
    let rows = settings.policy(Policy::default()).shown();
    if as_json {
        let row =
            |row: &bundle::policy::Shown| json!({"key": row.key, "value": row.value, "source": row.source.to_string()});
        show::print_json(&rows.iter().map(row).collect());
        return;
    }
    let width = rows.iter().map(|row| row.key.len()).max().unwrap_or_default();
    for row in rows {
        let value = match &row.value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        outln!("{:width$}  {value}  ({})", row.key, row.source);
    }
}

/// Shows what policy says of a package, with all reasons.
///
/// # Errors
/// Of code 121 where it would not run, and where the package cannot be had.
pub fn check(text: &str, made: &cli::Making, as_json: bool, settings: &Settings) -> Result<(), Failure> {
    let seen = Seen::of(text, made, settings)?;
    let (_pending, package, mut verdict) = seen.judged(settings)?;
    let Seen { network, reference, resolved, .. } = &seen;
    Acceptance::of(&mut verdict, &package, settings)?;
    let identity = Identity::of_caller(&Caller::of_this_process(), UserFlag::Default, 0);
    let caller = caller_env(settings, &identity, &package, reference, network)?;
    let judged = judge(&package, &Request::default(), &verdict.bounds(settings), &caller);
    let withheld = judged.as_ref().map(|grant| grant.withheld.clone()).unwrap_or_default();
    // What a run would still need on its command line is no matter of policy.
    let reasons: Vec<Reason> = judged.err().map(|denied| denied.reasons).unwrap_or_default();
    let reasons: Vec<Reason> = reasons.into_iter().filter(|reason| reason.kind == ReasonKind::Policy).collect();
    let word = if reasons.is_empty() { "granted" } else { "denied" };
    if as_json {
        let sources: Vec<_> = verdict.policy.sources().iter().map(ToString::to_string).collect();
        let standing = &verdict.judgement.standing;
        show::print_json(&json!({
            "name": resolved.name, "digest": resolved.descriptor.digest, "verdict": word, "reasons": reasons,
            "level": standing.level, "score": standing.score, "warnings": verdict.judgement.warnings,
            "notes": verdict.judgement.notes, "withheld": withheld, "sources": sources,
        }));
    } else {
        outln!("verdict    {word}");
        info::standing(&verdict.judgement);
        withheld.iter().for_each(|withheld| outln!("withheld   {}: {}", withheld.what, withheld.why));
        reasons.iter().for_each(|reason| outln!("reason     {}", reason.what));
    }
    match reasons.len() {
        0 => Ok(()),
        count => Err(Failure::new(exit::DENIED, format!("{} would not run, for {count} reason(s)", resolved.name))),
    }
}
