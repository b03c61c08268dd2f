//! Real builds from npm, PyPI and a directory. They need the network's registries, npm, apt-get and dpkg-deb; the
//! layers that packages share are built once and stay in cargo's target directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bundle::build::{self, BuildError, BuildOptions, Built};
use bundle::{ImageConfig, LABEL, Manifest, SERVER_NAME_LABEL};
use distribution::{Digest, ImageManifest, Mode, Network, Reference, Store, media_type};
use tempfile::TempDir;

/// One store for all tests, used by one at a time so that shared layers are built once.
struct Workshop {
    store: Store,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Workshop {
    fn open() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let store = Store::open(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-store")).unwrap();
        Self { store, _turn: turn }
    }

    fn try_build(&self, source: &str, options: &BuildOptions) -> Result<(Built, String), BuildError> {
        let said = Mutex::new(String::new());
        let say = |line: &str| said.lock().unwrap().push_str(&format!("{line}\n"));
        let built = build::build(&source.parse::<Reference>().unwrap(), options, &self.store, None, &say)?;
        Ok((built, said.into_inner().unwrap()))
    }

    fn build(&self, source: &str, options: &BuildOptions) -> (Built, String) {
        self.try_build(source, options)
            .unwrap_or_else(|error| panic!("{source}: {error}\nhint: {}", error.hint().unwrap_or_default()))
    }

    fn image(&self, built: &Built) -> (ImageManifest, ImageConfig) {
        let read = |d| self.store.blob(d).unwrap().unwrap().bytes().unwrap();
        let image = ImageManifest::parse(&read(&built.descriptor)).unwrap();
        let config = ImageConfig::parse(&read(&image.config)).unwrap();
        assert_eq!(image.artifact_type.as_deref(), Some(media_type::SMCP_PACKAGE));
        assert_eq!(image.layers.len(), config.rootfs.diff_ids.len());
        let label = Manifest::parse(config.config.labels[LABEL].as_bytes()).unwrap();
        assert_eq!(label, built.manifest);
        assert_eq!(config.config.entrypoint, built.manifest.entrypoint.args);
        (image, config)
    }

    /// Every path of the topmost layer with the content of its file.
    fn application(&self, built: &Built) -> BTreeMap<String, Vec<u8>> {
        let (image, _) = self.image(built);
        let blob = self.store.blob(image.layers.last().unwrap()).unwrap().unwrap();
        let mut archive = tar::Archive::new(zstd::Decoder::new(blob.reader()).unwrap());
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            std::io::copy(&mut entry, &mut bytes).unwrap();
            (entry.path().unwrap().display().to_string(), bytes)
        };
        archive.entries().unwrap().map(read).collect()
    }

    /// Pushes into an OCI layout; skopeo must read it, and find in its layers what the configuration says.
    fn read_by_others(&self, built: &Built) {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let target = format!("oci-layout:{}:v1", at("layout")).parse().unwrap();
        distribution::push(&self.store, &built.descriptor, &target, &Network::new("localhost:1", Mode::Offline))
            .unwrap();
        let image = format!("oci:{}:v1", at("layout"));
        let Some(inspected) = other("skopeo", &["inspect", &image]) else { return };
        assert!(inspected.contains(LABEL), "{inspected}");
        other("skopeo", &["copy", "--dest-decompress", &image, &format!("dir:{}", at("unpacked"))]);
        let (_, config) = self.image(built);
        for diff_id in &config.rootfs.diff_ids {
            let layer = fs::read(dir.path().join("unpacked").join(diff_id.hex())).unwrap();
            assert_eq!(Digest::of(layer), *diff_id);
        }
    }
}

/// What another program prints; a missing one is a failure in CI and is skipped elsewhere.
fn other(program: &str, args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).output() {
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {args:?}: {}\n{stderr}", output.status);
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "{program}: {error}");
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

#[test]
fn npm() {
    let workshop = Workshop::open();
    let source = "npm:@modelcontextprotocol/server-memory";
    let (first, _) = workshop.build(source, &BuildOptions::default());
    let (second, said) = workshop.build(source, &BuildOptions::default());
    assert_eq!(first.descriptor, second.descriptor);
    assert!(said.contains("base: reusing") && said.contains("node: reusing"), "{said}");

    let manifest = &first.manifest;
    assert_eq!(manifest.name, "modelcontextprotocol/server-memory");
    let program = "/app/node_modules/@modelcontextprotocol/server-memory/dist/index.js";
    assert_eq!(manifest.entrypoint.args, ["node", program]);
    let from = manifest.source.as_ref().unwrap();
    assert_eq!(from.reference, format!("@modelcontextprotocol/server-memory@{}", manifest.version));
    assert!(from.integrity.as_ref().unwrap().starts_with("sha512-"));

    let (image, config) = workshop.image(&first);
    assert_eq!(image.layers.len(), 3);
    assert_eq!(image.annotations[build::DOWNLOADS], "host");
    assert!(image.annotations[build::RUNTIME].starts_with("node=24."), "{:?}", image.annotations);
    assert!(image.annotations[build::BASE].contains("libc6="), "{:?}", image.annotations);
    assert_eq!(image.annotations["org.opencontainers.image.version"], manifest.version);
    assert_eq!(config.created, None);
    assert_eq!(config.config.labels[SERVER_NAME_LABEL], "io.github.modelcontextprotocol/server-memory");

    let files = workshop.application(&first);
    assert!(files.contains_key(program.trim_start_matches('/')));
    assert!(!files.contains_key("app/node_modules/.package-lock.json"));
    assert!(!String::from_utf8_lossy(&files["app/package-lock.json"]).contains("resolved"));
    workshop.read_by_others(&first);
}

#[test]
fn npm_that_cannot_be_built() {
    let workshop = Workshop::open();
    let failed = |source: &str, options: &BuildOptions| workshop.try_build(source, options).unwrap_err();
    let options = BuildOptions { bin: Some("no-such".into()), ..BuildOptions::default() };
    let error = failed("npm:@modelcontextprotocol/server-memory", &options);
    assert_eq!(error.hint().as_deref(), Some("choose one with --bin: mcp-server-memory"));
    let error = failed("npm:@modelcontextprotocol/server-memory@0.0.0-no-such", &BuildOptions::default());
    assert!(matches!(&error, BuildError::Tool { program, .. } if program == "npm"), "{error}");
    assert!(error.to_string().contains("No matching version"), "{error}");
    let error = failed("localhost:1/acme/hello", &BuildOptions::default());
    assert!(matches!(error, BuildError::NoSource(_)), "{error}");
    let left = fs::read_dir(workshop.store.root().join("tmp")).unwrap().count();
    assert_eq!(left, 0, "staging directories are removed");
}

#[test]
fn pypi() {
    let workshop = Workshop::open();
    let (first, _) = workshop.build("pypi:mcp-server-time", &BuildOptions::default());
    let (second, said) = workshop.build("pypi:mcp-server-time", &BuildOptions::default());
    assert_eq!(first.descriptor, second.descriptor);
    assert!(said.contains("base: reusing") && said.contains("python: reusing"), "{said}");

    let manifest = &first.manifest;
    assert_eq!(manifest.name, "mcp-server-time");
    let [python, script] = &manifest.entrypoint.args[..] else { panic!("{:?}", manifest.entrypoint) };
    assert!(python.starts_with("/usr/bin/python3."), "{python}");
    assert_eq!(script, "/usr/local/bin/mcp-server-time");
    let from = manifest.source.as_ref().unwrap();
    assert_eq!(from.reference, format!("mcp-server-time=={}", manifest.version));
    assert!(from.integrity.as_ref().unwrap().starts_with("sha256:"));

    let files = workshop.application(&first);
    let version = python.trim_start_matches("/usr/bin/python");
    let site = format!("usr/local/lib/python{version}/dist-packages/mcp_server_time");
    let compiled = format!("{site}/__pycache__/server.cpython-{}.pyc", version.replace('.', ""));
    assert!(files.contains_key(&format!("{site}/server.py")));
    // Flags 0b01: hash-based, unchecked.
    assert_eq!(files[&compiled][4..8], [1, 0, 0, 0]);
    let machine = workshop.store.root().as_os_str().as_encoded_bytes();
    for (path, bytes) in &files {
        assert!(!bytes.windows(machine.len()).any(|window| window == machine), "{path} holds a path of this machine");
    }
    workshop.read_by_others(&first);
}

#[test]
fn shared_layers_are_reproducible() {
    let workshop = Workshop::open();
    let dir = python_server();
    let source = dir.path().display().to_string();
    let (first, _) = workshop.build(&source, &BuildOptions::default());
    let (again, said) = workshop.build(&source, &BuildOptions { refresh: true, ..BuildOptions::default() });
    assert!(said.contains("base: made") && said.contains("python: made"), "{said}");
    assert_eq!(first.descriptor, again.descriptor);
}

#[test]
fn host_runtime() {
    let workshop = Workshop::open();
    let options = BuildOptions { runtime: distribution::Runtime::Host, ..BuildOptions::default() };
    let (built, _) = workshop.build(&python_server().path().display().to_string(), &options);
    let (image, _) = workshop.image(&built);
    assert_eq!(image.layers.len(), 1);
    assert_eq!(image.annotations[build::RUNTIME], "host");
    let interpreter = built.manifest.runtime.as_ref().map(|runtime| runtime.interpreter.as_str());
    assert!(interpreter.is_some_and(|name| name.starts_with("python3.")), "{interpreter:?}");
}

fn python_server() -> TempDir {
    directory(&[
        (
            "smcp.toml",
            "name = \"acme/py\"\nversion = \"1\"\n[entrypoint]\nargs = [\"python3\", \"/app/main.py\"]\n[build]\nruntime = \"python\"\n",
        ),
        ("main.py", "print({'a', 'b', 'c'})\n"),
        ("broken.py", "def\n"),
    ])
}

fn directory(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

const STATIC: &str = "name = \"acme/hello\"\nversion = \"1.2.3\"\n\n[entrypoint]\nargs = [\"/app/run\"]\n\n\
    [build]\nbase = \"none\"\nexclude = [\"**/*.map\"]\n";

#[test]
fn directories() {
    let workshop = Workshop::open();
    let files = [("smcp.toml", STATIC), ("run", "x"), (".env", "SECRET=1"), ("lib/a.map", ""), ("lib/a", "a")];
    let built = |mode: u32, epoch: Option<u64>| {
        let dir = directory(&files);
        fs::set_permissions(dir.path().join("run"), fs::Permissions::from_mode(mode)).unwrap();
        symlink("lib/a", dir.path().join("link")).unwrap();
        let options = BuildOptions { source_date_epoch: epoch, ..BuildOptions::default() };
        workshop.build(&dir.path().display().to_string(), &options).0
    };
    let first = built(0o755, None);
    assert_eq!(first.descriptor, built(0o750, None).descriptor);
    assert_ne!(first.descriptor, built(0o644, None).descriptor);
    let paths: Vec<String> = workshop.application(&first).into_keys().collect();
    assert_eq!(paths, ["app/", "app/lib/", "app/lib/a", "app/link", "app/run"]);
    workshop.read_by_others(&first);

    let dated = built(0o755, Some(1_700_000_000));
    let (image, config) = workshop.image(&dated);
    assert_eq!(config.created.as_deref(), Some("2023-11-14T22:13:20Z"));
    assert_eq!(image.annotations["org.opencontainers.image.created"], "2023-11-14T22:13:20Z");
}

#[test]
fn directories_that_cannot_be_built() {
    let workshop = Workshop::open();
    let with = |from: &str, to: &str| STATIC.replace(from, to);
    let table = [
        (with("base = \"none\"", "bass = \"none\""), "smcp.toml:8: build: unknown field `bass`"),
        (with("\"none\"", "\"alpine\""), "smcp.toml:8: build: unknown variant `alpine`, expected `debian` or `none`"),
        (with("[build]", "[build]\nruntime = \"node\""), "smcp.toml:9: build.base: node and python need the base"),
        (with("/app/run", "/app/rum"), "smcp.toml:5: entrypoint.args: /app/rum is not among the packed files"),
        (with("version = \"1.2.3\"", "version = 1"), "smcp.toml:2: version: must be a text"),
        (with("version", "versio"), "smcp.toml: version: is missing"),
        (with("[build]", "[limits]\nmemory = \"512MB\"\n[build]"), "smcp.toml:8: limits.memory: "),
        (with("[build]", "[build"), "smcp.toml:7: "),
    ];
    for (text, want) in table {
        let dir = directory(&[("smcp.toml", &text), ("run", "x")]);
        let error = workshop.try_build(&dir.path().display().to_string(), &BuildOptions::default()).unwrap_err();
        let said = error.to_string().replace(&format!("{}/", dir.path().display()), "");
        assert!(said.starts_with(want), "{said:?} should start with {want:?}");
    }
    let dir = directory(&[("smcp.toml", STATIC), ("run", "x")]);
    symlink("/etc/passwd", dir.path().join("link")).unwrap();
    let error = workshop.try_build(&dir.path().display().to_string(), &BuildOptions::default()).unwrap_err();
    assert!(error.to_string().ends_with("link: it is a link to /etc/passwd, which is not packed"), "{error}");
    let error = workshop.try_build("./no-such-directory", &BuildOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "./no-such-directory/smcp.toml: not found");
}
