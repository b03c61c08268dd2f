//! Hostile archives: the rows U1 to U66. Most are tests beside the unpacker and the store; here are those that need a machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::image::{Form, Image, write_plain};
use crate::liar::{self, Lie};
use crate::patience::{PATIENCE, within};
use crate::violent_ends::{Dice, Seed};
use crate::world::{User, World, as_each_user};
use crate::{needs, place, processes};

/// Row, entry, what becomes of it. `plain` is by the rules for images that were not made for smcp.
const ROWS: [(&str, &str, &str); 66] = [
    ("U1", "`../x`, `a/../../x`", "refused, E_PATH_DOTDOT"),
    ("U2", "`/abs/x`", "beneath the layer"),
    ("U3", "a link to an absolute directory, then a file below it", "refused, E_SYMLINK_PARENT"),
    ("U4", "the same with a relative link", "refused"),
    ("U5", "a link, then a file of its name", "refused, E_DUP; plain: the link is replaced, never followed"),
    ("U6", "links through links", "refused"),
    ("U7", "a hard link to an absolute path outside", "refused, E_LINK_TARGET: it is looked for in the layers"),
    ("U8", "a hard link to `../../x`", "refused"),
    ("U9", "a hard link to what the working directory alone has", "refused"),
    ("U10", "a hard link by way of a link", "refused"),
    (
        "U11",
        "a hard link to a link, then a file of its name",
        "refused; plain: replaced. It is the link that gets a second name",
    ),
    ("U12", "a directory over a link", "refused; plain: it replaces the link, whose target keeps its mode"),
    ("U13", "the root as a link", "refused, E_ROOT"),
    ("U14", "devices", "refused; plain: left out, with a warning"),
    ("U15", "a device 0:0, overlay's own whiteout", "refused, E_RAW_WHITEOUT"),
    ("U16", "pipes and sockets", "refused; plain: left out, with a warning"),
    ("U17", "set-uid, set-gid, sticky", "dropped; sticky stays on directories"),
    ("U18", "extended attributes", "dropped, capabilities with a warning; `user.overlay.*` and `trusted.*` refused"),
    ("U19", "one name twice", "refused; plain: the last wins"),
    ("U20", "a file, then something below it; a directory, then a file of its name", "refused, E_TYPE_CONFLICT"),
    ("U21", "links in a circle", "refused"),
    ("U22", "`A` and `a`", "two files; where the file system takes them for one, refused"),
    ("U23", "control characters in names", "taken, and escaped wherever they are shown"),
    ("U24", "names that are no UTF-8", "taken as they are"),
    ("U25", "long names and deep paths", "refused, E_NAMETOOLONG"),
    ("U26", "times out of range", "clamped"),
    ("U27", "owners out of range", "ignored as all owners are"),
    ("U28", "`.wh.`, `.wh..`, `.wh...`", "refused, E_WHITEOUT"),
    ("U29", "whiteouts below links", "refused in the layer; by a lower layer's link they stay in the tree"),
    ("U30", "whiteouts", "hide what lies below; refused unless an empty file"),
    ("U31", "AUFS' own names; opaque directories", "left out; opaque for lower layers alone, whatever the order"),
    ("U32", "a directory of mode 000 with files", "it is filled, its owner may enter and list"),
    ("U33", "names `\"\"`, `./`, `/`", "ignored for directories, else refused"),
    ("U34", "`./a/./b`, `a//c`", "made plain"),
    ("U35", "PAX and ustar say different sizes (TARmageddon)", "PAX counts; a nested header is data"),
    ("U36", "a PAX and a GNU name together", "refused, E_AMBIGUOUS"),
    ("U37", "NUL in a PAX value", "refused"),
    ("U38", "extended headers of gigabytes", "refused beyond 1 MiB"),
    ("U39", "global headers that change entries", "refused"),
    ("U40", "cut data or headers", "refused, E_EOF; plain: an archive may end after its last file's data"),
    ("U41", "bad checksums, sizes that are none", "refused"),
    ("U42", "data after the end", "refused unless zero"),
    ("U43", "one block of zeros, then an entry", "refused"),
    ("U44", "sparse files", "refused, E_SPARSE"),
    ("U45", "unknown kinds", "refused; `7` is a file"),
    ("U46", "a hard link with data", "refused"),
    ("U47", "a hard link to a file of a lower layer", "made when the layers are merged"),
    ("U48", "an implicit parent that is a link in a lower layer", "goes where the link leads"),
    ("U49", "parents that are missing", "made, mode 755"),
    ("U50", "another digest or size", "refused before anything is visible"),
    ("U51", "another diff id; other numbers of layers and diff ids", "refused"),
    ("U52", "gzip of several members", "taken"),
    ("U53", "gzip with a tail, a bad checksum, cut", "refused"),
    (
        "U54",
        "bombs",
        "refused, E_BOMB: 200 to 1 after 64 MiB, 4 GiB a layer, 8 GiB a package, 500,000 headers, 128 layers",
    ),
    ("U55", "zstd windows beyond 8 MiB", "refused"),
    ("U56", "zstd: skippable frames, several frames, a dictionary", "taken, taken, refused"),
    ("U57", "content of another form than the media type", "refused, nothing is guessed"),
    ("U58", "foreign layers, `urls`", "refused"),
    ("U59", "digests that are paths, upper case, of another algorithm", "refused, SHA-512 too"),
    ("U60", "manifests of two kinds, of another type, schema 1", "refused"),
    ("U61", "large manifests and configurations, many entries, deep or double JSON", "refused"),
    ("U62", "indexes in a circle", "refused beyond a depth of 2"),
    ("U63", "the staging directory swapped meanwhile", "contained: everything goes by handles"),
    ("U64", "a full disk, SIGKILL in the middle", "no visible layer; the next run cleans up"),
    ("U65", "several first runs at once", "one unpacks"),
    ("U66", "`/etc/passwd` as a link to the host's, a large `/etc/group`", "never read"),
];

/// Where the tests are that are named by these rows.
const SOURCES: [&str; 5] = ["bundle/src", "distribution/src", "distribution/tests", "tests", "runtime/src"];

as_each_user! {
    u64_what_does_not_fit_on_the_disk,
    u64_twelve_kills,
    u65_twenty_first_runs,
    u66_accounts_of_the_image_are_not_read,
    u63_whoever_unpacks_can_do_nothing_else,
}

/// A file system with room for a part of the layer: no layer is seen, and with more room the next pull works.
fn u64_what_does_not_fit_on_the_disk(world: &World) {
    if needs::program("unshare", "util-linux").is_none() {
        return;
    }
    let reference = large_image(world);
    let script = r#"set -eu
        mount -t tmpfs -o size=100m,mode=700 tmpfs "$XDG_CACHE_HOME"
        head -c 88m /dev/zero >"$XDG_CACHE_HOME/ballast"
        code=0; "$0" -q pull "$1" || code=$?
        echo "code $code"; ls "$MCP_CACHE_DIR/layers" "$MCP_CACHE_DIR/tmp" | grep -v : || true
        rm "$XDG_CACHE_HOME/ballast"
        "$0" -q pull "$1" >/dev/null; echo "then $?"
        ls "$MCP_CACHE_DIR/layers" | wc -l; ls "$MCP_CACHE_DIR/tmp" | wc -l"#;
    let line = ["--user", "--map-root-user", "--mount", "sh", "-c", script];
    let smcp = place::smcp().display().to_string();
    let ended = world.program("unshare", line).args([smcp, reference]).run().ok();
    // The first one fails for the disk; the second has three layers and their tree.
    let text = ended.text();
    ended.check(text.split_whitespace().collect::<Vec<_>>() == ["code", "120", "then", "0", "4", "0"], &text);
    ended.explains(&["No space left", "free some space"]);
}

/// A few of the two hundred.
fn u64_twelve_kills(world: &World) {
    kills(world, 12);
}

#[test]
#[ignore = "takes minutes; CONTRIBUTING.md has its command"]
fn u64_two_hundred_kills() {
    if needs::root() {
        kills(&World::new(User::Root), 100);
    }
    kills(&World::new(User::Ordinary), if needs::root() { 100 } else { 200 });
}

/// Pulls that are killed at random moments of fetching and unpacking: what can be seen afterwards is whole, and the next pull
/// succeeds and leaves nothing behind.
fn kills(world: &World, count: usize) {
    let seed = Seed::chosen();
    let mut dice = Dice(seed.0);
    let reference = large_image(world);
    let pull = || world.smcp(["-q", "pull", &reference]);
    let ended = pull().run().ok();
    let took = ended.took().as_micros() as usize;
    let whole = trees(&world.store());
    assert_eq!(whole.len(), 4, "three layers and their tree");
    for number in 0..count {
        let store = world.store();
        // Sometimes what the last one left is what the next one finds.
        if dice.below(3) > 0 {
            // One that was killed at once has made none.
            let removed = fs::remove_dir_all(&store);
            assert!(!store.exists(), "the world is ours: {removed:?}");
        }
        let running = pull().start();
        thread::sleep(Duration::from_micros(dice.below(took * 5 / 4) as u64));
        running.signal(Signal::KILL);
        running.wait_for_the_process_alone();
        let gone = within(PATIENCE, || processes::with_word(&store_word(world)).is_empty().then_some(()));
        assert!(gone.is_some(), "kill {number}: {:?}", processes::with_word(&store_word(world)));
        for (name, tree) in trees(&store) {
            assert!(whole.get(&name) == Some(&tree), "kill {number}: layer {name} is visible and not whole");
        }
    }
    pull().run().ok();
    assert_eq!(trees(&world.store()), whole);
    assert_eq!(fs::read_dir(world.store().join("tmp")).map_or(0, Iterator::count), 0, "what was left is gone");
    world.smcp(["run", "--offline", &reference, "read", "/data/2-7"]).run().ok();
}

/// What no other world's processes have on their command lines.
fn store_word(world: &World) -> String {
    world.text("large")
}

/// An image of three layers with 900 files, 24 MB unpacked.
fn large_image(world: &World) -> String {
    let mut dice = Dice(7);
    let mut layers: Vec<_> = (0..3)
        .map(|layer| {
            let noise: Vec<u8> = (0..200_000).map(|_| dice.below(256) as u8).collect();
            let files = (0..300)
                .map(|file| (format!("data/{layer}-{file}"), 0o644, noise[file * 100..file * 100 + 27_000].to_vec()));
            files.collect::<Vec<_>>()
        })
        .collect();
    layers[0].push(("usr/bin/probe".into(), 0o755, fs::read(crate::probe::path()).expect("the probe was compiled")));
    write_plain(Form::Gzip, &layers, &world.directory("large"))
}

/// Every visible tree: its name, and each of its files with a sum of what is in it.
fn trees(store: &Path) -> BTreeMap<String, BTreeMap<PathBuf, u64>> {
    let Ok(layers) = fs::read_dir(store.join("layers")) else { return BTreeMap::new() };
    let tree = |root: PathBuf| {
        let mut files = BTreeMap::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).expect("a layer can be read").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    directories.push(path);
                } else {
                    let sum = crate::probe::sum(&fs::read(&path).expect("a file of a layer can be read"));
                    files.insert(path.strip_prefix(&root).expect("it is beneath").to_owned(), sum);
                }
            }
        }
        files
    };
    layers.flatten().map(|layer| (layer.file_name().to_string_lossy().into_owned(), tree(layer.path()))).collect()
}

/// Twenty first runs of one package at once: all succeed, one of them unpacks, and each blob is fetched once.
fn u65_twenty_first_runs(world: &World) {
    let liar = liar::serve(&Image::probe().build(), Lie::None);
    let reference = format!("{}:v1", liar.name);
    let unpacked: usize = thread::scope(|scope| {
        let run = || {
            let ended = world.smcp(["run", "--verbose", &reference, "exit", "4"]).run().expect(4);
            ended.stderr().lines().filter(|line| line.contains("unpacked layer=")).count()
        };
        let runs: Vec<_> = (0..20).map(|_| scope.spawn(run)).collect();
        runs.into_iter().map(|run| run.join().expect("no run fails")).sum()
    });
    assert_eq!(unpacked, 1);
    // Each run asks for the manifest at most, and one for configuration and layer.
    assert!(liar.connections.load(Ordering::SeqCst) <= 20 * 2 + 2);
    assert_eq!(fs::read_dir(world.store().join("layers")).expect("it is there").count(), 2, "the layer and its tree");
}

/// Who the users are is smcp's word: the image's files are hidden, not followed and not read.
fn u66_accounts_of_the_image_are_not_read(world: &World) {
    let secret = world.text("private/secret");
    let (huge, file) = (vec![b'x'; 80 << 20], Image::probe());
    let image = file.file("etc/group", 0o644, huge).link("etc/passwd", &secret);
    let reference = image.build().write(&world.directory("image"));
    let account = world.smcp(["run", &reference, "read", "/etc/passwd"]).run();
    account.check(!account.text().contains(crate::world::SECRET), "the host's file stays outside");
    let named = account.stderr().contains("/etc/passwd")
        || account.text().contains("/bin/sh")
        || account.text().contains("nobody");
    account.check(named, "it is smcp's own, or refused");
    let group = Image::probe().file("etc/group", 0o644, vec![b'x'; 80 << 20]).file("etc/passwd", 0o644, "x");
    let reference = group.build().write(&world.directory("group"));
    let group = world.smcp(["run", &reference, "read", "/etc/group"]).run().ok();
    group.check(group.text().len() < 10_000, "the image's is not shown");
}

/// `smcp unpack`, stopped in the middle of an archive by a pipe that holds back the rest: it has the confinement that the tests of
/// the runtime try, and ends with whoever started it.
fn u63_whoever_unpacks_can_do_nothing_else(world: &World) {
    let into = world.directory("into");
    let mut child = Command::new(place::smcp());
    child.arg("unpack").arg(std::process::id().to_string());
    child.arg(r#"{"media_type":"application/vnd.oci.image.layer.v1.tar","rules":"Strict","below":"Nothing"}"#);
    let directory = fs::File::open(&into).expect("it was just made");
    let mut child = child
        .env_clear()
        .stdin(std::process::Stdio::piped())
        .stdout(directory)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it was built");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let status = || fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let of = |name: &str| status().lines().find_map(|line| line.strip_prefix(name).map(|rest| rest.trim().to_owned()));
    // It waits for the first byte, confined.
    let confined = within(PATIENCE, || (of("Seccomp:").as_deref() == Some("2")).then_some(()));
    assert!(confined.is_some(), "{}", status());
    assert_eq!(of("NoNewPrivs:").as_deref(), Some("1"));
    assert_eq!(of("Threads:").as_deref(), Some("1"));
    stdin.write_all(&[0; 1024]).expect("it reads");
    drop(stdin);
    let ended = child.wait_with_output().expect("it is our child");
    let answer = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && answer.contains("\"entries\":0"), "{answer}");
    assert!(answer.contains("\"without_landlock\":null"), "{answer}");
    let elsewhere = world.smcp(["unpack", "1", "{}"]).run().expect(123);
    elsewhere.check(!elsewhere.stderr().contains("panicked"), "no panic was expected");
}

/// What stands in `docs/cases.md` about these rows.
pub(super) fn section() -> String {
    let mut text = String::from(
        "\n## Hostile archives\n\nThe same at every tier. *Plain* is what images get that were not made for smcp. The tests are functions named by the rows, in\n\
         [`bundle/src/unpack`](../bundle/src/unpack), [`distribution`](../distribution) and [`tests/cases/unpack.rs`](../tests/cases/unpack.rs).\n\n\
         | row | entry | what becomes of it |\n|---|---|---|\n",
    );
    for (number, entry, outcome) in ROWS {
        let _ = writeln!(text, "| {number} | {entry} | {outcome} |");
    }
    text
}

/// Each row has a test that is named by it, alone or with others: `fn u3_u4_…`.
#[test]
fn every_row_has_a_test_that_is_named_by_it() {
    let rows: Vec<String> = ROWS.iter().map(|(number, ..)| (*number).to_owned()).collect();
    assert_eq!(rows, (1..=66).map(|number| format!("U{number}")).collect::<Vec<_>>());
    let mut tested = BTreeSet::new();
    for source in SOURCES {
        let mut paths = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source)];
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                paths.extend(fs::read_dir(path).expect("a source directory").flatten().map(|entry| entry.path()));
            } else {
                tested.extend(rows_of(&fs::read_to_string(path).unwrap_or_default()));
            }
        }
    }
    assert_eq!(tested, rows.into_iter().collect());
}

/// The rows that the names of tests in a source file begin with.
fn rows_of(source: &str) -> impl Iterator<Item = String> {
    let lines = source.lines().map(str::trim_start);
    let names = lines.filter_map(|line| line.strip_prefix("fn ")?.split_once('(').map(|(name, _)| name));
    let rows = names.flat_map(|name| {
        name.split('_').map_while(|word| {
            let number = word.strip_prefix('u').filter(|digits| digits.parse::<u32>().is_ok())?;
            Some(format!("U{number}"))
        })
    });
    rows.collect::<Vec<_>>().into_iter()
}
