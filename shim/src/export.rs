//! `smcp bundle`: a package with what a run of it would be granted, as a directory that any OCI runtime runs.
//!
//! ```text
//! DIR/config.json   the plan, for any runtime
//! DIR/smcp.json     the plan, for the cage that smcp-oci puts around it, and the flags, for smcp run
//! DIR/rootfs        the package's files, and the plan's
//! DIR/package       the package as an OCI layout, for smcp run
//! ```

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use distribution::{Network, Resolved, Store, push};
use runtime::{Plan, What, journal};
use serde_json::json;

use crate::bundled::{self, Recorded};
use crate::cli;
use crate::exit::{self, Failure};
use crate::run::{self, Errand};
use crate::settings::Settings;
use crate::show;

/// Resolves, checks and judges a package as a run would, and writes its bundle.
pub fn bundle(typed: &cli::BundleOf, settings: Result<Settings, Failure>) -> u8 {
    if !typed.run.secret.is_empty() {
        return Failure::new(exit::USAGE, "--secret: a bundle is a file that keeps no secret")
            .hint("give the runtime the variable when it runs the bundle")
            .print();
    }
    let flags = cli::Run { dry_run: true, trust: true, ..typed.run.clone() };
    run::run_as(&flags, settings, journal::new_run(), None, Errand::Bundle(&typed.output))
}

/// Writes a plan's bundle into a new directory, or an empty one.
///
/// # Errors
/// Of code 2 where there is something already, of 123 where a file cannot be written. What was written of it is removed.
pub fn write(
    plan: &Plan,
    resolved: &Resolved,
    recorded: &Recorded,
    directory: &Path,
    store: &Store,
    network: &Network,
) -> Result<(), Failure> {
    if fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::new(exit::USAGE, format!("--output {}: there is something already", directory.display()))
            .hint("name a directory that is empty or not there"));
    }
    let written = lay_out(plan, resolved, recorded, directory).map_err(|why| {
        Failure::new(exit::UNPACK, format!("writing the bundle {}: {why}", directory.display()))
            .hint("free the disk, or name another directory")
    });
    let written = written.and_then(|()| {
        let target = bundled::package(directory).parse()?;
        push(store, &resolved.manifest_descriptor, &target, network)?;
        Ok(())
    });
    if written.is_err() {
        for name in ["rootfs", "package", "config.json", "smcp.json"] {
            let path = directory.join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
    written?;
    if !plan.egress.is_empty() {
        show::warn(
            "the network that is granted is there by `smcp run --bundle` alone: smcp itself is the way out of a cage, so another runtime gives it none",
        );
    }
    Ok(())
}

fn lay_out(plan: &Plan, resolved: &Resolved, recorded: &Recorded, directory: &Path) -> io::Result<()> {
    let root = directory.join("rootfs");
    fs::create_dir_all(&root)?;
    let digest = resolved.descriptor.digest.to_string();
    let annotations = json!({"info.mcp-hub.smcp.reference": resolved.name, "info.mcp-hub.smcp.digest": digest});
    copy(&plan.tree, &root)?;
    for (path, text) in &plan.files {
        let file = place(&root, path)?;
        remove(&file)?;
        fs::write(&file, text)?;
        fs::set_permissions(&file, PermissionsExt::from_mode(0o644))?;
    }
    for (path, leads_to) in &plan.links {
        let link = place(&root, path)?;
        remove(&link)?;
        symlink(leads_to, link)?;
    }
    // Runtimes make what is missing, as root; a bundle of an ordinary user's has it.
    for mount in &plan.mounts {
        let target = place(&root, &mount.target)?;
        let a_file = matches!(&mount.what, What::Granted { source, .. } if source.is_file());
        match (a_file, target.exists()) {
            (_, true) => {}
            (true, false) => fs::write(&target, "")?,
            (false, false) => make(&target)?,
        }
    }
    let config = runtime::config::of_bundle(plan, &annotations);
    let about = json!({"reference": resolved.name, "digest": digest, "plan": plan, "run": recorded});
    // Variables stand in both.
    [(bundled::FILE, about), ("config.json", config)].into_iter().try_for_each(|(name, value)| {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(name));
        file?.write_all(format!("{value:#}\n").as_bytes())
    })
}

/// Where a path of the plan's is in a root: its directories are made. A link on the way, or there, would lead out of it.
fn place(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut at = root.to_owned();
    let mut parts = path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).peekable();
    while let Some(part) = parts.next() {
        at.push(part);
        let is_last = parts.peek().is_none();
        match at.symlink_metadata() {
            Ok(found) if found.is_symlink() => {
                let inside = Path::new("/").join(at.strip_prefix(root).unwrap_or(&at));
                return Err(io::Error::other(format!("{} is a symbolic link in the package", inside.display())));
            }
            Ok(found) if is_last || found.is_dir() => {}
            Ok(_) => return Err(io::Error::other(format!("{} is no directory of the package", at.display()))),
            Err(_) if is_last => {}
            Err(_) => make(&at)?,
        }
    }
    Ok(at)
}

fn make(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(directory)
}

/// Takes away what the package has there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Copies a tree: directories, files and links, with their modes; as root with their owners.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let root = rustix::process::geteuid().is_root();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        let about = fs::symlink_metadata(&old)?;
        if about.is_symlink() {
            symlink(fs::read_link(&old)?, &new)?;
        } else if about.is_dir() {
            make(&new)?;
            copy(&old, &new)?;
        } else if about.is_file() {
            fs::copy(&old, &new)?;
        } else {
            return Err(io::Error::other(format!("{} is neither file nor directory nor link", old.display())));
        }
        if root {
            lchown(&new, Some(about.uid()), Some(about.gid()))?;
        }
        if !about.is_symlink() {
            fs::set_permissions(&new, PermissionsExt::from_mode(about.mode() & 0o7777))?;
        }
    }
    Ok(())
}
