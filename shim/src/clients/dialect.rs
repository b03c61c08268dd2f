//! The languages of clients' configuration files: from text to what stands where, and how a text is written in each.

use super::tree::Node;
use super::{json, toml, yaml};

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// JSON, with comments and commas at the end of lists, which some clients take.
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

/// Why a text cannot be read. Nothing of the text stands in it: that may be somebody's secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Broken {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
}

impl Broken {
    /// At an offset into a text.
    pub fn at(text: &str, offset: usize, why: impl Into<String>) -> Broken {
        let before = &text.as_bytes()[..offset.min(text.len())];
        Broken { line: 1 + before.iter().filter(|byte| **byte == b'\n').count(), why: why.into() }
    }
}

impl Dialect {
    /// What stands in a text without a byte order mark; none in one that holds nothing.
    ///
    /// # Errors
    /// Where the text is none of this language.
    pub fn read(self, text: &str) -> Result<Option<Node>, Broken> {
        match self {
            Dialect::Json => json::read(text),
            Dialect::Toml => toml::read(text).map(Some),
            Dialect::Yaml => yaml::read(text),
        }
    }

    /// A text as this language has it. The escapes of JSON are also TOML's, and YAML's between double quotes.
    pub fn quoted(self, text: &str) -> String {
        let quoted = serde_json::to_string(text).expect("a text serialises");
        // TOML and YAML have no bare DEL, and YAML no bare NEL.
        quoted.replace('\u{7f}', "\\u007f").replace('\u{85}', "\\u0085")
    }

    /// Where a comment begins that stands at the head of `rest`, and its length with all its bytes.
    pub fn comment(self, rest: &str) -> Option<usize> {
        let line = || rest.find('\n').unwrap_or(rest.len());
        match self {
            Dialect::Json if rest.starts_with("//") => Some(line()),
            Dialect::Json if rest.starts_with("/*") => Some(rest.find("*/").map_or(rest.len(), |end| end + 2)),
            Dialect::Toml | Dialect::Yaml if rest.starts_with('#') => Some(line()),
            _ => None,
        }
    }
}
