//! Files of bundles and of containers' directories.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::Error;

/// Reads a file of JSON.
///
/// # Errors
/// Where it is not there, or is no JSON of that form.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T, Error> {
    let step = || format!("reading {}", file.display());
    let text = fs::read(file).map_err(Error::io(step()))?;
    serde_json::from_slice(&text).map_err(|why| Error::step(step(), why))
}

/// The same of one that need not be there.
///
/// # Errors
/// Where it cannot be read, or is no JSON of that form.
pub fn read_json_if_there<T: DeserializeOwned>(file: &Path) -> Result<Option<T>, Error> {
    match file.symlink_metadata() {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Ok(_) | Err(_) => read_json(file).map(Some),
    }
}

/// Writes a new file that its owner alone can read, from its first moment on: variables stand in it.
///
/// # Errors
/// The kernel's.
pub fn write_private(file: &Path, text: &[u8]) -> Result<(), Error> {
    let written = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?.write_all(text);
    written().map_err(Error::io(format!("writing {}", file.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::Value;

    use super::*;

    #[test]
    fn a_file_with_variables_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        assert_eq!(read_json_if_there::<Value>(&file).unwrap(), None);
        write_private(&file, b"[]").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_json::<Value>(&file).unwrap(), serde_json::json!([]));
        assert!(write_private(&file, b"").is_err(), "what is there stays");
    }
}
