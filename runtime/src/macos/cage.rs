//! A run's process, from its plan to its end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;

use super::guard::Guard;
use super::signals::Signals;
use super::sys::{self, Queue};
use crate::ahead::Ordered;
use crate::egress::{Proxies, Refused, Totals};
use crate::journal::Ticket;
use crate::local::{Execute, Local, Place, relocate};
use crate::outcome::{How, Masked, Outcome};
use crate::plan::{Limit, Plan};
use crate::refusal::{NotExecuted, NotExecutedKind, Refusal};
use crate::report::{Layer, Report, Status, Tier};
use crate::seatbelt::{judged, profile};

/// What puts a process into a sandbox.
const SANDBOX_EXEC: &str = "/usr/bin/sandbox-exec";

impl Ordered {
    /// Writes the profile and tries it. Private directories are made below `place`.
    ///
    /// # Errors
    /// A [`Refusal`], also where there is no sandbox and the `least` tier asks for one.
    pub fn prepare(self, plan: &Plan, place: &Path, least: Tier, _: &Signals, _: Proxies) -> Result<Prepared, Refusal> {
        if least > Tier::One {
            let why = "macOS has no namespaces: Seatbelt's tier 1 is all there is";
            return Err(Refusal::new(format!("a cage of tier {least}"), why).hint("run the server on Linux"));
        }
        let make = |why| Refusal::new(format!("making a directory in {}", place.display()), why);
        let place = Place::make(place, self.run).map_err(make)?;
        let mut local = relocate(plan, &place)?;
        // In the sandbox nobody can look for it.
        if let Some(found) = local.program.as_deref().and_then(|program| find(program, &local.env).ok()) {
            if let Execute::These(files) = &mut local.execute {
                files.insert(found.clone());
            }
            local.program = Some(found);
        }
        let (profile, seatbelt) = match profile(&local, &plan.identity.home) {
            Ok(text) => match tried(&text, &place) {
                Status::Full => (Some(text), Status::Full),
                lacking => (None, lacking),
            },
            Err(why) => (None, Status::Absent(format!("failed: no profile can be written: {}: {}", why.what, why.why))),
        };
        let mut report = judged(seatbelt, !plan.egress.grants_nothing(), least)?;
        report.set(Layer::Guard, Guard::can_see());
        // What the child sets before it starts anything; where it cannot, it does not start.
        report.set(Layer::ResourceLimits, Status::Full);
        report.set(Layer::Descriptors, Status::Full);
        Ok(Prepared { local, profile, plan: plan.clone(), direct: self.direct, report, place })
    }
}

/// Whether a sandbox by that profile keeps what it promises, as far as one file tells: two programs are started in it, of which one may do
/// what it does and the other reads a file that is not granted.
fn tried(profile: &str, place: &Place) -> Status {
    let with = |program: &str| {
        format!("{profile}(allow process-exec* file-read* file-map-executable (literal \"{program}\"))\n")
    };
    let run = |program: &str, arguments: &[&Path]| {
        let mut command = Command::new(SANDBOX_EXEC);
        command.arg("-p").arg(with(program)).arg(program).args(arguments).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()
    };
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().escape_debug().to_string();
    match run("/usr/bin/true", &[]) {
        Ok(ended) if ended.status.success() => {}
        Ok(ended) => return Status::Absent(format!("failed: the profile is not taken: {}", said(&ended.stderr))),
        Err(why) => return Status::Absent(format!("failed: {SANDBOX_EXEC} cannot be started: {why}")),
    }
    let canary = place.canary();
    if let Err(why) = std::fs::write(&canary, "x") {
        return Status::Absent(format!("failed: {} cannot be made: {why}", canary.display()));
    }
    match run("/bin/cat", &[&canary]) {
        Ok(ended) if !ended.status.success() => Status::Full,
        Ok(_) => Status::Absent("failed: a file that was not granted could be read in it".into()),
        Err(why) => Status::Absent(format!("failed: {SANDBOX_EXEC} cannot be started: {why}")),
    }
}

/// A cage that was tried; the server's process is not there yet.
#[derive(Debug)]
pub struct Prepared {
    local: Local,
    /// None where limits alone hold it, which policy has accepted.
    profile: Option<String>,
    plan: Plan,
    direct: bool,
    report: Report,
    place: Place,
}

impl Prepared {
    /// Nobody asked for a record of calls, since that was refused.
    pub fn recorded(&self) -> Option<Result<(), &str>> {
        None
    }

    /// What each layer enforces.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// There are none.
    pub fn cgroup(&self) -> &'static str {
        "none"
    }

    /// Starts the server. The ticket is the proof that the begin entry is on disk.
    ///
    /// # Errors
    /// Where no process can be started or waited for.
    pub fn start(self, _: &Ticket, refused: Box<dyn FnMut(&Refused) + Send>) -> Result<Cage, Refusal> {
        drop(refused);
        let fail = |why: io::Error| Refusal::new("starting the server's process", why);
        let queue = Queue::new().map_err(fail)?;
        let program = self.local.program.clone().unwrap_or_default();
        let (child, not_executed) = match self.spawn(&program) {
            Ok(child) => (Some(child), None),
            Err(why) => {
                let kind = match why.kind() {
                    io::ErrorKind::NotFound => NotExecutedKind::NotFound,
                    _ => NotExecutedKind::NotExecutable,
                };
                let program = program.display().to_string();
                (None, Some(NotExecuted { program, kind, why: why.to_string() }))
            }
        };
        let mut cage = Cage {
            stdin: None,
            stdout: None,
            stderr: None,
            report: self.report,
            guard: Guard::new(child.as_ref().map_or(0, |child| child.id().cast_signed()), self.plan.limits),
            child,
            not_executed,
            how: None,
            exceeded: None,
            queue,
            place: Some(self.place),
        };
        if let Some(child) = &mut cage.child {
            // One that has ended already is told of at once, or is no more there to be added: both are seen by has_ended.
            if let Err(why) = cage.queue.add_end_of(child.id().cast_signed())
                && why.raw_os_error() != Some(libc::ESRCH)
            {
                return Err(fail(why));
            }
            cage.stdin = child.stdin.take().map(OwnedFd::from);
            cage.stdout = child.stdout.take().map(OwnedFd::from);
            cage.stderr = child.stderr.take().map(OwnedFd::from);
        }
        Ok(cage)
    }

    fn spawn(&self, program: &Path) -> io::Result<Child> {
        let found = find(program, &self.local.env)?;
        let mut command = match &self.profile {
            Some(profile) => {
                let mut command = Command::new(SANDBOX_EXEC);
                command.arg("-p").arg(profile).arg(&found);
                command
            }
            None => Command::new(&found),
        };
        command.args(&self.local.arguments).current_dir(&self.local.workdir).env_clear();
        command.envs(self.local.env.iter().map(|(name, value)| (name, value)));
        let stream = || if self.direct { Stdio::inherit() } else { Stdio::piped() };
        command.stdin(stream()).stdout(stream()).stderr(Stdio::piped());
        sys::confine(&mut command, &self.plan.rlimits);
        command.spawn()
    }
}

/// A program by its path or by its name in the server's PATH: inside of the sandbox nobody could say that it is not there.
fn find(program: &Path, env: &[(String, String)]) -> io::Result<PathBuf> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "there is no such program");
    if program.components().count() > 1 {
        return if program.exists() { Ok(program.to_owned()) } else { Err(missing()) };
    }
    let search = env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value.as_str());
    let mut all = std::env::split_paths(search).filter(|directory| directory.is_absolute());
    all.find_map(|directory| Some(directory.join(program)).filter(|path| path.is_file())).ok_or_else(missing)
}

/// A running server. Dropping it kills the whole tree.
#[derive(Debug)]
pub struct Cage {
    /// The pipe to the server's standard input; dropping it is the end of the server's input.
    pub stdin: Option<OwnedFd>,
    /// The pipe from the server's standard output; dropped at its end.
    pub stdout: Option<OwnedFd>,
    /// The pipe from the server's standard error; dropped at its end.
    pub stderr: Option<OwnedFd>,
    report: Report,
    guard: Guard,
    child: Option<Child>,
    not_executed: Option<NotExecuted>,
    how: Option<How>,
    exceeded: Option<Limit>,
    queue: Queue,
    /// `None` once somebody else has it.
    place: Option<Place>,
}

/// What is left of a cage whose server has ended: the run's directories, which go with it.
#[derive(Debug)]
pub struct Remains {
    _place: Option<Place>,
}

impl Cage {
    /// What was enforced.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Readable when there is something for [`Cage::has_ended`] to hear.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// Whether the server has ended, or was never executed.
    pub fn has_ended(&mut self) -> bool {
        while self.queue.next().is_some() {}
        let Some(child) = &mut self.child else { return true };
        match child.try_wait() {
            Ok(None) => false,
            Ok(Some(status)) => {
                self.how = status.code().map(How::Code).or(status.signal().map(How::Signal));
                true
            }
            Err(_) => true,
        }
    }

    /// Passes a signal to the server.
    pub fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child
            && self.how.is_none()
        {
            sys::kill(child.id().cast_signed(), signal.as_raw());
        }
    }

    /// Kills every process of the cage at once.
    pub fn kill(&mut self) {
        if self.child.is_some() {
            self.guard.kill_all();
        }
    }

    /// When [`Cage::look`] is due.
    pub fn next_look(&self) -> Instant {
        self.guard.next()
    }

    /// Looks whether the tree keeps its limits, and kills it where it does not.
    pub fn look(&mut self) {
        if self.child.is_some()
            && self.exceeded.is_none()
            && let Some(limit) = self.guard.look()
        {
            self.exceeded = Some(limit);
            self.kill();
        }
    }

    /// What is denied in grants is denied by its path, which nobody moves out of sight.
    pub fn near_masks(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Nothing is hidden by a mount here.
    pub fn look_at_masks(&mut self) -> Masked {
        Masked::Yes
    }

    /// How it ended, once it [`has_ended`](Cage::has_ended), and what is left of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(mut self) -> io::Result<(Outcome, Remains)> {
        if let (Some(child), None) = (&mut self.child, self.how) {
            let status = child.wait()?;
            self.how = status.code().map(How::Code).or(status.signal().map(How::Signal));
        }
        self.kill();
        let outcome = Outcome {
            how: self.how,
            limit: self.exceeded,
            unmasked: None,
            not_executed: self.not_executed.take(),
            cpu_time: self.guard.spent(),
            peak_memory: self.guard.peak(),
            egress: Totals::default(),
            asked: None,
        };
        self.child = None;
        Ok((outcome, Remains { _place: self.place.take() }))
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        self.kill();
        if let Some(child) = &mut self.child {
            let _ = child.wait();
        }
    }
}
