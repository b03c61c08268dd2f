//! What is wrong with the input is said, has its exit code, leaves the store as it was, and has its end entry.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;

use crate::image::{Built, Image};
use crate::liar::{self, Lie};
use crate::world::{User, World, as_each_user};

/// The case: a reference and what must come of it.
struct Bad<'a> {
    reference: &'a str,
    code: i32,
    /// Words of the error.
    says: &'a [&'a str],
}

impl Bad<'_> {
    /// Runs it by `run`, and by `pull`, which must agree.
    #[track_caller]
    fn is_refused(&self, world: &World) {
        let Bad { reference, code, says } = self;
        world.smcp(["cache", "ls"]).run().ok();
        let before = world.store_listing();
        let ended = world.smcp(["run", reference]).run().expect(*code);
        ended.explains(says);
        ended.check(ended.stdout().is_empty(), "nothing was expected on stdout");
        let end = world.last_end();
        ended.check(end["exit"] == *code, "an end entry with the exit code was expected");
        ended.check(
            end["cause"].is_string() && end["error"].is_string(),
            "an end entry with cause and error was expected",
        );
        let pulled = world.smcp(["pull", reference]).run().expect(*code);
        pulled.check(pulled.stderr() == ended.stderr(), "the error that `run` gives was expected");
        assert_eq!(world.store_listing(), before, "the store is as before");
    }
}

as_each_user! {
    a_malformed_reference,
    a_missing_registry,
    a_missing_package,
    a_missing_layout,
    a_wrong_digest,
    another_manifest_than_was_pinned,
    a_truncated_blob,
    an_endless_blob,
    a_layout_that_lies,
    a_blob_that_changed_in_the_store,
    a_manifest_with_an_unknown_permission,
    a_manifest_that_is_none,
    an_architecture_that_does_not_fit,
    an_archive_that_reaches_outside,
    a_grant_that_stands_in_the_way,
    a_flag_that_is_wrong_is_named,
    a_path_that_is_no_text,
    a_program_that_is_not_there_is_told,
    a_configuration_that_is_wrong,
    a_flag_beyond_the_policy,
    a_request_for_a_destination_that_is_none,
}

fn a_malformed_reference(world: &World) {
    for reference in [
        "Acme/Hello",
        "acme//hello",
        "acme/hello@",
        "acme/hello:",
        "acme/hello@sha256:12",
        "acme/../hello",
        "npm:",
        "pypi:a b",
        "oci-layout:",
        "acme/hello@sha256:ABCDEF",
        "https://acme.example/hello",
        "acme/hello world",
    ] {
        Bad { reference, code: 2, says: &[reference] }.is_refused(world);
    }
}

fn a_missing_registry(world: &World) {
    // A port that was free a moment ago; nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let reference = format!("localhost:{port}/test/probe:v1");
    Bad { reference: &reference, code: 120, says: &[&format!("localhost:{port}"), "refused"] }.is_refused(world);
}

fn a_missing_package(world: &World) {
    let liar = liar::serve(&Image::probe().build(), Lie::NoManifest);
    let reference = format!("{}:v9", liar.name);
    Bad { reference: &reference, code: 120, says: &["test/probe", "v9"] }.is_refused(world);
}

fn a_missing_layout(world: &World) {
    let absent = world.text("absent");
    Bad { reference: &format!("oci-layout:{absent}:v1"), code: 120, says: &[&absent] }.is_refused(world);
    let image = Image::probe().build();
    image.write(&world.directory("image"));
    Bad { reference: &format!("oci-layout:{}:v2", world.text("image")), code: 120, says: &["v2"] }.is_refused(world);
}

/// A registry whose blobs are not what it says (A8).
fn a_wrong_digest(world: &World) {
    let image = Image::probe().build();
    for (lie, digest) in [(Lie::OtherLayer, &image.layer.digest), (Lie::OtherConfig, &image.config.digest)] {
        let reference = format!("{}:v1", liar::serve(&image, lie).name);
        // A store of its own each: what another case fetched rightly is not asked for again.
        let world = World::new(world.user());
        Bad { reference: &reference, code: 122, says: &[digest] }.is_refused(&world);
    }
}

/// A registry that answers a pinned digest with another manifest.
fn another_manifest_than_was_pinned(world: &World) {
    let image = Image::probe().build();
    let reference = format!("{}@{}", liar::serve(&image, Lie::OtherManifest).name, image.manifest.digest);
    Bad { reference: &reference, code: 122, says: &[&image.manifest.digest] }.is_refused(world);
}

fn a_truncated_blob(world: &World) {
    let image = Image::probe().build();
    let reference = format!("{}:v1", liar::serve(&image, Lie::ShortLayer).name);
    Bad { reference: &reference, code: 122, says: &[&image.layer.digest, &image.layer.bytes.len().to_string()] }
        .is_refused(world);
    let reference = format!("{}:v1", liar::serve(&image, Lie::CutLayer).name);
    let ended = world.smcp(["pull", &reference]).run();
    ended.check([120, 122].contains(&ended.code()), "the network's code, or verification's, was expected");
    ended.explains(&[&image.layer.digest]);
}

/// One that never ends is not read for ever.
fn an_endless_blob(world: &World) {
    let image = Image::probe().build();
    let reference = format!("{}:v1", liar::serve(&image, Lie::EndlessLayer).name);
    Bad { reference: &reference, code: 122, says: &[&image.layer.digest] }.is_refused(world);
}

/// The same lies told by a layout on disk.
fn a_layout_that_lies(world: &World) {
    let image = Image::probe().build();
    let spoil = |name: &str, blob: fn(&Built) -> &crate::image::Blob, bytes: &dyn Fn(&[u8]) -> Vec<u8>| {
        let world = World::new(world.user());
        let directory = world.directory(name);
        let reference = image.write(&directory);
        let blob = blob(&image);
        fs::write(blob.path_in(&directory), bytes(&blob.bytes)).unwrap();
        Bad { reference: &reference, code: 122, says: &[&blob.digest] }.is_refused(&world);
    };
    spoil("other", |i| &i.layer, &|bytes| [&bytes[..bytes.len() - 1], &[!bytes[bytes.len() - 1]]].concat());
    spoil("short", |i| &i.layer, &|bytes| bytes[..bytes.len() - 512].to_vec());
    spoil("long", |i| &i.layer, &|bytes| [bytes, &[0; 512]].concat());
    spoil("config", |i| &i.config, &|bytes| [bytes, b" "].concat());
    spoil("manifest", |i| &i.manifest, &|bytes| [bytes, b" "].concat());
    let directory = world.directory("gone");
    let reference = image.write(&directory);
    fs::remove_file(image.layer.path_in(&directory)).unwrap();
    let ended = world.smcp(["run", &reference]).run();
    ended.check([120, 122].contains(&ended.code()), "exit 120 or 122 was expected");
    ended.explains(&[&image.layer.digest]);
}

/// A blob that changed in the store itself is found before it is used.
fn a_blob_that_changed_in_the_store(world: &World) {
    let image = Image::probe().build();
    let reference = format!("{}:v1", liar::serve(&image, Lie::None).name);
    world.smcp(["pull", &reference]).run().ok();
    for blob in [&image.manifest, &image.config] {
        let path = blob.path_in(&world.store());
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let right = fs::read(&path).unwrap();
        fs::write(&path, [right.as_slice(), b" "].concat()).unwrap();
        let ended = world.smcp(["run", "--offline", &reference, "exit", "0"]).run();
        ended.check(ended.code() == 122, "exit 122 was expected");
        ended.explains(&[&blob.digest]);
        fs::write(&path, right).unwrap();
        world.give(&path);
    }
    world.smcp(["run", "--offline", &reference, "exit", "0"]).run().ok();
}

/// A manifest that asks for what smcp does not know is not run as if it had not asked.
fn a_manifest_with_an_unknown_permission(world: &World) {
    let cases = [
        ("top", json!({"gpu": true}), "permissions.gpu"),
        ("deep", json!({"network": {"inbound": []}}), "permissions.network.inbound"),
        (
            "star",
            json!({"network": {"outbound": [{"host": "*", "ports": [443]}]}}),
            "permissions.network.outbound[0].host",
        ),
    ];
    for (name, permissions, says) in cases {
        let reference =
            Image::probe().manifest(|m| m["permissions"] = permissions).build().write(&world.directory(name));
        Bad { reference: &reference, code: MANIFEST, says: &[says] }.is_refused(world);
    }
    let reference =
        Image::probe().manifest(|m| m["limits"] = json!({"memory": "512MB"})).build().write(&world.directory("unit"));
    Bad { reference: &reference, code: MANIFEST, says: &["limits.memory", "512MB"] }.is_refused(world);
}

fn a_manifest_that_is_none(world: &World) {
    let reference =
        Image::probe().config(|c| c["config"]["WorkingDir"] = json!(7)).build().write(&world.directory("config"));
    let ended = world.smcp(["run", &reference]).run();
    ended.check(ended.code() > 100, "an exit code of smcp's own was expected");
    ended.explains(&[]);
    let reference = Image::probe().manifest(|m| *m = json!("text")).build().write(&world.directory("label"));
    Bad { reference: &reference, code: MANIFEST, says: &["manifest"] }.is_refused(world);
}

/// The platforms that there are, are named (A12).
fn an_architecture_that_does_not_fit(world: &World) {
    let other = Image::probe().config(|c| c["architecture"] = json!("s390x")).build();
    let reference = other.write(&world.directory("single"));
    Bad { reference: &reference, code: 120, says: &["linux/s390x"] }.is_refused(world);
    let reference = other.write_for(&world.directory("index"), &[("linux", "s390x"), ("windows", "amd64")]);
    Bad { reference: &reference, code: 120, says: &["linux/s390x", "windows/amd64"] }.is_refused(world);
}

fn an_archive_that_reaches_outside(world: &World) {
    // The archives themselves are bundle's tests; here it is the way from a layer to the exit code.
    let reference = hostile(world, "dots");
    Bad { reference: &reference, code: 123, says: &["../../outside"] }.is_refused(world);
    assert!(!world.path("outside").exists());
}

/// Where the cage has something of its own, or the package something else.
fn a_grant_that_stands_in_the_way(world: &World) {
    let (directory, file) = (world.text("project"), world.path("project/file"));
    fs::write(&file, "x").unwrap();
    let mount = |source: &str, target: &str| format!("{source}:{target}");
    for (flag, says) in [
        (mount(&directory, "/etc/passwd"), "/etc/passwd"),
        (mount(file.to_str().unwrap(), "/etc/hosts"), "/etc/hosts"),
        (mount(file.to_str().unwrap(), "/usr/bin"), "/usr/bin"),
        (mount(file.to_str().unwrap(), "/tmp"), "/tmp"),
    ] {
        let ended = world.caged(&["--mount", &flag], &["exit", "0"]).run().expect(125);
        ended.explains(&[says, "--mount SRC:DST"]);
    }
    let reference = Image::probe().link("etc", "usr").build().write(&world.directory("link"));
    let ended = world.smcp(["run", &reference, "exit", "0"]).run().expect(125);
    ended.explains(&["/etc", "symbolic link", "its publisher can correct"]);
}

/// By its own name and no other, with the next step.
fn a_flag_that_is_wrong_is_named(world: &World) {
    let (absent, state, parent) = (world.text("absent"), world.text("state"), world.text(""));
    let cases: [(&[&str], i32, &[&str]); 22] = [
        (&["--allow-read", &absent], 2, &["--allow-read", &absent]),
        (&["--allow-write", &absent], 2, &["--allow-write", &absent]),
        (&["--mount", &absent], 2, &["--mount", &absent]),
        (&["--mount", "a:b"], 2, &["--mount", "`b`"]),
        (&["--env", "=x"], 2, &["--env"]),
        (&["--allow-read", "/"], 121, &["--allow-read /", "never granted"]),
        (&["--allow-write", "/proc"], 121, &["--allow-write /proc", "never granted"]),
        (&["--mount", "/usr:/proc/x"], 121, &["--mount /usr", "--mount SRC:DST"]),
        (&["--allow-read", &state], 121, &["--allow-read", "belongs to smcp"]),
        (&["--cwd", &parent], 121, &["--cwd", "belongs to smcp"]),
        (&["--user", "bob"], 2, &["--user"]),
        (&["--user", "0"], 2, &["--user"]),
        (&["--allow-net", "https://acme.example/v1"], 2, &["--allow-net", "`https://`", "hint: acme.example"]),
        (&["--allow-net", "acme.example:80,http"], 2, &["--allow-net", "`http` is no port"]),
        (&["--allow-net", "10.0.0.1/8"], 2, &["--allow-net", "`10.0.0.1`", "10.0.0.0/8"]),
        (&["--allow-net", "*"], 2, &["--allow-net", "`*`", "--allow-all-net"]),
        (&["--allow-net", "127.1"], 2, &["--allow-net", "`127.1`"]),
        (&["--allow-net", "[::1"], 2, &["--allow-net", "`[`"]),
        (&["--allow-net", ""], 2, &["--allow-net", "no host"]),
        (&["--allow-host-port", "0"], 2, &["--allow-host-port", "\"0\""]),
        (&["--allow-host-port", "+80"], 2, &["--allow-host-port", "\"+80\""]),
        (&["--allow-host-port", "localhost:80"], 2, &["--allow-host-port", "localhost:80"]),
    ];
    for (flags, code, says) in cases {
        let ended = world.caged(flags, &["exit", "0"]).run().expect(code);
        ended.explains(says);
        ended.check(flags[0] == "--mount" || !ended.stderr().contains("--mount /"), "another flag was named");
    }
}

fn a_path_that_is_no_text(world: &World) {
    let path = world.path("project").join(OsStr::from_bytes(b"a\xff"));
    fs::create_dir(&path).unwrap();
    for flag in ["--allow-read", "--cwd", "--deny"] {
        let flags =
            [OsStr::new("--allow-write"), world.path("project").as_os_str(), OsStr::new(flag), path.as_os_str()]
                .map(OsStr::to_owned);
        let ended =
            world.smcp(["run"]).args(flags).args([crate::image::probe_reference(), "exit", "0"]).run().expect(2);
        ended.explains(&["not UTF-8"]);
        assert_eq!(world.last_end()["exit"], 2);
    }
}

/// A grant that does nothing looks like one that does not work.
fn a_program_that_is_not_there_is_told(world: &World) {
    let run = |path: &str, says: Option<&str>| {
        let flags = [format!("--allow-subprocess={path}"), format!("--mount={}:/work", world.text("project"))];
        let ended = world.smcp(["run"]).args(flags).args([&reference(world), "exit", "0"]).run().ok();
        let warnings: Vec<_> =
            ended.stderr().lines().filter(|l| l.starts_with("warning: ")).map(String::from).collect();
        match says {
            None => ended.check(warnings.is_empty(), "no warning was expected"),
            Some(words) => {
                ended.check(warnings.len() == 1, "one warning was expected");
                ended.says(&[&format!("--allow-subprocess={path}"), words]);
            }
        }
    };
    fs::write(world.path("project/tool"), "x").unwrap();
    for (path, says) in [
        ("/nope", Some("no such program")),
        ("/usr/bin/probe/nope", Some("no such program")),
        ("/work/nope", Some("no such program")),
        ("/usr/bin", Some("directory")),
        ("/work", Some("directory")),
        ("/usr/bin/probe", None),
        ("/bin/probe", None),
        ("/work/tool", None),
        ("/tmp/made-inside", None),
    ] {
        run(path, says);
    }
}

/// The probe with a link as distributions have it.
fn reference(world: &World) -> String {
    Image::probe().link("bin", "usr/bin").build().write(&world.directory("merged"))
}

fn a_configuration_that_is_wrong(world: &World) {
    let absent = world.text("absent.yaml");
    let ended = world.smcp(["--config", &absent]).args(["run", "a/b"]).run().expect(119);
    ended.explains(&[&absent, "--config"]);
    for (variable, value) in [
        ("MCP_MAX_PIDS", "x"),
        ("MCP_POLICY_MIN_TIER", "4"),
        ("MCP_POLICY_MIN_CERT_LEVEL", "4"),
        ("MCP_POLICY_MIN_CERT_LEVLE", "1"),
        ("MCP_POLICY_SIGNATURES", "1"),
        ("MCP_CACHE_DIR", "relative"),
    ] {
        let ended = world.smcp(["run", "a/b"]).env(variable, value).run().expect(119);
        ended.explains(&[variable]);
    }
    for (text, says) in [
        ("max_memroy: 1G\n", ["max_memroy", "config.yaml"]),
        ("policy: {ceilings: {network: {alow: []}}}\n", ["alow", "config.yaml"]),
        (
            "policy: {ceilings: {network: {allow: ['a.test:x']}}}\n",
            ["policy.ceilings.network.allow[0]", "`x` is no port"],
        ),
        ("policy: {ceilings: {env: {deny: ['']}}}\n", ["config.yaml:1", "policy.ceilings.env.deny[0]"]),
    ] {
        let file = world.file("home/config.yaml", text);
        world.smcp(["--config"]).args([&file]).args(["run", "a/b"]).run().expect(119).explains(&says);
    }
}

/// What a flag asks for beyond the ceiling is refused; what a manifest asks for is withheld.
fn a_flag_beyond_the_policy(world: &World) {
    let file = world.file(
        "home/config.yaml",
        "policy:\n  ceilings:\n    network:\n      allow: ['*.acme.example:443', '127.0.0.1:5432']\n      deny: [evil.acme.example]\n",
    );
    let by_policy = |flags: &[&str]| world.caged(flags, &["exit", "0"]).env("MCP_CONFIG", &file).run();
    for (flags, says) in [
        (["--allow-net", "acme.example"], "--allow-net acme.example:443: the policy's ceiling"),
        (["--allow-net", "api.acme.example:443,80"], "--allow-net api.acme.example:80: the policy's ceiling"),
        (["--allow-net", "evil.acme.example"], "--allow-net evil.acme.example:443: the policy denies"),
        (["--allow-host-port", "5433"], "--allow-host-port 5433: the policy's ceiling"),
        (["--allow-all-net", "--dry-run"], "--allow-all-net: the policy's ceiling"),
    ] {
        let ended = by_policy(&flags).expect(121);
        ended.explains(&[says, "hint: ", "policy.ceilings.network"]);
        assert_eq!((&world.last_end()["exit"], &world.last_end()["cause"]), (&json!(121), &json!("denied")));
    }
    let within = ["--dry-run", "--allow-net", "*.acme.example", "--allow-host-port", "5432"];
    let shown = by_policy(&within).ok();
    for line in ["*.acme.example:443", "127.0.0.1:5432 is this machine's", "not evil.acme.example"] {
        shown.check(shown.text().contains(&format!("network    {line}")), line);
    }
    let asks = Image::probe()
        .manifest(|m| m["permissions"] = json!({"network": {"outbound": ["api.acme.example:443,80", "10.0.0.1:80"]}}));
    let reference = asks.build().write(&world.directory("asks"));
    let run = world.smcp(["run", "--dry-run", &reference]).env("MCP_CONFIG", &file).run().ok();
    run.check(run.text().contains("network    api.acme.example:443\n"), "the rest was expected to be granted");
    run.says(&["not granted: network api.acme.example:80: the policy's ceiling does not allow it"]);
    run.says(&["not granted: network 10.0.0.1:80: its addresses are not public", "hint: --allow-net 10.0.0.1:80"]);
}

fn a_request_for_a_destination_that_is_none(world: &World) {
    for (number, (outbound, says)) in [
        (json!({"host": "https://acme.example"}), ["permissions.network.outbound[0].host", "`https://`"]),
        (json!({"host": "acme.example:80"}), ["permissions.network.outbound[0].host", "a port"]),
        (json!("acme.example:http"), ["permissions.network.outbound[0]", "`http` is no port"]),
        (json!({"host": "*"}), ["permissions.network.outbound[0].host", "everything"]),
        (json!("0.0.0.0/0:443"), ["permissions.network.outbound[0]", "everything"]),
    ]
    .into_iter()
    .enumerate()
    {
        let asks = Image::probe().manifest(|m| m["permissions"] = json!({"network": {"outbound": [outbound]}}));
        let reference = asks.build().write(&world.directory(&format!("asks{number}")));
        Bad { reference: &reference, code: MANIFEST, says: &says }.is_refused(world);
    }
}

/// Exit code of a manifest that cannot be accepted.
const MANIFEST: i32 = 123;

/// A layout whose layer has an entry `../../outside`, which the tar crate would not write.
fn hostile(world: &World, name: &str) -> String {
    let placeholder = "aa/aa/outside";
    let image = Image::probe().file(placeholder, 0o644, "x").build_with(|layer| {
        let at = layer.windows(placeholder.len()).rposition(|w| w == placeholder.as_bytes()).expect("it was written");
        layer[at..at + placeholder.len()].copy_from_slice(b"../../outside");
        // The checksum of the header counts its own field as spaces.
        let header = &mut layer[at..at + 512];
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    });
    image.write(&world.directory(name))
}

/// An honest image by the same server is accepted: the lies above are what is refused.
#[test]
fn the_lying_registry_can_tell_the_truth() {
    let world = World::new(User::Ordinary);
    let image = Image::probe().build();
    let liar = liar::serve(&image, Lie::None);
    let by_tag = format!("{}:v1", liar.name);
    world.smcp(["run", &by_tag, "exit", "5"]).run().expect(5);
    world.smcp(["run", &format!("{}@{}", liar.name, image.manifest.digest), "exit", "6"]).run().expect(6);
    assert!(Path::new(&world.store()).join("blobs/sha256").exists());
}
