//! The directory, the programs, the user and the mounts that all contenders share, set up by who started the benchmark.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Options, Result, because};

/// Programs that are measured, and the package of Debian that has each.
const PEERS: [(&str, &str); 4] = [("bwrap", "bubblewrap"), ("crun", "crun"), ("node", "nodejs"), ("npx", "npm")];
/// Where the measuring process leaves its figures.
pub const REPORT: &str = "own/report.json";

/// Programs in `bin`, the measuring user's directory `own`.
pub struct Stage {
    directory: TempDir,
}

impl Stage {
    /// Makes the directory and what goes into it.
    pub fn set(options: &Options) -> Result<Stage> {
        let missing: Vec<_> =
            PEERS.iter().filter(|(program, _)| !is_in_path(program)).map(|(_, package)| *package).collect();
        if !missing.is_empty() {
            return Err(format!("what smcp is compared with is missing: apt-get install {}", missing.join(" ")));
        }
        // Not $TMPDIR, which may be a tmpfs: the audit log's way to the disk is part of what is measured.
        let directory =
            tempfile::Builder::new().prefix("smcp-bench-").tempdir_in("/var/tmp").map_err(because("/var/tmp"))?;
        let stage = Stage { directory };
        // The unprivileged user of a cage started by root comes through here.
        fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o755))
            .map_err(because("opening the directory"))?;
        for name in ["bin", "own"] {
            fs::create_dir(stage.path().join(name)).map_err(because("making a directory"))?;
        }
        // Copies: the user of `--user` may not reach where cargo builds.
        stage.copy(&options.binary, "smcp")?;
        stage.copy(&std::env::current_exe().map_err(because("finding this program"))?, "bench")?;
        stage.compile_true()?;
        if let Some(user) = options.user {
            chown(stage.path().join("own"), Some(user), Some(user))
                .map_err(because("giving the directory to --user"))?;
        }
        Ok(stage)
    }

    /// Measures in another process, as the user and with the mounts that this one may arrange.
    pub fn play(&self, options: &Options) -> Result<()> {
        let mut words: Vec<String> = Vec::new();
        if rustix::process::getuid().is_root() && !has_cgroup2() {
            // crun 1.8 refuses the hybrid hierarchy. In a mount namespace of its own nothing of the host changes.
            let remount = r#"umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@""#;
            words.extend(["unshare", "--mount", "--", "sh", "-c", remount, "sh"].map(Into::into));
        }
        if let Some(user) = options.user {
            let id = user.to_string();
            words.extend(["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--"].map(Into::into));
        }
        let at = |name: &str| self.path().join(name).display().to_string();
        words.extend([at("bin/bench"), "--bench".into(), "--world".into(), self.path().display().to_string()]);
        words.extend(["--runs".into(), options.runs.to_string()]);
        let ended = Command::new(&words[0]).args(&words[1..]).current_dir("/").status().map_err(because(&words[0]))?;
        if !ended.success() {
            return Err(format!("the measuring process ended with {ended}"));
        }
        match &options.json {
            Some(file) => fs::copy(self.path().join(REPORT), file).map(drop).map_err(because(file.display())),
            None => Ok(()),
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn copy(&self, program: &Path, name: &str) -> Result<()> {
        fs::copy(program, self.path().join("bin").join(name)).map(drop).map_err(because(program.display()))
    }

    /// `/bin/true` of Debian needs a loader and a C library, and so would its package: this one needs nothing.
    fn compile_true(&self) -> Result<()> {
        let source = self.path().join("bin/true.rs");
        fs::write(&source, "fn main() {}\n").map_err(because("writing a program"))?;
        let compiler = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
        let compiled = Command::new(compiler)
            .args(["-O", "-Ctarget-feature=+crt-static", "-Cpanic=abort", "-Cstrip=symbols", "-o"])
            .arg(self.path().join("bin/true"))
            .arg(source)
            .status()
            .map_err(because("rustc"))?;
        if compiled.success() { Ok(()) } else { Err("rustc could not make a static program".into()) }
    }
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn has_cgroup2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}
