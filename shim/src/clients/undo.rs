//! `smcp undo`: clients' files as they were before smcp's last change of them.

use std::fs;

use distribution::Digest;

use super::edit::{Change, Key, changed};
use super::entries::{Entry, entries};
use super::file::{ConfigFile, text_of};
use super::insert::removed;
use super::record::{Changed, Kept, newest, turn};
use super::table::Client;
use crate::cli;
use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::show::outln;

/// Takes the last change back that was not undone.
///
/// # Errors
/// Of code 1 where a file was changed by somebody since: it is left as it is, and so is the copy of what it was.
pub fn undo(typed: &cli::Undo, settings: &Settings) -> Result<(), Failure> {
    let _turn = turn(settings)?;
    let Some(mut kept) = newest(settings)? else {
        outln!("there is nothing to undo");
        return Ok(());
    };
    outln!("undoing smcp {} of {}", kept.record.command, kept.record.time);
    let files = std::mem::take(&mut kept.record.files);
    let mut left = Vec::new();
    for file in files {
        let done = if typed.entries { entries_of(&file, &kept) } else { whole(&file, &kept) };
        match done {
            Ok(what) => outln!("  {}: {what}", file.path.display()),
            Err(why) => {
                outln!("  {}: left as it is: {why}", file.path.display());
                left.push(file);
            }
        }
    }
    kept.record.files = left;
    kept.write()?;
    if kept.record.files.is_empty() {
        return Ok(());
    }
    let count = kept.record.files.len();
    let place = kept.directory.display();
    let hint = match typed.entries {
        false => format!(
            "smcp undo --entries puts back what smcp changed and keeps the rest; what the file was before is in {place}, and without that directory it is not undone any more"
        ),
        true => format!("what the file was before is in {place}; without that directory it is not undone any more"),
    };
    Err(Failure::new(exit::FINDINGS, format!("{count} of the files could not be put back")).hint(hint))
}

const CHANGED: &str = "it was changed since";

/// Puts back all bytes of a file.
fn whole(file: &Changed, kept: &Kept) -> Result<&'static str, String> {
    let before = kept.bytes_of(file)?;
    let now = ConfigFile::read(&file.path)?;
    match (now, before) {
        (None, None) => Ok("it was not there, and is not"),
        (None, Some(_)) => Err("it was removed since".into()),
        (Some(now), before) => match (Digest::of(&now.bytes), before) {
            (digest, Some(_)) if Some(&digest) == file.before.as_ref() => Ok("it is as it was"),
            (digest, _) if digest != file.after => Err(CHANGED.into()),
            (_, Some(before)) => {
                now.can_be_replaced()?;
                now.replace(&before).map(|()| "it is as it was")
            }
            (_, None) => {
                fs::remove_file(&file.path).map(|()| "it was not there, and is not").map_err(|why| why.to_string())
            }
        },
    }
}

/// Puts back what the client started for each entry that still is as smcp wrote it.
fn entries_of(file: &Changed, kept: &Kept) -> Result<&'static str, String> {
    if let Ok(done) = whole(file, kept) {
        return Ok(done);
    }
    let client = Client::named(&file.client).ok_or("its client is not known")?;
    let before = kept.bytes_of(file)?.ok_or("it was not there before: smcp client rm takes an entry out")?;
    let old = text_of(&before)?.text;
    let now = ConfigFile::read(&file.path)?.ok_or("it was removed since")?;
    now.can_be_replaced()?;
    let text = now.text()?;
    let mut after = text.text.to_owned();
    for (key, start) in file.entries.iter().zip(&file.starts) {
        after = put_back(client, old, &after, key, (&file.program, start.as_ref()))?;
    }
    now.replace(&text.bytes_of(&after)).map(|()| "what smcp changed in it is as it was")
}

/// A text with one entry as it was in the old one. It has to start what smcp wrote: this program, and the same words.
fn put_back(
    client: &Client,
    old: &str,
    now: &str,
    key: &Key,
    (program, words): (&str, Option<&Digest>),
) -> Result<String, String> {
    let read = |text: &str| client.dialect.read(text).map_err(|why| why.to_string())?.ok_or("it is empty".to_owned());
    let (was, is) = (read(old)?, read(now)?);
    let (was, is) = (entries(&was, &client.shape), entries(&is, &client.shape));
    let find = |entries: &[Entry<'_>]| entries.iter().position(|entry| key.is_of(entry));
    let is = &is[find(&is).ok_or_else(|| format!("{} is there no more", key.name))?];
    let is = is.start(&client.shape)?;
    if is.words.first().is_none_or(|(word, _)| *word != program) {
        return Err(format!("{} does not start smcp any more", key.name));
    }
    if Some(&is.digest()) != words {
        return Err(format!("what {} starts was changed since", key.name));
    }
    // One that smcp client add brought.
    let Some(was) = find(&was).map(|at| &was[at]) else { return removed(client, now, key) };
    let was = was.start(&client.shape)?;
    let raw = |text: &str, span: &std::ops::Range<usize>| text[span.clone()].to_owned();
    let mut changes: Vec<Change> = Vec::new();
    if let (Some(was), Some(is)) = (was.list, is.list) {
        changes.push((is.span.clone(), raw(old, &was.span)));
    }
    if client.shape.args.is_some() {
        let (was, is) = (was.words[0].1.span(), is.words[0].1.span());
        changes.push((is.clone(), raw(old, was)));
    }
    let after = changed(now, &changes);
    let words: Vec<String> = was.words.iter().map(|(word, _)| (*word).to_owned()).collect();
    match super::edit::is_as_meant((now, &after), client.dialect, &client.shape, key, &words) {
        true => Ok(after),
        false => Err(format!("{} stands there in a way that smcp cannot change", key.name)),
    }
}
