//! Several id mappings of one user namespace. libcontainer has them written by newuidmap and newgidmap, which it finds by PATH, and which grant root no
//! more than `/etc/subuid` says. Whoever may write them does so: smcp stands in the place of both.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::thread::CapabilitySet;
use serde_json::Value;

use super::Error;
use crate::linux::sys;

/// The names of the two programs, and the files that they write.
const WRITERS: [(&str, &str); 2] = [("newuidmap", "uid_map"), ("newgidmap", "gid_map")];

/// Puts smcp in their place, in a directory of the container's that is first on PATH, where a `config.json` needs them and this process has the
/// right to do their work.
///
/// # Errors
/// The kernel's.
pub fn write_in_person(config: &Value, directory: &Path) -> Result<(), Error> {
    let are_several = |name: &str| config["linux"][name].as_array().is_some_and(|maps| maps.len() > 1);
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let may = || rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    if !(are_several("uidMappings") || are_several("gidMappings")) || !may() {
        return Ok(());
    }
    let place = directory.join("maps");
    let made = || -> io::Result<()> {
        fs::create_dir(&place)?;
        WRITERS.iter().try_for_each(|(name, _)| symlink("/proc/self/exe", place.join(name)))
    };
    made().map_err(Error::io("preparing the id mappings"))?;
    let own = std::env::var_os("PATH").unwrap_or_default();
    let mut path = OsString::from(place);
    path.push(":");
    path.push(own);
    sys::set_variable("PATH", &path);
    Ok(())
}

/// What smcp does by one of those names: `newuidmap PID INSIDE OUTSIDE COUNT…`. `None` for any other name.
pub fn write_as(name: &str, words: &[OsString]) -> Option<io::Result<()>> {
    let (_, file) = WRITERS.iter().find(|(writer, _)| *writer == name)?;
    let numbers: Option<Vec<u32>> = words.iter().map(|word| word.to_str()?.parse().ok()).collect();
    let Some((pid, map)) = numbers.as_deref().and_then(|numbers| numbers.split_first()) else {
        return Some(Err(io::Error::from(io::ErrorKind::InvalidInput)));
    };
    Some(fs::write(format!("/proc/{pid}/{file}"), text(map)))
}

/// user_namespaces(7): a line for each three numbers, in one write.
fn text(map: &[u32]) -> String {
    map.chunks(3).map(|line| line.iter().map(u32::to_string).collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_lines_of_three_numbers() {
        assert_eq!(text(&[0, 1000, 1, 1, 2000, 5]), "0 1000 1\n1 2000 5\n");
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(write_as("smcp", &words("1 0 0 1")).is_none());
        assert!(write_as("newuidmap", &words("1 -1 0 1")).is_some_and(|written| written.is_err()));
    }
}
