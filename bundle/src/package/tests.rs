use super::*;
use distribution::{Freshness, ImageManifest, Resolved, Source, Store, Way};
use serde_json::{Value, json};

/// An image in a store of its own, of a configuration and empty layers.
fn image(config: Value, layers: usize, artifact_type: Option<&str>) -> (tempfile::TempDir, Image) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let config = store.put(config.to_string().as_bytes(), media_type::OCI_CONFIG).unwrap();
    let layer = |i| Descriptor::new(media_type::LAYER_TAR, diff_id(i), 1);
    let layers: Vec<Descriptor> = (0..layers).map(layer).collect();
    let mut manifest = ImageManifest::new(config.clone(), layers.clone());
    manifest.artifact_type = artifact_type.map(Into::into);
    let descriptor = store.put(&manifest.to_bytes(), media_type::OCI_MANIFEST).unwrap();
    let resolved = Resolved {
        reference: "acme/hello".into(),
        name: "registry.example/acme/hello:latest".into(),
        descriptor: descriptor.clone(),
        manifest,
        manifest_descriptor: descriptor,
        freshness: Freshness::Cached,
        stated: None,
        source: Source::Layout(dir.path().into()),
        way: Way::default(),
    };
    let config = store.blob(&config).unwrap().unwrap();
    let diff_ids = (0..layers.len()).map(diff_id).collect();
    (dir, Image { resolved, config, layers, diff_ids })
}

fn diff_id(i: usize) -> Digest {
    Digest::of(format!("layer {i}"))
}

fn config(diff_ids: usize, execution: Value) -> Value {
    let diff_ids: Vec<String> = (0..diff_ids).map(|i| diff_id(i).to_string()).collect();
    let architecture = Platform::host().architecture;
    json!({"os": "linux", "architecture": architecture, "config": execution,
           "rootfs": {"type": "layers", "diff_ids": diff_ids}})
}

fn read(config: Value, layers: usize, artifact_type: Option<&str>) -> Result<Package, PackageError> {
    let (_dir, image) = image(config, layers, artifact_type);
    Package::read(&image)
}

const MANIFEST: &str =
    r#"{"schemaVersion":1,"name":"acme/hello","version":"1","entrypoint":{"args":["node","x.js"],"workdir":"/app"}}"#;

#[test]
fn a_package_of_smcp_has_its_manifest_from_the_label() {
    let execution = json!({"Labels": {LABEL: MANIFEST}, "Cmd": ["ignored"], "WorkingDir": "/ignored"});
    let package = read(config(2, execution), 2, Some(media_type::SMCP_PACKAGE)).unwrap();
    assert_eq!(package.origin, PackageOrigin::Smcp);
    assert_eq!(package.manifest.name, "acme/hello");
    assert_eq!(package.layers[1].1, diff_id(1));
    assert_eq!(package.command(vec!["a".into()]), ["node", "x.js", "a"]);
    assert_eq!(package.workdir(), Some("/app".into()));
}

#[test]
fn a_plain_image_is_started_as_docker_starts_it_and_asks_for_nothing() {
    let start = |execution: Value, args: &[&str]| {
        let package = read(config(0, execution), 0, None).unwrap();
        assert_eq!(package.origin, PackageOrigin::PlainImage);
        assert_eq!(package.manifest.permissions, Permissions::default());
        package.command(args.iter().map(|arg| arg.to_string()).collect()).join(" ")
    };
    assert_eq!(start(json!({"Entrypoint": ["e"], "Cmd": ["c"]}), &[]), "e c");
    assert_eq!(start(json!({"Entrypoint": ["e"], "Cmd": ["c"]}), &["a"]), "e a");
    assert_eq!(start(json!({"Entrypoint": null, "Cmd": ["c", "d"]}), &[]), "c d");
    assert_eq!(start(json!({"Cmd": ["c"]}), &["a"]), "a");
    assert_eq!(start(json!({"User": "root", "Volumes": {"/x": {}}, "ExposedPorts": {"1/tcp": {}}}), &[]), "");
}

#[test]
fn a_plain_image_starts_in_its_directory_or_the_root() {
    for (working_dir, want) in [("", "/"), ("/srv", "/srv"), ("srv", "/srv")] {
        let package = read(config(0, json!({"WorkingDir": working_dir})), 0, None).unwrap();
        assert_eq!(package.workdir(), Some(want.into()));
    }
}

#[test]
fn u51_layers_and_diff_ids_must_be_as_many() {
    for (layers, diff_ids) in [(1, 2), (2, 1), (0, 1)] {
        let error = read(config(diff_ids, json!({})), layers, None).unwrap_err();
        assert!(matches!(error, PackageError::LayerCount { .. }), "{error}");
    }
}

#[test]
fn an_image_for_other_machines_is_told_apart() {
    for (key, value) in [("os", "windows"), ("architecture", "s390x")] {
        let mut config = config(0, json!({}));
        config[key] = json!(value);
        let error = read(config, 0, None).unwrap_err();
        assert!(matches!(error, PackageError::Platform { .. }), "{error}");
        assert!(error.to_string().contains(value), "{error}");
    }
}

#[test]
fn broken_configurations_and_manifests_are_refused() {
    let error = read(json!({"os": "linux"}), 0, None).unwrap_err();
    assert!(matches!(error, PackageError::Config { .. }), "{error}");
    let error = read(config(0, json!({})), 0, Some(media_type::SMCP_PACKAGE)).unwrap_err();
    assert!(matches!(error, PackageError::NoManifest), "{error}");
    let error = read(config(0, json!({"Labels": {LABEL: "{}"}})), 0, None).unwrap_err();
    assert!(matches!(error, PackageError::Manifest(_)), "{error}");
}
