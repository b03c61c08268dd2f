//! Where a value of a policy came from.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody stated it.
    Default,
    /// A file.
    File {
        /// Its path.
        path: Arc<Path>,
        /// The line of the value, from 1.
        line: u64,
    },
    /// An environment variable.
    Variable(String),
    /// A flag, as `--min-cert-level`.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File { path, line } => write!(f, "{}:{line}", path.display()),
            Source::Variable(name) => f.write_str(name),
            Source::Flag(flag) => f.write_str(flag),
        }
    }
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

impl<T> Sourced<T> {
    /// Another value that came from the same place.
    pub fn with<U>(&self, value: U) -> Sourced<U> {
        Sourced { value, source: self.source.clone() }
    }
}

/// The stricter of two values, by an order in which what is stricter is greater; of equal ones the first.
pub(super) fn stricter<T: Ord>(one: Option<Sourced<T>>, other: Option<Sourced<T>>) -> Option<Sourced<T>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.value > one.value { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// The lower of two bounds; of equal ones the first.
pub(super) fn lower<T: Ord>(one: Option<Sourced<T>>, other: Option<Sourced<T>>) -> Option<Sourced<T>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.value < one.value { other } else { one }),
        (one, other) => one.or(other),
    }
}
