//! Bytes between client and server: all of them, in both directions at once, and no others.

use std::io::Write;

use serde_json::json;

use crate::probe::{noise, sum};
use crate::world::{World, as_each_user};

const MIB: usize = 1 << 20;

as_each_user! {
    every_byte_comes_back,
    messages_arrive_as_they_were,
    neither_direction_waits_for_the_other,
    a_half_closed_client_gets_its_answers,
    a_byte_passes_alone,
    stderr_passes_and_holds_up_nothing,
    stdout_is_the_servers_alone,
    streams_may_be_files,
}

/// 16 MiB there and back, read and written at once.
fn every_byte_comes_back(world: &World) {
    let sent = noise(16 * MIB, 7);
    let ended = world.caged(&[], &["cat"]).stdin(sent.clone()).run().ok();
    ended.check(ended.stdout() == sent, "the bytes that were sent were expected");
}

/// Valid messages of all sizes, some over a pipe's capacity.
fn messages_arrive_as_they_were(world: &World) {
    let message =
        |size: usize| json!({"jsonrpc": "2.0", "method": "x", "params": {"size": size, "pad": "ü".repeat(size)}});
    let lines: String = [0, 1, 100, 4096, 65_536, 3_000_000].map(|size| format!("{}\n", message(size))).concat();
    let ended = world.caged(&[], &["cat"]).stdin(lines.clone()).run().ok();
    ended.check(ended.stdout() == lines.as_bytes(), "the messages that were sent were expected");
}

/// A client that writes 8 MiB before it reads anything, to a server that does the same.
fn neither_direction_waits_for_the_other(world: &World) {
    let sent = noise(8 * MIB, 11);
    let mut running = world.caged(&[], &["duplex", &(8 * MIB).to_string(), "13"]).start();
    let mut stdin = running.take_stdin();
    stdin.write_all(&sent).expect("the server reads while nobody reads from it");
    drop(stdin);
    let ended = running.wait().ok();
    ended.check(ended.stdout() == noise(8 * MIB, 13), "the server's noise was expected");
    let heard = json!({"bytes": sent.len(), "sum": format!("{:016x}", sum(&sent))});
    let stderr = ended.stderr();
    let said = serde_json::from_str(stderr.lines().last().unwrap_or_default());
    ended.check(said.is_ok_and(|said: serde_json::Value| said == heard), "the server should have heard all");
}

/// A client that half-closes and still reads gets every answer (S11).
fn a_half_closed_client_gets_its_answers(world: &World) {
    let sent = noise(3 * MIB, 19);
    let answer = world.caged(&[], &["sink"]).stdin(sent.clone()).run().ok();
    let expected = json!({"bytes": sent.len(), "sum": format!("{:016x}", sum(&sent))});
    answer.check(answer.json() == expected, &format!("{expected} was expected"));
}

/// Once a client has its first answer, no byte of a message is held back until there are more, but for those that tell a
/// message from other text.
fn a_byte_passes_alone(world: &World) {
    let mut running = world.caged(&[], &["cat"]).start();
    let mut stdin = running.take_stdin();
    let answered = "{\"id\":0,\"method\":\"x\"}\n{\"id\":0,\"result\":{}}\n{\"";
    stdin.write_all(answered.as_bytes()).expect("the server reads");
    for count in 0..20 {
        running.await_stdout("each byte", |bytes| bytes.len() == answered.len() + count);
        stdin.write_all(b"x").expect("the server reads");
    }
    drop(stdin);
    running.wait().ok();
}

/// The server's stderr is smcp's, and holds up nothing (S4).
fn stderr_passes_and_holds_up_nothing(world: &World) {
    let ended = world.caged(&[], &["stderr", &(2 * MIB).to_string()]).run().ok();
    ended.check(ended.stderr().matches('e').count() >= 2 * MIB, "all of the server's stderr was expected");
    ended.check(ended.text() == "\"said\"\n", "the server's stdout was expected");
}

/// Nothing of smcp's own is on stdout, at any level of logging.
fn stdout_is_the_servers_alone(world: &World) {
    let ended = world.caged(&[], &["args", "a b", "", "--flag", "ü"]).env("MCP_LOG_LEVEL", "trace").run().ok();
    ended.check(ended.text() == "[\"a b\", \"\", \"--flag\", \"ü\"]\n", "the server's answer alone was expected");
}

/// Stdin and stdout may be files: a test harness, a pipe-less CI job.
fn streams_may_be_files(world: &World) {
    world.file("project/in", noise(MIB, 23));
    let (input, output) = (world.text("project/in"), world.text("project/out"));
    let line = format!("exec \"$0\" run {} cat <'{input}' >'{output}'", crate::image::probe_reference());
    world.program("/bin/sh", ["-c", &line, crate::place::smcp().to_str().unwrap()]).run().ok();
    assert!(std::fs::read(output).unwrap() == noise(MIB, 23), "the file's bytes were expected");
}
