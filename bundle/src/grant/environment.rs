//! The environment inside: composed of what is declared and given, never of
//! what the caller happens to have.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::ceilings::{beyond, hint, of_variable};
use super::certificates::{CERTIFICATES, OF_CALLER};
use super::{CallerEnv, EnvFlag, Request, Verdict};
use crate::Secret;
use crate::package::Package;
use crate::policy::Ceilings;

/// Composes the whole environment of the server: a few defaults, the image's,
/// the manifest's defaults, what an entry of a registry puts together, where the caller's `certificates` are, the account, the flags; what
/// comes later wins.
pub(super) fn compose(
    package: &Package,
    request: &Request,
    ceilings: &Ceilings,
    caller: &CallerEnv,
    certificates: bool,
    verdict: &mut Verdict,
) -> Vec<(String, Secret)> {
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: &str| env.insert(name.to_string(), Secret::new(value));
    set("PATH", DEFAULT_PATH);
    set("LANG", "C.UTF-8");
    for name in INHERITED.iter().filter(|name| of_variable(ceilings, name).is_none()) {
        if let Some(value) = caller.vars.get(OsStr::new(name)).and_then(|value| value.to_str()) {
            set(name, value);
        }
    }
    for (name, value) in package.config.config.env.iter().filter_map(|line| line.split_once('=')) {
        if !name.is_empty() && !value.contains('\0') && !name.contains('\0') {
            match of_variable(ceilings, name) {
                None => drop(set(name, value)),
                Some(source) => verdict.withhold(format!("variable {name}"), &beyond(source), None),
            }
        }
    }
    for spec in &package.manifest.env {
        match (&spec.default, of_variable(ceilings, &spec.name)) {
            (_, Some(source)) => verdict.withhold(format!("variable {}", spec.name), &beyond(source), None),
            (Some(value), None) => drop(set(&spec.name, value)),
            (None, None) => {}
        }
    }
    for EnvFlag { name, value } in &request.composed {
        match (value, of_variable(ceilings, name)) {
            (_, Some(source)) => verdict.withhold(format!("variable {name}"), &beyond(source), None),
            (Some(value), None) => drop(set(name, value.expose())),
            (None, None) => {}
        }
    }
    for name in OF_CALLER.iter().filter(|_| certificates) {
        set(name, CERTIFICATES);
    }
    set("USER", &caller.user);
    set("LOGNAME", &caller.user);
    match caller.home.to_str() {
        Some(home) => {
            set("HOME", home);
        }
        None => verdict.usage("the home directory inside is not UTF-8", None),
    }
    for flag in &request.env {
        if let Some(source) = of_variable(ceilings, &flag.name) {
            verdict.policy(format!("--env {}: {}", flag.name, beyond(source)), hint());
            continue;
        }
        if let Some(value) = value_of(flag, caller, verdict) {
            env.insert(flag.name.clone(), value);
        }
    }
    for spec in &package.manifest.env {
        let given = request.env.iter().any(|flag| flag.name == spec.name);
        if let Some(source) = of_variable(ceilings, &spec.name).filter(|_| spec.required && !given) {
            verdict.policy(format!("the required variable {}: {}", spec.name, beyond(source)), hint());
        } else if spec.required && !given && !env.contains_key(&spec.name) {
            let name = &spec.name;
            let hint = match caller.vars.contains_key(OsStr::new(name)) {
                true => format!("--env {name} passes the caller's value"),
                false => format!("--env {name}=VALUE, or a line of --env-file"),
            };
            verdict.usage(format!("the required variable {name} is missing"), hint);
        } else if !given && !env.contains_key(&spec.name) && caller.vars.contains_key(OsStr::new(&spec.name)) {
            let (name, flag) = (&spec.name, if spec.secret { "--secret" } else { "--env" });
            verdict
                .notes
                .push(format!("{name} is set here, and the server does not get it: {flag} {name} passes it on"));
        }
    }
    env.into_iter().collect()
}

/// Where programs are found if the image does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What every server may know of its caller: the terminal and the time zone.
const INHERITED: [&str; 2] = ["TERM", "TZ"];

fn value_of(flag: &EnvFlag, caller: &CallerEnv, verdict: &mut Verdict) -> Option<Secret> {
    if flag.value.is_some() {
        return flag.value.clone();
    }
    let name = &flag.name;
    match caller.vars.get(OsStr::new(name)).map(|value| value.to_str()) {
        Some(Some(value)) => return Some(Secret::new(value)),
        Some(None) => verdict.usage(format!("--env {name}: the caller's value is not UTF-8"), None),
        None => verdict
            .usage(format!("--env {name}: the caller has no such variable"), format!("--env {name}=VALUE gives one")),
    }
    None
}
