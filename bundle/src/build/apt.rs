//! Packages of the host's own Debian or Ubuntu: which, where from, and their files.
//!
//! apt-get and dpkg-deb work here for an ordinary user and change nothing on the host: what to take is a simulation
//! against a status file of our own, downloads go to a staging directory.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use distribution::{Digest, Hasher, Platform};

use super::Job;
use super::error::BuildError;
use super::staging::Staging;
use super::tool::Tool;

/// Packages that others depend on and that no layer needs, with the reason. The simulation takes them for installed,
/// so that what only they would need stays out, too.
const NEEDLESS: [(&str, &str); 9] = [
    ("base-files", "only the merged directories are asked of it, which the base layer makes itself"),
    ("debconf", "asks questions in maintainer scripts, none of which is run"),
    ("dpkg", "maintainer scripts"),
    ("init-system-helpers", "maintainer scripts"),
    ("openssl", "hashes certificates in the maintainer script of ca-certificates; the bundle is made here"),
    ("perl-base", "maintainer scripts"),
    ("tar", "dpkg"),
    ("usr-is-merged", "the base layer is merged"),
    ("usrmerge", "the base layer is merged"),
];

/// A package by name and exact version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
}

impl Package {
    /// One that satisfies whatever others ask of its version from below.
    pub(super) fn any_version(name: &str) -> Package {
        Package { name: name.into(), version: "9999".into() }
    }
}

/// An archive as apt's signed lists announce it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deb {
    pub(super) file: String,
    pub(super) size: u64,
    pub(super) digest: Digest,
}

/// What apt would install for `wanted` on a system that has `present` alone: exact versions, sorted by name.
pub(super) fn closure(job: &Job, present: &[Package], wanted: &[&str]) -> Result<Vec<Package>, BuildError> {
    let staging = job.staging()?;
    let status = staging.path().join("status");
    let architecture = Platform::host().architecture;
    fs::write(&status, status_file(present, &architecture)).map_err(BuildError::io("writing a status file"))?;
    let settings = [
        format!("Dir::State::status={}", status.display()),
        // The host's caches were made for its own status file.
        "Dir::Cache::pkgcache=".into(),
        "Dir::Cache::srcpkgcache=".into(),
        "Debug::NoLocking=1".into(),
        "APT::Install-Recommends=0".into(),
        "APT::Install-Suggests=0".into(),
        // Ubuntu offers updates to some machines first: a build does not depend on the machine.
        "APT::Get::Always-Include-Phased-Updates=1".into(),
    ];
    let settings = settings.iter().flat_map(|setting| ["-o", setting.as_str()]);
    let answer = Tool::new("apt-get").args(["-qq", "-s"]).args(settings).arg_list("install", wanted).output()?;
    let mut packages = parse_simulation(&answer);
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    match wanted.iter().find(|name| !packages.iter().any(|package| package.name == **name)) {
        Some(name) => Err(BuildError::answer("apt-get", format!("{name} would not be installed"))),
        None => Ok(packages),
    }
}

/// What apt's lists say about the archives, sorted.
pub(super) fn announced(packages: &[Package]) -> Result<Vec<Deb>, BuildError> {
    let answer = apt_download().args(["--print-uris"]).arg_list("download", &exact(packages)).output()?;
    let mut debs = parse_uris(&answer)?;
    debs.sort();
    if debs.len() == packages.len() {
        return Ok(debs);
    }
    Err(BuildError::answer("apt-get", format!("{} of {} archives are on offer", debs.len(), packages.len())))
}

/// Downloads, checks and unpacks into one fresh directory.
pub(super) fn download(job: &Job, packages: &[Package], debs: &[Deb]) -> Result<Staging, BuildError> {
    job.say(format!(
        "downloading {} Debian packages, {} kB",
        debs.len(),
        debs.iter().map(|deb| deb.size).sum::<u64>() / 1000
    ));
    let (archives, tree) = (job.staging()?, job.staging()?);
    apt_download().dir(archives.path()).args(["-qq"]).arg_list("download", &exact(packages)).output()?;
    for deb in debs {
        let path = archives.path().join(&deb.file);
        check(&path, deb)?;
        Tool::new("dpkg-deb").args(["--extract".as_ref(), path.as_os_str(), tree.path().as_os_str()]).output()?;
    }
    Ok(tree)
}

/// `NAME=VERSION`, as apt reads it.
pub(super) fn exact(packages: &[Package]) -> Vec<String> {
    packages.iter().map(|package| format!("{}={}", package.name, package.version)).collect()
}

/// A dpkg status file that has these packages and [`NEEDLESS`] installed.
fn status_file(present: &[Package], architecture: &str) -> String {
    let stanza = |name: &str, version: &str| {
        // debconf-2.0 is what packages that ask questions depend on.
        let provides = if name == "debconf" { "Provides: debconf-2.0\n" } else { "" };
        format!(
            "Package: {name}\nStatus: install ok installed\nArchitecture: {architecture}\nMulti-Arch: foreign\n\
             Version: {version}\n{provides}Maintainer: none\nDescription: none\n\n"
        )
    };
    let needless = NEEDLESS.iter().map(|(name, _)| stanza(name, "9999"));
    let present = present.iter().map(|package| stanza(&package.name, &package.version));
    needless.chain(present).collect()
}

/// Reads lines such as `Inst libc6 [2.35] (2.36-9 Debian:12/stable [amd64]) []`.
fn parse_simulation(answer: &str) -> Vec<Package> {
    let package = |line: &str| {
        let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
        let version = rest.split_once('(')?.1.split(' ').next()?;
        Some(Package { name: name.into(), version: version.into() })
    };
    answer.lines().filter_map(package).collect()
}

/// Reads lines such as `'http://…/libc6_2.36-9_amd64.deb' libc6_2.36-9_amd64.deb 2759320 SHA256:ba4f…`.
fn parse_uris(answer: &str) -> Result<Vec<Deb>, BuildError> {
    let deb = |line: &str| {
        let [_, file, size, hash] = line.split(' ').collect::<Vec<_>>()[..] else { return None };
        let digest = format!("sha256:{}", hash.strip_prefix("SHA256:")?).parse().ok()?;
        Some(Deb { file: file.into(), size: size.parse().ok()?, digest })
    };
    let wrong = |line: &str| BuildError::answer("apt-get", format!("no archive with a SHA256: {line:?}"));
    answer.lines().map(|line| deb(line).ok_or_else(|| wrong(line))).collect()
}

fn check(path: &Path, deb: &Deb) -> Result<(), BuildError> {
    let mut hasher = Hasher::new();
    let hash = |mut file| io::copy(&mut file, &mut hasher);
    File::open(path).and_then(hash).map_err(BuildError::io(format!("reading {}", path.display())))?;
    let (digest, size) = hasher.finish();
    if digest == deb.digest && size == deb.size {
        return Ok(());
    }
    let (wanted, got) = (format!("{} ({} bytes)", deb.digest, deb.size), format!("{digest} ({size} bytes)"));
    Err(BuildError::Integrity { what: deb.file.clone(), wanted, got })
}

/// apt as root would download as another user, who cannot write into the staging directory.
fn apt_download() -> Tool<'static> {
    Tool::new("apt-get").args(["-o", "APT::Sandbox::User=root"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulation() {
        let answer = "NOTE: This is only a simulation!\n\
            Inst libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])\n\
            Inst libgcc-s1 [12.1] (12.2.0-14 Debian:12.15/oldstable [amd64]) []\n\
            Inst libkrb5-3 (1.20.1-2+deb12u5 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64])\n\
            Conf libc6 (2.36-9+deb12u14 Debian:12.15/oldstable [amd64])\n";
        let want = [
            package("libc6", "2.36-9+deb12u14"),
            package("libgcc-s1", "12.2.0-14"),
            package("libkrb5-3", "1.20.1-2+deb12u5"),
        ];
        assert_eq!(parse_simulation(answer), want);
    }

    #[test]
    fn uris() {
        let hash = "d7dd1d1411fedf27f5e27650a6eff20ef294077b568f4c8c5e51466dc7c08ce4";
        let line = format!(
            "'http://x/zlib1g_1.2.13.dfsg-1_amd64.deb' zlib1g_1%3a1.2.13.dfsg-1_amd64.deb 86684 SHA256:{hash}\n"
        );
        let file = "zlib1g_1%3a1.2.13.dfsg-1_amd64.deb".to_owned();
        assert_eq!(
            parse_uris(&line).unwrap(),
            [Deb { file, size: 86_684, digest: format!("sha256:{hash}").parse().unwrap() }]
        );
        for wrong in ["", "'u' f 1 MD5Sum:ab40b7d3c7dd743f16d0d24ce3373270", "'u' f 1 ", "'u' f x SHA256:00"] {
            assert!(parse_uris(&format!("{wrong}\n")).is_err(), "{wrong}");
        }
    }

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.into(), version: version.into() }
    }
}
