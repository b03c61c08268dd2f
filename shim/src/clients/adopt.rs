//! `smcp adopt`: looks at the files of clients, says what each server reaches and would be granted, makes the packages, and changes the
//! files over.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use distribution::Secret;
use serde_json::{Value, json};

use super::diff::lines;
use super::edit::{Key, changed, is_as_meant, put};
use super::entries::entries;
use super::file::ConfigFile;
use super::look::{Looked, Open, Row, clients, look};
use super::own_path::own_path;
use super::recognise::{Invocation, Left};
use super::record::{Rewrite, carry_out, turn};
use super::table::Client;
use crate::accept::ask;
use crate::cli;
use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::show::{self, one_line, outln};

/// Changes the clients' files over.
///
/// # Errors
/// Of code 121 where the answer was no or could not be asked for, of 1 where something was left alone that could not be read, made or
/// written: the others are changed.
pub fn adopt(typed: &cli::Adopt, settings: &Settings) -> Result<(), Failure> {
    if typed.json && !typed.yes && !typed.dry_run {
        return Err(Failure::new(exit::USAGE, "--json is no question").hint("with it goes --dry-run or --yes"));
    }
    let smcp = own_path()?;
    let looked = look(&clients(&typed.clients)?, &smcp, typed.runtime.is_some())?;
    let mut outcomes = BTreeMap::new();
    for found in &looked {
        outcomes.extend(unreplaceable(found));
        if !typed.json {
            report(found, &smcp, &outcomes);
        }
    }
    let broken = looked.iter().filter(|found| found.file.is_err()).count();
    let count = looked.iter().map(|found| open(found, &outcomes).len()).sum::<usize>();
    if count > 0 && !typed.dry_run {
        if !typed.yes {
            agreed(count)?;
        }
        make(&looked, settings, &mut outcomes);
        write(&looked, &smcp, settings, &mut outcomes)?;
    }
    if typed.json {
        let files: Vec<Value> = looked.iter().map(|found| in_json(found, &smcp, &outcomes)).collect();
        show::print_json(&json!({"dry_run": typed.dry_run, "files": files}));
    }
    summary(&outcomes, count, broken, typed)
}

/// Which entry of which file.
type Place = (PathBuf, Key);

/// What came of an entry.
#[derive(Clone, Debug)]
enum Outcome {
    /// smcp runs its package from now on.
    Adopted,
    /// Why not.
    Left(String),
}

fn place(found: &Looked, row: &Row) -> Place {
    (found.path.clone(), row.key.clone())
}

/// The entries that can still be changed over.
fn open<'l>(found: &'l Looked, outcomes: &BTreeMap<Place, Outcome>) -> Vec<(&'l Row, &'l Open)> {
    let left = |row: &&Row| !outcomes.contains_key(&place(found, row));
    found.rows.iter().filter(left).filter_map(|row| Some((row, row.state.as_ref().ok()?))).collect()
}

/// The entries of a file that may not be replaced.
fn unreplaceable(found: &Looked) -> Vec<(Place, Outcome)> {
    let Some(why) = found.file.as_ref().ok().and_then(|file| file.can_be_replaced().err()) else { return Vec::new() };
    let open = found.rows.iter().filter(|row| row.state.is_ok());
    open.map(|row| (place(found, row), Outcome::Left(why.clone()))).collect()
}

/// Says what was found in a file.
fn report(found: &Looked, smcp: &str, outcomes: &BTreeMap<Place, Outcome>) {
    outln!("{}: {}", found.client.name, found.path.display());
    if found.project.is_some() {
        outln!("  a file of the project: whoever else has it needs smcp at {smcp}");
    }
    let file = match &found.file {
        Ok(file) => file,
        Err(why) => return outln!("  left alone: {why}"),
    };
    for row in &found.rows {
        match (&row.state, outcomes.get(&place(found, row))) {
            (Err(Left::Caged(reference)), _) => {
                outln!("  {}: runs caged already, {}", row.title, one_line(reference));
            }
            (Err(Left::Alone(why)), _) | (Ok(_), Some(Outcome::Left(why))) => {
                outln!("  {}: left alone: {}", row.title, one_line(why));
            }
            (Ok(open), _) => {
                let invocation = &open.invocation;
                outln!("  {}: {}", row.title, one_line(&invocation.reference));
                invocation.today.iter().for_each(|what| outln!("    today     {}", one_line(what)));
                invocation.granted.iter().for_each(|what| outln!("    granted   {}", one_line(what)));
                invocation.notes.iter().for_each(|what| outln!("    note      {}", one_line(what)));
                diff(found.client, file, row, open, smcp).iter().for_each(|line| outln!("    {line}"));
            }
        }
    }
}

/// The lines that a change of one entry touches.
fn diff(client: &Client, file: &ConfigFile, row: &Row, open: &Open, smcp: &str) -> Vec<String> {
    let Ok(text) = file.text() else { return Vec::new() };
    let Ok(Some(root)) = client.dialect.read(text.text) else { return Vec::new() };
    let entries = entries(&root, &client.shape);
    let Some(entry) = entries.iter().find(|entry| row.key.is_of(entry)) else { return Vec::new() };
    entry.start(&client.shape).map_or_else(
        |_| Vec::new(),
        |start| {
            let changes = put(text.text, client.dialect, &start, open.invocation.replaced, &open.masked(smcp));
            lines(text.text, client.dialect, (&root, entry.value.span()), &start, &changes)
        },
    )
}

fn agreed(count: usize) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(exit::DENIED, "this takes an answer, and there is no terminal to ask on")
            .hint("--yes answers it, --dry-run changes nothing"));
    }
    match ask(&format!("Let smcp start {} from now on? `smcp undo` takes it back", servers(count))) {
        true => Ok(()),
        false => Err(Failure::new(exit::DENIED, "nothing was changed").hint("smcp adopt CLIENT is about one client")),
    }
}

fn servers(count: usize) -> String {
    if count == 1 { "1 server".into() } else { format!("{count} servers") }
}

/// Makes every package, and tries whether smcp would run it: what it cannot is left as it is.
fn make(looked: &[Looked], settings: &Settings, outcomes: &mut BTreeMap<Place, Outcome>) {
    for found in looked {
        for (row, open) in open(found, outcomes) {
            show::say(&format!("{}: {} …", row.title, open.invocation.reference));
            let Invocation { flags, reference, .. } = &open.invocation;
            if let Err(why) = ready(flags, reference, &open.args, &open.env, found.project.as_deref(), false, settings)
            {
                show::warn(&format!("{}: left alone: {why}", row.title));
                outcomes.insert(place(found, row), Outcome::Left(why));
            }
        }
    }
}

/// Has a run planned, which makes its package and judges what it is granted, by the client's own variables. Where the client puts
/// something in the place of `${…}`, or where `is_part`, the package alone is made.
///
/// # Errors
/// Why it would not run, for people.
pub fn ready(
    flags: &[String],
    reference: &str,
    args: &[String],
    env: &[(String, Secret)],
    project: Option<&Path>,
    is_part: bool,
    settings: &Settings,
) -> Result<(), String> {
    let is_plain = !is_part && flags.iter().chain(args).all(|word| !word.contains("${"));
    // Not by its path: that may be another version by now.
    let mut command = runtime::system::own_command();
    if is_plain {
        command.args(["run", "--dry-run"]);
    } else {
        command.arg("pull");
    }
    if let Some(file) = &settings.file {
        command.arg("--config").arg(file);
    }
    if is_plain {
        command.args(flags).arg(reference).args(args);
    } else {
        command.args(making(flags)).arg(reference);
    }
    if let Some(project) = project {
        command.current_dir(project);
    }
    command.envs(env.iter().map(|(name, value)| (name, value.expose())));
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let ended = ended.map_err(|why| format!("smcp cannot be started: {why}"))?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let line = |start: &str| said.lines().find_map(|line| line.strip_prefix(start)).map(str::to_owned);
    let why = line("error: ").unwrap_or_else(|| format!("smcp ended with {}", ended.status));
    Err(line("hint: ").map_or(why.clone(), |hint| format!("{why} (hint: {hint})")))
}

/// The flags of a run that decide how its package is made and where it comes from, which `pull` has, too.
fn making(flags: &[String]) -> Vec<&String> {
    const MAKING: [&str; 5] = ["--bin", "--package-type", "--runtime", "--allow-scripts", "--registry"];
    let mut making = Vec::new();
    for (at, flag) in flags.iter().enumerate() {
        match flag.split_once('=') {
            Some((name, _)) if MAKING.contains(&name) => making.push(flag),
            None if MAKING.contains(&flag.as_str()) => making.extend(flags[at..].iter().take(2)),
            _ => {}
        }
    }
    making
}

/// Writes the files, each in one step, after what they were is kept.
fn write(
    looked: &[Looked],
    smcp: &str,
    settings: &Settings,
    outcomes: &mut BTreeMap<Place, Outcome>,
) -> Result<(), Failure> {
    let _turn = turn(settings)?;
    let (mut places, mut rewrites) = (Vec::new(), Vec::new());
    for found in looked {
        let rows = open(found, outcomes);
        if rows.is_empty() {
            continue;
        }
        let of_file: Vec<Place> = rows.iter().map(|(row, _)| place(found, row)).collect();
        match rewrite(found, &rows, smcp) {
            Ok(rewrite) => {
                places.push(of_file);
                rewrites.push(rewrite);
            }
            Err(why) => outcomes.extend(of_file.into_iter().map(|place| (place, Outcome::Left(why.clone())))),
        }
    }
    let done = carry_out(settings, "adopt", smcp, &rewrites)?;
    for (of_file, done) in places.into_iter().zip(done) {
        let outcome = done.map_or_else(Outcome::Left, |()| Outcome::Adopted);
        outcomes.extend(of_file.into_iter().map(|place| (place, outcome.clone())));
    }
    Ok(())
}

/// A file as it is by now, with some entries changed over.
fn rewrite(found: &Looked, rows: &[(&Row, &Open)], smcp: &str) -> Result<Rewrite, String> {
    let client = found.client;
    let file = ConfigFile::read(&found.path)?.ok_or("it is gone")?;
    file.can_be_replaced()?;
    let before = file.text()?;
    let mut text = before.text.to_owned();
    for (row, open) in rows {
        text = adopted(client, &text, &row.key, open, smcp)?;
    }
    let (bytes, entries) = (before.bytes_of(&text), rows.iter().map(|(row, _)| row.key.clone()).collect());
    Ok(Rewrite { client: client.id, path: file.target.clone(), file: Some(file), bytes, entries })
}

/// A file's text with one entry changed over, which says the same everywhere else.
fn adopted(client: &Client, text: &str, key: &Key, open: &Open, smcp: &str) -> Result<String, String> {
    let root = client.dialect.read(text).map_err(|why| why.to_string())?.ok_or("it was emptied meanwhile")?;
    let entries = entries(&root, &client.shape);
    let changed_meanwhile = || format!("{} was changed meanwhile", key.name);
    let entry = entries.iter().find(|entry| key.is_of(entry)).ok_or_else(changed_meanwhile)?;
    let start = entry.start(&client.shape).map_err(|_| changed_meanwhile())?;
    if start.outline() != open.outline {
        return Err(changed_meanwhile());
    }
    let words = open.words(smcp);
    let after = changed(text, &put(text, client.dialect, &start, open.invocation.replaced, &words));
    match is_as_meant((text, &after), client.dialect, &client.shape, key, &[words, open.args.clone()].concat()) {
        true => Ok(after),
        false => Err(format!("{} stands there in a way that smcp cannot change", key.name)),
    }
}

fn summary(
    outcomes: &BTreeMap<Place, Outcome>,
    count: usize,
    broken: usize,
    typed: &cli::Adopt,
) -> Result<(), Failure> {
    let adopted = outcomes.values().filter(|outcome| matches!(outcome, Outcome::Adopted)).count();
    if count == 0 {
        show::say("there is nothing to change over");
    } else if typed.dry_run {
        show::say(&format!("{} would be changed over", servers(count)));
    } else {
        show::say(&format!(
            "smcp starts {} once the clients are started again; `smcp undo` takes it back",
            servers(adopted)
        ));
    }
    let failed: Vec<String> = outcomes
        .iter()
        .filter_map(|((path, key), outcome)| match outcome {
            Outcome::Left(why) => Some(format!("{} of {}: {why}", key.name, path.display())),
            Outcome::Adopted => None,
        })
        .collect();
    if failed.is_empty() && broken == 0 {
        return Ok(());
    }
    let mut what = Vec::new();
    if broken > 0 {
        what.push(format!("{broken} of the files could not be read"));
    }
    what.extend(failed);
    Err(Failure::new(exit::FINDINGS, format!("left alone: {}", what.join("; ")))
        .hint("what is named is as it was; put it right and call smcp adopt again"))
}

fn in_json(found: &Looked, smcp: &str, outcomes: &BTreeMap<Place, Outcome>) -> Value {
    found.in_json(|row| match &row.state {
        Err(Left::Caged(reference)) => json!({"state": "caged", "reference": reference}),
        Err(Left::Alone(why)) => json!({"state": "left", "why": why}),
        Ok(open) => {
            let invocation = &open.invocation;
            let mut value = json!({
                "state": "open",
                "reference": invocation.reference,
                "words": open.masked(smcp),
                "replaced": invocation.replaced,
                "today": invocation.today,
                "granted": invocation.granted,
                "notes": invocation.notes,
            });
            match outcomes.get(&place(found, row)) {
                Some(Outcome::Adopted) => value["state"] = json!("adopted"),
                Some(Outcome::Left(why)) => {
                    value["state"] = json!("failed");
                    value["why"] = json!(why);
                }
                None => {}
            }
            value
        }
    })
}
