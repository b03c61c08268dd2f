//! `smcp oci`, driven as containerd's shim, conmon and docker drive a runtime. As root, who these are.

mod bundles;
mod callers;
mod everything;
mod joining;
mod lifecycle;
mod safety;
mod terminals;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::command::{Ended, Smcp};
use crate::patience::{PATIENCE, within};
use crate::world::{User, World};
use crate::{needs, probe};

/// A world of root's, with containers of its own.
struct Containers {
    world: World,
}

impl Containers {
    /// `None` where this is not root.
    fn new() -> Option<Containers> {
        needs::root().then(|| Containers { world: World::new(User::Root) })
    }

    /// A bundle with the probe as its whole root, which runs a verb of it.
    fn bundle(&self, name: &str, verb: &[&str]) -> Bundle {
        let directory = self.world.directory(name);
        fs::create_dir_all(directory.join("rootfs")).expect("the world is ours");
        probe::copy_to(&directory.join("rootfs/probe"));
        let bundle = Bundle { directory };
        self.oci(["spec", "--bundle", bundle.path()]).run().ok();
        bundle.with(|config| {
            config["process"]["args"] = [&["/probe"], verb].concat().into();
            config["process"]["terminal"] = json!(false);
        });
        bundle
    }

    /// A command line of the runtime.
    fn oci<'a>(&self, line: impl IntoIterator<Item = &'a str>) -> Smcp<'_> {
        let root = self.world.text("containers");
        self.world.smcp(["oci", "--root", &root]).args(line)
    }

    /// What `state` says of a container.
    fn state(&self, id: &str) -> Value {
        self.oci(["state", id]).run().ok().json()
    }

    /// Makes a container and starts it.
    fn started(&self, id: &str, bundle: &Bundle) {
        self.created(id, bundle);
        self.oci(["start", id]).run().ok();
    }

    /// Makes a container whose output is nobody's.
    fn created(&self, id: &str, bundle: &Bundle) {
        let log = self.world.text(&format!("{id}.out"));
        let line = "exec \"$@\" </dev/null >\"$0\" 2>&1";
        let smcp = crate::place::smcp().to_str().expect("UTF-8").to_owned();
        let root = self.world.text("containers");
        let words = ["-c", line, &log, &smcp, "oci", "--root", &root, "create", "--bundle", bundle.path(), id];
        self.world.program("/bin/sh", words).run().check_said(&log);
    }

    /// Waits until the container is in a state.
    fn await_status(&self, id: &str, status: &str) {
        let is = within(PATIENCE, || (self.state(id)["status"] == status).then_some(()));
        assert!(is.is_some(), "{id} is {}", self.state(id));
    }

    /// What a container whose output is a file said.
    fn output(&self, id: &str) -> String {
        fs::read_to_string(self.world.path(format!("{id}.out"))).expect("it was created")
    }

    /// Nothing is left of any container.
    fn nothing_left(&self) {
        let left = fs::read_dir(self.world.path("containers")).map(|entries| entries.count()).unwrap_or(0);
        assert_eq!(left, 0, "directories of containers");
        let list = self.oci(["list", "--quiet"]).run().ok();
        assert_eq!(list.text(), "");
    }
}

trait Said {
    fn check_said(self, log: &str);
}

impl Said for Ended {
    /// Its words are in a file.
    fn check_said(self, log: &str) {
        let said = fs::read_to_string(log).unwrap_or_default();
        assert_eq!(self.code(), 0, "{said}");
    }
}

/// A directory with config.json.
struct Bundle {
    directory: PathBuf,
}

impl Bundle {
    fn path(&self) -> &str {
        self.directory.to_str().expect("temporary paths are UTF-8")
    }

    fn rootfs(&self) -> PathBuf {
        self.directory.join("rootfs")
    }

    /// Changes its config.json.
    fn with(&self, change: impl FnOnce(&mut Value)) {
        let file = self.directory.join("config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file).expect("it was written")).expect("JSON");
        change(&mut config);
        fs::write(file, config.to_string()).expect("the world is ours");
    }
}

/// smcp by the name of the runtime, which callers take by its path.
fn by_name(world: &World) -> String {
    let link = world.path("smcp-oci");
    if !link.exists() {
        std::os::unix::fs::symlink(crate::place::smcp(), &link).expect("the world is ours");
    }
    world.text("smcp-oci")
}

/// Directories of cgroups that have this in their name.
fn cgroups(word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let controllers = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    for directory in controllers.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]) {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path()).filter(|path| name_of(path).contains(word)));
    }
    found
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
