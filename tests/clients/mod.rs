//! The clients that people's servers reach the network by, as packages: Python's and programs that it starts in one, Node's in
//! another. Both ask for what they are told and say what came of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use crate::command::Smcp;
use crate::needs;
use crate::outside::Outside;
use crate::patience::BUILD;
use crate::servers;
use crate::world::{User, World};
use crate::{place, probe};

/// A set of clients that is one package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Python, curl, git, openssl, a Go and a Rust program.
    Python,
    /// Node.
    Node,
}

/// What a client said.
#[derive(Debug)]
pub struct Outcome {
    pub client: String,
    pub url: String,
    /// What the server said, or why it was not reached.
    pub said: Result<String, String>,
}

impl Outcome {
    /// Whether it was no fault of the client's, such as a program that is missing.
    pub fn failed_by_the_network(&self) -> bool {
        // What Node's WebSocket says of any failure.
        const WORDS: [&str; 7] = ["resol", "getaddrinfo", "lookup", "not known", "refused", "reset", "typeerror"];
        self.said.as_ref().is_err_and(|why| WORDS.iter().any(|word| why.to_lowercase().contains(word)))
    }
}

impl Clients {
    /// Every client with the URLs that it understands: schemes.
    pub fn all(self) -> &'static [(&'static str, &'static [&'static str])] {
        const BOTH: &[&str] = &["http", "https"];
        match self {
            Clients::Python => &[
                ("urllib", BOTH),
                ("http_client", BOTH),
                ("requests", BOTH),
                ("httpx", BOTH),
                ("urllib3", BOTH),
                ("aiohttp", BOTH),
                ("websockets", BOTH),
                ("curl", BOTH),
                ("git", BOTH),
                // It trusts every certificate.
                ("go", BOTH),
                ("openssl", &["https"]),
                ("socket", &["tcp"]),
                ("rust", &["http", "tcp"]),
            ],
            Clients::Node => &[
                ("fetch", BOTH),
                ("https", BOTH),
                ("undici", BOTH),
                ("axios", BOTH),
                ("got", BOTH),
                ("websocket", BOTH),
                ("net", &["tcp"]),
            ],
        }
    }

    /// Each client with each of its schemes at a host: 80, 443, and 5432 for what speaks TCP alone.
    pub fn asking(self, host: &str) -> Vec<(String, String)> {
        let url = |scheme: &str| match scheme {
            "tcp" => format!("tcp://{host}:5432"),
            scheme => format!("{scheme}://{host}/"),
        };
        let all = self.all().iter();
        all.flat_map(|(client, schemes)| schemes.iter().map(move |scheme| ((*client).to_owned(), url(scheme))))
            .collect()
    }

    /// What they say, caged in a world's near, with the tests' authority granted.
    #[track_caller]
    pub fn ask(self, outside: &Outside, flags: &[&str], asked: &[(String, String)]) -> Vec<Outcome> {
        self.ask_with(outside, flags, asked, |command| command)
    }

    /// The same with more of the environment that smcp runs in.
    #[track_caller]
    pub fn ask_with<'w>(
        self,
        outside: &Outside<'w>,
        flags: &[&str],
        asked: &[(String, String)],
        change: impl FnOnce(Smcp<'w>) -> Smcp<'w>,
    ) -> Vec<Outcome> {
        let authority = outside.authority().display().to_string();
        let trust = format!("{}={authority}", self.trusting());
        let grants = ["--allow-read", &authority, "--env", &trust, "--allow-subprocess"];
        self.ask_trusting_nothing(outside, &[&grants, flags].concat(), asked, change)
    }

    /// The same without a grant that is not among the flags.
    #[track_caller]
    pub fn ask_trusting_nothing<'w>(
        self,
        outside: &Outside<'w>,
        flags: &[&str],
        asked: &[(String, String)],
        change: impl FnOnce(Smcp<'w>) -> Smcp<'w>,
    ) -> Vec<Outcome> {
        self.say(change(outside.smcp(["run"]).args(flags).args([self.package()])), asked)
    }

    /// The same without a cage.
    #[track_caller]
    pub fn ask_bare(self, outside: &Outside, asked: &[(String, String)]) -> Vec<Outcome> {
        let source = source();
        let bare = match self {
            Clients::Python => outside
                .program(Path::new("/usr/bin/python3"), [source.join("clients.py")])
                .env("CLIENTS_SITE", servers::clients_pypi())
                .env("CLIENTS_RUST", probe::path()),
            Clients::Node => outside
                .program(&servers::node(), [source.join("clients.mjs")])
                .env("CLIENTS_MODULES", servers::clients_npm().join("node_modules")),
        };
        self.say(bare.env(self.trusting(), outside.authority()), asked)
    }

    #[track_caller]
    fn say(self, command: Smcp, asked: &[(String, String)]) -> Vec<Outcome> {
        // A dozen clients at once take seconds of a processor: their own patience ends first, and says which.
        let said = command.within(Duration::from_secs(180)).told(&json!(asked).to_string()).ok().json();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let outcomes: Vec<_> = said
            .as_array()
            .into_iter()
            .flatten()
            .map(|outcome| Outcome {
                client: text(&outcome["client"]).expect("a client"),
                url: text(&outcome["url"]).expect("a URL"),
                said: text(&outcome["reached"]).ok_or_else(|| outcome["failed"].to_string()),
            })
            .collect();
        let answered = outcomes.iter().map(|outcome| (&outcome.client, &outcome.url));
        assert!(answered.eq(asked.iter().map(|(client, url)| (client, url))), "an answer to each: {said}");
        outcomes
    }

    /// The variable by which they trust an authority.
    fn trusting(self) -> &'static str {
        match self {
            Clients::Python => "CLIENTS_CA",
            Clients::Node => "NODE_EXTRA_CA_CERTS",
        }
    }

    /// The package's reference, built once a test process.
    pub fn package(self) -> &'static str {
        static PYTHON: OnceLock<String> = OnceLock::new();
        static NODE: OnceLock<String> = OnceLock::new();
        match self {
            Clients::Python => PYTHON.get_or_init(|| build("python", "python3", "clients.py", python)),
            Clients::Node => NODE.get_or_init(|| build("node", "node", "clients.mjs", node)),
        }
    }
}

fn python(directory: &Path) -> &'static [&'static str] {
    copy(&servers::clients_pypi(), &directory.join("site"));
    probe::copy_to(&directory.join("rust"));
    // smcp takes Debian's package for a part of its own build, and leaves the program out; the machine's is of the same release
    // as the package's libraries.
    copy(
        &needs::program("openssl", "openssl").expect("the tests' authority was made by it"),
        &directory.join("openssl"),
    );
    &["--debian", "curl", "--debian", "git", "--debian", "hey"]
}

fn node(directory: &Path) -> &'static [&'static str] {
    copy(&servers::clients_npm().join("node_modules"), &directory.join("node_modules"));
    &[]
}

/// Builds `script` with what `fill` adds to its directory, and gives the reference in a layout that every user may read.
fn build(runtime: &str, program: &str, script: &str, fill: fn(&Path) -> &'static [&'static str]) -> String {
    let world = World::new(User::of_the_tests());
    let directory = world.directory("source");
    fs::copy(source().join(script), directory.join(script)).expect("the world is ours");
    let flags = fill(&directory);
    let recipe = format!(
        "name = \"test/clients-{runtime}\"\nversion = \"1.0.0\"\n\n[entrypoint]\nargs = [\"{program}\", \"/app/{script}\"]\n\n\
         [build]\nruntime = \"{runtime}\"\n"
    );
    world.file("source/smcp.toml", recipe);
    let layout = place::of_this_process("clients").join(runtime);
    let reference = format!("oci-layout:{}:v1", layout.display());
    world
        .smcp(["build", directory.to_str().expect("UTF-8"), "-t", &reference])
        .args(flags)
        .env("MCP_CACHE_DIR", place::directory("build-store"))
        .with_registries()
        .within(BUILD)
        .run()
        .ok();
    for closed in [layout.clone(), layout.join("blobs"), layout.join("blobs/sha256")] {
        fs::set_permissions(closed, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    reference
}

fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp").arg("-r").args([from, to]).status().expect("every system has cp");
    assert!(done.success(), "{}: {done}", from.display());
}

fn source() -> PathBuf {
    // Where every user may read it.
    let text = [&include_bytes!("clients.py")[..], include_bytes!("clients.mjs")].concat();
    place::once(&format!("clients-{:016x}", probe::sum(&text)), |to| {
        fs::create_dir_all(to)?;
        fs::write(to.join("clients.py"), include_bytes!("clients.py"))?;
        fs::write(to.join("clients.mjs"), include_bytes!("clients.mjs"))
    })
}

/// The clients themselves, without smcp's egress.
mod itself {
    use super::*;
    use crate::world::as_each_user;

    as_each_user! {
        bare_every_client_reaches_what_it_is_told_and_is_seen,
        caged_without_a_grant_no_client_sends_anything,
    }

    fn bare_every_client_reaches_what_it_is_told_and_is_seen(world: &World) {
        let there = [("curl", "curl"), ("git", "git"), ("openssl", "openssl"), ("hey", "hey")];
        if there.iter().any(|(program, package)| needs::program(program, package).is_none()) {
            return;
        }
        let Some(outside) = Outside::of(world) else { return };
        for clients in [Clients::Python, Clients::Node] {
            for host in ["allowed.test", "denied.test"] {
                outside.forget();
                let asked = clients.asking(host);
                for outcome in clients.ask_bare(&outside, &asked) {
                    assert!(outcome.said.is_ok(), "{outcome:?}");
                }
                // All of them, and not one twice: a client that tries again would hide one that does not.
                let mut ports: Vec<_> = outside.connections().iter().map(|seen| seen.to.port()).collect();
                let mut expected: Vec<u16> = asked.iter().map(|(_, url)| port(url)).collect();
                expected.extend(asked.iter().filter(|(client, _)| client == "git").map(|(_, url)| port(url)));
                ports.sort_unstable();
                expected.sort_unstable();
                assert_eq!(ports, expected, "git asks twice, all others once: {:?}", outside.connections());
                assert!(outside.was_reached(host, 443));
            }
        }
    }

    fn caged_without_a_grant_no_client_sends_anything(world: &World) {
        let Some(outside) = Outside::of(world) else { return };
        for clients in [Clients::Python, Clients::Node] {
            for outcome in clients.ask(&outside, &[], &clients.asking("allowed.test")) {
                assert!(outcome.failed_by_the_network(), "{outcome:?}");
            }
        }
        assert_eq!((outside.packets(), outside.connections()), (vec![], vec![]));
    }

    fn port(url: &str) -> u16 {
        match url.split_once("://").expect("a URL").0 {
            "http" => 80,
            "https" => 443,
            _ => 5432,
        }
    }
}
