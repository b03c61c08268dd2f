//! `[REGISTRY/]ORG/NAME[@VERSION | :TAG | @sha256:…]`

use super::{DOCKER, Name, Selector, Wrong, only};

/// The longest name, registry included, as other tools have it.
const MAX_NAME: usize = 255;
/// The longest tag, by the distribution specification.
const MAX_TAG: usize = 128;

pub(super) fn parse(text: &str) -> Result<Name, Wrong> {
    if text.is_empty() {
        return Err(Wrong::at(0, "it is empty").hint("name a package, for example acme/tool"));
    }
    if let Some(at) = text.find("://") {
        return Err(Wrong::at(at, "a url is no reference").hint("write it without the scheme: host/org/name"));
    }
    let (registry, base) = match text.split_once('/') {
        Some((host, _)) if is_host(host) => (Some(registry(host)?), host.len() + 1),
        _ => (None, 0),
    };
    let rest = &text[base..];
    let (repository, selector) = split_selector(rest);
    check_repository(repository, registry.is_some()).map_err(Wrong::shift(base))?;
    let selector = match selector {
        Some(chosen) => parse_selector(chosen).map_err(Wrong::shift(base + repository.len()))?,
        None => Selector::Latest,
    };
    if base + repository.len() > MAX_NAME {
        return Err(Wrong::at(MAX_NAME, format!("a name has at most {MAX_NAME} characters")));
    }
    Ok(Name { registry, repository: repository.into(), selector })
}

impl Name {
    /// Whether an image's name begins with a registry.
    pub fn has_host(image: &str) -> bool {
        image.split_once('/').is_some_and(|(first, _)| is_host(first))
    }

    /// The whole name of an image as docker has it: without a registry it is docker's, and with one word an official one.
    pub fn of_docker(image: &str) -> String {
        match (Name::has_host(image), image.contains('/')) {
            (true, _) => image.to_owned(),
            (false, true) => format!("{DOCKER}/{image}"),
            (false, false) => format!("{DOCKER}/library/{image}"),
        }
    }
}

/// By docker's rule: what stands before the first slash is a host where it could not be an organisation.
fn is_host(part: &str) -> bool {
    part == "localhost" || part.contains(['.', ':', '[']) && !part.contains('@') && !part.starts_with('.')
}

fn registry(text: &str) -> Result<String, Wrong> {
    let (host, port) = match text.rfind(']') {
        Some(end) => (&text[..=end], text[end + 1..].strip_prefix(':').or((end + 1 < text.len()).then_some(""))),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    check_host(host)?;
    let Some(port) = port else { return Ok(text.to_ascii_lowercase()) };
    let number = port.bytes().all(|b| b.is_ascii_digit()).then(|| port.parse::<u16>().ok()).flatten();
    match number {
        Some(1..) => Ok(text.to_ascii_lowercase()),
        _ => Err(Wrong::at(text.len() - port.len(), "a port is a number from 1 to 65535")),
    }
}

fn check_host(host: &str) -> Result<(), Wrong> {
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.trim_end_matches(']').parse::<std::net::Ipv6Addr>();
        return address.map(drop).map_err(|_| Wrong::at(1, "not an IPv6 address"));
    }
    let mut at = 0;
    for label in host.split('.') {
        only(label, |b| b.is_ascii_alphanumeric() || b == b'-', "the name of a host").map_err(Wrong::shift(at))?;
        if label.is_empty() || label.starts_with('-') || label.ends_with('-') || label.len() > 63 {
            return Err(Wrong::at(at, "not the name of a host"));
        }
        at += label.len() + 1;
    }
    Ok(())
}

/// Splits at the first `@`, else at the last colon that no slash follows; the sign stays with the selector.
fn split_selector(text: &str) -> (&str, Option<&str>) {
    let tag = || text.rfind(':').filter(|at| !text[*at..].contains('/'));
    match text.find('@').or_else(tag) {
        Some(at) => (&text[..at], Some(&text[at..])),
        None => (text, None),
    }
}

fn parse_selector(text: &str) -> Result<Selector, Wrong> {
    let (sign, value) = text.split_at(1);
    let selector = match (sign, value) {
        (_, "") => return Err(Wrong::at(0, "nothing follows the sign")),
        (_, "latest") => Selector::Latest,
        (":", _) => {
            check_tag(value, false).map_err(Wrong::shift(1))?;
            Selector::Tag(value.into())
        }
        _ if value.contains(':') => {
            Selector::Digest(value.parse().map_err(|e: crate::DigestError| Wrong::at(1 + e.at, e.why))?)
        }
        _ => {
            check_tag(value, true).map_err(Wrong::shift(1))?;
            Selector::Version(value.into())
        }
    };
    Ok(selector)
}

fn check_tag(tag: &str, plus: bool) -> Result<(), Wrong> {
    if plus {
        only(tag, |b| b.is_ascii_alphanumeric() || b"_.-+".contains(&b), "a version")?;
    } else {
        only(tag, |b| b.is_ascii_alphanumeric() || b"_.-".contains(&b), "a tag")?;
    }
    if tag.starts_with(['.', '-', '+']) {
        return Err(Wrong::at(0, "it must begin with a letter, a digit or _"));
    }
    if tag.len() > MAX_TAG {
        return Err(Wrong::at(MAX_TAG, format!("at most {MAX_TAG} characters")));
    }
    Ok(())
}

fn check_repository(repository: &str, with_registry: bool) -> Result<(), Wrong> {
    if let Some(at) = repository.find(':') {
        return Err(Wrong::at(at, "a colon in the middle of a name").hint("give either a tag or a digest, not both"));
    }
    let mut at = 0;
    for part in repository.split('/') {
        check_component(part).map_err(Wrong::shift(at))?;
        at += part.len() + 1;
    }
    if !with_registry && !repository.contains('/') {
        return Err(Wrong::at(repository.len(), "a name is org/name, one part is missing")
            .hint("for a directory or file write ./ before it"));
    }
    Ok(())
}

/// `[a-z0-9]+` joined by one `.`, one or two `_`, or any number of `-`.
fn check_component(part: &str) -> Result<(), Wrong> {
    if let Some(at) = part.find(|c: char| c.is_ascii_uppercase()) {
        return Err(Wrong::at(at, "names are in lower case"));
    }
    only(part, |b| b.is_ascii_alphanumeric() || b"._-".contains(&b), "a name")?;
    if part.is_empty() {
        return Err(Wrong::at(0, "an empty part of a name"));
    }
    let mut run = 0;
    for piece in part.split(|c: char| c.is_ascii_alphanumeric()).filter(|piece| !piece.is_empty()) {
        run = part[run..].find(piece).map_or(run, |at| run + at);
        let edge = run == 0 || run + piece.len() == part.len();
        if edge || !(matches!(piece, "." | "_" | "__") || piece.bytes().all(|b| b == b'-')) {
            return Err(Wrong::at(run, "a sign that must stand alone between letters or digits"));
        }
        run += piece.len();
    }
    Ok(())
}
