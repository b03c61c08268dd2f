//! `docker run`.

use distribution::{Name, Reference};

use super::{Left, Line, alone};
use crate::clients::look::hidden;
use crate::secrets::tells;

/// What a flag of docker's is to smcp.
enum Flag {
    /// Nothing: a cage has it anyway, or it is about how docker works.
    Nothing,
    NothingWith,
    Variable,
    VariableFile,
    Volume,
    Mount,
    Network,
    Memory,
    Unknown,
}

fn meaning(flag: &str) -> Flag {
    match flag {
        "-i" | "-t" | "-it" | "-ti" | "--interactive" | "--tty" | "--rm" | "--init" | "--read-only" | "-q"
        | "--quiet" => Flag::Nothing,
        "--name" | "--pull" | "--cap-drop" | "--label" | "-l" | "--log-driver" | "--security-opt" | "--hostname"
        | "-h" | "--pids-limit" | "--cpus" => Flag::NothingWith,
        "-e" | "--env" => Flag::Variable,
        "--env-file" => Flag::VariableFile,
        "-v" | "--volume" => Flag::Volume,
        "--mount" => Flag::Mount,
        "--network" | "--net" => Flag::Network,
        "-m" | "--memory" => Flag::Memory,
        _ => Flag::Unknown,
    }
}

/// `docker run [FLAGS] IMAGE`
pub fn run(words: &[&str], from: usize) -> Result<Line, Left> {
    let mut at = from;
    let (mut flags, mut files, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let mut variables = Vec::new();
    let mut network = true;
    loop {
        let word = words.get(at).ok_or_else(|| alone("docker names no image"))?;
        if !word.starts_with('-') {
            break;
        }
        let (flag, joined) = match word.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (flag, Some(value)),
            // As in `-eNAME`.
            _ if !word.starts_with("--")
                && word.len() > 2
                && word.is_char_boundary(2)
                && ["-e", "-v"].contains(&&word[..2]) =>
            {
                (&word[..2], Some(&word[2..]))
            }
            _ => (*word, None),
        };
        let kind = meaning(flag);
        let takes = !matches!(kind, Flag::Nothing | Flag::Unknown);
        let value = match (takes, joined) {
            (true, None) => words.get(at + 1).copied().ok_or_else(|| alone(format!("docker's {flag} has no value")))?,
            (_, joined) => joined.unwrap_or_default(),
        };
        at += if takes && joined.is_none() { 2 } else { 1 };
        match kind {
            Flag::Nothing | Flag::NothingWith => {}
            Flag::Variable => variable(value, &mut flags, &mut variables)?,
            Flag::VariableFile => flags.extend(["--env-file".to_owned(), value.to_owned()]),
            Flag::Volume => files.push(volume(value)?),
            Flag::Mount => files.push(mount(value)?),
            Flag::Network if value == "none" => network = false,
            Flag::Network if value == "bridge" || value == "default" => {}
            Flag::Network => return Err(alone(format!("docker's network {value} has no counterpart"))),
            Flag::Memory => match bundle::parse_size(&value.to_ascii_uppercase()) {
                Ok(_) => flags.extend(["--memory".to_owned(), value.to_ascii_uppercase()]),
                Err(_) => return Err(alone(format!("docker's memory {value} is no size of smcp's"))),
            },
            Flag::Unknown => return Err(alone(format!("docker's {flag} has no counterpart"))),
        }
    }
    let reference = image(words[at])?;
    if network {
        notes.push(
            "its container reaches the network, a cage does not: `smcp why` names the flag that a run lacked".into(),
        );
    }
    let mut today = vec![match network {
        true => "a container: every host, also of your own network".to_owned(),
        false => "a container without network".to_owned(),
    }];
    let mut granted = Vec::new();
    for File { source, target, access } in files {
        let word = if access == "rw" { "read-write" } else { "read-only" };
        today.push(format!("{source} {word}, at {target}"));
        granted.push(format!("{source} {word}, at {target}"));
        flags.extend(["--mount".to_owned(), format!("{source}:{target}:{access}")]);
    }
    today.push("root within its container".into());
    let length = at + 1;
    Ok(Line { reference, length, flags, today, granted, notes, variables: Some(variables) })
}

/// A file or directory of the host's.
struct File {
    source: String,
    target: String,
    access: &'static str,
}

/// `-e NAME` or `-e NAME=VALUE`. A secret stays where it is.
fn variable(text: &str, flags: &mut Vec<String>, names: &mut Vec<String>) -> Result<(), Left> {
    match text.split_once('=') {
        None => names.push(text.to_owned()),
        Some((name, value)) if !value.is_empty() && (tells(name) || hidden(&[text])[0]) => {
            return Err(alone(format!(
                "the value of {name} stands on docker's command line: put it among the client's variables, and `-e {name}` in its place"
            )));
        }
        Some(_) => flags.extend(["--env".to_owned(), text.to_owned()]),
    }
    Ok(())
}

/// `SOURCE:TARGET[:OPTIONS]`
fn volume(text: &str) -> Result<File, Left> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, options) = match parts[..] {
        [source, target] => (source, target, ""),
        [source, target, options] if source.len() != 1 => (source, target, options),
        _ => return Err(alone(format!("docker's volume {text} has no counterpart"))),
    };
    let mut access = "rw";
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option {
            "ro" => access = "ro",
            "rw" | "z" | "Z" => {}
            _ => return Err(alone(format!("docker's volume {text} has no counterpart"))),
        }
    }
    file(source, target, access)
}

/// `type=bind,source=S,target=T[,readonly]`
fn mount(text: &str) -> Result<File, Left> {
    let (mut source, mut target, mut access, mut kind) = ("", "", "rw", "volume");
    for part in text.split(',') {
        match part.split_once('=').unwrap_or((part, "true")) {
            ("type", value) => kind = value,
            ("source" | "src", value) => source = value,
            ("target" | "dst" | "destination", value) => target = value,
            ("readonly" | "ro", "true" | "1") => access = "ro",
            _ => return Err(alone(format!("docker's mount {text} has no counterpart"))),
        }
    }
    match kind {
        "bind" => file(source, target, access),
        _ => Err(alone(format!("docker's mount {text} is none of a directory of this machine"))),
    }
}

fn file(source: &str, target: &str, access: &'static str) -> Result<File, Left> {
    if source.ends_with("docker.sock") {
        return Err(alone("it is given docker's socket, which is the whole machine"));
    }
    // A client may put a path in the place of `${…}`.
    if !source.starts_with('/') && !source.starts_with("${") {
        return Err(alone(format!("docker keeps the volume {source} itself")));
    }
    if !target.starts_with('/') || source.contains(':') || target.contains(':') {
        return Err(alone(format!("docker's volume {source} has no counterpart")));
    }
    Ok(File { source: source.into(), target: target.into(), access })
}

/// docker's names without a registry are its hub's.
fn image(name: &str) -> Result<Reference, Left> {
    match Name::of_docker(name).parse() {
        Ok(reference @ Reference::Registry(_)) => Ok(reference),
        _ => Err(alone(format!("{name} is no image that smcp can name"))),
    }
}
