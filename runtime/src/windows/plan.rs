//! What of a plan Windows' own words need, without a call of Windows: limits of a job, a command line, an environment.

use std::path::{Path, PathBuf};

use crate::plan::Watched;

/// The limits of a job object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobLimits {
    /// Committed memory of all processes together, bytes.
    pub job_memory: usize,
    /// The same of one.
    pub process_memory: usize,
    /// Processes at once. Windows counts no threads.
    pub processes: u32,
    /// Of 10,000 cycles of all processors, how many; none where it may have all.
    pub cpu_rate: Option<u32>,
}

impl JobLimits {
    /// Those of a run, on a machine with so many processors.
    pub fn of(limits: &Watched, processors: u32) -> JobLimits {
        let memory = usize::try_from(limits.memory).unwrap_or(usize::MAX);
        let rate = u64::from(limits.cpu_millis) * 10 / u64::from(processors.max(1));
        JobLimits {
            job_memory: memory,
            process_memory: memory,
            processes: limits.pids,
            cpu_rate: u32::try_from(rate).ok().filter(|rate| *rate < 10_000).map(|rate| rate.max(1)),
        }
    }
}

/// A program with its arguments, as one line that the usual way of reading it takes apart the same.
///
/// # Errors
/// A word that no line can hold, in words.
pub fn command_line(program: &Path, arguments: &[String]) -> Result<String, String> {
    let program = program.to_str().ok_or("its path is no Unicode text")?;
    if program.contains('"') {
        return Err("its path holds a quotation mark".into());
    }
    // The program's own word is read up to the next quotation mark, whatever stands before that.
    let mut line = format!("\"{program}\"");
    for argument in arguments {
        if argument.contains('\0') {
            return Err("an argument holds a NUL".into());
        }
        line.push(' ');
        quote(argument, &mut line);
    }
    // CreateProcess: 32,767 with the NUL at its end.
    if line.encode_utf16().count() > 32_766 {
        return Err("its command line is longer than 32,766 characters".into());
    }
    Ok(line)
}

/// By the rules of CommandLineToArgvW: backslashes count twice before a quotation mark.
fn quote(argument: &str, line: &mut String) {
    if !argument.is_empty() && !argument.contains([' ', '\t', '\n', '\x0b', '"']) {
        line.push_str(argument);
        return;
    }
    line.push('"');
    let mut backslashes = 0;
    for c in argument.chars() {
        match c {
            '\\' => backslashes += 1,
            '"' => line.extend(std::iter::repeat_n('\\', backslashes * 2 + 1)),
            _ => line.extend(std::iter::repeat_n('\\', backslashes)),
        }
        if c != '\\' {
            backslashes = 0;
            line.push(c);
        }
    }
    line.extend(std::iter::repeat_n('\\', backslashes * 2));
    line.push('"');
}

/// An environment as CreateProcess takes it: sorted without regard to case, each with a NUL at its end, and one more.
///
/// # Errors
/// A variable that it cannot hold, in words.
pub fn environment_block(env: &[(String, String)]) -> Result<Vec<u16>, String> {
    let mut env: Vec<_> = env.iter().collect();
    env.sort_by_key(|(name, _)| name.to_uppercase());
    let mut block = Vec::new();
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("the variable {name:?} holds a NUL, or = in its name"));
        }
        block.extend(format!("{name}={value}").encode_utf16().chain([0]));
    }
    if block.is_empty() {
        block.push(0);
    }
    block.push(0);
    Ok(block)
}

/// Whether a program is one of cmd.exe's scripts. None is started: cmd.exe reads its arguments by rules of its own, by which a quotation
/// mark in one starts another program.
pub fn is_batch(program: &Path) -> bool {
    // Windows drops what stands at the end.
    let name = program.to_string_lossy().trim_end_matches([' ', '.']).to_ascii_lowercase();
    name.ends_with(".bat") || name.ends_with(".cmd")
}

/// The script that one of npm's `.cmd` files starts by node. `shim` is its path and `text` what it holds.
pub fn script_of_shim(shim: &Path, text: &str) -> Option<PathBuf> {
    let line = text.lines().rev().find(|line| line.trim_end().ends_with("%*"))?;
    let quoted = line.split('"').find(|part| part.starts_with("%dp0%\\") || part.starts_with("%~dp0\\"))?;
    let below = quoted.split_once('\\')?.1;
    let is_script = [".js", ".mjs", ".cjs"].iter().any(|end| below.ends_with(end));
    if !is_script || !text.contains("node") || below.contains('%') {
        return None;
    }
    let mut script = shim.parent()?.to_owned();
    for part in below.split('\\') {
        match part {
            ".." => drop(script.pop()),
            part => script.push(part),
        }
    }
    Some(script)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory: u64, cpu_millis: u32, pids: u32) -> Watched {
        Watched { memory, cpu_millis, cpu_time_seconds: 60, pids, fds: 64, timeout_seconds: 60 }
    }

    #[test]
    fn a_rate_is_of_all_processors() {
        let table = [
            (1000, 4, Some(2500)),
            (1000, 1, None),
            (1500, 2, Some(7500)),
            (1, 64, Some(1)),
            (8000, 4, None),
            (500, 0, Some(5000)),
        ];
        for (millis, processors, rate) in table {
            assert_eq!(
                JobLimits::of(&limits(1 << 20, millis, 7), processors).cpu_rate,
                rate,
                "{millis} on {processors}"
            );
        }
        let job = JobLimits::of(&limits(512 << 20, 1000, 64), 2);
        assert_eq!((job.job_memory, job.process_memory, job.processes), (512 << 20, 512 << 20, 64));
    }

    /// As CommandLineToArgvW reads it, by its description.
    fn taken_apart(line: &str) -> Vec<String> {
        let (program, rest) = line[1..].split_once('"').unwrap();
        let mut words = vec![program.to_owned()];
        let (mut word, mut quoted, mut backslashes) = (None::<String>, false, 0_usize);
        for c in rest.chars() {
            if c == '\\' {
                backslashes += 1;
                continue;
            }
            let before = backslashes;
            backslashes = 0;
            if c == '"' {
                let word = word.get_or_insert_default();
                word.extend(std::iter::repeat_n('\\', before / 2));
                if before % 2 == 1 {
                    word.push('"')
                } else {
                    quoted = !quoted
                }
                continue;
            }
            if before > 0 {
                word.get_or_insert_default().extend(std::iter::repeat_n('\\', before));
            }
            match c {
                ' ' | '\t' if !quoted => words.extend(word.take()),
                c => word.get_or_insert_default().push(c),
            }
        }
        if backslashes > 0 {
            word.get_or_insert_default().extend(std::iter::repeat_n('\\', backslashes));
        }
        words.extend(word);
        words
    }

    #[test]
    fn a_line_is_taken_apart_as_it_was() {
        let arguments = [
            "plain",
            "",
            "two words",
            r"C:\dir\",
            r"C:\a dir\",
            r#"say "hi""#,
            r#"\""#,
            r#"a\\"b"#,
            r"\\server\share",
            "\t",
            "ünïcode ☃",
            r#""& calc "#,
        ]
        .map(str::to_owned);
        let line = command_line(Path::new(r"C:\Program Files\node.exe"), &arguments).unwrap();
        let words = taken_apart(&line);
        assert_eq!(words[0], r"C:\Program Files\node.exe");
        assert_eq!(words[1..], arguments, "{line}");
    }

    #[test]
    fn what_no_line_can_hold_is_refused() {
        assert!(command_line(Path::new("a\"b"), &[]).is_err());
        assert!(command_line(Path::new("a"), &["b\0c".into()]).is_err());
        assert!(command_line(Path::new("a"), &["x".repeat(32_762)]).is_ok());
        assert!(command_line(Path::new("a"), &["x".repeat(32_763)]).is_err());
    }

    #[test]
    fn an_environment_is_sorted_and_ends_twice() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            environment_block(&pairs).map(|block| String::from_utf16(&block).unwrap())
        };
        assert_eq!(of(&[("b", "2"), ("A", "1=x")]).unwrap(), "A=1=x\0b=2\0\0");
        assert_eq!(of(&[]).unwrap(), "\0\0");
        assert!(of(&[("a=b", "c")]).is_err() && of(&[("a", "b\0c")]).is_err());
    }

    #[test]
    fn batch_files_are_known_by_every_spelling() {
        for name in ["a.cmd", "a.CMD", "a.b.bat", "a.Bat ", "a.cmd."] {
            assert!(is_batch(Path::new(name)), "{name}");
        }
        for name in ["a.exe", "cmd", "a.cmdx", "bat.exe"] {
            assert!(!is_batch(Path::new(name)), "{name}");
        }
    }

    /// As npm 10's cmd-shim writes it.
    #[test]
    fn npms_shim_names_its_script() {
        let text = "@ECHO off\r\nGOTO start\r\n:find_dp0\r\nSET dp0=%~dp0\r\nEXIT /b\r\n:start\r\nSETLOCAL\r\nCALL :find_dp0\r\n\r\n\
                    IF EXIST \"%dp0%\\node.exe\" (\r\n  SET \"_prog=%dp0%\\node.exe\"\r\n) ELSE (\r\n  SET \"_prog=node\"\r\n)\r\n\r\n\
                    endLocal & goto #_undefined_# 2>NUL || title %COMSPEC% & \"%_prog%\"  \"%dp0%\\..\\pkg\\dist\\index.js\" %*\r\n";
        let script = script_of_shim(Path::new("/x/node_modules/.bin/pkg.cmd"), text).unwrap();
        assert_eq!(script, Path::new("/x/node_modules/pkg/dist/index.js"));
        for other in ["@calc.exe %*", "@\"%dp0%\\run.exe\" %*", "@node \"%dp0%\\%x%.js\" %*", ""] {
            assert_eq!(script_of_shim(Path::new("/x/a.cmd"), other), None, "{other}");
        }
    }
}
