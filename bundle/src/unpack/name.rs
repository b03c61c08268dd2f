//! Names of entries, made plain: no empty part, no `.`, no `..`, no leading slash.

use super::error::{Code, Result, Stop};

/// The longest path; the kernel takes no longer one.
const MAX_PATH: usize = 4095;
const MAX_COMPONENT: usize = 255;
const MAX_DEPTH: usize = 256;

/// The plain form of a name, empty for the root. The bytes of its parts stay as
/// they are, whether or not they are text.
pub(super) fn plain(name: &[u8]) -> Result<Vec<u8>> {
    let parts = || name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    if parts().any(|part| part == b"..") {
        return Err(Stop::refused(Code::PathDotdot, "its name holds `..`"));
    }
    if name.contains(&0) {
        return Err(Stop::refused(Code::Header, "its name holds a NUL"));
    }
    let path = parts().collect::<Vec<_>>().join(&b'/');
    let long = parts().any(|part| part.len() > MAX_COMPONENT);
    if long || path.len() > MAX_PATH || parts().count() > MAX_DEPTH {
        let why = format!("its name is longer than {MAX_PATH} bytes, {MAX_COMPONENT} in a part or {MAX_DEPTH} parts");
        return Err(Stop::refused(Code::NameTooLong, why));
    }
    Ok(path)
}

/// Directory and last part of a plain name that is not empty.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&[], path),
    }
}

/// What the name of an entry means for the layers below.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Nothing: it is an entry.
    Entry,
    /// `.wh.NAME`: the plain path of what is not to be seen of them.
    Gone(Vec<u8>),
    /// `.wh..wh..opq`: the plain path of the directory of which they show nothing.
    Opaque(Vec<u8>),
    /// What AUFS kept for itself, and beneath it: nothing.
    OfAufs,
}

/// Reads whiteouts (OCI image-spec, "Layer Filesystem Changeset"): no entry can have a name that begins with `.wh.`.
pub(super) fn meaning(path: &[u8]) -> Result<Meaning> {
    let refused = |why: &str| Err(Stop::refused(Code::Whiteout, why));
    let (dir, name) = split(path);
    for part in dir.split(|byte| *byte == b'/') {
        if part.starts_with(b".wh..wh.") {
            return Ok(Meaning::OfAufs);
        }
        if part.starts_with(b".wh.") {
            return refused("it lies below a whiteout");
        }
    }
    let Some(hidden) = name.strip_prefix(b".wh.") else { return Ok(Meaning::Entry) };
    match hidden {
        b"" | b"." | b".." => refused("it would delete its own directory"),
        b".wh..opq" => Ok(Meaning::Opaque(dir.to_vec())),
        _ if hidden.starts_with(b".wh.") => Ok(Meaning::OfAufs),
        _ if dir.is_empty() => Ok(Meaning::Gone(hidden.to_vec())),
        _ => Ok(Meaning::Gone([dir, b"/", hidden].concat())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_plain() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"a/b", b"a/b"),
            (b"/abs/x", b"abs/x"),
            (b"./a/./b", b"a/b"),
            (b"a//c/", b"a/c"),
            (b"", b""),
            (b"./", b""),
            (b"/", b""),
            (b"a/..b/c..\xff", b"a/..b/c..\xff"),
        ];
        for (name, want) in cases {
            let plain = plain(name).unwrap_or_else(|stop| panic!("{stop:?}"));
            assert_eq!(plain, want, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn u25_the_limits_of_names() {
        let deep = |n| vec![b"d".to_vec(); n].join(&b'/');
        let long = |n: usize| [vec![b'x'; 199], vec![b'/'; 1]].concat().repeat(n / 200);
        assert!(plain(&[b'x'; 255]).is_ok());
        assert!(plain(&[b'x'; 256]).is_err());
        assert!(plain(&deep(256)).is_ok());
        assert!(plain(&deep(257)).is_err());
        assert!(plain(&long(4000)).is_ok());
        assert!(plain(&[long(4000), vec![b'x'; 95]].concat()).is_ok());
        assert!(plain(&[long(4000), vec![b'x'; 96]].concat()).is_err());
    }
}
