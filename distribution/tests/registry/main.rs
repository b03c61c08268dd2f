//! Resolving, fetching and pushing against registries on loopback: one written here, which can lie in every way, and
//! Debian's own.

mod auth;
mod debian;
mod fake;
mod layouts;
mod lies;
mod names;
mod publish;
mod trouble;
mod world;
