//! What smcp says to people: on stderr, so that stdout carries the protocol alone.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};

use bundle::{Access, Withheld, format_size};
use distribution::Progress;
use runtime::config::{Scope, render};
use runtime::{Exec, Plan, Programs, What};
use serde_json::json;

static QUIET: AtomicBool = AtomicBool::new(false);

/// From here on only errors are shown.
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Tells something that the user should know and that stops nothing.
pub fn warn(text: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        eprintln!("warning: {text}");
    }
}

/// Tells what is being done, to people at a terminal and in logs of a build.
pub fn say(text: &str) {
    if !QUIET.load(Ordering::Relaxed) {
        eprintln!("{text}");
    }
}

/// A request of the package that is not granted.
pub fn withheld(withheld: &Withheld) {
    warn(&format!("not granted: {}: {}", withheld.what, withheld.why));
    if let Some(hint) = &withheld.hint {
        say(&format!("hint: {hint}"));
    }
}

/// Tells of a fetch, a line for each layer, where a person looks on.
pub fn progress(progress: Progress) {
    if let Progress::Started { digest, size } = progress
        && std::io::stderr().is_terminal()
    {
        say(&format!("fetching {} ({})", &digest.hex()[..12], format_size(size)));
    }
}

/// Prints a plan for `--dry-run`.
pub fn plan(plan: &Plan, as_json: bool) {
    if as_json {
        let root = std::path::Path::new("/");
        print_json(&json!({"plan": plan, "config": render(plan, root, Scope::Whole)}));
        return;
    }
    println!("command    {}", plan.command.join(" "));
    println!("directory  {}", plan.workdir.display());
    println!("user       {} (uid {}, gid {})", plan.identity.user, plan.identity.uid, plan.identity.gid);
    let names: Vec<&str> = plan.env.iter().map(|variable| variable.name.as_str()).collect();
    println!("variables  {}", names.join(" "));
    println!("network    loopback alone");
    for mount in &plan.mounts {
        let target = mount.target.display();
        let exec = |exec: &Exec| if *exec == Exec::Denied { ", noexec" } else { "" };
        match &mount.what {
            What::Granted { source, access, exec: e } => {
                let access = if *access == Access::Ro { "read-only" } else { "read-write" };
                println!("granted    {target} is {} ({access}{})", source.display(), exec(e));
            }
            What::Private { size, exec: e, .. } => println!("private    {target} ({}{})", format_size(*size), exec(e)),
            What::Proc | What::Devices | What::Terminals | What::SharedMemory { .. } => println!("private    {target}"),
        }
    }
    for (link, leads_to) in &plan.links {
        println!("link       {} to {}", link.display(), leads_to.display());
    }
    match &plan.programs {
        Programs::Runtime => println!("programs   its own alone"),
        Programs::Named(paths) => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            println!("programs   its own and {}", paths.join(" "));
        }
        Programs::Any => println!("programs   any"),
    }
    let limits = &plan.limits;
    println!(
        "limits     memory {}, {} processes, {} descriptors, {} s wall clock",
        format_size(limits.memory),
        limits.pids,
        limits.fds,
        limits.timeout_seconds
    );
    println!("root       {} (read-only)", plan.tree.display());
}

/// Prints a JSON value on stdout, for commands whose output it is.
pub fn print_json(value: &serde_json::Value) {
    println!("{value:#}");
}
