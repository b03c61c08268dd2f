//! What would bring a machine more layers, for a person with the right to change it.

use std::fs;
use std::path::Path;

use crate::report::{Layer, Report, Status, Tier};

pub use crate::outcome::Advice;

/// What would raise the tier of a cage that was measured so. `program` is smcp's own path.
pub fn advice(report: &Report, program: &Path) -> Vec<Advice> {
    let of = |layer| report.status(layer).filter(|status| **status != Status::Full);
    let mut all = Vec::new();
    if let Some(status) = of(Layer::UserNamespace) {
        all.push(Advice { matter: format!("user namespaces: {status}"), steps: namespaces(program) });
    }
    if let Some(status @ Status::Absent(_)) = of(Layer::Landlock) {
        all.push(Advice { matter: format!("Landlock: {status}"), steps: landlock() });
    }
    if let Some(status) = of(Layer::Cgroup).filter(|_| report.tier() >= Tier::Two) {
        all.push(Advice { matter: format!("cgroup: {status}"), steps: cgroup() });
    }
    all
}

/// A setting of the kernel, without its line end.
pub fn setting(path: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(path)).ok().map(|text| text.trim().to_owned())
}

/// Which setting keeps user namespaces from this user, as what would allow them.
pub fn denied_by() -> Option<&'static str> {
    let is = |path, value: &str| setting(path).as_deref() == Some(value);
    if is("user/max_user_namespaces", "0") {
        Some("user.max_user_namespaces=15000")
    } else if is("kernel/unprivileged_userns_clone", "0") {
        Some("kernel.unprivileged_userns_clone=1")
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        Some("kernel.apparmor_restrict_unprivileged_userns=0")
    } else {
        None
    }
}

fn namespaces(program: &Path) -> Vec<String> {
    match denied_by() {
        Some(restricted) if restricted.contains("apparmor") => vec![
            "# AppArmor restricts user namespaces here. A profile that allows them to smcp alone:".into(),
            "cat > /etc/apparmor.d/smcp <<'PROFILE'".into(),
            "abi <abi/4.0>,".into(),
            "include <tunables/global>".into(),
            format!("profile smcp {} flags=(unconfined) {{", program.display()),
            "  userns,".into(),
            "}".into(),
            "PROFILE".into(),
            "apparmor_parser -r /etc/apparmor.d/smcp".into(),
        ],
        Some(allowed) => {
            vec![format!("sysctl -w {allowed}"), format!("echo {allowed} > /etc/sysctl.d/60-smcp.conf   # to keep it")]
        }
        None => vec![
            "# No setting of the kernel denies them: a container's filter or masked /proc does, or a profile on smcp."
                .into(),
            "# Docker and podman: --security-opt seccomp=PROFILE with unshare, clone and mount allowed,".into(),
            "# and --security-opt systempaths=unconfined. Kubernetes: hostUsers: false, procMount: Unmasked.".into(),
        ],
    }
}

fn landlock() -> Vec<String> {
    let modules = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let modules = modules.trim();
    let first = if modules.is_empty() {
        "landlock,lockdown,yama,integrity,apparmor,bpf".into()
    } else {
        format!("landlock,{modules}")
    };
    vec![
        "# A kernel from 5.13 on that is built with CONFIG_SECURITY_LANDLOCK, and this among its parameters:".into(),
        format!("lsm={first}"),
    ]
}

fn cgroup() -> Vec<String> {
    vec![
        "# A cgroup of version 2 that is delegated to the user, as systemd's user sessions have it:".into(),
        "loginctl enable-linger \"$USER\"".into(),
        "systemd-run --user --scope -p Delegate=yes COMMAND   # the client that starts smcp, or smcp itself".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_layer_has_steps_and_a_whole_cage_has_none() {
        let mut report = Report::default();
        Layer::ALL.into_iter().for_each(|layer| report.set(layer, Status::Full));
        assert_eq!(advice(&report, Path::new("/usr/bin/smcp")), []);
        for layer in [Layer::UserNamespace, Layer::Landlock, Layer::Cgroup] {
            let mut report = report.clone();
            report.set(layer, Status::Absent("no".into()));
            let [advice] = advice(&report, Path::new("/usr/bin/smcp")).try_into().unwrap();
            assert!(advice.matter.ends_with("absent: no") && !advice.steps.is_empty(), "{advice:?}");
        }
    }
}
