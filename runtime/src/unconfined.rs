//! What confines a process that unpacks, where nothing does yet.

use crate::NOT_KEPT_APART;
use crate::report::Status;

/// What confines a process that unpacks: nothing.
#[derive(Debug)]
pub struct Unpacking(());

impl Unpacking {
    /// Whether one could be kept in its directory.
    ///
    /// # Errors
    /// Always.
    pub fn can_keep_files_apart() -> Result<(), String> {
        Err(NOT_KEPT_APART.into())
    }

    /// Whether its files are kept apart.
    pub fn files(&self) -> Status {
        Status::Absent(format!("unsupported: {NOT_KEPT_APART}"))
    }
}
