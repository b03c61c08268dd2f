//! Runs under way: a small file for each, locked while its smcp lives. A file that nobody holds is of a run whose smcp was
//! killed.
//!
//! The file says where in which log the run's entries begin, so that nobody has to search a log: the offset of each entry is
//! noted before the entry is written.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use distribution::system::{self, DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, OsStrExt as _};
use serde_json::Value;
use ulid::Ulid;

use crate::journal::newest_first;

/// The file of a run, locked by this process.
#[derive(Debug)]
pub struct Underway {
    file: File,
    path: PathBuf,
    run: Ulid,
}

/// Which entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first.
    Begin,
    /// Something that the run was denied.
    Denied,
    /// A call of a tool.
    Call,
    /// Lists of the server that are others than were accepted.
    Changed,
    /// The last.
    End,
}

impl Event {
    /// The word for it in the log.
    pub fn name(self) -> &'static str {
        match self {
            Event::Begin => "begin",
            Event::Denied => "denied",
            Event::Call => "call",
            Event::Changed => "changed",
            Event::End => "end",
        }
    }
}

impl Underway {
    /// Makes and locks the file of a new run.
    ///
    /// # Errors
    /// The system's.
    pub fn new(directory: &Path, run: Ulid) -> io::Result<Underway> {
        let path = directory.join(run.to_string());
        loop {
            let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let file = match made {
                Err(why) if why.kind() == io::ErrorKind::NotFound => {
                    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                    continue;
                }
                other => other?,
            };
            system::lock(&file)?;
            // Another start may have found it before it was locked, and removed it.
            if system::has_name(&file)? {
                return Ok(Underway { file, path, run });
            }
        }
    }

    /// The run.
    pub fn run(&self) -> Ulid {
        self.run
    }

    /// Notes that the begin or the end is about to be written at an offset of a log; where others are nobody looks for.
    ///
    /// # Errors
    /// The system's.
    pub fn note(&self, event: Event, log: &Path, offset: u64) -> io::Result<()> {
        match event {
            Event::Begin => {
                let mut text = format!("{offset:020} {NOT_YET:020} ").into_bytes();
                text.extend_from_slice(log.as_os_str().as_bytes());
                self.file.write_all_at(&text, 0)
            }
            Event::Denied | Event::Call | Event::Changed => Ok(()),
            Event::End => self.file.write_all_at(format!("{offset:020}").as_bytes(), 21),
        }
    }

    /// Removes the file: the run has its end.
    ///
    /// # Errors
    /// The system's.
    pub fn finish(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    /// The log that holds the begin of this run and not its end; none where it is otherwise.
    fn unended(&self) -> Option<PathBuf> {
        let Noted { begin, end, log } = Noted::read(&self.file)?;
        let holds = |event, offset| entry(&log, offset, self.run, event).is_some();
        (holds(Event::Begin, begin) && !(end != NOT_YET && holds(Event::End, end))).then_some(log)
    }
}

/// What stands in the file of a run.
struct Noted {
    begin: u64,
    end: u64,
    log: PathBuf,
}

impl Noted {
    fn read(mut file: &File) -> Option<Noted> {
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        let offset = |at: std::ops::Range<usize>| std::str::from_utf8(text.get(at)?).ok()?.parse::<u64>().ok();
        let log = PathBuf::from(OsStr::from_bytes(text.get(42..)?));
        Some(Noted { begin: offset(0..20)?, end: offset(21..41)?, log })
    }
}

/// The begin entries of the runs that somebody holds, in their order.
pub fn held(directory: &Path) -> Vec<Value> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<Value> = entries
        .filter_map(|entry| {
            let run = entry.file_name().to_str()?.parse::<Ulid>().ok()?;
            let file = is_held(&entry.path())?;
            let Noted { begin, log, .. } = Noted::read(&file)?;
            self::entry(&log, begin, run, Event::Begin)
        })
        .collect();
    found.sort_by_key(|entry| entry["run"].to_string());
    found
}

/// Whether somebody holds a run.
pub fn is_under_way(directory: &Path, run: Ulid) -> bool {
    is_held(&directory.join(run.to_string())).is_some()
}

/// The file of a run that somebody holds. Asked for in the way of readers, so that a start that looks for lost runs at the
/// same time leaves it to a later one at most.
fn is_held(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    matches!(system::try_lock_shared(&file), Err(TryLockError::WouldBlock)).then_some(file)
}

/// The end's offset of a run that has none.
const NOT_YET: u64 = u64::MAX;

/// Runs that begun, whose smcp is gone and whose end nobody wrote, each with its log. What else nobody holds is removed.
pub fn lost(directory: &Path) -> impl Iterator<Item = (Underway, PathBuf)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let run = entry.file_name().to_str()?.parse::<Ulid>().ok()?;
        let path = entry.path();
        let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
        match system::try_lock(&file) {
            Ok(()) => {}
            // It runs, or another start is at it.
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return None,
        }
        if !system::has_name(&file).ok()? {
            return None;
        }
        let underway = Underway { file, path, run };
        match underway.unended() {
            Some(log) => Some((underway, log)),
            None => {
                let _ = underway.finish();
                None
            }
        }
    })
}

/// The entry of a run that a log has at an offset, in whichever of its files: it may have been rotated since, and a crash may
/// have come before the entry was written.
fn entry(log: &Path, offset: u64, run: Ulid, event: Event) -> Option<Value> {
    newest_first(log).find_map(|file| entry_of(&file, offset, run, event))
}

fn entry_of(log: &Path, offset: u64, run: Ulid, event: Event) -> Option<Value> {
    /// No entry comes near.
    const MOST: u64 = 4 << 20;
    let mut file = File::open(log).ok()?;
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut line = Vec::new();
    BufReader::new(file.take(MOST)).read_until(b'\n', &mut line).ok()?;
    let entry = serde_json::from_slice::<Value>(&line).ok()?;
    (entry["run"] == run.to_string() && entry["event"] == event.name()).then_some(entry)
}
