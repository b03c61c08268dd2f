//! The last words of each run: a file a run in the state directory, which takes the place of its older half when it is full.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use distribution::system::{DirBuilderExt as _, OpenOptionsExt as _};
use ulid::Ulid;

/// What is kept of a run at most: two files of this size, bytes.
const HALF: u64 = 512 << 10;
/// Of how many runs.
const RUNS: usize = 64;
/// How long after the last word.
const AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// What the older half of a run's words has behind its name.
pub const OLDER: &str = ".1";

/// The words of one run.
#[derive(Debug)]
pub struct Ring {
    directory: PathBuf,
    run: Ulid,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing was said.
    Silent,
    Open {
        file: File,
        length: u64,
    },
    /// It cannot be written, which was told.
    Failed,
}

impl Ring {
    /// That of a run, of which nothing is there before something is said.
    pub fn new(state: &Path, run: Ulid) -> Ring {
        Ring { directory: directory(state), run, state: State::Silent }
    }

    /// Keeps bytes. Nothing waits for the disk; what cannot be written is told once.
    pub fn append(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || matches!(self.state, State::Failed) {
            return;
        }
        if let Err(why) = self.try_append(bytes) {
            self.state = State::Failed;
            tracing::warn!("what the server says on stderr is not kept in {}: {why}", self.directory.display());
        }
    }

    fn try_append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let path = self.directory.join(self.run.to_string());
        if let State::Silent = self.state {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            sweep(&self.directory);
            self.state = State::Open { file: make(&path)?, length: 0 };
        }
        let State::Open { file, length } = &mut self.state else { return Ok(()) };
        if *length >= HALF {
            fs::rename(&path, older(&path))?;
            (*file, *length) = (make(&path)?, 0);
        }
        file.write_all(bytes)?;
        *length += bytes.len() as u64;
        Ok(())
    }
}

/// Where the words of all runs are.
pub fn directory(state: &Path) -> PathBuf {
    state.join("logs")
}

/// The file of the older half.
pub fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OLDER);
    name.into()
}

fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)
}

/// Removes what is old, and the oldest of what is too much, so that one more has its place.
fn sweep(directory: &Path) {
    let now = SystemTime::now();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut kept: Vec<(SystemTime, PathBuf)> = entries
        .filter(|entry| !entry.file_name().to_string_lossy().ends_with(OLDER))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    kept.sort();
    let too_many = kept.len().saturating_sub(RUNS - 1);
    for (number, (time, path)) in kept.iter().enumerate() {
        if number < too_many || now.duration_since(*time).is_ok_and(|age| age > AGE) {
            // What another start removes at the same time is gone as well.
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(older(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_last_words_stay_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let run = Ulid::generate();
        let mut ring = Ring::new(dir.path(), run);
        let path = directory(dir.path()).join(run.to_string());
        assert!(!path.exists(), "nothing was said");
        let line = [b'x'; 1000];
        for number in 0..3000 {
            ring.append(format!("{number}\n").as_bytes());
            ring.append(&line);
        }
        let text = [older(&path), path.clone()].map(|path| fs::read_to_string(path).unwrap()).concat();
        assert!((HALF..2 * HALF + 2000).contains(&(text.len() as u64)), "{}", text.len());
        assert!(text.ends_with(&format!("2999\n{}", "x".repeat(1000))));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(directory(dir.path())).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn old_runs_and_too_many_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let logs = directory(dir.path());
        let old = Ulid::generate();
        Ring::new(dir.path(), old).append(b"old");
        fs::write(older(&logs.join(old.to_string())), "older").unwrap();
        let file = File::options().append(true).open(logs.join(old.to_string())).unwrap();
        file.set_modified(SystemTime::now() - AGE - Duration::from_secs(1)).unwrap();
        for _ in 0..RUNS + 10 {
            Ring::new(dir.path(), Ulid::generate()).append(b"new");
        }
        assert!(!logs.join(old.to_string()).exists() && !older(&logs.join(old.to_string())).exists());
        assert_eq!(fs::read_dir(&logs).unwrap().count(), RUNS);
    }

    #[test]
    fn words_that_cannot_be_kept_stop_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(directory(dir.path()), "a file").unwrap();
        let mut ring = Ring::new(dir.path(), Ulid::generate());
        ring.append(b"x");
        ring.append(b"y");
        assert!(matches!(ring.state, State::Failed));
    }
}
