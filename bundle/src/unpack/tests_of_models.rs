//! Archives that nobody thought of: compared with a model of a file system, and with GNU tar.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::archive::{Head, dir, file, hard_link, head, symlink, tar};
use super::notes::Notes;
use super::tests::{Place, tree_of};
use super::*;
use distribution::media_type;
use proptest::prelude::*;

/// An entry of few names, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    File(String, u8),
    Dir(String, u32),
    Symlink(String, String),
    HardLink(String, String),
    Fifo(String),
}

use Step::{Dir, Fifo, File, HardLink, Symlink};

impl Step {
    fn head(&self) -> Head {
        match self {
            File(name, byte) => file(name, [*byte; 3]),
            Dir(name, mode) => dir(name).mode(*mode),
            Symlink(name, target) => symlink(name, target),
            HardLink(name, target) => hard_link(name, target),
            Fifo(name) => head(b'6', name),
        }
    }
}

fn archive(steps: &[Step]) -> Vec<u8> {
    tar(&steps.iter().map(Step::head).collect::<Vec<_>>())
}

fn name() -> BoxedStrategy<String> {
    let part = prop_oneof![8 => "[abc]", 1 => Just(".".to_owned()), 1 => Just("..".to_owned())];
    let name = prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/")).boxed();
    let rooted = name.clone().prop_map(|name| format!("/{name}"));
    let dotted = name.clone().prop_map(|name| format!("./{name}"));
    prop_oneof![6 => name, 1 => rooted, 1 => dotted].boxed()
}

/// Names without `..`, of which more is accepted.
fn tame_name() -> BoxedStrategy<String> {
    prop::collection::vec("[abc]", 1..4).prop_map(|parts| parts.join("/")).boxed()
}

fn step(name: BoxedStrategy<String>) -> impl Strategy<Value = Step> {
    let target = prop_oneof![name.clone(), Just("/".to_owned()), Just("../OUT".to_owned())];
    prop_oneof![
        4 => (name.clone(), b'0'..=b'9').prop_map(|(name, byte)| File(name, byte)),
        4 => (name.clone(), prop_oneof![Just(0o755), Just(0o700), Just(0o777), Just(0)]).prop_map(|(name, mode)| Dir(name, mode)),
        2 => (name.clone(), target).prop_map(|(name, target)| Symlink(name, target)),
        2 => (name.clone(), name.clone()).prop_map(|(name, target)| HardLink(name, target)),
        1 => name.prop_map(Fifo),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![prop::collection::vec(step(name()), 1..7), prop::collection::vec(step(tame_name()), 1..12)]
}

/// A file system as a map; nothing here knows of descriptors, and nothing can lead out of it.
#[derive(Default)]
struct Model {
    nodes: BTreeMap<Vec<String>, Node>,
    departed: bool,
}

#[derive(Clone)]
enum Node {
    /// Made by an entry, or for one below it.
    Dir {
        mode: u32,
        stated: bool,
    },
    File(u8),
    Symlink(String),
}

impl Model {
    /// The tree that the rules give, or the refusal of an entry.
    fn of(steps: &[Step], rules: Rules) -> std::result::Result<Model, (usize, Code)> {
        let mut model = Model::default();
        for (at, step) in steps.iter().enumerate() {
            model.take(step, rules).map_err(|code| (at, code))?;
        }
        Ok(model)
    }

    fn take(&mut self, step: &Step, rules: Rules) -> std::result::Result<(), Code> {
        let name = match step {
            File(name, _) | Dir(name, _) | Symlink(name, _) | HardLink(name, _) | Fifo(name) => name,
        };
        let path = Model::plain(name).ok_or(Code::PathDotdot)?;
        let directory = matches!(step, Dir(..));
        let Some((_, parents)) = path.split_last() else {
            return if directory { Ok(()) } else { Err(Code::Root) };
        };
        if let Fifo(_) = step {
            self.departed = true;
            return if rules == Rules::Lenient { Ok(()) } else { Err(Code::Fifo) };
        }
        let node = match step {
            HardLink(_, target) => self.target(&path, target)?,
            Dir(_, mode) => Node::Dir { mode: *mode, stated: true },
            File(_, byte) => Node::File(*byte),
            Symlink(_, target) => Node::Symlink(target.clone()),
            Fifo(_) => unreachable!("taken above"),
        };
        self.parents(parents)?;
        match (self.nodes.get(&path), directory) {
            (None, _) | (Some(Node::Dir { stated: false, .. }), true) => {}
            (Some(Node::Dir { stated: true, .. }), true) => self.twice(rules, Code::Dup)?,
            (Some(Node::Symlink(..)), true) => self.twice(rules, Code::TypeConflict)?,
            (Some(Node::File(..)), true) | (Some(Node::Dir { .. }), false) => return Err(Code::TypeConflict),
            (Some(_), false) => self.twice(rules, Code::Dup)?,
        }
        self.nodes.insert(path, node);
        Ok(())
    }

    fn twice(&mut self, rules: Rules, code: Code) -> std::result::Result<(), Code> {
        self.departed = true;
        if rules == Rules::Lenient { Ok(()) } else { Err(code) }
    }

    /// What a hard link gives a second name to.
    fn target(&self, path: &[String], target: &str) -> std::result::Result<Node, Code> {
        let target = Model::plain(target).filter(|target| !target.is_empty() && target != path);
        match self.nodes.get(&target.ok_or(Code::LinkTarget)?) {
            None | Some(Node::Dir { .. }) => Err(Code::LinkTarget),
            Some(node) => Ok(node.clone()),
        }
    }

    fn parents(&mut self, parents: &[String]) -> std::result::Result<(), Code> {
        for depth in 1..=parents.len() {
            match self.nodes.entry(parents[..depth].to_vec()).or_insert(Node::Dir { mode: 0o755, stated: false }) {
                Node::Dir { .. } => {}
                Node::Symlink(..) => return Err(Code::SymlinkParent),
                Node::File(..) => return Err(Code::TypeConflict),
            }
        }
        Ok(())
    }

    fn plain(name: &str) -> Option<Vec<String>> {
        let parts: Vec<_> = name.split('/').filter(|part| !matches!(*part, "" | ".")).map(String::from).collect();
        (!parts.iter().any(|part| part == "..")).then_some(parts)
    }

    fn tree(&self) -> BTreeMap<PathBuf, String> {
        let text = |node: &Node| match node {
            // Its owner can enter and list it, and so can all others.
            Node::Dir { mode, .. } => format!("dir {:o}", mode | 0o755),
            Node::File(byte) => format!("file 644 {0}{0}{0}", *byte as char),
            Node::Symlink(target) => format!("link {target}"),
        };
        self.nodes.iter().map(|(path, node)| (path.iter().collect(), text(node))).collect()
    }
}

/// One archive by both rules: the same refusal or the same tree as the model's.
fn is_like_its_model(steps: &[Step]) {
    for rules in [Rules::Strict, Rules::Lenient] {
        let place = Place::new();
        let found = place.unpack_by(&archive(steps), media_type::LAYER_TAR, rules, Below::Nothing);
        match (found, Model::of(steps, rules)) {
            (Ok(_), Ok(model)) => {
                let mut tree = place.tree();
                let noted = tree.remove(Path::new(".wh..smcp")).is_some();
                assert_eq!(tree, model.tree(), "{rules:?} {steps:?}");
                assert_eq!(noted, model.departed, "{rules:?} {steps:?}");
                assert_eq!(Notes::read(place.open()).unwrap().departure.is_some(), model.departed);
            }
            (Err(Stop::Refused(refusal)), Err((at, code))) => {
                let name = steps[at].head().name().to_vec();
                assert_eq!((refusal.code, refusal.entry), (code, Some(name)), "{rules:?} {steps:?}");
            }
            (found, model) => panic!("{rules:?} {steps:?}: {found:?}, and the model: {:?}", model.map(|m| m.tree())),
        }
    }
}

/// What GNU tar makes of an archive; none where it refuses it.
fn by_gnu_tar(archive: &[u8]) -> Option<BTreeMap<PathBuf, String>> {
    let place = Place::new();
    let mut tar = Command::new("tar")
        // Else it makes links that lead out only at the end, and sometimes over what came after them.
        .args(["--extract", "--absolute-names", "--no-same-owner", "--no-same-permissions"])
        .arg("--directory")
        .arg(place.inside())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .spawn()
        .expect("tar is essential on Debian");
    let written = std::io::Write::write_all(&mut tar.stdin.take().unwrap(), archive);
    let ended = tar.wait().unwrap();
    (written.is_ok() && ended.success()).then(|| tree_of(&place.inside()))
}

/// Kinds, contents and targets; modes are ours by rule.
fn without_modes(tree: BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    let strip = |text: String| match text.split_once(' ') {
        Some(("dir", _)) => "dir".to_owned(),
        Some(("file", rest)) => format!("file {}", rest.split_once(' ').map_or("", |(_, content)| content)),
        _ => text,
    };
    tree.into_iter()
        .filter(|(path, _)| path != Path::new(".wh..smcp"))
        .map(|(path, text)| (path, strip(text)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_archive_is_refused_or_unpacked_as_a_model_says(steps in steps()) {
        is_like_its_model(&steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever both take gives the same tree.
    #[test]
    fn what_gnu_tar_takes_too_is_the_same_tree(steps in prop::collection::vec(step(tame_name()), 1..8)) {
        // GNU tar makes the pipes that are left out here, follows a link to the root of this machine, and makes directories that an
        // ordinary user cannot list.
        let steps: Vec<_> = steps
            .into_iter()
            .filter(|step| !matches!(step, Fifo(_)))
            .map(|step| match step {
                Symlink(name, target) if target == "/" => Symlink(name, "nowhere".into()),
                Dir(name, _) => Dir(name, 0o755),
                step => step,
            })
            .collect();
        let bytes = archive(&steps);
        for rules in [Rules::Strict, Rules::Lenient] {
            let place = Place::new();
            if place.unpack_by(&bytes, media_type::LAYER_TAR, rules, Below::Nothing).is_ok()
                && let Some(theirs) = by_gnu_tar(&bytes)
            {
                prop_assert_eq!(without_modes(place.tree()), without_modes(theirs), "{:?} {:?}", rules, steps);
            }
        }
    }

    /// What GNU tar writes in its three formats is read as it was.
    #[test]
    fn what_gnu_tar_writes_is_read(steps in prop::collection::vec(step(tame_name()), 1..12), long in 1usize..300) {
        let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Fifo(_))).collect();
        let source = Place::new();
        let made = source.unpack_by(&archive(&steps), media_type::LAYER_TAR, Rules::Lenient, Below::Nothing);
        if made.is_err() {
            return Ok(());
        }
        let _ = fs::remove_file(source.inside().join(".wh..smcp"));
        let deep = source.inside().join("long").join("d".repeat(long.min(255))).join("e".repeat(long.min(255)));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), "long").unwrap();
        std::os::unix::fs::symlink("t".repeat(long), source.inside().join("long/link")).unwrap();
        for format in ["ustar", "gnu", "pax"] {
            let written = Command::new("tar")
                .args(["--create", "--format", format, "--directory"])
                .arg(source.inside())
                .arg(".")
                .stderr(Stdio::null())
                .output()
                .unwrap();
            // ustar has no place for the longest names.
            if written.status.success() {
                let place = Place::new();
                place.unpack(&written.stdout, media_type::LAYER_TAR).unwrap_or_else(|stop| panic!("{format}: {stop:?}"));
                prop_assert_eq!(without_modes(place.tree()), without_modes(source.tree()), "{}", format);
            } else {
                prop_assert_eq!(format, "ustar");
            }
        }
    }
}
