//! PAX extended headers: `LENGTH KEY=VALUE\n`, over and over.

use super::error::{Code, Result, Stop, escape};

/// What an extended header says about the entry that follows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extension {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<i64>,
    /// It states file capabilities, which are dropped.
    pub(super) capability: bool,
}

/// Reads a header about one entry.
pub(super) fn local(bytes: &[u8]) -> Result<Extension> {
    let mut extension = Extension::default();
    for record in records(bytes) {
        let (key, value) = record?;
        match key {
            b"path" => once(&mut extension.path, text(key, value)?.to_vec(), key)?,
            b"linkpath" => once(&mut extension.link, text(key, value)?.to_vec(), key)?,
            b"size" => once(&mut extension.size, size(value)?, key)?,
            b"mtime" => once(&mut extension.mtime, seconds(text(key, value)?), key)?,
            _ if key.starts_with(b"GNU.sparse.") => {
                return Err(Stop::refused(Code::Sparse, "sparse files are not read"));
            }
            _ => match attribute(key) {
                Some(name) => extension.capability |= dropped_attribute(name)? == Dropped::Capability,
                // The rest, such as owners and other times, is dropped.
                None => refuse_nul(key, value)?,
            },
        }
    }
    Ok(extension)
}

/// Reads a header about all entries that follow; it may only comment on them.
pub(super) fn global(bytes: &[u8]) -> Result<()> {
    for record in records(bytes) {
        let (key, value) = record?;
        if !matches!(key, b"comment" | b"charset" | b"hdrcharset") {
            let why = format!("a global header sets `{}`", escape(key));
            return Err(Stop::refused(Code::PaxGlobal, why));
        }
        refuse_nul(key, value)?;
    }
    Ok(())
}

fn records(mut rest: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let record = split_record(rest);
        // After an error there is no next record.
        rest = record.map_or(&[], |(_, _, rest)| rest);
        let wrong = || Stop::refused(Code::Pax, "a record of the extended header cannot be read");
        Some(record.map(|(key, value, _)| (key, value)).ok_or_else(wrong))
    })
}

fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = bytes.iter().take(8).position(|byte| *byte == b' ')?;
    let length = decimal(&bytes[..blank])?;
    let record = bytes.get(blank + 1..usize::try_from(length).ok()?)?;
    let (newline, record) = record.split_last()?;
    let equals = record.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    let complete = *newline == b'\n';
    let rest = &bytes[blank + 1 + record.len() + 1..];
    complete.then_some((&record[..equals], &record[equals + 1..], rest))
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn once<T>(field: &mut Option<T>, value: T, key: &[u8]) -> Result<()> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => {
            let why = format!("the extended header sets `{}` twice", escape(key));
            Err(Stop::refused(Code::Ambiguous, why))
        }
    }
}

fn text<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8]> {
    refuse_nul(key, value)?;
    match value {
        b"" => Err(Stop::refused(Code::Pax, format!("`{}` is empty", escape(key)))),
        _ => Ok(value),
    }
}

fn refuse_nul(key: &[u8], value: &[u8]) -> Result<()> {
    match value.contains(&0) {
        true => Err(Stop::refused(Code::Pax, format!("`{}` holds a NUL", escape(key)))),
        false => Ok(()),
    }
}

fn size(value: &[u8]) -> Result<u64> {
    let size = decimal(value).filter(|size| *size <= i64::MAX as u64);
    size.ok_or_else(|| Stop::refused(Code::Pax, "`size` is no size"))
}

/// The whole seconds of a time such as `-1.5`; 0 where it is no number.
fn seconds(value: &[u8]) -> i64 {
    let whole = value.split(|byte| *byte == b'.').next().unwrap_or_default();
    std::str::from_utf8(whole).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn attribute(key: &[u8]) -> Option<&[u8]> {
    let prefixes: [&[u8]; 2] = [b"SCHILY.xattr.", b"LIBARCHIVE.xattr."];
    prefixes.iter().find_map(|prefix| key.strip_prefix(*prefix))
}

#[derive(PartialEq)]
enum Dropped {
    Capability,
    Other,
}

/// No attribute is ever set. Those by which an overlay is steered are refused:
/// whoever wrote them meant to reach another layer.
fn dropped_attribute(name: &[u8]) -> Result<Dropped> {
    if name.starts_with(b"user.overlay.") || name.starts_with(b"trusted.") {
        let why = format!("it has the attribute `{}`", escape(name));
        return Err(Stop::refused(Code::Xattr, why));
    }
    Ok(if name == b"security.capability" { Dropped::Capability } else { Dropped::Other })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_stand() {
        let extension = local(b"12 path=a=b\n13 size=0012\n19 mtime=-1.500000\n12 uid=1234\n");
        let extension = extension.unwrap_or_else(|stop| panic!("{stop:?}"));
        assert_eq!(extension.path.as_deref(), Some(&b"a=b"[..]));
        assert_eq!((extension.size, extension.mtime), (Some(12), Some(-1)));
        assert_eq!(local(b"").unwrap_or_else(|stop| panic!("{stop:?}")), Extension::default());
    }

    #[test]
    fn broken_records_are_refused() {
        let broken: [&[u8]; 13] = [
            b"10 path=ab",
            b"11 path=ab",
            b"9 path=ab\n",
            b"0 path=ab\n",
            b"-1 path=ab\n",
            b"path=ab\n",
            b"5 path\n",
            b"4 =a\n",
            b"99999999999999999999 a=b\n",
            b"8 path=\n",
            b"10 path=a\0\n",
            b"11 size=1e9\n",
            b"10 size=-1\n",
        ];
        for bytes in broken {
            assert!(local(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
