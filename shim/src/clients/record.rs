//! What smcp changed in clients' files, to be undone: a directory of the state for each change, with the files as they were. They may
//! hold secrets, as the files do, so their owner alone may read them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};

use distribution::Digest;
use distribution::system::{DirBuilderExt as _, sync_directory, sync_file};
use serde::{Deserialize, Serialize};
use ulid::Ulid;

use super::edit::Key;
use super::entries::entries;
use super::file::{ConfigFile, make, text_of};
use super::table::Client;
use crate::exit::{self, Failure};
use crate::settings::{Settings, write_in_one_step};
use crate::show;

/// One change of some files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The command.
    pub command: String,
    /// When, as RFC 3339.
    pub time: String,
    /// The files.
    pub files: Vec<Changed>,
}

/// One file of a change.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changed {
    /// Whose it is.
    pub client: String,
    /// The file that the client's path led to.
    pub path: PathBuf,
    /// Of its bytes before; none where it was not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// Of its bytes after.
    pub after: Digest,
    /// The name of the copy of what it was, in the record's directory.
    pub copy: String,
    /// The entries that were changed.
    pub entries: Vec<Key>,
    /// Of what each of them starts since, none where it is gone.
    pub starts: Vec<Option<Digest>>,
    /// The program that they start since.
    pub program: String,
}

/// A record on the disk.
#[derive(Debug)]
pub struct Kept {
    /// Its directory.
    pub directory: PathBuf,
    /// What it says.
    pub record: Record,
}

/// Nobody else changes clients' files by smcp meanwhile.
pub struct Turn(#[allow(dead_code, reason = "it is held")] File);

/// Takes the turn, and waits for it where another process has it.
///
/// # Errors
/// Where the state directory cannot be written.
pub fn turn(settings: &Settings) -> Result<Turn, Failure> {
    let place = place(settings);
    let take = || {
        DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
        let file = File::create(place.join("lock"))?;
        file.lock()?;
        Ok(Turn(file))
    };
    take().map_err(|why: io::Error| unwritable(&place, &why))
}

fn place(settings: &Settings) -> PathBuf {
    settings.state.join("clients")
}

fn unwritable(path: &Path, why: &io::Error) -> Failure {
    Failure::new(exit::CONFIGURATION, format!("{}: {why}", path.display()))
        .hint("what clients' files were is kept there; free the disk or make it writable, or name another place by XDG_STATE_HOME")
}

/// A file that is about to be changed.
pub struct Rewrite {
    /// Whose it is.
    pub client: &'static str,
    /// Where it is, or will be.
    pub path: PathBuf,
    /// As it was read; none where it is not there.
    pub file: Option<ConfigFile>,
    /// What it will hold.
    pub bytes: Vec<u8>,
    /// The entries that change.
    pub entries: Vec<Key>,
}

impl Rewrite {
    fn changed(&self, number: usize, program: &str) -> Changed {
        Changed {
            client: self.client.into(),
            path: self.path.clone(),
            before: self.file.as_ref().map(|file| Digest::of(&file.bytes)),
            after: Digest::of(&self.bytes),
            copy: number.to_string(),
            entries: self.entries.clone(),
            starts: self.entries.iter().map(|key| self.start(key)).collect(),
            program: program.to_owned(),
        }
    }

    /// What an entry will start.
    fn start(&self, key: &Key) -> Option<Digest> {
        let client = Client::named(self.client)?;
        let root = client.dialect.read(text_of(&self.bytes).ok()?.text).ok()??;
        let entries = entries(&root, &client.shape);
        let entry = entries.iter().find(|entry| key.is_of(entry))?;
        Some(entry.start(&client.shape).ok()?.digest())
    }

    fn write(&self) -> Result<(), String> {
        match &self.file {
            Some(file) => file.replace(&self.bytes),
            None => make(&self.path, &self.bytes).map_err(|why| format!("it cannot be made: {why}")),
        }
    }
}

/// Writes files, each in one step, after what they were is kept on the disk. Of each whether it was written; those that were not are as
/// they were.
///
/// # Errors
/// Where nothing can be kept: then nothing is changed.
pub fn carry_out(
    settings: &Settings,
    command: &str,
    program: &str,
    rewrites: &[Rewrite],
) -> Result<Vec<Result<(), String>>, Failure> {
    if rewrites.is_empty() {
        return Ok(Vec::new());
    }
    let directory = place(settings).join(Ulid::generate().to_string());
    let copy = || {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        for (number, rewrite) in rewrites.iter().enumerate() {
            if let Some(file) = &rewrite.file {
                make(&directory.join(number.to_string()), &file.bytes)?;
            }
        }
        Ok(())
    };
    copy().map_err(|why: io::Error| unwritable(&directory, &why))?;
    let files = rewrites.iter().enumerate().map(|(number, rewrite)| rewrite.changed(number, program)).collect();
    let record = Record { command: command.into(), time: jiff::Timestamp::now().to_string(), files };
    let mut kept = Kept { directory, record };
    kept.write()?;
    let done: Vec<Result<(), String>> = rewrites.iter().map(Rewrite::write).collect();
    if done.iter().any(Result::is_err) {
        // There is nothing to undo of them.
        let mut written = done.iter().map(Result::is_ok);
        kept.record.files.retain(|_| written.next().unwrap_or_default());
        // The others are changed by now, and what says too much is found out by an undo.
        if let Err(why) = kept.write() {
            show::warn(&why.message);
        }
    }
    Ok(done)
}

/// The newest change that was not undone.
///
/// # Errors
/// Where it cannot be read.
pub fn newest(settings: &Settings) -> Result<Option<Kept>, Failure> {
    let place = place(settings);
    let Ok(entries) = fs::read_dir(&place) else { return Ok(None) };
    let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // Names of the same length, which sort by their time.
    names.sort();
    let records = names.into_iter().rev().map(|name| place.join(name)).filter(|path| path.join(FILE).exists());
    let Some(directory) = records.into_iter().next() else { return Ok(None) };
    let path = directory.join(FILE);
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::new(exit::CONFIGURATION, format!("{}: {why}", path.display()))
            .hint(format!("{} has the files as they were", directory.display()))
    };
    let bytes = fs::read(&path).map_err(|why| wrong(&why))?;
    let record = serde_json::from_slice(&bytes).map_err(|why| wrong(&why))?;
    Ok(Some(Kept { directory, record }))
}

const FILE: &str = "record.json";

impl Kept {
    /// What a file was; none where it was not there.
    ///
    /// # Errors
    /// Where the copy is gone or was changed.
    pub fn bytes_of(&self, changed: &Changed) -> Result<Option<Vec<u8>>, String> {
        let Some(before) = &changed.before else { return Ok(None) };
        let path = self.directory.join(&changed.copy);
        let bytes = fs::read(&path).map_err(|why| format!("its copy {}: {why}", path.display()))?;
        match Digest::of(&bytes) == *before {
            true => Ok(Some(bytes)),
            false => Err(format!("its copy {} was changed", path.display())),
        }
    }

    /// Says which files are left; without any it is gone, with its copies.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self) -> Result<(), Failure> {
        let done = match self.record.files.is_empty() {
            true => fs::remove_dir_all(&self.directory),
            // On the disk before a client's file is: it is what leads back.
            false => write_in_one_step(&self.directory.join(FILE), &self.record, 0o600)
                .and_then(|()| sync_file(&self.directory.join(FILE)))
                .and_then(|()| sync_directory(&self.directory)),
        };
        done.map_err(|why| unwritable(&self.directory, &why))
    }
}
