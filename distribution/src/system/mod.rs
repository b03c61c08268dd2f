//! What of files is another thing on each platform, by the same names on all: whoever needs more than `std` has for all of them takes
//! it from here. On Linux these are the system's own calls; where a platform lacks one, its file says what stands in its place.

use std::fs::File;
use std::io::{self, PipeWriter, Write as _};
use std::ops::Range;

#[cfg(any(test, not(target_os = "linux")))]
mod walk;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod chosen;
#[cfg(target_os = "macos")]
#[path = "macos.rs"]
mod chosen;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as chosen;

#[cfg(unix)]
mod unix;

pub use chosen::*;

/// Gives a part of a file to who reads a pipe, by a copy of it.
fn copy_on(file: &File, place: Range<u64>, mut to: &PipeWriter) -> io::Result<()> {
    let mut bytes = vec![0; usize::try_from(place.end - place.start).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, place.start)?;
    to.write_all(&bytes)
}
