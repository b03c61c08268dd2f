//! Resolving, fetching and pushing against registries on loopback: one written here, which can lie in every way, and
//! Debian's own.

mod attached;
mod auth;
mod debian;
#[allow(dead_code, reason = "each of the two test programs uses a part of it")]
mod fake;
mod layouts;
mod lies;
mod names;
mod publish;
mod trouble;
mod world;
