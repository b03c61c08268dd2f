//! `linux.seccomp` of a `config.json` as a filter. libcontainer compiles it by a C library, which smcp does not have.
//!
//! What runc makes of the same section is made of it: a call that no rule names gets the default action, a rule's conditions
//! must all hold, several on one argument are rules of their own, and calls above all that are named do not exist (ENOSYS) where
//! the default refuses, since a program takes a refusal of a new call for an answer.

use std::collections::BTreeMap;
use std::io;

use libcontainer::oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompFilterFlag, LinuxSeccompOperator,
};

use super::Error;
use super::syscalls::Architecture;
use crate::linux::seccomp::{
    ARCHITECTURE, ARGUMENTS, NUMBER, and, answer_by as answer, jump, jump_if_at_least, jump_if_equal, jump_if_more,
    load, search,
};
use crate::linux::sys::{self, Instruction};

/// A compiled filter.
#[derive(Clone, Debug)]
pub struct Filter {
    program: Vec<Instruction>,
    /// `SECCOMP_FILTER_FLAG_*`.
    flags: u64,
}

impl Filter {
    /// Compiles a section.
    ///
    /// # Errors
    /// Where something in it cannot be enforced.
    pub fn compile(section: &LinuxSeccomp) -> Result<Filter, Error> {
        let fail = |why: String| Error::step("compiling linux.seccomp", why);
        let default = action(section.default_action(), section.default_errno_ret()).map_err(fail)?;
        let mut architectures = vec![Architecture::THIS];
        for named in section.architectures().iter().flatten() {
            // Others than this machine's never call.
            architectures.extend(architecture(*named).filter(|known| !architectures.contains(known)));
        }
        let rules = rules(section, default).map_err(fail)?;
        let mut flags = 0;
        for flag in section.flags().iter().flatten() {
            flags |= match flag {
                LinuxSeccompFilterFlag::SeccompFilterFlagLog => libc::SECCOMP_FILTER_FLAG_LOG,
                LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow => libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                // There is one thread.
                LinuxSeccompFilterFlag::SeccompFilterFlagTsync => 0,
                other => return Err(fail(format!("the flag {other:?} is for listeners, which smcp does not have"))),
            };
        }
        let program = assemble(&architectures, &rules, default);
        match program.len() {
            0..=MOST => Ok(Filter { program, flags }),
            length => Err(fail(format!("{length} instructions are more than the {MOST} that the kernel takes"))),
        }
    }

    /// Puts it before every call of this thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn install(&self) -> io::Result<()> {
        sys::install_filter_with(&self.program, self.flags)
    }
}

/// BPF_MAXINSNS.
const MOST: usize = 4096;

/// `SECCOMP_RET_*`, with the error's or the tracer's number beneath.
type Answer = u32;

const KILL_THREAD: Answer = 0;
const KILL_PROCESS: Answer = 0x8000_0000;
const TRAP: Answer = 0x0003_0000;
const ERRNO: Answer = 0x0005_0000;
const TRACE: Answer = 0x7FF0_0000;
const LOG: Answer = 0x7FFC_0000;
const ALLOW: Answer = 0x7FFF_0000;
const NO_SUCH_CALL: Answer = ERRNO | libc::ENOSYS as u32;

fn action(action: LinuxSeccompAction, number: Option<u32>) -> Result<Answer, String> {
    let below = number.unwrap_or(libc::EPERM as u32) & 0xFFFF;
    Ok(match action {
        LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => KILL_THREAD,
        LinuxSeccompAction::ScmpActKillProcess => KILL_PROCESS,
        LinuxSeccompAction::ScmpActTrap => TRAP,
        LinuxSeccompAction::ScmpActErrno => ERRNO | below,
        LinuxSeccompAction::ScmpActTrace => TRACE | below,
        LinuxSeccompAction::ScmpActLog => LOG,
        LinuxSeccompAction::ScmpActAllow => ALLOW,
        LinuxSeccompAction::ScmpActNotify => {
            return Err("SCMP_ACT_NOTIFY needs a listener, which smcp does not have".into());
        }
    })
}

fn architecture(named: Arch) -> Option<Architecture> {
    let of_this = |one: Architecture, base: Architecture| (Architecture::THIS == base).then_some(one);
    match named {
        Arch::ScmpArchNative => Some(Architecture::THIS),
        Arch::ScmpArchX86_64 => of_this(Architecture::X86_64, Architecture::X86_64),
        Arch::ScmpArchX86 => of_this(Architecture::X86, Architecture::X86_64),
        Arch::ScmpArchX32 => of_this(Architecture::X32, Architecture::X86_64),
        Arch::ScmpArchAarch64 => of_this(Architecture::Aarch64, Architecture::Aarch64),
        Arch::ScmpArchArm => of_this(Architecture::Arm, Architecture::Aarch64),
        _ => None,
    }
}

/// What happens to one call.
#[derive(Clone, Debug, Default)]
struct Rule {
    /// Where all conditions of one of these hold, in order.
    where_all: Vec<(Vec<LinuxSeccompArg>, Answer)>,
    /// Whatever its arguments are; then the others do not count.
    always: Option<Answer>,
}

fn rules(section: &LinuxSeccomp, default: Answer) -> Result<BTreeMap<String, Rule>, String> {
    let mut rules: BTreeMap<String, Rule> = BTreeMap::new();
    for row in section.syscalls().iter().flatten() {
        let answer = action(row.action(), row.errno_ret())?;
        if answer == default {
            continue;
        }
        let conditions = row.args().clone().unwrap_or_default();
        if let Some(outside) = conditions.iter().find(|condition| condition.index() > 5) {
            return Err(format!("a call has no argument {}", outside.index()));
        }
        for name in row.names() {
            let rule = rules.entry(name.clone()).or_default();
            let several = (0..6).any(|index| conditions.iter().filter(|of| of.index() == index).count() > 1);
            match conditions.len() {
                0 => rule.always = rule.always.or(Some(answer)),
                _ if several => rule.where_all.extend(conditions.iter().map(|one| (vec![*one], answer))),
                _ => rule.where_all.push((conditions.clone(), answer)),
            }
        }
    }
    Ok(rules)
}

/// The calls from this number on, up to the next of these.
struct Range {
    first: u32,
    code: Vec<Instruction>,
}

/// The bit by which x32 tells its calls from those of x86-64.
const X32: u32 = 0x4000_0000;
/// What a tracer puts in the place of a call that is not to be made.
const SKIPPED: u32 = u32::MAX;

fn assemble(architectures: &[Architecture], rules: &BTreeMap<String, Rule>, default: Answer) -> Vec<Instruction> {
    let with_x32 = architectures.contains(&Architecture::X32);
    let mut code = vec![load(ARCHITECTURE)];
    for architecture in architectures.iter().filter(|one| **one != Architecture::X32) {
        let mut block = vec![load(NUMBER)];
        let mut ranges = ranges(*architecture, rules, default);
        if *architecture == Architecture::X86_64 {
            ranges.retain(|range| range.first < X32);
            match with_x32 {
                // Below its first call there is nothing of x32's.
                true => ranges.extend(
                    self::ranges(Architecture::X32, rules, default)
                        .into_iter()
                        .map(|range| Range { first: range.first.max(X32), ..range }),
                ),
                false => ranges.push(Range { first: X32, code: vec![answer(KILL_THREAD)] }),
            }
            let mut once: Vec<Range> = Vec::new();
            for range in ranges {
                if once.last().is_some_and(|last| last.first == range.first) {
                    once.pop();
                }
                once.push(range);
            }
            ranges = once;
        }
        ranges.push(Range { first: SKIPPED, code: vec![answer(default)] });
        block.extend(search(&ranges, &|range| range.first, &|range| range.code.clone()));
        code.push(jump_if_equal(architecture.audit(), 1, 0));
        code.push(jump(block.len()));
        code.extend(block);
    }
    code.push(answer(KILL_THREAD));
    code
}

fn ranges(architecture: Architecture, rules: &BTreeMap<String, Rule>, default: Answer) -> Vec<Range> {
    let numbers = architecture.numbers();
    let named: BTreeMap<u32, &Rule> =
        rules.iter().filter_map(|(name, rule)| Some((*numbers.get(name.as_str())?, rule))).collect();
    let mut ranges = vec![Range { first: 0, code: vec![answer(default)] }];
    let mut put = |first: u32, code: Vec<Instruction>| match ranges.last_mut() {
        Some(last) if last.first == first => last.code = code,
        Some(last) if last.code == code => {}
        _ => ranges.push(Range { first, code }),
    };
    for (number, rule) in &named {
        put(*number, leaf(rule, default));
        put(*number + 1, vec![answer(default)]);
    }
    let refuses = !matches!(default & 0xFFFF_0000, ALLOW | LOG | TRACE);
    if let (true, Some((last, _))) = (refuses, named.last_key_value()) {
        put(*last + 1, vec![answer(NO_SUCH_CALL)]);
    }
    ranges
}

fn leaf(rule: &Rule, default: Answer) -> Vec<Instruction> {
    if let Some(always) = rule.always {
        return vec![answer(always)];
    }
    let mut code: Vec<Instruction> =
        rule.where_all.iter().flat_map(|(conditions, found)| answer_where(conditions, *found)).collect();
    code.push(answer(default));
    code
}

/// Answers where all conditions hold, else falls through to what follows.
fn answer_where(conditions: &[LinuxSeccompArg], found: Answer) -> Vec<Instruction> {
    let mut code = vec![answer(found)];
    for condition in conditions.iter().rev() {
        // Six of six instructions at most.
        let mut test = test(condition, code.len() as u8);
        test.append(&mut code);
        code = test;
    }
    code
}

/// Falls through where a condition holds, else passes over `rest` instructions more. The upper half of an argument comes
/// second in memory, both architectures being little-endian.
fn test(condition: &LinuxSeccompArg, rest: u8) -> Vec<Instruction> {
    let halves = |value: u64| ((value >> 32) as u32, value as u32);
    let low = ARGUMENTS + 8 * condition.index() as u32;
    let high = low + 4;
    let (above, below) = halves(condition.value());
    let order = |compare: fn(u32, u8, u8) -> Instruction, holds: bool| {
        let (yes, no) = if holds { (0, rest) } else { (rest, 0) };
        let (more, less) = if holds { (3, 2 + rest) } else { (3 + rest, 2) };
        vec![
            load(high),
            jump_if_more(above, more, 0),
            jump_if_equal(above, 0, less),
            load(low),
            compare(below, yes, no),
        ]
    };
    match condition.op() {
        LinuxSeccompOperator::ScmpCmpEq => {
            vec![load(high), jump_if_equal(above, 0, 2 + rest), load(low), jump_if_equal(below, 0, rest)]
        }
        LinuxSeccompOperator::ScmpCmpNe => {
            vec![load(high), jump_if_equal(above, 0, 2), load(low), jump_if_equal(below, rest, 0)]
        }
        LinuxSeccompOperator::ScmpCmpMaskedEq => {
            let (wanted_above, wanted_below) = halves(condition.value_two().unwrap_or(0));
            vec![
                load(high),
                and(above),
                jump_if_equal(wanted_above, 0, 3 + rest),
                load(low),
                and(below),
                jump_if_equal(wanted_below, 0, rest),
            ]
        }
        LinuxSeccompOperator::ScmpCmpGt => order(jump_if_more, true),
        LinuxSeccompOperator::ScmpCmpGe => order(jump_if_at_least, true),
        LinuxSeccompOperator::ScmpCmpLe => order(jump_if_more, false),
        LinuxSeccompOperator::ScmpCmpLt => order(jump_if_at_least, false),
    }
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;
