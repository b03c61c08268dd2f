use std::fs;
use std::path::Path;

use super::{Index, Npm, Packages, Python};

fn vars(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    // The global files of this machine are not the test's.
    let none = ("npm_config_globalconfig".to_owned(), "/nowhere/npmrc".to_owned());
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain([none]).collect()
}

fn npm(text: &str, own: &[(&str, &str)]) -> crate::Result<Npm> {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".npmrc"), text).unwrap();
    Npm::read(home.path(), &vars(own))
}

#[test]
fn where_a_package_of_npm_is_asked_for() {
    let text = "; comment\nregistry = https://Npm.acme.test/all/\n@acme:registry=\"http://127.0.0.1:4873/\"\n\
                //npm.acme.test/all/:_authToken=${TOKEN}\n//127.0.0.1:4873/:_auth=YTpi\n\
                //old.test/:username=u\n//old.test/:_password=cGFzcw==\n//npm.acme.test/all/deep/:_authToken=deep\n";
    let read = npm(text, &[("TOKEN", "hunter2")]).unwrap();
    let registry = |name: &str| read.registry_of(name).url().to_owned();
    assert_eq!(registry("left-pad"), "https://npm.acme.test/all");
    assert_eq!(registry("@acme/x"), "http://127.0.0.1:4873");
    assert_eq!(registry("@acmes/x"), "https://npm.acme.test/all");
    let login = |url: &str| read.login_for(url).map(|login| login.expose().to_owned());
    for (url, want) in [
        ("https://npm.acme.test/all/left-pad", Some("Bearer hunter2")),
        ("https://npm.acme.test/all", Some("Bearer hunter2")),
        ("https://npm.acme.test/all/deep/x", Some("Bearer deep")),
        ("https://npm.acme.test/allx/left-pad", None),
        ("https://npm.acme.test/other", None),
        ("https://npm.acme.test.evil.test/all/x", None),
        ("http://127.0.0.1:4873/@acme%2fx", Some("Basic YTpi")),
        ("http://127.0.0.1:48731/x", None),
        ("https://old.test/x", Some("Basic dTpwYXNz")),
    ] {
        assert_eq!(login(url).as_deref(), want, "{url}");
    }
    assert!(!format!("{read:?}").contains("hunter2"));
}

#[test]
fn variables_outweigh_the_file_of_npm() {
    let read = npm("registry=https://a.test/\ncafile=/a.pem\n", &[("NPM_CONFIG_REGISTRY", "https://b.test")]).unwrap();
    assert_eq!(read.registry_of("x").url(), "https://b.test");
    assert_eq!(read.ca_file.as_deref(), Some(Path::new("/a.pem")));
    assert_eq!(npm("", &[("npm_config_registry", "")]).unwrap().registry_of("x").url(), super::NPMJS);
    let error = npm("registry=https://eve:hunter2@\n", &[]).unwrap_err().to_string();
    assert!(error.contains("registry") && !error.contains("hunter2"), "{error}");
}

fn python(files: &[(&str, &str)], own: &[(&str, &str)]) -> crate::Result<Python> {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Python::read(home.path(), Path::new("/nowhere"), &vars(own))
}

#[test]
fn where_a_package_of_python_is_asked_for() {
    let pip = "[global]\nindex-url = https://a.test/simple/\nextra-index-url =\n    https://u:p%40ss@b.test/simple\n    https://c.test\n\
               cert = /b.pem\n[download]\nindex_url: https://d.test/simple\n";
    let uv = "index-url = \"https://e.test/simple\"\n[[index]]\nname = \"own-one\"\nurl = \"https://f.test/simple\"\n\
              [[index]]\nurl = \"https://g.test\"\nexplicit = true\n";
    let indexes = |files: &[(&str, &str)], own: &[(&str, &str)]| {
        let read = python(files, own).unwrap();
        let shown = |index: &Index| {
            format!("{}{}", index.url(), index.login().map_or(String::new(), |login| format!(" {}", login.expose())))
        };
        read.indexes.iter().map(shown).collect::<Vec<_>>().join(", ")
    };
    let both = [(".config/pip/pip.conf", pip), (".config/uv/uv.toml", uv)];
    assert_eq!(indexes(&both, &[]), "https://b.test/simple Basic dTpwQHNz, https://c.test, https://d.test/simple");
    assert_eq!(
        indexes(&both[1..], &[("UV_INDEX_OWN_ONE_USERNAME", "u"), ("UV_INDEX_OWN_ONE_PASSWORD", "p")]),
        "https://f.test/simple Basic dTpw, https://e.test/simple"
    );
    assert_eq!(
        indexes(&both[1..], &[("PIP_INDEX_URL", "https://h.test/"), ("PIP_EXTRA_INDEX_URL", "https://h.test/")]),
        "https://h.test"
    );
    assert!(python(&[(".config/uv/uv.toml", "a = ")], &[]).is_err());
    assert!(python(&[], &[("PIP_INDEX_URL", "file:///srv")]).is_err());
}

#[test]
fn a_home_without_settings() {
    let packages = Packages::of(Path::new("/nowhere"));
    // Whatever the machine says: it can be read.
    packages.npm().unwrap();
    packages.python().unwrap();
}
