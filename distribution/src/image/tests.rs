use super::*;
use crate::Digest;
use crate::media_type::*;

fn descriptor(media_type: &str) -> String {
    format!(r#"{{"mediaType":"{media_type}","digest":"{}","size":3}}"#, Digest::of("abc"))
}

fn manifest(extra: &str, layer: &str) -> String {
    let config = descriptor(OCI_CONFIG);
    format!(r#"{{"schemaVersion":2,{extra}"config":{config},"layers":[{layer}]}}"#)
}

fn index(extra: &str, entries: usize) -> String {
    let entries = vec![descriptor(OCI_MANIFEST); entries].join(",");
    format!(r#"{{"schemaVersion":2,{extra}"manifests":[{entries}]}}"#)
}

#[test]
fn round_trip() {
    let mut made = ImageManifest::new(
        Descriptor::new(OCI_CONFIG, Digest::of("c"), 1),
        vec![Descriptor::new(LAYER_TAR_ZSTD, Digest::of("l"), 2)],
    );
    made.artifact_type = Some(SMCP_PACKAGE.into());
    made.annotations.extend([("b".into(), "2".into()), ("a".into(), "1".into())]);
    let bytes = made.to_bytes();
    assert_eq!(ImageManifest::parse(&bytes).unwrap(), made);
    assert!(String::from_utf8(bytes.clone()).unwrap().ends_with(r#""annotations":{"a":"1","b":"2"}}"#));
    assert_eq!(Document::parse(&bytes, OCI_MANIFEST).unwrap(), Document::Manifest(made));

    let made = ImageIndex::new(vec![Descriptor::new(OCI_MANIFEST, Digest::of("m"), 1)]);
    assert_eq!(ImageIndex::parse(&made.to_bytes()).unwrap(), made);
}

#[test]
fn what_others_write_is_read() {
    let layer = descriptor(DOCKER_LAYER_TAR_GZIP);
    let docker = manifest(&format!(r#""mediaType":"{DOCKER_MANIFEST}","#), &layer);
    Document::parse(docker.as_bytes(), &format!("{DOCKER_MANIFEST}; charset=utf-8")).unwrap();
    Document::parse(manifest("", &layer).as_bytes(), OCI_MANIFEST).unwrap();
    Document::parse(index("", 64).as_bytes(), OCI_INDEX).unwrap();
    let unknown_keys = manifest(r#""x":{"y":[]},"annotations":null,"#, "");
    ImageManifest::parse(unknown_keys.as_bytes()).unwrap();
    let no_urls = descriptor(LAYER_TAR).replace("\"size\"", "\"urls\":[],\"size\"");
    ImageManifest::parse(manifest("", &no_urls).as_bytes()).unwrap();
}

#[test]
fn u58_u60_u61_what_is_ambiguous_or_foreign_is_refused() {
    let layer = descriptor(LAYER_TAR);
    let urls = layer.replace("\"size\"", r#""urls":["https://elsewhere.example/x"],"size""#);
    let docker_type = format!(r#""mediaType":"{DOCKER_MANIFEST}","#);
    let deep = format!(r#""x":{}{},"#, "[".repeat(64), "]".repeat(64));
    let many = vec![layer.clone(); 129].join(",");
    let table = [
        (manifest(r#""manifests":[],"#, &layer), OCI_MANIFEST, "both"),
        (index(r#""layers":[],"#, 1), OCI_INDEX, "both"),
        (index(&format!(r#""config":{layer},"#), 1), OCI_INDEX, "both"),
        (manifest("", &layer), OCI_INDEX, "announced as"),
        (manifest("", &layer), DOCKER_MANIFEST, "announced as"),
        (manifest("", &layer), "text/html", "announced as"),
        (manifest(&docker_type, &layer), OCI_MANIFEST, "announced as"),
        (index("", 1), OCI_MANIFEST, "announced as"),
        (manifest(&format!(r#""mediaType":"{OCI_INDEX}","#), &layer), OCI_INDEX, "does not fit"),
        (index(&docker_type, 1), DOCKER_MANIFEST, "does not fit"),
        (manifest("", &urls), OCI_MANIFEST, "foreign urls"),
        (manifest("", &descriptor("application/vnd.oci.image.layer.nondistributable.v1.tar")), OCI_MANIFEST, "not be"),
        (
            manifest("", &descriptor("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip")),
            OCI_MANIFEST,
            "not be",
        ),
        (index("", 65), OCI_INDEX, "at most 64"),
        (manifest("", &many), OCI_MANIFEST, "at most 128"),
        (manifest(&deep, &layer), OCI_MANIFEST, "nested deeper"),
        (manifest(r#""config":1,"#, &layer), OCI_MANIFEST, "occurs twice"),
        (manifest(r#""x":{"a":1,"a":1},"#, &layer), OCI_MANIFEST, "occurs twice"),
        (manifest("", &layer.replace("sha256:", "sha256:..")), OCI_MANIFEST, "not a digest"),
        (manifest("", &layer.replace(":3", ":-3")), OCI_MANIFEST, "invalid value"),
        (manifest("", &layer).replace("n\":2", "n\":1"), OCI_MANIFEST, "only 2"),
        (manifest(r#""fsLayers":[],"#, &layer), OCI_MANIFEST, "only 2"),
        (r#"{"schemaVersion":2}"#.into(), OCI_MANIFEST, "neither"),
        ("{}".into(), OCI_MANIFEST, "schemaVersion"),
        ("<html>".into(), OCI_MANIFEST, "expected value"),
        (format!(r#"[2,"{OCI_MANIFEST}",null,{layer},[{layer}]]"#), OCI_MANIFEST, "invalid type"),
        (manifest("", &format!(r#"["{LAYER_TAR}","{}",3]"#, Digest::of(""))), OCI_MANIFEST, "invalid type"),
        (manifest("", &layer) + &" ".repeat(MAX_MANIFEST), OCI_MANIFEST, "at most 4194304"),
    ];
    for (text, announced, why) in table {
        let error = Document::parse(text.as_bytes(), announced).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[test]
fn one_kind_is_not_taken_for_the_other() {
    assert!(ImageManifest::parse(index("", 1).as_bytes()).is_err());
    assert!(ImageIndex::parse(manifest("", "").as_bytes()).is_err());
}
