//! A client's end of a session.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::{Result, about, because};

/// What a client talks by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// pipe(2), as most clients make them.
    Pipe,
    /// socketpair(2), as Node makes them.
    Socket,
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Kind::Pipe { "pipes" } else { "sockets" })
    }
}

/// A server, or a relay and its server, that has shaken hands.
pub struct Session {
    child: Child,
    to: Option<File>,
    from: File,
}

impl Session {
    /// Starts it.
    pub fn open(mut command: Command, kind: Kind) -> Result<Session> {
        let ([input, to], [from, output]) = (pair(kind)?, pair(kind)?);
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::null());
        let child = command.spawn().map_err(because(command.get_program().display()))?;
        // The child's ends are closed with it.
        drop(command);
        let mut session = Session { child, to: Some(File::from(to)), from: File::from(from) };
        session.says(b"{\"id\":0,\"method\":\"initialize\"}\n")?;
        let mut answer = vec![0; 64 << 10];
        let count = session.from.read(&mut answer).map_err(because("reading"))?;
        if !answer[..count].ends_with(b"\n") {
            return Err(format!("it answered {:?}", String::from_utf8_lossy(&answer[..count])));
        }
        session.says(b"{\"method\":\"notifications/initialized\"}\n")?;
        session.trips(200, 1)?;
        Ok(session)
    }

    /// Sends a message and awaits it, so many times; µs of each.
    pub fn trips(&mut self, size: usize, count: usize) -> Result<Vec<f64>> {
        let mut message = vec![b'p'; size];
        message[..2].copy_from_slice(b"{\"");
        message[size - 1] = b'\n';
        let mut back = vec![0; size];
        let mut trip = || {
            let began = Instant::now();
            self.says(&message)?;
            self.from.read_exact(&mut back).map_err(because("reading"))?;
            Ok(began.elapsed().as_secs_f64() * 1e6)
        };
        let trips = (0..count).map(|_| trip()).collect::<Result<_>>()?;
        if back == message { Ok(trips) } else { Err("another message came back".into()) }
    }

    /// Has the server write so many bytes; the seconds that they took, and the CPU seconds of the process that was started.
    pub fn flood(&mut self, amount: usize) -> Result<(f64, f64)> {
        let before = self.cpu()?;
        let mut buffer = vec![0; 256 << 10];
        let began = Instant::now();
        self.says(format!("{{\"flood\":{amount}}}\n").as_bytes())?;
        let mut left = amount;
        while left > 0 {
            match self.from.read(&mut buffer).map_err(because("reading"))? {
                0 => return Err("the server has ended".into()),
                count => left = left.checked_sub(count).ok_or("more came than was asked for")?,
            }
        }
        Ok((began.elapsed().as_secs_f64(), self.cpu()? - before))
    }

    /// MiB that the process which was started has in memory.
    pub fn memory(&self) -> Result<f64> {
        let status = about(self.child.id(), "status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("it has ended")?;
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().map_err(because("VmRSS"))?;
        Ok(kib / 1024.0)
    }

    /// CPU seconds of the process, all threads that it has or had, in ticks of 10 ms: proc_pid_stat(5), whose fields 14 and 15
    /// are the 12th and 13th after the name.
    fn cpu(&self) -> Result<f64> {
        let stat = about(self.child.id(), "stat")?;
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u32 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
        Ok(f64::from(ticks) / 100.0)
    }

    fn says(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.as_mut().ok_or("it is closed")?.write_all(bytes).map_err(because("writing"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Each of them ends with its input.
        self.to = None;
        let _ = self.child.wait();
    }
}

/// Two ends, the one to read from first.
fn pair(kind: Kind) -> Result<[OwnedFd; 2]> {
    match kind {
        Kind::Pipe => std::io::pipe().map(|(read, write)| [read.into(), write.into()]).map_err(because("a pipe")),
        Kind::Socket => UnixStream::pair().map(|(one, other)| [one.into(), other.into()]).map_err(because("a socket")),
    }
}
