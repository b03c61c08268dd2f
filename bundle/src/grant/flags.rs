//! The values of flags and of env files, as typed, become types here.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::Secret;
use crate::permissions::{Access, is_plain_word};

/// `--mount SRC[:DST][:ro|rw]`; without a mode read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFlag {
    /// Path on the host; a relative one starts at the caller's directory.
    pub source: PathBuf,
    /// Absolute path inside; the path of the source as typed without it.
    pub target: Option<PathBuf>,
    /// Reading alone, or writing too.
    pub access: Access,
    /// The flag's name, for what is said of it.
    pub flag: &'static str,
}

impl MountFlag {
    /// `--allow-read P`, `--allow-write P`: a grant at the same path inside.
    pub fn same_path(flag: &'static str, source: PathBuf, access: Access) -> MountFlag {
        MountFlag { source, target: None, access, flag }
    }
}

/// `--env K[=V]`, or a line of an env file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvFlag {
    /// Not empty, without `=` and NUL.
    pub name: String,
    /// The value, without NUL; the caller's own where it is `None`.
    pub value: Option<Secret>,
}

/// `--allow-subprocess [PATH]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SubprocessFlag {
    /// Not given.
    #[default]
    None,
    /// Given with paths inside the package.
    Paths(Vec<PathBuf>),
    /// Given without a path: every program.
    Any,
}

/// Why the value of a flag or a line of an env file is refused. It never holds
/// the value of a variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{why}")]
pub struct FlagError {
    place: Place,
    why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Flag,
    Line(usize),
}

impl FlagError {
    fn flag(why: impl Into<String>) -> FlagError {
        FlagError { place: Place::Flag, why: why.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Flag => Ok(()),
            Place::Line(number) => write!(f, "line {number}: "),
        }
    }
}

impl FromStr for MountFlag {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<MountFlag, FlagError> {
        let (paths, access) = match text.rsplit_once(':') {
            Some((paths, "ro")) => (paths, Access::Ro),
            Some((paths, "rw")) => (paths, Access::Rw),
            _ => (text, Access::Ro),
        };
        let (source, target) = match paths.split_once(':') {
            Some((source, target)) => (source, Some(target)),
            None => (paths, None),
        };
        if source.is_empty() {
            return Err(FlagError::flag("the source is empty"));
        }
        Ok(MountFlag { source: source.into(), target: target.map(mount_target).transpose()?, access, flag: "--mount" })
    }
}

fn mount_target(text: &str) -> Result<PathBuf, FlagError> {
    let path = Path::new(text);
    let plain = |part: Component| matches!(part, Component::RootDir | Component::Normal(_));
    if text.contains(':') || !path.is_absolute() || !path.components().all(plain) {
        return Err(FlagError::flag(format!(
            "`{}` is neither ro, rw nor an absolute path without `..` and `:`",
            text.escape_debug()
        )));
    }
    Ok(path.components().collect())
}

/// `--state NAME`: one plain word, 1 to 64 letters, digits, `.`, `_` and `-`, of which the first is a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateName(String);

impl StateName {
    /// The word.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StateName {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<StateName, FlagError> {
        match is_plain_word(text) {
            true => Ok(StateName(text.into())),
            false => Err(FlagError::flag(format!(
                "`{}` is no plain word: 1 to 64 letters, digits, `.`, `_`, `-`, the first a letter or a digit",
                text.escape_debug()
            ))),
        }
    }
}

impl FromStr for EnvFlag {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<EnvFlag, FlagError> {
        read_variable(text).map_err(FlagError::flag)
    }
}

/// Reads an env file: `NAME=VALUE` with the value as it stands after the first
/// `=`, or `NAME` for the caller's value; blank lines and lines that begin with
/// `#` mean nothing. A carriage return before the end of a line belongs to it.
///
/// # Errors
/// The number of the first line that is none of these.
pub fn parse_env_file(bytes: &[u8]) -> Result<Vec<EnvFlag>, FlagError> {
    let mut flags = Vec::new();
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let at = |why| FlagError { place: Place::Line(i + 1), why };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = std::str::from_utf8(line).map_err(|_| at("it is not UTF-8".into()))?;
        let text = line.trim_start();
        if !text.is_empty() && !text.starts_with('#') {
            flags.push(read_variable(text).map_err(at)?);
        }
    }
    Ok(flags)
}

fn read_variable(text: &str) -> Result<EnvFlag, String> {
    match text.split_once('=') {
        Some((name, value)) => EnvFlag::new(name, Some(value)),
        None => EnvFlag::new(text, None),
    }
}

impl EnvFlag {
    /// The one check of a variable, wherever it is from. The text may be a whole secret by mistake, so no error repeats it.
    pub(crate) fn new(name: &str, value: Option<&str>) -> Result<EnvFlag, String> {
        if name.is_empty() {
            return Err("a variable needs a name before the `=`".into());
        }
        if name.contains('=') {
            return Err("the name of a variable holds a `=`".into());
        }
        if name.contains('\0') || value.is_some_and(|value| value.contains('\0')) {
            return Err("a variable cannot hold a NUL".into());
        }
        if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("the name of a variable holds a blank or a control character".into());
        }
        Ok(EnvFlag { name: name.into(), value: value.map(Secret::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let right = [
            ("/a", "/a", None, Access::Ro),
            ("a:rw", "a", None, Access::Rw),
            ("./a:ro", "./a", None, Access::Ro),
            ("/a:/b", "/a", Some("/b"), Access::Ro),
            ("/a:/b/./c/:rw", "/a", Some("/b/c"), Access::Rw),
        ];
        for (text, source, target, access) in right {
            let target = target.map(Into::into);
            let want = MountFlag { source: source.into(), target, access, flag: "--mount" };
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        for text in ["", ":/b", "/a:b", "/a:/b:/c", "/a:/../b", "/a:", "/a::rw", "/a:/b:rx", "/a:RW"] {
            assert!(text.parse::<MountFlag>().is_err(), "{text}");
        }
    }

    #[test]
    fn e16_a_state_has_a_plain_name() {
        for text in ["work", "a", "9", "client-2", "A_b.c", &"x".repeat(64)] {
            assert_eq!(text.parse::<StateName>().map(|name| name.as_str().to_owned()), Ok(text.to_owned()));
        }
        for text in ["", ".", "..", ".home", "-x", "_x", "a/b", "/", "a b", "a\n", "ä", &"x".repeat(65)] {
            assert!(text.parse::<StateName>().is_err(), "{text}");
        }
    }

    #[test]
    fn e4_values_arrive_as_given() {
        let cases = [
            ("A=b", "A", Some("b")),
            ("A=b=c", "A", Some("b=c")),
            ("A=\"q\" 'r' $HOME", "A", Some("\"q\" 'r' $HOME")),
            ("A=two\nlines", "A", Some("two\nlines")),
            ("A=  leading", "A", Some("  leading")),
            ("A=", "A", Some("")),
            ("A", "A", None),
        ];
        for (text, name, value) in cases {
            let flag: EnvFlag = text.parse().unwrap();
            assert_eq!(flag.name, name);
            assert_eq!(flag.value.as_ref().map(Secret::expose), value, "{text:?}");
        }
    }

    #[test]
    fn e4_an_env_file_keeps_values_verbatim() {
        let file = b"# comment\r\n\r\nA=b=\"c\" \r\n  # indented\n\tB=# no comment\nC\nD=\nA=again";
        let flags = parse_env_file(file).unwrap();
        let read: Vec<_> = flags.iter().map(|f| (f.name.as_str(), f.value.as_ref().map(Secret::expose))).collect();
        assert_eq!(
            read,
            [("A", Some("b=\"c\" ")), ("B", Some("# no comment")), ("C", None), ("D", Some("")), ("A", Some("again")),]
        );
        assert_eq!(parse_env_file(b""), Ok(vec![]));
    }

    #[test]
    fn e3_errors_name_the_line_and_never_the_value() {
        let files: [&[u8]; 4] = [b"A=1\n=hunter2", b"A=1\nA B=hunter2", b"A=1\nA=hunter2\0", b"A=1\nA=hunter2\xff"];
        for file in files {
            let error = parse_env_file(file).unwrap_err();
            assert!(error.to_string().starts_with("line 2: "), "{error}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        for text in ["=hunter2", "A B=hunter2", "A=hunter2\0", ""] {
            let error = text.parse::<EnvFlag>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
