//! The rows of `cases/unpack.md` that are about entries, by number.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::archive::{Head, dir, file, hard_link, head, pax, pax_global, symlink, tar};
use super::notes::Notes;
use super::*;
use distribution::media_type;
use tempfile::TempDir;

/// A directory to unpack into, beside one that must stay as it is.
pub(super) struct Place {
    dir: TempDir,
}

impl Place {
    pub(super) fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("into")).unwrap();
        fs::create_dir_all(dir.path().join("OUT")).unwrap();
        fs::write(dir.path().join("OUT/secret"), "outside").unwrap();
        Place { dir }
    }

    pub(super) fn inside(&self) -> PathBuf {
        self.dir.path().join("into")
    }

    pub(super) fn out(&self) -> PathBuf {
        self.dir.path().join("OUT")
    }

    /// The directory to unpack into.
    pub(super) fn open(&self) -> OwnedFd {
        fs::File::open(self.inside()).unwrap().into()
    }

    /// Unpacks the lowest layer of a package, and looks whether everything outside is as before.
    pub(super) fn unpack(&self, archive: &[u8], media_type: &str) -> Extracted {
        self.unpack_by(archive, media_type, Rules::Strict, Below::Nothing)
    }

    pub(super) fn unpack_by(&self, archive: &[u8], media_type: &str, rules: Rules, below: Below) -> Extracted {
        let result = extract(archive, &Order { media_type: media_type.into(), rules, below }, self.open());
        let outside: Vec<_> = fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(outside.len(), 2, "{outside:?}");
        let inside: Vec<_> = fs::read_dir(self.out()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(inside, ["secret"]);
        let secret = fs::metadata(self.out().join("secret")).unwrap();
        assert_eq!((secret.nlink(), secret.permissions().mode() & 0o7777), (1, 0o644));
        assert_eq!(fs::read(self.out().join("secret")).unwrap(), b"outside");
        result
    }

    pub(super) fn tar(&self, heads: &[Head]) -> Extracted {
        self.unpack(&tar(heads), media_type::LAYER_TAR)
    }

    /// What an image that was not made for smcp gets.
    pub(super) fn lenient(&self, heads: &[Head]) -> Extracted {
        self.unpack_by(&tar(heads), media_type::LAYER_TAR, Rules::Lenient, Below::Nothing)
    }

    pub(super) fn tree(&self) -> BTreeMap<PathBuf, String> {
        tree_of(&self.inside())
    }
}

/// Path → kind and content.
pub(super) fn tree_of(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut tree = BTreeMap::new();
    list(root, root, &mut tree);
    tree
}

pub(super) fn refusal<T>(result: Result<T>) -> Refusal {
    match result {
        Err(Stop::Refused(refusal)) => refusal,
        Err(Stop::Io(error)) => panic!("not refused, but {error}"),
        Ok(_) => panic!("accepted"),
    }
}

/// The archive is refused with `code` at the entry `name`.
fn refused(row: &str, heads: &[Head], code: Code, name: &[u8]) {
    refused_by(row, &[Rules::Strict, Rules::Lenient], heads, code, name);
}

/// The same by the rules for packages of smcp, and how other images fare: the tree, and the first departure.
fn compatible(row: &str, heads: &[Head], code: Code, name: &[u8]) -> BTreeMap<PathBuf, String> {
    refused_by(row, &[Rules::Strict], heads, code, name);
    let place = Place::new();
    if let Err(stop) = place.lenient(heads) {
        panic!("{row}: {stop:?}");
    }
    let departure = Notes::read(place.open()).unwrap().departure.expect("it departs from the strict rules");
    assert!(departure.starts_with(&format!("{code}: entry `")), "{row}: {departure}");
    let mut tree = place.tree();
    tree.remove(Path::new(NOTES));
    tree
}

fn refused_by(row: &str, rules: &[Rules], heads: &[Head], code: Code, name: &[u8]) {
    for rules in rules {
        for below in [Below::Nothing, Below::Layers] {
            let result = Place::new().unpack_by(&tar(heads), media_type::LAYER_TAR, *rules, below);
            let refusal = refusal(result);
            assert_eq!((refusal.code, refusal.entry.as_deref()), (code, Some(name)), "{row}, {rules:?}: {refusal}");
        }
    }
}

/// The tree that the archive gives, by both rules: path → kind and content.
fn accepted(row: &str, heads: &[Head]) -> BTreeMap<PathBuf, String> {
    let trees = [Rules::Strict, Rules::Lenient].map(|rules| {
        let place = Place::new();
        if let Err(stop) = place.unpack_by(&tar(heads), media_type::LAYER_TAR, rules, Below::Nothing) {
            panic!("{row}: {stop:?}");
        }
        assert_eq!(Notes::read(place.open()).unwrap().departure, None, "{row}");
        place.tree()
    });
    let [strict, lenient] = trees;
    assert_eq!(strict, lenient, "{row}");
    strict
}

/// What a layer says of those below.
fn noted(row: &str, heads: &[Head]) -> Notes {
    let place = Place::new();
    if let Err(stop) = place.unpack_by(&tar(heads), media_type::LAYER_TAR, Rules::Strict, Below::Layers) {
        panic!("{row}: {stop:?}");
    }
    Notes::read(place.open()).unwrap()
}

/// The file of the notes.
const NOTES: &str = ".wh..smcp";

fn list(root: &Path, dir: &Path, tree: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        let text = if meta.is_dir() {
            list(root, &path, tree);
            format!("dir {mode:o}")
        } else if meta.is_symlink() {
            format!("link {}", path.read_link().unwrap().display())
        } else {
            format!("file {mode:o} {}", String::from_utf8_lossy(&fs::read(&path).unwrap()))
        };
        tree.insert(path.strip_prefix(root).unwrap().into(), text);
    }
}

fn tree<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<PathBuf, String> {
    entries.into_iter().map(|(path, text)| (path.into(), text.into())).collect()
}

#[test]
fn u1_dotdot() {
    for name in ["../x", "a/../../x", "a/..", "..", "/../x", "a/../b"] {
        refused("U1", &[file(name, "x")], Code::PathDotdot, name.as_bytes());
        refused("U1", &[pax(&[("path", name.as_bytes())]), file("x", "x")], Code::PathDotdot, name.as_bytes());
        refused("U1", &[head(b'L', "L").data(name), file("x", "x")], Code::PathDotdot, name.as_bytes());
    }
    refused("U1", &[file("x", "x").put(345, b"..")], Code::PathDotdot, b"../x");
}

#[test]
fn u2_u34_names_become_plain() {
    let want = tree([("abs", "dir 755"), ("abs/x", "file 644 x")]);
    for name in ["/abs/x", "//abs/x", "./abs/./x", "abs//x"] {
        assert_eq!(accepted("U2, U34", &[file(name, "x")]), want, "{name}");
    }
}

#[test]
fn u3_u4_u6_u21_nothing_is_written_by_way_of_a_symlink() {
    let place = Place::new();
    let out = place.out();
    let absolute = refusal(place.tar(&[symlink("l", out.as_os_str().as_bytes()), file("l/x", "x")]));
    assert_eq!((absolute.code, absolute.entry), (Code::SymlinkParent, Some(b"l/x".to_vec())));
    let cases = [
        vec![symlink("l", "../OUT"), file("l/x", "x")],
        vec![symlink("l", "../OUT"), dir("l/x")],
        vec![symlink("l", "../OUT"), symlink("l/x", "y")],
        vec![symlink("l", "../OUT"), file("f", ""), hard_link("l/x", "f")],
        vec![dir("s"), symlink("s/p", ".."), symlink("q", ".."), file("s/p/x", "x")],
        vec![dir("s"), symlink("s/p", ".."), symlink("s/p/q", "..")],
        vec![symlink("a", "b"), symlink("b", "a"), file("a/f", "x")],
        vec![dir("d"), symlink("inside", "d"), file("inside/x", "x")],
        vec![symlink("l", "../OUT"), file("l/deep/er/x", "x")],
    ];
    for heads in cases {
        refused("U3, U4, U6, U21", &heads, Code::SymlinkParent, heads.last().unwrap().name());
    }
}

#[test]
fn u5_u11_u12_u19_no_name_twice_and_of_other_images_the_last() {
    let cases = [
        ("U5", vec![symlink("a", "../OUT/secret"), file("a", "x")], vec![("a", "file 644 x")]),
        ("U5", vec![symlink("a", "../OUT/new"), file("a", "x")], vec![("a", "file 644 x")]),
        ("U5", vec![symlink("a", "../OUT/secret"), symlink("a", "b")], vec![("a", "link b")]),
        ("U5", vec![file("a", "x"), symlink("a", "../OUT/secret")], vec![("a", "link ../OUT/secret")]),
        (
            "U11",
            vec![symlink("l", "../OUT/secret"), hard_link("a", "l"), file("a", "x")],
            vec![("a", "file 644 x"), ("l", "link ../OUT/secret")],
        ),
        (
            "U11",
            vec![file("f", "1"), hard_link("a", "f"), file("a", "2")],
            vec![("a", "file 644 2"), ("f", "file 644 1")],
        ),
        ("U19", vec![file("a", "1"), file("a", "2")], vec![("a", "file 644 2")]),
        ("U19", vec![file("a", "1"), file("./a", "2").mode(0o755)], vec![("a", "file 755 2")]),
        ("U19", vec![dir("a"), dir("a").mode(0o777)], vec![("a", "dir 777")]),
        (
            "U19",
            vec![file("f", "1"), file("a", "2"), hard_link("a", "f")],
            vec![("a", "file 644 1"), ("f", "file 644 1")],
        ),
    ];
    for (row, heads, want) in cases {
        let last = heads.last().unwrap().name().to_vec();
        let want: BTreeMap<PathBuf, String> = want.iter().map(|(path, text)| (path.into(), (*text).into())).collect();
        assert_eq!(compatible(row, &heads, Code::Dup, &last), want, "{row}");
    }
    for target in ["../OUT", "../OUT/secret", "nowhere"] {
        let heads = [symlink("a", target), dir("a").mode(0o777), file("a/x", "x")];
        let found = compatible("U12", &heads, Code::TypeConflict, b"a");
        assert_eq!(found, tree([("a", "dir 777"), ("a/x", "file 644 x")]), "U12");
    }
}

#[test]
fn u20_a_name_is_of_one_kind() {
    let cases = [
        vec![dir("a"), file("a", "x")],
        vec![dir("a"), symlink("a", "x")],
        vec![file("f", ""), dir("a"), hard_link("a", "f")],
        vec![file("a/b", "x"), file("a", "x")],
        vec![file("a", "x"), dir("a")],
    ];
    for heads in cases {
        refused("U20", &heads, Code::TypeConflict, b"a");
    }
    refused("U20", &[file("f", "x"), file("f/g", "x")], Code::TypeConflict, b"f/g");
}

#[test]
fn u7_u8_u9_u10_hard_links_stay_in_the_layer() {
    let place = Place::new();
    let secret = place.out().join("secret");
    let absolute = refusal(place.tar(&[hard_link("a", secret.as_os_str().as_bytes())]));
    assert_eq!(absolute.code, Code::LinkTarget, "U7");
    // Cargo runs the tests where this file stands.
    assert!(Path::new("Cargo.toml").exists());
    let cases = [
        ("U7", vec![hard_link("a", "/etc/passwd")]),
        ("U8", vec![hard_link("a", "../OUT/secret")]),
        ("U8", vec![dir("d"), hard_link("d/a", "d/../../OUT/secret")]),
        ("U9", vec![hard_link("a", "Cargo.toml")]),
        ("U10", vec![symlink("l", "../OUT"), hard_link("a", "l/secret")]),
        ("U10", vec![file("d/f", ""), symlink("l", "d"), hard_link("a", "l/f")]),
        ("a directory", vec![dir("d"), hard_link("a", "d")]),
        ("the root", vec![hard_link("a", ".")]),
        ("nothing", vec![hard_link("a", "")]),
        ("itself", vec![hard_link("a", "a")]),
        ("a later one", vec![file("c", ""), hard_link("b", "a")]),
        ("below a file", vec![file("f", ""), hard_link("a", "f/g")]),
    ];
    for (row, heads) in cases {
        for result in [Place::new().tar(&heads), Place::new().lenient(&heads)] {
            let refusal = refusal(result);
            assert_eq!(
                (refusal.code, refusal.entry.as_deref()),
                (Code::LinkTarget, heads.last().map(|h| h.name())),
                "{row}: {refusal}"
            );
        }
    }
    // Above other layers they may lead to what those hold, and to nothing else.
    let above = |heads: &[Head]| {
        refusal(Place::new().unpack_by(&tar(heads), media_type::LAYER_TAR, Rules::Strict, Below::Layers)).code
    };
    assert_eq!(above(&[hard_link("a", "../OUT/secret")]), Code::LinkTarget, "U8");
    assert_eq!(above(&[symlink("l", "../OUT"), hard_link("a", "l/secret")]), Code::LinkTarget, "U10");
    assert_eq!(above(&[hard_link("a", "b"), file("b", "")]), Code::LinkTarget, "a later one");
    assert_eq!(above(&[hard_link("a", "b"), hard_link("b", "c")]), Code::LinkTarget, "a later one");
    assert_eq!(above(&[hard_link("a", "b"), file("a", "")]), Code::Dup, "U19");
    let links = noted("U47", &[hard_link("a", "/etc/passwd"), hard_link("d/b", "a")]).links;
    let pair = |path: &str, target: &str| (path.as_bytes().to_vec(), target.as_bytes().to_vec());
    assert_eq!(links, [pair("a", "etc/passwd"), pair("d/b", "a")], "U7, U47");
}

#[test]
fn hard_links_within_the_layer_work() {
    let heads =
        [file("d/f", "x").mode(0o600), hard_link("/a", "/d/f"), symlink("l", "../OUT/secret"), hard_link("m", "./l")];
    let want = [
        ("d", "dir 755"),
        ("d/f", "file 644 x"),
        ("a", "file 644 x"),
        ("l", "link ../OUT/secret"),
        ("m", "link ../OUT/secret"),
    ];
    let place = Place::new();
    place.tar(&heads).unwrap_or_else(|stop| panic!("{stop:?}"));
    assert_eq!(place.tree(), tree(want));
    let inode = |name: &str| place.inside().join(name).symlink_metadata().unwrap().ino();
    assert_eq!(inode("a"), inode("d/f"));
    assert_eq!(inode("m"), inode("l"), "U11: the link itself");
}

#[test]
fn u13_u33_the_root_is_a_directory() {
    for name in ["", ".", "./", "/", "//./"] {
        assert_eq!(accepted("U33", &[dir(name).mode(0o777)]), tree([]), "{name:?}");
        refused("U13", &[symlink(name, "../OUT")], Code::Root, name.as_bytes());
        refused("U13", &[file("f", ""), hard_link(name, "f")], Code::Root, name.as_bytes());
        if !name.ends_with('/') {
            refused("U33", &[file(name, "x")], Code::Root, name.as_bytes());
        }
    }
}

#[test]
fn u14_u15_u16_u44_u45_kinds_that_are_not_taken() {
    let zero = |head: Head| head.put(329, b"0000000\0").put(337, b"0000000\0");
    let null = |head: Head| head.put(329, b"0000001\0").put(337, b"0000003\0");
    let left_out = |heads: &[Head], code, name: &str| {
        assert_eq!(compatible("U14, U16", heads, code, name.as_bytes()), tree([("f", "file 644 ")]));
        let (_, unpacked) = Place::new().lenient(heads).unwrap_or_else(|stop| panic!("{stop:?}"));
        assert_eq!(unpacked.warnings.len(), 1);
        assert!(unpacked.warnings[0].starts_with(&format!("`{name}` is left out: it is a ")), "{unpacked:?}");
    };
    left_out(&[null(head(b'3', "null")), file("f", "")], Code::Device, "null");
    left_out(&[head(b'4', "sda").put(329, b"0000010\0"), file("f", "")], Code::Device, "sda");
    left_out(&[head(b'6', "pipe"), file("f", "")], Code::Fifo, "pipe");
    refused("U15", &[zero(head(b'3', "gone"))], Code::RawWhiteout, b"gone");
    refused("U15", &[head(b'3', "gone")], Code::RawWhiteout, b"gone");
    refused("U44", &[head(b'S', "sparse").size((8 << 30) - 1)], Code::Sparse, b"sparse");
    refused("U44", &[pax(&[("GNU.sparse.realsize", b"8589934592")]), file("f", "")], Code::Sparse, b"pax");
    refused("U44", &[pax(&[("GNU.sparse.major", b"1")]), file("f", "")], Code::Sparse, b"pax");
    for typeflag in *b"VMDNAX89z\xff" {
        refused("U45", &[head(typeflag, "odd")], Code::Type, b"odd");
    }
    assert_eq!(accepted("U45", &[head(b'7', "f").data("x")]), tree([("f", "file 644 x")]));
    assert_eq!(accepted("v7", &[head(0, "f").data("x").put(257, &[0; 8])]), tree([("f", "file 644 x")]));
    assert_eq!(accepted("v7", &[head(0, "d/").mode(0o755)]), tree([("d", "dir 755")]));
    refused("v7", &[head(0, "d/").data("x")], Code::Ambiguous, b"d/");
}

#[test]
fn u17_modes_are_normalised() {
    let found = accepted(
        "U17",
        &[
            file("suid", "").mode(0o6755),
            file("sticky", "").mode(0o1644),
            file("private", "").mode(0o600),
            file("program", "").mode(0o700),
            file("nothing", "").mode(0),
            file("shared", "").mode(0o664),
            dir("tmp").mode(0o1777),
            dir("sgid").mode(0o2750),
        ],
    );
    let want = [
        ("suid", "file 755 "),
        ("sticky", "file 644 "),
        ("private", "file 644 "),
        ("program", "file 755 "),
        ("nothing", "file 444 "),
        ("shared", "file 664 "),
        ("tmp", "dir 1777"),
        ("sgid", "dir 755"),
    ];
    assert_eq!(found, tree(want));
}

#[test]
fn u18_attributes() {
    let capability = ("SCHILY.xattr.security.capability", &b"\x01\x00\x00\x02\x00"[..]);
    let place = Place::new();
    let heads =
        [pax(&[capability, ("SCHILY.xattr.user.mime", b"x"), ("RHT.security.selinux", b"x")]), file("ping\x1b[2J", "")];
    let (_, unpacked) = place.tar(&heads).unwrap_or_else(|stop| panic!("{stop:?}"));
    assert_eq!(unpacked.warnings, ["`ping\\u{1b}[2J` loses its capabilities"]);
    for name in ["user.overlay.opaque", "trusted.overlay.opaque", "trusted.x"] {
        for vendor in ["SCHILY", "LIBARCHIVE"] {
            refused("U18", &[pax(&[(&format!("{vendor}.xattr.{name}"), b"y")]), file("f", "")], Code::Xattr, b"pax");
        }
    }
}

#[test]
fn u22_names_that_differ_by_case_are_two() {
    assert_eq!(accepted("U22", &[file("A", ""), file("a", "")]).len(), 2);
}

#[test]
fn u23_u24_any_bytes_are_names_and_are_escaped_in_errors() {
    for name in [&b"a\nb\x1b[31m"[..], b"\xff\xfe", b"\xc3\x28 `\\"] {
        let place = Place::new();
        place.tar(&[file(name, "x")]).unwrap_or_else(|stop| panic!("{stop:?}"));
        let found = fs::read_dir(place.inside()).unwrap().next().unwrap().unwrap().file_name();
        assert_eq!(found.as_bytes(), name, "U24");
        let refusal = refusal(Place::new().tar(&[file(name, "x"), file(name, "x")]));
        let text = refusal.to_string();
        assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "U23: {text}");
    }
    let refusal = refusal(Place::new().tar(&[file("../\u{202e}gpj\n", "")]));
    assert_eq!(refusal.to_string(), "E_PATH_DOTDOT: entry `../\\u{202e}gpj\\u{a}`: its name holds `..`");
}

#[test]
fn u25_long_names() {
    let long = vec![vec![b'x'; 250]; 17].join(&b'/');
    let deep = vec![b"d".to_vec(); 257].join(&b'/');
    for name in [vec![b'x'; 256], long, deep] {
        refused("U25", &[pax(&[("path", &name)]), file("f", "")], Code::NameTooLong, &name);
        refused("U25", &[head(b'L', "L").data(&name), file("f", "")], Code::NameTooLong, &name);
    }
    let name = vec![vec![b'x'; 250]; 16].join(&b'/');
    let place = Place::new();
    place.tar(&[pax(&[("path", &name)]), file("f", "x")]).unwrap_or_else(|stop| panic!("{stop:?}"));
    let deepest = vec![b"d".to_vec(); 256].join(&b'/');
    accepted("U25", &[pax(&[("path", &deepest)]), dir("f")]);
}

#[test]
fn u26_u27_times_and_owners_are_harmless() {
    let place = Place::new();
    let base256 = |n: i128| (0..12).rev().map(|i| (n >> (8 * i)) as u8).collect::<Vec<u8>>();
    let mut late = base256(1 << 40);
    late[0] = 0x80;
    let heads = [
        file("late", "").put(136, &late),
        file("early", "").put(136, &base256(-5)),
        file("odd", "").put(136, b"not a number"),
        pax(&[("mtime", b"-7.5")]),
        file("pax", ""),
        file("some", "").put(136, b"00000000144\0"),
        dir("dir").put(136, b"00000000144\0"),
        file("dir/f", ""),
        file("owner", "").put(108, b"\xff\xff\xff\xff\xff\xff\xff\xff").put(116, b"37777777"),
    ];
    place.tar(&heads).unwrap_or_else(|stop| panic!("{stop:?}"));
    let mtime = |name: &str| fs::metadata(place.inside().join(name)).unwrap().mtime();
    let all = ["late", "early", "odd", "pax", "some", "dir", "owner"].map(mtime);
    assert_eq!(all, [1 << 33, 0, 0, 0, 100, 100, 0]);
    let owner = fs::metadata(place.inside().join("owner")).unwrap().uid();
    assert_eq!(owner, fs::metadata(place.inside()).unwrap().uid());
}

#[test]
fn u28_u29_whiteouts_that_would_reach_elsewhere() {
    for name in [".wh.", ".wh..", ".wh...", "d/.wh.."] {
        refused("U28", &[file(name, "")], Code::Whiteout, name.as_bytes());
    }
    refused("below a whiteout", &[file(".wh.d/x", "")], Code::Whiteout, b".wh.d/x");
    for name in ["l/.wh.secret", "l/.wh..wh..opq", "l/d/.wh.x"] {
        refused("U29", &[symlink("l", "../OUT"), file(name, "")], Code::SymlinkParent, name.as_bytes());
    }
    refused("U29", &[file("f", ""), file("f/.wh.x", "")], Code::TypeConflict, b"f/.wh.x");
}

#[test]
fn u30_u31_whiteouts_are_noted() {
    let hidden = |entries: &[(&str, Hidden)]| entries.iter().map(|(path, h)| (path.as_bytes().to_vec(), *h)).collect();
    let (gone, opaque) = (Hidden::Gone, Hidden::Opaque);
    let found = noted("U30", &[file(".wh.x", ""), file("d/.wh.y", ""), file("d/y", "new")]);
    assert_eq!(found, Notes { hidden: hidden(&[("x", gone), ("d/y", gone)]), ..Notes::default() });
    for order in [
        [dir("d"), file("d/f", ""), file("d/.wh..wh..opq", "")],
        [file("d/.wh..wh..opq", ""), dir("d"), file("d/f", "")],
    ] {
        assert_eq!(noted("U31", &order).hidden, hidden(&[("d", opaque)]));
    }
    assert_eq!(noted("U31", &[file(".wh..wh..opq", "")]).hidden, hidden(&[("", opaque)]));
    let both = [file(".wh.d", ""), file("d/.wh..wh..opq", ""), file(".wh.d", "")];
    assert_eq!(noted("twice", &both).hidden, hidden(&[("d", gone)]));
    for name in [".wh.x", "d/.wh.x", ".wh..wh..opq"] {
        refused("U30", &[file(name, "x")], Code::Whiteout, name.as_bytes());
        refused("U30", &[dir(name)], Code::Whiteout, name.as_bytes());
        refused("U30", &[symlink(name, "x")], Code::Whiteout, name.as_bytes());
        refused("U30", &[file("f", ""), hard_link(name, "f")], Code::Whiteout, name.as_bytes());
    }
    let aufs = [
        dir(".wh..wh.plnk"),
        file(".wh..wh.plnk/12.34", "data"),
        file(".wh..wh.aufs", ""),
        hard_link(".wh..wh.orph", ".wh..wh.aufs"),
        file("f", "x"),
    ];
    assert_eq!(accepted("U31", &aufs), tree([("f", "file 644 x")]));
    assert_eq!(accepted("no whiteout", &[file(".whx", ""), file("a.wh.b", "")]).len(), 2);
}

#[test]
fn u32_u49_directories_hold_their_children_whatever_their_mode() {
    let found = accepted("U32", &[dir("d").mode(0), file("d/f", "x"), file("i/j/f", "x"), dir("i").mode(0o777)]);
    let want = [("d", "dir 755"), ("d/f", "file 644 x"), ("i", "dir 777"), ("i/j", "dir 755"), ("i/j/f", "file 644 x")];
    assert_eq!(found, tree(want));
}

#[test]
fn u35_the_size_of_pax_counts_and_what_looks_like_a_header_is_data() {
    let nested = file("evil", "evil").bytes();
    let heads =
        [pax(&[("size", nested.len().to_string().as_bytes())]), head(b'0', "f").data(&nested).size(0), file("g", "")];
    let place = Place::new();
    place.tar(&heads).unwrap_or_else(|stop| panic!("{stop:?}"));
    assert_eq!(fs::read(place.inside().join("f")).unwrap(), nested);
    assert!(!place.inside().join("evil").exists() && place.inside().join("g").exists());
}

#[test]
fn u36_what_is_said_twice_is_ambiguous() {
    let long = || head(b'L', "L").data("long\0");
    let cases = [
        vec![pax(&[("path", b"p")]), long(), file("f", "")],
        vec![long(), pax(&[("path", b"p")]), file("f", "")],
        vec![pax(&[("linkpath", b"p")]), head(b'K', "K").data("k"), symlink("l", "x")],
        vec![pax(&[("path", b"p")]), pax(&[("path", b"q")]), file("f", "")],
        vec![long(), long(), file("f", "")],
        vec![pax(&[("path", b"p"), ("path", b"q")]), file("f", "")],
        vec![pax(&[("size", b"0"), ("size", b"1")]), file("f", "")],
    ];
    for heads in cases {
        let refusal = refusal(Place::new().tar(&heads));
        assert_eq!(refusal.code, Code::Ambiguous, "{refusal}");
    }
    let both = accepted("K and L", &[long(), head(b'K', "K").data("target\0"), symlink("l", "x")]);
    assert_eq!(both, tree([("long", "link target")]));
}

#[test]
fn u37_u38_u39_extended_headers() {
    refused("U37", &[pax(&[("path", b"a\0b")]), file("f", "")], Code::Pax, b"pax");
    refused("U37", &[pax(&[("comment", b"a\0b")]), file("f", "")], Code::Pax, b"pax");
    refused("U37", &[head(b'L', "L").data("a\0b"), file("f", "")], Code::Header, b"L");
    for typeflag in *b"xgLK" {
        refused("U38", &[head(typeflag, "big").size((1 << 33) - 1)], Code::HeaderTooLarge, b"big");
        refused("U38", &[head(typeflag, "big").data(vec![b'x'; (1 << 20) + 1])], Code::HeaderTooLarge, b"big");
    }
    for key in ["size", "path", "linkpath", "mtime", "uid", "SCHILY.xattr.user.x", "GNU.sparse.size"] {
        refused("U39", &[pax_global(&[(key, b"1")]), file("f", "")], Code::PaxGlobal, b"pax");
    }
    accepted("U39", &[pax_global(&[("comment", b"commit"), ("charset", b"UTF-8")]), file("f", "")]);
    let dangling = refusal(Place::new().tar(&[file("f", ""), pax(&[("path", b"p")])]));
    assert_eq!(dangling.code, Code::Header);
}

#[test]
fn u41_broken_headers() {
    refused("U41", &[file("f", "").wrong_checksum()], Code::Header, b"f");
    let sizes: [&[u8]; 5] = [
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"-0000000001\0",
        b"0000000009\0\0",
        b"1 0000000000",
    ];
    for size in sizes {
        refused("U41", &[file("f", "").put(124, size)], Code::Header, b"f");
    }
    refused("mode", &[file("f", "").put(100, b"rw-r--r-")], Code::Header, b"f");
}

#[test]
fn u46_only_files_have_data() {
    for typeflag in *b"125" {
        let heads = [file("f", ""), head(typeflag, "a").link("f").data(file("evil", "").bytes())];
        refused("U46", &heads, Code::Payload, b"a");
        let heads = [file("f", ""), pax(&[("size", b"512")]), head(typeflag, "a").link("f")];
        refused("U46", &heads, Code::Payload, b"a");
    }
}

#[test]
fn odd_symlinks() {
    refused("empty", &[symlink("l", "")], Code::LinkTarget, b"l");
    refused("long", &[pax(&[("linkpath", &[b'x'; 4096])]), symlink("l", "x")], Code::LinkTarget, b"l");
    let found = accepted("contained at run time", &[symlink("l", "/etc/../../passwd")]);
    assert_eq!(found, tree([("l", "link /etc/../../passwd")]));
}

#[test]
fn the_prefix_of_ustar_counts_and_that_of_gnu_is_something_else() {
    let found = accepted("ustar", &[file("f", "").put(345, b"pre/fix")]);
    assert!(found.contains_key(Path::new("pre/fix/f")));
    let found = accepted("gnu", &[file("f", "").put(345, b"12345670123").put(257, b"ustar  \0")]);
    assert_eq!(found, tree([("f", "file 644 ")]));
}
