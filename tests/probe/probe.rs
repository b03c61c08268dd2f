//! The probe: one static program that tries things, run bare and inside the cage.
//!
//! `tests/probe.rs` compiles it with rustc alone, once a machine; it is never shipped. Usage: `probe VERB [ARGUMENTS…]`.
//! An answer is a line `{"said":VALUE}` on stdout, as the relay passes no others. Exit 0: it worked. Exit [`REFUSED`]: the system said no, and stdout
//! says `{"refused": …}`. Anything else is a fault of the probe or of what runs it.
//!
//! It has its own declarations of the few libc calls it makes, because rustc alone compiles it; each wrapper in `sys`
//! passes pointers to live Rust values only.

mod escape;
mod files;
mod kernel;
mod limits;
mod ports;
mod network;
mod outside;
mod stand_ins;
mod words;
mod talk;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

/// What the system refuses ends with this, which neither smcp nor a signal uses.
const REFUSED: u8 = 9;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let verb = arguments.first().map_or("", String::as_str);
    let rest: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match attempt(verb, &rest) {
        Ok(answer) => {
            say(&answer);
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            say(&format!("{{\"refused\": {}}}", quote(&refusal.to_string())));
            ExitCode::from(REFUSED)
        }
    }
}

/// One attempt; the answer is JSON.
fn attempt(verb: &str, rest: &[&str]) -> io::Result<String> {
    let number = |at: usize| -> i64 { rest[at].parse().unwrap_or_else(|_| panic!("{:?} is no number", rest[at])) };
    match verb {
        // Streams.
        "cat" => cat(),
        "sink" => sink(),
        "pour" => pour(number(0) as usize, number(1) as u64, rest.get(2).map_or(0, |_| number(2) as i32)),
        "duplex" => duplex(number(0) as usize, number(1) as u64),
        "stderr" => {
            io::stderr().write_all(&vec![b'e'; number(0) as usize])?;
            Ok("\"said\"".into())
        }
        // Puts a file that it may not open in the place of its streams, for whoever looks at these.
        "hold-as-streams" => {
            use std::os::fd::AsRawFd;
            use std::os::unix::fs::OpenOptionsExt;
            const O_PATH: i32 = 0o10000000;
            let file = fs::OpenOptions::new().read(true).custom_flags(O_PATH).open(rest[0])?;
            for stream in 0..3 {
                sys::duplicate(file.as_raw_fd(), stream)?;
            }
            std::thread::sleep(Duration::from_millis(number(1) as u64));
            std::process::exit(0)
        }
        // What it was started with.
        "args" => Ok(list(rest.iter().map(|a| quote(a)))),
        "env" => Ok(map(env::vars_os().map(|(k, v)| (text(k), quote(&text(v)))))),
        "cwd" => Ok(quote(&env::current_dir()?.display().to_string())),
        "fds" => descriptors(),
        "ids" => status(&["Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"]),
        "account" => account(),
        "limits" => Ok(list(fs::read_to_string("/proc/self/limits")?.lines().map(quote))),
        "hostname" => Ok(quote(fs::read_to_string("/proc/sys/kernel/hostname")?.trim())),
        // Ends.
        "exit" => std::process::exit(number(0) as i32),
        "abort" => std::process::abort(),
        "raise" => {
            sys::raise(number(0) as i32);
            Ok("\"still here\"".into())
        }
        // Lives.
        "hang" => hang(),
        "until-eof" => {
            say("\"ready\"");
            io::copy(&mut io::stdin().lock(), &mut io::sink())?;
            std::process::exit(number(0) as i32)
        }
        "stubborn" => {
            sys::ignore(sys::SIGTERM);
            sys::ignore(sys::SIGHUP);
            sys::ignore(sys::SIGINT);
            hang()
        }
        "family" => family(number(0) as usize),
        "orphans" => orphans(number(0) as usize),
        "on-term" => {
            sys::exit_on_term(number(0) as i32);
            hang()
        }
        // Files.
        "read" => Ok(quote(&String::from_utf8_lossy(&fs::read(rest[0])?))),
        "read-of" => Ok(quote(&String::from_utf8_lossy(&fs::read(env::var_os(rest[0]).unwrap_or_default())?))),
        "write" => {
            fs::write(rest[0], rest[1])?;
            Ok("\"written\"".into())
        }
        "append" => {
            fs::OpenOptions::new().append(true).open(rest[0])?.write_all(rest[1].as_bytes())?;
            Ok("\"appended\"".into())
        }
        // Leaves nothing where it works, which it must not inside.
        "make" => {
            fs::File::create_new(rest[0])?;
            fs::remove_file(rest[0]).map(|()| "\"made\"".into())
        }
        // The same in a directory that a variable names.
        "make-beneath" => {
            let path = std::path::Path::new(&env::var_os(rest[0]).unwrap_or_default()).join("new");
            fs::File::create_new(&path)?;
            fs::remove_file(path).map(|()| "\"made\"".into())
        }
        "remove" => fs::remove_file(rest[0]).map(|()| "\"removed\"".into()),
        "list" => {
            let mut names: Vec<_> = fs::read_dir(rest[0])?.collect::<Result<_, _>>()?;
            names.sort_by_key(fs::DirEntry::file_name);
            Ok(list(names.iter().map(|e| quote(&text(e.file_name())))))
        }
        "owner" => {
            let about = fs::symlink_metadata(rest[0])?;
            Ok(format!("{{\"uid\": {}, \"gid\": {}, \"mode\": {}}}", about.uid(), about.gid(), about.mode() & 0o7777))
        }
        "chmod" => {
            fs::set_permissions(rest[0], fs::Permissions::from_mode(number(1) as u32))?;
            Ok("\"changed\"".into())
        }
        "exec" => Err(Command::new(rest[0]).args(&rest[1..]).exec()),
        "copy-and-exec" => {
            fs::copy("/proc/self/exe", rest[0])?;
            fs::set_permissions(rest[0], fs::Permissions::from_mode(0o755))?;
            Err(Command::new(rest[0]).args(&rest[1..]).exec())
        }
        // Other processes.
        "processes" => processes(rest.first().copied()),
        "see" => see(rest[0]),
        "signal" => sys::kill(number(0) as i32, number(1) as i32).map(|()| "\"sent\"".into()),
        "ptrace" => sys::seize(number(0) as i32).map(|()| "\"seized\"".into()),
        "open-memory" => {
            let memory = fs::File::open(rest[0])?;
            // Opening is checked; a read at 0 fails for another reason.
            Ok(format!("\"descriptor of {} bytes\"", memory.metadata()?.len()))
        }
        // Networks.
        "connect" => connect(rest[0]),
        "say" => say_to(rest[0], rest[1]),
        "connect-abstract" => {
            UnixStream::connect_addr(&SocketAddr::from_abstract_name(rest[0])?)?;
            Ok("\"connected\"".into())
        }
        "interfaces" => {
            let table = fs::read_to_string("/proc/self/net/dev")?;
            let names = table.lines().skip(2).filter_map(|l| l.split(':').next()).map(str::trim);
            Ok(list(names.map(quote)))
        }
        // Powers.
        "raise-capabilities" => sys::raise_capabilities().map(|()| "\"raised\"".into()),
        "unshare-user" => sys::unshare(sys::CLONE_NEWUSER).map(|()| "\"unshared\"".into()),
        "mount" => {
            sys::mount("probe", rest[0], "tmpfs", 0)?;
            sys::unmount(rest[0]).map(|()| "\"mounted\"".into())
        }
        "remount-writable" => {
            sys::mount("", rest[0], "", sys::MS_REMOUNT | sys::MS_BIND).map(|()| "\"remounted\"".into())
        }
        "unmount" => sys::unmount(rest[0]).map(|()| "\"unmounted\"".into()),
        "set-hostname" => sys::set_hostname(rest[0]).map(|()| "\"named\"".into()),
        "make-device" => {
            // The device numbers of /dev/null: harmless where it works.
            sys::make_device(rest[0], 1, 3)?;
            fs::remove_file(rest[0])?;
            Ok("\"made\"".into())
        }
        "chroot" => std::os::unix::fs::chroot(rest[0]).map(|()| "\"rooted\"".into()),
        "set-uid" => sys::set_uid(number(0) as u32).map(|()| "\"changed\"".into()),
        // System V shared memory.
        "shm-make" => sys::shm_make(number(0) as i32).map(|()| "\"made\"".into()),
        "shm-find" => sys::shm_find(number(0) as i32).map(|_| "\"found\"".into()),
        "shm-remove" => sys::shm_remove(number(0) as i32).map(|()| "\"removed\"".into()),
        other => kernel::attempt(other, rest)
            .or_else(|| limits::attempt(other, rest))
            .or_else(|| escape::attempt(other, rest))
            .or_else(|| ports::attempt(other, rest))
            .or_else(|| stand_ins::attempt(other, rest))
            .or_else(|| words::attempt(other, rest))
            .or_else(|| network::attempt(other, rest))
            .or_else(|| outside::attempt(other, rest))
            .or_else(|| files::attempt(other, rest))
            .or_else(|| talk::attempt(other, rest))
            .unwrap_or_else(|| panic!("no verb {other:?}")),
    }
}

/// Copies stdin to stdout, every byte as it arrives.
fn cat() -> io::Result<String> {
    let (mut input, mut output) = (io::stdin().lock(), raw_stdout());
    let mut buffer = vec![0; 64 << 10];
    loop {
        match input.read(&mut buffer)? {
            0 => std::process::exit(0),
            n => output.write_all(&buffer[..n])?,
        }
    }
}

/// Reads stdin to its end and answers how much it was, and a checksum of it.
fn sink() -> io::Result<String> {
    let mut all = Vec::new();
    io::stdin().lock().read_to_end(&mut all)?;
    Ok(format!("{{\"bytes\": {}, \"sum\": \"{:016x}\"}}", all.len(), sum(&all)))
}

/// Writes `bytes` of noise and ends without having read anything.
fn pour(bytes: usize, seed: u64, code: i32) -> io::Result<String> {
    raw_stdout().write_all(&noise(bytes, seed))?;
    std::process::exit(code)
}

/// Writes noise while it reads, neither waiting for the other; says on stderr what it read.
fn duplex(bytes: usize, seed: u64) -> io::Result<String> {
    let writer = thread::spawn(move || raw_stdout().write_all(&noise(bytes, seed)));
    let mut all = Vec::new();
    io::stdin().lock().read_to_end(&mut all)?;
    writer.join().expect("the writer does not panic")?;
    eprintln!("{{\"bytes\": {}, \"sum\": \"{:016x}\"}}", all.len(), sum(&all));
    std::process::exit(0)
}

/// Noise that the tests can make as well: xorshift64 of a seed that is not 0, in lines that begin as messages do.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut out = Vec::with_capacity(bytes + 16);
    let mut left_of_line = 0;
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if left_of_line == 0 {
            left_of_line = 1 + state as usize % 9000;
            out.extend(b"\n{\"");
        }
        left_of_line -= 1;
        out.extend(state.to_le_bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
    }
    out.truncate(bytes);
    // The first line begins with the message itself, and the last has its end.
    out.rotate_left(1.min(bytes));
    out
}

/// FNV-1a in 64 bits, which a test can compute too.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

/// Says that it is there and stays, whatever happens to stdin.
fn hang() -> io::Result<String> {
    say("\"ready\"");
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

/// Leaves double-forked children in sessions of their own, deaf to TERM and HUP, and stays, as deaf as they are.
fn family(children: usize) -> io::Result<String> {
    sys::ignore(sys::SIGTERM);
    sys::ignore(sys::SIGHUP);
    for _ in 0..children {
        sys::in_orphan(|| {
            loop {
                thread::sleep(Duration::from_secs(3600));
            }
        })?;
    }
    hang()
}

/// Leaves orphans that end by themselves, and stays until stdin ends.
fn orphans(count: usize) -> io::Result<String> {
    for _ in 0..count {
        sys::in_orphan(|| ())?;
    }
    say("\"ready\"");
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok("\"done\"".into())
}

fn pids() -> io::Result<impl Iterator<Item = u32>> {
    Ok(fs::read_dir("/proc")?.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()))
}

/// The command lines of all processes that can be seen, or of those that hold `word`.
fn processes(word: Option<&str>) -> io::Result<String> {
    let mut lines = BTreeMap::new();
    for pid in pids()? {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if word.is_none_or(|w| line.contains(w)) {
            lines.insert(pid.to_string(), quote(line.trim_end()));
        }
    }
    Ok(map(lines))
}

/// Looks for another process whose arguments hold `word`; its own do, so it leaves itself out.
fn see(word: &str) -> io::Result<String> {
    for pid in pids()?.filter(|pid| *pid != std::process::id()) {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        // `smcp run … see WORD` and `probe see WORD` themselves do not count.
        if line.contains(word) && !line.contains(&format!("see {word}")) {
            return Ok(pid.to_string());
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no such process in sight"))
}

/// The open descriptors and what they are, without the one that lists them.
fn descriptors() -> io::Result<String> {
    let mut open = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let name = text(entry?.file_name());
        if let Ok(target) = fs::read_link(format!("/proc/self/fd/{name}")) {
            let target = target.display().to_string();
            if !target.ends_with("/fd") {
                open.insert(name, quote(&target));
            }
        }
    }
    Ok(map(open))
}

fn status(fields: &[&str]) -> io::Result<String> {
    let mut found = BTreeMap::new();
    for line in fs::read("/proc/self/status")?.lines() {
        let line = line?;
        if let Some((name, value)) = line.split_once(':').filter(|(name, _)| fields.contains(name)) {
            found.insert(name.to_owned(), quote(&value.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    }
    Ok(map(found))
}

/// The line of passwd(5) for the own uid.
fn account() -> io::Result<String> {
    let uid = fs::metadata("/proc/self")?.uid().to_string();
    let passwd = fs::read_to_string("/etc/passwd")?;
    let own = passwd.lines().find(|line| line.split(':').nth(2) == Some(uid.as_str()));
    own.map(quote).ok_or_else(|| io::Error::other(format!("no entry for {uid} in {passwd}")))
}

fn connect(to: &str) -> io::Result<String> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for address in to.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(3)) {
            Ok(_) => return Ok("\"connected\"".into()),
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

/// Says a word to an address, and gives what comes back until the end.
fn say_to(to: &str, word: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(word.as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(quote(&answer))
}

/// Stdout without Rust's line buffer.
fn raw_stdout() -> fs::File {
    use std::os::fd::AsFd;
    fs::File::from(io::stdout().as_fd().try_clone_to_owned().expect("stdout is open"))
}

fn say(answer: &str) {
    let mut out = io::stdout();
    // A line that is no object is no message: smcp keeps it from its client.
    let _ = writeln!(out, "{{\"said\":{answer}}}");
    let _ = out.flush();
}

fn text(raw: OsString) -> String {
    String::from_utf8_lossy(raw.as_bytes()).into_owned()
}

fn quote(raw: &str) -> String {
    let mut out = String::from("\"");
    for c in raw.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

fn map(items: impl IntoIterator<Item = (String, String)>) -> String {
    let items: Vec<_> = items.into_iter().map(|(k, v)| format!("{}: {v}", quote(&k))).collect();
    format!("{{{}}}", items.join(", "))
}

/// The calls that std does not have.
mod sys {
    use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
    use std::io;
    use std::sync::atomic::{AtomicI32, Ordering};

    pub const SIGHUP: i32 = 1;
    pub const SIGINT: i32 = 2;
    pub const SIGTERM: i32 = 15;
    pub const SIGXFSZ: i32 = 25;
    pub const CLONE_NEWUSER: i32 = 0x1000_0000;
    pub const MS_REMOUNT: u64 = 32;
    pub const MS_BIND: u64 = 4096;
    const SIG_DFL: usize = 0;
    const SIG_IGN: usize = 1;
    const PTRACE_SEIZE: c_int = 0x4206;
    const IPC_CREAT: c_int = 0o1000;
    const IPC_RMID: c_int = 0;
    const S_IFCHR: u32 = 0o020_000;
    const CAP_SYS_ADMIN: u32 = 21;
    const SYS_CAPGET: c_long = if cfg!(target_arch = "x86_64") { 125 } else { 90 };
    const SYS_CAPSET: c_long = if cfg!(target_arch = "x86_64") { 126 } else { 91 };

    unsafe extern "C" {
        fn fork() -> c_int;
        fn setsid() -> c_int;
        fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn _exit(code: c_int) -> !;
        #[link_name = "raise"]
        fn raise_(signal: c_int) -> c_int;
        fn dup2(from: c_int, to: c_int) -> c_int;
        #[link_name = "kill"]
        fn kill_(pid: c_int, signal: c_int) -> c_int;
        fn signal(signal: c_int, handler: usize) -> usize;
        #[link_name = "unshare"]
        fn unshare_(flags: c_int) -> c_int;
        #[link_name = "mount"]
        fn mount_(
            from: *const c_char,
            to: *const c_char,
            kind: *const c_char,
            flags: c_ulong,
            data: *const c_void,
        ) -> c_int;
        fn umount2(at: *const c_char, flags: c_int) -> c_int;
        fn sethostname(name: *const c_char, length: usize) -> c_int;
        fn mknod(path: *const c_char, mode: u32, device: u64) -> c_int;
        fn setuid(uid: u32) -> c_int;
        fn ptrace(request: c_int, pid: c_int, address: *mut c_void, data: *mut c_void) -> c_long;
        fn shmget(key: c_int, size: usize, flags: c_int) -> c_int;
        fn shmctl(id: c_int, command: c_int, buffer: *mut c_void) -> c_int;
        fn syscall(number: c_long, ...) -> c_long;
    }

    fn check(result: c_int) -> io::Result<c_int> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn c(text: &str) -> CString {
        CString::new(text).expect("an argument holds no NUL")
    }

    pub fn raise(number: i32) {
        // SAFETY: SIG_DFL is a valid handler; std has one of its own for SIGSEGV.
        unsafe { signal(number, SIG_DFL) };
        // SAFETY: no pointers.
        unsafe { raise_(number) };
    }

    /// dup2(2)
    pub fn duplicate(from: i32, to: i32) -> io::Result<()> {
        // SAFETY: numbers alone.
        check(unsafe { dup2(from, to) }).map(drop)
    }

    pub fn kill(pid: i32, number: i32) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { kill_(pid, number) }).map(drop)
    }

    pub fn ignore(number: i32) {
        // SAFETY: SIG_IGN is a valid handler.
        unsafe { signal(number, SIG_IGN) };
    }

    static CODE: AtomicI32 = AtomicI32::new(0);

    extern "C" fn leave(_: c_int) {
        // SAFETY: _exit is async-signal-safe.
        unsafe { _exit(CODE.load(Ordering::Relaxed)) }
    }

    pub fn exit_on_term(code: i32) {
        CODE.store(code, Ordering::Relaxed);
        let handler: extern "C" fn(c_int) = leave;
        // SAFETY: `leave` has a handler's signature and calls async-signal-safe functions alone.
        unsafe { signal(SIGTERM, handler as usize) };
    }

    /// Runs `body` in a grandchild with a session of its own, whose parent has ended.
    pub fn in_orphan(body: impl Fn()) -> io::Result<()> {
        // SAFETY: the probe has one thread where this is called, so the child may run anything.
        let child = check(unsafe { fork() })?;
        if child == 0 {
            // SAFETY: as above.
            unsafe { setsid() };
            // SAFETY: as above.
            if unsafe { fork() } == 0 {
                body();
            }
            // SAFETY: ends this process without running the parent's destructors.
            unsafe { _exit(0) }
        }
        let mut status = 0;
        // SAFETY: `status` lives.
        check(unsafe { waitpid(child, &raw mut status, 0) }).map(drop)
    }

    pub fn unshare(flags: i32) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { unshare_(flags) }).map(drop)
    }

    pub fn mount(from: &str, to: &str, kind: &str, flags: u64) -> io::Result<()> {
        let (from, to, kind) = (c(from), c(to), c(kind));
        // SAFETY: three live strings and no data.
        check(unsafe { mount_(from.as_ptr(), to.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) }).map(drop)
    }

    pub fn unmount(at: &str) -> io::Result<()> {
        let at = c(at);
        // SAFETY: a live string.
        check(unsafe { umount2(at.as_ptr(), 0) }).map(drop)
    }

    pub fn set_hostname(name: &str) -> io::Result<()> {
        // SAFETY: pointer and length of one live string.
        check(unsafe { sethostname(name.as_ptr().cast(), name.len()) }).map(drop)
    }

    pub fn make_device(path: &str, major: u64, minor: u64) -> io::Result<()> {
        let path = c(path);
        // SAFETY: a live string.
        check(unsafe { mknod(path.as_ptr(), S_IFCHR | 0o666, major << 8 | minor) }).map(drop)
    }

    pub fn set_uid(uid: u32) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { setuid(uid) }).map(drop)
    }

    pub fn seize(pid: i32) -> io::Result<()> {
        // SAFETY: PTRACE_SEIZE takes no pointers here.
        let result = unsafe { ptrace(PTRACE_SEIZE, pid, std::ptr::null_mut(), std::ptr::null_mut()) };
        check(result as c_int).map(drop)
    }

    /// Adds CAP_SYS_ADMIN to the effective and permitted sets.
    pub fn raise_capabilities() -> io::Result<()> {
        let header: [u32; 2] = [0x2008_0522, 0];
        let mut sets: [u32; 6] = [0; 6];
        // SAFETY: version 3 of capget reads a header of two words and fills a body of six.
        check(unsafe { syscall(SYS_CAPGET, header.as_ptr(), sets.as_mut_ptr()) } as c_int)?;
        sets[0] |= 1 << CAP_SYS_ADMIN;
        sets[1] |= 1 << CAP_SYS_ADMIN;
        // SAFETY: the same shape, read alone.
        check(unsafe { syscall(SYS_CAPSET, header.as_ptr(), sets.as_ptr()) } as c_int).map(drop)
    }

    pub fn shm_make(key: i32) -> io::Result<()> {
        // SAFETY: no pointers.
        check(unsafe { shmget(key, 4096, IPC_CREAT | 0o666) }).map(drop)
    }

    pub fn shm_find(key: i32) -> io::Result<i32> {
        // SAFETY: no pointers.
        check(unsafe { shmget(key, 0, 0) })
    }

    pub fn shm_remove(key: i32) -> io::Result<()> {
        let id = shm_find(key)?;
        // SAFETY: IPC_RMID ignores the buffer.
        check(unsafe { shmctl(id, IPC_RMID, std::ptr::null_mut()) }).map(drop)
    }
}
