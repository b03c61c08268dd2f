//! Streams that are waited for together, as poll(2) has it elsewhere: Windows waits for no pipe, so a thread of each does, and rings when
//! there is news. A thread reads no more than somebody has waited for, and has one piece under way.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::windows::io::{AsHandle, OwnedHandle};
use std::process::{ChildStderr, ChildStdout};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use distribution::system::Errno;

use super::signals::Signals;
use super::sys::{self, Process};

/// How much a thread reads or writes at once.
const PIECE: usize = 64 << 10;

static BELL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells whoever waits that there is news.
pub(super) fn ring() {
    let _held = held(&BELL.0);
    BELL.1.notify_all();
}

/// A stream that is open: to be read from, or to be written to.
#[derive(Debug)]
pub struct OwnedFd(Arc<Stream>);

#[derive(Debug)]
struct Stream {
    direction: Direction,
    kind: Kind,
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToRead,
    ToWrite,
}

/// What a stream is, looked at before anybody reads in it: whoever asks meanwhile waits for that read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pipe,
    Terminal,
    Other,
}

#[derive(Debug)]
struct State {
    /// Until its thread has it.
    file: Option<File>,
    turn: Turn,
    /// Nobody wants more of it.
    closed: bool,
}

#[derive(Debug)]
enum Turn {
    /// Nothing is under way.
    Rest,
    /// The thread is to read, or to write this.
    Asked(Vec<u8>),
    UnderWay,
    /// What was read, from a place on; nothing is the end.
    Read(Vec<u8>, usize),
    /// What was written, and how much of it.
    Written(Vec<u8>, usize),
    Failed(Errno),
}

impl OwnedFd {
    fn new(handle: impl Into<OwnedHandle>, direction: Direction) -> OwnedFd {
        let file = File::from(handle.into());
        let kind = match sys::file_kind(&file) {
            sys::FileKind::Pipe => Kind::Pipe,
            sys::FileKind::Console => Kind::Terminal,
            sys::FileKind::Other => Kind::Other,
        };
        OwnedFd::of(Some(file), direction, kind)
    }

    fn of(file: Option<File>, direction: Direction, kind: Kind) -> OwnedFd {
        let turn = if file.is_some() { Turn::Rest } else { Turn::Failed(Errno::PIPE) };
        let state = Mutex::new(State { file, turn, closed: false });
        OwnedFd(Arc::new(Stream { direction, kind, state, told: Condvar::new() }))
    }

    /// One of this process's own, which it may not have.
    fn own(stream: &impl AsHandle, direction: Direction) -> OwnedFd {
        match stream.as_handle().try_clone_to_owned() {
            Ok(handle) => OwnedFd::new(handle, direction),
            Err(_) => OwnedFd::of(None, direction, Kind::Other),
        }
    }

    /// The file of it, where nobody has waited for it yet.
    #[cfg(test)]
    pub(super) fn into_file(self) -> Option<File> {
        held(&self.0.state).file.take()
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        let mut state = held(&self.0.state);
        state.closed = true;
        // Its thread closes it once what is under way is through.
        state.file = None;
        self.0.told.notify_all();
    }
}

impl From<PipeReader> for OwnedFd {
    fn from(pipe: PipeReader) -> OwnedFd {
        OwnedFd::new(pipe, Direction::ToRead)
    }
}

impl From<PipeWriter> for OwnedFd {
    fn from(pipe: PipeWriter) -> OwnedFd {
        OwnedFd::new(pipe, Direction::ToWrite)
    }
}

impl From<ChildStdout> for OwnedFd {
    fn from(pipe: ChildStdout) -> OwnedFd {
        OwnedFd::new(pipe, Direction::ToRead)
    }
}

impl From<ChildStderr> for OwnedFd {
    fn from(pipe: ChildStderr) -> OwnedFd {
        OwnedFd::new(pipe, Direction::ToRead)
    }
}

/// What can be waited for.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'a>(What<'a>);

#[derive(Clone, Copy, Debug)]
enum What<'a> {
    Stream(&'a Arc<Stream>),
    /// The words of the console.
    Signals,
    /// The end of a process; at once where there is none.
    End(Option<&'a Process>),
}

impl<'a> BorrowedFd<'a> {
    pub(super) fn end_of(process: Option<&'a Process>) -> BorrowedFd<'a> {
        BorrowedFd(What::End(process))
    }

    fn stream(self) -> Result<&'a Arc<Stream>, Errno> {
        match self.0 {
            What::Stream(stream) => Ok(stream),
            What::Signals | What::End(_) => Err(Errno::INVAL),
        }
    }
}

/// Whatever has something that can be waited for.
pub trait AsFd {
    /// That.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(What::Stream(&self.0))
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl<T: AsFd> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd(What::Signals)
    }
}

/// What is waited for, and what there was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollFlags(u8);

impl PollFlags {
    /// There is something to read.
    pub const IN: PollFlags = PollFlags(1);
    /// There is room to write.
    pub const OUT: PollFlags = PollFlags(2);
    /// It has failed.
    pub const ERR: PollFlags = PollFlags(4);
    /// Nobody is at the other end.
    pub const HUP: PollFlags = PollFlags(8);

    /// Nothing but failure.
    pub const fn empty() -> PollFlags {
        PollFlags(0)
    }

    /// Whether it is nothing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether they have one in common.
    pub fn intersects(self, other: PollFlags) -> bool {
        self.0 & other.0 != 0
    }
}

impl std::ops::BitOr for PollFlags {
    type Output = PollFlags;

    fn bitor(self, other: PollFlags) -> PollFlags {
        PollFlags(self.0 | other.0)
    }
}

/// One of several that are waited for.
#[derive(Debug)]
pub struct PollFd<'a> {
    fd: BorrowedFd<'a>,
    wanted: PollFlags,
    came: PollFlags,
}

impl<'a> PollFd<'a> {
    /// That of something.
    pub fn new(of: &'a impl AsFd, wanted: PollFlags) -> PollFd<'a> {
        PollFd::from_borrowed_fd(of.as_fd(), wanted)
    }

    /// The same.
    pub fn from_borrowed_fd(fd: BorrowedFd<'a>, wanted: PollFlags) -> PollFd<'a> {
        PollFd { fd, wanted, came: PollFlags::empty() }
    }

    /// What there was.
    pub fn revents(&self) -> PollFlags {
        self.came
    }

    fn look(&self) -> PollFlags {
        let if_wanted = |flag: PollFlags| if self.wanted.intersects(flag) { flag } else { PollFlags::empty() };
        match self.fd.0 {
            What::Signals if sys::is_told() => if_wanted(PollFlags::IN),
            What::End(process) if process.is_none_or(has_ended) => if_wanted(PollFlags::IN),
            What::Signals | What::End(_) => PollFlags::empty(),
            What::Stream(stream) => stream.look(if_wanted),
        }
    }
}

fn has_ended(process: &Process) -> bool {
    !matches!(process.ended(Duration::ZERO), Ok(None))
}

impl Stream {
    /// What there is of it. Where reading is wanted and nothing is there, it begins.
    fn look(self: &Arc<Self>, if_wanted: impl Fn(PollFlags) -> PollFlags) -> PollFlags {
        let mut state = held(&self.state);
        match (&state.turn, self.direction) {
            (Turn::Rest, Direction::ToRead) => {
                if !if_wanted(PollFlags::IN).is_empty() {
                    self.ask(&mut state, Vec::new());
                }
                PollFlags::empty()
            }
            (Turn::Rest | Turn::Written(..), Direction::ToWrite) => if_wanted(PollFlags::OUT),
            (Turn::Read(..), _) => if_wanted(PollFlags::IN),
            (Turn::Failed(_), Direction::ToRead) => if_wanted(PollFlags::IN) | PollFlags::ERR,
            (Turn::Failed(_), Direction::ToWrite) => if_wanted(PollFlags::OUT) | PollFlags::ERR,
            (Turn::Written(..), Direction::ToRead) | (Turn::Asked(_) | Turn::UnderWay, _) => PollFlags::empty(),
        }
    }

    /// Has the thread read, or write this; it is started where it was not.
    fn ask(self: &Arc<Self>, state: &mut State, bytes: Vec<u8>) {
        state.turn = Turn::Asked(bytes);
        if let Some(file) = state.file.take() {
            let stream = Arc::clone(self);
            if thread::Builder::new().spawn(move || stream.serve(file)).is_err() {
                // No other word than that of something that does not come back: whoever is told to wait would be told so for ever.
                state.turn = Turn::Failed(Errno::NOSYS);
            }
        }
        self.told.notify_all();
    }

    /// The thread of it.
    fn serve(&self, mut file: File) {
        loop {
            let mut state = held(&self.state);
            let bytes = loop {
                // What somebody has given away is written all the same.
                match std::mem::replace(&mut state.turn, Turn::UnderWay) {
                    Turn::Asked(bytes) if self.direction == Direction::ToWrite || !state.closed => break bytes,
                    other => state.turn = other,
                }
                if state.closed {
                    return;
                }
                state = self.told.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(state);
            let turn = match self.direction {
                Direction::ToRead => read_piece(&mut file),
                Direction::ToWrite => write_piece(&mut file, bytes),
            };
            let is_over = matches!(&turn, Turn::Failed(_)) || matches!(&turn, Turn::Read(bytes, _) if bytes.is_empty());
            held(&self.state).turn = turn;
            if is_over {
                // The other end sees that, too.
                drop(file);
                return ring();
            }
            ring();
        }
    }
}

fn read_piece(file: &mut File) -> Turn {
    let mut bytes = vec![0; PIECE];
    loop {
        match file.read(&mut bytes) {
            // A writer can send nothing, which is no end.
            Ok(0) if sys::has_a_writer(file) => {}
            Ok(count) => {
                bytes.truncate(count);
                return Turn::Read(bytes, 0);
            }
            Err(why) => return Turn::Failed(Errno::from_io_error(&why).unwrap_or(Errno::INVAL)),
        }
    }
}

fn write_piece(file: &mut File, bytes: Vec<u8>) -> Turn {
    match file.write(&bytes) {
        Ok(count) => Turn::Written(bytes, count),
        Err(why) => Turn::Failed(Errno::from_io_error(&why).unwrap_or(Errno::INVAL)),
    }
}

/// Waits until there is news of one of these, this long at most. Of how many there is.
///
/// # Errors
/// None.
pub fn poll(fds: &mut [PollFd<'_>], most: Option<&Timespec>) -> Result<usize, Errno> {
    let deadline = most.and_then(|most| Instant::now().checked_add(most.duration()));
    let mut bell = held(&BELL.0);
    loop {
        let mut news = 0;
        for fd in fds.iter_mut() {
            fd.came = fd.look();
            news += usize::from(!fd.came.is_empty());
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if news > 0 || left == Some(Duration::ZERO) {
            return Ok(news);
        }
        bell = match left {
            Some(left) => BELL.1.wait_timeout(bell, left).map_or_else(|held| held.into_inner().0, |(held, _)| held),
            None => BELL.1.wait(bell).unwrap_or_else(PoisonError::into_inner),
        };
    }
}

/// A time to wait.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Timespec {
    pub tv_sec: i64,
    pub tv_nsec: i64,
}

impl Timespec {
    fn duration(&self) -> Duration {
        Duration::new(self.tv_sec.try_into().unwrap_or(0), self.tv_nsec.try_into().unwrap_or(0))
    }
}

/// Takes what was read; none is the end. Nothing is waited for.
///
/// # Errors
/// The system's; `AGAIN` where there is nothing yet.
pub fn read(from: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    let stream = from.as_fd().stream()?;
    let mut state = held(&stream.state);
    match &mut state.turn {
        Turn::Read(bytes, at) => {
            let count = (bytes.len() - *at).min(into.len());
            into[..count].copy_from_slice(&bytes[*at..*at + count]);
            *at += count;
            // The end stays what it is.
            if !bytes.is_empty() && *at == bytes.len() {
                state.turn = Turn::Rest;
            }
            Ok(count)
        }
        Turn::Failed(why) => Err(*why),
        Turn::Rest | Turn::Asked(_) | Turn::UnderWay | Turn::Written(..) => Err(Errno::AGAIN),
    }
}

/// Has bytes written, and says of how many that is done. Whoever is told `AGAIN` waits and comes again with the same.
///
/// # Errors
/// The system's; `AGAIN` where they are under way.
pub fn write(to: impl AsFd, bytes: &[u8]) -> Result<usize, Errno> {
    let stream = to.as_fd().stream()?;
    let mut state = held(&stream.state);
    match &state.turn {
        Turn::Failed(why) => Err(*why),
        Turn::Written(written, count) if bytes.starts_with(&written[..*count]) && *count > 0 => {
            let count = *count;
            state.turn = Turn::Rest;
            Ok(count)
        }
        // What was written is of somebody who has given it up.
        Turn::Rest | Turn::Written(..) if !bytes.is_empty() => {
            stream.ask(&mut state, bytes[..bytes.len().min(PIECE)].to_vec());
            Err(Errno::AGAIN)
        }
        Turn::Rest | Turn::Written(..) => Ok(0),
        Turn::Asked(_) | Turn::UnderWay | Turn::Read(..) => Err(Errno::AGAIN),
    }
}

/// Whether it is a pipe.
pub fn is_pipe(fd: BorrowedFd<'_>) -> bool {
    fd.stream().is_ok_and(|stream| stream.kind == Kind::Pipe)
}

/// Whether it is a terminal.
pub fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    fd.stream().is_ok_and(|stream| stream.kind == Kind::Terminal)
}

/// Standard input of this process.
pub fn stdin() -> BorrowedFd<'static> {
    static STDIN: LazyLock<OwnedFd> = LazyLock::new(|| OwnedFd::own(&io::stdin(), Direction::ToRead));
    STDIN.as_fd()
}

/// Standard output of this process.
pub fn stdout() -> BorrowedFd<'static> {
    static STDOUT: LazyLock<OwnedFd> = LazyLock::new(|| OwnedFd::own(&io::stdout(), Direction::ToWrite));
    STDOUT.as_fd()
}

/// Standard error of this process.
pub fn stderr() -> BorrowedFd<'static> {
    static STDERR: LazyLock<OwnedFd> = LazyLock::new(|| OwnedFd::own(&io::stderr(), Direction::ToWrite));
    STDERR.as_fd()
}

/// A pipe whose ends no other program inherits: to be read from, to be written to.
///
/// # Errors
/// The system's.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (from, to) = io::pipe().map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::INVAL))?;
    Ok((from.into(), to.into()))
}
