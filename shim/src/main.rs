//! The `smcp` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

/// musl's own maps and unmaps memory for what is needed for a moment, tens of times a start.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    smcp::main()
}
