//! Patterns of file names in `smcp.toml`.

use std::path::{Path, PathBuf};

/// Whether a pattern names the path or a directory that it is in.
pub(super) fn names(pattern: &str, path: &Path) -> bool {
    let pattern: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let path: Vec<PathBuf> = path.components().map(|part| PathBuf::from(part.as_os_str())).collect();
    let path: Vec<&[u8]> = path.iter().map(|part| part.as_os_str().as_encoded_bytes()).collect();
    !pattern.is_empty() && parts_match(&pattern, &path)
}

fn parts_match(pattern: &[&str], path: &[&[u8]]) -> bool {
    match (pattern, path) {
        ([], _) => true,
        (["**"], _) => !path.is_empty(),
        (["**", rest @ ..], _) => (0..=path.len()).any(|skipped| parts_match(rest, &path[skipped..])),
        ([first, rest @ ..], [name, below @ ..]) => word_matches(first.as_bytes(), name) && parts_match(rest, below),
        (_, []) => false,
    }
}

fn word_matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|taken| word_matches(rest, &name[taken..])),
        ([b'?', rest @ ..], [_, below @ ..]) => word_matches(rest, below),
        ([c, rest @ ..], [d, below @ ..]) => c == d && word_matches(rest, below),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let table = [
            ("dist", "dist/a/b.js", true),
            ("./dist/", "dist", true),
            ("dist", "src/dist", false),
            ("**/dist", "src/dist/x", true),
            ("**/dist", "dist", true),
            ("*.js", "a.js", true),
            ("*.js", "a/a.js", false),
            ("**/*.map", "a/b/c.js.map", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a/**/c", "a/c", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("", "a", false),
            ("**/.env.*", "x/.env.local", true),
        ];
        for (pattern, path, want) in table {
            assert_eq!(names(pattern, Path::new(path)), want, "{pattern} {path}");
        }
    }
}
