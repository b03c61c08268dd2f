//! A python that compiles and installs: the one of a package's own layers, or the host's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, io};

use distribution::Platform;

use super::caged::{Cage, Caged, text};
use super::error::BuildError;
use super::tool::Tool;
use super::tree;
use super::uv::pythons;

/// How to start a python, and its version.
pub(super) struct Interpreter {
    /// `X.Y`
    pub(super) version: String,
    command: Vec<OsString>,
    home: Option<PathBuf>,
    pip: Vec<OsString>,
    /// The directories that it needs; none for the host's.
    roots: Vec<PathBuf>,
    /// It is of somebody else's image, and runs in a cage alone where there is one.
    is_foreign: bool,
}

/// Compiles the files that stdin, or a file of the last argument, names (NUL between them), each relative to a root, into another directory. Hash-based
/// and unchecked: a read-only root can never write a cache, and times are not kept. What does not compile (templates,
/// code for other versions) is left as it is, as pip does.
const COMPILE: &str = r#"
import importlib.util, os, py_compile, sys
root, prefix, out, *names = sys.argv[1:]
names = open(names[0], "rb") if names else sys.stdin.buffer
for name in map(os.fsdecode, filter(None, names.read().split(b"\0"))):
    try:
        py_compile.compile(
            os.path.join(root, name),
            os.path.join(out, importlib.util.cache_from_source(name)),
            os.path.join(prefix, name),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except py_compile.PyCompileError:
        pass
"#;

/// The file that names what is compiled, for a python in a cage.
const LIST: &str = ".smcp-compiled";

impl Interpreter {
    /// The python in `tree`, started by its own loader with the libraries of `roots`: it runs on any host.
    pub(super) fn unpacked(version: &str, roots: &[&Path], tree: &Path) -> Result<Self, BuildError> {
        let (triplet, loader) = loader()?;
        // A tree that is not merged yet has libraries in both places.
        let places = |root: &&Path| ["usr/lib", "lib"].map(|lib| root.join(lib).join(triplet));
        let places: Vec<PathBuf> = roots.iter().flat_map(places).filter(|place| place.is_dir()).collect();
        let loader = places.iter().map(|place| place.join(loader)).find(|loader| loader.is_file());
        let missing = || BuildError::answer("libc6", "it holds no dynamic loader");
        let libraries = std::env::join_paths(&places).map_err(|e| BuildError::answer("store", e.to_string()))?;
        let python = tree.join(format!("usr/bin/python{version}"));
        let command = vec![loader.ok_or_else(missing)?.into(), "--library-path".into(), libraries, python.into()];
        Ok(Self {
            version: version.into(),
            command,
            home: Some(tree.join("usr")),
            pip: Vec::new(),
            roots: roots.iter().copied().map(Path::to_owned).collect(),
            is_foreign: false,
        })
    }

    /// The python in a directory of an image's tree, started by the image's own loader (glibc's).
    pub(super) fn of_image(version: &str, tree: &Path, dir: &Path) -> Result<Self, BuildError> {
        let prefix = tree.join(dir.parent().unwrap_or(dir));
        let own = Self::unpacked(version, &[tree], tree)?;
        let mut command = own.command;
        // Its own library may lie beside it.
        if let Some(libraries) = command.get_mut(2) {
            libraries.push(":");
            libraries.push(prefix.join("lib"));
        }
        command.pop();
        command.push(tree.join(dir).join(format!("python{version}")).into());
        Ok(Self { command, home: Some(prefix), is_foreign: true, ..own })
    }

    /// The host's `python3` and its pip; where PATH has none, uv's newest.
    pub(super) fn host() -> Result<Self, BuildError> {
        const VERSION: [&str; 2] = ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"];
        let mut program = OsString::from("python3");
        let version = match Tool::new(&program).args(VERSION).output() {
            Err(missing @ BuildError::ToolMissing { .. }) => {
                let Some(newest) = pythons().into_iter().next() else { return Err(missing) };
                program = newest.join("python3").into();
                Tool::new(&program).args(VERSION).output()?
            }
            asked => asked?,
        };
        let host = Self {
            version: version.trim().into(),
            command: vec![program],
            home: None,
            pip: vec!["-m".into(), "pip".into()],
            roots: Vec::new(),
            is_foreign: false,
        };
        host.pip().args(["--version"]).output()?;
        Ok(host)
    }

    /// With the pip in this wheel.
    pub(super) fn with_pip(self, pip: PathBuf) -> Self {
        Self { pip: vec![pip.into()], ..self }
    }

    pub(super) fn pip<'a>(&self) -> Tool<'a> {
        // What these two would ask for contradicts installing into a directory.
        self.start().args(&self.pip).env("PIP_USER", "0").env("PIP_REQUIRE_VIRTUALENV", "0")
    }

    /// Its pip in a cage.
    pub(super) fn caged(&self, caged: Caged) -> Result<Caged, BuildError> {
        let mut caged = self.caged_alone(caged)?;
        if !self.roots.is_empty() {
            // pip as a wheel: a path within that file.
            caged.reads.extend(self.pip.iter().filter_map(|pip| Path::new(pip).parent()).map(Path::to_owned));
        }
        for word in &self.pip {
            caged.command.push(text(Path::new(word))?);
        }
        Ok(caged)
    }

    /// It in a cage.
    fn caged_alone(&self, mut caged: Caged) -> Result<Caged, BuildError> {
        let mut command = self.command.clone();
        if self.roots.is_empty() {
            // A version manager's `python3` is a script; the python itself knows where it is.
            let asked =
                self.start().args(["-c", "import os, sys; print(os.path.realpath(sys.executable))"]).output()?;
            let program = PathBuf::from(asked.trim_end());
            let dir = program.parent().unwrap_or(&program);
            let name = program.file_name().unwrap_or_default();
            caged.interpreter = Some((text(Path::new(name))?, text(dir)?));
            command = vec![name.into()];
        } else {
            caged.reads.extend(self.roots.clone());
        }
        for word in &command {
            caged.command.push(text(Path::new(word))?);
        }
        for (name, value) in self.env() {
            caged.env.push((name.into(), text(Path::new(&value))?));
        }
        Ok(caged)
    }

    /// Compiles the sources below `root` that `keep` keeps, as they will be found at `prefix`, into the same places
    /// below `out`. A python of another image does so in a cage, where there is one.
    pub(super) fn compile(
        &self,
        cage: Option<&Cage<'_>>,
        root: &Path,
        prefix: &Path,
        out: &Path,
        keep: &dyn Fn(&Path) -> bool,
    ) -> Result<(), BuildError> {
        let mut names = Vec::new();
        for (path, kind) in tree::entries(root, keep)? {
            if kind.is_file() && path.extension().is_some_and(|end| end == "py") {
                names.extend_from_slice(path.as_os_str().as_encoded_bytes());
                names.push(0);
            }
        }
        let places = [root, prefix, out];
        let (start, list) = (self.start(), out.join(LIST));
        let tool = match cage.filter(|_| self.is_foreign) {
            None => start.dir(out).input(names),
            Some(cage) => {
                // The end of its input would be the end of it.
                fs::write(&list, names).map_err(BuildError::io("writing a list of files"))?;
                let caged = Caged {
                    purpose: "build: python".into(),
                    dir: out.into(),
                    reads: vec![root.into()],
                    ..Caged::default()
                };
                start.within(cage, self.caged_alone(caged)?)
            }
        };
        let places = places.into_iter().chain(list.exists().then_some(list.as_path()));
        let done = tool.args(["-S", "-W", "ignore", "-c", COMPILE]).args(places).output();
        match fs::remove_file(&list) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => Err(BuildError::io("removing a list of files")(why)),
            _ => done.map(drop),
        }
    }

    fn start<'a>(&self) -> Tool<'a> {
        let tool = Tool::new(&self.command[0]).args(&self.command[1..]);
        self.env().into_iter().fold(tool, |tool, (name, value)| tool.env(name, value))
    }

    fn env(&self) -> Vec<(&'static str, OsString)> {
        // The order of sets ends up in compiled files; nothing may be written beside the sources of a shared layer.
        let names = ["PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONUTF8"];
        let mut env: Vec<(_, OsString)> = names.map(|name| (name, "1".into())).into();
        env.push(("PYTHONHASHSEED", "0".into()));
        env.extend(self.home.iter().map(|home| ("PYTHONHOME", home.into())));
        env
    }
}

/// Debian's name of this architecture's libraries, and the dynamic loader among them.
fn loader() -> Result<(&'static str, &'static str), BuildError> {
    match Platform::host().architecture.as_str() {
        "amd64" => Ok(("x86_64-linux-gnu", "ld-linux-x86-64.so.2")),
        "arm64" => Ok(("aarch64-linux-gnu", "ld-linux-aarch64.so.1")),
        other => Err(BuildError::Architecture { what: "python", architecture: other.into() }),
    }
}
