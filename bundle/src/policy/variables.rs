//! Policy by environment variables and flags.

use std::path::Path;

use super::read::Section;
use super::source::{Source, Sourced};
use super::values::number;
use super::{Policy, PolicyError};

impl Policy {
    /// What a variable says. `key` is its name after `MCP_POLICY_`, in small letters: words and numbers as in a file, lists with
    /// blanks between their entries. What takes more structure than that is stated in files alone. None where there is no
    /// such key.
    ///
    /// # Errors
    /// Where its value is none.
    pub fn of_variable(name: &str, key: &str, value: &str, home: Option<&Path>) -> Option<Result<Policy, PolicyError>> {
        let mut section = Section::default();
        section.set(key, value)?;
        Some(section.of(Source::Variable(name.into()), home))
    }

    /// What the flags of a run say.
    ///
    /// # Errors
    /// Where one of them is out of its range.
    pub fn of_flags(min_cert_level: Option<&str>, warning_threshold: Option<&str>) -> Result<Policy, String> {
        let flag = |flag: &'static str, text: Option<&str>, most| {
            let read = |text| match number(text, 0, most) {
                Ok(value) => Ok(Sourced { value, source: Source::Flag(flag) }),
                Err(why) => Err(format!("{flag}: {why}")),
            };
            text.map(read).transpose()
        };
        Ok(Policy {
            min_cert_level: flag("--min-cert-level", min_cert_level, 3)?,
            warning_threshold: flag("--warning-threshold", warning_threshold, 100)?,
            ..Policy::default()
        })
    }
}
