//! What an npm registry says of a package, as npm in a cage gets it: the archives are the gate's, and what is too young is not there.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::error::BuildError;

/// What stands for the gate's address in [`Packument::text`].
pub(super) const BASE: &str = "smcp-gate:";

/// One package.
pub(super) struct Packument {
    /// JSON for npm.
    pub(super) text: String,
    /// By version, what may be installed.
    pub(super) releases: BTreeMap<String, Release>,
    /// By version, what is too young, and how old it is.
    pub(super) young: BTreeMap<String, String>,
}

/// One version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Release {
    /// Where its archive is.
    pub(super) archive: String,
    /// As npm writes hashes.
    pub(super) integrity: Option<String>,
    /// Why its publisher says not to use it.
    pub(super) deprecated: Option<String>,
    /// The kind of statement about where it was built that the registry has.
    pub(super) provenance: Option<String>,
    /// Who signed it, by the name of the registry's key, and the signature in base64.
    pub(super) signatures: Vec<(String, String)>,
    /// When it was published, RFC 3339.
    pub(super) published: Option<String>,
}

impl Packument {
    /// Reads an answer, and leaves out what is younger than `least` at the time `now`.
    pub(super) fn read(name: &str, bytes: &[u8], least: Option<Duration>, now: Timestamp) -> Result<Self, BuildError> {
        let strange = |why: String| BuildError::answer("the npm registry", format!("{name}: {why}"));
        let mut value: Value = serde_json::from_slice(bytes).map_err(|why| strange(why.to_string()))?;
        let times = value["time"].clone();
        let Some(versions) = value["versions"].as_object_mut() else { return Err(strange("no versions".into())) };
        let mut young = BTreeMap::new();
        if let Some(least) = least {
            for version in versions.keys() {
                if let Some(age) = too_young(times[version].as_str(), least, now) {
                    young.insert(version.clone(), age);
                }
            }
            versions.retain(|version, _| !young.contains_key(version));
        }
        let mut releases = BTreeMap::new();
        for (version, about) in versions.iter_mut() {
            let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let Some(archive) = text(&about["dist"]["tarball"]) else { continue };
            about["dist"]["tarball"] = format!("{BASE}/tgz/{name}/-/{version}.tgz").into();
            let release = Release {
                archive,
                integrity: text(&about["dist"]["integrity"]),
                deprecated: text(&about["deprecated"]),
                provenance: text(&about["dist"]["attestations"]["provenance"]["predicateType"]),
                signatures: signatures(&about["dist"]["signatures"]),
                published: text(&times[version]),
            };
            releases.insert(version.clone(), release);
        }
        point_to_what_is_there(&mut value, &releases);
        Ok(Packument { text: value.to_string(), releases, young })
    }
}

fn signatures(list: &Value) -> Vec<(String, String)> {
    let one = |one: &Value| Some((one["keyid"].as_str()?.to_owned(), one["sig"].as_str()?.to_owned()));
    list.as_array().into_iter().flatten().filter_map(one).collect()
}

/// How old something is that is too young, in words; what states no time could be of today.
pub(super) fn too_young(published: Option<&str>, least: Duration, now: Timestamp) -> Option<String> {
    let Some(then) = published.and_then(|text| text.parse::<Timestamp>().ok()) else {
        return Some("of unknown age".into());
    };
    let age = now.as_second().saturating_sub(then.as_second());
    let seconds = u64::try_from(age).unwrap_or(0);
    (seconds < least.as_secs()).then(|| in_words(seconds))
}

/// The largest unit that fits.
pub(super) fn in_words(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A tag whose version was left out: `latest` is the highest release below it, any other one is none.
fn point_to_what_is_there(value: &mut Value, releases: &BTreeMap<String, Release>) {
    let Some(tags) = value["dist-tags"].as_object_mut() else { return };
    let below = tags.get("latest").and_then(Value::as_str).and_then(numbers);
    tags.retain(|tag, version| {
        tag == "latest" || version.as_str().is_some_and(|version| releases.contains_key(version))
    });
    let is_there = |version: &Value| version.as_str().is_some_and(|version| releases.contains_key(version));
    if tags.get("latest").is_some_and(is_there) {
        return;
    }
    let fits = releases.keys().filter_map(|version| Some((numbers(version)?, version)));
    let highest = fits.filter(|(own, _)| below.is_none_or(|below| *own <= below)).max();
    match highest {
        Some((_, version)) => drop(tags.insert("latest".into(), version.as_str().into())),
        None => drop(tags.remove("latest")),
    }
}

/// `24.1.0` as numbers; none of a pre-release.
pub(super) fn numbers(version: &str) -> Option<[u64; 3]> {
    let parts: Vec<u64> = version.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn packument() -> Value {
        let version = |version: &str| json!({"version": version, "dist": {"tarball": format!("https://r.test/x/-/x-{version}.tgz"), "integrity": "sha512-a"}});
        let mut all =
            json!({"name": "x", "dist-tags": {"latest": "2.0.0", "next": "3.0.0-a"}, "versions": {}, "time": {}});
        for (name, time) in
            [("1.9.0", "2026-01-01"), ("1.10.0", "2026-01-02"), ("2.0.0", "2026-03-01"), ("3.0.0-a", "2026-01-03")]
        {
            all["versions"][name] = version(name);
            all["time"][name] = format!("{time}T00:00:00.000Z").into();
        }
        all["versions"]["1.9.0"]["deprecated"] = "use 2".into();
        all["versions"]["1.9.0"]["dist"]["attestations"] =
            json!({"provenance": {"predicateType": "https://slsa.dev/provenance/v1"}});
        all
    }

    fn read(value: &Value, least: Option<u64>) -> Packument {
        let day = |days: u64| Duration::from_secs(days * 86_400);
        let now = "2026-03-02T00:00:00Z".parse().unwrap();
        Packument::read("x", value.to_string().as_bytes(), least.map(day), now).unwrap()
    }

    #[test]
    fn archives_are_the_gates() {
        let all = read(&packument(), None);
        assert!(!all.text.contains("r.test") && all.text.contains("smcp-gate:/tgz/x/-/1.10.0.tgz"), "{}", all.text);
        assert_eq!((all.releases.len(), all.young.len()), (4, 0));
        let old = &all.releases["1.9.0"];
        assert_eq!(old.archive, "https://r.test/x/-/x-1.9.0.tgz");
        assert_eq!(old.deprecated.as_deref(), Some("use 2"));
        assert_eq!(old.provenance.as_deref(), Some("https://slsa.dev/provenance/v1"));
    }

    #[test]
    fn what_is_too_young_is_not_there() {
        let old = read(&packument(), Some(7));
        assert_eq!(old.young.keys().collect::<Vec<_>>(), ["2.0.0"]);
        let text: Value = serde_json::from_str(&old.text).unwrap();
        assert_eq!(text["dist-tags"], json!({"latest": "1.10.0", "next": "3.0.0-a"}));
        assert!(text["versions"].get("2.0.0").is_none());
        let nothing = read(&packument(), Some(365));
        let text: Value = serde_json::from_str(&nothing.text).unwrap();
        assert_eq!((text["dist-tags"].clone(), nothing.releases.len()), (json!({}), 0));
        let mut timeless = packument();
        timeless.as_object_mut().unwrap().remove("time");
        assert_eq!(read(&timeless, Some(1)).young["1.9.0"], "of unknown age");
        assert_eq!(read(&timeless, None).releases.len(), 4);
    }

    #[test]
    fn ages() {
        let now = "2026-03-02T00:00:00Z".parse().unwrap();
        let young = |text: &str| too_young(Some(text), Duration::from_secs(86_400), now);
        assert_eq!(young("2026-03-01T00:00:00Z"), None);
        assert_eq!(young("2026-03-01T00:00:01.5Z").as_deref(), Some("23 h"));
        assert_eq!(young("2026-03-03T00:00:00Z").as_deref(), Some("0 s"), "a clock that is ahead");
        assert_eq!(young("yesterday").as_deref(), Some("of unknown age"));
    }
}
