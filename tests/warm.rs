//! A warm start does nothing but start: seen from outside, system call by system call.

use std::fs;

use crate::image;
use crate::needs;
use crate::place;
use crate::world::{World, as_each_user};

as_each_user! {
    a_warm_start_connects_copies_and_threads_nothing,
}

/// Item 7 of the thin path: no network connection, no file copied, no async runtime.
fn a_warm_start_connects_copies_and_threads_nothing(world: &World) {
    if needs::program("strace", "strace").is_none() {
        return;
    }
    world.caged(&[], &["exit", "0"]).run().ok();
    let trace = world.path("tmp/trace");
    let calls = "trace=connect,sendfile,copy_file_range,splice,write,pwrite64,clone,clone3,epoll_create1,eventfd2,io_uring_setup";
    let smcp = place::smcp();
    let ended = world
        .program("/usr/bin/strace", ["--follow-forks", "--output"])
        .args([trace.as_os_str(), "-e".as_ref(), calls.as_ref(), smcp.as_os_str()])
        .args(["run", image::probe_reference(), "exit", "0"])
        .run();
    ended.check(ended.code() == 0, "exit 0 was expected");
    let text = fs::read_to_string(trace).unwrap();
    let lines = |word: &str| text.lines().filter(|line| line.contains(word)).collect::<Vec<_>>();
    for word in ["AF_INET", "sendfile(", "copy_file_range(", "epoll_create1(", "eventfd2(", "io_uring_setup("] {
        assert_eq!(lines(word), [""; 0], "{word}");
    }
    assert_eq!(lines("CLONE_THREAD"), [""; 0], "one thread is enough for a warm start");
    // Events, the plan, the configuration and the log's two entries; the smallest layer is larger.
    let written: u64 = lines("write(").iter().filter_map(|line| line.rsplit_once("= ")?.1.parse::<u64>().ok()).sum();
    assert!(written < 128 << 10, "{written} bytes were written");
    assert!(!lines("clone3(").is_empty(), "the trace is of a start: {text}");
}
