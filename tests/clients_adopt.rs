//! `smcp adopt` and `smcp undo`: the files of all clients changed over and back, byte for byte.
//!
//! `fixtures/adopt/before` is a home directory with a file of each client, `after` what adopting makes of it, with `/SMCP` for the
//! path of smcp.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::command::Smcp;
use crate::fake::{Fake, Reply};
use crate::image::{Built, Image};
use crate::needs;
use crate::place;
use crate::stand_in::StandIn;
use crate::world::{World, as_each_user};

as_each_user! {
    all_dialects_there_and_back,
    what_is_adopted_runs,
    one_file_does_not_stop_the_others,
    files_stay_what_they_are,
    nothing_is_changed_without_a_yes,
    a_yes_on_the_terminal,
    undo_loses_nothing,
    the_path_of_smcp_is_one_that_stays,
    files_of_a_project,
    containers_become_cages,
    servers_come_and_go,
}

fn registry() -> StandIn {
    let registry = StandIn::new();
    registry.publish("@acme/hello", "1.0.0");
    registry
}

/// `smcp adopt` by the node of this machine.
fn adopt<'w>(world: &'w World, registry: &StandIn, words: &[&str]) -> Smcp<'w> {
    registry.of(world.smcp(["adopt", "--runtime", "host"]).args(words)).within(needs::FIRST)
}

/// The files of a set of fixtures by their names in the home directory.
fn fixtures(set: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/adopt").join(set);
    let mut found = BTreeMap::new();
    collect(&root, Path::new(""), &mut found);
    found
}

fn collect(root: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(root.join(below)).expect("the fixtures are there") {
        let path = below.join(entry.expect("it can be listed").file_name());
        match root.join(&path).is_dir() {
            true => collect(root, &path, found),
            false => drop(found.insert(path.clone(), fs::read(root.join(&path)).expect("it can be read"))),
        }
    }
}

/// Writes a file of the home directory, with its directories.
fn write(world: &World, name: &Path, bytes: &[u8]) -> PathBuf {
    let name = Path::new("home").join(name);
    let mut above: Vec<&Path> = name.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
    above.reverse();
    for directory in above {
        world.directory(directory.to_str().expect("fixtures are UTF-8"));
    }
    world.file(name.to_str().expect("fixtures are UTF-8"), bytes)
}

/// The bytes and the mode of a file.
fn state(path: &Path) -> (Vec<u8>, u32) {
    let bytes = fs::read(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    (bytes, fs::metadata(path).expect("it is there").permissions().mode() & 0o7777)
}

/// A file with one server in Cursor's form.
fn cursor(command: &str, args: &[&str]) -> String {
    json!({"mcpServers": {"hello": {"command": command, "args": args}}}).to_string()
}

/// A form of a text that editors make of it.
type Form = (&'static str, fn(&[u8]) -> Vec<u8>);

const FORMS: [Form; 3] = [
    ("as it is", |bytes| bytes.to_vec()),
    ("CRLF", |bytes| String::from_utf8_lossy(bytes).replace('\n', "\r\n").into_bytes()),
    ("a byte order mark, no newline at the end", |bytes| {
        [b"\xef\xbb\xbf", String::from_utf8_lossy(bytes).trim_end().as_bytes()].concat()
    }),
];

fn all_dialects_there_and_back(world: &World) {
    if !needs::npm() {
        return;
    }
    let registry = registry();
    let (before, after) = (fixtures("before"), fixtures("after"));
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let smcp = place::smcp().to_str().expect("paths are UTF-8");
    for (form, changed) in FORMS {
        let mut states = BTreeMap::new();
        for (number, (name, bytes)) in before.iter().enumerate() {
            let path = write(world, name, &changed(bytes));
            let mode = [0o600, 0o644, 0o640][number % 3];
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            states.insert(name, state(&path));
        }
        let told = adopt(world, &registry, &["--yes"]).run().ok();
        assert!(!told.text().contains("hunter2") && !told.stderr().contains("hunter2"), "{}", told.text());
        for (name, bytes) in &after {
            let want = String::from_utf8_lossy(bytes).replace("/SMCP", smcp).into_bytes();
            let (now, mode) = state(&world.path("home").join(name));
            let text = String::from_utf8_lossy(&now);
            assert_eq!(text, String::from_utf8_lossy(&changed(&want)), "{}, {form}", name.display());
            assert_eq!(mode, states[name].1, "{}, {form}", name.display());
        }
        adopt(world, &registry, &["--yes"]).run().ok().says(&["there is nothing to change over"]);
        world.smcp(["undo"]).run().ok();
        for (name, state_before) in &states {
            assert_eq!(&state(&world.path("home").join(name)), state_before, "{}, {form}", name.display());
        }
        assert_eq!(world.smcp(["undo"]).run().ok().text(), "there is nothing to undo\n");
    }
    let builds =
        world.audit().iter().filter(|line| line["event"] == "begin" && line["reference"] == "build: npm").count();
    assert_eq!(builds, 2, "each package is made once");
}

/// The words of an entry as its client starts it, with the client's variables.
fn as_the_client_does<'w>(world: &'w World, entry: &Value) -> Smcp<'w> {
    let words = entry["args"].as_array().expect("it has some").iter().map(|word| word.as_str().expect("a text"));
    let mut command = world.program(entry["command"].as_str().expect("it has one"), words);
    for (name, value) in entry["env"].as_object().into_iter().flatten() {
        command = command.env(name, value.as_str().expect("a text"));
    }
    command.within(needs::FIRST)
}

/// The values stay in the client's file, and reach the server by their names.
fn what_is_adopted_runs(world: &World) {
    if !needs::npm() {
        return;
    }
    let registry = StandIn::new();
    let says = "#!/usr/bin/env node\nconst {LOG, ACME_TOKEN} = process.env;\n\
                console.log(JSON.stringify({said: [LOG, ACME_TOKEN, ...process.argv.slice(2), \
                require('fs').readdirSync(process.argv[2]).join(' ')]}));\n";
    registry.publish_as("@acme/lister", "1.0.0", says, |_, _| {});
    world.file("home/.npmrc", format!("registry={}\n", registry.url()));
    world.file("project/a", "");
    let project = world.text("project");
    let entry = json!({"command": "npx", "args": ["-y", "@acme/lister", project],
                       "env": {"LOG": "debug", "ACME_TOKEN": "hunter2-acme"}});
    let path = write(world, Path::new(".cursor/mcp.json"), json!({"mcpServers": {"l": entry}}).to_string().as_bytes());
    let told = adopt(world, &registry, &["--json", "--yes", "cursor"]).run().ok().json();
    let server = &told["files"][0]["servers"][0];
    assert_eq!((&server["name"], &server["state"]), (&json!("l"), &json!("adopted")), "{told}");
    assert!(server["granted"].as_array().unwrap().contains(&json!(format!("{project} read-write: an argument"))));
    let file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let entry = &file["mcpServers"]["l"];
    let words = entry["args"].as_array().unwrap();
    assert!(words.contains(&json!("--secret")) && !words.iter().any(|word| word.as_str().unwrap().contains("hunter2")));
    assert_eq!(entry["env"]["ACME_TOKEN"], "hunter2-acme");
    let calls = registry.calls().len();
    let said = as_the_client_does(world, entry).run().ok().json();
    assert_eq!(said, json!(["debug", "hunter2-acme", project, "a"]));
    assert_eq!(registry.calls().len(), calls, "it was made ahead of its first start");
}

/// What cannot be read, made or written is named and left as it is.
fn one_file_does_not_stop_the_others(world: &World) {
    if !needs::npm() {
        return;
    }
    let registry = registry();
    let broken = "{\n  \"mcpServers\": {\"x\": {\"env\": {\"TOKEN\": \"hunter2\" \"x\": 1}}}\n";
    let torn = write(world, Path::new(".config/Claude/claude_desktop_config.json"), broken.as_bytes());
    let latin = write(world, Path::new(".gemini/settings.json"), b"{\"mcpServers\": {}, \"x\": \"\xe9\"}");
    let toml = write(world, Path::new(".codex/config.toml"), b"[mcp_servers.x]\ncommand = npx hunter2\n");
    let yaml = write(world, Path::new(".config/goose/config.yaml"), b"extensions: {x: [hunter2\n");
    let gone = write(world, Path::new(".lmstudio/mcp.json"), cursor("npx", &["-y", "@acme/no-such"]).as_bytes());
    let good = write(world, Path::new(".cursor/mcp.json"), cursor("npx", &["-y", "@acme/hello"]).as_bytes());
    let left: Vec<_> = [torn, latin, toml, yaml, gone].into_iter().map(|path| (state(&path), path)).collect();
    let told = adopt(world, &registry, &["--yes"]).run().expect(1);
    told.explains(&["4 of the files could not be read", "hello of ", ".lmstudio/mcp.json", "@acme/no-such"]);
    assert!(told.text().contains("line 2: "), "{}", told.text());
    assert!(!told.text().contains("hunter2") && !told.stderr().contains("hunter2"), "{}", told.text());
    for (before, path) in &left {
        assert_eq!(&state(path), before, "{}", path.display());
    }
    assert!(fs::read_to_string(&good).unwrap().contains("npm:@acme/hello"));
    world.smcp(["undo"]).run().ok();
    assert_eq!(fs::read_to_string(&good).unwrap(), cursor("npx", &["-y", "@acme/hello"]));
}

/// Links are followed and stay links; what is read-only or has two names is left alone.
fn files_stay_what_they_are(world: &World) {
    if !needs::npm() {
        return;
    }
    let registry = registry();
    let text = cursor("npx", &["-y", "@acme/hello"]);
    let real = write(world, Path::new("dotfiles/cursor.json"), text.as_bytes());
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).expect("it is ours");
    write(world, Path::new(".cursor/x"), b"");
    symlink("../dotfiles/cursor.json", world.path("home/.cursor/mcp.json")).expect("the world is ours");
    // The same file by another way is one.
    write(world, Path::new(".lmstudio/x"), b"");
    symlink("../dotfiles/cursor.json", world.path("home/.lmstudio/mcp.json")).expect("the world is ours");
    write(world, Path::new(".kiro/settings/x"), b"");
    symlink("nowhere", world.path("home/.kiro/settings/mcp.json")).expect("the world is ours");
    let read_only = write(world, Path::new(".copilot/mcp-config.json"), text.as_bytes());
    fs::set_permissions(&read_only, fs::Permissions::from_mode(0o444)).expect("it is ours");
    let twice = write(world, Path::new(".codeium/windsurf/mcp_config.json"), text.as_bytes());
    fs::hard_link(&twice, world.path("home/.codeium/windsurf/other")).expect("the world is ours");
    let told = adopt(world, &registry, &["--yes"]).run().expect(1);
    told.explains(&["it is read-only", "hard links", "1 of the files could not be read"]);
    assert_eq!(told.stderr().matches("hello of").count(), 2, "{}", told.stderr());
    assert!(told.text().contains("the link leads nowhere"), "{}", told.text());
    let (now, mode) = state(&real);
    assert!(String::from_utf8_lossy(&now).contains("npm:@acme/hello") && mode == 0o600);
    assert!(fs::symlink_metadata(world.path("home/.cursor/mcp.json")).unwrap().is_symlink());
    assert_eq!((state(&read_only), state(&twice).0), ((text.clone().into_bytes(), 0o444), text.clone().into_bytes()));
    let names = fs::read_dir(world.path("home/dotfiles")).unwrap().count();
    assert_eq!(names, 1, "nothing is left beside it");
    world.smcp(["undo"]).run().ok();
    assert_eq!(state(&real), (text.into_bytes(), 0o600));
}

fn nothing_is_changed_without_a_yes(world: &World) {
    let registry = registry();
    let text = cursor("npx", &["-y", "@acme/hello"]);
    let path = write(world, Path::new(".cursor/mcp.json"), text.as_bytes());
    adopt(world, &registry, &[]).run().expect(121).explains(&["no terminal to ask on", "--yes"]);
    let shown = adopt(world, &registry, &["--dry-run"]).run().ok();
    for words in ["every file of yours", "nothing of the network", "- {\"command\"", "+ {\"command\""] {
        assert!(shown.text().contains(words) || shown.text().contains(&words.replace("command", "args")), "{words}");
    }
    let told = adopt(world, &registry, &["--dry-run", "--json", "cursor"]).run().ok().json();
    assert_eq!(told["files"][0]["servers"][0]["state"], "open");
    adopt(world, &registry, &["--yes", "zed"]).run().ok().says(&["nothing to change over"]);
    adopt(world, &registry, &["--json"]).run().expect(2).explains(&["--dry-run or --yes"]);
    adopt(world, &registry, &["no-such"]).run().expect(2).explains(&["no client that smcp knows", "claude-desktop"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(registry.calls().len(), 0, "nobody was asked");
    assert_eq!(world.smcp(["undo"]).run().ok().text(), "there is nothing to undo\n");
}

/// The question is asked on the terminal, after what it is about.
fn a_yes_on_the_terminal(world: &World) {
    let Some(script) = needs::program("script", "bsdutils").filter(|_| needs::npm()) else { return };
    let registry = registry();
    let text = cursor("npx", &["-y", "@acme/hello"]);
    let path = write(world, Path::new(".cursor/mcp.json"), text.as_bytes());
    let line = format!("{} adopt --runtime host cursor", place::smcp().display());
    let answered = |answer: &str| {
        let command = world.program(&script, ["-qec", &line, "/dev/null"]).stdin(format!("{answer}\n"));
        registry.of(command).within(needs::FIRST).run()
    };
    let no = answered("n").expect(121).text();
    let (shown, asked) = (no.find("every file of yours"), no.find("Let smcp start 1 server from now on?"));
    assert!(shown.is_some() && shown < asked, "{no}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    answered("y").ok();
    assert!(fs::read_to_string(&path).unwrap().contains("npm:@acme/hello"));
}

/// A file that somebody changed since is left as it is, until the entries alone are asked for.
fn undo_loses_nothing(world: &World) {
    if !needs::npm() {
        return;
    }
    let registry = registry();
    let before = "{\n  \"mcpServers\": {\n    \"hello\": {\"command\": \"npx\", \"args\": [ \"-y\",  \"@acme/hello\"]}\n  }\n}\n";
    let path = write(world, Path::new(".cursor/mcp.json"), before.as_bytes());
    let other = write(world, Path::new(".lmstudio/mcp.json"), before.as_bytes());
    adopt(world, &registry, &["--yes"]).run().ok();
    let secrets = fs::read_dir(world.path("state/smcp/clients")).unwrap().flatten().map(|entry| entry.path());
    for directory in secrets.filter(|path| path.is_dir()) {
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        for file in fs::read_dir(directory).unwrap().flatten() {
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
        }
    }
    let adopted = fs::read_to_string(&path).unwrap();
    let changed = adopted.replace("  }\n}", "  },\n  \"theme\": \"dark\"\n}");
    fs::write(&path, &changed).expect("the world is ours");
    let told = world.smcp(["undo"]).run().expect(1);
    told.explains(&["1 of the files could not be put back", "smcp undo --entries"]);
    assert!(told.text().contains("it was changed since"), "{}", told.text());
    assert_eq!(fs::read_to_string(&path).unwrap(), changed);
    assert_eq!(fs::read_to_string(&other).unwrap(), before, "the other one is put back");
    world.smcp(["undo", "--entries"]).run().ok();
    let want = before.replace("  }\n}", "  },\n  \"theme\": \"dark\"\n}");
    assert_eq!(fs::read_to_string(&path).unwrap(), want);
    assert_eq!(world.smcp(["undo"]).run().ok().text(), "there is nothing to undo\n");
    // What does not start smcp any more is somebody else's.
    adopt(world, &registry, &["--yes", "cursor"]).run().ok();
    let own = want.replace("npx", "/opt/own");
    fs::write(&path, &own).expect("the world is ours");
    world.smcp(["undo"]).run().expect(1);
    let told = world.smcp(["undo", "--entries"]).run().expect(1);
    told.explains(&["could not be put back", "state/smcp/clients"]);
    assert!(told.text().contains("does not start smcp any more"), "{}", told.text());
    assert_eq!(fs::read_to_string(&path).unwrap(), own);
    // And what was added to what smcp wrote is not smcp's to take out.
    fs::write(&path, adopted.replace("\"npm:@acme/hello\"", "\"npm:@acme/hello\", \"mine\""))
        .expect("the world is ours");
    let told = world.smcp(["undo", "--entries"]).run().expect(1);
    assert!(told.text().contains("was changed since"), "{}", told.text());
    assert!(fs::read_to_string(&path).unwrap().contains("mine"));
    // Somebody put it back by hand: nothing is left to be done.
    fs::write(&path, &want).expect("the world is ours");
    world.smcp(["undo"]).run().ok();
    // What was added to a file that was changed since goes out of it again.
    world.smcp(["client", "add", "cursor", "--name", "more", crate::image::probe_reference()]).run().ok();
    let added = fs::read_to_string(&path).unwrap();
    fs::write(&path, added.replace("dark", "light")).expect("the world is ours");
    world.smcp(["undo"]).run().expect(1);
    world.smcp(["undo", "--entries"]).run().ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), want.replace("dark", "light"));
    fs::write(&path, &want).expect("the world is ours");
    // Changes are undone one after another.
    fs::write(&other, before).expect("the world is ours");
    adopt(world, &registry, &["--yes", "cursor"]).run().ok();
    adopt(world, &registry, &["--yes", "lm-studio"]).run().ok();
    world.smcp(["undo"]).run().ok();
    assert!(fs::read_to_string(&other).unwrap() == before && fs::read_to_string(&path).unwrap() != want);
    world.smcp(["undo"]).run().ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), want);
}

/// A link on PATH that an update leaves where it is.
fn the_path_of_smcp_is_one_that_stays(world: &World) {
    let registry = registry();
    write(world, Path::new(".cursor/mcp.json"), cursor("npx", &["-y", "@acme/hello"]).as_bytes());
    write(world, Path::new(".local/bin/x"), b"");
    let link = world.path("home/.local/bin/smcp");
    symlink(place::smcp(), &link).expect("the world is ours");
    let command = |program: &Path, path: &str| {
        let command = world.program(program, ["adopt", "--dry-run", "--json", "cursor"]).env("PATH", path);
        let told = registry.of(command).run().ok().json();
        told["files"][0]["servers"][0]["words"][0].as_str().expect("it has words").to_owned()
    };
    let (real, link) = (place::smcp().to_str().unwrap(), link.to_str().unwrap().to_owned());
    assert_eq!(command(place::smcp(), "/usr/bin:/bin"), real);
    assert_eq!(command(Path::new(&link), "/usr/bin:/bin"), link);
    assert_eq!(command(place::smcp(), &format!("/usr/bin:{}", world.text("home/.local/bin"))), link);
}

/// What is in the working directory, with a file of variables that the client reads itself.
fn files_of_a_project(world: &World) {
    if !needs::npm() {
        return;
    }
    let registry = registry();
    world.directory("project/.vscode");
    world.file("project/.env", "# of the project\nLOG=debug\nACME_TOKEN=hunter2-acme\n");
    let text = r#"{"servers": {"hello": {"command": "npx", "args": ["-y", "@acme/hello", "${workspaceFolder}"],
        "envFile": "${workspaceFolder}/.env"}, "lost": {"command": "npx", "args": ["x"], "envFile": "${other}/.env"}}}"#;
    let path = world.file("project/.vscode/mcp.json", text);
    let nested = json!({"projects": {"/a": {"mcpServers": {}}, "/b": {"mcpServers": {
        "hello": {"command": "npx", "args": ["-y", "@acme/hello"]}}}}});
    let code = write(world, Path::new(".claude.json"), nested.to_string().as_bytes());
    let told = adopt(world, &registry, &["--yes"]).in_directory(world.path("project")).run().ok();
    let shown = told.text();
    assert!(shown.contains("a file of the project") && shown.contains("lost: left alone: its envFile"), "{shown}");
    assert!(shown.contains("hello (/b)") && !shown.contains("hunter2"), "{shown}");
    let words = r#""args": ["run", "--env", "LOG", "--secret", "ACME_TOKEN", "--runtime", "host", "npm:@acme/hello", "${workspaceFolder}"]"#;
    assert!(fs::read_to_string(&path).unwrap().contains(words), "{}", fs::read_to_string(&path).unwrap());
    assert!(fs::read_to_string(&code).unwrap().contains("npm:@acme/hello"));
    world.smcp(["undo"]).run().ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert_eq!(fs::read_to_string(&code).unwrap(), nested.to_string());
}

/// A registry of one image.
pub fn registry_of(built: Built) -> Fake {
    Fake::serve(move |call| {
        let blobs = [&built.manifest, &built.config, &built.layer];
        let name = call.path.rsplit('/').next().unwrap_or_default();
        match blobs.iter().find(|blob| blob.digest == name) {
            Some(blob) => Reply::new(200, blob.bytes.clone()).header("content-type", blob.media_type),
            None if call.path.ends_with("/manifests/v1") => {
                Reply::new(200, built.manifest.bytes.clone()).header("content-type", built.manifest.media_type)
            }
            None if call.path == "/v2/" => Reply::new(200, "{}"),
            None => Reply::new(404, "{}"),
        }
    })
}

/// Directories and variables of `docker run` become those of the cage.
fn containers_become_cages(world: &World) {
    let fake = registry_of(Image::probe().build());
    let project = world.text("project");
    world.file("project/a", "x");
    let volume = format!("{project}:/work:ro");
    let image = format!("{}/test/probe:v1", fake.host);
    let args = ["run", "-i", "--rm", "-e", "LOG", "-v", volume.as_str(), image.as_str(), "list", "/work"];
    let socket = ["run", "-i", "-v", "/var/run/docker.sock:/var/run/docker.sock", image.as_str()];
    let file = json!({"mcpServers": {
        "probe": {"command": "docker", "args": args, "env": {"LOG": "debug"}},
        "socket": {"command": "docker", "args": socket},
    }});
    let path = write(world, Path::new(".cursor/mcp.json"), file.to_string().as_bytes());
    let told = world.smcp(["adopt", "--yes", "--json"]).run().ok().json();
    let [probe, socket] = [0, 1].map(|at| told["files"][0]["servers"][at].clone());
    assert_eq!((&probe["state"], &socket["state"]), (&json!("adopted"), &json!("left")), "{told}");
    assert!(socket["why"].as_str().unwrap().contains("docker's socket"), "{socket}");
    let today = probe["today"].as_array().unwrap();
    assert!(today.contains(&json!(format!("{project} read-only, at /work"))), "{today:?}");
    let after: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let entry = &after["mcpServers"]["probe"];
    let mount = format!("{project}:/work:ro");
    assert_eq!(entry["args"], json!(["run", "--env", "LOG", "--mount", mount, image, "list", "/work"]));
    assert_eq!(after["mcpServers"]["socket"], file["mcpServers"]["socket"]);
    assert_eq!(as_the_client_does(world, entry).run().ok().json(), json!(["a"]));
    world.smcp(["undo"]).run().ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), file.to_string());
}

/// `smcp client`: what all clients start, and one that comes and goes.
fn servers_come_and_go(world: &World) {
    let reference = crate::image::probe_reference();
    let path = world.path("home/.cursor/mcp.json");
    let project = world.text("project");
    let words = ["--name", "p", reference, "--", "--allow-read", &project, "--", "args", "x y"];
    world.smcp(["client", "add", "cursor"]).args(words).run().ok();
    let (bytes, mode) = state(&path);
    assert_eq!(mode, 0o600);
    let file: Value = serde_json::from_slice(&bytes).unwrap();
    let entry = &file["mcpServers"]["p"];
    assert_eq!(entry["args"], json!(["run", "--allow-read", project, reference, "args", "x y"]));
    assert_eq!(as_the_client_does(world, entry).run().ok().json(), json!(["x y"]));
    world
        .smcp(["client", "add", "cursor", "--name", "p", reference])
        .run()
        .expect(119)
        .explains(&["a server p already"]);
    world.smcp(["client", "add", "cursor", "--name", "q", "oci-layout:/no/such:v1"]).run().expect(120);
    world
        .smcp(["client", "add", "cursor", reference, "--", "--no-such", "--"])
        .run()
        .expect(2)
        .explains(&["--no-such"]);
    world.smcp(["client", "add", "no-such", reference]).run().expect(2).explains(&["no client"]);
    let own = cursor("npx", &["-y", "x", "--api-key", "hunter2"]);
    write(world, Path::new(".gemini/settings.json"), own.as_bytes());
    let listed = world.smcp(["client", "ls"]).run().ok();
    let shown = listed.text();
    assert!(
        shown.contains(&format!("p: caged, {reference}")) && shown.contains("hello: not caged, npx -y x"),
        "{shown}"
    );
    assert!(!shown.contains("hunter2"), "{shown}");
    let told = world.smcp(["client", "ls", "--json", "cursor"]).run().ok().json();
    assert_eq!(told["files"][0]["servers"][0]["caged"], true, "{told}");
    world.smcp(["client", "rm", "cursor", "p"]).run().ok();
    let emptied: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(emptied, json!({"mcpServers": {}}));
    world.smcp(["client", "rm", "cursor", "p"]).run().expect(120).explains(&["no server p"]);
    world.smcp(["undo"]).run().ok();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    world.smcp(["undo"]).run().ok();
    assert!(!path.exists(), "it was not there before");
    write(world, Path::new(".codex/config.toml"), b"x = [\n");
    world.smcp(["client", "ls"]).run().expect(1).explains(&["1 of the files could not be read"]);
}
