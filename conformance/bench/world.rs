//! The packages, the roots for the peers and the environment, all in one directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{Result, because};

/// The server that is started.
pub const SERVER: &str = "@modelcontextprotocol/server-everything";
/// Variables of the caller that lead to registries; no other is passed on.
const WAYS_OUT: [&str; 8] = [
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
];

/// Everything that a contender starts from.
pub struct World {
    directory: PathBuf,
    /// The package of the program that ends at once.
    pub nothing: Package,
    /// The package of the server.
    pub server: Package,
    /// Version of the server.
    pub version: String,
}

/// A package in smcp's store, and the same files as one directory with the mount points that its peers need.
pub struct Package {
    /// Its name for smcp.
    pub reference: String,
    /// Its tree, as hard links into the store: same files, same page cache.
    pub root: PathBuf,
    /// A directory with a `config.json` of smcp's own plan over that root.
    pub bundle: PathBuf,
    /// The server's command.
    pub command: Vec<String>,
}

impl World {
    /// Builds the packages and warms every cache.
    pub fn furnish(directory: &Path) -> Result<World> {
        let mut world = World {
            directory: directory.to_owned(),
            nothing: Package::empty(),
            server: Package::empty(),
            version: String::new(),
        };
        for name in ["home", "nothing", "npm"] {
            fs::create_dir(world.own(name)).map_err(because("making a directory"))?;
        }
        fs::copy(world.directory.join("bin/true"), world.own("nothing/true")).map_err(because("copying a program"))?;
        let manifest = "name = \"bench/nothing\"\nversion = \"1.0.0\"\ndescription = \"ends at once\"\n\
                        [entrypoint]\nargs = [\"/app/true\"]\n[build]\nbase = \"none\"\n";
        fs::write(world.own("nothing/smcp.toml"), manifest).map_err(because("writing a manifest"))?;
        world.nothing = world.package(&world.own("nothing").display().to_string(), "nothing")?;
        world.server = world.package(&format!("npm:{SERVER}"), "server")?;
        let described = world.server.root.join("app/node_modules").join(SERVER).join("package.json");
        world.version = text(&read_json(&described)?["version"]);
        // Fills npx's cache.
        let warm = ["-y", "-p", &format!("{SERVER}@{}", world.version), "true"].map(String::from);
        done(world.command("npx").args(warm))?;
        Ok(world)
    }

    /// A command in the environment that all contenders get: the caller's home, cache and log are not touched.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(WAYS_OUT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .envs(self.server_env())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("MCP_CACHE_DIR", self.own("cache"))
            .env("MCP_AUDIT_LOG_FILE", self.audit_log())
            .env("XDG_STATE_HOME", self.own("state"))
            .env("npm_config_cache", self.own("npm"))
            .env("npm_config_update_notifier", "false")
            .current_dir(self.home());
        command
    }

    /// What smcp gives a server, for the peers.
    pub fn server_env(&self) -> [(&'static str, String); 6] {
        let user = || "mcp".to_owned();
        [
            ("HOME", self.home().display().to_string()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
            ("LANG", "C.UTF-8".into()),
            ("TERM", "dumb".into()),
            ("USER", user()),
            ("LOGNAME", user()),
        ]
    }

    /// The copy of smcp that is measured.
    pub fn smcp(&self) -> PathBuf {
        self.directory.join("bin/smcp")
    }

    /// The home directory.
    pub fn home(&self) -> PathBuf {
        self.own("home")
    }

    /// The audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.own("home/.smcp/audit.log")
    }

    /// A path in the directory of the user who measures.
    pub fn own(&self, name: &str) -> PathBuf {
        self.directory.join("own").join(name)
    }

    fn package(&self, source: &str, name: &str) -> Result<Package> {
        let reference = format!("oci-layout:{}:{name}", self.own("layout").display());
        done(self.command(self.smcp()).args(["-q", "build", source, "-t", &reference]))?;
        // Unpacks the layers; what the plan names exists from here on.
        done(self.command(self.smcp()).args(["-q", "run", &reference]))?;
        let planned = self
            .command(self.smcp())
            .args(["run", "--dry-run", "--json", &reference])
            .output()
            .map_err(because("smcp run --dry-run"))?;
        let shown: Value = serde_json::from_slice(&planned.stdout).map_err(because("smcp run --dry-run"))?;
        let plan = &shown["plan"];
        let root = self.own(&format!("roots/{name}"));
        fs::create_dir_all(&root).map_err(because(root.display()))?;
        done(self.command("cp").arg("-al").arg(format!("{}/.", text(&plan["tree"]))).arg(&root))?;
        // On a read-only root nobody can make a mount point.
        for mount in plan["mounts"].as_array().into_iter().flatten() {
            let point = root.join(text(&mount["target"]).trim_start_matches('/'));
            fs::create_dir_all(&point).map_err(because(point.display()))?;
        }
        let bundle = self.own(&format!("bundles/{name}"));
        fs::create_dir_all(&bundle).map_err(because(bundle.display()))?;
        let config = self.config(shown["config"].clone(), &root);
        fs::write(bundle.join("config.json"), config.to_string()).map_err(because(bundle.display()))?;
        let command = plan["command"].as_array().into_iter().flatten().map(text).collect();
        Ok(Package { reference, root, bundle, command })
    }

    /// smcp's own plan for another runtime: the root is one directory there, and values of variables are not shown.
    fn config(&self, mut config: Value, root: &Path) -> Value {
        // crun 1.8 takes 1.0.x alone; nothing in the plan is newer.
        config["ociVersion"] = json!("1.0.2");
        config["root"]["path"] = json!(root);
        config["process"]["env"] =
            self.server_env().map(|(name, value)| json!(format!("{name}={value}"))).to_vec().into();
        config
    }
}

impl Package {
    fn empty() -> Package {
        Package { reference: String::new(), root: PathBuf::new(), bundle: PathBuf::new(), command: Vec::new() }
    }
}

fn done(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(because(&shown))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{shown} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

fn read_json(file: &Path) -> Result<Value> {
    serde_json::from_slice(&fs::read(file).map_err(because(file.display()))?).map_err(because(file.display()))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
