//! What people who run servers have met, as tests: each is named by the number of its row.

mod cgroups;
mod environment;
mod kernel;
mod lifecycle;
mod limits;
