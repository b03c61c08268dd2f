//! npm's settings: variables `npm_config_…`, then the user's `.npmrc`, then the global one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Index, settings, variable};
use crate::auth::basic;
use crate::{Error, Result, Secret};

/// Where npm looks when nobody says otherwise.
pub const NPMJS: &str = "https://registry.npmjs.org";

/// Where the global file lies, the first that is there: Debian's, and those of npm in its usual places.
const GLOBAL: [&str; 3] = ["/etc/npmrc", "/usr/local/etc/npmrc", "/usr/etc/npmrc"];

/// What npm's settings say of registries.
#[derive(Debug)]
pub struct Npm {
    registry: Index,
    /// By scope, with its sign.
    scopes: BTreeMap<String, Index>,
    /// `HOST[:PORT]/PATH/`, and the value of `Authorization` for all below it.
    logins: BTreeMap<String, Secret>,
    /// Certificate authorities, PEM.
    pub ca_file: Option<PathBuf>,
}

impl Npm {
    pub(super) fn read(home: &Path, vars: &[(String, String)]) -> Result<Npm> {
        let of_env = |(name, value): &(String, String)| {
            let plain = name.get(..11).is_some_and(|start| start.eq_ignore_ascii_case("npm_config_"));
            let key = name.get(11..).filter(|_| plain)?;
            // The keys of logins are addresses: nothing of them is lowered or replaced.
            let key = if key.starts_with("//") || key.starts_with('@') { key.into() } else { key.to_ascii_lowercase() };
            Some((key.replace("_authtoken", "_authToken"), value.clone()))
        };
        let mut all: BTreeMap<String, String> = vars.iter().filter_map(of_env).collect();
        all.retain(|_, value| !value.is_empty());
        let named = |key: &str| all.get(key).map(PathBuf::from);
        let own = named("userconfig").unwrap_or_else(|| home.join(".npmrc"));
        let global = named("globalconfig").map(|path| vec![path]);
        let global = global.unwrap_or_else(|| GLOBAL.map(PathBuf::from).into());
        let mut files = vec![(own.clone(), settings(&own)?)];
        for path in global {
            if let Some(text) = settings(&path)? {
                files.push((path, Some(text)));
                break;
            }
        }
        for (_, text) in &files {
            for (key, value) in text.iter().flat_map(|text| pairs(text, vars)) {
                all.entry(key).or_insert(value);
            }
        }
        Npm::of(&all).map_err(|(key, why)| Error::Unusable { path: own, why: format!("npm's setting {key}: {why}") })
    }

    fn of(all: &BTreeMap<String, String>) -> std::result::Result<Npm, (String, &'static str)> {
        let index = |key: &String, text: &String| Index::parse(text).map_err(|why| (key.clone(), why));
        let default = (String::from("registry"), NPMJS.to_owned());
        let (key, text) = all.get_key_value("registry").unwrap_or((&default.0, &default.1));
        let mut npm = Npm {
            registry: index(key, text)?,
            scopes: BTreeMap::new(),
            logins: BTreeMap::new(),
            ca_file: all.get("cafile").map(PathBuf::from),
        };
        for (key, text) in all {
            if let Some(scope) = key.strip_suffix(":registry").filter(|scope| scope.starts_with('@')) {
                npm.scopes.insert(scope.into(), index(key, text)?);
            }
        }
        let mut places: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for (key, text) in all.iter().filter(|(key, _)| key.starts_with("//")) {
            if let Some((place, what)) = key[2..].rsplit_once(":") {
                places.entry(place).or_default().insert(what, text);
            }
        }
        for (place, stated) in places {
            if let Some(login) = login(&stated) {
                npm.logins.insert(format!("{}/", place.trim_end_matches('/').to_ascii_lowercase()), login);
            }
        }
        Ok(npm)
    }

    /// Where a package is asked for: by its scope, else the one of all.
    pub fn registry_of(&self, package: &str) -> &Index {
        let scope = package.split_once('/').map(|(scope, _)| scope);
        scope.and_then(|scope| self.scopes.get(scope)).unwrap_or(&self.registry)
    }

    /// What is shown at an address: the login of the longest beginning of it.
    pub fn login_for(&self, url: &str) -> Option<&Secret> {
        let place = url.split_once("://").map_or(url, |(_, place)| place);
        let place = format!("{}/", place.split(['?', '#']).next().unwrap_or_default());
        let fits = self.logins.iter().filter(|(start, _)| place.starts_with(start.as_str()));
        let own = [&self.registry].into_iter().chain(self.scopes.values());
        let own = own.filter(|index| url.starts_with(&format!("{}/", index.url()))).find_map(Index::login);
        fits.max_by_key(|(start, _)| start.len()).map(|(_, login)| login).or(own)
    }
}

/// `_authToken`, `_auth`, or `username` with `_password`, which is base64.
fn login(stated: &BTreeMap<&str, &str>) -> Option<Secret> {
    if let Some(token) = stated.get("_authToken") {
        return Some(Secret::new(format!("Bearer {token}")));
    }
    if let Some(both) = stated.get("_auth") {
        return Some(Secret::new(format!("Basic {both}")));
    }
    let password = STANDARD.decode(stated.get("_password")?).ok()?;
    Some(basic(stated.get("username")?, &Secret::new(String::from_utf8(password).ok()?)))
}

/// `KEY = VALUE` a line, with comments by `;` and `#`; `${NAME}` is the caller's variable.
fn pairs<'a>(text: &'a str, vars: &'a [(String, String)]) -> impl Iterator<Item = (String, String)> + 'a {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with([';', '#', '[']));
    lines.filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        let (key, value) = (expanded(key.trim(), vars), expanded(value, vars));
        (!value.is_empty()).then_some((key, value))
    })
}

/// Puts variables in; what names none stays as it is written, as npm has it.
fn expanded(text: &str, vars: &[(String, String)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, more)) = after.split_once('}') else { return out + "${" + after };
        match variable(vars, name) {
            Some(value) => out.push_str(value),
            None => out.push_str(&format!("${{{name}}}")),
        }
        rest = more;
    }
    out + rest
}
