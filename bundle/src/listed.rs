//! What a registry of servers says of one version of a server: the `server.json` of the official MCP registry (schema of 2025-12-11, API
//! v0.1). It names a package of npm, PyPI, an OCI registry or a bundle, and what that one is started with. All of it is the publisher's
//! word: it can name a package, ask for values, and state texts that the server is given; it grants nothing.

mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;

use distribution::{DOCKER, Digest, Download, MCP_REGISTRY, NPMJS, Name, PYPI, PackageName, Packages, Reference};
use serde::Deserialize;
use serde_json::Value;

pub use words::Given;

use crate::grant::EnvFlag;
use crate::permissions::Access;

/// The largest answer that is read, in bytes.
pub const MAX_LISTED: usize = 1 << 20;
/// Its media type in the store.
pub const LISTED: &str = "application/vnd.smcp.listed.v1+json";
/// The most values that a package may state and ask for.
const MOST_INPUTS: usize = 256;
/// How JSON writes a NUL.
const NUL: &[u8] = b"\\u0000";
/// Variables by which loaders and interpreters load other code, or trust others. The package is what was judged: whoever lists it
/// must not state what runs in it. A user may set each of them.
const STEERING: [&str; 38] = [
    "ALL_PROXY",
    "BASH_ENV",
    "BUN_CONFIG_FILE",
    "BUN_INSPECT_PRELOAD",
    "BUN_OPTIONS",
    "CURL_CA_BUNDLE",
    "DOTNET_STARTUP_HOOKS",
    "ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NODE_EXTRA_CA_CERTS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PYTHONBREAKPOINT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "REQUESTS_CA_BUNDLE",
    "RUBYLIB",
    "RUBYOPT",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "_JAVA_OPTIONS",
];
/// How others begin: what npm and deno read of their settings, and dynamic linkers.
const KINDS_OF_STEERING: [&str; 4] = ["NPM_CONFIG_", "DENO_", "LD_", "DYLD_"];
/// Where the official registry, and those like it, keep what is theirs to say.
const OFFICIAL: &str = "io.modelcontextprotocol.registry/official";

/// One version of a server, and the package of it that runs here.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name in the registry.
    pub name: String,
    /// The version of the entry, which need not be the package's.
    pub version: String,
    /// `deprecated` by its publisher, or `active`.
    pub is_deprecated: bool,
    /// What is run.
    pub reference: Reference,
    /// Which program of the package is the server, where the entry says so.
    pub bin: Option<String>,
    /// What the file that the package is made of has to be.
    pub digest: Option<Digest>,
    /// The other packages of it that would run here, each with its kind.
    pub others: Vec<String>,
    /// What of the entry does not count here, a line each.
    pub left_out: Vec<String>,
    args: Vec<Argument>,
    env: Vec<Variable>,
    mounts: Vec<Place>,
}

/// A directory that the user names by a variable, and where the server has it.
#[derive(Debug, Clone)]
struct Place {
    /// `{NAME}`, with its variable.
    source: Input,
    /// As a flag that mounts has it.
    target: PathBuf,
    access: Access,
}

/// Why an entry is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ListedError {
    /// It is no `server.json`.
    #[error("{name}: what its registry says is not understood: {why}")]
    Strange {
        /// What was asked for.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// It is about something else than what was asked for.
    #[error("{asked}: its registry, or its package, speaks of {got}")]
    Other {
        /// What was asked for.
        asked: String,
        /// What came.
        got: String,
    },
    /// Its registry took it back.
    #[error("{0} was deleted from its registry, so it does not run")]
    Deleted(String),
    /// A package of a registry that is not the user's.
    #[error("{name}: its package is at {url}, which is not where {kind} packages are from here")]
    Elsewhere {
        /// What was asked for.
        name: String,
        /// Where.
        url: String,
        /// npm or PyPI.
        kind: &'static str,
    },
    /// Another package than the one that the user has.
    #[error("{name} was {from}, and its registry says now that it is {to}")]
    Moved {
        /// What was asked for.
        name: String,
        /// What it was.
        from: String,
        /// What it would be.
        to: String,
    },
    /// Nothing that smcp can run.
    #[error("{name} has no package that runs here: {why}")]
    Nothing {
        /// What was asked for.
        name: String,
        /// What there is.
        why: String,
    },
    /// Another file than the entry states.
    #[error("{what}: expected {wanted}, got {got}")]
    File {
        /// The package.
        what: String,
        /// The hash that the entry states.
        wanted: String,
        /// What the package was made of.
        got: String,
    },
    /// A value that the entry does not take.
    #[error("{name}: {why}")]
    Value {
        /// Of which argument or variable.
        name: String,
        /// What is wrong.
        why: String,
    },
}

#[derive(Deserialize)]
struct Answer {
    server: Server,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

#[derive(Deserialize)]
struct Server {
    name: String,
    version: String,
    #[serde(default)]
    packages: Vec<Offered>,
    #[serde(default)]
    remotes: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Offered {
    registry_type: String,
    registry_base_url: Option<String>,
    identifier: String,
    version: Option<String>,
    file_sha256: Option<String>,
    transport: Option<Transport>,
    #[serde(default)]
    runtime_arguments: Vec<Argument>,
    #[serde(default)]
    package_arguments: Vec<Argument>,
    #[serde(default)]
    environment_variables: Vec<Variable>,
}

#[derive(Deserialize)]
struct Transport {
    #[serde(rename = "type")]
    kind: String,
}

/// One argument.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Argument {
    #[serde(rename = "type")]
    kind: ArgumentKind,
    name: Option<String>,
    value_hint: Option<String>,
    #[serde(default)]
    is_repeated: bool,
    #[serde(flatten)]
    input: Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ArgumentKind {
    Positional,
    Named,
}

/// A variable of the environment.
#[derive(Debug, Clone, Deserialize)]
struct Variable {
    name: String,
    #[serde(flatten)]
    input: Input,
}

/// What is asked for, or stated.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Input {
    /// Stated: the user is not asked but for what stands in braces and is among `variables`.
    value: Option<String>,
    default: Option<String>,
    is_required: bool,
    is_secret: bool,
    format: Option<String>,
    choices: Vec<String>,
    variables: BTreeMap<String, Input>,
}

impl Input {
    /// With all that stands in braces.
    fn size(&self) -> usize {
        1 + self.variables.values().map(Input::size).sum::<usize>()
    }

    /// The publisher has a word in what it is.
    fn is_stated(&self) -> bool {
        self.value.is_some() || self.default.is_some()
    }
}

impl Listed {
    /// Reads what was answered for `asked`; `packages` is where packages are from here. The first package that runs here is taken, of that
    /// `kind` (`npm`, `pypi`, `oci`, `mcpb`) where one is asked for.
    ///
    /// # Errors
    /// Where it is about something else, was taken back, or names nothing that runs here.
    pub fn read(
        asked: &PackageName,
        bytes: &[u8],
        packages: &Packages,
        kind: Option<&str>,
    ) -> Result<Listed, ListedError> {
        let name = format!("mcp:{}", asked.name);
        let strange = |why: String| ListedError::Strange { name: name.clone(), why };
        let answer: Answer = distribution::json::strict(bytes, MAX_LISTED).map_err(|why| strange(why.to_string()))?;
        // No word of a command line, no variable and no name can have one, and JSON has no other way to write it.
        if bytes.windows(NUL.len()).any(|six| six == NUL) {
            return Err(strange("it holds a NUL".into()));
        }
        let server = answer.server;
        let fits = asked.version.as_ref().is_none_or(|version| *version == server.version);
        if server.name != asked.name || !fits {
            let asked = Reference::Mcp(asked.clone()).to_string();
            return Err(ListedError::Other { asked, got: format!("{}@{}", server.name, server.version) });
        }
        let status = answer.meta[OFFICIAL]["status"].as_str().unwrap_or_default();
        if status == "deleted" {
            return Err(ListedError::Deleted(format!("{name}@{}", server.version)));
        }
        let (mut why_not, mut usable) = (Vec::new(), Vec::new());
        for offered in server.packages {
            match offered.usable() {
                Err(why) => why_not.push(why),
                Ok(()) => usable.push(offered),
            }
        }
        let is_it = |offered: &Offered| kind.is_none_or(|kind| offered.registry_type == kind);
        if let Some(at) = usable.iter().position(is_it) {
            let offered = usable.remove(at);
            let others = usable.iter().map(|other| format!("{} {}", other.registry_type, other.identifier)).collect();
            let (is_deprecated, version) = (status == "deprecated", server.version);
            let listed = offered.listed(&name, packages)?;
            return Ok(Listed { name: server.name, version, is_deprecated, others, ..listed });
        }
        why_not.extend(usable.iter().map(|other| format!("one of {}, which was not asked for", other.registry_type)));
        if !server.remotes.is_empty() {
            why_not.push("a server of somebody else's machine".into());
        }
        let why = if why_not.is_empty() { "it names none".into() } else { why_not.join(", ") };
        Err(ListedError::Nothing { name, why })
    }

    /// Whether the package is of that server, and made of the file that the entry states.
    ///
    /// # Errors
    /// Where it is not.
    pub fn check(&self, server_name: Option<&str>, source: Option<&crate::Source>) -> Result<(), ListedError> {
        if let Some(got) = server_name.filter(|got| *got != self.name) {
            return Err(ListedError::Other {
                asked: format!("mcp:{}", self.name),
                got: got.escape_debug().to_string(),
            });
        }
        let Some(wanted) = &self.digest else { return Ok(()) };
        let stated = |source: &crate::Source| match source.kind.as_str() {
            "npm" => source.extra.get("sha256")?.as_str().map(str::to_owned),
            _ => source.integrity.clone(),
        };
        let got = source.and_then(stated).unwrap_or_else(|| "a file of which no SHA-256 is known".into());
        match got == wanted.to_string() {
            true => Ok(()),
            false => Err(ListedError::File { what: self.reference.to_string(), wanted: wanted.to_string(), got }),
        }
    }
}

impl Offered {
    /// Why it is none for this machine.
    fn usable(&self) -> Result<(), String> {
        match self.transport.as_ref().map_or("stdio", |transport| &transport.kind) {
            "stdio" => {}
            other => return Err(format!("one that speaks {}", other.escape_debug())),
        }
        match self.registry_type.as_str() {
            "npm" | "pypi" | "oci" | "mcpb" => Ok(()),
            other => Err(format!("one of {}", other.escape_debug())),
        }
    }

    fn listed(self, name: &str, packages: &Packages) -> Result<Listed, ListedError> {
        let strange = |why: String| ListedError::Strange { name: name.to_owned(), why };
        if self.size() > MOST_INPUTS {
            return Err(strange(format!("a package that asks for more than {MOST_INPUTS} values")));
        }
        let digest = self.file_sha256.as_ref().map(|hex| format!("sha256:{hex}").parse::<Digest>());
        let digest = digest.transpose().map_err(|why| strange(format!("fileSha256: {}", why.why)))?;
        let reference = self.reference(name, digest.as_ref(), packages)?;
        let digest = digest.filter(|_| matches!(reference, Reference::Npm(_) | Reference::Pypi(_)));
        let mut listed = Listed {
            name: String::new(),
            version: String::new(),
            is_deprecated: false,
            reference,
            bin: None,
            digest,
            others: Vec::new(),
            left_out: Vec::new(),
            args: self.package_arguments,
            env: self.environment_variables,
            mounts: Vec::new(),
        };
        if let Some(odd) = listed.args.iter().find(|argument| argument.is_odd()) {
            return Err(strange(format!(
                "packageArguments: {odd:?} has no name, or no value and nothing that it is for"
            )));
        }
        for variable in &listed.env {
            EnvFlag::new(&variable.name, None).map_err(|why| strange(format!("environmentVariables: {why}")))?;
        }
        match listed.reference {
            Reference::Registry(_) => listed.of_docker(self.runtime_arguments),
            Reference::Npm(_) | Reference::Pypi(_) => {
                listed.of_runner(self.runtime_arguments, &self.identifier).map_err(strange)?;
            }
            _ => {}
        }
        // Proxies are read in small letters, too.
        let is_steering = |name: &str| {
            let name = name.to_ascii_uppercase();
            STEERING.contains(&name.as_str()) || KINDS_OF_STEERING.iter().any(|start| name.starts_with(start))
        };
        let steers = |variable: &&Variable| variable.input.is_stated() && is_steering(&variable.name);
        if let Some(steering) = listed.env.iter().find(steers) {
            let why =
                format!("environmentVariables: {} decides what code the package's interpreter loads", steering.name);
            return Err(strange(why));
        }
        Ok(listed)
    }

    /// How many values it states and asks for.
    fn size(&self) -> usize {
        let arguments = self.runtime_arguments.iter().chain(&self.package_arguments).map(|argument| &argument.input);
        arguments.chain(self.environment_variables.iter().map(|variable| &variable.input)).map(Input::size).sum()
    }

    /// The package, in the one form that smcp has for it.
    fn reference(&self, name: &str, digest: Option<&Digest>, packages: &Packages) -> Result<Reference, ListedError> {
        let strange = |why: String| ListedError::Strange { name: name.to_owned(), why };
        let version = self.version.as_deref().filter(|version| !version.is_empty());
        let text = match self.registry_type.as_str() {
            kind @ ("npm" | "pypi") => {
                let missing = || strange("a package without its version".into());
                let version = version.filter(|version| *version != "latest").ok_or_else(missing)?;
                self.is_at_home(name, kind, packages)?;
                let sign = if kind == "npm" { "@" } else { "==" };
                format!("{kind}:{}{sign}{version}", self.identifier)
            }
            "mcpb" => {
                let digest = digest.ok_or_else(|| strange("a bundle without its fileSha256".into()))?;
                format!("mcpb:{}@{digest}", self.identifier)
            }
            _ => {
                let (image, own) = match self.identifier.split_once('@') {
                    Some((image, own)) => (image, Some(own)),
                    None => (self.identifier.as_str(), None),
                };
                let (name, tag) = match image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
                    Some((name, tag)) => (name, Some(tag)),
                    None => (image, version),
                };
                // What a hash of an image can be of is its manifest, and that it has to be.
                let selector = match (own, digest) {
                    (Some(own), Some(digest)) if own != digest.as_str() => {
                        return Err(strange(format!("{image} by {own}, and a fileSha256 of {digest}")));
                    }
                    (_, Some(digest)) => format!("@{digest}"),
                    (Some(own), None) => format!("@{own}"),
                    (None, None) => tag.map(|tag| format!(":{tag}")).unwrap_or_default(),
                };
                match self.registry_base_url.as_deref().map(host_of).filter(|host| *host != DOCKER) {
                    Some(host) if !Name::has_host(name) => format!("{host}/{name}{selector}"),
                    _ => format!("{}{selector}", Name::of_docker(name)),
                }
            }
        };
        let read: Reference = text.parse().map_err(|why: distribution::ReferenceError| strange(why.to_string()))?;
        let fits = match (&read, self.registry_type.as_str()) {
            (Reference::Npm(PackageName { name, .. }), "npm") | (Reference::Pypi(PackageName { name, .. }), "pypi") => {
                *name == self.identifier
            }
            (Reference::Registry(Name { registry: Some(_), .. }), "oci") => true,
            (Reference::Download(Download { url, .. }), "mcpb") => *url == self.identifier,
            _ => false,
        };
        if fits { Ok(read) } else { Err(strange(format!("{text:?} names no package of {}", self.registry_type))) }
    }

    /// Where packages of npm and PyPI are from is the user's to say, not a publisher's.
    fn is_at_home(&self, name: &str, kind: &str, packages: &Packages) -> Result<(), ListedError> {
        let Some(url) = &self.registry_base_url else { return Ok(()) };
        let strange = |why: distribution::Error| ListedError::Strange { name: name.into(), why: why.to_string() };
        let plain = |url: &str| url.trim_end_matches('/').trim_end_matches("/simple").to_ascii_lowercase();
        let (kind, usual, own) = match kind {
            "npm" => {
                let own = packages.npm().map_err(strange)?.registry_of(&self.identifier);
                ("npm", NPMJS, vec![own.url()])
            }
            _ => {
                let own = packages.python().map_err(strange)?.indexes.iter();
                ("PyPI", PYPI, own.map(|index| index.url()).collect())
            }
        };
        match own.into_iter().chain([usual]).any(|own| plain(own) == plain(url)) {
            true => Ok(()),
            false => Err(ListedError::Elsewhere { name: name.into(), url: url.escape_debug().to_string(), kind }),
        }
    }
}

impl Argument {
    fn is_odd(&self) -> bool {
        match self.kind {
            ArgumentKind::Named => !self.name.as_ref().is_some_and(|name| name.len() > 1 && name.starts_with('-')),
            ArgumentKind::Positional => self.input.value.is_none() && self.value_hint.is_none() && self.name.is_none(),
        }
    }
}

/// Where `mcp:` names are looked up: the url of one version of a server.
pub fn listed_url(registry: Option<&str>, api: &str, server: &PackageName) -> String {
    let registry = registry.unwrap_or(MCP_REGISTRY).trim_end_matches('/');
    // Names and versions have been read as such: of what an address minds there is the slash and the plus.
    let name = server.name.replace('/', "%2F");
    let version = server.version.as_deref().unwrap_or("latest").replace('+', "%2B");
    format!("{registry}/{api}/servers/{name}/versions/{version}")
}

/// `HOST[:PORT]` of a url.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    match rest.split('/').next().unwrap_or_default() {
        // The website of that registry.
        "hub.docker.com" | "index.docker.io" => DOCKER,
        host => host,
    }
}

#[cfg(test)]
mod tests;
