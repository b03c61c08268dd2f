//! `smcp.toml`, with the lines of its keys for errors.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::error::BuildError;
use crate::manifest::ManifestError;

/// A file that has been understood as TOML.
pub(super) struct Recipe {
    file: PathBuf,
    text: String,
    value: Value,
}

/// The largest file that is read, in bytes: what it says has to fit into a label.
const MAX_BYTES: u64 = 64 << 10;

impl Recipe {
    pub(super) fn read(file: &Path) -> Result<Self, BuildError> {
        let wrong = |line, why: String| BuildError::Recipe { file: file.to_owned(), line, why };
        let text = match fs::metadata(file) {
            Ok(found) if found.len() > MAX_BYTES => return Err(wrong(None, format!("more than {MAX_BYTES} bytes"))),
            Ok(_) => fs::read_to_string(file),
            Err(source) => Err(source),
        };
        let text = text.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => wrong(None, "not found".into()),
            _ => wrong(None, source.to_string()),
        })?;
        match toml::from_str(&text) {
            Ok(value) => Ok(Self { file: file.to_owned(), text, value }),
            Err(error) => Err(wrong(line_at(&text, error.span().map(|span| span.start)), error.message().into())),
        }
    }

    /// All keys.
    pub(super) fn value(&self) -> Value {
        self.value.clone()
    }

    /// One table as a type; the type's default where there is none.
    pub(super) fn table<T: DeserializeOwned + Default>(&self, key: &str) -> Result<T, BuildError> {
        let whole = DeTable::parse(&self.text).ok().map(Spanned::into_inner);
        let found = whole.into_iter().flatten().find(|(name, _)| name.get_ref() == key);
        let Some((_, table)) = found else { return Ok(T::default()) };
        T::deserialize(ValueDeserializer::from(table)).map_err(|error| {
            let line = line_at(&self.text, error.span().map(|span| span.start));
            BuildError::Recipe { file: self.file.clone(), line, why: format!("{key}: {}", error.message()) }
        })
    }

    /// The error that the value of `key` is wrong.
    pub(super) fn wrong(&self, key: &str, why: impl AsRef<str>) -> BuildError {
        let why = format!("{key}: {}", why.as_ref());
        BuildError::Recipe { file: self.file.clone(), line: self.line(key), why }
    }

    /// The manifest's error at the line of its key.
    pub(super) fn refused(&self, error: ManifestError) -> BuildError {
        let line = match &error {
            ManifestError::Key { key, .. } | ManifestError::UnknownKey { key } | ManifestError::Everything { key } => {
                self.line(key)
            }
            _ => None,
        };
        BuildError::Recipe { file: self.file.clone(), line, why: error.to_string() }
    }

    /// The line of a key such as `permissions.filesystem[0].id`, or of the innermost table around it that is there.
    fn line(&self, key: &str) -> Option<usize> {
        let parsed = DeTable::parse(&self.text).ok()?;
        let (mut found, mut table) = (None, Some(parsed.get_ref()));
        for part in key.split('.') {
            let (name, indexes) = part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
            let Some((key, value)) = table.and_then(|t| t.iter().find(|(key, _)| key.get_ref() == name)) else { break };
            found = Some(key.span().start);
            let inner = indexes.split('[').filter_map(|index| index.trim_end_matches(']').parse::<usize>().ok());
            let value =
                inner.fold(value, |value: &Spanned<DeValue>, index| value.get_ref().get(index).unwrap_or(value));
            if !indexes.is_empty() {
                found = Some(value.span().start);
            }
            table = value.get_ref().as_table();
        }
        line_at(&self.text, found)
    }
}

fn line_at(text: &str, offset: Option<usize>) -> Option<usize> {
    Some(text.get(..offset?)?.matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(text: &str) -> Result<Recipe, BuildError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("smcp.toml"), text).unwrap();
        Recipe::read(&dir.path().join("smcp.toml"))
    }

    fn said(error: &BuildError) -> String {
        let text = error.to_string();
        text[text.find("smcp.toml").unwrap()..].to_owned()
    }

    #[test]
    fn lines() {
        let text =
            "name = \"x\"\n\n[entrypoint]\nargs = [\"a\"]\n\n[[env]]\nname = \"A\"\n\n[[env]]\nname = \"B\"\nx = 1\n";
        let recipe = recipe(text).unwrap();
        let table =
            [("name", 1), ("entrypoint.args", 4), ("entrypoint.nothing", 3), ("env[1].x", 11), ("env[0].name", 7)];
        for (key, line) in table {
            assert_eq!(recipe.line(key), Some(line), "{key}");
        }
        assert_eq!(recipe.line("nothing"), None);
        assert_eq!(said(&recipe.wrong("env[1].x", "is wrong")), "smcp.toml:11: env[1].x: is wrong");
    }

    #[test]
    fn malformed() {
        assert!(said(&recipe("a = 1\nb =\n").err().unwrap()).starts_with("smcp.toml:2: "));
        assert!(said(&recipe("a = 1\na = 2\n").err().unwrap()).starts_with("smcp.toml:2: duplicate key"));
        let missing = Recipe::read(Path::new("/nowhere/smcp.toml")).err().unwrap();
        assert_eq!(said(&missing), "smcp.toml: not found");
        assert!(missing.hint().is_some());
    }
}
