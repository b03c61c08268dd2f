//! Machines with an organisation's policy, made of this one: a mount namespace whose `/etc` has an `smcp` of the test's. There is
//! no variable that would do it, and that is tested, too.

use std::ffi::{OsStr, OsString};
use std::fs;

use crate::command::Smcp;
use crate::needs;
use crate::place;
use crate::world::{User, World};

/// What lies over `/etc`, and who does what then: `$1` is the directory.
const OVER: &str = r#"layer=$1; shift
mount -t overlay overlay -o "lowerdir=$layer:/etc" /etc || exit 99
exec "$@""#;

/// The same without the capabilities that the namespace brings.
const OVER_FOR_USER: &str = r#"layer=$1; shift
mount -t overlay overlay -o "lowerdir=$layer:/etc,userxattr" /etc || exit 99
exec setpriv --inh-caps=-all --ambient-caps=-all "$@""#;

impl World {
    /// Puts a file into the machine's `/etc/smcp`, for [`World::governed`].
    pub fn govern(&self, name: &str, text: &str) {
        let path = self.path("layer/smcp").join(name);
        fs::create_dir_all(self.path("layer/smcp")).expect("the world is ours");
        fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("the world is ours");
        fs::write(path, text).expect("the world is ours");
    }

    /// Gives the world's user an account on that machine, whose home is the world's.
    pub fn account(&self) {
        let (id, group) = (self.user().id(), self.user().group());
        let line = |name: &str, id: u32, home: &str| format!("{name}:x:{id}:{group}::{home}:/bin/sh\n");
        let root = if id == 0 { String::new() } else { line("root", 0, "/root") };
        self.govern("../passwd", &format!("{root}{}", line("tester", id, &self.text("home"))));
    }

    /// `smcp ARGUMENTS` on that machine; `None` where this one cannot make such a place.
    pub fn governed<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Option<Smcp<'_>> {
        Some(self.on_that_machine(place::smcp())?.args(arguments))
    }

    /// Any program there.
    pub fn on_that_machine(&self, program: impl AsRef<OsStr>) -> Option<Smcp<'_>> {
        needs::program("unshare", "util-linux")?;
        needs::program("setpriv", "util-linux")?;
        let layer = OsString::from(self.path("layer"));
        let words: &[&str] = match self.user() {
            User::Root => &["/usr/bin/unshare", "--mount", "sh", "-c", OVER, "sh"],
            User::Ordinary => &[
                "/usr/bin/unshare",
                "--user",
                "--map-current-user",
                "--keep-caps",
                "--mount",
                "sh",
                "-c",
                OVER_FOR_USER,
                "sh",
            ],
        };
        Some(self.program(words[0], &words[1..]).args([layer.as_ref(), program.as_ref()]))
    }
}
