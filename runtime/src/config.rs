//! A plan as `config.json` of the OCI runtime specification 1.2.

use std::path::Path;

use serde_json::{Value, json};

use crate::identity::Mapping;
use crate::plan::{Exec, HOSTNAME, Mount, Plan, Rlimits, What};
use bundle::Access;

/// Files of procfs that tell about the host or act on it: the list of the OCI runtimes.
const MASKED_PATHS: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
];

/// Files of procfs that only the host's root can read, which a server is by `--user root` alone: where memory lies and who
/// has it.
const ROOTS_PATHS: [&str; 6] = [
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/pagetypeinfo",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
];

/// Directories of procfs that act on the host; and `/dev`, where nothing is to be made beside the devices.
pub const READ_ONLY_PATHS: [&str; 6] =
    ["/dev", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Which parts of the plan the reader of the configuration builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of it: any OCI runtime.
    Whole,
    /// What is left once the cage process has made its namespaces, the root and the mounts on it.
    InsideCage,
}

/// Renders the plan over an assembled root directory. Environment values stand in it only for `Scope::Whole` as
/// `Secret` prints them; the cage's server gets them another way.
pub fn render(plan: &Plan, root: &Path, scope: Scope) -> Value {
    let namespaces: &[&str] = match scope {
        Scope::Whole => &["user", "mount", "pid", "network", "ipc", "uts", "cgroup"],
        Scope::InsideCage => &["mount", "pid"],
    };
    let identity = &plan.identity;
    let mut config = json!({
        "ociVersion": "1.2.0",
        "process": {
            "terminal": false,
            "user": {"uid": identity.uid, "gid": identity.gid},
            "args": plan.command,
            "env": [],
            // The server's own process changes into the working directory, where a missing one can be named.
            "cwd": "/",
            "capabilities": {"bounding": [], "effective": [], "inheritable": [], "permitted": [], "ambient": []},
            "noNewPrivileges": true,
            "rlimits": rlimits(&plan.rlimits),
        },
        "root": {"path": root, "readonly": scope == Scope::Whole},
        "mounts": plan.mounts.iter().filter_map(|mount| render_mount(mount, scope)).collect::<Vec<_>>(),
        "linux": {
            "namespaces": namespaces.iter().map(|name| json!({"type": name})).collect::<Vec<_>>(),
            "rootfsPropagation": "private",
            "maskedPaths": masked(identity.mapping),
            "readonlyPaths": READ_ONLY_PATHS,
        },
    });
    match scope {
        Scope::Whole => {
            config["hostname"] = json!(HOSTNAME);
            config["process"]["cwd"] = json!(plan.workdir);
            config["process"]["env"] = plan.env.iter().map(|v| json!(format!("{}={}", v.name, v.value))).collect();
            config["linux"]["uidMappings"] = json!([{"containerID": identity.uid, "hostID": identity.uid, "size": 1}]);
            config["linux"]["gidMappings"] = json!([{"containerID": identity.gid, "hostID": identity.gid, "size": 1}]);
        }
        Scope::InsideCage => {
            // Absolute: a relative path makes libcgroups ask systemd, which fails hard without a bus.
            config["linux"]["cgroupsPath"] = json!("/smcp");
        }
    }
    config
}

/// The `config.json` of a bundle, whose root is `rootfs` beside it, for any OCI runtime. The values of variables stand in it. As root the server is
/// the plan's user and has the plan's limits by a cgroup; an ordinary user's server is root of a user namespace that knows that user alone, which is
/// what all runtimes can set up.
pub fn of_bundle(plan: &Plan, annotations: &Value) -> Value {
    let mut config = render(plan, Path::new("rootfs"), Scope::Whole);
    let identity = &plan.identity;
    config["process"]["env"] = plan.env.iter().map(|v| json!(format!("{}={}", v.name, v.value.expose()))).collect();
    config["annotations"] = annotations.clone();
    // Nothing of a later version is in it, and Debian 12's crun takes none.
    config["ociVersion"] = json!("1.0.2");
    let linux = &mut config["linux"];
    if identity.mapping == Mapping::Caller {
        linux["uidMappings"] = json!([{"containerID": 0, "hostID": identity.uid, "size": 1}]);
        linux["gidMappings"] = json!([{"containerID": 0, "hostID": identity.gid, "size": 1}]);
        config["process"]["user"] = json!({"uid": 0, "gid": 0});
        return config;
    }
    if let Some(linux) = linux.as_object_mut() {
        linux.remove("uidMappings");
        linux.remove("gidMappings");
    }
    if let Some(namespaces) = linux["namespaces"].as_array_mut() {
        namespaces.retain(|namespace| namespace["type"] != "user");
    }
    let limits = &plan.limits;
    linux["resources"] = json!({
        "memory": {"limit": limits.memory},
        "pids": {"limit": limits.pids},
        "cpu": {"period": 100_000, "quota": u64::from(limits.cpu_millis) * 100},
        "devices": [{"allow": false, "access": "rwm"}],
    });
    // What belongs to the server is not root's.
    for (mount, planned) in config["mounts"].as_array_mut().into_iter().flatten().zip(&plan.mounts) {
        if let (What::Private { .. }, Some(options)) = (&planned.what, mount["options"].as_array_mut()) {
            options.extend([json!(format!("uid={}", identity.uid)), json!(format!("gid={}", identity.gid))]);
        }
    }
    config
}

fn masked(mapping: Mapping) -> Vec<&'static str> {
    match mapping {
        Mapping::Root => [&MASKED_PATHS[..], &ROOTS_PATHS].concat(),
        Mapping::Caller | Mapping::Unprivileged => MASKED_PATHS.to_vec(),
    }
}

fn rlimits(caps: &Rlimits) -> Vec<Value> {
    let caps = [
        ("RLIMIT_CORE", Some(caps.core)),
        ("RLIMIT_DATA", Some(caps.data)),
        ("RLIMIT_FSIZE", caps.fsize),
        ("RLIMIT_NOFILE", Some(caps.nofile)),
        ("RLIMIT_NPROC", Some(caps.nproc)),
        ("RLIMIT_SIGPENDING", Some(caps.sigpending)),
        ("RLIMIT_NICE", Some(caps.nice)),
        ("RLIMIT_RTPRIO", Some(caps.rtprio)),
    ];
    let set = caps.into_iter().filter_map(|(name, cap)| Some((name, cap?)));
    set.map(|(name, cap)| json!({"type": name, "soft": cap, "hard": cap})).collect()
}

fn render_mount(mount: &Mount, scope: Scope) -> Option<Value> {
    let target = &mount.target;
    let no_exec = |exec: Exec| if exec == Exec::Denied { "noexec" } else { "exec" };
    let one = |kind: &str, options: Value| {
        Some(json!({"destination": target, "type": kind, "source": kind, "options": options}))
    };
    match &mount.what {
        What::Proc => one("proc", json!(["nosuid", "noexec", "nodev"])),
        // All else is attached to the root already.
        _ if scope == Scope::InsideCage => None,
        What::Devices => one("tmpfs", json!(["nosuid", "noexec", "strictatime", "mode=755", "size=65536"])),
        // Without gid=5: a map of one id has no group 5, and devpts refuses it.
        What::Terminals => one("devpts", json!(["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"])),
        What::SharedMemory { size } => {
            one("tmpfs", json!(["nosuid", "noexec", "nodev", "mode=1777", format!("size={size}")]))
        }
        What::Private { size, mode, exec } => {
            one("tmpfs", json!(["nosuid", "nodev", no_exec(*exec), format!("mode={mode:o}"), format!("size={size}")]))
        }
        What::Denied { .. } => one("tmpfs", json!(["nosuid", "nodev", "noexec", "ro", "mode=0", "size=4096"])),
        What::Granted { source, access, exec, .. } => {
            let access = if *access == Access::Ro { "ro" } else { "rw" };
            Some(json!({
                "destination": target,
                "type": "bind",
                "source": source,
                "options": ["rbind", "rprivate", "nosuid", "nodev", access, no_exec(*exec)],
            }))
        }
    }
}
