//! Publishing: what is sent, how, and what is listed about it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use distribution::media_type::*;
use distribution::*;

use crate::fake::{Call, Fake, Reply};
use crate::world::{Cache, Content, cached, refreshing};

/// A registry that takes uploads, in a few lines; what it has is its own.
#[derive(Default)]
pub struct Shelf {
    /// By repository and digest or tag.
    pub things: BTreeMap<(String, String), (String, Vec<u8>)>,
    /// By upload.
    uploads: Vec<Vec<u8>>,
    /// Breaks off so many uploads of a chunk in their middle.
    breaks: usize,
    pub has_referrers: bool,
    /// What others put at a tag right after it was written, each once: they have read it before that.
    pub meanwhile: Vec<(String, (String, Vec<u8>))>,
    chunk_min: Option<u64>,
}

pub type Shared = Arc<Mutex<Shelf>>;

pub fn shelf(change: impl FnOnce(&mut Shelf)) -> (Fake, Shared) {
    let mut shelf = Shelf::default();
    change(&mut shelf);
    let shelf: Shared = Arc::new(Mutex::new(shelf));
    let answers = shelf.clone();
    (Fake::serve(move |call| answers.lock().unwrap().answer(call)), shelf)
}

impl Shelf {
    fn answer(&mut self, call: &Call) -> Reply {
        let path = call.path.split('?').next().unwrap().trim_start_matches("/v2/").to_string();
        if path.is_empty() {
            return Reply::new(200, "{}");
        }
        if let Some((repository, rest)) = path.split_once("/blobs/uploads/") {
            return self.upload(call, repository, rest);
        }
        for kind in ["/manifests/", "/blobs/"] {
            if let Some((repository, what)) = path.split_once(kind) {
                return self.thing(call, repository, what);
            }
        }
        match path.split_once("/referrers/") {
            Some((repository, digest)) if self.has_referrers => self.referrers(repository, digest),
            _ => Reply::new(404, ""),
        }
    }

    fn thing(&mut self, call: &Call, repository: &str, what: &str) -> Reply {
        if call.method == "PUT" {
            let digest = Digest::of(&call.body).to_string();
            let kind = call.header("content-type").unwrap().to_string();
            for name in [what, &digest] {
                self.things.insert((repository.into(), name.into()), (kind.clone(), call.body.clone()));
            }
            if let Some(at) = self.meanwhile.iter().position(|(tag, _)| tag == what) {
                let (tag, theirs) = self.meanwhile.remove(at);
                self.things.insert((repository.into(), tag), theirs);
            }
            let reply = Reply::new(201, "").header("docker-content-digest", &digest);
            let subject = serde_json::from_slice::<serde_json::Value>(&call.body).unwrap()["subject"]["digest"].clone();
            return match subject.as_str() {
                Some(subject) if self.has_referrers => reply.header("oci-subject", subject),
                _ => reply,
            };
        }
        match self.things.get(&(repository.into(), what.into())) {
            Some((kind, bytes)) => Reply::new(200, &**bytes).header("content-type", kind),
            None => Reply::new(404, ""),
        }
    }

    fn upload(&mut self, call: &Call, repository: &str, rest: &str) -> Reply {
        if call.method == "POST" {
            let (digest, from) =
                (call.parameter("mount").unwrap_or_default(), call.parameter("from").unwrap_or_default());
            if let Some(known) = self.things.get(&(from.into(), digest.into())).cloned() {
                self.things.insert((repository.into(), digest.into()), known);
                return Reply::new(201, "").header("docker-content-digest", digest);
            }
            self.uploads.push(Vec::new());
            let reply = Reply::new(202, "")
                .header("location", format!("/v2/{repository}/blobs/uploads/{}", self.uploads.len() - 1));
            return match self.chunk_min {
                Some(least) => reply.header("oci-chunk-min-length", least.to_string()),
                None => reply,
            };
        }
        let number: usize = rest.parse().unwrap();
        let upload = &mut self.uploads[number];
        let state = |status, upload: &Vec<u8>| {
            Reply::new(status, "")
                .header("location", format!("/v2/{repository}/blobs/uploads/{number}"))
                .header("range", format!("0-{}", upload.len().saturating_sub(1)))
        };
        match call.method.as_str() {
            "GET" => state(204, upload),
            "PATCH" => {
                let from: usize = call.header("content-range").unwrap().split('-').next().unwrap().parse().unwrap();
                if from != upload.len() {
                    return state(416, upload);
                }
                if self.breaks > 0 {
                    self.breaks -= 1;
                    upload.extend(&call.body[..call.body.len() / 2]);
                    return Reply::new(503, "");
                }
                upload.extend(&call.body);
                state(202, upload)
            }
            _ => {
                upload.extend(&call.body);
                let digest = Digest::of(&*upload).to_string();
                if call.parameter("digest") != Some(&digest) {
                    return Reply::new(400, r#"{"errors":[{"code":"DIGEST_INVALID"}]}"#);
                }
                self.things.insert((repository.into(), digest.clone()), (String::new(), std::mem::take(upload)));
                Reply::new(201, "").header("docker-content-digest", digest)
            }
        }
    }

    fn referrers(&self, repository: &str, subject: &str) -> Reply {
        let about = |((of, name), (kind, bytes)): (&(String, String), &(String, Vec<u8>))| {
            let document: serde_json::Value = serde_json::from_slice(bytes).ok()?;
            let fits = of == repository && name.starts_with("sha256:") && document["subject"]["digest"] == subject;
            fits.then(|| serde_json::json!({"mediaType": kind, "digest": name, "size": bytes.len(), "artifactType": document["artifactType"]}))
        };
        let found: Vec<_> = self.things.iter().filter_map(about).collect();
        let list = serde_json::json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": found});
        Reply::new(200, list.to_string()).header("content-type", OCI_INDEX)
    }
}

fn publish(cache: &Cache, content: &Content, name: &str) -> Result<Pushed> {
    content.put(&cache.store, name);
    push(&cache.store, &content.manifest, &name.parse().unwrap(), &cached())
}

#[test]
fn in_one_piece_and_in_chunks() {
    let big: Vec<u8> = (0..9_000_000u32).flat_map(u32::to_le_bytes).collect();
    let content = Content::new(&[&big, b"small"]);
    for (breaks, chunk_min, patches) in [(0, None, 3), (2, None, 4), (0, Some(20 << 20), 2), (0, Some(64 << 20), 0)] {
        let (fake, shelf) = shelf(|shelf| (shelf.breaks, shelf.chunk_min) = (breaks, chunk_min));
        let cache = Cache::new();
        let name = format!("{}/acme/tool:1", fake.host);
        assert_eq!(publish(&cache, &content, &name).unwrap().uploaded, 3);
        assert_eq!(fake.count("PATCH", "/uploads/"), patches, "{breaks} {chunk_min:?}");
        assert_eq!(shelf.lock().unwrap().things[&("acme/tool".into(), content.layers[0].digest.to_string())].1, big);
        Cache::new().pull(&name, &refreshing()).unwrap();
    }
}

#[test]
fn what_another_repository_has_is_taken_over() {
    let content = Content::new(&[b"shared", b"one"]);
    let other = Content::new(&[b"shared", b"two"]);
    let (fake, _) = shelf(|_| ());
    let cache = Cache::new();
    publish(&cache, &content, &format!("{}/acme/one:1", fake.host)).unwrap();
    let before = fake.calls().len();
    let pushed = publish(&cache, &other, &format!("{}/acme/two:1", fake.host)).unwrap();
    assert_eq!((pushed.uploaded, pushed.present), (2, 1));
    let mounts: Vec<_> = fake.calls()[before..]
        .iter()
        .filter_map(|call| Some((call.parameter("mount")?.to_owned(), call.parameter("from")?.to_owned())))
        .collect();
    assert_eq!(mounts, [(content.layers[0].digest.to_string(), "acme/one".into())]);
    Cache::new().pull(&format!("{}/acme/two:1", fake.host), &cached()).unwrap();
}

/// A manifest about `subject`, of a kind that is none of an image's.
fn about(store: &Store, subject: &Descriptor, kind: &str) -> Descriptor {
    let empty = store.put(b"{}", "application/vnd.oci.empty.v1+json").unwrap();
    let mut manifest = ImageManifest::new(empty, vec![]);
    manifest.subject = Some(subject.clone());
    manifest.artifact_type = Some(kind.into());
    manifest.annotations.insert("made".into(), kind.into());
    store.put(&manifest.to_bytes(), OCI_MANIFEST).unwrap()
}

#[test]
fn referrers_by_the_api_and_by_the_tag() {
    for has_referrers in [true, false] {
        let content = Content::new(&[b"one"]);
        let (fake, shelf) = shelf(|shelf| shelf.has_referrers = has_referrers);
        let cache = Cache::new();
        let name = format!("{}/acme/tool:1", fake.host);
        publish(&cache, &content, &name).unwrap();
        let resolved = resolve(&name.parse().unwrap(), &cache.store, &refreshing()).unwrap();
        assert_eq!(referrers(&resolved, None, &cached()).unwrap(), []);
        let target: Reference = format!("{}/acme/tool@{}", fake.host, content.manifest.digest).parse().unwrap();
        for kind in ["a/one", "a/two", "a/one"] {
            let signature = about(&cache.store, &content.manifest, kind);
            let target = format!("{}/acme/tool@{}", fake.host, signature.digest);
            push(&cache.store, &signature, &target.parse().unwrap(), &cached()).unwrap();
        }
        assert!(matches!(target, Reference::Registry(_)));
        let kinds = |wanted| {
            let found = referrers(&resolved, wanted, &cached()).unwrap();
            found.into_iter().map(|found| found.artifact_type.unwrap()).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(kinds(None), ["a/one".to_string(), "a/two".into()].into(), "{has_referrers}");
        assert_eq!(kinds(Some("a/two")), ["a/two".to_string()].into());
        assert_eq!(kinds(Some("a/three")), [].into());
        let tag = format!("sha256-{}", content.manifest.digest.hex());
        assert_eq!(shelf.lock().unwrap().things.contains_key(&("acme/tool".into(), tag)), !has_referrers);
        let error = referrers(&resolved, None, &crate::world::offline()).unwrap_err();
        assert!(matches!(error, Error::Offline(_)));
    }
}

#[test]
fn hostile_lists_of_referrers() {
    let content = Content::new(&[b"one"]);
    let entry =
        |n: usize| format!(r#"{{"mediaType":"{OCI_MANIFEST}","digest":"{}","size":2}}"#, Digest::of(n.to_string()));
    let many = (0..1001).map(entry).collect::<Vec<_>>().join(",");
    let foreign =
        format!(r#"{{"mediaType":"x","digest":"{}","size":2,"urls":["https://x.example/"]}}"#, Digest::of(""));
    let list = |entries: &str| format!(r#"{{"schemaVersion":2,"mediaType":"{OCI_INDEX}","manifests":[{entries}]}}"#);
    let table = [
        (list(&many), "at most 1000"),
        (list(r#"{"mediaType":"x","digest":"sha256:../../x","size":2}"#), "not a digest"),
        (list(&foreign), "foreign urls"),
        (format!(r#"{{"schemaVersion":2,"mediaType":"{OCI_MANIFEST}","manifests":[]}}"#), "is no index"),
        (r#"{"schemaVersion":2,"manifests":[],"manifests":[]}"#.into(), "occurs twice"),
        ("<html>".into(), "expected value"),
    ];
    for (body, why) in table {
        let fake = content.serve(move |call, reply| match call.path.contains("/referrers/") {
            true => Reply::new(200, body.clone()).header("content-type", OCI_INDEX),
            false => reply,
        });
        let cache = Cache::new();
        let resolved =
            resolve(&format!("{}/acme/tool:1", fake.host).parse().unwrap(), &cache.store, &cached()).unwrap();
        let error = referrers(&resolved, None, &cached()).unwrap_err();
        assert!(error.kind() == Kind::Verification && error.to_string().contains(why), "{why}: {error}");
    }
    // Pages without an end are read a while, and what is listed twice counts once.
    let page = list(&entry(1));
    let fake = content.serve(move |call, reply| match call.path.contains("/referrers/") {
        true => Reply::new(200, page.clone()).header("link", format!("<{}>; rel=\"next\"", call.path)),
        false => reply,
    });
    let cache = Cache::new();
    let resolved = resolve(&format!("{}/acme/tool:1", fake.host).parse().unwrap(), &cache.store, &cached()).unwrap();
    assert_eq!(referrers(&resolved, None, &cached()).unwrap().len(), 1);
    assert_eq!(fake.count("GET", "/referrers/"), 20);
}

#[test]
fn a_registry_that_stored_something_else_is_not_believed() {
    let content = Content::new(&[b"one"]);
    let other = Digest::of("other").to_string();
    for part in ["/manifests/", "/blobs/uploads/0"] {
        let (inner, other) = (Mutex::new(Shelf::default()), other.clone());
        let fake = Fake::serve(move |call| {
            let reply = inner.lock().unwrap().answer(call);
            if call.method == "PUT" && call.path.contains(part) {
                reply.header("docker-content-digest", &other)
            } else {
                reply
            }
        });
        let error = publish(&Cache::new(), &content, &format!("{}/acme/tool:1", fake.host)).unwrap_err();
        assert!(error.kind() == Kind::Verification && error.to_string().contains("says that it stored"), "{error}");
    }
}
