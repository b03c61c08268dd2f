//! Images that nobody made for smcp: they run as servers, and ask for nothing.

use std::fs;

use serde_json::json;

use crate::image::{Form, Image, write_plain};
use crate::world::{World, as_each_user};
use crate::{needs, probe, registry};

as_each_user! {
    images_of_every_form_run,
    an_image_that_other_tools_packed_runs,
    what_a_configuration_asks_for_is_not_given,
}

fn probe_file() -> (String, u32, Vec<u8>) {
    ("usr/bin/probe".into(), 0o755, fs::read(probe::path()).expect("the probe was compiled"))
}

fn text(path: &str, text: &str) -> (String, u32, Vec<u8>) {
    (path.into(), 0o644, text.into())
}

/// Docker's schema 2 and OCI's manifests, gzip and zstd, layers that hide what lies below them.
fn images_of_every_form_run(world: &World) {
    let layers = [
        vec![probe_file(), text("data/kept", "1"), text("data/gone", "1"), text("old/a", "1"), text("old/b", "1")],
        vec![text("data/.wh.gone", ""), text("data/changed", "2"), text("old/.wh..wh..opq", ""), text("old/c", "2")],
        vec![text("data/changed", "3"), text("data/gone/again", "3")],
    ];
    for form in [Form::Docker, Form::Gzip, Form::Zstd] {
        let reference = write_plain(form, &layers, &world.directory(&format!("{form:?}")));
        let told = |verb: &[&str]| world.smcp(["run", &reference]).args(verb).run().ok().json();
        assert_eq!(told(&["list", "/data"]), json!(["changed", "gone", "kept"]), "{form:?}");
        assert_eq!(told(&["list", "/old"]), json!(["c"]), "{form:?}");
        assert_eq!(told(&["read", "/data/changed"]), "3", "{form:?}");
        assert_eq!(told(&["read", "/data/gone/again"]), "3", "{form:?}");
        assert_eq!(told(&["cwd"]), "/", "{form:?}");
        let refused = world.smcp(["run", &reference, "write", "/data/kept", "x"]).run();
        refused.check(refused.code() == probe::REFUSED, "the root is read-only");
        let info = world.smcp(["info", "--json", &reference]).run().ok().json();
        assert_eq!(info["layers"].as_array().map(Vec::len), Some(3), "{form:?}: {info}");
    }
}

/// umoci packs it, whiteouts and all; skopeo makes Docker's form of it and pushes it to a registry.
fn an_image_that_other_tools_packed_runs(world: &World) {
    let Some(umoci) = needs::program("umoci", "umoci") else { return };
    let layout = world.text("layout");
    let image = format!("{layout}:v1");
    let files = world.directory("files");
    world.directory("files/bin");
    let program = files.join("bin/probe");
    fs::copy(probe::path(), &program).expect("the world is ours");
    world.give(&program);
    for name in ["kept", "gone"] {
        world.file(&format!("files/{name}"), name);
    }
    let directory = files.to_str().expect("temporary paths are UTF-8");
    let opaque = world.directory("opaque");
    world.file("opaque/new", "new");
    let steps: [&[&str]; 7] = [
        &["init", "--layout", &layout],
        &["new", "--image", &image],
        &["insert", "--rootless", "--image", &image, directory, "/usr"],
        &["insert", "--rootless", "--image", &image, directory, "/opt"],
        &["insert", "--rootless", "--image", &image, "--whiteout", "/usr/gone"],
        &["insert", "--rootless", "--image", &image, "--opaque", opaque.to_str().expect("UTF-8"), "/opt"],
        &["config", "--image", &image, "--config.entrypoint", "/usr/bin/probe", "--config.workingdir", "/opt"],
    ];
    for step in steps {
        world.program(&umoci, step).run().ok();
    }
    let runs = |reference: &str| {
        let told = |verb: &[&str]| world.smcp(["run", reference]).args(verb).run().ok().json();
        assert_eq!(told(&["list", "/usr"]), json!(["bin", "kept"]));
        assert_eq!(told(&["list", "/opt"]), json!(["new"]));
        assert_eq!(told(&["cwd"]), "/opt");
    };
    runs(&format!("oci-layout:{image}"));
    let (Some(skopeo), Some(registry)) = (needs::program("skopeo", "skopeo"), registry::address()) else { return };
    let name = format!("{registry}/plain/{}:v1", world.mark().trim_end_matches('-'));
    for form in ["v2s2", "oci"] {
        let copy = ["copy", "--quiet", "--insecure-policy", "--dest-tls-verify=false", "--format", form];
        world.program(&skopeo, copy).args([format!("oci:{image}"), format!("docker://{name}")]).run().ok();
        world.smcp(["pull", &name]).run().ok();
        runs(&name);
    }
}

/// Users, volumes, ports and labels of other tools give nothing and lead nowhere: the plan is the same without them.
fn what_a_configuration_asks_for_is_not_given(world: &World) {
    let secret = world.text("private");
    let plan = |name: &str, image: Image| {
        let reference = image.plain().build().write(&world.directory(name));
        let shown = world.smcp(["run", "--dry-run", "--json", &reference]).run().ok().json();
        let mut plan = shown["plan"].clone();
        plan["tree"] = json!(null);
        // As root each run has a uid of its own.
        let uid = plan["identity"]["uid"].to_string();
        plan.to_string().replace(&uid, "UID")
    };
    let asks = |config: &mut serde_json::Value| {
        config["config"]["User"] = json!("0:0");
        config["config"]["Volumes"] = json!({"/data": {}, (secret.clone()): {}, "/../../../../etc": {}});
        config["config"]["ExposedPorts"] = json!({"80/tcp": {}});
        config["config"]["Labels"] = json!({
            "io.containerd.image": "/../../../../etc/passwd",
            "org.opencontainers.runtime.mount": secret.clone(),
            "run": "docker run --privileged IMAGE",
        });
    };
    let asking = plan("asking", Image::probe().config(asks));
    assert_eq!(asking, plan("modest", Image::probe()));
    assert!(!asking.contains(&secret));
    let reference = Image::probe().config(asks).plain().build().write(&world.directory("again"));
    let refused = world.smcp(["run", &reference, "read", &world.text("private/secret")]).run();
    refused.check(refused.code() == probe::REFUSED, "the host's directory is not there");
}
