//! The ways in which machines have cgroups. This one's own is what all other tests run on.

use crate::image;
use crate::needs;
use crate::place;
use crate::world::{User, World};

#[test]
fn k4_v2_as_root() {
    on_v2(User::Root);
}

#[test]
fn k4_v2_as_user() {
    on_v2(User::Ordinary);
}

/// A mount namespace of the test's own, where the only cgroup file system is version 2.
const ONLY_V2: &str = r#"
set -e
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
uid=$1 gid=$2
shift 2
exec setpriv --reuid "$uid" --regid "$gid" --clear-groups "$@"
"#;

fn on_v2(user: User) {
    let tools = [needs::program("unshare", "util-linux"), needs::program("setpriv", "util-linux")];
    if !needs::root() || tools.contains(&None) {
        return;
    }
    let (outer, world) = (World::new(User::Root), World::new(user));
    let smcp = place::smcp();
    let ids = [user.id(), user.group()].map(|id| id.to_string());
    let mut unshare = outer
        .program("/usr/bin/unshare", ["--mount", "sh", "-c", ONLY_V2, "sh"])
        .args(ids)
        .args([smcp.as_os_str()])
        .args(["run", image::probe_reference(), "exit", "9"])
        .in_directory(world.path("home"));
    for (name, value) in world.environment() {
        unshare = unshare.env(name, value);
    }
    let ended = unshare.run();
    ended.check(ended.code() == 9, "the server's own exit code was expected");
    let audit = world.audit();
    assert_eq!(audit.len(), 2, "{audit:?}");
    for layer in ["user-namespace", "cgroup-namespace", "capabilities"] {
        assert_eq!(audit[0]["layers"][layer], "full", "{audit:?}");
    }
}
