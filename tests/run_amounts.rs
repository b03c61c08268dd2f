//! Much at once, both ways: messages of all sizes up to 1 MiB, cut at random places, and the same checksums at both ends.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::patience::within;
use crate::processes::{most_resident, resident};
use crate::world::{User, World, as_each_user};

include!("probe/stream.rs");

as_each_user! {
    two_hundred_megabytes_pass_each_way,
    what_a_start_needed_of_memory_is_given_back,
}

fn two_hundred_megabytes_pass_each_way(world: &World) {
    passes_each_way(world, 200_000_000);
}

/// What stays is a supervisor that waits, and not all the code that a start runs through; it goes on by what it needs.
fn what_a_start_needed_of_memory_is_given_back(world: &World) {
    let (running, mut stdin, mut stdout) = world.caged(&["--relay", "filter"], &["cat"]).start_unheard();
    let mut passes = |word: &str| {
        stdin.write_all(word.as_bytes()).expect("the server reads");
        assert_eq!(line(&mut stdout), word);
    };
    passes("{\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n");
    let most = most_resident(running.pid()).expect("it runs");
    let less = within(Duration::from_secs(60), || resident(running.pid()).filter(|now| *now < most / 3 * 2));
    assert!(less.is_some(), "{:?} bytes of {most}", resident(running.pid()));
    passes("{\"jsonrpc\":\"2.0\",\"method\":\"two\"}\n");
    drop(stdin);
    running.wait().ok();
}

#[test]
#[ignore = "minutes"]
fn ten_gigabytes_pass_each_way() {
    passes_each_way(&World::new(User::of_the_tests()), 10_000_000_000);
}

/// Through the filter with a warning that is due and without one, and by the client's own pipes.
fn passes_each_way(world: &World, amount: u64) {
    for (relay, unscored) in [("filter", "warn"), ("filter", "allow"), ("direct", "warn")] {
        let seed = std::env::var("SMCP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0x5eed_u64);
        let expected = summed(Stream::new(seed, amount));
        let run = world.caged(&["--relay", relay], &["stream", &amount.to_string(), &seed.to_string()]);
        let run = run.env("MCP_POLICY_UNSCORED", unscored).within(Duration::from_secs(60 + amount / 5_000_000));
        let (running, mut stdin, mut stdout) = run.start_unheard();
        let hello = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}"#;
        stdin.write_all(&[&hello[..], b"\n"].concat()).expect("the server reads");
        let answer = line(&mut stdout);
        let warned = relay == "filter" && unscored == "warn";
        assert_eq!(answer.contains("[smcp] The package "), warned, "{answer}");
        stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").expect("the server reads");
        let writer = thread::spawn(move || {
            let (mut stream, mut count, mut sum) = (Stream::new(seed + 1, amount), 0, Sum::new());
            while let Some(chunk) = stream.chunk() {
                stdin.write_all(chunk).expect("the server reads");
                count += chunk.len() as u64;
                sum.add(chunk);
            }
            (stdin, (count, sum.of_all()))
        });
        let (mut count, mut sum, mut buffer) = (0, Sum::new(), vec![0; 256 << 10]);
        while count < expected.0 {
            let read = stdout.read(&mut buffer).expect("a pipe can be read");
            assert!(
                read > 0,
                "{relay}, {unscored}: the stream ended after {count} of {} bytes, seed {seed}",
                expected.0
            );
            count += read as u64;
            sum.add(&buffer[..read]);
        }
        assert_eq!((count, sum.of_all()), expected, "{relay}, {unscored}, seed {seed}");
        let (stdin, sent) = writer.join().expect("the writer does not panic");
        let most = most_resident(running.pid()).expect("it runs");
        // What a debug build maps of itself, and the unpacking, are most of it.
        assert!(most < 64 << 20, "{most} bytes");
        drop(stdin);
        let ended = running.wait().ok();
        let heard: Value = serde_json::from_str(ended.stderr().lines().last().unwrap_or_default()).unwrap_or_default();
        ended.check(
            heard == json!({"bytes": sent.0, "sum": format!("{:016x}", sent.1)}),
            "the server should have heard all",
        );
    }
}

fn summed(mut stream: Stream) -> (u64, u64) {
    let (mut count, mut sum) = (0, Sum::new());
    while let Some(chunk) = stream.chunk() {
        count += chunk.len() as u64;
        sum.add(chunk);
    }
    (count, sum.of_all())
}

/// The first line, and nothing of what comes after it.
fn line(stream: &mut impl Read) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while byte != *b"\n" {
        stream.read_exact(&mut byte).expect("a line was expected");
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("UTF-8")
}
