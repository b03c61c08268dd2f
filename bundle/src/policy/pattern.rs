//! Patterns of names: packages, variables, tools.

use std::fmt;

/// A text in which `*` stands for any text, also with slashes in it, and all else for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(String);

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Where it is empty, or holds a blank or a control character: no name has one, so it would match nothing.
    pub fn new(text: &str) -> Result<Pattern, String> {
        if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("{text:?} is no pattern: one word, in which `*` stands for any text"));
        }
        Ok(Pattern(text.into()))
    }

    /// Whether it stands for a name, in whatever case either is written.
    pub(super) fn matches_in_any_case(&self, name: &str) -> bool {
        Pattern(self.0.to_lowercase()).matches(&name.to_lowercase())
    }

    /// Whether it stands for a name.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
        let mut parts: Vec<&str> = parts.collect();
        // Without a star all of the name must have been used up.
        let Some(last) = parts.pop() else { return rest.is_empty() };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_text() {
        for (pattern, name, want) in [
            ("*", "", true),
            ("*", "a/b", true),
            ("acme/*", "acme/x", true),
            ("acme/*", "acme/x/y", true),
            ("acme/*", "acme", false),
            ("acme/*", "xacme/y", false),
            ("acme", "acme", true),
            ("acme", "acme/x", false),
            ("*_TOKEN", "A_TOKEN", true),
            ("*_TOKEN", "A_TOKEN_B", false),
            ("AWS_*", "AWS_", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*aab", "aaab", true),
            ("a.*", "ab", false),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(name), want, "{pattern} {name}");
        }
        for text in ["", " ", "a b", "a\n"] {
            assert!(Pattern::new(text).is_err(), "{text:?}");
        }
    }
}
