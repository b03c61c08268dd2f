use super::*;
use std::collections::{BTreeMap, BTreeSet};

const BOTH: [Architecture; 2] = [Architecture::X86_64, Architecture::Aarch64];

/// What the kernel computes from a filter and a call, in the same words: the instructions that the assembler uses.
fn run(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let load = |offset: u32| match offset {
        NUMBER => number,
        ARCHITECTURE => architecture,
        _ => {
            assert_eq!(offset % 8, 0, "the lower half of an argument");
            arguments[((offset - ARGUMENTS) / 8) as usize] as u32
        }
    };
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let i = program[at];
        let jump = |holds: bool| usize::from(if holds { i.jump_true } else { i.jump_false });
        at += 1;
        match i.code {
            BPF_LD_W_ABS => accumulator = load(i.k),
            BPF_ALU_AND_K => accumulator &= i.k,
            BPF_JMP_JA => at += i.k as usize,
            BPF_JMP_JEQ_K => at += jump(accumulator == i.k),
            BPF_JMP_JGE_K => at += jump(accumulator >= i.k),
            BPF_RET_K => return i.k,
            code => panic!("the kernel is never given {code:#x}"),
        }
    }
}

fn calls(groups: &'static [Group]) -> impl Iterator<Item = &'static Call> {
    groups.iter().flat_map(|group| group.calls)
}

/// Every number, and those around it, gets the answer of its row.
#[test]
fn the_program_says_what_the_table_says() {
    for architecture in BOTH {
        for programs in [Programs::Runtime, Programs::Any] {
            let program = program(architecture, &programs, Around::Namespaces);
            assert!(program.len() < 1000, "{} instructions", program.len());
            let numbers = |groups| calls(groups).filter_map(|call| architecture.number(call)).collect::<BTreeSet<_>>();
            let (allowed, refused) = (numbers(ALLOWED), numbers(REFUSED));
            let of_x32 = 0x4000_0000;
            for number in (0..1000).chain([of_x32, of_x32 + 1, of_x32 + 59, u32::MAX]) {
                // Arguments that no condition refuses: a domain of AF_UNIX, a memfd that cannot be executed.
                let harmless = if allowed.contains(&number) { harmless(architecture, number) } else { [0; 6] };
                let want = match number {
                    n if allowed.contains(&n) => Answer::Allow,
                    n if refused.contains(&n) => Answer::Refuse,
                    _ => Answer::Unknown,
                };
                assert_eq!(
                    run(&program, architecture.audit(), number, harmless),
                    want.code(),
                    "{architecture:?} {number}"
                );
            }
            for other in [0x4000_0003, 0x4000_0028, BOTH[usize::from(architecture == BOTH[0])].audit()] {
                assert_eq!(run(&program, other, 0, [0; 6]), Answer::Kill.code());
            }
        }
    }
}

fn harmless(architecture: Architecture, number: u32) -> [u64; 6] {
    let name = calls(ALLOWED).find(|call| architecture.number(call) == Some(number)).unwrap().0;
    match name {
        "socket" | "socketpair" => [1, 0, 0, 0, 0, 0],
        "memfd_create" => [0, 8, 0, 0, 0, 0],
        _ => [0; 6],
    }
}

#[test]
fn arguments() {
    const ABOVE: u64 = 1 << 32;
    // call, arguments, whether it is allowed
    let table: &[(&str, [u64; 3], bool)] = &[
        ("clone", [0x003d_0f00, 0, 0], true),
        ("clone", [17, 0, 0], true),
        ("clone", [0x1000_0011, 0, 0], false),
        ("clone", [0x4000_0000, 0, 0], false),
        ("clone", [0x0002_0000 | ABOVE, 0, 0], false),
        ("ioctl", [0, 0x5401, 0], true),
        ("ioctl", [0, 0x5412, 0], false),
        ("ioctl", [0, 0x5412 | ABOVE, 0], false),
        ("ioctl", [0, 0x541C, 0], false),
        ("ioctl", [0, 0x5423 | 0xFFFF_FFFF_0000_0000, 0], false),
        ("personality", [0xFFFF_FFFF, 0, 0], true),
        ("personality", [0xFFFF_FFFF_FFFF_FFFF, 0, 0], true),
        ("personality", [0, 0, 0], true),
        ("personality", [0x0004_0000, 0, 0], false),
        ("socket", [1, 1, 0], true),
        ("socket", [2, 1, 6], true),
        ("socket", [10, 2, 17], true),
        ("socket", [2, 1, 132], false),
        ("socket", [10, 1, 262], false),
        ("socket", [16, 3, 0], true),
        ("socket", [16, 3, 12], false),
        ("socket", [17, 3, 0], false),
        ("socket", [40, 1, 0], false),
        ("socket", [38 | ABOVE, 5, 0], false),
        ("socketpair", [1, 1, 0], true),
        ("socketpair", [30, 1, 0], false),
        ("memfd_create", [0, 9, 0], true),
        ("memfd_create", [0, 1, 0], false),
        ("memfd_create", [0, 0x10, 0], false),
        ("fchmod", [3, 0o755, 0], true),
        ("fchmod", [3, 0o1777, 0], true),
        ("fchmod", [3, 0o4755, 0], false),
        ("fchmodat", [0, 0, 0o2755], false),
        ("fchmodat2", [0, 0, 0o6755], false),
        ("fchmodat2", [0, 0, 0o755], true),
        ("mkdirat", [0, 0, 0o2755], false),
        ("mknodat", [0, 0, 0o010_644], true),
        ("mknodat", [0, 0, 0o140_755], true),
        ("mknodat", [0, 0, 0o020_666], false),
        ("mknodat", [0, 0, 0o060_666], false),
        ("mknodat", [0, 0, 0o104_755], false),
        ("unshare", [0, 0, 0], false),
    ];
    for architecture in BOTH {
        let program = program(architecture, &Programs::Runtime, Around::Namespaces);
        for (name, [a, b, c], allowed) in table {
            let call = calls(ALLOWED).chain(calls(REFUSED)).find(|call| call.0 == *name).unwrap();
            let number = architecture.number(call).unwrap();
            let want = if *allowed { Answer::Allow } else { Answer::Refuse };
            let got = run(&program, architecture.audit(), number, [*a, *b, *c, 0, 0, 0]);
            assert_eq!(got, want.code(), "{architecture:?} {name} {a:#x} {b:#x} {c:#o}");
        }
        // The mode counts where a file is made, and is left over from before where not.
        let openat = architecture.number(calls(ALLOWED).find(|call| call.0 == "openat").unwrap()).unwrap();
        for (flags, mode, want) in [
            (0o101, 0o4755, Answer::Refuse),
            (0o101, 0o755, Answer::Allow),
            (0o20_200_002, 0o2600, Answer::Refuse),
            (0o200_000, 0o4755, Answer::Allow),
        ] {
            let got = run(&program, architecture.audit(), openat, [0, 0, flags, mode, 0, 0]);
            assert_eq!(got, want.code(), "{flags:#o} {mode:#o}");
        }
        // With any program granted, a file in memory may be one.
        let memfd = architecture.number(calls(ALLOWED).find(|call| call.0 == "memfd_create").unwrap()).unwrap();
        let granted = super::program(architecture, &Programs::Any, Around::Namespaces);
        assert_eq!(run(&granted, architecture.audit(), memfd, [0; 6]), Answer::Allow.code());
        let named = super::program(architecture, &Programs::Named(vec!["/usr/bin/git".into()]), Around::Namespaces);
        assert_eq!(run(&named, architecture.audit(), memfd, [0; 6]), Answer::Refuse.code());
    }
}

/// What no namespace bounds is refused where there is none.
#[test]
fn arguments_without_namespaces() {
    const ALL: Around = Around::Landlock { tcp: true, signals: true };
    const NO_TCP: Around = Around::Landlock { tcp: false, signals: true };
    const NO_SCOPE: Around = Around::Landlock { tcp: true, signals: false };
    // call, arguments, whether it is allowed with all of Landlock, without its rules on TCP, without its scope
    let table: &[(&str, [u64; 4], [bool; 3])] = &[
        ("socket", [2, 1, 6, 0], [true, false, true]),
        ("socket", [10, 1 | 0o2_000_000, 0, 0], [true, false, true]),
        ("socket", [2, 1, 262, 0], [false; 3]),
        ("socket", [2, 2, 0, 0], [false; 3]),
        ("socket", [1, 1, 0, 0], [false; 3]),
        ("socket", [16, 3, 0, 0], [false; 3]),
        ("socketpair", [1, 1, 0, 0], [true; 3]),
        ("socketpair", [1, 5, 0, 0], [true; 3]),
        ("socketpair", [1, 2 | 0o2_000_000, 0, 0], [false; 3]),
        ("listen", [3, 1, 0, 0], [false; 3]),
        ("bind", [3, 0, 0, 0], [false; 3]),
        ("fcntl", [3, 2, 1, 0], [true; 3]),
        ("fcntl", [3, 8, 77, 0], [true, true, false]),
        ("fcntl", [3, 15, 0, 0], [true, true, false]),
        ("ioctl", [0, 0x5401, 0, 0], [true; 3]),
        ("ioctl", [0, 0x8004_5430, 0, 0], [true; 3]),
        ("ioctl", [0, 0x5412, 0, 0], [false; 3]),
        ("ioctl", [3, 0x4008_6602, 0, 0], [false; 3]),
        ("ioctl", [3, 0x8912, 0, 0], [false; 3]),
        ("sendto", [3, 0, 0, 0x4000], [true; 3]),
        ("sendto", [3, 0, 0, 0x2000_4000], [false; 3]),
        ("sendmsg", [3, 0, 0x2000_0000, 0], [false; 3]),
        ("fchmod", [3, 0o644, 0, 0], [false; 3]),
        ("utimensat", [3, 0, 0, 0], [false; 3]),
        ("inotify_add_watch", [3, 0, 0, 0], [false; 3]),
        ("sched_setaffinity", [0, 0, 0, 0], [true; 3]),
        ("sched_setaffinity", [77, 0, 0, 0], [false; 3]),
        ("setpriority", [0, 0, 5, 0], [true; 3]),
        ("setpriority", [2, 0, 5, 0], [false; 3]),
        ("setpriority", [0, 77, 5, 0], [false; 3]),
        ("kill", [77, 9, 0, 0], [true, true, false]),
        ("kill", [0, 9, 0, 0], [true; 3]),
        ("tgkill", [77, 77, 9, 0], [true, true, false]),
    ];
    for architecture in BOTH {
        for (name, [a, b, c, d], allowed) in table {
            let number = architecture.number(calls(ALLOWED).find(|call| call.0 == *name).unwrap()).unwrap();
            let answer = |around| {
                let program = program(architecture, &Programs::Runtime, around);
                run(&program, architecture.audit(), number, [*a, *b, *c, *d, 0, 0])
            };
            for (around, allowed) in [ALL, NO_TCP, NO_SCOPE].into_iter().zip(allowed) {
                let want = if *allowed { Answer::Allow } else { Answer::Refuse };
                assert_eq!(answer(around), want.code(), "{architecture:?} {around:?} {name} {a:#x} {b:#x}");
            }
        }
    }
}

#[test]
fn rows_are_sorted_and_unique_and_have_reasons() {
    let mut numbers = [BTreeMap::new(), BTreeMap::new()];
    let mut names = BTreeSet::new();
    for group in ALLOWED.iter().chain(REFUSED) {
        assert!(group.why.len() > 10, "{:?} needs a reason", group.calls[0].0);
        assert!(group.calls.is_sorted_by_key(|call| call.0), "{}", group.why);
        for call in group.calls {
            assert!(names.insert(call.0), "{} stands twice", call.0);
            for (architecture, numbers) in BOTH.iter().zip(&mut numbers) {
                if let Some(number) = architecture.number(call) {
                    assert_eq!(numbers.insert(number, call.0), None, "{architecture:?} {number}: {}", call.0);
                }
            }
            assert!(call.1 != NONE || call.2 != NONE, "{} is nowhere", call.0);
        }
    }
    let allowed: BTreeSet<_> = calls(ALLOWED).map(|call| call.0).collect();
    for condition in CONDITIONS {
        assert!(condition.why.len() > 10);
        for name in condition.calls {
            assert!(allowed.contains(name), "a condition on {name}, which is not allowed anyhow");
        }
        for test in condition.all {
            assert!(test.argument < 6 && !test.values.is_empty());
            assert!(test.values.iter().all(|value| value & test.mask == *value));
        }
    }
    for (absent, why) in [("clone3", "K6"), ("io_uring_setup", "K6"), ("openat2", "its mode is in memory")] {
        assert!(!names.contains(absent), "{absent}: {why}");
    }
}

/// The numbers are those of the kernel's own headers, where this machine has them (Debian's linux-libc-dev).
#[test]
fn numbers_are_the_kernels() {
    let headers = [
        (Architecture::X86_64, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        (Architecture::Aarch64, "/usr/include/asm-generic/unistd.h"),
    ];
    for (architecture, path) in headers {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let mut kernel: BTreeMap<&str, u32> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            if let (Some("#define"), Some(name), Some(number)) = (words.next(), words.next(), words.next())
                && let Some(name) = name.strip_prefix("__NR_").or_else(|| name.strip_prefix("__NR3264_"))
                && let Ok(number) = number.parse()
            {
                kernel.entry(name).or_insert(number);
            }
        }
        // The generic header names it by its 32-bit form.
        if let Some(number) = kernel.get("fstatat").copied() {
            kernel.entry("newfstatat").or_insert(number);
        }
        let newest = kernel.values().max().copied();
        for call in calls(ALLOWED).chain(calls(REFUSED)) {
            match (kernel.get(call.0), architecture.number(call)) {
                (Some(theirs), ours) => assert_eq!(ours, Some(*theirs), "{architecture:?} {}", call.0),
                // Headers of an older kernel lack what came later.
                (None, Some(ours)) => assert!(Some(ours) > newest, "{architecture:?} has no {}", call.0),
                (None, None) => {}
            }
        }
    }
}

/// Where calls are told, each gets the answer that it gets else, but for the told ones that are allowed.
#[test]
fn a_filter_that_tells_refuses_what_the_other_refuses() {
    let told = TOLD.each_ref().map(|row| row.call);
    for architecture in BOTH {
        let silent = program(architecture, &Programs::Runtime, Around::Namespaces);
        let telling = assembled(architecture, &Programs::Runtime, Around::Namespaces, &told);
        let row = |number| calls(ALLOWED).find(|call| architecture.number(call) == Some(number));
        let mut refused = 0;
        for number in (0..1000).chain([0x4000_0000, u32::MAX]) {
            // With all bits of an argument, modes are such that conditions refuse.
            for arguments in [[0; 6], [u64::MAX; 6]] {
                let answer = |program: &[Instruction]| run(program, architecture.audit(), number, arguments);
                let before = answer(&silent);
                let is_told = row(number).is_some_and(|call| told.contains(&call.0));
                refused += u32::from(is_told && before == Answer::Refuse.code());
                let tells = is_told && before == Answer::Allow.code();
                let want = if tells { Answer::Tell.code() } else { before };
                assert_eq!(answer(&telling), want, "{architecture:?} {number}");
                assert_eq!(answer(&untold(&telling)), before, "{architecture:?} {number}");
            }
        }
        assert!(refused > 0, "a told call has a condition");
        assert_eq!(run(&telling, 0x4000_0003, 5, [0; 6]), Answer::Kill.code());
    }
}
