//! What an index says of a python project (PEP 503, 691, 700), as pip in a cage gets it: wheels alone, their addresses are the gate's, and
//! what is too young is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use distribution::Digest;
use jiff::Timestamp;
use serde_json::Value;

use super::error::BuildError;
use super::packument::too_young;
use super::provenance::Provenance;

/// JSON first: HTML has no times.
pub(super) const ACCEPT: &str =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// One project.
pub(super) struct Project {
    /// As PEP 503 has it.
    pub(super) name: String,
    /// What may be installed.
    pub(super) wheels: Vec<Wheel>,
    /// By version, what is too young, and how old it is.
    pub(super) young: BTreeMap<String, String>,
}

/// One file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wheel {
    pub(super) file: String,
    pub(super) url: String,
    pub(super) digest: Option<Digest>,
    pub(super) requires_python: Option<String>,
    /// Why its publisher took it back; the reason may be empty.
    pub(super) yanked: Option<String>,
    /// Where attestations of it are.
    pub(super) provenance: Option<String>,
    pub(super) published: Option<String>,
    /// Where it was built, by these; known once it was passed on.
    pub(super) built: Option<Provenance>,
    has_metadata: bool,
}

impl Project {
    /// Reads an answer from `url`.
    pub(super) fn read(
        name: &str,
        url: &str,
        bytes: &[u8],
        kind: &str,
        least: Option<Duration>,
        now: Timestamp,
    ) -> Result<Project, BuildError> {
        let strange = |why: String| BuildError::answer("the index", format!("{name}: {why}"));
        let all = match kind.contains("json") {
            true => from_json(bytes).map_err(|why| strange(why.to_string()))?,
            false => from_html(&String::from_utf8_lossy(bytes)),
        };
        let (mut wheels, mut young) = (Vec::new(), BTreeMap::new());
        for mut wheel in all.into_iter().filter(|wheel| wheel.file.ends_with(".whl") && is_plain(&wheel.file)) {
            wheel.url = absolute(url, &wheel.url);
            wheel.provenance = wheel.provenance.map(|place| absolute(url, &place));
            match least.and_then(|least| too_young(wheel.published.as_deref(), least, now)) {
                Some(age) => drop(young.insert(wheel.version().to_owned(), age)),
                None => wheels.push(wheel),
            }
        }
        Ok(Project { name: name.into(), wheels, young })
    }

    /// The page for pip. `first` is the number of the first wheel.
    pub(super) fn page(&self, base: &str, first: usize) -> String {
        let line = |(at, wheel): (usize, &Wheel)| {
            let digest = wheel.digest.as_ref().map(|digest| format!("#sha256={}", digest.hex())).unwrap_or_default();
            let attribute = |name: &str, value: &Option<String>| {
                value.as_ref().map(|value| format!(" {name}=\"{}\"", escaped(value))).unwrap_or_default()
            };
            let metadata = if wheel.has_metadata { " data-dist-info-metadata=\"true\"" } else { "" };
            let python = attribute("data-requires-python", &wheel.requires_python);
            let yanked = attribute("data-yanked", &wheel.yanked);
            let file = &wheel.file;
            format!("<a href=\"{base}/whl/{}/{file}{digest}\"{python}{yanked}{metadata}>{file}</a><br>\n", first + at)
        };
        let lines: String = self.wheels.iter().enumerate().map(line).collect();
        format!("<!DOCTYPE html><html><body>\n{lines}</body></html>\n")
    }

    /// Changes whenever what is to be had does.
    pub(super) fn fingerprint(&self) -> String {
        let line = |wheel: &Wheel| format!("{} {:?} {:?}\n", wheel.file, wheel.digest, wheel.yanked);
        Digest::of(self.wheels.iter().map(line).collect::<String>().as_bytes()).to_string()
    }

    /// Whether there is something that was not taken back.
    pub(super) fn is_any_left(&self) -> bool {
        self.wheels.iter().any(|wheel| wheel.yanked.is_none())
    }

    /// What was taken back, each with the reason.
    pub(super) fn yanked(&self) -> Vec<String> {
        let yanked = self.wheels.iter().filter_map(|wheel| Some((wheel.version(), wheel.yanked.as_deref()?)));
        let words =
            |(version, why): (&str, &str)| if why.is_empty() { version.into() } else { format!("{version} ({why})") };
        yanked.map(words).collect::<BTreeSet<String>>().into_iter().collect()
    }
}

impl Wheel {
    /// The second part of its name.
    pub(super) fn version(&self) -> &str {
        self.file.split('-').nth(1).unwrap_or_default()
    }
}

fn from_json(bytes: &[u8]) -> Result<Vec<Wheel>, serde_json::Error> {
    let value: Value = serde_json::from_slice(bytes)?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let wheel = |file: &Value| Wheel {
        file: text(&file["filename"]).unwrap_or_default(),
        url: text(&file["url"]).unwrap_or_default(),
        digest: file["hashes"]["sha256"].as_str().and_then(|hex| format!("sha256:{hex}").parse().ok()),
        requires_python: text(&file["requires-python"]).filter(|text| !text.is_empty()),
        yanked: match &file["yanked"] {
            Value::Bool(true) => Some(String::new()),
            reason => text(reason),
        },
        provenance: text(&file["provenance"]),
        published: text(&file["upload-time"]),
        built: None,
        has_metadata: ["core-metadata", "dist-info-metadata"]
            .iter()
            .any(|key| !matches!(file[*key], Value::Null | Value::Bool(false))),
    };
    Ok(value["files"].as_array().into_iter().flatten().map(wheel).collect())
}

/// The links of a page: what smaller indexes answer.
fn from_html(page: &str) -> Vec<Wheel> {
    let links = page.split("<a ").skip(1);
    links
        .filter_map(|link| {
            let (attributes, rest) = link.split_once('>')?;
            let file = unescaped(rest.split('<').next()?.trim());
            let attribute = |name: &str| {
                let at = attributes.find(&format!("{name}="))? + name.len() + 1;
                let quote = attributes[at..].chars().next().filter(|c| *c == '"' || *c == '\'')?;
                Some(unescaped(attributes[at + 1..].split(quote).next()?))
            };
            let href = attribute("href")?;
            let (url, fragment) = href.split_once('#').map_or((href.as_str(), ""), |(url, fragment)| (url, fragment));
            let digest = fragment.strip_prefix("sha256=").and_then(|hex| format!("sha256:{hex}").parse().ok());
            let plainly = attributes.split_whitespace().any(|word| word == "data-yanked");
            Some(Wheel {
                file,
                url: url.into(),
                digest,
                requires_python: attribute("data-requires-python"),
                yanked: attribute("data-yanked").or_else(|| plainly.then(String::new)),
                provenance: attribute("data-provenance"),
                published: None,
                built: None,
                has_metadata: attribute("data-core-metadata")
                    .or_else(|| attribute("data-dist-info-metadata"))
                    .is_some(),
            })
        })
        .collect()
}

/// A name that can stand in an address and in a page.
fn is_plain(file: &str) -> bool {
    file.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+!".contains(&b))
}

/// An address as the page at `url` means it.
fn absolute(url: &str, href: &str) -> String {
    if href.contains("://") {
        return href.into();
    }
    let start = url.find("://").map_or(0, |at| at + 3);
    let host = url[start..].find('/').map_or(url.len(), |at| start + at);
    if href.starts_with("//") {
        return format!("{}{href}", &url[..start - 2]);
    }
    if href.starts_with('/') {
        return format!("{}{href}", &url[..host]);
    }
    let mut parts: Vec<&str> = url[host..].split('/').collect();
    parts.pop();
    for part in href.split('/') {
        match part {
            "." => {}
            ".." if parts.len() > 1 => drop(parts.pop()),
            ".." => {}
            part => parts.push(part),
        }
    }
    format!("{}{}", &url[..host], parts.join("/"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescaped(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    text.replace("&#x27;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, text: &str, least: Option<u64>) -> Project {
        let least = least.map(|days| Duration::from_secs(days * 86_400));
        let now = "2026-03-02T00:00:00Z".parse().unwrap();
        Project::read("a-b", "https://i.test/simple/a-b/", text.as_bytes(), kind, least, now).unwrap()
    }

    #[test]
    fn both_forms_say_the_same() {
        let hex = "ab".repeat(32);
        let json = format!(
            r#"{{"files": [
                {{"filename": "a_b-1.0-py3-none-any.whl", "url": "../../f/a_b-1.0-py3-none-any.whl", "hashes": {{"sha256": "{hex}"}},
                  "requires-python": ">=3.8", "yanked": "broken & <bad>", "core-metadata": {{"sha256": "x"}}}},
                {{"filename": "a_b-2.0-py3-none-any.whl", "url": "https://f.test/w", "hashes": {{}}, "yanked": false}},
                {{"filename": "a_b-2.0.tar.gz", "url": "https://f.test/s", "hashes": {{}}}}]}}"#
        );
        let html = format!(
            r##"<html><a href="../../f/a_b-1.0-py3-none-any.whl#sha256={hex}" data-requires-python="&gt;=3.8" data-yanked="broken &amp; &lt;bad&gt;"
                data-core-metadata="sha256=x">a_b-1.0-py3-none-any.whl</a><a href='https://f.test/w'>a_b-2.0-py3-none-any.whl</a>
                <a href="https://f.test/s">a_b-2.0.tar.gz</a></html>"##
        );
        let (json, html) = (read("application/vnd.pypi.simple.v1+json", &json, None), read("text/html", &html, None));
        assert_eq!(json.wheels, html.wheels);
        assert_eq!(json.wheels.len(), 2, "what would have to be built is not there");
        assert_eq!(json.wheels[0].url, "https://i.test/f/a_b-1.0-py3-none-any.whl");
        assert_eq!((json.wheels[0].version(), json.is_any_left()), ("1.0", true));
        assert_eq!(json.yanked(), ["1.0 (broken & <bad>)"]);
        let page = json.page("http://127.0.0.1:1/w", 7);
        let link = format!("<a href=\"http://127.0.0.1:1/w/whl/7/a_b-1.0-py3-none-any.whl#sha256={hex}\"");
        assert!(
            page.contains(&link)
                && page.contains("/whl/8/a_b-2.0")
                && page.contains("data-yanked=\"broken &amp; &lt;bad&gt;\""),
            "{page}"
        );
        assert!(!page.contains("f.test") && !page.contains("i.test"), "{page}");
    }

    #[test]
    fn what_is_too_young_is_not_there() {
        let text = r#"{"files": [{"filename": "a_b-1-py3-none-any.whl", "url": "x", "hashes": {}, "upload-time": "2026-01-01T00:00:00Z"},
            {"filename": "a_b-2-py3-none-any.whl", "url": "y", "hashes": {}, "upload-time": "2026-03-01T12:00:00.5Z"}]}"#;
        let all = read("json", text, None);
        let old = read("json", text, Some(7));
        assert_eq!((all.wheels.len(), old.wheels.len(), old.young["2"].as_str()), (2, 1, "12 h"));
        assert_ne!(all.fingerprint(), old.fingerprint());
        let html = r#"<a href="x">a_b-1-py3-none-any.whl</a>"#;
        assert_eq!(read("text/html", html, Some(1)).young["1"], "of unknown age");
    }

    #[test]
    fn addresses() {
        for (href, want) in [
            ("x.whl", "https://i.test/simple/a-b/x.whl"),
            ("./x", "https://i.test/simple/a-b/x"),
            ("/x", "https://i.test/x"),
            ("//f.test/x", "https://f.test/x"),
            ("../../../../x", "https://i.test/x"),
        ] {
            assert_eq!(absolute("https://i.test/simple/a-b/", href), want, "{href}");
        }
    }
}
