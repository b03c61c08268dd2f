//! `exec`.

use serde_json::json;

use super::Containers;

/// A further process has the container's namespaces, environment and filter, and its exit code is the command's.
#[test]
fn exec_joins_the_container() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    bundle.with(|config| config["process"]["user"] = json!({"uid": 0, "gid": 7, "additionalGids": [5, 6]}));
    here.started("one", &bundle);
    let exec = |flags: &[&str], words: &[&str]| here.oci(["exec"]).args(flags).args(["one"]).args(words).run();
    exec(&[], &["/probe", "exit", "7"]).expect(7);
    assert_eq!(exec(&[], &["/probe", "hostname"]).ok().json(), "smcp");
    assert_eq!(exec(&["--cwd", "/proc"], &["/probe", "cwd"]).ok().json(), "/proc");
    let env = exec(&["--env", "A=b", "-e", "TERM=x"], &["/probe", "env"]).ok().json();
    assert_eq!((&env["A"], &env["TERM"]), (&json!("b"), &json!("x")));
    let ids = exec(&["--user", "1000:1001"], &["/probe", "ids"]).ok().json();
    assert!(ids["Uid"].as_str().unwrap().starts_with("1000"), "{ids}");
    assert!(ids["Gid"].as_str().unwrap().starts_with("1001"), "{ids}");
    // What is not said stays the container's.
    let ids = exec(&["--user", "1000", "--additional-gids", "8"], &["/probe", "ids"]).ok().json();
    assert!(ids["Uid"].as_str().unwrap().starts_with("1000"), "{ids}");
    assert!(ids["Gid"].as_str().unwrap().starts_with("7"), "{ids}");
    assert_eq!(ids["Groups"].as_str().unwrap().split_whitespace().collect::<Vec<_>>(), ["5", "6", "8"], "{ids}");
    let seen = exec(&[], &["/probe", "processes"]).ok().json();
    assert_eq!(seen["1"], "/probe hang");
    assert_eq!(here.oci(["exec", "one", "/probe", "cat"]).stdin("words").run().ok().text(), "words");
    let missing = exec(&[], &["/none"]).expect(1);
    assert!(missing.stderr().contains("no such file or directory"), "{}", missing.stderr());
    exec(&[], &[]).expect(1);
    // As callers say it: the whole process in a file.
    let process =
        json!({"args": ["/probe", "args", "file"], "cwd": "/", "env": ["PATH=/"], "user": {"uid": 0, "gid": 0}});
    let file = here.world.file("process.json", process.to_string());
    assert_eq!(exec(&["--process", file.to_str().unwrap()], &[]).ok().json(), json!(["file"]));
    here.oci(["kill", "one", "9"]).run().ok();
    here.await_status("one", "stopped");
    assert!(exec(&[], &["/probe", "args"]).expect(1).stderr().contains("stopped container"));
    here.oci(["delete", "one"]).run().ok();
    here.nothing_left();
}

/// What a program puts in the place of its streams is not made its own: they are given to its user before it runs.
#[test]
fn exec_gives_away_no_file() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    let file = bundle.rootfs().join("private");
    std::fs::write(&file, "of root").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    here.started("one", &bundle);
    for _ in 0..10 {
        here.oci(["exec", "--user", "1000:1000", "one", "/probe", "hold-as-streams", "/private", "50"]).run().ok();
    }
    assert_eq!(std::fs::metadata(&file).unwrap().uid(), 0);
    here.oci(["delete", "-f", "one"]).run().ok();
    here.nothing_left();
}

/// What is no id would leave the process the one that it has.
#[test]
fn ids_that_are_none_are_refused() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["ids"]);
    for user in [
        json!({"uid": 4_294_967_295_u32, "gid": 0}),
        json!({"uid": 0, "gid": 1_u64 << 40}),
        json!({"uid": -1}),
        json!({"uid": 1, "gid": 1, "additionalGids": [1, 2_147_483_648_u32]}),
    ] {
        bundle.with(|config| config["process"]["user"] = user.clone());
        let refused = here.oci(["run", "--bundle", bundle.path(), "one"]).run().expect(1);
        assert!(refused.stderr().contains("must be in range"), "{user}: {}", refused.stderr());
    }
    bundle.with(|config| {
        config["process"]["user"] = json!({"uid": 0, "gid": 0});
        config["process"]["args"] = json!(["/probe", "hang"]);
    });
    here.started("one", &bundle);
    let refused = here.oci(["exec", "--user", "4294967295", "one", "/probe", "ids"]).run().expect(1);
    assert!(refused.stderr().contains("must be in range"), "{}", refused.stderr());
    here.oci(["delete", "-f", "one"]).run().ok();
    here.nothing_left();
}

/// It may do what the container may, and what it is given beside.
#[test]
fn exec_and_capabilities() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    here.started("one", &bundle);
    let effective = |flags: &[&str]| {
        let ids = here.oci(["exec"]).args(flags).args(["one", "/probe", "ids"]).run().ok().json();
        u64::from_str_radix(ids["CapEff"].as_str().unwrap(), 16).unwrap()
    };
    let own = effective(&[]);
    // CAP_KILL, CAP_NET_BIND_SERVICE, CAP_AUDIT_WRITE.
    assert_eq!(own, 1 << 5 | 1 << 10 | 1 << 29);
    assert_eq!(effective(&["--cap", "CAP_SYS_ADMIN"]), own | 1 << 21);
    here.oci(["delete", "-f", "one"]).run().ok();
}
