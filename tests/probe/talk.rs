//! A server whose every word is a test's: `probe talk STEP…`.
//!
//! `?TEXT` reads lines until one holds the text, `!TEXT` writes a line, `=TEXT` writes it without its end (`\n`, `\r`, `\0` and `\xNN` mean
//! bytes in both), `err:TEXT` writes a line to stderr, `errs:N` N bytes there, `line:N` a message of N bytes, `lines:N` N messages of 1 kB,
//! `endless:N` N bytes of a line without an end, `wait:MS`, `eof` reads to the end, `exit:N` ends.
//!
//! `probe serve [METHOD TEXT]…` answers each request of that method by the text, in which `\i` is the request's id, `\m` a megabyte of words, and bytes
//! are written as above; any other request by the error that it is not known. `stream BYTES SEED` writes messages of random sizes while it reads, and
//! says on stderr what it read.

use std::io::{self, BufRead, Read, Write};
use std::thread;
use std::time::Duration;

/// The answer to a verb, where it is one of these.
pub fn attempt(verb: &str, rest: &[&str]) -> Option<io::Result<String>> {
    match verb {
        "talk" => Some(talk(rest)),
        "serve" => Some(serve(rest)),
        "stream" => Some(stream(rest)),
        _ => None,
    }
}

fn serve(rules: &[&str]) -> io::Result<String> {
    let mut output = super::raw_stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (Some(method), Some(id)) = (member(&line, "method"), member(&line, "id")) else { continue };
        let rule = rules.chunks_exact(2).find(|rule| method == format!("\"{}\"", rule[0]));
        let unknown = r#"{"jsonrpc":"2.0","id":\i,"error":{"code":-32601,"message":"Method not found"}}\n"#;
        let text = rule.map_or(unknown, |rule| rule[1]);
        output.write_all(&bytes(&text.replace("\\i", id).replace("\\m", &"ignore it ".repeat(100_000))))?;
    }
    std::process::exit(0)
}

/// What stands after the first key of this name, up to what may end a string or a number that holds none of it.
fn member<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, after) = line.split_once(&format!("\"{name}\":"))?;
    after.trim_start().split([',', '}']).next().map(str::trim_end)
}

/// The lines of the client's handshake are not counted, nor is their answer.
fn stream(words: &[&str]) -> io::Result<String> {
    let [amount, seed] = words else { panic!("stream BYTES SEED") };
    let (amount, seed) = (amount.parse::<u64>().expect("bytes"), seed.parse::<u64>().expect("a seed"));
    let mut input = io::stdin().lock();
    let mut output = super::raw_stdout();
    await_line(&mut input, b"\"initialize\"")?;
    output.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"capabilities\":{}}}\n")?;
    await_line(&mut input, b"notifications/initialized")?;
    let writer = thread::spawn(move || {
        let mut stream = Stream::new(seed, amount);
        while let Some(chunk) = stream.chunk() {
            output.write_all(chunk)?;
        }
        io::Result::Ok(())
    });
    let (mut sum, mut count, mut buffer) = (Sum::new(), 0, vec![0; 256 << 10]);
    loop {
        match input.read(&mut buffer)? {
            0 => break,
            n => {
                sum.add(&buffer[..n]);
                count += n as u64;
            }
        }
    }
    writer.join().expect("the writer does not panic")?;
    eprintln!("{{\"bytes\": {count}, \"sum\": \"{:016x}\"}}", sum.of_all());
    std::process::exit(0)
}

include!("stream.rs");

fn talk(steps: &[&str]) -> io::Result<String> {
    let mut input = io::stdin().lock();
    let mut output = super::raw_stdout();
    for step in steps {
        let number = || step.split_once(':').and_then(|(_, n)| n.parse::<usize>().ok()).unwrap_or_else(|| panic!("{step}"));
        match step.split_once(':').map_or(*step, |(word, _)| word) {
            _ if step.starts_with('?') => await_line(&mut input, step[1..].as_bytes())?,
            _ if step.starts_with('!') => output.write_all(&[bytes(&step[1..]), b"\n".to_vec()].concat())?,
            _ if step.starts_with('=') => output.write_all(&bytes(&step[1..]))?,
            "err" => eprintln!("{}", &step["err:".len()..]),
            "errs" => io::stderr().write_all(&vec![b'e'; number()])?,
            "line" => output.write_all(&message(number()))?,
            "lines" => (0..number()).try_for_each(|_| output.write_all(&message(1000)))?,
            "endless" => {
                output.write_all(b"{\"")?;
                let chunk = vec![b'x'; 1 << 20];
                (0..number() >> 20).try_for_each(|_| output.write_all(&chunk))?;
            }
            "wait" => thread::sleep(Duration::from_millis(number() as u64)),
            "eof" => drop(input.read_to_end(&mut Vec::new())?),
            "exit" => std::process::exit(number() as i32),
            _ => panic!("no step {step:?}"),
        }
    }
    std::process::exit(0)
}

fn await_line(input: &mut impl BufRead, text: &[u8]) -> io::Result<()> {
    let mut line = Vec::new();
    while !line.windows(text.len()).any(|part| part == text) {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            eprintln!("the client ended before it said {}", String::from_utf8_lossy(text));
            std::process::exit(0);
        }
    }
    Ok(())
}

fn message(size: usize) -> Vec<u8> {
    let (before, after) = (&b"{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\""[..], &b"\"}\n"[..]);
    [before, &vec![b'p'; size - before.len() - after.len()], after].concat()
}

fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [b'n', ..]) => out.push(b'\n'),
            (b'\\', [b'r', ..]) => out.push(b'\r'),
            (b'\\', [b'0', ..]) => out.push(0),
            (b'\\', [b'x', high, low, ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).expect("a digit") as u8;
                out.push(digit(high) * 16 + digit(low));
                rest = &rest[2..];
            }
            _ => {
                out.push(*byte);
                continue;
            }
        }
        rest = &rest[1..];
    }
    out
}
