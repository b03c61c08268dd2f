//! The registry that Debian ships, and skopeo as the other reader of our store.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use distribution::media_type::*;
use distribution::*;

use crate::fake::{Fake, Identity, Reply};
use crate::world::{Cache, Content, cached, offline, there, through};

struct Debian {
    host: String,
    server: Child,
    _dir: tempfile::TempDir,
}

impl Debian {
    fn start() -> Option<Self> {
        Self::with("", "")
    }

    /// With more in its configuration: sections, and keys of `http`.
    fn with(sections: &str, http: &str) -> Option<Self> {
        if !there("docker-registry") {
            return None;
        }
        // A free port may be taken by another test before the registry has it.
        Some((0..5).find_map(|_| Self::try_start(sections, http)).expect("docker-registry serves on a free port"))
    }

    fn try_start(sections: &str, http: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let host = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let data = dir.path().join("data");
        let config = format!(
            "version: 0.1\nlog: {{accesslog: {{disabled: true}}}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '{host}'{http}}}\n{sections}",
            data.display()
        );
        fs::write(dir.path().join("config.yml"), config).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(dir.path().join("config.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut debian = Self { host, server: command.spawn().unwrap(), _dir: dir };
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until && debian.server.try_wait().unwrap().is_none() {
            if TcpStream::connect(&debian.host).is_ok() {
                return Some(debian);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn push_and_pull() {
    let Some(debian) = Debian::start() else { return };
    let big: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let content = Content::new(&[&big, b"layer two", b""]);
    let from = Cache::new();
    let name = format!("{}/mcp/everything:1.0", debian.host);
    content.put(&from.store, &name);
    let target: Reference = name.parse().unwrap();
    let pushed = push(&from.store, &content.manifest, &target, &cached()).unwrap();
    assert_eq!((pushed.uploaded, pushed.present, pushed.bytes > 20_000_000), (4, 0, true));
    assert_eq!(from.store.recall(&name).unwrap().unwrap().origin, Origin::Fetched);
    let pushed = push(&from.store, &content.manifest, &target, &cached()).unwrap();
    assert_eq!((pushed.uploaded, pushed.present), (0, 4));

    for suffix in [":1.0".to_string(), "@1.0".into(), format!("@{}", content.manifest.digest)] {
        let to = Cache::new();
        let image = to.pull(&format!("{}/mcp/everything{suffix}", debian.host), &cached()).unwrap();
        assert_eq!((&image.resolved.descriptor, &image.layers), (&content.manifest, &content.layers), "{suffix}");
        assert!(to.store.blob(&content.layers[0]).unwrap().unwrap().bytes().is_err(), "too large for memory");
        assert_eq!(to.files("blobs/sha256"), from.files("blobs/sha256"));
    }
    for missing in ["mcp/everything:2", "mcp/other:1"] {
        let error = Cache::new().pull(&format!("{}/{missing}", debian.host), &cached()).unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}

#[test]
fn an_index_with_its_images() {
    let Some(debian) = Debian::start() else { return };
    let from = Cache::new();
    let images = ["linux/amd64", "linux/arm64"].map(|platform| {
        let content = Content::new(&[platform.as_bytes(), b"shared"]);
        content.put(&from.store, platform);
        Descriptor { platform: platform.parse().ok(), ..content.manifest }
    });
    let index = from.store.put(&ImageIndex::new(images.to_vec()).to_bytes(), OCI_INDEX).unwrap();
    let name = format!("{}/acme/tool:1", debian.host);
    let pushed = push(&from.store, &index, &name.parse().unwrap(), &cached()).unwrap();
    assert_eq!(pushed.uploaded, 5, "two configurations, three layers");
    let net = Network { platform: "linux/arm64".parse().unwrap(), ..cached() };
    let image = Cache::new().pull(&name, &net).unwrap();
    assert_eq!((image.resolved.descriptor, image.resolved.manifest_descriptor), (index, images[1].clone()));
}

#[test]
fn skopeo_reads_the_store() {
    if !there("skopeo") {
        return;
    }
    let content = Content::new(&[b"layer"]);
    let cache = Cache::new();
    let name = "localhost:5000/acme/tool:1";
    content.put(&cache.store, name);
    let place = format!("oci:{}:{name}", cache.store.root().display());
    let copy = cache.dir.path().join("copy");
    let copied = Command::new("skopeo")
        .args(["copy", "--insecure-policy", "--preserve-digests", &place, &format!("oci:{}:v1", copy.display())])
        .output()
        .unwrap();
    assert!(copied.status.success(), "{copied:?}");
    let image = Cache::new().pull(&format!("oci-layout:{}:v1", copy.display()), &offline()).unwrap();
    assert_eq!(image.resolved.descriptor.digest, content.manifest.digest);
}

/// Access as u with the password p, where `right`.
fn as_somebody(host: &str, dir: &Path, right: bool) -> Access {
    let path = dir.join("config.json");
    let password = if right { "p" } else { "q" };
    fs::write(&path, format!(r#"{{"auths": {{"{host}": {{"username": "u", "password": "{password}"}}}}}}"#)).unwrap();
    let mut access = Access::default();
    access.credentials.docker = vec![DockerFile { path, named: true }];
    access
}

/// Publishes and pulls as somebody with a login, as somebody with a wrong one, and as nobody.
fn push_and_pull_as_somebody(debian: &Debian, change: impl Fn(Access) -> Access) {
    let content = Content::new(&[b"one", b"two"]);
    let from = Cache::new();
    let name = format!("{}/acme/tool:1", debian.host);
    let target: Reference = name.parse().unwrap();
    content.put(&from.store, &name);
    let right = through(change(as_somebody(&debian.host, from.dir.path(), true)));
    let wrong = through(change(as_somebody(&debian.host, &from.dir.path().join("store"), false)));
    for net in [&wrong, &through(change(Access::default()))] {
        let error = push(&from.store, &content.manifest, &target, net).unwrap_err();
        assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    }
    assert_eq!(push(&from.store, &content.manifest, &target, &right).unwrap().uploaded, 3);
    Cache::new().pull(&name, &right).unwrap();
    for net in [&wrong, &through(change(Access::default()))] {
        let error = Cache::new().pull(&name, net).unwrap_err();
        assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    }
}

#[test]
fn a4_basic_by_htpasswd() {
    if !there("htpasswd") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("htpasswd").args(["-Bbn", "u", "p"]).output().unwrap();
    fs::write(dir.path().join("users"), made.stdout).unwrap();
    let sections = format!("auth: {{htpasswd: {{realm: here, path: {}}}}}\n", dir.path().join("users").display());
    let Some(debian) = Debian::with(&sections, "") else { return };
    push_and_pull_as_somebody(&debian, |access| access);
}

/// A token service that signs with the key of `identity`, for u with the password p alone.
fn token_service(identity: &Identity, dir: &Path) -> Fake {
    let (key, certificate, dir) = (identity.key(), fs::read_to_string(identity.certificate()).unwrap(), dir.to_owned());
    let der: String = certificate.lines().filter(|line| !line.starts_with("-----")).collect();
    let basic = format!("Basic {}", STANDARD.encode("u:p"));
    Fake::serve(move |call| {
        if call.header("authorization") != Some(&basic) {
            return Reply::new(401, "");
        }
        let scope = call.parameter("scope").unwrap();
        let (name, actions) = scope.strip_prefix("repository:").unwrap().rsplit_once(':').unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let header = serde_json::json!({"typ": "JWT", "alg": "RS256", "x5c": [der]});
        let claims = serde_json::json!({"iss": "issuer", "sub": "u", "aud": "the registry", "exp": now + 60, "nbf": now - 60, "iat": now, "jti": "1",
            "access": [{"type": "repository", "name": name, "actions": actions.split(',').collect::<Vec<_>>()}]});
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let file = dir.join(Digest::of(&signed).hex());
        fs::write(&file, &signed).unwrap();
        let signature =
            Command::new("openssl").args(["dgst", "-sha256", "-sign"]).arg(&key).arg(&file).output().unwrap().stdout;
        Reply::new(
            200,
            serde_json::json!({"token": format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))}).to_string(),
        )
    })
}

#[test]
fn a4_tokens_of_a_service_on_another_port() {
    if !there("openssl") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::new(dir.path()).unwrap();
    let service = token_service(&identity, dir.path());
    let sections = format!(
        "auth: {{token: {{realm: 'http://{}/token', service: the registry, issuer: issuer, rootcertbundle: {}}}}}\n",
        service.host,
        identity.ca().display()
    );
    let Some(debian) = Debian::with(&sections, "") else { return };
    push_and_pull_as_somebody(&debian, |access| access);
}

#[test]
fn a7_tls_by_a_private_authority() {
    if !there("openssl") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::new(dir.path()).unwrap();
    let (certificate, key) = (identity.certificate(), identity.key());
    let http = format!(", tls: {{certificate: {}, key: {}}}", certificate.display(), key.display());
    let Some(debian) = Debian::with("", &http) else { return };
    let mut access = Access::default();
    access.hosts.insert(debian.host.clone(), HostAccess { ca_file: Some(identity.ca()), ..HostAccess::default() });
    let net = through(access);
    let content = Content::new(&[b"one", b"two"]);
    let from = Cache::new();
    let name = format!("{}/acme/tool:1", debian.host);
    content.put(&from.store, &name);
    push(&from.store, &content.manifest, &name.parse().unwrap(), &net).unwrap();
    Cache::new().pull(&name, &net).unwrap();
}

#[test]
fn chunks_mounts_and_referrers_without_an_api() {
    let Some(debian) = Debian::start() else { return };
    let big: Vec<u8> = (0..5_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let content = Content::new(&[&big, b"small"]);
    let from = Cache::new();
    let names = ["one", "two"].map(|name| format!("{}/acme/{name}:1", debian.host));
    for (name, uploaded) in names.iter().zip([3, 0]) {
        content.put(&from.store, name);
        let pushed = push(&from.store, &content.manifest, &name.parse().unwrap(), &cached()).unwrap();
        assert_eq!((pushed.uploaded, pushed.present), (uploaded, 3 - uploaded), "{name}");
        Cache::new().pull(name, &cached()).unwrap();
    }
    let mut manifest = ImageManifest::new(from.store.put(b"{}", "application/vnd.oci.empty.v1+json").unwrap(), vec![]);
    manifest.subject = Some(content.manifest.clone());
    manifest.artifact_type = Some("a/signature".into());
    let signature = from.store.put(&manifest.to_bytes(), OCI_MANIFEST).unwrap();
    let target = format!("{}/acme/one@{}", debian.host, signature.digest);
    push(&from.store, &signature, &target.parse().unwrap(), &cached()).unwrap();
    let resolved = resolve(&names[0].parse().unwrap(), &from.store, &cached()).unwrap();
    let found = referrers(&resolved, Some("a/signature"), &cached()).unwrap();
    assert_eq!(found.iter().map(|found| &found.digest).collect::<Vec<_>>(), [&signature.digest]);
}

/// Runs a program to its end, which must be good.
fn run(program: &str, args: &[&str]) {
    let ended = Command::new(program).args(args).output().unwrap();
    assert!(ended.status.success(), "{program} {args:?}: {ended:?}");
}

#[test]
fn images_made_by_umoci_and_pushed_by_skopeo() {
    if !there("umoci") || !there("skopeo") {
        return;
    }
    let Some(debian) = Debian::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("files")).unwrap();
    fs::write(path("files/hello"), "hello").unwrap();
    let (layout, image) = (path("layout"), format!("{}:v1", path("layout")));
    run("umoci", &["init", "--layout", &layout]);
    run("umoci", &["new", "--image", &image]);
    run("umoci", &["insert", "--rootless", "--image", &image, &path("files"), "/files"]);
    run("umoci", &["config", "--image", &image, "--config.entrypoint", "/files/hello"]);
    let from_layout = Cache::new().pull(&format!("oci-layout:{image}"), &offline()).unwrap();
    for (format, kind) in [("oci", OCI_MANIFEST), ("v2s2", DOCKER_MANIFEST)] {
        let name = format!("{}/acme/{format}:1", debian.host);
        let (from, to) = (format!("oci:{image}"), format!("docker://{name}"));
        run("skopeo", &["copy", "--insecure-policy", "--dest-tls-verify=false", "--format", format, &from, &to]);
        let pulled = Cache::new().pull(&name, &cached()).unwrap();
        assert_eq!((pulled.resolved.manifest.media_type.as_str(), &pulled.diff_ids), (kind, &from_layout.diff_ids));
    }
}

/// podman's builder. An ordinary user's needs ranges of further ids, which most machines of tests do not give.
#[test]
fn images_made_and_pushed_by_buildah() {
    if !there("buildah") || !rustix::process::geteuid().is_root() {
        return;
    }
    let Some(debian) = Debian::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("hello"), "hello").unwrap();
    let buildah = |args: &[&str]| {
        let (root, state) = (path("root"), path("state"));
        let all = [&["--root", &root, "--runroot", &state, "--storage-driver", "vfs"][..], args].concat();
        let ended = Command::new("buildah").args(&all).output().unwrap();
        assert!(ended.status.success(), "buildah {args:?}: {ended:?}");
        String::from_utf8(ended.stdout).unwrap().trim().to_owned()
    };
    let container = buildah(&["from", "scratch"]);
    buildah(&["copy", &container, &path("hello"), "/hello"]);
    buildah(&["config", "--entrypoint", r#"["/hello"]"#, &container]);
    for (format, kind) in [("oci", OCI_MANIFEST), ("docker", DOCKER_MANIFEST)] {
        buildah(&["commit", "--format", format, &container, format]);
        let name = format!("{}/acme/{format}:1", debian.host);
        buildah(&[
            "push",
            "--tls-verify=false",
            "--format",
            if format == "oci" { "oci" } else { "v2s2" },
            format,
            &format!("docker://{name}"),
        ]);
        let pulled = Cache::new().pull(&name, &cached()).unwrap();
        assert_eq!((pulled.resolved.manifest.media_type.as_str(), pulled.diff_ids.len()), (kind, 1));
    }
}
