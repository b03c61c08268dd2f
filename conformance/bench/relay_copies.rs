//! What a relay costs that looks at nothing: copies between a client and a server.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::net::unix::pipe;

use crate::{Result, because};

/// poll(2), read(2) and write(2) in one thread.
pub fn plain(program: &[String]) -> Result<()> {
    let (mut child, to, mut from) = start(program)?;
    // The standard library's own would look for line ends.
    let [mut input, mut output] = [own(rustix::stdio::stdin())?, own(rustix::stdio::stdout())?];
    let mut to = Some(to);
    let mut buffer = vec![0; 64 << 10];
    loop {
        // An end that is closed is looked for no more.
        let stdin = if to.is_some() { PollFlags::IN } else { PollFlags::empty() };
        let mut ready = [PollFd::new(&from, PollFlags::IN), PollFd::from_borrowed_fd(rustix::stdio::stdin(), stdin)];
        let ready = &mut ready[..if to.is_some() { 2 } else { 1 }];
        poll(ready, None).map_err(because("poll"))?;
        let [has_answer, has_request] = [0, 1].map(|at| ready.get(at).is_some_and(|fd| !fd.revents().is_empty()));
        if has_answer {
            match from.read(&mut buffer).map_err(because("reading from the server"))? {
                0 => return child.wait().map(drop).map_err(because("waiting")),
                count => output.write_all(&buffer[..count]).map_err(because("writing"))?,
            }
        }
        if has_request && let Some(server) = &mut to {
            match input.read(&mut buffer).map_err(because("reading from the client"))? {
                0 => to = None,
                count => server.write_all(&buffer[..count]).map_err(because("writing to the server"))?,
            }
        }
    }
}

/// tokio's `io::copy` on its own stdin and stdout.
pub fn by_tokio(program: &[String]) -> Result<()> {
    let (mut child, to, from) = start(program)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(because("tokio"))?;
    runtime.block_on(async {
        let mut to = pipe::Sender::from_owned_fd(to.into()).map_err(because("a pipe"))?;
        let mut from = pipe::Receiver::from_owned_fd(from.into()).map_err(because("a pipe"))?;
        tokio::spawn(async move {
            // The server ends with its input.
            let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut to).await;
        });
        tokio::io::copy(&mut from, &mut tokio::io::stdout()).await.map_err(because("copying"))
    })?;
    child.wait().map(drop).map_err(because("waiting"))
}

fn own(fd: BorrowedFd<'_>) -> Result<File> {
    fd.try_clone_to_owned().map(File::from).map_err(because("a descriptor"))
}

fn start(program: &[String]) -> Result<(Child, ChildStdin, ChildStdout)> {
    let (name, arguments) = program.split_first().ok_or("which program?")?;
    let mut command = Command::new(name);
    let mut child =
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(because(name))?;
    let (to, from) = (child.stdin.take().ok_or("no stdin")?, child.stdout.take().ok_or("no stdout")?);
    Ok((child, to, from))
}
