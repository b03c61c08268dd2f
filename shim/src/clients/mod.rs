//! The configuration files of clients: what servers they start, changed over to smcp and back.
//!
//! `table` has the clients as data; `dialect` reads a file into a [`tree::Node`], which says where everything stands; `recognise` and
//! `edit` are pure. `file` and `record` alone write, and commands are thin on top.

mod adopt;
pub mod dialect;
mod diff;
pub mod edit;
pub mod entries;
mod file;
mod json;
mod known;
mod look;
mod own_path;
pub mod recognise;
mod record;
pub mod table;
mod toml;
pub mod tree;
mod undo;
mod yaml;

pub use adopt::adopt;
pub use undo::undo;
