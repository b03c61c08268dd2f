//! Values that must not show up in a log.

use std::fmt;

use serde::{Serialize, Serializer};

/// A value that cannot print itself: `Debug`, `Display` and `Serialize` all
/// give `<redacted>`. Passwords and tokens are such, and the value of every environment variable of a run,
/// since nobody can tell from a name which of them matter.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// What stands in the place of a secret.
pub const REDACTED: &str = "<redacted>";

impl Secret {
    /// Wraps `value`.
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The value itself, for the one place that hands it on.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e3_a_secret_prints_itself_nowhere() {
        let secret = Secret::new("hunter2");
        let printed = format!("{secret} {secret:?} {:#?} {}", Some(&secret), serde_json::to_string(&secret).unwrap());
        assert!(!printed.contains("hunter2"), "{printed}");
        assert_eq!(secret.expose(), "hunter2");
    }
}
