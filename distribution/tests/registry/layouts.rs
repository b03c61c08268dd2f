//! OCI layout directories as source and target.

use std::fs;

use distribution::*;

use crate::world::{Cache, Content, cached, offline};

#[test]
fn there_and_back() {
    let content = Content::new(&[b"layer one", b"layer two"]);
    let (from, to) = (Cache::new(), Cache::new());
    content.put(&from.store, "h/a/b:1");
    let dir = from.dir.path().join("new/layout");
    let target = |suffix: &str| format!("oci-layout:{}{suffix}", dir.display());
    let publish = |suffix: &str| push(&from.store, &content.manifest, &target(suffix).parse().unwrap(), &offline());
    let pushed = publish(":v1").unwrap();
    assert_eq!((pushed.uploaded, pushed.present), (3, 0));
    let pushed = publish(":v1").unwrap();
    assert_eq!((pushed.uploaded, pushed.present, pushed.bytes), (0, 3, 0));
    for suffix in ["", ":v1", &format!("@{}", content.manifest.digest)] {
        let image = to.pull(&target(suffix), &offline()).unwrap();
        assert_eq!(image.resolved.freshness, Freshness::Fetched);
        assert_eq!(image.resolved.descriptor, content.manifest);
        assert_eq!(to.pull(&target(suffix), &offline()).unwrap().resolved.freshness, Freshness::Cached, "{suffix}");
    }
    publish("").unwrap();
    publish(":v2").unwrap();
    let error = to.pull(&target(""), &cached()).unwrap_err();
    assert!(matches!(&error, Error::Ambiguous { names, .. } if names.contains(&"v2".into())), "{error}");
    assert!(matches!(to.pull(&target(":v3"), &cached()), Err(Error::NotFound { .. })));
    let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), 3, "blobs, index.json, oci-layout: {names:?}");
}

#[test]
fn the_store_is_a_layout_itself() {
    let content = Content::new(&[b"layer"]);
    let (from, to) = (Cache::new(), Cache::new());
    content.put(&from.store, "localhost:5000/acme/tool:1");
    let text = format!("oci-layout:{}:localhost:5000/acme/tool:1", from.store.root().display());
    assert_eq!(to.pull(&text, &offline()).unwrap().resolved.descriptor, content.manifest);
}

#[test]
fn a_damaged_layout_is_refused() {
    let content = Content::new(&[b"layer"]);
    let damage: [(&str, &str, Kind); 4] = [
        (content.layers[0].digest.hex(), "lAyer", Kind::Verification),
        (content.layers[0].digest.hex(), "lay", Kind::Verification),
        (content.manifest.digest.hex(), "{}", Kind::Verification),
        ("../../index.json", "{", Kind::Verification),
    ];
    for (file, text, kind) in damage {
        let (from, to) = (Cache::new(), Cache::new());
        content.put(&from.store, "x");
        let dir = from.store.root();
        fs::write(dir.join("blobs/sha256").join(file), text).unwrap();
        assert_eq!(to.pull(&format!("oci-layout:{}", dir.display()), &offline()).unwrap_err().kind(), kind, "{text}");
        assert!(to.files("refs").is_empty());
    }
    let (from, to) = (Cache::new(), Cache::new());
    content.put(&from.store, "x");
    fs::remove_file(from.store.root().join("blobs/sha256").join(content.layers[0].digest.hex())).unwrap();
    let error = to.pull(&format!("oci-layout:{}", from.store.root().display()), &offline()).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}

#[test]
fn a_directory_that_is_no_layout_is_left_alone() {
    let content = Content::new(&[b"layer"]);
    let cache = Cache::new();
    content.put(&cache.store, "x");
    let dir = cache.dir.path().join("mine");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "precious").unwrap();
    let text = format!("oci-layout:{}:v1", dir.display());
    let error = push(&cache.store, &content.manifest, &text.parse().unwrap(), &offline()).unwrap_err();
    assert!(error.kind() == Kind::Store && error.to_string().contains("neither empty nor"), "{error}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert!(matches!(cache.pull(&text, &offline()), Err(Error::NotFound { .. })));
}

#[test]
fn a_target_that_names_another_digest_is_refused() {
    let content = Content::new(&[b"layer"]);
    let cache = Cache::new();
    content.put(&cache.store, "x");
    let other = Digest::of("other");
    for text in [format!("oci-layout:{}/l@{other}", cache.dir.path().display()), format!("localhost:1/a/b@{other}")] {
        let error = push(&cache.store, &content.manifest, &text.parse().unwrap(), &cached()).unwrap_err();
        assert_eq!(error.kind(), Kind::Verification, "{error}");
    }
    let error = push(&cache.store, &content.manifest, &"npm:x".parse().unwrap(), &cached()).unwrap_err();
    assert!(matches!(error, Error::NotBuilt(_)));
}
