//! Where the tests keep what is made once a machine, readable by every user: the program under test, the probe, the
//! bare servers.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::geteuid;

/// The program under test, as a copy that an ordinary user can execute: root's own directories are closed to others, and
/// a build that goes on must not change it.
pub fn smcp() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let original = std::env::var_os("SMCP_UNDER_TEST").unwrap_or_else(|| env!("CARGO_BIN_EXE_smcp").into());
        let about = fs::metadata(&original).expect("the program under test was built");
        let name = format!("smcp-{}-{}", about.len(), about.mtime_nsec() ^ about.mtime());
        once(&name, |to| {
            fs::copy(&original, to)?;
            fs::set_permissions(to, fs::Permissions::from_mode(0o755))
        })
    })
}

/// The path of `name` in the shared place, made by `make` under a lock unless it is there. `make` gets a path of its own,
/// which is renamed when it returns, so that a broken attempt leaves nothing.
pub fn once(name: &str, make: impl FnOnce(&Path) -> io::Result<()>) -> PathBuf {
    let place = shared();
    let done = place.join(name);
    let lock = File::create(place.join(format!("{name}.lock"))).expect("the shared place can be written");
    lock.lock().expect("a local file can be locked");
    if !done.exists() {
        let attempt = place.join(format!("{name}.new"));
        let _ = fs::remove_dir_all(&attempt);
        let _ = fs::remove_file(&attempt);
        make(&attempt).unwrap_or_else(|e| panic!("{name}: {e}"));
        fs::rename(&attempt, &done).expect("one directory, one file system");
    }
    done
}

/// A directory of the shared place that lasts, for things that find out themselves whether they are still good.
pub fn directory(name: &str) -> PathBuf {
    let directory = shared().join(name);
    fs::create_dir_all(&directory).expect("the shared place can be written");
    directory
}

/// A directory for what lives as long as this process, whose end nobody can catch: the next process removes it.
pub fn of_this_process(name: &str) -> PathBuf {
    let prefix = format!("{name}-");
    for entry in fs::read_dir(shared()).expect("the shared place can be read").flatten() {
        let of = entry.file_name().into_string().unwrap_or_default();
        let of = of.strip_prefix(&prefix).and_then(|pid| pid.parse::<u32>().ok());
        if of.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    directory(&format!("{prefix}{}", std::process::id()))
}

fn shared() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let place = if open_to_all(target) {
            target.join("smcp-tests")
        } else {
            // A checkout below /root. The name is ours alone by its owner, checked below.
            Path::new("/var/tmp")
                .join(format!("smcp-tests-{:x}", crate::probe::sum(target.as_os_str().as_encoded_bytes())))
        };
        fs::create_dir_all(&place).expect("the shared place can be made");
        let owner = fs::symlink_metadata(&place).expect("it was just made");
        assert!(owner.is_dir() && owner.uid() == geteuid().as_raw(), "{} is somebody else's", place.display());
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("it is ours");
        place
    })
}

/// Whether every user may walk to a path.
fn open_to_all(path: &Path) -> bool {
    path.ancestors().all(|dir| fs::metadata(dir).map_or(true, |about| about.mode() & 0o001 != 0))
}
