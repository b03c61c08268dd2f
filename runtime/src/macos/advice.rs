//! What would bring this machine more.

use std::path::Path;

use crate::outcome::Advice;
use crate::report::{Layer, Report, Status};

/// What would raise the tier of a cage that was tried so.
pub fn advice(report: &Report, _: &Path) -> Vec<Advice> {
    match report.status(Layer::Seatbelt) {
        Some(status) if *status != Status::Full => vec![Advice {
            matter: format!("Seatbelt: {status}"),
            steps: vec!["# /usr/bin/sandbox-exec comes with macOS: see whether something has taken it away".into()],
        }],
        _ => Vec::new(),
    }
}
