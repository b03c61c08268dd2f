//! What of files is another thing on each platform, by the same names on all: whoever needs more than `std` has for all of them takes
//! it from here. On Linux these are the system's own calls; where a platform lacks one, its file says what stands in its place.

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
