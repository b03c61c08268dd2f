//! How long a start takes, by smcp and by what it is compared with: bare, bubblewrap, crun, `npx`.
//!
//! `cargo bench -p smcp --bench start [-- --runs N] [--json FILE] [--user UID] [--binary SMCP]`. All contenders of a part take turns in
//! one run, since times of different runs differ by a third on a shared machine; the ratios are what counts. Nothing
//! outside a directory of its own in `/var/tmp` is written, save what apt, npm and cargo keep for themselves.

mod contender;
mod sample;
mod stage;
mod summary;
mod sys;
mod world;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sample::{Part, Waits};
use stage::Stage;
use summary::Summary;
use world::World;

/// An error is told and nothing more: nobody handles it.
pub type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` starts benchmarks too, without this word.
    if !arguments.iter().any(|word| word == "--bench") {
        println!("start: measured by `cargo bench` only");
        return ExitCode::SUCCESS;
    }
    match Options::parse(&arguments).and_then(|options| match &options.world {
        None => Stage::set(&options)?.play(&options),
        Some(directory) => measure(directory, &options),
    }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Measures in the world that the stage was set for, as the user that the stage has chosen.
fn measure(directory: &Path, options: &Options) -> Result<()> {
    let world = World::furnish(directory)?;
    let mut cage = Part::new("the cage alone (a static program that ends at once), start to exit", Waits::ForExit);
    cage.contenders = contender::of_the_cage(&world);
    cage.flushes_beside(&world.audit_log());
    // A start without a server takes a hundredth of one with a server, and scatters as much.
    cage.measure(options.runs * 10)?;
    let mut server = Part::new("server-everything, start to the first byte on stdout", Waits::ForFirstByte);
    server.contenders = contender::of_the_server(&world);
    server.measure(options.runs)?;
    let summary = Summary::of(&world, &cage, &server);
    print!("{summary}");
    std::fs::write(directory.join(stage::REPORT), summary.to_json()).map_err(because("writing the report"))
}

/// What was typed after `--`.
pub struct Options {
    runs: usize,
    json: Option<PathBuf>,
    user: Option<u32>,
    /// The smcp that is measured, where it is not cargo's: `packaging/static` builds the one that is released.
    binary: PathBuf,
    /// Set by the stage for the process that measures.
    world: Option<PathBuf>,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Options> {
        let binary = env!("CARGO_BIN_EXE_smcp").into();
        let mut options = Options { runs: 15, json: None, user: None, binary, world: None };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--bench" => {}
                "--runs" => options.runs = value()?.parse().map_err(because("--runs"))?,
                "--user" => options.user = Some(value()?.parse().map_err(because("--user"))?),
                "--binary" => options.binary = value()?.into(),
                "--json" => options.json = Some(value()?.into()),
                "--world" => options.world = Some(value()?.into()),
                _ => return Err(format!("unknown argument {word}: --runs N, --json FILE, --user UID, --binary SMCP")),
            }
        }
        if options.runs == 0 { Err("--runs 0 measures nothing".into()) } else { Ok(options) }
    }
}

/// Says in which step an error came.
pub fn because<E: Display>(step: impl Display) -> impl FnOnce(E) -> String {
    move |why| format!("{step}: {why}")
}
