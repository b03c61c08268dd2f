#![no_main]
#![allow(missing_docs)]

#[path = "../functions.rs"]
#[allow(dead_code)]
mod functions;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| functions::label(bytes));
