//! Directories that last from run to run: what a manifest asks for by `from: state`, or HOME by `--state NAME`.

use std::path::{Path, PathBuf};

use distribution::Digest;

use super::files::{Files, existing_canonical};
use super::{CallerEnv, Request, Verdict};
use crate::package::Package;
use crate::permissions::{Access, Origin};

/// Grants the package's directories of the set that the flag names.
pub(super) fn grant(
    package: &Package,
    request: &Request,
    caller: &CallerEnv,
    files: &mut Files,
    verdict: &mut Verdict,
) {
    let set = match &request.state {
        Some(name) => name.as_str(),
        None => DEFAULT,
    };
    let set = existing_canonical(&caller.states).join(directory_name(&caller.family)).join(set);
    let mut asked =
        package.manifest.permissions.filesystem.iter().filter(|asked| asked.from == Origin::State).peekable();
    if asked.peek().is_none() && request.state.is_some() {
        let home = caller.home.display();
        if !files.state(&caller.home, set.join(HOME), Access::Rw) {
            verdict
                .usage(format!("--state: {home} is granted already"), "without that grant HOME can last".to_string());
        }
    }
    for asked in asked {
        // A flag or an argument that grants something in its place has answered the request.
        if files.met(asked).is_none() {
            files.state(&asked.target, set.join(&asked.id), asked.access);
        }
    }
}

/// The set without `--state`.
const DEFAULT: &str = "default";

/// The directory of HOME in a set; no id of a manifest begins with a dot.
const HOME: &str = ".home";

/// One file name for each family of packages: readable as far as it goes, and told apart by a hash.
fn directory_name(family: &str) -> PathBuf {
    const READABLE: usize = 60;
    const HASH: usize = 32;
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let readable: String = family.trim_start_matches('.').chars().take(READABLE).map(plain).collect();
    Path::new(&format!("{readable}-{}", &Digest::of(family.as_bytes()).hex()[..HASH])).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_families_never_share_a_directory() {
        let long = "x".repeat(300);
        let names = ["a/b", "a_b", "a:b", "a b", "..", "../..", "", "A/b", "a/b/c", &long, &format!("{long}y")];
        let directories: std::collections::BTreeSet<_> = names.iter().map(|name| directory_name(name)).collect();
        assert_eq!(directories.len(), names.len());
        for directory in directories {
            let name = directory.to_str().unwrap();
            assert!(name.len() < 100 && !name.contains('/') && !name.starts_with('.'), "{name}");
        }
        assert!(directory_name("ghcr.io/acme/tool").to_str().unwrap().starts_with("ghcr.io_acme_tool-"));
    }
}
