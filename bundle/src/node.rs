//! JSON that is read strictly: a value that knows the path of its key, so that
//! every error can name it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::manifest::ManifestError;

/// One value and the path that leads to it, such as `limits.memory`.
pub(crate) struct Node<'a> {
    path: String,
    value: &'a Value,
}

/// The members of an object, each taken at most once.
pub(crate) struct Fields<'a> {
    path: String,
    map: &'a Map<String, Value>,
    seen: BTreeSet<&'static str>,
}

type Result<T> = std::result::Result<T, ManifestError>;

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value) -> Node<'a> {
        Node { path: String::new(), value }
    }

    pub(crate) fn path(&self) -> &str {
        if self.path.is_empty() { "the manifest" } else { &self.path }
    }

    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// The error that this value is wrong.
    pub(crate) fn wrong(&self, why: impl Into<String>) -> ManifestError {
        ManifestError::Key { key: self.path().into(), why: why.into() }
    }

    pub(crate) fn fields(&self) -> Result<Fields<'a>> {
        let map = self.value.as_object().ok_or_else(|| self.wrong("must be an object"))?;
        Ok(Fields { path: self.path.clone(), map, seen: BTreeSet::new() })
    }

    pub(crate) fn list(&self) -> Result<Vec<Node<'a>>> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("must be a list"))?;
        let node = |(i, value)| Node { path: format!("{}[{i}]", self.path), value };
        Ok(list.iter().enumerate().map(node).collect())
    }

    pub(crate) fn bool(&self) -> Result<bool> {
        self.value.as_bool().ok_or_else(|| self.wrong("must be true or false"))
    }

    /// A text without NUL, which no argument, variable or path can hold.
    pub(crate) fn string(&self) -> Result<&'a str> {
        let text = self.value.as_str().ok_or_else(|| self.wrong("must be a text"))?;
        if text.contains('\0') {
            return Err(self.wrong("holds a NUL"));
        }
        Ok(text)
    }

    /// A text of 1 to 255 bytes without blanks and control characters.
    pub(crate) fn word(&self) -> Result<&'a str> {
        let text = self.string()?;
        if text.is_empty() || text.len() > 255 {
            return Err(self.wrong("must have 1 to 255 bytes"));
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(self.wrong("holds a blank or a control character"));
        }
        Ok(text)
    }

    /// A positive whole number, as a JSON number.
    pub(crate) fn count(&self) -> Result<u32> {
        let number = self.value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        number.ok_or_else(|| self.wrong(format!("{} is no whole number from 1 to {}", self.value, u32::MAX)))
    }

    /// An absolute path without `..` that is not `/` itself.
    pub(crate) fn absolute_path(&self) -> Result<PathBuf> {
        let path = self.absolute_path_or_root()?;
        if path == Path::new("/") {
            return Err(self.wrong("must not be `/`"));
        }
        Ok(path)
    }

    /// An absolute path without `..`.
    pub(crate) fn absolute_path_or_root(&self) -> Result<PathBuf> {
        let path = Path::new(self.string()?);
        if !path.is_absolute() {
            return Err(self.wrong("must be an absolute path"));
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(self.wrong("must not hold `..`"));
        }
        Ok(path.components().collect())
    }
}

impl<'a> Fields<'a> {
    pub(crate) fn optional(&mut self, key: &'static str) -> Option<Node<'a>> {
        self.seen.insert(key);
        let value = self.map.get(key)?;
        Some(Node { path: self.key_path(key), value })
    }

    pub(crate) fn required(&mut self, key: &'static str) -> Result<Node<'a>> {
        let path = self.key_path(key);
        self.optional(key).ok_or(ManifestError::Key { key: path, why: "is missing".into() })
    }

    /// Members that were not taken are errors.
    pub(crate) fn close(self) -> Result<()> {
        match self.map.keys().find(|key| !self.seen.contains(key.as_str())) {
            Some(key) => Err(ManifestError::UnknownKey { key: self.key_path(key) }),
            None => Ok(()),
        }
    }

    /// Members that were not taken are kept.
    pub(crate) fn rest(self) -> BTreeMap<String, Value> {
        let left = self.map.iter().filter(|(key, _)| !self.seen.contains(key.as_str()));
        left.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn key_path(&self, key: &str) -> String {
        let key = key.escape_debug();
        if self.path.is_empty() { key.to_string() } else { format!("{}.{key}", self.path) }
    }
}
