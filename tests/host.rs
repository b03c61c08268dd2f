//! Programs of this machine in a cage: a package that starts what it is told, with `/usr` granted.

use std::ffi::OsStr;
use std::fs;

use serde_json::json;

use crate::command::Smcp;
use crate::image::Image;
use crate::probe;
use crate::world::World;

/// The package, and the flags that grant the machine's programs and libraries.
pub struct Host<'w> {
    world: &'w World,
    flags: Vec<String>,
    reference: String,
}

impl<'w> Host<'w> {
    /// For a world.
    pub fn of(world: &'w World) -> Host<'w> {
        // They print what is no message, which is what they are started for here.
        let mut flags = ["--allow-subprocess", "--relay", "direct"].map(str::to_owned).to_vec();
        // Without namespaces a grant is where it is outside, and so are the links of a merged root.
        let directories: &[&str] = if world.has_namespaces() { &["/usr", "/lib", "/lib64", "/bin"] } else { &["/usr"] };
        for directory in directories {
            // A merged root has links there.
            if let Ok(source) = fs::canonicalize(directory) {
                flags.extend(["--mount".into(), format!("{}:{directory}:ro", source.display())]);
            }
        }
        let reference = Image::probe()
            .manifest(|m| m["entrypoint"] = json!({"args": ["/opt/probe", "exec"], "workdir": "/opt"}))
            .file("opt/probe", 0o755, fs::read(probe::path()).expect("it was compiled"))
            .build()
            .write(&world.directory("host"));
        Host { world, flags, reference }
    }

    /// A program, an absolute path, in the cage, with more flags.
    pub fn caged<A: AsRef<OsStr>>(&self, flags: &[&str], line: impl IntoIterator<Item = A>) -> Smcp<'w> {
        self.world.smcp(["run"]).args(&self.flags).args(flags).args([&self.reference]).args(line)
    }
}
