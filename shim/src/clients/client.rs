//! `smcp client`: the servers of all clients, and single ones that come and go.

use std::path::Path;

use distribution::{Reference, Selector};
use serde_json::{Value, json};

use super::adopt::ready;
use super::edit::Key;
use super::file::{ConfigFile, text_of};
use super::insert::{added, removed};
use super::look::{Looked, Row, clients, look, machine};
use super::own_path::own_path;
use super::recognise::Left;
use super::record::{Rewrite, carry_out, turn};
use super::table::Client;
use crate::cli::{self, Cli, Command};
use crate::exit::{self, Failure};
use crate::settings::Settings;
use crate::show::{self, one_line, outln};

/// Lists servers, adds one or takes one out.
///
/// # Errors
/// Where a file cannot be changed, and for `ls` of code 1 where one cannot be read.
pub fn client(command: &cli::Client, settings: &Settings) -> Result<(), Failure> {
    match command {
        cli::Client::Ls { clients: words, json } => list(words, *json),
        cli::Client::Add { client, reference, name, words } => add(client, reference, name.as_deref(), words, settings),
        cli::Client::Rm { client, name } => remove(client, name, settings),
    }
}

fn list(words: &[String], as_json: bool) -> Result<(), Failure> {
    let looked = look(&clients(words)?, &own_path()?, false)?;
    if as_json {
        let files: Vec<Value> = looked.iter().map(in_json).collect();
        show::print_json(&json!({"files": files}));
    } else {
        looked.iter().for_each(print);
    }
    match looked.iter().filter(|found| found.file.is_err()).count() {
        0 => Ok(()),
        count => Err(Failure::new(exit::FINDINGS, format!("{count} of the files could not be read"))
            .hint("what is wrong stands beside each; clients may start nothing from it either")),
    }
}

fn print(found: &Looked) {
    outln!("{}: {}", found.client.name, found.path.display());
    if let Err(why) = &found.file {
        outln!("  cannot be read: {why}");
    }
    for Row { title, shown, state, .. } in &found.rows {
        match state {
            Err(Left::Caged(reference)) => outln!("  {title}: caged, {}", one_line(reference)),
            Ok(_) => outln!("  {title}: not caged, {shown} (smcp adopt {} changes it over)", found.client.id),
            Err(Left::Alone(why)) if shown.is_empty() => outln!("  {title}: {}", one_line(why)),
            Err(Left::Alone(why)) => outln!("  {title}: not caged, {shown} ({})", one_line(why)),
        }
    }
}

fn in_json(found: &Looked) -> Value {
    found.in_json(|row| {
        let (caged, reference, why) = match &row.state {
            Err(Left::Caged(reference)) => (true, Some(reference), None),
            Err(Left::Alone(why)) => (false, None, Some(why)),
            Ok(open) => (false, Some(&open.invocation.reference), None),
        };
        json!({"caged": caged, "reference": reference, "why": why})
    })
}

fn known(word: &str) -> Result<&'static Client, Failure> {
    clients(&[word.to_owned()]).map(|found| found[0])
}

fn add(word: &str, reference: &str, name: Option<&str>, words: &[String], settings: &Settings) -> Result<(), Failure> {
    let client = known(word)?;
    let smcp = own_path()?;
    let (flags, args) = match words.iter().position(|word| word == "--") {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (&[][..], words),
    };
    let line = [&[smcp, "run".to_owned()], flags, &[reference.to_owned()], args].concat();
    understood(&line, reference)?;
    let name = name.map_or_else(|| short(reference), |name| Ok(name.to_owned()))?;
    let _turn = turn(settings)?;
    let location = client.locations(&machine()?).into_iter().find(|location| location.project.is_none());
    let path = location.map(|location| location.path).ok_or_else(|| {
        Failure::new(exit::RESOLVE, format!("{} has no file of its own yet", client.name)).hint("start it once")
    })?;
    let failed = |why: String| {
        Failure::new(exit::CONFIGURATION, format!("{}: {why}", path.display())).hint("nothing was changed")
    };
    let file = ConfigFile::read(&path).map_err(failed)?;
    if let Some(file) = &file {
        file.can_be_replaced().map_err(failed)?;
    }
    let before = text_of(file.as_ref().map_or(&[], |file| &file.bytes)).map_err(failed)?;
    let bytes = before.bytes_of(&added(client, before.text, &name, &line).map_err(failed)?);
    // A variable that the client is to set is not there yet.
    let names_variables = flags.iter().any(|flag| flag.starts_with("--env") || flag.starts_with("--secret"));
    ready(flags, reference, args, &[], None, names_variables, settings)
        .map_err(|why| Failure::new(exit::RESOLVE, why).hint("nothing was changed"))?;
    let target = file.as_ref().map_or_else(|| path.clone(), |file| file.target.clone());
    let key = Key { name: name.clone(), within: None };
    let rewrite = Rewrite { client: client.id, path: target, file, bytes, entries: vec![key] };
    carry_out(settings, "client add", &line[0], &[rewrite])?.remove(0).map_err(failed)?;
    outln!("{name} is in {}", path.display());
    Ok(())
}

/// Whether `smcp run` takes a command line, with this package.
fn understood(line: &[String], reference: &str) -> Result<(), Failure> {
    let line: Vec<_> = line.iter().map(std::ffi::OsString::from).collect();
    let wrong = |why: &str| {
        Failure::new(exit::USAGE, why.to_owned())
            .hint("smcp client add CLIENT REF -- ARGS, or with flags of `smcp run`: smcp client add CLIENT REF -- FLAGS -- ARGS")
    };
    match Cli::read(&line) {
        Ok(Cli { command: Command::Run(run), .. }) if run.reference() == reference => Ok(()),
        Ok(_) => Err(wrong("what stands before the second `--` has to be flags of `smcp run`")),
        Err(why) => Err(wrong(why.to_string().lines().next().unwrap_or_default().trim_start_matches("error: "))),
    }
}

/// What a package is called by people: the last part of its name.
fn short(reference: &str) -> Result<String, Failure> {
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let of_path = |path: &Path| path.file_stem().map_or("server".into(), |name| name.to_string_lossy().into_owned());
    Ok(match reference.parse::<Reference>()? {
        Reference::Registry(name) => last(&name.repository),
        Reference::Npm(package) | Reference::Pypi(package) | Reference::Mcp(package) => last(&package.name),
        Reference::Directory(path) | Reference::Mcpb(path) => of_path(&path),
        Reference::Download(download) => of_path(Path::new(&download.url)),
        Reference::OciLayout(layout) => match layout.reference {
            Some(Selector::Tag(tag)) => last(&tag),
            _ => of_path(&layout.dir),
        },
    })
}

fn remove(word: &str, name: &str, settings: &Settings) -> Result<(), Failure> {
    let client = known(word)?;
    let smcp = own_path()?;
    let _turn = turn(settings)?;
    let looked = look(&[client], &smcp, false)?;
    let with_name = |found: &Looked| {
        found.rows.iter().filter(|row| row.key.name == name).map(|row| row.key.clone()).collect::<Vec<_>>()
    };
    let found: Vec<(&Looked, Key)> =
        looked.iter().flat_map(|found| with_name(found).into_iter().map(move |key| (found, key))).collect();
    let [(found, key)] = &found[..] else {
        let places: Vec<String> = found.iter().map(|(found, _)| found.path.display().to_string()).collect();
        return Err(match places.is_empty() {
            true => Failure::new(exit::RESOLVE, format!("{} has no server {name}", client.name))
                .hint("smcp client ls lists them"),
            false => {
                Failure::new(exit::USAGE, format!("{} has several servers {name}: {}", client.name, places.join(", ")))
                    .hint("take out by hand the one that you mean")
            }
        });
    };
    let failed = |why: String| {
        Failure::new(exit::CONFIGURATION, format!("{}: {why}", found.path.display())).hint("nothing was changed")
    };
    let file = found.file.as_ref().map_err(|why| failed(why.clone()))?.clone();
    file.can_be_replaced().map_err(failed)?;
    let text = file.text().map_err(failed)?;
    let bytes = text.bytes_of(&removed(client, text.text, key).map_err(failed)?);
    let rewrite =
        Rewrite { client: client.id, path: file.target.clone(), file: Some(file), bytes, entries: vec![key.clone()] };
    carry_out(settings, "client rm", &smcp, &[rewrite])?.remove(0).map_err(failed)?;
    outln!("{name} is no longer in {}", found.path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_people() {
        for (reference, want) in [
            ("npm:@modelcontextprotocol/server-filesystem@1.2", "server-filesystem"),
            ("npm:x", "x"),
            ("pypi:mcp-server-time==1.0", "mcp-server-time"),
            ("ghcr.io/acme/hello:tag", "hello"),
            ("oci-layout:/home/me/mcp:files", "files"),
            ("localhost:5000/a/b:1", "b"),
            ("./dir/x.mcpb", "x"),
            ("..", "server"),
        ] {
            assert_eq!(short(reference).unwrap(), want, "{reference}");
        }
    }
}
