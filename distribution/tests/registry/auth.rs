//! Who asks: what registries ask to be shown, what they are shown, and what they are not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use distribution::*;

use crate::fake::{Call, Fake, FakeProxy, Identity, Reply};
use crate::world::{Cache, Content, cached, there, through};

const USER: &str = "u";
const PASSWORD: &str = "p:ä";

fn basic() -> String {
    format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")))
}

/// Access with one login for `host`, in a docker file in `dir`.
fn with_login(dir: &std::path::Path, host: &str, entry: &str) -> Access {
    let path = dir.join("config.json");
    std::fs::write(&path, format!(r#"{{"auths": {{"{host}": {entry}}}}}"#)).unwrap();
    let mut access = Access::default();
    access.credentials.docker = vec![DockerFile { path, named: true }];
    access
}

fn password_entry() -> String {
    format!(r#"{{"auth": "{}"}}"#, STANDARD.encode(format!("{USER}:{PASSWORD}")))
}

fn unauthorized(challenge: &str) -> Reply {
    Reply::new(401, r#"{"errors":[{"code":"UNAUTHORIZED"}]}"#).header("www-authenticate", challenge)
}

/// Lets through what shows `want`.
fn behind(challenge: String, want: String) -> impl Fn(&Call, Reply) -> Reply + Send + Sync {
    move |call, reply| if call.header("authorization") == Some(&want) { reply } else { unauthorized(&challenge) }
}

#[test]
fn a4_basic() {
    let content = Content::new(&[b"one", b"two"]);
    let fake = content.serve(behind(r#"Basic realm="here""#.into(), basic()));
    let cache = Cache::new();
    let name = format!("{}/acme/tool:1", fake.host);
    let error = cache.pull(&name, &cached()).unwrap_err();
    assert!(error.to_string().contains("there are none for it"), "{error}");
    assert_eq!(error.hint().unwrap(), format!("log in: smcp login {}", fake.host));
    cache.pull(&name, &through(with_login(cache.dir.path(), &fake.host, &password_entry()))).unwrap();

    let wrong = with_login(cache.dir.path(), &fake.host, r#"{"username": "u", "password": "sesame"}"#);
    let error = Cache::new().pull(&name, &through(wrong)).unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    assert!(
        error.to_string().contains("does not accept the credentials from") && !error.to_string().contains("sesame"),
        "{error}"
    );
}

/// A token service beside the registry: each of its tokens is good for `uses` requests.
struct Tokens {
    used: Mutex<BTreeMap<String, usize>>,
    uses: usize,
}

impl Tokens {
    fn new(uses: usize) -> Arc<Self> {
        Arc::new(Self { used: Mutex::default(), uses })
    }

    fn issue(&self) -> Reply {
        let mut used = self.used.lock().unwrap();
        let token = format!("token-{}", used.len());
        used.insert(format!("Bearer {token}"), 0);
        Reply::new(200, format!(r#"{{"token": "{token}", "expires_in": 60}}"#))
    }

    fn takes(&self, call: &Call) -> bool {
        let mut used = self.used.lock().unwrap();
        let Some(count) = used.get_mut(call.header("authorization").unwrap_or_default()) else { return false };
        *count += 1;
        *count <= self.uses
    }

    fn issued(&self) -> usize {
        self.used.lock().unwrap().len()
    }
}

/// A registry whose token service is at `/token` of itself.
fn with_tokens(content: &Content, tokens: &Arc<Tokens>, opens: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Fake {
    let tokens = tokens.clone();
    content.serve(move |call, reply| match call.path.starts_with("/token") {
        true if opens(call) => tokens.issue(),
        true => Reply::new(401, ""),
        false if tokens.takes(call) => reply,
        false => unauthorized(
            r#"Bearer realm="/token",service="the registry",scope="repository:other/secret:pull,push,delete""#,
        ),
    })
}

#[test]
fn a4_bearer_for_anybody() {
    let content = Content::new(&[b"one", b"two"]);
    let tokens = Tokens::new(100);
    let fake = with_tokens(&content, &tokens, |call| call.header("authorization").is_none());
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
    let asked: Vec<_> = fake.calls().into_iter().filter(|call| call.path.starts_with("/token")).collect();
    assert!(!asked.is_empty());
    for call in asked {
        assert_eq!(call.parameter("service"), Some("the%20registry"));
        assert_eq!(call.parameter("scope"), Some("repository:acme/tool:pull"), "no more than what is needed");
    }
}

#[test]
fn a4_bearer_with_a_password() {
    let content = Content::new(&[b"one", b"two"]);
    let tokens = Tokens::new(100);
    let fake = with_tokens(&content, &tokens, |call| call.header("authorization") == Some(&basic()));
    let cache = Cache::new();
    let name = format!("{}/acme/tool:1", fake.host);
    let error = cache.pull(&name, &cached()).unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    cache.pull(&name, &through(with_login(cache.dir.path(), &fake.host, &password_entry()))).unwrap();
    for call in fake.calls().iter().filter(|call| call.path.starts_with("/v2/")) {
        assert!(call.header("authorization").is_none_or(|shown| shown.starts_with("Bearer token-")), "{call:?}");
    }
}

#[test]
fn a4_a_token_that_expires_during_the_pull_is_renewed() {
    let layers: Vec<Vec<u8>> = (0..12u8).map(|number| vec![number; 100]).collect();
    let content = Content::new(&layers.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let tokens = Tokens::new(5);
    let fake = with_tokens(&content, &tokens, |_| true);
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
    assert!(tokens.issued() > 2, "fourteen requests");
    // Good for one request: each but the first meets a 401 before.
    let tokens = Tokens::new(1);
    let content = Content::new(&[b"one"]);
    let fake = with_tokens(&content, &tokens, |_| true);
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap();
    assert_eq!(tokens.issued(), 3, "manifest, configuration, layer");
}

#[test]
fn a4_identity_and_registry_tokens() {
    let content = Content::new(&[b"one"]);
    let tokens = Tokens::new(100);
    let fake = with_tokens(&content, &tokens, |call| {
        let form = String::from_utf8(call.body.clone()).unwrap();
        call.method == "POST"
            && call.header("content-type") == Some("application/x-www-form-urlencoded")
            && form.contains("grant_type=refresh_token&")
            && form.contains("refresh_token=iden%2Btity&")
            && form.contains("scope=repository:acme/tool:pull")
            && form.contains("service=the%20registry")
    });
    let cache = Cache::new();
    let access = with_login(cache.dir.path(), &fake.host, r#"{"identitytoken": "iden+tity"}"#);
    cache.pull(&format!("{}/acme/tool:1", fake.host), &through(access)).unwrap();

    let fake =
        content.serve(behind(r#"Bearer realm="https://elsewhere.example/token""#.into(), "Bearer as-it-is".into()));
    let access = with_login(cache.dir.path(), &fake.host, r#"{"registrytoken": "as-it-is"}"#);
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &through(access)).unwrap();

    let fake = content.serve(behind("Token".into(), "Token id:secret".into()));
    let mut access = Access::default();
    let token = Some(Secret::new("id:secret"));
    access.hosts.insert(fake.host.clone(), HostAccess { token, ..HostAccess::default() });
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &through(access)).unwrap();
}

/// A registry and a token service at two hosts, by a proxy that knows their names; gives what the service was told.
fn apart(realm_named: bool) -> Option<(Result<Image>, Vec<Call>)> {
    if !there("openssl") {
        return None;
    }
    let cache = Cache::new();
    let identity = Identity::new(&cache.dir.path().join("tls"))?;
    let content = Content::new(&[b"one"]);
    let service = Fake::serve_tls(&identity, |_| Reply::new(200, r#"{"token": "t"}"#));
    let challenge = r#"Bearer realm="https://other.test/token",service="x""#;
    let registry = content.serve_tls(&identity, behind(challenge.into(), "Bearer t".into()));
    let proxy = FakeProxy::serve(&[("registry.test:443", &registry.host), ("other.test:443", &service.host)], &basic());
    let mut access = with_login(cache.dir.path(), "registry.test", &password_entry());
    access.proxies.https = Some(Secret::new(format!("http://u:p%3A%C3%A4@{}", proxy.host)));
    let realm = realm_named.then(|| "other.test".into());
    let host = |realm| HostAccess { ca_file: Some(identity.ca()), realm, ..HostAccess::default() };
    access.hosts = [("registry.test".into(), host(realm)), ("other.test".into(), host(None))].into();
    let pulled = cache.pull("registry.test/acme/tool:1", &through(access));
    Some((pulled, service.calls()))
}

#[test]
fn a5_a_realm_on_another_host_is_told_nothing() {
    let Some((pulled, told)) = apart(false) else { return };
    let error = pulled.unwrap_err();
    assert!(matches!(&error, Error::Realm { realm, .. } if realm == "other.test"), "{error}");
    assert!(error.hint().unwrap().contains(r#"{realm: "other.test"}"#));
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a5_a_realm_that_is_named_in_the_configuration_is_told() {
    let Some((pulled, told)) = apart(true) else { return };
    pulled.unwrap();
    assert_eq!(told[0].header("authorization"), Some(&*basic()));
}

#[test]
fn a5_credentials_stay_with_their_host() {
    let content = Content::new(&[b"one", b"two"]);
    let storage = content.serve(|_, reply| reply);
    let other = content.serve(|_, _| unauthorized(r#"Basic realm="give me""#));
    let (target, elsewhere) = (storage.host.clone(), other.host.clone());
    let fake = content.serve(move |call, reply| match call.header("authorization") {
        None => unauthorized(r#"Basic realm="x""#),
        Some(_) if call.path.contains("/blobs/") => {
            Reply::new(307, "").header("location", format!("http://{target}{}", call.path))
        }
        Some(_) if call.path.contains("/lost/") => {
            Reply::new(307, "").header("location", format!("http://{elsewhere}{}", call.path))
        }
        Some(_) => reply,
    });
    let cache = Cache::new();
    let net = through(with_login(cache.dir.path(), &fake.host, &password_entry()));
    cache.pull(&format!("{}/acme/tool:1", fake.host), &net).unwrap();
    assert_eq!(storage.calls().len(), 3);
    // Another registry, and a redirect to one that asks to be shown something.
    let error = Cache::new().pull(&format!("{}/acme/tool:1", other.host), &net).unwrap_err();
    assert!(error.to_string().contains("there are none for it"), "{error}");
    let error = Cache::new().pull(&format!("{}/acme/lost/tool:1", fake.host), &net).unwrap_err();
    assert!(matches!(&error, Error::Unauthorized { host, .. } if *host == other.host), "{error}");
    for call in storage.calls().iter().chain(&other.calls()) {
        assert_eq!(call.header("authorization"), None, "{call:?}");
    }
}

#[test]
fn hostile_token_services() {
    let content = Content::new(&[b"one"]);
    let huge = format!(r#"{{"token": "{}"}}"#, "t".repeat(70_000));
    let table: Vec<(Reply, Kind, &str)> = vec![
        (Reply::new(200, r#"{"token": "a\r\nX-Evil: 1"}"#), Kind::Verification, "characters that no token has"),
        (Reply::new(200, r#"{"token": "a", "token": "b"}"#), Kind::Verification, "not understood"),
        (Reply::new(200, r#"{"token": 7}"#), Kind::Verification, "not understood"),
        (Reply::new(200, "{}"), Kind::Verification, "holds none"),
        (Reply::new(200, huge), Kind::Verification, "longer than"),
        (Reply::new(302, "").header("location", "http://127.0.0.1:1/"), Kind::Resolve, "127.0.0.1:1"),
        (Reply::new(302, "").header("location", "http://192.0.2.1/"), Kind::Resolve, "plain http to another machine"),
        (Reply::new(403, ""), Kind::Resolve, "asks for credentials"),
        (Reply::new(404, ""), Kind::Resolve, "status 404"),
    ];
    for (reply, kind, why) in table {
        let fake = content.serve(move |call, _| match call.path.starts_with("/token") {
            true => reply.clone(),
            false => unauthorized(r#"Bearer realm="/token""#),
        });
        let error = Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &cached()).unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(why), "{why}: {error}");
    }
}

#[test]
fn login_and_logout() {
    let content = Content::new(&[b"one"]);
    let fake = content.serve(|call, reply| match call.header("authorization") == Some(&basic()) {
        true if call.path == "/v2/" => Reply::new(200, "{}"),
        true => reply,
        false => unauthorized("Basic"),
    });
    let cache = Cache::new();
    let own = cache.dir.path().join("home/credentials.json");
    let mut access = Access::default();
    access.credentials.own = Some(own.clone());
    let net = through(access);
    let password = |text: &str| Login::Password { username: USER.into(), password: Secret::new(text) };
    let error = login(Some(&fake.host), &password("wrong"), &net).unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }) && !own.exists(), "{error}");
    assert_eq!(login(Some(&fake.host), &password(PASSWORD), &net).unwrap(), fake.host);
    cache.pull(&format!("{}/acme/tool:1", fake.host), &net).unwrap();
    assert_eq!(logout(Some(&fake.host), &net).unwrap(), (fake.host.clone(), true));
    assert_eq!(logout(Some(&fake.host), &net).unwrap(), (fake.host.clone(), false));
    assert!(!own.exists());
    Cache::new().pull(&format!("{}/acme/tool:1", fake.host), &net).unwrap_err();
}

#[test]
fn a7_a_private_authority() {
    if !there("openssl") {
        return;
    }
    let cache = Cache::new();
    let identity = Identity::new(&cache.dir.path().join("tls")).unwrap();
    let content = Content::new(&[b"one", b"two"]);
    let fake = content.serve_tls(&identity, |_, reply| reply);
    let name = format!("{}/acme/tool:1", fake.host);
    let with = |ca_file, insecure| {
        let mut access = Access::default();
        access.hosts.insert(fake.host.clone(), HostAccess { ca_file, insecure, ..HostAccess::default() });
        through(access)
    };
    let error = cache.pull(&name, &with(None, Some(false))).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(error.hint().unwrap().contains("SSL_CERT_FILE"), "{error}");
    cache.pull(&name, &with(Some(identity.ca()), None)).unwrap();
    let error = Cache::new().pull(&name, &with(Some(identity.key()), None)).unwrap_err();
    assert!(error.to_string().contains("no certificate in PEM"), "{error}");
}

#[test]
fn a7_a_proxy_with_credentials() {
    if !there("openssl") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::new(dir.path()).unwrap();
    let content = Content::new(&[b"one", b"two"]);
    let fake = content.serve_tls(&identity, |_, reply| reply);
    let proxy = FakeProxy::serve(&[("registry.test:443", &fake.host)], &basic());
    let net = |user: &str| {
        let mut access = Access::default();
        access.proxies.https = Some(Secret::new(format!("http://{user}{}", proxy.host)));
        let host = HostAccess { ca_file: Some(identity.ca()), ..HostAccess::default() };
        access.hosts.insert("registry.test".into(), host);
        through(access)
    };
    Cache::new().pull("registry.test/acme/tool:1", &net("u:p%3A%C3%A4@")).unwrap();
    assert!(proxy.targets().iter().all(|target| target == "registry.test:443"));
    for user in ["", "u:wrong@"] {
        let error = Cache::new().pull("registry.test/acme/tool:1", &net(user)).unwrap_err();
        assert!(error.kind() == Kind::Resolve && !error.to_string().contains("wrong"), "{error}");
    }
    // The proxy is never asked about this machine.
    let here = content.serve(|_, reply| reply);
    let before = proxy.targets().len();
    Cache::new().pull(&format!("{}/acme/tool:1", here.host), &net("")).unwrap();
    assert_eq!(proxy.targets().len(), before);
}
