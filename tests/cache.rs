//! The store as its user sees it: pulls, warm starts, removal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

use crate::image::Image;
use crate::liar::{self, Lie};
use crate::world::{World, as_each_user};

as_each_user! {
    a_warm_start_asks_nobody,
    offline_means_offline,
    removal_keeps_what_others_use,
    the_store_is_an_image_layout,
    what_nobody_needs_is_collected,
    what_is_damaged_is_found,
    what_was_changed_in_an_unpacked_layer_is_found,
}

/// A start of what was pulled opens no connection, by tag and by digest; `--offline` agrees.
fn a_warm_start_asks_nobody(world: &World) {
    let image = Image::probe().build();
    let liar = liar::serve(&image, Lie::None);
    let references = [format!("{}:v1", liar.name), format!("{}@{}", liar.name, image.manifest.digest)];
    for reference in &references {
        world.smcp(["pull", reference]).run().ok();
    }
    let connections = liar.connections.load(Ordering::SeqCst);
    for reference in &references {
        world.smcp(["run", reference, "exit", "4"]).run().expect(4);
        world.smcp(["run", "--offline", reference, "exit", "4"]).run().expect(4);
    }
    assert_eq!(liar.connections.load(Ordering::SeqCst), connections, "a warm start connected");
    world.smcp(["run", "--refresh", &references[0], "exit", "4"]).run().expect(4);
    assert!(liar.connections.load(Ordering::SeqCst) > connections, "--refresh did not connect");
}

/// What is not there is not asked for offline.
fn offline_means_offline(world: &World) {
    let liar = liar::serve(&Image::probe().build(), Lie::None);
    let ended = world.smcp(["run", "--offline", &format!("{}:v1", liar.name)]).run().expect(120);
    ended.explains(&["network"]);
    assert_eq!(liar.connections.load(Ordering::SeqCst), 0);
}

/// `cache ls` lists, `cache rm` removes what it names and nothing that another package uses.
fn removal_keeps_what_others_use(world: &World) {
    let (one, two) = (Image::probe(), Image::probe().manifest(|m| m["version"] = "2.0.0".into()));
    let [one, two] = [one, two].map(|image| format!("{}:v1", liar::serve(&image.build(), Lie::None).name));
    let listed = || world.smcp(["cache", "ls"]).run().ok().text();
    let start_two = || world.smcp(["run", "--offline", &two, "exit", "4"]).run();
    world.smcp(["pull", &one, &two]).run().ok();
    assert!(listed().contains(&one) && listed().contains(&two), "{}", listed());
    world.smcp(["cache", "rm", &one]).run().ok();
    assert!(!listed().contains(&one) && listed().contains(&two), "{}", listed());
    start_two().expect(4);
    world.smcp(["cache", "rm", "--all"]).run().ok();
    assert_eq!(fs::read_dir(world.store().join("blobs/sha256")).unwrap().count(), 0, "blobs are left");
    assert_eq!(fs::read_dir(world.store().join("layers")).unwrap().count(), 0, "layers are left");
    start_two().expect(120);
    let absent = world.smcp(["cache", "rm", &one]).run();
    absent.check(absent.code() != 0, "an error was expected");
    absent.explains(&[&one]);
}

/// Other tools read the store: it is an OCI image layout.
fn the_store_is_an_image_layout(world: &World) {
    let image = Image::probe().build();
    world.smcp(["pull", &image.write(&world.directory("image"))]).run().ok();
    let marker = fs::read_to_string(world.store().join("oci-layout")).unwrap();
    assert!(marker.contains("1.0.0"), "{marker}");
    let index = fs::read_to_string(world.store().join("index.json")).unwrap();
    assert!(index.contains(&image.manifest.digest), "{index}");
    for blob in [&image.manifest, &image.config, &image.layer] {
        assert_eq!(fs::read(blob.path_in(&world.store())).unwrap(), blob.bytes);
    }
}

/// `cache gc` takes what broken pulls left, and the oldest where there is too much; what runs goes on.
fn what_nobody_needs_is_collected(world: &World) {
    let noise: Vec<u8> = (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let [one, two] = [("one", noise.clone()), ("two", noise)].map(|(name, mut noise)| {
        noise.push(name.len() as u8 ^ name.as_bytes()[0]);
        Image::probe().file("noise", 0o644, noise).build().write(&world.directory(name))
    });
    world.smcp(["pull", &one, &two]).run().ok();
    let stray = world
        .file("cache/store/blobs/sha256/0000000000000000000000000000000000000000000000000000000000000000", "stray");
    world.smcp(["cache", "gc"]).run().ok();
    assert!(!stray.exists());
    let start = |reference: &str| world.smcp(["run", "--offline", reference, "exit", "4"]).run();
    start(&one).expect(4);
    let mut running = world.smcp(["run", &one, "until-eof", "5"]).start();
    running.await_ready();
    world.smcp(["cache", "gc"]).env("MCP_CACHE_MAX_SIZE", "1K").run().ok();
    assert_eq!(world.smcp(["cache", "ls"]).run().ok().text(), "");
    drop(running.take_stdin());
    running.wait().expect(5);
    world.smcp(["pull", &one, &two]).env("MCP_CACHE_MAX_AGE", "1d").run().ok();
    assert_eq!(world.smcp(["cache", "ls"]).run().ok().text().lines().count(), 2);
    world.smcp(["cache", "gc"]).env("MCP_CACHE_MAX_AGE", "soon").run().expect(119).says(&["MCP_CACHE_MAX_AGE"]);
}

/// `cache verify` reads everything, names what is wrong, and the next pull mends it.
fn what_is_damaged_is_found(world: &World) {
    let image = Image::probe().build();
    let reference = image.write(&world.directory("image"));
    world.smcp(["pull", &reference]).run().ok();
    world.smcp(["cache", "verify"]).run().ok().says(&["3 blobs read"]);
    let mut bytes = image.config.bytes.clone();
    bytes[0] ^= 1;
    fs::write(image.config.path_in(&world.store()), bytes).unwrap();
    let ended = world.smcp(["cache", "verify", "--json"]).run().expect(1);
    let findings = ended.json()["findings"].to_string();
    ended.check(findings.contains(&image.config.digest), "the blob was expected to be named");
    world.smcp(["cache", "verify"]).run().expect(1).explains(&["1 findings"]);
    world.smcp(["pull", &reference]).run().ok();
    world.smcp(["cache", "verify"]).run().ok();
}

/// Files, names, modes and links of unpacked layers and of what they make together; each is named, and made anew.
fn what_was_changed_in_an_unpacked_layer_is_found(world: &World) {
    let image =
        Image::probe().file("etc/a b", 0o644, "text").file("etc/gone", 0o644, "x").link("etc/link", "a b").build();
    let reference = image.write(&world.directory("image"));
    let verify = || world.smcp(["cache", "verify"]).run();
    let layer = world.store().join("layers").join(&image.layer.digest["sha256:".len()..]);
    let is_layer = |path: &std::path::Path| path == layer;
    let tree = || {
        let all = fs::read_dir(world.store().join("layers")).unwrap().flatten().map(|entry| entry.path());
        all.into_iter().find(|path| !is_layer(path)).expect("the tree of the layers")
    };
    let writable = |path: &std::path::Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change, &str); 6] = [
        (
            "content",
            |root| {
                let file = root.join("etc/a b");
                fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
                fs::write(&file, "tExt").unwrap();
            },
            "`etc/a b`",
        ),
        (
            "a mode",
            |root| {
                fs::set_permissions(root.join("usr/bin/probe"), fs::Permissions::from_mode(0o4755)).unwrap();
            },
            "`usr/bin/probe`",
        ),
        ("a name more", |root| fs::write(root.join("etc/new"), "x").unwrap(), "`etc/new` does not belong there"),
        ("a name less", |root| fs::remove_file(root.join("etc/gone")).unwrap(), "`etc/gone` is missing"),
        (
            "a link",
            |root| {
                fs::remove_file(root.join("etc/link")).unwrap();
                std::os::unix::fs::symlink("/etc/passwd", root.join("etc/link")).unwrap();
            },
            "`etc/link`",
        ),
        (
            "another kind",
            |root| {
                fs::remove_file(root.join("etc/link")).unwrap();
                fs::create_dir(root.join("etc/link")).unwrap();
            },
            "`etc/link`",
        ),
    ];
    for (what, change, says) in changes {
        for of_tree in [false, true] {
            world.smcp(["run", &reference, "exit", "4"]).run().expect(4);
            verify().ok().says(&["2 unpacked layers and trees compared"]);
            let root = if of_tree { tree() } else { layer.clone() };
            [root.clone(), root.join("etc")].iter().for_each(|path| writable(path));
            change(&root);
            let ended = verify().expect(1);
            ended.check(ended.text().contains(says), &format!("{what}: {says} was expected"));
            ended.explains(&["findings"]);
            // What is found is set aside, so that nothing is left to be found.
            verify().ok();
        }
    }
    let ended = world.smcp(["cache", "verify", "--json"]).run().ok();
    ended.check(ended.json()["findings"] == serde_json::json!([]), "nothing was expected");
    world.smcp(["run", &reference, "exit", "4"]).run().expect(4);
    // Nothing of what was made to be compared is left.
    assert_eq!(fs::read_dir(world.store().join("tmp")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(world.store().join("trash")).unwrap().count(), 0);
}
