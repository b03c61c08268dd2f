//! The rows of `cases/unpack.md` that are about streams, and archives of others.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::archive::{Head, dir, file, open_tar, pax, symlink, tar};
use super::notes::Notes;
use super::tests::{Place, refusal};
use super::*;
use distribution::{Staging, Store, media_type};
use flate2::Compression;
use flate2::write::GzEncoder;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn code(bytes: &[u8], media_type: &str) -> Code {
    refusal(Place::new().unpack(bytes, media_type)).code
}

/// Unpacks and gives the digest of the content.
fn digest(bytes: &[u8], media_type: &str) -> Digest {
    Place::new().unpack(bytes, media_type).unwrap_or_else(|stop| panic!("{stop:?}")).0
}

fn strict(media_type: &str) -> Order {
    Order { media_type: media_type.into(), rules: Rules::Strict, below: Below::Nothing }
}

const GZIP: &str = media_type::LAYER_TAR_GZIP;
const ZSTD: &str = media_type::LAYER_TAR_ZSTD;

#[test]
fn all_forms_of_a_layer_have_the_same_content() {
    let plain = tar(&[file("f", "x".repeat(100_000))]);
    let want = Digest::of(&plain);
    assert_eq!(digest(&plain, media_type::LAYER_TAR), want);
    assert_eq!(digest(&plain, media_type::DOCKER_LAYER_TAR), want);
    assert_eq!(digest(&gzip(&plain), GZIP), want);
    assert_eq!(digest(&gzip(&plain), media_type::DOCKER_LAYER_TAR_GZIP), want);
    assert_eq!(digest(&zstd_of(&plain), ZSTD), want);
}

#[test]
fn u40_u42_u43_ends() {
    let whole = tar(&[file("f", "x".repeat(600))]);
    let open = open_tar(&[file("f", "x".repeat(600))]);
    let lenient = |bytes: &[u8]| {
        let place = Place::new();
        let unpacked = place.unpack_by(bytes, media_type::LAYER_TAR, Rules::Lenient, Below::Nothing);
        (place, unpacked)
    };
    for cut in [0, 1, 511, 512, 513, 1111, 1112, 1535, 1536, 1537, 2048, 2559] {
        assert_eq!(code(&whole[..cut], media_type::LAYER_TAR), Code::Eof, "U40: {cut} bytes");
        let (place, unpacked) = lenient(&whole[..cut]);
        match cut {
            // umoci writes no end mark, and does not fill up the last block. All of the data must be there.
            0 | 1112 | 1535 | 1536 => {
                unpacked.unwrap_or_else(|stop| panic!("U40: {cut} bytes: {stop:?}"));
                let departure = Notes::read(place.open()).unwrap().departure;
                assert_eq!(departure.as_deref(), Some("E_EOF: the archive ends without its end mark"));
            }
            _ => assert_eq!(refusal(unpacked).code, Code::Eof, "U40: {cut} bytes"),
        }
    }
    let zeros = |n| vec![0; n];
    digest(&[open.clone(), zeros(10_240)].concat(), media_type::LAYER_TAR);
    let trailing = [whole.clone(), zeros(300), b"x".to_vec()].concat();
    assert_eq!(code(&trailing, media_type::LAYER_TAR), Code::Trailing, "U42");
    let second = [whole.clone(), whole].concat();
    assert_eq!(code(&second, media_type::LAYER_TAR), Code::Trailing, "U42");
    let single = [open.clone(), zeros(512), open].concat();
    assert_eq!(code(&single, media_type::LAYER_TAR), Code::Header, "U43");
}

#[test]
fn u52_u53_gzip() {
    let plain = tar(&[file("f", "x".repeat(5000))]);
    let (first, second) = plain.split_at(700);
    assert_eq!(digest(&[gzip(first), gzip(second)].concat(), GZIP), Digest::of(&plain), "U52");
    let good = gzip(&plain);
    let garbage = |more: &[u8]| [&good, more].concat();
    for more in [&b"x"[..], b"\0", b"garbage that is longer than a header", b"\x1f\x8b"] {
        let code = code(&garbage(more), GZIP);
        assert!(matches!(code, Code::Compression | Code::Eof), "U53: {code}");
    }
    for at in [good.len() - 8, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(code(&bad, GZIP), Code::Compression, "U53: checksum or size");
    }
    for cut in [0, 5, 20, good.len() - 8, good.len() - 1] {
        assert_eq!(code(&good[..cut], GZIP), Code::Eof, "U53: {cut} bytes");
    }
}

#[test]
fn u54_bombs() {
    let zeros = tar(&[file("f", vec![0; 66 << 20])]);
    for (bytes, form) in [(gzip(&zeros), GZIP), (zstd_of(&zeros), ZSTD)] {
        assert_eq!(code(&bytes, form), Code::Bomb);
    }
    // Up to 64 MiB any ratio is taken: a file of zeros is no attack.
    digest(&gzip(&tar(&[file("f", vec![0; 60 << 20])])), GZIP);

    let small = Extraction { caps: Caps { bytes: 10_000, ..Caps::LAYER }, headers: 3 };
    let run = |heads: &[Head]| small.run(&*tar(heads), &strict(media_type::LAYER_TAR), Place::new().open());
    assert_eq!(refusal(run(&[file("f", vec![b'x'; 10_000])])).code, Code::Bomb);
    assert_eq!(refusal(run(&[dir("a"), dir("b"), dir("c"), dir("d")])).code, Code::Bomb);
    assert_eq!(refusal(run(&[pax(&[]), dir("b"), pax(&[]), dir("d")])).code, Code::Bomb, "headers count");
    let stated = file("f", "").size((1 << 33) - 1);
    assert_eq!(code(&open_tar(&[stated]), media_type::LAYER_TAR), Code::Eof);
}

#[test]
fn u55_u56_zstd() {
    let plain = tar(&[file("f", "x".repeat(5000))]);
    let want = Digest::of(&plain);
    let windowed = |log: u32| {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(log).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(&plain).unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(digest(&windowed(23), ZSTD), want);
    assert_eq!(code(&windowed(24), ZSTD), Code::Compression, "U55");
    assert_eq!(code(&windowed(27), ZSTD), Code::Compression, "U55");

    let skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00toc!".to_vec();
    let (first, second) = plain.split_at(700);
    let frames = [skippable.clone(), zstd_of(first), skippable.clone(), zstd_of(second), skippable].concat();
    assert_eq!(digest(&frames, ZSTD), want, "U56");

    // Single segment, one byte of dictionary id, one byte of content size, a raw last block of one byte.
    let dictionary = b"\x28\xb5\x2f\xfd\x21\x07\x01\x09\x00\x00x";
    assert_eq!(code(dictionary, ZSTD), Code::Compression, "U56");

    let good = zstd_of(&plain);
    for more in [&b"garbage"[..], b"\0", b"\x28\xb5"] {
        let code = code(&[&good, more].concat(), ZSTD);
        assert!(matches!(code, Code::Compression | Code::Eof), "{code}");
    }
    for cut in [0, 3, 20, good.len() - 4, good.len() - 1] {
        assert_eq!(code(&good[..cut], ZSTD), Code::Eof, "{cut} bytes");
    }
    let mut bad = good;
    *bad.last_mut().unwrap() ^= 1;
    assert_eq!(code(&bad, ZSTD), Code::Compression);
}

#[test]
fn u57_u58_the_media_type_decides() {
    let plain = tar(&[file("f", "x")]);
    let forms = [plain.clone(), gzip(&plain), zstd_of(&plain), b"BZh91AY&SY".to_vec(), b"\xfd7zXZ\0\0".to_vec()];
    for (i, bytes) in forms.iter().enumerate() {
        for (j, form) in [media_type::LAYER_TAR, GZIP, ZSTD].iter().enumerate() {
            if i != j {
                let code = code(bytes, form);
                assert!(matches!(code, Code::Compression | Code::Eof | Code::Header), "U57: {code}");
            }
        }
    }
    let foreign = [
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
        "application/vnd.oci.image.layer.v1.tar+xz",
        "",
    ];
    for form in foreign {
        assert_eq!(code(&plain, form), Code::MediaType, "U58: {form}");
    }
}

/// A layer's blob and a place to unpack it into, of a store of its own.
fn in_store(bytes: &[u8], diff_id: &Digest) -> (tempfile::TempDir, std::result::Result<Unpacked, UnpackError>) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let descriptor = store.put(bytes, ZSTD).unwrap();
    let blob = store.blob(&descriptor).unwrap().unwrap();
    let Staging::Empty(staged) = store.stage_layer(diff_id).unwrap() else { panic!("a new store is empty") };
    let unpacked = unpack(&blob, diff_id, &staged, &strict(ZSTD), &in_this_process);
    if unpacked.is_ok() {
        staged.commit().unwrap();
    }
    (dir, unpacked)
}

#[test]
fn u51_another_content_than_promised_is_not_kept() {
    let plain = tar(&[dir("d").mode(0o700), file("d/f", "abc"), symlink("l", "d")]);
    let diff_id = Digest::of(&plain);
    let (store, unpacked) = in_store(&zstd_of(&plain), &diff_id);
    assert_eq!(unpacked.unwrap(), Unpacked { entries: 3, bytes: 3, warnings: vec![] });
    let layer = store.path().join("layers").join(diff_id.hex());
    assert_eq!(fs::read(layer.join("l/f")).unwrap(), b"abc");
    assert_eq!(fs::metadata(&layer).unwrap().permissions().mode() & 0o777, 0o755);

    let (store, unpacked) = in_store(&zstd_of(&plain), &Digest::of("other"));
    let error = unpacked.unwrap_err();
    assert!(matches!(error, UnpackError::DiffId { .. }), "{error}");
    assert_eq!(fs::read_dir(store.path().join("layers")).unwrap().count(), 0);
}

#[test]
fn a_refusal_names_layer_code_and_entry() {
    let plain = tar(&[file("../\x1bx", "")]);
    let (_store, unpacked) = in_store(&zstd_of(&plain), &Digest::of(&plain));
    let error = unpacked.unwrap_err().to_string();
    assert!(error.starts_with("layer sha256:"), "{error}");
    assert!(error.ends_with(": E_PATH_DOTDOT: entry `../\\u{1b}x`: its name holds `..`"), "{error}");
}

#[test]
fn archives_of_another_writer_are_read() {
    let mut builder = tar::Builder::new(Vec::new());
    let long = format!("deep/{}/{}", "d".repeat(120), "f".repeat(120));
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    header.set_mtime(7);
    builder.append_data(&mut header.clone(), "plain", &b"plain"[..]).unwrap();
    builder.append_data(&mut header, &long, &b"long!"[..]).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "link", "t".repeat(150)).unwrap();
    let bytes = builder.into_inner().unwrap();
    let place = Place::new();
    place.unpack(&bytes, media_type::LAYER_TAR).unwrap_or_else(|stop| panic!("{stop:?}"));
    assert_eq!(fs::read(place.inside().join("plain")).unwrap(), b"plain");
    assert_eq!(fs::read(place.inside().join(&long)).unwrap(), b"long!");
    assert_eq!(place.inside().join("link").read_link().unwrap(), Path::new(&"t".repeat(150)));
}

#[test]
fn what_is_read_is_what_another_reader_reads() {
    let heads = [dir("d"), pax(&[("path", b"d/long"), ("size", b"3")]), file("x", "abc"), symlink("l", "d/long")];
    let bytes = tar(&heads);
    let place = Place::new();
    place.unpack(&bytes, media_type::LAYER_TAR).unwrap_or_else(|stop| panic!("{stop:?}"));
    let mut archive = tar::Archive::new(&*bytes);
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let meta = place.inside().join(entry.path().unwrap()).symlink_metadata().unwrap();
        match entry.header().entry_type() {
            tar::EntryType::Directory => assert!(meta.is_dir()),
            tar::EntryType::Symlink => assert!(meta.is_symlink()),
            _ => assert_eq!(meta.len(), entry.size()),
        }
    }
}
