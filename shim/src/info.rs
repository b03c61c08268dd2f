//! `smcp info`: what a package is, and what a run of it without flags would be granted.

use bundle::policy::Judgement;
use bundle::{Manifest, Package, PackageClass, PackageOrigin, Request, Signer, format_size, judge};
use runtime::{Caller, Identity, UserFlag};
use serde_json::{Value, json};

use crate::accept::Acceptance;
use crate::cli;
use crate::exit::Failure;
use crate::record::grants;
use crate::run::caller_env;
use crate::settings::Settings;
use crate::show::{self, outln};
use crate::verdict::Seen;

/// Shows a package; asks its registry where it is not in the store.
///
/// # Errors
/// Where it cannot be had or read.
pub fn info(text: &str, made: &cli::Making, as_json: bool, settings: &Settings) -> Result<(), Failure> {
    let seen = Seen::of(text, made, settings)?;
    let (_pending, package, mut verdict) = seen.judged(settings)?;
    let Seen { store, network, reference, listed, resolved } = &seen;
    let identity = Identity::of_caller(&Caller::of_this_process(), UserFlag::Default, 0);
    Acceptance::of(&mut verdict, &package, settings)?;
    let caller = caller_env(settings, &identity, &package, reference, network)?;
    let granted = match judge(&package, &Request::default(), &verdict.bounds(settings), &caller) {
        Ok(grant) => {
            let mut granted = grants(&grant);
            granted["withheld"] = json!(grant.withheld);
            granted
        }
        Err(denied) => json!({"refused": denied.reasons}),
    };
    let judgement = &verdict.judgement;
    let standing = &judgement.standing;
    let manifest: Value = serde_json::from_str(&package.manifest.to_label()).unwrap_or_default();
    let description = json!({
        "name": resolved.name,
        "digest": package.digest,
        "manifestDigest": package.manifest_digest,
        "origin": match package.origin { PackageOrigin::Smcp => "smcp", PackageOrigin::PlainImage => "plain image" },
        "level": standing.level,
        "score": standing.score,
        "class": standing.origin.map(PackageClass::word),
        "certifier": standing.certifier.as_ref().map(Signer::to_string),
        "signers": standing.signers.iter().map(Signer::to_string).collect::<Vec<_>>(),
        "warnings": judgement.warnings,
        "notes": judgement.notes,
        "listed": listed.as_ref().map(|listed| json!({
            "name": listed.name, "version": listed.version, "package": listed.reference.to_string(),
            "deprecated": listed.is_deprecated, "others": listed.others, "leftOut": listed.left_out,
        })),
        "manifest": manifest,
        "layers": package.layers.iter().map(|(layer, diff_id)| json!({
            "digest": layer.digest, "size": layer.size, "diffId": diff_id, "unpacked": store.layer(diff_id).is_some(),
        })).collect::<Vec<_>>(),
        "granted": granted,
    });
    if as_json {
        show::print_json(&description);
    } else {
        print(&package, &package.manifest, judgement, &description);
    }
    Ok(())
}

fn print(package: &Package, manifest: &Manifest, judgement: &Judgement, description: &Value) {
    outln!("package    {} {}", &manifest.name, &manifest.version);
    if let Some(text) = &manifest.description {
        outln!("           {}", text);
    }
    if let Some(listed) = description["listed"].as_object() {
        let text = |key: &str| listed[key].as_str().unwrap_or_default();
        outln!("listed     mcp:{}@{} is {}", text("name"), text("version"), text("package"));
    }
    outln!("digest     {}", package.digest);
    if let Some(source) = &manifest.source {
        let integrity = source.integrity.as_deref().unwrap_or("no hash is stated");
        outln!("source     {} {} ({integrity})", source.kind, source.reference);
        for (key, value) in &source.extra {
            outln!("           {key}: {}", value.as_str().unwrap_or_default());
        }
    }
    if let Some(why) = manifest.extra.get("defaults").and_then(Value::as_str) {
        outln!("defaults   {why}");
    }
    standing(judgement);
    outln!("command    {}", &manifest.entrypoint.args.join(" "));
    for (layer, _) in &package.layers {
        outln!("layer      {} ({})", layer.digest, format_size(layer.size));
    }
    outln!("asks for   {}", description["manifest"]["permissions"]);
    outln!("granted    {}", description["granted"]);
}

/// What the package counts as, by whose word, and what does not count.
pub fn standing(judgement: &Judgement) {
    let standing = &judgement.standing;
    let by = match (&standing.certifier, standing.level, standing.score) {
        (Some(certifier), ..) => format!("certified by {certifier}"),
        (None, 0, None) => "nothing is certified".into(),
        (None, ..) => "by the word of its hub".into(),
    };
    let score = standing.score.map_or("no score".into(), |score| format!("score {score}"));
    let origin = standing.origin.map_or("of unknown origin".into(), |origin| format!("origin {origin}"));
    outln!("level      {} ({by}), {score}, {origin}", standing.level);
    for signer in &standing.signers {
        outln!("signed     by {signer}");
    }
    for warning in &judgement.warnings {
        outln!("warning    {warning}");
    }
    for note in &judgement.notes {
        outln!("note       {note}");
    }
}
