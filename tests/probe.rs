//! The probe (`probe/probe.rs`), compiled once a machine.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::place;

/// What the probe ends with where the system said no to it.
pub const REFUSED: i32 = 9;

/// The probe's path: one static program.
pub fn path() -> &'static Path {
    static PATH: OnceLock<std::path::PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/probe/probe.rs");
        let text = [
            &include_bytes!("probe/probe.rs")[..],
            include_bytes!("probe/escape.rs"),
            include_bytes!("probe/files.rs"),
            include_bytes!("probe/kernel.rs"),
            include_bytes!("probe/limits.rs"),
            include_bytes!("probe/ports.rs"),
            include_bytes!("probe/network.rs"),
            include_bytes!("probe/outside.rs"),
            include_bytes!("probe/stand_ins.rs"),
            include_bytes!("probe/words.rs"),
            include_bytes!("probe/talk.rs"),
            include_bytes!("probe/stream.rs"),
        ]
        .concat();
        place::once(&format!("probe-{:016x}", sum(&text)), |to| {
            let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
            let flags = ["--edition", "2024", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "-O", "-o"];
            let done = Command::new(compiler).args(flags).arg(to).arg(&source).status()?;
            if done.success() { Ok(()) } else { Err(io::Error::other(format!("rustc: {done}"))) }
        })
    })
}

/// Puts the probe at another path. A process of its own writes it: a descriptor of this one would go to a child that another
/// thread forks, and as long as that has it, nobody can execute the file (ETXTBSY).
pub fn copy_to(path: &Path) {
    let done = Command::new("cp").arg(self::path()).arg(path).status().expect("every system has cp");
    assert!(done.success(), "{}: {done}", path.display());
}

/// The noise that the probe's `pour` and `duplex` write.
pub fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut out = Vec::with_capacity(bytes + 16);
    let mut left_of_line = 0;
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if left_of_line == 0 {
            left_of_line = 1 + state as usize % 9000;
            out.extend(b"\n{\"");
        }
        left_of_line -= 1;
        out.extend(state.to_le_bytes().map(|byte| if byte == b'\n' { b' ' } else { byte }));
    }
    out.truncate(bytes);
    // The first line begins with the message itself, and the last has its end.
    out.rotate_left(1.min(bytes));
    out
}

/// The checksum that the probe's `sink` and `duplex` answer with: FNV-1a in 64 bits.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}
