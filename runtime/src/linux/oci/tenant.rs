//! A further process in a container.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use libcontainer::container::State;
use libcontainer::container::builder::ContainerBuilder;
use libcontainer::syscall::syscall::SyscallType;
use rustix::fs::MemfdFlags;
use serde_json::{Value, json};

use super::caged::Cage;
use super::config::{Config, PROCESS, adapt_process, process, refuse_no_id};
use super::create::{announce, give_stdio, give_terminal, leave_groups, terminal};
use super::files::read_json;
use super::payload::Payload;
use super::record::Status;
use super::seccomp::Filter;
use super::{Error, Runtime, amend, clean, rootless, seal};
use crate::linux::wire::chain;

/// What joins a container, as the caller of `exec` says.
#[derive(Clone, Debug, Default)]
pub struct Joining<'a> {
    /// The container.
    pub id: &'a str,
    /// A file with the whole `process`; what follows up to `capabilities` counts without one.
    pub process: Option<&'a Path>,
    /// Program and arguments.
    pub args: Vec<String>,
    /// Where it starts, in place of the container's own.
    pub cwd: Option<String>,
    /// `NAME=VALUE`, beside the container's own.
    pub env: Vec<String>,
    /// Who runs it, in place of the container's own. What this does not say is the container's.
    pub user: Option<User>,
    /// Supplementary groups, beside the container's own.
    pub groups: Vec<u32>,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// Its AppArmor profile.
    pub apparmor: Option<String>,
    /// Its SELinux label.
    pub label: Option<String>,
    /// Whether exec(2) gives it no more than it has, where the container does not say so.
    pub no_new_privileges: bool,
    /// What it may do beside what the container may.
    pub capabilities: Vec<String>,
    /// A cgroup below the container's.
    pub cgroup: Option<String>,
    /// Whether a container that is paused is joined, too.
    pub ignore_paused: bool,
    /// A socket that gets the terminal.
    pub console: Option<PathBuf>,
    /// A file that gets its number.
    pub pid_file: Option<&'a Path>,
    /// A socket that gets a descriptor of it.
    pub pidfd_socket: Option<&'a Path>,
    /// How many descriptors above standard error it keeps.
    pub preserve_fds: i32,
}

/// `UID[:GID]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: Option<u32>,
}

impl std::str::FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        let number =
            |text: &str| text.parse::<u32>().map_err(|_| format!("{text:?} is no id: numbers alone are known"));
        let (uid, gid) = text.split_once(':').map_or((text, None), |(uid, gid)| (uid, Some(gid)));
        Ok(User { uid: number(uid)?, gid: gid.map(number).transpose()? })
    }
}

impl Joining<'_> {
    /// The whole `process`, by the container's own in this file.
    fn process(&self, own: &Path) -> Result<Value, Error> {
        if let Some(file) = self.process {
            return read_json(file);
        }
        let mut process: Value = read_json(own)?;
        process["args"] = json!(self.args);
        process["terminal"] = json!(self.terminal);
        if let Some(object) = process.as_object_mut() {
            object.remove("consoleSize");
        }
        if let Some(cwd) = &self.cwd {
            process["cwd"] = json!(cwd);
        }
        let mut env: Vec<Value> = process["env"].as_array().cloned().unwrap_or_default();
        let name = |entry: &str| entry.split('=').next().unwrap_or_default().to_owned();
        env.retain(|entry| !self.env.iter().any(|own| entry.as_str().is_some_and(|entry| name(entry) == name(own))));
        env.extend(self.env.iter().map(|entry| json!(entry)));
        process["env"] = json!(env);
        if let Some(user) = self.user {
            process["user"]["uid"] = json!(user.uid);
            if let Some(gid) = user.gid {
                process["user"]["gid"] = json!(gid);
            }
        }
        if !self.groups.is_empty() {
            let own = process["user"]["additionalGids"].as_array().cloned().unwrap_or_default();
            let all = own.into_iter().chain(self.groups.iter().map(|group| json!(group)));
            process["user"]["additionalGids"] = all.collect();
        }
        if let Some(profile) = &self.apparmor {
            process["apparmorProfile"] = json!(profile);
        }
        if let Some(label) = &self.label {
            process["selinuxLabel"] = json!(label);
        }
        if self.no_new_privileges {
            process["noNewPrivileges"] = json!(true);
        }
        for set in ["bounding", "effective", "permitted"] {
            let mut names: Vec<Value> = process["capabilities"][set].as_array().cloned().unwrap_or_default();
            names.extend(self.capabilities.iter().map(|name| json!(name)));
            if !self.capabilities.is_empty() {
                process["capabilities"][set] = json!(names);
            }
        }
        Ok(process)
    }
}

impl Runtime {
    /// Runs a process in a container, and gives its number. It is a child of this process.
    ///
    /// # Errors
    /// Where the container does not run, or the process cannot be had.
    pub fn join(&self, asked: &Joining<'_>) -> Result<i32, Error> {
        let record = self.record(asked.id)?;
        let status = self.status(&record)?;
        match status {
            Status::Running | Status::Created => {}
            Status::Paused if asked.ignore_paused => {}
            Status::Paused => {
                return Err(Error::State("cannot exec in a paused container (use --ignore-paused to override)".into()));
            }
            Status::Stopped => return Err(Error::State("cannot exec in a stopped container".into())),
        }
        let directory = self.directory(asked.id)?;
        let config = Config::read(&directory)?;
        let mut whole = asked.process(&directory.join(PROCESS))?;
        config.withhold(&mut whole);
        refuse_no_id(&whole)?;
        let own = process(&whole);
        let filter = config.seccomp()?.as_ref().map(Filter::compile).transpose()?;
        adapt_process(&mut whole, filter.is_some());
        let file = in_memory(&whole).map_err(Error::io("passing the process on"))?;
        leave_groups()?;
        // Before it runs: what it has as streams then is for it to say.
        give_stdio(record.pid, &own);
        rootless::look_away_from_cgroups()?;
        let cage = match Cage::load(&directory)? {
            Some(cage) => Some((cage, seal::canary(&directory)?)),
            None => None,
        };
        let payload = Payload::new(own.clone(), filter, cage).joining();
        // libcontainer lets nothing join one that is not started.
        let aside = (status == Status::Created).then(|| started_aside(&directory, asked.id)).transpose()?;
        let pid = ContainerBuilder::new(asked.id.into(), SyscallType::default())
            .with_root_path(aside.as_ref().map_or(directory.as_path(), |aside| aside.0.as_path()))
            .map_err(Error::of("preparing the process"))?
            .with_executor(payload)
            .with_console_socket(asked.console.as_ref())
            .with_preserved_fds(asked.preserve_fds)
            .as_tenant()
            .with_process(Some(format!("/proc/self/fd/{}", file.as_raw_fd())))
            .with_detach(asked.console.is_some())
            .with_ignore_paused(asked.ignore_paused)
            .with_sub_cgroup(asked.cgroup.clone())
            .build()
            .map_err(|why| Error::step("exec failed: unable to start container process", clean(&chain(&why))))?
            .as_raw();
        // One that has ended has no terminal any more.
        let terminal = terminal(pid, record.pid, &own);
        let _ = amend::size_terminal(&whole, terminal.as_ref());
        give_terminal(terminal.as_ref(), record.pid, &own);
        announce(pid, asked.pid_file, asked.pidfd_socket)?;
        Ok(pid)
    }
}

/// A directory that is gone with this.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// libcontainer's state of a container as if it were started, in a directory of this process's.
fn started_aside(directory: &Path, id: &str) -> Result<Aside, Error> {
    let fail = |why: io::Error| Error::step("joining a container that is not started", why);
    let aside = Aside(directory.join(format!("joining-{}", std::process::id())));
    let inner = aside.0.join(id);
    std::fs::create_dir_all(&inner).map_err(fail)?;
    let text = std::fs::read(State::file_path(&directory.join(id))).map_err(fail)?;
    let mut state: Value = serde_json::from_slice(&text).map_err(|why| fail(why.into()))?;
    state["status"] = json!("running");
    std::fs::write(State::file_path(&inner), state.to_string()).map_err(fail)?;
    Ok(aside)
}

fn in_memory(value: &Value) -> io::Result<File> {
    let mut file = File::from(rustix::fs::memfd_create("process", MemfdFlags::CLOEXEC)?);
    file.write_all(value.to_string().as_bytes())?;
    Ok(file)
}
