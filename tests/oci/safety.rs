//! What a container must not get at, and what must not be dropped in silence.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::Containers;

/// The filter of config.json is in force, for the program and for what joins it, whether `noNewPrivileges` is set or not; the
/// right by which it was installed is gone.
#[test]
fn the_filter_of_system_calls_is_in_force() {
    let Some(here) = Containers::new() else { return };
    for no_new_privileges in [true, false] {
        let bundle = here.bundle(&format!("b{no_new_privileges}"), &["set-hostname", "x"]);
        bundle.with(|config| {
            config["process"]["noNewPrivileges"] = json!(no_new_privileges);
            for set in ["bounding", "effective", "permitted"] {
                config["process"]["capabilities"][set] = json!(["CAP_SYS_ADMIN"]);
            }
        });
        let run = |bundle: &super::Bundle| here.oci(["run", "--bundle", bundle.path(), "one"]).run();
        run(&bundle).ok();
        bundle.with(|config| config["linux"]["seccomp"] = refusing("sethostname"));
        assert!(run(&bundle).expect(9).json()["refused"].as_str().unwrap().contains("os error 71"));
        bundle.with(|config| config["process"]["args"] = json!(["/probe", "hang"]));
        here.started("one", &bundle);
        here.oci(["exec", "one", "/probe", "set-hostname", "x"]).run().expect(9);
        here.oci(["delete", "-f", "one"]).run().ok();
        let bundle = here.bundle(&format!("caps{no_new_privileges}"), &["ids"]);
        bundle.with(|config| {
            config["process"]["noNewPrivileges"] = json!(no_new_privileges);
            config["linux"]["seccomp"] = refusing("sethostname");
        });
        let ids = run(&bundle).ok().json();
        for set in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(ids[set], "0000000020000420", "{set} with noNewPrivileges {no_new_privileges}");
        }
    }
}

/// Errors with EPROTO, which nothing else says of it.
fn refusing(call: &str) -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": 71}],
    })
}

/// What of a filter cannot be enforced refuses the container.
#[test]
fn a_filter_that_cannot_be_had_is_an_error() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["args"]);
    bundle.with(|config| {
        config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW",
            "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_NOTIFY"}],
        });
    });
    let refused = here.oci(["run", "--bundle", bundle.path(), "one"]).run().expect(1);
    assert!(refused.stderr().contains("SCMP_ACT_NOTIFY"), "{}", refused.stderr());
    here.nothing_left();
}

/// Variables stand in what is remembered of a container, which nobody else reads.
#[test]
fn what_is_remembered_is_not_for_others() {
    use std::os::unix::fs::PermissionsExt;
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["hang"]);
    bundle.with(|config| config["process"]["env"] = json!(["TOKEN=a-secret-of-the-test"]));
    here.created("one", &bundle);
    let mut found = 0;
    for entry in std::fs::read_dir(here.world.path("containers/one")).unwrap().map(Result::unwrap) {
        let text = std::fs::read(entry.path()).unwrap_or_default();
        if String::from_utf8_lossy(&text).contains("a-secret-of-the-test") {
            found += 1;
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", entry.path().display());
        }
    }
    assert!(found > 0, "the test looks in the wrong place");
    here.oci(["delete", "one"]).run().ok();
}

/// An image whose `/dev`, `/proc` or `/sys` leads elsewhere would have things made there.
#[test]
fn links_in_the_place_of_directories_are_refused() {
    let Some(here) = Containers::new() else { return };
    for name in ["dev", "proc", "sys"] {
        let bundle = here.bundle(&format!("b-{name}"), &["args"]);
        let outside = here.world.directory("outside");
        symlink(&outside, bundle.rootfs().join(name)).unwrap();
        let refused = here.oci(["run", "--bundle", bundle.path(), "one"]).run().expect(1);
        assert!(refused.stderr().contains(&format!("symbolic link at /{name}")), "{}", refused.stderr());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{name}");
    }
    here.nothing_left();
}

/// CVE-2019-16884, CVE-2019-19921, CVE-2023-27561: nothing but the kernel's is mounted in the place of `/proc` and within it, whatever way leads there.
#[test]
fn nothing_feigns_proc() {
    let Some(here) = Containers::new() else { return };
    let false_one = here.world.directory("false");
    fs::create_dir_all(false_one.join("self/attr")).unwrap();
    let (source, own) = (false_one.to_str().unwrap(), here.world.text("own"));
    fs::write(&own, "1.0 1.0\n").unwrap();
    let bind = |source: &str, target: &str| json!({"destination": target, "source": source, "options": ["rbind"]});
    for (number, (mount, why)) in [
        (bind(source, "/proc"), "not of type proc"),
        (bind("/proc/self", "/proc"), "not of type proc"),
        (json!({"destination": "/proc/", "type": "tmpfs", "source": "tmpfs"}), "not of type proc"),
        (bind(source, "/link"), "not of type proc"),
        (bind(source, "/proc/self/attr"), "inside /proc"),
        (bind(source, "/none/../proc/sys"), "inside /proc"),
        (bind(source, "/link/self/attr"), "inside /proc"),
    ]
    .into_iter()
    .enumerate()
    {
        let bundle = here.bundle(&format!("b{number}"), &["args"]);
        symlink("/proc", bundle.rootfs().join("link")).unwrap();
        fs::create_dir_all(bundle.rootfs().join("proc")).unwrap();
        bundle.with(|config| {
            let mounts = config["mounts"].as_array_mut().unwrap();
            if why.starts_with("not") {
                mounts.retain(|mount| mount["destination"] != "/proc");
            }
            mounts.push(mount.clone());
        });
        let refused = here.oci(["run", "--bundle", bundle.path(), "one"]).run().expect(1);
        assert!(refused.stderr().contains(why), "{mount}: {}", refused.stderr());
    }
    let bundle = here.bundle("right", &["args"]);
    bundle.with(|config| config["mounts"].as_array_mut().unwrap().push(bind(&own, "/proc/uptime")));
    here.oci(["run", "--bundle", bundle.path(), "one"]).run().ok();
    here.nothing_left();
}

/// The number of the first process goes into a file that is new: a link beside it leads nowhere.
#[test]
fn a_link_in_the_place_of_what_is_written_is_not_followed() {
    let Some(here) = Containers::new() else { return };
    let bundle = here.bundle("b", &["args"]);
    let victim = here.world.text("victim");
    fs::write(&victim, "whole").unwrap();
    let directory = here.world.directory("pids");
    symlink(&victim, directory.join(".pid")).unwrap();
    symlink(&victim, directory.join("pid")).unwrap();
    let file = directory.join("pid");
    here.oci(["run", "--pid-file", file.to_str().unwrap(), "--bundle", bundle.path(), "one"]).run().ok();
    assert!(fs::read_to_string(&file).unwrap().parse::<u32>().is_ok());
    assert!(file.symlink_metadata().unwrap().is_file());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "whole");
    here.nothing_left();
}

/// CVE-2019-5736: what a container sees of smcp, as the file of a process that is about to become its program, cannot be written.
/// Here the program is that file itself, as an image has it whose entry point is `#!/proc/self/exe`.
#[test]
fn the_file_of_the_runtime_cannot_be_written() {
    let Some(here) = Containers::new() else { return };
    let before = std::fs::read(crate::place::smcp()).unwrap();
    let bundle = here.bundle("b", &["hang"]);
    bundle.with(|config| {
        // Whatever root may do with files.
        for set in ["bounding", "effective", "permitted"] {
            config["process"]["capabilities"][set] =
                json!(["CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_FOWNER"]);
        }
    });
    here.created("one", &bundle);
    // The first process is smcp itself until it is started.
    let pid = here.state("one")["pid"].to_string();
    // A running program cannot be written in any case (ETXTBSY), which is asked after the mount and the seal.
    let written = std::fs::OpenOptions::new().write(true).truncate(true).open(format!("/proc/{pid}/exe"));
    let why = written.expect_err("the host's root could write it by this way").raw_os_error();
    assert!(matches!(why, Some(EROFS | EPERM)), "{why:?}");
    here.oci(["delete", "one"]).run().ok();
    assert!(std::fs::read(crate::place::smcp()).unwrap() == before);
}

const EPERM: i32 = 1;
const EROFS: i32 = 30;
