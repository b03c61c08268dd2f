use super::*;
use crate::permissions::{Access, Origin};
use serde_json::json;

/// The example of the format's description.
const EXAMPLE: &str = r#"{
  "schemaVersion": 1,
  "name": "acme/hello", "version": "1.2.3", "description": "…",
  "mcp": {"serverName": "io.github.acme/hello", "transport": {"type": "stdio"}},
  "entrypoint": {"args": ["node", "/app/index.js"], "workdir": "/app"},
  "args": [{"name": "root", "type": "path", "mount": "ws", "required": true}],
  "env": [{"name": "LOG", "default": "info"}, {"name": "API_KEY", "secret": true, "required": true}],
  "permissions": {
    "network": {"outbound": [{"host": "api.acme.example", "ports": [443]}]},
    "filesystem": [{"id": "ws", "access": "rw", "target": "/work", "from": "user"},
                   {"id": "state", "access": "rw", "target": "/state", "from": "state"}],
    "subprocess": {"allow": ["/usr/bin/git"]}
  },
  "limits": {"memory": "256M", "cpuMillis": 1000, "pids": 256, "nofile": 1024},
  "source": {"type": "npm", "ref": "@acme/hello@1.2.3", "integrity": "sha512-…"}
}"#;

fn least() -> Value {
    json!({"schemaVersion": 1, "name": "a/b", "version": "1", "entrypoint": {"args": ["x"]}})
}

/// The least manifest with `value` at `key`.
fn with(key: &str, value: Value) -> Value {
    let mut manifest = least();
    manifest[key] = value;
    manifest
}

fn error(value: Value) -> String {
    match Manifest::parse(value.to_string().as_bytes()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted: {value}"),
    }
}

#[test]
fn the_documented_example_is_read() {
    let manifest = Manifest::parse(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(manifest.name, "acme/hello");
    assert_eq!(manifest.mcp.server_name.as_deref(), Some("io.github.acme/hello"));
    assert_eq!(manifest.entrypoint.workdir.as_deref(), Some("/app".as_ref()));
    assert_eq!(manifest.args[0].mount.as_deref(), Some("ws"));
    assert!(manifest.env[1].secret && manifest.env[1].required);
    let permissions = &manifest.permissions;
    assert_eq!(permissions.network.outbound[0].to_string(), "api.acme.example:443");
    assert_eq!(permissions.filesystem[0].access, Access::Rw);
    assert_eq!(permissions.filesystem[1].from, Origin::State);
    assert_eq!(permissions.subprocess.allow, [PathBuf::from("/usr/bin/git")]);
    assert_eq!(manifest.limits.memory, Some(256 << 20));
    assert_eq!(manifest.source.unwrap().reference, "@acme/hello@1.2.3");
}

#[test]
fn a_label_gives_the_same_manifest_and_the_same_label_again() {
    let mut value: Value = serde_json::from_str(EXAMPLE).unwrap();
    value["x-later"] = json!({"b": [1, null], "a": 0.5});
    value["mcp"]["later"] = json!(true);
    value["entrypoint"]["later"] = json!("x");
    value["args"][0]["later"] = json!("x");
    value["source"]["later"] = json!("x");
    value["limits"]["cpuTime"] = json!("1h30m");
    value["limits"]["timeout"] = json!("7d");
    value["hostRuntime"] = json!({"interpreter": "python3.11", "later": 1});
    for value in [value, least()] {
        let manifest = Manifest::from_value(&value).unwrap();
        let label = manifest.to_label();
        let again = Manifest::parse(label.as_bytes()).unwrap();
        assert_eq!(again, manifest);
        assert_eq!(again.to_label(), label);
    }
}

#[test]
fn keys_of_other_versions_are_kept() {
    let label = Manifest::from_value(&with("icons", json!(["x.png"]))).unwrap().to_label();
    assert_eq!(serde_json::from_str::<Value>(&label).unwrap()["icons"], json!(["x.png"]));
}

#[test]
fn unknown_keys_are_errors_where_every_key_counts() {
    let cases = [
        (with("permissions", json!({"net": {}})), "permissions.net"),
        (with("permissions", json!({"network": {"inbound": []}})), "permissions.network.inbound"),
        (
            with("permissions", json!({"network": {"outbound": [{"host": "a.b", "proto": "udp"}]}})),
            "permissions.network.outbound[0].proto",
        ),
        (
            with("permissions", json!({"filesystem": [{"id": "a", "access": "ro", "target": "/a", "deny": "x"}]})),
            "permissions.filesystem[0].deny",
        ),
        (with("permissions", json!({"subprocess": {"allow": [], "any": true}})), "permissions.subprocess.any"),
        (with("limits", json!({"disk": "1G"})), "limits.disk"),
        (with("env", json!([{"name": "A", "value": "x"}])), "env[0].value"),
    ];
    for (manifest, key) in cases {
        assert_eq!(error(manifest), format!("{key}: this key is not known"));
    }
}

#[test]
fn e5_a_manifest_cannot_ask_for_everything() {
    let fs = |key: &str| {
        let mut request = json!({"id": "a", "access": "ro", "target": "/a"});
        request[key] = json!("*");
        with("permissions", json!({"filesystem": [request]}))
    };
    let outbound = |value: Value| with("permissions", json!({"network": {"outbound": value}}));
    let cases = [
        with("env", json!("*")),
        with("env", json!(["*"])),
        with("env", json!([{"name": "*"}])),
        with("env", json!([{"name": "AWS_*"}])),
        with("permissions", json!({"network": "*"})),
        outbound(json!("*")),
        outbound(json!(["*"])),
        outbound(json!([{"host": "*"}])),
        outbound(json!([{"host": "a.example", "ports": "*"}])),
        outbound(json!([{"host": "a.example", "ports": ["*"]}])),
        outbound(json!([{"host": "0.0.0.0/0"}])),
        outbound(json!(["[::/0]:443"])),
        with("permissions", json!({"filesystem": "*"})),
        with("permissions", json!({"filesystem": ["*"]})),
        fs("id"),
        fs("target"),
        fs("access"),
        with("permissions", json!({"subprocess": "*"})),
        with("permissions", json!({"subprocess": {"allow": "*"}})),
        with("permissions", json!({"subprocess": {"allow": ["*"]}})),
    ];
    for manifest in cases {
        let error = error(manifest.clone());
        assert!(error.ends_with("a manifest cannot ask for everything"), "{manifest}: {error}");
    }
    assert!(error(outbound(json!(["*:443"]))).starts_with("permissions.network.outbound[0]: "));
}

#[test]
fn e17_limits_that_are_none_name_their_key() {
    for stale in [json!("512MB"), json!("0.5g"), json!("-1"), json!("1e9"), json!("unlimited"), json!(512), json!(null)]
    {
        for key in ["memory", "cpuTime", "timeout"] {
            let error = error(with("limits", json!({key: stale})));
            assert!(error.starts_with(&format!("limits.{key}: ")), "{stale}: {error}");
        }
    }
    for stale in [json!("512"), json!(-1), json!(0), json!(0.5), json!(1e9), json!("unlimited"), json!(4294967296u64)] {
        for key in ["cpuMillis", "pids", "nofile"] {
            let error = error(with("limits", json!({key: stale})));
            assert!(error.starts_with(&format!("limits.{key}: ")), "{stale}: {error}");
        }
    }
}

#[test]
fn what_is_wrong_names_its_key() {
    let fs = |value: Value| with("permissions", json!({"filesystem": value}));
    let a = json!({"id": "a", "access": "ro", "target": "/a"});
    let cases = [
        (json!([]), "the manifest"),
        (with("schemaVersion", json!(2)), "schemaVersion"),
        (with("schemaVersion", json!("1")), "schemaVersion"),
        (with("name", json!("")), "name"),
        (with("name", json!("a\u{1b}[31m")), "name"),
        (with("version", json!(1)), "version"),
        (with("entrypoint", json!({"args": []})), "entrypoint.args"),
        (with("entrypoint", json!({"args": [""]})), "entrypoint.args"),
        (with("entrypoint", json!({"args": ["a\u{0}b"]})), "entrypoint.args[0]"),
        (with("entrypoint", json!({"args": ["a"], "workdir": "app"})), "entrypoint.workdir"),
        (with("entrypoint", json!({"args": ["a"], "workdir": "/a/../b"})), "entrypoint.workdir"),
        (with("mcp", json!({"transport": {"type": "http"}})), "mcp.transport.type"),
        (with("args", json!([{"name": "a", "type": "file"}])), "args[0].type"),
        (with("args", json!([{"name": "a", "type": "path", "mount": "ws"}])), "args[0].mount"),
        (
            with("args", json!([{"name": "a", "type": "string"}, {"name": "b", "type": "string", "required": true}])),
            "args[1]",
        ),
        (with("env", json!([{"name": "A=B"}])), "env[0].name"),
        (with("env", json!([{"name": ""}])), "env[0].name"),
        (with("env", json!([{"name": "A"}, {"name": "A"}])), "env[1].name"),
        (with("env", json!([{"name": "A", "required": "yes"}])), "env[0].required"),
        (fs(json!([a, a])), "permissions.filesystem[1].id"),
        (fs(json!([a, {"id": "b", "access": "ro", "target": "/a/"}])), "permissions.filesystem[1].target"),
        (fs(json!([{"id": "a", "access": "rwx", "target": "/a"}])), "permissions.filesystem[0].access"),
        (fs(json!([{"id": "a", "access": "ro", "target": "/"}])), "permissions.filesystem[0].target"),
        (fs(json!([{"id": "a", "access": "ro", "target": "a"}])), "permissions.filesystem[0].target"),
        (fs(json!([{"id": "a", "access": "ro", "target": "/proc/x"}])), "permissions.filesystem[0].target"),
        (fs(json!([{"id": "a", "access": "ro", "target": "/a", "from": "host"}])), "permissions.filesystem[0].from"),
        (fs(json!([{"id": "a", "target": "/a"}])), "permissions.filesystem[0].access"),
        (
            with("permissions", json!({"network": {"outbound": [{"host": "a.b", "ports": []}]}})),
            "permissions.network.outbound[0].ports",
        ),
        (
            with("permissions", json!({"network": {"outbound": [{"host": "a.b", "ports": [70000]}]}})),
            "permissions.network.outbound[0].ports[0]",
        ),
        (
            with("permissions", json!({"network": {"outbound": [{"host": "a.b:443"}]}})),
            "permissions.network.outbound[0].host",
        ),
        (with("permissions", json!({"subprocess": {"allow": ["git"]}})), "permissions.subprocess.allow[0]"),
        (with("source", json!({"type": "npm"})), "source.ref"),
        (with("hostRuntime", json!({"interpreter": "/usr/bin/python3"})), "hostRuntime.interpreter"),
        (with("hostRuntime", json!({"interpreter": ".."})), "hostRuntime.interpreter"),
    ];
    for (manifest, key) in cases {
        let error = error(manifest.clone());
        assert!(error.starts_with(&format!("{key}: ")), "{manifest}: {error}");
    }
    for key in ["schemaVersion", "name", "version", "entrypoint"] {
        let mut manifest = least();
        manifest.as_object_mut().unwrap().remove(key);
        assert_eq!(error(manifest), format!("{key}: is missing"));
    }
}

#[test]
fn size_and_duplicate_keys_are_refused() {
    let twice = r#"{"schemaVersion":1,"name":"a","name":"b","version":"1","entrypoint":{"args":["x"]}}"#;
    assert!(matches!(Manifest::parse(twice.as_bytes()), Err(ManifestError::Json(_))));
    assert!(matches!(Manifest::parse(&[b' '; MAX_BYTES + 1]), Err(ManifestError::TooLarge(_))));
    assert!(matches!(Manifest::parse(b"{"), Err(ManifestError::Json(_))));
}
