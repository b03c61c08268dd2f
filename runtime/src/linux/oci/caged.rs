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
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Error;
use crate::linux::landlock::{self, Right, readable, writable};
use crate::linux::programs;
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
    /// The cage that a bundle asks for; `None` for one that is no package of smcp's.
    ///
    /// # Errors
    /// Where what it has of smcp's cannot be read: a cage is not left out.
    pub fn of(bundle: &Path, config: &Value) -> Result<Option<Cage>, Error> {
        let file = bundle.join("smcp.json");
        let writable = may_be_written(config);
        if let Some(text) = read(&file)? {
            let Beside { plan } =
                serde_json::from_slice(&text).map_err(|why| Error::step(format!("reading {}", file.display()), why))?;
            let (memory, pids) = (Some(plan.limits.memory), Some(plan.limits.pids));
            return Ok(Some(Cage { programs: plan.programs, writable, memory, pids }));
        }
        let Some(label) = config["annotations"][LABEL].as_str() else { return Ok(None) };
        let manifest = Manifest::parse(label.as_bytes())
            .map_err(|why| Error::step(format!("reading the annotation {LABEL}"), why))?;
        let programs = match manifest.permissions.subprocess.allow {
            none if none.is_empty() => Programs::Runtime,
            named => Programs::Named(named),
        };
        let limits = manifest.limits;
        Ok(Some(Cage { programs, writable, memory: limits.memory, pids: limits.pids }))
    }

    /// That of a container that was created.
    pub(super) fn load(directory: &Path) -> Result<Option<Cage>, Error> {
        let text = read(&directory.join(FILE))?;
        text.map(|text| serde_json::from_slice(&text).map_err(|why| Error::step("reading its cage.json", why)))
            .transpose()
    }

    pub(super) fn save(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join(FILE), serde_json::to_vec(self)?)
    }

    /// Lowers the limits of a `config.json` to the package's, where these are lower and a cgroup enforces limits at all.
    pub fn bound(&self, config: &mut Value) {
        let mut lower = |controller: &str, most: Option<u64>| {
            let Some(most) = most else { return };
            let limit = &mut config["linux"]["resources"][controller]["limit"];
            if limit.as_i64().is_none_or(|own| own <= 0 || own.cast_unsigned() > most) {
                *limit = json!(most);
            }
        };
        lower("memory", self.memory);
        lower("pids", self.pids.map(u64::from));
    }

    /// Confines this process, which is about to become a program of the container.
    ///
    /// # Errors
    /// The layer that is not in force.
    pub fn confine(&self, program: &Path, arguments: &[String], search_path: &str) -> Result<(), String> {
        rustix::thread::set_no_new_privs(true).map_err(|why| format!("no_new_privs: {}", io::Error::from(why)))?;
        let rest = arguments.get(1..).unwrap_or_default();
        let layers = [
            ("landlock", landlock::confine_to(self.rights(program, rest, search_path))),
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
        let execute = |path: PathBuf| Right::new(path, AccessFs::Execute);
        match &self.programs {
            Programs::Any => rights.push(execute("/".into())),
            Programs::Runtime => {}
            Programs::Named(paths) => {
                let files = paths.iter().filter(|path| !path.is_dir());
                rights.extend(files.flat_map(|path| programs::needed(path, &[], search_path)).map(execute));
            }
        }
        rights.extend(programs::needed(program, arguments, search_path).into_iter().map(execute));
        rights
    }
}

fn read(file: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(file) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Error::step(format!("reading {}", file.display()), why)),
    }
}

/// The places of mounts that are not read-only; of a root that is not, the usual directories. Never what is the kernel's.
fn may_be_written(config: &Value) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if config["root"]["readonly"].as_bool() != Some(true) {
        places.extend(
            ["/etc", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var", "/app"].map(PathBuf::from),
        );
    }
    for mount in config["mounts"].as_array().into_iter().flatten() {
        let option = |name: &str| mount["options"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let bound = option("bind") || option("rbind");
        let target = PathBuf::from(mount["destination"].as_str().unwrap_or_default());
        let kernels = ["/proc", "/sys", "/dev"].iter().any(|kernel| target.starts_with(kernel))
            && target != Path::new("/dev/shm");
        if (bound || mount["type"] == "tmpfs") && !option("ro") && !kernels {
            places.push(target);
        }
    }
    places
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

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let cage = Cage { programs: Programs::Runtime, writable: Vec::new(), memory: Some(100), pids: Some(10) };
        let mut config = json!({"linux": {"resources": {"memory": {"limit": 50}, "pids": {"limit": -1}}}});
        cage.bound(&mut config);
        assert_eq!(config["linux"]["resources"], json!({"memory": {"limit": 50}, "pids": {"limit": 10}}));
    }
}
