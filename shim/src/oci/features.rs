//! `features`: what this runtime knows, in the form of the runtime specification 1.1's features.md.

use runtime::oci;
use serde_json::{Value, json};

/// Prints it.
pub fn print() {
    crate::show::out(&features().to_string());
}

fn features() -> Value {
    json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": oci::VERSION,
        "hooks": ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"],
        "mountOptions": oci::MOUNT_OPTIONS.as_slice(),
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "time", "user", "uts"],
            "capabilities": oci::CAPABILITIES.as_slice(),
            "cgroup": {"v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": false},
            "seccomp": {
                "enabled": true,
                "actions": oci::SECCOMP_ACTIONS,
                "operators": oci::SECCOMP_OPERATORS,
                "archs": oci::seccomp_architectures(),
                "knownFlags": oci::SECCOMP_FLAGS,
                "supportedFlags": oci::SECCOMP_FLAGS,
            },
            "apparmor": {"enabled": true},
            "selinux": {"enabled": false},
            "intelRdt": {"enabled": true},
            "mountExtensions": {"idmap": {"enabled": true}},
        },
        "annotations": {"io.smcp.version": env!("CARGO_PKG_VERSION")},
    })
}
