//! `oci-layout:DIR[:REF | @sha256:…]`, or with `@sha512:…`; the first colon ends DIR, as in skopeo, podman and umoci. On Windows not the one
//! behind the letter of a drive.

use super::{LayoutRef, Selector, Wrong, only};
use crate::Algorithm;

pub(super) fn parse(text: &str) -> Result<LayoutRef, Wrong> {
    let digests = Algorithm::ALL.into_iter().filter_map(|algorithm| text.rfind(&format!("@{}:", algorithm.name())));
    let (place, digest) = match digests.max() {
        Some(at) => {
            let digest = text[at + 1..].parse().map_err(|e: crate::DigestError| Wrong::at(at + 1 + e.at, e.why))?;
            // DIR:@sha256:… is taken as DIR@sha256:…
            (text[..at].strip_suffix(':').unwrap_or(&text[..at]), Some(Selector::Digest(digest)))
        }
        None => (text, None),
    };
    let drive = if cfg!(windows) { drive(place) } else { 0 };
    let end = place[drive..].find(':').map(|at| drive + at);
    let (dir, tag) = end.map_or((place, None), |at| (&place[..at], Some(&place[at + 1..])));
    if dir.is_empty() {
        return Err(Wrong::at(0, "a directory is missing"));
    }
    let tag_at = dir.len() + 1;
    match (tag, digest) {
        (Some(_), Some(_)) => Err(Wrong::at(tag_at, "either a name or a digest, not both")
            .hint("a directory with a colon in its name cannot be written here")),
        (Some(tag), None) => {
            check_tag(tag).map_err(Wrong::shift(tag_at))?;
            Ok(LayoutRef { dir: dir.into(), reference: Some(Selector::Tag(tag.into())) })
        }
        (None, digest) => Ok(LayoutRef { dir: dir.into(), reference: digest }),
    }
}

/// The length of a drive's name at the beginning of a path, as in `C:\\dir` and `C:/dir`; 0 without one.
fn drive(path: &str) -> usize {
    match path.as_bytes() {
        [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic() => 2,
        _ => 0,
    }
}

/// What the image layout specification allows for `org.opencontainers.image.ref.name`.
fn check_tag(tag: &str) -> Result<(), Wrong> {
    only(tag, |b| b.is_ascii_alphanumeric() || b"-._:@+/".contains(&b), "the name of an image in a layout")?;
    match tag.bytes().next() {
        Some(first) if first.is_ascii_alphanumeric() => Ok(()),
        Some(_) => Err(Wrong::at(0, "a name begins with a letter or a digit")),
        None => Err(Wrong::at(0, "a name must follow the colon")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_has_a_colon_of_its_own() {
        for (path, length) in [("C:\\d:t", 2), ("c:/d", 2), ("d:t", 0), ("C:", 0), ("/d:/t", 0), ("é:/t", 0)] {
            assert_eq!(drive(path), length, "{path}");
        }
    }
}
