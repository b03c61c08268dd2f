//! Eleven real servers on node, Python and .NET, six of npm and five of PyPI, each built, pushed, pulled and run; an outside judge,
//! the MCP inspector, must see no difference from the bare server, byte for byte, and of a package with a low score what is
//! documented and nothing else.

use std::fs;
use std::sync::OnceLock;
use std::thread;

use crate::outside::Outside;
use crate::patience::BUILD;
use crate::place;
use crate::registry;
use crate::servers::{
    AZURE_VERSION, CALCULATOR_VERSION, CONTEXT7_VERSION, DUCKDUCKGO_VERSION, NPM_VERSION, PYPI_VERSION, bare_azure,
    bare_npm, bare_pypi, bare_pypi_v1, bare_script, inspect,
};
use crate::signed::Signed;
use crate::world::{User, World, as_each_user, at_each_tier};

/// What every server is asked, apart from its own calls.
const LISTS: [&[&str]; 3] = [&["tools/list"], &["resources/list"], &["prompts/list"]];

// One of each language, and one that starts programs; what else differs by user and tier has tests of its own.
at_each_tier! {
    everything,
    time,
    git,
}

as_each_user! {
    filesystem,
    t7_a_real_server_lists_what_it_listed_before,
}

/// A scan's lists are those of the next scan and of a run, whose tools reach the client under `block`.
fn t7_a_real_server_lists_what_it_listed_before(world: &World) {
    let reference = everything_package();
    let scan = || world.smcp(["scan", "--json", &reference]).run();
    let first = scan().ok().json();
    let names = |kind: &str| {
        let items = first["lists"][kind]["items"].as_array().expect("a list").clone();
        items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert!(["echo", "get-sum"].iter().all(|tool| names("tools").iter().any(|name| name == tool)), "{first}");
    assert!(!names("prompts").is_empty() && !names("resources").is_empty(), "{first}");
    let file = world.text("home/expected.json");
    world.smcp(["test", "--write-expect", &file, &reference]).run().ok();
    let call = ["--call", "echo", "--args", r#"{"message":"hello"}"#];
    let tested = world.smcp(["test", "--expect", &file]).args(call).args([&reference]).run().ok();
    tested.check(tested.text().contains("passed     call of \"echo\""), "the tool was called");
    let both_eras = world.smcp(["scan", "--json", &time_package()]).run().ok().json();
    assert_eq!((&both_eras["handshake"], &both_eras["protocol"]), (&"server/discover".into(), &"2026-07-28".into()));
    world.smcp(["accept", &reference]).run().ok();
    let again = scan().ok().json();
    for kind in ["tools", "prompts", "resources", "resourceTemplates"] {
        let (before, now) = (&first["lists"][kind], &again["lists"][kind]);
        assert_eq!((&before["digest"], &now["state"]), (&now["digest"], &"accepted".into()), "{kind}");
    }
    let asked = concat!(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
        "\n",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        "\n",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        "\n",
    );
    let run = world.smcp(["run", &reference]).env("MCP_POLICY_TOOLS_PIN", "block").stdin(asked).run();
    run.check(run.text().contains(r#""name":"echo""#), "the tools were expected");
}

/// The package of the server that has everything.
pub fn everything_package() -> String {
    static PACKAGE: OnceLock<String> = OnceLock::new();
    published(&PACKAGE, "everything", &format!("npm:@modelcontextprotocol/server-everything@{NPM_VERSION}"), &[])
}

/// The package of a server on the second generation of the Python SDK, which speaks both eras of the protocol.
pub fn time_package() -> String {
    static PACKAGE: OnceLock<String> = OnceLock::new();
    published(&PACKAGE, "time", &format!("pypi:mcp-server-time=={PYPI_VERSION}"), &[])
}

fn everything(world: &World) {
    let server = Server::that_asks_for_nothing(bare_npm("everything"), everything_package());
    server.is_the_same_caged(
        world,
        &[
            &["tools/call", "--tool-name", "echo", "--tool-arg", "message=grüße <&> \"x\""],
            &["tools/call", "--tool-name", "get-sum", "--tool-arg", "a=2", "b=40"],
            &["tools/call", "--tool-name", "get-tiny-image"],
            &["prompts/get", "--prompt-name", "simple-prompt"],
            &["tools/call", "--tool-name", "no-such-tool"],
        ],
    );
}

fn filesystem(world: &World) {
    static PACKAGE: OnceLock<String> = OnceLock::new();
    let granted = world.directory("project");
    world.file("project/a.txt", "first\nsecond\n");
    world.directory("project/sub");
    world.file("project/sub/b.bin", [0, 159, 146, 150]);
    let granted = granted.to_str().unwrap().to_owned();
    let server = Server {
        around: vec![],
        bare: bare_npm("filesystem"),
        flags: vec!["--allow-write".into(), granted.clone()],
        reference: published(
            &PACKAGE,
            "filesystem",
            &format!("npm:@modelcontextprotocol/server-filesystem@{NPM_VERSION}"),
            &[],
        ),
        arguments: vec![granted.clone()],
    };
    let path = |name: &str| format!("path={granted}/{name}");
    server.is_the_same_caged(
        world,
        &[
            &["tools/call", "--tool-name", "list_directory", "--tool-arg", &path("")],
            &["tools/call", "--tool-name", "read_text_file", "--tool-arg", &path("a.txt")],
            &["tools/call", "--tool-name", "read_media_file", "--tool-arg", &path("sub/b.bin")],
            &["tools/call", "--tool-name", "read_text_file", "--tool-arg", "path=/etc/passwd"],
        ],
    );
    // One after the other, as each changes the same file.
    for command in server.both(world) {
        inspect(
            world,
            &command,
            &["tools/call", "--tool-name", "write_file", "--tool-arg", &path("new.txt"), "content=by the server"],
        )
        .ok();
        let made = world.path("project/new.txt");
        assert_eq!(fs::read_to_string(&made).unwrap(), "by the server");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(&made).unwrap().uid(), world.user().id(), "the file belongs to the caller");
        fs::remove_file(&made).unwrap();
    }
}

#[test]
fn memory() {
    let world = &World::new(User::of_the_tests());
    static PACKAGE: OnceLock<String> = OnceLock::new();
    let graph = world.text("project/graph.json");
    let env = format!("MEMORY_FILE_PATH={graph}");
    let mut bare = vec!["/usr/bin/env".to_owned(), env.clone()];
    bare.extend(bare_npm("memory"));
    let server = Server {
        around: vec![],
        bare,
        flags: vec!["--allow-write".into(), world.text("project"), "--env".into(), env],
        reference: published(
            &PACKAGE,
            "memory",
            &format!("npm:@modelcontextprotocol/server-memory@{NPM_VERSION}"),
            &[],
        ),
        arguments: vec![],
    };
    server.is_the_same_caged(world, &[]);
    let entities = r#"entities=[{"name":"smcp","entityType":"program","observations":["cages servers"]}]"#;
    let told: Vec<_> = server
        .both(world)
        .iter()
        .map(|command| {
            let create =
                inspect(world, command, &["tools/call", "--tool-name", "create_entities", "--tool-arg", entities]).ok();
            let read = inspect(world, command, &["tools/call", "--tool-name", "read_graph"]).ok();
            let kept = fs::read_to_string(&graph).unwrap();
            fs::remove_file(&graph).unwrap();
            (create.text(), read.text(), kept)
        })
        .collect();
    assert_eq!(told[0], told[1]);
    assert!(told[1].1.contains("cages servers"));
}

fn time(world: &World) {
    time_as(world, time_package());
}

/// The package brings no interpreter: the one of this machine is mounted read-only, and the audit log says so.
#[test]
fn time_by_the_hosts_python() {
    let world = &World::new(User::of_the_tests());
    static PACKAGE: OnceLock<String> = OnceLock::new();
    let source = format!("pypi:mcp-server-time=={PYPI_VERSION}");
    time_as(world, published(&PACKAGE, "time-host", &source, &["--runtime", "host"]));
    let begun = world.audit().into_iter().find(|line| line["event"] == "begin").expect("it ran");
    let interpreter = begun["interpreter"]["host"].as_str().expect("it is the host's");
    assert!(interpreter.contains("/python3."), "{interpreter}");
}

fn time_as(world: &World, reference: String) {
    let arguments = ["--local-timezone", "Europe/Berlin"].map(String::from).to_vec();
    let server = Server { around: vec![], bare: bare_pypi("mcp_server_time"), flags: vec![], reference, arguments };
    // The answer has today's date: at midnight both are asked again.
    let convert: &[&str] = &[
        "tools/call",
        "--tool-name",
        "convert_time",
        "--tool-arg",
        "source_timezone=UTC",
        "time=12:00",
        "target_timezone=Asia/Tokyo",
    ];
    server.is_the_same_caged(world, &[convert]);
}

fn git(world: &World) {
    static PACKAGE: OnceLock<String> = OnceLock::new();
    repository(world);
    let repository = world.text("project");
    let server = Server {
        around: vec![],
        bare: bare_pypi("mcp_server_git"),
        flags: ["--mount", &format!("{repository}:rw"), "--allow-subprocess"].map(String::from).to_vec(),
        reference: published(&PACKAGE, "git", &format!("pypi:mcp-server-git=={PYPI_VERSION}"), &["--debian", "git"]),
        arguments: vec!["--repository".into(), repository.clone()],
    };
    let path = format!("repo_path={repository}");
    server.is_the_same_caged(
        world,
        &[
            &["tools/call", "--tool-name", "git_status", "--tool-arg", &path],
            &["tools/call", "--tool-name", "git_log", "--tool-arg", &path],
            &["tools/call", "--tool-name", "git_show", "--tool-arg", &path, "revision=HEAD"],
        ],
    );
}

/// A program of .NET in one file, under the default limits: its collector and its compiler at run time reserve much more than
/// they use, and look for the limits themselves. As everywhere it needs ICU, or to be told not to, and OpenSSL of the
/// system: the package of its headers depends on it, and has one name in all releases.
/// It reads itself by /proc/self/exe, which is the package's loader at tier 1.
#[test]
fn dotnet() {
    let world = &World::new(User::of_the_tests());
    static PACKAGE: OnceLock<String> = OnceLock::new();
    let source = format!("npm:@azure/mcp-linux-x64@{AZURE_VERSION}");
    let env = ["DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1", "AZURE_MCP_COLLECT_TELEMETRY=false"].map(String::from);
    let server = Server {
        around: vec![],
        bare: [vec!["/usr/bin/env".to_owned()], env.to_vec(), vec![bare_azure()]].concat(),
        flags: env.into_iter().flat_map(|variable| ["--env".to_owned(), variable]).collect(),
        reference: published(&PACKAGE, "azure", &source, &["--debian", "libssl-dev"]),
        arguments: ["server", "start"].map(String::from).to_vec(),
    };
    server.is_the_same_caged(world, &[]);
}

/// A server that calls out, in a world with an internet of its own: one grant, and it says what it says bare; none, and nothing
/// of it leaves.
#[test]
fn fetch() {
    let world = &World::new(User::of_the_tests());
    static PACKAGE: OnceLock<String> = OnceLock::new();
    let Some(outside) = Outside::of(world) else { return };
    let source = format!("pypi:mcp-server-fetch=={PYPI_VERSION}");
    let mut server = Server {
        around: outside.words(),
        bare: bare_pypi("mcp_server_fetch"),
        flags: ["--allow-net", "plain.test:80"].map(String::from).to_vec(),
        reference: published(&PACKAGE, "fetch", &source, &[]),
        arguments: Vec::new(),
    };
    let call = |site: &'static str| ["tools/call", "--tool-name", "fetch", "--tool-arg", site];
    let [granted, denied] = ["url=http://plain.test/page", "url=http://denied.test/page"].map(call);
    server.is_the_same_caged(world, &[&granted]);
    let [_, caged] = server.both(world);
    let said = inspect(world, &caged, &granted).ok();
    said.check(said.text().contains("far 20.3.0.1 plain.test"), "what the site says was expected");
    outside.forget();
    let refused = |caged: &[String], call: &[&str]| {
        let said = inspect(world, caged, call);
        said.check(said.text().contains("Failed to fetch"), "no connection was expected");
    };
    refused(&caged, &denied);
    server.flags.clear();
    let [_, caged] = server.both(world);
    refused(&caged, &granted);
    outside.nothing_went_to("denied.test");
    assert_eq!((outside.packets(), outside.connections()), (vec![], vec![]));
}

#[test]
fn sequential_thinking() {
    let source = format!("npm:@modelcontextprotocol/server-sequential-thinking@{NPM_VERSION}");
    let thought = ["thought=one", "nextThoughtNeeded=false", "thoughtNumber=1", "totalThoughts=1"];
    let call = [&["tools/call", "--tool-name", "sequentialthinking", "--tool-arg"][..], &thought].concat();
    asks_for_nothing(bare_npm("sequential-thinking"), "sequential-thinking", &source, &[&call]);
}

/// Of the TypeScript SDK's second generation.
#[test]
fn context7() {
    let source = format!("npm:@upstash/context7-mcp@{CONTEXT7_VERSION}");
    asks_for_nothing(bare_script("@upstash/context7-mcp/dist/index.js"), "context7", &source, &[]);
}

/// Of the Python SDK's first generation.
#[test]
fn calculator() {
    let source = format!("pypi:mcp-server-calculator=={CALCULATOR_VERSION}");
    let call: &[&str] = &["tools/call", "--tool-name", "calculate", "--tool-arg", "expression=6*7"];
    asks_for_nothing(bare_pypi_v1("mcp_server_calculator"), "calculator", &source, &[call]);
}

#[test]
fn duckduckgo() {
    let source = format!("pypi:duckduckgo-mcp-server=={DUCKDUCKGO_VERSION}");
    asks_for_nothing(bare_pypi("duckduckgo_mcp_server.server"), "duckduckgo", &source, &[]);
}

/// As a user alone: what differs by user and tier are cages, which other servers try.
#[track_caller]
fn asks_for_nothing(bare: Vec<String>, name: &str, source: &str, calls: &[&[&str]]) {
    let server = Server::that_asks_for_nothing(bare, published(&OnceLock::new(), name, source, &[]));
    server.is_the_same_caged(&World::new(User::Ordinary), calls);
}

#[test]
fn everything_with_a_low_score() {
    let server = Server::that_asks_for_nothing(bare_npm("everything"), everything_package());
    server.is_warned_of_and_nothing_else(&["tools/call", "--tool-name", "echo", "--tool-arg", "message=a"]);
}

#[test]
fn time_with_a_low_score() {
    let mut server = Server::that_asks_for_nothing(bare_pypi("mcp_server_time"), time_package());
    server.arguments = ["--local-timezone", "Europe/Berlin"].map(String::from).to_vec();
    let convert = ["source_timezone=UTC", "time=12:00", "target_timezone=Asia/Tokyo"];
    let call = [&["tools/call", "--tool-name", "convert_time", "--tool-arg"][..], &convert].concat();
    server.is_warned_of_and_nothing_else(&call);
}

struct Server {
    /// Words before both command lines: where they run.
    around: Vec<String>,
    /// Command line without smcp.
    bare: Vec<String>,
    /// What `smcp run` grants it.
    flags: Vec<String>,
    /// Its package.
    reference: String,
    /// Its own arguments.
    arguments: Vec<String>,
}

impl Server {
    /// One that works without any grant.
    fn that_asks_for_nothing(bare: Vec<String>, reference: String) -> Server {
        Server { around: vec![], bare, flags: vec![], reference, arguments: vec![] }
    }

    /// The command lines without and with a cage.
    fn both(&self, world: &World) -> [Vec<String>; 2] {
        let bare = [self.around.clone(), self.bare.clone(), self.arguments.clone()].concat();
        let mut smcp = self.around.clone();
        smcp.extend(world.wrapper().iter().map(|word| (*word).to_owned()));
        smcp.extend([place::smcp().to_str().unwrap().to_owned(), "run".into()]);
        let caged = [smcp, self.flags.clone(), vec![self.reference.clone()], self.arguments.clone()].concat();
        [bare, caged]
    }

    /// Gives its package a score below the threshold, by a certifier whom the user's policy trusts, and compares every answer.
    #[track_caller]
    fn is_warned_of_and_nothing_else(&self, call: &[&str]) {
        let world = &World::new(User::Ordinary);
        let certified = Signed::of(world, &self.reference, "certified");
        certified.score(61);
        let [bare, mut caged] = self.both(world);
        let reference = caged.iter().position(|word| *word == self.reference).expect("it is run by its reference");
        caged[reference].clone_from(&certified.reference);
        let both = |call: &[&str]| {
            let [without, with] = [&bare, &caged].map(|server| inspect(world, server, call).ok());
            let plain = String::from_utf8(without.stdout().to_owned()).expect("UTF-8");
            (plain, String::from_utf8(with.stdout().to_owned()).expect("UTF-8"))
        };
        let (plain, listed) = both(&["tools/list"]);
        let text = listed.split_once("\"[smcp] ").and_then(|(_, rest)| rest.split_once("\\n\\n")).map(|(text, _)| text);
        let text = format!("[smcp] {}", text.expect("a warning in a description"));
        assert!(text.contains("scores 61 of 100, below 80") && text.ends_with("text follows."), "{text}");
        let tools = plain.matches("\"inputSchema\":").count();
        assert!(tools > 0 && listed.matches(&text).count() == tools, "{tools} tools: {listed}");
        assert_eq!(listed.replace(&format!("{text}\\n\\n"), ""), plain);
        let (plain, called) = both(call);
        let (before, block) =
            ("\"content\": [\n", format!("    {{\n      \"type\": \"text\",\n      \"text\": \"{text}\"\n    }},\n"));
        assert_eq!(called, plain.replacen(before, &format!("{before}{block}"), 1));
        assert_ne!(called, plain);
        for call in [&["resources/list"], &["prompts/list"]] {
            let [without, with] = [&bare, &caged].map(|server| inspect(world, server, call));
            with.check(with.code() == without.code(), &format!("{call:?}: exit {} was expected", without.code()));
            assert_eq!(String::from_utf8_lossy(with.stdout()), String::from_utf8_lossy(without.stdout()));
        }
    }

    /// Pulls it into this world's empty store and compares every answer.
    #[track_caller]
    fn is_the_same_caged(&self, world: &World, calls: &[&[&str]]) {
        world.smcp(["pull", &self.reference]).run().ok();
        let [bare, cage] = self.both(world);
        let calls: Vec<&[&str]> = LISTS.iter().copied().chain(calls.iter().copied()).collect();
        thread::scope(|scope| {
            let questions: Vec<_> = calls
                .iter()
                .map(|call| {
                    let (bare, cage) = (&bare, &cage);
                    scope.spawn(move || {
                        let ask = |server| inspect(world, server, call);
                        let (mut without, mut with) = (ask(bare), ask(cage));
                        if without.stdout() != with.stdout() {
                            // Midnight may have passed between the two; a real difference stays.
                            (without, with) = (ask(bare), ask(cage));
                        }
                        with.check(
                            with.code() == without.code(),
                            &format!("{call:?}: exit {} was expected", without.code()),
                        );
                        let same = with.stdout() == without.stdout();
                        with.check(same, &format!("{call:?}: bare, the answer was\n{}", without.text()));
                        let word = if without.code() == 0 { "{" } else { "error" };
                        without.check(
                            without.text().contains(word) || without.stderr().contains(word),
                            "an answer was expected",
                        );
                    })
                })
                .collect();
            for question in questions {
                if let Err(panic) = question.join() {
                    std::panic::resume_unwind(panic);
                }
            }
        });
    }
}

/// Builds a package and pushes it, once a test process; its reference.
fn published(package: &OnceLock<String>, name: &str, source: &str, flags: &[&str]) -> String {
    let publish = || {
        let registry = registry::address().expect("docker-registry is installed");
        let version = source.rsplit(['@', '=']).next().expect("sources have versions");
        let reference = format!("{registry}/mcp/{name}:{version}");
        let world = World::new(User::of_the_tests());
        // One store for all: the base and the runtimes are fetched once a machine.
        let smcp = |arguments: &[&str]| world.smcp(arguments).env("MCP_CACHE_DIR", place::directory("build-store"));
        smcp(&["build", source, "-t", &reference]).args(flags).with_registries().within(BUILD).run().ok();
        smcp(&["push", &reference]).run().ok();
        reference
    };
    package.get_or_init(publish).clone()
}

/// A repository whose commits have the same ids on every machine.
fn repository(world: &World) {
    let git = |arguments: &[&str]| {
        let done = world
            .program("/usr/bin/git", ["-C", &world.text("project")])
            .args(arguments)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_NAME", "A. U. Thor")
            .env("GIT_AUTHOR_EMAIL", "author@example.com")
            .env("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
            .env("GIT_COMMITTER_NAME", "C. O. Mitter")
            .env("GIT_COMMITTER_EMAIL", "committer@example.com")
            .env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z");
        done.run().ok();
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    world.file("project/README", "first\n");
    git(&["add", "README"]);
    git(&["commit", "--quiet", "--message", "First"]);
    world.file("project/README", "first\nsecond\n");
    git(&["commit", "--quiet", "--all", "--message", "Second"]);
    world.file("project/untracked", "");
}
