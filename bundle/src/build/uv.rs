//! Pythons that uv keeps for its user, each a tree of its own beside PATH (uv's documentation, "Storage": Python versions).

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The directories of their programs, the newest version first; none where uv has none.
pub fn pythons() -> Vec<PathBuf> {
    place(|name| env::var_os(name)).map(|place| of(&place)).unwrap_or_default()
}

/// Where uv keeps them.
fn place(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = || path("XDG_DATA_HOME").or_else(|| path("HOME").map(|home| home.join(".local/share")));
    path("UV_PYTHON_INSTALL_DIR").or_else(|| data().map(|data| data.join("uv/python")))
}

fn of(place: &Path) -> Vec<PathBuf> {
    let version = |name: &str| -> Option<Vec<u32>> {
        // What stands behind a `+` is another build, without a lock or for debugging.
        let version = name.strip_prefix("cpython-")?.split('-').next()?;
        version.split('.').map(|number| number.parse().ok()).collect()
    };
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .filter_map(|entry| Some((version(entry.file_name().to_str()?)?, entry.path().join("bin"))))
        .filter(|(_, programs)| programs.join("python3").is_file())
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, programs)| programs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_first() {
        let place = tempfile::tempdir().unwrap();
        let tree = |name: &str| place.path().join(format!("{name}-linux-x86_64-gnu/bin"));
        for name in ["cpython-3.9.2", "cpython-3.13.1", "cpython-3.13.1+freethreaded", "pypy-3.14.0", "cpython-3.12"] {
            fs::create_dir_all(tree(name)).unwrap();
            fs::write(tree(name).join("python3"), "").unwrap();
        }
        fs::create_dir_all(tree("cpython-3.14.0")).unwrap();
        assert_eq!(of(place.path()), ["cpython-3.13.1", "cpython-3.12", "cpython-3.9.2"].map(tree));
        assert_eq!(of(Path::new("/nowhere")), [""; 0].map(PathBuf::from));
    }

    #[test]
    fn where_uv_keeps_them() {
        let with = |variables: &[(&str, &str)]| {
            place(|name| variables.iter().find(|(one, _)| *one == name).map(|(_, value)| value.into()))
        };
        let home = ("HOME", "/home/me");
        assert_eq!(with(&[home]), Some("/home/me/.local/share/uv/python".into()));
        assert_eq!(with(&[home, ("XDG_DATA_HOME", "/data")]), Some("/data/uv/python".into()));
        assert_eq!(with(&[home, ("UV_PYTHON_INSTALL_DIR", "/p")]), Some("/p".into()));
        assert_eq!(with(&[]), None);
    }
}
