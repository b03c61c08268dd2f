//! `npm:NAME[@V]`, `pypi:NAME[==V]`, `mcp:REVERSE.DNS/NAME[@V]`, `mcpb:URL@sha256:…`

use super::{Download, PackageName, Wrong, only};

/// The longest name that npm takes.
const MAX_NAME: usize = 214;

/// `NAME` or `@SCOPE/NAME`, then `@VERSION` or a dist-tag.
pub(super) fn npm(text: &str) -> Result<PackageName, Wrong> {
    let sign = text.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    let name = &text[..sign.unwrap_or(text.len())];
    let (base, plain) = match name.strip_prefix('@') {
        Some(scoped) => {
            let Some((scope, plain)) = scoped.split_once('/') else {
                return Err(Wrong::at(name.len(), "a scope must be followed by / and a name"));
            };
            word(scope, "the scope of an npm package").map_err(Wrong::shift(1))?;
            (scope.len() + 2, plain)
        }
        None => (0, name),
    };
    word(plain, "the name of an npm package").map_err(Wrong::shift(base))?;
    too_long(name)?;
    Ok(PackageName { name: name.into(), version: version(text, sign, 1)? })
}

/// `NAME`, then `==VERSION`.
pub(super) fn pypi(text: &str) -> Result<PackageName, Wrong> {
    if let Some(at) = text.find('@') {
        return Err(Wrong::at(at, "a version of a python package follows ==").hint("write pypi:NAME==VERSION"));
    }
    let sign = text.find("==");
    let name = &text[..sign.unwrap_or(text.len())];
    word(name, "the name of a python package")?;
    if name.ends_with(['.', '_', '-']) {
        return Err(Wrong::at(name.len() - 1, "a name ends with a letter or a digit"));
    }
    too_long(name)?;
    Ok(PackageName { name: name.into(), version: version(text, sign, 2)? })
}

/// `REVERSE.DNS/NAME`, then `@VERSION`.
pub(super) fn mcp(text: &str) -> Result<PackageName, Wrong> {
    let sign = text.find('@');
    let name = &text[..sign.unwrap_or(text.len())];
    let Some((namespace, server)) = name.split_once('/') else {
        return Err(Wrong::at(name.len(), "a name in the MCP registry is REVERSE.DNS/NAME"));
    };
    only(namespace, |b| b.is_ascii_alphanumeric() || b".-".contains(&b), "a reversed domain name")?;
    if namespace.is_empty() || namespace.starts_with(['.', '-']) {
        return Err(Wrong::at(0, "not a reversed domain name"));
    }
    word(server, "the name of a server").map_err(Wrong::shift(namespace.len() + 1))?;
    too_long(name)?;
    Ok(PackageName { name: name.into(), version: version(text, sign, 1)? })
}

/// `http[s]://HOST/PATH@sha256:…`: what is fetched has to be what was meant.
pub(super) fn mcpb(text: &str) -> Result<Download, Wrong> {
    let hint = "write mcpb:https://HOST/FILE.mcpb@sha256:HEX, as `sha256sum FILE` prints it";
    let Some((url, digest)) = text.rsplit_once('@').filter(|(_, digest)| digest.starts_with("sha")) else {
        return Err(Wrong::at(text.len(), "a bundle of somewhere else is named with its hash").hint(hint));
    };
    let place = url.split_once("://").filter(|(scheme, _)| ["https", "http"].contains(scheme)).map(|(_, place)| place);
    let Some((host, path)) = place.and_then(|place| place.split_once('/')) else {
        return Err(Wrong::at(0, "it is no url of a file").hint(hint));
    };
    let start = url.len() - path.len();
    only(url, |b| b.is_ascii_graphic() && !b"\"'<>\\^`{|}#".contains(&b), "the url of a bundle")?;
    if host.is_empty() || host.contains('@') || path.is_empty() {
        return Err(Wrong::at(start, "it is no plain url of a file").hint(hint));
    }
    let digest = digest.parse().map_err(|why: crate::DigestError| Wrong::at(url.len() + 1 + why.at, why.why))?;
    Ok(Download { url: url.into(), digest })
}

/// A name that is safe as an argument and in a path: no slash, no leading dot, dash or underscore.
fn word(text: &str, what: &str) -> Result<(), Wrong> {
    match text.bytes().next() {
        None => Err(Wrong::at(0, format!("{what} is missing"))),
        Some(first) if !first.is_ascii_alphanumeric() => {
            Err(Wrong::at(0, format!("{what} begins with a letter or a digit")))
        }
        Some(_) => only(text, |b| b.is_ascii_alphanumeric() || b"._-~".contains(&b), what),
    }
}

fn too_long(name: &str) -> Result<(), Wrong> {
    if name.len() <= MAX_NAME { Ok(()) } else { Err(Wrong::at(MAX_NAME, format!("at most {MAX_NAME} characters"))) }
}

/// One version, never a range: what is built must be the same tomorrow.
fn version(text: &str, sign: Option<usize>, width: usize) -> Result<Option<String>, Wrong> {
    let Some(base) = sign.map(|at| at + width) else { return Ok(None) };
    let version = &text[base..];
    let check = || {
        only(version, |b| b.is_ascii_alphanumeric() || b"._+!-".contains(&b), "a version, ranges are not taken")?;
        match version.bytes().next() {
            Some(first) if first.is_ascii_alphanumeric() => Ok(()),
            Some(_) => Err(Wrong::at(0, "a version begins with a letter or a digit")),
            None => Err(Wrong::at(0, "a version is missing")),
        }
    };
    check().map_err(Wrong::shift(base))?;
    Ok(Some(version.into()))
}
