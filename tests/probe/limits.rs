//! Verbs that run into limits. Each is bounded by its arguments, so that it does no harm where no limit holds.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;
use std::thread;
use std::time::{Duration, Instant};

/// One attempt, `None` where the verb is another's.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    let number = |at: usize| -> u64 { rest[at].parse().unwrap_or_else(|_| panic!("{:?} is no number", rest[at])) };
    Some(match verb {
        "hog" => {
            hog(number(0), number(1));
            wait()
        }
        "hog-briefly" => {
            hog(number(0), 0);
            thread::sleep(Duration::from_millis(500));
            Ok("\"done\"".into())
        }
        "hog-among" => hog_among(number(0), number(1)),
        "hog-hidden" => hog_hidden(number(0)),
        "hog-memfd" => hog_memfd(number(0)),
        "share" => share(number(0), number(1)),
        "fork-bomb" => fork_bomb(number(0)),
        "threads" => threads(number(0)),
        "spin" => spin(number(0), Duration::from_secs(number(1))),
        "spin-unwaited" => spin_unwaited(Duration::from_secs(number(0))),
        "open-many" => open_many(number(0)),
        "fill" => fill(rest[0], number(1)),
        "spin-until-narrow" => Ok(spin_until_narrow(Duration::from_secs(number(0)))),
        "own-cgroup" => fs::read_to_string("/proc/self/cgroup").map(|text| super::quote(&text)),
        _ => return None,
    })
}

/// Keeps all CPUs busy until the scheduler offers one alone, or for as long as this; how many it offers then.
fn spin_until_narrow(patience: Duration) -> String {
    for _ in 0..4 {
        thread::spawn(|| {
            loop {
                std::hint::spin_loop();
            }
        });
    }
    let deadline = Instant::now() + patience;
    loop {
        let offered = thread::available_parallelism().map_or(0, usize::from);
        if offered == 1 || Instant::now() > deadline {
            return offered.to_string();
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Touches this many MiB, one after another, with a pause of milliseconds after each.
fn hog(mib: u64, pause: u64) {
    for _ in 0..mib {
        let mut block = vec![1_u8; 1 << 20];
        // Every page is written, and never freed.
        block.chunks_mut(4096).for_each(|page| page[0] = std::hint::black_box(7));
        std::mem::forget(block);
        thread::sleep(Duration::from_millis(pause));
    }
}

/// The same by so many processes, each of which stays far below.
fn hog_among(processes: u64, mib: u64) -> io::Result<String> {
    for _ in 0..processes {
        if sys::fork()? == sys::Side::Child {
            hog(mib, 1);
            return wait();
        }
    }
    wait()
}

/// The same behind a name of odd bytes, in a thread whose process has lost its first thread: `stat` shows no memory then.
fn hog_hidden(mib: u64) -> io::Result<String> {
    sys::name(c"a) R 1 \xff\xfe");
    thread::spawn(move || {
        hog(mib, 1);
        wait()
    });
    sys::exit_thread()
}

/// The same in a file of memory that is mapped nowhere.
fn hog_memfd(mib: u64) -> io::Result<String> {
    let mut file = sys::memfd()?;
    for _ in 0..mib {
        file.write_all(&vec![1; 1 << 20])?;
        thread::sleep(Duration::from_millis(2));
    }
    wait()
}

/// So many processes that share this many MiB: much in sum, little in fact. Ends by itself, before anybody asks it to.
fn share(processes: u64, mib: u64) -> io::Result<String> {
    hog(mib, 0);
    for _ in 0..processes {
        if sys::fork()? == sys::Side::Child {
            thread::sleep(Duration::from_secs(60));
            std::process::exit(0);
        }
    }
    thread::sleep(Duration::from_secs(1));
    Ok("\"shared\"".into())
}

/// Every process forks until the system says no, and goes on trying; `most` of them in all, where nothing says no: each
/// takes a byte from a pipe that they share.
fn fork_bomb(most: u64) -> io::Result<String> {
    let until = Instant::now() + Duration::from_secs(20);
    let (mut left, mut all) = io::pipe()?;
    all.write_all(&vec![0; most as usize])?;
    drop(all);
    while left.read(&mut [0])? == 1 {
        while sys::fork().is_err() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }
    wait()
}

fn threads(count: u64) -> io::Result<String> {
    for _ in 0..count {
        // A refusal is what the limit is for; the tree stays for it to be seen.
        let _ = thread::Builder::new().stack_size(64 << 10).spawn(wait);
    }
    wait()
}

fn spin(threads: u64, time: Duration) -> io::Result<String> {
    let until = Instant::now() + time;
    let spinning: Vec<_> = (0..threads).map(|_| thread::spawn(move || while Instant::now() < until {})).collect();
    spinning.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    Ok("\"spun\"".into())
}

/// The same in one short-lived child after another that nobody waits for: its time is added to no parent's.
fn spin_unwaited(time: Duration) -> io::Result<String> {
    sys::never_wait();
    let until = Instant::now() + time;
    while Instant::now() < until {
        let life = Instant::now() + Duration::from_millis(350);
        if sys::fork()? == sys::Side::Child {
            while Instant::now() < life {}
            std::process::exit(0);
        }
        while Instant::now() < life {
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok("\"spun\"".into())
}

/// Opens a file so many times; answers how often it worked.
fn open_many(count: u64) -> io::Result<String> {
    let mut open = Vec::new();
    for _ in 0..count {
        match fs::File::open("/dev/null") {
            Ok(file) => open.push(file),
            Err(refusal) => {
                let code = refusal.raw_os_error().unwrap_or(0);
                return Ok(format!("{{\"open\": {}, \"error\": {code}}}", open.len()));
            }
        }
    }
    Ok(format!("{{\"open\": {}}}", open.len()))
}

/// Writes so many MiB into a new file, removes it, and answers how much it took.
fn fill(path: &str, mib: u64) -> io::Result<String> {
    let mut file = fs::File::create_new(path)?;
    let mut written = 0;
    let refusal = loop {
        if written >= mib {
            break None;
        }
        match file.write_all(&vec![1; 1 << 20]) {
            Ok(()) => written += 1,
            Err(refusal) => break refusal.raw_os_error(),
        }
    };
    fs::remove_file(path)?;
    Ok(format!("{{\"mib\": {written}, \"error\": {}}}", refusal.unwrap_or(0)))
}

/// Stays for a while, long enough to be found and short enough to be harmless.
fn wait() -> io::Result<String> {
    thread::sleep(Duration::from_secs(20));
    Ok("\"still here\"".into())
}

mod sys {
    use std::ffi::{CStr, c_char, c_int, c_long, c_uint};
    use std::fs::File;
    use std::io;

    use super::FromRawFd;

    const MFD_NOEXEC_SEAL: c_uint = 8;
    const PR_SET_NAME: c_int = 15;
    const SIGCHLD: c_int = 17;
    const SIG_IGN: usize = 1;
    const SYS_EXIT: c_long = if cfg!(target_arch = "x86_64") { 60 } else { 93 };

    unsafe extern "C" {
        #[link_name = "fork"]
        fn fork_() -> c_int;
        fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
        fn prctl(option: c_int, ...) -> c_int;
        fn signal(signal: c_int, handler: usize) -> usize;
        fn syscall(number: c_long, ...) -> c_long;
    }

    #[derive(PartialEq, Eq)]
    pub enum Side {
        Parent,
        Child,
    }

    pub fn fork() -> io::Result<Side> {
        // SAFETY: the verbs that fork have one thread.
        match unsafe { fork_() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(Side::Child),
            _ => Ok(Side::Parent),
        }
    }

    pub fn memfd() -> io::Result<File> {
        // SAFETY: the name ends with NUL.
        let fd = unsafe { memfd_create(c"probe".as_ptr(), MFD_NOEXEC_SEAL) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    pub fn name(name: &CStr) {
        // SAFETY: the name ends with NUL, and the kernel takes 15 bytes of it at most.
        unsafe { prctl(PR_SET_NAME, name.as_ptr()) };
    }

    pub fn never_wait() {
        // SAFETY: SIG_IGN is a valid handler.
        unsafe { signal(SIGCHLD, SIG_IGN) };
    }

    /// Ends this thread alone.
    pub fn exit_thread() -> ! {
        // SAFETY: exit takes a number and does not return; nothing on this thread's stack is used by others.
        unsafe { syscall(SYS_EXIT, 0) };
        unreachable!("exit does not return")
    }
}
