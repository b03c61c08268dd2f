//! The profile of macOS' Seatbelt for a server: everything is denied that no line of it allows. Of several lines about one thing the
//! last counts, so what is hidden in a grant stands after it.
//!
//! The language is Apple's own and nowhere described. The forms that are used here are those of the profiles that come with macOS and
//! of Chromium's; `checked` in the tests knows them all.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use crate::local::{Execute, Local};
use crate::refusal::Refusal;
use crate::report::{Layer, Report, Status, Tier};

/// What every program needs: its own processes, the system's libraries, and questions to the kernel that tell about the machine alone.
const EVERY_PROGRAM: &str = r#"(version 1)
(deny default)
; Its own processes, and signals to nobody else.
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
; The system's libraries and settings.
(allow file-read* file-test-existence
  (subpath "/System/Library")
  (subpath "/System/Volumes/Preboot/Cryptexes")
  (subpath "/Library/Apple")
  (subpath "/usr/lib")
  (subpath "/usr/share")
  (subpath "/private/var/db/dyld")
  (subpath "/private/var/db/timezone")
  (subpath "/private/etc/ssl")
  (literal "/private/etc/hosts")
  (literal "/private/etc/localtime")
  (literal "/private/etc/passwd")
  (literal "/private/etc/protocols")
  (literal "/private/etc/resolv.conf")
  (literal "/private/etc/services")
  (literal "/dev/random")
  (literal "/dev/urandom")
  (literal "/dev/zero"))
(allow file-map-executable
  (subpath "/System/Library")
  (subpath "/System/Volumes/Preboot/Cryptexes")
  (subpath "/Library/Apple")
  (subpath "/usr/lib"))
(allow file-read* file-write-data file-ioctl (literal "/dev/null"))
(allow file-read-metadata
  (literal "/")
  (literal "/dev")
  (literal "/etc")
  (literal "/private")
  (literal "/private/etc")
  (literal "/private/var")
  (literal "/tmp")
  (literal "/usr")
  (literal "/var"))
; The machine's kind and size.
(allow sysctl-read)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow ipc-posix-sem)
"#;

/// What the layers come to after a profile was `tried`. Where limits alone hold the server, since policy accepts that, what Seatbelt
/// would have kept apart is named as absent, the network too: without a profile nothing of it is closed.
///
/// # Errors
/// Where there is no sandbox and the `least` tier asks for one.
pub fn judged(tried: Status, grants_network: bool, least: Tier) -> Result<Report, Refusal> {
    let mut report = Report::default();
    match &tried {
        Status::Full if grants_network => {
            report.set(Layer::Egress, Status::Partial("every host is reached on the granted ports".into()));
        }
        Status::Full => {}
        Status::Partial(why) | Status::Absent(why) if least > Tier::Zero => {
            return Err(Refusal::new("putting the server into a sandbox", why)
                .hint("policy.min_tier 0 accepts limits alone, which keep no file and no host from a server"));
        }
        Status::Partial(_) | Status::Absent(_) => {
            report.set(Layer::Egress, Status::Absent("without a sandbox every host is reached".into()));
        }
    }
    report.set(Layer::Seatbelt, tried);
    Ok(report)
}

/// Writes the profile. `home` is the caller's, of which `.local` holds smcp's own state and that of others.
///
/// # Errors
/// Where a path is not UTF-8.
pub fn profile(local: &Local, home: &Path) -> Result<String, Refusal> {
    let mut text = EVERY_PROGRAM.to_owned();
    // Grants first, then what is hidden in them, then what is the run's own or granted by itself in what is hidden, and then what is
    // hidden in that.
    let own = |path: &&PathBuf| path.starts_with(home.join(".local")) || path.starts_with(home.join(".cache"));
    let (own_read, read): (Vec<_>, Vec<_>) = local.read.iter().partition(own);
    let (own_write, write): (Vec<_>, Vec<_>) = local.write.iter().partition(own);
    let is_around = |path: &&PathBuf| own_read.iter().chain(&own_write).any(|own| own.starts_with(path));
    let (around, within): (Vec<_>, Vec<_>) = local.denied.iter().partition(is_around);
    let hidden: Vec<PathBuf> = around.into_iter().cloned().chain([home.join(".local")]).collect();
    let hide = "(deny file-read* file-write* file-map-executable process-exec*";
    rule(&mut text, "; What it may read.", "(allow file-read* file-test-existence", "subpath", &read)?;
    rule(
        &mut text,
        "; What it may read and write.",
        "(allow file-read* file-test-existence file-write*",
        "subpath",
        &write,
    )?;
    rule(&mut text, "; What is hidden in that.", hide, "subpath", &hidden)?;
    rule(&mut text, "; The package.", "(allow file-read* file-test-existence", "subpath", &own_read)?;
    let files = "(allow file-read* file-test-existence file-write*";
    rule(&mut text, "; Its own home and temporary files.", files, "subpath", &own_write)?;
    rule(&mut text, "; What the caller denies.", hide, "subpath", &within)?;
    rule(
        &mut text,
        "; What it may look through to get there.",
        "(allow file-read-metadata",
        "literal",
        &ancestors(local),
    )?;
    match &local.execute {
        Execute::These(programs) => {
            let libraries: Vec<_> = local.read.iter().collect();
            rule(
                &mut text,
                "; Libraries are mapped from what it cannot write.",
                "(allow file-map-executable",
                "subpath",
                &libraries,
            )?;
            // One that was not found is executed nowhere.
            let programs: Vec<_> = programs.iter().filter(|program| program.has_root()).collect();
            rule(
                &mut text,
                "; Its own program alone.",
                "(allow process-exec* file-read* file-map-executable",
                "literal",
                &programs,
            )?;
        }
        Execute::All => text.push_str("; Any program that it can read.\n(allow process-exec* file-map-executable)\n"),
    }
    network(&mut text, &local.ports, &local.host_ports);
    Ok(text)
}

/// The directories above all that is named: their names and times can be seen, and nothing of what they hold.
fn ancestors(local: &Local) -> Vec<PathBuf> {
    let these = match &local.execute {
        Execute::These(programs) => Some(programs),
        Execute::All => None,
    };
    let named = local.read.iter().chain(&local.write).chain(these.into_iter().flatten());
    let above: BTreeSet<PathBuf> = named.flat_map(|path| path.ancestors().skip(1)).map(Path::to_owned).collect();
    above.into_iter().filter(|path| path.has_root() && path.parent().is_some()).collect()
}

fn rule<P: AsRef<Path>>(text: &mut String, why: &str, head: &str, filter: &str, paths: &[P]) -> Result<(), Refusal> {
    if paths.is_empty() {
        return Ok(());
    }
    let _ = write!(text, "{why}\n{head}");
    for path in paths {
        let _ = write!(text, "\n  ({filter} {})", quoted(path.as_ref())?);
    }
    text.push_str(")\n");
    Ok(())
}

/// A path as a string of the profile.
fn quoted(path: &Path) -> Result<String, Refusal> {
    let what = || format!("the path {}", path.display());
    let text = path.to_str().ok_or_else(|| Refusal::new(what(), "it is not UTF-8, and a profile holds text"))?;
    if text.chars().any(char::is_control) {
        return Err(Refusal::new(what(), "it holds a control character, which a profile cannot name"));
    }
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

/// Nothing, where no port is granted: no socket leads anywhere, also to this machine.
fn network(text: &mut String, ports: &BTreeSet<u16>, host_ports: &BTreeSet<u16>) {
    if ports.is_empty() && host_ports.is_empty() {
        return;
    }
    text.push_str("; Ports that are granted.\n(allow system-socket)\n(allow network-outbound");
    for port in ports {
        let _ = write!(text, "\n  (remote tcp \"*:{port}\")");
    }
    for port in host_ports {
        let _ = write!(text, "\n  (remote tcp \"localhost:{port}\")");
    }
    text.push_str(")\n");
    if ports.is_empty() {
        return;
    }
    // Names are asked of the system's own service, which needs no port; this machine's other ports stay shut.
    text.push_str("(allow network-outbound (literal \"/private/var/run/mDNSResponder\"))\n");
    text.push_str("(allow mach-lookup (global-name \"com.apple.SystemConfiguration.configd\"))\n");
    let shut: Vec<_> = ports.difference(host_ports).collect();
    if !shut.is_empty() {
        text.push_str("(deny network-outbound");
        for port in shut {
            let _ = write!(text, "\n  (remote tcp \"localhost:{port}\")");
        }
        text.push_str(")\n");
    }
}

#[cfg(test)]
mod tests;
