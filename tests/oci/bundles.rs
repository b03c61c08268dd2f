//! `smcp bundle`: a package as a directory that other runtimes run, and the cage that smcp-oci puts around it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{Containers, by_name, cgroups};
use crate::build::source;
use crate::command::Ended;
use crate::needs;
use crate::world::{User, World, as_each_user};

as_each_user! {
    a_bundle_is_complete,
    a_bundle_runs_by_smcp_run,
    what_a_bundle_cannot_be,
}

/// A package of the probe's in a layout.
fn package(world: &World) -> String {
    let reference = format!("oci-layout:{}:v1", world.text("layout"));
    world.smcp(["build", &source(world), "-t", &reference]).run().ok();
    reference
}

/// Its files, the plan for any runtime, and the plan for smcp-oci; readable by its owner alone, since variables stand in it.
fn a_bundle_is_complete(world: &World) {
    let reference = package(world);
    let directory = world.text("bundle");
    let line = ["bundle", "-o", &directory, "--env", "A=b", "--memory", "256M", &reference, "args", "x"];
    world.smcp(line).run().ok();
    let file = world.path("bundle/config.json");
    let config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(config["process"]["args"], json!(["/app/probe", "args", "x"]));
    let env: Vec<&str> = config["process"]["env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(env.contains(&"A=b"), "{env:?}");
    assert_eq!(config["root"], json!({"path": "rootfs", "readonly": true}));
    assert_eq!(config["process"]["capabilities"]["bounding"], json!([]));
    let user = config["process"]["user"]["uid"].as_u64().unwrap();
    match world.user() {
        User::Root => {
            assert!(user > 65536, "{user}");
            assert_eq!(config["linux"]["resources"]["memory"]["limit"], 256 << 20);
        }
        User::Ordinary => {
            let own = world.user().id();
            assert_eq!(config["linux"]["uidMappings"], json!([{"containerID": 0, "hostID": own, "size": 1}]));
        }
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(world.path("bundle/rootfs/app/probe").is_file());
    let hosts = fs::read_to_string(world.path("bundle/rootfs/etc/hosts")).unwrap();
    assert!(hosts.contains("localhost"), "{hosts}");
    let about: Value = serde_json::from_slice(&fs::read(world.path("bundle/smcp.json")).unwrap()).unwrap();
    assert_eq!(about["plan"]["programs"], "runtime");
    assert!(about["digest"].as_str().unwrap().starts_with("sha256:"));
    let entries = world.audit();
    assert_eq!(entries.last().unwrap()["cause"], "bundle");
}

/// The same cage as by its flags, without registry, store and layout, which are gone; more flags and other arguments count. What is
/// not as its digest says is not run, and policy is asked as ever.
fn a_bundle_runs_by_smcp_run(world: &World) {
    let reference = package(world);
    let directory = world.text("bundle");
    world.directory("data");
    world.file("data/file", "granted");
    let file = world.text("data/file");
    let flags = ["--env", "A=b", "--memory", "256M", "--mount", "data:/in", "--allow-read", &file, "--pids", "70"];
    // As root it is another at each run.
    let user: &[&str] = if world.user() == User::Root { &["--user", "70001"] } else { &[] };
    let line = |words: &'static [&'static str]| [&flags[..], &[&reference], words].concat();
    let plan = |line: &[&str]| {
        let plan = world
            .smcp(["run", "--dry-run", "--json"])
            .args(user)
            .args(line)
            .in_directory(world.path(""))
            .run()
            .ok()
            .json();
        let mut plan = plan["plan"].clone();
        // Where the package's files were unpacked.
        plan["tree"].take();
        plan
    };
    let (of_run, vars) = (plan(&line(&["args", "x"])), line(&["env"]));
    let vars = world.smcp(["run"]).args(vars).in_directory(world.path("")).run().ok().json();
    world.smcp(["bundle", "-o", &directory]).args(line(&["args", "x"])).in_directory(world.path("")).run().ok();
    let about = world.path("bundle/smcp.json");
    assert_eq!(fs::metadata(&about).unwrap().permissions().mode() & 0o777, 0o600);
    fs::remove_dir_all(world.path("layout")).unwrap();
    assert_eq!(plan(&["--bundle", &directory]), of_run);
    let with_store = |name: &str, line: &[&str]| {
        world.smcp(["run", "--offline"]).args(line).env("MCP_CACHE_DIR", world.text(name)).run()
    };
    let run = |line: &[&str]| with_store("cache/other", line);
    assert_eq!(run(&["--bundle", &directory]).ok().json(), json!(["x"]));
    assert_eq!(run(&["--bundle", &directory, "env"]).ok().json(), vars);
    assert_eq!(run(&["--bundle", &directory, "read", "/in/file"]).ok().json(), "granted");
    let more = format!("--bundle={directory}");
    assert_eq!(run(&[&more, "--env", "C=d", "--", "env"]).ok().json()["C"], "d");
    let of_bundle =
        |entry: &Value| entry["reference"].as_str().is_some_and(|name| name.ends_with("/bundle/package:bundle"));
    assert!(world.audit().iter().any(of_bundle));
    // Another directory.
    assert!(run(&["--bundle", &world.text("data")]).expect(2).stderr().contains("smcp.json"));
    let denied = world.smcp(["run", "--bundle", &directory]).env("MCP_POLICY_MIN_CERT_LEVEL", "3").run();
    denied.expect(121);
    // The root is other runtimes'.
    fs::write(world.path("bundle/rootfs/app/probe"), "").unwrap();
    assert_eq!(run(&["--bundle", &directory]).ok().json(), json!(["x"]));
    for blob in fs::read_dir(world.path("bundle/package/blobs/sha256")).unwrap() {
        let blob = blob.unwrap().path();
        let mut bytes = fs::read(&blob).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::set_permissions(&blob, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(blob, bytes).unwrap();
    }
    with_store("cache/third", &["--bundle", &directory]).expect(122);
}

/// A directory that holds something stays as it is, and a secret is in no bundle.
fn what_a_bundle_cannot_be(world: &World) {
    let reference = package(world);
    world.directory("full");
    world.file("full/file", "mine");
    world.smcp(["bundle", "-o", &world.text("full"), &reference]).run().expect(2);
    assert_eq!(fs::read_dir(world.path("full")).unwrap().count(), 1);
    let directory = world.text("bundle");
    world.smcp(["bundle", "-o", &directory, "--secret", "TOKEN", &reference]).run().expect(2);
    assert!(!world.path("bundle").exists());
}

/// runc, crun and smcp-oci run it with the same result, as the plan's user, who can write HOME and nothing of the package.
#[test]
fn other_runtimes_run_a_bundle() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let (Some(runc), Some(crun)) = (needs::program("runc", "runc"), needs::program("crun", "crun")) else { return };
    let reference = package(&world);
    let own = |program: &std::path::Path| vec![program.to_str().expect("UTF-8").to_owned()];
    // crun 1.8 refuses the hybrid hierarchy. In a mount namespace of its own nothing of the host changes.
    let unified = "umount -R /sys/fs/cgroup; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec \"$@\"";
    let words = ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", unified, "sh"].map(str::to_owned);
    let crun = [words.to_vec(), own(&crun), vec!["--cgroup-manager".into(), "disabled".into()]].concat();
    let runtimes = [("runc", own(&runc)), ("crun", crun), ("smcp", vec![by_name(&world)])];
    let run = |name: &str, program: &[String], words: &[&str]| -> Ended {
        let directory = world.text(&format!("bundle-{name}-{}", words.join("-").replace('/', "")));
        world.smcp(["bundle", "-o", &directory, &reference]).args(words).run().ok();
        let id = format!("{}{name}", world.mark());
        let started = world.program(&program[0], &program[1..]).args(["--root", &world.text(&format!("state-{name}"))]);
        started.args(["run", "--bundle", &directory, &id]).run()
    };
    for (name, program) in &runtimes {
        assert_eq!(run(name, program, &["args", "in a bundle"]).ok().json(), json!(["in a bundle"]), "{name}");
        run(name, program, &["exit", "4"]).expect(4);
        let ids = run(name, program, &["ids"]).ok().json();
        assert_eq!((&ids["CapBnd"], &ids["NoNewPrivs"]), (&json!("0000000000000000"), &json!("1")), "{name}");
        let home = world.text("home/new");
        assert_eq!(run(name, program, &["write", &home, "x"]).ok().json(), "written", "{name}");
        run(name, program, &["write", "/app/new", "x"]).expect(crate::probe::REFUSED);
    }
}

/// smcp-oci puts the package's cage around its bundle: a foreign program is not executed, and calls that smcp's filter does not know
/// do not exist. With runc they do. So does a container with the manifest among its annotations, and one without has neither.
#[test]
fn the_cage_of_a_package_is_around_its_bundle() {
    if !needs::root() {
        return;
    }
    let world = World::new(User::Root);
    let Some(runc) = needs::program("runc", "runc") else { return };
    let reference = package(&world);
    let directory = world.text("bundle");
    // A copy of the probe's on a place that a bundle may execute from is a foreign program.
    let foreign = world.text("project/foreign");
    crate::probe::copy_to(world.path("project/foreign").as_path());
    let flags = ["--allow-read", &foreign];
    world
        .smcp(["bundle", "-o", &directory])
        .args(flags)
        .args([&reference, "exec", &foreign, "args", "foreign"])
        .run()
        .ok();
    let run = |program: &std::path::Path, state: &str| {
        let id = format!("{}caged", world.mark());
        world.program(program, ["--root", &world.text(state), "run", "--bundle", &directory, &id]).run()
    };
    assert_eq!(run(&runc, "state-runc").ok().json(), json!(["foreign"]));
    let smcp = std::path::PathBuf::from(by_name(&world));
    let refused = run(&smcp, "state-smcp").expect(crate::probe::REFUSED).json();
    assert!(refused["refused"].as_str().unwrap().contains("os error 13"), "{refused}");
    // What is smcp's beside config.json is read or refused, and never left out.
    fs::write(world.path("bundle/smcp.json"), "{}").unwrap();
    assert!(run(&smcp, "state-smcp").expect(1).stderr().contains("smcp.json"));
    // By its manifest among the annotations.
    fs::remove_file(world.path("bundle/smcp.json")).unwrap();
    assert_eq!(run(&smcp, "state-smcp").ok().json(), json!(["foreign"]));
    let manifest = json!({
        "schemaVersion": 1, "name": "test/probe", "version": "1.0.0", "entrypoint": {"args": ["/app/probe"]},
    });
    let file = world.path("bundle/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["annotations"]["info.mcp-hub.smcp.manifest.v1"] = json!(manifest.to_string());
    fs::write(&file, config.to_string()).unwrap();
    run(&smcp, "state-smcp").expect(crate::probe::REFUSED);
}

/// The package's limits are the most of a container that is made of it, whatever its `config.json` says of them.
#[test]
fn the_limits_of_a_package_hold() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    bundle.with(|config| {
        config["annotations"] = annotated(&json!({"memory": "64M", "pids": 20}));
        config["linux"]["resources"]["memory"] = json!({"limit": 128 << 20, "disableOOMKiller": true});
    });
    let id = format!("{}limits", here.world.mark());
    here.started(&id, &bundle);
    let shown = |name: &str| of_cgroup(&id, name);
    let memory = || shown("memory.limit_in_bytes").or_else(|| shown("memory.max"));
    assert_eq!(memory(), Some((64 << 20).to_string()));
    // A run swaps nothing out either.
    let with_swap = || shown("memory.memsw.limit_in_bytes").is_none_or(|most| most == (64 << 20).to_string());
    let waits = || shown("memory.oom_control").is_none_or(|text| text.starts_with("oom_kill_disable 1"));
    assert!(with_swap() && waits());
    // What is set later is below them as well, and what is not named stays.
    for flags in [["--memory", "134217728"], ["--memory", "-1"], ["--memory-swap", "-1"], ["--pids-limit", "-1"]] {
        here.oci(["update"]).args(flags).args([id.as_str()]).run().ok();
        assert_eq!(memory(), Some((64 << 20).to_string()), "{flags:?}");
        assert_eq!(shown("pids.max").as_deref(), Some("20"), "{flags:?}");
        assert!(with_swap() && waits(), "{flags:?}");
    }
    here.oci(["update", "--memory", "33554432", &id]).run().ok();
    assert_eq!(memory(), Some((32 << 20).to_string()));
    assert!(waits());
    here.oci(["delete", "-f", &id]).run().ok();
    // What is no limit is refused, and nothing is left of it.
    for odd in [json!("much"), json!({"memory": "much"}), json!({"pids": [5]})] {
        bundle.with(|config| config["linux"]["resources"] = odd.clone());
        let refused = here.oci(["create", "--bundle", bundle.path(), &id]).run().expect(1);
        assert!(refused.stderr().contains("is no object"), "{odd}: {}", refused.stderr());
    }
    here.nothing_left();
}

/// The root of a package's container is read-only, as in any run: who can write where programs are can replace them.
#[test]
fn the_root_of_a_package_is_not_written() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    bundle.with(|config| {
        config["root"]["readonly"] = json!(false);
        config["process"]["capabilities"] =
            json!({"effective": ["CAP_DAC_OVERRIDE"], "permitted": ["CAP_DAC_OVERRIDE"]});
    });
    let write = |path: &str| here.oci(["exec", "one", "/probe", "write", path, "x"]).run();
    here.started("one", &bundle);
    write("/opt").ok();
    here.oci(["delete", "-f", "one"]).run().ok();
    bundle.with(|config| config["annotations"] = annotated(&json!({})));
    here.started("one", &bundle);
    write("/new").expect(crate::probe::REFUSED);
    write("/probe").expect(crate::probe::REFUSED);
    write("/tmp/new").ok();
    here.oci(["delete", "-f", "one"]).run().ok();
    here.nothing_left();
}

/// What a package has where the plan puts something is not followed when it is a link: it would be written where that leads.
#[test]
fn a_link_in_the_place_of_a_file_of_the_plans_is_refused() {
    let world = World::new(User::of_the_tests());
    let source = source(&world);
    fs::create_dir(world.path("source/elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", world.path("source/data")).unwrap();
    let reference = format!("oci-layout:{}:linked", world.text("layout"));
    world.smcp(["build", &source, "-t", &reference]).run().ok();
    let granted = world.text("granted");
    world.directory("granted");
    let mount = format!("{granted}:/app/data");
    let refused = world.smcp(["bundle", "-o", &world.text("bundle"), "--mount", &mount, &reference]).run();
    assert!(refused.stderr().contains("symbolic link"), "{}", refused.stderr());
    refused.expect(123);
    assert!(!world.path("bundle/config.json").exists());
}

/// The cage is whole where smcp runs from memory, as it does for who may make no mounts: Landlock does not rule such files, so that it is tried with
/// another.
#[test]
fn the_cage_of_a_bundle_without_privileges() {
    let world = World::new(User::Ordinary);
    let Some(unshare) = needs::program("unshare", "util-linux") else { return };
    let reference = package(&world);
    let directory = world.text("bundle");
    let foreign = world.text("project/foreign");
    crate::probe::copy_to(world.path("project/foreign").as_path());
    let run = |words: &[&str]| {
        let _ = fs::remove_dir_all(world.path("bundle"));
        world.smcp(["bundle", "-o", &directory, "--allow-read", &foreign, &reference]).args(words).run().ok();
        // To root of a user namespace the user is 0.
        let file = world.path("bundle/config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for map in ["uidMappings", "gidMappings"] {
            config["linux"][map] = json!([{"containerID": 0, "hostID": 0, "size": 1}]);
        }
        fs::write(&file, config.to_string()).unwrap();
        let smcp = crate::place::smcp().to_str().unwrap();
        let line = ["--user", "--map-root-user", smcp, "oci", "--root", &world.text("state"), "run", "--bundle"];
        world.program(&unshare, line).args([directory.as_str(), "one"]).run()
    };
    let ended = run(&["args", "caged"]).ok();
    assert_eq!(ended.json(), json!(["caged"]));
    assert!(ended.stderr().contains("limits of memory and processes are not in force"), "{}", ended.stderr());
    let refused = run(&["exec", &foreign, "args", "foreign"]).expect(crate::probe::REFUSED).json();
    assert!(refused["refused"].as_str().unwrap().contains("os error 13"), "{refused}");
}

/// Annotations of a package of the probe's with these limits.
fn annotated(limits: &Value) -> Value {
    let manifest = json!({
        "schemaVersion": 1, "name": "test/probe", "version": "1.0.0", "entrypoint": {"args": ["/probe"]}, "limits": limits,
    });
    json!({"info.mcp-hub.smcp.manifest.v1": manifest.to_string()})
}

/// What a file of a container's cgroup says, where there is one of that name.
fn of_cgroup(id: &str, file: &str) -> Option<String> {
    let text = cgroups(id).into_iter().find_map(|directory| fs::read_to_string(directory.join(file)).ok());
    text.map(|text| text.trim().to_owned())
}
