//! Verbs that look for what should be hidden.

use std::fs;
use std::io;
use std::path::Path;

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    Some(match verb {
        // Each of `r:PATH`, `w:PATH` and `x:PATH`, whatever comes of it.
        "try-all" => {
            rest.iter().for_each(|what| try_one(what));
            Ok("\"tried\"".into())
        }
        "hunt" => hunt(rest[0], rest[1]),
        "rename-and-hunt" => fs::rename(rest[0], rest[1]).and_then(|()| hunt(rest[2], rest[3])),
        "grow-deaf" => {
            super::sys::ignore(super::sys::SIGXFSZ);
            return attempt("grow", rest);
        }
        "grow" => fs::File::create(rest[0])
            .and_then(|file| file.set_len(rest[1].parse().expect("a number of bytes")))
            .map(|()| "\"grown\"".into()),
        _ => return None,
    })
}

fn try_one(what: &str) {
    let _ = match what.split_once(':').expect("how and what") {
        ("r", path) => fs::read(path).map(drop),
        ("w", path) => fs::write(path, "x"),
        ("x", path) => std::process::Command::new(path).args(["exit", "0"]).status().map(drop),
        _ => panic!("{what}"),
    };
}

/// Says that it is there, and looks for a file that holds `word` beneath `root` again and again, until it has one.
fn hunt(root: &str, word: &str) -> io::Result<String> {
    super::say("\"ready\"");
    loop {
        if let Some(found) = search(Path::new(root), word.as_bytes()) {
            super::say(&super::quote(&format!("found {found}")));
            std::process::exit(5);
        }
    }
}

fn search(directory: &Path, word: &[u8]) -> Option<String> {
    // What is not there any more, or cannot be read, is what is hoped for.
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let path = entry.path();
        let found = match entry.file_type() {
            Ok(kind) if kind.is_dir() => search(&path, word),
            _ => fs::read(&path)
                .is_ok_and(|bytes| bytes.windows(word.len()).any(|part| part == word))
                .then(|| path.display().to_string()),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}
