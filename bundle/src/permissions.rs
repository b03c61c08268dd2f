//! What a manifest asks for. All of it is a request: what a run is granted is
//! decided in `grant.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use distribution::Digest;
use serde::Serialize;
use serde_json::json;

use crate::manifest::ManifestError;
use crate::node::Node;
use crate::outbound::{Host, Outbound};

/// The `permissions` of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Permissions {
    /// Where the server asks to connect to.
    #[serde(skip_serializing_if = "NetworkRequest::is_empty")]
    pub network: NetworkRequest,
    /// Which directories the server asks for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub filesystem: Vec<FsRequest>,
    /// Which foreign programs the server asks to start.
    #[serde(skip_serializing_if = "SubprocessRequest::is_empty")]
    pub subprocess: SubprocessRequest,
}

/// `permissions.network`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NetworkRequest {
    /// Destinations, in the order of the manifest.
    #[serde(serialize_with = "outbound_objects")]
    pub outbound: Vec<Outbound>,
}

/// One directory or file of `permissions.filesystem`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FsRequest {
    /// Name that `args` refer to by `mount`; unique in the manifest.
    pub id: String,
    /// What the server would do there.
    pub access: Access,
    /// Absolute path inside the cage.
    pub target: PathBuf,
    /// Where it comes from.
    pub from: Origin,
}

/// Read-only or read-write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Reading alone.
    Ro,
    /// Reading and writing.
    Rw,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Ro => "ro",
            Access::Rw => "rw",
        })
    }
}

/// Who provides a directory that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The user names it by a flag or an argument.
    User,
    /// A state directory that lasts from run to run.
    State,
    /// The user names it, and it is an entry of a registry of servers that asks for it: no manifest does.
    Listed,
}

/// `permissions.subprocess`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SubprocessRequest {
    /// Absolute paths, inside the cage, of programs beside the runtime itself.
    pub allow: Vec<PathBuf>,
}

type Result<T> = std::result::Result<T, ManifestError>;

impl Permissions {
    /// The one text that stands for these permissions, whatever their order in a manifest: compact JSON in UTF-8, with all
    /// three members and theirs always there, keys and lists sorted (by bytes), each entry once, and each host of the network once
    /// with all of its ports. What a registry of servers asks for on top is none of them:
    ///
    /// ```json
    /// {"filesystem":[{"access":"rw","from":"user","id":"ws","target":"/work"}],"network":{"outbound":[{"host":"api.acme.example","ports":[443]}]},"subprocess":{"allow":["/usr/bin/git"]}}
    /// ```
    pub fn canonical(&self) -> String {
        let mut hosts: BTreeMap<String, BTreeSet<u16>> = BTreeMap::new();
        for Outbound { host, ports } in &self.network.outbound {
            hosts.entry(host.to_string()).or_default().extend(ports);
        }
        let outbound: Vec<_> = hosts.iter().map(|(host, ports)| json!({"host": host, "ports": ports})).collect();
        let own = |request: &&FsRequest| request.from != Origin::Listed;
        let mut files: Vec<&FsRequest> = self.filesystem.iter().filter(own).collect();
        files.sort_by_key(|request| &request.id);
        // A map of serde_json is sorted by its keys.
        let file = |request: &&FsRequest| json!({"access": request.access, "from": request.from, "id": request.id, "target": request.target});
        let files: Vec<_> = files.iter().map(file).collect();
        let programs: BTreeSet<&PathBuf> = self.subprocess.allow.iter().collect();
        json!({"filesystem": files, "network": {"outbound": outbound}, "subprocess": {"allow": programs}}).to_string()
    }

    /// Digest of [`Permissions::canonical`]: `permissions` of a certification.
    pub fn digest(&self) -> Digest {
        Digest::of(self.canonical().as_bytes())
    }

    pub(crate) fn read(node: &Node) -> Result<Permissions> {
        let mut fields = node.fields()?;
        let permissions = Permissions {
            network: fields.optional("network").map(|n| NetworkRequest::read(&n)).transpose()?.unwrap_or_default(),
            filesystem: fields.optional("filesystem").map(|n| read_filesystem(&n)).transpose()?.unwrap_or_default(),
            subprocess: fields
                .optional("subprocess")
                .map(|n| SubprocessRequest::read(&n))
                .transpose()?
                .unwrap_or_default(),
        };
        fields.close()?;
        Ok(permissions)
    }
}

impl NetworkRequest {
    /// Nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.outbound.is_empty()
    }

    fn read(node: &Node) -> Result<NetworkRequest> {
        refuse_star(node)?;
        let mut fields = node.fields()?;
        let outbound = match fields.optional("outbound") {
            None => Vec::new(),
            Some(node) => {
                refuse_star(&node)?;
                node.list()?.iter().map(read_outbound).collect::<Result<_>>()?
            }
        };
        fields.close()?;
        Ok(NetworkRequest { outbound })
    }
}

impl SubprocessRequest {
    /// Nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty()
    }

    fn read(node: &Node) -> Result<SubprocessRequest> {
        refuse_star(node)?;
        let mut fields = node.fields()?;
        let allow = match fields.optional("allow") {
            None => Vec::new(),
            Some(node) => {
                refuse_star(&node)?;
                let path = |item: &Node| {
                    refuse_star(item)?;
                    item.absolute_path()
                };
                node.list()?.iter().map(path).collect::<Result<_>>()?
            }
        };
        fields.close()?;
        Ok(SubprocessRequest { allow })
    }
}

/// `"*"` is no value in a manifest: a request for everything tells nobody what
/// the server needs.
pub(crate) fn refuse_star(node: &Node) -> Result<()> {
    match node.value().as_str() {
        Some("*") => Err(ManifestError::Everything { key: node.path().into() }),
        _ => Ok(()),
    }
}

/// One destination: `{"host": …, "ports": […]}`, or the text of `--allow-net`.
fn read_outbound(node: &Node) -> Result<Outbound> {
    refuse_star(node)?;
    let outbound = if node.value().is_string() {
        node.string()?.parse().map_err(|e: crate::outbound::OutboundError| node.wrong(e.to_string()))?
    } else {
        let mut fields = node.fields()?;
        let host = fields.required("host")?;
        refuse_star(&host)?;
        let name: Host =
            host.string()?.parse().map_err(|e: crate::outbound::OutboundError| host.wrong(e.to_string()))?;
        let ports = fields.optional("ports").map(|n| read_ports(&n)).transpose()?;
        fields.close()?;
        Outbound::new(name, ports.unwrap_or_default())
    };
    match outbound.host {
        Host::Range { prefix: 0, .. } => Err(ManifestError::Everything { key: node.path().into() }),
        _ => Ok(outbound),
    }
}

fn read_ports(node: &Node) -> Result<Vec<u16>> {
    refuse_star(node)?;
    let list = node.list()?;
    if list.is_empty() {
        return Err(node.wrong("must name a port; without this key it is 443"));
    }
    let port = |item: &Node| {
        refuse_star(item)?;
        u16::try_from(item.count()?).map_err(|_| item.wrong("is no port from 1 to 65535"))
    };
    list.iter().map(port).collect()
}

fn read_filesystem(node: &Node) -> Result<Vec<FsRequest>> {
    refuse_star(node)?;
    let mut requests: Vec<FsRequest> = Vec::new();
    for item in node.list()? {
        refuse_star(&item)?;
        let mut fields = item.fields()?;
        let id = fields.required("id")?;
        let target = fields.required("target")?;
        refuse_star(&id)?;
        refuse_star(&target)?;
        let request = FsRequest {
            id: id.word()?.into(),
            access: read_access(&fields.required("access")?)?,
            target: target.absolute_path()?,
            from: fields.optional("from").map(|n| read_origin(&n)).transpose()?.unwrap_or(Origin::User),
        };
        fields.close()?;
        if KERNEL_DIRECTORIES.iter().any(|kernel| request.target.starts_with(kernel)) {
            return Err(target.wrong("is a directory of the kernel"));
        }
        if request.from == Origin::State && !is_plain_word(&request.id) {
            return Err(id.wrong("names a directory, and is no plain word of letters, digits, `.`, `_` and `-`"));
        }
        if request.target == Path::new("/") {
            return Err(target.wrong("is the root"));
        }
        if requests.iter().any(|other| other.id == request.id) {
            return Err(id.wrong("stands twice"));
        }
        if requests.iter().any(|other| other.target == request.target) {
            return Err(target.wrong("stands twice"));
        }
        requests.push(request);
    }
    Ok(requests)
}

/// Whether a text can be the name of a directory on every system, and is no hidden one.
pub(crate) fn is_plain_word(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    text.len() <= 64 && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric()) && text.bytes().all(allowed)
}

/// Where the cage has file systems of its own and nothing may be mounted.
pub(crate) const KERNEL_DIRECTORIES: [&str; 3] = ["/dev", "/proc", "/sys"];

fn read_access(node: &Node) -> Result<Access> {
    refuse_star(node)?;
    match node.string()? {
        "ro" => Ok(Access::Ro),
        "rw" => Ok(Access::Rw),
        _ => Err(node.wrong("must be ro or rw")),
    }
}

fn read_origin(node: &Node) -> Result<Origin> {
    match node.string()? {
        "user" => Ok(Origin::User),
        "state" => Ok(Origin::State),
        _ => Err(node.wrong("must be user or state")),
    }
}

fn outbound_objects<S: serde::Serializer>(outbound: &[Outbound], to: S) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Object<'a> {
        host: String,
        ports: &'a [u16],
    }
    to.collect_seq(outbound.iter().map(|o| Object { host: o.host.to_string(), ports: &o.ports }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::manifest::Manifest;

    /// The text of the documentation, whatever the order and the spelling in a manifest.
    #[test]
    fn the_canonical_text_is_one() {
        let of = |permissions: serde_json::Value| {
            let manifest = json!({"schemaVersion": 1, "name": "a/b", "version": "1", "entrypoint": {"args": ["x"]},
                "permissions": permissions});
            Manifest::from_value(&manifest).unwrap().permissions.canonical()
        };
        let empty = r#"{"filesystem":[],"network":{"outbound":[]},"subprocess":{"allow":[]}}"#;
        assert_eq!(of(json!({})), empty);
        let want = concat!(
            r#"{"filesystem":[{"access":"rw","from":"state","id":"a","target":"/state"},"#,
            r#"{"access":"ro","from":"user","id":"ws","target":"/work"}],"#,
            r#""network":{"outbound":[{"host":"*.b.test","ports":[443]},{"host":"a.test","ports":[80,443]}]},"#,
            r#""subprocess":{"allow":["/usr/bin/git","/usr/bin/rg"]}}"#
        );
        let written = json!({
            "subprocess": {"allow": ["/usr/bin/rg", "/usr/bin//git", "/usr/bin/git"]},
            "network": {"outbound": [{"host": "A.test.", "ports": [443]}, "a.test:80", "*.b.test"]},
            "filesystem": [{"id": "ws", "access": "ro", "target": "/work/"},
                {"target": "/state", "id": "a", "from": "state", "access": "rw"}],
        });
        assert_eq!(of(written), want);
    }
}
