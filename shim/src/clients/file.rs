//! A client's configuration file on the disk: read as a whole, and replaced in one step where nobody changed it meanwhile. Links are
//! followed: the file that they lead to is replaced, and stays what it was in mode and owner.

#[cfg_attr(windows, path = "file/windows.rs")]
#[cfg_attr(unix, path = "file/unix.rs")]
mod kept;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use distribution::system::{OpenOptionsExt as _, replace};

use kept::Kept;

/// The largest that is read, bytes: Claude Code keeps histories in its own.
const MOST: u64 = 64 << 20;
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A file as it was read.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// What the path leads to.
    pub target: PathBuf,
    /// All of it.
    pub bytes: Vec<u8>,
    kept: Kept,
}

/// A file's text, and whether a byte order mark stands before it.
#[derive(Clone, Copy, Debug)]
pub struct Text<'b> {
    /// Without the mark.
    pub text: &'b str,
    has_mark: bool,
}

impl ConfigFile {
    /// Reads a file; none where there is none.
    ///
    /// # Errors
    /// Why it cannot be read, for people.
    pub fn read(path: &Path) -> Result<Option<ConfigFile>, String> {
        match path.symlink_metadata() {
            Err(why) if matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(why) => return Err(why.to_string()),
            Ok(_) => {}
        }
        let target = fs::canonicalize(path).map_err(|why| format!("the link leads nowhere: {why}"))?;
        let about = fs::metadata(&target).map_err(|why| why.to_string())?;
        if !about.is_file() {
            return Err("it is no regular file".into());
        }
        if about.len() > MOST {
            return Err("it is larger than 64 MiB".into());
        }
        let bytes = fs::read(&target).map_err(|why| why.to_string())?;
        let kept = Kept::of(&target, &about).map_err(|why| why.to_string())?;
        Ok(Some(ConfigFile { target, bytes, kept }))
    }

    /// Its text.
    ///
    /// # Errors
    /// Where it is not UTF-8.
    pub fn text(&self) -> Result<Text<'_>, String> {
        text_of(&self.bytes)
    }

    /// Whether it may be replaced by another file of its name.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn can_be_replaced(&self) -> Result<(), String> {
        if !self.kept.can_be_written(&self.target) {
            return Err("it is read-only".into());
        }
        if self.kept.names > 1 {
            return Err("it has several names (hard links), which would no longer be one file".into());
        }
        let directory = self.target.parent().unwrap_or(&self.target);
        match kept::takes_files(directory) {
            true => Ok(()),
            false => Err(format!("{} cannot be written", directory.display())),
        }
    }

    /// Puts other bytes in its place, with its mode and its owner, in one step.
    ///
    /// # Errors
    /// Where somebody changed it since it was read, or it cannot be written. It is as it was then.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), String> {
        let directory = self.target.parent().unwrap_or(&self.target);
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        let scratch = directory.join(format!(".{name}.smcp-{}", std::process::id()));
        let written = self.written(&scratch, bytes).map_err(|why| format!("it cannot be written: {why}"));
        let unchanged = || match fs::read(&self.target) {
            Ok(now) if now == self.bytes => Ok(()),
            _ => Err("it was changed meanwhile".to_owned()),
        };
        let done = written
            .and_then(|()| unchanged())
            .and_then(|()| replace(&scratch, &self.target).map_err(|why| format!("it cannot be replaced: {why}")));
        if done.is_err() {
            let _ = fs::remove_file(&scratch);
        } else if let Ok(directory) = File::open(directory) {
            // The name is there already; whether it outlasts a power failure is the disk's affair.
            let _ = directory.sync_all();
        }
        done
    }

    fn written(&self, scratch: &Path, bytes: &[u8]) -> io::Result<()> {
        // A leftover of a process of the same id that was killed.
        let _ = fs::remove_file(scratch);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(scratch)?;
        self.kept.give_owner(&file)?;
        file.write_all(bytes)?;
        self.kept.give_mode(&file)?;
        file.sync_all()
    }
}

impl Text<'_> {
    /// Bytes of another text in its place.
    pub fn bytes_of(&self, text: &str) -> Vec<u8> {
        let mark = if self.has_mark { BYTE_ORDER_MARK } else { "" };
        [mark.as_bytes(), text.as_bytes()].concat()
    }
}

/// The text of some bytes.
///
/// # Errors
/// Where they are not UTF-8.
pub fn text_of(bytes: &[u8]) -> Result<Text<'_>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    Ok(match text.strip_prefix(BYTE_ORDER_MARK) {
        Some(text) => Text { text, has_mark: true },
        None => Text { text, has_mark: false },
    })
}

/// Makes a file that was not there, with its directories, readable by its owner alone.
///
/// # Errors
/// The system's.
pub fn make(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).create(directory)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
