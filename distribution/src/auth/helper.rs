//! Docker's credential helpers: `docker-credential-NAME get`, the registry on stdin, JSON on stdout.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use serde::Deserialize;

use super::Login;
use crate::{Error, Result, Secret};

/// A helper may ask its user to open a key ring.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most of an answer that is read, in bytes.
const MAX_ANSWER: u64 = 64 << 10;
/// What helpers say on stdout where they know no login.
const NOT_FOUND: &str = "credentials not found";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Asks a helper for a login; none where it has none.
pub(super) fn get(name: &str, registry: &str) -> Result<Option<Login>> {
    let program = format!("docker-credential-{name}");
    let failed = |why: String| Error::Helper { program: program.clone(), why };
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
        return Err(failed("not the name of a program".into()));
    }
    let mut command = Command::new(&program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|why| failed(why.to_string()))?;
    let (mut to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    // One that does not read its input says so by its end.
    let _ = writeln!(to, "{registry}");
    drop(to);
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = from.take(MAX_ANSWER).read_to_end(&mut bytes);
        let _ = tell.send(read.map(|_| bytes));
    });
    let answer = told.recv_timeout(PATIENCE);
    if answer.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|why| failed(why.to_string()))?;
    let bytes = match answer {
        Ok(read) => read.map_err(|why| failed(why.to_string()))?,
        Err(_) => return Err(failed(format!("no answer within {} s", PATIENCE.as_secs()))),
    };
    if !status.success() {
        return match String::from_utf8_lossy(&bytes).contains(NOT_FOUND) {
            true => Ok(None),
            false => Err(failed(status.to_string())),
        };
    }
    // The answer itself is a secret: it stands in no error.
    let answer: Answer = serde_json::from_slice(&bytes).map_err(|_| failed("its answer is not understood".into()))?;
    let secret = Secret::new(answer.secret);
    Ok(Some(match answer.username.as_str() {
        "<token>" => Login::Identity(secret),
        _ => Login::Password { username: answer.username, password: secret },
    }))
}
