use std::fs;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::Kind;

fn password(username: &str, password: &str) -> Login {
    Login::Password { username: username.into(), password: Secret::new(password) }
}

/// Places with one docker file of this content.
fn docker(dir: &Path, text: &str) -> Places {
    let path = dir.join("config.json");
    fs::write(&path, text).unwrap();
    Places { own: None, docker: vec![DockerFile { path, named: false }] }
}

#[test]
fn a4_what_docker_and_podman_wrote() {
    let dir = tempfile::tempdir().unwrap();
    // dTpw is u:p, dTpwOng= is u:p:x, and the last one is padded with zeros as docker pads.
    let places = docker(
        dir.path(),
        r#"{"auths": {
            "a.example": {"auth": "dTpw"},
            "b.example:5000": {"auth": "dTpwOng="},
            "c.example/one": {"auth": "b25lOnA="},
            "c.example/one/two": {"auth": "dHdvOnA="},
            "https://d.example/v1/": {"username": "u", "password": "p"},
            "https://index.docker.io/v1/": {"auth": "aHViOnA="},
            "e.example": {"identitytoken": "refresh"},
            "f.example": {"registrytoken": "bearer"},
            "g.example": {},
            "h.example": {"auth": "dTpwAAA="}
        }, "HttpHeaders": {"x": "y"}}"#,
    );
    for (host, repository, want) in [
        ("a.example", "x/y", Some(password("u", "p"))),
        ("b.example:5000", "x/y", Some(password("u", "p:x"))),
        ("b.example", "x/y", None),
        ("c.example", "one/x", Some(password("one", "p"))),
        ("c.example", "one/two", Some(password("two", "p"))),
        ("c.example", "one/twos", Some(password("one", "p"))),
        ("c.example", "x/y", None),
        ("d.example", "x/y", Some(password("u", "p"))),
        ("registry-1.docker.io", "x/y", Some(password("hub", "p"))),
        ("e.example", "x/y", Some(Login::Identity(Secret::new("refresh")))),
        ("f.example", "x/y", Some(Login::Token(Secret::new("bearer")))),
        ("g.example", "x/y", None),
        ("h.example", "x/y", Some(password("u", "p"))),
        ("a.example.evil.example", "x/y", None),
    ] {
        assert_eq!(places.find(host, repository).unwrap().map(|(login, _)| login), want, "{host}/{repository}");
    }
}

#[test]
fn a_file_that_is_not_understood_is_an_error_that_tells_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    for text in [
        "{",
        "7",
        r#"{"auths": {"a.example": {"auth": "%%%secret"}}}"#,
        r#"{"auths": {"a.example": {"auth": "c2VjcmV0"}}}"#,
    ] {
        let error = docker(dir.path(), text).find("a.example", "x/y").unwrap_err();
        assert_eq!(error.kind(), Kind::Store, "{text}");
        assert!(error.to_string().contains("config.json") && !error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(docker(dir.path(), " \n").find("a.example", "x/y").unwrap(), None);
    let missing = |named| Places { own: None, docker: vec![DockerFile { path: dir.path().join("none"), named }] };
    assert_eq!(missing(false).find("a.example", "x/y").unwrap(), None);
    assert!(missing(true).find("a.example", "x/y").is_err());
}

#[cfg(unix)]
#[test]
fn own_logins_are_private_and_one_a_registry() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("home/credentials.json");
    let places = Places { own: Some(path.clone()), docker: vec![] };
    assert_eq!(places.find("a.example", "x/y").unwrap(), None);
    let logins = [
        ("a.example", password("u", "p")),
        ("b.example:1", Login::Token(Secret::new("t"))),
        ("c.example", Login::Identity(Secret::new("i"))),
    ];
    for (host, login) in &logins {
        file::change(&path, |all| drop(all.insert((*host).into(), file::Entry::of(login)))).unwrap();
    }
    for (host, login) in &logins {
        assert_eq!(places.find(host, "x/y").unwrap().unwrap().0, *login, "{host}");
    }
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let error = places.find("a.example", "x/y").unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    for (host, _) in &logins {
        file::change(&path, |all| assert!(all.remove(*host).is_some())).unwrap();
    }
    assert!(!path.exists());
}

#[test]
fn a5_whom_a_login_is_told() {
    let mut access = Access::default();
    access
        .hosts
        .insert("own.example".into(), crate::HostAccess { realm: Some("id.example".into()), ..Default::default() });
    for (registry, realm, want) in [
        ("a.example", "a.example", true),
        ("a.example:5000", "a.example:5001", true),
        ("a.example", "auth.a.example", false),
        ("a.example", "b.example", false),
        ("a.example", "a.example.b.example", false),
        ("own.example", "id.example", true),
        ("own.example", "id.example:444", true),
        ("other.example", "id.example", false),
        ("registry-1.docker.io", "auth.docker.io", true),
        ("auth.docker.io", "registry-1.docker.io", false),
    ] {
        assert_eq!(access.may_tell(registry, realm), want, "{registry} {realm}");
    }
}
