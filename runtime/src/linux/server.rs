//! The server's process: measures the cage from inside, waits for the word, becomes the server.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ::landlock::ABI;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};

use super::bare::Bare;
use super::process::within_own;
use super::seccomp::{self, Around};
use super::sys::{self, Instruction, SignalSet};
use super::wire::{Event, NotExecuted, NotExecutedKind, Order, Refusal, Reporter};
use super::{calls, landlock, measure, programs};
use crate::plan::Rlimits;
use crate::report::{Layer, Status};

/// Runs the server's program once the supervisor says so. `lifeline` delivers one byte for yes and its end for no. Where
/// there is no `filter` yet it is assembled for what Landlock rules here. The `teller` is where calls are recorded.
pub fn start(
    order: &Order,
    filter: Option<&[Instruction]>,
    events: &OwnedFd,
    lifeline: &OwnedFd,
    teller: Option<&OwnedFd>,
) -> ! {
    let report = Reporter(events.as_fd());
    let ours: Vec<_> = [events, lifeline].into_iter().chain(teller).map(AsFd::as_fd).collect();
    let _ = sys::close_all_but(&ours);
    if let Some(bare) = &order.bare
        && let Err(why) = limit(&Rlimits { nproc: bare.nproc, ..order.plan.rlimits })
    {
        report.send(&Event::Refused(Refusal::new("limiting the server's process", why)));
        sys::exit_now(125);
    }
    let mut measured = measure::all(order, &ours);
    let found = find(order);
    // Last and in this order: what was measured before was refused by the other layers, and the filter may refuse what
    // Landlock needs.
    let (landlock, abi) = landlock::confine(order, found.as_deref().ok());
    measured.set(Layer::Landlock, landlock);
    let assembled;
    let filter = match filter {
        Some(filter) => filter,
        None => {
            let around = Around::Landlock { tcp: abi >= Some(ABI::V4), signals: abi >= Some(ABI::V6) };
            assembled = seccomp::filter(&order.plan.programs, around);
            &assembled
        }
    };
    if let Some(status) = order.bare.as_ref().and_then(|bare| by_port(bare, abi)) {
        measured.set(Layer::Egress, status);
    }
    if let Some(teller) = teller {
        calls::tell_own(order, found.as_deref().ok(), teller);
    }
    measured.set(Layer::Seccomp, seccomp::confine(filter, teller));
    report.send(&Event::Ready { measured });
    // While the supervisor writes.
    sys::default_signals();
    if !matches!(rustix::io::read(lifeline, &mut [0_u8; 1]), Ok(1)) {
        sys::exit_now(0);
    }
    SignalSet::of(&[]).block_only();
    let failure = execute(order, found);
    let code = match failure.kind {
        NotExecutedKind::NotFound => 127,
        NotExecutedKind::NotExecutable => 126,
    };
    report.send(&Event::NotExecuted(failure));
    sys::exit_now(code)
}

/// What Landlock makes of the ports that are granted.
fn by_port(bare: &Bare, abi: Option<ABI>) -> Option<Status> {
    let ports: Vec<String> = bare.ports.iter().map(u16::to_string).collect();
    match abi {
        _ if ports.is_empty() => None,
        Some(abi) if abi >= ABI::V4 => {
            Some(Status::Partial(format!("ports alone: any host, this machine too, on {} by TCP", ports.join(", "))))
        }
        _ => Some(Status::Absent("this kernel's Landlock does not know ports, which it does since Linux 6.7".into())),
    }
}

/// What libcontainer does in a container: rlimits and `no_new_privs`.
fn limit(rlimits: &Rlimits) -> rustix::io::Result<()> {
    let to = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let rlimits = within_own(rlimits);
    rustix::process::setrlimit(Resource::Core, to(rlimits.core))?;
    rustix::process::setrlimit(Resource::Data, to(rlimits.data))?;
    if let Some(most) = rlimits.fsize {
        rustix::process::setrlimit(Resource::Fsize, to(most))?;
    }
    rustix::process::setrlimit(Resource::Nofile, to(rlimits.nofile))?;
    rustix::process::setrlimit(Resource::Nproc, to(rlimits.nproc))?;
    rustix::process::setrlimit(Resource::Sigpending, to(rlimits.sigpending))?;
    rustix::process::setrlimit(Resource::Nice, to(rlimits.nice))?;
    rustix::process::setrlimit(Resource::Rtprio, to(rlimits.rtprio))?;
    rustix::thread::set_no_new_privs(true)
}

/// Changes into the working directory and executes the program that was found. Returns only what went wrong.
fn execute(order: &Order, found: Result<PathBuf, String>) -> NotExecuted {
    let plan = &order.plan;
    let program = plan.command.first().cloned().unwrap_or_default();
    let fail = |kind, why: String| NotExecuted { program: program.clone(), kind, why };
    if let Err(why) = rustix::process::chdir(&plan.workdir) {
        return fail(kind_of(why), format!("the working directory {}: {}", plan.workdir.display(), text(why)));
    }
    let path = match found {
        Ok(path) => path,
        Err(why) => return fail(NotExecutedKind::NotFound, why),
    };
    let string = |text: &str| {
        CString::new(text)
            .map_err(|_| fail(NotExecutedKind::NotExecutable, "an argument or variable holds a NUL byte".into()))
    };
    let strings =
        |texts: &mut dyn Iterator<Item = String>| texts.map(|text| string(&text)).collect::<Result<Vec<_>, _>>();
    let arguments = strings(&mut plan.command.iter().cloned());
    let environment = strings(&mut order.env.iter().map(|(name, value)| format!("{name}={value}")));
    let (arguments, environment, file) = match (arguments, environment, CString::new(path.as_os_str().as_bytes())) {
        (Ok(arguments), Ok(environment), Ok(file)) => (arguments, environment, file),
        (Err(failure), ..) | (_, Err(failure), _) => return failure,
        (_, _, Err(_)) => return fail(NotExecutedKind::NotExecutable, "its path holds a NUL byte".into()),
    };
    let why = sys::execve(&file, &arguments, &environment);
    explain(&program, &path, &why)
}

/// The file to execute: as it stands where it holds a `/`, else the first of that name in `PATH`.
fn find(order: &Order) -> Result<PathBuf, String> {
    let program = order.plan.command.first().map_or("", String::as_str);
    if program.is_empty() {
        return Err("the package names no entry point".into());
    }
    // A relative path starts at the server's working directory, which is not entered yet.
    programs::find(program, order.search_path())
        .map(|path| order.plan.workdir.join(path))
        .ok_or_else(|| format!("it is in no directory of PATH ({}) inside the package", order.search_path()))
}

fn explain(program: &str, path: &Path, why: &io::Error) -> NotExecuted {
    let fail = |kind, why| NotExecuted { program: program.into(), kind, why };
    let shown = path.display();
    match why.raw_os_error().map(Errno::from_raw_os_error) {
        // The file is there: what the kernel misses is the interpreter that the file names.
        Some(Errno::NOENT) if path.exists() => fail(
            NotExecutedKind::NotFound,
            match interpreter(path) {
                Some(name) => format!("{shown} needs the interpreter {name}, which the package does not hold"),
                None => format!("{shown} needs a dynamic loader that the package does not hold"),
            },
        ),
        Some(Errno::NOENT | Errno::NOTDIR) => {
            fail(NotExecutedKind::NotFound, format!("{shown} does not exist in the package"))
        }
        Some(Errno::NOEXEC) => fail(
            NotExecutedKind::NotExecutable,
            format!("{shown} is no program for this machine ({})", std::env::consts::ARCH),
        ),
        Some(Errno::ACCESS) => {
            fail(NotExecutedKind::NotExecutable, format!("{shown} is not executable (permission denied)"))
        }
        _ => fail(NotExecutedKind::NotExecutable, format!("{shown}: {why}")),
    }
}

fn interpreter(path: &Path) -> Option<String> {
    let start = fs::read(path).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim().to_owned())
}

fn kind_of(why: Errno) -> NotExecutedKind {
    match why {
        Errno::NOENT | Errno::NOTDIR => NotExecutedKind::NotFound,
        _ => NotExecutedKind::NotExecutable,
    }
}

fn text(why: Errno) -> String {
    io::Error::from(why).to_string()
}
