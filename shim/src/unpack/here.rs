//! Unpacking where no process can be confined for it: in this very one.

use std::ffi::OsString;
use std::io;

use bundle::{Archive, Extracted, Order, in_this_process};
use distribution::StagedLayer;
use runtime::Unpacking;

use crate::exit::{self, Failure};

/// The word on the command line of a process that unpacks.
pub const VERB: &str = "unpack";

/// Extracts an archive. Nothing is taken that was not compared with its digest.
///
/// # Errors
/// Where the archive has to be whole, or the directory's handle cannot be had a second time.
pub fn in_a_process(archive: Archive<'_>, order: &Order, into: &StagedLayer) -> io::Result<Extracted> {
    if let (Archive::Arriving(_), Err(why)) = (&archive, Unpacking::can_keep_files_apart()) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    in_this_process(archive, order, into)
}

/// Nobody starts such a process here.
pub fn child(_: &[OsString]) -> u8 {
    Failure::new(exit::USAGE, "smcp unpack is started by smcp itself, and not on this platform").print()
}
