//! Black-box tests: they start `smcp` (or the program that `SMCP_UNDER_TEST` names) as a user would, and look at its
//! streams, its exit code, its audit log and the machine. `world.rs` has the one
//! builder of worlds, `command.rs` the one command type.

#![forbid(unsafe_code)]

mod audit_report;
mod bad_input;
mod browser;
mod build;
mod cache;
mod cases;
mod clients;
mod clients_adopt;
mod command;
mod elsewhere;
mod escape;
#[allow(dead_code, reason = "each of the two test programs uses a part of it")]
#[path = "../distribution/tests/registry/fake.rs"]
mod fake;
mod faults;
mod fuzzed;
mod host;
mod hub;
mod image;
mod interoperability;
mod invariants;
#[cfg(feature = "keyless")]
mod keyless;
mod known_attacks;
mod lacks;
mod liar;
mod listing;
mod long_log;
mod needs;
mod oci;
mod organisation;
mod outside;
mod packages;
mod patience;
mod place;
mod plain_images;
mod probe;
mod processes;
mod provenance;
mod real_servers;
mod registry;
mod remains;
mod run_amounts;
mod run_audit;
mod run_calls;
mod run_ceilings;
mod run_denies;
mod run_exit;
mod run_grants;
mod run_learn;
mod run_logs;
mod run_lost;
mod run_network;
mod run_scan;
mod run_state;
mod run_stdio;
mod run_test;
mod run_why;
mod sdk;
mod servers;
mod signed;
mod signing;
mod soak;
mod sources;
mod stand_in;
mod tier;
mod tiers;
mod violent_ends;
mod warm;
mod world;
