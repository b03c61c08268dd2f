//! `linux.resources.devices` on cgroup v2, where a program in the kernel judges each use of a device: libcontainer loads such by a C library,
//! smcp by two calls of bpf(2).
//!
//! What a rule says is of each right by itself, and the last one that speaks of it counts. Behind those of `config.json` stand those that every
//! container has, as with runc: devices of any kind may be made, and those of `config-linux.md#default-devices` used.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use libcgroups::common::{CgroupSetup, get_cgroup_setup};
use serde_json::{Value, json};

use super::files::read_json;
use super::hook::state;
use super::{Error, rootless};
use crate::linux::cgroup::in_version_2;
use crate::linux::sys;

/// The hidden word by which smcp is started as a hook that bounds a container before its other hooks: `smcp oci-devices CONFIG`.
pub const VERB: &str = "oci-devices";

/// linux/bpf.h, `BPF_DEVCG_ACC_*`, by their letters in `config.json`.
const RIGHTS: [(char, i32); 3] = [('m', 1), ('r', 2), ('w', 4)];
const ALL_RIGHTS: i32 = 7;

/// linux/bpf.h, `BPF_DEVCG_DEV_*`.
const BLOCK: i32 = 1;
const CHARACTER: i32 = 2;

/// One that speaks of some devices; what is `None` is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    allow: bool,
    kind: i32,
    major: Option<i32>,
    minor: Option<i32>,
    rights: i32,
}

/// All of them, and what holds where none speaks.
#[derive(Debug, PartialEq, Eq)]
struct Rules {
    otherwise: bool,
    rules: Vec<Rule>,
}

/// Has a list of rules begin with that nothing is allowed, as runc has it. What is no list is left to who refuses it.
pub fn deny_first(config: &mut Value) {
    let resources = &mut config["linux"]["resources"];
    if !resources.is_null() && !resources.is_object() {
        return;
    }
    let rules = &mut resources["devices"];
    if !rules.is_null() && !rules.is_array() {
        return;
    }
    let mut all = vec![json!({"allow": false, "access": "rwm"})];
    all.extend(rules.as_array_mut().into_iter().flat_map(std::mem::take));
    *rules = Value::Array(all);
}

/// Whether it is for smcp to enforce them.
pub fn are_ours() -> bool {
    rootless::is_root_of_the_host() && matches!(get_cgroup_setup(), Ok(CgroupSetup::Unified))
}

/// Puts the hook before all others, where there are such as look at what may be used: some add to it.
/// Whether it did.
pub fn bound_before_hooks(config: &mut Value, file: &Path) -> bool {
    let kinds = ["prestart", "createRuntime"];
    let first = kinds.into_iter().find(|kind| config["hooks"][kind].as_array().is_some_and(|hooks| !hooks.is_empty()));
    let Some(hooks) = first.and_then(|kind| config["hooks"][kind].as_array_mut()) else { return false };
    hooks.insert(0, json!({"path": "/proc/self/exe", "args": ["smcp", VERB, file]}));
    true
}

/// Does what the hook is for. Its state comes on standard input.
///
/// # Errors
/// As where the rules are enforced at once, and where it was started by hand.
pub fn run(words: &[OsString]) -> Result<(), Error> {
    let by_hand = || Error::step("bounding a container", "not meant to be started by hand");
    let [file] = words else { return Err(by_hand()) };
    let state = state().map_err(Error::io("reading the state"))?;
    let pid = state["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).ok_or_else(by_hand)?;
    bound(&read_json(Path::new(file))?, pid)
}

/// Has the kernel judge by the rules of `config.json` what a container's processes do with devices; `pid` is its first.
///
/// # Errors
/// Where it has no cgroup of its own, a rule is none, or the kernel takes none.
pub fn bound(config: &Value, pid: i32) -> Result<(), Error> {
    let rules = Rules::read(&config["linux"]["resources"]["devices"])?;
    let enforced = || sys::bound_devices(&fs::File::open(own_cgroup(pid)?)?, &rules.program());
    enforced().map_err(Error::io("enforcing linux.resources.devices"))
}

/// The directory of a process's cgroup, which this process is not in.
fn own_cgroup(pid: i32) -> io::Result<PathBuf> {
    let of = |who: &str| -> io::Result<String> {
        let table = fs::read_to_string(format!("/proc/{who}/cgroup"))?;
        in_version_2(&table).map(str::to_owned).ok_or_else(|| io::Error::other("it has no cgroup of version 2"))
    };
    let path = of(&pid.to_string())?;
    match path == of("self")? {
        true => Err(io::Error::other("it has no cgroup of its own")),
        false => Ok(Path::new("/sys/fs/cgroup").join(path)),
    }
}

impl Rules {
    fn read(all: &Value) -> Result<Rules, Error> {
        let mut read = Rules { otherwise: true, rules: Vec::new() };
        for rule in all.as_array().into_iter().flatten() {
            let allow = rule["allow"] == true;
            let refused = |what: &str| Err(Error::step("reading linux.resources.devices", format!("{what} of {rule}")));
            let kind = match rule["type"].as_str() {
                // Of all devices and rights, whatever else it says.
                None | Some("a" | "") => {
                    read = Rules { otherwise: allow, rules: Vec::new() };
                    continue;
                }
                Some("b") => BLOCK,
                Some("c" | "u") => CHARACTER,
                Some(_) => return refused("no device is of the type"),
            };
            let mut rights = 0;
            for letter in rule["access"].as_str().unwrap_or("").chars() {
                match RIGHTS.iter().find(|(known, _)| *known == letter) {
                    Some((_, bit)) => rights |= bit,
                    None => return refused("there is no such access as that"),
                }
            }
            let (Ok(major), Ok(minor)) = (number(&rule["major"]), number(&rule["minor"])) else {
                return refused("no device has the number");
            };
            read.rules.push(Rule { allow, kind, major, minor, rights });
        }
        read.rules.extend(EVERYWHERE);
        Ok(read)
    }

    /// In the kernel's instructions, for a `struct bpf_cgroup_dev_ctx`; it returns 1 where the use is allowed.
    fn program(&self) -> Vec<u64> {
        // Registers: the kernel takes the result from the first, and hands its context in the second.
        const RESULT: u8 = 0;
        const CONTEXT: u8 = 1;
        const KIND: u8 = 2;
        const WANTED: u8 = 3;
        const MAJOR: u8 = 4;
        const MINOR: u8 = 5;
        const SCRATCH: u8 = 6;
        // Access in the upper half and kind in the lower, then the numbers.
        let mut program = vec![
            op(LOAD_32, KIND, CONTEXT, 0, 0),
            op(LOAD_32, MAJOR, CONTEXT, 4, 0),
            op(LOAD_32, MINOR, CONTEXT, 8, 0),
            op(COPY, WANTED, KIND, 0, 0),
            op(SHIFT_RIGHT_32, WANTED, 0, 0, 16),
            op(AND_32, KIND, 0, 0, 0xffff),
        ];
        let end = |result: bool| [op(SET, RESULT, 0, 0, result.into()), op(EXIT, 0, 0, 0, 0)];
        // The last one that speaks of a right counts: what it allows is no longer wanted of the ones before.
        for rule in self.rules.iter().rev() {
            let verdict = match rule.allow {
                true => {
                    [op(AND_32, WANTED, 0, 0, ALL_RIGHTS & !rule.rights), op(IF_NOT_EQUAL, WANTED, 0, 2, 0)].to_vec()
                }
                false => {
                    let wanted = [op(COPY, SCRATCH, WANTED, 0, 0), op(AND_32, SCRATCH, 0, 0, rule.rights)];
                    [&wanted[..], &[op(IF_EQUAL, SCRATCH, 0, 2, 0)]].concat()
                }
            };
            let told = [&verdict[..], &end(rule.allow)].concat();
            let is = [(KIND, Some(rule.kind)), (MAJOR, rule.major), (MINOR, rule.minor)];
            let is: Vec<(u8, i32)> =
                is.into_iter().filter_map(|(register, number)| Some((register, number?))).collect();
            for (place, (register, number)) in is.iter().enumerate() {
                let over = i16::try_from(is.len() - 1 - place + told.len()).unwrap_or_default();
                program.push(op(IF_NOT_EQUAL, *register, 0, over, *number));
            }
            program.extend(told);
        }
        program.extend(end(self.otherwise));
        program
    }
}

/// A number of a device: none and -1 are any.
fn number(value: &Value) -> Result<Option<i32>, ()> {
    match (value, value.as_i64()) {
        (Value::Null, _) | (_, Some(-1)) => Ok(None),
        (_, Some(number)) => {
            u32::try_from(number).ok().and_then(|number| i32::try_from(number).ok()).map(Some).ok_or(())
        }
        (_, None) => Err(()),
    }
}

/// What every container may: make devices, and use those that it has by default: null, zero, full, tty, random, urandom, and terminals.
const EVERYWHERE: [Rule; 10] = [
    Rule { allow: true, kind: CHARACTER, major: None, minor: None, rights: 1 },
    Rule { allow: true, kind: BLOCK, major: None, minor: None, rights: 1 },
    one(1, Some(3)),
    one(1, Some(5)),
    one(1, Some(7)),
    one(1, Some(8)),
    one(1, Some(9)),
    one(5, Some(0)),
    one(5, Some(2)),
    one(136, None),
];

const fn one(major: i32, minor: Option<i32>) -> Rule {
    Rule { allow: true, kind: CHARACTER, major: Some(major), minor, rights: ALL_RIGHTS }
}

// Documentation/bpf/standardization/instruction-set.rst: class, source and operation.
const LOAD_32: u8 = 0x61;
const COPY: u8 = 0xbf;
const SET: u8 = 0xb7;
const AND_32: u8 = 0x54;
const SHIFT_RIGHT_32: u8 = 0x74;
const IF_EQUAL: u8 = 0x15;
const IF_NOT_EQUAL: u8 = 0x55;
const EXIT: u8 = 0x95;

/// A `struct bpf_insn`. smcp is for processors whose bytes and bits begin with the least.
const fn op(code: u8, to: u8, from: u8, over: i16, number: i32) -> u64 {
    let ([a, b], [c, d, e, f]) = (over.to_le_bytes(), number.to_le_bytes());
    u64::from_le_bytes([code, from << 4 | to, a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with the instructions that are used here.
    fn judged(program: &[u64], kind: i32, rights: i32, major: i32, minor: i32) -> bool {
        let context = [rights << 16 | kind, major, minor];
        let (mut registers, mut at) = ([0_i64; 11], 0);
        loop {
            let [code, names, a, b, c, d, e, f] = program[at].to_le_bytes();
            let (to, from) = (usize::from(names & 15), usize::from(names >> 4));
            let over = usize::try_from(i16::from_le_bytes([a, b])).unwrap();
            let number = i32::from_le_bytes([c, d, e, f]);
            at += 1;
            match code {
                LOAD_32 => registers[to] = context[over / 4].into(),
                COPY => registers[to] = registers[from],
                SET => registers[to] = number.into(),
                AND_32 => registers[to] &= i64::from(number),
                SHIFT_RIGHT_32 => registers[to] >>= number,
                IF_EQUAL if registers[to] == i64::from(number) => at += over,
                IF_NOT_EQUAL if registers[to] != i64::from(number) => at += over,
                IF_EQUAL | IF_NOT_EQUAL => {}
                EXIT => return registers[0] == 1,
                other => panic!("no instruction of ours: {other:#x}"),
            }
        }
    }

    fn rules(all: &Value) -> Vec<u64> {
        Rules::read(all).unwrap().program()
    }

    #[test]
    fn the_last_rule_that_speaks_of_a_right_counts() {
        let (m, r, w) = (1, 2, 4);
        let program = rules(&json!([
            {"allow": false, "access": "rwm"},
            {"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw"},
            {"allow": true, "type": "b", "major": 8, "access": "rwm"},
            {"allow": false, "type": "b", "major": 8, "minor": 1, "access": "w"},
            {"allow": true, "type": "c", "major": 11, "minor": -1, "access": "r"},
            {"allow": true, "type": "c", "major": 11, "access": "w"},
        ]));
        for (kind, rights, major, minor, want) in [
            (CHARACTER, r | w, 10, 229, true),
            (CHARACTER, r, 10, 229, true),
            (CHARACTER, r, 10, 228, false),
            (BLOCK, r, 10, 229, false),
            // Anybody may make a device, and what is made is judged when it is opened.
            (CHARACTER, m, 10, 228, true),
            (CHARACTER, m | r, 10, 228, false),
            (BLOCK, r | w | m, 8, 0, true),
            (BLOCK, r, 8, 1, true),
            (BLOCK, w, 8, 1, false),
            (BLOCK, r | w, 8, 1, false),
            // Two rules that have a right each.
            (CHARACTER, r | w, 11, 5, true),
            (CHARACTER, r | w, 1, 3, true),
            (CHARACTER, r | w, 136, 7, true),
            (CHARACTER, r, 1, 11, false),
            (BLOCK, r, 254, 0, false),
        ] {
            assert_eq!(judged(&program, kind, rights, major, minor), want, "{kind} {rights} {major}:{minor}");
        }
    }

    #[test]
    fn a_rule_for_all_devices_forgets_those_before() {
        let deny = json!({"allow": false, "access": "rwm"});
        let some = json!({"allow": true, "type": "c", "major": 10, "minor": 229, "access": "rw"});
        let privileged = rules(&json!([deny, some, {"allow": true, "access": "rwm"}]));
        assert!(judged(&privileged, BLOCK, 7, 8, 0));
        let none = rules(&json!([some, {"allow": false, "type": "a", "access": "rwm"}]));
        assert!(!judged(&none, CHARACTER, 2, 10, 229));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (rule, why) in [
            (json!({"allow": true, "type": "p", "access": "r"}), "type"),
            (json!({"allow": true, "type": "c", "access": "rx"}), "access"),
            (json!({"allow": true, "type": "c", "major": -2, "access": "r"}), "number"),
            (json!({"allow": true, "type": "c", "minor": 4294967296_u64, "access": "r"}), "number"),
        ] {
            let said = Rules::read(&json!([rule])).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn nothing_is_allowed_at_first() {
        let mut config = json!({"linux": {}});
        deny_first(&mut config);
        assert_eq!(config["linux"]["resources"]["devices"], json!([{"allow": false, "access": "rwm"}]));
        config["linux"]["resources"]["devices"] = json!([{"allow": true, "access": "rwm"}]);
        deny_first(&mut config);
        for wrong in [json!("none"), json!({"devices": "none"})] {
            let mut config = json!({"linux": {"resources": wrong}});
            deny_first(&mut config);
            assert_eq!(config["linux"]["resources"], wrong);
        }
        let both = json!([{"allow": false, "access": "rwm"}, {"allow": true, "access": "rwm"}]);
        assert_eq!(config["linux"]["resources"]["devices"], both);
    }

    #[test]
    fn hooks_find_a_container_bounded() {
        let mut config = json!({"hooks": {"createContainer": [{"path": "/a"}]}});
        assert!(!bound_before_hooks(&mut config, Path::new("/c")));
        config["hooks"]["createRuntime"] = json!([{"path": "/b"}]);
        assert!(bound_before_hooks(&mut config, Path::new("/c")));
        let hooks = &config["hooks"]["createRuntime"];
        assert_eq!((&hooks[0]["args"], &hooks[1]["path"]), (&json!(["smcp", VERB, "/c"]), &json!("/b")));
    }
}
