//! `smcp oci`, also by the name `smcp-oci`: a command line as runc's, for containerd, podman and docker.
//!
//! Nothing of it is touched in a run of `smcp run`.

mod cli;
mod features;
mod log;
mod show;
mod spec;
mod update;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Parser;
use runtime::oci::{self, Console, Creation, Error, Foreground, Joining, Removal, Runtime};

use cli::{Cli, Command, Create, Exec, Run};
use log::{Detail, Log};

/// The word of `smcp oci`.
pub const VERB: &str = "oci";

/// The name by which smcp is this alone.
const NAME: &str = "smcp-oci";

/// What runc ends with where something went wrong.
const FAILED: u8 = 1;

/// Does what the command line says, where that is for this: by the name that smcp is called by, or by its first word.
pub fn main(arguments: &[OsString]) -> Option<u8> {
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    let word = arguments.get(1).map(OsString::as_os_str);
    if let Some(written) = name.and_then(OsStr::to_str).and_then(|name| oci::write_map_as(name, &arguments[1..])) {
        return Some(written.map_or(FAILED, |()| 0));
    }
    // What smcp starts itself as comes first: by whatever name it was called.
    if word == Some(OsStr::new(oci::DEVICES)) {
        let Err(why) = oci::bound_devices(&arguments[2..]) else { return Some(0) };
        crate::show::tell(&format!("error: {why}"));
        return Some(FAILED);
    }
    if word == Some(OsStr::new(oci::HOOK)) {
        let why = oci::run_hook(&arguments[2..]);
        crate::show::tell(&format!("error: starting a hook: {why}"));
        return Some(FAILED);
    }
    if name == Some(OsStr::new(NAME)) {
        return Some(run(arguments, arguments));
    }
    if word == Some(OsStr::new(VERB)) {
        return Some(run(arguments, &arguments[1..]));
    }
    None
}

fn run(all: &[OsString], arguments: &[OsString]) -> u8 {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { FAILED } else { 0 };
        }
    };
    let log = match Log::open(cli.globals.log.as_deref(), cli.globals.log_format) {
        Ok(log) => log,
        Err(why) => {
            crate::show::tell(&format!("error: opening the log: {why}"));
            return FAILED;
        }
    };
    let detail = if cli.globals.debug { Detail::Everything } else { Detail::Reason };
    if let Err(why) = log.listen(detail) {
        log.warn(&format!("what libcontainer says is not heard: {why}"));
    }
    match dispatch(&cli, all, &log) {
        Ok(code) => code,
        Err(error) => {
            log.fail(&error.to_string());
            FAILED
        }
    }
}

fn dispatch(cli: &Cli, all: &[OsString], log: &Log) -> Result<u8, Error> {
    let root = cli.globals.root.clone().unwrap_or_else(Runtime::default_root);
    let runtime = Runtime::new(root, cli.globals.systemd_cgroup);
    match &cli.command {
        Command::Create(asked) => {
            oci::seal(all)?;
            let made = runtime.create(&creation(asked, asked.console_socket.as_deref()));
            made.map_err(|why| named("create", why))?.warning.iter().for_each(|warning| log.warn(warning));
        }
        Command::Run(asked) => {
            oci::seal(all)?;
            return foreground(&runtime, asked, log);
        }
        Command::Exec(asked) => {
            oci::seal(all)?;
            return exec(&runtime, asked);
        }
        Command::Start { ids } => ids.iter().try_for_each(|id| runtime.start(id))?,
        Command::State { id } => show::state(&runtime, id)?,
        Command::Kill { all, id, signal } => {
            let number = oci::parse_signal(signal).ok_or_else(|| Error::State(format!("unknown signal {signal:?}")))?;
            runtime.kill(id, number, *all)?;
        }
        Command::Delete { force, ids } => {
            let removal = if *force { Removal::Forced } else { Removal::Ended };
            for id in ids {
                if let Some(warning) = runtime.delete(id, removal)? {
                    log.warn(&warning);
                }
            }
        }
        Command::Ps { format, id, arguments } => show::ps(&runtime, id, *format, arguments)?,
        Command::List { format, quiet } => show::list(&runtime, *format, *quiet)?,
        Command::Events { interval, stats, id } => show::events(&runtime, id, interval, *stats)?,
        Command::Pause { id } => runtime.pause(id)?,
        Command::Resume { id } => runtime.resume(id)?,
        Command::Update(asked) => runtime.update(&asked.id, &update::resources(asked)?)?,
        Command::Spec { bundle, rootless } => spec::write(bundle, *rootless)?,
        Command::Features => features::print(),
    }
    Ok(0)
}

fn creation<'a>(asked: &'a Create, console: Option<&Path>) -> Creation<'a> {
    Creation {
        id: &asked.id,
        bundle: &asked.bundle,
        console: console.map(Path::to_owned),
        pid_file: asked.pid_file.as_deref(),
        pidfd_socket: asked.pidfd_socket.as_deref(),
        preserve_fds: asked.preserve_fds,
        no_pivot: asked.no_pivot,
        keyring: !asked.no_new_keyring,
    }
}

/// As runc says it.
fn named(command: &str, why: Error) -> Error {
    match why {
        Error::Step { what, why } => Error::Step { what: format!("smcp-oci {command} failed: {what}"), why },
        other => other,
    }
}

/// Makes a container, starts it, and stays until it has ended.
fn foreground(runtime: &Runtime, asked: &Run, log: &Log) -> Result<u8, Error> {
    if asked.detach {
        let made = runtime.create(&creation(&asked.create, asked.create.console_socket.as_deref()));
        made.map_err(|why| named("run", why))?.warning.iter().for_each(|warning| log.warn(warning));
        return started(runtime, &asked.create.id).map(|()| 0);
    }
    let console = oci::wants_terminal(&asked.create.bundle)?.then(|| Console::listen(&asked.create.id)).transpose()?;
    let watch = Foreground::new()?;
    let socket = console.as_ref().map(Console::path);
    let made = runtime.create(&creation(&asked.create, socket.as_deref())).map_err(|why| named("run", why))?;
    made.warning.iter().for_each(|warning| log.warn(warning));
    started(runtime, &asked.create.id)?;
    let code = watch.wait(made.record.pid, console.as_ref())?;
    if !asked.keep
        && let Some(warning) = runtime.delete(&asked.create.id, Removal::Forced)?
    {
        log.warn(&warning);
    }
    Ok(code)
}

/// Starts a container, of which nothing is left where that fails.
fn started(runtime: &Runtime, id: &str) -> Result<(), Error> {
    runtime.start(id).inspect_err(|_| {
        let _ = runtime.delete(id, Removal::Forced);
    })
}

fn exec(runtime: &Runtime, asked: &Exec) -> Result<u8, Error> {
    if asked.process.is_none() && asked.arguments.is_empty() {
        return Err(Error::State("exec needs a program, or --process FILE".into()));
    }
    let terminal = match &asked.process {
        Some(file) => oci::process_wants_terminal(file)?,
        None => asked.tty,
    };
    let own = match (terminal, asked.detach, &asked.console_socket) {
        (true, false, None) => Some(Console::listen(&asked.id)?),
        _ => None,
    };
    let watch = if asked.detach { None } else { Some(Foreground::new()?) };
    let pid = runtime.join(&Joining {
        id: &asked.id,
        process: asked.process.as_deref(),
        args: asked.arguments.clone(),
        cwd: asked.cwd.clone(),
        env: asked.env.clone(),
        user: asked.user,
        groups: asked.additional_gids.clone(),
        terminal: asked.tty,
        apparmor: asked.apparmor.clone(),
        label: asked.process_label.clone(),
        no_new_privileges: asked.no_new_privs,
        capabilities: asked.cap.clone(),
        cgroup: asked.cgroup.clone(),
        ignore_paused: asked.ignore_paused,
        console: own.as_ref().map(Console::path).or_else(|| asked.console_socket.clone()),
        pid_file: asked.pid_file.as_deref(),
        pidfd_socket: asked.pidfd_socket.as_deref(),
        preserve_fds: asked.preserve_fds,
    })?;
    watch.map_or(Ok(0), |watch| watch.wait(pid, own.as_ref()))
}
