//! Which files the kernel opens to execute a program: the program, the interpreters of scripts, the dynamic loader.
//! Shared libraries are mapped and not executed, as far as Landlock is concerned.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::plan::{Mount, Plan, Programs, What};

/// The kernel follows four interpreters, and `env` starts one more.
const DEPTH: usize = 6;

/// The files that must be executable for `program` to run with these arguments; `search` is its PATH.
pub fn needed(program: &Path, arguments: &[String], search: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut next = Some((program.to_owned(), arguments.to_vec()));
    while let Some((program, arguments)) = next.filter(|_| files.len() <= DEPTH) {
        // `env NAME=VALUE PROGRAM`, as in `#!/usr/bin/env node`: it executes another one itself.
        let started = (program.file_name().is_some_and(|name| name == "env")).then(|| started_by_env(&arguments));
        next = match read(&program) {
            Ok(Kind::Script { interpreter, argument }) => Some((interpreter, argument.into_iter().collect())),
            Ok(Kind::Elf { loader }) => {
                files.extend(loader);
                started.flatten().and_then(|name| Some((find(&name, search)?, Vec::new())))
            }
            Ok(Kind::Other) | Err(_) => None,
        };
        files.push(program);
    }
    files
}

/// The first of that name in `search` that can be executed; a name with `/` stands for itself.
pub fn find(name: &str, search: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    search
        .split(':')
        .map(|directory| Path::new(directory).join(name))
        .find(|path| rustix::fs::access(path, Access::EXEC_OK).is_ok() && path.is_file())
}

/// The programs of a plan that the server cannot start though they are named, each with the reason: a misspelt path would
/// look like a grant that does not work.
pub fn useless_programs(plan: &Plan) -> Vec<String> {
    let Programs::Named(paths) = &plan.programs else { return Vec::new() };
    let of = |path: &PathBuf| {
        let around = plan.mounts.iter().filter(|mount| path.starts_with(&mount.target));
        let (root, below) = match around.max_by_key(|mount| mount.target.components().count()) {
            None => (&plan.tree, path.strip_prefix("/").ok()?),
            Some(Mount { target, what: What::Granted { source, .. } }) => (source, path.strip_prefix(target).ok()?),
            // What is there the server makes itself.
            Some(_) => return None,
        };
        let why = match kind_of_file(root, below) {
            Ok(FileType::Directory) => "it is a directory, and only programs can be named",
            Err(Errno::NOENT | Errno::NOTDIR) => "there is no such program inside",
            Ok(_) | Err(_) => return None,
        };
        Some(format!("{}: {why}", path.display()))
    };
    paths.iter().filter_map(of).collect()
}

/// What a path leads to, with links as they lead in a tree whose root is `root`.
fn kind_of_file(root: &Path, path: &Path) -> Result<FileType, Errno> {
    if path.as_os_str().is_empty() {
        return Ok(FileType::from_raw_mode(rustix::fs::stat(root)?.st_mode));
    }
    let open = |from, path: &Path, resolve| {
        rustix::fs::openat2(from, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    let root = open(rustix::fs::CWD, root, ResolveFlags::empty())?;
    let file = open(root.as_fd(), path, ResolveFlags::IN_ROOT)?;
    Ok(FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode))
}

/// What a program is started by.
pub enum Kind {
    /// The program of its first line, with one argument.
    Script {
        /// That program.
        interpreter: PathBuf,
        /// The rest of the line.
        argument: Option<String>,
    },
    /// The kernel, and the loader that it names.
    Elf {
        /// That loader; `None` for a static program.
        loader: Option<PathBuf>,
    },
    /// Nothing that is known.
    Other,
}

/// Looks what a program is.
///
/// # Errors
/// The system's, where it cannot be read.
pub fn read(program: &Path) -> io::Result<Kind> {
    let file = File::open(program)?;
    // As much as the kernel reads, linux/binfmts.h.
    let mut start = [0_u8; 256];
    let length = file.read_at(&mut start, 0)?;
    let start = &start[..length];
    if let Some(line) = start.strip_prefix(b"#!") {
        return Ok(script(line));
    }
    if start.starts_with(b"\x7fELF\x02\x01") {
        return Ok(Kind::Elf { loader: loader(&file, start)? });
    }
    Ok(Kind::Other)
}

/// The first word of the line is the interpreter, the rest one argument.
fn script(line: &[u8]) -> Kind {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let (interpreter, argument) = match line.trim().split_once([' ', '\t']) {
        Some((interpreter, argument)) => (interpreter, Some(argument.trim().to_owned())),
        None => (line.trim(), None),
    };
    Kind::Script { interpreter: interpreter.into(), argument }
}

/// What `env` executes: `-S` gives it one argument that it splits.
fn started_by_env(arguments: &[String]) -> Option<String> {
    let words = arguments.iter().flat_map(|argument| argument.split_whitespace());
    words.map(str::to_owned).find(|word| !word.starts_with('-') && !word.contains('='))
}

/// The text of the program header PT_INTERP of a 64-bit little-endian file, elf(5).
fn loader(file: &File, start: &[u8]) -> io::Result<Option<PathBuf>> {
    const PT_INTERP: u64 = 3;
    // Longer than any path; and more headers than any program has.
    const LONGEST: u64 = 4096;
    const MOST: u64 = 128;
    const HEADER: usize = 56;
    let (Some(table), Some(size), Some(count)) = (number(start, 32, 8), number(start, 54, 2), number(start, 56, 2))
    else {
        return Ok(None);
    };
    // What states another size the kernel does not start.
    if size != HEADER as u64 {
        return Ok(None);
    }
    let mut headers = vec![0_u8; count.min(MOST) as usize * HEADER];
    file.read_exact_at(&mut headers, table)?;
    for header in headers.chunks_exact(HEADER) {
        if number(header, 0, 4) == Some(PT_INTERP) {
            let (offset, length) = (number(header, 8, 8).unwrap_or(0), number(header, 32, 8).unwrap_or(0));
            let mut text = vec![0_u8; length.min(LONGEST) as usize];
            file.read_exact_at(&mut text, offset)?;
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            return Ok(Some(Path::new(std::ffi::OsStr::from_bytes(text)).to_owned()));
        }
    }
    Ok(None)
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_program_needs_its_loader() {
        let program = std::env::current_exe().unwrap();
        let files = needed(&program, &[], "");
        assert!(files.contains(&program));
        // The tests are linked dynamically, unless they are not.
        assert!(files.iter().all(|file| file.is_file()), "{files:?}");
    }

    #[test]
    fn a_script_needs_its_interpreter_and_what_env_starts() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let search = directory.path().to_str().unwrap();
        let inner = make("inner", "no program\n");
        // An `env` of one's own, so that the test needs none of the machine.
        let env = make("env", "");
        fs::copy(std::env::current_exe().unwrap(), &env).unwrap();
        for line in ["inner", "-S inner --flag", "A=b inner"] {
            let script = make("script", &format!("#! {} {line}\n", env.display()));
            let files = needed(&script, &[], search);
            for file in [&script, &env, &inner] {
                assert!(files.contains(file), "{line}: {files:?}");
            }
        }
        let outer = make("outer", &format!("#!{}\n", inner.display()));
        assert_eq!(needed(&outer, &[], search), [outer, inner]);
        let itself = make("itself", &format!("#!{search}/itself\n"));
        assert!(needed(&itself, &[], search).len() <= DEPTH + 1);
        assert_eq!(needed(Path::new("/none"), &[], search), [Path::new("/none")]);
    }
}
