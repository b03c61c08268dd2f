//! A run's process, from its plan to its end.

use std::fs::File;
use std::io;
use std::os::windows::io::OwnedHandle;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::guard::Guard;
use super::signals::Signals;
use super::sys::{self, Job, Process, Start, Token};
use super::system::{BorrowedFd, OwnedFd, Signal, own_program};
use crate::ahead::Ordered;
use crate::egress::{Proxies, Refused, Totals};
use crate::journal::Ticket;
use crate::local::{Local, Place, relocate};
use crate::outcome::{How, Masked, Outcome};
use crate::plan::{Limit, Plan, Watched};
use crate::refusal::{NotExecuted, NotExecutedKind, Refusal};
use crate::report::{Layer, Report, Status, Tier};
use crate::windows_plan::{JobLimits, command_line, environment_block, is_batch, script_of_shim};

impl Ordered {
    /// Makes the job and the server's process in it, suspended, and says which layers are in force. Private directories are made
    /// below `place`.
    ///
    /// # Errors
    /// A [`Refusal`], also where the `least` tier is more than there is here.
    pub fn prepare(self, plan: &Plan, place: &Path, least: Tier, _: &Signals, _: Proxies) -> Result<Prepared, Refusal> {
        if least > Tier::Zero {
            let why = "a job object keeps no file and no host from a server: Windows has tier 0 alone";
            return Err(Refusal::new(format!("a cage of tier {least}"), why)
                .hint("accept that by policy.min_tier 0, or run the server on Linux"));
        }
        let place = Place::make(place, self.run)
            .map_err(|why| Refusal::new(format!("making a directory in {}", place.display()), why))?;
        let mut local = relocate(plan, &place)?;
        inherit(&mut local.env);
        start(&local, &plan.limits, place, self.direct)
    }
}

/// Variables without which programs of Windows do not start.
fn inherit(env: &mut Vec<(String, String)>) {
    for name in [
        "SystemRoot",
        "SystemDrive",
        "windir",
        "ComSpec",
        "PATHEXT",
        "NUMBER_OF_PROCESSORS",
        "PROCESSOR_ARCHITECTURE",
        "OS",
    ] {
        let known = env.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if let (false, Ok(value)) = (known, std::env::var(name)) {
            env.push((name.into(), value));
        }
    }
}

/// A cage that is built, with the server's process suspended in it. Dropping it ends it.
#[derive(Debug)]
pub struct Prepared {
    cage: Cage,
}

impl Prepared {
    /// Nobody asked for a record of calls, since that was refused.
    pub fn recorded(&self) -> Option<Result<(), &str>> {
        None
    }

    /// What each layer enforces, by what Windows said.
    pub fn report(&self) -> &Report {
        &self.cage.report
    }

    /// There are none.
    pub fn cgroup(&self) -> &'static str {
        "none"
    }

    /// Lets the server start. The ticket is the proof that the begin entry is on disk.
    ///
    /// # Errors
    /// Where the process is gone.
    pub fn start(self, _: &Ticket, refused: Box<dyn FnMut(&Refused) + Send>) -> Result<Cage, Refusal> {
        drop(refused);
        self.go()
    }

    pub(super) fn go(mut self) -> Result<Cage, Refusal> {
        if let Some(process) = &mut self.cage.process {
            process.ring_at_its_end().map_err(|why| Refusal::new("waiting for the server", why))?;
            process.resume().map_err(|why| Refusal::new("starting the server", why))?;
        }
        Ok(self.cage)
    }
}

/// A running server. Dropping it ends the whole tree.
#[derive(Debug)]
pub struct Cage {
    /// The pipe to the server's standard input; dropping it is the end of the server's input.
    pub stdin: Option<OwnedFd>,
    /// The pipe from the server's standard output; dropped at its end.
    pub stdout: Option<OwnedFd>,
    /// The pipe from the server's standard error; dropped at its end.
    pub stderr: Option<OwnedFd>,
    report: Report,
    /// `None` where there is no program: the cage is only tried.
    process: Option<Process>,
    not_executed: Option<NotExecuted>,
    guard: Guard,
    exceeded: Option<Limit>,
    killed: bool,
    remains: Remains,
}

/// What is left of a cage whose server has ended: the job, whose processes end when it is dropped, and the run's directories.
#[derive(Debug)]
pub struct Remains {
    job: Job,
    _place: Place,
}

impl Cage {
    /// News where there is something for [`Cage::has_ended`] to see.
    pub fn news(&self) -> BorrowedFd<'_> {
        BorrowedFd::end_of(self.process.as_ref())
    }

    /// Nothing is hidden in grants here.
    pub fn near_masks(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the server has ended, or was never executed; waits for it this long at most.
    pub fn has_ended_within(&mut self, patience: Duration) -> bool {
        match &self.process {
            Some(process) => !matches!(process.ended(patience), Ok(None)),
            None => true,
        }
    }

    /// The same without waiting.
    pub fn has_ended(&mut self) -> bool {
        self.has_ended_within(Duration::ZERO)
    }

    /// Asks the server to end: Ctrl+Break, whatever the signal. One that has another console does not hear it, which is said.
    pub fn signal(&self, _: Signal) {
        if let Some(process) = &self.process
            && let Err(why) = process.send_break()
        {
            tracing::debug!("Ctrl+Break does not reach the server, which is ended a moment later: {why}");
        }
    }

    /// Ends every process of the job at once.
    pub fn kill(&mut self) {
        self.killed = true;
        self.remains.job.terminate(1);
    }

    /// When [`Cage::look`] is due.
    pub fn next_look(&self) -> Instant {
        self.guard.next()
    }

    /// Looks whether the tree keeps its limits, and ends it where it does not.
    pub fn look(&mut self) {
        if let Some(limit) = self.guard.look(&self.remains.job)
            && self.exceeded.is_none()
        {
            self.exceeded = Some(limit);
            self.kill();
        }
    }

    /// Nothing is hidden in grants here.
    pub fn look_at_masks(&mut self) -> Masked {
        Masked::Yes
    }

    /// How it ended, once it [`has_ended`](Cage::has_ended), and what is left of it.
    ///
    /// # Errors
    /// The system's.
    pub fn wait(mut self) -> io::Result<(Outcome, Remains)> {
        self.guard.look(&self.remains.job);
        let code = match &self.process {
            Some(process) => process.ended(Duration::MAX)?,
            None => None,
        };
        let outcome = Outcome {
            // The code with which smcp itself ends a job says nothing of the server.
            how: code.filter(|_| !self.killed).map(|code| How::Code(code.cast_signed())),
            limit: self.exceeded,
            unmasked: None,
            not_executed: self.not_executed.take(),
            cpu_time: self.guard.spent(),
            peak_memory: self.guard.peak(),
            egress: Totals::default(),
            asked: None,
        };
        // Whoever the server left behind ends with it.
        self.remains.job.terminate(1);
        Ok((outcome, self.remains))
    }
}

/// Makes the job and the process.
fn start(local: &Local, limits: &Watched, place: Place, direct: bool) -> Result<Prepared, Refusal> {
    let mut report = Report::default();
    // Without a job nobody ends what the server starts.
    let job = Job::new().map_err(|why| Refusal::new("making a job object", why))?;
    report.set(Layer::JobObject, limited(&job, limits));
    let token = token(local, &place, &mut report);
    report.set(Layer::Egress, Status::Absent("unsupported: nothing here keeps a server from the network".into()));
    let pipe = || io::pipe().map_err(|why| Refusal::new("making a pipe", why));
    let (((stdin_inside, stdin), (stdout, stdout_inside)), (stderr, stderr_inside)) = ((pipe()?, pipe()?), pipe()?);
    let own = |why: io::Error| Refusal::new("passing the client's handles on", why);
    let (stdin_inside, stdout_inside) = match direct {
        true => (own_stream(&io::stdin()).map_err(own)?, own_stream(&io::stdout()).map_err(own)?),
        false => (file(stdin_inside), file(stdout_inside)),
    };
    let stderr_inside = file(stderr_inside);
    let stdio = [&stdin_inside, &stdout_inside, &stderr_inside];
    let (process, not_executed) = match execute(local, stdio, token.as_ref(), &mut report) {
        Ok(process) => (process, None),
        Err(Failed::NotExecuted(why)) => (None, Some(why)),
        Err(Failed::Refused(refusal)) => return Err(refusal),
    };
    let mut guard = Guard::new(*limits);
    if let Some(process) = &process {
        if let Err(why) = job.take(process.handle()) {
            process.end();
            return Err(Refusal::new("taking the server into its job object", why));
        }
        report.set(Layer::Guard, guard.first_look(&job, process.id));
    }
    let (stdin, stdout, stderr) = (Some(stdin.into()), Some(stdout.into()), Some(stderr.into()));
    let (stdin, stdout) = if direct { (None, None) } else { (stdin, stdout) };
    let remains = Remains { job, _place: place };
    let cage =
        Cage { stdin, stdout, stderr, report, process, not_executed, guard, exceeded: None, killed: false, remains };
    Ok(Prepared { cage })
}

fn file(pipe: impl Into<OwnedHandle>) -> File {
    File::from(pipe.into())
}

fn own_stream(stream: &impl std::os::windows::io::AsHandle) -> io::Result<File> {
    stream.as_handle().try_clone_to_owned().map(File::from)
}

/// Sets the limits of a job, each by itself: one that Windows refuses leaves the others. That it took them is all that is known: to read
/// them back tells nothing of whether they are kept.
fn limited(job: &Job, limits: &Watched) -> Status {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let wanted = JobLimits::of(limits, processors);
    let tried = [
        ("memory and processes", job.limit(&wanted)),
        ("windows and clipboard", job.restrict_ui()),
        ("the CPU rate", wanted.cpu_rate.map_or(Ok(()), |rate| job.cap_cpu(rate))),
    ];
    let failed: Vec<_> =
        tried.iter().filter_map(|(what, done)| Some(format!("failed: {what}: {}", done.as_ref().err()?))).collect();
    let requested = "requested: memory and processes, which smcp watches too";
    Status::Partial([vec![requested.to_owned()], failed].concat().join("; "))
}

/// The token of the server's process, as far as one can be had.
fn token(local: &Local, place: &Place, report: &mut Report) -> Option<Token> {
    let token = match Token::restricted() {
        Ok(token) => token,
        Err(why) => {
            report.set(Layer::RestrictedToken, Status::Absent(format!("failed: {why}")));
            report.set(Layer::LowIntegrity, Status::Absent("failed: there is no token to lower".into()));
            return None;
        }
    };
    report.set(Layer::RestrictedToken, Status::Full);
    report.set(Layer::LowIntegrity, lowered(&token, local, place));
    Some(token)
}

/// A process of low integrity writes nothing of the user's but what is labelled for it: the run's own directories are. A grant is not,
/// since the label would stay on it for every program.
fn lowered(token: &Token, local: &Local, place: &Place) -> Status {
    let own = [place.home(), place.temporary()];
    let granted: Vec<&PathBuf> = local.write.iter().filter(|path| !own.contains(path)).collect();
    if let Some(path) = granted.first() {
        return Status::Absent(format!("unsupported: {} is granted to be written", path.display()));
    }
    let labelled = own.iter().try_for_each(|path| sys::label_low(path));
    match labelled.and_then(|()| token.lower()) {
        Ok(()) => Status::Partial("requested: nothing but its own directories is written".into()),
        Err(why) => Status::Absent(format!("failed: {why}")),
    }
}

enum Failed {
    NotExecuted(NotExecuted),
    Refused(Refusal),
}

/// Starts the server's process, suspended. Where there is none, as where a cage is only tried, it is this program, which is never
/// resumed and ends with the job.
fn execute(
    local: &Local,
    stdio: [&File; 3],
    token: Option<&Token>,
    report: &mut Report,
) -> Result<Option<Process>, Failed> {
    let named = local.program.clone().unwrap_or_else(own_program);
    let not = |kind, why: String| Failed::NotExecuted(NotExecuted { program: named.display().to_string(), kind, why });
    let (program, arguments) = program(&named, local).map_err(|why| not(NotExecutedKind::NotFound, why))?;
    let line = command_line(&program, &arguments).map_err(|why| not(NotExecutedKind::NotExecutable, why))?;
    let environment = environment_block(&local.env).map_err(|why| not(NotExecutedKind::NotExecutable, why))?;
    let start = |token| {
        let (line, environment, workdir) = (line.as_str(), environment.as_slice(), local.workdir.as_path());
        Process::start(&Start { program: &program, line, environment, workdir, stdio, token })
    };
    let started = match token.map(|token| start(Some(token))) {
        Some(Ok(process)) => Ok(process),
        // ERROR_PRIVILEGE_NOT_HELD, ERROR_CALL_NOT_IMPLEMENTED: it is the token that is refused.
        Some(Err(why)) if matches!(why.raw_os_error(), Some(1314 | 120)) => {
            for layer in [Layer::RestrictedToken, Layer::LowIntegrity] {
                report.set(layer, Status::Absent(format!("failed: no process is started by it: {why}")));
            }
            start(None)
        }
        Some(Err(why)) => Err(why),
        None => start(None),
    };
    match started {
        Ok(process) => {
            report.set(Layer::Descriptors, Status::Full);
            Ok(Some(process))
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => Err(not(NotExecutedKind::NotFound, why.to_string())),
        // ERROR_BAD_EXE_FORMAT, ERROR_EXE_MACHINE_TYPE_MISMATCH, ERROR_ACCESS_DENIED.
        Err(why) if matches!(why.raw_os_error(), Some(193 | 216 | 5)) => {
            Err(not(NotExecutedKind::NotExecutable, why.to_string()))
        }
        Err(why) => Err(Failed::Refused(Refusal::new("starting the server's process", why))),
    }
}

/// The program that is started, with its arguments: for a script of npm's the interpreter and the script itself.
fn program(named: &Path, local: &Local) -> Result<(PathBuf, Vec<String>), String> {
    let search = local.env.iter().find(|(name, _)| name.eq_ignore_ascii_case("PATH")).map_or("", |(_, value)| value);
    let found = find(named, search).ok_or("there is no such program, nor one with .exe or .cmd")?;
    if !is_batch(&found) {
        return Ok((found, local.arguments.clone()));
    }
    let text = std::fs::read_to_string(&found).map_err(|why| why.to_string())?;
    let script = script_of_shim(&found, &text)
        .ok_or("it is a batch file and none of npm's; cmd.exe would read its arguments by rules of its own")?;
    let node = find(Path::new("node"), search).ok_or("it is a script for node, which is not in PATH")?;
    let script = script.to_str().ok_or("its script's path is no Unicode text")?.to_owned();
    Ok((node, [vec![script], local.arguments.clone()].concat()))
}

/// A program by its path or by its name in `search`, with the endings that Windows adds.
fn find(named: &Path, search: &str) -> Option<PathBuf> {
    let endings = ["", ".exe", ".cmd"];
    let with = |path: &Path| {
        let all = endings.iter().map(|ending| {
            let mut whole = path.as_os_str().to_owned();
            whole.push(ending);
            PathBuf::from(whole)
        });
        let usable = |path: &PathBuf| path.extension().is_some() && path.is_file();
        all.filter(usable).collect::<Vec<_>>().into_iter().next()
    };
    if named.components().count() > 1 {
        return with(named);
    }
    std::env::split_paths(search)
        .filter(|directory| directory.is_absolute())
        .find_map(|directory| with(&directory.join(named)))
}

#[cfg(test)]
pub(super) fn for_a_test(local: &Local, limits: &Watched, place: Place) -> Result<Prepared, Refusal> {
    let mut local = local.clone();
    inherit(&mut local.env);
    start(&local, limits, place, false)
}
