//! The seccomp filter: one program with three answers (a fourth where calls are recorded), assembled from the table at each start.
//!
//! One filter in place of the two that a library with two answers a filter needs, and a binary search in place of its
//! chain of comparisons: the kernel walks a filter once for each call there is when it is installed. That takes 0.1 ms here,
//! and 0.6 ms for each of the library's two.
//!
//! A call by another architecture's numbers (`int 0x80`, which i386 has) kills the process: its numbers mean something
//! else. The numbers of x32 are in no row and do not exist.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::calls::{self, TOLD};
use super::seccomp_table::{ALLOWED, CONDITIONS, Call, Condition, Group, NONE, REFUSED, Test, Unless};
use super::sys::{self, Instruction};
use crate::plan::Programs;
use crate::report::Status;

/// What bounds the server beside the filter, which refuses more where there is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// Namespaces of its own.
    Namespaces,
    /// Landlock alone.
    Landlock {
        /// It rules TCP.
        tcp: bool,
        /// It keeps signals within.
        signals: bool,
    },
}

/// The filter for this machine.
pub fn filter(programs: &Programs, around: Around) -> Vec<Instruction> {
    program(Architecture::THIS, programs, around)
}

/// The same with one answer more: of the calls that it allows, those of [`TOLD`] are told first.
pub fn telling_filter(programs: &Programs) -> Vec<Instruction> {
    assembled(Architecture::THIS, programs, Around::Namespaces, &TOLD.each_ref().map(|row| row.call))
}

/// Makes a filter that tells one that does not.
pub fn untold(filter: &[Instruction]) -> Vec<Instruction> {
    let silent = |i: &Instruction| if *i == answer(Answer::Tell) { answer(Answer::Allow) } else { *i };
    filter.iter().map(silent).collect()
}

/// The number of a call here.
pub fn number(name: &str) -> Option<u32> {
    let mut calls = ALLOWED.iter().flat_map(|group| group.calls);
    calls.find(|call| call.0 == name).and_then(|call| Architecture::THIS.number(call))
}

/// Installs a filter for this thread and what it starts, and tries whether it holds. Where calls are told, the supervisor
/// gets the way to hear them by `teller`.
pub fn confine(filter: &[Instruction], teller: Option<&OwnedFd>) -> Status {
    let before = Canaries::sing();
    let installed = match teller {
        None => sys::install_filter(filter),
        Some(teller) => calls::install(filter, teller),
    };
    if let Err(why) = installed {
        return Status::Absent(format!("the kernel takes no filter: {why}"));
    }
    before.judge(&Canaries::sing())
}

/// Three harmless calls that the kernel itself answers otherwise than the filter does.
struct Canaries {
    /// In no row.
    unknown: Result<(), Errno>,
    /// Refused.
    refused: Result<(), Errno>,
    /// Refused for its argument, hidden beneath bits that the kernel ignores.
    argument: Result<(), Errno>,
}

impl Canaries {
    fn sing() -> Canaries {
        Canaries {
            // Without arguments: EINVAL.
            unknown: sys::clone3_nothing(),
            // Of nothing: it works.
            refused: sys::unshare_nothing(),
            // On no descriptor: EBADF.
            argument: sys::push_input_nowhere(),
        }
    }

    /// What the answers after tell about the filter; `self` are those before it.
    fn judge(&self, after: &Canaries) -> Status {
        let pairs = [
            ("an unknown call", self.unknown, after.unknown, Errno::NOSYS),
            ("a refused call", self.refused, after.refused, Errno::PERM),
            ("a refused argument", self.argument, after.argument, Errno::PERM),
        ];
        if let Some((what, _, answer, _)) = pairs.iter().find(|(_, _, after, want)| *after != Err(*want)) {
            return Status::Absent(format!("{what} was answered by {answer:?}"));
        }
        // Where a filter around this one, such as a container's, gave all of the answers, this one was not seen.
        if pairs.iter().all(|(_, before, _, want)| *before == Err(*want)) {
            return Status::Partial("another filter answers before it".into());
        }
        Status::Full
    }
}

/// The architectures that have a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "one of the two runs; the tests assemble both"))]
enum Architecture {
    X86_64,
    Aarch64,
}

impl Architecture {
    #[cfg(target_arch = "x86_64")]
    const THIS: Architecture = Architecture::X86_64;
    #[cfg(target_arch = "aarch64")]
    const THIS: Architecture = Architecture::Aarch64;

    /// `AUDIT_ARCH_*` of linux/audit.h.
    fn audit(self) -> u32 {
        match self {
            Architecture::X86_64 => 0xC000_003E,
            Architecture::Aarch64 => 0xC000_00B7,
        }
    }

    fn number(self, call: &Call) -> Option<u32> {
        let number = match self {
            Architecture::X86_64 => call.1,
            Architecture::Aarch64 => call.2,
        };
        (number != NONE).then_some(number as u32)
    }
}

/// What a filter answers; seccomp(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allow,
    /// Whoever listens lets it go on.
    Tell,
    Unknown,
    Refuse,
    Kill,
}

/// With an error's number beneath; with none the call is said to have worked.
const ERRNO: u32 = 0x0005_0000;

impl Answer {
    const fn code(self) -> u32 {
        match self {
            Answer::Allow => 0x7FFF_0000,
            Answer::Tell => 0x7FC0_0000,
            Answer::Unknown => ERRNO | Errno::NOSYS.raw_os_error() as u32,
            Answer::Refuse => ERRNO | Errno::PERM.raw_os_error() as u32,
            Answer::Kill => 0x8000_0000,
        }
    }
}

/// What happens to the numbers from `first` up to the next range.
struct Range {
    first: u32,
    answer: Answer,
    conditions: Vec<&'static Condition>,
}

/// A filter that answers 0 to one call and lets all others pass.
pub fn answering_yes_to(call: libc::c_long) -> [Instruction; 6] {
    let pass = answer(Answer::Allow);
    // A number stands for another call in another architecture.
    let architecture = jump_if_equal(Architecture::THIS.audit(), 0, 3);
    let yes = Instruction { k: ERRNO, ..pass };
    [load(ARCHITECTURE), architecture, load(NUMBER), jump_if_equal(call as u32, 0, 1), yes, pass]
}

/// A filter by which nothing exists but these calls, and nothing that is mapped can be executed.
pub fn of_nothing_but(calls: &[libc::c_long]) -> Vec<Instruction> {
    const PROT_EXEC: u32 = 4;
    let mut code = vec![load(ARCHITECTURE), jump_if_equal(Architecture::THIS.audit(), 1, 0), answer(Answer::Kill)];
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        code.extend([load(NUMBER), jump_if_equal(call as u32, 0, 5), load(ARGUMENTS + 16), and(PROT_EXEC)]);
        code.extend([jump_if_equal(0, 1, 0), answer(Answer::Refuse), answer(Answer::Allow)]);
    }
    code.push(load(NUMBER));
    for call in calls {
        code.extend([jump_if_equal(*call as u32, 0, 1), answer(Answer::Allow)]);
    }
    code.push(answer(Answer::Unknown));
    code
}

/// The whole filter for one architecture.
fn program(architecture: Architecture, programs: &Programs, around: Around) -> Vec<Instruction> {
    assembled(architecture, programs, around, &[])
}

/// The same where some calls are told.
fn assembled(architecture: Architecture, programs: &Programs, around: Around, told: &[&str]) -> Vec<Instruction> {
    let mut code =
        vec![load(ARCHITECTURE), jump_if_equal(architecture.audit(), 1, 0), answer(Answer::Kill), load(NUMBER)];
    let leaf = |range: &Range| {
        let mut code: Vec<_> = range.conditions.iter().flat_map(|condition| refuse_where(condition.all)).collect();
        code.push(answer(range.answer));
        code
    };
    code.extend(search(&ranges(architecture, programs, around, told), &|range| range.first, &leaf));
    code
}

fn ranges(architecture: Architecture, programs: &Programs, around: Around, told: &[&str]) -> Vec<Range> {
    let mut calls: Vec<Range> = Vec::new();
    let mut take = |groups: &'static [Group], answer| {
        for call in groups.iter().flat_map(|group| group.calls) {
            if let Some(first) = architecture.number(call) {
                let answer = if answer == Answer::Allow && told.contains(&call.0) { Answer::Tell } else { answer };
                let counts = |condition: &&Condition| {
                    condition.calls.contains(&call.0) && in_force(condition.unless, programs, around)
                };
                calls.push(Range { first, answer, conditions: CONDITIONS.iter().filter(counts).collect() });
            }
        }
    };
    take(ALLOWED, Answer::Allow);
    take(REFUSED, Answer::Refuse);
    calls.sort_by_key(|call| call.first);
    let mut ranges: Vec<Range> = vec![Range { first: 0, answer: Answer::Unknown, conditions: Vec::new() }];
    let mut next = 0;
    for call in calls {
        let gap = Range { first: next, answer: Answer::Unknown, conditions: Vec::new() };
        next = call.first + 1;
        for range in [gap, call] {
            // A gap of nothing, or a row that goes on with what the last one answers.
            while ranges.last().is_some_and(|last| last.first == range.first) {
                ranges.pop();
            }
            match ranges.last() {
                Some(last)
                    if last.answer == range.answer && last.conditions.is_empty() && range.conditions.is_empty() => {}
                _ => ranges.push(range),
            }
        }
    }
    ranges.push(Range { first: next, answer: Answer::Unknown, conditions: Vec::new() });
    ranges
}

fn in_force(unless: Unless, programs: &Programs, around: Around) -> bool {
    match (unless, around) {
        (Unless::Never, _) => true,
        (Unless::AnyProgram, _) => *programs != Programs::Any,
        (Unless::Namespaces | Unless::NamespacesOrTcp | Unless::NamespacesOrScope, Around::Namespaces) => false,
        (Unless::Namespaces, Around::Landlock { .. }) => true,
        (Unless::NamespacesOrTcp, Around::Landlock { tcp, .. }) => !tcp,
        (Unless::NamespacesOrScope, Around::Landlock { signals, .. }) => !signals,
    }
}

/// A binary search over ranges of numbers, the lowest first, with the number in the accumulator: where each begins by `first`,
/// and what is done there by `leaf`.
pub fn search<R>(ranges: &[R], first: &impl Fn(&R) -> u32, leaf: &impl Fn(&R) -> Vec<Instruction>) -> Vec<Instruction> {
    let [only] = ranges else {
        let (left, right) = ranges.split_at(ranges.len() / 2);
        let (left, first, right) = (search(left, first, leaf), first(&right[0]), search(right, first, leaf));
        let mut code = match u8::try_from(left.len()) {
            Ok(length) => vec![jump_if_at_least(first, length, 0)],
            Err(_) => vec![jump_if_at_least(first, 0, 1), jump(left.len())],
        };
        code.extend(left);
        code.extend(right);
        return code;
    };
    leaf(only)
}

/// Refuses where all tests hold, else falls through to what follows.
fn refuse_where(tests: &[Test]) -> Vec<Instruction> {
    let mut code = vec![answer(Answer::Refuse)];
    for test in tests.iter().rev() {
        let mut prefix = vec![load(ARGUMENTS + 8 * u32::from(test.argument))];
        if test.mask != u32::MAX {
            prefix.push(and(test.mask));
        }
        let count = test.values.len();
        for (index, value) in test.values.iter().enumerate() {
            let pass = (count - index - 1) as u8;
            let fail = pass + code.len() as u8;
            let last = index + 1 == count;
            prefix.push(match test.among {
                true => jump_if_equal(*value, pass, if last { fail } else { 0 }),
                false => jump_if_equal(*value, fail, 0),
            });
        }
        prefix.append(&mut code);
        code = prefix;
    }
    code
}

/// Where in `struct seccomp_data` the call's number stands.
pub const NUMBER: u32 = 0;
/// The same of the architecture.
pub const ARCHITECTURE: u32 = 4;
/// The same of the first argument, 8 bytes each; both architectures are little-endian, the lower half stands first.
pub const ARGUMENTS: u32 = 16;

/// linux/bpf_common.h.
const BPF_LD_W_ABS: u16 = 0x20;
const BPF_ALU_AND_K: u16 = 0x54;
const BPF_JMP_JA: u16 = 0x05;
const BPF_JMP_JEQ_K: u16 = 0x15;
const BPF_JMP_JGT_K: u16 = 0x25;
const BPF_JMP_JGE_K: u16 = 0x35;
const BPF_RET_K: u16 = 0x06;

/// Loads 32 bits of the call.
pub fn load(offset: u32) -> Instruction {
    Instruction { code: BPF_LD_W_ABS, jump_true: 0, jump_false: 0, k: offset }
}

/// Keeps these bits of what was loaded.
pub fn and(mask: u32) -> Instruction {
    Instruction { code: BPF_ALU_AND_K, jump_true: 0, jump_false: 0, k: mask }
}

/// Passes over so many instructions.
pub fn jump(over: usize) -> Instruction {
    Instruction { code: BPF_JMP_JA, jump_true: 0, jump_false: 0, k: over as u32 }
}

/// Passes over the first or the second number of instructions.
pub fn jump_if_equal(k: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code: BPF_JMP_JEQ_K, jump_true, jump_false, k }
}

/// The same.
pub fn jump_if_at_least(k: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code: BPF_JMP_JGE_K, jump_true, jump_false, k }
}

/// The same, where it is more.
pub fn jump_if_more(k: u32, jump_true: u8, jump_false: u8) -> Instruction {
    Instruction { code: BPF_JMP_JGT_K, jump_true, jump_false, k }
}

/// Ends with one of `SECCOMP_RET_*`.
pub fn answer_by(code: u32) -> Instruction {
    Instruction { code: BPF_RET_K, jump_true: 0, jump_false: 0, k: code }
}

fn answer(answer: Answer) -> Instruction {
    answer_by(answer.code())
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
