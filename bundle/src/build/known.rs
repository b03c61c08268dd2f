//! Well-known servers: what they are granted without a flag, as data (`known.yaml`), and names that look like theirs.

use distribution::{NPMJS, PYPI, Packages, Reference, normal_name};
use serde::Deserialize;
use serde_json::Value;

use super::error::BuildError;

/// One row.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// As `npm:NAME` or `pypi:NAME`.
    pub name: String,
    /// Why it is granted that.
    pub why: String,
    /// Debian packages whose programs it starts.
    #[serde(default)]
    pub(super) debian: Vec<String>,
    /// `args`, `env` and `permissions` of its manifest.
    #[serde(default)]
    pub manifest: Option<Value>,
}

/// The row of a source, where it is asked for at the usual registry: elsewhere a name is somebody else's.
///
/// # Errors
/// Where the user's settings cannot be read.
pub fn known(source: &Reference, packages: &Packages) -> Result<Option<Known>, BuildError> {
    let name = match source {
        Reference::Npm(package) if packages.npm()?.registry_of(&package.name).url() == NPMJS => {
            format!("npm:{}", package.name)
        }
        Reference::Pypi(package) => match &packages.python()?.indexes[..] {
            [only] if only.url() == PYPI => format!("pypi:{}", normal_name(&package.name)),
            _ => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(well_known().into_iter().find(|known| known.name == name))
}

impl Known {
    /// Adds to a manifest what is granted, and why.
    pub(super) fn grant(&self, manifest: &mut Value) {
        let Some(Value::Object(more)) = &self.manifest else { return };
        for (key, value) in more {
            manifest[key] = value.clone();
        }
        manifest["defaults"] = self.why.as_str().into();
    }
}

/// The well-known server whose name is hardly another than that of a source which is none.
pub fn resembles(source: &Reference) -> Option<String> {
    let name = match source {
        Reference::Npm(package) => format!("npm:{}", package.name),
        Reference::Pypi(package) => format!("pypi:{}", normal_name(&package.name)),
        _ => return None,
    };
    let names: Vec<String> = well_known().into_iter().map(|known| known.name).collect();
    if names.contains(&name) {
        return None;
    }
    let near = names.into_iter().map(|known| (differences(&known, &name), known)).filter(|(count, _)| *count <= 2);
    near.min().map(|(_, known)| known)
}

/// The rows.
pub fn well_known() -> Vec<Known> {
    serde_saphyr::from_str(include_str!("known.yaml")).expect("the table is read by a test")
}

/// How many letters are added, left out, others or swapped between two names.
fn differences(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=other.len()).collect()];
    for i in 1..=one.len() {
        let mut row = vec![i];
        for j in 1..=other.len() {
            let change = rows[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::Manifest;

    #[test]
    fn every_row_is_a_manifest() {
        let mut names = Vec::new();
        for known in well_known() {
            let source: Reference = known.name.parse().unwrap();
            assert!(matches!(source, Reference::Npm(_) | Reference::Pypi(_)), "{}", known.name);
            assert!(!known.why.is_empty() && !names.contains(&known.name), "{}", known.name);
            let mut manifest = json!({"schemaVersion": 1, "name": "x", "version": "1", "entrypoint": {"args": ["/x"]}});
            known.grant(&mut manifest);
            let read = Manifest::from_value(&manifest).unwrap_or_else(|why| panic!("{}: {why}", known.name));
            assert_eq!(read.extra.contains_key("defaults"), known.manifest.is_some());
            names.push(known.name);
        }
    }

    #[test]
    fn names_that_look_like_others() {
        for (text, want) in [
            ("npm:@modelcontextprotocol/server-filesytem", Some("npm:@modelcontextprotocol/server-filesystem")),
            ("npm:@modelcontextprotocl/server-memory", Some("npm:@modelcontextprotocol/server-memory")),
            ("pypi:mcp-sevrer-git", Some("pypi:mcp-server-git")),
            ("pypi:mcp-server-tim", Some("pypi:mcp-server-time")),
            ("pypi:MCP_server.git", None),
            ("pypi:mcp-server-fetch", None),
            ("npm:left-pad", None),
            ("./dir", None),
        ] {
            assert_eq!(resembles(&text.parse().unwrap()).as_deref(), want, "{text}");
        }
    }
}
