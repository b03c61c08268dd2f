//! The host's interpreter, for packages that bring none: which files of the host it takes to run it.

use std::collections::BTreeMap;
use std::env::consts::EXE_SUFFIX;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// An interpreter of the host and what a cage mounts for it, all of it read-only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInterpreter {
    /// The name by which the package asks for it, such as `python3.11`.
    pub name: String,
    /// The program, canonical.
    pub program: PathBuf,
    /// Files and directories that it needs, mounted at the same path.
    pub mounts: Vec<PathBuf>,
    /// Links of the host's root that lead to them, such as `/lib64` to `usr/lib64`.
    pub links: BTreeMap<PathBuf, PathBuf>,
}

/// The host does not have the interpreter that a package asks for.
#[derive(Debug, thiserror::Error)]
#[error("the package brings no interpreter and asks for {name:?}, which is no node or python in PATH ({search})")]
pub struct NoInterpreter {
    name: String,
    search: String,
}

impl NoInterpreter {
    /// The next step for a person.
    pub fn hint(&self) -> String {
        format!("install {0}, or build the package without --runtime host, so that it brings {0} along", self.name)
    }
}

/// The libraries of the system, wherever the interpreter itself is.
#[cfg(not(target_os = "macos"))]
const LIBRARIES: [&str; 4] = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"];

/// Homebrew's; the system's own are every program's there.
#[cfg(target_os = "macos")]
const LIBRARIES: [&str; 6] = [
    "/opt/homebrew/Cellar",
    "/opt/homebrew/lib",
    "/opt/homebrew/opt",
    "/usr/local/Cellar",
    "/usr/local/lib",
    "/usr/local/opt",
];

/// How programs of this machine begin: ELF's.
#[cfg(not(any(target_os = "macos", windows)))]
const NATIVE: [&[u8]; 1] = [b"\x7fELF"];

/// How programs of this machine begin: Mach-O's of 64 bits, and those for several processors.
#[cfg(target_os = "macos")]
const NATIVE: [&[u8]; 2] = [b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"];

/// How programs of this machine begin: those of MS-DOS and all that came after.
#[cfg(windows)]
const NATIVE: [&[u8]; 1] = [b"MZ"];

/// The loader's list of libraries: with it a host whose libraries lie elsewhere works too.
const LOADER_CACHE: &str = "/etc/ld.so.cache";

impl HostInterpreter {
    /// Finds a program of that name in `search`, the directories of PATH. Scripts are passed over: version managers put
    /// them before the program that they choose.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find(name: &str, search: &OsStr) -> Result<HostInterpreter, NoInterpreter> {
        let missing = || NoInterpreter { name: name.into(), search: search.to_string_lossy().into_owned() };
        if !is_interpreter(name) {
            return Err(missing());
        }
        let program = std::env::split_paths(search)
            .filter(|directory| directory.is_absolute())
            .filter_map(|directory| fs::canonicalize(directory.join(format!("{name}{EXE_SUFFIX}"))).ok())
            .map(literal)
            .find(|program| is_native(program))
            .ok_or_else(missing)?;
        let mut mounts = [vec![program.clone()], library_of(&program)].concat();
        let mut links = BTreeMap::new();
        for path in LIBRARIES.map(Path::new) {
            match fs::read_link(path) {
                Ok(target) => drop(links.insert(path.to_owned(), target)),
                Err(_) if path.is_dir() => mounts.push(path.to_owned()),
                Err(_) => {}
            }
        }
        if Path::new(LOADER_CACHE).is_file() {
            mounts.push(LOADER_CACHE.into());
        }
        // Of two that lie in one another the outer one is enough.
        let all = mounts.clone();
        mounts.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
        Ok(HostInterpreter { name: name.into(), program, mounts, links })
    }

    /// Whether a command's program means this interpreter: by its name, or by the short form of it.
    pub fn is_meant_by(&self, program: &str) -> bool {
        let short = self.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        program == self.name || program == short || program == format!("{short}3")
    }
}

/// A path as programs take it: Windows' canonical ones begin with `\\?\`, which many do not know.
pub fn literal(path: PathBuf) -> PathBuf {
    let short =
        path.to_str().and_then(|text| text.strip_prefix(r"\\?\")).filter(|rest| rest.as_bytes().get(1) == Some(&b':'));
    short.map(PathBuf::from).unwrap_or(path)
}

/// What python needs beside itself where it was installed as a tree of its own, `PREFIX/bin/python3.X`: its library
/// directory and its shared library, and nothing else of the prefix, which may be somebody's home. Node needs nothing.
fn library_of(program: &Path) -> Vec<PathBuf> {
    let name = program.file_name().and_then(OsStr::to_str).filter(|name| name.starts_with("python"));
    let prefix = program.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent);
    let (Some(name), Some(prefix)) = (name, prefix) else { return Vec::new() };
    let lib = prefix.join("lib");
    let shared = fs::read_dir(&lib).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| {
        path.is_file() && path.file_name().and_then(OsStr::to_str).is_some_and(|file| file.starts_with("libpython"))
    });
    [lib.join(name)].into_iter().filter(|path| path.is_dir()).chain(shared).collect()
}

/// The programs that a package may ask the host for: what runs scripts of the two ecosystems, and nothing that would give
/// a package a program of the caller's choosing.
fn is_interpreter(name: &str) -> bool {
    let version = |rest: &str| rest.is_empty() || rest.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    name == "node" || name.strip_prefix("python3").is_some_and(version)
}

fn is_native(program: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(program).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && NATIVE.iter().any(|start| magic.starts_with(start))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_program_needs_itself_and_the_libraries_of_the_system() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(root.join("bin")).unwrap();
        fs::copy("/usr/bin/env", root.join("bin/node")).unwrap();
        let search = std::env::join_paths([Path::new("relative"), Path::new("/nowhere"), &root.join("bin")]).unwrap();
        let found = HostInterpreter::find("node", &search).unwrap();
        assert_eq!(found.program, root.join("bin/node"));
        assert!(found.mounts.contains(&found.program) && found.mounts.contains(&"/usr/lib".into()), "{found:?}");
        assert!(!found.mounts.contains(&root), "its prefix may be somebody's home");
    }

    #[test]
    fn a_python_of_its_own_tree_needs_its_library_alone_and_scripts_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for place in ["shims", "home/bin", "home/lib/python3.9/json", "home/.ssh", "bin"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        fs::write(root.join("shims/python3.9"), "#!/bin/sh\n").unwrap();
        fs::copy("/usr/bin/env", root.join("home/bin/python3.9")).unwrap();
        fs::write(root.join("home/lib/libpython3.9.so.1.0"), "").unwrap();
        symlink("../home/bin/python3.9", root.join("bin/python3.9")).unwrap();
        let search = std::env::join_paths([root.join("shims"), root.join("bin")]).unwrap();
        let found = HostInterpreter::find("python3.9", &search).unwrap();
        assert_eq!(found.program, root.join("home/bin/python3.9"));
        let own: Vec<_> = found.mounts.iter().filter(|path| path.starts_with(&root)).collect();
        let wanted =
            ["home/bin/python3.9", "home/lib/python3.9", "home/lib/libpython3.9.so.1.0"].map(|path| root.join(path));
        assert_eq!(own, wanted.iter().collect::<Vec<_>>());
    }

    #[test]
    fn none_is_said_with_what_to_do() {
        for name in ["python3.0", "env", "sh", "busybox", "../bin/node", "/usr/bin/python3"] {
            let error = HostInterpreter::find(name, OsStr::new("/usr/bin:/bin")).unwrap_err();
            assert!(error.to_string().contains(name) && error.hint().contains(name), "{error}");
        }
    }

    #[test]
    fn names_that_mean_it() {
        let python =
            HostInterpreter { name: "python3.11".into(), program: "/x".into(), mounts: vec![], links: BTreeMap::new() };
        assert!(["python3.11", "python3", "python"].iter().all(|name| python.is_meant_by(name)));
        assert!(["node", "python3.12", "/usr/bin/python3"].iter().all(|name| !python.is_meant_by(name)));
    }
}
