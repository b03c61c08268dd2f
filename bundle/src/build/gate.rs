//! Between npm or pip in a cage and the registries: a server on loopback that asks them, as the user, for what a build needs.
//!
//! The cage reaches this port and nothing else: tokens, certificates and proxies stay outside, and what policy does not let in (what is
//! too young) is not there for npm and pip. Addresses begin with a secret word, since every program of the machine can connect.
//!
//! | path behind the word | is |
//! |---|---|
//! | `/npm/NAME` | what npm's registry says of a package ([`super::packument`]) |
//! | `/tgz/NAME/-/VERSION.tgz` | its archive, compared with the hash that was said |
//! | `/simple/NAME/` | the files of a project of an index ([`super::project`]) |
//! | `/whl/NUMBER/FILE`, the same with `.metadata` | one of them, compared with the hash that was said |

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use distribution::{Access, Asking, Digest, Error, Packages, Secret, normal_name};
use jiff::Timestamp;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;
use sha2::{Digest as _, Sha512};

use super::error::BuildError;
use super::packument::{self, Packument, Release};
use super::project::{self, Project, Wheel};
use super::provenance::{NpmFile, Provenance, repository_of};
use crate::attest::{PublicKey, Root};

/// Where packages are from, and what is let in.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    /// The user's settings of npm and pip.
    pub packages: Arc<Packages>,
    /// How registries are reached.
    pub access: Arc<Access>,
    /// The least age of a version.
    pub min_age: Option<Duration>,
    /// A trust root that vouches for where packages were built, beside sigstore's public one.
    pub trust_root: Option<PathBuf>,
}

/// The server; it ends when this is dropped.
pub(super) struct Gate {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    /// A slash and the secret word.
    word: String,
    /// The address up to there.
    base: String,
    registries: Registries,
    now: Timestamp,
    of_npm: Asking,
    of_python: Asking,
    ended: AtomicBool,
    seen: Mutex<Seen>,
    /// What npm's registries sign by, by their urls.
    keys: Mutex<BTreeMap<String, Arc<Vec<Key>>>>,
    /// What vouches for provenance, read once there is some; why it cannot be.
    roots: OnceLock<Result<Vec<Root>, String>>,
}

/// A key of a registry.
struct Key {
    id: String,
    /// What was published later is not signed by it.
    expires: Option<Timestamp>,
    key: PublicKey,
}

/// An archive of npm's that was passed on.
#[derive(Debug, Clone)]
pub(super) struct Archive {
    /// Of all of it.
    pub(super) digest: Digest,
    /// The name of the registry's key that signed it.
    pub(super) signer: Option<String>,
    /// Where it was built, where the registry says so.
    pub(super) provenance: Option<Provenance>,
}

/// What was passed on.
#[derive(Default)]
struct Seen {
    packuments: BTreeMap<String, Packument>,
    projects: BTreeMap<String, Project>,
    wheels: Vec<Wheel>,
    /// Of npm, by `NAME@VERSION`.
    archives: BTreeMap<String, Archive>,
    /// Why something could not be passed on, the first of it.
    failed: Option<BuildError>,
}

/// The largest answer about a package, and the largest file, in bytes.
const MAX_ABOUT: usize = 256 << 20;
const MAX_FILE: usize = 2 << 30;
/// The largest list of keys, in bytes.
const MAX_KEYS: usize = 1 << 20;
/// Why nothing is known of where a file was built, in a build without the feature.
const NO_CERTIFICATES: &str = "this build of smcp verifies no certificates";
/// The largest answer about where a file was built, in bytes.
const MAX_PROVENANCE: usize = 8 << 20;
/// The longest request, in bytes.
const MAX_REQUEST: u64 = 64 << 10;

impl Gate {
    pub(super) fn open(registries: &Registries) -> Result<Gate, BuildError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(BuildError::io("listening on loopback"))?;
        let port = listener.local_addr().map_err(BuildError::io("listening on loopback"))?.port();
        let mut word = [0; 16];
        let random = SystemRandom::new().fill(&mut word);
        random.map_err(|_| BuildError::Cage("the system has no random bytes".into()))?;
        let word: String = word.iter().map(|byte| format!("{byte:02x}")).collect();
        let (word, base) = (format!("/{word}"), format!("http://127.0.0.1:{port}/{word}"));
        let trusting = |ca_file: Option<&Path>| {
            let access = Access { ca_file: ca_file.map(Path::to_owned), ..(*registries.access).clone() };
            Asking::new(&Arc::new(access))
        };
        let packages = &registries.packages;
        let shared = Arc::new(Shared {
            word,
            base,
            now: Timestamp::now(),
            of_npm: trusting(packages.npm()?.ca_file.as_deref()),
            of_python: trusting(packages.python()?.ca_file.as_deref()),
            registries: registries.clone(),
            ended: AtomicBool::new(false),
            seen: Mutex::default(),
            keys: Mutex::default(),
            roots: OnceLock::new(),
        });
        let server = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if server.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let server = server.clone();
                thread::spawn(move || server.serve(stream));
            }
        });
        Ok(Gate { port, shared })
    }

    /// Where a cage reaches it.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// npm's registry.
    pub(super) fn npm(&self) -> String {
        format!("{}/npm/", self.shared.base)
    }

    /// pip's index.
    pub(super) fn simple(&self) -> String {
        format!("{}/simple/", self.shared.base)
    }

    /// What was said of a version of an npm package.
    pub(super) fn release(&self, name: &str, version: &str) -> Option<Release> {
        self.shared.seen().packuments.get(name)?.releases.get(version).cloned()
    }

    /// What the archive of a version of an npm package was.
    pub(super) fn archive(&self, name: &str, version: &str) -> Option<Archive> {
        self.shared.seen().archives.get(&format!("{name}@{version}")).cloned()
    }

    /// What was said of a wheel.
    pub(super) fn wheel(&self, file: &str) -> Option<Wheel> {
        self.shared.seen().wheels.iter().find(|wheel| wheel.file == file).cloned()
    }

    /// Says why a tool failed, where that is known better here than there. `name` and `version` are what was asked for.
    pub(super) fn explain(&self, name: &str, version: Option<&str>, otherwise: BuildError) -> BuildError {
        let mut seen = self.shared.seen();
        if let Some(failed) = seen.failed.take() {
            return failed;
        }
        let (young, any, yanked) = match (seen.packuments.get(name), seen.projects.get(&normal_name(name))) {
            (Some(packument), _) => (&packument.young, !packument.releases.is_empty(), Vec::new()),
            (None, Some(project)) => (&project.young, project.is_any_left(), project.yanked()),
            (None, None) => return otherwise,
        };
        let least = self.shared.registries.min_age.unwrap_or_default();
        let asked = young.iter().filter(|(young, _)| version.is_none_or(|version| version == *young));
        let asked: Vec<String> = asked.map(|(version, age)| format!("{version} ({age})")).collect();
        if !asked.is_empty() && (version.is_some() || !any) {
            return BuildError::Young { package: name.into(), versions: asked, least };
        }
        if !any && !yanked.is_empty() {
            return BuildError::Yanked { package: name.into(), versions: yanked };
        }
        otherwise
    }

    /// A text that changes whenever what is to be had of an npm package does.
    pub(super) fn look_at_npm(&self, name: &str) -> Result<String, BuildError> {
        let packument = self.shared.packument(name, ANY)?;
        Ok(Digest::of(packument.ok_or_else(|| missing(name))?.text.as_bytes()).to_string())
    }

    /// The same of a project of an index.
    pub(super) fn look_at_python(&self, name: &str) -> Result<String, BuildError> {
        let project = self.shared.project(&normal_name(name))?.ok_or_else(|| missing(name))?;
        Ok(project.fingerprint())
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // So that it looks.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn missing(name: &str) -> BuildError {
    BuildError::Store(Error::NotFound { what: name.into(), place: "its registry".into() })
}

const ANY: &str = "application/json";

/// What is sent back: status, media type, bytes.
type Answer = (u16, &'static str, Vec<u8>);

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no holder panics")
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        let mut reader = BufReader::new(stream.try_clone().ok()?).take(MAX_REQUEST);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut words = lines.first()?.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        let accept = lines.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("accept").then(|| value.trim().to_owned())
        });
        let own = path.strip_prefix(&*self.word);
        let answer = match own.filter(|_| method == "GET") {
            Some(path) => self.answer(path, accept.as_deref().unwrap_or(ANY)),
            None => Ok(None),
        };
        let (status, kind, body) = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => (404, ANY, b"{}".to_vec()),
            Err(why) => {
                let text = why.to_string().into_bytes();
                self.seen().failed.get_or_insert(why);
                // One that nobody tries again: that was done here.
                (403, "text/plain", text)
            }
        };
        let head = format!(
            "HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = stream;
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).ok()
    }

    fn answer(&self, path: &str, accept: &str) -> Result<Option<Answer>, BuildError> {
        let path = path.split('?').next().unwrap_or_default();
        if let Some(name) = path.strip_prefix("/npm/") {
            let name = name.replace("%2f", "/").replace("%2F", "/").replace("%40", "@");
            let Some(packument) = self.packument(&name, accept)? else { return Ok(None) };
            let text = packument.text.replace(packument::BASE, &self.base);
            self.seen().packuments.insert(name, packument);
            return Ok(Some((200, ANY, text.into_bytes())));
        }
        if let Some((name, file)) = path.strip_prefix("/tgz/").and_then(|path| path.rsplit_once("/-/")) {
            return self.archive(name, file.strip_suffix(".tgz").unwrap_or(file));
        }
        if let Some(name) = path.strip_prefix("/simple/") {
            let Some(project) = self.project(&normal_name(name.trim_matches('/')))? else { return Ok(None) };
            let mut seen = self.seen();
            let first = seen.wheels.len();
            let page = project.page(&self.base, first);
            seen.wheels.extend(project.wheels.iter().cloned());
            seen.projects.insert(project.name.clone(), project);
            return Ok(Some((200, "text/html", page.into_bytes())));
        }
        let numbered = path.strip_prefix("/whl/").and_then(|path| path.split_once('/'));
        match numbered.and_then(|(number, file)| Some((number.parse::<usize>().ok()?, file))) {
            Some((number, file)) => self.wheel(number, file.ends_with(".metadata")),
            None => Ok(None),
        }
    }

    fn packument(&self, name: &str, accept: &str) -> Result<Option<Packument>, BuildError> {
        let scoped = name.strip_prefix('@').and_then(|name| name.split_once('/'));
        if !scoped.map_or(is_name(name), |(scope, name)| is_name(scope) && is_name(name)) {
            return Ok(None);
        }
        let npm = self.registries.packages.npm()?;
        let registry = npm.registry_of(name);
        // As npm writes it: the slash of a scope is part of the name.
        let url = format!("{}/{}", registry.url(), name.replace('/', "%2f"));
        // The short form has no times.
        let accept = if self.registries.min_age.is_some() { ANY } else { accept };
        let login = npm.login_for(&url);
        let Some((bytes, _)) = got(self.of_npm.get(&url, accept, login, MAX_ABOUT))? else { return Ok(None) };
        Packument::read(name, &bytes, self.registries.min_age, self.now).map(Some)
    }

    fn archive(&self, name: &str, version: &str) -> Result<Option<Answer>, BuildError> {
        let found = self.seen().packuments.get(name).and_then(|known| known.releases.get(version)).cloned();
        let Some(release) = found else { return Ok(None) };
        let login = self.registries.packages.npm()?.login_for(&release.archive).cloned();
        let archive = got(self.of_npm.get(&release.archive, "*/*", login.as_ref(), MAX_FILE))?;
        let Some((bytes, _)) = archive else { return Ok(None) };
        let hash = Sha512::digest(&bytes);
        if let Some(wanted) = release.integrity.as_deref().and_then(strongest) {
            let got = format!("sha512-{}", STANDARD.encode(hash));
            same(&format!("{name}@{version}"), wanted, &got)?;
        }
        let what = format!("{name}@{version}");
        let signer = self.signer(name, &what, &release)?;
        let provenance = match &release.provenance {
            Some(kind) => Some(self.of_npm(name, version, kind, &bytes, &hash)?),
            None => None,
        };
        self.seen().archives.insert(what, Archive { digest: Digest::of(&bytes), signer, provenance });
        Ok(Some((200, "application/octet-stream", bytes)))
    }

    /// The key that signed the hash of a version, where its registry has one of that name.
    fn signer(&self, name: &str, what: &str, release: &Release) -> Result<Option<String>, BuildError> {
        let Some(integrity) = release.integrity.as_ref().filter(|_| !release.signatures.is_empty()) else {
            return Ok(None);
        };
        let published = release.published.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
        for (id, signature) in &release.signatures {
            let keys = self.keys_of(name)?;
            let in_time = |key: &&Key| key.expires.is_none_or(|end| published.is_some_and(|then| then < end));
            let Some(key) = keys.iter().filter(in_time).find(|key| key.id == *id) else { continue };
            let signature = STANDARD.decode(signature).unwrap_or_default();
            if !key.key.signed(format!("{what}:{integrity}").as_bytes(), &signature) {
                let (wanted, got) = (format!("a signature by the registry's key {id}"), "one that is not".into());
                return Err(BuildError::Integrity { what: what.into(), wanted, got });
            }
            return Ok(Some(id.clone()));
        }
        Ok(None)
    }

    /// What the registry of a package signs by, asked for once; nothing where it does not say.
    fn keys_of(&self, name: &str) -> Result<Arc<Vec<Key>>, BuildError> {
        let npm = self.registries.packages.npm()?;
        let registry = npm.registry_of(name).url();
        let mut known = self.keys.lock().expect("no holder panics");
        if let Some(keys) = known.get(registry) {
            return Ok(keys.clone());
        }
        let url = format!("{registry}/-/npm/v1/keys");
        let answer = beside(self.of_npm.get(&url, ANY, npm.login_for(&url), MAX_KEYS))?;
        let keys = Arc::new(answer.map(|bytes| keys(&bytes)).unwrap_or_default());
        known.insert(registry.to_owned(), keys.clone());
        Ok(keys)
    }

    /// Where an archive of npm's was built: what its registry has of that, verified.
    fn of_npm(
        &self,
        name: &str,
        version: &str,
        kind: &str,
        bytes: &[u8],
        hash: &[u8],
    ) -> Result<Provenance, BuildError> {
        if !cfg!(feature = "keyless") {
            return Ok(Provenance::unverified(Some(kind.to_owned()), NO_CERTIFICATES));
        }
        let npm = self.registries.packages.npm()?;
        let registry = npm.registry_of(name).url();
        let url = format!("{registry}/-/npm/v1/attestations/{}@{version}", name.replace('/', "%2f"));
        let Some(answer) = beside(self.of_npm.get(&url, ANY, npm.login_for(&url), MAX_PROVENANCE))? else {
            return Ok(Provenance::unverified(Some(kind.to_owned()), "the registry does not have it"));
        };
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha512:{hex}").parse().map_err(|why: distribution::DigestError| false_one(name, why))?;
        let file = NpmFile { name, version, digest: &digest, repository: repository_of(bytes) };
        Provenance::of_npm(&file, &answer, self.roots()?).map_err(|why| false_one(&format!("{name}@{version}"), why))
    }

    /// The same of a wheel whose index says where its attestations are.
    fn of_wheel(&self, wheel: &Wheel, digest: &Digest) -> Result<Option<Provenance>, BuildError> {
        let Some(url) = &wheel.provenance else { return Ok(None) };
        if !cfg!(feature = "keyless") {
            return Ok(Some(Provenance::unverified(None, NO_CERTIFICATES)));
        }
        let python = self.registries.packages.python()?;
        let Some(index) = python.indexes.iter().find(|index| host_of(index.url()) == host_of(url)) else {
            return Ok(Some(Provenance::unverified(None, "it is at another host than the index")));
        };
        let Some(answer) = beside(self.of_python.get(url, ANY, index.login(), MAX_PROVENANCE))? else {
            return Ok(Some(Provenance::unverified(None, "the index does not have it")));
        };
        let provenance = Provenance::of_python(&wheel.file, digest, &answer, self.roots()?);
        provenance.map(Some).map_err(|why| false_one(&wheel.file, why))
    }

    /// What vouches for where packages were built: the user's trust root, and sigstore's public one.
    fn roots(&self) -> Result<&[Root], BuildError> {
        let read = || {
            let own = self.registries.trust_root.as_ref().map(|path| {
                let text = std::fs::read_to_string(path).map_err(|why| why.to_string());
                text.and_then(|text| Root::from_json(&text)).map_err(|why| format!("{}: {why}", path.display()))
            });
            own.into_iter().chain([Root::public()]).collect()
        };
        self.roots.get_or_init(read).as_deref().map_err(|why| BuildError::Options(format!("the trust root {why}")))
    }

    /// The first index that has it.
    fn project(&self, name: &str) -> Result<Option<Project>, BuildError> {
        if !is_name(name) {
            return Ok(None);
        }
        for index in &self.registries.packages.python()?.indexes {
            let url = format!("{}/{name}/", index.url());
            let answer = self.of_python.get(&url, project::ACCEPT, index.login(), MAX_ABOUT);
            if let Some((bytes, kind)) = got(answer)? {
                return Project::read(name, &url, &bytes, &kind, self.registries.min_age, self.now).map(Some);
            }
        }
        Ok(None)
    }

    fn wheel(&self, number: usize, metadata: bool) -> Result<Option<Answer>, BuildError> {
        let Some(wheel) = self.seen().wheels.get(number).cloned() else { return Ok(None) };
        let url = if metadata { format!("{}.metadata", wheel.url) } else { wheel.url.clone() };
        let python = self.registries.packages.python()?;
        let own = |index: &&distribution::Index| host_of(index.url()) == host_of(&url);
        let login: Option<Secret> = python.indexes.iter().find(own).and_then(|index| index.login().cloned());
        let file = got(self.of_python.get(&url, "*/*", login.as_ref(), MAX_FILE))?;
        let Some((bytes, _)) = file else { return Ok(None) };
        if !metadata {
            let digest = Digest::of(&bytes);
            if let Some(wanted) = &wheel.digest {
                same(&wheel.file, wanted.as_str(), digest.as_str())?;
            }
            let built = self.of_wheel(&wheel, &digest)?;
            let mut seen = self.seen();
            seen.wheels.iter_mut().filter(|one| one.file == wheel.file).for_each(|one| one.built = built.clone());
        }
        Ok(Some((200, "application/octet-stream", bytes)))
    }
}

/// What a registry may have beside its packages. One that has none may answer so; one that is in trouble says nothing by it.
fn beside(answer: Result<Option<(Vec<u8>, String)>, Error>) -> Result<Option<Vec<u8>>, BuildError> {
    match answer {
        Ok(answer) => Ok(answer.map(|(bytes, _)| bytes)),
        Err(Error::Unauthorized { .. }) => Ok(None),
        Err(Error::Status { status, .. }) if (400..500).contains(&status) && status != 429 => Ok(None),
        Err(why) => Err(why.into()),
    }
}

fn false_one(what: &str, why: impl ToString) -> BuildError {
    BuildError::Provenance { what: what.into(), why: why.to_string() }
}

/// The keys of an answer that are for ECDSA over P-256.
fn keys(bytes: &[u8]) -> Vec<Key> {
    let answer: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let key = |one: &Value| {
        let expires = one["expires"].as_str().map(str::parse::<Timestamp>).transpose().ok()?;
        let key = PublicKey::from_spki(STANDARD.decode(one["key"].as_str()?).ok()?).ok()?;
        Some(Key { id: one["keyid"].as_str()?.to_owned(), expires, key })
    };
    answer["keys"].as_array().into_iter().flatten().filter_map(key).collect()
}

/// A name that leads nowhere else in an address.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._~-".contains(&b))
}

/// A refusal as what it means for a registry of packages.
fn got<T>(answer: Result<T, Error>) -> Result<T, BuildError> {
    answer.map_err(|why| match why {
        Error::Unauthorized { host, .. } => BuildError::Login { host },
        why => why.into(),
    })
}

/// Scheme, host and port.
fn host_of(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    &url[..end]
}

/// SHA-512 of npm's hashes, of which there may be several.
fn strongest(integrity: &str) -> Option<&str> {
    integrity.split_whitespace().find(|hash| hash.starts_with("sha512-"))
}

/// Compares hashes in one form.
pub(super) fn same(what: &str, wanted: &str, got: &str) -> Result<(), BuildError> {
    match wanted.split('?').next() == Some(got) {
        true => Ok(()),
        false => Err(BuildError::Integrity { what: what.into(), wanted: wanted.into(), got: got.into() }),
    }
}
