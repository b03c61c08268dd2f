//! The files of a log: the one that is written, and those that it was rotated to, `LOG.N` with the number of their last entry.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use distribution::system::{self, FileExt as _, OpenOptionsExt as _};

/// What a log was rotated to, oldest first.
pub fn rotated(log: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Vec::new();
    };
    let number = |entry: &fs::DirEntry| {
        let number = entry.file_name().to_str()?.strip_prefix(name)?.strip_prefix('.')?.parse::<u64>().ok()?;
        Some((number, entry.path()))
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries.filter_map(|entry| number(&entry)).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// All files of a log, the newest first.
pub fn newest_first(log: &Path) -> impl Iterator<Item = PathBuf> {
    std::iter::once(log.to_owned()).chain(rotated(log).into_iter().rev())
}

/// Locks a log that is open to append to it, or the one that has taken its place by then. With its size, bytes.
pub fn lock(mut file: File, log: &Path) -> io::Result<(File, u64)> {
    loop {
        system::lock(&file)?;
        // It may have been rotated before it was locked.
        if system::is_at(&file, log) {
            let size = file.metadata()?.len();
            return Ok((file, size));
        }
        file = open(log)?;
    }
}

/// Keeps writers away from a log, and gives its size, bytes; none where there is none.
pub fn hold(log: &Path) -> io::Result<Option<(File, u64)>> {
    loop {
        let file = match to_read(log) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(why),
        };
        system::lock_shared(&file)?;
        if system::is_at(&file, log) {
            let size = file.metadata()?.len();
            return Ok(Some((file, size)));
        }
    }
}

/// Opens a file of a log to read it. A link is none, since writers follow none, and a pipe would never answer.
fn to_read(path: &Path) -> io::Result<File> {
    match path.symlink_metadata()?.is_file() {
        true => File::open(path),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no ordinary file")),
    }
}

/// Opens a log to append to it; makes it, private to the user, where it is missing.
pub fn open(log: &Path) -> io::Result<File> {
    system::without_link(OpenOptions::new().read(true).append(true).create(true).mode(0o600)).open(log)
}

/// The last entry of a file, and what a crash left of one after it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last line that is whole, without its newline.
    pub whole: Option<Vec<u8>>,
    /// The line after it, where that has no newline and is no entry.
    pub torn: Option<Vec<u8>>,
    /// The file does not end with a newline.
    pub unended: bool,
}

impl Tail {
    /// Whether there is something, and it does not end as a log does. A head that is known tells more: then lines were added.
    pub fn is_foreign(&self) -> bool {
        let is_entry = |line: &Vec<u8>| super::chain::Entry::read(line).is_some();
        match (&self.whole, &self.torn) {
            (Some(whole), _) => !is_entry(whole),
            (None, torn) => torn.is_some(),
        }
    }

    /// Reads it from the end, so that the log's `size` does not matter.
    pub fn of(log: &File, size: u64) -> io::Result<Tail> {
        let Some((start, last)) = line_before(log, size)? else { return Ok(Tail::default()) };
        match last.strip_suffix(b"\n") {
            Some(whole) => Ok(Tail { whole: Some(whole.to_vec()), torn: None, unended: false }),
            // All of it but the newline.
            None if super::chain::Entry::read(&last).is_some() => {
                Ok(Tail { whole: Some(last), torn: None, unended: true })
            }
            None => {
                let whole = line_before(log, start)?.map(|(_, line)| line);
                let whole = whole.map(|line| line.strip_suffix(b"\n").unwrap_or(&line).to_vec());
                Ok(Tail { whole, torn: Some(last), unended: true })
            }
        }
    }

    /// That of the newest file that the log was rotated to.
    pub fn of_rotated(log: &Path) -> io::Result<Tail> {
        match rotated(log).pop() {
            None => Ok(Tail::default()),
            Some(path) => {
                let file = File::open(path)?;
                let tail = Tail::of(&file, file.metadata()?.len())?;
                // Its last line ends where it ends.
                Ok(Tail { unended: false, ..tail })
            }
        }
    }
}

/// The line that ends at an offset, with its newline where it has one, and the offset at which it starts.
fn line_before(log: &File, end: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
    const STEP: u64 = 8192;
    let mut start = end;
    let mut tail: Vec<u8> = Vec::new();
    while start > 0 {
        let step = start.min(STEP);
        start -= step;
        let mut block = vec![0; step as usize];
        log.read_exact_at(&mut block, start)?;
        block.extend_from_slice(&tail);
        tail = block;
        let body = tail.strip_suffix(b"\n").unwrap_or(&tail);
        if let Some(newline) = body.iter().rposition(|byte| *byte == b'\n') {
            return Ok(Some((start + newline as u64 + 1, tail.split_off(newline + 1))));
        }
    }
    Ok((!tail.is_empty()).then_some((0, tail)))
}

/// A line as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The file, by the name that it had when it was opened.
    pub file: Arc<Path>,
    /// Its number there, from 1 on.
    pub number: u64,
    /// The line without its newline.
    pub text: Vec<u8>,
    /// It has a newline.
    pub ended: bool,
}

/// The lines of all files of a log, oldest first.
#[derive(Debug)]
pub struct Lines {
    log: PathBuf,
    now: Option<Open>,
    waiting: VecDeque<Open>,
}

#[derive(Debug)]
struct Open {
    path: Arc<Path>,
    reader: BufReader<File>,
    number: u64,
    begun: Vec<u8>,
    /// How much more is to be read, bytes.
    left: u64,
}

impl Open {
    fn new(path: &Path, file: File) -> Open {
        Open { path: path.into(), reader: BufReader::new(file), number: 0, begun: Vec::new(), left: u64::MAX }
    }
}

impl Lines {
    /// Opens them. A log that is not there has no lines.
    ///
    /// # Errors
    /// The system's.
    pub fn open(log: &Path) -> io::Result<Lines> {
        // The one that is written first: it may become one of the others meanwhile.
        let current = match to_read(log) {
            Ok(file) => Some(file),
            Err(why) if why.kind() == io::ErrorKind::NotFound => None,
            Err(why) => return Err(why),
        };
        let mut waiting = VecDeque::new();
        for path in rotated(log) {
            let file = to_read(&path)?;
            if current.as_ref().is_none_or(|current| !same(current, &file)) {
                waiting.push_back(Open::new(&path, file));
            }
        }
        waiting.extend(current.map(|file| Open::new(log, file)));
        Ok(Lines { log: log.to_owned(), now: None, waiting })
    }

    /// No more than so many bytes of the newest file.
    #[must_use]
    pub fn up_to(mut self, size: u64) -> Lines {
        if let Some(newest) = self.waiting.back_mut() {
            newest.left = size;
        }
        self
    }

    /// The next line; none where there is no more of it yet. What stands in the newest file without a newline is kept for
    /// [`Lines::rest`].
    ///
    /// # Errors
    /// The system's.
    pub fn line(&mut self) -> io::Result<Option<Line>> {
        loop {
            if self.now.is_none() {
                self.now = self.waiting.pop_front();
            }
            let Some(open) = &mut self.now else { return Ok(None) };
            let read = open.reader.by_ref().take(open.left).read_until(b'\n', &mut open.begun)?;
            open.left = open.left.saturating_sub(read as u64);
            if open.begun.last() == Some(&b'\n') {
                open.begun.pop();
                return Ok(Some(take(open, true)));
            }
            if self.waiting.is_empty() {
                return Ok(None);
            }
            let unended = (!open.begun.is_empty()).then(|| take(open, false));
            self.now = None;
            if unended.is_some() {
                return Ok(unended);
            }
        }
    }

    /// What the newest file ends with, where that has no newline.
    pub fn rest(&mut self) -> Option<Line> {
        let open = self.now.as_mut().filter(|open| !open.begun.is_empty())?;
        Some(take(open, false))
    }

    /// Whether there may be more after [`Lines::line`] gave none: the log was rotated. The lines go on in the file that
    /// followed.
    ///
    /// # Errors
    /// The system's.
    pub fn rotated(&mut self) -> io::Result<bool> {
        let current = match to_read(&self.log) {
            Ok(file) => file,
            // Just rotated.
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(why) => return Err(why),
        };
        let ours = self.now.as_ref().map(|open| open.reader.get_ref());
        if ours.is_some_and(|ours| same(ours, &current)) {
            return Ok(false);
        }
        let mut after = VecDeque::new();
        for path in rotated(&self.log) {
            let file = to_read(&path)?;
            if ours.is_some_and(|ours| same(ours, &file)) {
                after.clear();
            } else if !same(&current, &file) {
                after.push_back(Open::new(&path, file));
            }
        }
        after.push_back(Open::new(&self.log, current));
        self.waiting = after;
        Ok(true)
    }
}

fn take(open: &mut Open, ended: bool) -> Line {
    open.number += 1;
    Line { file: open.path.clone(), number: open.number, text: std::mem::take(&mut open.begun), ended }
}

fn same(one: &File, other: &File) -> bool {
    let place = |file: &File| system::identity_of(file);
    place(one).is_some() && place(one) == place(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn texts(lines: &mut Lines) -> Vec<String> {
        let mut found = Vec::new();
        while let Some(line) = lines.line().unwrap() {
            found.push(format!("{}{}", String::from_utf8(line.text).unwrap(), if line.ended { "" } else { "…" }));
        }
        found
    }

    #[test]
    fn lines_go_on_over_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        fs::write(dir.path().join("a.log.9"), "one\ntwo\n").unwrap();
        fs::write(dir.path().join("a.log.10"), "three\nto").unwrap();
        // Neither is a file of this log.
        fs::write(dir.path().join("a.log.x"), "x\n").unwrap();
        fs::write(dir.path().join("b.log.1"), "x\n").unwrap();
        fs::write(&log, "four\nfi").unwrap();
        let mut lines = Lines::open(&log).unwrap();
        assert_eq!(texts(&mut lines), ["one", "two", "three", "to…", "four"]);
        assert!(!lines.rotated().unwrap());
        open(&log).unwrap().write_all(b"ve\nsix\n").unwrap();
        fs::rename(&log, dir.path().join("a.log.15")).unwrap();
        assert!(!lines.rotated().unwrap(), "nothing follows yet");
        fs::write(dir.path().join("a.log.16"), "seven\n").unwrap();
        fs::write(&log, "eight\nni").unwrap();
        assert_eq!(texts(&mut lines), ["five", "six"]);
        assert!(lines.rotated().unwrap());
        assert_eq!(texts(&mut lines), ["seven", "eight"]);
        assert_eq!(lines.rest().map(|line| (line.text, line.number)), Some((b"ni".to_vec(), 2)));
    }

    #[test]
    fn a_tail_is_read_from_the_end() {
        let long = format!("{{\"seq\":1,\"x\":\"{}\"}}", "y".repeat(20_000));
        let cases: [(String, Option<&str>, Option<&str>, bool); 6] = [
            (String::new(), None, None, false),
            (format!("{{}}\n{long}\n"), Some(&long), None, false),
            (format!("{{}}\n{long}"), Some(&long), None, true),
            (format!("{long}\n{{\"se"), Some(&long), Some("{\"se"), true),
            ("{\"se".into(), None, Some("{\"se"), true),
            ("\n".into(), Some(""), None, false),
        ];
        for (text, whole, torn, unended) in cases {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let bytes = |text: Option<&str>| text.map(|text| text.as_bytes().to_vec());
            let expected = Tail { whole: bytes(whole), torn: bytes(torn), unended };
            assert_eq!(Tail::of(&file, text.len() as u64).unwrap(), expected);
        }
    }
}
