//! Signatures and attestations beside an image: found, put there, kept.

use std::collections::BTreeMap;
use std::fs;

use distribution::media_type::*;
use distribution::*;

use crate::fake::{Fake, Reply};
use crate::publish::shelf;
use crate::world::{Cache, Content, cached, offline, refreshing};

fn resolved(cache: &Cache, name: &str) -> Resolved {
    resolve(&name.parse().unwrap(), &cache.store, &refreshing()).unwrap()
}

fn one(form: AttachmentForm, text: &str) -> Attachment {
    Attachment { form, text: text.into() }
}

fn found(cache: &Cache, name: &str) -> Vec<Attachment> {
    let resolved = resolved(cache, name);
    let all = attachments(&resolved, &resolved.descriptor.digest, &cached()).unwrap();
    assert_eq!(all.left_out, []);
    let mut found = all.found;
    found.sort();
    found
}

#[test]
fn t12_put_beside_and_found_again() {
    let content = Content::new(&[b"one"]);
    let layout = tempfile::tempdir().unwrap();
    let (with, _) = shelf(|shelf| shelf.has_referrers = true);
    let (without, _) = shelf(|_| ());
    for name in [
        format!("{}/acme/tool:1", with.host),
        format!("{}/acme/tool:1", without.host),
        format!("oci-layout:{}:1", layout.path().join("l").display()),
    ] {
        let cache = Cache::new();
        content.put(&cache.store, "built");
        push(&cache.store, &content.manifest, &name.parse().unwrap(), &cached()).unwrap();
        let before = (cache.files("refs"), cache.files("blobs/sha256"));
        let image = resolved(&cache, &name);
        assert_eq!(found(&cache, &name), []);
        let tag = attach_signature(&image, b"{\"a\":1}", "AAAA", &cache.store, &cached()).unwrap();
        assert_eq!(tag, format!("sha256-{}.sig", content.manifest.digest.hex()));
        attach_signature(&image, b"{\"a\":2}", "BBBB", &cache.store, &cached()).unwrap();
        let annotations = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        for text in ["{\"b\":1}", "{\"b\":2}"] {
            attach_bundle(&image, text.as_bytes(), annotations.clone(), &cache.store, &cached()).unwrap();
        }
        let want = [
            one(AttachmentForm::SimpleSigning("AAAA".into()), "{\"a\":1}"),
            one(AttachmentForm::SimpleSigning("BBBB".into()), "{\"a\":2}"),
            one(AttachmentForm::Bundle, "{\"b\":1}"),
            one(AttachmentForm::Bundle, "{\"b\":2}"),
        ];
        assert_eq!(found(&cache, &name), want, "{name}");
        assert_eq!((cache.files("refs"), cache.files("blobs/sha256")), before, "nothing of it stays in the store");
        // The image is what it was, also where it is named by its place alone.
        let plain = name.strip_suffix(":1").filter(|_| name.starts_with("oci-layout:")).unwrap_or(&name);
        assert_eq!(resolved(&Cache::new(), plain).descriptor.digest, content.manifest.digest);
        let error = attachments(&image, &content.manifest.digest, &offline());
        assert_eq!(matches!(error, Err(Error::Offline(_))), !name.starts_with("oci-layout:"));
    }
}

/// Another who read the list before and writes it after: what one of them put there is not lost, and that nobody can win is said.
#[test]
fn two_at_once_take_nothing_from_each_other() {
    let content = Content::new(&[b"one"]);
    let hex = content.manifest.digest.hex().to_owned();
    for (tag, form) in [
        (format!("sha256-{hex}.sig"), AttachmentForm::SimpleSigning("THEIRS".into())),
        (format!("sha256-{hex}"), AttachmentForm::Bundle),
    ] {
        let (fake, shelf) = shelf(|_| ());
        let name = format!("{}/acme/tool:1", fake.host);
        let cache = Cache::new();
        content.put(&cache.store, "built");
        push(&cache.store, &content.manifest, &name.parse().unwrap(), &cached()).unwrap();
        let image = resolved(&cache, &name);
        let put = |word: &str| match form {
            AttachmentForm::Bundle => {
                attach_bundle(&image, word.as_bytes(), BTreeMap::new(), &cache.store, &cached()).map(drop)
            }
            _ => attach_signature(&image, word.as_bytes(), word, &cache.store, &cached()).map(drop),
        };
        put("THEIRS").unwrap();
        let theirs = shelf.lock().unwrap().things.remove(&("acme/tool".to_owned(), tag.clone())).unwrap();
        shelf.lock().unwrap().meanwhile = vec![(tag.clone(), theirs.clone()); 2];
        put("OURS").unwrap();
        let mut words: Vec<_> = found(&cache, &name).into_iter().map(|one| one.text).collect();
        words.sort();
        assert_eq!(words, ["OURS", "THEIRS"], "{tag}");
        shelf.lock().unwrap().meanwhile = vec![(tag.clone(), theirs); 50];
        let error = put("AGAIN").unwrap_err();
        assert!(matches!(error, Error::Contended { .. }) && error.to_string().contains(&tag), "{error}");
        assert!(cache.files("locks").iter().all(|name| !name.contains("beside")), "{:?}", cache.files("locks"));
    }
}

/// What a mirror has of a list may be old: the list is read where it is written.
#[test]
fn a_mirror_that_is_behind_loses_nothing() {
    let content = Content::new(&[b"one"]);
    let ((mirror, of_mirror), (origin, of_origin)) = (shelf(|_| ()), shelf(|_| ()));
    let cache = Cache::new();
    let name = format!("{}/acme/tool:1", origin.host);
    content.put(&cache.store, "built");
    push(&cache.store, &content.manifest, &name.parse().unwrap(), &cached()).unwrap();
    of_mirror.lock().unwrap().things = of_origin.lock().unwrap().things.clone();
    let image = resolved(&cache, &name);
    attach_signature(&image, b"{\"a\":1}", "AAAA", &cache.store, &cached()).unwrap();
    let mut access = Access::default();
    access
        .hosts
        .insert(origin.host.clone(), HostAccess { mirrors: vec![mirror.host.clone()], ..HostAccess::default() });
    let behind = cached().through(std::sync::Arc::new(access));
    let image = resolve(&name.parse().unwrap(), &Cache::new().store, &behind).unwrap();
    attach_signature(&image, b"{\"a\":2}", "BBBB", &cache.store, &behind).unwrap();
    assert_eq!(found(&cache, &name).len(), 2);
}

#[test]
fn cosigns_attestations_are_read() {
    let content = Content::new(&[b"one"]);
    let (fake, _) = shelf(|_| ());
    let cache = Cache::new();
    let name = format!("{}/acme/tool:1", fake.host);
    content.put(&cache.store, "built");
    push(&cache.store, &content.manifest, &name.parse().unwrap(), &cached()).unwrap();
    let config = cache.store.put(b"{}", OCI_CONFIG).unwrap();
    let layer = cache.store.put(b"{\"payload\":\"\"}", DSSE_ENVELOPE).unwrap();
    let manifest = ImageManifest::new(config, vec![layer]);
    let manifest = cache.store.put(&manifest.to_bytes(), OCI_MANIFEST).unwrap();
    let tag = format!("{}/acme/tool:sha256-{}.att", fake.host, content.manifest.digest.hex());
    push(&cache.store, &manifest, &tag.parse().unwrap(), &cached()).unwrap();
    assert_eq!(found(&cache, &name), [one(AttachmentForm::Envelope, "{\"payload\":\"\"}")]);
}

/// A manifest of a bundle over one layer, and the reply that a fake registry gives for each of their digests.
fn carrier(subject: &Descriptor, bytes: &[u8], change: impl FnOnce(&mut ImageManifest)) -> Vec<(String, Vec<u8>)> {
    let layer = Descriptor::new(SIGSTORE_BUNDLE, Digest::of(bytes), bytes.len() as u64);
    let mut manifest = ImageManifest::new(Descriptor::new(OCI_EMPTY, Digest::of("{}"), 2), vec![layer.clone()]);
    manifest.artifact_type = Some(SIGSTORE_BUNDLE.into());
    manifest.subject = Some(subject.clone());
    change(&mut manifest);
    let manifest = manifest.to_bytes();
    vec![(Digest::of(&manifest).to_string(), manifest), (layer.digest.to_string(), bytes.to_vec())]
}

/// A registry that lists the first of `things` `times` times as a referrer, each under a digest of its own beyond the first.
fn lister(content: &Content, things: Vec<(String, Vec<u8>)>, times: usize) -> Fake {
    let entry = |digest: &str| {
        format!(r#"{{"mediaType":"{OCI_MANIFEST}","digest":"{digest}","size":2,"artifactType":"{SIGSTORE_BUNDLE}"}}"#)
    };
    let digests: Vec<_> = (0..times)
        .map(|n| if n == 0 { things[0].0.clone() } else { Digest::of(n.to_string()).to_string() })
        .map(|digest| entry(&digest))
        .collect();
    let list = format!(r#"{{"schemaVersion":2,"mediaType":"{OCI_INDEX}","manifests":[{}]}}"#, digests.join(","));
    content.serve(move |call, reply| {
        let last = call.path.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
        if call.path.contains("/referrers/") {
            return Reply::new(200, list.clone()).header("content-type", OCI_INDEX);
        }
        match things.iter().find(|(digest, _)| *digest == last) {
            Some((_, bytes)) => Reply::new(200, bytes.clone()).header("content-type", OCI_MANIFEST),
            None if last.starts_with("sha256-") => Reply::new(404, ""),
            None => reply,
        }
    })
}

#[test]
fn what_cannot_be_read_is_said() {
    let content = Content::new(&[b"one"]);
    let subject = content.manifest.clone();
    let other = Descriptor::new(OCI_MANIFEST, Digest::of("other"), 5);
    let plain = || carrier(&subject, b"{}", |_| ());
    let lacks = |mut things: Vec<(String, Vec<u8>)>, at: usize| {
        things[at].1 = b"changed".to_vec();
        things
    };
    let two = carrier(&subject, b"{}", |manifest| manifest.layers.push(manifest.layers[0].clone()));
    let large = carrier(&subject, b"{}", |manifest| manifest.layers[0].size = MAX_ATTACHMENT as u64 + 1);
    for (things, why) in [
        (carrier(&other, b"{}", |_| ()), "about another digest"),
        (carrier(&subject, b"{}", |manifest| manifest.subject = None), "about another digest"),
        (two, "does not hold one bundle"),
        (large, "at most 1048576 are read"),
        (carrier(&subject, &[0xff, 0xfe], |_| ()), "no text"),
        (lacks(plain(), 1), "another digest"),
        (plain()[..1].to_vec(), "listed, and is not there"),
    ] {
        let fake = lister(&content, things, 1);
        let cache = Cache::new();
        let image = resolved(&cache, &format!("{}/acme/tool:1", fake.host));
        let all = attachments(&image, &image.descriptor.digest, &cached()).unwrap();
        assert_eq!((all.found.len(), all.left_out.len()), (0, 1), "{why}");
        assert!(all.left_out[0].1.contains(why), "{why}: {:?}", all.left_out);
    }
    let fake = lister(&content, plain(), 1);
    let cache = Cache::new();
    assert_eq!(found(&cache, &format!("{}/acme/tool:1", fake.host)), [one(AttachmentForm::Bundle, "{}")]);
}

/// One of them could be the revocation: a list that is too long is no list.
#[test]
fn more_than_is_read_is_an_error() {
    let content = Content::new(&[b"one"]);
    let things = carrier(&content.manifest, b"{}", |_| ());
    let fake = lister(&content, things, 65);
    let cache = Cache::new();
    let image = resolved(&cache, &format!("{}/acme/tool:1", fake.host));
    let error = attachments(&image, &image.descriptor.digest, &cached()).unwrap_err();
    assert!(error.to_string().contains("65 documents, at most 64"), "{error}");
}

#[test]
fn what_was_listed_goes_with_its_image() {
    let (content, other) = (Content::new(&[b"one"]), Content::new(&[b"two"]));
    let cache = Cache::new();
    content.put(&cache.store, "a");
    other.put(&cache.store, "b");
    let listed =
        |text: &str| Attachments { listed_at: 7, found: vec![one(AttachmentForm::Bundle, text)], left_out: vec![] };
    let keep = |content: &Content, text: &str| {
        cache.store.keep_attachments(&content.manifest.digest, &listed(text)).unwrap();
    };
    let kept = |content: &Content| cache.store.attachments(&content.manifest.digest).unwrap();
    assert_eq!(kept(&content), None);
    keep(&content, "old");
    keep(&content, "new");
    keep(&other, "x");
    assert_eq!(kept(&content), Some(listed("new")));
    let stray = Digest::of("nobody's");
    cache.store.keep_attachments(&stray, &listed("y")).unwrap();
    cache.store.collect(&Allowance::default()).unwrap();
    assert_eq!(cache.store.attachments(&stray).unwrap(), None);
    cache.store.remove("a").unwrap();
    assert_eq!((kept(&content), kept(&other)), (None, Some(listed("x"))));
    fs::write(cache.store.root().join(format!("attached/{}.json", other.manifest.digest.hex())), "{").unwrap();
    assert_eq!(kept(&other), None, "what cannot be understood is as good as none");
    keep(&other, "x");
    cache.store.remove_all().unwrap();
    assert_eq!(kept(&other), None);
}
