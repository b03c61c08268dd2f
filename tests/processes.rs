//! The processes of the machine, seen from outside every cage.

use std::fs;
use std::time::Duration;

use crate::patience::within;
use crate::world::World;

/// The processes that have a world's mark among their arguments, in whatever namespace: ids and command lines.
pub fn marked(world: &World) -> Vec<(u32, String)> {
    with_word(world.mark())
}

/// The same for any word that no other process has.
pub fn with_word(word: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(word) {
            found.push((pid, line));
        }
    }
    found
}

/// What a process has in memory, in bytes; nothing where it is gone.
pub fn resident(pid: u32) -> Option<u64> {
    memory(pid, "VmRSS:")
}

/// The most that it ever had.
pub fn most_resident(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

/// What it has without what is of files, whose pages come and go.
pub fn of_its_own(pid: u32) -> Option<u64> {
    memory(pid, "RssAnon:")
}

/// A line of proc_pid_status(5).
fn memory(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// Fails unless no marked process is left within `patience`.
#[track_caller]
pub fn none_left(world: &World, patience: Duration) {
    let gone = within(patience, || marked(world).is_empty().then_some(()));
    assert!(gone.is_some(), "left after {patience:?}: {:#?}\n{}", marked(world), world.audit_text());
}
