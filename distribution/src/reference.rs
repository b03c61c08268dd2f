//! What a person types to name a package or something to make a package from.
//!
//! | text | meaning |
//! |---|---|
//! | `[REGISTRY/]ORG/NAME[@VERSION \| :TAG \| @sha256:…]` | a package in a registry |
//! | `npm:NAME[@V]`, `pypi:NAME[==V]`, `mcp:REVERSE.DNS/NAME[@V]` | a source |
//! | `[mcpb:]https://HOST/FILE.mcpb@sha256:…` | an MCP bundle, fetched |
//! | `./DIR`, `../DIR`, `/DIR`, `.`, `..`, the same ending in `.mcpb` | a source on this machine |
//! | `oci-layout:DIR[:REF \| @sha256:…]` | an image in an OCI layout directory |

mod layout;
mod name;
mod package;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Digest;

/// A reference that has been understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A package in a registry.
    Registry(Name),
    /// A package of the npm registry.
    Npm(PackageName),
    /// A package of the Python Package Index.
    Pypi(PackageName),
    /// A server in the official MCP registry.
    Mcp(PackageName),
    /// A directory with the source of a server.
    Directory(PathBuf),
    /// An MCP bundle file.
    Mcpb(PathBuf),
    /// An MCP bundle file of somewhere else.
    Download(Download),
    /// An image in an OCI layout directory.
    OciLayout(LayoutRef),
}

/// A package in a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// `HOST[:PORT]` in lower case; without one the configured registry is meant.
    pub registry: Option<String>,
    /// Path of the repository, such as `acme/tool`.
    pub repository: String,
    /// Which of its images.
    pub selector: Selector,
}

/// Which image of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The tag `latest`, else the highest release.
    Latest,
    /// `@VERSION`; in a registry the tag of that name, with `_` for `+`.
    Version(String),
    /// `:TAG`; in a layout the whole name that its index gives to an image.
    Tag(String),
    /// Exactly this manifest or index.
    Digest(Digest),
}

/// A package of another ecosystem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageName {
    /// Its name there, with scope or namespace.
    pub name: String,
    /// The version asked for.
    pub version: Option<String>,
}

/// A file of somewhere else, of which it is known what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// `https://…`, without a login; plain http where the machine's settings let it.
    pub url: String,
    /// Of its bytes.
    pub digest: Digest,
}

/// Where images are whose names have no host, as docker has it.
pub const DOCKER: &str = "docker.io";

/// An image in an OCI layout directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutRef {
    /// The directory; its name has no colon, for the first colon ends it, as in other tools.
    pub dir: PathBuf,
    /// [`Selector::Tag`] or [`Selector::Digest`]; none where the layout holds one image.
    pub reference: Option<Selector>,
}

/// Why a text is no reference, and which part of it is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("reference {text:?}: {why}, at {}", position(text, *at))]
pub struct ReferenceError {
    /// The whole text.
    pub text: String,
    /// Byte offset of the wrong part in it.
    pub at: usize,
    /// What is wrong there.
    pub why: String,
    hint: Option<&'static str>,
}

impl ReferenceError {
    /// What to write instead, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        self.hint
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        parse(text).map_err(|Wrong { at, why, hint }| ReferenceError { text: text.into(), at, why, hint })
    }
}

fn parse(text: &str) -> Result<Reference, Wrong> {
    if let Some(at) = text.find(char::is_control) {
        return Err(Wrong::at(at, "a control character"));
    }
    if is_path(text) {
        let mcpb = text.ends_with(".mcpb");
        return Ok(if mcpb { Reference::Mcpb(text.into()) } else { Reference::Directory(text.into()) });
    }
    let after = |prefix: &str| text.strip_prefix(prefix).map(|rest| (rest, prefix.len()));
    if ["https://", "http://"].iter().any(|scheme| text.starts_with(scheme)) && text.contains(".mcpb") {
        return package::mcpb(text).map(Reference::Download);
    }
    if let Some((rest, base)) = after("npm:") {
        package::npm(rest).map(Reference::Npm).map_err(Wrong::shift(base))
    } else if let Some((rest, base)) = after("pypi:") {
        package::pypi(rest).map(Reference::Pypi).map_err(Wrong::shift(base))
    } else if let Some((rest, base)) = after("mcp:") {
        package::mcp(rest).map(Reference::Mcp).map_err(Wrong::shift(base))
    } else if let Some((rest, base)) = after("mcpb:") {
        package::mcpb(rest).map(Reference::Download).map_err(Wrong::shift(base))
    } else if let Some((rest, base)) = after("oci-layout:") {
        layout::parse(rest).map(Reference::OciLayout).map_err(Wrong::shift(base))
    } else {
        name::parse(text).map(Reference::Registry)
    }
}

fn is_path(text: &str) -> bool {
    matches!(text, "." | "..") || text.starts_with("./") || text.starts_with("../") || text.starts_with('/')
}

impl Selector {
    /// The tag to ask a registry for; none for a digest.
    pub(crate) fn tag(&self) -> Option<String> {
        match self {
            Self::Latest => Some("latest".into()),
            Self::Version(version) => Some(version.replace('+', "_")),
            Self::Tag(tag) => Some(tag.clone()),
            Self::Digest(_) => None,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Registry(name) => name.fmt(f),
            Self::Npm(package) => write!(f, "npm:{}{}", package.name, Suffix("@", &package.version)),
            Self::Pypi(package) => write!(f, "pypi:{}{}", package.name, Suffix("==", &package.version)),
            Self::Mcp(package) => write!(f, "mcp:{}{}", package.name, Suffix("@", &package.version)),
            Self::Directory(path) | Self::Mcpb(path) => path.display().fmt(f),
            Self::Download(Download { url, digest }) => write!(f, "mcpb:{url}@{digest}"),
            Self::OciLayout(layout) => {
                write!(f, "oci-layout:{}", layout.dir.display())?;
                layout.reference.iter().try_for_each(|reference| reference.fmt(f))
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.registry.iter().try_for_each(|registry| write!(f, "{registry}/"))?;
        write!(f, "{}{}", self.repository, self.selector)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => Ok(()),
            Self::Version(version) => write!(f, "@{version}"),
            Self::Tag(tag) => write!(f, ":{tag}"),
            Self::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

struct Suffix<'a>(&'a str, &'a Option<String>);

impl fmt::Display for Suffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.iter().try_for_each(|version| write!(f, "{}{version}", self.0))
    }
}

/// What is wrong, at an offset into the part that was being read.
#[derive(Debug)]
struct Wrong {
    at: usize,
    why: String,
    hint: Option<&'static str>,
}

impl Wrong {
    fn at(at: usize, why: impl Into<String>) -> Self {
        Self { at, why: why.into(), hint: None }
    }

    fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// Makes an offset into a part one into the whole that the part begins at `base` of.
    fn shift(base: usize) -> impl Fn(Self) -> Self {
        move |wrong| Self { at: wrong.at + base, ..wrong }
    }
}

/// Refuses the first byte of `text` that `allowed` does not know.
fn only(text: &str, allowed: fn(u8) -> bool, what: &str) -> Result<(), Wrong> {
    let stray = text.char_indices().find(|(_, c)| !c.is_ascii() || !allowed(*c as u8));
    match stray {
        Some((at, c)) => Err(Wrong::at(at, format!("{c:?} does not belong in {what}"))),
        None => Ok(()),
    }
}

fn position(text: &str, at: usize) -> String {
    match text.get(at..).filter(|rest| !rest.is_empty()) {
        Some(rest) => format!("{:?}", rest.chars().take(20).collect::<String>()),
        None => "its end".into(),
    }
}
