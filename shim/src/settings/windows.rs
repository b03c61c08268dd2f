//! Where a machine's own configuration is, and its users'.

use std::path::PathBuf;

use runtime::system;

use super::unreadable;
use crate::exit::Failure;

/// The organisation's directory: `config.yaml`, `policy.yaml`, `policy.d`. An administrator alone makes it, beside the programs of all
/// users: no variable and no flag makes it another one.
pub fn organisation() -> PathBuf {
    system::program_files().unwrap_or_else(|_| PathBuf::from(r"C:\Program Files")).join("smcp")
}

/// The home directory by the user's own entry.
///
/// # Errors
/// Where there is none.
pub fn home_of_account() -> Result<Option<PathBuf>, Failure> {
    system::home_of_account().map(Some).map_err(|why| unreadable(&organisation(), &why))
}
