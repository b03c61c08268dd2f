//! The cage of a package around its container: what `config.json` says is in force as with any, and within it Landlock, smcp's own filter
//! and the package's limits.
//!
//! A bundle of `smcp bundle` has the plan beside its `config.json`; one that containerd or podman made of a package may have the
//! package's manifest among its annotations.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ::landlock::AccessFs;
use bundle::{LABEL, Manifest};
use libcontainer::oci_spec::runtime::LinuxResources;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Error;
use super::amend::{has, is_bind, mounts};
use super::files::{read_json_if_there, write_private};
use super::seal::Canary;
use crate::linux::landlock::{self, Right, readable, writable};
use crate::linux::seccomp::{self, Around};
use crate::plan::{Plan, Programs};
use crate::report::Status;

/// What a package's cage adds to a container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cage {
    programs: Programs,
    /// What `config.json` lets the container write.
    writable: Vec<PathBuf>,
    /// The package's limits, which bound those of `config.json`.
    memory: Option<u64>,
    pids: Option<u32>,
}

/// What of `smcp.json` counts here.
#[derive(Deserialize)]
struct Beside {
    plan: Plan,
}

/// The file in a container's directory.
const FILE: &str = "cage.json";

impl Cage {
    /// The cage that a bundle asks for; `None` for one that is no package of smcp's. The root of a `config.json` with one is read-only, as that of
    /// any run is: what may be executed is named by paths.
    ///
    /// # Errors
    /// Where what it has of smcp's cannot be read: a cage is not left out. And where a program that is named can be replaced.
    pub fn around(bundle: &Path, config: &mut Value) -> Result<Option<Cage>, Error> {
        if let Some(Beside { plan }) = read_json_if_there(&bundle.join("smcp.json"))? {
            close_root(config);
            let (memory, pids) = (Some(plan.limits.memory), Some(plan.limits.pids));
            return Ok(Some(Cage { programs: plan.programs, writable: may_be_written(config), memory, pids }));
        }
        let Some(label) = config["annotations"][LABEL].as_str() else { return Ok(None) };
        let manifest = Manifest::parse(label.as_bytes())
            .map_err(|why| Error::step(format!("reading the annotation {LABEL}"), why))?;
        close_root(config);
        let writable = may_be_written(config);
        let programs = match manifest.permissions.subprocess.allow {
            none if none.is_empty() => Programs::Runtime,
            named => Programs::Named(named),
        };
        if let Programs::Named(named) = &programs
            && let Some(replaced) = named.iter().find(|path| writable.iter().any(|place| path.starts_with(place)))
        {
            let why = "it is on a mount that the container may write, where it can be replaced: mount it read-only";
            return Err(Error::step(
                format!("granting the program {} of the package's manifest", replaced.display()),
                why,
            ));
        }
        let limits = manifest.limits;
        Ok(Some(Cage { programs, writable, memory: limits.memory, pids: limits.pids }))
    }

    /// That of a container that was created.
    pub(super) fn load(directory: &Path) -> Result<Option<Cage>, Error> {
        read_json_if_there(&directory.join(FILE))
    }

    pub(super) fn save(&self, directory: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|why| Error::step("writing its cage.json", why))?;
        write_private(&directory.join(FILE), &text)
    }

    /// Lowers the limits of a `config.json` to the package's, where these are lower.
    ///
    /// # Errors
    /// Where what there is has another form.
    pub(super) fn bound(&self, config: &mut Value) -> Result<(), Error> {
        let linux = object(config, "config.json")?.entry("linux").or_insert_with(|| json!({}));
        let resources = object(linux, "linux")?.entry("resources").or_insert_with(|| json!({}));
        self.lower(resources, Scope::Whole(Counted::here()))
    }

    /// The same of limits that are set later: what they do not name stays as it is.
    ///
    /// # Errors
    /// Where they have another form.
    pub(super) fn bounded(&self, resources: &LinuxResources) -> Result<LinuxResources, Error> {
        let fail = |why: serde_json::Error| Error::step("reading the resources", why);
        let mut value = serde_json::to_value(resources).map_err(fail)?;
        self.lower(&mut value, Scope::Named)?;
        serde_json::from_value(value).map_err(fail)
    }

    /// What is said where there is no cgroup that could hold the limits.
    pub(super) fn without_cgroup(&self) -> Option<String> {
        let limits = [("memory", self.memory), ("processes", self.pids.map(u64::from))];
        let names: Vec<&str> = limits.into_iter().filter_map(|(name, limit)| limit.map(|_| name)).collect();
        let said = || format!("the package's limits of {} are not in force: there is no cgroup", names.join(" and "));
        (!names.is_empty()).then(said)
    }

    fn lower(&self, resources: &mut Value, scope: Scope) -> Result<(), Error> {
        let resources = object(resources, "linux.resources")?;
        if let Some(memory) = self.memory {
            lower(resources, "memory", "limit", memory, scope != Scope::Named)?;
            // Memory and swap together.
            lower(resources, "memory", "swap", memory, scope == Scope::Whole(Counted::WithSwap))?;
            lower_unified(resources, "memory.max", memory)?;
            let no_swap = scope == Scope::Whole(Counted::SwapApart);
            if no_swap || resources.get("unified").is_some_and(|unified| !unified["memory.swap.max"].is_null()) {
                let unified = resources.entry("unified").or_insert_with(|| json!({}));
                object(unified, "unified")?.insert("memory.swap.max".into(), json!("0"));
            }
        }
        if let Some(pids) = self.pids.map(u64::from) {
            lower(resources, "pids", "limit", pids, scope != Scope::Named)?;
            lower_unified(resources, "pids.max", pids)?;
        }
        Ok(())
    }

    /// Confines this process, which is about to become a program of the container.
    ///
    /// # Errors
    /// The layer that is not in force.
    pub fn confine(
        &self,
        program: &Path,
        arguments: &[String],
        search_path: &str,
        canary: &Canary,
    ) -> Result<(), String> {
        rustix::thread::set_no_new_privs(true).map_err(|why| format!("no_new_privs: {}", io::Error::from(why)))?;
        let rest = arguments.get(1..).unwrap_or_default();
        let layers = [
            ("landlock", landlock::confine_to(self.rights(program, rest, search_path), &canary.path())),
            ("seccomp", seccomp::confine(&seccomp::filter(&self.programs, Around::Namespaces), None)),
        ];
        for (layer, status) in layers {
            if let Status::Absent(why) = status {
                return Err(format!("the cage is not whole: {layer} is absent: {why}"));
            }
        }
        Ok(())
    }

    fn rights(&self, program: &Path, arguments: &[String], search_path: &str) -> Vec<Right> {
        let terminal = readable() | AccessFs::WriteFile | AccessFs::IoctlDev;
        let mut rights = vec![Right::new("/", readable()), Right::new("/dev", readable() | AccessFs::WriteFile)];
        rights.extend(["/dev/pts", "/dev/tty", "/dev/console"].map(|path| Right::new(path, terminal)));
        rights.extend(self.writable.iter().map(|path| Right::new(path, writable())));
        rights.extend(landlock::executable(&self.programs, Some((program, arguments)), search_path));
        rights
    }
}

/// Which limits the package's bound.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Those of a container that comes into being: none is left out.
    Whole(Counted),
    /// Those that are named.
    Named,
}

/// How this machine's cgroups count what is swapped out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// With memory: version 1.
    WithSwap,
    /// By itself: version 2.
    SwapApart,
    /// Not at all.
    WithoutSwap,
}

impl Counted {
    fn here() -> Counted {
        const ROOT: &str = "/sys/fs/cgroup";
        if Path::new(ROOT).join("memory/memory.memsw.limit_in_bytes").exists() {
            return Counted::WithSwap;
        }
        // The root of version 2 has no limits.
        let mut below = fs::read_dir(ROOT).into_iter().flatten().flatten();
        match below.any(|entry| entry.path().join("memory.swap.max").exists()) {
            true => Counted::SwapApart,
            false => Counted::WithoutSwap,
        }
    }
}

fn object<'a>(value: &'a mut Value, name: &str) -> Result<&'a mut Map<String, Value>, Error> {
    if value.is_null() {
        *value = json!({});
    }
    let fail = || Error::step("lowering its limits to the package's", format!("{name} is no object"));
    value.as_object_mut().ok_or_else(fail)
}

/// Lowers one limit of a controller; one that is not named is set where that `always` is to be. What is no number is refused by
/// who reads it.
fn lower(of: &mut Map<String, Value>, controller: &str, name: &str, most: u64, always: bool) -> Result<(), Error> {
    if !always && !of.contains_key(controller) {
        return Ok(());
    }
    let limits = object(of.entry(controller).or_insert_with(|| json!({})), controller)?;
    let is_above = match limits.get(name).unwrap_or(&Value::Null) {
        Value::Null => always,
        own => match own.as_i64() {
            // 0 sets nothing.
            Some(0) => always,
            Some(own) => own < 0 || own.cast_unsigned() > most,
            None => false,
        },
    };
    if is_above {
        limits.insert(name.into(), json!(most));
    }
    Ok(())
}

/// Lowers a limit by the name of its file in cgroups of version 2.
fn lower_unified(of: &mut Map<String, Value>, file: &str, most: u64) -> Result<(), Error> {
    let Some(unified) = of.get_mut("unified") else { return Ok(()) };
    let unified = object(unified, "unified")?;
    let is_above = |own: &Value| {
        own.as_str().is_some_and(|own| own.trim().parse::<u64>().is_ok_and(|own| own > most) || own.trim() == "max")
    };
    if unified.get(file).is_some_and(is_above) {
        unified.insert(file.into(), json!(most.to_string()));
    }
    Ok(())
}

/// Makes the root read-only. A container that counted on writing gets a place for temporary files, as a run has.
fn close_root(config: &mut Value) {
    const TEMPORARY: &str = "/tmp";
    if config["root"]["readonly"] == true {
        return;
    }
    config["root"]["readonly"] = json!(true);
    let is_taken = mounts(config).any(|mount| Path::new(target(mount)).starts_with(TEMPORARY));
    if !is_taken && let Some(mounts) = config["mounts"].as_array_mut() {
        let options = ["nosuid", "nodev", "noexec", "mode=1777"];
        mounts.push(json!({"destination": TEMPORARY, "type": "tmpfs", "source": "tmpfs", "options": options}));
    }
}

fn target(mount: &Value) -> &str {
    mount["destination"].as_str().unwrap_or_default()
}

/// The places of mounts that are not read-only. Never what is the kernel's.
fn may_be_written(config: &Value) -> Vec<PathBuf> {
    let is_writable = |mount: &&Value| {
        let is_the_kernels =
            ["/proc", "/sys", "/dev"].iter().any(|kernel| Path::new(target(mount)).starts_with(kernel))
                && target(mount) != "/dev/shm";
        let is_bound = is_bind(mount);
        (is_bound || mount["type"] == "tmpfs") && !has(mount, "ro") && !is_the_kernels
    };
    mounts(config).filter(is_writable).map(|mount| target(mount).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_config_json_lets_be_written() {
        let config = json!({"root": {"readonly": true}, "mounts": [
            {"destination": "/proc", "type": "proc"},
            {"destination": "/dev", "type": "tmpfs", "options": ["mode=755"]},
            {"destination": "/dev/shm", "type": "tmpfs", "options": []},
            {"destination": "/tmp", "type": "tmpfs"},
            {"destination": "/data", "type": "bind", "options": ["rbind", "ro"]},
            {"destination": "/work", "type": "none", "options": ["bind", "rw"]},
        ]});
        assert_eq!(may_be_written(&config), ["/dev/shm", "/tmp", "/work"].map(PathBuf::from));
    }

    /// A server that can write where its programs are could replace them.
    #[test]
    fn the_root_is_closed() {
        let bundle = tempfile::tempdir().unwrap();
        let manifest = |allow: &[&str]| {
            json!({
                "schemaVersion": 1, "name": "test/a", "version": "1", "entrypoint": {"args": ["/a"]},
                "permissions": {"subprocess": {"allow": allow}},
            })
            .to_string()
        };
        let around = |allow: &[&str], root: Value, mounts: Value| {
            let mut config = json!({"root": root, "mounts": mounts, "annotations": {LABEL: manifest(allow)}});
            Cage::around(bundle.path(), &mut config).map(|cage| (cage.unwrap().writable, config))
        };
        let (writable, config) = around(&["/usr/bin/git"], json!({"path": "rootfs"}), json!([])).unwrap();
        assert_eq!(config["root"]["readonly"], true);
        assert_eq!((writable, &config["mounts"][0]["destination"]), (vec![PathBuf::from("/tmp")], &json!("/tmp")));
        let data = json!([{"destination": "/data", "type": "bind", "options": ["rbind"]}, {"destination": "/tmp/x", "type": "tmpfs"}]);
        let (writable, config) = around(&[], json!({}), data.clone()).unwrap();
        assert_eq!((writable.len(), config["mounts"].as_array().unwrap().len()), (2, 2));
        let refused = around(&["/usr/bin/git", "/data/tool"], json!({"readonly": true}), data).unwrap_err();
        assert!(refused.to_string().contains("/data/tool"), "{refused}");
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let cage = Cage { programs: Programs::Runtime, writable: Vec::new(), memory: Some(100), pids: Some(10) };
        let lowered = |resources: Value, scope: Scope| {
            let mut resources = resources;
            cage.lower(&mut resources, scope).map(|()| resources).map_err(|why| why.to_string())
        };
        let whole = Scope::Whole(Counted::WithoutSwap);
        let own = json!({"memory": {"limit": 50}, "pids": {"limit": -1}});
        assert_eq!(lowered(own, whole), Ok(json!({"memory": {"limit": 50}, "pids": {"limit": 10}})));
        let most = json!({"memory": {"limit": 100}, "pids": {"limit": 10}});
        assert_eq!(lowered(json!({"memory": {"limit": 0}}), whole), Ok(most.clone()));
        assert_eq!(lowered(Value::Null, whole), Ok(most));
        // What is swapped out.
        let memory = |limit: i64, swap: i64| json!({"memory": {"limit": limit, "swap": swap}});
        assert_eq!(lowered(memory(-1, -1), Scope::Named), Ok(memory(100, 100)));
        let with_swap = lowered(json!({}), Scope::Whole(Counted::WithSwap)).unwrap();
        assert_eq!(with_swap["memory"], json!({"limit": 100, "swap": 100}));
        let apart = lowered(json!({}), Scope::Whole(Counted::SwapApart)).unwrap();
        assert_eq!(apart["unified"], json!({"memory.swap.max": "0"}));
        // By the names of files.
        let unified = |memory: &str, pids: &str| json!({"unified": {"memory.max": memory, "pids.max": pids}});
        assert_eq!(lowered(unified("max", "5"), Scope::Named), Ok(unified("100", "5")));
        // An update of something else changes nothing here, and odd ones are an error.
        let others = json!({"cpu": {"shares": 5}});
        assert_eq!(lowered(others.clone(), Scope::Named), Ok(others));
        for odd in [json!("x"), json!([1]), json!({"memory": "x"}), json!({"pids": [1]}), json!({"unified": 1})] {
            assert!(lowered(odd.clone(), whole).is_err(), "{odd}");
        }
    }

    /// A cage is whole, or it is said what is not.
    #[test]
    fn limits_without_a_cgroup_are_said() {
        let cage = |memory, pids| Cage { programs: Programs::Runtime, writable: Vec::new(), memory, pids };
        assert_eq!(cage(None, None).without_cgroup(), None);
        let said = cage(Some(1), Some(1)).without_cgroup().unwrap();
        assert!(said.contains("memory and processes"), "{said}");
    }
}
