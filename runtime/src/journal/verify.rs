//! Checks a chain from its first line to its head, and names the lines that are not as they were written.

use std::path::Path;
use std::sync::Arc;

use distribution::Digest;
use serde::Serialize;

use super::chain::{Entry, Head};
use super::files::Line;

/// What was found in a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// How many entries there are.
    pub entries: u64,
    /// In how many files.
    pub files: u64,
    /// The number of the first.
    pub first: Option<u64>,
    /// The number of the last.
    pub last: Option<u64>,
    /// What crashes left of lines. The chain holds over them.
    pub torn: Vec<Place>,
    /// What is wrong, the first hundred.
    pub findings: Vec<Finding>,
    /// How much more is.
    pub more: u64,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    #[serde(serialize_with = "path")]
    pub file: Arc<Path>,
    /// Its number there, from 1 on; 0 where there is no line at all.
    pub line: u64,
}

fn path<S: serde::Serializer>(path: &Arc<Path>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

/// Something that is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where; of lines that are missing, the line that stands in their place.
    #[serde(flatten)]
    pub place: Place,
    /// What.
    #[serde(flatten)]
    pub what: Wrong,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Wrong {
    /// The line is not as it was written.
    Changed,
    /// Before this line entries are missing.
    Removed {
        /// The number of the first.
        first: u64,
        /// The number of the last.
        last: u64,
    },
    /// The line is none of the chain, or stands in another place.
    Added,
    /// From this line on the head knows none: added, or written with another state directory.
    Unknown,
    /// After the last line entries are missing, as the head knows.
    CutOff {
        /// The number of the first.
        first: u64,
        /// The number of the last.
        last: u64,
    },
    /// There is no head of this log, so nobody knows how long it was.
    NoHead,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = |first: &u64, last: &u64| match first == last {
            true => format!("entry {first} is"),
            false => format!("entries {first} to {last} are"),
        };
        match self {
            Wrong::Changed => f.write_str("changed: it is not the line that was written"),
            Wrong::Removed { first, last } => write!(f, "removed: before it {} missing", range(first, last)),
            Wrong::Added => f.write_str("added: it does not belong there"),
            Wrong::Unknown => f.write_str("added: from it on the head of the chain knows no line"),
            Wrong::CutOff { first, last } => write!(f, "cut off: after it {} missing", range(first, last)),
            Wrong::NoHead => f.write_str("no head: whether lines are missing after it nobody knows"),
        }
    }
}

/// Where a chain may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// With entry 1.
    AtTheFirst,
    /// With whatever entry is the first: older files were moved elsewhere.
    Anywhere,
}

/// A check under way. Its memory does not grow with the log.
pub struct Check {
    verdict: Verdict,
    head: Option<Head>,
    begin: Begin,
    /// The last entry: more than one where several have its number.
    tip: Tip,
    /// The entry before one that skipped some numbers, and that one.
    jump: Option<(Tip, Place)>,
    /// Whom the last entry does not vouch for; it may be that entry itself that was changed.
    doubted: Option<Place>,
    /// Lines that are no entries, since the last entry.
    junk: Vec<(Place, Digest, bool)>,
    /// The first line after the one that the head names.
    beyond: Option<Place>,
    file: Option<Arc<Path>>,
    here: Option<Place>,
}

#[derive(Clone, Debug, Default)]
struct Tip {
    seq: u64,
    lines: Vec<(Place, Digest)>,
}

/// How many findings are kept.
const MOST: usize = 100;

impl Check {
    /// Begins one.
    pub fn new(head: Option<Head>, begin: Begin) -> Check {
        Check {
            verdict: Verdict::default(),
            head,
            begin,
            tip: Tip::default(),
            jump: None,
            doubted: None,
            junk: Vec::new(),
            beyond: None,
            file: None,
            here: None,
        }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: &Line) {
        let place = Place { file: line.file.clone(), line: line.number };
        if self.file.as_ref() != Some(&line.file) {
            self.file = Some(line.file.clone());
            self.verdict.files += 1;
        }
        self.here = Some(place.clone());
        let hash = Digest::of(&line.text);
        match Entry::read(&line.text) {
            Some(entry) => self.entry(place, hash, &entry),
            None if self.junk.len() < MOST => self.junk.push((place, hash, line.ended)),
            None => self.find(place, Wrong::Added),
        }
    }

    fn entry(&mut self, place: Place, hash: Digest, entry: &Entry) {
        self.verdict.entries += 1;
        let prev = self.mend(entry);
        self.settle_jump(entry.seq, prev.as_deref());
        let expected = self.tip.seq + 1;
        let begins = self.tip.lines.is_empty() && self.verdict.first.is_none();
        self.verdict.first.get_or_insert(entry.seq);
        if entry.seq < self.tip.seq {
            self.judge_junk(0);
            return self.find(place, Wrong::Added);
        }
        if entry.seq == self.tip.seq {
            self.judge_junk(0);
            return self.tip.lines.push((place, hash));
        }
        if begins && self.begin == Begin::Anywhere {
            self.judge_junk(0);
        } else if entry.seq > expected {
            let missing = self.judge_junk(entry.seq - expected);
            self.accuse_doubted();
            if missing > 0 {
                self.jump = Some((self.tip.clone(), place.clone()));
            }
        } else {
            self.judge_junk(0);
            self.vouch(prev.as_deref());
        }
        if let Some(head) = &self.head
            && entry.seq > head.seq
            && self.beyond.is_none()
        {
            self.beyond = Some(place.clone());
        }
        self.tip = Tip { seq: entry.seq, lines: vec![(place, hash)] };
    }

    /// The hash that an entry names of the last whole line: past what a crash left, where it says that there is such.
    fn mend(&mut self, entry: &Entry) -> Option<String> {
        match (&entry.torn, self.junk.as_slice()) {
            (Some(before), [(torn, hash, _)]) if entry.prev.as_deref() == Some(hash.hex()) => {
                self.verdict.torn.push(torn.clone());
                self.junk.clear();
                before.clone()
            }
            _ => entry.prev.clone(),
        }
    }

    /// Where the entry before skipped numbers: it was added if this one follows the one before that.
    fn settle_jump(&mut self, seq: u64, prev: Option<&str>) {
        let Some((before, place)) = self.jump.take() else { return };
        if seq == before.seq + 1 && before.vouched(prev).is_some() {
            self.find(place, Wrong::Added);
            self.tip = before;
        } else {
            self.find(place, Wrong::Removed { first: before.seq + 1, last: self.tip.seq - 1 });
        }
    }

    /// Judges lines that are no entries before one that skips `missing` numbers; what is missing still.
    fn judge_junk(&mut self, missing: u64) -> u64 {
        let mut missing = missing;
        for (place, ..) in std::mem::take(&mut self.junk) {
            match missing.checked_sub(1) {
                Some(less) => {
                    missing = less;
                    self.find(place, Wrong::Changed);
                }
                None => self.find(place, Wrong::Added),
            }
        }
        missing
    }

    /// The next entry says which line is the one before it.
    fn vouch(&mut self, prev: Option<&str>) {
        match self.tip.vouched(prev) {
            Some(right) => {
                self.accuse_doubted();
                self.accuse_all_but(right);
            }
            // Either that line or this one was changed: what follows on this one decides. One that nobody vouches for
            // accuses nobody.
            None => match self.tip.lines.as_slice() {
                [] => {}
                [(place, _)] => self.doubted = Some(place.clone()),
                [(first, _), ..] => {
                    let first = first.clone();
                    self.find(first, Wrong::Changed);
                    self.accuse_all_but(0);
                }
            },
        }
    }

    fn accuse_doubted(&mut self) {
        if let Some(place) = self.doubted.take() {
            self.find(place, Wrong::Changed);
        }
    }

    fn accuse_all_but(&mut self, right: usize) {
        let lines = std::mem::take(&mut self.tip.lines);
        for (at, (place, _)) in lines.into_iter().enumerate() {
            if at != right {
                self.find(place, Wrong::Added);
            }
        }
    }

    fn find(&mut self, place: Place, what: Wrong) {
        match self.verdict.findings.len() < MOST {
            true => self.verdict.findings.push(Finding { place, what }),
            false => self.verdict.more += 1,
        }
    }

    /// Ends it: the head knows the last line.
    pub fn end(mut self) -> Verdict {
        let head = self.head.clone();
        let hash_of_head = head.as_ref().and_then(|head| head.hash.clone());
        let hex = hash_of_head.as_ref().map(Digest::hex);
        if let Some(head) = &head {
            self.settle_jump(head.seq + 1, hex);
        } else {
            self.settle_jump(u64::MAX, None);
        }
        let last = self.tip.seq;
        self.verdict.last = self.verdict.first.map(|_| last);
        let Some(here) = self.here.clone() else {
            // Nothing is there at all.
            if let Some(head) = head.filter(|head| head.seq > 0) {
                let place = Place { file: Path::new("").into(), line: 0 };
                self.find(place, Wrong::CutOff { first: 1, last: head.seq });
            }
            return self.verdict;
        };
        let Some(head) = head else {
            self.judge_junk(0);
            self.accuse_doubted();
            self.find(here, Wrong::NoHead);
            return self.in_order();
        };
        let mut missing = head.seq.saturating_sub(last);
        // A crash leaves the beginning of the line that was about to be written, and the next run ends it.
        match self.junk.as_slice() {
            [(torn, _, false)] if missing == 0 => {
                self.verdict.torn.push(torn.clone());
                self.junk.clear();
            }
            _ => missing = self.judge_junk(missing),
        }
        let next = head.next.as_ref().filter(|next| next.seq == last && head.seq + 1 == last);
        if head.seq == last {
            self.vouch(hex);
            self.accuse_doubted();
        } else if let Some(next) = next {
            // Written, and its writer was killed before it had written the head.
            self.vouch(Some(next.hash.hex()));
            self.accuse_doubted();
        } else {
            self.accuse_doubted();
            if missing > 0 {
                self.find(here, Wrong::CutOff { first: head.seq - missing + 1, last: head.seq });
            } else if let Some(beyond) = self.beyond.take() {
                self.find(beyond, Wrong::Unknown);
            }
        }
        self.in_order()
    }

    /// Findings are made once they are certain, which is not the order of the lines.
    fn in_order(mut self) -> Verdict {
        let mut files: Vec<Arc<Path>> = Vec::new();
        for finding in &self.verdict.findings {
            if !files.contains(&finding.place.file) {
                files.push(finding.place.file.clone());
            }
        }
        let file = |finding: &Finding| files.iter().position(|file| *file == finding.place.file);
        self.verdict.findings.sort_by_key(|finding| (file(finding), finding.place.line));
        self.verdict
    }
}

impl Tip {
    /// Which of its lines has this hash; the one before the first entry has none.
    fn vouched(&self, hash: Option<&str>) -> Option<usize> {
        match hash {
            None => self.lines.is_empty().then_some(0),
            Some(hash) => self.lines.iter().position(|(_, line)| line.hex() == hash),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain::Link;
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// A chain of so many entries, and its head.
    fn chain(count: u64) -> (Vec<String>, Head) {
        let (mut lines, mut prev) = (Vec::new(), None);
        for seq in 1..=count {
            let line = json!({"seq": seq, "prev": prev.as_ref().map(Digest::hex), "text": format!("entry {seq}")});
            let line = line.to_string();
            prev = Some(Digest::of(&line));
            lines.push(line);
        }
        (lines, Head { seq: count, hash: prev, next: None })
    }

    fn verify(lines: &[String], head: Option<&Head>) -> Verdict {
        let mut check = Check::new(head.cloned(), Begin::AtTheFirst);
        for (at, text) in lines.iter().enumerate() {
            let (text, ended) = text.strip_suffix('…').map_or((text.as_str(), true), |text| (text, false));
            let line = Line { file: Path::new("log").into(), number: at as u64 + 1, text: text.into(), ended };
            check.line(&line);
        }
        check.end()
    }

    fn found(lines: &[String], head: Option<&Head>) -> Vec<String> {
        let verdict = verify(lines, head);
        let findings = verdict.findings.iter().map(|Finding { place, what }| {
            let word = serde_json::to_value(what).unwrap();
            let range = ["first", "last"].map(|key| word.get(key).map_or(String::new(), |value| format!(" {value}")));
            format!("{} {}{}", place.line, word["what"].as_str().unwrap(), range.concat())
        });
        findings.chain(verdict.torn.iter().map(|place| format!("{} torn", place.line))).collect()
    }

    /// T9: each way to tamper with eight lines, and what is said of it.
    #[test]
    fn t9_every_change_is_named_by_its_line() {
        type Change = fn(&mut Vec<String>);
        let text = |line: &mut String| *line = line.replace("entry", "Entry");
        let cases: [(&str, Change, &[&str]); 22] = [
            ("nothing", |_| {}, &[]),
            ("a text in the middle", |l| l[3] = l[3].replace("entry", "Entry"), &["4 changed"]),
            ("the first", |l| l[0] = l[0].replace("entry", "Entry"), &["1 changed"]),
            ("the last", |l| l[7] = l[7].replace("entry", "Entry"), &["8 changed"]),
            ("a hash of the line before", |l| l[3] = l[3].replacen("prev\":\"", "prev\":\"0", 1), &["4 changed"]),
            ("no entry any more", |l| l[3] = "{".into(), &["4 changed"]),
            ("the last is no entry", |l| l[7] = "x".into(), &["8 changed"]),
            ("emptied", |l| l[3].clear(), &["4 changed"]),
            ("two apart", |l| [1, 5].into_iter().for_each(|at| l[at].push(' ')), &["2 changed", "6 changed"]),
            ("removed", |l| drop(l.remove(3)), &["4 removed 4 4"]),
            ("some removed", |l| drop(l.drain(2..6)), &["3 removed 3 6"]),
            ("the first removed", |l| drop(l.remove(0)), &["1 removed 1 1"]),
            ("a copy added", |l| l.insert(5, l[2].clone()), &["6 added"]),
            ("a copy right after", |l| l.insert(3, l[2].clone()), &["4 added"]),
            ("garbage added", |l| l.insert(5, "garbage".into()), &["6 added"]),
            ("garbage at the end", |l| l.push("garbage".into()), &["9 added"]),
            ("a later number added", |l| l.insert(2, json!({"seq": 99, "prev": null}).to_string()), &["3 added"]),
            (
                "a forged one in the place of the next",
                |l| {
                    let prev = Digest::of(&l[2]);
                    l.insert(3, json!({"seq": 4, "prev": prev.hex(), "x": 1}).to_string());
                },
                &["4 added"],
            ),
            (
                "a forged one at the end",
                |l| {
                    let prev = Digest::of(&l[7]);
                    l.push(json!({"seq": 9, "prev": prev.hex()}).to_string());
                },
                &["9 unknown"],
            ),
            ("the last ones cut off", |l| l.truncate(5), &["5 cut-off 6 8"]),
            ("cut in the last line", |l| l[7] = format!("{}…", &l[7][..20]), &["8 changed"]),
            ("exchanged", |l| l.swap(3, 4), &["4 added", "6 removed 5 5"]),
        ];
        let (lines, head) = chain(8);
        for (name, change, expected) in cases {
            let mut changed = lines.clone();
            change(&mut changed);
            assert_eq!(found(&changed, Some(&head)), expected, "{name}");
        }
        // Of any two lines at least one is named, and nothing else.
        for one in 0..8 {
            for other in 0..8 {
                let mut changed = lines.clone();
                [one, other].into_iter().for_each(|at| text(&mut changed[at]));
                let named = verify(&changed, Some(&head)).findings;
                let right = |finding: &Finding| [one, other].contains(&(finding.place.line as usize - 1));
                let all = one == other || changed[one] == lines[one];
                assert!(!named.is_empty() || all, "{one} {other}");
                assert!(named.iter().all(right), "{one} {other}: {named:?}");
            }
        }
    }

    #[test]
    fn a_log_that_is_gone_or_has_no_head() {
        let (lines, head) = chain(3);
        assert_eq!(found(&[], Some(&head)), ["0 cut-off 1 3"]);
        assert_eq!(found(&[], None), [""; 0]);
        assert_eq!(found(&[], Some(&Head::default())), [""; 0]);
        assert_eq!(found(&lines, None), ["3 no-head"]);
    }

    #[test]
    fn t9_what_a_crash_leaves_is_told_and_no_finding() {
        let (mut lines, head) = chain(3);
        let next = json!({"seq": 4, "prev": head.hash.as_ref().map(Digest::hex)}).to_string();
        let about = Head { next: Some(Link { seq: 4, hash: Digest::of(&next) }), ..head.clone() };
        assert_eq!(found(&lines, Some(&about)), [""; 0], "before the line");
        lines.push(format!("{}…", &next[..9]));
        assert_eq!(found(&lines, Some(&about)), ["4 torn"], "in the line");
        lines[3] = next.clone();
        assert_eq!(found(&lines, Some(&about)), [""; 0], "after the line");
        lines[3] = next.replace("null", "1").replace('4', "4 ");
        assert_eq!(found(&lines, Some(&about)), ["4 changed"], "another line than was to be written");
        // The writer that came next told of it.
        let torn = &next[..9];
        lines[3] = torn.into();
        let mended = |before: Value| json!({"seq": 4, "prev": Digest::of(torn).hex(), "torn": before}).to_string();
        let right = mended(json!(head.hash.as_ref().map(Digest::hex)));
        lines.push(right.clone());
        let after = Head { seq: 4, hash: Some(Digest::of(&right)), next: None };
        assert_eq!(found(&lines, Some(&after)), ["4 torn"]);
        lines[2].push(' ');
        assert_eq!(found(&lines, Some(&after)), ["3 changed", "4 torn"]);
        lines[2].pop();
        lines[3].push('x');
        assert_eq!(found(&lines, Some(&after)), ["3 changed", "4 added"]);
    }

    proptest! {
        /// Whatever is done to one place of a log, something is found.
        #[test]
        fn t9_no_change_passes(length in 1..12_usize, at in 0..10_000_usize, to in 0..10_000_usize, how in 0..6_u8, byte: u8) {
            let (lines, head) = chain(length as u64);
            let mut changed = lines.clone();
            let (at, to) = (at % length, to % length);
            match how {
                0 => {
                    let mut text = changed[at].clone().into_bytes();
                    let place = to % text.len();
                    text[place] = byte;
                    changed[at] = String::from_utf8_lossy(&text).into_owned();
                }
                1 => drop(changed.remove(at)),
                2 => changed.insert(to, lines[at].clone()),
                3 => changed.swap(at, to),
                4 => changed.truncate(at),
                _ => changed.insert(at, lines[to][..lines[to].len() / 2].to_owned()),
            }
            let verdict = verify(&changed, Some(&head));
            prop_assert_eq!(verdict.findings.is_empty(), changed == lines, "{:?}", changed);
        }
    }

    #[test]
    fn older_files_may_be_elsewhere() {
        let (lines, head) = chain(5);
        let mut check = Check::new(Some(head), Begin::Anywhere);
        for (at, text) in lines.iter().enumerate().skip(2) {
            let line =
                Line { file: Path::new("log").into(), number: at as u64 - 1, text: text.as_str().into(), ended: true };
            check.line(&line);
        }
        let verdict = check.end();
        assert_eq!((verdict.first, verdict.last, verdict.entries), (Some(3), Some(5), 3));
        assert_eq!(verdict.findings, []);
    }
}
