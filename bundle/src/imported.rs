//! Grants that other tools keep in files, as grants of a run: a permission profile of ToolHive's, or an entry of Docker's MCP catalog. Who names
//! such a file grants what is in it, as by flags; policy's ceilings hold. A key that is not known is an error: leaving one out could grant
//! more, or less, than its author meant.
//!
//! | of ToolHive's profile | is |
//! |---|---|
//! | `read`, `write` | `--mount PATH`, `HOST:INSIDE`, read-only or not |
//! | `network.outbound.allow_host` with `allow_port`, else 443 | `--allow-net`; `.HOST` is `*.HOST` |
//! | `network.outbound.insecure_allow_all` | `--allow-all-net` |
//!
//! | of an entry of Docker's | is |
//! |---|---|
//! | `allowHosts` | `--allow-net` |
//! | `volumes` | `--mount`, `SRC:DST[:ro]` |
//! | `env` | `--env` |

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::grant::{EnvFlag, MountFlag, Request};
use crate::outbound::Outbound;
use crate::permissions::Access;

/// What a file grants.
#[derive(Debug, Default)]
pub struct Imported {
    mounts: Vec<MountFlag>,
    outbound: Vec<Outbound>,
    any: bool,
    env: Vec<EnvFlag>,
    /// What of the file is not granted, and what the user has to give, a line each.
    pub notes: Vec<String>,
}

/// A permission profile, `pkg/permissions` of ToolHive.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Profile {
    #[serde(rename = "name")]
    _name: Option<String>,
    read: Vec<String>,
    write: Vec<String>,
    network: Network,
    privileged: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Network {
    mode: Option<String>,
    outbound: Out,
    inbound: In,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Out {
    insecure_allow_all: bool,
    allow_transport: Vec<String>,
    allow_host: Vec<String>,
    allow_port: Vec<u16>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct In {
    allow_host: Vec<String>,
}

/// What counts of an entry of a catalog, `pkg/catalog` of Docker's gateway; in `server.yaml` of its registry the first six stand in `run`,
/// `secrets` and `env` in `config`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Entry {
    allow_hosts: Vec<String>,
    volumes: Vec<String>,
    disable_network: bool,
    extra_hosts: Vec<String>,
    #[serde(rename = "user")]
    _user: Option<String>,
    #[serde(rename = "command")]
    _command: Vec<String>,
    env: Vec<Pair>,
    secrets: Vec<SecretOf>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Pair {
    name: String,
    value: Option<Value>,
    #[serde(rename = "example")]
    _example: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct SecretOf {
    #[serde(rename = "name")]
    _name: String,
    env: String,
    #[serde(rename = "example", alias = "description", alias = "required")]
    _about: Option<Value>,
}

/// Keys of an entry that say nothing of grants.
const OF_SHOPS: [&str; 26] = [
    "name",
    "type",
    "image",
    "description",
    "title",
    "icon",
    "readme",
    "toolsUrl",
    "source",
    "upstream",
    "longLived",
    "oauth",
    "tools",
    "config",
    "prefix",
    "metadata",
    "policy",
    "ref",
    "dateAdded",
    "meta",
    "about",
    "prompts",
    "resources",
    "digest",
    "dynamic",
    "parameters",
];

impl Imported {
    /// Reads a file in JSON or YAML. `server` is which entry of a catalog, where that has several.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn read(text: &str, server: Option<&str>) -> Result<Imported, String> {
        let value: Value =
            serde_saphyr::from_str(text).map_err(|why: serde_saphyr::Error| why.without_snippet().to_string())?;
        let Value::Object(mut keys) = value else {
            return Err("it is neither a permission profile nor an entry of a catalog".into());
        };
        if let Some(Value::Object(mut registry)) = keys.remove("registry") {
            let names = || registry.keys().cloned().collect::<Vec<_>>().join(", ");
            let name = match (server, registry.len()) {
                (Some(name), _) => name.to_owned(),
                (None, 1) => names(),
                (None, _) => return Err(format!("it has several servers, and FILE#NAME names one: {}", names())),
            };
            let entry = registry.remove(&name).ok_or_else(|| format!("it has no server {name:?}"))?;
            let Value::Object(entry) = entry else { return Err(format!("registry.{name}: it is no entry")) };
            return Imported::of_docker(entry);
        }
        if server.is_some() {
            return Err("it is no catalog, which alone has names".into());
        }
        match ["read", "write", "network", "privileged"].iter().any(|key| keys.contains_key(*key)) {
            true => Imported::of_toolhive(keys),
            false => Imported::of_docker(keys),
        }
    }

    fn of_toolhive(keys: Map<String, Value>) -> Result<Imported, String> {
        let Profile { read, write, network, privileged, .. } = typed(keys)?;
        if privileged {
            return Err("privileged: no run is".into());
        }
        if let Some(mode) = network.mode.filter(|mode| !["", "none", "bridge"].contains(&mode.as_str())) {
            return Err(format!("network.mode: {mode:?} is not to be had"));
        }
        let mut imported = Imported::default();
        for (paths, access) in [(read, Access::Ro), (write, Access::Rw)] {
            for path in paths {
                imported.mounts.push(mount(&path, access)?);
            }
        }
        let out = network.outbound;
        if let Some(other) = out.allow_transport.iter().find(|transport| !["tcp", "udp"].contains(&transport.as_str()))
        {
            return Err(format!("network.outbound.allow_transport: {other:?} is neither tcp nor udp"));
        }
        imported.any = out.insecure_allow_all;
        let ports: Vec<String> = out.allow_port.iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
        for host in &out.allow_host {
            let host = host.strip_prefix('.').map_or(host.clone(), |suffix| format!("*.{suffix}"));
            imported.host(&format!("{host}{ports}"))?;
        }
        if !ports.is_empty() && out.allow_host.is_empty() && !out.insecure_allow_all {
            imported.notes.push("allow_port: no host is named with it".into());
        }
        if !network.inbound.allow_host.is_empty() {
            imported.notes.push("network.inbound: nothing connects to a server that speaks by stdio".into());
        }
        Ok(imported)
    }

    fn of_docker(mut keys: Map<String, Value>) -> Result<Imported, String> {
        // `server.yaml` has the same in two parts.
        for part in ["run", "config"] {
            let Some(Value::Object(inner)) = keys.get(part).cloned() else { continue };
            keys.remove(part);
            for (key, value) in inner {
                if keys.insert(key.clone(), as_pairs(value)).is_some() {
                    return Err(format!("{part}.{key}: it stands twice"));
                }
            }
        }
        keys.retain(|key, _| !OF_SHOPS.contains(&key.as_str()));
        let entry: Entry = typed(keys)?;
        let mut imported = Imported::default();
        for host in &entry.allow_hosts {
            imported.host(host)?;
        }
        if entry.allow_hosts.is_empty() && !entry.disable_network {
            imported
                .notes
                .push("the entry lets the server connect to all hosts, by naming none: none is granted".into());
        }
        imported.notes.extend(entry.extra_hosts.iter().map(|host| format!("extraHosts: {host} is not granted")));
        for volume in &entry.volumes {
            match volume.contains("{{") {
                true => imported.notes.push(format!("volumes: {volume} is the user's to name: --mount SRC:DST")),
                false => {
                    let (path, access) = match volume.strip_suffix(":ro") {
                        Some(path) => (path, Access::Ro),
                        None => (volume.strip_suffix(":rw").unwrap_or(volume), Access::Rw),
                    };
                    imported.mounts.push(mount(path, access)?);
                }
            }
        }
        for Pair { name, value, .. } in entry.env {
            let value = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            match value.filter(|value| !value.contains("{{")) {
                Some(value) => {
                    imported.env.push(EnvFlag::new(&name, Some(&value)).map_err(|why| format!("env: {why}"))?)
                }
                None => imported.notes.push(format!("env: {name} is the user's to give: --env {name}=VALUE")),
            }
        }
        let secret = |secret: SecretOf| format!("secrets: {0} is the user's to give: --secret {0}", secret.env);
        imported.notes.extend(entry.secrets.into_iter().map(secret));
        Ok(imported)
    }

    fn host(&mut self, text: &str) -> Result<(), String> {
        self.outbound.push(text.parse().map_err(|why: crate::OutboundError| format!("{text}: {why}"))?);
        Ok(())
    }

    /// Adds it to what the flags say; of a variable those beat it.
    pub fn add_to(self, request: &mut Request) {
        request.mounts.extend(self.mounts);
        request.network.outbound.extend(self.outbound);
        request.network.any |= self.any;
        let given: Vec<String> = request.env.iter().map(|flag| flag.name.clone()).collect();
        request.env.extend(self.env.into_iter().filter(|flag| !given.contains(&flag.name)));
    }
}

/// `env: {NAME: VALUE}` as a list of pairs; everything else as it is.
fn as_pairs(value: Value) -> Value {
    match value {
        Value::Object(pairs) => {
            pairs.into_iter().map(|(name, value)| serde_json::json!({"name": name, "value": value})).collect()
        }
        other => other,
    }
}

fn typed<T: DeserializeOwned>(keys: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(keys)).map_err(|why| why.to_string())
}

/// `PATH` or `HOST:INSIDE`, absolute.
fn mount(text: &str, access: Access) -> Result<MountFlag, String> {
    let wrong = || format!("{text:?} is no absolute path, and no HOST:INSIDE of two");
    if !text.starts_with('/') || text.contains("://") {
        return Err(wrong());
    }
    let mount: MountFlag = text.parse().map_err(|why: crate::FlagError| format!("{text:?}: {why}"))?;
    Ok(MountFlag { access, flag: "--permissions", ..mount })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Request, Vec<String>), String> {
        let imported = Imported::read(text, None)?;
        let (notes, mut request) = (imported.notes.clone(), Request::default());
        imported.add_to(&mut request);
        Ok((request, notes))
    }

    #[test]
    fn a_profile_of_toolhives() {
        let (request, notes) = read(
            r#"{"name": "x", "read": ["/etc/hosts"], "write": ["/data:/inside"], "network": {"outbound": {
                "allow_transport": ["tcp"], "allow_host": ["api.a.test", ".b.test"], "allow_port": [443, 8443]}, "inbound": {"allow_host": ["x"]}}}"#,
        )
        .unwrap();
        let mounts: Vec<_> =
            request.mounts.iter().map(|one| (one.source.to_str().unwrap(), one.target.clone(), one.access)).collect();
        assert_eq!(mounts, [("/etc/hosts", None, Access::Ro), ("/data", Some("/inside".into()), Access::Rw)]);
        let hosts: Vec<String> = request.network.outbound.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["api.a.test:443,8443", "*.b.test:443,8443"]);
        assert_eq!(notes.len(), 1);
        assert!(read(r#"{"network": {"outbound": {"insecure_allow_all": true}}}"#).unwrap().0.network.any);
    }

    #[test]
    fn an_entry_of_dockers() {
        let entry = "image: mcp/x\ntitle: X\nallowHosts: [api.a.test:443]\nvolumes: ['{{x.paths|volume|into}}', '/srv:/srv:ro']\n\
            env: [{name: MODE, value: quiet}, {name: URL, value: '{{x.url}}'}]\nsecrets: [{name: x.token, env: TOKEN}]\n";
        for text in [entry.to_owned(), format!("registry:\n  x:\n    {}", entry.trim_end().replace('\n', "\n    "))] {
            let (request, notes) = read(&text).unwrap();
            assert_eq!((request.mounts.len(), request.network.outbound.len(), request.env.len()), (1, 1, 1), "{text}");
            assert_eq!(request.mounts[0].access, Access::Ro);
            assert_eq!(notes.len(), 3, "{notes:?}");
        }
        let (request, _) = read("name: x\nrun: {allowHosts: ['a.test:80'], env: {A: b}}\nconfig: {secrets: [{name: t, env: T, example: e}]}\n").unwrap();
        assert_eq!((request.network.outbound[0].to_string(), &*request.env[0].name), ("a.test:80".into(), "A"));
    }

    #[test]
    fn what_is_refused() {
        for (text, why) in [
            (r#"{"read": [], "gpu": true}"#, "gpu"),
            (r#"{"network": {"outbound": {"allow_hosts": []}}}"#, "allow_hosts"),
            (r#"{"privileged": true}"#, "privileged"),
            (r#"{"read": ["data"]}"#, "absolute"),
            (r#"{"write": ["volume://x:/y"]}"#, "absolute"),
            (r#"{"network": {"mode": "host"}}"#, "network.mode"),
            (r#"{"network": {"outbound": {"allow_host": ["*"]}}}"#, "*"),
            ("image: x\ncapAdd: [SYS_ADMIN]\n", "capAdd"),
            ("registry: {a: {}, b: {}}", "several servers"),
            ("[]", "neither"),
            ("a: [", ""),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Imported::read("registry: {a: {}, b: {}}", Some("c")).unwrap_err().contains("no server"));
    }
}
