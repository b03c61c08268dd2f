//! Verbs that stand in for something of the world around a run: a client, the devices that programs use.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    Some(match verb {
        "client" => client(rest[0], &rest[1..]),
        "devices" => devices(),
        _ => return None,
    })
}

/// Holds a program by pipes, as clients hold their servers, passes on what it says, and closes its stdin never.
fn client(program: &str, arguments: &[&str]) -> io::Result<String> {
    let mut child = Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let held = child.stdin.take();
    io::copy(&mut child.stdout.take().expect("it is a pipe"), &mut super::raw_stdout())?;
    drop(held);
    std::process::exit(child.wait()?.code().unwrap_or(1))
}

/// What the devices answer. Stdin holds twelve bytes, which are read by three ways.
fn devices() -> io::Result<String> {
    let read = |path: &str| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(4).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let write = |path: &str| fs::OpenOptions::new().write(true).open(path)?.write(b"");
    let mut answers = Vec::new();
    let mut answer = |name: &str, got: io::Result<String>| {
        answers.push((name.to_owned(), super::quote(&got.unwrap_or_else(|refusal| refusal.to_string()))));
    };
    for path in ["/dev/null", "/dev/zero", "/dev/full", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        answer(path, read(path).map(|bytes| format!("{bytes:?}")));
    }
    for path in ["/dev/random", "/dev/urandom"] {
        let twice = read(path).and_then(|first| Ok((first.len(), first != read(path)?)));
        answer(path, twice.map(|(length, differ)| format!("{length} bytes, different: {differ}")));
    }
    for path in ["/dev/stdout", "/dev/stderr", "/dev/fd/1", "/dev/fd/2"] {
        answer(&format!("write {path}"), write(path).map(|n| n.to_string()));
    }
    for path in ["/dev/null", "/dev/zero", "/dev/full"] {
        let written = fs::OpenOptions::new().write(true).open(path).and_then(|mut file| file.write(b"xyz"));
        answer(&format!("write {path}"), written.map(|n| n.to_string()));
    }
    let tty = fs::metadata("/dev/tty").map(|about| format!("{:x}", about.rdev()));
    answer("/dev/tty", tty);
    answer("/dev/shm", shared());
    answer("a terminal of its own", sys::terminal());
    Ok(super::map(answers))
}

/// A file of shared memory, as shm_open(3) makes it.
fn shared() -> io::Result<String> {
    let path = format!("/dev/shm/probe-{}", std::process::id());
    let mut file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    file.write_all(b"shared")?;
    file.seek(SeekFrom::Start(0))?;
    let mut back = String::new();
    file.read_to_string(&mut back)?;
    Ok(back)
}

mod sys {
    use std::ffi::{CStr, c_char, c_int, c_long};
    use std::io;

    const O_RDWR: c_int = 2;
    const O_NOCTTY: c_int = 0o400;

    unsafe extern "C" {
        fn posix_openpt(flags: c_int) -> c_int;
        fn grantpt(fd: c_int) -> c_int;
        fn unlockpt(fd: c_int) -> c_int;
        fn ptsname_r(fd: c_int, name: *mut c_char, length: usize) -> c_int;
        fn open(path: *const c_char, flags: c_int, ...) -> c_int;
        fn write(fd: c_int, bytes: *const u8, length: usize) -> c_long;
        fn read(fd: c_int, bytes: *mut u8, length: usize) -> c_long;
    }

    fn check(result: c_long) -> io::Result<c_long> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// Makes a pseudo-terminal and passes three bytes through it.
    pub fn terminal() -> io::Result<String> {
        // SAFETY: numbers alone.
        let main = check(unsafe { posix_openpt(O_RDWR | O_NOCTTY) }.into())? as c_int;
        // SAFETY: numbers alone.
        check(unsafe { grantpt(main) }.into())?;
        // SAFETY: numbers alone.
        check(unsafe { unlockpt(main) }.into())?;
        let mut name = [0_u8; 64];
        // SAFETY: 64 bytes that live; what is written ends with NUL.
        check(unsafe { ptsname_r(main, name.as_mut_ptr().cast(), name.len()) }.into())?;
        let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
        // SAFETY: `name` lives and ends with NUL.
        let other = check(unsafe { open(name.as_ptr(), O_RDWR | O_NOCTTY) }.into())? as c_int;
        // SAFETY: three bytes that live.
        check(unsafe { write(main, b"abc\n".as_ptr(), 4) })?;
        let mut back = [0_u8; 8];
        // SAFETY: eight bytes that live.
        let length = check(unsafe { read(other, back.as_mut_ptr(), back.len()) })?;
        Ok(String::from_utf8_lossy(&back[..length as usize]).trim_end().to_owned())
    }
}
