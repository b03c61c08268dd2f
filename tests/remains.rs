//! What runs may leave on the machine, which is nothing: processes, mounts, cgroups, files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::patience::within;
use crate::processes::marked;
use crate::world::World;

/// A machine before the runs of a world, to compare with after them.
pub struct Before<'w> {
    world: &'w World,
    names: BTreeSet<PathBuf>,
    store: BTreeMap<PathBuf, String>,
}

impl<'w> Before<'w> {
    /// Looks at the machine. What a run needs of the store must be there already.
    pub fn of(world: &'w World) -> Before<'w> {
        Before { world, names: names(world), store: world.store_listing() }
    }

    /// Fails unless every process and mount is gone within `patience`, and the world's directories hold what they did, the
    /// granted one included. A smcp that was killed may have left its cgroup, the file
    /// by which the next start knows of the run, and without namespaces the server's private directories, which lie in the store.
    #[track_caller]
    pub fn nothing_is_left(&self, patience: Duration) {
        let left = || [processes(self.world), mounts(self.world)].concat();
        let gone = within(patience, || left().is_empty().then_some(()));
        assert!(gone.is_some(), "left after {patience:?}: {:#?}\n{}", left(), self.world.audit_text());
        let of_runs = self.world.path("state/smcp/runs");
        let by_killed = |path: &PathBuf| path.starts_with("private") || path.starts_with(&of_runs);
        self.no_file_is_left(|path| !by_killed(path));
    }

    /// Fails unless one more start removes what killed ones may leave: every cgroup, whosever it was, and every file.
    #[track_caller]
    pub fn the_next_start_removes_the_rest(&self) {
        let killed = SystemTime::now();
        // A start leaves alone what is younger than a second: its smcp may be about to hold it.
        std::thread::sleep(Duration::from_millis(1100));
        self.world.caged(&[], &["exit", "0"]).run().ok();
        self.no_file_is_left(|_| true);
        // What another start is removing at this moment goes by itself.
        let owner = self.world.user().id();
        let gone = within(Duration::from_secs(5), || cgroups_before(killed, owner).is_empty().then_some(()));
        assert!(gone.is_some(), "cgroups that nobody holds: {:#?}", cgroups_before(killed, owner));
    }

    #[track_caller]
    fn no_file_is_left(&self, counts: impl Fn(&PathBuf) -> bool) {
        let now = names(self.world);
        let new: Vec<_> = now.symmetric_difference(&self.names).filter(|path| counts(path)).collect();
        assert!(new.is_empty(), "made or removed: {new:#?}");
        let mut store = self.world.store_listing();
        store.retain(|path, what| self.store.get(path) != Some(what) && counts(path));
        assert!(store.is_empty(), "made or changed in the store: {store:#?}");
        let gone: Vec<_> =
            self.store.keys().filter(|path| fs::symlink_metadata(self.world.store().join(path)).is_err()).collect();
        assert!(gone.is_empty(), "removed from the store: {gone:#?}");
    }
}

/// The cgroups of a user's runs beside this process that were made before this and that no smcp holds. Those of other
/// sessions are theirs: a start sweeps where it makes its own.
fn cgroups_before(then: SystemTime, owner: u32) -> Vec<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let parents = own.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or("/"));
        let mounts: Vec<_> = match controllers {
            "" => vec!["", "unified"],
            some => some.split(',').collect(),
        };
        mounts.into_iter().map(|mount| Path::new("/sys/fs/cgroup").join(mount).join(&path[1..])).collect::<Vec<_>>()
    });
    let entries = parents.flat_map(fs::read_dir).flatten().flatten();
    let runs = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"smcp-"));
    let old = |path: &PathBuf| {
        let about = fs::metadata(path);
        about.is_ok_and(|about| about.uid() == owner && about.modified().is_ok_and(|made| made < then))
    };
    runs.map(|entry| entry.path()).filter(|path| old(path) && is_held(path) == Some(false)).collect()
}

/// Whether somebody holds the lock of a directory; `None` where it is gone, or nobody's business.
fn is_held(directory: &Path) -> Option<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    Some(flock(&directory, FlockOperation::NonBlockingLockShared).is_err())
}

/// Processes of the world's runs: by their arguments, or by the world's own copy of smcp, which a cage that is not built
/// yet runs.
pub fn processes(world: &World) -> Vec<String> {
    let mut found: Vec<String> = marked(world).into_iter().map(|(pid, line)| format!("{pid} {line}")).collect();
    let Ok(copy) = fs::metadata(world.path(COPY)) else { return found };
    for entry in fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        if let Ok(program) = fs::metadata(entry.path().join("exe"))
            && (program.dev(), program.ino()) == (copy.dev(), copy.ino())
        {
            found.push(format!("{} runs the world's smcp", entry.file_name().display()));
        }
    }
    found
}

/// Mounts of the world's directories, in the namespace of whatever process.
pub fn mounts(world: &World) -> Vec<String> {
    let root = world.path("");
    let name = root.file_name().and_then(|name| name.to_str()).expect("temporary paths are UTF-8");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is mounted").flatten() {
        let table = fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        let lines = table.lines().filter(|line| line.contains(name));
        found.extend(lines.map(|line| format!("process {}: {line}", entry.file_name().display())));
    }
    found
}

/// The name of the world's own copy of the program under test.
const COPY: &str = "smcp";

/// Makes a copy of the program under test that no other world runs, so that its processes can be told apart.
pub fn own_copy(world: &World) -> PathBuf {
    let copy = world.path(COPY);
    // By another program: a descriptor that this one has open for writing may be in a child of another test by then.
    world.program("/bin/cp", [crate::place::smcp(), &copy]).run().ok();
    copy
}

/// The paths below a world, without what grows by design, the store's and the log's.
fn names(world: &World) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = vec![world.path("")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path == world.path("log") || path == world.store() {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}
