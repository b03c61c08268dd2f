//! What an entry gives its server: arguments and variables, each stated by the publisher, given by the user, or put together of both.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{Argument, ArgumentKind, Input, Listed, ListedError, Place, Variable};
use crate::Secret;
use crate::grant::{EnvFlag, MountFlag, Request};
use crate::manifest::{ArgKind, ArgSpec, EnvSpec, Manifest};
use crate::permissions::{Access, FsRequest, Origin};

/// Flags of npx and uvx that say nothing of what is run.
const OF_RUNNERS: [&str; 6] = ["-y", "--yes", "-q", "--quiet", "--silent", "--prefer-offline"];
/// Flags of `docker run` that mean here what holds anyway.
const OF_DOCKER: [&str; 9] = ["run", "-i", "--interactive", "--rm", "-it", "-t", "--tty", "--init", "--quiet"];

/// What the user gave, by name, of the flags `--env`, `--env-file` and `--secret`.
pub type Given<'a> = dyn Fn(&str) -> Option<Secret> + 'a;

impl Listed {
    /// Puts into a run what the entry says of it, and into the manifest what it asks the user for. A path among what the *user* gives is
    /// granted read-write; nothing is for what the publisher states.
    ///
    /// # Errors
    /// A value that the entry does not take.
    pub fn apply(&self, manifest: &mut Manifest, request: &mut Request, given: &Given<'_>) -> Result<(), ListedError> {
        let mut used = BTreeSet::new();
        let own: BTreeSet<String> = manifest.env.iter().map(|spec| spec.name.clone()).collect();
        for variable in &self.env {
            self.variable(variable, manifest, request, given, &mut used)?;
        }
        self.arguments(manifest, request, given, &mut used)?;
        for (number, place) in self.mounts.iter().enumerate() {
            let source = compose(&place.source, manifest, given, &mut used)?;
            place.ask(number, source.map(|source| source.text.into()), manifest, request);
        }
        // What was given for a text in braces is no variable of the server's, unless it is that too.
        let is_own = |name: &str| own.contains(name) || self.env.iter().any(|variable| variable.name == name);
        request.env.retain(|flag| !used.contains(&flag.name) || is_own(&flag.name));
        Ok(())
    }

    fn variable(
        &self,
        variable: &Variable,
        manifest: &mut Manifest,
        request: &mut Request,
        given: &Given<'_>,
        used: &mut BTreeSet<String>,
    ) -> Result<(), ListedError> {
        let Variable { name, input } = variable;
        let mut spec =
            EnvSpec { name: name.clone(), default: None, secret: input.is_secret, required: input.is_required };
        match (&input.value, given(name)) {
            (_, Some(own)) => check(name, own.expose(), input)?,
            (Some(_), None) if !input.variables.is_empty() => {
                if let Some(Composed { text, is_secret, is_stated }) = compose(input, manifest, given, used)? {
                    spec.secret |= is_secret;
                    match is_stated {
                        true => spec.default = Some(text),
                        false => {
                            request.composed.push(EnvFlag { name: name.clone(), value: Some(Secret::new(text)) });
                        }
                    }
                }
            }
            (Some(value), None) => spec.default = Some(value.clone()),
            (None, None) => spec.default = input.default.clone().filter(|text| !text.is_empty()),
        }
        match manifest.env.iter_mut().find(|known| known.name == *name) {
            Some(known) => {
                known.secret |= spec.secret;
                known.required |= spec.required;
                known.default = spec.default.or(known.default.take());
            }
            None => manifest.env.push(spec),
        }
        Ok(())
    }

    /// The server's whole line: what the entry states in its order, with what the user gave in between, and what else the user gave behind.
    fn arguments(
        &self,
        manifest: &mut Manifest,
        request: &mut Request,
        given: &Given<'_>,
        used: &mut BTreeSet<String>,
    ) -> Result<(), ListedError> {
        let mut typed: Vec<String> = std::mem::take(&mut request.args);
        let (mut line, mut specs): (Vec<Word>, Vec<ArgSpec>) = Default::default();
        let flags: Vec<&str> = self.args.iter().filter_map(|one| one.name.as_deref()).collect();
        for (number, argument) in self.args.iter().enumerate() {
            let label = argument.label();
            let before = line.len();
            if let (Some(_), false) = (&argument.input.value, argument.input.variables.is_empty()) {
                let composed = compose(&argument.input, manifest, given, used)?;
                line.extend(composed.into_iter().flat_map(|composed| argument.words(Word::Stated(composed.text))));
                continue;
            }
            if let Some(value) = &argument.input.value {
                line.extend(argument.words(Word::Stated(value.clone())));
                continue;
            }
            let values = match (argument.kind, &argument.name) {
                (ArgumentKind::Named, Some(flag)) => of_flag(flag, &mut typed, argument.is_switch()),
                _ => of_place(&mut typed, argument.is_repeated, &flags),
            };
            for value in values {
                check(&label, &value, &argument.input)?;
                line.extend(argument.words(Word::Given(value)));
            }
            if line.len() == before
                && let Some(default) = argument.input.default.as_ref().filter(|text| !text.is_empty())
            {
                line.extend(argument.words(Word::Stated(default.clone())));
            }
            specs.push(argument.asks(manifest, label, number));
        }
        // Before the package's own, which may take all that follows.
        manifest.args.splice(0..0, specs);
        line.extend(typed.into_iter().map(Word::Given));
        request.listed = line.iter().enumerate().filter(|(_, word)| word.is_stated()).map(|(at, _)| at).collect();
        request.args = line.into_iter().map(Word::text).collect();
        Ok(())
    }

    /// What the entry would have npx or uvx do.
    pub(super) fn of_runner(&mut self, arguments: Vec<Argument>, identifier: &str) -> Result<(), String> {
        let mut words = line_of(&arguments).into_iter().peekable();
        let is_own =
            |text: &str| text == identifier || text.strip_prefix(identifier).is_some_and(|v| v.starts_with(['@', '=']));
        while let Some(word) = words.next() {
            let (flag, value) =
                word.split_once('=').map_or((word.as_str(), None), |(flag, v)| (flag, Some(v.to_owned())));
            match flag {
                flag if OF_RUNNERS.contains(&flag) => {}
                "-p" | "--package" | "--from" => match value.or_else(|| words.next()) {
                    Some(text) if is_own(&text) => {}
                    other => return Err(format!("runtimeArguments: {flag} {other:?} names another package")),
                },
                word if is_own(word) => {}
                word if !word.starts_with('-') && self.bin.is_none() => self.bin = Some(word.to_owned()),
                _ => return Err(format!("runtimeArguments: {word:?} changes what is run")),
            }
        }
        Ok(())
    }

    /// What the entry would have docker do: variables, and directories that the user names; no other of its flags does anything here.
    pub(super) fn of_docker(&mut self, arguments: Vec<Argument>) {
        let variables: Vec<_> = arguments.iter().flat_map(|argument| argument.input.variables.clone()).collect();
        let with = |text: String| Input {
            value: Some(text),
            variables: variables.iter().cloned().collect(),
            ..Input::default()
        };
        let mut words = line_of(&arguments).into_iter();
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=').filter(|(flag, _)| flag.starts_with("--")) {
                Some((flag, value)) => (flag.to_owned(), Some(value.to_owned())),
                None => (word.clone(), None),
            };
            match flag.as_str() {
                flag if OF_DOCKER.contains(&flag) => {}
                "-e" | "--env" => match value.or_else(|| words.next()) {
                    Some(pair) => {
                        let (name, value) = pair.split_once('=').map_or((pair.as_str(), None), |(n, v)| (n, Some(v)));
                        let input = value.map_or_else(Input::default, |value| with(value.to_owned()));
                        let known = self.env.iter().any(|variable| variable.name == name);
                        if !known && !name.is_empty() && !name.contains('{') {
                            self.env.push(Variable { name: name.to_owned(), input });
                        }
                    }
                    None => self.left_out.push(word),
                },
                "-v" | "--volume" | "--mount" => {
                    let text = value.or_else(|| words.next()).unwrap_or_default();
                    match mount(&text, |name| variables.iter().any(|(known, _)| known == name)) {
                        Some(MountFlag { source, target: Some(target), access, .. }) => {
                            // Nothing that the publisher states becomes a path of this machine.
                            let mut source = with(source.to_string_lossy().into_owned());
                            source
                                .variables
                                .values_mut()
                                .for_each(|variable| (variable.value, variable.default) = (None, None));
                            self.mounts.push(Place { source, target, access });
                        }
                        _ => self.left_out.push(format!("docker's {flag} {}", text.escape_debug())),
                    }
                }
                flag => self.left_out.push(format!("docker's {}", flag.escape_debug())),
            }
        }
    }
}

impl Place {
    /// Asks for it in the manifest, with no more access than a request for the same place has already, and grants what the user named
    /// unless a flag of the user's puts something there.
    fn ask(&self, number: usize, source: Option<PathBuf>, manifest: &mut Manifest, request: &mut Request) {
        let asked = &mut manifest.permissions.filesystem;
        let access = match asked.iter().find(|known| known.target == self.target) {
            Some(known) => known.access.min(self.access),
            None => {
                let (id, target) = (format!("listed-mount-{number}"), self.target.clone());
                asked.push(FsRequest { id, access: self.access, target, from: Origin::Listed });
                self.access
            }
        };
        let is_taken = |flag: &MountFlag| *flag.target.as_ref().unwrap_or(&flag.source) == self.target;
        if let Some(source) = source
            && !request.mounts.iter().any(is_taken)
        {
            let flag = "the directory for the registry's entry";
            request.mounts.push(MountFlag { source, target: Some(self.target.clone()), access, flag });
        }
    }
}

/// One word of a line: whose.
enum Word {
    Stated(String),
    Given(String),
}

impl Word {
    fn is_stated(&self) -> bool {
        matches!(self, Word::Stated(_))
    }

    fn text(self) -> String {
        match self {
            Word::Stated(text) | Word::Given(text) => text,
        }
    }
}

impl Argument {
    /// What it is called.
    fn label(&self) -> String {
        self.name.clone().or_else(|| self.value_hint.clone()).unwrap_or_else(|| "argument".into())
    }

    /// Its words with that value.
    fn words(&self, value: Word) -> Vec<Word> {
        let flag = self.name.clone().filter(|_| self.kind == ArgumentKind::Named);
        match (flag, value) {
            // A switch is there or not, and has no value.
            (Some(flag), Word::Stated(value)) if self.is_switch() => {
                if value == "true" || value.is_empty() {
                    vec![Word::Stated(flag)]
                } else {
                    Vec::new()
                }
            }
            (Some(flag), Word::Given(_)) if self.is_switch() => vec![Word::Given(flag)],
            (Some(flag), Word::Stated(value)) if value.is_empty() => vec![Word::Stated(flag)],
            (Some(flag), value @ Word::Stated(_)) => vec![Word::Stated(flag), value],
            (Some(flag), value) => vec![Word::Given(flag), value],
            (None, Word::Stated(value)) if value.is_empty() => Vec::new(),
            (None, value) => vec![value],
        }
    }

    /// What the user may give, as the manifest has it.
    fn asks(&self, manifest: &mut Manifest, label: String, number: usize) -> ArgSpec {
        let is_named = self.kind == ArgumentKind::Named;
        let mut spec = ArgSpec {
            name: label,
            kind: ArgKind::String,
            mount: None,
            required: self.input.is_required,
            flag: self.name.clone().filter(|_| is_named),
            repeated: self.is_repeated && !is_named,
            holder: false,
            extra: Default::default(),
        };
        if self.is_path() {
            let (id, target) = (format!("listed-{number}"), format!("/listed/{number}").into());
            (spec.kind, spec.mount) = (ArgKind::Path, Some(id.clone()));
            manifest.permissions.filesystem.push(FsRequest { id, access: Access::Rw, target, from: Origin::Listed });
        }
        spec
    }

    fn is_switch(&self) -> bool {
        self.kind == ArgumentKind::Named && self.input.format.as_deref() == Some("boolean")
    }

    fn is_path(&self) -> bool {
        self.input.format.as_deref() == Some("filepath")
    }
}

/// Takes the values of a flag out of what was typed.
fn of_flag(flag: &str, typed: &mut Vec<String>, is_switch: bool) -> Vec<String> {
    let (mut values, mut rest) = (Vec::new(), Vec::new());
    let mut words = std::mem::take(typed).into_iter().peekable();
    while let Some(word) = words.next() {
        match word.strip_prefix(flag) {
            Some("") if is_switch => values.push("true".into()),
            Some("") if words.peek().is_some() => values.extend(words.next()),
            Some(value) if value.starts_with('=') => values.push(value[1..].to_owned()),
            _ => rest.push(word),
        }
    }
    *typed = rest;
    values
}

/// Takes the next word out that is none of a flag, or all of them up to the first that is.
fn of_place(typed: &mut Vec<String>, is_repeated: bool, flags: &[&str]) -> Vec<String> {
    let free = |typed: &[String]| {
        let follows = |at: usize| at > 0 && flags.contains(&typed[at - 1].as_str());
        (0..typed.len()).find(|at| !typed[*at].starts_with('-') && !follows(*at))
    };
    let mut values = Vec::new();
    while let Some(at) = free(typed) {
        values.push(typed.remove(at));
        if !is_repeated {
            break;
        }
    }
    values
}

/// A text that was put together.
struct Composed {
    text: String,
    is_secret: bool,
    /// Nothing in it is the user's.
    is_stated: bool,
}

/// The value with what the user gave in the place of what stands in braces; none where something is missing, which the manifest then asks for.
fn compose(
    input: &Input,
    manifest: &mut Manifest,
    given: &Given<'_>,
    used: &mut BTreeSet<String>,
) -> Result<Option<Composed>, ListedError> {
    let template = input.value.clone().unwrap_or_default();
    let (mut text, mut is_secret, mut is_whole, mut is_stated) = (String::new(), input.is_secret, true, true);
    let mut rest = template.as_str();
    while let Some((before, behind)) = rest.split_once('{') {
        text.push_str(before);
        let named = behind.split_once('}').and_then(|(name, after)| Some((name, input.variables.get(name)?, after)));
        // What is no variable stays as it is.
        let Some((name, variable, after)) = named else {
            text.push('{');
            rest = behind;
            continue;
        };
        rest = after;
        is_secret |= variable.is_secret;
        let stated = variable.value.as_ref().or(variable.default.as_ref());
        // Asked for in every run, so that the runs of a version ask for the same.
        let mut asked = EnvSpec { name: name.into(), default: None, secret: variable.is_secret, required: false };
        match (given(name), stated) {
            (Some(own), _) => {
                check(name, own.expose(), variable)?;
                used.insert(name.to_owned());
                is_stated = false;
                text.push_str(own.expose());
            }
            (None, Some(stated)) => text.push_str(stated),
            (None, None) => {
                is_whole = false;
                asked.required = variable.is_required || input.is_required;
            }
        }
        match manifest.env.iter_mut().find(|known| known.name == name) {
            Some(known) => known.required |= asked.required,
            None => manifest.env.push(asked),
        }
    }
    text.push_str(rest);
    Ok(is_whole.then_some(Composed { text, is_secret, is_stated }))
}

/// Whether the entry takes that value. The error does not show it.
fn check(name: &str, value: &str, input: &Input) -> Result<(), ListedError> {
    let wrong = |why: String| Err(ListedError::Value { name: name.to_owned(), why });
    if !input.choices.is_empty() && !input.choices.iter().any(|choice| choice == value) {
        let choices: Vec<String> = input.choices.iter().map(|choice| choice.escape_debug().to_string()).collect();
        return wrong(format!("the value is none of {}", choices.join(", ")));
    }
    match input.format.as_deref() {
        Some("number") if value.parse::<f64>().is_err() => wrong("the value is no number".into()),
        Some("boolean") if value != "true" && value != "false" => wrong("the value is neither true nor false".into()),
        _ => Ok(()),
    }
}

/// All stated words of a list of arguments.
fn line_of(arguments: &[Argument]) -> Vec<String> {
    let words = arguments.iter().flat_map(|argument| {
        let value = argument.input.value.clone().or_else(|| argument.input.default.clone()).unwrap_or_default();
        argument.words(Word::Stated(value))
    });
    words.map(Word::text).filter(|word| !word.is_empty()).collect()
}

/// docker's `SRC:DST[:ro]`, or `type=bind,src=SRC,dst=DST[,readonly]`; none where the source is not what the user names, or the target is.
fn mount(text: &str, is_variable: impl Fn(&str) -> bool) -> Option<MountFlag> {
    let (source, target, mode) = if text.contains("src=") || text.contains("source=") {
        let pairs: Vec<(&str, &str)> = text.split(',').map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
        let of = |names: [&str; 3]| pairs.iter().find(|(key, _)| names.contains(key)).map(|(_, value)| *value);
        if of(["type"; 3]).is_some_and(|kind| kind != "bind") {
            return None;
        }
        let mode = if of(["readonly", "ro", "readonly"]).is_some() { "ro" } else { "rw" };
        (of(["src", "source", "src"])?, of(["dst", "target", "destination"])?, mode)
    } else {
        let mut parts = text.split(':');
        let (source, target) = (parts.next()?, parts.next()?);
        (source, target, if parts.next() == Some("ro") { "ro" } else { "rw" })
    };
    let name = source.strip_prefix('{')?.strip_suffix('}')?;
    let fits = is_variable(name) && target.starts_with('/') && !target.contains(['{', ':']);
    fits.then(|| format!("{source}:{target}:{mode}").parse().ok()).flatten()
}
