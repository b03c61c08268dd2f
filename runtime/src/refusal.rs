//! Why a cage is not built, or its server not started.

use serde::{Deserialize, Serialize};

/// A cage that cannot be had on this machine, exit code 125.
#[derive(Clone, Debug, Serialize, Deserialize, thiserror::Error)]
#[error("the cage cannot be built: {what}: {why}")]
pub struct Refusal {
    /// The step that failed.
    pub what: String,
    /// The kernel's word on it.
    pub why: String,
    /// The next step for a person.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal without a hint.
    pub fn new(what: impl Into<String>, why: impl ToString) -> Refusal {
        Refusal { what: what.into(), why: why.to_string(), hint: None }
    }

    /// Adds the next step.
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.hint = Some(hint.into());
        self
    }
}

/// Why exec failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NotExecuted {
    /// The program as the package names it.
    pub program: String,
    /// Which of the two exit codes it is.
    pub kind: NotExecutedKind,
    /// What was tried and what the kernel said.
    pub why: String,
}

/// The two ways in which a program is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotExecutedKind {
    /// It is not there: exit code 127.
    NotFound,
    /// It is there and cannot be executed: exit code 126.
    NotExecutable,
}
