//! The rows of `cases/unpack.md` that are about several layers, and packages as a whole.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;

use super::archive::{Head, dir, file, hard_link, head, symlink, tar};
use super::*;
use crate::config::ImageConfig;
use crate::manifest::Manifest;
use crate::package::{Package, PackageOrigin};
use distribution::{
    Descriptor, Freshness, Image, ImageManifest, Kind, LayerLock, Mode, Network, Resolved, Source, Store, Way,
    media_type,
};
use serde_json::json;

/// A store with the blobs of `archives`, and a package of them, lowest first.
fn package(archives: &[Vec<u8>]) -> (tempfile::TempDir, Store, Package) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let package = in_store(&store, archives, PackageOrigin::Smcp);
    (dir, store, package)
}

fn in_store(store: &Store, archives: &[Vec<u8>], origin: PackageOrigin) -> Package {
    let put = |tar: &Vec<u8>| (store.put(tar, media_type::LAYER_TAR).unwrap(), Digest::of(tar));
    let manifest = json!({"schemaVersion": 1, "name": "a", "version": "1", "entrypoint": {"args": ["x"]}});
    Package {
        manifest: Manifest::from_value(&manifest).unwrap(),
        origin,
        config: ImageConfig::default(),
        digest: Digest::of(""),
        manifest_digest: Digest::of(""),
        layers: archives.iter().map(put).collect(),
    }
}

type Prepared = std::result::Result<LayerLock, UnpackError>;

fn ready(package: &Package, store: &Store) -> Prepared {
    ready_by(package, store, &in_this_process)
}

/// All blobs are in the store, which is the only place where they are looked for.
fn ready_by(package: &Package, store: &Store, by: Extractor<'_>) -> Prepared {
    arrive(package, store, store.root(), by)
}

/// What of the blobs is not in the store comes from a layout.
fn arrive(package: &Package, store: &Store, layout: &Path, by: Extractor<'_>) -> Prepared {
    let (layers, diff_ids): (Vec<_>, Vec<_>) = package.layers.iter().cloned().unzip();
    let config = store.put(b"{}", media_type::OCI_CONFIG).unwrap();
    let descriptor = Descriptor::new(media_type::OCI_MANIFEST, Digest::of(""), 0);
    let resolved = Resolved {
        reference: "a".into(),
        name: "a".into(),
        descriptor: descriptor.clone(),
        manifest: ImageManifest::new(config.clone(), layers.clone()),
        manifest_descriptor: descriptor,
        freshness: Freshness::Fetched,
        stated: None,
        source: Source::Layout(layout.to_owned()),
        way: Way::default(),
    };
    let image = Image { resolved, config: store.blob(&config).unwrap().unwrap(), layers, diff_ids };
    prepare(package, &image, store, &Network::new("localhost", Mode::Refresh), &|_| (), by)
}

/// A store, a package that it knows nothing of, and the layout that has its layers.
fn elsewhere(archives: &[Vec<u8>]) -> (tempfile::TempDir, Store, PathBuf, Package) {
    let (dir, _, package) = package(archives);
    let store = Store::open(&dir.path().join("another")).unwrap();
    let layout = dir.path().to_owned();
    (dir, store, layout, package)
}

/// Nothing is seen of any layer, and nothing of the work is left.
fn nothing_is_there(store: &Store) {
    for name in ["layers", "tmp"] {
        assert_eq!(fs::read_dir(store.root().join(name)).unwrap().count(), 0, "{name}");
    }
}

fn layer(name: &str) -> Vec<u8> {
    tar(&[file(name, name)])
}

/// The tree of layers, the lowest first.
fn merged(layers: &[&[Head]]) -> BTreeMap<PathBuf, String> {
    let archives: Vec<_> = layers.iter().map(|heads| tar(heads)).collect();
    let (_dir, store, package) = package(&archives);
    let tree = ready(&package, &store).unwrap_or_else(|error| panic!("{error}"));
    super::tests::tree_of(tree.path())
}

fn refused(layers: &[&[Head]]) -> Refusal {
    let archives: Vec<_> = layers.iter().map(|heads| tar(heads)).collect();
    let (_dir, store, package) = package(&archives);
    match ready(&package, &store) {
        Err(UnpackError::Refused { refusal, .. }) => refusal,
        other => panic!("{:?}", other.map(|tree| super::tests::tree_of(tree.path()))),
    }
}

fn want<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<PathBuf, String> {
    entries.into_iter().map(|(path, text)| (path.into(), text.into())).collect()
}

#[test]
fn layers_become_one_tree() {
    let both = |text: &str| tar(&[file("both", text), file(text, text)]);
    let (_dir, store, package) = package(&[both("low"), both("high")]);
    let tree = ready(&package, &store).unwrap();
    assert_eq!(fs::read_to_string(tree.path().join("both")).unwrap(), "high");
    assert!(tree.path().join("low").is_file() && tree.path().join("high").is_file());
    assert_eq!(ready(&package, &store).unwrap().path(), tree.path());
    let (_dir, store, package) = self::package(&[layer("only")]);
    let tree = ready(&package, &store).unwrap();
    assert!(tree.path().join("only").is_file());
}

#[test]
fn u30_what_is_hidden_is_gone_and_what_comes_is_there() {
    let low = [file("a", "1"), file("d/x", "1"), file("d/y", "1"), dir("e"), file("e/deep/z", "1"), symlink("l", "a")];
    let high = [
        file(".wh.a", ""),
        file("d/.wh.x", ""),
        file("d/x/new", "2"),
        file("e/.wh.deep", ""),
        file(".wh.l", ""),
        file(".wh.never", ""),
        file("nowhere/.wh.x", ""),
    ];
    let found = merged(&[&low, &high, &[file("top", "3")]]);
    let kept = [
        ("d", "dir 755"),
        ("d/x", "dir 755"),
        ("d/x/new", "file 644 2"),
        ("d/y", "file 644 1"),
        ("e", "dir 755"),
        ("top", "file 644 3"),
    ];
    assert_eq!(found, want(kept));
    // In the lowest layer there is nothing to hide, also where it is the only one.
    assert_eq!(merged(&[&[file(".wh.a", ""), file("b", "")]]), want([("b", "file 644 ")]));
    // A layer higher up hides what the one between brought.
    let found = merged(&[&[file("a", "1")], &[file("a", "2"), file("b", "2")], &[file(".wh.a", "")]]);
    assert_eq!(found, want([("b", "file 644 2")]));
}

#[test]
fn u31_an_opaque_directory_shows_its_own_layer_and_those_above() {
    let low = [file("d/x", "1"), dir("d/sub"), file("d/sub/y", "1"), file("e", "1")];
    for high in [
        [dir("d"), file("d/new", "2"), file("d/.wh..wh..opq", "")],
        [file("d/.wh..wh..opq", ""), dir("d"), file("d/new", "2")],
    ] {
        let found = merged(&[&low, &high, &[file("d/top", "3")]]);
        let kept = [("d", "dir 755"), ("d/new", "file 644 2"), ("d/top", "file 644 3"), ("e", "file 644 1")];
        assert_eq!(found, want(kept));
    }
    let root = [file(".wh..wh..opq", ""), file("only", "2")];
    assert_eq!(merged(&[&low, &root]), want([("only", "file 644 2")]));
    // Over a link it is the link that goes, and not what it leads to.
    let links = [file("real/x", "1"), symlink("d", "real")];
    let found = merged(&[&links, &[file("d/.wh..wh..opq", ""), file("d/new", "2")]]);
    let kept = [("d", "dir 755"), ("d/new", "file 644 2"), ("real", "dir 755"), ("real/x", "file 644 1")];
    assert_eq!(found, want(kept));
}

#[test]
fn u29_whiteouts_by_way_of_a_lower_layers_link_stay_in_the_tree() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "outside").unwrap();
    let out = outside.path().to_str().unwrap();
    let up = format!("../../../../../../../../{out}");
    for target in [out, &up, "/", "..", "../.."] {
        let low = [symlink("l", target), symlink("d", "l"), file("kept", "1")];
        let high = [
            file("l/.wh.secret", ""),
            file("d/.wh..wh..opq", ""),
            file("l/x/.wh..wh..opq", ""),
            file("d/deep/.wh.secret", ""),
        ];
        let found = merged(&[&low, &high]);
        assert!(found.contains_key(Path::new("kept")), "{target}");
        assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), "outside");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }
    // Within the tree they reach where the link leads.
    let low = [file("usr/lib/x", "1"), file("usr/lib/y", "1"), symlink("lib", "usr/lib")];
    let found = merged(&[&low, &[file("lib/.wh.x", "")]]);
    let kept = [("lib", "link usr/lib"), ("usr", "dir 755"), ("usr/lib", "dir 755"), ("usr/lib/y", "file 644 1")];
    assert_eq!(found, want(kept));
}

#[test]
fn u47_hard_links_to_what_lower_layers_hold() {
    let low = [file("usr/bin/tool", "tool").mode(0o755), symlink("s", "usr/bin/tool"), symlink("bin", "usr/bin")];
    let high = [
        hard_link("a", "usr/bin/tool"),
        hard_link("new/b", "/a"),
        hard_link("t", "s"),
        hard_link("usr/bin/tool", "bin/tool"),
    ];
    let archives = [tar(&low), tar(&[file("between", "")]), tar(&high[..3])];
    let (_dir, store, package) = package(&archives);
    let tree = ready(&package, &store).unwrap_or_else(|error| panic!("{error}"));
    let inode = |name: &str| fs::symlink_metadata(tree.path().join(name)).unwrap().ino();
    assert_eq!([inode("a"), inode("new/b")], [inode("usr/bin/tool"); 2]);
    assert_eq!(inode("t"), inode("s"), "the link itself");
    // By way of a link, and onto the file that it leads to.
    assert_eq!(refused(&[&low, &high[3..]]).code, Code::LinkTarget);
    assert_eq!(merged(&[&low, &[hard_link("c", "bin/tool")]])[Path::new("c")], "file 755 tool");
    for (target, row) in [("etc/passwd", "U7"), ("Cargo.toml", "U9"), ("usr", "a directory"), ("bin/none", "nothing")] {
        let refusal = refused(&[&low, &[file("f", ""), hard_link("x", target)]]);
        assert_eq!((refusal.code, refusal.entry.as_deref()), (Code::LinkTarget, Some(&b"x"[..])), "{row}");
    }
    // What is hidden by the layer itself cannot be had by it.
    assert_eq!(
        refused(&[&low, &[file("usr/bin/.wh.tool", ""), hard_link("x", "usr/bin/tool")]]).code,
        Code::LinkTarget
    );
}

#[test]
fn u48_an_implicit_parent_that_is_a_link_below_hides_nothing() {
    let low = [file("usr/lib/ld.so", "loader"), symlink("lib", "usr/lib"), symlink("loop", "loop")];
    let found = merged(&[&low, &[file("lib/new", "2"), file("loop/x", "2")]]);
    assert_eq!(found[Path::new("lib")], "link usr/lib");
    assert_eq!(found[Path::new("usr/lib/ld.so")], "file 644 loader");
    assert_eq!(found[Path::new("usr/lib/new")], "file 644 2");
    assert_eq!(found[Path::new("loop/x")], "file 644 2", "what leads nowhere is replaced");
}

#[test]
fn u65_four_at_once_unpack_a_layer_once() {
    let (_dir, store, package) = package(&[layer("a"), layer("b"), layer("c")]);
    let asked = std::sync::atomic::AtomicU32::new(0);
    let counting = |archive: Archive<'_>, order: &Order, into: &StagedLayer| {
        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        in_this_process(archive, order, into)
    };
    let prepared = thread::scope(|scope| {
        let run = || scope.spawn(|| ready_by(&package, &store, &counting).map(drop).map_err(|e| e.to_string()));
        [run(), run(), run(), run()].map(|thread| thread.join().unwrap())
    });
    assert_eq!(prepared, [const { Ok(()) }; 4]);
    assert_eq!(asked.into_inner(), 3);
    assert_eq!(fs::read_dir(store.root().join("layers")).unwrap().count(), 4, "and their tree once");
}

#[test]
fn u50_u51_a_refused_or_missing_layer_stops_all_and_is_not_seen() {
    let (_dir, store, mut package) = package(&[layer("good"), tar(&[file("../x", "")])]);
    let bad = package.layers[1].1.clone();
    assert!(matches!(ready(&package, &store), Err(UnpackError::Refused { .. })));
    assert_eq!(store.layer(&bad), None);
    let absent = layer("absent");
    package.layers[1] = (Descriptor::new(media_type::LAYER_TAR, Digest::of(&absent), 1), Digest::of(&absent));
    let error = ready(&package, &store).unwrap_err();
    assert!(matches!(error, UnpackError::Store(distribution::Error::NotFound { .. })), "{error}");
    let other = store.put(&layer("other"), media_type::LAYER_TAR).unwrap();
    package.layers[1] = (other, Digest::of("promised"));
    assert!(matches!(ready(&package, &store), Err(UnpackError::DiffId { .. })), "U51");
    assert_eq!(store.layer(&Digest::of("promised")), None);
}

/// What a plain image's layer was forgiven is not forgiven to a package that has the same layer.
#[test]
fn u5_u14_u19_leniency_is_for_plain_images_alone() {
    let (_dir, store, strict) = package(&[layer("base"), tar(&[file("a", "1"), file("a", "2"), head(b'6', "pipe")])]);
    let plain = Package { origin: PackageOrigin::PlainImage, ..strict.clone() };
    assert!(matches!(ready(&strict, &store), Err(UnpackError::Refused { .. })));
    let tree = ready(&plain, &store).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::read_to_string(tree.path().join("a")).unwrap(), "2");
    let error = ready(&strict, &store).unwrap_err();
    assert!(matches!(error, UnpackError::TakenLeniently { .. }), "{error}");
    assert!(error.to_string().ends_with("E_DUP: entry `a`: the layer holds this name twice"), "{error}");
    let clean = self::package(&[layer("x"), layer("y")]);
    let plain = Package { origin: PackageOrigin::PlainImage, ..clean.2.clone() };
    let trees = [ready(&plain, &clean.1).unwrap(), ready(&clean.2, &clean.1).unwrap()];
    assert_eq!(fs::read_dir(clean.1.root().join("layers")).unwrap().count(), 4, "two layers, two trees");
    let inodes = trees.map(|tree| fs::metadata(tree.path().join("x")).unwrap().ino());
    assert_eq!(inodes[0], inodes[1]);
}

/// No file system of the test machines takes `A` for `a`. What such a one shows is shown here by a second file: lenient rules,
/// by which the last of a name wins, are not used then.
#[test]
fn u22_where_names_that_differ_by_case_are_one_no_last_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let handle = fs::File::open(dir.path()).unwrap();
    assert!(!super::prepare::takes_names_for_one(&handle));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(dir.path().join(".WH..SMCP-CASE"), "").unwrap();
    assert!(super::prepare::takes_names_for_one(&handle));
}

#[test]
fn u54_a_package_that_unpacks_to_too_much() {
    let (_dir, store, package) = package(&[layer("a"), layer("b")]);
    let claims = |archive: Archive<'_>, _: &Order, _: &StagedLayer| {
        let Archive::Whole(blob) = archive else { panic!("its blobs are here") };
        Ok(Ok((blob.descriptor().digest.clone(), Unpacked { bytes: 5 << 30, ..Unpacked::default() })))
    };
    assert!(matches!(ready_by(&package, &store, &claims), Err(UnpackError::PackageTooLarge { .. })));
    assert!(fs::read_dir(store.root().join("layers")).unwrap().count() <= 1, "the one that was within it");
}

/// Whoever has the same user's rights may move and replace what is being unpacked; nothing outside is touched.
#[test]
fn u63_a_staging_directory_that_is_swapped_meanwhile() {
    use std::os::unix::fs::symlink as link;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let outside = tempfile::tempdir().unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o751)).unwrap();
    let names: Vec<_> = (0..400).flat_map(|i| [format!("d{}/e/f{i}", i % 7), format!("d{}/g{i}", i % 7)]).collect();
    let archive = tar(&names.iter().map(|name| file(name, "x")).collect::<Vec<_>>());
    let (_dir, store, package) = package(&[archive]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0;
            while !done.load(SeqCst) {
                round += 1;
                for staged in fs::read_dir(store.root().join("tmp")).unwrap().flatten() {
                    // Now a directory in it, now the whole.
                    let victim = match round % 8 {
                        0 => staged.path(),
                        n => staged.path().join(format!("d{}", n - 1)),
                    };
                    if victim.is_dir() && fs::rename(&victim, outside.path().join(format!("moved-{round}"))).is_ok() {
                        let _ = link(outside.path(), &victim);
                    }
                }
            }
        });
        for _ in 0..12 {
            // Refused or not, it must end; what it made lies where the handles lead.
            drop(ready(&package, &store));
            if let Some(tree) = store.layer(&package.layers[0].1) {
                fs::remove_dir_all(tree).unwrap();
            }
        }
        done.store(true, SeqCst);
    });
    // Only what was moved there lies there: no entry was made by way of the links.
    let found: Vec<_> = fs::read_dir(outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(found.iter().all(|name| name.to_string_lossy().starts_with("moved-")), "{found:?}");
    assert_eq!(fs::metadata(outside.path()).unwrap().permissions().mode() & 0o777, 0o751, "and no mode was set");
}

/// Unpacked or refused, the work of a full disk is not seen: the file system has room for a part of it.
#[test]
fn u64_what_could_not_be_written_is_not_seen() {
    let (_dir, store, package) = package(&[layer("a"), layer("b")]);
    let full = |_: Archive<'_>, _: &Order, into: &StagedLayer| {
        fs::write(into.dir().join("half"), "half").unwrap();
        Ok(Err(Stop::Io(io::Error::from_raw_os_error(28))))
    };
    let error = ready_by(&package, &store, &full).unwrap_err();
    assert!(error.hint().is_some() && error.to_string().contains("No space left"), "{error}");
    let entries = |name: &str| fs::read_dir(store.root().join(name)).unwrap().count();
    assert_eq!((entries("layers"), entries("tmp")), (0, 0));
    ready(&package, &store).unwrap();
}

/// Layers are extracted while they arrive, and those for which there is no room once they are there.
#[test]
fn what_arrives_is_unpacked_on_the_way() {
    let archives: Vec<_> = (0..9).map(|n| tar(&[file(format!("f{n}"), vec![n; 70_000])])).collect();
    let (_dir, store, layout, package) = elsewhere(&archives);
    let (early, late) = (std::sync::atomic::AtomicUsize::new(0), std::sync::atomic::AtomicUsize::new(0));
    let by = |archive: Archive<'_>, order: &Order, into: &StagedLayer| {
        let count = if matches!(archive, Archive::Arriving(_)) { &early } else { &late };
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        in_this_process(archive, order, into)
    };
    let tree = arrive(&package, &store, &layout, &by).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 9);
    let (early, late) = (early.into_inner(), late.into_inner());
    assert!(early >= 1 && early + late == 9, "{early} {late}");
    assert!(package.layers.iter().all(|(layer, _)| store.contains(layer)), "the blobs stay");
}

/// Where an archive has to be whole nobody unpacks one that is not.
#[test]
fn an_extractor_may_ask_for_the_whole() {
    let (_dir, store, layout, package) = elsewhere(&[layer("a"), layer("b")]);
    let by = |archive: Archive<'_>, order: &Order, into: &StagedLayer| match archive {
        Archive::Arriving(_) => Err(io::ErrorKind::Unsupported.into()),
        whole => in_this_process(whole, order, into),
    };
    let tree = arrive(&package, &store, &layout, &by).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 2);
}

/// An archive that is sound in itself and not the one that was promised: by the time that this is seen all of it is unpacked.
#[test]
fn u50_what_was_unpacked_of_other_bytes_is_never_seen() {
    let (good, evil) = (tar(&[file("f", "good")]), tar(&[file("f", "evil")]));
    let (_dir, store, layout, package) = elsewhere(std::slice::from_ref(&good));
    fs::write(layout.join("blobs/sha256").join(Digest::of(&good).hex()), &evil).unwrap();
    let extracted = std::sync::atomic::AtomicUsize::new(0);
    let by = |archive: Archive<'_>, order: &Order, into: &StagedLayer| {
        let made = in_this_process(archive, order, into);
        assert_eq!(fs::read_to_string(into.dir().join("f")).unwrap(), "evil");
        // It may as well claim to have found what was promised.
        extracted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        made.map(|made| made.map(|(_, unpacked)| (Digest::of(&good), unpacked)))
    };
    match arrive(&package, &store, &layout, &by) {
        Err(UnpackError::Store(error)) => assert_eq!(error.kind(), Kind::Verification),
        other => panic!("{:?}", other.map(|tree| tree.path().to_owned())),
    }
    assert_eq!(extracted.into_inner(), 1);
    nothing_is_there(&store);
    // Cut, too long, hostile on top: it is the digest that is told of, not what the wrong bytes would have done.
    for other in [evil[..evil.len() - 512].to_vec(), [&evil[..], &[0; 512]].concat(), tar(&[file("../f", "evil")])] {
        fs::write(layout.join("blobs/sha256").join(Digest::of(&good).hex()), &other).unwrap();
        match arrive(&package, &store, &layout, &in_this_process) {
            Err(UnpackError::Store(error)) => assert_eq!(error.kind(), Kind::Verification),
            other => panic!("{:?}", other.map(|tree| tree.path().to_owned())),
        }
        nothing_is_there(&store);
    }
    fs::write(layout.join("blobs/sha256").join(Digest::of(&good).hex()), &good).unwrap();
    let tree = arrive(&package, &store, &layout, &in_this_process).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::read_to_string(tree.path().join("f")).unwrap(), "good");
}

/// What is refused on the way is told once the bytes are known to be those of the package; the rest of it is not waited for by
/// whoever unpacks.
#[test]
fn u1_u50_a_layer_that_is_refused_on_the_way() {
    let hostile = tar(&[file("../f", ""), file("large", vec![7; 3 << 20])]);
    let (_dir, store, layout, package) = elsewhere(&[layer("good"), hostile]);
    match arrive(&package, &store, &layout, &in_this_process) {
        Err(UnpackError::Refused { layer, refusal }) => {
            assert_eq!((layer, refusal.code), (package.layers[1].0.digest.clone(), Code::PathDotdot));
        }
        other => panic!("{:?}", other.map(|tree| tree.path().to_owned())),
    }
    assert!(store.layer(&package.layers[1].1).is_none());
    assert_eq!(fs::read_dir(store.root().join("tmp")).unwrap().count(), 0);
}

/// A blob of the store that was damaged since, by a power cut or a disk, is fetched anew.
#[test]
fn u64_a_damaged_blob_is_fetched_anew() {
    let (_dir, store, layout, package) = elsewhere(&[layer("a")]);
    let digest = &package.layers[0].0.digest;
    fs::write(store.root().join("blobs/sha256").join(digest.hex()), vec![0; layer("a").len()]).unwrap();
    let tree = arrive(&package, &store, &layout, &in_this_process).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(fs::read_to_string(tree.path().join("a")).unwrap(), "a");
}
