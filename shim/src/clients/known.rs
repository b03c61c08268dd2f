//! The default grants of well-known servers, as they are shown before a package is made.

use std::path::Path;

use bundle::build::Known;
use serde_json::Value;

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

/// Whether a variable is a secret of a well-known server.
pub fn is_secret(known: &Known, variable: &str) -> bool {
    let env = known.manifest.as_ref().and_then(|manifest| manifest["env"].as_array());
    env.into_iter().flatten().any(|spec| spec["name"] == variable && spec["secret"] == true)
}

/// What a run of it with these arguments is granted.
pub fn grants(known: &Known, args: &[&str]) -> Defaults {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let words = |value: &Value| list(value).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let Some(manifest) = &known.manifest else { return Defaults::default() };
    let permissions = &manifest["permissions"];
    let mut granted = Defaults { programs: words(&permissions["subprocess"]["allow"]), ..Defaults::default() };
    for outbound in list(&permissions["network"]["outbound"]) {
        let host = outbound["host"].as_str().unwrap_or_default();
        granted.hosts.extend(list(&outbound["ports"]).iter().map(|port| format!("{host}:{port}")));
    }
    for spec in list(&manifest["args"]).iter().filter(|spec| spec["type"] == "path") {
        granted.paths.extend(paths(spec, args));
    }
    granted
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

#[cfg(test)]
mod tests {
    use bundle::build::well_known;

    use super::*;

    #[test]
    fn what_arguments_grant() {
        let row = |name: &str| well_known().into_iter().find(|known| known.name == name).unwrap();
        let files = grants(&row("npm:@modelcontextprotocol/server-filesystem"), &["/a", "/b", "--x"]);
        assert_eq!(files, Defaults { paths: vec!["/a".into(), "/b".into()], ..Defaults::default() });
        let git = grants(&row("pypi:mcp-server-git"), &["--repository", "/r", "-r=/s"]);
        assert_eq!(git.paths, ["/r", "/s"]);
        assert_eq!(git.programs, ["/usr/bin/git"]);
        assert_eq!(grants(&row("pypi:mcp-server-sqlite"), &["--db-path=/d/x.db"]).paths, ["/d"]);
        let github = row("npm:@modelcontextprotocol/server-github");
        assert_eq!(grants(&github, &[]).hosts, ["api.github.com:443"]);
        assert!(is_secret(&github, "GITHUB_PERSONAL_ACCESS_TOKEN") && !is_secret(&github, "LANG"));
    }
}
