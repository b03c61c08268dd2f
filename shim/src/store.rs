//! `smcp pull`, `push`, `build` and `cache`: what fills and empties the store.

use std::path::Path;

use bundle::build::{BaseImage, BuildOptions, Cage, Caged, build as build_package};
use bundle::policy::Policy;
use bundle::{Package, Request, check_trees, format_size};
use distribution::{
    Allowance, Error, LayerLock, Mode, Network, Pending, Reference, Removed, Store, canonical, configure,
    push as publish, resolve,
};
use serde_json::json;

use crate::accept;
use crate::cli;
use crate::exit::{self, Failure};
use crate::listing::{self, Named};
use crate::progress::Download;
use crate::settings::Settings;
use crate::show::{self, outln};
use crate::sources;
use crate::tool;
use crate::unpack;
use crate::verdict::Verdict;

/// Fetches and unpacks packages.
///
/// # Errors
/// At the first that cannot be had.
pub fn pull(
    references: &[String],
    locked: bool,
    registry: Option<&str>,
    made: &cli::Making,
    settings: &Settings,
) -> Result<(), Failure> {
    let store = Store::open(&settings.cache)?;
    let network = settings.network_for(registry, Mode::Refresh, made);
    for text in references {
        let named = listing::named(text, &store, network.clone(), settings, None, &mut None)?;
        let Named { reference, network, listed } = named;
        let resolved = resolve(&reference, &store, &network)?;
        show::stale(&resolved);
        let pending = Pending::new(&resolved, &store)?;
        let image = configure(&resolved, &store, &network)?;
        let mut package = Package::read(&image)?;
        listing::apply(listed.as_ref(), &mut package, &mut Request::default())?;
        let mut verdict = Verdict::of(&resolved, &store, &package, &reference, &network, settings, Policy::default())?;
        if locked {
            accept::locked(&mut verdict, &resolved, &package)?;
        }
        verdict.judgement.warnings.iter().for_each(|warning| show::warn(warning));
        verdict.judgement.passed()?;
        let shown = Download::asked_for(&resolved.name, &resolved.reference);
        bundle::prepare(&package, &image, &store, &network, &|step| shown.step(step), &unpack::in_a_process)?;
        drop(shown);
        pending.keep()?;
        outln!("{} {}", resolved.name, resolved.descriptor.digest);
    }
    // What was just pulled is the newest.
    if settings.allowance != Allowance::default() {
        store.collect(&settings.allowance)?;
    }
    Ok(())
}

/// Publishes a package of the store, under its own name or another.
///
/// # Errors
/// Where the store does not have it or the target does not take it.
pub fn push(text: &str, target: Option<&str>, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(&settings.cache)?;
    let network = network(settings);
    let reference: Reference = text.parse()?;
    let name = canonical(&reference, &network)?;
    let kept = store.recall(&name)?.ok_or_else(|| {
        Failure::new(exit::RESOLVE, format!("{name} is not in the store"))
            .hint(format!("make it first: smcp build SOURCE -t {text}; `smcp cache ls` lists what is there"))
    })?;
    let target: Reference = target.unwrap_or(text).parse()?;
    let pushed = publish(&store, &kept.descriptor, &target, &network)?;
    outln!("{} {}", pushed.target, pushed.descriptor.digest);
    show::say(&format!(
        "{} blobs sent ({}), {} were there",
        pushed.uploaded,
        format_size(pushed.bytes),
        pushed.present
    ));
    Ok(())
}

/// Makes a package and gives it a name; a layout is written at once.
///
/// # Errors
/// Where the source cannot be made into a package.
pub fn build(typed: &cli::Build, config: Option<&Path>, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(&settings.cache)?;
    let scripts = cli::Making {
        allow_scripts: typed.allow_scripts.clone(),
        package_type: typed.package_type,
        ..cli::Making::default()
    };
    let network = settings.network_for(None, network(settings).mode, &scripts);
    settings.let_scripts(&network.making)?;
    let Named { reference: source, network, listed } =
        listing::called(typed.source.parse()?, &store, network, settings, None, &mut None)?;
    if let Some(listed) = &listed {
        show::say(&format!(
            "{} is {source}; what its registry states of arguments and variables is in no package",
            listed.name
        ));
    }
    let tag: Reference = typed.tag.parse()?;
    let name = canonical(&tag, &network)?;
    let below = typed.base.as_deref().map(|base| below(base, &store, &network)).transpose()?;
    let options = BuildOptions {
        base: below.as_ref().map(|(base, _)| base.clone()),
        source_date_epoch: source_date_epoch()?,
        refresh: typed.refresh,
        bin: typed.bin.clone().or(network.making.bin.clone()),
        node_version: typed.node.clone(),
        debian: typed.debian.clone(),
        runtime: cli::runtime(typed.runtime),
        scripts: network.making.scripts.clone(),
        registries: sources::registries(&network, settings),
    };
    let in_a_cage = |caged: &Caged| tool::command(caged, config);
    let cage: Option<&Cage<'_>> = if typed.uncaged { None } else { Some(&in_a_cage) };
    let built = build_package(&source, &options, &store, cage, &show::say)?;
    store.remember(&name, &built.descriptor)?;
    if let Reference::OciLayout(_) = tag {
        publish(&store, &built.descriptor, &tag, &network)?;
    }
    outln!("{name} {}", built.descriptor.digest);
    Ok(())
}

/// An image that a package is built upon: brought, unpacked and held.
fn below(text: &str, store: &Store, network: &Network) -> Result<(BaseImage, LayerLock), Failure> {
    let reference: Reference = text.parse()?;
    if !matches!(reference, Reference::Registry(_) | Reference::OciLayout(_)) {
        let hint = "name one of a registry, or oci-layout:DIR[:TAG]";
        return Err(Failure::new(exit::USAGE, format!("--base {text}: it is no image")).hint(hint));
    }
    let resolved = resolve(&reference, store, network)?;
    show::stale(&resolved);
    let pending = Pending::new(&resolved, store)?;
    let image = configure(&resolved, store, network)?;
    let package = Package::read(&image)?;
    let shown = Download::asked_for(&resolved.name, &resolved.reference);
    let held = bundle::prepare(&package, &image, store, network, &|step| shown.step(step), &unpack::in_a_process)?;
    pending.keep()?;
    let base = BaseImage {
        name: format!("{} {}", resolved.name, resolved.descriptor.digest),
        layers: package.layers.clone(),
        env: package.config.config.env.clone(),
        tree: held.path().to_owned(),
    };
    Ok((base, held))
}

/// Lists what is in the store, or removes it.
///
/// # Errors
/// Where a name is not there, or the store cannot be read or written.
pub fn cache(command: &cli::Cache, settings: &Settings) -> Result<(), Failure> {
    let store = Store::open(&settings.cache)?;
    let network = network(settings);
    match command {
        cli::Cache::Ls { json: as_json } => {
            let kept = store.list()?;
            if *as_json {
                let rows = kept.iter().map(|k| json!({"name": k.reference, "digest": k.descriptor.digest}));
                show::print_json(&rows.collect());
            } else {
                kept.iter().for_each(|k| outln!("{} {}", k.reference, k.descriptor.digest));
            }
        }
        cli::Cache::Rm { references, all } => {
            let mut removed = Vec::new();
            if *all {
                removed.push(store.remove_all()?);
            }
            for text in references {
                let name = canonical(&text.parse()?, &network)?;
                let was_kept = listing::forget(&name, settings)?;
                match store.remove(&name) {
                    Err(Error::NotFound { .. }) if was_kept => {}
                    one => removed.push(one?),
                }
            }
            store.empty_trash()?;
            let bytes: u64 = removed.iter().map(|r| r.bytes).sum();
            show::say(&format!("{} removed", format_size(bytes)));
        }
        cli::Cache::Gc => {
            let removed = store.collect(&settings.allowance)?;
            store.empty_trash()?;
            let Removed { refs, blobs, layers, bytes } = removed;
            show::say(&format!("{refs} packages, {blobs} blobs, {layers} layers, {} removed", format_size(bytes)));
        }
        cli::Cache::Verify { json: as_json } => {
            let verdict = store.verify()?;
            let compared = check_trees(&store, &unpack::in_a_process)?;
            store.empty_trash()?;
            let findings = [verdict.findings, compared.findings].concat();
            if *as_json {
                show::print_json(&json!({
                    "blobs": verdict.blobs,
                    "bytes": verdict.bytes,
                    "layers": compared.good,
                    "left_out": compared.left_out,
                    "findings": findings,
                }));
            } else {
                findings.iter().for_each(|finding| outln!("{finding}"));
                show::say(&format!(
                    "{} blobs read, {}; {} unpacked layers and trees compared, {} left out",
                    verdict.blobs,
                    format_size(verdict.bytes),
                    compared.good,
                    compared.left_out
                ));
            }
            if !findings.is_empty() {
                let what = format!("{} findings in the store", findings.len());
                return Err(
                    Failure::new(exit::FINDINGS, what).hint("pull the packages again; what was damaged is set aside")
                );
            }
        }
    }
    Ok(())
}

fn network(settings: &Settings) -> Network {
    settings.network(None, Mode::CacheFirst { refresh: settings.refresh })
}

/// `SOURCE_DATE_EPOCH`, seconds since 1970, reproducible-builds.org.
fn source_date_epoch() -> Result<Option<u64>, Failure> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Err(_) => Ok(None),
        Ok(text) => text
            .parse()
            .map(Some)
            .map_err(|_| Failure::new(exit::USAGE, format!("SOURCE_DATE_EPOCH: {text:?} is no number of seconds"))),
    }
}
