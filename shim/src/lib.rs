//! The `smcp` command: its command line, configuration, relay and what it says.
//!
//! Decides nothing itself: names and blobs are `distribution`'s, grants `bundle`'s, the cage `runtime`'s.

#![forbid(unsafe_code)]

mod accept;
mod answer;
mod asking;
mod audit;
mod bring;
mod bundled;
mod calls;
pub mod cli;
pub mod clients;
mod doctor;
mod evidence;
pub mod exit;
#[cfg_attr(windows, path = "export/without.rs")]
mod export;
pub mod handshake;
mod info;
mod key;
mod learn;
mod listing;
mod login;
mod logs;
mod manual;
#[cfg_attr(not(target_os = "linux"), path = "oci/without.rs")]
mod oci;
mod pins;
mod policy;
mod progress;
mod ps;
mod questioner;
mod record;
mod redact;
mod relay;
mod ring;
mod run;
mod scan;
mod screen;
mod secrets;
pub mod settings;
mod show;
mod sign;
mod sources;
mod store;
mod test;
mod tool;
#[cfg_attr(not(target_os = "linux"), path = "unpack/here.rs")]
mod unpack;
mod verdict;
mod why;
mod witness;
mod words;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use runtime::system::leave_no_core;
use tracing_subscriber::filter::LevelFilter;

use cli::{Cli, Command};
use exit::Failure;
use run::Early;
use settings::Settings;

/// Does what the command line says.
pub fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = oci::main(&arguments) {
        return ExitCode::from(code);
    }
    leave_no_core();
    if arguments.get(1).is_some_and(|word| word == unpack::VERB) {
        return ExitCode::from(unpack::child(&arguments[2..]));
    }
    if arguments.get(1).is_some_and(|word| word == bring::VERB) {
        return ExitCode::from(bring::child(&arguments[2..]));
    }
    if arguments.get(1).is_some_and(|word| word == tool::VERB) {
        return ExitCode::from(tool::child(&arguments[2..]));
    }
    let (arguments, order) = match arguments.get(1).is_some_and(|word| word == test::VERB) {
        false => (arguments, None),
        true => match test::Order::read() {
            Ok(order) => (order.words(), Some(order)),
            Err(failure) => return ExitCode::from(failure.print()),
        },
    };
    let early = Early::of(&arguments);
    let cli = match Cli::read(&arguments) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(run::usage(&arguments, &error)),
    };
    hide_values(&cli.command);
    if cli.globals.quiet {
        show::be_quiet();
    }
    let (cli, arguments) = match bundled::run_of(&cli.command) {
        None => (cli, arguments),
        Some((typed, bundle)) => match bundled::expand(&arguments, typed, bundle) {
            Err(failure) => return ExitCode::from(run::failed(&failure, false)),
            Ok((arguments, brought)) => match Cli::read(&arguments) {
                Ok(cli) => {
                    if !brought.is_empty() {
                        show::say(&format!("the bundle brings {brought}"));
                    }
                    (cli, arguments)
                }
                Err(error) => return ExitCode::from(run::usage(&arguments, &error)),
            },
        },
    };
    let settings = Settings::read(cli.globals.config.as_deref());
    let level = match (&settings, cli.globals.verbose, cli.globals.quiet) {
        (_, true, _) => "debug".to_owned(),
        (_, _, true) => "error".to_owned(),
        (Ok(settings), ..) => settings.log_level.clone(),
        (Err(_), ..) => Settings::defaults().log_level,
    };
    ExitCode::from(match log(&level) {
        Ok(()) => dispatch(&cli, settings, early, &arguments, order),
        Err(failure) => dispatch(&cli, Err(failure), early, &arguments, order),
    })
}

/// Takes the values of `--env K=V` out of what `/proc/PID/cmdline` shows to every user for as long as the run lasts.
fn hide_values(command: &Command) {
    let typed = match command {
        Command::Run(typed) => &**typed,
        Command::Learn(typed) => &typed.run,
        Command::Test(typed) => &typed.run,
        Command::Bundle(typed) => &typed.run,
        _ => return,
    };
    if !typed.env.is_empty()
        && let Err(why) = runtime::hide_in_arguments(&typed.env)
    {
        show::warn(&format!("values of --env stay on the command line, which every user can read: {why}"));
    }
}

fn dispatch(
    cli: &Cli,
    settings: Result<Settings, Failure>,
    early: Option<Early>,
    arguments: &[OsString],
    order: Option<test::Order>,
) -> u8 {
    let command = &cli.command;
    if let Command::Run(typed) = command {
        return run::run(typed, settings, early);
    }
    if let Command::Learn(typed) = command {
        return learn::learn(typed, settings);
    }
    if let Command::Scan(typed) = command {
        return scan::scan(typed, settings);
    }
    if let Command::Test(typed) = command {
        return match order {
            None => test::test(typed, arguments),
            Some(order) => order.follow(typed, settings),
        };
    }
    if let Command::Bundle(typed) = command {
        return export::bundle(typed, settings);
    }
    let done = match command {
        // Whatever the configuration says.
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man { dir } => manual::pages(dir.as_deref()),
        _ => settings.and_then(|settings| with_settings(cli, &settings)),
    };
    match done {
        Ok(()) => exit::OK,
        Err(failure) => failure.print(),
    }
}

/// What needs the configuration and is no run.
fn with_settings(cli: &Cli, settings: &Settings) -> Result<(), Failure> {
    match &cli.command {
        Command::Run(_) | Command::Learn(_) | Command::Scan(_) | Command::Test(_) | Command::Bundle(_) => {
            unreachable!("handled above")
        }
        Command::Pull { references, locked, registry, making } => {
            store::pull(references, *locked, registry.as_deref(), making, settings)
        }
        Command::Push { reference, target } => store::push(reference, target.as_deref(), settings),
        Command::Login(typed) => login::login(typed, settings),
        Command::Logout { registry } => login::logout(registry.as_deref(), settings),
        Command::Build(typed) => store::build(typed, cli.globals.config.as_deref(), settings),
        Command::Info { reference, making, json } => info::info(reference, making, *json, settings),
        Command::Accept { reference, making, lock } => accept::accept(reference, making, *lock, settings),
        Command::Policy { command: cli::Policy::Show { json } } => {
            policy::show(*json, settings);
            Ok(())
        }
        Command::Policy { command: cli::Policy::Check { reference, making, json } } => {
            policy::check(reference, making, *json, settings)
        }
        Command::Cache { command } => store::cache(command, settings),
        Command::Key { command: cli::Key::Generate { output, kind } } => key::generate(output, *kind),
        Command::Sign(typed) => sign::sign(typed, settings),
        Command::Attest(typed) => sign::attest(typed, settings),
        Command::Verify(typed) => sign::verify(typed, settings),
        Command::Why { run, json } => why::why(run.as_deref(), *json, settings),
        Command::Audit { command } => audit::audit(command, settings),
        Command::Oci { .. } => unreachable!("handled above"),
        Command::Ps { json } => {
            ps::ps(*json, settings);
            Ok(())
        }
        Command::Logs { run, follow } => logs::logs(run.as_deref(), *follow, settings),
        Command::Adopt(typed) => clients::adopt(typed, settings),
        Command::Client { command } => clients::client(command, settings),
        Command::Undo(typed) => clients::undo(typed, settings),
        Command::Doctor { fix, json } => doctor::doctor(*fix, *json, settings),
        Command::Completions { .. } | Command::Man { .. } => unreachable!("handled above"),
    }
}

/// Sends what the crates log to stderr.
fn log(level: &str) -> Result<(), Failure> {
    let level: LevelFilter = level.parse().map_err(|_| {
        Failure::new(exit::CONFIGURATION, format!("log_level {level:?} is no level"))
            .hint("one of off, error, warn, info, debug, trace")
    })?;
    tracing_subscriber::fmt().with_max_level(level).with_writer(|| Stderr).with_ansi(false).init();
    Ok(())
}

/// Stderr for the log, which would end smcp where nobody reads it any more.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = std::io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
