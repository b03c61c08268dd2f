//! What the flags of `run` grant, and that nothing is granted without one.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::json;

use crate::image::Image;
use crate::needs;
use crate::probe::REFUSED;
use crate::world::{SECRET, World, as_each_user};

as_each_user! {
    grants_of_other_tools,
    a_bad_file_of_variables_is_refused,
    a_grant_is_what_its_flag_says,
    a_grant_can_have_another_path,
    the_working_directory_is_granted_by_flag_alone,
    grants_that_make_no_sense_are_refused,
    a_foreign_program_needs_a_grant,
    a_dry_run_starts_nothing,
    a_dry_run_shows_the_network,
    n16_certificates_of_the_caller_go_in_with_the_network,
    n16_certificates_of_the_machine_where_there_are_no_others,
    info_shows_what_a_package_asks_for,
    doctor_tries_every_layer,
    a_server_may_use_the_cpus_of_its_caller,
}

/// A file of variables that is not there, or a line that is none, is a usage error that names it.
fn a_bad_file_of_variables_is_refused(world: &World) {
    let absent = world.text("home/absent");
    world.caged(&["--env-file", &absent], &["env"]).run().expect(2).says(&[&absent]);
    let file = world.file("home/bad", "GOOD=1\n=nameless\n");
    world.caged(&["--env-file", file.to_str().unwrap()], &["env"]).run().expect(2).says(&["2"]);
}

/// Without a grant nothing of the project is there; read-only, it can be read and not written; read-write, both.
fn a_grant_is_what_its_flag_says(world: &World) {
    world.file("project/note", "from the host");
    let (project, note, new) = (world.text("project"), world.text("project/note"), world.text("project/new"));
    world.caged(&[], &["read", &note]).run().expect(REFUSED);
    for flags in [["--mount", &project], ["--mount", &format!("{project}:ro")], ["--allow-read", &project]] {
        assert_eq!(world.caged(&flags, &["read", &note]).run().ok().json(), "from the host");
        for write in [["write", &note, "x"], ["write", &new, "x"]] {
            world.caged(&flags, &write).run().expect(REFUSED);
        }
        world.caged(&flags, &["remove", &note]).run().expect(REFUSED);
        world.caged(&flags, &["remount-writable", &project]).run().expect(REFUSED);
    }
    for flags in [["--mount", &format!("{project}:rw")], ["--allow-write", &project]] {
        world.caged(&flags, &["append", &note, "!"]).run().ok();
        world.caged(&flags, &["write", &new, "from inside"]).run().ok();
        assert_eq!(fs::read_to_string(&new).unwrap(), "from inside");
        assert_eq!(fs::metadata(&new).unwrap().uid(), world.user().id(), "the file is the caller's (E7)");
        world.caged(&flags, &["remove", &new]).run().ok();
    }
    assert_eq!(fs::read_to_string(&note).unwrap(), "from the host!!");
    assert_eq!(world.caged(&[], &["exit", "0"]).run().ok().stdout(), b"");
    assert_eq!(fs::read_dir(&project).unwrap().count(), 1, "nothing else was made in the grant");
}

/// A grant has another path inside where one is named.
fn a_grant_can_have_another_path(world: &World) {
    world.file("project/note", "here");
    let flag = format!("{}:/work:ro", world.text("project"));
    assert_eq!(world.caged(&["--mount", &flag], &["read", "/work/note"]).run().ok().json(), "here");
    world.caged(&["--mount", &flag], &["read", &world.text("project/note")]).run().expect(REFUSED);
}

/// `--cwd` grants a directory read-write and starts there; without it the working directory is not granted.
fn the_working_directory_is_granted_by_flag_alone(world: &World) {
    let project = world.text("project");
    let inside = world.caged(&["--cwd", &project], &["cwd"]).run().ok();
    assert_eq!(inside.json(), project.as_str());
    world.caged(&["--cwd", &project], &["write", "new", "x"]).run().ok();
    assert_eq!(fs::read_to_string(world.path("project/new")).unwrap(), "x");
    world.caged(&[], &["read", &world.text("project/new")]).in_directory(world.path("project")).run().expect(REFUSED);
    // The manifest's workdir.
    assert_eq!(world.caged(&[], &["cwd"]).in_directory(world.path("project")).run().ok().json(), "/usr/bin");
}

/// A grant of what is not there, or of everything, or of smcp's own files, is refused with the reason.
fn grants_that_make_no_sense_are_refused(world: &World) {
    let absent = world.text("absent");
    let refused = world.caged(&["--allow-read", &absent], &["exit", "0"]).run();
    refused.check([2, 121].contains(&refused.code()), "exit 2 or 121 was expected");
    refused.says(&[&absent]);
    let root = world.caged(&["--mount", "/"], &["exit", "0"]).run();
    root.check([2, 121].contains(&root.code()), "exit 2 or 121 was expected");
}

/// Foreign programs run only where subprocesses are granted.
fn a_foreign_program_needs_a_grant(world: &World) {
    let copy = ["copy-and-exec", &format!("/tmp/copy-{}", world.mark()), "exit", "33"];
    world.caged(&[], &copy).run().expect(REFUSED);
    world.caged(&["--allow-subprocess"], &copy).run().expect(33);
    let granted = world.directory("project");
    crate::probe::copy_to(&granted.join("tool"));
    world.give(&granted.join("tool"));
    let exec = ["exec", &world.text("project/tool"), "exit", "34"];
    world.caged(&["--allow-write", &world.text("project")], &exec).run().expect(REFUSED);
    world.caged(&["--allow-write", &world.text("project"), "--allow-subprocess"], &exec).run().expect(34);
}

/// `--dry-run` prints the whole plan and starts nothing.
fn a_dry_run_starts_nothing(world: &World) {
    let note = world.text("project/started");
    let flags = ["--dry-run", "--json", "--allow-write", &world.text("project"), "--env", "KEY=sentinel-value"];
    let ended = world.caged(&flags, &["write", &note, world.mark()]).run().ok();
    let plan = ended.json();
    ended.check(!world.path("project/started").exists(), "nothing should have started");
    let text = plan.to_string();
    for word in ["/usr/bin/probe", world.mark(), &world.text("project"), "KEY", "\"rlimits\""] {
        ended.check(text.contains(word), &format!("{word} was expected in the plan"));
    }
    ended.check(!text.contains("sentinel-value"), "no value of a variable was expected in the plan");
    world.caged(&["--dry-run"], &["exit", "3"]).run().ok();
}

/// `info` says what a run would be granted; it starts nothing and needs no network for what is in the store.
fn info_shows_what_a_package_asks_for(world: &World) {
    let reference = Image::probe()
        .manifest(|m| {
            m["permissions"] = json!({"network": {"outbound": [{"host": "api.acme.example", "ports": [443]}]}})
        })
        .build()
        .write(&world.directory("image"));
    let ended = world.smcp(["info", "--json", &reference]).run().ok();
    let text = ended.json().to_string();
    for word in ["test/probe", "1.0.0", "api.acme.example", "sha256:"] {
        ended.check(text.contains(word), &format!("{word} was expected"));
    }
    let people = world.smcp(["info", &reference]).run().ok();
    people.check(people.text().contains("api.acme.example"), "the request was expected for people too");
}

/// `doctor` says of every layer what was tried.
fn doctor_tries_every_layer(world: &World) {
    let ended = world.smcp(["doctor", "--json"]).run().ok();
    let text = ended.json().to_string();
    for layer in
        ["user-namespace", "mount-namespace", "pid-namespace", "network-namespace", "capabilities", "no-new-privileges"]
    {
        ended.check(text.contains(layer), &format!("{layer} was expected"));
    }
    world.smcp(["doctor"]).run().ok();
}

/// The cage process is kept away from one of them while it is made; the server is not.
fn a_server_may_use_the_cpus_of_its_caller(world: &World) {
    let allowed = |answer: serde_json::Value| {
        let status = answer.as_str().unwrap().to_owned();
        status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap().to_owned()
    };
    let verb = ["read", "/proc/self/status"];
    let outside = allowed(world.bare(&verb).run().ok().json());
    for _ in 0..5 {
        assert_eq!(allowed(world.caged(&[], &verb).run().ok().json()), outside);
    }
}

/// What was granted of the network, in the plan and in the files that programs look names up by.
fn a_dry_run_shows_the_network(world: &World) {
    let plan = |flags: &[&str]| {
        let all = [&["--dry-run", "--json"], flags].concat();
        world.caged(&all, &["exit", "0"]).run().ok().json()["plan"].clone()
    };
    let none = plan(&[]);
    assert!(none.get("egress").is_none() && none["files"]["/etc/resolv.conf"] == "# no network is granted\n", "{none}");
    let some =
        plan(&["--allow-net", "Bücher.example", "--allow-net", "[::ffff:192.0.2.7]:25", "--allow-host-port", "5432"]);
    let want = json!({"outbound": ["xn--bcher-kva.example:443", "192.0.2.7:25"], "hostPorts": [5432]});
    assert_eq!(some["egress"], want);
    let file = |name: &str| some["files"][name].as_str().unwrap().to_owned();
    assert!(file("/etc/resolv.conf").starts_with("nameserver 198.18.0.1\n"), "{some}");
    assert!(file("/etc/hosts").starts_with("127.0.0.1 localhost smcp host.docker.internal host.containers.internal\n"));
    assert_eq!(plan(&["--allow-all-net", "--net-by-port"])["egress"], json!({"any": true, "byPort": true}));
    let shown = world.caged(&["--dry-run", "--allow-net", "a.test:80,443"], &["exit", "0"]).run().ok();
    shown.check(shown.text().contains("network    a.test:80,443\n"), "the destination was expected");
    let shown = world.caged(&["--dry-run"], &["exit", "0"]).run().ok();
    shown.check(shown.text().contains("network    loopback alone\n"), "no destination was expected");
}

/// Two certificates that are none, but look like some, with a key between them.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIBsmcp\n-----END CERTIFICATE-----\n";

/// What `SSL_CERT_FILE` names goes in as data, where there is a network, and every program is told of it.
fn n16_certificates_of_the_caller_go_in_with_the_network(world: &World) {
    let key = format!("-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n");
    let file = world.file("home/private.pem", format!("{CERTIFICATE}{key}{CERTIFICATE}"));
    let image =
        Image::probe().config(|c| c["config"]["Env"] = json!(["SSL_CERT_FILE=/etc/ssl/own.pem", "PATH=/usr/bin"]));
    let reference = image.build().write(&world.directory("image"));
    let run = |flags: &[&str], verb: &[&str]| {
        let all = world.smcp(["run"]).args(flags).args([&reference]).args(verb);
        all.env("SSL_CERT_FILE", &file).run()
    };
    let with = ["--allow-host-port", "1"];
    let env = run(&with, &["env"]).ok().json();
    for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"] {
        let inside = env[name].as_str().unwrap_or_else(|| panic!("{name} in {env}"));
        assert_eq!(run(&with, &["read", inside]).ok().json(), CERTIFICATE.repeat(2));
        run(&with, &["write", inside, "x"]).expect(REFUSED);
    }
    assert!(world.audit_text().contains(&format!("\"certificates\":\"{}\"", file.display())), "{}", world.audit_text());
    assert_eq!(run(&[], &["env"]).ok().json()["SSL_CERT_FILE"], "/etc/ssl/own.pem", "nothing without a network");
    let flag = [&with[..], &["--env", "SSL_CERT_FILE=/mine"]].concat();
    assert_eq!(run(&flag, &["env"]).ok().json()["SSL_CERT_FILE"], "/mine", "a flag wins");
    for wrong in [world.text("home/absent"), world.text("home/.ssh/id"), world.text("home"), "/dev/zero".into()] {
        let all = world.smcp(["run"]).args(with).args([&reference, "env"]).env("SSL_CERT_FILE", &wrong);
        let ended = all.run().ok();
        ended.says(&["SSL_CERT_FILE", &wrong, "the server does not get it"]);
        assert_eq!(ended.json()["SSL_CERT_FILE"], "/etc/ssl/own.pem", "the package's own");
    }
}

/// Those of the machine, where neither the caller nor the package has any.
fn n16_certificates_of_the_machine_where_there_are_no_others(world: &World) {
    let here = std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists();
    if !needs::present(here, "certificates (Debian's package ca-certificates)") {
        return;
    }
    let with = ["--allow-host-port", "1"];
    let inside = world.caged(&with, &["env"]).run().ok().json()["SSL_CERT_FILE"].as_str().unwrap().to_owned();
    let text = world.caged(&with, &["read", &inside]).run().ok().json();
    assert!(text.as_str().unwrap().matches("-----BEGIN CERTIFICATE-----").count() > 10, "{text}");
    assert_eq!(world.caged(&[], &["env"]).run().ok().json().get("SSL_CERT_FILE"), None);
    let shown = world.caged(&["--dry-run", "--allow-net", "a.test"], &["env"]).run().ok();
    shown.check(shown.text().contains("trusts     "), "the certificates were expected in the plan");
    let own = Image::probe().file("etc/ssl/certs/ca-certificates.crt", 0o644, CERTIFICATE).build();
    let reference = own.write(&world.directory("image"));
    let env = world.smcp(["run"]).args(with).args([&reference, "env"]).run().ok().json();
    assert_eq!(env.get("SSL_CERT_FILE"), None, "the package has its own");
}

/// Without namespaces they are in the run's own directory, and the variables lead there.
#[test]
fn n16_certificates_at_tier_1() {
    if needs::program("unshare", "util-linux").is_none() || needs::program("setpriv", "util-linux").is_none() {
        return;
    }
    let world = World::without_namespaces();
    let file = world.file("home/private.pem", CERTIFICATE);
    let with = ["--net-by-port", "--allow-net", "a.test"];
    // The directory is a run's own, so that its server has to say what it finds there.
    let run = |verb: &[&str]| world.caged(&with, verb).env("SSL_CERT_FILE", &file).run().ok().json();
    let variables = run(&["env"]);
    let inside = variables["SSL_CERT_FILE"].as_str().unwrap();
    assert!(inside.starts_with(world.text("cache").as_str()), "{inside}");
    assert_eq!(variables["NODE_EXTRA_CA_CERTS"], inside);
    assert_eq!(run(&["read-of", "SSL_CERT_FILE"]), CERTIFICATE);
}

/// A profile of ToolHive's and an entry of Docker's are grants like flags, and policy is above them.
fn grants_of_other_tools(world: &World) {
    world.directory("project/data");
    world.file("project/data/a", "x");
    let data = world.text("project/data");
    let profile = world.file("project/profile.json", json!({"read": [data], "network": {}}).to_string());
    let profile = profile.to_str().expect("paths are UTF-8");
    let file = format!("{data}/a");
    let read = |flags: &[&str]| world.caged(flags, &["read", &file]).run();
    read(&[]).expect(REFUSED);
    assert_eq!(read(&["--permissions", profile]).ok().json(), json!("x"));
    let entry = json!({"registry": {"one": {"image": "x", "disableNetwork": true, "volumes": [format!("{data}:{data}:ro")], "env": [{"name": "MODE", "value": "quiet"}],
        "secrets": [{"name": "s", "env": "TOKEN"}]}, "two": {"image": "y", "gpu": 1}}});
    let catalog = world.file("project/catalog.yaml", entry.to_string());
    let catalog = catalog.to_str().expect("paths are UTF-8");
    let one = read(&["--permissions", &format!("{catalog}#one")]);
    one.says(&["--secret TOKEN"]);
    assert_eq!(one.ok().json(), json!("x"));
    assert_eq!(world.caged(&["--permissions", &format!("{catalog}#one")], &["env"]).run().ok().json()["MODE"], "quiet");
    read(&["--permissions", &format!("{catalog}#two")]).expect(2).explains(&["catalog.yaml", "gpu"]);
    read(&["--permissions", catalog]).expect(2).explains(&["several servers", "one, two"]);
    world.directory("home/.smcp");
    world.file("home/.smcp/config.yaml", "policy: {ceilings: {filesystem: {allow: []}}}\n");
    read(&["--permissions", profile]).expect(121).explains(&["--permissions"]);
}
