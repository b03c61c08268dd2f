//! The default grants of well-known servers, as they are shown before a package is made: `bundle` puts the same table into manifests.

use std::path::Path;

use distribution::{NPMJS, PYPI, Packages, Reference};
use serde::Deserialize;
use serde_json::Value;

/// One row; what else it has is `bundle`'s affair.
#[derive(Debug, Clone, Deserialize)]
pub struct Known {
    /// As `npm:NAME` or `pypi:NAME`.
    pub name: String,
    /// Why it is granted that.
    pub why: String,
    /// Of its manifest.
    #[serde(default)]
    manifest: Value,
}

/// What a server is granted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// Paths among its arguments, all read-write.
    pub paths: Vec<String>,
    /// Hosts, with their ports.
    pub hosts: Vec<String>,
    /// Programs.
    pub programs: Vec<String>,
}

/// The rows.
pub fn table() -> Vec<Known> {
    serde_saphyr::from_str(include_str!("../../../bundle/src/build/known.yaml")).expect("the table is read by a test")
}

impl Known {
    /// The row of a reference, where it is of the usual registry.
    pub fn of(reference: &Reference, packages: &Packages) -> Option<Known> {
        let name = match reference {
            Reference::Npm(package) => {
                let npm = packages.npm().ok()?;
                (npm.registry_of(&package.name).url() == NPMJS).then(|| format!("npm:{}", package.name))?
            }
            Reference::Pypi(package) => match &packages.python().ok()?.indexes[..] {
                [only] if only.url() == PYPI => format!("pypi:{}", normal(&package.name)),
                _ => return None,
            },
            _ => return None,
        };
        table().into_iter().find(|known| known.name == name)
    }

    /// Whether a variable is a secret of it.
    pub fn is_secret(&self, variable: &str) -> bool {
        let specs = self.manifest["env"].as_array().map_or(&[][..], Vec::as_slice);
        specs.iter().any(|spec| spec["name"] == variable && spec["secret"] == true)
    }

    /// What a run with these arguments is granted.
    pub fn grants(&self, args: &[&str]) -> Defaults {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let words = |value: &Value| list(value).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let permissions = &self.manifest["permissions"];
        let mut granted = Defaults { programs: words(&permissions["subprocess"]["allow"]), ..Defaults::default() };
        for outbound in list(&permissions["network"]["outbound"]) {
            let host = outbound["host"].as_str().unwrap_or_default();
            granted.hosts.extend(list(&outbound["ports"]).iter().map(|port| format!("{host}:{port}")));
        }
        for spec in list(&self.manifest["args"]).iter().filter(|spec| spec["type"] == "path") {
            granted.paths.extend(paths(spec, args));
        }
        granted
    }
}

/// The paths that answer an argument of a manifest.
fn paths(spec: &Value, args: &[&str]) -> Vec<String> {
    let values: Vec<&str> = match spec["flag"].as_str() {
        Some(flag) => {
            let apart = args.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1]);
            let joined = args.iter().filter_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
            apart.chain(joined).collect()
        }
        None => {
            let free = args.iter().copied().filter(|word| !word.starts_with('-'));
            free.take(if spec["repeated"] == true { usize::MAX } else { 1 }).collect()
        }
    };
    let holder = |path: &str| Path::new(path).parent().map(|holder| holder.display().to_string());
    let granted = |path: &str| if spec["holder"] == true { holder(path) } else { Some(path.to_owned()) };
    values.into_iter().filter_map(granted).collect()
}

/// A project's name as PyPI compares it, PEP 503.
pub fn normal(name: &str) -> String {
    let lower = name.to_ascii_lowercase().replace(['_', '.'], "-");
    lower.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arguments_grant() {
        let row = |name: &str| table().into_iter().find(|known| known.name == name).unwrap();
        let files = row("npm:@modelcontextprotocol/server-filesystem").grants(&["/a", "/b", "--x"]);
        assert_eq!(files, Defaults { paths: vec!["/a".into(), "/b".into()], ..Defaults::default() });
        let git = row("pypi:mcp-server-git").grants(&["--repository", "/r", "-r=/s"]);
        assert_eq!(git.paths, ["/r", "/s"]);
        assert_eq!(git.programs, ["/usr/bin/git"]);
        assert_eq!(row("pypi:mcp-server-sqlite").grants(&["--db-path=/d/x.db"]).paths, ["/d"]);
        let github = row("npm:@modelcontextprotocol/server-github");
        assert_eq!(github.grants(&[]).hosts, ["api.github.com:443"]);
        assert!(github.is_secret("GITHUB_PERSONAL_ACCESS_TOKEN") && !github.is_secret("LANG"));
        assert_eq!(normal("MCP_server.git"), "mcp-server-git");
    }
}
