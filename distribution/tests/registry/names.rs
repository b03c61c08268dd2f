//! Which requests a name costs, and what it is remembered as.

use std::sync::Mutex;

use distribution::media_type::*;
use distribution::*;

use crate::fake::{Fake, Reply};
use crate::world::{Cache, Content, bring_layers, cached, offline, refreshing};

#[test]
fn a_warm_name_costs_no_request() {
    let content = Content::new(&[b"layer one", b"layer two"]);
    let fake = content.serve(|_, reply| reply);
    let cache = Cache::new();
    let name = format!("{}/acme/tool@1.0+b", fake.host);
    let steps = Mutex::new(Vec::new());
    let resolved = resolve(&name.parse().unwrap(), &cache.store, &cached()).unwrap();
    let pending = Pending::new(&resolved, &cache.store).unwrap();
    let image = configure(&resolved, &cache.store, &cached()).unwrap();
    bring_layers(&image, &cache.store, &cached(), &|step| steps.lock().unwrap().push(step)).unwrap();
    pending.keep().unwrap();
    assert_eq!(image.resolved.freshness, Freshness::Fetched);
    assert_eq!((&image.layers, image.diff_ids.len()), (&content.layers, 2));
    assert!(image.layers.iter().all(|layer| cache.store.blob(layer).unwrap().is_some()));
    let done = |step: &Progress| matches!(step, Progress::Done { .. });
    assert_eq!(steps.into_inner().unwrap().iter().filter(|step| done(step)).count(), 2);
    let calls = fake.calls().len();
    assert_eq!(calls, 4, "manifest, configuration, two layers");

    let remembered = cache.store.recall(&format!("{}/acme/tool:1.0_b", fake.host)).unwrap().unwrap();
    assert_eq!((remembered.descriptor, remembered.origin), (content.manifest.clone(), Origin::Fetched));
    let before = std::fs::metadata(cache.store.root().join("index.json")).unwrap().modified().unwrap();
    for net in [cached(), offline()] {
        let image = cache.pull(&name, &net).unwrap();
        assert_eq!(image.resolved.freshness, Freshness::Cached);
        let pinned = format!("{}/acme/tool@{}", fake.host, content.manifest.digest);
        let resolved = resolve(&pinned.parse().unwrap(), &cache.store, &net).unwrap();
        assert_eq!((resolved.freshness, resolved.descriptor), (Freshness::Cached, content.manifest.clone()));
    }
    assert_eq!(fake.calls().len(), calls);
    assert_eq!(std::fs::metadata(cache.store.root().join("index.json")).unwrap().modified().unwrap(), before);

    let image = cache.pull(&name, &refreshing()).unwrap();
    assert_eq!(image.resolved.freshness, Freshness::Fetched);
    assert_eq!(
        (fake.calls().len(), fake.count("HEAD", "/manifests/1.0_b")),
        (calls + 1, 1),
        "a HEAD shows it is the same"
    );
}

#[test]
fn unpacked_layers_need_no_blob() {
    let content = Content::new(&[b"layer one", b"layer two"]);
    let fake = content.serve(|_, reply| reply);
    let cache = Cache::new();
    let Staging::Empty(staged) = cache.store.stage_layer(&content.layers[0].digest).unwrap() else { panic!("new") };
    staged.commit().unwrap();
    cache.pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
    assert_eq!(fake.count("GET", content.layers[0].digest.as_str()), 0);
    assert_eq!(fake.count("GET", content.layers[1].digest.as_str()), 1);
}

#[test]
fn many_pulls_at_once_fetch_each_blob_once() {
    let big = vec![5; 3 << 20];
    let content = Content::new(&[&big, b"layer two", b"layer three"]);
    let fake = content.serve(|_, reply| reply);
    let cache = Cache::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // A store of its own each, as processes have.
            let (root, name) = (cache.store.root(), format!("{}/acme/tool:1", fake.host));
            scope.spawn(move || {
                let store = Store::open(root).unwrap();
                let resolved = resolve(&name.parse().unwrap(), &store, &cached()).unwrap();
                let pending = Pending::new(&resolved, &store).unwrap();
                bring_layers(&configure(&resolved, &store, &cached()).unwrap(), &store, &cached(), &|_| ()).unwrap();
                pending.keep().unwrap();
            });
        }
    });
    for blob in content.layers.iter().chain([&content.config]) {
        assert_eq!(fake.count("GET", blob.digest.as_str()), 1, "{}", blob.digest);
    }
    assert!(cache.files("tmp").is_empty());
}

#[test]
fn what_was_built_here_is_found_without_a_registry() {
    let content = Content::new(&[b"layer"]);
    let cache = Cache::new();
    let reference: Reference = "localhost:1/mcp/everything:1.0".parse().unwrap();
    let name = canonical(&reference, &cached()).unwrap();
    assert_eq!(name, "localhost:1/mcp/everything:1.0");
    content.put(&cache.store, &name);
    for net in [cached(), offline()] {
        assert_eq!(cache.pull(&name, &net).unwrap().resolved.freshness, Freshness::Cached);
    }
    let by_version = cache.pull("localhost:1/mcp/everything@1.0", &cached()).unwrap();
    assert_eq!(by_version.resolved.descriptor, content.manifest);
    let demanded = cache.pull(&name, &refreshing()).unwrap();
    assert!(matches!(demanded.resolved.freshness, Freshness::Stale(_)), "nobody listens there");
}

#[test]
fn canonical_names() {
    let net = Network::new("https://Hub.example", Mode::Offline);
    let name = |text: &str| canonical(&text.parse().unwrap(), &net);
    for (text, want) in [
        ("acme/tool", "hub.example/acme/tool:latest"),
        ("acme/tool@latest", "hub.example/acme/tool:latest"),
        ("hub.example/acme/tool:latest", "hub.example/acme/tool:latest"),
        ("acme/tool@1.0+b", "hub.example/acme/tool:1.0_b"),
        ("oci-layout:/a/b:v1", "oci-layout:/a/b:v1"),
    ] {
        assert_eq!(name(text).unwrap(), want);
    }
    assert!(name("oci-layout:x").unwrap().starts_with("oci-layout:/"), "whatever the working directory is later");
    let pinned = format!("acme/tool@{}", Digest::of(""));
    assert_eq!(name(&pinned).unwrap(), format!("hub.example/{pinned}"));
    let badly_configured = Network::new("http://hub.example", Mode::Offline);
    assert!(canonical(&"acme/tool".parse().unwrap(), &badly_configured).is_err());
}

#[test]
fn a_source_must_be_built_first() {
    let cache = Cache::new();
    for text in ["npm:x", "pypi:x==1"] {
        let error = resolve(&text.parse().unwrap(), &cache.store, &cached()).unwrap_err();
        assert_eq!(error.kind(), Kind::Reference);
        assert!(error.hint().unwrap().contains(&format!("smcp build {text} ")), "{error}");
        let error = resolve(&text.parse().unwrap(), &cache.store, &offline()).unwrap_err();
        assert!(matches!(&error, Error::Offline(name) if name == text), "{error}");
    }
    let error = resolve(&"mcp:io.github.acme/x".parse().unwrap(), &cache.store, &cached()).unwrap_err();
    assert_eq!(error.kind(), Kind::Reference);
    for text in ["./dir", "./x.mcpb"] {
        let error = resolve(&text.parse().unwrap(), &cache.store, &cached()).unwrap_err();
        assert!(error.to_string().contains(&format!("cannot find {text}")), "{error}");
    }
}

#[test]
fn what_was_made_of_a_source_has_its_name() {
    let content = Content::new(&[b"layer"]);
    let cache = Cache::new();
    content.put(&cache.store, "x");
    let making = Making { runtime: Runtime::Host, bin: Some("b".into()), ..Making::default() };
    let net = offline().making(making);
    let (reference, platform) = ("npm:@a/x".parse().unwrap(), Platform::host());
    let name = canonical(&reference, &net).unwrap();
    let begins = format!("npm:@a/x@latest?{}/{}&", platform.os, platform.architecture);
    assert!(name.starts_with(&begins) && name.ends_with("&runtime=host&bin=b"), "{name}");
    let other = canonical(&"pypi:A_.x==1".parse().unwrap(), &net).unwrap();
    assert!(other.starts_with("pypi:a-x==1?") && other.ends_with("&runtime=host&bin=b"), "{other}");
    assert!(family(&reference, &net).unwrap().starts_with("npm:@a/x"));
    assert!(resolve(&reference, &cache.store, &net).is_err());
    let made = Made { fingerprint: "f".into(), failed: None };
    cache.store.remember_made(&name, &content.manifest, made.clone()).unwrap();
    let resolved = resolve(&reference, &cache.store, &net).unwrap();
    assert_eq!((resolved.descriptor.digest, resolved.freshness), (content.manifest.digest.clone(), Freshness::Cached));
    let known = cache.store.recall(&name).unwrap().unwrap();
    let failed = Made { failed: Some("why".into()), ..made };
    cache.store.amend(&name, failed.clone()).unwrap();
    let again = cache.store.recall(&name).unwrap().unwrap();
    assert_eq!((again.made, again.resolved_at), (Some(failed), known.resolved_at));
    assert!(
        resolve(&reference, &cache.store, &offline()).is_err(),
        "made by the package's own runtime it is another one"
    );
}

#[test]
fn the_network_stays_off() {
    let content = Content::new(&[b"layer"]);
    let fake = content.serve(|_, reply| reply);
    let cache = Cache::new();
    for suffix in [":1".to_string(), format!("@{}", content.manifest.digest)] {
        let error = cache.pull(&format!("{}/acme/tool{suffix}", fake.host), &offline()).unwrap_err();
        assert!(matches!(&error, Error::Offline(name) if name.ends_with(&suffix)), "{error}");
    }
    assert!(fake.calls().is_empty());
}

/// An index over images for `platforms`, served by tag.
fn index(platforms: &[&str]) -> (Fake, Vec<Content>) {
    let images: Vec<_> = platforms.iter().map(|platform| Content::new(&[platform.as_bytes()])).collect();
    let entries = images.iter().zip(platforms).map(|(image, platform)| {
        let platform = platform.parse().ok();
        Descriptor { platform, ..image.manifest.clone() }
    });
    let mut all = images[0].clone();
    let bytes = ImageIndex::new(entries.collect()).to_bytes();
    all.manifest = Descriptor::new(OCI_INDEX, Digest::of(&bytes), bytes.len() as u64);
    all.blobs.insert(all.manifest.digest.to_string(), bytes);
    all.blobs.extend(images.iter().flat_map(|image| image.blobs.clone()));
    (all.serve(|_, reply| reply), images)
}

#[test]
fn platforms() {
    let (fake, images) = index(&["linux/arm64", "linux/amd64", "linux/s390x"]);
    let cache = Cache::new();
    let name = format!("{}/acme/tool:1", fake.host);
    for (number, platform) in ["linux/arm64", "linux/amd64"].iter().enumerate() {
        let net = Network { platform: platform.parse().unwrap(), ..cached() };
        let image = cache.pull(&name, &net).unwrap();
        assert_eq!(image.resolved.manifest_descriptor.digest, images[number].manifest.digest, "{platform}");
        assert_eq!(image.resolved.descriptor.media_type, OCI_INDEX);
        cache.pull(&name, &Network { platform: net.platform, ..offline() }).unwrap();
    }
    let net = Network { platform: "windows/amd64".parse().unwrap(), ..cached() };
    let error = cache.pull(&name, &net).unwrap_err();
    assert_eq!(error.kind(), Kind::Resolve);
    let want = "no image for windows/amd64: there are images for linux/arm64, linux/amd64, linux/s390x";
    assert_eq!(error.to_string(), want);
}

#[test]
fn u62_indexes_within_indexes_end() {
    let mut content = Content::new(&[b"layer"]);
    for depth in 1..=3 {
        let bytes = ImageIndex::new(vec![content.manifest.clone()]).to_bytes();
        content.manifest = Descriptor::new(OCI_INDEX, Digest::of(&bytes), bytes.len() as u64);
        content.blobs.insert(content.manifest.digest.to_string(), bytes);
        let fake = content.serve(|_, reply| reply);
        let pulled = Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached());
        match pulled {
            Ok(_) => assert!(depth <= 2),
            Err(error) => assert!(depth == 3 && error.to_string().contains("deeper than 2"), "{depth}: {error}"),
        }
    }
}

#[test]
fn latest_is_a_tag_or_the_highest_release() {
    let content = Content::new(&[b"layer"]);
    let fake = content.serve(|call, reply| match call.path.as_str() {
        path if path.ends_with("/manifests/latest") => Reply::new(404, ""),
        path if path.contains("/tags/list?n=1000") => {
            let next = r#"</v2/acme/tool/tags/list?last=1.2.0>; rel="next""#;
            Reply::new(200, r#"{"name":"acme/tool","tags":["1.2.0","9.0.0-rc.1"]}"#).header("link", next)
        }
        path if path.contains("/tags/list?last=1.2.0") => Reply::new(200, r#"{"tags":["1.10.0","nightly"]}"#),
        path if path.ends_with("/manifests/1.10.0") => reply,
        _ if call.path.contains("/manifests/") => Reply::new(404, ""),
        _ => reply,
    });
    let cache = Cache::new();
    let image = cache.pull(&format!("{}/acme/tool", fake.host), &cached()).unwrap();
    assert_eq!(image.resolved.name, format!("{}/acme/tool:latest", fake.host));
    assert_eq!(fake.count("GET", "/manifests/1.10.0"), 1);
}

#[test]
fn u51_u61_an_image_whose_configuration_does_not_fit_is_refused() {
    let config = br#"{"rootfs":{"diff_ids":[]}}"#;
    let mut content = Content::new(&[b"layer"]);
    let config_descriptor = Descriptor::new(OCI_CONFIG, Digest::of(config), config.len() as u64);
    content.blobs.insert(config_descriptor.digest.to_string(), config.to_vec());
    let mut manifest = ImageManifest::new(config_descriptor, content.layers.clone());
    type Change = fn(&mut Descriptor);
    let changes: [(Change, &str); 3] = [
        (|_| (), "it names 0 layers"),
        (|config| config.size = MAX_CONFIG as u64 + 1, "at most 8388608"),
        (|config| config.media_type = "application/vnd.cncf.helm.config.v1+json".into(), "not the configuration"),
    ];
    for (change, why) in changes {
        change(&mut manifest.config);
        let bytes = manifest.to_bytes();
        content.manifest = Descriptor::new(OCI_MANIFEST, Digest::of(&bytes), bytes.len() as u64);
        content.blobs.insert(content.manifest.digest.to_string(), bytes);
        let fake = content.serve(|_, reply| reply);
        let error = Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap_err();
        assert!(error.kind() == Kind::Verification && error.to_string().contains(why), "{error}");
    }
}
