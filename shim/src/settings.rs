//! Configuration: flags beat the environment, which beats the user's file, which beats the system's.
//!
//! What is written there and not in force yet stops the run: a policy that is read and ignored is worse than none.

#[cfg_attr(windows, path = "settings/windows.rs")]
#[cfg_attr(unix, path = "settings/unix.rs")]
mod machine;

use std::collections::BTreeMap;
use std::env;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bundle::policy::{InstallScripts, Policy, Section, Sourced};
use bundle::{Limits, parse_count, parse_duration, parse_millicores, parse_size};
use clap::ValueEnum;
use distribution::system::{DirBuilderExt as _, OpenOptionsExt as _};
use distribution::{
    Access, Allowance, DockerFile, HostAccess, Index, Making, Mode, Name, Network, Packages, Reference, Secret,
    registry_host,
};
use runtime::Tier;
use runtime::egress::Proxies;
use runtime::journal::{self, Journal, JournalError};
use serde::{Deserialize, Serialize};

use crate::cli;
use crate::exit::{self, Failure};

/// sigstore's trust root, in the organisation's directory or in the user's own.
const TRUST_ROOT: &str = "trusted_root.json";
/// Clients give a server 10 to 60 s to answer and show no progress meanwhile: an answer that says what is going on comes well before.
const PULL_PATIENCE: Duration = Duration::from_secs(8);
const DEFAULT_REGISTRY: &str = "https://registry.mcp-hub.info";

/// What is configured.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file that `--config` names.
    pub file: Option<PathBuf>,
    /// Registry of names without one.
    pub registry: String,
    /// The registry of servers that `mcp:` names are looked up in, `mcp_registry_url`.
    pub mcp_registry: Option<String>,
    /// How registries are reached, and where credentials for them lie.
    pub access: Access,
    /// `MCP_REGISTRY_TOKEN`, for `registry` alone.
    pub registry_token: Option<Secret>,
    /// The store.
    pub cache: PathBuf,
    /// What the store may hold.
    pub allowance: Allowance,
    /// smcp's own state: the heads of audit logs.
    pub state: PathBuf,
    /// The audit log.
    pub audit_log: PathBuf,
    /// The size at which it is rotated, bytes.
    pub audit_max_size: u64,
    /// The directory of the user's own configuration.
    pub home: PathBuf,
    /// `max_*`: the most that a manifest gets, and what a run has where nobody says.
    pub max: Limits,
    /// What the files in `/etc/smcp` say of policy, and the registry that these configure.
    organisation: Policy,
    /// What the user's file and environment say of it.
    own: Policy,
    /// How long a tag that was looked up is good.
    pub refresh: Duration,
    /// How long a client waits for a package that is being fetched.
    pub pull_patience: Duration,
    /// Packages of npm whose install scripts are run, `allow_scripts`.
    pub allow_scripts: Vec<String>,
    /// How bytes pass between client and server, `relay`.
    pub relay: cli::Relay,
    /// Whether each call of a tool gets a line of the audit log, `audit_calls`.
    pub audit_calls: bool,
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub log_level: String,
}

impl Settings {
    /// The proxy that servers' connections leave through: the one for https, where there is none the one for http.
    ///
    /// # Errors
    /// Of code 119, where its URL cannot be read.
    pub fn proxies(&self) -> Result<Proxies, Failure> {
        let of_registries = &self.access.proxies;
        let url = of_registries.https.as_ref().or(of_registries.http.as_ref()).map(Secret::expose);
        Proxies::read(url, None, Some(&of_registries.direct)).map_err(|why| {
            let hint = "it is that of HTTPS_PROXY, ALL_PROXY, HTTP_PROXY or proxy.https: [http://|socks5://][USER:PASSWORD@]HOST[:PORT]";
            Failure::new(exit::CONFIGURATION, format!("the host's proxy, which servers connect through: {why}")).hint(hint)
        })
    }

    /// Settings before any file is read: the audit log and log level of a run that a broken configuration stops.
    pub fn defaults() -> Settings {
        let home = env::home_dir().filter(|home| home.is_absolute()).unwrap_or_else(|| PathBuf::from("/"));
        let base = |variable: &str, otherwise: &str| {
            env::var_os(variable)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
                .unwrap_or_else(|| home.join(otherwise))
        };
        let own = home.join(".smcp");
        let mut access = Access::default();
        access.credentials.own = Some(own.join("credentials.json"));
        access.credentials.docker = docker_files(&home);
        access.convert = Some(|delivered, store| bundle::from_hub(delivered, store, &crate::unpack::in_a_process));
        access.unmake = Some(bundle::to_hub);
        Settings {
            file: None,
            registry: DEFAULT_REGISTRY.into(),
            mcp_registry: None,
            access,
            registry_token: None,
            cache: base("XDG_CACHE_HOME", ".cache").join("smcp"),
            allowance: Allowance::default(),
            state: base("XDG_STATE_HOME", ".local/state").join("smcp"),
            audit_log: own.join("audit.log"),
            audit_max_size: journal::MAX_SIZE,
            home: own,
            max: Limits::default(),
            organisation: Policy::default(),
            own: Policy::default(),
            refresh: Duration::from_secs(24 * 3600),
            pull_patience: PULL_PATIENCE,
            allow_scripts: Vec::new(),
            relay: cli::Relay::Auto,
            audit_calls: false,
            log_level: "warn".into(),
        }
    }

    /// Reads the files and the environment. `named` is the file that `--config` names.
    ///
    /// # Errors
    /// Of code 119, with file, line and key: a file that does not parse, an unknown key or value, and anything that this
    /// version would not enforce.
    pub fn read(named: Option<&Path>) -> Result<Settings, Failure> {
        Settings::read_with(&machine::organisation(), named)
    }

    fn read_with(organisation: &Path, named: Option<&Path>) -> Result<Settings, Failure> {
        let mut settings = Settings { file: named.map(Path::to_owned), ..Settings::defaults() };
        settings.read_organisation(organisation)?;
        if settings.organisation != Policy::default() {
            settings.organisation = std::mem::take(&mut settings.organisation).of_registry(&settings.registry_host());
        }
        let user_file = settings.home.join("config.yaml");
        let named = named.map(Path::to_owned).or_else(|| env::var_os("MCP_CONFIG").map(PathBuf::from));
        let must_exist = named.is_some();
        let home = env::home_dir();
        let own = settings.read_file(&named.unwrap_or(user_file), must_exist, home.as_deref())?;
        settings.own = settings.own.together(own);
        settings.read_proxies();
        settings.read_environment()?;
        Ok(settings)
    }

    /// The policy in force, with that of the flags: of the organisation's and the user's what is stricter.
    pub fn policy(&self, flags: Policy) -> Policy {
        self.organisation.clone().stricter(self.own.clone().together(flags).of_registry(&self.registry_host()))
    }

    /// The host of the configured registry; where it is no address, of none.
    fn registry_host(&self) -> String {
        registry_host(&self.registry, &self.access).unwrap_or_default()
    }

    /// The file of the trust root that certificates are verified by: the organisation's where there is one, and where the organisation
    /// names identities no other; else the user's.
    pub fn trust_root(&self) -> PathBuf {
        let organisation = machine::organisation().join(TRUST_ROOT);
        match organisation.symlink_metadata() {
            Err(why) if why.kind() == ErrorKind::NotFound && !self.organisation.names_identities() => {
                self.home.join(TRUST_ROOT)
            }
            _ => organisation,
        }
    }

    /// The least tier of a cage that is acceptable, `policy.min_tier`.
    pub fn least_tier(&self) -> Tier {
        // What nobody says stands behind what either of them says, who may accept less: 0, elsewhere than on Linux.
        let said = [&self.organisation, &self.own].map(|policy| policy.min_tier.as_ref().map(|tier| tier.value));
        let least = said.into_iter().max().flatten().unwrap_or_else(|| Policy::default().min_tier().value);
        Tier::try_from(u32::from(least)).unwrap_or(Tier::Three)
    }

    /// Reads the organisation's files. Where there is no such directory that is all that is asked.
    fn read_organisation(&mut self, directory: &Path) -> Result<(), Failure> {
        match directory.metadata() {
            // A link that leads nowhere is not absent.
            Err(why) if why.kind() == ErrorKind::NotFound && directory.symlink_metadata().is_err() => return Ok(()),
            Err(why) => return Err(unreadable(directory, &why)),
            Ok(_) => {}
        }
        // `HOME` is the user's word, and `~` in these files is not about that.
        let home = machine::home_of_account()?;
        let mut policies = vec![self.read_file(&directory.join("config.yaml"), false, home.as_deref())?];
        for path in policy_files(directory)? {
            policies.extend(read_policy(&path, home.as_deref())?);
        }
        self.organisation = policies.into_iter().fold(Policy::default(), Policy::together);
        Ok(())
    }

    /// Reads a configuration file; gives its policy. `home` is what `~` stands for in that.
    fn read_file(&mut self, path: &Path, must_exist: bool, home: Option<&Path>) -> Result<Policy, Failure> {
        let fail = |why: &dyn std::fmt::Display| unreadable(path, why);
        let Some(file) = read_yaml::<File>(path)? else {
            return match must_exist && !path.exists() {
                false => Ok(Policy::default()),
                true => Err(fail(&"no such file")
                    .hint("--config and MCP_CONFIG name a file that is there; without them there may be none")),
            };
        };
        if file.audit_enabled == Some(false) {
            return Err(fail(&"audit_enabled: false: every run is recorded, and nothing can switch that off"));
        }
        for (key, value) in file.values() {
            self.set(key, &value).map_err(|why| fail(&format!("{key}: {why}")))?;
        }
        if !file.allow_scripts.is_empty() {
            self.allow_scripts = file.allow_scripts.clone();
        }
        for (name, registry) in file.registries {
            let host = host(&name).map_err(|why| fail(&format!("registries: {why}")))?;
            let access = registry.access().map_err(|why| fail(&format!("registries: {name}: {why}")))?;
            self.access.hosts.insert(host, access);
        }
        let policy = file.policy.map(|section| section.read(path, home)).transpose();
        policy.map(Option::unwrap_or_default).map_err(wrong_policy)
    }

    /// The variables that other programs have for proxies, the ones in capitals first.
    fn read_proxies(&mut self) {
        let first = |names: &[&str]| {
            let both = names.iter().flat_map(|name| [(*name).to_owned(), name.to_ascii_lowercase()]);
            both.into_iter().find_map(|name| env::var(name).ok())
        };
        let proxies = &mut self.access.proxies;
        proxies.https = first(&["HTTPS_PROXY", "ALL_PROXY"]).map(Secret::new).or(proxies.https.take());
        proxies.http = first(&["HTTP_PROXY", "ALL_PROXY"]).map(Secret::new).or(proxies.http.take());
        proxies.direct = first(&["NO_PROXY"]).unwrap_or(std::mem::take(&mut proxies.direct));
    }

    fn read_environment(&mut self) -> Result<(), Failure> {
        for (name, value) in env::vars_os() {
            let Some(key) = name.to_str().and_then(|name| name.strip_prefix("MCP_")) else { continue };
            let key = key.to_ascii_lowercase();
            let fail = |why: &str| {
                Failure::new(exit::CONFIGURATION, format!("environment variable {}: {why}", name.display()))
            };
            if KEYS.contains(&key.as_str()) {
                let value = value.to_str().ok_or_else(|| fail("it is not UTF-8"))?;
                self.set(&key, value).map_err(|why| fail(&why))?;
            } else if key == "registry_token" {
                self.registry_token = Some(Secret::new(value.to_str().ok_or_else(|| fail("it is not UTF-8"))?));
            } else if key == "audit_enabled" {
                return Err(fail("every run is recorded, and nothing can switch that off"));
            } else if let Some(policy) = key.strip_prefix("policy_") {
                let (variable, value) = (name.to_str().unwrap_or_default(), value.to_str());
                let value = value.ok_or_else(|| fail("it is not UTF-8"))?;
                let read = Policy::of_variable(variable, policy, value, env::home_dir().as_deref());
                let stated = read.ok_or_else(|| {
                    fail("there is no such key of policy, or it takes more structure than a variable has")
                        .hint("docs/configuration.md lists the keys; signatures, certifiers and paths stand in files")
                })?;
                let stated = stated.map_err(|why| fail(&format!("{}: {}", why.key, why.why)))?;
                self.own = std::mem::take(&mut self.own).together(stated);
            } else if SECTIONS.iter().any(|section| key.starts_with(section)) {
                return Err(fail("this version of smcp has no such setting, and would not enforce it"));
            }
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let unit = |error: bundle::UnitError| error.to_string();
        match key {
            "registry_url" => self.registry = value.into(),
            "mcp_registry_url" => {
                let index = Index::parse(value)?;
                if index.login().is_some() {
                    return Err("a login does not belong in a url: registries has token_env".into());
                }
                self.mcp_registry = Some(index.url().into());
            }
            "proxy_https" => self.access.proxies.https = Some(Secret::new(value)),
            "proxy_no_proxy" => self.access.proxies.direct = value.into(),
            "cache_dir" => self.cache = path(value)?,
            "cache_max_size" => self.allowance.size = Some(parse_size(value).map_err(unit)?),
            "cache_max_age" => self.allowance.age = Some(parse_duration(value).map_err(unit)?),
            "audit_log_file" => self.audit_log = path(value)?,
            "audit_max_size" => {
                let size = parse_size(value).map_err(unit)?;
                // Each file costs a name and a flush of its directory.
                self.audit_max_size =
                    if size >= LEAST_LOG { size } else { return Err(format!("{value:?} is less than 4K")) };
            }
            "audit_calls" => {
                self.audit_calls = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
            }
            "log_level" => {
                if !LEVELS.contains(&value) {
                    return Err(format!("{value:?} is none of {}", LEVELS.join(", ")));
                }
                self.log_level = value.into();
            }
            "relay" => {
                self.relay = cli::Relay::from_str(value, false)
                    .map_err(|_| format!("{value:?} is none of auto, filter, direct"))?;
            }
            "pull_patience" => self.pull_patience = parse_duration(value).map_err(unit)?,
            "refresh" => self.refresh = parse_duration(value).map_err(unit)?,
            "timeout" => self.max.timeout = parse_duration(value).map_err(unit)?,
            "max_cpu_time" => self.max.cpu_time = parse_duration(value).map_err(unit)?,
            "max_memory" => self.max.memory = parse_size(value).map_err(unit)?,
            "max_cpu" => self.max.cpu = parse_millicores(value).map_err(unit)?,
            "max_pids" => self.max.pids = parse_count(value).map_err(unit)?,
            "max_fds" => self.max.fds = parse_count(value).map_err(unit)?,
            _ => unreachable!("{key} is not in KEYS"),
        }
        Ok(())
    }

    /// Where packages come from. The token of the configured registry goes to no other.
    pub fn network(&self, registry: Option<&str>, mode: Mode) -> Network {
        let mut access = self.access.clone();
        // Where it is no address, whoever looks a name up says so.
        if let Some(token) = &self.registry_token
            && let Ok(host) = registry_host(&self.registry, &access)
        {
            let mut of_host = access.host(&host).cloned().unwrap_or_default();
            of_host.token = Some(token.clone());
            access.hosts.insert(host, of_host);
        }
        let home = env::home_dir().unwrap_or_else(|| PathBuf::from("/"));
        let servers = self.mcp_registry.clone();
        let scripts = sorted(self.allow_scripts.iter().cloned());
        let making = Making { packages: Arc::new(Packages::of(&home)), servers, scripts, ..Making::default() };
        Network::new(registry.unwrap_or(&self.registry), mode).through(Arc::new(access)).making(making)
    }

    /// The same, for packages of sources that are made as the flags say.
    pub fn network_for(&self, registry: Option<&str>, mode: Mode, made: &cli::Making) -> Network {
        let network = self.network(registry, mode);
        let (bin, runtime) = (made.bin.clone(), cli::runtime(made.runtime));
        let scripts = sorted(made.allow_scripts.iter().chain(&network.making.scripts).cloned());
        let kind = made.package_type.map(|kind| kind.word().to_owned());
        let making = Making { kind, bin, runtime, scripts, ..network.making.clone() };
        network.making(making)
    }

    /// Policy lets install scripts run, where any is to.
    ///
    /// # Errors
    /// Of code 121, where it does not.
    pub fn let_scripts(&self, making: &Making) -> Result<(), Failure> {
        if making.scripts.is_empty() {
            return Ok(());
        }
        let Sourced { value, source } = self.policy(Policy::default()).install_scripts();
        if value == InstallScripts::Allow {
            return Ok(());
        }
        let names = making.scripts.join(", ");
        Err(Failure::new(exit::DENIED, format!("install scripts of {names}: install_scripts is {value} ({source})"))
            .hint("leave --allow-scripts out, and allow_scripts in the configuration; many packages work without their scripts"))
    }

    /// Opens the audit log.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn journal(&self) -> Result<Journal, JournalError> {
        Journal::open(&self.audit_log, &self.state, self.audit_max_size)
    }

    /// Where cages without namespaces have their private directories.
    pub fn private(&self) -> PathBuf {
        self.cache.join("private")
    }

    /// What was seen of attestations: the newest of each signer, which no older one can take the place of.
    pub fn attested(&self) -> PathBuf {
        self.state.join("attested")
    }

    /// What belongs to smcp and can never be granted.
    pub fn protected(&self) -> Vec<PathBuf> {
        let log = self.audit_log.parent().unwrap_or(&self.audit_log);
        [&self.cache, &self.state, &self.home, &self.audit_log].into_iter().cloned().chain([log.to_owned()]).collect()
    }
}

/// The least size at which the audit log is rotated, bytes.
const LEAST_LOG: u64 = 4096;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Keys with a value, as `set` takes them.
const KEYS: [&str; 20] = [
    "registry_url",
    "mcp_registry_url",
    "proxy_https",
    "proxy_no_proxy",
    "cache_dir",
    "cache_max_size",
    "cache_max_age",
    "audit_log_file",
    "audit_max_size",
    "audit_calls",
    "log_level",
    "refresh",
    "pull_patience",
    "relay",
    "timeout",
    "max_cpu_time",
    "max_memory",
    "max_cpu",
    "max_pids",
    "max_fds",
];

/// Whether a variable in capitals decides what smcp does; how much it says does not count.
pub fn is_setting(name: &str) -> bool {
    name.strip_prefix("MCP_").map(str::to_ascii_lowercase).is_some_and(|key| {
        let starts = |start: &&str| key.starts_with(start);
        (KEYS.contains(&key.as_str()) && key != "log_level")
            || key == "config"
            || SECTIONS.iter().chain(&["policy_"]).any(starts)
    })
}

/// Beginnings of variables that can only be meant for smcp: a misspelt one must not be ignored.
const SECTIONS: [&str; 8] = ["registries_", "proxy_", "max_", "audit_", "registry_", "cache_", "pull_", "mcp_"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    registry_url: Option<String>,
    mcp_registry_url: Option<String>,
    cache_dir: Option<String>,
    cache_max_size: Option<String>,
    cache_max_age: Option<String>,
    audit_log_file: Option<String>,
    audit_max_size: Option<Scalar>,
    audit_calls: Option<Scalar>,
    log_level: Option<String>,
    refresh: Option<Scalar>,
    pull_patience: Option<Scalar>,
    timeout: Option<Scalar>,
    max_cpu_time: Option<Scalar>,
    max_memory: Option<Scalar>,
    max_cpu: Option<Scalar>,
    max_pids: Option<Scalar>,
    max_fds: Option<Scalar>,
    audit_enabled: Option<bool>,
    policy: Option<Section>,
    #[serde(default)]
    registries: BTreeMap<String, Registry>,
    proxy: Option<Proxy>,
    relay: Option<String>,
    #[serde(default)]
    allow_scripts: Vec<String>,
}

/// What is configured for one registry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Registry {
    #[serde(default)]
    mirrors: Vec<String>,
    ca_file: Option<String>,
    insecure: Option<bool>,
    token_env: Option<String>,
    realm: Option<String>,
}

impl Registry {
    fn access(self) -> Result<HostAccess, String> {
        for mirror in &self.mirrors {
            host(mirror.split('/').next().unwrap_or_default()).map_err(|why| format!("mirrors: {why}"))?;
        }
        let token = self.token_env.and_then(|name| env::var(name).ok()).filter(|token| !token.is_empty());
        Ok(HostAccess {
            mirrors: self.mirrors,
            ca_file: self.ca_file.map(|value| path(&value)).transpose().map_err(|why| format!("ca_file: {why}"))?,
            insecure: self.insecure,
            token: token.map(Secret::new),
            realm: self.realm.map(|value| host(&value)).transpose().map_err(|why| format!("realm: {why}"))?,
        })
    }
}

/// For clients that pass no environment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Proxy {
    https: Option<String>,
    no_proxy: Option<String>,
}

/// `policy.yaml` and the files of `policy.d`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    policy: Option<Section>,
}

/// A number, a word or a text: `1000` and `"1000"` mean the same.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Scalar {
    Number(u64),
    Truth(bool),
    Text(String),
}

impl File {
    fn values(&self) -> Vec<(&'static str, String)> {
        let text = |value: &Option<String>| value.clone();
        let scalar = |value: &Option<Scalar>| {
            value.as_ref().map(|value| match value {
                Scalar::Number(number) => number.to_string(),
                Scalar::Truth(truth) => truth.to_string(),
                Scalar::Text(text) => text.clone(),
            })
        };
        [
            ("registry_url", text(&self.registry_url)),
            ("mcp_registry_url", text(&self.mcp_registry_url)),
            ("proxy_https", self.proxy.as_ref().and_then(|proxy| proxy.https.clone())),
            ("proxy_no_proxy", self.proxy.as_ref().and_then(|proxy| proxy.no_proxy.clone())),
            ("cache_dir", text(&self.cache_dir)),
            ("cache_max_size", text(&self.cache_max_size)),
            ("cache_max_age", text(&self.cache_max_age)),
            ("audit_log_file", text(&self.audit_log_file)),
            ("audit_max_size", scalar(&self.audit_max_size)),
            ("audit_calls", scalar(&self.audit_calls)),
            ("log_level", text(&self.log_level)),
            ("refresh", scalar(&self.refresh)),
            ("pull_patience", scalar(&self.pull_patience)),
            ("relay", text(&self.relay)),
            ("timeout", scalar(&self.timeout)),
            ("max_cpu_time", scalar(&self.max_cpu_time)),
            ("max_memory", scalar(&self.max_memory)),
            ("max_cpu", scalar(&self.max_cpu)),
            ("max_pids", scalar(&self.max_pids)),
            ("max_fds", scalar(&self.max_fds)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
    }
}

/// A text without what stands before an `@` in any of its words: a proxy's URL may hold a password.
fn without_logins(text: &str) -> String {
    let word = |word: &str| match word.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => word.to_owned(),
    };
    text.split_inclusive(|c: char| c.is_whitespace() || c == '"').map(word).collect()
}

/// `policy.yaml`, then the files of `policy.d` by their names.
fn policy_files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let parts = directory.join("policy.d");
    let entries = match std::fs::read_dir(&parts) {
        Ok(entries) => entries.collect::<Result<Vec<_>, _>>(),
        Err(why) if why.kind() == ErrorKind::NotFound && parts.symlink_metadata().is_err() => Ok(Vec::new()),
        Err(why) => Err(why),
    };
    let entries = entries.map_err(|why| unreadable(&parts, &why))?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    if let Some(path) = files.iter().find(|path| is_meant_as_policy(path)) {
        return Err(unreadable(path, &"files of policy.d end in .yaml").hint("rename it, or remove it"));
    }
    files.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    files.insert(0, directory.join("policy.yaml"));
    Ok(files)
}

/// Whether a file is not read by its name, and whoever put it there thinks that it is.
fn is_meant_as_policy(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_read = path.extension().is_some_and(|end| end == "yaml");
    !is_read && [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end))
}

fn read_policy(path: &Path, home: Option<&Path>) -> Result<Option<Policy>, Failure> {
    let section = read_yaml::<PolicyFile>(path)?.and_then(|file| file.policy);
    section.map(|section| section.read(path, home)).transpose().map_err(wrong_policy)
}

/// Reads a file; none where it is absent or holds nothing but comments. A link that leads nowhere is not absent.
fn read_yaml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    let fail = |why: &dyn std::fmt::Display| unreadable(path, why);
    let text = match read_small(path).and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other)) {
        Ok(text) => text,
        Err(why) if why.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => return Ok(None),
        Err(why) => return Err(fail(&why)),
    };
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(None);
    }
    let read = serde_saphyr::from_str(&text);
    read.map(Some).map_err(|why: serde_saphyr::Error| fail(&without_logins(&why.without_snippet().to_string())))
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(exit::CONFIGURATION, format!("configuration {}: {why}", path.display()))
}

fn wrong_policy(why: bundle::policy::PolicyError) -> Failure {
    Failure::new(exit::CONFIGURATION, format!("configuration {why}"))
}

/// A regular file of at most 1 MiB: a pipe would hold the start up, a device would never end.
///
/// # Errors
/// The system's, and where the file is of another kind or larger.
pub fn read_small(path: &Path) -> std::io::Result<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    if about.len() > MOST {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    std::fs::read(path)
}

/// Writes what was accepted as a file with this mode, in one step, with its directory. It is no loss where the machine stops in the
/// middle: the old one or none is there.
///
/// # Errors
/// The system's.
pub fn write_in_one_step(path: &Path, value: &impl Serialize, mode: u32) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let scratch = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&scratch)?;
    file.write_all(format!("{:#}\n", serde_json::to_value(value)?).as_bytes())?;
    std::fs::rename(&scratch, path)
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// Where docker and podman keep credentials.
fn docker_files(home: &Path) -> Vec<DockerFile> {
    if let Some(path) = env::var_os("REGISTRY_AUTH_FILE") {
        return vec![DockerFile { path: path.into(), named: true }];
    }
    let base = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    [
        base("XDG_RUNTIME_DIR").map(|dir| dir.join("containers/auth.json")),
        Some(base("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")).join("containers/auth.json")),
        Some(base("DOCKER_CONFIG").unwrap_or_else(|| home.join(".docker")).join("config.json")),
    ]
    .into_iter()
    .flatten()
    .map(|path| DockerFile { path, named: false })
    .collect()
}

/// `HOST[:PORT]` in lower case, as the grammar of references has it.
fn host(text: &str) -> Result<String, String> {
    match format!("{text}/a/b").parse() {
        Ok(Reference::Registry(Name { registry: Some(host), repository, .. })) if repository == "a/b" => Ok(host),
        _ => Err(format!("{text:?} is not HOST[:PORT]")),
    }
}

/// An absolute path; `~/` is the home directory.
fn path(value: &str) -> Result<PathBuf, String> {
    let path = match value.strip_prefix("~/") {
        Some(rest) => env::home_dir().ok_or("there is no home directory for ~")?.join(rest),
        None => PathBuf::from(value),
    };
    if path.is_absolute() { Ok(path) } else { Err(format!("{value:?} is not absolute")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.yaml");
        std::fs::write(&file, text).unwrap();
        let mut settings = Settings::defaults();
        settings.own = settings.read_file(&file, true, None)?;
        Ok(settings)
    }

    #[test]
    fn values_are_read_in_their_units() {
        let settings =
            read("max_memory: 1G\nmax_cpu: 500\nmax_pids: \"64\"\ntimeout: 1h30m\naudit_log_file: /x/audit.log\n")
                .unwrap();
        assert_eq!((settings.max.memory, settings.max.cpu, settings.max.pids), (1 << 30, 500, 64));
        assert_eq!(settings.max.timeout, Duration::from_secs(5400));
        assert_eq!(settings.audit_log, Path::new("/x/audit.log"));
    }

    /// Nobody's word is not weaker than anybody's, and of two words the stricter holds.
    #[test]
    fn the_least_tier_is_what_is_said_and_else_the_default() {
        let policy = |tier: Option<u8>| Policy {
            min_tier: tier.map(|value| Sourced { value, ..Policy::default().min_tier() }),
            ..Policy::default()
        };
        for (organisation, own, least) in [
            (None, None, Tier::One),
            (None, Some(0), Tier::Zero),
            (Some(0), None, Tier::Zero),
            (Some(1), Some(0), Tier::One),
            (Some(0), Some(2), Tier::Two),
            (Some(3), Some(2), Tier::Three),
        ] {
            let mut settings = Settings::defaults();
            (settings.organisation, settings.own) = (policy(organisation), policy(own));
            assert_eq!(settings.least_tier(), least, "{organisation:?} {own:?}");
        }
    }

    #[test]
    fn what_is_wrong_stops_the_run() {
        let cases = [
            ("max_memory: 512MB", "max_memory"),
            ("max_memroy: 1G", "max_memroy"),
            ("audit_enabled: false", "audit_enabled"),
            ("policy:\n  min_tier: 1\n  min_cert_level: 4", "config.yaml:3: policy.min_cert_level"),
            ("policy:\n  min_tier: 4", "policy.min_tier"),
            ("policy:\n  min_cert_levle: 2", "min_cert_levle"),
            ("a: [", "config.yaml"),
            ("registries:\n  https://a.example: {}", "is not HOST[:PORT]"),
            ("registries:\n  a.example: {ca_flie: /x}", "ca_flie"),
            ("registries:\n  a.example: {mirrors: [\"https://m\"]}", "mirrors"),
            ("proxy:\n  http: http://x", "http"),
            ("relay: automatic", "relay: \"automatic\" is none of auto, filter, direct"),
            ("cache_dir: relative", "cache_dir"),
            ("audit_max_size: 4000", "audit_max_size"),
            ("audit_calls: 1", "audit_calls"),
            ("policy: {ceilings: {network: {allow: [], alow: []}}}", "alow"),
            ("policy: {ceilings: {network: {allow: [a.test, '*']}}}", "policy.ceilings.network.allow[1]: `*`"),
            ("policy: {ceilings: {network: {deny: ['a.test:http']}}}", "`http` is no port"),
        ];
        for (text, named) in cases {
            let failure = read(text).unwrap_err();
            assert_eq!(failure.code, exit::CONFIGURATION);
            assert!(failure.message.contains(named), "{text:?}: {}", failure.message);
        }
    }

    #[test]
    fn no_error_shows_the_password_of_a_proxy() {
        for text in [
            "proxy: URL",
            "proxy: {htps: URL}",
            "proxy: [URL]",
            "proxy: {https: [URL]}",
            "proxy: {https: URL",
            "a: URL",
        ] {
            for url in ["\"http://user:hunter2@proxy.test:1\"", "'user:hunter2@proxy.test:1'"] {
                let message = read(&text.replace("URL", url)).unwrap_err().message;
                assert!(!message.contains("hunter2"), "{message}");
            }
        }
    }

    #[test]
    fn a5_the_token_goes_to_the_configured_registry_alone() {
        let mut settings =
            read("registry_url: https://Hub.example\nregistries:\n  hub.example: {realm: id.example}\n  b.example: {}")
                .unwrap();
        settings.registry_token = Some(Secret::new("t"));
        for registry in [None, Some("https://c.example")] {
            let net = settings.network(registry, Mode::Offline);
            let token = |host: &str| net.access.host(host).and_then(|host| host.token.clone());
            assert_eq!(token("hub.example"), Some(Secret::new("t")));
            assert_eq!(net.access.host("hub.example").unwrap().realm.as_deref(), Some("id.example"));
            assert_eq!((token("b.example"), token("c.example")), (None, None));
        }
    }

    #[test]
    fn an_empty_file_configures_nothing() {
        assert_eq!(read("# nothing\n\n").unwrap().registry, DEFAULT_REGISTRY);
    }
}
