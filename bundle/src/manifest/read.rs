//! From JSON to a manifest, key by key, so that every error names its key.

use serde_json::Value;

use super::{ArgKind, ArgSpec, Entrypoint, EnvSpec, HostRuntime, Manifest, ManifestError, Mcp, Result, Source};
use crate::limits::LimitRequest;
use crate::node::{Fields, Node};
use crate::permissions::{FsRequest, Origin, Permissions, refuse_star};

/// Reads a whole manifest.
pub(super) fn manifest(value: &Value) -> Result<Manifest> {
    let mut fields = Node::root(value).fields()?;
    let version = fields.required("schemaVersion")?.value();
    if version.as_u64() != Some(1) {
        return Err(ManifestError::SchemaVersion(version.to_string()));
    }
    let permissions = optional(&mut fields, "permissions", Permissions::read)?.unwrap_or_default();
    Ok(Manifest {
        schema_version: 1,
        name: fields.required("name")?.word()?.into(),
        version: fields.required("version")?.word()?.into(),
        description: optional(&mut fields, "description", |n| Ok(n.string()?.into()))?,
        mcp: optional(&mut fields, "mcp", Mcp::read)?.unwrap_or_default(),
        entrypoint: Entrypoint::read(&fields.required("entrypoint")?)?,
        args: optional(&mut fields, "args", |n| read_args(n, &permissions))?.unwrap_or_default(),
        env: optional(&mut fields, "env", read_env)?.unwrap_or_default(),
        permissions,
        limits: optional(&mut fields, "limits", LimitRequest::read)?.unwrap_or_default(),
        source: optional(&mut fields, "source", Source::read)?,
        runtime: optional(&mut fields, "hostRuntime", HostRuntime::read)?,
        extra: fields.rest(),
    })
}

fn optional<T>(fields: &mut Fields, key: &'static str, read: impl Fn(&Node) -> Result<T>) -> Result<Option<T>> {
    fields.optional(key).map(|node| read(&node)).transpose()
}

fn text(node: &Node) -> Result<String> {
    Ok(node.string()?.into())
}

impl Mcp {
    fn read(node: &Node) -> Result<Mcp> {
        let mut fields = node.fields()?;
        if let Some(transport) = fields.optional("transport") {
            let kind = transport.fields()?.required("type")?;
            if kind.string()? != "stdio" {
                return Err(kind.wrong("must be stdio, the only transport of a package"));
            }
        }
        let mut fields = node.fields()?;
        Ok(Mcp { server_name: optional(&mut fields, "serverName", |n| Ok(n.word()?.into()))?, extra: fields.rest() })
    }
}

impl Entrypoint {
    fn read(node: &Node) -> Result<Entrypoint> {
        let mut fields = node.fields()?;
        let args = fields.required("args")?;
        let list = args.list()?.iter().map(text).collect::<Result<Vec<String>>>()?;
        if list.first().is_none_or(String::is_empty) {
            return Err(args.wrong("must begin with a program"));
        }
        Ok(Entrypoint {
            args: list,
            workdir: optional(&mut fields, "workdir", |n| n.absolute_path_or_root())?,
            extra: fields.rest(),
        })
    }
}

fn read_args(node: &Node, permissions: &Permissions) -> Result<Vec<ArgSpec>> {
    let mut specs: Vec<ArgSpec> = Vec::new();
    for item in node.list()? {
        let mut fields = item.fields()?;
        let kind = fields.required("type")?;
        let spec = ArgSpec {
            name: fields.required("name")?.word()?.into(),
            kind: match kind.string()? {
                "path" => ArgKind::Path,
                "string" => ArgKind::String,
                _ => return Err(kind.wrong("must be path or string")),
            },
            mount: match fields.optional("mount") {
                Some(mount) => Some(read_mount(&mount, &kind, permissions)?),
                None => None,
            },
            required: optional(&mut fields, "required", |n| n.bool())?.unwrap_or(false),
            flag: optional(&mut fields, "flag", read_flag)?,
            repeated: optional(&mut fields, "repeated", |n| n.bool())?.unwrap_or(false),
            holder: optional(&mut fields, "holder", |n| n.bool())?.unwrap_or(false),
            extra: fields.rest(),
        };
        if specs.last().is_some_and(|before| before.repeated && before.flag.is_none()) && spec.flag.is_none() {
            return Err(item.wrong("follows one that is repeated"));
        }
        if spec.holder && spec.mount.is_none() {
            return Err(item.wrong("has a holder, and no mount that it would be"));
        }
        let before = specs.iter().rev().find(|before| before.flag.is_none());
        if spec.required && spec.flag.is_none() && before.is_some_and(|before| !before.required) {
            return Err(item.wrong("is required, but follows one that is not"));
        }
        specs.push(spec);
    }
    Ok(specs)
}

fn read_flag(node: &Node) -> Result<String> {
    match node.word()? {
        flag if flag.len() > 1 && flag.starts_with('-') && !flag.contains('=') => Ok(flag.into()),
        _ => Err(node.wrong("must begin with `-` and hold no `=`")),
    }
}

fn read_mount(mount: &Node, kind: &Node, permissions: &Permissions) -> Result<String> {
    let id = mount.word()?;
    if kind.string()? != "path" {
        return Err(mount.wrong("only an argument of type path has one"));
    }
    let is_asked = |request: &FsRequest| request.id == id && request.from == Origin::User;
    if !permissions.filesystem.iter().any(is_asked) {
        return Err(mount.wrong("is no id of permissions.filesystem that is from the user"));
    }
    Ok(id.into())
}

fn read_env(node: &Node) -> Result<Vec<EnvSpec>> {
    refuse_star(node)?;
    let mut specs: Vec<EnvSpec> = Vec::new();
    for item in node.list()? {
        refuse_star(&item)?;
        let mut fields = item.fields()?;
        let name = fields.required("name")?;
        let spec = EnvSpec {
            name: read_env_name(&name)?,
            default: optional(&mut fields, "default", text)?,
            secret: optional(&mut fields, "secret", |n| n.bool())?.unwrap_or(false),
            required: optional(&mut fields, "required", |n| n.bool())?.unwrap_or(false),
        };
        fields.close()?;
        if specs.iter().any(|other| other.name == spec.name) {
            return Err(name.wrong("stands twice"));
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// A name that no shell or `execve` misreads; a pattern is a request for everything.
fn read_env_name(node: &Node) -> Result<String> {
    let name = node.word()?;
    if name.contains('*') {
        return Err(ManifestError::Everything { key: node.path().into() });
    }
    if name.contains('=') {
        return Err(node.wrong("holds a `=`"));
    }
    Ok(name.into())
}

impl Source {
    fn read(node: &Node) -> Result<Source> {
        let mut fields = node.fields()?;
        Ok(Source {
            kind: fields.required("type")?.word()?.into(),
            reference: text(&fields.required("ref")?)?,
            integrity: optional(&mut fields, "integrity", text)?,
            extra: fields.rest(),
        })
    }
}

impl HostRuntime {
    fn read(node: &Node) -> Result<HostRuntime> {
        let mut fields = node.fields()?;
        let interpreter = fields.required("interpreter")?;
        let name = interpreter.word()?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'+' | b'-');
        if !name.bytes().all(plain) || name.starts_with(['.', '-']) {
            return Err(interpreter.wrong("must be the plain name of a program, such as python3.11"));
        }
        Ok(HostRuntime { interpreter: name.into(), extra: fields.rest() })
    }
}
