//! `spec`: a config.json to begin with, as runc writes it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use runtime::oci::Error;
use serde_json::{Value, json};

/// Writes it into a directory.
///
/// # Errors
/// Where there is one already.
pub fn write(bundle: &Path, rootless: bool) -> Result<(), Error> {
    let file = bundle.join("config.json");
    let step = format!("writing {}", file.display());
    let mut config = config();
    if rootless {
        without_privileges(&mut config);
    }
    let text = serde_json::to_string_pretty(&config).unwrap_or_default();
    let opened = OpenOptions::new().write(true).create_new(true).open(&file);
    opened
        .and_then(|mut opened| writeln!(opened, "{text}"))
        .map_err(|why| Error::Step { what: step, why: why.to_string() })
}

fn config() -> Value {
    let capabilities = ["CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"];
    let mount = |target: &str, kind: &str, source: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": source, "options": options});
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": true,
            "user": {"uid": 0, "gid": 0},
            "args": ["sh"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"],
            "cwd": "/",
            "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "smcp",
        "mounts": [
            mount("/proc", "proc", "proc", &[]),
            mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", "devpts",
                &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]),
            mount("/dev/shm", "tmpfs", "shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
            mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
            mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]),
        ],
        "linux": {
            "resources": {"devices": [{"allow": false, "access": "rwm"}]},
            "namespaces": namespaces(&["pid", "network", "ipc", "uts", "mount", "cgroup"]),
            "maskedPaths": [
                "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
                "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}

fn namespaces(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"type": name})).collect()
}

/// In a user namespace that maps root to the caller: what a user may not mount is left out.
fn without_privileges(config: &mut Value) {
    let map = |id: u32| json!([{"containerID": 0, "hostID": id, "size": 1}]);
    let linux = &mut config["linux"];
    linux["uidMappings"] = map(rustix::process::geteuid().as_raw());
    linux["gidMappings"] = map(rustix::process::getegid().as_raw());
    linux["namespaces"] = namespaces(&["pid", "ipc", "uts", "mount", "cgroup", "user"]);
    if let Some(linux) = linux.as_object_mut() {
        linux.remove("resources");
    }
    for mount in config["mounts"].as_array_mut().into_iter().flatten() {
        match mount["destination"].as_str() {
            // Without a network namespace of its own a user may not mount sysfs.
            Some("/sys") => {
                *mount = json!({"destination": "/sys", "type": "none", "source": "/sys",
                    "options": ["rbind", "nosuid", "noexec", "nodev", "ro"]});
            }
            // The map has no group 5.
            Some("/dev/pts") => {
                mount["options"] = json!(["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]);
            }
            _ => {}
        }
    }
    if let Some(mounts) = config["mounts"].as_array_mut() {
        mounts.retain(|mount| mount["destination"] != "/sys/fs/cgroup");
    }
}
