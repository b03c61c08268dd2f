//! The ceilings of policy, by real runs: files, programs and variables that flags, packages and arguments ask for.

use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;

use serde_json::json;

use crate::command::Ended;
use crate::image::{Image, probe_reference};
use crate::needs;
use crate::probe::{self, REFUSED};
use crate::world::{SECRET, User, World, as_each_user};

as_each_user! {
    t4_the_ceiling_of_files,
    t4_what_a_package_asks_for_of_files,
    t4_the_organisations_ceiling_of_files,
    t4_a_denied_directory_under_another_name,
    t4_the_ceiling_of_programs,
    t4_the_ceiling_of_variables,
}

/// `in` with `deep` and `closed`, `out`, and the link `in/link` to `out`; each with a `note`.
fn files(world: &World) {
    for name in ["in", "in/deep", "in/closed", "out"] {
        world.directory(&format!("project/{name}"));
        world.file(&format!("project/{name}/note"), format!("of {name}"));
    }
    link(world, &world.path("project/out"), &world.path("project/in/link"));
}

fn link(world: &World, target: &Path, at: &Path) {
    symlink(target, at).unwrap();
    if rustix::process::geteuid().is_root() {
        lchown(at, Some(world.user().id()), Some(world.user().group())).unwrap();
    }
}

/// The user's own configuration with these ceilings.
fn config(world: &World, ceilings: &str) -> String {
    let ceilings = ceilings.replace('$', &world.text("project"));
    world.file("home/ceilings.yaml", format!("policy:\n  ceilings: {ceilings}\n")).display().to_string()
}

const FILES: &str = "{filesystem: {allow: [{path: $/in, access: ro}, {path: $/in/deep, access: rw}, {path: ~/.ssh, access: ro}], \
    deny: [~/.ssh, $/in/closed]}}";

fn t4_the_ceiling_of_files(world: &World) {
    files(world);
    let config = config(world, FILES);
    let place = |text: &str| text.replace('$', &world.text("project")).replace('~', &world.text("home"));
    let run = |flags: &[&str], verb: &[&str]| {
        let flags: Vec<String> = flags.iter().map(|flag| place(flag)).collect();
        let verb: Vec<String> = verb.iter().map(|word| place(word)).collect();
        world.smcp(["--config", &config, "run"]).args(flags).args([probe_reference()]).args(verb).run()
    };
    let line = format!("({config}:2)");
    for (flags, says) in [
        (&["--allow-read", "$/out"][..], "$/out: the policy's ceiling does not allow it"),
        (&["--mount", "$/out:/elsewhere"], "the policy's ceiling does not allow it"),
        (&["--allow-write", "$/in/note"], "$/in/note: the policy's ceiling allows it read-only"),
        (&["--mount", "$/in:rw", "--deny", "$/in/closed"], "the policy's ceiling allows it read-only"),
        (&["--cwd", "$/in", "--deny", "$/in/closed"], "--cwd $/in: the policy's ceiling allows it read-only"),
        (&["--allow-read", "$/in/link"], "$/in/link: the policy's ceiling does not allow it"),
        (&["--allow-read", "$/in/link/note"], "the policy's ceiling does not allow it"),
        (&["--allow-read", "$/in/../out"], "the policy's ceiling does not allow it"),
        (&["--allow-read", "$"], "it holds $/in/closed, which the policy denies"),
        (&["--allow-read", "$/in"], "it holds $/in/closed, which the policy denies"),
        (&["--allow-read", "$/in/closed"], "the policy denies $/in/closed"),
        (&["--allow-read", "$/in/closed/note"], "the policy denies $/in/closed"),
        (&["--allow-read", "$/in/deep/../closed/note"], "the policy denies $/in/closed"),
        (&["--allow-read", "~/.ssh"], "the policy denies ~/.ssh"),
        (&["--allow-read", "~/.ssh/id"], "the policy denies ~/.ssh"),
        (&["--deny", "~/.ssh", "--allow-read", "~/.ssh/id"], "the policy denies ~/.ssh"),
    ] {
        let ended = run(flags, &["exit", "4"]).expect(121);
        ended.explains(&[&place(says), &line]);
        assert_eq!(world.last_end()["cause"], "denied");
    }
    // Every reason at once.
    let both = run(&["--allow-read", "$/out", "--allow-write", "$/in/note"], &["exit", "4"]).expect(121);
    both.explains(&["$/out: ", "$/in/note: "].map(place).each_ref().map(String::as_str));

    let read = |flags: &[&str], path: &str| run(flags, &["read", path]);
    let hidden = ["--allow-read", "$/in", "--deny", "$/in/closed"];
    assert_eq!(read(&hidden, "$/in/note").ok().json(), "of in");
    read(&hidden, "$/in/closed/note").expect(REFUSED);
    // What a link in a grant leads to is no part of it.
    read(&hidden, "$/in/link/note").expect(REFUSED);
    run(&hidden, &["write", "$/in/note", "x"]).expect(REFUSED);
    let deep = ["--allow-write", "$/in/deep"];
    run(&deep, &["write", "$/in/deep/new", "x"]).ok();
    assert_eq!(fs::read_to_string(world.path("project/in/deep/new")).unwrap(), "x");
    // The name of the caller's directory grants nothing by being there.
    read(&[], "$/in/note").expect(REFUSED);
}

/// The directory that an argument names, with the access that the manifest asks for.
fn t4_what_a_package_asks_for_of_files(world: &World) {
    files(world);
    let config = config(world, FILES);
    let package = |access: &str| {
        let image = Image::probe().manifest(|manifest| {
            manifest["args"] =
                json!([{"name": "verb", "type": "string"}, {"name": "root", "type": "path", "mount": "ws"}]);
            manifest["permissions"] =
                json!({"filesystem": [{"id": "ws", "access": access, "target": "/work", "from": "user"}]});
        });
        image.build().write(&world.directory(&format!("asks-{access}")))
    };
    let (reads, writes) = (package("ro"), package("rw"));
    let run = |package: &str, verb: &[&str]| {
        let verb: Vec<String> = verb.iter().map(|word| word.replace('$', &world.text("project"))).collect();
        world.smcp(["--config", &config, "run", package]).args(verb).run()
    };
    run(&reads, &["list", "$/in/deep"]).ok();
    run(&writes, &["write", "$/in/deep", "x"]).expect(REFUSED);
    let refused = |ended: Ended, says: &str| ended.expect(121).explains(&["argument `root`", says, &config]);
    refused(run(&writes, &["list", "$/in/link"]), "the policy's ceiling does not allow it");
    refused(run(&reads, &["list", "$/out"]), "the policy's ceiling does not allow it");
    refused(run(&reads, &["list", "$/in/closed"]), "the policy denies");
    let half = world.directory("project/in/half");
    run(&reads, &["list", half.to_str().unwrap()]).ok();
    refused(run(&writes, &["list", half.to_str().unwrap()]), "allows it read-only");
}

/// `~` in the organisation's files is the account's home, whatever the caller says of `HOME`, and no file or variable of the
/// user's allows more.
fn t4_the_organisations_ceiling_of_files(world: &World) {
    files(world);
    world.account();
    let place = |text: &str| text.replace('$', &world.text("project"));
    world.govern(
        "policy.d/files.yaml",
        &place("policy: {ceilings: {filesystem: {allow: [{path: $/in, access: ro}, {path: \"~\", access: rw}], deny: [~/.ssh]}}}\n"),
    );
    let mine = config(world, "{filesystem: {allow: [{path: /, access: rw}], deny: []}}");
    let run = |flags: &[&str], verb: &[&str]| {
        let governed = world.governed(["--config", &mine, "run"])?;
        let flags: Vec<String> = flags.iter().map(|flag| place(flag)).collect();
        Some(governed.args(flags).args([probe_reference()]).args(verb).env("HOME", world.text("project")).run())
    };
    let Some(read) = run(&["--allow-read", "$/in"], &["read", &place("$/in/note")]) else { return };
    assert_eq!(read.ok().json(), "of in");
    let (ssh, line) = (world.text("home/.ssh"), "(/etc/smcp/policy.d/files.yaml:1)");
    for (flags, says) in [
        (["--allow-read", "$/out"], "the policy's ceiling does not allow it".to_owned()),
        (["--allow-write", "$/in"], "the policy's ceiling allows it read-only".into()),
        (["--allow-read", &ssh], format!("the policy denies {ssh}")),
        (["--allow-read", "/etc/hostname"], "the policy's ceiling does not allow it".into()),
    ] {
        run(&flags, &["exit", "4"]).unwrap().expect(121).explains(&[&says, line]);
    }
    // Without an account there is no such home, and nothing is taken for it.
    if world.user().id() != 0 {
        world.govern("../passwd", "root:x:0:0::/root:/bin/sh\n");
        run(&[], &["exit", "4"]).unwrap().expect(119).explains(&["no home directory", "/etc/smcp/policy.d/files.yaml"]);
    }
}

/// A hard link to a denied file, and where root can, another mount of a denied directory: what is denied is the thing, and not its name.
fn t4_a_denied_directory_under_another_name(world: &World) {
    files(world);
    let config = config(world, "{filesystem: {deny: [~/.ssh/id, $/in/closed]}}");
    let other = world.path("project/out/other");
    fs::hard_link(world.path("home/.ssh/id"), &other).unwrap();
    let flags = ["--config", &config, "run", "--allow-read", other.to_str().unwrap(), probe_reference(), "read"];
    let ended = world.smcp(flags).args([&other]).run().expect(121);
    ended.explains(&["the policy denies", ".ssh/id"]);
    ended.check(!ended.text().contains(SECRET), "it was read");
    let Some(_) = needs::program("unshare", "util-linux") else { return };
    let twice = world.directory("project/twice");
    let (namespace, become_one): (&[&str], &str) = match world.user() {
        User::Root => (&["--mount"], ""),
        User::Ordinary => {
            (&["--user", "--map-current-user", "--keep-caps", "--mount"], "setpriv --inh-caps=-all --ambient-caps=-all")
        }
    };
    let script = format!(r#"mount --bind "$1" "$2" && shift 2 && exec {become_one} "$@""#);
    let closed = world.path("project/in/closed");
    let run = world.program("/usr/bin/unshare", namespace).args(["sh", "-c", &script, "sh"]).args([&closed, &twice]);
    let run = run.args([crate::place::smcp()]).args(["--config", &config, "run", "--allow-read"]).args([&twice]);
    run.args([probe_reference(), "exit", "4"]).run().expect(121).explains(&["the policy denies"]);
}

fn t4_the_ceiling_of_programs(world: &World) {
    let tool = || fs::read(probe::path()).unwrap();
    let image = Image::probe().file("usr/bin/tool", 0o755, tool()).file("usr/bin/other", 0o755, tool());
    let image = image.link("usr/bin/alias", "other");
    let asks = json!({"subprocess": {"allow": ["/usr/bin/tool", "/usr/bin/other"]}});
    let package = image.manifest(|manifest| manifest["permissions"] = asks).build().write(&world.directory("tools"));
    let config = config(world, "{subprocess: {allow: [/usr/bin/tool, /usr/bin/alias]}}");
    let run = |flags: &[&str], program: &str| {
        world.smcp(["--config", &config, "run"]).args(flags).args([&package, "exec", program, "exit", "34"]).run()
    };
    let ended = run(&[], "/usr/bin/tool").expect(34);
    ended.says(&["not granted: starting /usr/bin/other: the policy's ceiling does not allow it", &config]);
    run(&[], "/usr/bin/other").expect(REFUSED);
    run(&["--allow-subprocess=/usr/bin/tool"], "/usr/bin/other").expect(REFUSED);
    for (flag, says) in [
        ("--allow-subprocess=/usr/bin/other", "/usr/bin/other: the policy's ceiling does not allow it"),
        ("--allow-subprocess=/usr/bin/../bin/other", "the policy's ceiling does not allow it"),
        ("--allow-subprocess", "the policy's ceiling allows named programs alone"),
    ] {
        run(&[flag, "-v"], "/usr/bin/tool").expect(121).explains(&[says, &config]);
    }
}

/// Whoever sets it: a flag, a file, a secret's source, the manifest, the image. And an argument that the package requires it for.
fn t4_the_ceiling_of_variables(world: &World) {
    let config = config(world, "{env: {deny: [\"AWS_*\", TOKEN]}}");
    let image = |required: bool| {
        let image = Image::probe().manifest(|manifest| {
            manifest["env"] = json!([{"name": "TOKEN", "default": "x"}, {"name": "LOG", "default": "info"}]);
            if required {
                manifest["env"][0] = json!({"name": "TOKEN", "required": true});
            }
        });
        let image = image.config(|config| config["config"]["Env"] = json!(["PATH=/usr/bin", "AWS_IN_THE_IMAGE=1"]));
        image.build().write(&world.directory(&format!("env-{required}")))
    };
    let (package, requires) = (image(false), image(true));
    let run = |package: &str, flags: &[&str]| {
        let run = world.smcp(["--config", &config, "run"]).args(flags).args([package, "env"]);
        run.env("AWS_OF_THE_CALLER", "1").env("TOKEN", "of the caller").run()
    };
    let ended = run(&package, &["--env", "OTHER=2"]).ok();
    let (inside, told) = (ended.json(), ["AWS_IN_THE_IMAGE", "TOKEN"]);
    assert_eq!((&inside["LOG"], &inside["OTHER"]), (&json!("info"), &json!("2")));
    assert!(told.iter().all(|name| inside.get(name).is_none()), "{inside}");
    ended.says(&["not granted: variable TOKEN: the policy's ceiling does not allow it"]);
    let file = world.file("home/variables", "GOOD=1\nAWS_IN_A_FILE=2\n");
    for (flags, name) in [
        (["--env", "AWS_KEY=1"], "AWS_KEY"),
        (["--env", "AWS_OF_THE_CALLER"], "AWS_OF_THE_CALLER"),
        (["--env-file", file.to_str().unwrap()], "AWS_IN_A_FILE"),
        (["--secret", "AWS_SECRET=env:TOKEN"], "AWS_SECRET"),
        (["--secret", "TOKEN"], "TOKEN"),
    ] {
        let ended = run(&package, &flags).expect(121);
        ended.explains(&[&format!("{name}: the policy's ceiling does not allow it"), &config]);
        ended.check(!ended.stderr().contains("of the caller"), "no value was expected");
    }
    run(&requires, &[]).expect(121).explains(&["the required variable TOKEN: the policy's ceiling"]);
    run(&requires, &["--env", "TOKEN=1"]).expect(121).explains(&["TOKEN", "the policy's ceiling"]);
}
