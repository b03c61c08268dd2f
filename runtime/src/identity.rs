//! Who the server is inside, and which id of the host that stands for.

use std::path::PathBuf;

use distribution::system::user_and_group;
use serde::{Deserialize, Serialize};

/// The one user of the cage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User id, the same inside and outside.
    pub uid: u32,
    /// Group id, the same inside and outside.
    pub gid: u32,
    /// Login name inside.
    pub user: String,
    /// Home directory inside, absolute; a private one is mounted there.
    pub home: PathBuf,
    /// How the ids relate to the caller's.
    pub mapping: Mapping,
}

/// How the server's ids relate to the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mapping {
    /// The caller is an ordinary user: the server has the caller's ids.
    Caller,
    /// The caller is root: the server has ids that own nothing on the host; grants are shifted to them.
    Unprivileged,
    /// The caller is root and asked for `--user root`.
    Root,
}

/// What `--user` says; as root only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserFlag {
    /// Not given: the caller, or an unprivileged uid where the caller is root.
    #[default]
    Default,
    /// `--user UID`.
    Uid(u32),
    /// `--user root`.
    Root,
}

/// First of the 65,536 ids from which a run as root takes its own. Systemd's table of uid ranges leaves everything from
/// 0x6FFF0000 to 0x7FFFFFFF unused.
const FIRST_UNPRIVILEGED: u32 = 0x7000_0000;

impl Identity {
    /// The user of a run with this id (a run as root takes its uid from it, so that two cages do not share one).
    pub fn of_caller(caller: &Caller, flag: UserFlag, run: u128) -> Identity {
        let home = caller.home.clone();
        let shifted =
            |uid| Identity { uid, gid: uid, user: "mcp".into(), home: home.clone(), mapping: Mapping::Unprivileged };
        if caller.uid != 0 {
            return Identity {
                uid: caller.uid,
                gid: caller.gid,
                user: caller.user.clone(),
                home,
                mapping: Mapping::Caller,
            };
        }
        match flag {
            UserFlag::Default => shifted(FIRST_UNPRIVILEGED + (run & 0xFFFF) as u32),
            UserFlag::Uid(uid) => shifted(uid),
            UserFlag::Root => Identity { uid: 0, gid: 0, user: "root".into(), home, mapping: Mapping::Root },
        }
    }
}

/// Who started smcp.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Login name, or `user` where the environment names none.
    pub user: String,
    /// `HOME`, absolute, or `/home/USER` where the environment has none.
    pub home: PathBuf,
}

impl Caller {
    /// Reads the ids of this process and `USER`, `LOGNAME` and `HOME` of its environment.
    pub fn of_this_process() -> Caller {
        let name = |variable| std::env::var(variable).ok().filter(|name| is_login_name(name));
        let user = name("USER").or_else(|| name("LOGNAME")).unwrap_or_else(|| "user".into());
        let home = std::env::home_dir().filter(|home| home.is_absolute() && home.parent().is_some());
        let (uid, gid) = user_and_group();
        Caller { uid, gid, home: home.unwrap_or_else(|| PathBuf::from("/home").join(&user)), user }
    }
}

/// A name that fits into a line of passwd(5).
fn is_login_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 32 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32) -> Caller {
        Caller { uid, gid: uid, user: "eve".into(), home: "/home/eve".into() }
    }

    #[test]
    fn an_ordinary_user_keeps_the_ids() {
        let identity = Identity::of_caller(&caller(1000), UserFlag::Default, 7);
        assert_eq!((identity.uid, identity.gid, identity.mapping), (1000, 1000, Mapping::Caller));
    }

    #[test]
    fn root_becomes_nobody_in_particular_unless_asked() {
        let identity = Identity::of_caller(&caller(0), UserFlag::Default, 0xABCD_0007);
        assert_eq!((identity.uid, identity.mapping), (0x7000_0007, Mapping::Unprivileged));
        assert_eq!(Identity::of_caller(&caller(0), UserFlag::Uid(99), 7).uid, 99);
        assert_eq!(Identity::of_caller(&caller(0), UserFlag::Root, 7).mapping, Mapping::Root);
    }

    #[test]
    fn names_that_would_break_passwd_are_no_names() {
        for name in ["", "a:b", "a\nb", "root user", &"x".repeat(33)] {
            assert!(!is_login_name(name), "{name:?}");
        }
    }
}
