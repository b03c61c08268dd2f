//! The indexes of python's packages, as pip's and uv's settings have them: pip's variables, uv's variables, pip's files, uv's
//! files; the first that names one decides.

use std::path::{Path, PathBuf};

use toml::Table;
use toml::Value;

use super::{Index, settings, variable};
use crate::auth::basic;
use crate::{Error, Result, Secret};

/// Where pip and uv look when nobody says otherwise.
pub const PYPI: &str = "https://pypi.org/simple";

/// What the settings say of indexes.
#[derive(Debug)]
pub struct Python {
    /// In the order in which they are asked: what is beside the main one first, as uv has it, so that a name of one's own is
    /// never taken from outside.
    pub indexes: Vec<Index>,
    /// Certificate authorities, PEM.
    pub ca_file: Option<PathBuf>,
}

/// What one place says.
#[derive(Debug, Default)]
struct Stated {
    main: Option<String>,
    more: Vec<String>,
    ca_file: Option<String>,
}

impl Python {
    /// `system` is where the machine's own settings lie, `/etc`.
    pub(super) fn read(home: &Path, system: &Path, vars: &[(String, String)]) -> Result<Python> {
        let config = variable(vars, "XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
        let mut places = vec![of_pip_variables(vars), of_uv_variables(vars)];
        let named = variable(vars, "PIP_CONFIG_FILE").map(PathBuf::from);
        let own = [config.join("pip/pip.conf"), home.join(".pip/pip.conf"), system.join("pip.conf")];
        for path in named.into_iter().chain(own) {
            places.extend(settings(&path)?.map(|text| of_pip(&text)));
        }
        let named = variable(vars, "UV_CONFIG_FILE").map(PathBuf::from);
        for path in named.into_iter().chain([config.join("uv/uv.toml"), system.join("uv/uv.toml")]) {
            if let Some(text) = settings(&path)? {
                let table = text.parse::<Table>();
                let wrong = |why: toml::de::Error| Error::Unusable { path: path.clone(), why: why.message().into() };
                places.push(of_uv(&table.map_err(wrong)?));
            }
        }
        Python::of(places, vars)
    }

    fn of(places: Vec<Stated>, vars: &[(String, String)]) -> Result<Python> {
        let main = places.iter().find_map(|stated| stated.main.clone()).unwrap_or_else(|| PYPI.into());
        let more = places.iter().map(|stated| &stated.more).find(|more| !more.is_empty()).cloned().unwrap_or_default();
        let ca_file = places.into_iter().find_map(|stated| stated.ca_file).map(PathBuf::from);
        let mut indexes: Vec<Index> = Vec::new();
        for text in more.iter().chain([&main]) {
            let index = read(text, vars).map_err(|why| Error::Unusable {
                path: "pip's and uv's settings".into(),
                why: format!("the address of an index: {why}"),
            })?;
            if !indexes.iter().any(|known| known.url() == index.url()) {
                indexes.push(index);
            }
        }
        Ok(Python { indexes, ca_file })
    }
}

/// An address, or uv's `NAME=ADDRESS` with the login of `UV_INDEX_NAME_USERNAME` and `_PASSWORD`.
fn read(text: &str, vars: &[(String, String)]) -> std::result::Result<Index, &'static str> {
    let named = text.split_once('=').filter(|(name, _)| !name.contains([':', '/']));
    let (name, address) = named.map_or((None, text), |(name, address)| (Some(name), address));
    let mut index = Index::parse(address)?;
    if let Some(name) = name.filter(|_| index.login.is_none()) {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = name.chars().map(plain).collect();
        let of = |what: &str| variable(vars, &format!("UV_INDEX_{name}_{what}"));
        if of("USERNAME").is_some() || of("PASSWORD").is_some() {
            let password = Secret::new(of("PASSWORD").unwrap_or_default());
            index.login = Some(basic(of("USERNAME").unwrap_or_default(), &password));
        }
    }
    Ok(index)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn of_pip_variables(vars: &[(String, String)]) -> Stated {
    let text = |name| variable(vars, name).map(str::to_owned);
    let more = variable(vars, "PIP_EXTRA_INDEX_URL").map(words).unwrap_or_default();
    Stated { main: text("PIP_INDEX_URL"), more, ca_file: text("PIP_CERT") }
}

fn of_uv_variables(vars: &[(String, String)]) -> Stated {
    let main = ["UV_DEFAULT_INDEX", "UV_INDEX_URL"].into_iter().find_map(|name| variable(vars, name));
    let more = ["UV_INDEX", "UV_EXTRA_INDEX_URL"].into_iter().find_map(|name| variable(vars, name));
    Stated { main: main.map(str::to_owned), more: more.map(words).unwrap_or_default(), ca_file: None }
}

/// An ini file: the sections that count for `pip download`, the more special one first. A value may go on in indented lines.
fn of_pip(text: &str) -> Stated {
    let mut pairs: Vec<(String, String, String)> = Vec::new();
    let mut section = String::new();
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = bare.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_ascii_lowercase();
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, _, value)) = pairs.last_mut() {
                value.push(' ');
                value.push_str(bare);
            }
        } else if let Some((key, value)) = bare.split_once(['=', ':']) {
            let key = key.trim().to_ascii_lowercase().replace('_', "-");
            pairs.push((section.clone(), key, value.trim().to_owned()));
        }
    }
    let value = |key: &str| {
        let of = |section: &str| pairs.iter().find(|(own, name, _)| own == section && name == key);
        let found = ["download", "install", "global"].into_iter().find_map(of);
        found.map(|(_, _, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let more = value("extra-index-url").map(|text| words(&text)).unwrap_or_default();
    Stated { main: value("index-url"), more, ca_file: value("cert") }
}

/// `index-url`, `extra-index-url` and `[[index]]`, at the top or under `[pip]`.
fn of_uv(table: &Table) -> Stated {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let pip = table.get("pip").and_then(Value::as_table).cloned().unwrap_or_default();
    let key = |name: &str| table.get(name).or_else(|| pip.get(name));
    let mut stated = Stated { main: text(key("index-url")), ..Stated::default() };
    stated.more.extend(list(key("extra-index-url")).iter().filter_map(Value::as_str).map(str::to_owned));
    for index in list(table.get("index")) {
        let Some(url) = text(index.get("url")) else { continue };
        // One that is named for certain packages alone is never asked about others.
        if index.get("explicit").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        let url = text(index.get("name")).map_or(url.clone(), |name| format!("{name}={url}"));
        match index.get("default").and_then(Value::as_bool) {
            Some(true) => stated.main = Some(url),
            _ => stated.more.push(url),
        }
    }
    stated
}
/// The name of a project as indexes compare it: without case, and with all separators alike (PEP 503).
pub fn normal_name(name: &str) -> String {
    let words: Vec<&str> = name.split(['-', '_', '.']).filter(|word| !word.is_empty()).collect();
    words.join("-").to_ascii_lowercase()
}
