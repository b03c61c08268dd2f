//! An image of somebody else's in the place of the base and the interpreter that smcp makes layers of.

use std::fs;
use std::path::{Path, PathBuf};

use distribution::{Descriptor, Digest};

use super::error::BuildError;
use crate::pack::PackedLayer;

/// What of an image a build on top of it needs.
#[derive(Debug, Clone)]
pub struct BaseImage {
    /// Its name and digest, for people.
    pub name: String,
    /// Each layer's blob, which is in the store, and the digest of its content, the lowest first.
    pub layers: Vec<(Descriptor, Digest)>,
    /// Its variables, `NAME=VALUE`.
    pub env: Vec<String>,
    /// Its files, unpacked.
    pub tree: PathBuf,
}

impl BaseImage {
    pub(super) fn packed(&self) -> Vec<PackedLayer> {
        let packed = |(descriptor, diff_id): &(Descriptor, Digest)| PackedLayer {
            descriptor: descriptor.clone(),
            diff_id: diff_id.clone(),
        };
        self.layers.iter().map(packed).collect()
    }

    /// The first program in its PATH that has one of these names: the directory inside, without a leading slash, and the name.
    pub(super) fn program(
        &self,
        what: &'static str,
        is_it: impl Fn(&str) -> bool,
    ) -> Result<(PathBuf, String), BuildError> {
        let path = self.env.iter().rev().find_map(|pair| pair.strip_prefix("PATH="));
        for dir in path.unwrap_or(PATH).split(':').map(|dir| Path::new(dir.trim_start_matches('/'))) {
            // Never out of the image by a link: what is read here are names.
            let Ok(entries) = fs::read_dir(self.tree.join(dir)) else { continue };
            let mut names: Vec<String> = entries
                .flatten()
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| is_it(name))
                .collect();
            names.sort();
            if let Some(name) = names.pop() {
                return Ok((dir.into(), name));
            }
        }
        Err(BuildError::NoRuntime { name: what, why: format!("{} has none in its PATH", self.name) })
    }
}

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_the_images_path() {
        let tree = tempfile::tempdir().unwrap();
        for file in ["usr/bin/python3.11", "usr/bin/python3", "opt/bin/python3.12"] {
            let path = tree.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let of = |env: &[&str]| BaseImage {
            name: "x".into(),
            layers: Vec::new(),
            env: env.iter().map(|pair| (*pair).to_owned()).collect(),
            tree: tree.path().into(),
        };
        let is_it = |name: &str| name.starts_with("python3.");
        assert_eq!(of(&[]).program("python", is_it).unwrap(), ("usr/bin".into(), "python3.11".into()));
        let own = of(&["PATH=/opt/bin:/usr/bin"]).program("python", is_it).unwrap();
        assert_eq!(own, ("opt/bin".into(), "python3.12".into()));
        assert!(
            of(&[]).program("node", |name| name == "node").unwrap_err().to_string().contains("x has none in its PATH")
        );
    }
}
