//! What a test needs of the machine. Missing: skipped, loudly; in CI a failure.

use std::env;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Root, for the half of a test that root runs.
pub fn root() -> bool {
    present(rustix::process::geteuid().is_root(), "root")
}

/// How long the first making of a package may take on a busy machine.
pub const FIRST: Duration = Duration::from_secs(300);

/// What packages of npm are made and run by.
pub fn npm() -> bool {
    program("node", "nodejs").is_some() && program("npm", "npm").is_some()
}

/// A program on the path of Debian's packages; the name of the package that brings it.
pub fn program(name: &str, package: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/bin", "/usr/sbin", "/usr/local/bin"]
        .iter()
        .map(|d| Path::new(d).join(name))
        .find(|p| p.exists());
    present(found.is_some(), &format!("{name} (Debian's package {package})")).then_some(found)?
}

/// Anything else that was looked for.
pub fn present(is: bool, what: &str) -> bool {
    if !is {
        assert!(env::var_os("CI").is_none(), "CI must have {what}");
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        // Not eprintln: the test harness would swallow it.
        let _ = writeln!(io::stderr(), "SKIPPED {test}: this machine has no {what}");
    }
    is
}
