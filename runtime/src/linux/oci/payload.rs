//! What libcontainer's process does in the end in place of its own exec: hooks of the container, the filter, the capabilities,
//! and the program.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use libcontainer::oci_spec::runtime::Spec;
use libcontainer::workload::{Executor, ExecutorError, ExecutorSetEnvsError, ExecutorValidationError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::CapabilitySets;
use serde_json::Value;

use super::caged::Cage;
use super::config::Process;
use super::seal::Canary;
use super::seccomp::Filter;
use crate::linux::sys::{self, SignalSet};

/// The program of a container and what is done before it.
#[derive(Clone)]
pub struct Payload {
    process: Rc<Process>,
    filter: Option<Rc<Filter>>,
    cage: Option<Rc<(Cage, Canary)>>,
    /// Whether somebody waits for what goes wrong before exec.
    heard: bool,
    /// Hooks that run in the container once it is started, and the state that they get.
    hooks: Rc<(Vec<Value>, Value)>,
    /// Open until the program is executed.
    _held: Option<Rc<OwnedFd>>,
    /// `NAME=VALUE`.
    environment: Rc<RefCell<Vec<String>>>,
}

impl Payload {
    /// To run this process.
    pub fn new(process: Process, filter: Option<Filter>, cage: Option<(Cage, Canary)>) -> Payload {
        Payload {
            process: process.into(),
            filter: filter.map(Rc::new),
            cage: cage.map(Rc::new),
            heard: false,
            hooks: Rc::new((Vec::new(), Value::Null)),
            _held: None,
            environment: Rc::default(),
        }
    }

    /// The same, after these hooks. What is `held` is closed when they are done and the program is executed.
    pub fn after(self, hooks: Vec<Value>, state: Value, held: Option<OwnedFd>) -> Payload {
        Payload { hooks: Rc::new((hooks, state)), _held: held.map(Rc::new), ..self }
    }

    /// The same for a process that joins a container: its caller waits until it is executed.
    pub fn joining(self) -> Payload {
        Payload { heard: true, ..self }
    }

    /// The file to execute; the words are those of runc, by which callers tell what is missing.
    fn find(&self) -> Result<PathBuf, String> {
        let name = self.process.args.first().filter(|name| !name.is_empty()).ok_or("process.args must not be empty")?;
        let fail = |why: Errno| {
            let text = std::io::Error::from(why).to_string().to_lowercase();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            match why {
                Errno::NOENT => format!("exec: {name:?}: stat {name}: {text}"),
                _ => format!("exec: {name:?}: {text}"),
            }
        };
        if name.contains('/') {
            return executable(Path::new(name)).map(|()| PathBuf::from(name)).map_err(fail);
        }
        let directories =
            self.search_path().split(':').map(|directory| if directory.is_empty() { "." } else { directory });
        let mut denied = None;
        for file in directories.map(|directory| Path::new(directory).join(name)) {
            match executable(&file) {
                Ok(()) => return Ok(file),
                Err(why) if why == Errno::ACCESS => denied = Some(why),
                Err(_) => {}
            }
        }
        Err(denied.map_or_else(|| format!("exec: {name:?}: executable file not found in $PATH"), fail))
    }

    fn search_path(&self) -> &str {
        self.process.env.iter().rev().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or_default()
    }

    fn become_program(&self) -> String {
        if let Err(why) = self.run_hooks() {
            return why;
        }
        // Whoever called smcp may have signals ignored or blocked, as Rust has SIGPIPE.
        sys::default_signals();
        SignalSet::of(&[]).block_only();
        let file = match self.find() {
            Ok(file) => file,
            Err(why) => return why,
        };
        let string = |text: &[u8]| CString::new(text);
        let environment = self.environment.borrow();
        let words = |texts: &[String]| texts.iter().map(|text| string(text.as_bytes())).collect::<Result<Vec<_>, _>>();
        let (Ok(arguments), Ok(environment), Ok(path)) =
            (words(&self.process.args), words(&environment), string(file.as_os_str().as_bytes()))
        else {
            return "exec: an argument or variable holds a NUL byte".into();
        };
        if let Some(filter) = &self.filter
            && let Err(why) = filter.install().and_then(|()| Ok(self.give_up_what_was_borrowed()?))
        {
            return format!("installing the seccomp filter: {why}");
        }
        if let Some((cage, canary)) = self.cage.as_deref()
            && let Err(why) = cage.confine(&file, &self.process.args, self.search_path(), canary)
        {
            return why;
        }
        let why = sys::execve(&path, &arguments, &environment);
        format!("exec {}: {why}", file.display())
    }

    fn give_up_what_was_borrowed(&self) -> rustix::io::Result<()> {
        if self.process.no_new_privileges {
            return Ok(());
        }
        let own = self.process.capabilities;
        let sets = CapabilitySets { effective: own.effective, permitted: own.permitted, inheritable: own.inheritable };
        rustix::thread::set_capabilities(None, sets)
    }

    fn run_hooks(&self) -> Result<(), String> {
        let (hooks, state) = &*self.hooks;
        let mut state = state.clone();
        // In the container's namespace, where this is.
        state["pid"] = std::process::id().into();
        hooks.iter().try_for_each(|hook| {
            let path = hook["path"].as_str().unwrap_or_default();
            self.run_hook(hook, path, &state).map_err(|why| format!("startContainer hook {path}: {why}"))
        })
    }

    fn run_hook(&self, hook: &Value, path: &str, state: &Value) -> Result<(), String> {
        let texts =
            |name: &str| hook[name].as_array().map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>());
        let mut command = Command::new(path);
        if let Some([name, arguments @ ..]) = texts("args").as_deref() {
            command.arg0(name).args(arguments);
        }
        let own: Vec<&str> = self.process.env.iter().map(String::as_str).collect();
        let variables = texts("env").unwrap_or(own);
        command.env_clear().envs(variables.iter().filter_map(|entry| entry.split_once('=')));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(|why| why.to_string())?;
        if let Some(mut stdin) = child.stdin.take() {
            // A hook need not read it.
            let _ = stdin.write_all(state.to_string().as_bytes());
        }
        if let Some(seconds) = hook["timeout"].as_u64()
            && !ends_within(&child, Duration::from_secs(seconds)).map_err(|why| why.to_string())?
        {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("not done within {seconds} s"));
        }
        let status = child.wait().map_err(|why| why.to_string())?;
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    }
}

/// Whether a child ends in that time. It is not waited for.
fn ends_within(child: &Child, patience: Duration) -> io::Result<bool> {
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let deadline = Instant::now() + patience;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// Whether this user can execute a file.
fn executable(file: &Path) -> Result<(), Errno> {
    let found = std::fs::metadata(file).map_err(|why| Errno::from_io_error(&why).unwrap_or(Errno::NOENT))?;
    // To root everything is accessible, and nothing without a single `x` executable. A directory is what runc says of it.
    if found.is_dir() || found.mode() & 0o111 == 0 {
        return Err(Errno::ACCESS);
    }
    rustix::fs::accessat(rustix::fs::CWD, file, Access::EXEC_OK, AtFlags::EACCESS)
}

impl Executor for Payload {
    /// Before the container is said to be created: what is not there can be said to the caller of `create`.
    fn validate(&self, _: &Spec) -> Result<(), ExecutorValidationError> {
        self.find().map(drop).map_err(ExecutorValidationError::ArgValidationError)
    }

    /// In the order of `config.json`; libcontainer adds HOME and what passes sockets on.
    fn setup_envs(&self, all: HashMap<String, String>) -> Result<(), ExecutorSetEnvsError> {
        let mut environment = self.process.env.clone();
        let known = |name: &str| self.process.env.iter().any(|entry| entry.split('=').next() == Some(name));
        let mut added: Vec<_> = all.into_iter().filter(|(name, _)| !known(name)).collect();
        added.sort();
        environment.extend(added.into_iter().map(|(name, value)| format!("{name}={value}")));
        *self.environment.borrow_mut() = environment;
        Ok(())
    }

    fn exec(&self, _: &Spec) -> Result<(), ExecutorError> {
        let why = self.become_program();
        if !self.heard {
            // Where the container's words go is read by people.
            let _ = writeln!(std::io::stderr(), "{why}");
        }
        Err(ExecutorError::Other(why))
    }
}
