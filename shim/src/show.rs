//! What smcp says to people: on stderr, so that stdout carries the protocol alone.

use std::borrow::Cow;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use bundle::{Access, CERTIFICATES, Egress, Withheld, format_size};
use distribution::{Freshness, Resolved};
use runtime::config::{Scope, render};
use runtime::{Exec, Plan, Programs, Provider, What};
use serde_json::json;
use ulid::Ulid;

/// As `println!`, by [`out`].
macro_rules! outln {
    ($($text:tt)*) => { $crate::show::out(&format!($($text)*)) };
}
pub(crate) use outln;

static QUIET: AtomicBool = AtomicBool::new(false);

/// From here on only errors are shown.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Whether only errors are shown.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Tells something that the user should know and that stops nothing.
pub fn warn(text: &str) {
    if !is_quiet() {
        tell(&format!("warning: {text}"));
    }
}

/// Tells what is being done, to people at a terminal and in logs of a build.
pub fn say(text: &str) {
    if !is_quiet() {
        tell(text);
    }
}

/// Writes to stderr. Whoever closed it does not want to know.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// Writes a line to stdout, for commands whose output it is.
pub fn out(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", printable(line));
}

/// Text as a terminal may have it: strings of packages, registries and files stand in it. Control characters are shown,
/// not sent, and what stands on a further line is indented, so that it cannot pass for smcp's own `hint:`.
pub fn printable(text: &str) -> Cow<'_, str> {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(|c: char| c.is_control() || turns(c)) {
        return text.into();
    }
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\n  "),
            c if c.is_control() || turns(c) => shown.extend(c.escape_default()),
            c => shown.push(c),
        }
    }
    shown.into()
}

/// Text that is one line, whatever stands in it: what a question is about cannot forge further lines of it.
pub fn one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// A request of the package that is not granted.
pub fn withheld(withheld: &Withheld) {
    warn(&format!("not granted: {}: {}", withheld.what, withheld.why));
    if let Some(hint) = &withheld.hint {
        say(&format!("hint: {hint}"));
    }
}

/// That a run was denied this many destinations.
pub fn denied(run: Ulid, destinations: usize) {
    if destinations > 0 {
        warn(&format!(
            "{destinations} destination(s) were denied: `smcp why {run}` shows the flags that would grant them"
        ));
    }
}

/// Tells that a name could not be looked up, so that the store's answer has to do.
pub fn stale(resolved: &Resolved) {
    if let Freshness::Stale(why) = &resolved.freshness {
        warn(&format!("{} comes from the store and may be old: {why}", resolved.name));
    }
}

/// Prints a plan for `--dry-run`.
pub fn plan(plan: &Plan, as_json: bool) {
    if as_json {
        let root = std::path::Path::new("/");
        print_json(&json!({"plan": plan, "config": render(plan, root, Scope::Whole)}));
        return;
    }
    outln!("command    {}", plan.command.join(" "));
    outln!("directory  {}", plan.workdir.display());
    outln!("user       {} (uid {}, gid {})", plan.identity.user, plan.identity.uid, plan.identity.gid);
    let names: Vec<&str> = plan.env.iter().map(|variable| variable.name.as_str()).collect();
    outln!("variables  {}", names.join(" "));
    network(&plan.egress);
    if let Some(text) = plan.files.get(std::path::Path::new(CERTIFICATES)) {
        outln!("trusts     {} certificates of this machine, {CERTIFICATES}", text.matches("-----BEGIN").count());
    }
    for mount in &plan.mounts {
        let target = mount.target.display();
        let exec = |exec: &Exec| if *exec == Exec::Denied { ", noexec" } else { "" };
        match &mount.what {
            What::Granted { source, access, exec: e, from } => {
                let access = if *access == Access::Ro { "read-only" } else { "read-write" };
                let word = if *from == Provider::State { "lasting" } else { "granted" };
                outln!("{word}    {target} is {} ({access}{})", source.display(), exec(e));
            }
            What::Denied { grant, path } => outln!("denied     {target} is {}", grant.join(path).display()),
            What::Private { size, exec: e, .. } => outln!("private    {target} ({}{})", format_size(*size), exec(e)),
            What::Proc | What::Devices | What::Terminals | What::SharedMemory { .. } => outln!("private    {target}"),
        }
    }
    for (link, leads_to) in &plan.links {
        outln!("link       {} to {}", link.display(), leads_to.display());
    }
    match &plan.programs {
        Programs::Runtime => outln!("programs   its own alone"),
        Programs::Named(paths) => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            outln!("programs   its own and {}", paths.join(" "));
        }
        Programs::Any => outln!("programs   any"),
    }
    let limits = &plan.limits;
    outln!(
        "limits     memory {}, {} processes, {} descriptors, {} s wall clock",
        format_size(limits.memory),
        limits.pids,
        limits.fds,
        limits.timeout_seconds
    );
    outln!("root       {} (read-only)", plan.tree.display());
}

fn network(egress: &Egress) {
    if egress.is_empty() {
        outln!("network    loopback alone");
    }
    for outbound in &egress.outbound {
        outln!("network    {outbound}");
    }
    for port in &egress.host_ports {
        outln!("network    127.0.0.1:{port} is this machine's");
    }
    if egress.any {
        outln!("network    every public address");
    }
    for denial in &egress.denied {
        outln!("network    not {denial}");
    }
    if egress.by_port {
        outln!("network    where there are no namespaces: the ports alone, of any host");
    }
}

/// Prints a JSON value on stdout, for commands whose output it is.
pub fn print_json(value: &serde_json::Value) {
    let _ = writeln!(std::io::stdout(), "{value:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_package_steers_a_terminal_or_speaks_for_smcp() {
        assert_eq!(printable("plain ü"), "plain ü");
        assert_eq!(printable("a\u{1b}[2Jb\r"), "a\\u{1b}[2Jb\\r");
        assert_eq!(printable("x\nhint: run rm"), "x\n  hint: run rm");
        assert_eq!(printable("\u{202e}txt"), "\\u{202e}txt");
    }
}
