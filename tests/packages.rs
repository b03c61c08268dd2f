//! What `packaging/packages` lays out: each installs where nothing of smcp is, and works from there. `packaging/try` does
//! the same with a clean Debian root, and looks whether the same bytes come again, which takes longer.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::image::probe_reference;
use crate::place;
use crate::world::{User, World};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn done<A: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = A>) -> Output {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).current_dir(root()).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|why| panic!("{}: {why}", program.display()));
    assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    output
}

/// The file of the only name in a directory that has this beginning and end.
fn one(directory: &Path, begins: &str, ends: &str) -> PathBuf {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(begins) && name.ends_with(ends)
    };
    let found: Vec<_> = names.filter(fits).collect();
    assert_eq!(found.len(), 1, "{begins}…{ends}: {found:?}");
    found.into_iter().next().unwrap()
}

#[test]
fn each_package_installs_and_runs() {
    let world = World::new(User::of_the_tests());
    let place = world.directory("packaging");
    // Without its debugging information, which no package has.
    let binary = place.join("smcp");
    done("strip", [OsStr::new("-o"), binary.as_os_str(), place::smcp().as_os_str()]);
    let packages = place.join("packages");
    done(root().join("packaging/packages"), [OsStr::new("--binary"), binary.as_os_str(), packages.as_os_str()]);
    done("sh", ["-c", &format!("cd '{}' && sha256sum --check --quiet SHA256SUMS", packages.display())]);
    the_debian_package_is_whole(&packages, &place.join("root"));
    the_list_names_what_is_built_in(&packages);
    the_formula_has_the_archive_alone(&packages);

    let wheel = one(&packages, "smcp-", ".whl");
    let venv = place.join("venv");
    done("/usr/bin/python3", [OsStr::new("-m"), OsStr::new("venv"), venv.as_os_str()]);
    done(
        venv.join("bin/pip"),
        [OsStr::new("--quiet"), OsStr::new("install"), OsStr::new("--no-index"), wheel.as_os_str()],
    );
    works(&world, &venv.join("bin/smcp"));

    let prefix = place.join("npm");
    let archives = [one(&packages, "smcp-0", ".tgz"), one(&packages, "smcp-linux-", ".tgz")];
    let mut words = ["install", "--silent", "--offline", "--omit=optional", "--prefix"].map(OsStr::new).to_vec();
    words.push(prefix.as_os_str());
    words.extend(archives.iter().map(|archive| archive.as_os_str()));
    done("npm", words);
    let by_npm = prefix.join("node_modules/.bin/smcp");
    works(&world, &by_npm);
    a_signal_goes_through(&world, &by_npm);
}

fn the_debian_package_is_whole(packages: &Path, root: &Path) {
    let package = one(packages, "smcp_", ".deb");
    done("dpkg-deb", [OsStr::new("-x"), package.as_os_str(), root.as_os_str()]);
    for file in [
        "usr/bin/smcp",
        "usr/share/man/man1/smcp.1.gz",
        "usr/share/man/man1/smcp-run.1.gz",
        "usr/share/bash-completion/completions/smcp",
        "usr/share/zsh/vendor-completions/_smcp",
        "usr/share/fish/vendor_completions.d/smcp.fish",
        "usr/share/smcp/apparmor",
        "usr/share/doc/smcp/copyright",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    assert_eq!(fs::read_link(root.join("usr/bin/smcp-oci")).unwrap(), Path::new("smcp"));
}

/// Crates that are linked are in the list, with the checksums of the lock; what only tests or builds is not.
fn the_list_names_what_is_built_in(packages: &Path) {
    let text = fs::read_to_string(one(packages, "smcp_", ".cdx.json")).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    let parts = list["components"].as_array().unwrap();
    let has = |name: &str| parts.iter().any(|part| part["name"] == name);
    for name in ["smcp-runtime", "clap", "landlock", "libcontainer", "rustls", "zstd-sys"] {
        assert!(has(name), "{name} is linked");
    }
    for name in ["cc", "proc-macro2", "proptest", "rcgen", "windows-sys"] {
        assert!(!has(name), "{name} is not linked");
    }
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let foreign = parts.iter().filter(|part| !part["name"].as_str().unwrap().starts_with("smcp-"));
    for part in foreign {
        let (name, version) = (part["name"].as_str().unwrap(), part["version"].as_str().unwrap());
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        let rest = lock.split_once(&entry).unwrap_or_else(|| panic!("{name} {version} is not in the lock")).1;
        let checksum = part["hashes"][0]["content"].as_str().unwrap_or_else(|| panic!("{name} has no checksum"));
        assert!(rest.split("[[package]]").next().unwrap().contains(checksum), "{name} {version}");
    }
}

/// What is not there is nowhere to be fetched from, and what is has the checksum of the list.
fn the_formula_has_the_archive_alone(packages: &Path) {
    let formula = fs::read_to_string(packages.join("smcp.rb")).unwrap();
    let archive = one(packages, "smcp_linux_", ".tar.gz");
    let name = archive.file_name().unwrap().to_str().unwrap();
    let sums = fs::read_to_string(packages.join("SHA256SUMS")).unwrap();
    let sum = sums.lines().find_map(|line| line.strip_suffix(name)).expect("the archive is in the list").trim();
    let urls: Vec<_> = formula.lines().map(str::trim).filter(|line| line.starts_with("url ")).collect();
    assert!(urls.len() == 1 && urls[0].ends_with(&format!("/{name}\"")), "{formula}");
    assert!(formula.contains(&format!("sha256 \"{sum}\"")), "{formula}");
}

fn works(world: &World, installed: &Path) {
    assert!(
        world.copy(installed, ["doctor", "--json"]).run().ok().json()["tier"].is_number(),
        "doctor tells of the machine"
    );
    world.copy(installed, ["run", probe_reference(), "exit", "7"]).run().expect(7);
}

/// A client that ends the program of npm ends the server.
fn a_signal_goes_through(world: &World, installed: &Path) {
    let mut run = world.copy(installed, ["run", probe_reference(), "hang"]).start();
    run.await_ready();
    run.signal(Signal::TERM);
    let ended = run.wait();
    ended.check(ended.code() == 143, "SIGTERM came to the server");
}
