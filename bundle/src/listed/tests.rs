use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::Asked;
use crate::Secret;
use crate::grant::{EnvFlag, Request};
use crate::manifest::Manifest;
use crate::permissions::Origin;

fn asked(version: Option<&str>) -> PackageName {
    PackageName { name: "io.test/x".into(), version: version.map(Into::into) }
}

fn read(packages: Value) -> Result<Listed, ListedError> {
    let answer = json!({"server": {"name": "io.test/x", "version": "2", "packages": packages}});
    Listed::read(&asked(None), answer.to_string().as_bytes(), &Packages::of(Path::new("/nowhere")), None)
}

/// One package of npm with more keys.
fn npm(more: Value) -> Value {
    let mut package =
        json!({"registryType": "npm", "identifier": "@a/x", "version": "1.2.3", "transport": {"type": "stdio"}});
    package.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!([package])
}

/// The server's line, what the manifest asks for, and the variables, after `smcp run --env … mcp:… words`.
fn applied(more: Value, words: &[&str], env: &[(&str, &str)]) -> (String, Manifest, Request) {
    let listed = read(npm(more)).unwrap();
    let value = json!({"schemaVersion": 1, "name": "x", "version": "1", "entrypoint": {"args": ["/x"]}});
    let mut manifest = Manifest::from_value(&value).unwrap();
    let args = words.iter().map(|word| (*word).to_owned()).collect();
    let flag = |(name, value): &(&str, &str)| EnvFlag { name: (*name).into(), value: Some(Secret::new(*value)) };
    let env: Vec<EnvFlag> = env.iter().map(flag).collect();
    let mut request = Request { args, env: env.clone(), ..Request::default() };
    let given = |name: &str| env.iter().find(|flag| flag.name == name)?.value.clone();
    listed.apply(&mut manifest, &mut request, &given).unwrap();
    (request.args.join(" "), manifest, request)
}

#[test]
fn packages_become_references() {
    let hex = "ab".repeat(32);
    for (package, want) in [
        (json!({"registryType": "npm", "identifier": "@a/x", "version": "1.2.3"}), "npm:@a/x@1.2.3"),
        (
            json!({"registryType": "npm", "identifier": "x", "version": "1.0.0", "registryBaseUrl": "https://registry.npmjs.org/"}),
            "npm:x@1.0.0",
        ),
        (
            json!({"registryType": "pypi", "identifier": "x-y", "version": "1.0", "registryBaseUrl": "https://pypi.org"}),
            "pypi:x-y==1.0",
        ),
        (json!({"registryType": "oci", "identifier": "ghcr.io/a/x:1"}), "ghcr.io/a/x:1"),
        (
            json!({"registryType": "oci", "identifier": "ghcr.io/a/x:1", "fileSha256": hex}),
            &format!("ghcr.io/a/x@sha256:{hex}"),
        ),
        (
            json!({"registryType": "oci", "identifier": "a/x", "version": "1", "registryBaseUrl": "https://docker.io"}),
            "docker.io/a/x:1",
        ),
        (json!({"registryType": "oci", "identifier": "mcp/x", "version": "1"}), "docker.io/mcp/x:1"),
        (
            json!({"registryType": "mcpb", "identifier": "https://h.test/x.mcpb", "fileSha256": hex}),
            &format!("mcpb:https://h.test/x.mcpb@sha256:{hex}"),
        ),
    ] {
        assert_eq!(read(json!([package])).unwrap().reference.to_string(), want);
    }
    let several = json!([{"registryType": "npm", "identifier": "x", "version": "1"}, {"registryType": "pypi", "identifier": "y", "version": "1"}]);
    let answer = json!({"server": {"name": "io.test/x", "version": "2", "packages": several}}).to_string();
    let of = |kind| Listed::read(&asked(None), answer.as_bytes(), &Packages::of(Path::new("/nowhere")), kind);
    let (first, second) = (of(None).unwrap(), of(Some("pypi")).unwrap());
    assert_eq!((first.reference.to_string(), first.others), ("npm:x@1".into(), vec!["pypi y".into()]));
    assert_eq!((second.reference.to_string(), second.others), ("pypi:y==1".into(), vec!["npm x".into()]));
    let none = of(Some("oci")).unwrap_err().to_string();
    assert!(none.contains("one of npm, which was not asked for, one of pypi"), "{none}");
    let first = json!([{"registryType": "nuget", "identifier": "X", "version": "1"}, {"registryType": "pypi", "identifier": "x", "version": "1"}]);
    assert_eq!(read(first).unwrap().reference.to_string(), "pypi:x==1", "the first that runs here");
}

#[test]
fn what_is_refused() {
    let other = "its registry, or its package, speaks of io.test/y@2";
    let answer = json!({"server": {"name": "io.test/y", "version": "2", "packages": []}}).to_string();
    let nowhere = Packages::of(Path::new("/nowhere"));
    assert!(Listed::read(&asked(None), answer.as_bytes(), &nowhere, None).unwrap_err().to_string().contains(other));
    let answer = json!({"server": {"name": "io.test/x", "version": "2", "packages": []}, "_meta": {OFFICIAL: {"status": "deleted"}}}).to_string();
    assert!(matches!(
        Listed::read(&asked(Some("1")), answer.as_bytes(), &nowhere, None),
        Err(ListedError::Other { .. })
    ));
    assert!(matches!(Listed::read(&asked(None), answer.as_bytes(), &nowhere, None), Err(ListedError::Deleted(_))));
    for (package, why) in [
        (json!({"registryType": "npm", "identifier": "x", "version": "latest"}), "without its version"),
        (json!({"registryType": "npm", "identifier": "x@1", "version": "2"}), "range"),
        (json!({"registryType": "npm", "identifier": "../x", "version": "2"}), "begins with"),
        (
            json!({"registryType": "npm", "identifier": "x", "version": "1", "registryBaseUrl": "https://evil.test"}),
            "https://evil.test, which is not where npm",
        ),
        (
            json!({"registryType": "pypi", "identifier": "x", "version": "1", "registryBaseUrl": "https://evil.test/simple"}),
            "not where PyPI",
        ),
        (json!({"registryType": "mcpb", "identifier": "https://h.test/x.mcpb"}), "without its fileSha256"),
        (json!({"registryType": "mcpb", "identifier": "/etc/x.mcpb", "fileSha256": "ab".repeat(32)}), "no url"),
        (json!({"registryType": "npm", "identifier": "x", "version": "1", "fileSha256": "AB"}), "fileSha256"),
        (json!({"registryType": "oci", "identifier": "npm:x/y"}), "does not belong"),
        (
            json!({"registryType": "oci", "identifier": format!("ghcr.io/a/x@sha256:{}", "cd".repeat(32)), "fileSha256": "ab".repeat(32)}),
            "and a fileSha256 of",
        ),
        (
            json!({"registryType": "npm", "identifier": "x", "version": "1", "transport": {"type": "sse"}}),
            "one that speaks sse",
        ),
        (json!({"registryType": "cargo", "identifier": "x", "version": "1"}), "one of cargo"),
        (
            json!({"registryType": "npm", "identifier": "x", "version": "1", "runtimeArguments": [{"type": "named", "name": "--package", "value": "evil"}]}),
            "names another",
        ),
        (
            json!({"registryType": "npm", "identifier": "x", "version": "1", "runtimeArguments": [{"type": "named", "name": "--registry", "value": "https://evil.test"}]}),
            "changes what is run",
        ),
        (
            json!({"registryType": "npm", "identifier": "x", "version": "1", "packageArguments": [{"type": "named"}]}),
            "packageArguments",
        ),
    ] {
        let error = read(json!([package])).unwrap_err().to_string();
        assert!(error.contains(why), "{package}: {error}");
    }
}

#[test]
fn the_line_of_a_server() {
    let arguments = json!({"packageArguments": [
        {"type": "positional", "value": "serve"},
        {"type": "named", "name": "--root", "format": "filepath", "isRequired": true},
        {"type": "named", "name": "--level", "default": "info", "choices": ["info", "debug"]},
        {"type": "named", "name": "--fast", "format": "boolean"},
        {"type": "positional", "valueHint": "db", "default": "main"},
        {"type": "named", "name": "--stdio", "value": "true", "format": "boolean"},
    ]});
    for (words, want) in [
        (&["--root", "/r"][..], "serve --root /r --level info main --stdio"),
        (&["x", "--level=debug", "--root=/r", "--fast"], "serve --root /r --level debug --fast x --stdio"),
        (&["--root", "/r", "x", "y", "--more"], "serve --root /r --level info x --stdio y --more"),
    ] {
        let (line, manifest, request) = applied(arguments.clone(), words, &[]);
        assert_eq!(line, want);
        let root = request.args.iter().position(|word| word == "/r").unwrap();
        assert!(!request.listed.contains(&root) && request.listed.contains(&0), "what is stated is not the user's");
        assert_eq!((manifest.args.len(), manifest.permissions.filesystem.len()), (4, 1));
    }
    let (_, manifest, _) = applied(arguments.clone(), &["x"], &[]);
    assert!(manifest.args.iter().any(|spec| spec.name == "--root" && spec.required));
    let listed = read(npm(arguments)).unwrap();
    let mut request = Request { args: vec!["--level".into(), "loud".into()], ..Request::default() };
    let mut manifest = manifest;
    let error = listed.apply(&mut manifest, &mut request, &|_| None).unwrap_err().to_string();
    assert_eq!(error, "--level: the value is none of info, debug");
}

#[test]
fn a_path_that_the_publisher_states_is_granted_nobody() {
    let arguments = json!({"packageArguments": [
        {"type": "positional", "value": "/home/me/.ssh", "format": "filepath"},
        {"type": "named", "name": "--key", "default": "/home/me/.aws", "format": "filepath"},
    ]});
    let (line, manifest, request) = applied(arguments, &[], &[]);
    assert_eq!(line, "/home/me/.ssh --key /home/me/.aws");
    assert_eq!(
        (manifest.permissions.filesystem.len(), manifest.args.len()),
        (1, 1),
        "--key is asked for, and was not given"
    );
    assert_eq!(request.listed.len(), 3);
}

#[test]
fn variables_of_the_environment() {
    let variables = json!({"environmentVariables": [
        {"name": "TOKEN", "isRequired": true, "isSecret": true},
        {"name": "MODE", "default": "quiet"},
        {"name": "FIXED", "value": "yes {kept}"},
        {"name": "URL", "value": "db://{user}:{password}@host", "variables": {
            "user": {"default": "root"}, "password": {"isRequired": true, "isSecret": true}}},
    ]});
    let spec = |manifest: &Manifest, name: &str| manifest.env.iter().find(|spec| spec.name == name).cloned().unwrap();
    let (_, manifest, request) = applied(variables.clone(), &[], &[("password", "p"), ("TOKEN", "t")]);
    assert!(spec(&manifest, "TOKEN").required && spec(&manifest, "TOKEN").secret && spec(&manifest, "URL").secret);
    assert_eq!(spec(&manifest, "MODE").default.as_deref(), Some("quiet"));
    assert_eq!(spec(&manifest, "FIXED").default.as_deref(), Some("yes {kept}"));
    let env: Vec<_> = request.env.iter().map(|flag| (&*flag.name, flag.value.as_ref().unwrap().expose())).collect();
    assert_eq!(env, [("TOKEN", "t")], "`password` is no variable of the server's");
    let composed = |request: &Request| {
        let pair = |flag: &EnvFlag| (flag.name.clone(), flag.value.as_ref().unwrap().expose().to_owned());
        request.composed.iter().map(pair).collect::<Vec<_>>()
    };
    assert_eq!(composed(&request), [("URL".into(), "db://root:p@host".into())]);
    let (_, manifest, _) = applied(variables, &[], &[]);
    assert!(spec(&manifest, "password").required && spec(&manifest, "password").secret);
    // Of the entry's words alone it is the entry's, not the user's.
    let stated = json!({"environmentVariables": [{"name": "AT", "value": "x/{where}", "variables": {"where": {"default": "y"}}}]});
    let (_, manifest, request) = applied(stated.clone(), &[], &[]);
    assert_eq!(
        (spec(&manifest, "AT").default.as_deref(), request.env.len(), request.composed.len()),
        (Some("x/y"), 0, 0)
    );
    let (_, manifest, request) = applied(stated, &[], &[("where", "z")]);
    assert_eq!((spec(&manifest, "AT").default, composed(&request)), (None, vec![("AT".into(), "x/z".into())]));
}

#[test]
fn what_docker_would_be_told() {
    let image = |arguments: Value| {
        read(json!([{"registryType": "oci", "identifier": "ghcr.io/a/x:1", "runtimeArguments": arguments}])).unwrap()
    };
    let listed = image(json!([
        {"type": "positional", "value": "run"}, {"type": "named", "name": "-i"}, {"type": "named", "name": "--rm"},
        {"type": "named", "name": "-e", "value": "KIND={kind}", "variables": {"kind": {"isRequired": true}}},
        {"type": "named", "name": "--mount", "value": "type=bind,src={dir},dst=/work", "variables": {"dir": {"isRequired": true, "default": "/home"}}},
        {"type": "named", "name": "--network", "value": "host"},
        {"type": "named", "name": "-v", "value": "/var/run/docker.sock:/s"},
    ]));
    assert_eq!(listed.left_out, ["docker's --network", "docker's host", "docker's -v /var/run/docker.sock:/s"]);
    let value = json!({"schemaVersion": 1, "name": "x", "version": "1", "entrypoint": {"args": ["/x"]}});
    let given = |name: &str| {
        [("kind", "sql"), ("dir", "/d")].iter().find(|(own, _)| *own == name).map(|(_, value)| Secret::new(*value))
    };
    let (mut manifest, mut request) = (Manifest::from_value(&value).unwrap(), Request::default());
    listed.apply(&mut manifest, &mut request, &given).unwrap();
    let granted = |request: &Request| request.mounts.iter().map(|m| (m.source.clone(), m.access)).collect::<Vec<_>>();
    assert_eq!(granted(&request), [("/d".into(), Access::Rw)]);
    assert_eq!(request.composed[0].value.as_ref().unwrap().expose(), "sql");
    let (mut manifest, mut request) = (Manifest::from_value(&value).unwrap(), Request::default());
    listed.apply(&mut manifest, &mut request, &|_| None).unwrap();
    assert!(request.mounts.is_empty(), "a default of the publisher's is no path of this machine");
    assert!(manifest.env.iter().any(|spec| spec.name == "dir" && spec.required));
    // It is asked for in every run, by the entry: what the image asks for, and is certified for, is as before.
    let file = Asked::of(&manifest).filesystem[Path::new("/work")];
    assert_eq!((file.access, file.from), (Access::Rw, Origin::Listed));
    let more = Asked::of(&manifest).beyond(&Asked::default());
    assert!(more.contains(&"filesystem /work rw, for the registry's entry".into()), "{more:?}");
    assert_eq!(manifest.permissions.digest(), Manifest::from_value(&value).unwrap().permissions.digest());
    // The image's word and the user's own flag are narrower than an entry's.
    let mut own = value;
    own["permissions"] = json!({"filesystem": [{"id": "w", "access": "ro", "target": "/work"}]});
    let (mut manifest, mut request) = (Manifest::from_value(&own).unwrap(), Request::default());
    listed.apply(&mut manifest, &mut request, &given).unwrap();
    assert_eq!((granted(&request), manifest.permissions.filesystem.len()), (vec![("/d".into(), Access::Ro)], 1));
    let mut request = Request { mounts: vec!["/e:/work:ro".parse().unwrap()], ..Request::default() };
    listed.apply(&mut manifest, &mut request, &given).unwrap();
    assert_eq!(granted(&request), [("/e".into(), Access::Ro)]);
    for odd in ["{dir}:/a/../b", "{dir}:{dir}", "{dir}:/x/{dir}"] {
        let one = image(json!([{"type": "named", "name": "-v", "value": odd, "variables": {"dir": {}}}]));
        assert_eq!((one.left_out.len(), one.mounts.len()), (1, 0), "{odd}");
    }
}

#[test]
fn what_runners_would_be_told() {
    let with = |arguments: Value| read(npm(json!({"runtimeArguments": arguments}))).unwrap();
    let listed = with(
        json!([{"type": "named", "name": "-y"}, {"type": "named", "name": "--package", "value": "@a/x@1.2.3"}, {"type": "positional", "value": "prog"}]),
    );
    assert_eq!(listed.bin.as_deref(), Some("prog"));
}

#[test]
fn a_package_is_held_against_its_entry() {
    let listed = read(npm(json!({"fileSha256": "ab".repeat(32)}))).unwrap();
    let source = |digest: &str| {
        let value = json!({"schemaVersion": 1, "name": "x", "version": "1", "entrypoint": {"args": ["/x"]},
            "source": {"type": "npm", "ref": "@a/x@1.2.3", "sha256": format!("sha256:{digest}")}});
        Manifest::from_value(&value).unwrap().source.unwrap()
    };
    listed.check(Some("io.test/x"), Some(&source(&"ab".repeat(32)))).unwrap();
    assert!(matches!(listed.check(None, Some(&source(&"cd".repeat(32)))), Err(ListedError::File { .. })));
    assert!(matches!(listed.check(None, None), Err(ListedError::File { .. })));
    assert!(matches!(listed.check(Some("io.test/y"), None), Err(ListedError::Other { .. })));
}

#[test]
fn addresses() {
    assert_eq!(
        listed_url(None, "v0.1", &asked(None)),
        format!("{MCP_REGISTRY}/v0.1/servers/io.test%2Fx/versions/latest")
    );
    let url = listed_url(Some("http://127.0.0.1:1/"), "v0", &asked(Some("1.0+b")));
    assert_eq!(url, "http://127.0.0.1:1/v0/servers/io.test%2Fx/versions/1.0%2Bb");
}

/// What would steer an interpreter is not stated by whoever lists a package; a user may be asked for it.
#[test]
fn code_of_their_own_is_not_brought_along() {
    let variable = |more: Value| npm(json!({"environmentVariables": [more]}));
    for name in
        ["NODE_OPTIONS", "LD_PRELOAD", "PYTHONPATH", "PATH", "BUN_OPTIONS", "https_proxy", "npm_config_registry"]
    {
        for stated in ["value", "default"] {
            let why = read(variable(json!({"name": name, stated: "x"}))).unwrap_err().to_string();
            assert!(why.contains("decides what code"), "{why}");
        }
        read(variable(json!({"name": name, "isRequired": true}))).unwrap();
    }
    let docker = json!([{"registryType": "oci", "identifier": "ghcr.io/a/x:1",
        "runtimeArguments": [{"type": "named", "name": "-e", "value": "LD_PRELOAD=/x.so"}]}]);
    assert!(read(docker).unwrap_err().to_string().contains("LD_PRELOAD"));
}

#[test]
fn an_entry_is_bounded_and_holds_no_nul() {
    let flags = |count: usize| {
        let one = json!({"type": "named", "name": "--x", "value": "{a}", "variables": {"a": {}}});
        npm(json!({"packageArguments": vec![one; count]}))
    };
    read(flags(MOST_INPUTS / 2)).unwrap();
    assert!(read(flags(MOST_INPUTS / 2 + 1)).unwrap_err().to_string().contains("more than 256 values"));
    let nul = npm(json!({"packageArguments": [{"type": "positional", "value": "a\0b"}]}));
    assert!(read(nul).unwrap_err().to_string().contains("holds a NUL"));
}
