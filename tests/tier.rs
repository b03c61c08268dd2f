//! Machines without user namespaces, made of this one.

use std::ffi::OsStr;
use std::path::Path;

use crate::command::Smcp;
use crate::needs;
use crate::place;
use crate::world::{User, World};

/// As the world's user in a user namespace in which no further one can be made; without the capabilities that it brings.
const WITHOUT: &str = r#"echo 0 >/proc/sys/user/max_user_namespaces || exit 99
exec setpriv --inh-caps=-all --ambient-caps=-all "$@""#;

/// The same for root, who keeps root's capabilities, and has every uid there is.
const WITHOUT_FOR_ROOT: &str = r#"exec 3<&0
unshare --user --keep-caps sh -c 'kill -STOP $$; echo 0 >/proc/sys/user/max_user_namespaces || exit 99; exec "$@"' sh "$@" <&3 &
until grep -q "^State:.T " /proc/$!/status; do sleep 0.01; done
echo 0 0 4294967294 >/proc/$!/uid_map && echo 0 0 4294967294 >/proc/$!/gid_map && kill -CONT $! && wait $!"#;

/// The words that run a command where user namespaces are denied; `None` where this machine cannot make such a place.
pub fn wrapper(world: &World) -> Option<&'static [&'static str]> {
    const USER: &[&str] =
        &["/usr/bin/unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", WITHOUT, "sh"];
    const ROOT: &[&str] = &["/bin/sh", "-c", WITHOUT_FOR_ROOT, "sh"];
    let tools = [needs::program("unshare", "util-linux"), needs::program("setpriv", "util-linux")];
    let how = if world.user() == User::Root { ROOT } else { USER };
    (!tools.contains(&None)).then_some(how)
}

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
    let how = wrapper(world)?;
    Some(world.program(how[0], &how[1..]).args([program]).args(arguments))
}
