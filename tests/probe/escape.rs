//! Verbs of the escape tests: many attempts in one run, system calls written as text, and ways to files, terminals and
//! other processes. Each undoes what it does where it works.

use std::env;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::net::{ToSocketAddrs, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;
use std::time::Duration;

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    let done = |result: io::Result<()>| result.map(|()| "\"done\"".to_owned());
    Some(match verb {
        "each" => each(),
        "sys" => call(rest[0], &rest[1..]).map(|answer| answer.to_string()),
        // Files by other ways than their paths.
        "open" => done(File::open(rest[0]).map(drop)),
        "stat" => fs::symlink_metadata(rest[0]).map(|about| about.len().to_string()),
        "readlink" => fs::read_link(rest[0]).map(|to| super::quote(&to.display().to_string())),
        "holds" => done(fs::read(rest[0]).and_then(|text| holds(&text, rest[1]))),
        "holds-any" => done(fs::read(rest[0]).and_then(|text| some(!text.is_empty(), "it is empty"))),
        "holds-any-of-a-page" => done(File::open(rest[0]).and_then(|mut file| {
            let mut page = Vec::new();
            file.by_ref().take(4096).read_to_end(&mut page)?;
            some(!page.is_empty(), "it is empty")
        })),
        "read-at" => read_at(rest[0], rest[1]),
        "read-from" => env::set_current_dir(rest[0]).and_then(|()| read(rest[1])),
        "read-by-link" => undone(symlink(rest[1], rest[0]).and_then(|()| read(rest[0])), rest[0]),
        "read-by-hard-link" => fs::hard_link(rest[1], rest[0]).and_then(|()| undone(read(rest[0]), rest[0])),
        "read-by-path-descriptor" => path_descriptor(rest[0]).and_then(|file| read(&by_number(&file))),
        "read-by-handle" => read_by_handle(rest[0]),
        "copy-range" => done(copy_range(rest[0], rest[1])),
        "move" => done(fs::rename(rest[0], rest[1]).and_then(|()| fs::rename(rest[1], rest[0]))),
        "exchange" => done(exchange(rest[0], rest[1]).and_then(|()| exchange(rest[0], rest[1]))),
        "reopen-to-write" => {
            done(File::open(rest[0]).and_then(|file| OpenOptions::new().write(true).open(by_number(&file)).map(drop)))
        }
        "reopen-path-to-write" => {
            done(path_descriptor(rest[0]).and_then(|f| OpenOptions::new().write(true).open(by_number(&f)).map(drop)))
        }
        "truncate" => done(fs::metadata(rest[0]).and_then(|about| {
            call("truncate", &[&format!("s:{}", rest[0]), &about.len().to_string()]).map(drop)
        })),
        "touch" => done(call("utimensat", &["-100", &format!("s:{}", rest[0]), "0", "0"]).map(drop)),
        "change-mode" => done(fs::metadata(rest[0]).and_then(|about| fs::set_permissions(rest[0], about.permissions()))),
        "set-attribute" => done(set_attribute(rest[0])),
        "get-attribute" => done(get_attribute(rest[0])),
        "make-directory" => done(fs::create_dir(rest[0]).and_then(|()| fs::remove_dir(rest[0]))),
        "leave-link" => done(symlink(rest[1], rest[0])),
        "make-link" => done(symlink("nowhere", rest[0]).and_then(|()| fs::remove_file(rest[0]))),
        "make-socket" => done(UnixListener::bind(rest[0]).and_then(|_| fs::remove_file(rest[0]))),
        "make-unnamed" => {
            const O_TMPFILE: i32 = 0o20_000_000 | if cfg!(target_arch = "x86_64") { 0o200_000 } else { 0o40_000 };
            done(OpenOptions::new().write(true).custom_flags(O_TMPFILE).mode(0o600).open(rest[0]).map(drop))
        }
        "map-to-write" => {
            let file = OpenOptions::new().read(true).write(true).open(rest[0]);
            done(file.and_then(|file| sys::map(&file, sys::WRITE)))
        }
        "map-to-execute" => done(File::open(rest[0]).and_then(|file| sys::map(&file, sys::EXECUTE))),
        "set-flags" => done(File::open(rest[0]).and_then(|file| sys::set_flags(&file, 0))),
        "make-immutable" => done(File::open(rest[0]).and_then(|file| sys::set_flags(&file, sys::IMMUTABLE))),
        "watch" => done(watch(rest[0])),
        // Sockets.
        "connect-unix" => done(UnixStream::connect(rest[0]).map(drop)),
        "take-descriptor" => UnixStream::connect(rest[0]).and_then(|stream| sys::receive(&stream)).and_then(|file| {
            let mut text = String::new();
            File::from(file).read_to_string(&mut text).map(|_| super::quote(&text))
        }),
        // A socket of a pair, which can be had where no other Unix socket can.
        "bind-abstract" => done(sys::bind_abstract(rest[0])),
        "connect-abstract-datagram" => done(UnixDatagram::unbound().and_then(|socket| {
            socket.connect_addr(&SocketAddr::from_abstract_name(rest[0])?)
        })),
        "ask-datagram" => done(ask_datagram(rest[0])),
        "ask-interface" => sys::interface_number(rest[0]).map(|number| number.to_string()),
        "change-interface" => done(sys::change_interface()),
        "open-transparent" => done(sys::socket_option(2, 1, 0, 19)),
        "force-buffer" => done(sys::socket_option(2, 1, 1, 33)),
        // Terminals of one's own.
        "push-input" => done(terminal(|terminal| sys::push_input(terminal))),
        "set-discipline" => done(terminal(|terminal| sys::set_discipline(terminal))),
        // Other processes.
        "find-in-environments" => find_in("environ", rest[0]),
        "find-in-command-lines" => find_in("cmdline", rest[0]),
        // The kernel and this process.
        "queue-signals" => done(sys::queue_signals(rest[0].parse().expect("a number of signals"))),
        "see-physical-addresses" => physical_address(),
        "see-kernel-addresses" => kernel_address(),
        "lock-memory" => done(lock_memory(rest[0].parse().expect("a number of MiB"))),
        // Becomes a program on a kernel without Landlock, as far as that program can tell.
        "without-landlock" => sys::refuse_landlock().and_then(|()| Err(Command::new(rest[0]).args(&rest[1..]).exec())),
        "exec-copy" => undone(super::attempt("copy-and-exec", rest), rest[0]),
        "make-ipc" => done(make_ipc(rest[0])),
        "exec-at" => Err(exec_at(rest[0], &rest[1..])),
        "loosen-seccomp" => done(sys::allow_every_call().and_then(|()| call("unshare", &["0x10000000"]).map(drop))),
        "loosen-landlock" => done(loosen_landlock(rest[0])),
        _ => return None,
    })
}

/// Reads attempts from stdin up to its end or an empty line, one a line, words separated by tabs, and makes each in a process of
/// its own. Answers one line each, in their order: `{"works": ANSWER}`, `{"errno": N, "refused": TEXT}` (`errno` 0: not the kernel's),
/// `{"code": N}` where it became another program, `{"signal": N}`.
///
/// In a word, `@parent` is the process id of this program's parent and `@self` its own: an attempt has another one, and what is
/// its own in `/proc` may be less than the program's.
fn each() -> io::Result<String> {
    let unless_empty = |line: &io::Result<String>| !line.as_ref().is_ok_and(String::is_empty);
    let lines = io::stdin().lines().take_while(unless_empty).collect::<io::Result<Vec<_>>>()?;
    let (parent, own) = (parent_id().to_string(), std::process::id().to_string());
    for line in lines {
        let line = line.replace("@parent", &parent).replace("@self", &own);
        let words: Vec<&str> = line.split('\t').collect();
        let answer = sys::in_child(|| match super::attempt(words[0], &words[1..]) {
            Ok(answer) => format!("{{\"works\": {answer}}}"),
            Err(refusal) => {
                let errno = refusal.raw_os_error().unwrap_or(0);
                format!("{{\"errno\": {errno}, \"refused\": {}}}", super::quote(&refusal.to_string()))
            }
        })?;
        super::say(&answer);
    }
    std::process::exit(0)
}

fn some(is: bool, why: &str) -> io::Result<()> {
    if is { Ok(()) } else { Err(io::Error::other(why.to_owned())) }
}

fn holds(text: &[u8], word: &str) -> io::Result<()> {
    some(String::from_utf8_lossy(text).contains(word), "the word is not in it")
}

fn read(path: &str) -> io::Result<String> {
    Ok(super::quote(&String::from_utf8_lossy(&fs::read(path)?)))
}

/// Removes what an attempt made, whatever became of it.
fn undone(result: io::Result<String>, made: &str) -> io::Result<String> {
    let _ = fs::remove_file(made);
    result
}

fn by_number(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn path_descriptor(path: &str) -> io::Result<File> {
    const O_PATH: i32 = 0o10_000_000;
    OpenOptions::new().read(true).custom_flags(O_PATH).open(path)
}

/// `openat` beneath an open directory, with a path that leaves it.
fn read_at(directory: &str, path: &str) -> io::Result<String> {
    let number = call("openat", &[&format!("fd:{directory}"), &format!("s:{path}"), "0", "0"])?;
    read(&format!("/proc/self/fd/{number}"))
}

fn read_by_handle(path: &str) -> io::Result<String> {
    let directory = File::open(path)?;
    let number = sys::open_by_handle(&directory, path)?;
    read(&format!("/proc/self/fd/{number}"))
}

fn copy_range(from: &str, to: &str) -> io::Result<()> {
    let to = OpenOptions::new().create_new(true).write(true).open(to).and_then(|file| {
        fs::remove_file(to)?;
        Ok(file)
    })?;
    let from = File::open(from)?;
    let (from, to) = (from.as_raw_fd().to_string(), to.as_raw_fd().to_string());
    call("copy_file_range", &[&from, "0", &to, "0", "4096", "0"]).map(drop)
}

fn exchange(one: &str, other: &str) -> io::Result<()> {
    call("renameat2", &["-100", &format!("s:{one}"), "-100", &format!("s:{other}"), "2"]).map(drop)
}

fn set_attribute(path: &str) -> io::Result<()> {
    let path = format!("s:{path}");
    call("setxattr", &[&path, "s:user.probe", "s:1", "1", "0"])?;
    call("removexattr", &[&path, "s:user.probe"]).map(drop)
}

/// An attribute that is not there tells as much.
fn get_attribute(path: &str) -> io::Result<()> {
    const ENODATA: i32 = 61;
    match call("getxattr", &[&format!("s:{path}"), "s:user.probe", "zero", "16"]) {
        Err(why) if why.raw_os_error() == Some(ENODATA) => Ok(()),
        other => other.map(drop),
    }
}

fn watch(path: &str) -> io::Result<()> {
    const IN_CREATE: &str = "0x100";
    let queue = call("inotify_init1", &["0"])?.to_string();
    call("inotify_add_watch", &[&queue, &format!("s:{path}"), IN_CREATE]).map(drop)
}

fn ask_datagram(to: &str) -> io::Result<()> {
    let address = to.to_socket_addrs()?.next().expect("an address was given");
    let socket = UdpSocket::bind(if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" })?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.connect(address)?;
    socket.send(b"hello")?;
    socket.recv(&mut [0; 16]).map(drop)
}

/// Opens a pair of terminals, and makes the second the controlling one of a session of its own.
fn terminal(act: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
    let leader = OpenOptions::new().read(true).write(true).open("/dev/ptmx")?;
    let terminal = sys::open_peer(&leader)?;
    // Its end would hang this process up.
    super::sys::ignore(super::sys::SIGHUP);
    call("setsid", &[])?;
    sys::take_terminal(&terminal)?;
    act(&terminal)
}

/// Looks for a word in what `/proc` shows of every other process but those of the attempts themselves.
fn find_in(file: &str, word: &str) -> io::Result<String> {
    let own = [std::process::id(), parent_id()];
    for pid in super::pids()?.filter(|pid| !own.contains(pid)) {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        if holds(&text, word).is_ok() {
            return Ok(pid.to_string());
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no other process has it"))
}

/// The page frame of a page of this process, proc_pid_pagemap(5): 0 where it is hidden.
fn physical_address() -> io::Result<String> {
    use std::os::unix::fs::FileExt;
    let page = Box::new([1_u8; 4096]);
    let mut entry = [0_u8; 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entry, page.as_ptr() as u64 / 4096 * 8)?;
    let frame = u64::from_le_bytes(entry) & ((1 << 55) - 1);
    some(frame != 0, "the frame is hidden").map(|()| frame.to_string())
}

fn kernel_address() -> io::Result<String> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    let seen = symbols.lines().take(64).find(|line| !line.starts_with("0000000000000000"));
    seen.map(super::quote).ok_or_else(|| io::Error::other("all addresses are hidden"))
}

fn lock_memory(mebibytes: usize) -> io::Result<()> {
    sys::lock(&vec![0_u8; mebibytes << 20])
}

/// Makes a System V object of one's own, and removes it.
fn make_ipc(kind: &str) -> io::Result<()> {
    const IPC_PRIVATE: &str = "0";
    const IPC_CREAT: &str = "0x380";
    const IPC_RMID: &str = "0";
    let id = match kind {
        "shm" => call("shmget", &[IPC_PRIVATE, "4096", IPC_CREAT]),
        "sem" => call("semget", &[IPC_PRIVATE, "1", IPC_CREAT]),
        _ => call("msgget", &[IPC_PRIVATE, IPC_CREAT]),
    };
    let id = id?.to_string();
    let remove: &[&str] = if kind == "sem" { &[&id, "0", IPC_RMID] } else { &[&id, IPC_RMID, "0"] };
    call(&format!("{kind}ctl"), remove).map(drop)
}

fn exec_at(path: &str, arguments: &[&str]) -> io::Error {
    match File::open(path) {
        Ok(file) => sys::exec_at(&file, arguments),
        Err(why) => why,
    }
}

/// A second domain that allows everything, then what the first one refuses.
fn loosen_landlock(file: &str) -> io::Result<()> {
    sys::allow_every_file()?;
    OpenOptions::new().write(true).open(file).map(drop)
}

/// A system call as text. An argument is a number (also `0x…` and negative), `s:TEXT` (a string), `zero` (4 KiB of zeros),
/// `w:N,N,…` (64-bit words), `vector` (one `iovec` on those zeros), or a descriptor: `fd:PATH` (open for reading), `rw:PATH`
/// (for both), `path:PATH` (O_PATH), `pidfd:PID`.
fn call(name: &str, arguments: &[&str]) -> io::Result<i64> {
    let number = super::kernel::number_of(name)
        .or_else(|| sys::NUMBERS.iter().find(|row| row.0 == name).map(|row| row.1))
        .unwrap_or_else(|| panic!("no system call {name}"));
    let mut values = [0_i64; 6];
    // What the arguments point to, alive until the call is over.
    let mut memory: Vec<Box<[u64]>> = Vec::new();
    let mut strings: Vec<CString> = Vec::new();
    let mut files: Vec<OwnedFd> = Vec::new();
    for (value, argument) in values.iter_mut().zip(arguments) {
        let mut keep = |words: Vec<u64>| {
            memory.push(words.into_boxed_slice());
            memory.last().expect("one was pushed").as_ptr() as i64
        };
        let mut keep_open = |file: io::Result<OwnedFd>| {
            files.push(file?);
            Ok::<_, io::Error>(i64::from(files.last().expect("one was pushed").as_raw_fd()))
        };
        *value = match argument.split_once(':') {
            Some(("s", text)) => {
                strings.push(CString::new(text).expect("a word holds no NUL"));
                strings.last().expect("one was pushed").as_ptr() as i64
            }
            Some(("w", words)) => keep(words.split(',').map(|word| integer(word).cast_unsigned()).collect()),
            Some(("fd", path)) => keep_open(File::open(path).map(OwnedFd::from))?,
            Some(("rw", path)) => {
                keep_open(OpenOptions::new().read(true).write(true).open(path).map(OwnedFd::from))?
            }
            Some(("path", path)) => keep_open(path_descriptor(path).map(OwnedFd::from))?,
            Some(("pidfd", pid)) => keep_open(sys::open_process(integer(pid)))?,
            None if *argument == "zero" => keep(vec![0; 512]),
            None if *argument == "vector" => {
                let target = keep(vec![0; 512]);
                keep(vec![target.cast_unsigned(), 8])
            }
            _ => integer(argument),
        };
    }
    sys::call(number, values)
}

fn integer(text: &str) -> i64 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).map(u64::cast_signed),
        None => digits.parse::<u64>().map(u64::cast_signed),
    };
    sign * value.unwrap_or_else(|_| panic!("{text:?} is no number"))
}

pub mod sys {
    use std::ffi::{CString, c_int, c_long, c_void};
    use std::fs::File;
    use std::io::{self, Read, Write};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;

    pub const WRITE: c_int = 2;
    pub const EXECUTE: c_int = 4;
    /// FS_IMMUTABLE_FL.
    pub const IMMUTABLE: u32 = 0x10;

    const fn number(x86: c_long, arm: c_long) -> c_long {
        if cfg!(target_arch = "x86_64") { x86 } else { arm }
    }

    /// Calls by name, beside those of `kernel.rs`.
    pub const NUMBERS: &[(&str, c_long)] = &[
        ("chdir", number(80, 49)),
        ("copy_file_range", number(326, 285)),
        ("fchmodat2", 452),
        ("fchownat", number(260, 54)),
        ("fspick", 433),
        ("get_mempolicy", number(236, 236)),
        ("get_robust_list", number(274, 100)),
        ("getxattr", number(191, 8)),
        ("file_setattr", 469),
        ("inotify_add_watch", number(254, 27)),
        ("inotify_init1", number(294, 26)),
        ("ioctl", number(16, 29)),
        ("ioperm", number(173, 1024)),
        ("iopl", number(172, 1024)),
        ("ioprio_set", number(251, 30)),
        ("kexec_file_load", number(320, 294)),
        ("listmount", 458),
        ("lookup_dcookie", number(212, 18)),
        ("memfd_secret", 447),
        ("migrate_pages", number(256, 238)),
        ("mknodat", number(259, 33)),
        ("mmap", number(9, 222)),
        ("modify_ldt", number(154, 1024)),
        ("move_pages", number(279, 239)),
        ("mq_open", number(240, 180)),
        ("mq_unlink", number(241, 181)),
        ("msgctl", number(71, 187)),
        ("msgget", number(68, 186)),
        ("name_to_handle_at", number(303, 264)),
        ("openat", number(257, 56)),
        ("pidfd_open", 434),
        ("pidfd_send_signal", 424),
        ("prctl", number(157, 167)),
        ("prlimit64", number(302, 261)),
        ("process_madvise", 440),
        ("process_mrelease", 448),
        ("quotactl_fd", 443),
        ("removexattr", number(197, 14)),
        ("renameat2", number(316, 276)),
        ("rt_sigqueueinfo", number(129, 138)),
        ("rt_tgsigqueueinfo", number(297, 240)),
        ("sched_setaffinity", number(203, 122)),
        ("sched_setscheduler", number(144, 119)),
        ("semctl", number(66, 191)),
        ("semget", number(64, 190)),
        ("set_mempolicy", number(238, 237)),
        ("setdomainname", number(171, 162)),
        ("setgroups", number(116, 159)),
        ("sethostname", number(170, 161)),
        ("setns", number(308, 268)),
        ("setpriority", number(141, 140)),
        ("setresgid", number(119, 149)),
        ("setresuid", number(117, 147)),
        ("setsid", number(112, 157)),
        ("setxattr", number(188, 5)),
        ("shmctl", number(31, 195)),
        ("shmget", number(29, 194)),
        ("socket", number(41, 198)),
        ("statmount", 457),
        ("statfs", number(137, 43)),
        ("swapoff", number(168, 225)),
        ("tgkill", number(234, 131)),
        ("timer_create", number(222, 107)),
        ("timerfd_create", number(283, 85)),
        ("tkill", number(200, 130)),
        ("truncate", number(76, 45)),
        ("utimensat", number(280, 88)),
        ("vhangup", number(153, 58)),
        ("waitid", number(247, 95)),
    ];

    const EXECVEAT: c_long = number(322, 281);
    const LANDLOCK_CREATE_RULESET: c_long = 444;
    const LANDLOCK_ADD_RULE: c_long = 445;
    const LANDLOCK_RESTRICT_SELF: c_long = 446;
    const NAME_TO_HANDLE_AT: c_long = number(303, 264);
    const OPEN_BY_HANDLE_AT: c_long = number(304, 265);
    const PIDFD_OPEN: c_long = 434;

    const RT_SIGPROCMASK: c_long = number(14, 135);

    const AF_UNIX: u8 = 1;
    const AF_INET: c_int = 2;
    const SOCK_STREAM: c_int = 1;
    const SOCK_DGRAM: c_int = 2;
    const SOL_SOCKET: c_int = 1;

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
        fn fork() -> c_int;
        fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
        fn _exit(code: c_int) -> !;
        fn alarm(seconds: u32) -> u32;
        fn ioctl(fd: c_int, request: u64, ...) -> c_int;
        fn mmap(at: *mut c_void, length: usize, access: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
        fn mlock(at: *const c_void, length: usize) -> c_int;
        fn prctl(option: c_int, ...) -> c_int;
        fn bind(fd: c_int, address: *const c_void, length: u32) -> c_int;
        fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
        fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: u32) -> c_int;
        fn sigqueue(pid: c_int, signal: c_int, value: *mut c_void) -> c_int;
        fn recvmsg(fd: c_int, message: *mut Message, flags: c_int) -> isize;
    }

    fn check(result: c_long) -> io::Result<c_long> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    /// Runs `body` in a child, and gives its answer, or how the child ended without one. A child that takes 20 s is ended by
    /// SIGALRM.
    pub fn in_child(body: impl FnOnce() -> String) -> io::Result<String> {
        let (mut answer, mut pipe) = io::pipe()?;
        // SAFETY: the probe has one thread where this is called, so the child may run anything.
        let child = check(unsafe { fork() }.into())? as c_int;
        if child == 0 {
            // SAFETY: no pointers.
            unsafe { alarm(20) };
            let written = pipe.write_all(body().as_bytes());
            // SAFETY: ends this process without running the parent's destructors.
            unsafe { _exit(if written.is_ok() { 0 } else { 120 }) }
        }
        drop(pipe);
        // It ends where the child does, or where the child becomes another program: std's pipes close on exec.
        let mut text = String::new();
        answer.read_to_string(&mut text)?;
        let mut status = 0;
        // SAFETY: `status` lives.
        check(unsafe { waitpid(child, &raw mut status, 0) }.into())?;
        Ok(match (text.is_empty(), status & 0x7f) {
            (false, _) => text,
            (true, 0) => format!("{{\"code\": {}}}", status >> 8 & 0xff),
            (true, signal) => format!("{{\"signal\": {signal}}}"),
        })
    }

    pub fn call(number: c_long, [a, b, c, d, e, f]: [i64; 6]) -> io::Result<i64> {
        // SAFETY: pointers are to memory that the caller keeps, of 4 KiB or as long as the call reads. Attempts whose call
        // writes elsewhere run in a child of their own.
        check(unsafe { syscall(number, a, b, c, d, e, f) })
    }

    pub fn open_process(pid: i64) -> io::Result<OwnedFd> {
        // SAFETY: no pointers.
        let fd = check(unsafe { syscall(PIDFD_OPEN, pid, 0) })?;
        // SAFETY: the kernel just made it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
    }

    /// Maps the first page of a file: shared where it is to be written.
    pub fn map(file: &File, access: c_int) -> io::Result<()> {
        let kind = if access == WRITE { 1 } else { 2 };
        // SAFETY: a new mapping where the kernel likes.
        let at = unsafe { mmap(std::ptr::null_mut(), 4096, access | 1, kind, file.as_raw_fd(), 0) };
        if at.addr() == usize::MAX { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    pub fn lock(memory: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length of live memory.
        check(unsafe { mlock(memory.as_ptr().cast(), memory.len()) }.into()).map(drop)
    }

    /// Sets the flags of an inode to what they are with `more`, and back.
    pub fn set_flags(file: &File, more: u32) -> io::Result<()> {
        const GET: u64 = 0x8008_6601;
        const SET: u64 = 0x4008_6602;
        let mut flags = 0_u32;
        // SAFETY: the kernel reads and writes an int in spite of the number, ioctl_iflags(2).
        check(unsafe { ioctl(file.as_raw_fd(), GET, &raw mut flags) }.into())?;
        for flags in [flags | more, flags] {
            // SAFETY: as above.
            check(unsafe { ioctl(file.as_raw_fd(), SET, &raw const flags) }.into())?;
        }
        Ok(())
    }

    /// Opens a file by the handle that the kernel gives for it.
    pub fn open_by_handle(mount: &File, path: &str) -> io::Result<i64> {
        let path = CString::new(path).expect("a word holds no NUL");
        let mut handle = [0_u32; 34];
        handle[0] = 128;
        let mut id = 0_i32;
        let pointer = handle.as_mut_ptr();
        // SAFETY: a live string, a handle with room for 128 bytes, and an int.
        check(unsafe { syscall(NAME_TO_HANDLE_AT, -100, path.as_ptr(), pointer, &raw mut id, 0) })?;
        // SAFETY: the handle that was just filled.
        check(unsafe { syscall(OPEN_BY_HANDLE_AT, mount.as_raw_fd(), handle.as_ptr(), 0) })
    }

    /// Queues signals to this process, which blocks them.
    pub fn queue_signals(count: usize) -> io::Result<()> {
        const SIGNAL: c_int = 40;
        const SIG_BLOCK: c_int = 0;
        let blocked = [1_u64 << (SIGNAL - 1)];
        // SAFETY: a set of eight bytes, as the kernel has it; the old one is not asked for.
        check(unsafe { syscall(RT_SIGPROCMASK, SIG_BLOCK, blocked.as_ptr(), std::ptr::null_mut::<u64>(), 8) })?;
        let own = std::process::id().cast_signed();
        for _ in 0..count {
            // SAFETY: the value is not used as a pointer.
            check(unsafe { sigqueue(own, SIGNAL, std::ptr::null_mut()) }.into())?;
        }
        Ok(())
    }

    pub fn exec_at(file: &File, arguments: &[&str]) -> io::Error {
        let strings: Vec<CString> = std::iter::once(&"probe")
            .chain(arguments)
            .map(|word| CString::new(*word).expect("a word holds no NUL"))
            .collect();
        let mut pointers: Vec<_> = strings.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let nothing = [std::ptr::null::<u8>()];
        const AT_EMPTY_PATH: c_int = 0x1000;
        // SAFETY: two arrays of live strings that end with null.
        unsafe {
            syscall(EXECVEAT, file.as_raw_fd(), c"".as_ptr(), pointers.as_ptr(), nothing.as_ptr(), AT_EMPTY_PATH)
        };
        io::Error::last_os_error()
    }

    /// The terminal that belongs to a leader, ioctl_tty(2).
    pub fn open_peer(leader: &File) -> io::Result<File> {
        const TIOCSPTLCK: u64 = 0x4004_5431;
        const TIOCGPTPEER: u64 = 0x5441;
        const O_RDWR_NOCTTY: c_int = 0o2 | 0o400;
        let unlocked = 0;
        // SAFETY: the kernel reads one int.
        check(unsafe { ioctl(leader.as_raw_fd(), TIOCSPTLCK, &raw const unlocked) }.into())?;
        // SAFETY: no pointers.
        let fd = check(unsafe { ioctl(leader.as_raw_fd(), TIOCGPTPEER, O_RDWR_NOCTTY) }.into())?;
        // SAFETY: the kernel just made it.
        Ok(unsafe { File::from_raw_fd(fd as c_int) })
    }

    pub fn take_terminal(terminal: &File) -> io::Result<()> {
        const TIOCSCTTY: u64 = 0x540E;
        // SAFETY: no pointers.
        check(unsafe { ioctl(terminal.as_raw_fd(), TIOCSCTTY, 0) }.into()).map(drop)
    }

    pub fn push_input(terminal: &File) -> io::Result<()> {
        const TIOCSTI: u64 = 0x5412;
        // SAFETY: the kernel reads one byte.
        check(unsafe { ioctl(terminal.as_raw_fd(), TIOCSTI, b"x".as_ptr()) }.into()).map(drop)
    }

    /// Sets the line discipline that every terminal has.
    pub fn set_discipline(terminal: &File) -> io::Result<()> {
        const TIOCSETD: u64 = 0x5423;
        let usual = 0;
        // SAFETY: the kernel reads one int.
        check(unsafe { ioctl(terminal.as_raw_fd(), TIOCSETD, &raw const usual) }.into()).map(drop)
    }

    /// The number of a network interface, netdevice(7).
    pub fn interface_number(name: &str) -> io::Result<i32> {
        const SIOCGIFINDEX: u64 = 0x8933;
        let socket = open_socket(AF_INET, SOCK_STREAM)?;
        let mut request = [0_u8; 40];
        request[..name.len().min(15)].copy_from_slice(&name.as_bytes()[..name.len().min(15)]);
        // SAFETY: an ifreq has 40 bytes.
        check(unsafe { ioctl(socket.as_raw_fd(), SIOCGIFINDEX, request.as_mut_ptr()) }.into())?;
        Ok(i32::from_ne_bytes([request[16], request[17], request[18], request[19]]))
    }

    /// Sets the flags of the loopback interface to what they are, netdevice(7).
    pub fn change_interface() -> io::Result<()> {
        const SIOCGIFFLAGS: u64 = 0x8913;
        const SIOCSIFFLAGS: u64 = 0x8914;
        let socket = open_socket(AF_INET, SOCK_DGRAM)?;
        let mut request = [0_u8; 40];
        request[..2].copy_from_slice(b"lo");
        for what in [SIOCGIFFLAGS, SIOCSIFFLAGS] {
            // SAFETY: an ifreq has 40 bytes.
            check(unsafe { ioctl(socket.as_raw_fd(), what, request.as_mut_ptr()) }.into())?;
        }
        Ok(())
    }

    /// Sets an option of a new socket to 1.
    pub fn socket_option(family: c_int, kind: c_int, level: c_int, name: c_int) -> io::Result<()> {
        let socket = open_socket(family, kind)?;
        let one = 1;
        // SAFETY: the kernel reads one int.
        check(unsafe { setsockopt(socket.as_raw_fd(), level, name, (&raw const one).cast(), 4) }.into()).map(drop)
    }

    fn open_socket(family: c_int, kind: c_int) -> io::Result<OwnedFd> {
        // SAFETY: no pointers.
        let fd = check(unsafe { socket(family, kind, 0) }.into())?;
        // SAFETY: the kernel just made it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
    }

    pub fn bind_abstract(name: &str) -> io::Result<()> {
        let (one, _other) = UnixStream::pair()?;
        // The C struct sockaddr_un: a family, then a path that begins with NUL.
        let address = [&[AF_UNIX, 0, 0][..], name.as_bytes()].concat();
        // SAFETY: pointer and length of a live address.
        check(unsafe { bind(one.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) }.into()).map(drop)
    }

    /// The C struct msghdr.
    #[repr(C)]
    struct Message {
        name: *mut c_void,
        name_length: u32,
        vectors: *mut [usize; 2],
        vector_count: usize,
        control: *mut c_void,
        control_length: usize,
        flags: c_int,
    }

    /// Receives one descriptor (SCM_RIGHTS).
    pub fn receive(stream: &UnixStream) -> io::Result<OwnedFd> {
        const SCM_RIGHTS: u64 = 1;
        let mut byte = [0_u8; 1];
        let mut vector = [byte.as_mut_ptr().addr(), 1];
        let mut control = [0_u64; 8];
        let mut message = Message {
            name: std::ptr::null_mut(),
            name_length: 0,
            vectors: &raw mut vector,
            vector_count: 1,
            control: control.as_mut_ptr().cast(),
            control_length: 64,
            flags: 0,
        };
        // SAFETY: every pointer of the message is to live memory of the length beside it.
        let got = unsafe { recvmsg(stream.as_raw_fd(), &raw mut message, 0) };
        check(got as c_long)?;
        // The C struct cmsghdr: length, level and type, then the descriptor.
        if message.control_length < 20 || control[1] != SCM_RIGHTS << 32 | SOL_SOCKET as u64 {
            return Err(io::Error::other("no descriptor came"));
        }
        // SAFETY: the kernel just put it there.
        Ok(unsafe { OwnedFd::from_raw_fd(control[2] as c_int) })
    }

    /// SECCOMP_RET_ALLOW.
    pub const ALLOW: u32 = 0x7FFF_0000;

    /// A filter of this process's own that allows every call.
    pub fn allow_every_call() -> io::Result<()> {
        install(&[instruction(RETURN, 0, 0, ALLOW)])
    }

    /// A filter that answers for Landlock as a kernel does that has it switched off: EOPNOTSUPP.
    pub fn refuse_landlock() -> io::Result<()> {
        const LOAD: u16 = 0x20;
        const JUMP_IF_AT_LEAST: u16 = 0x35;
        const JUMP_IF_ABOVE: u16 = 0x25;
        const FAIL: u32 = 0x0005_0000;
        const EOPNOTSUPP: u32 = 95;
        install(&[
            instruction(LOAD, 0, 0, 0),
            instruction(JUMP_IF_AT_LEAST, 0, 2, LANDLOCK_CREATE_RULESET as u32),
            instruction(JUMP_IF_ABOVE, 1, 0, LANDLOCK_RESTRICT_SELF as u32),
            instruction(RETURN, 0, 0, FAIL | EOPNOTSUPP),
            instruction(RETURN, 0, 0, ALLOW),
        ])
    }

    pub const RETURN: u16 = 0x06;

    /// The C struct sock_filter.
    pub fn instruction(code: u16, if_true: u8, if_false: u8, k: u32) -> u64 {
        u64::from(code) | u64::from(if_true) << 16 | u64::from(if_false) << 24 | u64::from(k) << 32
    }

    /// seccomp(2) by prctl.
    pub fn install(program: &[u64]) -> io::Result<()> {
        const PR_SET_NO_NEW_PRIVS: c_int = 38;
        const PR_SET_SECCOMP: c_int = 22;
        const FILTER: u64 = 2;
        let filter = [program.len() as u64, program.as_ptr().addr() as u64];
        // SAFETY: no pointers.
        check(unsafe { prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
        // SAFETY: a sock_fprog of that many instructions.
        check(unsafe { prctl(PR_SET_SECCOMP, FILTER, filter.as_ptr()) }.into()).map(drop)
    }

    /// A Landlock domain that allows everything beneath the root.
    pub fn allow_every_file() -> io::Result<()> {
        const PR_SET_NO_NEW_PRIVS: c_int = 38;
        // The rights of the first ABI.
        const RIGHTS: u64 = 0x1FFF;
        let root = File::open("/")?;
        // SAFETY: a ruleset attribute of eight bytes.
        let rules = check(unsafe { syscall(LANDLOCK_CREATE_RULESET, [RIGHTS].as_ptr(), 8, 0) })?;
        // The C struct landlock_path_beneath_attr, packed: rights, then a descriptor.
        let beneath = [RIGHTS, root.as_raw_fd() as u64];
        // SAFETY: a rule of type 1 has twelve bytes.
        check(unsafe { syscall(LANDLOCK_ADD_RULE, rules, 1, beneath.as_ptr(), 0) })?;
        // SAFETY: no pointers.
        check(unsafe { prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
        // SAFETY: no pointers.
        check(unsafe { syscall(LANDLOCK_RESTRICT_SELF, rules, 0) }).map(drop)
    }
}
