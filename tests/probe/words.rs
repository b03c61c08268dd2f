//! Verbs that say what a server should not say, on stderr and on stdout.

use std::env;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

/// Says a variable's value in every form that programs print, each on a line between `<` and `>`, then waits.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    Some(match verb {
        "utter" => utter(&env::var(rest[0]).unwrap_or_default()),
        "utter-and-wait" => utter(&env::var(rest[0]).unwrap_or_default()).and_then(|_| {
            super::say("\"ready\"");
            loop {
                thread::sleep(Duration::from_secs(3600));
            }
        }),
        // Lines, for those who read along.
        "chatter" => chatter(rest[0].parse().expect("a number"), rest[1].parse().expect("a number")),
        _ => return None,
    })
}

fn utter(value: &str) -> io::Result<String> {
    let mut stderr = io::stderr();
    for (name, form) in forms(value) {
        stderr.write_all(format!("{name} <{form}>\n").as_bytes())?;
    }
    // A byte at a time, each in a write of its own.
    stderr.write_all(b"pieces <")?;
    for byte in value.bytes() {
        stderr.write_all(&[byte])?;
    }
    stderr.write_all(b">\n")?;
    // The last word, without a newline.
    stderr.write_all(format!("last {value}").as_bytes())?;
    // The protocol passes untouched.
    Ok(super::quote(value))
}

/// Forms by their names.
fn forms(value: &str) -> Vec<(&'static str, String)> {
    let bytes = value.as_bytes();
    let hex = |upper: bool| -> String {
        bytes.iter().map(|byte| if upper { format!("{byte:02X}") } else { format!("{byte:02x}") }).collect()
    };
    let percent = |upper: bool| -> String {
        bytes
            .iter()
            .map(|byte| match byte {
                byte if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) => (*byte as char).to_string(),
                byte if upper => format!("%{byte:02X}"),
                byte => format!("%{byte:02x}"),
            })
            .collect()
    };
    let quoted = super::quote(value);
    vec![
        ("whole", value.to_owned()),
        ("twice", format!("{value}{value}")),
        ("json", quoted.trim_matches('"').to_owned()),
        ("base64", base64(bytes, STANDARD, true)),
        ("base64-url", base64(bytes, URL, false)),
        ("basic", base64(format!("user:{value}").as_bytes(), STANDARD, true)),
        ("basic-long", base64(format!("a-user:{value}:more").as_bytes(), STANDARD, true)),
        ("percent", percent(true)),
        ("percent-lower", percent(false)),
        ("plus", percent(true).replace("%20", "+")),
        ("hex", hex(false)),
        ("hex-upper", hex(true)),
    ]
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64(bytes: &[u8], digits: &[u8; 64], pad: bool) -> String {
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for at in 0..=group.len() {
            out.push(digits[(bits >> (18 - 6 * at)) as usize & 63] as char);
        }
        if pad {
            out.extend(std::iter::repeat_n('=', 3 - group.len()));
        }
    }
    out
}

/// So many lines on stderr, then so many more once stdin has one.
fn chatter(before: usize, after: usize) -> io::Result<String> {
    let mut stderr = io::stderr();
    for number in 0..before {
        stderr.write_all(format!("before {number}\n").as_bytes())?;
    }
    super::say("\"ready\"");
    io::stdin().read_line(&mut String::new())?;
    for number in 0..after {
        stderr.write_all(format!("after {number}\n").as_bytes())?;
    }
    Ok("\"said\"".into())
}
