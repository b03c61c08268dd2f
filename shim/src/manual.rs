//! `smcp completions` and `smcp man`: made of the one table of commands and flags.

use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{self, Failure};

/// Prints what a shell reads to complete smcp's commands and flags.
///
/// # Errors
/// Of code 2, where it cannot be written.
pub fn completions(shell: Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "smcp", &mut text);
    written(io::Write::write_all(&mut io::stdout(), &text), "standard output")
}

/// Prints smcp(1), or writes the page of each command into a directory, which is made where it is not there.
///
/// # Errors
/// Of code 2, where something cannot be written.
pub fn pages(directory: Option<&Path>) -> Result<(), Failure> {
    match directory {
        None => {
            let mut page = Vec::new();
            let made = clap_mangen::Man::new(Cli::command()).render(&mut page);
            written(made.and_then(|()| io::Write::write_all(&mut io::stdout(), &page)), "standard output")
        }
        Some(directory) => {
            let made = std::fs::create_dir_all(directory);
            let all = made.and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
            written(all, &directory.display().to_string())
        }
    }
}

fn written(result: io::Result<()>, place: &str) -> Result<(), Failure> {
    match result {
        // Whoever reads may stop.
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|why| Failure::new(exit::USAGE, format!("writing to {place}: {why}"))),
    }
}
