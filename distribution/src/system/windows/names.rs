//! Names that come from elsewhere, as Windows may have them: what it would read as something else is refused.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::path::{Path, PathBuf};

use super::Errno;

/// What a path is given as.
pub trait Arg {
    /// Its bytes, parts divided by `/`.
    ///
    /// # Errors
    /// `INVAL` where it holds a NUL.
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno>;
}

fn owned(bytes: &[u8]) -> Result<Cow<'static, CStr>, Errno> {
    CString::new(bytes).map(Cow::Owned).map_err(|_| Errno::INVAL)
}

impl Arg for &CStr {
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno> {
        Ok(Cow::Borrowed(self))
    }
}

impl Arg for &CString {
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno> {
        Ok(Cow::Borrowed(self))
    }
}

impl Arg for &[u8] {
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno> {
        owned(self)
    }
}

impl Arg for &str {
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno> {
        owned(self.as_bytes())
    }
}

impl Arg for &Path {
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno> {
        owned(self.to_str().ok_or(Errno::INVAL)?.replace('\\', "/").as_bytes())
    }
}

impl Arg for &PathBuf {
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno> {
        owned(self.to_str().ok_or(Errno::INVAL)?.replace('\\', "/").as_bytes())
    }
}

impl Arg for &OsStr {
    fn as_cow_c_str(&self) -> Result<Cow<'_, CStr>, Errno> {
        owned(self.to_str().ok_or(Errno::INVAL)?.as_bytes())
    }
}

/// One part of a path as a name of Windows.
///
/// # Errors
/// `INVAL` for what is no text, holds what divides paths or opens streams of a file (`:`), ends with a space or a dot, which Windows
/// drops, or names a device.
pub(super) fn part(name: &[u8]) -> Result<OsString, Errno> {
    let text = std::str::from_utf8(name).map_err(|_| Errno::INVAL)?;
    match text {
        "." => return Ok(text.into()),
        "" | ".." => return Err(Errno::INVAL),
        _ => {}
    }
    let unusable = |c: char| c < ' ' || r#"<>:"/\|?*"#.contains(c);
    let stem = text.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    if text.contains(unusable) || text.ends_with(['.', ' ']) || is_device(&stem) {
        return Err(Errno::INVAL);
    }
    Ok(text.into())
}

fn is_device(stem: &str) -> bool {
    let numbered = ["COM", "LPT"].iter().find_map(|kind| stem.strip_prefix(kind));
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$"].contains(&stem)
        || numbered.is_some_and(|number| {
            matches!(number, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" | "¹" | "²" | "³")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_windows_reads_otherwise_is_no_name() {
        for good in ["a", "a.b", ".hidden", "console", "com", "com10", "nul1", "Ünicode", "a b", "@scope"] {
            assert!(part(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
            "a:b", "a\\b", "a/b", "nul", "NUL.txt", "Con .x", "com1", "lpt9.a.b", "com¹", "a.", "a ", "..", "", "a\tb",
            "a?",
        ] {
            assert!(part(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(part(b"\xff").is_err());
    }
}
