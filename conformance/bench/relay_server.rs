//! The server of the benchmark: it shakes hands, gives back what it gets, and writes as much as it is told to at once. Compiled alone, by rustc.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

const HELLO: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}}\n";

fn main() -> io::Result<()> {
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = input.read(&mut buffer)?;
        let mut bytes = &buffer[..count];
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.starts_with(b"{\"method\":\"notifications/initialized\"}\n") {
            bytes = &bytes[39..];
        }
        if bytes.starts_with(b"{\"id\":0,\"method\":\"initialize\"}\n") {
            output.write_all(HELLO)?;
        } else if let Some(amount) = bytes.strip_prefix(b"{\"flood\":") {
            let digits = amount.iter().take_while(|byte| byte.is_ascii_digit());
            let amount = digits.fold(0, |amount, digit| amount * 10 + usize::from(digit - b'0'));
            let mut message = vec![b'p'; 64 << 10];
            message[..2].copy_from_slice(b"{\"");
            *message.last_mut().expect("it is not empty") = b'\n';
            (0..amount / message.len()).try_for_each(|_| output.write_all(&message))?;
        } else {
            output.write_all(bytes)?;
        }
    }
}
