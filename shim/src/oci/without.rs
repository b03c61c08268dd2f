//! `smcp oci` where there are no containers.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::exit::{self, Failure};

/// Refuses what the command line says, where that is for this: by the name that smcp is called by, or by its first word.
pub fn main(arguments: &[OsString]) -> Option<u8> {
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    let is_meant = name == Some(OsStr::new("smcp-oci")) || arguments.get(1).is_some_and(|word| word == "oci");
    let what = format!("smcp oci: containers are Linux's, and this is {}", std::env::consts::OS);
    is_meant.then(|| Failure::new(exit::CAGE, what).hint("docs/platforms.md has what runs where").print())
}
