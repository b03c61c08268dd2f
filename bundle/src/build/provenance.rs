//! Where a package was built, as its registry has it: SLSA provenance of npm, in bundles of sigstore, and attestations of PyPI (PEP 740).
//!
//! Each is verified offline, by the authorities and logs of a trust root, about the hash of the very file; and compared with what the file
//! says of itself (npm: the repository of its `package.json`) or its index of the publisher (PyPI). One that is there and does not hold
//! stops the build. A registry that says nothing of any is no better off for it: that one exists is the registry's word.

use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use distribution::{Digest, normal_name};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::attest::{Builder, IN_TOTO, Root};

/// What was made of the statements about one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Provenance {
    /// The kind of statement: the type of its predicate.
    kind: Option<String>,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Verified(Builder),
    /// There is one, and nothing is known by it.
    Unverified(String),
}

/// An archive of npm's.
pub(super) struct NpmFile<'a> {
    pub(super) name: &'a str,
    pub(super) version: &'a str,
    /// SHA-512.
    pub(super) digest: &'a Digest,
    /// As its `package.json` has it.
    pub(super) repository: Option<String>,
}

const SLSA: &str = "https://slsa.dev/provenance/";
const PUBLISH: &str = "https://docs.pypi.org/attestations/publish/v1";
/// Who vouches for workflows of GitHub, of GitLab and for accounts of Google.
const OF_GITHUB: &str = "https://token.actions.githubusercontent.com";
const OF_GITLAB: &str = "https://gitlab.com";
const OF_GOOGLE: &str = "https://accounts.google.com";
/// The largest `package.json` that is read, and how much of an archive is looked through for it, in bytes.
const MAX_DESCRIBED: u64 = 4 << 20;
const MAX_UNPACKED: u64 = 4 << 30;

impl Provenance {
    /// One that is stated, and of which nothing is known.
    pub(super) fn unverified(kind: Option<String>, why: impl Into<String>) -> Provenance {
        Provenance { kind, outcome: Outcome::Unverified(why.into()) }
    }

    /// What npm's registry answered about a file. The error says what is false.
    pub(super) fn of_npm(file: &NpmFile<'_>, answer: &[u8], roots: &[Root]) -> Result<Provenance, String> {
        let answer: Value = serde_json::from_slice(answer).map_err(|why| format!("it is no JSON: {why}"))?;
        let is_slsa = |one: &&Value| one["predicateType"].as_str().is_some_and(|kind| kind.starts_with(SLSA));
        let name = format!("pkg:npm/{}@{}", file.name.replacen('@', "%40", 1), file.version);
        let mut found = None;
        for one in answer["attestations"].as_array().into_iter().flatten().filter(is_slsa) {
            let provenance = verified(&one["bundle"], file.digest, roots, |statement, builder| {
                if !statement.kind.starts_with(SLSA) {
                    return Err(format!("its statement is of the kind {}", statement.kind.escape_debug()));
                }
                statement.names(|subject| subject == name)?;
                let own = file.repository.as_deref().ok_or("the package names no repository")?;
                match builder.repository.as_deref() {
                    Some(built) if repository(built) == repository(own) => Ok(None),
                    built => Err(format!(
                        "it was built in {}, and the package names {own}",
                        built.unwrap_or("no repository").escape_debug()
                    )),
                }
            })?;
            found = better(found, provenance);
        }
        Ok(found
            .unwrap_or_else(|| Provenance::unverified(None, "the registry has no provenance of a kind that is read")))
    }

    /// What an index of python answered about a file. The error says what is false.
    pub(super) fn of_python(file: &str, digest: &Digest, answer: &[u8], roots: &[Root]) -> Result<Provenance, String> {
        let answer: Value = serde_json::from_slice(answer).map_err(|why| format!("it is no JSON: {why}"))?;
        let mut found = None;
        for by in answer["attestation_bundles"].as_array().into_iter().flatten() {
            for one in by["attestations"].as_array().into_iter().flatten() {
                let provenance = verified(&as_bundle(one), digest, roots, |statement, builder| {
                    if statement.kind != PUBLISH && !statement.kind.starts_with(SLSA) {
                        return Err(format!("its statement is of the kind {}", statement.kind.escape_debug()));
                    }
                    statement.names(|subject| normal_name(subject) == normal_name(file))?;
                    is_of(&by["publisher"], builder)
                })?;
                found = better(found, provenance);
            }
        }
        Ok(found.unwrap_or_else(|| Provenance::unverified(None, "the index has no attestation of it")))
    }

    /// For `source` of a manifest.
    pub(super) fn pairs(&self) -> Vec<(&'static str, Option<String>)> {
        let mut pairs = vec![("provenance", self.kind.clone())];
        match &self.outcome {
            Outcome::Unverified(why) => pairs.push(("provenanceNotVerified", Some(why.clone()))),
            Outcome::Verified(builder) => pairs.extend([
                ("builtBy", Some(builder.workflow.clone().unwrap_or_else(|| builder.identity.clone()))),
                ("builtFrom", builder.repository.clone()),
                ("builtFromCommit", builder.commit.clone()),
                ("builtAt", Some(builder.signed_at.to_string())),
            ]),
        }
        pairs
    }
}

/// What was verified is worth more than what was not.
fn better(one: Option<Provenance>, other: Provenance) -> Option<Provenance> {
    match one {
        Some(one) if matches!(one.outcome, Outcome::Verified(_)) => Some(one),
        _ => Some(other),
    }
}

/// What a bundle says, signed.
struct Said {
    kind: String,
    subjects: Vec<String>,
}

impl Said {
    fn of(bundle: &Value) -> Option<Said> {
        let payload = STANDARD.decode(bundle["dsseEnvelope"]["payload"].as_str()?).ok()?;
        let statement: Value = serde_json::from_slice(&payload).ok()?;
        let name = |subject: &Value| subject["name"].as_str().map(str::to_owned);
        let subjects = statement["subject"].as_array()?.iter().filter_map(name).collect();
        Some(Said { kind: statement["predicateType"].as_str()?.to_owned(), subjects })
    }

    fn names(&self, is_it: impl Fn(&str) -> bool) -> Result<(), String> {
        match self.subjects.iter().any(|subject| is_it(subject)) {
            true => Ok(()),
            false => Err(format!("it is about {}", self.subjects.join(", ").escape_debug())),
        }
    }
}

/// Verifies a bundle about a file by one of the trust roots, then asks whether it is by whom it should be: `is_of` may say that it cannot
/// tell.
fn verified(
    bundle: &Value,
    digest: &Digest,
    roots: &[Root],
    is_of: impl Fn(&Said, &Builder) -> Result<Option<String>, String>,
) -> Result<Provenance, String> {
    let said = Said::of(bundle).ok_or("it holds no statement")?;
    let kind = Some(said.kind.clone());
    let entries = bundle["verificationMaterial"]["tlogEntries"].as_array().map_or(&[][..], Vec::as_slice);
    if !entries.is_empty() && entries.iter().any(|entry| !entry["inclusionProof"].is_object()) {
        // As npm had them in 2023.
        return Ok(Provenance::unverified(kind, "its entry in the log is without a proof"));
    }
    let text = bundle.to_string();
    let (mut first, mut builder) = (None, None);
    for root in roots {
        match root.builder(&text, digest) {
            Ok(found) => {
                builder = Some(found);
                break;
            }
            Err(why) => drop(first.get_or_insert(why)),
        }
    }
    let Some(builder) = builder else { return Err(first.unwrap_or_else(|| "there is no trust root".into())) };
    Ok(match is_of(&said, &builder)? {
        None => Provenance { kind, outcome: Outcome::Verified(builder) },
        Some(why) => Provenance::unverified(kind, why),
    })
}

/// An attestation as PEP 740 has it, in sigstore's form: the same parts by other names.
fn as_bundle(attestation: &Value) -> Value {
    let material = &attestation["verification_material"];
    let base64 = |value: &Value| value.as_str().map(|text| text.replace(['\n', '\r'], ""));
    json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {
            "certificate": {"rawBytes": base64(&material["certificate"])},
            "tlogEntries": material["transparency_entries"],
        },
        "dsseEnvelope": {
            "payload": base64(&attestation["envelope"]["statement"]),
            "payloadType": IN_TOTO,
            "signatures": [{"sig": base64(&attestation["envelope"]["signature"]), "keyid": ""}],
        },
    })
}

/// Whether a certificate is of the publisher that the index names; of a kind of publisher that is not known here nothing can be told.
fn is_of(publisher: &Value, builder: &Builder) -> Result<Option<String>, String> {
    let text = |key: &str| publisher[key].as_str().unwrap_or_default();
    let (issuer, repository, workflow) = match text("kind") {
        "GitHub" => {
            let repository = format!("https://github.com/{}", text("repository"));
            (OF_GITHUB, repository.clone(), format!("{repository}/.github/workflows/{}", text("workflow")))
        }
        "GitLab" => {
            let repository = format!("https://gitlab.com/{}", text("repository"));
            (OF_GITLAB, repository.clone(), format!("{repository}//{}", text("workflow_filepath")))
        }
        "Google" if builder.issuer == OF_GOOGLE && builder.identity == text("email") => return Ok(None),
        "Google" => return Err(format!("it is by {}, and its publisher is {}", builder.identity, text("email"))),
        kind => return Ok(Some(format!("what a publisher of the kind {} is is not known here", kind.escape_debug()))),
    };
    let same = |one: Option<&str>, other: &str| one.is_some_and(|one| one.eq_ignore_ascii_case(other));
    let ran = builder.workflow.as_deref().map(|workflow| workflow.split('@').next().unwrap_or_default());
    if builder.issuer == issuer && same(builder.repository.as_deref(), &repository) && same(ran, &workflow) {
        return Ok(None);
    }
    let ran = builder.workflow.as_deref().unwrap_or(&builder.identity);
    Err(format!("it is by {}, and its publisher is {}", ran.escape_debug(), workflow.escape_debug()))
}

/// The repository that the `package.json` of an archive names.
pub(super) fn repository_of(archive: &[u8]) -> Option<String> {
    let described: Value = serde_json::from_slice(&described(archive)?).ok()?;
    let stated = &described["repository"];
    stated.as_str().or_else(|| stated["url"].as_str()).map(str::to_owned)
}

/// `package.json` in the one directory of an archive (ustar, what npm packs).
fn described(archive: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = GzDecoder::new(archive).take(MAX_UNPACKED);
    loop {
        let mut header = [0; 512];
        unpacked.read_exact(&mut header).ok()?;
        let text = |at: std::ops::Range<usize>| {
            let field = header[at].split(|byte| *byte == 0).next().unwrap_or_default();
            std::str::from_utf8(field).ok()
        };
        let (name, size) = (text(0..100)?, u64::from_str_radix(text(124..136)?.trim(), 8).ok()?);
        if name.is_empty() {
            return None;
        }
        let is_file = matches!(header[156], b'0' | 0);
        let is_it = name.split_once('/').is_some_and(|(_, rest)| rest == "package.json");
        if is_file && is_it && size <= MAX_DESCRIBED {
            let mut bytes = Vec::new();
            unpacked.take(size).read_to_end(&mut bytes).ok()?;
            return Some(bytes);
        }
        std::io::copy(&mut unpacked.by_ref().take(size.div_ceil(512) * 512), &mut std::io::sink()).ok()?;
    }
}

/// The one address of a repository, of the forms that npm takes.
fn repository(text: &str) -> String {
    let text = text.trim().split('#').next().unwrap_or_default();
    let text = text.strip_prefix("git+").unwrap_or(text);
    let place = match text.split_once("://") {
        Some((_, rest)) => rest.rsplit_once('@').map_or(rest, |(_, rest)| rest).to_owned(),
        None => match text.split_once(':') {
            Some(("github", rest)) => format!("github.com/{rest}"),
            Some(("gitlab", rest)) => format!("gitlab.com/{rest}"),
            Some(("bitbucket", rest)) => format!("bitbucket.org/{rest}"),
            // As ssh has it.
            Some((host, rest)) => format!("{}/{rest}", host.rsplit('@').next().unwrap_or(host)),
            None => format!("github.com/{text}"),
        },
    };
    let place = place.split("/tree/").next().unwrap_or_default().trim_end_matches('/');
    place.trim_end_matches(".git").trim_start_matches("www.").to_ascii_lowercase()
}

#[cfg(all(test, feature = "keyless"))]
mod tests {
    use super::*;

    const NPM: &str = include_str!("../../../tests/fixtures/provenance/npm-sigstore-2.0.0.json");
    const NPM_FILE: &str = "sha512:46d4e2f74c4877316640000a6fdf8a8b59f1e0847667973e9859f774dd31b8f1e0937813b777fb66a2ac67d50540fe34640966eee9fc2ccca387082b4c85cd3c";
    const PYPI: &str = include_str!("../../../tests/fixtures/provenance/pypi-pypi_attestations-0.0.19.json");
    const PYPI_FILE: &str = "sha256:9bb1add04b1b4e182be6b0b80931593f7a291eb49d69b4fd728a5d4cbcdc4bd3";

    fn roots() -> Vec<Root> {
        vec![Root::public().unwrap()]
    }

    fn npm(answer: &str, name: &str, version: &str, repository: Option<&str>) -> Result<Provenance, String> {
        let (digest, repository) = (NPM_FILE.parse().unwrap(), repository.map(str::to_owned));
        Provenance::of_npm(&NpmFile { name, version, digest: &digest, repository }, answer.as_bytes(), &roots())
    }

    fn python(answer: &str, file: &str) -> Result<Provenance, String> {
        Provenance::of_python(file, &PYPI_FILE.parse().unwrap(), answer.as_bytes(), &roots())
    }

    fn shown(provenance: &Provenance) -> Vec<(&'static str, String)> {
        provenance.pairs().into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    const OWN: &str = "git+https://github.com/sigstore/sigstore-js.git";

    /// What npm's registry has of a real package.
    #[test]
    fn a_real_package_of_npm() {
        let built = shown(&npm(NPM, "sigstore", "2.0.0", Some(OWN)).unwrap());
        let workflow = "https://github.com/sigstore/sigstore-js/.github/workflows/release.yml@refs/heads/main";
        assert_eq!(
            built[..3],
            [
                ("provenance", "https://slsa.dev/provenance/v1".into()),
                ("builtBy", workflow.into()),
                ("builtFrom", "https://github.com/sigstore/sigstore-js".into()),
            ]
        );
        assert!(built[4].1.starts_with("2023-08-"), "{built:?}");
        let other = |from: &str, to: &str| {
            let other = NPM.replacen(from, to, 1);
            assert_ne!(other, NPM, "{from}");
            npm(&other, "sigstore", "2.0.0", Some(OWN)).unwrap_err()
        };
        for (why, refused) in [
            ("is about pkg:npm/sigstore@2.0.0", npm(NPM, "sigstore", "2.0.1", Some(OWN)).unwrap_err()),
            (
                "and the package names git+https://github.com/evil/x",
                npm(NPM, "sigstore", "2.0.0", Some("git+https://github.com/evil/x")).unwrap_err(),
            ),
            ("names no repository", npm(NPM, "sigstore", "2.0.0", None).unwrap_err()),
            ("does not vouch for it", other("\"sig\": \"ME", "\"sig\": \"MD")),
            ("does not vouch for it", other("\"integratedTime\": \"16", "\"integratedTime\": \"17")),
        ] {
            assert!(refused.contains(why), "{why}: {refused}");
        }
        // Of another file.
        let digest = format!("sha512:{}", "ab".repeat(64)).parse().unwrap();
        let file = NpmFile { name: "sigstore", version: "2.0.0", digest: &digest, repository: Some(OWN.into()) };
        assert!(Provenance::of_npm(&file, NPM.as_bytes(), &roots()).unwrap_err().contains("does not vouch for it"));
        // What says nothing, or cannot be told, is no lie.
        let none = npm("{\"attestations\": []}", "sigstore", "2.0.0", Some(OWN)).unwrap();
        assert_eq!(shown(&none)[0].0, "provenanceNotVerified");
        let unproven = NPM.replacen("\"inclusionProof\"", "\"without\"", 1);
        let unproven = npm(&unproven, "sigstore", "2.0.0", Some(OWN)).unwrap();
        assert!(shown(&unproven)[1].1.contains("without a proof"));
    }

    /// What PyPI has of a real file.
    #[test]
    fn a_real_file_of_pypi() {
        const FILE: &str = "pypi_attestations-0.0.19.tar.gz";
        let built = shown(&python(PYPI, FILE).unwrap());
        assert_eq!(built[0], ("provenance", PUBLISH.into()));
        let workflow = "https://github.com/trailofbits/pypi-attestations/.github/workflows/release.yml@";
        assert!(built[1].0 == "builtBy" && built[1].1.starts_with(workflow), "{built:?}");
        let other = |from: &str, to: &str| {
            let other = PYPI.replacen(from, to, 1);
            assert_ne!(other, PYPI, "{from}");
            python(&other, FILE)
        };
        for (why, refused) in [
            ("its publisher is https://github.com/evil", other("trailofbits/", "evil/")),
            ("/workflows/other.yml", other("release.yml", "other.yml")),
            (
                "its publisher is me@x.test",
                other("\"kind\": \"GitHub\"", "\"kind\": \"Google\", \"email\": \"me@x.test\""),
            ),
            ("it is about", python(PYPI, "another-0.0.19.tar.gz")),
            ("does not vouch for it", other("\"signature\": \"ME", "\"signature\": \"MD")),
            ("holds no statement", other("\"statement\"", "\"statements\"")),
        ] {
            let refused = refused.unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
        let unknown = other("\"kind\": \"GitHub\"", "\"kind\": \"Forge\"").unwrap();
        assert!(shown(&unknown)[1].1.contains("Forge"));
    }

    #[test]
    fn repositories_by_all_their_names() {
        for text in [
            "git+https://github.com/Acme/Tool.git",
            "https://github.com/acme/tool/",
            "git://github.com/acme/tool.git#main",
            "git+ssh://git@github.com/acme/tool.git",
            "git@github.com:acme/tool.git",
            "github:acme/tool",
            "acme/tool",
            "https://github.com/acme/tool/tree/main/packages/a",
        ] {
            assert_eq!(repository(text), "github.com/acme/tool", "{text}");
        }
        assert_eq!(repository("gitlab:a/b/c"), "gitlab.com/a/b/c");
        assert_ne!(repository("https://github.com/acme/tool2"), "github.com/acme/tool");
    }

    #[test]
    fn the_description_in_an_archive() {
        let archive = |files: &[(&str, &str)]| {
            let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
            for (name, text) in files {
                let mut header = tar::Header::new_ustar();
                header.set_size(text.len() as u64);
                tar.append_data(&mut header, name, text.as_bytes()).unwrap();
            }
            tar.into_inner().unwrap().finish().unwrap()
        };
        let own = "{\"repository\": {\"type\": \"git\", \"url\": \"a/b\"}}";
        let files = [("package/lib/package.json", "{\"repository\": \"x/y\"}"), ("package/package.json", own)];
        assert_eq!(repository_of(&archive(&files)).as_deref(), Some("a/b"));
        assert_eq!(repository_of(&archive(&[("x/package.json", "{\"repository\": \"c/d\"}")])).as_deref(), Some("c/d"));
        assert_eq!(repository_of(&archive(&[("x/a", "b")])), None);
        assert_eq!(repository_of(b"no archive"), None);
    }
}
