//! Names and numbers of signals, as runc's command line takes them.

/// The number of `9`, `KILL` or `SIGKILL`, in any case.
pub fn parse(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    if let Some((base, rest)) = name.split_once(['+', '-']) {
        let distance: i32 = rest.parse().ok()?;
        let number = match base {
            "RTMIN" => 34 + distance,
            "RTMAX" => 64 - distance,
            _ => return None,
        };
        return (34..=64).contains(&number).then_some(number);
    }
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// asm-generic/signal.h, which x86-64 and aarch64 have.
const NAMES: [(&str, i32); 36] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("POLL", 29),
    ("PWR", 30),
    ("SYS", 31),
    ("RTMIN", 34),
    ("RTMAX", 64),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_by_name_and_number() {
        for (text, number) in
            [("9", 9), ("KILL", 9), ("SIGKILL", 9), ("sigterm", 15), ("RTMIN+3", 37), ("SIGRTMAX-1", 63)]
        {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in ["0", "65", "NONE", "", "-9", "RTMIN+31", "KILL+1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
