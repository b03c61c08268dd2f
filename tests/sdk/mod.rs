//! Clients made with the SDKs that people use, of both generations, TypeScript's, Python's and Rust's: what each makes of an answer is asked of
//! itself, without smcp and with it, and must differ by the warning alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde_json::{Value, json};

use crate::command::Ended;
use crate::hub;
use crate::real_servers::{everything_package, time_package};
use crate::servers::{bare_npm, bare_pypi, node, npm_modules, pypi, pypi_v1};
use crate::world::{User, World};
use crate::{place, probe};

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sdk {
    TypeScript1,
    /// It starts a server twice, and ends the first, where it probes.
    TypeScript2,
    Python1,
    Python2,
    Rust,
}

use Sdk::{Python1, Python2, Rust, TypeScript1, TypeScript2};

/// What a client does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `initialize`.
    Legacy,
    /// `server/discover`, and `initialize` where that fails.
    Auto,
}

impl Sdk {
    /// Those of the first generation know nothing of 2026-07-28.
    fn modes(self) -> &'static [Mode] {
        match self {
            TypeScript1 | Python1 => &[Mode::Legacy],
            TypeScript2 | Python2 | Rust => &[Mode::Legacy, Mode::Auto],
        }
    }

    /// Connects to a server, lists its tools and calls one.
    fn asks(self, world: &World, mode: Mode, call: &Value, server: &[String]) -> Ended {
        let mode = if mode == Mode::Auto { "auto" } else { "legacy" };
        let call = call.to_string();
        // A checkout may be closed to the world's user.
        let script = |name: &str| world.file(&format!("project/{name}"), fs::read(own_file(name)).expect("it is ours"));
        let command = match self {
            TypeScript1 | TypeScript2 => {
                let generation = if self == TypeScript1 { "v1" } else { "v2" };
                let script = script("typescript.mjs");
                let modules = npm_modules();
                world.program(node(), [script.as_os_str(), modules.as_os_str(), generation.as_ref(), mode.as_ref()])
            }
            Python1 | Python2 => {
                let site = if self == Python1 { pypi_v1() } else { pypi() };
                let python = world.program("/usr/bin/python3", [script("python.py")]).args([mode]);
                python.env("PYTHONPATH", site)
            }
            Rust => world.program(rust(), [mode]),
        };
        command.args([&call]).args(server).run()
    }
}

fn own_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/sdk").join(name)
}

/// The client of the Rust SDK, built once a machine from its own lock.
fn rust() -> PathBuf {
    let text = [&include_bytes!("rust/src/main.rs")[..], include_bytes!("rust/Cargo.lock")].concat();
    place::once(&format!("sdk-{:016x}", probe::sum(&text)), |to| {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let target = place::directory("sdk-target");
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--locked", "--manifest-path"]).arg(own_file("rust/Cargo.toml"));
        let done = build.arg("--target-dir").arg(&target).status()?;
        if !done.success() {
            return Err(io::Error::other(format!("cargo: {done}")));
        }
        fs::copy(target.join("debug/smcp-test-client"), to).map(drop)
    })
}

/// What a server answers to its client's first request, of both eras; `OWN` stands for the member that has its instructions.
const INITIALIZE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}OWN}"#;
const DISCOVER: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"logging":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}OWN}"#;
const TOOLS: &str = r#"{"resultType":"complete","tools":[{"name":"a","description":"Does.","inputSchema":{"type":"object"}},{"name":"b","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}"#;
const CALLED: &str = r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#;

/// Ways to answer a handshake, by which a server might hide the warning: RESULT is what one of the two above comes to, with `OWN` as
/// its instructions; `ID` is the request's.
const WAYS: [(&str, &str, &str); 9] = [
    ("plain", r#","instructions":"Own.""#, r#"{"jsonrpc":"2.0","id":ID,"result":RESULT}\n"#),
    ("none", "", r#"{"jsonrpc":"2.0","id":ID,"result":RESULT}\n"#),
    ("null", r#","instructions":null"#, r#"{"jsonrpc":"2.0","id":ID,"result":RESULT}\n"#),
    ("escaped", r#","\u0069nstructions":"Own.""#, r#"{"jsonrpc":"2.0","id":ID,"r\u0065sult":RESULT}\n"#),
    (
        "two instructions",
        r#","instructions":"First.","instructions":"Last.""#,
        r#"{"jsonrpc":"2.0","id":ID,"result":RESULT}\n"#,
    ),
    (
        "two results",
        r#","instructions":"Own.""#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"capabilities":{}},"result":RESULT}\n"#,
    ),
    ("two ids", r#","instructions":"Own.""#, r#"{"jsonrpc":"2.0","id":77,"result":RESULT,"id":ID}\n"#),
    (
        "a decoy and two answers",
        r#","instructions":"Own.""#,
        r#"{"jsonrpc":"2.0","id":77,"result":RESULT}\n{"jsonrpc":"2.0","id":ID,"result":RESULT}\n{"jsonrpc":"2.0","id":ID,"result":RESULT}\n"#,
    ),
    ("a megabyte", r#","instructions":"MEGABYTE""#, r#"{"jsonrpc":"2.0","id":ID,"result":RESULT}\n"#),
];

/// The arguments of a probe that is such a server.
fn serving(own: &str, answer: &str) -> Vec<String> {
    let plain = WAYS[0].2;
    let rules = [
        ("initialize", answer, INITIALIZE.replace("OWN", own)),
        ("server/discover", answer, DISCOVER.replace("OWN", own)),
        ("tools/list", plain, TOOLS.into()),
        ("tools/call", plain, CALLED.into()),
    ];
    let rule = |(method, answer, result): &(&str, &str, String)| {
        [(*method).to_owned(), answer.replace("RESULT", result).replace("ID", "\\i").replace("MEGABYTE", "\\m")]
    };
    ["serve".to_owned()].into_iter().chain(rules.iter().flat_map(rule)).collect()
}

fn is_warned_whatever_the_server_answers(sdk: Sdk) {
    let world = World::new(User::Ordinary);
    let hub = hub::scored(2, Some(61));
    world.directory("home/.smcp");
    world.file("home/.smcp/config.yaml", format!("registry_url: http://{}\n", hub.host));
    let call = json!({"name": "a", "arguments": {}});
    for (way, own, answer) in WAYS {
        for mode in sdk.modes() {
            let probe = probe::path().to_str().expect("UTF-8").to_owned();
            let smcp = [smcp(), "run".into(), "acme/tool".into()];
            let ask = |server: &[String]| sdk.asks(&world, *mode, &call, &[server, &serving(own, answer)].concat());
            let (bare, caged) = (ask(&[probe]), ask(&smcp));
            let text = world.warning();
            if way == "plain" {
                let version = if *mode == Mode::Auto { "2026-07-28" } else { "2025-11-25" };
                bare.check(bare.json()["version"] == version, &format!("{version} was expected"));
            }
            if bare.code() == 0 {
                differ_by_the_warning(&bare.json(), &caged.ok(), &text, Added { lists: true, note: true });
            } else if caged.code() == 0 {
                // A `null` that this client refuses is a text now.
                caged.check(caged.json()["instructions"] == text.as_str(), &format!("{way}: the warning was expected"));
            }
        }
    }
}

/// Where a warning is due beside the instructions.
#[derive(Clone, Copy)]
struct Added {
    /// In descriptions and the first result, as for a low score.
    lists: bool,
    /// As a notification, which an older client gets of servers alone that have declared some, a newer one on request.
    note: bool,
}

#[track_caller]
fn differ_by_the_warning(bare: &Value, caged: &Ended, text: &str, added: Added) {
    let lead = |own: &Value| match own.as_str() {
        None | Some("") => json!(text),
        Some(own) => json!(format!("{text}\n\n{own}")),
    };
    let mut expected = bare.clone();
    expected["instructions"] = lead(&bare["instructions"]);
    if added.lists {
        let tools = expected["tools"].as_object_mut().expect("tools");
        tools.values_mut().for_each(|description| *description = lead(description));
        expected["blocks"].as_array_mut().expect("blocks").insert(0, json!(text));
    }
    if added.note {
        expected["notified"].as_array_mut().expect("a list").insert(0, json!(text));
    }
    caged.check(caged.json() == expected, &format!("{expected:#} was expected"));
}

/// Servers as people run them, of both eras.
fn is_warned_of_real_servers(sdk: Sdk) {
    let mode = *sdk.modes().last().expect("each has one");
    let [echo, convert] = [
        json!({"name": "echo", "arguments": {"message": "grüße"}}),
        json!({"name": "convert_time", "arguments": {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}}),
    ];
    let servers = [
        (bare_npm("everything"), everything_package(), echo, true),
        (bare_pypi("mcp_server_time"), time_package(), convert, false),
    ];
    for (bare, package, call, logs) in servers {
        let world = World::new(User::Ordinary);
        world.smcp(["pull", &package]).run().ok();
        let ask = |server: &[String]| sdk.asks(&world, mode, &call, server).ok();
        let smcp = [smcp(), "run".into(), package];
        let (mut without, mut caged) = (ask(&bare).json(), ask(&smcp));
        if without["blocks"] != caged.json()["blocks"] {
            // An answer has today's date, and midnight may have passed between the two; a real difference stays.
            (without, caged) = (ask(&bare).json(), ask(&smcp));
        }
        let note = logs || without["version"] == "2026-07-28";
        differ_by_the_warning(&without, &caged, &world.warning(), Added { lists: false, note });
    }
}

fn smcp() -> String {
    place::smcp().to_str().expect("UTF-8").to_owned()
}

/// Both tests of a client.
macro_rules! each_sdk {
    ($($name:ident: $sdk:ident),+ $(,)?) => { $(
        mod $name {
            #[test]
            fn is_warned_whatever_the_server_answers() {
                super::is_warned_whatever_the_server_answers(super::$sdk);
            }

            #[test]
            fn is_warned_of_real_servers() {
                super::is_warned_of_real_servers(super::$sdk);
            }
        }
    )+ };
}

each_sdk! {
    typescript_1: TypeScript1,
    typescript_2: TypeScript2,
    python_1: Python1,
    python_2: Python2,
    rust_3: Rust,
}
