//! The `policy` section of a file, strictly: what is not known stops everything.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use serde_saphyr::{Location, Spanned};

use super::ceilings::{Ceilings, FilesystemCeiling, LimitCeilings, PathCeiling};
use super::pattern::Pattern;
use super::source::{Source, Sourced};
use super::trust::{Certifier, Predicate, SignatureRule, Who};
use super::values::number;
use super::{Policy, Tools, Warning};
use crate::evidence::PackageClass;
use crate::grant::NetworkCeiling;
use crate::outbound::OutboundError;
use crate::permissions::Access;
use crate::units::{UnitError, parse_count, parse_duration, parse_millicores, parse_size};

/// The `policy` section as a YAML file has it.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Section {
    #[serde(deserialize_with = "said")]
    min_cert_level: Word,
    #[serde(deserialize_with = "said")]
    cert_level_mode: Word,
    #[serde(deserialize_with = "said")]
    allowed_origins: Words,
    #[serde(deserialize_with = "said")]
    warning_threshold: Word,
    #[serde(deserialize_with = "said")]
    unscored: Word,
    #[serde(deserialize_with = "said")]
    hub_levels: Word,
    #[serde(deserialize_with = "said")]
    min_tier: Word,
    #[serde(deserialize_with = "said")]
    signatures: Option<Spanned<Vec<Spanned<Signature>>>>,
    #[serde(deserialize_with = "said")]
    certifiers: Option<Spanned<Vec<Spanned<OneCertifier>>>>,
    ceilings: CeilingSection,
    tools: ToolSection,
    warning: WarningSection,
    #[serde(deserialize_with = "said")]
    new_permissions: Word,
    #[serde(deserialize_with = "said")]
    install_scripts: Word,
    #[serde(deserialize_with = "said")]
    min_release_age: Word,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Signature {
    #[serde(deserialize_with = "said")]
    names: Words,
    #[serde(deserialize_with = "said")]
    keys: Words,
    #[serde(deserialize_with = "said")]
    identity: Word,
    #[serde(deserialize_with = "said")]
    issuer: Word,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct OneCertifier {
    #[serde(deserialize_with = "said")]
    key: Word,
    #[serde(deserialize_with = "said")]
    identity: Word,
    #[serde(deserialize_with = "said")]
    issuer: Word,
    #[serde(deserialize_with = "said")]
    predicates: Words,
    #[serde(deserialize_with = "said")]
    names: Words,
    #[serde(deserialize_with = "said")]
    max_level: Word,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct CeilingSection {
    network: Lists,
    filesystem: FileLists,
    subprocess: AllowList,
    env: DenyList,
    limits: LimitSection,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Lists {
    #[serde(deserialize_with = "said")]
    allow: Words,
    #[serde(deserialize_with = "said")]
    deny: Words,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileLists {
    #[serde(deserialize_with = "said")]
    allow: Option<Spanned<Vec<Spanned<PathEntry>>>>,
    #[serde(deserialize_with = "said")]
    deny: Words,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct PathEntry {
    #[serde(deserialize_with = "said")]
    path: Word,
    #[serde(deserialize_with = "said")]
    access: Word,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct AllowList {
    #[serde(deserialize_with = "said")]
    allow: Words,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct DenyList {
    #[serde(deserialize_with = "said")]
    deny: Words,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct LimitSection {
    #[serde(deserialize_with = "said")]
    memory: Word,
    #[serde(deserialize_with = "said")]
    cpu: Word,
    #[serde(deserialize_with = "said")]
    pids: Word,
    #[serde(deserialize_with = "said")]
    fds: Word,
    #[serde(deserialize_with = "said")]
    timeout: Word,
    #[serde(deserialize_with = "said")]
    cpu_time: Word,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ToolSection {
    #[serde(deserialize_with = "said")]
    pin: Word,
    #[serde(deserialize_with = "said")]
    allow: Words,
    #[serde(deserialize_with = "said")]
    deny: Words,
}

#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WarningSection {
    #[serde(deserialize_with = "said")]
    channels: Words,
}

type Word = Option<Spanned<Text>>;
type Words = Option<Spanned<Vec<Spanned<Text>>>>;

/// A value that is stated, whatever it is: a key without one is an error of the value's type, and not an absent key.
fn said<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// A scalar as it is written: `2` and `"2"` mean the same. No value is no text.
#[derive(Clone, Debug)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.into()))
            }
        }
        from.deserialize_str(Visitor)
    }
}

/// Why a policy cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {key}: {why}")]
pub struct PolicyError {
    /// Where.
    pub place: Source,
    /// The path of the key, such as `policy.min_cert_level`.
    pub key: String,
    /// What is wrong with its value.
    pub why: String,
}

/// What reads a section.
struct Reader<'a> {
    place: Place,
    home: Option<&'a Path>,
}

/// Where a section is of.
enum Place {
    File(Arc<Path>),
    Other(Source),
}

type Result<T, E = PolicyError> = std::result::Result<T, E>;

impl Section {
    /// Makes a policy of it. `path` is the file that it is of, `home` what `~` stands for.
    ///
    /// # Errors
    /// At the first value that is none, with line and key.
    pub fn read(&self, path: &Path, home: Option<&Path>) -> Result<Policy> {
        Reader { place: Place::File(path.into()), home }.policy(self)
    }

    /// Makes a policy of a section that was not read from a file.
    pub(super) fn of(&self, source: Source, home: Option<&Path>) -> Result<Policy> {
        Reader { place: Place::Other(source), home }.policy(self)
    }

    /// The one field that a variable sets: `key` as the variable has it, nested with `_`. None where there is no such.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Option<()> {
        let text = |text: &str| Spanned::new(Text(text.into()), Location::UNKNOWN, Location::UNKNOWN);
        let word = Some(text(value));
        let list = |separate: fn(char) -> bool| {
            let texts = value.split(separate).filter(|word| !word.is_empty()).map(text).collect();
            Some(Spanned::new(texts, Location::UNKNOWN, Location::UNKNOWN))
        };
        // Destinations have commas of their own, and so may paths.
        let texts = || list(char::is_whitespace);
        let words = || list(|c| c == ',' || c.is_whitespace());
        let ceilings = &mut self.ceilings;
        match key {
            "min_cert_level" => self.min_cert_level = word,
            "cert_level_mode" => self.cert_level_mode = word,
            "allowed_origins" => self.allowed_origins = words(),
            "warning_threshold" => self.warning_threshold = word,
            "unscored" => self.unscored = word,
            "hub_levels" => self.hub_levels = word,
            "min_tier" => self.min_tier = word,
            "new_permissions" => self.new_permissions = word,
            "install_scripts" => self.install_scripts = word,
            "min_release_age" => self.min_release_age = word,
            "ceilings_network_allow" => ceilings.network.allow = texts(),
            "ceilings_network_deny" => ceilings.network.deny = texts(),
            "ceilings_subprocess_allow" => ceilings.subprocess.allow = texts(),
            "ceilings_env_deny" => ceilings.env.deny = texts(),
            "tools_pin" => self.tools.pin = word,
            "tools_allow" => self.tools.allow = texts(),
            "tools_deny" => self.tools.deny = texts(),
            "warning_channels" => self.warning.channels = words(),
            _ => match key.strip_prefix("ceilings_limits_")? {
                "memory" => ceilings.limits.memory = word,
                "cpu" => ceilings.limits.cpu = word,
                "cpu_time" => ceilings.limits.cpu_time = word,
                "pids" => ceilings.limits.pids = word,
                "fds" => ceilings.limits.fds = word,
                "timeout" => ceilings.limits.timeout = word,
                _ => return None,
            },
        }
        Some(())
    }
}

impl Reader<'_> {
    fn policy(&self, section: &Section) -> Result<Policy> {
        let Section { ceilings, tools, warning, .. } = section;
        let origins = self.set("allowed_origins", &section.allowed_origins, PackageClass::of_word)?;
        Ok(Policy {
            min_cert_level: self.one("min_cert_level", &section.min_cert_level, |text| number(text, 0, 3))?,
            cert_level_mode: self.word("cert_level_mode", &section.cert_level_mode)?,
            // An empty list is no demand.
            allowed_origins: origins.into_iter().filter(|list| !list.value.is_empty()).collect(),
            warning_threshold: self.one("warning_threshold", &section.warning_threshold, |t| number(t, 0, 100))?,
            unscored: self.word("unscored", &section.unscored)?,
            hub_levels: self.word("hub_levels", &section.hub_levels)?,
            min_tier: self.one("min_tier", &section.min_tier, |text| number(text, super::LEAST_TIER, 3))?,
            hubs: Vec::new(),
            install_scripts: self.word("install_scripts", &section.install_scripts)?,
            min_release_age: self.one("min_release_age", &section.min_release_age, unit(parse_duration))?,
            signatures: self.entries("signatures", &section.signatures, Reader::signature)?.unwrap_or_default(),
            certifiers: self.certifiers(&section.certifiers)?,
            ceilings: self.ceilings(ceilings)?,
            tools: Tools {
                pin: self.word("tools.pin", &tools.pin)?,
                allow: self
                    .list("tools.allow", &tools.allow, Pattern::new)?
                    .into_iter()
                    .filter(|list| !list.value.is_empty())
                    .collect(),
                deny: self.each("tools.deny", &tools.deny, Pattern::new)?,
            },
            warning: Warning { channels: self.set("warning.channels", &warning.channels, |text| text.parse())? },
            new_permissions: self.word("new_permissions", &section.new_permissions)?,
        })
    }

    fn ceilings(&self, section: &CeilingSection) -> Result<Ceilings> {
        let CeilingSection { network, filesystem, subprocess, env, limits } = section;
        let destination = |text: &str| text.parse().map_err(of_destination);
        let denial = |text: &str| text.parse().map_err(of_destination);
        let allow = self.list("ceilings.network.allow", &network.allow, destination)?;
        let deny = self.each("ceilings.network.deny", &network.deny, denial)?;
        let files = self.entries("ceilings.filesystem.allow", &filesystem.allow, Reader::path_entry)?;
        let of_all = |list: &Spanned<_>| self.source(list);
        let files = files.zip(filesystem.allow.as_ref().map(of_all));
        Ok(Ceilings {
            network: NetworkCeiling::new(allow, deny),
            filesystem: FilesystemCeiling {
                allow: files
                    .map(|(files, source)| Sourced { value: files.into_iter().map(|one| one.value).collect(), source })
                    .into_iter()
                    .collect(),
                deny: self.each("ceilings.filesystem.deny", &filesystem.deny, |text| self.absolute(text))?,
            },
            subprocess: self.list("ceilings.subprocess.allow", &subprocess.allow, program)?.into_iter().collect(),
            env_deny: self.each("ceilings.env.deny", &env.deny, Pattern::new)?,
            limits: LimitCeilings {
                memory: self.one("ceilings.limits.memory", &limits.memory, unit(parse_size))?,
                cpu: self.one("ceilings.limits.cpu", &limits.cpu, unit(parse_millicores))?,
                cpu_time: self.one("ceilings.limits.cpu_time", &limits.cpu_time, unit(parse_duration))?,
                pids: self.one("ceilings.limits.pids", &limits.pids, unit(parse_count))?,
                fds: self.one("ceilings.limits.fds", &limits.fds, unit(parse_count))?,
                timeout: self.one("ceilings.limits.timeout", &limits.timeout, unit(parse_duration))?,
            },
        })
    }

    fn certifiers(
        &self,
        written: &Option<Spanned<Vec<Spanned<OneCertifier>>>>,
    ) -> Result<Vec<Sourced<Vec<Certifier>>>> {
        let Some(list) = self.entries("certifiers", written, Reader::certifier)? else { return Ok(Vec::new()) };
        let source = written.as_ref().map_or(Source::Default, |list| self.source(list));
        // The entries keep no lines of their own: what is missing is in none of them.
        Ok(vec![Sourced { value: list.into_iter().map(|one| one.value).collect(), source }])
    }

    fn signature(&self, key: &str, entry: &Spanned<Signature>) -> Result<SignatureRule> {
        let Signature { names, keys, identity, issuer } = &entry.value;
        let keys = self.each(&format!("{key}.keys"), keys, |text| self.absolute(text))?;
        let mut by: Vec<Who> = keys.into_iter().map(|key| Who::Key(key.value)).collect();
        by.extend(self.identity(key, entry, identity, issuer)?);
        if by.is_empty() {
            return Err(self.wrong(entry, key, "it names neither keys nor an identity with its issuer"));
        }
        Ok(SignatureRule { names: self.names(key, entry, names)?, by })
    }

    fn certifier(&self, key: &str, entry: &Spanned<OneCertifier>) -> Result<Certifier> {
        let OneCertifier { key: file, identity, issuer, predicates, names, max_level } = &entry.value;
        let file = self.one(&format!("{key}.key"), file, |text| self.absolute(text))?;
        let who = match (file, self.identity(key, entry, identity, issuer)?) {
            (Some(file), None) => Who::Key(file.value),
            (None, Some(who)) => who,
            _ => return Err(self.wrong(entry, key, "it names one key, or one identity with its issuer")),
        };
        let predicates = self.set(&format!("{key}.predicates"), predicates, |text| text.parse())?;
        let most = self.one(&format!("{key}.max_level"), max_level, |text| number(text, 0, 3))?;
        Ok(Certifier {
            who,
            predicates: predicates.map_or_else(Predicate::all, |set| set.value),
            names: self.names(key, entry, names)?,
            registry: None,
            max_level: most.map_or(3, |most| most.value),
        })
    }

    fn names<T>(&self, key: &str, entry: &Spanned<T>, names: &Words) -> Result<Vec<Pattern>> {
        let names = self.each(&format!("{key}.names"), names, Pattern::new)?;
        match names.is_empty() {
            true => Err(self.wrong(entry, &format!("{key}.names"), "it names no packages; [\"*\"] stands for all")),
            false => Ok(names.into_iter().map(|name| name.value).collect()),
        }
    }

    fn identity<T>(&self, key: &str, entry: &Spanned<T>, identity: &Word, issuer: &Word) -> Result<Option<Who>> {
        match (identity, issuer) {
            (None, None) => Ok(None),
            (Some(identity), Some(issuer)) if !identity.value.0.is_empty() && !issuer.value.0.is_empty() => {
                Ok(Some(Who::Identity { identity: identity.value.0.clone(), issuer: issuer.value.0.clone() }))
            }
            _ => Err(self.wrong(entry, key, "identity and issuer go together, and neither is empty")),
        }
    }

    fn path_entry(&self, key: &str, entry: &Spanned<PathEntry>) -> Result<PathCeiling> {
        let path = self.one(&format!("{key}.path"), &entry.value.path, |text| self.absolute(text))?;
        let access = self.one(&format!("{key}.access"), &entry.value.access, |text| match text {
            "ro" => Ok(Access::Ro),
            "rw" => Ok(Access::Rw),
            _ => Err(format!("{text:?} is none of ro, rw")),
        })?;
        match (path, access) {
            (Some(path), Some(access)) => Ok(PathCeiling { path: path.value, access: access.value }),
            _ => Err(self.wrong(entry, key, "it has a path and an access, ro or rw")),
        }
    }

    /// An absolute path of the host; `~` and `~/` are the home directory.
    fn absolute(&self, text: &str) -> Result<PathBuf, String> {
        absolute(text, self.home)
    }

    fn word<T: FromStr<Err = String>>(&self, key: &str, written: &Word) -> Result<Option<Sourced<T>>> {
        self.one(key, written, |text| text.parse())
    }

    fn one<T>(
        &self,
        key: &str,
        written: &Word,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Sourced<T>>> {
        let Some(text) = written else { return Ok(None) };
        match read(&text.value.0) {
            Ok(value) => Ok(Some(Sourced { value, source: self.source(text) })),
            Err(why) => Err(self.wrong(text, key, why)),
        }
    }

    /// The values of a list, each with its own line.
    fn each<T>(&self, key: &str, written: &Words, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<Sourced<T>>> {
        let list = written.iter().flat_map(|list| &list.value).enumerate();
        let one = |(at, text): (usize, &Spanned<Text>)| match read(&text.value.0) {
            Ok(value) => Ok(Sourced { value, source: self.source(text) }),
            Err(why) => Err(self.wrong(text, &format!("{key}[{at}]"), why)),
        };
        list.map(one).collect()
    }

    /// A whole list, with the line that it begins in.
    fn list<T>(
        &self,
        key: &str,
        written: &Words,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Sourced<Vec<T>>>> {
        let Some(list) = written else { return Ok(None) };
        let values = self.each(key, written, read)?;
        Ok(Some(Sourced { value: values.into_iter().map(|one| one.value).collect(), source: self.source(list) }))
    }

    fn set<T: Ord>(
        &self,
        key: &str,
        written: &Words,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Sourced<BTreeSet<T>>>> {
        let list = self.list(key, written, read)?;
        Ok(list.map(|list| Sourced { value: list.value.into_iter().collect(), source: list.source }))
    }

    /// The entries of a list of objects.
    fn entries<T, U>(
        &self,
        key: &str,
        written: &Option<Spanned<Vec<Spanned<T>>>>,
        read: impl Fn(&Self, &str, &Spanned<T>) -> Result<U>,
    ) -> Result<Option<Vec<Sourced<U>>>> {
        let Some(list) = written else { return Ok(None) };
        let one = |(at, entry): (usize, &Spanned<T>)| {
            let value = read(self, &format!("{key}[{at}]"), entry)?;
            Ok(Sourced { value, source: self.source(entry) })
        };
        list.value.iter().enumerate().map(one).collect::<Result<_>>().map(Some)
    }

    fn source<T>(&self, value: &Spanned<T>) -> Source {
        match &self.place {
            Place::File(path) => Source::File { path: path.clone(), line: value.referenced.line() },
            Place::Other(source) => source.clone(),
        }
    }

    fn wrong<T>(&self, value: &Spanned<T>, key: &str, why: impl Into<String>) -> PolicyError {
        PolicyError { place: self.source(value), key: format!("policy.{key}"), why: why.into() }
    }
}

/// An absolute path of the host without `..`; `~` and `~/` are the home directory.
fn absolute(text: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    let path = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            let home = home.ok_or("there is no home directory for `~`")?;
            home.join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(text),
    };
    let plain = path.is_absolute() && path.components().all(|part| part != Component::ParentDir);
    match plain && !text.contains('\0') {
        true => Ok(path.components().collect()),
        false => Err(format!("{text:?} is no absolute path without `..`")),
    }
}

fn unit<T>(parse: fn(&str) -> Result<T, UnitError>) -> impl Fn(&str) -> Result<T, String> {
    move |text| parse(text).map_err(|why| why.to_string())
}

/// The absolute path of a program inside.
fn program(text: &str) -> Result<PathBuf, String> {
    absolute(text, None)
}

fn of_destination(why: OutboundError) -> String {
    format!("{why}; {}", why.hint())
}
