//! Directories of smcp's own that last from run to run.

use std::fs::DirBuilder;
use std::io;
use std::path::PathBuf;

use distribution::system::DirBuilderExt as _;

use crate::plan::{Plan, Provider, What};

/// Makes the state directories of a plan that are not there yet, private to the user.
///
/// # Errors
/// The first that cannot be made, with the reason.
pub fn make_states(plan: &Plan) -> Result<(), (PathBuf, io::Error)> {
    for mount in &plan.mounts {
        if let What::Granted { source, from: Provider::State, .. } = &mount.what {
            DirBuilder::new().recursive(true).mode(0o700).create(source).map_err(|why| (source.clone(), why))?;
        }
    }
    Ok(())
}
