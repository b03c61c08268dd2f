//! Unpacking in a process of its own that can do nothing else: `smcp unpack`, which nobody types. Its stdin is the blob, its
//! stdout the directory, its stderr a pipe for what came of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use bundle::{Archive, Extracted, Order, extract};
use distribution::StagedLayer;
use runtime::{Status, Unpacking};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use crate::exit;

/// The word on its command line.
pub const VERB: &str = "unpack";

/// What the process answers.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Why Landlock did not keep it in its directory.
    without_landlock: Option<String>,
    extracted: Extracted,
}

/// Extracts an archive in a confined process. To start one, unlike to split one off, a process may have threads.
///
/// # Errors
/// Where the process cannot be started or confined, or ends without an answer. Where Landlock could not keep it in its
/// directory it is given nothing that was not compared with its digest.
pub fn in_a_process(archive: Archive<'_>, order: &Order, into: &StagedLayer) -> io::Result<Extracted> {
    let failed = |why: String| io::Error::other(format!("the process that unpacks: {why}"));
    let stdin: Stdio = match archive {
        Archive::Whole(blob) => blob.reopen()?.into(),
        Archive::Arriving(bytes) => match Unpacking::can_keep_files_apart() {
            Ok(()) => bytes.into(),
            Err(why) => return Err(io::Error::new(io::ErrorKind::Unsupported, why)),
        },
    };
    let order = serde_json::to_string(order)?;
    let mut child = Command::new("/proc/self/exe")
        .arg0("smcp")
        .args([VERB, &std::process::id().to_string(), &order])
        .env_clear()
        .stdin(stdin)
        .stdout(into.handle().try_clone_to_owned()?)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| failed(format!("it cannot be started: {why}")))?;
    let mut answer = Vec::new();
    let told = child.stderr.take().expect("it is a pipe").take(MAX_ANSWER).read_to_end(&mut answer);
    let ended = child.wait()?;
    told?;
    let answer: Answer = serde_json::from_slice(&answer)
        .map_err(|_| failed(format!("{ended}, {}", String::from_utf8_lossy(&answer).trim().escape_debug())))?;
    if let Some(why) = answer.without_landlock {
        tracing::warn!("a layer was unpacked without Landlock: {why}");
    }
    Ok(answer.extracted)
}

/// The longest answer: twenty warnings with names, a refusal.
const MAX_ANSWER: u64 = 1 << 20;

/// What `smcp unpack PARENT ORDER` does.
pub fn child(arguments: &[OsString]) -> u8 {
    match unpack(arguments).and_then(|answer| Ok(serde_json::to_vec(&answer)?)) {
        Ok(answer) if io::stderr().write_all(&answer).is_ok() => exit::OK,
        Ok(_) => exit::UNPACK,
        Err(why) => {
            let _ = write!(io::stderr(), "{why}");
            exit::UNPACK
        }
    }
}

fn unpack(arguments: &[OsString]) -> io::Result<Answer> {
    let unusable = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    let [parent, order] = &arguments.iter().map(|text| text.to_string_lossy()).collect::<Vec<_>>()[..] else {
        return Err(unusable("it is started by smcp itself"));
    };
    let parent = parent.parse().map_err(|_| unusable("the parent has no number"))?;
    let order: Order = serde_json::from_str(order)?;
    let blob = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let into: OwnedFd = io::stdout().as_fd().try_clone_to_owned()?;
    // A file is made with its mode at once.
    rustix::process::umask(Mode::empty());
    let without_landlock = match Unpacking::confine_process(into.as_fd(), parent)?.files() {
        Status::Full => None,
        status => Some(status.to_string()),
    };
    Ok(Answer { without_landlock, extracted: extract(blob, &order, into) })
}
