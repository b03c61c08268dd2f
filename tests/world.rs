//! The world a test runs in.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{getegid, geteuid};
use serde_json::Value;
use tempfile::TempDir;

use crate::command::Smcp;
use crate::{image, place, probe, tier};

/// The uid and gid of [`User::Ordinary`] where the tests run as root. No account has it, which is the harder case.
const ORDINARY: u32 = 54321;

/// Who runs the commands of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Root, where the tests run as root.
    Root,
    /// A user without any right of root's: the one who runs the tests, or [`ORDINARY`].
    Ordinary,
}

impl User {
    /// Root where the tests run as root.
    pub fn of_the_tests() -> User {
        if geteuid().is_root() { User::Root } else { User::Ordinary }
    }

    /// The uid and gid that commands run with.
    pub fn id(self) -> u32 {
        match (self, geteuid().as_raw()) {
            (User::Root, _) => 0,
            (User::Ordinary, 0) => ORDINARY,
            (User::Ordinary, own) => own,
        }
    }

    /// The gid; the group of the one who runs the tests may differ from the uid.
    pub fn group(self) -> u32 {
        match geteuid().as_raw() {
            0 => self.id(),
            _ => getegid().as_raw(),
        }
    }
}

/// The tests of one story: as root (where the tests run as root) and as an ordinary user.
macro_rules! each_user {
    ($story:ident) => {
        use crate::needs;
        use crate::world::{User, World};

        #[test]
        fn as_root() {
            if needs::root() {
                super::$story(&World::new(User::Root));
            }
        }

        #[test]
        fn as_user() {
            super::$story(&World::new(User::Ordinary));
        }
    };
}
pub(crate) use each_user;

/// Makes two tests of each story, one for each user.
///
/// A story is a function of the same name that takes its world.
macro_rules! as_each_user {
    ($($story:ident),+ $(,)?) => { $(
        mod $story {
            crate::world::each_user!($story);
        }
    )+ };
}
pub(crate) use as_each_user;

/// The same and a third one: as an ordinary user who has no user namespaces, which is tier 1.
macro_rules! at_each_tier {
    ($($story:ident),+ $(,)?) => { $(
        mod $story {
            crate::world::each_user!($story);

            #[test]
            fn at_tier_1() {
                if needs::program("unshare", "util-linux").is_some() && needs::program("setpriv", "util-linux").is_some() {
                    super::$story(&World::without_namespaces());
                }
            }
        }
    )+ };
}
pub(crate) use at_each_tier;

/// A home, a cache, a state directory, a project and an audit log of its own; gone when it is dropped.
///
/// ```text
/// ROOT/home/.ssh/id   a secret, 0600
/// ROOT/project        to be granted
/// ROOT/private        not to be granted; holds `secret`
/// ROOT/{cache,state,tmp}, ROOT/log/audit.log
/// ```
pub struct World {
    root: TempDir,
    user: User,
    namespaces: Namespaces,
    mark: String,
}

/// Whether the machine that a world stands for has user namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespaces {
    AsHere,
    Refused,
}

/// What `~/.ssh/id` and `private/secret` hold: no file that a cage may show has it.
pub const SECRET: &str = "sentinel-4be1a07c";

/// The value of a variable that every command of every test has in its environment, and nothing asks for: it is in no output
/// of smcp's, and in no audit log.
pub const UNDECLARED: &str = "undeclared-9d31f6e5";

impl World {
    /// A new world of a user.
    pub fn new(user: User) -> World {
        World::with(user, Namespaces::AsHere)
    }

    /// A new world of an ordinary user, on a machine where user namespaces are denied.
    pub fn without_namespaces() -> World {
        World::with(User::Ordinary, Namespaces::Refused)
    }

    fn with(user: User, namespaces: Namespaces) -> World {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = TempDir::with_prefix("smcp-test-").expect("a temporary directory can be made");
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let world = World { root, user, namespaces, mark: format!("mark-{}-{number}-", process::id()) };
        for name in ["", "home", "home/.ssh", "cache", "state", "project", "private", "tmp", "log"] {
            world.directory(name);
        }
        for secret in ["home/.ssh/id", "private/secret"] {
            let path = world.file(secret, SECRET);
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
        world
    }

    /// Its directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(name)
    }

    /// The same as text, for arguments and JSON.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("temporary paths are UTF-8").to_owned()
    }

    /// Makes a directory that belongs to the world's user.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("the world is ours");
        self.give(&path);
        path
    }

    /// Makes a file that belongs to the world's user.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("the world is ours");
        self.give(&path);
        path
    }

    /// Gives a path to the world's user.
    pub fn give(&self, path: &Path) {
        if geteuid().is_root() {
            chown(path, Some(self.user.id()), Some(self.user.group())).expect("root may chown");
        }
    }

    /// Who runs its commands.
    pub fn user(&self) -> User {
        self.user
    }

    /// Whether user namespaces can be had.
    pub fn has_namespaces(&self) -> bool {
        self.namespaces == Namespaces::AsHere
    }

    /// A word that no other process of the machine has among its arguments.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The program under test with these arguments.
    pub fn smcp<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Smcp<'_> {
        self.copy(place::smcp(), arguments)
    }

    /// A copy of the program under test.
    pub fn copy<A: AsRef<OsStr>>(&self, copy: &Path, arguments: impl IntoIterator<Item = A>) -> Smcp<'_> {
        match self.namespaces {
            Namespaces::AsHere => self.program(copy, arguments),
            Namespaces::Refused => {
                tier::program_without_namespaces(self, copy, arguments).expect("util-linux was looked for")
            }
        }
    }

    /// The words before smcp's own that make the machine what it is in this world.
    pub fn wrapper(&self) -> &'static [&'static str] {
        match self.namespaces {
            Namespaces::AsHere => &[],
            Namespaces::Refused => tier::wrapper(self).expect("util-linux was looked for"),
        }
    }

    /// Any other program, as the same user in the same environment: what happens without a cage.
    pub fn program<A: AsRef<OsStr>>(
        &self,
        program: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Smcp<'_> {
        Smcp::new(self, program.as_ref()).args(arguments)
    }

    /// Debian's podman, with all that it keeps in the world's own directories, and that runtime.
    pub fn podman(&self, podman: &Path, runtime: &str) -> Smcp<'_> {
        let [root, run, tmp] = ["root", "r", "tmp"].map(|name| self.text(&format!("podman-{name}")));
        let own = ["--root", &root, "--runroot", &run, "--tmpdir", &tmp, "--storage-driver", "vfs"];
        self.program(podman, own).args(["--cgroup-manager", "cgroupfs", "--runtime", runtime])
    }

    /// `smcp run FLAGS PROBE VERB…`: the probe inside the cage.
    pub fn caged(&self, flags: &[&str], verb: &[&str]) -> Smcp<'_> {
        self.smcp(["run"]).args(flags).args([image::probe_reference()]).args(verb)
    }

    /// The probe without a cage.
    pub fn bare(&self, verb: &[&str]) -> Smcp<'_> {
        self.program(probe::path(), verb)
    }

    /// The variables that its commands get.
    pub fn environment(&self) -> [(&'static str, OsString); 12] {
        let directory = |name| OsString::from(self.path(name));
        [
            ("HOME", directory("home")),
            ("USER", "tester".into()),
            ("LOGNAME", "tester".into()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("LANG", "C.UTF-8".into()),
            ("TMPDIR", directory("tmp")),
            ("XDG_CACHE_HOME", directory("cache")),
            ("XDG_STATE_HOME", directory("state")),
            ("MCP_CACHE_DIR", directory("cache/store")),
            ("MCP_AUDIT_LOG_FILE", directory("log/audit.log")),
            // Tests run many at once, and most are not about how long a client waits.
            ("MCP_PULL_PATIENCE", "10m".into()),
            ("CALLERS_SECRET_TOKEN", UNDECLARED.into()),
        ]
    }

    /// Where the store is.
    pub fn store(&self) -> PathBuf {
        self.path("cache/store")
    }

    /// The audit log's text, empty where there is none.
    pub fn audit_text(&self) -> String {
        fs::read_to_string(self.path("log/audit.log")).unwrap_or_default()
    }

    /// The audit log's entries.
    #[track_caller]
    pub fn audit(&self) -> Vec<Value> {
        let text = self.audit_text();
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in audit line {line}"));
        text.lines().map(parse).collect()
    }

    /// The text of the warning that is due of the newest run's package, of which the log has the reason.
    #[track_caller]
    pub fn warning(&self) -> String {
        let begun = self.audit().into_iter().rfind(|entry| entry["event"] == "begin").expect("it runs");
        let reason = begun["warning"].as_str().unwrap_or_else(|| panic!("no warning is due: {begun}"));
        format!("[smcp] T{} Use its tools with caution. The server's own text follows.", &reason[1..])
    }

    /// The end entry of the newest run, after checking that every begin has its end.
    #[track_caller]
    pub fn last_end(&self) -> Value {
        let entries = self.audit();
        let of = |event: &str| entries.iter().filter(|e| e["event"] == event).collect::<Vec<_>>();
        let (begun, ended) = (of("begin"), of("end"));
        for begin in begun {
            let ends = ended.iter().filter(|end| end["run"] == begin["run"]).count();
            assert_eq!(ends, 1, "a run has one end\n{}", self.audit_text());
        }
        (*ended.last().unwrap_or_else(|| panic!("no end entry\n{}", self.audit_text()))).clone()
    }

    /// Every path of the store with what it is: equal before and after means that nothing changed.
    ///
    /// Lock files are left out: they hold nothing and stay by design.
    pub fn store_listing(&self) -> BTreeMap<PathBuf, String> {
        let mut listing = BTreeMap::new();
        list(&self.store(), Path::new(""), &mut listing);
        listing.retain(|path, _| !path.starts_with("locks"));
        listing
    }
}

fn list(root: &Path, below: &Path, listing: &mut BTreeMap<PathBuf, String>) {
    let Ok(entries) = fs::read_dir(root.join(below)) else { return };
    for entry in entries {
        let path = below.join(entry.expect("the store can be listed").file_name());
        let about = fs::symlink_metadata(root.join(&path)).expect("nothing removes it");
        let what = match about.file_type() {
            kind if kind.is_dir() => "directory".to_owned(),
            kind if kind.is_symlink() => format!("link {:?}", fs::read_link(root.join(&path))),
            _ => format!("file {} {:x}", about.len(), sum_of(&root.join(&path))),
        };
        let directory = about.is_dir();
        listing.insert(path.clone(), what);
        if directory {
            list(root, &path, listing);
        }
    }
}

fn sum_of(path: &Path) -> u64 {
    probe::sum(&fs::read(path).unwrap_or_default())
}
