//! Machines without user namespaces, made of this one.

use std::ffi::OsStr;
use std::path::Path;

use crate::command::Smcp;
use crate::needs;
use crate::place;
use crate::world::{User, World};

/// As the world's user in a user namespace in which no further one can be made; without the capabilities that it brings.
const WITHOUT: &str = r#"echo 0 >/proc/sys/user/max_user_namespaces || exit 99
exec setpriv --inh-caps=-all --ambient-caps=-all --bounding-set=-all "$@""#;

/// The same for root, who keeps root's capabilities, and has every uid there is.
const WITHOUT_FOR_ROOT: &str = r#"exec 3<&0
unshare --user --keep-caps sh -c 'kill -STOP $$; echo 0 >/proc/sys/user/max_user_namespaces || exit 99; exec "$@"' sh "$@" <&3 &
until grep -q "^State:.T " /proc/$!/status; do sleep 0.01; done
echo 0 0 4294967294 >/proc/$!/uid_map && echo 0 0 4294967294 >/proc/$!/gid_map && kill -CONT $! && wait $!"#;

/// `smcp ARGUMENTS` where user namespaces are denied; `None` where this machine cannot make such a place.
pub fn without_namespaces<'w, A: AsRef<OsStr>>(
    world: &'w World,
    arguments: impl IntoIterator<Item = A>,
) -> Option<Smcp<'w>> {
    program_without_namespaces(world, place::smcp(), arguments)
}

/// Any other program there. An ordinary user's is the very process that is started.
pub fn program_without_namespaces<'w, A: AsRef<OsStr>>(
    world: &'w World,
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Option<Smcp<'w>> {
    let tools = [needs::program("unshare", "util-linux"), needs::program("setpriv", "util-linux")];
    if tools.contains(&None) {
        return None;
    }
    let how = match world.user() {
        User::Ordinary => world
            .program("/usr/bin/unshare", ["--user", "--map-current-user", "--keep-caps"])
            .args(["sh", "-c", WITHOUT]),
        User::Root => world.program("/bin/sh", ["-c", WITHOUT_FOR_ROOT]),
    };
    Some(how.args(["sh"]).args([program]).args(arguments))
}
