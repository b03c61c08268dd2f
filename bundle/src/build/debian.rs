//! Layers from packages of the host's own Debian or Ubuntu: the base and the python runtime.

use std::fs;
use std::path::{Path, PathBuf};

use super::Job;
use super::apt::{Deb, Package, announced, closure, download, exact};
use super::error::BuildError;
use super::interpreter::Interpreter;
use super::shared::{self, SharedLayer};
use super::tree;
use crate::pack::{FileMode, LayerBuilder};

/// What every dynamically linked server may count on.
const BASE: [&str; 5] = ["ca-certificates", "libc6", "libgcc-s1", "libstdc++6", "tzdata"];

/// pip, for the build alone.
const PIP: &str = "python3-pip-whl";

/// What some packages depend on and a server does not need of them, with the reason.
const WITHOUT: [(&str, &[&str], &str); 1] = [(
    "git",
    &["git-man", "liberror-perl", "perl"],
    "manual pages, and the commands for mail, subversion and instaweb",
)];

/// What is left out of the packages: for people, for other programs, or made again here. Whole directories, relative to
/// the root.
const DROPPED: [&str; 24] = [
    "etc/ca-certificates",
    "usr/sbin",
    "usr/share/applications",
    "usr/share/bash-completion",
    "usr/share/binfmts",
    "usr/share/bug",
    "usr/share/ca-certificates",
    "usr/share/doc-base",
    "usr/share/gcc",
    "usr/share/gdb",
    "usr/share/icons",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/menu",
    "usr/share/pixmaps",
    "usr/share/python3",
    "usr/share/readline",
    "usr/share/zoneinfo/posix",
    "usr/share/zoneinfo/right",
    "usr/lib/valgrind",
    "lib/systemd",
    "usr/lib/systemd",
];

/// Where OpenSSL, and so python, looks; the certificates themselves are one file, as update-ca-certificates makes it.
const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The base layer.
pub(super) struct Base {
    pub(super) layer: SharedLayer,
    packages: Vec<Package>,
}

/// The python runtime and the tools to install into it.
pub(super) struct Python {
    pub(super) layer: SharedLayer,
    pub(super) interpreter: Interpreter,
}

/// The base layer: [`BASE`], the links of a merged root, certificates and a time zone.
pub(super) fn base(job: &Job) -> Result<Base, BuildError> {
    let packages = closure(job, &[], &BASE)?;
    let debs = announced(&packages)?;
    let layer = shared::layer(job, "base", &inputs("base 1", &debs), contents(&packages), || {
        let tree = download(job, &packages, &debs)?;
        let mut layer = LayerBuilder::new(0);
        layer.add_merged_usr()?;
        layer.add_tree(tree.path(), Path::new(""), &is_kept)?;
        layer.add_shared_dir(Path::new("tmp"))?;
        layer.add_bytes(Path::new(CA_BUNDLE), ca_bundle(tree.path())?, FileMode::Plain)?;
        layer.add_symlink(Path::new("usr/lib/ssl/cert.pem"), Path::new(CA_BUNDLE))?;
        layer.add_symlink(Path::new("usr/lib/ssl/certs"), Path::new("/etc/ssl/certs"))?;
        layer.add_symlink(Path::new("etc/localtime"), Path::new("/usr/share/zoneinfo/Etc/UTC"))?;
        layer.add_bytes(Path::new("etc/timezone"), "Etc/UTC\n", FileMode::Plain)?;
        // Without it glibc asks DNS first and /etc/hosts only where DNS does not answer.
        layer.add_bytes(Path::new("etc/nsswitch.conf"), "hosts: files dns\n", FileMode::Plain)?;
        Ok(layer.finish(job.store)?)
    })?;
    Ok(Base { layer, packages })
}

/// The distribution's python with its standard library compiled, on top of `base`.
pub(super) fn python(job: &Job, base: &Base) -> Result<Python, BuildError> {
    let all = closure(job, &base.packages, &["python3", PIP])?;
    let (pip_debs, debs) = announced(&all)?.into_iter().partition(|deb| is_of(deb, PIP));
    let (pip, packages): (Vec<_>, Vec<_>) = all.into_iter().partition(|package| package.name == PIP);
    let version = python_version(&packages)?;
    let base_dir = shared::unpacked(job.store, &base.layer.packed)?;
    let layer = python_layer(job, base, &base_dir, &version, &packages, debs)?;
    let dir = shared::unpacked(job.store, &layer.packed)?;
    let pip = pip_wheel(job, &pip, pip_debs)?;
    let interpreter = Interpreter::unpacked(&version, &[&base_dir, &dir], &dir)?.with_pip(pip);
    Ok(Python { layer, interpreter })
}

/// pip alone, for a python of another image.
pub(super) fn pip(job: &Job) -> Result<PathBuf, BuildError> {
    let packages: Vec<_> = closure(job, &[], &[PIP])?.into_iter().filter(|package| package.name == PIP).collect();
    let debs = announced(&packages)?;
    pip_wheel(job, &packages, debs)
}

/// A layer of more packages and all that they depend on, over a base; none where none are asked for.
pub(super) fn more(job: &Job, has_base: bool) -> Result<Option<SharedLayer>, BuildError> {
    let wanted: Vec<&str> = job.debian.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    if !has_base {
        return Err(BuildError::Options("Debian packages need the base layer, which this package leaves out".into()));
    }
    if let Some(name) = wanted.iter().find(|name| !is_package_name(name)) {
        return Err(BuildError::Options(format!("{name:?} is no name of a Debian package")));
    }
    let mut present = closure(job, &[], &BASE)?;
    let left_out = WITHOUT.iter().filter(|(package, ..)| wanted.contains(package)).flat_map(|(_, names, _)| *names);
    present.extend(left_out.filter(|name| !wanted.contains(name)).map(|name| Package::any_version(name)));
    let packages = closure(job, &present, &wanted)?;
    let debs = announced(&packages)?;
    let layer = shared::layer(job, "debian", &inputs("more 1", &debs), contents(&packages), || {
        let tree = download(job, &packages, &debs)?;
        let mut layer = LayerBuilder::new(0);
        layer.add_tree(tree.path(), Path::new(""), &|path| is_kept(path) || path.starts_with("usr/bin"))?;
        Ok(layer.finish(job.store)?)
    })?;
    Ok(Some(layer))
}

/// Debian policy, 5.6.7; no option of apt-get begins like this.
fn is_package_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() > 1 && name.bytes().next().is_some_and(plain) && name.bytes().all(|b| plain(b) || b"+-.".contains(&b))
}

fn python_layer(
    job: &Job,
    base: &Base,
    base_dir: &Path,
    version: &str,
    packages: &[Package],
    debs: Vec<Deb>,
) -> Result<SharedLayer, BuildError> {
    let inputs = inputs("python 1", &debs) + base.layer.packed.descriptor.digest.as_str();
    shared::layer(job, "python", &inputs, contents(packages), || {
        let tree = download(job, packages, &debs)?;
        job.say(format!("compiling the standard library of python {version}"));
        let library = PathBuf::from(format!("usr/lib/python{version}"));
        let compiled = job.staging()?;
        Interpreter::unpacked(version, &[base_dir, tree.path()], tree.path())?.compile(
            None,
            &tree.path().join(&library),
            &Path::new("/").join(&library),
            compiled.path(),
            &|_| true,
        )?;
        let mut layer = LayerBuilder::new(0);
        layer.add_tree(tree.path(), Path::new(""), &is_kept)?;
        layer.add_tree(compiled.path(), &library, &|_| true)?;
        Ok(layer.finish(job.store)?)
    })
}

/// The distribution's pip as a wheel, which python runs as it is: the host needs neither python nor pip, and markers
/// and tags are those of the interpreter that will run the package.
fn pip_wheel(job: &Job, packages: &[Package], debs: Vec<Deb>) -> Result<PathBuf, BuildError> {
    let layer = shared::layer(job, "pip", &inputs("pip 1", &debs), contents(packages), || {
        let tree = download(job, packages, &debs)?;
        let mut layer = LayerBuilder::new(0);
        layer.add_tree(tree.path(), Path::new(""), &is_kept)?;
        Ok(layer.finish(job.store)?)
    })?;
    let dir = shared::unpacked(job.store, &layer.packed)?.join("usr/share/python-wheels");
    let wheel = tree::files(&dir)?.into_iter().find(|file| file.to_string_lossy().starts_with("pip-"));
    let missing = || BuildError::answer(PIP, "it holds no wheel of pip");
    Ok(dir.join(wheel.ok_or_else(missing)?).join("pip"))
}

/// The archive's file name begins with the name of its package.
fn is_of(deb: &Deb, package: &str) -> bool {
    deb.file.split('_').next() == Some(package)
}

/// Everything that decides the bytes of a layer; `recipe` changes with this file.
fn inputs(recipe: &str, debs: &[Deb]) -> String {
    let lines = debs.iter().map(|deb| format!("{} {}\n", deb.file, deb.digest));
    std::iter::once(format!("{recipe}\n")).chain(lines).collect()
}

fn contents(packages: &[Package]) -> String {
    exact(packages).join(" ")
}

fn python_version(packages: &[Package]) -> Result<String, BuildError> {
    let version = |package: &Package| {
        let version = package.name.strip_prefix("python3.")?;
        version.bytes().all(|b| b.is_ascii_digit()).then(|| format!("3.{version}"))
    };
    packages.iter().find_map(version).ok_or_else(|| BuildError::answer("apt-get", "python3 needs no python3.X"))
}

/// Whether a path of a package goes into a layer. Of the documentation the licences stay: they ask for it.
fn is_kept(path: &Path) -> bool {
    if DROPPED.iter().any(|dropped| path == Path::new(dropped)) {
        return false;
    }
    let below = |dir: &str| path.strip_prefix(dir).ok().filter(|rest| !rest.as_os_str().is_empty());
    if let Some(rest) = below("usr/share/doc") {
        return rest.components().count() == 1 || rest.ends_with("copyright");
    }
    below("usr/bin").is_none_or(is_interpreter)
}

/// `python3` or `python3.X`: of the programs only the interpreter is wanted.
fn is_interpreter(name: &Path) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix("python3"));
    rest.is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

/// All certificates, sorted by file name, as update-ca-certificates puts them together.
fn ca_bundle(tree: &Path) -> Result<Vec<u8>, BuildError> {
    let dir = tree.join("usr/share/ca-certificates/mozilla");
    let mut bundle = Vec::new();
    for file in tree::files(&dir)? {
        let path = dir.join(file);
        bundle.extend(fs::read(&path).map_err(BuildError::io(format!("reading {}", path.display())))?);
        if !bundle.ends_with(b"\n") {
            bundle.push(b'\n');
        }
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use distribution::Digest;

    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.into(), version: version.into() }
    }

    #[test]
    fn python_of_the_distribution() {
        let packages = [package("libpython3.11-stdlib", "1"), package("python3", "1"), package("python3.11", "1")];
        assert_eq!(python_version(&packages).unwrap(), "3.11");
        assert!(python_version(&packages[..2]).is_err());
    }

    #[test]
    fn what_is_kept() {
        let kept = [
            "usr",
            "usr/bin",
            "usr/bin/python3",
            "usr/bin/python3.11",
            "usr/share/doc",
            "usr/share/doc/libc6",
            "usr/share/doc/libc6/copyright",
            "usr/share/zoneinfo/Europe/Berlin",
            "lib/x86_64-linux-gnu/libc.so.6",
        ];
        let dropped = [
            "usr/bin/py3compile",
            "usr/bin/pydoc3.11",
            "usr/share/man",
            "usr/share/doc/libc6/changelog.gz",
            "usr/sbin",
            "usr/share/zoneinfo/right",
            "usr/bin/python3.11-config",
        ];
        assert_eq!(kept.iter().filter(|path| !is_kept(Path::new(path))).count(), 0);
        assert_eq!(dropped.iter().filter(|path| is_kept(Path::new(path))).count(), 0);
    }

    #[test]
    fn names_of_packages() {
        for name in ["git", "libstdc++6", "python3.11", "0ad"] {
            assert!(is_package_name(name), "{name}");
        }
        for name in ["", "a", "-o", "Git", "git=1", "git/stable", "a b"] {
            assert!(!is_package_name(name), "{name}");
        }
    }

    #[test]
    fn inputs_hold_every_archive() {
        let deb = |file: &str| Deb { file: file.into(), size: 1, digest: Digest::of(file.as_bytes()) };
        assert_ne!(inputs("x", &[deb("a"), deb("b")]), inputs("x", &[deb("a")]));
        assert_ne!(inputs("x", &[deb("a")]), inputs("y", &[deb("a")]));
    }
}
