//! How a package gets here: the rows A1 to A13.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;

use crate::command::Ended;
use crate::fake::{Call, Ending, Fake, FakeProxy, Identity, Reply};
use crate::image::{Built, Image, sha256};
use crate::needs;
use crate::patience::{PATIENCE, within};
use crate::place;
use crate::world::{User, World, as_each_user};

as_each_user! {
    a1_twenty_first_runs_download_once,
    a1_a_killed_pull_leaves_nothing_half,
    a2_what_is_there_runs_without_a_packet,
    a2_a_tag_that_cannot_be_looked_up_says_so_once,
    a3_an_empty_environment,
    a4_a_registry_that_asks_for_nothing_basic_or_bearer,
    a4_every_place_of_credentials,
    a4_login_and_logout,
    a5_credentials_stay_with_their_host,
    a6_a_registry_that_is_ill_for_a_moment,
    a7_a_private_authority_behind_a_proxy,
    a8_a_registry_that_lies,
    a8_digests_by_sha512,
    a9_references_in_every_form,
    a10_a_removed_package_runs_on,
    a11_a_full_disk,
    a12_an_index_without_this_platform,
    a12_the_best_of_two_variants,
    a13_who_sees_a_download,
}

/// The right answer to a request for an image.
fn answer(image: &Built, call: &Call) -> Reply {
    let path = call.path.split('?').next().unwrap_or_default();
    if path == "/v2/" {
        return Reply::new(200, "{}");
    }
    if path.contains("/manifests/") {
        return match path.rsplit('/').next() {
            Some(digest) if digest.contains(':') && digest != image.manifest.digest => Reply::new(404, ""),
            _ => Reply::new(200, &*image.manifest.bytes).header("content-type", image.manifest.media_type),
        };
    }
    let digest = path.rsplit('/').next().unwrap_or_default();
    let Some(blob) = [&image.config, &image.layer].into_iter().find(|blob| blob.digest == digest) else {
        return Reply::new(404, "");
    };
    match call.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok())
    {
        Some(from) => Reply::new(206, &blob.bytes[from..])
            .header("content-range", format!("bytes {from}-{}/{}", blob.bytes.len() - 1, blob.bytes.len())),
        None => Reply::new(200, &*blob.bytes),
    }
}

/// A registry of one image, whose answers `change` changes.
pub fn registry(image: &Built, change: impl Fn(&Call, Reply) -> Reply + Send + Sync + 'static) -> Fake {
    let image = image.clone();
    Fake::serve(move |call| change(call, answer(&image, call)))
}

fn unauthorized(challenge: &str) -> Reply {
    Reply::new(401, "").header("www-authenticate", challenge)
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Lets through who shows `want`.
fn locked(image: &Built, want: String) -> Fake {
    registry(image, move |call, reply| match call.header("authorization") == Some(&want) {
        true => reply,
        false => unauthorized(r#"Basic realm="here""#),
    })
}

fn a1_twenty_first_runs_download_once(world: &World) {
    let image = Image::probe().build();
    let fake = registry(&image, |_, reply| reply);
    let reference = format!("{}/test/probe:v1", fake.host);
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| world.smcp(["run", &reference, "exit", "4"]).run().expect(4));
        }
    });
    for blob in [&image.config, &image.layer] {
        assert_eq!(fake.count("GET", &blob.digest), 1);
    }
}

fn a1_a_killed_pull_leaves_nothing_half(world: &World) {
    let image = Image::probe().build();
    let slow = registry(&image, |call, reply| match call.path.contains("/blobs/") && reply.body.len() > 100_000 {
        true => reply.ending(Ending::StallAfter(100_000)),
        false => reply,
    });
    let mirror = registry(&image, |_, reply| reply);
    let mut pull = world.smcp(["pull", &format!("{}/test/probe:v1", slow.host)]).start();
    let unfinished = || {
        let files = fs::read_dir(world.store().join("tmp")).into_iter().flatten().flatten();
        files.filter(|file| file.metadata().is_ok_and(|about| about.len() >= 65_536)).count()
    };
    within(PATIENCE, || (unfinished() > 0).then_some(())).expect("the layer began to arrive");
    assert!(!pull.has_ended());
    pull.signal(Signal::KILL);
    pull.wait_killed();
    for blob in fs::read_dir(world.store().join("blobs/sha256")).unwrap().flatten() {
        assert_eq!(sha256(&fs::read(blob.path()).unwrap()), blob.file_name().into_string().unwrap());
    }
    world.smcp(["run", &format!("{}/test/probe:v1", mirror.host), "exit", "4"]).run().expect(4);
    assert_eq!(fs::read_dir(world.store().join("tmp")).unwrap().count(), 0, "the next one sweeps");
}

fn a2_what_is_there_runs_without_a_packet(world: &World) {
    if needs::program("strace", "strace").is_none() {
        return;
    }
    let image = Image::probe().build();
    let fake = registry(&image, |_, reply| reply);
    let by_tag = format!("{}/test/probe:v1", fake.host);
    let by_digest = format!("{}/test/probe@{}", fake.host, image.manifest.digest);
    world.smcp(["pull", &by_tag]).run().ok();
    for (flags, reference) in
        [(&[][..], &by_tag), (&[], &by_digest), (&["--offline"], &by_tag), (&["--refresh"], &by_digest)]
    {
        let trace = world.path("tmp/trace");
        let ended = world
            .program("/usr/bin/strace", ["--output"])
            .args([trace.as_os_str(), "-e".as_ref(), "trace=socket,connect,openat".as_ref(), place::smcp().as_os_str()])
            .args(["run"])
            .args(flags)
            .args([reference, "exit", "4"])
            .run()
            .expect(4);
        let text = fs::read_to_string(&trace).unwrap();
        for word in ["AF_INET", "resolv.conf", "ssl/cert", "credentials.json", "containers/auth.json"] {
            ended.check(!text.contains(word), &format!("{word} in the trace of {flags:?} {reference}: {text}"));
        }
        assert!(
            text.contains("index.json") || text.contains("refs/") || text.contains("blobs/"),
            "a trace of a start: {text}"
        );
        fs::remove_file(trace).unwrap();
    }
}

/// A configuration file, to be named by `MCP_CONFIG`.
fn configuration(world: &World, text: &str) -> PathBuf {
    world.file("config.yaml", text)
}

fn a2_a_tag_that_cannot_be_looked_up_says_so_once(world: &World) {
    let fake = registry(&Image::probe().build(), |_, reply| reply);
    // Nobody listens on port 1 of this machine; its mirror does while there is one.
    let mirrored = configuration(world, &format!("registries:\n  localhost:1: {{mirrors: [\"{}\"]}}\n", fake.host));
    world.smcp(["pull", "localhost:1/test/probe:v1"]).env("MCP_CONFIG", mirrored).run().ok();
    for arguments in
        [&["run", "--refresh", "localhost:1/test/probe:v1", "exit", "4"][..], &["pull", "localhost:1/test/probe:v1"]]
    {
        let ended = world.smcp(arguments).run().expect(if arguments[0] == "run" { 4 } else { 0 });
        let warnings = ended.stderr().lines().filter(|line| line.contains("may be old")).count();
        ended.check(warnings == 1, "one warning was expected");
        ended.says(&["localhost:1", "refused"]);
    }
}

fn a3_an_empty_environment(world: &World) {
    let home = format!("HOME={}", world.text("home"));
    let smcp = place::smcp().to_str().unwrap();
    let bare = |reference: &str, more: &[&str]| {
        world.program("/usr/bin/env", ["-i", &home]).args(more).args([smcp, "run", reference, "exit", "4"]).run()
    };
    bare(&Image::probe().build().write(&world.directory("own")), &[]).expect(4);
    let needs_host =
        Image::probe().manifest(|m| m["hostRuntime"] = serde_json::json!({"interpreter": "python3"})).build();
    let ended = bare(&needs_host.write(&world.directory("hosts")), &["PATH=/nowhere"]).expect(127);
    ended.explains(&["python3", "PATH"]);
}

fn a4_a_registry_that_asks_for_nothing_basic_or_bearer(world: &World) {
    let image = Image::probe().build();
    world.smcp(["pull", &format!("{}/test/probe:v1", registry(&image, |_, reply| reply).host)]).run().ok();
    world.smcp(["cache", "rm", "--all"]).run().ok();
    let token = AtomicU16::new(0);
    let bearer = registry(&image, move |call, reply| {
        if call.path.starts_with("/token?") {
            return Reply::new(200, format!(r#"{{"access_token": "t{}"}}"#, token.fetch_add(1, Ordering::SeqCst) + 1));
        }
        // Each token is good for what follows the next one's beginning: the blobs meet an old one.
        let now = token.load(Ordering::SeqCst);
        let old = call.path.contains("/blobs/") && now < 2;
        match call.header("authorization") {
            Some(shown) if now > 0 && !old && shown == format!("Bearer t{now}") => reply,
            _ => unauthorized(r#"Bearer realm="/token",service="here""#),
        }
    });
    world.smcp(["run", &format!("{}/test/probe:v1", bearer.host), "exit", "4"]).run().expect(4);
    assert_eq!(bearer.count("GET", "/token?"), 3, "one, one in the middle of it, one of the process that fetches");
    let fake = locked(&Image::probe().file("x", 0o644, "4").build(), basic("u", "p"));
    let ended = world.smcp(["pull", &format!("{}/test/probe:v1", fake.host)]).run().expect(120);
    ended.explains(&[&fake.host, "asks for credentials", "smcp login"]);
}

fn a4_every_place_of_credentials(world: &World) {
    let image = Image::probe().build();
    let helper = |name: &str, text: &str| {
        let path = world.file(&format!("tmp/docker-credential-{name}"), text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // One that knows a registry by what it is asked on stdin, and one that knows none.
    helper(
        "knows",
        "#!/bin/sh\n[ \"$1\" = get ] && read host && printf '{\"ServerURL\":\"%s\",\"Username\":\"u\",\"Secret\":\"p\"}' \"$host\"\n",
    );
    helper("empty", "#!/bin/sh\necho credentials not found in native keychain; exit 1\n");
    helper("broken", "#!/bin/sh\necho oops; exit 1\n");
    helper("chatty", "#!/bin/sh\necho 'not JSON sesame'\n");
    let entry = |host: &str| format!(r#""{host}": {{"auth": "{}"}}"#, STANDARD.encode("u:p"));
    let path = format!("{}:/usr/bin:/bin", world.text("tmp"));
    type Config = fn(&str, &str) -> String;
    let table: [(&str, Config, i32, &str); 8] = [
        ("auths", |_, entry| format!(r#"{{"auths": {{{entry}}}}}"#), 0, ""),
        ("credHelpers", |host, _| format!(r#"{{"credHelpers": {{"{host}": "knows"}}}}"#), 0, ""),
        ("credsStore", |host, _| format!(r#"{{"credsStore": "knows", "auths": {{"{host}": {{}}}}}}"#), 0, ""),
        ("auths after an empty store", |_, entry| format!(r#"{{"credsStore": "empty", "auths": {{{entry}}}}}"#), 0, ""),
        ("nobody", |_, _| r#"{"credsStore": "empty"}"#.into(), 120, "there are none for it"),
        ("a broken helper", |_, _| r#"{"credsStore": "broken"}"#.into(), 120, "docker-credential-broken"),
        ("a chatty helper", |_, _| r#"{"credsStore": "chatty"}"#.into(), 120, "docker-credential-chatty"),
        (
            "a helper that is a path",
            |_, _| r#"{"credsStore": "../../bin/sh"}"#.into(),
            120,
            "not the name of a program",
        ),
    ];
    for (what, config, code, says) in table {
        let fake = locked(&image, basic("u", "p"));
        let text = config(&fake.host, &entry(&fake.host));
        let world = World::new(world.user());
        for (variable, name) in [
            ("REGISTRY_AUTH_FILE", "auth.json"),
            ("DOCKER_CONFIG", "docker/config.json"),
            ("XDG_CONFIG_HOME", "config/containers/auth.json"),
            ("XDG_RUNTIME_DIR", "run/containers/auth.json"),
        ] {
            let file = world.path(name);
            world.directory(Path::new(name).parent().unwrap().to_str().unwrap());
            world.file(name, &text);
            let value = match variable {
                "REGISTRY_AUTH_FILE" => file.clone(),
                "DOCKER_CONFIG" => file.parent().unwrap().to_owned(),
                _ => file.parent().unwrap().parent().unwrap().to_owned(),
            };
            world.smcp(["cache", "rm", "--all"]).run().ok();
            let ended = world
                .smcp(["pull", &format!("{}/test/probe:v1", fake.host)])
                .env(variable, value)
                .env("PATH", &path)
                .run();
            ended.check(ended.code() == code, &format!("{what} by {variable}: exit {code} was expected"));
            ended.says(&[says]);
            ended.check(!ended.stderr().contains("sesame"), "an answer of a helper is shown");
            fs::remove_file(file).unwrap();
        }
    }
    // A token that the environment has, for the configured registry and by name.
    let fake = locked(&image, "Bearer t0".into());
    let reference = format!("{}/test/probe:v1", fake.host);
    let url = format!("http://{}", fake.host);
    let config = configuration(world, &format!("registries:\n  \"{}\": {{token_env: MY_TOKEN}}\n", fake.host));
    for (variable, more) in [
        ("MCP_REGISTRY_TOKEN", ("MCP_REGISTRY_URL", url.as_str())),
        ("MY_TOKEN", ("MCP_CONFIG", config.to_str().unwrap())),
    ] {
        world.smcp(["cache", "rm", "--all"]).run().ok();
        let pull = || world.smcp(["pull", &reference]).env(more.0, more.1);
        pull().run().expect(120);
        pull().env(variable, "t0").run().ok();
    }
}

fn a4_login_and_logout(world: &World) {
    let fake = locked(&Image::probe().build(), basic("u", "p"));
    let reference = format!("{}/test/probe:v1", fake.host);
    let file = world.path("home/.smcp/credentials.json");
    let login =
        |password: &str| world.smcp(["login", &fake.host, "--username", "u", "--password-stdin"]).stdin(password).run();
    login("wrong\n").expect(120).explains(&["does not accept"]);
    assert!(!file.exists());
    login("").expect(2);
    login("p\n").ok().says(&["logged in to", &fake.host]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    world.smcp(["pull", &reference]).run().ok();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    world.smcp(["cache", "rm", "--all"]).run().ok();
    world.smcp(["pull", &reference]).run().expect(120).says(&["credentials.json", "chmod 600"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    world.smcp(["logout", &fake.host]).run().ok().says(&["logged out"]);
    world.smcp(["pull", &reference]).run().expect(120);
    assert!(!file.exists());
    let tokens = locked(&Image::probe().build(), "Token id:secret".into());
    world.smcp(["login", &tokens.host, "--token", "-"]).stdin("id:secret\n").run().ok();
    world.smcp(["pull", &format!("{}/test/probe:v1", tokens.host)]).run().ok();
    for wrong in [
        &["login"][..],
        &["login", "--token", "t", "--username", "u"],
        &["login", "--username", "u"],
        &["login", "--password-stdin"],
    ] {
        world.smcp(wrong).run().expect(2);
    }
    // No secret of it is in the log, which is of runs alone.
    assert!(!world.audit_text().contains("secret"));
}

fn a5_credentials_stay_with_their_host(world: &World) {
    let image = Image::probe().build();
    let other = registry(&image, |_, reply| reply);
    let target = other.host.clone();
    let redirects = registry(&image, move |call, reply| match call.header("authorization") {
        None => unauthorized("Basic"),
        Some(_) if call.path.contains("/blobs/") => {
            Reply::new(302, "").header("location", format!("http://{target}{}", call.path))
        }
        Some(_) => reply,
    });
    world.smcp(["login", &redirects.host, "--username", "u", "--password-stdin"]).stdin("p").run().ok();
    world.smcp(["run", &format!("{}/test/probe:v1", redirects.host), "exit", "4"]).run().expect(4);
    assert_eq!(other.calls().len(), 2, "configuration and layer");
    assert!(other.calls().iter().all(|call| call.header("authorization").is_none()));
    // Another registry, which asks; and a token that is the configured registry's.
    let asks =
        registry(&Image::probe().file("x", 0o644, "5").build(), |_, _| unauthorized("Basic, Bearer realm=\"/token\""));
    let pull = world.smcp(["pull", &format!("{}/test/probe:v1", asks.host)]).env("MCP_REGISTRY_TOKEN", "t0");
    pull.run().expect(120).explains(&[&asks.host]);
    let pull = world
        .smcp(["pull", "--registry", &format!("http://{}", asks.host), "test/probe:v1"])
        .env("MCP_REGISTRY_TOKEN", "t0");
    pull.run().expect(120);
    assert!(asks.calls().iter().all(|call| call.header("authorization").is_none()));
    for (location, says) in
        [("http://192.0.2.1/x", "plain http to another machine"), ("ftp://192.0.2.1/x", "neither http nor https")]
    {
        let downgrades = registry(&image, move |_, _| Reply::new(302, "").header("location", location));
        world.smcp(["pull", &format!("{}/test/other:v1", downgrades.host)]).run().expect(120).says(&[says]);
    }
}

fn a6_a_registry_that_is_ill_for_a_moment(world: &World) {
    let image = Image::probe().build();
    let seen = std::sync::Mutex::new(BTreeMap::<String, usize>::new());
    let length = image.layer.bytes.len();
    let fake = registry(&image, move |call, reply| {
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(call.path.clone()).or_default();
        *times += 1;
        match (call.path.contains("/manifests/"), *times) {
            (true, 1) => Reply::new(429, "").header("retry-after", "1"),
            (false, 1) if reply.body.len() == length => reply.ending(Ending::CutAfter(length / 2)),
            (false, 1 | 2) if reply.body.len() < length / 4 => Reply::new(500, ""),
            _ => reply,
        }
    });
    let reference = format!("{}/test/probe:v1", fake.host);
    world.smcp(["run", &reference, "exit", "4"]).run().expect(4);
    let ranges: Vec<_> = fake.calls().iter().filter_map(|call| call.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges, [format!("bytes={}-", length / 2)]);

    let mood = Arc::new(AtomicU16::new(200));
    let now = mood.clone();
    let fake = registry(&image, move |_, reply| match now.load(Ordering::SeqCst) {
        200 => reply,
        status => Reply::new(status, "").header("retry-after", "3600"),
    });
    let reference = format!("{}/test/probe:v1", fake.host);
    world.smcp(["pull", &reference]).run().ok();
    mood.store(503, Ordering::SeqCst);
    let ended = world.smcp(["run", "--refresh", &reference, "exit", "4"]).run().expect(4);
    ended.says(&["may be old", "503"]);
    world.smcp(["pull", &format!("{}/test/probe:v2", fake.host)]).run().expect(120).explains(&["503"]);
}

/// A certificate authority that the world's user can read.
fn identity(world: &World) -> Option<Identity> {
    needs::program("openssl", "openssl")?;
    let identity = Identity::new(&world.directory("tls")).expect("openssl is there");
    for file in [identity.ca(), identity.key(), identity.certificate()] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    Some(identity)
}

fn a7_a_private_authority_behind_a_proxy(world: &World) {
    let Some(identity) = identity(world) else { return };
    let image = Image::probe().build();
    let served = image.clone();
    let fake = Fake::serve_tls(&identity, move |call| answer(&served, call));
    let proxy = FakeProxy::serve(&[("registry.test:443", &fake.host)], &basic("u", "p@ss"));
    let reference = "registry.test/test/probe:v1";
    let pull = |proxy: &str| world.smcp(["pull", reference]).env("HTTPS_PROXY", proxy);
    let url = format!("http://u:p%40ss@{}", proxy.host);
    pull(&url).run().expect(120).explains(&["registry.test", "ertificate", "SSL_CERT_FILE"]);
    pull(&url).env("SSL_CERT_FILE", identity.ca()).run().ok();
    world.smcp(["run", "--offline", reference, "exit", "4"]).run().expect(4);
    // The same from the configuration, for clients that pass no environment.
    world.smcp(["cache", "rm", "--all"]).run().ok();
    let text = format!(
        "proxy: {{https: \"{url}\"}}\nregistries:\n  registry.test: {{ca_file: {}}}\n",
        identity.ca().display()
    );
    let config = configuration(world, &text);
    world.smcp(["pull", reference]).env("MCP_CONFIG", &config).run().ok();
    assert!(proxy.targets().iter().all(|target| target == "registry.test:443"));
    // One that is refused, and one that is no url: neither shows its password.
    world.smcp(["cache", "rm", "--all"]).run().ok();
    for wrong in [format!("http://u:sesame@{}", proxy.host), "http://u:sesame@".into()] {
        let ended = pull(&wrong).env("SSL_CERT_FILE", identity.ca()).run().expect(120);
        ended.check(!ended.stderr().contains("sesame"), "a password is shown");
    }
    // Who is asked in the registry's place is named where it does not answer.
    let dead = "http://u:sesame@127.0.0.1:1";
    let ended = pull(dead).env("SSL_CERT_FILE", identity.ca()).run().expect(120);
    ended.explains(&["registry.test", "by the proxy 127.0.0.1:1"]);
    ended.check(!ended.stderr().contains("sesame"), "a password is shown");
    // This machine's own registries need no proxy, and NO_PROXY names others: its file of names would be asked.
    let here = registry(&image, |_, reply| reply);
    pull(&url).args([format!("{}/test/probe:v1", here.host)]).env("SSL_CERT_FILE", identity.ca()).run().ok();
    let before = proxy.targets().len();
    world.smcp(["pull", &format!("{}/test/probe:v1", here.host)]).env("HTTPS_PROXY", &url).run().ok();
    assert_eq!(proxy.targets().len(), before);
    no_proxy(world, &identity, &image);
}

/// In a network of its own, where 10.9.9.9 is this machine: reached directly where NO_PROXY says so.
fn no_proxy(world: &World, identity: &Identity, image: &Built) {
    let (Some(unshare), Some(_), Some(_)) = (
        needs::program("unshare", "util-linux"),
        needs::program("ip", "iproute2"),
        needs::program("openssl", "openssl"),
    ) else {
        return;
    };
    let files = world.directory("served");
    let authority = format!("registries:\n  10.9.9.9: {{ca_file: {}}}\n", identity.ca().display());
    let with = |name: &str, proxy: &str| world.file(name, format!("{authority}proxy: {{{proxy}}}\n"));
    image.write(&files);
    let script = format!(
        r#"ip link set lo up && ip addr add 10.9.9.9/32 dev lo || exit 99
(cd {served} && exec openssl s_server -quiet -accept 10.9.9.9:443 -cert {cert} -key {key} -WWW >/dev/null 2>&1) & server=$!
for i in $(seq 200); do ss -ltn | grep -q 10.9.9.9:443 && break; sleep 0.05; done
by() {{
  what=$1; shift; "$@" pull 10.9.9.9/test/probe:v1 2>"$TMPDIR/said"; code=$?
  how=$(grep -o 'not valid for name\|refused' "$TMPDIR/said" | head -n1); [ -n "$how" ] || cat "$TMPDIR/said" >&2
  echo "$what $code $how"
}}
by proxy env "$@"
by NO_PROXY env NO_PROXY=10.0.0.0/8 "$@"
by no_proxy env no_proxy=.example,10.9.9.9 "$@"
by another env NO_PROXY=.example "$@"
by MCP_PROXY_NO_PROXY env MCP_PROXY_NO_PROXY=10.0.0.0/8 "$@"
by file env -u HTTPS_PROXY MCP_CONFIG={proxied} "$@"
by file-no_proxy env -u HTTPS_PROXY MCP_CONFIG={direct} "$@"
by beaten env -u HTTPS_PROXY NO_PROXY=.example MCP_CONFIG={direct} "$@"
kill $server"#,
        served = files.display(),
        cert = identity.certificate().display(),
        key = identity.key().display(),
        proxied = with("proxied.yaml", "https: \"http://10.9.9.9:1\"").display(),
        direct = with("direct.yaml", "https: \"http://10.9.9.9:1\", no_proxy: \".example,10.0.0.0/8\"").display(),
    );
    let smcp = place::smcp().to_str().unwrap();
    let config = configuration(world, &authority);
    let ended = world
        .program(unshare, ["--user", "--map-root-user", "--net", "sh", "-c", &script, "sh", smcp])
        .env("MCP_CONFIG", config)
        .env("HTTPS_PROXY", "http://10.9.9.9:1")
        .run();
    // By the proxy nobody answers; directly it is the name in the certificate that does not fit.
    let expected = "proxy 120 refused\nNO_PROXY 120 not valid for name\nno_proxy 120 not valid for name\nanother 120 refused\n\
        MCP_PROXY_NO_PROXY 120 not valid for name\nfile 120 refused\nfile-no_proxy 120 not valid for name\nbeaten 120 refused\n";
    ended.check(ended.text() == expected, "other ways were expected");
}

fn a8_a_registry_that_lies(world: &World) {
    let image = Image::probe().build();
    let other = Image::probe().manifest(|m| m["version"] = "2.0.0".into()).build();
    world.smcp(["pull", &other.write(&world.directory("other"))]).run().ok();
    let before = world.store_listing();
    type Lie = fn(&Call, Reply) -> Reply;
    let lies: [(&str, Lie); 8] = [
        ("another manifest", |call, reply| {
            if call.path.contains("/manifests/") { Reply { body: b"{}".into(), ..reply } } else { reply }
        }),
        ("a digest that is a path", |_, reply| reply.header("docker-content-digest", "sha256:../../../x")),
        ("an upper-case digest", |_, reply| {
            let digest = format!("sha256:{}", sha256(&reply.body).to_uppercase());
            reply.header("docker-content-digest", digest)
        }),
        ("a short digest", |_, reply| reply.header("docker-content-digest", "sha256:12")),
        ("other bytes", |call, mut reply| {
            if call.path.contains("/blobs/") {
                reply.body[0] ^= 1;
            }
            reply
        }),
        ("a byte less", |call, mut reply| {
            if call.path.contains("/blobs/") {
                reply.body.pop();
            }
            reply
        }),
        ("a byte more", |call, mut reply| {
            if call.path.contains("/blobs/") {
                reply.body.push(0);
            }
            reply
        }),
        ("no end", |call, reply| if call.path.contains("/blobs/") { reply.ending(Ending::Never) } else { reply }),
    ];
    for (what, lie) in lies {
        let fake = registry(&image, lie);
        for reference in
            [format!("{}/test/probe:v1", fake.host), format!("{}/test/probe@{}", fake.host, image.manifest.digest)]
        {
            let ended = world.smcp(["pull", &reference]).run();
            // What a header says of a digest that was asked for by name does not matter.
            let believed = reference.contains('@') && what.contains("digest");
            ended.check(ended.code() == if believed { 0 } else { 122 }, &format!("{what}: {reference}"));
            if believed {
                world.smcp(["cache", "rm", &reference]).run().ok();
            }
        }
        assert_eq!(world.store_listing(), before, "{what}");
    }
    // What a manifest points at, and what it is: U58 to U62 of the hostile archives; U50 is above.
    let manifest = String::from_utf8(image.manifest.bytes.clone()).unwrap();
    let changed = |change: fn(&mut serde_json::Value)| {
        let mut value: serde_json::Value = serde_json::from_str(&manifest).unwrap();
        change(&mut value);
        value.to_string()
    };
    let entry = format!(r#"{{"mediaType":"x","digest":"sha256:{}","size":1}}"#, "0".repeat(64));
    let entries = vec![entry; 65].join(",");
    let own = format!("sha256:{}", "0".repeat(64));
    for (what, text) in [
        ("a path", manifest.replace(&image.layer.digest, "sha256:../../../../../../../../etc/passwd")),
        ("upper case", manifest.replace(&image.layer.digest, &image.layer.digest.to_uppercase())),
        ("another algorithm", manifest.replace(&image.layer.digest, &format!("sha384:{}", "0".repeat(96)))),
        ("a url", manifest.replacen("\"size\"", "\"urls\":[\"https://192.0.2.1/x\"],\"size\"", 2)),
        ("two of a key", manifest.replacen("{", "{\"config\":{},", 1)),
        ("a manifest and an index", manifest.replacen("{", "{\"manifests\":[],", 1)),
        ("a large configuration", changed(|m| m["config"]["size"] = (9 << 20).into())),
        (
            "a configuration that is none",
            changed(|m| m["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json".into()),
        ),
        (
            "a layer that may not be distributed",
            changed(|m| m["layers"][0]["mediaType"] = "application/vnd.oci.image.layer.nondistributable.v1.tar".into()),
        ),
        (
            "more layers than diff ids",
            changed(|m| {
                let layer = m["layers"][0].clone();
                m["layers"].as_array_mut().unwrap().push(layer)
            }),
        ),
        (
            "65 entries",
            format!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{entries}]}}"#
            ),
        ),
        ("schema 1", r#"{"schemaVersion":1,"fsLayers":[],"history":[]}"#.into()),
        (
            "an index of itself",
            format!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"{own}","size":1}}]}}"#
            ),
        ),
        ("deep", format!("{}{}", "[".repeat(70), "]".repeat(70))),
        ("large", format!("{{\"x\":\"{}\"}}", "x".repeat(4 << 20))),
    ] {
        let index = text.contains("image.index");
        let fake = registry(&image, move |call, reply| {
            if !call.path.contains("/manifests/") {
                return reply;
            }
            let kind = if index {
                "application/vnd.oci.image.index.v1+json"
            } else {
                "application/vnd.oci.image.manifest.v1+json"
            };
            Reply::new(200, text.clone()).header("content-type", kind)
        });
        let ended = world.smcp(["pull", &format!("{}/test/probe:v1", fake.host)]).run();
        ended.check(ended.code() == 122 || index && ended.code() == 120, &format!("{what} was expected to be refused"));
        assert_eq!(world.store_listing(), before, "{what}");
    }
    world.smcp(["run", &format!("oci-layout:{}:v1", world.text("other")), "exit", "4"]).run().expect(4);
}

/// Fetched, compared, kept, published, removed as those by SHA-256 are (U59).
fn a8_digests_by_sha512(world: &World) {
    let image = Image::probe().build().by_sha512();
    let fake = registry(&image, |_, reply| reply);
    let by_tag = format!("{}/test/probe:v1", fake.host);
    let pinned = format!("{}/test/probe@{}", fake.host, image.manifest.digest);
    let of_kind = |algorithm: &str| {
        let files = fs::read_dir(world.store().join("blobs").join(algorithm)).into_iter().flatten().flatten();
        files.map(|file| file.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let ended = world.smcp(["run", &pinned, "exit", "4"]).run().expect(4);
    ended.check(of_kind("sha256").is_empty(), "nothing by SHA-256 was expected");
    for blob in [&image.manifest, &image.config, &image.layer] {
        assert_eq!(fs::read(blob.path_in(&world.store())).unwrap(), blob.bytes);
    }
    world.smcp(["run", "--offline", &pinned, "exit", "5"]).run().expect(5);
    assert_eq!(world.last_end()["exit"], 5);
    world.smcp(["cache", "gc"]).run().ok();
    world.smcp(["cache", "verify"]).run().ok().says(&["3 blobs read"]);
    // By its tag the manifest is known by SHA-256, and what it names as it names it.
    world.smcp(["pull", &by_tag]).run().ok();
    assert_eq!((of_kind("sha256").len(), of_kind("sha512").len()), (1, 3));
    let copy = format!("oci-layout:{}:v1", world.text("tmp/copy"));
    world.smcp(["push", &pinned, &copy]).run().ok();
    world.smcp(["cache", "rm", "--all"]).run().ok();
    assert!(of_kind("sha512").is_empty());
    world.smcp(["run", &copy, "exit", "6"]).run().expect(6);
    let in_copy = format!("oci-layout:{}@{}", world.text("tmp/copy"), image.manifest.digest);
    world.smcp(["run", &in_copy, "exit", "7"]).run().expect(7);
    // One that is damaged is found, and set aside.
    let layer = image.layer.path_in(&world.store());
    let mut bytes = image.layer.bytes.clone();
    bytes[0] ^= 1;
    fs::write(&layer, bytes).unwrap();
    let ended = world.smcp(["cache", "verify"]).run().expect(1);
    ended.check(ended.text().contains(&image.layer.digest) && !layer.exists(), "the layer was expected to be named");
    // What is not what it was called.
    let lies = registry(&image, |call, mut reply| {
        if call.path.contains("/blobs/") || call.path.contains("/manifests/sha512:") {
            reply.body[0] ^= 1;
        }
        reply
    });
    for reference in [pinned, by_tag].map(|reference| reference.replace(&fake.host, &lies.host)) {
        world.smcp(["cache", "rm", "--all"]).run().ok();
        let ended = world.smcp(["pull", &reference]).run().expect(122);
        ended.check(of_kind("sha512").is_empty() && of_kind("sha256").is_empty(), "nothing was expected in the store");
    }
}

/// What each means is in the tests of `distribution/src/reference`; here it is what comes of them.
fn a9_references_in_every_form(world: &World) {
    let image = Image::probe().build();
    let fake = registry(&image, |_, reply| reply);
    let url = format!("http://{}", fake.host);
    let digest = &image.manifest.digest;
    image.write(&world.directory("layout"));
    let layout = world.text("layout");
    for (reference, path) in [
        ("acme/hello-world@1.2.3".into(), "/v2/acme/hello-world/manifests/1.2.3"),
        ("acme/tool@latest".into(), "/v2/acme/tool/manifests/latest"),
        (format!("acme/tool@{digest}"), "/v2/acme/tool/manifests/sha256:"),
        ("acme/other".into(), "/v2/acme/other/manifests/latest"),
        (format!("{}/o/r/n:tag", fake.host), "/v2/o/r/n/manifests/tag"),
        (format!("oci-layout:{layout}"), ""),
        (format!("oci-layout:{layout}:v1"), ""),
        (format!("oci-layout:{layout}@{digest}"), ""),
    ] {
        world.smcp(["cache", "rm", "--all"]).run().ok();
        let before = fake.calls().len();
        world.smcp(["pull", &reference]).env("MCP_REGISTRY_URL", &url).run().ok();
        let asked = fake.calls()[before..].iter().any(|call| !path.is_empty() && call.path.starts_with(path));
        assert!(asked || path.is_empty() && fake.calls().len() == before, "{reference}");
    }
    for source in ["npm:@scope/name@1.2", "pypi:name==1.2", "mcp:io.github.acme/x"] {
        let ended = world.smcp(["run", "--offline", source]).run().expect(120);
        ended.explains(&[&format!("{source} is not in the store")]);
    }
    for file in ["./dir", "./file.mcpb"] {
        world.smcp(["run", file]).run().expect(120).explains(&[&format!("cannot find {file}")]);
    }
    for (wrong, part) in [
        ("Acme/Hello", "Acme"),
        ("acme", "its end"),
        ("acme//hello", "/hello"),
        ("acme/hello@", "@"),
        ("acme/hello:", ":"),
        ("acme/hello:-x", "-x"),
        ("acme/hello:a b", " b"),
        ("acme/hello@sha256:12", "its end"),
        ("acme/hello@sha256:ABCDEF", "ABCDEF"),
        ("acme/hello@sha512:ab", "its end"),
        ("acme/hello@sha384:ab", "sha384"),
        ("acme/../hello", ".."),
        ("acme/.hello", ".hello"),
        ("acme/hello_", "_"),
        ("https://acme.example/hello", "://"),
        ("localhost:99999/a/b", "99999"),
        ("[::x]:1/a/b", "::x"),
        ("npm:", "its end"),
        ("npm:@scope", "its end"),
        ("pypi:a b", " b"),
        ("pypi:a=1", "=1"),
        ("oci-layout:", "its end"),
        ("acme/hello:v1@sha256:12", ":v1"),
    ] {
        world.smcp(["run", wrong]).run().expect(2).explains(&[&format!("{wrong:?}"), part]);
    }
}

/// Removed while it runs: it goes on, and what another package shares stays.
fn a10_a_removed_package_runs_on(world: &World) {
    let one = Image::probe().build();
    let two = Image::probe().manifest(|m| m["version"] = "2.0.0".into()).build();
    assert_eq!(one.layer.digest, two.layer.digest, "the layer is shared");
    let [one, two] = [("one", one), ("two", two)].map(|(name, image)| image.write(&world.directory(name)));
    world.smcp(["pull", &one, &two]).run().ok();
    let mut running = world.smcp(["run", &one, "until-eof", "4"]).start();
    running.await_ready();
    world.smcp(["cache", "rm", &one]).run().ok();
    assert!(!running.has_ended());
    world.smcp(["run", "--offline", &two, "exit", "5"]).run().expect(5);
    drop(running.take_stdin());
    running.wait().expect(4);
}

/// On file systems of their own that are full: during the pull, the unpack, and the first entry of the log.
fn a11_a_full_disk(world: &World) {
    let Some(unshare) = needs::program("unshare", "util-linux") else { return };
    let noise: Vec<u8> = (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let image = Image::probe().file("noise", 0o644, noise).build();
    let fake = registry(&image, |_, reply| reply);
    let reference = format!("{}/test/probe:v1", fake.host);
    let blob = image.layer.bytes.len();
    let cache = world.directory("cache");
    world.directory("cache/store");
    for (what, left) in [("the pull", blob / 2), ("the unpack", blob + blob / 4)] {
        let script = format!(
            r#"mount -t tmpfs -o mode=700,size=64m none {cache} && head -c $((64 * 1024 * 1024 - {left})) /dev/zero >{cache}/fill || exit 99
"$@" pull {reference}; full=$?
cd {cache}/store; ls layers | sed 's/^/layer /'
find blobs/sha256 -type f | while read blob; do [ "$(sha256sum <$blob | cut -c1-64)" = "${{blob##*/}}" ] || echo bad; done
rm {cache}/fill; "$@" pull {reference} >/dev/null; echo $full $?"#,
            cache = cache.display(),
        );
        let smcp = place::smcp().to_str().unwrap();
        let ended =
            world.program(&unshare, ["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh", smcp]).run();
        ended.check(ended.text() == "120 0\n", &format!("{what}: a clear error and then success were expected"));
        ended.explains(&["No space left on device"]);
    }
    let log = world.directory("log");
    let script = format!(
        r#"mount -t tmpfs -o size=64k none {log} && chmod 777 {log} || exit 99
cat /dev/zero >{log}/fill 2>/dev/null; "$@"; full=$?
rm {log}/fill; "$@"; echo $full $?"#,
        log = log.display()
    );
    // The cage needs the user's own namespaces: the disk alone is of another one.
    if world.user() == User::Root {
        let run = [place::smcp().to_str().unwrap(), "run", &reference, "exit", "4"];
        let ended = world.program(&unshare, ["--mount", "sh", "-c", &script, "sh"]).args(run).run();
        ended.check(ended.text() == "118 4\n", "the log's code and then the server's were expected");
        ended.says(&["No space left on device"]);
    }
}

fn a12_an_index_without_this_platform(world: &World) {
    let image = Image::probe().build();
    let reference = image.write_for(&world.directory("image"), &[("windows", "amd64"), ("linux", "s390x")]);
    world.smcp(["run", &reference]).run().expect(120).explains(&["no image for linux/", "windows/amd64, linux/s390x"]);
}

fn a12_the_best_of_two_variants(world: &World) {
    let (architecture, good) = if cfg!(target_arch = "x86_64") { ("amd64", "v1") } else { ("arm64", "v8") };
    let image = Image::probe().build();
    let directory = world.directory("image");
    let reference = image.write_for(&directory, &[("linux", architecture), ("linux", architecture)]);
    // The first of them is for a processor that nobody has; its manifest is not even there.
    let index = fs::read(directory.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let old = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let path = |digest: &str| directory.join("blobs/sha256").join(digest.trim_start_matches("sha256:"));
    let mut inner: serde_json::Value = serde_json::from_slice(&fs::read(path(&old)).unwrap()).unwrap();
    inner["manifests"][0]["platform"]["variant"] = "v99".into();
    inner["manifests"][0]["digest"] = format!("sha256:{}", "0".repeat(64)).into();
    inner["manifests"][1]["platform"]["variant"] = good.into();
    let bytes = inner.to_string().into_bytes();
    let digest = format!("sha256:{}", sha256(&bytes));
    fs::write(path(&digest), &bytes).unwrap();
    let text = index.to_string().replace(&old, &digest);
    let mut index: serde_json::Value = serde_json::from_str(&text).unwrap();
    index["manifests"][0]["size"] = bytes.len().into();
    fs::write(directory.join("index.json"), index.to_string()).unwrap();
    world.smcp(["run", &reference, "exit", "4"]).run().expect(4);
}

fn a13_who_sees_a_download(world: &World) {
    let small = Image::probe().build();
    let large = Image::probe().file("large", 0o644, vec![0; 17 << 20]).build();
    let [small, large] = [small, large].map(|image| registry(&image, |_, reply| reply));
    let reference = |fake: &Fake| format!("{}/test/probe:v1", fake.host);
    let fresh = |command: &[&str], env: &[(&str, &str)]| -> Ended {
        world.smcp(["cache", "rm", "--all"]).run().ok();
        let command = world.smcp(command);
        env.iter().fold(command, |command, (name, value)| command.env(*name, *value)).run()
    };
    let (small, large) = (reference(&small), reference(&large));
    // Nobody gave these packages a score.
    let quiet = |ended: Ended| {
        let stderr = ended.stderr();
        let more = stderr.lines().find(|line| !line.contains("has no security score"));
        ended.check(more.is_none(), "nothing of the download was expected on stderr");
    };
    quiet(fresh(&["pull", &large], &[]).ok());
    quiet(fresh(&["run", &small, "exit", "4"], &[]).expect(4));
    quiet(fresh(&["run", "--quiet", &large, "exit", "4"], &[]).expect(4));
    quiet(fresh(&["pull", "--quiet", &large], &[("CI", "true")]).ok());
    // A client waits for this one: it is told what to do.
    let ended = fresh(&["run", &large, "exit", "4"], &[]).expect(4);
    ended.explains(&["before its first start", &format!("smcp pull {large}")]);
    let ended = fresh(&["pull", &small], &[("CI", "true")]).ok();
    ended.says(&["fetching", "1 layers", "fetched"]);
    ended.check(!ended.stderr().contains(['\u{1b}', '\r']), "plain lines were expected");
    ended.check(ended.text().lines().count() == 1, "one line on stdout was expected: name and digest");
    terminal(world, &large);
}

/// On a terminal there is a bar, without a colour, and it goes away.
fn terminal(world: &World, reference: &str) {
    if needs::program("script", "bsdutils").is_none() {
        return;
    }
    for (term, bar) in [("xterm", true), ("dumb", false)] {
        world.smcp(["cache", "rm", "--all"]).run().ok();
        let command = format!("{} pull {reference}", place::smcp().display());
        let ended = world
            .program("/usr/bin/script", ["-qec", &command, "/dev/null"])
            .env("TERM", term)
            .env("NO_COLOR", "1")
            .run()
            .ok();
        let text = ended.text();
        ended.check(text.contains("MiB/") == bar, "a bar was expected on a terminal that can show one");
        ended.check(!text.contains("\u{1b}[3"), "no colour was expected");
    }
}
