//! Hooks get the state of the container with the bundle that the caller knows. libcontainer would tell them the directory that
//! smcp made for it: so it starts smcp in a hook's place, which corrects the state and becomes the hook.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::MemfdFlags;
use serde_json::{Value, json};

/// The hidden word by which smcp is started in a hook's place: `smcp oci-hook BUNDLE PATH ARG0 ARGS…`.
pub const VERB: &str = "oci-hook";

/// Puts smcp in the place of a hook of `config.json`.
pub fn wrap(hook: &mut Value, bundle: &str) {
    let path = hook["path"].take();
    let mut words = vec![json!("smcp"), json!(VERB), json!(bundle), path.clone()];
    match hook["args"].as_array() {
        Some(own) if !own.is_empty() => words.extend(own.iter().cloned()),
        _ => words.push(path),
    }
    hook["path"] = json!("/proc/self/exe");
    hook["args"] = Value::Array(words);
}

/// The state of the container, which a hook gets on standard input.
///
/// # Errors
/// Where there is none.
pub fn state() -> io::Result<Value> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

/// Becomes the hook. Returns only where that failed.
pub fn run(words: &[OsString]) -> io::Error {
    let [bundle, path, name, arguments @ ..] = words else {
        return io::Error::other("not meant to be started by hand");
    };
    let corrected = || -> io::Result<File> {
        let mut state = state()?;
        state["bundle"] = json!(bundle.to_string_lossy());
        let mut file = File::from(rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC)?);
        file.write_all(state.to_string().as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    match corrected() {
        Ok(state) => Command::new(path).arg0(name).args(arguments).stdin(state).exec(),
        Err(why) => why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_keeps_its_words() {
        let mut hook = json!({"path": "/bin/a", "args": ["a", "x"], "timeout": 3});
        wrap(&mut hook, "/b");
        let words = json!(["smcp", VERB, "/b", "/bin/a", "a", "x"]);
        assert_eq!(hook, json!({"path": "/proc/self/exe", "args": words, "timeout": 3}));
        let mut bare = json!({"path": "/bin/a"});
        wrap(&mut bare, "/b");
        assert_eq!(bare["args"], json!(["smcp", VERB, "/b", "/bin/a", "/bin/a"]));
    }
}
