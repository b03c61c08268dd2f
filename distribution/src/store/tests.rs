use std::fs;
use std::io::{self, Read, Write};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::{Descriptor, ImageManifest, Kind, media_type::*};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("cache/smcp")).unwrap();
    (dir, store)
}

fn describe(bytes: &[u8]) -> Descriptor {
    Descriptor::new(LAYER_TAR, Digest::of(bytes), bytes.len() as u64)
}

/// Every file below the store with its content, so that two states can be compared.
fn state(store: &Store) -> Vec<(String, Vec<u8>)> {
    fn walk(dir: &Path, all: &mut Vec<(String, Vec<u8>)>) {
        for path in disk::entries(dir).unwrap() {
            let name = path.display().to_string();
            match path.is_dir() {
                true => walk(&path, all),
                false => all.push((name, fs::read(&path).unwrap())),
            }
        }
    }
    let mut all = Vec::new();
    walk(store.root(), &mut all);
    all.sort();
    all
}

/// An image of one unpacked and packed layer for each of `layers`, remembered as `name`.
fn image(store: &Store, name: &str, layers: &[&str]) -> Descriptor {
    let packed: Vec<_> = layers.iter().map(|text| store.put(text.as_bytes(), LAYER_TAR).unwrap()).collect();
    let ids: Vec<_> = packed.iter().map(|layer| layer.digest.to_string()).collect();
    let config = serde_json::json!({"for": name, "rootfs": {"type": "layers", "diff_ids": ids}});
    let config = store.put(config.to_string().as_bytes(), OCI_CONFIG).unwrap();
    for (layer, text) in packed.iter().zip(layers) {
        unpack(store, &layer.digest, text);
    }
    let manifest = store.put(&ImageManifest::new(config, packed).to_bytes(), OCI_MANIFEST).unwrap();
    store.remember(name, &manifest).unwrap();
    manifest
}

fn unpack(store: &Store, diff_id: &Digest, text: &str) -> PathBuf {
    match store.stage_layer(diff_id).unwrap() {
        Staging::Present(path) => path,
        Staging::Empty(staged) => {
            fs::write(staged.dir().join("file"), text).unwrap();
            staged.commit().unwrap()
        }
    }
}

#[cfg(unix)]
#[test]
fn a_new_store_is_private_and_a_layout() {
    let (_dir, store) = store();
    for name in DIRECTORIES.iter().chain(&["."]) {
        assert_eq!(fs::metadata(store.at(name)).unwrap().permissions().mode() & 0o777, 0o700, "{name}");
    }
    assert_eq!(fs::read_to_string(store.at("oci-layout")).unwrap(), r#"{"imageLayoutVersion":"1.0.0"}"#);
    assert_eq!(layout::read_index(store.root()).unwrap(), []);
    Store::open(store.root()).unwrap();
}

#[cfg(unix)]
#[test]
fn a_store_that_others_can_write_is_refused() {
    let (dir, store) = store();
    fs::set_permissions(store.root(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = Store::open(store.root()).unwrap_err();
    assert!(error.kind() == Kind::Store && error.to_string().contains("written by other users"), "{error}");
    fs::write(dir.path().join("file"), "").unwrap();
    assert!(Store::open(&dir.path().join("file")).is_err());
}

#[test]
fn what_is_taken_in_can_be_read() {
    let (_dir, store) = store();
    let bytes = vec![7; 700_000];
    let want = describe(&bytes);
    assert!(store.blob(&want).unwrap().is_none() && !store.contains(&want));
    let blob = store.ingest(&*bytes, &want).unwrap();
    assert_eq!((blob.bytes().unwrap(), blob.descriptor()), (bytes.clone(), &want));
    let (mut first, mut second) = (blob.reader(), blob.reader());
    first.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(io::copy(&mut second, &mut io::sink()).unwrap(), 700_000);
    assert!(store.contains(&want));
    assert_eq!(store.blob(&want).unwrap().unwrap().bytes().unwrap(), bytes);
    assert_eq!(store.put(&bytes, LAYER_TAR).unwrap(), want);
    assert!(disk::entries(&store.at("tmp")).unwrap().is_empty());
}

#[test]
fn u50_a_lie_leaves_the_store_as_before() {
    struct Endless;
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::ConnectionReset.into())
        }
    }
    let (_dir, store) = store();
    image(&store, "a/b:1", &["one"]);
    let before = state(&store);
    let want = describe(b"the right bytes");
    let table: [(&str, Box<dyn Read>, Kind); 6] = [
        ("other", Box::new(&b"the wrong bytes"[..]), Kind::Verification),
        ("short", Box::new(&b"the right"[..]), Kind::Verification),
        ("empty", Box::new(io::empty()), Kind::Verification),
        ("long", Box::new(&b"the right bytes and more"[..]), Kind::Verification),
        ("endless", Box::new(Endless), Kind::Verification),
        ("broken", Box::new((&b"the ri"[..]).chain(Broken)), Kind::Resolve),
    ];
    for (what, reader, kind) in table {
        assert_eq!(store.ingest(reader, &want).unwrap_err().kind(), kind, "{what}");
        assert_eq!(state(&store), before, "{what}");
    }
}

#[test]
fn a_damaged_blob_is_set_aside() {
    let (_dir, store) = store();
    let want = store.put(b"content", LAYER_TAR).unwrap();
    fs::write(store.blob_path(&want.digest), "cOntent").unwrap();
    assert!(matches!(store.blob(&want), Err(Error::Damaged(_))));
    assert!(store.blob(&want).unwrap().is_none());
    store.ingest(&b"content"[..], &want).unwrap();
    let longer = Descriptor { size: 8, ..want.clone() };
    assert_eq!(store.blob(&longer).unwrap_err().kind(), Kind::Verification);
    assert!(store.contains(&want), "a wrong descriptor does not cost the blob");
}

#[test]
fn eight_threads_take_in_the_same_blob() {
    let (_dir, store) = store();
    let bytes = vec![3; 1 << 20];
    let want = describe(&bytes);
    let fetched = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (store, bytes, want, fetched) = (&store, &bytes, &want, &fetched);
            scope.spawn(move || {
                store.ingest(&**bytes, want).unwrap();
                let mine = vec![number; 100_000];
                store.ingest(&*mine, &describe(&mine)).unwrap();
                let turn = store.lock_blob(&Digest::of("shared")).unwrap();
                if !store.contains(&describe(b"shared")) {
                    fetched.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    store.put(b"shared", LAYER_TAR).unwrap();
                }
                drop(turn);
                unpack(store, &Digest::of("tree"), "tree");
                store.remember(&format!("a/b:{number}"), want).unwrap();
            });
        }
    });
    assert_eq!(fetched.into_inner(), 1, "one download");
    assert_eq!(disk::entries(&store.at("blobs/sha256")).unwrap().len(), 10);
    assert_eq!(layout::read_index(store.root()).unwrap().len(), 8);
    assert!(store.blob(&want).unwrap().is_some());
    assert!(disk::entries(&store.at("tmp")).unwrap().is_empty());
}

#[test]
fn u64_what_a_killed_process_left_is_swept_and_what_lives_is_not() {
    let (_dir, store) = store();
    let mut living = store.writer().unwrap();
    living.write_all(b"half").unwrap();
    let Staging::Empty(staged) = store.stage_layer(&Digest::of("t")).unwrap() else { panic!("not there yet") };
    // A killed process holds no lock, and its destructors did not run.
    fs::write(store.at("tmp/new-1-0"), "half a blob").unwrap();
    fs::create_dir(store.at("tmp/new-1-1")).unwrap();
    fs::write(store.at("tmp/new-1-1/file"), "half a layer").unwrap();
    let next = Store::open(store.root()).unwrap();
    assert_eq!(disk::entries(&store.at("tmp")).unwrap().len(), 4, "opening alone looks at nothing");
    next.put(b"something", LAYER_TAR).unwrap();
    assert_eq!(disk::entries(&store.at("tmp")).unwrap().len(), 2);
    living.write_all(b" and half").unwrap();
    assert_eq!(living.finish(LAYER_TAR).unwrap(), describe(b"half and half"));
    staged.commit().unwrap();
    next.empty_trash().unwrap();
    assert!(disk::entries(&store.at("trash")).unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn u64_a_dropped_ingest_leaves_nothing() {
    let (_dir, store) = store();
    store.put(b"first", LAYER_TAR).unwrap();
    let before = state(&store);
    let mut writer = store.writer().unwrap();
    writer.write_all(b"half").unwrap();
    drop(writer);
    assert_eq!(state(&store), before);
    let Staging::Empty(staged) = store.stage_layer(&Digest::of("t")).unwrap() else { panic!("not there yet") };
    fs::create_dir(staged.dir().join("d")).unwrap();
    fs::write(staged.dir().join("d/file"), "x").unwrap();
    fs::set_permissions(staged.dir().join("d"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(staged.dir(), fs::Permissions::from_mode(0o555)).unwrap();
    drop(staged);
    assert!(store.layer(&Digest::of("t")).is_none());
    assert!(
        disk::entries(&store.at("tmp")).unwrap().is_empty() && disk::entries(&store.at("locks")).unwrap().len() == 1
    );
    store.empty_trash().unwrap();
    assert_eq!(state(&store), before);
}

#[test]
fn names() {
    let (_dir, store) = store();
    assert_eq!(store.recall("h/a/b:1").unwrap(), None);
    let (one, two) = (store.put(b"1", OCI_MANIFEST).unwrap(), store.put(b"2", OCI_MANIFEST).unwrap());
    store.remember("h/a/b:1", &one).unwrap();
    store.remember_as("h/a/b:2", &two, Origin::Fetched, None).unwrap();
    let known = store.recall("h/a/b:1").unwrap().unwrap();
    assert_eq!((known.descriptor, known.origin), (one, Origin::Built));
    assert!(known.resolved_at.elapsed().unwrap().as_secs() < 60);
    store.remember("h/a/b:1", &two).unwrap();
    let names: Vec<_> = store.list().unwrap().into_iter().map(|known| (known.reference, known.descriptor)).collect();
    assert_eq!(names, [("h/a/b:1".into(), two.clone()), ("h/a/b:2".into(), two.clone())]);
    let entries = layout::read_index(store.root()).unwrap();
    assert_eq!(entries, [layout::named(two.clone(), "h/a/b:1"), layout::named(two, "h/a/b:2")]);
    for nonsense in ["", "{\"reference\":", "[]"] {
        fs::write(store.ref_path("h/a/b:1"), nonsense).unwrap();
        assert_eq!(store.recall("h/a/b:1").unwrap(), None, "as good as unknown");
    }
}

/// A manifest that cannot be read at this moment keeps what it kept: nobody knows what that was.
#[cfg(unix)]
#[test]
fn what_cannot_be_read_is_not_taken_for_nothing() {
    let (dir, store) = store();
    let one = image(&store, "a/one:1", &["base"]);
    image(&store, "a/two:1", &["two"]);
    let (path, aside) = (store.blob_path(&one.digest), dir.path().join("aside"));
    fs::rename(&path, &aside).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    store.collect(&Allowance::default()).unwrap_err();
    store.remove("a/two:1").unwrap_err();
    fs::rename(&aside, &path).unwrap();
    assert!(store.layer(&Digest::of("base")).is_some() && store.contains(&describe(b"base")));
    store.collect(&Allowance::default()).unwrap();
    assert!(store.contains(&one) && store.layer(&Digest::of("base")).is_some());
}

#[test]
fn removal_keeps_what_others_need() {
    let (_dir, store) = store();
    let one = image(&store, "a/one:1", &["base", "one"]);
    let two = image(&store, "a/two:1", &["base", "two"]);
    store.remember("a/also-one:1", &one).unwrap();
    assert_eq!(store.remove("a/one:1").unwrap(), Removed { refs: 1, ..Removed::default() });
    let removed = store.remove("a/also-one:1").unwrap();
    assert_eq!((removed.refs, removed.blobs, removed.layers), (1, 3, 1), "manifest, configuration, layer; its tree");
    assert!(store.layer(&Digest::of("base")).is_some() && store.contains(&describe(b"base")));
    assert!(store.layer(&Digest::of("one")).is_none() && !store.contains(&describe(b"one")));
    assert!(store.contains(&two) && store.layer(&Digest::of("two")).is_some());
    assert!(matches!(store.remove("a/one:1"), Err(Error::NotFound { .. })));
    assert_eq!(layout::read_index(store.root()).unwrap().len(), 1);
    let removed = store.remove_all().unwrap();
    assert_eq!((removed.refs, removed.blobs, removed.layers), (1, 4, 2));
    store.empty_trash().unwrap();
    let is_lock = |name: &String| Path::new(name).parent().is_some_and(|above| above.ends_with("locks"));
    let left: Vec<_> = state(&store).into_iter().map(|(name, _)| name).filter(|name| !is_lock(name)).collect();
    assert_eq!(left.len(), 2, "the layout's two files alone: {left:?}");
}

#[cfg(unix)]
#[test]
fn a_layer_in_use_outlives_its_removal() {
    let (_dir, store) = store();
    image(&store, "a/one:1", &["one"]);
    let held = store.hold_layer(&Digest::of("one")).unwrap();
    let tree = fs::File::open(held.path()).unwrap();
    store.remove("a/one:1").unwrap();
    store.empty_trash().unwrap();
    let through_mount = format!("/proc/self/fd/{}/file", std::os::fd::AsRawFd::as_raw_fd(&tree));
    assert_eq!(fs::read_to_string(&through_mount).unwrap(), "one");
    assert!(matches!(store.hold_layer(&Digest::of("one")), Err(Error::NotFound { .. })));
    image(&store, "a/one:1", &["one"]);
    drop(held);
    store.empty_trash().unwrap();
    assert!(fs::read_to_string(&through_mount).is_err());
    assert!(store.layer(&Digest::of("one")).is_some(), "unpacked anew meanwhile");
}

#[test]
fn nothing_is_removed_under_a_lease() {
    let (_dir, store) = store();
    image(&store, "a/one:1", &["one"]);
    let lease = store.lease().unwrap();
    std::thread::scope(|scope| {
        let removal = scope.spawn(|| store.remove("a/one:1").unwrap());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(store.contains(&describe(b"one")) && !removal.is_finished());
        drop(lease);
        assert_eq!(removal.join().unwrap().refs, 1);
    });
}

#[test]
fn what_no_name_needs_is_collected() {
    let (_dir, store) = store();
    image(&store, "a/one:1", &["base", "one"]);
    let stray = store.put(b"of a pull that was killed", LAYER_TAR).unwrap();
    unpack(&store, &Digest::of("stray"), "stray");
    fs::write(store.at("locks/blob-dead"), "").unwrap();
    let removed = store.collect(&Allowance::default()).unwrap();
    assert_eq!((removed.refs, removed.blobs, removed.layers), (0, 1, 1));
    assert!(!store.contains(&stray) && store.contains(&describe(b"one")) && store.layer(&Digest::of("base")).is_some());
    assert!(!store.at("locks/blob-dead").exists());
    assert_eq!(store.collect(&Allowance::default()).unwrap(), Removed::default());
}

#[test]
fn an_allowance_takes_what_was_used_least_recently() {
    let (_dir, store) = store();
    let day = std::time::Duration::from_secs(24 * 3600);
    let names = ["a/old:1", "a/older:1", "a/new:1"];
    for (name, days) in names.iter().zip([10, 20, 0]) {
        image(&store, name, &["base", name]);
        let file = fs::File::open(store.ref_path(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - day * days).unwrap();
    }
    let left = || store.list().unwrap().into_iter().map(|name| name.reference).collect::<Vec<_>>();
    let size = disk::size(&store.at("blobs")) + disk::size(&store.at("layers"));
    assert_eq!(store.collect(&Allowance { size: Some(size), age: Some(day * 30) }).unwrap(), Removed::default());
    store.collect(&Allowance { size: Some(size - 1), age: None }).unwrap();
    assert_eq!(left(), ["a/new:1", "a/old:1"], "one is enough");
    let known = store.recall("a/old:1").unwrap().unwrap();
    store.used(&known);
    store.collect(&Allowance { size: None, age: Some(day * 5) }).unwrap();
    assert_eq!(left(), ["a/new:1", "a/old:1"], "it was used");
    let removed = store.collect(&Allowance { size: Some(0), age: None }).unwrap();
    assert_eq!((removed.refs, left().len(), layout::read_index(store.root()).unwrap().len()), (2, 0, 0));
}

#[test]
fn the_whole_store_is_looked_at() {
    let (_dir, store) = store();
    image(&store, "a/one:1", &["base", "one"]);
    let verdict = store.verify().unwrap();
    assert_eq!((verdict.blobs, &*verdict.findings), (4, &[][..]));
    fs::remove_file(store.blob_path(&Digest::of("one"))).unwrap();
    assert_eq!(store.verify().unwrap().findings, [""; 0], "its layer is unpacked");
    store.remove_all().unwrap();
    let manifest = image(&store, "a/one:1", &["base", "one"]);
    disk::delete(&store.layer_path(&Digest::of("one"))).unwrap();
    fs::write(store.blob_path(&Digest::of("one")), "oNe").unwrap();
    fs::write(store.at("blobs/sha256/README"), "x").unwrap();
    let mut findings = store.verify().unwrap().findings;
    findings.sort();
    let one = Digest::of("one");
    assert!(
        findings[0].contains("README is no blob") && findings[1] == format!("a/one:1: {one} is missing"),
        "{findings:?}"
    );
    assert!(
        findings[2].contains(&one.to_string()) && findings[2].contains("damaged") && findings.len() == 3,
        "{findings:?}"
    );
    fs::write(store.blob_path(&manifest.digest), "{}").unwrap();
    assert!(store.verify().unwrap().findings.iter().any(|found| found.contains(manifest.digest.as_str())));
}
