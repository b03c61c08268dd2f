//! A registry that lies, fails or points elsewhere: refused, and the store is as before.

use distribution::media_type::*;
use distribution::*;

use crate::fake::{Call, Ending, Reply};
use crate::world::{Cache, Content, cached, offline, refreshing};

type Tamper = fn(&Call, Reply) -> Reply;

/// Changes the answers to requests for manifests alone.
macro_rules! manifest {
    ($change:expr) => {
        |call, reply| if call.path.contains("/manifests/") { ($change as fn(Reply) -> Reply)(reply) } else { reply }
    };
}

/// Changes the answers to requests for blobs alone.
macro_rules! blob {
    ($change:expr) => {
        |call, reply| if call.path.contains("/blobs/") { ($change as fn(Reply) -> Reply)(reply) } else { reply }
    };
}

const PINNED: &str = "@";
const TAG: &str = ":1";

#[rustfmt::skip]
const LIES: &[(&str, &str, Tamper, Kind, &str)] = &[
    ("another manifest for a digest", PINNED, manifest!(|r| Reply { body: b"{}".into(), ..r }), Kind::Verification, "other bytes"),
    ("another manifest for a tag", TAG, manifest!(|r| Reply { body: b"{}".into(), ..r }), Kind::Verification, "other bytes"),
    ("a digest that is a path", TAG, manifest!(|r| r.header("docker-content-digest", "../../x")), Kind::Verification, "other bytes"),
    ("an upper-case digest", TAG, manifest!(|r| { let d = Digest::of(&r.body).to_string().to_uppercase(); r.header("docker-content-digest", d) }), Kind::Verification, "other bytes"),
    ("a wrong content type", TAG, manifest!(|r| r.header("content-type", OCI_INDEX)), Kind::Verification, "announced as"),
    ("a web page", TAG, |_, _| Reply::new(200, "<html>").header("content-type", "text/html"), Kind::Verification, "expected value"),
    ("a manifest cut short", TAG, manifest!(|r| r.ending(Ending::CutAfter(20))), Kind::Resolve, "127.0.0.1"),
    ("an endless manifest", TAG, manifest!(|r| r.ending(Ending::Never)), Kind::Verification, "longer than"),
    ("a blob of other bytes", TAG, blob!(|mut r| { r.body[0] ^= 1; r }), Kind::Verification, "other bytes"),
    ("a short blob", TAG, blob!(|mut r| { r.body.pop(); r }), Kind::Verification, "bytes arrived"),
    ("a long blob", TAG, blob!(|mut r| { r.body.push(0); r }), Kind::Verification, "longer than"),
    ("an endless blob", TAG, blob!(|r| r.ending(Ending::Never)), Kind::Verification, "longer than"),
    ("a blob cut short", TAG, blob!(|r| r.ending(Ending::CutAfter(1))), Kind::Resolve, "broke off"),
    ("a redirect to http elsewhere", TAG, |_, _| Reply::new(307, "").header("location", "http://192.0.2.1/x"), Kind::Resolve, "plain http to another machine"),
    ("a blob redirected to a file", TAG, blob!(|_| Reply::new(302, "").header("location", "file:///etc/passwd")), Kind::Resolve, "neither http nor https"),
    ("a redirect in a circle", TAG, |call, _| Reply::new(301, "").header("location", call.path.clone()), Kind::Resolve, "more than 5 redirects"),
    ("a redirect to nowhere", TAG, |_, _| Reply::new(301, ""), Kind::Resolve, "not an absolute url"),
    ("401", TAG, |_, _| Reply::new(401, "").header("www-authenticate", "Bearer realm=\"http://192.0.2.1/\""), Kind::Resolve, "token service cannot be used: plain http to another machine"),
    ("403", TAG, |_, _| Reply::new(403, r#"{"errors":[{"code":"DENIED","message":"no\u001b[2J way"}]}"#), Kind::Resolve, "status 403: DENIED no[2J way"),
    ("404", TAG, |_, _| Reply::new(404, ""), Kind::Resolve, "not found"),
    ("500", TAG, |_, _| Reply::new(500, "oops"), Kind::Resolve, "status 500"),
    ("500 for blobs", TAG, blob!(|_| Reply::new(500, "")), Kind::Resolve, "status 500"),
    ("404 for blobs", TAG, blob!(|_| Reply::new(404, "")), Kind::Resolve, "not found"),
];

#[test]
fn lies() {
    let content = Content::new(&[b"layer one", b"layer two"]);
    std::thread::scope(|scope| {
        for lie in LIES {
            scope.spawn(|| refused(&content, lie));
        }
    });
}

fn refused(content: &Content, (what, suffix, tamper, kind, why): &(&str, &str, Tamper, Kind, &str)) {
    let cache = Cache::new();
    let (index, outside) = (std::fs::read(cache.store.root().join("index.json")).unwrap(), cache.dir.path());
    let fake = content.serve(*tamper);
    let suffix = if *suffix == PINNED { format!("@{}", content.manifest.digest) } else { suffix.to_string() };
    let error = cache.pull(&format!("{}/acme/tool{suffix}", fake.host), &cached()).unwrap_err();
    assert!(error.kind() == *kind && error.to_string().contains(why), "{what}: {error}");
    assert!(!error.to_string().contains('\u{1b}') && !error.to_string().contains('\n'), "{what}: {error}");
    assert!(cache.files("refs").is_empty() && cache.files("tmp").is_empty() && cache.files("layers").is_empty());
    assert_eq!(std::fs::read(cache.store.root().join("index.json")).unwrap(), index, "{what}");
    for name in cache.files("blobs/sha256") {
        assert!(content.blobs.contains_key(&format!("sha256:{name}")), "{what}: {name}");
    }
    assert_eq!(std::fs::read_dir(outside).unwrap().count(), 1, "{what}: something beside the store");
}

#[test]
fn after_a_lie_the_truth_is_fetched() {
    let content = Content::new(&[b"layer one", b"layer two"]);
    let cache = Cache::new();
    let liar = content.serve(blob!(|mut reply| {
        reply.body.pop();
        reply
    }));
    cache.pull(&format!("{}/acme/tool:1", liar.host), &cached()).unwrap_err();
    let honest = content.serve(|_, reply| reply);
    cache.pull(&format!("{}/acme/tool:1", honest.host), &cached()).unwrap();
}

#[test]
fn a_known_name_outlives_its_registry_but_not_a_lie() {
    let content = Content::new(&[b"layer"]);
    let cache = Cache::new();
    let mood = std::sync::Arc::new(std::sync::atomic::AtomicU16::new(200));
    let now = mood.clone();
    let fake = content.serve(move |_, reply| match now.load(std::sync::atomic::Ordering::SeqCst) {
        200 => reply,
        1 => Reply { body: b"{}".into(), ..reply }.header("docker-content-digest", "sha256:x"),
        status => Reply::new(status, ""),
    });
    let name = format!("{}/acme/tool:1", fake.host);
    cache.pull(&name, &cached()).unwrap();
    let remembered = cache.store.recall(&name).unwrap();
    for status in [401, 404, 500, 503] {
        mood.store(status, std::sync::atomic::Ordering::SeqCst);
        let image = cache.pull(&name, &refreshing()).unwrap();
        assert!(matches!(&image.resolved.freshness, Freshness::Stale(why) if why.contains(&fake.host)), "{status}");
        assert_eq!(cache.store.recall(&name).unwrap(), remembered, "{status}: its age shows");
    }
    mood.store(1, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(cache.pull(&name, &refreshing()).unwrap_err().kind(), Kind::Verification);
    assert_eq!(cache.pull(&name, &cached()).unwrap().resolved.freshness, Freshness::Cached);
    assert_eq!(cache.pull(&name, &offline()).unwrap().resolved.freshness, Freshness::Cached);
}

#[test]
fn blobs_may_lie_on_another_host_that_gets_no_header_of_ours() {
    let content = Content::new(&[b"layer one", b"layer two"]);
    let storage = content.serve(|_, reply| reply);
    let target = storage.host.clone();
    let fake = content.serve(move |call, reply| match call.path.contains("/blobs/") {
        true => Reply::new(307, "").header("location", format!("http://{target}{}?signature=s", call.path)),
        false => reply,
    });
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
    let calls = storage.calls();
    assert_eq!(calls.len(), 3);
    for call in calls {
        let names: Vec<_> = call.headers.iter().map(|h| h.split(':').next().unwrap().to_ascii_lowercase()).collect();
        assert!(!names.iter().any(|name| name == "authorization" || name == "cookie"), "{names:?}");
    }
}
