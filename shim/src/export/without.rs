//! `smcp bundle` where no OCI runtime runs what it would write.

use std::path::Path;

use distribution::{Network, Resolved, Store};
use runtime::Plan;

use crate::bundled::Recorded;
use crate::cli;
use crate::exit::{self, Failure};
use crate::settings::Settings;

/// Refuses it.
pub fn bundle(_: &cli::BundleOf, _: Result<Settings, Failure>) -> u8 {
    refused().print()
}

/// Refuses it.
///
/// # Errors
/// Always.
pub fn write(_: &Plan, _: &Resolved, _: &Recorded, _: &Path, _: &Store, _: &Network) -> Result<(), Failure> {
    Err(refused())
}

fn refused() -> Failure {
    let what =
        format!("smcp bundle: links, owners and modes of a container's files are not had on {}", std::env::consts::OS);
    Failure::new(exit::CAGE, what).hint("docs/platforms.md has what runs where")
}
