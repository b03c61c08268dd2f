//! `smcp logs`: what a server said on stderr, as it was passed on.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use distribution::system::identity_of;
use runtime::journal::Journal;
use ulid::Ulid;

use crate::exit::{self, Failure};
use crate::ring::{OLDER, directory, older};
use crate::settings::Settings;
use crate::show::printable;

/// How often words that are followed are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Shows it, of the newest run that said something where none is named.
///
/// # Errors
/// Where there is nothing of such a run, and where it cannot be read.
pub fn logs(run: Option<&str>, follow: bool, settings: &Settings) -> Result<(), Failure> {
    let run = match run {
        Some(text) => text.to_ascii_uppercase().parse::<Ulid>().map_err(|_| {
            Failure::new(exit::USAGE, format!("{text:?} is no run")).hint("`smcp ps` and `smcp audit show` name runs")
        })?,
        None => newest(&settings.state).ok_or_else(|| {
            Failure::new(exit::USAGE, "no server has said anything on stderr that is kept")
                .hint("the words of 64 runs are kept, for seven days")
        })?,
    };
    let under_way = || Journal::is_under_way(&settings.state, run);
    let mut words = Words::new(directory(&settings.state).join(run.to_string()));
    let fail = |why: io::Error| Failure::new(exit::USAGE, format!("what {run} said cannot be read: {why}"));
    loop {
        // Asked first: what it says last is read after that.
        let goes_on = follow && under_way();
        while let Some(bytes) = words.more().map_err(fail)? {
            if show(&bytes).is_err() {
                return Ok(());
            }
        }
        if !goes_on {
            break;
        }
        thread::sleep(LOOK);
    }
    if words.said || under_way() {
        return Ok(());
    }
    Err(Failure::new(exit::USAGE, format!("nothing is kept of what run {run} said on stderr"))
        .hint("it said nothing, or it was removed: the words of 64 runs are kept, for seven days"))
}

fn newest(state: &Path) -> Option<Ulid> {
    let entries = fs::read_dir(directory(state)).ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.trim_end_matches(OLDER).parse().ok()).max()
}

/// The words of a run, as they come.
struct Words {
    path: PathBuf,
    now: Option<File>,
    said: bool,
}

impl Words {
    fn new(path: PathBuf) -> Words {
        let now = File::open(older(&path)).ok();
        Words { path, now, said: false }
    }

    /// The next of them; none where there is no more for now.
    fn more(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(file) = &mut self.now {
                let mut block = vec![0; 64 << 10];
                let count = file.read(&mut block)?;
                if count > 0 {
                    self.said = true;
                    block.truncate(count);
                    return Ok(Some(block));
                }
            }
            // It may have become the older half, whose end was read by now.
            let Ok(file) = File::open(&self.path) else { return Ok(None) };
            match &mut self.now {
                Some(now) if identity_of(now) == identity_of(&file) => return Ok(None),
                Some(now) => {
                    let mut rest = Vec::new();
                    now.read_to_end(&mut rest)?;
                    self.now = Some(file);
                    if !rest.is_empty() {
                        return Ok(Some(rest));
                    }
                }
                None => self.now = Some(file),
            }
        }
    }
}

/// To a terminal what steers none; else as it is.
fn show(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !out.is_terminal() {
        out.write_all(bytes)?;
        return out.flush();
    }
    for line in String::from_utf8_lossy(bytes).split_inclusive('\n') {
        let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
        let tabs: Vec<_> = text.split('\t').map(|text| printable(text).into_owned()).collect();
        write!(out, "{}{end}", tabs.join("\t"))?;
    }
    out.flush()
}
