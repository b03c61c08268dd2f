//! The grammar of units, the same in manifests, flags and configuration.
//!
//! | what | grammar | examples |
//! |---|---|---|
//! | memory | digits, then `K`, `M`, `G`, `Ki`, `Mi` or `Gi`, all powers of 1024 | `512M`, `2Gi` |
//! | CPU, counts | digits | `1000` |
//! | times | digits and unit, falling from `d` over `h` and `m` to `s`, each at most once | `5m`, `1h30m` |
//!
//! Zero, signs, fractions, exponents, blanks, lower-case sizes and `unlimited`
//! are errors: a limit that was misread is no limit.

use std::time::Duration;

/// Bytes in `1K`.
pub const KIB: u64 = 1024;
/// Bytes in `1M`.
pub const MIB: u64 = 1024 * KIB;
/// Bytes in `1G`.
pub const GIB: u64 = 1024 * MIB;

const SIZES: [(&str, u64); 6] = [("Gi", GIB), ("Mi", MIB), ("Ki", KIB), ("G", GIB), ("M", MIB), ("K", KIB)];
const TIMES: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A text that is no value of its grammar. It does not know its key; whoever
/// asked adds that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: {why}")]
pub struct UnitError {
    /// What was given.
    pub text: String,
    /// What was expected: `size`, `time`, `count` or `number of millicores`.
    pub what: &'static str,
    /// Why it is none.
    pub why: &'static str,
}

impl UnitError {
    /// What would be right.
    pub fn hint(&self) -> Option<String> {
        Some(match self.what {
            "size" => "a whole number and K, M, G, Ki, Mi or Gi, such as 512M".into(),
            "time" => "whole numbers and d, h, m or s, such as 5m or 1h30m".into(),
            what => format!("a {what} is a whole number above zero, such as 256"),
        })
    }
}

/// Bytes of a size such as `512M`.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let fail = |why| error(text, "size", why);
    let (digits, unit) = SIZES
        .iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)))
        .ok_or_else(|| fail("it must end in K, M, G, Ki, Mi or Gi"))?;
    positive(digits).map_err(fail)?.checked_mul(unit).ok_or_else(|| fail("it is too large"))
}

/// Thousandths of a CPU, such as `1000` for one.
pub fn parse_millicores(text: &str) -> Result<u32, UnitError> {
    whole(text, "number of millicores")
}

/// A count such as `256`, of processes or descriptors.
pub fn parse_count(text: &str) -> Result<u32, UnitError> {
    whole(text, "count")
}

/// A time such as `5m` or `1h30m`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let fail = |why| error(text, "time", why);
    let mut rest = text;
    let mut units = TIMES.iter();
    let mut seconds = 0u64;
    while !rest.is_empty() {
        let end =
            rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(|| fail("a number needs its unit d, h, m or s"))?;
        let unit = rest[end..].chars().next().unwrap_or_default();
        let (_, factor) =
            units.find(|(name, _)| *name == unit).ok_or_else(|| fail("the units are d, h, m and s, in this order"))?;
        let part =
            positive(&rest[..end]).map_err(fail)?.checked_mul(*factor).and_then(|part| seconds.checked_add(part));
        seconds = part.ok_or_else(|| fail("it is too large"))?;
        rest = &rest[end + unit.len_utf8()..];
    }
    if seconds == 0 {
        return Err(fail("it is empty"));
    }
    Ok(Duration::from_secs(seconds))
}

/// Writes bytes in this grammar; rounded up to whole KiB.
pub fn format_size(bytes: u64) -> String {
    let kib = bytes.div_ceil(KIB).max(1);
    match kib {
        k if k % (GIB / KIB) == 0 => format!("{}G", k / (GIB / KIB)),
        k if k % (MIB / KIB) == 0 => format!("{}M", k / (MIB / KIB)),
        k => format!("{k}K"),
    }
}

/// Writes a time in this grammar; rounded up to whole seconds.
pub fn format_duration(time: Duration) -> String {
    let mut seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let mut text = String::new();
    for (name, factor) in TIMES {
        if seconds >= factor {
            text.push_str(&format!("{}{name}", seconds / factor));
            seconds %= factor;
        }
    }
    text
}

fn whole(text: &str, what: &'static str) -> Result<u32, UnitError> {
    let number = positive(text).map_err(|why| error(text, what, why))?;
    u32::try_from(number).map_err(|_| error(text, what, "it is too large"))
}

fn positive(digits: &str) -> Result<u64, &'static str> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("it must be a whole number without sign, fraction or exponent");
    }
    match digits.parse() {
        Ok(0) => Err("it must be above zero"),
        Ok(number) => Ok(number),
        Err(_) => Err("it is too large"),
    }
}

fn error(text: &str, what: &'static str, why: &'static str) -> UnitError {
    UnitError { text: text.into(), what, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        let right = [
            ("1K", 1024),
            ("1Ki", 1024),
            ("512M", 512 * MIB),
            ("512Mi", 512 * MIB),
            ("2G", 2 * GIB),
            ("007M", 7 * MIB),
        ];
        for (text, want) in right {
            assert_eq!(parse_size(text), Ok(want), "{text}");
        }
        let wrong = [
            "512MB",
            "0.5g",
            "-1",
            "1e9",
            "unlimited",
            "",
            "M",
            "512",
            "512m",
            "512 M",
            " 512M",
            "+1M",
            "0M",
            "1T",
            "1KiB",
            "99999999999999999999G",
            "17179869184G",
            "٣M",
        ];
        for text in wrong {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times() {
        let right = [("5m", 300), ("1h30m", 5400), ("24h", 86_400), ("7d", 604_800), ("1d2h3m4s", 93_784)];
        for (text, seconds) in right {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        let wrong = [
            "",
            "5",
            "m",
            "30m1h",
            "1h1h",
            "1.5h",
            "-5m",
            "5 m",
            "5M",
            "0s",
            "1h0m",
            "1w",
            "5ms",
            "5mé",
            "999999999999999999d",
            "unlimited",
        ];
        for text in wrong {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_and_millicores() {
        assert_eq!(parse_count("256"), Ok(256));
        assert_eq!(parse_millicores("1500"), Ok(1500));
        for text in ["", "0", "-1", "1e9", "0.5", "1000m", "unlimited", "4294967296", "0x10"] {
            assert!(parse_count(text).is_err(), "{text}");
            assert!(parse_millicores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn e17_an_error_says_what_was_wrong_and_what_would_be_right() {
        let error = parse_size("512MB").unwrap_err();
        assert_eq!(error.to_string(), "`512MB` is no size: it must end in K, M, G, Ki, Mi or Gi");
        assert!(error.hint().unwrap().contains("512M"));
    }

    proptest! {
        #[test]
        fn sizes_round_trip(kib in 1u64..=(u64::MAX / KIB)) {
            prop_assert_eq!(parse_size(&format_size(kib * KIB)), Ok(kib * KIB));
        }

        #[test]
        fn times_round_trip(seconds in 1u64..) {
            let time = Duration::from_secs(seconds);
            prop_assert_eq!(parse_duration(&format_duration(time)), Ok(time));
        }

        #[test]
        fn no_text_panics_and_what_is_read_is_written_the_same(text in "\\PC{0,12}") {
            if let Ok(size) = parse_size(&text) {
                prop_assert_eq!(parse_size(&format_size(size)), Ok(size));
            }
            if let Ok(time) = parse_duration(&text) {
                prop_assert_eq!(parse_duration(&format_duration(time)), Ok(time));
            }
        }
    }
}
