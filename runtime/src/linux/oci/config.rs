//! A bundle's `config.json`, and what libcontainer gets in its place.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use libcgroups::common::{CgroupSetup, get_cgroup_setup};
use libcontainer::oci_spec::runtime::{LinuxResources, LinuxSeccomp};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use serde_json::{Map, Value, json};

use super::files::read_json;
use super::{Error, amend, devices, hook, rootless};

/// The file with `process` as the bundle has it, which a further process takes after.
pub const PROCESS: &str = "process.json";

/// A bundle as it stands on disk.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its directory, canonical.
    pub bundle: PathBuf,
    /// Its root, canonical.
    pub rootfs: PathBuf,
    value: Value,
}

/// What is run: the part of `process` that smcp sees to itself.
#[derive(Clone, Debug)]
pub struct Process {
    /// Program and arguments.
    pub args: Vec<String>,
    /// `NAME=VALUE`, in order.
    pub env: Vec<String>,
    /// On the host.
    pub user: (u32, u32),
    /// Whether it has a terminal.
    pub terminal: bool,
    /// What it may do in the end.
    pub capabilities: Sets,
    /// Whether exec(2) gives it no more than it has.
    pub no_new_privileges: bool,
}

/// Sets of capabilities that a thread has, capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sets {
    /// In force.
    pub effective: CapabilitySet,
    /// What may be in force.
    pub permitted: CapabilitySet,
    /// Kept by programs that have them as well.
    pub inheritable: CapabilitySet,
}

impl Config {
    /// Reads it.
    ///
    /// # Errors
    /// Where it is not there, is no JSON, or has no root.
    pub fn read(bundle: &Path) -> Result<Config, Error> {
        let mut value: Value = read_json(&bundle.join("config.json"))?;
        let canonical = |path: &Path| path.canonicalize().map_err(Error::io(format!("finding {}", path.display())));
        let bundle = canonical(bundle)?;
        let Some(root) = value["root"]["path"].as_str() else {
            return Err(Error::step("reading config.json", "it has no root.path"));
        };
        let rootfs = canonical(&bundle.join(root))?;
        if !value["process"].is_object() {
            return Err(Error::step("reading config.json", "process property must not be empty"));
        }
        let linux = &mut value["linux"];
        if linux.is_null() {
            *linux = json!({});
        }
        if denies_devices(&value) {
            withhold_mknod(&mut value["process"]);
        }
        Ok(Config { bundle, rootfs, value })
    }

    /// The same for a further process of this container.
    pub fn withhold(&self, process: &mut Value) {
        if denies_devices(&self.value) {
            withhold_mknod(process);
        }
    }

    /// What is run.
    pub fn process(&self) -> Process {
        process(&self.value["process"])
    }

    /// All of it.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The whole of `process`.
    pub fn whole_process(&self) -> &Value {
        &self.value["process"]
    }

    /// What it says about the container.
    pub fn annotations(&self) -> HashMap<String, String> {
        serde_json::from_value(self.value["annotations"].clone()).unwrap_or_default()
    }

    /// Its filter of system calls, where it has one.
    ///
    /// # Errors
    /// Where that cannot be read.
    pub fn seccomp(&self) -> Result<Option<LinuxSeccomp>, Error> {
        match &self.value["linux"]["seccomp"] {
            Value::Null => Ok(None),
            filter => serde_json::from_value(filter.clone())
                .map(Some)
                .map_err(|why| Error::step("reading linux.seccomp", why)),
        }
    }

    /// Its hooks of this kind.
    pub fn hooks(&self, kind: &str) -> Vec<Value> {
        self.value["hooks"][kind].as_array().cloned().unwrap_or_default()
    }

    /// Where the container's cgroup is, in the form that libcgroups takes.
    pub fn cgroup(&self, id: &str, systemd: bool) -> PathBuf {
        match (self.value["linux"]["cgroupsPath"].as_str(), systemd) {
            (Some(path), true) if !path.is_empty() => path.into(),
            (Some(path), false) if !path.is_empty() => without_parents(path),
            (_, true) => format!(":smcp-oci:{id}").into(),
            // Names are those of one directory of containers, and there may be others. Cgroups of runs begin with `smcp-`.
            (_, false) => format!("/oci-smcp-{id}-{}", std::process::id()).into(),
        }
    }

    /// How a `cgroupsPath` is no unit of systemd's, `SLICE:PREFIX:NAME`.
    ///
    /// # Errors
    /// Where systemd is to make it, and it is none.
    pub fn refuse_no_unit(&self, systemd: bool) -> Result<(), Error> {
        match self.value["linux"]["cgroupsPath"].as_str() {
            Some(path) if systemd && !path.is_empty() && (path.matches(':').count() != 2 || path.contains('/')) => {
                let why = format!("systemd takes a cgroupsPath of the form slice:prefix:name, not {path:?}");
                Err(Error::step("preparing the cgroup", why))
            }
            _ => Ok(()),
        }
    }

    /// How a mount would feign `/proc`: something else in its place or on a file in it, where labels are written and what is masked lies
    /// (CVE-2019-16884, CVE-2019-19921, CVE-2023-27561). What lxcfs brings may be there.
    ///
    /// # Errors
    /// Where it would.
    pub fn refuse_false_proc(&self) -> Result<(), Error> {
        let refused = |why: String| Err(Error::step("preparing the root", why));
        for mount in self.value["mounts"].as_array().into_iter().flatten() {
            let Some(named) = mount["destination"].as_str() else { continue };
            let target = beneath(&self.rootfs, Path::new(named));
            let Ok(below) = target.strip_prefix("/proc") else { continue };
            if below.as_os_str().is_empty() {
                let is_proc = match mount["source"].as_str() {
                    Some(source) if amend::is_bind(mount) => is_root_of_proc(Path::new(source)),
                    _ => mount["type"] == "proc",
                };
                if !is_proc {
                    return refused(format!("{named:?} cannot be mounted because it is not of type proc"));
                }
            } else if !below.to_str().is_some_and(|below| FILES_OF_LXCFS.contains(&below)) {
                return refused(format!("{named:?} cannot be mounted because it is inside /proc"));
            }
        }
        Ok(())
    }

    /// How a mount on `/dev`, `/proc` or `/sys` would end up somewhere else: the image has a link there, and what is made behind
    /// it may be on the host.
    ///
    /// # Errors
    /// Where it would.
    pub fn refuse_links(&self) -> Result<(), Error> {
        let mounted = |name: &str| {
            let mounts = self.value["mounts"].as_array().into_iter().flatten();
            mounts.filter_map(|mount| mount["destination"].as_str()).any(|path| {
                let path = path.trim_start_matches('/');
                path == name || path.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        for name in ["dev", "proc", "sys"] {
            let path = self.rootfs.join(name);
            let link = path.symlink_metadata().is_ok_and(|found| found.file_type().is_symlink());
            if link && (name == "dev" || mounted(name)) {
                let why = format!("the image has a symbolic link at /{name}, which must be an ordinary directory");
                return Err(Error::step("preparing the root", why));
            }
        }
        Ok(())
    }

    /// The `config.json` of libcontainer.
    pub fn adapted(&self, id: &str, systemd: bool) -> Value {
        let mut value = self.value.clone();
        value["root"]["path"] = json!(self.rootfs);
        let filtered = !value["linux"]["seccomp"].is_null();
        adapt_process(&mut value["process"], filtered);
        value["linux"]["cgroupsPath"] = json!(self.cgroup(id, systemd));
        let version_1 = matches!(get_cgroup_setup(), Ok(CgroupSetup::Legacy | CgroupSetup::Hybrid));
        amend::rewrite(&mut value, &self.bundle, version_1);
        devices::deny_first(&mut value);
        let bundle = self.bundle.to_string_lossy();
        if let Some(hooks) = value["hooks"].as_object_mut() {
            // These run in the container's root, where smcp is not; payload.rs runs them.
            hooks.remove("startContainer");
            let all = hooks.values_mut().filter_map(Value::as_array_mut).flatten();
            all.for_each(|hook| hook::wrap(hook, &bundle));
        }
        value
    }
}

/// What is mounted on files of `/proc` by what feigns the machine's size, as runc allows it.
const FILES_OF_LXCFS: [&str; 11] = [
    "cpuinfo",
    "diskstats",
    "meminfo",
    "stat",
    "swaps",
    "uptime",
    "loadavg",
    "slabinfo",
    "net/dev",
    "sys/kernel/ns_last_pid",
    "sys/crypto/fips_enabled",
];

/// A path without `..`, which would lead out of the file system of cgroups. What is relative stays so.
fn without_parents(path: &str) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => {
                clean.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    if path.starts_with('/') { Path::new("/").join(clean) } else { clean }
}

/// Where a path in a root leads, as a path in it: by the links that are there, and by its text from where nothing is.
fn beneath(root: &Path, path: &Path) -> PathBuf {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let led = || -> rustix::io::Result<PathBuf> {
        let directory = rustix::fs::open(root, flags, Mode::empty())?;
        let mut there = path.to_owned();
        loop {
            match rustix::fs::openat2(&directory, &there, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                Err(Errno::NOENT | Errno::NOTDIR) if there.pop() => {}
                found => {
                    let found = found?;
                    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
                    let found = PathBuf::from(OsString::from_vec(rustix::fs::readlink(link, Vec::new())?.into_bytes()));
                    let rest = path.strip_prefix(&there).unwrap_or(Path::new(""));
                    return Ok(found.strip_prefix(root).unwrap_or(&found).join(rest));
                }
            }
        }
    };
    without_parents(&format!("/{}", led().unwrap_or_else(|_| path.to_owned()).display()))
}

/// Whether a path is a whole file system of processes, as `--pid=host` binds the host's.
fn is_root_of_proc(path: &Path) -> bool {
    /// linux/magic.h, and fs/proc/root.c for the number.
    const PROC_SUPER_MAGIC: rustix::fs::FsWord = 0x9fa0;
    const PROC_ROOT_INO: u64 = 1;
    let is_proc = rustix::fs::statfs(path).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC);
    is_proc && rustix::fs::stat(path).is_ok_and(|found| found.st_ino == PROC_ROOT_INO)
}

/// The limits of a `config.json`, where it wants a container that is out of memory to wait in place of being killed.
///
/// # Errors
/// Where they cannot be read.
pub fn resources_without_oom_killer(config: &Value) -> Result<Option<LinuxResources>, Error> {
    let resources = &config["linux"]["resources"];
    if resources["memory"]["disableOOMKiller"] != true {
        return Ok(None);
    }
    serde_json::from_value(resources.clone()).map(Some).map_err(|why| Error::step("reading linux.resources", why))
}

/// Whether a rule on devices denies some where nothing enforces that: on cgroup v2 rules are programs in the kernel, which takes them of the
/// host's root alone.
fn denies_devices(value: &Value) -> bool {
    let mut rules = value["linux"]["resources"]["devices"].as_array().into_iter().flatten();
    rules.any(|rule| rule["allow"].as_bool() != Some(true))
        && matches!(get_cgroup_setup(), Ok(CgroupSetup::Unified))
        && !rootless::is_root_of_the_host()
}

/// Takes the right to make devices: without it there are those alone that `config.json` names.
fn withhold_mknod(process: &mut Value) {
    for set in process["capabilities"].as_object_mut().into_iter().flat_map(|sets| sets.values_mut()) {
        if let Some(names) = set.as_array_mut() {
            names.retain(|name| name != "CAP_MKNOD");
        }
    }
}

/// Whether the program of this bundle has a terminal.
///
/// # Errors
/// Where its `config.json` cannot be read.
pub fn wants_terminal(bundle: &Path) -> Result<bool, Error> {
    Ok(Config::read(bundle)?.process().terminal)
}

/// The same of a file with a `process`.
///
/// # Errors
/// Where it cannot be read.
pub fn process_wants_terminal(file: &Path) -> Result<bool, Error> {
    Ok(process(&read_json(file)?).terminal)
}

/// Makes of a `process` what libcontainer gets: with all sets of capabilities, since it keeps what is not named, and none that
/// it does not know; and where a filter needs it, with the right to install one, which `payload.rs` gives up.
pub fn adapt_process(process: &mut Value, filtered: bool) {
    let raise = filtered && process["noNewPrivileges"].as_bool() != Some(true);
    let capabilities = &mut process["capabilities"];
    if !capabilities.is_object() {
        *capabilities = Value::Object(Map::new());
    }
    for set in ["bounding", "effective", "permitted", "inheritable", "ambient"] {
        let mut names: Vec<&str> =
            capabilities[set].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        names.retain(|name| CAPABILITIES.contains(name));
        if raise && matches!(set, "effective" | "permitted") && !names.contains(&SYS_ADMIN) {
            names.push(SYS_ADMIN);
        }
        capabilities[set] = json!(names);
    }
}

const SYS_ADMIN: &str = "CAP_SYS_ADMIN";

/// Reads a `process`.
pub fn process(value: &Value) -> Process {
    let texts = |name: &str| {
        let all = value[name].as_array().into_iter().flatten();
        all.filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let set = |name: &str| {
        let names = value["capabilities"][name].as_array().into_iter().flatten().filter_map(Value::as_str);
        let bits =
            names.filter_map(|name| CAPABILITIES.iter().position(|known| *known == name)).map(|bit| 1_u64 << bit);
        CapabilitySet::from_bits_retain(bits.fold(0, |all, bit| all | bit))
    };
    let number = |name: &str| value["user"][name].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or(0);
    Process {
        args: texts("args"),
        env: texts("env"),
        user: (number("uid"), number("gid")),
        terminal: value["terminal"].as_bool().unwrap_or(false),
        capabilities: Sets {
            effective: set("effective"),
            permitted: set("permitted"),
            inheritable: set("inheritable"),
        },
        no_new_privileges: value["noNewPrivileges"].as_bool().unwrap_or(false),
    }
}

/// How a `process.user` names no user: setresuid(2) takes -1 for the one that it is, which is root (CVE-2024-40635).
///
/// # Errors
/// Where it does, in runc's words.
pub fn refuse_no_id(process: &Value) -> Result<(), Error> {
    let user = &process["user"];
    let groups = user["additionalGids"].as_array().into_iter().flatten();
    let is_id = |id: &Value| id.is_null() || id.as_u64().is_some_and(|id| i32::try_from(id).is_ok());
    match [&user["uid"], &user["gid"]].into_iter().chain(groups).all(is_id) {
        true => Ok(()),
        false => Err(Error::step("preparing the process", "uids and gids must be in range 0-2147483647")),
    }
}

/// By number, linux/capability.h.
pub const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a set libcontainer would leave what the caller has, which for root is everything.
    #[test]
    fn capabilities_that_are_not_named_are_none() {
        let mut process = json!({"args": ["a"]});
        adapt_process(&mut process, false);
        for set in ["bounding", "effective", "permitted", "inheritable", "ambient"] {
            assert_eq!(process["capabilities"][set], json!([]), "{set}");
        }
    }

    /// A filter without `noNewPrivileges` takes CAP_SYS_ADMIN, which the program never gets.
    #[test]
    fn the_right_to_install_a_filter_is_borrowed() {
        let own = json!({"capabilities": {"bounding": ["CAP_KILL", "CAP_NEW"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"]}});
        let mut borrowed = own.clone();
        adapt_process(&mut borrowed, true);
        assert_eq!(borrowed["capabilities"]["effective"], json!(["CAP_KILL", SYS_ADMIN]));
        assert_eq!(borrowed["capabilities"]["bounding"], json!(["CAP_KILL"]));
        assert_eq!(process(&own).capabilities.effective, CapabilitySet::KILL);
        let mut none_needed = json!({"noNewPrivileges": true});
        adapt_process(&mut none_needed, true);
        assert_eq!(none_needed["capabilities"]["effective"], json!([]));
    }

    /// Where rules on devices are not enforced nobody makes devices.
    #[test]
    fn making_devices_is_withheld_from_every_set() {
        let mut process = json!({"capabilities": {"bounding": ["CAP_KILL", "CAP_MKNOD"], "ambient": ["CAP_MKNOD"]}});
        withhold_mknod(&mut process);
        assert_eq!(process, json!({"capabilities": {"bounding": ["CAP_KILL"], "ambient": []}}));
    }

    #[test]
    fn paths_of_cgroups_do_not_lead_out() {
        for (path, want) in [
            ("/a/b", "/a/b"),
            ("a/b/", "a/b"),
            ("../../../tmp/x", "tmp/x"),
            ("/../../tmp/./x/../y", "/tmp/y"),
            ("/..", "/"),
            ("..", ""),
        ] {
            assert_eq!(without_parents(path), Path::new(want), "{path}");
        }
    }

    #[test]
    fn targets_of_mounts_go_by_the_links_of_the_root() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("proc")).unwrap();
        std::os::unix::fs::symlink("/proc", root.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../../proc/.", root.join("up")).unwrap();
        for (path, want) in [
            ("/proc", "/proc"),
            ("proc/", "/proc"),
            ("/absolute/self/attr", "/proc/self/attr"),
            ("/up", "/proc"),
            ("/none/../proc", "/proc"),
            ("/data/proc", "/data/proc"),
        ] {
            assert_eq!(beneath(&root, Path::new(path)), Path::new(want), "{path}");
        }
    }

    #[test]
    fn capabilities_have_the_numbers_of_the_kernel() {
        for (name, set) in
            [("CAP_SYS_ADMIN", CapabilitySet::SYS_ADMIN), ("CAP_CHECKPOINT_RESTORE", CapabilitySet::CHECKPOINT_RESTORE)]
        {
            let place = CAPABILITIES.iter().position(|known| *known == name).unwrap();
            assert_eq!(1_u64 << place, set.bits(), "{name}");
        }
    }
}
