//! Filters are run here as the kernel would, on calls that it need not make.

use serde_json::{Value, json};

use super::*;

/// A call as a filter sees it: its architecture, its number and its arguments.
struct Call {
    audit: u32,
    number: u32,
    arguments: [u64; 6],
}

fn call(architecture: Architecture, name: &str, arguments: [u64; 6]) -> Call {
    Call { audit: architecture.audit(), number: architecture.numbers()[name], arguments }
}

/// What a filter answers.
fn ask(filter: &Filter, call: &Call) -> Answer {
    let word = |offset: u32| match offset {
        NUMBER => call.number,
        ARCHITECTURE => call.audit,
        _ => {
            let place = offset - ARGUMENTS;
            (call.arguments[(place / 8) as usize] >> (8 * (place % 8))) as u32
        }
    };
    let (mut next, mut accumulator) = (0, 0_u32);
    loop {
        let Instruction { code, jump_true, jump_false, k } = filter.program[next];
        next += 1;
        let jump = |holds: bool| usize::from(if holds { jump_true } else { jump_false });
        match code {
            0x20 => accumulator = word(k),
            0x54 => accumulator &= k,
            0x05 => next += k as usize,
            0x15 => next += jump(accumulator == k),
            0x25 => next += jump(accumulator > k),
            0x35 => next += jump(accumulator >= k),
            0x06 => return k,
            other => panic!("{other:#x} is no instruction of these"),
        }
    }
}

fn compiled(section: Value) -> Filter {
    Filter::compile(&serde_json::from_value(section).unwrap()).unwrap()
}

const EPERM: Answer = ERRNO | libc::EPERM as u32;
const NOTHING: [u64; 6] = [0; 6];

#[test]
fn a_list_of_what_is_allowed() {
    let names = json!(["read", "write", "exit_group"]);
    let filter = compiled(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32", "SCMP_ARCH_S390X"],
        "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"}, {"names": ["no_such_call"], "action": "SCMP_ACT_LOG"}],
    }));
    for architecture in [Architecture::X86_64, Architecture::X86, Architecture::X32] {
        for (name, answer) in [("read", ALLOW), ("exit_group", ALLOW), ("mount", EPERM), ("openat2", NO_SUCH_CALL)] {
            assert_eq!(ask(&filter, &call(architecture, name, NOTHING)), answer, "{architecture:?} {name}");
        }
    }
    assert_eq!(ask(&filter, &call(Architecture::Arm, "read", NOTHING)), KILL_THREAD);
    let skipped = Call { audit: Architecture::X86_64.audit(), number: u32::MAX, arguments: NOTHING };
    assert_eq!(ask(&filter, &skipped), EPERM);
}

/// Calls by numbers of an architecture that is not named are none of the program's.
#[test]
fn other_architectures_are_killed() {
    let filter = compiled(json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}));
    assert_eq!(ask(&filter, &call(Architecture::X86_64, "mount", NOTHING)), ALLOW);
    for foreign in [Architecture::X86, Architecture::X32] {
        assert_eq!(ask(&filter, &call(foreign, "mount", NOTHING)), KILL_THREAD, "{foreign:?}");
    }
}

/// Each comparison, at the borders of both halves of a 64-bit argument.
#[test]
fn comparisons_are_of_64_bits() {
    type Compare = fn(u64, u64) -> bool;
    let operators: [(&str, Compare); 6] = [
        ("SCMP_CMP_NE", |a, b| a != b),
        ("SCMP_CMP_LT", |a, b| a < b),
        ("SCMP_CMP_LE", |a, b| a <= b),
        ("SCMP_CMP_EQ", |a, b| a == b),
        ("SCMP_CMP_GE", |a, b| a >= b),
        ("SCMP_CMP_GT", |a, b| a > b),
    ];
    let values = [0, 1, 2, 0xFFFF_FFFF, 0x1_0000_0000, 0x1_0000_0001, 0x2_0000_0000, u64::MAX - 1, u64::MAX];
    for (operator, compare) in operators {
        for value in values {
            let condition = json!({"index": 1, "value": value, "op": operator});
            let second = json!({"index": 0, "value": 7, "op": "SCMP_CMP_EQ"});
            let filter = compiled(json!({
                "defaultAction": "SCMP_ACT_ALLOW",
                "syscalls": [{"names": ["write"], "action": "SCMP_ACT_ERRNO", "errnoRet": 9, "args": [condition, second]}],
            }));
            for argument in values {
                for first in [7, 8] {
                    let arguments = [first, argument, 0, 0, 0, 0];
                    let refused = compare(argument, value) && first == 7;
                    let answer = ask(&filter, &call(Architecture::X86_64, "write", arguments));
                    assert_eq!(answer, if refused { ERRNO | 9 } else { ALLOW }, "{argument:#x} {operator} {value:#x}");
                }
            }
        }
    }
}

#[test]
fn bits_are_compared_beneath_a_mask() {
    let masked =
        json!({"index": 0, "value": 0x8_7E02_0000_u64, "valueTwo": 0x8_0000_0000_u64, "op": "SCMP_CMP_MASKED_EQ"});
    let filter = compiled(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "syscalls": [{"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [masked]}],
    }));
    for (flags, answer) in [(0x8_0000_0011, ALLOW), (0x11, EPERM), (0x8_0002_0000, EPERM)] {
        let asked = call(Architecture::X86_64, "clone", [flags, 0, 0, 0, 0, 0]);
        assert_eq!(ask(&filter, &asked), answer, "{flags:#x}");
    }
}

/// Several conditions on one argument are one of them each, as runc has it: docker's rule for personality(2).
#[test]
fn several_values_of_one_argument() {
    let is = |value: u64| json!({"index": 0, "value": value, "op": "SCMP_CMP_EQ"});
    let filter = compiled(json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 38,
        "syscalls": [{"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [is(0), is(8)]}],
    }));
    for (value, answer) in [(0, ALLOW), (8, ALLOW), (1, NO_SUCH_CALL)] {
        assert_eq!(ask(&filter, &call(Architecture::X86_64, "personality", [value, 0, 0, 0, 0, 0])), answer, "{value}");
    }
}

#[test]
fn what_cannot_be_enforced_is_an_error() {
    let notify =
        json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_NOTIFY"}]});
    let beyond = json!({"index": 6, "value": 0, "op": "SCMP_CMP_EQ"});
    let argument = json!({"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mount"], "action": "SCMP_ACT_KILL", "args": [beyond]}]});
    for section in [notify, argument] {
        assert!(Filter::compile(&serde_json::from_value(section.clone()).unwrap()).is_err(), "{section}");
    }
}
