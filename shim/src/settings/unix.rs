//! Where a machine's own configuration is, and its users'.

use std::path::{Path, PathBuf};

use runtime::system;

use super::{read_small, unreadable};
use crate::exit::Failure;

/// The organisation's directory: `config.yaml`, `policy.yaml`, `policy.d`. Nothing but root's hand makes it another one: no variable
/// and no flag does.
pub fn organisation() -> PathBuf {
    "/etc/smcp".into()
}

/// The home directory by the table of accounts.
///
/// # Errors
/// Where the table cannot be read.
pub fn home_of_account() -> Result<Option<PathBuf>, Failure> {
    let accounts = Path::new("/etc/passwd");
    let text = read_small(accounts).map_err(|why| unreadable(accounts, &why))?;
    let own = system::user().to_string();
    let text = String::from_utf8_lossy(&text);
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut homes = fields
        .filter(|fields| fields.get(2) == Some(&own.as_str()))
        .filter_map(|fields| fields.get(5).map(PathBuf::from));
    Ok(homes.next().filter(|home| home.is_absolute()))
}
