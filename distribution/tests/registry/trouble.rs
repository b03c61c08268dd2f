//! Registries that are busy, ill or away for a moment, and mirrors.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use distribution::*;

use crate::fake::{Call, Ending, Reply};
use crate::world::{Cache, Content, cached, offline, refreshing, through};

/// Answers the first `count` requests for each path by `bad`.
fn at_first(count: usize, bad: impl Fn() -> Reply + Send + Sync) -> impl Fn(&Call, Reply) -> Reply + Send + Sync {
    let seen: Mutex<BTreeMap<String, usize>> = Mutex::default();
    move |call, reply| {
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(call.path.clone()).or_default();
        *times += 1;
        if *times <= count { bad() } else { reply }
    }
}

#[test]
fn a6_a_registry_that_is_ill_for_a_moment_is_asked_again() {
    let content = Content::new(&[b"one", b"two"]);
    for (count, status) in [(2, 500), (1, 502), (1, 503), (1, 504), (1, 429)] {
        let fake = content.serve(at_first(count, move || Reply::new(status, "")));
        Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
        assert_eq!(fake.calls().len(), 4 * (count + 1), "{status}");
    }
}

#[test]
fn a6_a_registry_that_stays_ill_is_left_and_others_are_not_asked_twice() {
    let content = Content::new(&[b"one"]);
    for (status, times) in [(500, 5), (400, 1), (403, 1), (418, 1)] {
        let fake = content.serve(move |_, _| Reply::new(status, ""));
        let error = Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap_err();
        assert!(matches!(error, Error::Status { status: s, .. } if s == status), "{error}");
        assert_eq!(fake.calls().len(), times, "{status}");
    }
}

#[test]
fn a6_retry_after_is_waited_for() {
    let content = Content::new(&[b"one"]);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = asked.clone();
    let busy = at_first(1, || Reply::new(429, "").header("retry-after", "1"));
    let fake = content.serve(move |call, reply| {
        if call.path.contains("/manifests/") {
            times.lock().unwrap().push(std::time::Instant::now());
            return busy(call, reply);
        }
        reply
    });
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
    let asked = asked.lock().unwrap();
    assert!(asked.len() == 2 && asked[1] - asked[0] >= std::time::Duration::from_secs(1));
    // Nobody waits for an hour.
    let fake = content.serve(|_, _| Reply::new(429, "").header("retry-after", "3600"));
    let error = Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap_err();
    assert!(matches!(error, Error::Status { status: 429, retry_after: Some(3600), .. }), "{error}");
    assert_eq!(fake.calls().len(), 1);
}

#[test]
fn a6_a_broken_blob_goes_on_at_the_byte_that_was_reached() {
    let big: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    let content = Content::new(&[&big]);
    let layer = content.layers[0].digest.to_string();
    // Each connection brings 400,000 bytes: three are needed.
    let fake = content
        .serve(|_, reply| if reply.body.len() > 400_000 { reply.ending(Ending::CutAfter(400_000)) } else { reply });
    let cache = Cache::new();
    let image = cache.pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
    let kept = cache.store.root().join("blobs/sha256").join(image.layers[0].digest.hex());
    assert_eq!(std::fs::read(kept).unwrap(), big);
    let ranges: Vec<_> = fake
        .calls()
        .iter()
        .filter(|c| c.path.ends_with(&layer))
        .map(|c| c.header("range").map(str::to_owned))
        .collect();
    assert_eq!(ranges, [None, Some("bytes=400000-".into()), Some("bytes=800000-".into())]);
}

#[test]
fn a6_a_registry_without_ranges_begins_anew() {
    let big: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let content = Content::new(&[&big]);
    let cut = AtomicUsize::new(0);
    let blobs = content.blobs.clone();
    let fake = content.serve(move |call, reply| match call.path.contains("/blobs/") && reply.body.len() > 1000 {
        true => {
            let whole = Reply::new(200, &*blobs[call.path.rsplit('/').next().unwrap()]);
            if cut.fetch_add(1, SeqCst) == 0 { whole.ending(Ending::CutAfter(123_456)) } else { whole }
        }
        false => reply,
    });
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
}

#[test]
fn a8_lies_about_ranges() {
    let big: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let content = Content::new(&[&big]);
    type Lie = fn(Reply) -> Reply;
    let lies: [(Lie, &str); 4] = [
        (|r| r.header("content-range", "bytes 0-399999/400000"), "sends \"bytes 0-399999/400000\""),
        (|r| Reply { headers: vec![], ..r }, "sends \"\""),
        (|r| Reply { body: vec![0; r.body.len()], ..r }, "other bytes"),
        (
            |mut r| {
                r.body.push(0);
                r
            },
            "longer than",
        ),
    ];
    for (lie, why) in lies {
        let fake = content.serve(move |call, reply| match (call.path.contains("/blobs/"), call.header("range")) {
            (true, Some(_)) => lie(reply),
            (true, None) if reply.body.len() > 1000 => reply.ending(Ending::CutAfter(1000)),
            _ => reply,
        });
        let cache = Cache::new();
        let error = cache.pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
        assert!(cache.files("tmp").is_empty() && cache.files("refs").is_empty());
    }
}

#[test]
fn a6_what_the_store_has_does_when_the_registry_is_ill() {
    let content = Content::new(&[b"one"]);
    let ill = Arc::new(AtomicUsize::new(0));
    let now = ill.clone();
    let fake =
        content.serve(
            move |_, reply| if now.load(SeqCst) == 1 { Reply::new(429, "").header("retry-after", "30") } else { reply },
        );
    let cache = Cache::new();
    let name = format!("{}/acme/tool:1", fake.host);
    cache.pull(&name, &cached()).unwrap();
    ill.store(1, SeqCst);
    let old = Network { mode: Mode::CacheFirst { refresh: std::time::Duration::ZERO }, ..cached() };
    // To the second: what was looked up in this one is still fresh.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let image = cache.pull(&name, &old).unwrap();
        match image.resolved.freshness {
            Freshness::Stale(why) => break assert!(why.contains("status 429"), "{why}"),
            _ => assert!(std::time::Instant::now() < until),
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a2_a_registry_that_is_away_costs_no_wait() {
    let content = Content::new(&[b"one"]);
    let fake = content.serve(|_, reply| reply);
    let cache = Cache::new();
    let name = format!("{}/acme/tool:1", fake.host);
    cache.pull(&name, &cached()).unwrap();
    // Nobody listens on port 1, and nobody answers for a name there.
    let away = Network::new("https://registry.invalid", Mode::Refresh);
    let error = cache.pull("localhost:1/acme/tool:1", &away).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let calls = fake.calls().len();
    cache.pull(&name, &offline()).unwrap();
    cache.pull(&format!("{}/acme/tool@{}", fake.host, content.manifest.digest), &offline()).unwrap();
    cache.pull(&format!("{}/acme/tool@{}", fake.host, content.manifest.digest), &refreshing()).unwrap();
    assert_eq!(fake.calls().len(), calls);
}

#[test]
fn mirrors_are_asked_first() {
    let content = Content::new(&[b"one", b"two"]);
    let mirror = content.serve(|_, reply| reply);
    let ill = content.serve(|_, _| Reply::new(500, ""));
    let empty = content.serve(|_, _| Reply::new(404, ""));
    let origin = content.serve(|_, reply| reply);
    let with = |mirrors: &[&str]| {
        let mut access = Access::default();
        let mirrors = mirrors.iter().map(|mirror| mirror.to_string()).collect();
        access.hosts.insert(origin.host.clone(), HostAccess { mirrors, ..HostAccess::default() });
        through(access)
    };
    let name = format!("{}/acme/tool:1", origin.host);
    let image = Cache::new().pull(&name, &with(&[&mirror.host])).unwrap();
    assert_eq!((origin.calls().len(), mirror.calls().len()), (0, 4));
    assert_eq!(image.resolved.name, name, "its name stays its own");

    let prefixed = format!("{}/hub", mirror.host);
    Cache::new().pull(&name, &with(&["localhost:1", &ill.host, &empty.host, &prefixed])).unwrap();
    assert_eq!(origin.calls().len(), 0);
    assert!(mirror.calls()[4].path.starts_with("/v2/hub/acme/tool/"));

    Cache::new().pull(&name, &with(&[&ill.host, &empty.host])).unwrap();
    assert_eq!(origin.calls().len(), 4);

    let liar = content.serve(|call, reply| match call.path.contains("/blobs/") {
        true => Reply { body: vec![0; reply.body.len()], ..reply },
        false => reply,
    });
    let error = Cache::new().pull(&name, &with(&[&liar.host])).unwrap_err();
    assert_eq!(error.kind(), Kind::Verification, "{error}");
}

#[test]
fn a_mirror_that_breaks_in_the_middle_of_a_blob_is_left_for_the_next() {
    let big: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
    let content = Content::new(&[&big]);
    let broken =
        content.serve(|_, reply| if reply.body.len() > 1000 { reply.ending(Ending::CutAfter(1000)) } else { reply });
    let origin = content.serve(|_, reply| reply);
    let mut access = Access::default();
    let mirrors = vec![broken.host.clone()];
    access.hosts.insert(origin.host.clone(), HostAccess { mirrors, ..HostAccess::default() });
    Cache::new().pull(&format!("{}/acme/tool:1", origin.host), &through(access)).unwrap();
    let calls = origin.calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].header("range"), Some("bytes=1000-"));
}
