//! System calls by name, for each architecture that a filter can be for here.
//!
//! The table is that of the kernel's headers, as the crate linux-raw-sys 0.12.1 has them (Linux 6.17): a name and its numbers
//! on x86-64, i386, x32, aarch64 and arm, `-` where there is none.

use std::collections::HashMap;

/// How a kernel takes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 32-bit x86.
    X86,
    /// 64-bit x86 with short pointers: its calls come as those of [`Architecture::X86_64`] with a bit set.
    X32,
    /// 64-bit ARM.
    Aarch64,
    /// 32-bit ARM.
    Arm,
}

impl Architecture {
    #[cfg(target_arch = "x86_64")]
    pub const THIS: Architecture = Architecture::X86_64;
    #[cfg(target_arch = "aarch64")]
    pub const THIS: Architecture = Architecture::Aarch64;

    /// `AUDIT_ARCH_*` of linux/audit.h.
    pub fn audit(self) -> u32 {
        match self {
            Architecture::X86_64 | Architecture::X32 => 0xC000_003E,
            Architecture::X86 => 0x4000_0003,
            Architecture::Aarch64 => 0xC000_00B7,
            Architecture::Arm => 0x4000_0028,
        }
    }

    /// Every call that it has.
    pub fn numbers(self) -> HashMap<&'static str, u32> {
        TABLE.lines().filter_map(|line| self.row(line)).collect()
    }

    fn row(self, line: &'static str) -> Option<(&'static str, u32)> {
        let mut words = line.split(' ');
        let name = words.next()?;
        Some((name, words.nth(self as usize)?.parse().ok()?))
    }
}

const TABLE: &str = include_str!("syscalls.txt");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::seccomp_table::{ALLOWED, NONE, REFUSED};

    /// The two tables say the same of what both have.
    #[test]
    fn numbers_are_those_of_the_cages_filter() {
        let (x86_64, aarch64) = (Architecture::X86_64.numbers(), Architecture::Aarch64.numbers());
        let calls = ALLOWED.iter().chain(REFUSED).flat_map(|group| group.calls);
        for (name, on_x86_64, on_aarch64) in calls {
            for (table, number) in [(&x86_64, *on_x86_64), (&aarch64, *on_aarch64)] {
                match table.get(name) {
                    Some(found) if number != NONE => assert_eq!(*found as i32, number, "{name}"),
                    _ => {}
                }
            }
        }
        assert_eq!(Architecture::X86.numbers()["socketcall"], 102);
        assert_eq!(Architecture::X32.numbers()["read"], 0x4000_0000);
        assert_eq!(Architecture::Arm.numbers()["cacheflush"], 0xF0002);
    }
}
