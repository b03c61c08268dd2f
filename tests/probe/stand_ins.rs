//! Verbs that stand in for something of the world around a run: a client, an older kernel, the devices that programs use.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    let number = |at: usize| -> u32 { rest[at].parse().unwrap_or_else(|_| panic!("{:?} is no number", rest[at])) };
    Some(match verb {
        "client" => client(rest[0], &rest[1..]),
        "on-a-kernel-without" => sys::refuse(number(0), number(1), number(2))
            .and_then(|()| Err(Command::new(rest[3]).args(&rest[4..]).exec())),
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
    use std::ffi::{CStr, c_char, c_int, c_long, c_ulong};
    use std::io;

    const PR_SET_NO_NEW_PRIVS: c_int = 38;
    const PR_SET_SECCOMP: c_int = 22;
    const SECCOMP_MODE_FILTER: c_ulong = 2;
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7FFF_0000;
    const ERRNO: u32 = 0x0005_0000;
    const O_RDWR: c_int = 2;
    const O_NOCTTY: c_int = 0o400;

    #[repr(C)]
    struct Instruction {
        code: u16,
        if_true: u8,
        if_false: u8,
        operand: u32,
    }

    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const Instruction,
    }

    unsafe extern "C" {
        fn prctl(option: c_int, ...) -> c_int;
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

    /// From here on, also for what is executed: this call answers `errno` where its second argument is above `above`.
    pub fn refuse(call: u32, errno: u32, above: u32) -> io::Result<()> {
        let at = |code, if_true, if_false, operand| Instruction { code, if_true, if_false, operand };
        // struct seccomp_data, seccomp(2): the number at 0, the second argument at 24.
        let filter = [
            at(LOAD, 0, 0, 0),
            at(JUMP_EQUAL, 0, 2, call),
            at(LOAD, 0, 0, 24),
            at(JUMP_GREATER, 1, 0, above),
            at(RETURN, 0, 0, ALLOW),
            at(RETURN, 0, 0, ERRNO | errno),
        ];
        let program = Program { length: filter.len() as u16, instructions: filter.as_ptr() };
        let (one, none): (c_ulong, c_ulong) = (1, 0);
        // SAFETY: numbers alone.
        check(unsafe { prctl(PR_SET_NO_NEW_PRIVS, one, none, none, none) }.into())?;
        // SAFETY: the kernel copies `filter`, which lives, before it returns.
        check(unsafe { prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const program, none, none) }.into()).map(drop)
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
