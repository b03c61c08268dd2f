//! Layers: golden bytes, order, canonical paths, long names, what is refused.

use std::os::unix::fs::symlink;

use super::*;

fn archive(layer: &LayerBuilder) -> Vec<u8> {
    let mut bytes = Vec::new();
    layer.write_tar(&mut bytes).unwrap();
    bytes
}

/// Every entry as another implementation reads it: type, mode, path, link or size, time, owner.
fn listing(layer: &LayerBuilder) -> Vec<String> {
    let bytes = archive(layer);
    let mut read = tar::Archive::new(&bytes[..]);
    let line = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
        let entry = entry.unwrap();
        let header = entry.header();
        let link = entry.link_name().unwrap().map(|link| format!(" -> {}", link.display())).unwrap_or_default();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert_eq!((header.username().unwrap(), header.groupname().unwrap()), (Some(""), Some("")));
        let (kind, mode) = (char::from(header.entry_type().as_byte()), header.mode().unwrap());
        let path = entry.path().unwrap().display().to_string();
        format!("{kind} {mode:o} {path}{link} {} @{}", entry.size(), header.mtime().unwrap())
    };
    read.entries().unwrap().map(line).collect()
}

fn small() -> LayerBuilder {
    let mut layer = LayerBuilder::new(0);
    layer.add_bytes(Path::new("/usr/local/bin/x"), "#!/bin/sh\n", FileMode::Executable).unwrap();
    layer.add_bytes(Path::new("app/b.txt"), "b", FileMode::Plain).unwrap();
    layer.add_symlink(Path::new("app/a"), Path::new("b.txt")).unwrap();
    layer.add_shared_dir(Path::new("tmp")).unwrap();
    layer
}

#[test]
fn entries_as_others_read_them() {
    let want = [
        "5 755 app/ 0 @0",
        "2 777 app/a -> b.txt 0 @0",
        "0 644 app/b.txt 1 @0",
        "5 1777 tmp/ 0 @0",
        "5 755 usr/ 0 @0",
        "5 755 usr/local/ 0 @0",
        "5 755 usr/local/bin/ 0 @0",
        "0 755 usr/local/bin/x 10 @0",
    ];
    assert_eq!(listing(&small()), want);
}

#[test]
fn golden_digests() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let packed = small().finish(&store).unwrap();
    assert_eq!(packed.diff_id, Digest::of(archive(&small())));
    // Whatever changes these changes the digest of every package: a new zstd does, and then packages that were built
    // before are no longer reproduced.
    assert_eq!(packed.diff_id.as_str(), "sha256:8ccde2f5ee0bed0145eb6e8649cc83bb477ca7a095418743d9a5b5516f919113");
    assert_eq!(
        packed.descriptor.digest.as_str(),
        "sha256:4c4a42a603e44407e883d7af372d8aaabc68497658e6b1334626c8efbe61eb91"
    );
    assert_eq!(packed.descriptor.media_type, media_type::LAYER_TAR_ZSTD);
    assert!(store.contains(&packed.descriptor));
}

#[test]
fn order_of_adding_does_not_matter() {
    let names = ["z", "a/b/c", "a-b", "a/b", "lib/x"];
    let built = |names: &mut dyn Iterator<Item = &&str>| {
        let mut layer = LayerBuilder::new(7);
        for name in names {
            layer.add_bytes(&Path::new(name).join("file"), *name, FileMode::Plain).unwrap();
        }
        archive(&layer)
    };
    assert_eq!(built(&mut names.iter()), built(&mut names.iter().rev()));
}

#[test]
fn a_tree_does_not_depend_on_the_machine() {
    let built = |mode: u32| {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("d/empty")).unwrap();
        fs::write(dir.path().join("d/f"), "f").unwrap();
        fs::write(dir.path().join("d/skipped"), "f").unwrap();
        fs::set_permissions(dir.path().join("d/f"), fs::Permissions::from_mode(mode)).unwrap();
        symlink("/nowhere", dir.path().join("link")).unwrap();
        let mut layer = LayerBuilder::new(1);
        layer.add_tree(dir.path(), Path::new("/app"), &|path| !path.ends_with("skipped")).unwrap();
        (listing(&layer), archive(&layer))
    };
    let want = ["5 755 app/ 0 @1", "5 755 app/d/ 0 @1", "0 755 app/d/f 1 @1", "2 777 app/link -> /nowhere 0 @1"];
    assert_eq!(built(0o4750).0, want);
    assert_eq!(built(0o700), built(0o4751));
    assert_ne!(built(0o700).1, built(0o600).1);
}

#[test]
fn merged_directories_are_canonical() {
    let mut layer = LayerBuilder::new(0);
    layer.add_bytes(Path::new("lib/x/libc.so"), "", FileMode::Plain).unwrap();
    layer.add_bytes(Path::new("/lib64/ld.so"), "", FileMode::Plain).unwrap();
    layer.add_bytes(Path::new("usr/lib/y"), "", FileMode::Plain).unwrap();
    layer.add_bytes(Path::new("app/lib/z"), "", FileMode::Plain).unwrap();
    layer.add_merged_usr().unwrap();
    let paths: Vec<String> = listing(&layer).iter().map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect();
    let want = [
        "app/",
        "app/lib/",
        "app/lib/z",
        "bin",
        "lib",
        "lib64",
        "sbin",
        "usr/",
        "usr/bin/",
        "usr/lib/",
        "usr/lib/x/",
        "usr/lib/x/libc.so",
        "usr/lib/y",
        "usr/lib64/",
        "usr/lib64/ld.so",
        "usr/sbin/",
    ];
    assert_eq!(paths, want);
    assert!(layer.holds(Path::new("/usr/lib/x/libc.so")) && layer.holds(Path::new("lib/x")));
}

#[test]
fn long_names_and_links() {
    let names = [
        "n".repeat(100),
        "n".repeat(101),
        format!("{}/{}", "d".repeat(155), "n".repeat(100)),
        format!("{}/{}", "d".repeat(156), "n".repeat(100)),
        format!("{}/{}", "d".repeat(200), "n".repeat(200)),
        format!("{}/é", ["d"; 120].join("/")),
    ];
    let mut layer = LayerBuilder::new(0);
    for name in &names {
        layer.add_bytes(Path::new(name), name.as_str(), FileMode::Plain).unwrap();
    }
    let target = "t".repeat(300);
    layer.add_symlink(Path::new("link"), Path::new(&target)).unwrap();
    let listing = listing(&layer);
    for name in &names {
        assert!(listing.contains(&format!("0 644 {name} {} @0", name.len())), "{name}");
    }
    assert!(listing.contains(&format!("2 777 link -> {target} 0 @0")));
    // Only what ustar cannot say costs a PAX header: 101, 156/100, 200/200, the three directories of those lengths
    // (they cannot be cut anywhere but at their last slash) and the link.
    let blocks = archive(&layer);
    let pax = blocks.chunks(BLOCK).filter(|block| block.starts_with(b"PaxHeaders/entry\0")).count();
    assert_eq!(pax, 7);
}

#[test]
fn conflicts() {
    let mut layer = LayerBuilder::new(0);
    layer.add_bytes(Path::new("a"), "", FileMode::Plain).unwrap();
    layer.add_dir(Path::new("d")).unwrap();
    layer.add_dir(Path::new("d")).unwrap();
    let file = |layer: &mut LayerBuilder, path: &str| layer.add_bytes(Path::new(path), "", FileMode::Plain);
    for path in ["a", "./a", "a/b", "d", "d/../x", "..", "/", "", "x/.wh.y"] {
        let error = file(&mut layer, path).unwrap_err();
        assert!(matches!(error, PackError::Conflict(_) | PackError::Path { .. }), "{path}: {error}");
    }
    assert!(matches!(layer.add_dir(Path::new("a")), Err(PackError::Conflict(_))));
    assert_eq!(listing(&layer), ["0 644 a 0 @0", "5 755 d/ 0 @0"]);
}

#[test]
fn special_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let refused = LayerBuilder::new(0).add_tree(dir.path(), Path::new("app"), &|_| true);
    assert!(matches!(refused, Err(PackError::Special(_))));
    assert!(matches!(
        LayerBuilder::new(0).add_file(Path::new("n"), Path::new("/dev/null")),
        Err(PackError::Special(_))
    ));
}

#[test]
fn times_beyond_ustar_are_cut() {
    let mut layer = LayerBuilder::new(u64::MAX);
    layer.add_dir(Path::new("d")).unwrap();
    assert_eq!(listing(&layer), [format!("5 755 d/ 0 @{MAX_MTIME}")]);
}
